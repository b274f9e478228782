//! Table 2 of the 2007 note: how many bytes per second each algorithm takes from one large buffer.

use std::fs;
use std::hint::black_box;
use std::time::Instant;

use harness::progress::ProgressBar;
use published::Paper;

use super::contenders::{self, Contender};
use crate::oracle::right;
use harness::content::random;

/// The note's buffer.
pub(super) const NOTE_BYTES: u64 = 1 << 30;
/// The note's number of runs.
pub(super) const NOTE_RUNS: usize = 10;
/// The pattern that the buffer repeats: too long for any cache to recognise.
const PATTERN_BYTES: usize = 4 << 20;

/// What is measured: the note's five, other builds of them, and what this program would compute instead.
pub(super) fn contenders() -> Vec<Contender> {
    let ours = contenders::groups().into_iter().flat_map(|group| group.contenders);
    let mut all = contenders::algorithms(Paper::Note2007);
    all.extend(ours.filter(|contender| IN_PLACE.contains(&contender.name.as_str())));
    all
}

/// Kernels of this program next to the algorithms of the note.
const IN_PLACE: &[&str] = &["crc32c/intact", "crc32c/read", "t10/intact", "t10/intact-ip-checksum"];

/// Runs of one contender.
pub(super) struct Runs {
    pub contender: Contender,
    /// 10^6 bytes per second of each run.
    pub mb_per_s: Vec<f64>,
}

/// The size of the note's buffer, or half of the free memory if that is less.
pub(super) fn default_bytes() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map_or(NOTE_BYTES / 16, |kib| (kib << 10) / 2).clamp(1 << 20, NOTE_BYTES)
}

/// Runs the contenders in turn over a buffer of `bytes`, `count` times. The error is a message.
pub(super) fn run(
    contenders: Vec<Contender>,
    bytes: u64,
    count: usize,
    bar: &ProgressBar,
) -> Result<Vec<Runs>, String> {
    let length =
        usize::try_from(bytes).map_err(|_| "the buffer is larger than the address space".to_owned())?;
    let mut buffer = Vec::new();
    buffer
        .try_reserve_exact(length)
        .map_err(|_| format!("there is no memory for a buffer of {bytes} bytes"))?;
    let pattern = random(PATTERN_BYTES.min(length), &mut 0x2545_f491_4f6c_dd1d);
    while buffer.len() < length {
        buffer.extend_from_slice(&pattern[..pattern.len().min(length - buffer.len())]);
    }
    let mut all: Vec<Runs> =
        contenders.into_iter().map(|contender| Runs { contender, mb_per_s: Vec::new() }).collect();
    let answers: Vec<u64> = all.iter().map(|runs| right(runs.contender.answer, &buffer)).collect();
    for _ in 0..count {
        for (runs, answer) in all.iter_mut().zip(&answers) {
            let start = Instant::now();
            let found = (runs.contender.work)(1, &mut [], black_box(&buffer));
            let seconds = start.elapsed().as_secs_f64();
            if found != *answer {
                return Err(format!("{} computed a wrong checksum of {bytes} bytes", runs.contender.name));
            }
            runs.mb_per_s.push(bytes as f64 / 1e6 / seconds);
            bar.inc(1);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::papers::NOTE_ALGORITHMS;

    #[test]
    fn the_notes_algorithms_come_first_and_all_are_measured() {
        let all = run(contenders(), 100_001, 2, &ProgressBar::hidden()).unwrap();
        let names: Vec<&str> = all.iter().map(|runs| runs.contender.name.as_str()).collect();
        assert_eq!(names[..5], NOTE_ALGORITHMS);
        assert_eq!((names[5], &names[6..]), ("t10-reference-compiled", IN_PLACE));
        assert!(
            all.iter().all(|runs| runs.mb_per_s.len() == 2 && runs.mb_per_s.iter().all(|rate| *rate > 0.0))
        );
    }

    #[test]
    fn a_wrong_answer_and_too_large_a_buffer_are_errors() {
        let mut wrong = contenders();
        wrong[0].work = Box::new(|_, _, _| 1 << 40);
        assert!(run(wrong, 4096, 1, &ProgressBar::hidden()).err().unwrap().contains("xor"));
        assert!(run(contenders(), u64::MAX / 2, 1, &ProgressBar::hidden()).is_err());
        assert!((1 << 20..=NOTE_BYTES).contains(&default_bytes()));
    }
}
