//! A bit flips at every stage of a third-party copy, and the table in the documentation says which check finds it.

use std::sync::Arc;

use blockstore::{
    BlockStore, Durability, Fault, FaultHandle, FaultRule, FaultStore, Op, ProtectedStore, RamStore, Record,
    RecordRun,
};
use integrity::t10::Tuple;
use scsi::{MediumError, PiField};

use super::{Cargo, load, unload};
use crate::testing::{Ears, unit_heard_by};
use crate::unit::Unit;

const BLOCK: u64 = 512;
const BLOCKS: u64 = 8;
/// Where the blocks are, and where their copy is to be.
const FROM: u64 = 16;
const TO: u64 = 40;
/// The block that is damaged, and a byte of it.
const DAMAGED: u64 = 5;
const AT: u64 = 99;

/// Where the damage happens, in the order of the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    SourceMedium,
    SourceToCheck,
    Memory,
    MemoryGuard,
    MemoryAppTag,
    MemoryRefTag,
    CheckToDestination,
}

use Stage::*;

const STAGES: [(Stage, &str); 7] = [
    (SourceMedium, "on the source's medium"),
    (SourceToCheck, "between the source's medium and its check"),
    (Memory, "in the target's memory, between the two checks: data"),
    (MemoryGuard, "there: guard of a tuple"),
    (MemoryAppTag, "there: application tag of a tuple"),
    (MemoryRefTag, "there: reference tag of a tuple"),
    (CheckToDestination, "between the destination's check and its medium"),
];

const UNITS: [(u8, u8, &str); 5] = [
    (1, 1, "type 1 to type 1"),
    (3, 3, "type 3 to type 3"),
    (1, 2, "type 1 to type 2"),
    (1, 0, "type 1 to none"),
    (0, 1, "none to type 1"),
];

/// A unit, and the ways to harm it.
struct Side {
    unit: Unit,
    ears: Arc<Ears>,
    data: Arc<RamStore>,
    faults: FaultHandle,
}

/// A unit of this type; type 0 is one without room for protection information.
fn side(kind: u8) -> Side {
    let ram = Arc::new(RamStore::new(1 << 20, BLOCK as u32).unwrap());
    let (faulty, faults) = FaultStore::new(Arc::clone(&ram));
    let faulty: Arc<dyn BlockStore> = Arc::new(faulty);
    let store = match kind {
        0 => faulty,
        kind => {
            let side = RamStore::new(ProtectedStore::side_bytes(&ram.geometry()).unwrap(), 4096).unwrap();
            Arc::new(ProtectedStore::new(faulty, Arc::new(side), kind).unwrap())
        }
    };
    let ears = Arc::new(Ears::default());
    Side { unit: unit_heard_by(store, Arc::clone(&ears) as _), ears, data: ram, faults }
}

/// Flips a bit of that byte of a store in its next operation of this kind.
fn flip_on_the_way(side: &Side, op: Op, lba: u64) {
    let offset = (lba + DAMAGED) * BLOCK + AT;
    let rule = FaultRule::new(op, Fault::BitFlip { offset, mask: 4 });
    side.faults.arm(rule.nth(1).in_range(offset..offset + 1));
}

/// Damages one tuple on its way, if there are any.
fn flip_tuple(cargo: &mut Cargo, spoil: impl Fn(&mut Tuple)) -> Option<()> {
    let origin = cargo.origin.as_mut()?;
    let records = origin.records.iter().zip(0..).map(|(record, at)| match record {
        Record::Guarded(mut tuple) if at == DAMAGED => {
            spoil(&mut tuple);
            Record::Guarded(tuple)
        }
        other => other,
    });
    origin.records = records.collect::<RecordRun>();
    Some(())
}

/// Who found it, and by what; that the place is right, and that it is counted where it was found.
fn finder(who: &str, side: &Side, lba: u64, error: &MediumError) -> String {
    let MediumError::Protection { field, lba: at } = *error else { panic!("{error:?}") };
    assert_eq!(at, lba + DAMAGED);
    assert_eq!(side.ears.checks_failed(field), 1);
    let field = match field {
        PiField::Guard => "guard",
        PiField::AppTag => "application tag",
        PiField::RefTag => "reference tag",
    };
    format!("{who}: {field}")
}

/// What finds damage at this stage of a copy between units of these types; `None`: there is nothing to damage.
fn find(stage: Stage, from: u8, to: u8) -> Option<String> {
    let (source, destination) = (side(from), side(to));
    let good: Vec<u8> = (0..BLOCKS * BLOCK).map(|at| (at * 31 + at / 512) as u8).collect();
    let written = Cargo { data: good.clone(), origin: None };
    unload(&source.unit, FROM, &written, false).unwrap();
    match stage {
        SourceMedium => {
            let (mut block, offset) = (vec![0; BLOCK as usize], (FROM + DAMAGED) * BLOCK);
            source.data.read(offset, &mut block).unwrap();
            block[AT as usize] ^= 4;
            source.data.write(offset, &[&block], Durability::Cached).unwrap();
        }
        SourceToCheck => flip_on_the_way(&source, Op::Read, FROM),
        _ => {}
    }
    let mut cargo = match load(&source.unit, FROM, BLOCKS) {
        Ok(cargo) => cargo,
        Err(error) => return Some(finder("source", &source, FROM, &error)),
    };
    let with_tuples = cargo.origin.is_some() && from == to;
    match stage {
        Memory => cargo.data[(DAMAGED * BLOCK + AT) as usize] ^= 4,
        MemoryGuard | MemoryAppTag | MemoryRefTag if !with_tuples => return None,
        MemoryGuard => flip_tuple(&mut cargo, |tuple| tuple.guard ^= 4)?,
        MemoryAppTag => flip_tuple(&mut cargo, |tuple| tuple.app_tag ^= 4)?,
        MemoryRefTag => flip_tuple(&mut cargo, |tuple| tuple.ref_tag ^= 4)?,
        CheckToDestination => flip_on_the_way(&destination, Op::Write, TO),
        _ => {}
    }
    let mut there = vec![0; good.len()];
    if let Err(error) = unload(&destination.unit, TO, &cargo, false) {
        destination.data.read(TO * BLOCK, &mut there).unwrap();
        assert!(there.iter().all(|&byte| byte == 0), "nothing of it is there");
        return Some(finder("destination", &destination, TO, &error));
    }
    let found = load(&destination.unit, TO, BLOCKS);
    destination.data.read(TO * BLOCK, &mut there).unwrap();
    let tuple = matches!(stage, MemoryGuard | MemoryAppTag | MemoryRefTag);
    assert_eq!(there == good, tuple, "it struck: {stage:?}");
    Some(match found {
        Err(error) => {
            let found = finder("destination", &destination, TO, &error);
            found.replacen("destination", "who reads the destination", 1)
        }
        Ok(_) => "**nobody**".to_owned(),
    })
}

/// The table of the documentation.
fn table() -> String {
    let mut table = "| a bit flips |".to_owned();
    UNITS.iter().for_each(|(.., name)| table += &format!(" {name} |"));
    table += "\n|---|---|---|---|---|---|\n";
    for (stage, name) in STAGES {
        let found = UNITS.map(|(from, to, _)| find(stage, from, to).unwrap_or_default());
        table += &format!("| {name} | {} |\n", found.join(" | "));
    }
    table
}

// covers: PI-13 CPY-01
#[test]
fn pi_13_the_table_of_copies_in_the_documentation_is_what_happens() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protection.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (begin, end) = ("<!-- copies -->\n", "<!-- end of copies -->");
    let (head, rest) = text.split_once(begin).unwrap();
    let (written, tail) = rest.split_once(end).unwrap();
    let now = table();
    if std::env::var_os("INTACT_WRITE_DOCS").is_some() {
        std::fs::write(path, format!("{head}{begin}{now}{end}{tail}")).unwrap();
        return;
    }
    assert_eq!(written, now, "repeat with INTACT_WRITE_DOCS=1 to write the table anew");
}
