//! Requests to a shard from outside: a changed configuration, queries, and shutdown.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::{Driver, Platform, Token};
use iscsi_core::target::actions::CloseReason;
use iscsi_core::target::recovery::RecoveryCounts;
use iscsi_core::target::task_management::AbortScope;
use iscsi_core::wire::Lun;
use rustix::thread::sched_getcpu;
use scsi::{Asc, SenseData, SenseKey, UaScope};

use super::connections::State;
use super::gathers::NO_WAITER;
use super::sessions::SessionEntry;
use super::slots::SessionKey;
use super::{STORE_PATIENCE, Shard};
use crate::config::PortalConfig;
use crate::device::UnitEvent;
use crate::observe::{ConnectionInfo, Negotiated, Place, RecoveryInfo, SessionInfo, SessionNames};
use crate::registry::TargetNode;

/// How long the initiators of sessions that a new configuration no longer allows may take to log out.
const EVICTION_GRACE: Duration = Duration::from_secs(5);

/// Why sessions end at shutdown.
const SERVER_ENDS: &str = "the server ends";

impl<P: Platform> Shard<P> {
    pub(super) fn keep_portals(&mut self, portals: &[PortalConfig]) {
        let mut gone: Vec<Token> = Vec::new();
        for (token, portal) in &mut self.listeners {
            match portals.iter().find(|kept| kept.address == portal.address) {
                Some(same) if *same == **portal => {}
                Some(retagged) => *portal = Arc::new(retagged.clone()),
                None => gone.push(*token),
            }
        }
        for token in gone {
            self.listeners.remove(&token);
            self.driver.close(token);
        }
    }

    /// Asks sessions to log out if their target is gone, or if their initiator may no longer use it. Sessions whose target has
    /// other units now are notified of them. All others are not affected.
    pub(super) fn reconfigured(&mut self, changed_luns: &[Arc<TargetNode>]) {
        let set = self.shared.set.load_full();
        let evicted: Vec<SessionKey> = self
            .sessions
            .iter()
            .filter(|h| {
                // A target that was removed and added again with the same name is a different target.
                let served = |node: &Arc<TargetNode>| {
                    set.targets.get(&node.name).is_some_and(|now| Arc::ptr_eq(now, node))
                };
                h.target.as_ref().is_some_and(|node| !served(node)) || !self.is_still_allowed(h)
            })
            .map(|h| h.key)
            .collect();
        let now = self.now;
        for key in evicted {
            self.with_session(key, |_, entry| {
                entry.tally.ask_to_end("the configuration allows it no longer");
                entry.session.request_logout(now, EVICTION_GRACE);
            });
        }
        for node in changed_luns {
            let concerned: Vec<SessionKey> = self
                .sessions
                .iter()
                .filter(|h| h.target.as_ref().is_some_and(|t| Arc::ptr_eq(t, node)))
                .map(|h| h.key)
                .collect();
            for key in concerned {
                self.with_session(key, |_, entry| learn_units(entry, now));
            }
        }
    }

    /// Notifies the initiators of units that had an event: each unit already has its unit attention.
    //= rfc7143 11.9 ASY-04
    pub(super) fn report_events(&mut self, events: &[UnitEvent]) {
        if events.is_empty() {
            return;
        }
        let now = self.now;
        let keys: Vec<SessionKey> =
            self.sessions.iter().filter(|h| h.target.is_some()).map(|h| h.key).collect();
        for key in keys {
            self.with_session(key, |_, entry| {
                for event in events {
                    let of_mine = |target: &&Arc<TargetNode>| target.name.as_str() == event.target;
                    if entry.target.as_ref().filter(of_mine).is_none() {
                        continue;
                    }
                    let Some(device) = entry.luns.get(&event.lun) else { continue };
                    let sense = SenseData::new(SenseKey::UnitAttention, event.asc);
                    let sense = sense.to_bytes(device.unit.scsi.descriptor_sense());
                    entry.session.report_scsi_event(now, Lun::from_index(event.lun), &sense);
                }
            });
        }
    }

    fn is_still_allowed(&self, entry: &SessionEntry) -> bool {
        let Some(node) = &entry.target else { return true };
        let initiator = &entry.session.names().initiator;
        let mut peers = entry.connections.iter().filter_map(|(_, token)| self.connections.peer(*token));
        peers.all(|peer| node.is_visible_to(initiator, peer.ip(), entry.nexus.target_port_group))
    }

    /// Asks every initiator to log out. While sessions are still open, new logins are told to try again later.
    //= rfc7143 11.9.1 ASY-01
    pub(super) fn shut_down(&mut self, grace: Duration) {
        let (normal, discovery): (Vec<_>, Vec<_>) =
            self.sessions.iter().map(|h| (h.key, h.target.is_some())).partition(|(_, normal)| *normal);
        let now = self.now;
        for (key, _) in normal {
            self.with_session(key, |_, entry| {
                entry.tally.ask_to_end(SERVER_ENDS);
                entry.session.request_logout(now, grace);
            });
        }
        for (key, _) in discovery {
            self.end_session(key, CloseReason::Ended, SERVER_ENDS);
        }
        self.ending = Some(self.now + grace);
        self.next_scan = Some(self.now);
    }

    fn stop_listening(&mut self) {
        for (token, _) in std::mem::take(&mut self.listeners) {
            self.driver.close(token);
        }
    }

    fn drop_logins(&mut self) {
        let logins: Vec<Token> = self
            .connections
            .iter()
            .filter(|c| matches!(c.state, State::Login(_) | State::Reinstating(_)))
            .map(|c| c.link.token())
            .collect();
        for token in logins {
            self.drop_connection(token);
        }
    }

    /// The grace period is over.
    pub(super) fn end_everything(&mut self) {
        let keys: Vec<SessionKey> = self.sessions.iter().map(|h| h.key).collect();
        for key in keys {
            self.end_session(key, CloseReason::Ended, SERVER_ENDS);
        }
    }

    /// Whether the shard may end now. It stays while others have connections, because these may be migrating to it.
    pub(super) fn has_ended(&mut self) -> bool {
        let sessions = self.shared.sessions.load(Ordering::Relaxed);
        if sessions == 0 || self.ending.is_some_and(|at| at <= self.now) {
            self.stop_listening();
            self.drop_logins();
            if !std::mem::replace(&mut self.door_closed, true) {
                self.shared.closed_doors.fetch_add(1, Ordering::Release);
            }
        }
        // The counters are final only when every door is closed.
        let all_closed = self.shared.closed_doors.load(Ordering::Acquire) >= self.shared.shards().len();
        let nobody = || {
            let connections = self.shared.connections.load(Ordering::Relaxed);
            connections == 0 && self.shared.sessions.load(Ordering::Relaxed) == 0
        };
        if self.door_closed && all_closed && nobody() {
            return true;
        }
        let gives_up = self.ending.is_some_and(|at| at + STORE_PATIENCE <= self.now);
        if gives_up {
            for entry in self.sessions.iter() {
                tracing::error!(
                    initiator = %entry.session.names().initiator,
                    commands = entry.tasks.count_at_workers(),
                    "the server ends although a store has not let go of commands"
                );
            }
            self.shared.gave_up.store(true, Ordering::Release);
        }
        gives_up
    }

    /// The reportable data about the sessions of this shard.
    pub(crate) fn session_infos(&mut self) -> Vec<SessionInfo> {
        self.update_changed();
        let keys: Vec<SessionKey> = self.sessions.iter().map(|h| h.key).collect();
        let mut infos = Vec::new();
        for key in keys {
            let Some(entry) = self.sessions.take(key) else { continue };
            infos.push(self.session_info(&entry));
            self.sessions.keep(entry);
        }
        infos
    }

    fn session_info(&mut self, entry: &SessionEntry) -> SessionInfo {
        let session = &entry.session;
        let (names, params) = (session.names(), session.params());
        let mut connections = Vec::new();
        for (cid, token) in &entry.connections {
            let (Some(connection), Some(params)) =
                (self.connections.get_mut(*token), session.connection_params(*cid))
            else {
                continue;
            };
            let stats = connection.link.stats();
            connections.push(ConnectionInfo {
                cid: cid.0,
                peer: connection.peer,
                portal: connection.portal.address,
                place: Some(Place {
                    shard: self.number,
                    runs_on: sched_getcpu(),
                    arrives_on: self.driver.incoming_processor(*token),
                }),
                header_digest: params.digests.header,
                data_digest: params.digests.data,
                max_recv_data_segment_length: params.max_recv_data_segment_length,
                max_send_data_segment_length: params.max_send_data_segment_length,
                rx_bytes: stats.rx_bytes,
                tx_bytes: stats.tx_bytes,
                digests_verified: stats.digests.header_verified + stats.digests.data_verified,
                digests_failed: stats.digests.header_failed + stats.digests.data_failed,
            });
        }
        SessionInfo {
            names: SessionNames {
                // A discovery session may name a target as well, but is not attached to it.
                target: entry.target.as_ref().map(|target| target.name.to_string()),
                initiator: names.initiator.to_string(),
                isid: names.isid.to_string(),
                tsih: session.tsih().0,
                authenticated_as: entry.nexus.account.as_deref().map(str::to_owned),
            },
            since: entry.since,
            connections,
            negotiated: Negotiated::all(params),
            queue_depth: session.queue_depth(),
            outstanding: session.outstanding() as u32,
            commands: entry.stats.commands.get(),
            rejects: entry.stats.rejects.get(),
            lost_connections: session.lost_connection_count() as u32,
            recovery: {
                let RecoveryCounts {
                    snacks_answered,
                    snacks_refused,
                    pdus_replayed,
                    r2ts_recovered,
                    tasks_reassigned,
                    tasks_expired,
                    connections_lost,
                } = session.recovery_counts();
                RecoveryInfo {
                    snacks_answered,
                    snacks_refused,
                    pdus_replayed,
                    r2ts_recovered,
                    tasks_reassigned,
                    tasks_expired,
                    connections_lost,
                }
            },
        }
    }

    /// Updates the published counters of a session from those of its connections.
    pub(super) fn count(&mut self, entry: &mut SessionEntry) {
        for (_, token) in entry.connections.clone() {
            self.count_traffic(entry, token);
        }
        entry.stats.rejects.set(entry.session.rejects());
        count_recovery(entry);
    }

    /// Adds the traffic of a connection since it was last counted.
    pub(super) fn count_traffic(&mut self, entry: &mut SessionEntry, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        let now = connection.link.stats();
        let before = std::mem::replace(&mut connection.counted, now);
        let stats = &entry.stats;
        for (count, now, before) in [
            (&stats.rx_pdus, now.rx_pdus, before.rx_pdus),
            (&stats.tx_pdus, now.tx_pdus, before.tx_pdus),
            (&stats.rx_bytes, now.rx_bytes, before.rx_bytes),
            (&stats.tx_bytes, now.tx_bytes, before.tx_bytes),
            (&stats.header_digests_verified, now.digests.header_verified, before.digests.header_verified),
            (&stats.header_digests_failed, now.digests.header_failed, before.digests.header_failed),
            (&stats.data_digests_verified, now.digests.data_verified, before.digests.data_verified),
            (&stats.data_digests_failed, now.digests.data_failed, before.digests.data_failed),
        ] {
            count.add(now - before);
        }
        let failed = (now.digests.header_failed + now.digests.data_failed)
            - (before.digests.header_failed + before.digests.data_failed);
        if failed > 0 {
            self.log_failed_digests(entry, token, failed);
        }
    }
}

/// Updates the counters of recovery.
fn count_recovery(entry: &SessionEntry) {
    let (stats, counts) = (&entry.stats, entry.session.recovery_counts());
    for (count, value) in [
        (&stats.snacks_answered, counts.snacks_answered),
        (&stats.snacks_refused, counts.snacks_refused),
        (&stats.pdus_replayed, counts.pdus_replayed),
        (&stats.r2ts_recovered, counts.r2ts_recovered),
        (&stats.tasks_reassigned, counts.tasks_reassigned),
        (&stats.tasks_expired, counts.tasks_expired),
        (&stats.connections_lost, counts.connections_lost),
    ] {
        count.set(value);
    }
}

/// Switches a session to the current units of its target: its nexus detaches from removed units and attaches to new ones, and its
/// initiator is notified by a unit attention on each unit and by an asynchronous event. Until then the session continues with the
/// units it knows, so that no command reaches a unit to which its nexus is not attached.
//= rfc7143 11.9 ASY-04
fn learn_units(entry: &mut SessionEntry, now: iscsi_core::Time) {
    let Some(target) = &entry.target else { return };
    let luns = target.luns();
    if Arc::ptr_eq(&luns, &entry.luns) {
        return;
    }
    let luns = Arc::clone(&luns);
    for (number, device) in entry.luns.iter() {
        let now = luns.get(number);
        if !now.is_some_and(|stays| Arc::ptr_eq(stays, device)) {
            device.unit.scsi.detach_nexus(&entry.nexus);
        }
        if !now.is_some_and(|now| Arc::ptr_eq(&now.unit.store, &device.unit.store)) {
            // Commands in progress were meant for a store that is no longer served: none of them may be acknowledged.
            let lun = Some(Lun::from_index(*number));
            let all = AbortScope { lun, request: None, task_aborted_status: true };
            entry.session.abort_tasks(all, NO_WAITER);
        }
    }
    for device in luns.values() {
        device.unit.scsi.ensure_attached(&entry.nexus);
        device.unit.scsi.unit_attention(UaScope::One(entry.nexus.id), Asc::REPORTED_LUNS_DATA_CHANGED);
    }
    entry.luns = Arc::clone(&luns);
    let sense = SenseData::new(SenseKey::UnitAttention, Asc::REPORTED_LUNS_DATA_CHANGED).to_bytes(false);
    if let Some(first) = luns.keys().next() {
        entry.session.report_scsi_event(now, Lun::from_index(*first), &sense);
    }
}
