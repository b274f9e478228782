//! The engine in software: what hardware would do, in plain code.
//!
//! One [`Connection`] holds the state of one byte stream; this file owns the connections and the completions. The parts are
//! those of the hardware: `rx` (packet controller and parser), `data_in`, `response` and `r2t` (one file for each PDU that is
//! offloaded), `snack` (SNACK controller), `tx` (packet and header generator), `task` and `sgl` (command and data_address
//! tables), `window` and `status` (numbers).

mod connection;
mod data_in;
mod post;
mod r2t;
mod raw;
mod response;
mod rx;
mod sgl;
mod snack;
mod snapshot;
mod status;
mod task;
mod tx;
mod window;

use std::collections::VecDeque;

use crate::encoding::{
    Completion, Descriptor, DescriptorKind, OpenConn, RECORD_BYTES, SessionEntry, TaskDone, TaskResult,
};
use crate::limits::{COMPLETIONS_PER_PDU, MAX_COMPLETIONS, MAX_CONNECTIONS};
use crate::{Busy, Caps, Engine, HostMem, Tables};
use connection::Connection;

/// Completions that wait for software.
#[derive(Default)]
struct Completions(VecDeque<[u8; RECORD_BYTES]>);

impl Completions {
    fn push(&mut self, completion: Completion) {
        debug_assert!(self.0.len() < MAX_COMPLETIONS, "room was checked before");
        self.0.push_back(completion.emit());
    }

    fn has_room(&self, count: usize) -> bool {
        self.0.len() + count <= MAX_COMPLETIONS
    }

    /// Whether the largest number of completions of one PDU fits.
    fn has_room_for_pdu(&self) -> bool {
        self.has_room(COMPLETIONS_PER_PDU)
    }
}

/// What a connection works with for the time of one call.
struct Host<'a> {
    memory: &'a mut dyn HostMem,
    completions: &'a mut Completions,
    now_us: u64,
}

/// The software twin: see [`Engine`].
#[derive(Default)]
pub struct SoftwareEngine {
    connections: Vec<Option<Box<Connection>>>,
    completions: Completions,
    now_us: u64,
}

impl SoftwareEngine {
    /// An engine without connections, at time 0.
    pub fn new() -> Self {
        Self::default()
    }

    fn connection(&mut self, conn: u16) -> Option<&mut Connection> {
        self.connections.get_mut(usize::from(conn))?.as_deref_mut()
    }

    fn open(&mut self, open: &OpenConn) -> TaskResult {
        if open.conn >= MAX_CONNECTIONS {
            return TaskResult::INVALID;
        }
        let index = usize::from(open.conn);
        if self.connections.len() <= index {
            self.connections.resize_with(index + 1, || None);
        }
        if self.connections[index].is_some() {
            return TaskResult::NO_CONNECTION;
        }
        match Connection::open(open) {
            Ok(connection) => {
                self.connections[index] = Some(Box::new(connection));
                TaskResult::GOOD
            }
            Err(result) => result,
        }
    }
}

impl Engine for SoftwareEngine {
    fn caps(&self) -> Caps {
        Caps::SOFTWARE
    }

    fn submit(&mut self, memory: &mut dyn HostMem, record: &[u8; RECORD_BYTES]) -> Result<(), Busy> {
        let mut done = TaskDone { descriptor: DescriptorKind(record[0]), ..TaskDone::default() };
        // Every descriptor has them at the same place.
        done.conn = u16::from_le_bytes([record[2], record[3]]);
        done.user = u64::from_le_bytes(std::array::from_fn(|i| record[8 + i]));
        let now_us = self.now_us;
        let held = self.connection(done.conn).map_or(0, |connection| connection.commands());
        if !self.completions.has_room(held + 1) {
            return Err(Busy);
        }
        let Some(descriptor) = Descriptor::parse(record) else {
            done.result = TaskResult::INVALID;
            self.completions.push(Completion::TaskDone(done));
            return Ok(());
        };
        match descriptor {
            Descriptor::PostTask(post) => done.itt = post.itt,
            Descriptor::Abort(abort) => done.itt = abort.itt,
            _ => {}
        }
        if let Descriptor::OpenConn(open) = &descriptor {
            done.result = self.open(open);
            self.completions.push(Completion::TaskDone(done));
            return Ok(());
        }
        let slot = self.connections.get_mut(usize::from(done.conn));
        let Some(slot) = slot.filter(|slot| slot.is_some()) else {
            done.result = TaskResult::NO_CONNECTION;
            self.completions.push(Completion::TaskDone(done));
            return Ok(());
        };
        let mut host = Host { memory, completions: &mut self.completions, now_us };
        let outcome = slot.as_mut().and_then(|connection| connection.execute(&mut host, &descriptor));
        if matches!(&descriptor, Descriptor::Abort(abort) if iscsi_wire::Itt(abort.itt).is_reserved()) {
            *slot = None;
        }
        if let Some(result) = outcome {
            done.result = result;
            self.completions.push(Completion::TaskDone(done));
        }
        Ok(())
    }

    fn poll(&mut self) -> Option<[u8; RECORD_BYTES]> {
        self.completions.0.pop_front()
    }

    fn rx(&mut self, memory: &mut dyn HostMem, conn: u16, bytes: &[u8]) -> usize {
        let mut host = Host { memory, completions: &mut self.completions, now_us: self.now_us };
        let connection = self.connections.get_mut(usize::from(conn)).and_then(Option::as_deref_mut);
        connection.map_or(0, |connection| connection.rx(&mut host, bytes))
    }

    fn tx(&mut self, memory: &mut dyn HostMem, conn: u16, out: &mut [u8]) -> usize {
        let mut host = Host { memory, completions: &mut self.completions, now_us: self.now_us };
        let connection = self.connections.get_mut(usize::from(conn)).and_then(Option::as_deref_mut);
        connection.map_or(0, |connection| connection.tx(&mut host, out))
    }

    fn release_raw(&mut self, conn: u16, slots: u16) {
        if let Some(connection) = self.connection(conn) {
            connection.release_raw(slots);
        }
    }

    fn advance(&mut self, now_us: u64) {
        self.now_us = self.now_us.max(now_us);
        for connection in self.connections.iter_mut().flatten() {
            connection.snacks_due(self.now_us);
        }
    }

    fn deadline_us(&self) -> Option<u64> {
        self.connections.iter().flatten().filter_map(|connection| connection.deadline_us()).min()
    }

    fn tables(&self) -> Tables {
        let mut tables = Tables::default();
        for (connection, conn) in self.connections.iter().zip(0..) {
            if let Some(connection) = connection {
                connection.show(conn, &mut tables);
            }
        }
        tables
    }

    fn session(&self, conn: u16) -> Option<SessionEntry> {
        let connection = self.connections.get(usize::from(conn))?.as_deref()?;
        Some(connection.session_entry(conn))
    }
}
