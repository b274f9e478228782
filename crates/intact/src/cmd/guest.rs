//! Programs that a command runs: they receive the command's signals, and their exit code becomes the command's.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitCode, ExitStatus};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::FAILED;

/// Receives the signals that would end the command. It is created before the program is started, so that no signal in between is lost.
pub struct Kept(Signals);

impl Kept {
    /// Starts to receive them.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new() -> io::Result<Kept> {
        Signals::new([SIGINT, SIGTERM, SIGHUP]).map(Kept)
    }

    /// Waits until `child` has ended, and forwards the signals to it. A terminal sends its interrupt to the program as well, so that
    /// one is not forwarded; the command stays to clean up.
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

/// The program's exit code; if a signal ended it, 128 plus the number of the signal, as in shells.
pub fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(FAILED))
}
