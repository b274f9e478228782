//! The time of a command: hops (3.4), iSCSI (3.16, 3.17), NFS (3.6).

use wireless::chain::{Chain, goodput_mbit_s};
use wireless::delay::{NfsCache, NfsRead, ReadDelay, ReadTransfer};
use wireless::mac::{AckBackoff, Mac};

use crate::wireless::report::{Row, Section};
use harness::chart::{Chart, Role, Scale};
use harness::document::Table;

/// Sizes of a read, KiB.
const SIZES_KIB: [u32; 7] = [2, 4, 8, 16, 32, 64, 128];
/// All of T_delay, µs: the one number that is fitted, to a read of 2 KiB of the thesis' Figure 6.6 (a seek and processors of 2003).
pub(super) const FITTED_DELAY_US: f64 = 4000.0;
/// The link of the thesis' machines: acknowledgements at 1 Mbit/s.
pub(super) const LINK: Mac = Mac::B.with_r_ack(1.0);

/// A read's frames on [`LINK`].
pub(super) fn transfer(backoff: AckBackoff) -> ReadTransfer {
    ReadTransfer { mac: LINK, mtu_bytes: 1500, pdu_bytes: 8192, backoff }
}

fn mb_s(bytes: u32, command_us: f64) -> f64 {
    f64::from(bytes) / command_us
}

/// Section 3.4.
pub(super) fn hops_section() -> Section {
    let chain = Chain::FIGURE_3_3;
    let one = Mac::B.tcp_throughput_mbit_s(1500.0, AckBackoff::Overlapped);
    let bound = |hops: u32| one / f64::from(Chain { hops, ..chain }.reuse_distance().min(hops));
    let mut section = Section::new(
        "Several hops (3.4)",
        "A packet crosses the medium once for each hop, so stations that all hear each other carry 1/h over h hops. In the chain of \
         Figure 3.3 (200 m apart, interference and sensing within 550 m) a link and the fourth after it may send at once.",
    );
    section.rows = vec![
        Row::holds("3.4.1", "goodput of 2 hops over that of one", "", goodput_mbit_s(one, 2) / one, true),
        Row::holds(
            "3.4.2",
            "D is a hidden terminal for A to B (1: yes)",
            "",
            f64::from(u8::from(chain.is_hidden(0, 3))),
            chain.is_hidden(0, 3),
        ),
        Row::holds(
            "3.4.2",
            "A to B and E to F may send at once (1: yes)",
            "",
            f64::from(u8::from(chain.may_send_at_once(&[0, 4]))),
            chain.may_send_at_once(&[0, 4]),
        ),
        Row::holds(
            "3.4.2",
            "{A, D, G} may send at once (1: yes)",
            "",
            f64::from(u8::from(chain.may_send_at_once(&[0, 3, 6]))),
            chain.may_send_at_once(&[0, 3, 6]),
        )
        .note("D is 400 m from B, within 550 m, as the thesis' next sentence says"),
    ];
    section.charts.push(
        Chart::new(
            "hops",
            "TCP's goodput by hops",
            "802.11b, MTU 1500",
            ("hops", Scale::Linear),
            ("Mbit/s", Scale::Linear),
        )
        .line("one cell: 1/h", Role::Measured, 0, (1..=8).map(|h| (f64::from(h), goodput_mbit_s(one, h))))
        .line(
            "chain of Figure 3.3, bound",
            Role::Limit,
            1,
            (1..=8).map(|h| (f64::from(h), bound(h))),
        ),
    );
    section
}

/// Equations 3.16 and 3.17.
pub(super) fn section() -> Section {
    let delay = ReadDelay { disk_us: FITTED_DELAY_US, ..ReadDelay::default() };
    let command = |kib: u32, backoff| delay.command_us(transfer(backoff).read_us(kib << 10, false));
    let at = |kib: u32| {
        mb_s(kib << 10, f64::midpoint(command(kib, AckBackoff::Serial), command(kib, AckBackoff::Overlapped)))
    };
    let mut section = Section::new(
        "The time of an iSCSI command (3.16, 3.17)",
        "T_transfer is the frames of a read at depth 1: command, Data-In with the status in the last one, TCP's acknowledgements; \
         acknowledgements of 802.11 at 1 Mbit/s. T_delay is not in the thesis; one number for all of it, 4 ms, is fitted to its read of \
         2 KiB and kept for every size and depth.",
    );
    section.rows = vec![
        Row::against("3.16", "reads of 2 KiB, depth 1", "MB/s", at(2), "6.6-2k", 0.10).note("fitted"),
        Row::against("3.16", "reads of 4 KiB, depth 1", "1/s", 1e6 * at(4) / 4096.0, "6.18-1", 0.10),
        Row::against("3.16", "reads of 128 KiB, depth 1", "MB/s", at(128), "6.6-128k", 0.10),
        Row::holds(
            "3.17",
            "T_delay is the sum of its three terms; delay 3 is 0 where the status rides in the last Data-In",
            "µs",
            delay.delay_us(),
            delay.delay_us() == delay.delay1_us() + delay.delay2_us() + delay.status_us,
        ),
        Row::out_of_reach(
            "3.17",
            "delay 1 and delay 2 apart",
            "the thesis gives a number for neither, and its machines of 2003 are gone; their sum is fitted",
        ),
    ];
    let mut table = Table::new(
        "A read at depth 1: time on the link and in all, ms, and MB/s.",
        &[
            "KiB",
            "link, one after the other",
            "link, overlapped",
            "command, ms",
            "MB/s",
            "share of T_delay, %",
        ],
    );
    for kib in SIZES_KIB {
        let link = |backoff| transfer(backoff).read_us(kib << 10, false) / 1000.0;
        let all = f64::from(kib << 10) / at(kib) / 1000.0;
        let cells = [link(AckBackoff::Serial), link(AckBackoff::Overlapped), all];
        let mut row: Vec<String> =
            std::iter::once(kib.to_string()).chain(cells.map(|ms| format!("{ms:.2}"))).collect();
        row.extend([format!("{:.3}", at(kib)), format!("{:.0}", FITTED_DELAY_US / all / 10.0)]);
        table.rows.push(row);
    }
    section.tables.push(table);
    let bound = LINK.tcp_throughput_mbit_s(1500.0, AckBackoff::Overlapped) / 8.0;
    section.charts.push(
        Chart::new(
            "command-time",
            "Equation 3.16: reads at depth 1",
            "802.11b, R_ACK 1, T_delay 4 ms",
            ("KiB of a read", Scale::Doublings),
            ("MB/s", Scale::Linear),
        )
        .line("3.16", Role::Measured, 0, SIZES_KIB.map(|kib| (f64::from(kib), at(kib))))
        .line("TCP", Role::Limit, 1, SIZES_KIB.map(|kib| (f64::from(kib), bound))),
    );
    section
}

/// Section 3.6.
pub(super) fn nfs_section() -> Section {
    let mut section = Section::new(
        "NFS (3.6)",
        "Round trips of a file that is read: an ACCESS for each folder, LOOKUP and ACCESS, and its READs. Each waits for the answer \
         before, so that it costs a round trip of small frames and T_delay; iSCSI reads the same blocks with commands alone. 3 folders, \
         READs of 8 KiB, depth 1.",
    );
    let transfer = transfer(AckBackoff::Serial);
    let small = transfer.read_us(100, false) + FITTED_DELAY_US;
    let mut table = Table::new(
        "A file that is read, ms.",
        &["KiB", "round trips, cold", "NFS, cold", "NFS, 4 s old", "NFS, 31 s old", "iSCSI", "NFS / iSCSI"],
    );
    for kib in [4u32, 32, 128, 1024] {
        let file = NfsRead { folders: 3, file_bytes: u64::from(kib) << 10, rsize_bytes: 8192, depth: 1 };
        let reads = file.reads() as f64;
        let each = transfer.read_us((kib << 10).min(8192), false) + FITTED_DELAY_US;
        let iscsi = reads * each;
        let others = (file.round_trips(NfsCache::Cold) as f64 - reads) * small;
        let again = |age| file.time_us(NfsCache::AgeS(age), small, 0.0) / 1000.0;
        let times = [(iscsi + others) / 1000.0, again(4), again(31), iscsi / 1000.0];
        let mut row = vec![kib.to_string(), file.round_trips(NfsCache::Cold).to_string()];
        row.extend(times.map(|ms| format!("{ms:.1}")));
        row.push(format!("{:.2}", (iscsi + others) / iscsi));
        table.rows.push(row);
    }
    section.tables.push(table);
    section
}
