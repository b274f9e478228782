//! The result as a document: the thesis' tables and figures with this machine in them, Table 2 of the note, and this
//! program's kernels next to others.

use published::Paper;

use super::papers::{
    self, Bed, EXTRA_BYTES, FIGURES, Figure, NOTE_ALGORITHMS, TABLE_6_1_SIZES, THESIS_SIZES, Thesis,
};
use super::report::{GroupFacts, Measurement, Report};
use crate::source::{Origin, citation};
use harness::chart::{Axis, Chart, Point, Role, Scale, Series, short};
use harness::document::{Block, Document, Extent, Table, Trust};
use harness::text;

/// Shown where there is no figure.
const NONE: &str = "-";
/// The group of the thesis' algorithms.
const PAPERS: &str = "papers";

/// The document. With everything: also one table for each algorithm, and the rest of the appendix of the thesis.
pub fn document(report: &Report, extent: Extent) -> Document {
    let thesis = Thesis::read();
    let mut blocks = Vec::new();
    the_machine(&mut blocks, report);
    if report.groups.iter().any(|group| group.id == PAPERS) {
        table_6_1(&mut blocks, report, &thesis);
        findings(&mut blocks, report, &thesis);
        figures(&mut blocks, report, &thesis);
    }
    if !report.memory.is_empty() {
        table_2(&mut blocks, report);
    }
    report
        .groups
        .iter()
        .filter(|group| group.id != PAPERS)
        .for_each(|group| kernels(&mut blocks, report, group));
    if extent == Extent::Everything {
        appendix(&mut blocks, report, &thesis);
    }
    Document {
        title: "Checksums on this machine".to_owned(),
        trust: Trust::Measured(report.noise.reasons.clone()),
        blocks,
    }
}

fn the_machine(blocks: &mut Vec<Block>, report: &Report) {
    let frequency = &report.frequency;
    let ghz = |hz: f64| format!("{:.3} GHz", hz / 1e9);
    let mut facts = report.machine.facts();
    let mut fact = |name: &'static str, value: String| facts.push((name, value));
    fact("CRC32C kernel in use", format!("{} ({})", report.kernel, integrity::kernel_choice()));
    fact("counter", format!("{}, {}", frequency.counter, ghz(frequency.counter_hz)));
    fact("core clock, measured", {
        let [slowest, fastest] = frequency.core_hz_range;
        format!("{} ({} to {})", ghz(frequency.core_hz), ghz(slowest), ghz(fastest))
    });
    fact("a cycle in the figures", format!("{}: {}", frequency.cycle, ghz(frequency.cycle_hz)));
    fact("the counter moves in steps of", format!("{} of its ticks", frequency.grain_ticks));
    fact("an empty sample", format!("{} cycles", short(frequency.empty_sample_cycles)));
    facts.extend(report.noise.facts());
    let samples: usize = report.measurements.iter().map(|m| m.cycles_per_byte.samples).sum();
    let retaken: usize = report.measurements.iter().map(|m| m.sampling.retaken_samples).sum();
    facts.push(("samples", format!("{samples}, of which {retaken} were taken again after a context switch")));
    let coarse = report.measurements.iter().filter(|m| m.coarse).count();
    let rows = report.measurements.len();
    facts.push((
        "rows of a few steps of the counter",
        format!("{coarse} of {rows}; their medians are left out"),
    ));
    blocks.extend([Block::Heading(1, "The machine".to_owned()), Block::Table(Table::of_facts(facts))]);
}

fn table_6_1(blocks: &mut Vec<Block>, report: &Report, thesis: &Thesis) {
    blocks.push(Block::Heading(1, "Table 6.1: this machine beside the thesis'".to_owned()));
    blocks.push(Block::Text(format!(
        "Mean CPU cycles per byte. The thesis: {}, on an Intel Core i3-2330M and an Intel Xeon E5-2670 v2.",
        citation(Paper::Thesis2019)
    )));
    let mut table = Table::new("", &["algorithm"]);
    for bytes in TABLE_6_1_SIZES {
        table.heading.extend([format!("{bytes} B: here"), "i3".to_owned(), "E5".to_owned()]);
    }
    for first in report.contenders(PAPERS) {
        let mut row = vec![with_substitute(first)];
        for bytes in TABLE_6_1_SIZES {
            row.push(
                report.find(&first.name, bytes).map_or(NONE.to_owned(), |m| short(m.cycles_per_byte.mean)),
            );
            row.extend([Bed::I3, Bed::Xeon].map(|bed| figure(thesis.figure(&first.name, bytes, bed))));
        }
        table.rows.push(row);
    }
    blocks.push(Block::Table(table));
}

/// The title, and the kernel that replaced an algorithm that the machine cannot run.
fn with_substitute(measurement: &Measurement) -> String {
    match &measurement.substitute {
        None => measurement.title.clone(),
        Some(kernel) => format!("{} (not on this CPU; in its place: {kernel})", measurement.title),
    }
}

fn figure(figure: Option<f64>) -> String {
    figure.map_or(NONE.to_owned(), |figure| figure.to_string())
}

fn findings(blocks: &mut Vec<Block>, report: &Report, thesis: &Thesis) {
    let mut table = Table::new(
        "What the thesis found, as a ratio of mean times, and the same ratio here, of means without the fastest and slowest \
         twentieth. Whether a finding holds here is whether both ratios lie on the same side of 1.",
        &["finding", "slower / faster", "bytes", "thesis", "on", "here", "holds here"],
    );
    for finding in papers::findings() {
        let there = |name| thesis.figure(name, finding.bytes, finding.bed);
        let here = |name| report.find(name, finding.bytes).map(|m| m.cycles_per_byte.trimmed_mean);
        let there = there(finding.slower).zip(there(finding.faster)).map(|(slower, faster)| slower / faster);
        let here = here(finding.slower).zip(here(finding.faster)).map(|(slower, faster)| slower / faster);
        let ratio = |ratio: Option<f64>| ratio.map_or(NONE.to_owned(), |ratio| format!("{ratio:.2}"));
        table.rows.push(vec![
            finding.says.to_owned(),
            format!("{} / {}", finding.slower, finding.faster),
            finding.bytes.to_string(),
            ratio(there),
            finding.bed.short().to_owned(),
            ratio(here),
            there.zip(here).map_or(NONE, |(there, here)| verdict(there, here)).to_owned(),
        ]);
    }
    blocks.push(Block::Table(table));
}

/// A ratio this near to 1 means "alike".
const ALIKE: f64 = 0.05;

/// Whether a ratio of the thesis is reproduced.
fn verdict(there: f64, here: f64) -> &'static str {
    match (here - 1.0).abs() < ALIKE {
        true => "alike here",
        false if (there > 1.0) == (here > 1.0) => "yes",
        false => "no",
    }
}

fn figures(blocks: &mut Vec<Block>, report: &Report, thesis: &Thesis) {
    blocks.push(Block::Heading(1, "Figures 6.1 to 6.10: by size of the buffer".to_owned()));
    for figure in &FIGURES {
        let chart = thesis_chart(report, thesis, figure);
        if chart.series.iter().any(|series| series.role == Role::Measured) {
            blocks.push(Block::Chart(chart));
        }
    }
}

fn thesis_chart(report: &Report, thesis: &Thesis, figure: &Figure) -> Chart {
    let mut series = Vec::new();
    for (hue, &name) in figure.algorithms.iter().enumerate() {
        let measured = report.of(name).filter(|m| THESIS_SIZES.contains(&m.bytes) && m.substitute.is_none());
        let points: Vec<Point> = measured
            .map(|m| Point { x: m.bytes as f64, y: m.cycles_per_byte.mean, error: m.cycles_per_byte.ci95 })
            .collect();
        if !points.is_empty() {
            series.push(Series { name: name.to_owned(), role: Role::Measured, hue, points });
        }
        let curve = thesis.curve(name, figure.bed).into_iter();
        let points: Vec<Point> = curve.map(|(bytes, y)| Point { x: bytes as f64, y, error: 0.0 }).collect();
        if !points.is_empty() {
            series.push(Series { name: format!("{name}, thesis"), role: Role::Reference, hue, points });
        }
    }
    Chart {
        id: format!("figure-{}", figure.number.replace('.', "-")),
        title: figure_title(figure),
        subtitle: format!("Solid: this machine, mean and 95 %. Dashed: the thesis, {}", figure.bed.long()),
        x: bytes_axis(),
        y: Axis { label: "cycles per byte".to_owned(), scale: Scale::Decades },
        series,
    }
}

/// On another architecture a figure of the thesis cannot be reproduced: its curves are only shown next to ours.
fn figure_title(figure: &Figure) -> String {
    let Figure { number, title, .. } = figure;
    match figure.bed.is_of_this_architecture() {
        true => format!("Figure {number}: {title}"),
        false => format!("Beside Figure {number}, which is of another architecture: {title}"),
    }
}

fn bytes_axis() -> Axis {
    Axis { label: "bytes".to_owned(), scale: Scale::Doublings }
}

fn table_2(blocks: &mut Vec<Block>, report: &Report) {
    blocks.push(Block::Heading(1, "Table 2: one large buffer".to_owned()));
    blocks.push(Block::Text(format!(
        "MB/s (10^6 bytes per second) of one thread, mean of {} runs over {}. The note: {}, with 1 GB.",
        report.settings.memory_runs,
        text::bytes(report.settings.memory_bytes),
        citation(Paper::Note2007)
    )));
    let (noted, others): (Vec<_>, Vec<_>) = report.memory.iter().partition(|m| m.origin == Origin::Paper);
    let mut table = Table::new("", &["processor"]);
    table.heading.extend(noted.iter().map(|m| m.title.clone()));
    for row in papers::note_table_2() {
        let of = |name: &str| row.mb_per_s.get(NOTE_ALGORITHMS.iter().position(|&n| n == name)?).copied();
        let figures = noted.iter().map(|m| of(&m.name).map_or(NONE.to_owned(), |rate| format!("{rate:.0}")));
        table.rows.push(std::iter::once(row.processor.to_owned()).chain(figures).collect());
    }
    let rates = noted.iter().map(|m| format!("{:.0} ± {:.0}", m.mb_per_s.mean, m.mb_per_s.ci95));
    if !noted.is_empty() {
        table.rows.push(std::iter::once("here".to_owned()).chain(rates).collect());
        blocks.push(Block::Table(table));
    }
    let mut table = Table::new("Beside them, over the same buffer:", &["", "MB/s"]);
    for m in others {
        let rate = format!("{:.0} ± {:.0}", m.mb_per_s.mean, m.mb_per_s.ci95);
        table.rows.push(vec![m.title.clone(), rate]);
    }
    if !table.rows.is_empty() {
        blocks.push(Block::Table(table));
    }
}

fn kernels(blocks: &mut Vec<Block>, report: &Report, group: &GroupFacts) {
    let contenders = report.contenders(group.id);
    if contenders.is_empty() {
        return;
    }
    blocks.push(Block::Heading(1, group.title.to_owned()));
    blocks.push(Block::Text(format!("{} GB/s (10^9 bytes per second), medians.", group.about)));
    let mut series = Vec::new();
    let mut hue = 0;
    for first in &contenders {
        let role = if first.origin == Origin::Limit { Role::Limit } else { Role::Measured };
        let points =
            report.of(&first.name).map(|m| Point { x: m.bytes as f64, y: m.gb_per_s, error: 0.0 }).collect();
        series.push(Series { name: first.title.clone(), role, hue, points });
        hue += usize::from(role == Role::Measured);
    }
    blocks.push(Block::Chart(Chart {
        id: format!("kernels-{}", group.id),
        title: group.title.to_owned(),
        subtitle: "Median of all samples".to_owned(),
        x: bytes_axis(),
        y: Axis { label: "GB/s".to_owned(), scale: Scale::Decades },
        series,
    }));
    let mut table = Table::new("", &["bytes"]);
    table.heading.extend(contenders.iter().map(|m| m.title.clone()));
    for &bytes in &group.sizes {
        let figures = contenders
            .iter()
            .map(|first| report.find(&first.name, bytes).map_or(NONE.to_owned(), |m| short(m.gb_per_s)));
        table.rows.push(std::iter::once(bytes.to_string()).chain(figures).collect());
    }
    blocks.push(Block::Table(table));
}

fn appendix(blocks: &mut Vec<Block>, report: &Report, thesis: &Thesis) {
    for (number, name) in [("A.5", "crc32c-pclmulqdq"), ("A.6", "ones-complement-16")] {
        extra_bytes(blocks, report, thesis, number, name);
    }
    for group in &report.groups {
        blocks.push(Block::Heading(1, format!("Every size: {}", group.title)));
        blocks.push(Block::Text(
            "Cycles per byte: mean, 95 % confidence interval of the mean, median; 10^9 bytes per second of the median, or \
             where that is of a few steps of the counter, of the mean without the fastest and slowest twentieth. \
             Beside them the means of the thesis' Tables A.1 to A.4, where it has them."
                .to_owned(),
        ));
        for first in report.contenders(group.id) {
            every_size(blocks, report, thesis, first);
        }
    }
}

fn extra_bytes(blocks: &mut Vec<Block>, report: &Report, thesis: &Thesis, number: &str, name: &str) {
    let mut table = Table::new(
        format!("Mean cycles per byte of {name} with extra bytes added to the buffer."),
        &["bytes", "extra", "here", "i3-2330M", "E5-2670 v2"],
    );
    for size in TABLE_6_1_SIZES {
        for extra in std::iter::once(0).chain(EXTRA_BYTES) {
            let Some(m) = report.find(name, size + extra) else { continue };
            let mut row = vec![size.to_string(), extra.to_string(), short(m.cycles_per_byte.mean)];
            row.extend([Bed::I3, Bed::Xeon].map(|bed| figure(thesis.figure(name, size + extra, bed))));
            table.rows.push(row);
        }
    }
    if !table.rows.is_empty() {
        blocks.push(Block::Heading(1, format!("Table {number}: odd sizes")));
        blocks.push(Block::Table(table));
    }
}

fn every_size(blocks: &mut Vec<Block>, report: &Report, thesis: &Thesis, first: &Measurement) {
    let beds: Vec<Bed> =
        Bed::ALL.into_iter().filter(|bed| !thesis.curve(&first.name, *bed).is_empty()).collect();
    let calls = match first.sampling.calls_per_sample {
        1 => "one call a sample",
        _ => "many calls a sample",
    };
    let mut table = Table::new(
        format!("{}; {calls}, {} samples", first.source, first.cycles_per_byte.samples),
        &["bytes", "mean", "±", "median", "GB/s"],
    );
    table.heading.extend(beds.iter().map(|bed| bed.short().to_owned()));
    for m in report.of(&first.name) {
        let cycles = &m.cycles_per_byte;
        let mut row = vec![m.bytes.to_string(), short(cycles.mean), short(cycles.ci95)];
        row.push(if m.coarse { NONE.to_owned() } else { short(cycles.median) });
        row.push(short(m.gb_per_s));
        row.extend(beds.iter().map(|&bed| figure(thesis.figure(&first.name, m.bytes, bed))));
        table.rows.push(row);
    }
    blocks.extend([Block::Heading(2, with_substitute(first)), Block::Table(table)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_holds_on_the_same_side_of_one() {
        assert_eq!((verdict(1.38, 1.17), verdict(0.9, 0.7)), ("yes", "yes"));
        assert_eq!((verdict(1.38, 0.86), verdict(0.9, 1.2)), ("no", "no"));
        assert_eq!((verdict(1.38, 1.04), verdict(1.38, 0.96)), ("alike here", "alike here"));
    }

    #[test]
    fn figures_of_other_architectures_are_not_called_ours() {
        let titles: Vec<String> = FIGURES.iter().map(figure_title).collect();
        let beside = titles.iter().filter(|title| title.starts_with("Beside Figure 6.")).count();
        let foreign = FIGURES.iter().filter(|figure| !figure.bed.is_of_this_architecture()).count();
        assert_eq!(beside, foreign);
        if cfg!(target_arch = "x86_64") {
            assert!(titles[7..].iter().all(|title| title.starts_with("Beside Figure 6.")), "{titles:?}");
            assert_eq!(foreign, 3);
        }
    }
}
