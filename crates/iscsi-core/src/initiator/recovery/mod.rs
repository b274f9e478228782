//! Recovery above error recovery level 0 (RFC 7143 7).
//!
//! | file | what it repairs | level |
//! |---|---|---|
//! | [`snack`] | data, R2Ts and statuses that are missing or damaged | 1 |
//! | [`resegment`] | data that is missing after MaxRecvDataSegmentLength was lowered | 1 |
//! | this one | commands that never arrived: sent again with the same CmdSN | 1 |
//! | [`reassign`] | the tasks of a connection that is gone | any; reassigned at 2 |
//! | [`session`] | the commands of a session that is gone | 0 |

pub(super) mod asking;
pub(super) mod holes;
pub(super) mod missing;
mod reassign;
mod resegment;
mod session;
pub(super) mod settlement;
mod snack;

use crate::error::{Disposition, Fault};
use crate::limits::MAX_RESENDS;
use crate::negotiation::Role;
use crate::{Time, earlier};
use iscsi_wire::{Cid, StatSn};

use super::actions::{CloseReason, violation};
use super::ledger::Sight;
use super::session::InitiatorSession;

impl InitiatorSession {
    /// Whether lost and damaged PDUs are requested again.
    pub(super) fn recovers(&self) -> bool {
        self.params.level().recovers_pdus()
    }

    /// Whether only one connection is lost for `reason`, and the others of the session may continue.
    pub(super) fn costs_one_connection(&self, reason: &CloseReason) -> bool {
        reason.fault().is_some_and(|fault| self.disposition(fault) == Disposition::DropConnection)
    }

    /// What to do about `fault`.
    pub(super) fn disposition(&self, fault: Fault) -> Disposition {
        Disposition::of(fault, self.params.level(), Role::Initiator)
    }

    /// When to check for lost PDUs if a task that is sent or reassigned now stays silent.
    pub(super) fn probe_time(&self) -> Option<Time> {
        self.recovers().then(|| self.now + self.config.probe_after)
    }

    /// Checks a StatSN; false when it has been seen before. Numbers missing before it will be requested.
    pub(super) fn see_stat_sn(&mut self, cid: Cid, stat_sn: StatSn) -> Result<bool, CloseReason> {
        let disposition = self.disposition(Fault::Missing);
        let ask_by = self.now + self.config.snack_delay;
        let Some(connection) = self.connection(cid) else { return Ok(false) };
        let due = connection.statuses.expected();
        if stat_sn == due {
            if connection.asking.due().is_some() {
                connection.asking.progress();
            }
            return Ok(true);
        }
        if disposition != Disposition::AskAgain {
            return Err(violation(
                "RFC 7143 7.9",
                format!("StatSN {stat_sn} where {due} was due: a status is missing"),
            ));
        }
        //= rfc7143 7.9 ERL-03
        match connection.statuses.see(stat_sn) {
            Sight::Fresh => {
                if connection.statuses.has_holes() {
                    connection.asking.wish(ask_by);
                }
                Ok(true)
            }
            Sight::Duplicate => Ok(false),
            Sight::TooFar => Err(violation(
                "RFC 7143 4.2.2.2",
                format!("StatSN {stat_sn} where {due} was due: too far ahead to be true"),
            )),
        }
    }

    /// A PDU without a status of its own reports that `next` is the next StatSN.
    pub(super) fn note_next_stat_sn(&mut self, cid: Cid, next: StatSn) {
        let ask_by = self.now + self.config.snack_delay;
        if !self.recovers() {
            return;
        }
        let Some(connection) = self.connection(cid) else { return };
        if next.gt(connection.statuses.expected())
            && connection.statuses.miss(StatSn(next.0.wrapping_sub(1))) == Sight::Fresh
            && connection.statuses.has_holes()
        {
            connection.asking.wish(ask_by);
        }
    }

    /// A PDU with the status `stat_sn` arrived damaged.
    //= rfc7143 7.8 DIG-12
    pub(super) fn status_damaged(&mut self, cid: Cid, stat_sn: StatSn) -> Result<(), CloseReason> {
        if !self.see_stat_sn(cid, stat_sn)? {
            return Ok(());
        }
        let ask_by = self.now + self.config.snack_delay;
        if let Some(connection) = self.connection(cid) {
            connection.statuses.miss(stat_sn);
            connection.asking.wish(ask_by);
        }
        Ok(())
    }

    /// When something is due for missing PDUs.
    #[inline]
    pub(super) fn recovery_due(&self) -> Option<Time> {
        if !self.recovers() {
            // No PDU is requested again: only tasks of a lost connection may be waiting.
            return self.settle_due();
        }
        self.missing_due()
    }

    /// [`Self::recovery_due`] where PDUs are requested again.
    fn missing_due(&self) -> Option<Time> {
        // A failed connection is left out: no requests are sent on it, so its due time would never pass.
        let serving = self.connections.iter().filter(|connection| connection.state.serves());
        let statuses = serving.filter_map(|connection| connection.asking.due()).min();
        let holed =
            self.missing.iter().filter_map(|itt| self.tasks.task(itt)).filter(|task| !task.route.orphan);
        let data = holed.filter_map(|task| task.holes.as_ref()?.asking.due());
        earlier(earlier(statuses, data.min()), earlier(self.retry_due(), self.settle_due()))
    }

    /// Does what is due for missing PDUs.
    pub(super) fn recover_on_time(&mut self) {
        self.send_snacks();
        self.retry_unacknowledged();
        self.settle();
    }

    fn retry_due(&self) -> Option<Time> {
        if !self.recovers() {
            return None;
        }
        self.any_connection()?;
        let patience = self.config.recovery_timeout * (1 + u32::from(self.window.retries()));
        self.window.unacknowledged_since().map(|since| since + patience)
    }

    /// Sends a command again that the target seems never to have received, with the same tag and CmdSN: only this command can
    /// fill the hole that others wait behind.
    //= rfc7143 7.2.1 NUM-12 MCS-07
    fn retry_unacknowledged(&mut self) {
        if self.retry_due().is_none_or(|at| at > self.now) {
            return;
        }
        let hole = self.window.first_unacknowledged();
        self.window.restart_patience(self.now);
        if self.window.retries() >= MAX_RESENDS {
            return;
        }
        let missing = self.tasks.commands().find(|(_, task)| task.cmd_sn == Some(hole) && !task.route.orphan);
        let Some((itt, _)) = missing else { return };
        self.window.count_retry();
        self.counters.commands_retried += 1;
        self.send_command(itt, hole);
    }
}
