//! Task management requested by a caller, on our own target.

#[path = "support/server.rs"]
mod server;

use initiator::{
    Command, Completion, Disk, Ending, IoError, ManagementAnswer, Scheduling, Session, Submitter, Workload,
    WriteData, cdb,
};
use iscsi_core::params::TaskReporting;
use iscsi_core::wire::{TmfFunction, TmfResponse};
use target::Server;

use self::server::{LUN, end, options, server_with};

const BYTES: u32 = 64 * 1024;
/// Commands before the function that ends them.
const BEFORE: u64 = 24;
/// Commands after it.
const AFTER: u64 = 8;
/// How many of those before are aborted one by one.
const ABORTED: u64 = 6;
/// Name of the function that ends many.
const RESET: u64 = 1000;

fn server() -> Server {
    server_with(|config| {
        let bounds = &mut config.targets[0].bounds;
        (bounds.protocol_level, bounds.task_reporting) = (2, TaskReporting::FastAbort);
        bounds.default_time2wait_s = 0;
    })
}

fn session(server: &Server, connections: u16, reporting: TaskReporting) -> Session {
    let mut options = options(server.portals()[0]);
    // Every connection should carry some of the load.
    options.session.scheduling = Scheduling::LeastOutstandingBytes;
    options.connections = connections;
    (options.bounds.protocol_level, options.bounds.task_reporting) = (2, reporting);
    let session = Session::connect(options).unwrap();
    assert_eq!(session.opening().login.params.task_reporting, reporting);
    while session.info().unwrap().connections.len() < usize::from(connections) {
        std::thread::yield_now();
    }
    session
}

/// Sends commands, aborts some, requests a function that ends the others, sends more.
struct Storm {
    function: TmfFunction,
    ended: Vec<Option<Ending>>,
    told: Vec<(u64, Option<ManagementAnswer>)>,
    wrong: Vec<String>,
}

impl Storm {
    fn new(function: TmfFunction) -> Self {
        let ended = vec![None; (BEFORE + AFTER) as usize];
        Self { function, ended, told: Vec::new(), wrong: Vec::new() }
    }

    fn submit(user: u64, io: &mut Submitter<'_>) {
        let (lba, blocks) = (user * u64::from(BYTES) / 512, BYTES / 512);
        let mut command = match user.is_multiple_of(2) {
            true => Command::new(LUN, &cdb::read(lba, blocks)),
            false => Command::new(LUN, &cdb::write(lba, blocks)),
        };
        match user.is_multiple_of(2) {
            true => command.read_length = BYTES,
            false => command.write = WriteData::from(bytes::Bytes::from(vec![7; BYTES as usize])),
        }
        command.user = user;
        io.submit(command).unwrap();
    }

    fn response(&self, of: u64) -> TmfResponse {
        let (_, answer) = self.told.iter().find(|(user, _)| *user == of).expect("it was asked for");
        answer.expect("it was answered").response
    }
}

impl Workload for Storm {
    fn start(&mut self, io: &mut Submitter<'_>) {
        (0..BEFORE).for_each(|user| Self::submit(user, io));
        (0..ABORTED).for_each(|user| io.manage_task(TmfFunction::AbortTask, user, user));
        io.manage(self.function, LUN, RESET);
        (BEFORE..BEFORE + AFTER).for_each(|user| Self::submit(user, io));
    }

    fn completed(&mut self, completion: Completion, _: &mut Submitter<'_>) {
        let user = completion.command.user;
        if self.ended[user as usize].replace(completion.ending).is_some() {
            self.wrong.push(format!("command {user} ended twice"));
        }
    }

    fn managed(&mut self, user: u64, answer: Option<ManagementAnswer>, _: &mut Submitter<'_>) {
        self.told.push((user, answer));
    }

    fn is_done(&self) -> bool {
        self.ended.iter().all(Option::is_some) && self.told.len() as u64 == ABORTED + 1
    }

    fn lost(&mut self, why: &str) {
        self.wrong.push(why.to_owned());
        self.ended.fill(Some(Ending::Aborted));
        self.told.resize(ABORTED as usize + 1, (0, None));
    }
}

// covers: TMF-01 TMF-05 FAB-01 MCS-02
#[test]
fn functions_in_the_midst_of_commands_end_what_they_should() {
    let server = server();
    for reporting in [TaskReporting::Rfc3720, TaskReporting::ResponseFence, TaskReporting::FastAbort] {
        for (connections, function) in [
            (1, TmfFunction::AbortTaskSet),
            (1, TmfFunction::LogicalUnitReset),
            (3, TmfFunction::ClearTaskSet),
            (3, TmfFunction::LogicalUnitReset),
            (3, TmfFunction::TargetWarmReset),
        ] {
            let case = format!("{reporting:?}, {function:?}, {connections} connections");
            let session = session(&server, connections, reporting);
            let storm = session.run(Storm::new(function)).unwrap();
            assert_eq!(storm.wrong, Vec::<String>::new(), "{case}");
            for user in 0..ABORTED {
                match (storm.response(user), storm.ended[user as usize].as_ref().unwrap()) {
                    (TmfResponse::FunctionComplete, Ending::Aborted) => {}
                    (TmfResponse::TaskDoesNotExist, Ending::Status { .. } | Ending::Aborted) => {}
                    other => panic!("{case}: command {user}: {other:?}"),
                }
            }
            assert_eq!(storm.response(RESET), TmfResponse::FunctionComplete, "{case}");
            for (user, ending) in storm.ended.iter().enumerate().skip(BEFORE as usize) {
                assert!(matches!(ending, Some(Ending::Status { .. })), "{case}: command {user}: {ending:?}");
            }
            assert_eq!(session.info().unwrap().losses, 0, "{case}");
            session.logout();
        }
    }
    end(server);
}

// covers: TMF-08
#[test]
fn a_cold_reset_ends_the_session_and_it_comes_back() {
    let server = server();
    let session = session(&server, 2, TaskReporting::ResponseFence);
    // The answer may be lost with the connections.
    let answer = session.manage(TmfFunction::TargetColdReset, LUN);
    assert!(answer.is_none_or(|answer| answer.response == TmfResponse::FunctionComplete), "{answer:?}");
    let disk = Disk::open(&session, LUN).unwrap();
    disk.write(0, &[1; 4096]).unwrap();
    assert!(session.info().unwrap().login.logins >= 2, "{:?}", session.info().unwrap().last_loss);
    end(server);
}

#[test]
fn a_ticket_may_be_aborted_and_asked_about() {
    let server = server();
    let session = session(&server, 2, TaskReporting::ResponseFence);
    let disk = Disk::open(&session, LUN).unwrap();
    for _ in 0..50 {
        let read = |lba| disk.submit(&cdb::read(lba, 1024), 512 * 1024, WriteData::default());
        let mut tickets: Vec<_> = (0..8).map(|n| read(n * 1024)).collect();
        let answer = session.manage_task(TmfFunction::AbortTask, &mut tickets[7]).unwrap();
        let aborted = tickets.pop().unwrap().wait();
        match answer.response {
            TmfResponse::FunctionComplete => assert!(matches!(aborted, Err(IoError::Aborted)), "{aborted:?}"),
            TmfResponse::TaskDoesNotExist => assert!(aborted.is_ok(), "{aborted:?}"),
            other => panic!("{other:?}"),
        }
        for ticket in tickets {
            assert_eq!(ticket.wait().unwrap().len, 512 * 1024);
        }
    }
    let mut over = disk.submit(&cdb::read(0, 1), 512, WriteData::default());
    while session.manage_task(TmfFunction::QueryTask, &mut over).unwrap().response
        == TmfResponse::FunctionSucceeded
    {}
    assert!(over.wait().is_ok(), "asking changes nothing");
    end(server);
}
