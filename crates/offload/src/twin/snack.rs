//! The SNACK controller: groups of PDUs that are missing, one delayed SNACK for each, and DataACK (RFC 7143 11.16).
//!
//! A group is a run of numbers that are missing together. It waits for its deadline, because PDUs may still be on their way and
//! because losses come in runs; then one SNACK requests all of it. A replica takes its number out of its group; a group that is
//! empty is forgotten. A replica whose digest fails again is a new loss, with a SNACK of its own.
//!
//! A group of Data-In knows which bytes are missing. Replicas must fill them without gap or overlap.

use iscsi_wire::{DataSn, Itt, Lun, SnackRequest, SnackType, Ttt};

use super::Host;
use super::connection::Connection;
use super::tx::Control;
use crate::encoding::{Completion, DataackSent, SnackCause, SnackSent, SnackState};
use crate::limits::MAX_SNACKS;

/// Entries that one PDU can add: a gap of statuses, a gap of data, a group cut in two, and a DataACK.
const SNACKS_PER_PDU: usize = 4;
/// The end of missing data that only the count of its PDUs is known of.
pub(super) const END_UNKNOWN: u32 = u32::MAX;
/// A deadline that no time reaches.
const NEVER: u64 = u64::MAX;

/// What a group is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) snack_type: SnackType,
    pub(super) itt: Itt,
}

impl Key {
    pub(super) const STATUS: Self = Self { snack_type: SnackType::Status, itt: Itt::RESERVED };

    /// Data-In or R2Ts of a task.
    pub(super) fn of_task(itt: Itt) -> Self {
        Self { snack_type: SnackType::DataOrR2t, itt }
    }
}

/// A run of numbers that are missing, and the bytes that are missing with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) begin: u32,
    pub(super) length: u32,
    pub(super) begin_offset: u32,
    pub(super) end_offset: u32,
}

impl Group {
    fn end(&self) -> u32 {
        self.begin.wrapping_add(self.length)
    }

    fn contains(&self, sn: u32) -> bool {
        sn.wrapping_sub(self.begin) < self.length
    }

    /// Whether the PDU `sn` may lie at these offsets.
    fn admits(&self, sn: u32, (from, to): (u32, u32)) -> bool {
        let first = sn == self.begin;
        let last = sn.wrapping_add(1) == self.end();
        let begins = if first { from == self.begin_offset } else { from >= self.begin_offset };
        let ends = match (last, self.end_offset) {
            (_, END_UNKNOWN) => true,
            (true, end) => to == end,
            (false, end) => to <= end,
        };
        begins && ends
    }

    /// What is left of it without `sn`: before, and after.
    fn without(&self, sn: u32, (from, to): (u32, u32)) -> [Self; 2] {
        let before = sn.wrapping_sub(self.begin);
        let after = self.length - before - 1;
        [
            Self { length: before, end_offset: from, ..*self },
            Self { begin: sn.wrapping_add(1), length: after, begin_offset: to, end_offset: self.end_offset },
        ]
    }
}

/// One entry of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    id: u64,
    pub(super) key: Key,
    pub(super) group: Group,
    pub(super) state: SnackState,
    pub(super) deadline_us: u64,
    pub(super) cause: SnackCause,
    pub(super) ttt: Ttt,
    pub(super) lun: Lun,
}

/// The SNACK table of one connection, in the order in which entries were made.
#[derive(Debug, Default)]
pub(super) struct SnackTable {
    entries: Vec<Entry>,
    next_id: u64,
}

impl SnackTable {
    /// Whether all that one PDU can add has room.
    pub(super) fn has_room_for_pdu(&self) -> bool {
        self.entries.len() + SNACKS_PER_PDU <= MAX_SNACKS
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// The first number of every group of statuses.
    pub(super) fn statuses(&self) -> impl Iterator<Item = u32> {
        self.entries.iter().filter(|entry| entry.key == Key::STATUS).map(|entry| entry.group.begin)
    }

    pub(super) fn has_holes(&self, itt: Itt) -> bool {
        self.entries.iter().any(|entry| entry.key == Key::of_task(itt))
    }

    /// The entry whose group has `sn`.
    pub(super) fn find(&self, key: Key, sn: u32) -> Option<usize> {
        self.entries.iter().position(|entry| entry.key == key && entry.group.contains(sn))
    }

    /// Whether a PDU with these offsets may fill the place of `sn` in a group.
    pub(super) fn admits(&self, index: usize, sn: u32, offsets: (u32, u32)) -> bool {
        self.entries[index].group.admits(sn, offsets)
    }

    /// Records a loss. One that continues a group which still waits becomes part of it.
    pub(super) fn lose(&mut self, key: Key, group: Group, cause: SnackCause, deadline_us: u64) {
        let continued = self.entries.iter_mut().find(|entry| {
            entry.key == key && entry.state == SnackState::WAITING && entry.group.end() == group.begin
        });
        if let Some(entry) = continued {
            entry.group.length = entry.group.length.wrapping_add(group.length);
            entry.group.end_offset = group.end_offset;
            return;
        }
        let (ttt, lun) = (Ttt::RESERVED, Lun(0));
        self.push(Entry { id: 0, key, group, state: SnackState::WAITING, deadline_us, cause, ttt, lun });
    }

    fn push(&mut self, entry: Entry) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.entries.push(Entry { id, ..entry });
        id
    }

    /// Takes `sn` out of its group.
    pub(super) fn fill(&mut self, index: usize, sn: u32, offsets: (u32, u32)) {
        let entry = self.entries[index];
        match entry.group.without(sn, offsets) {
            [Group { length: 0, .. }, Group { length: 0, .. }] => {
                self.entries.remove(index);
            }
            [Group { length: 0, .. }, rest] | [rest, Group { length: 0, .. }] => {
                self.entries[index].group = rest;
            }
            [before, after] => {
                self.entries[index].group = before;
                // A SNACK that is in the transmit queue requests the first part; the second has to wait for its own.
                let state = if entry.state == SnackState::DUE { SnackState::WAITING } else { entry.state };
                self.push(Entry { group: after, state, ..entry });
            }
        }
    }

    /// The replica of `sn` is unusable. If its SNACK was sent already, it is a new loss.
    pub(super) fn lose_again(&mut self, index: usize, sn: u32, offsets: (u32, u32), deadline_us: u64) {
        let entry = self.entries[index];
        if entry.state != SnackState::SENT {
            return;
        }
        self.fill(index, sn, offsets);
        let group = Group { begin: sn, length: 1, begin_offset: offsets.0, end_offset: offsets.1 };
        self.lose(entry.key, group, SnackCause::DIGEST, deadline_us);
    }

    /// A task has ended: nothing of it is missing any more. A DataACK that is due is still sent.
    pub(super) fn forget_task(&mut self, itt: Itt) {
        self.entries.retain(|entry| entry.key.itt != itt || entry.state == SnackState::DUE && is_ack(entry));
    }

    /// Entries whose time has come are due; `queue` gets the id of each.
    fn become_due(&mut self, now_us: u64, mut queue: impl FnMut(u64)) {
        for entry in &mut self.entries {
            if entry.state == SnackState::WAITING && entry.deadline_us <= now_us {
                entry.state = SnackState::DUE;
                queue(entry.id);
            }
        }
    }

    /// DataACKs of a task that no missing Data-In holds back any more become due at once.
    fn release_acks(&mut self, itt: Itt, now_us: u64) {
        let holes: Vec<DataSn> = self
            .entries
            .iter()
            .filter(|entry| entry.key == Key::of_task(itt))
            .map(|entry| DataSn(entry.group.begin))
            .collect();
        for entry in self.entries.iter_mut().filter(|entry| entry.key.itt == itt && is_ack(entry)) {
            if holes.iter().all(|hole| hole.ge(DataSn(entry.group.begin))) {
                entry.deadline_us = entry.deadline_us.min(now_us);
            }
        }
    }

    fn deadline_us(&self) -> Option<u64> {
        let waiting = self.entries.iter().filter(|entry| entry.state == SnackState::WAITING);
        waiting.map(|entry| entry.deadline_us).filter(|deadline_us| *deadline_us != NEVER).min()
    }
}

fn is_ack(entry: &Entry) -> bool {
    entry.key.snack_type == SnackType::DataAck
}

impl Connection {
    /// When a loss that is noticed now will be requested.
    pub(super) fn snack_deadline(&self, now_us: u64) -> u64 {
        now_us.saturating_add(u64::from(self.params.snack_delay_us))
    }

    pub(super) fn deadline_us(&self) -> Option<u64> {
        self.snacks.deadline_us()
    }

    /// Queues every SNACK whose time has come.
    pub(super) fn snacks_due(&mut self, now_us: u64) {
        let control = &mut self.control;
        self.snacks.become_due(now_us, |id| control.push_back(Control::Snack(id)));
    }

    /// The A bit: a DataACK is owed, and sent as soon as no earlier Data-In is missing.
    //= rfc7143 11.16.2 SNK-03
    pub(super) fn owe_ack(&mut self, itt: Itt, ttt: Ttt, lun: Lun, next: DataSn) {
        let key = Key { snack_type: SnackType::DataAck, itt };
        let group = Group { begin: next.0, length: 0, begin_offset: 0, end_offset: 0 };
        let (state, cause) = (SnackState::WAITING, SnackCause::A_BIT);
        self.snacks.push(Entry { id: 0, key, group, state, deadline_us: NEVER, cause, ttt, lun });
    }

    /// After Data-In of a task arrived: DataACKs that it held back are queued.
    pub(super) fn acks_due(&mut self, itt: Itt, now_us: u64) {
        self.snacks.release_acks(itt, now_us);
        self.snacks_due(now_us);
    }

    /// Makes the SNACK of an entry that is due; `None` when what it would request has arrived meanwhile.
    //= rfc7143 11.16 SNK-02 ERL-02
    pub(super) fn make_snack(&mut self, host: &mut Host, id: u64) -> Option<SnackRequest> {
        let exp_stat_sn = self.exp_stat_sn();
        let index = self.snacks.entries.iter().position(|entry| entry.id == id)?;
        let entry = &mut self.snacks.entries[index];
        entry.state = SnackState::SENT;
        let Entry { key: Key { snack_type, itt }, group, ttt, mut lun, .. } = *entry;
        let task = self.tasks.get(&itt.0);
        let (conn, user) = (self.params.conn, task.map_or(0, |task| task.post.user));
        let (beg_run, run_length) = (group.begin, group.length);
        let mut tag = itt;
        if snack_type == SnackType::DataAck {
            tag = Itt::RESERVED;
            self.snacks.entries.remove(index);
            let sent = DataackSent { conn, itt: itt.0, user, beg_run, ttt: ttt.0 };
            host.completions.push(Completion::DataackSent(sent));
        } else {
            lun = task.map_or(lun, |task| task.lun());
            let snack_type = snack_type.code();
            let sent = SnackSent { snack_type, conn, itt: itt.0, user, beg_run, run_length };
            host.completions.push(Completion::SnackSent(sent));
        }
        Some(SnackRequest { snack_type, lun, itt: tag, ttt, exp_stat_sn, beg_run, run_length })
    }
}
