//! The work of an initiator in a run: reads that are verified, writes, flushes, and COMPARE AND WRITE of blocks that it shares with the
//! other initiators. It runs inside the real event loop, as a [`Workload`].
//!
//! It repeats what a driver would repeat (unit attentions, busy targets, transient medium errors). So after the faults every operation
//! succeeds, even those aborted by a task management function of this or another initiator. Like a file system, it never has two writes to
//! one of its own blocks outstanding at the same time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use initiator::{Command, Completion, Ending, LostBlocks, Submitter, Workload, cdb};
use iscsi_core::Time;
use iscsi_core::initiator::session::ManagementAnswer;
use iscsi_wire::{Lun, TmfFunction, TmfResponse};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::oracle::{Before, Oracle, Stamp, Version, fill};
use crate::store::BLOCK_BYTES;

const GOOD: u8 = 0;
const CHECK_CONDITION: u8 = 2;
const UNIT_ATTENTION: u8 = 6;
const MISCOMPARE: u8 = 0xe;
/// FUA, in byte 1 of READ and WRITE.
const FUA: u8 = 0x08;
/// Attempts per operation.
const MAX_TRIES: u32 = 20;

/// Operations of a kind per hundred; the rest are reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mix {
    /// Writes.
    pub writes: u8,
    /// Flushes.
    pub flushes: u8,
    /// COMPARE AND WRITE.
    pub swaps: u8,
}

/// The configuration of a load.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// Number of the initiator, from 1.
    pub writer: u32,
    /// Blocks that only this initiator writes.
    pub own: std::ops::Range<u64>,
    /// Blocks that all initiators write, by COMPARE AND WRITE.
    pub shared: std::ops::Range<u64>,
    /// Operations to perform.
    pub operations: u32,
    /// Operations outstanding at a time.
    pub depth: usize,
    /// Most blocks per operation.
    pub max_blocks: u64,
    /// Each operation has exactly `max_blocks` blocks, aligned to a multiple of that number.
    pub exact: bool,
    /// Task management functions to request during the load.
    pub functions: u32,
    /// What the operations are.
    pub mix: Mix,
    /// Command timeout.
    pub timeout: Duration,
    /// Longest pause between two operations, nanoseconds; 0: none.
    pub pause_ns: u64,
    /// It wants reports of lost writes, and of a change of volume.
    pub watches: bool,
}

impl LoadPlan {
    /// Verified reads of a fixed size, one at a time, by initiator `writer` in its own blocks.
    pub fn steady(writer: u32, own: std::ops::Range<u64>) -> Self {
        Self {
            writer,
            own,
            shared: 0..0,
            operations: 1000,
            depth: 1,
            max_blocks: 8,
            exact: true,
            functions: 0,
            mix: Mix::default(),
            timeout: Duration::from_secs(600),
            pause_ns: 0,
            watches: false,
        }
    }
}

/// How a load is measured.
#[derive(Clone, Copy, Debug)]
pub struct Measuring {
    /// No operation begins after this time.
    pub until: Time,
    /// [`Progress::trace`] gets an entry each time so many bytes were transferred.
    pub trace_bytes: u64,
}

/// The progress of a load, visible outside the event loop.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Operations that succeeded.
    pub done: u64,
    /// Operations that were given up.
    pub failed: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Bytes at different times; see [`Measuring`].
    pub trace: Vec<(Time, u64)>,
    /// Why the session was given up, if it was.
    pub lost: Option<String>,
    /// All operations are done.
    pub finished: bool,
    /// When the last operation ended.
    pub last: Time,
    /// The target has answered a command, so its logical unit's identity is known.
    pub answered: bool,
    /// Operations outstanding or waiting to be repeated.
    pub outstanding: usize,
}

#[derive(Clone, Debug)]
enum Kind {
    Read {
        lba: u64,
        blocks: u64,
    },
    Write {
        lba: u64,
        versions: Vec<Version>,
        through: bool,
    },
    Flush,
    /// `seen`: the epoch in which `old` was read or written.
    Swap {
        lba: u64,
        old: Stamp,
        new: Stamp,
        seen: u32,
    },
}

struct Operation {
    kind: Kind,
    before: Before,
    tries: u32,
    buffer: Vec<u8>,
}

/// See the module.
pub struct Load {
    plan: LoadPlan,
    oracle: Oracle,
    rng: Rng,
    progress: Arc<Mutex<Progress>>,
    under_way: FxHashMap<u64, Operation>,
    writing: FxHashSet<u64>,
    again: Vec<(Time, Operation)>,
    next_user: u64,
    left: u32,
    /// The earliest time for the next operation.
    not_before: Time,
    /// Functions still to request; then those outstanding, with the operation that each concerns.
    functions_left: u32,
    managing: FxHashMap<u64, (TmfFunction, Option<u64>)>,
    measuring: Option<Measuring>,
    resubmits: bool,
    deaf: bool,
    /// The last stamp read of each shared block, and its epoch.
    seen: FxHashMap<u64, (Stamp, u32)>,
}

impl Load {
    /// A load, and the progress that it reports.
    pub fn new(plan: LoadPlan, oracle: Oracle, rng: Rng) -> (Self, Arc<Mutex<Progress>>) {
        let progress = Arc::new(Mutex::new(Progress::default()));
        let load = Self {
            left: plan.operations,
            functions_left: plan.functions,
            managing: FxHashMap::default(),
            measuring: None,
            resubmits: false,
            deaf: false,
            plan,
            oracle,
            rng,
            progress: Arc::clone(&progress),
            under_way: FxHashMap::default(),
            writing: FxHashSet::default(),
            again: Vec::new(),
            next_user: 0,
            not_before: Time::ZERO,
            seen: FxHashMap::default(),
        };
        (load, progress)
    }

    /// The same load, measured.
    pub fn measured(self, measuring: Option<Measuring>) -> Self {
        Self { measuring, ..self }
    }

    /// Simulates an initiator that repeats a non-idempotent command, to check that the oracle notices.
    pub fn resubmitting(self) -> Self {
        Self { resubmits: true, ..self }
    }

    /// Simulates an initiator that does not report lost writes.
    pub fn deaf(self) -> Self {
        Self { deaf: true, ..self }
    }

    /// Starts as many operations as allowed.
    fn submit_more(&mut self, io: &mut Submitter<'_>) {
        let now = io.now();
        if self.measuring.is_some_and(|measuring| now >= measuring.until) {
            self.left = 0;
        }
        let mut at = 0;
        while at < self.again.len() {
            if self.again[at].0 <= now {
                let (_, operation) = self.again.swap_remove(at);
                if !self.submit(operation, io) {
                    break;
                }
            } else {
                at += 1;
            }
        }
        while self.left > 0
            && self.under_way.len() + self.again.len() < self.plan.depth
            && self.not_before <= now
        {
            let Some(kind) = self.choose() else { break };
            self.left -= 1;
            if self.plan.pause_ns > 0 && self.rng.u8(..) < 64 {
                self.not_before = now + Duration::from_nanos(self.rng.u64(0..=self.plan.pause_ns));
            }
            let before = self.oracle.before(0..0);
            let operation = Operation { kind, before, tries: 0, buffer: Vec::new() };
            if !self.submit(operation, io) {
                break;
            }
            if self.functions_left > 0 && self.rng.u32(0..=self.left) < self.functions_left {
                self.functions_left -= 1;
                self.ask(io);
            }
        }
        let mut progress = self.progress.lock();
        progress.outstanding = self.under_way.len() + self.again.len();
        progress.finished = self.left == 0 && progress.outstanding == 0 && self.managing.is_empty();
    }

    fn choose(&mut self) -> Option<Kind> {
        let dice = self.rng.u8(0..100);
        let Mix { writes, flushes, swaps } = self.plan.mix;
        let swaps = if self.plan.shared.is_empty() { 0 } else { swaps };
        if dice < writes {
            let (lba, blocks) = self.extent(true);
            let free = (lba..lba + blocks).take_while(|lba| !self.writing.contains(lba)).count() as u64;
            if free == 0 {
                return Some(Kind::Read { lba, blocks });
            }
            self.writing.extend(lba..lba + free);
            let versions = (lba..lba + free).map(|lba| self.oracle.begin_write(lba)).collect();
            return Some(Kind::Write { lba, versions, through: self.rng.u8(..) < 32 });
        }
        if dice < writes + flushes {
            return Some(Kind::Flush);
        }
        if dice < writes + flushes + swaps {
            let lba = self.rng.u64(self.plan.shared.clone());
            let epoch = self.oracle.epoch();
            let seen = self.seen.get(&lba).filter(|(_, then)| *then == epoch);
            let Some((old, _)) = seen.copied() else { return Some(Kind::Read { lba, blocks: 1 }) };
            let new = Stamp { writer: self.plan.writer, version: old.version + 1 };
            self.oracle.begin_swap(lba, new);
            return Some(Kind::Swap { lba, old, new, seen: epoch });
        }
        let (lba, blocks) = self.extent(false);
        Some(Kind::Read { lba, blocks })
    }

    /// Requests a function: most often for one outstanding command, or for all commands of the logical unit.
    fn ask(&mut self, io: &mut Submitter<'_>) {
        use TmfFunction::*;
        let function = match self.rng.u8(0..100) {
            0..45 => AbortTask,
            45..55 => AbortTaskSet,
            55..65 => ClearTaskSet,
            65..78 => LogicalUnitReset,
            78..84 => QueryTask,
            84..88 => QueryTaskSet,
            88..92 => QueryAsyncEvent,
            92..96 => ITNexusReset,
            _ => TargetWarmReset,
        };
        let of = matches!(function, AbortTask | QueryTask).then(|| {
            let mut all: Vec<u64> = self.under_way.keys().copied().collect();
            all.sort_unstable();
            self.rng.choice(&all).copied()
        });
        let user = self.next_user;
        self.next_user += 1;
        match of {
            Some(None) => return,
            Some(Some(of)) => io.manage_task(function, of, user),
            None => io.manage(function, Lun(0), user),
        }
        self.managing.insert(user, (function, of.flatten()));
    }

    fn extent(&mut self, own: bool) -> (u64, u64) {
        let shared = !own && !self.plan.shared.is_empty() && self.rng.u8(..) < 16;
        let range = if shared { self.plan.shared.clone() } else { self.plan.own.clone() };
        if self.plan.exact {
            let blocks = self.plan.max_blocks;
            let slots = (range.end - range.start) / blocks;
            return (range.start + self.rng.u64(0..slots.max(1)) * blocks, blocks);
        }
        let lba = self.rng.u64(range.clone());
        let most = (range.end - lba).min(self.plan.max_blocks);
        // Short operations are the most common, but every length occurs.
        let most = if self.rng.bool() { most.min(8) } else { most };
        (lba, self.rng.u64(1..=most))
    }

    /// Returns false if the session accepts no command now.
    fn submit(&mut self, mut operation: Operation, io: &mut Submitter<'_>) -> bool {
        let user = self.next_user;
        self.next_user += 1;
        let mut command = Command::new(Lun(0), &[]);
        command.user = user;
        command.timeout = self.plan.timeout;
        operation.tries += 1;
        match &operation.kind {
            Kind::Read { lba, blocks } => {
                command.cdb = cdb::read(*lba, *blocks as u32);
                command.read_length = (*blocks as usize * BLOCK_BYTES) as u32;
                operation.before = self.oracle.before(*lba..*lba + *blocks);
                operation.buffer = vec![0xee; command.read_length as usize];
            }
            Kind::Write { lba, versions, through } => {
                command.cdb = cdb::write(*lba, versions.len() as u32);
                if *through {
                    command.cdb[1] |= FUA;
                }
                operation.before = self.oracle.before(*lba..*lba);
                let mut data = vec![0; versions.len() * BLOCK_BYTES];
                for ((lba, block), version) in (*lba..).zip(data.chunks_exact_mut(BLOCK_BYTES)).zip(versions)
                {
                    fill(lba, Stamp { writer: self.plan.writer, version: *version }, block);
                }
                command.write = Bytes::from(data).into();
            }
            Kind::Flush => {
                command.cdb = cdb::synchronize_cache();
                operation.before = self.oracle.begin_flush();
            }
            Kind::Swap { lba, old, new, .. } => {
                command.cdb = cdb::compare_and_write(*lba, 1);
                operation.before = self.oracle.before(*lba..*lba + 1);
                let mut data = vec![0; 2 * BLOCK_BYTES];
                fill(*lba, *old, &mut data[..BLOCK_BYTES]);
                fill(*lba, *new, &mut data[BLOCK_BYTES..]);
                command.write = Bytes::from(data).into();
            }
        }
        match io.submit(command) {
            Ok(()) => {
                self.under_way.insert(user, operation);
                true
            }
            Err(_) => {
                self.again.push((io.now() + Duration::from_millis(1), operation));
                false
            }
        }
    }

    /// An operation succeeded.
    fn good(&mut self, operation: &Operation, data_in_bytes: u32) {
        let bytes = match &operation.kind {
            Kind::Read { lba, blocks } => {
                let expected = *blocks as usize * BLOCK_BYTES;
                if data_in_bytes as usize != expected {
                    self.oracle.broken(format!("a read of {expected} bytes ended well with {data_in_bytes}"));
                }
                let stamps = self.oracle.read(&operation.before, *lba, &operation.buffer);
                for (lba, stamp) in (*lba..).zip(stamps).filter(|(lba, _)| self.plan.shared.contains(lba)) {
                    self.seen.insert(lba, (stamp, operation.before.epoch()));
                }
                expected
            }
            Kind::Write { lba, versions, through } => {
                for (lba, version) in (*lba..).zip(versions) {
                    let stamp = Stamp { writer: self.plan.writer, version: *version };
                    self.oracle.written(&operation.before, lba, stamp, *through);
                }
                versions.len() * BLOCK_BYTES
            }
            Kind::Flush => {
                self.oracle.flushed(&operation.before, self.plan.writer);
                0
            }
            Kind::Swap { lba, new, .. } => {
                self.oracle.swapped(&operation.before, *lba, *new);
                self.seen.insert(*lba, (*new, operation.before.epoch()));
                BLOCK_BYTES
            }
        };
        self.over(operation);
        let mut progress = self.progress.lock();
        progress.done += 1;
        progress.bytes += bytes as u64;
        let traced = progress.trace.last().map_or(0, |(_, bytes)| *bytes);
        if self.measuring.is_some_and(|measuring| progress.bytes >= traced + measuring.trace_bytes) {
            let entry = (progress.last, progress.bytes);
            progress.trace.push(entry);
        }
    }

    fn over(&mut self, operation: &Operation) {
        if let Kind::Write { lba, versions, .. } = &operation.kind {
            for lba in *lba..*lba + versions.len() as u64 {
                self.writing.remove(&lba);
            }
        }
    }

    /// An operation failed: tries it again, unless it has been tried often enough.
    fn repeat(&mut self, operation: Operation, after: Duration, now: Time) {
        if operation.tries >= MAX_TRIES {
            self.over(&operation);
            self.progress.lock().failed += 1;
            return;
        }
        self.again.push((now + after, operation));
    }
}

/// The sense key, in either format (SPC-4 4.5).
fn sense_key(sense: &[u8]) -> u8 {
    match sense.first().map(|code| code & 0x7f) {
        Some(0x70 | 0x71) => sense.get(2).map_or(0, |byte| byte & 0xf),
        Some(0x72 | 0x73) => sense.get(1).map_or(0, |byte| byte & 0xf),
        _ => 0,
    }
}

impl Workload for Load {
    fn start(&mut self, io: &mut Submitter<'_>) {
        if self.plan.watches {
            io.watch(Lun(0));
        }
        self.submit_more(io);
    }

    fn lost_writes(&mut self, _: Lun, lost: &LostBlocks, _: &mut Submitter<'_>) {
        if !self.deaf {
            self.oracle.told(self.plan.writer, &lost.ranges(u64::MAX));
        }
    }

    fn managed(&mut self, user: u64, answer: Option<ManagementAnswer>, io: &mut Submitter<'_>) {
        use TmfResponse::{FunctionComplete, FunctionSucceeded, TaskDoesNotExist};
        let Some((function, of)) = self.managing.remove(&user) else {
            return self.oracle.broken("a function ended twice".to_owned());
        };
        match answer.map(|answer| answer.response) {
            None => {}
            Some(FunctionComplete) => {
                let aborted = of.filter(|_| function == TmfFunction::AbortTask);
                if aborted.is_some_and(|of| self.under_way.contains_key(&of)) {
                    self.oracle.broken("a command goes on although it was aborted".to_owned());
                }
            }
            Some(TaskDoesNotExist) if function == TmfFunction::AbortTask => {}
            Some(FunctionSucceeded) if function.is_level_2() => {}
            Some(other) => self.oracle.broken(format!("{function:?} is answered with {other:?}")),
        }
        self.submit_more(io);
    }

    fn data_in(&mut self, user: u64, offset: u32, data: Bytes) {
        let Some(operation) = self.under_way.get_mut(&user) else { return };
        match operation.buffer.get_mut(offset as usize..offset as usize + data.len()) {
            Some(place) => place.copy_from_slice(&data),
            None => self.oracle.broken(format!("data was delivered at {offset}, beyond what was asked for")),
        }
    }

    fn completed(&mut self, completion: Completion, io: &mut Submitter<'_>) {
        let now = io.now();
        let Some(mut operation) = self.under_way.remove(&completion.command.user) else {
            return self.oracle.broken("a command ended twice".to_owned());
        };
        {
            let mut progress = self.progress.lock();
            progress.last = now;
            progress.answered |= matches!(completion.ending, Ending::Status { .. });
        }
        let soon = Duration::from_millis(10);
        if self.resubmits && completion.ending == Ending::OutcomeUnknown {
            operation.tries -= 1;
        }
        match &completion.ending {
            Ending::Status { status: GOOD, data_in_bytes, .. } => self.good(&operation, *data_in_bytes),
            Ending::Status { status: CHECK_CONDITION, sense, .. } => {
                match (sense_key(sense), &operation.kind) {
                    (UNIT_ATTENTION, _) => self.repeat(operation, Duration::ZERO, now),
                    (MISCOMPARE, Kind::Swap { lba, new, seen, .. }) => {
                        // An initiator reports a command that may have been executed, and does not repeat it. So after one try the command
                        // was executed at most once, whatever was lost meanwhile.
                        self.oracle.miscompared(*seen, *lba, *new, operation.tries == 1);
                        self.seen.remove(lba);
                    }
                    (MISCOMPARE, _) => self.oracle.broken("MISCOMPARE without COMPARE AND WRITE".to_owned()),
                    _ => self.repeat(operation, soon * 20, now),
                }
            }
            // The right volume will be back, however long that takes.
            Ending::OtherVolume => {
                operation.tries -= 1;
                self.repeat(operation, soon * 50, now);
            }
            Ending::Unsendable(violation) => {
                self.oracle.broken(format!("a command cannot be sent: {violation}"))
            }
            _ => self.repeat(operation, soon, now),
        }
        self.submit_more(io);
    }

    fn deadline(&self) -> Option<Time> {
        let again = self.again.iter().map(|(at, _)| *at).min();
        let room = self.left > 0 && self.under_way.len() + self.again.len() < self.plan.depth;
        let next = room.then_some(self.not_before);
        again.into_iter().chain(next).min()
    }

    fn tick(&mut self, io: &mut Submitter<'_>) {
        self.submit_more(io);
    }

    fn is_done(&self) -> bool {
        self.left == 0 && self.under_way.is_empty() && self.again.is_empty()
    }

    fn lost(&mut self, why: &str) {
        self.progress.lock().lost = Some(why.to_owned());
    }
}
