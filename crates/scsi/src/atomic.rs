//! Read-modify-write and all-or-nothing writes: COMPARE AND WRITE, ORWRITE(16), WRITE ATOMIC(16) (SBC-3 5.2, 5.6;
//! SBC-4 5.43).

use crate::execution::{Execution, Request, WriteKind, WritePlan};
use crate::read_write::{Fields, bytes_of, check_access, check_protect, check_range, write_blocks};
use crate::sense::SenseData;

//= sbc3 5.2 CAW-01 CAW-03
pub(crate) fn compare_and_write(request: &Request<'_>) -> Execution {
    let lu = request.lu;
    let lba = request.cdb.u64(2);
    let blocks = u64::from(request.cdb.u8(13));
    let checked = check_protect(request.cdb).and_then(|()| {
        check_range(lu, lba, blocks)?;
        if blocks > u64::from(lu.config().limits.max_compare_and_write_blocks) {
            return Err(SenseData::cdb_field(13, None));
        }
        Ok(())
    });
    if let Err(sense) = checked {
        return Execution::check(sense);
    }
    // No blocks is no operation; but data for them means a count that did not fit the field.
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
        bytes: bytes_of(lu, 2 * blocks),
    })
}

//= sbc3 5.6 ORW-01
pub(crate) fn or_write_16(request: &Request<'_>) -> Execution {
    write_blocks(request, Fields::sixteen(request.cdb), WriteKind::OrWrite, request.cdb.bit(1, 3), true)
}

/// Only without atomic boundaries: the whole transfer is one atomic operation.
//= sbc4 5.43 ATM-01
pub(crate) fn write_atomic_16(request: &Request<'_>) -> Execution {
    let fields = Fields { lba: request.cdb.u64(2), blocks: u64::from(request.cdb.u16(12)), length_at: 12 };
    if let Err(sense) = check_access(request, fields, true) {
        return Execution::check(sense);
    }
    if request.cdb.u16(10) != 0 {
        return Execution::check(SenseData::cdb_field(10, None));
    }
    if fields.blocks > u64::from(request.lu.config().limits.max_atomic_blocks) {
        return Execution::check(SenseData::cdb_field(12, None));
    }
    write_blocks(request, fields, WriteKind::Atomic, request.cdb.bit(1, 3), true)
}
