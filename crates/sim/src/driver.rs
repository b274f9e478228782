//! The driver of a simulated process: the network of the [`World`] serves what `engine` requests of the system.
//!
//! It never waits: the owner of the run calls [`Driver::wait`] only when there is a completion to deliver or a deadline has passed.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use engine::{Completion, Driver, TcpInfo, Token, Waker};

use crate::network::{Side, SimListener, SimStream};
use crate::world::{DriverId, State, World};

/// The world's state of a driver.
pub(crate) struct DriverState {
    pub host: IpAddr,
    pub slots: Vec<Slot>,
    pub free: Vec<u32>,
    pub done: Vec<Completion<SimStream>>,
    /// Connections with an outstanding receive that may be able to complete.
    pub readable: Vec<Token>,
    /// A notice is scheduled.
    pub notified: bool,
    /// The notice has arrived, and the driver has not been polled since.
    pub noticed: bool,
    pub alive: bool,
    woken: Arc<AtomicBool>,
}

pub(crate) struct Slot {
    generation: u32,
    pub entry: Entry,
}

#[derive(Clone, Copy)]
pub(crate) enum Entry {
    Free,
    Listener(SocketAddr),
    Conn { conn: usize, side: Side },
}

impl DriverState {
    pub(crate) fn new(host: IpAddr, woken: Arc<AtomicBool>) -> Self {
        Self {
            host,
            slots: Vec::new(),
            free: Vec::new(),
            done: Vec::new(),
            readable: Vec::new(),
            notified: false,
            noticed: false,
            alive: true,
            woken,
        }
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Relaxed)
    }

    pub(crate) fn insert(&mut self, entry: Entry) -> Token {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, entry: Entry::Free });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.entry = entry;
        Token::new(index, slot.generation)
    }

    pub(crate) fn entry(&self, token: Token) -> Entry {
        match self.slots.get(token.index()) {
            Some(slot) if slot.generation == token.generation() => slot.entry,
            _ => Entry::Free,
        }
    }

    pub(crate) fn vacate(&mut self, token: Token) -> Entry {
        let entry = self.entry(token);
        if !matches!(entry, Entry::Free) {
            let slot = &mut self.slots[token.index()];
            slot.generation += 1;
            slot.entry = Entry::Free;
            self.free.push(token.index() as u32);
        }
        entry
    }
}

/// See the module.
pub struct SimDriver {
    world: Arc<World>,
    id: DriverId,
    waker: Waker,
}

impl SimDriver {
    pub(crate) fn new(world: Arc<World>, id: DriverId, waker: Waker) -> Self {
        Self { world, id, waker }
    }

    fn with<T>(&self, token: Token, f: impl FnOnce(&mut State, usize, Side) -> T) -> Option<T> {
        let mut state = self.world.state.lock();
        match state.drivers[self.id].entry(token) {
            Entry::Conn { conn, side } => Some(f(&mut state, conn, side)),
            _ => None,
        }
    }
}

impl Driver for SimDriver {
    type Listener = SimListener;
    type Stream = SimStream;

    fn listen(&mut self, listener: SimListener) -> io::Result<Token> {
        let mut state = self.world.state.lock();
        let token = state.drivers[self.id].insert(Entry::Listener(listener.0));
        state.network.listen(listener.0, self.id, token);
        Ok(token)
    }

    fn adopt(&mut self, stream: SimStream) -> io::Result<Token> {
        let (conn, side) = stream.into_parts();
        let mut state = self.world.state.lock();
        Ok(state.adopt_end(self.id, conn, side))
    }

    fn connect(&mut self, addr: SocketAddr, local: Option<IpAddr>) -> io::Result<Token> {
        let mut state = self.world.state.lock();
        let from = local.unwrap_or(state.drivers[self.id].host);
        Ok(state.connect(self.id, from, addr))
    }

    fn recv_up_to(&mut self, token: Token, buffer: BytesMut, max_bytes: usize) {
        self.with(token, |state, conn, side| state.submit_recv(conn, side, buffer, max_bytes));
    }

    fn send(&mut self, token: Token, segments: Vec<Bytes>) {
        self.with(token, |state, conn, side| state.submit_send(conn, side, segments));
    }

    fn take_sent(&mut self, token: Token) -> Option<Vec<Bytes>> {
        Completion::take_sent(&mut self.world.state.lock().drivers[self.id].done, token)
    }

    fn shutdown_write(&mut self, token: Token) {
        self.with(token, |state, conn, side| state.shutdown_end(conn, side));
    }

    fn close(&mut self, token: Token) {
        let mut state = self.world.state.lock();
        let of_token = |completion: &Completion<SimStream>| matches!(completion, Completion::Sent { conn, .. } | Completion::Received { conn, .. } if *conn == token);
        state.drivers[self.id].done.retain(|completion| !of_token(completion));
        match state.drivers[self.id].vacate(token) {
            Entry::Conn { conn, side } => state.close_end(conn, side),
            Entry::Listener(addr) => state.network.forget_listener(addr),
            Entry::Free => {}
        }
    }

    fn release(&mut self, token: Token) -> Option<SimStream> {
        let (conn, side) = self.with(token, |state, conn, side| {
            (state.network.can_be_released(conn, side)).then_some((conn, side))
        })??;
        let mut state = self.world.state.lock();
        state.drivers[self.id].vacate(token);
        state.network.disown(conn, side);
        drop(state);
        Some(SimStream::new(&self.world, conn, side))
    }

    fn local_addr(&self, token: Token) -> Option<SocketAddr> {
        self.with(token, |state, conn, side| state.network.address(conn, side))
    }

    fn peer_addr(&self, token: Token) -> Option<SocketAddr> {
        self.with(token, |state, conn, side| state.network.address(conn, side.other()))
    }

    fn tcp_info(&self, token: Token) -> Option<TcpInfo> {
        self.with(token, |state, conn, side| state.tcp_info(conn, side))?
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn wait(&mut self, _timeout: Option<Duration>, out: &mut Vec<Completion<SimStream>>) -> io::Result<()> {
        let mut state = self.world.state.lock();
        let driver = &mut state.drivers[self.id];
        driver.notified = false;
        driver.noticed = false;
        if driver.woken.swap(false, Ordering::Relaxed) {
            out.push(Completion::Woken);
        }
        out.append(&mut driver.done);
        let readable = std::mem::take(&mut driver.readable);
        for token in readable {
            if let Entry::Conn { conn, side } = state.drivers[self.id].entry(token)
                && let Some((buffer, result)) = state.try_recv(conn, side)
            {
                out.push(Completion::Received { conn: token, buffer, result });
            }
        }
        // Accepted streams are created without their reference to the world; attach it here.
        for completion in out.iter_mut() {
            if let Completion::Accepted { stream, .. } = completion {
                stream.attach(&self.world);
            }
        }
        Ok(())
    }
}
