//! The Linux guest of `conform/linux-guest`: whether it can run here, running scenarios in it, and its hooks.

use std::cell::RefCell;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::Scope;
use std::time::Duration;

use super::{Ended, finish, left_out, need, program, report};

/// The exit status by which a hook cuts the guest's power.
pub const POWER_CUT: u8 = 90;

/// Where the guest's image is kept.
pub fn cache() -> PathBuf {
    let cache = std::env::var_os("LINUX_GUEST_CACHE").map(PathBuf::from);
    cache.unwrap_or_else(|| std::env::temp_dir().join("linux-guest-cache"))
}

/// Can the guest run here?
pub fn guest() -> bool {
    need("linux.uml", "user-mode-linux")
        && need("slirp4netns", "slirp4netns")
        && need("python3", "python3")
        && (cache().join("stamp").exists()
            || left_out("the guest's image is not built (as root: conform/linux-guest/build-image)"))
}

/// Runs scenarios for at most `limit` and returns what the rig printed, when all checks passed and exactly `skipped` were skipped.
#[track_caller]
pub fn scenarios(
    title: &str,
    limit: Duration,
    arguments: &[&str],
    scenarios: &str,
    skipped: &[&str],
) -> String {
    let rig = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conform/linux-guest/run");
    // The rig ends first, and then says what it saw.
    let mut command = program(rig.to_str().unwrap(), limit + Duration::from_secs(20));
    command.args(["--vm", "uml", "--lun", "0", "--timeout", &limit.as_secs().to_string()]);
    command.args(arguments).arg("--").args(scenarios.split(' '));
    let Ended { code, text } = finish(command);
    report(&format!("linux-guest-{title}.txt"), &text);
    assert_eq!(code, Some(0), "{title}");
    let skips = text.lines().filter_map(|line| line.strip_prefix("SKIP")?.split_whitespace().next());
    assert_eq!(skips.collect::<Vec<_>>(), skipped, "{title}");
    text
}

/// Two pipes by which the rig's hooks ask this process for something and hear how it went.
pub struct Hooks {
    ask: PathBuf,
    done: PathBuf,
}

impl Hooks {
    /// Makes the pipes in `directory`.
    pub fn new(directory: &Path) -> Self {
        let (ask, done) = (directory.join("ask"), directory.join("done"));
        assert!(Command::new("mkfifo").args([&ask, &done]).status().unwrap().success());
        Self { ask, done }
    }

    /// The rig's option for the hook of this name.
    pub fn option(&self, name: &str) -> String {
        let (ask, done) = (self.ask.display(), self.done.display());
        format!("--hook={name}=echo {name} >{ask} && read status <{done} && exit $status")
    }

    /// Runs `guest` while `on` answers its hooks, each with an exit status. A panic in `on` is an answer too, and comes before that
    /// of the guest, which only says that a hook failed.
    pub fn answer<T>(&self, on: impl FnMut(&str) -> u8 + Send, guest: impl FnOnce() -> T) -> T {
        std::thread::scope(|scope: &Scope<'_, '_>| {
            let answering = scope.spawn(|| self.serve(on));
            let end = End(self);
            let result = catch_unwind(AssertUnwindSafe(guest));
            drop(end);
            if let Err(panic) = answering.join().unwrap() {
                resume_unwind(panic);
            }
            result.unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// Until the end is asked for; the first panic is kept, and every hook after it fails.
    fn serve(&self, on: impl FnMut(&str) -> u8) -> std::thread::Result<()> {
        let on = RefCell::new(on);
        let mut result = Ok(());
        loop {
            let name = fs::read_to_string(&self.ask).unwrap();
            if name == "end\n" {
                return result;
            }
            let mut status = 1;
            if result.is_ok() {
                result = catch_unwind(AssertUnwindSafe(|| status = on.borrow_mut()(name.trim())));
            }
            fs::write(&self.done, format!("{status}\n")).unwrap();
        }
    }
}

/// Ends [`Hooks::serve`], also when the scenarios fail.
struct End<'a>(&'a Hooks);

impl Drop for End<'_> {
    fn drop(&mut self) {
        let _ = fs::write(&self.0.ask, "end\n");
    }
}
