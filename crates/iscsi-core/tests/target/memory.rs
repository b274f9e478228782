//! The target's side of the protocol as a target that rows of `conform` can connect to: no sockets, and no time passes.
//!
//! Bytes pass through a [`PduReader`] and a [`PduWriter`] with the digests in effect, and [`Audit`] checks everything that is sent.
//! The device server is one unit in an array.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use conform::{Dial, Link, PeerError};
use iscsi_core::Time;
use iscsi_core::digest::DigestScope;
use iscsi_core::pdu_reader::{PduReader, RxPdu};
use iscsi_core::pdu_writer::{PduWriter, TxPdu};
use iscsi_core::target::actions::{Action, Command, Completion, Payload};
use iscsi_core::target::login::{LoginReply, TargetLogin};
use iscsi_core::target::session::{SessionConfig, TargetSession};
use iscsi_core::target::task::TaskId;
use iscsi_core::wire::{Bhs, Cid, LoginRequest, Lun, MAX_DATA_SEGMENT_LENGTH, StatSn, TmfResponse, Tsih};

use crate::audit::Audit;
use crate::play::sense_bytes;
use crate::policy::Policy;

/// No row waits.
const NOW: Time = Time::ZERO;
/// Bytes of a block.
const BLOCK: usize = 512;
/// Bytes of the unit.
const UNIT: usize = 4 << 20;

/// A target in memory; clones are the same one.
#[derive(Clone)]
pub struct MemoryTarget(Arc<Mutex<Core>>);

impl MemoryTarget {
    pub fn new(policy: Policy) -> Self {
        Self::saying(policy, |_| {})
    }

    /// One that sends every header in full feature phase as `change` makes it.
    pub fn saying(policy: Policy, change: fn(&mut Bhs)) -> Self {
        let core = Core {
            policy,
            change,
            sessions: HashMap::new(),
            next_tsih: 1,
            lines: Vec::new(),
            device: Device { medium: vec![0; UNIT], writes: HashMap::new() },
        };
        Self(Arc::new(Mutex::new(core)))
    }
}

impl Dial for MemoryTarget {
    fn dial(&self, _timeout: Duration) -> Result<Box<dyn Link>, PeerError> {
        let mut core = self.0.lock().unwrap();
        core.lines.push(Line::new());
        Ok(Box::new(MemoryLink { core: self.0.clone(), line: core.lines.len() - 1 }))
    }
}

/// The initiator's end of a connection.
struct MemoryLink {
    core: Arc<Mutex<Core>>,
    line: usize,
}

impl Link for MemoryLink {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.core.lock().unwrap().receive(self.line, bytes)
    }

    fn receive(&mut self, buffer: &mut [u8], _within: Duration) -> io::Result<usize> {
        let mut core = self.core.lock().unwrap();
        let line = &mut core.lines[self.line];
        match line.to_peer.len().min(buffer.len()) {
            0 if line.stage == Stage::Closed => Ok(0),
            0 => Err(io::ErrorKind::WouldBlock.into()),
            length => {
                for (byte, sent) in buffer.iter_mut().zip(line.to_peer.drain(..length)) {
                    *byte = sent;
                }
                Ok(length)
            }
        }
    }

    fn close_write(&mut self) {
        self.core.lock().unwrap().lose(self.line);
    }

    fn reset(&mut self) {
        self.close_write();
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        None
    }
}

impl Drop for MemoryLink {
    fn drop(&mut self) {
        // A failed check of the target is not made worse.
        if let Ok(mut core) = self.core.lock() {
            core.lose(self.line);
        }
    }
}

/// State of a connection.
#[derive(PartialEq, Eq)]
enum Stage {
    Login,
    FullFeature(Tsih, Cid),
    Closed,
}

/// A connection, as the target sees it.
struct Line {
    stage: Stage,
    login: TargetLogin,
    reader: PduReader,
    arrived: BytesMut,
    writer: PduWriter,
    /// Reads what the writer wrote, for the audit.
    rereader: PduReader,
    reread: BytesMut,
    audit: Audit,
    to_peer: VecDeque<u8>,
}

impl Line {
    fn new() -> Self {
        Self {
            stage: Stage::Login,
            login: TargetLogin::new(StatSn(0xffff_fffe)),
            reader: PduReader::new(MAX_DATA_SEGMENT_LENGTH),
            arrived: BytesMut::new(),
            writer: PduWriter::new(),
            rereader: PduReader::new(MAX_DATA_SEGMENT_LENGTH),
            reread: BytesMut::new(),
            audit: Audit::default(),
            to_peer: VecDeque::new(),
        }
    }

    fn set_digests(&mut self, digests: DigestScope) {
        self.reader.set_digests(digests);
        self.writer.set_digests(digests);
        self.rereader.set_digests(digests);
    }

    fn send(&mut self, pdu: TxPdu) {
        self.writer.push(pdu);
        let mut segments = Vec::new();
        self.writer.take(usize::MAX, &mut segments);
        for segment in &segments {
            self.reread.extend_from_slice(segment);
            self.to_peer.extend(segment.iter().copied());
        }
        let rx = self.rereader.next(&mut self.reread).expect("follows the framing").expect("is whole");
        assert!(rx.data_digest_ok && self.reread.is_empty());
        self.audit.check(&rx);
    }
}

/// All of a target.
struct Core {
    policy: Policy,
    change: fn(&mut Bhs),
    sessions: HashMap<Tsih, TargetSession>,
    next_tsih: u16,
    lines: Vec<Line>,
    device: Device,
}

impl Core {
    fn receive(&mut self, at: usize, bytes: &[u8]) -> io::Result<()> {
        if self.lines[at].stage == Stage::Closed {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        self.lines[at].arrived.extend_from_slice(bytes);
        while self.lines[at].stage != Stage::Closed {
            let line = &mut self.lines[at];
            match line.reader.next(&mut line.arrived) {
                Ok(Some(rx)) => self.handle(at, &rx),
                Ok(None) => return Ok(()),
                Err(_) => self.lose(at),
            }
        }
        Ok(())
    }

    fn handle(&mut self, at: usize, rx: &RxPdu) {
        match self.lines[at].stage {
            Stage::Login => self.log_in(at, rx),
            Stage::FullFeature(tsih, cid) => {
                let session = self.sessions.get_mut(&tsih).expect("it has this connection");
                session.handle_pdu(NOW, cid, rx);
                self.drain(tsih);
            }
            Stage::Closed => {}
        }
    }

    fn log_in(&mut self, at: usize, rx: &RxPdu) {
        let request = LoginRequest::parse(&rx.bhs).ok();
        let joins = request.filter(|request| request.tsih != Tsih(0)).map(|request| request.tsih);
        self.policy.joins =
            joins.and_then(|tsih| self.sessions.get(&tsih)).map(|session| session.params().clone());
        let line = &mut self.lines[at];
        match line.login.handle_pdu(rx, &mut self.policy) {
            LoginReply::Send(pdu) => line.send(pdu),
            LoginReply::Refuse { response, .. } => {
                response.into_iter().for_each(|pdu| line.send(pdu));
                line.stage = Stage::Closed;
            }
            LoginReply::Complete(established) => {
                let params = established.params.clone();
                let cid = established.names.cid;
                let tsih = joins.unwrap_or(Tsih(self.next_tsih));
                line.stage = Stage::FullFeature(tsih, cid);
                match self.sessions.get_mut(&tsih) {
                    Some(session) => session.join(*established, NOW),
                    None => {
                        self.next_tsih += 1;
                        let config = SessionConfig { queue_depth: 32, ..SessionConfig::default() };
                        self.sessions.insert(tsih, TargetSession::new(*established, tsih, config, NOW));
                    }
                }
                // The final response is still sent without digests; everything after it with them.
                self.drain(tsih);
                let line = &mut self.lines[at];
                line.set_digests(params.digests);
                line.audit.error_recovery_level = params.error_recovery_level;
                line.audit.protocol_level = params.protocol_level;
                line.reader.set_max_data_bytes(params.max_recv_data_segment_length as usize);
            }
        }
    }

    fn drain(&mut self, tsih: Tsih) {
        while let Some(session) = self.sessions.get_mut(&tsih)
            && let Some(action) = session.poll_action()
        {
            match action {
                Action::Send { cid, mut pdu } => {
                    (self.change)(&mut pdu.bhs);
                    if let Some(line) = self.line_of(tsih, cid) {
                        line.send(pdu);
                    }
                }
                Action::Close { cid, .. } => {
                    if let Some(line) = self.line_of(tsih, cid) {
                        line.stage = Stage::Closed;
                    }
                }
                Action::Ended => drop(self.sessions.remove(&tsih)),
                other => self.device.act(session, other),
            }
        }
    }

    /// The connection; if it was replaced, the new one.
    fn line_of(&mut self, tsih: Tsih, cid: Cid) -> Option<&mut Line> {
        self.lines.iter_mut().rev().find(|line| line.stage == Stage::FullFeature(tsih, cid))
    }

    /// The connection is gone.
    fn lose(&mut self, at: usize) {
        let stage = std::mem::replace(&mut self.lines[at].stage, Stage::Closed);
        let Stage::FullFeature(tsih, cid) = stage else { return };
        if let Some(session) = self.sessions.get_mut(&tsih) {
            session.handle_connection_lost(NOW, cid);
            self.drain(tsih);
        }
    }
}

/// A device server of one unit.
struct Device {
    medium: Vec<u8>,
    /// Writes that wait for their data: where it goes, and the length in the CDB.
    writes: HashMap<TaskId, (usize, usize)>,
}

impl Device {
    fn act(&mut self, session: &mut TargetSession, action: Action) {
        match action {
            Action::Start(command) => self.start(session, &command),
            Action::DataOut { task, data } => {
                let (at, length) = self.writes.remove(&task).expect("it waits");
                let data: Vec<u8> = data.iter().flatten().copied().collect();
                self.medium[at..at + data.len()].copy_from_slice(&data);
                let transfer_bytes = length as u64;
                session.complete(task, Completion { transfer_bytes, ..completion() });
            }
            Action::Abandon { task } => {
                self.writes.remove(&task);
                session.task_gone(task);
            }
            Action::Manage(request) if request.lun != Lun(0) => {
                session.management_done(request.id, TmfResponse::LunDoesNotExist);
            }
            other => panic!("no row makes the target ask for this: {other:?}"),
        }
    }

    fn start(&mut self, session: &mut TargetSession, command: &Command) {
        let cdb = &command.cdb[..];
        let number =
            |range: std::ops::Range<usize>| cdb[range].iter().fold(0u64, |all, b| all << 8 | u64::from(*b));
        let (at, length) = (number(2..10).saturating_mul(BLOCK as u64), number(10..14) * BLOCK as u64);
        let inside = at.checked_add(length).is_some_and(|end| end <= UNIT as u64);
        let (at, length) = (at as usize, length as usize);
        let data = match cdb[0] {
            _ if command.lun != Lun(0) => return self.refuse(session, command, "5/25/00"),
            0x88 | 0x8a if !inside => return self.refuse(session, command, "5/21/00"),
            0x8a => {
                self.writes.insert(command.task, (at, length));
                return session.need_data_out(command.task, length as u64);
            }
            0x88 => self.medium[at..at + length].to_vec(),
            0x00 => Vec::new(),
            0x12 => vec![0; 96],
            0x9e => {
                [((UNIT / BLOCK - 1) as u64).to_be_bytes().to_vec(), vec![0, 0, 2, 0], vec![0; 20]].concat()
            }
            _ => return self.refuse(session, command, "5/20/00"),
        };
        let transfer_bytes = data.len() as u64;
        let bytes = Bytes::from(data).slice(..(command.read_length as usize).min(transfer_bytes as usize));
        let data_in = Payload { bytes, ..Payload::default() };
        session.complete(command.task, Completion { data_in, transfer_bytes, ..completion() });
    }

    fn refuse(&self, session: &mut TargetSession, command: &Command, sense: &str) {
        session.complete(command.task, Completion { status: 2, sense: sense_bytes(sense), ..completion() });
    }
}

/// GOOD, without data.
fn completion() -> Completion {
    Completion {
        status: 0,
        sense: Bytes::new(),
        data_in: Payload::default(),
        transfer_bytes: 0,
        status_qualifier: 0,
        fenced: false,
    }
}
