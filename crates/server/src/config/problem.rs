//! The problems of a configuration: where, which rule, and what to do. All problems are reported together.
//!
//! A line of a file that may contain a secret is never shown: see [`Source::new`].

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Longest part of a source line that is shown, characters.
const MAX_EXCERPT_CHARS: usize = 120;

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// A warning.
    Warning,
    /// The configuration cannot be used.
    Error,
}

/// One problem. `Display` writes it for human readers, over several lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Its severity.
    pub severity: Severity,
    /// The file; `None` for the command line.
    pub path: Option<PathBuf>,
    /// Line, from 1; 0 when there is no position in the file.
    pub line: usize,
    /// Column in characters, from 1; 0 when there is no position in the file.
    pub column: usize,
    /// What is wrong.
    pub what: String,
    /// The rule that is broken; empty when it is the form of the file.
    pub rule: Cow<'static, str>,
    /// What to do about it.
    pub remedy: String,
    /// The source line and how many characters of it are marked; absent when it may contain a secret.
    pub(super) excerpt: Option<(String, usize)>,
}

impl Problem {
    /// An error without a position in a file.
    pub fn new(
        what: impl Into<String>,
        rule: impl Into<Cow<'static, str>>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Error,
            path: None,
            line: 0,
            column: 0,
            what: what.into(),
            rule: rule.into(),
            remedy: remedy.into(),
            excerpt: None,
        }
    }

    /// Whether the configuration cannot be used because of it.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = if self.is_error() { "error" } else { "warning" };
        write!(f, "{severity}: {}", self.what)?;
        let width = self.line.max(1).ilog10() as usize + 1;
        if let Some(path) = &self.path {
            write!(f, "\n{:width$}--> {}", "", path.display())?;
            if self.line > 0 {
                write!(f, ":{}:{}", self.line, self.column)?;
            }
        }
        if let Some((line, chars)) = &self.excerpt {
            let indent = self.column.saturating_sub(1);
            let marks = "^".repeat(*chars);
            write!(f, "\n{:width$} |\n{} | {line}\n{:width$} | {:indent$}{marks}", "", self.line, "", "")?;
        }
        if !self.remedy.is_empty() {
            write!(f, "\n{:width$} = remedy: {}", "", self.remedy)?;
        }
        if !self.rule.is_empty() {
            write!(f, "\n{:width$} = rule: {}", "", self.rule)?;
        }
        Ok(())
    }
}

/// A text with the positions of its lines, and the problems found in it.
pub(super) struct Source<'a> {
    path: &'a Path,
    text: &'a str,
    /// Whether lines may be shown.
    shown: bool,
    pub(super) problems: Vec<Problem>,
}

impl<'a> Source<'a> {
    //= rfc7143 9.2.1 SEC-15
    pub(super) fn new(path: &'a Path, text: &'a str) -> Self {
        // A secret written into the file is rejected, but it is still a secret, and it may be on any line of a broken
        // file. So no line of such a file is repeated.
        Self { path, text, shown: !holds_secret(text), problems: Vec::new() }
    }

    /// The directory that paths in the file are relative to.
    pub(super) fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    pub(super) fn error(
        &mut self,
        at: &Range<usize>,
        what: impl Into<String>,
        rule: impl Into<Cow<'static, str>>,
        remedy: impl Into<String>,
    ) {
        let problem = self.place(at, Problem::new(what, rule, remedy));
        self.problems.push(problem);
    }

    /// Like [`Source::error`], without repeating the line.
    pub(super) fn error_hidden(
        &mut self,
        at: &Range<usize>,
        what: impl Into<String>,
        rule: impl Into<Cow<'static, str>>,
        remedy: impl Into<String>,
    ) {
        let problem = self.place(at, Problem::new(what, rule, remedy));
        self.problems.push(Problem { excerpt: None, ..problem });
    }

    pub(super) fn warn(
        &mut self,
        at: &Range<usize>,
        what: impl Into<String>,
        rule: impl Into<Cow<'static, str>>,
        remedy: impl Into<String>,
    ) {
        let problem = Problem { severity: Severity::Warning, ..Problem::new(what, rule, remedy) };
        let problem = self.place(at, problem);
        self.problems.push(problem);
    }

    fn place(&self, at: &Range<usize>, problem: Problem) -> Problem {
        let start = floor(self.text, at.start);
        let line_start = self.text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = self.text[start..].find('\n').map_or(self.text.len(), |length| start + length);
        let end = floor(self.text, at.end.clamp(start, line_end));
        let line = self.text[line_start..line_end].trim_end();
        let column = self.text[line_start..start].chars().count() + 1;
        let excerpt = (self.shown && column <= MAX_EXCERPT_CHARS).then(|| {
            let plain = |c: char| if c == '\t' || c.is_control() { ' ' } else { c };
            let chars = self.text[start..end].trim_end().chars().count().max(1);
            (
                line.chars().take(MAX_EXCERPT_CHARS).map(plain).collect(),
                chars.min(MAX_EXCERPT_CHARS + 1 - column),
            )
        });
        Problem {
            path: Some(self.path.to_owned()),
            line: self.text[..line_start].matches('\n').count() + 1,
            column,
            excerpt,
            ..problem
        }
    }
}

/// The last character boundary that is not beyond `index`.
fn floor(text: &str, index: usize) -> usize {
    (0..=index.min(text.len())).rev().find(|index| text.is_char_boundary(*index)).unwrap_or(0)
}

/// Whether the text itself contains something that looks like a secret or password.
fn holds_secret(text: &str) -> bool {
    let is_key = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '"' | '\'' | ' ' | '\t');
    text.match_indices('=').any(|(at, _)| {
        let before = &text[..at];
        let key = &before[before
            .rfind(|c| !is_key(c))
            .map_or(0, |i| i + before[i..].chars().next().map_or(1, char::len_utf8))..];
        let key = key.trim_matches([' ', '\t', '"', '\'']).to_lowercase();
        (key.contains("secret") || key.contains("pass"))
            && !key.ends_with("secret_file")
            && !key.ends_with("secret_env")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_shows_its_place() {
        let mut source = Source::new(Path::new("a.toml"), "one = 1\n  twö = 22 # x\n");
        source.error(&(10..14), "what", "rule", "remedy");
        source.warn(&(999..1000), "late", "", "");
        assert_eq!(
            source.problems[0].to_string(),
            "error: what\n --> a.toml:2:3\n  |\n2 |   twö = 22 # x\n  |   ^^^\n  = remedy: remedy\n  = rule: rule"
        );
        assert!(source.problems[1].to_string().starts_with("warning: late\n --> a.toml:3:1"));
    }

    #[test]
    fn long_lines_and_control_characters_are_cut() {
        let text = format!("{}\u{1b}[31m{}", "a".repeat(50), "b".repeat(1000));
        let mut source = Source::new(Path::new("a.toml"), &text);
        source.error(&(0..text.len()), "what", "", "");
        source.error(&(900..901), "what", "", "");
        let shown = source.problems[0].to_string();
        assert!(!shown.contains('\u{1b}') && shown.len() < 400, "{shown}");
        assert!(!source.problems[1].to_string().contains('b'));
    }

    // covers: SEC-15
    #[test]
    fn files_with_secrets_are_not_shown() {
        for text in [
            "secret = \"x\"",
            "a = { name = 1, \"Secret\" = \"x\" }",
            "password=\"x\"",
            "chap.secret = \"x\"",
            "ö secret = 1",
            "chap_secret\t= 1",
            "secret_file = \"a\"\nsecret = 1",
        ] {
            assert!(holds_secret(text), "{text}");
        }
        for text in
            ["secret_file = \"x\"", "secret_env = \"x\"", "# a secret\na = 1", "name = \"secret\"", "="]
        {
            assert!(!holds_secret(text), "{text}");
        }
    }
}
