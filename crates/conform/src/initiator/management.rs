//! Task management, messages, logout, pings and Reject (rows TMF, ASY, LGO, NOP, REJ) of an initiator.

use super::play::{Op, Play, Played, Stage, pattern, ping, read_write};
use super::{Row, RowResult};
use crate::Stop;
use crate::evil::{Act, Behaviour, Incoming};
use crate::frame::Frame;
use crate::script::{ensure, fail, skip};
use crate::transcript::{Side, What};
use iscsi_wire::{
    AsyncEvent, AsyncMessage, DataSn, Lun, Opcode, Reject, RejectReason, ResponseNumbers, ScsiCommand,
    TaskManagementRequest, TmfFunction,
};
use std::time::Duration;

pub(super) const ROWS: &[Row] = &[
    Row::new("TMF-04", "ABORT TASK names the CmdSN of its task", tmf_04),
    Row::new("TMF-10", "a silent target: abort, then LU reset, then the session is dropped", tmf_10),
    Row::new("ASY-01", "event 1: logout, and no new commands", asy_01),
    Row::new("ASY-02", "events 2 and 3: Time2Wait before coming back", asy_02),
    Row::new("ASY-03", "event 4: a Text request or a logout", asy_03),
    Row::new("LGO-01", "logout, then FIN", lgo_01),
    Row::new("LGO-03", "nothing new after a logout", lgo_03),
    Row::new("REJ-03", "reason 0b ends the session, or the negotiation", rej_03),
    Row::new("REJ-04", "a command rejected for its own fault is not sent again", rej_04),
];

/// A target that answers neither reads nor task management on its first connection.
fn silent() -> Behaviour {
    Behaviour::good().incoming(|scene, rx| {
        let read = ScsiCommand::parse(&rx.bhs)
            .is_ok_and(|command| matches!(command.cdb[0], 0x08 | 0x28 | 0x88 | 0xa8));
        let managed = TaskManagementRequest::parse(&rx.bhs).is_ok();
        if scene.connection == 1 && (read || managed) {
            Incoming::Instead(Vec::new())
        } else {
            Incoming::Serve
        }
    })
}

fn managed(played: &Played) -> Vec<TaskManagementRequest> {
    let bhs = played.sent_pdus().filter(|entry| entry.connection == 1).filter_map(|entry| entry.bhs());
    bhs.filter_map(|bhs| TaskManagementRequest::parse(bhs).ok()).collect()
}

// covers: TMF-04
fn tmf_04(stage: &Stage<'_>) -> RowResult {
    let played = stage.play_as(&Play::new().impatient(), silent(), &[Op::Read { lba: 0, blocks: 8 }])?;
    let commands: Vec<ScsiCommand> = played
        .sent_pdus()
        .filter(|entry| entry.connection == 1)
        .filter_map(|entry| ScsiCommand::parse(entry.bhs()?).ok())
        .collect();
    let mut aborts = 0;
    for request in managed(&played).iter().filter(|request| request.function == TmfFunction::AbortTask) {
        let task = commands.iter().find(|command| command.itt == request.referenced_task_tag);
        let Some(task) = task else {
            fail!("ABORT TASK of itt={}, which was not sent", request.referenced_task_tag)
        };
        ensure!(
            request.ref_cmd_sn == task.cmd_sn && request.lun == task.lun,
            "ABORT TASK with RefCmdSN {} and LUN {}; the task has {} and {}",
            request.ref_cmd_sn,
            request.lun,
            task.cmd_sn,
            task.lun
        );
        aborts += 1;
    }
    if aborts == 0 {
        skip!("the initiator aborts no task");
    }
    Ok(())
}

// covers: TMF-10
fn tmf_10(stage: &Stage<'_>) -> RowResult {
    let played = stage.play_as(&Play::new().impatient(), silent(), &[Op::Read { lba: 0, blocks: 8 }])?;
    let order: Vec<TmfFunction> = managed(&played).iter().map(|request| request.function).collect();
    let abort = order.iter().position(|function| *function == TmfFunction::AbortTask);
    let reset = order.iter().position(|function| *function == TmfFunction::LogicalUnitReset);
    match (abort, reset) {
        (Some(abort), Some(reset)) => ensure!(abort < reset, "{order:?}"),
        _ => fail!("expected ABORT TASK, then LOGICAL UNIT RESET, got {order:?}"),
    }
    ensure!(played.dropped(1), "after a silent LOGICAL UNIT RESET the session is not dropped");
    let reads = played
        .sent_pdus()
        .filter(|entry| entry.connection == 1)
        .filter_map(|entry| ScsiCommand::parse(entry.bhs()?).ok())
        .filter(|command| command.read && matches!(command.cdb[0], 0x28 | 0x88));
    let mut tags = Vec::new();
    for command in reads {
        ensure!(
            !tags.contains(&command.itt),
            "itt={} was used again before its outcome was known",
            command.itt
        );
        tags.push(command.itt);
    }
    Ok(())
}

/// An asynchronous message; numbers are filled in when it is sent.
fn message(event: AsyncEvent, parameters: [u16; 3]) -> Frame {
    Frame::of(AsyncMessage {
        lun: Lun(0),
        numbers: ResponseNumbers::default(),
        event,
        vcode: 0,
        parameter1: parameters[0],
        parameter2: parameters[1],
        parameter3: parameters[2],
    })
}

/// Sends these after the first answer to a write, then continues normally.
fn after_a_write(acts: Vec<Act>) -> Behaviour {
    let mut acts = Some(acts);
    Behaviour::good().first(Opcode::ScsiResponse, move |_, frame| {
        let mut all = vec![Act::Send(frame)];
        all.extend(acts.take().unwrap_or_default());
        all
    })
}

fn write_and_wait(wait: Duration) -> Vec<Op> {
    vec![Op::Write { lba: 1000, data: pattern(1000, 8) }, Op::Wait(wait)]
}

/// The traffic on connection 1 after the asynchronous message, until its end.
fn after_message(played: &Played) -> Result<Vec<crate::Entry>, Stop> {
    let at = played.entries.iter().position(|entry| entry.connection == 1 && entry.is(Opcode::AsyncMessage));
    let Some(at) = at else { fail!("the message was not sent: {}", played.words()) };
    Ok(played.entries[at + 1..].iter().filter(|entry| entry.connection == 1).cloned().collect())
}

// covers: ASY-01
fn asy_01(stage: &Stage<'_>) -> RowResult {
    let asked = after_a_write(vec![Act::Answer(message(AsyncEvent::LogoutRequest, [0, 0, 1]))]);
    let played = stage.play(asked, &write_and_wait(Duration::from_millis(3000)))?;
    let after = after_message(&played)?;
    let logout = after.iter().position(|entry| entry.is(Opcode::LogoutRequest));
    let Some(logout) = logout else { fail!("no logout after event 1") };
    let asked = played.entries.iter().find(|entry| entry.is(Opcode::AsyncMessage));
    let stat_sn =
        asked.and_then(|entry| AsyncMessage::parse(entry.bhs()?).ok()).map(|message| message.numbers.stat_sn);
    // A command that does not acknowledge the message was sent before it arrived.
    let knows = |command: &ScsiCommand| stat_sn.is_some_and(|stat_sn| stat_sn.lt(command.exp_stat_sn));
    let commands = after[..logout].iter().filter(|entry| entry.is(Opcode::ScsiCommand));
    let mut commands = commands.filter_map(|entry| ScsiCommand::parse(entry.bhs()?).ok());
    ensure!(!commands.any(|command| knows(&command)), "a new command after event 1");
    let asked_at = asked.map(|entry| entry.at);
    let took = asked_at.map(|asked_at| after[logout].at.saturating_sub(asked_at));
    // The message allows 1 second; the play itself would end the session after 3.
    ensure!(took.is_some_and(|took| took <= Duration::from_secs(2)), "the logout came after {took:?}");
    Ok(())
}

// covers: ASY-02
fn asy_02(stage: &Stage<'_>) -> RowResult {
    for event in [AsyncEvent::SessionDrop, AsyncEvent::ConnectionDrop] {
        let told = after_a_write(vec![Act::Answer(message(event, [0, 1, 20])), Act::Close]);
        let mut ops = write_and_wait(Duration::from_millis(50));
        ops.push(Op::Read { lba: 1000, blocks: 8 });
        let played = stage.play(told, &ops)?;
        let dropped =
            played.entries.iter().find(|entry| entry.is(Opcode::AsyncMessage)).map(|entry| entry.at);
        let again = played
            .entries
            .iter()
            .find(|entry| entry.connection == 2 && matches!(entry.what, What::Opened))
            .map(|entry| entry.at);
        match (dropped, again) {
            (Some(dropped), Some(again)) => ensure!(
                again.saturating_sub(dropped) >= Duration::from_millis(990),
                "{event}: back after {:?}, Time2Wait is 1 s",
                again.saturating_sub(dropped)
            ),
            _ => skip!("the initiator does not come back after {event}"),
        }
    }
    Ok(())
}

// covers: ASY-03
fn asy_03(stage: &Stage<'_>) -> RowResult {
    let asked = after_a_write(vec![Act::Answer(message(AsyncEvent::NegotiationRequest, [0, 0, 1]))]);
    let played = stage.play(asked, &write_and_wait(Duration::from_millis(3000)))?;
    let after = after_message(&played)?;
    let answer = after.iter().find(|entry| {
        entry.side == Side::Initiator && (entry.is(Opcode::TextRequest) || entry.is(Opcode::LogoutRequest))
    });
    let asked_at = played.entries.iter().find(|entry| entry.is(Opcode::AsyncMessage)).map(|entry| entry.at);
    let took = answer.zip(asked_at).map(|(answer, asked_at)| answer.at.saturating_sub(asked_at));
    // The message allows 1 second; the play itself would end the session after 3.
    ensure!(
        took.is_some_and(|took| took <= Duration::from_secs(2)),
        "neither a Text request nor a logout in time after event 4 ({took:?})"
    );
    Ok(())
}

// covers: LGO-01
fn lgo_01(stage: &Stage<'_>) -> RowResult {
    let played = stage.goes_well(&Play::new(), Behaviour::good())?;
    ensure!(played.sent(1, Opcode::LogoutRequest) == 1, "no logout at the end");
    let reset =
        played.entries.iter().any(|entry| entry.side == Side::Initiator && matches!(entry.what, What::Reset));
    ensure!(!reset, "the initiator ends the connection with RST");
    Ok(())
}

// covers: LGO-03
fn lgo_03(stage: &Stage<'_>) -> RowResult {
    let slow = Behaviour::good().every(Opcode::LogoutResponse, |_, frame| {
        vec![Act::Tell(ping(u32::MAX, 0x99)), Act::Pause(Duration::from_millis(150)), Act::Send(frame)]
    });
    let played = stage.play(slow, &read_write())?;
    played.went_well()?;
    let logout = played.entries.iter().position(|entry| entry.is(Opcode::LogoutRequest));
    let Some(logout) = logout else { skip!("the initiator does not log out") };
    let new = played.entries[logout + 1..].iter().find(|entry| {
        entry.connection == 1
            && entry.side == Side::Initiator
            && entry.bhs().is_some()
            && !entry.is(Opcode::NopOut)
    });
    ensure!(new.is_none(), "after the logout: {}", new.map(ToString::to_string).unwrap_or_default());
    Ok(())
}

/// Rejects the first write with this reason byte; its CmdSN counts as received or not.
fn rejecting(reason: u8, counted: bool) -> Behaviour {
    let mut done = false;
    Behaviour::good().incoming(move |_, rx| {
        let write = ScsiCommand::parse(&rx.bhs).is_ok_and(|command| command.write);
        if !write || std::mem::replace(&mut done, true) {
            return Incoming::Serve;
        }
        let reject = Reject {
            reason: RejectReason::ProtocolError,
            numbers: ResponseNumbers::default(),
            data_sn: DataSn(0),
        };
        let frame = Frame::of(reject).patch(2, &[reason]).data(*rx.bhs.as_bytes());
        if counted {
            Incoming::Instead(vec![Act::Answer(frame)])
        } else {
            Incoming::Lost(vec![Act::Answer(frame)])
        }
    })
}

// covers: REJ-03
fn rej_03(stage: &Stage<'_>) -> RowResult {
    let played = stage.play(rejecting(0x0b, false), &read_write())?;
    played.no_wrong_byte()?;
    if !played.dropped(1) {
        played.failed("a Reject with the deprecated reason 0b")?;
    }
    Ok(())
}

// covers: REJ-04
fn rej_04(stage: &Stage<'_>) -> RowResult {
    for reason in [0x04, 0x05, 0x07, 0x09] {
        let played = stage.play(rejecting(reason, false), &read_write())?;
        played.no_wrong_byte()?;
        let writes: Vec<ScsiCommand> = played
            .sent_pdus()
            .filter(|entry| entry.connection == 1)
            .filter_map(|entry| ScsiCommand::parse(entry.bhs()?).ok())
            .filter(|command| command.write)
            .collect();
        if let Some(first) = writes.first() {
            let again =
                writes[1..].iter().any(|command| (command.itt, command.cmd_sn) == (first.itt, first.cmd_sn));
            ensure!(!again, "a command rejected with {reason:#04x} was sent again");
        }
    }
    Ok(())
}
