//! The numbers of RFC 7143 as they must look on the wire: CmdSN and its window, StatSN, DataSN, R2TSN, transfer lengths, and one
//! status for every command. Written from the standard, sharing nothing with the products but the parser of headers.
//!
//! A rule is checked where its PDU is sent. So a window is judged by the largest one that was ever sent: an initiator can have
//! seen no larger one. At error recovery levels above 0 a number may come again; it may never come early.

use std::collections::BTreeSet;

use iscsi_wire::{
    CmdSn, DataIn, DataOut, Itt, LoginRequest, LoginResponse, LogoutReason, Pdu, R2t, ScsiCommand, StatSn,
    TmfFunction, Tsih, Ttt,
};
use rustc_hash::FxHashMap;

use crate::verdict::Verdict;
use crate::watch::Agreed;

/// Names a session that was seen.
pub type SessionId = usize;

#[derive(Default)]
struct Connection {
    cid: u16,
    /// StatSN of the next status; `None` until the first.
    next_stat_sn: Option<StatSn>,
    exp_cmd_sn: Option<CmdSn>,
    max_cmd_sn: Option<CmdSn>,
    tsih: u16,
    /// The initiator's own CmdSN as this connection has shown it last: no request but one that was lost has a smaller one.
    current: CmdSn,
    session: Option<SessionId>,
}

struct Transfer {
    offset: u32,
    length: u32,
    next_data_sn: u32,
    received: u32,
    done: bool,
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
}

struct Session {
    host: u8,
    tsih: Tsih,
    agreed: Agreed,
    next: CmdSn,
    early: BTreeSet<u32>,
    window_end: CmdSn,
    /// Every number before it is known to be given to a request, be it sent or not.
    current: CmdSn,
    /// Connections that its initiator has closed: requests that had waited there may come later, and elsewhere.
    lost: u32,
    /// Requests that were refused before they took effect: their numbers may come again.
    rejects: u32,
    tasks: FxHashMap<Itt, Task>,
}

impl Session {
    /// All numbers before `current` are given.
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
}

/// See the module.
pub(crate) struct Rules {
    connections: FxHashMap<usize, Connection>,
    sessions: Vec<Session>,
    verdict: Verdict,
}

impl Rules {
    pub fn new(verdict: Verdict) -> Self {
        Self { connections: FxHashMap::default(), sessions: Vec::new(), verdict }
    }

    pub fn cid_of(&self, conn: usize) -> Option<u16> {
        self.connections.get(&conn).map(|c| c.cid)
    }

    fn broken(&self, conn: usize, rule: &str, what: String) {
        self.verdict.broken(format!("{rule}: {what} (connection {conn})"));
    }

    pub fn login_request(&mut self, conn: usize, _host: u8, request: &LoginRequest) {
        let connection = self.connections.entry(conn).or_default();
        connection.cid = request.cid.0;
        connection.tsih = request.tsih.0;
        connection.current = request.cmd_sn;
    }

    /// The initiator closes `conn`.
    pub fn closed(&mut self, conn: usize) {
        if let Some(id) = self.connections.get(&conn).and_then(|connection| connection.session) {
            self.sessions[id].lost += 1;
        }
    }

    pub fn login_response(&mut self, conn: usize, response: &LoginResponse) {
        if response.status.class() == 0 {
            self.status(conn, response.stat_sn, 0, true);
        }
    }

    /// The login has ended well: the session that `conn` now belongs to.
    pub fn established(
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
                    if response.max_cmd_sn.gt(session.window_end) {
                        session.window_end = response.max_cmd_sn;
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
            window_end: response.max_cmd_sn,
            current,
            lost: 0,
            rejects: 0,
            tasks: FxHashMap::default(),
        });
        Some(self.sessions.len() - 1)
    }

    /// A PDU with a status: StatSN counts them, one after the other on each connection.
    fn status(&mut self, conn: usize, stat_sn: StatSn, level: u32, first_may_be_any: bool) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        let Some(next) = connection.next_stat_sn else {
            if first_may_be_any {
                connection.next_stat_sn = Some(stat_sn.next());
            }
            return;
        };
        if stat_sn == next {
            connection.next_stat_sn = Some(stat_sn.next());
        } else if stat_sn.gt(next) || level == 0 {
            self.broken(conn, "RFC 7143 4.2.2.2", format!("StatSN {} where {} is next", stat_sn.0, next.0));
        }
    }

    /// The pair that every PDU of a target carries.
    fn window(&mut self, id: SessionId, conn: usize, exp: CmdSn, max: CmdSn) {
        let session = &mut self.sessions[id];
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        let before = (connection.exp_cmd_sn.replace(exp), connection.max_cmd_sn.replace(max));
        if max.gt(session.window_end) {
            session.window_end = max;
        }
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
        if exp.gt(next) {
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

    /// The CmdSN of an immediate request, or of the login of a further connection: the one that the next request that counts
    /// will have. Every smaller one is given to a request; where no connection was lost and no other one has a queue, to one
    /// that was sent.
    fn immediate(&mut self, id: SessionId, conn: usize, cmd_sn: CmdSn) {
        let session = &mut self.sessions[id];
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        let (shown, known, end) = (connection.current, session.current, session.window_end);
        // With one connection at a time, what is given and not sent was lost with the one before, whose successor's login says
        // how much that is.
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

    /// A request with its number; false when it is one that was sent before.
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
            if session.rejects > 0 {
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

    pub fn sent_by_initiator(&mut self, id: SessionId, conn: usize, pdu: &Pdu, data: u32) {
        match pdu {
            Pdu::ScsiCommand(command) => self.command(id, conn, command, data),
            Pdu::TaskManagementRequest(p) => {
                self.request(id, conn, p.immediate, p.cmd_sn);
                // A command that never arrived counts as received when its abort does (RFC 7143 11.5.5).
                let session = &mut self.sessions[id];
                if p.function == TmfFunction::AbortTask && !p.ref_cmd_sn.lt(session.next) {
                    session.take_number(p.ref_cmd_sn);
                }
            }
            Pdu::TextRequest(p) => drop(self.request(id, conn, p.immediate, p.cmd_sn)),
            Pdu::LogoutRequest(p) => {
                self.request(id, conn, p.immediate, p.cmd_sn);
                // Who has nothing more to do has sent every number that was given, lost or not.
                let (next, current) = (self.sessions[id].next, self.sessions[id].current);
                if p.reason == LogoutReason::CloseSession && next != current {
                    let what = format!("CmdSN {} was given and nothing has come with it", next.0);
                    self.broken(conn, "RFC 7143 4.2.2.1", what);
                }
            }
            Pdu::NopOut(p) => drop(self.request(id, conn, p.immediate, p.cmd_sn)),
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

    fn command(&mut self, id: SessionId, conn: usize, command: &ScsiCommand, data: u32) {
        let fresh = self.request(id, conn, command.immediate, command.cmd_sn);
        let session = &mut self.sessions[id];
        let agreed = &session.agreed;
        let edtl = command.expected_data_transfer_length;
        let first = agreed.first_burst_length.min(agreed.max_burst_length);
        let finding = if data > 0 && !agreed.immediate_data {
            Some(("RFC 7143 13.11", format!("{data} bytes of immediate data although ImmediateData is No")))
        } else if data > first.min(edtl) {
            Some((
                "RFC 7143 13.14",
                format!("{data} bytes of immediate data, at most {} are allowed", first.min(edtl)),
            ))
        } else if !command.final_bit && agreed.initial_r2t {
            Some(("RFC 7143 13.10", "unsolicited data although InitialR2T is Yes".to_owned()))
        } else {
            None
        };
        let known = session.tasks.get(&command.itt);
        let again = known.is_some_and(|task| task.command.cdb == command.cdb && !task.status);
        let collides = known.is_some_and(|task| !task.status) && fresh;
        if let Some((rule, what)) = finding {
            return self.broken(conn, rule, what);
        }
        if collides {
            return self.broken(conn, "RFC 7143 11.2.1.8", format!("ITT {} is in use", command.itt));
        }
        if again {
            let task = session.tasks.get_mut(&command.itt);
            if let Some(task) = task {
                task.conn = conn;
                task.next_unsolicited = 0;
                task.unsolicited_bytes = data;
                task.unsolicited_open = !command.final_bit;
            }
            return;
        }
        if !fresh {
            return;
        }
        let task = Task {
            command: *command,
            conn,
            immediate_bytes: data,
            unsolicited_bytes: data,
            unsolicited_open: !command.final_bit,
            next_unsolicited: 0,
            next_in: 0,
            transfers: FxHashMap::default(),
            status: false,
        };
        session.tasks.insert(command.itt, task);
    }

    fn data_out(&mut self, id: SessionId, conn: usize, out: &DataOut, data: u32) {
        let session = &mut self.sessions[id];
        let level = session.agreed.error_recovery_level;
        let first = session.agreed.first_burst_length.min(session.agreed.max_burst_length);
        let Some(task) = session.tasks.get_mut(&out.itt) else {
            return self.broken(
                conn,
                "RFC 7143 11.7",
                format!("Data-Out for ITT {}, which is no task", out.itt),
            );
        };
        let sn = out.data_sn.0;
        let finding = if out.ttt.is_reserved() {
            let fits = task.unsolicited_open && task.unsolicited_bytes + data <= first;
            let in_turn = sn == task.next_unsolicited && out.buffer_offset == task.unsolicited_bytes;
            let finding = match (fits, in_turn) {
                (false, _) if level == 0 => Some((
                    "RFC 7143 13.14",
                    format!(
                        "unsolicited data of {} bytes, FirstBurstLength is {first}",
                        task.unsolicited_bytes + data
                    ),
                )),
                (_, false) if level == 0 => Some((
                    "RFC 7143 11.7.5",
                    format!(
                        "unsolicited DataSN {sn} at {}, not {} at {}",
                        out.buffer_offset, task.next_unsolicited, task.unsolicited_bytes
                    ),
                )),
                _ => None,
            };
            task.next_unsolicited = sn.wrapping_add(1);
            task.unsolicited_bytes += data;
            task.unsolicited_open &= !out.final_bit;
            finding
        } else {
            match task.transfers.get_mut(&out.ttt) {
                None => Some((
                    "RFC 7143 11.7.4",
                    format!("Data-Out for TTT {} of ITT {}, which nobody asked for", out.ttt, out.itt),
                )),
                Some(transfer) => {
                    let expected = transfer.offset + transfer.received;
                    let in_turn = sn == transfer.next_data_sn && out.buffer_offset == expected;
                    let inside = out.buffer_offset >= transfer.offset
                        && out.buffer_offset + data <= transfer.offset + transfer.length;
                    transfer.next_data_sn = sn.wrapping_add(1);
                    transfer.received = (out.buffer_offset + data).wrapping_sub(transfer.offset);
                    transfer.done |= out.final_bit;
                    let whole = !out.final_bit || transfer.received == transfer.length;
                    match (inside, in_turn, whole) {
                        (false, ..) => Some((
                            "RFC 7143 11.8.4",
                            format!("Data-Out at {} of {data} bytes leaves its R2T", out.buffer_offset),
                        )),
                        (_, false, _) => Some((
                            "RFC 7143 11.7.5",
                            format!("DataSN {sn} at {}, {expected} is next", out.buffer_offset),
                        )),
                        (.., false) => Some((
                            "RFC 7143 11.8",
                            format!(
                                "the sequence of TTT {} ends after {} of {} bytes",
                                out.ttt, transfer.received, transfer.length
                            ),
                        )),
                        _ => None,
                    }
                }
            }
        };
        if let Some((rule, what)) = finding {
            self.broken(conn, rule, what);
        }
    }

    pub fn sent_by_target(&mut self, id: SessionId, conn: usize, pdu: &Pdu, data: u32) {
        let level = self.sessions[id].agreed.error_recovery_level;
        let (exp, max) = match pdu {
            Pdu::NopIn(p) => {
                if !p.itt.is_reserved() {
                    self.status(conn, p.stat_sn, level, false);
                }
                (p.exp_cmd_sn, p.max_cmd_sn)
            }
            Pdu::ScsiResponse(p) => {
                self.status(conn, p.stat_sn, level, false);
                self.task_ended(id, conn, p.itt, level);
                (p.exp_cmd_sn, p.max_cmd_sn)
            }
            Pdu::DataIn(p) => {
                self.data_in(id, conn, p, data);
                if p.status_bit {
                    self.status(conn, p.stat_sn, level, false);
                    self.task_ended(id, conn, p.itt, level);
                }
                (p.exp_cmd_sn, p.max_cmd_sn)
            }
            Pdu::R2t(p) => {
                self.r2t(id, conn, p);
                (p.exp_cmd_sn, p.max_cmd_sn)
            }
            Pdu::TaskManagementResponse(p) => {
                self.status(conn, p.stat_sn, level, false);
                (p.exp_cmd_sn, p.max_cmd_sn)
            }
            Pdu::TextResponse(p) => {
                self.status(conn, p.stat_sn, level, false);
                (p.exp_cmd_sn, p.max_cmd_sn)
            }
            Pdu::LogoutResponse(p) => {
                self.status(conn, p.stat_sn, level, false);
                (p.exp_cmd_sn, p.max_cmd_sn)
            }
            Pdu::AsyncMessage(p) => {
                self.status(conn, p.stat_sn, level, false);
                (p.exp_cmd_sn, p.max_cmd_sn)
            }
            Pdu::Reject(p) => {
                self.sessions[id].rejects += 1;
                self.status(conn, p.stat_sn, level, false);
                (p.exp_cmd_sn, p.max_cmd_sn)
            }
            other => {
                let what = format!("a target sends {}", other.opcode().name());
                return self.broken(conn, "RFC 7143 11.2.1.2", what);
            }
        };
        self.window(id, conn, exp, max);
    }

    fn task_ended(&mut self, id: SessionId, conn: usize, itt: Itt, level: u32) {
        let task = self.sessions[id].tasks.get_mut(&itt);
        match task.map(|task| std::mem::replace(&mut task.status, true)) {
            None => self.broken(conn, "RFC 7143 11.4", format!("a status for ITT {itt}, which is no task")),
            Some(true) if level == 0 => {
                self.broken(conn, "RFC 7143 11.4", format!("a second status for ITT {itt}"));
            }
            Some(_) => {}
        }
    }

    fn data_in(&mut self, id: SessionId, conn: usize, data_in: &DataIn, data: u32) {
        let session = &mut self.sessions[id];
        let level = session.agreed.error_recovery_level;
        let free = session.agreed.allegiance_free;
        let Some(task) = session.tasks.get_mut(&data_in.itt) else {
            return self.broken(
                conn,
                "RFC 7143 11.7",
                format!("Data-In for ITT {}, which is no task", data_in.itt),
            );
        };
        let sn = data_in.data_sn.0;
        let next = task.next_in;
        let edtl = task.command.expected_data_transfer_length;
        let other_connection = task.conn != conn && !free;
        let ended = task.status;
        // A status without data has a DataSN that counts nothing.
        if data > 0 && sn == next {
            task.next_in = next.wrapping_add(1);
        }
        let early = data > 0 && (sn > next || sn < next && level == 0);
        if other_connection && level < 2 {
            self.broken(
                conn,
                "RFC 7143 4.2.5.1",
                format!("Data-In for ITT {} on another connection", data_in.itt),
            );
        } else if ended && level == 0 {
            self.broken(conn, "RFC 7143 11.7", format!("Data-In for ITT {} after its status", data_in.itt));
        } else if early {
            self.broken(
                conn,
                "RFC 7143 11.7.5",
                format!("DataSN {sn} of ITT {}, {next} is next", data_in.itt),
            );
        } else if data_in.buffer_offset.saturating_add(data) > edtl {
            self.broken(
                conn,
                "RFC 7143 11.7",
                format!("Data-In up to {} of {edtl} bytes", data_in.buffer_offset + data),
            );
        }
    }

    fn r2t(&mut self, id: SessionId, conn: usize, r2t: &R2t) {
        let session = &mut self.sessions[id];
        let (burst, most) = (session.agreed.max_burst_length, session.agreed.max_outstanding_r2t);
        let level = session.agreed.error_recovery_level;
        let Some(task) = session.tasks.get_mut(&r2t.itt) else {
            return self.broken(conn, "RFC 7143 11.8", format!("R2T for ITT {}, which is no task", r2t.itt));
        };
        let edtl = task.command.expected_data_transfer_length;
        let (offset, length) = (r2t.buffer_offset, r2t.desired_data_transfer_length);
        let open = task.transfers.iter().filter(|(ttt, t)| !t.done && **ttt != r2t.ttt).count() as u32;
        let transfer = Transfer { offset, length, next_data_sn: 0, received: 0, done: false };
        task.transfers.insert(r2t.ttt, transfer);
        let ended = task.status;
        let immediate = task.immediate_bytes;
        if length == 0 || length > burst {
            self.broken(
                conn,
                "RFC 7143 11.8.4",
                format!("an R2T asks for {length} bytes, MaxBurstLength is {burst}"),
            );
        } else if offset.saturating_add(length) > edtl {
            self.broken(
                conn,
                "RFC 7143 11.8.4",
                format!("an R2T asks for bytes up to {} of {edtl}", offset + length),
            );
        } else if ended {
            self.broken(conn, "RFC 7143 11.8", format!("R2T for ITT {} after its status", r2t.itt));
        } else if open >= most && level == 0 {
            self.broken(
                conn,
                "RFC 7143 13.17",
                format!("{} R2Ts are open, MaxOutstandingR2T is {most}", open + 1),
            );
        } else if offset < immediate && level == 0 {
            self.broken(conn, "RFC 7143 11.8.4", format!("an R2T asks again for immediate data at {offset}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use iscsi_wire::Bhs;

    use super::*;

    /// A judge that is told of one session: MaxCmdSN is 200, the first command has CmdSN 100.
    struct Court {
        rules: Rules,
        verdict: Verdict,
        itt: u32,
    }

    impl Court {
        fn new(max_connections: u32) -> Self {
            let verdict = Verdict::default();
            let mut court = Self { rules: Rules::new(verdict.clone()), verdict, itt: 0 };
            court.login(max_connections, 0, 100);
            court
        }

        fn pdu(&mut self, opcode: u8, at_1: u8, cmd_sn: u32) -> Pdu {
            let mut bytes = [0; Bhs::SIZE];
            self.itt += 1;
            (bytes[0], bytes[1]) = (opcode, at_1);
            bytes[16..20].copy_from_slice(&self.itt.to_be_bytes());
            bytes[20..24].copy_from_slice(&[0xff; 4]);
            bytes[24..28].copy_from_slice(&cmd_sn.to_be_bytes());
            Pdu::parse(&Bhs::from_bytes(bytes)).expect("of the right form")
        }

        /// Connection `conn` logs in, 0 with a new session.
        fn login(&mut self, max_connections: u32, conn: usize, cmd_sn: u32) {
            let text = format!("MaxConnections={max_connections}\0ErrorRecoveryLevel=2\0");
            let agreed = Agreed::from_text(text.as_bytes());
            let Pdu::LoginRequest(mut request) = self.pdu(0x43, 0x87, cmd_sn) else { unreachable!() };
            request.tsih = Tsih(u16::from(conn > 0));
            let Pdu::LoginResponse(mut response) = self.pdu(0x23, 0x87, 0) else { unreachable!() };
            (response.tsih, response.max_cmd_sn) = (Tsih(1), CmdSn(200));
            self.rules.login_request(conn, 1, &request);
            assert_eq!(self.rules.established(conn, 1, &response, &agreed), Some(0));
        }

        fn send(&mut self, conn: usize, pdu: &Pdu) {
            self.rules.sent_by_initiator(0, conn, pdu, 0);
        }

        fn commands(&mut self, conn: usize, numbers: impl IntoIterator<Item = u32>) {
            for cmd_sn in numbers {
                let command = self.pdu(0x01, 0x80, cmd_sn);
                self.send(conn, &command);
            }
        }

        fn ping(&mut self, conn: usize, cmd_sn: u32) {
            let ping = self.pdu(0x40, 0x80, cmd_sn);
            self.send(conn, &ping);
        }

        fn log_out(&mut self, conn: usize, cmd_sn: u32) {
            let logout = self.pdu(0x46, 0x80, cmd_sn);
            self.send(conn, &logout);
        }

        #[track_caller]
        fn holds(&self) {
            assert_eq!(self.verdict.first(), None);
        }

        #[track_caller]
        fn finds(&self, what: &str) {
            let first = self.verdict.first().unwrap_or_default();
            assert!(first.contains(what), "expected {what:?}, found {first:?}");
        }
    }

    // covers: NUM-01
    #[test]
    fn an_immediate_request_may_be_ahead_by_what_was_lost_with_a_connection() {
        let lost = || {
            let mut court = Court::new(1);
            court.commands(0, 100..103);
            court.rules.closed(0);
            court.login(1, 1, 105);
            court.ping(1, 105);
            court
        };
        let mut court = lost();
        court.commands(1, [105, 104, 103, 106]);
        court.ping(1, 107);
        court.log_out(1, 107);
        court.holds();
        // Not by more than that,
        let mut court = lost();
        court.ping(1, 106);
        court.finds("CmdSN 106 where 105 is next");
        // not for ever,
        let mut court = lost();
        court.commands(1, [104]);
        court.log_out(1, 105);
        court.finds("CmdSN 103 was given and nothing has come with it");
        // and not without a loss.
        let mut court = Court::new(1);
        court.commands(0, 100..103);
        court.ping(0, 105);
        court.finds("CmdSN 105 where 103 is next");
    }

    // covers: NUM-01, MCS-02
    #[test]
    fn what_waits_in_the_queue_of_another_connection_may_come_later_in_order() {
        let two = || {
            let mut court = Court::new(2);
            court.login(2, 1, 100);
            court.commands(1, [103, 104]);
            court.ping(1, 105);
            court
        };
        let mut court = two();
        court.commands(0, 100..103);
        court.log_out(1, 105);
        court.holds();
        let mut court = two();
        court.commands(0, [100, 102, 101]);
        court.finds("CmdSN 101 where 103 is next");
        let mut court = two();
        court.ping(1, 104);
        court.finds("CmdSN 104 after 104 was given");
        let mut court = two();
        court.ping(1, 202);
        court.finds("CmdSN 202 where 105 is next");
    }
}
