//! The five tables of a connection, as software can read them.

use super::connection::Connection;
use super::task::Task;
use crate::Tables;
use crate::encoding::{
    CommandEntry, CommandState, DataAddressEntry, R2tEntry, SessionEntry, SessionState, SnackEntry,
    StopReason,
};

impl Connection {
    /// Appends the entries of this connection.
    pub(super) fn show(&self, conn: u16, tables: &mut Tables) {
        tables.sessions.push(self.session_entry(conn));
        tables.commands.extend(self.tasks.values().map(|task| command_entry(conn, task)));
        tables.r2ts.extend(self.bursts.iter().map(|burst| R2tEntry {
            conn,
            itt: burst.itt,
            ttt: burst.ttt.0,
            r2t_sn: burst.r2t_sn,
            offset: burst.offset,
            length: burst.length,
            sent: burst.sent,
            data_sn: burst.data_sn,
        }));
        tables.snacks.extend(self.snacks.entries().map(|entry| SnackEntry {
            conn,
            snack_type: entry.key.snack_type.code(),
            state: entry.state,
            itt: entry.key.itt.0,
            beg_run: entry.group.begin,
            run_length: entry.group.length,
            deadline_us: entry.deadline_us,
            cause: entry.cause,
            ttt: entry.ttt.0,
            begin_offset: entry.group.begin_offset,
            end_offset: entry.group.end_offset,
            lun: entry.lun.0.to_be_bytes(),
        }));
        for (itt, task) in &self.tasks {
            for ((offset, element), index) in task.sgl.elements().zip(0..) {
                let (addr, length) = (element.addr, element.length);
                // Elements beyond 4 GiB hold nothing of the task: EDTL has 32 bits.
                let buffer_offset = u32::try_from(offset).unwrap_or(u32::MAX);
                let entry = DataAddressEntry { conn, element: index, itt: *itt, addr, length, buffer_offset };
                tables.data_addresses.push(entry);
            }
        }
    }

    /// The entry of this connection in the session table.
    pub(super) fn session_entry(&self, conn: u16) -> SessionEntry {
        let params = &self.params;
        SessionEntry {
            conn,
            state: if self.stopped.is_some() { SessionState::STOPPED } else { SessionState::OPEN },
            flags: params.flags,
            polynomial: self.rx.crc().polynomial(),
            cmd_sn: self.window.next().0,
            exp_cmd_sn: self.window.exp().0,
            max_cmd_sn: self.window.max().0,
            exp_stat_sn: self.exp_stat_sn().0,
            next_stat_sn: self.statuses.next().0,
            max_recv_data_segment_length: params.max_recv_data_segment_length,
            max_send_data_segment_length: params.max_send_data_segment_length,
            max_burst_length: params.max_burst_length,
            first_burst_length: params.first_burst_length,
            snack_delay_us: params.snack_delay_us,
            rx_position: self.rx.position(),
            error_recovery_level: params.error_recovery_level,
            stop_reason: self.stopped.unwrap_or(StopReason(0)),
            raw_slots_free: self.raw.free(),
            commands: self.commands() as u16,
            max_outstanding_r2t: params.max_outstanding_r2t,
        }
    }
}

fn command_entry(conn: u16, task: &Task) -> CommandEntry {
    let state = match (task.sent, &task.status) {
        (false, _) => CommandState::QUEUED,
        (true, None) => CommandState::SENT,
        (true, Some(_)) => CommandState::HELD,
    };
    CommandEntry {
        conn,
        flags: task.post.flags,
        state,
        itt: task.post.itt,
        lun: task.post.lun,
        user: task.post.user,
        edtl: task.post.edtl,
        cmd_sn: task.cmd_sn,
        exp_stat_sn: task.exp_stat_sn,
        next_sn: task.next_sn,
        next_offset: task.next_offset,
        bytes_received: task.bytes_received,
        bytes_sent: task.bytes_sent,
    }
}
