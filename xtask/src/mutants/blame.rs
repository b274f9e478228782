//! Which planted faults an error of the compiler speaks of.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde::Deserialize;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Expr, ExprCall, ExprIf, Lit, Stmt};

use super::list::Place;
use super::rewrite::{MODULE, place};

/// An error of the compiler.
#[derive(Debug, Deserialize)]
pub(super) struct CompilerError {
    pub(super) level: String,
    code: Option<Code>,
    pub(super) spans: Vec<ErrorSpan>,
    #[serde(default)]
    pub(super) message: String,
}

#[derive(Debug, Deserialize)]
struct Code {
    code: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct ErrorSpan {
    /// From the root of the workspace.
    pub(super) file_name: String,
    line_start: usize,
    column_start: usize,
    is_primary: bool,
}

/// Errors that may come from writing both variants next to each other and not from the fault: types that are inferred from what
/// follows, and borrows that a variant holds.
const OF_THE_FORM: [&str; 9] =
    ["E0282", "E0283", "E0284", "E0382", "E0499", "E0502", "E0505", "E0506", "E0716"];

impl CompilerError {
    /// The places it names in a file, the most telling one first.
    pub(super) fn places(&self) -> impl Iterator<Item = (&str, Place)> {
        let (primary, other): (Vec<_>, Vec<_>) = self.spans.iter().partition(|span| span.is_primary);
        primary
            .into_iter()
            .chain(other)
            .map(|span| (span.file_name.as_str(), Place { line: span.line_start, column: span.column_start }))
    }

    fn is_of_the_form(&self) -> bool {
        self.code.as_ref().is_none_or(|code| OF_THE_FORM.contains(&code.code.as_str()))
    }
}

/// What an error says about faults.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// The fault itself is no program: cargo-mutants could not compile it either.
    NoProgram(u32),
    /// These faults cannot be written with a switch.
    NoSwitch(BTreeSet<u32>),
}

/// Where the faults of a rewritten file are.
#[derive(Default)]
pub(super) struct Sites {
    /// What stands there with the fault.
    variants: Vec<(Range, u32)>,
    /// Every expression and statement that has a switch in it.
    around: Vec<(Range, u32)>,
    /// The expressions and statements that the visit is in.
    open: Vec<Range>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: Place,
    end: Place,
}

impl Range {
    fn of(node: &impl Spanned) -> Self {
        let span = node.span();
        Self { start: place(span.start()), end: place(span.end()) }
    }

    fn contains(&self, at: Place) -> bool {
        self.start <= at && at < self.end
    }

    /// Whether it is inside of `other`.
    fn is_within(&self, other: &Self) -> bool {
        other.start <= self.start && self.end <= other.end
    }
}

impl Sites {
    pub(super) fn of(text: &str) -> Result<Self> {
        let file = syn::parse_file(text).context("syn, on the rewritten file")?;
        let mut sites = Self::default();
        sites.visit_file(&file);
        Ok(sites)
    }

    /// The faults behind an error at `at`, if any is near.
    pub(super) fn blame(&self, error: &CompilerError, at: Place) -> Option<Blame> {
        if let Some(number) = innermost(&self.variants, at).into_iter().next() {
            return Some(if error.is_of_the_form() {
                Blame::NoSwitch([number].into())
            } else {
                Blame::NoProgram(number)
            });
        }
        let near = innermost(&self.around, at);
        (!near.is_empty()).then_some(Blame::NoSwitch(near))
    }
}

/// The faults of the smallest range that contains `at`.
fn innermost(ranges: &[(Range, u32)], at: Place) -> BTreeSet<u32> {
    let mut smallest: Option<Range> = None;
    for (range, _) in ranges.iter().filter(|(range, _)| range.contains(at)) {
        if smallest.is_none_or(|smallest| range.is_within(&smallest)) {
            smallest = Some(*range);
        }
    }
    ranges.iter().filter(|(range, _)| Some(*range) == smallest).map(|&(_, number)| number).collect()
}

/// The number of the fault, if this expression is its switch.
fn switched(expr: &Expr) -> Option<u32> {
    let Expr::Call(ExprCall { func, args, .. }) = expr else { return None };
    let Expr::Path(path) = &**func else { return None };
    let mut names = path.path.segments.iter().rev();
    let is_switch = names.next().is_some_and(|name| name.ident == "on")
        && names.next().is_some_and(|name| name.ident == MODULE);
    match args.first() {
        Some(Expr::Lit(number)) if is_switch => match &number.lit {
            Lit::Int(number) => number.base10_parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

impl<'ast> Visit<'ast> for Sites {
    fn visit_expr(&mut self, expr: &'ast Expr) {
        if let Some(number) = switched(expr) {
            self.around.extend(self.open.iter().map(|&range| (range, number)));
            return;
        }
        self.open.push(Range::of(expr));
        visit::visit_expr(self, expr);
        self.open.pop();
    }

    fn visit_stmt(&mut self, stmt: &'ast Stmt) {
        self.open.push(Range::of(stmt));
        visit::visit_stmt(self, stmt);
        self.open.pop();
    }

    fn visit_expr_if(&mut self, expr: &'ast ExprIf) {
        if let Some(number) = switched(&expr.cond) {
            self.variants.push((Range::of(&expr.then_branch), number));
        }
        visit::visit_expr_if(self, expr);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "fn f() -> u32 {
    if crate::planted_faults::on(1u32) { return wrong; }
    match (left, right) { (a, b) => if crate::planted_faults::on(2u32) { a - b } else { a + b } }
}";

    fn error(code: &str) -> CompilerError {
        let text = format!(r#"{{"level": "error", "code": {{"code": "{code}"}}, "spans": []}}"#);
        serde_json::from_str(&text).expect("right")
    }

    #[test]
    fn an_error_in_the_variant_is_the_faults_own() {
        let sites = Sites::of(TEXT).expect("parsed");
        let at = Place { line: 2, column: 49 };
        assert_eq!(sites.blame(&error("E0308"), at), Some(Blame::NoProgram(1)));
        assert_eq!(sites.blame(&error("E0282"), at), Some(Blame::NoSwitch([1].into())));
    }

    #[test]
    fn an_error_around_the_variants_is_of_the_form() {
        let sites = Sites::of(TEXT).expect("parsed");
        let left = Place { line: 3, column: 12 };
        assert_eq!(sites.blame(&error("E0308"), left), Some(Blame::NoSwitch([2].into())));
        assert_eq!(sites.blame(&error("E0308"), Place { line: 1, column: 4 }), None);
    }
}
