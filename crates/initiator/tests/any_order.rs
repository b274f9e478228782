//! Data in any order between our initiator and our target (DataPDUInOrder=No, DataSequenceInOrder=No).

#[path = "support/checker.rs"]
mod checker;
#[path = "support/server.rs"]
mod server;

use initiator::{Disk, Session};
use iscsi_core::params::Bounds;
use iscsi_core::send_order::SendOrder;

use self::checker::{Checker, pattern};
use self::server::{LUN, options, server_with};

/// What one end is ready for.
fn set(bounds: &mut Bounds, pdus: bool, sequences: bool) {
    (bounds.data_in_order.pdus, bounds.data_in_order.sequences) = (pdus, sequences);
    (bounds.error_recovery_level, bounds.max_recv_data_segment_length) = (0, 1024);
    (bounds.bursts.max_burst_length, bounds.bursts.first_burst_length) = (8192, 4096);
}

// covers: KEY-17, KEY-18, DAT-05
#[test]
fn what_both_ends_want_is_agreed_on_and_every_byte_finds_its_place() {
    for (ours, theirs) in
        [((false, false), (false, false)), ((false, true), (false, false)), ((false, false), (true, true))]
    {
        let server = server_with(|config| set(&mut config.targets[0].bounds, theirs.0, theirs.1));
        let mut options = options(server.portals()[0]);
        set(&mut options.bounds, ours.0, ours.1);
        options.session.send_order = SendOrder::Drawn(11);
        let session = Session::connect(options.clone()).unwrap();
        let params = session.opening().login.params.clone();
        assert_eq!(params.data_in_order.pdus, ours.0 || theirs.0);
        assert_eq!(params.data_in_order.sequences, ours.1 || theirs.1);
        let mut checker = Checker::new(8, 400);
        checker.in_order = params.data_in_order.pdus && params.data_in_order.sequences;
        assert_eq!(session.run(checker).unwrap().wrong, Vec::<String>::new());

        let disk = Disk::open(&session, LUN).unwrap();
        let wanted = pattern(5, 1 << 20);
        disk.write(0, &wanted).unwrap();
        let mut got = vec![0; wanted.len()];
        disk.read(0, &mut got).unwrap();
        assert!(got == wanted);
    }
}

/// Several connections want recovery, which needs data in order.
// covers: KEY-17, KEY-18
#[test]
fn recovery_keeps_data_in_order() {
    let server = server_with(|config| {
        set(&mut config.targets[0].bounds, false, false);
        config.targets[0].bounds.error_recovery_level = 0;
    });
    let mut options = options(server.portals()[0]);
    set(&mut options.bounds, false, false);
    options.error_recovery_level = Some(1);
    let session = Session::connect(options).unwrap();
    let params = session.opening().login.params.clone();
    assert_eq!(params.error_recovery_level, 0, "the target has no recovery");
    assert!(params.data_in_order.pdus && params.data_in_order.sequences, "but the initiator wants it");
}
