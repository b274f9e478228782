//! The guard of T10 protection information: CRC16-T10DIF of a run, and of each of many sectors.
//!
//! The guard is a CRC with the polynomial 0x8BB7, an initial register of zeros, no reflection and no final complement
//! (SBC-3 section 4.22.4). It is sent with the high byte first. Between a host and its adapter the cheaper IP checksum
//! may replace it ([`Guard::IpChecksum`]); on the wire and on the medium it is the CRC.
//!
//! Which of the three fields of a tuple are checked, and when, is left to the device server.

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod bitwise;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod folding;
mod gf2;
pub(crate) mod guards;
pub mod kernels;
mod layout;
pub(crate) mod run;
mod slicing16;
#[cfg(target_arch = "x86_64")]
mod x86_64;

pub use crate::protected::{insert, strip};
pub use guards::{Guard, GuardMismatch, check, copy_guards, fill, guards};
pub use layout::{Layout, ShapeError, TUPLE_BYTES, Tuple};

/// The T10 guard of `data`. On the wire: `.to_be_bytes()`.
///
/// ```
/// assert_eq!(integrity::crc16_t10dif(b"123456789"), 0xd0db);
/// ```
#[inline]
pub fn crc16_t10dif(data: &[u8]) -> u16 {
    crc16_t10dif_append(0, data)
}

/// Continues `crc`, the T10 guard of the preceding bytes, over `data`.
///
/// ```
/// use integrity::{crc16_t10dif, crc16_t10dif_append};
/// assert_eq!(crc16_t10dif_append(crc16_t10dif(b"1234"), b"56789"), crc16_t10dif(b"123456789"));
/// ```
#[inline]
pub fn crc16_t10dif_append(crc: u16, data: &[u8]) -> u16 {
    kernels::active().append(crc, data)
}

/// The name of the guard kernel in use, for logs and figures: for example `avx512-vpclmulqdq-gfni` or `slicing-16`.
pub fn kernel_name() -> &'static str {
    kernels::active().name()
}
