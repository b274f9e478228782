//! The tasks of a session, by tag. A tag consists of an index into the table and the use count of that slot. So a lookup needs no
//! hashing, and a late PDU never matches a newer task.

use iscsi_wire::{Cid, CmdSn, DataIn, Itt, Lun, TmfFunction};

use super::actions::CloseReason;
use super::command::{Command, Ending};
use super::read_order::Scoreboard;
use super::recovery::holes::Holes;
use super::scheduling::COMMAND_WEIGHT_BYTES;
use crate::extents::{Extents, Refused};
use crate::limits::MAX_INITIATOR_TASKS;
use crate::params::DataOrder;
use crate::{Time, earlier};

/// The data of a task that has no order.
#[derive(Debug, Default)]
struct Scattered {
    /// What has arrived, if it may arrive in any order; otherwise it is the data before [`Task::received`].
    arrived: Option<Scoreboard>,
    /// What was requested, if R2Ts have come in another order than that of their bytes; otherwise it is the data before [`Task::sent`].
    requested: Option<Extents>,
}

/// Where a command travels.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Route {
    /// The connection on which it was sent.
    pub cid: Cid,
    /// The connection of its data and status: `cid`; in asymmetric use, once a PDU has arrived, the connection that carried it.
    pub home: Cid,
    /// That connection is gone, and the task waits to be settled.
    pub orphan: bool,
    /// It continues on another connection, and no R2T has arrived there yet.
    pub reassigned: bool,
}

impl Route {
    /// The command is sent on `cid`, or continues there.
    pub(crate) fn follow(&mut self, cid: Cid) {
        (self.cid, self.home, self.orphan) = (cid, cid, false);
    }
}

/// What a command has to do with time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    /// When it was sent.
    pub sent_at: Time,
    /// When it times out.
    pub deadline: Option<Time>,
    /// When to check for PDUs that may have been lost without a trace.
    pub probe_at: Option<Time>,
}

/// A command under way.
#[derive(Debug)]
pub(super) struct Task {
    pub command: Command,
    /// CmdSN, once it was sent.
    pub cmd_sn: Option<CmdSn>,
    pub route: Route,
    /// DataSN or R2TSN of the next Data-In or R2T: they share the numbers.
    pub next_data_sn: u32,
    /// Bytes of Data-In that have arrived.
    pub received: u32,
    /// End of the data that was sent unsolicited or requested by R2T, bytes.
    pub sent: u32,
    /// Where the data is that may come or be requested in any order.
    scattered: Option<Box<Scattered>>,
    /// MaxRecvDataSegmentLength to which the target cuts its data, bytes.
    pub segment_bytes: u32,
    pub times: Times,
    /// See [`Task::decide`].
    verdict: Option<Box<Ending>>,
    /// An ABORT TASK for it is under way or was tried.
    pub aborting: bool,
    /// The target reported that it ends the task: no more data is sent for it.
    pub terminated: bool,
    pub resends: u8,
    /// State of its missing PDUs, if any.
    pub holes: Option<Box<Holes>>,
}

impl Task {
    #[inline]
    fn new(command: Command, deadline: Option<Time>) -> Self {
        Self {
            command,
            cmd_sn: None,
            route: Route::default(),
            next_data_sn: 0,
            received: 0,
            sent: 0,
            scattered: None,
            segment_bytes: 0,
            times: Times { deadline, ..Times::default() },
            verdict: None,
            aborting: false,
            terminated: false,
            resends: 0,
            holes: None,
        }
    }

    /// Its outcome is fixed already: `ending`, whatever the target reports as its end.
    #[cold]
    pub(super) fn decide(&mut self, ending: Ending) {
        self.verdict = Some(Box::new(ending));
    }

    /// Whether its outcome is fixed already.
    pub(super) fn is_decided(&self) -> bool {
        self.verdict.is_some()
    }

    /// Takes the outcome, if it is fixed already.
    pub(super) fn take_decision(&mut self) -> Option<Ending> {
        self.verdict.take().map(|ending| *ending)
    }

    /// Restarts its timeout.
    pub(super) fn time_begins(&mut self, now: Time) {
        self.times.deadline = (!self.command.timeout.is_zero()).then(|| now + self.command.timeout);
    }

    /// When something is due for it.
    pub(super) fn due(&self) -> Option<Time> {
        earlier(self.times.deadline, self.times.probe_at)
    }

    /// Resets its transfer state: it is sent again from the beginning.
    pub(super) fn start_over(&mut self) {
        (self.next_data_sn, self.received, self.sent, self.holes) = (0, 0, 0, None);
        (self.times.probe_at, self.scattered) = (None, None);
    }

    /// The Data-In that has arrived, if it may arrive in any order.
    fn arrived(&self) -> Option<&Scoreboard> {
        self.scattered.as_ref()?.arrived.as_ref()
    }

    /// Bytes of Data-In from the start up to the first that is missing.
    pub(super) fn received_whole(&self) -> u32 {
        self.arrived().map_or(self.received, Scoreboard::whole_from_start)
    }

    /// Enters a Data-In of `length` bytes into the scoreboard, if the data may arrive in another order than its own.
    #[inline]
    pub(super) fn place(&mut self, order: DataOrder, pdu: &DataIn, length: usize) -> Result<(), CloseReason> {
        match order.is_strict() {
            true => Ok(()),
            false => self
                .scattered
                .get_or_insert_default()
                .arrived
                .get_or_insert_default()
                .enter(order, pdu, length),
        }
    }

    /// Enters the range of an R2T, of which no byte may have been sent before. Data requested in order needs no scoreboard.
    pub(super) fn request(&mut self, offset: u32, length: u32) -> Result<(), Refused> {
        let requested = self.scattered.as_mut().and_then(|scattered| scattered.requested.as_mut());
        if requested.is_none() && offset == self.sent {
            return Ok(());
        }
        let sent = self.sent;
        let requested = &mut self.scattered.get_or_insert_default().requested;
        requested.get_or_insert_with(|| Extents::up_to(sent)).add(offset, length as usize)
    }

    /// Checks that the data of a read that ends with GOOD status has no gap.
    pub(super) fn check_whole(&self) -> Result<(), CloseReason> {
        self.arrived().map_or(Ok(()), Scoreboard::check_end)
    }

    /// Its weight for the scheduler, bytes.
    pub(super) fn weight(&self) -> u64 {
        COMMAND_WEIGHT_BYTES + self.command.write.len() as u64 + u64::from(self.command.read_length)
    }
}

/// On whose behalf a task management function is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The session itself, because a command took too long or was refused.
    Recovery,
    /// The session itself, because the connection of a task is gone.
    Settle,
    /// The caller, under this name.
    Caller(u64),
}

/// A task management function under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Management {
    pub function: TmfFunction,
    pub lun: Lun,
    /// The connection it was sent on.
    pub cid: Cid,
    pub referenced: Itt,
    pub ref_cmd_sn: CmdSn,
    /// CmdSN that it carried: it affects the commands before that number.
    pub cmd_sn: CmdSn,
    pub exp_data_sn: u32,
    pub deadline: Time,
    pub wanted: Wanted,
    pub resends: u8,
}

impl Management {
    /// Whether its completion ends `task`, whose tag is `itt`. Functions that end many tasks end those that were sent before
    /// them.
    //= rfc7143 4.2.3.3 TMF-05
    pub(super) fn ends(&self, itt: Itt, task: &Task) -> bool {
        let before = task.cmd_sn.is_some_and(|cmd_sn| cmd_sn.lt(self.cmd_sn));
        match self.function {
            TmfFunction::AbortTask => self.referenced == itt,
            TmfFunction::AbortTaskSet | TmfFunction::ClearTaskSet | TmfFunction::LogicalUnitReset => {
                before && task.command.lun == self.lun
            }
            TmfFunction::TargetWarmReset | TmfFunction::TargetColdReset | TmfFunction::ITNexusReset => before,
            _ => false,
        }
    }

    /// Whether it ends all tasks of the logical unit `lun`, not just one.
    pub(super) fn ends_tasks_of(&self, lun: Lun) -> bool {
        match self.function {
            TmfFunction::AbortTaskSet | TmfFunction::ClearTaskSet | TmfFunction::LogicalUnitReset => {
                self.lun == lun
            }
            TmfFunction::TargetWarmReset | TmfFunction::TargetColdReset | TmfFunction::ITNexusReset => true,
            _ => false,
        }
    }
}

/// One of our pings, under way.
#[derive(Debug)]
pub(super) struct Ping {
    /// The caller's name for it; `None` for those of the session itself.
    pub user: Option<u64>,
    /// The connection it was sent on.
    pub cid: Cid,
    pub data: bytes::Bytes,
    pub sent_at: Time,
}

/// What a logout ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogoutOf {
    Session,
    /// The connection it was sent on.
    Connection(Cid),
    /// A failed connection, by a logout on another one.
    Failed {
        cid: Cid,
        via: Cid,
    },
}

/// What a tag refers to.
#[derive(Debug)]
pub(super) enum Held {
    Free,
    Command(Task),
    Management(Management),
    Ping(Ping),
    Text(Cid),
    Logout(LogoutOf),
}

#[derive(Debug)]
struct Slot {
    generation: u16,
    held: Held,
}

/// All tags of a session.
#[derive(Debug, Default)]
pub(super) struct TaskTable {
    slots: Vec<Slot>,
    free: Vec<u16>,
}

impl TaskTable {
    /// Assigns a tag to `held`, or returns it when all tags are in use.
    //= rfc7143 11.2.1.8 TMF-10
    pub(super) fn insert(&mut self, held: Held) -> Result<Itt, Box<Held>> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < MAX_INITIATOR_TASKS => {
                self.slots.push(Slot { generation: 0, held: Held::Free });
                (self.slots.len() - 1) as u16
            }
            None => return Err(Box::new(held)),
        };
        let slot = &mut self.slots[usize::from(index)];
        slot.held = held;
        Ok(tag(index, slot.generation))
    }

    /// True when no tag is left.
    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty() && self.slots.len() >= MAX_INITIATOR_TASKS
    }

    /// Assigns a tag to a command, which is built directly in its slot. There must be one: the caller checks that the table is
    /// not full.
    pub(super) fn begin(&mut self, command: Command, deadline: Option<Time>) -> Itt {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, held: Held::Free });
            (self.slots.len() - 1) as u16
        });
        let slot = &mut self.slots[usize::from(index)];
        slot.held = Held::Command(Task::new(command, deadline));
        tag(index, slot.generation)
    }

    /// Frees a tag. What it refers to is dropped in place.
    #[inline]
    pub(super) fn free(&mut self, itt: Itt) {
        let Some(slot) = self.slot(itt) else { return };
        slot.held = Held::Free;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(place(itt).0 as u16);
    }

    /// What a tag refers to; `None` when it is not in use, or has been reused.
    pub(super) fn held(&mut self, itt: Itt) -> Option<&mut Held> {
        self.slot(itt).map(|slot| &mut slot.held).filter(|held| !matches!(held, Held::Free))
    }

    #[inline]
    pub(super) fn command(&mut self, itt: Itt) -> Option<&mut Task> {
        match self.slot(itt)?.held {
            Held::Command(ref mut task) => Some(task),
            _ => None,
        }
    }

    /// A command, if it was sent.
    pub(super) fn sent_command(&mut self, itt: Itt) -> Option<&mut Task> {
        self.command(itt).filter(|task| task.cmd_sn.is_some())
    }

    /// A command, for reading.
    pub(super) fn task(&self, itt: Itt) -> Option<&Task> {
        let (index, generation) = place(itt);
        match self.slots.get(index).filter(|slot| slot.generation == generation)?.held {
            Held::Command(ref task) => Some(task),
            _ => None,
        }
    }

    /// Whether a tag was in use before and is not any more.
    pub(super) fn was_used(&self, itt: Itt) -> bool {
        let (index, generation) = place(itt);
        let ago = self.slots.get(index).map(|slot| slot.generation.wrapping_sub(generation));
        ago.is_some_and(|ago| (1..1 << 15).contains(&ago))
    }

    #[inline]
    fn slot(&mut self, itt: Itt) -> Option<&mut Slot> {
        let (index, generation) = place(itt);
        self.slots.get_mut(index).filter(|slot| slot.generation == generation)
    }

    /// Takes what a tag refers to out of the table, and frees the tag.
    pub(super) fn remove(&mut self, itt: Itt) -> Held {
        let Some(slot) = self.slot(itt) else { return Held::Free };
        if matches!(slot.held, Held::Free) {
            return Held::Free;
        }
        slot.generation = slot.generation.wrapping_add(1);
        let held = std::mem::replace(&mut slot.held, Held::Free);
        self.free.push(place(itt).0 as u16);
        held
    }

    /// Every command with its tag.
    pub(super) fn commands(&self) -> impl Iterator<Item = (Itt, &Task)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| match &slot.held {
            Held::Command(task) => Some((tag(index as u16, slot.generation), task)),
            _ => None,
        })
    }

    pub(super) fn commands_mut(&mut self) -> impl Iterator<Item = (Itt, &mut Task)> {
        self.slots.iter_mut().enumerate().filter_map(|(index, slot)| match &mut slot.held {
            Held::Command(task) => Some((tag(index as u16, slot.generation), task)),
            _ => None,
        })
    }

    /// The tags of all exchanges on the connection `cid`, other than commands.
    pub(super) fn exchanges(&self, cid: Cid) -> Vec<Itt> {
        let all = self.slots.iter().enumerate().filter(|(_, slot)| match &slot.held {
            Held::Ping(ping) => ping.cid == cid,
            Held::Text(on) | Held::Logout(LogoutOf::Connection(on)) => *on == cid,
            Held::Logout(LogoutOf::Failed { via, .. }) => *via == cid,
            Held::Management(management) => management.cid == cid,
            _ => false,
        });
        all.map(|(index, slot)| tag(index as u16, slot.generation)).collect()
    }

    /// Every task management function with its tag.
    pub(super) fn managements(&self) -> impl Iterator<Item = (Itt, &Management)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| match &slot.held {
            Held::Management(management) => Some((tag(index as u16, slot.generation), management)),
            _ => None,
        })
    }
}

fn tag(index: u16, generation: u16) -> Itt {
    Itt(u32::from(generation) << 16 | u32::from(index))
}

fn place(itt: Itt) -> (usize, u16) {
    ((itt.0 & 0xffff) as usize, (itt.0 >> 16) as u16)
}
