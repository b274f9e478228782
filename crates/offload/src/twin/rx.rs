//! The receive module: cuts the byte stream into PDUs, compares their digests, and hands each to its place.
//!
//! One PDU at a time lies in the receive buffer. Its header is believed after its digest was compared, its data is used after
//! the data digest was compared; so whatever the cut of the stream, the same PDUs are handled in the same order.

use iscsi_core::digest::{DIGEST_BYTES, DigestScope, PduLayout};
use iscsi_wire::{Bhs, CmdSn, DataIn, Opcode, R2t, ScsiResponse};

use super::Host;
use super::connection::Connection;
use super::status::{Seen, consumes_stat_sn, stat_sn};
use crate::crc::CrcUnit;
use crate::encoding::{
    Completion, DigestAction, DigestError, NeedResync, RawReason, Resync, StopReason, TaskResult,
};

/// One whole PDU in the receive buffer.
#[derive(Debug)]
pub(super) struct Received {
    bytes: Vec<u8>,
    bhs: Bhs,
    layout: PduLayout,
    position: u64,
}

impl Received {
    pub(super) fn bhs(&self) -> &Bhs {
        &self.bhs
    }

    /// BHS and AHS.
    pub(super) fn header(&self) -> &[u8] {
        &self.bytes[..self.layout.header_end]
    }

    /// The data segment without padding.
    pub(super) fn data(&self) -> &[u8] {
        &self.bytes[self.layout.data_start..self.layout.data_start + self.layout.data_len]
    }

    /// Position of its first byte in the stream.
    pub(super) fn position(&self) -> u64 {
        self.position
    }
}

/// What becomes of a PDU. `Raw` and `Stop` are decided before anything has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The engine has done all that the PDU asks for.
    Done,
    /// It is for software.
    Raw(RawReason),
    /// Nothing after it may be handled before software has decided.
    Stop(StopReason),
}

/// The receive buffer and the place in the stream.
pub(super) struct Receiver {
    /// Bytes taken from the stream.
    position: u64,
    buffer: Vec<u8>,
    /// The PDU in the buffer, once its header is complete and verified.
    current: Option<(Bhs, PduLayout)>,
    /// After RESYNC: everything before this position is dropped.
    skip_to: u64,
    crc: CrcUnit,
    /// In force when the PDU in the buffer is done.
    next_crc: Option<CrcUnit>,
}

impl Receiver {
    pub(super) fn new() -> Self {
        Self {
            position: 0,
            buffer: Vec::new(),
            current: None,
            skip_to: 0,
            crc: CrcUnit::crc32c(),
            next_crc: None,
        }
    }

    pub(super) fn position(&self) -> u64 {
        self.position
    }

    pub(super) fn set_crc(&mut self, crc: CrcUnit) {
        if self.buffer.is_empty() {
            self.crc = crc;
        } else {
            self.next_crc = Some(crc);
        }
    }

    pub(super) fn crc(&self) -> &CrcUnit {
        self.next_crc.as_ref().unwrap_or(&self.crc)
    }

    /// Length that the buffer must have before the next decision, in bytes.
    fn wanted(&self, digests: DigestScope) -> usize {
        match (&self.current, self.buffer.first_chunk()) {
            (Some((_, layout)), _) => layout.total,
            (None, Some(bhs)) => digests.layout(&Bhs::from_bytes(*bhs)).data_start,
            (None, None) => Bhs::SIZE,
        }
    }

    /// Takes bytes for the buffer, up to `wanted`; returns how many.
    fn take(&mut self, wanted: usize, bytes: &[u8]) -> usize {
        let count = bytes.len().min(wanted - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..count]);
        self.position += count as u64;
        count
    }

    /// Drops what RESYNC says is no PDU; returns how many bytes.
    fn skip(&mut self, bytes: &[u8]) -> usize {
        let left = usize::try_from(self.skip_to.saturating_sub(self.position)).unwrap_or(usize::MAX);
        let count = left.min(bytes.len());
        self.position += count as u64;
        count
    }

    fn matches(&self, covered: &[u8], digest: &[u8]) -> bool {
        self.crc.digest(covered) == *digest
    }

    /// The buffer is free for the next PDU.
    fn finish_pdu(&mut self) {
        self.buffer.clear();
        self.current = None;
        if let Some(crc) = self.next_crc.take() {
            self.crc = crc;
        }
    }
}

impl Connection {
    /// See [`Engine::rx`](crate::Engine::rx).
    pub(super) fn rx(&mut self, host: &mut Host, bytes: &[u8]) -> usize {
        let mut used = 0;
        while self.stopped.is_none() {
            used += self.rx.skip(&bytes[used..]);
            let wanted = self.rx.wanted(self.digests);
            if self.rx.buffer.len() < wanted {
                if used == bytes.len() {
                    break;
                }
                used += self.rx.take(wanted, &bytes[used..]);
                continue;
            }
            if !host.completions.has_room_for_pdu() {
                break;
            }
            let handled = match self.rx.current {
                None => self.handle_header(host),
                Some((bhs, layout)) => self.handle_pdu(host, bhs, layout),
            };
            if !handled {
                break;
            }
        }
        used
    }

    /// A header is complete: compares its digest, and only then believes a length.
    fn handle_header(&mut self, host: &mut Host) -> bool {
        let Some(first) = self.rx.buffer.first_chunk::<{ Bhs::SIZE }>() else { return false };
        let bhs = Bhs::from_bytes(*first);
        let layout = self.digests.layout(&bhs);
        let (covered, digest) = self.rx.buffer.split_at(layout.header_end);
        //= rfc7143 7.8 DIG-07
        if self.digests.header && !self.rx.matches(covered, digest) {
            self.stop(host, StopReason::HEADER_DIGEST, None);
            return true;
        }
        //= rfc7143 13.12 PDU-07
        if layout.data_len > self.params.max_recv_data_segment_length as usize {
            self.stop(host, StopReason::DATA_TOO_LONG, None);
            return true;
        }
        self.rx.current = Some((bhs, layout));
        true
    }

    /// A PDU is complete. False when it has to wait for a free slot; nothing has changed then.
    fn handle_pdu(&mut self, host: &mut Host, bhs: Bhs, layout: PduLayout) -> bool {
        let position = self.rx.position - layout.total as u64;
        let pdu = Received { bytes: std::mem::take(&mut self.rx.buffer), bhs, layout, position };
        let (before, digest) = pdu.bytes.split_at(layout.covered_end);
        //= rfc7143 11.2.3 DIG-03 DIG-14
        let intact = digest.len() < DIGEST_BYTES || self.rx.matches(&before[layout.data_start..], digest);
        let verdict = if !intact {
            self.lose_pdu(host, &pdu)
        } else if self.recovers() && !self.snacks.has_room_for_pdu() {
            Verdict::Stop(StopReason::NO_ROOM)
        } else {
            self.dispatch(host, &pdu)
        };
        let settled = self.settle(host, &pdu, verdict);
        self.rx.buffer = pdu.bytes;
        if settled && self.stopped.is_none() {
            self.rx.finish_pdu();
        }
        settled
    }

    /// The opcode decides who handles a PDU.
    //= rfc7143 11.2.1.2 PDU-05
    fn dispatch(&mut self, host: &mut Host, pdu: &Received) -> Verdict {
        let plain = pdu.bhs.total_ahs_length() == 0;
        let verdict = match Opcode::try_from(pdu.bhs.opcode()) {
            Ok(Opcode::DataIn) if plain => {
                DataIn::parse(&pdu.bhs).map(|data_in| self.handle_data_in(host, &data_in, pdu.data()))
            }
            Ok(Opcode::ScsiResponse) if plain => ScsiResponse::parse(&pdu.bhs)
                .map(|response| self.handle_response(host, &response, pdu.data())),
            Ok(Opcode::R2t) if plain => {
                R2t::parse(&pdu.bhs).map(|r2t| self.handle_r2t(host, &r2t, pdu.data()))
            }
            //= rfc7143 11.5.2 PDU-06
            Ok(Opcode::DataIn | Opcode::ScsiResponse | Opcode::R2t) => {
                return Verdict::Stop(StopReason::PROTOCOL);
            }
            _ => return Verdict::Raw(RawReason::OPCODE),
        };
        //= rfc7143 11 PDU-03
        verdict.unwrap_or(Verdict::Stop(StopReason::PROTOCOL))
    }

    /// Does what the verdict says. False when there is no slot for the PDU.
    fn settle(&mut self, host: &mut Host, pdu: &Received, verdict: Verdict) -> bool {
        if verdict != Verdict::Done
            && verdict != Verdict::Stop(StopReason::DATA_DIGEST)
            && self.raw.free() == 0
        {
            return false;
        }
        match verdict {
            Verdict::Done => self.see_window(&pdu.bhs),
            Verdict::Raw(reason) => match self.take_raw_stat_sn(pdu, host.now_us) {
                Err(_) => self.stop(host, StopReason::SEQUENCE, Some(pdu)),
                Ok(Seen::Duplicate) => {}
                Ok(Seen::Fresh) if self.give_to_software(host, pdu, reason).is_err() => {
                    self.stop(host, StopReason::MEMORY, Some(pdu));
                }
                Ok(Seen::Fresh) => self.see_window(&pdu.bhs),
            },
            Verdict::Stop(reason) => self.stop(host, reason, Some(pdu)),
        }
        true
    }

    fn take_raw_stat_sn(&mut self, pdu: &Received, now_us: u64) -> Result<Seen, Verdict> {
        if !consumes_stat_sn(&pdu.bhs) {
            return Ok(Seen::Fresh);
        }
        self.take_stat_sn(stat_sn(&pdu.bhs), now_us)
    }

    /// Every PDU of a target carries ExpCmdSN and MaxCmdSN.
    fn see_window(&mut self, bhs: &Bhs) {
        if Opcode::try_from(bhs.opcode()).is_ok_and(|opcode| !opcode.is_initiator()) {
            let number =
                |at: usize| CmdSn(u32::from_be_bytes(std::array::from_fn(|i| bhs.as_bytes()[at + i])));
            self.window.update(number(28), number(32));
        }
    }

    /// Receives no more until RESYNC. `pdu` is the PDU that is the reason, unless its header is in doubt; it goes to software, if
    /// its data can be used.
    fn stop(&mut self, host: &mut Host, reason: StopReason, pdu: Option<&Received>) {
        let taken = self.rx.position;
        let (position, boundary) = match pdu {
            Some(pdu) => (pdu.position, taken),
            None => (taken - self.rx.buffer.len() as u64, NeedResync::UNKNOWN),
        };
        let raw_reason = match reason {
            StopReason::PROTOCOL => Some(RawReason::PROTOCOL),
            StopReason::SEQUENCE => Some(RawReason::SEQUENCE),
            StopReason::NO_ROOM => Some(RawReason::NO_ROOM),
            _ => None,
        };
        let refused = match (pdu, raw_reason) {
            (Some(pdu), Some(raw_reason)) => self.give_to_software(host, pdu, raw_reason).is_err(),
            _ => false,
        };
        let reason = if refused { StopReason::MEMORY } else { reason };
        self.stopped = Some(reason);
        let conn = self.params.conn;
        host.completions.push(Completion::NeedResync(NeedResync { reason, conn, position, taken, boundary }));
    }

    /// RESYNC: software says where the next PDU begins.
    pub(super) fn resync(&mut self, resync: &Resync) -> TaskResult {
        if self.stopped.is_none() || resync.position < self.rx.position {
            return TaskResult::INVALID;
        }
        self.stopped = None;
        self.rx.finish_pdu();
        self.rx.skip_to = resync.position;
        TaskResult::GOOD
    }

    /// The data digest of a PDU does not match. Its header can be believed; no byte of its data is used.
    //= rfc7143 7.8 DIG-11 DIG-12
    fn lose_pdu(&mut self, host: &mut Host, pdu: &Received) -> Verdict {
        let bhs = &pdu.bhs;
        let action = self.request_again(bhs, pdu.data().len(), host.now_us);
        let itt = bhs.itt().0;
        host.completions.push(Completion::DigestError(DigestError {
            action,
            conn: self.params.conn,
            itt,
            user: self.tasks.get(&itt).map_or(0, |task| task.post.user),
            bhs: *bhs.as_bytes(),
        }));
        if action == DigestAction::STOPPED { Verdict::Stop(StopReason::DATA_DIGEST) } else { Verdict::Done }
    }

    /// Enters a PDU whose data is unusable into the SNACK table, if its number allows that.
    fn request_again(&mut self, bhs: &Bhs, data_bytes: usize, now_us: u64) -> DigestAction {
        if !self.recovers() || !self.snacks.has_room_for_pdu() {
            return DigestAction::STOPPED;
        }
        let requested = match DataIn::parse(bhs) {
            Ok(data_in) => self.lose_data_in(&data_in, data_bytes, now_us),
            Err(_) if consumes_stat_sn(bhs) => Ok(self.lose_status_pdu(stat_sn(bhs), now_us)),
            Err(_) => Ok(false),
        };
        match requested {
            Ok(true) => DigestAction::SNACK,
            Ok(false) => DigestAction::DROPPED,
            Err(_) => DigestAction::STOPPED,
        }
    }
}
