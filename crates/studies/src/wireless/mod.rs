//! Storage over 802.11, and the experiments of the 2004 thesis about several connections on such links.
//!
//! The equations and the medium are in the crate `wireless`. [`model`] and [`lab`] compare them, and the product on them, with the thesis'
//! numbers, which are in `papers/`. A [`stage`] is the medium between two hosts in real time, for programs.

pub mod air;
pub mod lab;
pub mod model;
mod papers;
mod report;
pub mod stage;

pub use report::{Report, SCHEMA};
