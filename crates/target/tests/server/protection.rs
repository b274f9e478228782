//! Protection information from the wire to the store and back, and the detection of corruption on the way.

use std::sync::Arc;

use blockstore::{BlockStore, Durability, Format, ProtectedStore, RamStore, Record};
use conform::{Command, Session};
use integrity::crc16_t10dif;
use integrity::t10::Tuple;

use crate::support::*;

/// A unit whose data and records a test can access directly, bypassing the server.
struct Disk {
    lab: Lab,
    data: Arc<RamStore>,
    store: Arc<ProtectedStore>,
    block: usize,
}

fn disk(block: u32, kind: u8) -> Disk {
    let data = Arc::new(RamStore::new(4 << 20, block).unwrap());
    let side = RamStore::new(ProtectedStore::side_bytes(&data.geometry()).unwrap(), 4096).unwrap();
    let under = Arc::clone(&data) as Arc<dyn BlockStore>;
    let store = Arc::new(ProtectedStore::new(under, Arc::new(side), kind).unwrap());
    let lab = Lab::with_store(config(), 0, Arc::clone(&store) as Arc<dyn BlockStore>);
    Disk { lab, data, store, block: block as usize }
}

impl Disk {
    fn flip(&self, lba: u64, byte: u64) {
        let at = lba * self.block as u64;
        let mut block = vec![0; self.block];
        self.data.read(at, &mut block).unwrap();
        block[byte as usize] ^= 0x10;
        self.data.write(at, &[&block], Durability::Cached).unwrap();
    }
}

fn sealed(block: usize, lba: u64, blocks: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for i in 0..blocks {
        let data: Vec<u8> = (0..block).map(|at| (at * 13 + i * 7) as u8 | 1).collect();
        let tuple = Tuple { guard: crc16_t10dif(&data), app_tag: 0x0102, ref_tag: lba as u32 + i as u32 };
        out.extend(data);
        out.extend(tuple.to_bytes());
    }
    out
}

fn sixteen(opcode: u8, flags: u8, lba: u64, blocks: u32) -> Vec<u8> {
    let mut cdb = vec![opcode, flags];
    cdb.extend(lba.to_be_bytes());
    cdb.extend(blocks.to_be_bytes());
    cdb.extend([0, 0]);
    cdb
}

/// Key, code, qualifier and INFORMATION.
fn failure(session: &mut Session, command: &Command) -> (u8, u8, u8, u32) {
    let outcome = session.run(command).unwrap();
    let (key, asc, ascq) = sense(&outcome).expect("it fails");
    let information = u32::from_be_bytes(outcome.sense[3..7].try_into().unwrap());
    (key, asc, ascq, information)
}

fn write_sealed(session: &mut Session, lba: u64, out: &[u8], blocks: u32) {
    session.run_good(&Command::write(sixteen(0x8a, 0x20, lba, blocks), out)).unwrap();
}

fn read_sealed(lba: u64, blocks: u32, block: usize) -> Command {
    Command::read(sixteen(0x88, 0x20, lba, blocks), blocks * (block as u32 + 8))
}

// covers: PI-11 PI-16
#[test]
fn pi_11_tuples_are_split_anywhere_and_come_back_as_they_went() {
    for block in [512usize, 4096] {
        let disk = disk(block as u32, 1);
        for segment in ["512", "516", "520", "4104", "8192"] {
            let script = disk.lab.script("a").key("DataDigest", "CRC32C");
            let mut session = disk.lab.login(&script.key("MaxRecvDataSegmentLength", segment));
            session.clear_unit_attentions().unwrap();
            let out = sealed(block, 40, 9);
            write_sealed(&mut session, 40, &out, 9);
            let back = session.run_good(&read_sealed(40, 9, block)).unwrap();
            assert!(back.data == out, "{block} {segment}");
            assert_eq!(back.residual_count, 0);
            // Without tuples, only the data.
            let plain = session.run_good(&Command::read_16(40, 9, block as u32)).unwrap().data;
            assert!(plain.chunks(block).zip(out.chunks(block + 8)).all(|(a, b)| a == &b[..block]));
        }
    }
}

// covers: PI-07 PI-09 PI-15 PI-16
#[test]
fn pi_16_a_bit_that_flips_is_found_at_every_stage() {
    for block in [512usize, 4096] {
        let disk = disk(block as u32, 1);
        let mut session = disk.lab.session("a");
        // Between the host and the unit: data, guard, reference tag.
        for (byte, ascq) in [(100, 1), (block + 1, 1), (block + 7, 3)] {
            let mut out = sealed(block, 8, 4);
            out[2 * (block + 8) + byte] ^= 1;
            let refused = failure(&mut session, &Command::write(sixteen(0x8a, 0x20, 8, 4), out));
            assert_eq!(refused, (0xb, 0x10, ascq, 10));
        }
        let untouched = session.run_good(&Command::read_16(8, 4, block as u32)).unwrap().data;
        assert!(untouched.iter().all(|&byte| byte == 0), "nothing of it is on the medium");
        // On the medium: blocks that arrived with tuples, and blocks whose tuples the target made.
        write_sealed(&mut session, 8, &sealed(block, 8, 4), 4);
        session.run_good(&Command::write_16(12, vec![7; block], block as u32)).unwrap();
        for lba in [9, 12] {
            disk.flip(lba, 17);
            for command in [read_sealed(8, 6, block), Command::read_16(8, 6, block as u32)] {
                assert_eq!(failure(&mut session, &command), (0xb, 0x10, 1, lba as u32));
            }
            let verify = Command::none(sixteen(0x8f, 0, 8, 6));
            assert_eq!(failure(&mut session, &verify), (0xb, 0x10, 1, lba as u32));
            // A host that wants to see the block anyway can read it.
            let raw = Command::read(sixteen(0x88, 0x60, lba, 1), block as u32 + 8);
            session.run_good(&raw).unwrap();
            disk.flip(lba, 17);
        }
        session.run_good(&read_sealed(8, 6, block)).unwrap();
        // A block that was written to the wrong place.
        let mut moved = vec![0; block];
        disk.data.read(8 * block as u64, &mut moved).unwrap();
        disk.data.write(20 * block as u64, &[&moved], Durability::Cached).unwrap();
        let record = disk.store.records().unwrap().read(8, 1).unwrap();
        disk.store.records().unwrap().write(20, &record, Durability::Cached).unwrap();
        assert_eq!(failure(&mut session, &read_sealed(20, 1, block)), (0xb, 0x10, 3, 20));
    }
}

#[test]
fn a_write_torn_between_data_and_tuple_is_found_whichever_came_first() {
    let disk = disk(512, 1);
    let mut session = disk.lab.session("a");
    let records = disk.store.records().unwrap();
    // A new block: its data reached the medium and its tuple did not. All bits of the tuple are ones, which would
    // disable the checks.
    disk.flip(3, 0);
    assert_eq!(failure(&mut session, &Command::read_16(3, 1, 512)), (0xb, 0x10, 1, 3));
    // Its tuple reached the medium and its data did not.
    let tuple = Tuple { guard: 0x1234, app_tag: 0, ref_tag: 4 };
    records.write(4, &[Record::Guarded(tuple)].into_iter().collect(), Durability::Cached).unwrap();
    assert_eq!(failure(&mut session, &Command::read_16(4, 1, 512)), (0xb, 0x10, 1, 4));
    // A block that its host does not want checked, and that a later write replaced only half.
    let mut out = sealed(512, 5, 1);
    out[514..516].fill(0xff);
    write_sealed(&mut session, 5, &out, 1);
    assert_eq!(session.run_good(&read_sealed(5, 1, 512)).unwrap().data, out);
    disk.flip(5, 0);
    assert_eq!(failure(&mut session, &Command::read_16(5, 1, 512)), (0xb, 0x10, 1, 5));
    // After they are written again, all is well.
    for lba in [3, 4, 5] {
        write_sealed(&mut session, lba, &sealed(512, lba, 1), 1);
    }
    session.run_good(&read_sealed(3, 3, 512)).unwrap();
}

// covers: PI-12 PI-13 PI-15
#[test]
fn pi_13_commands_that_look_and_write_keep_tuples_and_data_together() {
    let disk = disk(512, 1);
    let mut session = disk.lab.session("a");
    // WRITE SAME, with reference tags that count up.
    let one = sealed(512, 100, 1);
    session.run_good(&Command::write(sixteen(0x93, 0x20, 100, 5), one.clone())).unwrap();
    let same = session.run_good(&read_sealed(100, 5, 512)).unwrap().data;
    assert!(same.chunks(520).enumerate().all(|(i, b)| b[..516] == one[..516] && b[519] == 100 + i as u8));
    // VERIFY with BYTCHK 11b and 01b.
    session.run_good(&Command::write(sixteen(0x8f, 0x26, 100, 5), one.clone())).unwrap();
    session.run_good(&Command::write(sixteen(0x8f, 0x22, 100, 5), same.clone())).unwrap();
    let mut other = same.clone();
    other[520 + 515] ^= 1; // application tag of the second block
    let compared = failure(&mut session, &Command::write(sixteen(0x8f, 0x22, 100, 5), other));
    assert_eq!(compared, (0xe, 0x1d, 0, 101));
    // COMPARE AND WRITE.
    let mut caw = sixteen(0x89, 0x20, 100, 0);
    caw[13] = 1;
    let mut new = vec![9; 512];
    new.extend(Tuple { guard: crc16_t10dif(&[9; 512]), app_tag: 5, ref_tag: 100 }.to_bytes());
    let both = [&same[..520], &new[..]].concat();
    session.run_good(&Command::write(caw.clone(), both.clone())).unwrap();
    assert_eq!(sense(&session.run(&Command::write(caw, both)).unwrap()), Some((0xe, 0x1d, 0)));
    assert_eq!(session.run_good(&read_sealed(100, 1, 512)).unwrap().data, new);
    // ORWRITE: the guard of the result.
    let mut ones = vec![6; 512];
    ones.extend(Tuple { guard: crc16_t10dif(&[6; 512]), app_tag: 5, ref_tag: 100 }.to_bytes());
    session.run_good(&Command::write(sixteen(0x8b, 0x20, 100, 1), ones)).unwrap();
    let merged = session.run_good(&read_sealed(100, 1, 512)).unwrap().data;
    assert_eq!((merged[0], &merged[512..514]), (15, &crc16_t10dif(&[15; 512]).to_be_bytes()[..]));
    // WRITE AND VERIFY.
    session.run_good(&Command::write(sixteen(0x8e, 0x22, 101, 1), sealed(512, 101, 1))).unwrap();
    // UNMAP: zeros, and a tuple with all bits set.
    let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
    list.extend(100u64.to_be_bytes());
    list.extend([0, 0, 0, 4, 0, 0, 0, 0]);
    session.run_good(&Command::write([0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], list)).unwrap();
    let gone = session.run_good(&read_sealed(100, 4, 512)).unwrap().data;
    assert!(gone.chunks(520).all(|b| b[..512].iter().all(|&b| b == 0) && b[512..] == [0xff; 8]));
}

// covers: FMT-01 FMT-02 PI-14
#[test]
fn pi_14_a_format_is_remembered_by_the_store() {
    let disk = disk(512, 1);
    let mut session = disk.lab.session("a");
    write_sealed(&mut session, 0, &sealed(512, 0, 1), 1);
    session.run_good(&Command::write([0x04, 0xd0, 0, 0, 0, 0], [1, 0, 0, 0])).unwrap();
    let records = disk.store.records().unwrap();
    assert_eq!(records.format(), Format { kind: 3, interrupted: false });
    assert!(records.read(0, 1).unwrap().iter().eq([Record::Unwritten]));
    let capacity = session.run_good(&Command::read(sixteen(0x9e, 0x10, 0, 32), 32)).unwrap().data;
    assert_eq!(capacity[12], 5);
    // The power fails while the next one runs.
    records.remember(Format { kind: 3, interrupted: true }).unwrap();
    let Disk { lab, store, .. } = disk;
    drop((session, lab));
    let lab = Lab::with_store(config(), 0, store);
    let mut session = lab.session("a");
    assert_eq!(sense(&session.run(&read(0)).unwrap()), Some((3, 0x31, 0)));
    session.run_good(&Command::none([0x04, 0x80, 0, 0, 0, 0])).unwrap();
    session.run_good(&read(0)).unwrap();
}
