//! The commands of a database that answers questions about all of it: several scans at a time.

use std::time::Duration;

use bytes::Bytes;
use initiator::{Completion, Submitter, Workload};

use super::generator::{Dss, SCAN_BYTES, STREAMS};
use super::run::{Settings, Tally};
use crate::cmd::bench::lun::course::Course;
use crate::cmd::bench::lun::slots::Slots;

/// See the head of the module. Slots belong to the streams in turn.
pub struct DssLoad {
    generator: Dss,
    depth: usize,
    sector_bytes: u64,
    slots: Slots,
    pub course: Course,
    pub data: Tally,
}

impl DssLoad {
    /// Every stream has its share of the depth outstanding as its read-ahead, and at least one command.
    pub fn new(settings: &Settings, generator: Dss) -> Self {
        let depth = (settings.depth / STREAMS).max(1) * STREAMS;
        Self {
            generator,
            depth,
            sector_bytes: settings.sector_bytes,
            slots: Slots::new(settings.unit.clone(), depth),
            course: Course::new(settings.warmup, settings.time),
            data: Tally::default(),
        }
    }

    /// Commands outstanding at a time.
    pub fn depth(&self) -> usize {
        self.depth
    }

    fn submit(&mut self, slot: usize, io: &mut Submitter<'_>) {
        let at = self.generator.step(slot % STREAMS);
        self.slots.read(slot, at / self.sector_bytes, SCAN_BYTES as usize, io);
    }
}

impl Workload for DssLoad {
    fn start(&mut self, io: &mut Submitter<'_>) {
        match self.course.start(io.now()) {
            true => (0..self.depth).for_each(|slot| self.submit(slot, io)),
            false => self.slots.resubmitted(),
        }
    }

    fn data_in(&mut self, user: u64, offset: u32, data: Bytes) {
        self.slots.data_in(user, offset, data);
    }

    fn completed(&mut self, completion: Completion, io: &mut Submitter<'_>) {
        match self.slots.ended(&completion, io) {
            Ok(took) if self.course.is_measuring() => self.data.add(true, SCAN_BYTES, took),
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
