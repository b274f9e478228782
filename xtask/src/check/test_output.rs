//! Passes on the output of `cargo test`, adds up the results, and collects the failures.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::Count;

/// How much of a failed test's message the summary repeats, in characters.
const WORDS_MAX: usize = 300;

/// Runs the tests of a `cargo test`, passes their output on, and adds up the results of each test program.
pub fn run_tests(mut command: Command) -> Result<Count> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cargo did not start")?;
    let out = child.stdout.take().context("cargo test has no output")?;
    let mut reader = Reader::default();
    for line in BufReader::new(out).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        println!("{line}");
        reader.take(&line);
    }
    let mut count = reader.count;
    // A test program that did not build, or crashed, has no result line.
    if !child.wait()?.success() && count.failed == 0 {
        count.failed = 1;
        count.failures.push("a test program did not build, or died: see above".to_owned());
    }
    Ok(count)
}

/// Reads the lines of consecutive test programs.
#[derive(Default)]
struct Reader {
    count: Count,
    /// Whether the lines belong to a failed test, whose entry is the last of `count.failures`.
    in_failure: bool,
}

impl Reader {
    fn take(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" ----")) {
            let name = name.strip_suffix(" stdout").unwrap_or(name);
            self.count.failures.push(format!("{name}:"));
            self.in_failure = true;
        } else if line == "failures:" {
            self.in_failure = false;
        } else if let Some(result) = parse_result(line) {
            self.in_failure = false;
            self.count.passed += result.passed;
            self.count.failed += result.failed;
            self.count.ignored += result.ignored;
        } else if self.in_failure && !line.is_empty() && !line.starts_with("note: ") {
            self.take_words(line);
        }
    }

    /// Keeps the start of a failed test's message; this is the panic unless the test prints something.
    fn take_words(&mut self, line: &str) {
        let Some(failure) = self.count.failures.last_mut() else { return };
        let room = WORDS_MAX.saturating_sub(failure.chars().count());
        if room > 1 {
            failure.push(' ');
            failure.extend(line.trim().chars().take(room - 1));
        }
    }
}

/// Reads `test result: ok. 5 passed; 0 failed; 1 ignored; ...`.
fn parse_result(line: &str) -> Option<Count> {
    let counts = line.trim().strip_prefix("test result:")?.split_once('.')?.1;
    let number = |word: &str| {
        let (number, _) = counts.split_once(word)?;
        number.rsplit(';').next()?.trim().parse().ok()
    };
    Some(Count {
        passed: number(" passed")?,
        failed: number(" failed")?,
        ignored: number(" ignored")?,
        failures: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_read() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; finished in 0.10s";
        let expected = Count { passed: 12, failed: 3, ignored: 1, failures: Vec::new() };
        assert_eq!(parse_result(line), Some(expected));
        assert_eq!(parse_result("test a::b ... ok"), None);
    }

    #[test]
    fn failed_tests_are_named_with_their_first_words() {
        let output = "\
test a::b ... FAILED
test c ... ok

failures:

---- a::b stdout ----

thread 'a::b' (7) panicked at crates/x/src/y.rs:10:5:
assertion `left == right` failed
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace


failures:
    a::b

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";
        let mut reader = Reader::default();
        output.lines().for_each(|line| reader.take(line));
        assert_eq!((reader.count.passed, reader.count.failed), (1, 1));
        let words =
            "a::b: thread 'a::b' (7) panicked at crates/x/src/y.rs:10:5: assertion `left == right` failed";
        assert_eq!(reader.count.failures, [words]);
    }

    #[test]
    fn what_a_failed_test_said_is_bounded() {
        let mut reader = Reader::default();
        reader.take("---- a stdout ----");
        (0..100).for_each(|_| reader.take("word ".repeat(20).as_str()));
        assert!(reader.count.failures[0].chars().count() <= WORDS_MAX);
    }
}
