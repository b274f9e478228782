//! PDUs that were sent and not acknowledged, and what is left of tasks whose connection was lost.

use super::task::Task;
use crate::frame::{Frame, u32_at};
use iscsi_wire::{Itt, Opcode, StatSn};
use std::collections::{BTreeMap, HashMap};

/// Base of the Target Transfer Tags of Data-In PDUs with the A bit; the task's own tag is combined
/// with it.
pub(super) const A_BIT_TAG: u32 = 0x5a5a_0000;

/// A task whose connection was lost. It waits for TASK REASSIGN.
#[derive(Default)]
pub(super) struct Orphan {
    /// A write that still needs data.
    pub(super) task: Option<Task>,
    /// Its unacknowledged Data-In PDUs.
    pub(super) data: BTreeMap<u32, Frame>,
    /// Its response, if it has been sent.
    pub(super) status: Option<Frame>,
}

/// PDUs that were sent and not acknowledged.
#[derive(Default)]
pub(super) struct Kept {
    data: HashMap<u32, BTreeMap<u32, Frame>>,
    r2ts: HashMap<u32, BTreeMap<u32, Frame>>,
    statuses: BTreeMap<u32, Frame>,
}

impl Kept {
    /// Keeps a PDU that is about to be sent.
    pub(super) fn keep(&mut self, frame: &Frame) {
        let bhs = frame.bhs();
        let (itt, number) = (bhs.itt().0, u32_at(&bhs, 36));
        match Opcode::try_from(bhs.opcode()) {
            Ok(Opcode::DataIn) => {
                self.data.entry(itt).or_default().insert(number, frame.clone());
                if bhs.as_bytes()[1] & 1 != 0 {
                    self.statuses.insert(u32_at(&bhs, 24), frame.clone());
                }
            }
            Ok(Opcode::R2t) => {
                self.r2ts.entry(itt).or_default().insert(number, frame.clone());
            }
            Ok(Opcode::NopIn) if bhs.itt().is_reserved() => {}
            _ => {
                self.statuses.insert(u32_at(&bhs, 24), frame.clone());
            }
        }
    }

    /// The initiator has every response below `exp_stat_sn`. Returns the tasks that are complete.
    pub(super) fn acknowledged(&mut self, exp_stat_sn: StatSn) -> Vec<u32> {
        let over: Vec<u32> =
            self.statuses.keys().copied().filter(|number| StatSn(*number).lt(exp_stat_sn)).collect();
        let frames = over.iter().filter_map(|number| self.statuses.remove(number));
        let tasks: Vec<u32> = frames.map(|frame| frame.bhs().itt().0).collect();
        for itt in &tasks {
            self.data.remove(itt);
            self.r2ts.remove(itt);
        }
        tasks
    }

    /// The tasks that wait for a reassignment when the connection is lost.
    pub(super) fn orphans(&mut self) -> HashMap<u32, Orphan> {
        let mut orphans: HashMap<u32, Orphan> = HashMap::new();
        for (itt, data) in self.data.drain() {
            orphans.entry(itt).or_default().data = data;
        }
        for frame in std::mem::take(&mut self.statuses).into_values() {
            let bhs = frame.bhs();
            let of_command = [Opcode::ScsiResponse.code(), Opcode::DataIn.code()].contains(&bhs.opcode());
            if of_command {
                orphans.entry(bhs.itt().0).or_default().status = Some(frame);
            }
        }
        orphans
    }

    /// The Data-In or R2T PDUs of a run, as a SNACK requests them.
    pub(super) fn data_or_r2ts(&self, itt: Itt, beg_run: u32, run_length: u32) -> Option<Vec<Frame>> {
        self.numbered(itt).and_then(|kept| run(kept, beg_run, run_length))
    }

    /// The responses of a run, as a SNACK requests them.
    pub(super) fn responses(&self, beg_run: u32, run_length: u32) -> Option<Vec<Frame>> {
        run(&self.statuses, beg_run, run_length)
    }

    /// The number after that of the last Data-In or R2T of a task.
    pub(super) fn next_number(&self, itt: Itt) -> u32 {
        self.numbered(itt).and_then(|kept| kept.keys().next_back()).map_or(0, |last| last + 1)
    }

    fn numbered(&self, itt: Itt) -> Option<&BTreeMap<u32, Frame>> {
        self.data.get(&itt.0).or_else(|| self.r2ts.get(&itt.0))
    }

    /// The Data-In PDUs of a task.
    pub(super) fn data_mut(&mut self, itt: u32) -> Option<&mut BTreeMap<u32, Frame>> {
        self.data.get_mut(&itt)
    }

    /// Takes the Data-In PDUs of a task, with its response if there is one.
    pub(super) fn take_data(&mut self, itt: Itt) -> Option<(BTreeMap<u32, Frame>, Option<Frame>)> {
        let data = self.data.remove(&itt.0)?;
        let response = self.statuses.values().find(|frame| frame.bhs().itt() == itt).cloned();
        Some((data, response))
    }
}

/// The PDUs of a run; all PDUs from its start when the length is 0.
fn run(kept: &BTreeMap<u32, Frame>, beg_run: u32, run_length: u32) -> Option<Vec<Frame>> {
    if run_length == 0 {
        let all: Vec<Frame> = kept.range(beg_run..).map(|(_, frame)| frame.clone()).collect();
        return (!all.is_empty()).then_some(all);
    }
    (beg_run..beg_run.checked_add(run_length)?).map(|number| kept.get(&number).cloned()).collect()
}
