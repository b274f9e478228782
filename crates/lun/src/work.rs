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
