//! Reinstatement and the end of sessions (rows SES).

use super::if_applicable;
use crate::script::{ensure, fail, skip};
use crate::session::Command;
use crate::target::ctx::RowSession;
use crate::target::{Ctx, Row, RowResult};
use crate::{LoginScript, Session, Stop};
use iscsi_wire::{LoginStatus, keys};
use std::time::Duration;

pub(super) const ROWS: &[Row] = &[
    Row::new("SES-01", "session reinstatement ends the old tasks and connections", ses_01),
    Row::new("SES-02", "after it a unit attention", ses_02),
    Row::new("SES-03", "connection reinstatement ends the old connection and keeps the session", ses_03),
    Row::new("SES-04", "a session without connection ends after Time2Wait and Time2Retain", ses_04),
    Row::new("SES-05", "two peers with one identity reinstate each other, without harm", ses_05),
];

fn is_closed(session: &mut RowSession) -> RowResult {
    match session.peer.until_closed() {
        Ok(_) => Ok(()),
        Err(error) => fail!("the old connection is not closed: {error}"),
    }
}

/// The login that reinstates the connection of `old`; it continues with the session's CmdSN.
fn rejoin(old: &Session) -> LoginScript {
    LoginScript { cmd_sn: old.cmd_sn, ..old.same_identity().joining(old.logged_in.tsih, old.script.cid) }
}

/// Starts a write that waits for its data, lets `replace` take over the identity, and then sends the data
/// anyway.
fn old_write_never_lands(
    ctx: &Ctx,
    replace: impl FnOnce(&Ctx, &RowSession) -> Result<RowSession, Stop>,
) -> Result<RowSession, Stop> {
    let scratch = ctx.scratch();
    let size = scratch.block_size as usize;
    let mut old = ctx.session()?;
    old.run_good(&Command::write_16(scratch.lba, vec![0x10; size], scratch.block_size))?;
    let sent = old.start(&Command::write_16(scratch.lba, vec![0xbd; size], scratch.block_size))?;
    let r2t = old.expect_r2t(&sent)?;
    let mut new = replace(ctx, &old)?;
    // It may fail: the connection is dead.
    let _ = old.serve(&sent, &r2t);
    is_closed(&mut old)?;
    new.clear_unit_attentions()?;
    let read = new.run_good(&Command::read_16(scratch.lba, 1, scratch.block_size))?;
    ensure!(read.data == vec![0x10; size], "a write of the old connection reached the medium");
    Ok(new)
}

// covers: SES-01
fn ses_01(ctx: &mut Ctx) -> RowResult {
    let mut tsih = None;
    let new = old_write_never_lands(ctx, |ctx, old| {
        tsih = Some(old.logged_in.tsih);
        ctx.session_of(old.same_identity())
    })?;
    ensure!(tsih != Some(new.logged_in.tsih), "the new session has the TSIH of the old one");
    Ok(())
}

// covers: SES-02
fn ses_02(ctx: &mut Ctx) -> RowResult {
    let old = ctx.session()?;
    let mut new = ctx.session_of(old.same_identity())?;
    let outcome = new.run(&Command::test_unit_ready())?;
    let told = outcome.status == 2
        && matches!(outcome.sense_code(), Some((6, 0x29, 0x00..=0x07)) | Some((6, 0x47, 0x7f)));
    ensure!(told, "after session reinstatement TEST UNIT READY ended with {}", outcome.words());
    Ok(())
}

// covers: SES-03
fn ses_03(ctx: &mut Ctx) -> RowResult {
    let mut tsih = None;
    let mut new = old_write_never_lands(ctx, |ctx, old| {
        tsih = Some(old.logged_in.tsih);
        let script = rejoin(old);
        ctx.session_of(script)
    })?;
    ensure!(tsih == Some(new.logged_in.tsih), "connection reinstatement changed the TSIH");
    new.ping()?;
    drop(new);
    if_applicable(super::erl::waits_for_reassignment(ctx))
}

// covers: SES-04
fn ses_04(ctx: &mut Ctx) -> RowResult {
    let old = ctx.session_with(|script| script.key(keys::DEFAULT_TIME2RETAIN, "0"))?;
    let wait = crate::login::value_of(&old.logged_in.pairs, keys::DEFAULT_TIME2WAIT)
        .and_then(|value| value.parse::<u64>().ok())
        .unwrap_or(2);
    if old.params.time2retain != 0 || wait > 3 {
        skip!("Time2Wait {wait} and Time2Retain {}: too long to wait for", old.params.time2retain);
    }
    let script = rejoin(&old);
    old.abandon();
    std::thread::sleep(Duration::from_secs(wait + 1));
    match crate::Session::log_in(ctx.connect()?, script, ctx.lun()) {
        Err(crate::PeerError::Login(LoginStatus::SessionDoesNotExist)) => Ok(()),
        Err(error) => fail!("a session whose time is over: expected 020a, got {error}"),
        Ok(_) => fail!("a session without connection still exists after {} s", wait + 1),
    }
}

// covers: SES-05
fn ses_05(ctx: &mut Ctx) -> RowResult {
    let script = ctx.script();
    let mut held = ctx.session_of(script.clone())?;
    for _ in 0..10 {
        let mut next = ctx.session_of(script.clone())?;
        next.ping()?;
        is_closed(&mut held)?;
        held = next;
    }
    let mut other = ctx.session()?;
    other.ping()?;
    Ok(())
}
