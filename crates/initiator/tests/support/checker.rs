//! A workload that reads what it wrote and compares every byte.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use initiator::{Command, Completion, Ending, Submitter, Workload, WriteData, cdb};
use iscsi_core::wire::Lun;

const LUN: Lun = Lun(0);

pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|n| (n.wrapping_mul(seed | 1) >> 3) as u8 ^ seed as u8).collect()
}

/// Keeps commands outstanding, reads what it wrote and compares every byte.
pub struct Checker {
    left: u32,
    begun: bool,
    slots: Vec<Slot>,
    pub wrong: Vec<String>,
    /// Number of commands that have ended, for the test to watch.
    pub done: Arc<AtomicU64>,
    /// Set by the test: no further command is started.
    pub enough: Arc<AtomicBool>,
    /// Data must come in the order of its bytes.
    pub in_order: bool,
}

#[derive(Default)]
struct Slot {
    seed: u64,
    reading: bool,
    got: Vec<u8>,
}

const SLOT_BYTES: usize = 24 * 1024;

impl Checker {
    /// Keeps `slots` commands outstanding until `total` have ended.
    pub fn new(slots: usize, total: u32) -> Self {
        let slots = (0..slots).map(|_| Slot::default()).collect();
        Self {
            left: total,
            begun: false,
            slots,
            wrong: Vec::new(),
            done: Arc::default(),
            enough: Arc::default(),
            in_order: true,
        }
    }

    fn submit(&mut self, slot: usize, io: &mut Submitter<'_>) {
        let lba = (slot * SLOT_BYTES / 512) as u64;
        let blocks = (SLOT_BYTES / 512) as u32;
        let state = &mut self.slots[slot];
        let mut command = if state.reading {
            let mut command = Command::new(LUN, &cdb::read(lba, blocks));
            command.read_length = SLOT_BYTES as u32;
            command
        } else {
            state.seed += 1;
            let mut command = Command::new(LUN, &cdb::write(lba, blocks));
            command.write =
                WriteData::from(Bytes::from(pattern(state.seed + slot as u64 * 1000, SLOT_BYTES)));
            command
        };
        state.got.clear();
        command.user = slot as u64;
        io.submit(command).unwrap();
    }
}

impl Workload for Checker {
    fn start(&mut self, io: &mut Submitter<'_>) {
        // A recovered session already has its commands.
        if !std::mem::replace(&mut self.begun, true) {
            (0..self.slots.len()).for_each(|slot| self.submit(slot, io));
        }
    }

    fn data_in(&mut self, user: u64, offset: u32, data: Bytes) {
        let got = &mut self.slots[user as usize].got;
        if self.in_order {
            if offset == 0 {
                // The command may have been restarted.
                got.clear();
            }
            assert_eq!(got.len(), offset as usize);
        }
        let end = offset as usize + data.len();
        got.resize(got.len().max(end), 0);
        got[offset as usize..end].copy_from_slice(&data);
    }

    fn completed(&mut self, completion: Completion, io: &mut Submitter<'_>) {
        let slot = completion.command.user as usize;
        self.done.fetch_add(1, Ordering::Relaxed);
        let state = &mut self.slots[slot];
        match completion.ending {
            // The first command gets the unit attention of a new nexus.
            Ending::Status { status: 2, .. } if state.seed == 1 && !state.reading => state.seed = 0,
            Ending::Status { status: 0, .. } => {
                let wanted = pattern(state.seed + slot as u64 * 1000, SLOT_BYTES);
                if state.reading && state.got != wanted {
                    let same =
                        state.got.iter().zip(&wanted).take_while(|(got, wanted)| got == wanted).count();
                    let earlier = (0..state.seed)
                        .find(|seed| state.got == pattern(seed + slot as u64 * 1000, SLOT_BYTES));
                    self.wrong.push(format!(
                        "slot {slot}, round {}: {} bytes, the first {same} right; all of them those of round {earlier:?}",
                        state.seed,
                        state.got.len(),
                    ));
                }
                state.reading = !state.reading;
            }
            other => self.wrong.push(format!("{other:?}")),
        }
        if self.enough.load(Ordering::Relaxed) {
            self.left = 0;
        }
        if self.left > 0 {
            self.left -= 1;
            self.submit(slot, io);
        }
    }

    fn is_done(&self) -> bool {
        self.left == 0
    }

    fn lost(&mut self, why: &str) {
        self.wrong.push(why.to_owned());
        self.left = 0;
    }
}
