//! Takes the samples in rounds. In a round every contender has a turn at every size, so a disturbance of the machine
//! affects all alike. Each result is compared with the right one.

use std::collections::HashMap;
use std::hint::black_box;

use engine::cycles;
use harness::progress::ProgressBar;

use super::contenders::{Contender, Group, Method};
use crate::clock::Clock;
use crate::oracle::{Answer, right};
use harness::content::random;
use harness::noise::{self, involuntary_switches};
use harness::statistics::median;

/// Rounds of a run. With few samples there are fewer, so that turns are long enough for caches and predictors to settle.
const ROUNDS: std::ops::RangeInclusive<usize> = 5..=20;
const SAMPLES_PER_TURN: usize = 20;
/// Bytes and calls at the start of a turn that do not count: they bring tables into the cache.
const WARMUP_BYTES: usize = 16 << 10;
const MAX_WARMUP_SAMPLES: usize = 64;
/// How often samples that the scheduler interrupted are taken again, and how much longer than the turn's median they
/// must have taken.
const RETAKES: usize = 3;
const INTERRUPTED: f64 = 2.0;
/// Number of different contents of the source: the time of the sums depends on the data (on carries).
const CONTENTS: usize = 8;
/// Approximate minimum ticks of a sample of many calls, and the maximum number of calls.
const BATCH_TICKS: u64 = 4000;
const MAX_CALLS: usize = 1024;
/// Alignment of source and destination, as from `malloc` or a page allocator.
const ALIGNMENT: usize = 64;

/// How much to measure.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Of each contender at each of its group's sizes.
    pub samples: usize,
}

impl Plan {
    fn rounds(&self) -> usize {
        let (fewest, most) = (self.samples.clamp(1, *ROUNDS.start()), *ROUNDS.end());
        (self.samples / SAMPLES_PER_TURN).clamp(fewest, most)
    }

    /// Samples of one turn in `round`.
    fn turn(&self, round: usize) -> usize {
        let (rounds, samples) = (self.rounds(), self.samples.max(1));
        samples * (round + 1) / rounds - samples * round / rounds
    }

    /// Turns of all contenders together, for a progress bar.
    pub(super) fn turns(&self, groups: &[Group]) -> u64 {
        let rows: usize = groups.iter().map(|group| group.contenders.len() * group.sizes.len()).sum();
        (rows * self.rounds()) as u64
    }
}

/// The samples of one contender at one size.
pub(super) struct Samples {
    pub group: usize,
    pub contender: usize,
    pub bytes: usize,
    pub calls: usize,
    /// Of one call each, in ticks of the counter.
    pub ticks: Vec<f64>,
    /// Of these, how many were taken again because the scheduler had run something else meanwhile.
    pub retaken: usize,
    /// Medians of the rounds.
    rounds: Vec<f64>,
}

/// Source, destination, the contents of the source in turn, and the right results.
struct Bench {
    contents: Vec<Vec<u8>>,
    source: Vec<u8>,
    destination: Vec<u8>,
    answers: HashMap<(Answer, usize), Vec<u64>>,
}

/// Measures everything. The error names the contender with a wrong result.
pub(super) fn run(
    groups: &[Group],
    plan: &Plan,
    clock: &mut Clock,
    bar: &ProgressBar,
) -> Result<Vec<Samples>, String> {
    let sizes = groups.iter().flat_map(|group| group.sizes.iter().copied());
    let mut bench = Bench::new(sizes.max().unwrap_or(0));
    let mut all: Vec<Samples> = Vec::new();
    for (group, of) in groups.iter().enumerate() {
        for &bytes in &of.sizes {
            for contender in 0..of.contenders.len() {
                let (ticks, rounds) = (Vec::with_capacity(plan.samples), Vec::with_capacity(plan.rounds()));
                all.push(Samples { group, contender, bytes, calls: 0, ticks, retaken: 0, rounds });
            }
        }
    }
    for round in 0..plan.rounds() {
        clock.measure_core();
        for samples in &mut all {
            let group = &groups[samples.group];
            let contender = &group.contenders[samples.contender];
            bench.turn(contender, group.method, plan.turn(round), samples)?;
            bar.inc(1);
        }
    }
    Ok(all)
}

/// For each round, how slow it was relative to the run: 1 is typical.
pub(super) fn round_factors(all: &[Samples]) -> Vec<f64> {
    let rows: Vec<&[f64]> = all.iter().map(|samples| &samples.rounds[..]).collect();
    noise::round_factors(&rows, |figure, middle| figure / middle)
}

impl Bench {
    fn new(most: usize) -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let contents = (0..CONTENTS).map(|_| random(most, &mut state)).collect();
        let room = vec![0; most + ALIGNMENT];
        Self { contents, source: room.clone(), destination: room, answers: HashMap::new() }
    }

    /// One turn of one contender: samples that do not count, and then those that do.
    ///
    /// An involuntary switch to another program falls into one sample at most. So of a turn with n switches the n longest
    /// samples, if they stick out, are taken again.
    fn turn(
        &mut self,
        contender: &Contender,
        method: Method,
        count: usize,
        samples: &mut Samples,
    ) -> Result<(), String> {
        let bytes = samples.bytes;
        let answers = self.answers.entry((contender.answer, bytes)).or_insert_with(|| {
            self.contents.iter().map(|content| right(contender.answer, &content[..bytes])).collect()
        });
        let source = aligned(&mut self.source, bytes);
        let destination = aligned(&mut self.destination, bytes);
        let mut sample = |calls: usize, number: usize| {
            let content = &self.contents[number % CONTENTS][..bytes];
            // Just written, as after a read from a device.
            source.copy_from_slice(content);
            if contender.copies {
                destination.iter_mut().zip(content).for_each(|(to, from)| *to = !from);
            }
            let start = cycles::now();
            let answer = (contender.work)(calls, black_box(destination), black_box(source));
            let ticks = cycles::now().wrapping_sub(start);
            let copied = !contender.copies || destination == content;
            match answer == answers[number % CONTENTS] && copied {
                true => Ok(ticks),
                false => Err(format!("{} computed a wrong checksum of {bytes} bytes", contender.name)),
            }
        };
        if samples.calls == 0 {
            samples.calls = match method {
                Method::Single => 1,
                Method::Batch => {
                    let fastest = (0..4).map(|n| sample(1, n)).collect::<Result<Vec<_>, _>>()?;
                    let fastest = fastest.into_iter().min().unwrap_or(1).max(1);
                    usize::try_from(BATCH_TICKS / fastest).unwrap_or(1).clamp(1, MAX_CALLS)
                }
            };
        }
        let calls = samples.calls;
        for number in 0..(WARMUP_BYTES / (bytes * calls)).clamp(1, MAX_WARMUP_SAMPLES) {
            sample(calls, number)?;
        }
        let first = samples.ticks.len();
        let mut switches = involuntary_switches();
        for number in first..first + count {
            samples.ticks.push(sample(calls, number)? as f64 / calls as f64);
        }
        let turn = &mut samples.ticks[first..];
        for _ in 0..RETAKES {
            let now = involuntary_switches();
            let interrupted = longest(turn, usize::try_from(now - switches).unwrap_or(count));
            switches = now;
            for number in interrupted {
                turn[number] = sample(calls, first + number)? as f64 / calls as f64;
                samples.retaken += 1;
            }
        }
        samples.rounds.push(median(turn));
        Ok(())
    }
}

/// Places of the at most `count` longest samples of a turn that took much longer than its median.
fn longest(turn: &[f64], count: usize) -> Vec<usize> {
    if count == 0 {
        return Vec::new();
    }
    let limit = median(turn) * INTERRUPTED;
    let mut places: Vec<usize> = (0..turn.len()).filter(|&place| turn[place] > limit).collect();
    places.sort_by(|&a, &b| turn[b].total_cmp(&turn[a]));
    places.truncate(count);
    places
}

fn aligned(room: &mut [u8], bytes: usize) -> &mut [u8] {
    let skip = room.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
    &mut room[skip..skip + bytes]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::contenders::groups;
    use crate::source::Origin;

    fn contender(answer: Answer, copies: bool, work: super::super::contenders::Work) -> Contender {
        Contender {
            name: "x".to_owned(),
            title: String::new(),
            source: String::new(),
            origin: Origin::Peer,
            answer,
            copies,
            substitute: None,
            work,
        }
    }

    fn group(contender: Contender) -> Vec<Group> {
        let (method, contenders) = (Method::Batch, vec![contender]);
        vec![Group { id: "x", title: "", about: "", method, sizes: vec![64], unit: 1, contenders }]
    }

    fn measure(groups: &[Group], samples: usize) -> Result<Vec<Samples>, String> {
        run(groups, &Plan { samples }, &mut Clock::start(), &ProgressBar::hidden())
    }

    #[test]
    fn a_wrong_answer_is_no_result() {
        let wrong = group(contender(Answer::Xor, false, Box::new(|_, _, src| src.len() as u64 + 256)));
        assert!(measure(&wrong, 1).err().unwrap().contains("wrong checksum of 64 bytes"));
        let lazy = group(contender(Answer::Copy, true, Box::new(|_, _, _| 0)));
        assert!(measure(&lazy, 1).is_err(), "a copy that does not copy");
    }

    #[test]
    fn everything_is_sampled_as_often_as_asked() {
        let mut groups = groups();
        groups.iter_mut().for_each(|group| group.sizes = vec![group.unit, 65 * group.unit]);
        for samples in [1, 3, 41, 130] {
            let all = measure(&groups, samples).unwrap();
            let contenders: usize = groups.iter().map(|group| group.contenders.len()).sum();
            assert_eq!(all.len(), 2 * contenders);
            for of in &all {
                assert_eq!(of.ticks.len(), samples);
                let single = groups[of.group].method == Method::Single;
                assert!(of.calls >= 1 && (!single || of.calls == 1));
            }
            assert_eq!(round_factors(&all).len(), Plan { samples }.rounds());
        }
    }

    #[test]
    fn turns_add_up_to_the_samples() {
        for samples in [1, 4, 5, 99, 1000, 1003] {
            let plan = Plan { samples };
            assert_eq!((0..plan.rounds()).map(|round| plan.turn(round)).sum::<usize>(), samples);
            assert!((0..plan.rounds()).all(|round| plan.turn(round) > 0), "{samples}");
        }
        assert_eq!(Plan { samples: 1000 }.rounds(), 20);
        assert_eq!(Plan { samples: 100 }.rounds(), 5);
    }

    #[test]
    fn only_as_many_samples_are_taken_again_as_were_interrupted() {
        let turn = [1.0, 50.0, 1.1, 900.0, 0.9, 3.0];
        assert_eq!(longest(&turn, 0), [0; 0]);
        assert_eq!(longest(&turn, 1), [3]);
        assert_eq!(longest(&turn, 9), [3, 1], "3.0 is not twice the median");
        assert_eq!(longest(&[1.0, 1.5, 1.2], 3), [0; 0], "none of these sticks out");
    }

    #[test]
    fn a_slow_round_is_seen_as_slow() {
        let of = |rounds: [f64; 3]| Samples {
            group: 0,
            contender: 0,
            bytes: 1,
            calls: 1,
            ticks: Vec::new(),
            retaken: 0,
            rounds: rounds.to_vec(),
        };
        // One contender was slow in the first round; all were slow in the last.
        let all = [of([5.0, 1.0, 1.5]), of([10.0, 10.0, 15.0]), of([2.0, 2.0, 3.0])];
        assert_eq!(round_factors(&all), [1.0, 1.0, 1.5]);
        assert_eq!(round_factors(&[]), [0.0; 0]);
    }
}
