//! CSCD descriptors: which unit is the source or the destination of a copy (SPC-4 6.4.5).

use super::with_unit;
use crate::config::LuConfig;
use crate::logical_unit::LogicalUnit;
use crate::sense::{Asc, SenseData};

/// Bytes of a descriptor.
pub(super) const BYTES: usize = 32;
/// Type code of the identification descriptor.
pub(super) const IDENTIFICATION: u8 = 0xe4;

const BINARY: u8 = 1;
const ASCII: u8 = 2;
const T10_VENDOR: u8 = 1;
const NAA: u8 = 3;
const UUID: u8 = 0xa;

/// A side of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cscd {
    pub(super) lun: u16,
    pub(super) block_bytes: u32,
}

impl Cscd {
    pub(super) fn of(lu: &LogicalUnit) -> Self {
        Self { lun: lu.config().lun, block_bytes: lu.block_bytes() }
    }
}

/// The unit that `descriptor`, at byte `at` of the parameter list, identifies.
//= spc4 6.4.5.2 CPY-01 CPY-02
pub(super) fn parse(lu: &LogicalUnit, descriptor: &[u8], at: usize) -> Result<Cscd, SenseData> {
    let wrong =
        |offset: usize, bit| SenseData::parameter_field(u16::try_from(at + offset).unwrap_or(u16::MAX), bit);
    if descriptor[0] != IDENTIFICATION {
        return Err(SenseData::illegal(Asc::UNSUPPORTED_CSCD_DESCRIPTOR_TYPE));
    }
    // LU ID TYPE applies to descriptors with a LU IDENTIFIER, and this one has none. NUL: there is no device, which is only
    // useful for stream segments.
    if descriptor[1] & 0x20 != 0 {
        return Err(SenseData::illegal(Asc::UNSUPPORTED_CSCD_DESCRIPTOR_TYPE));
    }
    if descriptor[1] & 0x1f != 0 {
        return Err(SenseData::new(crate::SenseKey::CopyAborted, Asc::INCORRECT_COPY_TARGET_DEVICE_TYPE));
    }
    if descriptor[5] & 0x30 != 0 {
        return Err(wrong(5, Some(5)));
    }
    let length = usize::from(descriptor[7]);
    if length == 0 || length > 20 {
        return Err(wrong(7, None));
    }
    let (code_set, kind, value) = (descriptor[4] & 0x0f, descriptor[5] & 0x0f, &descriptor[8..8 + length]);
    let is_it = |config: &LuConfig| match (code_set, kind) {
        (BINARY, NAA) => config.identity.naa.to_bytes() == value,
        (BINARY, UUID) => {
            config.identity.uuid.is_some_and(|uuid| crate::vpd::uuid_identifier(&uuid) == value)
        }
        // Compare the whole name: the start of a name may match another unit too, and a copy to that unit destroys its data.
        (ASCII, T10_VENDOR) => crate::vpd::vendor_identifier(config) == value,
        _ => false,
    };
    let mut found = is_it(lu.config()).then(|| Cscd::of(lu));
    if found.is_none()
        && let Some(neighbours) = lu.neighbours()
    {
        neighbours.each(&mut |unit| {
            found = is_it(unit.config()).then(|| Cscd::of(unit));
            found.is_none()
        });
    }
    let cscd = found
        .ok_or_else(|| SenseData::new(crate::SenseKey::CopyAborted, Asc::COPY_TARGET_DEVICE_NOT_REACHABLE))?;
    let block_bytes = u32::from_be_bytes([0, descriptor[29], descriptor[30], descriptor[31]]);
    if block_bytes != 0 && block_bytes != cscd.block_bytes {
        return Err(wrong(29, None));
    }
    Ok(cscd)
}

/// An identification descriptor of a unit.
pub(super) fn descriptor(config: &LuConfig) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let naa = config.identity.naa.to_bytes();
    (bytes[0], bytes[4], bytes[5], bytes[7]) = (IDENTIFICATION, BINARY, NAA, naa.len() as u8);
    bytes[8..8 + naa.len()].copy_from_slice(&naa);
    bytes[29..].copy_from_slice(&config.medium.block_bytes.to_be_bytes()[1..]);
    bytes
}

/// Whether `lun` is still a unit of the target with blocks of this length.
pub(super) fn is_there(lu: &LogicalUnit, cscd: Cscd) -> bool {
    with_unit(lu, cscd.lun, |unit| unit.block_bytes() == cscd.block_bytes).unwrap_or(false)
}
