//! A command between POST_TASK and TASK_DONE.

use iscsi_wire::{Lun, StatSn};

use super::sgl::Sgl;
use crate::encoding::{PostTask, TaskDone, task_flags};

/// The command table's entry of one task, with its data_address entry.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) post: PostTask,
    pub(super) sgl: Sgl,
    pub(super) sent: bool,
    pub(super) cmd_sn: u32,
    pub(super) exp_stat_sn: u32,
    /// DataSN of a read or R2TSN of a write that is expected next.
    pub(super) next_sn: u32,
    /// End of what was received, with holes for what is missing.
    pub(super) next_offset: u32,
    pub(super) bytes_received: u32,
    pub(super) bytes_sent: u32,
    /// A status that arrived but may not be acknowledged, because data is missing.
    pub(super) held_stat_sn: Option<StatSn>,
    /// The target's answer, once it has arrived.
    pub(super) status: Option<TaskDone>,
}

impl Task {
    pub(super) fn new(post: PostTask, sgl: Sgl) -> Self {
        Self {
            post,
            sgl,
            sent: false,
            cmd_sn: 0,
            exp_stat_sn: 0,
            next_sn: 0,
            next_offset: 0,
            bytes_received: 0,
            bytes_sent: 0,
            held_stat_sn: None,
            status: None,
        }
    }

    pub(super) fn reads(&self) -> bool {
        self.post.flags & task_flags::READ != 0
    }

    pub(super) fn writes(&self) -> bool {
        self.post.flags & task_flags::WRITE != 0
    }

    pub(super) fn is_immediate(&self) -> bool {
        self.post.flags & task_flags::IMMEDIATE != 0
    }

    pub(super) fn lun(&self) -> Lun {
        Lun(u64::from_be_bytes(self.post.lun))
    }
}
