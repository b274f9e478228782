//! The commands of a database with transactions: readers and writers of pages, one writer of the log, and checkpoints.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use hdrhistogram::Histogram;
use initiator::{Completion, Submitter, Workload};

use super::generator::{MAX_LOG_BYTES, Oltp, PAGE_BYTES};
use super::run::{Settings, Tally, payload};
use crate::cmd::bench::lun::course::Course;
use crate::cmd::bench::lun::slots::{Slots, latencies, record};

/// Outstanding writes of a checkpoint.
const CHECKPOINT_DEPTH: usize = 32;

/// See the head of the module. The slots: `depth` for pages, one for the log, the rest for checkpoints.
pub struct OltpLoad {
    generator: Oltp,
    depth: usize,
    sector_bytes: u64,
    payload: Bytes,
    slots: Slots,
    log_bytes: u64,
    checkpoints: Checkpoints,
    pub course: Course,
    pub log: Tally,
    pub data: Tally,
}

/// Bursts of writes of pages, each ended by a flush.
struct Checkpoints {
    every: Duration,
    next: Duration,
    /// Pages of the present burst that are not sent yet.
    pages: BTreeSet<u64>,
    under_way: usize,
    flushing: bool,
    began: Duration,
    late: u64,
    took: Histogram<u64>,
}

impl OltpLoad {
    pub fn new(settings: &Settings, generator: Oltp) -> Self {
        let depth = settings.depth;
        Self {
            generator,
            depth,
            sector_bytes: settings.sector_bytes,
            payload: payload(settings.seed),
            slots: Slots::new(settings.unit.clone(), depth + 1 + CHECKPOINT_DEPTH),
            log_bytes: 0,
            checkpoints: Checkpoints {
                every: settings.checkpoint,
                next: Duration::MAX,
                pages: BTreeSet::new(),
                under_way: 0,
                flushing: false,
                began: Duration::ZERO,
                late: 0,
                took: latencies(),
            },
            course: Course::new(settings.warmup, settings.time),
            log: Tally::default(),
            data: Tally::default(),
        }
    }

    /// How long the checkpoints took that ended in the measured time, and how many could not begin in time.
    pub fn checkpoints(&self) -> (&Histogram<u64>, u64) {
        (&self.checkpoints.took, self.checkpoints.late)
    }

    fn submit_page(&mut self, slot: usize, io: &mut Submitter<'_>) {
        let (at, reads) = self.generator.page();
        match reads {
            true => self.slots.read(slot, at / self.sector_bytes, PAGE_BYTES as usize, io),
            false => self.write(slot, at, PAGE_BYTES, false, io),
        }
    }

    fn submit_log(&mut self, io: &mut Submitter<'_>) {
        let range = self.generator.log();
        self.log_bytes = range.end - range.start;
        self.write(self.depth, range.start, self.log_bytes, true, io);
    }

    fn write(&mut self, slot: usize, at: u64, bytes: u64, fua: bool, io: &mut Submitter<'_>) {
        // Other bytes at every place; what is longer than the rest of the payload begins before its end.
        let from = (at % (self.payload.len() as u64 - MAX_LOG_BYTES)) as usize;
        let data = self.payload.slice(from..from + bytes as usize);
        self.slots.write(slot, at / self.sector_bytes, data, fua, io);
    }

    /// Begins the checkpoint that is due, unless the last one has not ended.
    fn checkpoint_if_due(&mut self, io: &mut Submitter<'_>) {
        let checkpoints = &mut self.checkpoints;
        if io.now() < checkpoints.next {
            return;
        }
        checkpoints.next += checkpoints.every;
        if checkpoints.under_way > 0 {
            checkpoints.late += 1;
            return;
        }
        checkpoints.began = io.now();
        checkpoints.pages = self.generator.checkpoint();
        (self.depth + 1..=self.depth + CHECKPOINT_DEPTH).for_each(|slot| self.continue_checkpoint(slot, io));
    }

    /// Sends the next page of the checkpoint; the flush when all are written.
    fn continue_checkpoint(&mut self, slot: usize, io: &mut Submitter<'_>) {
        let checkpoints = &mut self.checkpoints;
        if let Some(at) = checkpoints.pages.pop_first() {
            checkpoints.under_way += 1;
            self.write(slot, at, PAGE_BYTES, false, io);
        } else if checkpoints.under_way == 0 && !checkpoints.flushing {
            checkpoints.flushing = true;
            checkpoints.under_way = 1;
            self.slots.flush(slot, io);
        }
    }

    fn checkpoint_write_ended(&mut self, slot: usize, io: &mut Submitter<'_>) {
        let checkpoints = &mut self.checkpoints;
        checkpoints.under_way -= 1;
        if !checkpoints.flushing {
            return self.continue_checkpoint(slot, io);
        }
        checkpoints.flushing = false;
        if self.course.is_measuring() {
            record(&mut checkpoints.took, io.now().saturating_sub(checkpoints.began));
        }
    }
}

impl Workload for OltpLoad {
    fn start(&mut self, io: &mut Submitter<'_>) {
        if !self.course.start(io.now()) {
            return self.slots.resubmitted();
        }
        self.checkpoints.next = io.now() + self.checkpoints.every;
        (0..self.depth).for_each(|slot| self.submit_page(slot, io));
        self.submit_log(io);
    }

    fn data_in(&mut self, user: u64, offset: u32, data: Bytes) {
        self.slots.data_in(user, offset, data);
    }

    fn completed(&mut self, completion: Completion, io: &mut Submitter<'_>) {
        let slot = completion.command.user as usize;
        let reads = completion.command.read_length > 0;
        let ended = self.slots.ended(&completion, io);
        match ended {
            Ok(took) if self.course.is_measuring() => match slot {
                _ if slot < self.depth => self.data.add(reads, PAGE_BYTES, took),
                _ if slot == self.depth => self.log.add(false, self.log_bytes, took),
                _ => {}
            },
            Ok(_) => {}
            Err(what) => self.course.note_error(what),
        }
        if self.course.is_done() {
            return;
        }
        match slot {
            _ if slot < self.depth => self.submit_page(slot, io),
            _ if slot == self.depth => self.submit_log(io),
            _ => self.checkpoint_write_ended(slot, io),
        }
    }

    fn deadline(&self) -> Option<Duration> {
        self.course.deadline().map(|at| at.min(self.checkpoints.next))
    }

    fn tick(&mut self, io: &mut Submitter<'_>) {
        self.course.tick(io.now());
        if !self.course.is_done() {
            self.checkpoint_if_due(io);
        }
    }

    fn is_done(&self) -> bool {
        self.course.is_done()
    }

    fn lost(&mut self, why: &str) {
        self.course.lost(why);
    }
}
