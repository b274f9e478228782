//! Logout (rows LGO).

use super::if_applicable;
use super::mcs::log_out_of;
use crate::frame::Frame;
use crate::script::{ensure, fail};
use crate::session::Command;
use crate::target::bundle::Bundle;
use crate::target::ctx::RowSession;
use crate::target::{Ctx, Row, RowResult};
use crate::{PeerError, Stop};
use iscsi_wire::{Cid, LogoutReason, LogoutResponse, LogoutResponseCode};

pub(super) const ROWS: &[Row] = &[
    Row::new("LGO-01", "logout ends tasks, is answered with 0, and the connection ends with FIN", lgo_01),
    Row::new("LGO-04", "tasks that a logout ended are told by a unit attention", lgo_04),
];

fn response_of(s: &mut RowSession, itt: iscsi_wire::Itt) -> Result<LogoutResponse, Stop> {
    let rx = s.next_for(itt)?;
    Ok(LogoutResponse::parse(&rx.bhs)?)
}

// covers: LGO-01
fn lgo_01(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    for reason in [LogoutReason::CloseSession, LogoutReason::CloseConnection] {
        let mut s = ctx.session()?;
        let sent = s.start(&Command::write_16(
            scratch.lba,
            vec![9; scratch.block_size as usize],
            scratch.block_size,
        ))?;
        s.expect_r2t(&sent)?;
        let request = s.logout_request(reason);
        s.peer.send(&Frame::of(request))?;
        let response = response_of(&mut s, request.itt)?;
        ensure!(response.response == LogoutResponseCode::Success, "{reason}: {}", response.response);
        // Either end may close first.
        let end = match s.peer.recv() {
            Err(PeerError::Timeout(_)) => {
                s.peer.close_write();
                s.peer.recv()
            }
            end => end,
        };
        match end {
            Err(PeerError::Closed) => {}
            Err(error) => fail!("{reason}: expected FIN, got: {error}"),
            Ok(rx) => fail!("{reason}: after the Logout Response came {}", rx.line()),
        }
    }
    if_applicable(logout_of_one(ctx))
}

/// Reason 1 closes one connection of several, reason 0 all of them.
fn logout_of_one(ctx: &Ctx) -> RowResult {
    let mut b = Bundle::open(ctx, 3, |script| script)?;
    let cid = b.on(2).script.cid;
    let response = log_out_of(b.on(2), LogoutReason::CloseConnection, cid)?;
    ensure!(response.response == LogoutResponseCode::Success, "one of three: {}", response.response);
    b.take_last()?.abandon();
    b.on(0).ping()?;
    b.on(1).ping()?;
    let mut other = b.take_last()?;
    let response = log_out_of(b.on(0), LogoutReason::CloseSession, Cid(0))?;
    ensure!(response.response == LogoutResponseCode::Success, "the session: {}", response.response);
    match other.peer.until_closed() {
        Ok(_) => Ok(()),
        Err(error) => fail!("the other connection of a session that was closed: {error}"),
    }
}

// covers: LGO-04
fn lgo_04(ctx: &mut Ctx) -> RowResult {
    let scratch = ctx.scratch();
    let mut s = ctx.session()?;
    let sent =
        s.start(&Command::write_16(scratch.lba, vec![9; scratch.block_size as usize], scratch.block_size))?;
    s.expect_r2t(&sent)?;
    let script = s.same_identity();
    let request = s.logout_request(LogoutReason::CloseSession);
    s.peer.send(&Frame::of(request))?;
    response_of(&mut s, request.itt)?;
    drop(s);
    let mut again = ctx.session_of(script)?;
    let outcome = again.run(&Command::test_unit_ready())?;
    let told = matches!(outcome.sense_code(), Some((6, 0x47, 0x7f)) | Some((6, 0x29, 0x00..=0x07)));
    ensure!(told, "the same nexus after tasks were ended: TEST UNIT READY ended with {}", outcome.words());
    Ok(())
}
