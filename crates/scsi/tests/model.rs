//! A random stream of commands from several nexuses against the device server and against a simple model. After each
//! command status, sense, data and the operations that reach the medium are compared.
//!
//! `SCSI_MODEL_COMMANDS` and `SCSI_MODEL_SEED` set another length and seed; a failure prints its seed.
mod support;

use integrity::t10::Tuple;
use scsi::{LuConfig, MediumConfig, Nexus, ProtectionType, Status};
use support::{BLOCK, Disk, NEVER_WRITTEN, cdb, nexus};

const BLOCKS: u64 = 64;
const NEXUSES: usize = 4;

/// xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// The expected result of a command.
#[derive(Debug, PartialEq)]
enum Due {
    Good(Vec<u8>),
    Conflict,
    Check(u8, u8, u8, Option<u64>),
}

/// The unit as a few plain values: each block is one byte repeated.
struct Model {
    blocks: Vec<u8>,
    mapped: Vec<bool>,
    /// Protection information of each block, used only if the unit has any.
    tuples: Vec<Tuple>,
    kind: ProtectionType,
    /// Blocks that WRITE LONG has marked.
    marked: Vec<usize>,
    /// Attentions of each nexus, in their order.
    attentions: [Vec<(u8, u8)>; NEXUSES],
    /// Holder of RESERVE(6).
    reserved: Option<usize>,
    keys: [u64; NEXUSES],
    /// Holder and type of the persistent reservation.
    reservation: Option<(usize, u8)>,
    write_protected: bool,
    stopped: bool,
}

impl Model {
    fn new(kind: ProtectionType) -> Self {
        Self {
            blocks: vec![0; BLOCKS as usize],
            mapped: vec![false; BLOCKS as usize],
            tuples: vec![NEVER_WRITTEN; BLOCKS as usize],
            kind,
            marked: Vec::new(),
            attentions: Default::default(),
            reserved: None,
            keys: [0; NEXUSES],
            reservation: None,
            write_protected: false,
            stopped: false,
        }
    }

    fn tell(&mut self, whom: usize, asc: (u8, u8)) {
        if !self.attentions[whom].contains(&asc) {
            self.attentions[whom].push(asc);
        }
    }

    /// The checks before the command itself: attention, reservation, readiness, write protection.
    fn gate(&mut self, who: usize, writes: bool, medium: bool) -> Option<Due> {
        if !self.attentions[who].is_empty() {
            let (asc, ascq) = self.attentions[who].remove(0);
            return Some(Due::Check(6, asc, ascq, None));
        }
        if self.reserved.is_some_and(|holder| holder != who) {
            return Some(Due::Conflict);
        }
        if let Some((holder, kind)) = self.reservation {
            let registrants = kind >= 5 && self.keys[who] != 0;
            let reads_too = matches!(kind, 3 | 6 | 8);
            if holder != who && !registrants && (writes || reads_too) {
                return Some(Due::Conflict);
            }
        }
        if medium && self.stopped {
            return Some(Due::Check(2, 4, 2, None));
        }
        (medium && writes && self.write_protected).then_some(Due::Check(7, 0x27, 0, None))
    }

    fn range(lba: u64, blocks: u64) -> Result<std::ops::Range<usize>, Due> {
        match lba.checked_add(blocks) {
            Some(end) if end <= BLOCKS => Ok(lba as usize..end as usize),
            _ => Err(Due::Check(5, 0x21, 0, Some(lba.max(BLOCKS)))),
        }
    }

    /// The result of a command that reads these blocks, if one of them is marked.
    fn unreadable(&self, range: std::ops::Range<usize>) -> Option<Due> {
        let first = self.marked.iter().filter(|marked| range.contains(marked)).min()?;
        Some(Due::Check(3, 0x11, 0x14, Some(*first as u64)))
    }

    /// Writes without tuples: the unit generates them.
    fn write(&mut self, range: std::ops::Range<usize>, value: impl Fn(u8) -> u8) {
        self.marked.retain(|marked| !range.contains(marked));
        for lba in range {
            self.blocks[lba] = value(self.blocks[lba]);
            self.mapped[lba] = true;
            let ref_tag = if self.kind == ProtectionType::Type3 { 0 } else { lba as u32 };
            self.tuples[lba] = Tuple { guard: guard(self.blocks[lba]), app_tag: 0, ref_tag };
        }
    }

    fn unmap(&mut self, range: std::ops::Range<usize>) {
        self.marked.retain(|marked| !range.contains(marked));
        self.blocks[range.clone()].fill(0);
        self.mapped[range.clone()].fill(false);
        self.tuples[range].fill(NEVER_WRITTEN);
    }

    /// Blocks with their tuples, as transferred.
    fn sealed(&self, range: std::ops::Range<usize>) -> Vec<u8> {
        range.flat_map(|lba| seal(self.blocks[lba], self.tuples[lba])).collect()
    }

    fn bytes(&self, range: std::ops::Range<usize>) -> Vec<u8> {
        self.blocks[range].iter().flat_map(|value| [*value; BLOCK]).collect()
    }
}

fn guard(value: u8) -> u16 {
    integrity::crc16_t10dif(&[value; BLOCK])
}

fn seal(value: u8, tuple: Tuple) -> Vec<u8> {
    [&[value; BLOCK][..], &tuple.to_bytes()].concat()
}

/// The expected tags in a 32-byte CDB.
struct Tags {
    ref_tag: u32,
    app_tag: u16,
    app_mask: u16,
}

/// The qualifier of 10h with which the check of a block fails; the block is `at` blocks after the first.
fn failed_check(model: &Model, tags: Option<&Tags>, at: u64, lba: u64, tuple: Tuple, data: u8) -> Option<u8> {
    if tuple.app_tag == 0xffff {
        return None;
    }
    let ref_tag = match model.kind {
        ProtectionType::Type1 => Some(lba as u32),
        ProtectionType::Type2 => tags.map(|tags| tags.ref_tag.wrapping_add(at as u32)),
        _ => None,
    };
    if tuple.guard != guard(data) {
        return Some(1);
    }
    if tags.is_some_and(|tags| (tags.app_tag ^ tuple.app_tag) & tags.app_mask != 0) {
        return Some(2);
    }
    ref_tag.is_some_and(|tag| tag != tuple.ref_tag).then_some(3)
}

/// READ or WRITE of blocks with their tuples, checked: (32) for type 2, otherwise (16).
fn protected_command(model: &mut Model, random: &mut Random, who: usize) -> Played {
    let lba = random.below(BLOCKS);
    let blocks = random.below(5);
    let write = random.below(2) == 1;
    let two = model.kind == ProtectionType::Type2;
    let (value, app_tag) = (1 + random.below(255) as u8, random.below(4) as u16);
    // Adjacent blocks are often written with consecutive tags, and some of them wrap.
    let base = match model.kind {
        ProtectionType::Type3 => app_tag.into(),
        ProtectionType::Type2 => (lba as u32).wrapping_add([0, 0xffff_ffe0][random.below(2) as usize]),
        _ => lba as u32,
    };
    let tags = two.then(|| Tags {
        ref_tag: if random.below(8) == 0 { base ^ 1 } else { base },
        app_tag: if random.below(4) == 0 { app_tag ^ 1 } else { app_tag },
        app_mask: [0, 0, 0x0001, 0xffff][random.below(4) as usize],
    });
    let short = two && random.below(16) == 0;
    let command = match &tags {
        Some(tags) if !short => {
            let mut cdb = vec![0x7f, 0, 0, 0, 0, 0, 0, 0x18, 0, if write { 0x0b } else { 0x09 }, 0x20, 0];
            cdb.extend(lba.to_be_bytes());
            cdb.extend(tags.ref_tag.to_be_bytes());
            cdb.extend(tags.app_tag.to_be_bytes());
            cdb.extend(tags.app_mask.to_be_bytes());
            cdb.extend((blocks as u32).to_be_bytes());
            cdb
        }
        _ => cdb::sixteen(if write { 0x8a } else { 0x88 }, 0x20, lba, blocks as u32),
    };
    let tags = tags.as_ref();
    let refused = if short { Some(Due::Check(5, 0x20, 0, None)) } else { None };
    if !write {
        let due =
            model.gate(who, false, true).or(refused).unwrap_or_else(|| match Model::range(lba, blocks) {
                Ok(range) => match range.clone().find_map(|at| {
                    let (lba, behind) = (at as u64, at as u64 - lba);
                    failed_check(model, tags, behind, lba, model.tuples[at], model.blocks[at])
                        .map(|code| Due::Check(0xb, 0x10, code, Some(lba)))
                }) {
                    Some(failed) => model.unreadable(range).unwrap_or(failed),
                    None => model.unreadable(range.clone()).unwrap_or_else(|| Due::Good(model.sealed(range))),
                },
                Err(due) => due,
            });
        return (command, vec![], due);
    }
    let mut sent: Vec<(u8, Tuple)> = (0..blocks)
        .map(|i| {
            let ref_tag =
                if model.kind == ProtectionType::Type3 { base } else { base.wrapping_add(i as u32) };
            (value, Tuple { guard: guard(value), app_tag, ref_tag })
        })
        .collect();
    let mut data: Vec<u8> = sent.iter().flat_map(|(value, tuple)| seal(*value, *tuple)).collect();
    // Sometimes a bit is flipped, in the data, the guard or the reference tag of a block.
    if blocks > 0 && random.below(6) == 0 {
        let (block, at) = (random.below(blocks) as usize, [0, BLOCK, BLOCK + 4][random.below(3) as usize]);
        data[block * (BLOCK + 8) + at] ^= 1;
        match at {
            BLOCK => sent[block].1.guard ^= 1 << 8,
            0 => sent[block].1.guard ^= 1, // as good as: it does not fit the data
            _ => sent[block].1.ref_tag ^= 1 << 24,
        }
    }
    let due = model.gate(who, true, true).or(refused).unwrap_or_else(|| match Model::range(lba, blocks) {
        Ok(range) => {
            let failed = (0..).zip(&sent).find_map(|(i, (value, tuple))| {
                failed_check(model, tags, i, lba + i, *tuple, *value).map(|code| (code, lba + i))
            });
            if let Some((code, lba)) = failed {
                return Due::Check(0xb, 0x10, code, Some(lba));
            }
            model.marked.retain(|marked| !range.contains(marked));
            for (at, (value, tuple)) in range.zip(sent) {
                (model.blocks[at], model.mapped[at], model.tuples[at]) = (value, true, tuple);
            }
            Due::Good(vec![])
        }
        Err(due) => due,
    });
    (command, data, due)
}

/// A command of the stream: CDB, data-out, and the result in the model.
type Played = (Vec<u8>, Vec<u8>, Due);

fn medium_command(model: &mut Model, random: &mut Random, who: usize) -> Played {
    // Mostly inside, sometimes across the end, seldom far beyond.
    let lba = match random.below(40) {
        0 => u64::MAX - random.below(4),
        1 => BLOCKS,
        _ => random.below(BLOCKS),
    };
    let blocks = random.below(5);
    let value = 1 + random.below(255) as u8;
    let fill = |blocks: u64, value: u8| vec![value; blocks as usize * BLOCK];
    if random.below(40) == 0 {
        let due = model.gate(who, true, true).unwrap_or_else(|| match Model::range(lba, 1) {
            Ok(range) => {
                model.marked.retain(|marked| *marked != range.start);
                model.marked.push(range.start);
                Due::Good(vec![])
            }
            Err(due) => due,
        });
        return (cdb::sixteen(0x9f, 0x51, lba, 0), vec![], due);
    }
    match random.below(8) {
        0 | 1 => {
            let due = model.gate(who, false, true).unwrap_or_else(|| match Model::range(lba, blocks) {
                Ok(range) => model.unreadable(range.clone()).unwrap_or_else(|| Due::Good(model.bytes(range))),
                Err(due) => due,
            });
            (cdb::read(lba, blocks as u32), vec![], due)
        }
        2 | 3 => {
            let due = model.gate(who, true, true).unwrap_or_else(|| match Model::range(lba, blocks) {
                Ok(range) => {
                    model.write(range, |_| value);
                    Due::Good(vec![])
                }
                Err(due) => due,
            });
            (cdb::write(lba, blocks as u32), fill(blocks, value), due)
        }
        4 => {
            let blocks = 1 + random.below(3);
            let old = match random.below(3) {
                0 => value,
                _ => model.blocks[lba.min(BLOCKS - 1) as usize],
            };
            let due = model.gate(who, true, true).unwrap_or_else(|| match Model::range(lba, blocks) {
                Ok(range) if model.unreadable(range.clone()).is_some() => model.unreadable(range).unwrap(),
                Ok(range) => match model.blocks[range.clone()].iter().position(|now| *now != old) {
                    Some(at) => Due::Check(0xe, 0x1d, 0, Some((at * BLOCK) as u64)),
                    None => {
                        model.write(range, |_| value);
                        Due::Good(vec![])
                    }
                },
                Err(due) => due,
            });
            let data = [fill(blocks, old), fill(blocks, value)].concat();
            (cdb::compare_and_write(lba, blocks as u8), data, due)
        }
        5 => {
            let unmap = random.below(2) == 0;
            let blocks = 1 + blocks;
            let due = model.gate(who, true, true).unwrap_or_else(|| match Model::range(lba, blocks) {
                Ok(range) => {
                    match unmap {
                        true => model.unmap(range),
                        false => model.write(range, |_| value),
                    }
                    Due::Good(vec![])
                }
                Err(due) => due,
            });
            (cdb::sixteen(0x93, if unmap { 8 } else { 0 }, lba, blocks as u32), fill(1, value), due)
        }
        6 => {
            let due = model.gate(who, true, true).unwrap_or_else(|| match Model::range(lba, blocks) {
                Ok(range) => {
                    model.unmap(range);
                    Due::Good(vec![])
                }
                Err(due) => due,
            });
            let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
            list.extend(lba.to_be_bytes());
            list.extend((blocks as u32).to_be_bytes());
            list.extend([0; 4]);
            (vec![0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], list, due)
        }
        _ => {
            let due = model.gate(who, true, true).unwrap_or_else(|| match Model::range(lba, blocks) {
                Ok(range) if model.unreadable(range.clone()).is_some() => model.unreadable(range).unwrap(),
                Ok(range) => {
                    model.write(range, |now| now | value);
                    Due::Good(vec![])
                }
                Err(due) => due,
            });
            (cdb::sixteen(0x8b, 0, lba, blocks as u32), fill(blocks, value), due)
        }
    }
}

/// RESERVE(6), RELEASE(6) and PERSISTENT RESERVE OUT.
fn reservation_command(model: &mut Model, random: &mut Random, who: usize) -> Played {
    let attention = |model: &mut Model| {
        let queue = &mut model.attentions[who];
        (!queue.is_empty()).then(|| queue.remove(0)).map(|(asc, ascq)| Due::Check(6, asc, ascq, None))
    };
    let registered = model.keys.iter().any(|key| *key != 0);
    if random.below(3) == 0 {
        let reserve = random.below(2) == 0;
        let due = attention(model).unwrap_or_else(|| {
            if registered {
                return if model.keys[who] != 0 { Due::Good(vec![]) } else { Due::Conflict };
            }
            match (reserve, model.reserved) {
                (true, Some(holder)) if holder != who => return Due::Conflict,
                (true, _) => model.reserved = Some(who),
                (false, Some(holder)) if holder == who => model.reserved = None,
                (false, _) => {}
            }
            Due::Good(vec![])
        });
        return (vec![if reserve { 0x16 } else { 0x17 }, 0, 0, 0, 0, 0], vec![], due);
    }
    let kind = [1u8, 3, 5, 6][random.below(4) as usize];
    let own = model.keys[who];
    let key = if random.below(8) == 0 { 99 } else { own };
    let action = [0u8, 1, 2, 3, 4, 6][random.below(6) as usize];
    let service_action_key = match action {
        4 => model.keys[random.below(NEXUSES as u64) as usize],
        0 | 6 if random.below(3) == 0 => 0,
        // Every nexus has its own key, so that a PREEMPT removes one.
        _ => who as u64 + 1,
    };
    let mut list = [key.to_be_bytes(), service_action_key.to_be_bytes()].concat();
    list.resize(24, 0);
    let due = attention(model).unwrap_or_else(|| {
        if model.reserved.is_some() {
            return Due::Conflict;
        }
        persistent(model, who, action, kind, key, service_action_key)
    });
    (vec![0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0], list, due)
}

fn persistent(model: &mut Model, who: usize, action: u8, kind: u8, key: u64, new: u64) -> Due {
    let own = model.keys[who];
    match action {
        0 | 6 => {
            if action == 0 && key != own {
                return Due::Conflict;
            }
            if own == 0 && new == 0 {
                return Due::Good(vec![]);
            }
            model.keys[who] = new;
            if new == 0
                && let Some((holder, kind)) = model.reservation
                && holder == who
            {
                model.reservation = None;
                released(model, who, kind);
            }
            Due::Good(vec![])
        }
        _ if own == 0 || key != own => Due::Conflict,
        1 => match model.reservation {
            Some(held) if held != (who, kind) => Due::Conflict,
            _ => {
                model.reservation = Some((who, kind));
                Due::Good(vec![])
            }
        },
        2 => match model.reservation {
            Some((holder, held)) if holder == who && held != kind => Due::Check(5, 0x26, 4, None),
            Some((holder, held)) if holder == who => {
                model.reservation = None;
                released(model, who, held);
                Due::Good(vec![])
            }
            _ => Due::Good(vec![]),
        },
        3 => {
            let others: Vec<usize> = (0..NEXUSES).filter(|n| *n != who && model.keys[*n] != 0).collect();
            model.keys = [0; NEXUSES];
            model.reservation = None;
            others.into_iter().for_each(|nexus| model.tell(nexus, (0x2a, 3)));
            Due::Good(vec![])
        }
        _ => preempt(model, who, kind, new),
    }
}

/// Only registrants are notified of the end of a reservation for registrants.
fn released(model: &mut Model, who: usize, kind: u8) {
    if kind >= 5 {
        for nexus in (0..NEXUSES).filter(|nexus| *nexus != who) {
            if model.keys[nexus] != 0 {
                model.tell(nexus, (0x2a, 4));
            }
        }
    }
}

fn preempt(model: &mut Model, who: usize, kind: u8, victim: u64) -> Due {
    if victim == 0 {
        return Due::Check(5, 0x26, 0, None);
    }
    let Some(loser) = model.keys.iter().position(|key| *key == victim) else { return Due::Conflict };
    match model.reservation {
        Some((holder, held)) if holder == loser => {
            if loser != who {
                model.keys[loser] = 0;
            }
            model.reservation = Some((who, kind));
            if held != kind {
                released(model, who, 5);
            }
        }
        // Also its own registration, if it says so.
        _ => model.keys[loser] = 0,
    }
    if loser != who {
        model.tell(loser, (0x2a, 5));
    }
    Due::Good(vec![])
}

fn play(commands: u64, seed: u64, kind: ProtectionType) {
    let mut random = Random(seed | 1);
    let protected = kind != ProtectionType::None;
    let mut model = Model::new(kind);
    let mut disk = Disk::with(LuConfig {
        medium: MediumConfig {
            blocks: BLOCKS,
            protectable: protected,
            protection: kind,
            ..MediumConfig::default()
        },
        ..LuConfig::default()
    });
    let nexuses: Vec<Nexus> = (0..NEXUSES).map(|n| nexus(&format!("model-{n}"))).collect();
    nexuses.iter().for_each(|nexus| disk.attach(nexus));
    let mut seen = [0u64; 3];
    for number in 0..commands {
        let who = random.below(NEXUSES as u64) as usize;
        let (command, data, due) = match random.below(100) {
            0..30 if protected => protected_command(&mut model, &mut random, who),
            0..75 => medium_command(&mut model, &mut random, who),
            75..95 => reservation_command(&mut model, &mut random, who),
            95..97 => {
                let start = model.stopped || random.below(2) == 0;
                let due = match model.gate(who, !start, false) {
                    Some(due @ Due::Check(..)) => due,
                    Some(due) if !start || model.reserved.is_some() => due,
                    _ => {
                        model.stopped = !start;
                        Due::Good(vec![])
                    }
                };
                (vec![0x1b, 0, 0, 0, u8::from(start), 0], vec![], due)
            }
            97 => {
                model.write_protected = !model.write_protected;
                disk.lu.set_read_only(model.write_protected);
                (0..NEXUSES).for_each(|nexus| model.tell(nexus, (0x2a, 1)));
                continue;
            }
            98 => {
                // A reset supersedes what is pending, and frees what RESERVE holds.
                disk.lu.logical_unit_reset();
                model.reserved = None;
                model.stopped = false;
                for queue in &mut model.attentions {
                    if !queue.contains(&(0x29, 3)) {
                        *queue = vec![(0x29, 3)];
                    }
                }
                continue;
            }
            _ => {
                let due = match model.attentions[who].first().copied() {
                    Some((asc, ascq)) => {
                        model.attentions[who].remove(0);
                        vec![6, asc, ascq]
                    }
                    None if model.stopped => vec![2, 4, 2],
                    None => vec![0, 0, 0],
                };
                (vec![3, 0, 0, 0, 18, 0], vec![], Due::Good(due))
            }
        };
        let answer = disk.run_as(&nexuses[who], &command, &data);
        let got = match answer.status {
            Status::Good if command[0] == 3 => {
                Due::Good(vec![answer.data[2], answer.data[12], answer.data[13]])
            }
            Status::Good => Due::Good(answer.data),
            Status::ReservationConflict => Due::Conflict,
            _ => {
                let sense = answer.sense.unwrap();
                Due::Check(sense.key as u8, sense.asc.asc, sense.asc.ascq, sense.information)
            }
        };
        assert!(
            got == due,
            "seed {seed} command {number} of nexus {who}: {command:02x?}\n{} instead of {}\nreserved {:?} keys {:?} {:?}",
            short(&got),
            short(&due),
            model.reserved,
            model.keys,
            model.reservation
        );
        seen[match got {
            Due::Good(_) => 0,
            Due::Conflict => 1,
            Due::Check(..) => 2,
        }] += 1;
        if number % 1024 == 0 {
            assert_eq!(disk.data, model.bytes(0..BLOCKS as usize), "seed {seed}, after command {number}");
            assert_eq!(disk.mapped, model.mapped, "seed {seed}, after command {number}");
            assert!(!protected || disk.tuples == model.tuples, "seed {seed}, after command {number}");
        }
    }
    assert_eq!(disk.data, model.bytes(0..BLOCKS as usize), "seed {seed}, at the end");
    assert!(seen.iter().all(|count| *count > commands / 50), "the stream is one-sided: {seen:?}");
}

fn short(due: &Due) -> String {
    match due {
        Due::Good(data) => format!("GOOD with {} bytes", data.len()),
        other => format!("{other:x?}"),
    }
}

// covers: PR-04 CDB-03 UA-01 CAW-01 TSK-08
#[test]
fn a_random_stream_ends_as_the_model_says() {
    play_all(ProtectionType::None);
}

// covers: PI-02 PI-03 PI-06 PI-09 PI-10 PI-12 PI-15 PI-16
#[test]
fn a_random_stream_ends_as_the_model_says_with_protection_information() {
    play_all(ProtectionType::Type1);
    play_all(ProtectionType::Type2);
    play_all(ProtectionType::Type3);
}

fn play_all(kind: ProtectionType) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let commands = number("SCSI_MODEL_COMMANDS").unwrap_or(30_000);
    match number("SCSI_MODEL_SEED") {
        Some(seed) => play(commands, seed, kind),
        None => (1..=4).for_each(|seed| play(commands / 4, seed * 0x9e37_79b9, kind)),
    }
}
