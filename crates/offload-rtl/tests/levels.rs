//! ErrorRecoveryLevel 1 and 2 in whole sessions of the circuit with our target, over a link that damages data and is cut. The engine in
//! software has the first in `offloaded.rs` of the initiator.
#![forbid(unsafe_code)]

#[path = "../../initiator/tests/support/proxy.rs"]
mod proxy;
#[path = "../../initiator/tests/support/server.rs"]
mod server;

use std::time::Duration;

use initiator::{Circuit, Disk, EngineKind, Session, WriteData, cdb};
use iscsi_core::params::DigestPolicy;
use offload_rtl::{RtlEngine, Width};
use proxy::{Damage, Proxy};
use server::{LUN, end, level_server};

const BYTES: usize = 96 * 1024;

/// A session at this level, with `data` written.
fn session(proxy: &Proxy, engine: EngineKind, level: u8, data: &[u8]) -> (Session, Disk) {
    let mut options = server::options(proxy.address());
    options.set_engine(engine);
    options.set_circuit(Circuit::new(|| RtlEngine::new(Width::Bits512, 1)));
    options.error_recovery_level = Some(level);
    options.session.snack_delay = Duration::from_millis(1);
    // A simulation is slow.
    options.session.recovery_timeout = Duration::from_secs(60);
    (options.bounds.header_digest, options.bounds.data_digest) = (DigestPolicy::Off, DigestPolicy::Required);
    let session = Session::connect(options).expect("the target has all levels");
    assert_eq!(session.opening().login.params.error_recovery_level, level);
    let disk = Disk::open(&session, LUN).expect("there is a disk");
    disk.write(0, data).expect("it is written");
    (session, disk)
}

fn data() -> Vec<u8> {
    (0..BYTES).map(|n| ((n * 7) >> 3) as u8).collect()
}

/// At level 1 and 2 a bad data digest costs a SNACK, and at level 0 the session.
#[test]
fn damaged_data_is_requested_again_in_the_session() {
    let (server, data) = (level_server(), data());
    for level in 0..=2 {
        let proxy = Proxy::start(server.portals()[0]);
        let (session, disk) = session(&proxy, EngineKind::Rtl, level, &data);
        proxy.damage(0, Damage::ToInitiator);
        let mut back = vec![0; BYTES];
        disk.read(0, &mut back).expect("it is read");
        assert!(back == data, "level {level}");
        let info = session.info().expect("the session is open");
        let (again, lost) = (info.recovery.snacks_sent > 0, info.losses > 0);
        assert_eq!((info.data_digest_errors, again, lost), (1, level > 0, level == 0), "level {level}");
        assert_eq!(proxy.count(), if level > 0 { 1 } else { 2 }, "connections");
    }
    end(server);
}

/// At level 2 too, a command whose connection is lost is carried out by the session that follows: an engine reassigns no tasks.
#[test]
fn commands_outlive_their_connection() {
    let (server, data) = (level_server(), data());
    for engine in [EngineKind::Software, EngineKind::Rtl] {
        let proxy = Proxy::start(server.portals()[0]);
        let (session, disk) = session(&proxy, engine, 2, &data);
        let blocks = (BYTES / 512) as u32;
        proxy.cut_at_data(0);
        let reads: Vec<_> =
            (0..4).map(|_| disk.submit(&cdb::read(0, blocks), BYTES as u32, WriteData::default())).collect();
        for read in reads {
            assert!(read.wait().expect("it is carried out").to_vec() == data, "{engine:?}");
        }
        let info = session.info().expect("the session is open");
        assert_eq!((info.losses, info.login.logins, proxy.count()), (1, 2, 2), "{engine:?}");
    }
    end(server);
}
