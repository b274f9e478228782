//! What a session knows about each logical unit that it watches: which volume it is, and which acknowledged writes a loss of its
//! cache would destroy.
//!
//! ```text
//!   watch, login, attention ──► Ready ──no attention left──► Name ──the same volume──► Cache ──► Known: commands go out
//!                                 ▲ (TEST UNIT READY)       (VPD 83h) │          (MODE SENSE) │
//!                                 └───────────────an attention────────┼───────────────────────┘
//!                                                                     └──another one──► Other: commands are refused
//! ```
//! * A new session has lost what the target had to report to the old one, and may lead to another target. So each unit is probed
//!   before the first command goes out, and its commands are held until it has answered.
//! * An acknowledged write stays in the books until a flush that began after it has succeeded. A loss of the cache
//!   ([`News::CacheLost`]) moves the books to the losses: that starts a new epoch of the unit.
//!
//! Left out: a unit that reports the loss of its cache over one connection, and an earlier successful flush over another (only
//! without TaskReporting=ResponseFence, and only if the session survives the loss).

mod effect;
mod identity;
pub(crate) mod lost;
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
use crate::owner::{PROBE_BIT, is_probe};
use crate::reply::Answer;
use crate::sense::Sense;

/// Most units that one session watches; each has books of a few times 8 KiB once it is written to.
const MAX_UNITS: usize = 4096;
/// Unit attentions in a row after which a unit is assumed to report them endlessly.
const MAX_ATTENTIONS: u32 = 32;
/// How often a unit that does not answer is probed, and the pause in between.
const MAX_TRIES: u32 = 8;
const PAUSE: Duration = Duration::from_millis(500);
/// Time that an answer may take.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Allocation lengths of the probes.
const PAGE_BYTES: u16 = 1024;
const MODE_BYTES: u8 = 64;

/// The state of a unit; see the head of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// There is no session, or the unit does not answer.
    Unasked,
    Ready,
    Name,
    Cache,
    Known,
    Other,
}

struct Unit {
    lun: Lun,
    /// The name of its probes.
    name: u64,
    standing: Standing,
    /// The identity that was found first.
    identity: Option<Identity>,
    /// The current identity, if it is different.
    found: Identity,
    /// Writes may be acknowledged while they are in its cache (WCE).
    caches: bool,
    written: Written,
    /// Outstanding flushes: the names of their commands, and when they began.
    flushes: SmallVec<[(u64, Mark); 4]>,
    losses: Losses,
    /// Commands that wait until the unit has answered.
    held: Vec<Command>,
    watchers: Vec<Answer<Result<u64, IoError>>>,
    /// Data received for the outstanding probe.
    data: Vec<u8>,
    tries: u32,
    attentions: u32,
    /// When to probe again.
    again_at: Option<Time>,
    /// It has not yet reported what happened before the session began.
    owes: bool,
    /// Anything it had to report was lost with its session.
    doubtful: bool,
}

/// What to do after an answer to a probe.
#[derive(Default)]
pub(crate) struct Answered {
    /// The command to send next.
    pub next: Option<Command>,
    /// Commands that may go out now.
    pub released: Vec<Command>,
    /// The unit that was found to have lost acknowledged writes.
    pub lost: Option<Lun>,
    /// Commands of a unit that does not answer.
    pub silent: Vec<Command>,
}

/// See the head of the module.
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

    /// Starts to watch a unit. Returns the first probe, unless the unit is watched already or there are too many.
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

    /// Gives `answer` the epoch of the unit once it has said what it is.
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

    /// A session is established: every unit is probed before its commands go out. Returns the probes.
    pub(crate) fn session_begins(&mut self) -> Vec<Command> {
        self.unsettled = self.all.len();
        let begin = |unit: &mut Unit| {
            unit.owes = true;
            unit.ask(Standing::Ready)
        };
        self.all.iter_mut().map(begin).collect()
    }

    /// The session has ended. Returns the commands that were held.
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

    /// There will be no other session. Returns the commands whose end was not yet reported.
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

    /// A command is about to go out: returns it if it may; otherwise it is held, or will be refused.
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

    /// ABORT TASK, which the workload calls `function`, ends a command that is held; false if there is no such command.
    pub(crate) fn abort_held(&mut self, user: u64, function: u64) -> bool {
        let Some(command) = self.take_held(user) else { return false };
        self.unsent.push(Unsent::Ended(Completion { command, ending: Ending::Aborted }));
        self.unsent.push(Unsent::Managed(function));
        true
    }

    /// Removes a held command, by its name.
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

    /// The probes that are due.
    pub(crate) fn due(&mut self, now: Time) -> SmallVec<[Command; 1]> {
        if self.unsettled == 0 {
            return SmallVec::new();
        }
        let due = |unit: &&mut Unit| unit.again_at.is_some_and(|at| at <= now);
        self.all.iter_mut().filter(due).map(|unit| unit.ask(unit.standing)).collect()
    }

    /// Updates the books after a command other than a probe has ended. Returns the unit if the command's status reports a loss of
    /// acknowledged writes.
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

    /// A unit has reported something with CHECK CONDITION: this unit, or every unit, is probed again in the next round of the
    /// loop.
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

    /// Data for a probe, in any order. The session has checked that it is within the length that the probe requested.
    pub(crate) fn data_in(&mut self, user: u64, offset: u32, data: &Bytes) {
        if let Some(unit) = self.all.iter_mut().find(|unit| unit.name == user) {
            let (from, to) = (offset as usize, offset as usize + data.len());
            if unit.data.len() < to {
                unit.data.resize(to, 0);
            }
            unit.data[from..to].copy_from_slice(data);
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

    /// The most recent loss of a unit.
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

    /// The probe for the state `standing`.
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

    /// Handles the answer to the outstanding probe.
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
                // The session in which it would have reported the loss was itself lost first.
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

    /// There was no answer: the unit is probed again, or left alone until a command needs it.
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

    /// Processes a report; true when acknowledged writes are lost by it.
    fn take_news(&mut self, sense: &Sense) -> bool {
        News::of(sense) == News::CacheLost && self.lose(LossCause::Told(*sense))
    }

    /// Its cache is lost; true when there was something in it.
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
