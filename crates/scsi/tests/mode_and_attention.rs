//! Mode pages, sense formats and unit attentions.
mod support;

use scsi::{Asc, MediumOp, Nexus, Paths, SenseData, SenseKey, SenseSpecific, TargetPort, UaScope};
use support::{BLOCK, Disk, cdb, nexus};

/// The one page that MODE SENSE(10) returns, without the header.
fn page(disk: &mut Disk, control: u8, code: u8, subpage: u8) -> Vec<u8> {
    disk.run(&cdb::mode_sense_10(control << 6 | code, subpage)).good().data[8..].to_vec()
}

fn select_6(pages: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let list = [&[0; 4], pages].concat();
    (vec![0x15, 0x10, 0, 0, list.len() as u8, 0], list)
}

fn select_10(pages: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let list = [&[0; 8], pages].concat();
    (vec![0x55, 0x10, 0, 0, 0, 0, 0, 0, list.len() as u8, 0], list)
}

fn change(disk: &mut Disk, code: u8, at: usize, mask: u8) -> support::Answer {
    let mut page = page(disk, 0, code, 0);
    page[at] ^= mask;
    let (cdb, list) = select_6(&page);
    disk.send(&cdb, &list)
}

#[test]
fn mod_01_pages_have_their_lengths_and_nothing_is_saved() {
    let mut disk = Disk::new();
    let expected = [
        (0x01, 0, 12),
        (0x02, 0, 16),
        (0x08, 0, 20),
        (0x0a, 0, 12),
        (0x0a, 1, 32),
        (0x1a, 0, 40),
        (0x1c, 0, 12),
        (0x1c, 2, 16),
    ];
    let mut all = Vec::new();
    for (code, subpage, length) in expected {
        for control in 0..3 {
            let page = page(&mut disk, control, code, subpage);
            assert_eq!(page.len(), length);
            assert_eq!(page[0] & 0x80, 0, "PS");
            let (head, header) = if subpage == 0 { (page[1], 2) } else { (page[3], 4) };
            assert_eq!(usize::from(head), length - header);
        }
        assert_eq!(
            page(&mut disk, 0, code, subpage),
            page(&mut disk, 2, code, subpage),
            "current is default"
        );
        all.extend(page(&mut disk, 0, code, subpage));
        disk.run(&cdb::mode_sense_10(0xc0 | code, subpage)).fails(5, 0x39, 0);
    }
    assert_eq!(page(&mut disk, 0, 0x3f, 0xff), all);
    assert_eq!(page(&mut disk, 0, 0x3f, 0).len(), all.len() - 32 - 16);
    assert_eq!(page(&mut disk, 0, 0x0a, 0xff).len(), 12 + 32);
    for (code, subpage) in [(0x03, 0), (0x3f, 1), (0x01, 1), (0x00, 0)] {
        disk.run(&cdb::mode_sense_10(code, subpage)).fails(5, 0x24, 0);
    }
}

#[test]
fn mod_02_headers_and_block_descriptors() {
    let mut disk = Disk::new();
    let short = [0, 0, 0x10, 0, 0, 0, 2, 0];
    let six = disk.run(&[0x1a, 0, 0x08, 0, 255, 0]).good().data;
    assert_eq!(six[..4], [31, 0, 0x10, 8], "DPOFUA, one descriptor");
    assert_eq!(six[4..12], short);
    assert_eq!(disk.run(&[0x1a, 8, 0x08, 0, 255, 0]).good().data[..4], [23, 0, 0x10, 0]);
    let ten = disk.run(&[0x5a, 0, 0x08, 0, 0, 0, 0, 0, 255, 0]).good().data;
    assert_eq!(ten[..8], [0, 34, 0, 0x10, 0, 0, 0, 8]);
    assert_eq!(ten[8..16], short);
    let long = disk.run(&[0x5a, 0x10, 0x08, 0, 0, 0, 0, 0, 255, 0]).good().data;
    assert_eq!(long[..8], [0, 42, 0, 0x10, 1, 0, 0, 16]);
    assert_eq!(long[8..24], [0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
    disk.lu.set_read_only(true);
    disk.run(&[0; 6]).fails(6, 0x2a, 1);
    assert_eq!(disk.run(&[0x1a, 8, 0x08, 0, 255, 0]).good().data[2], 0x90, "WP");
}

#[test]
fn mod_03_wce_0_makes_every_write_durable() {
    let mut disk = Disk::new();
    change(&mut disk, 0x08, 2, 0x04).good();
    let answer = disk.send(&cdb::write(0, 1), &[1; BLOCK]).good();
    assert_eq!(answer.ops, [MediumOp::Write { lba: 0, blocks: 1, durable: true }]);
    let answer = disk.run(&cdb::sixteen(0x88, 8, 0, 1)).good();
    assert_eq!(answer.ops.len(), 1, "nothing is cached, so FUA needs no flush");
    change(&mut disk, 0x08, 2, 0x04).good();
    let answer = disk.send(&cdb::write(0, 1), &[1; BLOCK]).good();
    assert_eq!(answer.ops, [MediumOp::Write { lba: 0, blocks: 1, durable: false }]);
}

/// Every command that changes blocks: durable where nothing may be cached, and only there.
// covers: MOD-03
#[test]
fn mod_03_wce_decides_how_every_change_is_written() {
    let mut disk = Disk::new();
    let block = [1; BLOCK];
    let two_blocks = [0; 2 * BLOCK];
    let unmap_list =
        [&[0, 22, 0, 16, 0, 0, 0, 0][..], &[0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0]].concat();
    let mut unmap = cdb::ten(0x42, 0, 0, 0);
    unmap[7..9].copy_from_slice(&24u16.to_be_bytes());
    let changes: [(Vec<u8>, &[u8]); 6] = [
        (cdb::write(1, 1), &block),
        (cdb::compare_and_write(9, 1), &two_blocks),
        (cdb::sixteen(0x8b, 0, 2, 1), &block),
        (cdb::sixteen(0x93, 0, 3, 1), &block),
        (cdb::sixteen(0x93, 0x08, 4, 1), &two_blocks[..BLOCK]),
        (unmap, &unmap_list),
    ];
    for write_cache in [true, false] {
        for (cdb, data) in &changes {
            let ops = disk.send(cdb, data).good().ops;
            let durable = match ops.last() {
                Some(
                    MediumOp::Write { durable, .. }
                    | MediumOp::CompareAndWrite { durable, .. }
                    | MediumOp::OrWrite { durable, .. }
                    | MediumOp::WriteSame { durable, .. }
                    | MediumOp::Unmap { durable, .. },
                ) => *durable,
                other => panic!("{cdb:02x?}: {other:?}"),
            };
            assert_eq!(durable, !write_cache, "{cdb:02x?}");
        }
        change(&mut disk, 0x08, 2, 0x04).good();
    }
}

#[test]
fn mod_04_d_sense_and_swp_work() {
    let mut disk = Disk::new();
    let fixed = disk.run(&cdb::read(u64::MAX, 1)).fails(5, 0x21, 0).sense_bytes.unwrap();
    assert_eq!((fixed[0], fixed.len()), (0x70, 18), "an LBA over 32 bits leaves VALID 0");
    change(&mut disk, 0x0a, 2, 0x04).good();
    let descriptor = disk.run(&cdb::read(u64::MAX, 1)).fails(5, 0x21, 0).sense_bytes.unwrap();
    assert_eq!(descriptor[..4], [0x72, 5, 0x21, 0]);
    assert_eq!(descriptor[8..20], [0, 10, 0x80, 0, 255, 255, 255, 255, 255, 255, 255, 255]);

    change(&mut disk, 0x0a, 4, 0x08).good();
    disk.send(&cdb::write(0, 1), &[0; BLOCK]).fails(7, 0x27, 2);
    assert_eq!(disk.run(&[0x1a, 8, 0x08, 0, 255, 0]).good().data[2], 0x90, "WP");
    change(&mut disk, 0x0a, 4, 0x08).good();
    disk.send(&cdb::write(0, 1), &[0; BLOCK]).good();
}

// covers: MOD-04 TSK-02
#[test]
fn tas_is_told_to_the_transport() {
    let mut disk = Disk::new();
    assert!(!disk.lu.task_aborted_status());
    change(&mut disk, 0x0a, 5, 0x40).good();
    assert!(disk.lu.task_aborted_status());
    disk.lu.reset(UaScope::All, Asc::BUS_RESET);
    assert!(!disk.lu.task_aborted_status());
}

// covers: UA-01
#[test]
fn a_nexus_that_is_attached_already_keeps_its_attentions() {
    let mut disk = Disk::new();
    let (a, b) = (disk.nexus.clone(), nexus("b"));
    disk.lu.ensure_attached(&a);
    disk.run(&[0; 6]).good();
    disk.lu.ensure_attached(&b);
    disk.run_as(&b, &[0; 6], &[]).fails(6, 0x29, 0);
}

#[test]
fn mod_05_others_see_2a_01_and_fixed_bits_cannot_change() {
    let mut disk = Disk::new();
    let other = nexus("b");
    disk.attach(&other);
    // Setting the same values again is not a change.
    let same = page(&mut disk, 0, 0x0a, 0);
    let (cdb, list) = select_10(&same);
    disk.send(&cdb, &list).good();
    disk.run_as(&other, &[0; 6], &[]).good();
    change(&mut disk, 0x0a, 2, 0x04).good();
    disk.run_as(&other, &[0; 6], &[]).fails(6, 0x2a, 1);
    disk.run_as(&other, &[0; 6], &[]).good();
    disk.run(&[0; 6]).good();
    // Every bit that is not in the changeable mask.
    for code in [0x01, 0x02, 0x08, 0x0a, 0x1a, 0x1c] {
        let mask = page(&mut disk, 1, code, 0);
        for (at, changeable) in mask.iter().enumerate().skip(2) {
            for bit in (0..8).filter(|bit| changeable >> bit & 1 == 0) {
                let sense = change(&mut disk, code, at, 1 << bit).fails(5, 0x26, 0).sense.unwrap();
                let field = SenseSpecific::Field { in_cdb: false, byte: 4 + at as u16, bit: Some(bit) };
                assert_eq!(sense.specific, field);
            }
        }
    }
}

#[test]
fn a_wrong_page_leaves_all_pages_as_they_were() {
    let mut disk = Disk::new();
    let mut caching = page(&mut disk, 0, 0x08, 0);
    caching[2] ^= 0x04;
    let mut control = page(&mut disk, 0, 0x0a, 0);
    control[5] ^= 0x80; // ATO is fixed
    let (cdb, list) = select_10(&[caching.clone(), control].concat());
    disk.send(&cdb, &list).fails(5, 0x26, 0);
    assert_ne!(page(&mut disk, 0, 0x08, 0), caching);
}

// covers: CDB-05
#[test]
fn mode_parameter_lists_of_the_wrong_length() {
    let mut disk = Disk::new();
    let caching = page(&mut disk, 0, 0x08, 0);
    let (_, list) = select_6(&caching);
    disk.run(&[0x15, 0x10, 0, 0, 0, 0]).good();
    disk.send(&[0x15, 0x10, 0, 0, 4, 0], &list).good();
    for length in (1..list.len()).filter(|&length| length != 4) {
        disk.send(&[0x15, 0x10, 0, 0, length as u8, 0], &list).fails(5, 0x1a, 0);
    }
    // The initiator offers less than the CDB says.
    let (cdb, list) = select_6(&caching);
    disk.send(&cdb, &list[..8]).fails(5, 0x0e, 3);
    // A page that does not exist, a page of another length, no PF, SP, a foreign block descriptor.
    let (cdb, list) = select_6(&[0x07, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    disk.send(&cdb, &list).fails(5, 0x26, 0);
    let (cdb, list) = select_6(&[0x08, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    disk.send(&cdb, &list).fails(5, 0x26, 0);
    let (mut cdb, list) = select_6(&caching);
    cdb[1] = 0;
    disk.send(&cdb, &list).fails(5, 0x24, 0);
    cdb[1] = 0x11;
    disk.send(&cdb, &list).fails(5, 0x24, 0);
    let mut list = vec![0, 0, 0, 8, 0, 0, 0x10, 0, 0, 0, 2, 0];
    disk.send(&[0x15, 0x10, 0, 0, 12, 0], &list).good();
    list[10] = 4;
    disk.send(&[0x15, 0x10, 0, 0, 12, 0], &list).fails(5, 0x26, 0);
}

// covers: MOD-01 MOD-05
#[test]
fn pages_with_a_subpage_can_be_selected_and_errors_name_their_byte() {
    let mut disk = Disk::new();
    let extension = page(&mut disk, 0, 0x0a, 1);
    assert_eq!(extension[..4], [0x4a, 1, 0, 28]);
    let (cdb, list) = select_10(&extension);
    disk.send(&cdb, &list).good();
    // PAGE LENGTH, of a page with a subpage and of one without.
    for (at, byte) in [(2, 1), (3, 27)] {
        let mut wrong = extension.clone();
        wrong[at] = byte;
        let (cdb, list) = select_10(&wrong);
        disk.send(&cdb, &list).points_at(8 + 3, None);
    }
    let mut caching = page(&mut disk, 0, 0x08, 0);
    let two = |second: &[u8]| select_10(&[&extension[..], second].concat());
    let (cdb, list) = two(&caching);
    disk.send(&cdb, &list).good();
    caching[1] -= 1;
    let (cdb, list) = two(&caching);
    disk.send(&cdb, &list).points_at(8 + 32 + 1, None);
    let (cdb, list) = two(&[0x4a, 9, 0, 28]);
    disk.send(&cdb, &list).points_at(8 + 32, Some(5));
    // A list that ends within a page or its header.
    for length in [8 + 3, 8 + 31] {
        let (mut cdb, list) = select_10(&extension);
        cdb[8] = length;
        disk.send(&cdb, &list[..usize::from(length)]).fails(5, 0x1a, 0);
    }
    // BLOCK DESCRIPTOR LENGTH has two bytes here.
    let (cdb, mut list) = select_10(&extension);
    list[6] = 1;
    disk.send(&cdb, &list).points_at(6, None);
}

// covers: MOD-01
#[test]
fn mode_sense_tells_whether_the_page_or_its_subpage_is_unknown() {
    let mut disk = Disk::new();
    for (code, subpage, byte, bit) in
        [(0x0a, 0x77, 3, None), (0x3f, 0x01, 3, None), (0x30, 0x00, 2, Some(5)), (0x30, 0xff, 2, Some(5))]
    {
        disk.run(&cdb::mode_sense_10(code, subpage)).points_at_cdb(byte, bit);
        disk.run(&[0x1a, 8, code, subpage, 255, 0]).points_at_cdb(byte, bit);
    }
}

// covers: SNS-04
#[test]
fn the_power_condition_active_starts_a_unit_and_others_are_refused() {
    let mut disk = Disk::new();
    disk.run(&[0x1b, 0, 0, 0, 0, 0]).good();
    assert_eq!(disk.run(&[0; 6]).code().0, 2, "not ready");
    for condition in [2, 3, 7, 0xa, 0xb] {
        disk.run(&[0x1b, 0, 0, 0, condition << 4, 0]).points_at_cdb(4, Some(7));
    }
    assert_eq!(disk.run(&[0; 6]).code().0, 2, "nothing has changed");
    disk.run(&[0x1b, 0, 0, 0, 0x10, 0]).good();
    disk.run(&[0; 6]).good();
}

// covers: UA-03
#[test]
fn thin_provisioning_and_paths_are_told_when_they_change_and_only_then() {
    let mut disk = Disk::new();
    let other = nexus("b");
    disk.attach(&other);
    let told = |disk: &mut Disk, changed: bool| {
        for who in [disk.nexus.clone(), other.clone()] {
            let due = if changed { (6, 0x3f, 3) } else { (0, 0, 0) };
            assert_eq!(disk.run_as(&who, &[0; 6], &[]).code(), due);
            disk.run_as(&who, &[0; 6], &[]).good();
        }
    };
    let thin = |disk: &mut Disk| disk.run(&cdb::inquiry(Some(0xb2), 64)).good().data[5] & 0x80 != 0;
    let was = thin(&mut disk);
    disk.lu.set_thin(was);
    told(&mut disk, false);
    disk.lu.set_thin(!was);
    told(&mut disk, true);
    assert_eq!(thin(&mut disk), !was);

    let paths = disk.lu.paths();
    assert!(!disk.lu.set_paths(Paths::clone(&paths)));
    told(&mut disk, false);
    let target_ports = vec![TargetPort { relative_port: 7, group: 9 }];
    assert!(disk.lu.set_paths(Paths { target_ports, ..Paths::clone(&paths) }));
    told(&mut disk, true);
}

#[test]
fn sns_01_both_formats_carry_the_same() {
    let sense = SenseData {
        command_specific: Some(7),
        specific: SenseSpecific::Progress(0x1234),
        ..SenseData::new(SenseKey::NotReady, Asc { asc: 4, ascq: 4 }).with_information(0x8000_0001)
    };
    let fixed = sense.to_bytes(false);
    assert_eq!(fixed, [0xf0, 0, 2, 0x80, 0, 0, 1, 10, 0, 0, 0, 7, 4, 4, 0, 0x80, 0x12, 0x34]);
    let descriptor = sense.to_bytes(true);
    assert_eq!(descriptor[..8], [0x72, 2, 4, 4, 0, 0, 0, 32]);
    assert_eq!(descriptor[8..20], [0, 10, 0x80, 0, 0, 0, 0, 0, 0x80, 0, 0, 1]);
    assert_eq!(descriptor[20..32], [1, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
    assert_eq!(descriptor[32..], [2, 6, 0, 0, 0x80, 0x12, 0x34, 0]);
    let large = SenseData::illegal(Asc::LBA_OUT_OF_RANGE).with_information(1 << 40);
    assert_eq!(large.to_bytes(false)[..7], [0x70, 0, 5, 0, 0, 0, 0]);
}

#[test]
fn ua_01_power_on_once_per_nexus_and_nexus_loss_on_return() {
    let mut disk = Disk::new();
    let other = nexus("b");
    disk.lu.attach_nexus(&other);
    disk.run(&[0; 6]).good();
    disk.run_as(&other, &cdb::read(0, 1), &[]).fails(6, 0x29, 0);
    disk.run_as(&other, &cdb::read(0, 1), &[]).good();
    disk.lu.detach_nexus(&other);
    disk.lu.attach_nexus(&other);
    disk.run_as(&other, &[0; 6], &[]).fails(6, 0x29, 7);
    // A nexus that was never notified of power on is notified when it returns; this takes precedence over its nexus loss.
    let unlucky = nexus("iqn.2026-01.org.example:unlucky");
    for _ in 0..2 {
        disk.lu.attach_nexus(&unlucky);
        disk.lu.detach_nexus(&unlucky);
    }
    disk.lu.attach_nexus(&unlucky);
    disk.run_as(&unlucky, &[0; 6], &[]).fails(6, 0x29, 0);
    disk.run_as(&other, &[0; 6], &[]).good();
}

// covers: UA-01
#[test]
fn a_reset_supersedes_what_is_pending_and_the_rest_keep_their_order() {
    let mut disk = Disk::new();
    let all = |disk: &Disk, asc| disk.lu.unit_attention(UaScope::All, asc);
    all(&disk, Asc::MODE_PARAMETERS_CHANGED);
    all(&disk, Asc::CAPACITY_DATA_CHANGED);
    all(&disk, Asc::MODE_PARAMETERS_CHANGED);
    disk.run(&[0; 6]).fails(6, 0x2a, 1);
    disk.run(&[0; 6]).fails(6, 0x2a, 9);
    disk.run(&[0; 6]).good();
    all(&disk, Asc::CAPACITY_DATA_CHANGED);
    all(&disk, Asc::I_T_NEXUS_LOSS);
    all(&disk, Asc::BUS_DEVICE_RESET);
    all(&disk, Asc::I_T_NEXUS_LOSS);
    disk.run(&[0; 6]).fails(6, 0x29, 3);
    disk.run(&[0; 6]).good();
    // A nexus that has not been notified of power on yet gets that, whatever reset happened since.
    let fresh = nexus("b");
    disk.lu.attach_nexus(&fresh);
    all(&disk, Asc::BUS_DEVICE_RESET);
    disk.run_as(&fresh, &[0; 6], &[]).fails(6, 0x29, 0);
    disk.run_as(&fresh, &[0; 6], &[]).good();
}

/// The answer to QUERY ASYNCHRONOUS EVENT (SAM-5 7.10): the depth of the queue, the sense key, the first condition.
#[test]
fn what_is_pending_is_reported_without_being_cleared() {
    let mut disk = Disk::new();
    let (id, all) = (disk.nexus.id, UaScope::All);
    assert_eq!(disk.lu.pending_unit_attention(id), None);
    disk.lu.unit_attention(all, Asc::CAPACITY_DATA_CHANGED);
    assert_eq!(disk.lu.pending_unit_attention(id), Some([0x16, 0x2a, 0x09]));
    disk.lu.unit_attention(all, Asc::MODE_PARAMETERS_CHANGED);
    assert_eq!(disk.lu.pending_unit_attention(id), Some([0x26, 0x2a, 0x09]), "more than one");
    disk.run(&[0; 6]).fails(6, 0x2a, 9);
    assert_eq!(disk.lu.pending_unit_attention(id), Some([0x16, 0x2a, 0x01]));
    disk.run(&[0; 6]).fails(6, 0x2a, 1);
    assert_eq!(disk.lu.pending_unit_attention(id), None);
}

#[test]
fn ua_02_inquiry_report_luns_and_request_sense_go_on() {
    let mut disk = Disk::new();
    let fresh = nexus("b");
    disk.lu.attach_nexus(&fresh);
    disk.lu.unit_attention(UaScope::One(fresh.id), Asc::REPORTED_LUNS_DATA_CHANGED);
    disk.run_as(&fresh, &cdb::inquiry(None, 96), &[]).good();
    disk.run_as(&fresh, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0], &[]).good();
    let sense = disk.run_as(&fresh, &[3, 0, 0, 0, 252, 0], &[]).good().data;
    assert_eq!((sense[2], sense[12], sense[13]), (6, 0x29, 0), "reported as data");
    disk.run_as(&fresh, &[0; 6], &[]).good();
    let sense = disk.run_as(&fresh, &[3, 1, 0, 0, 252, 0], &[]).good().data;
    assert_eq!(sense[..4], [0x72, 0, 0, 0]);
    // An unknown command reports it too.
    disk.lu.unit_attention(UaScope::All, Asc::INQUIRY_DATA_CHANGED);
    disk.run(&[0xff; 16]).fails(6, 0x3f, 3);
    disk.run(&[0xff; 16]).fails(5, 0x20, 0);
}

#[test]
fn ua_03_events_reach_the_right_nexuses() {
    let mut disk = Disk::new();
    let (a, b) = (disk.nexus.clone(), nexus("b"));
    disk.attach(&b);
    let sees = |disk: &mut Disk, who: &Nexus| {
        let answer = disk.run_as(who, &[0; 6], &[]);
        let code = answer.code();
        if code.0 == 6 {
            disk.run_as(who, &[0; 6], &[]).good();
        }
        code
    };
    disk.lu.set_blocks(8192);
    assert_eq!((sees(&mut disk, &a), sees(&mut disk, &b)), ((6, 0x2a, 9), (6, 0x2a, 9)));
    disk.lu.set_blocks(8192);
    assert_eq!((sees(&mut disk, &a), sees(&mut disk, &b)), ((0, 0, 0), (0, 0, 0)));
    disk.lu.logical_unit_reset();
    assert_eq!((sees(&mut disk, &a), sees(&mut disk, &b)), ((6, 0x29, 3), (6, 0x29, 3)));
    disk.lu.reset(UaScope::All, Asc::BUS_RESET);
    assert_eq!((sees(&mut disk, &a), sees(&mut disk, &b)), ((6, 0x29, 2), (6, 0x29, 2)));
    disk.lu.unit_attention(UaScope::AllExcept(b.id), Asc::COMMANDS_CLEARED);
    assert_eq!((sees(&mut disk, &a), sees(&mut disk, &b)), ((6, 0x2f, 0), (0, 0, 0)));
    disk.lu.unit_attention(UaScope::One(b.id), Asc::COMMANDS_CLEARED_BY_ISCSI_EVENT);
    assert_eq!((sees(&mut disk, &a), sees(&mut disk, &b)), ((0, 0, 0), (6, 0x47, 0x7f)));
    disk.lu.unit_attention(UaScope::All, Asc::REPORTED_LUNS_DATA_CHANGED);
    disk.lu.clear_unit_attention(a.id, Asc::REPORTED_LUNS_DATA_CHANGED);
    assert_eq!((sees(&mut disk, &a), sees(&mut disk, &b)), ((0, 0, 0), (6, 0x3f, 0x0e)));
}

// covers: TSK-04
#[test]
fn a_logical_unit_reset_restores_the_defaults() {
    let mut disk = Disk::new();
    let b = nexus("b");
    disk.attach(&b);
    change(&mut disk, 0x0a, 5, 0x40).good();
    disk.run(&[0x16, 0, 0, 0, 0, 0]).good();
    disk.run(&[0x1b, 0, 0, 0, 0, 0]).good();
    disk.lu.logical_unit_reset();
    disk.run(&[0; 6]).fails(6, 0x29, 3);
    assert_eq!(page(&mut disk, 0, 0x0a, 0), page(&mut disk, 2, 0x0a, 0));
    disk.run(&[0; 6]).good();
    disk.run_as(&b, &[0; 6], &[]).fails(6, 0x29, 3);
    disk.run_as(&b, &[0; 6], &[]).good();
}

/// Hosts send no flushes to a unit without a write cache: when the cache is turned off, its contents go to the medium
/// first.
// covers: MOD-03
#[test]
fn a_write_cache_that_is_switched_off_is_flushed_before_the_status() {
    let mut disk = Disk::new();
    assert_eq!(change(&mut disk, 0x08, 2, 0x04).good().ops, [MediumOp::Settle]);
    assert!(!disk.lu.write_cache());
    assert_eq!(page(&mut disk, 0, 0x08, 0)[2] & 0x04, 0);
    // Neither a list that leaves it off nor one that turns it on requires a flush.
    let off = page(&mut disk, 0, 0x08, 0);
    let (cdb, list) = select_6(&off);
    assert!(disk.send(&cdb, &list).good().ops.is_empty());
    let mut list = [0; 24];
    (list[1], list[3], list[19]) = (22, 16, 8);
    let ops = disk.send(&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &list).good().ops;
    assert_eq!(ops, [MediumOp::Unmap { ranges: vec![(0, 8)], durable: true }]);
    assert!(change(&mut disk, 0x08, 2, 0x04).good().ops.is_empty());
    assert!(disk.lu.write_cache());
}

/// Another host may request the reset; the host that turned the cache off would continue to send no flushes.
// covers: MOD-03
#[test]
fn a_reset_leaves_a_write_cache_off_that_is_off() {
    let mut disk = Disk::new();
    change(&mut disk, 0x08, 2, 0x04).good();
    for reset in [Asc::BUS_DEVICE_RESET, Asc::BUS_RESET, Asc::POWER_ON_OR_RESET] {
        disk.lu.reset(UaScope::All, reset);
        assert!(!disk.lu.write_cache());
        disk.run(&[0; 6]).fails(6, 0x29, reset.ascq);
    }
    assert_eq!(page(&mut disk, 2, 0x08, 0)[2] & 0x04, 0x04, "the default is what it was");
}
