//! sg3-utils on our target: by libiscsi, through a library of ours that takes the place of the kernel's SCSI generic driver
//! (`conform/sg3`).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Ended, IQN, finish, left_out, need, program, serve, target};
use crate::common::Serve;

const PATIENCE: Duration = Duration::from_secs(60);
const HEADER: &str = "/usr/include/iscsi/iscsi.h";

/// A server, and the way to it.
pub struct Sg3 {
    bridge: PathBuf,
    directory: tempfile::TempDir,
    server: Serve,
}

impl Sg3 {
    /// A server with these units, and `more` lines for their target; `None` where something for it is missing.
    pub fn new(more: &str, stores: &[&str]) -> Option<Self> {
        let header = || Path::new(HEADER).is_file();
        let missing = "libiscsi's headers are not installed (Debian: apt-get install libiscsi-dev)";
        if !need("sg_inq", "sg3-utils") || !need("cc", "gcc") || !(header() || left_out(missing)) {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let bridge = directory.path().join("sg_iscsi.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conform/sg3/sg_iscsi.c");
        let mut compile = program("cc", PATIENCE);
        compile.args(["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-O1", "-o"]);
        compile.arg(&bridge).arg(source).args(["-liscsi", "-ldl"]);
        finish(compile).well();
        let server = serve(directory.path(), 1, &target(IQN, more, stores));
        Some(Self { bridge, directory, server })
    }

    /// Runs a program; `{N}` in its arguments stands for unit N, and names of files are those of [`Sg3::file`].
    pub fn run(&self, line: &str) -> Ended {
        let unit = format!("iscsi://{}/{IQN}/", self.server.portal());
        let mut words = line.split_whitespace();
        let mut command = program(words.next().unwrap(), PATIENCE);
        command.args(words.map(|word| word.replace('{', &unit).replace('}', "")));
        command.env("LD_PRELOAD", &self.bridge).current_dir(self.directory.path());
        finish(command)
    }

    /// Makes a file for programs to read.
    pub fn file(&self, name: &str, bytes: &[u8]) {
        fs::write(self.directory.path().join(name), bytes).unwrap();
    }

    /// What a program has written to a file.
    pub fn contents(&self, name: &str) -> Vec<u8> {
        fs::read(self.directory.path().join(name)).unwrap()
    }
}
