//! The ring of raw PDUs: whole PDUs for software, in host memory.

use iscsi_wire::{Bhs, MAX_AHS_LENGTH};

use super::Host;
use super::connection::Connection;
use super::rx::Received;
use crate::encoding::{Completion, OpenConn, RawPdu, RawReason};
use crate::{HostMem, MemFault};

/// The engine's place in the ring.
#[derive(Debug)]
pub(super) struct RawRing {
    addr: u64,
    slot_bytes: u32,
    slots: u16,
    next: u16,
    used: u16,
}

impl RawRing {
    pub(super) fn new(open: &OpenConn) -> Self {
        Self { addr: open.raw_addr, slot_bytes: open.raw_slot_bytes, slots: open.raw_slots, next: 0, used: 0 }
    }

    /// Length that a slot needs, in bytes, when data segments have up to `data_bytes`.
    pub(super) fn slot_bytes_for(data_bytes: u32) -> u32 {
        (Bhs::SIZE + MAX_AHS_LENGTH) as u32 + data_bytes
    }

    pub(super) fn free(&self) -> u16 {
        self.slots - self.used
    }

    fn write(&mut self, memory: &mut dyn HostMem, header: &[u8], data: &[u8]) -> Result<u64, MemFault> {
        let addr = self.addr.wrapping_add(u64::from(self.slot_bytes) * u64::from(self.next));
        memory.write(addr, header)?;
        if !data.is_empty() {
            memory.write(addr.wrapping_add(header.len() as u64), data)?;
        }
        self.next = (self.next + 1) % self.slots;
        self.used += 1;
        Ok(addr)
    }

    fn release(&mut self, slots: u16) {
        self.used = self.used.saturating_sub(slots);
    }
}

impl Connection {
    pub(super) fn release_raw(&mut self, slots: u16) {
        self.raw.release(slots);
    }

    /// Hands a PDU to software. The caller has seen that a slot is free.
    ///
    /// # Errors
    /// When host memory refuses the slot.
    pub(super) fn give_to_software(
        &mut self,
        host: &mut Host,
        pdu: &Received,
        reason: RawReason,
    ) -> Result<(), MemFault> {
        let addr = self.raw.write(host.memory, pdu.header(), pdu.data())?;
        host.completions.push(Completion::RawPdu(RawPdu {
            reason,
            conn: self.params.conn,
            itt: pdu.bhs().itt().0,
            addr,
            header_bytes: pdu.header().len() as u32,
            data_bytes: pdu.data().len() as u32,
            position: pdu.position(),
        }));
        Ok(())
    }
}
