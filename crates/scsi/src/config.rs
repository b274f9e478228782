//! The configuration of a logical unit.

use crate::protection::ProtectionType;

/// NAA identifier of a unit (SPC-4 7.8.6.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NaaIdentifier {
    /// NAA 3h, locally assigned: the low 60 bits are used. Use it when no IEEE company id is available.
    Local(u64),
    /// NAA 6h, registered extended: 16 bytes, the first nibble is set to 6.
    RegisteredExtended([u8; 16]),
}

impl NaaIdentifier {
    /// The designator's bytes.
    pub fn to_bytes(self) -> Vec<u8> {
        match self {
            Self::Local(id) => (id & 0x0fff_ffff_ffff_ffff | 0x3 << 60).to_be_bytes().to_vec(),
            Self::RegisteredExtended(mut id) => {
                id[0] = id[0] & 0x0f | 0x60;
                id.to_vec()
            }
        }
    }
}

/// A target port through which the unit is reachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetPort {
    /// Relative target port identifier, 1 to 65535.
    pub relative_port: u16,
    /// Target portal group tag, reported as the target port group.
    pub group: u16,
}

/// Limits that VPD page B0h reports and the command handlers enforce (SBC-3 6.6.4), in logical blocks unless noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferLimits {
    /// MAXIMUM TRANSFER LENGTH of one read, write or verify.
    pub max_transfer_blocks: u32,
    /// OPTIMAL TRANSFER LENGTH GRANULARITY.
    pub optimal_granularity_blocks: u16,
    /// OPTIMAL TRANSFER LENGTH.
    pub optimal_transfer_blocks: u32,
    /// MAXIMUM PREFETCH LENGTH.
    pub max_prefetch_blocks: u32,
    /// MAXIMUM COMPARE AND WRITE LENGTH.
    pub max_compare_and_write_blocks: u8,
    /// MAXIMUM UNMAP LBA COUNT of one command.
    pub max_unmap_blocks: u32,
    /// MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT.
    pub max_unmap_descriptors: u32,
    /// OPTIMAL UNMAP GRANULARITY.
    pub unmap_granularity_blocks: u32,
    /// MAXIMUM WRITE SAME LENGTH.
    pub max_write_same_blocks: u64,
    /// MAXIMUM ATOMIC TRANSFER LENGTH; 0 means WRITE ATOMIC is not supported.
    pub max_atomic_blocks: u32,
}

impl TransferLimits {
    /// The limits of this server for blocks of `block_bytes`: 32 MiB per transfer, granularity 4 KiB.
    pub fn for_block_bytes(block_bytes: u32) -> Self {
        let per = |bytes: u32| (bytes / block_bytes.max(1)).max(1);
        Self {
            max_transfer_blocks: per(32 << 20),
            optimal_granularity_blocks: u16::try_from(per(4096)).unwrap_or(u16::MAX),
            optimal_transfer_blocks: per(1 << 20),
            max_prefetch_blocks: per(32 << 20),
            max_compare_and_write_blocks: 255,
            max_unmap_blocks: 1 << 20,
            max_unmap_descriptors: 256,
            unmap_granularity_blocks: per(4096),
            max_write_same_blocks: 4 << 20,
            max_atomic_blocks: 0,
        }
    }
}

impl Default for TransferLimits {
    fn default() -> Self {
        Self::for_block_bytes(512)
    }
}

/// How hosts reach a unit and its management: the settings that may change while the disk stays the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// Every target port of the target. May be empty: then only the port of the requesting nexus is reported.
    pub target_ports: Vec<TargetPort>,
    /// Hosts may set the states of target port groups (SET TARGET PORT GROUPS); if false, only the device itself does.
    pub explicit_access_states: bool,
    /// Where the unit's server is managed, an ASCII URL for VPD page 85h. `None`: the page does not exist.
    pub management_url: Option<String>,
}

/// What a unit says it is (SPC-4 6.4.2, 7.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// T10 VENDOR IDENTIFICATION: cut or padded to 8 ASCII characters.
    pub vendor: String,
    /// PRODUCT IDENTIFICATION: cut or padded to 16 ASCII characters.
    pub product: String,
    /// PRODUCT REVISION LEVEL: cut or padded to 4 ASCII characters.
    pub revision: String,
    /// Unit serial number (VPD page 80h), stable for the life of the data.
    pub serial: String,
    /// NAA identifier, the unit's name to hosts.
    pub naa: NaaIdentifier,
    /// The UUID of the unit (RFC 4122), for the designator of that type. `None`: there is no such designator.
    pub uuid: Option<[u8; 16]>,
    /// iSCSI target name, for the designators of VPD page 83h.
    pub target_name: String,
}

/// The medium of a unit: its size and form, what it can do, and the state that it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediumConfig {
    /// Capacity in logical blocks.
    pub blocks: u64,
    /// Bytes of a logical block: 512 or 4096.
    pub block_bytes: u32,
    /// Bytes of a physical block: `block_bytes` times a power of two.
    pub physical_block_bytes: u32,
    /// Writes fail with 7/27/00.
    pub read_only: bool,
    /// Reports a rotating medium instead of a solid state one.
    pub rotational: bool,
    /// Unmapping frees space: UNMAP and WRITE SAME with UNMAP are supported and unmapped blocks read as zeros.
    pub thin: bool,
    /// Initial WCE: a write without FUA may be in a volatile cache when its status is sent.
    pub write_cache: bool,
    /// SANITIZE with block erase is offered: blocks that are overwritten with zeros and then deallocated are gone from the store,
    /// including its snapshots and journals.
    pub sanitize: bool,
    /// The medium has room for protection information: FORMAT UNIT can make the unit type 0 to 3.
    pub protectable: bool,
    /// How the medium is formatted now.
    pub protection: ProtectionType,
    /// A FORMAT UNIT had started and not completed when the power failed: the unit is unusable until it is formatted.
    pub format_interrupted: bool,
    /// The medium is unavailable: the unit exists but is not ready (2/04/03) until another unit takes its place.
    pub missing: bool,
}

/// Configuration of a logical unit.
#[derive(Clone, Debug)]
pub struct LuConfig {
    /// Logical unit number, 0 to 16383.
    pub lun: u16,
    /// What the unit says it is.
    pub identity: Identity,
    /// Its medium.
    pub medium: MediumConfig,
    /// The secret from which copy tokens are made: unknown to hosts, and different after every start. `None`: no copies by token.
    pub token_secret: Option<[u8; 32]>,
    /// How hosts reach the unit and its management, initially.
    pub paths: Paths,
    /// Limits on transfers.
    pub limits: TransferLimits,
    /// Task management functions that the transport supports, as the first two bytes of REPORT SUPPORTED TASK
    /// MANAGEMENT FUNCTIONS (SPC-4 table 309).
    pub task_management: [u8; 2],
    /// The caller stores with [`crate::LogicalUnit::store_kept`] on every [`crate::Effect::KeptStateChanged`], before it sends the
    /// status. Registrations then survive power loss when a host requests it (APTPL).
    pub persist_reservations: bool,
}

/// ABORT TASK, ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET and TARGET RESET.
pub(crate) const ISCSI_TASK_MANAGEMENT: [u8; 2] = [0x80 | 0x40 | 0x10 | 0x08 | 0x02, 0];

impl Default for Identity {
    /// A virtual disk without a name of its own.
    fn default() -> Self {
        Self {
            vendor: "INTACT".into(),
            product: "VIRTUAL DISK".into(),
            revision: "0001".into(),
            serial: "0".into(),
            naa: NaaIdentifier::Local(0),
            uuid: None,
            target_name: "iqn.2025-01.invalid:target".into(),
        }
    }
}

impl Default for MediumConfig {
    /// Empty and thin: 512-byte blocks on 4096-byte physical blocks, with a write cache.
    fn default() -> Self {
        Self {
            blocks: 0,
            block_bytes: 512,
            physical_block_bytes: 4096,
            read_only: false,
            rotational: false,
            thin: true,
            write_cache: true,
            sanitize: false,
            protectable: false,
            protection: ProtectionType::None,
            format_interrupted: false,
            missing: false,
        }
    }
}

impl Default for LuConfig {
    /// A unit with the identity and the medium that are theirs by default.
    fn default() -> Self {
        Self {
            lun: 0,
            identity: Identity::default(),
            medium: MediumConfig::default(),
            token_secret: None,
            paths: Paths::default(),
            limits: TransferLimits::default(),
            task_management: ISCSI_TASK_MANAGEMENT,
            persist_reservations: false,
        }
    }
}
