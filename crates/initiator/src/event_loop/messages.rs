//! What other threads ask of the event loop, and what they get.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use iscsi_core::initiator::command::{Command, Completion};
use iscsi_core::initiator::session::{ManagementAnswer, TargetRecord};
use iscsi_core::wire::{Lun, TmfFunction};
use smallvec::SmallVec;

use crate::error::{ConnectError, IoError};
use crate::info::{Pong, SessionInfo};
use crate::reply::Answer;
use crate::unit::LostBlocks;
use crate::workload::Workload;

/// The name that other threads use for a command that they submitted; unique within a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(pub u64);

/// A command that ended, with the data received for it.
#[derive(Debug)]
pub(crate) struct Ended {
    pub completion: Completion,
    pub data: SmallVec<[Bytes; 4]>,
}

/// A lookup that has been started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question(pub u64);

/// For each portal, in order, its addresses or the reason why there are none.
pub(crate) type Addresses = Vec<Result<Vec<SocketAddr>, ConnectError>>;

/// A request of another thread to the loop.
pub(crate) enum Request {
    Command(Command, Handle, Answer<Result<Ended, IoError>>),
    Ping(Bytes, Answer<Option<Pong>>),
    SendTargets(String, Answer<Result<Vec<TargetRecord>, IoError>>),
    Manage(TmfFunction, Lun, Answer<Option<ManagementAnswer>>),
    ManageTask(TmfFunction, Handle, Answer<Option<ManagementAnswer>>),
    Declare(u32, Answer<bool>),
    /// Watches a unit; answers with its epoch.
    Watch(Lun, Answer<Result<u64, IoError>>),
    /// What a unit has lost since an epoch.
    Losses(Lun, u64, Answer<Option<LostBlocks>>),
    /// Why commands of a unit are refused.
    WhyRefused(Lun, Answer<Option<IoError>>),
    Run(Box<dyn Workload>, Answer<Box<dyn Workload>>),
    Info(Answer<SessionInfo>),
    /// Answers after this time: for futures, which have no clock.
    Pause(Duration, Answer<()>),
    Logout(Answer<()>),
    /// The addresses of hosts whose names the loop itself asked for.
    Resolved(Question, Addresses),
    Quit,
}
