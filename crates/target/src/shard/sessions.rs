//! The sessions of a shard, and what the shard keeps of each.

use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

use engine::Token;
use iscsi_core::Time;
use iscsi_core::names::IscsiName;
use iscsi_core::params::Params;
use iscsi_core::target::login::LoginNames;
use iscsi_core::target::session::TargetSession;
use iscsi_core::wire::{Cid, Isid, Lun};
use rustc_hash::FxHashMap;
use scsi::Nexus;
use smallvec::SmallVec;

use super::due::Due;
use super::room::Share;
use super::slots::{SessionKey, Slots};
use super::tally::Tally;
use super::task_set::TaskSet;
use crate::device::Device;
use crate::home::Home;
use crate::observe::SessionStats;
use crate::policy::Joining;
use crate::registry::{LunMap, TargetNode};

/// A session and everything the shard keeps for it.
pub(super) struct SessionEntry {
    /// Its name in [`Sessions`], which sets it.
    pub key: SessionKey,
    pub session: TargetSession,
    pub connections: SmallVec<[(Cid, Token); 1]>,
    /// `None` in discovery sessions.
    pub target: Option<Arc<TargetNode>>,
    pub nexus: Nexus,
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
    pub since: SystemTime,
    /// Since when it has had no connection and waits for its initiator.
    lost_since: Option<Time>,
    /// When it next has work without any event, as of the last check.
    due: Option<Time>,
    /// It has had an event since then.
    is_fresh: bool,
    /// The login that waits for its end, to replace it.
    successor: Option<Token>,
    /// Keeps the nexus at this shard while the session lives.
    _home: Home,
}

impl SessionEntry {
    /// A session that has begun with one connection.
    pub(crate) fn new(
        session: TargetSession,
        connection: (Cid, Token),
        target: Option<Arc<TargetNode>>,
        nexus: Nexus,
        stats: SessionStats,
        since: SystemTime,
        home: Home,
    ) -> Self {
        Self {
            key: SessionKey::default(),
            session,
            connections: SmallVec::from_slice(&[connection]),
            luns: target.as_ref().map(|node| Arc::clone(&node.luns())).unwrap_or_default(),
            target,
            nexus,
            tasks: TaskSet::default(),
            fresh_bytes: 0,
            share: Share::default(),
            stats,
            tally: Tally::default(),
            since,
            lost_since: None,
            due: None,
            is_fresh: false,
            successor: None,
            _home: home,
        }
    }

    /// Portal group tag of its portals.
    fn group_tag(&self) -> u16 {
        self.nexus.target_port_group
    }

    /// Its logical unit with this LUN.
    pub(crate) fn device(&self, lun: Lun) -> Option<&Arc<Device>> {
        self.luns.get(&lun.to_index()?)
    }

    /// Its connection with this CID; the older one while another takes its place.
    pub(crate) fn token_of(&self, cid: Cid) -> Option<Token> {
        self.connections.iter().find(|(of, _)| *of == cid).map(|(_, token)| *token)
    }

    /// Whether it has lost all of its connections and waits for its initiator, as of the last check.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost_since.is_some()
    }

    /// The login that waits for its end.
    pub(crate) fn successor(&self) -> Option<Token> {
        self.successor
    }
}

/// Sessions by key.
#[derive(Default)]
pub(super) struct Sessions {
    slots: Slots<SessionEntry>,
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
    holding: BTreeSet<SessionKey>,
    /// How many were examined in scans over several sessions, not because of their own events.
    looked_at: Cell<u64>,
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
    /// Number of sessions, including those that are taken out.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Enters a new session.
    pub(crate) fn enter(&mut self, mut entry: Box<SessionEntry>) -> SessionKey {
        let key = self.slots.reserve();
        entry.key = key;
        self.by_port.entry(port(entry.session.names())).or_default().push(key);
        self.put_back(entry);
        key
    }

    /// Takes a session out, to work on it while the shard may change; it must be put back.
    pub(crate) fn take(&mut self, key: SessionKey) -> Option<Box<SessionEntry>> {
        self.slots.take(key)
    }

    /// Puts a session back that may have changed.
    pub(crate) fn put_back(&mut self, mut entry: Box<SessionEntry>) {
        if !std::mem::replace(&mut entry.is_fresh, true) {
            self.fresh.push(entry.key);
        }
        self.keep(entry);
    }

    /// Like [`Sessions::put_back`], if it has had no event.
    pub(crate) fn keep(&mut self, entry: Box<SessionEntry>) {
        self.slots.put(entry.key, entry);
    }

    /// Frees the place of a session that was taken out and is not put back.
    pub(crate) fn forget(&mut self, mut entry: SessionEntry) {
        let (key, names) = (entry.key, entry.session.names());
        if names.discovery {
            self.discovery.retain(|(_, other)| *other != key);
        }
        self.due.change(key, &mut entry.due, None);
        self.lost.change(key, &mut entry.lost_since, None);
        self.holding.remove(&key);
        self.slots.release(key);
        if let Entry::Occupied(mut of_port) = self.by_port.entry(port(names)) {
            of_port.get_mut().retain(|other| *other != key);
            if of_port.get().is_empty() {
                of_port.remove();
            }
        }
    }

    pub(crate) fn get(&self, key: SessionKey) -> Option<&SessionEntry> {
        self.slots.get(key)
    }

    /// Calls `f` with every session.
    pub(crate) fn each_mut(&mut self, f: impl FnMut(&mut SessionEntry)) {
        self.look_at(self.slots.capacity());
        self.slots.iter_mut().for_each(f);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &SessionEntry> {
        self.look_at(self.slots.capacity());
        self.slots.iter()
    }

    fn look_at(&self, sessions: usize) {
        self.looked_at.update(|before| before + sessions as u64);
    }

    /// How many were examined in scans over several sessions.
    pub(crate) fn looked_at(&self) -> u64 {
        self.looked_at.get()
    }

    /// The discovery session `key` ends at `end`. One behind another that ends later waits for it.
    pub(crate) fn end_discovery_at(&mut self, key: SessionKey, end: Time) {
        self.discovery.push_back((end, key));
    }

    /// Takes the oldest discovery session off the list, if there are at least `most`.
    pub(crate) fn surplus_discovery(&mut self, most: usize) -> Option<SessionKey> {
        if self.discovery.len() < most {
            return None;
        }
        self.discovery.pop_front().map(|(_, key)| key)
    }

    /// When the time of the next discovery session is up.
    pub(crate) fn next_discovery_end(&self) -> Option<Time> {
        self.discovery.front().map(|(end, _)| *end)
    }

    /// Takes a discovery session whose time is up off the list.
    pub(crate) fn late_discovery(&mut self, now: Time) -> Option<SessionKey> {
        let is_late = self.discovery.front().is_some_and(|(end, _)| *end <= now);
        if is_late { self.discovery.pop_front().map(|(_, key)| key) } else { None }
    }

    /// Records that a session has lost its connections at `since`, or that it has not.
    pub(crate) fn set_lost(&mut self, entry: &mut SessionEntry, since: Option<Time>) {
        self.lost.change(entry.key, &mut entry.lost_since, since);
    }

    /// The session that has waited longest for its initiator.
    pub(crate) fn longest_lost(&self) -> Option<SessionKey> {
        self.lost.first()
    }

    /// The sessions whose deadline has passed.
    pub(crate) fn late(&self, now: Time) -> Vec<SessionKey> {
        let late = self.due.until(now);
        self.look_at(late.len());
        late
    }

    /// The next deadline.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.due.next()
    }

    /// Sessions that have had an event since they were last asked for; some have ended since.
    pub(crate) fn take_fresh(&mut self) -> Vec<SessionKey> {
        let fresh = std::mem::take(&mut self.fresh);
        self.look_at(fresh.len());
        fresh
    }

    /// Records what has changed in a session with its events, and puts it back.
    pub(crate) fn update(&mut self, mut entry: Box<SessionEntry>) {
        entry.is_fresh = false;
        self.due.change(entry.key, &mut entry.due, entry.session.poll_timeout());
        match entry.share.holds_memory() {
            true => drop(self.holding.insert(entry.key)),
            false => drop(self.holding.remove(&entry.key)),
        }
        self.keep(entry);
    }

    /// The sessions that hold memory for data, as of their last check.
    pub(crate) fn holding(&self) -> impl Iterator<Item = &SessionEntry> {
        self.look_at(self.holding.len());
        self.holding.iter().filter_map(|key| self.get(*key))
    }

    /// Whether it is a discovery session.
    pub(crate) fn is_discovery(&self, key: SessionKey) -> bool {
        self.get(key).is_some_and(|entry| entry.session.names().discovery)
    }

    /// Sessions of the initiator port of a login.
    fn of_port(&self, names: &LoginNames) -> impl Iterator<Item = &SessionEntry> {
        self.by_port.get(&port(names)).into_iter().flatten().filter_map(|key| self.get(*key))
    }

    /// The login on `token` will replace the session `old`. Returns one of that session's connections, and the login that was to
    /// replace it before.
    pub(crate) fn replace(&mut self, old: SessionKey, token: Token) -> (Option<Token>, Option<Token>) {
        let Some(entry) = self.slots.get_mut(old) else { return (None, None) };
        let connection = entry.connections.first().map(|(_, token)| *token);
        (connection, entry.successor.replace(token))
    }

    /// The session of the same nexus as a new login.
    pub(crate) fn same_nexus(&self, names: &LoginNames, group_tag: u16) -> Option<SessionKey> {
        self.of_port(names)
            .find(|h| is_same_nexus(h.session.names(), h.group_tag(), names, group_tag))
            .map(|h| h.key)
    }

    /// The session whose TSIH a login names, if it belongs to the same nexus. A session that is ending has no TSIH any more.
    pub(crate) fn find_joined(&self, names: &LoginNames, group_tag: u16) -> Option<SessionKey> {
        self.of_port(names)
            .find(|h| {
                h.session.tsih() == names.tsih
                    && !h.session.is_ending()
                    && is_same_nexus(h.session.names(), h.group_tag(), names, group_tag)
            })
            .map(|h| h.key)
    }

    /// Whether the TSIH that a login names belongs to a session of the same initiator in another portal group.
    fn is_of_another_group(&self, names: &LoginNames, group_tag: u16) -> bool {
        self.of_port(names).any(|h| {
            h.session.tsih() == names.tsih
                && h.group_tag() != group_tag
                && is_same_nexus(h.session.names(), h.group_tag(), names, h.group_tag())
        })
    }

    /// The response of the session to a login that names its TSIH: a known CID replaces that connection, a new one needs room.
    pub(crate) fn joining(&self, names: &LoginNames, group_tag: u16) -> Joining {
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
    pub(crate) fn has_room_for(&self, key: SessionKey, cid: Cid) -> bool {
        self.get(key).is_some_and(|h| h.session.has_room_for(cid))
    }

    /// Whether the session's initiator authenticated as `name`; `None`: without authentication.
    pub(crate) fn is_authenticated_as(&self, key: SessionKey, name: Option<&str>) -> bool {
        self.get(key).is_some_and(|h| h.nexus.account.as_deref() == name)
    }

    /// The account of the session, if it differs from `name`. If one of the two did not have to authenticate (the configuration
    /// changed in between), they do not conflict.
    pub(crate) fn other_account(&self, key: SessionKey, name: Option<&str>) -> Option<&str> {
        let theirs = self.get(key)?.nexus.account.as_deref()?;
        name.filter(|ours| *ours != theirs).map(|_| theirs)
    }

    /// The CID and parameters of the connection that `token` names.
    pub(crate) fn connection_of(&self, key: SessionKey, token: Token) -> Option<(Cid, Params)> {
        let entry = self.get(key)?;
        let (cid, _) = *entry.connections.iter().find(|(_, t)| *t == token)?;
        Some((cid, entry.session.connection_params(cid)?.clone()))
    }
}
