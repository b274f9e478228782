//! The PDUs that a session gets, and the actions that it requests.

use std::sync::Arc;

use engine::{Driver, Platform, Token};
use iscsi_core::names::IscsiName;
use iscsi_core::pdu_reader::FramingError;
use iscsi_core::target::actions::{Action, Selector, Shortage, TargetRecord};
use iscsi_core::target::session::{Holdings, TargetSession};
use iscsi_core::target::task::TaskId;
use iscsi_core::wire::{Cid, Lun, Opcode};
use scsi::{Asc, Status, UaScope};

use super::Shard;
use super::sessions::SessionEntry;
use super::slots::SessionKey;
use crate::registry::TargetNode;

/// Maximum unsolicited data with commands that wait until the commands after them have been received, bytes.
const GATHERED_BYTES: u64 = 64 << 10;

/// A session that has more than this queued to send, or being read, starts no further reads, bytes.
const BACKLOG_BYTES_MAX: u64 = 16 << 20;

/// When many sessions share `limits.buffer_bytes_max`, each may still have this much, bytes.
const BACKLOG_BYTES_MIN: u64 = 256 << 10;

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

impl<P: Platform> Shard<P> {
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
        self.ahead.clear();
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
            let before = last_to_start(&entry.session);
            entry.session.handle_pdu(now, cid, &pdu);
            behind_commands = is_command;
            if last_to_start(&entry.session) != before {
                self.fetch_early(&entry);
            }
        };
        self.leave(entry);
        left
    }

    /// A command has been received, and starts after those before it: meanwhile its first block may come into the cache.
    fn fetch_early(&mut self, entry: &SessionEntry) {
        let Some(command) = entry.session.last_to_start() else { return };
        let Some((lba, blocks)) = scsi::blocks_ahead(&command.cdb) else { return };
        if let Some(device) = entry.device(command.lun) {
            self.ahead.received(command.task, device.unit.prefetch(lba, blocks));
            self.ahead.request();
        }
    }

    /// Executes the session's actions, and starts commands that waited for room or for their turn; true when the session has ended.
    pub(super) fn pump(&mut self, entry: &mut SessionEntry) -> bool {
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
                    self.ahead.starts(command.task);
                    self.ahead.request();
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
                        let peer = self.connections.peer(token);
                        let why = entry.tally.words(&reason);
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

    /// The targets that `entry`'s initiator may see, with the addresses at which it can reach them.
    //= rfc7143 C DSC-02 DSC-03 DSC-04 DSC-06
    fn target_records(&self, entry: &SessionEntry, cid: Cid, selector: &Selector) -> Vec<TargetRecord> {
        let Some(token) = entry.token_of(cid) else { return Vec::new() };
        let Some(local) = self.driver.local_addr(token) else { return Vec::new() };
        let Some(peer) = self.connections.peer(token).map(|peer| peer.ip()) else { return Vec::new() };
        let (set, portals) = (self.shared.set.load(), self.shared.portals.load());
        let initiator = &entry.session.names().initiator;
        let wanted: Vec<&Arc<TargetNode>> = match selector {
            Selector::All => set.targets.values().collect(),
            Selector::Own => entry.target.iter().collect(),
            Selector::Name(name) => match IscsiName::parse(name) {
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
    pub(super) fn is_congested(&self, entry: &SessionEntry, cid: Option<Cid>) -> bool {
        let limit = self.backlog_bytes_max();
        let of_each = limit / entry.connections.len().max(1) as u64;
        let mut total = entry.tasks.reading_bytes() + entry.fresh_bytes;
        for (of, token) in &entry.connections {
            let backlog = self.connections.backlog_bytes(*token);
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
        share.clamp(BACKLOG_BYTES_MIN, BACKLOG_BYTES_MAX)
    }

    /// How many sessions and connections were examined in scans: the cost to commands and logins that is caused by other sessions.
    pub(crate) fn looked_at(&self) -> u64 {
        self.sessions.looked_at() + self.connections.looked_at()
    }

    /// The resources held by the sessions of this shard.
    pub(crate) fn holdings(&self) -> impl Iterator<Item = SessionHoldings> {
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

/// The command that starts after all that are waiting to start.
fn last_to_start(session: &TargetSession) -> Option<TaskId> {
    session.last_to_start().map(|command| command.task)
}

/// Commands were lost with a connection and the session continues: notifies its nexus that commands were cleared.
//= rfc7143 11.14.5 LGO-04
fn report_cleared_commands(entry: &mut SessionEntry) {
    for lun in entry.session.take_cleared_luns() {
        if let Some(device) = entry.device(lun) {
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
    if let Some(device) = entry.device(lun) {
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
