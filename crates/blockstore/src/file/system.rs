//! What the system knows about a file or a device: who else uses it, and what it is.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use rustix::fs::{FlockOperation, flock, major, minor};
use rustix::io::Errno;

use crate::StoreError;
use crate::store::Identity;

/// Where the kernel lists the block devices.
const BLOCK_DEVICES: &str = "/sys/block";

/// Locks the file: shared for reading, else exclusively. A lock that this process has is converted.
pub(super) fn lock(file: &File, name: &str, read_only: bool) -> Result<(), StoreError> {
    let how = if read_only {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    match flock(file, how) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(StoreError::Unusable(format!(
            "{name} is in use: another server or logical unit holds its lock; stop that one, or open both with ro"
        ))),
        Err(errno) => Err(cannot(name, "lock it", errno.into())),
    }
}

/// Refuses to change a file that also backs a loop device: neither of the two would see what the other has in its cache. It may be read.
pub(super) fn check_no_loop_device(file: &Metadata, name: &str, read_only: bool) -> Result<(), StoreError> {
    check_no_loop_device_of(Path::new(BLOCK_DEVICES), file, name, read_only)
}

fn check_no_loop_device_of(
    devices: &Path,
    file: &Metadata,
    name: &str,
    read_only: bool,
) -> Result<(), StoreError> {
    let device = if read_only { None } else { loop_device_of(devices, file) };
    device.map_or(Ok(()), |device| {
        Err(StoreError::Unusable(format!(
            "{name} is behind the loop device /dev/{device}, which may be mounted; release it first (umount, losetup -d /dev/{device}), \
             or open it with ro"
        )))
    })
}

/// The loop device that uses this file, if there is one.
fn loop_device_of(devices: &Path, file: &Metadata) -> Option<String> {
    std::fs::read_dir(devices).ok()?.flatten().find_map(|device| {
        let backing = std::fs::read_to_string(device.path().join("loop/backing_file")).ok()?;
        let behind = std::fs::metadata(backing.trim_end_matches('\n')).ok()?;
        let is_it = (behind.dev(), behind.ino()) == (file.dev(), file.ino());
        is_it.then(|| device.file_name().to_string_lossy().into_owned())
    })
}

/// Inode number and time of birth. They stay the same when the file is renamed or its disk is moved to another machine.
pub(super) fn identity(metadata: &Metadata) -> Identity {
    let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    let born = born.map_or(0, |born| born.as_nanos() as u64);
    (u128::from(metadata.ino()) << 64 | u128::from(born)).to_be_bytes()
}

/// Whether seeks cost time on the device, or on the one that has the file.
pub(super) fn rotational(metadata: &Metadata, block_device: bool) -> bool {
    let device = if block_device { metadata.rdev() } else { metadata.dev() };
    queue_attribute(device, "rotational") == Some(1)
}

/// A number from the request queue of a device, or of the disk that a partition is on.
pub(super) fn queue_attribute(device: u64, attribute: &str) -> Option<u64> {
    let node = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    ["queue", "../queue"].iter().find_map(|queue| {
        std::fs::read_to_string(format!("{node}/{queue}/{attribute}")).ok()?.trim().parse().ok()
    })
}

/// The error of a call that failed, with the remedy.
pub(super) fn cannot(name: &str, what: &str, source: std::io::Error) -> StoreError {
    let remedy = match Errno::from_io_error(&source) {
        Some(Errno::ACCESS | Errno::PERM) => "; give the server's user access, or open it with ro",
        Some(Errno::ROFS) => "; its file system is read-only: open it with ro",
        Some(Errno::BUSY) => {
            "; it is mounted or part of another device: release it first, or open it with ro"
        }
        Some(Errno::NOTDIR | Errno::NOENT) => "; create its directory or correct the path",
        Some(Errno::FBIG | Errno::INVAL) => "; the file system cannot hold that size: choose a smaller one",
        Some(Errno::NOSPC | Errno::DQUOT) => "; free some space or choose a smaller size",
        _ => "; see the system log",
    };
    StoreError::Unusable(format!("{name}: cannot {what}: {source}{remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_behind_a_loop_device_is_not_changed() {
        let directory = tempfile::tempdir().unwrap();
        let (disk, other) = (directory.path().join("disk"), directory.path().join("other"));
        std::fs::write(&disk, [0; 512]).unwrap();
        std::fs::write(&other, [0; 512]).unwrap();
        // The kernel reports the path by which the file was attached. Devices without a file have no such entry.
        let devices = directory.path().join("block");
        std::fs::create_dir_all(devices.join("sda")).unwrap();
        std::fs::create_dir_all(devices.join("loop7/loop")).unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&disk, &link).unwrap();
        std::fs::write(devices.join("loop7/loop/backing_file"), format!("{}\n", link.display())).unwrap();
        let check = |path: &Path, read_only| {
            check_no_loop_device_of(&devices, &std::fs::metadata(path).unwrap(), "it", read_only)
        };
        let refused = check(&disk, false).unwrap_err().to_string();
        assert!(refused.contains("losetup -d /dev/loop7") && refused.contains("with ro"), "{refused}");
        check(&disk, true).unwrap();
        check(&other, false).unwrap();
    }
}
