//! Which crate may import which: the layers of `docs/architecture.md`, checked from `cargo metadata`.
//!
//! The table applies to `[dependencies]` and `[build-dependencies]`. Tests may import more (a pair of
//! target and initiator is the best test of either), except in the layers below the engine, which must stay
//! testable on their own.

use std::path::Path;

use super::Finding;
use crate::workspace::Package;

/// Which of our crates a crate may import.
enum MayImport {
    Only(&'static [&'static str]),
    Everything,
}
use MayImport::{Everything, Only};

const LAYERS: &[(&str, MayImport)] = &[
    ("integrity", Only(&[])),
    ("published", Only(&["integrity"])),
    ("tcp-crc", Only(&["integrity"])),
    ("tcp-crc-shim", Only(&["engine", "tcp-crc", "integrity"])),
    ("wireless", Only(&[])),
    ("iscsi-wire", Only(&[])),
    ("scsi", Only(&["integrity"])),
    ("payload", Only(&[])),
    ("iscsi-core", Only(&["iscsi-wire", "integrity", "payload"])),
    ("offload", Only(&["iscsi-core", "iscsi-wire", "integrity"])),
    ("offload-rtl", Only(&["integrity", "iscsi-wire", "offload"])),
    ("blockstore", Only(&["integrity"])),
    ("engine", Only(&["iscsi-core", "integrity", "blockstore"])),
    ("lun", Only(&["engine", "scsi", "blockstore", "integrity", "payload"])),
    ("nbd", Only(&["engine", "lun", "scsi"])),
    ("target", Only(&["engine", "lun", "iscsi-core", "scsi", "blockstore", "integrity"])),
    ("server", Only(&["target", "engine", "iscsi-core", "scsi", "blockstore"])),
    ("initiator", Only(&["engine", "iscsi-core", "offload", "scsi", "integrity"])),
    ("sim", Everything),
    ("conform", Only(&["iscsi-wire", "integrity"])),
    ("harness", Only(&[])),
    ("studies", Everything),
    ("intact", Everything),
    ("xtask", Only(&[])),
];

/// Crates that exist for tests, for studies and for the command: no other crate imports them.
const TEST_CRATES: &[&str] = &["sim", "conform"];
/// Crates whose tests may also import only what the crate itself may import (and the test crates).
const LOWER_LAYERS: &[&str] = &[
    "integrity",
    "payload",
    "tcp-crc",
    "wireless",
    "iscsi-wire",
    "scsi",
    "iscsi-core",
    "offload",
    "blockstore",
];
/// Crates that do no I/O, and therefore must not use a crate that does.
const SANS_IO: &[&str] = &[
    "integrity",
    "published",
    "payload",
    "tcp-crc",
    "wireless",
    "iscsi-wire",
    "iscsi-core",
    "offload",
    "scsi",
];
const IO_CRATES: &[&str] =
    &["tokio", "async-std", "smol", "mio", "socket2", "rustix", "nix", "libc", "io-uring"];

/// A crate that does no I/O may still request memory from the system.
const FOR_MEMORY: (&str, &str) = ("integrity", "rustix");

/// Checks every dependency of every package of the workspace.
pub fn check(root: &Path, packages: &[Package]) -> Vec<Finding> {
    let ours: Vec<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    let mut findings = Vec::new();
    for package in packages {
        let manifest = package.manifest_path.strip_prefix(root).unwrap_or(&package.manifest_path);
        if !LAYERS.iter().any(|(name, _)| *name == package.name) {
            let text = format!(
                "`{}` is not in the table of layers; add it to {} and docs/architecture.md",
                package.name,
                file!()
            );
            findings.push(Finding::error(manifest, 0, text));
            continue;
        }
        for dependency in &package.dependencies {
            let for_tests = dependency.kind.as_deref() == Some("dev");
            let refusal = if ours.contains(&dependency.name.as_str()) {
                refuse_ours(&package.name, &dependency.name, for_tests)
            } else {
                refuse_foreign(&package.name, &dependency.name, for_tests)
            };
            findings.extend(refusal.map(|text| Finding::error(manifest, 0, text)));
        }
    }
    findings
}

/// Why `from` may not import our crate `to`, if it may not.
fn refuse_ours(from: &str, to: &str, for_tests: bool) -> Option<String> {
    let (_, may_import) = LAYERS.iter().find(|(name, _)| *name == from)?;
    if for_tests && (TEST_CRATES.contains(&to) || !LOWER_LAYERS.contains(&from)) {
        return None;
    }
    match may_import {
        Everything => None,
        Only(list) if list.contains(&to) => None,
        Only([]) => Some(format!("`{from}` may not import `{to}`: it imports nothing of ours")),
        Only(list) => Some(format!("`{from}` may not import `{to}`, only {}", list.join(", "))),
    }
}

/// Why `from` may not use the foreign crate `to`, if it may not.
fn refuse_foreign(from: &str, to: &str, for_tests: bool) -> Option<String> {
    let refused =
        SANS_IO.contains(&from) && IO_CRATES.contains(&to) && !for_tests && (from, to) != FOR_MEMORY;
    refused.then(|| format!("`{from}` does no I/O: `{to}` belongs into engine or above"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_protocols_never_meet_below_target() {
        assert!(refuse_ours("iscsi-core", "scsi", false).is_some());
        assert!(refuse_ours("scsi", "iscsi-core", false).is_some());
        assert!(refuse_ours("scsi", "iscsi-core", true).is_some(), "nor do their tests");
        assert!(refuse_ours("target", "scsi", false).is_none());
    }

    #[test]
    fn leaves_import_nothing() {
        assert!(refuse_ours("iscsi-wire", "integrity", false).is_some());
        assert!(refuse_foreign("iscsi-wire", "thiserror", false).is_none());
        assert!(refuse_foreign("iscsi-core", "tokio", false).is_some());
        assert!(refuse_foreign("engine", "rustix", false).is_none());
        assert!(refuse_foreign("integrity", "rustix", false).is_none(), "it has the memory of volumes");
        assert!(refuse_foreign("integrity", "socket2", false).is_some());
    }

    #[test]
    fn conform_is_for_tests_and_the_command() {
        assert!(refuse_ours("target", "conform", false).is_some());
        assert!(refuse_ours("target", "conform", true).is_none());
        assert!(refuse_ours("intact", "conform", false).is_none());
        assert!(refuse_ours("conform", "iscsi-core", false).is_some(), "it is held against the product");
    }
}
