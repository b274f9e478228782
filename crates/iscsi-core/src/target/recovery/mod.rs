//! What a target does above ErrorRecoveryLevel 0 (RFC 7143 7): `retained` keeps what may be asked for again, `snack`
//! answers who asks, `recovery_r2t` asks again for data that was lost, `reassign` moves tasks from a connection that is
//! gone to another one.
//!
//! At level 0 none of it holds anything.

pub(super) mod reassign;
pub(super) mod recovery_r2t;
pub(super) mod retained;
pub(super) mod snack;

/// What recovery has done in a session so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryCounts {
    /// SNACKs answered with what they asked for.
    pub snacks_answered: u64,
    /// SNACKs rejected.
    pub snacks_refused: u64,
    /// PDUs sent again for SNACKs.
    pub pdus_replayed: u64,
    /// R2Ts for data that was lost.
    pub r2ts_recovered: u64,
    /// Tasks that were taken over by another connection.
    pub tasks_reassigned: u64,
    /// Tasks that nobody took over in time.
    pub tasks_expired: u64,
    /// Connections that failed.
    pub connections_lost: u64,
}
