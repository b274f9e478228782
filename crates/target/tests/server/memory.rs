//! The memory for data: less than requested, shared by many, always returned, and never exceeded.

use std::sync::atomic::{AtomicBool, Ordering};

use blockstore::Op;
use conform::{Command, Frame, LoginScript, Sent, Session, Unsolicited};
use iscsi_core::wire::{TaskManagementRequest, TmfFunction, TmfResponse, Tsih};
use server::metrics::openmetrics;
use target::config::Config;

use crate::support::*;

const MIB: usize = 1 << 20;

/// A server with `mib` MiB for data and `shards` shards.
fn with_memory(mib: usize, shards: usize) -> Config {
    let mut config = config();
    config.limits.buffer_bytes_max = (mib * MIB) as u64;
    config.limits.shards = shards;
    config
}

/// A value from `/metrics`.
fn metric(lab: &Lab, name: &str) -> u64 {
    let text = openmetrics(lab.server.observe());
    let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).rsplit(' ').next().unwrap().parse().unwrap()
}

fn in_use(lab: &Lab, part: &str) -> u64 {
    metric(lab, &format!("intact_data_memory_bytes{{part=\"{part}\"}}"))
}

fn waiting(lab: &Lab) -> u64 {
    metric(lab, "intact_data_memory_waiting_commands")
}

/// No memory is in use any more, and no command waits.
fn until_all_is_back(lab: &Lab) {
    until(|| ["commands", "unsolicited"].iter().all(|part| in_use(lab, part) == 0) && waiting(lab) == 0);
}

fn write_of(lba: u64, bytes: usize, fill: u8) -> Command {
    Command::write_16(lba, vec![fill; bytes], BLOCK)
}

/// Runs a command until it is not answered with BUSY or TASK SET FULL; also returns how many times it was.
fn run_patiently(session: &mut Session, command: &Command) -> (conform::Outcome, u32) {
    let mut refused = 0;
    loop {
        let outcome = session.run(command).unwrap();
        match outcome.status {
            0x08 | 0x28 => {
                assert_eq!(outcome.sense_code(), None, "no sense goes with it");
                refused += 1;
                std::thread::yield_now();
            }
            _ => return (outcome, refused),
        }
    }
}

// covers: SNS-06
#[test]
fn many_sessions_share_little_memory_and_each_reads_what_it_wrote() {
    const SESSIONS: u64 = 16;
    const BYTES: usize = MIB;
    // Half of it is for commands that have started: three of these at a time.
    let lab = Lab::start(with_memory(6, 2));
    let over = AtomicBool::new(false);
    let peak = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut peak = [0; 3];
            while !over.load(Ordering::Relaxed) {
                for (peak, part) in peak.iter_mut().zip(["commands", "unsolicited", "retained"]) {
                    *peak = (*peak).max(in_use(&lab, part));
                }
            }
            peak
        });
        let workers: Vec<_> = (0..SESSIONS)
            .map(|id| {
                let lab = &lab;
                scope.spawn(move || {
                    let script = lab.script(&format!("h{id}")).key("ErrorRecoveryLevel", "2");
                    let mut session = lab.login(&script);
                    session.clear_unit_attentions().unwrap();
                    for round in 0..6u64 {
                        let data: Vec<u8> =
                            (0..BYTES).map(|i| (i as u64 * 7 + id * 31 + round) as u8).collect();
                        let lba = id * (BYTES / 512) as u64;
                        let first = [Unsolicited::No, Unsolicited::Immediate(4096)][round as usize % 2];
                        let write = Command::write_16(lba, data.clone(), BLOCK).unsolicited(first);
                        assert!(run_patiently(&mut session, &write).0.is_good());
                        let read = Command::read_16(lba, (BYTES / 512) as u32, BLOCK);
                        assert!(session.run_good(&read).unwrap().data == data, "session {id} round {round}");
                    }
                    session.log_out().unwrap();
                })
            })
            .collect();
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        over.store(true, Ordering::Relaxed);
        let peak = watcher.join().unwrap();
        results.into_iter().for_each(|result| result.unwrap());
        peak
    });
    let limit = metric(&lab, "intact_data_memory_limit_bytes");
    assert_eq!(limit, 6 << 20);
    // Memory that moves from one shard to another during the count is counted at most twice.
    assert!(peak[0] > limit / 4 && peak[0] <= limit, "{peak:?}");
    assert!(peak[1] <= limit / 4 && peak[2] <= limit / 4, "{peak:?}");
    until_all_is_back(&lab);
    assert_eq!(in_use(&lab, "retained"), 0);
}

/// The longest write of [`scarce`], bytes.
const LONGEST: usize = MIB / 2;

/// Just enough memory for two of the longest writes, and half as much for unsolicited data.
fn scarce() -> Config {
    with_memory(2, 1)
}

/// A session with a write that holds memory and makes no progress.
struct Hog {
    session: Session,
    sent: Sent,
    r2t: iscsi_core::wire::R2t,
}

impl Hog {
    fn begin(lab: &Lab, lba: u64) -> Self {
        let mut session = lab.session("hog");
        let sent = session.start(&write_of(lba, LONGEST, 1)).unwrap();
        let r2t = session.expect_r2t(&sent).unwrap();
        Self { session, sent, r2t }
    }

    /// Two of them hold all the memory.
    fn pair(lab: &Lab) -> [Self; 2] {
        let pair = [Self::begin(lab, 16384), Self::begin(lab, 20480)];
        assert_eq!(in_use(lab, "commands"), MIB as u64);
        pair
    }

    fn end(mut self) {
        self.session.serve(&self.sent, &self.r2t).unwrap();
        assert!(self.session.finish(&self.sent).unwrap().is_good());
    }
}

#[test]
fn who_waits_is_served_in_turn_when_memory_comes_back() {
    let lab = Lab::start(scarce());
    let mut sessions: Vec<Session> = (0..3).map(|n| lab.session(&format!("h{n}"))).collect();
    let hogs = Hog::pair(&lab);
    // Two writes each, none of which may start; commands without data continue.
    let mut waits: Vec<[Sent; 2]> = Vec::new();
    for (n, session) in sessions.iter_mut().enumerate() {
        let lba = (n * 2048) as u64;
        waits.push([10, 20].map(|fill| session.start(&write_of(lba, LONGEST, n as u8 + fill)).unwrap()));
        session.ping().unwrap();
        assert!(test_unit_ready(session).is_good());
    }
    assert_eq!(waiting(&lab), 6);
    assert_eq!(in_use(&lab, "commands"), MIB as u64, "no R2T goes out without memory for its answer");
    hogs.into_iter().for_each(Hog::end);
    // Round robin: the first write of each session starts before the second one of any.
    let first = [0, 1].map(|n| sessions[n].expect_r2t(&waits[n][0]).unwrap());
    sessions[0].serve(&waits[0][0], &first[0]).unwrap();
    assert!(sessions[0].finish(&waits[0][0]).unwrap().is_good());
    let last = sessions[2].expect_r2t(&waits[2][0]).unwrap();
    for (n, r2t) in [(1, &first[1]), (2, &last)] {
        sessions[n].serve(&waits[n][0], r2t).unwrap();
        assert!(sessions[n].finish(&waits[n][0]).unwrap().is_good());
    }
    for (n, session) in sessions.iter_mut().enumerate() {
        assert!(session.finish(&waits[n][1]).unwrap().is_good());
    }
    for (n, session) in sessions.iter_mut().enumerate() {
        assert_eq!(byte_at(session, (n * 2048) as u64), n as u8 + 20, "in order");
    }
    until_all_is_back(&lab);
}

#[test]
fn whoever_gives_up_or_goes_away_gives_its_memory_back() {
    type Way = fn(Session, &Sent) -> Option<Session>;
    let ways: [(&str, Way); 4] = [
        ("abort", |mut session, sent| {
            session.abort(sent.itt, sent.cmd_sn).unwrap();
            Some(session)
        }),
        ("abort task set", |mut session, _| {
            assert_eq!(manage(&mut session, TmfFunction::AbortTaskSet), TmfResponse::FunctionComplete);
            Some(session)
        }),
        ("logout", |session, _| session.log_out().map(|()| None).unwrap()),
        ("loss", |_, _| None),
    ];
    for (name, way) in ways {
        let lab = Lab::start(scarce());
        let (mut leaving, mut staying) = (lab.session("leaving"), lab.session("staying"));
        let [first, second] = Hog::pair(&lab);
        // One that waits and is aborted, and one that waits and stays.
        let given_up = leaving.start(&write_of(2048, LONGEST, 7)).unwrap();
        leaving.ping().unwrap();
        let kept = staying.start(&write_of(4096, LONGEST, 8)).unwrap();
        staying.ping().unwrap();
        assert_eq!(waiting(&lab), 2, "{name}");
        let _left = way(leaving, &given_up);
        until(|| waiting(&lab) == 1);
        let _first = way(first.session, &first.sent);
        assert!(staying.finish(&kept).unwrap().is_good(), "{name}");
        assert_eq!(byte_at(&mut staying, 4096), 8);
        assert_eq!(byte_at(&mut staying, 2048), 0);
        second.end();
        until_all_is_back(&lab);
    }
}

/// A write whose data never arrives holds memory while no other session needs it. Then it ends with BUSY, and its session
/// stays.
#[test]
fn a_write_whose_data_do_not_come_gives_way_when_others_wait() {
    let lab = Lab::start(scarce());
    let mut waiting_one = lab.session("waits");
    let [mut stalled, second] = Hog::pair(&lab);
    second.end();
    assert!(stalled.session.ping().is_ok(), "it is no trouble to anybody");
    let other = Hog::begin(&lab, 20480);
    let kept = waiting_one.start(&write_of(4096, LONGEST, 8)).unwrap();
    assert!(waiting_one.finish(&kept).unwrap().is_good());
    assert_eq!(byte_at(&mut waiting_one, 4096), 8);
    stalled.session.serve(&stalled.sent, &stalled.r2t).unwrap();
    assert_eq!(stalled.session.finish(&stalled.sent).unwrap().status, 0x08, "BUSY");
    assert_eq!(byte_at(&mut stalled.session, 16384), 0, "nothing of it was written");
    assert!(run_patiently(&mut stalled.session, &write_of(16384, LONGEST, 3)).0.is_good());
    drop(other);
    until_all_is_back(&lab);
}

/// Each session has a small reserve: whatever others do with the rest, short commands can run.
#[test]
fn short_commands_wait_for_nobody() {
    let mut config = scarce();
    // 64 KiB for each.
    config.limits.max_sessions = 4;
    let lab = Lab::start(config);
    let mut session = lab.session("small");
    let _hogs = Hog::pair(&lab);
    let long = session.start(&write_of(4096, LONGEST, 8)).unwrap();
    session.ping().unwrap();
    assert_eq!(waiting(&lab), 1);
    for n in 0..100 {
        session.run_good(&write_of(8192, 4096, n)).unwrap();
        assert_eq!(byte_at(&mut session, 8192), n);
        if waiting(&lab) == 0 {
            break;
        }
    }
    assert!(session.finish(&long).unwrap().is_good());
}

/// The reserves that short commands use are counted, and count no more when these have ended.
#[test]
fn what_short_commands_take_of_the_reserves_is_counted() {
    let mut config = scarce();
    config.limits.max_sessions = 4;
    let lab = Lab::start(config);
    let mut session = lab.session("small");
    let hogs = Hog::pair(&lab);
    let write = write_of(8192, 4096, 1);
    let sent = session.start(&write).unwrap();
    let r2t = session.expect_r2t(&sent).unwrap();
    assert_eq!(in_use(&lab, "short_commands"), 4096);
    session.serve(&sent, &r2t).unwrap();
    assert!(session.finish(&sent).unwrap().is_good());
    until(|| in_use(&lab, "short_commands") == 0);
    hogs.into_iter().for_each(Hog::end);
    until_all_is_back(&lab);
}

/// The status comes from the session, and the unit attention from the logical unit.
// covers: UA-04
#[test]
fn ua_04_a_command_without_memory_leaves_a_unit_attention_behind() {
    let lab = Lab::start(scarce());
    let mut sessions: Vec<Session> = (0..2).map(|n| lab.session(&format!("h{n}"))).collect();
    let hogs = Hog::pair(&lab);
    set_interlock(&mut sessions[0], 3);
    let request_sense = Command::read([3, 0, 0, 0, 18, 0], 18);
    assert_eq!(sessions[1].run_good(&request_sense).unwrap().data[2], 6, "the mode parameters have changed");
    assert!(test_unit_ready(&mut sessions[1]).is_good());
    let write = |lba: u64| {
        Command::write_16(lba, vec![5; 64 << 10], BLOCK).unsolicited(Unsolicited::Immediate(64 << 10))
    };
    let waits: Vec<Sent> = (0..8).map(|n| sessions[0].start(&write(4096 + n * 128)).unwrap()).collect();
    sessions[0].ping().unwrap();
    for (session, status, attention) in [(0, 0x28, (6, 0x2c, 8)), (1, 0x08, (6, 0x2c, 7))] {
        assert_eq!(sessions[session].run(&write(8192)).unwrap().status, status);
        assert_eq!(test_unit_ready(&mut sessions[session]).sense_code(), Some(attention));
    }
    hogs.into_iter().for_each(Hog::end);
    // Only REQUEST SENSE clears it: the commands that waited end with it too.
    for sent in &waits {
        assert_eq!(sessions[0].finish(sent).unwrap().sense_code(), Some((6, 0x2c, 8)));
    }
    for session in &mut sessions {
        session.run_good(&request_sense).unwrap();
        assert!(test_unit_ready(session).is_good());
    }
}

// covers: SNS-06
#[test]
fn sns_06_data_that_nobody_asked_for_is_not_kept_without_memory_for_it() {
    let lab = Lab::start(scarce());
    let mut sessions: Vec<Session> = (0..2).map(|n| lab.session(&format!("h{n}"))).collect();
    let hogs = Hog::pair(&lab);
    // A quarter of the memory is for data of commands that cannot start: 512 KiB in pieces of 64.
    let write = |lba: u64| {
        Command::write_16(lba, vec![5; 64 << 10], BLOCK).unsolicited(Unsolicited::Immediate(64 << 10))
    };
    let waits: Vec<Sent> = (0..8).map(|n| sessions[0].start(&write(4096 + n * 128)).unwrap()).collect();
    sessions[0].ping().unwrap();
    assert_eq!((in_use(&lab, "unsolicited"), waiting(&lab)), (512 << 10, 8));
    assert_eq!(
        sessions[0].run(&write(8192)).unwrap().status,
        0x28,
        "others of the session are there: TASK SET FULL"
    );
    assert_eq!(sessions[1].run(&write(8192)).unwrap().status, 0x08, "BUSY");
    assert_eq!(in_use(&lab, "unsolicited"), 512 << 10);
    hogs.into_iter().for_each(Hog::end);
    for sent in &waits {
        assert!(sessions[0].finish(sent).unwrap().is_good());
    }
    assert_eq!(byte_at(&mut sessions[1], 8192), 0, "what was refused has written nothing");
    assert!(run_patiently(&mut sessions[1], &write(8192)).0.is_good());
    assert_eq!(byte_at(&mut sessions[0], 8192), 5);
    until_all_is_back(&lab);
}

/// Commands that arrive together are received as a batch, but only while their data leaves room for the next one.
#[test]
fn writes_that_come_together_are_not_in_the_way_of_each_other() {
    const BYTES: usize = 2048;
    let mut config = config();
    // A quarter is for unsolicited data: two first bursts, or four of these writes.
    config.limits.buffer_bytes_max = 32 << 10;
    config.limits.shards = 1;
    let lab = Lab::start(config);
    let mut session = lab.login(&lab.script("h").key("FirstBurstLength", "4096"));
    session.clear_unit_attentions().unwrap();
    let (sent, frames): (Vec<Sent>, Vec<Frame>) = (0..6)
        .map(|n| {
            let write = write_of(n * 4, BYTES, 1 + n as u8).unsolicited(Unsolicited::Immediate(BYTES));
            session.command_frame(&write)
        })
        .unzip();
    session.peer.send_together(&frames).unwrap();
    for sent in &sent {
        assert!(session.finish(sent).unwrap().is_good());
    }
    for n in 0..6 {
        assert_eq!(byte_at(&mut session, n * 4 + 3), 1 + n as u8);
    }
    until_all_is_back(&lab);
}

#[test]
fn the_longest_transfer_is_what_the_memory_can_hold() {
    let lab = Lab::start(with_memory(16, 4));
    let mut session = lab.session("a");
    let page = session.run_good(&Command::read([0x12, 1, 0xb0, 0, 64, 0], 64)).unwrap().data;
    let blocks = u32::from_be_bytes(page[8..12].try_into().unwrap());
    assert_eq!(blocks as usize * 512, 4 * MIB);
    let data = vec![9; 4 * MIB];
    session.run_good(&Command::write_16(0, data.clone(), BLOCK)).unwrap();
    assert!(session.run_good(&Command::read_16(0, blocks, BLOCK)).unwrap().data == data);
    let longer = Command::write_16(0, vec![8; 4 * MIB + 512], BLOCK);
    assert_eq!(sense(&session.run(&longer).unwrap()), Some((5, 0x24, 0)));
    assert_eq!(sense(&session.run(&Command::read_16(0, blocks + 1, BLOCK)).unwrap()), Some((5, 0x24, 0)));
    assert_eq!(byte_at(&mut session, 0), 9);
    until_all_is_back(&lab);
}

// Workers hold the data of aborted commands: it counts until they release it.
#[test]
fn data_at_a_store_that_stands_still_counts_until_the_store_lets_go() {
    let (lab, gate) = Lab::gated(scarce());
    let (mut waits, hog) = (lab.session("waits"), Hog::begin(&lab, 4096));
    let Hog { session: mut stuck, sent, r2t } = Hog::begin(&lab, 0);
    gate.close(&[Op::Write]);
    stuck.serve(&sent, &r2t).unwrap();
    let rest = stuck.expect_r2t(&sent).unwrap();
    stuck.serve(&sent, &rest).unwrap();
    gate.wait_for_waiting(1);
    let request = stuck.tmf(TmfFunction::AbortTask, true);
    let request = TaskManagementRequest { referenced_task_tag: sent.itt, ref_cmd_sn: sent.cmd_sn, ..request };
    stuck.peer.send(&Frame::of(request)).unwrap();
    let write = waits.start(&write_of(8192, LONGEST, 2)).unwrap();
    waits.ping().unwrap();
    assert_eq!((in_use(&lab, "commands"), waiting(&lab)), (MIB as u64, 1));
    gate.open();
    stuck.next_for(request.itt).unwrap();
    assert!(waits.finish(&write).unwrap().is_good());
    hog.end();
    until_all_is_back(&lab);
}

/// However much is free, several commands of one session hold a quarter of it at most: a burst of one host does not make the next
/// host wait.
#[test]
fn a_session_leaves_three_quarters_of_the_memory_to_others() {
    const BYTES: usize = MIB / 4;
    // Half of it is for commands that have started: two of these for a session.
    let lab = Lab::start(with_memory(4, 1));
    let (mut greedy, mut other) = (lab.session("greedy"), lab.session("other"));
    let write = |n: u64| write_of(n * 1024, BYTES, n as u8 + 1);
    let sent: Vec<Sent> = (0..4).map(|n| greedy.start(&write(n)).unwrap()).collect();
    greedy.ping().unwrap();
    assert_eq!((in_use(&lab, "commands"), waiting(&lab)), (2 * BYTES as u64, 2));
    // One command alone may be longer than that.
    let long = other.start(&write_of(8192, MIB, 9)).unwrap();
    other.ping().unwrap();
    assert_eq!((in_use(&lab, "commands"), waiting(&lab)), ((2 * BYTES + MIB) as u64, 2));
    assert!(other.finish(&long).unwrap().is_good());
    for sent in &sent {
        assert!(greedy.finish(sent).unwrap().is_good());
    }
    for n in 0..4 {
        assert_eq!(byte_at(&mut other, n * 1024), n as u8 + 1);
    }
    until_all_is_back(&lab);
}

/// A shard on which nothing happens returns the memory that it has leased and does not use.
#[test]
fn memory_that_one_shard_does_not_use_goes_to_another_one_that_waits_for_it() {
    let (lab, gate) = Lab::gated(with_memory(2, 2));
    // Sessions go to the shards in turn.
    let [mut idle, mut busy, _third, mut waits] = ["a", "b", "c", "d"].map(|host| lab.session(host));
    assert_eq!(byte_at(&mut idle, 0), 0);
    until_all_is_back(&lab);
    gate.close(&[Op::Write]);
    let held = busy.start(&write_of(0, LONGEST, 1)).unwrap();
    for _ in 0..2 {
        let r2t = busy.expect_r2t(&held).unwrap();
        busy.serve(&held, &r2t).unwrap();
    }
    gate.wait_for_waiting(1);
    // Both writes need all the memory there is.
    let write = waits.start(&write_of(4096, LONGEST, 2)).unwrap();
    let r2t = waits.expect_r2t(&write).unwrap();
    assert_eq!(in_use(&lab, "commands"), MIB as u64);
    gate.open();
    waits.serve(&write, &r2t).unwrap();
    assert!(waits.finish(&write).unwrap().is_good());
    assert!(busy.finish(&held).unwrap().is_good());
    until_all_is_back(&lab);
}

#[test]
fn what_a_closed_connection_still_had_to_send_is_given_back_with_it() {
    let lab = Lab::start(with_memory(64, 1));
    let mut old = lab.session("a");
    let read = Command::read_16(0, 2048, BLOCK);
    let reads: Vec<Frame> = (0..30).map(|_| old.command_frame(&read).1).collect();
    old.peer.send_together(&reads).unwrap();
    // Its initiator accepts nothing: more data is queued than fits into the sockets.
    until(|| waiting(&lab) > 0 && in_use(&lab, "commands") > 0);
    // A newer login replaces the session; the old connection sends its last PDUs, and then it is gone.
    let again = LoginScript { tsih: Tsih(0), ..old.same_identity() };
    let mut newer = lab.login(&again);
    old.peer.reset();
    until_all_is_back(&lab);
    newer.ping().unwrap();
}

/// Reads wait until their initiator takes earlier data. Writes add nothing to what it has to take.
#[test]
fn writes_do_not_wait_for_data_that_their_initiator_does_not_take() {
    // There is memory for all of the reads: those that wait do so for their initiator.
    let lab = Lab::start(with_memory(1024, 1));
    let (mut slow, mut other) = (lab.session("slow"), lab.session("other"));
    let read = Command::read_16(0, 2048, BLOCK);
    let mut all: Vec<Frame> = (0..100).map(|_| slow.command_frame(&read).1).collect();
    all.push(slow.command_frame(&write(8192, 7)).1);
    slow.peer.send_together(&all).unwrap();
    until(|| waiting(&lab) > 0);
    assert!(in_use(&lab, "commands") < 128 * MIB as u64);
    until(|| byte_at(&mut other, 8192) == 7);
    assert!(waiting(&lab) > 0, "the reads before it");
}

#[test]
fn what_came_of_looking_before_sleeping_is_counted() {
    let mut config = config();
    config.limits.poll_time = std::time::Duration::from_millis(1);
    let lab = Lab::start(config);
    let mut session = lab.session("a");
    let looks = |result| metric(&lab, &format!("intact_event_loop_polls_total{{result=\"{result}\"}}"));
    // It is published within half a second of activity.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while looks("hit") + looks("miss") == 0 {
        session.run_good(&read(1)).unwrap();
        assert!(std::time::Instant::now() < deadline, "no look was counted");
    }
}
