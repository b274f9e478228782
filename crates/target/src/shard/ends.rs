//! Log messages about sessions: how they and their connections end, which tasks were aborted, which digests did not match.

use std::net::SocketAddr;

use engine::{Platform, Token};
use iscsi_core::pdu_reader::RxPdu;
use iscsi_core::wire::{Cid, TaskManagementRequest, TmfFunction};

use super::Shard;
use super::sessions::SessionEntry;
use super::tally::Ended;
use crate::observe::EventKind;

/// Name of the target of a session, for human readers.
fn target_of(entry: &SessionEntry) -> &str {
    entry.target.as_ref().map_or("(discovery)", |node| node.name.as_str())
}

impl<P: Platform> Shard<P> {
    /// A connection has ended. If others are left, or the session can recover it, it has its own log line; otherwise the line
    /// at the session's end covers it.
    pub(super) fn connection_ended(
        &self,
        entry: &mut SessionEntry,
        cid: Cid,
        peer: Option<SocketAddr>,
        why: &str,
    ) {
        let goes_on = entry.connections.len() > 1 || entry.session.params().level().recovers_connections();
        if goes_on && !entry.session.is_ending() && self.admits(EventKind::ConnectionEnded) {
            tracing::info!(
                initiator = %entry.session.names().initiator, target_name = target_of(entry), peer = %shown(peer),
                tsih = entry.session.tsih().0, cid = cid.0,
                "a connection ended: {why}"
            );
        }
        entry.tally.connection_ended(Ended { cid, peer, why: why.to_owned() });
    }

    /// The last log line of a session.
    pub(super) fn log_end(&self, entry: &SessionEntry) {
        if !self.admits(EventKind::SessionEnded) {
            return;
        }
        let tally = &entry.tally;
        let (why, peer, cid) = match tally.last() {
            Some(last) => (last.why.as_str(), last.peer, last.cid.0),
            None => (tally.asked(), None, entry.session.names().cid.0),
        };
        tracing::info!(
            initiator = %entry.session.names().initiator, target_name = target_of(entry), peer = %shown(peer),
            tsih = entry.session.tsih().0, cid,
            commands = entry.stats.commands.get(), read_bytes = tally.read_bytes,
            written_bytes = tally.written_bytes, errors = tally.faults,
            "a session ended: {why}"
        );
    }

    /// Logs a request to abort tasks or to reset a unit: hosts do this when a disk is too slow for them.
    pub(super) fn log_task_management(&self, entry: &SessionEntry, pdu: &RxPdu) {
        let Ok(request) = TaskManagementRequest::parse(&pdu.bhs) else { return };
        let harmless = matches!(
            request.function,
            TmfFunction::QueryTask
                | TmfFunction::QueryTaskSet
                | TmfFunction::QueryAsyncEvent
                | TmfFunction::TaskReassign
        );
        if !harmless && self.admits(EventKind::TasksAborted) {
            tracing::warn!(
                initiator = %entry.session.names().initiator,
                target_name = target_of(entry),
                tsih = entry.session.tsih().0,
                lun = request.lun.to_index(),
                "the initiator asks for {}; hosts do that when commands take too long for them",
                request.function
            );
        }
    }

    /// `failed` digests of a connection did not match.
    pub(super) fn log_failed_digests(&self, entry: &SessionEntry, token: Token, failed: u64) {
        let peer = self.connections.peer(token);
        if self.admits(EventKind::DigestFailed) {
            tracing::warn!(
                initiator = %entry.session.names().initiator, target_name = target_of(entry), peer = %shown(peer),
                tsih = entry.session.tsih().0,
                "{failed} PDUs arrived with a digest that does not match: something between here and the initiator changes bytes"
            );
        }
    }
}

fn shown(peer: Option<SocketAddr>) -> String {
    peer.map_or_else(|| "-".to_owned(), |peer| peer.to_string())
}
