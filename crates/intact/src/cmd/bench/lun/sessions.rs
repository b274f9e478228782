//! Over how many sessions the load is spread.

use std::process::ExitCode;
use std::time::Duration;

use initiator::{Disk, Interval, IscsiUrl, Lun, OpenError, Options, Session, Width};
use iscsi_core::params::DigestPolicy;

use super::workload::{Load, Plan};
use crate::cmd::client::{ClientArgs, not_opened};
use crate::cmd::{FAILED, MISUSED, fail};

/// Length of an interval in which a number of sessions is tried, and of the time before that does not count.
const INTERVAL: Duration = Duration::from_millis(150);
const BEFORE: Duration = Duration::from_millis(30);
/// Most of them, so that a load whose throughput never settles is measured all the same.
const INTERVALS_MAX: usize = 200;

/// What `--sessions` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sessions {
    Number(u16),
    Auto,
}

impl Sessions {
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            number => match number.parse() {
                Ok(n @ 1..=64) => Ok(Self::Number(n)),
                _ => Err("sessions is auto or a number from 1 to 64".to_owned()),
            },
        }
    }

    /// What is meant if nothing is said: as with the connections of a session.
    pub fn of(opener: &Opener) -> Self {
        if opener.options.tunes_connections() { Self::Auto } else { Self::Number(1) }
    }
}

/// Opens sessions with the unit, all with the same options.
pub struct Opener {
    options: Options,
    lun: Lun,
}

impl Opener {
    pub fn new(client: &ClientArgs, url: &IscsiUrl, policy: Option<DigestPolicy>) -> Result<Self, ExitCode> {
        let mut url = url.clone();
        if let Some(policy) = policy {
            url.set_digests(policy);
        }
        let options = client.options(&url)?;
        let (_, lun) = url.unit().map_err(|error| fail(MISUSED, error))?;
        Ok(Self { options, lun })
    }

    pub fn open(&self) -> Result<Disk, ExitCode> {
        self.try_to_open().map_err(|error| not_opened(&error))
    }

    fn try_to_open(&self) -> Result<Disk, OpenError> {
        let session = Session::connect(self.options.clone())?;
        Ok(Disk::open(&session, self.lun)?)
    }
}

/// Tries more sessions by the rule of [`Width`], with the load of `plan` and its depth shared among them. `disks` are then as many as
/// brought something; returns the depth of each.
pub fn find(plan: &Plan, opener: &Opener, disks: &mut Vec<Disk>) -> Result<usize, ExitCode> {
    let mut width = Width::of(&opener.options);
    let trial = |sessions: usize| Plan {
        depth: plan.depth.div_ceil(sessions),
        warmup: BEFORE,
        time: INTERVAL,
        ..plan.clone()
    };
    let outstanding = plan.depth as f64;
    for _ in 0..INTERVALS_MAX {
        if width.is_settled(outstanding) {
            break;
        }
        while disks.len() < usize::from(width.wanted()) {
            match opener.try_to_open() {
                Ok(disk) => disks.push(disk),
                // The target refuses more: those that there are do it.
                Err(_) => width.limit(disks.len() as u16),
            }
        }
        let sessions = usize::from(width.wanted());
        let loads = run_loads(&trial(sessions), &disks[..sessions])?;
        let commands: u64 = loads.iter().map(|load| load.reads + load.writes).sum();
        let bytes = commands as f64 * plan.block_bytes as f64;
        let seconds = loads.iter().map(|load| load.course.elapsed).max().unwrap_or_default().as_secs_f64();
        width.measured(Interval { bytes, seconds, outstanding });
    }
    disks.truncate(width.wanted().into());
    Ok(trial(disks.len()).depth)
}

/// Runs `plan` over all of these sessions at a time.
pub fn run_loads(plan: &Plan, disks: &[Disk]) -> Result<Vec<Load>, ExitCode> {
    let loads: Option<Vec<Load>> = std::thread::scope(|scope| {
        let threads: Vec<_> = disks
            .iter()
            .enumerate()
            .map(|(n, disk)| {
                let load = Load::new(plan.clone(), n as u64);
                scope.spawn(move || disk.session().run(load))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().ok().flatten()).collect()
    });
    loads.ok_or_else(|| fail(FAILED, "a session ended in the middle"))
}
