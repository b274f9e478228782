//! Data in any order (row DAT-05) of an initiator.

use super::play::{Op, Play, Played, Stage, pattern, read_write};
use super::{Row, RowResult};
use crate::Stop;
use crate::evil::{Act, Behaviour, EvilConfig};
use crate::frame::Frame;
use crate::script::{ensure, skip};
use iscsi_wire::{DataIn, DataSn, Opcode, R2t, R2tSn, ResidualCount, ResponseNumbers, StatSn, keys};

pub(super) const ROWS: &[Row] = &[Row::new(
    "DAT-05",
    "data and R2Ts in any order where both say No; bytes that come twice or are missing are an error",
    dat_05,
)];

/// The Data-In of one command, with their data.
type Pdus = Vec<(DataIn, Vec<u8>)>;

/// A play in which both ends say this of both keys; reads come in PDUs of 1 KiB and sequences of 4 KiB.
fn play(ours: &str, theirs: &str) -> Play {
    let config = EvilConfig::default()
        .key(keys::DATA_PDU_IN_ORDER, theirs)
        .key(keys::DATA_SEQUENCE_IN_ORDER, theirs)
        .key(keys::MAX_OUTSTANDING_R2T, "4")
        .key(keys::MAX_BURST_LENGTH, "4096")
        .key(keys::FIRST_BURST_LENGTH, "512");
    Play::new()
        .config(config)
        .set("data_pdu_in_order", ours)
        .set("data_sequence_in_order", ours)
        .set("max_outstanding_r2t", "4")
        .set("max_recv_data_segment_length", "1024")
        .set("initial_r2t", "yes")
        .set("immediate_data", "no")
}

/// A target that collects the Data-In of each command with several sequences, changes their order, and numbers them as they are
/// sent: F on the last of each sequence, the status on the last of all. On later connections it is a good one.
fn rearranging(change: impl Fn(&mut Vec<Pdus>) + Send + 'static) -> Behaviour {
    let mut sequences: Vec<Pdus> = vec![Vec::new()];
    Behaviour::good().every(Opcode::DataIn, move |scene, frame| {
        let Ok(pdu) = DataIn::parse(&frame.bhs()) else { return vec![Act::Send(frame)] };
        if scene.connection > 1 {
            return vec![Act::Send(frame)];
        }
        if let Some(sequence) = sequences.last_mut() {
            sequence.push((pdu, frame.data_bytes().to_vec()));
        }
        if !pdu.status_bit {
            if pdu.final_bit {
                sequences.push(Vec::new());
            }
            return Vec::new();
        }
        let mut all = std::mem::replace(&mut sequences, vec![Vec::new()]);
        if all.len() > 1 {
            change(&mut all);
        }
        let count = all.iter().map(Vec::len).sum::<usize>();
        let mut acts = Vec::new();
        for sequence in all {
            let length = sequence.len();
            for (n, (old, data)) in sequence.into_iter().enumerate() {
                let last = acts.len() + 1 == count;
                // The numbers of the last PDU are newer than those of any other.
                let new = DataIn {
                    final_bit: n + 1 == length,
                    data_sn: DataSn(acts.len() as u32),
                    buffer_offset: old.buffer_offset,
                    status_bit: last,
                    residual_count: if last { pdu.residual_count } else { ResidualCount::default() },
                    numbers: ResponseNumbers {
                        stat_sn: if last { pdu.numbers.stat_sn } else { StatSn(0) },
                        ..pdu.numbers
                    },
                    ..pdu
                };
                acts.push(Act::Send(Frame::of(new).data(data).remark("rearranged")));
            }
        }
        acts
    })
}

/// Everything backwards.
fn backwards(sequences: &mut [Pdus]) {
    sequences.reverse();
    sequences.iter_mut().for_each(|pdus| pdus.reverse());
}

/// A target that sends its R2Ts in pairs, the second of each first. There must be an even number of them. On later connections it
/// is a good one.
fn swapping() -> Behaviour {
    let mut held: Option<R2t> = None;
    Behaviour::good().every(Opcode::R2t, move |scene, frame| {
        let Ok(r2t) = R2t::parse(&frame.bhs()) else { return vec![Act::Send(frame)] };
        if scene.connection > 1 {
            return vec![Act::Send(frame)];
        }
        let Some(first) = held.take() else {
            held = Some(r2t);
            return Vec::new();
        };
        let swapped =
            [R2t { r2t_sn: first.r2t_sn, ..r2t }, R2t { r2t_sn: R2tSn(first.r2t_sn.0 + 1), ..first }];
        swapped.map(|r2t| Act::Send(Frame::of(r2t).remark("swapped"))).into()
    })
}

/// No wrong byte is delivered, and either the connection or the command ends.
fn is_given_up(played: &Played, what: &str) -> RowResult {
    if let Err(Stop::Fail(why)) = played.no_wrong_byte() {
        return Err(Stop::Fail(format!("{what}: {why}")));
    }
    if !played.dropped(1) {
        played.failed(what)?;
    }
    Ok(())
}

// covers: DAT-05
fn dat_05(stage: &Stage<'_>) -> RowResult {
    // A command of 8 bursts, so that the R2Ts come in pairs.
    let write = [Op::Write { lba: 1000, data: pattern(1000, 64) }];
    let read = [Op::Read { lba: 0, blocks: 64 }];
    for (ours, theirs) in [("yes", "No"), ("no", "Yes"), ("yes", "Yes")] {
        let played =
            stage.play_as(&play(ours, theirs), rearranging(|sequences| backwards(sequences)), &read)?;
        is_given_up(&played, "Data-In backwards where order was agreed on")?;
        let played = stage.play_as(&play(ours, theirs), swapping(), &write)?;
        is_given_up(&played, "R2Ts backwards where order was agreed on")?;
    }
    let no = play("no", "No");
    let played = stage.play_as(&no, Behaviour::good(), &read_write())?;
    let offers = played.offered(1);
    let says_no = |key: &str| offers.iter().any(|(name, value)| name == key && value == "No");
    if !says_no(keys::DATA_PDU_IN_ORDER) || !says_no(keys::DATA_SEQUENCE_IN_ORDER) {
        skip!("the initiator wants data in order");
    }
    stage.goes_well(&no, rearranging(|sequences| backwards(sequences)))?;
    stage.goes_well(&no, rearranging(|sequences| sequences.rotate_left(1)))?;
    let played = stage.play_as(&no, swapping(), &write)?;
    played.went_well()?;
    type Change = fn(&mut Vec<Pdus>);
    let wrong: [(&str, Change); 4] = [
        ("a Data-In that comes twice", |sequences| {
            let again = sequences[0][1].clone();
            sequences[1].insert(0, again);
        }),
        ("a Data-In in place of another", |sequences| sequences[1][0] = sequences[0][1].clone()),
        ("a Data-In that overlaps another", |sequences| sequences[1][0].0.buffer_offset -= 4),
        ("a read that ends with a gap", |sequences| drop(sequences[1].remove(1))),
    ];
    for (what, change) in wrong {
        let played = stage.play_as(&no, rearranging(change), &read)?;
        is_given_up(&played, what)?;
    }
    let mut first: Option<R2t> = None;
    let again = Behaviour::good().every(Opcode::R2t, move |scene, frame| {
        let Ok(r2t) = R2t::parse(&frame.bhs()) else { return vec![Act::Send(frame)] };
        if scene.connection > 1 {
            return vec![Act::Send(frame)];
        }
        let repeated = *first.get_or_insert(r2t);
        vec![Act::Send(Frame::of(R2t { buffer_offset: repeated.buffer_offset, ..r2t }).remark("again"))]
    });
    let played = stage.play_as(&no, again, &write)?;
    ensure!(played.dropped(1), "an R2T for data that was sent before was answered ({})", played.words());
    Ok(())
}
