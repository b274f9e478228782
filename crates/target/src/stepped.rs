//! A server without threads: its owner decides when each of its shards takes its next step. For simulators, which run it and
//! its initiators one after the other on one clock. It equals [`crate::Server`] except for the threads and the sockets.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::{Driver, Platform};
use iscsi_core::Time;
use iscsi_core::send_order::SendOrder;

use crate::config::{Config, PortalConfig};
use crate::observe::{Observe, SessionInfo};
use crate::registry::TargetSet;
use crate::server::StartError;
pub use crate::shard::SessionHoldings;
use crate::shard::Shard;
use crate::shard::message::Message;
use crate::shared::Shared;
use crate::units::OpenStore;

/// See the module.
pub struct Stepped<P: Platform> {
    shared: Arc<Shared<P>>,
    shards: Vec<Shard<P>>,
}

impl<P: Platform> Stepped<P> {
    /// A server with `shards` shards (at least one) that serves `config` on `platform`, with stores opened by `open`. It does
    /// not listen until [`Stepped::listen`]. It requests one driver per shard from the platform, in order.
    ///
    /// # Errors
    /// The first store that cannot be opened, or the driver that cannot be created.
    pub fn start(
        platform: P,
        config: Config,
        observe: Arc<Observe>,
        open: OpenStore,
        shards: usize,
    ) -> Result<Self, StartError> {
        let mut token_secret = [0; 32];
        platform.fill_random(&mut token_secret);
        let set = TargetSet::open(config, &observe.metrics, &open, token_secret)?;
        let shared = Arc::new(Shared::new(platform, set, observe, open));
        let count = shards.max(1);
        let made = (0..count).map(|number| Shard::new(number, count, Arc::clone(&shared)));
        let made: Vec<_> = made.collect::<io::Result<_>>().map_err(StartError::Shard)?;
        let (shards, senders) = made.into_iter().unzip();
        shared.set_shards(senders);
        Ok(Self { shared, shards })
    }

    /// Sets the order in which sessions that are opened from now on send data where any is allowed. The first call counts.
    pub fn set_send_order(&self, order: SendOrder) {
        self.shared.set_send_order(order);
    }

    /// Accepts connections from `listener`, which is behind `portal`. Shards must take a step to start.
    pub fn listen(&self, listener: <P::Driver as Driver>::Listener, portal: PortalConfig) {
        let mut portals = Vec::clone(&self.shared.portals.load());
        portals.push(portal.clone());
        self.shared.portals.store(Arc::new(portals));
        self.shared.shards()[0].send(Message::Listen(listener, Arc::new(portal)));
    }

    /// Lets shard `number` wait once and handle events; false when it has ended.
    ///
    /// # Errors
    /// Its driver fails permanently.
    pub fn turn(&mut self, number: usize) -> io::Result<bool> {
        self.shards[number].turn()
    }

    /// When shard `number` has work even if no event occurs.
    pub fn next_deadline(&self, number: usize) -> Option<Time> {
        self.shards[number].next_deadline()
    }

    /// Sessions of all shards.
    pub fn sessions(&mut self) -> Vec<SessionInfo> {
        self.shards.iter_mut().flat_map(Shard::session_infos).collect()
    }

    /// The resources held by the sessions of all shards.
    pub fn holdings(&self) -> impl Iterator<Item = SessionHoldings> {
        self.shards.iter().flat_map(Shard::holdings)
    }

    /// How many sessions and connections the shards have examined so far for reasons other than their own events. This must not
    /// grow faster with the number of sessions than the work they cause.
    pub fn looked_at(&self) -> u64 {
        self.shards.iter().map(Shard::looked_at).sum()
    }

    /// Existing connections, including logins.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Like [`crate::Server::shutdown`], without the last flush: shards end one by one as they take their steps.
    pub fn shut_down(&self, grace: Duration) {
        self.shared.shutting_down.store(true, Ordering::Release);
        for shard in self.shared.shards() {
            shard.send(Message::Shutdown { grace });
        }
    }
}
