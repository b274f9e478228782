//! Protection information (SBC-3 4.22): which of its fields a command transfers, checks and generates.
//!
//! A command on a unit that is formatted with protection information runs like any other. In addition,
//! [`Execution::protection`](crate::Execution::protection) says how to treat the tuples of its blocks; the caller,
//! which holds the data and tuples, consults it block by block. Every rule of PROTECT, type and tag is here.
//!
//! Invariants: guards are not computed here, only compared; what the host sent is stored unchanged. Not supported: more
//! than one interval in a block (P_I_EXPONENT is 0), and the application tag mode page.

use integrity::t10::Tuple;

use crate::cdb::Cdb;
use crate::logical_unit::LogicalUnit;
use crate::sense::{Asc, SenseData};

/// Bytes of the tuple after each block: guard, application tag, reference tag (SBC-3 4.22.3).
pub const TUPLE_BYTES: u32 = integrity::t10::TUPLE_BYTES as u32;

/// An application tag that disables the checks.
const ESCAPE_APP_TAG: u16 = 0xffff;
/// The reference tag that must accompany it in type 3.
const ESCAPE_REF_TAG: u32 = 0xffff_ffff;

/// How a unit is formatted (SBC-3 4.22.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ProtectionType {
    /// Type 0: no protection information.
    #[default]
    None = 0,
    /// Type 1: the reference tag is the low 32 bits of the LBA.
    Type1 = 1,
    /// Type 2: the reference tag of the first block comes in the CDB and counts up.
    Type2 = 2,
    /// Type 3: the reference tag is the host's.
    Type3 = 3,
}

impl ProtectionType {
    /// The type with this number, 0 to 3.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::None),
            1 => Some(Self::Type1),
            2 => Some(Self::Type2),
            3 => Some(Self::Type3),
            _ => None,
        }
    }

    /// The number of the type.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// P_TYPE and PROT_EN in READ CAPACITY(16).
    //= sbc3 5.16.2 PI-01
    pub(crate) fn capacity_bits(self) -> u8 {
        if self == Self::None { 0 } else { (self.number() - 1) << 1 | 1 }
    }

    /// The tuple of a block that moves up by `by` blocks: its reference tag follows the address in types 1 and 2.
    #[inline]
    pub const fn moved(self, tuple: Tuple, by: u64) -> Tuple {
        match self {
            Self::Type1 | Self::Type2 => Tuple { ref_tag: tuple.ref_tag.wrapping_add(by as u32), ..tuple },
            Self::None | Self::Type3 => tuple,
        }
    }

    /// Whether a tuple disables the checks of its block.
    //= sbc3 4.22.3 PI-08
    #[inline]
    pub const fn escapes(self, tuple: Tuple) -> bool {
        match self {
            Self::None => false,
            Self::Type1 | Self::Type2 => tuple.app_tag == ESCAPE_APP_TAG,
            Self::Type3 => tuple.app_tag == ESCAPE_APP_TAG && tuple.ref_tag == ESCAPE_REF_TAG,
        }
    }
}

/// A field of a tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PiField {
    /// LOGICAL BLOCK GUARD.
    Guard,
    /// LOGICAL BLOCK APPLICATION TAG.
    AppTag,
    /// LOGICAL BLOCK REFERENCE TAG.
    RefTag,
}

impl PiField {
    /// The additional sense code of a check that failed.
    //= sbc3 4.22.4 PI-09
    pub const fn asc(self) -> Asc {
        match self {
            Self::Guard => Asc::GUARD_CHECK_FAILED,
            Self::AppTag => Asc::APP_TAG_CHECK_FAILED,
            Self::RefTag => Asc::REF_TAG_CHECK_FAILED,
        }
    }
}

impl std::fmt::Display for PiField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Guard => "guard",
            Self::AppTag => "application tag",
            Self::RefTag => "reference tag",
        })
    }
}

/// Which fields are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// The guard, against the data.
    pub guard: bool,
    /// The application tag, where its expected value is known.
    pub app_tag: bool,
    /// The reference tag, where its expected value is known.
    pub ref_tag: bool,
}

impl Checks {
    /// Everything.
    pub const ALL: Self = Self { guard: true, app_tag: true, ref_tag: true };
    /// Nothing.
    pub const NONE: Self = Self { guard: false, app_tag: false, ref_tag: false };

    /// The checks that a value of RDPROTECT, WRPROTECT or VRPROTECT selects; `None`: it is reserved.
    //= sbc3 4.22.4 PI-04
    pub const fn of(protect: u8) -> Option<Self> {
        match protect {
            0 | 1 | 5 => Some(Self::ALL),
            2 => Some(Self { guard: false, ..Self::ALL }),
            3 => Some(Self::NONE),
            4 => Some(Self { guard: true, ..Self::NONE }),
            _ => None,
        }
    }
}

/// The fields of a 32-byte CDB that hold the expected tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExpectedTags {
    pub(crate) ref_tag: u32,
    pub(crate) app_tag: u16,
    pub(crate) app_mask: u16,
}

/// How the tuples of a command's blocks are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protection {
    /// Type of the unit, not 0.
    pub kind: ProtectionType,
    /// Each block is transferred with its tuple after it. If false, tuples are generated for blocks that are written,
    /// and stripped from blocks that are read.
    pub transferred: bool,
    /// The checks made on tuples that arrive with data-out, and on those read from the medium.
    pub checks: Checks,
    /// First block of the command, from which reference tags are counted.
    first_lba: u64,
    /// Reference tag of the first block, if known.
    first_ref_tag: Option<u32>,
    /// Expected application tag and its mask, if known.
    app_tag: Option<(u16, u16)>,
}

impl Protection {
    /// For an operation that is not a command's own, such as a third-party copy: everything is checked that can be, and
    /// tuples are newly generated.
    pub fn internal(kind: ProtectionType, first_lba: u64) -> Option<Self> {
        (kind != ProtectionType::None).then(|| Self::new(kind, false, Checks::ALL, first_lba, None, true))
    }

    fn new(
        kind: ProtectionType,
        transferred: bool,
        checks: Checks,
        first_lba: u64,
        tags: Option<ExpectedTags>,
        ato: bool,
    ) -> Self {
        //= sbc3 4.22.2 PI-02
        let first_ref_tag = match kind {
            ProtectionType::None | ProtectionType::Type3 => None,
            ProtectionType::Type1 => Some(first_lba as u32),
            ProtectionType::Type2 => tags.map(|tags| tags.ref_tag),
        };
        //= sbc3 5.12 PI-10
        let app_tag = tags.filter(|_| ato).map(|tags| (tags.app_tag, tags.app_mask));
        Self { kind, transferred, checks, first_lba, first_ref_tag, app_tag }
    }

    /// Length on the wire of a block of `block_bytes` bytes.
    //= sbc3 4.22.3 PI-11
    pub fn wire_block_bytes(&self, block_bytes: u32) -> u32 {
        if self.transferred { block_bytes.saturating_add(TUPLE_BYTES) } else { block_bytes }
    }

    /// The reference tag that block `lba` must have, if known.
    #[inline]
    fn ref_tag(&self, lba: u64) -> Option<u32> {
        Some(self.first_ref_tag?.wrapping_add(lba.wrapping_sub(self.first_lba) as u32))
    }

    /// The tuple that the device server generates for block `lba` with this guard. Never one that disables checks.
    //= sbc3 4.22.4 PI-06
    #[inline]
    pub fn made(&self, lba: u64, guard: u16) -> Tuple {
        let ref_tag = match self.kind {
            ProtectionType::Type3 => 0,
            _ => self.ref_tag(lba).unwrap_or(lba as u32),
        };
        Tuple { guard, app_tag: 0, ref_tag }
    }

    /// The tuple of block `lba` when the same block and tuple are used for every block (WRITE SAME, VERIFY with BYTCHK
    /// 11b): its reference tag counts up in types 1 and 2.
    //= sbc3 5.43 PI-12
    pub fn repeated(&self, lba: u64, tuple: Tuple) -> Tuple {
        self.kind.moved(tuple, lba.wrapping_sub(self.first_lba))
    }

    /// Whether any check needs the guard of the data.
    pub fn checks_guards(&self) -> bool {
        self.checks.guard
    }

    /// Checks the tuple of block `lba`, whose data has the guard `computed`.
    ///
    /// # Errors
    /// The first field that fails: guard, application tag, reference tag.
    //= sbc3 4.22.4 PI-09
    #[inline]
    pub fn check(&self, lba: u64, tuple: Tuple, computed: u16) -> Result<(), PiField> {
        if self.kind.escapes(tuple) {
            return Ok(());
        }
        if self.checks.guard && tuple.guard != computed {
            return Err(PiField::Guard);
        }
        if self.checks.app_tag && self.app_tag.is_some_and(|(tag, mask)| (tuple.app_tag ^ tag) & mask != 0) {
            return Err(PiField::AppTag);
        }
        if self.checks.ref_tag && self.ref_tag(lba).is_some_and(|tag| tag != tuple.ref_tag) {
            return Err(PiField::RefTag);
        }
        Ok(())
    }
}

/// The bits of the control mode page that concern protection information.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PiModes {
    /// DPICZ: with RDPROTECT, VRPROTECT or ORPROTECT 0, nothing on the medium is checked.
    pub(crate) no_check_when_zero: bool,
    /// ATO: hosts own the application tags.
    pub(crate) app_tag_owner: bool,
    /// RWWP: writes without protection information are rejected.
    pub(crate) reject_unprotected: bool,
}

/// The command field that holds PROTECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProtectField {
    Read,
    Write,
    Verify,
    Or,
}

/// Where a command has its PROTECT field, and the other values needed to interpret it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Protect {
    pub(crate) field: ProtectField,
    /// The byte with the PROTECT field; `None`: the CDB has none, which means PROTECT 0.
    pub(crate) at: Option<u16>,
    pub(crate) lba: u64,
    pub(crate) tags: Option<ExpectedTags>,
}

impl Protect {
    /// Reads and checks the PROTECT field.
    //= sbc3 4.22 PI-03 PI-05
    pub(crate) fn resolve(self, lu: &LogicalUnit, cdb: &Cdb) -> Result<Option<Protection>, SenseData> {
        let value = self.at.map_or(0, |at| cdb.u8(usize::from(at)) >> 5);
        let wrong = SenseData::cdb_field(self.at.unwrap_or(1), Some(7));
        let kind = lu.protection();
        if kind == ProtectionType::None {
            return if value == 0 { Ok(None) } else { Err(wrong) };
        }
        let checks = Checks::of(value).ok_or(wrong)?;
        if kind == ProtectionType::Type2 && value != 0 && self.tags.is_none() {
            return Err(SenseData::illegal(Asc::INVALID_OPERATION_CODE));
        }
        let modes = lu.pi_modes();
        //= sbc3 4.22.4 PI-06
        let writes = matches!(self.field, ProtectField::Write | ProtectField::Or);
        if writes && value == 0 && modes.reject_unprotected {
            return Err(wrong);
        }
        //= spc4 7.5.8 PI-07
        let unchecked = self.field != ProtectField::Write && value == 0 && modes.no_check_when_zero;
        let checks = if unchecked { Checks::NONE } else { checks };
        Ok(Some(Protection::new(kind, value != 0, checks, self.lba, self.tags, modes.app_tag_owner)))
    }
}
