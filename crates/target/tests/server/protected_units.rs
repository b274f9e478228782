//! Units with protection information next to others: copies between them, wrappers around their stores, and growing.

use std::sync::Arc;
use std::time::Duration;

use blockstore::{
    BlockStore, DelayStore, Durability, FaultStore, ProtectedStore, RamStore, Record, StatsStore,
};
use conform::{Command, Session};
use integrity::crc16_t10dif;
use integrity::t10::Tuple;
use iscsi_core::wire::Lun;
use target::config::LunConfig;

use crate::support::*;

const BLOCKS: u64 = 8;

/// Units of all types in one target: LUN 0 has no room for protection information, LUNs 1 to 3 have types 1 to 3, LUN 4 is
/// another one of type 1.
struct Shelf {
    session: Session,
    media: Vec<Arc<RamStore>>,
    stores: Vec<Arc<dyn BlockStore>>,
    names: Vec<Vec<u8>>,
    _lab: Lab,
}

const KINDS: [Option<u8>; 5] = [None, Some(1), Some(2), Some(3), Some(1)];

fn protect(data: Arc<dyn BlockStore>, kind: u8) -> Arc<dyn BlockStore> {
    let side = RamStore::new(ProtectedStore::side_bytes(&data.geometry()).unwrap(), 4096).unwrap();
    Arc::new(ProtectedStore::new(data, Arc::new(side), kind).unwrap())
}

impl Shelf {
    fn new() -> Self {
        let media: Vec<_> = KINDS.iter().map(|_| Arc::new(RamStore::new(1 << 20, BLOCK).unwrap())).collect();
        let stores: Vec<Arc<dyn BlockStore>> = KINDS
            .iter()
            .zip(&media)
            .map(|(kind, data)| match kind {
                Some(kind) => protect(Arc::clone(data) as Arc<dyn BlockStore>, *kind),
                None => Arc::clone(data) as Arc<dyn BlockStore>,
            })
            .collect();
        let mut config = config();
        config.targets[0].luns = (0..5).map(ram).collect();
        let open = stores.clone();
        let lab = Lab::with_open(config, move |lun| Ok(Arc::clone(&open[usize::from(lun.number)])));
        let mut session = lab.session("a");
        let mut names = Vec::new();
        for lun in 0..5 {
            session.lun = Lun::from_index(lun);
            session.clear_unit_attentions().unwrap();
            let page = session.run_good(&Command::read([0x12, 1, 0x83, 0, 252, 0], 252)).unwrap().data;
            assert_eq!(page[5] & 0xf, 3, "the name comes first");
            names.push(page[8..8 + usize::from(page[7])].to_vec());
        }
        Self { session, media, stores, names, _lab: lab }
    }

    fn at(&mut self, lun: usize) -> &mut Session {
        self.session.lun = Lun::from_index(lun as u16);
        &mut self.session
    }

    fn medium(&self, lun: usize, lba: u64) -> Vec<u8> {
        let mut data = vec![0; (BLOCKS * u64::from(BLOCK)) as usize];
        self.media[lun].read(lba * u64::from(BLOCK), &mut data).unwrap();
        data
    }

    fn flip(&self, lun: usize, lba: u64) {
        let mut data = self.medium(lun, lba);
        data[77] ^= 2;
        self.media[lun].write(lba * u64::from(BLOCK), &[&data], Durability::Cached).unwrap();
    }

    /// Checks that the blocks hold `data`, each with the tuple that a unit of its type makes, except for the application tag.
    fn holds(&mut self, lun: usize, lba: u64, data: &[u8], app_tag: u16) {
        assert!(self.medium(lun, lba) == data, "LUN {lun}");
        if let (Some(records), Some(kind)) = (self.stores[lun].records(), KINDS[lun]) {
            let found = records.read(lba, BLOCKS as usize).unwrap();
            for ((found, block), lba) in found.iter().zip(data.chunks(BLOCK as usize)).zip(lba..) {
                let ref_tag = if kind == 3 { 0 } else { lba as u32 };
                let made = Tuple { guard: crc16_t10dif(block), app_tag, ref_tag };
                assert_eq!(found, Record::Guarded(made), "LUN {lun}");
            }
        }
        self.at(lun).run_good(&Command::none(sixteen(0x8f, 0, lba, BLOCKS as u32))).unwrap();
    }

    /// EXTENDED COPY (LID1) of [`BLOCKS`] blocks, block to block.
    fn copy(&mut self, from: usize, to: usize, lba: u64) -> Option<(u8, u8, u8)> {
        self.copy_to((from, lba), (to, lba))
    }

    fn copy_to(
        &mut self,
        (from, from_lba): (usize, u64),
        (to, to_lba): (usize, u64),
    ) -> Option<(u8, u8, u8)> {
        let mut list = vec![1, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0];
        for lun in [from, to] {
            let mut cscd = vec![0xe4, 0, 0, 0, 1, 3, 0, self.names[lun].len() as u8];
            cscd.extend(&self.names[lun]);
            cscd.resize(28, 0);
            cscd.extend(BLOCK.to_be_bytes());
            list.extend(cscd);
        }
        list.extend([0x02, 0, 0, 0x18, 0, 0, 0, 1, 0, 0, 0, BLOCKS as u8]);
        list.extend(from_lba.to_be_bytes());
        list.extend(to_lba.to_be_bytes());
        let cdb = third_party(0x83, 0x00, 0, list.len());
        sense(&self.at(to).run(&Command::write(cdb, list)).unwrap())
    }

    /// The same with a token.
    fn copy_by_token(&mut self, from: usize, to: usize, lba: u64) -> Option<(u8, u8, u8)> {
        let mut range = vec![0, 16];
        range.extend(lba.to_be_bytes());
        range.extend((BLOCKS as u32).to_be_bytes());
        range.extend([0; 4]);
        let mut list = vec![0, 30, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        list.extend(&range);
        let cdb = third_party(0x83, 0x10, 42, list.len());
        self.at(from).run_good(&Command::write(cdb, list)).unwrap();
        let mut cdb = vec![0; 16];
        (cdb[0], cdb[1], cdb[5], cdb[12]) = (0x84, 7, 42, 0x10);
        let results = self.at(from).run_good(&Command::read(cdb, 0x1000)).unwrap().data;
        let at = 32 + usize::from(results[13]) + 6;
        let mut list = vec![0; 16];
        list.extend(&results[at..at + 512]);
        list.extend([0; 6]);
        list.extend(&range);
        let length = (list.len() - 2) as u16;
        list[..2].copy_from_slice(&length.to_be_bytes());
        let cdb = third_party(0x83, 0x11, 43, list.len());
        sense(&self.at(to).run(&Command::write(cdb, list)).unwrap())
    }
}

fn sixteen(opcode: u8, flags: u8, lba: u64, blocks: u32) -> Vec<u8> {
    let mut cdb = vec![opcode, flags];
    cdb.extend(lba.to_be_bytes());
    cdb.extend(blocks.to_be_bytes());
    cdb.extend([0, 0]);
    cdb
}

fn third_party(opcode: u8, service_action: u8, list_id: u32, bytes: usize) -> Vec<u8> {
    let mut cdb = vec![0; 16];
    (cdb[0], cdb[1]) = (opcode, service_action);
    cdb[6..10].copy_from_slice(&list_id.to_be_bytes());
    cdb[10..14].copy_from_slice(&(bytes as u32).to_be_bytes());
    cdb
}

fn pattern(seed: u64) -> Vec<u8> {
    (0..BLOCKS * u64::from(BLOCK)).map(|at| (at * 13 + at / 512 + seed * 101) as u8 | 1).collect()
}

const HOSTS_APP_TAG: u16 = 0x0102;

/// Blocks from `lba` on, each with a tuple from a host that sets an application tag.
fn sealed(lba: u64, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for (block, lba) in data.chunks(BLOCK as usize).zip(lba..) {
        out.extend(block);
        out.extend(
            Tuple { guard: crc16_t10dif(block), app_tag: HOSTS_APP_TAG, ref_tag: lba as u32 }.to_bytes(),
        );
    }
    out
}

// covers: PI-13 CPY-01 ODX-01
#[test]
fn pi_13_copies_between_units_of_any_type_have_tuples_and_never_of_bad_data() {
    let mut shelf = Shelf::new();
    for (from, kind) in KINDS.into_iter().enumerate() {
        for (to, other) in KINDS.into_iter().enumerate() {
            for by_token in [false, true] {
                let seed = ((from * 5 + to) * 2 + usize::from(by_token)) as u64;
                let (lba, data) = (seed * 16, pattern(seed));
                match kind {
                    Some(1) => {
                        let out = sealed(lba, &data);
                        let cdb = sixteen(0x8a, 0x20, lba, BLOCKS as u32);
                        shelf.at(from).run_good(&Command::write(cdb, out)).unwrap();
                    }
                    _ => {
                        let write = Command::write_16(lba, data.clone(), BLOCK);
                        shelf.at(from).run_good(&write).unwrap();
                    }
                }
                let copy = if by_token { Shelf::copy_by_token } else { Shelf::copy };
                if from == to {
                    continue;
                }
                assert_eq!(copy(&mut shelf, from, to, lba), None, "{from} to {to}");
                let app_tag = if kind == Some(1) && other == kind { HOSTS_APP_TAG } else { 0 };
                shelf.holds(to, lba, &data, app_tag);
                // Blocks that were never written have no tuple to copy; their copy has one.
                assert_eq!(copy(&mut shelf, from, to, lba + 8), None);
                shelf.holds(to, lba + 8, &vec![0; data.len()], 0);
                // Damage at the source is not copied if it can be detected.
                shelf.flip(from, lba);
                let before = pattern(seed + 1);
                shelf.at(to).run_good(&Command::write_16(lba, before.clone(), BLOCK)).unwrap();
                let copied = copy(&mut shelf, from, to, lba);
                if kind.is_some() {
                    assert_eq!(copied, Some((0xa, 0x0d, 0x01)), "{from} to {to}");
                    shelf.holds(to, lba, &before, 0);
                } else {
                    assert_eq!(copied, None, "protection begins where there is some");
                    let medium = shelf.medium(from, lba);
                    shelf.holds(to, lba, &medium, 0);
                }
            }
        }
    }
}

// covers: PI-13 CPY-03
#[test]
fn pi_13_between_units_formatted_alike_blocks_take_their_tuples_along() {
    let mut shelf = Shelf::new();
    // Reference tags chosen by a host in types 2 and 3, and the address in type 1.
    for (from, to, first_ref_tag) in [(1, 4, 40), (2, 2, 0xffff_fffe), (3, 3, 77)] {
        let kind = KINDS[from];
        let mut data = pattern(from as u64);
        data[7 * BLOCK as usize..].fill(0);
        let ref_tag =
            |first: u32, n: usize| if kind == Some(3) { first } else { first.wrapping_add(n as u32) };
        let escape = Tuple { guard: 0x1234, app_tag: 0xffff, ref_tag: 0xffff_ffff };
        let records = |first: u32| -> Vec<Record> {
            let blocks = data.chunks(BLOCK as usize).enumerate();
            let record = |(n, block): (usize, &[u8])| match n {
                6 => Record::Unchecked(escape, integrity::crc32c(block)),
                n => {
                    let (guard, ref_tag) = (crc16_t10dif(block), ref_tag(first, n));
                    Record::Guarded(Tuple { guard, app_tag: HOSTS_APP_TAG, ref_tag })
                }
            };
            blocks.map(record).collect()
        };
        let mut before = records(first_ref_tag);
        before[7] = Record::Unwritten;
        shelf.media[from].write(40 * u64::from(BLOCK), &[&data], Durability::Cached).unwrap();
        let kept = shelf.stores[from].records().unwrap();
        kept.write(40, &before.iter().copied().collect(), Durability::Cached).unwrap();
        assert_eq!(shelf.copy_to((from, 40), (to, 200)), None, "{kind:?}");
        assert!(shelf.medium(to, 200) == data);
        let there: Vec<Record> = shelf.stores[to].records().unwrap().read(200, 8).unwrap().iter().collect();
        let expected = records(first_ref_tag.wrapping_add(160 * u32::from(kind != Some(3))));
        assert_eq!(there[..7], expected[..7], "{kind:?}");
        let made_ref_tag = if kind == Some(3) { 0 } else { 207 };
        let made = Tuple { guard: 0, app_tag: 0, ref_tag: made_ref_tag };
        assert_eq!(there[7], Record::Guarded(made), "what was never written had none");
        // A block whose tuple does not match is not copied, whichever part is damaged.
        for damaged in [0, 6, 7] {
            let mut medium = data.clone();
            medium[damaged * BLOCK as usize + 5] ^= 1;
            shelf.media[from].write(40 * u64::from(BLOCK), &[&medium], Durability::Cached).unwrap();
            assert_eq!(shelf.copy_to((from, 40), (to, 300)), Some((0xa, 0x0d, 0x01)), "{kind:?} {damaged}");
            assert!(shelf.medium(to, 300).iter().all(|&byte| byte == 0));
        }
    }
}

// covers: PI-01 PI-16
#[test]
fn pi_16_wrappers_around_a_store_hide_no_protection_information() {
    let data = Arc::new(RamStore::new(1 << 20, BLOCK).unwrap());
    let protected = protect(Arc::clone(&data) as Arc<dyn BlockStore>, 1);
    let (delayed, _gate) = DelayStore::new(StatsStore::new(Arc::clone(&protected)), Duration::ZERO);
    let (store, _faults) = FaultStore::new(delayed);
    let lab = Lab::with_store(config(), 0, Arc::new(store));
    let mut session = lab.session("a");
    let capacity = session.run_good(&Command::read(sixteen(0x9e, 0x10, 0, 32), 32)).unwrap().data;
    assert_eq!(capacity[12], 1, "type 1, in use");
    let out = sealed(40, &pattern(1));
    session.run_good(&Command::write(sixteen(0x8a, 0x20, 40, BLOCKS as u32), out.clone())).unwrap();
    let read = Command::read(sixteen(0x88, 0x20, 40, BLOCKS as u32), out.len() as u32);
    assert!(session.run_good(&read).unwrap().data == out);
    let mut block = vec![0; 512];
    data.read(41 * 512, &mut block).unwrap();
    block[0] ^= 1;
    data.write(41 * 512, &[&block], Durability::Cached).unwrap();
    assert_eq!(sense(&session.run(&read).unwrap()), Some((0xb, 0x10, 1)));
    let format = Command::write([0x04, 0xd0, 0, 0, 0, 0], [0, 0, 0, 0]);
    session.run_good(&format).unwrap();
    assert_eq!(protected.records().unwrap().format().kind, 2);
}

// covers: PI-15 PI-16
#[test]
fn pi_15_a_unit_that_grows_keeps_its_tuples_and_new_blocks_have_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let unit = |size: &str| {
        let mut config = config();
        let store = format!("file:{},size={size},pi=1", path.display()).parse().unwrap();
        config.targets[0].luns = vec![LunConfig::new(0, store)];
        config
    };
    let (last, data) = (2048 - BLOCKS, pattern(3));
    let write = |lba| Command::write(sixteen(0x8a, 0x20, lba, BLOCKS as u32), sealed(lba, &data));
    let read = |lba| Command::read(sixteen(0x88, 0x20, lba, BLOCKS as u32), BLOCKS as u32 * 520);
    let lab = Lab::start(unit("1M"));
    let mut session = lab.session("a");
    session.run_good(&write(last)).unwrap();
    assert_eq!(sense(&session.run(&read(last + 1)).unwrap()), Some((5, 0x21, 0)));
    lab.server.apply(unit("3M")).unwrap();
    session.clear_unit_attentions().unwrap();
    let grown = |session: &mut Session| {
        assert!(session.run_good(&read(last)).unwrap().data == sealed(last, &data));
        let beyond = session.run_good(&read(2048)).unwrap().data;
        assert!(beyond.chunks(520).all(|b| b[..512].iter().all(|&b| b == 0) && b[512..] == [0xff; 8]));
    };
    grown(&mut session);
    session.run_good(&write(6144 - BLOCKS)).unwrap();
    // And after a restart.
    drop((session, lab));
    let lab = Lab::start(unit("3M"));
    let mut session = lab.session("a");
    grown(&mut session);
    let end = 6144 - BLOCKS;
    assert!(session.run_good(&read(end)).unwrap().data == sealed(end, &data));
}
