//! The initiator's side of the protocol as an initiator that rows of `conform` can drive: no sockets, and no time passes for it.
//!
//! Bytes pass through a [`PduReader`] and a [`PduWriter`] with the digests in effect. A command whose session ends is given to the
//! next one.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use conform::initiator::{DriveUrl, InitiatorUnderTest, Op, OpResult};
use conform::{Dial, Link};
use iscsi_core::Time;
use iscsi_core::initiator::login::{LoginSupport, Progress};
use iscsi_core::initiator::{
    Action, Command, Ending, InitiatorLogin, InitiatorSession, LoginConfig, SessionConfig,
};
use iscsi_core::names::IscsiName;
use iscsi_core::params::{Bounds, TaskReporting};
use iscsi_core::pdu_reader::{PduReader, RxPdu};
use iscsi_core::pdu_writer::{PduWriter, TxPdu};
use iscsi_core::wire::{Cid, CmdSn, Isid, Lun, MAX_DATA_SEGMENT_LENGTH};

/// No row needs a timer of the session.
const NOW: Time = Time::ZERO;
/// Bytes of a block.
const BLOCK: u32 = 512;
/// How long a step may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Sessions that one operation may use up.
const SESSIONS: usize = 3;

/// The initiator.
pub struct MemoryInitiator;

impl InitiatorUnderTest for MemoryInitiator {
    fn connect_and(&self, _url: &str, _ops: &[Op]) -> Result<Vec<OpResult>, String> {
        Err("it has no sockets".to_owned())
    }

    fn connect_over(&self, dial: &dyn Dial, url: &str, ops: &[Op]) -> Result<Vec<OpResult>, String> {
        let url = DriveUrl::parse(url)?;
        let mut seat = Some(Seat::log_in(dial, &url)?);
        let results = ops
            .iter()
            .map(|op| {
                for _ in 0..SESSIONS {
                    let taken = match &mut seat {
                        Some(open) => open.carry_out(op),
                        None => Err("there is no session".to_owned()),
                    };
                    match taken {
                        Ok(result) => return result,
                        Err(_) => seat = Seat::log_in(dial, &url).ok(),
                    }
                }
                OpResult::Failed("its sessions end".to_owned())
            })
            .collect();
        if let Some(seat) = &mut seat {
            seat.log_out();
        }
        Ok(results)
    }

    fn accepts_nothing_else(&self) -> bool {
        true
    }
}

struct NoChap;

impl LoginSupport for NoChap {
    fn fill_random(&mut self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
    fn challenge_issued(&mut self, _challenge: &[u8]) {}
    fn was_issued(&mut self, _challenge: &[u8]) -> bool {
        false
    }
}

/// A connection.
struct Line {
    link: Box<dyn Link>,
    reader: PduReader,
    writer: PduWriter,
    arrived: BytesMut,
}

impl Line {
    fn send(&mut self, pdu: TxPdu) -> Result<(), String> {
        self.writer.push(pdu);
        let mut segments = Vec::new();
        self.writer.take(usize::MAX, &mut segments);
        segments.iter().try_for_each(|bytes| self.link.send(bytes)).map_err(|error| error.to_string())
    }

    /// The next PDU; `None` if nothing comes until `end`.
    fn receive(&mut self, end: Instant) -> Result<Option<RxPdu>, String> {
        loop {
            match self.reader.next(&mut self.arrived) {
                Ok(Some(rx)) => return Ok(Some(rx)),
                Ok(None) => {}
                Err(error) => return Err(error.to_string()),
            }
            let mut buffer = [0; 4096];
            match self.link.receive(&mut buffer, end.saturating_duration_since(Instant::now())) {
                Ok(0) => return Err("the target closed the connection".to_owned()),
                Ok(length) => self.arrived.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

/// A session on its one connection.
struct Seat {
    line: Line,
    session: InitiatorSession,
    lun: Lun,
}

fn bounds(url: &DriveUrl) -> Bounds {
    let mut bounds = Bounds::default();
    let number = |key: &str, usual: u32| url.setting(key).and_then(|v| v.parse().ok()).unwrap_or(usual);
    if url.setting("task_reporting") == Some("fast_abort") {
        bounds.task_reporting = TaskReporting::FastAbort;
    }
    bounds.bursts.initial_r2t = url.setting("initial_r2t") == Some("yes");
    bounds.bursts.immediate_data = url.setting("immediate_data") != Some("no");
    bounds.bursts.max_burst_length = number("max_burst_length", bounds.bursts.max_burst_length);
    bounds.bursts.first_burst_length = number("first_burst_length", bounds.bursts.first_burst_length);
    bounds.bursts.max_outstanding_r2t =
        number("max_outstanding_r2t", bounds.bursts.max_outstanding_r2t.into()).try_into().expect("a number");
    bounds
}

impl Seat {
    fn log_in(dial: &dyn Dial, url: &DriveUrl) -> Result<Self, String> {
        let link = dial.dial(PATIENCE).map_err(|error| error.to_string())?;
        let mut line = Line {
            link,
            reader: PduReader::new(MAX_DATA_SEGMENT_LENGTH),
            writer: PduWriter::new(),
            arrived: BytesMut::new(),
        };
        let target = url.target.as_deref().map(IscsiName::parse).transpose();
        let mut login = InitiatorLogin::new(LoginConfig {
            initiator: IscsiName::parse("iqn.2026-01.org.example:memory").expect("a name"),
            initiator_alias: None,
            target: target.map_err(|error| error.to_string())?,
            discovery: false,
            isid: Isid([0x80, 0, 0, 0, 0, 1]),
            cid: Cid(0),
            cmd_sn: CmdSn(0xffff_fffe),
            chap: None,
            bounds: bounds(url),
            node_architecture: None,
            join: None,
        });
        line.send(login.start())?;
        let end = Instant::now() + PATIENCE;
        loop {
            let rx = line.receive(end)?.ok_or("no answer to the login")?;
            match login.handle_pdu(&rx, &mut NoChap).map_err(|error| error.to_string())? {
                Progress::Send(pdu) => line.send(pdu)?,
                Progress::Complete(done) => {
                    line.reader.set_digests(done.params.digests);
                    line.writer.set_digests(done.params.digests);
                    line.reader.set_max_data_bytes(done.params.max_recv_data_segment_length as usize);
                    let session = InitiatorSession::new(&done, SessionConfig::default(), NOW);
                    return Ok(Self { line, session, lun: Lun::from_index(url.lun) });
                }
            }
        }
    }

    /// An error if the session ends before the operation does.
    fn carry_out(&mut self, op: &Op) -> Result<OpResult, String> {
        let mut read = Vec::new();
        let command = match op {
            Op::Read { lba, blocks } => {
                read.resize((blocks * BLOCK) as usize, 0);
                Command { read_length: blocks * BLOCK, ..self.command(0x88, *lba, *blocks) }
            }
            Op::Write { lba, data } => {
                let blocks = u32::try_from(data.len()).expect("a small write") / BLOCK;
                Command { write: Bytes::from(data.clone()).into(), ..self.command(0x8a, *lba, blocks) }
            }
            Op::Flush => self.command(0x91, 0, 0),
            Op::Wait(time) => {
                let end = Instant::now() + *time;
                while let Some(rx) = self.line.receive(end)? {
                    self.session.handle_pdu(NOW, Cid(0), rx);
                    self.drain(&mut read)?;
                }
                return Ok(OpResult::Done);
            }
            other => return Ok(OpResult::Failed(format!("no row in text asks for {other:?}"))),
        };
        self.session.submit(NOW, command).map_err(|_| "the session takes no command".to_owned())?;
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(ending) = self.drain(&mut read)? {
                return Ok(match (ending, op) {
                    (Ending::Status { status: 0, data_in_bytes, .. }, Op::Read { .. }) => {
                        read.truncate(data_in_bytes as usize);
                        OpResult::Data(read)
                    }
                    (Ending::Status { status: 0, .. }, _) => OpResult::Done,
                    (ending, _) => OpResult::Failed(format!("{ending:?}")),
                });
            }
            let rx = self.line.receive(end)?.ok_or("the target is silent")?;
            self.session.handle_pdu(NOW, Cid(0), rx);
        }
    }

    fn command(&self, opcode: u8, lba: u64, blocks: u32) -> Command {
        let mut cdb = [0; 16];
        cdb[0] = opcode;
        cdb[2..10].copy_from_slice(&lba.to_be_bytes());
        cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
        Command::new(self.lun, &cdb)
    }

    /// Does what the session asks for. Returns how the command ended, if it has; an error if the session is over.
    fn drain(&mut self, read: &mut [u8]) -> Result<Option<Ending>, String> {
        let mut ended = None;
        while let Some(action) = self.session.poll_action() {
            match action {
                Action::Send { pdu, .. } => self.line.send(pdu)?,
                Action::DataIn { offset, data, .. } => {
                    let at = offset as usize;
                    read[at..at + data.len()].copy_from_slice(&data);
                }
                Action::Completed(completion) => ended = Some(completion.ending),
                Action::Close { reason, .. } | Action::CloseConnection { reason, .. } => {
                    return Err(reason.to_string());
                }
                Action::Event(_) => {}
                other => return Err(format!("no row makes the initiator ask for this: {other:?}")),
            }
        }
        Ok(ended)
    }

    fn log_out(&mut self) {
        self.session.logout(NOW);
        let end = Instant::now() + PATIENCE;
        // It is over once the session says so.
        while self.drain(&mut []).is_ok() {
            match self.line.receive(end) {
                Ok(Some(rx)) => self.session.handle_pdu(NOW, Cid(0), rx),
                Ok(None) | Err(_) => return,
            }
        }
    }
}
