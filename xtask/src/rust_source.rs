//! An analysis of Rust source that is good enough for the house rules: what is code, what is a comment, what
//! is a string, and which lines are compiled only for tests.
//!
//! Not a parser: it recognizes comments (nested), strings (raw, byte), character literals as opposed to
//! lifetimes, attributes and matching braces. Macros are not expanded. That is all the checks need, and it
//! cannot fail on new syntax.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// One line of a source file, split into its parts.
#[derive(Debug, Default, Clone)]
pub struct Line {
    /// The line with comments and the insides of strings replaced by spaces.
    pub code: String,
    /// The text of the comments on this line, without `//`, `///`, `//!` or `/*`.
    pub comment: String,
    /// Compiled only for tests.
    pub test: bool,
}

/// A source file, split into its parts.
#[derive(Debug)]
pub struct RustSource {
    pub lines: Vec<Line>,
    /// `mod name;` items that are compiled only for tests: their files are test code too.
    pub test_modules: Vec<String>,
}

impl RustSource {
    /// Splits `text` into its parts. `test_file` says that the whole file is test code.
    pub fn parse(text: &str, test_file: bool) -> Self {
        let (mut lines, code) = split(text);
        let regions = test_regions(&code);
        for (number, line) in lines.iter_mut().enumerate() {
            line.test = test_file
                || regions.whole_file
                || regions.lines.iter().any(|&(first, last)| (first..=last).contains(&number));
        }
        Self { lines, test_modules: regions.modules }
    }

    /// Every path that a `use` item imports, groups expanded, with the line on which the item starts.
    pub fn imports(&self) -> Vec<(usize, String)> {
        let mut imports = Vec::new();
        let mut item: Option<(usize, String)> = None;
        for (number, line) in self.lines.iter().enumerate() {
            let mut rest = line.code.as_str();
            loop {
                if let Some((first, mut text)) = item.take() {
                    let Some(end) = rest.find(';') else {
                        text.push_str(rest);
                        text.push(' ');
                        item = Some((first, text));
                        break;
                    };
                    text.push_str(&rest[..end]);
                    expand_use("", &join_paths(&text), &mut |path| imports.push((first, path)));
                    rest = &rest[end + 1..];
                } else {
                    let Some(start) = find_word(rest, "use") else { break };
                    item = Some((number, String::new()));
                    rest = &rest[start + "use".len()..];
                }
            }
        }
        imports
    }
}

/// The byte position of `word` in `text` where it is a separate word.
pub fn find_word(text: &str, word: &str) -> Option<usize> {
    let is_ident = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).map(|(at, _)| at).find(|&at| {
        !text[..at].chars().next_back().is_some_and(is_ident)
            && !text[at + word.len()..].chars().next().is_some_and(is_ident)
    })
}

/// `a :: b` written as `a::b`.
pub fn join_paths(text: &str) -> String {
    text.split("::").map(str::trim).collect::<Vec<_>>().join("::")
}

fn expand_use(prefix: &str, tree: &str, found: &mut impl FnMut(String)) {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        let path: String = tree.split_whitespace().next().unwrap_or("").into();
        if !path.is_empty() {
            found(format!("{prefix}{path}"));
        }
        return;
    };
    let prefix = format!("{prefix}{}", tree[..open].replace(char::is_whitespace, ""));
    let inner = tree[open + 1..].trim_end().trim_end_matches('}');
    let (mut depth, mut start) = (0usize, 0);
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                expand_use(&prefix, &inner[start..at], found);
                start = at + 1;
            }
            _ => {}
        }
    }
    // The closing braces of inner groups were trimmed together with ours: they carry no information.
    expand_use(&prefix, &inner[start..], found);
}

/// Splits into lines of code and comment; also returns the blanked code as one run of characters.
fn split(text: &str) -> (Vec<Line>, Vec<char>) {
    enum Mode {
        Code,
        LineComment,
        BlockComment(usize),
        Str { hashes: Option<usize> },
    }
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut lines = vec![Line::default()];
    let mut code = Vec::with_capacity(chars.len());
    let mut mode = Mode::Code;
    let mut i = 0;
    while i < chars.len() {
        let c = chars[i];
        let line = lines.last_mut().expect("there is always a line");
        if c == '\n' {
            if matches!(mode, Mode::LineComment) {
                mode = Mode::Code;
            }
            lines.push(Line::default());
            code.push('\n');
            i += 1;
            continue;
        }
        // How many characters this step takes, and whether they are code.
        let (taken, is_code) = match mode {
            Mode::Code if c == '/' && at(i + 1) == '/' => {
                mode = Mode::LineComment;
                let marker = if at(i + 2) == '/' || at(i + 2) == '!' { 3 } else { 2 };
                (marker, false)
            }
            Mode::Code if c == '/' && at(i + 1) == '*' => {
                mode = Mode::BlockComment(1);
                (2, false)
            }
            Mode::Code if c == '"' => {
                mode = Mode::Str { hashes: None };
                (1, true)
            }
            Mode::Code if raw_string_hashes(&chars, i).is_some() => {
                let hashes = raw_string_hashes(&chars, i).unwrap_or(0);
                mode = Mode::Str { hashes: Some(hashes) };
                (2 + hashes, false)
            }
            Mode::Code if c == '\'' => match char_literal_len(&chars, i) {
                Some(len) => (len, false),
                None => (1, true),
            },
            Mode::Code => (1, true),
            Mode::LineComment => {
                line.comment.push(c);
                (1, false)
            }
            Mode::BlockComment(depth) => match (c, at(i + 1)) {
                ('*', '/') => {
                    mode = if depth == 1 { Mode::Code } else { Mode::BlockComment(depth - 1) };
                    (2, false)
                }
                ('/', '*') => {
                    mode = Mode::BlockComment(depth + 1);
                    (2, false)
                }
                _ => {
                    line.comment.push(c);
                    (1, false)
                }
            },
            Mode::Str { hashes: None } if c == '\\' && at(i + 1) != '\n' => (2, false),
            Mode::Str { hashes: None } if c == '"' => {
                mode = Mode::Code;
                (1, true)
            }
            Mode::Str { hashes: Some(n) } if c == '"' && (1..=n).all(|k| at(i + k) == '#') => {
                mode = Mode::Code;
                (1 + n, false)
            }
            Mode::Str { .. } => (1, false),
        };
        for &original in chars.iter().skip(i).take(taken) {
            let shown = if is_code { original } else { ' ' };
            line.code.push(shown);
            code.push(shown);
        }
        i += taken;
    }
    (lines, code)
}

/// At `r"`, `r#"`, `br"` (seen from the `r`): how many hashes follow.
fn raw_string_hashes(chars: &[char], i: usize) -> Option<usize> {
    let before_is_ident =
        i > 0 && (chars[i - 1].is_alphanumeric() || chars[i - 1] == '_') && chars[i - 1] != 'b';
    if chars[i] != 'r' || before_is_ident {
        return None;
    }
    let hashes = chars[i + 1..].iter().take_while(|&&c| c == '#').count();
    (chars.get(i + 1 + hashes) == Some(&'"')).then_some(hashes)
}

/// At a quote: the length of a character literal, or `None` for a lifetime.
fn char_literal_len(chars: &[char], i: usize) -> Option<usize> {
    if chars.get(i + 1) == Some(&'\\') {
        // The escaped character may itself be a quote; the closing quote comes after it.
        let close = chars.get(i + 3..)?.iter().take(12).position(|&c| c == '\'')?;
        return Some(close + 4);
    }
    (chars.get(i + 2) == Some(&'\'')).then_some(3)
}

#[derive(Default)]
struct TestRegions {
    whole_file: bool,
    /// First and last line of each region, counted from 0.
    lines: Vec<(usize, usize)>,
    modules: Vec<String>,
}

fn test_regions(code: &[char]) -> TestRegions {
    let mut found = TestRegions::default();
    let mut i = 0;
    while i < code.len() {
        if code[i] != '#' {
            i += 1;
            continue;
        }
        let inner = code.get(i + 1) == Some(&'!');
        let open = i + 1 + usize::from(inner);
        if code.get(open) != Some(&'[') {
            i += 1;
            continue;
        }
        let close = matching(code, open, '[', ']');
        let text: String = code[open + 1..close].iter().filter(|c| !c.is_whitespace()).collect();
        if !is_test_attribute(&text) {
            i = close;
            continue;
        }
        if inner {
            found.whole_file = true;
            return found;
        }
        let end = item_end(code, close + 1);
        let item: String = code[close + 1..end.min(code.len())].iter().collect();
        if let Some(name) = external_module(&item) {
            found.modules.push(name);
        }
        found.lines.push((line_of(code, i), line_of(code, end)));
        i = end.max(close);
    }
    found
}

fn is_test_attribute(text: &str) -> bool {
    text == "cfg(test)"
        || text == "test"
        || text.ends_with("::test")
        || (text.starts_with("cfg(all(")
            && text.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
            && !text.contains("not(test)"))
}

/// The end of what the attribute before `from` applies to: the item's closing brace or semicolon or, for a
/// field, a match arm or an expression, its comma.
pub fn item_end(code: &[char], from: usize) -> usize {
    const ITEMS: [&str; 14] = [
        "mod",
        "fn",
        "use",
        "struct",
        "enum",
        "impl",
        "const",
        "static",
        "trait",
        "type",
        "unsafe",
        "async",
        "extern",
        "macro_rules",
    ];
    let mut i = from;
    let mut first_word = None;
    while i < code.len() {
        if first_word.is_none() && code[i].is_alphabetic() {
            let word: String = code[i..].iter().take_while(|c| c.is_alphanumeric() || **c == '_').collect();
            i += word.len();
            first_word = (word != "pub").then_some(word);
            continue;
        }
        let is_item = first_word.as_deref().is_none_or(|word| ITEMS.contains(&word));
        match code[i] {
            ',' if !is_item => return i,
            '}' => return i,
            '#' if code.get(i + 1) == Some(&'[') => i = matching(code, i + 1, '[', ']'),
            '(' => i = matching(code, i, '(', ')'),
            '[' => i = matching(code, i, '[', ']'),
            '{' => return matching(code, i, '{', '}'),
            ';' => return i,
            _ => {}
        }
        i += 1;
    }
    code.len()
}

/// The position of the bracket that closes the one at `open`, or the end of the text.
fn matching(code: &[char], open: usize, up: char, down: char) -> usize {
    let mut depth = 0usize;
    for (i, &c) in code.iter().enumerate().skip(open) {
        if c == up {
            depth += 1;
        } else if c == down {
            depth -= 1;
            if depth == 0 {
                return i;
            }
        }
    }
    code.len()
}

fn external_module(item: &str) -> Option<String> {
    if item.contains('{') {
        return None;
    }
    let after = find_word(item, "mod")? + "mod".len();
    Some(item[after..].trim().trim_end_matches(';').trim().to_owned())
}

pub fn line_of(code: &[char], position: usize) -> usize {
    code.iter().take(position).filter(|&&c| c == '\n').count()
}

/// A source file of the project with its path.
#[derive(Debug)]
pub struct SourceFile {
    /// Relative to the workspace.
    pub path: PathBuf,
    pub source: RustSource,
}

/// Reads all Rust files among `files`, and determines which of them are compiled only for tests.
pub fn read_all(root: &Path, files: &[PathBuf]) -> std::io::Result<Vec<SourceFile>> {
    let mut read = Vec::new();
    for path in files.iter().filter(|path| path.extension().is_some_and(|ext| ext == "rs")) {
        let text = std::fs::read_to_string(root.join(path))?;
        let source = RustSource::parse(&text, in_test_folder(path));
        read.push(SourceFile { path: path.clone(), source });
    }
    // A file behind `#[cfg(test)] mod name;` is test code, and so are all files below it.
    let mut roots = BTreeSet::new();
    for file in &read {
        for module in &file.source.test_modules {
            roots.insert(module_folder(&file.path).join(module));
        }
    }
    for file in &mut read {
        let stem = file.path.with_extension("");
        if roots.iter().any(|test_root| stem.starts_with(test_root)) {
            file.source.lines.iter_mut().for_each(|line| line.test = true);
        }
    }
    Ok(read)
}

/// The folder that holds the modules of the file at `path`.
fn module_folder(path: &Path) -> PathBuf {
    match path.file_name().and_then(|name| name.to_str()) {
        Some("lib.rs" | "main.rs" | "mod.rs") => path.parent().map(Path::to_path_buf).unwrap_or_default(),
        _ => path.with_extension(""),
    }
}

/// Whether cargo or the fuzzer builds this file only for tests: `tests/` and `benches/` next to `src/`, and
/// `fuzz/`.
fn in_test_folder(path: &Path) -> bool {
    let mut parts = path.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
    let before_src: Vec<String> = parts.by_ref().take_while(|part| part != "src").collect();
    before_src.iter().any(|part| part == "tests" || part == "benches" || part == "fuzz")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_of(text: &str) -> Vec<String> {
        RustSource::parse(text, false).lines.into_iter().map(|line| line.code.trim_end().to_owned()).collect()
    }

    #[test]
    fn comments_and_strings_are_not_code() {
        let text = "let a = \"std::net // no\"; // std::net\n/* x /* y */ z */ let b = r#\"\" Instant\"#;\n\
                    let c = '\"'; let d: &'a str = \"\\\"\";";
        let code = code_of(text).join("\n");
        assert!(!code.contains("std::net") && !code.contains("Instant") && !code.contains('z'), "{code}");
        assert!(code.contains("let b =") && code.contains("let c =") && code.contains("&'a str"), "{code}");
    }

    #[test]
    fn comments_keep_their_text() {
        let source = RustSource::parse("//= rfc7143 4.2 NUM-03\nlet x = 1; // covers: DIG-01\n", false);
        assert_eq!(source.lines[0].comment, "= rfc7143 4.2 NUM-03");
        assert_eq!(source.lines[1].comment.trim(), "covers: DIG-01");
    }

    #[test]
    fn test_modules_end_at_their_brace() {
        let text = "fn a() {}\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n    fn b() { \"}\"; }\n}\nfn c() {}\n";
        let source = RustSource::parse(text, false);
        let test: Vec<bool> = source.lines.iter().map(|line| line.test).collect();
        assert_eq!(test, [false, true, true, true, true, true, false, false]);
    }

    #[test]
    fn a_test_only_item_ends_at_its_semicolon() {
        let text = "#[cfg(test)]\nmod tests;\n#[cfg(test)]\nuse a::{b, c};\nfn c() {}\n\
                    #[test]\nfn t(a: [u8; 4]) {\n}\nfn d() {}";
        let source = RustSource::parse(text, false);
        let test: Vec<bool> = source.lines.iter().map(|line| line.test).collect();
        assert_eq!(test, [true, true, true, true, false, true, true, true, false]);
        assert_eq!(source.test_modules, ["tests"]);
    }

    #[test]
    fn a_test_only_field_ends_at_its_comma() {
        let text = "struct A {\n    #[cfg(test)]\n    pub b: u8,\n    c: u8,\n}\nfn d() {}";
        let test: Vec<bool> = RustSource::parse(text, false).lines.iter().map(|line| line.test).collect();
        assert_eq!(test, [false, true, true, false, false, false]);
    }

    #[test]
    fn not_test_is_not_test() {
        let source =
            RustSource::parse("#[cfg(not(test))]\nfn a() {}\n#[cfg(all(not(test), unix))]\nfn b() {}", false);
        assert!(source.lines.iter().all(|line| !line.test));
        assert!(RustSource::parse("#![cfg(test)]\nfn a() {}", false).lines.iter().all(|line| line.test));
    }

    #[test]
    fn imports_are_written_out() {
        let text = "use std::{net::{TcpStream, IpAddr as A}, thread};\npub use a::b as c;\n\
                    use std::\n  time::SystemTime;";
        let imports: Vec<String> =
            RustSource::parse(text, false).imports().into_iter().map(|(_, path)| path).collect();
        assert_eq!(
            imports,
            ["std::net::TcpStream", "std::net::IpAddr", "std::thread", "a::b", "std::time::SystemTime"]
        );
    }

    #[test]
    fn test_folders() {
        assert!(in_test_folder(Path::new("crates/a/tests/b.rs")));
        assert!(in_test_folder(Path::new("fuzz/fuzz_targets/b.rs")));
        assert!(
            !in_test_folder(Path::new("crates/a/src/tests/b.rs")),
            "decided by how the module is declared"
        );
    }
}
