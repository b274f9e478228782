//! READ and WRITE in their 6, 10, 12 and 16 byte forms (SBC-3 5.8 to 5.11, 5.32 to 5.35).

use crate::cdb::Cdb;
use crate::execution::{After, Execution, MediumPlan, Request, WriteKind, WritePlan};
use crate::logical_unit::LogicalUnit;
use crate::medium::MediumOp;
use crate::outcome::{Outcome, Status};
use crate::sense::{Asc, SenseData};

/// The fields that medium access commands share, whatever the length of their CDB.
//= sbc3 5.8 CDB-08
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields {
    pub(crate) lba: u64,
    pub(crate) blocks: u64,
    /// Where TRANSFER LENGTH starts in the CDB.
    pub(crate) length_at: u16,
}

impl Fields {
    pub(crate) fn six(cdb: &Cdb) -> Self {
        let blocks = match cdb.u8(4) {
            0 => 256,
            blocks => u64::from(blocks),
        };
        Self { lba: u64::from(cdb.u24(1) & 0x1f_ffff), blocks, length_at: 4 }
    }

    pub(crate) fn ten(cdb: &Cdb) -> Self {
        Self { lba: u64::from(cdb.u32(2)), blocks: u64::from(cdb.u16(7)), length_at: 7 }
    }

    pub(crate) fn twelve(cdb: &Cdb) -> Self {
        Self { lba: u64::from(cdb.u32(2)), blocks: u64::from(cdb.u32(6)), length_at: 6 }
    }

    pub(crate) fn sixteen(cdb: &Cdb) -> Self {
        Self { lba: cdb.u64(2), blocks: u64::from(cdb.u32(10)), length_at: 10 }
    }
}

/// Refuses a range that does not lie within the unit; INFORMATION is the first address that does not exist.
//= sbc3 4.17.1 CDB-03
pub(crate) fn check_range(lu: &LogicalUnit, lba: u64, blocks: u64) -> Result<(), SenseData> {
    let capacity = lu.blocks();
    match lba.checked_add(blocks) {
        Some(end) if end <= capacity => Ok(()),
        _ => Err(SenseData::illegal(Asc::LBA_OUT_OF_RANGE).with_information(lba.max(capacity))),
    }
}

/// Refuses a transfer length above the limit of VPD page B0h.
//= sbc3 6.6.4 CDB-04
pub(crate) fn check_length(fields: Fields, limit: u64) -> Result<(), SenseData> {
    if fields.blocks > limit { Err(SenseData::cdb_field(fields.length_at, None)) } else { Ok(()) }
}

/// RDPROTECT, WRPROTECT, VRPROTECT: only 0 on a unit without protection information.
//= sbc3 4.22 PI-05
pub(crate) fn check_protect(cdb: &Cdb) -> Result<(), SenseData> {
    if cdb.u8(1) >> 5 != 0 { Err(SenseData::cdb_field(1, Some(7))) } else { Ok(()) }
}

fn transfer_limit(lu: &LogicalUnit) -> u64 {
    u64::from(lu.config().limits.max_transfer_blocks)
}

/// The checks of a command with PROTECT, LBA and TRANSFER LENGTH, in that order.
pub(crate) fn check_access(
    request: &Request<'_>,
    fields: Fields,
    has_protect: bool,
) -> Result<(), SenseData> {
    if has_protect {
        check_protect(request.cdb)?;
    }
    check_range(request.lu, fields.lba, fields.blocks)?;
    check_length(fields, transfer_limit(request.lu))
}

/// Bytes of `blocks` blocks. Both factors are bounded by the transfer limit, so this cannot wrap for checked fields.
pub(crate) fn bytes_of(lu: &LogicalUnit, blocks: u64) -> u64 {
    blocks.saturating_mul(u64::from(lu.block_bytes()))
}

fn read(request: &Request<'_>, fields: Fields, fua: bool, has_protect: bool) -> Execution {
    if let Err(sense) = check_access(request, fields, has_protect) {
        return Execution::check(sense);
    }
    let Fields { lba, blocks, .. } = fields;
    if blocks == 0 {
        return Execution::good();
    }
    let plan = MediumPlan {
        transfer_bytes: bytes_of(request.lu, blocks),
        good: Status::Good,
        after: if fua && request.lu.write_cache() { After::Read { lba, blocks } } else { After::End },
    };
    //= sbc3 5.9 CDB-07
    let op = if plan.after == After::End { MediumOp::Read { lba, blocks } } else { MediumOp::Flush };
    Execution::medium(op, plan)
}

pub(crate) fn read_6(request: &Request<'_>) -> Execution {
    read(request, Fields::six(request.cdb), false, false)
}

pub(crate) fn read_10(request: &Request<'_>) -> Execution {
    read(request, Fields::ten(request.cdb), request.cdb.bit(1, 3), true)
}

pub(crate) fn read_12(request: &Request<'_>) -> Execution {
    read(request, Fields::twelve(request.cdb), request.cdb.bit(1, 3), true)
}

pub(crate) fn read_16(request: &Request<'_>) -> Execution {
    read(request, Fields::sixteen(request.cdb), request.cdb.bit(1, 3), true)
}

/// A command that writes, or compares, as many blocks of data-out as it names.
pub(crate) fn write_blocks(
    request: &Request<'_>,
    fields: Fields,
    kind: WriteKind,
    fua: bool,
    has_protect: bool,
) -> Execution {
    if let Err(sense) = check_access(request, fields, has_protect) {
        return Execution::check(sense);
    }
    if fields.blocks == 0 {
        return Execution::done(Outcome::good());
    }
    Execution::write(WritePlan {
        kind,
        lba: fields.lba,
        blocks: fields.blocks,
        //= sbc3 4.15 CDB-07 MOD-03
        durable: fua || !request.lu.write_cache(),
        bytes: bytes_of(request.lu, fields.blocks),
    })
}

pub(crate) fn write_6(request: &Request<'_>) -> Execution {
    write_blocks(request, Fields::six(request.cdb), WriteKind::Write, false, false)
}

pub(crate) fn write_10(request: &Request<'_>) -> Execution {
    write_blocks(request, Fields::ten(request.cdb), WriteKind::Write, request.cdb.bit(1, 3), true)
}

pub(crate) fn write_12(request: &Request<'_>) -> Execution {
    write_blocks(request, Fields::twelve(request.cdb), WriteKind::Write, request.cdb.bit(1, 3), true)
}

pub(crate) fn write_16(request: &Request<'_>) -> Execution {
    write_blocks(request, Fields::sixteen(request.cdb), WriteKind::Write, request.cdb.bit(1, 3), true)
}
