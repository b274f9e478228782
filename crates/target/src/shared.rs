//! The state shared by all shards: the targets, the limits of the whole process, and the shards' mailboxes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use engine::{Platform, Sender};
use iscsi_core::names::IscsiName;
use iscsi_core::send_order::SendOrder;
use iscsi_core::target::session::SessionConfig;
use iscsi_core::wire::{Isid, Tsih};
use parking_lot::Mutex;

use crate::config::PortalConfig;
use crate::home::{Home, Homes};
use crate::memory::Pool;
use crate::observe::Observe;
use crate::registry::TargetSet;
use crate::shard::message::Message;
use crate::units::OpenStore;

/// Maximum number of our challenges that are remembered, to recognize them when they are reflected.
const MAX_CHALLENGES: usize = 4096;

/// See the module.
pub(crate) struct Shared<P: Platform> {
    /// What is served.
    pub set: ArcSwap<TargetSet>,
    /// The platform on which everything runs.
    pub platform: P,
    /// Log of logins, and metrics.
    pub observe: Arc<Observe>,
    /// Listening portals, with their actual addresses.
    pub portals: ArcSwap<Vec<PortalConfig>>,
    /// Opens stores.
    pub open: OpenStore,
    /// True since the server was told to shut down.
    pub shutting_down: AtomicBool,
    /// Shards that accept no more connections and have dropped those that were logging in.
    pub closed_doors: AtomicUsize,
    /// True if the server ended although commands were still in their stores.
    pub gave_up: AtomicBool,
    /// Connections, including logins.
    pub connections: AtomicUsize,
    /// Sessions, without discovery sessions.
    pub sessions: AtomicUsize,
    /// Sessions that have lost their last connection and wait for their initiators.
    pub lost_sessions: AtomicUsize,
    /// Memory for the data of commands.
    pub(crate) pool: Arc<Pool>,
    /// For tests: in which order sessions send data where any is allowed.
    send_order: OnceLock<SendOrder>,
    shards: OnceLock<Vec<Sender<Message<P::Driver>>>>,
    homes: Homes,
    tsihs: Mutex<TsihPool>,
    challenges: Mutex<VecDeque<Vec<u8>>>,
}

impl<P: Platform> Shared<P> {
    /// For a server that serves `set` on `platform`.
    pub(crate) fn new(platform: P, set: TargetSet, observe: Arc<Observe>, open: OpenStore) -> Self {
        let bytes_max = set.config.limits.buffer_bytes_max;
        observe.metrics.set_memory_limit(bytes_max);
        let mut first_tsih = [0; 2];
        platform.fill_random(&mut first_tsih);
        Self {
            platform,
            pool: Arc::new(Pool::new(bytes_max)),
            set: ArcSwap::from_pointee(set),
            observe,
            portals: ArcSwap::default(),
            open,
            shutting_down: AtomicBool::new(false),
            closed_doors: AtomicUsize::new(0),
            gave_up: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            sessions: AtomicUsize::new(0),
            lost_sessions: AtomicUsize::new(0),
            send_order: OnceLock::new(),
            shards: OnceLock::new(),
            homes: Homes::default(),
            tsihs: Mutex::new(TsihPool::after(u16::from_ne_bytes(first_tsih))),
            challenges: Mutex::default(),
        }
    }

    /// Sets the order in which sessions send data where any is allowed. The first call counts.
    pub(crate) fn set_send_order(&self, order: SendOrder) {
        let _ = self.send_order.set(order);
    }

    /// The settings of a session before its target's are known.
    pub(crate) fn session_config(&self) -> SessionConfig {
        SessionConfig {
            send_order: self.send_order.get().cloned().unwrap_or_default(),
            ..SessionConfig::default()
        }
    }

    /// Makes the shards known to each other, once.
    pub(crate) fn set_shards(&self, shards: Vec<Sender<Message<P::Driver>>>) {
        self.homes.set_shards(shards.len());
        let _ = self.shards.set(shards);
    }

    /// The shards' mailboxes, by number.
    pub(crate) fn shards(&self) -> &[Sender<Message<P::Driver>>] {
        self.shards.get().map_or(&[], Vec::as_slice)
    }

    /// The shard for all connections and sessions of `initiator` with `isid`; see [`Homes::of`].
    pub(crate) fn home_of(&self, isid: Isid, initiator: Option<IscsiName>) -> Home {
        self.homes.of(isid, initiator)
    }

    /// Whether `limit` sessions exist that have a connection or are about to end. Lost ones do not count, because they give way.
    //= rfc7143 11.13.5 LGN-20
    pub(crate) fn is_full(&self, limit: usize) -> bool {
        let lost = self.lost_sessions.load(Ordering::Relaxed);
        self.sessions.load(Ordering::Relaxed).saturating_sub(lost) >= limit
    }

    /// Counts a new session; false when there is no room.
    pub(crate) fn book_session(&self, limit: usize) -> bool {
        let lost = self.lost_sessions.load(Ordering::Relaxed);
        let one_more = |n: usize| (n.saturating_sub(lost) < limit).then_some(n + 1);
        self.sessions.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// A session has ended. Discovery sessions were never counted.
    pub(crate) fn release_session(&self, is_discovery: bool) {
        if !is_discovery {
            self.sessions.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A free TSIH. `None` when 65535 sessions exist.
    pub(crate) fn allocate_tsih(&self) -> Option<Tsih> {
        self.tsihs.lock().allocate()
    }

    /// Frees a TSIH.
    pub(crate) fn release_tsih(&self, tsih: Tsih) {
        self.tsihs.lock().release(tsih);
    }

    /// Remembers a CHAP challenge of ours.
    pub(crate) fn remember_challenge(&self, challenge: &[u8]) {
        let mut challenges = self.challenges.lock();
        if challenges.len() == MAX_CHALLENGES {
            challenges.pop_front();
        }
        challenges.push_back(challenge.to_vec());
    }

    /// Whether `challenge` is one of ours, on whichever connection it was sent.
    //= rfc7143 9.2.1 SEC-07
    pub(crate) fn is_own_challenge(&self, challenge: &[u8]) -> bool {
        self.challenges.lock().iter().any(|known| known == challenge)
    }

    /// Whether the server is shutting down.
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.shutting_down.load(Ordering::Acquire)
    }
}

/// TSIHs in use, one bit each; 0 is always in use. The first one is random: a restarted server must not assign the handles of its
/// previous run in the same order, or a login meant for a session of that run would join another session.
#[derive(Debug)]
struct TsihPool {
    used: Box<[u64; Self::WORDS]>,
    last: u16,
}

impl TsihPool {
    const WORDS: usize = (u16::MAX as usize + 1) / 64;

    /// The first one to be assigned is the next after `last`.
    fn after(last: u16) -> Self {
        let mut used = Box::new([0; Self::WORDS]);
        used[0] = 1;
        Self { used, last }
    }

    /// The next free one after the last, so that none is reused soon.
    fn allocate(&mut self) -> Option<Tsih> {
        let next = self.last.wrapping_add(1);
        let (word, bit) = (usize::from(next) / 64, next % 64);
        // The rest of the first word, all other words, and at the end the whole first word.
        let found = (0..=Self::WORDS).find_map(|step| {
            let at = (word + step) % Self::WORDS;
            let passed = if step == 0 { (1 << bit) - 1 } else { 0 };
            let used = self.used[at] | passed;
            (used != u64::MAX).then(|| at * 64 + used.trailing_ones() as usize)
        })?;
        self.used[found / 64] |= 1 << (found % 64);
        self.last = found as u16;
        Some(Tsih(self.last))
    }

    fn release(&mut self, tsih: Tsih) {
        self.used[usize::from(tsih.0) / 64] &= !(1 << (tsih.0 % 64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_handles_go_round_and_each_is_given_once() {
        let mut pool = TsihPool::after(0);
        assert!((1..=u16::MAX).all(|n| pool.allocate() == Some(Tsih(n))));
        assert_eq!(pool.allocate(), None);
        for free in [7, 64, 700] {
            pool.release(Tsih(free));
        }
        // It continues after the last one, and wraps around.
        assert_eq!([(); 4].map(|()| pool.allocate()), [Some(Tsih(7)), Some(Tsih(64)), Some(Tsih(700)), None]);
        pool.release(Tsih(3));
        pool.release(Tsih(701));
        assert_eq!([(); 3].map(|()| pool.allocate()), [Some(Tsih(701)), Some(Tsih(3)), None]);
    }

    #[test]
    fn session_handles_begin_anywhere_and_are_never_zero() {
        let mut pool = TsihPool::after(u16::MAX - 1);
        assert_eq!([(); 2].map(|()| pool.allocate()), [Some(Tsih(u16::MAX)), Some(Tsih(1))]);
    }
}
