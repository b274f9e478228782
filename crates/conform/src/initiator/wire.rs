//! Framing and digests (rows PDU, AHS, DIG) of an initiator.

use super::play::{Op, OpResult, Play, Stage, if_applicable, pattern, ping, read_write};
use super::{Row, RowResult};
use crate::evil::{Act, Behaviour, Incoming};
use crate::frame::{DigestWish, Frame};
use crate::script::{ensure, fail};
use iscsi_wire::{DataIn, DataSn, Opcode, ResidualCount, ResponseNumbers, ScsiCommand, StatSn, keys};

pub(super) const ROWS: &[Row] = &[
    Row::new("PDU-01", "padding sent as zero, and not counted", pdu_01),
    Row::new("PDU-02", "reserved bits sent zero and ignored on receipt", pdu_02),
    Row::new("PDU-03", "a reserved code ends the connection or fails the task", pdu_03),
    Row::new("PDU-05", "an initiator's opcode from the target ends the connection", pdu_05),
    Row::new("PDU-06", "AHS or data where none may be ends the connection", pdu_06),
    Row::new("PDU-07", "a segment above MaxRecvDataSegmentLength ends the connection at its header", pdu_07),
    Row::new("PDU-09", "slow and coalesced PDUs parse", pdu_09),
    Row::new("DIG-01", "CRC32C and None, for header and data separately", dig_01),
    Row::new("DIG-03", "data digest over padding too, also when it is not zero", dig_03),
    Row::new("DIG-04", "digests never during login, always from the first PDU after it", dig_04),
    Row::new("DIG-05", "an answer that was not offered is refused", dig_05),
    Row::new("DIG-06", "the digests on offer are CRC32C and None", dig_06),
    Row::new("DIG-07", "a bad header digest ends the connection", dig_07),
    Row::new("DIG-11", "data with a bad digest never reaches the caller", dig_11),
    Row::new("DIG-12", "a bad data digest on Data-In or on a response", dig_12),
    Row::new("DIG-13", "digests in discovery sessions", dig_13),
    Row::new("DIG-14", "one wrong byte anywhere in a long segment is noticed", dig_14),
];

fn digests(header: &str, data: &str) -> Play {
    Play::new().set("header_digest", header).set("data_digest", data)
}

// covers: PDU-01
fn pdu_01(stage: &Stage<'_>) -> RowResult {
    // Also with answers of odd length.
    let odd = super::play::answering(|pairs| pairs.push(("TargetAlias".to_owned(), "odd".to_owned())));
    stage.goes_well(&Play::new(), odd).map(|_| ())
}

// covers: PDU-02
fn pdu_02(stage: &Stage<'_>) -> RowResult {
    let noisy = Behaviour::good().outgoing(|_, frame| {
        let frame = frame.set_bits(0, 0xc0).remark("reserved bits set");
        let opcode = Opcode::try_from(frame.bhs().opcode());
        let places: &[(usize, u8)] = match opcode {
            Ok(Opcode::LoginResponse) => &[(1, 0x30), (38, 0xff), (39, 0xff), (40, 0xff), (47, 0xff)],
            Ok(Opcode::ScsiResponse) => &[(1, 0x61), (8, 0xff), (15, 0xff)],
            Ok(Opcode::DataIn) => &[(1, 0x38), (2, 0xff)],
            Ok(Opcode::R2t) => &[(1, 0x7f), (2, 0xff), (3, 0xff)],
            Ok(Opcode::NopIn) => &[(1, 0x7f), (2, 0xff), (36, 0xff), (47, 0xff)],
            Ok(Opcode::LogoutResponse) => {
                &[(1, 0x7f), (3, 0xff), (8, 0xff), (20, 0xff), (36, 0xff), (44, 0xff)]
            }
            _ => &[],
        };
        vec![Act::Send(places.iter().fold(frame, |frame, (at, mask)| frame.set_bits(*at, *mask)))]
    });
    stage.goes_well(&Play::new(), noisy).map(|_| ())
}

// covers: PDU-03
fn pdu_03(stage: &Stage<'_>) -> RowResult {
    let strange = Behaviour::good().first(Opcode::ScsiResponse, |_, frame| {
        vec![Act::Send(frame.patch(2, &[0x44]).remark("response 0x44"))]
    });
    let write = [Op::Write { lba: 5, data: pattern(5, 8) }];
    let played = stage.play(strange, &write)?;
    let went_on = played.connections() == 1 && !played.dropped(1);
    if went_on {
        played.failed("a SCSI Response with a reserved response code")?;
    }
    let strange = Behaviour::good().first(Opcode::LoginResponse, |_, frame| {
        vec![Act::Send(frame.clear_bits(1, 0x0f).set_bits(1, 0x88).remark("stage 2"))]
    });
    stage.play(strange, &read_write())?.refused("a Login Response in stage 2")
}

// covers: PDU-05
fn pdu_05(stage: &Stage<'_>) -> RowResult {
    let confused = Behaviour::good().on_first(Opcode::ScsiCommand, |_, rx| {
        let mut bytes = *rx.bhs.as_bytes();
        (bytes[5], bytes[6], bytes[7]) = (0, 0, 0);
        Incoming::Before(vec![Act::Send(Frame::raw(bytes).remark("an initiator's PDU"))])
    });
    stage.is_dropped("a SCSI Command from the target", &Play::new(), confused).map(|_| ())
}

// covers: PDU-06
fn pdu_06(stage: &Stage<'_>) -> RowResult {
    let ahs = Behaviour::good().first(Opcode::ScsiResponse, |_, frame| {
        vec![Act::Send(frame.ahs([0, 5, 2, 0, 0, 0, 0, 1]).remark("AHS"))]
    });
    stage.is_dropped("AHS in a SCSI Response", &Play::new(), ahs)?;
    let small = Play::new().set("immediate_data", "no").set("initial_r2t", "yes");
    let data = Behaviour::good()
        .first(Opcode::R2t, |_, frame| vec![Act::Send(frame.data([1, 2, 3, 4]).remark("a data segment"))]);
    stage.is_dropped("a data segment in an R2T", &small, data).map(|_| ())
}

// covers: PDU-07
fn pdu_07(stage: &Stage<'_>) -> RowResult {
    let long = Behaviour::good().first(Opcode::DataIn, |scene, frame| {
        let claim = scene.initiator_max_recv + 4;
        // Only the header is sent: an initiator that waits for the data has not checked the length.
        let header = frame.data(Vec::new()).claim_data_length(claim);
        vec![Act::Send(header)]
    });
    let play = Play::new().set("max_recv_data_segment_length", "65536");
    stage.is_dropped("a Data-In above MaxRecvDataSegmentLength", &play, long).map(|_| ())
}

// covers: PDU-09
fn pdu_09(stage: &Stage<'_>) -> RowResult {
    let slow = Behaviour::good().outgoing(|_, frame| {
        let piece = if frame.data_bytes().len() > 2048 { 997 } else { 1 };
        vec![Act::Pieces(frame, piece)]
    });
    stage.goes_well(&Play::new(), slow)?;
    let many = Behaviour::good().on_first(Opcode::ScsiCommand, |_, _| {
        Incoming::Before((0..50).map(|_| Act::Tell(ping(u32::MAX, u32::MAX))).collect())
    });
    stage.goes_well(&Play::new(), many).map(|_| ())
}

// covers: DIG-01
fn dig_01(stage: &Stage<'_>) -> RowResult {
    for (header, data) in [("off", "off"), ("required", "off"), ("off", "required"), ("required", "required")]
    {
        let played = stage.goes_well(&digests(header, data), Behaviour::good())?;
        let agreed =
            |key: &str| played.offered(1).iter().any(|(name, value)| name == key && value.contains("CRC32C"));
        let due = (header == "required", data == "required");
        let got = (agreed(keys::HEADER_DIGEST), agreed(keys::DATA_DIGEST));
        ensure!(due == got, "header_digest={header}, data_digest={data}: CRC32C is on offer {got:?}");
        played.clean("DIG-03")?;
    }
    Ok(())
}

/// A good target whose Data-In PDUs have odd lengths, with non-zero padding.
fn odd_data_in() -> Behaviour {
    let mut last_itt = None;
    let mut extra = 0;
    Behaviour::good().every(Opcode::DataIn, move |_, frame| {
        let Ok(pdu) = DataIn::parse(&frame.bhs()) else { return vec![Act::Send(frame)] };
        if last_itt.replace(pdu.itt) != Some(pdu.itt) {
            extra = 0;
        }
        let data = frame.data_bytes().to_vec();
        let cut = (data.len() / 2) | 1;
        if cut >= data.len() {
            return vec![Act::Send(frame)];
        }
        let first_sn = DataSn(pdu.data_sn.0 + extra);
        extra += 1;
        let first = DataIn {
            final_bit: false,
            status_bit: false,
            residual_count: ResidualCount::default(),
            numbers: ResponseNumbers { stat_sn: StatSn(0), ..pdu.numbers },
            data_sn: first_sn,
            ..pdu
        };
        let second =
            DataIn { data_sn: first_sn.next(), buffer_offset: pdu.buffer_offset + cut as u32, ..pdu };
        vec![
            Act::Send(Frame::of(first).data(&data[..cut]).pad_with(0xee)),
            Act::Send(Frame::of(second).data(&data[cut..]).pad_with(0xee)),
        ]
    })
}

// covers: DIG-03
fn dig_03(stage: &Stage<'_>) -> RowResult {
    for data in ["off", "required"] {
        stage.goes_well(&digests(data, data), odd_data_in())?;
    }
    Ok(())
}

// covers: DIG-04
fn dig_04(stage: &Stage<'_>) -> RowResult {
    let played = stage.goes_well(&digests("required", "required"), Behaviour::good())?;
    played.clean("DIG-03")
}

// covers: DIG-05
fn dig_05(stage: &Stage<'_>) -> RowResult {
    for (key, setting) in [(keys::HEADER_DIGEST, "header_digest"), (keys::DATA_DIGEST, "data_digest")] {
        for answer in ["Foo", "None", keys::REJECT, keys::NOT_UNDERSTOOD] {
            let play = Play::new().set(setting, "required");
            let wrong = super::play::answering(move |pairs| {
                super::play::replace(pairs, key, answer);
            });
            stage
                .play_as(&play, wrong, &read_write())?
                .refused(&format!("{key}=CRC32C answered with {answer}"))?;
        }
        let wrong = super::play::answering(move |pairs| {
            super::play::replace(pairs, key, "CRC32C");
        });
        let played = stage.play_as(&Play::new().set(setting, "off"), wrong, &read_write())?;
        let offered = played.offered(1).iter().any(|(name, _)| name == key);
        if offered {
            played.refused(&format!("{key}=None answered with CRC32C"))?;
        }
    }
    Ok(())
}

// covers: DIG-06
fn dig_06(stage: &Stage<'_>) -> RowResult {
    let played = stage.goes_well(&Play::new(), Behaviour::good())?;
    for (key, value) in played.offered(1) {
        if key == keys::HEADER_DIGEST || key == keys::DATA_DIGEST {
            let items: Vec<&str> = value.split(',').collect();
            let private = items.iter().any(|item| !["CRC32C", "None"].contains(item));
            let right = !private || items.contains(&"CRC32C") && !items.contains(&"None");
            ensure!(right, "{key}={value}");
        }
    }
    Ok(())
}

// covers: DIG-07
fn dig_07(stage: &Stage<'_>) -> RowResult {
    let play = digests("required", "off");
    for opcode in [Opcode::DataIn, Opcode::ScsiResponse] {
        for wish in [DigestWish::Flip(1), DigestWish::Flip(0x8000_0000)] {
            let bad =
                Behaviour::good().first(opcode, move |_, frame| vec![Act::Send(frame.header_digest(wish))]);
            stage.is_dropped("a bad header digest", &play, bad)?;
        }
        for at in [1, 3, 20, 36, 47] {
            let bad = Behaviour::good()
                .first(opcode, move |_, frame| vec![Act::Send(frame.corrupt_header_byte(at))]);
            stage.is_dropped(&format!("header byte {at} wrong"), &play, bad)?;
        }
    }
    Ok(())
}

// covers: DIG-11
fn dig_11(stage: &Stage<'_>) -> RowResult {
    // Every Data-In is wrong, on every connection: no data may be delivered.
    let bad = Behaviour::good().every(Opcode::DataIn, |_, frame| vec![Act::Send(frame.corrupt_data_byte(7))]);
    let played = stage.play_as(&digests("off", "required"), bad, &[Op::Read { lba: 0, blocks: 24 }])?;
    if let Ok(results) = &played.results {
        let data = results.iter().find(|result| matches!(result, OpResult::Data(_)));
        ensure!(data.is_none(), "data with a wrong digest was handed up");
    }
    Ok(())
}

// covers: DIG-12
fn dig_12(stage: &Stage<'_>) -> RowResult {
    let play = digests("off", "required");
    let bad = Behaviour::good()
        .first(Opcode::DataIn, |_, frame| vec![Act::Send(frame.data_digest(DigestWish::Flip(0x10)))]);
    let played = stage.play_as(&play, bad, &read_write())?;
    played.no_wrong_byte()?;
    // The task fails; if the initiator succeeds nevertheless, it must have sent its command again.
    let commands = played.sent_pdus().filter(|entry| entry.connection == 1);
    let cdbs: Vec<_> =
        commands.filter_map(|entry| ScsiCommand::parse(entry.bhs()?).ok()).map(|c| c.cdb).collect();
    let again = cdbs.iter().enumerate().any(|(n, cdb)| cdbs[..n].contains(cdb));
    if !played.dropped(1) && !again {
        played.failed("a bad data digest on Data-In")?;
    }
    // On a response with sense: its StatSN cannot be trusted.
    let bad = Behaviour::good().first(Opcode::ScsiResponse, |_, frame| {
        let mut sense = vec![0, 18, 0x70, 0, 5];
        sense.resize(20, 0);
        vec![Act::Send(frame.patch(3, &[2]).data(sense).data_digest(DigestWish::Flip(4)))]
    });
    stage.is_dropped("a bad data digest on a SCSI Response", &play, bad).map(|_| ())?;
    // At level 1 the bad data is requested again, and the connection stays.
    if_applicable(super::recovery::bad_digest(stage))
}

// covers: DIG-13
fn dig_13(stage: &Stage<'_>) -> RowResult {
    for wish in ["off", "offered", "required"] {
        let play = digests(wish, wish).discovery();
        let played = stage.play_as(&play, Behaviour::good(), &[Op::Discover])?;
        match &played.results {
            Ok(results) => match results.first() {
                Some(OpResult::Targets(targets)) if targets.len() == 1 => {}
                _ => fail!("digests {wish}: {}", played.words()),
            },
            Err(error) => fail!("digests {wish}: {error}"),
        }
    }
    Ok(())
}

// covers: DIG-14
fn dig_14(stage: &Stage<'_>) -> RowResult {
    let blocks = 96;
    for at in [0usize, 4095, 4096, 8191, 8192, 12_287, 16_384, 20_479, 32_767, 49_151] {
        let mut seen = false;
        let bad = Behaviour::good().every(Opcode::DataIn, move |scene, frame| {
            let Ok(pdu) = DataIn::parse(&frame.bhs()) else { return vec![Act::Send(frame)] };
            let start = pdu.buffer_offset as usize;
            let inside = (start..start + frame.data_bytes().len()).contains(&at);
            let long = frame.data_bytes().len() >= 512;
            if scene.connection == 1 && inside && long && !std::mem::replace(&mut seen, true) {
                return vec![Act::Send(frame.corrupt_data_byte(at - start))];
            }
            vec![Act::Send(frame)]
        });
        let played = stage.play_as(&digests("off", "required"), bad, &[Op::Read { lba: 0, blocks }])?;
        if let Ok(results) = &played.results
            && let Some(OpResult::Data(data)) = results.first()
        {
            ensure!(*data == pattern(0, blocks), "byte {at} was wrong on the wire and was handed up");
        }
    }
    Ok(())
}
