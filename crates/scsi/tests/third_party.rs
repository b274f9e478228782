//! Third-party copy between units of a target: EXTENDED COPY, its results, and copies by token.

mod support;

use std::sync::{Arc, Weak};
use std::time::Duration;

use scsi::{
    DataOut, Execution, LogicalUnit, LuConfig, MediumError, MediumOp, MediumReply, NaaIdentifier, Neighbours,
    Nexus, Status, Step,
};
use support::{Answer, BLOCK, Disk, answer, cdb, config, nexus};

/// A target with three units.
struct Shelf {
    disks: Vec<Disk>,
    _units: Arc<Units>,
    a: Nexus,
    b: Nexus,
    /// Fails the copy of this piece, counted from 0.
    fault: Option<(usize, MediumError)>,
}

struct Units(Vec<Arc<LogicalUnit>>);

impl Neighbours for Units {
    fn each(&self, f: &mut dyn FnMut(&LogicalUnit) -> bool) {
        self.0.iter().all(|unit| f(unit));
    }
}

fn naa(lun: u16) -> NaaIdentifier {
    NaaIdentifier::Local(0x1000 + u64::from(lun))
}

impl Shelf {
    fn new() -> Self {
        Self::with(|config| config)
    }

    fn with(adapt: impl Fn(LuConfig) -> LuConfig) -> Self {
        let (a, b) = (nexus("a"), nexus("b"));
        let disks: Vec<Disk> = (0..3u16)
            .map(|lun| {
                let config = LuConfig { lun, naa: naa(lun), token_secret: Some([7; 32]), ..config() };
                let mut disk = Disk::with(adapt(config));
                disk.attach(&b);
                disk
            })
            .collect();
        let units = Arc::new(Units(disks.iter().map(|disk| Arc::clone(&disk.lu)).collect()));
        for disk in &disks {
            let weak: Weak<Units> = Arc::downgrade(&units);
            disk.lu.set_neighbours(weak);
        }
        Self { disks, _units: units, a, b, fault: None }
    }

    fn run(&mut self, lun: usize, cdb: &[u8], out: &[u8]) -> Answer {
        let nexus = self.a.clone();
        self.run_as(&nexus, lun, cdb, out)
    }

    fn run_as(&mut self, nexus: &Nexus, lun: usize, cdb: &[u8], out: &[u8]) -> Answer {
        let lu = Arc::clone(&self.disks[lun].lu);
        let execution = lu.begin_offering(nexus, cdb, out.len() as u64);
        self.go_on(&lu, execution, out)
    }

    fn go_on(&mut self, lu: &LogicalUnit, mut execution: Execution, out: &[u8]) -> Answer {
        let own = usize::from(lu.config().lun);
        let (mut read, mut ops, mut pieces) = (Vec::new(), Vec::new(), 0);
        loop {
            execution = match execution.step().clone() {
                Step::Done(outcome) => return answer(outcome, read, ops),
                Step::NeedDataOut { bytes } => {
                    let data = &out[..out.len().min(bytes as usize)];
                    execution.data_out(lu, &DataOut::new(&[data]).with_offered(out.len() as u64))
                }
                Step::Medium(op) => {
                    ops.push(op.clone());
                    let reply = match op {
                        MediumOp::Copy { from, from_lba, to, lba, blocks, .. } => {
                            pieces += 1;
                            match self.fault {
                                Some((at, error)) if at + 1 == pieces => Err(error),
                                _ => {
                                    let source = &self.disks[usize::from(from)];
                                    let moved = source.data[source.range(from_lba, blocks)].to_vec();
                                    self.disks[usize::from(to)].write(lba, blocks, &moved);
                                    Ok(MediumReply::Done)
                                }
                            }
                        }
                        _ => Ok(self.disks[own].medium(&op, out, &mut read)),
                    };
                    execution.medium_done(lu, reply)
                }
            };
        }
    }

    /// Fills blocks of a unit with their own numbers.
    fn number(&mut self, lun: usize, lba: u64, blocks: u64) {
        for at in lba..lba + blocks {
            let block: Vec<u8> = (lun as u64 * 1_000_000 + at).to_be_bytes().repeat(BLOCK / 8);
            self.disks[lun].write(at, 1, &block);
        }
    }

    fn bytes(&self, lun: usize, lba: u64, blocks: u64) -> &[u8] {
        &self.disks[lun].data[self.disks[lun].range(lba, blocks)]
    }

    #[track_caller]
    fn same(&self, (from, from_lba): (usize, u64), (to, lba): (usize, u64), blocks: u64) {
        assert!(self.bytes(from, from_lba, blocks) == self.bytes(to, lba, blocks));
    }
}

fn cscd(lun: u16) -> Vec<u8> {
    let name = naa(lun).to_bytes();
    let mut descriptor = vec![0xe4, 0, 0, 0, 1, 3, 0, name.len() as u8];
    descriptor.extend(name);
    descriptor.resize(28, 0);
    descriptor.extend((BLOCK as u32).to_be_bytes());
    descriptor
}

fn segment(from: u16, from_lba: u64, to: u16, lba: u64, blocks: u16) -> Vec<u8> {
    let mut descriptor = vec![0x02, 0, 0, 0x18];
    descriptor.extend(from.to_be_bytes());
    descriptor.extend(to.to_be_bytes());
    descriptor.extend([0, 0]);
    descriptor.extend(blocks.to_be_bytes());
    descriptor.extend(from_lba.to_be_bytes());
    descriptor.extend(lba.to_be_bytes());
    descriptor
}

fn list_lid1(list_id: u8, cscds: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
    let (cscds, segments) = (cscds.concat(), segments.concat());
    let mut list = vec![list_id, 0];
    list.extend((cscds.len() as u16).to_be_bytes());
    list.extend([0; 4]);
    list.extend((segments.len() as u32).to_be_bytes());
    list.extend([0; 4]);
    list.extend(cscds);
    list.extend(segments);
    list
}

fn list_lid4(list_id: u32, cscds: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
    let (cscds, segments) = (cscds.concat(), segments.concat());
    let mut list = vec![0; 48];
    (list[0], list[3], list[16]) = (1, 0x20, 0xff);
    list[20..24].copy_from_slice(&list_id.to_be_bytes());
    list[42..44].copy_from_slice(&(cscds.len() as u16).to_be_bytes());
    list[44..46].copy_from_slice(&(segments.len() as u16).to_be_bytes());
    list.extend(cscds);
    list.extend(segments);
    list
}

fn copy_cdb(service_action: u8, bytes: usize) -> Vec<u8> {
    let mut cdb = vec![0; 16];
    (cdb[0], cdb[1]) = (0x83, service_action);
    cdb[10..14].copy_from_slice(&(bytes as u32).to_be_bytes());
    cdb
}

fn token_cdb(service_action: u8, list_id: u32, bytes: usize) -> Vec<u8> {
    let mut cdb = copy_cdb(service_action, bytes);
    cdb[6..10].copy_from_slice(&list_id.to_be_bytes());
    cdb
}

/// RECEIVE COPY RESULTS with a list identifier of one byte.
fn results_lid1(service_action: u8, list_id: u8) -> Vec<u8> {
    let mut cdb = vec![0; 16];
    (cdb[0], cdb[1], cdb[2], cdb[12]) = (0x84, service_action, list_id, 0x10);
    cdb
}

/// The same with four bytes.
fn results_lid4(service_action: u8, list_id: u32) -> Vec<u8> {
    let mut cdb = vec![0; 16];
    (cdb[0], cdb[1], cdb[12]) = (0x84, service_action, 0x10);
    cdb[2..6].copy_from_slice(&list_id.to_be_bytes());
    cdb
}

fn number(data: &[u8], at: usize, bytes: usize) -> u64 {
    data[at..at + bytes].iter().fold(0, |n, &byte| n << 8 | u64::from(byte))
}

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
    // The copy manager may be a unit that has no part in a segment.
    let answer = shelf.run(2, &copy_cdb(0, list.len()), &list).good();
    assert_eq!(answer.transfer_bytes, list.len() as u64);
    shelf.same((0, 50), (1, 540), 10);
    shelf.same((1, 0), (2, 0), 10);
    // The destination overlaps the end of its source, and yet gets what the source was.
    assert!(shelf.bytes(0, 5, 40) == before);
}

#[test]
fn cpy_01_a_long_segment_moves_in_pieces_from_the_end_when_it_overlaps_itself() {
    let mut shelf = Shelf::with(|config| LuConfig { blocks: 16_384, ..config });
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
    let mut shelf = Shelf::with(|config| LuConfig { serial: format!("disk{}", config.lun), ..config });
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
    // The manager itself may be reserved against the host, too.
    shelf.run_as(&b, 2, &[0x16, 0, 0, 0, 0, 0], &[]).good();
    copy(&mut shelf).conflicts();
}

#[test]
fn cpy_04_results_are_kept_until_they_were_asked_for() {
    let mut shelf = Shelf::new();
    let (a, b) = (shelf.a.clone(), shelf.b.clone());
    let list = list_lid1(7, &[cscd(0), cscd(1)], &[segment(0, 0, 1, 0, 2048)]);
    shelf.run(0, &copy_cdb(0, list.len()), &list).good();
    // Another nexus and another manager know nothing of it.
    shelf.run_as(&b, 0, &results_lid1(0, 7), &[]).fails(5, 0x24, 0);
    shelf.run_as(&a, 1, &results_lid1(0, 7), &[]).fails(5, 0x24, 0);
    let status = shelf.run(0, &results_lid1(0, 7), &[]).good().data;
    assert_eq!(status, [0, 0, 0, 8, 1, 0, 1, 1, 0, 0, 4, 0]);
    shelf.run(0, &results_lid1(0, 7), &[]).fails(5, 0x24, 0);
}

/// A copy whose medium is still busy with its first piece.
fn half_way(shelf: &Shelf, list: &[u8], service_action: u8) -> Execution {
    let lu = &shelf.disks[0].lu;
    let execution = lu.begin_offering(&shelf.a, &copy_cdb(service_action, list.len()), list.len() as u64);
    let execution = execution.data_out(lu, &DataOut::new(&[list]));
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
    shelf.go_on(&lu, execution, &[]).good();
    assert_eq!(shelf.run(0, &results_lid1(0, 7), &[]).good().data[4], 1);

    // Its task is aborted: the execution is gone, and the identifier is free.
    drop(half_way(&shelf, &list, 0));
    assert_eq!(shelf.run(0, &results_lid1(0, 7), &[]).good().data[4], 2);
    shelf.run(0, &copy_cdb(0, list.len()), &list).good();
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

    let long = list_lid4(3, &[cscd(0), cscd(1)], &[segment(0, 0, 1, 0, 4000)]);
    let execution = half_way(&shelf, &long, 1);
    assert_eq!(shelf.run(0, &results_lid4(5, 3), &[]).good().data[5], 0x10);
    let mut abort = vec![0; 16];
    (abort[0], abort[1], abort[5]) = (0x83, 0x1c, 3);
    shelf.run(0, &abort, &[]).good();
    let lu = Arc::clone(&shelf.disks[0].lu);
    shelf.go_on(&lu, execution, &[]).fails(0xa, 0x2f, 0x02);
    assert_eq!(shelf.run(0, &results_lid4(5, 3), &[]).good().data[5], 0x60);
    abort[5] = 4;
    shelf.run(0, &abort, &[]).fails(5, 0x24, 0);

    for (at, byte) in [(0, 0), (3, 0x1f), (16, 0xfe)] {
        let mut list = list.clone();
        list[at] = byte;
        shelf.run(0, &copy_cdb(1, list.len()), &list).fails(5, 0x26, 0);
    }
}

fn ranges(ranges: &[(u64, u32)]) -> Vec<u8> {
    let mut bytes = ((ranges.len() * 16) as u16).to_be_bytes().to_vec();
    for (lba, blocks) in ranges {
        bytes.extend(lba.to_be_bytes());
        bytes.extend(blocks.to_be_bytes());
        bytes.extend([0; 4]);
    }
    bytes
}

fn populate_list(timeout_s: u32, of: &[(u64, u32)]) -> Vec<u8> {
    let mut list = vec![0; 14];
    list[4..8].copy_from_slice(&timeout_s.to_be_bytes());
    list.extend(ranges(of));
    let length = (list.len() - 2) as u16;
    list[..2].copy_from_slice(&length.to_be_bytes());
    list
}

fn use_list(token: &[u8], offset: u64, onto: &[(u64, u32)]) -> Vec<u8> {
    let mut list = vec![0; 8];
    list.extend(offset.to_be_bytes());
    list.extend(token);
    list.extend([0; 6]);
    list.extend(ranges(onto));
    let length = (list.len() - 2) as u16;
    list[..2].copy_from_slice(&length.to_be_bytes());
    list
}

impl Shelf {
    fn token(&mut self, lun: usize, of: &[(u64, u32)]) -> Vec<u8> {
        let list = populate_list(0, of);
        self.run(lun, &token_cdb(0x10, 42, list.len()), &list).good();
        let data = self.run(lun, &results_lid4(7, 42), &[]).good().data;
        assert_eq!((data[4], data[5]), (0x10, 0x01));
        let at = 32 + usize::from(data[13]);
        assert_eq!(number(&data, at, 4), 514);
        data[at + 6..at + 6 + 512].to_vec()
    }

    fn use_token(&mut self, lun: usize, token: &[u8], offset: u64, onto: &[(u64, u32)]) -> Answer {
        let list = use_list(token, offset, onto);
        self.run(lun, &token_cdb(0x11, 43, list.len()), &list)
    }

    /// COPY OPERATION STATUS and TRANSFER COUNT of the last use of a token.
    fn used(&mut self, lun: usize) -> (u8, u64) {
        let data = self.run(lun, &results_lid4(7, 43), &[]).good().data;
        (data[5], number(&data, 16, 8))
    }
}

#[test]
fn odx_01_a_token_stands_for_ranges_of_blocks() {
    let mut shelf = Shelf::new();
    shelf.number(0, 0, 300);
    let token = shelf.token(0, &[(100, 50), (0, 10)]);
    assert_eq!(number(&token, 56, 8), 60 * BLOCK as u64);
    shelf.use_token(2, &token, 0, &[(1000, 60)]).good();
    assert_eq!(shelf.used(2), (0x01, 60));
    shelf.same((0, 100), (2, 1000), 50);
    shelf.same((0, 0), (2, 1050), 10);

    for (list, code) in [
        (populate_list(0, &[(0, 10), (9, 1)]), (5, 0x26, 0x00)),
        (populate_list(0, &[(4090, 7)]), (5, 0x21, 0x00)),
        (populate_list(301, &[(0, 1)]), (5, 0x26, 0x00)),
        (populate_list(0, &[]), (5, 0x26, 0x00)),
        (populate_list(0, &[(0, 1)])[..31].to_vec(), (5, 0x1a, 0x00)),
        (populate_list(0, &[(0, 1)])[..15].to_vec(), (5, 0x1a, 0x00)),
    ] {
        let answer = shelf.run(0, &token_cdb(0x10, 1, list.len()), &list);
        assert_eq!(answer.code(), code, "{list:x?}");
    }
}

#[test]
fn odx_02_from_the_middle_of_a_token_and_beyond_its_end() {
    let mut shelf = Shelf::new();
    shelf.number(0, 0, 300);
    let token = shelf.token(0, &[(100, 50), (0, 10)]);
    shelf.use_token(1, &token, 45, &[(0, 3), (10, 5)]).good();
    shelf.same((0, 145), (1, 0), 3);
    shelf.same((0, 148), (1, 10), 2);
    shelf.same((0, 0), (1, 12), 3);
    shelf.use_token(1, &token, 50, &[(20, 30)]).good();
    assert_eq!(shelf.used(1), (0x04, 10), "what is left of it is less than what was asked for");
    shelf.use_token(1, &token, 60, &[(20, 1)]).fails(5, 0x26, 0);

    let mut zeros = vec![0; 512];
    zeros[..8].copy_from_slice(&[0xff, 0xff, 0, 1, 0, 0, 1, 0xf8]);
    shelf.use_token(0, &zeros, 0, &[(5, 90)]).good();
    assert!(shelf.bytes(0, 5, 90).iter().all(|&byte| byte == 0));
    assert!(shelf.bytes(0, 4, 1).iter().any(|&byte| byte != 0));
}

#[test]
fn odx_03_a_token_cannot_be_forged_and_dies_with_a_change_of_its_data() {
    let mut shelf = Shelf::new();
    let b = shelf.b.clone();
    let token = shelf.token(0, &[(100, 50)]);
    for at in [8, 63, 100, 128, 159, 511] {
        let mut forged = token.clone();
        forged[at] ^= 1;
        shelf.use_token(1, &forged, 0, &[(0, 50)]).fails(5, 0x23, 0x04);
    }
    let mut foreign = token.clone();
    foreign[26] ^= 1;
    shelf.use_token(1, &foreign, 0, &[(0, 50)]).fails(5, 0x23, 0x02);
    let mut odd = token.clone();
    odd[2] ^= 0x40;
    shelf.use_token(1, &odd, 0, &[(0, 50)]).fails(5, 0x23, 0x01);
    odd = token.clone();
    odd[7] ^= 1;
    shelf.use_token(1, &odd, 0, &[(0, 50)]).fails(5, 0x23, 0x0a);

    // Its neighbours may change, and the nexus that made it may go.
    shelf.run_as(&b, 0, &cdb::write(99, 1), &[1; BLOCK]).good();
    shelf.run_as(&b, 0, &cdb::write(150, 1), &[1; BLOCK]).good();
    let a = shelf.a.clone();
    shelf.disks[0].lu.detach_nexus(&a);
    shelf.use_token(1, &token, 0, &[(0, 50)]).good();
    shelf.run_as(&b, 0, &cdb::write(149, 1), &[1; BLOCK]).good();
    shelf.use_token(1, &token, 0, &[(0, 50)]).fails(5, 0x23, 0x06);
}

#[test]
fn odx_03_every_way_to_change_a_block_revokes_its_token() {
    let unmap: Vec<u8> =
        [&[0, 22, 0, 16, 0, 0, 0, 0][..], &100u64.to_be_bytes(), &[0, 0, 0, 1, 0, 0, 0, 0]].concat();
    let writes: [(Vec<u8>, Vec<u8>); 6] = [
        (cdb::write(100, 1), vec![1; BLOCK]),
        (cdb::sixteen(0x8b, 0, 100, 1), vec![1; BLOCK]),
        (cdb::sixteen(0x8e, 0, 100, 1), vec![1; BLOCK]),
        (cdb::sixteen(0x93, 0, 100, 1), vec![1; BLOCK]),
        (cdb::compare_and_write(100, 1), vec![0; 2 * BLOCK]),
        (vec![0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], unmap),
    ];
    for (cdb, data) in writes {
        let mut shelf = Shelf::new();
        let token = shelf.token(0, &[(100, 1)]);
        shelf.run(0, &cdb, &data).good();
        shelf.use_token(1, &token, 0, &[(0, 1)]).fails(5, 0x23, 0x06);
    }
    // A third-party copy from elsewhere changes it as well.
    let mut shelf = Shelf::new();
    let token = shelf.token(0, &[(100, 1)]);
    let list = list_lid1(1, &[cscd(1), cscd(0)], &[segment(0, 0, 1, 100, 1)]);
    shelf.run(2, &copy_cdb(0, list.len()), &list).good();
    shelf.use_token(1, &token, 0, &[(0, 1)]).fails(5, 0x23, 0x06);
}

#[test]
fn odx_03_a_token_that_nobody_uses_expires() {
    let mut shelf = Shelf::new();
    let token = shelf.token(0, &[(100, 50)]);
    let tick = |shelf: &Shelf, s| shelf.disks[0].lu.set_time(Duration::from_secs(s));
    tick(&shelf, 20);
    shelf.use_token(1, &token, 0, &[(0, 50)]).good();
    tick(&shelf, 49);
    shelf.use_token(1, &token, 0, &[(0, 50)]).good();
    tick(&shelf, 79);
    shelf.use_token(1, &token, 0, &[(0, 50)]).fails(5, 0x23, 0x07);
    shelf.use_token(1, &token, 0, &[(0, 50)]).fails(5, 0x23, 0x04);
}

#[test]
fn odx_03_the_data_change_while_a_token_is_being_used() {
    let mut shelf = Shelf::new();
    let token = shelf.token(0, &[(0, 4000)]);
    let list = use_list(&token, 0, &[(0, 4000)]);
    let lu = Arc::clone(&shelf.disks[1].lu);
    let execution = lu.begin_offering(&shelf.a, &token_cdb(0x11, 43, list.len()), list.len() as u64);
    let execution = execution.data_out(&lu, &DataOut::new(&[&list]));
    assert!(matches!(execution.step(), Step::Medium(_)));
    shelf.run(0, &cdb::write(3999, 1), &[1; BLOCK]).good();
    shelf.go_on(&lu, execution, &[]).fails(5, 0x23, 0x06);
    assert_eq!(shelf.used(1).0, 0x02);
}

#[test]
fn odx_03_a_token_that_can_be_used_no_more_is_watched_while_it_is_copied() {
    let mut shelf = Shelf::new();
    let token = shelf.token(0, &[(0, 4000)]);
    // The last use: DEL_TKN.
    let mut list = use_list(&token, 0, &[(0, 4000)]);
    list[2] |= 0x02;
    let lu = Arc::clone(&shelf.disks[1].lu);
    let execution = lu.begin_offering(&shelf.a, &token_cdb(0x11, 43, list.len()), list.len() as u64);
    let execution = execution.data_out(&lu, &DataOut::new(&[&list]));
    assert!(matches!(execution.step(), Step::Medium(_)));
    // Others ask for it, and for room, before the copy has ended.
    shelf.use_token(2, &token, 0, &[(0, 1)]).fails(5, 0x23, 0x07);
    for _ in 0..64 {
        let list = populate_list(0, &[(0, 1)]);
        shelf.run(0, &token_cdb(0x10, 42, list.len()), &list);
    }
    shelf.run(0, &cdb::write(3999, 1), &[1; BLOCK]).good();
    shelf.go_on(&lu, execution, &[]).fails(5, 0x23, 0x06);
}

#[test]
fn odx_04_a_use_of_a_token_ends_with_its_task_and_can_be_watched() {
    let mut shelf = Shelf::new();
    let token = shelf.token(0, &[(0, 4000)]);
    let list = use_list(&token, 0, &[(0, 4000)]);
    let lu = Arc::clone(&shelf.disks[1].lu);
    let execution = lu.begin_offering(&shelf.a, &token_cdb(0x11, 43, list.len()), list.len() as u64);
    let execution = execution.data_out(&lu, &DataOut::new(&[&list]));
    assert_eq!(shelf.used(1), (0x10, 0));
    drop(execution);
    assert_eq!(shelf.used(1), (0x60, 0));
    shelf.use_token(1, &token, 0, &[(0, 4000)]).good();
}

#[test]
fn odx_a_unit_without_a_secret_offers_no_tokens() {
    let mut shelf = Shelf::with(|config| LuConfig { token_secret: None, ..config });
    let list = populate_list(0, &[(0, 1)]);
    shelf.run(0, &token_cdb(0x10, 1, list.len()), &list).fails(5, 0x24, 0);
}

// covers: VPD-8F
#[test]
fn vpd_8f_tells_what_the_commands_do() {
    let mut shelf = Shelf::new();
    let data = shelf.run(0, &cdb::inquiry(Some(0x8f), 4096), &[]).good().data;
    assert_eq!(number(&data, 2, 2) as usize, data.len() - 4);
    let mut found = Vec::new();
    let mut at = 4;
    while at < data.len() {
        let (kind, length) = (number(&data, at, 2), number(&data, at + 2, 2) as usize);
        assert!(length.is_multiple_of(4) && at + 4 + length <= data.len());
        found.push(kind);
        let value = &data[at + 4..at + 4 + length];
        match kind {
            0x0000 => assert_eq!(number(value, 6, 2), 64),
            0x0001 => {
                assert!(usize::from(value[0]) < value.len());
                assert_eq!(value[1..8], [0x83, 5, 0x00, 0x01, 0x10, 0x11, 0x1c]);
                assert_eq!(value[8..15], [0x84, 5, 0x00, 0x03, 0x04, 0x05, 0x07]);
            }
            0x0008 => assert_eq!(value[..3], [2, 0x02, 0xe4]),
            0x0108 => assert_eq!(number(value, 2, 2) as usize, value.len() - 4),
            _ => {}
        }
        at += 4 + length;
    }
    assert_eq!(found, [0x0000, 0x0001, 0x0004, 0x0008, 0x0106, 0x0108, 0x8001]);
}
