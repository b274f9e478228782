//! Programs that a command runs for somebody: they get the command's signals, and the command ends as they do.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitCode, ExitStatus};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::FAILED;

/// The signals that end a command, received and kept from now on: made before there is a program, so that none between the two is lost.
pub struct Kept(Signals);

impl Kept {
    /// Begins to keep them.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new() -> io::Result<Kept> {
        Signals::new([SIGINT, SIGTERM, SIGHUP]).map(Kept)
    }

    /// Waits until `child` has ended, and hands the signals on to it. A terminal sends its interrupt to the program as well, so that
    /// one is not handed on; the command stays for what is to be taken down.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn wait(mut self, child: &mut Child) -> io::Result<ExitStatus> {
        let (pid, closer) = (Pid::from_child(child), self.0.handle());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for signal in self.0.forever().filter(|signal| *signal != SIGINT) {
                    let signal = if signal == SIGHUP { Signal::HUP } else { Signal::TERM };
                    let _ = kill_process(pid, signal);
                }
            });
            let status = child.wait();
            closer.close();
            status
        })
    }
}

/// The program's own exit code; for one that a signal has ended 128 and the signal's number, as shells say it.
pub fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(FAILED))
}
