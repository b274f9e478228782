//! For tests: R2Ts and Data-In in another order than that of their bytes, where the session allows it (RFC 7143 13.18, 13.19).

use iscsi_wire::Cid;

use super::data_in::Piece;
use super::recovery::retained::Outcome;
use super::session::TargetSession;
use super::task::TaskId;

impl TargetSession {
    /// Draws the order in which the bursts of a task are requested, if it is to be drawn.
    pub(super) fn draw_bursts(&mut self, id: TaskId, wanted: u32) {
        if self.params.data_order().sequences || !self.config.send_order.is_drawn() {
            return;
        }
        let max_burst = self.params.bursts.max_burst_length;
        let Some(task) = self.tasks.get_mut(id).filter(|task| task.next_r2t_offset < wanted) else { return };
        let from = std::mem::replace(&mut task.next_r2t_offset, wanted);
        task.repair().drawn_bursts =
            self.config.send_order.places(from, wanted, max_burst).unwrap_or_default();
    }

    /// Sends all data of a command in a drawn order.
    pub(super) fn send_data_in_drawn(&mut self, cid: Cid, outcome: &mut Outcome) {
        let (order, total) = (self.params.data_order(), outcome.plan.total);
        let (mut sequences, mut offset) = (vec![Vec::new()], outcome.plan.acked_offset);
        while offset < total {
            let (end, final_bit) = outcome.plan.pdu_end(offset);
            sequences.last_mut().expect("there is always one").push((offset, end));
            if final_bit && end < total {
                sequences.push(Vec::new());
            }
            offset = end;
        }
        if !order.sequences {
            self.config.send_order.arrange(&mut sequences);
        }
        let mut left: usize = sequences.iter().map(Vec::len).sum();
        for mut pdus in sequences {
            if !order.pdus {
                self.config.send_order.arrange(&mut pdus);
            }
            let count = pdus.len();
            for (n, (offset, end)) in pdus.into_iter().enumerate() {
                left -= 1;
                let bytes = outcome.data_in.bytes.slice(offset as usize..end as usize);
                let piece = Piece { offset, bytes, final_bit: n + 1 == count, last: left == 0 };
                let data_sn = outcome.plan.next_sn;
                let Some(pdu) = self.data_in_pdu(cid, outcome, data_sn, piece) else { return };
                outcome.plan.next_sn += 1;
                match left == 0 && outcome.in_data {
                    true => self.send_status_of(cid, pdu, outcome.itt),
                    false => self.send(cid, pdu),
                }
            }
        }
    }
}
