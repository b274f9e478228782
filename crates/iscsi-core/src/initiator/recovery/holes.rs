//! What is missing of a task.
//!
//! A task without holes has none of this state: [`Holes`] is created when the first PDU is missing and dropped when all have
//! arrived. PDUs that arrive behind a hole wait there, at most [`MAX_HELD_PDUS`](crate::limits::MAX_HELD_PDUS).

use std::collections::BTreeMap;

use iscsi_wire::{DataIn, R2t, StatSn};

use super::super::outcome::Outcome;
use super::asking::Asking;
use crate::limits::MAX_SNACK_RUNS;
use crate::pdu_reader::RxPdu;

/// A PDU that waits for one before it.
#[derive(Debug)]
pub(super) enum Waiting {
    DataIn(Box<(DataIn, RxPdu)>),
    R2t(Box<R2t>),
}

/// State of a task with missing PDUs.
#[derive(Debug, Default)]
pub(in super::super) struct Holes {
    /// PDUs behind a hole, by DataSN or R2TSN, which share one sequence.
    pub(super) waiting: BTreeMap<u32, Waiting>,
    /// The target has sent every number before this one.
    pub(super) known: u32,
    pub(in super::super) asking: Asking,
    /// The response, which waits for the data, and its StatSN.
    pub(super) response: Option<(StatSn, Outcome)>,
    /// Set while all data is being sent again; see `resegment`.
    pub(super) anew: Option<Anew>,
}

impl Holes {
    /// Drops the waiting PDUs and the response: they are sent again too.
    pub(super) fn forget_waiting(&mut self) {
        self.waiting.clear();
        self.response = None;
    }

    /// Whether the data of `pdu` lies between the data of the PDUs that wait before and behind it. So the waiting data is never
    /// more than the command's data. A PDU that does not fit counts as missing.
    pub(super) fn has_place_for(&self, pdu: &DataIn, length: usize) -> bool {
        let data = |(_, waiting): (&u32, &Waiting)| match waiting {
            Waiting::DataIn(both) => Some((u64::from(both.0.buffer_offset), both.1.data.len() as u64)),
            Waiting::R2t(_) => None,
        };
        let (begin, n) = (u64::from(pdu.buffer_offset), pdu.data_sn.0);
        let before = self.waiting.range(..n).rev().find_map(data);
        let behind = self.waiting.range(n..).find_map(data);
        before.is_none_or(|(offset, len)| offset + len <= begin)
            && behind.is_none_or(|(offset, _)| begin + length as u64 <= offset)
    }

    /// The runs of missing numbers from `from` on, each as its first and its length.
    pub(super) fn runs(&self, next: u32, from: u32) -> Vec<(u32, u32)> {
        let mut runs = Vec::new();
        let first = next.max(from);
        let mut at = first;
        for n in self.waiting.keys().copied().filter(|n| *n >= first).chain([self.known]) {
            if n > at {
                runs.push((at, n - at));
            }
            at = n.saturating_add(1);
        }
        if runs.len() > MAX_SNACK_RUNS {
            let (first, _) = runs[0];
            return vec![(first, self.known - first)];
        }
        runs
    }
}

/// State of a task whose data is being sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Anew {
    /// SNACK Tag of the last request.
    pub tag: u32,
    /// A PDU has been damaged since.
    pub damaged: bool,
    /// StatSN of a status that came without the tag: it is not acknowledged before the data has arrived.
    pub held: Option<StatSn>,
}
