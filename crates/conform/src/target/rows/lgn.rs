//! Login (rows LGN).

use super::if_applicable;
use crate::frame::Frame;
use crate::script::{ensure, fail, skip};
use crate::session::Command;
use crate::target::bundle::Bundle;
use crate::target::talk::{Taken, Talk, taken};
use crate::target::{Ctx, Row, RowResult};
use crate::{LoginScript, PeerError, Reaction, Stop, text_of};
use iscsi_wire::{
    Cid, CmdSn, Isid, Itt, LoginRequest, LoginStage, LogoutReason, Lun, NopOut, Opcode, Tsih, Ttt, keys,
};

pub(super) const ROWS: &[Row] = &[
    Row::new("LGN-01", "anything but a Login request first: closed without an answer", lgn_01),
    Row::new("LGN-02", "another PDU during login: 020b, then closed", lgn_02),
    Row::new("LGN-03", "what name, ISID, TSIH and CID decide", lgn_03),
    Row::new("LGN-04", "a TSIH that does not exist: 020a", lgn_04),
    Row::new("LGN-05", "InitiatorName or TargetName missing: 0207", lgn_05),
    Row::new("LGN-06", "an unknown target: 0203", lgn_06),
    Row::new("LGN-07", "Version-min above 0: 0205; Version-active 0", lgn_07),
    Row::new("LGN-08", "T only with T, no stage skipped, illegal moves refused", lgn_08),
    Row::new("LGN-09", "no key that needs an answer together with T=1", lgn_09),
    Row::new("LGN-10", "TSIH only in the final response", lgn_10),
    Row::new("LGN-11", "ITT, ISID, TSIH, CID and versions constant through login", lgn_11),
    Row::new("LGN-12", "the CmdSN of the login is that of the first command", lgn_12),
    Row::new("LGN-13", "StatSN counts login responses", lgn_13),
    Row::new("LGN-14", "after a refusal the target closes", lgn_14),
    Row::new("LGN-15", "redirection names addresses without tag", lgn_15),
    Row::new("LGN-16", "the security stage cannot be skipped: 0201", lgn_16),
    Row::new("LGN-17", "an empty security stage, when no authentication is needed", lgn_17),
    Row::new("LGN-18", "a login of names only", lgn_18),
    Row::new("LGN-19", "half-open connections keep nobody out", lgn_19),
    Row::new("LGN-20", "a connection above MaxConnections: 0206", lgn_20),
    Row::new("LGN-21", "logout before, login after full feature phase: refused", lgn_21),
];

/// Fails unless the connection is closed in time, without any PDU before.
fn closed(what: &str, peer: &mut crate::RawPeer) -> RowResult {
    match peer.until_closed() {
        Ok(before) if before.is_empty() => Ok(()),
        Ok(before) => fail!("{what}: before closing came {}", before[0].line()),
        Err(error) => fail!("{what}: expected a closed connection: {error}"),
    }
}

fn nop_out(script: &LoginScript) -> NopOut {
    NopOut {
        immediate: true,
        lun: Lun(0),
        itt: Itt(9),
        ttt: Ttt::RESERVED,
        cmd_sn: script.cmd_sn,
        exp_stat_sn: Default::default(),
    }
}

// covers: LGN-01
fn lgn_01(ctx: &mut Ctx) -> RowResult {
    let script = ctx.script();
    let mut peer = ctx.connect()?;
    peer.send(&Frame::of(nop_out(&script)))?;
    closed("a NOP-Out as the first PDU", &mut peer)?;
    let mut hello = vec![0x16, 3, 1, 0, 0xc8, 1, 0, 0, 0xc4, 3, 3];
    hello.resize(205, 0x5a);
    for (what, bytes) in [
        (
            "an HTTP request",
            b"GET / HTTP/1.1\r\nHost: example.org\r\nUser-Agent: none of yours\r\n\r\n".repeat(3),
        ),
        ("a TLS hello", hello),
        ("zeros", vec![0; 256]),
    ] {
        let mut peer = ctx.connect()?;
        peer.send_bytes(&bytes)?;
        closed(what, &mut peer)?;
    }
    Ok(())
}

// covers: LGN-02
fn lgn_02(ctx: &mut Ctx) -> RowResult {
    let mut talk = Talk::new(ctx)?;
    talk.step(&[], false)?.on("the first login request")?;
    let nop = nop_out(&talk.script);
    match talk.send(&Frame::of(nop))? {
        Taken::Refused(status) if status.code() == 0x020b => {}
        other => fail!("a NOP-Out during login: expected status 020b, got {}", other.words()),
    }
    closed("after 020b", &mut talk.peer)
}

/// Logs in with this identity and returns the reaction.
fn login_as(ctx: &Ctx, script: &LoginScript, tsih: Tsih, cid: Cid) -> Result<Taken, Stop> {
    let script = script.clone().joining(tsih, cid);
    let mut talk = match Talk::with(ctx, script) {
        Err(Stop::Fail(why)) if why.starts_with("login refused") => {
            return Ok(Taken::Refused(status_in(&why)));
        }
        Err(Stop::Fail(why)) if why.contains("closed") || why.contains("reset") => return Ok(Taken::Closed),
        other => other?,
    };
    talk.step(&[], true)
}

/// The status that [`PeerError::Login`] includes in its text.
fn status_in(words: &str) -> iscsi_wire::LoginStatus {
    let code = words.rsplit_once("0x").map(|(_, code)| code.trim_end_matches(')'));
    u16::from_str_radix(code.unwrap_or("ffff"), 16).unwrap_or(0xffff).into()
}

// covers: LGN-03
fn lgn_03(ctx: &mut Ctx) -> RowResult {
    // Same name and ISID, TSIH 0: the session is reinstated.
    let mut first = ctx.session()?;
    let old = first.logged_in.tsih;
    let mut second = ctx.session_of(first.same_identity())?;
    ensure!(second.logged_in.tsih != Tsih(0), "TSIH 0 in the final response");
    closed("the old connection after session reinstatement", &mut first.peer)?;
    second.ping()?;
    // Another ISID: a separate session.
    let mut other = ctx.session()?;
    ensure!(other.logged_in.tsih != second.logged_in.tsih, "two sessions with TSIH {}", other.logged_in.tsih);
    other.ping()?;
    second.ping()?;
    // TSIH known, CID new: another connection, which MaxConnections=1 forbids.
    if second.params.max_connections == 1 {
        let script = second.same_identity();
        login_as(ctx, &script, second.logged_in.tsih, Cid(77))?
            .refused("a second connection", &[0x0206, 0x0208])?;
        second.ping()?;
    }
    // TSIH and CID known: the connection is reinstated.
    let script = second.same_identity().joining(second.logged_in.tsih, second.script.cid);
    let mut third = ctx.session_of(script)?;
    ensure!(third.logged_in.tsih == second.logged_in.tsih, "connection reinstatement changed the TSIH");
    closed("the old connection after connection reinstatement", &mut second.peer)?;
    third.ping()?;
    ctx.transcript().note(0, crate::Side::Initiator, format!("the first TSIH was {old}"));
    drop(third);
    if_applicable(added(ctx))
}

/// TSIH known, CID new: another connection of the same session, which leaves the first unchanged.
fn added(ctx: &Ctx) -> RowResult {
    let mut b = Bundle::open(ctx, 2, |script| script)?;
    let (first, second) = (b.on(0).logged_in.tsih, b.on(1).logged_in.tsih);
    ensure!(first == second, "a further connection was answered with TSIH {second}, the session has {first}");
    b.on(0).ping()?;
    b.on(1).ping()?;
    // Of two connections, the one whose CID is used again is replaced.
    let cid = b.on(1).script.cid;
    let mut old = b.take_last()?;
    let again = b.join_as(ctx, cid)?;
    closed("the old connection after connection reinstatement", &mut old.peer)?;
    old.abandon();
    b.on(again).ping()?;
    b.on(0).ping()?;
    Ok(())
}

// covers: LGN-04
fn lgn_04(ctx: &mut Ctx) -> RowResult {
    let session = ctx.session()?;
    let known = session.logged_in.tsih;
    let unknown = Tsih(known.0 ^ 0x5a5a | 1);
    let script = session.same_identity();
    login_as(ctx, &script, unknown, Cid(1))?.refused("an unknown TSIH with a known ISID", &[0x020a])?;
    login_as(ctx, &ctx.script(), unknown, Cid(1))?
        .refused("an unknown TSIH with an unknown ISID", &[0x020a])?;
    login_as(ctx, &ctx.script(), known, Cid(1))?.refused("the TSIH of another session", &[0x020a])
}

/// The first request with these pairs, in the stage that the target requires, without requesting a
/// transition.
fn first_request(ctx: &Ctx, script: &LoginScript, pairs: &[(&str, &str)]) -> Result<Taken, Stop> {
    let mut pairs = pairs.to_vec();
    let stage = if script.chap.is_some() {
        pairs.push((keys::AUTH_METHOD, "CHAP"));
        LoginStage::Security
    } else {
        LoginStage::Operational
    };
    let mut peer = ctx.connect()?;
    let nsg = (stage == LoginStage::Operational).then_some(LoginStage::FullFeature);
    peer.send(&Frame::of(script.request(stage, nsg)).data(text_of(&pairs)))?;
    taken(&mut peer, script)
}

// covers: LGN-05
fn lgn_05(ctx: &mut Ctx) -> RowResult {
    let script = ctx.script();
    let initiator = (keys::INITIATOR_NAME, script.initiator_name.as_str());
    let target = (keys::TARGET_NAME, ctx.target());
    let kind = (keys::SESSION_TYPE, "Normal");
    first_request(ctx, &script, &[target, kind])?.refused("a login without InitiatorName", &[0x0207])?;
    first_request(ctx, &script, &[initiator, kind])?.refused("a login without TargetName", &[0x0207])?;
    first_request(ctx, &script, &[])?.refused("a login without names", &[0x0207])?;
    first_request(ctx, &script, &[(keys::SESSION_TYPE, "Discovery")])?
        .refused("a discovery login without InitiatorName", &[0x0207])
}

// covers: LGN-06
fn lgn_06(ctx: &mut Ctx) -> RowResult {
    let script = ctx.script();
    let unknown = format!("{}.unknown", ctx.target());
    let pairs =
        [(keys::INITIATOR_NAME, script.initiator_name.as_str()), (keys::TARGET_NAME, unknown.as_str())];
    let mut all = pairs.to_vec();
    all.push((keys::SESSION_TYPE, "Normal"));
    match first_request(ctx, &script, &all)? {
        Taken::Refused(status) if matches!(status.code(), 0x0203 | 0x0202) => Ok(()),
        other => fail!("an unknown target: expected 0203, got {}", other.words()),
    }
}

// covers: LGN-07
fn lgn_07(ctx: &mut Ctx) -> RowResult {
    let script = ctx.script();
    let mut peer = ctx.connect()?;
    let mut request = script.request(LoginStage::Operational, Some(LoginStage::FullFeature));
    (request.version_min, request.version_max) = (1, 1);
    peer.send(&Frame::of(request).data(text_of(&script.names())))?;
    match taken(&mut peer, &script)? {
        Taken::Refused(status) if status.code() == 0x0205 => {}
        other => fail!("Version-min 1: expected 0205, got {}", other.words()),
    }
    let mut talk = Talk::new(ctx)?;
    let reply = talk.step(&[], false)?.on("the first request")?;
    ensure!(reply.response.version_active == 0, "Version-active is {}", reply.response.version_active);
    // A higher Version-max with Version-min 0 is an offer, not a demand.
    let mut talk = Talk::new(ctx)?;
    if talk.script.chap.is_none() {
        let mut request = talk.script.request(LoginStage::Operational, None);
        request.version_max = 9;
        let text = text_of(&talk.take_names());
        talk.send(&Frame::of(request).data(text))?.on("Version-max 9, Version-min 0")?;
    }
    Ok(())
}

// covers: LGN-08
fn lgn_08(ctx: &mut Ctx) -> RowResult {
    use LoginStage::{FullFeature, Operational, Security};
    let mut talk = Talk::new(ctx)?;
    let reply = talk.step(&[], false)?.on("a request without T")?;
    ensure!(!reply.response.transit, "T=1 although the request had T=0");
    ensure!(reply.response.csg == Operational, "the response is in another stage: {:?}", reply.response.csg);

    let script = ctx.script();
    if script.chap.is_none() {
        let mut peer = ctx.connect()?;
        let mut pairs = script.names();
        pairs.push((keys::AUTH_METHOD.to_owned(), "None".to_owned()));
        peer.send(&Frame::of(script.request(Security, Some(Operational))).data(text_of(&pairs)))?;
        let reply = taken(&mut peer, &script)?.on("from security to operational")?;
        ensure!(reply.response.nsg != Some(FullFeature), "NSG above the one that was asked for");
    }
    for (csg, nsg) in [(Operational, Security), (Security, Security), (Operational, Operational)] {
        let mut talk = Talk::new(ctx)?;
        let mut request = talk.script.request(csg, Some(nsg));
        request.exp_stat_sn = talk.peer.ledger.exp_stat_sn();
        let text = text_of(&talk.take_names());
        let taken = talk.send(&Frame::of(request).data(text))?;
        taken.refused(&format!("T=1 from {csg:?} to {nsg:?}"), &[])?;
    }
    Ok(())
}

// covers: LGN-09
fn lgn_09(ctx: &mut Ctx) -> RowResult {
    let script = ctx.script();
    let offered: Vec<(&str, &str)> =
        script.keys.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    for offers in [&[][..], &offered[..]] {
        let reply = Talk::new(ctx)?.step(offers, true)?.on("a login")?;
        let declared =
            [keys::TARGET_PORTAL_GROUP_TAG, keys::TARGET_ALIAS, keys::MAX_RECV_DATA_SEGMENT_LENGTH];
        let pending = reply.pairs.iter().find(|(key, _)| {
            !declared.contains(&key.as_str()) && !offers.iter().any(|(offer, _)| offer == key)
        });
        ensure!(
            pending.is_none() || !reply.response.transit,
            "{pending:?} needs an answer, and came with T=1"
        );
    }
    Ok(())
}

// covers: LGN-10
fn lgn_10(ctx: &mut Ctx) -> RowResult {
    let mut talk = Talk::new(ctx)?;
    let reply = talk.step(&[], false)?.on("the first request")?;
    ensure!(reply.response.tsih == Tsih(0), "TSIH {} before the final response", reply.response.tsih);
    let session = ctx.session()?;
    let last = &session.logged_in.last;
    ensure!(last.transit && last.nsg == Some(LoginStage::FullFeature), "the final response is {last:?}");
    ensure!(last.tsih != Tsih(0), "TSIH 0 in the final response");
    Ok(())
}

// covers: LGN-11
fn lgn_11(ctx: &mut Ctx) -> RowResult {
    let change: &[crate::script::Wrong<LoginRequest>] = &[
        ("ISID", |request| request.isid = Isid([0x80, 1, 2, 3, 4, 5])),
        ("TSIH", |request| request.tsih = Tsih(0x1357)),
        ("CID", |request| request.cid = Cid(0x55)),
        ("ITT", |request| request.itt = Itt(0x55)),
    ];
    for (what, change) in change {
        let mut talk = Talk::new(ctx)?;
        talk.step(&[], false)?.on("the first request")?;
        let mut request = talk.script.request(LoginStage::Operational, Some(LoginStage::FullFeature));
        request.exp_stat_sn = talk.peer.ledger.exp_stat_sn();
        change(&mut request);
        talk.send(&Frame::of(request))?.refused(&format!("another {what} in the second request"), &[])?;
    }
    Ok(())
}

// covers: LGN-12
fn lgn_12(ctx: &mut Ctx) -> RowResult {
    for start in [0, 123, 0xffff_ffff] {
        let script = ctx.script().cmd_sn(start);
        let mut s = ctx.session_of(script)?;
        let exp = s.logged_in.last.numbers.exp_cmd_sn;
        ensure!(exp == CmdSn(start), "login with CmdSN {start}: ExpCmdSN {exp} in the final response");
        for _ in 0..3 {
            s.run(&Command::test_unit_ready())?;
        }
    }
    Ok(())
}

// covers: LGN-13
fn lgn_13(ctx: &mut Ctx) -> RowResult {
    let mut talk = Talk::new(ctx)?;
    for _ in 0..4 {
        talk.step(&[], false)?.on("an empty exchange")?;
    }
    talk.step(&[], true)?.on("the last exchange")?;
    match talk.peer.ledger.findings.iter().find(|finding| finding.row == "NUM-09") {
        Some(finding) => fail!("{}", finding.words),
        None => Ok(()),
    }
}

// covers: LGN-14
fn lgn_14(ctx: &mut Ctx) -> RowResult {
    let mut script = ctx.script();
    script.target_name = Some(format!("{}.unknown", ctx.target()));
    let mut peer = ctx.connect()?;
    let stage = if script.chap.is_some() { LoginStage::Security } else { LoginStage::Operational };
    peer.send(&Frame::of(script.request(stage, None)).data(text_of(&script.names())))?;
    match taken(&mut peer, &script)? {
        Taken::Refused(_) => closed("after a refusal", &mut peer),
        Taken::Closed => Ok(()),
        other => fail!("an unknown target: {}", other.words()),
    }
}

// covers: LGN-15
fn lgn_15(ctx: &mut Ctx) -> RowResult {
    let script = ctx.script();
    let mut peer = ctx.connect()?;
    let stage = if script.chap.is_some() { LoginStage::Security } else { LoginStage::Operational };
    let reply = peer.login_step(script.request(stage, None), &script.names())?;
    if reply.response.status.class() != 1 {
        skip!("the target does not redirect");
    }
    let addresses: Vec<_> = reply.pairs.iter().filter(|(key, _)| key == keys::TARGET_ADDRESS).collect();
    ensure!(!addresses.is_empty(), "a redirection without TargetAddress");
    let tagged = addresses.iter().find(|(_, address)| address.contains(','));
    ensure!(tagged.is_none(), "a redirection with a portal group tag: {tagged:?}");
    Ok(())
}

// covers: LGN-16
fn lgn_16(ctx: &mut Ctx) -> RowResult {
    let mut script = ctx.script();
    if script.chap.take().is_none() {
        skip!("needs a target that requires authentication, and CHAP credentials");
    }
    let taken_at_once = Talk::with(ctx, script.clone())?.step(&[], true)?;
    let mut peer = ctx.connect()?;
    let mut pairs = script.names();
    pairs.push((keys::AUTH_METHOD.to_owned(), "None".to_owned()));
    let request = script.request(LoginStage::Security, Some(LoginStage::Operational));
    peer.send(&Frame::of(request).data(text_of(&pairs)))?;
    let taken_none = taken(&mut peer, &script)?;
    if matches!((&taken_at_once, &taken_none), (Taken::On(_), Taken::On(_))) {
        skip!("the target does not require authentication");
    }
    taken_at_once.refused("a login without security stage", &[0x0201])?;
    match taken_none {
        Taken::On(reply) if reply.get(keys::AUTH_METHOD) == Some(keys::REJECT) => Ok(()),
        other => other.refused("AuthMethod=None", &[0x0201]),
    }
}

// covers: LGN-17
fn lgn_17(ctx: &mut Ctx) -> RowResult {
    use LoginStage::{FullFeature, Operational, Security};
    let script = ctx.script();
    if script.chap.is_some() {
        skip!("the target requires authentication");
    }
    for nsg in [Operational, FullFeature] {
        let mut peer = ctx.connect()?;
        let request = script.request(Security, Some(nsg));
        peer.send(&Frame::of(request).data(text_of(&script.names())))?;
        match taken(&mut peer, &script)? {
            Taken::Refused(status) if status.code() == 0x0201 => skip!("the target requires authentication"),
            other => {
                let reply = other.on(&format!("an empty security stage to {nsg:?}"))?;
                ensure!(reply.response.transit, "an empty security stage was not left: {:?}", reply.response);
            }
        }
    }
    Ok(())
}

// covers: LGN-18
fn lgn_18(ctx: &mut Ctx) -> RowResult {
    if ctx.script().chap.is_some() {
        skip!("the target requires authentication");
    }
    let mut s = ctx.session_of(ctx.script().bare())?;
    s.ping()?;
    Ok(())
}

// covers: LGN-19
fn lgn_19(ctx: &mut Ctx) -> RowResult {
    let quiet = crate::Transcript::new();
    let address = (ctx.options().host.as_str(), ctx.options().port);
    let mut idle = Vec::new();
    for n in 0..200 {
        let mut peer = crate::RawPeer::connect(address, ctx.options().timeout, &quiet)?;
        if n % 2 == 0 {
            // Half of them send part of a header.
            peer.send_bytes(&[0x43, 0x87, 0, 0])?;
        }
        idle.push(peer);
    }
    ctx.transcript().note(0, crate::Side::Initiator, format!("{} idle connections are open", idle.len()));
    let mut s = ctx.session()?;
    s.ping()?;
    Ok(())
}

// covers: LGN-20
fn lgn_20(ctx: &mut Ctx) -> RowResult {
    for wanted in ["1", "2"] {
        let mut s = ctx.session_with(|script| script.key(keys::MAX_CONNECTIONS, wanted))?;
        let most = s.params.max_connections;
        if most > 2 {
            fail!("MaxConnections={wanted} was answered with {most}");
        }
        let mut more = Vec::new();
        for n in 1..most {
            more.push(ctx.join(&s, Cid(1 + n as u16))?);
        }
        let script = s.same_identity().cmd_sn(s.cmd_sn.0);
        let taken = login_as(ctx, &script, s.logged_in.tsih, Cid(9))?;
        ensure!(
            matches!(&taken, Taken::Refused(status) if status.code() == 0x0206),
            "connection {} with MaxConnections={most}: expected 0206, got {}",
            most + 1,
            taken.words()
        );
        for other in &mut more {
            other.ping()?;
        }
        s.ping()?;
    }
    Ok(())
}

// covers: LGN-21
fn lgn_21(ctx: &mut Ctx) -> RowResult {
    let mut talk = Talk::new(ctx)?;
    talk.step(&[], false)?.on("the first request")?;
    let logout = iscsi_wire::LogoutRequest {
        immediate: true,
        reason: LogoutReason::CloseSession,
        itt: Itt(5),
        cid: Cid(0),
        cmd_sn: talk.script.cmd_sn,
        exp_stat_sn: talk.peer.ledger.exp_stat_sn(),
    };
    talk.peer.send(&Frame::of(logout))?;
    match talk.peer.recv() {
        Err(error) if error.is_closed() => {}
        Ok(rx) if rx.bhs.opcode() == Opcode::LoginResponse.code() => {
            ensure!(rx.u32_at(36) >> 16 == 0x020b, "Logout during login: {}", rx.line());
        }
        Ok(rx) => fail!("Logout during login: {}", rx.line()),
        Err(PeerError::Timeout(_)) => fail!("Logout during login: no answer"),
        Err(error) => return Err(error.into()),
    }
    let mut s = ctx.session()?;
    let mut request = s.script.request(LoginStage::Operational, Some(LoginStage::FullFeature));
    request.exp_stat_sn = s.peer.ledger.exp_stat_sn();
    let text = text_of(&s.script.names());
    s.peer.send(&Frame::of(request).data(text))?;
    match s.reaction(request.itt)? {
        Reaction::Rejected(_) | Reaction::Closed => Ok(()),
        other => fail!("a Login request in full feature phase: {}", other.words()),
    }
}
