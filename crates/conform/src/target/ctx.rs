//! The tools of a row's script: connections, logins, and the part of the medium that it may write.

use super::Options;
use crate::link::{Dial, DialTcp};
use crate::transcript::{Side, Transcript};
use crate::{ChapScript, Command, Finding, Frame, LoginScript, PeerError, RawPeer, Session, Stop};
use iscsi_wire::{LoginStatus, LogoutReason, Lun, TextRequest, Ttt, keys};

/// The part of the medium that may be written without `destructive`.
const SCRATCH_BYTES: u64 = 1 << 20;

/// How many times, and at what interval, to retry a target that has gone away.
const RESTART_TRIES: u32 = 20;
const RESTART_PAUSE: std::time::Duration = std::time::Duration::from_millis(250);

/// Where a script may write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scratch {
    /// First block.
    pub lba: u64,
    /// Number of blocks.
    pub blocks: u32,
    /// Bytes per block.
    pub block_size: u32,
}

impl Scratch {
    /// Its length in bytes.
    pub fn bytes(&self) -> usize {
        self.blocks as usize * self.block_size as usize
    }
}

/// A broken rule that was noticed along the way.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) during: &'static str,
    pub(super) finding: Finding,
    pub(super) transcript: String,
}

/// The tools of a row's script.
pub struct Ctx {
    options: Options,
    dial: Box<dyn Dial>,
    only_usual: bool,
    target: String,
    lun: Lun,
    scratch: Scratch,
    capacity_blocks: u64,
    discovery_chap: Option<ChapScript>,
    transcript: Transcript,
    row: &'static str,
    seen: Vec<Seen>,
    shared: std::rc::Rc<std::cell::RefCell<Vec<Finding>>>,
}

/// A session of a row: its findings go to the context when it ends.
pub struct RowSession {
    inner: Option<Session>,
    shared: std::rc::Rc<std::cell::RefCell<Vec<Finding>>>,
}

impl std::ops::Deref for RowSession {
    type Target = Session;
    #[allow(clippy::expect_used, reason = "only drop and into_inner take it")]
    fn deref(&self) -> &Session {
        self.inner.as_ref().expect("present until dropped")
    }
}

impl std::ops::DerefMut for RowSession {
    #[allow(clippy::expect_used, reason = "only drop and into_inner take it")]
    fn deref_mut(&mut self) -> &mut Session {
        self.inner.as_mut().expect("present until dropped")
    }
}

impl RowSession {
    /// Closes the session with a logout.
    pub fn log_out(mut self) -> Result<(), PeerError> {
        match self.inner.take() {
            Some(session) => {
                self.shared.borrow_mut().extend(session.peer.ledger.findings.iter().cloned());
                session.log_out()
            }
            None => Ok(()),
        }
    }
}

impl RowSession {
    /// Ends the connection without a logout: what happens to the session is up to the target.
    pub fn abandon(mut self) {
        self.take_findings();
        self.inner = None;
    }

    /// Resets the connection: what happens to the session is up to the target.
    pub fn reset(mut self) {
        self.take_findings();
        if let Some(session) = self.inner.take() {
            session.peer.reset();
        }
    }

    fn take_findings(&mut self) {
        if let Some(session) = &self.inner {
            self.shared.borrow_mut().extend(session.peer.ledger.findings.iter().cloned());
        }
    }
}

impl Drop for RowSession {
    fn drop(&mut self) {
        self.take_findings();
        // The target need not keep a session that will not be resumed for its Time2Retain. The answer is not
        // awaited.
        if let Some(session) = &mut self.inner {
            let request = session.logout_request(LogoutReason::CloseSession);
            let _ = session.peer.send(&Frame::of(request).remark("the row is over"));
        }
    }
}

impl Ctx {
    /// Finds target, logical unit and scratch area. An error says what failed.
    pub fn new(options: Options) -> Result<Self, String> {
        let dial = DialTcp { host: options.host.clone(), port: options.port };
        Self::over(Box::new(dial), options)
    }

    /// As [`Ctx::new`], with connections of another kind; host and port of the options are only shown.
    pub fn over(dial: Box<dyn Dial>, options: Options) -> Result<Self, String> {
        let mut ctx = Ctx {
            target: options.target.clone().unwrap_or_default(),
            lun: Lun::from_index(options.lun.unwrap_or(0)),
            scratch: Scratch::default(),
            capacity_blocks: 0,
            discovery_chap: None,
            transcript: Transcript::new(),
            row: "preparation",
            seen: Vec::new(),
            shared: Default::default(),
            options,
            dial,
            only_usual: false,
        };
        ctx.prepare().map_err(|stop| {
            let (Stop::Fail(why) | Stop::NotApplicable(why)) = stop;
            match ctx.options.verbose_transcripts {
                true => format!("preparing: {why}\n{}", ctx.transcript).trim_end().to_owned(),
                false => format!("preparing: {why}"),
            }
        })?;
        ctx.shared.borrow_mut().clear();
        Ok(ctx)
    }

    fn prepare(&mut self) -> Result<(), Stop> {
        self.find_discovery_authentication();
        if self.target.is_empty() {
            self.target = self.discover()?;
        }
        let mut session = self.session()?;
        if self.options.lun.is_none() {
            self.lun = first_disk(&mut session)?;
            session.lun = self.lun;
            session.clear_unit_attentions()?;
        }
        let outcome = session.run_good(&Command::read_capacity_16())?;
        let (Some(last), Some(size)) = (outcome.data.first_chunk::<8>(), outcome.data.get(8..12)) else {
            return Err(Stop::Fail("READ CAPACITY (16) returned too little".to_owned()));
        };
        let blocks = u64::from_be_bytes(*last).saturating_add(1);
        let block_size = size.iter().fold(0u32, |all, byte| all << 8 | u32::from(*byte));
        if !(512..=65_536).contains(&block_size) {
            return Err(Stop::Fail(format!("a block size of {block_size} bytes")));
        }
        let size = blocks.saturating_mul(block_size.into());
        let scratch_bytes =
            if self.options.destructive { size.min(1 << 26) } else { size.min(SCRATCH_BYTES) };
        if scratch_bytes < 1 << 17 {
            return Err(Stop::Fail(format!("the logical unit has {size} bytes; 128 KiB are needed")));
        }
        let count = scratch_bytes / u64::from(block_size);
        self.capacity_blocks = blocks;
        self.scratch = Scratch { lba: blocks - count, blocks: count as u32, block_size };
        Ok(())
    }

    /// Discovery may be authenticated differently from the target: mutually, one way, or not.
    fn find_discovery_authentication(&mut self) {
        let mutual = self.chap();
        let one_way = mutual.clone().map(|chap| ChapScript { target: None, ..chap });
        for wish in [mutual, one_way, None] {
            self.discovery_chap = wish;
            if self.session_of(self.discovery_script()).is_ok() {
                return;
            }
        }
        self.discovery_chap = self.chap();
    }

    fn discover(&mut self) -> Result<String, Stop> {
        let mut session = self.session_of(self.discovery_script())?;
        let text = crate::text_of(&[(keys::SEND_TARGETS, "All")]);
        let pairs = exchange_text(&mut session, &text)?;
        let found = pairs.into_iter().find(|(key, _)| key == keys::TARGET_NAME);
        found.map(|(_, name)| name).ok_or_else(|| Stop::Fail("discovery shows no target".to_owned()))
    }

    pub(super) fn begin(&mut self, row: &'static str) {
        self.row = row;
        self.transcript.clear();
        self.shared.borrow_mut().clear();
    }

    pub(super) fn end(&mut self) {
        for finding in self.shared.borrow_mut().drain(..) {
            if self.seen.iter().any(|seen| seen.finding.row == finding.row) {
                continue;
            }
            self.seen.push(Seen { during: self.row, finding, transcript: self.transcript.to_string() });
        }
    }

    /// Broken rules of any row that were noticed along the way, once.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        self.seen.drain(..).map(|seen| seen.finding).collect()
    }

    pub(super) fn findings(&self) -> &[Seen] {
        &self.seen
    }

    pub(super) fn describe(&self) -> String {
        let (host, port) = (&self.options.host, self.options.port);
        match host.contains(':') {
            true => format!("iscsi://[{host}]:{port}/{}/{}", self.target, self.lun),
            false => format!("iscsi://{host}:{port}/{}/{}", self.target, self.lun),
        }
    }

    /// Does the target accept a connection? Not recorded in the transcript.
    pub(super) fn reachable(&self) -> bool {
        self.dial.dial(self.options.timeout).is_ok()
    }

    /// Waits for a target that may be restarting.
    pub(super) fn wait_reachable(&self) -> bool {
        for _ in 0..RESTART_TRIES {
            std::thread::sleep(RESTART_PAUSE);
            if self.reachable() && self.session().is_ok() {
                self.shared.borrow_mut().clear();
                return true;
            }
        }
        false
    }

    /// The options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Accept nothing that a row in text has after `else`: the target is known to do what comes before.
    pub fn accept_nothing_else(&mut self) {
        self.only_usual = true;
    }

    pub(crate) fn only_usual(&self) -> bool {
        self.only_usual
    }

    /// Broken rules that were noticed since the row began.
    pub(crate) fn finding_of(&self, row: &str) -> Option<String> {
        let found = self.shared.borrow();
        found.iter().find(|finding| finding.row == row).map(|finding| finding.words.clone())
    }

    /// The transcript of the row.
    pub fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// TargetName.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The logical unit under test.
    pub fn lun(&self) -> Lun {
        self.lun
    }

    /// The area that a script may write.
    pub fn scratch(&self) -> Scratch {
        self.scratch
    }

    /// Blocks of the logical unit.
    pub fn capacity_blocks(&self) -> u64 {
        self.capacity_blocks
    }

    /// A connection without a login.
    pub fn connect(&self) -> Result<RawPeer, PeerError> {
        let link = self.dial.dial(self.options.timeout)?;
        Ok(RawPeer::over(link, Side::Initiator, self.options.timeout, &self.transcript))
    }

    /// A login script for the target, with credentials if there are any.
    pub fn script(&self) -> LoginScript {
        let mut script = LoginScript::new(&self.options.initiator_name, Some(&self.target));
        script.chap = self.chap();
        self.with_digests(script)
    }

    fn with_digests(&self, script: LoginScript) -> LoginScript {
        if !self.options.digests {
            return script;
        }
        script.key(keys::HEADER_DIGEST, "CRC32C,None").key(keys::DATA_DIGEST, "CRC32C,None")
    }

    /// A login script for a discovery session.
    pub fn discovery_script(&self) -> LoginScript {
        let mut script = LoginScript::new(&self.options.initiator_name, None);
        script.chap = self.discovery_chap.clone();
        self.with_digests(script)
    }

    /// The credentials in the form used by a script.
    pub fn chap(&self) -> Option<ChapScript> {
        let own = self.options.chap.as_ref()?;
        let target = self.options.target_chap.as_ref();
        Some(ChapScript {
            user: own.name.clone(),
            secret: own.secret.clone(),
            algorithms: "5".to_owned(),
            target: target.map(|theirs| (theirs.name.clone(), theirs.secret.clone())),
        })
    }

    /// A session with the default script, unit attentions cleared.
    pub fn session(&self) -> Result<RowSession, Stop> {
        let mut session = self.session_of(self.script())?;
        session.clear_unit_attentions()?;
        Ok(session)
    }

    /// A session with a modified script, otherwise like [`Ctx::session`].
    pub fn session_with(&self, change: impl FnOnce(LoginScript) -> LoginScript) -> Result<RowSession, Stop> {
        let mut session = self.session_of(change(self.script()))?;
        session.clear_unit_attentions()?;
        Ok(session)
    }

    /// A session with this script; nothing is sent after the login.
    pub fn session_of(&self, script: LoginScript) -> Result<RowSession, Stop> {
        let result = Session::log_in(self.connect()?, script, self.lun);
        let session = result.map_err(|error| match error {
            PeerError::Login(LoginStatus::AuthenticationFailure) if self.options.chap.is_none() => {
                Stop::NotApplicable("the target wants authentication; give CHAP credentials".to_owned())
            }
            error => Stop::Fail(error.to_string()),
        })?;
        Ok(self.adopt(session))
    }

    /// Adds a session to the row: its findings count.
    pub(super) fn adopt(&self, session: Session) -> RowSession {
        RowSession { inner: Some(session), shared: self.shared.clone() }
    }

    /// A finding made by the script itself.
    pub fn find(&self, row: &'static str, words: impl Into<String>) {
        self.shared.borrow_mut().push(Finding { row, words: words.into() });
    }
}

/// One complete text exchange. Returns the pairs of all its responses.
pub(super) fn exchange_text(session: &mut Session, text: &[u8]) -> Result<Vec<(String, String)>, PeerError> {
    let itt = session.itt();
    let mut request = TextRequest {
        immediate: true,
        final_bit: true,
        continue_bit: false,
        lun: Lun(0),
        itt,
        ttt: Ttt::RESERVED,
        cmd_sn: session.cmd_sn,
        exp_stat_sn: session.peer.ledger.exp_stat_sn(),
    };
    session.peer.send(&Frame::of(request).data(text))?;
    let mut all = Vec::new();
    for _ in 0..10_000 {
        let rx = session.next_for(itt)?;
        let response = iscsi_wire::TextResponse::parse(&rx.bhs)?;
        all.extend_from_slice(&rx.data);
        if response.final_bit {
            return Ok(crate::Received { data: all, ..rx }.text());
        }
        (request.ttt, request.lun) = (response.ttt, response.lun);
        request.exp_stat_sn = session.peer.ledger.exp_stat_sn();
        session.peer.send(&Frame::of(request))?;
    }
    Err(PeerError::Unexpected { wanted: "an end of the text".to_owned(), got: "no end".to_owned() })
}

/// The first logical unit that identifies itself as a disk.
fn first_disk(session: &mut Session) -> Result<Lun, Stop> {
    let list = session.run_good(&Command::report_luns(4096, 4096))?.data;
    let length = list.first_chunk::<4>().map_or(0, |bytes| u32::from_be_bytes(*bytes)) as usize;
    for entry in list.get(8..list.len().min(8 + length)).unwrap_or_default().chunks_exact(8) {
        let lun = Lun(entry.iter().fold(0u64, |all, byte| all << 8 | u64::from(*byte)));
        let outcome = session.run(&Command::inquiry(36, 36).lun(lun))?;
        if outcome.is_good() && outcome.data.first() == Some(&0) {
            return Ok(lun);
        }
    }
    Err(Stop::Fail("REPORT LUNS shows no disk".to_owned()))
}
