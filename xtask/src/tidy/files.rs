//! Rules about files as such: their length, the paths they name, and that links between documents resolve.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::Finding;
use crate::rust_source::SourceFile;

/// Lines outside of test code above which a file should be split by concern.
const LONG_LINES: usize = 800;
/// Lines outside of test code above which it must be split.
const TOO_LONG_LINES: usize = 1000;
/// The largest file, in bytes, that is kept in the repository.
const MAX_FILE_BYTES: u64 = 1_000_000;
/// Prefixes of paths that exist only on the author's machine.
const MACHINE_PATHS: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")];

/// Checks the length of one source file.
pub fn check_length(file: &SourceFile) -> Option<Finding> {
    let lines = file.source.lines.iter().filter(|line| !line.test).count();
    let text =
        format!("{lines} lines without tests; split it by concern (comfortable 400, limit {TOO_LONG_LINES})");
    if lines > TOO_LONG_LINES {
        Some(Finding::error(&file.path, 0, text))
    } else if lines > LONG_LINES {
        Some(Finding::warning(&file.path, 0, text))
    } else {
        None
    }
}

/// Checks every text file of the project.
pub fn check_texts(root: &Path, paths: &[PathBuf]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for path in paths {
        let full = root.join(path);
        let bytes = full.metadata()?.len();
        if bytes > MAX_FILE_BYTES {
            let text = format!("{bytes} bytes; the repository keeps no file above {MAX_FILE_BYTES}");
            findings.push(Finding::error(path, 0, text));
            continue;
        }
        let Ok(text) = std::fs::read_to_string(&full) else { continue };
        findings.extend(machine_paths(path, &text));
        if path.extension().is_some_and(|ext| ext == "md") {
            findings.extend(dead_links(root, path, &text));
            findings.extend(distrusted(path, &text));
        }
    }
    Ok(findings)
}

/// The start of a line in which `intact bench` says that its own figures are not trustworthy.
pub const DISTRUST: &str = "**Not to be trusted:**";

/// Why a page written by `intact bench` does not trust its own figures; empty if it does.
pub fn distrust(page: &str) -> Vec<&str> {
    page.lines().filter_map(|line| line.strip_prefix(DISTRUST)).map(str::trim).collect()
}

/// Figures that are not trusted by the program that took them.
fn distrusted(path: &Path, text: &str) -> Vec<Finding> {
    let finding = |reason| {
        let text = format!("its figures are not to be trusted, it says ({reason}): cargo xtask bench pages");
        Finding::error(path, 0, text)
    };
    distrust(text).into_iter().map(finding).collect()
}

fn machine_paths(path: &Path, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for start in MACHINE_PATHS {
            let found = line.match_indices(start).any(|(at, _)| {
                let before = line[..at].chars().next_back();
                let after = line[at + start.len()..].chars().next();
                // `$x/work/` and `a/work/` are parts of longer paths.
                !before.is_some_and(|c| c.is_alphanumeric() || "_-.}/".contains(c))
                    && after.is_some_and(char::is_alphanumeric)
            });
            if found {
                findings.push(Finding::error(path, number + 1, format!("a path of one machine: {start}...")));
            }
        }
    }
    findings
}

/// Relative links of a Markdown file whose target does not exist.
fn dead_links(root: &Path, path: &Path, text: &str) -> Vec<Finding> {
    let folder = root.join(path.parent().unwrap_or(Path::new("")));
    let mut findings = Vec::new();
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        fenced ^= line.trim_start().starts_with("```");
        if fenced {
            continue;
        }
        for (at, _) in line.match_indices("](") {
            let Some((link, _)) = line[at + 2..].split_once(')') else { continue };
            let file = link.split('#').next().unwrap_or("");
            if file.is_empty() || link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            if !folder.join(file).exists() {
                findings.push(Finding::error(
                    path,
                    number + 1,
                    format!("the link to `{link}` leads nowhere"),
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rust_source::RustSource;

    fn file_of(code_lines: usize, test_lines: usize) -> SourceFile {
        let tests = "fn b() {}\n".repeat(test_lines.saturating_sub(3));
        let text = "fn a() {}\n".repeat(code_lines) + "#[cfg(test)]\nmod tests {\n" + &tests + "}";
        SourceFile { path: PathBuf::from("a.rs"), source: RustSource::parse(&text, false) }
    }

    #[test]
    fn tests_do_not_count_as_length() {
        assert_eq!(check_length(&file_of(800, 5000)), None);
        assert!(check_length(&file_of(801, 3)).unwrap().warning);
        assert!(!check_length(&file_of(1001, 3)).unwrap().warning);
    }

    #[test]
    fn machine_paths_are_found_and_parts_of_paths_are_not() {
        let bad = format!("see {}x/y", MACHINE_PATHS[0]);
        assert_eq!(machine_paths(Path::new("a"), &bad).len(), 1);
        let good = format!("${{tmp}}{0}x a{0}b ./{0}c", MACHINE_PATHS[0]);
        assert_eq!(machine_paths(Path::new("a"), &good), []);
    }

    #[test]
    fn a_page_that_distrusts_itself_is_refused() {
        let page = "# T\n\n**Not to be trusted:** the rounds were 24.1 % apart.\n";
        let found = distrusted(Path::new("results.md"), page);
        assert!(found.len() == 1 && !found[0].warning, "{found:?}");
        assert!(found[0].text.contains("24.1 %"), "{found:?}");
        assert_eq!(distrusted(Path::new("page.md"), "It says **Not to be trusted:** first.\n"), []);
    }

    #[test]
    fn links_lead_somewhere() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = "[a](Cargo.toml) [b](https://x.y) [c](#d) [e](src/none.rs)\n```\n[x](none)\n```\n";
        let found = dead_links(root, Path::new("README.md"), text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].text.contains("src/none.rs"));
    }
}
