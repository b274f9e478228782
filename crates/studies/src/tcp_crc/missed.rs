//! Which errors which checksum misses: segments are damaged in memory, and every checksum judges the same damage.

use fastrand::Rng;
use harness::progress::ProgressBar;
use published::Algorithm;
use serde::Serialize;
use tcp_crc::{Codepoints, Fault, Method, Packet, check, finish_sums, stamp};
use tcp_crc_shim::lab::content;

use super::errors::Class;
use harness::chart::{Chart, Point, Role, Scale, Series};
use harness::document::{Block, Table};
use harness::statistics::wilson;

/// Data of a segment with timestamps and a CRC in an Ethernet frame, bytes.
const DATA_BYTES: usize = 1440;
/// An IPv4 header and a TCP header with timestamps.
const HEADER_BYTES: usize = 20 + 32;
/// Initial sequence number of the sender.
const ISN: u32 = 0x1000_0000;
/// Trials between two movements of the bar.
const TRIALS_A_STEP: u32 = 1000;

/// What judges a segment. The two sums of the thesis' other candidates cover the data; CRCs what their value says, without TCP's sum.
const JUDGES: usize = 3 + Method::ALL.len();

/// Errors of one class that each checksum missed.
#[derive(Clone, Debug, Serialize)]
struct Row {
    class: &'static str,
    /// Expected of TCP's sum, and of a CRC32C.
    expected: [&'static str; 2],
    trials: u32,
    /// In the order of [`Report::checksums`].
    missed: [u32; JUDGES],
}

/// The figures of a run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    data_bytes: usize,
    seed: u64,
    checksums: [String; JUDGES],
    rows: Vec<Row>,
}

impl Report {
    /// Damages `trials` segments in each way.
    pub(super) fn count(trials: u32, seed: u64, bar: &ProgressBar) -> Self {
        let [split, data, whole, placed] =
            Method::ALL.map(|method| format!("CRC32C, value {}", method.value()));
        let [tcp, fletcher, adler] = ["TCP's sum", "Fletcher-32", "Adler-32"].map(str::to_owned);
        bar.set_length(u64::from(trials.div_ceil(TRIALS_A_STEP)) * Class::ALL.len() as u64);
        let rows = Class::ALL.iter().map(|class| count(*class, trials, seed, bar)).collect();
        bar.finish_and_clear();
        let checksums = [tcp, fletcher, adler, split, data, whole, placed];
        Self { data_bytes: DATA_BYTES, seed, checksums, rows }
    }
}

fn count(class: Class, trials: u32, seed: u64, bar: &ProgressBar) -> Row {
    let mut rng = Rng::with_seed(seed);
    let mut judge = Judge::new();
    let mut missed = [0; JUDGES];
    for trial in 0..trials {
        // An error that changes nothing is none.
        while !judge.try_one(class, &mut rng, &mut missed) {}
        if trial % TRIALS_A_STEP == 0 {
            bar.inc(1);
        }
    }
    Row { class: class.name(), expected: class.expected(), trials, missed }
}

/// Two segments of a connection, and room for their forms.
struct Judge {
    plain: [Vec<u8>; 2],
    stamped: [Vec<u8>; 2],
    sums: [&'static Algorithm; 2],
}

impl Judge {
    fn new() -> Self {
        let sum = |name| published::find(name).expect("an algorithm of the thesis");
        Self {
            plain: Default::default(),
            stamped: Default::default(),
            sums: ["fletcher-32", "adler-32"].map(sum),
        }
    }

    /// Damages one segment, and counts for each checksum whether it missed that; false if nothing was damaged.
    fn try_one(&mut self, class: Class, rng: &mut Rng, missed: &mut [u32; JUDGES]) -> bool {
        let first = ISN.wrapping_add(1 + rng.u32(..1 << 30));
        let between = DATA_BYTES as u32 * rng.u32(1..64);
        for (n, packet) in self.plain.iter_mut().enumerate() {
            *packet = segment(first.wrapping_add(between * n as u32), &content(rng.u64(..), DATA_BYTES));
        }
        let [sent, other] = self.plain.each_ref().map(|packet| &packet[HEADER_BYTES..]);
        let mut data = sent.to_vec();
        if !class.apply(&mut data, other, rng) {
            return false;
        }
        let is_misplaced = class == Class::Misplaced;
        let mut damaged = self.plain[0].clone();
        damaged[HEADER_BYTES..].copy_from_slice(&data);
        let sum_is_right = Packet::parse(&damaged).is_ok_and(|packet| packet.sum_is_right());
        missed[0] += u32::from(is_misplaced || sum_is_right);
        for (missed, sum) in missed[1..].iter_mut().zip(self.sums) {
            *missed += u32::from(is_misplaced || sum.checksum(sent) == sum.checksum(&data));
        }
        for (missed, method) in missed[3..].iter_mut().zip(Method::ALL) {
            *missed += u32::from(self.passes(method, &data, is_misplaced));
        }
        true
    }

    /// Whether the CRC of `method` misses that `data` arrives in the first segment, with the CRC of the second if it is misplaced.
    fn passes(&mut self, method: Method, data: &[u8], is_misplaced: bool) -> bool {
        for (plain, stamped) in self.plain.iter().zip(&mut self.stamped) {
            let packet = Packet::parse(plain).expect("a segment made here");
            stamp(&packet, method, Codepoints::Historic, ISN, stamped).expect("timestamps leave room");
        }
        let [first, second] = &mut self.stamped;
        let arrives = match is_misplaced {
            true => {
                second[24..28].copy_from_slice(&first[24..28]);
                second
            }
            false => {
                let data_at = first.len() - data.len();
                first[data_at..].copy_from_slice(data);
                first
            }
        };
        let packet = Packet::parse(arrives).expect("its header is whole");
        // TCP's sum is judged by itself.
        matches!(check(&packet, method, Codepoints::Historic, ISN), Ok(()) | Err(Fault::Sum))
    }
}

/// A segment with timestamps, from 192.0.2.1 to 192.0.2.2.
fn segment(sequence_number: u32, data: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; HEADER_BYTES];
    packet[..4].copy_from_slice(&[0x45, 0, 0, 0]);
    packet[2..4].copy_from_slice(&((HEADER_BYTES + data.len()) as u16).to_be_bytes());
    packet[8..10].copy_from_slice(&[64, 6]);
    packet[12..20].copy_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2]);
    packet[20..24].copy_from_slice(&[0x80, 0, 0x0c, 0xbc]);
    packet[24..28].copy_from_slice(&sequence_number.to_be_bytes());
    packet[32..36].copy_from_slice(&[0x80, 0x10, 0xff, 0xff]);
    packet[40..44].copy_from_slice(&[1, 1, 8, 10]);
    packet.extend_from_slice(data);
    finish_sums(&mut packet);
    packet
}

/// The report for people.
pub(super) fn blocks(report: &Report) -> Vec<Block> {
    let mut heading = vec!["class", "segments", "the sum should miss", "a CRC32C should miss"];
    heading.extend(report.checksums.iter().map(String::as_str));
    let mut table = Table::new("Errors that a checksum missed, with the 95 % interval by Wilson", &heading);
    for row in &report.rows {
        let mut cells = vec![row.class.to_owned(), row.trials.to_string()];
        cells.extend(row.expected.map(str::to_owned));
        cells.extend(row.missed.map(|missed| share(missed, row.trials)));
        table.rows.push(cells);
    }
    let about = format!(
        "Segments of {} bytes of data with timestamps, drawn from seed {}. TCP's sum judges header and data, Fletcher and Adler the data, and \
         each CRC what its value covers; values 4 to 6 are used next to TCP's sum, which is not counted for them here.",
        report.data_bytes, report.seed
    );
    vec![
        Block::Heading(1, "Errors missed, by class and by checksum".to_owned()),
        Block::Text(about),
        Block::Table(table),
        Block::Chart(chart(report)),
    ]
}

/// A share with its interval, in words that show what is certain.
fn share(missed: u32, trials: u32) -> String {
    let [low, high] = wilson(u64::from(missed), u64::from(trials)).map(|share| 100.0 * share);
    match missed {
        0 => format!("0 (below {high:.2} %)"),
        all if all == trials => format!("all (above {low:.2} %)"),
        _ => format!("{:.2} % ({low:.2} to {high:.2})", 100.0 * f64::from(missed) / f64::from(trials)),
    }
}

fn chart(report: &Report) -> Chart {
    let series = report.checksums.iter().enumerate().map(|(hue, name)| Series {
        name: name.clone(),
        role: Role::Measured,
        hue,
        points: (1..).zip(&report.rows).map(|(place, row)| point(place, row, hue)).collect(),
    });
    let (x, y) = (("class: row of the table", Scale::Linear), ("missed, %", Scale::Linear));
    Chart {
        series: series.collect(),
        ..Chart::new("tcp-crc-missed", "Errors missed", "lower is better", x, y)
    }
}

fn point(place: u32, row: &Row, checksum: usize) -> Point {
    let [low, high] = wilson(u64::from(row.missed[checksum]), u64::from(row.trials));
    let share = f64::from(row.missed[checksum]) / f64::from(row.trials);
    Point { x: f64::from(place), y: 100.0 * share, error: 50.0 * (high - low) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(trials: u32, seed: u64) -> Report {
        Report::count(trials, seed, &ProgressBar::hidden())
    }

    #[test]
    fn the_sum_misses_what_it_must_and_a_crc_nothing_of_it() {
        let report = report(300, 7);
        let row = |class: Class| report.rows.iter().find(|row| row.class == class.name()).unwrap();
        for class in Class::ALL {
            let missed = row(class).missed;
            match class {
                Class::Unseen(_) => {
                    assert_eq!((missed[0], &missed[3..]), (300, &[0; 4][..]), "{class:?}");
                }
                Class::ColumnFlips => {
                    assert!((100..200).contains(&missed[0]), "{missed:?}");
                    assert_eq!(missed[3..], [0; 4]);
                }
                Class::Misplaced => assert_eq!(missed, [300, 300, 300, 0, 300, 0, 0]),
                Class::Flips(1) => assert_eq!(missed, [0; JUDGES]),
                _ => {
                    assert!(missed[0] < 30, "{class:?}: {missed:?}");
                    assert_eq!(missed[3..], [0; 4], "{class:?}");
                }
            }
        }
    }

    #[test]
    fn a_seed_gives_the_same_counts_and_another_one_others() {
        let counts = |seed| report(200, seed).rows.iter().map(|row| row.missed).collect::<Vec<_>>();
        assert_eq!(counts(3), counts(3));
        assert_ne!(counts(3), counts(4));
    }

    #[test]
    fn an_error_is_one_and_a_segment_is_right_before() {
        let mut rng = Rng::with_seed(5);
        let (data, other) = (content(1, DATA_BYTES), content(2, DATA_BYTES));
        assert!(Packet::parse(&segment(1, &data)).unwrap().sum_is_right());
        for class in Class::ALL {
            for _ in 0..200 {
                let mut damaged = data.clone();
                assert_eq!(class.apply(&mut damaged, &other, &mut rng), damaged != data, "{class:?}");
            }
        }
    }

    #[test]
    fn shares_say_what_is_certain() {
        assert_eq!(share(0, 1000), "0 (below 0.38 %)");
        assert_eq!(share(1000, 1000), "all (above 99.62 %)");
        assert_eq!(share(500, 1000), "50.00 % (46.91 to 53.09)");
    }
}
