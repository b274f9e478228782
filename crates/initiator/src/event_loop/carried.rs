//! The connection whose commands an engine carries out: what arrives goes to the engine, and its events to the session.

use engine::Platform;
use iscsi_core::wire::Opcode;

use super::{EventLoop, State};
use crate::offloaded::Event;

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
                Event::Executed { response, sense, data } => {
                    session.executed(self.now, cid, &response, &sense, data);
                }
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
