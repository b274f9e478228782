//! Text format and negotiation (rows TXT).

use crate::frame::Frame;
use crate::script::{ensure, fail, skip};
use crate::session::Command;
use crate::target::ctx::exchange_text;
use crate::target::talk::{Taken, Talk};
use crate::target::{Ctx, Row, RowResult};
use crate::{PeerError, Reaction, Stop, text_of};
use iscsi_wire::{LoginStage, Lun, TextRequest, Ttt, keys, parse_number};

pub(super) const ROWS: &[Row] = &[
    Row::new("TXT-01", "key=value with a NUL each; the first = splits; case matters", txt_01),
    Row::new("TXT-02", "key names to 63 bytes, values to 255", txt_02),
    Row::new("TXT-03", "numbers in decimal and hexadecimal, below 2^64", txt_03),
    Row::new("TXT-04", "8192 bytes of text over several PDUs; more fails cleanly", txt_04),
    Row::new("TXT-05", "text split at any byte; C=1 is answered by an empty response", txt_05),
    Row::new("TXT-06", "C=1 with T=1 or F=1 is an error", txt_06),
    Row::new("TXT-07", "one text exchange at a time on a connection", txt_07),
    Row::new("TXT-10", "answers Reject and Irrelevant do not end the negotiation", txt_10),
    Row::new("TXT-14", "nothing of a failed negotiation takes effect", txt_14),
    Row::new("TXT-15", "FirstBurstLength never above MaxBurstLength, in whichever order they come", txt_15),
    Row::new("TXT-17", "a key in the wrong stage or phase is an error", txt_17),
    Row::new("TXT-18", "MaxRecvDataSegmentLength takes effect at once", txt_18),
];

/// The answer to one offer in a separate login.
pub(super) fn answer(ctx: &Ctx, key: &str, value: &str) -> Result<Taken, Stop> {
    Talk::new(ctx)?.step(&[(key, value)], true)
}

fn not_understood(taken: &Taken, key: &str) -> bool {
    matches!(taken, Taken::On(reply) if reply.get(key) == Some(keys::NOT_UNDERSTOOD))
}

// covers: TXT-01
fn txt_01(ctx: &mut Ctx) -> RowResult {
    // The target may or may not tolerate a missing final NUL, but the exchange must end.
    match Talk::new(ctx)?.raw(b"X-org.example.test=1", true)? {
        Taken::Nothing => fail!("no answer to text without its last NUL"),
        Taken::On(_) | Taken::Refused(_) | Taken::Closed => {}
    }
    for (key, value) in
        [("X-org.example.test", "a=b=c"), ("maxburstlength", "4096"), ("MAXBURSTLENGTH", "4096")]
    {
        let taken = answer(ctx, key, value)?;
        ensure!(not_understood(&taken, key), "{key}={value}: expected NotUnderstood, got {}", taken.words());
    }
    let taken = answer(ctx, keys::INITIATOR_ALIAS, "alias=with=equals")?;
    ensure!(matches!(taken, Taken::On(_)), "InitiatorAlias with = in its value: {}", taken.words());
    Ok(())
}

// covers: TXT-02
fn txt_02(ctx: &mut Ctx) -> RowResult {
    let name = |length: usize| format!("X-{}", "n".repeat(length - 2));
    let taken = answer(ctx, &name(63), "1")?;
    ensure!(not_understood(&taken, &name(63)), "a key of 63 bytes: {}", taken.words());
    let taken = answer(ctx, "X-org.example.long", &"v".repeat(255))?;
    ensure!(not_understood(&taken, "X-org.example.long"), "a value of 255 bytes: {}", taken.words());
    for (what, key, value) in [
        ("a key of 64 bytes", name(64), "1".to_owned()),
        ("a key without name", String::new(), "1".to_owned()),
        ("a value of 256 bytes", "X-org.example.long".to_owned(), "v".repeat(256)),
    ] {
        // Beyond the limits a target may refuse; it must not interpret it as something else.
        match answer(ctx, &key, &value)? {
            Taken::Refused(_) | Taken::Closed => {}
            Taken::On(reply) if reply.get(&key) == Some(keys::NOT_UNDERSTOOD) => {}
            Taken::On(reply) if reply.get(&key) == Some(keys::REJECT) => {}
            other => fail!("{what}: {}", other.words()),
        }
    }
    Ok(())
}

// covers: TXT-03
fn txt_03(ctx: &mut Ctx) -> RowResult {
    let number = |key: &str, value: &str| -> Result<u64, Stop> {
        let reply = answer(ctx, key, value)?.on(&format!("{key}={value}"))?;
        let got = reply.get(key).and_then(|got| parse_number(got).ok());
        got.ok_or_else(|| Stop::Fail(format!("{key}={value} was answered with {:?}", reply.get(key))))
    };
    let decimal = number(keys::MAX_BURST_LENGTH, "131072")?;
    for same in ["0x20000", "0X20000", "0x00020000", "000131072"] {
        let got = number(keys::MAX_BURST_LENGTH, same)?;
        ensure!(got == decimal, "MaxBurstLength={same} was answered with {got}, 131072 with {decimal}");
    }
    // A leading zero does not mean octal.
    let (ten, padded) = (number(keys::DEFAULT_TIME2WAIT, "10")?, number(keys::DEFAULT_TIME2WAIT, "010")?);
    ensure!(ten == padded, "DefaultTime2Wait=010 was answered with {padded}, 10 with {ten}");
    for wrong in ["-1", "+4096", "4096x", "0x", "18446744073709551616", "0x10000000000001000", "4 096", ""] {
        match answer(ctx, keys::MAX_BURST_LENGTH, wrong)? {
            Taken::Refused(_) | Taken::Closed => {}
            Taken::On(reply) if reply.get(keys::MAX_BURST_LENGTH) == Some(keys::REJECT) => {}
            other => fail!("MaxBurstLength={wrong:?}: expected Reject or a refusal, got {}", other.words()),
        }
    }
    Ok(())
}

// covers: TXT-04
fn txt_04(ctx: &mut Ctx) -> RowResult {
    let mut talk = Talk::new(ctx)?;
    let own: Vec<(String, String)> =
        (0..30).map(|n| (format!("X-org.example.key{n:02}"), "v".repeat(245))).collect();
    let mut text = text_of(&talk.take_names());
    text.extend(text_of(&own));
    text.truncate(text.len().min(8192));
    let reply = send_split(&mut talk, &text, 2000)?.on("8 KiB of keys over several PDUs")?;
    let missing = own.iter().find(|(key, _)| reply.get(key) != Some(keys::NOT_UNDERSTOOD));
    ensure!(missing.is_none(), "no NotUnderstood for {:?}", missing.map(|(key, _)| key));

    // Far above any limit: it must end somehow.
    let mut talk = Talk::new(ctx)?;
    let mut text = text_of(&talk.take_names());
    while text.len() < 1 << 20 {
        let name = format!("X-org.example.key{}", text.len());
        text.extend(text_of(&[(name, "v".repeat(240))]));
    }
    match send_split(&mut talk, &text, 8192) {
        Ok(Taken::Nothing) => fail!("no answer to 1 MiB of text"),
        Ok(_) => Ok(()),
        Err(Stop::Fail(why)) if why.contains("closed") || why.contains("reset") => Ok(()),
        Err(other) => Err(other),
    }
}

/// Sends login text in PDUs of `size` bytes, C set on all but the last, which requests full feature phase.
fn send_split(talk: &mut Talk, text: &[u8], size: usize) -> Result<Taken, Stop> {
    let parts: Vec<&[u8]> = text.chunks(size.max(1)).collect();
    for (n, part) in parts.iter().enumerate() {
        let last = n + 1 == parts.len();
        let nsg = last.then_some(LoginStage::FullFeature);
        let mut request = talk.script.request(LoginStage::Operational, nsg);
        request.continue_bit = !last;
        request.exp_stat_sn = talk.peer.ledger.exp_stat_sn();
        let taken = talk.send(&Frame::of(request).data(*part))?;
        if last {
            return Ok(taken);
        }
        match taken {
            Taken::On(reply) => ensure!(
                reply.pairs.is_empty() && !reply.response.transit,
                "a request with C=1 was answered with {:?}, T={}",
                reply.pairs,
                reply.response.transit
            ),
            other => return Ok(other),
        }
    }
    Ok(Taken::Nothing)
}

// covers: TXT-05
fn txt_05(ctx: &mut Ctx) -> RowResult {
    let script = ctx.script();
    let tail = text_of(&[(keys::MAX_BURST_LENGTH, "65536"), (keys::INITIAL_R2T, "Yes")]);
    let names = if script.chap.is_some() { Vec::new() } else { text_of(&script.names()) };
    let text = [names, tail].concat();
    for at in 1..text.len() {
        let mut talk = Talk::new(ctx)?;
        talk.take_names();
        let mut request = talk.script.request(LoginStage::Operational, None);
        request.continue_bit = true;
        request.exp_stat_sn = talk.peer.ledger.exp_stat_sn();
        let reply = talk.send(&Frame::of(request).data(&text[..at]))?.on(&format!("text split at {at}"))?;
        let response = reply.response;
        ensure!(
            reply.pairs.is_empty() && !response.transit && !response.continue_bit,
            "C=1 must be answered by an empty response without T, got {response:?} {:?}",
            reply.pairs
        );
        let reply = talk.raw(&text[at..], true)?.on(&format!("the rest of text split at {at}"))?;
        ensure!(
            reply.get(keys::MAX_BURST_LENGTH).is_some(),
            "split at {at}: MaxBurstLength was not answered"
        );
    }
    Ok(())
}

// covers: TXT-06
fn txt_06(ctx: &mut Ctx) -> RowResult {
    let mut talk = Talk::new(ctx)?;
    let mut request = talk.script.request(LoginStage::Operational, Some(LoginStage::FullFeature));
    request.continue_bit = true;
    request.exp_stat_sn = talk.peer.ledger.exp_stat_sn();
    let text = text_of(&talk.take_names());
    talk.send(&Frame::of(request).data(text))?.refused("a Login request with T=1 and C=1", &[])?;

    let mut s = ctx.session()?;
    let mut text = text_request(&mut s);
    text.continue_bit = true;
    s.peer.send(&Frame::of(text).data(text_of(&[(keys::SEND_TARGETS, "")])))?;
    super::refused("a Text request with F=1 and C=1", s.reaction(text.itt)?)
}

/// A Text request that starts an exchange, F set.
pub(super) fn text_request(s: &mut crate::Session) -> TextRequest {
    TextRequest {
        immediate: true,
        final_bit: true,
        continue_bit: false,
        lun: Lun(0),
        itt: s.itt(),
        ttt: Ttt::RESERVED,
        cmd_sn: s.cmd_sn,
        exp_stat_sn: s.peer.ledger.exp_stat_sn(),
    }
}

// covers: TXT-07
fn txt_07(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let mut first = text_request(&mut s);
    first.final_bit = false;
    s.peer.send(&Frame::of(first).data(text_of(&[("X-org.example.a", "1")])))?;
    let open = match s.reaction(first.itt)? {
        Reaction::Answered(rx) => iscsi_wire::TextResponse::parse(&rx.bhs)?,
        other => skip!("the target does not keep an exchange open: {}", other.words()),
    };
    ensure!(!open.final_bit, "a Text request with F=0 was answered with F=1");
    let second = text_request(&mut s);
    s.peer.send(&Frame::of(second).data(text_of(&[("X-org.example.b", "1")])).remark("a second exchange"))?;
    match s.reaction(second.itt)? {
        Reaction::Rejected(_) | Reaction::Closed => return Ok(()),
        Reaction::Answered(_) => {}
        other => fail!("a second Text exchange: {}", other.words()),
    }
    // If it was accepted as a new exchange, the first one no longer exists.
    let mut stale = text_request(&mut s);
    (stale.itt, stale.ttt, stale.lun) = (first.itt, open.ttt, open.lun);
    s.peer.send(&Frame::of(stale).remark("the first exchange goes on"))?;
    super::refused("two Text exchanges at a time", s.reaction(first.itt)?)
}

// covers: TXT-10
fn txt_10(ctx: &mut Ctx) -> RowResult {
    for value in [keys::IRRELEVANT, keys::REJECT] {
        let mut talk = Talk::new(ctx)?;
        let reply = talk.step(&[], false)?.on("an operational request without offers")?;
        let declared =
            [keys::TARGET_PORTAL_GROUP_TAG, keys::TARGET_ALIAS, keys::MAX_RECV_DATA_SEGMENT_LENGTH];
        let proposed: Vec<&str> =
            reply.pairs.iter().map(|(key, _)| key.as_str()).filter(|key| !declared.contains(key)).collect();
        if proposed.is_empty() {
            skip!(
                "the target proposes nothing by itself, so nothing can be answered with Reject or Irrelevant"
            );
        }
        let answers: Vec<(&str, &str)> = proposed.iter().map(|key| (*key, value)).collect();
        talk.step(&answers, true)?.on(&format!("{value} for every proposal"))?;
    }
    Ok(())
}

// covers: TXT-14
fn txt_14(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let text = text_request(&mut s);
    let wrong = [(keys::MAX_RECV_DATA_SEGMENT_LENGTH, "512"), (keys::MAX_RECV_DATA_SEGMENT_LENGTH, "1024")];
    s.peer.send(&Frame::of(text).data(text_of(&wrong)).remark("a key twice"))?;
    match s.reaction(text.itt)? {
        Reaction::Closed => return Ok(()),
        Reaction::Rejected(_) => {}
        Reaction::Answered(rx) => {
            let refused = rx.text().iter().any(|(_, value)| value == keys::REJECT);
            ensure!(refused, "MaxRecvDataSegmentLength twice in one Text request: {}", rx.line());
        }
        other => fail!("MaxRecvDataSegmentLength twice in one Text request: {}", other.words()),
    }
    let scratch = ctx.scratch();
    let blocks = 8192 / scratch.block_size.min(8192);
    let read = s.run_good(&Command::read_16(scratch.lba, blocks, scratch.block_size))?;
    ensure!(
        read.data_ins.len() < 8,
        "the failed negotiation took effect: {} Data-In PDUs",
        read.data_ins.len()
    );
    Ok(())
}

// covers: TXT-15
fn txt_15(ctx: &mut Ctx) -> RowResult {
    let burst = (keys::MAX_BURST_LENGTH, "4096");
    let first = (keys::FIRST_BURST_LENGTH, "65536");
    let on = [(keys::INITIAL_R2T, "No"), (keys::IMMEDIATE_DATA, "Yes")];
    for offers in [[burst, first, on[0], on[1]], [first, burst, on[0], on[1]]] {
        let taken = Talk::new(ctx)?.step(&offers, true)?;
        let Taken::On(reply) = &taken else {
            taken.refused("FirstBurstLength above MaxBurstLength", &[0x0200])?;
            continue;
        };
        let number = |key| reply.get(key).and_then(|value| parse_number(value).ok());
        let (max, first) = (number(keys::MAX_BURST_LENGTH), number(keys::FIRST_BURST_LENGTH));
        ensure!(first <= max || first.is_none(), "FirstBurstLength {first:?} above MaxBurstLength {max:?}");
    }
    Ok(())
}

// covers: TXT-17
fn txt_17(ctx: &mut Ctx) -> RowResult {
    // An operational key in the security stage.
    let script = ctx.script();
    let mut peer = ctx.connect()?;
    let mut pairs = script.names();
    pairs.push((keys::MAX_BURST_LENGTH.to_owned(), "65536".to_owned()));
    let request = script.request(LoginStage::Security, None);
    peer.send(&Frame::of(request).data(text_of(&pairs)))?;
    let taken = crate::target::talk::taken(&mut peer, &script)?;
    if !matches!(&taken, Taken::On(reply) if reply.get(keys::MAX_BURST_LENGTH) == Some(keys::REJECT)) {
        taken.refused("MaxBurstLength in the security stage", &[])?;
    }
    // A security key in the operational stage.
    let taken = answer(ctx, keys::AUTH_METHOD, "None")?;
    if !matches!(&taken, Taken::On(reply) if reply.get(keys::AUTH_METHOD) == Some(keys::REJECT)) {
        taken.refused("AuthMethod in the operational stage", &[])?;
    }
    // A key of the login in full feature phase.
    for (key, value) in [(keys::HEADER_DIGEST, "CRC32C"), (keys::MAX_BURST_LENGTH, "65536")] {
        let mut s = ctx.session()?;
        match exchange_text(&mut s, &text_of(&[(key, value)])) {
            Ok(pairs) => {
                let got = crate::login::value_of(&pairs, key);
                ensure!(got == Some(keys::REJECT), "{key} in a Text request was answered with {got:?}");
            }
            Err(error) if error.is_closed() => {}
            Err(PeerError::Unexpected { got, .. }) if got.starts_with("Reject") => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

// covers: TXT-18
fn txt_18(ctx: &mut Ctx) -> RowResult {
    let mut s = ctx.session()?;
    let scratch = ctx.scratch();
    let blocks = 16_384 / scratch.block_size.min(16_384);
    let read = Command::read_16(scratch.lba, blocks, scratch.block_size);
    s.run_good(&read)?;
    exchange_text(&mut s, &text_of(&[(keys::MAX_RECV_DATA_SEGMENT_LENGTH, "1024")]))?;
    s.peer.ledger.max_recv_data_segment_length = 1024;
    let outcome = s.run_good(&read)?;
    ensure!(outcome.data_ins.len() >= 16, "{} Data-In PDUs for 16 KiB at 1024", outcome.data_ins.len());
    super::clean(&s, "DAT-01")
}
