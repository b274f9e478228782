//! Log lines that depend only on the passing of time.

use std::time::Duration;

use conform::{Command, Frame, Unsolicited};

use crate::lab::Lab;

/// A write whose data is requested, and sent after `time`.
fn write_that_takes(lab: &Lab, session: &mut conform::Session, time: Duration) {
    let sent = session.start(&Command::write_16(0, vec![7; 512], 512).unsolicited(Unsolicited::No)).unwrap();
    let r2t = session.expect_r2t(&sent).unwrap();
    lab.pass(time);
    session.serve(&sent, &r2t).unwrap();
    assert!(session.finish(&sent).unwrap().is_good());
}

#[test]
fn a_slow_command_has_a_line_and_others_have_none() {
    let lab = Lab::start();
    let mut session = lab.log_in(1);
    session.clear_unit_attentions().unwrap();
    write_that_takes(&lab, &mut session, Duration::from_millis(4900));
    write_that_takes(&lab, &mut session, Duration::from_millis(5100));
    let line = lab.log_line("command took", "4.9 s");
    assert!(line.contains("write command took 5.1 s") && line.contains("lun=0"), "{line}");
    assert!(line.contains("iqn.2026-01.org.example:host") && line.contains("org.example:many"), "{line}");
}

/// Whether or not the connection survives: users need the message most when it ends at once.
#[test]
fn digests_that_do_not_match_have_a_line() {
    for level in ["0", "2"] {
        let lab = Lab::start();
        let script = Lab::script(1).key("DataDigest", "CRC32C").key("ErrorRecoveryLevel", level);
        let mut session = lab.log_in_by(script);
        session.clear_unit_attentions().unwrap();
        let nop = session.nop(iscsi_core::wire::Itt(0x77), true);
        session.peer.send(&Frame::of(nop).data(vec![1; 64]).corrupt_data_byte(3)).unwrap();
        // The counts of a session are updated after half a second, or when it ends.
        lab.pass_a_while();
        let _ = session.ping();
        drop(session);
        let line = lab.log_line("digest that does not match", "");
        assert!(line.contains("1 PDUs") && line.contains("127.0.0.1"), "level {level}: {line}");
    }
}

/// Whoever connects again and again cannot fill a disk with our log.
#[test]
fn refused_connections_have_a_few_lines_a_second_and_their_number() {
    let lab = Lab::start_with(|limits| limits.max_connections = 1);
    let _session = lab.log_in(1);
    for more in [15, 1] {
        for _ in 0..5 + more {
            lab.is_turned_away();
        }
        lab.pass(Duration::from_secs(1));
        let lines = lab.log_until("more connections were refused");
        let refused = |line: &&String| line.contains("a connection was refused: limits.max_connections");
        assert_eq!(lines.iter().filter(refused).count(), 5, "{lines:?}");
        assert!(lines.last().unwrap().contains(&format!("{more} more")), "{lines:?}");
    }
}
