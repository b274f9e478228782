//! What was found out about the faults, kept in a file, and the score.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// What became of a fault.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// By the tests of its crate.
    Caught,
    /// By the tests of the crates above alone.
    CaughtAbove,
    /// It kept tests busy beyond their limit.
    OutOfTime,
    /// The tests of its crate passed; those of the crates above were not run yet.
    PassedOwn,
    /// All tests passed.
    Survived,
    /// It does not compile.
    NoProgram,
}

/// One result, a line of the file.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Entry {
    pub(super) fault: String,
    pub(super) verdict: Verdict,
    /// The program of tests that noticed it, and the first test that failed.
    #[serde(default)]
    pub(super) by: String,
    pub(super) commit: String,
}

/// All results. They are written as they come, so that an interrupted campaign goes on where it was.
pub(super) struct Record {
    file: File,
    entries: BTreeMap<String, Entry>,
}

impl Record {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let mut entries = BTreeMap::new();
        if path.exists() {
            for line in std::fs::read_to_string(path)?.lines() {
                // The last line of a campaign that was killed may be half a line.
                if let Ok(entry) = serde_json::from_str::<Entry>(line) {
                    entries.insert(entry.fault.clone(), entry);
                }
            }
        }
        let file = OpenOptions::new().create(true).append(true).open(path);
        Ok(Self { file: file.with_context(|| path.display().to_string())?, entries })
    }

    pub(super) fn add(&mut self, entry: Entry) -> Result<()> {
        let mut line = serde_json::to_string(&entry)?;
        line.insert(0, '\n');
        self.file.write_all(line.as_bytes())?;
        self.entries.insert(entry.fault.clone(), entry);
        Ok(())
    }

    pub(super) fn verdict(&self, fault: &str) -> Option<Verdict> {
        self.entries.get(fault).map(|entry| entry.verdict)
    }

    /// Whether a fault is to meet the tests of its crate: it never did, or it passed those of another commit.
    pub(super) fn wants_own(&self, fault: &str, commit: &str) -> bool {
        self.entries.get(fault).is_none_or(|entry| {
            matches!(entry.verdict, Verdict::PassedOwn | Verdict::Survived) && entry.commit != commit
        })
    }

    /// Whether a fault is to meet the tests of the crates above.
    pub(super) fn wants_above(&self, fault: &str, commit: &str) -> bool {
        self.entries.get(fault).is_some_and(|entry| match entry.verdict {
            Verdict::PassedOwn => true,
            Verdict::Survived => entry.commit != commit,
            _ => false,
        })
    }
}

/// The counts of a sample.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Score {
    pub(super) caught: usize,
    pub(super) caught_above: usize,
    pub(super) out_of_time: usize,
    pub(super) no_program: usize,
    /// Those that passed the tests of their crate and have not met those of the crates above.
    pub(super) half_tried: usize,
    pub(super) untried: usize,
    pub(super) survived: Vec<String>,
}

impl Score {
    pub(super) fn count(&mut self, fault: &str, verdict: Option<Verdict>) {
        match verdict {
            Some(Verdict::Caught) => self.caught += 1,
            Some(Verdict::CaughtAbove) => self.caught_above += 1,
            Some(Verdict::OutOfTime) => self.out_of_time += 1,
            Some(Verdict::NoProgram) => self.no_program += 1,
            Some(Verdict::PassedOwn) => self.half_tried += 1,
            Some(Verdict::Survived) => self.survived.push(fault.to_owned()),
            None => self.untried += 1,
        }
    }

    pub(super) fn noticed(&self) -> usize {
        self.caught + self.caught_above + self.out_of_time
    }

    /// The faults that compile and were tried.
    pub(super) fn viable(&self) -> usize {
        self.noticed() + self.half_tried + self.survived.len()
    }
}

/// The share of `hits` of `total` in percent, with the 95 % interval of Wilson: for a random sample the share of the whole is
/// within it.
pub(super) fn share(hits: usize, total: usize) -> (f64, f64, f64) {
    if total == 0 {
        return (0.0, 0.0, 100.0);
    }
    const Z: f64 = 1.959_964;
    let (hits, total) = (hits as f64, total as f64);
    let share = hits / total;
    let middle = share + Z * Z / (2.0 * total);
    let half = Z * (share * (1.0 - share) / total + Z * Z / (4.0 * total * total)).sqrt();
    let scale = 100.0 / (1.0 + Z * Z / total);
    (share * 100.0, (middle - half) * scale, (middle + half) * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(fault: &str, verdict: Verdict, commit: &str) -> Entry {
        Entry { fault: fault.to_owned(), verdict, by: String::new(), commit: commit.to_owned() }
    }

    #[test]
    fn a_campaign_goes_on_where_it_was() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results");
        let mut record = Record::open(&path).expect("made");
        record.add(entry("a", Verdict::PassedOwn, "1")).expect("written");
        record.add(entry("b", Verdict::Caught, "1")).expect("written");
        record.add(entry("a", Verdict::Survived, "1")).expect("written");
        let half = std::fs::read_to_string(&path).expect("there") + "\n{\"fault\": \"c";
        std::fs::write(&path, half).expect("written");
        let mut record = Record::open(&path).expect("read");
        assert_eq!(record.verdict("a"), Some(Verdict::Survived));
        assert_eq!(record.verdict("b"), Some(Verdict::Caught));
        assert_eq!(record.verdict("c"), None);
        record.add(entry("d", Verdict::Caught, "1")).expect("written");
        assert_eq!(Record::open(&path).expect("read").verdict("d"), Some(Verdict::Caught));
    }

    #[test]
    fn survivors_meet_the_tests_of_another_commit() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut record = Record::open(&folder.path().join("results")).expect("made");
        record.add(entry("survivor", Verdict::Survived, "1")).expect("written");
        record.add(entry("half", Verdict::PassedOwn, "1")).expect("written");
        record.add(entry("caught", Verdict::Caught, "1")).expect("written");
        let own = |commit| ["survivor", "half", "caught", "new"].map(|fault| record.wants_own(fault, commit));
        let above =
            |commit| ["survivor", "half", "caught", "new"].map(|fault| record.wants_above(fault, commit));
        assert_eq!((own("1"), above("1")), ([false, false, false, true], [false, true, false, false]));
        assert_eq!((own("2"), above("2")), ([true, true, false, true], [true, true, false, false]));
    }

    #[test]
    fn the_score_counts_what_compiles_and_was_tried() {
        let mut score = Score::default();
        let verdicts = [Verdict::Caught, Verdict::CaughtAbove, Verdict::OutOfTime, Verdict::PassedOwn];
        for verdict in verdicts.into_iter().chain([Verdict::Survived, Verdict::NoProgram]) {
            score.count("a", Some(verdict));
        }
        score.count("b", None);
        assert_eq!((score.noticed(), score.viable(), score.untried), (3, 5, 1));
    }

    #[test]
    fn the_interval_is_that_of_wilson() {
        // 215 of 257: 83.7 %, from 78.6 to 87.7.
        let (share_of, low, high) = share(215, 257);
        assert_eq!([share_of, low, high].map(|percent| (percent * 10.0).round()), [837.0, 786.0, 877.0]);
        let (_, low, high) = share(10, 10);
        assert_eq!([low, high].map(f64::round), [72.0, 100.0]);
        assert_eq!(share(0, 0), (0.0, 0.0, 100.0));
    }
}
