//! Opening a file store: create it, lock it, inspect it, and refuse it with a remedy if need be.

use std::fs::{File, Metadata, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use rustix::fs::{FlockOperation, OFlags, flock, ioctl_blkpbszget, ioctl_blksszget, major, minor};
use rustix::io::Errno;

use super::health::Health;
use super::os::{OsFile, RealFile};
use super::{FileStore, Shape, Writable};
use crate::journal::Identity;
use crate::store::{check_block_bytes, check_size};
use crate::{Label, StoreError, side_file};

/// Where the kernel lists the block devices.
const BLOCK_DEVICES: &str = "/sys/block";

/// Which label a [`FileStore`] uses.
#[derive(Clone, Copy)]
pub(crate) enum Labelled<'a> {
    /// Its own, kept next to it. Nothing can be kept next to a device, so the label of a device ends with the store.
    Own,
    /// Its own, kept next to it, or at this path if it is a device.
    OwnAt(&'a Path),
    /// The label of the volume that it is a part of.
    Of(&'a Arc<Label>),
}

/// How to open a [`FileStore`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileOptions {
    /// Minimum size in bytes: a file that does not exist is created with it, a smaller one is extended; both sparse. A larger one
    /// stays as it is, since it may have grown in use. `None`: the file must exist, and keeps its size.
    pub size_bytes: Option<u64>,
    /// Bytes of a logical block: a power of two, 512 to 65536. `None`: 512, or the sector of a block device.
    pub logical_block_bytes: Option<u32>,
    /// Refuse every change; other read-only stores may open the same file.
    pub read_only: bool,
}

impl FileStore {
    /// Opens or creates a regular file, or opens a block device. A file that this call created is removed again
    /// when the call fails.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] with the reason and the remedy: missing, wrong type, locked by another server, not whole blocks, no
    /// permission, a label that cannot be read or that belonged to another file.
    pub fn open(path: impl AsRef<Path>, options: &FileOptions) -> Result<Self, StoreError> {
        let store = Self::open_labelled(path.as_ref(), options, Labelled::Own)?;
        store.volume_label().apply_failed_flush();
        Ok(store)
    }

    /// Like [`open`](Self::open), with a label from elsewhere. The code that opens the volume must [take up](Label::apply_failed_flush) that
    /// label.
    ///
    /// # Errors
    /// Those of `open`.
    pub(crate) fn open_labelled(
        path: &Path,
        options: &FileOptions,
        labelled: Labelled<'_>,
    ) -> Result<Self, StoreError> {
        let name = path.display().to_string();
        if let Some(block) = options.logical_block_bytes {
            check_block_bytes(block)?;
        }
        let (file, created) = open_or_create(path, &name, options)?;
        // Lock before any step whose failure removes the file: if another process holds the lock, the file is in use.
        lock(&file, &name, options.read_only)?;
        let store = label(&file, path, labelled, (options.read_only, created))
            .and_then(|label| Self::open_file(file, &name, label, options, created));
        if created {
            match &store {
                Ok(_) => side_file::sync_directory_of(path)
                    .map_err(|source| cannot(&name, "make its directory entry durable", source))?,
                // Best effort: the error that is returned matters more.
                Err(_) => drop(std::fs::remove_file(path)),
            }
        }
        store
    }

    fn open_file(
        file: File,
        name: &str,
        label: Arc<Label>,
        options: &FileOptions,
        created: bool,
    ) -> Result<Self, StoreError> {
        let metadata = file.metadata().map_err(|source| cannot(name, "look at it", source))?;
        let block_device = metadata.file_type().is_block_device();
        if !block_device && !metadata.is_file() {
            return Err(wrong_type(name));
        }
        let sector = if block_device {
            ioctl_blksszget(&file).map_err(|errno| cannot(name, "ask for its sector size", errno.into()))?
        } else {
            512
        };
        let logical = options.logical_block_bytes.unwrap_or(sector);
        if logical < sector {
            return Err(StoreError::Unusable(format!(
                "{name} has sectors of {sector} bytes, blocks of {logical} would not be atomic; use block={sector}"
            )));
        }
        let preferred = if block_device {
            ioctl_blkpbszget(&file).unwrap_or(sector)
        } else {
            u32::try_from(metadata.blksize()).unwrap_or(4096)
        };
        let granularity = if preferred.is_power_of_two() { preferred } else { 4096 };
        let mut shape = Shape {
            block_device,
            logical_block_bytes: logical,
            physical_block_bytes: granularity.clamp(logical, logical.max(65536)),
            rotational: rotational(&metadata, block_device),
            read_only: options.read_only,
            discard_granularity_bytes: 0,
            fallocate_align: if block_device { sector.max(1) } else { 1 },
            identity: identity(&metadata),
        };
        let os = RealFile::new(file, block_device);
        let health = Health::new(name.to_owned(), label);
        let size_bytes = settle_size(&os, &health, options, &shape, created)?;
        if !shape.read_only && can_punch(&os, &metadata, block_device, size_bytes) {
            shape.discard_granularity_bytes = granularity.max(logical);
        }
        Ok(FileStore::new(Box::new(os), name.to_owned(), health, shape, size_bytes))
    }
}

/// The label of a file that is locked. A file that was just created has none: a label found there belongs to an earlier file, and
/// its identity and its lost writes do not concern this one.
fn label(
    file: &File,
    path: &Path,
    labelled: Labelled<'_>,
    (read_only, created): (bool, bool),
) -> Result<Arc<Label>, StoreError> {
    let is_device = || file.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device());
    let place = match labelled {
        Labelled::Of(label) => return Ok(Arc::clone(label)),
        Labelled::OwnAt(place) if is_device() => place.to_owned(),
        Labelled::Own if is_device() => return Ok(Arc::new(Label::in_memory())),
        Labelled::Own | Labelled::OwnAt(_) => Label::beside(path),
    };
    if created && place.exists() {
        return Err(StoreError::Unusable(format!(
            "{0} is the label of a volume {1} that is not there; bring the volume back, or move the label away to begin a new one",
            place.display(),
            path.display()
        )));
    }
    Label::open(place, read_only).map(Arc::new)
}

/// The open file, and whether this call created it.
fn open_or_create(path: &Path, name: &str, options: &FileOptions) -> Result<(File, bool), StoreError> {
    let mut how = OpenOptions::new();
    how.read(true).write(!options.read_only);
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.file_type().is_block_device() => {
            if !options.read_only {
                // Claims the device: fails when it is mounted or part of another device.
                how.custom_flags(OFlags::EXCL.bits().cast_signed());
            }
        }
        Ok(metadata) if metadata.is_file() => {
            check_no_loop_device(Path::new(BLOCK_DEVICES), &metadata, name, options)?
        }
        Ok(_) => return Err(wrong_type(name)),
        Err(error)
            if error.kind() == ErrorKind::NotFound && options.size_bytes.is_some() && !options.read_only =>
        {
            return match how.clone().create_new(true).mode(0o600).open(path) {
                Ok(file) => Ok((file, true)),
                Err(source) => Err(cannot(name, "create it", source)),
            };
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(StoreError::Unusable(format!(
                "{name} does not exist; give size= (and not ro) to create it, or correct the path"
            )));
        }
        Err(source) => return Err(cannot(name, "open it", source)),
    }
    how.open(path).map(|file| (file, false)).map_err(|source| cannot(name, "open it", source))
}

/// Opens the file that `os` has open for reading a second time, for writing. The lock stays with `os` and becomes exclusive.
pub(super) fn for_writing(
    os: &RealFile,
    name: &str,
    shape: &Shape,
    size_bytes: u64,
) -> Result<Writable, StoreError> {
    let open = || {
        lock(os.file(), name, false)?;
        let mut how = OpenOptions::new();
        how.read(true).write(true);
        if os.is_block_device() {
            how.custom_flags(OFlags::EXCL.bits().cast_signed());
        }
        // Not by its path, which may lead to another file by now.
        how.open(format!("/proc/self/fd/{}", os.file().as_raw_fd()))
            .map_err(|source| cannot(name, "open it for writing", source))
    };
    let file = open().inspect_err(|_| {
        // A lock that could not be converted is lost. If another process has it now, our reads of the file do no harm.
        let _ = lock(os.file(), name, true);
    })?;
    let metadata = file.metadata().map_err(|source| cannot(name, "look at it", source))?;
    check_no_loop_device(Path::new(BLOCK_DEVICES), &metadata, name, &FileOptions::default())?;
    let file = RealFile::new(file, os.is_block_device());
    let punches = can_punch(&file, &metadata, os.is_block_device(), size_bytes);
    let discard_granularity_bytes = if punches { shape.physical_block_bytes } else { 0 };
    Ok(Writable { os: Box::new(file), discard_granularity_bytes })
}

/// Refuses to change a file that also backs a loop device: neither of the two would see what the other has in its cache.
fn check_no_loop_device(
    devices: &Path,
    file: &Metadata,
    name: &str,
    options: &FileOptions,
) -> Result<(), StoreError> {
    let device = (!options.read_only).then(|| loop_device_of(devices, file)).flatten();
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

fn wrong_type(name: &str) -> StoreError {
    StoreError::Unusable(format!("{name} is neither a regular file nor a block device; give the path of one"))
}

fn lock(file: &File, name: &str, read_only: bool) -> Result<(), StoreError> {
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

/// Creates or extends the file to the requested size, and checks the result.
fn settle_size(
    os: &RealFile,
    health: &Health,
    options: &FileOptions,
    shape: &Shape,
    created: bool,
) -> Result<u64, StoreError> {
    let (block, name) = (shape.logical_block_bytes, health.name());
    let found = os.size().map_err(|errno| cannot(name, "ask for its size", errno.into()))?;
    // A store that has grown in use is larger than its initial size.
    let Some(wanted) = options.size_bytes.filter(|&wanted| wanted > found || created) else {
        return match check_size(found, block) {
            Ok(()) => Ok(found),
            Err(error) => Err(StoreError::Unusable(format!("{name}: {error}"))),
        };
    };
    check_size(wanted, block).map_err(|error| StoreError::Unusable(format!("{name}: {error}")))?;
    if shape.block_device {
        return Err(StoreError::Unusable(format!(
            "{name} is a device of {found} bytes, not {wanted}; leave size= away"
        )));
    }
    if shape.read_only {
        return Err(StoreError::Unusable(format!(
            "{name} has {found} bytes and cannot grow to {wanted} while read-only; leave size= or ro away"
        )));
    }
    health
        .grow(os, wanted)?
        .map_err(|errno| cannot(name, &format!("extend it to {wanted} bytes"), errno.into()))?;
    Ok(wanted)
}

/// Whether holes can be punched. A file is tested by punching behind its end, which changes nothing; for a device the attributes of
/// its request queue decide.
fn can_punch(os: &RealFile, metadata: &Metadata, block_device: bool, size_bytes: u64) -> bool {
    if block_device {
        return queue_attribute(metadata.rdev(), "write_zeroes_max_bytes").is_some_and(|max| max > 0);
    }
    match os.punch_hole(size_bytes, 4096) {
        Err(errno) => !matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::FBIG),
        Ok(()) => true,
    }
}

/// Inode number and time of birth. They stay the same when the file is renamed or its disk is moved to another machine.
fn identity(metadata: &Metadata) -> Identity {
    let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    let born = born.map_or(0, |born| born.as_nanos() as u64);
    (u128::from(metadata.ino()) << 64 | u128::from(born)).to_be_bytes()
}

fn rotational(metadata: &Metadata, block_device: bool) -> bool {
    let device = if block_device { metadata.rdev() } else { metadata.dev() };
    queue_attribute(device, "rotational") == Some(1)
}

/// A number from the request queue of a device, or of the disk that a partition is on.
fn queue_attribute(device: u64, attribute: &str) -> Option<u64> {
    let node = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    ["queue", "../queue"].iter().find_map(|queue| {
        std::fs::read_to_string(format!("{node}/{queue}/{attribute}")).ok()?.trim().parse().ok()
    })
}

fn cannot(name: &str, what: &str, source: std::io::Error) -> StoreError {
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
            let options = FileOptions { read_only, ..FileOptions::default() };
            check_no_loop_device(&devices, &std::fs::metadata(path).unwrap(), "it", &options)
        };
        let refused = check(&disk, false).unwrap_err().to_string();
        assert!(refused.contains("losetup -d /dev/loop7") && refused.contains("with ro"), "{refused}");
        check(&disk, true).unwrap();
        check(&other, false).unwrap();
    }

    #[test]
    fn holes_are_punched_only_where_the_file_system_can() {
        let can = |path: &Path| {
            let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
            let metadata = file.metadata().unwrap();
            can_punch(&RealFile::new(file, false), &metadata, false, 0)
        };
        // The file system of processes has no fallocate(2).
        assert!(!can(Path::new("/proc/self/comm")));
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, [1; 512]).unwrap();
        // Not every file system below the directory can; whether this one can is what the call itself says.
        let opened = RealFile::new(OpenOptions::new().read(true).write(true).open(&file).unwrap(), false);
        assert_eq!(can(&file), opened.punch_hole(0, 512).is_ok());
    }
}
