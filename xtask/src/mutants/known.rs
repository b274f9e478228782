//! Known survivors: the name that cargo-mutants gives them, without the position in the file, and the reason why no test can or need
//! notice them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::list::placeless;

/// Where they are listed.
pub(super) const FILE: &str = "conformance/mutants.toml";

#[derive(Default)]
pub(super) struct Known(BTreeMap<String, String>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownFile {
    #[serde(default)]
    survivor: Vec<Survivor>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Survivor {
    mutant: String,
    reason: String,
}

impl Known {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Self> {
        let file: KnownFile = toml::from_str(text)?;
        let mut known = BTreeMap::new();
        for Survivor { mutant, reason } in file.survivor {
            ensure!(!reason.trim().is_empty(), "`{mutant}` has no reason");
            ensure!(placeless(&mutant) == mutant, "`{mutant}`: leave out line and column, they change");
            ensure!(known.insert(mutant.clone(), reason).is_none(), "`{mutant}` is there twice");
        }
        Ok(Self(known))
    }

    pub(super) fn contains(&self, fault: &str) -> bool {
        self.0.contains_key(&placeless(fault))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_survivor_is_known_by_its_file_and_what_was_changed() {
        let known = "[[survivor]]\nmutant = \"a.rs: replace f with ()\"\nreason = \"only logs\"";
        let known = Known::parse(known).expect("right");
        assert!(known.contains("a.rs:12:5: replace f with ()"));
        assert!(!known.contains("b.rs:12:5: replace f with ()"));
        assert!(!known.contains("a.rs:12:5: replace g with ()"));
    }

    #[test]
    fn a_known_survivor_needs_a_reason_and_no_place() {
        let parse = |mutant: &str, reason: &str| {
            Known::parse(&format!("[[survivor]]\nmutant = \"{mutant}\"\nreason = \"{reason}\""))
        };
        assert!(parse("a.rs: replace f with ()", "only logs").is_ok());
        assert!(parse("a.rs: replace f with ()", " ").is_err());
        assert!(parse("a.rs:1:2: replace f with ()", "only logs").is_err());
        assert!(Known::parse("").is_ok());
    }
}
