//! Our target on loopback, and how to reach it.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use initiator::{Options, Portal};
use iscsi_core::names::IscsiName;
use iscsi_core::wire::Lun;
use target::Server;
use target::config::{Config, TargetConfig};
use target::observe::Observe;

pub const TARGET: &str = "iqn.2026-01.org.example:disk";
pub const LUN: Lun = Lun(0);

/// One target with one unit, on a port chosen by the system.
pub fn config(store: &str) -> Config {
    let target = TargetConfig::new(IscsiName::parse(TARGET).unwrap(), [store.parse().unwrap()]);
    Config::new(&["127.0.0.1:0".parse().unwrap()], vec![target])
}

/// A server with a unit of 64 MiB, whose configuration `change` adjusts.
pub fn server_with(change: impl FnOnce(&mut Config)) -> Server {
    let mut config = config("ram:64M");
    change(&mut config);
    Server::start(config, Arc::new(Observe::new())).unwrap()
}

pub fn server() -> Server {
    server_with(|_| {})
}

/// A server that offers every ErrorRecoveryLevel, and a session again at once.
pub fn level_server() -> Server {
    server_with(|config| {
        let bounds = &mut config.targets[0].bounds;
        (bounds.error_recovery_level, bounds.default_time2wait_s) = (2, 0);
    })
}

pub fn end(server: Server) {
    server.shutdown(Duration::from_secs(5));
}

pub fn portal(address: SocketAddr) -> Portal {
    Portal::new(address.ip().to_string(), address.port())
}

/// A session with its target, at `address`.
pub fn options(address: SocketAddr) -> Options {
    Options::new(portal(address), Some(IscsiName::parse(TARGET).unwrap()))
}
