//! COMPARE AND WRITE, and all-or-nothing writes: WRITE ATOMIC(16) and (32) (SBC-3 5.2; SBC-4 5.48, 5.49).

use crate::execution::{Execution, Request, WriteKind, WritePlan};
use crate::protection::ProtectField;
use crate::read_write::{Fields, check_access, check_range, type_2_only, wire_bytes, write_blocks};
use crate::sense::SenseData;

//= sbc3 5.2 CAW-01 CAW-03
pub(crate) fn compare_and_write(request: &Request<'_>) -> Execution {
    let lu = request.lu;
    let lba = request.cdb.u64(2);
    let blocks = u64::from(request.cdb.u8(13));
    let fields = Fields { lba, blocks, length_at: 13, flags_at: Some(1), tags: None };
    let checked = fields.protection(request, ProtectField::Write).and_then(|protection| {
        check_range(lu, lba, blocks)?;
        if blocks > u64::from(lu.config().limits.max_compare_and_write_blocks) {
            return Err(SenseData::cdb_field(13, None));
        }
        Ok(protection)
    });
    let protection = match checked {
        Ok(protection) => protection,
        Err(sense) => return Execution::check(sense),
    };
    // A count of zero means no operation; but if data is offered, the count did not fit the field.
    if blocks == 0 && request.offered > 0 {
        return Execution::check(SenseData::cdb_field(13, None));
    }
    if blocks == 0 {
        return Execution::good();
    }
    Execution::write(WritePlan {
        kind: WriteKind::CompareAndWrite,
        lba,
        blocks,
        durable: request.cdb.bit(1, 3) || !lu.write_cache(),
        bytes: wire_bytes(lu, 2 * blocks, protection.as_ref()),
    })
    .protected(protection)
}

/// Atomic boundaries are not supported: the whole transfer is one atomic operation.
//= sbc4 5.43 ATM-01
fn write_atomic(request: &Request<'_>, fields: Fields, boundary_at: u16) -> Execution {
    if let Err(sense) = check_access(request, fields, ProtectField::Write) {
        return Execution::check(sense);
    }
    if request.cdb.u16(usize::from(boundary_at)) != 0 {
        return Execution::check(SenseData::cdb_field(boundary_at, None));
    }
    if fields.blocks > u64::from(request.lu.config().limits.max_atomic_blocks) {
        return Execution::check(SenseData::cdb_field(fields.length_at, None));
    }
    write_blocks(request, fields, WriteKind::Atomic)
}

pub(crate) fn write_atomic_16(request: &Request<'_>) -> Execution {
    let (lba, blocks) = (request.cdb.u64(2), u64::from(request.cdb.u16(12)));
    let fields = Fields { lba, blocks, length_at: 12, flags_at: Some(1), tags: None };
    write_atomic(request, fields, 10)
}

pub(crate) fn write_atomic_32(request: &Request<'_>) -> Execution {
    type_2_only(request, |request| write_atomic(request, Fields::thirty_two(request.cdb), 4))
}
