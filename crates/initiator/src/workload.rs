//! Work that runs inside the event loop: no thread switch, no queue and no allocation between a completion and the next command.

use std::any::Any;
use std::fmt;

use bytes::Bytes;
use iscsi_core::Time;
use iscsi_core::initiator::command::{Command, Completion};
use iscsi_core::initiator::session::{InitiatorSession, ManagementAnswer};
use iscsi_core::wire::{Lun, TmfFunction};

use crate::cdb::is_idempotent;
use crate::owner::WORKLOAD_BIT;
use crate::unit::{LostBlocks, Units};

/// A source of commands that lives in the event loop. See [`crate::Session::run`].
pub trait Workload: Any + Send {
    /// Submits the first commands. Also called when a lost session has recovered; the session itself resubmits commands that had not
    /// ended.
    fn start(&mut self, io: &mut Submitter<'_>);

    /// Data of the command that the workload calls `user`: verified, and valid only if the command succeeds. It comes in the order
    /// of its bytes; only where the session has agreed on DataPDUInOrder=No or DataSequenceInOrder=No it may come in any, and it is
    /// whole once the command succeeds. A command that is restarted delivers it again, and the later data counts.
    fn data_in(&mut self, user: u64, offset: u32, data: Bytes) {
        let _ = (user, offset, data);
    }

    /// A command ended.
    fn completed(&mut self, completion: Completion, io: &mut Submitter<'_>);

    /// A task management function that the workload calls `user` has ended, with the target's answer if there was one. The commands
    /// that it ended have been reported before.
    fn managed(&mut self, user: u64, answer: Option<ManagementAnswer>, io: &mut Submitter<'_>) {
        let _ = (user, answer, io);
    }

    /// When to call [`Workload::tick`], if ever.
    fn deadline(&self) -> Option<Time> {
        None
    }

    /// The time of [`Workload::deadline`] has come.
    fn tick(&mut self, io: &mut Submitter<'_>) {
        let _ = io;
    }

    /// True when the workload is done; outstanding commands are still waited for.
    fn is_done(&self) -> bool;

    /// A [watched](Submitter::watch) unit has lost writes that it had acknowledged: later successful flushes say nothing about them.
    fn lost_writes(&mut self, lun: Lun, lost: &LostBlocks, io: &mut Submitter<'_>) {
        let _ = (lun, lost, io);
    }

    /// The session has ended and did not recover: nothing more will happen.
    fn lost(&mut self, why: &str) {
        let _ = why;
    }
}

/// Accepts the commands of a workload.
pub struct Submitter<'a> {
    pub(crate) session: &'a mut InitiatorSession,
    pub(crate) units: &'a mut Units,
    pub(crate) now: Time,
    pub(crate) submitted: &'a mut usize,
}

impl fmt::Debug for Submitter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submitter").field("now", &self.now).finish_non_exhaustive()
    }
}

impl Submitter<'_> {
    /// Watches a logical unit, as an opened [`Disk`](crate::Disk) does: its commands go only to the volume that it is now
    /// ([`Ending::OtherVolume`]), and losses of acknowledged writes are [reported](Workload::lost_writes).
    ///
    /// [`Ending::OtherVolume`]: crate::Ending::OtherVolume
    pub fn watch(&mut self, lun: Lun) {
        if let Some(question) = self.units.watch(lun) {
            // A session that is ending accepts nothing; its successor sends the probe again.
            let _ = self.session.submit(self.now, question);
        }
    }

    /// Time of the current round of the event loop.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Submits a command; its `user` comes back without its uppermost bit, which is reserved.
    ///
    /// # Errors
    /// Returns the command when the session no longer accepts any.
    pub fn submit(&mut self, mut command: Command) -> Result<(), Box<Command>> {
        command.user |= WORKLOAD_BIT;
        command.idempotent = is_idempotent(&command.cdb);
        if let Some(command) = self.units.admit(command) {
            self.session.submit(self.now, command)?;
        }
        *self.submitted += 1;
        Ok(())
    }

    /// Requests a task management function of a logical unit, of the target or of the nexus; ends with [`Workload::managed`]. When
    /// it is complete, the affected commands that were sent before it have ended with [`Ending::Aborted`].
    ///
    /// [`Ending::Aborted`]: crate::Ending::Aborted
    pub fn manage(&mut self, function: TmfFunction, lun: Lun, user: u64) {
        *self.submitted += 1;
        self.session.manage(self.now, function, lun, user | WORKLOAD_BIT);
    }

    /// Requests ABORT TASK or QUERY TASK for the command that the workload calls `of`; ends with [`Workload::managed`]. If the
    /// command has already ended, the answer is [`TmfResponse::TaskDoesNotExist`] (to a query [`TmfResponse::FunctionComplete`]).
    ///
    /// [`TmfResponse::TaskDoesNotExist`]: iscsi_core::wire::TmfResponse::TaskDoesNotExist
    /// [`TmfResponse::FunctionComplete`]: iscsi_core::wire::TmfResponse::FunctionComplete
    pub fn manage_task(&mut self, function: TmfFunction, of: u64, user: u64) {
        *self.submitted += 1;
        let (of, user) = (of | WORKLOAD_BIT, user | WORKLOAD_BIT);
        if function != TmfFunction::AbortTask || !self.units.abort_held(of, user) {
            self.session.manage_task(self.now, function, of, user);
        }
    }

    /// Most bytes of write data that this target accepts in one PDU.
    pub fn max_send_data_segment_length(&self) -> u32 {
        self.session.params().max_send_data_segment_length
    }
}
