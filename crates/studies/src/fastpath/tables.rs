//! The result as a document: the paper's figures again, what the paper found, and what this program makes of it.

use super::caches::Regime;
use super::contenders::{SARWATE, SLICING_8};
use super::derived::{NONE, copy_and_crc, line_rate, projected, projection, protocol};
use super::findings;
use super::outbound::{Asked, From};
use super::papers::{CITATION, figure};
use super::report::{Query, Report, Split};
use super::sandbox::Way;
use super::turns::{LARGE_PDU_BYTES, MARKER_INTERVAL_BYTES, PDU_BYTES, PDUS, SEGMENT_BYTES, TABLE_2};
use harness::chart::{Chart, Point, Role, Scale, Series};
use harness::document::{Block, Document, Extent, Table, Trust};
use harness::text;

/// The document. Everything: also every measurement.
pub fn document(report: &Report, extent: Extent) -> Document {
    let mut facts = report.machine.facts();
    facts.push(("CRC32C kernel in use", report.kernel.to_owned()));
    facts.push(("one cycle", report.frequency.cycle.to_owned()));
    facts.push(("read to empty the caches", text::bytes(report.settings.purged_bytes as u64)));
    facts.push(("rounds", report.settings.rounds.to_string()));
    facts.extend(report.noise.facts());
    let mut blocks = vec![
        Block::Heading(1, "The machine".to_owned()),
        Block::Table(Table::of_facts(facts)),
        Block::Text(format!(
            "The paper: {CITATION}. Its processor was a Pentium M of 1.7 GHz. Figures are cycles of one Data-In PDU at the initiator with \
             header digest, data digest and status; TCP's segments carry 1448 bytes unless it says otherwise. This kind of machine has no \
             counters of instructions and cache misses: cycles are those of the time stamp counter."
        )),
    ];
    blocks.extend(shares(report, "11", "with Sarwate's CRC", SARWATE));
    blocks.extend(figure_12(report));
    blocks.extend(figure_14(report));
    blocks.extend(shares(report, "15", "with Slicing-by-8", SLICING_8));
    blocks.extend(figure_16(report));
    blocks.extend(figure_17(report));
    blocks.extend(contenders(report));
    blocks.extend(markers(report));
    blocks.extend(as_built(report));
    blocks.extend(outbound(report));
    blocks.extend(threads(report));
    blocks.extend(findings::blocks(report));
    if extent == Extent::Everything {
        blocks.extend(everything(report));
    }
    Document {
        title: "Where the cycles of a received PDU go".to_owned(),
        trust: Trust::Measured(report.noise.reasons.clone()),
        blocks,
    }
}

/// A number of cycles.
pub(super) fn whole(cycles: Option<f64>) -> String {
    cycles.map_or(NONE.to_owned(), |cycles| format!("{cycles:.0}"))
}

/// Cycles per byte.
fn per_byte(cycles: Option<f64>, bytes: usize) -> String {
    cycles.map_or(NONE.to_owned(), |cycles| format!("{:.3}", cycles / bytes as f64))
}

fn percent(part: f64, of: f64) -> String {
    format!("{:.0} %", 100.0 * part / of)
}

fn heading(number: &str, title: &str) -> Block {
    Block::Heading(1, format!("Figure {number}: {title}"))
}

fn series(name: &str, hue: usize, points: impl Iterator<Item = (f64, f64)>) -> Series {
    let points = points.map(|(x, y)| Point { x, y, error: 0.0 }).collect();
    Series { name: name.to_owned(), role: Role::Measured, hue, points }
}

fn chart(id: &str, title: &str, x: (&str, Scale), y: &str, series: Vec<Series>) -> Block {
    Block::Chart(Chart { series, ..Chart::new(id, title, "medians", x, (y, Scale::Linear)) })
}

/// Figures 11 and 15: the parts of a PDU by its size, found in two ways.
fn shares(report: &Report, number: &str, title: &str, contender: &'static str) -> Vec<Block> {
    let mut table = Table::new(
        "Cycles of one Data-In PDU, cold caches. By difference: the same run with a part left out. By marks: readings of the counter \
         in the path. Sum: the parts by marks over the whole without marks.",
        &["bytes", "whole", "protocol", "copy", "CRC", "shares", "protocol by marks", "copy", "CRC", "sum"],
    );
    let splits: Vec<(usize, Split)> = PDU_BYTES
        .into_iter()
        .filter_map(|bytes| Some((bytes, report.by_difference(Query::new(Way::Layered, contender, bytes))?)))
        .collect();
    for &(bytes, split) in &splits {
        let (whole_, marked) =
            (split.sum(), report.marked(Query::new(Way::Layered, contender, bytes)).unwrap_or_default());
        let shares = [split.protocol, split.crc, split.copy].map(|part| percent(part, whole_)).join(" / ");
        let cycles = [split.protocol, split.copy, split.crc].map(|cycles| whole(Some(cycles)));
        let marks = [marked.protocol, marked.copy, marked.crc].map(|cycles| whole(Some(cycles)));
        let mut row = vec![bytes.to_string(), whole(Some(whole_))];
        row.extend(cycles);
        row.push(shares);
        row.extend(marks);
        row.push(format!("{:.2}", marked.sum() / whole_));
        table.rows.push(row);
    }
    let line = |name, hue, get: fn(&Split) -> f64| {
        series(name, hue, splits.iter().map(|(bytes, split)| (*bytes as f64, get(split))))
    };
    let lines = vec![
        line("CRC", 0, |split| split.crc),
        line("copy", 1, |split| split.copy),
        line("protocol", 2, |split| split.protocol),
    ];
    let id = format!("figure-{number}");
    let title_ = format!("Figure {number}: one PDU {title}");
    vec![
        heading(number, &format!("Data-In PDU {title}")),
        Block::Text("Shares: protocol / CRC / copy.".to_owned()),
        chart(&id, &title_, ("bytes", Scale::Doublings), "cycles", lines),
        Block::Table(table),
    ]
}

fn figure_12(report: &Report) -> Vec<Block> {
    let mut table = Table::new(
        "Cycles of the protocol for one PDU of 8 KiB. Cold: the caches are emptied of everything but code and packet headers before each command.",
        &["read, KiB", "cold", "warm"],
    );
    for pdus in PDUS {
        let cells = [Regime::Cold, Regime::Warm].map(|regime| whole(protocol(report, pdus, regime)));
        table.rows.push([vec![(pdus * 8).to_string()], cells.to_vec()].concat());
    }
    let line = |name, hue, regime| {
        let points = PDUS.filter_map(move |pdus| Some(((pdus * 8) as f64, protocol(report, pdus, regime)?)));
        series(name, hue, points)
    };
    let lines = vec![line("cold", 0, Regime::Cold), line("warm", 1, Regime::Warm)];
    vec![
        heading("12", "protocol cost of a Data-In PDU"),
        chart("figure-12", "Figure 12: protocol of one PDU", ("read, KiB", Scale::Linear), "cycles", lines),
        Block::Table(table),
    ]
}

fn figure_14(report: &Report) -> Vec<Block> {
    let mut table = Table::new(
        "Cycles of the digests of one PDU after the copy (by marks, cold caches before the PDU).",
        &["bytes", "Sarwate", "Slicing-by-8", "ratio", "the kernel in use"],
    );
    let crc = |contender, bytes| Some(report.marked(Query::new(Way::Layered, contender, bytes))?.crc);
    for bytes in PDU_BYTES {
        let (sarwate, slicing) = (crc(SARWATE, bytes), crc(SLICING_8, bytes));
        let ratio = sarwate.zip(slicing).map_or(NONE.to_owned(), |(a, b)| format!("{:.2}", a / b));
        table.rows.push(vec![
            bytes.to_string(),
            whole(sarwate),
            whole(slicing),
            ratio,
            whole(crc(report.in_use(), bytes)),
        ]);
    }
    let line = |name, hue, contender| {
        series(name, hue, PDU_BYTES.into_iter().filter_map(|b| Some((b as f64, crc(contender, b)?))))
    };
    let lines = vec![
        line("Sarwate", 0, SARWATE),
        line("Slicing-by-8", 1, SLICING_8),
        line("the kernel in use", 2, report.in_use()),
    ];
    vec![
        heading("14", "Slicing-by-8 against Sarwate"),
        chart("figure-14", "Figure 14: CRC of one PDU", ("bytes", Scale::Doublings), "cycles", lines),
        Block::Table(table),
    ]
}

fn figure_16(report: &Report) -> Vec<Block> {
    let mut table = Table::new(
        "Copy and CRC of one PDU, cycles, cold caches: one after the other, and in one pass.",
        &["bytes", "CRC", "one after the other", "interleaved", "saved", "share"],
    );
    let names = [(SARWATE, "Sarwate"), (SLICING_8, "Slicing-by-8"), (report.in_use(), "the kernel in use")];
    let mut lines = Vec::new();
    for (n, (contender, title)) in names.into_iter().enumerate() {
        for bytes in PDU_BYTES {
            let Some((apart, together)) = copy_and_crc(report, contender, bytes, Regime::Cold) else {
                continue;
            };
            table.rows.push(vec![
                bytes.to_string(),
                title.to_owned(),
                whole(Some(apart)),
                whole(Some(together)),
                whole(Some(apart - together)),
                percent(apart - together, apart),
            ]);
        }
        let line = |get: fn((f64, f64)) -> f64| {
            PDU_BYTES.into_iter().filter_map(move |bytes| {
                Some((bytes as f64, get(copy_and_crc(report, contender, bytes, Regime::Cold)?)))
            })
        };
        lines.push(series(title, 2 * n, line(|(apart, _)| apart)));
        lines.push(series(&format!("{title}, interleaved"), 2 * n + 1, line(|(_, together)| together)));
    }
    vec![
        heading("16", "copy and CRC interleaved"),
        chart(
            "figure-16",
            "Figure 16: copy and CRC of one PDU",
            ("bytes", Scale::Doublings),
            "cycles",
            lines,
        ),
        Block::Table(table),
    ]
}

fn figure_17(report: &Report) -> Vec<Block> {
    let mut table = Table::new(
        "10^6 bytes per second that one processor could receive: f × bytes / (C_iscsi + C_tcp), cold caches.",
        &["bytes"],
    );
    let ways = projected(report);
    table.heading.extend(ways.map(|(_, _, title)| title.to_owned()));
    table.heading.push("10 Gbit/s Ethernet".to_owned());
    for bytes in PDU_BYTES {
        let cells = ways.map(|(way, contender, _)| whole(projection(report, way, contender, bytes)));
        table
            .rows
            .push([vec![bytes.to_string()], cells.to_vec(), vec![whole(Some(line_rate(bytes)))]].concat());
    }
    let mut lines: Vec<Series> = ways
        .into_iter()
        .enumerate()
        .map(|(hue, (way, contender, title))| {
            let points = PDU_BYTES.into_iter();
            series(
                title,
                hue,
                points.filter_map(|b| Some((b as f64, projection(report, way, contender, b)?))),
            )
        })
        .collect();
    let mut limit = series("10 Gbit/s Ethernet", 0, PDU_BYTES.into_iter().map(|b| (b as f64, line_rate(b))));
    limit.role = Role::Limit;
    lines.push(limit);
    let tcp = report.figure_17.tcp_cycles_per_byte.map(|cycles| cycles * LARGE_PDU_BYTES as f64);
    vec![
        heading("17", "projected throughput of reads"),
        Block::Text(format!(
            "C_tcp is the CPU time of a thread that receives on the loopback and has the kernel drop the data instead of copying it: {} \
             cycles for 8 KiB. Segments of the loopback are mostly processed by the thread that sends, and no network card interrupts \
             anybody: it is a lower bound, and the projection an upper one. The paper does not print its own; its figures give 5,300 to \
             5,800 cycles. SCSI and interrupts are in neither projection. What the whole product reaches is measured by `cargo xtask \
             bench stack`.",
            whole(tcp)
        )),
        chart("figure-17", "Figure 17: projected reads", ("bytes", Scale::Doublings), "MB/s", lines),
        Block::Table(table),
    ]
}

/// Every CRC at 8 KiB, in every state of the caches.
fn contenders(report: &Report) -> Vec<Block> {
    let mut table = Table::new(
        "Copy and CRC of one PDU of 8 KiB, cycles per byte: one after the other / interleaved.",
        &["CRC"],
    );
    table.heading.extend(Regime::ALL.map(|regime| regime.title().to_owned()));
    for contender in &report.contenders {
        let cell = |regime| {
            let both = copy_and_crc(report, contender.name, LARGE_PDU_BYTES, regime);
            both.map_or(NONE.to_owned(), |(apart, together)| {
                let bytes = LARGE_PDU_BYTES;
                format!("{} / {}", per_byte(Some(apart), bytes), per_byte(Some(together), bytes))
            })
        };
        let name = format!("{} ({})", contender.name, contender.title);
        table.rows.push([vec![name], Regime::ALL.map(cell).to_vec()].concat());
    }
    vec![Block::Heading(1, "Every CRC, layered and interleaved".to_owned()), Block::Table(table)]
}

/// What it costs to leave markers out of copy and digest.
fn markers(report: &Report) -> Vec<Block> {
    let mut table = Table::new(
        "Cycles of one PDU of 8 KiB, layered / interleaved: without markers, with them, and the difference.",
        &["caches", "CRC", "without", "with markers", "markers"],
    );
    for regime in [Regime::Cold, Regime::Warm] {
        for contender in [SARWATE, SLICING_8, report.in_use()] {
            let cycles = |markers| {
                [Way::Layered, Way::Interleaved].map(|way| {
                    let query = Query::new(way, contender, LARGE_PDU_BYTES);
                    report.cycles(Query { regime, markers, ..query })
                })
            };
            let (without, with) = (cycles(None), cycles(Some(MARKER_INTERVAL_BYTES)));
            let cost = [0, 1].map(|n| with[n].zip(without[n]).map(|(with, without)| with - without));
            let cell = |of: [Option<f64>; 2]| of.map(whole).join(" / ");
            let head = [regime.title(), contender].map(str::to_owned).to_vec();
            table.rows.push([head, [without, with, cost].map(cell).to_vec()].concat());
        }
    }
    vec![
        Block::Heading(1, "Markers".to_owned()),
        Block::Text(format!(
            "Eight bytes after each {MARKER_INTERVAL_BYTES} of a connection's stream, as RFC 3720 had them: elements of the list that do not \
             count. They go into memory that nobody reads. They are synthetic: RFC 7143 forbids them, and the product refuses them."
        )),
        Block::Table(table),
    ]
}

/// The product's way next to the paper's two.
fn as_built(report: &Report) -> Vec<Block> {
    let in_use = report.in_use();
    let mut table = Table::new(
        "Cycles of one PDU of 8 KiB with the kernel in use. As built copies twice: from the segments to a receive buffer, which the \
         kernel does in a receive, and from there to the SCSI buffer.",
        &["caches", "segments", "as built", "layered", "interleaved"],
    );
    for regime in Regime::ALL {
        for segment_bytes in SEGMENT_BYTES {
            let cells = Way::ALL.map(|way| {
                let query = Query::new(way, in_use, LARGE_PDU_BYTES);
                whole(report.cycles(Query { regime, segment_bytes, ..query }))
            });
            let head = vec![regime.title().to_owned(), segment_bytes.to_string()];
            table.rows.push([head, cells.to_vec()].concat());
        }
    }
    let mut parts = Table::new(
        "As built, by marks: cycles of one PDU of 8 KiB. What a receive copies is in the system call, which the sandbox has not.",
        &["caches", "receive", "framing and CRC", "session", "copy to the caller", "without digests"],
    );
    for regime in Regime::ALL {
        let query = Query { regime, ..Query::new(Way::AsBuilt, in_use, LARGE_PDU_BYTES) };
        let Some(split) = report.marked(query) else { continue };
        let plain = report.cycles(Query { digests: false, crc: false, ..query });
        let cells =
            [split.receive, split.framing_and_crc, split.protocol, split.copy].map(|c| whole(Some(c)));
        parts.rows.push([vec![regime.title().to_owned()], cells.to_vec(), vec![whole(plain)]].concat());
    }
    vec![
        Block::Heading(1, "The product's way beside the paper's".to_owned()),
        Block::Table(table),
        Block::Table(parts),
        Block::Table(table_2(report)),
        Block::Text(format!(
            "The paper's Pentium M: {} cycles for 8 KiB with Slicing-by-8 one after the other, {} with Sarwate's CRC.",
            figure("fig15-total-cycles-8192"),
            figure("fig11-total-cycles-8192")
        )),
    ]
}

/// The workload of the paper's Table 2.
fn table_2(report: &Report) -> Table {
    let in_use = report.in_use();
    let mut table = Table::new(
        "The workload of the paper's Table 2, reads of 32 KiB: one session, 8 connections, 40 commands in turn, PDUs of 8 KiB in any \
         order, both digests. Cycles of one PDU; the last column is layered with the data in order.",
        &[
            "caches",
            "as built",
            "layered",
            "interleaved",
            "Sarwate",
            "interleaved",
            "Slicing-by-8",
            "interleaved",
            "in order",
        ],
    );
    for regime in [Regime::Cold, Regime::Warm] {
        let of_order = |way, contender, in_order| {
            let (connections, pdus) = (TABLE_2.connections, TABLE_2.pdus);
            let query = Query::new(way, contender, LARGE_PDU_BYTES);
            whole(report.cycles(Query { regime, connections, pdus, in_order, ..query }))
        };
        let of = |way, contender| of_order(way, contender, false);
        let mut row = vec![regime.title().to_owned()];
        row.extend(Way::ALL.map(|way| of(way, in_use)));
        for contender in [SARWATE, SLICING_8] {
            row.extend([Way::Layered, Way::Interleaved].map(|way| of(way, contender)));
        }
        row.push(of_order(Way::Layered, in_use, true));
        table.rows.push(row);
    }
    table
}

/// Writes, next to reads of as many PDUs.
fn outbound(report: &Report) -> Vec<Block> {
    let mut table = Table::new(
        "Cycles of one Data-Out PDU of 8 KiB, eight in a command, all warm, until its bytes are ready to be sent. CRC: the difference \
         of both.",
        &["data", "source", "without digests", "with", "CRC"],
    );
    for plain in report.outbound.iter().filter(|sent| !sent.digests) {
        let with = report
            .outbound
            .iter()
            .find(|sent| sent.digests && (sent.asked, sent.from) == (plain.asked, plain.from));
        let asked = match plain.asked {
            Asked::Unsolicited => "unsolicited",
            Asked::Solicited => "solicited",
        };
        let from = match plain.from {
            From::Shared => "shared, no copy",
            From::Copied => "copied once, interleaved with the CRC",
        };
        let crc = with.map(|with| with.cycles - plain.cycles);
        table.rows.push(vec![
            asked.to_owned(),
            from.to_owned(),
            whole(Some(plain.cycles)),
            whole(with.map(|with| with.cycles)),
            whole(crc),
        ]);
    }
    let read = protocol(report, *PDUS.end(), Regime::Warm);
    vec![
        Block::Heading(1, "Writes".to_owned()),
        Block::Table(table),
        Block::Text(format!(
            "The protocol of a received PDU, eight in a command, all warm, is {} cycles. The paper says that writes cost less of it, as \
             much CRC, and at most one copy.",
            whole(read)
        )),
    ]
}

/// Several threads, each with a session of its own.
fn threads(report: &Report) -> Vec<Block> {
    let mut table = Table::new(
        "As built, all warm, PDUs of 8 KiB, each thread with a session of its own; what is received is built by the same thread and counts \
         as work. Only computing: threads that digest 16 KiB of their own again and again, which is what the processors of the machine add to \
         each other at best. Waits: how often a thread gave up its processor, in all rounds together.",
        &["threads", "MB/s", "over one thread", "only computing", "of that", "waits"],
    );
    for together in &report.threads {
        table.rows.push(vec![
            together.threads.to_string(),
            format!("{:.0}", together.mb_per_s),
            format!("{:.2}", together.over_one),
            format!("{:.2}", together.computing_over_one),
            percent(together.over_one, together.computing_over_one),
            together.waits.to_string(),
        ]);
    }
    vec![Block::Heading(1, "Several threads".to_owned()), Block::Table(table)]
}

fn everything(report: &Report) -> Vec<Block> {
    let mut table = Table::new(
        "Median, mean and 95 % confidence interval of the mean over the rounds: cycles of one PDU.",
        &[
            "way",
            "CRC",
            "caches",
            "connections",
            "PDUs",
            "bytes",
            "segment",
            "markers",
            "left out",
            "median",
            "mean",
            "±",
        ],
    );
    for m in &report.measurements {
        let Some(cycles) = m.cycles else { continue };
        let left_out = match (m.digests, m.crc, m.copy) {
            (false, ..) => "digests, negotiated",
            (_, true, true) => "",
            (_, false, true) => "CRC",
            (_, true, false) => "copy",
            (_, false, false) => "CRC, copy",
        };
        table.rows.push(vec![
            m.way.title().to_owned(),
            m.contender.to_owned(),
            m.regime.title().to_owned(),
            m.shape.connections.to_string(),
            m.shape.pdus.to_string(),
            if m.shape.in_order { "yes" } else { "no" }.to_owned(),
            m.shape.pdu_bytes.to_string(),
            m.shape.segment_bytes.to_string(),
            m.shape.markers.map_or(NONE.to_owned(), |interval| interval.to_string()),
            left_out.to_owned(),
            whole(Some(cycles.median)),
            whole(Some(cycles.mean)),
            whole(Some(cycles.ci95)),
        ]);
    }
    vec![Block::Heading(1, "Every figure".to_owned()), Block::Table(table)]
}
