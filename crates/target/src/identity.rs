//! The identity of a volume for hosts: 128 bits that are chosen at random once and kept with the volume, not with its place in a
//! configuration (decision 010).
//!
//! | how a volume is identified | origin of the identity |
//! |---|---|
//! | `serial =` of the configuration | SHA-256 of it: machines that serve one volume together get the same serial |
//! | the identity in its label | chosen when the label was first needed; kept next to a file, or in `state_dir` |
//! | a device without a place for a label | SHA-256 of the system's name for the device, and of the machine |
//! | memory without `state_dir`, and all others | chosen for the lifetime of the process |
//!
//! Before identities existed, hosts saw 64 bits made of the machine, the target's name and the number of the unit. A volume that
//! hosts may know by these keeps them (`Legacy`): its label holds them from the first start on, wherever the volume moves.

use std::fmt::Write as _;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use blockstore::{BlockStore, Label, StoreError, VolumeId};
use scsi::NaaIdentifier;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::config::LunConfig;

/// A locally administered company id in the place of IEEE's: it belongs to no company.
const LOCAL_COMPANY_ID: [u8; 3] = [0x02, 0x49, 0x4e];
/// The end of an identity that is made of an old one.
const LEGACY_MARK: [u8; 4] = *b"INT1";
/// How much of a device is examined to determine whether it was ever used, bytes.
const LOOKED_AT_BYTES: usize = 1 << 20;

/// The identity that a unit reports to hosts for its volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitIdentity {
    /// The identity of the volume, as in its label.
    pub volume: VolumeId,
    /// UNIT SERIAL NUMBER.
    pub serial: String,
    /// The NAA designator.
    pub naa: NaaIdentifier,
    /// The UUID designator; a legacy identity has none.
    pub uuid: Option<[u8; 16]>,
}

impl UnitIdentity {
    /// The identity of `volume` in a unit with this configured `serial`.
    //= spc4 7.8.6 VPD-80 VPD-83
    pub fn new(volume: VolumeId, serial: Option<&str>) -> Self {
        let of_serial = serial.map(Legacy::of_serial);
        match (Legacy::within(volume), serial) {
            (Some(old), None) => Self::legacy(volume, old, format!("{:016x}", old.0)),
            (Some(old), Some(serial)) if Some(old) == of_serial => {
                Self::legacy(volume, old, serial.to_owned())
            }
            (_, Some(serial)) => {
                let of_serial = derived(&["serial", serial]);
                Self { volume, ..Self::drawn(of_serial, serial.to_owned()) }
            }
            (None, None) => Self::drawn(volume, Uuid::from_bytes(volume.to_bytes()).to_string()),
        }
    }

    fn legacy(volume: VolumeId, old: Legacy, serial: String) -> Self {
        Self { volume, serial, naa: NaaIdentifier::Local(old.0), uuid: None }
    }

    fn drawn(of: VolumeId, serial: String) -> Self {
        Self {
            volume: of,
            serial,
            naa: NaaIdentifier::RegisteredExtended(naa(of)),
            uuid: Some(of.to_bytes()),
        }
    }

    /// Whether a host could mistake one for the other.
    pub fn is_told_as(&self, other: &Self) -> bool {
        self.naa == other.naa || self.serial == other.serial
    }

    /// The name of files kept for the volume.
    pub fn file_name(&self) -> String {
        match (self.naa, self.uuid) {
            (NaaIdentifier::Local(old), _) => format!("{old:016x}"),
            (_, Some(uuid)) => Uuid::from_bytes(uuid).to_string(),
            (_, None) => self.volume.to_string(),
        }
    }
}

/// NAA 6h, the company id above, and the low 100 bits of the UUID, of which 94 are random.
fn naa(volume: VolumeId) -> [u8; 16] {
    let [a, b, c] = LOCAL_COMPANY_ID.map(u128::from);
    let low = u128::from_be_bytes(volume.to_bytes()) & ((1 << 100) - 1);
    (0x6 << 124 | a << 116 | b << 108 | c << 100 | low).to_be_bytes()
}

/// An identity made of `parts`, always the same for the same parts.
fn derived(parts: &[&str]) -> VolumeId {
    let mut hash = Sha256::new_with_prefix("intact volume");
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let bytes: [u8; 32] = hash.finalize().into();
    VolumeId::from_bytes(Uuid::new_v8(first_half(&bytes)).into_bytes())
}

fn first_half(bytes: &[u8; 32]) -> [u8; 16] {
    let (half, _) = bytes.split_first_chunk::<16>().expect("32 bytes have a half");
    *half
}

/// The `n`th identity that a process with this secret chooses.
pub(crate) fn draw(secret: &[u8; 32], n: u64) -> VolumeId {
    let hash = Sha256::new_with_prefix(secret).chain_update("identity").chain_update(n.to_be_bytes());
    let bytes: [u8; 32] = hash.finalize().into();
    random(first_half(&bytes))
}

/// The identity of random `bytes`: a UUID of version 4.
pub fn random(bytes: [u8; 16]) -> VolumeId {
    VolumeId::from_bytes(uuid::Builder::from_random_bytes(bytes).into_uuid().into_bytes())
}

/// An identity from the time before volumes had their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Legacy(u64);

impl Legacy {
    fn new(text: &str) -> Self {
        let half = |seed: &str| u64::from(iscsi_core::digest::checksum(format!("{seed}{text}").as_bytes()));
        Self(half("intact ") << 32 | half("unit "))
    }

    fn of_serial(serial: &str) -> Self {
        Self::new(&format!("serial {serial}"))
    }

    /// The old identity of a unit in this place on this machine. `None` on a machine without an id, where all units had the same
    /// identity.
    fn of_place(machine: Option<&str>, target: &str, lun: u16) -> Option<Self> {
        machine.map(|machine| Self::new(&format!("{machine} {target} lun {lun}")))
    }

    /// Converted to an identity: a UUID of version 8 that is made in no other way.
    fn volume(self) -> VolumeId {
        let old = self.0.to_be_bytes();
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&old[..6]);
        bytes[10..12].copy_from_slice(&old[6..]);
        bytes[12..].copy_from_slice(&LEGACY_MARK);
        VolumeId::from_bytes(Uuid::new_v8(bytes).into_bytes())
    }

    /// The old identity contained in `volume`, if any.
    fn within(volume: VolumeId) -> Option<Self> {
        let bytes = volume.to_bytes();
        let old: [u8; 8] = [&bytes[..6], &bytes[10..12]].concat().try_into().ok()?;
        let old = Self(u64::from_be_bytes(old));
        (old.volume() == volume).then_some(old)
    }
}

/// How the identities of a server's units are determined.
pub(crate) struct Identities<'a> {
    /// Where to keep labels that cannot be kept next to their volumes.
    pub state_dir: Option<&'a Path>,
    /// The machine id, if there is one.
    pub machine: Option<String>,
    /// Chooses a new, unique identity.
    pub draw: &'a dyn Fn() -> VolumeId,
}

/// The machine id.
pub(crate) fn machine() -> Option<String> {
    let text = std::fs::read_to_string("/etc/machine-id").ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

impl Identities<'_> {
    /// The identity of the volume in `store`, for a unit of `target`. A newly chosen identity is kept, if possible. `is_taken` says
    /// whether another unit has an identity.
    ///
    /// # Errors
    /// A label cannot be read.
    pub(crate) fn of(
        &self,
        config: &LunConfig,
        target: &str,
        store: &dyn BlockStore,
        is_taken: &dyn Fn(&UnitIdentity) -> bool,
    ) -> Result<UnitIdentity, StoreError> {
        let serial = config.serial.as_deref();
        let place = Place { config, target, lun: config.number };
        // Memory has no label of its own, but its reservations outlive it in the same directory.
        let label = match (store.label(), self.state_dir) {
            (Some(label), _) => Some(std::sync::Arc::clone(label)),
            (None, Some(directory)) => {
                let name = format!("{target} {}", config.number);
                Some(std::sync::Arc::new(Label::open(Label::within(directory, Path::new(&name)), false)?))
            }
            (None, None) => None,
        };
        let kept = label.as_deref().filter(|label| label.path().is_some());
        if let Some(volume) = label.as_deref().and_then(Label::identity) {
            let identity = UnitIdentity::new(volume, serial);
            if store.label().is_some() || !is_taken(&identity) {
                return Ok(identity);
            }
            // New memory in the place of memory that is still served: another disk.
        }
        let Some(kept) = kept else { return Ok(UnitIdentity::new(self.of_unlabelled(&place), serial)) };
        let volume = match kept.identity() {
            Some(_) => (self.draw)(),
            None => self.first(&place, store, is_taken),
        };
        if let Err(error) = kept.set_identity(Some(volume)) {
            // A read-only volume may have no label either; its old identity is found again without one.
            if Legacy::within(volume).is_none() && serial.is_none() {
                tracing::warn!(
                    %error, target, lun = config.number,
                    "the identity of the volume cannot be kept: hosts see another disk after the next start; let the server write \
                     beside it once, or give the unit a serial"
                );
            }
        }
        Ok(UnitIdentity::new(volume, serial))
    }

    /// The identity of a volume that cannot be opened: from its label, if that can be read.
    pub(crate) fn of_missing(&self, config: &LunConfig) -> UnitIdentity {
        let label = config.store.path().and_then(|path| {
            let within = self.state_dir.map(|directory| Label::within(directory, path));
            [Some(Label::beside(path)), within].into_iter().flatten().find(|place| place.is_file())
        });
        let kept = label.and_then(|place| Label::open(place, true).ok()?.identity());
        UnitIdentity::new(kept.unwrap_or_else(|| (self.draw)()), config.serial.as_deref())
    }

    /// The identity of a volume without a label: the old one, if hosts may know it; otherwise a new one.
    fn first(
        &self,
        place: &Place<'_>,
        store: &dyn BlockStore,
        is_taken: &dyn Fn(&UnitIdentity) -> bool,
    ) -> VolumeId {
        let (target, lun) = (place.target, place.lun);
        let serial = place.config.serial.as_deref();
        let old = match serial {
            Some(serial) => Some(Legacy::of_serial(serial)),
            None => Legacy::of_place(self.machine.as_deref(), target, lun),
        };
        if !place.is_known_to_hosts(store, old, self.state_dir) {
            return (self.draw)();
        }
        let Some(old) = old else {
            let new = (self.draw)();
            tracing::warn!(
                target,
                lun,
                "the volume has an identity of its own now, and hosts see another disk: before, it had that of every machine \
                 without /etc/machine-id"
            );
            return new;
        };
        let identity = UnitIdentity::new(old.volume(), serial);
        if is_taken(&identity) {
            let new = (self.draw)();
            tracing::warn!(
                target,
                lun,
                serial = identity.serial,
                "the volume has an identity of its own now, and hosts see another disk: another unit has the one that it had before"
            );
            return new;
        }
        tracing::info!(
            target,
            lun,
            serial = identity.serial,
            "the volume keeps the identity that hosts know, wherever it is served from now on"
        );
        old.volume()
    }

    /// The identity of a volume that has no place for a label.
    fn of_unlabelled(&self, place: &Place<'_>) -> VolumeId {
        let Some(path) = place.config.store.path() else { return (self.draw)() };
        if let (Some(device), Some(machine)) = (device_name(path), &self.machine) {
            return derived(&["device", machine, &device]);
        }
        if place.config.serial.is_none() {
            tracing::warn!(
                target = place.target, lun = place.lun, store = %place.config.store,
                "hosts see another disk after the next start: neither the device nor the machine has a name that lasts; set \
                 state_dir, or give the unit a serial"
            );
        }
        (self.draw)()
    }
}

/// Where a volume is served.
struct Place<'a> {
    config: &'a LunConfig,
    target: &'a str,
    lun: u16,
}

impl Place<'_> {
    /// Whether hosts may know a volume without a label: it has data, or something is already kept for it. An empty one may get any
    /// identity.
    fn is_known_to_hosts(
        &self,
        store: &dyn BlockStore,
        old: Option<Legacy>,
        state_dir: Option<&Path>,
    ) -> bool {
        let kept =
            |directory: &Path, old: Legacy| directory.join(format!("{:016x}.reservations", old.0)).exists();
        if old.zip(state_dir).is_some_and(|(old, directory)| kept(directory, old)) {
            return true;
        }
        let Some(path) = self.config.store.path() else { return false };
        let mut reservations = path.to_owned().into_os_string();
        reservations.push(".reservations");
        match std::fs::metadata(path) {
            Ok(file) if file.is_file() => file.blocks() > 0 || Path::new(&reservations).exists(),
            _ => {
                let bytes = LOOKED_AT_BYTES.min(usize::try_from(store.geometry().size_bytes).unwrap_or(0));
                let mut beginning = vec![0; bytes];
                // If it cannot be read, it does not count as empty.
                store.read(0, &mut beginning).is_err() || beginning.iter().any(|byte| *byte != 0)
            }
        }
    }
}

/// The system's name for the block device at `path`, the same after every start: the one that the device itself reports.
fn device_name(path: &Path) -> Option<String> {
    let found = std::fs::metadata(path).ok()?;
    if !found.file_type().is_block_device() {
        return None;
    }
    let number = found.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    named_in(&std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?)
}

/// The name of the device of this sysfs directory; for a partition, that of its disk and the partition number.
fn named_in(device: &Path) -> Option<String> {
    let read = |name: &str| {
        let text = std::fs::read_to_string(device.join(name)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    for name in ["dm/uuid", "md/uuid", "wwid", "device/wwid", "serial", "device/serial"] {
        if let Some(text) = read(name) {
            return Some(format!("{name} {text}"));
        }
    }
    let partition = read("partition")?;
    let mut name = named_in(device.parent()?)?;
    let _ = write!(name, " partition {partition}");
    Some(name)
}

#[cfg(test)]
mod tests;
