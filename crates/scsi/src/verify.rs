//! VERIFY and WRITE AND VERIFY (SBC-3 5.28 to 5.31, 5.36 to 5.39).

use crate::execution::{Execution, MediumPlan, Request, WriteKind};
use crate::medium::MediumOp;
use crate::protection::ProtectField;
use crate::read_write::{Fields, check_access, type_2_only, write_blocks};
use crate::sense::SenseData;

fn verify(request: &Request<'_>, fields: Fields) -> Execution {
    let at = fields.flags_at.unwrap_or(1);
    match request.cdb.u8(usize::from(at)) >> 1 & 3 {
        0 => verify_medium(request, fields),
        1 => write_blocks(request, fields, WriteKind::Compare),
        3 => write_blocks(request, fields, WriteKind::CompareOneBlock),
        _ => Execution::check(SenseData::cdb_field(at, Some(2))),
    }
}

fn verify_medium(request: &Request<'_>, fields: Fields) -> Execution {
    let Fields { lba, blocks, .. } = fields;
    match check_access(request, fields, ProtectField::Verify) {
        Err(sense) => Execution::check(sense),
        Ok(_) if blocks == 0 => Execution::good(),
        Ok(protection) => {
            Execution::medium(MediumOp::Verify { lba, blocks }, MediumPlan::report()).protected(protection)
        }
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

pub(crate) fn verify_32(request: &Request<'_>) -> Execution {
    type_2_only(request, |request| verify(request, Fields::thirty_two(request.cdb)))
}

fn write_and_verify(request: &Request<'_>, fields: Fields) -> Execution {
    let bytchk = fields.flag(request.cdb, 1);
    write_blocks(request, fields, WriteKind::WriteAndVerify { bytchk })
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

pub(crate) fn write_and_verify_32(request: &Request<'_>) -> Execution {
    type_2_only(request, |request| write_and_verify(request, Fields::thirty_two(request.cdb)))
}
