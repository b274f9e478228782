//! Reject: what happens to a PDU that the target did not accept (RFC 7143 7.3, 11.17).
//!
//! A rejected command has not consumed its CmdSN, and later commands wait at the target until that number arrives. So the command
//! is sent again with the same tag and CmdSN if the reason allows; otherwise ABORT TASK fills the hole.

use iscsi_wire::{Bhs, Cid, Itt, Opcode, Reject, RejectReason, SnackRequest};

use super::actions::{Action, CloseReason, violation};
use super::command::Ending;
use super::session::{InitiatorSession, may_resend};
use super::task::Held;
use crate::limits::MAX_RESENDS;
use crate::pdu_reader::RxPdu;

impl InitiatorSession {
    //= rfc7143 11.17 REJ-04 NUM-12 NUM-13
    pub(super) fn handle_reject(&mut self, cid: Cid, pdu: &Reject, rx: &RxPdu) -> Result<(), CloseReason> {
        self.window.hear(pdu.numbers, self.now);
        if !self.take_stat_sn(cid, pdu.numbers.stat_sn)? {
            return Ok(());
        }
        let Some(&header) = rx.data.first_chunk::<{ Bhs::SIZE }>() else {
            return Err(violation("RFC 7143 11.17", "a Reject without the header that it rejects"));
        };
        //= rfc7143 11.17.1 REJ-03
        if pdu.reason == RejectReason::NegotiationReset {
            return Err(violation("RFC 7143 11.17.1", "Reject with the reason 0b, which nobody may send"));
        }
        let refused = Bhs::from_bytes(header);
        let itt = refused.itt();
        let resend = may_resend(pdu.reason);
        let probe_at = self.probe_time();
        match (Opcode::try_from(refused.opcode()), self.tasks.held(itt)) {
            (Ok(Opcode::ScsiCommand), Some(Held::Command(task))) => {
                let Some(cmd_sn) = task.cmd_sn else { return Ok(()) };
                if resend && task.resends < MAX_RESENDS {
                    task.resends += 1;
                    task.start_over();
                    task.times.probe_at = probe_at;
                    self.missing.forget(itt);
                    self.expect_by(probe_at);
                    self.send_command(itt, cmd_sn);
                } else {
                    self.give_up(itt, pdu.reason);
                }
            }
            // The target ends the command itself; rejected data is not sent again without an R2T.
            //= rfc7143 7.3 REJ-02
            (Ok(Opcode::DataOut), _) => {}
            (Ok(Opcode::SnackRequest), _) => {
                if let Ok(request) = SnackRequest::parse(&refused) {
                    return self.snack_refused(cid, &request);
                }
            }
            (Ok(Opcode::TaskManagementRequest), Some(Held::Management(management))) => {
                if resend && management.resends < MAX_RESENDS {
                    management.resends += 1;
                    management.cmd_sn = self.window.current();
                    let management = *management;
                    self.send_management(itt, &management);
                } else {
                    self.management_failed(itt, None);
                }
            }
            (Ok(Opcode::NopOut), Some(Held::Ping(_))) => self.ping_ended(itt, None),
            (Ok(Opcode::TextRequest), Some(Held::Text(_))) => self.text_refused(cid, itt, pdu.reason),
            (Ok(Opcode::LogoutRequest), Some(Held::Logout(_))) => {
                return Err(violation(
                    "RFC 7143 11.14",
                    format!("the target refuses the logout: {}", pdu.reason),
                ));
            }
            // It answers a PDU whose task is over meanwhile.
            _ => {}
        }
        Ok(())
    }

    /// Ends a command that the target does not accept, and fills the hole that its number leaves.
    //= rfc7143 7.3 NUM-13
    fn give_up(&mut self, itt: Itt, reason: RejectReason) {
        let Some(task) = self.tasks.command(itt) else { return };
        let (lun, cmd_sn) = (task.command.lun, task.cmd_sn);
        task.decide(Ending::Rejected(reason));
        match cmd_sn.filter(|cmd_sn| !self.window.is_acknowledged(*cmd_sn)) {
            Some(cmd_sn) => self.abort(itt, lun, cmd_sn),
            None => self.complete(itt, Ending::Rejected(reason)),
        }
    }

    /// Ends a ping: `answer` is the data that came back, if any did.
    pub(super) fn ping_ended(&mut self, itt: Itt, answer: Option<&RxPdu>) {
        let Held::Ping(ping) = self.tasks.remove(itt) else { return };
        let connection = self.connection(ping.cid);
        let max_recv = connection.as_ref().map_or(0, |connection| connection.max_recv as usize);
        if let Some(connection) = connection.filter(|connection| connection.keepalive == Some(itt)) {
            connection.keepalive = None;
        }
        if answer.is_some() {
            self.roll_call_answered(&ping);
        }
        if let Some(user) = ping.user {
            let expected = ping.data.len().min(max_recv);
            let intact = answer.is_some_and(|rx| rx.data_digest_ok && rx.data[..] == ping.data[..expected]);
            self.act(Action::Pong { user, intact, round_trip: self.now.saturating_sub(ping.sent_at) });
        }
    }
}
