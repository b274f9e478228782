//! Reads tables of a TOML document key by key. A key that is never read is unknown, and reported with the nearest known
//! name.
//!
//! A problem does not stop the reading: an unusable value is reported and treated as absent.

use std::ops::{Range, RangeInclusive};

use blockstore::parse_size;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::Source;

/// Maximum number of names listed in a remedy.
const MAX_NAMES_LISTED: usize = 24;
/// How similar two names must be for one to be suggested for the other, from 0 to 1.
const SUGGEST_ABOVE: f64 = 0.7;

/// A value with its position.
pub(super) type At<T> = (T, Range<usize>);

/// A table that is being read.
pub(super) struct Section<'t> {
    /// Its name in the file, for messages; empty at the top.
    name: String,
    /// Its start.
    pub(super) at: Range<usize>,
    entries: Vec<(String, Range<usize>, Spanned<DeValue<'t>>)>,
    known: Vec<&'static str>,
    /// The keys of `known` that were present, whatever their values.
    found: Vec<&'static str>,
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

impl<'t> Section<'t> {
    pub(super) fn top(table: Spanned<DeTable<'t>>) -> Self {
        let at = 0..0;
        Self::new(String::new(), at, table.into_inner())
    }

    fn new(name: String, at: Range<usize>, table: DeTable<'t>) -> Self {
        let entries = table
            .into_iter()
            .map(|(key, value)| (key.get_ref().clone().into_owned(), key.span(), value))
            .collect();
        Self { name, at, entries, known: Vec::new(), found: Vec::new() }
    }

    fn take(&mut self, key: &'static str) -> Option<At<DeValue<'t>>> {
        self.known.push(key);
        let index = self.entries.iter().position(|(name, _, _)| name == key)?;
        self.found.push(key);
        let (_, _, value) = self.entries.swap_remove(index);
        let span = value.span();
        Some((value.into_inner(), span))
    }

    /// Takes a value that `read` can convert; reports a value of another kind.
    fn typed<T>(
        &mut self,
        source: &mut Source<'_>,
        key: &'static str,
        wanted: &str,
        read: impl FnOnce(DeValue<'t>) -> Result<T, DeValue<'t>>,
    ) -> Option<At<T>> {
        let (value, at) = self.take(key)?;
        match read(value) {
            Ok(value) => Some((value, at)),
            Err(value) => {
                let what = format!("`{key}` is {}", kind(&value));
                source.error(&at, what, "", format!("write {wanted}"));
                None
            }
        }
    }

    pub(super) fn text(&mut self, source: &mut Source<'_>, key: &'static str) -> Option<At<String>> {
        self.typed(source, key, "a text in quotes", |value| match value {
            DeValue::String(text) => Ok(text.into_owned()),
            other => Err(other),
        })
    }

    pub(super) fn boolean(&mut self, source: &mut Source<'_>, key: &'static str) -> Option<bool> {
        let read = |value| match value {
            DeValue::Boolean(value) => Ok(value),
            other => Err(other),
        };
        self.typed(source, key, "true or false, without quotes", read).map(|(value, _)| value)
    }

    /// A text, or `false` for "none".
    pub(super) fn text_or_false(
        &mut self,
        source: &mut Source<'_>,
        key: &'static str,
    ) -> Option<At<Option<String>>> {
        self.typed(source, key, "a text in quotes, or false", |value| match value {
            DeValue::String(text) => Ok(Some(text.into_owned())),
            DeValue::Boolean(false) => Ok(None),
            other => Err(other),
        })
    }

    /// A whole number in `range`.
    pub(super) fn number(
        &mut self,
        source: &mut Source<'_>,
        key: &'static str,
        range: RangeInclusive<u64>,
        rule: &'static str,
    ) -> Option<u64> {
        let (number, at) = self.typed(source, key, "a whole number", |value| match value {
            DeValue::Integer(number) => Ok(integer(&number)),
            other => Err(other),
        })?;
        in_range(source, key, number, at, range, rule)
    }

    /// A number of bytes in `range`: a number, or a text such as "256K".
    pub(super) fn size(
        &mut self,
        source: &mut Source<'_>,
        key: &'static str,
        range: RangeInclusive<u64>,
        rule: &'static str,
    ) -> Option<u64> {
        let wanted = "a number of bytes, or a size in quotes such as \"256K\"";
        let (number, at) = self.typed(source, key, wanted, |value| match value {
            DeValue::Integer(number) => Ok(Ok(integer(&number))),
            DeValue::String(text) => Ok(parse_size(&text).map(Some)),
            other => Err(other),
        })?;
        match number {
            Ok(number) => in_range(source, key, number, at, range, rule),
            Err(error) => {
                source.error(&at, error.to_string(), "", format!("write {wanted}"));
                None
            }
        }
    }

    /// A list of texts; `None` when the key is absent or not a list.
    pub(super) fn texts(&mut self, source: &mut Source<'_>, key: &'static str) -> Option<Vec<At<String>>> {
        let (items, _) =
            self.typed(source, key, "a list of texts: [\"...\", \"...\"]", |value| match value {
                DeValue::Array(items) => Ok(items),
                other => Err(other),
            })?;
        let mut texts = Vec::new();
        for item in items {
            let at = item.span();
            match item.into_inner() {
                DeValue::String(text) => texts.push((text.into_owned(), at)),
                other => {
                    source.error(&at, format!("`{key}` holds {}", kind(&other)), "", "write texts in quotes");
                }
            }
        }
        Some(texts)
    }

    /// A list of numbers.
    pub(super) fn numbers(
        &mut self,
        source: &mut Source<'_>,
        key: &'static str,
        range: RangeInclusive<u64>,
        rule: &'static str,
    ) -> Option<Vec<At<u64>>> {
        let (items, _) = self.typed(source, key, "a list of numbers: [1, 2]", |value| match value {
            DeValue::Array(items) => Ok(items),
            other => Err(other),
        })?;
        let mut numbers = Vec::new();
        for item in items {
            let at = item.span();
            match item.into_inner() {
                DeValue::Integer(number) => {
                    let number = in_range(source, key, integer(&number), at.clone(), range.clone(), rule);
                    numbers.extend(number.map(|number| (number, at)));
                }
                other => source.error(&at, format!("`{key}` holds {}", kind(&other)), "", "write numbers"),
            }
        }
        Some(numbers)
    }

    fn name_of(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    /// A table below this one.
    pub(super) fn table(&mut self, source: &mut Source<'_>, key: &'static str) -> Option<Section<'t>> {
        let name = self.name_of(key);
        let wanted = format!("a table: a line [{name}] and its keys below");
        let (table, at) = self.typed(source, key, &wanted, |value| match value {
            DeValue::Table(table) => Ok(table),
            other => Err(other),
        })?;
        Some(Section::new(name, at, table))
    }

    /// Tables below this one, in order.
    pub(super) fn tables(&mut self, source: &mut Source<'_>, key: &'static str) -> Vec<Section<'t>> {
        let name = self.name_of(key);
        let wanted = format!("a line [[{name}]] with double brackets, and its keys below");
        let items = self.typed(source, key, &wanted, |value| match value {
            DeValue::Array(items) => Ok(items),
            other => Err(other),
        });
        let mut sections = Vec::new();
        for item in items.map(|(items, _)| items).into_iter().flatten() {
            let at = item.span();
            match item.into_inner() {
                DeValue::Table(table) => sections.push(Section::new(name.clone(), at, table)),
                other => {
                    source.error(
                        &at,
                        format!("`{key}` holds {}", kind(&other)),
                        "",
                        format!("write {wanted}"),
                    );
                }
            }
        }
        sections
    }

    /// Takes a key that must not be present, whatever its value.
    pub(super) fn forbidden(&mut self, key: &'static str) -> Option<Range<usize>> {
        let index = self.entries.iter().position(|(name, _, _)| name == key)?;
        Some(self.entries.swap_remove(index).1)
    }

    /// Reports a required key that is absent. A key with an unusable value has already been reported.
    pub(super) fn missing(&self, source: &mut Source<'_>, key: &str, remedy: &str) {
        if !self.found.contains(&key) {
            source.error(&self.at, format!("{} has no `{key}`", self.place()), "", remedy);
        }
    }

    /// Reports a list that must not be empty.
    pub(super) fn empty(&self, source: &mut Source<'_>, key: &str, remedy: &str) {
        source.error(&self.at, format!("`{key}` of {} is an empty list", self.place()), "", remedy);
    }

    fn place(&self) -> String {
        if self.name.is_empty() { "the file".to_owned() } else { format!("[{}]", self.name) }
    }

    /// Reports keys that were never read.
    pub(super) fn finish(self, source: &mut Source<'_>) {
        let place = self.place();
        for (key, at, _) in &self.entries {
            let nearest = self
                .known
                .iter()
                .map(|name| (strsim::jaro_winkler(key, name), *name))
                .max_by(|a, b| a.0.total_cmp(&b.0))
                .filter(|(likeness, _)| *likeness > SUGGEST_ABOVE);
            let mut names = self.known.clone();
            names.sort_unstable();
            names.truncate(MAX_NAMES_LISTED);
            let remedy = match nearest {
                Some((_, name)) => format!("did you mean `{name}`? Otherwise remove it"),
                None => format!("remove it; {place} may have {}", names.join(", ")),
            };
            let shown: String = key.chars().take(64).flat_map(char::escape_debug).collect();
            source.error(at, format!("`{shown}` is no key of {place}"), "", remedy);
        }
    }
}

/// The value, if it is not negative and fits.
fn integer(number: &toml::de::DeInteger<'_>) -> Option<u64> {
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

fn in_range(
    source: &mut Source<'_>,
    key: &str,
    number: Option<u64>,
    at: Range<usize>,
    range: RangeInclusive<u64>,
    rule: &'static str,
) -> Option<u64> {
    match number.filter(|number| range.contains(number)) {
        Some(number) => Some(number),
        None => {
            let remedy = format!("write a number from {} to {}", range.start(), range.end());
            source.error(&at, format!("`{key}` is out of range"), rule, remedy);
            None
        }
    }
}
