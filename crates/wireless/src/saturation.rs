//! Stations that always have a frame to send: the case that [`crate::contention`] predicts, measured on the
//! [`crate::medium`].

use crate::mac::Mac;
use crate::medium::{AfterCollision, Counts, Frame, Medium, Setup};

/// A run with saturated stations.
#[derive(Clone, Copy, Debug)]
pub struct Saturation {
    /// Frames and their times.
    pub mac: Mac,
    /// n: the number of stations.
    pub stations: usize,
    /// Payload of a packet, bytes.
    pub payload_bytes: u32,
    /// The packet with its headers, bytes.
    pub packet_bytes: u32,
    /// P_e.
    pub p_error: f64,
    /// How long stations wait that have heard a collision.
    pub after_collision: AfterCollision,
    /// Duration, in virtual time.
    pub seconds: f64,
    /// Seed of all randomness.
    pub seed: u64,
}

/// A run, and the fingerprint that it has in every build and on every machine: another one means another model.
pub const REFERENCE: (Saturation, u64) = (
    Saturation {
        mac: Mac::B,
        stations: 5,
        payload_bytes: 1472,
        packet_bytes: 1500,
        p_error: 0.0,
        after_collision: AfterCollision::Difs,
        seconds: 20.0,
        seed: 42,
    },
    13_419_508_254_844_520_535,
);

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Saturated {
    /// Payload that arrived, Mbit/s.
    pub mbit_s: f64,
    /// P_f: the share of transmissions that failed.
    pub p_failure: f64,
    /// What happened.
    pub counts: Counts,
    /// Frames that each station delivered.
    pub by_station: Vec<u64>,
    /// A fingerprint: equal for equal runs, on every machine and in every build.
    pub hash: u64,
}

impl Saturation {
    /// Runs the simulation.
    pub fn run(&self) -> Saturated {
        let mut medium = Medium::new(Setup {
            mac: self.mac,
            stations: self.stations,
            queue_frames: 1,
            p_error: self.p_error,
            after_collision: self.after_collision,
            seed: self.seed,
        });
        let frame = Frame { id: 0, bytes: self.packet_bytes };
        for station in 0..self.stations {
            medium.offer(0, station, frame);
            medium.offer(0, station, frame);
        }
        let end_ns = (self.seconds * 1e9) as u64;
        let mut by_station = vec![0; self.stations];
        // FNV-1a over the numbers: not a digest, but a fingerprint that distinguishes runs.
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        let mut mix = |number: u64| hash = (hash ^ number).wrapping_mul(0x100_0000_01b3);
        while let Some(at) = medium.next_ns().filter(|at| *at <= end_ns) {
            if let (_, Some(outcome)) = medium.advance(at) {
                by_station[outcome.station] += u64::from(outcome.delivered);
                medium.offer(at, outcome.station, frame);
                mix(outcome.at_ns);
                mix(outcome.station as u64 * 16 + u64::from(outcome.tries));
            }
        }
        let counts = medium.counts();
        let failed = counts.transmissions - counts.delivered.min(counts.transmissions);
        Saturated {
            mbit_s: counts.delivered as f64 * 8.0 * f64::from(self.payload_bytes) / self.seconds / 1e6,
            p_failure: failed as f64 / counts.transmissions.max(1) as f64,
            counts,
            by_station,
            hash,
        }
    }
}
