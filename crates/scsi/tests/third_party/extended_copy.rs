//! EXTENDED COPY between units of a target, and its results.

use std::sync::Arc;

use scsi::{DataOut, Execution, Identity, LuConfig, MediumConfig, MediumError, MediumOp, Status, Step};

use crate::shelf::*;
use crate::support::BLOCK;

#[test]
fn cpy_01_blocks_move_between_units_and_within_one() {
    let mut shelf = Shelf::new();
    shelf.number(0, 0, 100);
    shelf.number(1, 0, 10);
    let list = list_lid1(
        1,
        &[cscd(0), cscd(1), cscd(2)],
        &[segment(0, 10, 1, 500, 50), segment(1, 0, 2, 0, 10), segment(0, 0, 0, 5, 40)],
    );
    let before = shelf.bytes(0, 0, 40).to_vec();
    // The copy manager may be a unit that is not part of any segment.
    let answer = shelf.run(2, &copy_cdb(0, list.len()), &list).good();
    assert_eq!(answer.transfer_bytes, list.len() as u64);
    shelf.same((0, 50), (1, 540), 10);
    shelf.same((1, 0), (2, 0), 10);
    // The destination overlaps the end of its source, and still gets the original source data.
    assert!(shelf.bytes(0, 5, 40) == before);
}

#[test]
fn cpy_01_a_long_segment_moves_in_pieces_from_the_end_when_it_overlaps_itself() {
    let mut shelf =
        Shelf::with(|config| LuConfig { medium: MediumConfig { blocks: 16_384, ..config.medium }, ..config });
    shelf.number(0, 0, 6000);
    let before = shelf.bytes(0, 0, 6000).to_vec();
    let list = list_lid1(1, &[cscd(0)], &[segment(0, 0, 0, 1000, 6000)]);
    let answer = shelf.run(0, &copy_cdb(0, list.len()), &list).good();
    assert!(answer.ops.len() > 2 && answer.ops.iter().all(|op| matches!(op, MediumOp::Copy { .. })));
    assert!(shelf.bytes(0, 1000, 6000) == before);
}

#[test]
fn cpy_01_nothing_to_do_is_no_error() {
    let mut shelf = Shelf::new();
    shelf.run(0, &copy_cdb(0, 0), &[]).good();
    let list = list_lid1(1, &[cscd(0)], &[]);
    shelf.run(0, &copy_cdb(0, list.len()), &list).good();
    let list = list_lid1(2, &[cscd(0)], &[segment(0, 0, 0, 0, 0)]);
    assert!(shelf.run(0, &copy_cdb(0, list.len()), &list).good().ops.is_empty());
}

#[test]
fn cpy_01_operating_parameters_are_the_limits_that_hold() {
    let mut shelf = Shelf::new();
    let data = shelf.run(0, &results_lid1(3, 0), &[]).good().data;
    assert_eq!(number(&data, 0, 4), data.len() as u64 - 4);
    let (cscds, segments) = (number(&data, 8, 2) as usize, number(&data, 10, 2) as usize);
    assert_eq!(data[44..], [0x02, 0xe4]);
    assert_eq!(usize::from(data[43]), 2);
    let segment = segment(0, 0, 1, 0, 1);
    for (n, m, fails) in [(cscds, segments, None), (cscds + 1, 1, Some(0x06)), (2, segments + 1, Some(0x08))]
    {
        let list = list_lid1(1, &vec![cscd(0); n], &vec![segment.clone(); m]);
        let answer = shelf.run(0, &copy_cdb(0, list.len()), &list);
        match fails {
            None => drop(answer.good()),
            Some(_) if list.len() > 16 + number(&data, 12, 4) as usize => drop(answer.fails(5, 0x1a, 0)),
            Some(ascq) => drop(answer.fails(5, 0x26, ascq)),
        }
    }
}

#[test]
fn cpy_01_a_unit_is_found_by_its_whole_vendor_identifier_and_by_no_part_of_one() {
    let mut shelf = Shelf::with(|config| LuConfig {
        identity: Identity { serial: format!("disk{}", config.lun), ..config.identity },
        ..config
    });
    shelf.number(0, 0, 8);
    let by_vendor = |id: &[u8]| {
        let mut descriptor = vec![0xe4, 0, 0, 0, 2, 1, 0, id.len() as u8];
        descriptor.extend(id);
        descriptor.resize(28, 0);
        descriptor.extend((BLOCK as u32).to_be_bytes());
        descriptor
    };
    let list = list_lid1(1, &[cscd(0), by_vendor(b"INTACT  disk1")], &[segment(0, 0, 1, 0, 8)]);
    shelf.run(2, &copy_cdb(0, list.len()), &list).good();
    shelf.same((0, 0), (1, 0), 8);
    let list = list_lid1(1, &[cscd(0), by_vendor(b"INTACT  disk")], &[segment(0, 0, 1, 0, 8)]);
    shelf.run(2, &copy_cdb(0, list.len()), &list).fails(0xa, 0x0d, 0x02);
}

#[test]
fn cpy_02_a_list_that_makes_no_sense_copies_nothing() {
    let mut shelf = Shelf::new();
    shelf.number(0, 0, 8);
    let good = list_lid1(1, &[cscd(0), cscd(1)], &[segment(0, 0, 1, 0, 8)]);
    let change = |at: usize, byte: u8| {
        let mut list = good.clone();
        list[at] = byte;
        list
    };
    let (first, second) = (16, 16 + 64);
    for (list, code) in [
        (change(first, 0xe5), (5, 0x26, 0x07)),
        (change(second, 0x0f), (5, 0x26, 0x09)),
        (change(first + 1, 0x01), (0xa, 0x0d, 0x03)),
        (change(first + 12, 0xee), (0xa, 0x0d, 0x02)),
        (change(first + 7, 0), (5, 0x26, 0x00)),
        (change(first + 7, 21), (5, 0x26, 0x00)),
        (change(first + 30, 0x10), (5, 0x26, 0x00)),
        (change(second + 3, 0x17), (5, 0x26, 0x00)),
        (change(second + 5, 2), (0xa, 0x08, 0x04)),
        (change(second + 7, 2), (0xa, 0x08, 0x04)),
        (change(1, 0x08), (5, 0x26, 0x00)),
        (change(1, 0x18), (5, 0x26, 0x00)),
        (change(3, 33), (5, 0x26, 0x00)),
        (change(15, 1), (5, 0x26, 0x0b)),
        (change(11, 29), (5, 0x1a, 0x00)),
        (good[..15].to_vec(), (5, 0x1a, 0x00)),
        (good[..100].to_vec(), (5, 0x1a, 0x00)),
    ] {
        let answer = shelf.run(0, &copy_cdb(0, list.len()), &list);
        assert_eq!(answer.status, Status::CheckCondition, "{list:x?}");
        assert_eq!(answer.code(), code, "{list:x?}");
        assert!(shelf.bytes(1, 0, 8).iter().all(|&byte| byte == 0));
    }
}

// covers: CPY-02
#[test]
fn the_sense_points_at_the_byte_of_the_list_that_is_wrong() {
    let mut shelf = Shelf::new();
    let good = list_lid1(1, &[cscd(0), cscd(1)], &[segment(0, 0, 1, 0, 8), segment(0, 8, 1, 8, 8)]);
    let (second, segments) = (16 + 32, 16 + 64);
    for (at, byte, points_at, bit) in [
        (1, 0x08, 1, Some(4)),
        (1, 0x18, 0, None),
        (3, 33, 2, None),
        (second + 5, 0x13, second + 5, Some(5)),
        (second + 7, 0, second + 7, None),
        (second + 7, 21, second + 7, None),
        (second + 30, 0x10, second + 29, None),
        (segments + 28 + 3, 0x17, segments + 28 + 2, None),
    ] {
        let mut list = good.clone();
        list[at] = byte;
        shelf.run(0, &copy_cdb(0, list.len()), &list).points_at(points_at as u16, bit);
    }
    let good = list_lid4(1, &[cscd(0)], &[segment(0, 0, 0, 0, 8)]);
    for (at, byte, points_at, bit) in [
        (0, 0, 0, None),
        (3, 0x1f, 2, None),
        (2, 1, 2, None),
        (16, 0xfe, 16, None),
        (1, 0x18, 20, None),
        (43, 33, 42, None),
    ] {
        let mut list = good.clone();
        list[at] = byte;
        shelf.run(0, &copy_cdb(1, list.len()), &list).points_at(points_at, bit);
    }
    // Lists that end before their header does, or are longer than any that is accepted.
    for length in [1, 15, 70_000] {
        shelf.run(0, &copy_cdb(0, length), &vec![0; length]).fails(5, 0x1a, 0);
    }
    shelf.run(0, &copy_cdb(1, 47), &[0; 47]).fails(5, 0x1a, 0);
}

// covers: CPY-02
#[test]
fn a_segment_is_256_mib_at_most() {
    let mut shelf = Shelf::with(|config| LuConfig {
        medium: MediumConfig { block_bytes: 65_536, blocks: 16, ..config.medium },
        ..config
    });
    let mut unit = cscd(0);
    unit[28..].fill(0);
    let mut copy = |blocks: u16| {
        let list = list_lid1(1, &[unit.clone()], &[segment(0, 0, 0, 0, blocks)]);
        shelf.run(0, &copy_cdb(0, list.len()), &list)
    };
    copy(4097).points_at(16 + 32 + 10, None);
    // The blocks are not there: that is found later.
    assert_eq!(copy(4096).fails(0xa, 0, 0).status, Status::CheckCondition);
}

#[test]
fn cpy_02_a_segment_that_fails_is_named() {
    let mut shelf = Shelf::new();
    shelf.number(0, 0, 8);
    let list = list_lid1(9, &[cscd(0), cscd(1)], &[segment(0, 0, 1, 0, 8), segment(0, 4090, 1, 8, 8)]);
    let answer = shelf.run(0, &copy_cdb(0, list.len()), &list).fails(0xa, 0, 0);
    assert_eq!(answer.sense_bytes.map(|sense| sense[8..12].to_vec()), Some(vec![0, 0, 0, 1]));
    shelf.same((0, 0), (1, 0), 8);
    let details = shelf.run(0, &results_lid1(4, 9), &[]).good().data;
    assert_eq!((details[56], details[60 + 2], details[60 + 12]), (2, 0xa, 0));

    shelf.fault = Some((0, MediumError::Read { lba: Some(3) }));
    let list = list_lid1(9, &[cscd(0), cscd(1)], &[segment(0, 0, 1, 0, 8)]);
    shelf.run(0, &copy_cdb(0, list.len()), &list).fails(0xa, 0x0d, 0x01);
    shelf.fault = Some((0, MediumError::Gone));
    shelf.run(0, &copy_cdb(0, list.len()), &list).fails(0xa, 0x0d, 0x02);
}

// covers: CPY-01
#[test]
fn addresses_of_blocks_have_64_bits() {
    let mut shelf = Shelf::new();
    shelf.number(0, 0, 8);
    for (from, to) in [(1 << 32, 0), (0, 1 << 32)] {
        let list = list_lid1(1, &[cscd(0), cscd(1)], &[segment(0, from, 1, to, 8)]);
        shelf.run(0, &copy_cdb(0, list.len()), &list).fails(0xa, 0, 0);
        assert!(shelf.bytes(1, 0, 8).iter().all(|&byte| byte == 0), "from {from:x} to {to:x}");
    }
}

// covers: MOD-03 CPY-01
#[test]
fn a_copy_is_as_durable_as_writes_to_its_destination() {
    let mut shelf = Shelf::new();
    let list = list_lid1(1, &[cscd(0), cscd(1)], &[segment(0, 0, 1, 0, 8)]);
    for write_cache in [true, false] {
        let ops = shelf.run(0, &copy_cdb(0, list.len()), &list).good().ops;
        assert!(matches!(ops[..], [MediumOp::Copy { durable, .. }] if durable != write_cache), "{ops:?}");
        // The source has a cache all the time.
        let mut page = shelf.run(1, &[0x1a, 8, 0x08, 0, 255, 0], &[]).good().data;
        page[..4].fill(0);
        page[4 + 2] ^= 0x04;
        shelf.run(1, &[0x15, 0x10, 0, 0, page.len() as u8, 0], &page).good();
    }
}

// covers: CPY-03 PR-16
#[test]
fn cpy_03_reservations_and_write_protection_hold_on_both_sides() {
    let mut shelf = Shelf::new();
    let b = shelf.b.clone();
    let list = list_lid1(1, &[cscd(0), cscd(1)], &[segment(0, 0, 1, 0, 8)]);
    let copy = |shelf: &mut Shelf| shelf.run(2, &copy_cdb(0, list.len()), &list);
    copy(&mut shelf).good();
    for (lun, kind, admitted) in [(0, 3, false), (0, 1, true), (1, 1, false), (1, 3, false)] {
        let mut key = vec![0; 24];
        key[8..16].copy_from_slice(&5u64.to_be_bytes());
        shelf.run_as(&b, lun, &[0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0], &key).good();
        key.rotate_left(8);
        shelf.run_as(&b, lun, &[0x5f, 1, kind, 0, 0, 0, 0, 0, 24, 0], &key).good();
        if admitted {
            drop(copy(&mut shelf).good())
        } else {
            drop(copy(&mut shelf).fails(0xa, 0x0d, 0x01))
        }
        shelf.run_as(&b, lun, &[0x5f, 3, 0, 0, 0, 0, 0, 0, 24, 0], &key).good();
    }
    shelf.disks[1].lu.set_read_only(true);
    copy(&mut shelf).fails(0xa, 0x27, 0);
    // The manager itself may be reserved against the host too.
    shelf.run_as(&b, 2, &[0x16, 0, 0, 0, 0, 0], &[]).good();
    copy(&mut shelf).conflicts();
}

#[test]
fn cpy_04_results_are_kept_until_they_were_asked_for() {
    let mut shelf = Shelf::new();
    let (a, b) = (shelf.a.clone(), shelf.b.clone());
    let list = list_lid1(7, &[cscd(0), cscd(1)], &[segment(0, 0, 1, 0, 2048)]);
    shelf.run(0, &copy_cdb(0, list.len()), &list).good();
    // Another nexus and another manager do not know the copy.
    shelf.run_as(&b, 0, &results_lid1(0, 7), &[]).fails(5, 0x24, 0);
    shelf.run_as(&a, 1, &results_lid1(0, 7), &[]).fails(5, 0x24, 0);
    let status = shelf.run(0, &results_lid1(0, 7), &[]).good().data;
    assert_eq!(status, [0, 0, 0, 8, 1, 0, 1, 1, 0, 0, 4, 0]);
    shelf.run(0, &results_lid1(0, 7), &[]).fails(5, 0x24, 0);
}

// covers: CPY-04
#[test]
fn the_results_of_the_last_64_copies_are_kept() {
    let mut shelf = Shelf::new();
    let copy = |shelf: &mut Shelf, list_id: u8| {
        let list = list_lid1(list_id, &[cscd(0), cscd(1)], &[segment(0, 0, 1, 0, 8)]);
        shelf.run(0, &copy_cdb(0, list.len()), &list).good();
    };
    (0..65).for_each(|list_id| copy(&mut shelf, list_id));
    shelf.run(0, &results_lid1(0, 0), &[]).fails(5, 0x24, 0);
    for list_id in 1..65 {
        shelf.run(0, &results_lid1(0, list_id), &[]).good();
    }
    // Another copy with the same identifier takes the place of the earlier one.
    (0..70).for_each(|_| copy(&mut shelf, 7));
    copy(&mut shelf, 8);
    shelf.run(0, &results_lid1(0, 7), &[]).good();
    shelf.run(0, &results_lid1(0, 7), &[]).fails(5, 0x24, 0);
    shelf.run(0, &results_lid1(0, 8), &[]).good();
}

/// A copy whose medium is still busy with its first piece.
fn half_way(shelf: &Shelf, list: &[u8], service_action: u8) -> Execution {
    let lu = &shelf.disks[0].lu;
    let mut execution = lu.begin_offering(&shelf.a, &copy_cdb(service_action, list.len()), list.len() as u64);
    execution.data_out(lu, &DataOut::new(&[list]));
    assert!(matches!(execution.step(), Step::Medium(MediumOp::Copy { .. })));
    execution
}

#[test]
fn cpy_04_a_copy_under_way_can_be_watched_and_its_identifier_is_taken() {
    let mut shelf = Shelf::new();
    let list = list_lid1(7, &[cscd(0), cscd(1)], &[segment(0, 0, 1, 0, 4000)]);
    let execution = half_way(&shelf, &list, 0);
    assert_eq!(shelf.run(0, &results_lid1(0, 7), &[]).good().data[4], 0);
    shelf.run(0, &results_lid1(4, 7), &[]).fails(5, 0x24, 0);
    shelf.run(0, &copy_cdb(0, list.len()), &list).fails(5, 0x00, 0x16);
    let lu = Arc::clone(&shelf.disks[0].lu);
    shelf.continue_with(&lu, execution, &[]).good();
    assert_eq!(shelf.run(0, &results_lid1(0, 7), &[]).good().data[4], 1);

    // Its task is aborted: the execution no longer exists, and the identifier is free.
    drop(half_way(&shelf, &list, 0));
    assert_eq!(shelf.run(0, &results_lid1(0, 7), &[]).good().data[4], 2);
    shelf.run(0, &copy_cdb(0, list.len()), &list).good();
}

// covers: CPY-04
#[test]
fn no_more_than_16_copies_run_at_the_same_time() {
    let mut shelf = Shelf::new();
    let list = |list_id| list_lid1(list_id, &[cscd(0), cscd(1)], &[segment(0, 0, 1, 0, 4000)]);
    let mut running: Vec<Execution> = (0..16).map(|list_id| half_way(&shelf, &list(list_id), 0)).collect();
    let one_more = list(16);
    shelf.run(0, &copy_cdb(0, one_more.len()), &one_more).fails(0xb, 0x55, 0x03);
    running.pop();
    shelf.run(0, &copy_cdb(0, one_more.len()), &one_more).good();
}

#[test]
fn cpy_05_four_byte_identifiers_and_the_end_of_a_copy_by_command() {
    let mut shelf = Shelf::new();
    shelf.number(0, 0, 100);
    let list = list_lid4(0xdead_beef, &[cscd(0), cscd(1)], &[segment(0, 0, 1, 0, 100)]);
    shelf.run(0, &copy_cdb(1, list.len()), &list).good();
    shelf.same((0, 0), (1, 0), 100);
    let status = shelf.run(0, &results_lid4(5, 0xdead_beef), &[]).good().data;
    assert_eq!((status[4], status[5], number(&status, 16, 8)), (1, 0x01, 50));
    assert_eq!(number(&status, 0, 4), status.len() as u64 - 4);
    shelf.run(0, &results_lid4(5, 0xdead_beee), &[]).fails(5, 0x24, 0);

    let beyond = list_lid4(6, &[cscd(0), cscd(1)], &[segment(0, 4090, 1, 0, 8)]);
    shelf.run(0, &copy_cdb(1, beyond.len()), &beyond).fails(0xa, 0, 0);
    let failed = shelf.run(0, &results_lid4(5, 6), &[]).good().data;
    // CHECK CONDITION, and the sense that the copy ended with; a copy that worked has neither.
    assert_eq!((failed[12], usize::from(failed[14])), (2, failed.len() - 32));
    assert_eq!((failed[32] & 0x7f, failed[34] & 0x0f), (0x70, 0xa));
    assert_eq!((status[12], status[14]), (0, 0));

    let long = list_lid4(3, &[cscd(0), cscd(1)], &[segment(0, 0, 1, 0, 4000)]);
    let execution = half_way(&shelf, &long, 1);
    assert_eq!(shelf.run(0, &results_lid4(5, 3), &[]).good().data[5], 0x10);
    let mut abort = vec![0; 16];
    (abort[0], abort[1], abort[5]) = (0x83, 0x1c, 3);
    shelf.run(0, &abort, &[]).good();
    let lu = Arc::clone(&shelf.disks[0].lu);
    shelf.continue_with(&lu, execution, &[]).fails(0xa, 0x2f, 0x02);
    assert_eq!(shelf.run(0, &results_lid4(5, 3), &[]).good().data[5], 0x60);
    abort[5] = 4;
    shelf.run(0, &abort, &[]).fails(5, 0x24, 0);

    for (at, byte) in [(0, 0), (3, 0x1f), (16, 0xfe)] {
        let mut list = list.clone();
        list[at] = byte;
        shelf.run(0, &copy_cdb(1, list.len()), &list).fails(5, 0x26, 0);
    }
}
