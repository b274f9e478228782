//! Connections that are open and deliver nothing.

use std::time::Duration;

use iscsi_wire::{Cid, Itt, LogoutReason, LogoutResponseCode, Lun, Pdu, TmfFunction, TmfResponse, Ttt};

use super::{Script, several};
use crate::params::{Asymmetric, Params};

/// Timeouts that a silent connection is waited for.
const TIMEOUTS: u32 = 2;
/// The shortest timeout.
const TIMEOUT: Duration = Duration::from_millis(200);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Script {
    /// Three connections with a read on each, of which nothing is heard.
    fn silent(level: u8) -> (Self, Vec<(Cid, Itt)>) {
        let mut script = Self::with_connections(3, level);
        script.session.config.starved_timeouts = TIMEOUTS;
        let commands = script.reads_on_all(3, 1);
        // So that none of them is sent again.
        script.acknowledge_all(3);
        let nop_in = script.nop_in(Itt::RESERVED, Ttt::RESERVED, Lun(0));
        script.receive(nop_in.to_bhs(), &[]);
        script.sent_nothing();
        (script, commands)
    }

    /// The pings sent now.
    fn pings(&mut self) -> Vec<(Cid, Itt)> {
        let sent = self.sent_on().into_iter();
        sent.map(|(cid, pdu)| match pdu {
            Pdu::NopOut(ping) => (cid, ping.itt),
            other => panic!("no ping: {other:?}"),
        })
        .collect()
    }

    fn pong(&mut self, (cid, itt): (Cid, Itt)) {
        let pong = self.on(cid).nop_in(itt, Ttt::RESERVED, Lun(0));
        self.receive(pong.to_bhs(), &[]);
    }

    /// When the session wants to be called, from now.
    fn due_in(&self) -> Option<Duration> {
        self.session.poll_timeout().map(|at| at.saturating_sub(self.now))
    }
}

// covers: ERL-05 ERL-06 ERL-11
#[test]
fn a_connection_that_stays_silent_while_others_answer_is_given_up() {
    let (mut script, commands) = Script::silent(2);
    assert_eq!(script.due_in(), Some(TIMEOUT));
    script.pass(TIMEOUT);
    let pings = script.pings();
    assert_eq!(pings.len(), 3, "all are asked");
    script.pass(ms(30));
    script.pong(pings[0]);
    script.pass(ms(40));
    script.pong(pings[2]);
    let silent = pings[1].0;
    assert_eq!(script.session.doubted().collect::<Vec<_>>(), [silent]);
    // Two timeouts of 200 ms and the first answer's 30, since the pings.
    assert_eq!(script.due_in(), Some(2 * ms(230) - ms(70)));
    script.pass(2 * ms(230) - ms(70));
    let (via, reason, of, itt) = script.logout_of();
    assert_eq!((reason, of), (LogoutReason::RemoveConnectionForRecovery, silent));
    assert_eq!(script.about_connections(), [format!("close {} Silent", silent.0)]);
    script.on(via).answer_logout(itt, LogoutResponseCode::Success, 0);
    let functions = script.functions();
    assert_eq!((functions.len(), functions[0].1), (1, TmfFunction::TaskReassign));
    script.answer(functions[0].2, TmfResponse::FunctionComplete);
    for (cid, itt) in commands {
        script.on(if cid == silent { functions[0].0 } else { cid }).good(itt);
    }
    assert_eq!(script.all_ended().len(), 3);
    assert_eq!(script.due_in().map(|due| due >= ms(1000)), Some(true), "without commands no roll is called");
}

/// What counts is a PDU or the word of the transport since the pings; the next roll call begins a timeout later, with the round trip of the
/// last.
// covers: ERL-11
#[test]
fn a_connection_of_which_something_is_heard_stays() {
    let (mut script, _) = Script::silent(2);
    script.pass(TIMEOUT);
    let pings = script.pings();
    script.pass(ms(100));
    script.pong(pings[0]);
    // One says that its TCP had an acknowledgement at the time of the pings, the other one that it is too early to say.
    let called_at = script.now - ms(100);
    script.session.transport_lives(pings[1].0, called_at);
    script.pass(ms(499));
    script.session.transport_lives(pings[2].0, script.now);
    assert_eq!(script.session.doubted().count(), 0);
    script.pass(ms(1));
    script.sent_nothing();
    assert!(script.about_connections().is_empty());
    // The oldest sign of life was 600 ms ago: the next roll is due. Pings that are under way are not repeated.
    script.session.handle_timeout(script.now);
    let again = script.pings();
    assert_eq!(again.iter().map(|(cid, _)| *cid).collect::<Vec<_>>(), [pings[0].0]);
    // An answer to an older ping is one, too; it was on its way for longer.
    script.pass(ms(10));
    script.pong(pings[1]);
    assert_eq!(script.due_in(), Some(2 * ms(810) - ms(10)));
    script.pass(ms(90));
    script.pong(again[0]);
    script.pass(2 * ms(810) - ms(100));
    let (_, _, of, _) = script.logout_of();
    assert_eq!(of, pings[2].0);
}

/// The network is silent as a whole: it is TCP's business, and the keepalive's.
// covers: ERL-11
#[test]
fn where_nobody_answers_nobody_is_given_up() {
    let (mut script, _) = Script::silent(2);
    script.pass(TIMEOUT);
    let pings = script.pings();
    assert_eq!(script.due_in(), Some(ms(4800)), "commands that are probed after 5 s");
    script.pass(ms(1200));
    script.sent_nothing();
    // After a second the first answers, and the others have time accordingly.
    script.pong(pings[2]);
    assert_eq!(script.due_in(), Some(2 * ms(1400) - ms(1200)));
    script.pass(ms(1000));
    script.pong(pings[0]);
    script.pong(pings[1]);
    let nop_in = script.on(pings[2].0).nop_in(Itt::RESERVED, Ttt::RESERVED, Lun(0));
    script.receive(nop_in.to_bhs(), &[]);
    script.pass(2 * ms(1400) - ms(2200));
    script.sent_nothing();
    assert!(script.about_connections().is_empty());
    // The next roll waits longer by this round trip, as on a busy network. All were heard of 600 ms ago.
    assert_eq!(script.due_in(), Some(ms(1400 - 600)));
}

// covers: ERL-11
#[test]
fn a_roll_call_that_nobody_answers_ends_with_the_time_for_a_ping() {
    let (mut script, _) = Script::silent(2);
    script.pass(TIMEOUT);
    assert_eq!((script.pings().len(), script.session.doubted().count()), (3, 3));
    script.pass(script.session.config.ping_timeout);
    assert_eq!(script.session.doubted().count(), 0);
    assert!(script.about_connections().is_empty());
}

/// The one that answered is gone at the end: the others have nothing to be compared with.
// covers: ERL-11
#[test]
fn the_last_connection_is_never_given_up() {
    let (mut script, _) = Script::silent(2);
    script.pass(TIMEOUT);
    let pings = script.pings();
    script.pong(pings[0]);
    script.session.connection_lost(script.now, pings[0].0);
    script.logout_of();
    assert_eq!(script.about_connections(), [format!("close {} Lost", pings[0].0.0)]);
    script.pass(2 * TIMEOUT);
    script.sent_nothing();
    assert!(script.about_connections().is_empty());
    assert_eq!(script.session.connected().count(), 2);
}

/// Below level 2 it would cost commands; in asymmetric use connections are silent by their nature; and with one there is no comparison.
// covers: ERL-11
#[test]
fn a_roll_is_called_only_where_giving_up_is_safe() {
    let far = |script: &Script| script.due_in().is_none_or(|due| due >= ms(1000));
    for level in [0, 1] {
        assert!(far(&Script::silent(level).0));
    }
    let mut script = Script::silent(2).0;
    script.session.config.starved_timeouts = 0;
    assert!(far(&script));
    let mut script = Script::with_connections(1, 2);
    script.session.config.starved_timeouts = TIMEOUTS;
    script.read(1, 512);
    assert!(far(&script));
    let asymmetric =
        Params { error_recovery_level: 2, max_connections: 2, asymmetric: Asymmetric::Pairs, ..several() };
    let mut script = Script::with_connections_and(2, asymmetric);
    script.session.config.starved_timeouts = TIMEOUTS;
    script.read(1, 512);
    script.sent();
    assert!(far(&script));
    // Idle connections are not looked at.
    let mut script = Script::with_connections(2, 2);
    script.session.config.starved_timeouts = TIMEOUTS;
    assert!(far(&script));
}
