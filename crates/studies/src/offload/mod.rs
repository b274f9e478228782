//! `intact bench offload`: the offload engine beside the one of the 2013 paper: Tables 2 and 3, Figure 12 and the time of a
//! reconfiguration, and what its host is left to do.
//!
//! Nothing is measured in time. The circuits' cycles, area and clock and the host's instructions are counted by `make rtl-cycles`,
//! `make rtl-report` and `cargo xtask bench offload`, which write files that are part of this program.

mod figures;
mod findings;
mod papers;
mod tables;

pub use self::figures::Report;
pub use self::tables::document;
