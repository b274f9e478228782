//! Sessions of a shard, and the actions that they request.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use engine::{Driver, Platform, Token};
use iscsi_core::Time;
use iscsi_core::names::IscsiName;
use iscsi_core::params::Params;
use iscsi_core::pdu_reader::FramingError;
use iscsi_core::target::actions::{Action, CloseReason, Command, Selector, Shortage, TargetRecord};
use iscsi_core::target::login::{Established, LoginNames};
use iscsi_core::target::session::{Holdings, SessionConfig, TargetSession};
use iscsi_core::wire::{Cid, Isid, Lun, Opcode, Tsih};
use rustc_hash::FxHashMap;
use scsi::{Asc, Nexus, Status, UaScope};
use smallvec::SmallVec;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, VecDeque};

use super::Shard;
use super::due::Due;
use super::ends::{Tally, words};
use super::message::Message;
use super::room::Share;
use super::task_set::TaskSet;
use crate::memory::ANONYMOUS;
use crate::observe::SessionStats;
use crate::observe::metrics::SessionLabels;
use crate::policy::Joining;
use crate::registry::{LunMap, TargetNode};
use crate::shared::Home;

/// Maximum unsolicited data with commands that wait until the commands after them have been received, bytes.
const GATHERED_BYTES: u64 = 64 << 10;

/// Identifies a session of a shard; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    index: u32,
    generation: u32,
}

/// A session and everything the shard keeps for it.
pub(super) struct SessionEntry {
    pub key: SessionKey,
    pub session: TargetSession,
    pub connections: SmallVec<[(Cid, Token); 1]>,
    /// `None` in discovery sessions.
    pub target: Option<Arc<TargetNode>>,
    pub nexus: Nexus,
    pub group_tag: u16,
    /// Commands that have arrived and not ended.
    pub tasks: TaskSet,
    /// Data read since all of the session's actions were last executed, and now on its way to the connections, bytes.
    pub fresh_bytes: u64,
    /// Its share of the shard's room for data.
    pub share: Share,
    /// The units to which the nexus is attached: those of the target, as far as the session has been notified.
    pub luns: Arc<LunMap>,
    pub stats: SessionStats,
    /// For the log line at its end.
    pub tally: Tally,
    /// Why we have asked it to end; empty if we have not.
    pub ending: &'static str,
    pub since: SystemTime,
    pub authenticated_as: Option<String>,
    /// Since when it has had no connection and waits for its initiator.
    lost_since: Option<Time>,
    /// When it next has work without any event, as of the last check.
    due: Option<Time>,
    /// It has had an event since then.
    is_fresh: bool,
    /// The login that waits for its end, to replace it.
    successor: Option<Token>,
    /// Keeps the nexus at this shard while the session lives.
    _home: Option<Home>,
}

/// The resources that a session holds, and their limits.
#[derive(Clone, Copy, Debug)]
pub struct SessionHoldings {
    /// Commands that it may have outstanding.
    pub queue_depth: u32,
    /// Maximum number of bytes of Data-In that it keeps until they are acknowledged.
    pub retained_bytes_max: u64,
    /// Maximum number of bytes of Data-Out that it requests at a time, for more than one command.
    pub solicited_bytes_max: u64,
    /// Data being read for it or queued to be sent, bytes.
    pub tx_bytes: u64,
    /// No further read starts above this.
    pub tx_bytes_max: u64,
    /// Memory for data of commands that it holds, bytes.
    pub data_bytes: u64,
    /// Its connections.
    pub connections: usize,
    /// The resources held by its protocol state.
    pub held: Holdings,
}

/// Sessions by key.
#[derive(Default)]
pub(super) struct Sessions {
    slots: Vec<(u32, Option<Box<SessionEntry>>)>,
    free: Vec<u32>,
    /// Sessions of an initiator port.
    by_port: FxHashMap<(IscsiName, Isid), SmallVec<[SessionKey; 1]>>,
    /// Discovery sessions and when they end, oldest first.
    discovery: VecDeque<(Time, SessionKey)>,
    /// Sessions that have had an event since they were last checked; some have ended since.
    fresh: Vec<SessionKey>,
    due: Due<SessionKey>,
    /// Sessions that wait for their initiators.
    lost: Due<SessionKey>,
    /// Sessions that held memory for data when they were last checked.
    pub holding: BTreeSet<SessionKey>,
    /// How many were examined in scans over several sessions, not because of their own events.
    pub looked_at: Cell<u64>,
}

fn port(names: &LoginNames) -> (IscsiName, Isid) {
    (names.initiator.clone(), names.isid)
}

/// Whether two logins are for the same I_T nexus: same names, ISID and portal group (RFC 7143 4.4.3, 7.4.2).
//= rfc7143 4.4.3 NAM-04 DSC-08
pub(super) fn is_same_nexus(a: &LoginNames, a_tag: u16, b: &LoginNames, b_tag: u16) -> bool {
    a.isid == b.isid
        && a_tag == b_tag
        && a.initiator == b.initiator
        && a.target == b.target
        && a.discovery == b.discovery
}

impl Sessions {
    fn reserve(&mut self) -> SessionKey {
        match self.free.pop() {
            Some(index) => SessionKey { index, generation: self.slots[index as usize].0 },
            None => {
                self.slots.push((0, None));
                SessionKey { index: self.slots.len() as u32 - 1, generation: 0 }
            }
        }
    }

    /// Number of sessions, including those that are taken out.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Takes a session out, to work on it while the shard may change; it must be put back.
    pub fn take(&mut self, key: SessionKey) -> Option<Box<SessionEntry>> {
        match self.slots.get_mut(key.index as usize) {
            Some((generation, slot)) if *generation == key.generation => slot.take(),
            _ => None,
        }
    }

    pub fn put_back(&mut self, mut entry: Box<SessionEntry>) {
        if !std::mem::replace(&mut entry.is_fresh, true) {
            self.fresh.push(entry.key);
        }
        self.keep(entry);
    }

    /// Like [`Sessions::put_back`], if it has had no event.
    pub fn keep(&mut self, entry: Box<SessionEntry>) {
        let index = entry.key.index as usize;
        self.slots[index].1 = Some(entry);
    }

    /// Puts a new session in its reserved slot.
    fn enter(&mut self, entry: Box<SessionEntry>) {
        self.by_port.entry(port(entry.session.names())).or_default().push(entry.key);
        self.put_back(entry);
    }

    /// Whether it is a discovery session.
    pub fn is_discovery(&self, key: SessionKey) -> bool {
        self.get(key).is_some_and(|entry| entry.session.names().discovery)
    }

    /// Frees the slot of a session that was taken out and is not put back.
    fn forget(&mut self, mut entry: SessionEntry) {
        let (key, names) = (entry.key, entry.session.names());
        if names.discovery {
            self.discovery.retain(|(_, other)| *other != key);
        }
        self.due.change(key, &mut entry.due, None);
        self.lost.change(key, &mut entry.lost_since, None);
        self.holding.remove(&key);
        self.slots[key.index as usize].0 = key.generation.wrapping_add(1);
        self.free.push(key.index);
        if let Entry::Occupied(mut of_port) = self.by_port.entry(port(names)) {
            of_port.get_mut().retain(|other| *other != key);
            if of_port.get().is_empty() {
                of_port.remove();
            }
        }
    }

    pub fn get(&self, key: SessionKey) -> Option<&SessionEntry> {
        let (generation, slot) = self.slots.get(key.index as usize)?;
        slot.as_deref().filter(|_| *generation == key.generation)
    }

    fn get_mut(&mut self, key: SessionKey) -> Option<&mut SessionEntry> {
        let (generation, slot) = self.slots.get_mut(key.index as usize)?;
        slot.as_deref_mut().filter(|_| *generation == key.generation)
    }

    /// Sessions of the initiator port of a login.
    fn of_port(&self, names: &LoginNames) -> impl Iterator<Item = &SessionEntry> {
        self.by_port.get(&port(names)).into_iter().flatten().filter_map(|key| self.get(*key))
    }

    /// The login on `token` will replace the session `old`. Returns one of that session's connections, and the login that was to
    /// replace it before.
    pub fn replace(&mut self, old: SessionKey, token: Token) -> (Option<Token>, Option<Token>) {
        let Some(entry) = self.get_mut(old) else { return (None, None) };
        let connection = entry.connections.first().map(|(_, token)| *token);
        (connection, entry.successor.replace(token))
    }

    /// Calls `f` with every session.
    pub fn each_mut(&mut self, f: impl FnMut(&mut SessionEntry)) {
        self.look_at(self.slots.len());
        self.slots.iter_mut().filter_map(|(_, slot)| slot.as_deref_mut()).for_each(f);
    }

    pub fn look_at(&self, sessions: usize) {
        self.looked_at.update(|before| before + sessions as u64);
    }

    pub fn iter(&self) -> impl Iterator<Item = &SessionEntry> {
        self.look_at(self.slots.len());
        self.slots.iter().filter_map(|(_, slot)| slot.as_deref())
    }

    /// The session of the same nexus as a new login.
    pub fn same_nexus(&self, names: &LoginNames, group_tag: u16) -> Option<SessionKey> {
        self.of_port(names)
            .find(|h| is_same_nexus(h.session.names(), h.group_tag, names, group_tag))
            .map(|h| h.key)
    }

    /// The session whose TSIH a login names, if it belongs to the same nexus. A session that is ending has no TSIH any more.
    pub fn find_joined(&self, names: &LoginNames, group_tag: u16) -> Option<SessionKey> {
        self.of_port(names)
            .find(|h| {
                h.session.tsih() == names.tsih
                    && !h.session.is_ending()
                    && is_same_nexus(h.session.names(), h.group_tag, names, group_tag)
            })
            .map(|h| h.key)
    }

    /// Whether the TSIH that a login names belongs to a session of the same initiator in another portal group.
    fn is_of_another_group(&self, names: &LoginNames, group_tag: u16) -> bool {
        self.of_port(names).any(|h| {
            h.session.tsih() == names.tsih
                && h.group_tag != group_tag
                && is_same_nexus(h.session.names(), h.group_tag, names, h.group_tag)
        })
    }

    /// The response of the session to a login that names its TSIH: a known CID replaces that connection, a new one needs room.
    pub fn joining(&self, names: &LoginNames, group_tag: u16) -> Joining {
        let found = self.find_joined(names, group_tag).and_then(|key| self.get(key));
        let Some(entry) = found else {
            //= rfc7143 4.4.3 MCS-01
            return match self.is_of_another_group(names, group_tag) {
                true => Joining::OtherGroup,
                false => Joining::Unknown,
            };
        };
        match entry.session.has_room_for(names.cid) {
            true => Joining::Welcome(entry.session.params().clone()),
            false => Joining::Full,
        }
    }

    /// Whether a login for `cid` still fits into the session: another one may have taken the place in the meantime.
    pub fn has_room_for(&self, key: SessionKey, cid: Cid) -> bool {
        self.get(key).is_some_and(|h| h.session.has_room_for(cid))
    }

    /// Whether the session's initiator authenticated as `name`; `None`: without authentication.
    pub fn is_authenticated_as(&self, key: SessionKey, name: Option<&str>) -> bool {
        self.get(key).is_some_and(|h| h.authenticated_as.as_deref() == name)
    }

    /// The account of the session, if it differs from `name`. If one of the two did not have to authenticate (the configuration
    /// changed in between), they do not conflict.
    pub fn other_account(&self, key: SessionKey, name: Option<&str>) -> Option<&str> {
        let theirs = self.get(key)?.authenticated_as.as_deref()?;
        name.filter(|ours| *ours != theirs).map(|_| theirs)
    }

    /// The CID and parameters of the connection that `token` names.
    pub fn connection_of(&self, key: SessionKey, token: Token) -> Option<(Cid, Params)> {
        let entry = self.get(key)?;
        let (cid, _) = *entry.connections.iter().find(|(_, t)| *t == token)?;
        Some((cid, entry.session.connection_params(cid)?.clone()))
    }
}

impl<P: Platform> Shard<P> {
    /// Creates the session of a completed login.
    pub(super) fn open_session(
        &mut self,
        token: Token,
        established: Established,
        tsih: Tsih,
        target: Option<Arc<TargetNode>>,
    ) -> SessionKey {
        let key = self.sessions.reserve();
        let names = established.names.clone();
        let group_tag = established.portal_group_tag;
        let nexus = Nexus::new(&format!("{},i,{}", names.initiator, names.isid), group_tag, group_tag.max(1))
            .with_account(established.authenticated_as.as_deref())
            .with_protocol_level(established.params.protocol_level);
        let luns = target.as_ref().map(|node| Arc::clone(&node.luns())).unwrap_or_default();
        for device in luns.values() {
            device.unit.scsi.attach_nexus(&nexus);
        }
        let set = self.shared.set.load();
        let target_config = target.as_ref().map(|node| node.config());
        self.share_retained();
        let config = SessionConfig {
            queue_depth: target_config.as_ref().map_or(16, |c| c.queue_depth),
            ping_interval: set.config.limits.ping_interval,
            ping_timeout: set.config.limits.ping_timeout,
            bounds: target_config.map(|c| c.bounds.clone()).unwrap_or_default(),
            retained_bytes_max: self.room.retained_bytes_of_each(),
            ..self.shared.session_config()
        };
        let cid = names.cid;
        let home = self.shared.home_of(names.isid, Some(names.initiator.clone()));
        let stats = self.shared.observe.metrics.session(SessionLabels {
            // A discovery session may also name a target, even one that does not exist: it is not attached to it.
            target: target.as_ref().map(|node| node.name.to_string()).unwrap_or_default(),
            initiator: names.initiator.to_string(),
            isid: names.isid.to_string(),
            tsih: tsih.0,
        });
        let authenticated_as = established.authenticated_as.clone();
        let entry = SessionEntry {
            key,
            session: TargetSession::new(established, tsih, config, self.now),
            connections: SmallVec::from_slice(&[(cid, token)]),
            target,
            nexus,
            group_tag,
            tasks: TaskSet::default(),
            fresh_bytes: 0,
            share: Share::default(),
            luns,
            stats,
            tally: Tally::default(),
            ending: "",
            since: self.shared.platform.date(),
            authenticated_as,
            lost_since: None,
            due: None,
            is_fresh: false,
            successor: None,
            _home: Some(home),
        };
        if entry.session.names().discovery {
            let end = self.now + set.config.limits.login_timeout;
            self.sessions.discovery.push_back((end, key));
        }
        self.sessions.enter(Box::new(entry));
        key
    }

    /// Ends the oldest discovery sessions when their number reaches the limit: an initiator that lists targets needs only a short
    /// time.
    pub(super) fn make_room_for_discovery(&mut self) {
        let most = ANONYMOUS.discovery_sessions_of_each(self.shared.shards().len());
        while self.sessions.discovery.len() >= most
            && let Some((_, oldest)) = self.sessions.discovery.pop_front()
        {
            self.end_session(oldest, CloseReason::Ended, "it made room for another discovery session");
        }
    }

    /// Ends the discovery sessions whose time is up; returns the end of the next one.
    fn expire_discovery(&mut self) -> Option<Time> {
        while let Some(&(end, key)) = self.sessions.discovery.front() {
            if end > self.now {
                return Some(end);
            }
            self.sessions.discovery.pop_front();
            self.end_session(
                key,
                CloseReason::Ended,
                "a discovery session lasts no longer than limits.login_timeout",
            );
        }
        None
    }

    /// Adds or replaces a connection of a session.
    pub(super) fn add_connection(&mut self, key: SessionKey, token: Token, established: Established) {
        let now = self.now;
        self.with_session(key, |_, entry| {
            let cid = established.names.cid;
            // An old connection with the same CID stays first in the list until the session closes it.
            entry.connections.push((cid, token));
            entry.session.join(established, now);
        });
    }

    /// Works on a session, then executes the actions that it requests.
    pub(super) fn with_session(&mut self, key: SessionKey, f: impl FnOnce(&mut Self, &mut SessionEntry)) {
        let Some(mut entry) = self.sessions.take(key) else { return };
        f(self, &mut entry);
        self.leave(entry);
    }

    /// Executes the actions of a session that was taken out, and puts it back.
    fn leave(&mut self, mut entry: Box<SessionEntry>) {
        if self.pump(&mut entry) {
            self.session_ended(*entry);
        } else {
            self.note_loss(&mut entry);
            self.sessions.put_back(entry);
        }
    }

    /// Records whether a session waits for its initiator.
    fn note_loss(&mut self, entry: &mut SessionEntry) {
        let is_lost = entry.connections.is_empty() && !entry.session.is_ending();
        if is_lost == entry.lost_since.is_some() {
            return;
        }
        self.sessions.lost.change(entry.key, &mut entry.lost_since, is_lost.then_some(self.now));
        match is_lost {
            true => self.shared.lost_sessions.fetch_add(1, Ordering::Relaxed),
            false => self.shared.lost_sessions.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// There are too many sessions: ends the one that has waited longest for its initiator, here or at one of `left` shards.
    //= rfc7143 11.13.5 LGN-20
    pub(super) fn end_a_lost_session(&mut self, left: usize) {
        match self.sessions.lost.first() {
            Some(key) => {
                let why = "it had lost its connections, and limits.max_sessions is reached";
                self.end_session(key, CloseReason::Ended, why)
            }
            None if left > 1 => {
                let shards = self.shared.shards();
                shards[(self.number + 1) % shards.len()].send(Message::EndLostSession { left: left - 1 });
            }
            None => {}
        }
    }

    /// Executes the actions that a session requests.
    pub(super) fn run_session(&mut self, key: SessionKey) {
        self.with_session(key, |_, _| {});
    }

    /// Passes every complete PDU that has arrived on the connection `cid` to its session. The work for the session as a whole, such
    /// as its accounts and the commands that wait for memory, is done once for all of them. Consecutive commands are all received
    /// before the first of them starts: running each stage for a batch of commands keeps that stage in the instruction cache,
    /// running all stages per command does not. Before any other PDU, the commands ahead of it are started. Returns false when no
    /// complete PDU is left, true when the connection no longer belongs to the session.
    ///
    /// # Errors
    /// The stream cannot be parsed any further.
    pub(super) fn session_pdus(
        &mut self,
        token: Token,
        key: SessionKey,
        cid: Cid,
    ) -> Result<bool, FramingError> {
        let now = self.now;
        let Some(mut entry) = self.sessions.take(key) else { return Ok(false) };
        entry.session.set_early_bytes_max(self.room.early_bytes_max(&entry.share));
        let mut behind_commands = true;
        let left = loop {
            let Some(link) = self.connections.of_session(token) else { break Ok(true) };
            let pdu = match link.next_pdu() {
                Ok(Some(pdu)) => pdu,
                Ok(None) => break Ok(false),
                Err(error) => break Err(error),
            };
            let is_command = pdu.bhs.opcode() == Opcode::ScsiCommand.code();
            let gathers = behind_commands && is_command && {
                let session = &entry.session;
                gathers_commands(session.early_bytes(), session.has_room_for_first_burst())
            };
            if !gathers && self.carry_out(&mut entry) {
                self.session_ended(*entry);
                return Ok(true);
            }
            if pdu.bhs.opcode() == Opcode::DataOut.code() {
                entry.share.moved = now;
            } else if pdu.bhs.opcode() == Opcode::TaskManagementRequest.code() {
                self.log_task_management(&entry, &pdu);
            }
            entry.session.handle_pdu(now, cid, &pdu);
            behind_commands = is_command;
        };
        self.leave(entry);
        left
    }

    /// A connection of a session, to `peer`, has failed; `why` is the reason.
    pub(super) fn session_lost(&mut self, key: SessionKey, cid: Cid, peer: SocketAddr, why: &str) {
        let now = self.now;
        self.with_session(key, |shard, entry| {
            shard.connection_ended(entry, cid, Some(peer), why);
            entry.session.handle_connection_lost(now, cid);
            if let Some((_, token)) = entry.connections.iter().find(|(c, _)| *c == cid) {
                let token = *token;
                shard.count_traffic(entry, token);
                shard.hand_over_room(entry, token);
            }
            entry.connections.retain(|(c, _)| *c != cid);
        });
    }

    /// Ends a session; `why` adds to a reason that does not explain enough.
    pub(super) fn end_session(&mut self, key: SessionKey, reason: CloseReason, why: &'static str) {
        let now = self.now;
        self.with_session(key, |_, entry| {
            entry.ending = why;
            entry.session.terminate(now, reason)
        });
    }

    /// Handles deadlines of sessions; returns the next one.
    pub(super) fn expire_sessions(&mut self) -> Option<Time> {
        let now = self.now;
        self.update_changed();
        let late = self.sessions.due.until(now);
        self.sessions.look_at(late.len());
        for key in late {
            self.with_session(key, |shard, entry| {
                for &(cid, token) in &entry.connections {
                    entry.session.handle_taken(shard.last_taken(token), cid);
                }
                entry.session.handle_timeout(now);
            });
        }
        let (discovery, stalled) = (self.expire_discovery(), self.end_stalled());
        self.update_changed();
        [self.sessions.due.next(), discovery, stalled].into_iter().flatten().min()
    }

    /// Updates the records of sessions that have had an event: their deadlines, whether they hold memory for data, and the
    /// published counters. The others have not changed.
    pub(super) fn update_changed(&mut self) {
        let mut fresh = std::mem::take(&mut self.sessions.fresh);
        self.sessions.look_at(fresh.len());
        for key in fresh.drain(..) {
            let Some(mut entry) = self.sessions.take(key) else { continue };
            entry.is_fresh = false;
            self.sessions.due.change(key, &mut entry.due, entry.session.poll_timeout());
            match entry.share.holds_memory() {
                true => drop(self.sessions.holding.insert(key)),
                false => drop(self.sessions.holding.remove(&key)),
            }
            self.count(&mut entry);
            self.sessions.keep(entry);
        }
        self.sessions.fresh = fresh;
    }

    /// Executes the session's actions, and starts commands that waited for room or for their turn; true when the session has ended.
    fn pump(&mut self, entry: &mut SessionEntry) -> bool {
        loop {
            if self.carry_out(entry) {
                return true;
            }
            self.settle(entry);
            if !self.begin_waiting_for_room(entry) && !self.begin_next_in_turn(entry) {
                debug_assert!(entry.tasks.holds());
                return false;
            }
        }
    }

    /// Executes the actions that the session requests; true when it has ended.
    fn carry_out(&mut self, entry: &mut SessionEntry) -> bool {
        while let Some(action) = entry.session.poll_action() {
            match action {
                Action::Send { cid, pdu } => {
                    if let Some((_, token)) = entry.connections.iter().find(|(c, _)| *c == cid) {
                        self.connections.push(*token, pdu);
                    }
                }
                Action::Start(command) => {
                    if let Some(next) = entry.session.next_to_start() {
                        fetch_early(entry, next);
                    }
                    self.start(entry, command)
                }
                Action::DataOut { task, data } => self.data_out(entry, task, data),
                Action::Abandon { task } => self.abandon(entry, task),
                Action::Refused { lun, shortage } => note_refusal(entry, lun, shortage),
                Action::Manage(request) => self.manage(entry, request),
                Action::TasksGone { token } => self.tasks_gone(token),
                Action::SendTargets { cid, selector } => {
                    let records = self.target_records(entry, cid, &selector);
                    entry.session.answer_send_targets(cid, &records);
                }
                Action::Close { cid, reason } => {
                    if let Some(position) = entry.connections.iter().position(|(c, _)| *c == cid) {
                        let (_, token) = entry.connections[position];
                        let peer = self.connections.get_mut(token).map(|connection| connection.peer);
                        let why = words(&reason, entry.ending);
                        self.connection_ended(entry, cid, peer, &why);
                        self.count_traffic(entry, token);
                        entry.connections.remove(position);
                        self.hand_over_room(entry, token);
                        self.say_goodbye(token);
                    }
                }
                Action::Ended => return true,
            }
        }
        entry.fresh_bytes = 0;
        report_cleared_commands(entry);
        false
    }

    /// The session has ended: its nexus is lost to the logical units, and a login that waited for the end continues.
    //= rfc7143 6.3.5 SES-02 SES-04
    fn session_ended(&mut self, mut entry: SessionEntry) {
        self.log_end(&entry);
        for device in entry.luns.values() {
            device.unit.scsi.detach_nexus(&entry.nexus);
        }
        let (key, successor) = (entry.key, entry.successor);
        self.shared.release_tsih(entry.session.tsih());
        if entry.lost_since.is_some() {
            self.shared.lost_sessions.fetch_sub(1, Ordering::Relaxed);
        }
        self.shared.release_session(entry.session.names().discovery);
        let share = std::mem::take(&mut entry.share);
        self.sessions.forget(entry);
        self.settle_ended(key, &share);
        self.share_retained();
        self.forget_orders_of(key);
        if let Some(token) = successor {
            self.resume_reinstatement(token);
        }
    }

    /// The targets that `entry`'s initiator may see, with the addresses at which it can reach them.
    //= rfc7143 C DSC-02 DSC-03 DSC-04 DSC-06
    fn target_records(&mut self, entry: &SessionEntry, cid: Cid, selector: &Selector) -> Vec<TargetRecord> {
        let Some((_, token)) = entry.connections.iter().find(|(c, _)| *c == cid) else { return Vec::new() };
        let Some(local) = self.driver.local_addr(*token) else { return Vec::new() };
        let Some(connection) = self.connections.get_mut(*token) else { return Vec::new() };
        let peer = connection.peer.ip();
        let (set, portals) = (self.shared.set.load(), self.shared.portals.load());
        let initiator = &entry.session.names().initiator;
        let wanted: Vec<&Arc<TargetNode>> = match selector {
            Selector::All => set.targets.values().collect(),
            Selector::Own => entry.target.iter().collect(),
            Selector::Name(name) => match iscsi_core::names::IscsiName::parse(name) {
                // In a normal session other targets are not reported.
                Ok(name) if entry.target.as_ref().is_none_or(|own| own.name == name) => {
                    set.targets.get(&name).into_iter().collect()
                }
                _ => Vec::new(),
            },
        };
        wanted
            .into_iter()
            .filter_map(|node| {
                let addresses: Vec<String> = portals
                    .iter()
                    .filter(|portal| node.is_visible_to(initiator, peer, portal.group_tag))
                    .filter_map(|portal| crate::portal::address_for(portal, local))
                    .collect();
                (!addresses.is_empty()).then(|| TargetRecord { name: node.name.to_string(), addresses })
            })
            .collect()
    }

    /// True while nothing more should be read for connection `cid`: it or the session has more to send than its share of the memory
    /// for data, or will have when its reads complete. A connection whose peer accepts nothing fills only its own share.
    pub(super) fn is_congested(&mut self, entry: &SessionEntry, cid: Option<Cid>) -> bool {
        let limit = self.backlog_bytes_max();
        let of_each = limit / entry.connections.len().max(1) as u64;
        let mut total = entry.tasks.reading_bytes() + entry.fresh_bytes;
        for (of, token) in &entry.connections {
            let backlog = self.connections.get_mut(*token).map_or(0, |c| c.link.tx_backlog_bytes() as u64);
            if cid == Some(*of) && backlog > of_each {
                return true;
            }
            total += backlog.min(of_each);
        }
        total > limit
    }

    /// A session's share of the memory for outgoing data, bytes.
    fn backlog_bytes_max(&self) -> u64 {
        let share = self.budget_bytes / self.sessions.len().max(1) as u64;
        share.clamp(super::commands::BACKLOG_BYTES_MIN, super::commands::BACKLOG_BYTES_MAX)
    }

    /// How many sessions and connections were examined in scans: the cost to commands and logins that is caused by other sessions.
    pub fn looked_at(&self) -> u64 {
        self.sessions.looked_at.get() + self.connections.looked_at.get()
    }

    /// The resources held by the sessions of this shard.
    pub fn holdings(&self) -> impl Iterator<Item = SessionHoldings> {
        self.sessions.iter().map(|entry| {
            let backlogs = entry.connections.iter().map(|(_, token)| self.connections.backlog_bytes(*token));
            let backlog: u64 = backlogs.sum();
            let config = entry.session.config();
            SessionHoldings {
                queue_depth: config.queue_depth,
                retained_bytes_max: config.retained_bytes_max,
                solicited_bytes_max: config.solicited_bytes_max,
                tx_bytes: entry.tasks.reading_bytes() + entry.fresh_bytes + backlog,
                tx_bytes_max: self.backlog_bytes_max(),
                data_bytes: entry.share.commands + entry.share.outgoing,
                connections: entry.connections.len(),
                held: entry.session.holdings(),
            }
        })
    }
}

/// Whether one more command may be received before the earlier ones start, which have `early_bytes` of unsolicited data. These bytes
/// count until then: they must leave room for the first burst of the next command, and must still be in the cache.
fn gathers_commands(early_bytes: u64, has_room_for_first_burst: bool) -> bool {
    early_bytes == 0 || (early_bytes <= GATHERED_BYTES && has_room_for_first_burst)
}

/// Prefetches the data that a command needs first while the preceding command is executed: for a short command, fetching its first
/// block from memory takes longer than the rest.
fn fetch_early(entry: &SessionEntry, command: &Command) {
    let Some((lba, blocks)) = scsi::blocks_ahead(&command.cdb) else { return };
    if let Some(device) = command.lun.to_index().and_then(|number| entry.luns.get(&number)) {
        device.unit.prefetch(lba, blocks);
    }
}

/// Commands were lost with a connection and the session continues: notifies its nexus that commands were cleared.
//= rfc7143 11.14.5 LGO-04
fn report_cleared_commands(entry: &mut SessionEntry) {
    for lun in entry.session.take_cleared_luns() {
        if let Some(device) = lun.to_index().and_then(|number| entry.luns.get(&number)) {
            let nexus = UaScope::One(entry.nexus.id);
            device.unit.scsi.unit_attention(nexus, Asc::COMMANDS_CLEARED_BY_ISCSI_EVENT);
        }
    }
}

/// The session ends a command for lack of memory: its unit did not see that status.
//= spc4 7.5.8 UA-04
fn note_refusal(entry: &SessionEntry, lun: Lun, shortage: Shortage) {
    let status = match shortage {
        Shortage::Busy => Status::Busy,
        Shortage::TaskSetFull => Status::TaskSetFull,
    };
    if let Some(device) = lun.to_index().and_then(|number| entry.luns.get(&number)) {
        device.unit.scsi.note_status(&entry.nexus, status);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_gathered_while_their_data_fit_into_the_cache_and_leave_room() {
        // Commands without data are always gathered.
        assert!(gathers_commands(0, true) && gathers_commands(0, false));
        let bytes = [1, GATHERED_BYTES, GATHERED_BYTES + 1];
        assert_eq!(bytes.map(|early| gathers_commands(early, true)), [true, true, false]);
        assert_eq!(bytes.map(|early| gathers_commands(early, false)), [false; 3]);
    }
}
