//! `intact bench` with the workload of the 2005 paper's Table 2 over TCP: one session, eight connections, 40 commands outstanding, PDUs of
//! 8 KiB in any order, both digests. Our target agrees to all of it; Debian's tgt has sessions of one connection.

use crate::support::{IQN, serve, target};
use serde_json::Value;

const QUERY: &str = "?max_recv_data_segment_length=8192&connections=8&erl=0&scheduling=round_robin\
                     &data_pdu_in_order=no&data_sequence_in_order=no";

/// What a run says that has no error; as many digests were right as the PDUs of its reads have.
#[track_caller]
fn table_2(url: &str) -> Value {
    let load = ["--block", "32k", "--depth", "40", "--time", "0.3s", "--warmup", "0s", "--region", "8m"];
    let how = [&["bench", "--json", "--digests", "on"], &load[..], &[url]].concat();
    let run = crate::bench::json(&crate::common::run(&how))[0].clone();
    assert_eq!(
        (&run["errors"], &run["digests_failed"], &run["session_losses"]),
        (&0.into(), &0.into(), &0.into())
    );
    let reads = run["reads"].as_u64().unwrap();
    // Each read is at least four PDUs, and each of them has two digests.
    let digests = run["digests_verified"].as_u64().unwrap();
    assert!(reads > 0 && digests >= 8 * reads, "{run}");
    run
}

#[test]
fn our_target_agrees_to_all_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let keys = "[target.negotiation]\ndata_pdu_in_order = false\ndata_sequence_in_order = false\nerror_recovery_level = 0";
    let server = serve(directory.path(), 1, &target(IQN, keys, &["ram:8M"]));
    let run = table_2(&format!("iscsi://{}/{IQN}/0{QUERY}", server.portal()));
    assert_eq!((&run["connections"], &run["depth"]), (&8.into(), &40.into()));
}

#[test]
fn tgt_takes_it_with_one_connection() {
    let Some(server) = crate::tgt::Tgt::start() else { return };
    let run = table_2(&server.url("", QUERY));
    assert_eq!((&run["connections"], &run["depth"]), (&1.into(), &40.into()));
}
