//! Asynchronous Messages: what a target reports without a request (RFC 7143 11.9).

use std::time::Duration;

use bytes::Bytes;
use iscsi_wire::{AsyncEvent, AsyncMessage, Cid, Lun};
use smallvec::SmallVec;

use super::actions::CloseReason;
use super::connection::TIME2WAIT_TO_REASSIGN_S;
use super::session::TargetSession;
use crate::Time;
use crate::pdu_writer::TxPdu;

/// The fields of an Asynchronous Message other than its sequence numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub event: AsyncEvent,
    pub lun: Lun,
    pub parameters: [u16; 3],
}

impl TargetSession {
    /// Requests that the initiator log out within `grace`; closes its connections if it does not.
    //= rfc7143 11.9.1 ASY-01
    pub fn request_logout(&mut self, now: Time, grace: Duration) {
        self.now = now;
        if !self.is_active() {
            return self.close_session(CloseReason::Ended);
        }
        let cids: SmallVec<[Cid; 2]> = self
            .connections
            .iter()
            .filter(|c| !c.closing && c.logout_deadline.is_none())
            .map(|c| c.cid)
            .collect();
        for cid in cids {
            if let Some(connection) = self.connection(cid) {
                connection.logout_deadline = Some(now + grace);
            }
            let seconds = grace.as_secs().clamp(1, 3600) as u16;
            let event = Event { event: AsyncEvent::LogoutRequest, lun: Lun(0), parameters: [0, 0, seconds] };
            self.send_async(cid, event, Bytes::new());
        }
    }

    /// Reports a SCSI event of a logical unit to the initiator, with its sense data.
    //= rfc7143 11.9 ASY-04
    pub fn report_scsi_event(&mut self, now: Time, lun: Lun, sense: &[u8]) {
        self.now = now;
        if self.is_discovery() {
            return;
        }
        let Some(cid) = self.any_connection() else { return };
        let mut data = Vec::with_capacity(2 + sense.len());
        data.extend_from_slice(&(sense.len() as u16).to_be_bytes());
        data.extend_from_slice(sense);
        let event = Event { event: AsyncEvent::ScsiAsyncEvent, lun, parameters: [0; 3] };
        self.send_async(cid, event, data.into());
    }

    /// Reports on a remaining connection that another one is gone.
    //= rfc7143 7.1.4.3 MCS-05 ASY-02
    pub(super) fn report_lost_connection(&mut self, lost: Cid) {
        if !self.is_active() {
            return;
        }
        let Some(cid) = self.any_connection() else { return };
        let time2wait = match self.params.level().recovers_connections() {
            true => TIME2WAIT_TO_REASSIGN_S,
            false => self.params.default_time2wait_s,
        };
        let parameters = [lost.0, time2wait, self.params.default_time2retain_s];
        let event = Event { event: AsyncEvent::ConnectionDrop, lun: Lun(0), parameters };
        self.send_async(cid, event, Bytes::new());
    }

    /// Sends an Asynchronous Message.
    pub(super) fn send_async(&mut self, cid: Cid, event: Event, data: Bytes) {
        let Some(n) = self.numbers(cid, true) else { return };
        let [parameter1, parameter2, parameter3] = event.parameters;
        let message = AsyncMessage {
            lun: event.lun,
            numbers: n,
            event: event.event,
            vcode: 0,
            parameter1,
            parameter2,
            parameter3,
        };
        self.send_status(cid, TxPdu::with_data(message.to_bhs(), data));
    }
}
