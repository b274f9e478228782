//! Additional Header Segments (rows AHS).

use super::{digested, refused};
use crate::script::{ensure, fail, skip};
use crate::session::{Command, Outcome};
use crate::target::{Ctx, Row, RowResult};
use crate::{Reaction, Session};
use iscsi_wire::{write_bidi_read_length, write_extended_cdb};

pub(super) const ROWS: &[Row] = &[
    Row::new("AHS-01", "CDBs over 16 bytes travel in an Extended CDB AHS", ahs_01),
    Row::new("AHS-03", "several AHS in any order, unknown types, chains that do not add up", ahs_03),
    Row::new("AHS-04", "a CDB shorter than its ADDITIONAL CDB LENGTH says: CHECK CONDITION 5/24/00", ahs_04),
];

/// READ (32) of one block.
fn read_32(ctx: &Ctx) -> Vec<u8> {
    let mut cdb = vec![0; 32];
    (cdb[0], cdb[7], cdb[9]) = (0x7f, 0x18, 0x09);
    cdb[12..20].copy_from_slice(&ctx.scratch().lba.to_be_bytes());
    let lba = (ctx.scratch().lba as u32).to_be_bytes();
    cdb[20..24].copy_from_slice(&lba);
    cdb[31] = 1;
    cdb
}

/// A target without the command must reject it, without data.
fn done_or_unknown(what: &str, outcome: &Outcome) -> RowResult {
    let refused = outcome.status == 2 && outcome.sense_code().is_some_and(|(key, _, _)| key == 5);
    ensure!(
        outcome.is_good() || refused && outcome.data.is_empty(),
        "{what} ended with {} and {} bytes",
        outcome.words(),
        outcome.data.len()
    );
    Ok(())
}

// covers: AHS-01
fn ahs_01(ctx: &mut Ctx) -> RowResult {
    for header_digest in [false, true] {
        let Some(mut s) = digested(ctx, header_digest, false)? else { continue };
        let outcome = s.run(&Command::read(read_32(ctx), ctx.scratch().block_size))?;
        done_or_unknown("READ (32)", &outcome)?;
        for length in [17, 18, 19, 20, 260] {
            let mut cdb = vec![0; length];
            (cdb[0], cdb[7]) = (0x7f, (length - 8) as u8);
            (cdb[8], cdb[9]) = (0xff, 0xff);
            done_or_unknown(&format!("a CDB of {length} bytes"), &s.run(&Command::none(cdb))?)?;
        }
        s.ping()?;
    }
    Ok(())
}

fn with_ahs(ctx: &Ctx, s: &mut Session, ahs: Vec<u8>) -> Result<Reaction, crate::Stop> {
    let mut command = Command::none(&read_32(ctx)[..16]);
    (command.cdb[8], command.cdb[9]) = (0xff, 0xff);
    (command.read, command.write, command.edtl) = (true, true, 512);
    command.data = vec![0; 512];
    command.bidi_read_length = Some(512);
    let (sent, frame) = s.command_frame(&command);
    s.peer.send(&frame.ahs(ahs))?;
    Ok(match s.reaction(sent.itt)? {
        // It requests the data first, or sends some.
        Reaction::Answered(rx) => {
            s.keep(rx);
            Reaction::Finished(s.finish(&sent)?)
        }
        other => other,
    })
}

// covers: AHS-03
fn ahs_03(ctx: &mut Ctx) -> RowResult {
    let cdb = |out: &mut Vec<u8>| {
        let _ = write_extended_cdb(out, &[0; 16]);
    };
    let unknown = |out: &mut Vec<u8>| out.extend_from_slice(&[0, 5, 9, 0, 1, 2, 3, 4]);
    for header_digest in [false, true] {
        let Some(mut s) = digested(ctx, header_digest, false)? else { continue };
        for (words, order) in
            [("type 1, type 2", 0), ("type 2, type 1", 1), ("an unknown type among them", 2)]
        {
            let mut ahs = Vec::new();
            match order {
                0 => cdb(&mut ahs),
                1 => write_bidi_read_length(&mut ahs, 512),
                _ => unknown(&mut ahs),
            }
            if order != 1 {
                write_bidi_read_length(&mut ahs, 512);
            }
            if order != 0 {
                cdb(&mut ahs);
            }
            match with_ahs(ctx, &mut s, ahs)? {
                Reaction::Finished(outcome) => ensure!(
                    outcome.status == 2,
                    "an unknown bidirectional command with {words} ended with {}",
                    outcome.words()
                ),
                Reaction::Rejected(_) | Reaction::Closed if order == 2 => {
                    s = match digested(ctx, header_digest, false)? {
                        Some(session) => session,
                        None => return Ok(()),
                    };
                }
                other => fail!("AHS {words}: {}", other.words()),
            }
        }
        s.ping()?;
        // AHSLength exceeds TotalAHSLength.
        refused("an AHS longer than TotalAHSLength", with_ahs(ctx, &mut s, vec![0, 20, 1, 0, 0, 0, 0, 0])?)?;
    }
    Ok(())
}

// covers: AHS-04
fn ahs_04(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let mut cdb = read_32(ctx);
    cdb.truncate(28);
    let sent = s.start(&Command::read(cdb, ctx.scratch().block_size))?;
    match s.reaction(sent.itt)? {
        Reaction::Finished(outcome) if outcome.is_check(5, 0x24, 0) => Ok(()),
        Reaction::Finished(outcome) if outcome.is_check(5, 0x20, 0) => {
            skip!("the target does not know variable-length CDBs")
        }
        Reaction::Rejected(_) => Ok(()),
        other => fail!("a CDB one word short: {}", other.words()),
    }
}
