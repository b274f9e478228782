//! FORMAT UNIT and SANITIZE: whole-medium operations in steps.
mod support;

use scsi::{DataOut, Execution, LuConfig, MediumConfig, MediumError, MediumOp, MediumReply, Step};
use support::{BLOCK, BLOCKS, Disk, cdb};

const FORMAT: [u8; 6] = [0x04, 0, 0, 0, 0, 0];
const FORMAT_WITH_LIST: [u8; 6] = [0x04, 0x10, 0, 0, 0, 0];
const BLOCK_ERASE: [u8; 10] = [0x48, 0x02, 0, 0, 0, 0, 0, 0, 0, 0];
const BLOCK_ERASE_AUSE: [u8; 10] = [0x48, 0x22, 0, 0, 0, 0, 0, 0, 0, 0];
const BLOCK_ERASE_IMMED: [u8; 10] = [0x48, 0x82, 0, 0, 0, 0, 0, 0, 0, 0];
const EXIT_FAILURE: [u8; 10] = [0x48, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0];

fn config() -> LuConfig {
    let mut config =
        LuConfig { medium: MediumConfig { sanitize: true, ..support::config().medium }, ..support::config() };
    config.limits.max_write_same_blocks = 1000;
    config
}

fn filled(config: LuConfig) -> Disk {
    let mut disk = Disk::with(config);
    disk.data.fill(7);
    disk.mapped.fill(true);
    disk
}

fn ranges(ops: &[MediumOp]) -> Vec<(u64, u64, bool)> {
    ops.iter()
        .map(|op| match *op {
            MediumOp::WriteSame { lba, blocks, unmap, zero: true, durable: true } => (lba, blocks, unmap),
            ref other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn format_unit_deallocates_a_thin_unit_and_overwrites_a_fat_one() {
    let covering = |unmap| {
        vec![
            (0, 1000, unmap),
            (1000, 1000, unmap),
            (2000, 1000, unmap),
            (3000, 1000, unmap),
            (4000, 96, unmap),
        ]
    };
    for thin in [true, false] {
        let mut disk = filled(LuConfig { medium: MediumConfig { thin, ..config().medium }, ..config() });
        let answer = disk.run(&FORMAT).good();
        assert_eq!(ranges(&answer.ops), covering(thin));
        assert!(disk.data.iter().all(|&b| b == 0) && disk.mapped.iter().all(|&m| m != thin));
        disk.run(&[0; 6]).good();
    }
}

// covers: PI-14 CDB-05
#[test]
fn format_unit_parameter_lists() {
    let mut disk = Disk::with(config());
    disk.send(&FORMAT_WITH_LIST, &[0, 0, 0, 0]).good();
    disk.send(&FORMAT_WITH_LIST, &[0, 0x80 | 0x20 | 0x02, 0, 0]).good();
    disk.send(&[0x04, 0x30, 0, 0, 0, 0], &[0; 8]).good();
    for (list, byte) in [
        ([1, 0, 0, 0], 0),    // protection information
        ([0, 0x20, 0, 0], 1), // DCRT without FOV
        ([0, 0x88, 0, 0], 1), // an initialization pattern
        ([0, 0, 0, 4], 2),    // a defect list
    ] {
        let sense = disk.send(&FORMAT_WITH_LIST, &list).fails(5, 0x26, 0).sense_bytes.unwrap();
        assert_eq!(sense[16..18], [0, byte]);
    }
    let mut long = [0; 8];
    long[3] = 1;
    disk.send(&[0x04, 0x30, 0, 0, 0, 0], &long).fails(5, 0x26, 0);
    disk.run(&[0x04, 0x80, 0, 0, 0, 0]).fails(5, 0x24, 0);
    disk.run(&FORMAT_WITH_LIST).fails(5, 0x0e, 3);
    disk.lu.set_read_only(true);
    disk.run(&[0; 6]).fails(6, 0x2a, 1);
    disk.run(&FORMAT).fails(7, 0x27, 0);
}

/// One step of an execution on a medium that accepts everything.
fn step(disk: &Disk, mut execution: Execution) -> Execution {
    match execution.step() {
        Step::Medium(_) => execution.medium_done(&disk.lu, Ok(MediumReply::Done)),
        Step::NeedDataOut { .. } => execution.data_out(&disk.lu, &DataOut::new(&[&[0; 8]])),
        Step::Done(_) => {}
    }
    execution
}

#[test]
fn fmt_01_the_unit_says_how_far_it_is() {
    let mut disk =
        Disk::with(LuConfig { medium: MediumConfig { thin: false, ..config().medium }, ..config() });
    let nexus = disk.nexus.clone();
    let mut execution = disk.lu.begin(&nexus, &FORMAT_WITH_LIST);
    execution = step(&disk, execution);
    for steps in 0..5u64 {
        let sense = disk.run(&cdb::read(0, 1)).fails(2, 4, 4).sense_bytes.unwrap();
        let progress = u16::from_be_bytes([sense[16], sense[17]]);
        assert_eq!(u64::from(progress), ((steps * 1000) << 16) / BLOCKS);
        let data = disk.run(&[3, 0, 0, 0, 18, 0]).good().data;
        assert_eq!(data[2..], sense[2..]);
        disk.run(&cdb::inquiry(None, 96)).good();
        disk.run(&[0x1b, 0, 0, 0, 1, 0]).fails(2, 4, 4);
        disk.run(&FORMAT).fails(2, 4, 4);
        execution = step(&disk, execution);
    }
    assert!(matches!(execution.step(), Step::Done(_)));
    disk.run(&cdb::read(0, 1)).good();
}

#[test]
fn fmt_02_a_format_that_was_cut_off_leaves_the_medium_unusable() {
    let mut disk = Disk::with(config());
    let nexus = disk.nexus.clone();
    // Aborted: the caller drops the execution.
    drop(disk.lu.begin(&nexus, &FORMAT));
    disk.run(&cdb::read(0, 1)).fails(3, 0x31, 0);
    disk.run(&BLOCK_ERASE).fails(3, 0x31, 0);
    disk.run(&FORMAT).good();
    disk.run(&cdb::read(0, 1)).good();
    // Failed.
    disk.fault = Some(MediumError::Write { lba: Some(5) });
    disk.run(&FORMAT).fails(3, 0x31, 0);
    disk.run(&cdb::write(0, 1)).fails(3, 0x31, 0);
    disk.run(&FORMAT).good();
    disk.send(&cdb::write(0, 1), &[1; BLOCK]).good();
}

#[test]
fn san_01_block_erase_overwrites_and_then_deallocates() {
    let mut disk = filled(config());
    let answer = disk.run(&BLOCK_ERASE).good();
    let ranges = ranges(&answer.ops);
    assert_eq!(ranges.len(), 10);
    assert!(ranges[..5].iter().all(|r| !r.2) && ranges[5..].iter().all(|r| r.2));
    assert!(disk.data.iter().all(|&b| b == 0) && disk.mapped.iter().all(|&m| !m));
    // The limits of the parameter list, and a failed state that can be left.
    let mut cdb = BLOCK_ERASE;
    cdb[8] = 8;
    disk.send(&cdb, &[0; 8]).fails(5, 0x24, 0);
    disk.fault = Some(MediumError::Internal);
    disk.run(&BLOCK_ERASE).fails(3, 0x31, 3);
    disk.run(&cdb::read(0, 1)).fails(3, 0x31, 3);
    disk.run(&FORMAT).fails(3, 0x31, 3);
    // It may be left only if that was allowed beforehand.
    disk.run(&EXIT_FAILURE).fails(5, 0x24, 0);
    disk.run(&BLOCK_ERASE_AUSE).fails(5, 0x24, 0);
    disk.run(&cdb::read(0, 1)).fails(3, 0x31, 3);
    disk.run(&BLOCK_ERASE).good();
    disk.fault = Some(MediumError::Internal);
    disk.run(&BLOCK_ERASE_AUSE).fails(3, 0x31, 3);
    disk.run(&EXIT_FAILURE).good();
    disk.run(&cdb::read(0, 1)).good();
    let nexus = disk.nexus.clone();
    let running = disk.lu.begin(&nexus, &BLOCK_ERASE);
    disk.run(&cdb::read(0, 1)).fails(2, 4, 0x1b);
    drop(running);
    disk.run(&BLOCK_ERASE).good();
    // WABEREQ, and no claim without the store's promise.
    assert_eq!(disk.run(&cdb::inquiry(Some(0xb1), 64)).good().data[7], 0x40);
    let mut plain = Disk::new();
    plain.run(&BLOCK_ERASE).fails(5, 0x20, 0);
    assert_eq!(plain.run(&cdb::inquiry(Some(0xb1), 64)).good().data[7], 0);
}

// covers: SAN-01 FMT-01
#[test]
fn with_immed_the_status_comes_first_and_the_operation_goes_on() {
    let mut disk = filled(config());
    let nexus = disk.nexus.clone();
    for (cdb, list, ascq) in
        [(&BLOCK_ERASE_IMMED[..], vec![], 0x1b), (&FORMAT_WITH_LIST[..], vec![0, 0x82, 0, 0], 0x04)]
    {
        let mut execution = disk.lu.begin(&nexus, cdb);
        if !list.is_empty() {
            execution.data_out(&disk.lu, &DataOut::new(&[&list]));
        }
        assert!(matches!(execution.step(), Step::Done(outcome) if outcome.status == scsi::Status::Good));
        let rest = execution.take_remainder().unwrap();
        assert!(execution.take_remainder().is_none());
        assert_eq!(rest.outlives_task(), ascq == 0x1b, "a format ends with its task");
        disk.run(&cdb::read(0, 1)).fails(2, 4, ascq);
        disk.lu.logical_unit_reset();
        disk.run(&[0; 6]).fails(6, 0x29, 3);
        disk.run(&[0; 6]).fails(2, 4, ascq);
        assert!(disk.finish(rest, &[]).good().ops.len() >= 5);
        disk.run(&cdb::read(0, 1)).good();
        // Abandoned.
        let mut execution = disk.lu.begin(&nexus, cdb);
        if !list.is_empty() {
            execution.data_out(&disk.lu, &DataOut::new(&[&list]));
        }
        drop(execution);
        assert_eq!(disk.run(&cdb::read(0, 1)).code().1, 0x31);
        disk.send(cdb, &list).good();
    }
}

// covers: SAN-01
#[test]
fn a_unit_that_takes_the_place_of_another_knows_that_it_is_not_erased() {
    let mut old = Disk::with(config());
    let nexus = old.nexus.clone();
    let running = old.lu.begin(&nexus, &BLOCK_ERASE);
    let mut new = Disk::with(config());
    new.lu.inherit(&old.lu);
    new.run(&cdb::read(0, 1)).fails(3, 0x31, 3);
    new.run(&BLOCK_ERASE).good();
    old.finish(running, &[]).good();
    new.run(&cdb::read(0, 1)).good();
}

const OVERWRITE: [u8; 10] = [0x48, 1, 0, 0, 0, 0, 0, 0, 6, 0];

// covers: SAN-01
#[test]
fn sanitize_overwrite_writes_its_pattern_as_often_as_asked() {
    for (flags, expected) in
        [(1, [0xa5, 0x17]), (2, [0xa5, 0x17]), (0x82, [0x5a, 0xe8]), (0x83, [0xa5, 0x17])]
    {
        let mut disk = filled(config());
        let answer = disk.send(&OVERWRITE, &[flags, 0, 0, 2, 0xa5, 0x17]).good();
        assert_eq!(answer.ops.len(), 5 * usize::from(flags & 0x1f), "passes");
        assert!(disk.data.chunks(2).all(|pair| pair == expected), "{flags:x}");
        assert!(disk.mapped.iter().all(|&mapped| mapped), "nothing is deallocated");
    }
    let mut disk = filled(config());
    let before = disk.data.clone();
    for (list, byte) in [
        ([0, 0, 0, 2, 1, 1], 0),    // no passes
        ([0x21, 0, 0, 2, 1, 1], 0), // TEST
        ([1, 0, 0, 1, 1, 1], 2),    // the pattern is as long as the list says
        ([1, 0, 0, 3, 1, 1], 2),
    ] {
        let sense = disk.send(&OVERWRITE, &list).fails(5, 0x26, 0).sense_bytes.unwrap();
        assert_eq!(sense[16..18], [0, byte]);
    }
    for length in [0u16, 4, 4 + 513] {
        let [hi, lo] = length.to_be_bytes();
        disk.send(&[0x48, 1, 0, 0, 0, 0, 0, hi, lo, 0], &[0; 600]).fails(5, 0x24, 0);
    }
    assert_eq!(disk.data, before);
    disk.fault = Some(MediumError::Write { lba: Some(9) });
    disk.send(&OVERWRITE, &[1, 0, 0, 2, 1, 2]).fails(3, 0x31, 3);
    disk.run(&cdb::read(0, 1)).fails(3, 0x31, 3);
    disk.send(&OVERWRITE, &[1, 0, 0, 2, 1, 2]).good();
    disk.run(&cdb::read(0, 1)).good();
}

// covers: SAN-01
#[test]
fn of_two_whose_patterns_are_on_their_way_one_begins() {
    let mut disk = filled(config());
    let nexus = disk.nexus.clone();
    let [mut first, mut second] = [(); 2].map(|()| disk.lu.begin_offering(&nexus, &OVERWRITE, 6));
    let list: &[&[u8]] = &[&[1, 0, 0, 2, 1, 2]];
    first.data_out(&disk.lu, &DataOut::new(list));
    second.data_out(&disk.lu, &DataOut::new(list));
    disk.finish(second, &[]).fails(2, 4, 0x1b);
    disk.run(&cdb::read(0, 1)).fails(2, 4, 0x1b);
    disk.finish(first, &[]).good();
    disk.run(&cdb::read(0, 1)).good();
}

#[test]
fn log_pages_say_that_nothing_is_wrong() {
    let mut disk = Disk::new();
    let log = |page: u8, subpage: u8| [0x4d, 0, 0x40 | page, subpage, 0, 0, 0, 0, 255, 0];
    assert_eq!(disk.run(&log(0, 0)).good().data, [0, 0, 0, 2, 0, 0x2f]);
    assert_eq!(disk.run(&log(0, 0xff)).good().data, [0x40, 0xff, 0, 6, 0, 0, 0, 0xff, 0x2f, 0]);
    assert_eq!(disk.run(&log(0x2f, 0)).good().data, [0x2f, 0, 0, 8, 0, 0, 3, 4, 0, 0, 0, 0]);
    disk.run(&log(0x0d, 0)).fails(5, 0x24, 0);
    disk.run(&[0x4d, 1, 0, 0, 0, 0, 0, 0, 255, 0]).fails(5, 0x24, 0);
    disk.run(&[0x4d, 0, 0x6f, 0, 0, 0, 1, 0, 255, 0]).fails(5, 0x24, 0);
}
