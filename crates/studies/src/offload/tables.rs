//! The result as a document: the paper's tables and figure again, what it claims, and this project's bars.

use super::figures::{Area, HostRow, NONE, Rate, Report, RxStages, TxStages};
use super::findings;
use super::papers::{self, CITATION, RX_STAGES, TX_STAGES, figure};
use harness::document::{Block, Document, Extent, Table, Trust};
use harness::text;

/// The widths of the circuits, bits.
pub(super) const WIDTHS: [u32; 2] = [64, 512];

/// The document. Everything: also the clock of each placement.
pub fn document(report: &Report, extent: Extent) -> Document {
    let mut blocks = vec![Block::Text(format!(
        "The paper: {CITATION}. Its circuits ran in a Virtex-6. Ours are simulated, and placed for an ECP5-85 by open tools: a clock is what \
         nextpnr reports, the median of its placements, and nothing here ran in hardware. Every Gbit/s is bits per cycle times clock."
    ))];
    blocks.extend(table_2(report));
    blocks.extend(rates(report));
    blocks.extend(table_3(report));
    blocks.extend(figure_12(report));
    blocks.extend(reconfiguration(report));
    blocks.extend(findings::blocks(report));
    if extent == Extent::Everything {
        blocks.extend(placements(report));
    }
    Document { title: "The offload engine".to_owned(), trust: Trust::Computed, blocks }
}

/// Microseconds of so many cycles.
fn us(cycles: f64, hz: Option<f64>) -> String {
    hz.map_or(NONE.to_owned(), |hz| format!("{:.3}", cycles / hz * 1e6))
}

/// Cycles and, at the reported clock, microseconds at each width.
fn ours(count: impl Fn(u32) -> Option<u32>, clock: impl Fn(u32) -> Option<f64>) -> Vec<String> {
    let cell = |bits| match count(bits) {
        Some(count) => [count.to_string(), us(f64::from(count), clock(bits))],
        None => [NONE.to_owned(), NONE.to_owned()],
    };
    WIDTHS.into_iter().flat_map(cell).collect()
}

/// The same of a stage of the receive path.
fn ours_rx(report: &Report, cycles: impl Fn(RxStages) -> u32) -> Vec<String> {
    ours(|bits| report.rx_stages(bits).map(&cycles), |bits| report.rx_clock(bits))
}

/// The same of a stage of the transmit path.
fn ours_tx(report: &Report, cycles: impl Fn(TxStages) -> u32) -> Vec<String> {
    ours(|bits| report.tx_stages(bits).map(&cycles), |bits| report.tx_clock(bits))
}

fn table_2(report: &Report) -> Vec<Block> {
    let mut table = Table::new(
        "One frame of 1500 bytes: a Data-In with 1452 bytes of data and both digests. The paper's cycles are its microseconds at 156.25 MHz. \
         Ours at the clock of the whole receive path.",
        &["stage", "paper, us", "paper, cycles", "64 bit, cycles", "us", "512 bit, cycles", "us"],
    );
    let row = |name: &str, us: Option<f64>, ours: Vec<String>| {
        let paper = us.map_or([NONE.to_owned(), NONE.to_owned()], |us| {
            [format!("{us:.3}"), format!("{:.1}", papers::cycles(us))]
        });
        [vec![name.to_owned()], paper.to_vec(), ours].concat()
    };
    let none = || vec![NONE.to_owned(); 2 * WIDTHS.len()];
    for stage in TX_STAGES {
        let ours = match stage {
            "descriptors" => ours_tx(report, |stages| stages.data_requested - stages.descriptor_taken),
            "data-digest" => ours_tx(report, |stages| stages.left - stages.data_arrives),
            _ => none(),
        };
        table.rows.push(row(
            &format!("Tx {}", stage.replace('-', " ")),
            Some(figure(&format!("table2-tx-{stage}"))),
            ours,
        ));
    }
    table.rows.push(row("Tx, sum of the stages", Some(papers::sum("tx", &TX_STAGES)), none()));
    table.rows.push(row("Tx, total as printed", Some(figure("table2-tx-total")), none()));
    let without = papers::sum("tx", &TX_STAGES) - figure("table2-tx-dma") - figure("table2-tx-toe");
    let total = ours_tx(report, |stages| stages.left - stages.descriptor_taken);
    table.rows.push(row("Tx without TOE and DMA", Some(without), total));
    for stage in RX_STAGES {
        let ours = match stage {
            "parse-header-digest" => ours_rx(report, |stages| stages.header_digest_compared),
            "data-digest-store" => ours_rx(report, |stages| stages.left_buffer - stages.header_parsed),
            _ => none(),
        };
        table.rows.push(row(
            &format!("Rx {}", stage.replace('-', " ")),
            Some(figure(&format!("table2-rx-{stage}"))),
            ours,
        ));
    }
    table.rows.push(row("Rx, total as printed", Some(figure("table2-rx-total")), none()));
    let without = figure("table2-rx-parse-header-digest") + figure("table2-rx-data-digest-store");
    table.rows.push(row(
        "Rx without TOE and DMA",
        Some(without),
        ours_rx(report, |stages| stages.left_buffer),
    ));
    vec![
        Block::Heading(1, "Table 2: the stages of a frame".to_owned()),
        Block::Table(table),
        Block::Text(
            "Our header digest is compared while data already arrives, so its time is no part of a sum: the total is from the first beat \
             in to the last beat out of the Rx buffer. The buffer gives no byte away before the data digest was compared, so a frame \
             passes twice, in and out. In a stream the two overlap: see the rates. There is no TOE: TCP is the kernel's. The circuits that \
             were measured for the receive rows end at the Rx buffer. The transmit rows are of the whole engine: one command with the data of a \
             frame as immediate data, from the descriptor (and the fetch of its list) to the last beat out of the Tx buffer; the digest of its \
             header is made while the header enters that buffer, and costs no cycle of its own. Host memory is a model that answers in the \
             next cycle, so the rows of DMA are empty. A PDU leaves when all of it is there, because host memory may still refuse: so the data \
             passes twice here too."
                .to_owned(),
        ),
    ]
}

/// Gbit/s of so many bits in a cycle, with both factors.
fn gbit(bits_per_cycle: f64, hz: Option<f64>) -> String {
    hz.map_or(NONE.to_owned(), |hz| {
        format!("{bits_per_cycle:.1} x {:.1} MHz = {:.1}", hz / 1e6, bits_per_cycle * hz / 1e9)
    })
}

fn rates(report: &Report) -> Vec<Block> {
    let table = |title: &str, rates: &[Rate], clock: fn(&Report, u32) -> Option<f64>| {
        let columns = ["width", "data of a PDU", "beats per cycle", "bits per cycle x clock = Gbit/s"];
        let mut table = Table::new(title, &columns);
        table.rows.extend(rates.iter().map(|rate| {
            vec![
                format!("{} bit", rate.bits),
                text::bytes(rate.data_bytes.into()),
                format!("{:.3}", rate.beats_per_cycle()),
                gbit(rate.data_bits_per_cycle(), clock(report, rate.bits)),
            ]
        }));
        Block::Table(table)
    };
    let received = table(
        "Streams of Data-In without a pause, both digests on, from the first beat in to the last beat out of the Rx buffer. Bits are those of \
         data. A buffer of 4 KiB at 64 bit, of 64 KiB at 512 bit.",
        &report.cycles.rx_rates,
        Report::rx_clock,
    );
    let sent = table(
        "Data-Out that one R2T asks for, both digests on, from the first beat to the last that leave the whole engine. Host memory answers in the \
         next cycle. The clock is that of the transmit module.",
        &report.cycles.tx_rates,
        Report::tx_clock,
    );
    let paper = |direction: &str, key: &str| {
        let (bits, clock) = (figure("bits-per-cycle"), figure("clock"));
        let gbit = figure(key);
        let per_cycle = gbit * 1e9 / clock;
        format!(
            "{direction} {per_cycle:.1} of {bits:.0} bits per cycle x {:.2} MHz = {gbit:.2} Gbit/s",
            clock / 1e6
        )
    };
    vec![
        Block::Heading(1, "Rates".to_owned()),
        received,
        sent,
        Block::Text(format!(
            "The paper, with digests: {}, {}.",
            paper("transmit", "tx-gbit-per-s"),
            paper("receive", "rx-gbit-per-s")
        )),
    ]
}

fn table_3(report: &Report) -> Vec<Block> {
    let mut table = Table::new(
        "LUT4 of an ECP5 with those that are RAM, and LUT6 of UltraScale+ where they were counted: the two are not to be compared. The \
         paper's are LUT6 of a Virtex-6. The widest beat times the clock is what a unit takes at most.",
        &["circuit", "LUT4", "LUT6", "FF", "block RAM", "bits per cycle x clock = Gbit/s"],
    );
    let paper = |name: &str, lut: &str, ff: &str, bram: &str| {
        let cells = [name, NONE, lut, ff, bram, NONE];
        cells.map(str::to_owned).to_vec()
    };
    let number = |key: &str| format!("{:.0}", figure(key));
    table.rows.push(paper(
        "paper: engine, Rx buffer of 4 KB",
        &number("table3-lut"),
        &number("table3-ff"),
        &number("table3-bram-4k"),
    ));
    table.rows.push(paper(
        "paper: engine, Rx buffer of 64 KB",
        &number("table3-lut"),
        &number("table3-ff"),
        &number("table3-bram-64k"),
    ));
    table.rows.push(paper("paper: CRC unit", &number("crc-unit-lut"), NONE, &number("crc-unit-bram")));
    let row = |(name, area): (&String, &Area)| {
        let rate = match area.bits {
            0 => format!("{:.1} MHz", area.mhz_median),
            bits => gbit(bits.into(), Some(area.mhz_median * 1e6)),
        };
        vec![
            name.clone(),
            area.lut4_with_ram.to_string(),
            area.lut6().map_or(NONE.to_owned(), |luts| luts.to_string()),
            area.ff.to_string(),
            area.bram.to_string(),
            rate,
        ]
    };
    table.rows.extend(report.area.iter().map(row));
    vec![
        Block::Heading(1, "Table 3: area and clock".to_owned()),
        Block::Table(table),
        Block::Text(
            "crc_unit has a polynomial that is exchanged at run time, crc64 its loader as well; crc_wide has one that is built in; \
             crc_wide_of_4, crc_wide_1024 and crc_wide_2048 are the same with one lookup table between two registers. Tables of \
             crc_unit and crc64 have 16 words on an ECP5 and 32 on UltraScale+, as many as the RAM of a lookup table. rx_checked is the \
             packet controller with the Rx buffer behind it: everything before the command table. tx is the transmit module without that table, with room for 512 R2Ts; its Tx buffer is that of the paper at 64 bit, and 32 KiB at 512."
                .to_owned(),
        ),
    ]
}

fn figure_12(report: &Report) -> Vec<Block> {
    let mut table = Table::new(
        format!(
            "Instructions of one command in the client's process, all its threads, without the kernel's; counted by callgrind over a session \
             with our target, {} commands under way at a time, without a copy for the caller. With the engine: without what the engine in \
             software executes, which hardware would.",
            report.host.depth,
        ),
        &["command", "digests", "host, no engine", "host, engine", "times fewer", "inside the engine"],
    );
    let whole = |row: Option<&HostRow>, value: fn(&HostRow) -> f64| {
        row.map_or(NONE.to_owned(), |row| format!("{:.0}", value(row)))
    };
    for row in report.host.rows.iter().filter(|row| row.engine == "none") {
        let engine = report.host(&row.rw, row.bytes, row.digests, "software");
        table.rows.push(vec![
            format!("{} of {}", row.rw, text::bytes(row.bytes)),
            if row.digests { "on" } else { "off" }.to_owned(),
            whole(Some(row), HostRow::host),
            whole(engine, HostRow::host),
            engine.map_or(NONE.to_owned(), |engine| format!("{:.2}", row.host() / engine.host())),
            whole(engine, |row| row.engine_instructions),
        ]);
    }
    let counted = match report.host.counted_on.as_str() {
        "" => "Not counted yet: `cargo xtask bench offload --write` does it.".to_owned(),
        machine => format!("Counted on {machine}"),
    };
    let percent = |key: &str| format!("{:.0} %", 100.0 * figure(key));
    vec![
        Block::Heading(1, "Figure 12: what the host does".to_owned()),
        Block::Table(table),
        Block::Text(format!(
            "The paper has shares of a core instead, with writes of 128 B to 128 KB: {} to {} in software, {} with the T110 ({:.2} Gbit/s, \
             digests on: {} and {:.2} Gbit/s), about {} with its engine. A share of a core needs hardware that runs; what can be counted here \
             is what the host has to execute. callgrind has no AVX-512, so the CRC without an engine may be another kernel than outside. {counted}",
            percent("fig12-software-cpu-least"),
            percent("fig12-software-cpu-most"),
            percent("fig12-t110-cpu-off"),
            figure("fig12-t110-gbit-per-s-off"),
            percent("fig12-t110-cpu-on"),
            figure("fig12-t110-gbit-per-s-on"),
            percent("fig12-engine-cpu"),
        )),
    ]
}

fn reconfiguration(report: &Report) -> Vec<Block> {
    let mut table = Table::new(
        "A new polynomial. The paper reconfigures the part; ours fills tables in RAM.",
        &["way", "cycles", "s"],
    );
    let seconds = |name: &str, cycles: String, s: f64| vec![name.to_owned(), cycles, format!("{s:.2e}")];
    table.rows.push(seconds("paper: the whole part", NONE.to_owned(), figure("reconfiguration-full")));
    table.rows.push(seconds("paper: a part of it", NONE.to_owned(), figure("reconfiguration-partial")));
    let cycles = report.cycles.set_poly;
    let clocks =
        [("here, at the paper's clock", Some(figure("clock"))), ("here, at its own", report.clock("crc64"))];
    for (name, hz) in clocks {
        if let Some(hz) = hz {
            table.rows.push(seconds(name, cycles.to_string(), f64::from(cycles) / hz));
        }
    }
    vec![Block::Heading(1, "Reconfiguration".to_owned()), Block::Table(table)]
}

fn placements(report: &Report) -> Vec<Block> {
    let mut table = Table::new("Clock of each placement, MHz.", &["circuit", "MHz"]);
    let clocks = |area: &Area| area.mhz.iter().map(|mhz| format!("{mhz:.1}")).collect::<Vec<_>>().join(", ");
    table.rows.extend(report.area.iter().map(|(name, area)| vec![name.clone(), clocks(area)]));
    vec![Block::Heading(1, "Placements".to_owned()), Block::Table(table)]
}
