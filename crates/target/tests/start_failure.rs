//! A server that cannot start completely does not start. In a separate process, because it runs out of file descriptors.

use std::sync::Arc;

use blockstore::StoreSpec;
use iscsi_core::names::IscsiName;
use iscsi_core::params::Bounds;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use target::config::{AccessRules, Auth, Config, Limits, LunConfig, PortalConfig, TargetConfig};
use target::observe::Observe;
use target::{Server, StartError};

fn count(folder: &str) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

#[test]
fn a_start_that_fails_half_way_leaves_nothing_running() {
    let store = StoreSpec::Ram {
        size_bytes: 1 << 20,
        logical_block_bytes: None,
        resident_limit_bytes: None,
        protection: None,
    };
    let config = Config {
        portals: vec![PortalConfig { address: "127.0.0.1:0".parse().unwrap(), group_tag: 1 }],
        targets: vec![TargetConfig {
            name: IscsiName::parse("iqn.2026-01.org.example:disk").unwrap(),
            alias: None,
            luns: vec![LunConfig::new(0, store)],
            access: AccessRules::default(),
            auth: Auth::None,
            bounds: Bounds::default(),
            queue_depth: 16,
            redirect: None,
            access_states: Vec::new(),
            hosts_set_access_states: false,
            management_url: None,
            portals: None,
        }],
        discovery_auth: Auth::None,
        limits: Limits { shards: 50, ..Limits::default() },
        state_dir: None,
        require_every_store: false,
    };
    let (threads, files) = (count("/proc/self/task"), count("/proc/self/fd"));
    let before = getrlimit(Resource::Nofile);
    // Every shard takes two descriptors: some of the fifty get theirs.
    setrlimit(Resource::Nofile, Rlimit { current: Some(files as u64 + 40), ..before }).unwrap();
    let failed = Server::start(config, Arc::new(Observe::new()));
    setrlimit(Resource::Nofile, before).unwrap();
    assert!(matches!(failed, Err(StartError::Shard(_))), "{:?}", failed.err());
    assert_eq!(count("/proc/self/task"), threads, "threads were left");
    assert_eq!(count("/proc/self/fd"), files, "descriptors were left");
}
