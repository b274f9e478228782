//! Small files that are replaced as a whole and survive a loss of power: the labels of volumes, and the data that the device
//! server keeps.
//!
//! A replacement is written to `PATH.new`, synced, renamed over `PATH`, and the directory is synced. So at every moment either the
//! old file or the new one exists. If a replacement is interrupted, the `PATH.new` it leaves is not used, and the next one
//! overwrites it.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file system operations that a replacement and a removal need; a trait so that a test can cut the power between any two
/// steps.
trait Disk {
    /// Makes `path` a file of these bytes, whatever it was before.
    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Returns when the bytes of the file are on the medium.
    fn sync(&mut self, path: &Path) -> io::Result<()>;
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&mut self, path: &Path) -> io::Result<()>;
    /// Returns when the names in the directory are on the medium.
    fn sync_directory(&mut self, directory: &Path) -> io::Result<()>;
}

/// The file system.
struct Real;

impl Disk for Real {
    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        // A file left by a crash may have another mode.
        if let Err(error) = std::fs::remove_file(path)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error);
        }
        // No other user may read or change these files.
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(bytes)
    }

    fn sync(&mut self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_directory(&mut self, directory: &Path) -> io::Result<()> {
        File::open(directory)?.sync_all()
    }
}

/// Replaces the file at `path` by one with these bytes; it is on the medium when this returns.
///
/// # Errors
/// Those of the system; then either the old or the new file is there.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_on(&mut Real, path, bytes)
}

/// Removes the file at `path`; the removal is on the medium when this returns. A missing file is no error.
///
/// # Errors
/// Those of the system.
pub fn remove(path: &Path) -> io::Result<()> {
    remove_on(&mut Real, path)
}

/// The contents of the file at `path`, `None` if there is none. A file of more than `max_bytes` is refused, not cut.
///
/// # Errors
/// Those of the system; [`ErrorKind::FileTooLarge`].
pub fn read(path: &Path, max_bytes: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(io::Error::new(
            ErrorKind::FileTooLarge,
            format!("it has more than {max_bytes} bytes, which no such file has"),
        ));
    }
    Ok(Some(bytes))
}

/// Makes the names in the directory of `path` durable; only then is a new file safe.
///
/// # Errors
/// Those of the system.
pub(crate) fn sync_directory_of(path: &Path) -> io::Result<()> {
    Real.sync_directory(directory_of(path))
}

/// The directory that the name of `path` is in.
pub fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Where the side file of the volume at `path` is, by the suffix of its name: next to the file itself, whichever link leads to it.
/// A device has many names and none that is permanent, so its side files are found by the name given.
pub fn beside_volume(path: &Path, suffix: &str) -> PathBuf {
    match path.canonicalize() {
        Ok(real) if real.is_file() => beside(&real, suffix),
        _ => beside(path, suffix),
    }
}

/// `path` with `suffix` appended to its last name.
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path.as_os_str());
    name.push(suffix);
    name.into()
}

fn replace_on(disk: &mut impl Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = beside(path, ".new");
    disk.write(&new, bytes)?;
    disk.sync(&new)?;
    disk.rename(&new, path)?;
    disk.sync_directory(directory_of(path))
}

fn remove_on(disk: &mut impl Disk, path: &Path) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.and_then(|()| disk.sync_directory(directory_of(path))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A file system after the worst possible loss of power: names reach the medium at once, bytes only when they are synced, and
    /// names that were not synced may be the old ones.
    #[derive(Clone, Default)]
    struct Cuts {
        /// Name to number of the file, now and on the medium at the last sync of the directory.
        names: BTreeMap<PathBuf, usize>,
        synced_names: BTreeMap<PathBuf, usize>,
        /// Bytes of each file, and those that are on the medium.
        files: Vec<(Vec<u8>, Vec<u8>)>,
        steps_left: usize,
    }

    impl Cuts {
        fn step(&mut self) -> io::Result<()> {
            if self.steps_left == 0 {
                return Err(io::Error::other("the power is gone"));
            }
            self.steps_left -= 1;
            Ok(())
        }

        /// What may be read at `path` after the power is back, for either state of the names.
        fn found(&self, path: &Path) -> Vec<Option<Vec<u8>>> {
            let read = |names: &BTreeMap<PathBuf, usize>| names.get(path).map(|&n| self.files[n].1.clone());
            vec![read(&self.names), read(&self.synced_names)]
        }
    }

    impl Disk for Cuts {
        fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
            self.step()?;
            self.files.push((bytes.to_vec(), Vec::new()));
            self.names.insert(path.to_owned(), self.files.len() - 1);
            Ok(())
        }
        fn sync(&mut self, path: &Path) -> io::Result<()> {
            self.step()?;
            let file = &mut self.files[self.names[path]];
            file.1 = file.0.clone();
            Ok(())
        }
        fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
            self.step()?;
            let file = self.names.remove(from).ok_or(ErrorKind::NotFound)?;
            self.names.insert(to.to_owned(), file);
            Ok(())
        }
        fn remove(&mut self, path: &Path) -> io::Result<()> {
            self.step()?;
            self.names.remove(path).map(|_| ()).ok_or(ErrorKind::NotFound.into())
        }
        fn sync_directory(&mut self, _directory: &Path) -> io::Result<()> {
            self.step()?;
            self.synced_names = self.names.clone();
            Ok(())
        }
    }

    const PATH: &str = "/srv/disk.label";

    /// A power cut after any number of steps leaves the old file or the new one, and after the last step the new one.
    #[test]
    fn a_power_cut_leaves_the_old_file_or_the_new_one() {
        let path = Path::new(PATH);
        let mut before = Cuts { steps_left: usize::MAX, ..Cuts::default() };
        replace_on(&mut before, path, b"old").unwrap();
        for steps in 0..10 {
            let mut disk = Cuts { steps_left: steps, ..before.clone() };
            let replaced = replace_on(&mut disk, path, b"newer").is_ok();
            for found in disk.found(path) {
                let found = found.expect("there is always one");
                assert!(found == b"newer" || (!replaced && found == b"old"), "{steps} steps: {found:?}");
            }
        }
    }

    #[test]
    fn what_was_removed_does_not_come_back() {
        let path = Path::new(PATH);
        let mut disk = Cuts { steps_left: usize::MAX, ..Cuts::default() };
        replace_on(&mut disk, path, b"old").unwrap();
        remove_on(&mut disk, path).unwrap();
        assert_eq!(disk.found(path), [None, None]);
        remove_on(&mut disk, path).expect("none is no error");
        disk.steps_left = 0;
        remove_on(&mut disk, path).expect_err("it may still be there");
    }

    #[test]
    fn files_are_read_whole_or_not_at_all() {
        use std::os::unix::fs::PermissionsExt;

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("label");
        assert_eq!(read(&path, 8).unwrap(), None);
        replace(&path, b"12345678").unwrap();
        assert_eq!(read(&path, 8).unwrap().unwrap(), b"12345678");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        replace(&path, b"123456789").unwrap();
        assert_eq!(read(&path, 8).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left over");
        remove(&path).unwrap();
        assert_eq!(read(&path, 8).unwrap(), None);
    }
}
