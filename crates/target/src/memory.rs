//! The memory for data in flight, `limits.buffer_bytes_max`, and how it is divided.
//!
//! | part | for | shared by |
//! |---|---|---|
//! | half | data of started commands, from before the first R2T or read until all is sent or the status is due | all shards: [`Pool`] |
//! | a quarter | unsolicited data of commands that have not started | each shard has its share |
//! | an eighth | Data-In that is kept until it is acknowledged | each session has its share of the shard's |
//! | an eighth | short commands of sessions that find no room in the first part | each session has its own: [`reserve_bytes`] |
//!
//! A command gets all of its memory before it starts, and none later. So a command that holds memory never waits for more, and every
//! waiting command is served in the end. Data in the second part waits for the first part; data that does not fit into the second
//! is discarded, and its command ends with BUSY or TASK SET FULL. Data in the third part gives way. The fourth part is reserved for
//! its session: whatever others do with the first part, a session can execute its short reads and writes.
//!
//! A shard leases more from the pool than one command needs, so that far from the limit a command only costs an addition and a
//! comparison. When a shard must wait, the others return their unused memory. Waiting shards are served first come, first served.
//!
//! These parts count the bytes of data. A byte also pins the whole buffer in which it lies. Buffers come from the rings of the
//! shards, which together hold no more than `limits.buffer_bytes_max`; beyond that, only copies of the exact length are kept
//! ([`engine::slab::Pins`]). So data in flight takes at most twice the limit.
//!
//! In addition, each connection has memory that is not accounted here: a receive buffer, and queued PDUs other than the data of
//! reads, [`answer_bytes_max`]. `limits.max_connections` bounds these, and [`ANONYMOUS`] those of unauthenticated peers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use iscsi_core::limits::LOGIN_DATA_SEGMENT_BYTES;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::observe::metrics::ShardMemory;

/// The longest transfer of a unit, if the memory for data is at least four times as large, bytes.
const TRANSFER_BYTES_MAX: u64 = 32 << 20;
/// What protection information may add to the longest transfer, bytes: a tuple for each block of 512.
const TUPLES_BYTES_MAX: u64 = TRANSFER_BYTES_MAX / 512 * 8;

/// Maximum reserve of a session for short commands, bytes.
const RESERVE_BYTES_MAX: u64 = 64 << 10;
/// Maximum queue of a connection, without the data of reads, however much memory there is, bytes.
const ANSWER_BYTES_MAX: usize = 256 << 10;
/// Minimum number of discovery sessions per shard, however many shards there are.
const DISCOVERY_SESSIONS_MIN: usize = 4;
/// Minimum number of connections without a session per shard, however small the limit of connections is.
const LOGINS_MIN: usize = 16;

/// Memory of all shards together for commands that have started: half of `bytes_max`.
fn pool_bytes(bytes_max: u64) -> u64 {
    (bytes_max / 2).max(1024)
}

/// Memory of a shard for data of commands that have not started, and half as much for the Data-In that it keeps, bytes.
pub(crate) fn share_bytes(bytes_max: u64, shards: usize) -> u64 {
    (bytes_max / 4 / shards.max(1) as u64).max(512)
}

/// MAXIMUM TRANSFER LENGTH of every unit, bytes: together with its protection information it fits into the memory for data, however
/// small that is.
pub(crate) fn transfer_bytes_max(bytes_max: u64) -> u64 {
    let half = pool_bytes(bytes_max) / 2;
    TRANSFER_BYTES_MAX.min(1 << half.ilog2())
}

/// Maximum memory for a command: a command that claims more gets at most this much.
pub(crate) fn command_bytes_max(bytes_max: u64) -> u64 {
    pool_bytes(bytes_max).min(TRANSFER_BYTES_MAX + TUPLES_BYTES_MAX)
}

/// A session's reserve for short commands when there is no room in the pool, bytes.
pub(crate) fn reserve_bytes(bytes_max: u64, max_sessions: usize) -> u64 {
    (bytes_max / 8 / max_sessions.max(1) as u64).min(RESERVE_BYTES_MAX)
}

/// Maximum queue of a connection, without the data of reads, before nothing more is received from it, bytes.
pub(crate) fn answer_bytes_max(bytes_max: u64, max_connections: usize) -> usize {
    let each = bytes_max / 4 / max_connections.max(1) as u64;
    usize::try_from(each).unwrap_or(ANSWER_BYTES_MAX).clamp(ANONYMOUS.answer_bytes, ANSWER_BYTES_MAX)
}

/// Limits for peers that need not authenticate, all together and each: they must not obstruct hosts that do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ration {
    /// Concurrent discovery sessions, over all shards; the oldest makes room for a new one. None lasts longer than a login may:
    /// `limits.login_timeout`.
    pub discovery_sessions: usize,
    /// MaxRecvDataSegmentLength declared in a discovery session, bytes: the same as during login.
    pub data_segment_bytes: u32,
    /// Maximum queue of a connection before nothing more is received from it, bytes.
    pub answer_bytes: usize,
}

/// See [`Ration`].
pub(crate) const ANONYMOUS: Ration = Ration {
    discovery_sessions: 64,
    data_segment_bytes: LOGIN_DATA_SEGMENT_BYTES as u32,
    answer_bytes: 16 << 10,
};

impl Ration {
    /// Discovery sessions of each of `shards`.
    pub(crate) fn discovery_sessions_of_each(&self, shards: usize) -> usize {
        (self.discovery_sessions / shards.max(1)).max(DISCOVERY_SESSIONS_MIN)
    }
}

/// Maximum number of connections of one shard without a session. Those of all shards leave half of `limits.max_connections` to
/// sessions; a few are always allowed.
pub(crate) fn logins_max(max_logins: usize, max_connections: usize, shards: usize) -> usize {
    max_logins.min((max_connections / 2 / shards.max(1)).max(LOGINS_MIN))
}

/// The memory that is lent to the shards; see the module.
#[derive(Debug)]
pub(crate) struct Pool {
    max: u64,
    /// A shard waits: no shard may keep unused memory.
    is_wanted: AtomicBool,
    books: Mutex<Books>,
}

#[derive(Debug)]
struct Books {
    free: u64,
    /// Waiting shards and the amounts they need, in order.
    waiting: VecDeque<(usize, u64)>,
}

/// Memory granted to waiting shards: shard, bytes.
pub(crate) type Grants = SmallVec<[(usize, u64); 2]>;

impl Pool {
    /// The pool of a server with `bytes_max` for all data.
    pub(crate) fn new(bytes_max: u64) -> Self {
        let max = pool_bytes(bytes_max);
        let books = Mutex::new(Books { free: max, waiting: VecDeque::new() });
        Self { max, is_wanted: AtomicBool::new(false), books }
    }

    fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// Lends at least `least` bytes, `better` if that many are free, unless a shard waits.
    fn lend(&self, least: u64, better: u64) -> u64 {
        let mut books = self.books.lock();
        let lent = match books.free {
            _ if !books.waiting.is_empty() => 0,
            free if free >= better => better,
            free if free >= least => least,
            _ => 0,
        };
        books.free -= lent;
        lent
    }

    /// Takes `back`, and puts `shard` at the end of the queue, for `bytes`. True when no shard waited before.
    fn wait(&self, shard: usize, bytes: u64, back: u64) -> (bool, Grants) {
        let mut books = self.books.lock();
        let first = books.waiting.is_empty();
        books.waiting.push_back((shard, bytes));
        self.is_wanted.store(true, Ordering::Relaxed);
        (first, self.grant(&mut books, back))
    }

    fn give_back(&self, bytes: u64) -> Grants {
        self.grant(&mut self.books.lock(), bytes)
    }

    fn grant(&self, books: &mut Books, bytes: u64) -> Grants {
        books.free += bytes;
        let mut grants = Grants::new();
        while let Some(&(shard, wanted)) = books.waiting.front()
            && wanted <= books.free
        {
            books.free -= wanted;
            books.waiting.pop_front();
            grants.push((shard, wanted));
        }
        if books.waiting.is_empty() {
            self.is_wanted.store(false, Ordering::Relaxed);
        }
        grants
    }
}

/// A shard's part of the pool.
#[derive(Debug)]
pub(crate) struct Lease {
    pool: Arc<Pool>,
    shard: usize,
    /// Leased at a time, bytes; up to twice as much is kept unused.
    quantum: u64,
    leased: u64,
    used: u64,
    /// It is in the pool's queue.
    waits: bool,
    shown: Arc<ShardMemory>,
}

/// Messages for other shards.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ShardMessages {
    /// Memory granted to them, by shard.
    pub grants: Grants,
    /// All shards must return their unused memory.
    pub call_back: bool,
}

impl Lease {
    /// Nothing leased yet, for shard number `shard` of `shards`.
    pub(crate) fn new(pool: Arc<Pool>, shard: usize, shards: usize, shown: Arc<ShardMemory>) -> Self {
        let quantum = pool.max / (16 * shards.max(1) as u64);
        Self { pool, shard, quantum, leased: 0, used: 0, waits: false, shown }
    }

    /// Whether any shard waits.
    pub(crate) fn is_wanted(&self) -> bool {
        self.pool.is_wanted()
    }

    /// The total for all shards, bytes.
    pub(crate) fn max(&self) -> u64 {
        self.pool.max
    }

    /// Takes `bytes` for a command, if they are available at once.
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        if self.used + bytes > self.leased {
            let least = self.used + bytes - self.leased;
            self.leased += self.pool.lend(least, least + self.quantum);
            if self.used + bytes > self.leased {
                return false;
            }
        }
        self.used += bytes;
        self.shown.commands_bytes.store(self.used, Ordering::Relaxed);
        true
    }

    /// Waits for `bytes`, if it does not wait already.
    pub(crate) fn wait_for(&mut self, bytes: u64) -> ShardMessages {
        if std::mem::replace(&mut self.waits, true) {
            return ShardMessages::default();
        }
        let unused = std::mem::replace(&mut self.leased, self.used) - self.used;
        let (call_back, grants) = self.pool.wait(self.shard, bytes, unused);
        ShardMessages { grants, call_back }
    }

    /// Whether the memory for which it waits has not been granted yet.
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    /// Takes the memory for which it waited.
    pub(crate) fn granted(&mut self, bytes: u64) {
        self.waits = false;
        self.leased += bytes;
    }

    /// Commands have finished with `bytes`.
    pub(crate) fn give(&mut self, bytes: u64) -> Grants {
        self.used -= bytes;
        self.shown.commands_bytes.store(self.used, Ordering::Relaxed);
        if self.leased - self.used > 2 * self.quantum || self.pool.is_wanted() {
            return self.give_unused();
        }
        Grants::new()
    }

    /// Returns the memory that no command uses, if a shard waits for it.
    pub(crate) fn give_unused_if_wanted(&mut self) -> Grants {
        if self.pool.is_wanted() { self.give_unused() } else { Grants::new() }
    }

    /// Returns the memory that no command uses.
    pub(crate) fn give_unused(&mut self) -> Grants {
        let unused = std::mem::replace(&mut self.leased, self.used) - self.used;
        if unused > 0 { self.pool.give_back(unused) } else { Grants::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 64 << 10;

    fn leases(shards: usize) -> (Arc<Pool>, Vec<Lease>) {
        let pool = Arc::new(Pool::new(2 * MAX));
        let lease = |n| Lease::new(Arc::clone(&pool), n, shards, Arc::default());
        let leases = (0..shards).map(lease).collect();
        (pool, leases)
    }

    fn deliver(leases: &mut [Lease], grants: Grants) {
        grants.into_iter().for_each(|(shard, bytes)| leases[shard].granted(bytes));
    }

    fn lent(leases: &[Lease]) -> u64 {
        leases.iter().map(|lease| lease.leased).sum()
    }

    #[test]
    fn what_is_lent_is_never_more_than_there_is_and_comes_back_whole() {
        let (pool, mut leases) = leases(3);
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut held, mut taken) = ([const { Vec::new() }; 3], 0);
        for _ in 0..20_000 {
            let n = rng.usize(..3);
            let bytes = rng.u64(1..MAX / 4);
            let grants = match rng.u8(..3) {
                0 if leases[n].take(bytes) => {
                    held[n].push(bytes);
                    taken += 1;
                    continue;
                }
                0 => leases[n].wait_for(bytes).grants,
                1 if !held[n].is_empty() => {
                    let at = rng.usize(..held[n].len());
                    let back = held[n].swap_remove(at);
                    leases[n].give(back)
                }
                1 => continue,
                _ => leases[n].give_unused(),
            };
            deliver(&mut leases, grants);
            assert_eq!(lent(&leases) + pool.books.lock().free, MAX);
            for (lease, held) in leases.iter().zip(&held) {
                assert_eq!(lease.used, held.iter().sum::<u64>());
                assert!(lease.leased >= lease.used);
            }
        }
        assert!(taken > 1000, "{taken}");
        for (n, held) in held.into_iter().enumerate() {
            for bytes in held {
                let grants = leases[n].give(bytes);
                deliver(&mut leases, grants);
            }
        }
        for n in 0..3 {
            let grants = leases[n].give_unused();
            deliver(&mut leases, grants);
        }
        // Granted last, to a shard that no longer needs it.
        (0..3).for_each(|n| drop(leases[n].give_unused()));
        assert_eq!(pool.books.lock().free, MAX);
        assert!(!pool.is_wanted());
    }

    #[test]
    fn who_waits_first_is_served_first_also_when_it_wants_more() {
        let (_, mut leases) = leases(3);
        assert!(leases[0].take(MAX));
        assert!(!leases[1].take(MAX / 2) && !leases[2].take(1));
        assert_eq!(leases[1].wait_for(MAX / 2), ShardMessages { grants: Grants::new(), call_back: true });
        assert_eq!(leases[2].wait_for(1), ShardMessages { grants: Grants::new(), call_back: false });
        assert!(leases[0].give(MAX / 4).is_empty(), "the first one is not passed");
        assert!(!leases[0].take(1), "nobody takes anything while others wait");
        let grants = leases[0].give(MAX / 4 + 1);
        assert_eq!(&grants[..], &[(1, MAX / 2), (2, 1)]);
        deliver(&mut leases, grants);
        assert!(leases[1].take(MAX / 2) && leases[2].take(1));
    }

    #[test]
    fn what_a_shard_does_not_use_it_gives_to_who_waits() {
        let (pool, mut leases) = leases(2);
        assert!(leases[0].take(100));
        let unused = leases[0].leased - 100;
        assert!(unused > 0, "it leases for more than one command");
        let all = MAX - 100;
        assert!(!leases[1].take(all));
        assert!(leases[1].wait_for(all).call_back);
        let grants = leases[0].give_unused();
        assert_eq!(&grants[..], &[(1, all)]);
        deliver(&mut leases, grants);
        assert!(leases[1].take(all) && !leases[1].waits());
        assert_eq!(pool.books.lock().free, 0);
        // A waiting shard is also served from the memory that it returns itself.
        assert!(leases[1].wait_for(200).grants.is_empty());
        assert_eq!(&leases[1].give(200)[..], &[(1, 200)]);
    }

    #[test]
    fn the_longest_command_fits_however_little_there_is() {
        for bytes_max in [0, 4096, 1 << 20, 16 << 20, 100 << 20, 1 << 30, 1 << 50] {
            let (transfer, pool) = (transfer_bytes_max(bytes_max), Pool::new(bytes_max).max);
            assert!(transfer >= 512 && transfer + transfer / 64 <= pool, "{bytes_max}");
            assert!(transfer + transfer / 64 <= command_bytes_max(bytes_max));
            for shards in [1, 3, 64] {
                let shares = shards as u64 * share_bytes(bytes_max, shards) * 3 / 2;
                let reserves = 1024 * reserve_bytes(bytes_max, 1024);
                assert!(bytes_max < 1 << 20 || pool + shares + reserves <= bytes_max);
            }
        }
        assert_eq!(transfer_bytes_max(1 << 30), 32 << 20);
    }

    #[test]
    fn what_connections_and_sessions_have_of_their_own_follows_from_how_many_there_may_be() {
        let answers = [16 << 10, 64 << 10, 256 << 10];
        assert_eq!([64 << 20, 1 << 30, 1 << 40].map(|bytes| answer_bytes_max(bytes, 4096)), answers);
        assert!(reserve_bytes(64 << 20, 2000) >= 4096, "a session has a short read of its own");
        assert_eq!(reserve_bytes(1 << 30, 1), RESERVE_BYTES_MAX);
        // Peers without a session leave half of all connections to sessions, however many shards there are.
        assert_eq!([1, 2, 16, 64].map(|shards| logins_max(256, 4096, shards)), [256, 256, 128, 32]);
        assert_eq!(logins_max(256, 5, 8), LOGINS_MIN);
        assert_eq!([1, 2, 64].map(|shards| ANONYMOUS.discovery_sessions_of_each(shards)), [64, 32, 4]);
    }
}
