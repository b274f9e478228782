//! Figures 6.4 and 6.5: iSCSI against NFS version 3, each by the same client (QEMU), with servers in userspace.

use std::io;

use super::programs::{Load, Need, Ran, Served, ganesha, libiscsi, libnfs, our_target};
use super::{Live, missing};
use crate::wireless::lab::bench::B;
use crate::wireless::report::{Row, Section};
use crate::wireless::stage::Stage;
use harness::chart::{Chart, Role, Scale};
use harness::document::Table;

const NEEDS: [Need; 4] = [
    ("qemu-img", "qemu-utils"),
    ("*qemu/block-nfs.so", "qemu-block-extra"),
    ("ganesha.nfsd", "nfs-ganesha nfs-ganesha-vfs"),
    ("rpcbind", "rpcbind"),
];
const SIZES_KIB: [u32; 6] = [4, 8, 16, 32, 64, 128];
const QUICK_KIB: [u32; 2] = [4, 128];
/// What Figure 6.5 transfers, and the size of one command: what the kernel's NFS of that time used at most.
const FILE_BYTES: f64 = 1e9;
const PIECE_KIB: u32 = 32;

/// Name, server and client of a side.
type Side = (&'static str, fn(&Stage) -> io::Result<Served>, fn(&Stage, &Served, Load) -> io::Result<Ran>);

const SIDES: [Side; 2] = [("iSCSI", our_target, libiscsi), ("NFS", ganesha, libnfs)];

/// Figures 6.4 and 6.5.
pub(super) fn figures(live: &Live) -> Result<Section, String> {
    let mut section = Section::new(
        "Figures 6.4 and 6.5: against NFS",
        "Reads at depth 1 over 802.11b with the lab's latency of 4 ms. Both sides have the same client, `qemu-img bench`: with libiscsi and our \
         target, and with libnfs and NFS-Ganesha (version 3 over TCP, a file in memory). Neither has a cache, so a read of NFS is one READ: \
         what the thesis' kernel did besides (ACCESS, GETATTR, consistency checks) is not here.",
    );
    if let Some(why) = missing("6.4", &NEEDS) {
        section.rows.push(Row::out_of_reach("6.4", "iSCSI over NFS v3, reads of 4 to 128 KiB", &why));
        section.rows.push(Row::out_of_reach("6.5", "time of a file of 1 GB, iSCSI and NFS v3", &why));
        return Ok(section);
    }
    let sizes: &[u32] = if live.quick { &QUICK_KIB } else { &SIZES_KIB };
    let mut table = Table::new("MB/s of reads, one at a time.", &["KiB", "iSCSI", "NFS", "iSCSI / NFS"]);
    let mut lines = [Vec::new(), Vec::new()];
    for &kib in sizes {
        let [iscsi, nfs] = both(live, Load::reads(kib, 1, live.seconds()))?;
        lines[0].push((f64::from(kib), iscsi));
        lines[1].push((f64::from(kib), nfs));
        table.rows.push(vec![
            kib.to_string(),
            format!("{iscsi:.3}"),
            format!("{nfs:.3}"),
            format!("{:.3}", iscsi / nfs),
        ]);
    }
    let ratio = |n: usize| lines[0][n].1 / lines[1][n].1;
    let why = "a READ of NFS costs what one of iSCSI does; theirs went through a kernel's file system, which is not part of this comparison";
    section.rows = vec![
        Row::against("6.4", "reads of 4 KiB, iSCSI over NFS v3", "", ratio(0), "6.4-4k", 0.10).note(why),
        Row::against(
            "6.4",
            "reads of 128 KiB, iSCSI over NFS v3",
            "",
            ratio(sizes.len() - 1),
            "6.4-128k",
            0.10,
        ),
    ];
    section.tables.push(table);
    let [iscsi, nfs] = lines;
    section.charts.push(
        Chart::new(
            "figure-6-4",
            "Figure 6.4: reads by iSCSI and by NFS",
            "802.11b, depth 1, in real time",
            ("KiB of a read", Scale::Doublings),
            ("MB/s", Scale::Linear),
        )
        .line("iSCSI", Role::Measured, 0, iscsi)
        .line("NFS v3", Role::Measured, 1, nfs),
    );
    whole_file(live, &mut section)?;
    Ok(section)
}

/// Throughput of the same load by iSCSI and by NFS.
fn both(live: &Live, load: Load) -> Result<[f64; 2], String> {
    let mut mb_s = [0.0; 2];
    for ((name, server, client), mb_s) in SIDES.into_iter().zip(&mut mb_s) {
        let what = format!("{name}, {} bytes, {}", load.bytes, if load.writes { "write" } else { "read" });
        *mb_s = live.mean(&what, &B, |stage| Ok(client(stage, &server(stage)?, load)?.mb_s))?;
    }
    Ok(mb_s)
}

/// Figure 6.5.
fn whole_file(live: &Live, section: &mut Section) -> Result<(), String> {
    let mut table = Table::new(
        format!(
            "Time of a file of 1 GB by commands of {PIECE_KIB} KiB, one at a time, computed from {} s of it, minutes.",
            live.seconds()
        ),
        &["", "iSCSI", "NFS", "NFS / iSCSI"],
    );
    for (name, writes) in [("read", false), ("written", true)] {
        let [iscsi, nfs] = both(live, Load { writes, ..Load::reads(PIECE_KIB, 1, live.seconds()) })?;
        let minutes = |mb_s: f64| FILE_BYTES / 1e6 / mb_s / 60.0;
        table.rows.push(vec![
            name.to_owned(),
            format!("{:.1}", minutes(iscsi)),
            format!("{:.1}", minutes(nfs)),
            format!("{:.3}", iscsi / nfs),
        ]);
        section.rows.push(Row::holds(
            "6.5",
            &format!("a file of 1 GB {name}: time by NFS over that by iSCSI, above 1"),
            "",
            iscsi / nfs,
            iscsi > nfs,
        ));
    }
    section.tables.push(table);
    Ok(())
}
