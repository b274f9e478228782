//! The transmit module: makes PDUs one after the other, each in a private buffer from which it is digested and sent.
//!
//! What is sent next is decided when the PDU before it has left:
//!
//! 1. the oldest of SNACKs, PDUs of software and commands that may go: a command and a PDU that takes a CmdSN need an open window
//!    and wait in their order, the others pass them;
//! 2. one Data-Out of the oldest R2T or unsolicited burst.

use iscsi_wire::{Bhs, DataOut, DataSn, Itt, Lun, ScsiCommand, TaskAttribute, Ttt, padding_length};

use super::Host;
use super::connection::Connection;
use crate::crc::CrcUnit;
use crate::encoding::{TaskResult, conn_flags};

/// Something small in the transmit queue.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Control {
    /// The command of a task.
    Command(u32),
    /// A PDU of software; `counts` when the engine writes CmdSN.
    Raw { bytes: Vec<u8>, counts: bool },
    /// An entry of the SNACK table, by its id.
    Snack(u64),
}

/// Data of a write that the target has requested, or may be sent without request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    pub(super) itt: u32,
    /// Reserved for unsolicited data.
    pub(super) ttt: Ttt,
    pub(super) lun: Lun,
    pub(super) r2t_sn: u32,
    pub(super) offset: u32,
    pub(super) length: u32,
    pub(super) sent: u32,
    pub(super) data_sn: u32,
}

impl Burst {
    pub(super) fn is_solicited(&self) -> bool {
        !self.ttt.is_reserved()
    }
}

/// One PDU on its way out.
pub(super) struct TxBuffer {
    bytes: Vec<u8>,
    sent: usize,
    /// Of the PDUs that are made from now on.
    crc: CrcUnit,
}

impl TxBuffer {
    pub(super) fn new() -> Self {
        Self { bytes: Vec::new(), sent: 0, crc: CrcUnit::crc32c() }
    }

    pub(super) fn set_crc(&mut self, crc: CrcUnit) {
        self.crc = crc;
    }

    fn send(&mut self, out: &mut [u8]) -> usize {
        let rest = &self.bytes[self.sent..];
        let count = rest.len().min(out.len());
        out[..count].copy_from_slice(&rest[..count]);
        self.sent += count;
        count
    }

    fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }
}

impl Connection {
    /// See [`Engine::tx`](crate::Engine::tx).
    pub(super) fn tx(&mut self, host: &mut Host, out: &mut [u8]) -> usize {
        let mut used = 0;
        while used < out.len() {
            if self.out.is_empty() && !self.make_pdu(host) {
                break;
            }
            used += self.out.send(&mut out[used..]);
        }
        used
    }

    /// Makes the next PDU; false when there is none.
    fn make_pdu(&mut self, host: &mut Host) -> bool {
        while host.completions.has_room_for_pdu() {
            if let Some(index) = self.control.iter().position(|control| self.may_go(control)) {
                match self.control.remove(index) {
                    Some(Control::Command(itt)) if self.make_command(host, itt) => return true,
                    Some(Control::Raw { bytes, counts }) => {
                        self.make_raw(bytes, counts);
                        return true;
                    }
                    Some(Control::Snack(id)) => {
                        if let Some(snack) = self.make_snack(host, id) {
                            self.emit(&snack.to_bhs(), &[], &[]);
                            return true;
                        }
                    }
                    // The task has ended.
                    _ => {}
                }
                continue;
            }
            match self.make_data_out(host) {
                Some(made) if !made => {}
                made => return made.is_some(),
            }
        }
        false
    }

    //= rfc7143 4.2.2.1 NUM-06
    fn may_go(&self, control: &Control) -> bool {
        let takes_number = match control {
            Control::Command(itt) => self.tasks.get(itt).is_some_and(|task| !task.is_immediate()),
            Control::Raw { bytes, counts } => *counts && bytes[0] & 0x40 == 0,
            Control::Snack(_) => false,
        };
        !takes_number || self.window.is_open()
    }

    /// Makes the command of a task with its immediate data, and queues its unsolicited data. False when host memory refused.
    ///
    /// | ImmediateData | InitialR2T | with the command | in Data-Out after it |
    /// |---|---|---|---|
    /// | Yes | No | one PDU's worth, within FirstBurstLength | the rest up to FirstBurstLength |
    /// | Yes | Yes | one PDU's worth, within FirstBurstLength | nothing |
    /// | No | No | nothing | up to FirstBurstLength |
    /// | No | Yes | nothing | nothing |
    //= rfc7143 13.10 UNS-01 UNS-03 UNS-04 UNS-05 NUM-01
    fn make_command(&mut self, host: &mut Host, itt: u32) -> bool {
        let (exp_stat_sn, max_send) = (self.exp_stat_sn(), self.max_send());
        let flags = self.params.flags;
        let Some(task) = self.tasks.get_mut(&itt) else { return false };
        let first_burst = match task.writes() {
            true => self.params.first_burst_length.min(self.params.max_burst_length).min(task.post.edtl),
            false => 0,
        };
        let has = |flag| flags & flag != 0;
        let immediate = if has(conn_flags::IMMEDIATE_DATA) { first_burst.min(max_send) } else { 0 };
        let unsolicited = if has(conn_flags::INITIAL_R2T) { 0 } else { first_burst - immediate };
        let mut data = vec![0; immediate as usize];
        if task.sgl.read(host.memory, 0, &mut data).is_err() {
            self.end_task(host, itt, TaskResult::MEMORY);
            return false;
        }
        let number = if task.is_immediate() { self.window.next() } else { self.window.take() };
        task.sent = true;
        (task.cmd_sn, task.exp_stat_sn, task.bytes_sent) = (number.0, exp_stat_sn.0, immediate);
        let command = ScsiCommand {
            immediate: task.is_immediate(),
            final_bit: unsolicited == 0,
            read: task.reads(),
            write: task.writes(),
            attr: TaskAttribute::try_from(task.post.attr).unwrap_or(TaskAttribute::Untagged),
            priority: task.post.priority,
            lun: task.lun(),
            itt: Itt(itt),
            expected_data_transfer_length: task.post.edtl,
            cmd_sn: number,
            exp_stat_sn,
            cdb: task.post.cdb,
        };
        if unsolicited > 0 {
            let (ttt, lun) = (Ttt::RESERVED, task.lun());
            let (offset, length) = (immediate, unsolicited);
            self.bursts.push_back(Burst { itt, ttt, lun, r2t_sn: 0, offset, length, sent: 0, data_sn: 0 });
        }
        self.emit(&command.to_bhs(), &[], &data);
        true
    }

    /// Writes the numbers that are the engine's into a PDU of software.
    fn make_raw(&mut self, mut bytes: Vec<u8>, counts: bool) {
        if counts {
            let immediate = bytes[0] & 0x40 != 0;
            let number = if immediate { self.window.next() } else { self.window.take() };
            bytes[24..28].copy_from_slice(&number.0.to_be_bytes());
        }
        bytes[28..32].copy_from_slice(&self.exp_stat_sn().0.to_be_bytes());
        let Some(first) = bytes.first_chunk() else { return };
        let bhs = Bhs::from_bytes(*first);
        let header_end = Bhs::SIZE + bhs.total_ahs_length();
        let (ahs, data) = (&bytes[Bhs::SIZE..header_end], &bytes[header_end..]);
        self.emit(&bhs, ahs, data);
    }

    /// Makes one Data-Out of the oldest burst. `None`: there is no burst. `Some(false)`: host memory refused, and its task ended.
    //= rfc7143 11.7 DAT-01 DAT-02
    fn make_data_out(&mut self, host: &mut Host) -> Option<bool> {
        let (exp_stat_sn, max_send) = (self.exp_stat_sn(), self.max_send());
        let burst = self.bursts.front_mut()?;
        let itt = burst.itt;
        let left = burst.length - burst.sent;
        let length = left.min(max_send);
        let offset = burst.offset + burst.sent;
        let header = DataOut {
            final_bit: length == left,
            lun: burst.lun,
            itt: Itt(itt),
            ttt: burst.ttt,
            exp_stat_sn,
            data_sn: DataSn(burst.data_sn),
            buffer_offset: offset,
        };
        burst.sent += length;
        burst.data_sn += 1;
        if header.final_bit {
            self.bursts.pop_front();
        }
        let mut data = vec![0; length as usize];
        let task = self.tasks.get_mut(&itt)?;
        if task.sgl.read(host.memory, offset, &mut data).is_err() {
            self.end_task(host, itt, TaskResult::MEMORY);
            return Some(false);
        }
        task.bytes_sent = task.bytes_sent.saturating_add(length);
        self.emit(&header.to_bhs(), &[], &data);
        Some(true)
    }

    /// Puts a PDU into the transmit buffer: header, AHS, data, padding, and the digests over exactly these bytes.
    //= rfc7143 11.2.3 DIG-03 PDU-01 DIG-15
    fn emit(&mut self, header: &Bhs, ahs: &[u8], data: &[u8]) {
        let mut bhs = *header;
        bhs.set_data_segment_length(data.len());
        bhs.set_total_ahs_length(ahs.len());
        let layout = self.digests.layout(&bhs);
        let out = &mut self.out.bytes;
        self.out.sent = 0;
        out.clear();
        out.extend_from_slice(bhs.as_bytes());
        out.extend_from_slice(ahs);
        if self.digests.header {
            let digest = self.out.crc.digest(out);
            out.extend_from_slice(&digest);
        }
        out.extend_from_slice(data);
        out.resize(out.len() + padding_length(data.len()), 0);
        if layout.total > layout.covered_end {
            let digest = self.out.crc.digest(&out[layout.data_start..]);
            out.extend_from_slice(&digest);
        }
    }
}
