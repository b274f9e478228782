//! One run: builds what a [`Plan`] says, lets time pass from event to event, and judges.
//!
//! ```text
//!   Working ──all loads over──► Leaving (logged out) ──no session, no connection──► Over
//!      └───────────── longer than anything allows ─────────────► broken: a command never ended
//! ```

use std::sync::Arc;

use blockstore::{
    BlockStore, Fault as StoreFault, FaultError, FaultHandle, FaultRule, FaultStore, Op, OpSet,
};
use fastrand::Rng;
use initiator::{RecoveryCounters, TuningInfo};
use iscsi_core::Time;

use crate::hosts::{Running, Serving};
use crate::intruder::Intruder;
use crate::load::Load;
use crate::network::{Live, Network, Side};
use crate::oracle::Oracle;
use crate::plan::{Fault, Plan, SECOND, TARGET, host};
use crate::sabotage::Sabotage;
use crate::store::{BLOCK_BYTES, SimStore};
use crate::verdict::Verdict;
use crate::watch::Watch;
use crate::world::{Nanos, SimPlatform, World};

/// After the last fault, everything must end within this virtual time: twice the time that an initiator waits for a
/// session to come back, plus the time that the commands need.
const PATIENCE_NS: Nanos = 900 * SECOND;
/// After the logouts, all sessions and connections must be gone after this time: the target's pings find those that
/// hang.
const AFTERMATH_NS: Nanos = 120 * SECOND;
/// So many steps without progress of the clock mean that a process is spinning.
const MAX_STEPS_AT_ONCE: u32 = 200_000;
/// Number of the intruder's host.
const INTRUDER: u8 = 200;
/// How long the LUN has another volume, nanoseconds.
const OTHER_NS: Nanos = 3 * SECOND;
/// Names of the volume and of the other volume.
const NAMES: [&str; 2] = ["sim", "other"];

/// Lost sessions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Losses {
    /// Sessions that were lost and recovered.
    pub recoveries: u64,
    /// Initiators whose session did not come back.
    pub gave_up: u64,
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// The invariant that did not hold, if any.
    pub broken: Option<String>,
    /// The transcript, if requested.
    pub transcript: Vec<String>,
    /// Virtual time simulated, nanoseconds.
    pub virtual_ns: Nanos,
    /// PDUs sent.
    pub pdus: u64,
    /// Bits flipped.
    pub flips: u64,
    /// Operations that succeeded, operations that were given up, and bytes transferred.
    pub done: u64,
    /// See `done`.
    pub failed: u64,
    /// See `done`.
    pub bytes: u64,
    /// Lost sessions.
    pub losses: Losses,
    /// A checksum over everything that was sent: the same seed always gives the same one.
    pub sum: u64,
    /// Time from the first to the last operation, by initiator, nanoseconds.
    pub busy_ns: Vec<Nanos>,
}

/// How the first initiator of a run worked.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// The progress of its transfer; see [`crate::load::Measuring`].
    pub trace: Vec<(Time, u64)>,
    /// What its session did, if it chooses the number of its connections itself.
    pub tuning: Option<TuningInfo>,
    /// What its session recovered from.
    pub recovery: RecoveryCounters,
}

enum Action {
    Fault(Fault),
    StartTarget { power: bool, other: bool },
    MendStore,
    OpenAgain(usize),
    Intrude,
}

/// See the module.
pub struct Run {
    plan: Plan,
    world: Arc<World>,
    verdict: Verdict,
    oracle: Oracle,
    store: SimStore,
    disk: Arc<dyn BlockStore>,
    faults: FaultHandle,
    /// The volume behind the LUN while it is another one.
    other: SimStore,
    target: Option<Serving>,
    initiators: Vec<Running>,
    intruder: Option<Intruder>,
    actions: Vec<Option<Action>>,
    owners: usize,
    rng: Rng,
    sabotage: Sabotage,
    last_trouble: Nanos,
}

impl Run {
    /// Builds what the plan says. `transcript`: whether to record a transcript.
    pub fn new(plan: Plan, transcript: bool, sabotage: Sabotage) -> Self {
        let verdict = Verdict::default();
        let watch = Watch::new(verdict.clone(), transcript, [host(INTRUDER)]);
        let mut network = Network::default();
        for (n, initiator) in plan.initiators.iter().enumerate() {
            network.add_path(host(n as u8 + 1), initiator.path);
        }
        network.add_path(host(INTRUDER), Default::default());
        let world = World::new(plan.seed, plan.latencies, network, watch);
        let store = SimStore::new(plan.blocks as usize, plan.placement);
        let (disk, faults) = FaultStore::new(store.clone());
        let mut run = Self {
            oracle: Oracle::new(plan.blocks as usize, verdict.clone()),
            rng: Rng::with_seed(plan.seed.rotate_left(17) ^ 0x0bad_cafe),
            world,
            verdict,
            store,
            disk: Arc::new(disk),
            faults,
            other: SimStore::new(plan.blocks as usize, plan.placement),
            target: None,
            initiators: Vec::new(),
            intruder: None,
            actions: Vec::new(),
            owners: 0,
            sabotage,
            last_trouble: plan.last_fault(),
            plan,
        };
        run.sabotage_store();
        run.start_target(false);
        for n in 0..run.plan.initiators.len() {
            run.open(n);
        }
        for (at, fault) in run.plan.faults.clone() {
            run.act_at(at, Action::Fault(fault));
        }
        for _ in 0..run.plan.intrusions {
            let at = run.rng.u64(0..=run.last_trouble.max(SECOND / 10));
            run.act_at(at, Action::Intrude);
        }
        run
    }

    fn act_at(&mut self, at: Nanos, action: Action) {
        self.actions.push(Some(action));
        self.world.plan(at, self.actions.len() - 1);
    }

    fn sabotage_store(&mut self) {
        let rule = match self.sabotage {
            Sabotage::LostWrite => FaultRule::new(Op::Write, StoreFault::Lost).nth(3),
            Sabotage::DeadStore => FaultRule::new(Op::Write, StoreFault::Error(FaultError::Medium)),
            Sabotage::LostFlush => FaultRule::new(Op::Flush, StoreFault::Lost),
            Sabotage::RottenByte => FaultRule::new(Op::Read, StoreFault::BitFlip { offset: 40, mask: 4 }),
            _ => return,
        };
        self.faults.arm(rule);
    }

    fn next_owner(&mut self) -> usize {
        self.owners += 1;
        self.owners
    }

    /// Starts the target with its volume, or with the other one.
    fn start_target(&mut self, other: bool) {
        let owner = self.next_owner();
        let disk: Arc<dyn BlockStore> =
            if other { Arc::new(self.other.clone()) } else { Arc::clone(&self.disk) };
        let name = NAMES[usize::from(other && self.sabotage != Sabotage::SameName)];
        match Serving::start(&self.world, owner, &self.plan, self.sabotage, &disk, name) {
            Ok(serving) => self.target = Some(serving),
            Err(what) => self.verdict.broken(what),
        }
    }

    fn open(&mut self, n: usize) {
        let owner = self.next_owner();
        let rng = self.rng.fork();
        let plan = &self.plan.initiators[n];
        let (load, progress) = Load::new(plan.load.clone(), self.oracle.clone(), rng);
        let mut load = load.measured(plan.measuring);
        match self.sabotage {
            Sabotage::Resubmission => load = load.resubmitting(),
            Sabotage::UntoldLoss => load = load.deaf(),
            _ => {}
        }
        let wrong = plan.chap.wrong_first && self.initiators.get(n).is_none() && !self.plan.chap.is_empty();
        let load = Box::new(load);
        match Running::start(&self.world, owner, n as u8 + 1, &self.plan, wrong, load, progress) {
            Ok(running) => match self.initiators.get_mut(n) {
                Some(old) => *old = running,
                None => self.initiators.push(running),
            },
            Err(what) => self.verdict.broken(what),
        }
    }

    /// Runs to the end.
    pub fn finish(self) -> Report {
        self.finish_with_course().0
    }

    /// Runs to the end, and tells how the first initiator worked.
    pub fn finish_with_course(mut self) -> (Report, Course) {
        self.work();
        let mut state = self.world.state.lock();
        let mut report = Report {
            seed: self.plan.seed,
            broken: self.verdict.first(),
            transcript: state.watch.take_transcript(),
            virtual_ns: self.world.now(),
            pdus: state.watch.pdus,
            flips: state.watch.flips,
            sum: state.watch.sum,
            ..Report::default()
        };
        drop(state);
        let course = self.initiators.first().map(|first| Course {
            trace: std::mem::take(&mut first.progress.lock().trace),
            tuning: first.session.info().tuning(),
            recovery: first.session.info().recovery,
        });
        for initiator in &self.initiators {
            let progress = initiator.progress.lock().clone();
            report.done += progress.done;
            report.failed += progress.failed;
            report.bytes += progress.bytes;
            report.losses.gave_up += u64::from(progress.lost.is_some());
            report.losses.recoveries += initiator.session.info().losses;
            report.busy_ns.push((progress.last.as_nanos() as u64).saturating_sub(initiator.began));
        }
        if report.broken.is_none() && report.failed > 0 && self.plan.has_time() {
            report.broken =
                Some("operations were given up although there was time for all of them".to_owned());
        }
        (report, course.unwrap_or_default())
    }

    fn work(&mut self) {
        let mut leaving_since = None;
        let mut at_once = 0;
        loop {
            if self.verdict.is_broken() {
                return;
            }
            at_once += 1;
            if at_once > MAX_STEPS_AT_ONCE {
                return self.verdict.broken("somebody spins: time does not pass");
            }
            if self.turn_all() {
                continue;
            }
            if let Some(planned) = self.world.step() {
                if let Some(action) = planned.and_then(|index| self.actions[index].take()) {
                    self.act(action);
                }
                continue;
            }
            at_once = 0;
            let now = self.world.now();
            if leaving_since.is_none() && now >= self.last_trouble && self.loads_are_over() {
                for initiator in &mut self.initiators {
                    initiator.session.log_out();
                }
                leaving_since = Some(now);
                continue;
            }
            if leaving_since.is_some() && self.nobody_is_left() {
                self.check_other();
                return self.oracle.check_medium(&self.store);
            }
            // Once all initiators are gone, nothing may happen until the last fault; then time jumps there.
            let rest = (now < self.last_trouble).then_some(self.last_trouble);
            let Some(next) = self.next_moment().into_iter().chain(rest).min() else {
                return self.verdict.broken("nothing will ever happen again, and not everything has ended");
            };
            let limit = leaving_since.map_or(self.last_trouble + PATIENCE_NS, |since| since + AFTERMATH_NS);
            if next > limit {
                return self.never_ended(leaving_since.is_some());
            }
            self.world.advance(next.max(now));
        }
    }

    /// Checks that nothing was written to the other volume.
    fn check_other(&self) {
        if let Some(lba) = (0..self.plan.blocks).find(|lba| self.other.peek(*lba) != [0; BLOCK_BYTES]) {
            self.verdict.broken(format!("a write went to another volume: its block {lba} is not zeros"));
        }
    }

    fn never_ended(&mut self, leaving: bool) {
        let mut what = match leaving {
            true => "sessions or connections are left after all have logged out:".to_owned(),
            false => "commands never ended:".to_owned(),
        };
        for (n, initiator) in self.initiators.iter().enumerate() {
            let progress = initiator.progress.lock();
            what += &format!(" I{} has {} under way,", n + 1, progress.outstanding);
        }
        if let Some(Serving { target, .. }) = &mut self.target {
            let (sessions, connections) = (target.sessions().len(), target.connections());
            what += &format!(" the target has {sessions} sessions and {connections} connections");
        }
        self.verdict.broken(what);
    }

    /// Gives a turn to every process that has noticed something or whose deadline has come.
    fn turn_all(&mut self) -> bool {
        if !self.world.take_any_noticed() && self.next_deadline() > self.world.now() {
            return false;
        }
        let mut any = false;
        if let Some(serving) = &mut self.target {
            any = serving.turn(&self.world, &self.verdict);
        }
        for n in 0..self.initiators.len() {
            if self.initiators[n].turn(&self.world) {
                any = true;
                self.after_turn(n);
            }
        }
        if let Some(intruder) = &mut self.intruder
            && self.world.take_noticed(intruder.driver())
        {
            any = true;
            intruder.turn();
            if !self.plan.chap.is_empty() && self.target.as_mut().is_some_and(|t| t.serves(host(INTRUDER))) {
                self.verdict.broken("the intruder has a session, and has proved nothing");
            }
        }
        any
    }

    fn after_turn(&mut self, n: usize) {
        let initiator = &mut self.initiators[n];
        if initiator.opened {
            return;
        }
        match initiator.session.opening() {
            None => {}
            Some(Ok(_)) if initiator.wrong_secret => {
                self.verdict.broken(format!("I{} has logged in with a wrong secret", n + 1));
            }
            Some(Ok(_)) => initiator.opened = true,
            Some(Err(error)) => {
                let at = self.world.now() + SECOND;
                self.world
                    .state
                    .lock()
                    .watch
                    .note(at - SECOND, || format!("-- I{} could not log in: {error}", n + 1));
                self.act_at(at, Action::OpenAgain(n));
            }
        }
    }

    fn loads_are_over(&self) -> bool {
        self.initiators.iter().all(|initiator| {
            let progress = initiator.progress.lock();
            initiator.gone || initiator.opened && (progress.finished || progress.lost.is_some())
        }) && self.target.is_some()
    }

    fn nobody_is_left(&mut self) -> bool {
        let Some(Serving { target, .. }) = &mut self.target else { return false };
        target.connections() == 0 && target.sessions().is_empty()
    }

    /// The earliest deadline of a process.
    fn next_deadline(&self) -> Nanos {
        let initiators = self.initiators.iter().map(Running::deadline);
        initiators.chain(self.target.iter().map(Serving::deadline)).min().unwrap_or(Nanos::MAX)
    }

    fn next_moment(&self) -> Option<Nanos> {
        let deadline = Some(self.next_deadline()).filter(|at| *at != Nanos::MAX);
        deadline.into_iter().chain(self.world.next_event()).min()
    }

    fn live(&self, which: u32) -> Option<Live> {
        let live = self.world.state.lock().network.live();
        let live: Vec<Live> = live.into_iter().filter(|live| live.from != host(INTRUDER)).collect();
        (!live.is_empty()).then(|| live[which as usize % live.len()])
    }

    fn note(&self, line: impl FnOnce() -> String) {
        let now = self.world.now();
        self.world.state.lock().watch.note(now, line);
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Fault(fault) => self.fault(fault),
            Action::StartTarget { power, other } => {
                if power {
                    self.store.cut_power(&mut self.rng);
                    self.oracle.power_cut(&self.store);
                }
                let with = if other { ", with another volume" } else { "" };
                self.note(|| format!("!! the target starts again{with}"));
                self.start_target(other);
            }
            Action::MendStore => {
                self.faults.clear();
                self.sabotage_store();
                self.note(|| "!! the store is well again".to_owned());
            }
            Action::OpenAgain(n) if self.initiators[n].gone => {}
            Action::OpenAgain(n) => self.open(n),
            Action::Intrude => self.intrude(),
        }
    }

    fn intrude(&mut self) {
        if self.intruder.is_none() {
            let owner = self.next_owner();
            let platform = SimPlatform::new(&self.world, host(INTRUDER), owner);
            self.intruder = Intruder::new(&platform, self.rng.fork()).ok();
        }
        if let Some(intruder) = &mut self.intruder {
            intruder.connect(TARGET);
        }
    }

    fn fault(&mut self, fault: Fault) {
        let now = self.world.now();
        match fault {
            Fault::Reset { which, only } => self.reset(which, only),
            Fault::Hang { which, only, for_ns } => self.hang(which, only, for_ns),
            Fault::Flip { which, side, part } => {
                let Some(live) = self.live(which) else { return };
                let mut state = self.world.state.lock();
                match self.sabotage == Sabotage::FlipWithoutDigest {
                    true => state.watch.flip_blindly(live.conn, Side(side)),
                    false => state.watch.flip_next(live.conn, Side(side), part),
                }
            }
            Fault::Loss { which, ppm } => {
                let n = which as usize % self.plan.initiators.len();
                self.note(|| format!("!! the path of I{} loses {ppm} of a million", n + 1));
                self.world.state.lock().network.set_loss(host(n as u8 + 1), ppm);
            }
            Fault::StoreErrors { times, writes, torn } => self.fail_store(times, writes, torn),
            Fault::Vanish { which } => self.vanish(which),
            Fault::StoreHang { for_ns } => {
                self.note(|| format!("!! the store hangs for {} ms", for_ns / 1_000_000));
                self.world.state.lock().store_hangs_until = now + for_ns;
                self.last_trouble = self.last_trouble.max(now + for_ns);
            }
            Fault::Restart { down_ns, power, silent, other } => self.restart(down_ns, power, silent, other),
        }
    }

    /// A connection is reset at one end or both.
    fn reset(&mut self, which: u32, only: Option<usize>) {
        let Some(live) = self.live(which) else { return };
        let whom = only.map_or("both ends", |side| if side == 0 { "the initiator" } else { "the target" });
        self.note(|| format!("!! connection {} of {} is reset for {whom}", live.conn, live.from));
        let sides: &[Side] = match only {
            Some(0) => &[Side(0)],
            Some(_) => &[Side(1)],
            None => &[Side(0), Side(1)],
        };
        self.world.state.lock().cut(live.conn, sides);
    }

    /// Nothing passes along a connection for a while, in one direction or both.
    fn hang(&mut self, which: u32, only: Option<usize>, for_ns: Nanos) {
        let Some(live) = self.live(which) else { return };
        let way = only.map_or("in both directions", |side| {
            if side == 0 { "towards the target" } else { "towards the initiator" }
        });
        let ms = for_ns / 1_000_000;
        self.note(|| format!("!! connection {} of {} hangs {way} for {ms} ms", live.conn, live.from));
        let until = self.world.now() + for_ns;
        let mut state = self.world.state.lock();
        for side in [Side(0), Side(1)] {
            if only.is_none_or(|only| only == side.0) {
                state.freeze(live.conn, side, until);
            }
        }
    }

    /// Operations of the store fail for a second.
    fn fail_store(&mut self, times: u64, writes: bool, torn: bool) {
        let op = if writes { Op::Write } else { Op::Read };
        self.note(|| format!("!! the next {times} of the store's {op}s fail"));
        let fault = match torn {
            true => StoreFault::Torn { keep_bytes: self.rng.u64(0..16) * BLOCK_BYTES as u64 },
            false => StoreFault::Error(FaultError::Medium),
        };
        self.faults.arm(FaultRule { times: Some(times), ..FaultRule::new(OpSet::from(op), fault) });
        self.act_at(self.world.now() + SECOND, Action::MendStore);
    }

    /// An initiator is gone without a word.
    fn vanish(&mut self, which: u32) {
        let n = which as usize % self.initiators.len();
        let initiator = &mut self.initiators[n];
        if std::mem::replace(&mut initiator.gone, true) {
            return;
        }
        let under_way = initiator.progress.lock().outstanding;
        self.note(|| format!("!! I{} is gone, with {under_way} operations under way", n + 1));
        let initiator = &self.initiators[n];
        self.world.kill(initiator.owner, &initiator.drivers, true);
    }

    /// The target dies, and is started again later.
    fn restart(&mut self, down_ns: Nanos, power: bool, silent: bool, other: bool) {
        let Some(serving) = self.target.take() else { return };
        // An initiator that does not know its volume yet accepts whichever volume it finds.
        let other = other && self.initiators.iter().all(Running::knows_its_volume);
        self.note(|| {
            format!("!! the target dies{}", if power { ", and the power of its medium" } else { "" })
        });
        self.world.kill(serving.owner, &serving.drivers, silent);
        drop(serving);
        let back = self.world.now() + down_ns;
        self.last_trouble = self.last_trouble.max(back);
        self.act_at(back, Action::StartTarget { power, other });
        if other {
            let again = back + OTHER_NS;
            self.last_trouble = self.last_trouble.max(again);
            let restart = Fault::Restart { down_ns: SECOND / 10, power: false, silent: false, other: false };
            self.act_at(again, Action::Fault(restart));
        }
    }
}
