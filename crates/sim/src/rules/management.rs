//! Task management and its order (RFC 7143 4.2.2.3, 4.2.3, 11.5, 11.6): which tasks may be aborted on which connection; nothing is sent for
//! a task on a connection after a response there has ended the task; no response overtakes a fenced one; an initiator that announced that
//! it stopped sending data has stopped.
//!
//! PDUs are judged when they are sent. What an initiator acknowledges arrived some time after it was sent, and what a target answers was
//! composed some time before it is sent. The rules here are such that they hold all the more for what was sent in between. Connections that
//! were harmed are exempt from the rules about several connections, because either end may have given one up without a word.

use iscsi_wire::{
    AsyncEvent, AsyncMessage, Itt, NopOut, StatSn, TaskManagementRequest, TaskManagementResponse,
    TmfFunction, TmfResponse,
};

use super::{Function, Rules, SessionId, Stop};

fn resets_target(function: TmfFunction) -> bool {
    matches!(function, TmfFunction::TargetWarmReset | TmfFunction::TargetColdReset)
}

fn ends_many(function: TmfFunction) -> bool {
    use TmfFunction::{AbortTaskSet, ClearTaskSet, LogicalUnitReset};
    resets_target(function) || matches!(function, AbortTaskSet | ClearTaskSet | LogicalUnitReset)
}

impl Rules {
    pub(super) fn function(&mut self, id: SessionId, conn: usize, request: &TaskManagementRequest) {
        let session = &mut self.sessions[id];
        session.functions.retain(|function| function.itt != request.itt);
        session.functions.push(Function {
            itt: request.itt,
            function: request.function,
            lun: request.lun,
            cmd_sn: request.cmd_sn,
            referenced: request.referenced_task_tag,
        });
        let everywhere =
            matches!(request.function, TmfFunction::TargetWarmReset | TmfFunction::TargetColdReset);
        if everywhere && request.immediate && request.cmd_sn.gt(session.filled_to) {
            session.filled_to = request.cmd_sn;
        }
        if request.function != TmfFunction::AbortTask {
            return;
        }
        let tag = request.referenced_task_tag;
        let task = session.tasks.get(&tag).map(|task| (task.command.cmd_sn, task.conn));
        // A command that never arrived counts as received once its abort does (RFC 7143 11.5.5).
        if !request.ref_cmd_sn.lt(session.next) {
            session.take_number(request.ref_cmd_sn);
        }
        // In asymmetric use tasks have no connection allegiance.
        let free = session.agreed.asymmetric.is_used();
        let found = match task {
            None if session.lost > 0 => return,
            None => format!("ABORT TASK of ITT {tag}, which is no task"),
            Some((cmd_sn, _)) if cmd_sn != request.ref_cmd_sn => {
                format!("ABORT TASK of ITT {tag} with RefCmdSN {}, not {}", request.ref_cmd_sn.0, cmd_sn.0)
            }
            Some((_, home)) if !free && home != conn && self.is_open(home) => {
                format!("ABORT TASK of ITT {tag}, which is allegiant to connection {home}")
            }
            Some(_) => return,
        };
        self.broken(conn, "RFC 7143 11.5", found);
    }

    fn is_open(&self, conn: usize) -> bool {
        self.connections.get(&conn).is_some_and(|connection| connection.open)
    }

    pub(super) fn answered(&mut self, id: SessionId, conn: usize, answer: &TaskManagementResponse) {
        let of = |function: &Function| function.itt == answer.itt;
        let Some(at) = self.sessions[id].functions.iter().position(of) else { return };
        // These two are not handled by the device server, and their responses do not count for a fence.
        let function = self.sessions[id].functions[at].function;
        if !matches!(function, TmfFunction::TaskReassign | TmfFunction::ITNexusReset) {
            self.responded(id, conn, answer.numbers.stat_sn);
        }
        let session = &mut self.sessions[id];
        if answer.response != TmfResponse::FunctionComplete {
            session.functions.remove(at);
            return;
        }
        let Function { function, lun, cmd_sn, referenced, .. } = session.functions.remove(at);
        if function == TmfFunction::ITNexusReset {
            session.reset = Some(conn);
        }
        let everywhere = resets_target(function);
        let doomed = session.tasks.iter_mut().filter(|(itt, task)| match function {
            TmfFunction::AbortTask => **itt == referenced,
            _ if ends_many(function) => {
                task.command.cmd_sn.lt(cmd_sn) && (everywhere || task.command.lun == lun)
            }
            _ => false,
        });
        for (_, task) in doomed.filter(|(_, task)| !task.status) {
            task.over = Some(conn);
        }
        if ends_many(function) && session.agreed.response_fence {
            self.fence(id, conn, answer);
        }
    }

    /// The response has a fence: the other connections must have acknowledged earlier responses, and must wait with later ones.
    fn fence(&mut self, id: SessionId, conn: usize, answer: &TaskManagementResponse) {
        let others = self.connections.iter().filter(|(other, c)| **other != conn && c.session == Some(id));
        let overtaken = others.filter(|(_, c)| c.open && !c.harmed).find_map(|(other, c)| {
            let responded = c.responded?;
            (c.told.is_none_or(|told| told.lt(responded))).then_some((*other, responded))
        });
        self.sessions[id].fence = Some((conn, answer.numbers.stat_sn.next()));
        if let Some((other, responded)) = overtaken {
            let what = format!(
                "the answer to ITT {} overtakes StatSN {} of connection {other}",
                answer.itt,
                responded.0.wrapping_sub(1)
            );
            self.broken(conn, "RFC 7143 4.2.2.3", what);
        }
    }

    /// A response of a command or of task management is sent for the first time.
    pub(super) fn responded(&mut self, id: SessionId, conn: usize, stat_sn: StatSn) {
        // On other connections earlier responses may still be on their way.
        if self.sessions[id].reset == Some(conn) {
            let what = format!("StatSN {} follows the answer to I_T NEXUS RESET", stat_sn.0);
            return self.broken(conn, "RFC 7144 6.3", what);
        }
        if let Some((at, until)) = self.sessions[id].fence {
            let fenced = self
                .connections
                .get(&at)
                .is_some_and(|c| c.open && !c.harmed && c.told.is_none_or(|told| told.lt(until)));
            if fenced && at != conn {
                let what = format!("StatSN {} passes the fence of connection {at}", stat_sn.0);
                return self.broken(conn, "RFC 7143 4.2.2.3", what);
            }
            if !fenced {
                self.sessions[id].fence = None;
            }
        }
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.responded = Some(stat_sn.next());
        }
    }

    /// Something is sent for a task: the task may not have been answered as ended on this connection.
    pub(super) fn goes_on(&mut self, id: SessionId, conn: usize, itt: Itt, what: &str) {
        if self.sessions[id].tasks.get(&itt).is_some_and(|task| task.over == Some(conn)) {
            let what = format!("{what} for ITT {itt} after the answer that it was aborted");
            self.broken(conn, "RFC 7143 4.2.3", what);
        }
    }

    pub(super) fn told_to_stop(&mut self, id: SessionId, conn: usize, message: &AsyncMessage) {
        if message.event != AsyncEvent::TaskTermination {
            return;
        }
        let session = &self.sessions[id];
        // A function of the initiator's own ends only tasks sent before it.
        let limit = session.functions.iter().map(|function| function.cmd_sn);
        let limit = limit.fold(message.numbers.exp_cmd_sn, |least, at| if at.lt(least) { at } else { least });
        let here = session.tasks.iter().filter(|(_, task)| {
            let command = &task.command;
            task.conn == conn && !task.status && command.lun == message.lun && command.cmd_sn.lt(limit)
        });
        let tasks = here.map(|(itt, _)| *itt).collect();
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.stops.push(Stop { lun: message.lun, stat_sn: message.numbers.stat_sn, tasks });
        }
    }

    pub(super) fn has_stopped(&mut self, id: SessionId, conn: usize, nop: &NopOut) {
        if !nop.itt.is_reserved() || !nop.ttt.is_reserved() {
            return;
        }
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        let (heard, waiting): (Vec<Stop>, Vec<Stop>) = std::mem::take(&mut connection.stops)
            .into_iter()
            .partition(|stop| stop.lun == nop.lun && nop.exp_stat_sn.gt(stop.stat_sn));
        connection.stops = waiting;
        for itt in heard.into_iter().flat_map(|stop| stop.tasks) {
            if let Some(task) = self.sessions[id].tasks.get_mut(&itt).filter(|task| task.conn == conn) {
                task.stopped = true;
            }
        }
    }
}
