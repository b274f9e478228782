//! What floods have in common: raw sockets that pour, an honest client that goes on meanwhile, and an eye on resident memory.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use conform::{Frame, LoginScript, RawPeer, Side, Transcript};
use initiator::{Disk, IscsiUrl, Session};
use iscsi_core::wire::{CmdSn, Itt, Lun, NopOut, Pdu, StatSn, TaskAttribute, Ttt};

use crate::common::{PATIENCE, Serve};
use crate::support::{IQN, resident_bytes, serve, target, until};

/// `limits.buffer_bytes_max` of every server that is flooded, and what it may take up at most.
const BUFFERS: &str = "buffer_bytes_max = \"64M\"";
const RESIDENT_BYTES_MAX: u64 = 256 << 20;
/// Commands that the honest client completes while a flood stands.
const SOME: u64 = 100;
/// What one command of the honest client may take, with much in reserve for a busy machine: no timer of the target is as short.
const NO_WAIT: Duration = Duration::from_secs(3);
/// A peer that takes nothing for this long has stopped reading.
pub const STOPPED: Duration = Duration::from_millis(300);
/// How long a flood lasts whose victim goes on reading.
pub const LASTING: Duration = Duration::from_secs(3);

/// A server with little memory and further `limits`, whose unit has no need to prove anything.
pub fn victim(directory: &Path, limits: &str) -> Serve {
    let limits = format!("[limits]\n{BUFFERS}\n{limits}\n");
    serve(directory, 1, &(limits + &target(IQN, "queue_depth = 128", &["ram:64M"])))
}

/// Holds the server to its promises while `flood` begins and then stands: what it returns is kept until an honest client has done
/// some more work.
pub fn withstand<T>(server: &Serve, flood: impl FnOnce() -> T) -> T {
    let honest = Honest::start(&format!("iscsi://{}/{IQN}", server.portal()));
    let watch = Watch::start(server.id());
    let kept = flood();
    honest.goes_on();
    let peak = watch.peak();
    let longest = honest.longest();
    println!("peak {} MiB, longest command {longest:?}", peak >> 20);
    assert!(peak < RESIDENT_BYTES_MAX, "{} MiB of resident memory", peak >> 20);
    assert!(longest < NO_WAIT, "a command of 4 KiB took {longest:?}");
    kept
}

/// A client with one small command at a time.
struct Honest {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    worker: JoinHandle<Duration>,
}

impl Honest {
    fn start(url: &str) -> Self {
        let (stop, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let session = Session::connect(IscsiUrl::parse(url).unwrap().options().unwrap()).unwrap();
        let disk = Disk::open(&session, Lun(0)).unwrap();
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&done));
        let worker = std::thread::spawn(move || {
            let _session = session;
            let mut longest = Duration::ZERO;
            let mut back = [0; 4096];
            for number in 0u64.. {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let (at, block) = (number % 64 * 4096, [number as u8; 4096]);
                let start = Instant::now();
                disk.write(at, &block).unwrap();
                let written = start.elapsed();
                disk.read(at, &mut back).unwrap();
                longest = longest.max(written).max(start.elapsed() - written);
                assert_eq!(back, block);
                counted.fetch_add(1, Ordering::Relaxed);
            }
            longest
        });
        let honest = Self { stop, done, worker };
        honest.goes_on();
        honest
    }

    fn goes_on(&self) {
        let before = self.done.load(Ordering::Relaxed);
        until("the honest client goes on", || {
            assert!(!self.worker.is_finished(), "the honest client has failed");
            self.done.load(Ordering::Relaxed) >= before + SOME
        });
    }

    fn longest(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.worker.join().unwrap()
    }
}

/// Looks at the resident memory of a process all the time.
struct Watch {
    stop: Arc<AtomicBool>,
    eye: JoinHandle<u64>,
}

impl Watch {
    fn start(pid: u32) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let eye = std::thread::spawn(move || {
            let mut peak = 0;
            while !stopped.load(Ordering::Relaxed) {
                peak = peak.max(resident_bytes(pid.into()));
                // What has gone this far needs no more to be shown.
                if peak > 4 * RESIDENT_BYTES_MAX {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            peak
        });
        Self { stop, eye }
    }

    fn peak(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.eye.join().unwrap()
    }
}

/// A login of a normal session, by initiator `number`.
pub fn normal(number: usize) -> LoginScript {
    LoginScript::new(&format!("iqn.2004-10.com.example:flood-{number}"), Some(IQN))
}

/// A login of a discovery session, by initiator `number`.
pub fn discovery(number: usize) -> LoginScript {
    LoginScript::new(&format!("iqn.2004-10.com.example:flood-{number}"), None)
}

/// A connection that keeps only the rules that it likes.
pub struct Attacker(TcpStream);

impl Attacker {
    /// One that is not logged in.
    pub fn connect(portal: SocketAddr) -> Self {
        let stream = TcpStream::connect(portal).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_write_timeout(Some(STOPPED)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    /// One in full feature phase, if it is let in.
    pub fn try_log_in(portal: SocketAddr, script: &LoginScript) -> Option<Self> {
        let attacker = Self::connect(portal);
        let link = Box::new(attacker.0.try_clone().unwrap());
        let mut peer = RawPeer::over(link, Side::Initiator, PATIENCE, &Transcript::new());
        peer.login(script).ok()?;
        // Its kernel takes little: what it does not read stays with the target.
        socket2::SockRef::from(&attacker.0).set_recv_buffer_size(64 << 10).unwrap();
        // The login has left its own.
        attacker.0.set_read_timeout(Some(PATIENCE)).unwrap();
        Some(attacker)
    }

    /// One in full feature phase.
    pub fn log_in(server: &Serve, script: &LoginScript) -> Self {
        Self::try_log_in(server.portal(), script).expect("a login that nothing speaks against")
    }

    /// Sends all of it; false when the peer has stopped reading, or closed.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).is_ok()
    }

    /// Has answers made and reads none, until the kernels in between hold no more of them.
    pub fn jam(&mut self) {
        let ping = nop(Itt(7), 4096);
        (0..1200).all(|_| self.send(&ping));
    }

    /// Sends it again and again, as long as it is taken and for [`LASTING`] at most.
    pub fn pour(&mut self, bytes: &[u8]) {
        let start = Instant::now();
        while start.elapsed() < LASTING && self.send(bytes) {}
    }

    /// The header of the next PDU; its data are passed over. `None` when there is none any more.
    pub fn next_header(&mut self) -> Option<[u8; 48]> {
        let mut header = [0; 48];
        self.0.read_exact(&mut header).ok()?;
        let length = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        let mut data = vec![0; length.next_multiple_of(4)];
        self.0.read_exact(&mut data).ok()?;
        Some(header)
    }

    /// Takes up to `bytes` of what comes; 0 when the peer has closed.
    pub fn take(&mut self, bytes: usize) -> usize {
        self.0.read(&mut vec![0; bytes]).unwrap_or(0)
    }
}

/// The bytes of a PDU without digests.
pub fn bytes_of(pdu: impl Into<Pdu>, data: &[u8]) -> Vec<u8> {
    Frame::of(pdu).data(data).encode(conform::Digests::default())
}

/// An immediate NOP-Out with `length` bytes of data, answered if it has a tag.
pub fn nop(itt: Itt, length: usize) -> Vec<u8> {
    let nop = NopOut {
        immediate: true,
        lun: Lun(0),
        itt,
        ttt: Ttt::RESERVED,
        cmd_sn: CmdSn(1),
        exp_stat_sn: StatSn(0),
    };
    bytes_of(nop, &vec![0x5a; length])
}

/// At least as many bytes as a receive buffer of the target has, of NOP-Outs that want no answer.
pub fn filler() -> Vec<u8> {
    nop(Itt::RESERVED, 4096).repeat(126)
}

/// A WRITE (10) of `blocks` blocks at the start of unit 0.
pub fn write_10(itt: u32, cmd_sn: u32, blocks: u16) -> iscsi_core::wire::ScsiCommand {
    let mut cdb = [0; 16];
    cdb[0] = 0x2a;
    cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
    iscsi_core::wire::ScsiCommand {
        immediate: false,
        final_bit: true,
        read: false,
        write: true,
        attr: TaskAttribute::Simple,
        priority: 0,
        lun: Lun(0),
        itt: Itt(itt),
        expected_data_transfer_length: u32::from(blocks) * 512,
        cmd_sn: CmdSn(cmd_sn),
        exp_stat_sn: StatSn(0),
        cdb,
    }
}

/// A READ (10) of `blocks` blocks from the start of unit 0.
pub fn read_10(itt: u32, cmd_sn: u32, blocks: u16) -> iscsi_core::wire::ScsiCommand {
    let mut command = write_10(itt, cmd_sn, blocks);
    (command.read, command.write, command.cdb[0]) = (true, false, 0x28);
    command
}
