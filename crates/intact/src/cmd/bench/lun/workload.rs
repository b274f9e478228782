//! The load itself: keeps a number of commands of one kind outstanding.

use std::time::Duration;

use bytes::Bytes;
use clap::ValueEnum;
use hdrhistogram::Histogram;
use initiator::{Completion, Submitter, Workload};

use super::course::Course;
use super::slots::{Slots, Unit, latencies, record};

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Read only.
    Read,
    /// Write only.
    Write,
    /// Both, in the proportion of --read-percent.
    Mix,
}

/// Where a command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Anywhere, evenly.
    Random,
    /// One after the other.
    Sequential,
}

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
    pub unit: Unit,
}

/// One session's share of the load.
pub struct Load {
    plan: Plan,
    random: u64,
    next_place: u64,
    /// Different bytes for each outstanding command.
    payload: Bytes,
    slots: Slots,
    pub course: Course,
    pub latency: Histogram<u64>,
    pub reads: u64,
    pub writes: u64,
}

impl Load {
    pub fn new(plan: Plan, number: u64) -> Self {
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
            random,
            next_place: plan.places / 64 * number % plan.places,
            payload,
            slots: Slots::new(plan.unit.clone(), plan.depth),
            course: Course::new(plan.warmup, plan.time),
            latency: latencies(),
            reads: 0,
            writes: 0,
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
        if reads {
            self.slots.read(slot, lba, self.plan.block_bytes, io);
        } else {
            let at = slot * self.plan.block_bytes;
            let data = self.payload.slice(at..at + self.plan.block_bytes);
            self.slots.write(slot, lba, data, false, io);
        }
    }
}

impl Workload for Load {
    fn start(&mut self, io: &mut Submitter<'_>) {
        match self.course.start(io.now()) {
            true => (0..self.plan.depth).for_each(|slot| self.submit(slot, io)),
            false => self.slots.resubmitted(),
        }
    }

    fn data_in(&mut self, user: u64, offset: u32, data: Bytes) {
        self.slots.data_in(user, offset, data);
    }

    fn completed(&mut self, completion: Completion, io: &mut Submitter<'_>) {
        match self.slots.ended(&completion, io) {
            Ok(took) if self.course.is_measuring() => {
                record(&mut self.latency, took);
                *(if completion.command.read_length > 0 { &mut self.reads } else { &mut self.writes }) += 1;
            }
            Ok(_) => {}
            Err(what) => self.course.note_error(what),
        }
        if !self.course.is_done() {
            self.submit(completion.command.user as usize, io);
        }
    }

    fn deadline(&self) -> Option<Duration> {
        self.course.deadline()
    }

    fn tick(&mut self, io: &mut Submitter<'_>) {
        self.course.tick(io.now());
    }

    fn is_done(&self) -> bool {
        self.course.is_done()
    }

    fn lost(&mut self, why: &str) {
        self.course.lost(why);
    }
}

/// xorshift64*.
fn draw(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}
