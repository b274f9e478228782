//! The command window of one session: which CmdSNs are accepted, and in which order commands run (RFC 7143 4.2.2.1).
//!
//! A command runs once every earlier one has been received. One that arrives early waits in `held`, whose size the window bounds.
//! One outside the window, or a duplicate, is silently ignored, as the RFC requires. `MaxCmdSN` never goes back.

use std::collections::VecDeque;

use iscsi_wire::CmdSn;

/// More would make "before" and "after" ambiguous (RFC 1982).
const MAX_SIZE: u32 = (1 << 31) - 1;

/// What to do with a command that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It is the next one, and counts as received: run it, then call [`CommandWindow::next_ready`].
    Run,
    /// An earlier number is missing: pass it to [`CommandWindow::hold`].
    Early,
    /// Duplicate or outside the window.
    Ignored,
}

/// See the module.
#[derive(Debug)]
pub struct CommandWindow<T> {
    exp: CmdSn,
    max: CmdSn,
    /// `max` as last announced to the initiator.
    announced: CmdSn,
    size: u32,
    /// `held[i]` belongs to CmdSN `exp + i`; the first is always missing, or it would have run.
    held: VecDeque<Slot<T>>,
}

/// What is known about a CmdSN.
///
/// ```text
///   Missing ──arrives early──► Waiting ──its turn──► (run)
///      └──────aborted────────────┴───► Gone ──its turn──► (nothing)
/// ```
#[derive(Debug)]
enum Slot<T> {
    Missing,
    Waiting(T),
    /// Received and already dealt with: aborted before it could run.
    Gone,
}

impl<T> CommandWindow<T> {
    /// A window of `size` commands that begins at `first`. Serial numbers limit it to 1 to 2^31 - 1 commands.
    pub fn new(first: CmdSn, size: u32) -> Self {
        let size = size.clamp(1, MAX_SIZE);
        let max = first.add(size - 1);
        Self { exp: first, max, announced: max, size, held: VecDeque::new() }
    }

    /// ExpCmdSN.
    pub fn exp_cmd_sn(&self) -> CmdSn {
        self.exp
    }

    /// MaxCmdSN.
    pub fn max_cmd_sn(&self) -> CmdSn {
        self.max
    }

    /// ExpCmdSN and MaxCmdSN, which the initiator is about to be told.
    #[inline]
    pub fn announce(&mut self) -> (CmdSn, CmdSn) {
        self.announced = self.max;
        (self.exp, self.max)
    }

    /// Whether the initiator, by what it was told, may send no further command.
    pub fn is_announced_closed(&self) -> bool {
        self.announced.next() == self.exp
    }

    /// True when the window is closed: the initiator may send no further command.
    pub fn is_closed(&self) -> bool {
        self.max.next() == self.exp
    }

    /// Limits the outstanding commands to `size` from now on, 1 to 2^31 - 1. A window that has been announced is not taken back.
    pub fn limit(&mut self, size: u32) {
        self.size = size.clamp(1, MAX_SIZE);
    }

    /// Widens the window, given `live` commands that have started and not ended.
    //= rfc7143 4.2.2.1 NUM-05
    pub fn reopen(&mut self, live: usize) {
        let room = self.size.saturating_sub(live as u32);
        let candidate = CmdSn(self.exp.0.wrapping_add(room).wrapping_sub(1));
        if candidate.gt(self.max) {
            self.max = candidate;
        }
    }

    /// Whether a non-immediate command with `cmd_sn` would be accepted.
    pub fn admits(&self, cmd_sn: CmdSn) -> bool {
        // Distances, not comparisons: a number 2^31 ahead is neither before nor after, and must not be used as an index.
        if self.is_closed() || self.exp.distance_to(cmd_sn) > self.exp.distance_to(self.max) {
            return false;
        }
        let ahead = self.exp.distance_to(cmd_sn) as usize;
        matches!(self.held.get(ahead), None | Some(Slot::Missing))
    }

    /// Receives the number of a non-immediate command.
    //= rfc7143 4.2.2.1 NUM-02 NUM-03 NUM-04 MCS-08
    pub fn arrive(&mut self, cmd_sn: CmdSn) -> Arrival {
        if !self.admits(cmd_sn) {
            return Arrival::Ignored;
        }
        if cmd_sn != self.exp {
            return Arrival::Early;
        }
        self.advance();
        Arrival::Run
    }

    /// Holds a command that arrived early until its turn.
    //= rfc7143 4.2.2.1 NUM-02
    pub fn hold(&mut self, cmd_sn: CmdSn, command: T) {
        if self.admits(cmd_sn) {
            *self.slot(self.exp.distance_to(cmd_sn)) = Slot::Waiting(command);
        }
    }

    /// The next held command whose turn has come.
    pub fn next_ready(&mut self) -> Option<T> {
        while let Some(Slot::Waiting(_) | Slot::Gone) = self.held.front() {
            if let Slot::Waiting(command) = self.advance() {
                return Some(command);
            }
        }
        None
    }

    /// Counts `cmd_sn` as received without a command: an ABORT TASK covered it.
    //= rfc7143 11.6.1 TMF-02
    pub fn count_as_received(&mut self, cmd_sn: CmdSn) {
        if !self.admits(cmd_sn) {
            return;
        }
        match self.exp.distance_to(cmd_sn) {
            0 => drop(self.advance()),
            ahead => *self.slot(ahead) = Slot::Gone,
        }
    }

    /// Removes held commands that `matches` selects, counts them as received, and returns them.
    pub fn remove_held(&mut self, mut matches: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut removed = Vec::new();
        for slot in &mut self.held {
            if let Slot::Waiting(command) = slot
                && matches(command)
                && let Slot::Waiting(command) = std::mem::replace(slot, Slot::Gone)
            {
                removed.push(command);
            }
        }
        removed
    }

    /// Held commands, in no particular order.
    pub fn held(&self) -> impl Iterator<Item = &T> {
        self.held.iter().filter_map(|slot| match slot {
            Slot::Waiting(command) => Some(command),
            _ => None,
        })
    }

    /// Checks what holds after every event, where debug assertions are on.
    pub fn check(&self) {
        debug_assert!(self.announced.le(self.max), "MaxCmdSN never goes back");
        debug_assert!(self.max.next().ge(self.exp), "no command outside the window was taken");
        debug_assert!(self.held.len() <= MAX_SIZE as usize, "the window bounds what is held");
        debug_assert!(!matches!(self.held.front(), Some(Slot::Waiting(_))), "a command missed its turn");
    }

    fn slot(&mut self, ahead: u32) -> &mut Slot<T> {
        let index = ahead as usize;
        while self.held.len() <= index {
            self.held.push_back(Slot::Missing);
        }
        &mut self.held[index]
    }

    /// ExpCmdSN has been received: moves the start of the window, and `held` with it, by one.
    fn advance(&mut self) -> Slot<T> {
        self.exp = self.exp.next();
        self.held.pop_front().unwrap_or(Slot::Missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command arrives, and is held if it is early.
    fn arrive<T>(window: &mut CommandWindow<T>, cmd_sn: CmdSn, command: T) -> Arrival {
        let arrival = window.arrive(cmd_sn);
        if arrival == Arrival::Early {
            window.hold(cmd_sn, command);
        }
        arrival
    }

    // covers: NUM-02
    #[test]
    fn num_02_commands_wait_for_holes() {
        let mut window = CommandWindow::new(CmdSn(5), 8);
        assert_eq!(arrive(&mut window, CmdSn(6), 6), Arrival::Early);
        assert_eq!(arrive(&mut window, CmdSn(8), 8), Arrival::Early);
        assert_eq!(window.next_ready(), None);
        assert_eq!(arrive(&mut window, CmdSn(5), 5), Arrival::Run);
        assert_eq!(window.next_ready(), Some(6));
        assert_eq!(window.next_ready(), None);
        assert_eq!(window.exp_cmd_sn(), CmdSn(7));
        assert_eq!(arrive(&mut window, CmdSn(7), 7), Arrival::Run);
        assert_eq!(window.next_ready(), Some(8));
        assert_eq!(window.exp_cmd_sn(), CmdSn(9));
    }

    // covers: NUM-03 NUM-04
    #[test]
    fn num_03_outside_and_duplicates_are_ignored_across_the_wrap() {
        let first = CmdSn(0xffff_fffd);
        let mut window = CommandWindow::new(first, 4);
        assert_eq!(window.max_cmd_sn(), CmdSn(0));
        assert_eq!(arrive(&mut window, CmdSn(1), 'x'), Arrival::Ignored);
        assert_eq!(arrive(&mut window, CmdSn(0xffff_fffc), 'x'), Arrival::Ignored);
        assert_eq!(arrive(&mut window, CmdSn(0xffff_ffff), 'b'), Arrival::Early);
        assert_eq!(arrive(&mut window, CmdSn(0xffff_ffff), 'c'), Arrival::Ignored);
        assert_eq!(arrive(&mut window, first, 'a'), Arrival::Run);
        assert_eq!(arrive(&mut window, first, 'a'), Arrival::Ignored);
        assert_eq!(arrive(&mut window, CmdSn(first.0.wrapping_add(1 << 31)), 'z'), Arrival::Ignored);
    }

    // covers: NUM-03 NUM-04
    #[test]
    fn num_04_half_the_numbers_away_is_outside_a_window_of_one() {
        let mut window = CommandWindow::new(CmdSn(10), 1);
        assert_eq!(arrive(&mut window, CmdSn(10 + (1 << 31)), 'x'), Arrival::Ignored);
        assert_eq!(window.held().count(), 0);
        assert_eq!(arrive(&mut window, CmdSn(10), 'a'), Arrival::Run);
        assert!(window.is_closed());
        assert_eq!(arrive(&mut window, CmdSn(11), 'b'), Arrival::Ignored);
    }

    #[test]
    fn a_window_of_no_commands_has_one() {
        let mut window = CommandWindow::new(CmdSn(0), 0);
        assert_eq!(arrive(&mut window, CmdSn(0), 'a'), Arrival::Run);
    }

    // covers: NUM-05
    #[test]
    fn num_05_max_never_shrinks() {
        let mut window = CommandWindow::<()>::new(CmdSn(10), 4);
        window.reopen(4);
        assert_eq!(window.max_cmd_sn(), CmdSn(13));
        for sn in 10..14 {
            assert_eq!(arrive(&mut window, CmdSn(sn), ()), Arrival::Run);
        }
        window.reopen(4);
        assert!(window.is_closed());
        assert_eq!(arrive(&mut window, CmdSn(14), ()), Arrival::Ignored);
        window.reopen(2);
        assert_eq!(window.max_cmd_sn(), CmdSn(15));
    }

    // covers: NUM-05
    #[test]
    fn num_05_a_window_that_is_limited_closes_by_and_by_and_never_below_one() {
        let mut window = CommandWindow::<()>::new(CmdSn(10), 4);
        window.limit(0);
        window.reopen(0);
        assert_eq!(window.max_cmd_sn(), CmdSn(13));
        for sn in 10..14 {
            assert_eq!(arrive(&mut window, CmdSn(sn), ()), Arrival::Run);
        }
        window.reopen(1);
        assert!(window.is_closed());
        window.reopen(0);
        assert_eq!(window.max_cmd_sn(), CmdSn(14));
        window.limit(4);
        window.reopen(0);
        assert_eq!(window.max_cmd_sn(), CmdSn(17));
    }

    // covers: TMF-02
    #[test]
    fn tmf_02_an_aborted_number_fills_its_hole() {
        let mut window = CommandWindow::new(CmdSn(0), 8);
        assert_eq!(arrive(&mut window, CmdSn(2), 2), Arrival::Early);
        window.count_as_received(CmdSn(1));
        assert_eq!(window.next_ready(), None);
        window.count_as_received(CmdSn(0));
        assert_eq!(window.next_ready(), Some(2));
        assert_eq!(window.exp_cmd_sn(), CmdSn(3));
    }
}
