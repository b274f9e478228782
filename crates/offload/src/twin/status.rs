//! StatSN: which statuses have arrived, and which may be acknowledged (RFC 7143 4.2.2.2).

use iscsi_wire::{Bhs, Itt, Opcode, StatSn};

use super::connection::Connection;
use super::rx::Verdict;
use super::snack::{Group, Key};
use crate::encoding::{SnackCause, StopReason};

/// The numbers of a connection's statuses.
#[derive(Debug)]
pub(super) struct Statuses {
    next: StatSn,
}

/// Where a StatSN stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// It was not seen before.
    Fresh,
    /// It was seen before.
    Duplicate,
}

impl Statuses {
    pub(super) fn new(next: u32) -> Self {
        Self { next: StatSn(next) }
    }

    /// The number that is expected next.
    pub(super) fn next(&self) -> StatSn {
        self.next
    }
}

/// StatSN, bytes 24 to 27 of every PDU of a target.
pub(super) fn stat_sn(bhs: &Bhs) -> StatSn {
    let bytes = bhs.as_bytes();
    StatSn(u32::from_be_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]))
}

/// Whether a PDU of a target has a StatSN of its own.
//= rfc7143 4.2.2.2 NUM-09
pub(super) fn consumes_stat_sn(bhs: &Bhs) -> bool {
    match Opcode::try_from(bhs.opcode()) {
        Ok(Opcode::DataIn) => bhs.as_bytes()[1] & 0x01 != 0,
        Ok(Opcode::NopIn) => bhs.itt() != Itt::RESERVED,
        Ok(Opcode::R2t) | Err(_) => false,
        Ok(opcode) => !opcode.is_initiator(),
    }
}

impl Connection {
    /// Takes a StatSN that has arrived. Numbers that it skips become a group of the SNACK table.
    ///
    /// # Errors
    /// Any other number than the next one at ErrorRecoveryLevel 0. Nothing has changed then.
    //= rfc7143 7.9 ERL-03
    pub(super) fn take_stat_sn(&mut self, stat_sn: StatSn, now_us: u64) -> Result<Seen, Verdict> {
        let next = self.statuses.next;
        if stat_sn == next {
            self.statuses.next = next.next();
            return Ok(Seen::Fresh);
        }
        if !self.recovers() {
            return Err(Verdict::Stop(StopReason::SEQUENCE));
        }
        if stat_sn.gt(next) {
            self.lose_statuses(next, stat_sn, SnackCause::GAP, now_us);
            self.statuses.next = stat_sn.next();
            return Ok(Seen::Fresh);
        }
        let found = self.snacks.find(Key::STATUS, stat_sn.0);
        let Some(index) = found else { return Ok(Seen::Duplicate) };
        self.snacks.fill(index, stat_sn.0, (0, 0));
        Ok(Seen::Fresh)
    }

    /// Whether the status with this number has arrived before.
    pub(super) fn is_duplicate(&self, stat_sn: StatSn) -> bool {
        stat_sn.lt(self.statuses.next) && self.snacks.find(Key::STATUS, stat_sn.0).is_none()
    }

    /// Counts the statuses from `first` up to `end` (excluded) as lost.
    fn lose_statuses(&mut self, first: StatSn, end: StatSn, cause: SnackCause, now_us: u64) {
        let group = Group { begin: first.0, length: first.distance_to(end), begin_offset: 0, end_offset: 0 };
        let deadline_us = self.snack_deadline(now_us);
        self.snacks.lose(Key::STATUS, group, cause, deadline_us);
    }

    /// A PDU that consumes a StatSN arrived with a data digest that does not match: its status is lost. Returns whether a SNACK
    /// will request it.
    pub(super) fn lose_status_pdu(&mut self, stat_sn: StatSn, now_us: u64) -> bool {
        let next = self.statuses.next;
        if stat_sn.ge(next) {
            self.lose_statuses(next, stat_sn.next(), SnackCause::DIGEST, now_us);
            self.statuses.next = stat_sn.next();
            return true;
        }
        let Some(index) = self.snacks.find(Key::STATUS, stat_sn.0) else { return false };
        let deadline_us = self.snack_deadline(now_us);
        self.snacks.lose_again(index, stat_sn.0, (0, 0), deadline_us);
        true
    }

    /// ExpStatSN as it is sent: no status is acknowledged that is missing, or whose data is missing.
    //= rfc7143 7.9 SNK-09
    pub(super) fn exp_stat_sn(&self) -> StatSn {
        let missing = self.snacks.statuses().map(StatSn);
        let held = self.tasks.values().filter_map(|task| task.held_stat_sn);
        let next = self.statuses.next;
        missing.chain(held).fold(next, |least, one| if one.lt(least) { one } else { least })
    }
}
