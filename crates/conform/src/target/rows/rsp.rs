//! SCSI Responses (rows RSP).

use super::{clean, mixed_workload};
use crate::session::Command;
use crate::target::{Ctx, Row, RowResult};
use iscsi_wire::keys;

pub(super) const ROWS: &[Row] =
    &[Row::new("RSP-02", "ExpDataSN counts the Data-In and R2T that were sent", rsp_02)];

// covers: RSP-02
fn rsp_02(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let mut s = ctx.session_with(|script| {
        script.key(keys::MAX_BURST_LENGTH, "4096").key(keys::MAX_RECV_DATA_SEGMENT_LENGTH, "1024")
    })?;
    mixed_workload(ctx, &mut s)?;
    let read = Command::read_16(scratch.lba, 4, scratch.block_size).edtl(scratch.block_size * 5);
    s.run(&read)?;
    clean(&s, "RSP-02")
}
