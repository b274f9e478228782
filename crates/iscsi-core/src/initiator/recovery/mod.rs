//! Recovery above error recovery level 0 (RFC 7143 7).
//!
//! | file | what it repairs | level |
//! |---|---|---|
//! | [`snack`] | data, R2Ts and statuses that are missing or damaged | 1 |
//! | [`resegment`] | data that is missing after MaxRecvDataSegmentLength was lowered | 1 |
//! | this one | commands that never arrived: sent again with the same CmdSN | 1 |
//! | [`reassign`] | the tasks of a connection that is gone | any; reassigned at 2 |
//! | [`session`] | the commands of a session that is gone | 0 |

pub(super) mod reassign;
mod resegment;
pub(super) mod session;
pub(super) mod snack;

use std::time::Duration;

use crate::error::{Disposition, Fault};
use crate::limits::{MAX_RESENDS, MAX_SNACKS};
use crate::negotiation::Role;
use crate::{Time, earlier};
use iscsi_wire::{Cid, StatSn};

use super::actions::{CloseReason, violation};
use super::ledger::Sight;
use super::session::InitiatorSession;

/// State of the requests for missing numbers of one kind. They are sent after a short delay, so that one request covers a run,
/// and again if nothing arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Asking {
    /// When to request the numbers that were not requested yet.
    at: Option<Time>,
    /// When to request everything again.
    again_at: Option<Time>,
    /// Numbers before this one were requested.
    until: Option<u32>,
    tries: u8,
}

impl Asking {
    /// More numbers are missing: request them by `at`.
    pub(super) fn wish(&mut self, at: Time) {
        self.at = earlier(self.at, Some(at));
    }

    /// When a request is due.
    pub(super) fn due(&self) -> Option<Time> {
        earlier(self.at, self.again_at)
    }

    /// The number from which to send requests now, when those from `first` up to, not including, `end` may be missing. `None`:
    /// nothing is due.
    fn fire(
        &mut self,
        now: Time,
        first: u32,
        end: u32,
        again_after: Duration,
    ) -> Option<Result<u32, TooOften>> {
        if self.due().is_none_or(|at| at > now) {
            return None;
        }
        let again = self.again_at.is_some_and(|at| at <= now);
        let asked = self.until.filter(|until| !again && until.wrapping_sub(first) < 1 << 31);
        let from = asked.unwrap_or(first);
        if again {
            self.tries += 1;
        }
        if self.tries >= MAX_SNACKS {
            return Some(Err(TooOften));
        }
        (self.at, self.until) = (None, Some(end));
        // Numbers found missing later do not delay the repeated request for the earlier ones.
        if again || self.again_at.is_none() {
            self.again_at = Some(now + again_after);
        }
        Some(Ok(from))
    }

    /// Whether everything before `end` was requested.
    pub(super) fn covers(&self, end: u32) -> bool {
        self.due().is_some() && self.until.is_some_and(|until| until >= end)
    }

    /// Some of them have arrived: the tries start again.
    pub(super) fn progress(&mut self) {
        self.tries = 0;
    }
}

/// The same numbers were requested too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TooOften;

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
        let holed = self.missing.iter().filter_map(|itt| self.tasks.task(itt)).filter(|task| !task.orphan);
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
        let missing = self.tasks.commands().find(|(_, task)| task.cmd_sn == Some(hole) && !task.orphan);
        let Some((itt, _)) = missing else { return };
        self.window.count_retry();
        self.counters.commands_retried += 1;
        self.send_command(itt, hole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: ERL-03
    #[test]
    fn what_is_found_missing_later_does_not_put_off_asking_again() {
        let (start, patience) = (Time::default(), Duration::from_secs(1));
        let mut asking = Asking::default();
        asking.wish(start);
        assert_eq!(asking.fire(start, 120, 121, patience), Some(Ok(120)));
        // Each further hole is requested separately, until the request for the first one is repeated.
        for n in 1..4 {
            let now = start + Duration::from_millis(300) * n;
            asking.wish(now);
            assert_eq!(asking.fire(now, 120, 121 + n, patience), Some(Ok(120 + n)), "hole {n}");
        }
        let again = start + patience;
        assert_eq!(asking.due(), Some(again));
        assert_eq!(asking.fire(again, 120, 124, patience), Some(Ok(120)));
        // But not for ever.
        let mut tries = 1;
        while asking.fire(start + patience * (tries + 1), 120, 124, patience) == Some(Ok(120)) {
            tries += 1;
        }
        assert_eq!(tries, u32::from(MAX_SNACKS) - 1);
    }
}
