//! How the data of a read travels: cut into PDUs that can be rebuilt (RFC 7143 11.7).

use iscsi_wire::Ttt;

/// How the data of a read is cut into PDUs: a pure function of the offset, so that each PDU can be rebuilt.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadPlan {
    /// DataSN of the first PDU of this cut.
    base_sn: u32,
    /// Offset of its data.
    base_offset: u32,
    /// Most data of a PDU, bytes.
    max_pdu: u32,
    /// Most data of a sequence, bytes.
    max_burst: u32,
    /// All data, bytes.
    pub total: u32,
    /// DataSN after the last PDU sent.
    pub next_sn: u32,
    /// The initiator has acknowledged every earlier DataSN.
    pub acked_sn: u32,
    /// Offset of the data of `acked_sn`.
    pub acked_offset: u32,
    /// Tag with which the A bit requests an acknowledgement; reserved if no PDU has the A bit.
    pub ttt: Ttt,
}

impl ReadPlan {
    pub(crate) fn new(first_sn: u32, max_pdu: u32, max_burst: u32, total: usize) -> Self {
        Self {
            base_sn: first_sn,
            base_offset: 0,
            max_pdu: max_pdu.max(1),
            max_burst: max_burst.max(1),
            total: total as u32,
            next_sn: first_sn,
            acked_sn: first_sn,
            acked_offset: 0,
            ttt: Ttt::RESERVED,
        }
    }

    /// Nothing is sent yet: cuts the data into PDUs of at most `max_pdu` bytes.
    pub(crate) fn cut(&mut self, max_pdu: u32) {
        self.max_pdu = max_pdu.max(1);
    }

    /// Whether the data that is not acknowledged is more than one sequence.
    pub(crate) fn takes_several_sequences(&self) -> bool {
        self.total - self.acked_offset > self.max_burst
    }

    /// End of the sequence that holds `offset`.
    fn burst_end(&self, offset: u32) -> u32 {
        let into = (offset - self.base_offset) % self.max_burst;
        offset.saturating_add(self.max_burst - into).min(self.total)
    }

    /// End of the PDU that begins at `offset`, and whether its sequence ends there.
    pub(crate) fn pdu_end(&self, offset: u32) -> (u32, bool) {
        let burst_end = self.burst_end(offset);
        let end = offset.saturating_add(self.max_pdu).min(burst_end);
        (end, end == burst_end)
    }

    /// Offset of the data of the PDU `data_sn`, for numbers of this cut.
    pub(crate) fn offset_of(&self, data_sn: u32) -> u32 {
        let index = u64::from(data_sn.saturating_sub(self.base_sn));
        let per_burst = u64::from(self.max_burst.div_ceil(self.max_pdu));
        let offset = u64::from(self.base_offset)
            + index / per_burst * u64::from(self.max_burst)
            + index % per_burst * u64::from(self.max_pdu);
        u32::try_from(offset).unwrap_or(u32::MAX).min(self.total)
    }

    /// How many PDUs remain to be sent after a [`Self::restart`] with `max_pdu`.
    pub(crate) fn pdus_to_resend(&self, max_pdu: u32) -> u32 {
        let left = self.total - self.acked_offset;
        let per_burst = self.max_burst.div_ceil(max_pdu.max(1));
        (left / self.max_burst) * per_burst + (left % self.max_burst).div_ceil(max_pdu.max(1))
    }

    /// Cuts the data that is not acknowledged again, into PDUs of at most `max_pdu` bytes.
    //= rfc7143 11.16.3 SNK-04
    pub(crate) fn restart(&mut self, max_pdu: u32) {
        (self.base_sn, self.base_offset) = (self.acked_sn, self.acked_offset);
        self.max_pdu = max_pdu.max(1);
        self.next_sn = self.base_sn;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Walking through a cut and computing offsets from DataSNs yields the same PDUs.
    #[test]
    fn dat_01_offsets_follow_from_numbers() {
        for (max_pdu, max_burst, total) in
            [(512, 2048, 10_000), (700, 2000, 9999), (4096, 1000, 3000), (1000, 1000, 1000)]
        {
            let mut plan = ReadPlan::new(3, max_pdu, max_burst, total);
            for restarted in [false, true] {
                if restarted {
                    plan.acked_sn = 5.min(plan.next_sn);
                    plan.acked_offset = plan.offset_of(plan.acked_sn);
                    let due = plan.pdus_to_resend(333);
                    plan.restart(333);
                    plan.next_sn = plan.acked_sn + due;
                }
                let (mut offset, mut sn) = (plan.acked_offset, plan.acked_sn);
                while offset < plan.total {
                    assert_eq!(plan.offset_of(sn), offset);
                    let (end, _) = plan.pdu_end(offset);
                    assert!(end > offset && end - offset <= plan.max_pdu);
                    (offset, sn) = (end, sn + 1);
                }
                assert!(!restarted || sn == plan.next_sn);
                plan.next_sn = sn;
            }
        }
    }
}
