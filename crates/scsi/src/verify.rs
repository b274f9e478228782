//! VERIFY and WRITE AND VERIFY (SBC-3 5.28 to 5.30, 5.36 to 5.38).

use crate::execution::{After, Execution, MediumPlan, Request, WriteKind, WritePlan};
use crate::medium::MediumOp;
use crate::outcome::Status;
use crate::read_write::{Fields, bytes_of, check_access, write_blocks};
use crate::sense::SenseData;

fn verify(request: &Request<'_>, fields: Fields) -> Execution {
    let byte_check = request.cdb.u8(1) >> 1 & 3;
    if byte_check == 2 {
        return Execution::check(SenseData::cdb_field(1, Some(2)));
    }
    if let Err(sense) = check_access(request, fields, true) {
        return Execution::check(sense);
    }
    let Fields { lba, blocks, .. } = fields;
    if blocks == 0 {
        return Execution::good();
    }
    match byte_check {
        0 => Execution::medium(
            MediumOp::Verify { lba, blocks },
            MediumPlan { transfer_bytes: 0, good: Status::Good, after: After::End },
        ),
        1 => write_blocks(request, fields, WriteKind::Compare, false, true),
        _ => Execution::write(WritePlan {
            kind: WriteKind::CompareOneBlock,
            lba,
            blocks,
            durable: false,
            bytes: bytes_of(request.lu, 1),
        }),
    }
}

pub(crate) fn verify_10(request: &Request<'_>) -> Execution {
    verify(request, Fields::ten(request.cdb))
}

pub(crate) fn verify_12(request: &Request<'_>) -> Execution {
    verify(request, Fields::twelve(request.cdb))
}

pub(crate) fn verify_16(request: &Request<'_>) -> Execution {
    verify(request, Fields::sixteen(request.cdb))
}

/// The medium is read back after the write has reached it, so the write is always durable.
fn write_and_verify(request: &Request<'_>, fields: Fields) -> Execution {
    let bytchk = request.cdb.bit(1, 1);
    write_blocks(request, fields, WriteKind::WriteAndVerify { bytchk }, true, true)
}

pub(crate) fn write_and_verify_10(request: &Request<'_>) -> Execution {
    write_and_verify(request, Fields::ten(request.cdb))
}

pub(crate) fn write_and_verify_12(request: &Request<'_>) -> Execution {
    write_and_verify(request, Fields::twelve(request.cdb))
}

pub(crate) fn write_and_verify_16(request: &Request<'_>) -> Execution {
    write_and_verify(request, Fields::sixteen(request.cdb))
}
