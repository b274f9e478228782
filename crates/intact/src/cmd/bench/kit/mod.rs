//! The parts that benchmarks share.
//!
//! Before measuring: common [`arguments`], [`content`] for buffers, and the correct results for it ([`oracle`]). While measuring: the
//! [`clock`]. Afterwards: the summary of samples ([`statistics`]), the [`machine`] and whether it was quiet ([`noise`]), the origin of
//! the contenders ([`source`]), and a result for people: a [`document`] of text, tables and [`chart`]s, for a terminal, as
//! Markdown, or as one [`page`] that needs nothing else.

pub mod arguments;
pub mod clock;
pub mod oracle;
pub mod source;
