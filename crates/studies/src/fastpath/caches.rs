//! The contents of the caches when a PDU arrives.

use std::fs;
use std::hint::black_box;

use integrity::arena::{Arena, CHUNK_BYTES, Chunk};
use serde::Serialize;

const LINE_BYTES: usize = 64;
/// Size of the last cache where the machine reports none, and bounds for what it reports, bytes.
const USUAL_CACHE_BYTES: usize = 32 << 20;
const CACHE_BYTES: std::ops::RangeInclusive<usize> = (4 << 20)..=(128 << 20);

/// The contents of the caches before a PDU is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Regime {
    /// The code and the headers of packets, which TCP has just read; neither contexts, nor data, nor tables.
    Cold,
    /// The same, and the buffer that the data go to.
    BufferWarm,
    /// Everything: the paper's "perfect cache".
    Warm,
}

impl Regime {
    pub(crate) const ALL: [Self; 3] = [Self::Cold, Self::BufferWarm, Self::Warm];

    /// For people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::BufferWarm => "buffer warm",
            Self::Warm => "all warm",
        }
    }
}

/// Empties the caches by reading more memory than they hold. It lies in huge pages where there are any, so that the processor still knows
/// the addresses of what it has lost.
pub(super) struct Purge(Vec<Chunk>);

impl Purge {
    /// For the caches of this machine.
    pub(super) fn new() -> Self {
        Self::of(2 * last_cache_bytes())
    }

    /// For caches of half of `bytes`.
    pub(super) fn of(bytes: usize) -> Self {
        let arena = Arena::new();
        let mut chunks: Vec<Chunk> = (0..bytes / CHUNK_BYTES).filter_map(|_| arena.take()).collect();
        chunks.iter_mut().for_each(|chunk| chunk.bytes_mut().fill(1));
        Self(chunks)
    }

    /// How much is read, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.0.len() * CHUNK_BYTES
    }

    /// Evicts everything from the caches.
    pub(super) fn all(&self) {
        self.0.iter().for_each(|chunk| touch(chunk.bytes()));
    }
}

/// Brings `bytes` into the caches.
pub(super) fn touch(bytes: &[u8]) {
    black_box(bytes.iter().step_by(LINE_BYTES).fold(0u8, |sum, byte| sum.wrapping_add(*byte)));
}

/// The size of the largest cache, bytes.
fn last_cache_bytes() -> usize {
    let size = |index: usize| {
        let text =
            fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size")).ok()?;
        cache_bytes(text.trim())
    };
    let largest = (0..8).filter_map(size).max().unwrap_or(USUAL_CACHE_BYTES);
    largest.clamp(*CACHE_BYTES.start(), *CACHE_BYTES.end())
}

/// A size as Linux prints it: `512K`, `32M`.
fn cache_bytes(text: &str) -> Option<usize> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    digits.parse::<usize>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_caches_are_read_as_linux_prints_them() {
        assert_eq!(cache_bytes("32K"), Some(32 << 10));
        assert_eq!(cache_bytes("32M"), Some(32 << 20));
        assert_eq!(cache_bytes("512"), Some(512));
        assert_eq!((cache_bytes(""), cache_bytes("M"), cache_bytes("x1K")), (None, None, None));
    }

    #[test]
    fn a_purge_reads_more_than_the_last_cache_holds() {
        assert!(Purge::new().bytes() >= 2 * CACHE_BYTES.start());
    }
}
