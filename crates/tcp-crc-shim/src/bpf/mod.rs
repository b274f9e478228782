//! The back end in the kernel: BPF programs (`crates/tcp-crc-shim/bpf/tcp_crc.bpf.c`) that make the kernel's own TCP leave room for the CRC,
//! fill it in and check it.
//!
//! The programs are unloaded with the [`Kernel`] that loaded them. They work on one network namespace: `sockops` is attached to the root of
//! cgroup2 and checks the namespace of each socket; the other two are attached to devices.
//!
//! The programs are stored as an object file next to their source. So neither building nor running needs clang, and every user runs exactly
//! what the tests ran. `cargo xtask bpf` rebuilds it; a test fails if it does not match its source.

pub mod cost;
mod records;
mod table;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use aya::maps::{HashMap, MapData, PerCpuArray};
use aya::programs::{CgroupAttachMode, ProgramError, SchedClassifier, SockOps, TcAttachType};
use aya::{Ebpf, EbpfLoader};
use engine::netns::NetNs;
use tcp_crc::{Codepoints, Config, Counters, FlowKey, Method, OnMissing, State};

use crate::commands::{SetupError, ip, within};
use crate::shim::PacketCounters;

use records::{FLOW_BYTES, KEY_BYTES, flow, key, totals};

const OBJECT: &[u8] = aya::include_bytes_aligned!("../../bpf/tcp_crc.bpf.o");

/// The programs' tables of connections.
type Flows = HashMap<MapData, [u8; KEY_BYTES], [u8; FLOW_BYTES]>;

/// The loaded programs.
pub struct Kernel {
    programs: Ebpf,
    /// Established connections, then opening ones.
    flows: [Flows; 2],
    totals: PerCpuArray<MapData, u64>,
}

impl Kernel {
    /// Loads the programs for `namespace`, with room for `connections_max` connections, and attaches them to its sockets, or to those of
    /// its programs in `cgroup`. Sockets that already listen stay plain.
    ///
    /// # Errors
    /// A requirement is missing: root, BPF in the kernel, cgroup2. Or the configuration asks for value 3, which needs the shim on TUN
    /// devices.
    pub fn start(
        namespace: &NetNs,
        cgroup: Option<&Path>,
        config: Config,
        connections_max: usize,
    ) -> Result<Kernel, SetupError> {
        let cookie = namespace.cookie().map_err(bpf("a network namespace has no number"))?;
        let cgroup = cgroup2(cgroup)?;
        let mut kernel = Kernel::load(cookie, config, connections_max)?;
        let sockops: &mut SockOps = kernel.program("tcp_crc_sockops")?;
        let what = "a BPF program cannot be attached to cgroup2";
        verified(|| sockops.load()).map_err(program(what))?;
        // A BPF link always allows others next to it; the kernel refuses a link that sets a flag for this.
        sockops.attach(cgroup, CgroupAttachMode::Single).map_err(program(what))?;
        Ok(kernel)
    }

    /// Loads the programs without attaching them.
    pub(crate) fn load(cookie: u64, config: Config, connections_max: usize) -> Result<Kernel, SetupError> {
        let thesis = config.offer.methods().find(|method| *method != Method::Placed);
        if thesis == Some(Method::Split) {
            let source = io::Error::other("it puts half of the CRC where the kernel makes TCP's sum");
            return Err(SetupError::Bpf { what: "value 3 is not for BPF", source });
        }
        // The kernel lets a program write only one option of a kind into a SYN, so one value is requested: one that a peer of the thesis
        // knows.
        let placed = thesis.is_none() && config.offer.methods().any(|method| method == Method::Placed);
        let thesis = thesis.map_or(0, Method::value);
        let placed = u8::from(placed);
        let strict: u8 = match config.on_missing {
            OnMissing::Lenient => 0,
            OnMissing::Strict => 1,
            OnMissing::Required => 2,
        };
        let experimental = u8::from(config.codepoints == Codepoints::Experimental);
        let table = table::slicing();
        let mut programs = EbpfLoader::new()
            .override_global("netns_cookie", &cookie, true)
            .override_global("offer_thesis", &thesis, true)
            .override_global("offer_placed", &placed, true)
            .override_global("experimental", &experimental, true)
            .override_global("strict", &strict, true)
            .override_global("table", &table[..], true)
            .map_max_entries("flows", connections_max as u32)
            .load(OBJECT)
            .map_err(|error| refused("the BPF programs cannot be loaded", &error))?;
        for name in ["tcp_crc_egress", "tcp_crc_ingress"] {
            let classifier: &mut SchedClassifier = program_of(&mut programs, name)?;
            verified(|| classifier.load()).map_err(program("the kernel refuses a BPF program"))?;
        }
        let mut map = |name: &'static str| programs.take_map(name).ok_or_else(|| absent(name));
        let flows = [map("flows")?, map("opening")?]
            .map(|map| HashMap::try_from(map).map_err(|error| refused("a BPF map cannot be read", &error)));
        let [standing, opening] = flows;
        let totals = PerCpuArray::try_from(map("totals")?)
            .map_err(|error| refused("a BPF map cannot be read", &error))?;
        Ok(Kernel { flows: [standing?, opening?], totals, programs })
    }

    fn program<'a, T>(&'a mut self, name: &'static str) -> Result<&'a mut T, SetupError>
    where
        &'a mut T: TryFrom<&'a mut aya::programs::Program, Error = ProgramError>,
    {
        program_of(&mut self.programs, name)
    }

    /// Attaches the programs to a device of `namespace`. The kernel's TCP stops making super-segments for that device: one CRC cannot cover
    /// several segments.
    ///
    /// # Errors
    /// There is no such device, it is not an Ethernet-like device, or the kernel is older than 6.6.
    pub fn attach(&mut self, namespace: &NetNs, device: &str) -> Result<(), SetupError> {
        within(namespace, || {
            ip(&[format!("link set {device} gso_max_segs 1")])?;
            for (name, side) in
                [("tcp_crc_egress", TcAttachType::Egress), ("tcp_crc_ingress", TcAttachType::Ingress)]
            {
                let classifier: &mut SchedClassifier = self.program(name)?;
                classifier
                    .attach(device, side)
                    .map_err(program("a BPF program cannot be attached to a device"))?;
            }
            Ok(())
        })
    }

    /// All connections, in no particular order.
    pub fn connections(&self) -> Vec<(FlowKey, State, Counters)> {
        let all = self.flows.iter().flat_map(|flows| flows.iter().flatten());
        all.filter_map(|(ends, record)| {
            let (state, counters) = flow(&record)?;
            Some((key(&ends), state, counters))
        })
        .collect()
    }

    /// The counters of all connections together, of packets without a connection, and of refused connections.
    pub fn totals(&self) -> (Counters, PacketCounters, u64) {
        totals(|what| {
            let each = self.totals.get(&what, 0);
            each.map_or(0, |each| each.iter().sum())
        })
    }
}

/// Times that a program may be handed to the kernel: as often as libbpf does.
const LOADS_MAX: usize = 5;

/// The kernel's verifier gives up with EAGAIN when a signal is pending, or other work for the calling thread; it is asked again then.
fn verified(mut load: impl FnMut() -> Result<(), ProgramError>) -> Result<(), ProgramError> {
    for _ in 1..LOADS_MAX {
        match load() {
            Err(ProgramError::LoadError { io_error, .. }) if io_error.kind() == io::ErrorKind::WouldBlock => {
            }
            done => return done,
        }
    }
    load()
}

fn program_of<'a, T>(programs: &'a mut Ebpf, name: &'static str) -> Result<&'a mut T, SetupError>
where
    &'a mut T: TryFrom<&'a mut aya::programs::Program, Error = ProgramError>,
{
    let program = programs.program_mut(name).ok_or_else(|| absent(name))?;
    program.try_into().map_err(|error: ProgramError| refused("a BPF program is of another kind", &error))
}

fn absent(name: &str) -> SetupError {
    let source = io::Error::other(format!("it has no `{name}`; make it again with `cargo xtask bpf`"));
    SetupError::Bpf { what: "the BPF object is not of its source", source }
}

fn bpf(what: &'static str) -> impl Fn(io::Error) -> SetupError {
    move |source| SetupError::Bpf { what, source }
}

fn program(what: &'static str) -> impl Fn(ProgramError) -> SetupError {
    move |error| refused(what, &error)
}

/// The library's error with its causes, in one line. The verifier's log is left out.
fn refused(what: &'static str, error: &dyn std::error::Error) -> SetupError {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(reason) = source {
        text = format!("{text}: {reason}");
        source = reason.source();
    }
    let line = text.lines().next().unwrap_or_default().to_owned();
    SetupError::Bpf { what, source: io::Error::other(line) }
}

/// `<linux/magic.h>`.
const CGROUP2_SUPER_MAGIC: rustix::fs::FsWord = 0x6367_7270;

/// A cgroup of version 2: the given one, or the root of all, wherever it is mounted.
fn cgroup2(given: Option<&Path>) -> Result<File, SetupError> {
    let what = "cgroup2 cannot be opened";
    let path = given.map_or_else(cgroup2_root, |path| Ok(path.to_owned()))?;
    let named = |source: io::Error| bpf(what)(io::Error::other(format!("{}: {source}", path.display())));
    let file = File::open(&path).map_err(named)?;
    let kind = rustix::fs::fstatfs(&file).map_err(|errno| named(errno.into()))?.f_type;
    if kind != CGROUP2_SUPER_MAGIC {
        return Err(named(io::Error::other("it is no directory of cgroup2 (mount | grep cgroup2)")));
    }
    Ok(file)
}

fn cgroup2_root() -> Result<PathBuf, SetupError> {
    let what = "cgroup2 cannot be opened";
    let mounts = fs::read_to_string("/proc/self/mounts").map_err(bpf(what))?;
    let mounted = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (path, kind) = (fields.nth(1)?, fields.next()?);
        (kind == "cgroup2").then(|| path.into())
    });
    mounted
        .ok_or_else(|| bpf(what)(io::Error::other("it is not mounted: mount -t cgroup2 none /sys/fs/cgroup")))
}
