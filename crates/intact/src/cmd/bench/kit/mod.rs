//! What benchmarks share: samples and what they say ([`statistics`]), the clock they are taken with ([`clock`]), the
//! machine they are taken on ([`machine`]) and whether it was quiet ([`noise`]), and a result for people: a
//! [`document`] of text, tables and [`chart`]s, for a terminal, as Markdown, or as one page that needs nothing else.

pub mod chart;
pub mod clock;
pub mod document;
pub mod machine;
pub mod noise;
pub mod page;
pub mod statistics;
