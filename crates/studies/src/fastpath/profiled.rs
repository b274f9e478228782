//! One way of a PDU and nothing else, for a profiler that counts instructions.

use clap::ValueEnum;

use super::caches::{Purge, Regime};
use super::contenders::{self, SARWATE, SLICING_8};
use super::marks::Unmarked;
use super::sandbox::{Sandbox, Shape, Way, Work};
use super::turns::{LARGE_PDU_BYTES, MARKER_INTERVAL_BYTES, SEGMENT_BYTES};
use harness::Failure;

/// PDUs received, of 8 KiB.
const RECEIVED: usize = 256;

/// The work on each PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Profiled {
    /// Header and session: neither copy nor CRC
    Protocol,
    /// The same for commands of eight PDUs
    ProtocolOfEight,
    /// One PDU, header and session, and the copy
    Copy,
    /// Copy, then Sarwate's CRC
    Sarwate,
    /// Copy, then Slicing-by-8
    Slicing8,
    /// Slicing-by-8 interleaved with the copy
    Slicing8Interleaved,
    /// Copy, then the kernel in use
    InUse,
    /// The kernel in use interleaved with the copy
    InUseInterleaved,
    /// The same, with a marker every 2048 bytes
    InUseMarkers,
    /// As the product does it
    AsBuilt,
}

impl Profiled {
    fn setting(self) -> (Way, Option<&'static str>, bool, bool) {
        match self {
            Self::Protocol | Self::ProtocolOfEight => (Way::Layered, None, false, false),
            Self::Copy => (Way::Layered, None, false, true),
            Self::Sarwate => (Way::Layered, Some(SARWATE), true, true),
            Self::Slicing8 => (Way::Layered, Some(SLICING_8), true, true),
            Self::Slicing8Interleaved => (Way::Interleaved, Some(SLICING_8), true, true),
            Self::InUse => (Way::Layered, None, true, true),
            Self::InUseInterleaved | Self::InUseMarkers => (Way::Interleaved, None, true, true),
            Self::AsBuilt => (Way::AsBuilt, None, true, true),
        }
    }

    /// Receives the PDUs; returns how many.
    ///
    /// # Errors
    /// This machine lacks instructions, or a byte was wrong.
    pub fn run(self) -> Result<usize, Failure> {
        let (way, name, crc, copy) = self.setting();
        let contenders = contenders::all();
        let contender = match name {
            Some(name) => contenders.iter().find(|contender| contender.name == name),
            None => contenders.last(),
        };
        let Some(contender) = contender else {
            let what = format!("this machine lacks the instructions of {}", name.unwrap_or_default());
            return Err(Failure::Failed(what));
        };
        let pdus = if self == Profiled::ProtocolOfEight { 8 } else { 1 };
        let shape = Shape {
            connections: 1,
            commands: RECEIVED / pdus,
            pdus,
            pdu_bytes: LARGE_PDU_BYTES,
            segment_bytes: SEGMENT_BYTES[0],
            in_order: true,
            markers: (self == Profiled::InUseMarkers).then_some(MARKER_INTERVAL_BYTES),
        };
        let mut sandbox = Sandbox::new(shape, true);
        sandbox.load();
        let work = Work { way, contender, crc, copy };
        sandbox.receive_all(&work, Regime::Warm, &Purge::of(0), &mut Unmarked)?;
        Ok(RECEIVED)
    }
}
