//! Reads whose data arrives in another order than that of its bytes.

use bytes::Bytes;

use super::{Script, params, pattern, status};
use crate::initiator::session::Action;
use crate::params::Params;

fn any_order(data_pdu_in_order: bool, data_sequence_in_order: bool) -> Script {
    Script::new(Params { data_pdu_in_order, data_sequence_in_order, ..params() })
}

impl Script {
    /// Sends PDUs of 512 bytes of a pattern, each with its place and its F bit.
    fn send_blocks(&mut self, itt: iscsi_wire::Itt, blocks: &[(u32, bool)]) {
        let whole = pattern(64 * 512);
        for (data_sn, (block, final_bit)) in blocks.iter().enumerate() {
            let offset = block * 512;
            let mut pdu = self.data_in(itt, data_sn as u32, offset);
            pdu.final_bit = *final_bit;
            self.receive(pdu.to_bhs(), &whole[offset as usize..offset as usize + 512]);
        }
    }

    /// The data that was handed over, as one buffer.
    fn placed(&mut self, length: usize) -> Bytes {
        self.sent_nothing();
        let mut buffer = vec![0; length];
        for action in &self.said {
            if let Action::DataIn { offset, data, .. } = action {
                buffer[*offset as usize..*offset as usize + data.len()].copy_from_slice(data);
            }
        }
        buffer.into()
    }
}

// covers: DAT-05
#[test]
fn a_thousand_orders_give_the_bytes_of_the_order_in_place() {
    for seed in 1..=1000u64 {
        let mut random = seed;
        let mut next = |bound: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % bound
        };
        let (pdus_in_order, sequences_in_order) =
            [(false, false), (false, true), (true, false)][seed as usize % 3];
        let (sequences, each) = (1 + next(6), 1 + next(8));
        let mut order: Vec<Vec<u32>> =
            (0..sequences).map(|s| (0..each).map(|n| (s * each + n) as u32).collect()).collect();
        if !sequences_in_order {
            (1..sequences).rev().for_each(|i| order.swap(i, next(i + 1)));
        }
        if !pdus_in_order {
            order.iter_mut().for_each(|blocks| (1..each).rev().for_each(|i| blocks.swap(i, next(i + 1))));
        }
        let last = |n: usize| n + 1 == each;
        let blocks: Vec<(u32, bool)> =
            order.iter().flat_map(|s| s.iter().enumerate().map(|(n, block)| (*block, last(n)))).collect();
        let mut script = any_order(pdus_in_order, sequences_in_order);
        let length = sequences * each * 512;
        script.read(1, length as u32);
        let (itt, _) = script.command();
        script.send_blocks(itt, &blocks);
        script.good(itt);
        assert_eq!(script.placed(length), pattern(length), "seed {seed}");
        assert_eq!(script.ended(), (1, status(0, length as u32)), "seed {seed}");
    }
}

// covers: DAT-03 DAT-05
#[test]
fn overlap_gaps_and_orders_that_were_not_agreed_on_are_violations() {
    let refused = |pdus: bool, sequences: bool, blocks: &[(u32, bool)], rule: &str| {
        let mut script = any_order(pdus, sequences);
        script.read(1, 8 * 512);
        let (itt, _) = script.command();
        script.send_blocks(itt, blocks);
        script.good(itt);
        let said = script.violated();
        assert!(said.contains(rule), "{blocks:?}: {said}");
    };
    refused(false, false, &[(3, false), (1, false), (3, true)], "came before");
    refused(false, true, &[(1, false), (1, true)], "came before");
    refused(false, false, &[(0, false), (2, true)], "GOOD status and a gap");
    refused(false, true, &[(0, false), (2, true)], "ends with a gap");
    refused(true, false, &[(4, false), (6, true)], "where 2560 was due in its sequence");
    refused(false, false, &[(8, true)], "beyond");
    refused(true, true, &[(1, true)], "where 0 was due");
    refused(true, true, &[(0, true), (2, true)], "where 512 was due");
}

#[test]
fn recovery_of_lost_pdus_keeps_the_strict_order() {
    let params = Params {
        error_recovery_level: 1,
        data_pdu_in_order: false,
        data_sequence_in_order: false,
        ..params()
    };
    let mut script = Script::new(params);
    script.read(1, 8 * 512);
    let (itt, _) = script.command();
    script.send_blocks(itt, &[(1, true)]);
    assert!(script.violated().contains("where 0 was due"));
}
