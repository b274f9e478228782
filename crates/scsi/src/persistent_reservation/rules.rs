//! Which commands a reservation admits (SPC-4 table 51, SBC-3 table 13), as one small table.

use super::Kind;
use crate::access::Access;

/// The relation of a nexus to the reservation of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// No reservation, or the nexus holds it.
    Free,
    /// Another nexus holds a reservation.
    Other {
        /// Its type.
        kind: Kind,
        /// The nexus is registered.
        registered: bool,
    },
}

/// Whether a command of this class may execute.
///
/// | class | WE | EA | registered, RO or AR | not registered, WE-RO/AR | not registered, EA-RO/AR |
/// |---|---|---|---|---|---|
/// | always | yes | yes | yes | yes | yes |
/// | read | yes | no | yes | yes | no |
/// | write | no | no | yes | no | no |
//= spc4 5.12.1 PR-04 PR-05
pub(crate) fn allowed(access: Access, standing: Standing) -> bool {
    let Standing::Other { kind, registered } = standing else { return true };
    let shared = registered && kind.registrants_share();
    match access {
        Access::Read => shared || kind.reads_allowed(),
        Access::Write => shared,
        // Their handlers apply their own rules.
        Access::Discovery
        | Access::Always
        | Access::Legacy
        | Access::PersistentIn
        | Access::PersistentOut
        | Access::StartStop
        | Access::Prevent => true,
    }
}
