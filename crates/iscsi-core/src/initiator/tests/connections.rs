//! Several connections: joining, spreading, leaving, losing one, losing all.

use std::time::Duration;

use iscsi_wire::{
    AsyncEvent, Cid, CmdSn, Itt, LogoutReason, LogoutResponse, LogoutResponseCode, Lun, Pdu, TmfFunction,
    TmfResponse, Tsih,
};

use super::super::scheduling::{PROMPT, Turns};
use super::{FIRST, Script, logged_in, params, pattern, several, status};
use crate::initiator::command::{Command, Ending};
use crate::initiator::session::{Action, CloseReason, JoinError, Scheduling};
use crate::params::Params;

impl Script {
    /// Reads that are sent, `per` of them for each of `n` connections; their tags by connection.
    pub(super) fn reads_on_all(&mut self, n: u16, per: u64) -> Vec<(Cid, Itt)> {
        for user in 0..u64::from(n) * per {
            self.read(user, 512);
        }
        let commands = self.commands();
        assert_eq!(commands.len() as u64, u64::from(n) * per);
        commands
    }

    /// The logout sent now: the connection it is sent on, its reason, the connection it is for, its tag.
    pub(super) fn logout_of(&mut self) -> (Cid, LogoutReason, Cid, Itt) {
        let mut sent = self.sent_on();
        assert_eq!(sent.len(), 1, "{sent:?}");
        match sent.remove(0) {
            (via, Pdu::LogoutRequest(request)) => (via, request.reason, request.cid, request.itt),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn answer_logout(&mut self, itt: Itt, response: LogoutResponseCode, time2wait: u16) {
        let pdu = LogoutResponse { response, itt, numbers: self.take_numbers(), time2wait, time2retain: 20 };
        self.receive(pdu.to_bhs(), &[]);
    }

    /// The tags of the commands sent now, whatever data goes with them.
    fn commands_with_data(&mut self) -> Vec<Itt> {
        let sent = self.sent_on().into_iter();
        sent.filter_map(|(_, pdu)| match pdu {
            Pdu::ScsiCommand(command) => Some(command.itt),
            _ => None,
        })
        .collect()
    }

    /// Takes what was reported about connections.
    pub(super) fn about_connections(&mut self) -> Vec<String> {
        let mut about = Vec::new();
        self.said.retain(|action| match action {
            Action::CloseConnection { cid, reason } => {
                about.push(format!("close {} {reason:?}", cid.0));
                false
            }
            Action::Connect { cid, wait } => {
                about.push(format!("connect {} {}", cid.0, wait.as_secs()));
                false
            }
            _ => true,
        });
        about
    }

    /// The functions sent now: connection, function, tag, referenced tag, ExpDataSN.
    pub(super) fn functions(&mut self) -> Vec<(Cid, TmfFunction, Itt, Itt, u32)> {
        let sent = self.sent_on().into_iter();
        sent.map(|(cid, pdu)| match pdu {
            Pdu::TaskManagementRequest(r) => {
                assert!(r.immediate);
                (cid, r.function, r.itt, r.referenced_task_tag, r.exp_data_sn.0)
            }
            other => panic!("{other:?}"),
        })
        .collect()
    }

    /// The target has received every command so far.
    pub(super) fn acknowledge_all(&mut self, n: u32) {
        self.exp_cmd_sn = CmdSn(FIRST).add(n);
        self.max_cmd_sn = CmdSn(FIRST).add(n + 7);
    }
}

#[test]
fn mcs_01_a_connection_joins_its_own_session_once() {
    let mut script = Script::with_connections(2, 0);
    let join = script.session.joining();
    assert_eq!((join.tsih, join.cmd_sn), (Tsih(1), CmdSn(FIRST)));
    let mut login = logged_in(params(), Cid(1), CmdSn(FIRST));
    assert_eq!(script.session.join(script.now, &login), Err(JoinError::NoPlace(1)));
    (login.cid, login.tsih) = (Cid(2), Tsih(2));
    assert_eq!(script.session.join(script.now, &login), Err(JoinError::OtherSession(2)));
    (login.tsih, login.portal_group_tag) = (Tsih(1), Some(7));
    assert_eq!(script.session.join(script.now, &login), Err(JoinError::OtherPortalGroup(7, 1)));
    script.session.lost();
    login.tsih = Tsih(1);
    assert_eq!(script.session.join(script.now, &login), Err(JoinError::Over));
    assert_eq!(script.session.connected().count(), 2);
}

#[test]
fn mcs_02_pdus_of_a_task_on_another_connection_end_the_session() {
    let mut script = Script::with_connections(2, 0);
    let commands = script.reads_on_all(2, 1);
    assert_ne!(commands[0].0, commands[1].0);
    script.on(commands[0].0);
    script.good(commands[1].1);
    assert!(script.violated().contains("4.2.5.1"));
}

// covers: MCS-03 NUM-01
#[test]
fn one_sequence_of_numbers_spread_over_all_by_bytes_or_in_turn() {
    for (scheduling, expected) in [
        (Scheduling::RoundRobin, [0, 1, 2, 0, 1, 2]),
        (Scheduling::LeastOutstandingBytes, [0, 1, 2, 1, 2, 1]),
    ] {
        let mut script = Script::with_connections(3, 0);
        script.session.config.scheduling = scheduling;
        script.session.turns = Turns::default();
        script.read(0, 4000);
        for user in 1..6 {
            script.read(user, 512);
        }
        let sent = script.sent_on();
        let cids: Vec<u16> = sent.iter().map(|(cid, _)| cid.0).collect();
        assert_eq!(cids, expected, "{scheduling:?}");
        for (n, (_, pdu)) in sent.iter().enumerate() {
            assert!(matches!(pdu, Pdu::ScsiCommand(c) if c.cmd_sn == CmdSn(FIRST).add(n as u32)));
        }
    }
    // Unsolicited data follows its command, on the same connection.
    let mut script = Script::with_connections(2, 0);
    script.write(1, 8192);
    script.write(2, 8192);
    let mut last = None;
    for (cid, pdu) in script.sent_on() {
        match pdu {
            Pdu::ScsiCommand(command) => last = Some((cid, command.itt)),
            Pdu::DataOut(data) => assert_eq!(last, Some((cid, data.itt))),
            other => panic!("{other:?}"),
        }
    }
}

// covers: MCS-03
#[test]
fn a_connection_is_filled_before_the_next_and_large_commands_spread() {
    let mut script = Script::with_connections_and(3, Params { max_connections: 3, ..params() });
    script.session.config.scheduling = Scheduling::FillFirst;
    (script.max_cmd_sn, script.session.turns) = (CmdSn(FIRST).add(95), Turns::default());
    let ping = script.nop_in(Itt::RESERVED, iscsi_wire::Ttt::RESERVED, Lun(0));
    script.receive(ping.to_bhs(), &[]);
    let next = |script: &mut Script, lengths: &[u32]| {
        lengths.iter().for_each(|length| script.read(1, *length));
        script.commands()
    };
    let cids = |commands: &[(Cid, Itt)]| commands.iter().map(|(cid, _)| cid.0).collect::<Vec<_>>();
    let first = next(&mut script, &[4096; 32]);
    assert_eq!(cids(&first), [0; 32]);
    assert_eq!(
        cids(&next(&mut script, &[300_000, 200_000, 200_000])),
        [0, 1, 1],
        "what has no room there goes on"
    );
    assert_eq!(cids(&next(&mut script, &[4096; 2])), [0; 2], "and what has, does not");
    assert_eq!(
        cids(&next(&mut script, &[1_000_000, 1_000_000, 1_000_000])),
        [2, 1, 0],
        "none has room: the fewest bytes"
    );
    // The fullest connection gets the next command only as long as it has room for it.
    for (cid, itt) in first {
        script.on(cid).good(itt);
    }
    script.sent_nothing();
    assert_eq!(cids(&next(&mut script, &[4096])), [2]);
}

/// A connection that completes commands promptly may have more outstanding; the first late one shows that others should help.
// covers: MCS-03
#[test]
fn a_prompt_connection_is_given_more_until_it_is_late() {
    let mut script = Script::with_connections_and(3, Params { max_connections: 3, ..params() });
    script.session.config.scheduling = Scheduling::FillFirst;
    let mut sent = 500;
    let mut round = |script: &mut Script, takes: Duration| {
        sent += 8;
        script.max_cmd_sn = CmdSn(FIRST).add(sent + 8);
        let ping = script.nop_in(Itt::RESERVED, iscsi_wire::Ttt::RESERVED, Lun(0));
        script.receive(ping.to_bhs(), &[]);
        (0..8).for_each(|user| script.read(user, 128 << 10));
        let commands = script.commands();
        script.now += takes;
        for (cid, itt) in &commands {
            script.on(*cid).good(*itt);
        }
        script.sent_nothing();
        let mut on = [0; 3];
        commands.iter().for_each(|(cid, _)| on[usize::from(cid.0)] += 1);
        on.sort_unstable();
        on
    };
    assert_eq!(round(&mut script, PROMPT), [2, 3, 3]);
    let settled = (0..40).map(|_| round(&mut script, PROMPT)).last();
    assert_eq!(settled, Some([0, 0, 8]), "one of them ends all of it in time");
    assert_eq!(round(&mut script, PROMPT + Duration::from_nanos(1)), [0, 0, 8]);
    let earned = |script: &Script| script.session.connections.iter().map(|c| c.earned_bytes).sum::<u64>();
    let before = earned(&script);
    // A small load proves nothing.
    for _ in 0..500 {
        script.read(1, 4096);
        let (cid, itt) = script.commands()[0];
        script.on(cid).good(itt);
        script.sent_nothing();
    }
    assert_eq!(earned(&script), before);
}

#[test]
fn a_connection_that_is_lost_is_not_filled() {
    let mut script = Script::with_connections(2, 0);
    script.session.config.scheduling = Scheduling::FillFirst;
    script.read(1, 512);
    let first = script.commands()[0].0;
    script.session.connection_lost(script.now, first);
    script.logout_of();
    script.read(5, 512);
    assert_ne!(script.commands()[0].0, first);
}

#[test]
fn a_connection_that_ends_its_commands_gets_the_next() {
    let mut script = Script::with_connections(2, 0);
    let commands = script.reads_on_all(2, 2);
    let (busy, idle) = (commands[0].0, commands[1].0);
    for (_, itt) in commands.iter().filter(|(cid, _)| *cid == idle) {
        script.on(idle).good(*itt);
    }
    script.sent_nothing();
    for user in 10..12 {
        script.read(user, 512);
    }
    assert!(script.commands().iter().all(|(cid, _)| *cid == idle), "{busy:?} has two under way");
}

// covers: MCS-07
#[test]
fn erl_0_a_lost_connection_is_logged_out_and_its_commands_begin_anew() {
    let mut script = Script::with_connections(2, 0);
    let commands = script.reads_on_all(2, 2);
    let (dead, alive) = (commands[1].0, commands[0].0);
    // Of the commands 0 to 3 the target has received 0 and 1.
    (script.exp_cmd_sn, script.max_cmd_sn) = (CmdSn(FIRST).add(2), CmdSn(FIRST).add(7));
    script.session.connection_lost(script.now, dead);
    let (via, reason, of, itt) = script.logout_of();
    assert_eq!((via, reason, of), (alive, LogoutReason::CloseConnection, dead));
    assert_eq!(script.about_connections(), [format!("close {} Lost", dead.0)]);
    // Commands on the other connection continue.
    script.on(alive).good(commands[0].1);
    assert_eq!(script.ended().0, 0);
    script.answer_logout(itt, LogoutResponseCode::Success, 0);
    assert_eq!(script.take_ended(), []);
    // 1 was received: it died with its connection, and is started again. 3 was not: its number must be accounted for first.
    let sent = script.sent_on();
    assert_eq!(script.about_connections(), [format!("connect {} 0", dead.0)]);
    let anew = sent.iter().find_map(|(cid, pdu)| match pdu {
        Pdu::ScsiCommand(command) => Some((*cid, command.itt, command.cmd_sn)),
        _ => None,
    });
    let (cid, first_anew, cmd_sn) = anew.unwrap();
    assert_eq!((cid, cmd_sn), (alive, CmdSn(FIRST).add(4)));
    assert!(commands.iter().all(|(_, itt)| *itt != first_anew), "a new tag");
    let abort = sent.iter().find_map(|(cid, pdu)| match pdu {
        Pdu::TaskManagementRequest(r) => Some((*cid, r.function, r.itt, r.referenced_task_tag, r.ref_cmd_sn)),
        _ => None,
    });
    let (cid, function, itt, referenced, ref_cmd_sn) = abort.unwrap();
    assert_eq!((cid, function, referenced), (alive, TmfFunction::AbortTask, commands[3].1));
    assert_eq!(ref_cmd_sn, CmdSn(FIRST).add(3));
    script.acknowledge_all(5);
    script.answer(itt, TmfResponse::FunctionComplete);
    let second_anew = script.commands();
    assert_eq!(second_anew.len(), 1);
    for itt in [commands[2].1, first_anew, second_anew[0].1] {
        script.good(itt);
    }
    let mut users: Vec<u64> = script.all_ended().into_iter().map(|(user, _)| user).collect();
    users.sort_unstable();
    assert_eq!(users, [1, 2, 3], "no error and no duplicate");
    assert_eq!(script.session.outstanding(), 0);
}

// covers: ERL-10
#[test]
fn what_must_not_be_done_twice_is_not_begun_anew_if_it_may_have_been_done() {
    for received in [true, false] {
        let mut script = Script::with_connections(2, 0);
        let mut command = Command::new(Lun::from_index(1), &[0x89; 16]);
        (command.user, command.write) = (7, pattern(1024).into());
        script.session.submit(script.now, command).unwrap();
        let commands = script.commands();
        let dead = commands[0].0;
        let alive = Cid(1 - dead.0);
        if received {
            script.acknowledge_all(1);
        }
        script.session.connection_lost(script.now, dead);
        let (.., itt) = script.logout_of();
        script.on(alive).answer_logout(itt, LogoutResponseCode::CidNotFound, 0);
        if received {
            assert_eq!(script.ended(), (7, Ending::OutcomeUnknown));
            continue;
        }
        // The target never received it: it may be sent once its number is accounted for.
        let (_, function, itt, ..) = script.functions()[0];
        assert_eq!(function, TmfFunction::AbortTask);
        script.acknowledge_all(1);
        script.answer(itt, TmfResponse::FunctionComplete);
        assert_eq!(script.commands().len(), 1);
        assert!(script.take_ended().is_empty());
    }
}

// covers: ERL-05
#[test]
fn erl_06_at_level_2_tasks_go_on_elsewhere_after_time2wait() {
    let mut script = Script::with_connections(2, 2);
    let commands = script.reads_on_all(2, 2);
    let (dead, alive) = (commands[1].0, commands[0].0);
    script.acknowledge_all(3);
    // Some data of the dying connection's first task has arrived.
    let data_in = script.data_in(commands[1].1, 0, 0);
    script.on(dead).receive(data_in.to_bhs(), &pattern(100));
    script.session.connection_lost(script.now, dead);
    let (via, reason, of, itt) = script.logout_of();
    assert_eq!((via, reason, of), (alive, LogoutReason::RemoveConnectionForRecovery, dead));
    script.on(alive).answer_logout(itt, LogoutResponseCode::Success, 3);
    script.sent_nothing();
    assert_eq!(
        script.about_connections(),
        [format!("close {} Lost", dead.0), format!("connect {} 3", dead.0)]
    );
    script.wait(2);
    script.sent_nothing();
    assert_eq!(script.session.poll_timeout(), Some(script.now + Duration::from_secs(1)));
    script.wait(1);
    let functions = script.functions();
    assert_eq!(functions.len(), 2);
    assert!(script.session.poll_timeout().is_none_or(|at| at > script.now), "nothing is left due");
    assert!(functions.iter().all(|f| f.0 == alive && f.1 == TmfFunction::TaskReassign));
    assert_eq!((functions[0].3, functions[0].4), (commands[1].1, 1), "ExpDataSN says what has come");
    assert_eq!((functions[1].3, functions[1].4), (commands[3].1, 0));
    script.answer(functions[0].2, TmfResponse::FunctionComplete);
    // The other one never arrived: it is sent again unchanged, and fills its hole.
    script.answer(functions[1].2, TmfResponse::TaskDoesNotExist);
    match &script.sent_on()[..] {
        [(cid, Pdu::ScsiCommand(again))] => {
            assert_eq!((*cid, again.itt, again.cmd_sn), (alive, commands[3].1, CmdSn(FIRST).add(3)));
        }
        other => panic!("{other:?}"),
    }
    script.acknowledge_all(4);
    let rest = script.data_in(commands[1].1, 1, 100);
    script.receive(rest.to_bhs(), &pattern(412));
    for (_, itt) in &commands {
        script.on(alive).good(*itt);
    }
    let mut users: Vec<u64> = script.all_ended().into_iter().map(|(user, _)| user).collect();
    users.sort_unstable();
    assert_eq!(users, [0, 1, 2, 3]);
    assert_eq!(script.session.counters().tasks_reassigned, 1);
}

/// The target may not have noticed yet: it has DefaultTime2Wait for that, until it says that it has.
// covers: ERL-05 ASY-02 MCS-07
#[test]
fn a_connection_that_was_lost_without_warning_is_logged_out_after_time2wait_or_once_the_target_knows() {
    for told in [false, true] {
        for level in [0, 2] {
            let mut script = Script::with_connections_and(
                3,
                Params { error_recovery_level: level, max_connections: 3, ..params() },
            );
            script.session.connection_lost(script.now, Cid(1));
            script.sent_nothing();
            assert_eq!(script.session.poll_timeout(), Some(script.now + Duration::from_secs(2)));
            script.wait(1);
            script.sent_nothing();
            match told {
                true => script.on(Cid(2)).event(AsyncEvent::ConnectionDrop, [1, 7, 30], &[]),
                false => script.wait(1),
            }
            let (_, reason, of, _) = script.logout_of();
            let kills = LogoutReason::CloseConnection;
            let keeps = LogoutReason::RemoveConnectionForRecovery;
            assert_eq!((reason, of), (if level == 0 { kills } else { keeps }, Cid(1)));
            assert_eq!(script.about_connections(), ["close 1 Lost"]);
            // Once.
            script.wait(3);
            script.sent_nothing();
        }
    }
}

/// Two at the same time: each is logged out.
// covers: ERL-05
#[test]
fn connections_that_were_lost_together_are_logged_out_together() {
    let mut script = Script::with_connections_and(3, Params { max_connections: 3, ..params() });
    script.session.connection_lost(script.now, Cid(1));
    script.session.connection_lost(script.now, Cid(2));
    script.wait(2);
    let mut of = Vec::new();
    for (via, pdu) in script.sent_on() {
        let Pdu::LogoutRequest(request) = pdu else { panic!("{pdu:?}") };
        assert_eq!(via, Cid(0));
        of.push(request.cid);
    }
    assert_eq!(of, [Cid(1), Cid(2)]);
}

// covers: LGO-01
#[test]
fn a_session_that_is_leaving_logs_no_lost_connection_out() {
    let mut script = Script::with_connections_and(3, Params { max_connections: 3, ..params() });
    script.read(1, 512);
    script.commands();
    script.session.connection_lost(script.now, Cid(1));
    script.session.connection_lost(script.now, Cid(2));
    script.on(Cid(0)).event(AsyncEvent::LogoutRequest, [0, 0, 20], &[]);
    let mut sent = script.sent_on();
    // Whatever is due is done when it is: time does not stand still.
    for _ in 0..20 {
        let Some(at) = script.session.poll_timeout() else { break };
        assert!(at >= script.now);
        script.now = at.max(script.now + Duration::from_millis(1));
        script.session.handle_timeout(script.now);
        sent.extend(script.sent_on());
        assert!(script.session.poll_timeout().is_none_or(|at| at > script.now), "nothing is left due");
    }
    assert!(script.session.is_closed());
    let logouts = sent.iter().filter_map(|(_, pdu)| match pdu {
        Pdu::LogoutRequest(logout) => Some(logout.reason),
        _ => None,
    });
    assert_eq!(logouts.collect::<Vec<_>>(), [LogoutReason::CloseSession]);
}

/// A connection is lost shortly before or after the target asks for the logout: its tasks are not left behind.
// covers: ERL-06 ASY-01
#[test]
fn a_session_that_drains_ends_the_commands_of_a_lost_connection_first() {
    for lost_first in [false, true] {
        let level_2 = Params { error_recovery_level: 2, max_connections: 2, ..params() };
        let mut script = Script::with_connections_and(2, level_2);
        let commands = script.reads_on_all(2, 1);
        let (dead, alive) = (commands[1].0, commands[0].0);
        script.acknowledge_all(2);
        let lose = |script: &mut Script| script.session.connection_lost(script.now, dead);
        if lost_first {
            lose(&mut script);
        }
        // With another one standing, only this connection would leave.
        let asked = if lost_first { alive } else { dead };
        script.on(asked).event(AsyncEvent::LogoutRequest, [0, 0, 20], &[]);
        if !lost_first {
            script.on(alive).event(AsyncEvent::LogoutRequest, [0, 0, 20], &[]);
            lose(&mut script);
        }
        script.on(alive).good(commands[0].1);
        script.sent_nothing();
        // DefaultTime2Wait.
        script.wait(2);
        let (via, reason, of, itt) = script.logout_of();
        assert_eq!((via, reason, of), (alive, LogoutReason::RemoveConnectionForRecovery, dead));
        script.on(alive).answer_logout(itt, LogoutResponseCode::Success, 0);
        let functions = script.functions();
        assert_eq!((functions[0].1, functions[0].3), (TmfFunction::TaskReassign, commands[1].1));
        script.answer(functions[0].2, TmfResponse::FunctionComplete);
        script.on(alive).good(commands[1].1);
        let (_, reason, _, _) = script.logout_of();
        assert_eq!(reason, LogoutReason::CloseSession, "nothing is left to wait for");
        assert_eq!(script.all_ended().len(), 2);
    }
}

// covers: ERL-06
#[test]
fn a_reassigned_command_has_all_of_its_time_again() {
    let mut script = Script::with_connections(2, 2);
    let mut command = Command::new(Lun(0), &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    (command.read_length, command.idempotent, command.timeout) = (512, true, Duration::from_secs(4));
    script.session.submit(script.now, command).unwrap();
    let (dead, itt) = script.commands()[0];
    script.acknowledge_all(1);
    script.wait(3);
    // Meanwhile it is sent again as long as it is not acknowledged.
    script.commands();
    script.session.connection_lost(script.now, dead);
    let (alive, _, _, logout) = script.logout_of();
    script.on(alive).answer_logout(logout, LogoutResponseCode::Success, 0);
    let functions = script.functions();
    assert_eq!((functions[0].1, functions[0].3), (TmfFunction::TaskReassign, itt));
    script.answer(functions[0].2, TmfResponse::FunctionComplete);
    // Three of its four seconds passed on the lost connection.
    script.wait(3);
    script.sent_nothing();
    script.wait(1);
    let functions = script.functions();
    assert_eq!((functions[0].1, functions[0].3), (TmfFunction::AbortTask, itt));
}

// covers: SES-06
#[test]
fn a_target_may_ask_for_a_minute_and_not_for_hours() {
    let mut script = Script::with_connections(2, 2);
    script.on(Cid(0)).event(AsyncEvent::ConnectionDrop, [1, u16::MAX, u16::MAX], &[]);
    let (alive, _, dead, logout) = script.logout_of();
    script.on(alive).answer_logout(logout, LogoutResponseCode::Success, u16::MAX);
    script.sent_nothing();
    let connect = format!("connect {} 60", dead.0);
    assert_eq!(script.about_connections(), [format!("close {} TargetDropped", dead.0), connect]);
    script.event(AsyncEvent::SessionDrop, [0, u16::MAX, 0], &[]);
    assert_eq!(script.closed().1, Duration::from_secs(60));
}

// covers: ERL-06 MCS-07
#[test]
fn at_level_2_the_only_connection_comes_back_and_its_tasks_go_on() {
    let mut script = Script::with_connections(1, 2);
    script.write(1, 16_384);
    let itt = script.commands_with_data()[0];
    script.acknowledge_all(1);
    script.session.connection_lost(script.now, Cid(0));
    script.sent_nothing();
    assert_eq!(script.about_connections(), ["close 0 Lost", "connect 0 2"]);
    script.read(2, 0);
    script.sent_nothing();
    script.join(0);
    // The login with the same CID implied the logout.
    let sent = script.sent_on();
    let reassign = sent.iter().find_map(|(_, pdu)| match pdu {
        Pdu::TaskManagementRequest(r) => Some((r.function, r.itt, r.referenced_task_tag)),
        _ => None,
    });
    let (function, function_itt, referenced) = reassign.unwrap();
    assert_eq!((function, referenced), (TmfFunction::TaskReassign, itt));
    assert!(sent.iter().any(|(_, pdu)| matches!(pdu, Pdu::ScsiCommand(_))), "what waited goes out");
    script.answer(function_itt, TmfResponse::FunctionComplete);
    // The target requests what it has not received, numbered as it chooses.
    let r2t = script.r2t(itt, 3, 4096, 12_288);
    script.receive(r2t.to_bhs(), &[]);
    let data: Vec<_> = script.sent();
    assert_eq!(data.iter().map(|(_, tx)| tx.data.len()).sum::<usize>(), 12_288);
    script.good(itt);
    assert_eq!(script.ended(), (1, status(0, 0)));
}

/// The connection that recovers the tasks fails too: their TASK REASSIGN is sent again on the next connection, not on this one.
// covers: ERL-06
#[test]
fn at_level_2_a_reassignment_that_is_lost_is_repeated_where_it_can_be_answered() {
    let mut script = Script::with_connections(1, 2);
    let commands = script.reads_on_all(1, 2);
    script.acknowledge_all(2);
    let lose = |script: &mut Script| {
        script.session.connection_lost(script.now, Cid(0));
        script.sent_nothing();
        assert_eq!(script.about_connections(), ["close 0 Lost", "connect 0 2"]);
        script.join(0);
        let functions = script.functions();
        assert_eq!(functions.len(), 2);
        assert!(functions.iter().all(|f| f.1 == TmfFunction::TaskReassign));
        functions
    };
    lose(&mut script);
    for function in lose(&mut script) {
        script.answer(function.2, TmfResponse::FunctionComplete);
    }
    for (_, itt) in &commands {
        script.good(*itt);
    }
    assert_eq!(script.all_ended().len(), 2);
}

/// All are lost, and another connection joins than the one requested first: it logs the others out, and nothing waits for that
/// one.
// covers: ERL-05 ERL-06
#[test]
fn at_level_2_whichever_connection_comes_takes_the_tasks_over() {
    let mut script =
        Script::with_connections_and(2, Params { error_recovery_level: 2, max_connections: 3, ..several() });
    let commands = script.reads_on_all(2, 1);
    script.acknowledge_all(2);
    for cid in [0, 1] {
        script.session.connection_lost(script.now, Cid(cid));
    }
    script.sent();
    assert_eq!(script.about_connections(), ["close 0 Lost", "close 1 Lost", "connect 1 0"]);
    script.join(2);
    let logouts: Vec<(Cid, Itt)> = script
        .sent_on()
        .into_iter()
        .map(|(via, pdu)| match pdu {
            Pdu::LogoutRequest(request) => {
                assert_eq!((via, request.reason), (Cid(2), LogoutReason::RemoveConnectionForRecovery));
                (request.cid, request.itt)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(logouts.iter().map(|(cid, _)| cid.0).collect::<Vec<_>>(), [0, 1]);
    let mut reassigned = Vec::new();
    for (_, logout) in logouts {
        script.on(Cid(2)).answer_logout(logout, LogoutResponseCode::Success, 0);
        reassigned.extend(script.functions().into_iter().map(|function| function.3));
    }
    assert_eq!(reassigned, commands.iter().map(|(_, itt)| *itt).collect::<Vec<_>>());
}

/// A reset of the unit is under way when a command's connection is lost: the command is not started again behind the reset.
// covers: TMF-05 ERL-06
#[test]
fn a_task_that_a_reset_may_end_waits_for_its_answer() {
    let mut script = Script::with_connections(2, 2);
    let commands = script.reads_on_all(2, 1);
    script.acknowledge_all(2);
    script.session.manage(script.now, TmfFunction::LogicalUnitReset, Lun::from_index(1), 7);
    let (on, _, reset, ..) = script.functions()[0];
    let (lost, _) = *commands.iter().find(|(cid, _)| *cid != on).unwrap();
    script.session.connection_lost(script.now, lost);
    let (via, _, _, logout) = script.logout_of();
    script.on(via).answer_logout(logout, LogoutResponseCode::Success, 0);
    script.sent_nothing();
    script.on(on).answer(reset, TmfResponse::FunctionComplete);
    let ended = script.all_ended();
    assert!(ended.len() == 2 && ended.iter().all(|(_, ending)| *ending == Ending::Aborted), "{ended:?}");
    assert_eq!(script.session.counters().commands_begun_anew, 0);
}

// covers: ERL-08 SES-04
#[test]
fn after_time2retain_nothing_is_waited_for() {
    let mut script = Script::with_connections(1, 2);
    script.reads_on_all(1, 1);
    script.session.connection_lost(script.now, Cid(0));
    assert!(script.session.poll_timeout().is_some_and(|at| at <= script.now + Duration::from_secs(22)));
    script.wait(21);
    assert!(!script.session.is_closed());
    script.wait(1);
    assert_eq!(script.closed().0, CloseReason::Lost);
    assert_eq!(script.session.unfinished().len(), 1);
}

// covers: ERL-06
#[test]
fn the_other_answers_to_a_reassignment() {
    for response in [TmfResponse::TaskReassignNotSupported, TmfResponse::FunctionRejected] {
        let mut script = Script::with_connections(2, 2);
        let commands = script.reads_on_all(1, 1);
        let (dead, alive) = (commands[0].0, Cid(1 - commands[0].0.0));
        script.acknowledge_all(1);
        script.session.connection_lost(script.now, dead);
        let (.., itt) = script.logout_of();
        script.on(alive).answer_logout(itt, LogoutResponseCode::Success, 0);
        let functions = script.functions();
        script.answer(functions[0].2, response);
        let anew = script.commands();
        assert_eq!(anew.len(), 1, "it begins anew");
        script.good(anew[0].1);
        assert_eq!(script.ended().0, 0);
    }
    let mut script = Script::with_connections(2, 2);
    let commands = script.reads_on_all(1, 1);
    let (dead, alive) = (commands[0].0, Cid(1 - commands[0].0.0));
    script.session.connection_lost(script.now, dead);
    let (.., itt) = script.logout_of();
    script.on(alive).answer_logout(itt, LogoutResponseCode::Success, 0);
    for _ in 0..3 {
        let functions = script.functions();
        script.answer(functions[0].2, TmfResponse::TaskStillAllegiant);
        script.sent_nothing();
        script.wait(1);
    }
    let functions = script.functions();
    script.answer(functions[0].2, TmfResponse::FunctionComplete);
    script.good(commands[0].1);
    assert_eq!(script.ended().0, 0);
}

// covers: ERL-05 LGO-01
#[test]
fn a_target_that_cannot_recover_a_connection_is_asked_to_close_it() {
    let mut script = Script::with_connections(2, 2);
    let commands = script.reads_on_all(1, 1);
    let (dead, alive) = (commands[0].0, Cid(1 - commands[0].0.0));
    script.acknowledge_all(1);
    script.session.connection_lost(script.now, dead);
    let (.., itt) = script.logout_of();
    script.on(alive).answer_logout(itt, LogoutResponseCode::RecoveryNotSupported, 0);
    let (_, reason, of, itt) = script.logout_of();
    assert_eq!((reason, of), (LogoutReason::CloseConnection, dead));
    script.answer_logout(itt, LogoutResponseCode::Success, 0);
    assert_eq!(script.commands().len(), 1);
}

// covers: ERL-05
#[test]
fn without_an_answer_to_the_logout_the_session_is_given_up() {
    let mut script = Script::with_connections(2, 0);
    let commands = script.reads_on_all(1, 1);
    script.session.connection_lost(script.now, commands[0].0);
    script.logout_of();
    script.wait(20);
    assert_eq!(script.closed().0, CloseReason::Unresponsive);
    assert_eq!(script.session.unfinished().len(), 1);
}

// covers: ERL-05 ERL-06
#[test]
fn a_survivor_that_dies_too_leaves_the_work_to_the_next() {
    let mut script = Script::with_connections(3, 2);
    let commands = script.reads_on_all(3, 1);
    script.acknowledge_all(3);
    script.session.connection_lost(script.now, Cid(0));
    let (via, .., itt) = script.logout_of();
    script.session.connection_lost(script.now, via);
    let last = Cid(3 - via.0);
    let logouts: Vec<Cid> = script
        .sent_on()
        .into_iter()
        .map(|(on, pdu)| match pdu {
            Pdu::LogoutRequest(request) if on == last => request.cid,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(logouts.len(), 2);
    assert!(logouts.contains(&Cid(0)) && logouts.contains(&via));
    // The answer to the first logout never arrives; the last connection fails as well.
    script.session.connection_lost(script.now, last);
    script.sent_nothing();
    let about = script.about_connections();
    assert_eq!(about.iter().filter(|what| what.starts_with("connect")).count(), 1, "{about:?}");
    let back = last.0;
    assert!(about.contains(&format!("connect {back} 0")), "{about:?}");
    script.join(back);
    let sent = script.sent_on();
    let logouts = sent.iter().filter(|(_, pdu)| matches!(pdu, Pdu::LogoutRequest(_))).count();
    let reassigns = sent.iter().filter(|(_, pdu)| matches!(pdu, Pdu::TaskManagementRequest(_))).count();
    assert_eq!((logouts, reassigns), (2, 1), "{sent:?}");
    let _ = (itt, commands);
}

// covers: ASY-01 LGO-01
#[test]
fn one_connection_of_several_leaves_when_asked_and_comes_back() {
    let mut script = Script::with_connections(2, 0);
    let commands = script.reads_on_all(2, 1);
    let (leaving, staying) = commands.iter().map(|c| c.0).fold((None, None), |(a, b), cid| match a {
        None => (Some(cid), b),
        Some(_) => (a, Some(cid)),
    });
    let (leaving, staying) = (leaving.unwrap(), staying.unwrap());
    script.on(leaving).event(AsyncEvent::LogoutRequest, [0, 0, 10], &[]);
    script.sent_nothing();
    script.read(10, 512);
    assert_eq!(script.commands()[0].0, staying, "nothing new goes there");
    script.on(leaving).good(commands[0].1);
    let (via, reason, of, itt) = script.logout_of();
    assert_eq!((via, reason, of), (leaving, LogoutReason::CloseConnection, leaving));
    script.answer_logout(itt, LogoutResponseCode::Success, 4);
    script.sent_nothing();
    assert_eq!(
        script.about_connections(),
        [format!("close {} LoggedOut", leaving.0), format!("connect {} 4", leaving.0)]
    );
    script.join(leaving.0);
    assert_eq!(script.session.connected().count(), 2);
    // When the request arrives on the last connection left, the session ends.
    script.session.connection_lost(script.now, leaving);
    script.logout_of();
    script.on(staying).event(AsyncEvent::LogoutRequest, [0, 0, 10], &[]);
    assert!(script.session.submit(script.now, Command::new(Lun(0), &[0])).is_err());
}

// covers: ASY-02 MCS-05
#[test]
fn an_announced_drop_of_another_connection_is_a_loss() {
    let mut script = Script::with_connections(2, 2);
    script.on(Cid(0)).event(AsyncEvent::ConnectionDrop, [1, 5, 30], &[]);
    let (via, reason, of, _) = script.logout_of();
    assert_eq!((via, reason, of), (Cid(0), LogoutReason::RemoveConnectionForRecovery, Cid(1)));
    assert_eq!(script.about_connections(), ["close 1 TargetDropped"]);
}

// covers: ERL-11 PDU-09
#[test]
fn each_connection_is_pinged_for_itself_and_only_the_silent_one_is_lost() {
    let mut script = Script::with_connections(2, 0);
    script.wait(100);
    let pings = script.sent_on();
    assert_eq!(pings.len(), 2);
    for (cid, pdu) in pings {
        let Pdu::NopOut(ping) = pdu else { panic!("{pdu:?}") };
        if cid == Cid(1) {
            let pong = script.on(cid).nop_in(ping.itt, iscsi_wire::Ttt::RESERVED, Lun(0));
            script.receive(pong.to_bhs(), &[]);
        }
    }
    script.wait(10);
    let (via, _, of, _) = script.logout_of();
    assert_eq!((via, of), (Cid(1), Cid(0)));
    assert_eq!(script.about_connections(), ["close 0 Silent"]);
}

// covers: ERL-09
#[test]
fn what_is_no_command_dies_with_its_connection() {
    let mut script = Script::with_connections(2, 2);
    assert!(script.session.ping(script.now, 1, pattern(3)));
    assert!(script.session.send_targets(script.now, ""));
    script.session.manage(script.now, TmfFunction::LogicalUnitReset, Lun(0), 2);
    let sent = script.sent_on();
    let cid = sent[0].0;
    assert!(sent.len() == 3 && sent.iter().all(|(on, _)| *on == cid));
    script.session.connection_lost(script.now, cid);
    script.logout_of();
    let said = std::mem::take(&mut script.said);
    assert!(said.iter().any(|action| matches!(action, Action::Pong { user: 1, intact: false, .. })));
    assert!(said.iter().any(|action| matches!(action, Action::TextRefused(None))));
    assert!(said.iter().any(|action| matches!(action, Action::Managed { user: 2, answer: None })));
}

// covers: LGO-01
#[test]
fn a_connection_may_be_logged_out_but_not_the_last() {
    let mut script = Script::with_connections(2, 0);
    assert!(script.session.logout_connection(script.now, Cid(1)));
    let (via, reason, of, itt) = script.logout_of();
    assert_eq!((via, reason, of), (Cid(1), LogoutReason::CloseConnection, Cid(1)));
    assert!(!script.session.logout_connection(script.now, Cid(0)));
    script.on(Cid(1)).answer_logout(itt, LogoutResponseCode::Success, 0);
    assert_eq!(script.session.connected().collect::<Vec<_>>(), [Cid(0)]);
}

// covers: DIG-12
#[test]
fn a_damaged_response_costs_its_connection_and_not_the_others() {
    let mut script = Script::with_connections(2, 0);
    let (cid, itt) = script.reads_on_all(2, 1)[0];
    let response = script.on(cid).response(itt);
    script.receive_with(response.to_bhs(), &[0, 0], false);
    let (via, _, of, _) = script.logout_of();
    assert_eq!((via == cid, of), (false, cid), "the other one says so");
    assert_eq!(script.about_connections(), [format!("close {} DataDigest", cid.0)]);
    assert!(!script.session.is_closed());
}

// covers: ERL-09
#[test]
fn the_answer_to_a_logout_has_until_its_deadline() {
    let mut script = Script::with_connections(2, 0);
    let started = script.now;
    assert!(script.session.logout_connection(script.now, Cid(1)));
    script.logout_of();
    let due = script.session.poll_timeout().unwrap();
    assert!(due > started);
    script.session.handle_timeout(due - Duration::from_millis(1));
    assert_eq!(script.about_connections(), [""; 0]);
    script.session.handle_timeout(due);
    script.sent_on();
    assert_eq!(script.about_connections(), ["close 1 Silent"]);
}

// covers: TMF-01 MCS-02
#[test]
fn an_aborted_task_may_have_pdus_on_their_way_on_another_connection() {
    let mut script = Script::with_connections(2, 0);
    let commands = script.reads_on_all(2, 1);
    script.session.manage(script.now, TmfFunction::LogicalUnitReset, Lun::from_index(1), 9);
    let (cid, _, itt, ..) = script.functions()[0];
    script.on(cid).answer(itt, TmfResponse::FunctionComplete);
    assert_eq!(script.all_ended().len(), 2);
    for (cid, itt) in commands {
        let late = script.data_in(itt, 0, 0);
        script.on(cid).receive(late.to_bhs(), &pattern(10));
        assert!(!script.session.is_closed());
    }
    let invented = script.data_in(Itt(77), 0, 0);
    script.receive(invented.to_bhs(), &[]);
    assert!(script.violated().contains("not there"));
}

#[test]
fn a_session_that_may_have_one_connection_uses_it_for_everything() {
    let lonely = Params { asymmetric: crate::params::Asymmetric::Pairs, max_connections: 1, ..params() };
    let mut script = Script::with_connections_and(1, lonely);
    script.read(1, 512);
    let (cid, itt) = script.commands()[0];
    assert_eq!(cid, Cid(0));
    script.good(itt);
    assert_eq!(script.ended(), (1, status(0, 0)));
}

#[test]
fn no_more_is_outstanding_than_the_depth_and_one_command_always() {
    let mut script = Script::with_connections(2, 0);
    script.read(1, 4096);
    let first = script.commands()[0];
    let weight = script.session.outstanding_bytes();
    script.session.limit_depth(2 * weight + weight / 2);
    (0..3).for_each(|user| script.read(user, 4096));
    let second = script.commands();
    assert_eq!(second.len(), 1, "two fit, and two wait");
    assert_eq!((script.session.outstanding_bytes(), script.session.asked_bytes()), (2 * weight, 4 * weight));
    script.on(first.0).good(first.1);
    let third = script.commands();
    assert_eq!((third.len(), script.session.asked_bytes()), (1, 3 * weight), "one for one that ended");
    // Nothing fits, but the session does not stand still.
    script.session.limit_depth(1);
    script.on(second[0].0).good(second[0].1);
    assert!(script.commands().is_empty());
    script.on(third[0].0).good(third[0].1);
    let last = script.commands();
    assert_eq!(last.len(), 1);
    script.on(last[0].0).good(last[0].1);
    assert_eq!(script.session.asked_bytes(), 0);
}

#[test]
fn what_is_asked_for_stays_the_same_when_a_connection_is_lost() {
    let mut script = Script::with_connections(2, 2);
    let commands = script.reads_on_all(2, 2);
    script.acknowledge_all(4);
    let asked = script.session.asked_bytes();
    script.session.limit_depth(asked);
    script.read(10, 512);
    assert!(script.commands().is_empty(), "it waits for the depth");
    let with_waiting = script.session.asked_bytes();
    assert_eq!(with_waiting, asked / 4 * 5);
    script.session.connection_lost(script.now, commands[0].0);
    // The one that waited takes the place of one of the two that were lost.
    let sent = asked / 4 * 3;
    assert_eq!((script.session.outstanding_bytes(), script.session.asked_bytes()), (sent, with_waiting));
}
