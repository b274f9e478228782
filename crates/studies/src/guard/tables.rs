//! The result as a document: the note's two figures for each disk, the same in tables, and what the note found.

use published::Paper;

use super::disks::DiskFacts;
use super::report::{Measurement, Report};
use crate::source::{Origin, citation};
use harness::chart::{Axis, Chart, Point, Role, Scale, Series, short};
use harness::document::{Block, Document, Extent, Table, Trust};
use harness::statistics::Summary;
use harness::text;

/// Shown where there is no figure.
const NONE: &str = "-";

/// A measured quantity, with its unit and precision.
struct Quantity {
    name: &'static str,
    get: fn(&Measurement) -> &Summary,
    text: fn(f64) -> String,
}

const BANDWIDTH: Quantity =
    Quantity { name: "MB/s", get: |m| &m.mb_per_s, text: |value| format!("{value:.0}") };
const LOAD: Quantity =
    Quantity { name: "processor, %", get: |m| &m.cpu_percent, text: |value| format!("{value:.0}") };
const COST: Quantity =
    Quantity { name: "CPU seconds per 10^9 bytes", get: |m| &m.cpu_seconds_per_gb, text: short };

/// The document. With [`Extent::Everything`] also the confidence of each figure.
pub fn document(report: &Report, extent: Extent) -> Document {
    let mut facts = report.machine.facts();
    facts.push(("guard kernel in use", report.kernel.to_owned()));
    facts.extend(report.noise.facts());
    let settings = &report.settings;
    facts.push(("sector", format!("{} bytes", settings.sector_bytes)));
    facts.push(("disk", text::bytes(settings.region_bytes)));
    facts.push(("turns", format!("{} of {} s for each figure", settings.runs, short(settings.turn_seconds))));
    let mut blocks = vec![Block::Heading(1, "The machine".to_owned()), Block::Table(Table::of_facts(facts))];
    for disk in &report.disks {
        of_disk(&mut blocks, report, disk);
    }
    findings(&mut blocks, report);
    if extent == Extent::Everything {
        appendix(&mut blocks, report);
    }
    Document {
        title: "Guards on the way to a disk".to_owned(),
        trust: Trust::Measured(report.noise.reasons.clone()),
        blocks,
    }
}

fn of_disk(blocks: &mut Vec<Block>, report: &Report, disk: &DiskFacts) {
    blocks.push(Block::Heading(1, disk.title.to_owned()));
    blocks.push(Block::Text(format!(
        "In {}. One thread; means of all turns. The note: {}, Figures 1 and 2.",
        disk.place,
        citation(Paper::Note2007)
    )));
    let (label, scale) = ("MB/s".to_owned(), Scale::Decades);
    blocks.push(chart(
        report,
        disk,
        ("1", "bandwidth by size of the I/O"),
        &BANDWIDTH,
        Axis { label, scale },
    ));
    blocks.push(table(report, disk, &BANDWIDTH));
    let (label, scale) = ("load of the processor, %".to_owned(), Scale::Linear);
    blocks.push(chart(report, disk, ("2", "load of one processor"), &LOAD, Axis { label, scale }));
    blocks.push(table(report, disk, &LOAD));
    blocks.push(table(report, disk, &COST));
}

fn chart(
    report: &Report,
    disk: &DiskFacts,
    (number, title): (&str, &str),
    quantity: &Quantity,
    y: Axis,
) -> Block {
    let mut series: Vec<Series> = Vec::new();
    let mut hue = 0;
    for first in firsts(report, disk.id) {
        let role = if first.origin == Origin::Limit { Role::Limit } else { Role::Measured };
        let of_name = report.of(disk.id).filter(|m| m.name == first.name);
        let points = of_name.map(|m| {
            let summary = (quantity.get)(m);
            Point { x: m.bytes as f64, y: summary.mean, error: summary.ci95 }
        });
        series.push(Series { name: first.title.to_owned(), role, hue, points: points.collect() });
        hue += usize::from(role == Role::Measured);
    }
    Block::Chart(Chart {
        id: format!("figure-{number}-{}", disk.id),
        title: format!("Figure {number}: {title}"),
        subtitle: format!("{}; mean and 95 %", disk.title),
        x: Axis { label: "bytes of an I/O".to_owned(), scale: Scale::Doublings },
        y,
        series,
    })
}

/// The first measurement of each algorithm on a disk.
fn firsts<'a>(report: &'a Report, disk: &'a str) -> Vec<&'a Measurement> {
    let mut firsts: Vec<&Measurement> = Vec::new();
    for measurement in report.of(disk) {
        if firsts.last().is_none_or(|last| last.name != measurement.name) {
            firsts.push(measurement);
        }
    }
    firsts
}

fn sizes(report: &Report, disk: &str) -> Vec<usize> {
    let mut sizes: Vec<usize> = report.of(disk).map(|m| m.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn table(report: &Report, disk: &DiskFacts, quantity: &Quantity) -> Block {
    let firsts = firsts(report, disk.id);
    let mut table = Table::new(quantity.name, &["bytes"]);
    table.heading.extend(firsts.iter().map(|m| m.title.to_owned()));
    for bytes in sizes(report, disk.id) {
        let cell = |first: &&Measurement| {
            let found = report.find(disk.id, first.name, bytes);
            found.map_or(NONE.to_owned(), |m| (quantity.text)((quantity.get)(m).mean))
        };
        table.rows.push(std::iter::once(bytes.to_string()).chain(firsts.iter().map(cell)).collect());
    }
    Block::Table(table)
}

/// The note's statements about its figures, and the same figures here at the largest size.
fn findings(blocks: &mut Vec<Block>, report: &Report) {
    let mut table = Table::new(
        "The note's array, and here at the largest size. Slow-down: the bandwidth without guards over that with them. Load: \
         points of processor load more than without guards.",
        &["", "the note"],
    );
    table.heading.extend(report.disks.iter().map(|disk| disk.id.to_owned()));
    let of = |disk: &str, name: &str| {
        let largest = sizes(report, disk).last().copied().unwrap_or(0);
        report.find(disk, name, largest)
    };
    let mut row = |what: String, note: &str, value: &dyn Fn(&str) -> Option<String>| {
        let here = report.disks.iter().map(|disk| value(disk.id).unwrap_or_else(|| NONE.to_owned()));
        table.rows.push([what, note.to_owned()].into_iter().chain(here).collect());
    };
    row("load without guards".to_owned(), "30 %", &|disk| {
        Some(format!("{:.0} %", of(disk, "none")?.cpu_percent.mean))
    });
    let measured: Vec<&Measurement> = report.disks.first().map_or(Vec::new(), |disk| firsts(report, disk.id));
    for algorithm in measured.iter().filter(|m| m.origin != Origin::Limit) {
        let note = match algorithm.name {
            "tcp-optimised" => "the fastest, and the least load: 15 to 18 points more, 45 to 48 %",
            "xor" | "tcp-reference" => "between; alike",
            "t10-table" => "much faster than the reference, the load still high",
            "t10-reference" => "the slowest, and the most load",
            _ => NONE,
        };
        row(algorithm.title.to_owned(), note, &|disk| {
            let (none, with) = (of(disk, "none")?, of(disk, algorithm.name)?);
            let slower = none.mb_per_s.mean / with.mb_per_s.mean;
            Some(format!("{slower:.2} times, {:+.0} points", with.cpu_percent.mean - none.cpu_percent.mean))
        });
    }
    blocks.extend([Block::Heading(1, "What the note found".to_owned()), Block::Table(table)]);
}

fn appendix(blocks: &mut Vec<Block>, report: &Report) {
    blocks.push(Block::Heading(1, "Every figure".to_owned()));
    blocks.push(Block::Text("Mean and 95 % confidence interval of the mean, over the turns.".to_owned()));
    for disk in &report.disks {
        for first in firsts(report, disk.id) {
            let caption = format!("{} ({}), {}", first.title, first.source, disk.title);
            let mut table = Table::new(caption, &["bytes", "writes"]);
            for quantity in [&BANDWIDTH, &LOAD, &COST] {
                table.heading.extend([quantity.name.to_owned(), "±".to_owned()]);
            }
            for m in report.of(disk.id).filter(|m| m.name == first.name) {
                let mut row = vec![m.bytes.to_string(), m.writes.to_string()];
                for quantity in [&BANDWIDTH, &LOAD, &COST] {
                    let summary = (quantity.get)(m);
                    row.extend([short(summary.mean), short(summary.ci95)]);
                }
                table.rows.push(row);
            }
            blocks.push(Block::Table(table));
        }
    }
}
