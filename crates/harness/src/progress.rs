//! The bar that moves while something is measured.

pub use indicatif::ProgressBar;
use indicatif::ProgressStyle;

/// Whether bars are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// On a terminal, a few times per second at most.
    Shown,
    /// Not at all.
    Hidden,
}

impl Progress {
    /// A bar of so many turns.
    pub fn bar(self, turns: u64) -> ProgressBar {
        let bar = match self {
            Self::Shown => ProgressBar::new(turns),
            Self::Hidden => ProgressBar::hidden(),
        };
        let style = ProgressStyle::with_template("{msg} {percent}% {wide_bar} {eta}");
        bar.set_style(style.expect("a constant that is right"));
        bar
    }
}
