//! Cases that cannot be produced with a running session: completions that meet a session which has just
//! ended.

use std::sync::{Arc, Mutex};

use engine::{Link, SlabRing, System, Token};
use iscsi_core::initiator::command::{Command, Completion, Ending};
use iscsi_core::initiator::login::{FirstNumbers, LoggedIn};
use iscsi_core::initiator::session::ManagementAnswer;
use iscsi_core::params::Params;
use iscsi_core::pdu_reader::PduReader;
use iscsi_core::pdu_writer::PduWriter;
use iscsi_core::wire::{CmdSn, Lun, StatSn, TmfFunction, TmfResponse, Tsih};

use super::*;
use crate::IscsiUrl;
use crate::owner::WORKLOAD_BIT;
use crate::reply::reply;
use crate::workload::Submitter;

/// A workload that has submitted all its commands and records what it is called with.
#[derive(Default)]
struct Told(Arc<Mutex<Vec<(&'static str, u64)>>>);

impl Workload for Told {
    fn start(&mut self, _: &mut Submitter<'_>) {}

    fn completed(&mut self, completion: Completion, _: &mut Submitter<'_>) {
        self.0.lock().unwrap().push(("completed", completion.command.user));
    }

    fn managed(&mut self, user: u64, _: Option<ManagementAnswer>, _: &mut Submitter<'_>) {
        self.0.lock().unwrap().push(("managed", user));
    }

    fn is_done(&self) -> bool {
        true
    }
}

fn established(slabs: &SlabRing) -> Established {
    let link = Link::new(Token::new(7, 0), PduReader::new(8192), PduWriter::new(), slabs.clone());
    let login = LoggedIn {
        discovery: false,
        params: Params::default(),
        tsih: Tsih(1),
        isid: Isid([0; 6]),
        cid: Cid(0),
        numbers: FirstNumbers {
            cmd_sn: CmdSn(1),
            exp_stat_sn: StatSn(1),
            exp_cmd_sn: CmdSn(1),
            max_cmd_sn: CmdSn(32),
        },
        portal_group_tag: None,
        target_alias: None,
        chap: None,
        keys: Vec::new(),
    };
    let address = "127.0.0.1:3260".parse().unwrap();
    Established { link, login, address, connect_time: Duration::ZERO, failed: Vec::new() }
}

/// An event loop without a session.
fn event_loop(slabs: &SlabRing) -> EventLoop<System> {
    let options =
        IscsiUrl::parse("iscsi://127.0.0.1/iqn.2026-01.org.example:disk/0").unwrap().options().unwrap();
    let (first, _) = reply();
    EventLoop::new(System::new(1), options, Isid([0; 6]), slabs.clone(), first).unwrap().0
}

#[test]
fn what_ends_as_the_session_goes_is_told_to_the_workload_in_the_next_one() {
    let slabs = SlabRing::new(4096, 4);
    let mut event_loop = event_loop(&slabs);
    let (told, (answer, mut over)) = (Arc::default(), reply());
    let workload = Box::new(Told(Arc::clone(&told)));
    event_loop.running = Some(Running { workload, answer, outstanding: 2, started: true });

    let mut command = Command::new(Lun(0), &[0; 6]);
    command.user = WORKLOAD_BIT | 5;
    event_loop.completed(Completion { command, ending: Ending::Aborted });
    let complete = ManagementAnswer { response: TmfResponse::FunctionComplete, additional: [0; 3] };
    event_loop.managed(WORKLOAD_BIT | 6, Some(complete));
    event_loop.step_workload();
    assert!(told.lock().unwrap().is_empty() && over.take().is_none(), "nothing is told without a session");

    event_loop.established(established(&slabs));
    event_loop.step_workload();
    assert_eq!(*told.lock().unwrap(), [("completed", 5), ("managed", 6)]);
    assert!(over.take().is_some(), "its commands have all ended, and so it is over");
}

/// A workload that aborts each command in the moment in which it submits it, and submits the second one when it hears of the first.
struct Hasty(Arc<Mutex<Vec<(&'static str, u64)>>>);

impl Hasty {
    fn submit_and_abort(user: u64, io: &mut Submitter<'_>) {
        let mut command = Command::new(Lun(0), &[0; 6]);
        command.user = user;
        io.submit(command).unwrap();
        io.manage_task(TmfFunction::AbortTask, user, user + 10);
    }
}

impl Workload for Hasty {
    fn start(&mut self, io: &mut Submitter<'_>) {
        io.watch(Lun(0));
        Self::submit_and_abort(1, io);
    }

    fn completed(&mut self, completion: Completion, io: &mut Submitter<'_>) {
        let user = completion.command.user;
        self.0.lock().unwrap().push(("completed", user));
        if user == 1 {
            Self::submit_and_abort(2, io);
        }
    }

    fn managed(&mut self, user: u64, _: Option<ManagementAnswer>, _: &mut Submitter<'_>) {
        self.0.lock().unwrap().push(("managed", user));
    }

    fn is_done(&self) -> bool {
        true
    }
}

/// The unit has not said yet what it is, so the commands are held here, and aborting them ends them here.
#[test]
fn an_aborted_command_that_was_held_ends_before_the_function_that_ended_it() {
    let slabs = SlabRing::new(4096, 4);
    let mut event_loop = event_loop(&slabs);
    let (told, (answer, _over)) = (Arc::default(), reply());
    let workload = Box::new(Hasty(Arc::clone(&told)));
    event_loop.running = Some(Running { workload, answer, outstanding: 0, started: false });
    event_loop.established(established(&slabs));
    event_loop.step_workload();
    event_loop.settle_units();
    event_loop.settle_units();
    let expected = [("completed", 1), ("managed", 11), ("completed", 2), ("managed", 12)];
    assert_eq!(*told.lock().unwrap(), expected);
}
