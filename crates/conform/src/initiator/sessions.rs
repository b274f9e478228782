//! Several connections in a session (rows MCS), FastAbort (FAB) and protocol level 2 (P2).

use super::play::{Op, Play, Played, Stage, if_applicable, pattern, read_write};
use super::recovery::{at, cid_of};
use super::{Row, RowResult};
use crate::evil::{Act, Behaviour, EvilConfig, Incoming};
use crate::frame::Frame;
use crate::script::{ensure, fail, skip};
use crate::transcript::{Entry, Side, What};
use iscsi_wire::{
    AsyncEvent, AsyncMessage, DataOut, LoginRequest, Lun, NopOut, Opcode, ResponseNumbers, ScsiCommand,
    TaskManagementRequest, TaskManagementResponse, TmfFunction, TmfResponse, Tsih, keys,
};
use std::collections::HashMap;
use std::time::Duration;

pub(super) const ROWS: &[Row] = &[
    Row::new(
        "MCS-01",
        "connections join with the TSIH, a CID of their own and no key of the leading one",
        mcs_01,
    ),
    Row::new("MCS-02", "Data-Out goes where its command went", mcs_02),
    Row::new("MCS-03", "unsolicited data in command order on each connection", mcs_03),
    Row::new("MCS-07", "commands that a lost connection took along stop nothing", mcs_07),
    Row::new("MCS-08", "data stays right when connections are slow by turns", mcs_08),
    Row::new("FAB-01", "event 5 ends Data-Out and is acknowledged by a NOP-Out with the LUN", fab_01),
    Row::new("P2-01", "every answer to iSCSIProtocolLevel is taken", p2_01),
    Row::new("P2-02", "functions 9 to 12 at level 2 only", p2_02),
    Row::new("P2-03", "QUERY TASK names its task and goes over its connection", p2_03),
    Row::new("P2-05", "I_T NEXUS RESET: nothing of the nexus is saved, with or without an answer", p2_05),
    Row::new("P2-06", "command priority at level 2 only", p2_06),
];

pub(super) fn several() -> Play {
    at(0).set("connections", "4")
}

/// The numbers of the connections that joined the first one's session.
fn joined(played: &Played) -> Vec<u32> {
    let logins = played.entries.iter().filter(|entry| entry.is(Opcode::LoginRequest));
    let mut found: Vec<u32> = logins
        .filter(|entry| {
            let login = entry.bhs().and_then(|bhs| LoginRequest::parse(bhs).ok());
            login.is_some_and(|login| login.tsih != Tsih(0))
        })
        .map(|entry| entry.connection)
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

pub(super) fn has_several(played: &Played) -> RowResult {
    if joined(played).is_empty() {
        skip!("the initiator uses one connection");
    }
    Ok(())
}

/// Time for all connections to join before the work starts.
const JOINING: Duration = Duration::from_millis(500);

/// Concurrent reads and writes, for all connections.
pub(super) fn busy() -> Vec<Op> {
    let reads = (0..12).map(|n| Op::Read { lba: n * 16, blocks: 16 });
    let writes = (0..12).map(|n| Op::Write { lba: 2000 + n * 20, data: pattern(n * 31, 20) });
    let mut ops: Vec<Op> = Vec::new();
    for (read, write) in reads.zip(writes) {
        ops.extend([read, write]);
    }
    let again = (0..12).map(|n| Op::Read { lba: 2000 + n * 20, blocks: 20 }).collect();
    vec![Op::Wait(JOINING), Op::Together(ops), Op::Together(again)]
}

/// All operations of [`busy`] went well, with the right bytes.
pub(super) fn busy_went_well(played: &Played) -> RowResult {
    use super::play::OpResult;
    let Ok(results) = &played.results else { fail!("the initiator failed: {}", played.words()) };
    let [_, OpResult::Together(first), OpResult::Together(second)] = &results[..] else {
        fail!("results: {}", played.words())
    };
    for (n, pair) in first.chunks(2).enumerate() {
        let n = n as u64;
        ensure!(pair[0] == OpResult::Data(pattern(n * 16, 16)), "read {n}: {}", played.words());
        ensure!(pair[1] == OpResult::Done, "write {n}: {}", played.words());
        ensure!(
            second.get(n as usize) == Some(&OpResult::Data(pattern(n * 31, 20))),
            "what write {n} wrote is not what is read: {}",
            played.words()
        );
    }
    Ok(())
}

// covers: MCS-01
fn mcs_01(stage: &Stage<'_>) -> RowResult {
    let played = stage.play_as(&several(), Behaviour::good(), &busy())?;
    busy_went_well(&played)?;
    has_several(&played)?;
    played.clean("MCS-01")?;
    played.clean("NUM-01")?;
    played.clean("NUM-06")?;
    played.clean("LGN-11")?;
    let joined = joined(&played);
    let mut cids: Vec<_> = joined.iter().chain([&1]).map(|connection| cid_of(&played, *connection)).collect();
    let count = cids.len();
    cids.sort_unstable();
    cids.dedup();
    ensure!(cids.len() == count, "two connections have one CID: {cids:?}");
    let busy_ones = joined.iter().filter(|connection| played.sent(**connection, Opcode::ScsiCommand) > 0);
    ensure!(busy_ones.count() > 0, "no further connection carries a command");
    // A target that refuses additional connections leaves the session unaffected.
    let few = several().config(EvilConfig::default());
    let played = stage.play_as(&few, Behaviour::good(), &busy())?;
    busy_went_well(&played)?;
    ensure!(played.connections() == 1, "MaxConnections=1, and {} connections", played.connections());
    Ok(())
}

/// The connection on which each command was sent, by task tag.
fn allegiance(played: &Played) -> HashMap<u32, u32> {
    let commands = played.sent_pdus().filter(|entry| entry.is(Opcode::ScsiCommand));
    commands.filter_map(|entry| Some((entry.bhs()?.itt().0, entry.connection))).collect()
}

// covers: MCS-02
fn mcs_02(stage: &Stage<'_>) -> RowResult {
    let play = several().set("immediate_data", "no").set("initial_r2t", "yes");
    let played = stage.play_as(&play, Behaviour::good(), &busy())?;
    busy_went_well(&played)?;
    has_several(&played)?;
    let commands = allegiance(&played);
    for entry in played.sent_pdus().filter(|entry| entry.is(Opcode::DataOut)) {
        let Some(data) = entry.bhs().and_then(|bhs| DataOut::parse(bhs).ok()) else { continue };
        let due = commands.get(&data.itt.0);
        ensure!(due == Some(&entry.connection), "its command went over connection {due:?}: {entry}");
    }
    let function = TmfFunction::AbortTask;
    if_applicable(follows_its_task(stage, several(), function))
}

/// The function is sent on the connection of the task that it names, whichever that is, and carries the right
/// fields.
fn follows_its_task(stage: &Stage<'_>, play: Play, function: TmfFunction) -> RowResult {
    // Slow enough that the read is still in progress when the function arrives.
    let slow = Behaviour::good().incoming(|_, rx| {
        let read = ScsiCommand::parse(&rx.bhs).is_ok_and(|command| matches!(command.cdb[0], 0x28 | 0x88));
        if read { Incoming::Before(vec![Act::Pause(Duration::from_millis(40))]) } else { Incoming::Serve }
    });
    let asked = (0..8).map(|n| Op::Manage { function, read: Some((n * 16, 16)) }).collect();
    let played = stage.play_as(&play, slow, &[Op::Wait(JOINING), Op::Together(asked)])?;
    has_several(&played)?;
    let sent = played.sent_pdus().filter(|entry| entry.is(Opcode::ScsiCommand));
    let commands: HashMap<u32, (u32, ScsiCommand)> = sent
        .filter_map(|entry| {
            let command = ScsiCommand::parse(entry.bhs()?).ok()?;
            Some((command.itt.0, (entry.connection, command)))
        })
        .collect();
    let mut used = Vec::new();
    for entry in played.sent_pdus() {
        let request = entry.bhs().and_then(|bhs| TaskManagementRequest::parse(bhs).ok());
        let Some(request) = request.filter(|request| request.function == function) else { continue };
        let Some((connection, command)) = commands.get(&request.referenced_task_tag.0) else {
            fail!("{function} of a task that was not sent: {entry}")
        };
        ensure!(*connection == entry.connection, "its task went over connection {connection}: {entry}");
        ensure!(
            (request.ref_cmd_sn, request.lun) == (command.cmd_sn, command.lun),
            "its task has CmdSN {} and LUN {}: {entry}",
            command.cmd_sn,
            command.lun
        );
        used.push(entry.connection);
    }
    if used.is_empty() {
        skip!("the initiator cannot be asked for {function}");
    }
    used.sort_unstable();
    used.dedup();
    ensure!(used.len() > 1, "all tasks went over connection {}", used[0]);
    Ok(())
}

// covers: MCS-03
fn mcs_03(stage: &Stage<'_>) -> RowResult {
    let play = several().set("immediate_data", "no").set("initial_r2t", "no");
    let played = stage.play_as(&play, Behaviour::good(), &busy())?;
    busy_went_well(&played)?;
    has_several(&played)?;
    for connection in joined(&played).into_iter().chain([1]) {
        let pdus = || played.sent_pdus().filter(move |entry| entry.connection == connection);
        let open = |entry: &Entry| {
            let command = entry.bhs().and_then(|bhs| ScsiCommand::parse(bhs).ok())?;
            (!command.final_bit).then_some(command.itt)
        };
        let order: Vec<_> = pdus().filter_map(open).collect();
        let data = pdus().filter_map(|entry| DataOut::parse(entry.bhs()?).ok());
        let mut sent: Vec<_> = data.filter(|pdu| pdu.ttt.is_reserved()).map(|pdu| pdu.itt).collect();
        sent.dedup();
        ensure!(
            sent == order,
            "connection {connection}: unsolicited data of {sent:?}, the commands were {order:?}"
        );
    }
    Ok(())
}

// covers: MCS-07
fn mcs_07(stage: &Stage<'_>) -> RowResult {
    for level in [0, 1, 2] {
        // The first command on the second connection is lost with it, unseen.
        let mut done = false;
        let cut = Behaviour::good().incoming(move |scene, rx| {
            let command = rx.bhs.opcode() == Opcode::ScsiCommand.code();
            if scene.connection != 2 || !command || std::mem::replace(&mut done, true) {
                return Incoming::Serve;
            }
            Incoming::Lost(vec![Act::Reset])
        });
        let play = at(level).set("connections", "4");
        let played = stage.play_as(&play, cut, &busy())?;
        has_several(&played)?;
        busy_went_well(&played)?;
        let back = played.entries.iter().filter(|entry| matches!(entry.what, What::Opened)).count();
        ensure!(back > 2, "the lost connection was not brought back");
    }
    Ok(())
}

// covers: MCS-08
fn mcs_08(stage: &Stage<'_>) -> RowResult {
    let mut dice = 7u32;
    let slow = Behaviour::good().outgoing(move |scene, frame| {
        dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let late = scene.full_feature && dice >> 28 == scene.connection % 16;
        if late {
            return vec![Act::Pause(Duration::from_millis(u64::from(dice >> 20 & 31))), Act::Send(frame)];
        }
        vec![Act::Send(frame)]
    });
    let played = stage.play_as(&several(), slow, &busy())?;
    busy_went_well(&played)?;
    has_several(&played)
}

// covers: FAB-01
fn fab_01(stage: &Stage<'_>) -> RowResult {
    let mut play = Play::new()
        .impatient()
        .set("immediate_data", "no")
        .set("initial_r2t", "yes")
        .set("task_reporting", "fast_abort");
    play.config = EvilConfig { task_reporting: vec!["FastAbort"], ..at(1).config };
    let ended = Behaviour::good().first(Opcode::R2t, |_, frame| {
        let event = AsyncMessage {
            lun: Lun::from_index(0),
            numbers: ResponseNumbers::default(),
            event: AsyncEvent::TaskTermination,
            vcode: 0,
            parameter1: 0,
            parameter2: 0,
            parameter3: 0,
        };
        vec![Act::Answer(Frame::of(event)), Act::Forget, Act::Send(frame.remark("its task is over"))]
    });
    let played = stage.play_as(&play, ended, &read_write())?;
    let offered = played.offered(1);
    let offer = offered.iter().find(|(key, _)| key == keys::TASK_REPORTING).map(|(_, value)| value.clone());
    if !offer.as_deref().is_some_and(|offer| offer.contains("FastAbort")) {
        skip!("the initiator offers TaskReporting={offer:?}");
    }
    played.no_wrong_byte()?;
    let told = played.entries.iter().position(|entry| entry.is(Opcode::AsyncMessage));
    let Some(told) = told else { fail!("event 5 was not sent: {}", played.words()) };
    let stat_sn = played.entries[told].bhs().map(|bhs| crate::frame::u32_at(bhs, 24)).unwrap_or_default();
    let after = &played.entries[told..];
    let answer = after.iter().position(|entry| {
        let nop = entry.bhs().and_then(|bhs| NopOut::parse(bhs).ok());
        entry.side == Side::Initiator
            && nop.is_some_and(|nop| {
                nop.itt.is_reserved()
                    && nop.ttt.is_reserved()
                    && nop.lun == Lun::from_index(0)
                    && iscsi_wire::StatSn(stat_sn).lt(nop.exp_stat_sn)
            })
    });
    let Some(answer) = answer else { fail!("event 5 was not acknowledged by a NOP-Out with its LUN") };
    let task = played.sent_pdus().filter_map(|entry| ScsiCommand::parse(entry.bhs()?).ok());
    let task = task.filter(|command| command.write).map(|command| command.itt).next();
    let late = after[answer..].iter().find(|entry| {
        let data = entry.bhs().and_then(|bhs| DataOut::parse(bhs).ok());
        entry.side == Side::Initiator && data.is_some_and(|data| Some(data.itt) == task)
    });
    ensure!(late.is_none(), "data of an ended task: {}", late.map(ToString::to_string).unwrap_or_default());
    Ok(())
}

// covers: P2-01
fn p2_01(stage: &Stage<'_>) -> RowResult {
    for level in ["0", "1", "2"] {
        let play = Play::new().config(EvilConfig::default().key(keys::ISCSI_PROTOCOL_LEVEL, level));
        stage.goes_well(&play, Behaviour::good())?;
    }
    Ok(())
}

/// A target of level 1 that answers no read on its first connection; the initiator reacts as it can.
fn provoked(stage: &Stage<'_>) -> Result<Played, crate::Stop> {
    let silent = Behaviour::good().incoming(|scene, rx| {
        let read = ScsiCommand::parse(&rx.bhs).is_ok_and(|command| matches!(command.cdb[0], 0x28 | 0x88));
        if scene.connection == 1 && read { Incoming::Instead(Vec::new()) } else { Incoming::Serve }
    });
    stage.play_as(&Play::new().impatient(), silent, &read_write())
}

// covers: P2-02
fn p2_02(stage: &Stage<'_>) -> RowResult {
    let played = provoked(stage)?;
    let requests = played.sent_pdus().filter_map(|entry| TaskManagementRequest::parse(entry.bhs()?).ok());
    let early = requests.map(|request| request.function).find(|function| function.is_level_2());
    ensure!(early.is_none(), "{early:?} at level 1");
    Ok(())
}

/// Several connections with a target of protocol level 2.
fn at_level_2(level: u32) -> Play {
    let mut play = at(level).set("connections", "4").set("protocol_level", "2");
    play.config = play.config.key(keys::ISCSI_PROTOCOL_LEVEL, "2");
    play
}

// covers: P2-03
fn p2_03(stage: &Stage<'_>) -> RowResult {
    follows_its_task(stage, at_level_2(0), TmfFunction::QueryTask)
}

// covers: P2-05
fn p2_05(stage: &Stage<'_>) -> RowResult {
    // The answer arrives before the connections drop, or is lost with them.
    for answered in [true, false] {
        let mut reset = false;
        let dropping = Behaviour::good().incoming(move |scene, rx| {
            let Ok(request) = TaskManagementRequest::parse(&rx.bhs) else { return Incoming::Serve };
            if request.function != TmfFunction::ITNexusReset || std::mem::replace(&mut reset, true) {
                return Incoming::Serve;
            }
            let answer = TaskManagementResponse {
                response: TmfResponse::FunctionComplete,
                itt: request.itt,
                numbers: scene.numbers,
                additional: [0; 3],
            };
            match answered {
                true => Incoming::Instead(vec![Act::Answer(Frame::of(answer)), Act::Close]),
                false => Incoming::Instead(vec![Act::Reset]),
            }
        });
        let ops = [
            Op::Wait(JOINING),
            Op::Manage { function: TmfFunction::ITNexusReset, read: None },
            Op::Read { lba: 0, blocks: 8 },
        ];
        let played = stage.play_as(&at_level_2(2), dropping, &ops)?;
        let asked = |function| {
            played.entries.iter().position(|entry| {
                let request = entry.bhs().and_then(|bhs| TaskManagementRequest::parse(bhs).ok());
                entry.side == Side::Initiator && request.is_some_and(|request| request.function == function)
            })
        };
        let Some(at) = asked(TmfFunction::ITNexusReset) else {
            skip!("the initiator cannot be asked for I_T NEXUS RESET")
        };
        let saved = asked(TmfFunction::TaskReassign);
        ensure!(saved.is_none(), "TASK REASSIGN after the nexus was reset");
        let joins = played.entries[at..].iter().find_map(|entry| {
            let login = entry.bhs().and_then(|bhs| LoginRequest::parse(bhs).ok())?;
            (entry.side == Side::Initiator).then_some(login.tsih)
        });
        ensure!(
            joins == Some(Tsih(0)),
            "after the reset comes a login with TSIH {joins:?}, not a new session"
        );
        let read = played.results.as_ref().ok().and_then(|results| results.get(2));
        ensure!(
            matches!(read, Some(super::play::OpResult::Data(data)) if *data == pattern(0, 8)),
            "answered: {answered}; after the reset: {}",
            played.words()
        );
    }
    Ok(())
}

// covers: P2-06
fn p2_06(stage: &Stage<'_>) -> RowResult {
    let played = stage.goes_well(&Play::new(), Behaviour::good())?;
    let commands = played.sent_pdus().filter_map(|entry| ScsiCommand::parse(entry.bhs()?).ok());
    let early = commands.map(|command| command.priority).find(|priority| *priority != 0);
    ensure!(early.is_none(), "command priority {early:?} at level 1");
    Ok(())
}
