//! The load itself: keeps a number of commands under way, and notes when each began.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use engine::SlabRing;
use hdrhistogram::Histogram;
use initiator::{
    Arrival, Command, Completion, Ending, Protection, Submitter, Workload, WriteData, cdb, write_slabs,
};
use iscsi_core::wire::Lun;
use rustix::time::{ClockId, clock_gettime};

use super::{Direction, Pattern};

/// Longest latency that is told apart from longer ones, nanoseconds.
const MAX_LATENCY_NS: u64 = 60_000_000_000;
/// Commands that may fail before the run is given up.
const MAX_ERRORS: u64 = 1000;

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    pub block_bytes: usize,
    pub sectors_per_block: u32,
    /// Blocks of `block_bytes` there are.
    pub places: u64,
    pub depth: usize,
    pub read_percent: u8,
    pub direction: Direction,
    pub pattern: Pattern,
    pub warmup: Duration,
    pub time: Duration,
    pub timeout: Duration,
    /// Tuples are made of every block that is written and checked of every one that is read, here.
    pub protection: Option<Protection>,
    /// Write data are digested while they get their tuples.
    pub digest: bool,
}

/// One session's share of the load.
pub struct Load {
    plan: Plan,
    lun: Lun,
    random: u64,
    next_place: u64,
    /// Different bytes for each command under way.
    payload: Bytes,
    began: Vec<Duration>,
    /// Bytes from the start of each read up to the first that is missing.
    received: Vec<usize>,
    /// What has arrived behind that, by offset.
    early: Vec<BTreeMap<usize, Bytes>>,
    /// The blocks that each command reads, checked as they arrive; none where they have no tuples.
    arrivals: Vec<Arrival>,
    /// What was wrong with them.
    damage: Vec<Option<String>>,
    lbas: Vec<u64>,
    slabs: SlabRing,
    phase: Phase,
    /// Times of this session's clock.
    measure_from: Duration,
    end: Duration,
    pub latency: Histogram<u64>,
    pub reads: u64,
    pub writes: u64,
    pub errors: u64,
    pub first_error: Option<String>,
    /// Measured time.
    pub elapsed: Duration,
    /// CPU time of the process in the measured time.
    pub cpu: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Warmup,
    Measuring,
    Done,
}

impl Load {
    pub fn new(plan: Plan, lun: Lun, number: u64) -> Self {
        let mut random = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(number + 1);
        let payload = match plan.direction {
            Direction::Read => Bytes::new(),
            _ => {
                let mut bytes = vec![0; plan.block_bytes * plan.depth];
                bytes
                    .chunks_mut(8)
                    .for_each(|chunk| chunk.copy_from_slice(&draw(&mut random).to_le_bytes()[..chunk.len()]));
                Bytes::from(bytes)
            }
        };
        Self {
            lun,
            random,
            next_place: plan.places / 64 * number % plan.places,
            payload,
            began: vec![Duration::ZERO; plan.depth],
            received: vec![0; plan.depth],
            early: vec![BTreeMap::new(); plan.depth],
            arrivals: plan.protection.iter().flat_map(|p| (0..plan.depth).map(|_| p.arrival(0))).collect(),
            damage: vec![None; plan.depth],
            lbas: vec![0; plan.depth],
            slabs: write_slabs(),
            phase: Phase::Idle,
            measure_from: Duration::MAX,
            end: Duration::MAX,
            latency: Histogram::new_with_bounds(1, MAX_LATENCY_NS, 3).expect("the bounds make sense"),
            reads: 0,
            writes: 0,
            errors: 0,
            first_error: None,
            elapsed: Duration::ZERO,
            cpu: Duration::ZERO,
            plan,
        }
    }

    fn submit(&mut self, slot: usize, io: &mut Submitter<'_>) {
        let place = match self.plan.pattern {
            Pattern::Random => {
                ((u128::from(draw(&mut self.random)) * u128::from(self.plan.places)) >> 64) as u64
            }
            Pattern::Sequential => {
                let place = self.next_place;
                self.next_place = (place + 1) % self.plan.places;
                place
            }
        };
        let lba = place * u64::from(self.plan.sectors_per_block);
        let reads = match self.plan.direction {
            Direction::Read => true,
            Direction::Write => false,
            Direction::Mix => draw(&mut self.random) % 100 < self.plan.read_percent.into(),
        };
        let sectors = self.plan.sectors_per_block;
        let mut command = match (&self.plan.protection, reads) {
            (None, true) => {
                let mut command = Command::new(self.lun, &cdb::read(lba, sectors));
                command.read_length = self.plan.block_bytes as u32;
                command
            }
            (None, false) => {
                let mut command = Command::new(self.lun, &cdb::write(lba, sectors));
                command.write = WriteData::from(self.payload(slot));
                command
            }
            (Some(protection), true) => {
                let mut command = Command::new(self.lun, &protection.read_cdb(lba, sectors));
                command.read_length = protection.wire_bytes(sectors as usize) as u32;
                command
            }
            (Some(protection), false) => {
                let mut command = Command::new(self.lun, &protection.write_cdb(lba, sectors));
                let (data, slabs) = (self.payload(slot), self.slabs.clone());
                command.write = protection.write_bytes(lba, data, slabs, self.plan.digest);
                command
            }
        };
        self.lbas[slot] = lba;
        command.user = slot as u64;
        command.timeout = self.plan.timeout;
        self.began[slot] = io.now();
        self.received[slot] = 0;
        self.early[slot].clear();
        // A session that is ending takes nothing; its successor starts anew.
        let _ = io.submit(command);
    }

    fn payload(&self, slot: usize) -> Bytes {
        let at = slot * self.plan.block_bytes;
        self.payload.slice(at..at + self.plan.block_bytes)
    }

    /// Whether all that was asked for has arrived, and failed no check.
    fn take(&mut self, slot: usize) -> Result<(), String> {
        let (arrived, sectors) = (self.received[slot], self.plan.sectors_per_block as usize);
        let wanted = self.plan.protection.as_ref().map_or(self.plan.block_bytes, |p| p.wire_bytes(sectors));
        if arrived != wanted {
            return Err(format!("{arrived} bytes arrived where {wanted} were asked for"));
        }
        self.damage[slot].take().map_or(Ok(()), Err)
    }

    /// Takes the next bytes of a read, and checks them where they have tuples.
    fn arrived(&mut self, slot: usize, data: &[u8]) {
        self.received[slot] += data.len();
        if let Some(arrival) = self.arrivals.get_mut(slot)
            && self.damage[slot].is_none()
            && let Err(failure) = arrival.take(data)
        {
            self.damage[slot] = Some(failure.to_string());
        }
    }

    fn note_error(&mut self, what: String) {
        self.errors += 1;
        self.first_error.get_or_insert(what);
        if self.errors >= MAX_ERRORS {
            self.phase = Phase::Done;
        }
    }
}

impl Workload for Load {
    fn start(&mut self, io: &mut Submitter<'_>) {
        if self.phase == Phase::Idle {
            self.phase = Phase::Warmup;
            self.measure_from = io.now() + self.plan.warmup;
            (0..self.plan.depth).for_each(|slot| self.submit(slot, io));
        } else {
            // The session was lost and has resubmitted the commands: their data comes again.
            self.received.fill(0);
            self.early.iter_mut().for_each(BTreeMap::clear);
        }
    }

    fn data_in(&mut self, user: u64, offset: u32, data: Bytes) {
        let slot = user as usize;
        // What came before the command was begun anew counts no more.
        if offset == 0 {
            if self.received[slot] > 0 {
                self.early[slot].clear();
            }
            self.received[slot] = 0;
            self.damage[slot] = None;
            if let Some(arrival) = self.arrivals.get_mut(slot) {
                arrival.restart(self.lbas[slot]);
            }
        }
        if offset as usize != self.received[slot] {
            self.early[slot].insert(offset as usize, data);
            return;
        }
        self.arrived(slot, &data);
        while let Some(next) = self.early[slot].remove(&self.received[slot]) {
            self.arrived(slot, &next);
        }
    }

    fn completed(&mut self, completion: Completion, io: &mut Submitter<'_>) {
        let slot = completion.command.user as usize;
        let reads = completion.command.read_length > 0;
        let done = match &completion.ending {
            Ending::Status { status: 0, .. } if reads => self.take(slot),
            Ending::Status { status: 0, .. } => Ok(()),
            other => Err(format!("{other:?}")),
        };
        match done {
            Ok(()) => {
                if self.phase == Phase::Measuring {
                    let took = io.now().saturating_sub(self.began[slot]);
                    self.latency.saturating_record((took.as_nanos() as u64).max(1));
                    *(if reads { &mut self.reads } else { &mut self.writes }) += 1;
                }
            }
            Err(what) => self.note_error(what),
        }
        if self.phase != Phase::Done {
            self.submit(slot, io);
        }
    }

    fn deadline(&self) -> Option<Duration> {
        match self.phase {
            Phase::Warmup => Some(self.measure_from),
            Phase::Measuring => Some(self.end),
            Phase::Idle | Phase::Done => None,
        }
    }

    fn tick(&mut self, io: &mut Submitter<'_>) {
        match self.phase {
            Phase::Warmup => {
                self.phase = Phase::Measuring;
                self.measure_from = io.now();
                self.end = io.now() + self.plan.time;
                self.cpu = cpu_time();
            }
            Phase::Measuring => {
                self.phase = Phase::Done;
                self.elapsed = io.now().saturating_sub(self.measure_from);
                self.cpu = cpu_time().saturating_sub(self.cpu);
            }
            Phase::Idle | Phase::Done => {}
        }
    }

    fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    fn lost(&mut self, why: &str) {
        self.note_error(why.to_owned());
        self.phase = Phase::Done;
    }
}

/// CPU time of this process, all threads.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// xorshift64*.
fn draw(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}
