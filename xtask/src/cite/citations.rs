//! Finds the citations of rows in code and tests.
//!
//! Test code is the code compiled only for tests, and the whole of `crates/conform`, which is a test suite
//! shipped as a product, with its rows as text (`*.rows`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::table::{Row, is_row_id, section};
use crate::rust_source::{SourceFile, find_word};

/// Where to look for citations.
const FOLDERS: &[&str] = &["crates", "tests"];
/// Its sources are tests, although they are not compiled as such.
const TEST_SUITE: &str = "crates/conform";

/// A place in the sources.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    pub path: String,
    /// Counted from 1.
    pub line: usize,
}

/// All citations found.
#[derive(Debug, Default)]
pub struct Citations {
    /// Row id to the places in code that implement it.
    pub code: BTreeMap<String, Vec<Place>>,
    /// Row id to the tests that name it.
    pub tests: BTreeMap<String, Vec<Place>>,
    /// Citations of unknown rows, and malformed ones.
    pub problems: Vec<String>,
}

/// Scans the project's sources.
pub fn scan(files: &[SourceFile], rows: &[Row]) -> Citations {
    let mut found = Citations::default();
    for file in files.iter().filter(|file| FOLDERS.iter().any(|folder| file.path.starts_with(folder))) {
        scan_file(file, rows, &mut found);
    }
    found
}

/// Adds the rows that are written as text: `row DAT-01 TITLE`, and notes `# covers: DAT-07`.
pub fn add_texts(root: &Path, files: &[PathBuf], rows: &[Row], found: &mut Citations) -> std::io::Result<()> {
    for path in files.iter().filter(|path| path.extension().is_some_and(|ext| ext == "rows")) {
        add_text(path, &std::fs::read_to_string(root.join(path))?, rows, found);
    }
    Ok(())
}

fn add_text(path: &Path, text: &str, rows: &[Row], found: &mut Citations) {
    for (number, line) in (1..).zip(text.lines()) {
        let place = Place { path: path.display().to_string(), line: number };
        let ids = match (line.strip_prefix("row "), line.strip_prefix("# covers:")) {
            (Some(row), _) => rows_of(row.split_whitespace().take(1)),
            (_, Some(list)) => parse_list(list),
            _ => continue,
        };
        match ids {
            Ok(ids) => ids.into_iter().for_each(|id| cite(id, true, &place, rows, found)),
            Err(why) => found.problems.push(format!("{}:{}: {why}", place.path, place.line)),
        }
    }
}

/// Enters that `place` names the row.
fn cite(id: String, by_test: bool, place: &Place, rows: &[Row], found: &mut Citations) {
    if !rows.iter().any(|row| row.id == id) {
        found.problems.push(format!("{}:{}: there is no row {id}", place.path, place.line));
        return;
    }
    let places = if by_test { &mut found.tests } else { &mut found.code };
    places.entry(id).or_default().push(place.clone());
}

fn scan_file(file: &SourceFile, rows: &[Row], found: &mut Citations) {
    let suite = file.path.starts_with(TEST_SUITE);
    for (number, line) in file.source.lines.iter().enumerate() {
        let place = Place { path: file.path.display().to_string(), line: number + 1 };
        let in_test = line.test || suite;
        let comment = line.comment.trim();
        let mut cited = Vec::new();
        if let Some(citation) = comment.strip_prefix('=').filter(|_| line.code.trim().is_empty()) {
            match parse_citation(citation) {
                Ok(ids) => cited.extend(ids.into_iter().map(|id| (id, in_test))),
                Err(why) => found.problems.push(format!("{}:{}: {why}", place.path, place.line)),
            }
        }
        if let Some(list) = comment.strip_prefix("covers:") {
            match parse_list(list) {
                Ok(ids) if in_test => cited.extend(ids.into_iter().map(|id| (id, true))),
                Ok(_) => found.problems.push(format!(
                    "{}:{}: `covers:` outside of test code; code cites with `//= source section ROW`",
                    place.path, place.line
                )),
                Err(why) => found.problems.push(format!("{}:{}: {why}", place.path, place.line)),
            }
        }
        if in_test {
            cited.extend(row_of_fn(&line.code, rows).map(|id| (id, true)));
        }
        for (id, by_test) in cited {
            cite(id, by_test, &place, rows, found);
        }
    }
}

/// The rows of `rfc7143 4.2.2.1 NUM-03 NUM-04 (anything)`. A citation without rows names a rule that has no
/// row.
fn parse_citation(text: &str) -> Result<Vec<String>, String> {
    let text = text.split('(').next().unwrap_or(text);
    let mut words = text.split_whitespace().peekable();
    match words.next() {
        None => {
            return Err("a citation names source, section and rows: `//= rfc7143 4.2.2.1 NUM-03`".to_owned());
        }
        Some(word) if is_row_id(word) => {
            return Err(format!("`//= {word}`: name the source and the section before the row"));
        }
        Some(_) => {}
    }
    while words.next_if(|word| !is_row_id(trim(word))).is_some() {}
    rows_of(words)
}

/// The rows of `NUM-03, NUM-04 (anything)`.
fn parse_list(text: &str) -> Result<Vec<String>, String> {
    let ids = rows_of(text.split('(').next().unwrap_or(text).split_whitespace())?;
    if ids.is_empty() { Err("`covers:` names no row".to_owned()) } else { Ok(ids) }
}

fn rows_of<'a>(words: impl Iterator<Item = &'a str>) -> Result<Vec<String>, String> {
    words
        .map(|word| match trim(word) {
            id if is_row_id(id) => Ok(id.to_owned()),
            other => Err(format!("`{other}` is not a row id (one id per word; explanations in parentheses)")),
        })
        .collect()
}

fn trim(word: &str) -> &str {
    word.trim_end_matches([',', ';', ':', '.'])
}

/// `NUM-03` of `fn num_03_duplicate_is_ignored()`, if there is such a section.
fn row_of_fn(code: &str, rows: &[Row]) -> Option<String> {
    let name = code[find_word(code, "fn")? + 2..].trim_start();
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    let mut parts = name[..end].split('_');
    let id = format!("{}-{}", parts.next()?.to_uppercase(), parts.next()?.to_uppercase());
    let known_section = || rows.iter().any(|row| section(&row.id) == section(&id));
    (is_row_id(&id) && known_section()).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rust_source::RustSource;

    #[test]
    fn rows_as_text_are_tests() {
        let mut found = Citations::default();
        let text = "# covers: NUM-04\nrow NUM-03 a title\nwith\n\nrow NUM-99 another\n# covers:\n";
        add_text(Path::new("x.rows"), text, &rows(), &mut found);
        assert_eq!(found.tests["NUM-03"], [Place { path: "x.rows".into(), line: 2 }]);
        assert!(found.tests.contains_key("NUM-04") && found.code.is_empty());
        assert_eq!(found.problems, ["x.rows:5: there is no row NUM-99", "x.rows:6: `covers:` names no row"]);
    }

    fn rows() -> Vec<Row> {
        ["NUM-03", "NUM-04", "DIG-02", "VPD-8F"]
            .map(|id| Row {
                id: id.into(),
                requirement: String::new(),
                level: String::new(),
                table: String::new(),
            })
            .into()
    }

    fn scan_text(path: &str, text: &str) -> Citations {
        let file = SourceFile { path: PathBuf::from(path), source: RustSource::parse(text, false) };
        scan(&[file], &rows())
    }

    #[test]
    fn code_cites_and_tests_cover() {
        let text = "//= rfc7143 4.2.2.1 NUM-03, NUM-04 (both)\nfn a() {}\n#[cfg(test)]\nmod tests {\n\
                    // covers: DIG-02\nfn x() {}\nfn num_04_wraps() {}\nasync fn vpd_8f_is_there() {}\n}\n";
        let found = scan_text("crates/a/src/lib.rs", text);
        assert_eq!(found.code.keys().collect::<Vec<_>>(), ["NUM-03", "NUM-04"]);
        assert_eq!(found.tests.keys().collect::<Vec<_>>(), ["DIG-02", "NUM-04", "VPD-8F"]);
        assert_eq!(found.code["NUM-03"], [Place { path: "crates/a/src/lib.rs".into(), line: 1 }]);
        assert!(found.problems.is_empty(), "{:?}", found.problems);
    }

    #[test]
    fn names_count_only_in_tests() {
        assert!(scan_text("crates/a/src/lib.rs", "fn num_03_x() {}").tests.is_empty());
        assert_eq!(scan_text("crates/conform/src/rows.rs", "fn num_03_x() {}").tests.len(), 1);
        assert!(scan_text("xtask/src/main.rs", "//= rfc7143 1 NUM-99").problems.is_empty(), "not looked at");
    }

    #[test]
    fn wrong_citations_are_problems() {
        let cases = [
            ("//= rfc7143 4.2 NUM-99", 1),
            ("//= NUM-03", 1),
            ("//= rfc7143 4.2 NUM-03 and more", 1),
            ("//= rfc7143 4.2", 0),
            ("//= own rule NUM-03", 0),
            ("// covers: NUM-03", 1),
            ("#[test]\nfn num_77_x() {}", 1),
            ("#[test]\nfn abc_77_x() {}", 0),
            ("// = is not a citation either way", 0),
        ];
        for (text, problems) in cases {
            let found = scan_text("crates/a/src/lib.rs", text);
            assert_eq!(found.problems.len(), problems, "{text}: {:?}", found.problems);
        }
    }
}
