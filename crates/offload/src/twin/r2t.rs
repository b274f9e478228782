//! R2T: what the target takes of a write's data (RFC 7143 11.8).

use iscsi_wire::{DataSn, R2t};

use super::Host;
use super::connection::Connection;
use super::data_in::Place;
use super::rx::Verdict;
use super::snack::{Group, Key};
use super::tx::Burst;
use crate::encoding::{RawReason, SnackCause, StopReason};

impl Connection {
    /// Handles an R2T whose digests match: its data is queued behind that of earlier R2Ts.
    pub(super) fn handle_r2t(&mut self, host: &mut Host, pdu: &R2t, data: &[u8]) -> Verdict {
        match self.queue_r2t(host.now_us, pdu, data) {
            Ok(verdict) | Err(verdict) => verdict,
        }
    }

    //= rfc7143 11.8 R2T-02 ERL-03
    fn queue_r2t(&mut self, now_us: u64, pdu: &R2t, data: &[u8]) -> Result<Verdict, Verdict> {
        let place = self.check_r2t(pdu, data)?;
        let deadline_us = self.snack_deadline(now_us);
        let Some(task) = self.tasks.get_mut(&pdu.itt.0) else { return Ok(Verdict::Done) };
        let sn = DataSn(pdu.r2t_sn.0);
        match place {
            Place::Duplicate => return Ok(Verdict::Done),
            Place::Due => task.next_sn = sn.next().0,
            Place::Ahead => {
                let (begin, length) = (task.next_sn, DataSn(task.next_sn).distance_to(sn));
                let group = Group { begin, length, begin_offset: 0, end_offset: 0 };
                self.snacks.lose(Key::of_task(pdu.itt), group, SnackCause::GAP, deadline_us);
                task.next_sn = sn.next().0;
            }
            Place::Fills(index) => self.snacks.fill(index, sn.0, (0, 0)),
        }
        self.bursts.push_back(Burst {
            itt: pdu.itt.0,
            ttt: pdu.ttt,
            lun: pdu.lun,
            r2t_sn: pdu.r2t_sn.0,
            offset: pdu.buffer_offset,
            length: pdu.desired_data_transfer_length,
            sent: 0,
            data_sn: 0,
        });
        Ok(Verdict::Done)
    }

    /// Everything that an R2T must fulfil before it is answered.
    //= rfc7143 4.2.5.2 R2T-03 R2T-01
    fn check_r2t(&self, pdu: &R2t, data: &[u8]) -> Result<Place, Verdict> {
        let task = self.tasks.get(&pdu.itt.0).filter(|task| task.sent);
        let task = task.ok_or(Verdict::Raw(RawReason::NO_TASK))?;
        let length = pdu.desired_data_transfer_length;
        let end = u64::from(pdu.buffer_offset) + u64::from(length);
        let open = self.bursts.iter().filter(|burst| burst.itt == pdu.itt.0 && burst.is_solicited()).count();
        let place = self.place(task, pdu.r2t_sn.0)?;
        let valid = task.writes()
            && task.status.is_none()
            && data.is_empty()
            && !pdu.ttt.is_reserved()
            && (1..=self.params.max_burst_length).contains(&length)
            && end <= u64::from(task.post.edtl)
            && (place == Place::Duplicate || open < usize::from(self.params.max_outstanding_r2t));
        if valid { Ok(place) } else { Err(Verdict::Stop(StopReason::PROTOCOL)) }
    }
}
