//! R-Data SNACK: data requested again after we lowered MaxRecvDataSegmentLength (RFC 7143 11.16.3).
//!
//! The target sends all unacknowledged data again, newly cut and numbered, and a response that carries the tag of the request.
//! PDUs of the old cut may still be on their way, so data is judged here by its offset and not by its number: data that continues
//! what has arrived is accepted, the rest is ignored.

use iscsi_wire::{Cid, DataIn, Itt, SnackRequest, SnackType, StatSn, Ttt};

use super::super::actions::{Action, CloseReason};
use super::super::outcome::Outcome;
use super::super::session::InitiatorSession;
use super::holes::Anew;
use crate::pdu_reader::RxPdu;

impl InitiatorSession {
    /// Requests all data of a task again, in a new cut.
    //= rfc7143 11.16.3 SNK-04
    pub(super) fn ask_anew(&mut self, itt: Itt) {
        let tag = self.missing.next_tag();
        let Some(task) = self.tasks.command(itt) else { return };
        let (cid, lun) = (task.route.home, task.command.lun);
        let holes = task.holes.get_or_insert_default();
        let held = holes.anew.and_then(|anew| anew.held);
        holes.anew = Some(Anew { tag, damaged: false, held });
        holes.forget_waiting();
        let (snack_type, ttt, exp_stat_sn) = (SnackType::RData, Ttt(tag), StatSn(0));
        self.send_snack(
            cid,
            SnackRequest { snack_type, lun, itt, ttt, exp_stat_sn, beg_run: 0, run_length: 0 },
        );
    }

    pub(super) fn take_anew(&mut self, cid: Cid, pdu: &DataIn, rx: &RxPdu) -> Result<(), CloseReason> {
        // A status is valid only in the response with the tag.
        if pdu.status_bit && self.see_stat_sn(cid, pdu.numbers.stat_sn)? {
            self.hold_untagged(cid, pdu.itt, pdu.numbers.stat_sn);
        }
        let Some(task) = self.tasks.command(pdu.itt) else { return Ok(()) };
        let Some(holes) = &mut task.holes else { return Ok(()) };
        if !rx.data_digest_ok {
            if let Some(anew) = &mut holes.anew {
                anew.damaged = true;
            }
            return Ok(());
        }
        let (begin, end) = (pdu.buffer_offset, u64::from(pdu.buffer_offset) + rx.data.len() as u64);
        if begin <= task.received
            && end > u64::from(task.received)
            && end <= u64::from(task.command.read_length)
        {
            let data = rx.data.slice((task.received - begin) as usize..);
            let (user, offset) = (task.command.user, task.received);
            (task.received, task.next_data_sn) = (end as u32, pdu.data_sn.0.wrapping_add(1));
            self.act(Action::DataIn { user, offset, data });
        }
        if pdu.acknowledge {
            self.acknowledge_data(cid, pdu);
        }
        Ok(())
    }

    /// Handles the response of a task whose data is being sent again; returns false for any other task.
    //= rfc7143 11.4.7 SNK-04
    pub(in super::super) fn response_anew(
        &mut self,
        itt: Itt,
        snack_tag: u32,
        stat_sn: StatSn,
        outcome: &Outcome,
    ) -> Result<bool, CloseReason> {
        let now = self.now;
        let Some(task) = self.tasks.command(itt) else { return Ok(false) };
        let cid = task.route.home;
        let wanted = task.command.read_length.saturating_sub(outcome.missing());
        let complete = task.received >= wanted || !outcome.is_good();
        let Some(holes) = &mut task.holes else { return Ok(false) };
        let Some(anew) = holes.anew else { return Ok(false) };
        if anew.tag == snack_tag && complete && !anew.damaged {
            task.holes = None;
            self.missing.forget(itt);
            if let Some(held) = anew.held.filter(|held| *held != stat_sn) {
                self.take_stat_sn(cid, held)?;
            }
            self.end_held(itt, stat_sn, outcome.clone())?;
            return Ok(true);
        }
        if anew.tag == snack_tag {
            holes.asking.start_over(now);
        }
        self.hold_untagged(cid, itt, stat_sn);
        Ok(true)
    }

    /// Withholds the acknowledgement of a status that does not end its task, and releases the one withheld before.
    //= rfc7143 7.9 SNK-09
    fn hold_untagged(&mut self, cid: Cid, itt: Itt, stat_sn: StatSn) {
        let holes = self.tasks.command(itt).and_then(|task| task.holes.as_mut());
        let Some(anew) = holes.and_then(|holes| holes.anew.as_mut()) else { return };
        let before = anew.held.replace(stat_sn).filter(|before| *before != stat_sn);
        if let Some(connection) = self.connection(cid) {
            connection.statuses.hold(stat_sn);
            if let Some(before) = before {
                connection.statuses.settle(before);
            }
        }
    }
}
