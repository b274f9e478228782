//! The initiator under test, the operations it is asked to execute, and the stage on which a row plays.

use super::RowResult;
use crate::evil::{Behaviour, EvilConfig, EvilTarget};
use crate::ledger::Finding;
use crate::link::Dial;
use crate::script::{ensure, fail};
use crate::transcript::{Entry, Side, What};
use crate::{Frame, Received, Stop, text_of};
use iscsi_wire::{Itt, Lun, NopIn, Opcode, ResponseNumbers, TmfFunction, TmfResponse, Ttt};
use std::cell::RefCell;
use std::time::Duration;

/// How long the connections of a play may take to end after the initiator is done.
const SETTLE: Duration = Duration::from_secs(3);

/// One operation of an initiator. A block has 512 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read blocks.
    Read {
        /// First block.
        lba: u64,
        /// Number of blocks.
        blocks: u32,
    },
    /// Write blocks.
    Write {
        /// First block.
        lba: u64,
        /// Their bytes.
        data: Vec<u8>,
    },
    /// SYNCHRONIZE CACHE.
    Flush,
    /// Capacity of the disk.
    Capacity,
    /// SendTargets in a discovery session; the URL then names no target.
    Discover,
    /// Keep the session open and serve incoming PDUs for this long.
    Wait(Duration),
    /// Request a task management function: for a read of these blocks that was started just before or, if there is none, for
    /// the logical unit.
    Manage {
        /// Which.
        function: TmfFunction,
        /// First block and number of blocks.
        read: Option<(u64, u32)>,
    },
    /// Declare another MaxRecvDataSegmentLength in full feature phase, bytes.
    Declare(u32),
    /// Operations one after the other, for use within [`Op::Together`].
    InTurn(Vec<Op>),
    /// Several operations at once; an initiator without a queue may run them one after the other.
    Together(Vec<Op>),
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpResult {
    /// Done.
    Done,
    /// The data read.
    Data(Vec<u8>),
    /// Blocks of the disk, and bytes per block.
    Capacity(u64, u32),
    /// Discovered targets: their names, with their addresses.
    Targets(Vec<(String, Vec<String>)>),
    /// It failed, in words.
    Failed(String),
    /// The target's response to a function; `None`: there was no answer.
    Managed(Option<TmfResponse>),
    /// Results of [`Op::Together`] or [`Op::InTurn`], in order.
    Together(Vec<OpResult>),
}

/// An initiator that can be tested. See [`DriveUrl`] for the format of the URL.
pub trait InitiatorUnderTest {
    /// Logs in, executes the operations in order, and logs out (even if an operation failed). Returns an error if the login
    /// did not succeed. Whatever the target does, this must return: `timeout_ms` of the URL limits one step, and there may be
    /// only a few reconnections.
    fn connect_and(&self, url: &str, ops: &[Op]) -> Result<Vec<OpResult>, String>;

    /// Like [`InitiatorUnderTest::connect_and`], for an initiator without sockets: its connections are those that `dial` opens.
    fn connect_over(&self, _dial: &dyn Dial, url: &str, ops: &[Op]) -> Result<Vec<OpResult>, String> {
        self.connect_and(url, ops)
    }

    /// Is nothing accepted that a row in text has after `else`, and no part with `when` left out? For an initiator that is known
    /// to do what comes before, and to grant everything.
    fn accepts_nothing_else(&self) -> bool {
        false
    }
}

/// The parsed URL of a play:
/// `iscsi://[user[%password]@]host:port[/target/lun][?key=value&...]`.
///
/// Keys: `header_digest` and `data_digest` (`off`, `offered`, `required`), `target_user` and `target_password` (mutual CHAP),
/// `initial_r2t`, `immediate_data`, `data_pdu_in_order` and `data_sequence_in_order` (`yes`, `no`), `max_recv_data_segment_length`, `max_burst_length`,
/// `first_burst_length`, `max_outstanding_r2t` (numbers to offer), `connections` (maximum per session), `erl` (the highest
/// ErrorRecoveryLevel to offer), `task_reporting` (`fast_abort`), `protocol_level` (to offer), `timeout_ms` (of one step).
/// The initiator chooses the values of absent keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriveUrl {
    /// Host, or address without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// TargetName; `None` for discovery.
    pub target: Option<String>,
    /// Index of the logical unit.
    pub lun: u16,
    /// CHAP name and secret of the initiator.
    pub chap: Option<(String, String)>,
    /// CHAP name and secret that the target must prove.
    pub target_chap: Option<(String, String)>,
    /// The other keys, in order.
    pub settings: Vec<(String, String)>,
}

impl DriveUrl {
    /// Parses a URL.
    pub fn parse(url: &str) -> Result<Self, String> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let options = crate::target::Options::from_url(base)?;
        let mut parsed = DriveUrl {
            host: options.host,
            port: options.port,
            target: options.target,
            lun: options.lun.unwrap_or(0),
            chap: options.chap.map(|chap| (chap.name, chap.secret)),
            target_chap: None,
            settings: Vec::new(),
        };
        let (mut user, mut password) = (None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(|| format!("{pair:?} is no key=value"))?;
            match key {
                "target_user" => user = Some(value.to_owned()),
                "target_password" => password = Some(value.to_owned()),
                _ => parsed.settings.push((key.to_owned(), value.to_owned())),
            }
        }
        parsed.target_chap = user.zip(password);
        Ok(parsed)
    }

    /// The value of one of the other keys.
    pub fn setting(&self, key: &str) -> Option<&str> {
        self.settings.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// `timeout_ms`, or 2 seconds.
    pub fn timeout(&self) -> Duration {
        let value = self.setting("timeout_ms").and_then(|value| value.parse().ok());
        Duration::from_millis(value.unwrap_or(2000))
    }
}

/// Where a row plays.
pub(crate) struct Stage<'a> {
    row: &'static str,
    drive: &'a dyn InitiatorUnderTest,
    shown: RefCell<String>,
}

/// The course of a play.
pub(crate) struct Played {
    pub(crate) results: Result<Vec<OpResult>, String>,
    pub(super) entries: Vec<Entry>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) medium: Vec<u8>,
}

/// What one play needs in addition to the target's behaviour.
#[derive(Clone)]
pub(crate) struct Play {
    pub(crate) config: EvilConfig,
    pub(super) query: Vec<(&'static str, String)>,
    pub(super) user: Option<(String, String)>,
    pub(super) discovery: bool,
    pub(super) timeout_ms: u64,
}

impl Default for Play {
    fn default() -> Self {
        Play {
            config: EvilConfig::default(),
            query: Vec::new(),
            user: None,
            discovery: false,
            timeout_ms: 2000,
        }
    }
}

impl Play {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn config(mut self, config: EvilConfig) -> Self {
        self.config = config;
        self
    }

    pub(crate) fn set(mut self, key: &'static str, value: &str) -> Self {
        self.query.push((key, value.to_owned()));
        self
    }

    /// With a shorter time per step, for plays that wait for it to elapse.
    pub(super) fn impatient(mut self) -> Self {
        self.timeout_ms = 500;
        self
    }

    pub(super) fn discovery(mut self) -> Self {
        self.discovery = true;
        self
    }

    pub(super) fn user(mut self, name: &str, secret: &str) -> Self {
        self.user = Some((name.to_owned(), secret.to_owned()));
        self
    }

    /// The URL of `target` for this play.
    pub(super) fn url(&self, target: &EvilTarget) -> String {
        let user = self.user.as_ref().map(|(name, secret)| format!("{name}%{secret}@")).unwrap_or_default();
        let path = if self.discovery { String::new() } else { format!("/{}/0", self.config.target_name) };
        let mut url = format!("iscsi://{user}{}{path}?timeout_ms={}", target.address(), self.timeout_ms);
        for (key, value) in &self.query {
            url.push_str(&format!("&{key}={value}"));
        }
        url
    }
}

impl<'a> Stage<'a> {
    pub(super) fn new(row: &'static str, drive: &'a dyn InitiatorUnderTest) -> Self {
        Stage { row, drive, shown: RefCell::new(String::new()) }
    }

    pub(crate) fn accepts_nothing_else(&self) -> bool {
        self.drive.accepts_nothing_else()
    }

    pub(super) fn shown(&self) -> String {
        self.shown.borrow().clone()
    }

    /// Plays with a default target.
    pub(super) fn play(&self, behaviour: Behaviour, ops: &[Op]) -> Result<Played, Stop> {
        self.play_as(&Play::new(), behaviour, ops)
    }

    pub(super) fn play_as(&self, play: &Play, behaviour: Behaviour, ops: &[Op]) -> Result<Played, Stop> {
        let target = self.target(play, behaviour)?;
        Ok(self.play_on(play, &target, ops))
    }

    pub(crate) fn target(&self, play: &Play, behaviour: Behaviour) -> Result<EvilTarget, Stop> {
        let target = EvilTarget::start(play.config.clone(), behaviour)
            .map_err(|error| Stop::Fail(format!("starting the evil target: {error}")))?;
        target.fill(0, &pattern(0, 256));
        Ok(target)
    }

    pub(crate) fn play_on(&self, play: &Play, target: &EvilTarget, ops: &[Op]) -> Played {
        let results = self.drive.connect_over(target, &play.url(target), ops);
        target.settle(SETTLE);
        let mut shown = target.transcript().to_string();
        match &results {
            Ok(results) => shown.push_str(&format!("\nresults: {}", brief(results))),
            Err(error) => shown.push_str(&format!("\nerror: {error}")),
        }
        *self.shown.borrow_mut() = shown;
        Played {
            results,
            entries: target.transcript().entries(),
            findings: target.findings(),
            medium: target.medium(),
        }
    }

    /// A complete play that must go well, and in which the initiator must not break the row's rule.
    pub(super) fn goes_well(&self, play: &Play, behaviour: Behaviour) -> Result<Played, Stop> {
        let played = self.play_as(play, behaviour, &read_write())?;
        played.went_well()?;
        played.clean(self.row)?;
        Ok(played)
    }

    /// A play in which the target breaks a rule on connection 1: the initiator must end that connection, and must never
    /// deliver a wrong byte.
    pub(super) fn is_dropped(&self, what: &str, play: &Play, behaviour: Behaviour) -> Result<Played, Stop> {
        let played = self.play_as(play, behaviour, &read_write())?;
        ensure!(played.dropped(1), "{what}: the initiator goes on with the connection ({})", played.words());
        played.no_wrong_byte()?;
        Ok(played)
    }
}

fn brief(results: &[OpResult]) -> String {
    let words = results.iter().map(|result| match result {
        OpResult::Data(data) => format!("{} bytes", data.len()),
        OpResult::Together(results) => format!("[{}]", brief(results)),
        other => format!("{other:?}"),
    });
    words.collect::<Vec<_>>().join("; ")
}

/// Bytes that differ from block to block.
pub(super) fn pattern(lba: u64, blocks: u32) -> Vec<u8> {
    let range = lba * 512..(lba + u64::from(blocks)) * 512;
    range.map(|n| (n % 251) as u8 ^ (n / 512) as u8).collect()
}

/// What [`read_write`] writes.
pub(super) fn written() -> Vec<u8> {
    pattern(9999, 40)
}

/// Reads the initial contents, writes elsewhere, reads that back.
pub(super) fn read_write() -> Vec<Op> {
    vec![
        Op::Read { lba: 0, blocks: 24 },
        Op::Write { lba: 1000, data: written() },
        Op::Read { lba: 1000, blocks: 40 },
        Op::Flush,
    ]
}

impl Played {
    pub(crate) fn words(&self) -> String {
        match &self.results {
            Ok(results) => brief(results),
            Err(error) => error.clone(),
        }
    }

    /// Every operation succeeded, with the right bytes.
    pub(super) fn went_well(&self) -> RowResult {
        let Ok(results) = &self.results else { fail!("the initiator failed: {}", self.words()) };
        fn fails(result: &OpResult) -> bool {
            match result {
                OpResult::Failed(_) => true,
                OpResult::Together(results) => results.iter().any(fails),
                _ => false,
            }
        }
        let failed = results.iter().find(|result| fails(result));
        ensure!(failed.is_none(), "an operation failed: {}", self.words());
        self.no_wrong_byte()
    }

    /// All data that [`read_write`] delivered was right, and all data reported as written is on the medium.
    pub(super) fn no_wrong_byte(&self) -> RowResult {
        let Ok(results) = &self.results else { return Ok(()) };
        let read_write = results.len() == 4 && self.entries.iter().any(|entry| entry.is(Opcode::ScsiCommand));
        if let (true, Some(OpResult::Data(data))) = (read_write, results.first()) {
            ensure!(*data == pattern(0, 24), "wrong bytes were handed up by the first read");
        }
        if let (true, Some(OpResult::Done)) = (read_write, results.get(1)) {
            let range = self.medium.get(1000 * 512..1040 * 512).unwrap_or_default();
            ensure!(range == written(), "a write that is called done is not on the medium");
        }
        if let (true, Some(OpResult::Done), Some(OpResult::Data(data))) =
            (read_write, results.get(1), results.get(2))
        {
            ensure!(*data == written(), "wrong bytes were handed up by the second read");
        }
        Ok(())
    }

    /// At least one operation, or the login, failed.
    pub(super) fn failed(&self, what: &str) -> RowResult {
        let failed = match &self.results {
            Ok(results) => results.iter().any(|result| matches!(result, OpResult::Failed(_))),
            Err(_) => true,
        };
        ensure!(failed, "{what}: nothing failed, {}", self.words());
        Ok(())
    }

    /// The login failed.
    pub(crate) fn refused(&self, what: &str) -> RowResult {
        ensure!(self.results.is_err(), "{what}: the login succeeded, {}", self.words());
        Ok(())
    }

    /// Did the initiator end this connection before the target did?
    pub(crate) fn dropped(&self, connection: u32) -> bool {
        let mut ends = self.entries.iter().filter(|entry| {
            entry.connection == connection && matches!(entry.what, What::Closed | What::Reset)
        });
        let logout = self.sent(connection, Opcode::LogoutRequest) > 0;
        ends.next().is_some_and(|end| end.side == Side::Initiator) && !logout
    }

    /// Connections that were opened.
    pub(super) fn connections(&self) -> usize {
        self.entries.iter().filter(|entry| matches!(entry.what, What::Opened)).count()
    }

    /// PDUs of the initiator.
    pub(super) fn sent_pdus(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.side == Side::Initiator && entry.bhs().is_some())
    }

    /// How many PDUs of this opcode the initiator sent on a connection.
    pub(super) fn sent(&self, connection: u32, opcode: Opcode) -> usize {
        self.sent_pdus().filter(|entry| entry.connection == connection && entry.is(opcode)).count()
    }

    /// All pairs that the initiator sent in logins on a connection.
    pub(crate) fn offered(&self, connection: u32) -> Vec<(String, String)> {
        let logins =
            self.sent_pdus().filter(|entry| entry.connection == connection && entry.is(Opcode::LoginRequest));
        let data: Vec<u8> = logins.flat_map(|entry| entry.data().iter().copied()).collect();
        pairs_of(&data)
    }

    /// No finding of this row.
    pub(super) fn clean(&self, row: &str) -> RowResult {
        match self.findings.iter().find(|finding| finding.row == row) {
            Some(finding) => fail!("{}", finding.words),
            None => Ok(()),
        }
    }
}

/// The pairs in a text segment.
pub(crate) fn pairs_of(data: &[u8]) -> Vec<(String, String)> {
    let empty = [0; 48];
    let (bhs, ahs, padding) = (iscsi_wire::Bhs::from_bytes(empty), Vec::new(), Vec::new());
    Received { bhs, ahs, data: data.to_vec(), padding, data_digest: None }.text()
}

/// A frame with other text.
pub(super) fn retext(frame: Frame, change: impl FnOnce(&mut Vec<(String, String)>)) -> Frame {
    let mut pairs = pairs_of(frame.data_bytes());
    change(&mut pairs);
    frame.data(text_of(&pairs))
}

/// A target that changes the pairs of its operational login responses.
pub(super) fn answering(mut change: impl FnMut(&mut Vec<(String, String)>) + Send + 'static) -> Behaviour {
    Behaviour::good().every(Opcode::LoginResponse, move |_, frame| {
        vec![crate::evil::Act::Send(reworded(frame, |pairs| change(pairs)))]
    })
}

/// A login response with other text, if it is of the operational stage and does not refuse.
pub(crate) fn reworded(frame: Frame, change: impl FnOnce(&mut Vec<(String, String)>)) -> Frame {
    let bytes = *frame.bhs().as_bytes();
    let operational = bytes[1] >> 2 & 3 == 1 && bytes[36] == 0;
    if operational { retext(frame, change) } else { frame }
}

/// Replaces the value of a key, if the key is there; returns whether it was.
pub(super) fn replace(pairs: &mut [(String, String)], key: &str, value: &str) -> bool {
    match pairs.iter_mut().find(|(name, _)| name == key) {
        Some((_, old)) => {
            value.clone_into(old);
            true
        }
        None => false,
    }
}

/// A NOP-In initiated by the target; numbers are filled in when it is sent.
pub(crate) fn ping(itt: u32, ttt: u32) -> Frame {
    Frame::of(NopIn { lun: Lun(0), itt: Itt(itt), ttt: Ttt(ttt), numbers: ResponseNumbers::default() })
}

/// A part of a row that requires something an initiator may not offer: without it the other part decides the row.
pub(super) fn if_applicable(part: RowResult) -> RowResult {
    match part {
        Err(Stop::NotApplicable(_)) => Ok(()),
        other => other,
    }
}
