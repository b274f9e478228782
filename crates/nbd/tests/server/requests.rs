//! Requests, their data and their errors.

use std::sync::Arc;

use blockstore::RamStore;
use bytes::Bytes;
use nbd::wire::{command, command_flag, option};
use scsi::{Nexus, Status};

use crate::lab::{Client, Lab, MEMORY, SIZE};

const READ: (u16, u16) = (command::READ, 0);
const WRITE: (u16, u16) = (command::WRITE, 0);
const FLUSH: (u16, u16) = (command::FLUSH, 0);
const EPERM: u32 = 1;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;

fn lab() -> Lab {
    Lab::new(Arc::new(RamStore::new(SIZE, 512).unwrap()))
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 3 + at / 509 + 1) as u8).collect()
}

/// The data of a read, in either form of replies.
fn data(answer: &[u8], length: usize) -> &[u8] {
    &answer[answer.len() - length..]
}

#[test]
fn what_is_written_is_read_by_both_forms_of_replies() {
    let lab = lab();
    for structured in [false, true] {
        let mut client = lab.open(structured);
        let bytes = pattern(MEMORY as usize / 4);
        for flags in [0, command_flag::FUA] {
            assert_eq!(client.run((command::WRITE, flags), 4096, bytes.len() as u32, &bytes).error, 0);
        }
        let back = client.run(READ, 4096, bytes.len() as u32, &[]);
        assert!(data(&back.data, bytes.len()) == bytes, "structured {structured}");
        if structured {
            assert_eq!(back.data[..8], 4096u64.to_be_bytes());
        }
        assert_eq!(client.run(FLUSH, 0, 0, &[]).error, 0);
        assert_eq!(client.run((command::CACHE, 0), 0, SIZE as u32, &[]).error, 0);
    }
}

/// Extents of a block status reply: length, and whether it is a hole.
fn extents(client: &mut Client, offset: u64, length: u32, flags: u16) -> Vec<(u32, bool)> {
    let answer = client.run((command::BLOCK_STATUS, flags), offset, length, &[]);
    assert_eq!((answer.error, &answer.data[..4]), (0, &1u32.to_be_bytes()[..]));
    let number = |bytes: &[u8]| u32::from_be_bytes(*bytes.first_chunk().unwrap());
    answer.data[4..].chunks(8).map(|extent| (number(extent), number(&extent[4..]) == 3)).collect()
}

#[test]
fn zeroes_and_holes_are_seen_by_block_status() {
    let lab = lab();
    let mut client = lab.open(true);
    assert_eq!(client.run(WRITE, 1 << 20, 1 << 20, &pattern(1 << 20)).error, 0);
    let mib = 1 << 20;
    assert_eq!(extents(&mut client, 0, 4 * mib, 0), [(mib, true), (mib, false), (2 * mib, true)]);
    assert_eq!(extents(&mut client, 0, 4 * mib, command_flag::REQ_ONE), [(mib, true)]);
    assert_eq!(extents(&mut client, u64::from(mib) + 512, 1024, 0), [(1024, false)]);
    let keeps = (command::WRITE_ZEROES, command_flag::NO_HOLE | command_flag::FUA);
    assert_eq!(client.run(keeps, mib.into(), mib, &[]).error, 0);
    assert_eq!(extents(&mut client, mib.into(), mib, 0), [(mib, false)]);
    assert_eq!(data(&client.run(READ, mib.into(), 512, &[]).data, 512), [0; 512]);
    assert_eq!(client.run(WRITE, mib.into(), 512, &pattern(512)).error, 0);
    // The whole export, which is more than one command of the unit may cover.
    assert_eq!(client.run((command::WRITE_ZEROES, 0), 0, SIZE as u32, &[]).error, 0);
    assert_eq!(extents(&mut client, 0, SIZE as u32, 0), [(SIZE as u32, true)]);
    assert_eq!(client.run(WRITE, 0, 1 << 20, &pattern(1 << 20)).error, 0);
    assert_eq!(client.run((command::TRIM, command_flag::FUA), 0, SIZE as u32, &[]).error, 0);
    assert_eq!(extents(&mut client, 0, SIZE as u32, 0), [(SIZE as u32, true)]);
}

#[test]
fn requests_that_break_a_rule_fail_and_the_connection_goes_on() {
    let lab = lab();
    for structured in [false, true] {
        let mut client = lab.open(structured);
        let cases: [((u16, u16), u64, u32, u32); 12] = [
            ((77, 0), 0, 512, EINVAL),
            ((command::READ, 1 << 7), 0, 512, EINVAL),
            ((command::FLUSH, command_flag::NO_HOLE), 0, 0, EINVAL),
            (READ, 1, 512, EINVAL),
            (READ, 0, 511, EINVAL),
            (READ, SIZE, 512, EINVAL),
            (READ, u64::MAX - 511, 512, EINVAL),
            (READ, 0, MEMORY as u32 / 4 + 512, EINVAL),
            ((command::BLOCK_STATUS, 0), 0, 0, EINVAL),
            ((command::TRIM, 0), SIZE, 512, ENOSPC),
            ((command::WRITE_ZEROES, 0), SIZE - 512, 1024, ENOSPC),
            ((command::CACHE, 0), u64::MAX - 511, 512, EINVAL),
        ];
        for (command, offset, length, error) in cases {
            assert_eq!(
                client.run(command, offset, length, &[]).error,
                error,
                "{command:?} {offset} {length}"
            );
        }
        // Their data is received and dropped.
        let bytes = pattern(1024);
        assert_eq!(client.run(WRITE, SIZE - 512, 1024, &bytes).error, ENOSPC);
        assert_eq!(client.run(WRITE, 3, 1024, &bytes).error, EINVAL);
        assert_eq!(client.run((command::WRITE, 1 << 9), 0, 1024, &bytes).error, EINVAL);
        assert_eq!(data(&client.run(READ, 0, 1024, &[]).data, 1024), [0; 1024]);
        let allocation = client.run((command::BLOCK_STATUS, 0), 0, 512, &[]);
        assert_eq!(allocation.error, if structured { 0 } else { EINVAL });
    }
}

#[test]
fn no_request_and_an_oversized_write_end_the_connection() {
    let lab = lab();
    let mut client = lab.open(true);
    std::io::Write::write_all(&mut client.stream, &[0; 28]).unwrap();
    assert!(client.is_closed());
    let mut client = lab.open(true);
    client.request(WRITE, 1, 0, u32::MAX, &[]);
    assert!(client.is_closed());
}

/// Replies are sent as requests complete; each has its cookie.
#[test]
fn many_requests_are_under_way_at_once() {
    let lab = lab();
    let mut client = lab.open(true);
    for cookie in 0..200u64 {
        client.request(WRITE, cookie, cookie * 512, 512, &[cookie as u8 + 1; 512]);
    }
    let mut cookies: Vec<u64> = (0..200).map(|_| client.answer(0)).map(|answer| answer.cookie).collect();
    cookies.sort_unstable();
    assert_eq!(cookies, Vec::from_iter(0..200));
    let back = client.run(READ, 0, 200 * 512, &[]);
    let blocks = data(&back.data, 200 * 512).chunks(512).zip(1u8..);
    assert!(blocks.into_iter().all(|(block, byte)| block.iter().all(|found| *found == byte)));
}

fn host() -> Nexus {
    Nexus::new("iqn.2025-01.org.example:host,i,0x00023d000001", 1, 1)
}

/// Another host executes a command on the unit.
fn elsewhere(lab: &Lab, cdb: &[u8], data: &[u8]) {
    let slabs = engine::SlabRing::new(4096, 4);
    let data: Vec<Bytes> =
        [data].iter().filter(|d| !d.is_empty()).map(|d| Bytes::copy_from_slice(d)).collect();
    let unit = &lab.disk.unit;
    let carried = (0..4).map(|_| lun::carry_out(unit, &host(), cdb, &data, &slabs, &lun::NEVER).unwrap());
    // The first ones may report unit attentions.
    let ended: Vec<_> = carried.map(|carried| carried.outcome.status).take(2).collect();
    assert_eq!(ended.last(), Some(&Status::Good));
}

#[test]
fn a_reservation_of_another_host_holds_against_a_client() {
    let lab = lab();
    let mut client = lab.open(true);
    let out = |action: u8, kind: u8, keys: (u64, u64)| {
        let list = [&keys.0.to_be_bytes()[..], &keys.1.to_be_bytes(), &[0; 8]].concat();
        ([0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0], list)
    };
    // REGISTER AND IGNORE EXISTING KEY, and RESERVE for Write Exclusive.
    let (cdb, list) = out(6, 0, (0, 7));
    elsewhere(&lab, &cdb, &list);
    let (cdb, list) = out(1, 1, (7, 0));
    elsewhere(&lab, &cdb, &list);
    let refused = client.run(WRITE, 0, 512, &[9; 512]);
    assert_eq!(refused.error, EPERM);
    assert!(String::from_utf8_lossy(&refused.data).contains("reserved"), "{refused:?}");
    for change in [command::TRIM, command::WRITE_ZEROES] {
        assert_eq!(client.run((change, 0), 0, 512, &[]).error, EPERM);
    }
    assert_eq!(data(&client.run(READ, 0, 512, &[]).data, 512), [0; 512], "Write Exclusive lets others read");
    // RELEASE.
    let (cdb, list) = out(2, 1, (7, 0));
    elsewhere(&lab, &cdb, &list);
    assert_eq!(client.run(WRITE, 0, 512, &[9; 512]).error, 0);
}

#[test]
fn a_unit_that_is_protected_against_writes_says_so_and_refuses_them() {
    let store = Arc::new(RamStore::new(SIZE, 512).unwrap());
    let lab = Lab::with(store, |config| scsi::LuConfig {
        medium: scsi::MediumConfig { read_only: true, ..config.medium },
        ..config
    });
    let mut probe = lab.client();
    probe.greet();
    probe.option(option::EXPORT_NAME, b"");
    let flags = probe.bytes(10)[9];
    assert_eq!(flags & 2, 2, "NBD_FLAG_READ_ONLY");
    let mut client = lab.open(true);
    assert_eq!(client.run(WRITE, 0, 512, &[9; 512]).error, EPERM);
    assert_eq!(client.run((command::WRITE_ZEROES, 0), 0, 512, &[]).error, EPERM);
    assert_eq!(client.run(READ, 0, 512, &[]).error, 0);
}
