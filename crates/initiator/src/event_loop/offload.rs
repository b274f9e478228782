//! The connection whose commands an engine carries out: bytes between link and engine, events to the session.

use bytes::BytesMut;
use engine::{Link, Platform, SlabRing};
use iscsi_core::initiator::login::LoggedIn;
use iscsi_core::initiator::session::InitiatorSession;
use iscsi_core::wire::{Cid, Opcode};

use super::connections::{Connection, Up};
use super::{EventLoop, State};
use crate::error::{ConnectError, NotOffloaded};
use crate::offloaded::{Agent, Event};
use crate::options::Options;

/// What the engine sends is queued up to here, bytes: enough that the socket is never idle. The rest stays in the engine, which
/// then sends a SNACK or a command before the data behind it.
const QUEUED_BYTES: usize = 256 * 1024;
/// What the engine is asked for at a time, bytes, at most; and the least room for which it is asked.
const CHUNK_BYTES: usize = 128 * 1024;
const LEAST_BYTES: usize = 4 * 1024;

/// An engine and what moves its bytes.
pub(super) struct Offload {
    pub agent: Agent,
    slabs: SlabRing,
    /// Where the engine writes what it has to send. The link sends it from there.
    chunk: BytesMut,
}

impl Offload {
    /// The engine of the options for the connection of `login`, and the login as the session gets to know it; `None` without an engine,
    /// and in discovery sessions, which send no commands.
    pub(super) fn begin(
        options: &Options,
        slabs: &SlabRing,
        login: &LoggedIn,
        now: iscsi_core::Time,
    ) -> Result<Option<(Self, LoggedIn)>, ConnectError> {
        if login.discovery {
            return Ok(None);
        }
        let Some(engine) = options.new_engine()? else { return Ok(None) };
        let seen = Agent::session_login(login, &engine.caps());
        let agent = Agent::open(engine, login, &options.session, now)
            .map_err(|result| NotOffloaded::Parameters(format!("{result:?}")))?;
        Ok(Some((Self { agent, slabs: slabs.clone(), chunk: BytesMut::new() }, seen)))
    }

    /// Queues what the engine has to send.
    fn transmit(&mut self, link: &mut Link) {
        while link.tx_backlog_bytes() < QUEUED_BYTES {
            if self.chunk.len() < LEAST_BYTES {
                self.chunk = self.slabs.take(CHUNK_BYTES);
            }
            let made = self.agent.tx(&mut self.chunk);
            if made == 0 {
                return;
            }
            link.push_bytes(self.chunk.split_to(made).freeze());
        }
    }
}

impl Up {
    /// What drives the engine, if there is one.
    pub(super) fn agent(&mut self) -> Option<&mut Agent> {
        self.offloaded().map(|(_, _, offload, _)| &mut offload.agent)
    }

    /// The offloaded connection, with its engine and the session.
    fn offloaded(&mut self) -> Option<(Cid, &mut Link, &mut Offload, &mut InitiatorSession)> {
        let found = self.connections.iter_mut().find(|connection| connection.offload.is_some());
        let Connection { cid, link, offload, .. } = found?;
        Some((*cid, link, offload.as_mut()?, &mut self.session))
    }
}

impl<P: Platform> EventLoop<P> {
    /// Hands what has arrived on the offloaded connection to the engine, and what follows from that to the session.
    pub(super) fn receive_offloaded(&mut self) {
        let now = self.now;
        loop {
            let State::Up(up) = &mut self.state else { return };
            let Some((_, link, offload, _)) = up.offloaded() else { return };
            offload.agent.advance(now);
            // PDUs of the session may wait for room.
            offload.transmit(link);
            let taken = offload.agent.rx(link.received());
            link.consume(taken);
            if !self.handle_events() && taken == 0 {
                break;
            }
        }
        self.drain_actions();
        if let State::Up(up) = &mut self.state
            && let Some((cid, link, ..)) = up.offloaded()
            && link.peer_closed()
        {
            self.connection_lost(cid);
        }
    }

    /// Does what is due for the engine, and queues what it has to send. To be called before every wait.
    pub(super) fn step_offloaded(&mut self) {
        let now = self.now;
        loop {
            let State::Up(up) = &mut self.state else { return };
            let Some((_, link, offload, session)) = up.offloaded() else { return };
            offload.agent.advance(now);
            offload.agent.forget_ended(session);
            offload.transmit(link);
            if !self.handle_events() {
                return;
            }
            self.drain_actions();
        }
    }

    /// Handles the events of the engine; false when there was none. As in [`EventLoop::receive`], owners are notified after the last
    /// of them.
    fn handle_events(&mut self) -> bool {
        let mut any = false;
        loop {
            let State::Up(up) = &mut self.state else { return any };
            let Some((cid, _, offload, session)) = up.offloaded() else { return any };
            let Some(event) = offload.agent.poll() else { return any };
            any = true;
            match event {
                Event::Pdu(pdu) => {
                    let ends_command = matches!(
                        Opcode::try_from(pdu.bhs.opcode()),
                        Ok(Opcode::DataIn | Opcode::ScsiResponse)
                    );
                    session.handle_pdu(self.now, cid, pdu);
                    if !ends_command {
                        offload.agent.forget_ended(session);
                        self.drain_actions();
                    }
                }
                Event::DigestError => self.info.data_digest_errors += 1,
                Event::Snack => self.info.recovery.snacks_sent += 1,
                Event::Lost(why) => {
                    tracing::warn!(cid = cid.0, %why, "the engine cannot go on: closing the connection");
                    self.connection_lost(cid);
                }
            }
        }
    }
}
