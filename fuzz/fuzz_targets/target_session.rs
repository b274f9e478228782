//! Initiator, device server, operator and clock against a target session, all by the fuzzer's choice. The rules that no run may
//! break are those of the random test of iscsi-core, whose driver this is.

#![no_main]

#[path = "../../crates/iscsi-core/tests/support/policy.rs"]
#[allow(dead_code)]
mod policy;
#[path = "../../crates/iscsi-core/tests/support/session_driver/mod.rs"]
mod session_driver;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| session_driver::play(input));
