//! What a session knows of each logical unit that it watches: which volume it is, and what of its acknowledged writes a loss of
//! its cache would take along.
//!
//! ```text
//!   watch, login, attention ──► Ready ──no attention left──► Name ──the same volume──► Cache ──► Known: commands go out
//!                                 ▲ (TEST UNIT READY)       (VPD 83h) │          (MODE SENSE) │
//!                                 └───────────────an attention────────┼───────────────────────┘
//!                                                                     └──another one──► Other: commands are refused
//! ```
//! * A new session has lost what the target had to say to the old one, and may lead to another target. So each unit is asked
//!   before the first command goes out, and its commands are held until it has answered.
//! * A write that was acknowledged is in the books until a flush that began later has ended well. What takes the cache away
//!   ([`News::CacheLost`]) moves the books to the lost ones: that is an epoch of the unit.
//!
//! Left out: a unit that reports over one connection that it has lost its cache, and over another, earlier, that a flush went well
//! (only without TaskReporting=ResponseFence, and only where the session outlives the loss).

mod effect;
mod identity;
mod lost;
mod written;

use std::time::Duration;

use bytes::Bytes;
use iscsi_core::Time;
use iscsi_core::initiator::command::{Command, Completion, Ending};
use iscsi_core::wire::Lun;
use smallvec::SmallVec;

use self::effect::{Effect, effect};
pub(crate) use self::identity::Identity;
pub use self::lost::{LossCause, LostBlocks, LostWrites};
use self::lost::{Losses, News};
use self::written::{Mark, Written};
use crate::cdb;
use crate::error::{CHECK_CONDITION, GOOD, IoError, RESERVATION_CONFLICT};
use crate::reply::Answer;
use crate::sense::Sense;
use crate::workload::WORKLOAD_BIT;

/// Set in the name of every command that asks a unit; names of other commands never reach it, but for those of a workload.
const PROBE_BIT: u64 = 1 << 62;
/// Most units of a session that are watched; each has books of a few times 8 KiB once it is written to.
const MAX_UNITS: usize = 4096;
/// Attentions that a unit may have before it is believed that they have no end.
const MAX_ATTENTIONS: u32 = 32;
/// Times that a unit which does not answer is asked, and the pause in between.
const MAX_TRIES: u32 = 8;
const PAUSE: Duration = Duration::from_millis(500);
/// Time that an answer may take.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Bytes asked for.
const PAGE_BYTES: u16 = 1024;
const MODE_BYTES: u8 = 64;

/// Whether a command of this name asks a unit.
pub(crate) fn is_probe(user: u64) -> bool {
    user & (WORKLOAD_BIT | PROBE_BIT) == PROBE_BIT
}

/// Where a unit is; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// There is no session, or it does not answer.
    Unasked,
    Ready,
    Name,
    Cache,
    Known,
    Other,
}

struct Unit {
    lun: Lun,
    /// What its probes are called.
    name: u64,
    standing: Standing,
    /// What it was at first.
    identity: Option<Identity>,
    /// What it is now, when that is something else.
    found: Identity,
    /// Writes may be acknowledged while they are in its cache (WCE).
    caches: bool,
    written: Written,
    /// Flushes under way: their commands' names, and when they began.
    flushes: SmallVec<[(u64, Mark); 4]>,
    losses: Losses,
    /// Commands that wait for its answer.
    held: Vec<Command>,
    watchers: Vec<Answer<Result<u64, IoError>>>,
    /// Data of the answer under way.
    data: Vec<u8>,
    tries: u32,
    attentions: u32,
    /// When to ask again.
    again_at: Option<Time>,
    /// It has not said yet what happened before the session began.
    owes: bool,
    /// What it had to say was lost with its session.
    doubtful: bool,
}

/// What there is to do after an answer.
#[derive(Default)]
pub(crate) struct Answered {
    /// To send next.
    pub next: Option<Command>,
    /// Commands that may go out now.
    pub released: Vec<Command>,
    /// The unit whose acknowledged writes were found lost.
    pub lost: Option<Lun>,
    /// Commands of a unit that does not answer.
    pub silent: Vec<Command>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Units {
    /// By LUN, ascending.
    all: Vec<Unit>,
    /// Those that are not [`Standing::Known`].
    unsettled: usize,
    names: u64,
    /// What is owed for commands that ended without being sent.
    unsent: Vec<Unsent>,
}

/// An answer that is owed for a command that ended without being sent. They are given in their order: a function is complete only
/// after the command that it ended.
#[derive(Debug)]
pub(crate) enum Unsent {
    /// The command ended.
    Ended(Completion),
    /// A function of the workload is complete by that.
    Managed(u64),
}

impl Units {
    fn find(&mut self, lun: Lun) -> Option<&mut Unit> {
        let at = self.all.binary_search_by_key(&lun.0, |unit| unit.lun.0).ok()?;
        Some(&mut self.all[at])
    }

    /// Begins to watch a unit: its first question, unless it is watched already or there are too many.
    pub(crate) fn watch(&mut self, lun: Lun) -> Option<Command> {
        let Err(at) = self.all.binary_search_by_key(&lun.0, |unit| unit.lun.0) else { return None };
        if self.all.len() == MAX_UNITS {
            return None;
        }
        self.names += 1;
        let unit = Unit::new(lun, PROBE_BIT | self.names);
        self.all.insert(at, unit);
        self.unsettled += 1;
        Some(self.all[at].ask(Standing::Ready))
    }

    /// Tells `answer` the epoch of the unit once it has said what it is.
    pub(crate) fn when_known(&mut self, lun: Lun, answer: Answer<Result<u64, IoError>>) {
        match self.find(lun) {
            None => answer.give(Err(IoError::Request(format!(
                "a session has at most {MAX_UNITS} logical units: open another one"
            )))),
            Some(unit) if unit.standing == Standing::Known => answer.give(Ok(unit.losses.epoch())),
            Some(unit) if unit.standing == Standing::Other => answer.give(Err(unit.is_other())),
            Some(unit) => unit.watchers.push(answer),
        }
    }

    /// A session is up: every unit is asked before its commands go out. The questions.
    pub(crate) fn session_begins(&mut self) -> Vec<Command> {
        self.unsettled = self.all.len();
        let begin = |unit: &mut Unit| {
            unit.owes = true;
            unit.ask(Standing::Ready)
        };
        self.all.iter_mut().map(begin).collect()
    }

    /// The session is gone; commands that were held for it.
    pub(crate) fn session_ends(&mut self) -> Vec<Command> {
        let mut held = Vec::new();
        self.unsettled = self.all.len();
        for unit in &mut self.all {
            unit.doubtful |= std::mem::take(&mut unit.owes);
            (unit.standing, unit.again_at) = (Standing::Unasked, None);
            held.append(&mut unit.held);
        }
        held
    }

    /// There will be no other session: commands whose end nobody was told.
    pub(crate) fn give_up(&mut self, why: &str) -> Vec<Command> {
        for watcher in self.all.iter_mut().flat_map(|unit| unit.watchers.drain(..)) {
            watcher.give(Err(IoError::SessionLost(why.to_owned())));
        }
        let ended = self.unsent.drain(..).filter_map(|unsent| match unsent {
            Unsent::Ended(completion) => Some(completion.command),
            Unsent::Managed(_) => None,
        });
        ended.collect()
    }

    /// A command is about to go out: gives it back if it may; else it is held, or will be refused.
    #[inline]
    pub(crate) fn admit(&mut self, command: Command) -> Option<Command> {
        if self.unsettled == 0 && !cdb::is_flush(&command.cdb) {
            return Some(command);
        }
        self.look_at(command)
    }

    fn look_at(&mut self, command: Command) -> Option<Command> {
        let Some(unit) = self.find(command.lun).filter(|_| !is_probe(command.user)) else {
            return Some(command);
        };
        match unit.standing {
            Standing::Known => {
                if cdb::is_flush(&command.cdb) {
                    unit.flushes.retain(|(user, _)| *user != command.user);
                    let mark = unit.written.flush_begins();
                    unit.flushes.push((command.user, mark));
                }
                Some(command)
            }
            Standing::Other => {
                self.unsent.push(Unsent::Ended(Completion { command, ending: Ending::OtherVolume }));
                None
            }
            _ => {
                unit.held.push(command);
                None
            }
        }
    }

    /// The answers that are owed for commands that ended without being sent.
    pub(crate) fn take_unsent(&mut self) -> Vec<Unsent> {
        std::mem::take(&mut self.unsent)
    }

    /// ABORT TASK, which the workload calls `function`, ends a command that is held; false: no such one is.
    pub(crate) fn abort_held(&mut self, user: u64, function: u64) -> bool {
        let Some(command) = self.take_held(user) else { return false };
        self.unsent.push(Unsent::Ended(Completion { command, ending: Ending::Aborted }));
        self.unsent.push(Unsent::Managed(function));
        true
    }

    /// Takes a command out that is held, by its name.
    pub(crate) fn take_held(&mut self, user: u64) -> Option<Command> {
        self.all.iter_mut().find_map(|unit| {
            let at = unit.held.iter().position(|command| command.user == user)?;
            Some(unit.held.remove(at))
        })
    }

    /// When there is something to do.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        if !self.unsent.is_empty() {
            return Some(Time::ZERO);
        }
        (self.unsettled > 0).then(|| self.all.iter().filter_map(|unit| unit.again_at).min()).flatten()
    }

    /// The questions that are due.
    pub(crate) fn due(&mut self, now: Time) -> SmallVec<[Command; 1]> {
        if self.unsettled == 0 {
            return SmallVec::new();
        }
        let due = |unit: &&mut Unit| unit.again_at.is_some_and(|at| at <= now);
        self.all.iter_mut().filter(due).map(|unit| unit.ask(unit.standing)).collect()
    }

    /// Keeps the books by how a command of somebody else has ended; the unit whose acknowledged writes are lost by what it says.
    #[inline]
    pub(crate) fn note(&mut self, completion: &Completion) -> Option<Lun> {
        let Completion { command, ending } = completion;
        let Ending::Status { status, sense, .. } = ending else {
            self.flush_ended(command, false);
            return None;
        };
        match *status {
            GOOD => match effect(&command.cdb) {
                Effect::None => {}
                Effect::Writes(blocks) => {
                    if let Some(unit) = self.find(command.lun).filter(|unit| unit.caches) {
                        unit.written.acknowledged(blocks);
                    }
                }
                Effect::Flushes => self.flush_ended(command, true),
            },
            status => {
                self.flush_ended(command, false);
                if status == CHECK_CONDITION {
                    return self.told(command.lun, sense);
                }
            }
        }
        None
    }

    fn flush_ended(&mut self, command: &Command, well: bool) {
        if !cdb::is_flush(&command.cdb) {
            return;
        }
        let Some(unit) = self.find(command.lun) else { return };
        if let Some(at) = unit.flushes.iter().position(|(user, _)| *user == command.user) {
            let (_, mark) = unit.flushes.remove(at);
            if well {
                unit.written.flushed(mark);
            }
        }
    }

    /// A unit has said something with CHECK CONDITION: it, or each, is asked again when the loop looks at the time next.
    fn told(&mut self, lun: Lun, sense: &[u8]) -> Option<Lun> {
        let sense = Sense::parse(sense);
        let news = News::of(&sense);
        if news == News::Nothing {
            return None;
        }
        let lost = self.find(lun).is_some_and(|unit| unit.take_news(&sense));
        let concerned = |unit: &&mut Unit| news == News::LookAtAll || unit.lun == lun;
        for unit in self.all.iter_mut().filter(concerned) {
            self.unsettled += usize::from(unit.standing == Standing::Known);
            if matches!(unit.standing, Standing::Known | Standing::Other) {
                (unit.standing, unit.again_at) = (Standing::Ready, Some(Time::ZERO));
                (unit.tries, unit.attentions) = (0, 0);
            }
        }
        lost.then_some(lun)
    }

    /// Data for a probe.
    pub(crate) fn data_in(&mut self, user: u64, offset: u32, data: &Bytes) {
        if let Some(unit) = self.all.iter_mut().find(|unit| unit.name == user) {
            unit.data.truncate(offset as usize);
            unit.data.extend_from_slice(data);
        }
    }

    /// A probe has ended.
    pub(crate) fn answered(&mut self, now: Time, completion: &Completion) -> Answered {
        let mut answered = Answered::default();
        if let Some(unit) = self.all.iter_mut().find(|unit| unit.name == completion.command.user) {
            unit.answer(now, &completion.ending, &mut answered);
            if unit.standing == Standing::Known {
                self.unsettled -= 1;
            } else if unit.standing == Standing::Other {
                let refused = |command| Unsent::Ended(Completion { command, ending: Ending::OtherVolume });
                self.unsent.extend(unit.held.drain(..).map(refused));
            }
        }
        answered
    }

    /// What a unit has lost last.
    pub(crate) fn last_loss(&mut self, lun: Lun) -> Option<LostBlocks> {
        let losses = &self.find(lun)?.losses;
        losses.since(losses.epoch().checked_sub(1)?)
    }

    /// What a unit has lost since the epoch `since`.
    pub(crate) fn lost_since(&mut self, lun: Lun, since: u64) -> Option<LostBlocks> {
        self.find(lun)?.losses.since(since)
    }

    /// Why commands of a unit are refused.
    pub(crate) fn why_refused(&mut self, lun: Lun) -> Option<IoError> {
        self.find(lun).filter(|unit| unit.standing == Standing::Other).map(|unit| unit.is_other())
    }
}

impl Unit {
    fn new(lun: Lun, name: u64) -> Self {
        Self {
            lun,
            name,
            standing: Standing::Unasked,
            identity: None,
            found: Identity::default(),
            caches: true,
            written: Written::default(),
            flushes: SmallVec::new(),
            losses: Losses::default(),
            held: Vec::new(),
            watchers: Vec::new(),
            data: Vec::new(),
            tries: 0,
            attentions: 0,
            again_at: None,
            owes: false,
            doubtful: false,
        }
    }

    /// The question that leads on from `standing`.
    fn ask(&mut self, standing: Standing) -> Command {
        if self.standing != standing {
            self.tries = 0;
        }
        if standing == Standing::Ready && self.standing != Standing::Ready {
            self.attentions = 0;
        }
        (self.standing, self.again_at) = (standing, None);
        self.data.clear();
        let (cdb, length) = match standing {
            Standing::Name => (cdb::inquiry(Some(0x83), PAGE_BYTES), PAGE_BYTES.into()),
            Standing::Cache => (cdb::caching_page(MODE_BYTES), MODE_BYTES.into()),
            _ => (cdb::test_unit_ready(), 0),
        };
        let mut command = Command::new(self.lun, &cdb);
        (command.user, command.read_length) = (self.name, length);
        (command.timeout, command.idempotent) = (ANSWER_TIME, true);
        command
    }

    /// The answer to the question of the moment.
    fn answer(&mut self, now: Time, ending: &Ending, answered: &mut Answered) {
        let Ending::Status { status, sense, data_in_bytes, .. } = ending else {
            return self.again(now, answered);
        };
        let sense = Sense::parse(sense);
        let good = *status == GOOD;
        match *status {
            CHECK_CONDITION if sense.is_unit_attention() || sense.deferred => {
                if self.take_news(&sense) {
                    answered.lost = Some(self.lun);
                }
                self.attentions += 1;
                if self.attentions < MAX_ATTENTIONS {
                    let attentions = self.attentions;
                    answered.next = Some(self.ask(Standing::Ready));
                    self.attentions = attentions;
                    return;
                }
            }
            CHECK_CONDITION if sense.is_aborted_command() => return self.again(now, answered),
            GOOD | CHECK_CONDITION | RESERVATION_CONFLICT => {}
            _ => return self.again(now, answered),
        }
        self.data.truncate(*data_in_bytes as usize);
        match self.standing {
            Standing::Ready => {
                self.owes = false;
                // The session in which it would have said so was lost first.
                if std::mem::take(&mut self.doubtful) && self.lose(LossCause::Unknown) {
                    answered.lost = Some(self.lun);
                }
                answered.next = Some(self.ask(Standing::Name));
            }
            Standing::Name => {
                let found = if good { Identity::parse(&self.data) } else { Identity::default() };
                if self.identity.get_or_insert_with(|| found.clone()).is_still(&found) {
                    answered.next = Some(self.ask(Standing::Cache));
                    return;
                }
                (self.standing, self.found) = (Standing::Other, found);
                let other = self.is_other();
                tracing::info!(%other, "commands are refused");
                self.watchers.drain(..).for_each(|watcher| watcher.give(Err(other.clone())));
            }
            Standing::Cache => {
                self.caches = !good || cdb::parse_write_cache(&self.data).unwrap_or(true);
                self.standing = Standing::Known;
                answered.released = std::mem::take(&mut self.held);
                let epoch = self.losses.epoch();
                self.watchers.drain(..).for_each(|watcher| watcher.give(Ok(epoch)));
            }
            Standing::Unasked | Standing::Known | Standing::Other => {}
        }
    }

    /// It did not answer: it is asked again, or given up until somebody wants it again.
    fn again(&mut self, now: Time, answered: &mut Answered) {
        self.tries += 1;
        if self.tries < MAX_TRIES {
            self.again_at = Some(now + PAUSE);
            return;
        }
        self.tries = 0;
        self.again_at = Some(now + ANSWER_TIME);
        answered.silent = std::mem::take(&mut self.held);
        let silent = || IoError::Request(format!("LUN {} does not say what it is", self.lun));
        self.watchers.drain(..).for_each(|watcher| watcher.give(Err(silent())));
    }

    /// Takes in what it said; true when acknowledged writes are lost by it.
    fn take_news(&mut self, sense: &Sense) -> bool {
        News::of(sense) == News::CacheLost && self.lose(LossCause::Told(*sense))
    }

    /// Its cache is gone; true when there was something in it.
    fn lose(&mut self, cause: LossCause) -> bool {
        let blocks = self.written.take();
        if blocks.is_empty() {
            return false;
        }
        tracing::info!(lun = %self.lun, %cause, "acknowledged writes are lost");
        self.losses.add(cause, blocks);
        true
    }

    fn is_other(&self) -> IoError {
        let was = self.identity.as_ref().map_or_else(String::new, Identity::to_string);
        IoError::OtherVolume { lun: self.lun, was, is: self.found.to_string() }
    }
}
