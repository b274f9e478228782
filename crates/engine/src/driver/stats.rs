//! What a driver counts.

/// System calls made and bytes moved, for benches and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EpollStats {
    /// Calls of epoll_wait.
    pub polls: u64,
    /// Receive calls, including those that found nothing.
    pub receives: u64,
    /// Receive calls that found nothing.
    pub empty_receives: u64,
    /// Send calls.
    pub sends: u64,
    /// Bytes received and sent.
    pub bytes: u64,
}
