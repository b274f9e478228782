//! Many runs on all processors, the result of each kept in a file, so that a campaign continues where it was interrupted.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::time::Instant;

use parking_lot::Mutex;
use rustc_hash::FxHasher;

/// A run: number of the cell, number of the setting, seed.
pub type Key = (usize, usize, u64);

/// The keys of a campaign with the seeds 1 to `seeds`: each seed in all cells before the next, so that a part of a campaign has the same
/// number of seeds in each cell.
pub fn keys(cells: usize, settings: usize, seeds: u64) -> Vec<Key> {
    let cells_of = |seed| (0..cells).map(move |cell| (cell, seed));
    let all = (1..=seeds).flat_map(cells_of);
    all.flat_map(|(cell, seed)| (0..settings).map(move |setting| (cell, setting, seed))).collect()
}

/// The figures of each run.
pub type Results<const N: usize> = HashMap<Key, [f64; N]>;

/// A campaign: where its results are kept, and when it stops.
#[derive(Clone, Copy, Debug)]
pub struct Campaign<'a> {
    /// The file, which is created if necessary.
    pub path: &'a Path,
    /// No run begins after this time.
    pub until: Option<Instant>,
}

/// The results so far, and the file that they are kept in.
struct Kept<const N: usize> {
    results: Results<N>,
    file: File,
}

/// Runs of this executable: results of another one are worth nothing.
fn version() -> io::Result<u64> {
    let mut hasher = FxHasher::default();
    std::fs::read(std::env::current_exe()?)?.hash(&mut hasher);
    Ok(hasher.finish())
}

fn parse<const N: usize>(line: &str) -> Option<(Key, [f64; N])> {
    let mut words = line.split(' ');
    let key = (words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let mut figures = [0.0; N];
    for figure in &mut figures {
        *figure = words.next()?.parse().ok()?;
    }
    words.next().is_none().then_some((key, figures))
}

impl<const N: usize> Kept<N> {
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

    fn keep(&mut self, key: Key, run: [f64; N]) -> io::Result<()> {
        self.results.insert(key, run);
        let mut line = format!("{} {} {}", key.0, key.1, key.2);
        for figure in run {
            line += &format!(" {figure}");
        }
        // One write, so that an interruption leaves at most one line that is cut short.
        self.file.write_all((line + "\n").as_bytes())
    }
}

impl Campaign<'_> {
    /// Runs `measure` for those of `keys` that have no result yet; `news` is called with the number of runs that are done and of all.
    /// Returns all results, or `None` if the time was over before.
    ///
    /// # Errors
    /// The file cannot be used, or what `measure` says.
    pub fn run<const N: usize>(
        &self,
        keys: &[Key],
        measure: impl Fn(Key) -> Result<[f64; N], String> + Sync,
        news: impl Fn(usize, usize) + Sync,
    ) -> Result<Option<Results<N>>, String> {
        let kept = Kept::open(self.path).map_err(|error| format!("{}: {error}", self.path.display()))?;
        let missing: Vec<Key> = keys.iter().filter(|key| !kept.results.contains_key(key)).copied().collect();
        let done = Mutex::new(keys.len() - missing.len());
        let (kept, queue, broken) = (Mutex::new(kept), Mutex::new(missing.into_iter()), Mutex::new(None));
        let next = || {
            let late = self.until.is_some_and(|until| Instant::now() >= until);
            let stopped = late || broken.lock().is_some();
            if stopped { None } else { queue.lock().next() }
        };
        let work = || {
            while let Some(key) = next() {
                let run = measure(key).and_then(|run| {
                    kept.lock().keep(key, run).map_err(|error| format!("{}: {error}", self.path.display()))
                });
                match run {
                    Ok(()) => {
                        let mut done = done.lock();
                        *done += 1;
                        news(*done, keys.len());
                    }
                    Err(what) => *broken.lock() = Some(what),
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(work);
            }
        });
        match broken.into_inner() {
            Some(what) => Err(what),
            None => Ok((done.into_inner() == keys.len()).then(|| kept.into_inner().results)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each run's figure is its key as a number, so that a result in the wrong place shows.
    fn figure(key: Key) -> Result<[f64; 1], String> {
        Ok([(key.0 * 100 + key.1 * 10) as f64 + key.2 as f64])
    }

    #[test]
    fn an_interrupted_campaign_continues_where_it_was() {
        let path = std::env::temp_dir().join(format!("intact-kept-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let keys = keys(3, 2, 4);
        assert_eq!((keys.len(), keys[0], keys[1], keys[6]), (24, (0, 0, 1), (0, 1, 1), (0, 0, 2)));
        // It is interrupted by a run that fails; then a line is cut short.
        let fails = |key: Key| if key.2 == 3 { Err("stop".to_owned()) } else { figure(key) };
        let first = Campaign { path: &path, until: None }.run(&keys, fails, |_, _| {});
        assert_eq!(first.unwrap_err(), "stop");
        let text = std::fs::read_to_string(&path).unwrap();
        // Behind the head each line is a result; the last one is cut.
        let whole = text.lines().count() - 2;
        std::fs::write(&path, text.strip_suffix('\n').unwrap().rsplit_once(' ').unwrap().0.to_owned() + "\n")
            .unwrap();
        let again = Mutex::new(Vec::new());
        let counted = |key: Key| {
            again.lock().push(key);
            figure(key)
        };
        let all = Campaign { path: &path, until: None }.run(&keys, counted, |_, _| {}).unwrap().unwrap();
        assert!(keys.iter().all(|key| all[key] == figure(*key).unwrap()));
        let again = again.into_inner();
        assert!(whole > 0 && again.len() == keys.len() - whole, "{whole} were there, and {again:?} ran");
        // There is nothing left to do, so the time does not matter; else it stops.
        let over = Campaign { path: &path, until: Some(Instant::now()) };
        assert!(over.run(&keys, figure, |_, _| {}).unwrap().is_some());
        assert!(over.run(&super::keys(3, 2, 5), figure, |_, _| {}).unwrap().is_none());
        // Results of another executable are dropped.
        std::fs::write(&path, "0000000000000000\n0 0 1 7\n").unwrap();
        let all = Campaign { path: &path, until: None }.run(&keys, figure, |_, _| {}).unwrap().unwrap();
        assert_eq!(all[&(0, 0, 1)], [1.0]);
        std::fs::remove_file(&path).unwrap();
    }
}
