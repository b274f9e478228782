//! One sender: equations 3.1 to 3.7, and the net throughput of TCP.

use wireless::mac::{AckBackoff, AckForm, Mac, Rates};

use crate::wireless::report::{Row, Section};
use harness::chart::{Chart, Role, Scale, short};
use harness::document::Table;

/// IP and TCP headers as the thesis counts them, bytes.
const THESIS_HEADERS: f64 = 40.0;
/// Rates of 802.11b, Mbit/s.
pub(super) const RATES: [f64; 4] = [1.0, 2.0, 5.5, 11.0];
/// Payloads that are plotted, bytes; the largest MTU of the thesis' card is 2260.
const PAYLOADS: [f64; 8] = [64.0, 128.0, 256.0, 512.0, 1024.0, 1460.0, 2048.0, 2220.0];

fn mbit_s(mac: &Mac, payload: f64, form: AckForm) -> f64 {
    mac.throughput_mbit_s(payload, payload + THESIS_HEADERS, form)
}

/// Equations 3.1 to 3.7.
pub(super) fn section() -> Section {
    let mut section = Section::new(
        "One sender (3.1 to 3.7)",
        "Table 3.2: slot 20, SIFS 10, DIFS 50 µs, CW 31, preamble 144 and PHY header 48 µs, 34 bytes of MAC, 14 bytes of \
         acknowledgement, 1 µs of propagation, 11 Mbit/s. The rate of acknowledgements is not in it; 2 Mbit/s where nothing else is said.",
    );
    section.rows = rows();
    section.tables.push(by_rate_of_acknowledgements());
    section.charts.push(plot());
    section
}

fn rows() -> Vec<Row> {
    let mac = Mac::B;
    let (printed, standard) = (mac.ack_us(AckForm::Printed), mac.ack_us(AckForm::Standard));
    let parts = mac.t_difs_us + mac.backoff_us() + mac.data_us(1500.0) + mac.t_sifs_us + standard;
    let cycle = mac.cycle_us(1500.0, AckForm::Standard);
    vec![
        Row::holds("3.1", "mean backoff", "µs", mac.backoff_us(), mac.backoff_us() == 310.0),
        Row::holds(
            "3.2",
            "data frame of a packet of 1500 bytes, as the sum of its parts",
            "µs",
            mac.data_us(1500.0),
            {
                let sum = mac.t_p_us + mac.t_phy_us + 8.0 * mac.l_mac_bytes / 11.0 + 8.0 * 1500.0 / 11.0;
                (mac.data_us(1500.0) - sum).abs() < 1e-9
            },
        ),
        Row::holds(
            "3.3",
            "acknowledgement of 14 bytes",
            "µs",
            standard,
            standard == 192.0 + 8.0 * 14.0 / 2.0,
        ),
        Row::holds(
            "3.4",
            "an exchange, as the sum of its parts",
            "µs",
            cycle,
            (cycle - parts - 2.0 * mac.tau_us).abs() < 1e-9,
        ),
        Row::holds(
            "3.5",
            "data frame of a packet of 2260 bytes",
            "µs",
            mac.data_us(2260.0),
            mac.data_us(2260.0) > mac.data_us(1500.0),
        ),
        Row::holds("3.6", "acknowledgement as printed", "µs", printed, printed == standard).note(format!(
            "L_MAC is added to an acknowledgement that is 14 bytes in all: {} µs too many",
            short(printed - standard)
        )),
        Row::against(
            "3.7",
            "MAC throughput, 1460 bytes in 1500, 11 Mbit/s, as printed, R_ACK 1",
            "Mbit/s",
            mbit_s(&mac.with_r_ack(1.0), 1460.0, AckForm::Printed),
            "mac-mbit-s",
            0.0,
        )
        .note("R_ACK is not in Table 3.2 and decides; the table below has all rates"),
        Row::against(
            "3.7",
            "the same with 14 bytes and R_ACK 2, or as printed with R_ACK 11",
            "Mbit/s",
            mbit_s(&mac, 1460.0, AckForm::Standard),
            "mac-mbit-s",
            0.0,
        ),
    ]
}

fn by_rate_of_acknowledgements() -> Table {
    let mac = Mac::B;
    let mut by_ack = Table::new(
        "Equation 3.7 by the rate of acknowledgements, Mbit/s; the thesis: approximately 6.1.",
        &["R_ACK, Mbit/s", "as printed (34 + 14 bytes)", "14 bytes"],
    );
    for r_ack in RATES {
        let of = |form| format!("{:.3}", mbit_s(&mac.with_r_ack(r_ack), 1460.0, form));
        by_ack.rows.push(vec![r_ack.to_string(), of(AckForm::Printed), of(AckForm::Standard)]);
    }
    by_ack
}

fn plot() -> Chart {
    let mac = Mac::B;
    let mut plot = Chart::new(
        "mac-throughput",
        "Equation 3.7: MAC throughput by payload",
        "802.11b, acknowledgements of 14 bytes at 2 Mbit/s (at 1 where data are); 802.11g without 802.11b stations",
        ("payload of a packet, bytes", Scale::Doublings),
        ("Mbit/s", Scale::Decades),
    );
    for (hue, rate) in RATES.into_iter().enumerate() {
        let rates = Rates { data: rate, ack: rate.min(2.0), ..mac.rates };
        let mac = Mac { rates, ..mac };
        let points = PAYLOADS.map(|payload| (payload, mbit_s(&mac, payload, AckForm::Standard)));
        plot = plot.line(format!("{rate} Mbit/s"), Role::Measured, hue, points);
    }
    let g = PAYLOADS.map(|payload| (payload, mbit_s(&Mac::G, payload, AckForm::Standard)));
    plot.line("802.11g, 54 Mbit/s", Role::Measured, RATES.len(), g)
}

/// Section 3.2.4.
pub(super) fn tcp_section() -> Section {
    let tcp = |mac: Mac, mtu, backoff| mac.tcp_throughput_mbit_s(mtu, backoff);
    let (serial, overlapped) =
        (tcp(Mac::B, 1500.0, AckBackoff::Serial), tcp(Mac::B, 1500.0, AckBackoff::Overlapped));
    let mac = mbit_s(&Mac::B, 1460.0, AckForm::Standard);
    let mut section = Section::new(
        "TCP's net throughput (3.2.4)",
        "The thesis takes 15 to 20 % off the MAC throughput and cites somebody else for it. Here the frames of TCP's \
         acknowledgements are counted: one for every two segments, with timestamps, each an exchange of its own on the same medium. \
         Its backoff costs time of its own, or runs while the sender of data counts down as well.",
    );
    section.rows = vec![
        Row::against("3.2.4", "TCP, backoffs one after the other", "Mbit/s", serial, "tcp-mbit-s", 0.005),
        Row::against("3.2.4", "TCP, backoffs overlapped", "Mbit/s", overlapped, "tcp-mbit-s", 0.01),
        Row::against(
            "3.2.4",
            "share of the MAC throughput, one after the other",
            "",
            serial / mac,
            "tcp-share-of-mac",
            0.0,
        ),
        Row::against(
            "3.2.4",
            "share of the MAC throughput, overlapped",
            "",
            overlapped / mac,
            "tcp-share-of-mac",
            0.0,
        )
        .note("derived: less is lost than the borrowed share says"),
    ];
    let mut table =
        Table::new("TCP by MTU and link, Mbit/s.", &["link", "MTU", "one after the other", "overlapped"]);
    for (name, mac) in
        [("802.11b, R_ACK 1", Mac::B.with_r_ack(1.0)), ("802.11b, R_ACK 2", Mac::B), ("802.11g", Mac::G)]
    {
        for mtu in [576.0, 1500.0, 2260.0] {
            let of = |backoff| format!("{:.2}", tcp(mac, mtu, backoff));
            let row = [name.to_owned(), mtu.to_string(), of(AckBackoff::Serial), of(AckBackoff::Overlapped)];
            table.rows.push(row.to_vec());
        }
    }
    section.tables.push(table);
    section
}
