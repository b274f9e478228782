//! The outstanding commands, each in a slot: sends them, checks what they read, and measures how long each took.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use engine::SlabRing;
use hdrhistogram::Histogram;
use initiator::{
    Arrival, Command, Completion, Disk, Ending, Protection, Submitter, WriteData, cdb, write_slabs,
};
use iscsi_core::wire::Lun;

/// Longest latency that the histogram resolves, nanoseconds.
const MAX_LATENCY_NS: u64 = 60_000_000_000;

/// What commands have in common.
#[derive(Clone, Debug)]
pub struct Unit {
    lun: Lun,
    sector_bytes: usize,
    timeout: Duration,
    /// Tuples are made of every block that is written and checked of every one that is read, here.
    protection: Option<Protection>,
    /// Write data are digested while they get their tuples.
    digest: bool,
}

impl Unit {
    pub fn new(disk: &Disk, timeout: Duration) -> Self {
        Self {
            lun: disk.lun(),
            sector_bytes: disk.capacity().block_bytes as usize,
            timeout,
            protection: disk.protection().cloned(),
            digest: disk.digest_runs().is_some(),
        }
    }

    pub fn is_protected(&self) -> bool {
        self.protection.is_some()
    }
}

/// One outstanding command.
#[derive(Default)]
struct Slot {
    began: Duration,
    lba: u64,
    /// Bytes that a read brings.
    wanted: usize,
    /// Bytes from its start up to the first that is missing.
    received: usize,
    /// What has arrived behind that, by offset.
    early: BTreeMap<usize, Bytes>,
    /// Checks the blocks as they arrive; none where they have no tuples.
    arrival: Option<Arrival>,
    /// The errors found in them.
    damage: Option<String>,
}

/// See the head of the module.
pub struct Slots {
    unit: Unit,
    slots: Vec<Slot>,
    slabs: SlabRing,
}

impl Slots {
    pub fn new(unit: Unit, count: usize) -> Self {
        let arrival = || unit.protection.as_ref().map(|protection| protection.arrival(0));
        let slots = (0..count).map(|_| Slot { arrival: arrival(), ..Slot::default() }).collect();
        Self { slots, slabs: write_slabs(), unit }
    }

    /// Reads `bytes`, whole sectors, from `lba` on.
    pub fn read(&mut self, slot: usize, lba: u64, bytes: usize, io: &mut Submitter<'_>) {
        let sectors = (bytes / self.unit.sector_bytes) as u32;
        let (cdb, wanted) = match &self.unit.protection {
            None => (cdb::read(lba, sectors), bytes),
            Some(protection) => (protection.read_cdb(lba, sectors), protection.wire_bytes(sectors as usize)),
        };
        let mut command = Command::new(self.unit.lun, &cdb);
        command.read_length = wanted as u32;
        self.slots[slot].lba = lba;
        self.submit(slot, wanted, command, io);
    }

    /// Writes `data`, whole sectors, from `lba` on; with `fua` to the medium itself.
    pub fn write(&mut self, slot: usize, lba: u64, data: Bytes, fua: bool, io: &mut Submitter<'_>) {
        let sectors = (data.len() / self.unit.sector_bytes) as u32;
        let flagged = |cdb: cdb::Cdb| if fua { cdb::force_unit_access(cdb) } else { cdb };
        let command = match &self.unit.protection {
            None => {
                let mut command = Command::new(self.unit.lun, &flagged(cdb::write(lba, sectors)));
                command.write = WriteData::from(data);
                command
            }
            Some(protection) => {
                let mut command = Command::new(self.unit.lun, &flagged(protection.write_cdb(lba, sectors)));
                command.write = protection.write_bytes(lba, data, self.slabs.clone(), self.unit.digest);
                command
            }
        };
        self.submit(slot, 0, command, io);
    }

    /// Makes what was written durable: SYNCHRONIZE CACHE.
    pub fn flush(&mut self, slot: usize, io: &mut Submitter<'_>) {
        self.submit(slot, 0, Command::new(self.unit.lun, &cdb::synchronize_cache()), io);
    }

    fn submit(&mut self, slot: usize, wanted: usize, mut command: Command, io: &mut Submitter<'_>) {
        command.user = slot as u64;
        command.timeout = self.unit.timeout;
        let state = &mut self.slots[slot];
        state.began = io.now();
        state.wanted = wanted;
        state.received = 0;
        state.early.clear();
        state.damage = None;
        // A session that is ending takes nothing; its successor starts again.
        let _ = io.submit(command);
    }

    /// The session was lost and has resubmitted the commands: their data comes again.
    pub fn resubmitted(&mut self) {
        for slot in &mut self.slots {
            slot.received = 0;
            slot.early.clear();
        }
    }

    pub fn data_in(&mut self, user: u64, offset: u32, data: Bytes) {
        let slot = &mut self.slots[user as usize];
        // Data from before the command was sent again does not count.
        if offset == 0 {
            if slot.received > 0 {
                slot.early.clear();
            }
            slot.received = 0;
            slot.damage = None;
            if let Some(arrival) = &mut slot.arrival {
                arrival.restart(slot.lba);
            }
        }
        if offset as usize != slot.received {
            slot.early.insert(offset as usize, data);
            return;
        }
        slot.arrived(&data);
        while let Some(next) = slot.early.remove(&slot.received) {
            slot.arrived(&next);
        }
    }

    /// How long a command took that has ended well, and delivered all that it read without an error.
    pub fn ended(&mut self, completion: &Completion, io: &Submitter<'_>) -> Result<Duration, String> {
        let slot = &mut self.slots[completion.command.user as usize];
        match &completion.ending {
            Ending::Status { status: 0, .. } => slot.take()?,
            other => return Err(format!("{other:?}")),
        }
        Ok(io.now().saturating_sub(slot.began))
    }
}

impl Slot {
    /// Takes the next bytes of a read, and checks them where they have tuples.
    fn arrived(&mut self, data: &[u8]) {
        self.received += data.len();
        if let Some(arrival) = &mut self.arrival
            && self.damage.is_none()
            && let Err(failure) = arrival.take(data)
        {
            self.damage = Some(failure.to_string());
        }
    }

    /// Whether all requested data has arrived and passed every check.
    fn take(&mut self) -> Result<(), String> {
        if self.received != self.wanted {
            let (arrived, wanted) = (self.received, self.wanted);
            return Err(format!("{arrived} bytes arrived where {wanted} were asked for"));
        }
        self.damage.take().map_or(Ok(()), Err)
    }
}

/// A histogram of latencies, nanoseconds.
pub fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_LATENCY_NS, 3).expect("the bounds make sense")
}

/// Adds what a command took to a histogram of latencies.
pub fn record(latencies: &mut Histogram<u64>, took: Duration) {
    latencies.saturating_record((took.as_nanos() as u64).max(1));
}
