//! Everything that belongs to a command: its data, its R2Ts, its single status (RFC 7143 4.2.5, 11.3 to 11.8, 13).

use iscsi_wire::{DataIn, DataOut, Itt, R2t, ScsiCommand};
use rustc_hash::FxHashMap;

use super::{Rules, SessionId, Task, Transfer};
use crate::agreed::Agreed;

/// The rule that was broken, and how.
type Finding = (&'static str, String);

impl Task {
    /// Takes unsolicited data. Returns what is wrong with it.
    fn unsolicited(&mut self, agreed: &Agreed, out: &DataOut, data: u32) -> Option<Finding> {
        let (sn, first) = (out.data_sn.0, agreed.first_burst_length.min(agreed.max_burst_length));
        let (bytes, next_sn) = (self.unsolicited_bytes, self.next_unsolicited);
        let fits = self.unsolicited_open && bytes + data <= first;
        let due = if agreed.data_pdu_in_order { bytes } else { out.buffer_offset };
        let in_turn = (sn, out.buffer_offset) == (next_sn, due);
        self.next_unsolicited = sn.wrapping_add(1);
        self.unsolicited_bytes += data;
        self.unsolicited_open &= !out.final_bit;
        match (fits, in_turn) {
            _ if agreed.error_recovery_level > 0 => None,
            (false, _) => {
                let what = format!("unsolicited data of {} bytes, FirstBurstLength is {first}", bytes + data);
                Some(("RFC 7143 13.14", what))
            }
            (_, false) => {
                let at = out.buffer_offset;
                let what = format!("unsolicited DataSN {sn} at {at}, not {next_sn} at {bytes}");
                Some(("RFC 7143 11.7.5", what))
            }
            _ => None,
        }
    }

    /// Takes data that an R2T asked for. Returns what is wrong with it.
    fn solicited(&mut self, agreed: &Agreed, conn: usize, out: &DataOut, data: u32) -> Option<Finding> {
        let (ttt, sn, at, in_order) = (out.ttt, out.data_sn.0, out.buffer_offset, agreed.data_pdu_in_order);
        let Some(transfer) = self.transfers.get_mut(&ttt) else {
            let what = format!("Data-Out for TTT {ttt} of ITT {}, which nobody asked for", out.itt);
            return Some(("RFC 7143 11.7.4", what));
        };
        if transfer.conn != conn && !agreed.asymmetric.has_halves() {
            let what = format!("Data-Out for TTT {ttt}, which connection {} asked for", transfer.conn);
            return Some(("RFC 7143 4.2.5.1", what));
        }
        let expected = transfer.offset + transfer.received;
        let in_turn = transfer.awaits(in_order, sn, at);
        let inside = transfer.has(at, data);
        transfer.next_data_sn = sn.wrapping_add(1);
        transfer.count(in_order, at, data);
        transfer.done |= out.final_bit;
        let (received, length) = (transfer.received, transfer.length);
        match (inside, in_turn, !out.final_bit || received == length) {
            (false, ..) => {
                Some(("RFC 7143 11.8.4", format!("Data-Out at {at} of {data} bytes leaves its R2T")))
            }
            (_, false, _) => Some(("RFC 7143 11.7.5", format!("DataSN {sn} at {at}, {expected} is next"))),
            (.., false) => {
                let what = format!("the sequence of TTT {ttt} ends after {received} of {length} bytes");
                Some(("RFC 7143 11.8", what))
            }
            _ => None,
        }
    }
}

impl Rules {
    pub(super) fn command(&mut self, id: SessionId, conn: usize, command: &ScsiCommand, data: u32) {
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
            over: None,
            stopped: false,
        };
        session.tasks.insert(command.itt, task);
    }

    pub(super) fn data_out(&mut self, id: SessionId, conn: usize, out: &DataOut, data: u32) {
        let session = &mut self.sessions[id];
        let Some(task) = session.tasks.get_mut(&out.itt) else {
            let what = format!("Data-Out for ITT {}, which is no task", out.itt);
            return self.broken(conn, "RFC 7143 11.7", what);
        };
        let finding = if task.stopped && task.conn == conn {
            let what = format!("Data-Out for ITT {} after the word that it was stopped", out.itt);
            Some(("RFC 7143 4.2.3.4", what))
        } else if out.ttt.is_reserved() {
            task.unsolicited(&session.agreed, out, data)
        } else {
            task.solicited(&session.agreed, conn, out, data)
        };
        if let Some((rule, what)) = finding {
            self.broken(conn, rule, what);
        }
    }

    pub(super) fn task_ended(&mut self, id: SessionId, conn: usize, itt: Itt, level: u32) {
        let task = self.sessions[id].tasks.get_mut(&itt);
        match task.map(|task| std::mem::replace(&mut task.status, true)) {
            None => self.broken(conn, "RFC 7143 11.4", format!("a status for ITT {itt}, which is no task")),
            Some(true) if level == 0 => {
                self.broken(conn, "RFC 7143 11.4", format!("a second status for ITT {itt}"));
            }
            Some(_) => {}
        }
    }

    pub(super) fn data_in(&mut self, id: SessionId, conn: usize, data_in: &DataIn, data: u32) {
        let session = &mut self.sessions[id];
        let level = session.agreed.error_recovery_level;
        let free = session.agreed.asymmetric.is_used();
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
        // The DataSN of a status without data counts nothing.
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

    pub(super) fn r2t(&mut self, id: SessionId, conn: usize, r2t: &R2t) {
        let session = &mut self.sessions[id];
        let (burst, most) = (session.agreed.max_burst_length, session.agreed.max_outstanding_r2t);
        let level = session.agreed.error_recovery_level;
        let Some(task) = session.tasks.get_mut(&r2t.itt) else {
            return self.broken(conn, "RFC 7143 11.8", format!("R2T for ITT {}, which is no task", r2t.itt));
        };
        let edtl = task.command.expected_data_transfer_length;
        let (offset, length) = (r2t.buffer_offset, r2t.desired_data_transfer_length);
        let open = task.transfers.iter().filter(|(ttt, t)| !t.done && **ttt != r2t.ttt).count() as u32;
        let transfer = Transfer { conn, offset, length, next_data_sn: 0, received: 0, done: false };
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
