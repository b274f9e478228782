//! `conformance/scope.toml`: the rows that must have code and a test now, and the excluded ones with the
//! reason.

use serde::Deserialize;

use super::table::{Row, section};

/// The rows that must be covered.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scope {
    /// Whole sections, such as `NUM`.
    pub sections: Vec<String>,
    /// Single rows of other sections.
    #[serde(default)]
    pub rows: Vec<String>,
    /// Rows of those sections that are not required.
    #[serde(default)]
    pub excluded: Vec<Excluded>,
}

/// A row, or one of its two duties, that is not required.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Excluded {
    pub row: String,
    /// The duty that is not required; `None`: both.
    #[serde(default)]
    pub only: Option<Duty>,
    pub reason: String,
}

/// What a row in scope must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Duty {
    Code,
    Test,
}

impl Scope {
    /// Whether `id` must have `duty`.
    pub fn demands(&self, id: &str, duty: Duty) -> bool {
        self.contains(id)
            && !self.excluded.iter().any(|out| out.row == id && out.only.is_none_or(|only| only == duty))
    }

    /// Whether `id` is in scope, excluded or not.
    pub fn contains(&self, id: &str) -> bool {
        self.sections.iter().any(|name| name == section(id)) || self.rows.iter().any(|row| row == id)
    }

    /// Why `id` is excluded with both duties, if it is.
    pub fn reason(&self, id: &str) -> Option<&str> {
        self.excluded.iter().find(|out| out.row == id && out.only.is_none()).map(|out| out.reason.as_str())
    }

    /// The errors in the file itself.
    pub fn problems(&self, rows: &[Row]) -> Vec<String> {
        let mut problems = Vec::new();
        for name in &self.sections {
            if !rows.iter().any(|row| section(&row.id) == name) {
                problems.push(format!("scope.toml: there is no section {name}"));
            }
        }
        for id in self.rows.iter().chain(self.excluded.iter().map(|out| &out.row)) {
            if !rows.iter().any(|row| row.id == *id) {
                problems.push(format!("scope.toml: there is no row {id}"));
            }
        }
        for out in &self.excluded {
            if !self.contains(&out.row) {
                problems.push(format!("scope.toml: {} is excluded but not in scope anyway", out.row));
            }
            if out.reason.trim().is_empty() {
                problems.push(format!("scope.toml: {} is excluded without a reason", out.row));
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exclusion_of_a_row_and_of_half_a_row() {
        let scope: Scope = toml::from_str(
            "sections = ['AB']\nrows = ['CD-01']\n[[excluded]]\nrow = 'AB-01'\nreason = 'r'\n\
             [[excluded]]\nrow = 'AB-02'\nonly = 'code'\nreason = 'r'\n",
        )
        .unwrap();
        assert!(!scope.demands("AB-01", Duty::Test));
        assert!(scope.demands("AB-02", Duty::Test) && !scope.demands("AB-02", Duty::Code));
        assert!(scope.demands("CD-01", Duty::Code) && !scope.demands("CD-02", Duty::Code));
    }
}
