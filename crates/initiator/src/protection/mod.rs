//! Protection information generated and checked in the caller's process (SBC-3 4.22). A block gets its tuple where it is created
//! and loses it where it is used, so that any damage in between is detected.
//!
//! * [`UnitProtection`] is what a unit reports about itself; [`PiTags`] is what the caller wants in its tuples.
//! * [`Protection`] joins the two: it builds the CDBs, makes [write data](Protection::write_data), and takes [read
//!   data](Protection::take_data) apart or checks it [as it arrives](Protection::arrival). [`Disk`](crate::Disk) uses it when it
//!   is [protected](crate::Disk::protected); code that submits its own commands (a [`Workload`](crate::Workload)) uses it
//!   directly.
//! * [`host`] is for callers with their own tuples: data and tuples in separate buffers, with the CRC or the IP checksum as
//!   guard.
//!
//! Invariants: a guard is computed over the bytes as stored for sending, and checked over the bytes as stored for use. If the
//! check of a block fails, the caller gets nothing of that block.
//!
//! Left out: more than one protection interval in a block (P_I_EXPONENT other than 0 is refused).

mod deliver;
mod disk;
pub(crate) mod error;
pub mod host;
mod scatter;
mod send;

use std::sync::Arc;

use iscsi_core::wire::Lun;
use scsi::{PiField, ProtectionType};

pub use deliver::{Arrival, Checked};
pub(crate) use error::PiErrors;
pub use error::{PiCounters, PiFailure, PiPlace};
pub use integrity::t10::{Guard, TUPLE_BYTES, Tuple};

use crate::cdb::{self, Cdb};
use crate::error::IoError;

/// The value of PROTECT in our commands: tuples are transferred, and the target checks everything it can.
pub(crate) const PROTECT: u8 = 0b001;

/// The protection information of a unit, as it reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitProtection {
    /// How it is formatted.
    pub kind: ProtectionType,
    /// P_I_EXPONENT: a block has two to this power of intervals, each with a tuple.
    pub interval_exponent: u8,
    /// The types with which it could be formatted, 1 to 3 in bits 1 to 3 (SPT of VPD page 86h).
    pub supported: u8,
    /// Whether it checks guards, application tags and reference tags before it accepts or returns data (VPD page 86h).
    pub checks: scsi::Checks,
}

impl UnitProtection {
    /// Takes over PROT_EN, P_TYPE and P_I_EXPONENT from the answer to READ CAPACITY(16).
    pub(crate) fn take_capacity(&mut self, data: &[u8]) {
        let at = |n: usize| data.get(n).copied().unwrap_or(0);
        if at(12) & 1 != 0 {
            // We do not know how to protect a reserved type.
            self.kind = ProtectionType::from_number((at(12) >> 1 & 7) + 1).unwrap_or_default();
            self.interval_exponent = at(13) >> 4;
        } else {
            (self.kind, self.interval_exponent) = (ProtectionType::None, 0);
        }
    }

    /// Takes over SPT, GRD_CHK, APP_CHK and REF_CHK from VPD page 86h of a unit with PROTECT in its standard INQUIRY data:
    /// without PROTECT, SPT means nothing.
    pub(crate) fn take_page_86(&mut self, page: &[u8]) {
        let bits = page.get(4).copied().unwrap_or(0);
        self.supported = match bits >> 3 & 7 {
            0b000 => 0b0010,
            0b001 => 0b0110,
            0b010 => 0b0100,
            0b011 => 0b1010,
            0b100 => 0b1000,
            0b101 => 0b1100,
            0b111 => 0b1110,
            _ => 0,
        };
        self.checks = scsi::Checks { guard: bits & 4 != 0, app_tag: bits & 2 != 0, ref_tag: bits & 1 != 0 };
    }
}

/// What the caller wants in the tuples that are generated for it, and expects in those that it reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PiTags {
    /// Application tag to write. Blocks that are read must have it in the bits set in `app_mask`.
    pub app_tag: u16,
    /// Bits of the application tag that are checked; 0 accepts any tag.
    pub app_mask: u16,
    /// Type 2: the reference tag of block 0 of the unit, counting up with the address; `None`: 0, so that it is the low 32 bits
    /// of the address. Type 3: the reference tag of every block; `None`: 0 is written, and any is accepted. Type 1: must be
    /// `None`; the tag is the low 32 bits of the address.
    pub ref_tag: Option<u32>,
}

/// How commands of one unit are protected. Clones are equivalent.
#[derive(Clone, Debug)]
pub struct Protection {
    kind: ProtectionType,
    tags: PiTags,
    block: usize,
    errors: Arc<PiErrors>,
}

impl Protection {
    /// The protection for `unit`, whose blocks have `block_bytes` bytes.
    ///
    /// # Errors
    /// [`IoError::Request`] if the unit has no protection information, with advice how to add it; or for tags that turn checks
    /// off or that the type does not use.
    pub(crate) fn new(
        unit: &UnitProtection,
        lun: Lun,
        block_bytes: u32,
        tags: PiTags,
        errors: Arc<PiErrors>,
    ) -> Result<Self, IoError> {
        let refuse = |what: String| Err(IoError::Request(what));
        if unit.kind == ProtectionType::None {
            return refuse(match unit.supported {
                0 => format!(
                    "LUN {lun} has no protection information and no room for it: leave out pi=1, or make the unit with it \
                     (`intact serve --lun file:PATH,pi=1`)"
                ),
                _ => format!(
                    "LUN {lun} is not formatted with protection information, though it could be: leave out pi=1, or format \
                     it (FORMAT UNIT with FMTPINFO 10b; its data are lost by that)"
                ),
            });
        }
        if unit.interval_exponent != 0 {
            return refuse(format!(
                "LUN {lun} has several protection intervals in a block (P_I_EXPONENT {}), which is not supported: leave out \
                 pi=1",
                unit.interval_exponent
            ));
        }
        if unit.kind == ProtectionType::Type1 && tags.ref_tag.is_some() {
            return refuse("the reference tag of type 1 is the address of the block: leave it out".into());
        }
        let made = Tuple { guard: 0, app_tag: tags.app_tag, ref_tag: tags.ref_tag.unwrap_or(0) };
        if unit.kind.escapes(made) {
            return refuse("application tag FFFFh turns the checks off: choose another one".into());
        }
        Ok(Self { kind: unit.kind, tags, block: block_bytes as usize, errors })
    }

    /// The type of the unit.
    pub fn kind(&self) -> ProtectionType {
        self.kind
    }

    /// The tags.
    pub fn tags(&self) -> PiTags {
        self.tags
    }

    /// Bytes of `blocks` blocks with their tuples.
    pub fn wire_bytes(&self, blocks: usize) -> usize {
        blocks.saturating_mul(self.block + TUPLE_BYTES)
    }

    /// READ of `blocks` from `lba` on, with their tuples.
    //= sbc3 5.12 PI-17
    pub fn read_cdb(&self, lba: u64, blocks: u32) -> Cdb {
        self.cdb(cdb::read(lba, blocks), 0x0009, lba, blocks)
    }

    /// WRITE of `blocks` from `lba` on, with their tuples.
    pub fn write_cdb(&self, lba: u64, blocks: u32) -> Cdb {
        self.cdb(cdb::write(lba, blocks), 0x000b, lba, blocks)
    }

    /// VERIFY of `blocks` from `lba` on: the unit reads and checks them without transferring them.
    pub fn verify_cdb(&self, lba: u64, blocks: u32) -> Cdb {
        self.cdb(cdb::verify(lba, blocks), 0x000a, lba, blocks)
    }

    /// WRITE SAME of `blocks` from `lba` on. The block is sent once, with the tuple of the first block.
    pub fn write_same_cdb(&self, lba: u64, blocks: u32, unmap: bool) -> Cdb {
        let mut cdb = self.cdb(cdb::write_same(lba, blocks, unmap), 0x000d, lba, blocks);
        if unmap && self.kind == ProtectionType::Type2 {
            cdb[10] |= 0x08;
        }
        cdb
    }

    /// Type 2 transfers tuples only in 32-byte commands; the other types do not use these.
    fn cdb(&self, mut short: Cdb, action: u16, lba: u64, blocks: u32) -> Cdb {
        match self.kind {
            ProtectionType::Type2 => {
                let tags = (self.ref_tag(lba), self.tags.app_tag, self.tags.app_mask);
                cdb::thirty_two(action, PROTECT << 5, lba, tags, blocks)
            }
            _ => {
                short[1] |= PROTECT << 5;
                short
            }
        }
    }

    /// The reference tag of block `lba`.
    //= sbc3 4.22.2 PI-17
    pub fn ref_tag(&self, lba: u64) -> u32 {
        let base = self.tags.ref_tag.unwrap_or(0);
        match self.kind {
            ProtectionType::Type3 => base,
            _ => base.wrapping_add(lba as u32),
        }
    }

    /// In type 2, COMPARE AND WRITE is sent without tuples, so the tuples that the target generates must be the ones that we
    /// expect later.
    pub(crate) fn check_that_the_target_makes_our_tags(&self) -> Result<(), IoError> {
        let PiTags { app_tag, app_mask, ref_tag } = self.tags;
        if app_tag & app_mask == 0 && ref_tag.unwrap_or(0) == 0 {
            return Ok(());
        }
        Err(IoError::Request(
            "COMPARE AND WRITE has no form that carries tuples of type 2, and the target would make others: leave out app_tag \
             and ref_tag, or format the unit with type 1"
                .to_owned(),
        ))
    }

    /// The tuple of block `lba` with this guard.
    fn made(&self, lba: u64, guard: u16) -> Tuple {
        Tuple { guard, app_tag: self.tags.app_tag, ref_tag: self.ref_tag(lba) }
    }

    /// Checks the tuple of block `lba`, whose data has the guard `computed`; false if the tuple turns the checks off.
    //= sbc3 4.22.4 PI-17
    fn check(&self, lba: u64, tuple: Tuple, computed: u16, place: PiPlace) -> Result<bool, PiFailure> {
        if self.kind.escapes(tuple) {
            return Ok(false);
        }
        let PiTags { app_tag, app_mask, ref_tag } = self.tags;
        let known_ref_tag = self.kind != ProtectionType::Type3 || ref_tag.is_some();
        let failed = if tuple.guard != computed {
            Some((PiField::Guard, computed.into(), tuple.guard.into()))
        } else if (tuple.app_tag ^ app_tag) & app_mask != 0 {
            Some((PiField::AppTag, app_tag.into(), tuple.app_tag.into()))
        } else if known_ref_tag && tuple.ref_tag != self.ref_tag(lba) {
            Some((PiField::RefTag, self.ref_tag(lba), tuple.ref_tag))
        } else {
            None
        };
        match failed {
            None => Ok(true),
            Some((field, expected, found)) => {
                self.errors.count(field);
                Err(PiFailure { field, lba: Some(lba), values: Some((expected, found)), place })
            }
        }
    }
}
