//! Power cuts and killed processes over all combinations of options, replayed below the stores.
//!
//! Each disk remembers what was written since its last flush. After a power cut every sector of that holds its new or an older
//! content; the call during which the power fails may leave any part of its data. A process that is killed loses only that call.
//! Then the volume is opened with the same or with other options, possibly losing power again on the way, and is checked: what was
//! flushed or written through is there; no older data has replaced newer data; a block with protection information is whole and has
//! the record that it was written with; a write that was reported as failed stays failed.
//!
//! `INTACT_POWER_CUTS` is the number of cuts to replay, `INTACT_POWER_SEED` the first seed: `cargo xtask powercut` sets them.

use std::collections::BTreeMap;
use std::sync::Arc;

use integrity::t10::Tuple;
use parking_lot::Mutex;

use crate::volume::{JOURNAL, LOG, RECORDS, SideFiles, assemble};
use crate::{
    BlockStore, Durability, Extent, FailedFlush, Geometry, InPlace, Label, MediumReads, Placement, Record,
    RecordRun, Records, StoreError, not_atomic, read_then_crc32c,
};

const SECTOR: usize = 512;
const BLOCKS: usize = 40;
/// Number of cuts in a run by default.
const CUTS: u64 = 1500;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % n
    }
}

/// A power supply that fails in the middle of a call.
struct Power {
    calls_left: Mutex<Option<usize>>,
    /// One in this many writes finds no space; 0: none does.
    full_one_in: Mutex<usize>,
    random: Mutex<Random>,
}

/// A disk that loses power: sectors that were not flushed may keep their old content.
struct Medium {
    now: Vec<u8>,
    stable: Vec<u8>,
    /// Sectors that were written since the last flush, with what they held after each write.
    loose: Vec<(usize, [u8; SECTOR])>,
}

#[derive(Clone)]
struct Disk {
    medium: Arc<Mutex<Medium>>,
    power: Arc<Power>,
    /// Even a single sector may be written in part.
    fragile: bool,
    block_bytes: u32,
    label: Arc<Label>,
    read_only: bool,
}

impl Disk {
    fn new(bytes: usize, block_bytes: u32, power: &Arc<Power>, fragile: bool) -> Self {
        let medium = Medium { now: vec![0; bytes], stable: vec![0; bytes], loose: Vec::new() };
        let label = Arc::new(Label::in_memory());
        Disk {
            medium: Arc::new(Mutex::new(medium)),
            power: Arc::clone(power),
            fragile,
            block_bytes,
            label,
            read_only: false,
        }
    }

    /// Fails now and then for lack of space, independently of the power.
    fn full(&self) -> bool {
        let one_in = *self.power.full_one_in.lock();
        one_in > 0 && self.power.random.lock().below(one_in) == 0
    }

    fn on(&self) -> Result<bool, StoreError> {
        let mut left = self.power.calls_left.lock();
        match &mut *left {
            Some(0) => Err(StoreError::Gone("the power".into())),
            Some(left) => {
                *left -= 1;
                Ok(*left > 0)
            }
            None => Ok(true),
        }
    }

    /// The power comes back; `lost`: the power failed, not just the process.
    fn restart(&self, lost: bool) {
        let medium = &mut *self.medium.lock();
        for (sector, bytes) in medium.loose.drain(..) {
            if !lost || self.power.random.lock().below(2) == 0 {
                medium.stable[sector * SECTOR..][..SECTOR].copy_from_slice(&bytes);
            }
        }
        medium.now = medium.stable.clone();
    }

    fn put(&self, offset: u64, bytes: &[u8], durability: Durability) -> Result<(), StoreError> {
        self.geometry().check_range(offset, bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let whole = self.on()?;
        let full = whole && self.full();
        let medium = &mut *self.medium.lock();
        let first = offset as usize / SECTOR;
        let last = (offset as usize + bytes.len()).div_ceil(SECTOR);
        let mut after = medium.now[first * SECTOR..last * SECTOR].to_vec();
        after[offset as usize - first * SECTOR..][..bytes.len()].copy_from_slice(bytes);
        for (sector, bytes) in (first..).zip(after.chunks_exact(SECTOR)) {
            // In the call during which the power fails, any outcome.
            let outcome = if whole && !full { 4 } else { self.power.random.lock().below(5) };
            let written = match outcome {
                0 if full => return Err(StoreError::NoSpace),
                0 => continue,
                1 if self.fragile => 20,
                2 if self.fragile => 42,
                _ => SECTOR,
            };
            let mut kept = [0; SECTOR];
            kept.copy_from_slice(&medium.now[sector * SECTOR..][..SECTOR]);
            kept[..written].copy_from_slice(&bytes[..written]);
            medium.now[sector * SECTOR..][..SECTOR].copy_from_slice(&kept);
            medium.loose.push((sector, kept));
            if whole && !full && durability == Durability::Durable {
                medium.stable[sector * SECTOR..][..SECTOR].copy_from_slice(bytes);
                medium.loose.retain(|(other, _)| *other != sector);
            }
        }
        match (whole, full) {
            (true, true) => Err(StoreError::NoSpace),
            (true, false) => Ok(()),
            (false, _) => Err(StoreError::Gone("the power".into())),
        }
    }
}

impl BlockStore for Disk {
    fn geometry(&self) -> Geometry {
        Geometry {
            size_bytes: self.medium.lock().now.len() as u64,
            logical_block_bytes: self.block_bytes,
            physical_block_bytes: self.block_bytes,
            rotational: false,
            discard_granularity_bytes: 512,
            read_only: self.read_only,
        }
    }
    fn placement(&self) -> Placement {
        Placement::Offload
    }
    fn description(&self) -> String {
        "a disk".to_owned()
    }
    fn read(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        self.geometry().check_range(offset, dst.len() as u64)?;
        dst.copy_from_slice(&self.medium.lock().now[offset as usize..][..dst.len()]);
        Ok(())
    }
    fn read_now(&self, _offset: u64, _dst: &mut [u8]) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn read_crc32c(&self, offset: u64, dst: &mut [u8], crc: u32) -> Result<u32, StoreError> {
        read_then_crc32c(self, offset, dst, crc)
    }
    fn write(&self, offset: u64, src: &[&[u8]], durability: Durability) -> Result<(), StoreError> {
        self.put(offset, &src.concat(), durability)
    }
    fn atomic_write_bytes_max(&self) -> u64 {
        0
    }
    fn write_atomic(
        &self,
        _offset: u64,
        _src: &[&[u8]],
        _records: Option<&RecordRun>,
        _durability: Durability,
    ) -> Result<(), StoreError> {
        Err(not_atomic(self))
    }
    fn overwrites_in_place(&self) -> bool {
        false
    }
    fn in_place(&self) -> Option<&dyn InPlace> {
        None
    }
    fn flush(&self) -> Result<(), StoreError> {
        let whole = self.on()?;
        let medium = &mut *self.medium.lock();
        for (sector, bytes) in medium.loose.drain(..) {
            if whole || self.power.random.lock().below(2) == 0 {
                medium.stable[sector * SECTOR..][..SECTOR].copy_from_slice(&bytes);
            }
        }
        if whole { Ok(()) } else { Err(StoreError::Gone("the power".into())) }
    }
    fn unmap(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.put(offset, &vec![0; len as usize], Durability::Cached)
    }
    fn write_zeroes(&self, offset: u64, len: u64, _may_unmap: bool) -> Result<(), StoreError> {
        self.unmap(offset, len)
    }
    fn extents(&self, offset: u64, len: u64, _max: usize) -> Result<Vec<Extent>, StoreError> {
        Ok(vec![Extent { offset, len, mapped: true }])
    }
    fn resize(&self, size_bytes: u64) -> Result<(), StoreError> {
        let medium = &mut *self.medium.lock();
        medium.now.resize(size_bytes as usize, 0);
        medium.stable.resize(size_bytes as usize, 0);
        Ok(())
    }
    fn medium_bytes(&self) -> Result<u64, StoreError> {
        Ok(self.geometry().size_bytes)
    }
    fn make_writable(&self) -> Result<(), StoreError> {
        Ok(())
    }
    fn records(&self) -> Option<&Records> {
        None
    }
    fn label(&self) -> Option<&Arc<Label>> {
        Some(&self.label)
    }
    fn read_medium(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        self.read(offset, dst)
    }
    fn medium_reads(&self) -> MediumReads {
        MediumReads::Memory
    }
    fn reopen(&self) -> Result<Option<FailedFlush>, StoreError> {
        Ok(None)
    }
}

/// What a volume consists of, and how it is opened.
struct Bench {
    power: Arc<Power>,
    blocks: Disk,
    beside: Mutex<BTreeMap<String, Disk>>,
    read_only: bool,
}

impl Bench {
    fn new(block: usize, seed: u64) -> Self {
        let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let power = Arc::new(Power {
            calls_left: Mutex::new(None),
            full_one_in: Mutex::new(0),
            random: Mutex::new(random),
        });
        let blocks = Disk::new(BLOCKS * block, block as u32, &power, false);
        Bench { power, blocks, beside: Mutex::default(), read_only: false }
    }

    fn below(&self, n: usize) -> usize {
        self.power.random.lock().below(n)
    }

    fn put_together(&mut self, options: Options, read_only: bool) -> Result<Arc<dyn BlockStore>, StoreError> {
        self.read_only = read_only;
        let blocks = Arc::new(Disk { read_only, ..self.blocks.clone() });
        let most = options.block as u64 * MOST as u64;
        assemble(&*self, blocks, [1; 16], options.protection, options.atomic.then_some(most))
    }

    /// `lost`: the power fails, not only the process.
    fn restart(&self, lost: bool) {
        *self.power.calls_left.lock() = None;
        *self.power.full_one_in.lock() = 0;
        self.blocks.restart(lost);
        self.beside.lock().values().for_each(|disk| disk.restart(lost));
    }

    fn is_off(&self) -> bool {
        *self.power.calls_left.lock() == Some(0)
    }
}

impl SideFiles for Bench {
    fn name(&self, suffix: &str) -> String {
        suffix.to_owned()
    }
    fn found(&self, suffix: &str) -> Result<u64, StoreError> {
        Ok(self.beside.lock().get(suffix).map_or(0, |disk| disk.geometry().size_bytes))
    }
    fn open(&self, suffix: &str, size_bytes: Option<u64>) -> Result<Arc<dyn BlockStore>, StoreError> {
        let mut beside = self.beside.lock();
        let disk = beside.entry(suffix.to_owned()).or_insert_with(|| {
            // A log that is settled often, and has no room for two writes of maximum length.
            let bytes = if suffix == LOG { 8192 + 48 * 4096 } else { size_bytes.unwrap() };
            Disk::new(bytes as usize, 512, &self.power, suffix != RECORDS)
        });
        let label = Arc::clone(&self.blocks.label);
        Ok(Arc::new(Disk { read_only: self.read_only, label, ..disk.clone() }))
    }
    fn check_room(&self, _option: &str) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Blocks of the longest all-or-nothing write.
const MOST: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Options {
    block: usize,
    protection: Option<u8>,
    atomic: bool,
    /// WCE.
    cached: bool,
}

/// A block of this value; 0 means never written.
fn block(value: u8, lba: usize, bytes: usize) -> Vec<u8> {
    let mut block = vec![value; bytes];
    for (number, sector) in block.chunks_exact_mut(SECTOR).enumerate().filter(|_| value > 0) {
        sector[..2].copy_from_slice(&[lba as u8, number as u8]);
    }
    block
}

fn record(value: u8, lba: usize) -> Record {
    let tuple = Tuple { guard: u16::from(value) * 3, app_tag: 1, ref_tag: lba as u32 };
    match value {
        0 => Record::Unwritten,
        value if value.is_multiple_of(5) => Record::Unchecked(tuple, value.into()),
        _ => Record::Guarded(tuple),
    }
}

/// The possible content of a block: the last durable value, and those written after it; the last one is the current content.
#[derive(Clone)]
struct Allowed {
    values: Vec<u8>,
    /// A change failed and the block cannot be read: its value is unknown until the volume is reopened.
    unsure: bool,
}

struct Case {
    bench: Bench,
    options: Options,
    blocks: Vec<Allowed>,
    number: u8,
    cuts: u64,
}

impl Case {
    /// The value of a block, if it is a single value.
    fn look(&self, store: &dyn BlockStore, lba: usize) -> Result<Result<u8, StoreError>, String> {
        let Options { block: bytes, protection, .. } = self.options;
        let mut found = vec![0; bytes];
        if let Err(error) = store.read((lba * bytes) as u64, &mut found) {
            return Ok(Err(error));
        }
        let allowed = &self.blocks[lba].values;
        let value = found[SECTOR - 1];
        let torn = protection.is_none()
            && found.chunks_exact(SECTOR).zip(0..).all(|(sector, number)| {
                allowed.iter().any(|&value| block(value, lba, bytes)[number * SECTOR..][..SECTOR] == *sector)
            });
        if torn && !allowed.contains(&value) || !torn && found != block(value, lba, bytes) {
            return Err(format!("block {lba} holds parts of several writes, or of none"));
        }
        if !allowed.contains(&value) {
            return Err(format!("block {lba} holds {value}, not one of {allowed:?}"));
        }
        if protection.is_some() {
            let kept = match store.records().ok_or("no records")?.read(lba as u64, 1) {
                Ok(kept) => kept.iter().next().ok_or("no record")?,
                Err(error) => return Ok(Err(error)),
            };
            if kept != record(value, lba) {
                return Err(format!("block {lba} holds {value}, and beside it is {kept:?}: unreadable"));
            }
        }
        Ok(Ok(value))
    }

    /// The content of a volume that was just opened; from now on it must hold exactly that.
    fn look_at_all(&self, store: &dyn BlockStore) -> Result<Vec<u8>, String> {
        let all = (0..BLOCKS).map(|lba| {
            self.look(store, lba)?.map_err(|error| format!("block {lba} cannot be read: {error}"))
        });
        all.collect()
    }

    /// Opens the volume, with whatever failures happen on the way.
    fn open(&mut self) -> Result<Arc<dyn BlockStore>, String> {
        let mut seen = None;
        if self.cuts > 0 && self.bench.below(3) == 0 {
            match self.bench.put_together(self.options, true) {
                Ok(store) => seen = Some(self.look_at_all(&*store)?),
                Err(_) if self.options.protection.is_none() => {}
                Err(error) => return Err(format!("read-only it cannot be opened: {error}")),
            }
        }
        if self.options.protection.is_some() && self.cuts > 0 {
            let without = Options { protection: None, ..self.options };
            if self.bench.put_together(without, false).is_ok() {
                return Err("it is opened without its protection information".into());
            }
        }
        while self.bench.below(3) == 0 {
            let calls = 1 + self.bench.below(40);
            *self.bench.power.calls_left.lock() = Some(calls);
            *self.bench.power.full_one_in.lock() = self.bench.below(2) * 20;
            drop(self.bench.put_together(self.options, false));
            self.cuts += 1;
            self.bench.restart(self.bench.below(2) == 0);
        }
        let store = self
            .bench
            .put_together(self.options, false)
            .map_err(|error| format!("it cannot be opened: {error}"))?;
        let found = self.look_at_all(&*store)?;
        if let Some(seen) = seen.filter(|seen| *seen != found) {
            return Err(format!("read-only it held {seen:?}, now {found:?}"));
        }
        // Blocks of a plain file may be torn: rewrite them, as a host would.
        for (lba, &value) in found.iter().enumerate().filter(|_| self.options.protection.is_none()) {
            let (bytes, offset) = (self.options.block, (lba * self.options.block) as u64);
            let written = store.write(offset, &[&block(value, lba, bytes)], Durability::Durable);
            written.map_err(|error| format!("block {lba} cannot be written: {error}"))?;
        }
        self.blocks = found.into_iter().map(|value| Allowed { values: vec![value], unsure: false }).collect();
        Ok(store)
    }

    fn flushed(&mut self, lbas: std::ops::Range<usize>) {
        for allowed in self.blocks[lbas].iter_mut().filter(|allowed| !allowed.unsure) {
            allowed.values.drain(..allowed.values.len() - 1);
        }
    }

    /// Makes one change; returns whether the power is still on. For an all-or-nothing change, `last` is what it wrote.
    fn change(
        &mut self,
        store: &dyn BlockStore,
        last: &mut Option<(std::ops::Range<usize>, u8)>,
    ) -> Result<bool, String> {
        let Options { block: bytes, protection, atomic, cached } = self.options;
        let what = self.bench.below(16);
        let most = if protection.is_some() && what < 2 { 20 } else { MOST };
        let len = 1 + self.bench.below(most);
        let at = self.bench.below(BLOCKS - len);
        let (lbas, offset) = (at..at + len, (at * bytes) as u64);
        if what == 15 {
            if store.flush().is_ok() {
                self.flushed(0..BLOCKS);
            }
            return Ok(!self.bench.is_off());
        }
        self.number = self.number % 250 + 1;
        let value = if what >= 13 { 0 } else { self.number };
        let durable = what < 13 && (!cached || what.is_multiple_of(4));
        let durability = if durable { Durability::Durable } else { Durability::Cached };
        let data: Vec<u8> = lbas.clone().flat_map(|lba| block(value, lba, bytes)).collect();
        let (a, b) = data.split_at(data.len() / 3);
        let run = protection.map(|_| lbas.clone().map(|lba| record(value, lba)).collect::<RecordRun>());
        let whole = protection.is_some() || atomic && what < 6;
        self.blocks[lbas.clone()].iter_mut().for_each(|allowed| allowed.values.push(value));
        *last = whole.then(|| (lbas.clone(), value));
        let result = match what {
            13 => store.unmap(offset, data.len() as u64),
            14 => store.write_zeroes(offset, data.len() as u64, false),
            _ if whole => store.write_atomic(offset, &[a, b], run.as_ref(), durability),
            _ => store.write(offset, &[a, b], durability),
        };
        if self.bench.is_off() {
            return Ok(false);
        }
        *last = None;
        match result {
            Ok(()) if durable => self.flushed(lbas),
            Ok(()) => {}
            Err(_) => self.failed(store, lbas, whole)?,
        }
        Ok(true)
    }

    /// Records what a failed change left. One that should be all or nothing either changed nothing, or its blocks cannot be read.
    fn failed(
        &mut self,
        store: &dyn BlockStore,
        lbas: std::ops::Range<usize>,
        whole: bool,
    ) -> Result<(), String> {
        for lba in lbas {
            match self.look(store, lba)? {
                Err(_) if whole || self.blocks[lba].unsure => self.blocks[lba].unsure = true,
                Err(error) => return Err(format!("block {lba} cannot be read after an error: {error}")),
                Ok(_) if whole && !self.blocks[lba].unsure => {
                    // It was reported as failed, so it must never appear later.
                    self.blocks[lba].values.pop();
                    drop(self.look(store, lba)?);
                }
                Ok(value) => {
                    self.blocks[lba].values.push(value);
                    // A plain write may have been written in part.
                    self.blocks[lba].unsure |= !whole;
                }
            }
        }
        Ok(())
    }

    /// One life of the volume: it is opened, changed until the power fails, and the power comes back.
    fn live(&mut self) -> Result<(), String> {
        self.options.atomic = self.bench.below(2) == 0;
        let store = self.open()?;
        let calls = 1 + self.bench.below(150);
        *self.bench.power.calls_left.lock() = Some(calls);
        *self.bench.power.full_one_in.lock() = self.bench.below(2) * 30;
        let mut last = None;
        let ends_well = self.bench.below(6) == 0;
        // A volume that takes no more changes makes no disk calls, so the power would never fail.
        for change in 0..300 {
            if !self.change(&*store, &mut last)? || ends_well && change == 10 {
                break;
            }
        }
        let lost = self.bench.below(2) == 0;
        drop(store);
        self.cuts += 1;
        self.bench.restart(lost);
        if let Some((lbas, value)) = last {
            self.options.atomic = self.bench.below(2) == 0;
            let store = self
                .bench
                .put_together(self.options, false)
                .map_err(|error| format!("it cannot be opened: {error}"))?;
            let found = self.look_at_all(&*store)?;
            let new = found[lbas.clone()].iter().filter(|found| **found == value).count();
            // Zeros may have been there before.
            if value > 0 && new > 0 && new < lbas.len() {
                return Err(format!("{new} blocks of {lbas:?} hold {value}: all or none of them"));
            }
        }
        Ok(())
    }
}

/// Several lives of one volume; returns the number of cuts.
fn replay(seed: u64) -> Result<u64, String> {
    let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1);
    (0..8).for_each(|_| {
        random.below(2);
    });
    let options = Options {
        block: [512, 4096][random.below(2)],
        protection: [None, Some(1), Some(2), Some(3)][random.below(4)],
        atomic: false,
        cached: random.below(3) > 0,
    };
    let blocks = vec![Allowed { values: vec![0], unsure: false }; BLOCKS];
    let mut case = Case { bench: Bench::new(options.block, seed), options, blocks, number: 0, cuts: 0 };
    for life in 0..6 {
        case.live().map_err(|what| format!("life {life} of {:?}: {what}", case.options))?;
    }
    Ok(case.cuts)
}

// covers: ATM-01 PI-15
#[test]
fn whatever_a_crash_leaves_every_block_is_whole_and_nothing_that_was_flushed_is_lost() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (wanted, first) =
        (number("INTACT_POWER_CUTS").unwrap_or(CUTS), number("INTACT_POWER_SEED").unwrap_or(1));
    let (mut cuts, mut told) = (0, 0);
    for seed in first.. {
        match replay(seed) {
            Ok(more) => cuts += more,
            Err(what) => panic!("{what}\nto see it: cargo xtask powercut --cuts 1 --seed {seed}"),
        }
        if cuts / 1000 > told {
            told = cuts / 1000;
            eprintln!("{cuts} of {wanted} cuts, up to seed {seed}");
        }
        if cuts >= wanted {
            return;
        }
    }
}

/// A side file restored from a copy that was made in the middle of an earlier life of the volume is refused. If the copy had no
/// unfinished work, restoring it has no effect.
// covers: ATM-01 PI-15
#[test]
fn a_side_file_of_another_life_is_refused_or_has_nothing_to_say() {
    let mut refused: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in 1..200 {
        let mut random = Random(seed * 0x9e37_79b9);
        let protection = [None, Some(1)][(0..8).fold(0, |_, _| random.below(2))];
        let options = Options { block: 512, protection, atomic: true, cached: true };
        let suffix = if protection.is_none() { JOURNAL } else { [RECORDS, LOG][random.below(2)] };
        let blocks = vec![Allowed { values: vec![0], unsure: false }; BLOCKS];
        let mut case = Case { bench: Bench::new(options.block, seed), options, blocks, number: 0, cuts: 0 };
        let live = |case: &mut Case, atomic: bool| {
            case.options.atomic = atomic;
            let store = case.bench.put_together(case.options, false).unwrap();
            let found = case.look_at_all(&*store).unwrap();
            case.blocks =
                found.into_iter().map(|value| Allowed { values: vec![value], unsure: false }).collect();
            (0..12).for_each(|_| assert_eq!(case.change(&*store, &mut None), Ok(true)));
            let held = case.bench.beside.lock()[suffix].medium.lock().now.clone();
            store.flush().unwrap();
            case.flushed(0..BLOCKS);
            drop(store);
            case.bench.restart(false);
            held
        };
        let copy = live(&mut case, true);
        // With or without the journal: either is another life.
        live(&mut case, random.below(2) == 0);
        let medium = Arc::clone(&case.bench.beside.lock()[suffix].medium);
        *medium.lock() = Medium { now: copy.clone(), stable: copy, loose: Vec::new() };
        case.options.atomic = random.below(2) == 0;
        let read_only = random.below(2) == 0;
        match case.bench.put_together(case.options, read_only) {
            Ok(store) => {
                assert_ne!(suffix, RECORDS, "seed {seed}: records of another time are taken");
                case.look_at_all(&*store).unwrap_or_else(|what| panic!("seed {seed}, {suffix}: {what}"));
            }
            Err(StoreError::Unusable(why))
                if why.contains("another time") && why.contains("put the files") =>
            {
                *refused.entry(suffix).or_default() += 1;
            }
            Err(error) => panic!("seed {seed}, {suffix}: {error}"),
        }
    }
    assert!([JOURNAL, RECORDS, LOG].iter().all(|suffix| refused[suffix] > 10), "{refused:?}");
}
