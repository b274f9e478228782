//! A file and the files kept next to it: its label (`PATH.intact`), its journal (`PATH.atomic`), its protection information
//! (`PATH.pi`) and the log of both (`PATH.pi-log`).
//!
//! Invariant: code that changes the file has checked all of them, whatever options it was given. Work that a journal or a log has
//! left is finished before anything else is written, and a file that has protection information is not written without it. So
//! nothing kept next to a file becomes older than the file.

use std::path::Path;
use std::sync::Arc;

use crate::file::Labelled;
use crate::journal::{Life, check_max};
use crate::log::LOG_BYTES;
use crate::protected::check_protectable;
use crate::store::Identity;
use crate::{
    BlockStore, FileOptions, FileStore, JournaledStore, Label, ProtectedStore, StoreError, label, side_file,
};

pub(crate) const JOURNAL: &str = ".atomic";
pub(crate) const RECORDS: &str = ".pi";
pub(crate) const LOG: &str = ".pi-log";

/// Finds what is kept next to a store of blocks, by the suffix of its name.
pub(crate) trait SideFiles {
    /// Its name, for messages.
    fn name(&self, suffix: &str) -> String;
    /// Its size in bytes; 0 where there is none, and where the power failed while it was being created.
    fn found(&self, suffix: &str) -> Result<u64, StoreError>;
    /// Opens it with the same access as the blocks; creates it with `size_bytes` if that is given.
    fn open(&self, suffix: &str, size_bytes: Option<u64>) -> Result<Arc<dyn BlockStore>, StoreError>;
    /// Fails where the data for `option` cannot be kept.
    fn check_room(&self, option: &str) -> Result<(), StoreError>;
}

/// What is kept next to a file.
struct Files<'a> {
    path: &'a Path,
    read_only: bool,
    label: Arc<Label>,
}

impl SideFiles for Files<'_> {
    fn name(&self, suffix: &str) -> String {
        side_file::beside_volume(self.path, suffix).display().to_string()
    }

    fn found(&self, suffix: &str) -> Result<u64, StoreError> {
        match std::fs::metadata(side_file::beside_volume(self.path, suffix)) {
            Ok(metadata) => Ok(metadata.len()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(StoreError::Unusable(format!(
                "{}: cannot look whether something is left to do: {error}; give the server's user access",
                self.name(suffix)
            ))),
        }
    }

    fn open(&self, suffix: &str, size_bytes: Option<u64>) -> Result<Arc<dyn BlockStore>, StoreError> {
        let how = FileOptions { size_bytes, logical_block_bytes: None, read_only: self.read_only };
        let place = side_file::beside_volume(self.path, suffix);
        Ok(Arc::new(FileStore::open_labelled(&place, &how, Labelled::Of(&self.label))?))
    }

    fn check_room(&self, option: &str) -> Result<(), StoreError> {
        if self.path.is_file() {
            return Ok(());
        }
        // A file next to a device node disappears at the next start.
        Err(StoreError::Unusable(format!(
            "{} is a device, beside which nothing can be kept; leave {option} away, or use a file",
            self.path.display()
        )))
    }
}

/// Opens a file with everything next to it; labels of devices are kept in `state_dir`.
pub(crate) fn open(
    path: &Path,
    options: &FileOptions,
    state_dir: Option<&Path>,
    protection: Option<u8>,
    atomic_bytes: Option<u64>,
) -> Result<Arc<dyn BlockStore>, StoreError> {
    let place = state_dir.map(|directory| Label::within(directory, path));
    let labelled = place.as_deref().map_or(Labelled::Own, Labelled::OwnAt);
    check_no_other_place(path)?;
    let file = FileStore::open_labelled(path, options, labelled)?;
    let (identity, label) = (file.identity(), Arc::clone(file.volume_label()));
    let side_files = Files { path, read_only: options.read_only, label };
    let store = assemble(&side_files, Arc::new(file), identity, protection, atomic_bytes)?;
    // Only now that interrupted work is finished.
    side_files.label.apply_failed_flush();
    Ok(store)
}

/// Refuses files next to a link, since only those next to the file are used. An earlier version put them there, or they belong to another
/// file.
fn check_no_other_place(path: &Path) -> Result<(), StoreError> {
    let all = [label::SUFFIX, JOURNAL, RECORDS, LOG];
    let places = all.map(|suffix| (side_file::beside(path, suffix), side_file::beside_volume(path, suffix)));
    let is_elsewhere = |place: &Path, right: &Path| {
        place != right && place.exists() && place.canonicalize().ok() != right.canonicalize().ok()
    };
    match places.iter().find(|(place, right)| is_elsewhere(place, right)) {
        None => Ok(()),
        Some((place, right)) => Err(StoreError::Unusable(format!(
            "{} is a link to a file, and {} lies beside the link; what belongs to the file lies beside the file: move it to {} if it \
             does, or away",
            path.display(),
            place.display(),
            right.display()
        ))),
    }
}

/// Combines a store of blocks with what is kept next to it, and checks all of that whatever options are given.
pub(crate) fn assemble(
    side_files: &dyn SideFiles,
    blocks: Arc<dyn BlockStore>,
    identity: Identity,
    protection: Option<u8>,
    atomic_bytes: Option<u64>,
) -> Result<Arc<dyn BlockStore>, StoreError> {
    if let Some(max) = atomic_bytes {
        check_max(&blocks.geometry(), max)?;
    }
    if let Some(kind) = protection {
        return protected(side_files, blocks, identity, kind, atomic_bytes.unwrap_or(0));
    }
    check_unprotected(side_files, &*blocks)?;
    match atomic_bytes {
        Some(max) => journaled(side_files, blocks, identity, max),
        None => settled(side_files, blocks, identity, Life::Begins),
    }
}

/// A block that is written without its record fails every check from then on.
fn check_unprotected(side_files: &dyn SideFiles, blocks: &dyn BlockStore) -> Result<(), StoreError> {
    for suffix in [RECORDS, LOG] {
        if side_files.found(suffix)? > 0 {
            return Err(StoreError::Unusable(format!(
                "{} has protection information in {}, which writes without it would make wrong; give pi=, or move that file away to do \
                 without it for good",
                blocks.description(),
                side_files.name(suffix)
            )));
        }
    }
    Ok(())
}

fn protected(
    side_files: &dyn SideFiles,
    blocks: Arc<dyn BlockStore>,
    identity: Identity,
    kind: u8,
    atomic_bytes: u64,
) -> Result<Arc<dyn BlockStore>, StoreError> {
    check_protectable(&blocks.geometry())?;
    side_files.check_room("pi=")?;
    let side = side_files.open(RECORDS, Some(ProtectedStore::side_bytes(&blocks.geometry())?))?;
    // Versions without a log kept the writes of such volumes in a journal.
    let plain = ProtectedStore::new(Arc::clone(&blocks), Arc::clone(&side), kind)?;
    let plain = settled(side_files, Arc::new(plain), identity, Life::Stays)?;
    let found = side_files.found(LOG)?;
    let size_bytes = match blocks.geometry().read_only {
        true if found == 0 => return Ok(plain),
        true => None,
        false => Some(found.max(LOG_BYTES)),
    };
    let log = side_files.open(LOG, size_bytes)?;
    Ok(Arc::new(ProtectedStore::with_log(blocks, (side, kind), log, identity, atomic_bytes)?))
}

/// A store opened read-only needs no journal, but an existing one must be checked: something may be unfinished.
fn journaled(
    side_files: &dyn SideFiles,
    blocks: Arc<dyn BlockStore>,
    identity: Identity,
    max: u64,
) -> Result<Arc<dyn BlockStore>, StoreError> {
    side_files.check_room("atomic=")?;
    let found = side_files.found(JOURNAL)?;
    let size_bytes = match blocks.geometry().read_only {
        true if found == 0 => return Ok(blocks),
        true => None,
        false => Some(found.max(JournaledStore::journal_bytes(max))),
    };
    let journal = side_files.open(JOURNAL, size_bytes)?;
    Ok(Arc::new(JournaledStore::new(blocks, journal, identity, max)?))
}

/// A store without a journal, after work left in an earlier journal has been finished.
fn settled(
    side_files: &dyn SideFiles,
    blocks: Arc<dyn BlockStore>,
    identity: Identity,
    life: Life,
) -> Result<Arc<dyn BlockStore>, StoreError> {
    if side_files.found(JOURNAL)? > 0 {
        JournaledStore::finish(Arc::clone(&blocks), side_files.open(JOURNAL, None)?, identity, life)?;
    }
    Ok(blocks)
}
