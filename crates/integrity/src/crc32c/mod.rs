//! CRC32C: the digest of RFC 7143 section 13.1, and the choice of the kernel that computes it.
//!
//! The public interface uses *finished* form throughout: values include the initial all-ones and the final complement,
//! the digest of nothing is 0, and [`crc32c_append`] continues from such a value.
//!
//! Wire order: the digest word of a PDU is the finished value in little-endian bytes, so `crc32c(&[0;
//! 32]).to_le_bytes()` is `aa 36 91 8a`, as printed in the examples of RFC 7143 appendix A.4.

#[cfg(target_arch = "aarch64")]
pub(crate) mod aarch64;
mod bitwise;
mod choice;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod interleaved;
pub mod kernels;
mod portable;
mod slicing8;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86_64;

pub(crate) use choice::active;
pub use choice::{Choice, KERNEL_VARIABLE, choice};

/// The CRC32C of `data`, in finished form. On the wire: `.to_le_bytes()`.
///
/// ```
/// assert_eq!(integrity::crc32c(b"123456789"), 0xe306_9283);
/// assert_eq!(integrity::crc32c(&[0; 32]).to_le_bytes(), [0xaa, 0x36, 0x91, 0x8a]);
/// ```
#[inline]
pub fn crc32c(data: &[u8]) -> u32 {
    crc32c_append(0, data)
}

/// Continues `crc`, the CRC32C of the preceding bytes, over `data`; both values are finished.
///
/// ```
/// let whole = integrity::crc32c(b"123456789");
/// assert_eq!(integrity::crc32c_append(integrity::crc32c(b"1234"), b"56789"), whole);
/// ```
//= rfc7143 13.1 DIG-02
#[inline]
pub fn crc32c_append(crc: u32, data: &[u8]) -> u32 {
    // SAFETY: `active` gives only kernels that this machine can run.
    unsafe { active().append_unchecked(crc, data) }
}

/// The CRC32C of a header of 48 bytes (the basic header segment of every PDU, RFC 7143 section 11.2.1), finished.
///
/// Equal to [`crc32c`], without the choice by length.
///
/// ```
/// assert_eq!(integrity::crc32c_header(&[7; 48]), integrity::crc32c(&[7; 48]));
/// ```
#[inline]
pub fn crc32c_header(header: &[u8; HEADER_BYTES]) -> u32 {
    // SAFETY: `active` gives only kernels that this machine can run.
    unsafe { active().header_unchecked(header) }
}

/// Length of the header of [`crc32c_header`], bytes.
pub(crate) const HEADER_BYTES: usize = 48;

/// The name of the kernel in use, for logs and figures: for example `avx512-vpclmulqdq` or `slicing-8`.
pub fn kernel_name() -> &'static str {
    active().name()
}
