//! Residuals (rows RES).

use super::clean;
use crate::script::{ensure, skip};
use crate::session::{Command, Outcome, Residual};
use crate::target::{Ctx, Row, RowResult};

pub(super) const ROWS: &[Row] = &[
    Row::new("RES-02", "truncation by ALLOCATION LENGTH is no overflow", res_02),
    Row::new("RES-03", "residuals of a bidirectional command apart", res_03),
];

/// GOOD with this residual; a target may also fail the command when lengths disagree.
fn residual(what: &str, outcome: &Outcome, due: Residual) -> RowResult {
    if outcome.is_good() {
        ensure!(outcome.residual == due, "{what}: due is {due:?}, got {:?}", outcome.residual);
    } else {
        ensure!(outcome.status == 2, "{what} ended with {}", outcome.words());
    }
    let zero = outcome.residual != Residual::None || outcome.residual_count == 0;
    ensure!(zero, "{what}: Residual Count {} without O and U", outcome.residual_count);
    Ok(())
}

// covers: RES-02
fn res_02(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let whole = s.run_good(&Command::inquiry(255, 255))?.data.len() as u32;
    residual("INQUIRY of 36 with EDTL 255", &s.run(&Command::inquiry(36, 255))?, Residual::Underflow(219))?;
    residual("INQUIRY of 36 with EDTL 36", &s.run(&Command::inquiry(36, 36))?, Residual::None)?;
    let outcome = s.run_good(&Command::report_luns(16, 16))?;
    ensure!(
        !matches!(outcome.residual, Residual::Overflow(_)),
        "REPORT LUNS truncated by ALLOCATION LENGTH: {:?}",
        outcome.residual
    );
    if whole > 36 {
        let outcome = s.run(&Command::inquiry(255, 36))?;
        residual("INQUIRY of 255 with EDTL 36", &outcome, Residual::Overflow(whole - 36))?;
    }
    clean(&s, "RES-01")
}

// covers: RES-03
fn res_03(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let size = scratch.block_size;
    let mut s = ctx.session()?;
    // XDWRITEREAD (10): rarely supported; a target without it answers without moving a byte either
    // way.
    let mut command = Command::write([0x53, 0, 0, 0, 0, 0, 0, 0, 1, 0], vec![0; size as usize]);
    let lba = u32::try_from(scratch.lba).unwrap_or(0).to_be_bytes();
    command.cdb[2..6].copy_from_slice(&lba);
    (command.read, command.bidi_read_length) = (true, Some(size));
    let outcome = s.run(&command)?;
    if outcome.is_good() {
        ensure!(
            outcome.bidi_residual == Residual::None,
            "a whole bidirectional read: {:?}",
            outcome.bidi_residual
        );
        return Ok(());
    }
    if outcome.status != 2 {
        skip!("a bidirectional command ended with {}", outcome.words());
    }
    ensure!(
        outcome.bidi_residual == Residual::Underflow(size),
        "a failed bidirectional command: the read's residual is {:?}, due is an underflow of {size}",
        outcome.bidi_residual
    );
    Ok(())
}
