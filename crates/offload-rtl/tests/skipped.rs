//! Says that the circuits are not tested, where the feature `verilator` is off. A test harness would swallow the words.
#![forbid(unsafe_code)]

fn main() {
    if cfg!(not(feature = "verilator")) {
        eprintln!(
            "SKIPPED: the circuits of rtl/ are not tested. To test them: scripts/setup.sh rtl && make rtl"
        );
    }
}
