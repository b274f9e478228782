//! Opening a file store: create it, lock it, inspect it, and refuse it with a remedy if need be.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{OFlags, ioctl_blkpbszget, ioctl_blksszget};

use super::health::Health;
use super::os::{OsFile, RealFile};
use super::system::{cannot, check_no_loop_device, identity, lock, rotational};
use super::{FileStore, Shape};
use crate::store::{check_block_bytes, check_size};
use crate::{Label, StoreError, side_file};

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
        if !shape.read_only && os.can_punch(&metadata, size_bytes) {
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
            check_no_loop_device(&metadata, name, options.read_only)?;
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

fn wrong_type(name: &str) -> StoreError {
    StoreError::Unusable(format!("{name} is neither a regular file nor a block device; give the path of one"))
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
