//! Asynchronous messages (rows ASY).

use super::mixed_workload;
use crate::script::{ensure, fail, skip};
use crate::target::{Ctx, Row, RowResult};
use iscsi_wire::{AsyncMessage, Opcode};

pub(super) const ROWS: &[Row] = &[
    Row::new("ASY-01", "event 1 asks for a logout within Parameter3 seconds", asy_01),
    Row::new("ASY-04", "event 0 carries sense with its length and the LUN", asy_04),
];

/// The first asynchronous message that arrives while a session works; an initiator cannot provoke
/// one.
fn first_message(ctx: &Ctx) -> Result<Option<(AsyncMessage, Vec<u8>)>, crate::Stop> {
    let mut s = ctx.session()?;
    mixed_workload(ctx, &mut s)?;
    s.ping()?;
    match s.stashed_of(Opcode::AsyncMessage) {
        Some(rx) => Ok(Some((AsyncMessage::parse(&rx.bhs)?, rx.data))),
        None => Ok(None),
    }
}

// covers: ASY-01
fn asy_01(ctx: &mut Ctx) -> RowResult {
    match first_message(ctx)? {
        Some((message, _)) if message.event.code() == 1 => {
            ensure!(message.parameter3 > 0, "a logout is asked for within 0 seconds");
            Ok(())
        }
        _ => skip!("the target asks for no logout; an initiator cannot make it ask"),
    }
}

// covers: ASY-04
fn asy_04(ctx: &mut Ctx) -> RowResult {
    match first_message(ctx)? {
        Some((message, data)) if message.event.code() == 0 => {
            let length = data.first_chunk::<2>().map(|bytes| usize::from(u16::from_be_bytes(*bytes)));
            match length {
                Some(length) if length > 0 && data.len() >= 2 + length => Ok(()),
                _ => fail!("event 0 without sense and its length: {data:02x?}"),
            }
        }
        _ => skip!("the target reports no event; an initiator cannot make it report one"),
    }
}
