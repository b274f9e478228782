//! Copies by token: POPULATE TOKEN and WRITE USING TOKEN.

use std::sync::Arc;
use std::time::Duration;

use scsi::{DataOut, LuConfig, Step};

use crate::shelf::*;
use crate::support::{Answer, BLOCK, cdb};

fn token_cdb(service_action: u8, list_id: u32, bytes: usize) -> Vec<u8> {
    let mut cdb = copy_cdb(service_action, bytes);
    cdb[6..10].copy_from_slice(&list_id.to_be_bytes());
    cdb
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

/// At most as many as a unit keeps; revoked ones make room.
// covers: ODX-01
#[test]
fn odx_01_there_are_no_more_tokens_than_a_unit_keeps() {
    let mut shelf = Shelf::new();
    for lba in 0..64 {
        shelf.token(0, &[(lba, 1)]);
    }
    let list = populate_list(0, &[(100, 1)]);
    let cdb = token_cdb(0x10, 42, list.len());
    shelf.run(0, &cdb, &list).fails(5, 0x55, 0x0d);
    // The write revokes one of them.
    shelf.run(0, &cdb::write(5, 1), &[1; BLOCK]).good();
    shelf.run(0, &cdb, &list).good();
    shelf.run(0, &cdb, &list).fails(5, 0x55, 0x0d);
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
        (populate_list(0, &[(10, 5), (6, 5)]), (5, 0x26, 0x00)),
        // Next to each other, in either order.
        (populate_list(0, &[(10, 5), (15, 1), (6, 4)]), (0, 0, 0)),
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

// covers: ODX-01 ODX-02
#[test]
fn the_sense_points_at_the_byte_of_the_list_that_is_wrong() {
    let mut shelf = Shelf::new();
    let of = |list: &[u8], at: usize, bytes: &[u8]| {
        let mut list = list.to_vec();
        list[at..at + bytes.len()].copy_from_slice(bytes);
        list
    };
    let good = populate_list(300, &[(0, 10), (10, 5), (20, 1)]);
    shelf.run(0, &token_cdb(0x10, 1, good.len()), &good).good();
    // RTV with the types that there are, and without RTV any.
    let typed = |rtv: u8, kind: u32| of(&of(&good, 2, &[rtv]), 8, &kind.to_be_bytes());
    for list in [typed(2, 0), typed(2, 0x0080_0001), typed(0, 0x0080_0000)] {
        shelf.run(0, &token_cdb(0x10, 1, list.len()), &list).good();
    }
    for (list, points_at) in [
        (of(&good, 0, &[0, 13]), 0),
        (of(&good, 4, &301u32.to_be_bytes()), 4),
        (typed(2, 0x0080_0000), 8),
        (populate_list(0, &[]), 14),
        (of(&good, 15, &[47]), 14),
        (of(&good, 16 + 32 + 7, &[14]), 16 + 32),
        (of(&good, 16 + 16 + 7, &[9]), 16 + 16),
    ] {
        shelf.run(0, &token_cdb(0x10, 1, list.len()), &list).points_at(points_at, None);
    }
    let token = shelf.token(0, &[(0, 10)]);
    let good = use_list(&token, 0, &[(100, 5), (105, 5)]);
    shelf.run(1, &token_cdb(0x11, 43, good.len()), &good).good();
    for (list, points_at) in [
        (of(&good, 0, &[2, 0x15]), 0),
        (of(&good, 15, &[10]), 8),
        (of(&good, 535, &[31]), 534),
        (of(&good, 536 + 16 + 7, &[104]), 536 + 16),
    ] {
        shelf.run(1, &token_cdb(0x11, 43, list.len()), &list).points_at(points_at, None);
    }
    let mut many: Vec<(u64, u32)> = (0..64).map(|n| (2 * n, 1)).collect();
    let list = populate_list(0, &many);
    shelf.run(0, &token_cdb(0x10, 1, list.len()), &list).good();
    many.push((200, 1));
    let list = populate_list(0, &many);
    shelf.run(0, &token_cdb(0x10, 1, list.len()), &list).fails(5, 0x1a, 0);
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
    for (at, byte) in [(7, 0xf9), (8, 1), (511, 1)] {
        let mut wrong = zeros.clone();
        wrong[at] = byte;
        shelf.use_token(0, &wrong, 0, &[(4, 1)]).fails(5, 0x23, 0x05);
    }
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

    // Adjacent blocks may change, and the nexus that made the token may be lost.
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
    // A third-party copy managed by another unit changes the block too.
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
    let mut execution = lu.begin_offering(&shelf.a, &token_cdb(0x11, 43, list.len()), list.len() as u64);
    execution.data_out(&lu, &DataOut::new(&[&list]));
    assert!(matches!(execution.step(), Step::Medium(_)));
    shelf.run(0, &cdb::write(3999, 1), &[1; BLOCK]).good();
    shelf.continue_with(&lu, execution, &[]).fails(5, 0x23, 0x06);
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
    let mut execution = lu.begin_offering(&shelf.a, &token_cdb(0x11, 43, list.len()), list.len() as u64);
    execution.data_out(&lu, &DataOut::new(&[&list]));
    assert!(matches!(execution.step(), Step::Medium(_)));
    // Other commands use the token, and need room, before the copy has ended.
    shelf.use_token(2, &token, 0, &[(0, 1)]).fails(5, 0x23, 0x07);
    for _ in 0..64 {
        let list = populate_list(0, &[(0, 1)]);
        shelf.run(0, &token_cdb(0x10, 42, list.len()), &list);
    }
    shelf.run(0, &cdb::write(3999, 1), &[1; BLOCK]).good();
    shelf.continue_with(&lu, execution, &[]).fails(5, 0x23, 0x06);
}

#[test]
fn odx_04_a_use_of_a_token_ends_with_its_task_and_can_be_watched() {
    let mut shelf = Shelf::new();
    let token = shelf.token(0, &[(0, 4000)]);
    let list = use_list(&token, 0, &[(0, 4000)]);
    let lu = Arc::clone(&shelf.disks[1].lu);
    let mut execution = lu.begin_offering(&shelf.a, &token_cdb(0x11, 43, list.len()), list.len() as u64);
    execution.data_out(&lu, &DataOut::new(&[&list]));
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
