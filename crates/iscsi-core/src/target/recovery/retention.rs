//! When a session keeps what it has sent, and when it drops it (RFC 7143 4.2.2.2, 7.2); what is kept is in `retained`.

use iscsi_wire::{Cid, Itt, Lun};
use smallvec::SmallVec;

use super::super::connection::Connection;
use super::super::session::TargetSession;
use super::retained::{Outcome, SentStatus};
use crate::pdu_writer::TxPdu;

impl TargetSession {
    /// Keeps a completed command, as far as the level requires.
    pub(in super::super) fn retain(&mut self, outcome: Outcome) {
        let level = self.params.error_recovery_level;
        let has_data = !outcome.data_in.bytes.is_empty();
        if (level >= 1 && has_data) || (level >= 2 && !outcome.immediate) {
            self.retained.keep(outcome, self.config.retained_bytes_max);
        }
    }

    /// Keeps a numbered response until it is acknowledged.
    pub(in super::super) fn retain_status(&mut self, cid: Cid, pdu: &TxPdu, itt: Itt) {
        let Some(connection) = self.connection(cid) else { return };
        connection.statuses.push(SentStatus::of(pdu, itt));
        while let Some(connection) =
            self.connection(cid).filter(|connection| connection.statuses.is_too_much())
            && let Some(oldest) = connection.statuses.pop_oldest()
        {
            self.release(cid, oldest.itt);
        }
    }

    /// Drops what the initiator has acknowledged.
    pub(in super::super) fn release_acknowledged(&mut self, cid: Cid) {
        while let Some(connection) = self.connection(cid) {
            let unacknowledged = connection.acknowledged.distance_to(connection.stat_sn) as usize;
            if connection.statuses.len() <= unacknowledged {
                return;
            }
            if let Some(status) = connection.statuses.pop_oldest() {
                self.release(cid, status.itt);
            }
        }
    }

    /// The status of a command is acknowledged, or is no longer kept: drops the command.
    fn release(&mut self, cid: Cid, itt: Itt) {
        if !itt.is_reserved() && self.retained.get(itt).is_some_and(|outcome| outcome.home() == Some(cid)) {
            self.retained.take(itt);
        }
    }

    /// A connection is gone: its completed commands are dropped, or wait to be reassigned.
    pub(in super::super) fn release_statuses(&mut self, connection: Connection, keeps: bool) {
        let cid = connection.cid;
        self.retained.retain(|outcome| {
            if outcome.home() != Some(cid) {
                return true;
            }
            outcome.orphan = true;
            // Immediate commands die with their connection.
            //= rfc7143 7.14 ERL-09
            keeps && !outcome.immediate
        });
    }

    /// Drops the completed commands of a lost connection, and notes their logical units.
    pub(in super::super) fn release_orphans(&mut self, cid: Cid) {
        let mut cleared: SmallVec<[Lun; 16]> = SmallVec::new();
        self.retained.retain(|outcome| {
            let dies = outcome.orphan && outcome.cid == cid;
            if dies {
                cleared.push(outcome.lun);
            }
            !dies
        });
        self.recovery_counts.tasks_expired += cleared.len() as u64;
        cleared.into_iter().for_each(|lun| self.note_cleared(lun));
    }
}
