//! Text exchanges in full feature phase (rows TXR).

use super::clean;
use super::txt::text_request;
use crate::frame::Frame;
use crate::script::{ensure, fail, skip};
use crate::target::{Ctx, Row, RowResult};
use crate::{Reaction, Session, Stop, text_of};
use iscsi_wire::{TextRequest, TextResponse, Ttt, keys};

pub(super) const ROWS: &[Row] = &[
    Row::new("TXR-01", "TTT valid while F=0, ffffffff with F=1; ITT constant", txr_01),
    Row::new("TXR-02", "F=0 is not answered with F=1", txr_02),
    Row::new("TXR-03", "TTT ffffffff begins anew; a key again in one exchange: Reject 04", txr_03),
];

/// Sends a request of a text exchange; `None` when the target refuses to keep one open.
fn open(s: &mut Session, request: TextRequest, text: Vec<u8>) -> Result<Option<TextResponse>, Stop> {
    s.peer.send(&Frame::of(request).data(text))?;
    match s.reaction(request.itt)? {
        Reaction::Answered(rx) => Ok(Some(TextResponse::parse(&rx.bhs)?)),
        Reaction::Rejected(_) | Reaction::Closed => Ok(None),
        other => fail!("a Text request with F=0: {}", other.words()),
    }
}

// covers: TXR-01
fn txr_01(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let mut request = text_request(&mut s);
    request.final_bit = false;
    let Some(response) = open(&mut s, request, text_of(&[("X-org.example.a", "1")]))? else {
        fail!("the target refuses a Text exchange of several requests");
    };
    ensure!(!response.final_bit && !response.ttt.is_reserved(), "F=0 was answered with {response:?}");
    (request.ttt, request.lun, request.final_bit) = (response.ttt, response.lun, true);
    request.exp_stat_sn = s.peer.ledger.exp_stat_sn();
    let Some(last) = open(&mut s, request, text_of(&[("X-org.example.b", "1")]))? else {
        fail!("the target refuses the second request of a Text exchange");
    };
    ensure!(last.final_bit && last.ttt.is_reserved(), "the last request was answered with {last:?}");
    clean(&s, "TXR-01")?;
    // A TTT that was never assigned, and another ITT in mid-exchange.
    let mut s = ctx.session()?;
    let mut request = text_request(&mut s);
    request.ttt = Ttt(0x1234_5678);
    s.peer.send(&Frame::of(request).data(text_of(&[("X-org.example.a", "1")])))?;
    super::refused("a Text request with a TTT that was never given", s.reaction(request.itt)?)
}

// covers: TXR-02
fn txr_02(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let mut request = text_request(&mut s);
    request.final_bit = false;
    match open(&mut s, request, text_of(&[("X-org.example.a", "1")]))? {
        Some(response) => {
            ensure!(!response.final_bit, "a Text request with F=0 was answered with F=1");
            Ok(())
        }
        None => skip!("the target refuses a Text exchange of several requests"),
    }
}

// covers: TXR-03
fn txr_03(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let mut request = text_request(&mut s);
    request.final_bit = false;
    let declare = |value: &str| text_of(&[(keys::MAX_RECV_DATA_SEGMENT_LENGTH, value)]);
    let Some(response) = open(&mut s, request, declare("4096"))? else {
        skip!("the target refuses a Text exchange of several requests");
    };
    request.exp_stat_sn = s.peer.ledger.exp_stat_sn();
    let Some(again) = open(&mut s, request, declare("2048"))? else {
        fail!("TTT ffffffff in mid-exchange does not begin anew");
    };
    ensure!(!again.final_bit, "F=0 was answered with F=1");
    let mut stale = request;
    (stale.ttt, stale.lun, stale.final_bit) = (again.ttt, again.lun, true);
    stale.exp_stat_sn = s.peer.ledger.exp_stat_sn();
    s.peer.send(&Frame::of(stale).data(declare("1024")).remark("the key again, in the same exchange"))?;
    match s.reaction(stale.itt)? {
        Reaction::Rejected(reason) => ensure!(reason.code() == 4, "expected Reject 04, received {reason}"),
        Reaction::Closed => {}
        other => fail!("a key again in one exchange: {} after {response:?}", other.words()),
    }
    Ok(())
}
