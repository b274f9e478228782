//! The scenarios of `crates/offload`, which every engine must pass, in the circuit at both widths. What the circuit does not have is
//! listed with its reason, and must still fail: so the list cannot grow old.
#![forbid(unsafe_code)]

#[path = "../../offload/tests/common/mod.rs"]
mod common;
#[path = "../../offload/tests/common/scenarios/mod.rs"]
#[macro_use]
mod scenarios;

use std::panic::{AssertUnwindSafe, catch_unwind};

use offload_rtl::{RtlEngine, Width};

const LEVEL: &str = "the circuit has ErrorRecoveryLevel 0 only";
/// What neither width has.
const NOT_SUPPORTED: &[(&str, &str)] = &[
    (
        "a_full_ring_of_raw_pdus_stops_the_stream_until_slots_are_released",
        "while a PDU waits for a slot the circuit has taken more of the stream than one PDU",
    ),
    (
        "descriptors_that_cannot_be_executed_are_answered_with_the_reason",
        "the circuit has index 0 only, and says INVALID of another before it looks at the role",
    ),
    ("a_polynomial_is_exchanged_between_two_pdus", "the polynomial is a parameter of the circuit"),
    ("every_lost_group_is_requested_once_after_its_delay", LEVEL),
    ("what_arrives_within_the_delay_is_not_requested", LEVEL),
    ("bad_data_digests_in_a_row_are_one_group_and_a_bad_replica_is_another", LEVEL),
    ("a_lost_status_is_requested_and_acknowledged_only_when_it_is_there", LEVEL),
    ("exp_data_sn_shows_data_that_was_lost_at_the_end", LEVEL),
    ("a_lost_r2t_is_requested", LEVEL),
    ("a_dataack_waits_for_the_data_before_it", LEVEL),
];

fn run(name: &str, scenario: fn()) {
    let Some((_, why)) = NOT_SUPPORTED.iter().find(|(other, _)| *other == name) else { return scenario() };
    println!("left out: {name}: {why}");
    let result = catch_unwind(AssertUnwindSafe(scenario));
    assert!(result.is_err(), "the circuit passes it now: take it off the list");
}

macro_rules! tests {
    ($($file:ident::$name:ident,)*) => {
        mod at_512_bit {
            use super::*;
            $(#[test]
            fn $name() {
                let scenario = || scenarios::$file::$name(|| RtlEngine::new(Width::Bits512, 18));
                run(stringify!($name), scenario);
            })*
        }
        mod at_64_bit {
            use super::*;
            $(#[test]
            fn $name() {
                let scenario = || scenarios::$file::$name(|| RtlEngine::new(Width::Bits64, 18));
                run(stringify!($name), scenario);
            })*
        }
    };
}
every_scenario!(tests);
