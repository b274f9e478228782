//! One module per section of the conformance table.

mod ahs;
mod asy;
mod dig;
mod dsc;
mod erl;
mod fab;
mod hst;
mod key;
mod lgn;
mod lgo;
mod mcs;
mod nam;
mod nop;
mod num;
mod order;
mod p2;
mod pdu;
mod rej;
mod res;
mod rsp;
mod scsi;
mod sec;
mod ses;
mod snk;
mod tmf;
mod txr;
mod txt;

use super::ctx::RowSession;
use super::{Ctx, Row, RowResult};
use crate::script::{ensure, fail};
use crate::session::{Command, Session};
use crate::{Reaction, Stop, script, text};
use iscsi_wire::{Itt, TmfFunction, keys};

/// The files of rows as text: name and contents.
const TEXTS: &[(&str, &str)] = &[
    ("dat.rows", include_str!("../../../rows/target/dat.rows")),
    ("uns.rows", include_str!("../../../rows/target/uns.rows")),
    ("r2t.rows", include_str!("../../../rows/target/r2t.rows")),
    ("res.rows", include_str!("../../../rows/target/res.rows")),
    ("lgo.rows", include_str!("../../../rows/target/lgo.rows")),
    ("nop.rows", include_str!("../../../rows/target/nop.rows")),
    ("txt.rows", include_str!("../../../rows/target/txt.rows")),
    ("key.rows", include_str!("../../../rows/target/key.rows")),
    ("num.rows", include_str!("../../../rows/target/num.rows")),
    ("mcs.rows", include_str!("../../../rows/target/mcs.rows")),
    ("rsp.rows", include_str!("../../../rows/target/rsp.rows")),
    ("dig.rows", include_str!("../../../rows/target/dig.rows")),
    ("erl.rows", include_str!("../../../rows/target/erl.rows")),
    ("tmf.rows", include_str!("../../../rows/target/tmf.rows")),
];

/// The rows of the files.
fn texts() -> &'static [text::Row] {
    static READ: std::sync::OnceLock<Vec<text::Row>> = std::sync::OnceLock::new();
    READ.get_or_init(|| text::Row::of_crate(text::Tested::Target, TEXTS))
}

/// All rows: the sections of the protocol in the order of the table, and then those of SCSI.
pub(super) fn all() -> Vec<Row> {
    let mut rows = coded();
    rows.extend(texts().iter().map(Row::of_text));
    // The sort is stable: rows of SCSI stay in their order.
    rows.sort_by_key(|row| script::place(row.id).map_or((usize::MAX, ""), |place| (place, row.id)));
    rows
}

fn coded() -> Vec<Row> {
    [
        pdu::ROWS,
        ahs::ROWS,
        dig::ROWS,
        txt::ROWS,
        key::ROWS,
        lgn::ROWS,
        sec::ROWS,
        nam::ROWS,
        ses::ROWS,
        dsc::ROWS,
        txr::ROWS,
        num::ROWS,
        mcs::ROWS,
        order::ROWS,
        res::ROWS,
        rsp::ROWS,
        erl::ROWS,
        snk::ROWS,
        tmf::ROWS,
        fab::ROWS,
        asy::ROWS,
        lgo::ROWS,
        nop::ROWS,
        rej::ROWS,
        p2::ROWS,
        scsi::ROWS,
        hst::ROWS,
    ]
    .concat()
}

/// Fails if a finding of `row` was made in the session.
fn clean(session: &Session, row: &str) -> RowResult {
    match session.peer.ledger.findings.iter().find(|finding| finding.row == row) {
        Some(finding) => fail!("{}", finding.words),
        None => Ok(()),
    }
}

/// A part of a row that requires something a target may not have: without it the other part decides the
/// row.
fn if_applicable(part: RowResult) -> RowResult {
    match part {
        Err(Stop::NotApplicable(_)) => Ok(()),
        other => other,
    }
}

/// An illegal PDU must be rejected, or end the connection.
fn refused(what: &str, reaction: Reaction) -> RowResult {
    match reaction {
        Reaction::Rejected(_) | Reaction::Closed => Ok(()),
        other => fail!("{what}: expected a Reject or a closed connection, got {}", other.words()),
    }
}

/// Nothing is answered to `itt` during two pings.
fn silence(session: &mut Session, itt: Itt) -> RowResult {
    session.ping()?;
    session.ping()?;
    match session.stashed(itt) {
        Some(line) => fail!("expected no answer to itt={itt}, received {line}"),
        None => Ok(()),
    }
}

/// A mixture of reads, writes by R2T, failures, pings, task management.
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
    s.run_good(&Command::test_unit_ready())?;
    let outcome = s.run(&Command::test_unit_ready().immediate())?;
    ensure!(outcome.is_good(), "an immediate TEST UNIT READY ended with {}", outcome.words());
    s.ping()?;
    Ok(())
}

/// A session with exactly these digests, or `None` if the target does not agree to them.
fn digested(ctx: &Ctx, header: bool, data: bool) -> Result<Option<RowSession>, Stop> {
    let value = |on| if on { "CRC32C" } else { "None" };
    let script = ctx.script().key(keys::HEADER_DIGEST, value(header)).key(keys::DATA_DIGEST, value(data));
    let mut session = match ctx.session_of(script) {
        Ok(session) => session,
        Err(Stop::Fail(why)) if why.starts_with("login refused") => return Ok(None),
        Err(other) => return Err(other),
    };
    if (session.params.header_digest, session.params.data_digest) != (header, data) {
        return Ok(None);
    }
    session.clear_unit_attentions()?;
    Ok(Some(session))
}
