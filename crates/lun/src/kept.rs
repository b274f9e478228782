//! Persistent reservations and identifying information on disk. They survive a power loss if a host registered with APTPL, or wrote
//! them on the unit (SPC-4 5.12.6, 5.6).
//!
//! Each unit has one file, which is replaced as a whole: a new file is written and flushed, it takes the name of the old one, and the
//! directory is flushed. All this happens before the status of the command is sent. So at every moment either the old file or the new
//! one exists. A unit whose file cannot be read is not served: a forgotten reservation would let two hosts write at once.

use std::io;
use std::path::{Path, PathBuf};

use blockstore::side_file;
use parking_lot::Mutex;
use scsi::{IdentifyingInformation, KeptState, LogicalUnit, PrRegistration, PrState};
use serde::{Deserialize, Serialize};

/// Largest file that is read. 512 registrations with names of 255 bytes need only a small part of it.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Suffix of the file next to the store of a unit.
const SUFFIX: &str = ".reservations";

/// The file of a unit.
#[derive(Debug)]
pub struct ReservationFile {
    path: PathBuf,
    /// Held by the command that writes: one at a time, and each writes the latest state.
    writing: Mutex<()>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    /// Version of this form.
    version: u32,
    registrations: Vec<StoredRegistration>,
    reservation: Option<StoredReservation>,
    /// Peripheral device identifying information.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    identifying_information: Vec<u8>,
    /// The same as text, without its terminating zero.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    identifying_text: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredRegistration {
    initiator_port: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    account: Option<String>,
    target_port_group: u16,
    relative_target_port: u16,
    key: u64,
    all_target_ports: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredReservation {
    /// TYPE (SPC-4 table 56).
    kind: u8,
    /// Index of the holder's registration.
    holder: usize,
}

const VERSION: u32 = 1;

impl ReservationFile {
    /// The file for the unit whose store is the file `store`.
    pub fn beside(store: &Path) -> Self {
        Self { path: side_file::beside_volume(store, SUFFIX), writing: Mutex::default() }
    }

    /// The file for the volume of this name in a directory.
    pub fn within(directory: &Path, name: &str) -> Self {
        Self { path: directory.join(format!("{name}{SUFFIX}")), writing: Mutex::default() }
    }

    /// Its place.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes what is stored. Blocks.
    ///
    /// # Errors
    /// The error of the system. A file that does not exist is no error.
    pub fn remove(&self) -> io::Result<()> {
        side_file::remove(&self.path)
    }

    /// Restores what is stored, if anything, to `unit`.
    ///
    /// # Errors
    /// The file cannot be read or is not valid, or its directory does not exist.
    //= spc4 5.12.6 PR-10
    pub fn load(&self, unit: &LogicalUnit) -> Result<(), String> {
        let explain = |what: &dyn std::fmt::Display| {
            format!(
                "the persistent reservations in {} cannot be read: {what}; restore the file, or remove it when no host relies on a \
                 reservation of this unit",
                self.path.display()
            )
        };
        let directory = side_file::directory_of(&self.path);
        if !directory.is_dir() {
            let directory = directory.display();
            return Err(format!(
                "there is no directory {directory} to keep persistent reservations in; create it, or change state_dir"
            ));
        }
        let Some(bytes) = side_file::read(&self.path, MAX_FILE_BYTES).map_err(|error| explain(&error))?
        else {
            return Ok(());
        };
        let stored: Stored = serde_json::from_slice(&bytes).map_err(|error| explain(&error))?;
        if stored.version != VERSION {
            return Err(explain(&format_args!("it has version {}, not {VERSION}", stored.version)));
        }
        if stored.reservation.as_ref().is_some_and(|r| r.holder >= stored.registrations.len()) {
            return Err(explain(&"the holder of the reservation is not registered"));
        }
        let registrations = stored.registrations.into_iter().map(|r| PrRegistration {
            initiator_port: r.initiator_port,
            account: r.account,
            target_port_group: r.target_port_group,
            relative_target_port: r.relative_target_port,
            key: r.key,
            all_target_ports: r.all_target_ports,
        });
        let registrations: Vec<_> = registrations.collect();
        let mut text = stored.identifying_text.into_bytes();
        if !text.is_empty() {
            text.push(0);
        }
        let kept = KeptState {
            reservations: (!registrations.is_empty()).then(|| PrState {
                registrations,
                reservation: stored.reservation.map(|r| (r.kind, r.holder)),
            }),
            identifying: IdentifyingInformation { bytes: stored.identifying_information, text },
        };
        unit.import_persistent(&kept);
        // The unit accepts what is valid for it, and that must be everything.
        if unit.export_persistent().unwrap_or_default() != kept {
            return Err(explain(&"a key, a type or a length in it cannot be"));
        }
        Ok(())
    }

    /// Stores the state of `unit` that must survive a power loss. Removes the file if there is no such state. Blocks.
    ///
    /// # Errors
    /// The error of the system. The unit then has the state that was stored last.
    pub fn save(&self, unit: &LogicalUnit) -> io::Result<()> {
        let _writing = self.writing.lock();
        let saved = unit.store_kept(|kept| self.store(kept));
        if saved.is_err() {
            // The new file may exist without being durable.
            let _ = self.store(unit.export_persistent());
        }
        saved
    }

    //= spc4 5.12.6 PR-10
    fn store(&self, kept: Option<KeptState>) -> io::Result<()> {
        let Some(kept) = kept else {
            return self.remove();
        };
        let state = kept.reservations.unwrap_or_default();
        let registrations = state.registrations.into_iter().map(|r| StoredRegistration {
            initiator_port: r.initiator_port,
            account: r.account,
            target_port_group: r.target_port_group,
            relative_target_port: r.relative_target_port,
            key: r.key,
            all_target_ports: r.all_target_ports,
        });
        let stored = Stored {
            version: VERSION,
            registrations: registrations.collect(),
            reservation: state.reservation.map(|(kind, holder)| StoredReservation { kind, holder }),
            identifying_text: String::from_utf8_lossy(&kept.identifying.text)
                .trim_end_matches('\0')
                .to_owned(),
            identifying_information: kept.identifying.bytes,
        };
        side_file::replace(&self.path, &serde_json::to_vec_pretty(&stored)?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use scsi::{DataOut, LuConfig, MediumConfig, Nexus, Step};

    use super::*;

    fn unit() -> LogicalUnit {
        LogicalUnit::new(LuConfig {
            medium: MediumConfig { blocks: 8, ..MediumConfig::default() },
            persist_reservations: true,
            ..LuConfig::default()
        })
    }

    fn nexus() -> Nexus {
        Nexus::new("iqn.2025-01.org.example:host,i,0x00023d000001", 1, 1)
    }

    /// PERSISTENT RESERVE OUT with a reservation key, a service action key and the APTPL bit.
    fn reserve_out(unit: &LogicalUnit, action: u8, kind: u8, keys: (u64, u64), aptpl: u8) {
        let mut list = [keys.0.to_be_bytes(), keys.1.to_be_bytes(), [0; 8]].concat();
        list[20] = aptpl;
        let mut execution = unit.begin(&nexus(), &[0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0]);
        execution.data_out(unit, &DataOut::new(&[&list]));
        let Step::Done(outcome) = execution.into_step() else { panic!("it is done") };
        assert_eq!(outcome.status, scsi::Status::Good, "{:?}", outcome.sense);
    }

    #[test]
    fn pr_10_what_was_registered_with_aptpl_is_there_after_a_restart() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = ReservationFile::within(directory.path(), "abc");
        let before = unit();
        reserve_out(&before, 0, 0, (0, 7), 1);
        reserve_out(&before, 1, 5, (7, 0), 0);
        file.save(&before).expect("saved");
        let mode = fs::metadata(file.path()).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "keys of reservations are for the server alone");

        let after = unit();
        file.load(&after).expect("loaded");
        assert_eq!(after.export_persistent(), before.export_persistent());
        let kept = after.export_persistent().expect("it is kept");
        assert_eq!(kept.reservations.expect("registrations").reservation, Some((5, 0)));

        reserve_out(&before, 3, 0, (7, 0), 0);
        file.save(&before).expect("saved");
        let empty = unit();
        file.load(&empty).expect("there may be a file with nothing in it, or none");
        assert!(empty.export_persistent().is_none());
    }

    #[test]
    fn what_is_written_on_a_unit_is_there_after_a_restart() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = ReservationFile::within(directory.path(), "abc");
        let before = unit();
        let set = |kind: u8, list: &[u8]| {
            let cdb = [0xa4, 6, 0, 0, 0, 0, 0, 0, 0, list.len() as u8, kind << 1, 0];
            let mut execution = before.begin(&nexus(), &cdb);
            execution.data_out(&before, &DataOut::new(&[list]));
            assert!(
                matches!(execution.into_step(), Step::Done(outcome) if outcome.status == scsi::Status::Good)
            );
        };
        set(0, &[0, 255, 7]);
        set(2, "Regal 7, oben\0".as_bytes());
        file.save(&before).expect("saved");
        let after = unit();
        file.load(&after).expect("loaded");
        let kept = after.export_persistent().expect("it is kept");
        assert_eq!((kept.identifying.bytes, kept.reservations), (vec![0, 255, 7], None));
        assert_eq!(kept.identifying.text, "Regal 7, oben\0".as_bytes());
    }

    #[test]
    fn pr_10_a_file_left_half_written_by_a_crash_is_not_the_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = directory.path().join("disk.img");
        let file = ReservationFile::beside(&store);
        let before = unit();
        reserve_out(&before, 0, 0, (0, 7), 1);
        file.save(&before).expect("saved");
        fs::write(directory.path().join("disk.img.reservations.new"), "{\"version\":1,").expect("written");
        let after = unit();
        file.load(&after).expect("loaded");
        assert_eq!(after.export_persistent(), before.export_persistent());
        file.save(&before).expect("saved over it");
    }

    #[test]
    fn pr_10_a_directory_that_is_not_there_is_told_at_the_start() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = ReservationFile::within(&directory.path().join("none"), "1");
        let error = file.load(&unit()).expect_err("it is not there");
        assert!(error.contains("none") && error.contains("create it"), "{error}");
    }

    #[test]
    fn pr_10_a_file_that_makes_no_sense_is_refused_with_a_remedy() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = ReservationFile::within(directory.path(), "1");
        let registered = |key: u64, kind: u8| {
            format!(
                "{{\"version\":1,\"registrations\":[{{\"initiator_port\":\"iqn.2025-01.org.example:host,i,0x00023d000001\",\
                 \"target_port_group\":1,\"relative_target_port\":1,\"key\":{key},\"all_target_ports\":false}}],\
                 \"reservation\":{{\"kind\":{kind},\"holder\":0}}}}"
            )
        };
        fs::write(&file.path, registered(7, 1)).expect("written");
        file.load(&unit()).expect("it is well");
        for text in [
            "",
            "{",
            "{\"version\":2,\"registrations\":[],\"reservation\":null}",
            "{\"version\":1,\"registrations\":[],\"reservation\":{\"kind\":1,\"holder\":0}}",
            "{\"version\":1,\"registrations\":[],\"reservation\":null,\"more\":1}",
            &registered(0, 1),
            &registered(7, 2),
        ] {
            fs::write(&file.path, text).expect("written");
            let error = file.load(&unit()).expect_err(text);
            assert!(error.contains("1.reservations") && error.contains("remove it"), "{error}");
        }
    }

    /// A host whose registration fails is not registered, and earlier registrations stay.
    #[test]
    fn pr_10_what_cannot_be_stored_is_taken_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let state = directory.path().join("state");
        fs::create_dir(&state).expect("a directory");
        let file = ReservationFile::within(&state, "abc");
        let unit = unit();
        reserve_out(&unit, 0, 0, (0, 7), 1);
        file.save(&unit).expect("saved");
        let before = unit.export_persistent();
        assert!(!unit.was_taken_back(1));

        fs::rename(&state, directory.path().join("away")).expect("renamed");
        reserve_out(&unit, 1, 5, (7, 0), 0);
        file.save(&unit).expect_err("there is no directory");
        assert_eq!(unit.export_persistent(), before);
        assert!(unit.was_taken_back(2) && !unit.was_taken_back(1));

        fs::rename(directory.path().join("away"), &state).expect("renamed");
        reserve_out(&unit, 1, 5, (7, 0), 0);
        file.save(&unit).expect("saved");
        assert!(!unit.was_taken_back(3));
        let kept = unit.export_persistent().expect("it is kept");
        assert_eq!(kept.reservations.expect("registrations").reservation, Some((5, 0)));
    }
}
