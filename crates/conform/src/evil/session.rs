//! The state that the connections of a session share: the command window, the live connections, and the tasks of lost
//! connections.

use super::kept::Orphan;
use super::lock;
use crate::frame::Received;
use iscsi_wire::{Cid, CmdSn, Isid, Itt, Opcode, Pdu, Tsih, keys, parse_number};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a logout or a login waits for the connection that it replaces or removes.
const LEAVING_TIME: Duration = Duration::from_secs(2);

/// A session of an evil target.
pub(super) struct EvilSession {
    /// InitiatorName and ISID.
    pub(super) identity: Mutex<(String, Isid)>,
    /// Held while a numbered command is taken and served, so that commands take effect in CmdSN order.
    pub(super) turn: Mutex<()>,
    state: Mutex<State>,
    /// A connection has left.
    left: Condvar,
    window: u32,
}

#[derive(Default)]
struct State {
    tsih: Tsih,
    exp_cmd_sn: CmdSn,
    waiting: BTreeMap<u32, (u32, Received)>,
    /// Numbers that no command will carry any more.
    plugged: HashSet<u32>,
    results: HashMap<String, String>,
    /// CIDs, with the number of the connection that currently has each.
    live: HashMap<u16, u32>,
    /// Connections that were logged out or replaced from another connection and have not noticed yet.
    leaving: HashSet<u32>,
    several: bool,
    news: Vec<Cid>,
    orphans: HashMap<u32, Orphan>,
    gone: HashSet<u16>,
    tasks: HashMap<u32, u32>,
    numbering: Numbering,
}

impl State {
    fn skip_plugged(&mut self) {
        while self.plugged.remove(&self.exp_cmd_sn.0) {
            self.exp_cmd_sn = self.exp_cmd_sn.next();
        }
    }
}

/// The state of the task that a TASK REASSIGN names.
pub(super) enum Found {
    Waiting(Box<Orphan>),
    Allegiant,
    Nothing,
}

impl EvilSession {
    pub(super) fn new(window: u32) -> Self {
        EvilSession {
            identity: Mutex::new((String::new(), Isid([0; 6]))),
            turn: Mutex::new(()),
            state: Mutex::default(),
            left: Condvar::new(),
            window,
        }
    }

    /// The leading login starts with this CmdSN.
    pub(super) fn begin(&self, cmd_sn: CmdSn) {
        let mut state = lock(&self.state);
        state.exp_cmd_sn = cmd_sn;
        state.numbering.cmd_sn = Some(cmd_sn);
    }

    /// The leading login succeeded.
    pub(super) fn establish(&self, tsih: Tsih, results: &HashMap<String, String>) {
        let mut state = lock(&self.state);
        (state.tsih, state.results) = (tsih, results.clone());
    }

    pub(super) fn tsih(&self) -> Tsih {
        lock(&self.state).tsih
    }

    /// The results of the leading login, without those that belong to a connection.
    pub(super) fn results(&self) -> HashMap<String, String> {
        let mut results = lock(&self.state).results.clone();
        results.retain(|key, _| ![keys::HEADER_DIGEST, keys::DATA_DIGEST].contains(&key.as_str()));
        results
    }

    fn number(state: &State, key: &str, default: u64) -> u64 {
        state.results.get(key).and_then(|value| parse_number(value).ok()).unwrap_or(default)
    }

    pub(super) fn level(&self) -> u64 {
        Self::number(&lock(&self.state), keys::ERROR_RECOVERY_LEVEL, 0)
    }

    /// Adds a connection with this CID; `false` when there are too many. An existing connection with this CID must end.
    pub(super) fn enter(&self, cid: Cid, connection: u32) -> bool {
        let mut state = lock(&self.state);
        let most = Self::number(&state, keys::MAX_CONNECTIONS, 1);
        let again = state.live.contains_key(&cid.0);
        if !again && !state.live.is_empty() && state.live.len() as u64 >= most {
            return false;
        }
        state.several |= !state.live.is_empty() && !again;
        state.gone.remove(&cid.0);
        // An initiator that brings a connection back need not be told that it was lost.
        state.news.retain(|lost| *lost != cid);
        let old = state.live.insert(cid.0, connection);
        self.wait_until_gone(state, old);
        true
    }

    /// Waits until the connection `number`, which no longer has a CID, has left its tasks behind. The wait is limited,
    /// because that connection may be waiting for its turn.
    fn wait_until_gone(&self, mut state: MutexGuard<'_, State>, number: Option<u32>) {
        let Some(number) = number else { return };
        state.leaving.insert(number);
        let still = |state: &mut State| state.leaving.contains(&number);
        let waited = self.left.wait_timeout_while(state, LEAVING_TIME, still);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Is this connection still the one with its CID?
    pub(super) fn is_current(&self, cid: Cid, connection: u32) -> bool {
        lock(&self.state).live.get(&cid.0) == Some(&connection)
    }

    /// Has the session ever had several connections?
    pub(super) fn is_several(&self) -> bool {
        lock(&self.state).several
    }

    /// A logout of `cid`; `false` when there is no such connection. Its thread notices and ends.
    pub(super) fn remove(&self, cid: Cid) -> bool {
        let mut state = lock(&self.state);
        state.news.retain(|lost| *lost != cid);
        let old = state.live.remove(&cid.0);
        let known = state.gone.remove(&cid.0) || old.is_some();
        self.wait_until_gone(state, old);
        known
    }

    /// Ends all connections.
    pub(super) fn end(&self) {
        let mut state = lock(&self.state);
        state.live.clear();
        state.orphans.clear();
    }

    /// A connection has ended and left these tasks behind. `lost`: without a logout. Returns whether other connections are
    /// left.
    pub(super) fn leave(&self, cid: Cid, connection: u32, lost: bool, orphans: HashMap<u32, Orphan>) -> bool {
        let mut state = lock(&self.state);
        state.waiting.retain(|_, (of, _)| *of != connection);
        state.tasks.retain(|_, of| *of != connection);
        if state.live.get(&cid.0) == Some(&connection) {
            state.live.remove(&cid.0);
            if lost {
                state.news.push(cid);
                state.gone.insert(cid.0);
            }
        }
        if Self::number(&state, keys::ERROR_RECOVERY_LEVEL, 0) >= 2 {
            state.orphans.extend(orphans);
        }
        state.leaving.remove(&connection);
        self.left.notify_all();
        !state.live.is_empty()
    }

    /// A lost connection of which the initiator has not been notified yet.
    pub(super) fn news(&self) -> Option<Cid> {
        lock(&self.state).news.pop()
    }

    /// A task started on this connection.
    pub(super) fn task(&self, itt: u32, connection: u32) {
        lock(&self.state).tasks.insert(itt, connection);
    }

    /// The status of this task was acknowledged.
    pub(super) fn forget(&self, itt: u32) {
        let mut state = lock(&self.state);
        state.tasks.remove(&itt);
    }

    /// TASK REASSIGN of this task to this connection.
    pub(super) fn reassign(&self, itt: u32, connection: u32) -> Found {
        let mut state = lock(&self.state);
        match state.orphans.remove(&itt) {
            Some(orphan) => {
                state.tasks.insert(itt, connection);
                Found::Waiting(Box::new(orphan))
            }
            None if state.tasks.contains_key(&itt) => Found::Allegiant,
            None => Found::Nothing,
        }
    }

    pub(super) fn exp_cmd_sn(&self) -> CmdSn {
        lock(&self.state).exp_cmd_sn
    }

    pub(super) fn max_cmd_sn(&self) -> CmdSn {
        CmdSn(self.exp_cmd_sn().0.wrapping_add(self.window).wrapping_sub(1))
    }

    /// Keeps a numbered PDU until its turn comes, if it is in the window.
    pub(super) fn wait(&self, connection: u32, rx: Received) {
        let max = self.max_cmd_sn();
        let mut state = lock(&self.state);
        let cmd_sn = rx.bhs.cmd_sn();
        let max = state.numbering.max_cmd_sn.unwrap_or(max);
        if state.exp_cmd_sn.le(cmd_sn) && cmd_sn.le(max) {
            state.waiting.entry(cmd_sn.0).or_insert((connection, rx));
        }
    }

    /// Is a command of this connection with this tag waiting for its turn?
    pub(super) fn awaits(&self, itt: Itt, connection: u32) -> bool {
        let state = lock(&self.state);
        state.waiting.values().any(|(of, rx)| *of == connection && rx.bhs.itt() == itt)
    }

    /// Takes the next PDU in CmdSN order, if it belongs to this connection.
    pub(super) fn take(&self, connection: u32) -> Option<Received> {
        let mut state = lock(&self.state);
        let now = state.exp_cmd_sn;
        if state.waiting.get(&now.0).is_none_or(|(of, _)| *of != connection) {
            return None;
        }
        state.exp_cmd_sn = now.next();
        state.skip_plugged();
        state.waiting.remove(&now.0).map(|(_, rx)| rx)
    }

    /// Counts the CmdSN as received; returns whether it had not been received before.
    pub(super) fn plug(&self, cmd_sn: CmdSn) -> bool {
        let mut state = lock(&self.state);
        if state.exp_cmd_sn.le(cmd_sn) {
            state.waiting.remove(&cmd_sn.0);
            state.plugged.insert(cmd_sn.0);
            state.skip_plugged();
            return true;
        }
        false
    }

    /// Records a MaxCmdSN that was sent.
    pub(super) fn told(&self, max_cmd_sn: CmdSn) {
        let mut state = lock(&self.state);
        if state.numbering.max_cmd_sn.is_none_or(|before| before.lt(max_cmd_sn)) {
            state.numbering.max_cmd_sn = Some(max_cmd_sn);
        }
    }

    /// What is wrong with the number of a received PDU: the row, and a description.
    pub(super) fn number_of(&self, pdu: &Pdu, rx: &Received) -> Option<(&'static str, String)> {
        let mut state = lock(&self.state);
        let several = state.several;
        state.numbering.check(pdu, rx, several)
    }
}

/// CmdSN as an initiator must count it.
#[derive(Debug, Default)]
struct Numbering {
    cmd_sn: Option<CmdSn>,
    max_cmd_sn: Option<CmdSn>,
    seen: HashSet<u32>,
}

impl Numbering {
    /// With several connections PDUs overtake each other; then it only checks that no number is beyond the window.
    fn check(&mut self, pdu: &Pdu, rx: &Received, several: bool) -> Option<(&'static str, String)> {
        if matches!(pdu, Pdu::DataOut(_) | Pdu::SnackRequest(_) | Pdu::LoginRequest(_)) {
            return None;
        }
        let cmd_sn = rx.bhs.cmd_sn();
        let due = self.cmd_sn.unwrap_or(cmd_sn);
        let immediate = rx.bhs.immediate();
        // A command may be sent again to fill a hole; then its CmdSN has been seen before.
        let again = self.seen.contains(&cmd_sn.0);
        let wrong = !several && cmd_sn != due && (immediate || !again);
        if immediate || again {
            return wrong.then(|| ("NUM-01", format!("CmdSN {due} was due: {}", rx.line())));
        }
        self.seen.insert(cmd_sn.0);
        let above = self.max_cmd_sn.is_some_and(|max| max.lt(cmd_sn));
        if !several || due.le(cmd_sn) {
            self.cmd_sn = Some(cmd_sn.next());
        }
        match (above, wrong) {
            (true, _) => Some(("NUM-06", format!("above MaxCmdSN: {}", rx.line()))),
            (_, true) => Some(("NUM-01", format!("CmdSN {due} was due: {}", rx.line()))),
            _ => None,
        }
    }
}

/// Does the PDU have a CmdSN that counts?
pub(crate) fn counts(rx: &Received) -> bool {
    let numbered = [
        Opcode::NopOut,
        Opcode::ScsiCommand,
        Opcode::TaskManagementRequest,
        Opcode::TextRequest,
        Opcode::LogoutRequest,
    ];
    !rx.bhs.immediate() && Opcode::try_from(rx.bhs.opcode()).is_ok_and(|opcode| numbered.contains(&opcode))
}
