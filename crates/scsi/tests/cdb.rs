//! Every CDB: reserved bits, unknown commands, allocation lengths, and the two REPORT SUPPORTED commands, which
//! must agree with what the device server does.
mod support;

use proptest::prelude::*;
use scsi::{
    DataOut, LuConfig, MediumConfig, MediumError, MediumReply, Paths, Status, Step, absent_lun, report_luns,
};
use support::{Disk, cdb, nexus};

/// REPORT SUPPORTED OPERATION CODES for all commands: (opcode, service action or none, CDB length).
fn supported(disk: &mut Disk) -> Vec<(u8, Option<u16>, usize)> {
    let data = disk.run(&[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0]).good().data;
    let length = u32::from_be_bytes(data[..4].try_into().unwrap()) as usize;
    assert_eq!(length, data.len() - 4);
    data[4..]
        .chunks(8)
        .map(|d| {
            let action = u16::from_be_bytes([d[2], d[3]]);
            assert_eq!(d[5] & 2, 0, "CTDP without RCTD");
            assert!(d[5] & 1 == 1 || action == 0);
            (d[0], (d[5] & 1 == 1).then_some(action), usize::from(d[7]))
        })
        .collect()
}

fn one_command(disk: &mut Disk, options: u8, opcode: u8, action: u16) -> support::Answer {
    let [hi, lo] = action.to_be_bytes();
    disk.run(&[0xa3, 0x0c, options, opcode, hi, lo, 0, 0, 0xff, 0xff, 0, 0])
}

fn usage(disk: &mut Disk, opcode: u8, action: Option<u16>) -> Vec<u8> {
    let options = if action.is_some() { 2 } else { 1 };
    let data = one_command(disk, options, opcode, action.unwrap_or(0)).good().data;
    assert_eq!(data[1], 3, "supported as the standard says");
    let length = usize::from(u16::from_be_bytes([data[2], data[3]]));
    assert_eq!(data.len(), 4 + length);
    data[4..].to_vec()
}

/// A unit that supports every command.
fn everything() -> LuConfig {
    LuConfig {
        medium: MediumConfig {
            sanitize: true,
            protectable: true,
            protection: scsi::ProtectionType::Type2,
            ..support::config().medium
        },
        token_secret: Some([7; 32]),
        paths: Paths { explicit_access_states: true, ..Paths::default() },
        ..support::config()
    }
}

/// A CDB of zeros that identifies a command.
fn naming(opcode: u8, action: Option<u16>, length: usize) -> Vec<u8> {
    let mut cdb = vec![0; length];
    cdb[0] = opcode;
    match action {
        Some(action) if opcode == 0x7f => {
            cdb[7] = 0x18;
            cdb[8..10].copy_from_slice(&action.to_be_bytes());
        }
        action => cdb[1] = action.unwrap_or(0) as u8,
    }
    cdb
}

#[test]
fn cdb_01_every_reserved_bit_is_refused_and_pointed_at() {
    every_reserved_bit(Disk::new());
    every_reserved_bit(Disk::with(everything()));
}

fn every_reserved_bit(mut disk: Disk) {
    for (opcode, action, length) in supported(&mut disk) {
        let usage = usage(&mut disk, opcode, action);
        assert_eq!((usage.len(), usage[0]), (length, opcode));
        for byte in 1..length {
            for bit in 0..8 {
                let in_action = match opcode {
                    0x7f => matches!(byte, 7..=9),
                    _ => action.is_some() && byte == 1 && bit < 5,
                };
                if in_action || usage[byte] >> bit & 1 == 1 {
                    continue;
                }
                let mut cdb = naming(opcode, action, length);
                cdb[byte] |= 1 << bit;
                let sense = disk.run(&cdb).fails(5, 0x24, 0).sense_bytes.unwrap();
                assert_eq!(&sense[15..18], &[0xc8 | bit as u8, 0, byte as u8], "{opcode:x} {byte}.{bit}");
            }
        }
        // A truncated CDB.
        let cdb = naming(opcode, action, length);
        disk.run(&cdb[..length - 1]).fails(5, 0x24, 0);
    }
}

#[test]
fn cdb_02_unknown_commands_and_service_actions() {
    let mut disk = Disk::new();
    let known = supported(&mut disk);
    for opcode in 0..=255u8 {
        let of_opcode: Vec<_> = known.iter().filter(|k| k.0 == opcode).collect();
        let mut cdb = [0; 32];
        cdb[0] = opcode;
        // A variable-length CDB holds its own length.
        cdb[7] = if opcode == 0x7f { 0x18 } else { 0 };
        if of_opcode.is_empty() {
            disk.run(&cdb).fails(5, 0x20, 0);
        } else if of_opcode[0].1.is_some() {
            for action in 0..32u8 {
                if !of_opcode.iter().any(|k| k.1 == Some(u16::from(action))) {
                    cdb[1] = action;
                    let sense = disk.run(&cdb).fails(5, 0x24, 0).sense_bytes.unwrap();
                    assert_eq!(&sense[15..18], &[0xcc, 0, 1]);
                }
            }
        }
    }
    disk.run(&[]).fails(5, 0x20, 0);
}

// covers: CDB-02
#[test]
fn an_absent_unit_answers_inquiry_and_request_sense_only() {
    for opcode in 0..=255u8 {
        let mut cdb = [0; 16];
        cdb[0] = opcode;
        cdb[4] = 36;
        let outcome = absent_lun(&cdb);
        match opcode {
            0x12 => {
                let scsi::DataInSource::Bytes(data) = outcome.data_in else { panic!("no data") };
                assert_eq!((outcome.status, data[0], data.len()), (Status::Good, 0x7f, 36));
            }
            0x03 => {
                let scsi::DataInSource::Bytes(data) = outcome.data_in else { panic!("no data") };
                assert_eq!((data[2], data[12], data[13]), (5, 0x25, 0));
            }
            _ => {
                let sense = outcome.sense.unwrap();
                assert_eq!((sense.key as u8, sense.asc.asc, sense.asc.ascq), (5, 0x25, 0));
            }
        }
    }
}

#[test]
fn cdb_05_allocation_lengths_cut_without_error() {
    let mut disk = Disk::new();
    let me = disk.nexus.clone();
    let mut register = vec![0; 24];
    register[15] = 7;
    disk.run_as(&me, &[0x5f, 6, 0, 0, 0, 0, 0, 0, 24, 0], &register).good();
    // (CDB, where the allocation length is, how many bytes it has)
    let commands: Vec<(Vec<u8>, usize, usize)> = vec![
        (cdb::inquiry(None, 0), 3, 2),
        (cdb::inquiry(Some(0x83), 0), 3, 2),
        (vec![0x03, 0, 0, 0, 0, 0], 4, 1),
        (vec![0x1a, 0, 0x3f, 0, 0, 0], 4, 1),
        (vec![0x5a, 0, 0x3f, 0, 0, 0, 0, 0, 0, 0], 7, 2),
        (cdb::sixteen(0x9e, 0x10, 0, 0), 10, 4),
        (cdb::sixteen(0x9e, 0x12, 0, 0), 10, 4),
        (vec![0x5e, 0, 0, 0, 0, 0, 0, 0, 0, 0], 7, 2),
        (vec![0x5e, 2, 0, 0, 0, 0, 0, 0, 0, 0], 7, 2),
        (vec![0x5e, 3, 0, 0, 0, 0, 0, 0, 0, 0], 7, 2),
        (vec![0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 6, 4),
        (vec![0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 6, 4),
        (vec![0x37, 0, 0x18, 0, 0, 0, 0, 0, 0, 0], 7, 2),
        (vec![0xb7, 0x18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 6, 4),
        (vec![0x1c, 1, 0, 0, 0, 0], 3, 2),
    ];
    for (cdb, at, len) in commands {
        let mut with = |allocation: u32| {
            let mut cdb = cdb.clone();
            cdb[at..at + len].copy_from_slice(&allocation.to_be_bytes()[4 - len..]);
            disk.run(&cdb).good().data
        };
        let whole = with(if len == 1 { 0xff } else { 0x7fff });
        assert!(!whole.is_empty());
        for allocation in [0, 1, whole.len() / 2, whole.len() - 1, whole.len()] {
            let data = with(allocation as u32);
            if cdb[1] == 0x12 && cdb[0] == 0x9e {
                assert!(data.len() <= allocation); // the number of descriptors follows the allocation length
            } else {
                assert_eq!(data, whole[..allocation], "{:x} {allocation}", cdb[0]);
            }
        }
    }
}

#[test]
fn report_luns_lists_the_target() {
    let cdb = |select: u8, allocation: u8| [0xa0, 0, select, 0, 0, 0, 0, 0, 0, allocation, 0, 0];
    let data = |outcome: scsi::Outcome| match outcome.data_in {
        scsi::DataInSource::Bytes(data) => data.to_vec(),
        _ => Vec::new(),
    };
    let all = data(report_luns(&[0, 255, 256, 16383], &cdb(0, 255)));
    assert_eq!(all[..4], [0, 0, 0, 32]);
    assert_eq!(all[8..10], [0, 0]);
    assert_eq!(all[16..18], [0, 255]);
    assert_eq!(all[24..26], [0x41, 0]);
    assert_eq!(all[32..34], [0x7f, 0xff]);
    assert_eq!(data(report_luns(&[0, 1], &cdb(2, 16))).len(), 16);
    assert_eq!(data(report_luns(&[0, 1], &cdb(1, 255))), [0; 8], "no well-known units");
    for wrong in [cdb(3, 255), cdb(0, 15)] {
        assert_eq!(report_luns(&[0], &wrong).status, Status::CheckCondition);
    }
    let mut disk = Disk::new();
    assert_eq!(disk.run(&cdb(0, 255)).good().data[8..10], [0, 3]);
}

#[test]
fn supported_opcodes_in_all_forms() {
    let mut disk = Disk::new();
    for (opcode, action, _) in supported(&mut disk) {
        match action {
            Some(action) => {
                one_command(&mut disk, 1, opcode, action).fails(5, 0x24, 0);
                assert_eq!(one_command(&mut disk, 3, opcode, action).good().data[1], 3);
                assert_eq!(one_command(&mut disk, 2, opcode, 0x1e).good().data, [0, 1, 0, 0]);
            }
            None => {
                one_command(&mut disk, 2, opcode, 0).fails(5, 0x24, 0);
                assert_eq!(one_command(&mut disk, 3, opcode, 0).good().data[1], 3);
            }
        }
    }
    assert_eq!(one_command(&mut disk, 1, 0xff, 0).good().data, [0, 1, 0, 0], "not supported");
    one_command(&mut disk, 4, 0, 0).fails(5, 0x24, 0);
    // RCTD: every descriptor has a timeouts descriptor.
    let data = disk.run(&[0xa3, 0x0c, 0x80, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0]).good().data;
    for descriptor in data[4..].chunks(20) {
        assert_eq!((descriptor[5] & 2, descriptor[8], descriptor[9]), (2, 0, 0x0a));
    }
    let data = one_command(&mut disk, 0x81, 0x12, 0).good().data;
    assert_eq!((data[1], data.len()), (0x83, 4 + 6 + 12));
    // A command that the configuration does not support is not reported.
    let mut fat = Disk::with(LuConfig {
        medium: MediumConfig { thin: false, ..support::config().medium },
        ..support::config()
    });
    assert!(supported(&mut fat).iter().all(|k| k.0 != 0x42));
    assert_eq!(one_command(&mut fat, 1, 0x42, 0).good().data, [0, 1, 0, 0]);
}

// covers: TSK-04
#[test]
fn supported_task_management_functions_are_those_of_the_configuration() {
    let mut disk = Disk::new();
    let cdb = |repd: u8, allocation: u8| [0xa3, 0x0d, repd, 0, 0, 0, 0, 0, 0, allocation, 0, 0];
    assert_eq!(disk.run(&cdb(0, 4)).good().data, [0xda, 0, 0, 0]);
    assert_eq!(disk.run(&cdb(0x80, 255)).good().data.len(), 16);
    disk.run(&cdb(0, 3)).fails(5, 0x24, 0);
}

/// Drives an execution to its end with arbitrary answers, right or wrong.
fn drive(disk: &Disk, cdb: &[u8], data: &[u8], mut answers: impl Iterator<Item = u8>) -> scsi::Outcome {
    let mut execution = disk.lu.begin(&disk.nexus, cdb);
    for _ in 0..64 {
        let answer = answers.next().unwrap_or(0);
        match execution.step() {
            Step::Done(outcome) => return outcome.clone(),
            Step::NeedDataOut { .. } if answer == 255 => {
                execution.medium_done(&disk.lu, Ok(MediumReply::Done));
            }
            Step::NeedDataOut { .. } => {
                let pieces = [data];
                execution.data_out(&disk.lu, &DataOut::new(&pieces));
            }
            Step::Medium(_) => {
                let result = match answer {
                    0..=99 => Ok(MediumReply::Done),
                    100..=149 => Ok(MediumReply::Data),
                    150..=179 => Ok(MediumReply::Miscompare { byte_offset: u64::MAX }),
                    180..=199 => Ok(MediumReply::LbaStatus(Vec::new())),
                    200..=219 => Err(MediumError::Read { lba: Some(u64::MAX) }),
                    220..=239 => Err(MediumError::NoSpace),
                    _ => Err(MediumError::Internal),
                };
                execution.medium_done(&disk.lu, result);
            }
        }
    }
    panic!("does not end: {cdb:x?}");
}

/// A CDB whose opcode is likely a known one and whose fields are likely small.
fn any_cdb() -> impl Strategy<Value = Vec<u8>> {
    let known: Vec<u8> = {
        let mut disk = Disk::with(everything());
        supported(&mut disk).iter().map(|k| k.0).collect()
    };
    let field = prop_oneof![3 => Just(0u8), 2 => 0u8..32, 1 => any::<u8>()];
    let opcode = prop_oneof![4 => proptest::sample::select(known), 1 => any::<u8>()];
    (opcode, proptest::collection::vec(field, 0..40)).prop_map(|(opcode, mut rest)| {
        rest.insert(0, opcode);
        rest
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(std::env::var("SCSI_CDB_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(2000)))]
    // covers: CDB-03
    #[test]
    fn any_cdb_with_any_data_ends(
        cdbs in proptest::collection::vec((any_cdb(), proptest::collection::vec(any::<u8>(), 0..600)), 1..8),
        answers in proptest::collection::vec(any::<u8>(), 0..8),
        all in any::<bool>(),
    ) {
        let mut disk = if all { Disk::with(everything()) } else { Disk::new() };
        let other = nexus("b");
        disk.attach(&other);
        for (cdb, data) in &cdbs {
            let outcome = drive(&disk, cdb, data, answers.iter().copied());
            prop_assert_eq!(outcome.sense.is_some(), outcome.status == Status::CheckCondition);
            prop_assert!(outcome.sense_bytes().is_none_or(|bytes| bytes.len() <= 252));
        }
    }
}

// covers: AHS-04 CDB-06
#[test]
fn ahs_04_a_variable_length_cdb_must_be_as_long_as_it_says() {
    let mut disk = Disk::new();
    let mut cdb = [0; 32];
    (cdb[0], cdb[7]) = (0x7f, 0x18);
    disk.run(&cdb).fails(5, 0x20, 0);
    disk.run(&cdb[..28]).fails(5, 0x24, 0);
    cdb[7] = 0x14;
    disk.run(&cdb).fails(5, 0x24, 0);
}

#[test]
fn data_out_is_as_long_as_its_pieces_together() {
    let empty = DataOut::new(&[&[], &[]]);
    assert!(empty.is_empty());
    assert_eq!(empty.len(), 0);
    let three = DataOut::new(&[&[1], &[], &[2, 3]]);
    assert!(!three.is_empty() && three.len() == 3);
}
