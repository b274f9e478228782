//! What measurements share, whatever they measure.
//!
//! Before measuring: [`content`] for buffers. While measuring: the bar that shows [`progress`]. Afterwards: the summary of samples
//! ([`statistics`]), the [`machine`] and whether it was quiet ([`noise`]), and a result for people: a [`document`] of text, tables
//! and [`chart`]s, for a terminal, as Markdown, or as one [`page`] that needs nothing else. What could not be measured is a
//! [`Failure`].
//!
//! Not here: what is measured, and the command line.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

pub mod chart;
pub mod content;
pub mod document;
mod failure;
pub mod machine;
pub mod noise;
pub mod page;
pub mod progress;
pub mod statistics;
pub mod text;

pub use failure::Failure;
