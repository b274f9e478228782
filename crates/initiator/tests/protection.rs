//! Protection information that our initiator generates and checks, on our target, in one process.

#[path = "support/server.rs"]
mod server;

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use blockstore::{BlockStore, Durability, ProtectedStore, RamStore, Record};
use bytes::{Bytes, BytesMut};
use initiator::protection::host::{HostBuffers, HostBuffersMut, guards};
use initiator::protection::{Checked, Guard, Tuple};
use initiator::{
    Disk, IoError, IscsiUrl, Options, PiFailure, PiField, PiPlace, PiTags, ProtectionType, Session, WriteData,
};
use iscsi_core::params::DigestPolicy;
use target::Server;
use target::observe::Observe;

use self::server::{LUN, TARGET, config, end, options};

const SIZE: u64 = 8 << 20;

/// A unit whose data and records a test can change behind the server's back.
struct Lab {
    server: Option<Server>,
    data: Arc<RamStore>,
    store: Arc<dyn BlockStore>,
    block: usize,
}

impl Lab {
    /// `kind` is `None`: no protection information.
    fn new(block: u32, kind: Option<u8>) -> Self {
        let data = Arc::new(RamStore::new(SIZE, block).unwrap());
        let under = Arc::clone(&data) as Arc<dyn BlockStore>;
        let store = match kind {
            None => under,
            Some(kind) => {
                let side =
                    RamStore::new(ProtectedStore::side_bytes(&data.geometry()).unwrap(), 4096).unwrap();
                Arc::new(ProtectedStore::new(under, Arc::new(side), kind).unwrap())
            }
        };
        let served = Arc::clone(&store);
        let open = Arc::new(move |_: &target::config::LunConfig| Ok(Arc::clone(&served)));
        let server = Server::start_with(config("ram:8M"), Arc::new(Observe::new()), open).unwrap();
        Self { server: Some(server), data, store, block: block as usize }
    }

    fn options(&self, tags: Option<PiTags>) -> Options {
        let mut options = options(self.server.as_ref().unwrap().portals()[0]);
        options.protection = tags;
        options
    }

    fn open(&self, options: Options) -> Result<Disk, IoError> {
        Disk::open(&Session::connect(options).unwrap(), LUN)
    }

    fn disk(&self, tags: PiTags) -> Disk {
        self.open(self.options(Some(tags))).unwrap()
    }

    fn record(&self, lba: u64) -> Record {
        self.store.records().unwrap().read(lba, 1).unwrap().iter().next().unwrap()
    }

    fn put_record(&self, lba: u64, tuple: Tuple) {
        let record = Record::Guarded(tuple);
        self.store
            .records()
            .unwrap()
            .write(lba, &FromIterator::from_iter([record]), Durability::Cached)
            .unwrap();
    }

    fn flip_medium(&self, lba: u64) {
        let at = lba * self.block as u64;
        let mut block = vec![0; self.block];
        self.data.read(at, &mut block).unwrap();
        block[100] ^= 0x10;
        self.data.write(at, &[&block], Durability::Cached).unwrap();
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        end(self.server.take().unwrap());
    }
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ seed.wrapping_mul(101)) as u8 | 1).collect()
}

fn failed<T: std::fmt::Debug>(result: Result<T, IoError>) -> PiFailure {
    match result.unwrap_err() {
        IoError::Protection(failure) => failure,
        other => panic!("{other}"),
    }
}

// covers: PI-17
#[test]
fn pi_17_blocks_of_every_type_come_back_through_every_way_to_cut_them() {
    for (block, kind) in [(512, 1), (512, 2), (512, 3), (4096, 1), (4096, 2), (4096, 3)] {
        let lab = Lab::new(block, Some(kind));
        for (digest, segment) in
            [(DigestPolicy::Off, 8192), (DigestPolicy::Required, 8196), (DigestPolicy::Required, 262_144)]
        {
            let tags =
                PiTags { app_tag: 0x1234, app_mask: 0xffff, ref_tag: (kind != 1).then_some(0xffff_fff0) };
            let mut options = lab.options(Some(tags));
            let bounds = &mut options.bounds;
            (bounds.header_digest, bounds.data_digest) = (digest, digest);
            (bounds.max_recv_data_segment_length, bounds.bursts.max_burst_length) = (segment, 50_000);
            bounds.bursts.first_burst_length = 20_000;
            let disk = lab.open(options).unwrap();
            assert_eq!(disk.info().protection.kind.number(), kind);
            assert_eq!(
                (disk.info().protection.supported, disk.info().protection.checks),
                (0b1110, scsi_all())
            );
            for (offset, blocks) in [(0, 1), (8, 67), (4096 / 8, (5 << 20) / block as usize)] {
                let (at, data) =
                    (offset * u64::from(block), pattern(blocks + segment as usize, blocks * block as usize));
                match blocks {
                    67 => disk.write_bytes(at, &Bytes::from(data.clone())).unwrap(),
                    _ => disk.write(at, &data).unwrap(),
                }
                let mut back = vec![0; data.len()];
                disk.read(at, &mut back).unwrap();
                assert!(back == data, "type {kind}, {blocks} blocks of {block}");
                disk.verify(at, data.len() as u64).unwrap();
                // The medium holds what was generated here.
                for (n, sector) in data.chunks(block as usize).enumerate().step_by(50) {
                    let lba = offset + n as u64;
                    let ref_tag = match kind {
                        1 => lba as u32,
                        2 => 0xffff_fff0u32.wrapping_add(lba as u32),
                        _ => 0xffff_fff0,
                    };
                    let guard = guards(Guard::Crc16, sector, sector.len())[0];
                    assert_eq!(lab.record(lba), Record::Guarded(Tuple { guard, app_tag: 0x1234, ref_tag }));
                }
            }
            let info = disk.session().info().unwrap();
            assert_eq!((info.losses, info.link.digests.data_failed, info.protection.total()), (0, 0, 0));
        }
    }
}

fn scsi_all() -> scsi::Checks {
    scsi::Checks::ALL
}

// covers: PI-17
#[test]
fn pi_17_every_field_is_told_with_block_and_place() {
    for (block, kind) in [(512, 1), (4096, 2), (512, 3)] {
        let lab = Lab::new(block, Some(kind));
        let tags = PiTags { app_tag: 0x00a5, app_mask: 0xffff, ref_tag: (kind == 3).then_some(77) };
        let disk = lab.disk(tags);
        let data = pattern(1, 16 * block as usize);
        disk.write(0, &data).unwrap();
        let mut back = vec![0xee; data.len()];
        // On the medium: the target's check finds it.
        lab.flip_medium(5);
        let found = failed(disk.read(0, &mut back));
        assert_eq!((found.field, found.lba, found.place), (PiField::Guard, Some(5), PiPlace::OnTheMedium));
        assert_eq!(failed(disk.verify(0, data.len() as u64)).lba, Some(5));
        lab.flip_medium(5);
        // Another application tag: the target knows the expected one only in type 2.
        let good = lab.record(7).tuple();
        lab.put_record(7, Tuple { app_tag: 0x00a4, ..good });
        let found = failed(disk.read(0, &mut back));
        let place = if kind == 2 { PiPlace::OnTheMedium } else { PiPlace::OnTheWayToHere };
        assert_eq!((found.field, found.lba, found.place), (PiField::AppTag, Some(7), place));
        // This mask leaves the changed bit unchecked.
        let lax = disk.protected(PiTags { app_mask: 0xfffe, ..tags }).unwrap();
        lax.read(0, &mut back).unwrap();
        // Another reference tag.
        lab.put_record(7, Tuple { ref_tag: good.ref_tag ^ 1, ..good });
        let found = failed(disk.read(0, &mut back));
        let place = if kind == 3 { PiPlace::OnTheWayToHere } else { PiPlace::OnTheMedium };
        assert_eq!((found.field, found.lba, found.place), (PiField::RefTag, Some(7), place));
        lab.put_record(7, good);
        disk.read(0, &mut back).unwrap();
        assert!(back == data);
        let counted = disk.session().info().unwrap().protection;
        assert_eq!((counted.guard, counted.app_tag, counted.ref_tag), (2, 1, 1));
        let text = found.to_string();
        assert!(text.contains("reference tag of block 7") && text.contains(&place.to_string()), "{text}");
    }
}

// covers: PI-17
#[test]
fn pi_17_data_damaged_on_the_way_are_found_by_the_other_end() {
    let lab = Lab::new(512, Some(1));
    let disk = lab.disk(PiTags::default());
    let protection = disk.protection().unwrap();
    let data = pattern(2, 8 * 512);
    // A fault between generating the tuples and the digest: the digest covers the damaged bytes.
    let mut sent = protection.write_data(40, &data, BytesMut::zeroed(8 * 520), None).to_vec();
    sent[3 * 520 + 9] ^= 1;
    let damaged = WriteData::copy_from(&sent, BytesMut::zeroed(sent.len()), Some(8192));
    let found = failed(disk.submit(&protection.write_cdb(40, 8), 0, damaged).wait());
    assert_eq!((found.field, found.lba), (PiField::Guard, Some(43)));
    assert_eq!(found.place, PiPlace::OnTheWayToTheTarget);
    // And between the digest and our check.
    disk.write(40 * 512, &data).unwrap();
    let arrived = disk.submit(&protection.read_cdb(40, 8), 8 * 520, WriteData::default()).wait().unwrap();
    let mut wire = arrived.to_vec();
    let mut back = vec![0; data.len()];
    assert_eq!(protection.take_data(40, &[&wire[..]], &mut back), Ok(Checked { blocks: 8, unchecked: 0 }));
    assert!(back == data);
    wire[6 * 520 + 511] ^= 0x80;
    let found = protection.take_data(40, &[&wire[..77], &wire[77..]], &mut back).unwrap_err();
    assert_eq!((found.field, found.lba, found.place), (PiField::Guard, Some(46), PiPlace::OnTheWayToHere));
    assert!(back[6 * 512..7 * 512].iter().all(|&byte| byte == 0), "nothing of it is shown");
    // Checked as it arrives, in pieces of any length.
    for cut in [1, 77, 520, 700, 8 * 520] {
        let mut arrival = protection.arrival(40);
        for found in [None, Some((46, 6))] {
            arrival.restart(40);
            wire[6 * 520 + 511] ^= 0x80;
            let taken = wire.chunks(cut).try_for_each(|piece| arrival.take(piece));
            assert_eq!(taken.err().and_then(|failure| failure.lba), found.map(|(lba, _)| lba), "{cut}");
            let blocks = found.map_or(8, |(_, before)| before);
            assert_eq!(arrival.checked(), Checked { blocks, unchecked: 0 });
        }
    }
    assert_eq!(disk.session().info().unwrap().protection.guard, 7);
}

// covers: PI-17 DIG-15
#[test]
fn pi_17_blocks_get_their_tuples_when_they_are_sent_wherever_pdus_end() {
    let tags = PiTags { app_tag: 0xbeef, app_mask: 0xffff, ref_tag: None };
    for block in [512, 4096] {
        let lab = Lab::new(block, Some(1));
        let disk = lab.disk(tags);
        let protection = disk.protection().unwrap();
        let data = Bytes::from(pattern(9, 3 << 20));
        disk.write_bytes(1 << 20, &data).unwrap();
        let mut medium = vec![0; data.len()];
        lab.data.read(1 << 20, &mut medium).unwrap();
        assert!(medium == data);
        disk.read(1 << 20, &mut medium).unwrap();
        let info = disk.session().info().unwrap();
        assert!(disk.digest_runs().is_some() && info.losses == 0 && info.data_digest_errors == 0);
        assert_eq!(lab.record((4 << 20) / u64::from(block) - 1).tuple().app_tag, 0xbeef);
        // The same bytes as when everything is assembled at once.
        let (few, slabs) = (data.slice(..5 * block as usize), engine::SlabRing::new(1 << 16, 4));
        let space = BytesMut::zeroed(protection.wire_bytes(5));
        let at_once = protection.write_data(40, &few, space, None).to_vec();
        assert_eq!(protection.write_bytes(40, few, slabs, true).to_vec(), at_once);
    }
}

// covers: PI-17
#[test]
fn pi_17_tuples_that_turn_checks_off_are_told_and_the_rest_is_checked() {
    let lab = Lab::new(512, Some(1));
    let disk = lab.disk(PiTags { app_tag: 1, app_mask: 0xffff, ref_tag: None });
    disk.write(512, &pattern(3, 512)).unwrap();
    let (mut data, mut tuples) = (vec![0; 3 * 512], vec![0; 24]);
    let read = disk.read_host(
        0,
        HostBuffersMut {
            data: &mut [IoSliceMut::new(&mut data)],
            tuples: &mut [IoSliceMut::new(&mut tuples)],
            guard: Guard::Crc16,
        },
    );
    assert_eq!(read.unwrap(), Checked { blocks: 3, unchecked: 2 }, "two were never written");
    assert_eq!((tuples[..8].to_vec(), tuples[16..].to_vec()), (vec![0xff; 8], vec![0xff; 8]));
    // The caller's own escape tuple is sent unchanged, wrong guard and all.
    let escape = Tuple { guard: 0x1111, app_tag: 0xffff, ref_tag: 9 }.to_bytes();
    let from = HostBuffers {
        data: &[IoSlice::new(&data[512..1024])],
        tuples: &[IoSlice::new(&escape)],
        guard: Guard::Crc16,
    };
    disk.write_host(0, from).unwrap();
    assert_eq!(lab.record(0).tuple().to_bytes(), escape);
    let mut back = vec![0; 512];
    disk.read(0, &mut back).unwrap();
    assert!(back == data[512..1024]);
}

// covers: PI-17
#[test]
fn pi_17_zeroes_and_comparisons_have_tuples_too() {
    for kind in 1..=3 {
        let lab = Lab::new(512, Some(kind));
        let disk =
            lab.disk(PiTags { app_tag: 5, app_mask: if kind == 2 { 0 } else { 0xffff }, ref_tag: None });
        let (old, new) = (pattern(4, 1024), pattern(5, 1024));
        disk.write(1024, &old).unwrap();
        assert!(matches!(disk.compare_and_write(1024, &new, &old), Err(IoError::Miscompare { offset: 0 })));
        disk.compare_and_write(1024, &old, &new).unwrap();
        let mut back = vec![0; 1024];
        disk.read(1024, &mut back).unwrap();
        assert!(back == new);
        // The same for blocks that were never written, and for blocks to which another writer gave another
        // tag.
        disk.compare_and_write(8192, &[0; 512], &new[..512]).unwrap();
        disk.write_zeroes(1024, 1024).unwrap();
        disk.read(1024, &mut back).unwrap();
        assert!(back.iter().all(|&byte| byte == 0));
        disk.unmap(8192, 512).unwrap();
        disk.read(8192, &mut back[..512]).unwrap();
        if kind == 2 {
            let tagged = disk.protected(PiTags { app_tag: 5, app_mask: 1, ref_tag: None }).unwrap();
            let refused = tagged.compare_and_write(8192, &[0; 512], &new[..512]).unwrap_err();
            assert!(refused.to_string().contains("leave out app_tag"), "{refused}");
        }
        assert_eq!(disk.session().info().unwrap().protection.total(), 0);
    }
}

// covers: PI-17
#[test]
fn pi_17_a_unit_without_protection_information_is_refused_with_the_remedy() {
    for (kind, remedy) in [(None, "serve --lun"), (Some(0), "FORMAT UNIT")] {
        let lab = Lab::new(512, kind);
        let address = lab.server.as_ref().unwrap().portals()[0];
        let url = IscsiUrl::parse(&format!("iscsi://{address}/{TARGET}/0?pi=1")).unwrap();
        match lab.open(url.options().unwrap()).unwrap_err() {
            IoError::Request(what) => {
                assert!(what.contains("leave out pi=1") && what.contains(remedy), "{what}")
            }
            other => panic!("{other}"),
        }
        // Without protection everything works as before.
        let disk = lab.open(lab.options(None)).unwrap();
        assert_eq!(disk.info().protection.kind, ProtectionType::None);
        disk.write(0, &pattern(6, 512)).unwrap();
        let from = HostBuffers { data: &[], tuples: &[], guard: Guard::Crc16 };
        assert!(
            matches!(disk.write_host(0, from), Err(IoError::Request(what)) if what.contains("protected"))
        );
    }
    let lab = Lab::new(512, Some(1));
    for tags in
        [PiTags { app_tag: 0xffff, ..PiTags::default() }, PiTags { ref_tag: Some(1), ..PiTags::default() }]
    {
        assert!(matches!(lab.open(lab.options(Some(tags))), Err(IoError::Request(_))));
    }
}

/// Splits `bytes` into pieces of awkward lengths.
fn cut(bytes: &[u8]) -> Vec<IoSlice<'_>> {
    let mut pieces = Vec::new();
    let (mut rest, mut n) = (bytes, 1);
    while !rest.is_empty() {
        let (piece, later) = rest.split_at(rest.len().min(n % 1501));
        pieces.push(IoSlice::new(piece));
        (rest, n) = (later, n * 3 % 9973 + 1);
    }
    pieces
}

fn cut_mut(bytes: &mut [u8]) -> Vec<IoSliceMut<'_>> {
    let mut pieces = Vec::new();
    let (mut rest, mut n) = (bytes, 2);
    while !rest.is_empty() {
        let (piece, later) = rest.split_at_mut(rest.len().min(n % 1703));
        pieces.push(IoSliceMut::new(piece));
        (rest, n) = (later, n * 3 % 9973 + 1);
    }
    pieces
}

// covers: DIX-01 DIX-04
#[test]
fn dix_01_both_guards_leave_the_same_on_the_medium_whatever_the_pieces_are() {
    for (block, kind) in [(512, 1), (4096, 1), (512, 2), (512, 3)] {
        let lab = Lab::new(block, Some(kind));
        let disk = lab.disk(PiTags { app_tag: 0x77, app_mask: 0xffff, ref_tag: None });
        let (protection, block) = (disk.protection().unwrap(), block as usize);
        let data = pattern(7, 75 * block);
        let mut media = Vec::new();
        for guard in [Guard::Crc16, Guard::IpChecksum] {
            let tuples: Vec<u8> =
                protection.tuples(3, &data, guard).iter().flat_map(|tuple| tuple.to_bytes()).collect();
            disk.write_host(3, HostBuffers { data: &cut(&data), tuples: &cut(&tuples), guard }).unwrap();
            media.push((3..78).map(|lba| lab.record(lba)).collect::<Vec<_>>());
            let (mut back, mut back_tuples) = (vec![0; data.len()], vec![0; tuples.len()]);
            let to = HostBuffersMut {
                data: &mut cut_mut(&mut back),
                tuples: &mut cut_mut(&mut back_tuples),
                guard,
            };
            assert_eq!(disk.read_host(3, to).unwrap(), Checked { blocks: 75, unchecked: 0 });
            assert!(back == data && back_tuples == tuples, "{guard:?}");
        }
        assert_eq!(media[0], media[1]);
        let mut medium = vec![0; data.len()];
        lab.data.read(3 * block as u64, &mut medium).unwrap();
        assert!(medium == data);
    }
}

// covers: DIX-02
#[test]
fn dix_02_no_stage_of_a_conversion_is_without_a_check() {
    let lab = Lab::new(512, Some(1));
    let disk = lab.disk(PiTags::default());
    let protection = disk.protection().unwrap();
    let data = pattern(8, 8 * 512);
    for guard in [Guard::Crc16, Guard::IpChecksum] {
        let tuples: Vec<u8> =
            protection.tuples(0, &data, guard).iter().flat_map(|tuple| tuple.to_bytes()).collect();
        // After the caller computed its guards, before the copy: the caller's own guard finds it, and nothing
        // is sent.
        let mut spoiled = data.clone();
        spoiled[4 * 512 + 1] ^= 4;
        let from = HostBuffers { data: &[IoSlice::new(&spoiled)], tuples: &[IoSlice::new(&tuples)], guard };
        let found = failed(disk.write_host(0, from));
        assert_eq!((found.field, found.lba, found.place), (PiField::Guard, Some(4), PiPlace::BeforeSending));
        assert_eq!(lab.record(4), Record::Unwritten);
        // After the copy: its CRC finds it, at the target.
        let from = HostBuffers { data: &[IoSlice::new(&data)], tuples: &[IoSlice::new(&tuples)], guard };
        let made = protection.write_host(0, from, BytesMut::zeroed(8 * 520), None).unwrap();
        let mut sent = made.to_vec();
        sent[4 * 520 + 1] ^= 4;
        let damaged = WriteData::copy_from(&sent, BytesMut::zeroed(sent.len()), Some(8192));
        let found = failed(disk.submit(&protection.write_cdb(0, 8), 0, damaged).wait());
        assert_eq!((found.field, found.place), (PiField::Guard, PiPlace::OnTheWayToTheTarget));
        // The way back: the CRC finds data that arrived damaged, before its checksum is used.
        let wire = made.to_vec();
        let (mut back, mut back_tuples) = (vec![0; data.len()], vec![0; tuples.len()]);
        let mut take = |wire: &[u8]| {
            let to = HostBuffersMut {
                data: &mut [IoSliceMut::new(&mut back)],
                tuples: &mut [IoSliceMut::new(&mut back_tuples)],
                guard,
            };
            protection.take_host(0, &[wire], to)
        };
        assert_eq!(take(&sent).unwrap_err().lba, Some(4));
        take(&wire).unwrap();
        // A later change in the caller's memory is found by the guard that was returned to the caller.
        back[4 * 512 + 1] ^= 4;
        let given = Tuple::from_bytes(*back_tuples[32..].first_chunk().unwrap()).guard;
        assert_ne!(guards(guard, &back[4 * 512..5 * 512], 512)[0], given);
    }
}

// covers: DIX-03
#[test]
fn dix_03_what_the_sum_does_not_see_the_crc_does() {
    let lab = Lab::new(512, Some(1));
    let disk = lab.disk(PiTags::default());
    let protection = disk.protection().unwrap();
    let mut data = pattern(9, 512);
    (data[10], data[11]) = (0, 0);
    let blind: [fn(&mut [u8]); 2] = [
        |block| block.swap_with_slice(&mut [&block[2..4], &block[..2], &block[4..]].concat()),
        |block| block[10..12].fill(0xff),
    ];
    for damage in blind {
        let mut spoiled = data.clone();
        damage(&mut spoiled);
        assert_ne!(spoiled, data);
        for (guard, finds) in [(Guard::IpChecksum, false), (Guard::Crc16, true)] {
            let tuple = protection.tuples(0, &data, guard)[0].to_bytes();
            let from =
                HostBuffers { data: &[IoSlice::new(&spoiled)], tuples: &[IoSlice::new(&tuple)], guard };
            assert_eq!(disk.write_host(0, from).is_err(), finds, "{guard:?}");
        }
    }
}
