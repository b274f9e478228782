//! What the connections of a session share: the command window, who is there, and the tasks of connections that
//! were lost.

use super::lock;
use super::transfer::Task;
use crate::frame::{Frame, Received};
use iscsi_wire::{Cid, CmdSn, Isid, Itt, Opcode, Pdu, Tsih, keys, parse_number};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a logout or a login waits for the connection that it ends.
const LEAVING_TIME: Duration = Duration::from_secs(2);

/// A session of an evil target.
pub(super) struct EvilSession {
    /// InitiatorName and ISID.
    pub(super) identity: Mutex<(String, Isid)>,
    /// Held while a numbered command is taken and served: commands take effect in CmdSN order.
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
    /// Numbers that no command will bring any more.
    plugged: HashSet<u32>,
    results: HashMap<String, String>,
    /// CIDs, with the number of the connection that each has now.
    live: HashMap<u16, u32>,
    /// Connections that were logged out or replaced from elsewhere, and have not seen it.
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

/// A task whose connection was lost: it waits for TASK REASSIGN.
#[derive(Default)]
pub(super) struct Orphan {
    /// A write that still wants data.
    pub(super) task: Option<Task>,
    /// Its Data-In PDUs that were not acknowledged.
    pub(super) data: BTreeMap<u32, Frame>,
    /// Its response, if it was sent.
    pub(super) status: Option<Frame>,
}

/// What a TASK REASSIGN finds.
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

    /// The leading login begins with this CmdSN.
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

    /// What the leading login resulted in, without what belongs to a connection.
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

    /// A connection with this CID comes; `false` when there are too many. One that has the CID must end.
    pub(super) fn enter(&self, cid: Cid, connection: u32) -> bool {
        let mut state = lock(&self.state);
        let most = Self::number(&state, keys::MAX_CONNECTIONS, 1);
        let again = state.live.contains_key(&cid.0);
        if !again && !state.live.is_empty() && state.live.len() as u64 >= most {
            return false;
        }
        state.several |= !state.live.is_empty() && !again;
        state.gone.remove(&cid.0);
        // Who brings a connection back needs not be told that it was lost.
        state.news.retain(|lost| *lost != cid);
        let old = state.live.insert(cid.0, connection);
        self.wait_until_gone(state, old);
        true
    }

    /// Waits until the connection `number`, which has no CID any more, has left its tasks behind; not for ever, for it may be
    /// waiting for its turn.
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

    /// Did the session ever have several connections?
    pub(super) fn is_several(&self) -> bool {
        lock(&self.state).several
    }

    /// A logout for `cid`; `false` when there is no such connection. Its thread sees it and ends.
    pub(super) fn remove(&self, cid: Cid) -> bool {
        let mut state = lock(&self.state);
        state.news.retain(|lost| *lost != cid);
        let old = state.live.remove(&cid.0);
        let known = state.gone.remove(&cid.0) || old.is_some();
        self.wait_until_gone(state, old);
        known
    }

    /// All connections end.
    pub(super) fn end(&self) {
        let mut state = lock(&self.state);
        state.live.clear();
        state.orphans.clear();
    }

    /// A connection is over, and these tasks have none. `lost`: without a logout. Are others left?
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

    /// A connection that was lost and that nobody was told of yet.
    pub(super) fn news(&self) -> Option<Cid> {
        lock(&self.state).news.pop()
    }

    /// A task began on this connection.
    pub(super) fn task(&self, itt: u32, connection: u32) {
        lock(&self.state).tasks.insert(itt, connection);
    }

    /// The status of these tasks was acknowledged.
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

    /// Does a command of this connection with this tag wait for its turn?
    pub(super) fn awaits(&self, itt: Itt, connection: u32) -> bool {
        let state = lock(&self.state);
        state.waiting.values().any(|(of, rx)| *of == connection && rx.bhs.itt() == itt)
    }

    /// Takes the next PDU in CmdSN order, if this connection has it.
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

    /// The CmdSN counts as received, if it had not been. Had it not?
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

    /// A MaxCmdSN that was sent.
    pub(super) fn told(&self, max_cmd_sn: CmdSn) {
        let mut state = lock(&self.state);
        if state.numbering.max_cmd_sn.is_none_or(|before| before.lt(max_cmd_sn)) {
            state.numbering.max_cmd_sn = Some(max_cmd_sn);
        }
    }

    /// What is wrong with the number of a PDU that came: the row, and words.
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
    /// On several connections PDUs overtake each other: then only that no number is beyond the window.
    fn check(&mut self, pdu: &Pdu, rx: &Received, several: bool) -> Option<(&'static str, String)> {
        if matches!(pdu, Pdu::DataOut(_) | Pdu::SnackRequest(_) | Pdu::LoginRequest(_)) {
            return None;
        }
        let cmd_sn = rx.bhs.cmd_sn();
        let due = self.cmd_sn.unwrap_or(cmd_sn);
        let immediate = rx.bhs.immediate();
        // A command may be sent again to fill a hole; its CmdSN was seen before.
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
pub(super) fn counts(rx: &Received) -> bool {
    let numbered = [
        Opcode::NopOut,
        Opcode::ScsiCommand,
        Opcode::TaskManagementRequest,
        Opcode::TextRequest,
        Opcode::LogoutRequest,
    ];
    !rx.bhs.immediate() && Opcode::try_from(rx.bhs.opcode()).is_ok_and(|opcode| numbered.contains(&opcode))
}
