//! A target inside a program: two volumes in memory, for as long as the program runs.
//!
//! `cargo run -p intact-initiator --example embed_target -- 127.0.0.1:3260`
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use target::config::{Config, TargetConfig};
use target::observe::Observe;
use target::{IscsiName, Server, StoreSpec};

/// Its name.
pub const NAME: &str = "iqn.2026-01.org.example:embedded";

/// Serves at `address` while `meanwhile` runs, which is given the address in use.
pub fn run(
    address: SocketAddr,
    meanwhile: impl FnOnce(SocketAddr),
) -> Result<(), Box<dyn std::error::Error>> {
    let volumes: Vec<StoreSpec> = vec!["ram:64M".parse()?, "ram:16M".parse()?];
    let config = Config::new(&[address], vec![TargetConfig::new(IscsiName::parse(NAME)?, volumes)]);
    let server = Server::start(config, Arc::new(Observe::new()))?;
    meanwhile(server.portals()[0]);
    server.shutdown(Duration::from_secs(5));
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3260".to_owned()).parse()?;
    run(address, |address| {
        println!("iscsi://{address}/{NAME}/0");
        loop {
            std::thread::park();
        }
    })
}
