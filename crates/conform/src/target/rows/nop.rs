//! NOP-Out and NOP-In (rows NOP).

use super::{clean, silence};
use crate::frame::Frame;
use crate::script::{ensure, fail};
use crate::target::{Ctx, Row, RowResult};
use iscsi_wire::{Itt, Opcode, Ttt, keys};

pub(super) const ROWS: &[Row] = &[
    Row::new("NOP-01", "a ping comes back with its data and ITT, TTT ffffffff", nop_01),
    Row::new("NOP-02", "a NOP-Out with ITT ffffffff is not answered", nop_02),
    Row::new("NOP-04", "a NOP-In of the target's own does not advance StatSN", nop_04),
    Row::new("NOP-05", "an answer to a ping is not answered", nop_05),
];

// covers: NOP-01
fn nop_01(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let limit = s.params.max_send_data_segment_length.min(s.params.max_recv_data_segment_length) as usize;
    for length in [0, 1, 2, 3, 4, 100, 1000, limit.min(8192), limit] {
        let data: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
        for immediate in [true, false] {
            let itt = s.itt();
            let nop = s.nop(itt, immediate);
            s.peer.send(&Frame::of(nop).data(data.clone()))?;
            let rx = s.next_for(itt)?;
            ensure!(rx.bhs.opcode() == Opcode::NopIn.code(), "a ping was answered with {}", rx.line());
            ensure!(rx.data == data, "a ping of {length} bytes, I={immediate}: other data, {}", rx.line());
            ensure!(rx.u32_at(20) == 0xffff_ffff, "TTT of the answer is {:08x}", rx.u32_at(20));
        }
    }
    // If there is more data than we declared to accept, the answer is truncated.
    let mut s = ctx.session_with(|script| script.key(keys::MAX_RECV_DATA_SEGMENT_LENGTH, "512"))?;
    let itt = s.itt();
    let nop = s.nop(itt, true);
    s.peer.send(&Frame::of(nop).data(vec![0x4e; 1024]))?;
    let rx = s.next_for(itt)?;
    ensure!(rx.data == vec![0x4e; 512], "1024 bytes of ping at MaxRecvDataSegmentLength 512: {}", rx.line());
    clean(&s, "NOP-01")
}

// covers: NOP-02
fn nop_02(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let nop = s.nop(Itt::RESERVED, true);
    s.peer.send(&Frame::of(nop).data(*b"no answer"))?;
    silence(&mut s, Itt::RESERVED)?;
    clean(&s, "NUM-09")
}

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
