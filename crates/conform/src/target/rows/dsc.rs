//! Discovery (rows DSC).

use super::txt::text_request;
use crate::frame::Frame;
use crate::script::{ensure, fail, skip};
use crate::session::Command;
use crate::target::ctx::exchange_text;
use crate::target::talk::Talk;
use crate::target::{Ctx, Row, RowResult};
use crate::{PeerError, Reaction, Session, text_of};
use iscsi_wire::{DataSn, Itt, SnackRequest, SnackType, TmfFunction, Ttt, keys};

pub(super) const ROWS: &[Row] = &[
    Row::new("DSC-01", "a discovery session takes SendTargets and logout, and rejects the rest", dsc_01),
    Row::new("DSC-02", "SendTargets=All lists the target with its addresses and tags", dsc_02),
    Row::new("DSC-03", "SendTargets=name lists that target; an unknown one gives nothing", dsc_03),
    Row::new("DSC-04", "SendTargets in a normal session: its own target only, All refused", dsc_04),
    Row::new("DSC-05", "an answer longer than MaxRecvDataSegmentLength comes in parts", dsc_05),
    Row::new("DSC-06", "records are TargetName and its addresses, none of them a wildcard", dsc_06),
    Row::new("DSC-07", "ErrorRecoveryLevel 0 and MaxConnections 1 in discovery", dsc_07),
    Row::new("DSC-08", "the same initiator and ISID reinstates a discovery session", dsc_08),
];

type Pairs = Vec<(String, String)>;

fn send_targets(s: &mut Session, value: &str) -> Result<Pairs, PeerError> {
    exchange_text(s, &text_of(&[(keys::SEND_TARGETS, value)]))
}

/// Names with their addresses; an error if there are other keys among them.
fn records(pairs: &Pairs) -> Result<Vec<(&str, Vec<&str>)>, crate::Stop> {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for (key, value) in pairs {
        match (key.as_str(), all.last_mut()) {
            (keys::TARGET_NAME, _) => all.push((value, Vec::new())),
            (keys::TARGET_ADDRESS, Some((_, addresses))) => addresses.push(value),
            _ => fail!("{key}={value} does not belong into an answer to SendTargets"),
        }
    }
    Ok(all)
}

// covers: DSC-01
fn dsc_01(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session_of(ctx.discovery_script())?;
    let sent = s.start(&Command::test_unit_ready())?;
    super::refused("a SCSI command in discovery", s.reaction(sent.itt)?)?;

    let mut s = ctx.session_of(ctx.discovery_script())?;
    let tmf = s.tmf(TmfFunction::LogicalUnitReset, true);
    s.peer.send(&Frame::of(tmf))?;
    super::refused("task management in discovery", s.reaction(tmf.itt)?)?;

    let mut s = ctx.session_of(ctx.discovery_script())?;
    let snack = SnackRequest {
        snack_type: SnackType::Status,
        lun: Default::default(),
        itt: Itt::RESERVED,
        ttt: Ttt::RESERVED,
        exp_stat_sn: s.peer.ledger.exp_stat_sn(),
        beg_run: DataSn(0).0,
        run_length: 0,
    };
    s.peer.send(&Frame::of(snack))?;
    super::refused("a SNACK in discovery", s.reaction(Itt(0))?)?;

    let s = ctx.session_of(ctx.discovery_script())?;
    s.log_out()?;
    Ok(())
}

// covers: DSC-02
fn dsc_02(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session_of(ctx.discovery_script())?;
    let pairs = send_targets(&mut s, "All")?;
    let all = records(&pairs)?;
    let Some((_, addresses)) = all.iter().find(|(name, _)| *name == ctx.target()) else {
        fail!("{} is not listed in {all:?}", ctx.target());
    };
    ensure!(!addresses.is_empty(), "{} has no address", ctx.target());
    for address in addresses {
        let tag = address.rsplit_once(',').and_then(|(_, tag)| tag.parse::<u16>().ok());
        ensure!(tag.is_some(), "TargetAddress={address} has no tag");
    }
    // Another request in the same session is allowed.
    let again = send_targets(&mut s, "All")?;
    ensure!(again == pairs, "the second answer differs: {again:?}");
    Ok(())
}

// covers: DSC-03
fn dsc_03(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session_of(ctx.discovery_script())?;
    let pairs = send_targets(&mut s, ctx.target())?;
    let all = records(&pairs)?;
    ensure!(all.len() == 1 && all[0].0 == ctx.target(), "SendTargets={} gave {all:?}", ctx.target());
    let none = send_targets(&mut s, &format!("{}.unknown", ctx.target()))?;
    ensure!(none.is_empty(), "an unknown name gave {none:?}");
    let again = send_targets(&mut s, ctx.target())?;
    ensure!(again == pairs, "after an unknown name the known one gave {again:?}");
    Ok(())
}

// covers: DSC-04
fn dsc_04(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let pairs = send_targets(&mut s, "")?;
    let all = records(&pairs)?;
    ensure!(all.len() == 1 && all[0].0 == ctx.target(), "an empty SendTargets gave {all:?}");
    let foreign = send_targets(&mut s, &format!("{}.unknown", ctx.target()))?;
    ensure!(foreign.is_empty(), "a foreign name gave {foreign:?}");
    let text = text_request(&mut s);
    s.peer.send(&Frame::of(text).data(text_of(&[(keys::SEND_TARGETS, "All")])))?;
    match s.reaction(text.itt)? {
        Reaction::Rejected(_) | Reaction::Closed => Ok(()),
        Reaction::Answered(rx) => {
            let pairs = rx.text();
            let told = pairs.iter().any(|(key, _)| key == keys::TARGET_NAME);
            ensure!(!told, "SendTargets=All in a normal session gave {pairs:?}");
            Ok(())
        }
        other => fail!("SendTargets=All in a normal session: {}", other.words()),
    }
}

// covers: DSC-05
fn dsc_05(ctx: &mut Ctx) -> RowResult {
    let whole = send_targets(&mut *ctx.session_of(ctx.discovery_script())?, "All")?;
    let mut s = ctx.session_of(ctx.discovery_script().key(keys::MAX_RECV_DATA_SEGMENT_LENGTH, "512"))?;
    let parts = send_targets(&mut s, "All")?;
    ensure!(parts == whole, "at MaxRecvDataSegmentLength 512 the answer differs: {parts:?}");
    super::clean(&s, "DAT-01")?;
    super::clean(&s, "TXR-01")?;
    if text_of(&whole).len() <= 512 {
        skip!("the answer has {} bytes; more targets are needed to see it in parts", text_of(&whole).len());
    }
    Ok(())
}

// covers: DSC-06
fn dsc_06(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session_of(ctx.discovery_script())?;
    let pairs = send_targets(&mut s, "All")?;
    let loopback = s.peer.local_addr().is_some_and(|address| address.ip().is_loopback());
    for (name, addresses) in records(&pairs)? {
        for address in addresses {
            let host = address.rsplit_once(',').map_or(address, |(host, _)| host);
            let bad = ["0.0.0.0", "[::]", "[fe80:"].iter().find(|bad| host.starts_with(**bad));
            ensure!(bad.is_none(), "{name} has TargetAddress={address}");
            let inside =
                host.starts_with("127.") || host.starts_with("[::1]") || host.starts_with("localhost");
            ensure!(loopback || !inside, "{name} has TargetAddress={address}, told to an outsider");
        }
    }
    Ok(())
}

// covers: DSC-07
fn dsc_07(ctx: &mut Ctx) -> RowResult {
    for (key, offers) in [(keys::ERROR_RECOVERY_LEVEL, ["2", "1"]), (keys::MAX_CONNECTIONS, ["8", "2"])] {
        for offer in offers {
            let due = if key == keys::MAX_CONNECTIONS { "1" } else { "0" };
            let reply = Talk::with(ctx, ctx.discovery_script())?.step(&[(key, offer)], true)?.on(key)?;
            let got = reply.get(key);
            let kept = got.is_none_or(|got| [due, keys::IRRELEVANT, keys::REJECT].contains(&got));
            ensure!(kept, "{key}={offer} in a discovery session was answered with {got:?}");
        }
    }
    Ok(())
}

// covers: DSC-08
fn dsc_08(ctx: &mut Ctx) -> RowResult {
    let mut first = ctx.session_of(ctx.discovery_script())?;
    let mut second = ctx.session_of(first.same_identity())?;
    if let Err(error) = first.peer.until_closed() {
        fail!("the first discovery session of the same initiator and ISID is not closed: {error}");
    }
    send_targets(&mut second, "All")?;
    // Another ISID is another session.
    let mut third = ctx.session_of(ctx.discovery_script())?;
    send_targets(&mut third, "All")?;
    send_targets(&mut second, "All")?;
    Ok(())
}
