//! Names (rows NAM).

use crate::script::{ensure, fail, skip};
use crate::target::ctx::exchange_text;
use crate::target::talk::{Taken, Talk};
use crate::target::{Ctx, Row, RowResult};
use crate::{LoginScript, Stop, text_of};
use iscsi_wire::keys;

pub(super) const ROWS: &[Row] = &[
    Row::new("NAM-01", "iqn., eui. and naa. names up to 223 bytes", nam_01),
    Row::new("NAM-02", "names folded to lower case; no blanks and control characters", nam_02),
    Row::new("NAM-04", "sessions of one initiator side by side, one per ISID", nam_04),
];

fn login_with(ctx: &Ctx, change: impl FnOnce(&mut LoginScript)) -> Result<Taken, Stop> {
    let mut script = ctx.script();
    change(&mut script);
    match Talk::with(ctx, script) {
        Ok(mut talk) => talk.step(&[], true),
        Err(Stop::Fail(why)) if why.starts_with("login refused") || why.contains("closed") => {
            Ok(Taken::Closed)
        }
        Err(other) => Err(other),
    }
}

// covers: NAM-01
fn nam_01(ctx: &mut Ctx) -> RowResult {
    let long = |length: usize| format!("iqn.2026-01.org.example:{}", "n".repeat(length - 24));
    let probe = login_with(ctx, |script| script.initiator_name = "iqn.2026-01.org.example:other".to_owned())?;
    if !matches!(probe, Taken::On(_)) {
        skip!("the target admits only certain initiators: {}", probe.words());
    }
    let good = [
        "eui.02004567a425678d".to_owned(),
        "naa.52004567ba64678d".to_owned(),
        "naa.62004567ba64678d0123456789abcdef".to_owned(),
        "iqn.2001-04.com.example:storage:diskarrays-sn-a8675309".to_owned(),
        long(223),
    ];
    for name in good {
        let taken = login_with(ctx, |script| script.initiator_name.clone_from(&name))?;
        taken.on(&format!("InitiatorName={name}"))?;
    }
    for name in [
        long(224),
        "host7".to_owned(),
        "wwn.0123456789abcdef".to_owned(),
        "eui.123".to_owned(),
        "iqn.".to_owned(),
    ] {
        let taken = login_with(ctx, |script| script.initiator_name.clone_from(&name))?;
        taken.refused(&format!("InitiatorName={name}"), &[])?;
    }
    Ok(())
}

// covers: NAM-02
fn nam_02(ctx: &mut Ctx) -> RowResult {
    let upper = ctx.target().to_uppercase();
    login_with(ctx, |script| script.target_name = Some(upper.clone()))?.on(&format!("TargetName={upper}"))?;
    let bad = [" x", "\nx", "\tx", "\u{1}x", "\u{2028}x", "/x", "'x", "\"x", "_x", "!x"];
    for suffix in bad {
        let name = format!("iqn.2026-01.org.example:a{suffix}");
        let taken = login_with(ctx, |script| script.initiator_name.clone_from(&name))?;
        taken.refused(&format!("InitiatorName={name:?}"), &[])?;
        let name = format!("{}{suffix}", ctx.target());
        let taken = login_with(ctx, |script| script.target_name = Some(name.clone()))?;
        taken.refused(&format!("TargetName={name:?}"), &[])?;
    }
    let mut discovery = ctx.session_of(ctx.discovery_script())?;
    for (key, value) in exchange_text(&mut discovery, &text_of(&[(keys::SEND_TARGETS, "All")]))? {
        let strange = value.chars().find(|c| c.is_control() || c.is_whitespace());
        ensure!(strange.is_none(), "{strange:?} in {key}={value}");
    }
    Ok(())
}

// covers: NAM-04
fn nam_04(ctx: &mut Ctx) -> RowResult {
    let mut sessions = Vec::new();
    for n in 0..32 {
        match ctx.session_of(ctx.script()) {
            Ok(session) => sessions.push(session),
            Err(Stop::Fail(why)) if n > 0 && why.contains("0x0302") => {
                skip!("the target allows {n} sessions")
            }
            Err(other) => return Err(other),
        }
    }
    let mut seen: Vec<u16> = sessions.iter().map(|session| session.logged_in.tsih.0).collect();
    seen.sort_unstable();
    seen.dedup();
    ensure!(seen.len() == sessions.len(), "{} sessions have {} TSIHs", sessions.len(), seen.len());
    for session in &mut sessions {
        session.ping()?;
    }
    // One of them again: that session is reinstated, and no other.
    let again = sessions[0].same_identity();
    let mut new = ctx.session_of(again)?;
    new.ping()?;
    for session in &mut sessions[1..] {
        session.ping()?;
    }
    match sessions[0].ping() {
        Err(error) if error.is_closed() => Ok(()),
        Err(error) => Err(error.into()),
        Ok(()) => fail!("two sessions with the same initiator name and ISID"),
    }
}
