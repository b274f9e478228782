//! A shard that panics is reported. In a separate process, because the panic comes from the log, which is process-wide.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use conform::{LoginScript, RawPeer, Session, Transcript};
use iscsi_core::names::IscsiName;
use iscsi_core::wire::Lun;
use target::Server;
use target::config::{Config, TargetConfig};
use target::observe::Observe;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const STEP: Duration = Duration::from_secs(20);

/// A log that panics when a login is accepted.
struct Panics;

impl Visit for Panics {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" && format!("{value:?}").starts_with("accepted") {
            std::panic::resume_unwind(Box::new("expected by the test"));
        }
    }
}

impl Subscriber for Panics {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Panics);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn a_shard_that_panics_is_told_to_the_host_of_the_server() {
    tracing::subscriber::set_global_default(Panics).unwrap();
    let name = IscsiName::parse("iqn.2026-01.org.example:disk").unwrap();
    let target = TargetConfig::new(name, ["ram:1M".parse().unwrap()]);
    let mut config = Config::new(&["127.0.0.1:0".parse().unwrap()], vec![target]);
    config.limits.shards = 2;
    let observe = Arc::new(Observe::new());
    let (tell, told) = channel();
    observe.failures.set_handler(move |failure| tell.send(failure.clone()).unwrap());
    let name = config.targets[0].name.to_string();
    let server = Server::start(config, observe).unwrap();
    let peer = RawPeer::connect(server.portals()[0], STEP, &Transcript::new()).unwrap();
    let script = LoginScript::new("iqn.2026-01.org.example:a", Some(&name));
    assert!(Session::log_in(peer, script, Lun(0)).is_err(), "the shard is gone");
    let failure = told.recv_timeout(STEP).unwrap();
    assert!(failure.thread.starts_with("shard-"), "{failure}");
    assert_eq!(failure.what, "it panicked: expected by the test");
    assert_eq!(server.silent_shards(Duration::from_millis(300)).len(), 1);
}
