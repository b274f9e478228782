//! Stations of 802.11b that always have a packet: their throughput, Mbit/s, as `cargo xtask ns3` compares it with ns-3.
//!
//!     saturation STATIONS SECONDS SEED
#![forbid(unsafe_code)]

use std::process::ExitCode;

use wireless::mac::Mac;
use wireless::medium::AfterCollision;
use wireless::saturation::Saturation;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers = match arguments.as_slice() {
        [stations, seconds, seed] => stations.parse().ok().zip(seconds.parse().ok()).zip(seed.parse().ok()),
        _ => None,
    };
    let Some(((stations, seconds), seed)) = numbers else {
        eprintln!("saturation STATIONS SECONDS SEED");
        return ExitCode::from(2);
    };
    // As in ns3/saturation.cc.
    let mac = Mac { l_llc_bytes: 8.0, ..Mac::B.with_r_ack(11.0) };
    let (payload_bytes, packet_bytes) = (1472, 1500);
    let after_collision = AfterCollision::Difs;
    let saturation = Saturation {
        mac,
        stations,
        payload_bytes,
        packet_bytes,
        p_error: 0.0,
        after_collision,
        seconds,
        seed,
    };
    println!("{}", saturation.run().mbit_s);
    ExitCode::SUCCESS
}
