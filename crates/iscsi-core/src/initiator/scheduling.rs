//! How commands are spread over connections, and whose turn it is.

use std::time::Duration;

/// How commands are spread over the connections of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduling {
    /// The connection that has the most bytes outstanding and still has room (`FILL_BYTES`, and more where commands complete
    /// within `PROMPT`); if none has room, the one with the fewest. Small commands stay together: one system call sends them, one
    /// receives them at the target, and one brings the answers, so that connections that are not needed cost nothing. Large or
    /// slow commands are spread.
    #[default]
    FillFirst,
    /// The connection with the fewest bytes outstanding.
    LeastOutstandingBytes,
    /// Each connection in turn, as in the paper of 2005.
    RoundRobin,
}

/// Most bytes that one connection has outstanding before the next is needed: 113 commands of 4 KiB, three of 128 KiB.
pub(crate) const FILL_BYTES: u64 = 512 * 1024;
/// A connection that completes its commands within this time is not the bottleneck: it is given more before the next is used.
pub(crate) const PROMPT: Duration = Duration::from_millis(1);
/// Most bytes that a connection is given in addition.
pub(crate) const EARNED_BYTES_MAX: u64 = 1536 * 1024;
/// Each prompt command earns this fraction of its weight; a late one forfeits everything earned.
pub(super) const EARNED_PART: u64 = 16;
/// Bytes that a session has outstanding before it needs all of its connections for commands, if there are more than four.
pub(crate) const FILL_ALL_BYTES: u64 = 2 * 1024 * 1024;

/// Weight of a command in addition to its data, bytes, so that commands without data are spread too.
pub(super) const COMMAND_WEIGHT_BYTES: u64 = 512;

/// Whose turn it is, among the connections of a session.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turns {
    /// Index of the connection whose turn is next.
    next: usize,
}

impl Turns {
    /// The indices of `n` connections, beginning with the one whose turn is next.
    pub(crate) fn order(self, n: usize) -> impl Iterator<Item = usize> {
        let first = self.next.checked_rem(n).unwrap_or(0);
        (0..n).map(move |k| (first + k) % n)
    }

    /// The connection used last, if there was one.
    pub(crate) fn last(self) -> Option<usize> {
        self.next.checked_sub(1)
    }

    /// The connection at `at` is used.
    pub(crate) fn take(&mut self, at: usize) {
        self.next = at + 1;
    }
}
