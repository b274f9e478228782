//! The label of a volume: what must be known about it before it is served, whatever options it is opened with.
//!
//! It is a small JSON file, `PATH.intact` next to a file. For a device, next to which nothing can be kept, the caller gives a path.
//! The label is replaced as a whole ([`side_file`]), only by the holder of the volume's lock, and only when there is something to
//! store: a volume without a label file has an empty label.
//!
//! ```json
//! { "version": 1, "identity": "9f0c…", "journal_generation": 7, "records": { "generation": 3 },
//!   "failed_flush": { "reason": "…", "unflushed_bytes": 4096 } }
//! ```
//!
//! * **Fields** that this program does not know are kept: a newer program may add some that an older one can ignore. What an older
//!   program must not ignore raises the **version**, and a label of an unknown version is refused.
//! * A label that **cannot be read** is an error that names the file and the remedy. It is never treated as empty: that would forget
//!   a lost write, or give a volume another identity.
//! * The object always matches the medium: a change that could not be stored does not take effect. The one exception is a failed
//!   flush: it counts in any case, and its reason says that it could not be stored.
//!
//! Invariant: once a flush has failed, nothing is written to the volume and no sync of it succeeds, on any of its files, until an
//! operator reopens the volume. Code that opens the files of a volume calls [`Label::apply_failed_flush`] once they are ready: the interrupted
//! writes of a journal are replayed before that.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::{StoreError, side_file};

/// The suffix of the label of a file.
pub(crate) const SUFFIX: &str = ".intact";
/// Largest label that is read, bytes: many times what its fields need.
const MAX_BYTES: u64 = 64 * 1024;
const VERSION: u32 = 1;
/// Longest reason that is kept, characters.
const REASON_CHARS: usize = 512;

/// The label of an open volume; see the head of the module. All files of a volume share one label.
pub struct Label {
    place: Place,
    fields: Mutex<Fields>,
    /// Others may read the volume, so the label must not be changed.
    shared: AtomicBool,
    /// Writes are refused: true while a failed flush counts, once the label was taken up.
    refuses: AtomicBool,
    /// How many flushes failed since the label was opened.
    failures: AtomicU64,
}

/// Where a label is kept.
enum Place {
    File(PathBuf),
    /// Nowhere: it ends with the object.
    Memory,
}

/// A 128-bit number that no other volume has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VolumeId(u128);

/// A flush that failed: which of the writes before it are on the medium is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedFlush {
    /// The system's error, for people.
    pub reason: String,
    /// Bytes that were written and acknowledged since the last flush that succeeded: up to this many may be lost.
    pub unflushed_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Fields {
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    identity: Option<VolumeId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed_flush: Option<FailedFlush>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    journal_generation: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    records: Option<RecordsLife>,
    /// Fields of newer programs.
    #[serde(flatten)]
    others: serde_json::Map<String, serde_json::Value>,
}

/// The life of the volume to which its records belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RecordsLife {
    generation: u64,
    /// The life that is starting: the records may already carry this number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

impl Default for Fields {
    fn default() -> Self {
        Fields {
            version: VERSION,
            identity: None,
            failed_flush: None,
            journal_generation: None,
            records: None,
            others: serde_json::Map::new(),
        }
    }
}

impl Label {
    /// Where the label of the file at `volume` is kept.
    pub fn beside(volume: &Path) -> PathBuf {
        side_file::beside_volume(volume, SUFFIX)
    }

    /// Where the label of the device at `volume` is kept in a directory: its path, with `%2F` for each slash.
    pub fn within(directory: &Path, volume: &Path) -> PathBuf {
        let name = volume.to_string_lossy().replace('%', "%25").replace('/', "%2F");
        directory.join(name + SUFFIX)
    }

    /// Reads the label at `path`; an empty one if there is no file. The caller holds the lock of the volume, exclusively or `shared`
    /// with other readers; if shared, the label cannot be changed.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] with the remedy, if the file cannot be read or makes no sense.
    pub fn open(path: impl Into<PathBuf>, shared: bool) -> Result<Self, StoreError> {
        let path = path.into();
        let fields = read(&path)?;
        Ok(Self::new(Place::File(path), fields, shared))
    }

    /// A label that is not stored: for memory, and for a device for which the caller has no place.
    pub fn in_memory() -> Self {
        Self::new(Place::Memory, Fields::default(), false)
    }

    fn new(place: Place, fields: Fields, shared: bool) -> Self {
        Label {
            place,
            fields: Mutex::new(fields),
            shared: AtomicBool::new(shared),
            refuses: AtomicBool::new(false),
            failures: AtomicU64::new(0),
        }
    }

    /// Where it is stored; `None` when it ends with the process.
    pub fn path(&self) -> Option<&Path> {
        match &self.place {
            Place::File(path) => Some(path),
            Place::Memory => None,
        }
    }

    /// The identity that was given to the volume.
    pub fn identity(&self) -> Option<VolumeId> {
        self.fields.lock().identity
    }

    /// Gives the volume an identity, or removes it.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] with the reason, if it cannot be stored, and [`StoreError::ReadOnly`] while others may read the
    /// volume too; nothing is changed then.
    pub fn set_identity(&self, identity: Option<VolumeId>) -> Result<(), StoreError> {
        self.change(|fields| fields.identity = identity)
    }

    /// The flush that failed, if one did and no operator has cleared it since.
    pub fn failed_flush(&self) -> Option<FailedFlush> {
        self.fields.lock().failed_flush.clone()
    }

    /// From here on a failed flush, even one before a restart, causes writes to be refused.
    pub(crate) fn apply_failed_flush(&self) {
        let fields = self.fields.lock();
        if fields.failed_flush.is_some() {
            self.failures.fetch_add(1, Ordering::AcqRel);
            self.refuses.store(true, Ordering::Release);
        }
    }

    /// Fails while a failed flush is in effect.
    pub(crate) fn check_flushed(&self) -> Result<(), StoreError> {
        match self.refuses.load(Ordering::Acquire) {
            true => Err(self.failure()),
            false => Ok(()),
        }
    }

    /// How many flushes have failed.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }

    /// Fails if a flush has failed since the count was `failures`, even if an operator has cleared that failure.
    pub(crate) fn check_no_failure_since(&self, failures: u64) -> Result<(), StoreError> {
        if self.failures() == failures { Ok(()) } else { Err(self.failure()) }
    }

    fn failure(&self) -> StoreError {
        let fields = self.fields.lock();
        let why = fields.failed_flush.as_ref().map_or("it was opened again since", |failed| &failed.reason);
        StoreError::FlushFailed(why.to_owned())
    }

    /// Records that a flush has failed: it counts from here on, and is stored. The first reason stays.
    pub(crate) fn flush_failed(&self, failed: FailedFlush) -> StoreError {
        let mut fields = self.fields.lock();
        self.failures.fetch_add(1, Ordering::AcqRel);
        self.refuses.store(true, Ordering::Release);
        if fields.failed_flush.is_none() {
            let mut reason: String = failed.reason.chars().take(REASON_CHARS).collect();
            fields.failed_flush = Some(FailedFlush { reason: reason.clone(), ..failed });
            if let Err(error) = self.store(&fields) {
                reason += &format!("; after a restart nothing will say so, because {error}");
                fields.failed_flush = Some(FailedFlush { reason, ..failed });
            }
        }
        drop(fields);
        self.failure()
    }

    /// An operator has cleared the failed flush; returns what was recorded about it.
    ///
    /// # Errors
    /// Those of [`set_identity`](Self::set_identity).
    pub(crate) fn clear_failed_flush(&self) -> Result<Option<FailedFlush>, StoreError> {
        let failed = self.failed_flush();
        self.change(|fields| fields.failed_flush = None)?;
        self.refuses.store(false, Ordering::Release);
        Ok(failed)
    }

    /// How often the volume was opened in a way that makes earlier journal contents out of date; initially 0.
    pub fn journal_generation(&self) -> u64 {
        self.fields.lock().journal_generation.unwrap_or(0)
    }

    /// Starts another generation.
    ///
    /// # Errors
    /// Those of [`set_identity`](Self::set_identity).
    pub fn set_journal_generation(&self, generation: u64) -> Result<(), StoreError> {
        self.change(|fields| fields.journal_generation = Some(generation))
    }

    /// Whether records that carry this life number can belong to this volume: they are from its last life, or from one whose start
    /// was interrupted. A label without information about records accepts any.
    pub(crate) fn knows_records_of(&self, generation: u64) -> bool {
        let life = self.fields.lock().records;
        life.is_none_or(|life| generation == life.generation || Some(generation) == life.next)
    }

    /// Starts the next life of the records, which are of `generation`: `say` stores the new number in the records, durably when it
    /// returns.
    ///
    /// # Errors
    /// Those of [`set_identity`](Self::set_identity), and those of `say`.
    pub(crate) fn begin_life_of_records(
        &self,
        generation: u64,
        say: impl FnOnce(u64) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let known = self.fields.lock().records.map_or(0, |life| life.generation.max(life.next.unwrap_or(0)));
        let next = known.max(generation) + 1;
        self.change(|fields| fields.records = Some(RecordsLife { generation, next: Some(next) }))?;
        say(next)?;
        self.change(|fields| fields.records = Some(RecordsLife { generation: next, next: None }))
    }

    /// The lock of the volume was shared, and is exclusive now: another process may have changed the label meanwhile.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub(crate) fn make_writable(&self) -> Result<(), StoreError> {
        if let Place::File(path) = &self.place {
            *self.fields.lock() = read(path)?;
        }
        self.shared.store(false, Ordering::Release);
        self.apply_failed_flush();
        Ok(())
    }

    fn change(&self, change: impl FnOnce(&mut Fields)) -> Result<(), StoreError> {
        let mut fields = self.fields.lock();
        let mut changed = fields.clone();
        change(&mut changed);
        if changed == *fields {
            return Ok(());
        }
        if self.shared.load(Ordering::Acquire) {
            return Err(StoreError::ReadOnly);
        }
        self.store(&changed)?;
        *fields = changed;
        Ok(())
    }

    fn store(&self, fields: &Fields) -> Result<(), StoreError> {
        let Place::File(path) = &self.place else { return Ok(()) };
        store(path, fields).map_err(|error| {
            StoreError::Unusable(format!(
                "the label {} cannot be stored: {error}; make room in its directory and give the server's user access to it",
                path.display()
            ))
        })
    }
}

fn read(path: &Path) -> Result<Fields, StoreError> {
    let unusable = |what: &dyn fmt::Display| {
        StoreError::Unusable(format!(
            "the label {} cannot be read: {what}; restore it from a copy. Without one, move it away: the volume is then taken for \
             a new one, with another identity, and nothing says any more whether writes to it were lost",
            path.display()
        ))
    };
    let Some(bytes) = side_file::read(path, MAX_BYTES).map_err(|error| unusable(&error))? else {
        return Ok(Fields::default());
    };
    // The version first: of an unknown version nothing else is known.
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let Version { version } = serde_json::from_slice(&bytes).map_err(|error| unusable(&error))?;
    if version != VERSION {
        return Err(StoreError::Unusable(format!(
            "the label {} has version {version}, this program knows {VERSION}; use a newer program",
            path.display()
        )));
    }
    serde_json::from_slice(&bytes).map_err(|error| unusable(&error))
}

fn store(path: &Path, fields: &Fields) -> std::io::Result<()> {
    let mut text = serde_json::to_vec_pretty(fields)?;
    text.push(b'\n');
    side_file::replace(path, &text)
}

impl VolumeId {
    /// From its bytes, the most significant first.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        VolumeId(u128::from_be_bytes(bytes))
    }

    /// Its bytes, the most significant first.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for VolumeId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_one = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = u128::from_str_radix(text, 16).ok().filter(|_| is_one);
        id.map(VolumeId).ok_or_else(|| format!("`{text}` is no identity; it has 32 hexadecimal digits"))
    }
}

impl Serialize for VolumeId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for VolumeId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: VolumeId = VolumeId::from_bytes([0xab; 16]);

    fn failed() -> FailedFlush {
        FailedFlush { reason: "Input/output error".to_owned(), unflushed_bytes: 4096 }
    }

    fn error(label: Result<Label, StoreError>) -> String {
        label.map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_set_is_there_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = Label::beside(&directory.path().join("disk"));
        assert_eq!(path, directory.path().join("disk.intact"));
        let label = Label::open(&path, false).unwrap();
        assert_eq!((label.identity(), label.failed_flush(), label.journal_generation()), (None, None, 0));
        assert!(!path.exists(), "a label that says nothing is no file");

        label.set_identity(Some(ID)).unwrap();
        let error = label.flush_failed(failed()).to_string();
        assert!(error.contains("Input/output error"), "{error}");
        label.set_journal_generation(7).unwrap();
        for label in [label, Label::open(&path, false).unwrap()] {
            assert_eq!(label.identity(), Some(ID));
            assert_eq!(label.failed_flush(), Some(failed()));
            assert_eq!(label.journal_generation(), 7);
        }

        let label = Label::open(&path, false).unwrap();
        label.check_flushed().expect("not before it is taken up");
        label.apply_failed_flush();
        assert!(matches!(label.check_flushed(), Err(StoreError::FlushFailed(why)) if why == failed().reason));
        assert_eq!(label.clear_failed_flush().unwrap(), Some(failed()));
        label.check_flushed().unwrap();
        let again = Label::open(&path, false).unwrap();
        assert_eq!((again.identity(), again.failed_flush()), (Some(ID), None));
    }

    #[test]
    fn fields_of_a_newer_program_are_kept_and_a_newer_version_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.intact");
        std::fs::write(&path, "{\"version\":1,\"colour\":{\"red\":3}}").unwrap();
        let label = Label::open(&path, false).unwrap();
        label.set_identity(Some(ID)).unwrap();
        let text: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(text["colour"]["red"], 3);
        assert_eq!(text["identity"], "abababababababababababababababab");

        std::fs::write(&path, "{\"version\":2,\"identity\":{}}").unwrap();
        let error = error(Label::open(&path, false));
        assert!(error.contains("version 2") && error.contains("newer program"), "{error}");
    }

    #[test]
    fn a_damaged_label_is_never_taken_for_an_empty_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.intact");
        let long = format!("{{\"version\":1,\"more\":\"{}\"}}", "x".repeat(MAX_BYTES as usize));
        for text in [
            "",
            "{",
            "\0\0\0\0",
            "{}",
            "{\"version\":\"1\"}",
            "{\"version\":1,\"identity\":\"+babababababababababababababababa\"}",
            "{\"version\":1,\"identity\":\"abab\"}",
            "{\"version\":1,\"failed_flush\":true}",
            &long,
        ] {
            std::fs::write(&path, text).unwrap();
            let error = error(Label::open(&path, false));
            assert!(error.contains("disk.intact") && error.contains("restore it"), "{error}");
            assert_eq!(std::fs::read(&path).unwrap(), text.as_bytes(), "it is left as it was");
        }
    }

    #[test]
    fn a_change_that_could_not_be_stored_is_no_change() {
        let directory = tempfile::tempdir().unwrap();
        let label = Label::open(directory.path().join("none/disk.intact"), false).unwrap();
        let error = label.set_identity(Some(ID)).unwrap_err().to_string();
        assert!(error.contains("none/disk.intact") && error.contains("cannot be stored"), "{error}");
        assert_eq!(label.identity(), None);
        // A failed flush is the exception: it counts, and says that it could not be stored.
        label.flush_failed(failed());
        let error = label.check_flushed().unwrap_err().to_string();
        assert!(error.contains("Input/output error") && error.contains("cannot be stored"), "{error}");
        let memory = Label::in_memory();
        memory.set_identity(Some(ID)).unwrap();
        assert_eq!((memory.identity(), memory.path()), (Some(ID), None));
    }

    #[test]
    fn a_label_that_others_read_is_not_changed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.intact");
        let shared = Label::open(&path, true).unwrap();
        assert!(matches!(shared.set_identity(Some(ID)), Err(StoreError::ReadOnly)));
        Label::open(&path, false).unwrap().set_journal_generation(3).unwrap();
        shared.make_writable().unwrap();
        assert_eq!(shared.journal_generation(), 3);
        shared.set_identity(Some(ID)).unwrap();
        assert_eq!(Label::open(&path, false).unwrap().identity(), Some(ID));
    }

    #[test]
    fn devices_have_different_places_in_one_directory() {
        let within = |device| Label::within(Path::new("/var/lib/intact"), Path::new(device));
        assert_eq!(within("/dev/vg/a"), Path::new("/var/lib/intact/%2Fdev%2Fvg%2Fa.intact"));
        assert_ne!(within("/dev/vg%2Fa"), within("/dev/vg/a"));
    }
}
