//! The scenarios that every engine must pass, in the engine in software.

mod common;
#[path = "common/scenarios/mod.rs"]
#[macro_use]
mod scenarios;

use offload::SoftwareEngine;

macro_rules! tests {
    ($($file:ident::$name:ident,)*) => {
        $(#[test]
        fn $name() {
            scenarios::$file::$name(SoftwareEngine::new);
        })*
    };
}
every_scenario!(tests);
