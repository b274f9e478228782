//! Data in another order than that of its bytes: reads as it arrives, writes as it is requested.

use bytes::Bytes;

use super::{Script, params, pattern, status};
use crate::initiator::session::Action;
use crate::params::{Bursts, DataOrder, Params};
use crate::send_order::SendOrder;

fn any_order(data_pdu_in_order: bool, data_sequence_in_order: bool) -> Script {
    Script::new(Params {
        data_in_order: DataOrder { pdus: data_pdu_in_order, sequences: data_sequence_in_order },
        ..params()
    })
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
        data_in_order: DataOrder { pdus: false, sequences: false },
        ..params()
    };
    let mut script = Script::new(params);
    script.read(1, 8 * 512);
    let (itt, _) = script.command();
    script.send_blocks(itt, &[(1, true)]);
    assert!(script.violated().contains("where 0 was due"));
}

/// The R2Ts of a write, whose data is sent at once: where each Data-Out begins and ends, its DataSN and its F bit.
fn answers(script: &mut Script, itt: iscsi_wire::Itt, r2ts: &[(u32, u32)]) -> Vec<(u32, u32, u32, bool)> {
    let mut answers = Vec::new();
    for (r2t_sn, (offset, length)) in r2ts.iter().enumerate() {
        let r2t = script.r2t(itt, r2t_sn as u32, *offset, *length);
        script.receive(r2t.to_bhs(), &[]);
        for (pdu, tx) in script.sent() {
            let iscsi_wire::Pdu::DataOut(out) = pdu else { panic!("{pdu:?}") };
            assert_eq!((out.ttt, out.lun), (r2t.ttt, r2t.lun));
            let (at, data) = (out.buffer_offset, tx.data.bytes());
            assert_eq!(data, pattern(1 << 16)[at as usize..at as usize + data.len()]);
            answers.push((at, at + data.len() as u32, out.data_sn.0, out.final_bit));
        }
    }
    answers
}

/// The tag of the write that is sent now, perhaps with unsolicited data.
fn write_tag(script: &mut Script) -> iscsi_wire::Itt {
    match script.sent()[0].0 {
        iscsi_wire::Pdu::ScsiCommand(command) => command.itt,
        ref other => panic!("{other:?}"),
    }
}

fn solicited(data_pdu_in_order: bool, data_sequence_in_order: bool) -> Script {
    Script::new(Params {
        data_in_order: DataOrder { pdus: data_pdu_in_order, sequences: data_sequence_in_order },
        bursts: Bursts { initial_r2t: true, immediate_data: false, ..params().bursts },
        ..params()
    })
}

// covers: DAT-05 R2T-03
#[test]
fn r2ts_in_any_order_are_answered_with_the_bytes_of_their_places() {
    let mut script = solicited(true, false);
    script.write(1, 1 << 16);
    let (itt, _) = script.command();
    let r2ts =
        [(16384, 8192), (0, 4096), (24576, 16384), (4096, 12288), (40960, 24576 - 8192), (57344, 8192)];
    let sent = answers(&mut script, itt, &r2ts);
    let mut bytes = vec![0u8; 1 << 16];
    for (from, to, _, _) in &sent {
        bytes[*from as usize..*to as usize].iter_mut().for_each(|times| *times += 1);
    }
    assert!(bytes.iter().all(|times| *times == 1));
    assert_eq!(sent[..2], [(16384, 20480, 0, false), (20480, 24576, 1, true)]);
    script.good(itt);
    assert_eq!(script.ended(), (1, status(0, 0)));
}

// covers: R2T-03 DAT-05
#[test]
fn r2ts_that_repeat_bytes_or_leave_the_data_are_violations_in_any_order() {
    let refused = |mut script: Script, r2ts: &[(u32, u32)], rule: &str| {
        script.write(1, 1 << 16);
        let itt = write_tag(&mut script);
        for (r2t_sn, (offset, length)) in r2ts.iter().enumerate() {
            let r2t = script.r2t(itt, r2t_sn as u32, *offset, *length);
            script.receive(r2t.to_bhs(), &[]);
        }
        let said = script.violated();
        assert!(said.contains(rule), "{r2ts:?}: {said}");
    };
    let again = "sent before";
    refused(solicited(true, false), &[(8192, 8192), (8192, 8192)], again);
    refused(solicited(true, false), &[(0, 8192), (0, 8192)], again);
    refused(solicited(true, false), &[(8192, 8192), (4096, 8192)], again);
    refused(solicited(true, false), &[(8192, 8192), (0, 4096), (16383, 1)], again);
    refused(solicited(true, false), &[(65536 - 512, 513)], "beyond");
    refused(solicited(true, false), &[(0xffff_ff00, 512)], "beyond");
    refused(solicited(true, true), &[(8192, 8192)], "where 0 was due");
    refused(solicited(false, true), &[(8192, 8192)], "where 0 was due");
    // What was sent unasked must not be requested either.
    refused(any_order(false, false), &[(4096, 8192)], again);
    refused(any_order(false, false), &[(16384, 8192), (0, 512)], again);
    let every_second: Vec<(u32, u32)> = (0..=1024).map(|n| (16384 + 16 * n, 8)).collect();
    refused(solicited(true, false), &every_second, "more holes");
    let params = Params {
        error_recovery_level: 1,
        data_in_order: DataOrder { sequences: false, ..params().data_in_order },
        ..params()
    };
    let mut script = Script::new(Params {
        bursts: Bursts { initial_r2t: true, immediate_data: false, ..params.bursts },
        ..params
    });
    script.write(1, 1 << 16);
    let (itt, _) = script.command();
    assert_eq!(answers(&mut script, itt, &[(0, 4096), (0, 4096)]).len(), 2, "recovery asks again");
}

/// The order that tests let an initiator draw.
// covers: DAT-05
#[test]
fn a_drawn_order_of_data_out_has_every_byte_once() {
    for (pdus_in_order, unasked) in [(false, false), (false, true), (true, false)] {
        let mut script = if unasked { any_order(false, true) } else { solicited(pdus_in_order, true) };
        script.session.config.send_order = SendOrder::Drawn(3);
        script.write(1, 1 << 16);
        let itt = write_tag(&mut script);
        let from = if unasked { 8192 } else { 0 };
        let sent = answers(&mut script, itt, &[(from, 16384)]);
        let numbers: Vec<(u32, bool)> = sent.iter().map(|(.., sn, last)| (*sn, *last)).collect();
        assert_eq!(numbers, [(0, false), (1, false), (2, false), (3, true)]);
        let mut places: Vec<(u32, u32)> = sent.iter().map(|(from, to, ..)| (*from, *to)).collect();
        let drawn = places.clone();
        places.sort_unstable();
        assert_eq!(places, (0..4).map(|n| (from + n * 4096, from + n * 4096 + 4096)).collect::<Vec<_>>());
        assert_eq!(drawn == places, pdus_in_order, "{drawn:?}");
    }
}
