//! Protocol level 2 of RFC 7144 (rows P2).

use super::mcs::{block_is, ends, fill_block, waiting_write};
use crate::frame::Frame;
use crate::script::{ensure, fail, skip};
use crate::session::Command;
use crate::target::ctx::RowSession;
use crate::target::{Ctx, Row, RowResult};
use crate::{PeerError, Reaction, Session, Stop};
use iscsi_wire::{
    Cid, Itt, Pdu, ScsiResponse, TaskManagementRequest, TaskManagementResponse, TmfFunction, TmfResponse,
    keys,
};

pub(super) const ROWS: &[Row] = &[
    Row::new("P2-01", "iSCSIProtocolLevel: the smaller of both", p2_01),
    Row::new("P2-02", "functions 9 to 12 at level 2 are never rejected; below it they do nothing", p2_02),
    Row::new("P2-03", "QUERY TASK finds what ABORT TASK finds, and leaves it alone", p2_03),
    Row::new("P2-04", "QUERY ASYNCHRONOUS EVENT shows the unit attention that is pending", p2_04),
    Row::new("P2-05", "I_T NEXUS RESET ends tasks and connections at once", p2_05),
    Row::new("P2-06", "command priority counts at level 2 only, and harms nowhere", p2_06),
    Row::new("P2-07", "the version descriptor for iSCSI tells the level", p2_07),
];

const NEW: [TmfFunction; 4] = [
    TmfFunction::QueryTask,
    TmfFunction::QueryTaskSet,
    TmfFunction::QueryAsyncEvent,
    TmfFunction::ITNexusReset,
];

/// A session at level 2.
fn level_2(ctx: &Ctx) -> Result<RowSession, Stop> {
    let s = ctx.session_with(|script| script.key(keys::ISCSI_PROTOCOL_LEVEL, "2"))?;
    if s.params.protocol_level < 2 {
        skip!("the target negotiates {}={}", keys::ISCSI_PROTOCOL_LEVEL, s.params.protocol_level);
    }
    Ok(s)
}

/// Sends a request; returns its response, which at level 2 is never a Reject PDU.
fn asked(s: &mut Session, request: TaskManagementRequest) -> Result<TaskManagementResponse, Stop> {
    s.peer.send(&Frame::of(request))?;
    let rx = s.next_for(request.itt)?;
    match rx.pdu()? {
        Pdu::TaskManagementResponse(response) => Ok(response),
        _ => fail!("{}: expected a response, received {}", request.function, rx.line()),
    }
}

/// True if the response is the expected one; it may also be "function not supported".
fn answer_is(what: &str, response: TmfResponse, due: TmfResponse) -> Result<bool, Stop> {
    ensure!(
        response == due || response == TmfResponse::FunctionNotSupported,
        "{what}: expected {due}, got {response}"
    );
    Ok(response == due)
}

// covers: P2-01
fn p2_01(ctx: &mut Ctx) -> RowResult {
    let mut most = None;
    for offer in [31u32, 2, 1, 0] {
        let s = ctx.session_with(|script| script.key(keys::ISCSI_PROTOCOL_LEVEL, &offer.to_string()))?;
        let got = crate::login::value_of(&s.logged_in.pairs, keys::ISCSI_PROTOCOL_LEVEL);
        let Some(level) = got.and_then(|got| got.parse::<u32>().ok()) else {
            fail!("{}={offer} was answered with {got:?}", keys::ISCSI_PROTOCOL_LEVEL)
        };
        let most = *most.get_or_insert(level);
        ensure!(level == most.min(offer), "{}={offer} was answered with {level}", keys::ISCSI_PROTOCOL_LEVEL);
    }
    Ok(())
}

// covers: P2-02
fn p2_02(ctx: &mut Ctx) -> RowResult {
    // At level 1 the codes are reserved.
    for function in NEW {
        let mut s = ctx.session_with(|script| script.key(keys::ISCSI_PROTOCOL_LEVEL, "1"))?;
        let request = s.tmf(function, true);
        s.peer.send(&Frame::of(request))?;
        match s.reaction(request.itt)? {
            Reaction::Rejected(_) | Reaction::Closed => continue,
            Reaction::Answered(rx) => {
                let code = rx.bhs.as_bytes()[2];
                let refused =
                    [TmfResponse::FunctionNotSupported.code(), TmfResponse::FunctionRejected.code()];
                ensure!(refused.contains(&code), "{function} at level 1: {}", rx.line());
            }
            other => fail!("{function} at level 1: {}", other.words()),
        }
        s.ping()?;
    }
    let mut s = level_2(ctx)?;
    let (sent, r2t) = waiting_write(ctx, &mut s, 0x2a)?;
    let mut query = s.tmf(TmfFunction::QueryTask, true);
    (query.referenced_task_tag, query.ref_cmd_sn) = (sent.itt, sent.cmd_sn);
    let response = asked(&mut s, query)?.response;
    answer_is("QUERY TASK of a live task", response, TmfResponse::FunctionSucceeded)?;
    let query = s.tmf(TmfFunction::QueryTaskSet, true);
    let response = asked(&mut s, query)?.response;
    answer_is("QUERY TASK SET with a task", response, TmfResponse::FunctionSucceeded)?;
    s.serve(&sent, &r2t)?;
    s.finish(&sent)?;
    let query = s.tmf(TmfFunction::QueryTaskSet, true);
    let response = asked(&mut s, query)?.response;
    answer_is("QUERY TASK SET without a task", response, TmfResponse::FunctionComplete)?;
    let query = s.tmf(TmfFunction::QueryAsyncEvent, true);
    let response = asked(&mut s, query)?.response;
    answer_is("QUERY ASYNCHRONOUS EVENT without an event", response, TmfResponse::FunctionComplete)?;
    Ok(())
}

// covers: P2-03
fn p2_03(ctx: &mut Ctx) -> RowResult {
    let mut s = level_2(ctx)?;
    let (sent, r2t) = waiting_write(ctx, &mut s, 0x2b)?;
    let mut query = s.tmf(TmfFunction::QueryTask, true);
    (query.referenced_task_tag, query.ref_cmd_sn) = (sent.itt, sent.cmd_sn);
    let response = asked(&mut s, query)?.response;
    if !answer_is("QUERY TASK of a live task", response, TmfResponse::FunctionSucceeded)? {
        skip!("the target has no QUERY TASK");
    }
    s.serve(&sent, &r2t)?;
    let outcome = s.finish(&sent)?;
    ensure!(outcome.is_good(), "a task that was asked for ended with {}", outcome.words());
    let mut query = s.tmf(TmfFunction::QueryTask, true);
    (query.referenced_task_tag, query.ref_cmd_sn) = (sent.itt, sent.cmd_sn);
    let response = asked(&mut s, query)?.response;
    ensure!(response == TmfResponse::FunctionComplete, "QUERY TASK of a task that ended: {response}");
    // A task management function is not a task.
    let (hole, frame) = s.command_frame(&Command::test_unit_ready());
    let mut waiting = s.tmf(TmfFunction::AbortTask, false);
    (waiting.referenced_task_tag, waiting.ref_cmd_sn) = (Itt(0x7777), waiting.cmd_sn.add(50_000));
    s.peer.send(&Frame::of(waiting))?;
    let mut query = s.tmf(TmfFunction::QueryTask, true);
    (query.referenced_task_tag, query.ref_cmd_sn) = (waiting.itt, waiting.cmd_sn);
    let response = asked(&mut s, query)?.response;
    ensure!(
        response == TmfResponse::FunctionRejected,
        "QUERY TASK of a task management function: expected 255, got {response}"
    );
    s.peer.send(&frame)?;
    s.finish(&hole)?;
    s.next_for(waiting.itt)?;
    s.ping()?;
    Ok(())
}

// covers: P2-04
fn p2_04(ctx: &mut Ctx) -> RowResult {
    let mut s = level_2(ctx)?;
    let mut other = ctx.session()?;
    let reset = other.tmf(TmfFunction::LogicalUnitReset, true);
    let response = other.manage(reset)?;
    ensure!(response == TmfResponse::FunctionComplete, "LOGICAL UNIT RESET: {response}");
    let query = s.tmf(TmfFunction::QueryAsyncEvent, true);
    let response = asked(&mut s, query)?;
    if !answer_is("QUERY ASYNCHRONOUS EVENT", response.response, TmfResponse::FunctionSucceeded)? {
        skip!("the target has no QUERY ASYNCHRONOUS EVENT");
    }
    let [head, asc, ascq] = response.additional;
    let outcome = s.run(&Command::test_unit_ready())?;
    ensure!(
        outcome.sense_code() == Some((6, asc, ascq)) && head & 0x0f == 6,
        "QUERY ASYNCHRONOUS EVENT told {:02x?}, then came {}",
        response.additional,
        outcome.words()
    );
    s.clear_unit_attentions()?;
    let query = s.tmf(TmfFunction::QueryAsyncEvent, true);
    let response = asked(&mut s, query)?.response;
    ensure!(response == TmfResponse::FunctionComplete, "without a unit attention: {response}");
    Ok(())
}

// covers: P2-05
fn p2_05(ctx: &mut Ctx) -> RowResult {
    let mut plain = ctx.session()?;
    fill_block(ctx, &mut plain, 0x50)?;
    let mut s = level_2(ctx)?;
    let (sent, r2t) = waiting_write(ctx, &mut s, 0xaf)?;
    let request = s.tmf(TmfFunction::ITNexusReset, true);
    s.peer.send(&Frame::of(request))?;
    // The connections drop immediately; the answer may be lost with them.
    match s.reaction(request.itt)? {
        Reaction::Answered(rx) => match TaskManagementResponse::parse(&rx.bhs)?.response {
            TmfResponse::FunctionNotSupported => skip!("the target has no I_T NEXUS RESET"),
            TmfResponse::FunctionComplete => {}
            response => fail!("I_T NEXUS RESET: {response}"),
        },
        Reaction::Closed => {}
        other => fail!("I_T NEXUS RESET: {}", other.words()),
    }
    let _ = s.serve(&sent, &r2t);
    ends("after I_T NEXUS RESET", &mut s.peer)?;
    let script = s.script.clone().joining(s.logged_in.tsih, Cid(7)).cmd_sn(s.cmd_sn.0);
    s.abandon();
    match ctx.connect()?.login(&script) {
        Err(PeerError::Login(status)) if status.code() == 0x020a => {}
        Err(error) => fail!("the session after I_T NEXUS RESET: expected 020a, got {error}"),
        Ok(_) => fail!("the session outlived I_T NEXUS RESET"),
    }
    block_is(ctx, &mut plain, 0x50, "a write that I_T NEXUS RESET ended")
}

// covers: P2-06
fn p2_06(ctx: &mut Ctx) -> RowResult {
    for level in ["1", "2"] {
        let mut s = ctx.session_with(|script| script.key(keys::ISCSI_PROTOCOL_LEVEL, level))?;
        for priority in [0u8, 1, 15] {
            let (sent, frame) = s.command_frame(&Command::inquiry(36, 36));
            s.peer.send(&frame.patch(2, &[priority << 4]).remark(&format!("priority {priority}")))?;
            let outcome = s.finish(&sent)?;
            ensure!(outcome.is_good(), "priority {priority} at level {level}: {}", outcome.words());
        }
    }
    // A status qualifier must not be sent to an initiator that may not understand it.
    let mut s = ctx.session_with(|script| script.key(keys::ISCSI_PROTOCOL_LEVEL, "1"))?;
    let sent = s.start(&Command::read([0xff; 6], 512))?;
    let rx = s.next_for(sent.itt)?;
    let response = ScsiResponse::parse(&rx.bhs)?;
    ensure!(response.status == 2, "an unknown command ended with {:#04x}", response.status);
    let qualifier = ScsiResponse::status_qualifier(&rx.bhs);
    ensure!(qualifier == 0, "a status qualifier {qualifier:#06x} at level 1");
    Ok(())
}

// covers: P2-07
fn p2_07(ctx: &mut Ctx) -> RowResult {
    for level in ["1", "2"] {
        let mut s = ctx.session_with(|script| script.key(keys::ISCSI_PROTOCOL_LEVEL, level))?;
        let due = 0x0960 + s.params.protocol_level as u16;
        let data = s.run_good(&Command::inquiry(96, 96))?.data;
        let descriptors: Vec<u16> = data
            .get(58..74)
            .unwrap_or_default()
            .chunks_exact(2)
            .map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
            .collect();
        let ours: Vec<u16> =
            descriptors.iter().copied().filter(|code| (0x0960..0x0980).contains(code)).collect();
        if ours.is_empty() {
            skip!("INQUIRY has no version descriptor for iSCSI");
        }
        // 0960h claims no particular version.
        let right = ours.iter().all(|code| *code == due || *code == 0x0960);
        ensure!(right, "at level {} the version descriptors are {descriptors:04x?}", s.params.protocol_level);
    }
    Ok(())
}
