//! The scenarios of `crates/offload`, which every engine must pass, in the circuit at both widths. What the circuit does not have is
//! listed with its reason, and must still fail with the words that are listed: so the list cannot grow old, and hides nothing else.
#![forbid(unsafe_code)]

#[path = "../../offload/tests/common/mod.rs"]
mod common;
#[path = "../../offload/tests/common/scenarios/mod.rs"]
#[macro_use]
mod scenarios;

use std::panic::{AssertUnwindSafe, catch_unwind};

use offload_rtl::{RtlEngine, Width};

/// A scenario that the circuit does not pass.
struct LeftOut {
    name: &'static str,
    why: &'static str,
    /// What it says when it fails.
    says: &'static str,
}

/// What neither width has.
const NOT_SUPPORTED: &[LeftOut] = &[
    LeftOut {
        name: "a_full_ring_of_raw_pdus_stops_the_stream_until_slots_are_released",
        why: "while a PDU waits for a slot the circuit has taken more of the stream than one PDU",
        says: "one waits in the receive buffer",
    },
    LeftOut {
        name: "a_connection_of_a_target_is_refused",
        why: "the circuit has index 0 only, and says INVALID of another before it looks at the role",
        says: "of another role",
    },
];
/// What the form of 512 bit does not have beyond that.
const NOT_AT_512_BIT: &[LeftOut] = &[LeftOut {
    name: "a_polynomial_is_exchanged_between_two_pdus",
    why: "the polynomial is a parameter of the wide CRC unit",
    says: "the polynomial is exchanged",
}];

fn run(name: &str, more: &[LeftOut], scenario: fn()) {
    let Some(left_out) = NOT_SUPPORTED.iter().chain(more).find(|other| other.name == name) else {
        return scenario();
    };
    println!("left out: {name}: {}", left_out.why);
    let said = catch_unwind(AssertUnwindSafe(scenario))
        .expect_err("the circuit passes it now: take it off the list");
    let said = said.downcast_ref::<String>().map(String::as_str).or(said.downcast_ref::<&str>().copied());
    assert!(
        said.is_some_and(|said| said.contains(left_out.says)),
        "it fails otherwise than listed: {said:?}"
    );
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
