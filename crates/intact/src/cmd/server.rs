//! What the commands share that use the control socket of the server on this machine.

use std::path::PathBuf;
use std::process::ExitCode;

use server::control::{Answer, Request, ask};

use super::{FAILED, fail};
use crate::output;

/// Arguments of each of these commands.
#[derive(Debug, clap::Args)]
pub struct ServerArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The control socket of the server, if it is not in the default place.
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

impl ServerArgs {
    /// Asks the server.
    pub fn ask(&self, request: &Request) -> Result<Answer, ExitCode> {
        ask(self.control.as_deref(), request).map_err(|error| fail(FAILED, error))
    }

    /// Requests a change and prints what has changed; as JSON, a list of such lines.
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

/// The answer is for another request.
pub fn unexpected() -> ExitCode {
    fail(FAILED, "the server answered something else: use the `intact` of the same version as the server")
}
