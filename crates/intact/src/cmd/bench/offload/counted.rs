//! Commands for a profiler that counts the client's instructions: so many at a time, in the event loop of the session, nothing else.

use std::process::ExitCode;

use bytes::Bytes;
use initiator::{Command, Completion, Disk, Ending, Residual, Session, Submitter, Workload, WriteData, cdb};

use super::Profile;
use crate::cmd::client::{failed, refused};
use crate::cmd::{FAILED, MISUSED, fail};
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
    let load = Load::new(profile, &disk);
    let load = session.run(load).ok_or_else(|| fail(FAILED, "the session ended in the middle"))?;
    load.failure.map_or(Ok(()), |failure| Err(fail(FAILED, failure)))
}

/// The same command again and again. The data of a write is never copied, and that of a read lies where the session has put it.
struct Load {
    command: Command,
    depth: u32,
    /// Commands that were not submitted yet.
    left: u32,
    failure: Option<String>,
}

impl Load {
    fn new(profile: &Profile, disk: &Disk) -> Self {
        let blocks = (profile.block / u64::from(disk.capacity().block_bytes)) as u32;
        let mut command;
        if profile.write {
            command = Command::new(disk.lun(), &cdb::write(0, blocks));
            command.write = WriteData::from(Bytes::from(vec![0x5a; profile.block as usize]));
        } else {
            command = Command::new(disk.lun(), &cdb::read(0, blocks));
            command.read_length = profile.block as u32;
        }
        command.timeout = profile.client.timeout;
        Self { command, depth: profile.depth, left: profile.commands, failure: None }
    }

    fn submit(&mut self, io: &mut Submitter<'_>) {
        if self.left > 0 {
            self.left -= 1;
            // As a program makes it: a clone copies the CDB byte by byte.
            let mut command = Command::new(self.command.lun, &self.command.cdb);
            (command.read_length, command.write) = (self.command.read_length, self.command.write.clone());
            command.timeout = self.command.timeout;
            // A session that is ending takes nothing, and then `lost` is called.
            let _ = io.submit(command);
        }
    }
}

impl Workload for Load {
    fn start(&mut self, io: &mut Submitter<'_>) {
        (0..self.depth).for_each(|_| self.submit(io));
    }

    fn completed(&mut self, completion: Completion, io: &mut Submitter<'_>) {
        if !matches!(completion.ending, Ending::Status { status: 0, residual: Residual::None, .. }) {
            self.lost(&format!("a command failed: {:?}", completion.ending));
        }
        self.submit(io);
    }

    fn is_done(&self) -> bool {
        self.left == 0
    }

    fn lost(&mut self, why: &str) {
        self.left = 0;
        self.failure.get_or_insert_with(|| why.to_owned());
    }
}
