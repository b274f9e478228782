//! Three limits that may only fall: functions of more than 70 lines, structs that expose more than twelve of their fields beyond
//! their file, and files that import each other (see `cycles`). Items above a limit are listed in `xtask/ratchets.toml` with their figure. A new item above the limit is rejected,
//! and so is a figure that grew. If a figure fell, it must be lowered there, so that it cannot grow again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::Finding;
use crate::rust_source::{SourceFile, item_end, line_of};

/// The file with the figures.
const FILE: &str = "xtask/ratchets.toml";
/// Lines of a function, from `fn` to its closing brace.
const MAX_FUNCTION_LINES: usize = 70;
/// Fields of a struct that are visible to other files.
const MAX_VISIBLE_FIELDS: usize = 12;

/// Figures above the limit, by the item's file and name: `"crates/a/src/b.rs name" = 71`. Those of cycles are by crate.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ceilings {
    function_lines: BTreeMap<String, usize>,
    visible_fields: BTreeMap<String, usize>,
    file_cycles: BTreeMap<String, usize>,
}

/// One item of a source file, with its figure.
#[derive(Debug, PartialEq, Eq)]
struct Item {
    name: String,
    /// Counted from 1.
    line: usize,
    figure: usize,
}

/// Checks all sources of the workspace against the committed figures.
pub fn check(root: &Path, sources: &[SourceFile]) -> Result<Vec<Finding>> {
    let text = std::fs::read_to_string(root.join(FILE)).context(FILE)?;
    let ceilings: Ceilings = toml::from_str(&text).context(FILE)?;
    let product = || sources.iter().filter(|file| file.path.starts_with("crates"));
    let mut findings = compare("lines of the function", MAX_FUNCTION_LINES, &ceilings.function_lines, || {
        product().flat_map(|file| functions(file).into_iter().map(|item| (file.path.clone(), item)))
    });
    findings.extend(compare("visible fields of", MAX_VISIBLE_FIELDS, &ceilings.visible_fields, || {
        product().flat_map(|file| structs(file).into_iter().map(|item| (file.path.clone(), item)))
    }));
    findings.extend(super::cycles::check(Path::new(FILE), &ceilings.file_cycles, sources));
    Ok(findings)
}

fn compare<I: Iterator<Item = (PathBuf, Item)>>(
    what: &str,
    bound: usize,
    ceilings: &BTreeMap<String, usize>,
    items: impl Fn() -> I,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    // If a file has several items with one name, the largest counts.
    let mut found: BTreeMap<String, (PathBuf, Item)> = BTreeMap::new();
    for (path, item) in items() {
        let name = format!("{} {}", path.display(), item.name);
        if found.get(&name).is_none_or(|(_, other)| other.figure < item.figure) {
            found.insert(name, (path, item));
        }
    }
    for (name, (path, item)) in &found {
        let (most, known) = (ceilings.get(name).copied().unwrap_or(bound), ceilings.contains_key(name));
        let figure = item.figure;
        let text = match figure {
            _ if figure > most => {
                format!("{figure} {what} `{}`, at most {most}: split it by concern", item.name)
            }
            _ if known && figure <= bound => {
                format!("`{name}` is within the bound now: take it out of {FILE}")
            }
            _ if known && figure < most => format!("`{name}` fell to {figure}: lower it in {FILE}"),
            _ => continue,
        };
        findings.push(Finding::error(path, item.line, text));
    }
    for name in ceilings.keys().filter(|name| !found.contains_key(*name)) {
        findings.push(Finding::error(Path::new(FILE), 0, format!("`{name}` is no more: take it out")));
    }
    findings
}

/// The code of a file as one text.
fn code_of(file: &SourceFile) -> Vec<char> {
    let lines: Vec<&str> = file.source.lines.iter().map(|line| line.code.as_str()).collect();
    lines.join("\n").chars().collect()
}

/// Items that start with the word `keyword` outside of tests: the name, the line, and the text up to the item's end.
fn items(file: &SourceFile, keyword: &str) -> Vec<(String, usize, String)> {
    let code = code_of(file);
    let is_ident = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for at in 0..code.len().saturating_sub(keyword.len()) {
        let here = &code[at..at + keyword.len()];
        let alone = at.checked_sub(1).is_none_or(|before| !is_ident(code[before]));
        if !alone || !here.iter().copied().eq(keyword.chars()) || code[at + keyword.len()] != ' ' {
            continue;
        }
        let name: String =
            code[at + keyword.len() + 1..].iter().copied().take_while(|c| is_ident(*c)).collect();
        let line = line_of(&code, at);
        if name.is_empty() || file.source.lines[line].test {
            continue;
        }
        let end = item_end(&code, at).min(code.len() - 1);
        found.push((name, line + 1, code[at..=end].iter().collect()));
    }
    found
}

fn functions(file: &SourceFile) -> Vec<Item> {
    let item =
        |(name, line, text): (String, usize, String)| Item { name, line, figure: text.lines().count() };
    items(file, "fn").into_iter().map(item).collect()
}

fn structs(file: &SourceFile) -> Vec<Item> {
    let item =
        |(name, line, text): (String, usize, String)| Item { name, line, figure: visible_fields(&text) };
    items(file, "struct").into_iter().map(item).collect()
}

/// Fields of a struct that are `pub` in any form.
fn visible_fields(text: &str) -> usize {
    let Some((_, body)) = text.split_once('{') else { return 0 };
    let (mut depth, mut field, mut count) = (0usize, String::new(), 0);
    for c in body.chars() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' | '>' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => count += usize::from(is_visible(&std::mem::take(&mut field))),
            _ if depth == 0 => field.push(c),
            _ => {}
        }
    }
    count + usize::from(is_visible(&field))
}

/// Whether this field is visible. It is given without the contents of brackets: attributes have become a `#`.
fn is_visible(field: &str) -> bool {
    field.split_whitespace().find(|word| !word.starts_with('#')) == Some("pub")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rust_source::RustSource;

    fn file(text: &str) -> SourceFile {
        SourceFile { path: PathBuf::from("crates/a/src/b.rs"), source: RustSource::parse(text, false) }
    }

    #[test]
    fn fields_are_counted_whoever_may_see_them() {
        let text = "pub struct A<T> where T: B {\n    /// pub fake: u8,\n    #[serde(skip)]\n    pub a: Map<u8, [u8; 4]>,\n    \
                    b: fn(u8, u8) -> u8,\n    pub(crate) c: u8,\n    pub(in super::x) d: T\n}\npub struct E(pub u8, pub u8);\n\
                    #[cfg(test)]\nmod tests {\n    struct F {\n        pub a: u8,\n    }\n}\n";
        let found: Vec<(String, usize)> =
            structs(&file(text)).into_iter().map(|i| (i.name, i.figure)).collect();
        assert_eq!(found, [("A".to_owned(), 3), ("E".to_owned(), 0)]);
    }

    #[test]
    fn a_function_counts_from_its_name_to_its_brace() {
        let body = "    a();\n".repeat(3);
        let text = format!("impl A {{\n    fn b(&self, c: [u8; 2]) -> bool {{\n{body}    }}\n}}\nfn d();\n");
        let found: Vec<(String, usize, usize)> =
            functions(&file(&text)).into_iter().map(|i| (i.name, i.line, i.figure)).collect();
        assert_eq!(found, [("b".to_owned(), 2, 5), ("d".to_owned(), 8, 1)]);
    }

    #[test]
    fn a_figure_may_fall_and_not_rise() {
        let item = |figure| (PathBuf::from("x"), Item { name: "f".to_owned(), line: 1, figure });
        let say = |figure, ceiling: Option<usize>| {
            let ceilings = ceiling.map(|ceiling| ("x f".to_owned(), ceiling)).into_iter().collect();
            compare("lines of", 70, &ceilings, || [item(figure)].into_iter())
                .pop()
                .map(|finding| finding.text)
        };
        assert_eq!(say(70, None), None);
        assert!(say(71, None).is_some_and(|text| text.contains("at most 70")));
        assert_eq!(say(90, Some(90)), None);
        assert!(say(91, Some(90)).is_some_and(|text| text.contains("at most 90")));
        assert!(say(89, Some(90)).is_some_and(|text| text.contains("lower it")));
        assert!(say(70, Some(90)).is_some_and(|text| text.contains("take it out")));
    }
}
