//! Tests of the simulator: seeds hold, the same seed gives the same run, and deliberate defects are found.
#![forbid(unsafe_code)]

use iscsi_core::chap::ChapAlgorithm;
use sim::load::Mix;
use sim::plan::{Fault, MS, Plan, SECOND};
use sim::watch::Part;
use sim::{Run, Sabotage, run_seed};

#[test]
fn every_invariant_holds_on_the_first_seeds() {
    for seed in 0..200 {
        let report = run_seed(seed);
        assert_eq!(report.broken, None, "cargo xtask sim --seed {seed} --transcript");
        // An initiator that vanishes before its logical unit is identified has done nothing.
        let faults = Plan::from_seed(seed).faults;
        let vanishes = faults.iter().any(|(_, fault)| matches!(fault, Fault::Vanish { .. }));
        assert!(
            report.done > 0 || report.losses.gave_up > 0 || vanishes,
            "seed {seed} did nothing: {faults:?} {report:?}"
        );
    }
}

#[test]
fn the_same_seed_is_the_same_run_to_the_last_byte() {
    for seed in [3, 17, 56, 99] {
        let run = || Run::new(Plan::from_seed(seed), true, Sabotage::None).finish();
        let (one, other) = (run(), run());
        assert_eq!(one.transcript, other.transcript);
        assert_eq!((one.sum, one.virtual_ns, one.bytes), (other.sum, other.virtual_ns, other.bytes));
        assert_eq!(one.sum, run_seed(seed).sum, "the transcript changes nothing");
    }
}

#[test]
fn seeds_choose_how_commands_are_spread() {
    let chosen = |seed| Plan::from_seed(seed).initiators[0].scheduling;
    let all: std::collections::HashSet<String> = (0..100).map(|seed| format!("{:?}", chosen(seed))).collect();
    assert_eq!(all.len(), 3, "{all:?}");
}

/// A plan without its own faults, with many writes, flushes and reads.
fn busy(seed: u64) -> Plan {
    let mut plan = Plan::from_seed(seed);
    plan.faults.clear();
    for initiator in &mut plan.initiators {
        initiator.load.operations = 300;
        initiator.load.mix.writes = 40;
        initiator.load.mix.flushes = 10;
    }
    plan
}

fn found(sabotage: Sabotage, change: impl Fn(&mut Plan)) -> Vec<String> {
    let found = (0..20).filter_map(|seed| {
        let mut plan = busy(seed);
        change(&mut plan);
        Run::new(plan, false, sabotage).finish().broken
    });
    found.collect()
}

#[test]
fn a_store_that_forgets_a_write_is_found() {
    let found = found(Sabotage::LostWrite, |_| {});
    // Often the block is written again before it is read.
    assert!(found.len() >= 5, "found in {} of 20 seeds", found.len());
    assert!(found.iter().any(|what| what.contains("a write was lost")), "{found:?}");
}

#[test]
fn operations_that_are_given_up_although_there_was_time_are_found() {
    let found = found(Sabotage::DeadStore, |_| {});
    assert!(found.iter().any(|what| what.contains("given up although there was time")), "{found:?}");
    // Many plans have the time. Plans in which operations were given up do not: links that lose segments, and windows of one command for
    // many commands on a link with a round trip of 80 ms.
    assert!((0..200).filter(|seed| Plan::from_seed(*seed).has_time()).count() > 40);
    for seed in [6_089_201, 6_112_840, 7_113_485, 504_281] {
        assert!(!Plan::from_seed(seed).has_time(), "seed {seed}");
    }
}

#[test]
fn a_store_that_flips_a_bit_is_found() {
    let found = found(Sabotage::RottenByte, |_| {});
    assert!(found.iter().any(|what| what.contains("a wrong byte was delivered")), "{found:?}");
}

#[test]
fn a_flush_that_is_not_done_is_found_by_a_power_cut() {
    let found = found(Sabotage::LostFlush, |plan| {
        let restart = Fault::Restart { down_ns: MS, power: true, silent: false, other: false };
        let cut = |at: u64| (at * MS, restart.clone());
        plan.faults = [50, 150, 400, 1000].map(cut).to_vec();
    });
    assert!(found.iter().any(|what| what.contains("has taken what was flushed")), "{found:?}");
}

#[test]
fn what_a_power_cut_takes_is_told_before_the_next_flush_ends() {
    let cuts = |plan: &mut Plan| {
        let restart = Fault::Restart { down_ns: MS, power: true, silent: false, other: false };
        plan.faults = [50, 150, 400, 1000].map(|at| (at * MS, restart.clone())).to_vec();
    };
    assert_eq!(found(Sabotage::None, cuts), Vec::<String>::new());
    let found = found(Sabotage::UntoldLoss, cuts);
    assert!(found.len() >= 5, "found in {} of 20 seeds", found.len());
    assert!(
        found.iter().all(|what| what.contains("nobody was told what a power cut has taken")),
        "{found:?}"
    );
}

#[test]
fn nothing_goes_to_another_volume_or_comes_from_it() {
    let swap = |plan: &mut Plan| {
        let restart = Fault::Restart { down_ns: MS, power: false, silent: false, other: true };
        plan.faults = [100, 500, 2000].map(|at| (at * MS, restart.clone())).to_vec();
    };
    assert_eq!(found(Sabotage::None, swap), Vec::<String>::new());
    let found = found(Sabotage::SameName, swap);
    assert!(found.len() >= 5, "found in {} of 20 seeds", found.len());
    let seen = ["a write went to another volume", "a write was lost", "found other data"];
    assert!(found.iter().all(|what| seen.iter().any(|seen| what.contains(seen))), "{found:?}");
}

#[test]
fn a_compare_and_write_that_is_carried_out_twice_is_found() {
    let found = found(Sabotage::Resubmission, |plan| {
        plan.latencies.job_ns = (5 * MS, 30 * MS);
        for bounds in plan.initiators.iter_mut().map(|i| &mut i.bounds).chain([&mut plan.bounds]) {
            (bounds.error_recovery_level, bounds.max_connections, bounds.default_time2wait_s) = (0, 1, 0);
        }
        for initiator in &mut plan.initiators {
            (initiator.load.pause_ns, initiator.load.functions, initiator.connections) = (0, 0, 1);
            (initiator.load.mix.swaps, initiator.load.mix.writes, initiator.load.depth) = (40, 10, 4);
        }
        // Each reset ends a session.
        plan.faults = (1..40).map(|n| (n * 50 * MS, Fault::Reset { which: n as u32, only: None })).collect();
    });
    assert!(found.iter().any(|what| what.contains("found other data than version")), "{found:?}");
}

#[test]
fn a_login_with_a_wrong_secret_is_found() {
    let chap = |plan: &mut Plan| {
        plan.chap = vec![ChapAlgorithm::Md5];
        for initiator in &mut plan.initiators {
            (initiator.chap.mutual, initiator.chap.wrong_first) = (false, true);
        }
    };
    let stolen = found(Sabotage::StolenAccounts, chap);
    assert!(stolen.iter().all(|what| what.contains("has logged in with a wrong secret")), "{stolen:?}");
    assert_eq!((stolen.len(), found(Sabotage::None, chap)), (20, Vec::new()));
}

#[test]
fn a_bit_that_flips_without_a_digest_is_found() {
    let found = found(Sabotage::FlipWithoutDigest, |plan| {
        let off = iscsi_core::params::DigestPolicy::Off;
        for bounds in plan.initiators.iter_mut().map(|i| &mut i.bounds).chain([&mut plan.bounds]) {
            (bounds.header_digest, bounds.data_digest) = (off, off);
        }
        let flip = |n: u64| (n * 10 * MS, Fault::Flip { which: 0, side: (n % 2) as usize, part: Part::Data });
        plan.faults = (1..40).map(flip).collect();
    });
    assert!(found.iter().any(|what| what.contains("wrong")), "{found:?}");
}

#[test]
fn a_bit_that_flips_under_a_digest_harms_nobody() {
    let mut flips = 0;
    for seed in 0..20 {
        let mut plan = busy(seed);
        let on = iscsi_core::params::DigestPolicy::Required;
        for bounds in plan.initiators.iter_mut().map(|i| &mut i.bounds).chain([&mut plan.bounds]) {
            (bounds.header_digest, bounds.data_digest) = (on, on);
        }
        let part = |n: u64| if n.is_multiple_of(3) { Part::Header } else { Part::Data };
        let flip =
            |n: u64| (n * 20 * MS, Fault::Flip { which: n as u32, side: (n % 2) as usize, part: part(n) });
        plan.faults = (1..20).map(flip).collect();
        let report = Run::new(plan, false, Sabotage::None).finish();
        assert_eq!(report.broken, None, "seed {seed}");
        flips += report.flips;
    }
    assert!(flips > 50, "only {flips} bits flipped");
}

#[test]
fn an_initiator_that_vanishes_with_a_thousand_tasks_in_flight_leaves_nothing_for_hours() {
    const HOURS: u64 = 3 * 3600 * SECOND;
    let mut plan =
        (0..).map(busy).find(|plan| plan.initiators.len() == 2).expect("half of all seeds have several");
    plan.queue_depth = 1024;
    plan.blocks += 100_000;
    plan.placement = blockstore::Placement::Offload;
    plan.latencies.job_ns = (100 * MS, 300 * MS);
    let (first, other) = plan.initiators.split_at_mut(1);
    let (vanishing, staying) = (&mut first[0].load, &mut other[0].load);
    vanishing.own = plan.blocks - 100_000..plan.blocks;
    (vanishing.operations, vanishing.depth, vanishing.max_blocks, vanishing.pause_ns) = (20_000, 1000, 1, 0);
    vanishing.mix = Mix { writes: 50, swaps: 0, flushes: 0 };
    // The other initiator continues to work, now and then, for hours.
    (staying.operations, staying.pause_ns) = (300, HOURS / 60);
    plan.faults = vec![(2 * SECOND, Fault::Vanish { which: 0 }), (HOURS, Fault::Loss { which: 1, ppm: 0 })];
    let report = Run::new(plan, true, Sabotage::None).finish();
    assert_eq!(report.broken, None);
    let gone = report.transcript.iter().any(|line| line.contains("is gone, with 1000 operations"));
    assert!(gone, "a thousand tasks were in flight");
    assert!(report.virtual_ns >= HOURS);
}

/// The content of a documentation file.
fn documented(name: &str) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/").to_owned() + name;
    std::fs::read_to_string(path).expect("the documentation is there")
}

#[test]
fn the_transcript_of_a_recovery_is_what_happens() {
    let page = sim::recovery::page().expect("every invariant holds");
    assert!(page == documented("recovery-transcript.md"), "cargo xtask sim recovery --write");
    for step in ["SnackRequest", "event=ConnectionDrop", "function=TaskReassign"] {
        assert!(page.contains(step), "the page shows {step}");
    }
}

/// Over the air, where a run is short; with losses and without.
#[test]
fn the_table_of_connections_is_what_is_measured() {
    use sim::table::{CONNECTIONS, Mean, Row, WORKS};
    let table = documented("mcs-table.txt");
    for (work, loss_ppm) in [(WORKS[4], 10_000), (WORKS[5], 0)] {
        let row = Row { work, round_trip_us: 100, loss_ppm };
        let lines = table.lines().skip_while(|line| *line != work.name()).skip(2);
        let start = format!("{:>8.1} {:>7.2} ", 0.1, f64::from(loss_ppm) / 1e4);
        let line =
            lines.into_iter().find_map(|line| line.strip_prefix(&start)).expect("the table has the line");
        let numbers: Vec<f64> =
            line.split([' ', '±', '+', '-']).filter_map(|number| number.parse().ok()).collect();
        assert_eq!(numbers.len(), 2 * CONNECTIONS.len(), "{line}");
        for (documented, connections) in numbers.chunks(2).zip(CONNECTIONS) {
            let runs: Vec<f64> =
                (1..=10).map(|seed| row.measure(connections, seed).expect("every invariant holds")).collect();
            let mean = Mean::of(&runs);
            let most = 1.5 * (mean.by + documented[1]) + 0.01 * documented[0];
            assert!(
                (mean.value - documented[0]).abs() <= most,
                "{row:?}, {connections} connections: {mean:?}, {documented:?}; cargo xtask sim table --write"
            );
        }
    }
}

#[test]
fn a_lossy_connection_carries_what_tcp_carries() {
    // 1.22 MSS / (RTT sqrt(p)): Mathis and others, 1997.
    for (round_trip_us, loss_ppm) in [(10_000, 1_000), (10_000, 10_000), (40_000, 1_000)] {
        let row = sim::table::Row { work: sim::table::WORKS[0], round_trip_us, loss_ppm };
        let runs = (1..=3).map(|seed| row.measure(1, seed).expect("every invariant holds"));
        let measured = runs.sum::<f64>() / 3.0;
        let loss = f64::from(loss_ppm) / 1e6;
        let bound = 1.22 * 1448.0 / (round_trip_us as f64 * loss.sqrt());
        let ratio = measured / bound;
        assert!((0.3..1.5).contains(&ratio), "{measured:.2} MB/s, the formula says {bound:.2}");
    }
}

#[test]
fn data_travels_in_any_order_in_many_plans() {
    let any_order = |seed: &u64| {
        let plan = Plan::from_seed(*seed);
        let no = |bounds: &iscsi_core::params::Bounds| {
            !bounds.data_in_order.pdus && !bounds.data_in_order.sequences && bounds.error_recovery_level == 0
        };
        let drawn = plan.send_order() != iscsi_core::send_order::SendOrder::InPlace;
        drawn && no(&plan.bounds) && plan.initiators.iter().any(|i| no(&i.bounds) && i.recovery == 0)
    };
    let seeds: Vec<u64> = (0..200).filter(any_order).collect();
    assert!(seeds.len() >= 20, "{seeds:?}");
    for seed in seeds {
        assert_eq!(run_seed(seed).broken, None, "cargo xtask sim --seed {seed} --transcript");
    }
}
