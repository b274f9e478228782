//! WRITE SAME(10) and (16) (SBC-3 5.43, 5.44).

use crate::execution::{After, Execution, MediumPlan, Request, WriteKind, WritePlan};
use crate::medium::MediumOp;
use crate::outcome::Status;
use crate::read_write::{Fields, bytes_of, check_protect, check_range};
use crate::sense::SenseData;

/// ANCHOR and UNMAP in byte 1 of the CDB.
const ANCHOR_BIT: u8 = 4;
const UNMAP_BIT: u8 = 3;

//= sbc3 5.43 WSM-01 WSM-02
fn write_same(request: &Request<'_>, mut fields: Fields, no_data_out: bool) -> Execution {
    let lu = request.lu;
    let unmap = request.cdb.bit(1, UNMAP_BIT);
    let checked = check_protect(request.cdb).and_then(|()| {
        if request.cdb.bit(1, ANCHOR_BIT) {
            return Err(SenseData::cdb_field(1, Some(ANCHOR_BIT)));
        }
        if unmap && !lu.config().thin {
            return Err(SenseData::cdb_field(1, Some(UNMAP_BIT)));
        }
        check_range(lu, fields.lba, fields.blocks)?;
        // WSNZ is 0: no number of blocks means all blocks to the end.
        if fields.blocks == 0 {
            fields.blocks = lu.blocks().saturating_sub(fields.lba);
        }
        if fields.blocks > lu.config().limits.max_write_same_blocks {
            return Err(SenseData::cdb_field(fields.length_at, None));
        }
        Ok(())
    });
    if let Err(sense) = checked {
        return Execution::check(sense);
    }
    let Fields { lba, blocks, .. } = fields;
    let durable = !lu.write_cache();
    if blocks == 0 {
        return Execution::good();
    }
    if no_data_out {
        let op = MediumOp::WriteSame { lba, blocks, unmap, zero: true, durable };
        return Execution::medium(
            op,
            MediumPlan { transfer_bytes: 0, good: Status::Good, after: After::End },
        );
    }
    Execution::write(WritePlan {
        kind: WriteKind::Same { unmap },
        lba,
        blocks,
        durable,
        bytes: bytes_of(lu, 1),
    })
}

pub(crate) fn write_same_10(request: &Request<'_>) -> Execution {
    write_same(request, Fields::ten(request.cdb), false)
}

pub(crate) fn write_same_16(request: &Request<'_>) -> Execution {
    write_same(request, Fields::sixteen(request.cdb), request.cdb.bit(1, 0))
}
