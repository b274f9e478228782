//! Words that must not occur in code: I/O, clocks and threads in the sans-IO crates; unfinished parts
//! anywhere.

use std::path::Path;

use super::Finding;
use crate::rust_source::{SourceFile, find_word, join_paths};

/// The protocol and the device server take events and the time as arguments
/// (`docs/decisions/001-sans-io-core.md`).
const SANS_IO: &[&str] = &[
    "crates/payload",
    "crates/published",
    "crates/tcp-crc",
    "crates/wireless",
    "crates/iscsi-wire",
    "crates/iscsi-core",
    "crates/offload",
    "crates/scsi",
];
const IO_WORDS: &[&str] = &["std::net", "std::thread", "Instant::now", "SystemTime", "tokio"];

/// Macros that mark a missing part. Written in two halves so that this file does not match itself.
const UNFINISHED_CODE: &[&str] = &[concat!("to", "do!"), concat!("unimpl", "emented!")];
const UNFINISHED_COMMENT: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Checks one source file.
pub fn check(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let sans_io = SANS_IO.iter().any(|folder| file.path.starts_with(folder));
    for (number, line) in file.source.lines.iter().enumerate() {
        let mut say = |text: String| findings.push(Finding::error(&file.path, number + 1, text));
        for word in UNFINISHED_CODE {
            if line.code.contains(word) {
                say(format!("`{word}`: finish the part, or leave it out"));
            }
        }
        for word in UNFINISHED_COMMENT {
            if find_word(&line.comment, word).is_some() {
                say(format!("{word} in a comment: do it, or say plainly what is left out and why"));
            }
        }
        if line.code.replace(' ', "").contains("#[ignore]") {
            say("an ignored test says why: #[ignore = \"...\"]".to_owned());
        }
        if sans_io && !line.test {
            let code = join_paths(&line.code);
            for word in IO_WORDS.iter().filter(|word| find_word(&code, word).is_some()) {
                say(sans_io_text(&file.path, word));
            }
        }
    }
    if sans_io {
        for (number, path) in file.source.imports() {
            let line = &file.source.lines[number];
            for word in IO_WORDS.iter().filter(|word| find_word(&path, word).is_some()) {
                // A plain `use std::net::...` was already found above.
                if !line.test && find_word(&join_paths(&line.code), word).is_none() {
                    findings.push(Finding::error(&file.path, number + 1, sans_io_text(&file.path, word)));
                }
            }
        }
    }
    findings
}

fn sans_io_text(path: &Path, word: &str) -> String {
    let name = path.components().nth(1).map(|part| part.as_os_str().to_string_lossy().into_owned());
    format!(
        "`{word}` in {}: no I/O, no clock, no threads here; take it as an argument",
        name.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rust_source::RustSource;
    use std::path::PathBuf;

    fn findings(path: &str, text: &str) -> Vec<usize> {
        let file = SourceFile { path: PathBuf::from(path), source: RustSource::parse(text, false) };
        check(&file).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn io_words_are_found_however_they_are_written() {
        let text = "use std::net::TcpStream;\nuse std::{fmt, thread};\nlet t = Instant :: now();\n";
        assert_eq!(findings("crates/scsi/src/a.rs", text), [1, 3, 2]);
        assert!(findings("crates/engine/src/a.rs", text).is_empty());
    }

    #[test]
    fn tests_and_comments_may_say_them() {
        let text = "//! No std::net here.\n#[cfg(test)]\nmod tests {\n\
                    use std::time::Instant;\n    fn a() { Instant::now(); }\n}\n";
        assert!(findings("crates/iscsi-core/src/a.rs", text).is_empty());
    }

    #[test]
    fn unfinished_parts_are_found() {
        let text = format!(
            "fn a() {{ {}() }}\n// {}: later\n#[ignore]\n",
            UNFINISHED_CODE[0], UNFINISHED_COMMENT[1]
        );
        assert_eq!(findings("crates/target/src/a.rs", &text), [1, 2, 3]);
    }
}
