//! A share of a processor: a control group whose processes get no more of each period than that (`cpu.max` of cgroup v2,
//! `cpu.cfs_quota_us` of v1). Programs with real-time priority are not bound by it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The files of a group's weight against other programs, and the greatest weight: otherwise they would take from the share.
const WEIGHTS: [(&str, &str); 2] = [("cpu.shares", "262144"), ("cpu.weight", "10000")];
/// The kernel counts the time anew after each period, microseconds. Short, so that a run has many.
const PERIOD_US: u32 = 20_000;

/// See the head of the module. Removed when dropped, after its processes have left or ended.
pub struct Share {
    folder: PathBuf,
    /// Where a process goes that leaves.
    home: PathBuf,
    unified: bool,
}

/// Where the controller of processors is mounted.
#[derive(Debug, PartialEq)]
struct Mount {
    at: PathBuf,
    unified: bool,
}

impl Share {
    /// # Errors
    /// Where the system has no such groups, or does not let this program make one.
    pub fn new() -> Result<Self> {
        let mounts = fs::read_to_string("/proc/mounts")?;
        let has_cpu = |at: &Path| {
            fs::read_to_string(at.join("cgroup.controllers"))
                .is_ok_and(|all| all.split_whitespace().any(|one| one == "cpu"))
        };
        let mount = find(&mounts, has_cpu).context("no control groups for processors are mounted")?;
        let here = fs::read_to_string("/proc/self/cgroup")?;
        let here = membership(&here, mount.unified).context("this program is in no control group")?;
        let folder = mount.at.join(format!("intact-bench-{}", std::process::id()));
        if mount.unified {
            fs::write(mount.at.join("cgroup.subtree_control"), "+cpu")
                .context("control groups cannot limit processors here")?;
        }
        fs::create_dir(&folder).context("no control group can be made")?;
        let home = mount.at.join(here.trim_start_matches('/')).join("cgroup.procs");
        let share = Self { folder, home, unified: mount.unified };
        let (file, weight) = WEIGHTS[usize::from(mount.unified)];
        fs::write(share.folder.join(file), weight).context("a control group takes no weight")?;
        Ok(share)
    }

    /// Limits the group to so many percent of one processor.
    pub fn set(&self, percent: u32) -> Result<()> {
        let quota = PERIOD_US / 100 * percent;
        let (file, text) = match self.unified {
            true => ("cpu.max", format!("{quota} {PERIOD_US}")),
            false => {
                // A quota above the period that is in force may be refused.
                fs::write(self.folder.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
                ("cpu.cfs_quota_us", quota.to_string())
            }
        };
        fs::write(self.folder.join(file), text).with_context(|| format!("no share of {percent} %"))
    }

    /// Takes a process with all its threads.
    pub fn take(&self, process: u32) -> Result<()> {
        let name = self.folder.join("cgroup.procs");
        fs::write(&name, process.to_string()).with_context(|| format!("{} takes no process", name.display()))
    }

    /// Lets a process go back to where this program is.
    pub fn release(&self, process: u32) -> Result<()> {
        match fs::write(&self.home, process.to_string()) {
            Ok(()) => Ok(()),
            Err(error) => bail!("a process cannot leave its share: {error}"),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}

/// The group of a program in the hierarchy with the controller, from `/proc/PID/cgroup`.
fn membership(text: &str, unified: bool) -> Option<&str> {
    text.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, group) = rest.split_once(':')?;
        let is_it = match unified {
            true => controllers.is_empty(),
            false => controllers.split(',').any(|one| one == "cpu"),
        };
        is_it.then_some(group)
    })
}

/// The mount to use among those of `/proc/mounts`. A machine may have both kinds; then the controller belongs to one of them.
fn find(mounts: &str, has_cpu: impl Fn(&Path) -> bool) -> Option<Mount> {
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (at, kind, options) = (PathBuf::from(words.next()?), words.next()?, words.next()?);
        match kind {
            "cgroup2" if has_cpu(&at) => Some(Mount { at, unified: true }),
            "cgroup" if options.split(',').any(|option| option == "cpu") => {
                Some(Mount { at, unified: false })
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &str = "proc /proc proc rw 0 0\n\
        cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0\n\
        cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n\
        cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";

    #[test]
    fn the_hierarchy_that_has_the_controller_is_found_and_the_set_of_processors_is_another() {
        let first = find(BOTH, |_| false);
        assert_eq!(first, Some(Mount { at: "/sys/fs/cgroup/cpu".into(), unified: false }));
        let unified = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        assert_eq!(find(unified, |_| true), Some(Mount { at: "/sys/fs/cgroup".into(), unified: true }));
        assert_eq!(find(unified, |_| false), None);
        assert_eq!(find("proc /proc proc rw 0 0\n", |_| true), None);
    }

    #[test]
    fn a_program_returns_to_the_group_it_came_from() {
        let text = "4:memory:/a\n3:cpuset:/b\n1:cpu,cpuacct:/c\n0::/d:e\n";
        assert_eq!(membership(text, false), Some("/c"));
        assert_eq!(membership(text, true), Some("/d:e"));
        assert_eq!(membership("3:cpuset:/b\n", false), None);
    }
}
