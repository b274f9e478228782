//! CmdSN and the command window of the target, seen from the initiator (RFC 7143 4.2.2.1).

use iscsi_wire::{CmdSn, ResponseNumbers};

use crate::Time;

/// CmdSN, ExpCmdSN and MaxCmdSN of a session.
#[derive(Debug)]
pub(super) struct CommandWindow {
    /// CmdSN of the next non-immediate command.
    next: CmdSn,
    exp_cmd_sn: CmdSn,
    max_cmd_sn: CmdSn,
    /// Since when the first unacknowledged command has been waiting.
    since: Time,
    /// How often that command was sent again.
    retries: u8,
}

impl CommandWindow {
    //= rfc7143 11.12.8 LGN-12
    pub(super) fn new(cmd_sn: CmdSn, max_cmd_sn: CmdSn) -> Self {
        let mut window = Self {
            next: cmd_sn,
            exp_cmd_sn: cmd_sn,
            max_cmd_sn: CmdSn(cmd_sn.0.wrapping_sub(1)),
            since: Time::ZERO,
            retries: 0,
        };
        window.update(cmd_sn, max_cmd_sn, Time::ZERO);
        window
    }

    /// The CmdSN of an immediate PDU sent now: it does not take the number.
    //= rfc7143 4.2.2.1 NUM-01
    pub(super) fn current(&self) -> CmdSn {
        self.next
    }

    /// True when the target accepts no further command now.
    //= rfc7143 4.2.2.1 NUM-06
    pub(super) fn is_closed(&self) -> bool {
        self.next.gt(self.max_cmd_sn)
    }

    /// Takes the CmdSN of a non-immediate command; `None` while the window is closed.
    //= rfc7143 4.2.2.1 NUM-01 NUM-06
    pub(super) fn take(&mut self, now: Time) -> Option<CmdSn> {
        if self.is_closed() {
            return None;
        }
        let cmd_sn = self.next;
        if cmd_sn == self.exp_cmd_sn {
            self.since = now;
        }
        self.next = cmd_sn.next();
        Some(cmd_sn)
    }

    /// Checks what holds after every event, where debug assertions are on.
    pub(super) fn check(&self) {
        debug_assert!(self.exp_cmd_sn.le(self.next), "the target has not received what was not sent");
        debug_assert!(self.next.le(self.max_cmd_sn.next()), "no command was sent outside of the window");
    }

    /// Whether the target has received the command numbered `cmd_sn`.
    pub(super) fn is_acknowledged(&self, cmd_sn: CmdSn) -> bool {
        cmd_sn.lt(self.exp_cmd_sn)
    }

    /// The number of the first command that the target has not acknowledged, if there is one.
    pub(super) fn first_unacknowledged(&self) -> CmdSn {
        self.exp_cmd_sn
    }

    /// Since when that command has been waiting; `None` when all are acknowledged.
    pub(super) fn unacknowledged_since(&self) -> Option<Time> {
        (self.exp_cmd_sn != self.next).then_some(self.since)
    }

    /// Restarts its wait at `now`.
    pub(super) fn restart_patience(&mut self, now: Time) {
        self.since = now;
    }

    /// How often the first unacknowledged command was sent again.
    pub(super) fn retries(&self) -> u8 {
        self.retries
    }

    /// The first unacknowledged command is sent again.
    pub(super) fn count_retry(&mut self) {
        self.retries += 1;
    }

    /// Takes the numbers of a received PDU.
    pub(super) fn hear(&mut self, numbers: ResponseNumbers, now: Time) {
        self.update(numbers.exp_cmd_sn, numbers.max_cmd_sn, now);
    }

    /// Takes ExpCmdSN and MaxCmdSN as the target says them. A pair that contradicts itself or acknowledges what was not sent is ignored, and
    /// an older one takes nothing back. The window never reaches so far that a serial number in it would be behind the next one.
    //= rfc7143 4.2.2.1 NUM-05
    pub(super) fn update(&mut self, exp_cmd_sn: CmdSn, max_cmd_sn: CmdSn, now: Time) {
        if max_cmd_sn.lt(CmdSn(exp_cmd_sn.0.wrapping_sub(1))) || exp_cmd_sn.gt(self.next) {
            return;
        }
        if exp_cmd_sn.gt(self.exp_cmd_sn) {
            self.exp_cmd_sn = exp_cmd_sn;
            (self.since, self.retries) = (now, 0);
        }
        if max_cmd_sn.gt(self.max_cmd_sn) && self.next.le(max_cmd_sn.next()) {
            self.max_cmd_sn = max_cmd_sn;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn num_05_an_older_or_contradictory_pair_never_shrinks_the_window() {
        for start in [0, 100, u32::MAX - 2] {
            let at = |n: u32| CmdSn(start).add(n);
            let mut window = CommandWindow::new(at(0), at(3));
            window.update(at(0), at(1), Time::ZERO);
            assert_eq!(
                (0..5).filter_map(|_| window.take(Time::ZERO)).count(),
                4,
                "0 to 3, whatever the older PDU said"
            );
            window.update(at(8), at(5), Time::ZERO);
            assert!(window.is_closed(), "MaxCmdSN below ExpCmdSN-1 counts for nothing");
            window.update(at(4), at(3), Time::ZERO);
            assert!(window.is_closed(), "MaxCmdSN = ExpCmdSN-1 is a closed window");
            assert!(window.is_acknowledged(at(3)) && !window.is_acknowledged(at(4)));
            window.update(at(4), at(4), Time::ZERO);
            assert_eq!(window.take(Time::ZERO), Some(at(4)));
            assert_eq!(window.take(Time::ZERO), None);
        }
    }

    #[test]
    fn num_05_a_hostile_pair_does_not_move_the_window_out_of_reach() {
        for start in [0, 100, u32::MAX - 2] {
            let at = |n: u32| CmdSn(start).add(n);
            let half = 1 << 31;
            for (exp, max) in [(200, half + 99), (1, half), (half + 2, half + 1), (half - 1, half - 2)] {
                let mut window = CommandWindow::new(at(0), at(100));
                assert_eq!(window.take(Time::ZERO), Some(at(0)));
                window.update(at(exp), at(max), Time::ZERO);
                window.check();
                assert!(!window.is_closed(), "{exp} {max}");
                assert_eq!(window.take(Time::ZERO), Some(at(1)));
            }
        }
    }
}
