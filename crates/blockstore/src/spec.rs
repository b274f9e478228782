//! Stores as people write them on a command line or in a configuration:
//!
//! ```text
//! ram:SIZE[,block=N][,memory=SIZE][,pi=TYPE]
//! file:PATH[,size=SIZE][,block=N][,ro][,pi=TYPE][,atomic=SIZE]
//! ```
//!
//! A SIZE is a whole number with an optional binary unit: `K`, `M`, `G`, `T`, `P` (or `KiB`...). A comma in a path is
//! written twice. `Display` writes what `parse` reads.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use crate::protected::check_protectable;
use crate::store::check_block_bytes;
use crate::{BlockStore, FileOptions, ProtectedStore, RamStore, StoreError, volume};

/// A store that is described but not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreSpec {
    /// A [`RamStore`].
    Ram {
        /// Size in bytes.
        size_bytes: u64,
        /// Bytes of a logical block; `None`: 512.
        logical_block_bytes: Option<u32>,
        /// Most memory for its data, in bytes; `None`: no limit but its size.
        resident_limit_bytes: Option<u64>,
        /// Adds protection information, initially of this type, 0 to 3.
        protection: Option<u8>,
    },
    /// A [`FileStore`](crate::FileStore).
    File {
        /// Regular file or block device.
        path: PathBuf,
        /// How to open it.
        options: FileOptions,
        /// Adds protection information in a file next to it (`PATH.pi`), initially of this type, 0 to 3.
        protection: Option<u8>,
        /// Writes of up to this many bytes are all or nothing, with a journal in a file next to it (`PATH.atomic`).
        atomic_bytes: Option<u64>,
    },
}

impl StoreSpec {
    /// Opens the store. The label of a device ends with the store.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] with the reason and the remedy.
    pub fn open(&self) -> Result<Arc<dyn BlockStore>, StoreError> {
        self.open_in(None)
    }

    /// Opens the store, with the labels of devices in the directory `state_dir`.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_in(&self, state_dir: Option<&Path>) -> Result<Arc<dyn BlockStore>, StoreError> {
        match self {
            StoreSpec::Ram { size_bytes, logical_block_bytes, resident_limit_bytes, protection } => {
                let store = RamStore::new(*size_bytes, logical_block_bytes.unwrap_or(512))?;
                let store = store.with_resident_limit(resident_limit_bytes.unwrap_or(u64::MAX));
                let Some(kind) = *protection else { return Ok(Arc::new(store)) };
                check_protectable(&store.geometry())?;
                let side = RamStore::new(ProtectedStore::side_bytes(&store.geometry())?, 4096)?;
                Ok(Arc::new(ProtectedStore::new(Arc::new(store), Arc::new(side), kind)?))
            }
            StoreSpec::File { path, options, protection, atomic_bytes } => {
                volume::open(path, options, state_dir, *protection, *atomic_bytes)
            }
        }
    }
}

impl StoreSpec {
    /// The requested size, bytes; `None`: the size of the file.
    pub fn size_bytes(&self) -> Option<u64> {
        match self {
            StoreSpec::Ram { size_bytes, .. } => Some(*size_bytes),
            StoreSpec::File { options, .. } => options.size_bytes,
        }
    }

    /// The file or block device.
    pub fn path(&self) -> Option<&Path> {
        match self {
            StoreSpec::Ram { .. } => None,
            StoreSpec::File { path, .. } => Some(path),
        }
    }

    /// Takes a relative path as one in `folder`.
    pub fn within(mut self, folder: &Path) -> Self {
        match &mut self {
            StoreSpec::Ram { .. } => {}
            StoreSpec::File { path, .. } => *path = folder.join(&*path),
        }
        self
    }

    /// Whether it is opened for reading only.
    pub fn is_read_only(&self) -> bool {
        match self {
            StoreSpec::Ram { .. } => false,
            StoreSpec::File { options, .. } => options.read_only,
        }
    }

    /// Opens it for reading only, or not. A store in memory can always be written.
    pub fn set_read_only(&mut self, on: bool) {
        match self {
            StoreSpec::Ram { .. } => {}
            StoreSpec::File { options, .. } => options.read_only = on,
        }
    }

    /// Requests another size.
    pub fn set_size_bytes(&mut self, wanted: u64) {
        match self {
            StoreSpec::Ram { size_bytes, .. } => *size_bytes = wanted,
            StoreSpec::File { options, .. } => options.size_bytes = Some(wanted),
        }
    }

    /// Whether an open store of one description can become one of the other: they may differ only in size and write
    /// protection, and in options that only affect a new store.
    pub fn is_same_medium(&self, other: &Self) -> bool {
        match (self, other) {
            (
                StoreSpec::Ram { logical_block_bytes, resident_limit_bytes, protection, .. },
                StoreSpec::Ram {
                    logical_block_bytes: block,
                    resident_limit_bytes: limit,
                    protection: kind,
                    ..
                },
            ) => {
                logical_block_bytes.unwrap_or(512) == block.unwrap_or(512)
                    && resident_limit_bytes == limit
                    && protection == kind
            }
            (
                StoreSpec::File { path, options, protection, atomic_bytes },
                StoreSpec::File { path: place, options: how, protection: kind, atomic_bytes: atomic },
            ) => {
                path == place
                    && options.logical_block_bytes == how.logical_block_bytes
                    && protection.is_some() == kind.is_some()
                    && atomic_bytes == atomic
            }
            _ => false,
        }
    }
}

/// A text that describes no store. The error says what is wrong and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpecError(String);

impl FromStr for StoreSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (kind, rest) = text.split_once(':').ok_or_else(|| unknown_kind(text))?;
        let mut parts = split_commas(rest).into_iter();
        let subject = parts.next().unwrap_or_default();
        let options = parts.map(|part| OptionText::parse(&part)).collect::<Result<Vec<_>, _>>()?;
        for (i, option) in options.iter().enumerate() {
            if options[..i].iter().any(|earlier| earlier.name == option.name) {
                return Err(SpecError(format!("`{}` is given twice in `{text}`; give it once", option.name)));
            }
        }
        match kind {
            "ram" => parse_ram(text, &subject, &options),
            "file" => parse_file(text, subject, &options),
            _ => Err(unknown_kind(text)),
        }
    }
}

fn parse_ram(text: &str, subject: &str, options: &[OptionText]) -> Result<StoreSpec, SpecError> {
    if subject.is_empty() {
        return Err(SpecError(format!("`{text}` has no size; write for example ram:1G")));
    }
    let size_bytes = parse_size(subject)?;
    let (mut logical_block_bytes, mut resident_limit_bytes, mut protection) = (None, None, None);
    for option in options {
        match option.name.as_str() {
            "block" => logical_block_bytes = Some(option.block_bytes()?),
            "memory" => resident_limit_bytes = Some(parse_size(option.value()?)?),
            "pi" => protection = Some(option.protection()?),
            _ => return Err(option.unknown("ram", "block=, memory=, pi=")),
        }
    }
    Ok(StoreSpec::Ram { size_bytes, logical_block_bytes, resident_limit_bytes, protection })
}

fn parse_file(text: &str, subject: String, options: &[OptionText]) -> Result<StoreSpec, SpecError> {
    if subject.is_empty() {
        return Err(SpecError(format!("`{text}` has no path; write for example file:/srv/disk0,size=10G")));
    }
    let mut how = FileOptions::default();
    let (mut protection, mut atomic_bytes) = (None, None);
    for option in options {
        match option.name.as_str() {
            "size" => how.size_bytes = Some(parse_size(option.value()?)?),
            "block" => how.logical_block_bytes = Some(option.block_bytes()?),
            "pi" => protection = Some(option.protection()?),
            "atomic" => atomic_bytes = Some(parse_size(option.value()?)?),
            "ro" if option.value.is_none() => how.read_only = true,
            "ro" => {
                return Err(SpecError("`ro` takes no value; write it alone, or leave it away".to_owned()));
            }
            _ => {
                let known = "size=, block=, pi=, atomic=, ro (a comma in a path is written twice)";
                return Err(option.unknown("file", known));
            }
        }
    }
    Ok(StoreSpec::File { path: subject.into(), options: how, protection, atomic_bytes })
}

fn unknown_kind(text: &str) -> SpecError {
    SpecError(format!("`{text}` names no store; write ram:SIZE or file:PATH, for example ram:1G"))
}

/// `name` or `name=value`.
struct OptionText {
    name: String,
    value: Option<String>,
}

impl OptionText {
    fn parse(part: &str) -> Result<Self, SpecError> {
        if part.is_empty() {
            return Err(SpecError("there is nothing after a comma; remove it".to_owned()));
        }
        Ok(match part.split_once('=') {
            Some((name, value)) => OptionText { name: name.to_owned(), value: Some(value.to_owned()) },
            None => OptionText { name: part.to_owned(), value: None },
        })
    }

    fn value(&self) -> Result<&str, SpecError> {
        self.value.as_deref().filter(|value| !value.is_empty()).ok_or_else(|| {
            SpecError(format!("`{0}` lacks its value; write {0}=4K with your number", self.name))
        })
    }

    fn block_bytes(&self) -> Result<u32, SpecError> {
        let bytes = parse_size(self.value()?)?;
        let block = u32::try_from(bytes).unwrap_or(u32::MAX);
        check_block_bytes(block).map_err(|error| SpecError(error.to_string()))?;
        Ok(block)
    }

    fn protection(&self) -> Result<u8, SpecError> {
        match self.value()? {
            "0" => Ok(0),
            "1" => Ok(1),
            "2" => Ok(2),
            "3" => Ok(3),
            other => Err(SpecError(format!(
                "`pi={other}` is no type of protection information; it is 0, 1, 2 or 3"
            ))),
        }
    }

    fn unknown(&self, kind: &str, known: &str) -> SpecError {
        SpecError(format!("`{}` is no option of `{kind}:`; it has {known}", self.name))
    }
}

/// Splits at single commas; a double comma stands for one comma of the text.
fn split_commas(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == ',' && chars.next_if_eq(&',').is_none() {
            parts.push(String::new());
        } else if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    parts
}

const UNITS: [(char, u32); 5] = [('K', 10), ('M', 20), ('G', 30), ('T', 40), ('P', 50)];

/// Reads a size: a whole number, then nothing, `B`, or a binary unit `K`, `M`, `G`, `T`, `P` with or without `iB`, in
/// either case. `KB` and the like are refused, because people mean two different things by them.
///
/// # Errors
/// [`SpecError`] with the remedy.
pub fn parse_size(text: &str) -> Result<u64, SpecError> {
    let wrong = |why: &str| SpecError(format!("`{text}` is not a size: {why}"));
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(wrong("write a whole number with K, M, G, T or P, for example 10G"));
    }
    let too_large = || wrong("it does not fit in 64 bits; use a smaller one");
    let number: u64 = number.parse().map_err(|_| too_large())?;
    let unit = unit.to_ascii_uppercase();
    if unit.starts_with('.') {
        return Err(wrong("use a smaller unit instead of a fraction, for example 1536M for 1.5G"));
    }
    if unit.is_empty() || unit == "B" {
        return Ok(number);
    }
    let mut letters = unit.chars();
    let shift =
        letters.next().and_then(|c| UNITS.iter().find(|(name, _)| *name == c)).map(|(_, shift)| *shift);
    match (shift, letters.as_str()) {
        (Some(shift), "" | "IB") => number.checked_mul(1 << shift).ok_or_else(too_large),
        (Some(_), "B") => {
            Err(wrong("say whether 1000 or 1024 is meant: G and GiB are 1024, bytes are plain"))
        }
        _ => Err(wrong("its unit is unknown; use K, M, G, T or P (powers of 1024)")),
    }
}

/// Writes a size in the largest unit that is exact.
fn write_size(f: &mut fmt::Formatter<'_>, bytes: u64) -> fmt::Result {
    for (name, shift) in UNITS.iter().rev() {
        if bytes != 0 && bytes.trailing_zeros() >= *shift {
            return write!(f, "{}{name}", bytes >> shift);
        }
    }
    write!(f, "{bytes}")
}

impl fmt::Display for StoreSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreSpec::Ram { size_bytes, logical_block_bytes, resident_limit_bytes, protection } => {
                f.write_str("ram:")?;
                write_size(f, *size_bytes)?;
                if let Some(block) = logical_block_bytes {
                    write!(f, ",block={block}")?;
                }
                if let Some(limit) = resident_limit_bytes {
                    f.write_str(",memory=")?;
                    write_size(f, *limit)?;
                }
                if let Some(kind) = protection {
                    write!(f, ",pi={kind}")?;
                }
            }
            StoreSpec::File { path, options, protection, atomic_bytes } => {
                write!(f, "file:{}", path.display().to_string().replace(',', ",,"))?;
                if let Some(size) = options.size_bytes {
                    f.write_str(",size=")?;
                    write_size(f, size)?;
                }
                if let Some(block) = options.logical_block_bytes {
                    write!(f, ",block={block}")?;
                }
                if options.read_only {
                    f.write_str(",ro")?;
                }
                if let Some(kind) = protection {
                    write!(f, ",pi={kind}")?;
                }
                if let Some(bytes) = atomic_bytes {
                    f.write_str(",atomic=")?;
                    write_size(f, *bytes)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<StoreSpec>().unwrap_err().to_string()
    }

    #[test]
    fn sizes_are_binary_and_exact() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("512B", 512),
            ("4k", 4096),
            ("3M", 3 << 20),
            ("1G", 1 << 30),
            ("1GiB", 1 << 30),
            ("100T", 100 << 40),
            ("16383P", 16383 << 50),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for (text, hint) in [
            ("", "whole number"),
            ("G", "whole number"),
            ("-1", "whole number"),
            ("1.5G", "1536M"),
            ("1GB", "1024"),
            ("1X", "unit"),
            ("1GG", "unit"),
            ("1 G", "unit"),
            ("1é", "unit"),
            ("16384P", "64 bits"),
            ("18446744073709551616", "64 bits"),
        ] {
            let error = parse_size(text).unwrap_err().to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    #[test]
    fn specs_are_read_and_written_alike() {
        for (text, again) in [
            ("ram:1G", "ram:1G"),
            ("ram:1024M,block=4K,memory=512M", "ram:1G,block=4096,memory=512M"),
            ("ram:1000", "ram:1000"),
            ("ram:1M,pi=1", "ram:1M,pi=1"),
            ("file:a,pi=3,ro", "file:a,ro,pi=3"),
            ("file:a,atomic=65536", "file:a,atomic=64K"),
            ("file:a,atomic=64K,pi=1", "file:a,pi=1,atomic=64K"),
            ("file:/srv/a", "file:/srv/a"),
            ("file:a:b,,c,size=10g,block=4096,ro", "file:a:b,,c,size=10G,block=4096,ro"),
            ("file:a,,,ro", "file:a,,,ro"),
        ] {
            let spec: StoreSpec = text.parse().unwrap();
            assert_eq!(spec.to_string(), again);
            assert_eq!(again.parse(), Ok(spec));
        }
        let spec: StoreSpec = "file:a,,,ro".parse().unwrap();
        let options = FileOptions { read_only: true, ..FileOptions::default() };
        let (protection, atomic_bytes) = (None, None);
        assert_eq!(spec, StoreSpec::File { path: "a,".into(), options, protection, atomic_bytes });
    }

    #[test]
    fn what_an_open_store_can_become() {
        for (a, b, same) in [
            ("ram:1M", "ram:2M,block=512", true),
            ("ram:1M", "ram:1M,block=4096", false),
            ("ram:1M", "ram:1M,pi=1", false),
            ("ram:1M,memory=64K", "ram:1M", false),
            ("file:a", "file:a,size=2M,ro", true),
            ("file:a,pi=0", "file:a,pi=1", true),
            ("file:a", "file:a,pi=1", false),
            ("file:a", "file:a,atomic=64K", false),
            ("file:a", "file:b", false),
            ("file:a", "ram:1M", false),
        ] {
            let (a, b): (StoreSpec, StoreSpec) = (a.parse().unwrap(), b.parse().unwrap());
            assert_eq!((a.is_same_medium(&b), b.is_same_medium(&a)), (same, same), "{a} {b}");
        }
        let mut grown: StoreSpec = "file:a".parse().unwrap();
        assert_eq!(grown.size_bytes(), None);
        grown.set_size_bytes(1 << 20);
        assert_eq!(grown.to_string(), "file:a,size=1M");
    }

    #[test]
    fn errors_name_the_remedy() {
        for (text, hint) in [
            ("", "ram:SIZE or file:PATH"),
            ("/srv/a", "ram:SIZE or file:PATH"),
            ("disk:/srv/a", "ram:SIZE or file:PATH"),
            ("ram:", "ram:1G"),
            ("ram:lots", "whole number"),
            ("ram:1G,ro", "it has block=, memory=, pi="),
            ("ram:1G,pi=4", "0, 1, 2 or 3"),
            ("ram:1G,block=513", "power of two"),
            ("ram:1G,block=1T", "power of two"),
            ("ram:1G,block", "lacks its value"),
            ("ram:1G,block=", "lacks its value"),
            ("ram:1G,", "nothing after a comma"),
            ("file:", "file:/srv/disk0"),
            ("file:a,sise=1G", "it has size="),
            ("file:a,ro=1", "alone"),
            ("file:a,atomic", "lacks its value"),
            ("file:a,size=1G,size=2G", "twice"),
        ] {
            let error = error(text);
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    #[test]
    fn opens_what_it_describes() {
        let store = "ram:1M,block=4096,memory=64K".parse::<StoreSpec>().unwrap().open().unwrap();
        assert_eq!(store.geometry().blocks(), 256);
        store.write(0, &[&[1; 4096]], crate::Durability::Cached).unwrap();
        let more = store.write(1 << 19, &[&[1; 4096]], crate::Durability::Cached);
        assert!(matches!(more, Err(StoreError::NoSpace)));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        for (kind, found) in [(2, 2), (1, 2)] {
            let text = format!("file:{},size=1M,pi={kind}", path.display());
            let store = text.parse::<StoreSpec>().unwrap().open().unwrap();
            assert_eq!(store.records().unwrap().format().kind, found, "what is remembered wins");
        }
        assert!(directory.path().join("disk.pi").is_file());
        assert!("ram:1M,pi=0".parse::<StoreSpec>().unwrap().open().unwrap().records().is_some());
        assert!("ram:1M".parse::<StoreSpec>().unwrap().open().unwrap().records().is_none());
        let odd = "ram:1M,block=1024,pi=1".parse::<StoreSpec>().unwrap().open();
        assert!(matches!(odd, Err(StoreError::Unusable(why)) if why.contains("block=512")));
        assert!(matches!("ram:1000".parse::<StoreSpec>().unwrap().open(), Err(StoreError::Unusable(_))));
    }
}
