//! Commands that an engine carries out in place of the session.

use bytes::Bytes;
use iscsi_wire::{Cid, DataSn, Itt, Pdu, ResidualCount, ResponseNumbers, ScsiResponse, StatSn};

use super::{FIRST, Script, params};
use crate::initiator::command::{Ending, Residual};
use crate::initiator::session::{Action, CloseReason};

/// The end of a command, with the window of the script; StatSN is no number of the session's.
fn response(script: &Script, itt: Itt, status: u8) -> ScsiResponse {
    ScsiResponse {
        response: 0,
        status,
        itt,
        snack_tag: 0,
        numbers: ResponseNumbers { stat_sn: StatSn(7), ..script.numbers() },
        exp_data_sn: DataSn(0),
        bidi_residual_count: ResidualCount::default(),
        residual_count: ResidualCount { overflow: false, underflow: true, bytes: 12 },
    }
}

fn actions(script: &mut Script) -> Vec<Action> {
    std::iter::from_fn(|| script.session.poll_action()).collect()
}

#[test]
fn an_engine_reports_data_and_end_of_a_command() {
    let mut script = Script::with_window(params(), 1);
    script.read(1, 512);
    let (itt, cmd_sn) = script.command();
    script.read(2, 512);
    (script.exp_cmd_sn, script.max_cmd_sn) = (cmd_sn.next(), cmd_sn.next());
    let data = Bytes::from(vec![5; 500]);
    let ended = response(&script, itt, 0);
    script.session.executed(script.now, Cid(0), &ended, &Bytes::new(), data.clone());
    let actions = actions(&mut script);
    let [
        Action::DataIn { user: 1, offset: 0, data: placed },
        Action::Completed(completion),
        Action::Send { pdu, .. },
    ] = &actions[..]
    else {
        panic!("{actions:?}")
    };
    assert_eq!(*placed, data);
    let residual = Residual::Underflow(12);
    let whole = Ending::Status { status: 0, sense: Bytes::new(), data_in_bytes: 500, residual };
    assert_eq!(completion.ending, whole);
    // StatSN of others goes on without it.
    let Ok(Pdu::ScsiCommand(second)) = Pdu::parse(&pdu.bhs) else { panic!("{actions:?}") };
    assert_eq!((second.cmd_sn, second.exp_stat_sn), (cmd_sn.next(), StatSn(FIRST)));
    // What is reported of a command that has ended is ignored.
    script.session.executed(script.now, Cid(0), &ended, &Bytes::new(), data);
    assert!(script.session.poll_action().is_none());
}

/// Its caller has got what was wrong already, and no data with it.
#[test]
fn the_data_of_a_command_that_is_decided_is_not_delivered() {
    let mut script = Script::new(params());
    script.read(1, 512);
    let (itt, _) = script.command();
    script.session.tasks.sent_command(itt).unwrap().decide(Ending::DataDigest);
    let ended = response(&script, itt, 0);
    script.session.executed(script.now, Cid(0), &ended, &Bytes::new(), Bytes::from(vec![5; 500]));
    let actions = actions(&mut script);
    let [Action::Completed(completion)] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(completion.ending, Ending::DataDigest);
}

#[test]
fn what_no_target_may_say_ends_the_session_also_if_an_engine_reports_it() {
    for (status, bytes) in [(0, 513), (2, 0)] {
        let mut script = Script::new(params());
        script.read(1, 512);
        let (itt, _) = script.command();
        let ended = response(&script, itt, status);
        script.session.executed(script.now, Cid(0), &ended, &Bytes::new(), Bytes::from(vec![0; bytes]));
        let actions = actions(&mut script);
        let close = actions.last();
        assert!(matches!(close, Some(Action::Close { reason: CloseReason::Violation(_), .. })), "{close:?}");
    }
}
