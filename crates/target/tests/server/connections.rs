//! Several connections in a session, on real sockets: joining, losing one, and continuing on
//! another.

use conform::{Frame, Session};
use iscsi_core::wire::{Cid, LoginStatus, LogoutReason, Pdu, TmfFunction, TmfResponse};
use target::config::{Config, default_bounds};

use crate::support::{Lab, byte_at, config, portal, read, refused, until, write};

fn recovering() -> Config {
    let mut config = config();
    config.targets[0].bounds = default_bounds();
    config
}

/// Logs in a session with `count` connections; they share CmdSN by [`turn`].
fn connections(lab: &Lab, count: u16, level: &str) -> Vec<Session> {
    let keys = [("MaxConnections", "4"), ("ErrorRecoveryLevel", level), ("DefaultTime2Retain", "20")];
    let script = keys.iter().fold(lab.script("a"), |script, (key, value)| script.key(key, value));
    let mut first = lab.login(&script);
    first.clear_unit_attentions().unwrap();
    let mut all = vec![first];
    for cid in 2..=count {
        let peer = lab.connect();
        all.push(all[0].join(peer, Cid(cid)).unwrap());
    }
    all
}

/// Lets connection `to` continue where `from` is in the command window.
fn turn(sessions: &mut [Session], from: usize, to: usize) {
    sessions[to].cmd_sn = sessions[from].cmd_sn;
}

// covers: MCS-01, LGN-03, LGN-20, NUM-02, MCS-04
#[test]
fn mcs_01_a_session_has_several_connections() {
    let mut config = recovering();
    config.portals.push(portal(2));
    let lab = Lab::start(config);
    let mut all = connections(&lab, 4, "0");
    for i in 0..4 {
        all[i].run_good(&write(i as u64, i as u8 + 1)).unwrap();
        turn(&mut all, i, (i + 1) % 4);
    }
    for i in 0..4 {
        assert_eq!(byte_at(&mut all[i], 3 - i as u64), 4 - i as u8);
        turn(&mut all, i, (i + 1) % 4);
    }
    let info = &lab.sessions()[0];
    assert_eq!((lab.sessions().len(), info.connections.len(), info.max_connections()), (1, 4, 4));
    // A fifth one is too many; a portal of another group belongs to another session.
    assert_eq!(refused(all[0].join(lab.connect(), Cid(5))), LoginStatus::TooManyConnections);
    let elsewhere = lab.connect_to(lab.server.portals()[1]);
    assert_eq!(refused(all[0].join(elsewhere, Cid(5))), LoginStatus::CannotIncludeInSession);
    // The second one is logged out on the third, and there is room again.
    let mut request = all[2].logout_request(LogoutReason::CloseConnection);
    (request.cid, request.cmd_sn) = (Cid(2), all[0].cmd_sn);
    all[2].peer.send(&Frame::of(request)).unwrap();
    all[2].next_for(request.itt).unwrap();
    all[1].peer.until_closed().unwrap();
    let peer = lab.connect();
    let mut fifth = all[0].join(peer, Cid(5)).unwrap();
    assert_eq!(byte_at(&mut fifth, 0), 1);
}

// covers: ERL-05, ERL-06, ERL-10, MCS-05, SES-03
#[test]
fn erl_06_commands_of_a_broken_connection_go_on() {
    let (lab, gate) = Lab::gated(recovering());
    let mut all = connections(&lab, 2, "2");
    gate.close(&[blockstore::Op::Write, blockstore::Op::Read]);
    turn(&mut all, 0, 1);
    let written = all[1].start(&write(5, 0x55)).unwrap();
    gate.wait_for_waiting(1);
    let broken = all.pop().unwrap();
    broken.peer.reset();
    until(|| lab.sessions()[0].lost_connections == 1);
    gate.open();
    let first = &mut all[0];
    first.cmd_sn = written.cmd_sn.next();
    let mut reassign = first.tmf(TmfFunction::TaskReassign, true);
    reassign.referenced_task_tag = written.itt;
    assert_eq!(first.manage(reassign).unwrap(), TmfResponse::TaskStillAllegiant);
    let mut logout = first.logout_request(LogoutReason::RemoveConnectionForRecovery);
    logout.cid = Cid(2);
    first.peer.send(&Frame::of(logout)).unwrap();
    let rx = first.next_for(logout.itt).unwrap();
    assert!(
        matches!(rx.pdu().unwrap(), Pdu::LogoutResponse(p) if p.response.code() == 0 && p.time2retain == 20)
    );
    let mut reassign = first.tmf(TmfFunction::TaskReassign, true);
    reassign.referenced_task_tag = written.itt;
    assert_eq!(first.manage(reassign).unwrap(), TmfResponse::FunctionComplete);
    assert!(first.finish(&written).unwrap().is_good());
    assert_eq!(byte_at(first, 5), 0x55);
    let info = &lab.sessions()[0];
    assert_eq!((info.recovery.tasks_reassigned, info.recovery.connections_lost), (1, 1));
}

/// A connection whose peer accepts nothing fills its own share of memory, and the reads of others
/// continue.
// covers: MCS-05
#[test]
fn mcs_05_a_connection_that_takes_nothing_stalls_no_other() {
    let lab = Lab::start(recovering());
    let mut all = connections(&lab, 2, "0");
    turn(&mut all, 0, 1);
    // 64 reads of one MiB each whose data the initiator does not accept.
    for _ in 0..64 {
        all[1].start(&conform::Command::read_16(0, 2048, 512)).unwrap();
    }
    turn(&mut all, 1, 0);
    for lba in 0..32 {
        all[0].run_good(&read(lba)).unwrap();
    }
}
