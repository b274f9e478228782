//! Output of the commands: text of the crate `harness`, or JSON, and writes that tolerate a closed pipe.

use std::io::{self, Write};
use std::process::ExitCode;

pub use harness::text::{Table, bytes, count, plain};
use serde::Serialize;

use crate::cmd::{FAILED, fail};

/// Prints to standard output. A closed pipe is no failure.
pub fn print(text: &(impl AsRef<[u8]> + ?Sized)) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => fail(FAILED, format_args!("cannot write the output: {error}")),
    }
}

/// Prints the result of a command: `value` as a line of JSON, or `text` for people.
pub fn show(json: bool, value: &(impl Serialize + ?Sized), text: impl FnOnce() -> String) -> ExitCode {
    if !json {
        return print(&text());
    }
    match serde_json::to_string(value) {
        Ok(line) => print(&(line + "\n")),
        Err(error) => fail(FAILED, format_args!("the result has no form as JSON: {error}")),
    }
}
