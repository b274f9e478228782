//! Our initiator against a target that breaks every rule on purpose: the rows of `conform` for initiators.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use conform::Verdict;
use conform::initiator::{DriveUrl, InitiatorUnderTest, Op, OpResult, rows};
use initiator::{
    ChapConfig, Command, Completion, Disk, Ending, IoError, Options, Portal, Scheduling, Session, Submitter,
    Workload, WriteData, cdb,
};
use iscsi_core::chap::{Credentials, Secret};
use iscsi_core::initiator::command::Assemble;
use iscsi_core::names::IscsiName;
use iscsi_core::params::{DigestPolicy, TaskReporting};
use iscsi_core::pdu_writer::TxData;
use iscsi_core::wire::Lun;

/// Drives [`Session`] and [`Disk`].
struct Ours {
    ports: tempfile::TempDir,
}

impl Ours {
    fn options(&self, url: &DriveUrl) -> Result<Options, String> {
        let target = url.target.as_deref().map(IscsiName::parse).transpose().map_err(|e| e.to_string())?;
        let mut options = Options::new(Portal::new(url.host.clone(), url.port), target);
        let credentials = |(name, secret): &(String, String)| Credentials {
            name: name.clone(),
            secret: Secret::new(secret.clone()),
        };
        options.chap = url.chap.as_ref().map(|own| ChapConfig {
            target: url.target_chap.as_ref().map(credentials),
            ..ChapConfig::one_way(credentials(own))
        });
        let digest = |key: &str| match url.setting(key) {
            Some("off") => DigestPolicy::Off,
            Some("required") => DigestPolicy::Required,
            _ => DigestPolicy::Offered,
        };
        let number = |key: &str, usual: u32| url.setting(key).and_then(|v| v.parse().ok()).unwrap_or(usual);
        let bounds = &mut options.bounds;
        bounds.header_digest = digest("header_digest");
        bounds.data_digest = digest("data_digest");
        bounds.bursts.initial_r2t = url.setting("initial_r2t") == Some("yes");
        bounds.bursts.immediate_data = url.setting("immediate_data") != Some("no");
        bounds.data_in_order.pdus = url.setting("data_pdu_in_order") != Some("no");
        bounds.data_in_order.sequences = url.setting("data_sequence_in_order") != Some("no");
        bounds.max_recv_data_segment_length =
            number("max_recv_data_segment_length", bounds.max_recv_data_segment_length);
        bounds.bursts.max_burst_length = number("max_burst_length", bounds.bursts.max_burst_length);
        bounds.bursts.first_burst_length = number("first_burst_length", bounds.bursts.first_burst_length);
        bounds.bursts.max_outstanding_r2t =
            number("max_outstanding_r2t", bounds.bursts.max_outstanding_r2t.into()) as u16;
        let step = url.timeout();
        if url.setting("task_reporting") == Some("fast_abort") {
            bounds.task_reporting = TaskReporting::FastAbort;
        }
        bounds.protocol_level = number("protocol_level", bounds.protocol_level.into()) as u8;
        options.connections = number("connections", 1) as u16;
        // So that all connections are in use, even under light load.
        options.session.scheduling = Scheduling::RoundRobin;
        options.error_recovery_level = url.setting("erl").and_then(|level| level.parse().ok());
        options.session.bounds = options.bounds.clone();
        options.session.management_timeout = step;
        options.session.exchange_timeout = step;
        options.session.ping_interval = step * 4;
        options.session.ping_timeout = step;
        options.timeouts.connect = step;
        options.timeouts.login = step * 2;
        options.timeouts.command = step;
        options.timeouts.reconnect = step * 3;
        options.port.ports = Some(self.ports.path().to_owned());
        Ok(options)
    }
}

fn do_one(disk: &Disk, op: &Op) -> OpResult {
    let failed = |error: &dyn std::fmt::Display| OpResult::Failed(error.to_string());
    match op {
        Op::Read { lba, blocks } => {
            let mut data = vec![0; *blocks as usize * 512];
            match disk.read(lba * 512, &mut data) {
                Ok(()) => OpResult::Data(data),
                Err(error) => failed(&error),
            }
        }
        Op::Write { lba, data } => match disk.write(lba * 512, data) {
            Ok(()) => OpResult::Done,
            Err(error) => failed(&error),
        },
        Op::Flush => match disk.flush() {
            Ok(()) => OpResult::Done,
            Err(error) => failed(&error),
        },
        Op::Capacity => match disk.read_capacity() {
            Ok(capacity) => OpResult::Capacity(capacity.blocks, capacity.block_bytes),
            Err(error) => failed(&error),
        },
        Op::Discover => OpResult::Failed("the URL names a target".to_owned()),
        Op::Manage { function, read: None } => {
            OpResult::Managed(disk.session().manage(*function, disk.lun()).map(|answer| answer.response))
        }
        Op::Manage { function, read: Some((lba, blocks)) } => {
            let mut ticket = disk.submit(&cdb::read(*lba, *blocks), blocks * 512, WriteData::default());
            let answer = disk.session().manage_task(*function, &mut ticket);
            // It ends, one way or the other.
            let _ = ticket.wait();
            OpResult::Managed(answer.map(|answer| answer.response))
        }
        Op::Declare(bytes) => match disk.session().declare_max_recv_data_segment_length(*bytes) {
            true => OpResult::Done,
            false => OpResult::Failed("no text exchange is possible now".to_owned()),
        },
        Op::InTurn(ops) => OpResult::Together(ops.iter().map(|op| do_one(disk, op)).collect()),
        Op::Wait(time) => {
            // The session handles incoming PDUs on its own thread.
            std::thread::sleep(*time);
            OpResult::Done
        }
        Op::Together(ops) => std::thread::scope(|scope| {
            let threads: Vec<_> = ops.iter().map(|op| scope.spawn(move || do_one(disk, op))).collect();
            OpResult::Together(threads.into_iter().map(|thread| thread.join().unwrap()).collect())
        }),
    }
}

impl InitiatorUnderTest for Ours {
    fn accepts_nothing_else(&self) -> bool {
        true
    }

    fn connect_and(&self, url: &str, ops: &[Op]) -> Result<Vec<OpResult>, String> {
        let url = DriveUrl::parse(url)?;
        let session = Session::connect(self.options(&url)?).map_err(|error| error.to_string())?;
        if url.target.is_none() {
            let results = ops
                .iter()
                .map(|op| match op {
                    Op::Discover => match session.send_targets("All") {
                        Ok(records) => OpResult::Targets(
                            records
                                .iter()
                                .map(|record| {
                                    let addresses =
                                        record.addresses.iter().map(ToString::to_string).collect();
                                    (record.name.to_string(), addresses)
                                })
                                .collect(),
                        ),
                        Err(error) => OpResult::Failed(error.to_string()),
                    },
                    Op::Wait(time) => {
                        std::thread::sleep(*time);
                        OpResult::Done
                    }
                    _ => OpResult::Failed("not in a discovery session".to_owned()),
                })
                .collect();
            session.logout();
            return Ok(results);
        }
        let opened = Disk::open(&session, Lun::from_index(url.lun));
        let results = match &opened {
            Ok(disk) => ops.iter().map(|op| do_one(disk, op)).collect(),
            Err(error) => ops.iter().map(|_| OpResult::Failed(error.to_string())).collect(),
        };
        session.logout();
        Ok(results)
    }
}

#[test]
fn every_row_for_initiators_is_kept() {
    let only = std::env::var("EVIL_ROWS").unwrap_or_default();
    let chosen: Vec<_> = rows()
        .into_iter()
        .filter(|row| only.is_empty() || only.split(',').any(|name| row.id.starts_with(name)))
        .collect();
    assert!(!chosen.is_empty());
    // Some rows wait for time to pass; running several at once shortens the whole.
    let next = std::sync::atomic::AtomicUsize::new(0);
    let failures = parking_lot::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(row) = chosen.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    let drive = Ours { ports: tempfile::tempdir().unwrap() };
                    match row.run(&drive) {
                        Verdict::Pass => {}
                        Verdict::NotApplicable { why } => println!("{} {}: {why}", row.id, row.title),
                        Verdict::Fail { why, transcript } => {
                            failures.lock().push(format!("{} {}: {why}\n{transcript}\n", row.id, row.title));
                        }
                    }
                }
            });
        }
    });
    let failures = failures.into_inner();
    assert!(failures.is_empty(), "{} rows failed:\n{}", failures.len(), failures.join("\n"));
}

/// Write data that counts how many of its bytes exist at a time, and how many of its PDUs wait to be sent.
#[derive(Debug)]
struct Counted {
    me: Weak<Self>,
    live: Arc<AtomicUsize>,
    most: AtomicUsize,
    most_waiting: AtomicUsize,
}

const COUNTED_BYTES: usize = 256 * 1024;

/// One part of this data.
struct Part(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.1.fetch_sub(self.0.len(), Ordering::SeqCst);
    }
}

impl Assemble for Counted {
    fn total_bytes(&self) -> usize {
        COUNTED_BYTES
    }

    fn part(&self, range: Range<usize>) -> TxData {
        let live = self.live.fetch_add(range.len(), Ordering::SeqCst) + range.len();
        self.most.fetch_max(live, Ordering::SeqCst);
        self.most_waiting.fetch_max(self.me.strong_count(), Ordering::SeqCst);
        Bytes::from_owner(Part(vec![7; range.len()], Arc::clone(&self.live))).into()
    }
}

/// A target requests the same data again and again, all at once. It gets the data as fast as it takes it; the PDUs are not made
/// in advance.
// covers: ERL-04
#[test]
fn data_asked_for_again_and_again_are_made_as_they_are_taken() {
    use conform::evil::{Act, Behaviour, EvilConfig, EvilTarget, Incoming};
    use iscsi_core::wire::{Opcode, keys};
    const TIMES: usize = 100;
    let greedy = Behaviour::good().first(Opcode::R2t, |_, frame| {
        let one = *frame.bhs().as_bytes();
        let all = (0..TIMES as u32).flat_map(|r2t_sn| {
            let mut bhs = one;
            bhs[36..40].copy_from_slice(&r2t_sn.to_be_bytes());
            bhs
        });
        vec![Act::Bytes(all.collect())]
    });
    let mut taken = 0;
    let greedy = greedy.incoming(move |_, rx| {
        if rx.bhs.opcode() != Opcode::DataOut.code() {
            return Incoming::Serve;
        }
        taken += rx.data.len();
        // Only the last repetition counts.
        match taken > (TIMES - 1) * COUNTED_BYTES {
            true => Incoming::Serve,
            false => Incoming::Instead(Vec::new()),
        }
    });
    let config = EvilConfig::default().key(keys::ERROR_RECOVERY_LEVEL, "1");
    let target = EvilTarget::start(config, greedy).unwrap();
    let drive = Ours { ports: tempfile::tempdir().unwrap() };
    let url = "header_digest=off&data_digest=off&initial_r2t=yes&immediate_data=no&erl=1";
    let mut options = drive.options(&DriveUrl::parse(&format!("{}?{url}", target.url())).unwrap()).unwrap();
    options.timeouts.command = Duration::from_secs(60);
    let session = Session::connect(options).unwrap();
    let disk = Disk::open(&session, Lun::from_index(0)).unwrap();
    let data = Arc::new_cyclic(|me| Counted {
        me: Weak::clone(me),
        live: Arc::default(),
        most: AtomicUsize::new(0),
        most_waiting: AtomicUsize::new(0),
    });
    let blocks = (COUNTED_BYTES / 512) as u32;
    let write = WriteData::from(Arc::clone(&data) as Arc<dyn Assemble>);
    disk.submit(&cdb::write(0, blocks), 0, write).wait().unwrap();
    assert_eq!(target.medium()[..COUNTED_BYTES], [7; COUNTED_BYTES]);
    // Our own data, the slack beyond it, and the last answer that exceeded it.
    let most = data.most.load(Ordering::SeqCst);
    assert!(most <= 6 << 20, "{most} bytes at a time");
    let waiting = data.most_waiting.load(Ordering::SeqCst);
    assert!(waiting <= 80, "{waiting} of the 400 PDUs that were asked for wait at a time");
    session.logout();
}

/// Part of a long write fails. The error is returned only after the other parts have ended too, so that none of them is
/// executed after the caller's next operation.
#[test]
fn a_write_that_fails_has_ended() {
    use conform::evil::{Act, Behaviour, EvilConfig, EvilTarget, Incoming};
    use iscsi_core::wire::{Itt, Opcode};
    const CDB: usize = 32;
    const RESERVATION_CONFLICT: u8 = 0x18;
    let writes = Arc::new(parking_lot::Mutex::new(Vec::<Itt>::new()));
    let (noted, known) = (Arc::clone(&writes), Arc::clone(&writes));
    let ended = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&ended);
    let behaviour = Behaviour::good()
        .incoming(move |_, rx| {
            let bytes = rx.bhs.as_bytes();
            if rx.bhs.opcode() == Opcode::ScsiCommand.code() && matches!(bytes[CDB], 0x2a | 0x8a) {
                noted.lock().push(rx.bhs.itt());
            }
            Incoming::Serve
        })
        .every(Opcode::ScsiResponse, move |_, frame| {
            if !known.lock().contains(&frame.bhs().itt()) {
                return vec![Act::Send(frame)];
            }
            match counted.fetch_add(1, Ordering::SeqCst) {
                0 => vec![Act::Send(frame.patch(3, &[RESERVATION_CONFLICT]))],
                _ => vec![Act::Send(frame)],
            }
        });
    let config = EvilConfig { disk_bytes: 16 << 20, ..EvilConfig::default() };
    let target = EvilTarget::start(config, behaviour).unwrap();
    let drive = Ours { ports: tempfile::tempdir().unwrap() };
    let session = Session::connect(drive.options(&DriveUrl::parse(&target.url()).unwrap()).unwrap()).unwrap();
    let disk = Disk::open(&session, Lun::from_index(0)).unwrap();
    let error = disk.write(0, &vec![7; 8 << 20]).unwrap_err();
    assert!(matches!(error, IoError::Status(RESERVATION_CONFLICT)), "{error}");
    assert_eq!((writes.lock().len(), ended.load(Ordering::SeqCst)), (2, 2), "both of them");
    session.logout();
}

/// Submits once in each session a command that must not be executed twice.
#[derive(Default)]
struct Stubborn {
    sessions: u32,
    unknown: u32,
    lost: bool,
}

impl Workload for Stubborn {
    fn start(&mut self, io: &mut Submitter<'_>) {
        self.sessions += 1;
        let mut command = Command::new(Lun::from_index(0), &cdb::compare_and_write(0, 1));
        command.write = Bytes::from(vec![0; 1024]).into();
        io.submit(command).expect("a session that stands takes it");
    }

    fn completed(&mut self, completion: Completion, _: &mut Submitter<'_>) {
        self.unknown += u32::from(completion.ending == Ending::OutcomeUnknown);
    }

    fn is_done(&self) -> bool {
        false
    }

    fn lost(&mut self, _: &str) {
        self.lost = true;
    }
}

/// Commands that end because their session was lost do not reset the count of losses.
// covers: SES-06
#[test]
fn a_target_that_drops_every_session_is_given_up_whatever_ends_with_them() {
    use conform::evil::{Act, Behaviour, EvilConfig, EvilTarget, Incoming};
    const CDB: usize = 32;
    let drops = Behaviour::good().incoming(|_, rx| {
        let bytes = rx.bhs.as_bytes();
        match bytes[0] & 0x3f == 1 && bytes[CDB] == 0x89 {
            true => Incoming::Instead(vec![Act::Close]),
            false => Incoming::Serve,
        }
    });
    let target = EvilTarget::start(EvilConfig::default(), drops).unwrap();
    let drive = Ours { ports: tempfile::tempdir().unwrap() };
    let mut options = drive.options(&DriveUrl::parse(&target.url()).unwrap()).unwrap();
    options.timeouts.reconnect = Duration::from_secs(3600);
    let session = Session::connect(options).unwrap();
    let stubborn = session.run(Stubborn::default()).unwrap();
    assert!(stubborn.lost);
    assert_eq!((stubborn.sessions, stubborn.unknown), (6, 5), "the last one is told of with the end");
}

/// If a device has no WRITE SAME, zeros are written with several WRITE commands, using the memory of one.
#[test]
fn zeroes_are_written_where_there_is_no_write_same() {
    use conform::evil::{Behaviour, EvilConfig, EvilTarget};
    const BYTES: usize = 24 << 20;
    let config = EvilConfig { disk_bytes: BYTES, ..EvilConfig::default() };
    let target = EvilTarget::start(config, Behaviour::good()).unwrap();
    let drive = Ours { ports: tempfile::tempdir().unwrap() };
    let session = Session::connect(drive.options(&DriveUrl::parse(&target.url()).unwrap()).unwrap()).unwrap();
    let disk = Disk::open(&session, Lun::from_index(0)).unwrap();
    disk.write(0, &vec![7; BYTES]).unwrap();
    let (begin, end) = (512, BYTES - 1024);
    disk.write_zeroes(begin as u64, (end - begin) as u64).unwrap();
    let medium = target.medium();
    assert!(medium[begin..end].iter().all(|&byte| byte == 0));
    assert!(medium[..begin].iter().chain(&medium[end..]).all(|&byte| byte == 7), "and nothing beside them");
    session.logout();
}

#[test]
fn a_ping_brings_its_data_back() {
    use conform::evil::{Behaviour, EvilConfig, EvilTarget};
    let target = EvilTarget::start(EvilConfig::default(), Behaviour::good()).unwrap();
    let drive = Ours { ports: tempfile::tempdir().unwrap() };
    let url = DriveUrl::parse(&target.url()).unwrap();
    let session = Session::connect(drive.options(&url).unwrap()).unwrap();
    for length in [0, 1, 3, 4, 4096] {
        let pong = session.ping(Bytes::from(vec![7; length])).unwrap();
        assert!(pong.intact && pong.round_trip < Duration::from_secs(60));
    }
    session.logout();
}
