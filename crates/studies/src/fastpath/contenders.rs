//! The CRCs that take turns in the sandbox, each as a pass over data that were copied and as a copy that digests.

use integrity::kernels::{self, Kernel};
use integrity::{LengthMismatch, SegmentMut, Store};
use published::{Algorithm, Interleaved};

use crate::source::Origin;

/// Names of the papers' algorithms, slowest first.
const PAPERS: [&str; 5] =
    ["crc32c-bitwise", "crc32c-byte", "crc32c-slicing-4", "crc32c-slicing-8", "crc32c-instruction"];
/// The kernel that exists to be compared with; the paper's bit-wise algorithm stands in its place.
const REFERENCE: &str = "bitwise";

/// Sarwate's algorithm, one byte per step, which the 2005 paper compares with.
pub(super) const SARWATE: &str = "crc32c-byte";
/// The 2005 paper's own algorithm.
pub(super) const SLICING_8: &str = "crc32c-slicing-8";

/// One implementation of CRC32C.
#[derive(Clone, Copy)]
pub(super) struct Contender {
    /// A short, stable name.
    pub name: &'static str,
    pub title: &'static str,
    pub origin: Origin,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Paper(&'static Algorithm, &'static Interleaved),
    Kernel(&'static Kernel),
    /// The kernel in use, through the doors that the product uses.
    InUse,
}

/// All that this machine can run. The kernel in use is the last.
pub(super) fn all() -> Vec<Contender> {
    let paper = |name: &&'static str| {
        let (algorithm, copy) = (published::find(name)?, published::interleaved(name)?);
        let (title, origin) = (algorithm.title, Origin::Paper);
        algorithm.available().then_some(Contender { name, title, origin, kind: Kind::Paper(algorithm, copy) })
    };
    let kernel = |kernel: &'static Kernel| {
        let (name, title) = match kernel.name() == integrity::kernel_name() {
            true => (kernel.name(), "the kernel in use"),
            false => (kernel.name(), "a kernel for other machines"),
        };
        let kind = if kernel.name() == integrity::kernel_name() { Kind::InUse } else { Kind::Kernel(kernel) };
        Contender { name, title, origin: Origin::Intact, kind }
    };
    let mut kernels: Vec<Contender> =
        kernels::available().filter(|found| found.name() != REFERENCE).map(kernel).collect();
    kernels.sort_by_key(Contender::is_in_use);
    PAPERS.iter().filter_map(paper).chain(kernels).collect()
}

impl Contender {
    /// Whether the product uses it on this machine.
    pub(super) fn is_in_use(&self) -> bool {
        matches!(self.kind, Kind::InUse)
    }

    /// The CRC32C of `data`.
    #[inline]
    pub(super) fn digest(&self, data: &[u8]) -> u32 {
        match self.kind {
            Kind::Paper(algorithm, _) => algorithm.checksum(data) as u32,
            Kind::Kernel(kernel) => kernel.append(0, data),
            Kind::InUse => integrity::crc32c(data),
        }
    }

    /// Copies `source` to the elements of `list` and continues `crc` over those that count (section 3.3 of the paper).
    ///
    /// # Errors
    /// If the list has not the length of `source`.
    #[inline]
    pub(super) fn scatter(
        &self,
        crc: u32,
        list: &mut [SegmentMut<'_>],
        source: &[u8],
    ) -> Result<u32, LengthMismatch> {
        if let Kind::InUse = self.kind {
            return integrity::copy_crc32c_scatter(crc, list, source, Store::Temporal);
        }
        let (mut crc, mut rest) = (crc, source);
        for element in list {
            let Some((from, after)) = rest.split_at_checked(element.bytes.len()) else {
                return Err(LengthMismatch {
                    buffer: "source",
                    needed: element.bytes.len(),
                    given: rest.len(),
                });
            };
            match (element.counts, self.kind) {
                (false, _) => element.bytes.copy_from_slice(from),
                (true, Kind::Paper(_, copy)) => crc = copy.copy(crc, element.bytes, from)?,
                (true, Kind::Kernel(kernel)) => {
                    crc = kernel.copy(crc, element.bytes, from, Store::Temporal)?;
                }
                (true, Kind::InUse) => {
                    crc = integrity::copy_crc32c(crc, element.bytes, from, Store::Temporal)?
                }
            }
            rest = after;
        }
        Ok(crc)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contender_has_both_forms_and_they_agree() {
        let all = all();
        assert!(all.last().is_some_and(Contender::is_in_use));
        assert_eq!(all.iter().filter(|contender| contender.is_in_use()).count(), 1);
        let source: Vec<u8> = (0..3000u32).map(|n| (n * 7) as u8).collect();
        let counted: Vec<u8> = source[..1000].iter().chain(&source[1008..]).copied().collect();
        for contender in all {
            let (mut first, mut marker, mut second) = (vec![0; 1000], [0; 8], vec![0; 1992]);
            let mut list = [
                SegmentMut { bytes: &mut first, counts: true },
                SegmentMut { bytes: &mut marker, counts: false },
                SegmentMut { bytes: &mut second, counts: true },
            ];
            let crc = contender.scatter(0, &mut list, &source).unwrap();
            assert_eq!(crc, contender.digest(&counted), "{}", contender.name);
            assert_eq!(crc, integrity::crc32c(&counted), "{}", contender.name);
            assert_eq!([&first[..], &marker, &second].concat(), source, "{}", contender.name);
        }
    }
}
