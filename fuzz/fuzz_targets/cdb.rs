//! Any CDB and any follow-up into a logical unit: it ends after few steps, only requests ranges that exist on the medium,
//! and its answers respect the allocation length and give the reason for a rejection.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use scsi::{MediumConfig, 
    DataInSource, DataOut, LbaStatusDescriptor, LogicalUnit, LuConfig, MediumError, MediumOp, MediumReply,
    Nexus, Paths, ProtectionType, Provisioning, Status, Step,
};

const BLOCKS: u64 = 1 << 20;

/// Takes up to `n` bytes from the front.
fn take<'a>(rest: &mut &'a [u8], n: usize) -> &'a [u8] {
    let (taken, after) = rest.split_at(n.min(rest.len()));
    *rest = after;
    taken
}

fn byte(rest: &mut &[u8]) -> u8 {
    take(rest, 1).first().copied().unwrap_or(0)
}

fn check_range(lba: u64, blocks: u64) {
    assert!(blocks > 0 && lba < BLOCKS && blocks <= BLOCKS - lba, "{lba}+{blocks} is not on the medium");
}

fn check_op(lu: &LogicalUnit, op: &MediumOp) {
    match op {
        MediumOp::Read { lba, blocks }
        | MediumOp::Write { lba, blocks, .. }
        | MediumOp::WriteAtomic { lba, blocks, .. }
        | MediumOp::OrWrite { lba, blocks, .. }
        | MediumOp::Verify { lba, blocks }
        | MediumOp::Compare { lba, blocks, .. }
        | MediumOp::WriteAndVerify { lba, blocks, .. } => {
            check_range(*lba, *blocks);
            assert!(*blocks <= u64::from(lu.config().limits.max_transfer_blocks));
        }
        MediumOp::WriteSame { lba, blocks, unmap, zero, .. } => {
            check_range(*lba, *blocks);
            assert!(!unmap || *zero);
        }
        MediumOp::Fill { lba, blocks, pattern, .. } => {
            check_range(*lba, *blocks);
            assert_eq!(pattern.len(), lu.block_bytes() as usize);
        }
        MediumOp::CompareAndWrite { lba, blocks, .. } => check_range(*lba, *blocks),
        MediumOp::Unmap { ranges, .. } => {
            assert!(!ranges.is_empty() && ranges.len() <= 256);
            ranges.iter().for_each(|(lba, blocks)| check_range(*lba, *blocks));
        }
        MediumOp::LbaStatus { lba, max_descriptors } => {
            assert!(*lba < BLOCKS && *max_descriptors >= 1);
        }
        MediumOp::Prefetch { lba, blocks } => check_range(*lba, *blocks),
        MediumOp::Copy { from_lba, lba, blocks, .. } => {
            check_range(*from_lba, *blocks);
            check_range(*lba, *blocks);
        }
        MediumOp::Flush | MediumOp::Settle | MediumOp::Format(_) => {}
    }
}

fn reply(op: &MediumOp, choice: u8) -> Result<MediumReply, MediumError> {
    match choice {
        0 => Err(MediumError::Read { lba: Some(7) }),
        1 => Err(MediumError::Write { lba: None }),
        2 => Err(MediumError::NoSpace),
        3 => Err(MediumError::Gone),
        4 => Ok(MediumReply::Miscompare { byte_offset: 513 }),
        _ => Ok(match op {
            MediumOp::Read { .. } => MediumReply::Data,
            MediumOp::LbaStatus { lba, .. } => MediumReply::LbaStatus(vec![LbaStatusDescriptor {
                lba: *lba,
                blocks: 8,
                provisioning: Provisioning::Deallocated,
            }]),
            _ => MediumReply::Done,
        }),
    }
}

fuzz_target!(|input: &[u8]| {
    let mut rest = input;
    let choice = byte(&mut rest);
    let lu = LogicalUnit::new(LuConfig {
medium: MediumConfig { blocks: BLOCKS, thin: choice & 1 == 0, read_only: choice & 6 == 6, block_bytes: if choice & 8 == 0 { 512 } else { 4096 }, physical_block_bytes: 4096, sanitize: choice & 64 == 0, protectable: choice & 128 == 0, protection: [ProtectionType::Type1, ProtectionType::Type2][usize::from(choice & 1)], ..MediumConfig::default() },
        token_secret: (choice & 32 == 0).then_some([1; 32]),
        paths: Paths { explicit_access_states: choice & 64 == 0, ..Paths::default() },
        ..LuConfig::default()
     });
    let nexuses = [
        Nexus::new("iqn.2025-01.org.example:a,i,0x00023d000001", 1, 1),
        Nexus::new("iqn.2025-01.org.example:b,i,0x00023d000002", 1, 1),
    ];
    nexuses.iter().for_each(|nexus| lu.attach_nexus(nexus));
    if choice & 16 != 0 {
        for nexus in &nexuses {
            let _ = lu.begin(nexus, &[0; 16]);
        }
    }
    while !rest.is_empty() {
        let control = byte(&mut rest);
        let nexus = &nexuses[usize::from(control & 1)];
        let len = [16, 16, 6, 32][usize::from(control >> 1 & 3)];
        let mut cdb = take(&mut rest, len).to_vec();
        if control & 8 == 0 {
            cdb.resize(cdb.len().max(16), 0);
        }
        if cdb.is_empty() {
            break;
        }
        let mut execution = lu.begin(nexus, &cdb);
        for steps in 0.. {
            // A copy has at most 64 segments, each with at most 256 pieces.
            assert!(steps < 20_000, "a command that never ends: {cdb:02x?}");
            match execution.step().clone() {
                Step::NeedDataOut { bytes } => {
                    assert!(bytes > 0);
                    let arrives = (usize::from(byte(&mut rest)) * 4).min(bytes as usize);
                    let mut data = take(&mut rest, arrives).to_vec();
                    data.resize(arrives, 0);
                    // Whole blocks sometimes.
                    if control & 16 != 0 {
                        data.resize((bytes as usize).min(64 << 10), 0);
                    }
                    let (a, b) = data.split_at(data.len() / 2);
                    execution.data_out(&lu, &DataOut::new(&[a, b]));
                }
                Step::Medium(op) => {
                    check_op(&lu, &op);
                    execution.medium_done(&lu, reply(&op, byte(&mut rest) % 16));
                }
                Step::Done(outcome) => {
                    if let Some(rest) = execution.take_remainder() {
                        assert_eq!(outcome.status, Status::Good);
                        assert!(matches!(rest.step(), Step::Medium(_)));
                    }
                    assert_eq!(outcome.status == Status::CheckCondition, outcome.sense.is_some());
                    if let Some(sense) = outcome.sense_bytes() {
                        assert!((8..=252).contains(&sense.len()));
                    }
                    if let DataInSource::Bytes(data) = &outcome.data_in {
                        assert!(!Bytes::is_empty(data) && data.len() <= 1 << 16);
                    }
                    break;
                }
            }
        }
    }
    if let Some(state) = lu.export_persistent() {
        lu.import_persistent(&state);
    }
});
