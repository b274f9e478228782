//! Runs the map of [`crate::auto`], as a campaign that keeps its results.

use crate::auto::{Cell, Line, Measured, Runs, SETTINGS};
use crate::kept::{Campaign, keys};

/// Runs the whole map with this many seeds, or what is missing of it in the campaign's file; `news` is called with the number of runs that
/// are done and of all. Returns a line for each cell, or `None` if the campaign's time was over before.
///
/// # Errors
/// The file cannot be used, or an invariant did not hold.
pub fn run(
    seeds: u64,
    campaign: Campaign<'_>,
    news: impl Fn(usize, usize) + Sync,
) -> Result<Option<Vec<Line>>, String> {
    let cells: Vec<Cell> = Cell::all().collect();
    let measure = |(cell, setting, seed): (usize, usize, u64)| {
        let run = cells[cell]
            .run(SETTINGS[setting], seed)
            .map_err(|what| format!("{:?} with {:?}, seed {seed}: {what}", cells[cell], SETTINGS[setting]))?;
        Ok([run.whole, run.later, f64::from(run.wanted)])
    };
    let results = campaign.run(&keys(cells.len(), SETTINGS.len(), seeds), measure, news)?;
    let measured = |[whole, later, wanted]: [f64; 3]| Measured { whole, later, wanted: wanted as u16 };
    Ok(results.map(|results| {
        let of = |cell: usize, setting| (1..=seeds).map(move |seed| (cell, setting, seed));
        let runs = |cell: usize| -> Runs {
            std::array::from_fn(|setting| of(cell, setting).map(|key| measured(results[&key])).collect())
        };
        cells.iter().enumerate().map(|(n, cell)| Line::new(*cell, &runs(n))).collect()
    }))
}
