//! What is kept for retransmission: unacknowledged statuses, and the data and outcome of commands whose status is unacknowledged
//! (RFC 7143 4.2.2.2, 7.2, 11.16).
//!
//! The data of a read is kept once, by reference count, and never copied: a Data-In with status is rebuilt from its command.
//! Everything is bounded: [`MAX_RETAINED_STATUSES`] and [`MAX_RETAINED_STATUS_BYTES`] for a connection, [`MAX_RETAINED_COMMANDS`]
//! and `retained_bytes_max` for a session. A request for something that had to be dropped is refused as the RFC prescribes (RFC
//! 7143 11.17.1, SNACK reject). Data acknowledged by a DataACK no longer counts against the limit; its memory is freed with the
//! last reference to the buffer of the read.

use std::collections::VecDeque;

use bytes::Bytes;
use iscsi_wire::{Cid, Itt, Lun, Opcode, ResidualCount, StatSn, Ttt};
use rustc_hash::FxHashMap;

use super::super::actions::Payload;
use super::super::read_plan::ReadPlan;
use super::super::task::Task;
use crate::limits::{
    MAX_RETAINED_COMMANDS, MAX_RETAINED_STATUS_BYTES, MAX_RETAINED_STATUSES, MAX_SNACKS_PER_TASK,
};
use crate::pdu_writer::TxPdu;

/// A response that was sent and took a StatSN.
#[derive(Debug)]
pub(in super::super) struct SentStatus {
    /// `None` for a Data-In: it is rebuilt from the data kept for its command.
    pub pdu: Option<TxPdu>,
    /// The command whose status it is, or the reserved tag.
    pub itt: Itt,
}

impl SentStatus {
    /// Keeps `pdu` with a copy of its data: the data of a ping answer lies in the receive buffer in which the ping arrived.
    pub(crate) fn of(pdu: &TxPdu, itt: Itt) -> Self {
        let data = || Bytes::copy_from_slice(&pdu.data.bytes());
        let keeps = pdu.bhs.opcode() != Opcode::DataIn.code();
        Self { pdu: keeps.then(|| TxPdu::with_data(pdu.bhs, data())), itt }
    }

    fn kept_bytes(&self) -> usize {
        self.pdu.as_ref().map_or(0, |pdu| pdu.data.len())
    }
}

/// The last statuses sent on a connection, up to the newest one.
#[derive(Debug, Default)]
pub(in super::super) struct SentStatuses {
    sent: VecDeque<SentStatus>,
    /// Data in the kept PDUs, bytes.
    bytes: usize,
}

impl SentStatuses {
    pub(crate) fn len(&self) -> usize {
        self.sent.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&SentStatus> {
        self.sent.get(index)
    }

    pub(crate) fn push(&mut self, status: SentStatus) {
        self.bytes += status.kept_bytes();
        self.sent.push_back(status);
    }

    pub(crate) fn is_too_much(&self) -> bool {
        self.sent.len() > MAX_RETAINED_STATUSES || self.bytes > MAX_RETAINED_STATUS_BYTES
    }

    pub(crate) fn pop_oldest(&mut self) -> Option<SentStatus> {
        let oldest = self.sent.pop_front()?;
        self.bytes -= oldest.kept_bytes();
        Some(oldest)
    }

    /// Replaces the kept status of the command `itt` by `pdu`.
    pub(crate) fn replace(&mut self, itt: Itt, pdu: &TxPdu) {
        if let Some(status) = self.sent.iter_mut().find(|status| status.itt == itt) {
            let before = std::mem::replace(status, SentStatus::of(pdu, itt)).kept_bytes();
            self.bytes = self.bytes - before + status.kept_bytes();
        }
    }
}

/// What the initiator is told of how a command ended.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Report {
    pub status: u8,
    pub status_qualifier: u16,
    pub sense: Bytes,
    pub residual: ResidualCount,
    pub bidi_residual: ResidualCount,
    /// SNACK Tag of the last R-Data SNACK; 0: none.
    pub snack_tag: u32,
    /// StatSN of the status, once it was sent.
    pub stat_sn: StatSn,
}

/// How a command ended, with all that is needed to report it again.
#[derive(Debug)]
pub(in super::super) struct Outcome {
    pub itt: Itt,
    pub cid: Cid,
    /// Its connection is lost and it has not been reassigned.
    pub orphan: bool,
    pub immediate: bool,
    pub lun: Lun,
    pub report: Report,
    pub data_in: Payload,
    /// Its status keeps its order among the responses of all connections.
    pub fenced: bool,
    pub plan: ReadPlan,
    /// Whether the last Data-In PDU carries the status.
    pub in_data: bool,
    kept: Kept,
}

/// What became of an outcome since it was first reported.
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    /// SNACKs so far.
    snacks: u8,
    /// The data had to be dropped.
    evicted: bool,
    /// Age: the lowest is the oldest.
    serial: u64,
}

impl Outcome {
    /// The outcome of `task`: what is reported, its data, how that is cut and whether the last PDU carries the status, and whether
    /// the status keeps its order.
    pub(crate) fn new(
        task: &Task,
        report: Report,
        (data_in, plan, in_data): (Payload, ReadPlan, bool),
        fenced: bool,
    ) -> Self {
        Self {
            itt: task.itt(),
            cid: task.cid,
            orphan: task.orphan,
            immediate: task.immediate(),
            lun: task.lun(),
            report,
            data_in,
            fenced,
            plan,
            in_data,
            kept: Kept::default(),
        }
    }

    /// Whether its data had to be dropped.
    pub(crate) fn is_evicted(&self) -> bool {
        self.kept.evicted
    }

    /// Counts a SNACK for it; false when there were too many.
    pub(crate) fn may_answer_snack(&mut self) -> bool {
        let may = self.kept.snacks < MAX_SNACKS_PER_TASK;
        self.kept.snacks += u8::from(may);
        may
    }

    /// The connection on which PDUs may be sent for it.
    pub(crate) fn home(&self) -> Option<Cid> {
        (!self.orphan).then_some(self.cid)
    }

    fn kept_bytes(&self) -> u64 {
        (self.data_in.bytes.len() as u64).saturating_sub(u64::from(self.plan.acked_offset))
    }
}

/// Completed commands of a session that are not acknowledged.
#[derive(Debug, Default)]
pub(in super::super) struct Retained {
    by_itt: FxHashMap<Itt, Outcome>,
    /// Data-In that is kept, bytes.
    bytes: u64,
    next_serial: u64,
}

impl Retained {
    pub(crate) fn len(&self) -> usize {
        self.by_itt.len()
    }

    /// Data-In that is kept, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn get(&self, itt: Itt) -> Option<&Outcome> {
        self.by_itt.get(&itt)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Outcome> {
        self.by_itt.values()
    }

    /// The command whose Data-In carried `ttt` with its A bit.
    pub(crate) fn itt_of_ttt(&self, ttt: Ttt) -> Option<Itt> {
        self.iter().find(|outcome| outcome.plan.ttt == ttt && !outcome.orphan).map(|outcome| outcome.itt)
    }

    /// Takes one out, to work on it; the caller puts it back or drops it.
    pub(crate) fn take(&mut self, itt: Itt) -> Option<Outcome> {
        let outcome = self.by_itt.remove(&itt)?;
        self.bytes -= outcome.kept_bytes();
        Some(outcome)
    }

    pub(crate) fn put_back(&mut self, outcome: Outcome) {
        self.bytes += outcome.kept_bytes();
        if let Some(old) = self.by_itt.insert(outcome.itt, outcome) {
            // The initiator has reused the tag: it is done with the old command.
            self.bytes -= old.kept_bytes();
        }
    }

    pub(crate) fn keep(&mut self, mut outcome: Outcome, bytes_max: u64) {
        outcome.kept.serial = self.next_serial;
        self.next_serial += 1;
        if self.by_itt.len() >= MAX_RETAINED_COMMANDS
            && let Some(oldest) = self.iter().min_by_key(|o| (!o.orphan, o.kept.serial)).map(|o| o.itt)
        {
            self.take(oldest);
        }
        self.put_back(outcome);
        self.forget_beyond(bytes_max);
    }

    /// Drops the oldest data until no more than `bytes_max` is kept.
    pub(crate) fn forget_beyond(&mut self, bytes_max: u64) {
        while self.bytes > bytes_max {
            let holders = self.by_itt.values_mut().filter(|o| o.kept_bytes() > 0);
            let Some(oldest) = holders.min_by_key(|o| o.kept.serial) else { return };
            self.bytes -= oldest.kept_bytes();
            (oldest.data_in, oldest.kept.evicted) = (Payload::default(), true);
        }
    }

    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(&mut Outcome) -> bool) {
        let bytes = &mut self.bytes;
        self.by_itt.retain(|_, outcome| {
            let kept = keeps(outcome);
            if !kept {
                *bytes -= outcome.kept_bytes();
            }
            kept
        });
    }

    pub(crate) fn clear(&mut self) {
        self.by_itt.clear();
        self.bytes = 0;
    }

    /// Checks what holds after every event, where debug assertions are on.
    pub(crate) fn check(&self, bytes_max: u64) {
        let bytes: u64 = self.iter().map(Outcome::kept_bytes).sum();
        debug_assert_eq!(bytes, self.bytes, "bytes of Data-In that are kept");
        debug_assert!(bytes <= bytes_max, "Data-In that is kept is bounded");
        debug_assert!(self.len() <= MAX_RETAINED_COMMANDS, "completed commands are bounded");
    }
}
