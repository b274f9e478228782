//! An engine that carries out the commands of a connection, and the bytes between it and the link.

use bytes::BytesMut;
use engine::{Link, SlabRing};
use iscsi_core::initiator::login::LoggedIn;

use crate::error::{ConnectError, NotOffloaded};
use crate::offloaded::Agent;
use crate::options::Options;

/// What the engine sends is queued up to here, bytes: enough that one send serves several commands, and little enough that it is still in the
/// cache when the kernel copies it. The rest stays in the engine, which then sends a SNACK or a command before the data behind it.
const QUEUED_BYTES: usize = 512 * 1024;
/// What the engine is asked for at a time, bytes, at most: the data of several large writes, because each request for memory costs as much
/// as a tenth of a command. And the least room for which it is asked.
const CHUNK_BYTES: usize = 512 * 1024;
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
    pub(super) fn transmit(&mut self, link: &mut Link) {
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
