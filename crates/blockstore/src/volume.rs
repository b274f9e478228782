//! Opening a file with what is kept beside it: its label (`PATH.intact`), its journal (`PATH.atomic`) and its protection information
//! (`PATH.pi`).
//!
//! Invariant: whoever changes the file has looked at all of them, whatever options they were given. What the journal has left to do
//! is done before anything else is written, and a file that has protection information is not written without it. So nothing that
//! is kept beside a file becomes older than the file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::journal::{Identity, check_max};
use crate::protected::check_protectable;
use crate::{
    BlockStore, FileOptions, FileStore, JournaledStore, Label, Labelled, ProtectedStore, StoreError,
    side_file,
};

/// A file and how it is to be opened.
pub(crate) struct Volume<'a> {
    path: &'a Path,
    options: &'a FileOptions,
    /// Where labels of devices are kept.
    state_dir: Option<&'a Path>,
}

impl<'a> Volume<'a> {
    pub(crate) fn new(path: &'a Path, options: &'a FileOptions, state_dir: Option<&'a Path>) -> Self {
        Volume { path, options, state_dir }
    }

    /// Opens the file, and looks at what is beside it, whatever is asked for.
    pub(crate) fn open(
        &self,
        protection: Option<u8>,
        atomic_bytes: Option<u64>,
    ) -> Result<Arc<dyn BlockStore>, StoreError> {
        let place = self.state_dir.map(|directory| Label::within(directory, self.path));
        let labelled = place.as_deref().map_or(Labelled::Own, Labelled::OwnAt);
        let file = FileStore::open_labelled(self.path, self.options, labelled)?;
        let identity = file.identity();
        let label = Arc::clone(file.volume_label());
        let store: Arc<dyn BlockStore> = match protection {
            Some(kind) => Arc::new(self.protected(file, kind)?),
            None => {
                self.check_unprotected()?;
                Arc::new(file)
            }
        };
        match atomic_bytes {
            Some(max) => self.journaled(store, (identity, &label), max),
            None => self.settled(store, (identity, &label)),
        }
    }

    fn place(&self, suffix: &str) -> PathBuf {
        side_file::beside(self.path, suffix)
    }

    /// The place of what an option wants to have beside the file.
    fn wanted(&self, suffix: &str, option: &str) -> Result<PathBuf, StoreError> {
        if self.path.is_file() {
            return Ok(self.place(suffix));
        }
        // What lies beside a device node is gone with the next start.
        Err(StoreError::Unusable(format!(
            "{} is a device, beside which nothing can be kept; leave {option} away, or use a file",
            self.path.display()
        )))
    }

    /// The bytes of what is beside the file; 0 also when it was being made as the power went.
    fn found(&self, suffix: &str) -> Result<u64, StoreError> {
        let place = self.place(suffix);
        match std::fs::metadata(&place) {
            Ok(metadata) => Ok(metadata.len()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(StoreError::Unusable(format!(
                "{}: cannot look whether something is left to do: {error}; give the server's user access",
                place.display()
            ))),
        }
    }

    fn beside(
        &self,
        place: &Path,
        size_bytes: Option<u64>,
        label: &Arc<Label>,
    ) -> Result<FileStore, StoreError> {
        let how = FileOptions { size_bytes, logical_block_bytes: None, read_only: self.options.read_only };
        FileStore::open_labelled(place, &how, Labelled::Of(label))
    }

    /// A block that is written without its record fails every check from then on.
    fn check_unprotected(&self) -> Result<(), StoreError> {
        if self.found(".pi")? == 0 {
            return Ok(());
        }
        Err(StoreError::Unusable(format!(
            "{} has protection information in {}, which writes without it would make wrong; give pi=, or move that file away to do \
             without it for good",
            self.path.display(),
            self.place(".pi").display()
        )))
    }

    fn protected(&self, store: FileStore, kind: u8) -> Result<ProtectedStore, StoreError> {
        check_protectable(&store.geometry())?;
        let size_bytes = Some(ProtectedStore::side_bytes(&store.geometry())?);
        let side = self.beside(&self.wanted(".pi", "pi=")?, size_bytes, store.volume_label())?;
        ProtectedStore::new(Arc::new(store), Arc::new(side), kind)
    }

    /// A store that is only read needs no journal, but it has to be looked at: something may be unfinished.
    fn journaled(
        &self,
        store: Arc<dyn BlockStore>,
        (identity, label): (Identity, &Arc<Label>),
        max: u64,
    ) -> Result<Arc<dyn BlockStore>, StoreError> {
        check_max(&store.geometry(), max)?;
        let place = self.wanted(".atomic", "atomic=")?;
        let found = self.found(".atomic")?;
        let size_bytes = match self.options.read_only {
            true if found == 0 => return Ok(store),
            true => None,
            false => Some(found.max(JournaledStore::journal_bytes(max))),
        };
        let journal = self.beside(&place, size_bytes, label)?;
        Ok(Arc::new(JournaledStore::new(store, Arc::new(journal), identity, max)?))
    }

    /// A store without a journal, once one that it had before has nothing left to do.
    fn settled(
        &self,
        store: Arc<dyn BlockStore>,
        (identity, label): (Identity, &Arc<Label>),
    ) -> Result<Arc<dyn BlockStore>, StoreError> {
        if self.found(".atomic")? > 0 {
            let journal = self.beside(&self.place(".atomic"), None, label)?;
            JournaledStore::finish(Arc::clone(&store), Arc::new(journal), identity)?;
        }
        Ok(store)
    }
}
