//! How many exchanges of 802.11 the discrete-event model performs per second on this machine: `cargo bench -p intact-sim --bench exchanges`.
//!
//! An exchange is a data frame with its acknowledgement. The models have no clock, so the measurement is here. The bar is 10^6 for the
//! medium alone.
#![forbid(unsafe_code)]

use std::time::Instant;

use wireless::link::LinkSetup;
use wireless::mac::Mac;
use wireless::medium::AfterCollision;
use wireless::saturation::Saturation;
use wireless::stream::Stream;

/// Turns per row; the best counts.
const TURNS: usize = 5;
/// Virtual time of a run, seconds.
const SECONDS: f64 = 400.0;

fn row(name: &str, run: impl Fn() -> u64) {
    let turn = || {
        let began = Instant::now();
        let exchanges = run();
        exchanges as f64 / began.elapsed().as_secs_f64()
    };
    let best = (0..TURNS).map(|_| turn()).fold(0.0, f64::max);
    println!("{name:<40} {:>8.2} million exchanges/s", best / 1e6);
}

fn main() {
    for stations in [1, 2, 10] {
        let saturation = Saturation {
            mac: Mac::B,
            stations,
            payload_bytes: 1472,
            packet_bytes: 1500,
            p_error: 0.0,
            after_collision: AfterCollision::Difs,
            seconds: SECONDS,
            seed: 1,
        };
        row(&format!("medium, {stations} saturated stations"), || saturation.run().counts.delivered);
    }
    for connections in [1, 8] {
        let stream = Stream { link: LinkSetup::of(Mac::B), connections, seconds: SECONDS, seed: 1 };
        row(&format!("TCP over the medium, {connections} connections"), || stream.run().counts.delivered);
    }
}
