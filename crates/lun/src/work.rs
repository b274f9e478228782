//! The way of a command from its CDB to its outcome.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use engine::SlabRing;
use payload::Payload;
use scsi::{DataOut, Effect, Execution, MediumReply, Nexus, Outcome, Step};
use smallvec::SmallVec;

use crate::execute::{execute, execute_now};
use crate::surroundings::Surroundings;
use crate::unit::Unit;

/// Executes the next medium operation of a command.
pub fn step(unit: &Unit, execution: &mut Execution, with: &Surroundings<'_>) -> Payload {
    let (reply, payload) = match execution.step() {
        Step::Medium(op) => execute(unit, op, with),
        Step::NeedDataOut { .. } | Step::Done(_) => (Ok(MediumReply::Done), Payload::default()),
    };
    execution.medium_done(&unit.scsi, reply);
    payload
}

/// As [`step`], but never blocks: on a store that may block it only executes short reads that the cache can answer. `None`: nothing was
/// done, and a worker must execute the operation.
pub fn step_now(unit: &Unit, execution: &mut Execution, with: &Surroundings<'_>) -> Option<Payload> {
    let Step::Medium(op) = execution.step() else { return None };
    let (reply, payload) = execute_now(unit, op, with)?;
    execution.medium_done(&unit.scsi, reply);
    Some(payload)
}

/// The change of persistent state that must be stored before the status is sent.
pub fn change_to_keep(outcome: &Outcome) -> Option<u64> {
    outcome.effects.iter().find_map(|effect| match effect {
        Effect::KeptStateChanged(change) => Some(*change),
        Effect::AbortTasksOf(_) => None,
    })
}

/// A command that was executed.
#[derive(Debug)]
pub struct Carried {
    /// Its outcome.
    pub outcome: Outcome,
    /// The blocks that it has read.
    pub payload: Payload,
}

/// Executes a command whose data-out is complete. Blocks as long as the store does. `None`: the command was cancelled, and it is unknown
/// how much of it was done.
///
/// The caller applies the effects on other nexuses ([`Outcome::effects`]). It must refuse commands whose effects it cannot apply.
pub fn carry_out(
    unit: &Unit,
    nexus: &Nexus,
    cdb: &[u8],
    data_out: &[Bytes],
    slabs: &SlabRing,
    cancelled: &AtomicBool,
) -> Option<Carried> {
    let offered = data_out.iter().map(|piece| piece.len() as u64).sum();
    let mut execution = unit.scsi.begin_offering(nexus, cdb, offered);
    let mut payload = Payload::default();
    loop {
        match execution.step() {
            Step::NeedDataOut { .. } => {
                let slices: SmallVec<[&[u8]; 8]> = data_out.iter().map(|piece| &piece[..]).collect();
                execution.data_out(&unit.scsi, &DataOut::new(&slices).with_offered(offered));
            }
            Step::Medium(_) if cancelled.load(Ordering::Acquire) => return None,
            Step::Medium(_) => {
                let with = Surroundings {
                    slabs,
                    data_out,
                    read_length: u64::MAX,
                    digest_chunk_bytes: None,
                    protection: execution.protection().copied(),
                    cancelled,
                };
                payload = step(unit, &mut execution, &with);
            }
            Step::Done(_) => break,
        }
    }
    match execution.into_step() {
        Step::Done(outcome) => Some(Carried { outcome, payload }),
        Step::NeedDataOut { .. } | Step::Medium(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use blockstore::{BlockStore, DelayStore, FileOptions, FileStore, RamStore};
    use scsi::Status;

    use super::*;
    use crate::NEVER;
    use crate::testing::unit_on;

    const BLOCK: usize = 512;

    fn sixteen(opcode: u8, lba: u8, blocks: u8) -> [u8; 16] {
        let mut cdb = [0; 16];
        (cdb[0], cdb[9], cdb[13]) = (opcode, lba, blocks);
        cdb
    }

    /// A unit, and a nexus that has seen its power-on unit attention.
    fn unit(store: Arc<dyn BlockStore>) -> (Unit, Nexus) {
        let (unit, nexus) = (unit_on(store), Nexus::new("iqn.2026-01.org.example:a,i,0x00023d000001", 1, 1));
        unit.scsi.attach_nexus(&nexus);
        let slabs = SlabRing::new(1 << 20, 4);
        carry_out(&unit, &nexus, &[0; 6], &[], &slabs, &NEVER).unwrap();
        (unit, nexus)
    }

    fn ram() -> Arc<RamStore> {
        Arc::new(RamStore::new(1 << 20, BLOCK as u32).unwrap())
    }

    #[test]
    fn a_command_runs_to_its_outcome_and_its_data_go_both_ways() {
        let (unit, nexus) = unit(ram());
        let slabs = SlabRing::new(1 << 20, 4);
        let run = |cdb: &[u8], out: &[Bytes]| carry_out(&unit, &nexus, cdb, out, &slabs, &NEVER).unwrap();
        // In three pieces that end within blocks.
        let data: Vec<u8> = (0..2 * BLOCK).map(|i| (i * 7) as u8).collect();
        let whole = Bytes::from(data.clone());
        let pieces = [whole.slice(..100), whole.slice(100..900), whole.slice(900..)];
        let written = run(&sixteen(0x8a, 5, 2), &pieces);
        assert_eq!((written.outcome.status, change_to_keep(&written.outcome)), (Status::Good, None));
        let read = run(&sixteen(0x88, 5, 2), &[]);
        assert_eq!((read.outcome.status, &read.payload.bytes[..]), (Status::Good, &data[..]));
        // Less data than the CDB says, and a block beyond the last one.
        assert_eq!(run(&sixteen(0x8a, 5, 2), &pieces[..1]).outcome.status, Status::CheckCondition);
        let mut far = sixteen(0x88, 0, 1);
        far[7] = 1;
        let outcome = run(&far, &[]).outcome;
        assert_eq!(outcome.sense.map(|sense| sense.asc), Some(scsi::Asc::LBA_OUT_OF_RANGE));
        // SET IDENTIFYING INFORMATION changes what has to survive.
        let set = run(&[0xa4, 6, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0], &[Bytes::from_static(b"disk")]);
        assert_eq!((set.outcome.status, change_to_keep(&set.outcome)), (Status::Good, Some(1)));
    }

    #[test]
    fn a_command_that_was_cancelled_does_not_reach_the_medium() {
        let store = ram();
        let (unit, nexus) = unit(Arc::clone(&store) as Arc<dyn BlockStore>);
        let (slabs, cancelled) = (SlabRing::new(1 << 20, 4), AtomicBool::new(true));
        let run = |cdb: &[u8], out: &[Bytes]| carry_out(&unit, &nexus, cdb, out, &slabs, &cancelled);
        assert!(run(&sixteen(0x8a, 0, 1), &[Bytes::from_static(&[1; BLOCK])]).is_none());
        let mut block = [0; BLOCK];
        store.read(0, &mut block).unwrap();
        assert_eq!(block, [0; BLOCK]);
        assert!(run(&[0; 6], &[]).is_some(), "a command without medium has its outcome at once");
    }

    /// The first medium operation of a READ(16), if the shard could execute it: what it brought.
    fn read_now(unit: &Unit, nexus: &Nexus, cdb: &[u8], chunk: Option<u32>) -> Option<Payload> {
        let mut execution = unit.scsi.begin_offering(nexus, cdb, 0);
        let with = Surroundings {
            slabs: &SlabRing::new(1 << 20, 4),
            data_out: &[],
            read_length: 2048,
            digest_chunk_bytes: chunk,
            protection: None,
            cancelled: &NEVER,
        };
        let payload = step_now(unit, &mut execution, &with)?;
        assert!(matches!(execution.step(), Step::Done(outcome) if outcome.status == Status::Good));
        Some(payload)
    }

    #[test]
    fn only_short_reads_of_what_is_cached_are_executed_without_a_worker() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let file = FileStore::open(&path, &FileOptions::default()).unwrap();
        let (unit_of_file, nexus) = unit(Arc::new(file));
        let read = |blocks| read_now(&unit_of_file, &nexus, &sixteen(0x88, 3, blocks), None);
        // A kernel or file system without RWF_NOWAIT leaves all reads to the workers.
        if let Some(payload) = read(2) {
            assert_eq!(payload, Payload::plain(Bytes::from_static(&[7; 2 * BLOCK])));
            assert_eq!(read(8).unwrap().bytes.len(), 2048, "no more than the initiator takes");
            let digests = read_now(&unit_of_file, &nexus, &sixteen(0x88, 3, 4), Some(1536)).unwrap();
            assert_eq!((digests.chunk_bytes, digests.chunked_bytes), (1536, 2048));
            let crcs = [1536, 512].map(|len| integrity::crc32c(&vec![7; len]));
            assert_eq!(digests.chunk_crcs[..], crcs);
            let held = unit_of_file.hold(4, 1, crate::Access::Change);
            assert_eq!(read(2), None, "a write of these blocks is under way");
            drop(held);
        }
        assert_eq!(read_now(&unit_of_file, &nexus, &sixteen(0x91, 0, 0), None), None, "no read");
        assert_eq!(read_now(&unit_of_file, &nexus, &[0; 6], None), None, "no medium");
        // Stores in memory are read on the shard anyway, and what waits needs a worker.
        let (unit_of_ram, nexus) = unit(ram());
        assert_eq!(read_now(&unit_of_ram, &nexus, &sixteen(0x88, 3, 2), None), None);
        let (slow, _gate) = DelayStore::new(ram(), Duration::ZERO);
        let (unit_of_slow, nexus) = unit(Arc::new(slow));
        assert_eq!(read_now(&unit_of_slow, &nexus, &sixteen(0x88, 3, 2), None), None);
    }
}
