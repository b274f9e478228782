//! A command from its CDB to its outcome.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use engine::SlabRing;
use payload::Payload;
use scsi::{DataOut, Effect, Execution, MediumReply, Nexus, Outcome, Step};
use smallvec::SmallVec;

use crate::execute::{Surroundings, execute, execute_now};
use crate::unit::Unit;

/// Carries out the medium operation that a command has come to.
pub fn step(unit: &Unit, execution: &mut Execution, with: &Surroundings<'_>) -> Payload {
    let (reply, payload) = match execution.step() {
        Step::Medium(op) => execute(unit, op, with),
        Step::NeedDataOut { .. } | Step::Done(_) => (Ok(MediumReply::Done), Payload::default()),
    };
    execution.medium_done(&unit.scsi, reply);
    payload
}

/// As [`step`], without waiting: of a store that may block, short reads of what is at hand. `None`: it is a worker's, and nothing
/// was done.
pub fn step_now(unit: &Unit, execution: &mut Execution, with: &Surroundings<'_>) -> Option<Payload> {
    let Step::Medium(op) = execution.step() else { return None };
    let (reply, payload) = execute_now(unit, op, with)?;
    execution.medium_done(&unit.scsi, reply);
    Some(payload)
}

/// The change of what a unit keeps that has to be stored before the status is sent.
pub fn change_to_keep(outcome: &Outcome) -> Option<u64> {
    outcome.effects.iter().find_map(|effect| match effect {
        Effect::KeptStateChanged(change) => Some(*change),
        Effect::AbortTasksOf(_) => None,
    })
}

/// A command that was carried out.
#[derive(Debug)]
pub struct Carried {
    /// How it ended.
    pub outcome: Outcome,
    /// The blocks that it read.
    pub payload: Payload,
}

/// Carries out a command whose data-out is all there. Blocks as long as the store does. `None`: it was cancelled, and nobody knows
/// how much of it was done.
///
/// What the outcome means for others ([`Outcome::effects`]) is left to the caller, who has to refuse commands whose effects it
/// cannot carry out.
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
