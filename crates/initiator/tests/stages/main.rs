//! A bit flips at every stage between the caller's memory and the medium, with and without digests and protection information. The
//! table in the documentation says what finds it.

mod faults;
mod network;
#[path = "../support/server.rs"]
mod server;

use std::io::{IoSlice, IoSliceMut};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use blockstore::{
    BlockStore, Durability, Fault, FaultHandle, FaultRule, FaultStore, Op, ProtectedStore, RamStore, Record,
};
use bytes::BytesMut;
use engine::System;
use initiator::protection::host::{HostBuffers, HostBuffersMut, guards};
use initiator::protection::{Guard, Tuple};
use initiator::{Disk, IoError, PiPlace, PiTags, Session, WriteData};
use iscsi_core::params::DigestPolicy;
use target::observe::Observe;

use self::faults::{Armed, Damage, Faulty, MARK, Proxy, flip};
use self::network::{End, Network, Wire, at};
use self::server::{LUN, config, options};

const BLOCK: usize = 512;
const BLOCKS: usize = 16;
const LBA: u64 = 32;
/// The block that contains the mark, and the position of the mark in it.
const MARKED: usize = 9;
const MARK_AT: usize = 200;
const APP_TAG: u16 = 0x0d1f;

/// Where the damage happens, in the order in which a block passes to the medium and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    CallerBefore,
    SendBufferBeforeDigest,
    SendBuffer,
    WireOut,
    GatewayOut,
    TargetReceiveBuffer,
    TargetToMedium,
    Medium,
    MediumGuard,
    MediumAppTag,
    MediumRefTag,
    MediumToTarget,
    GatewayBack,
    TargetSendBuffer,
    WireBack,
    ReceiveBuffer,
    ReceiveBufferAfterDigest,
    CallerAfter,
    /// In a packet between two hosts, on its way to this end.
    Packet(End, Wire),
}

use Stage::*;

const STAGES: [(Stage, &str); 18] = [
    (CallerBefore, "write: the caller's buffer, after its tuples were made"),
    (SendBufferBeforeDigest, "write: the initiator's buffer, before the digest is made"),
    (SendBuffer, "write: the initiator's buffer, after the digest was made"),
    (WireOut, "write: on the wire, behind TCP's checksum"),
    (GatewayOut, "write: in a gateway that recomputes digests"),
    (TargetReceiveBuffer, "write: the target's buffer, before it verifies the digest"),
    (TargetToMedium, "write: between the target's check and the medium"),
    (Medium, "on the medium: data"),
    (MediumGuard, "on the medium: guard of a tuple"),
    (MediumAppTag, "on the medium: application tag of a tuple"),
    (MediumRefTag, "on the medium: reference tag of a tuple"),
    (MediumToTarget, "read: between the medium and the target's check"),
    (GatewayBack, "read: between the target's check and its digest, or in a gateway that recomputes digests"),
    (TargetSendBuffer, "read: the target's buffer, after the digest was made"),
    (WireBack, "read: on the wire, behind TCP's checksum"),
    (ReceiveBuffer, "read: the initiator's buffer, before it verifies the digest"),
    (ReceiveBufferAfterDigest, "read: the initiator's buffer, after it verified the digest"),
    (CallerAfter, "read: the caller's buffer, afterwards"),
];

/// A target and an initiator with possible faults everywhere between them.
struct Lab<'a> {
    network: Option<&'a Network>,
    ram: Arc<RamStore>,
    store: Arc<dyn BlockStore>,
    faults: FaultHandle,
    target: Arc<Armed>,
    here: Arc<Armed>,
    proxy: Proxy,
    observe: Arc<Observe>,
    disk: Option<Disk>,
    ends: Arc<AtomicBool>,
    address: SocketAddr,
    serving: Option<JoinHandle<()>>,
}

impl<'a> Lab<'a> {
    /// Over loopback, or with the initiator at one end of a network, and a relay and the target at the other.
    fn new(digests: bool, pi: bool, network: Option<&'a Network>) -> Self {
        let ram = Arc::new(RamStore::new(1 << 20, BLOCK as u32).unwrap());
        let (data, faults) = FaultStore::new(Arc::clone(&ram));
        let data: Arc<dyn BlockStore> = Arc::new(data);
        let store: Arc<dyn BlockStore> = if pi {
            let side = RamStore::new(ProtectedStore::side_bytes(&ram.geometry()).unwrap(), 4096).unwrap();
            Arc::new(ProtectedStore::new(data, Arc::new(side), 1).unwrap())
        } else {
            data
        };
        let (target, here) = (Arc::<Armed>::default(), Arc::<Armed>::default());
        let (observe, ends) = (Arc::new(Observe::new()), Arc::<AtomicBool>::default());
        let (address, serving) = at(network, End::Server, || serve(&store, &target, &observe, &ends));
        let here_or_there = network.map_or([127, 0, 0, 1].into(), |_| End::Server.address(false));
        let proxy = at(network, End::Server, || Proxy::start((here_or_there, 0).into(), address, digests));
        let mut options = options(proxy.address);
        let policy = if digests { DigestPolicy::Required } else { DigestPolicy::Off };
        (options.bounds.header_digest, options.bounds.data_digest) = (policy, policy);
        options.protection = pi.then_some(PiTags { app_tag: APP_TAG, app_mask: 0xffff, ref_tag: None });
        let platform = Faulty { system: System::new(1), armed: Arc::clone(&here) };
        let session = at(network, End::Client, || Session::connect_on(platform, options).unwrap());
        let disk = Some(Disk::open(&session, LUN).unwrap());
        let serving = Some(serving);
        Self { network, ram, store, faults, target, here, proxy, observe, disk, ends, address, serving }
    }

    fn disk(&self) -> &Disk {
        self.disk.as_ref().unwrap()
    }

    /// Damages the mark in the next operation of this kind on the medium.
    fn on_the_way(&self, op: Op) {
        let offset = (LBA * BLOCK as u64) + (MARKED * BLOCK + MARK_AT + 5) as u64;
        self.faults.arm(
            FaultRule::new(op, Fault::BitFlip { offset, mask: 0x10 }).nth(1).in_range(offset..offset + 1),
        );
    }

    fn spoil_record(&self, spoil: impl Fn(&mut Tuple)) {
        let records = self.store.records().unwrap();
        let lba = LBA + MARKED as u64;
        let mut tuple = records.read(lba, 1).unwrap().iter().next().unwrap().tuple();
        spoil(&mut tuple);
        records.write(lba, &FromIterator::from_iter([Record::Guarded(tuple)]), Durability::Cached).unwrap();
    }

    /// Whether a counter of the target with these labels is above 0.
    fn counted(&self, family: &str, labels: &[&str]) -> bool {
        let text = ::server::metrics::openmetrics(&self.observe);
        text.lines().any(|line| {
            line.starts_with(family)
                && labels.iter().all(|label| line.contains(label))
                && !line.ends_with(" 0")
        })
    }

    /// Data digests that the target, and the initiator, found to be wrong.
    fn digests_failed(&self) -> (bool, bool) {
        let there = self.counted("intact_target_digests", &["result=\"failed\"", "digest=\"data\""]);
        let info = self.disk().session().info().unwrap();
        (there, info.link.digests.data_failed > 0 || info.data_digest_errors > 0)
    }
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        self.disk = None;
        self.ends.store(true, Ordering::SeqCst);
        // A connection wakes it.
        let _ = at(self.network, End::Server, || TcpStream::connect(self.address));
        self.serving.take().unwrap().join().unwrap();
    }
}

fn serve(
    store: &Arc<dyn BlockStore>,
    armed: &Arc<Armed>,
    observe: &Arc<Observe>,
    ends: &Arc<AtomicBool>,
) -> (SocketAddr, JoinHandle<()>) {
    let config = config("ram:1M");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut portal = config.portals[0].clone();
    portal.address = address;
    let (store, ends) = (Arc::clone(store), Arc::clone(ends));
    let platform = Faulty { system: System::new(1), armed: Arc::clone(armed) };
    let observe = Arc::clone(observe);
    let serving = std::thread::spawn(move || {
        let open = Arc::new(move |_: &target::config::LunConfig| Ok(Arc::clone(&store)));
        let mut server = target::Stepped::start(platform, config, observe, open, 1).unwrap();
        server.listen(listener, portal);
        let mut told = false;
        while server.turn(0).unwrap() {
            // Updates the metrics.
            server.sessions();
            if ends.load(Ordering::SeqCst) && !std::mem::replace(&mut told, true) {
                server.shut_down(Duration::ZERO);
            }
        }
    });
    (address, serving)
}

fn data() -> Vec<u8> {
    let mut data: Vec<u8> = (0..BLOCKS * BLOCK).map(|at| ((at * 7) ^ (at >> 8)) as u8).collect();
    data[MARKED * BLOCK + MARK_AT..][..MARK.len()].copy_from_slice(MARK);
    data
}

/// Which side found it, and by what.
fn finder(error: &IoError) -> String {
    match error {
        IoError::Protection(failure) => {
            assert_eq!(failure.lba, Some(LBA + MARKED as u64));
            let who = match failure.place {
                PiPlace::BeforeSending | PiPlace::OnTheWayToHere => "initiator",
                PiPlace::OnTheWayToTheTarget | PiPlace::OnTheMedium => "target",
            };
            format!("{who}: {}", failure.field)
        }
        other => panic!("{other}"),
    }
}

/// What finds damage at this stage; `None`: it cannot happen in this setting.
fn find(stage: Stage, digests: bool, pi: bool, network: Option<&Network>) -> Option<String> {
    let lab = Lab::new(digests, pi, network);
    let (disk, good) = (lab.disk(), data());
    let before = network.map(Network::discarded);
    let written = write(&lab, stage, &good)?;
    let mut found = written.as_ref().err().map(finder);
    let mut back = vec![0; good.len()];
    if found.is_none() {
        let read = read(&lab, stage, &good, &mut back)?;
        found = read.as_ref().err().map(finder);
        found = found.or_else(|| match lab.digests_failed() {
            // A transfer whose digest fails is repeated, so the command succeeds.
            (true, _) => Some("target: data digest".to_owned()),
            (_, true) => Some("initiator: data digest".to_owned()),
            _ => None,
        });
        if let (Some(network), Some(before)) = (network, before) {
            // What TCP discards it sends again, so nobody behind it finds anything.
            let by_tcp = network.finder(before);
            assert!(found.is_none() || by_tcp.is_none(), "{stage:?} {digests} {pi}: {found:?} {by_tcp:?}");
            found = found.or(by_tcp);
        }
        if found.as_ref().is_none_or(|found| found.contains("digest") || found.starts_with("TCP")) {
            assert_eq!(back == good, found.is_some(), "{stage:?} {digests} {pi}: {found:?}");
        }
    }
    // Every finding is counted where it belongs, at both ends.
    let counted = disk.session().info().unwrap().protection;
    let of_pi = found.as_ref().is_some_and(|found| !found.contains("digest") && !found.starts_with("TCP"));
    assert_eq!(counted.total(), u64::from(of_pi), "{stage:?} {digests} {pi}");
    for (field, label) in [("guard", "guard"), ("reference tag", "ref_tag"), ("application tag", "app_tag")] {
        let counted = lab.counted("intact_lun_protection_errors", &[&format!("field=\"{label}\"")]);
        let there = found.as_ref().is_some_and(|found| found == &format!("target: {field}"));
        assert_eq!(counted, there, "{stage:?} {digests} {pi}: {field}");
    }
    Some(found.unwrap_or_else(|| "**nobody**".to_owned()))
}

/// Writes `good`, damaging it on the way if the stage is part of a write.
fn write(lab: &Lab, stage: Stage, good: &[u8]) -> Option<Result<(), IoError>> {
    let (disk, at) = (lab.disk(), LBA * BLOCK as u64);
    let mut spoiled = good.to_vec();
    assert!(flip(&mut spoiled));
    match (stage, disk.protection()) {
        (CallerBefore, None) => return Some(disk.write(at, &spoiled)),
        (CallerBefore, Some(protection)) => {
            let tuples = protection.tuples(LBA, good, Guard::Crc16);
            let tuples: Vec<u8> = tuples.iter().flat_map(|tuple| tuple.to_bytes()).collect();
            let (data, tuples) = (&[IoSlice::new(&spoiled)], &[IoSlice::new(&tuples)]);
            return Some(disk.write_host(LBA, HostBuffers { data, tuples, guard: Guard::Crc16 }));
        }
        (SendBufferBeforeDigest, None) => return Some(disk.write(at, &spoiled)),
        (SendBufferBeforeDigest, Some(protection)) => {
            let space = BytesMut::zeroed(protection.wire_bytes(BLOCKS));
            let mut wire = protection.write_data(LBA, good, space, None).to_vec();
            assert!(flip(&mut wire));
            let data = WriteData::copy_from(&wire, BytesMut::zeroed(wire.len()), disk.digest_runs());
            return Some(disk.submit(&protection.write_cdb(LBA, BLOCKS as u32), 0, data).wait().map(drop));
        }
        (SendBuffer, _) => lab.here.send.store(true, Ordering::SeqCst),
        (WireOut, _) => lab.proxy.strike(true, Damage::Wire),
        (GatewayOut, _) => lab.proxy.strike(true, Damage::Gateway),
        (TargetReceiveBuffer, _) => lab.target.receive.store(true, Ordering::SeqCst),
        (TargetToMedium, _) => lab.on_the_way(Op::Write),
        (Packet(End::Server, wire), _) => lab.network.unwrap().strike(End::Server, wire),
        _ => {}
    }
    let written = disk.write(at, good);
    assert!(!lab.here.send.load(Ordering::SeqCst) && !lab.target.receive.load(Ordering::SeqCst), "it struck");
    Some(written)
}

/// Reads into `back`, damaging what is read if the stage is the medium or part of a read; `None` if that is impossible.
fn read(lab: &Lab, stage: Stage, good: &[u8], back: &mut [u8]) -> Option<Result<(), IoError>> {
    let (disk, at) = (lab.disk(), LBA * BLOCK as u64);
    match (stage, disk.protection()) {
        (Medium, _) => {
            let mut medium = vec![0; good.len()];
            lab.ram.read(at, &mut medium).unwrap();
            assert!(flip(&mut medium));
            lab.ram.write(at, &[&medium], Durability::Cached).unwrap();
        }
        (MediumGuard | MediumAppTag | MediumRefTag, None) => return None,
        (MediumGuard, _) => lab.spoil_record(|tuple| tuple.guard ^= 1),
        (MediumAppTag, _) => lab.spoil_record(|tuple| tuple.app_tag ^= 1),
        (MediumRefTag, _) => lab.spoil_record(|tuple| tuple.ref_tag ^= 1),
        (MediumToTarget, _) => lab.on_the_way(Op::Read),
        (GatewayBack, _) => lab.proxy.strike(false, Damage::Gateway),
        (TargetSendBuffer, _) => lab.target.send.store(true, Ordering::SeqCst),
        (WireBack, _) => lab.proxy.strike(false, Damage::Wire),
        (ReceiveBuffer, _) => lab.here.receive.store(true, Ordering::SeqCst),
        (Packet(End::Client, wire), _) => lab.network.unwrap().strike(End::Client, wire),
        (ReceiveBufferAfterDigest | CallerAfter, None) => {
            let read = disk.read(at, back);
            assert!(flip(back));
            return Some(read);
        }
        (ReceiveBufferAfterDigest, Some(protection)) => {
            let wire_bytes = protection.wire_bytes(BLOCKS) as u32;
            let cdb = protection.read_cdb(LBA, BLOCKS as u32);
            let mut wire = disk.submit(&cdb, wire_bytes, WriteData::default()).wait().unwrap().to_vec();
            assert!(flip(&mut wire));
            return Some(protection.take_data(LBA, &[&wire[..]], back).map(drop).map_err(IoError::from));
        }
        (CallerAfter, Some(_)) => {
            let mut tuples = vec![0; BLOCKS * 8];
            let (data, places) = (&mut [IoSliceMut::new(back)], &mut [IoSliceMut::new(&mut tuples)]);
            disk.read_host(LBA, HostBuffersMut { data, tuples: places, guard: Guard::Crc16 }).unwrap();
            assert!(flip(back));
            let given = Tuple::from_bytes(*tuples[MARKED * 8..].first_chunk().unwrap());
            assert_ne!(guards(Guard::Crc16, back, BLOCK)[MARKED], given.guard, "who keeps tuples finds it");
            back.copy_from_slice(good);
            back[0] ^= 0xff;
            return Some(Ok(()));
        }
        _ => {}
    }
    let read = disk.read(at, back);
    assert!(!lab.here.receive.load(Ordering::SeqCst) && !lab.target.send.load(Ordering::SeqCst), "it struck");
    assert!(lab.network.is_none_or(Network::has_struck), "the packet had the mark");
    Some(read)
}

/// The table of the documentation.
fn table() -> String {
    let mut table =
        "| a bit flips | no digests, no PI | digests | PI | digests and PI |\n|---|---|---|---|---|\n"
            .to_owned();
    for (stage, name) in STAGES {
        let found = [(false, false), (true, false), (false, true), (true, true)].map(|(digests, pi)| {
            match (stage, pi) {
                // Nothing of ours finds it; the tuples that were returned to the caller do.
                (CallerAfter, true) => {
                    assert_eq!(find(stage, digests, pi, None).as_deref(), Some("**nobody**"));
                    "caller, by the tuples it keeps".to_owned()
                }
                _ => find(stage, digests, pi, None).unwrap_or_default(),
            }
        });
        table += &format!("| {name} | {} |\n", found.join(" | "));
    }
    table
}

/// The stages at which it matters who looks at a segment, a PDU and a block: between two hosts, with a relay that ends TCP before the
/// target. To iSCSI the relay's memory is what the wire is behind TCP's sum.
const HOPS: [(Stage, &str); 15] = [
    (CallerBefore, "write: the caller's buffer"),
    (SendBuffer, "write: the initiator's buffer, after the digest was made"),
    (Packet(End::Server, Wire::Noise), "write: on the wire, by noise"),
    (Packet(End::Server, Wire::SumKept), "write: on the wire, TCP's sum is right"),
    (WireOut, "write: in a relay that ends TCP"),
    (GatewayOut, "write: in a relay that ends TCP and recomputes digests"),
    (TargetReceiveBuffer, "write: the target's memory, before it verifies the digest"),
    (TargetToMedium, "write: the target's memory, after it verified the digest"),
    (Medium, "on the disk"),
    (MediumToTarget, "read: the target's memory, before the digest is made"),
    (TargetSendBuffer, "read: the target's memory, after the digest was made"),
    (WireBack, "read: in a relay that ends TCP"),
    (Packet(End::Client, Wire::Noise), "read: on the wire, by noise"),
    (Packet(End::Client, Wire::SumKept), "read: on the wire, TCP's sum is right"),
    (ReceiveBuffer, "read: the initiator's memory, before it verifies the digest"),
];

fn hops(networks: &[Network; 2]) -> String {
    let mut table = "| a bit flips | nothing else | digests | PI | digests, PI | TCP CRC | TCP CRC, digests | TCP CRC, PI | all three |\n\
        |---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for (stage, name) in HOPS {
        let settings = networks.iter().flat_map(|network| {
            [(false, false), (true, false), (false, true), (true, true)].map(|setting| (network, setting))
        });
        let found: Vec<String> = settings
            .map(|(network, (digests, pi))| find(stage, digests, pi, Some(network)).unwrap_or_default())
            .collect();
        table += &format!("| {name} | {} |\n", found.join(" | "));
    }
    table
}

/// Compares the part of the documentation between two marks with what happens.
fn compare(name: &str, end: &str, now: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protection.md");
    // The other table may be written at the same time.
    static WRITING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one_at_a_time = WRITING.lock();
    let text = std::fs::read_to_string(path).unwrap();
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- {end} -->"));
    let (head, rest) = text.split_once(&begin).unwrap();
    let (written, tail) = rest.split_once(&end).unwrap();
    if std::env::var_os("INTACT_WRITE_DOCS").is_some() {
        std::fs::write(path, format!("{head}{begin}{now}{end}{tail}")).unwrap();
        return;
    }
    assert_eq!(written, now, "repeat with INTACT_WRITE_DOCS=1 to write the table anew");
}

// covers: PI-16 PI-17
#[test]
fn pi_17_the_table_of_stages_in_the_documentation_is_what_happens() {
    compare("stages", "end of stages", &table());
}

#[test]
fn the_table_of_hops_in_the_documentation_is_what_happens() {
    let Some(networks) = Network::both() else { return };
    compare("hops", "end of hops", &hops(&networks));
}
