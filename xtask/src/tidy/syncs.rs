//! Which code may flush a medium: one owner, which remembers that a flush failed
//! (`crates/blockstore/src/file/health.rs`). The kernel reports a failed write-back once; a call elsewhere that
//! consumes that report makes a later flush succeed although data is lost.

use std::path::Path;

use super::Finding;
use crate::rust_source::{SourceFile, find_word};

/// Where the code for volumes is.
const FOLDERS: &[&str] = &["crates/blockstore/src", "crates/lun/src", "crates/target/src"];
/// Calls that consume the report of a failed write-back.
const CALLS: &[&str] = &[
    "fsync",
    "fdatasync",
    "syncfs",
    "sync_all",
    "sync_data",
    "sync_file_range",
    "sync_witness",
    "pwritev2",
    "pwritev_dsync",
    "ftruncate",
    "set_len",
    "set_size",
];
/// The calls themselves, their owner, and files that are not part of a volume's data.
const OWNERS: &[&str] = &[
    "crates/blockstore/src/file/os.rs",
    "crates/blockstore/src/file/health.rs",
    "crates/blockstore/src/side_file.rs",
];

/// Checks one source file.
pub fn check(file: &SourceFile) -> Vec<Finding> {
    let watched = FOLDERS.iter().any(|folder| file.path.starts_with(folder));
    if !watched || OWNERS.iter().any(|owner| file.path == Path::new(owner)) {
        return Vec::new();
    }
    let lines = file.source.lines.iter().enumerate().filter(|(_, line)| !line.test);
    let mut findings = Vec::new();
    for (number, line) in lines {
        for call in CALLS.iter().filter(|call| find_word(&line.code, call).is_some()) {
            let text = format!("`{call}`: only {} syncs a volume; side_file replaces small files", OWNERS[1]);
            findings.push(Finding::error(&file.path, number + 1, text));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::rust_source::RustSource;

    #[test]
    fn a_sync_outside_of_its_owner_is_found() {
        let text = "fn a(file: &File) {\n    file.sync_all();\n    rustix::fs::fdatasync(file);\n}\n// fsync\n\
                    #[cfg(test)]\nmod tests {\n    fn b(file: &File) { file.sync_data(); }\n}\n";
        let findings = |path: &str| {
            let file = SourceFile { path: PathBuf::from(path), source: RustSource::parse(text, false) };
            check(&file).into_iter().map(|finding| finding.line).collect::<Vec<_>>()
        };
        assert_eq!(findings("crates/blockstore/src/journal/mod.rs"), [2, 3]);
        assert_eq!(findings("crates/lun/src/kept.rs"), [2, 3]);
        assert!(findings("crates/blockstore/src/file/health.rs").is_empty());
        assert!(findings("crates/intact/src/main.rs").is_empty());
    }
}
