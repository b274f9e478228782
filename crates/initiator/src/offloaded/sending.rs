//! What the session sends: commands become tasks of the engine, everything else travels as it is.

use iscsi_core::initiator::session::InitiatorSession;
use iscsi_core::pdu_writer::TxPdu;
use iscsi_core::wire::{Bhs, Opcode, ScsiCommand};
use offload::encoding::{DescriptorKind, PostTask, SendRaw, SglElement, TaskResult, raw_flags, task_flags};

use super::memory::{AddressSpace, Data, STAGED};
use super::{AT_ONCE, Agent, CONN, MAX_PLACED_BYTES, Outgoing};

impl Agent {
    /// Takes a PDU that the session sends.
    pub(crate) fn send(&mut self, pdu: TxPdu, session: &InitiatorSession) {
        if takes_number(&pdu.bhs) {
            // The engine numbers what it sends, so it cannot send anything a second time.
            if pdu.bhs.cmd_sn() != self.cmd_sn {
                return self.fail("an engine cannot send a rejected command again (RFC 7143 4.2.2.1)");
            }
            self.cmd_sn = self.cmd_sn.next();
        }
        let outgoing = match self.task_of(&pdu, session) {
            // Nothing waits, so nothing is overtaken.
            Some((command, slot)) if self.outgoing.is_empty() => return self.post(&command, slot),
            Some((command, slot)) => Outgoing::Task(command, slot),
            None => Outgoing::Raw(bytes_of(pdu)),
        };
        self.outgoing.push_back(outgoing);
        self.pass_on();
    }

    /// The command that the engine carries out, and the slot of its memory; `None` when software sends the PDU.
    fn task_of(&mut self, pdu: &TxPdu, session: &InitiatorSession) -> Option<(ScsiCommand, usize)> {
        let command = ScsiCommand::parse(&pdu.bhs).ok()?;
        let length = command.expected_data_transfer_length;
        let data = match (command.read, command.write) {
            (true, true) => return None,
            (true, false) if length > MAX_PLACED_BYTES => return None,
            (true, false) => Data::room(length),
            (false, true) => Data::Out(session.command_of(command.itt)?.write.clone()),
            (false, false) => Data::Nothing,
        };
        if !pdu.ahs.is_empty() {
            return None;
        }
        let slot = self.memory.begin(command.itt, data)?;
        Some((command, slot))
    }

    /// Hands to the engine what it has room for; true when it has taken something.
    pub(super) fn pass_on(&mut self) -> bool {
        let mut taken = false;
        while let Some(outgoing) = self.outgoing.pop_front() {
            match &outgoing {
                Outgoing::Task(command, slot) => self.post(command, *slot),
                Outgoing::Raw(bytes) if !self.send_raw(bytes) => {
                    self.outgoing.push_front(outgoing);
                    break;
                }
                Outgoing::Raw(_) => {}
            }
            taken = true;
        }
        taken
    }

    fn post(&mut self, command: &ScsiCommand, slot: usize) {
        let length = command.expected_data_transfer_length;
        let whole = SglElement { addr: AddressSpace::data_address(slot), length };
        let elements = u16::from(length > 0);
        self.memory.stage(&whole.emit());
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let post = PostTask {
            flags: flag(command.read, task_flags::READ)
                | flag(command.write, task_flags::WRITE)
                | flag(command.immediate, task_flags::IMMEDIATE),
            conn: CONN,
            itt: command.itt.0,
            user: slot as u64,
            lun: command.lun.0.to_be_bytes(),
            cdb: command.cdb,
            edtl: length,
            attr: command.attr.code(),
            priority: command.priority,
            sgl_elements: elements,
            sgl_addr: STAGED,
            sense_addr: AddressSpace::sense_address(slot),
        };
        self.submit(&post.emit());
        self.collect();
    }

    /// False when the engine has no room for it now.
    fn send_raw(&mut self, bytes: &[u8]) -> bool {
        let numbered = has_cmd_sn(bytes[0]);
        self.memory.stage(bytes);
        let send = SendRaw {
            flags: if numbered { raw_flags::CMD_SN } else { 0 },
            conn: CONN,
            user: AT_ONCE,
            addr: STAGED,
            length: bytes.len() as u32,
        };
        match self.execute(DescriptorKind::SEND_RAW, &send.emit()) {
            TaskResult::GOOD => {}
            TaskResult::TABLE_FULL => return false,
            _ => self.fail("the engine does not send a PDU of software"),
        }
        true
    }
}

/// Header segments and data of a PDU, as SEND_RAW wants them.
fn bytes_of(mut pdu: TxPdu) -> Vec<u8> {
    pdu.bhs.set_total_ahs_length(pdu.ahs.len());
    pdu.bhs.set_data_segment_length(pdu.data.len());
    [pdu.bhs.as_bytes(), &pdu.ahs[..], &pdu.data.bytes()].concat()
}

/// Whether a PDU with this first byte has a CmdSN: all of an initiator but those that carry data or request it again.
fn has_cmd_sn(first: u8) -> bool {
    let opcode = first & 0x3f;
    opcode != Opcode::DataOut.code() && opcode != Opcode::SnackRequest.code()
}

//= rfc7143 4.2.2.1 NUM-01
fn takes_number(bhs: &Bhs) -> bool {
    has_cmd_sn(bhs.as_bytes()[0]) && !bhs.immediate()
}
