//! READ and WRITE in their 6, 10, 12, 16 and 32 byte forms (SBC-3 5.8 to 5.12, 5.32 to 5.36).

use crate::cdb::Cdb;
use crate::execution::{After, Execution, MediumPlan, Request, WriteKind, WritePlan};
use crate::logical_unit::LogicalUnit;
use crate::medium::MediumOp;
use crate::outcome::{Outcome, Status};
use crate::protection::{ExpectedTags, Protect, ProtectField, Protection, ProtectionType};
use crate::sense::{Asc, SenseData};

/// The fields that medium access commands share, whatever the length of their CDB.
//= sbc3 5.8 CDB-08
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields {
    pub(crate) lba: u64,
    pub(crate) blocks: u64,
    /// Where TRANSFER LENGTH starts in the CDB.
    pub(crate) length_at: u16,
    /// The byte with PROTECT, DPO and FUA, if there is one.
    pub(crate) flags_at: Option<u16>,
    /// The tags that a 32-byte CDB expects.
    pub(crate) tags: Option<ExpectedTags>,
}

impl Fields {
    pub(crate) fn six(cdb: &Cdb) -> Self {
        let blocks = match cdb.u8(4) {
            0 => 256,
            blocks => u64::from(blocks),
        };
        Self { lba: u64::from(cdb.u24(1) & 0x1f_ffff), blocks, length_at: 4, flags_at: None, tags: None }
    }

    pub(crate) fn ten(cdb: &Cdb) -> Self {
        Self {
            lba: u64::from(cdb.u32(2)),
            blocks: u64::from(cdb.u16(7)),
            length_at: 7,
            flags_at: Some(1),
            tags: None,
        }
    }

    pub(crate) fn twelve(cdb: &Cdb) -> Self {
        Self {
            lba: u64::from(cdb.u32(2)),
            blocks: u64::from(cdb.u32(6)),
            length_at: 6,
            flags_at: Some(1),
            tags: None,
        }
    }

    pub(crate) fn sixteen(cdb: &Cdb) -> Self {
        Self { lba: cdb.u64(2), blocks: u64::from(cdb.u32(10)), length_at: 10, flags_at: Some(1), tags: None }
    }

    //= sbc3 5.12 CDB-06 PI-03
    pub(crate) fn thirty_two(cdb: &Cdb) -> Self {
        let tags = ExpectedTags { ref_tag: cdb.u32(20), app_tag: cdb.u16(24), app_mask: cdb.u16(26) };
        let blocks = u64::from(cdb.u32(28));
        Self { lba: cdb.u64(12), blocks, length_at: 28, flags_at: Some(10), tags: Some(tags) }
    }

    /// A bit of the flags byte.
    pub(crate) fn flag(&self, cdb: &Cdb, bit: u8) -> bool {
        self.flags_at.is_some_and(|at| cdb.bit(usize::from(at), bit))
    }

    pub(crate) fn protection(
        &self,
        request: &Request<'_>,
        field: ProtectField,
    ) -> Result<Option<Protection>, SenseData> {
        Protect { field, at: self.flags_at, lba: self.lba, tags: self.tags }.resolve(request.lu, request.cdb)
    }
}

/// Rejects a range that does not lie within the unit; INFORMATION is the first address that does not exist.
//= sbc3 4.17.1 CDB-03
pub(crate) fn check_range(lu: &LogicalUnit, lba: u64, blocks: u64) -> Result<(), SenseData> {
    let capacity = lu.blocks();
    match lba.checked_add(blocks) {
        Some(end) if end <= capacity => Ok(()),
        _ => Err(SenseData::illegal(Asc::LBA_OUT_OF_RANGE).with_information(lba.max(capacity))),
    }
}

/// Rejects a transfer length above the limit of VPD page B0h.
//= sbc3 6.6.4 CDB-04
pub(crate) fn check_length(fields: Fields, limit: u64) -> Result<(), SenseData> {
    if fields.blocks > limit { Err(SenseData::cdb_field(fields.length_at, None)) } else { Ok(()) }
}

fn transfer_limit(lu: &LogicalUnit) -> u64 {
    u64::from(lu.config().limits.max_transfer_blocks)
}

/// Checks a command's PROTECT, LBA and TRANSFER LENGTH, in that order.
pub(crate) fn check_access(
    request: &Request<'_>,
    fields: Fields,
    field: ProtectField,
) -> Result<Option<Protection>, SenseData> {
    let protection = fields.protection(request, field)?;
    check_range(request.lu, fields.lba, fields.blocks)?;
    check_length(fields, transfer_limit(request.lu))?;
    Ok(protection)
}

/// Bytes of `blocks` blocks on the wire. Both factors are bounded by the transfer limit, so the product of checked fields cannot
/// overflow.
pub(crate) fn wire_bytes(lu: &LogicalUnit, blocks: u64, protection: Option<&Protection>) -> u64 {
    let block =
        protection.map_or(lu.block_bytes(), |protection| protection.wire_block_bytes(lu.block_bytes()));
    blocks.saturating_mul(u64::from(block))
}

/// FUA, in the flags byte.
const FUA_BIT: u8 = 3;

fn read(request: &Request<'_>, fields: Fields) -> Execution {
    let protection = match check_access(request, fields, ProtectField::Read) {
        Ok(protection) => protection,
        Err(sense) => return Execution::check(sense),
    };
    let Fields { lba, blocks, .. } = fields;
    if blocks == 0 {
        return Execution::good();
    }
    //= sbc3 5.9 CDB-07
    let (op, after) = match fields.flag(request.cdb, FUA_BIT) && request.lu.write_cache() {
        true => (MediumOp::Flush, After::Read { lba, blocks }),
        false => (MediumOp::Read { lba, blocks }, After::End),
    };
    let plan = MediumPlan {
        transfer_bytes: wire_bytes(request.lu, blocks, protection.as_ref()),
        good: Status::Good,
        after,
    };
    Execution::medium(op, plan).protected(protection)
}

pub(crate) fn read_6(request: &Request<'_>) -> Execution {
    read(request, Fields::six(request.cdb))
}

/// The blocks that a 10-byte or 16-byte READ or WRITE addresses, as first block and number, before any check: a hint for callers
/// that can use the time until the command starts.
pub fn blocks_ahead(cdb: &[u8]) -> Option<(u64, u64)> {
    match cdb {
        [0x28 | 0x2a, _, lba @ .., _] if cdb.len() >= 10 => {
            let lba = u32::from_be_bytes(*lba.first_chunk()?);
            Some((lba.into(), u16::from_be_bytes([cdb[7], cdb[8]]).into()))
        }
        [0x88 | 0x8a, _, lba @ .., _] if cdb.len() >= 16 => {
            let blocks = u32::from_be_bytes(*cdb[10..].first_chunk()?);
            Some((u64::from_be_bytes(*lba.first_chunk()?), blocks.into()))
        }
        _ => None,
    }
}

pub(crate) fn read_10(request: &Request<'_>) -> Execution {
    read(request, Fields::ten(request.cdb))
}

pub(crate) fn read_12(request: &Request<'_>) -> Execution {
    read(request, Fields::twelve(request.cdb))
}

pub(crate) fn read_16(request: &Request<'_>) -> Execution {
    read(request, Fields::sixteen(request.cdb))
}

pub(crate) fn read_32(request: &Request<'_>) -> Execution {
    type_2_only(request, |request| read(request, Fields::thirty_two(request.cdb)))
}

/// The 32-byte commands are supported only while the unit has protection information of type 2.
//= sbc3 5.12 PI-03
pub(crate) fn type_2_only(request: &Request<'_>, run: impl FnOnce(&Request<'_>) -> Execution) -> Execution {
    if request.lu.protection() != ProtectionType::Type2 {
        return Execution::check(SenseData::illegal(Asc::INVALID_OPERATION_CODE));
    }
    run(request)
}

/// A command that writes, or compares, data-out. All of it is transferred except that VERIFY with BYTCHK 11b sends one block.
pub(crate) fn write_blocks(request: &Request<'_>, fields: Fields, kind: WriteKind) -> Execution {
    let compares = matches!(kind, WriteKind::Compare | WriteKind::CompareOneBlock);
    let field = match kind {
        _ if compares => ProtectField::Verify,
        WriteKind::OrWrite | WriteKind::AndWrite(_) => ProtectField::Or,
        _ => ProtectField::Write,
    };
    let protection = match check_access(request, fields, field) {
        Ok(protection) => protection,
        Err(sense) => return Execution::check(sense),
    };
    if fields.blocks == 0 {
        return Execution::done(Outcome::good());
    }
    // WRITE AND VERIFY reads back what has reached the medium, so its write is always durable.
    let through =
        matches!(kind, WriteKind::WriteAndVerify { .. }) || (!compares && fields.flag(request.cdb, FUA_BIT));
    let sent = if matches!(kind, WriteKind::CompareOneBlock) { 1 } else { fields.blocks };
    Execution::write(WritePlan {
        kind,
        lba: fields.lba,
        blocks: fields.blocks,
        //= sbc3 4.15 CDB-07 MOD-03
        durable: through || !request.lu.write_cache(),
        bytes: wire_bytes(request.lu, sent, protection.as_ref()),
    })
    .protected(protection)
}

pub(crate) fn write_6(request: &Request<'_>) -> Execution {
    write_blocks(request, Fields::six(request.cdb), WriteKind::Write)
}

pub(crate) fn write_10(request: &Request<'_>) -> Execution {
    write_blocks(request, Fields::ten(request.cdb), WriteKind::Write)
}

pub(crate) fn write_12(request: &Request<'_>) -> Execution {
    write_blocks(request, Fields::twelve(request.cdb), WriteKind::Write)
}

pub(crate) fn write_16(request: &Request<'_>) -> Execution {
    write_blocks(request, Fields::sixteen(request.cdb), WriteKind::Write)
}

pub(crate) fn write_32(request: &Request<'_>) -> Execution {
    type_2_only(request, |request| write_blocks(request, Fields::thirty_two(request.cdb), WriteKind::Write))
}

#[cfg(test)]
mod tests {
    use super::blocks_ahead;

    #[test]
    fn plain_reads_and_writes_name_their_blocks_early() {
        let ten = [0x28, 0xff, 1, 2, 3, 4, 0xff, 5, 6, 0xff];
        assert_eq!(blocks_ahead(&ten), Some((0x0102_0304, 0x0506)));
        assert_eq!(blocks_ahead(&ten[..9]), None, "it is cut short");
        let mut sixteen = [0x8a, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0];
        assert_eq!(blocks_ahead(&sixteen), Some((0x0102_0304_0506_0708, 0x090a_0b0c)));
        sixteen[0] = 0x93; // WRITE SAME
        assert_eq!(blocks_ahead(&sixteen), None);
        assert_eq!(blocks_ahead(&[]), None);
    }
}
