//! Two hosts with the medium between them, in real time.
//!
//! ```text
//!  near, 10.77.0.1 ── TUN ── the medium ── TUN ── 10.77.0.2, far
//! ```
//! Both are network namespaces without a name: nothing is left when they are dropped, and two stages do not see each other. The medium and
//! its hops are those of the crate `wireless`, moved by the clock of the machine.

use std::io;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::netns::NetNs;
use engine::realtime::prefer_this_thread;
use engine::tun::{Framing, Tun};
use rustix::process::{Pid, Signal, kill_process_group};
use wireless::link::{Host, LinkSetup};

use super::air::{Air, Passed};
use harness::text::complain;

/// Addresses of the hosts.
const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
/// Priority of the medium among threads in real time: in the middle.
const PRIORITY: i32 = 50;
/// That of programs ahead of others: below the medium.
const PROGRAM_PRIORITY: i32 = 5;
/// How often a port is looked for.
const LOOK: Duration = Duration::from_millis(10);

/// The address of a host.
pub const fn address(host: Host) -> &'static str {
    ADDRESSES[host as usize]
}

/// See the module.
pub struct Stage {
    ends: [NetNs; 2],
}

/// Creates a stage, and moves its medium while `act` uses it. Returns what `act` returns, and what passed.
///
/// # Errors
/// There is no root, no /dev/net/tun or no `ip`; or those of `act`.
pub fn on_stage<T>(
    setup: &LinkSetup,
    seed: u64,
    act: impl FnOnce(&Stage) -> io::Result<T>,
) -> io::Result<(T, Passed)> {
    let stage = Stage { ends: [NetNs::create()?, NetNs::create()?] };
    let near = stage.device(Host::Near, setup.mtu_bytes)?;
    let far = stage.device(Host::Far, setup.mtu_bytes)?;
    let air = Air::new(setup, seed, [&near, &far])?;
    let medium = |over: &AtomicBool| {
        if let Err(error) = prefer_this_thread(PRIORITY) {
            complain(format_args!(
                "intact: the medium runs as an ordinary thread ({error}), and may be late"
            ));
        }
        air.run(over)
    };
    beside(medium, || act(&stage))
}

/// Runs `act` while `medium` runs on a thread of its own, which ends when its flag is set.
fn beside<T, M: Send>(
    medium: impl FnOnce(&AtomicBool) -> io::Result<M> + Send,
    act: impl FnOnce() -> io::Result<T>,
) -> io::Result<(T, M)> {
    /// Sets the flag when dropped: if `act` panics, too, for the scope waits for the thread.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let flag = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = Over(flag);
        let thread = std::thread::Builder::new().name("medium".into());
        let thread = thread.spawn_scoped(scope, move || medium(flag))?;
        let result = act();
        drop(over);
        let passed = thread.join().map_err(|_| io::Error::other("the medium panicked"))??;
        Ok((result?, passed))
    })
}

impl Stage {
    /// Starts a program on a host. It finds the addresses in INTACT_NEAR and INTACT_FAR.
    ///
    /// # Errors
    /// The program cannot be started; the error has its name.
    pub fn start(&self, host: Host, command: &mut Command) -> io::Result<Child> {
        command.env("INTACT_NEAR", ADDRESSES[0]).env("INTACT_FAR", ADDRESSES[1]);
        let name = command.get_program().to_string_lossy().into_owned();
        let started = self.within(host, || command.spawn())?;
        started.map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))
    }

    /// Starts a program as [`Stage::start`], ahead of the other programs of the machine, where that is allowed: what a command takes is then
    /// the link's time, and not that of waiting for a processor.
    ///
    /// # Errors
    /// As [`Stage::start`].
    pub fn start_ahead(&self, host: Host, command: &mut Command) -> io::Result<Child> {
        let name = command.get_program().to_string_lossy().into_owned();
        // A child has the priority of the thread that started it.
        let started = self.within_ahead(host, || command.spawn())?;
        started.map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))
    }

    /// Runs `work` as [`Stage::within`], on a thread that is ahead of other programs; so are the threads that it starts.
    ///
    /// # Errors
    /// As [`Stage::within`].
    pub fn within_ahead<T: Send>(&self, host: Host, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        self.within(host, || {
            // Without the right to it, it is as late as any other.
            let _ = prefer_this_thread(PROGRAM_PRIORITY);
            work()
        })
    }

    /// Runs `work` on a thread of a host: sockets that it opens are there, and so are threads and programs that it starts.
    ///
    /// # Errors
    /// The host cannot be entered.
    pub fn within<T: Send>(&self, host: Host, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        self.ends[host as usize].within(work)
    }

    /// Waits until something at the far end listens, on `port` if it is given, `program` has ended, or `patience` is over: a program may
    /// need no port. Returns whether something listens.
    ///
    /// # Errors
    /// The host cannot be entered.
    pub fn wait_for_port(
        &self,
        port: Option<u16>,
        program: &mut Child,
        patience: Duration,
    ) -> io::Result<bool> {
        wait_until(program, patience, || self.within(Host::Far, || has_port(port)))
    }

    /// A TUN device of a host, with its address, up.
    fn device(&self, host: Host, mtu: u32) -> io::Result<Tun> {
        self.within(host, || {
            let tun = Tun::open("air%d", Framing::Packets)?;
            let name = tun.name();
            ip(&["link", "set", "lo", "up"])?;
            ip(&["addr", "add", &format!("{}/24", address(host)), "dev", name])?;
            ip(&["link", "set", name, "mtu", &mtu.to_string(), "up"])?;
            Ok(tun)
        })?
    }
}

/// Looks until `found` says true, `program` has ended, or `patience` is over. Returns what `found` said last.
fn wait_until(
    program: &mut Child,
    patience: Duration,
    mut found: impl FnMut() -> io::Result<bool>,
) -> io::Result<bool> {
    let began = Instant::now();
    while began.elapsed() < patience && program.try_wait()?.is_none() {
        if found()? {
            return Ok(true);
        }
        std::thread::sleep(LOOK);
    }
    Ok(false)
}

/// Ends a program that leads a process group, and its children.
pub fn end(child: &mut Child) {
    // Its children may outlive it.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

/// Whether a socket of the thread's namespace listens (TCP), or has a port (UDP), the given one if there is one.
fn has_port(port: Option<u16>) -> bool {
    let rows =
        |name: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
    let listens = |line: &str| is_bound(line, "0A", port);
    // An unconnected socket of UDP is in state 07.
    let receives = |line: &str| is_bound(line, "07", port);
    ["tcp", "tcp6"].into_iter().any(|name| rows(name).lines().any(listens))
        || ["udp", "udp6"].into_iter().any(|name| rows(name).lines().any(receives))
}

/// Whether a line of /proc/net/tcp or udp is of a socket in this state, on this port: proc(5), the second field is the local address, the
/// fourth the state.
fn is_bound(line: &str, state: &str, port: Option<u16>) -> bool {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let local = fields.get(1).and_then(|address| address.rsplit_once(':'));
    let local = local.and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
    fields.get(3) == Some(&state) && local.is_some_and(|local| port.is_none_or(|port| port == local))
}

fn ip(arguments: &[&str]) -> io::Result<()> {
    let output = Command::new("ip").args(arguments).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "ip {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A medium: runs until its flag is set, and counts one packet.
    fn medium(over: &AtomicBool) -> io::Result<u32> {
        while !over.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        Ok(1)
    }

    #[test]
    fn the_medium_ends_with_what_uses_it_however_that_ends() {
        assert_eq!(beside(medium, || Ok(7)).unwrap(), (7, 1));
        assert_eq!(beside(medium, || Err::<(), _>(io::Error::other("no"))).unwrap_err().to_string(), "no");
        // It would wait for ever if the medium did not hear of it.
        let act = || -> io::Result<()> { panic!("the user of the stage") };
        let panicked = std::panic::catch_unwind(|| beside(medium, act)).unwrap_err();
        assert_eq!(panicked.downcast_ref(), Some(&"the user of the stage"));
        let medium = |_: &AtomicBool| -> io::Result<()> { panic!("the medium") };
        assert_eq!(beside(medium, || Ok(())).unwrap_err().to_string(), "the medium panicked");
    }

    #[test]
    fn a_program_is_waited_for_until_it_is_ready_or_ends_or_time_is_over() {
        let mut idle = Command::new("sleep").arg("600").spawn().unwrap();
        let mut looks = 0;
        let third = || {
            looks += 1;
            Ok(looks == 3)
        };
        assert!(wait_until(&mut idle, Duration::from_secs(600), third).unwrap());
        assert!(!wait_until(&mut idle, LOOK, || Ok(false)).unwrap(), "its patience is over");
        let fails = || Err(io::Error::other("no such host"));
        assert_eq!(wait_until(&mut idle, LOOK, fails).unwrap_err().to_string(), "no such host");
        idle.kill().unwrap();
        assert!(!wait_until(&mut idle, Duration::from_secs(600), || Ok(false)).unwrap(), "it has ended");
        idle.wait().unwrap();
    }

    #[test]
    fn a_port_is_found_by_state_and_number() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue";
        let line = "   0: 0100007F:0CBC 00000000:0000 0A 00000000:00000000 00:00000000 00000000";
        assert!(is_bound(line, "0A", None) && is_bound(line, "0A", Some(3260)));
        assert!(!is_bound(line, "0A", Some(3261)) && !is_bound(line, "07", None));
        assert!(!is_bound(head, "0A", None) && !is_bound("", "0A", None));
    }
}
