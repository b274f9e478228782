//! Login, CHAP, names and reinstatement (rows LGN, SEC, NAM, SES) of an initiator.

use super::play::{Op, Play, Played, Stage, read_write, replace, retext};
use super::{Row, RowResult};
use crate::evil::{Act, Behaviour, EvilConfig};
use crate::script::{ensure, fail, skip};
use crate::target::Credentials;
use crate::transcript::What;
use iscsi_wire::{LoginStatus, Opcode, encode_base64, keys, parse_binary};
use std::collections::HashSet;

pub(super) const ROWS: &[Row] = &[
    Row::new("LGN-02", "another PDU than a Login Response ends the login", lgn_02),
    Row::new("LGN-08", "T without T, or a stage above the proposed one, ends the login", lgn_08),
    Row::new("LGN-11", "ITT, ISID, TSIH, CID and CmdSN constant through login", lgn_11),
    Row::new("LGN-12", "the first command has the CmdSN of the login", lgn_12),
    Row::new("LGN-13", "StatSN may start anywhere, and wraps", lgn_13),
    Row::new("LGN-14", "a refusal: closed, in words, and not tried for ever", lgn_14),
    Row::new("LGN-15", "redirection followed, with an end to it", lgn_15),
    Row::new("LGN-18", "a login in one round trip", lgn_18),
    Row::new("SEC-01", "CHAP one way and mutual", sec_01),
    Row::new("SEC-02", "a challenge with keys missing or twice ends the login", sec_02),
    Row::new("SEC-03", "algorithm 5 is on offer; another than offered is refused", sec_03),
    Row::new("SEC-04", "responses by every algorithm on offer", sec_04),
    Row::new("SEC-05", "challenges in either encoding, up to 1024 bytes", sec_05),
    Row::new("SEC-08", "one secret for both directions is refused", sec_08),
    Row::new("SEC-09", "challenges of mutual CHAP are fresh", sec_09),
    Row::new("SEC-12", "target authentication missing, wrong or skipped ends the login", sec_12),
    Row::new("SEC-15", "no secret in PDUs and error texts", sec_15),
    Row::new("SEC-16", "authentication of discovery", sec_16),
    Row::new("NAM-01", "InitiatorName is a legal name", nam_01),
    Row::new("NAM-03", "ISID of a defined format, the same after a restart", nam_03),
    Row::new("NAM-05", "the same ISID at another portal group", nam_05),
    Row::new("SES-06", "after a loss the same ISID comes back", ses_06),
];

const USER: &str = "alice";
const SECRET: &str = "wonderland-secret";
const TARGET_USER: &str = "queen";
const TARGET_SECRET: &str = "of-hearts-secret";

fn credentials(name: &str, secret: &str) -> Credentials {
    Credentials { name: name.to_owned(), secret: secret.to_owned() }
}

fn one_way() -> Play {
    Play::new().config(EvilConfig::authenticating(credentials(USER, SECRET), None)).user(USER, SECRET)
}

fn mutual() -> Play {
    let target = credentials(TARGET_USER, TARGET_SECRET);
    let config = EvilConfig::authenticating(credentials(USER, SECRET), Some(target));
    let play = Play::new().config(config).user(USER, SECRET);
    play.set("target_user", TARGET_USER).set("target_password", TARGET_SECRET)
}

/// A target that changes the pairs of its security responses.
fn securing(mut change: impl FnMut(&mut Vec<(String, String)>) + Send + 'static) -> Behaviour {
    Behaviour::good().every(Opcode::LoginResponse, move |_, frame| {
        let bytes = *frame.bhs().as_bytes();
        let security = bytes[1] >> 2 & 3 == 0 && bytes[36] == 0;
        let frame = if security { retext(frame, |pairs| change(pairs)) } else { frame };
        vec![Act::Send(frame)]
    })
}

// covers: LGN-02
fn lgn_02(stage: &Stage<'_>) -> RowResult {
    let confused = Behaviour::good().every(Opcode::LoginResponse, |_, frame| {
        vec![Act::Tell(super::play::ping(u32::MAX, u32::MAX)), Act::Send(frame)]
    });
    stage.play(confused, &read_write())?.refused("a NOP-In during login")
}

// covers: LGN-08
fn lgn_08(stage: &Stage<'_>) -> RowResult {
    // Stage 0 with T=1 directly to full feature, although the operational stage was requested.
    let play = one_way();
    let leap = Behaviour::good().every(Opcode::LoginResponse, |_, frame| {
        let bits = frame.bhs().as_bytes()[1];
        let frame = if bits & 0x8f == 0x81 { frame.set_bits(1, 0x83).patch(14, &[0, 9]) } else { frame };
        vec![Act::Send(frame)]
    });
    stage.play_as(&play, leap, &read_write())?.refused("NSG above the one that was asked for")?;
    // T=1 in answer to T=0.
    let eager = Behaviour::good().every(Opcode::LoginResponse, |_, frame| {
        let security = frame.bhs().as_bytes()[1] & 0x8c == 0;
        let frame = if security { frame.set_bits(1, 0x81) } else { frame };
        vec![Act::Send(frame)]
    });
    stage.play_as(&play, eager, &read_write())?.refused("T=1 in answer to T=0")
}

// covers: LGN-11
fn lgn_11(stage: &Stage<'_>) -> RowResult {
    stage.play_as(&mutual(), Behaviour::good(), &read_write())?.clean("LGN-11")?;
    let changes: &[(&str, usize)] = &[("ITT", 19), ("ISID", 13)];
    for (what, at) in changes {
        let at = *at;
        let changed = Behaviour::good().every(Opcode::LoginResponse, move |_, frame| {
            let byte = frame.bhs().as_bytes()[at] ^ 0x55;
            vec![Act::Send(frame.patch(at, &[byte]))]
        });
        stage.play(changed, &read_write())?.refused(&format!("another {what} in the Login Response"))?;
    }
    Ok(())
}

// covers: LGN-12
fn lgn_12(stage: &Stage<'_>) -> RowResult {
    let played = stage.goes_well(&Play::new(), Behaviour::good())?;
    played.clean("NUM-01")
}

// covers: LGN-13
fn lgn_13(stage: &Stage<'_>) -> RowResult {
    for first_stat_sn in [0, 0xffff_fffe, 0x7fff_ffff, 0x1234_5678] {
        let config = EvilConfig { first_stat_sn, ..EvilConfig::default() };
        let played = stage.goes_well(&Play::new().config(config), Behaviour::good())?;
        // The last request acknowledges every earlier response.
        let (mut next, mut last) = (first_stat_sn, None);
        for entry in &played.entries {
            let Some(bhs) = entry.bhs() else { continue };
            match entry.side {
                crate::Side::Initiator => last = Some((bhs.exp_stat_sn().0, next)),
                crate::Side::Target => {
                    let data_in = entry.is(Opcode::DataIn) && bhs.as_bytes()[1] & 1 == 0;
                    if !data_in && !entry.is(Opcode::R2t) {
                        next = next.wrapping_add(1);
                    }
                }
            }
        }
        let Some((acknowledged, due)) = last else { fail!("the initiator sent nothing") };
        ensure!(
            acknowledged == due,
            "StatSN from {first_stat_sn:#x} on: ExpStatSN {acknowledged:#x}, due is {due:#x}"
        );
    }
    Ok(())
}

fn refusing(status: LoginStatus) -> Behaviour {
    Behaviour::good().every(Opcode::LoginResponse, move |_, frame| {
        let frame = frame.clear_bits(1, 0x83).patch(36, &status.code().to_be_bytes()).patch(14, &[0, 0]);
        vec![Act::Send(frame.data(Vec::new())), Act::Close]
    })
}

// covers: LGN-14
fn lgn_14(stage: &Stage<'_>) -> RowResult {
    for status in LoginStatus::ALL.iter().filter(|status| status.class() >= 2) {
        let played = stage.play(refusing(*status), &[Op::Read { lba: 0, blocks: 1 }])?;
        played.refused(&format!("status {:#06x}", status.code()))?;
        let tries = played.connections();
        let limit = if status.class() == 2 { 2 } else { 10 };
        ensure!(tries <= limit, "status {:#06x}: {tries} connections", status.code());
    }
    Ok(())
}

/// A redirection to these addresses.
fn redirecting(status: u16, addresses: Vec<String>) -> Behaviour {
    Behaviour::good().every(Opcode::LoginResponse, move |_, frame| {
        let pairs: Vec<_> =
            addresses.iter().map(|address| (keys::TARGET_ADDRESS, address.as_str())).collect();
        let frame = frame.clear_bits(1, 0x83).patch(36, &status.to_be_bytes()).patch(14, &[0, 0]);
        vec![Act::Send(frame.data(crate::text_of(&pairs))), Act::Close]
    })
}

// covers: LGN-15
fn lgn_15(stage: &Stage<'_>) -> RowResult {
    let play = Play::new();
    for status in [0x0101, 0x0102] {
        let second = stage.target(&play, Behaviour::good())?;
        let addresses = vec![second.address().to_string()];
        let first = stage.target(&play, redirecting(status, addresses))?;
        let played = stage.play_on(&play, &first, &read_write());
        if let Err(error) = &played.results {
            fail!("a redirection {status:#06x} was not followed: {error}");
        }
        played.went_well_elsewhere(&second)?;
    }
    // To itself, endlessly.
    let loops = redirected_to_itself(stage)?;
    loops.refused("a redirection to itself")?;
    ensure!(loops.connections() <= 20, "{} connections in a redirection loop", loops.connections());
    // Without an address.
    stage.play(redirecting(0x0101, Vec::new()), &read_write())?.refused("a redirection without TargetAddress")
}

fn redirected_to_itself(stage: &Stage<'_>) -> Result<Played, crate::Stop> {
    let play = Play::new();
    let own: std::sync::Arc<std::sync::Mutex<String>> = Default::default();
    let address = own.clone();
    let behaviour = Behaviour::good().every(Opcode::LoginResponse, move |_, frame| {
        let address = address.lock().map(|address| address.clone()).unwrap_or_default();
        let frame = frame.clear_bits(1, 0x83).patch(36, &[1, 1]).patch(14, &[0, 0]);
        vec![Act::Send(frame.data(crate::text_of(&[(keys::TARGET_ADDRESS, address)]))), Act::Close]
    });
    let target = stage.target(&play, behaviour)?;
    if let Ok(mut own) = own.lock() {
        *own = target.address().to_string();
    }
    Ok(stage.play_on(&play, &target, &read_write()))
}

// covers: LGN-18
fn lgn_18(stage: &Stage<'_>) -> RowResult {
    let played = stage.goes_well(&Play::new(), Behaviour::good())?;
    let requests = played.sent(1, Opcode::LoginRequest);
    ensure!(requests <= 3, "{requests} requests for a login without authentication");
    Ok(())
}

// covers: SEC-01
fn sec_01(stage: &Stage<'_>) -> RowResult {
    stage.goes_well(&one_way(), Behaviour::good())?;
    stage.goes_well(&mutual(), Behaviour::good())?;
    let wrong = Play::new().config(one_way().config).user(USER, "another-secret-altogether");
    stage.play_as(&wrong, Behaviour::good(), &read_write())?.refused("a wrong secret")
}

// covers: SEC-02
fn sec_02(stage: &Stage<'_>) -> RowResult {
    for key in [keys::CHAP_A, keys::CHAP_I, keys::CHAP_C] {
        let missing = securing(move |pairs| pairs.retain(|(name, _)| name != key));
        stage.play_as(&one_way(), missing, &read_write())?.refused(&format!("a challenge without {key}"))?;
        let twice = securing(move |pairs| {
            let again = pairs.iter().find(|(name, _)| name == key).cloned();
            pairs.extend(again);
        });
        stage.play_as(&one_way(), twice, &read_write())?.refused(&format!("a challenge with {key} twice"))?;
    }
    let none = securing(|pairs| pairs.retain(|(name, _)| name != keys::AUTH_METHOD));
    stage.play_as(&one_way(), none, &read_write())?.refused("AuthMethod not answered")
}

// covers: SEC-03
fn sec_03(stage: &Stage<'_>) -> RowResult {
    let played = stage.goes_well(&one_way(), Behaviour::good())?;
    let offer = played.offered(1).into_iter().find(|(key, _)| key == keys::CHAP_A).map(|(_, value)| value);
    let listed = offer.as_deref().is_some_and(|list| list.split(',').any(|item| item == "5"));
    ensure!(listed, "CHAP_A={offer:?} does not list 5");
    for other in ["9", "0", "md5"] {
        let wrong = securing(move |pairs| {
            replace(pairs, keys::CHAP_A, other);
        });
        stage.play_as(&one_way(), wrong, &read_write())?.refused(&format!("CHAP_A answered with {other}"))?;
    }
    Ok(())
}

// covers: SEC-04
fn sec_04(stage: &Stage<'_>) -> RowResult {
    let offer = stage.goes_well(&one_way(), Behaviour::good())?.offered(1);
    let list =
        offer.into_iter().find(|(key, _)| key == keys::CHAP_A).map(|(_, value)| value).unwrap_or_default();
    for number in list.split(',').filter_map(|item| item.parse::<u64>().ok()) {
        let mut play = mutual();
        play.config.chap.algorithms = vec![number];
        stage.goes_well(&play, Behaviour::good())?;
    }
    Ok(())
}

// covers: SEC-05
fn sec_05(stage: &Stage<'_>) -> RowResult {
    for length in [1, 16, 255, 1023, 1024] {
        let mut play = one_way();
        play.config.chap.challenge_length = length;
        stage.goes_well(&play, Behaviour::good())?;
        let base64 = securing(|pairs| recode(pairs, encode_base64));
        stage.goes_well(&play, base64)?;
        let capitals = securing(|pairs| recode(pairs, |bytes| iscsi_wire::encode_hex(bytes).to_uppercase()));
        stage.goes_well(&play, capitals)?;
    }
    let mut play = one_way();
    play.config.chap.challenge_length = 1025;
    stage.play_as(&play, Behaviour::good(), &read_write())?.refused("a challenge of 1025 bytes")
}

fn recode(pairs: &mut [(String, String)], encode: impl Fn(&[u8]) -> String) {
    for (key, value) in pairs {
        if key == keys::CHAP_C
            && let Ok(bytes) = parse_binary(value, 2048)
        {
            *value = encode(&bytes);
        }
    }
}

// covers: SEC-08
fn sec_08(stage: &Stage<'_>) -> RowResult {
    let target = credentials(TARGET_USER, SECRET);
    let config = EvilConfig::authenticating(credentials(USER, SECRET), Some(target));
    let play = Play::new().config(config).user(USER, SECRET);
    let play = play.set("target_user", TARGET_USER).set("target_password", SECRET);
    stage.play_as(&play, Behaviour::good(), &read_write())?.refused("one secret for both directions")
}

// covers: SEC-09
fn sec_09(stage: &Stage<'_>) -> RowResult {
    let mut seen = HashSet::new();
    for _ in 0..12 {
        let played = stage.play_as(&mutual(), Behaviour::good(), &[Op::Capacity])?;
        let challenge =
            played.offered(1).into_iter().find(|(key, _)| key == keys::CHAP_C).map(|(_, value)| value);
        let Some(challenge) = challenge else { fail!("no challenge in mutual CHAP") };
        let bytes = parse_binary(&challenge, 1024)?;
        ensure!(bytes.len() >= 8, "a challenge of {} bytes", bytes.len());
        ensure!(seen.insert(bytes), "a challenge came twice");
    }
    Ok(())
}

// covers: SEC-12
fn sec_12(stage: &Stage<'_>) -> RowResult {
    for key in [keys::CHAP_N, keys::CHAP_R] {
        let missing = securing(move |pairs| pairs.retain(|(name, _)| name != key));
        stage.play_as(&mutual(), missing, &read_write())?.refused(&format!("mutual CHAP without {key}"))?;
    }
    for change in [
        (|bytes: &mut Vec<u8>| bytes[0] ^= 1) as fn(&mut Vec<u8>),
        |bytes| bytes.truncate(8),
        |bytes| bytes.push(0),
    ] {
        let wrong = securing(move |pairs| {
            for (key, value) in pairs {
                if key == keys::CHAP_R
                    && let Ok(mut bytes) = parse_binary(value, 1024)
                {
                    change(&mut bytes);
                    *value = iscsi_wire::encode_hex(&bytes);
                }
            }
        });
        stage.play_as(&mutual(), wrong, &read_write())?.refused("a wrong response of the target")?;
    }
    let stranger = securing(|pairs| {
        replace(pairs, keys::CHAP_N, "somebody-else");
    });
    stage.play_as(&mutual(), stranger, &read_write())?.refused("another CHAP_N than configured")?;
    // AuthMethod=None, although the initiator insists on CHAP.
    let none = securing(|pairs| {
        replace(pairs, keys::AUTH_METHOD, "None");
    });
    stage.play_as(&mutual(), none, &read_write())?.refused("AuthMethod answered with None")?;
    // The transition too early, before any response.
    let early = Behaviour::good().first(Opcode::LoginResponse, |_, frame| {
        vec![Act::Send(frame.set_bits(1, 0x81).remark("T=1 early"))]
    });
    stage.play_as(&mutual(), early, &read_write())?.refused("T=1 before the target proved itself")
}

// covers: SEC-15
fn sec_15(stage: &Stage<'_>) -> RowResult {
    let good = stage.play_as(&mutual(), Behaviour::good(), &read_write())?;
    let bad = stage.play_as(&mutual(), refusing(LoginStatus::AuthenticationFailure), &read_write())?;
    for secret in [SECRET, TARGET_SECRET] {
        for played in [&good, &bad] {
            let sent = played
                .sent_pdus()
                .any(|entry| entry.data().windows(secret.len()).any(|window| window == secret.as_bytes()));
            ensure!(!sent, "a secret went over the wire");
            ensure!(!played.words().contains(secret), "a secret is in an error text");
        }
    }
    Ok(())
}

// covers: SEC-16
fn sec_16(stage: &Stage<'_>) -> RowResult {
    let with = one_way().discovery();
    let played = stage.play_as(&with, Behaviour::good(), &[Op::Discover])?;
    if let Err(error) = &played.results {
        fail!("discovery with CHAP: {error}");
    }
    let without = Play { user: None, ..one_way() }.discovery();
    stage.play_as(&without, Behaviour::good(), &[Op::Discover])?.refused("discovery without credentials")
}

// covers: NAM-01
fn nam_01(stage: &Stage<'_>) -> RowResult {
    stage.goes_well(&Play::new(), Behaviour::good()).map(|_| ())
}

fn isids(played: &Played) -> Vec<[u8; 6]> {
    let logins = played.sent_pdus().filter(|entry| entry.is(Opcode::LoginRequest));
    let bytes = logins.filter_map(|entry| entry.bhs());
    bytes.map(|bhs| std::array::from_fn(|n| bhs.as_bytes()[8 + n])).collect()
}

// covers: NAM-03
fn nam_03(stage: &Stage<'_>) -> RowResult {
    let first = isids(&stage.goes_well(&Play::new(), Behaviour::good())?);
    let second = isids(&stage.goes_well(&Play::new(), Behaviour::good())?);
    let (Some(one), Some(two)) = (first.first(), second.first()) else { fail!("no login was seen") };
    ensure!(one[0] >> 6 != 3, "ISID {one:02x?} has the reserved format");
    ensure!(one == two, "ISID {one:02x?}, after a restart {two:02x?}");
    Ok(())
}

// covers: NAM-05
fn nam_05(stage: &Stage<'_>) -> RowResult {
    let at = |portal_group_tag| Play::new().config(EvilConfig { portal_group_tag, ..EvilConfig::default() });
    let first = isids(&stage.goes_well(&at(1), Behaviour::good())?);
    let second = isids(&stage.goes_well(&at(2), Behaviour::good())?);
    ensure!(
        first.first() == second.first(),
        "portal group 1: ISID {first:02x?}, portal group 2: {second:02x?}"
    );
    Ok(())
}

// covers: SES-06
fn ses_06(stage: &Stage<'_>) -> RowResult {
    let mut done = false;
    let lossy = Behaviour::good().every(Opcode::DataIn, move |scene, frame| {
        if scene.connection == 1 && !std::mem::replace(&mut done, true) {
            return vec![Act::Reset];
        }
        vec![Act::Send(frame)]
    });
    let played = stage.play(lossy, &read_write())?;
    played.no_wrong_byte()?;
    let seen = isids(&played);
    if played.connections() < 2 {
        played.failed("a lost connection")?;
        skip!("the initiator does not come back after a loss");
    }
    ensure!(seen.iter().all(|isid| *isid == seen[0]), "after a loss another ISID: {seen:02x?}");
    Ok(())
}

impl Played {
    /// After a redirection: operations reported as done were executed on the other target.
    fn went_well_elsewhere(&self, other: &crate::evil::EvilTarget) -> RowResult {
        other.settle(std::time::Duration::from_secs(2));
        let served = other.transcript().entries().iter().any(|entry| entry.is(Opcode::ScsiCommand));
        ensure!(served, "the target of the redirection saw no command");
        let opened =
            other.transcript().entries().iter().filter(|entry| matches!(entry.what, What::Opened)).count();
        ensure!(opened >= 1, "the target of the redirection saw no connection");
        Ok(())
    }
}
