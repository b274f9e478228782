//! One connection: its parameters, its tables, and how tasks end.

use std::collections::{BTreeMap, VecDeque};

use iscsi_core::digest::DigestScope;
use iscsi_wire::{CmdSn, Itt};

use super::Host;
use super::raw::RawRing;
use super::rx::Receiver;
use super::snack::SnackTable;
use super::status::Statuses;
use super::task::Task;
use super::tx::{Burst, Control, TxBuffer};
use super::window::Window;
use crate::Caps;
use crate::crc::CrcUnit;
use crate::encoding::{
    Completion, DescriptorKind, OpenConn, SetParams, SetPoly, StopReason, TaskDone, TaskResult, conn_flags,
};
use crate::limits::{BUFFER_BYTES, MAX_ERROR_RECOVERY_LEVEL, MAX_OUTSTANDING_R2T, MAX_RAW_SLOTS};

/// The smallest MaxRecvDataSegmentLength, MaxBurstLength and FirstBurstLength (RFC 7143 13.12-13.14).
const MIN_LENGTH: u32 = 512;
/// The largest MaxBurstLength and FirstBurstLength.
const MAX_BURST_LENGTH: u32 = 0xff_ffff;

/// The state of one byte stream.
pub(super) struct Connection {
    pub(super) params: OpenConn,
    pub(super) digests: DigestScope,
    pub(super) window: Window,
    pub(super) statuses: Statuses,
    pub(super) stopped: Option<StopReason>,
    pub(super) rx: Receiver,
    pub(super) raw: RawRing,
    /// By Initiator Task Tag: iteration has one order, whatever happened before.
    pub(super) tasks: BTreeMap<u32, Task>,
    pub(super) snacks: SnackTable,
    pub(super) control: VecDeque<Control>,
    pub(super) bursts: VecDeque<Burst>,
    pub(super) out: TxBuffer,
}

impl Connection {
    pub(super) fn open(open: &OpenConn) -> Result<Self, TaskResult> {
        if open.flags & !Caps::SOFTWARE.conn_flags != 0 {
            return Err(TaskResult::NOT_SUPPORTED);
        }
        let bursts = [open.max_burst_length, open.first_burst_length];
        let valid = open.error_recovery_level <= MAX_ERROR_RECOVERY_LEVEL
            && data_segment(open.max_recv_data_segment_length)
            && open.max_send_data_segment_length >= MIN_LENGTH
            && bursts.iter().all(|length| (MIN_LENGTH..=MAX_BURST_LENGTH).contains(length))
            && (1..=MAX_OUTSTANDING_R2T).contains(&open.max_outstanding_r2t)
            && (1..=MAX_RAW_SLOTS).contains(&open.raw_slots)
            && open.raw_slot_bytes >= RawRing::slot_bytes_for(open.max_recv_data_segment_length);
        if !valid {
            return Err(TaskResult::INVALID);
        }
        let has = |flag| open.flags & flag != 0;
        Ok(Self {
            params: *open,
            digests: DigestScope {
                header: has(conn_flags::HEADER_DIGEST),
                data: has(conn_flags::DATA_DIGEST),
            },
            window: Window::new(CmdSn(open.cmd_sn), CmdSn(open.max_cmd_sn)),
            statuses: Statuses::new(open.exp_stat_sn),
            stopped: None,
            rx: Receiver::new(),
            raw: RawRing::new(open),
            tasks: BTreeMap::new(),
            snacks: SnackTable::default(),
            control: VecDeque::new(),
            bursts: VecDeque::new(),
            out: TxBuffer::new(),
        })
    }

    /// Commands in the table.
    pub(super) fn commands(&self) -> usize {
        self.tasks.len()
    }

    /// ErrorRecoveryLevel 1 or 2: what is lost is requested with SNACK.
    pub(super) fn recovers(&self) -> bool {
        self.params.error_recovery_level > 0
    }

    /// The largest data segment that is sent, in bytes: what the peer accepts and the buffer holds.
    pub(super) fn max_send(&self) -> u32 {
        self.params.max_send_data_segment_length.min(BUFFER_BYTES)
    }

    pub(super) fn set_params(&mut self, set: &SetParams) -> TaskResult {
        if !data_segment(set.max_recv_data_segment_length)
            || set.max_send_data_segment_length < MIN_LENGTH
            || self.params.raw_slot_bytes < RawRing::slot_bytes_for(set.max_recv_data_segment_length)
        {
            return TaskResult::INVALID;
        }
        self.params.max_recv_data_segment_length = set.max_recv_data_segment_length;
        self.params.max_send_data_segment_length = set.max_send_data_segment_length;
        self.params.snack_delay_us = set.snack_delay_us;
        TaskResult::GOOD
    }

    /// From the next PDU on, in either direction. A generator polynomial without its lowest term is none: it would not see the
    /// last bit.
    pub(super) fn set_poly(&mut self, set: &SetPoly) -> TaskResult {
        if set.polynomial & 1 == 0 {
            return TaskResult::INVALID;
        }
        let unit = CrcUnit::new(set.polynomial, set.init, set.xor_out);
        self.rx.set_crc(unit.clone());
        self.out.set_crc(unit);
        TaskResult::GOOD
    }

    /// ABORT: of one task, or of all.
    pub(super) fn abort(&mut self, host: &mut Host, itt: Itt) -> TaskResult {
        if itt.is_reserved() {
            let tags: Vec<u32> = self.tasks.keys().copied().collect();
            for itt in tags {
                self.end_task(host, itt, TaskResult::ABORTED);
            }
            return TaskResult::GOOD;
        }
        if !self.tasks.contains_key(&itt.0) {
            return TaskResult::NO_TASK;
        }
        self.end_task(host, itt.0, TaskResult::ABORTED);
        TaskResult::GOOD
    }

    /// Takes a task out of all tables and reports it.
    pub(super) fn end_task(&mut self, host: &mut Host, itt: u32, result: TaskResult) {
        let Some(task) = self.tasks.remove(&itt) else { return };
        self.bursts.retain(|burst| burst.itt != itt);
        self.control.retain(|control| *control != Control::Command(itt));
        self.snacks.forget_task(Itt(itt));
        let status = task.status.unwrap_or_default();
        host.completions.push(Completion::TaskDone(TaskDone {
            result,
            conn: self.params.conn,
            itt,
            user: task.post.user,
            descriptor: DescriptorKind::POST_TASK,
            bytes_received: task.bytes_received,
            bytes_sent: task.bytes_sent,
            ..status
        }));
    }

    /// Reports a task whose status and data have all arrived.
    //= rfc7143 7.9 SNK-09
    pub(super) fn end_if_complete(&mut self, host: &mut Host, itt: u32) {
        let answered = self.tasks.get(&itt).is_some_and(|task| task.status.is_some());
        if answered && !self.snacks.has_holes(Itt(itt)) {
            self.end_task(host, itt, TaskResult::GOOD);
        }
    }
}

fn data_segment(length: u32) -> bool {
    (MIN_LENGTH..=BUFFER_BYTES).contains(&length)
}
