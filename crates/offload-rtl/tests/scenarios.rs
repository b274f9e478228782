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
];
/// What the form of 512 bit does not have beyond that.
const NOT_AT_512_BIT: &[(&str, &str)] =
    &[("a_polynomial_is_exchanged_between_two_pdus", "the polynomial is a parameter of the wide CRC unit")];

fn run(name: &str, more: &[(&str, &str)], scenario: fn()) {
    let left_out = NOT_SUPPORTED.iter().chain(more).find(|(other, _)| *other == name);
    let Some((_, why)) = left_out else { return scenario() };
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
                run(stringify!($name), NOT_AT_512_BIT, scenario);
            })*
        }
        mod at_64_bit {
            use super::*;
            $(#[test]
            fn $name() {
                let scenario = || scenarios::$file::$name(|| RtlEngine::new(Width::Bits64, 18));
                run(stringify!($name), &[], scenario);
            })*
        }
    };
}
every_scenario!(tests);
