//! A store of one's own: a volume that keeps nothing. Every block says its own number, and nobody may write.
//!
//! `cargo run -p intact-initiator --example custom_store -- 127.0.0.1:3260`
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use target::config::{Config, TargetConfig};
use target::observe::Observe;
use target::{IscsiName, Server, Simple, SimpleStore, StoreError};

const BLOCK: u64 = 512;

/// Its name.
pub const NAME: &str = "iqn.2026-01.org.example:numbers";

struct Numbers {
    blocks: u64,
}

impl SimpleStore for Numbers {
    fn size_bytes(&self) -> u64 {
        self.blocks * BLOCK
    }
    fn description(&self) -> String {
        "numbers".to_owned()
    }
    fn may_block(&self) -> bool {
        false
    }
    fn read_only(&self) -> bool {
        true
    }
    fn read(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        for (byte, at) in dst.iter_mut().zip(offset..) {
            *byte = (at / BLOCK).to_be_bytes()[(at % 8) as usize];
        }
        Ok(())
    }
    fn write(&self, _offset: u64, _src: &[u8]) -> Result<(), StoreError> {
        Err(StoreError::ReadOnly)
    }
    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Serves at `address` while `meanwhile` runs, which is given the address in use.
pub fn run(
    address: SocketAddr,
    meanwhile: impl FnOnce(SocketAddr),
) -> Result<(), Box<dyn std::error::Error>> {
    // The configuration knows only stores of its own: `open` replaces this one.
    let mut target = TargetConfig::new(IscsiName::parse(NAME)?, ["ram:1M".parse()?]);
    target.luns[0].read_only = true;
    let config = Config::new(&[address], vec![target]);
    let store = Arc::new(Simple::new(Numbers { blocks: 1 << 32 }));
    let open = Arc::new(move |_: &_| Ok(Arc::clone(&store) as Arc<dyn target::BlockStore>));
    let server = Server::start_with(config, Arc::new(Observe::new()), open)?;
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
