//! Why there is no result.

use std::fmt;

/// Why there is no result, in words for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// What was asked for cannot be: the text says what can.
    Misused(String),
    /// The measurement failed, or found a wrong answer.
    Failed(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misused(what) | Self::Failed(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Failure {}

impl From<String> for Failure {
    fn from(what: String) -> Self {
        Self::Failed(what)
    }
}
