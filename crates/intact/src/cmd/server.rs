//! What the commands share that ask the server on this machine, on its control socket.

use std::path::PathBuf;
use std::process::ExitCode;

use server::control::{Answer, Request, ask};

use super::{FAILED, fail};
use crate::output;

/// Arguments that every such command has.
#[derive(Debug, clap::Args)]
pub struct ServerArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The control socket of the server, when it is not in its usual place.
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

impl ServerArgs {
    /// Asks the server.
    pub fn ask(&self, request: &Request) -> Result<Answer, ExitCode> {
        ask(self.control.as_deref(), request).map_err(|error| fail(FAILED, error))
    }

    /// Asks it to change something, and prints what is different now: as JSON a list of such lines.
    pub fn change(&self, request: &Request) -> ExitCode {
        match self.ask(request) {
            Ok(Answer::Changed(lines) | Answer::Reload(lines)) => {
                output::show(self.json, &lines, || match &lines[..] {
                    [] => "nothing changed\n".to_owned(),
                    lines => lines.join("\n") + "\n",
                })
            }
            Ok(_) => unexpected(),
            Err(code) => code,
        }
    }
}

/// The answer is to another question.
pub fn unexpected() -> ExitCode {
    fail(FAILED, "the server answered something else: use the `intact` of the same version as the server")
}
