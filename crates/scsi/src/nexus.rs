//! The I_T nexus as the device server sees it (SAM-5 4.6, RFC 7143 4.4.1).

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::pending::PendingFlag;

/// Identity of an I_T nexus by value: equal for equal initiator port name, account and target portal group, no matter when or
/// on which connection the nexus appears. Not stable between builds: never store it, store the names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NexusId(pub u64);

impl fmt::Debug for NexusId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NexusId({:016x})", self.0)
    }
}

/// An I_T nexus: a SCSI initiator port and a SCSI target port. In iSCSI the initiator port is the initiator name with
/// `,i,0x` and the ISID, and the target port is the target name with its portal group tag (RFC 7143 4.4.1).
///
/// A session creates its nexus once and attaches clones of it. A command with a newly created equal nexus works, but more
/// slowly.
#[derive(Clone, Debug)]
pub struct Nexus {
    /// SCSI initiator port name, e.g. `iqn.1993-08.org.debian:host,i,0x00023d000001`.
    pub initiator_port: Arc<str>,
    /// Target portal group tag, which is also reported as the target port group.
    pub target_port_group: u16,
    /// Relative target port identifier, 1 to 65535.
    pub relative_target_port: u16,
    /// The account with which the initiator authenticated; `None` where authentication is not required. An initiator chooses
    /// its own name: where authentication is required, the same name with another account is another nexus.
    pub account: Option<Arc<str>>,
    /// Identity by value of the names and the account above.
    pub id: NexusId,
    /// iSCSIProtocolLevel of the session (RFC 7144), for the version descriptor of INQUIRY; 0: none is claimed.
    pub protocol_level: u8,
    pending: PendingFlag,
}

impl Nexus {
    /// The nexus of these two ports.
    pub fn new(initiator_port: &str, target_port_group: u16, relative_target_port: u16) -> Self {
        let initiator_port = Arc::from(initiator_port);
        let id = identity(&initiator_port, None, target_port_group);
        Self {
            initiator_port,
            target_port_group,
            relative_target_port,
            account: None,
            id,
            protocol_level: 0,
            pending: PendingFlag::new(),
        }
    }

    /// The nexus of the same two ports with an initiator that authenticated as `account`: a different nexus.
    pub fn with_account(self, account: Option<&str>) -> Self {
        let id = identity(&self.initiator_port, account, self.target_port_group);
        Self { account: account.map(Arc::from), id, pending: PendingFlag::new(), ..self }
    }

    pub(crate) fn pending_flag(&self) -> &PendingFlag {
        &self.pending
    }

    /// False when no unit has a unit attention for it.
    pub(crate) fn may_have_attention(&self) -> bool {
        self.pending.is_raised()
    }

    /// The same nexus, with this iSCSIProtocolLevel of the session.
    pub fn with_protocol_level(self, protocol_level: u8) -> Self {
        Self { protocol_level, ..self }
    }
}

fn identity(initiator_port: &str, account: Option<&str>, target_port_group: u16) -> NexusId {
    let mut hasher = DefaultHasher::new();
    (initiator_port, account, target_port_group).hash(&mut hasher);
    NexusId(hasher.finish())
}
