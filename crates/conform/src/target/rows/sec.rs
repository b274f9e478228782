//! CHAP (rows SEC). They need credentials; those of mutual CHAP need the target's too.

use crate::chap;
use crate::frame::Frame;
use crate::login::answer_challenge;
use crate::script::{ensure, fail, skip};
use crate::target::talk::{Taken, taken};
use crate::target::{Ctx, Row, RowResult};
use crate::{ChapScript, LoginReply, LoginScript, RawPeer, Stop, text_of};
use iscsi_wire::{LoginStage, encode_base64, encode_hex, keys, parse_binary, parse_number};

pub(super) const ROWS: &[Row] = &[
    Row::new("SEC-01", "CHAP one way and mutual", sec_01),
    Row::new("SEC-02", "CHAP keys in order, each once", sec_02),
    Row::new("SEC-03", "the first algorithm of the list that the target allows; none: 0201", sec_03),
    Row::new("SEC-04", "responses by MD5, SHA-1, SHA-256 and SHA3-256", sec_04),
    Row::new("SEC-05", "binary items in hexadecimal and base64, up to 1024 bytes", sec_05),
    Row::new("SEC-06", "a wrong response: 0201", sec_06),
    Row::new("SEC-07", "a reflected challenge is refused", sec_07),
    Row::new("SEC-08", "the same secret both ways is refused", sec_08),
    Row::new("SEC-09", "challenges fresh, identifiers varied", sec_09),
    Row::new("SEC-11", "mutual authentication asked for and not configured: 0201", sec_11),
    Row::new("SEC-13", "every connection of a session authenticates alike", sec_13),
    Row::new("SEC-14", "an initiator's name is bound to its CHAP name", sec_14),
    Row::new("SEC-15", "no secret in what the target sends", sec_15),
    Row::new("SEC-16", "authentication of discovery", sec_16),
];

type Pairs = Vec<(String, String)>;

/// A login in the security stage.
struct Dialogue {
    peer: RawPeer,
    script: LoginScript,
    chap: ChapScript,
}

impl Dialogue {
    /// Starts after AuthMethod=CHAP was agreed.
    fn new(ctx: &Ctx) -> Result<Self, Stop> {
        let script = ctx.script();
        let Some(chap) = script.chap.clone() else { skip!("needs CHAP credentials") };
        let mut dialogue = Dialogue { peer: ctx.connect()?, script, chap };
        let mut pairs = dialogue.script.names();
        pairs.push((keys::AUTH_METHOD.to_owned(), "CHAP".to_owned()));
        let reply = dialogue.say(&pairs, None)?.on("AuthMethod=CHAP")?;
        match reply.get(keys::AUTH_METHOD) {
            Some("CHAP") => Ok(dialogue),
            other => skip!("the target does not do CHAP: AuthMethod={other:?}"),
        }
    }

    fn say<K: AsRef<str>, V: AsRef<str>>(
        &mut self,
        pairs: &[(K, V)],
        nsg: Option<LoginStage>,
    ) -> Result<Taken, Stop> {
        let mut request = self.script.request(LoginStage::Security, nsg);
        request.exp_stat_sn = self.peer.ledger.exp_stat_sn();
        self.peer.send(&Frame::of(request).data(text_of(pairs)))?;
        taken(&mut self.peer, &self.script)
    }

    /// Requests a challenge with this list of algorithms.
    fn challenge(&mut self, algorithms: &str) -> Result<LoginReply, Stop> {
        self.say(&[(keys::CHAP_A, algorithms)], None)?.on(&format!("CHAP_A={algorithms}"))
    }

    /// Completes the security stage with these pairs.
    fn finish(&mut self, pairs: &Pairs) -> Result<Taken, Stop> {
        self.say(pairs, Some(LoginStage::Operational))
    }

    fn response(&self, reply: &LoginReply) -> Result<Pairs, Stop> {
        Ok(answer_challenge(reply, &self.chap)?)
    }
}

/// The credentials of the target; without them the row does not apply.
fn mutual(ctx: &Ctx) -> Result<(String, String), Stop> {
    let theirs = ctx.options().target_chap.clone();
    match theirs {
        Some(theirs) => Ok((theirs.name, theirs.secret)),
        None => skip!("needs the target's own CHAP name and secret (mutual CHAP)"),
    }
}

fn ours(challenge: &str) -> Pairs {
    vec![(keys::CHAP_I.to_owned(), "17".to_owned()), (keys::CHAP_C.to_owned(), challenge.to_owned())]
}

// covers: SEC-01
fn sec_01(ctx: &mut Ctx) -> RowResult {
    let mut script = ctx.script();
    let Some(chap) = &mut script.chap else { skip!("needs CHAP credentials") };
    let theirs = chap.target.take();
    ctx.session_of(script.clone())?.ping()?;
    if let Some(theirs) = theirs {
        if let Some(chap) = &mut script.chap {
            chap.target = Some(theirs);
        }
        script.isid = ctx.script().isid;
        ctx.session_of(script)?.ping()?;
    }
    Ok(())
}

// covers: SEC-02
fn sec_02(ctx: &mut Ctx) -> RowResult {
    let allowed = &[0x0200, 0x0201, 0x0207];
    // CHAP_R before there is a challenge.
    let mut d = Dialogue::new(ctx)?;
    let early = [(keys::CHAP_N, "early"), (keys::CHAP_R, "0x00112233445566778899aabbccddeeff")];
    d.say(&early, Some(LoginStage::Operational))?.refused("CHAP_R before the challenge", allowed)?;
    // An algorithm that is not a list of numbers.
    let mut d = Dialogue::new(ctx)?;
    d.say(&[(keys::CHAP_A, "md5")], None)?.refused("CHAP_A=md5", allowed)?;
    for drop_key in [keys::CHAP_N, keys::CHAP_R] {
        let mut d = Dialogue::new(ctx)?;
        let reply = d.challenge("5")?;
        let mut pairs = d.response(&reply)?;
        pairs.retain(|(key, _)| key != drop_key);
        d.finish(&pairs)?.refused(&format!("no {drop_key}"), allowed)?;
    }
    for double in [keys::CHAP_N, keys::CHAP_R] {
        let mut d = Dialogue::new(ctx)?;
        let reply = d.challenge("5")?;
        let mut pairs = d.response(&reply)?;
        let again = pairs.iter().find(|(key, _)| key == double).cloned();
        pairs.extend(again);
        d.finish(&pairs)?.refused(&format!("{double} twice"), allowed)?;
    }
    // CHAP_I without CHAP_C, and vice versa.
    for drop_key in [keys::CHAP_I, keys::CHAP_C] {
        let mut d = Dialogue::new(ctx)?;
        let reply = d.challenge("5")?;
        let mut pairs = d.response(&reply)?;
        pairs.extend(ours(&encode_hex(&[7; 16])));
        pairs.retain(|(key, _)| key != drop_key);
        d.finish(&pairs)?.refused(&format!("a challenge without {drop_key}"), allowed)?;
    }
    // The transition before authentication, and without an answer to the challenge: refused, or not granted.
    for challenged in [false, true] {
        let mut d = Dialogue::new(ctx)?;
        if challenged {
            d.challenge("5")?;
        }
        match d.finish(&Vec::new())? {
            Taken::On(reply) if !reply.response.transit => {}
            other => other.refused("T=1 before CHAP is done", allowed)?,
        }
    }
    Ok(())
}

/// The algorithms that the target allows, each offered alone.
fn allowed_algorithms(ctx: &Ctx) -> Result<Vec<u64>, Stop> {
    let mut allowed = Vec::new();
    for number in [5u64, 6, 7, 8] {
        let mut d = Dialogue::new(ctx)?;
        if let Taken::On(reply) = d.say(&[(keys::CHAP_A, number.to_string())], None)?
            && reply.get(keys::CHAP_A) == Some(number.to_string().as_str())
        {
            allowed.push(number);
        }
    }
    Ok(allowed)
}

// covers: SEC-03
fn sec_03(ctx: &mut Ctx) -> RowResult {
    let allowed = allowed_algorithms(ctx)?;
    ensure!(!allowed.is_empty(), "no algorithm of 5, 6, 7 and 8 is allowed");
    for list in ["8,7,6,5", "5,6,7,8", "99,7,5", "5"] {
        let due = list.split(',').find(|item| item.parse().is_ok_and(|number| allowed.contains(&number)));
        let got = Dialogue::new(ctx)?.challenge(list)?;
        ensure!(got.get(keys::CHAP_A) == due, "CHAP_A={list}: {:?}, due is {due:?}", got.get(keys::CHAP_A));
    }
    Dialogue::new(ctx)?.say(&[(keys::CHAP_A, "99")], None)?.refused("CHAP_A=99", &[0x0201])
}

// covers: SEC-04
fn sec_04(ctx: &mut Ctx) -> RowResult {
    for number in allowed_algorithms(ctx)? {
        let mut script = ctx.script();
        if let Some(chap) = &mut script.chap {
            chap.algorithms = number.to_string();
        }
        let mut s = ctx.session_of(script)?;
        s.ping()?;
    }
    Ok(())
}

// covers: SEC-05
fn sec_05(ctx: &mut Ctx) -> RowResult {
    for (words, encode) in [
        ("0X and capital digits", (|bytes| encode_hex(bytes).to_uppercase()) as fn(&[u8]) -> String),
        ("0x and capital digits", |bytes| format!("0x{}", encode_hex(bytes)[2..].to_uppercase())),
        ("base64, 0b", encode_base64),
        ("base64, 0B", |bytes| encode_base64(bytes).replacen("0b", "0B", 1)),
    ] {
        let mut d = Dialogue::new(ctx)?;
        let reply = d.challenge("5")?;
        let mut pairs = d.response(&reply)?;
        for (key, value) in &mut pairs {
            if key == keys::CHAP_R {
                *value = encode(&parse_binary(value, 1024)?);
            }
        }
        d.finish(&pairs)?.on(&format!("CHAP_R in {words}"))?;
    }
    let (name, secret) = mutual(ctx)?;
    for length in [1usize, 16, 1023, 1024] {
        for encode in [encode_hex as fn(&[u8]) -> String, encode_base64] {
            let challenge: Vec<u8> = (0..length).map(|n| (n * 7 + 3) as u8).collect();
            let mut d = Dialogue::new(ctx)?;
            let reply = d.challenge("5")?;
            let mut pairs = d.response(&reply)?;
            pairs.extend(ours(&encode(&challenge)));
            let reply = d.finish(&pairs)?.on(&format!("a challenge of {length} bytes"))?;
            let due = chap::response(5, 17, secret.as_bytes(), &challenge);
            let got = reply.get(keys::CHAP_R).and_then(|value| parse_binary(value, 1024).ok());
            ensure!(got == due, "the target's response to a challenge of {length} bytes is wrong");
            ensure!(reply.get(keys::CHAP_N) == Some(&name), "CHAP_N is {:?}", reply.get(keys::CHAP_N));
        }
    }
    let mut d = Dialogue::new(ctx)?;
    let reply = d.challenge("5")?;
    let mut pairs = d.response(&reply)?;
    pairs.extend(ours(&encode_hex(&[1; 1025])));
    d.finish(&pairs)?.refused("a challenge of 1025 bytes", &[])
}

// covers: SEC-06
fn sec_06(ctx: &mut Ctx) -> RowResult {
    for (words, change) in [
        ("one bit wrong", (|bytes: &mut Vec<u8>| bytes[0] ^= 1) as fn(&mut Vec<u8>)),
        ("the last bit wrong", |bytes| {
            if let Some(last) = bytes.last_mut() {
                *last ^= 1;
            }
        }),
        ("a byte short", |bytes| bytes.truncate(15)),
        ("a byte long", |bytes| bytes.push(0)),
        ("one byte", |bytes| bytes.truncate(1)),
    ] {
        let mut d = Dialogue::new(ctx)?;
        let reply = d.challenge("5")?;
        let mut pairs = d.response(&reply)?;
        let mut allowed: &[u16] = &[];
        for (key, value) in &mut pairs {
            if key == keys::CHAP_R {
                let mut bytes = parse_binary(value, 1024)?;
                let length = bytes.len();
                change(&mut bytes);
                // A response of another length may be treated as malformed instead of wrong.
                allowed = if bytes.len() == length { &[0x0201] } else { &[0x0200, 0x0201] };
                *value = encode_hex(&bytes);
            }
        }
        d.finish(&pairs)?.refused(&format!("a response with {words}"), allowed)?;
    }
    let mut d = Dialogue::new(ctx)?;
    d.challenge("5")?;
    let empty =
        vec![(keys::CHAP_N.to_owned(), d.chap.user.clone()), (keys::CHAP_R.to_owned(), "0x".to_owned())];
    d.finish(&empty)?.refused("an empty response", &[0x0200, 0x0201])?;
    let mut d = Dialogue::new(ctx)?;
    let reply = d.challenge("5")?;
    let mut pairs = d.response(&reply)?;
    pairs[0].1.push_str(".unknown");
    d.finish(&pairs)?.refused("an unknown CHAP_N", &[0x0201])
}

// covers: SEC-07
fn sec_07(ctx: &mut Ctx) -> RowResult {
    mutual(ctx)?;
    let mut d = Dialogue::new(ctx)?;
    let reply = d.challenge("5")?;
    let theirs = reply.get(keys::CHAP_C).unwrap_or_default().to_owned();
    let mut pairs = d.response(&reply)?;
    pairs.extend(ours(&theirs));
    d.finish(&pairs)?.refused("the target's own challenge", &[])?;
    // The challenge of one connection, reflected on another connection.
    let mut first = Dialogue::new(ctx)?;
    let pending = first.challenge("5")?.get(keys::CHAP_C).unwrap_or_default().to_owned();
    let mut second = Dialogue::new(ctx)?;
    let reply = second.challenge("5")?;
    let mut pairs = second.response(&reply)?;
    pairs.extend(ours(&pending));
    second.finish(&pairs)?.refused("the challenge of a parallel connection", &[])
}

// covers: SEC-08
fn sec_08(ctx: &mut Ctx) -> RowResult {
    let (_, secret) = mutual(ctx)?;
    if ctx.options().chap.as_ref().is_none_or(|own| own.secret != secret) {
        skip!("needs one secret configured for both directions");
    }
    let mut d = Dialogue::new(ctx)?;
    let reply = d.challenge("5")?;
    let mut pairs = d.response(&reply)?;
    pairs.extend(ours(&encode_hex(&[9; 16])));
    d.finish(&pairs)?.refused("one secret for both directions", &[])
}

// covers: SEC-09
fn sec_09(ctx: &mut Ctx) -> RowResult {
    let mut challenges = std::collections::HashSet::new();
    let mut identifiers = std::collections::HashSet::new();
    for n in 0..100 {
        let mut d = Dialogue::new(ctx)?;
        let reply = d.challenge("5")?;
        let challenge = parse_binary(reply.get(keys::CHAP_C).unwrap_or_default(), 1024)?;
        ensure!(challenge.len() >= 8, "a challenge of {} bytes", challenge.len());
        let first: Vec<u8> = challenge.iter().copied().take(8).collect();
        ensure!(challenges.insert(first), "challenge {n} begins as an earlier one");
        let identifier = parse_number(reply.get(keys::CHAP_I).unwrap_or_default())?;
        ensure!(identifier <= 255, "CHAP_I={identifier}");
        identifiers.insert(identifier);
    }
    ensure!(identifiers.len() > 1, "the identifier is always the same");
    Ok(())
}

// covers: SEC-11
fn sec_11(ctx: &mut Ctx) -> RowResult {
    if ctx.options().target_chap.is_some() {
        skip!("the target is configured for mutual CHAP");
    }
    let mut d = Dialogue::new(ctx)?;
    let reply = d.challenge("5")?;
    let mut pairs = d.response(&reply)?;
    pairs.extend(ours(&encode_hex(&[9; 16])));
    match d.finish(&pairs)? {
        Taken::On(reply) if reply.get(keys::CHAP_R).is_some() => {
            skip!("the target is configured for mutual CHAP")
        }
        other => other.refused("mutual CHAP without the target's secret", &[0x0201]),
    }
}

// covers: SEC-13
fn sec_13(ctx: &mut Ctx) -> RowResult {
    let mut session = ctx.session_with(|script| script.key(keys::MAX_CONNECTIONS, "2"))?;
    if session.params.max_connections < 2 {
        skip!("the target allows one connection per session");
    }
    let Some(chap) = ctx.chap() else { skip!("needs CHAP credentials") };
    let joining =
        session.script.clone().joining(session.logged_in.tsih, iscsi_wire::Cid(2)).cmd_sn(session.cmd_sn.0);
    let none = crate::LoginScript { chap: None, ..joining.clone() };
    let wrong = ChapScript { secret: format!("{}-not", chap.secret), ..chap };
    let other = crate::LoginScript { chap: Some(wrong), ..joining.clone() };
    for (what, script) in [("without authentication", none), ("with another secret", other)] {
        match ctx.connect()?.login(&script) {
            Err(crate::PeerError::Login(_) | crate::PeerError::LoginRule(_)) => {}
            Err(error) if error.is_closed() => {}
            Err(error) => fail!("a further connection {what}: {error}"),
            Ok(_) => fail!("a further connection {what} joined an authenticated session"),
        }
        session.ping()?;
    }
    ctx.join(&session, iscsi_wire::Cid(2))?.ping()?;
    Ok(())
}

// covers: SEC-14
fn sec_14(ctx: &mut Ctx) -> RowResult {
    let Some(chap) = ctx.chap() else { skip!("needs CHAP credentials") };
    let mut script = ctx.script();
    script.initiator_name = format!("{}.stranger", script.initiator_name);
    match ctx.session_of(script) {
        Ok(_) => skip!("the target binds {} to no initiator name, or to others too", chap.user),
        Err(Stop::Fail(why)) if why.starts_with("login refused") => Ok(()),
        Err(other) => Err(other),
    }
}

// covers: SEC-15
fn sec_15(ctx: &mut Ctx) -> RowResult {
    let Some(chap) = ctx.chap() else { skip!("needs CHAP credentials") };
    let s = ctx.session()?;
    let mut wrong = ctx.script();
    if let Some(chap) = &mut wrong.chap {
        chap.secret = "certainly-another".to_owned();
    }
    let refused = ctx.session_of(wrong);
    ensure!(refused.is_err(), "a wrong secret was accepted");
    let secrets = [Some(chap.secret), chap.target.map(|(_, secret)| secret)];
    for entry in ctx.transcript().entries().iter().filter(|entry| entry.side == crate::Side::Target) {
        for secret in secrets.iter().flatten().filter(|secret| secret.len() >= 8) {
            let shown = entry.data().windows(secret.len()).any(|window| window == secret.as_bytes());
            ensure!(!shown, "a secret is in what the target sends");
        }
    }
    drop(s);
    Ok(())
}

// covers: SEC-16
fn sec_16(ctx: &mut Ctx) -> RowResult {
    let script = ctx.discovery_script();
    if script.chap.is_none() {
        skip!("needs CHAP credentials");
    }
    // With credentials discovery works; without, it works or is refused with 0201, as configured.
    crate::target::ctx::exchange_text(
        &mut *ctx.session_of(script.clone())?,
        &text_of(&[(keys::SEND_TARGETS, "All")]),
    )?;
    let open = LoginScript { chap: None, ..ctx.discovery_script() };
    match crate::target::talk::Talk::with(ctx, open)?.step(&[], true)? {
        Taken::On(_) => Ok(()),
        other => other.refused("discovery without credentials", &[0x0201]),
    }
}
