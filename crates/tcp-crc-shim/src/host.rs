//! A whole network namespace whose TCP carries the CRC: the programs in the kernel at its devices and at a cgroup.
//!
//! Whoever holds the [`Host`] holds the programs: the kernel takes all of them off when that process ends, however it ends. So they are
//! attached together or not at all. What the kernel cannot take back, the devices' `gso_max_segs`, stands in a record that the holder
//! keeps locked (flock): the next one to come restores it if the holder was killed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use engine::netns::NetNs;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use tcp_crc::{Config, Method, Offer};

use crate::bpf::Kernel;
use crate::commands::{SetupError, ip, links};
use crate::path::DataPath;
use crate::report::{self, Report};
use crate::surroundings::{Surroundings, Told};

/// How long a holder may take to let go.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two looks at whether it has.
const LOOK: Duration = Duration::from_millis(5);
/// Times that a record may be replaced while it is being locked.
const RECORDS_MAX: usize = 100;

/// The configuration of a host.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// What its TCP asks for.
    pub config: Config,
    /// With this the value of Table 7.1 is asked for, in place of those of `config`. Where the table has value 3 it is 5: the programs in
    /// the kernel leave the Checksum field to TCP.
    pub table_7_1: Option<Told>,
    /// Size of its connection table; further connections stay plain.
    pub connections_max: usize,
    /// The cgroup (version 2) of its programs; None: the root, hence all.
    pub cgroup: Option<PathBuf>,
    /// Its devices; empty: all that are up and Ethernet-like, without the ports of bridges and bonds.
    pub devices: Vec<String>,
}

/// Why the CRC could not be put on a host or taken off.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The user is another.
    #[error("it takes root (CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN): run it with sudo")]
    NotRoot,
    /// It is there.
    #[error("the CRC is up here already (process {pid}); `intact tcp-crc down` takes it off")]
    AlreadyUp {
        /// The process that holds it.
        pid: i32,
    },
    /// No device was named, and none fits.
    #[error("no Ethernet-like device is up here: set one up (`ip link set eth0 up`), or name one with --dev")]
    NoDevice,
    /// A named device is missing, or of another kind.
    #[error("`{0}` is no Ethernet-like device of this network namespace; `ip -brief link` lists them")]
    Device(String),
    /// The record.
    #[error("{path}: {source}; it takes root")]
    Record {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A process does not let go.
    #[error("process {0} does not end; see what it waits for: cat /proc/{0}/stack")]
    Stuck(i32),
    /// Everything else.
    #[error(transparent)]
    Setup(#[from] SetupError),
}

/// A device and what was changed of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Device {
    name: String,
    gso_max_segs: u64,
}

/// What stands in the record.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Content {
    pid: i32,
    devices: Vec<Device>,
}

/// The locked record of a network namespace.
struct Record {
    path: PathBuf,
    file: File,
}

/// Sockets that were there before, which stay plain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftAlone {
    /// Established connections.
    pub connections: u64,
    /// Sockets that listen: what they accept is plain until their programs are started again.
    pub listeners: u64,
}

/// A network namespace with the programs. Dropping it takes them off.
pub struct Host {
    path: Option<DataPath>,
    record: Record,
    devices: Vec<Device>,
    left_alone: LeftAlone,
    surroundings: Option<Surroundings>,
    name: String,
}

impl Host {
    /// Puts the programs on the calling thread's network namespace.
    ///
    /// # Errors
    /// They are there already, a device does not fit, or a requirement is missing: root, BPF in the kernel, cgroup2. Nothing stays
    /// attached then.
    pub fn attach(directory: &Path, options: &HostOptions) -> Result<Host, HostError> {
        let namespace =
            NetNs::current().map_err(SetupError::system("a network namespace cannot be named"))?;
        let (name, path) = place(directory, &namespace)?;
        let mut record = Record::lock(&path)?;
        record.mend()?;
        let devices = choose(&options.devices)?;
        let names: Vec<String> = devices.iter().map(|device| device.name.clone()).collect();
        let surroundings = options.table_7_1.map(|told| Surroundings::look(&names, told)).transpose()?;
        let left_alone = sockets();
        record.write(&Content { pid: std::process::id() as i32, devices: devices.clone() })?;
        // From here on, dropping it restores the devices.
        let mut host = Host { path: None, record, devices, left_alone, surroundings, name };
        let cgroup = options.cgroup.as_deref();
        let offer = host.chosen().map_or(options.config.offer, |method| Offer::of(&[method]));
        let config = Config { offer, ..options.config };
        let mut kernel = Kernel::start(&namespace, cgroup, config, options.connections_max)?;
        for device in &host.devices {
            kernel.attach(&namespace, &device.name)?;
        }
        host.path = Some(DataPath::Bpf(Box::new(kernel)));
        Ok(host)
    }

    /// Identifies it to others.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its devices.
    pub fn devices(&self) -> Vec<String> {
        self.devices.iter().map(|device| device.name.clone()).collect()
    }

    /// The facts by which the value was chosen, if it was chosen by them.
    pub fn surroundings(&self) -> Option<&Surroundings> {
        self.surroundings.as_ref()
    }

    /// The value that was chosen by them.
    pub fn chosen(&self) -> Option<Method> {
        let method = self.surroundings.as_ref()?.host().method();
        Some(if method == Method::Split { Method::Whole } else { method })
    }

    /// What was there before.
    pub fn left_alone(&self) -> LeftAlone {
        self.left_alone
    }

    /// The counters and states of its connections.
    pub fn report(&self) -> Report {
        let seen = self.path.as_ref().map(DataPath::seen).unwrap_or_default();
        let left_alone = self.left_alone.connections;
        Report { devices: self.devices(), left_alone, ..Report::of(&self.name, seen) }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.path = None;
        restore(&self.devices);
        let _ = fs::remove_file(&self.record.path);
    }
}

/// What [`take_down`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Down {
    /// Nothing.
    NotUp,
    /// Programs, which it took off.
    Done,
    /// Only what a killed holder had left of the devices' switches, which it restored.
    Mended,
}

/// Takes the programs off the calling thread's network namespace.
///
/// # Errors
/// The record cannot be opened, or the holder does not end.
pub fn take_down(directory: &Path) -> Result<Down, HostError> {
    let namespace = NetNs::current().map_err(SetupError::system("a network namespace cannot be named"))?;
    let (_, path) = place(directory, &namespace)?;
    let (mut record, ended) = match Record::lock(&path) {
        Err(HostError::AlreadyUp { pid }) => {
            end(&path, pid)?;
            (Record::lock(&path)?, true)
        }
        free => (free?, false),
    };
    // What a holder did not restore itself, because it was killed.
    let mended = record.mend()?;
    fs::remove_file(&path).map_err(at(&path))?;
    Ok(match (mended, ended) {
        (true, _) => Down::Mended,
        (false, true) => Down::Done,
        (false, false) => Down::NotUp,
    })
}

/// Ends the holder, which keeps its record locked while it lives: a process that has got its number in the meantime is left alone.
fn end(path: &Path, pid: i32) -> Result<(), HostError> {
    let holder = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    for signal in [Signal::TERM, Signal::KILL] {
        match (Record::lock(path), &holder) {
            (Err(HostError::AlreadyUp { pid: now }), Some(holder)) if now == pid => {
                let _ = pidfd_send_signal(holder, signal);
            }
            (Err(HostError::AlreadyUp { .. }), _) => {}
            (free, _) => return free.map(drop),
        }
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            match Record::lock(path) {
                Err(HostError::AlreadyUp { .. }) => std::thread::sleep(LOOK),
                free => return free.map(drop),
            }
        }
    }
    Err(HostError::Stuck(pid))
}

fn at(path: &Path) -> impl Fn(io::Error) -> HostError {
    move |source| HostError::Record { path: path.to_owned(), source }
}

/// The name of a namespace and the path of its record.
fn place(directory: &Path, namespace: &NetNs) -> Result<(String, PathBuf), HostError> {
    if !rustix::process::geteuid().is_root() {
        return Err(HostError::NotRoot);
    }
    let cookie = namespace.cookie().map_err(SetupError::system("a network namespace has no number"))?;
    report::make(directory).map_err(at(directory))?;
    let name = format!("host{cookie}");
    let path = directory.join(format!("{name}.up"));
    Ok((name, path))
}

impl Record {
    /// Opens and locks it.
    fn lock(path: &Path) -> Result<Record, HostError> {
        for _ in 0..RECORDS_MAX {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)
                .map_err(at(path))?;
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                return Err(HostError::AlreadyUp { pid: content(&mut file).pid });
            }
            // The last holder may have removed it since it was opened.
            let ours = file.metadata().map_err(at(path))?.ino();
            if fs::metadata(path).is_ok_and(|there| there.ino() == ours) {
                return Ok(Record { path: path.to_owned(), file });
            }
        }
        Err(at(path)(io::Error::other("it is replaced again and again")))
    }

    /// Restores what a killed holder has changed. Returns whether there was one.
    fn mend(&mut self) -> Result<bool, HostError> {
        let left = content(&mut self.file);
        restore(&left.devices);
        self.write(&Content::default())?;
        Ok(left.pid != 0)
    }

    fn write(&mut self, content: &Content) -> Result<(), HostError> {
        let text = serde_json::to_vec(content).map_err(|error| at(&self.path)(error.into()))?;
        let written = self.file.set_len(0).and_then(|()| {
            io::Seek::rewind(&mut self.file)?;
            self.file.write_all(&text)
        });
        written.map_err(at(&self.path))
    }
}

/// What stands in a record; of one that was not written to its end, nothing: then nothing was changed.
fn content(file: &mut File) -> Content {
    let mut text = Vec::new();
    let read = io::Seek::rewind(file).and_then(|()| file.read_to_end(&mut text));
    read.ok().and_then(|_| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// Devices that are gone need nothing.
fn restore(devices: &[Device]) {
    for device in devices {
        let _ = ip(&[format!("link set {} gso_max_segs {}", device.name, device.gso_max_segs)]);
    }
}

/// The devices that were named, or all that fit.
fn choose(named: &[String]) -> Result<Vec<Device>, HostError> {
    let links = links()?;
    let links = links.as_array().map(Vec::as_slice).unwrap_or_default();
    let is_ethernet = |link: &serde_json::Value| link["link_type"] == "ether";
    let is_up = |link: &serde_json::Value| {
        link["flags"].as_array().is_some_and(|flags| flags.iter().any(|flag| flag == "UP"))
    };
    let device = |link: &serde_json::Value| {
        let name = link["ifname"].as_str()?.to_owned();
        Some(Device { name, gso_max_segs: link["gso_max_segs"].as_u64()? })
    };
    if named.is_empty() {
        let fits = |link: &&serde_json::Value| is_ethernet(link) && is_up(link) && link["master"].is_null();
        let all: Vec<Device> = links.iter().filter(fits).filter_map(device).collect();
        return if all.is_empty() { Err(HostError::NoDevice) } else { Ok(all) };
    }
    let find = |name: &String| {
        let link = links.iter().find(|link| link["ifname"] == name.as_str() && is_ethernet(link));
        link.and_then(device).ok_or_else(|| HostError::Device(name.clone()))
    };
    named.iter().map(find).collect()
}

/// The TCP sockets of the calling thread's network namespace, but those of loopback.
fn sockets() -> LeftAlone {
    let mut found = LeftAlone::default();
    for table in ["tcp", "tcp6"] {
        let text = fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let (Some(local), Some(state)) = (fields.get(1), fields.get(3)) else { continue };
            match *state {
                _ if is_loopback(local) => {}
                "01" => found.connections += 1,
                "0A" => found.listeners += 1,
                _ => {}
            }
        }
    }
    found
}

/// Whether an address of `/proc/net/tcp`, words in the machine's order, is 127.0.0.0/8 or ::1.
fn is_loopback(local: &str) -> bool {
    let address = local.split(':').next().unwrap_or_default();
    let word = |at: usize| u32::from_str_radix(address.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let words: Vec<[u8; 4]> = (0..address.len() / 8).filter_map(|i| word(8 * i)).collect();
    match words[..] {
        [v4] => v4[0] == 127,
        [[0, 0, 0, 0], [0, 0, 0, 0], middle, last] => {
            middle == [0, 0, 0xff, 0xff] && last[0] == 127 || middle == [0; 4] && last == [0, 0, 0, 1]
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

    #[test]
    #[cfg(target_endian = "little")]
    fn loopback_is_told_from_other_addresses() {
        for local in [
            "0100007F:1F90",
            "3500007F:0035",
            "00000000000000000000000001000000:1F90",
            "0000000000000000FFFF00000100007F:1",
        ] {
            assert!(is_loopback(local), "{local}");
        }
        for local in [
            "00000000:0016",
            "0100000A:0016",
            "00000000000000000000000000000000:0016",
            "0000000000000000FFFF00000100000A:1",
            "",
            "x",
        ] {
            assert!(!is_loopback(local), "{local}");
        }
    }
}
