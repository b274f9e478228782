//! The sessions of a crowd, on one driver.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use engine::{Driver, EpollDriver, Link, SlabRing, Token};
use initiator::{Bounds, Cid, Command, Completion, Ending, IscsiName, Isid, Lun, WriteData};
use iscsi_core::initiator::login::Progress;
use iscsi_core::initiator::{Action, InitiatorLogin, InitiatorSession, LoginConfig, SessionConfig};
use iscsi_core::limits::LOGIN_DATA_SEGMENT_BYTES;
use iscsi_core::params::DigestPolicy;
use iscsi_core::pdu_reader::{PduReader, RxPdu};
use iscsi_core::pdu_writer::PduWriter;
use iscsi_core::wire::{CmdSn, Opcode};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// Size of a read, bytes, and the blocks of the logical unit in it.
pub(super) const BLOCK_BYTES: usize = 4096;
const SECTORS: u64 = 8;
/// Where a block carries its number, at its start and at its end, bytes.
const STAMP_BYTES: usize = 8;
/// OPERATION CODE.
const TEST_UNIT_READY: u8 = 0x00;
/// Size of a write that fills the volume, in blocks.
const FILL_BLOCKS: u64 = 16;
/// How long a turn waits for an event.
const PATIENCE: Duration = Duration::from_secs(1);
/// Longest time without an event while an answer is due.
const STALL: Duration = Duration::from_secs(20);
/// Sessions that come from one address: a port is not used again for a while after its connection has closed.
const PER_ADDRESS: u64 = 64;
/// Addresses of the loopback network that they come from.
const ADDRESSES: u64 = 60_000;

/// What an order did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Done {
    /// Logins, reads or pings.
    count: u64,
    seconds: f64,
    /// CPU time of this process, seconds.
    cpu_seconds: f64,
}

struct Peer {
    link: Link,
    stage: Stage,
}

enum Stage {
    Login(Box<InitiatorLogin>),
    Session(Box<InitiatorSession>),
}

/// What a new session does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Stay,
    LogOut,
}

/// See the head of the module.
pub(super) struct Crowd {
    driver: EpollDriver,
    portal: SocketAddr,
    target: IscsiName,
    blocks: u64,
    slabs: SlabRing,
    began: Instant,
    peers: Vec<Option<Box<Peer>>>,
    /// Sessions that stay, in the order of their logins.
    open: Vec<Token>,
    /// The first of them have received their unit attention.
    told: usize,
    completions: Vec<engine::Completion>,
    fate: Fate,
    /// Number of the next host.
    next_host: u64,
    /// Logins that have not ended in a session, or with its logout.
    under_way: usize,
    logged_out: u64,
    pings: u64,
    /// Commands that have ended, with the session of each.
    ended: Vec<Token>,
    /// Links with something to send, perhaps more than once.
    touched: Vec<Token>,
    random: u64,
}

impl Crowd {
    /// No session yet.
    pub(super) fn new(driver: EpollDriver, portal: SocketAddr, target: IscsiName, blocks: u64) -> Self {
        Self {
            driver,
            portal,
            target,
            blocks,
            slabs: SlabRing::new(128 << 10, 16 << 10),
            began: Instant::now(),
            peers: Vec::new(),
            open: Vec::new(),
            told: 0,
            completions: Vec::new(),
            fate: Fate::Stay,
            next_host: 0,
            under_way: 0,
            logged_out: 0,
            pings: 0,
            ended: Vec::new(),
            touched: Vec::new(),
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// Its hosts are numbered from `first`.
    pub(super) fn starting_with(self, first: u64) -> Self {
        Self { next_host: first, ..self }
    }

    /// Ends a wait of [`Crowd::turn`] from another thread.
    pub(super) fn waker(&self) -> engine::Waker {
        self.driver.waker()
    }

    /// Logs in until `sessions` exist, `at_once` at a time.
    pub(super) fn open(&mut self, sessions: usize, at_once: usize) -> Result<Done, String> {
        self.fate = Fate::Stay;
        let (clock, before) = (Spent::start(), self.open.len());
        while self.open.len() < sessions {
            while self.under_way < at_once && self.open.len() + self.under_way < sessions {
                self.connect()?;
            }
            self.wait()?;
        }
        Ok(clock.done((self.open.len() - before) as u64))
    }

    /// Logs in and out for `time`, `at_once` at a time.
    pub(super) fn churn(&mut self, at_once: usize, time: Duration) -> Result<Done, String> {
        self.fate = Fate::LogOut;
        let (clock, before) = (Spent::start(), self.logged_out);
        while clock.elapsed() < time || self.under_way > 0 {
            while self.under_way < at_once && clock.elapsed() < time {
                self.connect()?;
            }
            self.wait()?;
        }
        Ok(clock.done(self.logged_out - before))
    }

    /// Writes its number into every block.
    pub(super) fn fill(&mut self) -> Result<Done, String> {
        let clock = Spent::start();
        let first = *self.open.first().ok_or("no session")?;
        self.tell(1)?;
        for start in (0..self.blocks).step_by(FILL_BLOCKS as usize) {
            let count = FILL_BLOCKS.min(self.blocks - start);
            let mut data = BytesMut::zeroed(count as usize * BLOCK_BYTES);
            for (block, bytes) in (start..).zip(data.chunks_exact_mut(BLOCK_BYTES)) {
                bytes[..STAMP_BYTES].copy_from_slice(&block.to_be_bytes());
                bytes[BLOCK_BYTES - STAMP_BYTES..].copy_from_slice(&block.to_be_bytes());
            }
            let cdb = initiator::cdb::write(start * SECTORS, (count * SECTORS) as u32);
            let command = Command { write: WriteData::from(data.freeze()), ..Command::new(Lun(0), &cdb) };
            self.submit(first, command)?;
            while self.ended.pop().is_none() {
                self.wait()?;
            }
        }
        Ok(clock.done(self.blocks))
    }

    /// Reads for `time` with `depth` commands outstanding, spread over the first `sessions`. If there are more sessions than
    /// commands, each session has its turn.
    pub(super) fn read(&mut self, sessions: usize, depth: usize, time: Duration) -> Result<Done, String> {
        if sessions > self.open.len() {
            return Err(format!("{sessions} sessions are to read, and there are {}", self.open.len()));
        }
        self.tell(sessions)?;
        let clock = Spent::start();
        let (mut next, mut outstanding, mut count) = (0, 0, 0);
        let mut ended = Vec::new();
        while outstanding < depth {
            self.submit_read(self.open[next])?;
            (next, outstanding) = ((next + 1) % sessions, outstanding + 1);
        }
        while outstanding > 0 {
            self.wait()?;
            let goes_on = clock.elapsed() < time;
            std::mem::swap(&mut ended, &mut self.ended);
            (outstanding, count) = (outstanding - ended.len(), count + ended.len() as u64);
            for token in ended.drain(..).filter(|_| goes_on) {
                let turn = if sessions > depth { self.open[next] } else { token };
                self.submit_read(turn)?;
                (next, outstanding) = ((next + 1) % sessions, outstanding + 1);
            }
            self.flush_touched();
        }
        Ok(clock.done(count))
    }

    /// The first command of a session reports a unit attention, whatever it is: sends one on each of the first `sessions`.
    fn tell(&mut self, sessions: usize) -> Result<(), String> {
        while self.told < sessions {
            let session = *self.open.get(self.told).ok_or("no such session")?;
            self.submit(session, Command::new(Lun(0), &initiator::cdb::test_unit_ready()))?;
            while self.ended.pop().is_none() {
                self.wait()?;
            }
            self.told += 1;
        }
        Ok(())
    }

    /// Pings answered so far.
    pub(super) fn pings(&self) -> Done {
        Done { count: self.pings, ..Done::default() }
    }

    /// Handles what has happened, after waiting for it.
    pub(super) fn turn(&mut self) -> Result<bool, String> {
        let mut completions = std::mem::take(&mut self.completions);
        self.driver.wait(Some(PATIENCE), &mut completions).map_err(|error| format!("epoll: {error}"))?;
        let busy = !completions.is_empty();
        for completion in completions.drain(..) {
            self.take(completion)?;
        }
        self.completions = completions;
        Ok(busy)
    }

    /// Like [`Crowd::turn`], when an answer is due.
    fn wait(&mut self) -> Result<(), String> {
        self.flush_touched();
        let began = Instant::now();
        while !self.turn()? {
            if began.elapsed() > STALL {
                return Err(format!("no answer from the target in {} s", STALL.as_secs()));
            }
        }
        Ok(())
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn connect(&mut self) -> Result<(), String> {
        let local = local_address(self.portal.ip(), self.next_host);
        let token = self.driver.connect(self.portal, local).map_err(|error| format!("connect: {error}"))?;
        let reader = PduReader::new(LOGIN_DATA_SEGMENT_BYTES);
        let mut link = Link::new(token, reader, PduWriter::new(), self.slabs.clone());
        let mut login = Box::new(InitiatorLogin::new(self.login_config()?));
        link.push(login.start());
        link.flush(&mut self.driver);
        if self.peers.len() <= token.index() {
            self.peers.resize_with(token.index() + 1, || None);
        }
        self.peers[token.index()] = Some(Box::new(Peer { link, stage: Stage::Login(login) }));
        (self.next_host, self.under_way) = (self.next_host + 1, self.under_way + 1);
        Ok(())
    }

    /// Each session is of a host of its own.
    fn login_config(&self) -> Result<LoginConfig, String> {
        let name = format!("iqn.2026-01.org.example:host-{:06}", self.next_host);
        let number = self.next_host as u32;
        let digest = DigestPolicy::Off;
        Ok(LoginConfig {
            initiator: IscsiName::parse(&name).map_err(|error| error.to_string())?,
            initiator_alias: None,
            target: Some(self.target.clone()),
            discovery: false,
            isid: Isid::random([0, 0, (number >> 16) as u8], number as u16),
            cid: Cid(0),
            cmd_sn: CmdSn(1),
            chap: None,
            bounds: Bounds { header_digest: digest, data_digest: digest, ..Bounds::default() },
            node_architecture: None,
            join: None,
        })
    }

    fn take(&mut self, completion: engine::Completion) -> Result<(), String> {
        use engine::Completion as Event;
        match completion {
            Event::Connected { result, .. } => result.map_err(|error| format!("connect: {error}")),
            Event::Received { conn, buffer, result } => {
                let Some(peer) = self.peer(conn) else { return Ok(()) };
                match result {
                    Ok(bytes) => peer.link.on_received(buffer, bytes),
                    Err(error) => return Err(format!("receive: {error}")),
                }
                self.take_pdus(conn)
            }
            Event::Sent { conn, segments, result } => {
                result.map_err(|error| format!("send: {error}"))?;
                let Some(peer) = self.peer(conn) else { return Ok(()) };
                peer.link.on_sent(segments);
                self.flush(conn);
                Ok(())
            }
            Event::Accepted { .. } | Event::AcceptFailed { .. } | Event::Woken => Ok(()),
        }
    }

    fn take_pdus(&mut self, token: Token) -> Result<(), String> {
        let now = self.now();
        while let Some(peer) = self.peer(token) {
            let Some(pdu) = peer.link.next_pdu().map_err(|error| error.to_string())? else { break };
            match &mut peer.stage {
                Stage::Login(_) => self.take_login(token, &pdu)?,
                Stage::Session(session) => {
                    let is_ping = pdu.bhs.opcode() == Opcode::NopIn.code();
                    session.handle_pdu(now, Cid(0), pdu);
                    self.pings += u64::from(is_ping);
                    self.carry_out(token)?;
                }
            }
        }
        match self.peer(token) {
            Some(peer) if peer.link.peer_closed() => Err("the target closed a connection".to_owned()),
            _ => {
                self.flush(token);
                Ok(())
            }
        }
    }

    fn take_login(&mut self, token: Token, pdu: &RxPdu) -> Result<(), String> {
        let (now, fate) = (self.now(), self.fate);
        let Some(peer) = self.peer(token) else { return Ok(()) };
        let Stage::Login(login) = &mut peer.stage else { return Ok(()) };
        match login.handle_pdu(pdu, &mut NoSecrets).map_err(|error| error.to_string())? {
            Progress::Send(answer) => peer.link.push(answer),
            Progress::Complete(done) => {
                peer.link.set_max_data_bytes(done.params.max_recv_data_segment_length as usize);
                // Only the target pings: that is what is counted.
                let config = SessionConfig { ping_interval: Duration::ZERO, ..SessionConfig::default() };
                let mut session = Box::new(InitiatorSession::new(&done, config, now));
                if fate == Fate::LogOut {
                    session.logout(now);
                }
                peer.stage = Stage::Session(session);
                if fate == Fate::Stay {
                    self.open.push(token);
                    self.under_way -= 1;
                }
                self.carry_out(token)?;
            }
        }
        Ok(())
    }

    /// Executes the actions of a session.
    fn carry_out(&mut self, token: Token) -> Result<(), String> {
        loop {
            let Some(Peer { link, stage: Stage::Session(session) }) = self.peer(token) else { return Ok(()) };
            match session.poll_action() {
                None => return Ok(()),
                Some(Action::Send { pdu, .. }) => link.push(pdu),
                Some(Action::DataIn { user, offset, data }) => check(user, offset as usize, &data)?,
                Some(Action::Completed(completion)) => {
                    judge(&completion)?;
                    self.ended.push(token);
                }
                Some(Action::Close { .. } | Action::CloseConnection { .. }) if self.fate == Fate::LogOut => {
                    self.leave(token)
                }
                Some(Action::Close { reason, .. } | Action::CloseConnection { reason, .. }) => {
                    return Err(format!("a session ended: {reason:?}"));
                }
                Some(_) => {}
            }
        }
    }

    /// A session has logged out.
    fn leave(&mut self, token: Token) {
        if self.peer(token).is_some() {
            self.driver.close(token);
            self.peers[token.index()] = None;
            (self.logged_out, self.under_way) = (self.logged_out + 1, self.under_way - 1);
        }
    }

    fn submit_read(&mut self, token: Token) -> Result<(), String> {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let block = self.random % self.blocks;
        let cdb = initiator::cdb::read(block * SECTORS, SECTORS as u32);
        let command = Command::new(Lun(0), &cdb);
        self.submit(token, Command { user: block, read_length: BLOCK_BYTES as u32, ..command })
    }

    fn submit(&mut self, token: Token, command: Command) -> Result<(), String> {
        let now = self.now();
        let Some(Peer { stage: Stage::Session(session), .. }) = self.peer(token) else {
            return Err("a session is gone".to_owned());
        };
        let command = Command { timeout: Duration::ZERO, ..command };
        session.submit(now, command).map_err(|_| "a session takes no command")?;
        self.touched.push(token);
        self.carry_out(token)
    }

    fn flush_touched(&mut self) {
        while let Some(token) = self.touched.pop() {
            self.flush(token);
        }
    }

    fn flush(&mut self, token: Token) {
        if let Some(peer) = self.peers.get_mut(token.index()).and_then(Option::as_deref_mut)
            && peer.link.token() == token
        {
            peer.link.flush(&mut self.driver);
        }
    }

    fn peer(&mut self, token: Token) -> Option<&mut Peer> {
        let peer = self.peers.get_mut(token.index())?.as_deref_mut()?;
        (peer.link.token() == token).then_some(peer)
    }
}

/// Time and CPU time since the start of an order.
pub(super) struct Spent {
    began: Instant,
    cpu: Duration,
}

impl Spent {
    pub(super) fn start() -> Self {
        Self { began: Instant::now(), cpu: cpu_time() }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn done(&self, count: u64) -> Done {
        let cpu_seconds = (cpu_time() - self.cpu).as_secs_f64();
        Done { count, seconds: self.began.elapsed().as_secs_f64(), cpu_seconds }
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// On the loopback, a local address for the connection of this number.
pub(super) fn local_address(portal: IpAddr, number: u64) -> Option<IpAddr> {
    let place = (number / PER_ADDRESS % ADDRESSES) as u16;
    let [high, low] = (place + 256).to_be_bytes();
    (portal.is_ipv4() && portal.is_loopback()).then(|| Ipv4Addr::new(127, 1, high, low).into())
}

/// Whether a piece of a block, at `offset` in it, is that of the block `number`.
fn check(number: u64, offset: usize, data: &Bytes) -> Result<(), String> {
    let stamp = number.to_be_bytes();
    let starts = offset > 0 || data.get(..STAMP_BYTES) == Some(&stamp);
    let ends = offset + data.len() < BLOCK_BYTES || data.ends_with(&stamp);
    match starts && ends {
        true => Ok(()),
        false => Err(format!("a read of block {number} returned another one")),
    }
}

fn judge(completion: &Completion) -> Result<(), String> {
    let expected = completion.command.read_length;
    match &completion.ending {
        Ending::Status { status: 0, data_in_bytes, .. } if *data_in_bytes == expected => Ok(()),
        Ending::Status { .. } if completion.command.cdb[0] == TEST_UNIT_READY => Ok(()),
        other => Err(format!("a command ended with {other:?}")),
    }
}

/// The crowd does not authenticate.
struct NoSecrets;

impl iscsi_core::initiator::login::LoginSupport for NoSecrets {
    fn fill_random(&mut self, bytes: &mut [u8]) {
        bytes.fill(0);
    }

    fn challenge_issued(&mut self, _: &[u8]) {}

    fn was_issued(&mut self, _: &[u8]) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_another_number_is_found_out_in_whichever_piece_it_is() {
        let mut block = vec![0; BLOCK_BYTES];
        block[..STAMP_BYTES].copy_from_slice(&7u64.to_be_bytes());
        block[BLOCK_BYTES - STAMP_BYTES..].copy_from_slice(&7u64.to_be_bytes());
        let block = Bytes::from(block);
        assert!(check(7, 0, &block).is_ok() && check(8, 0, &block).is_err());
        let (head, tail) = (block.slice(..1024), block.slice(1024..));
        assert!(check(7, 0, &head).is_ok() && check(7, 1024, &tail).is_ok());
        assert!(check(8, 0, &head).is_err() && check(8, 1024, &tail).is_err());
    }

    #[test]
    fn sessions_come_from_loopback_addresses_of_which_none_is_the_network_itself() {
        let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
        let of = |number| local_address(loopback, number).map(|address| address.to_string());
        assert_eq!(of(0).as_deref(), Some("127.1.1.0"));
        assert_eq!(of(PER_ADDRESS).as_deref(), Some("127.1.1.1"));
        assert_eq!(local_address(IpAddr::from([192, 0, 2, 1]), 0), None);
    }
}
