//! Which acknowledged writes a target may lose, and which volume it is: our initiator on our target, which is removed without
//! notice and replaced by another one at the same address.

#[path = "support/proxy.rs"]
mod proxy;
#[path = "support/server.rs"]
mod server;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use initiator::{
    Completion, Disk, Ending, IoError, LostBlocks, Session, Submitter, Workload, WriteData, cdb,
};
use iscsi_core::wire::{Lun, TmfFunction};
use target::Server;
use target::config::Config;

use self::proxy::{Damage, Proxy};
use self::server::{LUN, end, options, server_with};

const MIB: u64 = 1 << 20;

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|n| (n.wrapping_mul(seed | 1) >> 3) as u8 ^ seed as u8).collect()
}

/// A server with the volume `name`, which holds zeros.
fn volume(name: &str) -> Server {
    server_with(|config| named(config, name))
}

fn named(config: &mut Config, name: &str) {
    config.targets[0].luns[0].serial = Some(name.to_owned());
    // Without the wait between a loss and the next login that the standard's default prescribes.
    config.targets[0].bounds.default_time2wait_s = 0;
}

/// An address at which one server replaces another.
struct Place {
    proxy: Proxy,
    address: SocketAddr,
}

impl Place {
    fn new(server: &Server) -> Self {
        let proxy = Proxy::start(server.portals()[0]);
        Self { address: proxy.address(), proxy }
    }

    /// Removes the current server without notice and puts `server` in its place.
    fn becomes(&mut self, server: &Server) {
        self.proxy.close();
        self.proxy = Proxy::start_at(self.address, server.portals()[0]);
    }

    fn open(&self) -> Disk {
        Disk::open(&Session::connect(options(self.address)).unwrap(), LUN).unwrap()
    }
}

fn lost(result: Result<(), IoError>) -> initiator::LostWrites {
    match result {
        Err(IoError::LostWrites(lost)) => *lost,
        other => panic!("{other:?}"),
    }
}

fn read(disk: &Disk, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    disk.read(offset, &mut bytes).unwrap();
    bytes
}

// covers: UA-01
#[test]
fn a_flush_after_a_restart_tells_once_what_was_lost() {
    let (first, second) = (volume("v"), volume("v"));
    let mut place = Place::new(&first);
    let disk = place.open();
    let other = Disk::open(disk.session(), LUN).unwrap();
    let data = pattern(1, MIB as usize);
    disk.write(0, &data).unwrap();
    disk.flush().unwrap();
    disk.write(8 * MIB, &data).unwrap();
    disk.write(32 * MIB, &data[..4096]).unwrap();
    place.becomes(&second);
    let lost = lost(disk.flush());
    assert_eq!(lost.bytes, MIB + 4096, "{lost}");
    assert_eq!(lost.ranges, [8 * MIB..9 * MIB, 32 * MIB..32 * MIB + 128 * 1024]);
    assert!(lost.to_string().contains("29h/00h"), "{lost}");
    assert_eq!(disk.epoch(), lost.epoch);
    // After the report the caller writes again, and then all is well.
    disk.write(8 * MIB, &data).unwrap();
    disk.flush().unwrap();
    // Each opened disk gets its own report, including losses of what another disk wrote; a disk opened now has missed nothing.
    assert_eq!(self::lost(other.flush()), lost);
    other.flush().unwrap();
    Disk::open(disk.session(), LUN).unwrap().flush().unwrap();
    assert_eq!(read(&disk, 8 * MIB, data.len()), data);
    end(first);
    end(second);
}

#[test]
fn what_was_flushed_or_written_through_is_not_lost() {
    let (first, second) = (volume("v"), volume("v"));
    let mut place = Place::new(&first);
    let disk = place.open();
    disk.write(0, &pattern(1, 4096)).unwrap();
    disk.flush().unwrap();
    let mut through = cdb::write(64, 8);
    through[1] |= 0x08;
    disk.submit(&through, 0, WriteData::from(Bytes::from(pattern(2, 4096)))).wait().unwrap();
    place.becomes(&second);
    disk.flush().unwrap();
    // A unit without a write cache has nothing to lose.
    let uncached = || {
        server_with(|config| {
            named(config, "w");
            config.targets[0].luns[0].write_cache = false;
        })
    };
    let (third, fourth) = (uncached(), uncached());
    let mut place = Place::new(&third);
    let disk = place.open();
    disk.write(0, &pattern(1, 4096)).unwrap();
    place.becomes(&fourth);
    disk.flush().unwrap();
    [first, second, third, fourth].into_iter().for_each(end);
}

#[test]
fn a_session_that_was_lost_and_a_unit_that_was_reset_have_lost_nothing() {
    let server = volume("v");
    let place = Place::new(&server);
    let disk = place.open();
    let data = pattern(1, 4096);
    disk.write(0, &data).unwrap();
    place.proxy.cut(0);
    disk.flush().unwrap();
    disk.write(0, &data).unwrap();
    disk.session().manage(TmfFunction::LogicalUnitReset, LUN).unwrap();
    disk.flush().unwrap();
    assert_eq!((disk.session().info().unwrap().losses, disk.epoch()), (1, 0));
    assert_eq!(read(&disk, 0, 4096), data);
    end(server);
}

// covers: VPD-83
#[test]
fn another_volume_behind_the_lun_gets_nothing_and_gives_nothing() {
    let (ours, foreign) = (volume("ours"), volume("foreign"));
    let mut place = Place::new(&ours);
    let disk = place.open();
    let data = pattern(1, 4096);
    disk.write(0, &data).unwrap();
    disk.flush().unwrap();
    place.becomes(&foreign);
    let refused = |result: Result<(), IoError>| match result {
        Err(error @ IoError::OtherVolume { .. }) => {
            let said = error.to_string();
            assert!(said.contains("LUN 0 is another volume now") && said.contains("uuid."), "{said}");
            assert!(error.remedy().is_some());
        }
        other => panic!("{other:?}"),
    };
    refused(disk.write(0, &data));
    refused(disk.read(0, &mut [0; 512]));
    refused(disk.flush());
    refused(disk.write_zeroes(0, 512));
    refused(Disk::open(disk.session(), LUN).map(drop));
    let there = Disk::open(&Session::connect(options(foreign.portals()[0])).unwrap(), LUN).unwrap();
    assert_eq!(read(&there, 0, 4096), [0; 4096], "nothing was written there");
    // When the volume is back, everything continues.
    place.becomes(&ours);
    // The session stays up until it notices that its target is gone.
    let mut back = [0; 4096];
    while let Err(error) = disk.read(0, &mut back) {
        assert!(matches!(error, IoError::OtherVolume { .. }), "{error}");
    }
    assert_eq!(back, data[..]);
    disk.write(0, &data).unwrap();
    disk.flush().unwrap();
    end(ours);
    end(foreign);
}

/// Writes once, and flushes when a loss is reported; records the reports.
#[derive(Default)]
struct Told {
    lost: Vec<LostBlocks>,
    endings: Vec<(u64, Ending)>,
    begun: bool,
    written: Arc<AtomicBool>,
}

impl Told {
    fn submit(user: u64, cdb: &[u8], data: Vec<u8>, io: &mut Submitter<'_>) {
        let mut command = initiator::Command::new(LUN, cdb);
        (command.user, command.write) = (user, WriteData::from(Bytes::from(data)));
        io.submit(command).unwrap();
    }
}

impl Workload for Told {
    fn start(&mut self, io: &mut Submitter<'_>) {
        if !std::mem::replace(&mut self.begun, true) {
            io.watch(LUN);
            Self::submit(1, &cdb::write(1000, 8), pattern(1, 4096), io);
        }
    }

    fn completed(&mut self, completion: Completion, _io: &mut Submitter<'_>) {
        self.endings.push((completion.command.user, completion.ending));
        self.written.store(true, Ordering::Release);
    }

    fn lost_writes(&mut self, lun: Lun, lost: &LostBlocks, io: &mut Submitter<'_>) {
        assert_eq!(lun, LUN);
        self.lost.push(lost.clone());
        Self::submit(2, &cdb::synchronize_cache(), Vec::new(), io);
    }

    fn is_done(&self) -> bool {
        self.endings.len() == 2
    }
}

#[test]
fn a_workload_is_told_before_its_next_flush_ends() {
    let (first, second) = (volume("v"), volume("v"));
    let mut place = Place::new(&first);
    let session = Session::connect(options(place.address)).unwrap();
    let told = Told::default();
    let written = told.written.clone();
    let told = std::thread::scope(|scope| {
        let runs = scope.spawn(|| session.run(told).unwrap());
        while !written.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        place.becomes(&second);
        runs.join().unwrap()
    });
    assert_eq!(told.lost.len(), 1);
    assert_eq!(told.lost[0].ranges(1 << 17), [768..1024]);
    assert!(told.endings.iter().all(|(_, ending)| matches!(ending, Ending::Status { status: 0, .. })));
    end(first);
    end(second);
}

// covers: DIG-07
#[test]
fn a_bit_that_flips_in_a_write_costs_a_repetition() {
    let server = server_with(|config| {
        named(config, "v");
        config.targets[0].bounds.data_digest = iscsi_core::params::DigestPolicy::Required;
    });
    let place = Place::new(&server);
    // Unsolicited data with a bad digest causes its command to be rejected; with solicited data the command itself fails (RFC 7143
    // 7.8).
    let mut options = options(place.address);
    (options.bounds.bursts.immediate_data, options.bounds.bursts.initial_r2t) = (false, true);
    let disk = Disk::open(&Session::connect(options).unwrap(), LUN).unwrap();
    assert_eq!(disk.session().opening().login.params.error_recovery_level, 0);
    let data = pattern(3, 64 * 1024);
    for n in 0..4 {
        place.proxy.damage(0, Damage::ToTarget);
        disk.write(n * MIB, &data).unwrap();
        assert_eq!(read(&disk, n * MIB, data.len()), data);
    }
    assert_eq!(disk.session().info().unwrap().losses, 0, "the session was not what was repeated");
    end(server);
}
