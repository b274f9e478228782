//! Random events for a target session; the rules are in `support/session_driver/mod.rs`.

#[path = "support/policy.rs"]
#[allow(dead_code, reason = "shared with the transcripts")]
mod policy;
#[path = "support/session_driver/mod.rs"]
mod session_driver;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    // covers: NUM-05, NUM-09, NUM-11, RSP-01, R2T-01, R2T-02, R2T-05, DAT-01, DAT-02, DAT-08, TMF-01, REJ-01, NUM-07
    #[test]
    fn no_run_breaks_a_rule(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
        session_driver::play(&bytes);
    }
}
