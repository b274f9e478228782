//! The program with a limit, and programs in the background.

use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::program;

/// `intact` with these arguments; ended after a minute.
pub fn intact(arguments: &str) -> Command {
    let mut command = program(env!("CARGO_BIN_EXE_intact"), Duration::from_secs(60));
    command.args(arguments.split(' '));
    command
}

/// A program in the background, ended by SIGTERM.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}
