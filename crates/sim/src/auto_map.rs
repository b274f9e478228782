//! Runs the map of [`crate::auto`] on all processors, and keeps every result in a file, so that it continues where it was interrupted.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use parking_lot::Mutex;
use rustc_hash::FxHasher;

use crate::auto::{Cell, Line, Measured, Runs, SETTINGS};

/// A run: number of the cell, number of the setting, seed.
type Key = (usize, usize, u64);

/// The results so far, and the file that they are kept in.
struct Kept {
    results: HashMap<Key, Measured>,
    file: File,
}

/// Runs of this executable: results of another one are worth nothing.
fn version() -> io::Result<u64> {
    let mut hasher = FxHasher::default();
    std::fs::read(std::env::current_exe()?)?.hash(&mut hasher);
    Ok(hasher.finish())
}

fn parse(line: &str) -> Option<(Key, Measured)> {
    let mut words = line.split(' ');
    let key = (words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let (whole, later) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some((key, Measured { whole, later, wanted: words.next()?.parse().ok()? }))
}

impl Kept {
    fn open(path: &Path) -> io::Result<Self> {
        let head = format!("{:016x}", version()?);
        let lines: Vec<String> = match File::open(path) {
            Ok(file) => BufReader::new(file).lines().collect::<io::Result<_>>()?,
            Err(_) => Vec::new(),
        };
        let same = lines.first() == Some(&head);
        let file = OpenOptions::new().create(true).append(same).write(true).truncate(!same).open(path)?;
        let mut kept = Self { results: HashMap::new(), file };
        if same {
            kept.results = lines.iter().filter_map(|line| parse(line)).collect();
        } else {
            writeln!(kept.file, "{head}")?;
        }
        Ok(kept)
    }

    fn keep(&mut self, key: Key, run: Measured) -> io::Result<()> {
        self.results.insert(key, run);
        writeln!(self.file, "{} {} {} {} {} {}", key.0, key.1, key.2, run.whole, run.later, run.wanted)
    }
}

/// Runs the whole map with this many seeds, or what is missing of it in the file at `path`, which is created if necessary; `news` is called
/// with the number of runs that are done and of all. Returns a line for each cell.
///
/// # Errors
/// The file cannot be used, or an invariant did not hold.
pub fn run(seeds: u64, path: &Path, news: impl Fn(usize, usize) + Sync) -> Result<Vec<Line>, String> {
    let cells: Vec<Cell> = Cell::all().collect();
    let kept = Kept::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let all = (1..=seeds).flat_map(|seed| (0..cells.len()).map(move |cell| (cell, seed)));
    let all = all.flat_map(|(cell, seed)| (0..SETTINGS.len()).map(move |setting| (cell, setting, seed)));
    let missing: Vec<Key> = all.filter(|key| !kept.results.contains_key(key)).collect();
    let total = cells.len() * SETTINGS.len() * seeds as usize;
    let (kept, queue, broken) = (Mutex::new(kept), Mutex::new(missing.into_iter()), Mutex::new(None));
    let work = || {
        while let Some(key) = next(&queue, &broken) {
            let (cell, setting, seed) = key;
            match cells[cell].run(SETTINGS[setting], seed) {
                Ok(run) => {
                    let mut kept = kept.lock();
                    if let Err(error) = kept.keep(key, run) {
                        *broken.lock() = Some(error.to_string());
                    }
                    news(kept.results.len(), total);
                }
                Err(what) => {
                    let what = format!("{:?} with {:?}, seed {seed}: {what}", cells[cell], SETTINGS[setting]);
                    *broken.lock() = Some(what);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    if let Some(what) = broken.into_inner() {
        return Err(what);
    }
    let results = kept.into_inner().results;
    let runs = |cell: usize| -> Runs {
        std::array::from_fn(|setting| (1..=seeds).map(|seed| results[&(cell, setting, seed)]).collect())
    };
    Ok(cells.iter().enumerate().map(|(n, cell)| Line::new(*cell, &runs(n))).collect())
}

/// The next run, unless one has failed.
fn next(queue: &Mutex<impl Iterator<Item = Key>>, broken: &Mutex<Option<String>>) -> Option<Key> {
    if broken.lock().is_some() {
        return None;
    }
    queue.lock().next()
}
