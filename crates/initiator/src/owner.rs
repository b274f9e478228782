//! Who owns a command: the upper bits of the name that the protocol carries for it.

/// Set in the name of every command of a workload.
pub(crate) const WORKLOAD_BIT: u64 = 1 << 63;
/// Set in the name of every probe; names of other commands never reach this value, except those of a workload.
pub(crate) const PROBE_BIT: u64 = 1 << 62;

/// Whether a command of this name is a probe.
pub(crate) fn is_probe(user: u64) -> bool {
    user & (WORKLOAD_BIT | PROBE_BIT) == PROBE_BIT
}
