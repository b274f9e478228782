//! One module per section of the conformance table.

mod num;
mod pdu;

use super::{Ctx, Row, RowResult};
use crate::script::{ensure, fail};
use crate::session::{Command, Session};
use crate::{PeerError, Reaction};
use iscsi_wire::{Itt, TmfFunction};

pub(super) fn all() -> Vec<Row> {
    [pdu::ROWS, num::ROWS].concat()
}

/// Fails if a finding of `row` was made in the session.
fn clean(session: &Session, row: &str) -> RowResult {
    match session.peer.ledger.findings.iter().find(|finding| finding.row == row) {
        Some(finding) => fail!("{}", finding.words),
        None => Ok(()),
    }
}

/// Something illegal must be rejected, or end the connection.
fn refused(what: &str, reaction: Reaction) -> RowResult {
    match reaction {
        Reaction::Rejected(_) | Reaction::Closed => Ok(()),
        other => fail!("{what}: expected a Reject or a closed connection, got {}", other.words()),
    }
}

/// Nothing is answered to `itt` while two pings go and come.
fn silence(session: &mut Session, itt: Itt) -> RowResult {
    session.ping()?;
    session.ping()?;
    match session.stashed(itt) {
        Some(line) => fail!("expected no answer to itt={itt}, received {line}"),
        None => Ok(()),
    }
}

/// A bit of everything: reads, writes by R2T, failures, pings, task management, text.
fn mixed_workload(ctx: &Ctx, s: &mut Session) -> RowResult {
    let scratch = ctx.scratch();
    let size = scratch.block_size;
    let blocks = 65_536 / size;
    let data: Vec<u8> = (0..blocks * size).map(|n| (n / 7) as u8).collect();
    s.run_good(&Command::inquiry(255, 255))?;
    s.run_good(&Command::write_16(scratch.lba, data.clone(), size))?;
    s.ping_with(b"between")?;
    let read = s.run_good(&Command::read_16(scratch.lba, blocks, size))?;
    ensure!(read.data == data, "what was written is not what is read");
    s.run(&Command::read([0xff; 6], 512))?;
    let mut tmf = s.tmf(TmfFunction::AbortTask, true);
    (tmf.referenced_task_tag, tmf.ref_cmd_sn) = (Itt(0x7777), s.cmd_sn.add(100_000));
    s.manage(tmf)?;
    super::ctx::exchange_text(s, &crate::text_of(&[("SendTargets", "")]))?;
    s.run_good(&Command::test_unit_ready())?;
    let outcome = s.run(&Command::test_unit_ready().immediate())?;
    ensure!(outcome.is_good(), "an immediate TEST UNIT READY ended with {}", outcome.words());
    s.ping()?;
    Ok(())
}

/// Is the other end gone or alive? A connection that was dropped is told by its error.
#[allow(dead_code, reason = "used by later sections")]
fn alive(session: &mut Session) -> Result<bool, PeerError> {
    match session.ping() {
        Ok(()) => Ok(true),
        Err(error) if error.is_closed() => Ok(false),
        Err(error) => Err(error),
    }
}
