//! Protection information: types, PROTECT, tags, formats, against a medium in memory.
mod support;

use integrity::crc16_t10dif;
use integrity::t10::Tuple;
use scsi::{FormatMark, LuConfig, MediumConfig, MediumError, MediumOp, ProtectionType};
use support::{BLOCK, Disk, NEVER_WRITTEN, cdb, config, nexus};

const WIRE: usize = BLOCK + 8;
const KINDS: [ProtectionType; 3] = [ProtectionType::Type1, ProtectionType::Type2, ProtectionType::Type3];

fn disk(kind: ProtectionType) -> Disk {
    Disk::with(LuConfig {
        medium: MediumConfig { protectable: true, protection: kind, ..config().medium },
        ..config()
    })
}

fn large(kind: ProtectionType, blocks: u64) -> LuConfig {
    LuConfig {
        medium: MediumConfig { protectable: true, protection: kind, blocks, ..config().medium },
        ..config()
    }
}

/// A 32-byte CDB.
fn long(action: u16, flags: u8, lba: u64, blocks: u32, tags: (u32, u16, u16)) -> Vec<u8> {
    let mut cdb = vec![0x7f, 0, 0, 0, 0, 0, 0, 0x18];
    cdb.extend(action.to_be_bytes());
    cdb.extend([flags, 0]);
    cdb.extend(lba.to_be_bytes());
    cdb.extend(tags.0.to_be_bytes());
    cdb.extend(tags.1.to_be_bytes());
    cdb.extend(tags.2.to_be_bytes());
    cdb.extend(blocks.to_be_bytes());
    cdb
}

/// Reference tag of the first block in the 32-byte CDBs here.
const INITIAL: u32 = 0xffff_fffe;

/// A command in the form that the type has for it.
fn command(kind: ProtectionType, what: What, protect: u8, lba: u64, blocks: u32) -> Vec<u8> {
    let flags = protect << 5 | if what == What::Compare { 2 } else { 0 };
    if kind == ProtectionType::Type2 {
        let action = match what {
            What::Read => 0x09,
            What::Verify | What::Compare => 0x0a,
            What::Write => 0x0b,
        };
        return long(action, flags, lba, blocks, (INITIAL, 0x1200, 0xff00));
    }
    let opcode = match what {
        What::Read => 0x88,
        What::Verify | What::Compare => 0x8f,
        What::Write => 0x8a,
    };
    cdb::sixteen(opcode, flags, lba, blocks)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Read,
    Write,
    Verify,
    Compare,
}

/// The reference tag that block `i` of a command at `lba` must have.
fn ref_tag(kind: ProtectionType, lba: u64, i: u32) -> u32 {
    match kind {
        ProtectionType::Type1 => (lba as u32).wrapping_add(i),
        ProtectionType::Type2 => INITIAL.wrapping_add(i),
        _ => 0x55aa_0000 + i,
    }
}

fn sealed(kind: ProtectionType, lba: u64, blocks: u32) -> Vec<u8> {
    let mut out = Vec::new();
    for i in 0..blocks {
        let data: Vec<u8> = (0..BLOCK).map(|at| (at as u8).wrapping_mul(7) ^ i as u8 | 1).collect();
        let tuple = Tuple { guard: crc16_t10dif(&data), app_tag: 0x1234, ref_tag: ref_tag(kind, lba, i) };
        out.extend(data);
        out.extend(tuple.to_bytes());
    }
    out
}

/// Corrupts a field of the tuple of block `i`.
fn spoil(out: &mut [u8], i: usize, field: usize) {
    let at = i * WIRE + BLOCK + [0, 2, 4][field];
    out[at] ^= 0x40;
}

const FIELDS: [&str; 3] = ["guard", "application tag", "reference tag"];

/// The result of a command whose third block has a wrong field: the name of the field whose check failed.
fn verdict(kind: ProtectionType, what: What, protect: u8, field: usize) -> Option<&'static str> {
    let (lba, blocks) = (0x100, 4);
    let mut disk = disk(kind);
    let good = sealed(kind, lba, blocks);
    let mut bad = good.clone();
    spoil(&mut bad, 2, field);
    let answer = match what {
        What::Write => {
            let answer = disk.send(&command(kind, what, protect, lba, blocks), &bad);
            if answer.status == scsi::Status::CheckCondition {
                assert!(disk.tuples.iter().all(|tuple| *tuple == NEVER_WRITTEN), "nothing of it is written");
            }
            answer
        }
        _ => {
            disk.send(&command(kind, What::Write, 3, lba, blocks), &bad).good();
            disk.run(&command(kind, what, protect, lba, blocks))
        }
    };
    if answer.status == scsi::Status::Good {
        return None;
    }
    let sense = answer.sense.unwrap();
    assert_eq!((sense.key as u8, sense.asc.asc, sense.information), (0xb, 0x10, Some(lba + 2)));
    Some(FIELDS[usize::from(sense.asc.ascq) - 1])
}

/// The whole matrix as a readable table; where no tuple is sent, none can be wrong.
fn matrix() -> String {
    let mut table = String::from(
        "| type | PROTECT | tuples travel | READ finds | WRITE finds | VERIFY finds |\n|---|---|---|---|---|---|\n",
    );
    for kind in KINDS {
        for protect in 0..6u8 {
            let cell = |what: What| {
                if what == What::Write && protect == 0 {
                    return "makes them".to_owned();
                }
                let found: Vec<_> = (0..3)
                    .filter_map(|field| {
                        let found = verdict(kind, what, protect, field);
                        assert!(
                            found.is_none_or(|name| name == FIELDS[field]),
                            "{kind:?} {what:?} {protect}"
                        );
                        found
                    })
                    .collect();
                if found.is_empty() { "-".to_owned() } else { found.join(", ") }
            };
            let travels = if protect == 0 { "no" } else { "yes" };
            table += &format!(
                "| {} | {protect:03b}b | {travels} | {} | {} | {} |\n",
                kind.number(),
                cell(What::Read),
                cell(What::Write),
                cell(What::Verify)
            );
        }
    }
    table
}

// covers: PI-04 PI-09
#[test]
fn pi_04_the_matrix_in_the_documentation_is_what_the_unit_does() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protection.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (begin, end) = ("<!-- matrix -->\n", "<!-- end of matrix -->");
    let (head, rest) = text.split_once(begin).unwrap();
    let (written, tail) = rest.split_once(end).unwrap();
    let now = matrix();
    if std::env::var_os("INTACT_WRITE_DOCS").is_some() {
        std::fs::write(path, format!("{head}{begin}{now}{end}{tail}")).unwrap();
        return;
    }
    assert_eq!(written, now, "repeat with INTACT_WRITE_DOCS=1 to write the table anew");
}

#[test]
fn pi_04_reserved_values_are_refused() {
    for kind in KINDS {
        for protect in [6, 7] {
            for what in [What::Read, What::Write, What::Verify, What::Compare] {
                let at = if kind == ProtectionType::Type2 { 10 } else { 1 };
                let answer = disk(kind).run(&command(kind, what, protect, 0, 1)).fails(5, 0x24, 0);
                assert_eq!(&answer.sense_bytes.unwrap()[15..18], &[0xcf, 0, at]);
            }
        }
    }
}

#[test]
fn pi_02_the_reference_tag_is_the_low_half_of_the_address_across_2_to_the_32() {
    for kind in [ProtectionType::Type1, ProtectionType::Type3] {
        let lu = scsi::LogicalUnit::new(large(kind, 1 << 33));
        let nexus = nexus("b");
        lu.attach_nexus(&nexus);
        assert!(matches!(lu.begin(&nexus, &[0; 6]).step(), scsi::Step::Done(_)));
        let lba = (1 << 32) - 1;
        let execution = lu.begin(&nexus, &cdb::sixteen(0x88, 0x20, lba, 2));
        let protection = *execution.protection().unwrap();
        let tuple = |ref_tag| Tuple { guard: 7, app_tag: 0, ref_tag };
        assert_eq!(protection.check(lba, tuple(u32::MAX), 7), Ok(()));
        assert_eq!(protection.check(lba + 1, tuple(0), 7), Ok(()));
        let wrong = protection.check(lba + 1, tuple(1), 7);
        match kind {
            ProtectionType::Type1 => assert_eq!(wrong, Err(scsi::PiField::RefTag)),
            _ => assert_eq!(wrong, Ok(()), "type 3: the host's own"),
        }
        assert_eq!(protection.made(lba + 1, 9).ref_tag, 0);
    }
}

#[test]
fn pi_03_type_2_takes_protect_in_32_byte_cdbs_only() {
    let mut disk = disk(ProtectionType::Type2);
    for protect in 1..6u8 {
        for opcode in [0x28, 0x2a, 0x2e, 0x2f, 0x41] {
            disk.run(&cdb::ten(opcode, protect << 5, 0, 1)).fails(5, 0x20, 0);
        }
        for opcode in [0x88, 0x89, 0x8a, 0x8b, 0x8e, 0x8f, 0x93, 0x9c] {
            disk.run(&cdb::sixteen(opcode, protect << 5, 0, 1)).fails(5, 0x20, 0);
        }
    }
    disk.run(&cdb::read(0, 1)).good();
    for kind in [ProtectionType::None, ProtectionType::Type1, ProtectionType::Type3] {
        let mut disk = self::disk(kind);
        for action in [0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0f] {
            disk.run(&long(action, 0, 0, 1, (0, 0, 0))).fails(5, 0x20, 0);
        }
    }
    Disk::new().run(&long(0x09, 0, 0, 1, (0, 0, 0))).fails(5, 0x20, 0);
}

#[test]
fn cdb_06_a_32_byte_cdb_says_its_length() {
    let mut disk = disk(ProtectionType::Type2);
    for (additional, bytes) in [(0x17, 31), (0x19, 33), (0x20, 40), (0x18, 31), (0, 32), (0xff, 32)] {
        let mut cdb = long(0x09, 0, 0, 1, (0, 0, 0));
        cdb[7] = additional;
        cdb.resize(bytes, 0);
        disk.run(&cdb).fails(5, 0x24, 0);
    }
    let mut cdb = long(0x09, 0, 0, 1, (0, 0, 0));
    cdb[9] = 0x33;
    disk.run(&cdb).fails(5, 0x24, 0);
}

#[test]
fn pi_05_an_unprotected_unit_that_could_have_it_refuses_protect() {
    let mut disk = disk(ProtectionType::None);
    for opcode in [0x88, 0x89, 0x8a, 0x8f, 0x93] {
        disk.run(&cdb::sixteen(opcode, 0x20, 0, 1)).fails(5, 0x24, 0);
    }
}

/// Sets bits of the control mode page: byte, mask.
fn control(disk: &mut Disk, bits: &[(usize, u8, bool)]) {
    let page = disk.run(&cdb::mode_sense_10(0x0a, 0)).good().data;
    let mut list = vec![0; 8];
    list.extend(&page[page.len() - 12..]);
    for &(byte, mask, set) in bits {
        list[8 + byte] = list[8 + byte] & !mask | if set { mask } else { 0 };
    }
    disk.send(&[0x55, 0x10, 0, 0, 0, 0, 0, 0, list.len() as u8, 0], &list).good();
}

#[test]
fn pi_06_the_unit_makes_tuples_when_none_are_sent_and_rwwp_forbids_that() {
    for kind in KINDS {
        let mut disk = disk(kind);
        let data = [0x5a; 2 * BLOCK];
        disk.send(&cdb::write(0x80, 2), &data).good();
        for (i, tuple) in disk.tuples[0x80..0x82].iter().enumerate() {
            assert_eq!(tuple.guard, crc16_t10dif(&data[..BLOCK]));
            assert!(!kind.escapes(*tuple), "a tuple that is made never turns checks off");
            if kind == ProtectionType::Type1 {
                assert_eq!(tuple.ref_tag, 0x80 + i as u32);
            }
        }
        control(&mut disk, &[(5, 0x10, true)]);
        disk.send(&cdb::write(0x80, 2), &data).fails(5, 0x24, 0);
        disk.run(&cdb::read(0x80, 2)).good();
    }
}

#[test]
fn pi_07_a_read_without_tuples_checks_them_unless_dpicz() {
    let mut disk = disk(ProtectionType::Type1);
    disk.send(&cdb::write(8, 1), &[1; BLOCK]).good();
    disk.data[8 * BLOCK + 99] ^= 1;
    let answer = disk.run(&cdb::read(7, 3)).fails(0xb, 0x10, 1);
    assert_eq!(answer.sense.unwrap().information, Some(8));
    control(&mut disk, &[(2, 0x08, true)]);
    assert_eq!(disk.run(&cdb::read(7, 3)).good().data.len(), 3 * BLOCK);
    disk.run(&cdb::sixteen(0x88, 0x20, 7, 3)).fails(0xb, 0x10, 1);
    // The same for VERIFY and ORWRITE.
    disk.run(&cdb::sixteen(0x8f, 0, 7, 3)).good();
    disk.run(&cdb::sixteen(0x8f, 0x20, 7, 3)).fails(0xb, 0x10, 1);
    disk.send(&cdb::sixteen(0x8b, 0, 8, 1), &[0; BLOCK]).good();
    disk.data[8 * BLOCK + 99] ^= 1;
    control(&mut disk, &[(2, 0x08, false)]);
    disk.run(&cdb::sixteen(0x8f, 0, 7, 3)).fails(0xb, 0x10, 1);
    disk.send(&cdb::sixteen(0x8b, 0, 8, 1), &[0; BLOCK]).fails(0xb, 0x10, 1);
}

#[test]
fn pi_08_escapes_turn_the_checks_of_their_block_off() {
    for kind in KINDS {
        let mut out = sealed(kind, 0, 3);
        out[WIRE + BLOCK..2 * WIRE].copy_from_slice(&[0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        let mut disk = disk(kind);
        disk.send(&command(kind, What::Write, 1, 0, 3), &out).good();
        assert_eq!(disk.run(&command(kind, What::Read, 1, 0, 3)).good().data, out);
        // The application tag alone disables the checks except in type 3, and not for the next block.
        out[WIRE + BLOCK + 4] = 0;
        let answer = disk.send(&command(kind, What::Write, 1, 0, 3), &out);
        match kind {
            ProtectionType::Type3 => drop(answer.fails(0xb, 0x10, 1)),
            _ => drop(answer.good()),
        }
        spoil(&mut out, 2, 0);
        out[WIRE + BLOCK + 4] = 0xff;
        disk.send(&command(kind, What::Write, 1, 0, 3), &out).fails(0xb, 0x10, 1);
    }
}

#[test]
fn pi_09_the_guard_is_named_before_the_tags() {
    let kind = ProtectionType::Type2;
    let mut out = sealed(kind, 4, 2);
    for (field, ascq) in [(2, 3), (1, 2), (0, 1)] {
        spoil(&mut out, 1, field);
        let answer = disk(kind).send(&command(kind, What::Write, 1, 4, 2), &out).fails(0xb, 0x10, ascq);
        assert_eq!(answer.sense.unwrap().information, Some(5));
    }
}

#[test]
fn pi_10_the_mask_says_which_bits_of_the_application_tag_count() {
    let kind = ProtectionType::Type2;
    let mut disk = disk(kind);
    let out = sealed(kind, 0, 1); // application tag 1234
    let write = |app, mask| long(0x0b, 0x20, 0, 1, (INITIAL, app, mask));
    disk.send(&write(0x1299, 0xff00), &out).good();
    disk.send(&write(0xffff, 0), &out).good();
    disk.send(&write(0x1235, 0x0001), &out).fails(0xb, 0x10, 2);
    // ATO 0: hosts do not own the application tags, so the expected one in the CDB is ignored.
    control(&mut disk, &[(5, 0x80, false)]);
    disk.send(&write(0x1235, 0x0001), &out).good();
}

#[test]
fn pi_11_blocks_travel_with_their_tuples_and_count_so() {
    let kind = ProtectionType::Type1;
    let mut disk = disk(kind);
    let out = sealed(kind, 0x10, 3);
    assert_eq!(disk.send(&command(kind, What::Write, 1, 0x10, 3), &out).good().transfer_bytes, 3 * 520);
    let answer = disk.run(&command(kind, What::Read, 3, 0x10, 3)).good();
    assert_eq!((answer.transfer_bytes, answer.data), (3 * 520, out.clone()));
    // A whole block includes its tuple.
    let answer = disk.send(&command(kind, What::Write, 1, 0x10, 3), &out[..2 * WIRE]).good();
    assert_eq!(answer.ops, [MediumOp::Write { lba: 0x10, blocks: 2, durable: false }]);
    disk.send(&command(kind, What::Write, 1, 0x10, 3), &out[..2 * BLOCK]).fails(5, 0x0e, 3);
}

#[test]
fn pi_12_write_same_counts_the_reference_tag_up() {
    for kind in KINDS {
        let mut disk = disk(kind);
        let one = sealed(kind, 0x20, 1);
        let cdb = match kind {
            ProtectionType::Type2 => long(0x0d, 0x20, 0x20, 5, (INITIAL, 0, 0)),
            _ => cdb::sixteen(0x93, 0x20, 0x20, 5),
        };
        assert_eq!(disk.send(&cdb, &one).good().transfer_bytes, 520);
        for i in 0..5 {
            let counted = if kind == ProtectionType::Type3 { 0 } else { i };
            assert_eq!(disk.tuples[0x20 + i as usize].ref_tag, ref_tag(kind, 0x20, 0).wrapping_add(counted));
        }
        let mut bad = one;
        spoil(&mut bad, 0, 0);
        disk.send(&cdb, &bad).fails(0xb, 0x10, 1);
    }
}

#[test]
fn pi_13_compare_and_write_takes_both_halves_with_tuples() {
    let kind = ProtectionType::Type1;
    let mut disk = disk(kind);
    let old = sealed(kind, 5, 1);
    disk.send(&command(kind, What::Write, 1, 5, 1), &old).good();
    let mut caw = cdb::compare_and_write(5, 1);
    caw[1] = 0x20;
    let answer = disk.send(&caw, &[old.clone(), old.clone()].concat()).good();
    assert_eq!(answer.transfer_bytes, 1040);
    disk.send(&caw, &[0; 1024]).fails(5, 0x0e, 3);
}

#[test]
fn pi_01_what_the_unit_says_of_its_protection_agrees() {
    for block_bytes in [512, 4096] {
        for (kind, bits) in [
            (ProtectionType::None, 0),
            (ProtectionType::Type1, 1),
            (ProtectionType::Type2, 3),
            (ProtectionType::Type3, 5),
        ] {
            let mut disk = Disk::with(LuConfig {
                medium: MediumConfig { block_bytes, ..large(kind, 64).medium },
                ..large(kind, 64)
            });
            assert_eq!(disk.run(&cdb::inquiry(None, 96)).good().data[5] & 1, 1);
            assert_eq!(disk.run(&cdb::inquiry(Some(0x86), 64)).good().data[4] & 0x3f, 0x3f);
            let capacity = disk.run(&cdb::sixteen(0x9e, 0x10, 0, 32)).good();
            assert_eq!((capacity.data[12], capacity.data[13] >> 4), (bits, 0));
        }
    }
    let mut plain = Disk::new();
    assert_eq!(plain.run(&cdb::inquiry(None, 96)).good().data[5] & 1, 0);
    assert_eq!(plain.run(&cdb::inquiry(Some(0x86), 64)).good().data[4], 0);
}

// covers: FMT-01 PI-15
#[test]
fn pi_14_format_unit_changes_the_type() {
    for (information, usage, kind) in [
        (0u8, 0u8, ProtectionType::None),
        (2, 0, ProtectionType::Type1),
        (3, 0, ProtectionType::Type2),
        (3, 1, ProtectionType::Type3),
    ] {
        let mut disk = disk(ProtectionType::Type1);
        let other = nexus("other");
        disk.attach(&other);
        disk.send(&cdb::write(0, 1), &[1; BLOCK]).good();
        let cdb = [0x04, information << 6 | 0x10, 0, 0, 0, 0];
        let answer = disk.send(&cdb, &[usage, 0, 0, 0]).good();
        assert_eq!(answer.ops.first(), Some(&MediumOp::Format(FormatMark::Begun)));
        assert_eq!(disk.mark, Some(FormatMark::Ended(kind)));
        assert_eq!(disk.lu.protection(), kind);
        assert_eq!(disk.lu.blocks(), support::BLOCKS, "the capacity stays");
        assert!(disk.tuples.iter().all(|tuple| *tuple == NEVER_WRITTEN));
        if kind != ProtectionType::Type1 {
            disk.run_as(&other, &[0; 6], &[]).fails(6, 0x2a, 9);
        }
        disk.run_as(&other, &[0; 6], &[]).good();
        if kind != ProtectionType::None {
            let data = disk.run(&command(kind, What::Read, 1, 0, 1)).good().data;
            assert_eq!(data[BLOCK..], [0xff; 8]);
        }
    }
    let mut disk = disk(ProtectionType::Type1);
    for (information, usage, asc) in
        [(1u8, 0u8, 0x24), (0, 1, 0x26), (2, 1, 0x26), (3, 2, 0x26), (3, 7, 0x26)]
    {
        disk.send(&[0x04, information << 6 | 0x10, 0, 0, 0, 0], &[usage, 0, 0, 0]).fails(5, asc, 0);
    }
    assert_eq!(disk.lu.protection(), ProtectionType::Type1);
    Disk::new().send(&[0x04, 0x90, 0, 0, 0, 0], &[0; 4]).fails(5, 0x24, 0);
}

#[test]
fn fmt_02_an_interrupted_format_leaves_the_unit_unusable_until_it_is_repeated() {
    let mut disk = Disk::with(LuConfig {
        medium: MediumConfig { format_interrupted: true, ..large(ProtectionType::Type1, 64).medium },
        ..large(ProtectionType::Type1, 64)
    });
    disk.run(&cdb::read(0, 1)).fails(3, 0x31, 0);
    disk.run(&[0; 6]).fails(3, 0x31, 0);
    disk.fault = Some(MediumError::Write { lba: None });
    disk.run(&[0x04, 0x80, 0, 0, 0, 0]).fails(3, 0x31, 0);
    disk.run(&cdb::read(0, 1)).fails(3, 0x31, 0);
    disk.run(&[0x04, 0x80, 0, 0, 0, 0]).good();
    disk.run(&cdb::read(0, 1)).good();
}
