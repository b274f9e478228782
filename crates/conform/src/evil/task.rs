//! Writes that still receive data: what has arrived, what was requested, and whether a Data-Out fits.

use crate::frame::Received;
use iscsi_wire::{DataOut, DataSn, Lun, R2tSn, ScsiCommand};
use std::collections::HashMap;

/// Maximum number of concurrent writes.
const MAX_TASKS: usize = 4096;

/// The writes of a connection, by ITT.
pub(super) struct Tasks {
    by_itt: HashMap<u32, Task>,
    next_ttt: u32,
}

impl Tasks {
    pub(super) fn new() -> Self {
        Tasks { by_itt: HashMap::new(), next_ttt: 0x1000 }
    }

    /// Whether no further command with this ITT may start.
    pub(super) fn refuses(&self, itt: u32) -> bool {
        self.by_itt.contains_key(&itt) || self.by_itt.len() >= MAX_TASKS
    }

    pub(super) fn insert(&mut self, itt: u32, task: Task) {
        self.by_itt.insert(itt, task);
    }

    pub(super) fn get_mut(&mut self, itt: u32) -> Option<&mut Task> {
        self.by_itt.get_mut(&itt)
    }

    pub(super) fn remove(&mut self, itt: u32) -> Option<Task> {
        self.by_itt.remove(&itt)
    }

    pub(super) fn clear(&mut self) {
        self.by_itt.clear();
    }

    /// Takes all of them.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (u32, Task)> {
        self.by_itt.drain()
    }

    /// The Target Transfer Tag of the next R2T.
    pub(super) fn next_ttt(&mut self) -> u32 {
        let ttt = self.next_ttt;
        self.next_ttt = ttt.wrapping_add(1) & 0x7fff_ffff;
        ttt
    }
}

/// A sequence of Data-Out PDUs up to an F bit: the requested range, and the progress.
struct Sequence {
    ttt: u32,
    start: usize,
    /// Offset of the next byte; with DataPDUInOrder=No, `start` and the bytes that have arrived.
    offset: usize,
    end: usize,
    next_data_sn: u32,
    /// A PDU is missing: the PDUs after it are discarded, and requested again after the F bit.
    broken: bool,
}

impl Sequence {
    fn new(ttt: u32, start: usize, end: usize) -> Self {
        Self { ttt, start, offset: start, end, next_data_sn: 0, broken: false }
    }
}

/// A range to request, and its place among the outstanding R2Ts.
pub(crate) struct Range {
    pub(crate) offset: usize,
    pub(crate) end: usize,
    pub(crate) place: usize,
}

/// What was negotiated about data.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// Lost PDUs are requested again.
    pub(crate) recovers: bool,
    /// DataPDUInOrder.
    pub(crate) in_order: bool,
}

/// What follows from a Data-Out.
pub(crate) enum Then {
    /// Nothing yet.
    Wait,
    /// It does not fit its task.
    Reject,
    /// The rest of a sequence with a hole must be requested again.
    Again(Range),
    /// A sequence has ended: request more, or complete the write.
    Continue,
}

/// A write that is still receiving data.
pub(crate) struct Task {
    lun: Lun,
    /// Bytes that the CDB transfers, and bytes that the initiator offers.
    cdb_length: usize,
    edtl: usize,
    medium_offset: usize,
    buffer: Vec<u8>,
    unsolicited_open: bool,
    unsolicited: Sequence,
    outstanding: Vec<Sequence>,
    /// The ranges that have arrived, with DataPDUInOrder=No.
    arrived: Vec<(usize, usize)>,
    next_offset: usize,
    r2t_sn: u32,
}

/// A write that has all of its data.
pub(super) struct Complete {
    pub(super) cdb_length: usize,
    pub(super) edtl: usize,
    pub(super) medium_offset: usize,
    pub(super) data: Vec<u8>,
    /// R2Ts that were sent for it.
    pub(super) r2ts: u32,
}

impl Task {
    /// A write of `cdb_length` bytes at `medium_offset`, with its immediate data. Up to `first_burst` bytes may come unsolicited.
    pub(crate) fn new(
        command: &ScsiCommand,
        medium_offset: usize,
        cdb_length: usize,
        immediate: &[u8],
        first_burst: usize,
    ) -> Self {
        let edtl = command.expected_data_transfer_length as usize;
        let mut buffer = vec![0; edtl.min(cdb_length)];
        let length = immediate.len().min(buffer.len());
        buffer[..length].copy_from_slice(&immediate[..length]);
        let end = first_burst.min(edtl);
        Task {
            lun: command.lun,
            cdb_length,
            edtl,
            medium_offset,
            buffer,
            unsolicited_open: !command.final_bit,
            unsolicited: Sequence::new(u32::MAX, length, end),
            outstanding: Vec::new(),
            arrived: Vec::new(),
            next_offset: length,
            r2t_sn: 0,
        }
    }

    pub(super) fn lun(&self) -> Lun {
        self.lun
    }

    /// The next range that may be requested now.
    pub(super) fn next_range(&mut self, max_outstanding: usize, max_burst: usize) -> Option<Range> {
        let (offset, total, place) = (self.next_offset, self.buffer.len(), self.outstanding.len());
        if self.unsolicited_open || place >= max_outstanding || offset >= total {
            return None;
        }
        self.next_offset = total.min(offset + max_burst);
        Some(Range { offset, end: self.next_offset, place })
    }

    /// An R2T for this range is about to be sent; returns its number.
    pub(crate) fn requested(&mut self, ttt: u32, range: &Range) -> R2tSn {
        let &Range { offset, end, place } = range;
        self.outstanding.insert(place.min(self.outstanding.len()), Sequence::new(ttt, offset, end));
        self.r2t_sn += 1;
        R2tSn(self.r2t_sn - 1)
    }

    /// What has arrived, with zeros where nothing has.
    pub(crate) fn data(&self) -> &[u8] {
        &self.buffer
    }

    /// Whether all of its data has arrived.
    pub(super) fn is_complete(&self) -> bool {
        !self.unsolicited_open && self.outstanding.is_empty() && self.next_offset >= self.buffer.len()
    }

    /// Its data, once [all of it](Self::is_complete) has arrived.
    pub(super) fn into_complete(self) -> Complete {
        let Task { cdb_length, edtl, medium_offset, buffer, r2t_sn, .. } = self;
        Complete { cdb_length, edtl, medium_offset, data: buffer, r2ts: r2t_sn }
    }

    /// Its connection was lost: what has not arrived must be requested again.
    pub(super) fn restart(&mut self) {
        let open = self.unsolicited_open.then_some(self.unsolicited.offset);
        let lowest = self.outstanding.iter().map(|sequence| sequence.offset).chain(open).min();
        self.next_offset = lowest.unwrap_or(self.next_offset);
        self.unsolicited_open = false;
        self.outstanding.clear();
    }

    /// Takes the data of a PDU. Calls `find` with each rule that it breaks.
    pub(crate) fn take(
        &mut self,
        pdu: &DataOut,
        rx: &Received,
        rules: Rules,
        mut find: impl FnMut(&'static str, String),
    ) -> Then {
        let unsolicited = pdu.ttt.is_reserved();
        let place = self.outstanding.iter().position(|sequence| sequence.ttt == pdu.ttt.0);
        let sequence = match place {
            _ if unsolicited && self.unsolicited_open => &mut self.unsolicited,
            Some(place) if !unsolicited => {
                if place != 0 {
                    find("R2T-02", format!("R2Ts answered out of order: {}", rx.line()));
                }
                if pdu.lun != self.lun {
                    find("DAT-04", format!("LUN of the R2T not copied: {}", rx.line()));
                }
                &mut self.outstanding[place]
            }
            _ => {
                find("R2T-03", format!("data that nobody asked for: {}", rx.line()));
                return Then::Reject;
            }
        };
        if rules.recovers {
            if pdu.data_sn.0 < sequence.next_data_sn {
                return Then::Wait;
            }
            sequence.broken |= pdu.data_sn.0 > sequence.next_data_sn;
            if sequence.broken {
                return if pdu.final_bit { self.ask_again(place) } else { Then::Wait };
            }
        }
        let in_order = rules.in_order;
        let (offset, end) = (pdu.buffer_offset as usize, pdu.buffer_offset as usize + rx.data.len());
        if pdu.data_sn != DataSn(sequence.next_data_sn) {
            find("DAT-02", format!("DataSN {} was due: {}", sequence.next_data_sn, rx.line()));
        }
        let arrived = if in_order { end } else { sequence.offset + rx.data.len() };
        let early = pdu.final_bit && arrived != sequence.end;
        let in_place = match in_order {
            true => offset == sequence.offset,
            false => offset >= sequence.start && enter(&mut self.arrived, offset, end),
        };
        if !in_place || end > sequence.end || (early && !in_order) {
            find("DAT-03", format!("{}..{} was due: {}", sequence.offset, sequence.end, rx.line()));
            return Then::Reject;
        }
        if early {
            let row = if unsolicited { "UNS-04" } else { "R2T-03" };
            find(row, format!("F at {end}, {} bytes were due: {}", sequence.end, rx.line()));
        }
        (sequence.offset, sequence.next_data_sn) = (arrived, sequence.next_data_sn + 1);
        if let Some(range) = self.buffer.get_mut(offset..end) {
            range.copy_from_slice(&rx.data);
        }
        if !pdu.final_bit {
            return Then::Wait;
        }
        match place {
            _ if unsolicited => self.end_unsolicited(),
            Some(place) => drop(self.outstanding.remove(place)),
            None => {}
        }
        Then::Continue
    }

    fn end_unsolicited(&mut self) {
        self.unsolicited_open = false;
        self.next_offset = self.unsolicited.offset;
    }

    /// A sequence ended with a hole; `place` is that of its R2T, if there was one.
    fn ask_again(&mut self, place: Option<usize>) -> Then {
        let Some(place) = place else {
            self.end_unsolicited();
            return Then::Continue;
        };
        let Sequence { offset, end, .. } = self.outstanding.remove(place);
        Then::Again(Range { offset, end, place })
    }
}

/// Enters a range; false if some of its bytes were entered before.
fn enter(ranges: &mut Vec<(usize, usize)>, start: usize, end: usize) -> bool {
    let fresh = ranges.iter().all(|(from, to)| start >= *to || end <= *from);
    ranges.push((start, end));
    fresh
}
