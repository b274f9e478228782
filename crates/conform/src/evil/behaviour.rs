//! How an evil target differs from a good one: two hooks that see every PDU.

use crate::frame::{Frame, Received};
use iscsi_wire::{Cid, Opcode, ResponseNumbers};
use std::time::Duration;

/// The state of a connection when a hook is called.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// Counts the connections of this target from 1.
    pub connection: u32,
    /// Its CID.
    pub cid: Cid,
    /// Is the connection in full feature phase?
    pub full_feature: bool,
    /// Those that the next response has.
    pub numbers: ResponseNumbers,
    /// MaxRecvDataSegmentLength that the initiator declared, in bytes.
    pub initiator_max_recv: usize,
}

/// One thing to do on the wire.
#[derive(Clone, Debug)]
pub enum Act {
    /// Send it unchanged.
    Send(Frame),
    /// Send it with StatSN, ExpCmdSN and MaxCmdSN filled in; StatSN advances. For a hook's own responses.
    Answer(Frame),
    /// Like `Answer`, without advancing StatSN. For a hook's own R2Ts and pings.
    Tell(Frame),
    /// Send it in writes of this many bytes.
    Pieces(Frame, usize),
    /// Send bytes.
    Bytes(Vec<u8>),
    /// Write these bytes to the medium, from this offset in bytes on.
    Store(usize, Vec<u8>),
    /// Forget the writes of the connection that are waiting for data.
    Forget,
    /// Wait.
    Pause(Duration),
    /// Close the connection.
    Close,
    /// Reset the connection.
    Reset,
}

/// What to do about a PDU that arrived.
#[derive(Clone, Debug)]
pub enum Incoming {
    /// Do what a good target does.
    Serve,
    /// Do this, then what a good target does.
    Before(Vec<Act>),
    /// Do what a good target does, then this.
    After(Vec<Act>),
    /// Do this instead; the PDU counts as received.
    Instead(Vec<Act>),
    /// Do this instead, and do not use up the CmdSN of the PDU, as if it had never arrived.
    Lost(Vec<Act>),
}

type Outgoing = Box<dyn FnMut(&Scene, Frame) -> Vec<Act> + Send>;
type OnIncoming = Box<dyn FnMut(&Scene, &Received) -> Incoming + Send>;

/// The hooks. The default is a good target.
#[derive(Default)]
pub struct Behaviour {
    outgoing: Option<Outgoing>,
    incoming: Option<OnIncoming>,
}

impl Behaviour {
    /// A good target.
    pub fn good() -> Self {
        Self::default()
    }

    /// Replaces what a good target would send.
    pub fn outgoing(mut self, hook: impl FnMut(&Scene, Frame) -> Vec<Act> + Send + 'static) -> Self {
        self.outgoing = Some(Box::new(hook));
        self
    }

    /// Replaces every PDU of this opcode that a good target would send.
    pub fn every(
        self,
        opcode: Opcode,
        mut hook: impl FnMut(&Scene, Frame) -> Vec<Act> + Send + 'static,
    ) -> Self {
        self.outgoing(move |scene, frame| {
            if frame.bhs().opcode() == opcode.code() { hook(scene, frame) } else { vec![Act::Send(frame)] }
        })
    }

    /// Replaces the first PDU of this opcode that a good target would send, on any connection.
    pub fn first(
        self,
        opcode: Opcode,
        mut hook: impl FnMut(&Scene, Frame) -> Vec<Act> + Send + 'static,
    ) -> Self {
        let mut done = false;
        self.every(opcode, move |scene, frame| {
            if std::mem::replace(&mut done, true) { vec![Act::Send(frame)] } else { hook(scene, frame) }
        })
    }

    /// Sees each received PDU before a good target would serve it.
    pub fn incoming(mut self, hook: impl FnMut(&Scene, &Received) -> Incoming + Send + 'static) -> Self {
        self.incoming = Some(Box::new(hook));
        self
    }

    /// Sees the first received PDU of this opcode.
    pub fn on_first(
        self,
        opcode: Opcode,
        mut hook: impl FnMut(&Scene, &Received) -> Incoming + Send + 'static,
    ) -> Self {
        let mut done = false;
        self.incoming(move |scene, rx| {
            if rx.bhs.opcode() != opcode.code() || std::mem::replace(&mut done, true) {
                return Incoming::Serve;
            }
            hook(scene, rx)
        })
    }

    pub(super) fn send(&mut self, scene: &Scene, frame: Frame) -> Vec<Act> {
        match &mut self.outgoing {
            Some(hook) => hook(scene, frame),
            None => vec![Act::Send(frame)],
        }
    }

    pub(super) fn receive(&mut self, scene: &Scene, rx: &Received) -> Incoming {
        match &mut self.incoming {
            Some(hook) => hook(scene, rx),
            None => Incoming::Serve,
        }
    }
}
