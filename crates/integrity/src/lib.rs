//! Checksums of storage and network data. Every digest that Intact computes comes from this crate. So does the memory of volumes whose
//! blocks are copied and digested, because the placement of data decides how fast it is read.
//!
//! - CRC32C (RFC 7143 section 13.1, the iSCSI header and data digests) of runs, of a header, and of each block together with the whole.
//!   There are kernels for instruction sets and for particular processors; the choice is made once, at run time.
//! - The fused copy, which digests what it copies. It also gathers from and scatters to lists with elements that the digest need not cover.
//! - Combination of digests into the digest of the concatenation, also of many block digests at once.
//! - Memory for blocks on huge pages ([`arena`], on Linux with `std`).
//! - The guards of protection information ([`t10`], IP checksum, CRC64-NVMe); the T10 guard also in one pass with copy and CRC32C.
//! - A hint to fetch memory before it is needed ([`Prefetch`]).
//!
//! Without the default feature `std` the crate is `no_std`, and the target features it was compiled for decide the kernel. No checksum
//! allocates.
//!
//! Invariants:
//! - Every kernel returns the same value as the bit-wise reference for every input; kernels differ only in speed.
//! - Constants of the fold and of the tables are derived by `const fn` from the polynomial, never pasted.
//! - A fused copy writes exactly `dst`, and its digest is that of the bytes written.
//!
//! Which bytes a digest covers, and what to do when it does not match, is left to the protocol.

#![cfg_attr(not(any(feature = "std", test)), no_std)]
#![warn(unreachable_pub)]

#[cfg(all(feature = "std", target_os = "linux"))]
pub mod arena;
mod combine;
mod copy;
mod crc32c;
mod crc64;
mod detect;
mod gf2;
mod prefetch;
mod protected;
mod sum;
pub mod t10;
#[cfg(feature = "unstable")]
pub mod unstable;

pub use combine::{CombineBy, crc32c_combine, crc32c_combine_blocks};
pub use copy::{LengthMismatch, Store, copy_crc32c};
pub use copy::{Segment, SegmentMut, copy_crc32c_gather, copy_crc32c_scatter};
pub use copy::{copy_crc32c_blocks, copy_crc32c_sum, crc32c_blocks};
pub use crc32c::kernels;
pub use crc32c::{Choice, KERNEL_VARIABLE, choice as kernel_choice};
pub use crc32c::{crc32c, crc32c_append, crc32c_header, kernel_name};
pub use crc64::{crc64_nvme, crc64_nvme_append};
pub use prefetch::Prefetch;
pub use protected::{copy_crc32c_t10, crc32c_t10, insert_crc32c_t10, strip_crc32c_t10};
pub use sum::ip_checksum;
pub use t10::{crc16_t10dif, crc16_t10dif_append};
