//! The numbers and the order that RFC 7143 requires on the wire: CmdSN with its window and StatSN here; DataSN, R2TSN, transfer lengths and
//! the single status of every command in [`tasks`]; what ends commands in [`management`]. Written from the standard; the only code shared
//! with the products is the parser of headers.
//!
//! A rule is checked when its PDU is sent. So a window is judged by the largest one ever sent: an initiator cannot have seen a larger one.
//! At error recovery levels above 0 a number may come again; it may never come early.

mod management;
mod tasks;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use iscsi_wire::{
    CmdSn, Itt, LoginRequest, LoginResponse, LogoutReason, Lun, Pdu, ResponseNumbers, ScsiCommand, StatSn,
    TmfFunction, Tsih, Ttt,
};
use rustc_hash::FxHashMap;

use crate::agreed::Agreed;
use crate::verdict::Verdict;

/// Identifies a session that was seen.
pub(crate) type SessionId = usize;

#[derive(Default)]
struct Connection {
    cid: u16,
    /// StatSN of the next status; `None` until the first.
    next_stat_sn: Option<StatSn>,
    exp_cmd_sn: Option<CmdSn>,
    max_cmd_sn: Option<CmdSn>,
    tsih: u16,
    /// The initiator's own CmdSN as last shown on this connection: only a request that was lost may have a smaller one.
    current: CmdSn,
    session: Option<SessionId>,
    /// Neither end has closed it.
    open: bool,
    /// It was disturbed from outside.
    harmed: bool,
    /// The newest ExpStatSN of the initiator.
    told: Option<StatSn>,
    /// The StatSN after that of the last response of a command or of task management.
    responded: Option<StatSn>,
    stops: Vec<Stop>,
}

struct Transfer {
    /// The connection on which the R2T was sent.
    conn: usize,
    offset: u32,
    length: u32,
    next_data_sn: u32,
    received: u32,
    done: bool,
}

impl Transfer {
    /// Whether its next PDU may have this DataSN and offset.
    fn awaits(&self, in_order: bool, data_sn: u32, offset: u32) -> bool {
        data_sn == self.next_data_sn && (!in_order || offset == self.offset + self.received)
    }

    /// Whether it lies within what the R2T requested.
    fn has(&self, offset: u32, data: u32) -> bool {
        offset >= self.offset && offset + data <= self.offset + self.length
    }

    /// Counts the data of one PDU.
    fn count(&mut self, in_order: bool, offset: u32, data: u32) {
        self.received = match in_order {
            true => (offset + data).wrapping_sub(self.offset),
            false => self.received + data,
        };
    }
}

struct Task {
    command: ScsiCommand,
    conn: usize,
    immediate_bytes: u32,
    unsolicited_bytes: u32,
    unsolicited_open: bool,
    next_unsolicited: u32,
    next_in: u32,
    transfers: FxHashMap<Ttt, Transfer>,
    status: bool,
    /// The connection on which a response said that the task is over.
    over: Option<usize>,
    /// Its initiator has announced that it sends no more data for it.
    stopped: bool,
}

/// An outstanding function.
struct Function {
    itt: Itt,
    function: TmfFunction,
    lun: Lun,
    cmd_sn: CmdSn,
    referenced: Itt,
}

/// A notification to an initiator to stop sending.
struct Stop {
    lun: Lun,
    stat_sn: StatSn,
    tasks: Vec<Itt>,
}

struct Session {
    host: u8,
    tsih: Tsih,
    agreed: Agreed,
    next: CmdSn,
    early: BTreeSet<u32>,
    window_end: CmdSn,
    /// Every smaller number is known to be assigned to a request, whether sent or not.
    current: CmdSn,
    /// Connections that the initiator has closed: requests that waited there may come later, on another connection.
    lost: u32,
    /// Requests that were rejected before they took effect: their numbers may come again.
    rejects: u32,
    tasks: FxHashMap<Itt, Task>,
    functions: Vec<Function>,
    /// The connection of the last response with a fence, and the StatSN that lifts it.
    fence: Option<(usize, StatSn)>,
    /// The connection on which the I_T nexus reset was answered: nothing may be sent there any more.
    reset: Option<usize>,
    /// CmdSN of a requested target reset: the target may treat all smaller numbers as received, whether or not they arrived.
    filled_to: CmdSn,
    /// The numbers it treated so. Their requests may still arrive, without effect.
    missed: BTreeSet<u32>,
}

impl Session {
    /// All numbers before `current` are assigned.
    fn assigned(&mut self, current: CmdSn) {
        if current.gt(self.current) {
            self.current = current;
        }
    }

    fn take_number(&mut self, cmd_sn: CmdSn) {
        self.assigned(cmd_sn.next());
        self.early.insert(cmd_sn.0);
        while self.early.remove(&self.next.0) {
            self.next = self.next.next();
        }
    }

    /// The target acknowledges everything before `exp`; returns false if that is impossible.
    fn received(&mut self, exp: CmdSn) -> bool {
        while self.next.lt(exp) && self.next.lt(self.filled_to) {
            self.missed.insert(self.next.0);
            self.take_number(self.next);
        }
        !exp.gt(self.next)
    }
}

/// See the module.
pub(crate) struct Rules {
    connections: FxHashMap<usize, Connection>,
    sessions: Vec<Session>,
    verdict: Verdict,
}

impl Rules {
    pub(crate) fn new(verdict: Verdict) -> Self {
        Self { connections: FxHashMap::default(), sessions: Vec::new(), verdict }
    }

    pub(crate) fn cid_of(&self, conn: usize) -> Option<u16> {
        self.connections.get(&conn).map(|c| c.cid)
    }

    fn broken(&self, conn: usize, rule: &str, what: String) {
        self.verdict.broken(format!("{rule}: {what} (connection {conn})"));
    }

    pub(crate) fn login_request(&mut self, conn: usize, request: &LoginRequest) {
        let connection = self.connections.entry(conn).or_default();
        connection.cid = request.cid.0;
        connection.tsih = request.tsih.0;
        connection.open = true;
        connection.current = request.cmd_sn;
    }

    /// One end closes `conn`.
    pub(crate) fn closed(&mut self, conn: usize, by_initiator: bool) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        connection.open = false;
        if let Some(id) = connection.session.filter(|_| by_initiator) {
            self.sessions[id].lost += 1;
        }
    }

    /// `conn` is disturbed from outside.
    pub(crate) fn harmed(&mut self, conn: usize) {
        self.connections.entry(conn).or_default().harmed = true;
    }

    pub(crate) fn login_response(&mut self, conn: usize, response: &LoginResponse) {
        if response.status.class() == 0 {
            self.status(conn, response.numbers.stat_sn, 0, true);
        }
    }

    /// The login succeeded: records the session that `conn` now belongs to.
    pub(crate) fn established(
        &mut self,
        conn: usize,
        host: u8,
        response: &LoginResponse,
        agreed: &Agreed,
    ) -> Option<SessionId> {
        let connection = self.connections.get_mut(&conn)?;
        let current = connection.current;
        if connection.tsih != 0 {
            let same = |s: &Session| s.host == host && s.tsih == response.tsih;
            let known = self.sessions.iter().rposition(same);
            connection.session = known;
            match known {
                Some(id) => {
                    let session = &mut self.sessions[id];
                    if response.numbers.max_cmd_sn.gt(session.window_end) {
                        session.window_end = response.numbers.max_cmd_sn;
                    }
                    self.immediate(id, conn, current);
                }
                None => {
                    let what = format!("a connection joins TSIH {}, which nobody has", response.tsih.0);
                    self.broken(conn, "RFC 7143 6.3.1", what);
                }
            }
            return known;
        }
        connection.session = Some(self.sessions.len());
        if response.tsih.0 == 0 {
            self.broken(conn, "RFC 7143 11.13.3", "the last login response has TSIH 0".into());
        }
        self.sessions.push(Session {
            host,
            tsih: response.tsih,
            agreed: agreed.clone(),
            next: current,
            early: BTreeSet::new(),
            window_end: response.numbers.max_cmd_sn,
            current,
            lost: 0,
            rejects: 0,
            tasks: FxHashMap::default(),
            functions: Vec::new(),
            fence: None,
            reset: None,
            filled_to: current,
            missed: BTreeSet::new(),
        });
        Some(self.sessions.len() - 1)
    }

    /// A PDU with a status: StatSN increases by one for each on a connection. Returns false for a repeated status.
    fn status(&mut self, conn: usize, stat_sn: StatSn, level: u32, first_may_be_any: bool) -> bool {
        let Some(connection) = self.connections.get_mut(&conn) else { return false };
        let Some(next) = connection.next_stat_sn else {
            if first_may_be_any {
                connection.next_stat_sn = Some(stat_sn.next());
            }
            return true;
        };
        if stat_sn == next {
            connection.next_stat_sn = Some(stat_sn.next());
            return true;
        }
        if stat_sn.gt(next) || level == 0 {
            self.broken(conn, "RFC 7143 4.2.2.2", format!("StatSN {} where {} is next", stat_sn.0, next.0));
        }
        false
    }

    /// ExpCmdSN and MaxCmdSN, which every PDU of a target carries.
    fn window(&mut self, id: SessionId, conn: usize, numbers: ResponseNumbers) {
        let (exp, max) = (numbers.exp_cmd_sn, numbers.max_cmd_sn);
        let session = &mut self.sessions[id];
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        let before = (connection.exp_cmd_sn.replace(exp), connection.max_cmd_sn.replace(max));
        if max.gt(session.window_end) {
            session.window_end = max;
        }
        let received = session.received(exp);
        let next = session.next;
        if let (Some(exp_before), Some(max_before)) = before
            && (exp.lt(exp_before) || max.lt(max_before))
        {
            let what = format!(
                "the window goes back from {}..={} to {}..={}",
                exp_before.0, max_before.0, exp.0, max.0
            );
            return self.broken(conn, "RFC 7143 4.2.2.1", what);
        }
        if !received {
            let what = format!("ExpCmdSN {} acknowledges what was not sent: {} is next", exp.0, next.0);
            return self.broken(conn, "RFC 7143 4.2.2.1", what);
        }
        if max.lt(CmdSn(exp.0.wrapping_sub(1))) {
            self.broken(
                conn,
                "RFC 7143 4.2.2.1",
                format!("MaxCmdSN {} is below ExpCmdSN {} - 1", max.0, exp.0),
            );
        }
    }

    /// The CmdSN of an immediate request, or of the login of a further connection: the number that the next non-immediate request will
    /// have. Every smaller number is assigned to a request. If no connection was lost and no other connection has a queue, all those
    /// requests have been sent.
    fn immediate(&mut self, id: SessionId, conn: usize, cmd_sn: CmdSn) {
        let session = &mut self.sessions[id];
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        let (shown, known, end) = (connection.current, session.current, session.window_end);
        // With one connection at a time, a number assigned but not sent was lost with the previous connection. The login of the next
        // connection shows how many there are.
        let sure = session.agreed.max_connections == 1 && (session.lost == 0 || cmd_sn != shown);
        connection.current = cmd_sn;
        session.assigned(cmd_sn);
        let what = if cmd_sn.lt(shown) || sure && cmd_sn.lt(known) {
            format!("an immediate request has CmdSN {} after {} was given", cmd_sn.0, known.0.wrapping_sub(1))
        } else if sure && cmd_sn.gt(known) || cmd_sn.gt(end.next()) {
            format!("an immediate request has CmdSN {} where {} is next", cmd_sn.0, known.0)
        } else {
            return;
        };
        self.broken(conn, "RFC 7143 4.2.2.1", what);
    }

    /// A request with its number; returns false if it was sent before.
    fn request(&mut self, id: SessionId, conn: usize, immediate: bool, cmd_sn: CmdSn) -> bool {
        if immediate {
            self.immediate(id, conn, cmd_sn);
            return true;
        }
        let session = &mut self.sessions[id];
        let (next, end) = (session.next, session.window_end);
        if cmd_sn.gt(end) {
            self.broken(conn, "RFC 7143 4.2.2.1", format!("CmdSN {} is beyond MaxCmdSN {}", cmd_sn.0, end.0));
            return true;
        }
        if cmd_sn.lt(next) || session.early.contains(&cmd_sn.0) {
            if session.missed.remove(&cmd_sn.0) {
                // The target has already gone past this number.
            } else if session.rejects > 0 {
                session.rejects -= 1;
            } else if session.agreed.error_recovery_level == 0 {
                self.broken(conn, "RFC 7143 4.2.2.1", format!("CmdSN {} comes a second time", cmd_sn.0));
            }
            return false;
        }
        let Some(connection) = self.connections.get_mut(&conn) else { return true };
        let (shown, known) = (connection.current, session.current);
        let alone = session.agreed.max_connections == 1;
        let found = cmd_sn.lt(shown) && session.lost > 0;
        session.take_number(cmd_sn);
        if !found {
            connection.current = cmd_sn.next();
            if cmd_sn.lt(shown) || alone && cmd_sn != known {
                let what =
                    format!("CmdSN {} where {} is next", cmd_sn.0, if alone { known } else { shown }.0);
                self.broken(conn, "RFC 7143 4.2.2.1", what);
            }
        }
        true
    }

    pub(crate) fn sent_by_initiator(&mut self, id: SessionId, conn: usize, pdu: &Pdu, data: u32) {
        if let (Some(told), Some(connection)) = (exp_stat_sn(pdu), self.connections.get_mut(&conn))
            && connection.told.is_none_or(|before| told.gt(before))
        {
            connection.told = Some(told);
        }
        match pdu {
            Pdu::ScsiCommand(command) => self.command(id, conn, command, data),
            Pdu::TaskManagementRequest(p) => {
                self.request(id, conn, p.immediate, p.cmd_sn);
                self.function(id, conn, p);
            }
            Pdu::TextRequest(p) => drop(self.request(id, conn, p.immediate, p.cmd_sn)),
            Pdu::LogoutRequest(p) => {
                self.request(id, conn, p.immediate, p.cmd_sn);
                // An initiator that closes its session must have sent every number it assigned, lost or not.
                let (next, current) = (self.sessions[id].next, self.sessions[id].current);
                if p.reason == LogoutReason::CloseSession && next != current {
                    let what = format!("CmdSN {} was given and nothing has come with it", next.0);
                    self.broken(conn, "RFC 7143 4.2.2.1", what);
                }
            }
            Pdu::NopOut(p) => {
                self.request(id, conn, p.immediate, p.cmd_sn);
                self.has_stopped(id, conn, p);
            }
            Pdu::DataOut(out) => self.data_out(id, conn, out, data),
            Pdu::SnackRequest(_) if self.sessions[id].agreed.error_recovery_level == 0 => {
                self.broken(conn, "RFC 7143 11.16", "SNACK at error recovery level 0".into());
            }
            Pdu::SnackRequest(_) => {}
            other => {
                let what = format!("an initiator sends {}", other.opcode().name());
                self.broken(conn, "RFC 7143 11.2.1.2", what);
            }
        }
    }

    pub(crate) fn sent_by_target(&mut self, id: SessionId, conn: usize, pdu: &Pdu, data: u32) {
        let level = self.sessions[id].agreed.error_recovery_level;
        let numbers = match pdu {
            Pdu::NopIn(p) => {
                if !p.itt.is_reserved() {
                    self.status(conn, p.numbers.stat_sn, level, false);
                }
                p.numbers
            }
            Pdu::ScsiResponse(p) => {
                if self.status(conn, p.numbers.stat_sn, level, false) {
                    self.goes_on(id, conn, p.itt, "a status");
                    self.responded(id, conn, p.numbers.stat_sn);
                }
                self.task_ended(id, conn, p.itt, level);
                p.numbers
            }
            Pdu::DataIn(p) => {
                self.goes_on(id, conn, p.itt, "Data-In");
                self.data_in(id, conn, p, data);
                if p.status_bit {
                    if self.status(conn, p.numbers.stat_sn, level, false) {
                        self.responded(id, conn, p.numbers.stat_sn);
                    }
                    self.task_ended(id, conn, p.itt, level);
                }
                p.numbers
            }
            Pdu::R2t(p) => {
                self.goes_on(id, conn, p.itt, "an R2T");
                self.r2t(id, conn, p);
                p.numbers
            }
            Pdu::TaskManagementResponse(p) => {
                if self.status(conn, p.numbers.stat_sn, level, false) {
                    self.answered(id, conn, p);
                }
                p.numbers
            }
            Pdu::TextResponse(p) => {
                self.status(conn, p.numbers.stat_sn, level, false);
                p.numbers
            }
            Pdu::LogoutResponse(p) => {
                self.status(conn, p.numbers.stat_sn, level, false);
                p.numbers
            }
            Pdu::AsyncMessage(p) => {
                if self.status(conn, p.numbers.stat_sn, level, false) {
                    self.told_to_stop(id, conn, p);
                }
                p.numbers
            }
            Pdu::Reject(p) => {
                self.sessions[id].rejects += 1;
                self.status(conn, p.numbers.stat_sn, level, false);
                p.numbers
            }
            other => {
                let what = format!("a target sends {}", other.opcode().name());
                return self.broken(conn, "RFC 7143 11.2.1.2", what);
            }
        };
        self.window(id, conn, numbers);
    }
}

/// ExpStatSN of an initiator's PDU in full feature phase.
fn exp_stat_sn(pdu: &Pdu) -> Option<StatSn> {
    Some(match pdu {
        Pdu::ScsiCommand(p) => p.exp_stat_sn,
        Pdu::DataOut(p) => p.exp_stat_sn,
        Pdu::TaskManagementRequest(p) => p.exp_stat_sn,
        Pdu::NopOut(p) => p.exp_stat_sn,
        Pdu::TextRequest(p) => p.exp_stat_sn,
        Pdu::LogoutRequest(p) => p.exp_stat_sn,
        Pdu::SnackRequest(p) => p.exp_stat_sn,
        _ => return None,
    })
}
