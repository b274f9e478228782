//! How far a long run is: one line that changes, on a terminal only. A log shows what each step said.

use std::fmt::Display;
use std::io::IsTerminal;

/// Replaces the line by `what`.
pub fn show(what: impl Display) {
    if std::io::stderr().is_terminal() {
        // The rest of a longer line is erased (ECMA-48 EL).
        eprint!("\r{what}\x1b[K");
    }
}

/// Leaves the line.
pub fn end() {
    if std::io::stderr().is_terminal() {
        eprintln!();
    }
}
