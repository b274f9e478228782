//! Damage that TCP's sum does not detect, between two real TCPs: without a CRC it arrives, with one it never does.

mod support;

use std::sync::atomic::Ordering;

use support::{asking, lab, only, states};
use tcp_crc::{Config, Method, State};
use tcp_crc_shim::lab::{Damager, End, Plan, content, sum_errors};

const BYTES: usize = 2 << 20;

/// One transfer through damage, with or without a CRC. Returns the damaged segments, the wrong bytes, and the segments that the server's
/// shim discarded.
fn through_damage(config: Option<Config>, v6: bool) -> Option<[u64; 3]> {
    let (damager, count) = Damager::new(7, 2);
    let lab = lab(Plan { middle: damager.middle(), ..Plan::both(config) })?;
    let transfer = lab.transfer(v6, &content(3, BYTES)).unwrap();
    assert_eq!(transfer.bytes, BYTES as u64);
    for end in [End::Client, End::Server] {
        assert_eq!(sum_errors(lab.host(end)).unwrap(), 0, "TCP's sum is blind to all of it");
    }
    let mut discarded = 0;
    if let Some(config) = config {
        let method = config.offer.methods().next().unwrap();
        assert_eq!(states(&lab), [State::Protected(method); 2]);
        let counters = only(&lab, End::Server).1;
        assert_eq!((counters.bad_sum, counters.missing), (0, 0));
        discarded = counters.bad_crc;
    }
    assert!(count.iter().all(|kind| kind.load(Ordering::Relaxed) > 0), "every kind: {count:?}");
    Some([count.iter().map(|kind| kind.load(Ordering::Relaxed)).sum(), transfer.wrong, discarded])
}

#[test]
fn without_a_crc_wrong_bytes_arrive() {
    for v6 in [false, true] {
        let Some([damaged, wrong, _]) = through_damage(None, v6) else { return };
        assert!(damaged > 100 && wrong > 1000, "{damaged} segments, {wrong} bytes");
    }
}

#[test]
fn with_any_method_every_damaged_segment_is_discarded() {
    for method in Method::ALL {
        for v6 in [false, true] {
            let Some([damaged, wrong, discarded]) = through_damage(Some(asking(&[method])), v6) else {
                return;
            };
            assert!(damaged > 100);
            assert_eq!((wrong, discarded), (0, damaged), "{method:?}, IPv6 {v6}");
        }
    }
}
