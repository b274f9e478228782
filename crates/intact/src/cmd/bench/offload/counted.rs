//! Commands for a profiler that counts the client's instructions: one after the other, nothing else.

use std::process::ExitCode;

use bytes::Bytes;
use initiator::{Disk, IoError, Session};

use super::Profile;
use crate::cmd::client::{failed, refused};
use crate::cmd::{MISUSED, fail};
use crate::output;

/// Sends the commands and prints how many.
pub fn run(profile: &Profile, url: &str) -> ExitCode {
    match send(profile, url) {
        Ok(()) => output::print(&format!("{}\n", profile.commands)),
        Err(code) => code,
    }
}

fn send(profile: &Profile, url: &str) -> Result<(), ExitCode> {
    let mut url = profile.client.url(url)?;
    url.set_digests(profile.policy());
    let options = profile.client.options(&url)?;
    let (_, lun) = url.unit().map_err(|error| fail(MISUSED, error))?;
    let session = Session::connect(options).map_err(|error| refused(&error))?;
    let disk = Disk::open(&session, lun).map_err(|error| failed(&error))?;
    let commands = || -> Result<(), IoError> {
        let data = Bytes::from(vec![0x5a; profile.block as usize]);
        let mut to = vec![0; profile.block as usize];
        for _ in 0..profile.commands {
            if profile.write {
                disk.write_bytes(0, &data)?;
            } else {
                disk.read(0, &mut to)?;
            }
        }
        Ok(())
    };
    commands().map_err(|error| failed(&error))
}
