//! Medium access commands against a medium in memory.
mod support;

use scsi::{
    DataOut, LogicalUnit, LuConfig, MediumConfig, MediumError, MediumOp, Status, Step, TransferLimits,
};
use support::{BLOCK, BLOCKS, Disk, cdb, nexus};

fn pattern(blocks: usize, seed: u8) -> Vec<u8> {
    (0..blocks * BLOCK).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed) | 1).collect()
}

#[test]
fn cdb_08_all_forms_of_read_and_write_agree() {
    let form = |write: bool| {
        let [six, ten, twelve, sixteen] =
            if write { [0x0a, 0x2a, 0xaa, 0x8a] } else { [0x08, 0x28, 0xa8, 0x88] };
        [
            vec![six, 0, 1, 2, 3, 0],
            cdb::ten(ten, 0, 258, 3),
            cdb::twelve(twelve, 0, 258, 3),
            cdb::sixteen(sixteen, 0, 258, 3),
        ]
    };
    for (seed, write) in form(true).iter().enumerate() {
        let mut disk = Disk::new();
        let data = pattern(3, seed as u8);
        let wrote = disk.send(write, &data).good();
        assert_eq!(wrote.transfer_bytes, data.len() as u64);
        for read in form(false) {
            assert_eq!(disk.run(&read).good().data, data);
        }
    }
}

#[test]
fn read_6_of_length_0_is_256_blocks() {
    let answer = Disk::new().run(&[0x08, 0, 0, 0, 0, 0]).good();
    assert_eq!(answer.data.len(), 256 * BLOCK);
}

#[test]
fn cdb_03_ranges_past_the_end_name_the_first_bad_block() {
    let mut disk = Disk::new();
    let cases: [(u64, u32, u64); 6] = [
        (BLOCKS, 1, BLOCKS),
        (BLOCKS - 1, 2, BLOCKS),
        (BLOCKS + 7, 1, BLOCKS + 7),
        (BLOCKS + 1, 0, BLOCKS + 1),
        (u64::MAX, 1, u64::MAX),
        (u64::MAX, u32::MAX, u64::MAX),
    ];
    for opcode in [0x88, 0x8a, 0x8b, 0x8e, 0x8f, 0x90, 0x91, 0x93, 0x9c] {
        for (lba, blocks, bad) in cases {
            let mut cdb = cdb::sixteen(opcode, 0, lba, blocks);
            if opcode == 0x9c {
                // WRITE ATOMIC has a 16-bit length, and its boundary stays 0.
                cdb[10..12].fill(0);
            }
            let answer = disk.run(&cdb).fails(5, 0x21, 0);
            assert_eq!(answer.sense.unwrap().information, Some(bad), "opcode {opcode:x}");
        }
    }
    // Zero blocks at the address after the last block are allowed.
    disk.run(&cdb::read(BLOCKS, 0)).good();
}

#[test]
fn cdb_04_transfer_length_above_the_limit_is_refused() {
    let mut disk = Disk::new();
    disk.run(&cdb::read(0, 1024)).good();
    for (cdb, field) in [
        (cdb::sixteen(0x88, 0, 0, 1025), 10),
        (cdb::ten(0x28, 0, 0, 1025), 7),
        (cdb::twelve(0xa8, 0, 0, 1025), 6),
        (cdb::sixteen(0x8a, 0, 0, 1025), 10),
        (cdb::sixteen(0x8b, 0, 0, 1025), 10),
        (cdb::sixteen(0x8e, 0, 0, 1025), 10),
        (cdb::sixteen(0x8f, 2, 0, 1025), 10),
    ] {
        let sense = disk.run(&cdb).fails(5, 0x24, 0).sense_bytes.unwrap();
        assert_eq!(&sense[15..18], &[0xc0, 0, field]);
    }
}

#[test]
fn cdb_07_fua_makes_a_write_durable_and_dpo_is_accepted() {
    let mut disk = Disk::new();
    let data = pattern(1, 0);
    for (flags, durable) in [(0x00, false), (0x08, true), (0x10, false), (0x18, true), (0x02, false)] {
        let answer = disk.send(&cdb::sixteen(0x8a, flags, 0, 1), &data).good();
        assert_eq!(answer.ops, [MediumOp::Write { lba: 0, blocks: 1, durable }]);
    }
    // FUA on a read: whatever is cached reaches the medium first.
    let answer = disk.run(&cdb::sixteen(0x88, 0x08, 0, 1)).good();
    assert_eq!(answer.ops, [MediumOp::Flush, MediumOp::Read { lba: 0, blocks: 1 }]);
    assert_eq!(answer.data, data);
}

#[test]
fn pi_05_protect_is_refused_on_an_unprotected_unit() {
    let mut disk = Disk::new();
    for protect in 1..8u8 {
        for opcode in [0x28, 0x2a, 0x2e, 0x2f, 0x41] {
            disk.run(&cdb::ten(opcode, protect << 5, 0, 1)).fails(5, 0x24, 0);
        }
        for opcode in [0xa8, 0xaa, 0xae, 0xaf] {
            disk.run(&cdb::twelve(opcode, protect << 5, 0, 1)).fails(5, 0x24, 0);
        }
        for opcode in [0x88, 0x89, 0x8a, 0x8b, 0x8e, 0x8f, 0x93, 0x9c] {
            let mut cdb = cdb::sixteen(opcode, protect << 5, 0, 0);
            cdb[13] = 1;
            disk.run(&cdb).fails(5, 0x24, 0);
        }
    }
}

#[test]
fn a_short_data_out_writes_the_whole_blocks_that_came() {
    for write in [cdb::write(0, 2), cdb::ten(0x2e, 0, 0, 2), cdb::twelve(0xaa, 0, 0, 2)] {
        let mut disk = Disk::new();
        disk.data[..2 * BLOCK].fill(b'a');
        let answer = disk.send(&write, &[b'b'; BLOCK]).good();
        assert_eq!(answer.transfer_bytes, 2 * BLOCK as u64, "the residual counts against the CDB");
        assert!(disk.data[..BLOCK].iter().all(|&b| b == b'b'));
        assert!(disk.data[BLOCK..2 * BLOCK].iter().all(|&b| b == b'a'));
    }
}

#[test]
fn a_data_out_that_ends_within_a_block_writes_nothing() {
    let mut disk = Disk::new();
    let answer = disk.send(&cdb::write(0, 1), &[1; 200]).fails(5, 0x0e, 3);
    assert_eq!(answer.transfer_bytes, BLOCK as u64);
    assert!(disk.data.iter().all(|&b| b == 0));
    let answer = disk.send(&cdb::write(0, 1), &[]).good();
    assert_eq!((answer.transfer_bytes, answer.ops.len()), (BLOCK as u64, 0));
}

#[test]
fn a_long_data_out_writes_only_what_the_cdb_says() {
    let mut disk = Disk::new();
    disk.send(&cdb::write(0, 1), &[9; 2 * BLOCK]).good();
    assert!(disk.data[BLOCK..2 * BLOCK].iter().all(|&b| b == 0));
}

#[test]
fn verify_compares_as_bytchk_says() {
    let mut disk = Disk::new();
    let data = pattern(4, 3);
    disk.send(&cdb::write(10, 4), &data).good();
    assert_eq!(
        disk.run(&cdb::ten(0x2f, 0, 10, 4)).good().ops,
        [MediumOp::Verify { lba: 10, blocks: 4 }],
        "BYTCHK 00 transfers nothing"
    );
    disk.send(&cdb::ten(0x2f, 2, 10, 4), &data).good();
    let mut wrong = data.clone();
    wrong[2 * BLOCK + 5] ^= 1;
    let answer = disk.send(&cdb::ten(0x2f, 2, 10, 4), &wrong).fails(0xe, 0x1d, 0);
    assert_eq!(answer.sense.unwrap().information, Some(12));
    disk.run(&cdb::ten(0x2f, 4, 10, 4)).fails(5, 0x24, 0);
    // BYTCHK 11: one block for all.
    let one = pattern(1, 9);
    disk.send(&cdb::write(20, 3), &one.repeat(3)).good();
    for cdb in [cdb::ten(0x2f, 6, 20, 3), cdb::twelve(0xaf, 6, 20, 3), cdb::sixteen(0x8f, 6, 20, 3)] {
        let answer = disk.send(&cdb, &one).good();
        assert_eq!(answer.transfer_bytes, BLOCK as u64);
    }
    disk.send(&cdb::ten(0x2f, 6, 20, 4), &one).fails(0xe, 0x1d, 0);
    disk.send(&cdb::ten(0x2f, 6, 20, 3), &one[..100]).fails(5, 0x0e, 3);
}

#[test]
fn write_and_verify_is_durable_and_checks_bytes_when_asked() {
    let mut disk = Disk::new();
    let data = pattern(2, 1);
    for (flags, bytchk) in [(0, false), (2, true)] {
        for cdb in
            [cdb::ten(0x2e, flags, 5, 2), cdb::twelve(0xae, flags, 5, 2), cdb::sixteen(0x8e, flags, 5, 2)]
        {
            let answer = disk.send(&cdb, &data).good();
            assert_eq!(answer.ops, [MediumOp::WriteAndVerify { lba: 5, blocks: 2, bytchk, durable: true }]);
        }
    }
}

#[test]
fn wsm_01_write_same_repeats_unmaps_and_reaches_the_end() {
    let mut disk = Disk::new();
    let one = pattern(1, 7);
    disk.send(&cdb::ten(0x41, 0, 8, 5), &one).good();
    assert_eq!(disk.data[8 * BLOCK..13 * BLOCK], one.repeat(5));
    // UNMAP deallocates whatever the block holds.
    let answer = disk.send(&cdb::sixteen(0x93, 0x08, 8, 5), &one).good();
    assert_eq!(
        answer.ops,
        [MediumOp::WriteSame { lba: 8, blocks: 5, unmap: true, zero: true, durable: false }]
    );
    disk.send(&cdb::sixteen(0x93, 0x08, 8, 5), &[0; BLOCK]).good();
    assert!(!disk.mapped[8] && disk.data[8 * BLOCK..13 * BLOCK].iter().all(|&b| b == 0));
    // NDOB: zeros without data-out.
    disk.send(&cdb::write(30, 1), &one).good();
    let answer = disk.run(&cdb::sixteen(0x93, 0x01, 30, 1)).good();
    assert_eq!(answer.transfer_bytes, 0);
    assert!(disk.data[30 * BLOCK..31 * BLOCK].iter().all(|&b| b == 0));
    // Number 0 means to the end, because WSNZ is 0.
    disk.send(&cdb::sixteen(0x93, 0, BLOCKS - 3, 0), &one).good();
    assert_eq!(disk.data[(BLOCKS as usize - 3) * BLOCK..], one.repeat(3));
    // ANCHOR is not supported.
    disk.run(&cdb::ten(0x41, 0x10, 0, 1)).fails(5, 0x24, 0);
    // Above the limit.
    let mut disk = Disk::with(scsi::LuConfig {
        medium: scsi::MediumConfig { blocks: 8192, ..support::config().medium },
        ..support::config()
    });
    disk.run(&cdb::sixteen(0x93, 0, 0, 4097)).fails(5, 0x24, 0);
    disk.run(&cdb::sixteen(0x93, 0, 0, 0)).fails(5, 0x24, 0);
}

#[test]
fn wsm_02_write_same_takes_exactly_one_block() {
    let mut disk = Disk::new();
    for bytes in [BLOCK / 2, 2 * BLOCK] {
        disk.send(&cdb::ten(0x41, 0x08, 0, 1), &vec![0; bytes]).fails(5, 0x0e, 3);
    }
    disk.send(&cdb::ten(0x41, 0x08, 0, 1), &[0; BLOCK]).good();
}

fn unmap(ranges: &[(u64, u32)]) -> (Vec<u8>, Vec<u8>) {
    let descriptors = ranges.len() * 16;
    let mut list = vec![0, 0, (descriptors >> 8) as u8, descriptors as u8, 0, 0, 0, 0];
    list[..2].copy_from_slice(&(descriptors as u16 + 6).to_be_bytes());
    for (lba, blocks) in ranges {
        list.extend(lba.to_be_bytes());
        list.extend(blocks.to_be_bytes());
        list.extend([0; 4]);
    }
    let [hi, lo] = (list.len() as u16).to_be_bytes();
    (vec![0x42, 0, 0, 0, 0, 0, 0, hi, lo, 0], list)
}

// covers: UNM-02
#[test]
fn unm_01_unmap_checks_all_descriptors_first() {
    let mut disk = Disk::new();
    let data = pattern(8, 1);
    disk.send(&cdb::write(0, 8), &data).good();
    let (cdb, list) = unmap(&[(0, 4), (2, 4), (7, 0)]);
    let answer = disk.send(&cdb, &list).good();
    assert_eq!(answer.ops, [MediumOp::Unmap { ranges: vec![(0, 4), (2, 4)], durable: false }]);
    // UNM-02: the neighbours keep their data.
    assert!(disk.data[..6 * BLOCK].iter().all(|&b| b == 0));
    assert_eq!(disk.data[6 * BLOCK..8 * BLOCK], data[6 * BLOCK..]);

    disk.send(&cdb::write(0, 8), &data).good();
    let (cdb, list) = unmap(&[(0, 4), (BLOCKS - 1, 2)]);
    let answer = disk.send(&cdb, &list).fails(5, 0x21, 0);
    assert!(answer.ops.is_empty());
    assert_eq!(disk.data[..8 * BLOCK], data);
    // Limits: number of blocks, number of descriptors.
    let (cdb, list) = unmap(&[(0, 2048)]);
    disk.send(&cdb, &list).good();
    let (cdb, list) = unmap(&[(0, 2048), (0, 1)]);
    disk.send(&cdb, &list).fails(5, 0x26, 0);
    let (cdb, list) = unmap(&[(0, 0); 256]);
    disk.send(&cdb, &list).good();
    let (cdb, list) = unmap(&[(0, 0); 257]);
    disk.send(&cdb, &list).fails(5, 0x26, 0);
    // No descriptors, no list, an incomplete last descriptor, a list shorter than it says.
    let (cdb, list) = unmap(&[]);
    disk.send(&cdb, &list).good();
    disk.run(&[0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0]).good();
    let (mut cdb, mut list) = unmap(&[(0, 1)]);
    list.extend([0; 8]);
    list[3] += 8;
    cdb[8] += 8;
    disk.send(&cdb, &list).good();
    list[3] += 1;
    disk.send(&cdb, &list).fails(5, 0x1a, 0);
    disk.send(&[0x42, 0, 0, 0, 0, 0, 0, 0, 7, 0], &[0; 7]).fails(5, 0x1a, 0);
    // Zero blocks after the last block; ANCHOR.
    let (cdb, list) = unmap(&[(BLOCKS, 0)]);
    disk.send(&cdb, &list).good();
    disk.run(&[0x42, 1, 0, 0, 0, 0, 0, 0, 0, 0]).fails(5, 0x24, 0);
}

/// NUMBER OF LOGICAL BLOCKS has 32 bits, the LBA 64: all of them count.
// covers: UNM-01
#[test]
fn unm_01_long_ranges_are_unmapped_whole() {
    let limits = TransferLimits { max_unmap_blocks: u32::MAX, ..support::config().limits };
    let lu = LogicalUnit::new(LuConfig {
        medium: MediumConfig { blocks: 1 << 40, ..support::config().medium },
        limits,
        ..support::config()
    });
    for (lba, blocks) in [(1, 0x0001_0001), (0x12_3456_789a, 0xfedc_ba98)] {
        let (cdb, list) = unmap(&[(lba, blocks)]);
        let mut execution = lu.begin(&nexus("a"), &cdb);
        execution.data_out(&lu, &DataOut::new(&[&list]));
        let Step::Medium(op) = execution.step() else { panic!("refused: {:?}", execution.step()) };
        let MediumOp::Unmap { ranges, .. } = op else { panic!("{op:?}") };
        assert_eq!(*ranges, [(lba, u64::from(blocks))]);
    }
}

#[test]
fn a_fat_unit_has_no_unmap() {
    let mut disk = Disk::with(scsi::LuConfig {
        medium: scsi::MediumConfig { thin: false, ..support::config().medium },
        ..support::config()
    });
    let (cdb, list) = unmap(&[(0, 1)]);
    disk.send(&cdb, &list).fails(5, 0x20, 0);
    disk.run(&cdb::ten(0x41, 0x08, 0, 1)).fails(5, 0x24, 0);
}

#[test]
fn caw_01_compare_and_write_replaces_what_matches() {
    let mut disk = Disk::new();
    let (old, new) = (pattern(2, 0), pattern(2, 100));
    disk.send(&cdb::write(7, 2), &old).good();
    let both = [old.clone(), new.clone()].concat();
    let answer = disk.send(&cdb::compare_and_write(7, 2), &both).good();
    assert_eq!(answer.transfer_bytes, 4 * BLOCK as u64);
    assert_eq!(disk.data[7 * BLOCK..9 * BLOCK], new);
    disk.run(&cdb::compare_and_write(7, 0)).good();
    disk.send(&cdb::compare_and_write(7, 0), &both).fails(5, 0x24, 0);
    // Too little or too much data-out.
    disk.send(&cdb::compare_and_write(7, 1), &both).fails(5, 0x0e, 3);
    disk.send(&cdb::compare_and_write(7, 3), &both).fails(5, 0x0e, 3);
    // Above the limit.
    let mut config = support::config();
    config.limits.max_compare_and_write_blocks = 8;
    let mut disk = Disk::with(config);
    disk.run(&cdb::compare_and_write(0, 9)).fails(5, 0x24, 0);
    let zeros = vec![0; pattern(8, 0).len()];
    disk.send(&cdb::compare_and_write(0, 8), &[zeros, pattern(8, 3)].concat()).good();
}

#[test]
fn caw_02_a_mismatch_tells_the_byte() {
    let mut disk = Disk::new();
    for at in 0..2 * BLOCK {
        let mut data = vec![0; 4 * BLOCK];
        data[at] = 1;
        let answer = disk.send(&cdb::compare_and_write(0, 2), &data).fails(0xe, 0x1d, 0);
        let sense = answer.sense_bytes.unwrap();
        assert_eq!(sense[0], 0xf0, "VALID");
        assert_eq!(sense[3..7], (at as u32).to_be_bytes());
    }
    assert!(disk.data.iter().all(|&b| b == 0));
}

// covers: CAW-03
#[test]
fn compare_and_write_honours_fua_and_write_protection() {
    let mut disk = Disk::new();
    let mut cdb = cdb::compare_and_write(0, 1);
    cdb[1] = 0x08;
    let answer = disk.send(&cdb, &[0; 2 * BLOCK]).good();
    assert_eq!(answer.ops, [MediumOp::CompareAndWrite { lba: 0, blocks: 1, durable: true }]);
    disk.lu.set_read_only(true);
    disk.run(&[0; 6]).fails(6, 0x2a, 1);
    disk.send(&cdb, &[0; 2 * BLOCK]).fails(7, 0x27, 0);
}

#[test]
fn atm_01_write_atomic_keeps_its_limits() {
    let mut disk = Disk::new();
    let atomic = |blocks: u16, boundary: u16| {
        let mut cdb = cdb::sixteen(0x9c, 0, 0, 0);
        cdb[10..12].copy_from_slice(&boundary.to_be_bytes());
        cdb[12..14].copy_from_slice(&blocks.to_be_bytes());
        cdb
    };
    let data = pattern(256, 0);
    let answer = disk.send(&atomic(256, 0), &data).good();
    assert_eq!(answer.ops, [MediumOp::WriteAtomic { lba: 0, blocks: 256, durable: false }]);
    disk.run(&atomic(257, 0)).fails(5, 0x24, 0);
    disk.run(&atomic(8, 8)).fails(5, 0x24, 0);
    // All or nothing: if fewer bytes arrive than the CDB says, none are written.
    disk.send(&atomic(2, 0), &data[..BLOCK]).fails(5, 0x0e, 3);
    let mut config = support::config();
    config.limits.max_atomic_blocks = 0;
    Disk::with(config).run(&atomic(1, 0)).fails(5, 0x20, 0);
}

#[test]
fn glb_01_lba_status_follows_the_map() {
    let mut disk = Disk::new();
    disk.send(&cdb::write(4, 2), &pattern(2, 0)).good();
    let status = |lba: u64, allocation: u32| {
        let mut cdb = cdb::sixteen(0x9e, 0x12, lba, 0);
        cdb[10..14].copy_from_slice(&allocation.to_be_bytes());
        cdb
    };
    let data = disk.run(&status(2, 8 + 16 * 2)).good().data;
    assert_eq!(data[..4], (4u32 + 32).to_be_bytes());
    assert_eq!((data[15], data[19], data[20]), (2, 2, 1), "blocks 2 and 3 are deallocated");
    assert_eq!((data[31], data[35], data[36]), (4, 2, 0), "blocks 4 and 5 are mapped");
    assert_eq!(disk.run(&status(5, 24)).good().data[15], 5, "the first descriptor starts where asked");
    disk.run(&status(BLOCKS - 1, 24)).good();
    disk.run(&status(BLOCKS, 24)).fails(5, 0x21, 0);
    assert_eq!(disk.run(&status(0, 4)).good().data.len(), 4);
}

#[test]
fn prefetch_meets_its_condition() {
    let mut disk = Disk::new();
    for cdb in [cdb::ten(0x34, 2, 0, 4), cdb::sixteen(0x90, 0, 0, 4), cdb::ten(0x34, 0, 0, 0)] {
        assert_eq!(disk.run(&cdb).status, Status::ConditionMet);
    }
    disk.run(&cdb::ten(0x34, 0, BLOCKS as u32, 1)).fails(5, 0x21, 0);
    // More than fits in the cache.
    let mut config = support::config();
    config.limits.max_prefetch_blocks = 8;
    let answer = Disk::with(config).run(&cdb::ten(0x34, 0, 0, 9)).good();
    assert_eq!(answer.ops, [MediumOp::Prefetch { lba: 0, blocks: 8 }]);
}

#[test]
fn synchronize_cache_flushes() {
    let mut disk = Disk::new();
    for cdb in [cdb::ten(0x35, 0, 0, 0), cdb::ten(0x35, 2, 4, 4), cdb::sixteen(0x91, 0, 0, 0)] {
        assert_eq!(disk.run(&cdb).good().ops, [MediumOp::Flush]);
    }
    disk.run(&cdb::ten(0x35, 0, BLOCKS as u32, 1)).fails(5, 0x21, 0);
}

#[test]
fn sns_02_and_03_medium_errors_have_their_sense() {
    let mut disk = Disk::new();
    disk.fault = Some(MediumError::Read { lba: Some(6) });
    let answer = disk.run(&cdb::read(4, 4)).fails(3, 0x11, 0);
    assert_eq!(answer.sense.unwrap().information, Some(6));
    assert_eq!(answer.transfer_bytes, 4 * BLOCK as u64);
    for (fault, key, asc, ascq) in [
        (MediumError::Write { lba: None }, 3, 0x0c, 0),
        (MediumError::NoSpace, 7, 0x27, 7),
        (MediumError::ReadOnly, 7, 0x27, 0),
        (MediumError::Gone, 2, 0x3a, 0),
        (MediumError::Internal, 4, 0x44, 0),
    ] {
        disk.fault = Some(fault);
        disk.send(&cdb::write(0, 1), &[0; BLOCK]).fails(key, asc, ascq);
    }
}

// covers: UNM-03
#[test]
fn a_read_only_unit_refuses_every_write() {
    let mut disk = Disk::with(scsi::LuConfig {
        medium: scsi::MediumConfig { read_only: true, ..support::config().medium },
        ..support::config()
    });
    let (unmap, _) = unmap(&[(0, 1)]);
    let mut atomic = cdb::sixteen(0x9c, 0, 0, 0);
    atomic[13] = 1;
    for cdb in [
        vec![0x0a, 0, 0, 0, 1, 0],
        cdb::ten(0x2a, 0, 0, 1),
        cdb::ten(0x2e, 0, 0, 1),
        cdb::ten(0x41, 0, 0, 1),
        cdb::twelve(0xaa, 0, 0, 1),
        cdb::twelve(0xae, 0, 0, 1),
        cdb::sixteen(0x8a, 0, 0, 1),
        cdb::sixteen(0x8b, 0, 0, 1),
        cdb::sixteen(0x8e, 0, 0, 1),
        cdb::sixteen(0x93, 0, 0, 1),
        cdb::compare_and_write(0, 1),
        atomic,
        unmap,
    ] {
        disk.run(&cdb).fails(7, 0x27, 0);
    }
    disk.run(&cdb::read(0, 1)).good();
    disk.run(&cdb::ten(0x35, 0, 0, 0)).good();
}

// covers: SNS-04
#[test]
fn a_stopped_unit_is_not_ready_until_started() {
    let mut disk = Disk::new();
    let answer = disk.run(&[0x1b, 0, 0, 0, 0, 0]).good();
    assert_eq!(answer.ops, [MediumOp::Flush]);
    disk.run(&[0; 6]).fails(2, 4, 2);
    disk.run(&cdb::read(0, 1)).fails(2, 4, 2);
    disk.run(&cdb::inquiry(None, 96)).good();
    let sense = disk.run(&[0x03, 0, 0, 0, 252, 0]).good().data;
    assert_eq!((sense[2], sense[12], sense[13]), (2, 4, 2));
    disk.run(&[0x1b, 0, 0, 0, 1, 0]).good();
    disk.run(&cdb::read(0, 1)).good();
    // Nothing to eject, no power conditions.
    disk.run(&[0x1b, 0, 0, 0, 2, 0]).fails(5, 0x24, 0);
    disk.run(&[0x1b, 0, 0, 0, 0x30, 0]).fails(5, 0x24, 0);
}

/// WRITE LONG(16) with these flags.
fn write_long(flags: u8, lba: u64) -> Vec<u8> {
    let mut cdb = cdb::sixteen(0x9f, flags | 0x11, lba, 0);
    cdb[12..14].copy_from_slice(&[2, 8]);
    cdb
}

// covers: SNS-02 VPD-86
#[test]
fn a_marked_block_cannot_be_read_until_it_is_written() {
    const MARKED: (u8, u8, u8) = (3, 0x11, 0x14);
    let mut disk = Disk::new();
    assert_eq!(disk.run(&cdb::inquiry(Some(0x86), 64)).good().data[6], 0x09);
    disk.send(&cdb::write(0, 16), &pattern(16, 1)).good();
    let before = disk.data.clone();
    disk.run(&write_long(0x40, 5)).good();
    disk.run(&[0x3f, 0xc0, 0, 0, 0, 9, 0, 0, 0, 0]).good();
    let mut same = cdb::sixteen(0x8b, 0, 9, 1);
    for (cdb, data, lba) in [
        (cdb::read(0, 16), vec![], 5),
        (cdb::read(6, 4), vec![], 9),
        (cdb::sixteen(0x8f, 0, 0, 8), vec![], 5),
        (cdb::sixteen(0x8f, 2, 0, 8), before[..8 * BLOCK].to_vec(), 5),
        (cdb::compare_and_write(5, 1), pattern(2, 1), 5),
        (std::mem::take(&mut same), pattern(1, 1), 9),
    ] {
        let answer = disk.send(&cdb, &data);
        assert_eq!((answer.code(), answer.sense.unwrap().information), (MARKED, Some(lba)), "{cdb:x?}");
        assert!(answer.ops.is_empty(), "{cdb:x?}");
    }
    assert_eq!(disk.data, before);
    disk.run(&cdb::read(6, 3)).good();
    // A write that fails does not make the block readable. A write that succeeds does, and so does
    // unmapping.
    disk.fault = Some(MediumError::Write { lba: Some(5) });
    disk.send(&cdb::write(4, 2), &pattern(2, 3)).fails(3, 0x0c, 0);
    assert_eq!(disk.run(&cdb::read(5, 1)).code(), MARKED);
    disk.send(&cdb::write(4, 2), &pattern(2, 3)).good();
    disk.run(&cdb::read(0, 8)).good();
    disk.lu.logical_unit_reset();
    disk.run(&[0; 6]).fails(6, 0x29, 3);
    assert_eq!(disk.run(&cdb::read(9, 1)).code(), MARKED);
    let (cdb, list) = unmap(&[(9, 1)]);
    disk.send(&cdb, &list).good();
    disk.run(&cdb::read(0, 16)).good();
}

// covers: SNS-02
#[test]
fn only_so_many_blocks_are_marked_and_in_no_other_way() {
    let mut disk = Disk::new();
    disk.run(&write_long(0, 5)).fails(5, 0x24, 0);
    disk.run(&write_long(0x60, 5)).fails(5, 0x24, 0);
    disk.run(&write_long(0x40, BLOCKS)).fails(5, 0x21, 0);
    disk.run(&[0x3e, 0, 0, 0, 0, 5, 0, 2, 8, 0]).fails(5, 0x20, 0);
    for lba in 0..256 {
        disk.run(&write_long(0x40, 2 * lba)).good();
    }
    disk.run(&write_long(0x40, 0)).good();
    disk.run(&write_long(0x40, 1)).fails(5, 0x55, 3);
    disk.run(&cdb::read(1, 1)).good();
    disk.send(&cdb::write(2, 1), &pattern(1, 0)).good();
    disk.run(&write_long(0x40, 1)).good();
    disk.lu.set_read_only(true);
    disk.run(&[0; 6]).fails(6, 0x2a, 1);
    disk.run(&write_long(0x40, 1)).fails(7, 0x27, 0);
    // The unit that replaces this one takes over the marks.
    let mut heir = Disk::new();
    heir.lu.inherit(&disk.lu);
    heir.run(&cdb::read(0, 2)).fails(3, 0x11, 0x14);
}
