//! `--state FILE`: how far a copy has come, so that `--resume` continues it.
//!
//! The file is JSON: a version, the copy, and a CRC32C of the copy as it is written here. Everything below `copied_bytes` was
//! flushed at the destination before the file said so, and the file is replaced as a whole
//! ([`side_file`]). So what it says holds after a loss of power at any moment. What is beyond may be at the
//! destination or not; it is copied again.

use std::path::{Path, PathBuf};

use blockstore::side_file;
use serde::{Deserialize, Serialize};

use super::identity::Identity;

/// The version of the format that is written, and the only one that is read.
const VERSION: u64 = 1;
/// Most bytes of a state file; what is written has less than a tenth of it.
const MAX_FILE_BYTES: u64 = 16 * 1024;
const REMEDY: &str = "remedy: remove the file to copy from the beginning";

/// A copy that is not complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    source: Identity,
    destination: Identity,
    changed_only: bool,
    /// All bytes before this one are at the destination and flushed.
    copied_bytes: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    version: u64,
    /// Of `copy` as JSON without spaces, eight hexadecimal digits.
    crc32c: String,
    copy: State,
}

impl State {
    /// A copy that has not begun.
    pub fn new(source: Identity, destination: Identity, changed_only: bool) -> Self {
        Self { source, destination, changed_only, copied_bytes: 0 }
    }

    /// Whether `self`, which was found in a file, can be continued by the copy `now`.
    ///
    /// # Errors
    /// Every difference, a line each.
    pub fn check(&self, now: &Self) -> Result<(), String> {
        let mut differences = Vec::new();
        let mut side = |what: &str, then: &Identity, now: &Identity| {
            if then != now {
                differences.push(format!("the {what} was {then}\n    and is now {now}"));
            }
        };
        side("source", &self.source, &now.source);
        side("destination", &self.destination, &now.destination);
        if self.changed_only != now.changed_only {
            let word = |changed_only| if changed_only { "with" } else { "without" };
            let (then, now) = (word(self.changed_only), word(now.changed_only));
            differences.push(format!("it was begun {then} --changed-only, and this one is {now}"));
        }
        match differences.is_empty() {
            true => Ok(()),
            false => Err(format!("the state is of another copy:\n  {}", differences.join("\n  "))),
        }
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let damaged = |why: &dyn std::fmt::Display| format!("it is damaged, or no state of a copy: {why}");
        let value: serde_json::Value = serde_json::from_slice(bytes).map_err(|error| damaged(&error))?;
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(VERSION) => {}
            Some(other) => return Err(format!("it has version {other}; this program knows {VERSION}")),
            None => return Err(damaged(&"it has no version")),
        }
        let Envelope { crc32c, copy, .. } = serde_json::from_value(value).map_err(|error| damaged(&error))?;
        if crc32c != copy.digest() {
            return Err(damaged(&"its CRC32C is not that of its contents"));
        }
        if copy.copied_bytes > copy.source.bytes() {
            return Err(damaged(&"it says that more was copied than there is"));
        }
        Ok(copy)
    }

    fn digest(&self) -> String {
        let text = serde_json::to_vec(self).expect("strings and numbers have a form as JSON");
        format!("{:08x}", integrity::crc32c(&text))
    }

    fn to_text(&self) -> String {
        let envelope = Envelope { version: VERSION, crc32c: self.digest(), copy: self.clone() };
        serde_json::to_string(&envelope).expect("strings and numbers have a form as JSON") + "\n"
    }
}

/// The state in `path`, `None` if there is no such file.
///
/// # Errors
/// The file cannot be read, is damaged, or is of an unknown version.
pub fn load(path: &Path) -> Result<Option<State>, String> {
    let failed = |why: &dyn std::fmt::Display| format!("the state {}: {why}\n  {REMEDY}", path.display());
    match side_file::read(path, MAX_FILE_BYTES) {
        Ok(None) => Ok(None),
        Ok(Some(bytes)) => State::parse(&bytes).map(Some).map_err(|error| failed(&error)),
        Err(error) => Err(failed(&error)),
    }
}

/// The state of a copy under way, and its file.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    state: State,
}

impl Checkpoint {
    /// Writes the first state, or continues `found`, which must be of the copy `now`.
    ///
    /// # Errors
    /// `found` is of another copy; the file cannot be written.
    pub fn begin(path: &Path, found: Option<State>, now: State) -> Result<Self, String> {
        match found {
            Some(found) => {
                found.check(&now).map_err(|why| format!("{}: {why}\n  {REMEDY}", path.display()))?;
                Ok(Self { path: path.to_owned(), state: found })
            }
            None => {
                let checkpoint = Self { path: path.to_owned(), state: now };
                checkpoint.save()?;
                Ok(checkpoint)
            }
        }
    }

    pub fn copied_bytes(&self) -> u64 {
        self.state.copied_bytes
    }

    /// Everything before `copied_bytes` is at the destination, and was flushed there.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn advance(&mut self, copied_bytes: u64) -> Result<(), String> {
        self.state.copied_bytes = copied_bytes;
        self.save()
    }

    /// The copy is complete, or was found to be wrong: it cannot be continued.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove(&self) -> Result<(), String> {
        side_file::remove(&self.path)
            .map_err(|error| format!("the state {} cannot be removed: {error}", self.path.display()))
    }

    fn save(&self) -> Result<(), String> {
        side_file::replace(&self.path, self.state.to_text().as_bytes())
            .map_err(|error| format!("the state {} cannot be written: {error}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(name: &str, bytes: u64) -> Identity {
        let text = format!(r#"{{"name":"{name}","bytes":{bytes},"block_bytes":512,"protection":"none"}}"#);
        serde_json::from_str(&text).unwrap()
    }

    fn state() -> State {
        State { copied_bytes: 4096, ..State::new(side("naa.6001", 8192), side("naa.6002", 16384), false) }
    }

    #[test]
    fn what_is_written_is_read_and_any_damage_is_noticed() {
        let text = state().to_text();
        assert_eq!(State::parse(text.as_bytes()), Ok(state()));
        for n in 0..text.len() - 1 {
            assert!(State::parse(&text.as_bytes()[..n]).is_err(), "cut at {n}");
        }
        for at in 0..text.len() - 1 {
            for bit in 0..8 {
                let mut damaged = text.clone().into_bytes();
                damaged[at] ^= 1 << bit;
                assert!(State::parse(&damaged).is_err(), "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn another_version_is_refused_by_its_number() {
        let text = state().to_text().replace("\"version\":1", "\"version\":2");
        assert!(State::parse(text.as_bytes()).unwrap_err().contains("version 2"));
        let beyond = State { copied_bytes: 8193, ..state() }.to_text();
        assert!(State::parse(beyond.as_bytes()).unwrap_err().contains("more was copied"));
    }

    #[test]
    fn every_difference_to_the_copy_is_named() {
        assert_eq!(state().check(&State { copied_bytes: 0, ..state() }), Ok(()));
        let others = [
            (State { source: side("naa.6003", 8192), ..state() }, "source"),
            (State { source: side("naa.6001", 4096), ..state() }, "source"),
            (State { destination: side("naa.6003", 16384), ..state() }, "destination"),
            (State { changed_only: true, ..state() }, "--changed-only"),
        ];
        for (other, what) in others {
            let why = state().check(&other).unwrap_err();
            assert!(why.contains(what), "{why}");
        }
        let all = State::new(side("a", 1), side("b", 1), true);
        assert_eq!(state().check(&all).unwrap_err().matches("now").count(), 2);
    }
}
