//! A recovery at ErrorRecoveryLevel 2 as a page of documentation: the transcript of a small run, with a remark where each phase begins.

use std::time::Duration;

use blockstore::Placement;
use initiator::Scheduling;
use iscsi_core::params::{Bounds, Bursts, DigestPolicy};

use crate::load::{LoadPlan, Mix};
use crate::network::PathConfig;
use crate::plan::{Fault, InitiatorPlan, MS, Plan, US};
use crate::run::Run;
use crate::sabotage::Sabotage;
use crate::watch::Part;
use crate::world::Latencies;

/// Seed of the run shown.
const SEED: u64 = 7;

/// Remarks, each inserted at the first line that contains the given words.
const REMARKS: &[(&str, &str)] = &[
    (
        "tsih=0 cid=0",
        "The first connection logs in; TSIH 0 asks for a new session. Both sides offer what they can, the result is ErrorRecoveryLevel 2.",
    ),
    (
        "cid=1 itt=0 T csg",
        "The second connection joins the session by its TSIH. Commands are numbered over both: watch cmd_sn.",
    ),
    (
        "flips (byte",
        "Between the checksum of TCP and the stack a bit flips. The digest shows it to the receiver, who drops the PDU and nothing else.",
    ),
    (
        "SnackRequest",
        "Recovery within a command and within a connection (level 1): what was dropped is asked for by its number, and only that.",
    ),
    ("is reset for", "Now one connection is cut."),
    (
        "event=ConnectionDrop",
        "The target tells the session, over the connection that is left, for how long it keeps what belongs to the lost one.",
    ),
    (
        "reason=RemoveConnectionForRecovery",
        "Recovery of a connection (level 2): the initiator takes the lost one out of the session, and keeps its tasks.",
    ),
    ("reason=CloseConnection", "The lost connection is taken out of the session."),
    (
        "response=Success time2wait",
        "The tasks are ready: nobody need wait (Time2Wait 0), although DefaultTime2Wait is a second.",
    ),
    (
        "function=TaskReassign",
        "Each task that was under way there is given to the connection that is left. It goes on where it was: exp_data_sn says what has already arrived.",
    ),
];

fn plan() -> Plan {
    let bounds = Bounds {
        header_digest: DigestPolicy::Required,
        data_digest: DigestPolicy::Required,
        max_recv_data_segment_length: 4096,
        bursts: Bursts { max_burst_length: 8192, first_burst_length: 4096, ..Bounds::default().bursts },
        max_connections: 2,
        error_recovery_level: 2,
        default_time2wait_s: 1,
        default_time2retain_s: 20,
        ..Bounds::default()
    };
    let load = LoadPlan {
        writer: 1,
        own: 0..256,
        shared: 0..0,
        operations: 12,
        depth: 4,
        max_blocks: 16,
        exact: true,
        functions: 0,
        mix: Mix { writes: 40, ..Mix::default() },
        timeout: Duration::from_secs(30),
        pause_ns: 0,
        watches: false,
    };
    let path = PathConfig { delay_ns: MS, ..PathConfig::default() };
    let initiator = InitiatorPlan {
        bounds: bounds.clone(),
        ping: Duration::from_secs(5),
        // So that both connections carry something.
        scheduling: Scheduling::LeastOutstandingBytes,
        ..InitiatorPlan::steady(path, 2, load)
    };
    let mut plan = Plan::steady(SEED, 256, bounds, vec![initiator]);
    plan.placement = Placement::Offload;
    plan.latencies = Latencies { notice_ns: 10 * US, job_ns: (MS, 4 * MS) };
    plan.queue_depth = 32;
    plan.faults = vec![
        (9 * MS, Fault::Flip { which: 0, side: 1, part: Part::Data }),
        (15_500 * US, Fault::Reset { which: 1, only: None }),
    ];
    plan
}

/// The page.
///
/// # Errors
/// The invariant that did not hold.
pub fn page() -> Result<String, String> {
    let report = Run::new(plan(), true, Sabotage::None).finish();
    if let Some(what) = report.broken {
        return Err(what);
    }
    let mut page = String::from(HEAD);
    let mut said = vec![false; REMARKS.len()];
    page.push_str("```text\n");
    for line in &report.transcript {
        for ((word, remark), said) in REMARKS.iter().zip(&mut said) {
            if line.contains(word) && !std::mem::replace(said, true) {
                page.push_str(&format!("```\n\n{remark}\n\n```text\n"));
            }
        }
        page.extend(line.chars().take(180));
        page.push('\n');
    }
    page.push_str("```\n\n");
    page.push_str(&format!(
        "All {} operations ended well; what was read was compared with what was written, byte by byte. {} PDUs travelled in\n{:.1} ms.\n",
        report.done,
        report.pdus,
        report.virtual_ns as f64 / 1e6
    ));
    Ok(page.replace("```text\n```\n\n", ""))
}

const HEAD: &str = "# A recovery, PDU by PDU

This is what the real target and the real initiator say to each other in the simulator, while a bit flips and then a
connection of two is cut. The caller of the initiator sees neither. Written by `cargo xtask sim recovery --write`; a
test keeps it as the code is.

`I1>` is sent by the initiator, `T1<` by the target, `!!` is what goes wrong, `--` is what happens to connections. The
first column is virtual time in seconds. `cid` is the connection. Rules: RFC 7143 clause 7 (error handling and
recovery), 11.5 (TASK REASSIGN), 11.14 (logout for recovery), 11.16 (SNACK).

";
