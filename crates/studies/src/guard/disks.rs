//! The disks that are written to.

use std::fs;
use std::path::Path;

use blockstore::{BlockStore, Durability, FileOptions, FileStore, RamStore};
use clap::ValueEnum;
use serde::Serialize;

use crate::oracle::SECTOR_BYTES;
use harness::content::random;

/// What the kernel calls a file system in memory (`linux/magic.h`).
const TMPFS_MAGIC: u32 = 0x0102_1994;
/// Bytes of one write when a disk is filled for the first time.
const FILL_BYTES: usize = 1 << 20;

/// A kind of disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// Memory: a write is a copy.
    Ram,
    /// A file: a write ends in the page cache.
    PageCache,
    /// A file: a write ends on the medium, as on the note's array.
    File,
}

impl Kind {
    /// From the fastest to the slowest.
    pub(super) const ALL: [Self; 3] = [Self::Ram, Self::PageCache, Self::File];

    /// As it is called on the command line, in JSON and in the names of files.
    pub(super) fn id(self) -> &'static str {
        match self {
            Self::Ram => "ram",
            Self::PageCache => "page-cache",
            Self::File => "file",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Ram => "A disk in memory",
            Self::PageCache => "A file, written into the page cache",
            Self::File => "A file, each write on the medium before the next",
        }
    }
}

/// A disk, all of which was written once.
pub(super) struct Disk {
    pub kind: Kind,
    pub store: Box<dyn BlockStore>,
    pub bytes: u64,
    place: String,
}

/// Facts about a disk, for the result.
#[derive(Debug, Serialize)]
pub(crate) struct DiskFacts {
    pub id: &'static str,
    pub title: &'static str,
    /// Where it is.
    pub place: String,
}

impl Disk {
    /// Makes a disk; files are made in `dir`, without a name, so that nothing is left behind.
    ///
    /// # Errors
    /// The error and its place.
    pub(super) fn open(kind: Kind, dir: &Path, bytes: u64) -> Result<Self, String> {
        let (store, place): (Box<dyn BlockStore>, _) = match kind {
            Kind::Ram => {
                let store = RamStore::new(bytes, SECTOR_BYTES as u32).map_err(|error| error.to_string())?;
                (Box::new(store), "memory".to_owned())
            }
            Kind::PageCache | Kind::File => (Box::new(nameless(kind, dir, bytes)?), place(dir)),
        };
        let disk = Self { kind, store, bytes, place };
        disk.fill()?;
        Ok(disk)
    }

    /// When its writes end.
    pub(super) fn durability(&self) -> Durability {
        if self.kind == Kind::File { Durability::Durable } else { Durability::Cached }
    }

    pub(super) fn facts(&self) -> DiskFacts {
        DiskFacts { id: self.kind.id(), title: self.kind.title(), place: self.place.clone() }
    }

    /// Writes everything once, so that only overwrites are measured, not the allocation of space.
    fn fill(&self) -> Result<(), String> {
        let content = random(FILL_BYTES, &mut 1);
        let mut at = 0;
        while at < self.bytes {
            let part = (self.bytes - at).min(FILL_BYTES as u64) as usize;
            let written = self.store.write(at, &[&content[..part]], Durability::Cached);
            written.map_err(|error| format!("{}: {error}", self.place))?;
            at += part as u64;
        }
        self.store.flush().map_err(|error| format!("{}: {error}", self.place))
    }
}

/// A folder, and a warning about it: a file in memory has no medium on which writes could end.
fn place(dir: &Path) -> String {
    let in_memory = rustix::fs::statfs(dir).is_ok_and(|system| system.f_type as u32 == TMPFS_MAGIC);
    let warning = if in_memory { " (tmpfs: memory, and no medium; --dir names another folder)" } else { "" };
    format!("{}{warning}", dir.display())
}

fn nameless(kind: Kind, dir: &Path, bytes: u64) -> Result<FileStore, String> {
    let path = dir.join(format!(".intact-bench-guard-{}-{}", kind.id(), std::process::id()));
    let options = FileOptions {
        size_bytes: Some(bytes),
        logical_block_bytes: Some(SECTOR_BYTES as u32),
        ..FileOptions::default()
    };
    let store = FileStore::open(&path, &options).map_err(|error| error.to_string())?;
    fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(store)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_filled_and_leave_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = FILL_BYTES as u64 + 4096;
        for kind in Kind::ALL {
            let disk = Disk::open(kind, dir.path(), bytes).unwrap();
            let mut end = [0; 4096];
            disk.store.read(bytes - 4096, &mut end).unwrap();
            assert!(end.iter().any(|&byte| byte != 0), "{kind:?}");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{kind:?}");
        }
        assert!(!place(Path::new("/proc")).contains("tmpfs"));
        if Path::new("/dev/shm").is_dir() {
            assert!(place(Path::new("/dev/shm")).contains("no medium"));
        }
        let nowhere = Disk::open(Kind::File, &dir.path().join("missing"), bytes);
        assert!(nowhere.err().unwrap().contains("missing"));
    }
}
