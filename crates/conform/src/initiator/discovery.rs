//! Discovery and text in full feature phase (rows DSC, TXR) of an initiator.

use super::play::{Op, OpResult, Play, Played, Stage, pairs_of};
use super::{Row, RowResult};
use crate::Stop;
use crate::evil::{Act, Behaviour, EvilConfig, EvilTexts};
use crate::script::{ensure, fail};
use iscsi_wire::{Opcode, TextRequest, TextResponse, keys};

pub(super) const ROWS: &[Row] = &[
    Row::new("DSC-05", "an answer in many parts is fetched to its end", dsc_05),
    Row::new("DSC-07", "nothing but level 0 and one connection in discovery", dsc_07),
    Row::new("TXR-01", "ITT constant, TTT and LUN copied, empty requests for the rest", txr_01),
    Row::new("TXR-02", "F=1 in answer to F=0 is an error, and so is a TTT with F=1", txr_02),
];

/// Discovery of 61 targets in responses of at most `part` bytes.
fn discover_many(stage: &Stage<'_>, part: usize, behaviour: Behaviour) -> Result<Played, Stop> {
    let more_names = (0..60).map(|n| format!("iqn.2026-01.org.example:more{n}")).collect();
    let texts = EvilTexts { part_bytes: part, ..EvilTexts::default() };
    let config = EvilConfig { more_names, texts, ..EvilConfig::default() };
    stage.play_as(&Play::new().config(config).discovery(), behaviour, &[Op::Discover])
}

fn targets(played: &Played) -> Result<usize, Stop> {
    match &played.results {
        Ok(results) => match results.first() {
            Some(OpResult::Targets(targets)) => {
                let bare = targets.iter().find(|(_, addresses)| addresses.is_empty());
                ensure!(bare.is_none(), "a target without address: {bare:?}");
                Ok(targets.len())
            }
            _ => fail!("discovery: {}", played.words()),
        },
        Err(error) => fail!("discovery: {error}"),
    }
}

// covers: DSC-05
fn dsc_05(stage: &Stage<'_>) -> RowResult {
    for part in [usize::MAX, 512, 100] {
        let count = targets(&discover_many(stage, part, Behaviour::good())?)?;
        ensure!(count == 61, "{count} of 61 targets were found, in parts of {part} bytes");
    }
    Ok(())
}

// covers: DSC-07
fn dsc_07(stage: &Stage<'_>) -> RowResult {
    let played = discover_many(stage, usize::MAX, Behaviour::good())?;
    for (key, value) in played.offered(1) {
        let wrong =
            key == keys::ERROR_RECOVERY_LEVEL && value != "0" || key == keys::MAX_CONNECTIONS && value != "1";
        ensure!(!wrong, "{key}={value} in a discovery login");
    }
    Ok(())
}

// covers: TXR-01
fn txr_01(stage: &Stage<'_>) -> RowResult {
    let played = discover_many(stage, 512, Behaviour::good())?;
    targets(&played)?;
    let mut before: Option<(TextRequest, TextResponse)> = None;
    let mut open = None;
    for entry in played.entries.iter().filter(|entry| entry.connection == 1) {
        let Some(bhs) = entry.bhs() else { continue };
        if let Ok(request) = TextRequest::parse(bhs) {
            if let Some((first, response)) = &before {
                let copied =
                    (request.itt, request.ttt, request.lun) == (first.itt, response.ttt, response.lun);
                ensure!(copied && request.immediate == first.immediate, "not copied: {entry}");
                ensure!(
                    entry.data().is_empty(),
                    "a request for the rest has text: {:?}",
                    pairs_of(entry.data())
                );
            } else {
                ensure!(request.ttt.is_reserved(), "an exchange begins with a TTT: {entry}");
            }
            open = Some(request);
        }
        if let (Ok(response), Some(request)) = (TextResponse::parse(bhs), open) {
            before = (!response.final_bit).then_some((request, response));
        }
    }
    Ok(())
}

// covers: TXR-02
fn txr_02(stage: &Stage<'_>) -> RowResult {
    let wrong = Behaviour::good().every(Opcode::TextResponse, |_, frame| {
        vec![Act::Send(frame.set_bits(1, 0x80).patch(20, &[0, 0, 0, 9]).remark("F=1 with a TTT"))]
    });
    let played = discover_many(stage, usize::MAX, wrong)?;
    ensure!(played.dropped(1) || played.results.is_err(), "F=1 with a TTT was taken: {}", played.words());
    Ok(())
}
