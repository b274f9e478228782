//! What benchmarks share.
//!
//! Before measuring: [`arguments`] that all of them take, [`content`] for buffers, and the right answers for it
//! ([`oracle`]). While measuring: the [`clock`]. Afterwards: what samples say ([`statistics`]), the [`machine`] that they
//! were taken on and whether it was quiet ([`noise`]), where what was measured comes from ([`source`]), and a result for
//! people: a [`document`] of text, tables and [`chart`]s, for a terminal, as Markdown, or as one [`page`] that needs
//! nothing else.

pub mod arguments;
pub mod chart;
pub mod clock;
pub mod content;
pub mod document;
pub mod machine;
pub mod noise;
pub mod oracle;
pub mod page;
pub mod source;
pub mod statistics;
