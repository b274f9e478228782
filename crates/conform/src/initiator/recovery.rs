//! Error recovery and SNACK (rows ERL and SNK): the target loses PDUs and connections, at each level.

use super::play::{Op, OpResult, Play, Played, Stage, pattern, ping, read_write};
use super::{Row, RowResult};
use crate::evil::{Act, Behaviour, EvilConfig, Incoming, Scene};
use crate::frame::{DigestWish, u32_at};
use crate::script::{ensure, fail, skip};
use crate::transcript::{Entry, Side, What};
use iscsi_wire::{
    DataIn, LogoutReason, LogoutRequest, Opcode, ScsiCommand, SnackRequest, SnackType, StatSn,
    TaskManagementRequest, TmfFunction, keys,
};
use std::time::Duration;

pub(super) const ROWS: &[Row] = &[
    Row::new("ERL-01", "the level on offer is what was asked for, and lower answers are taken", erl_01),
    Row::new("ERL-02", "from level 1 on: SNACKs for data and status, acknowledgements of data", erl_02),
    Row::new("ERL-03", "gaps in DataSN and StatSN are healed, duplicates are dropped", erl_03),
    Row::new("ERL-06", "TASK REASSIGN after a logout for recovery, where a connection was lost", erl_06),
    Row::new("ERL-10", "no write twice, no read twice, whichever PDU takes the connection along", erl_10),
    Row::new("ERL-11", "a connection that went silent is noticed and replaced", erl_11),
    Row::new("SNK-02", "Status SNACK for a response that was lost", snk_02),
    Row::new("SNK-03", "DataACK where the target asks for it, and not before holes are filled", snk_03),
    Row::new("SNK-04", "R-Data SNACK after MaxRecvDataSegmentLength was lowered", snk_04),
    Row::new("SNK-09", "status is not acknowledged while data is missing", snk_09),
];

/// A play with a target that supports up to this level, with small PDUs and bursts.
pub(super) fn at(level: u32) -> Play {
    let config = EvilConfig::default()
        .key(keys::ERROR_RECOVERY_LEVEL, &level.to_string())
        .key(keys::MAX_CONNECTIONS, "4")
        .key(keys::DEFAULT_TIME2RETAIN, "20")
        .key(keys::MAX_BURST_LENGTH, "4096")
        .key(keys::FIRST_BURST_LENGTH, "4096");
    Play::new()
        .config(config)
        .set("erl", &level.to_string())
        .set("data_digest", "off")
        .set("header_digest", "off")
        .set("max_recv_data_segment_length", "1024")
}

/// The level that connection 1 offered.
pub(super) fn offered_level(played: &Played) -> u32 {
    let offered = played.offered(1);
    let value = offered.iter().find(|(key, _)| key == keys::ERROR_RECOVERY_LEVEL);
    value.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

pub(super) fn reaches(played: &Played, level: u32) -> RowResult {
    let got = offered_level(played);
    if got < level {
        skip!("the initiator offers ErrorRecoveryLevel={got}, the row needs {level}");
    }
    Ok(())
}

/// SNACKs of this type, with their positions in the transcript.
fn snacks(played: &Played, snack_type: SnackType) -> Vec<(usize, SnackRequest)> {
    let mut found = Vec::new();
    for (at, entry) in played.entries.iter().enumerate() {
        let sent = entry.bhs().filter(|_| entry.side == Side::Initiator);
        if let Some(request) = sent.and_then(|bhs| SnackRequest::parse(bhs).ok())
            && request.snack_type == snack_type
        {
            found.push((at, request));
        }
    }
    found
}

/// Loses these Data-In PDUs of the first long read, once. The PDUs after them show the gap; after the last one, a ping
/// does.
fn losing_data(lost: &'static [u32]) -> Behaviour {
    let (mut itt, mut gone) = (None, Vec::new());
    Behaviour::good().every(Opcode::DataIn, move |_, frame| {
        let Ok(pdu) = DataIn::parse(&frame.bhs()) else { return vec![Act::Send(frame)] };
        if itt.is_none() && frame.data_bytes().len() >= 1024 {
            itt = Some(pdu.itt);
        }
        let number = pdu.data_sn.0;
        if itt != Some(pdu.itt) || !lost.contains(&number) || gone.contains(&number) {
            return vec![Act::Send(frame)];
        }
        gone.push(number);
        if pdu.status_bit { vec![Act::Tell(ping(u32::MAX, 0x7e57))] } else { Vec::new() }
    })
}

/// Everything went well using only the first connection.
fn healed_in_place(what: &str, played: &Played) -> RowResult {
    played.went_well()?;
    ensure!(
        played.connections() == 1,
        "{what}: {} connections were used, one was enough",
        played.connections()
    );
    played.clean("SNK-02")
}

// covers: ERL-01
fn erl_01(stage: &Stage<'_>) -> RowResult {
    for (offer, answer) in [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)] {
        let mut play = at(offer);
        play.config = play.config.key(keys::ERROR_RECOVERY_LEVEL, &answer.to_string());
        let played = stage.goes_well(&play, Behaviour::good())?;
        let got = offered_level(&played);
        ensure!(got <= offer, "ErrorRecoveryLevel={got} on offer, {offer} was asked for");
        if answer == 0 {
            ensure!(snacks(&played, SnackType::Status).is_empty(), "a SNACK at level 0");
            played.clean("SNK-02")?;
        }
    }
    Ok(())
}

// covers: ERL-02
fn erl_02(stage: &Stage<'_>) -> RowResult {
    let played = stage.play_as(&at(1), losing_data(&[2]), &read_write())?;
    reaches(&played, 1)?;
    healed_in_place("one lost Data-In", &played)?;
    ensure!(!snacks(&played, SnackType::DataOrR2t).is_empty(), "no Data SNACK for a lost Data-In");
    let played = stage.play_as(&at(1), losing_status(), &read_write())?;
    healed_in_place("a lost status", &played)?;
    ensure!(!snacks(&played, SnackType::Status).is_empty(), "no Status SNACK for a lost response");
    acknowledges(&played)
}

// covers: ERL-03
fn erl_03(stage: &Stage<'_>) -> RowResult {
    for lost in [&[0][..], &[5], &[10], &[11], &[2, 3, 4, 5], &[1, 4, 8]] {
        let played = stage.play_as(&at(1), losing_data(lost), &read_write())?;
        reaches(&played, 1)?;
        healed_in_place(&format!("Data-In {lost:?} lost"), &played)?;
        let asked = snacks(&played, SnackType::DataOrR2t);
        let covers = |number: u32| {
            let run = |request: &SnackRequest| {
                let to = request.beg_run.saturating_add(request.run_length);
                request.run_length == 0 || (request.beg_run..to).contains(&number)
            };
            // The last one carries the status, which may be requested instead.
            asked.iter().any(|(_, request)| run(request)) || number == 11
        };
        let missed = lost.iter().find(|number| !covers(**number));
        ensure!(missed.is_none(), "no SNACK for DataSN {missed:?}");
        if lost.len() == 4 {
            ensure!(asked.len() < 4, "{} SNACKs for a run of 4 PDUs", asked.len());
        }
    }
    bad_digest(stage)?;
    // A duplicate counts once.
    for opcode in [Opcode::DataIn, Opcode::ScsiResponse] {
        let twice = Behaviour::good()
            .every(opcode, |_, frame| vec![Act::Send(frame.clone()), Act::Send(frame.remark("twice"))]);
        let played = stage.play_as(&at(1), twice, &read_write())?;
        healed_in_place("duplicates", &played)?;
    }
    // A hole that the target notices: it requests the data again, and gets the same bytes.
    let mut lost = 0;
    let holes = Behaviour::good().incoming(move |_, rx| {
        let not_last = rx.bhs.opcode() == Opcode::DataOut.code() && rx.bhs.as_bytes()[1] & 0x80 == 0;
        if not_last && lost < 2 {
            lost += 1;
            return Incoming::Lost(Vec::new());
        }
        Incoming::Serve
    });
    let mut play = at(1);
    play.config = play.config.key(keys::MAX_RECV_DATA_SEGMENT_LENGTH, "1024");
    let played = stage.play_as(&play, holes, &read_write())?;
    played.went_well()
}

/// Loses the first response to a write, and reveals the gap with a ping.
fn losing_status() -> Behaviour {
    Behaviour::good().first(Opcode::ScsiResponse, |_, _| vec![Act::Tell(ping(u32::MAX, 0x7e57))])
}

// covers: SNK-02
fn snk_02(stage: &Stage<'_>) -> RowResult {
    let played = stage.play_as(&at(1), losing_status(), &read_write())?;
    reaches(&played, 1)?;
    healed_in_place("a lost response", &played)?;
    let asked = snacks(&played, SnackType::Status);
    let Some((_, request)) = asked.first() else { fail!("no Status SNACK for a lost response") };
    ensure!(
        request.itt.is_reserved() && request.ttt.is_reserved(),
        "a Status SNACK with tags: itt={} ttt={}",
        request.itt,
        request.ttt
    );
    let writes = played.sent_pdus().filter_map(|entry| ScsiCommand::parse(entry.bhs()?).ok());
    let writes = writes.filter(|command| command.write).count();
    ensure!(writes == 1, "the write whose response was lost was sent {writes} times");
    Ok(())
}

/// Every DataACK names the data that had arrived.
fn acknowledges(played: &Played) -> RowResult {
    for (at, request) in snacks(played, SnackType::DataAck) {
        let before = &played.entries[..at];
        let data = |entry: &Entry| DataIn::parse(entry.bhs()?).ok().filter(|_| entry.side == Side::Target);
        let asked = before.iter().filter_map(data).find(|pdu| pdu.acknowledge && pdu.ttt == request.ttt);
        let Some(asked) = asked else { fail!("a DataACK with TTT {}, which nobody gave", request.ttt) };
        ensure!(request.lun == asked.lun, "a DataACK with LUN {:?}, due was {:?}", request.lun, asked.lun);
        ensure!(request.run_length == 0, "a DataACK with RunLength {}", request.run_length);
        for number in 0..request.beg_run {
            let came =
                before.iter().filter_map(data).any(|pdu| pdu.itt == asked.itt && pdu.data_sn.0 == number);
            ensure!(came, "a DataACK up to {}, DataSN {number} had not come", request.beg_run);
        }
    }
    Ok(())
}

// covers: SNK-03
fn snk_03(stage: &Stage<'_>) -> RowResult {
    for lost in [&[][..], &[1], &[2, 3]] {
        let played = stage.play_as(&at(1), losing_data(lost), &read_write())?;
        reaches(&played, 1)?;
        healed_in_place(&format!("Data-In {lost:?} lost"), &played)?;
        ensure!(
            !snacks(&played, SnackType::DataAck).is_empty(),
            "the target asked for acknowledgements of data, and got none"
        );
        acknowledges(&played)?;
        played.clean("SNK-03")?;
    }
    Ok(())
}

// covers: SNK-04
fn snk_04(stage: &Stage<'_>) -> RowResult {
    // Data is lost, and no request for it is heard before the change is declared; the data sent afterwards is split
    // differently.
    let (mut itt, mut gone, mut declared) = (None, false, false);
    let deaf = Behaviour::good()
        .outgoing(move |_, frame| {
            let Ok(pdu) = DataIn::parse(&frame.bhs()) else { return vec![Act::Send(frame)] };
            if itt.is_none() && frame.data_bytes().len() >= 1024 {
                itt = Some(pdu.itt);
            }
            let lost = itt == Some(pdu.itt) && pdu.data_sn.0 == 2 && !std::mem::replace(&mut gone, true);
            if lost { Vec::new() } else { vec![Act::Send(frame)] }
        })
        .incoming(move |_, rx| {
            declared |= rx.bhs.opcode() == Opcode::TextRequest.code();
            let early = SnackRequest::parse(&rx.bhs).is_ok_and(|r| r.snack_type == SnackType::DataOrR2t);
            if early && !declared { Incoming::Lost(Vec::new()) } else { Incoming::Serve }
        });
    let change = vec![Op::Wait(Duration::from_millis(200)), Op::Declare(512)];
    let ops = [Op::Together(vec![Op::Read { lba: 0, blocks: 24 }, Op::InTurn(change)])];
    let played = stage.play_as(&at(1), deaf, &ops)?;
    reaches(&played, 1)?;
    played.clean("SNK-04")?;
    let lowered = played.sent_pdus().any(|entry| {
        entry.is(Opcode::TextRequest)
            && super::play::pairs_of(entry.data())
                .iter()
                .any(|(key, _)| key == keys::MAX_RECV_DATA_SEGMENT_LENGTH)
    });
    if !lowered {
        skip!("the initiator does not change MaxRecvDataSegmentLength while it works");
    }
    ensure!(!snacks(&played, SnackType::RData).is_empty(), "data was missing from before the change");
    played.went_well()?;
    let read = match played.results.as_deref() {
        Ok([OpResult::Together(results)]) => results.first(),
        _ => None,
    };
    ensure!(read == Some(&OpResult::Data(pattern(0, 24))), "the read brought {}", played.words());
    Ok(())
}

// covers: SNK-09
fn snk_09(stage: &Stage<'_>) -> RowResult {
    let played = stage.play_as(&at(1), losing_data(&[5]), &[Op::Read { lba: 0, blocks: 24 }])?;
    reaches(&played, 1)?;
    played.went_well()?;
    let is_data = |entry: &&Entry| entry.side == Side::Target && entry.is(Opcode::DataIn);
    let status = played.entries.iter().position(|entry| {
        is_data(&entry) && entry.bhs().is_some_and(|bhs| bhs.as_bytes()[1] & 1 != 0 && u32_at(bhs, 36) == 11)
    });
    let Some(status) = status else { fail!("the status never came") };
    let itt = played.entries[status].bhs().map(|bhs| bhs.itt());
    let stat_sn = played.entries[status].bhs().map_or(StatSn(0), |bhs| StatSn(u32_at(bhs, 24)));
    let healed = played.entries.iter().position(|entry| {
        is_data(&entry) && entry.bhs().is_some_and(|bhs| Some(bhs.itt()) == itt && u32_at(bhs, 36) == 5)
    });
    let Some(healed) = healed else { fail!("what was lost never came again") };
    let between = played.entries.get(status..healed).unwrap_or_default();
    let early = between.iter().find(|entry| {
        entry.side == Side::Initiator && entry.bhs().is_some_and(|bhs| stat_sn.lt(bhs.exp_stat_sn()))
    });
    ensure!(
        early.is_none(),
        "the status was acknowledged while DataSN 5 was missing: {}",
        early.map(ToString::to_string).unwrap_or_default()
    );
    Ok(())
}

/// Resets the connection instead of sending its `nth` PDU of full feature phase, only once.
fn cut_at(nth: usize) -> Behaviour {
    let mut count = 0;
    Behaviour::good().outgoing(move |scene: &Scene, frame| {
        if !scene.full_feature || scene.connection != 1 {
            return vec![Act::Send(frame)];
        }
        count += 1;
        if count == nth + 1 { vec![Act::Reset] } else { vec![Act::Send(frame)] }
    })
}

fn cut_first(opcode: Opcode) -> Behaviour {
    let mut done = false;
    Behaviour::good().every(opcode, move |scene, frame| {
        let long = frame.bhs().opcode() != Opcode::DataIn.code() || frame.data_bytes().len() >= 1024;
        if !scene.full_feature || !long || std::mem::replace(&mut done, true) {
            return vec![Act::Send(frame)];
        }
        vec![Act::Reset]
    })
}

/// TASK REASSIGNs that the initiator sent, with their positions.
fn reassigns(played: &Played) -> Vec<(usize, TaskManagementRequest)> {
    let mut found = Vec::new();
    for (at, entry) in played.entries.iter().enumerate() {
        if let Some(request) = entry.bhs().and_then(|bhs| TaskManagementRequest::parse(bhs).ok())
            && request.function == TmfFunction::TaskReassign
        {
            found.push((at, request));
        }
    }
    found
}

// covers: ERL-06
fn erl_06(stage: &Stage<'_>) -> RowResult {
    let mut any = false;
    for connections in ["1", "2"] {
        for opcode in [Opcode::DataIn, Opcode::R2t, Opcode::ScsiResponse] {
            let play = at(2).set("connections", connections);
            let played = stage.play_as(&play, cut_first(opcode), &read_write())?;
            reaches(&played, 2)?;
            played.went_well()?;
            for (at, request) in reassigns(&played) {
                any = true;
                let before = &played.entries[..at];
                ensure!(request.immediate, "TASK REASSIGN that is not immediate");
                let old = before.iter().find(|entry| {
                    entry.is(Opcode::ScsiCommand)
                        && entry.bhs().is_some_and(|bhs| bhs.itt() == request.referenced_task_tag)
                });
                let Some(old) = old else {
                    fail!("TASK REASSIGN of itt={}, which was not sent", request.referenced_task_tag)
                };
                // The connection was logged out for recovery, or its CID was taken by a new connection.
                let cid = cid_of(&played, old.connection);
                let out = before.iter().filter_map(|entry| LogoutRequest::parse(entry.bhs()?).ok());
                let out = out
                    .filter(|logout| logout.reason == LogoutReason::RemoveConnectionForRecovery)
                    .any(|logout| Some(logout.cid.0) == cid);
                let reinstated = before.iter().any(|entry| {
                    entry.connection > old.connection && cid_of(&played, entry.connection) == cid
                });
                ensure!(
                    out || reinstated,
                    "TASK REASSIGN before the connection was logged out for recovery or reinstated"
                );
            }
        }
    }
    if !any {
        skip!("the initiator reassigns no task");
    }
    Ok(())
}

/// The CID with which a connection logged in.
pub(super) fn cid_of(played: &Played, connection: u32) -> Option<u16> {
    let login = |entry: &&Entry| entry.connection == connection && entry.is(Opcode::LoginRequest);
    let bhs = played.entries.iter().find(login)?.bhs()?;
    Some(iscsi_wire::LoginRequest::parse(bhs).ok()?.cid.0)
}

// covers: ERL-10
fn erl_10(stage: &Stage<'_>) -> RowResult {
    for level in [0, 1, 2] {
        for nth in [0, 3, 6, 12, 15, 18, 20, 22, 26] {
            let mut play = at(level);
            play.config = play.config.key(keys::MAX_RECV_DATA_SEGMENT_LENGTH, "4096");
            let played = stage.play_as(&play, cut_at(nth), &read_write())?;
            if level > 0 {
                reaches(&played, level)?;
            }
            // Session recovery sends commands again; a reassigned task is not sent again.
            played.went_well()?;
            if !reassigns(&played).is_empty() {
                let writes = played.sent_pdus().filter_map(|entry| ScsiCommand::parse(entry.bhs()?).ok());
                let writes = writes.filter(|command| command.write).count();
                ensure!(
                    writes == 1,
                    "cut at PDU {nth}: the write was sent {writes} times beside its reassignment"
                );
            }
        }
    }
    Ok(())
}

// covers: ERL-11
fn erl_11(stage: &Stage<'_>) -> RowResult {
    // After the first write the target ignores everything on connection 1 and answers nothing.
    let mut deaf = false;
    let silent = Behaviour::good().incoming(move |scene, rx| {
        if scene.connection != 1 {
            return Incoming::Serve;
        }
        if deaf {
            return Incoming::Lost(Vec::new());
        }
        deaf = ScsiCommand::parse(&rx.bhs).is_ok_and(|command| command.write)
            || rx.bhs.opcode() == Opcode::DataOut.code();
        Incoming::Serve
    });
    let ops = [Op::Write { lba: 1000, data: pattern(1000, 2) }, Op::Read { lba: 1000, blocks: 2 }, Op::Flush];
    let played = stage.play_as(&Play::new().impatient(), silent, &ops)?;
    let again = played.entries.iter().filter(|entry| matches!(entry.what, What::Opened)).count();
    ensure!(again > 1, "a connection that went silent was not replaced: {}", played.words());
    let read = played.results.as_ref().ok().and_then(|results| results.get(1));
    ensure!(
        matches!(read, Some(super::play::OpResult::Data(data)) if *data == pattern(1000, 2)),
        "after a connection went silent: {}",
        played.words()
    );
    Ok(())
}

/// A bad data digest is treated like any other loss.
pub(super) fn bad_digest(stage: &Stage<'_>) -> RowResult {
    let play = Play { query: Vec::new(), ..at(1) }
        .set("erl", "1")
        .set("data_digest", "required")
        .set("max_recv_data_segment_length", "1024");
    let bad = Behaviour::good()
        .first(Opcode::DataIn, |_, frame| vec![Act::Send(frame.data_digest(DigestWish::Flip(0x10)))]);
    let played = stage.play_as(&play, bad, &read_write())?;
    reaches(&played, 1)?;
    healed_in_place("a bad data digest", &played)
}
