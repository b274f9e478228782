//! WRITE SAME(10), (16) and (32) (SBC-3 5.43 to 5.45).

use crate::execution::{Execution, MediumPlan, Request, WriteKind, WritePlan};
use crate::medium::MediumOp;
use crate::protection::ProtectField;
use crate::read_write::{Fields, check_range, type_2_only, wire_bytes};
use crate::sense::SenseData;

/// ANCHOR and UNMAP in byte 1 of the CDB.
const ANCHOR_BIT: u8 = 4;
const UNMAP_BIT: u8 = 3;

//= sbc3 5.43 WSM-01 WSM-02
fn write_same(request: &Request<'_>, mut fields: Fields, no_data_out: bool) -> Execution {
    let lu = request.lu;
    let unmap = fields.flag(request.cdb, UNMAP_BIT);
    let at = fields.flags_at.unwrap_or(1);
    let checked = fields.protection(request, ProtectField::Write).and_then(|protection| {
        if fields.flag(request.cdb, ANCHOR_BIT) {
            return Err(SenseData::cdb_field(at, Some(ANCHOR_BIT)));
        }
        if unmap && !lu.thin() {
            return Err(SenseData::cdb_field(at, Some(UNMAP_BIT)));
        }
        check_range(lu, fields.lba, fields.blocks)?;
        // WSNZ is 0: a number of blocks of 0 means all blocks to the end.
        if fields.blocks == 0 {
            fields.blocks = lu.blocks().saturating_sub(fields.lba);
        }
        if fields.blocks > lu.config().limits.max_write_same_blocks {
            return Err(SenseData::cdb_field(fields.length_at, None));
        }
        Ok(protection)
    });
    let protection = match checked {
        Ok(protection) => protection,
        Err(sense) => return Execution::check(sense),
    };
    let Fields { lba, blocks, .. } = fields;
    let durable = !lu.write_cache();
    if blocks == 0 {
        return Execution::good();
    }
    if no_data_out {
        let op = MediumOp::WriteSame { lba, blocks, unmap, zero: true, durable };
        return Execution::medium(op, MediumPlan::report()).protected(protection);
    }
    Execution::write(WritePlan {
        kind: WriteKind::Same { unmap },
        lba,
        blocks,
        durable,
        bytes: wire_bytes(lu, 1, protection.as_ref()),
    })
    .protected(protection)
}

pub(crate) fn write_same_10(request: &Request<'_>) -> Execution {
    write_same(request, Fields::ten(request.cdb), false)
}

pub(crate) fn write_same_32(request: &Request<'_>) -> Execution {
    type_2_only(request, |request| {
        write_same(request, Fields::thirty_two(request.cdb), request.cdb.bit(10, 0))
    })
}

pub(crate) fn write_same_16(request: &Request<'_>) -> Execution {
    write_same(request, Fields::sixteen(request.cdb), request.cdb.bit(1, 0))
}
