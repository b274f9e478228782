//! Keys (rows KEY): what each is answered with.

use super::txt::answer;
use crate::script::{ensure, fail, skip};
use crate::target::ctx::exchange_text;
use crate::target::talk::{Taken, Talk};
use crate::target::{Ctx, Row, RowResult};
use crate::{Stop, text_of};
use iscsi_wire::{LoginStage, keys, parse_number};

pub(super) const ROWS: &[Row] = &[
    Row::new("KEY-04", "TargetName: never sent by a target in a normal login", key_04),
    Row::new("KEY-07", "TargetAddress: with portal group tag in SendTargets", key_07),
    Row::new("KEY-08", "TargetPortalGroupTag: in the first response of every session", key_08),
    Row::new("KEY-11", "MaxRecvDataSegmentLength: declared, each way", key_11),
    Row::new("KEY-17", "DataPDUInOrder: OR, and Data-Out is taken accordingly", key_17),
    Row::new("KEY-18", "DataSequenceInOrder: OR, and sequences come accordingly", key_18),
    Row::new("KEY-20", "SessionType: Normal when left out, another value refused", key_20),
    Row::new("KEY-23", "X#NodeArchitecture changes nothing", key_23),
    Row::new("KEY-27", "AuthMethod: the first supported and allowed", key_27),
    Row::new("KEY-29", "a key of the leading connection on a later one is an error", key_29),
];

/// In a discovery session a key is irrelevant: that word, or any admissible answer, or none.
fn tolerated_in_discovery(ctx: &Ctx, key: &str, value: &str) -> Result<Option<String>, Stop> {
    let reply = Talk::with(ctx, ctx.discovery_script())?.step(&[(key, value)], true)?;
    let reply = reply.on(&format!("{key}={value} in a discovery login"))?;
    let got = reply.get(key).map(str::to_owned);
    ensure!(got.as_deref() != Some(keys::NOT_UNDERSTOOD), "{key} in discovery: {got:?}");
    Ok(got)
}

/// A boolean: the answer to the value that leaves the choice open must be a boolean, the other is decided.
fn boolean_rule(ctx: &Ctx, key: &str, decided: &str) -> RowResult {
    let open = if decided == "Yes" { "No" } else { "Yes" };
    let reply = answer(ctx, key, decided)?.on(&format!("{key}={decided}"))?;
    let got = reply.get(key);
    ensure!(
        got.is_none_or(|got| got == decided || got == keys::IRRELEVANT),
        "{key}={decided} was answered with {got:?}"
    );
    let reply = answer(ctx, key, open)?.on(&format!("{key}={open}"))?;
    ensure!(
        matches!(reply.get(key), Some("Yes" | "No")),
        "{key}={open} was answered with {:?}",
        reply.get(key)
    );
    Ok(())
}

// covers: KEY-04
fn key_04(ctx: &mut Ctx) -> RowResult {
    let mut session = ctx.session()?;
    ensure!(
        crate::login::value_of(&session.logged_in.pairs, keys::TARGET_NAME).is_none(),
        "the target sent TargetName in a login"
    );
    let pairs = {
        let mut discovery = ctx.session_of(ctx.discovery_script())?;
        exchange_text(&mut discovery, &text_of(&[(keys::SEND_TARGETS, "All")]))?
    };
    let listed = pairs.iter().any(|(key, value)| key == keys::TARGET_NAME && value == ctx.target());
    ensure!(listed, "{} is not in the answer to SendTargets", ctx.target());
    session.ping()?;
    Ok(())
}

// covers: KEY-07
fn key_07(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session_of(ctx.discovery_script())?;
    let pairs = exchange_text(&mut s, &text_of(&[(keys::SEND_TARGETS, "All")]))?;
    for (_, address) in pairs.iter().filter(|(key, _)| key == keys::TARGET_ADDRESS) {
        let tag = address.rsplit_once(',').and_then(|(_, tag)| tag.parse::<u16>().ok());
        ensure!(tag.is_some(), "TargetAddress={address} has no portal group tag");
        let colons = address.matches(':').count();
        ensure!(colons < 2 || address.starts_with('['), "IPv6 without brackets in TargetAddress={address}");
    }
    Ok(())
}

// covers: KEY-08
fn key_08(ctx: &mut Ctx) -> RowResult {
    let script = ctx.script();
    let mut peer = ctx.connect()?;
    let mut pairs = script.names();
    let stage = if script.chap.is_some() { LoginStage::Security } else { LoginStage::Operational };
    if script.chap.is_some() {
        pairs.push((keys::AUTH_METHOD.to_owned(), "CHAP,None".to_owned()));
    }
    let reply = peer.login_step(script.request(stage, None), &pairs)?.accepted()?;
    let tag = reply.get(keys::TARGET_PORTAL_GROUP_TAG);
    ensure!(
        tag.is_some_and(|tag| parse_number(tag).is_ok_and(|tag| tag <= 65_535)),
        "the first response has TargetPortalGroupTag {tag:?}"
    );
    Ok(())
}

// covers: KEY-11
fn key_11(ctx: &mut Ctx) -> RowResult {
    for value in ["512", "16777215"] {
        let reply = answer(ctx, keys::MAX_RECV_DATA_SEGMENT_LENGTH, value)?.on("MaxRecvDataSegmentLength")?;
        if let Some(theirs) = reply.get(keys::MAX_RECV_DATA_SEGMENT_LENGTH) {
            let legal = parse_number(theirs).is_ok_and(|theirs| (512..=0xff_ffff).contains(&theirs));
            ensure!(legal, "the target declares MaxRecvDataSegmentLength={theirs}");
        }
    }
    let mut s = ctx.session_with(|script| script.key(keys::MAX_RECV_DATA_SEGMENT_LENGTH, "512"))?;
    let scratch = ctx.scratch();
    s.run_good(&crate::Command::read_16(scratch.lba, 8, scratch.block_size))?;
    super::clean(&s, "DAT-01")?;
    for value in ["511", "16777216"] {
        match answer(ctx, keys::MAX_RECV_DATA_SEGMENT_LENGTH, value)? {
            Taken::Refused(_) | Taken::Closed => {}
            Taken::On(reply) if reply.get(keys::MAX_RECV_DATA_SEGMENT_LENGTH) == Some(keys::REJECT) => {}
            other => fail!("MaxRecvDataSegmentLength={value} was taken: {}", other.words()),
        }
    }
    Ok(())
}

// covers: KEY-17
fn key_17(ctx: &mut Ctx) -> RowResult {
    boolean_rule(ctx, keys::DATA_PDU_IN_ORDER, "Yes")?;
    super::order::pdus_are_taken_as_agreed(ctx)?;
    tolerated_in_discovery(ctx, keys::DATA_PDU_IN_ORDER, "Yes").map(|_| ())
}

// covers: KEY-18
fn key_18(ctx: &mut Ctx) -> RowResult {
    boolean_rule(ctx, keys::DATA_SEQUENCE_IN_ORDER, "Yes")?;
    super::order::sequences_come_as_agreed(ctx)?;
    tolerated_in_discovery(ctx, keys::DATA_SEQUENCE_IN_ORDER, "Yes").map(|_| ())
}

// covers: KEY-20
fn key_20(ctx: &mut Ctx) -> RowResult {
    let mut talk = Talk::new(ctx)?;
    if talk.script.chap.is_some() {
        skip!("the first request of a login with CHAP carries SessionType; try without credentials");
    }
    talk.take_names();
    let names =
        [(keys::INITIATOR_NAME, ctx.options().initiator_name.as_str()), (keys::TARGET_NAME, ctx.target())];
    talk.step(&names, true)?.on("a login without SessionType")?;

    let mut talk = Talk::new(ctx)?;
    talk.take_names();
    let strange = [names[0], names[1], (keys::SESSION_TYPE, "Strange")];
    talk.step(&strange, true)?.refused("SessionType=Strange", &[])
}

// covers: KEY-23
fn key_23(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session_with(|script| script.key(keys::NODE_ARCHITECTURE, "conform 1,raw peer"))?;
    let got = crate::login::value_of(&s.logged_in.pairs, keys::NODE_ARCHITECTURE);
    ensure!(got.is_none_or(|got| got.len() <= 255), "X#NodeArchitecture was answered with {got:?}");
    s.ping()?;
    Ok(())
}

// covers: KEY-27
fn key_27(ctx: &mut Ctx) -> RowResult {
    let script = ctx.script();
    let ask = |list: &str| -> Result<Taken, Stop> {
        let mut peer = ctx.connect()?;
        let mut pairs = script.names();
        pairs.push((keys::AUTH_METHOD.to_owned(), list.to_owned()));
        let request = script.request(LoginStage::Security, None);
        peer.send(&crate::Frame::of(request).data(text_of(&pairs)))?;
        crate::target::talk::taken(&mut peer, &script)
    };
    let chosen = |list: &str| -> Result<Option<String>, Stop> {
        Ok(match ask(list)? {
            Taken::On(reply) => reply.get(keys::AUTH_METHOD).map(str::to_owned),
            _ => None,
        })
    };
    let (chap, none) =
        (chosen("CHAP")?.as_deref() == Some("CHAP"), chosen("None")?.as_deref() == Some("None"));
    ensure!(chap || none, "neither CHAP nor None is accepted");
    for list in ["CHAP,None", "None,CHAP", "KRB5,CHAP,None", "X-org.example.auth,None,CHAP"] {
        let due = list.split(',').find(|method| *method == "CHAP" && chap || *method == "None" && none);
        let got = chosen(list)?;
        ensure!(got.as_deref() == due, "AuthMethod={list} was answered with {got:?}, due is {due:?}");
    }
    match ask("X-org.example.auth")? {
        Taken::On(reply) if reply.get(keys::AUTH_METHOD) == Some(keys::REJECT) => Ok(()),
        taken => taken.refused("AuthMethod with nothing supported", &[0x0201, 0x0200]),
    }
}

// covers: KEY-29
fn key_29(ctx: &mut Ctx) -> RowResult {
    for (key, value) in [
        (keys::MAX_BURST_LENGTH, "65536"),
        (keys::INITIAL_R2T, "Yes"),
        (keys::ERROR_RECOVERY_LEVEL, "0"),
        (keys::MAX_CONNECTIONS, "1"),
        // The same type as that of the session may be let pass.
        (keys::SESSION_TYPE, "Discovery"),
    ] {
        let session = ctx.session()?;
        let script = session.same_identity().joining(session.logged_in.tsih, session.script.cid);
        let taken = Talk::with(ctx, script)?.step(&[(key, value)], true)?;
        if !matches!(&taken, Taken::On(reply) if reply.get(key) == Some(keys::REJECT)) {
            taken.refused(&format!("{key} in a login that reinstates a connection"), &[])?;
        }
        let session = ctx.session_with(|script| script.key(keys::MAX_CONNECTIONS, "2"))?;
        if session.params.max_connections > 1 {
            let script = session.same_identity().joining(session.logged_in.tsih, iscsi_wire::Cid(2));
            let taken = Talk::with(ctx, script.cmd_sn(session.cmd_sn.0))?.step(&[(key, value)], true)?;
            if !matches!(&taken, Taken::On(reply) if reply.get(key) == Some(keys::REJECT)) {
                taken.refused(&format!("{key} in the login of a further connection"), &[])?;
            }
        }
    }
    Ok(())
}
