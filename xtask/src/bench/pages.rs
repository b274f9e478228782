//! `cargo xtask bench pages`: takes the pages of `intact bench checksum`, `guard` and `fastpath` in docs again. If the
//! measuring program finds that its machine was disturbed, the page is not stored there.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::report;
use crate::tidy::distrust;

/// The line before the figures in each page of docs.
const BEGIN: &str = "<!-- begin: cargo xtask bench pages -->";

/// One benchmark, its page in docs, and the folder of its results next to the page.
struct Page {
    benchmark: &'static str,
    name: &'static str,
    /// Charts of the results that the page itself shows.
    charts: &'static [(&'static str, &'static str)],
}

const PAGES: [Page; 3] = [
    Page {
        benchmark: "checksum",
        name: "checksums",
        charts: &[
            ("kernels-crc32c", "CRC32C: this library, other crates, and reading alone"),
            ("figure-6-1", "Figure 6.1: CRC32C beside the sums"),
        ],
    },
    Page {
        benchmark: "guard",
        name: "guards",
        charts: &[
            ("figure-1-file", "Figure 1: bandwidth by size of the I/O"),
            ("figure-2-file", "Figure 2: load of one processor"),
        ],
    },
    Page {
        benchmark: "fastpath",
        name: "fastpath",
        charts: &[
            ("figure-15", "Figure 15: one PDU with Slicing-by-8"),
            ("figure-16", "Figure 16: copy and CRC of one PDU"),
        ],
    },
];

/// Takes every page, or the one of this name, at most `attempts` times each, until its program trusts it. A page that is not to be
/// trusted keeps no other from being taken.
pub fn run(root: &Path, intact: &Path, attempts: usize, only: Option<&str>) -> Result<()> {
    let wanted = |page: &&Page| only.is_none_or(|name| name == page.name);
    let failures: Vec<String> = PAGES
        .iter()
        .filter(wanted)
        .filter_map(|page| take(root, intact, page, attempts).err())
        .map(|failure| format!("{failure:#}"))
        .collect();
    if failures.is_empty() { Ok(()) } else { bail!("{}", failures.join("\n")) }
}

/// The names of the pages.
pub fn names() -> [&'static str; 3] {
    PAGES.map(|page| page.name)
}

fn take(root: &Path, intact: &Path, page: &Page, attempts: usize) -> Result<()> {
    let mut reasons: Vec<String> = Vec::new();
    for attempt in 1..=attempts {
        eprintln!("intact bench {}: attempt {attempt} of {attempts}", page.benchmark);
        let scratch = tempfile::tempdir().context("no place for the results")?;
        let status = Command::new(intact)
            .args(["bench", page.benchmark, "--markdown"])
            .arg(scratch.path())
            .status()
            .context("cannot run intact bench")?;
        if !status.success() {
            bail!("intact bench {} failed", page.benchmark);
        }
        let results =
            fs::read_to_string(scratch.path().join("results.md")).context("it wrote no results.md")?;
        reasons = distrust(&results).into_iter().map(str::to_owned).collect();
        if reasons.is_empty() {
            return keep(root, scratch.path(), page);
        }
        reasons.iter().for_each(|reason| eprintln!("not to be trusted: {reason}"));
    }
    bail!("docs/{} is as it was: the machine was disturbed each time ({})", page.name, reasons.join("; "))
}

/// Replaces the old results.
fn keep(root: &Path, results: &Path, page: &Page) -> Result<()> {
    // Before a file of this tree changes: the machine's line names the commit, and whether the tree is that commit's.
    let text = links(page, &report::machine(root));
    let docs = root.join("docs");
    let folder = docs.join(page.name);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    for file in fs::read_dir(results)? {
        let file = file?;
        fs::copy(file.path(), folder.join(file.file_name()))?;
    }
    report::write(&docs.join(format!("{}.md", page.name)), BEGIN, &text)
}

fn links(page: &Page, machine: &str) -> String {
    let name = page.name;
    let mut text = format!(
        "[results.md]({name}/results.md) has every table and figure of one undisturbed run:\n{machine}"
    );
    for (chart, title) in page.charts {
        text.push_str(&format!("\n\n![{title}]({name}/{chart}.svg)"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_pages_have_a_place_for_their_figures() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        for page in &PAGES {
            let text = fs::read_to_string(docs.join(format!("{}.md", page.name))).unwrap();
            assert_eq!(text.matches(BEGIN).count(), 1, "{}", page.name);
            assert!(links(page, "M").contains(&format!("]({}/results.md)", page.name)));
        }
    }

    /// A stand-in for the program: it writes a page with this start.
    fn program(folder: &Path, distrust: &str) -> std::path::PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = folder.join("intact");
        fs::write(&path, format!("#!/bin/sh\nprintf '# T\\n{distrust}' > \"$4/results.md\"\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn only_a_page_that_is_trusted_takes_the_place_of_the_old_one() {
        let root = tempfile::tempdir().unwrap();
        let (docs, page) = (root.path().join("docs"), &PAGES[0]);
        fs::create_dir_all(docs.join(page.name)).unwrap();
        fs::write(docs.join("checksums/results.md"), "old").unwrap();
        fs::write(docs.join("checksums.md"), format!("a\n{BEGIN}\nnone\n<!-- end -->\nb\n")).unwrap();
        let noisy = program(root.path(), "\\n**Not to be trusted:** noise.\\n");
        let refused = take(root.path(), &noisy, page, 2).unwrap_err().to_string();
        assert!(refused.contains("noise."), "{refused}");
        assert_eq!(fs::read_to_string(docs.join("checksums/results.md")).unwrap(), "old");
        take(root.path(), &program(root.path(), ""), page, 1).unwrap();
        assert_eq!(fs::read_to_string(docs.join("checksums/results.md")).unwrap(), "# T\n");
        let text = fs::read_to_string(docs.join("checksums.md")).unwrap();
        assert!(
            text.starts_with("a\n") && text.ends_with("b\n") && text.contains("figure-6-1.svg"),
            "{text}"
        );
    }
}
