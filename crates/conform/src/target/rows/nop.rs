//! NOP-Out and NOP-In (rows NOP).

use super::clean;
use crate::frame::Frame;
use crate::script::{ensure, fail};
use crate::target::{Ctx, Row, RowResult};
use iscsi_wire::{Itt, Opcode, Ttt};

pub(super) const ROWS: &[Row] = &[
    Row::new("NOP-04", "a NOP-In of the target's own does not advance StatSN", nop_04),
    Row::new("NOP-05", "an answer to a ping is not answered", nop_05),
];

// covers: NOP-04
fn nop_04(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    // Pings of the target in the meantime are answered below; the ledger checks the numbers.
    for _ in 0..20 {
        s.ping()?;
    }
    clean(&s, "NUM-09")?;
    clean(&s, "NOP-01")
}

// covers: NOP-05
fn nop_05(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let mut nop = s.nop(Itt::RESERVED, true);
    nop.ttt = Ttt(0x1111);
    s.peer.send(&Frame::of(nop).remark("an answer to no ping"))?;
    let itt = s.itt();
    let ping = s.nop(itt, true);
    if let Err(error) = s.peer.send(&Frame::of(ping)) {
        ensure!(error.is_closed(), "{error}");
        return Ok(());
    }
    loop {
        match s.peer.recv() {
            Ok(rx) if rx.bhs.itt() == itt && rx.bhs.opcode() == Opcode::NopIn.code() => return Ok(()),
            Ok(rx) if rx.bhs.opcode() == Opcode::Reject.code() => {}
            Ok(rx) => fail!("an answer to no ping was answered with {}", rx.line()),
            Err(error) if error.is_closed() => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}
