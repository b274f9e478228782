//! Measurements of this project's code, next to those of papers: one folder per study.
//!
//! A study has `Options`, which the command line fills in; a function that measures and returns a report, which is also its form as JSON;
//! and a function that makes a [document](harness::document) of the report. Statistics, the judge of the machine and the forms of a
//! document are in the crate `harness`, the papers' own checksums in `published`.
//!
//! Invariant: a wrong answer ends a measurement.
//!
//! Not here: printing, exit codes, and the measurement of a logical unit by its user (`intact bench lun`).
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

pub mod checksum;
mod clock;
pub mod crowd;
pub mod fastpath;
pub mod guard;
pub mod offload;
mod oracle;
mod sizes;
mod source;
pub mod tcp_crc;
pub mod wireless;
