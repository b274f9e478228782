//! Pings, asynchronous messages and the logout (RFC 7143 11.9, 11.14, 11.15, 11.18, 11.19).

use std::time::Duration;

use bytes::Bytes;
use iscsi_wire::{
    AsyncEvent, AsyncMessage, Itt, LogoutReason, LogoutRequest, LogoutResponse, LogoutResponseCode, Lun,
    NopIn, NopOut, Ttt,
};

use super::session::{Action, CloseReason, Event, InitiatorSession, Phase, violation};
use super::task::{Held, Ping};
use crate::Time;
use crate::limits::{MAX_PING_BYTES, MAX_SENSE_BYTES};
use crate::pdu_reader::RxPdu;
use crate::pdu_writer::TxPdu;

impl InitiatorSession {
    /// Pings the target with `data`, cut to what it takes; ends with [`Action::Pong`]. False when the session cannot.
    pub fn ping(&mut self, now: Time, user: u64, data: Bytes) -> bool {
        self.now = now;
        matches!(self.phase, Phase::Active) && self.send_ping(Some(user), data).is_some()
    }

    /// Pings on the session's own account after a silence.
    pub(super) fn send_keepalive(&mut self) {
        self.keepalive = self.send_ping(None, Bytes::new());
        if self.keepalive.is_none() {
            self.close(CloseReason::Unresponsive, self.time2wait());
        }
    }

    fn send_ping(&mut self, user: Option<u64>, mut data: Bytes) -> Option<Itt> {
        data.truncate(MAX_PING_BYTES.min(self.params.max_send_data_segment_length as usize));
        let ping = Ping { user, data: data.clone(), sent_at: self.now };
        let itt = self.tasks.insert(Held::Ping(ping)).ok()?;
        self.send_nop_out(itt, Ttt::RESERVED, Lun(0), data);
        Some(itt)
    }

    /// Tells the target which statuses have arrived, when nothing else is there to tell it.
    //= rfc7143 11.18.1 NOP-02 NUM-10
    pub(super) fn acknowledge(&mut self) {
        self.send_nop_out(Itt::RESERVED, Ttt::RESERVED, Lun(0), Bytes::new());
    }

    //= rfc7143 11.18 NOP-02 NOP-03
    fn send_nop_out(&mut self, itt: Itt, ttt: Ttt, lun: Lun, data: Bytes) {
        let nop = NopOut {
            immediate: true,
            lun,
            itt,
            ttt,
            cmd_sn: self.window.current(),
            exp_stat_sn: self.exp_stat_sn(),
        };
        self.actions.push_back(Action::Send(TxPdu::with_data(nop.to_bhs(), data)));
    }

    //= rfc7143 11.19 NOP-03 NOP-04 NOP-05
    pub(super) fn handle_nop_in(&mut self, pdu: &NopIn, rx: &RxPdu) -> Result<(), CloseReason> {
        self.window.update(pdu.exp_cmd_sn, pdu.max_cmd_sn);
        match (pdu.itt.is_reserved(), pdu.ttt.is_reserved()) {
            //= rfc7143 7.7 PDU-08
            (false, false) => Err(violation("RFC 7143 11.19", "a NOP-In has both task tags")),
            (false, true) => {
                self.take_stat_sn(pdu.stat_sn)?;
                match self.tasks.held(pdu.itt) {
                    Some(Held::Ping(_)) => self.ping_ended(pdu.itt, Some(rx)),
                    _ => {
                        return Err(violation("RFC 7143 11.19", "a NOP-In answers a ping that was not sent"));
                    }
                }
                Ok(())
            }
            (true, false) => {
                //= rfc7143 11.14 LGO-03
                if !matches!(self.phase, Phase::LogoutSent(_)) {
                    self.send_nop_out(Itt::RESERVED, pdu.ttt, pdu.lun, Bytes::new());
                }
                Ok(())
            }
            // Tells of the window only.
            (true, true) => Ok(()),
        }
    }

    //= rfc7143 11.9 ASY-04
    pub(super) fn handle_async(&mut self, pdu: &AsyncMessage, rx: &RxPdu) -> Result<(), CloseReason> {
        //= rfc7143 7.8 DIG-12
        if !rx.data_digest_ok {
            return Err(CloseReason::DataDigest);
        }
        self.window.update(pdu.exp_cmd_sn, pdu.max_cmd_sn);
        self.take_stat_sn(pdu.stat_sn)?;
        let wait = Duration::from_secs(pdu.parameter2.into());
        let within = Duration::from_secs(pdu.parameter3.into());
        match pdu.event {
            AsyncEvent::ScsiAsyncEvent => {
                let length = rx.data.first_chunk().map_or(0, |two| usize::from(u16::from_be_bytes(*two)));
                if length == 0 || length + 2 > rx.data.len() {
                    return Err(violation("RFC 7143 11.9.4", "a SCSI asynchronous event without sense data"));
                }
                let sense = Bytes::copy_from_slice(&rx.data[2..2 + length.min(MAX_SENSE_BYTES)]);
                self.actions.push_back(Action::Event(Event::Scsi { lun: pdu.lun, sense }));
            }
            //= rfc7143 11.9.1 ASY-01
            AsyncEvent::LogoutRequest => {
                self.actions.push_back(Action::Event(Event::LogoutRequested(within)));
                if self.phase == Phase::Active {
                    self.asked_by_target = true;
                    // Half of the time is for the commands under way.
                    self.phase = Phase::Draining(self.now + within / 2);
                }
            }
            //= rfc7143 11.9.1 ASY-02
            AsyncEvent::ConnectionDrop if pdu.parameter1 == self.cid.0 => {
                self.close(CloseReason::TargetDropped, wait);
            }
            AsyncEvent::SessionDrop => self.close(CloseReason::TargetDropped, wait),
            //= rfc7143 11.9.1 ASY-03
            AsyncEvent::NegotiationRequest => self.negotiate_on_request(),
            event => self.actions.push_back(Action::Event(Event::Ignored(event))),
        }
        Ok(())
    }

    /// Logs out: commands that have not ended die with the session.
    pub fn logout(&mut self, now: Time) {
        self.now = now;
        if matches!(self.phase, Phase::Active | Phase::Draining(_)) {
            self.asked_by_target = false;
            self.send_logout();
        }
    }

    /// Sends the logout that the target asked for, once nothing is under way any more.
    pub(super) fn drained(&mut self) {
        if matches!(self.phase, Phase::Draining(_)) && self.sent == 0 {
            self.send_logout();
        }
    }

    //= rfc7143 11.14 LGO-01 LGO-03
    pub(super) fn send_logout(&mut self) {
        let Ok(itt) = self.tasks.insert(Held::Logout) else {
            return self.close(CloseReason::Unresponsive, self.time2wait());
        };
        let request = LogoutRequest {
            immediate: true,
            reason: LogoutReason::CloseSession,
            itt,
            cid: self.cid,
            cmd_sn: self.window.current(),
            exp_stat_sn: self.exp_stat_sn(),
        };
        self.send(request.to_bhs());
        self.phase = Phase::LogoutSent(self.now + self.config.exchange_timeout);
    }

    pub(super) fn handle_logout_response(&mut self, pdu: &LogoutResponse) -> Result<(), CloseReason> {
        self.window.update(pdu.exp_cmd_sn, pdu.max_cmd_sn);
        self.take_stat_sn(pdu.stat_sn)?;
        if !matches!(self.tasks.held(pdu.itt), Some(Held::Logout)) {
            return Err(violation("RFC 7143 11.15", "an answer to a logout that was not asked for"));
        }
        let wait = match pdu.response {
            LogoutResponseCode::Success => Duration::from_secs(pdu.time2wait.into()),
            _ => self.time2wait(),
        };
        self.close(self.logout_reason(), wait);
        Ok(())
    }

    pub(super) fn logout_reason(&self) -> CloseReason {
        if self.asked_by_target { CloseReason::TargetAsked } else { CloseReason::LoggedOut }
    }
}
