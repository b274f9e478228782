//! Recovery at a target above ErrorRecoveryLevel 0 (RFC 7143 7): `retained` keeps what may be requested again, `snack` answers
//! SNACKs, `recovery_r2t` requests lost data again, `reassign` moves tasks from a lost connection to another one.
//!
//! At level 0 none of them holds any state.

pub(super) mod reassign;
pub(super) mod recovery_r2t;
pub(super) mod retained;
mod retention;
pub(super) mod snack;

/// What recovery has done in a session so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryCounts {
    /// SNACKs answered with the PDUs they requested.
    pub snacks_answered: u64,
    /// SNACKs rejected.
    pub snacks_refused: u64,
    /// PDUs sent again for SNACKs.
    pub pdus_replayed: u64,
    /// R2Ts for data that was lost.
    pub r2ts_recovered: u64,
    /// Tasks that were reassigned to another connection.
    pub tasks_reassigned: u64,
    /// Tasks that were not reassigned in time.
    pub tasks_expired: u64,
    /// Connections that failed.
    pub connections_lost: u64,
}
