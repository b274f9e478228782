//! The names of this machine's initiator ports: ISIDs that stay the same from run to run, and that no two sessions with one
//! target share (RFC 7143 4.4.3, 10.1.1, 11.12.5).
//!
//! A directory holds one random number, generated once, and a lock file per port in use. A session takes the lowest qualifier
//! that is free for its target. So a program that runs alone is always the same port, and a second one running at the same time
//! is another. Locks end with their process, however it ends.
//!
//! Sessions with different targets use the same ISID (conservative reuse), so a target can tell that they come from one port.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use engine::Platform;
use iscsi_core::wire::Isid;

/// Most ports of one machine for one target.
const MAX_PORTS: u16 = 1024;

/// An ISID in use; free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Port {
    pub isid: Isid,
    _lock: File,
}

/// The default directory for ports: `$XDG_STATE_HOME/intact` or `~/.local/state/intact`.
pub fn default_directory() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".local/state"));
    Some(state.or_else(home)?.join("intact"))
}

impl Port {
    /// Takes the lowest free port for `target`.
    ///
    /// # Errors
    /// The directory cannot be used, or too many ports are in use.
    //= rfc7143 11.12.5 NAM-03 NAM-04 NAM-05
    pub(crate) fn take(platform: &impl Platform, directory: &Path, target: &str) -> io::Result<Self> {
        let ports = directory.join("ports");
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&ports)?;
        let number = number(platform, directory)?;
        for qualifier in 0..MAX_PORTS {
            // Names hold only letters, digits, '-', '.' and ':'.
            let path = ports.join(format!("{target}-{qualifier}"));
            let lock = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
            match lock.try_lock() {
                Ok(()) => return Ok(Self { isid: Isid::random(number, qualifier), _lock: lock }),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Err(io::Error::other("all initiator ports towards this target are in use"))
    }
}

/// The random part, generated when it is first needed.
fn number(platform: &impl Platform, directory: &Path) -> io::Result<[u8; 3]> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(directory.join("isid"))?;
    // Two processes that start at once must get the same number.
    file.lock()?;
    let mut number = [0; 3];
    match file.read(&mut number)? {
        3 => {}
        0 => {
            platform.fill_random(&mut number);
            file.write_all(&number)?;
            file.sync_all()?;
        }
        _ => return Err(io::Error::other("the file `isid` is damaged: remove it")),
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use engine::System;

    use super::*;

    #[test]
    fn nam_03_a_port_is_the_same_after_a_restart_and_different_beside_another() {
        let directory = tempfile::tempdir().unwrap();
        let take = |target: &str| Port::take(&System::new(1), directory.path(), target).unwrap();
        let first = take("iqn.2001-04.com.example:a");
        let beside = take("iqn.2001-04.com.example:a");
        assert_ne!(first.isid, beside.isid);
        let isid = first.isid;
        drop(first);
        assert_eq!(take("iqn.2001-04.com.example:a").isid, isid);
    }

    // covers: NAM-04
    #[test]
    fn three_hundred_sessions_have_three_hundred_isids() {
        let directory = tempfile::tempdir().unwrap();
        let ports: Vec<Port> =
            (0..300).map(|_| Port::take(&System::new(1), directory.path(), "t").unwrap()).collect();
        let isids: std::collections::HashSet<Isid> = ports.iter().map(|port| port.isid).collect();
        assert_eq!(isids.len(), 300);
    }

    // covers: NAM-05
    #[test]
    fn another_target_sees_the_same_port() {
        let directory = tempfile::tempdir().unwrap();
        let (a, b) = (
            Port::take(&System::new(1), directory.path(), "a").unwrap(),
            Port::take(&System::new(1), directory.path(), "b").unwrap(),
        );
        assert_eq!(a.isid, b.isid);
    }

    #[test]
    fn a_damaged_or_unusable_directory_is_said() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("isid"), [1, 2]).unwrap();
        assert!(Port::take(&System::new(1), directory.path(), "a").is_err());
        assert!(Port::take(&System::new(1), &directory.path().join("isid"), "a").is_err());
    }
}
