//! Text and keys (rows TXT, KEY) of an initiator.

use super::play::{Play, Stage, answering, read_write, replace, retext};
use super::{Row, RowResult};
use crate::evil::{Act, Behaviour, EvilConfig, EvilTexts};
use crate::script::{ensure, fail, skip};
use crate::target::Credentials;
use iscsi_wire::{LoginStage, Opcode, TextPairs, keys, parse_number};

pub(super) const ROWS: &[Row] = &[
    Row::new("TXT-01", "text ends with NUL; = in a value belongs to the value", txt_01),
    Row::new("TXT-02", "key names and values within their limits", txt_02),
    Row::new("TXT-04", "8 KiB of text over several PDUs", txt_04),
    Row::new("TXT-05", "text split at any byte; C=1 is answered by an empty request", txt_05),
    Row::new("TXT-06", "C=1 with T=1 ends the login", txt_06),
    Row::new("TXT-09", "Reject, Irrelevant, NotUnderstood as proposals are an error", txt_09),
    Row::new("TXT-16", "six and more exchanges are tolerated", txt_16),
    Row::new("TXT-17", "a key in the wrong stage ends the login", txt_17),
    Row::new("TXT-18", "the target's MaxRecvDataSegmentLength is obeyed", txt_18),
    Row::new("KEY-05", "InitiatorName in the first request", key_05),
    Row::new("KEY-11", "MaxRecvDataSegmentLength: declared legally, the target's obeyed", key_11),
    Row::new("KEY-12", "MaxBurstLength: the lower", key_12),
    Row::new("KEY-13", "FirstBurstLength: the lower", key_13),
    Row::new("KEY-16", "MaxOutstandingR2T: several R2Ts at once", key_16),
    Row::new("KEY-17", "DataPDUInOrder: OR", key_17),
    Row::new("KEY-18", "DataSequenceInOrder: OR", key_18),
    Row::new("KEY-20", "SessionType in the first request", key_20),
    Row::new("KEY-27", "AuthMethod: None when there are no credentials", key_27),
    Row::new("KEY-30", "no answer is assumed to what was not offered", key_30),
];

/// A target that proposes this key itself, and waits for its answer.
fn proposing(key: &str, value: &str) -> Play {
    let proposals = vec![(key.to_owned(), value.to_owned())];
    Play::new().config(EvilConfig::saying(EvilTexts { proposals, ..EvilTexts::default() }))
}

// covers: TXT-01
fn txt_01(stage: &Stage<'_>) -> RowResult {
    let alias = answering(|pairs| pairs.push((keys::TARGET_ALIAS.to_owned(), "a=b=c".to_owned())));
    let played = stage.goes_well(&Play::new(), alias)?;
    for entry in played.sent_pdus().filter(|entry| entry.is(Opcode::LoginRequest)) {
        let data = entry.data();
        ensure!(data.is_empty() || data.ends_with(&[0]), "text without its last NUL: {entry}");
    }
    Ok(())
}

// covers: TXT-02
fn txt_02(stage: &Stage<'_>) -> RowResult {
    let played = stage.goes_well(&Play::new(), Behaviour::good())?;
    for entry in played.sent_pdus().filter(|entry| entry.is(Opcode::LoginRequest)) {
        if let Err(error) = TextPairs::parse(entry.data()) {
            fail!("{error}: {entry}");
        }
    }
    Ok(())
}

// covers: TXT-04
fn txt_04(stage: &Stage<'_>) -> RowResult {
    let proposals: Vec<_> = (0..32).map(|n| (format!("X-org.example.key{n}"), "v".repeat(235))).collect();
    let config =
        EvilConfig::saying(EvilTexts { proposals, login_cuts: vec![4000, 4000], ..EvilTexts::default() });
    let played = stage.play_as(&Play::new().config(config), Behaviour::good(), &read_write())?;
    let answered = played.offered(1).iter().filter(|(_, value)| value == keys::NOT_UNDERSTOOD).count();
    ensure!(answered == 32, "{answered} of 32 keys were answered: {}", played.words());
    played.went_well()?;
    // Far more than anyone must accept: it must end somehow.
    let proposals: Vec<_> = (0..2000).map(|n| (format!("X-org.example.key{n}"), "v".repeat(235))).collect();
    let config =
        EvilConfig::saying(EvilTexts { proposals, login_cuts: vec![8000; 100], ..EvilTexts::default() });
    stage.play_as(&Play::new().config(config), Behaviour::good(), &read_write())?.no_wrong_byte()
}

// covers: TXT-05
fn txt_05(stage: &Stage<'_>) -> RowResult {
    for at in (1..60).step_by(3).chain([120]) {
        let config = EvilConfig::saying(EvilTexts { login_cuts: vec![at], ..EvilTexts::default() });
        stage.goes_well(&Play::new().config(config), Behaviour::good())?;
    }
    Ok(())
}

// covers: TXT-06
fn txt_06(stage: &Stage<'_>) -> RowResult {
    let both =
        Behaviour::good().every(Opcode::LoginResponse, |_, frame| vec![Act::Send(frame.set_bits(1, 0xc0))]);
    stage.play(both, &read_write())?.refused("a Login Response with T=1 and C=1")
}

// covers: TXT-09
fn txt_09(stage: &Stage<'_>) -> RowResult {
    for value in [keys::REJECT, keys::IRRELEVANT, keys::NOT_UNDERSTOOD] {
        let play = proposing(keys::MAX_CONNECTIONS, value);
        let played = stage.play_as(&play, Behaviour::good(), &read_write())?;
        let offers: Vec<_> =
            played.offered(1).into_iter().filter(|(key, _)| key == keys::MAX_CONNECTIONS).collect();
        // If the initiator offered the key itself, this was an answer.
        if offers.first().is_some_and(|(_, value)| value != keys::REJECT) {
            continue;
        }
        let rejected = offers.iter().any(|(_, value)| value == keys::REJECT);
        if !rejected {
            played.refused(&format!("MaxConnections={value} as a proposal"))?;
        }
    }
    Ok(())
}

// covers: TXT-16
fn txt_16(stage: &Stage<'_>) -> RowResult {
    let config = EvilConfig::saying(EvilTexts { hold_exchanges: 8, ..EvilTexts::default() });
    let played = stage.goes_well(&Play::new().config(config), Behaviour::good())?;
    let requests = played.sent(1, Opcode::LoginRequest);
    ensure!(requests >= 9, "{requests} login requests");
    Ok(())
}

// covers: TXT-17
fn txt_17(stage: &Stage<'_>) -> RowResult {
    let (name, secret) = ("alice".to_owned(), "a-secret-of-some-length".to_owned());
    let config = EvilConfig::authenticating(Credentials { name, secret }, None);
    let play = Play::new().config(config).user("alice", "a-secret-of-some-length");
    let early = Behaviour::good().first(Opcode::LoginResponse, |_, frame| {
        vec![Act::Send(retext(frame, |pairs| {
            pairs.push((keys::MAX_BURST_LENGTH.to_owned(), "4096".to_owned()))
        }))]
    });
    let played = stage.play_as(&play, early, &read_write())?;
    let rejected =
        played.offered(1).iter().any(|(key, value)| key == keys::MAX_BURST_LENGTH && value == keys::REJECT);
    if !rejected {
        played.refused("MaxBurstLength in the security stage")?;
    }
    Ok(())
}

// covers: TXT-18
fn txt_18(stage: &Stage<'_>) -> RowResult {
    let config = EvilConfig::default().key(keys::MAX_RECV_DATA_SEGMENT_LENGTH, "1024");
    let played = stage.goes_well(&Play::new().config(config), Behaviour::good())?;
    played.clean("DAT-01")
}

// covers: KEY-05
fn key_05(stage: &Stage<'_>) -> RowResult {
    let played = stage.goes_well(&Play::new(), Behaviour::good())?;
    let first =
        played.sent_pdus().next().map(|entry| super::play::pairs_of(entry.data())).unwrap_or_default();
    let names = first.iter().filter(|(key, _)| key == keys::INITIATOR_NAME).count();
    ensure!(names == 1, "{names} InitiatorName in the first request: {first:?}");
    played.clean("NAM-01")
}

// covers: KEY-11
fn key_11(stage: &Stage<'_>) -> RowResult {
    let config = EvilConfig::default().key(keys::MAX_RECV_DATA_SEGMENT_LENGTH, "512");
    let played = stage.goes_well(&Play::new().config(config), Behaviour::good())?;
    played.clean("DAT-01")?;
    for (key, value) in played.offered(1) {
        if key == keys::MAX_RECV_DATA_SEGMENT_LENGTH {
            let legal = parse_number(&value).is_ok_and(|value| (512..=0xff_ffff).contains(&value));
            ensure!(legal, "MaxRecvDataSegmentLength={value}");
        }
    }
    // Without a declaration, up to 8192 bytes may arrive, and at most that many may be sent.
    let silent = answering(|pairs| pairs.retain(|(key, _)| key != keys::MAX_RECV_DATA_SEGMENT_LENGTH));
    let config = EvilConfig::default().key(keys::MAX_RECV_DATA_SEGMENT_LENGTH, "8192");
    stage.goes_well(&Play::new().config(config), silent)?.clean("DAT-01")
}

// covers: KEY-12
fn key_12(stage: &Stage<'_>) -> RowResult {
    let config =
        EvilConfig::default().key(keys::MAX_BURST_LENGTH, "1024").key(keys::FIRST_BURST_LENGTH, "512");
    let played = stage.goes_well(&Play::new().config(config), Behaviour::good())?;
    ["DAT-01", "DAT-03", "R2T-03", "UNS-03"].iter().try_for_each(|row| played.clean(row))
}

// covers: KEY-13
fn key_13(stage: &Stage<'_>) -> RowResult {
    let config = EvilConfig::default().key(keys::FIRST_BURST_LENGTH, "1024");
    let play = Play::new().config(config).set("initial_r2t", "no").set("immediate_data", "yes");
    let played = stage.goes_well(&play, Behaviour::good())?;
    ["UNS-03", "UNS-04", "DAT-03"].iter().try_for_each(|row| played.clean(row))
}

// covers: KEY-16
fn key_16(stage: &Stage<'_>) -> RowResult {
    let config = EvilConfig::default()
        .key(keys::MAX_OUTSTANDING_R2T, "8")
        .key(keys::MAX_BURST_LENGTH, "2048")
        .key(keys::FIRST_BURST_LENGTH, "512");
    let play = Play::new().config(config).set("max_outstanding_r2t", "8");
    let played = stage.goes_well(&play, Behaviour::good())?;
    ["R2T-02", "R2T-03", "DAT-02", "DAT-03"].iter().try_for_each(|row| played.clean(row))
}

/// A key whose result is Yes if either end says so, set by `setting`: all four combinations, and a No that is no answer to Yes.
fn either(stage: &Stage<'_>, key: &'static str, setting: &'static str) -> RowResult {
    for ours in ["yes", "no"] {
        for theirs in ["Yes", "No"] {
            let play = Play::new().config(EvilConfig::default().key(key, theirs)).set(setting, ours);
            let played = stage.goes_well(&play, Behaviour::good())?;
            ["DAT-03", "R2T-02", "R2T-03"].iter().try_for_each(|row| played.clean(row))?;
        }
    }
    let wrong = answering(move |pairs| {
        replace(pairs, key, "No");
    });
    let played = stage.play_as(&Play::new().set(setting, "yes"), wrong, &read_write())?;
    match played.offered(1).iter().find(|(name, _)| name == key) {
        Some((_, offer)) if offer == "Yes" => played.refused(&format!("{key}=Yes answered with No")),
        Some((_, offer)) => fail!("{key}={offer} was offered where Yes was wanted"),
        None => skip!("the initiator does not offer {key}"),
    }
}

// covers: KEY-17
fn key_17(stage: &Stage<'_>) -> RowResult {
    either(stage, keys::DATA_PDU_IN_ORDER, "data_pdu_in_order")
}

// covers: KEY-18
fn key_18(stage: &Stage<'_>) -> RowResult {
    either(stage, keys::DATA_SEQUENCE_IN_ORDER, "data_sequence_in_order")
}

// covers: KEY-20
fn key_20(stage: &Stage<'_>) -> RowResult {
    let play = Play::new().discovery();
    let played = stage.play_as(&play, Behaviour::good(), &[super::play::Op::Discover])?;
    let first =
        played.sent_pdus().next().map(|entry| super::play::pairs_of(entry.data())).unwrap_or_default();
    let kind = first.iter().find(|(key, _)| key == keys::SESSION_TYPE).map(|(_, value)| value.as_str());
    ensure!(kind == Some("Discovery"), "SessionType in the first request of discovery: {kind:?}");
    let target = first.iter().find(|(key, _)| key == keys::TARGET_NAME);
    ensure!(target.is_none(), "an unnamed discovery session names {target:?}");
    Ok(())
}

// covers: KEY-27
fn key_27(stage: &Stage<'_>) -> RowResult {
    let played = stage.goes_well(&Play::new(), Behaviour::good())?;
    for (_, value) in played.offered(1).iter().filter(|(key, _)| key == keys::AUTH_METHOD) {
        ensure!(value.split(',').any(|method| method == "None"), "AuthMethod={value} without credentials");
    }
    let csg = played.sent_pdus().next().and_then(|entry| entry.bhs().map(|bhs| bhs.as_bytes()[1] >> 2 & 3));
    ensure!(
        csg == Some(LoginStage::Operational.code()) || csg == Some(0),
        "the login begins in stage {csg:?}"
    );
    Ok(())
}

// covers: KEY-30
fn key_30(stage: &Stage<'_>) -> RowResult {
    // A target that only answers offers, and a login that completes without further keys.
    let played = stage.goes_well(&Play::new(), Behaviour::good())?;
    let mut seen = Vec::new();
    for (key, _) in played.offered(1) {
        ensure!(!seen.contains(&key), "{key} was offered twice");
        seen.push(key);
    }
    Ok(())
}
