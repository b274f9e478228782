//! The result: the data of tables and charts, and of `--json`.
//!
//! Within one [`SCHEMA`] fields keep their names and meanings; fields may be added.

use serde::Serialize;

use super::contenders::{Contender, Group, Method};
use super::memory::Runs;
use super::papers::BITS_AND_BYTES;
use super::sampling::Samples;
use crate::clock::Frequency;
use crate::source::Origin;
use harness::machine::Machine;
use harness::noise::Noise;
use harness::statistics::Summary;

/// Version of the form.
pub(super) const SCHEMA: u32 = 1;

/// One contender at one size.
#[derive(Debug, Serialize)]
pub(crate) struct Measurement {
    pub group: &'static str,
    pub name: String,
    pub title: String,
    pub source: String,
    pub origin: Origin,
    /// The kernel measured instead, on a machine without the instructions.
    pub substitute: Option<String>,
    pub method: Method,
    #[serde(flatten)]
    pub sampling: Sampling,
    pub bytes: usize,
    pub cycles_per_byte: Summary,
    /// Whether a sample takes so few steps of the counter that the median can only be one of a few values. Means are finer.
    pub coarse: bool,
    /// 10^9 bytes per second, from the median; from the trimmed mean where that is coarse.
    pub gb_per_s: f64,
}

/// How a measurement was sampled.
#[derive(Debug, Serialize)]
pub(crate) struct Sampling {
    pub calls_per_sample: usize,
    /// The number of samples taken again because another program ran during them.
    pub retaken_samples: usize,
}

/// One algorithm over the large buffer.
#[derive(Debug, Serialize)]
pub(crate) struct MemoryMeasurement {
    pub name: String,
    pub title: String,
    pub source: String,
    pub origin: Origin,
    /// 10^6 bytes per second.
    pub mb_per_s: Summary,
}

/// What a group measures.
#[derive(Debug, Serialize)]
pub(crate) struct GroupFacts {
    pub id: &'static str,
    pub title: &'static str,
    pub about: &'static str,
    pub method: Method,
    pub sizes: Vec<usize>,
}

/// The request.
#[derive(Debug, Serialize)]
pub(crate) struct Settings {
    pub samples: usize,
    pub memory_bytes: u64,
    pub memory_runs: usize,
}

/// The whole result.
#[derive(Debug, Serialize)]
pub struct Report {
    pub(crate) schema: u32,
    pub(crate) benchmark: &'static str,
    pub(crate) machine: Machine,
    /// The CRC32C kernel in use.
    pub(crate) kernel: &'static str,
    pub(crate) frequency: Frequency,
    pub(crate) noise: Noise,
    pub(crate) settings: Settings,
    pub(crate) groups: Vec<GroupFacts>,
    pub(crate) measurements: Vec<Measurement>,
    pub(crate) memory: Vec<MemoryMeasurement>,
}

/// Converts samples of `groups` to cycles per byte.
pub(super) fn measurements(groups: &[Group], all: &[Samples], frequency: &Frequency) -> Vec<Measurement> {
    // Contenders in their order, each with its sizes: the order of the tables.
    let mut order: Vec<&Samples> = all.iter().collect();
    order.sort_by_key(|samples| (samples.group, samples.contender, samples.bytes));
    order.into_iter().map(|samples| measurement(&groups[samples.group], samples, frequency)).collect()
}

fn measurement(group: &Group, samples: &Samples, frequency: &Frequency) -> Measurement {
    let Contender { name, title, source, origin, substitute, .. } = &group.contenders[samples.contender];
    let ticks = Summary::of(&samples.ticks);
    let coarse = is_coarse(ticks.median * samples.calls as f64, frequency.grain_ticks);
    let cycles_per_byte = ticks.scaled(frequency.cycles_per_tick() / samples.bytes as f64);
    let typical = if coarse { cycles_per_byte.trimmed_mean } else { cycles_per_byte.median };
    Measurement {
        group: group.id,
        name: name.clone(),
        title: title.clone(),
        source: source.clone(),
        origin: *origin,
        substitute: substitute.clone(),
        method: group.method,
        sampling: Sampling { calls_per_sample: samples.calls, retaken_samples: samples.retaken },
        bytes: samples.bytes,
        cycles_per_byte,
        coarse,
        gb_per_s: frequency.gb_per_s(typical),
    }
}

/// With fewer steps of the counter, the median of samples is off by more than a few percent.
const MIN_STEPS: f64 = 20.0;

/// Whether a sample of so many ticks is only a few steps of a counter that moves by `grain_ticks`.
fn is_coarse(sample_ticks: f64, grain_ticks: u64) -> bool {
    grain_ticks > 1 && sample_ticks < MIN_STEPS * grain_ticks as f64
}

/// The least that one bit at a time takes against one byte at a time, in lengths where the call does not count: eight
/// steps in a row against one. A table in place of the bits takes 1.1 times the byte-wise one's.
const MIN_BITS_OVER_BYTES: f64 = 2.0;
const LONG_BYTES: usize = 1024;

/// Evidence that the compiler made a table of a bit-by-bit algorithm; normally none.
pub(super) fn tables_in_place_of_bits(
    measurements: &[Measurement],
    memory: &[MemoryMeasurement],
) -> Vec<String> {
    let long =
        |name: &'static str| measurements.iter().filter(move |m| m.name == name && m.bytes >= LONG_BYTES);
    let rate = |name: &str| memory.iter().find(|m| m.name == name).map(|m| m.mb_per_s.median);
    let pair = |[bits, bytes]: [&'static str; 2]| {
        let ratio = |slow: &Measurement| {
            let fast = long(bytes).find(|fast| fast.bytes == slow.bytes)?;
            Some(slow.cycles_per_byte.median / fast.cycles_per_byte.median)
        };
        let over_memory = rate(bytes).zip(rate(bits)).map(|(fast, slow)| fast / slow);
        let least = long(bits).filter_map(ratio).chain(over_memory).min_by(f64::total_cmp)?;
        (least < MIN_BITS_OVER_BYTES).then(|| {
            format!(
                "{bits} took {least:.2} times as long as {bytes} (at least {MIN_BITS_OVER_BYTES}): the compiler has made a \
                 table of it"
            )
        })
    };
    BITS_AND_BYTES.into_iter().filter_map(pair).collect()
}

/// Computes the figures of runs over the large buffer.
pub(super) fn memory(all: &[Runs]) -> Vec<MemoryMeasurement> {
    let one = |runs: &Runs| MemoryMeasurement {
        name: runs.contender.name.clone(),
        title: runs.contender.title.clone(),
        source: runs.contender.source.clone(),
        origin: runs.contender.origin,
        mb_per_s: Summary::of(&runs.mb_per_s),
    };
    all.iter().map(one).collect()
}

impl Report {
    /// The measurement of that name at that size.
    pub(crate) fn find(&self, name: &str, bytes: usize) -> Option<&Measurement> {
        self.measurements.iter().find(|m| m.name == name && m.bytes == bytes)
    }

    /// All sizes of one name, ascending.
    pub(crate) fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Measurement> {
        self.measurements.iter().filter(move |m| m.name == name)
    }

    /// Names of a group's contenders with the first measurement of each, in order.
    pub(crate) fn contenders<'a>(&'a self, group: &'a str) -> Vec<&'a Measurement> {
        let mut firsts: Vec<&Measurement> = Vec::new();
        for measurement in self.measurements.iter().filter(|m| m.group == group) {
            if firsts.last().is_none_or(|last| last.name != measurement.name) {
                firsts.push(measurement);
            }
        }
        firsts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over_memory(name: &str, mb_per_s: f64) -> MemoryMeasurement {
        let (title, source) = (String::new(), String::new());
        let mb_per_s = Summary::of(&[mb_per_s]);
        MemoryMeasurement { name: name.to_owned(), title, source, origin: Origin::Paper, mb_per_s }
    }

    #[test]
    fn a_table_in_place_of_bits_is_noticed() {
        let bits = |mb_per_s| [over_memory("t10-reference", mb_per_s), over_memory("t10-table", 417.0)];
        assert_eq!(tables_in_place_of_bits(&[], &bits(110.0)), [""; 0]);
        let found = tables_in_place_of_bits(&[], &bits(485.0));
        assert!(found.len() == 1 && found[0].contains("t10-reference took 0.86 times"), "{found:?}");
        assert_eq!(tables_in_place_of_bits(&[], &bits(485.0)[..1]), [""; 0], "nothing to compare with");
    }

    #[test]
    fn a_few_steps_of_the_counter_are_coarse() {
        assert!(is_coarse(78.0, 26) && is_coarse(519.0, 26));
        assert!(!is_coarse(520.0, 26), "twenty steps");
        assert!(!is_coarse(3.0, 1), "a counter without steps");
    }
}
