//! How long the random campaigns are.

/// A length, `RTL_TIMES` times as long if that is in the environment: `make rtl TIMES=30`.
pub fn length(quick: usize) -> usize {
    let times = std::env::var("RTL_TIMES").map_or(1, |times| times.parse().expect("RTL_TIMES is a number"));
    quick * times
}
