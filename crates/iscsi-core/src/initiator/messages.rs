//! Pings and asynchronous messages (RFC 7143 11.9, 11.18, 11.19).

use std::time::Duration;

use bytes::Bytes;
use iscsi_wire::{AsyncEvent, AsyncMessage, Cid, Itt, Lun, NopIn, NopOut, Ttt};
use smallvec::SmallVec;

use super::actions::{Action, CloseReason, Event, violation};
use super::command::Ending;
use super::connection::ConnectionState;
use super::session::{InitiatorSession, told_seconds};
use super::task::{Held, Management, Ping, Task};
use crate::Time;
use crate::limits::{MAX_PING_BYTES, MAX_SENSE_BYTES};
use crate::params::TaskReporting;
use crate::pdu_reader::RxPdu;
use crate::pdu_writer::TxPdu;

impl InitiatorSession {
    /// Pings the target with `data`, cut to the length it accepts; ends with [`Action::Pong`]. False when the session cannot
    /// ping.
    pub fn ping(&mut self, now: Time, user: u64, data: Bytes) -> bool {
        self.now = now;
        let cid = self.any_connection().filter(|_| self.is_active());
        cid.is_some_and(|cid| self.send_ping(cid, Some(user), data).is_some())
    }

    /// Pings after a silence, for the session itself.
    pub(super) fn send_keepalive(&mut self, cid: Cid) {
        let keepalive = self.send_ping(cid, None, Bytes::new());
        if keepalive.is_none() {
            return self.close(CloseReason::Unresponsive, self.time2wait());
        }
        if let Some(connection) = self.connection(cid) {
            connection.keepalive = keepalive;
        }
    }

    fn send_ping(&mut self, cid: Cid, user: Option<u64>, mut data: Bytes) -> Option<Itt> {
        data.truncate(MAX_PING_BYTES.min(self.connection(cid)?.max_send as usize));
        let ping = Ping { user, cid, data: data.clone(), sent_at: self.now };
        let itt = self.tasks.insert(Held::Ping(ping)).ok()?;
        self.send_nop_out(cid, itt, Ttt::RESERVED, Lun(0), data);
        Some(itt)
    }

    /// Acknowledges statuses to the target when no other PDU is sent that could do so.
    //= rfc7143 11.18.1 NOP-02 NUM-10
    pub(super) fn acknowledge(&mut self, cid: Cid) {
        self.send_nop_out(cid, Itt::RESERVED, Ttt::RESERVED, Lun(0), Bytes::new());
    }

    //= rfc7143 11.18 NOP-02 NOP-03
    fn send_nop_out(&mut self, cid: Cid, itt: Itt, ttt: Ttt, lun: Lun, data: Bytes) {
        let nop = NopOut {
            immediate: true,
            lun,
            itt,
            ttt,
            cmd_sn: self.window.current(),
            exp_stat_sn: self.exp_stat_sn(cid),
        };
        self.send_pdu(cid, TxPdu::with_data(nop.to_bhs(), data));
    }

    //= rfc7143 11.19 NOP-03 NOP-04 NOP-05
    pub(super) fn handle_nop_in(&mut self, cid: Cid, pdu: &NopIn, rx: &RxPdu) -> Result<(), CloseReason> {
        self.window.hear(pdu.numbers, self.now);
        match (pdu.itt.is_reserved(), pdu.ttt.is_reserved()) {
            //= rfc7143 7.7 PDU-08
            (false, false) => Err(violation("RFC 7143 11.19", "a NOP-In has both task tags")),
            (false, true) => {
                if !self.take_stat_sn(cid, pdu.numbers.stat_sn)? {
                    return Ok(());
                }
                match self.tasks.held(pdu.itt) {
                    Some(Held::Ping(_)) => {
                        self.ping_ended(pdu.itt, Some(rx));
                        Ok(())
                    }
                    _ => self.late(pdu.itt, "RFC 7143 11.19", "the answer to a ping"),
                }
            }
            (true, false) => {
                self.note_next_stat_sn(cid, pdu.numbers.stat_sn);
                //= rfc7143 11.14 LGO-03
                let leaving = self.connection(cid).is_none_or(|connection| !connection.state.serves());
                if !leaving && !self.is_logging_out() {
                    self.send_nop_out(cid, Itt::RESERVED, pdu.ttt, pdu.lun, Bytes::new());
                }
                Ok(())
            }
            // It reports the window, and the StatSN that comes next.
            (true, true) => {
                self.note_next_stat_sn(cid, pdu.numbers.stat_sn);
                Ok(())
            }
        }
    }

    //= rfc7143 11.9 ASY-04
    pub(super) fn handle_async(
        &mut self,
        cid: Cid,
        pdu: &AsyncMessage,
        rx: &RxPdu,
    ) -> Result<(), CloseReason> {
        self.window.hear(pdu.numbers, self.now);
        if !self.take_stat_sn(cid, pdu.numbers.stat_sn)? {
            return Ok(());
        }
        let wait = told_seconds(pdu.parameter2);
        let within = Duration::from_secs(pdu.parameter3.into());
        match pdu.event {
            AsyncEvent::ScsiAsyncEvent => {
                let length = rx.data.first_chunk().map_or(0, |two| usize::from(u16::from_be_bytes(*two)));
                if length == 0 || length + 2 > rx.data.len() {
                    return Err(violation("RFC 7143 11.9.4", "a SCSI asynchronous event without sense data"));
                }
                let sense = Bytes::copy_from_slice(&rx.data[2..2 + length.min(MAX_SENSE_BYTES)]);
                self.act(Action::Event(Event::Scsi { lun: pdu.lun, sense }));
            }
            //= rfc7143 11.9.1 ASY-01
            AsyncEvent::LogoutRequest => {
                self.act(Action::Event(Event::LogoutRequested(within)));
                // Half of the time is left for the commands under way.
                let until = self.now + within / 2;
                // In asymmetric use the target may have chosen this connection for any command.
                let others = !self.is_asymmetric()
                    && self.connections.iter().any(|c| c.cid != cid && c.state == ConnectionState::Up);
                if !others && self.is_active() {
                    self.drain_until(until);
                } else if let Some(connection) = self.connection(cid)
                    && connection.state == ConnectionState::Up
                {
                    connection.state = ConnectionState::Draining(until);
                }
            }
            //= rfc7143 11.9.1 ASY-02
            AsyncEvent::ConnectionDrop if self.connection(Cid(pdu.parameter1)).is_some() => {
                let (dropped, retain) = (Cid(pdu.parameter1), told_seconds(pdu.parameter3));
                match self.connection(dropped).is_some_and(|one| one.state.stands()) {
                    true => self.fail_connection(dropped, CloseReason::TargetDropped, Some((wait, retain))),
                    false => self.known_to_target(dropped, wait, retain),
                }
            }
            AsyncEvent::SessionDrop => self.close(CloseReason::TargetDropped, wait),
            //= rfc7143 11.9.1 ASY-03
            AsyncEvent::NegotiationRequest => self.negotiate_on_request(cid),
            //= rfc7143 11.9.1 FAB-01
            AsyncEvent::TaskTermination if self.params.task_reporting == TaskReporting::FastAbort => {
                self.tasks_terminated(cid, pdu.lun)
            }
            event => self.act(Action::Event(Event::Ignored(event))),
        }
        Ok(())
    }

    /// The target ends the tasks of a logical unit on this connection: no more data is sent for them, and a NOP-Out acknowledges
    /// this. They end with the function that we requested, or here if the request was not ours.
    //= rfc7143 4.2.3.4 FAB-01
    fn tasks_terminated(&mut self, cid: Cid, lun: Lun) {
        self.act(Action::Event(Event::TasksTerminated(lun)));
        self.send_nop_out(cid, Itt::RESERVED, Ttt::RESERVED, lun, Bytes::new());
        // A command that the target has not received is not one of its active tasks: it still gets its turn, and its number must
        // arrive.
        let window = &self.window;
        let here = |task: &Task| {
            let received = task.cmd_sn.is_some_and(|cmd_sn| window.is_acknowledged(cmd_sn));
            task.route.cid == cid && task.command.lun == lun && received
        };
        let all = self.tasks.managements().map(|(_, management)| *management);
        let ours: SmallVec<[Management; 4]> = all.filter(|m| m.ends_tasks_of(lun)).collect();
        if !ours.is_empty() {
            let doomed = |itt: Itt, task: &Task| here(task) && ours.iter().any(|m| m.ends(itt, task));
            for (_, task) in self.tasks.commands_mut().filter(|(itt, task)| doomed(*itt, task)) {
                task.terminated = true;
            }
            return;
        }
        let ended: Vec<Itt> =
            self.tasks.commands().filter(|(_, task)| here(task)).map(|(itt, _)| itt).collect();
        for itt in ended {
            self.complete(itt, Ending::Aborted);
        }
    }
}
