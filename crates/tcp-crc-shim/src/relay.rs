//! The thread of a shim: it moves packets from each of two devices through a [`Shim`] to the other.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use engine::tun::{MAX_PACKET_BYTES, Tun, VnetHeader};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::shim::{Ports, Shim};

/// Packets taken from one device before the other has its turn.
const BATCH: usize = 64;

/// The two devices of a shim, and the packets they did not accept.
struct Devices {
    inside: Tun,
    outside: Tun,
    lost: u64,
}

impl Ports for Devices {
    fn inside(&mut self, header: &VnetHeader, packet: &[u8]) {
        self.lost += u64::from(self.inside.send(header, packet).is_err());
    }

    fn outside(&mut self, header: &VnetHeader, packet: &[u8]) {
        self.lost += u64::from(self.outside.send(header, packet).is_err());
    }
}

/// A running shim. It stops when this is dropped.
pub struct Relay {
    shared: Arc<Mutex<Shared>>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// State shared by the thread and its observers; the thread locks it for each batch of packets.
pub struct Shared {
    /// The shim.
    pub shim: Shim,
    /// Packets that a device did not accept.
    pub lost: u64,
}

impl Relay {
    /// Starts a thread that moves packets between `inside`, the device of the programs, and `outside`, that of the network. If it cannot
    /// continue, it passes the reason to `on_end`.
    ///
    /// # Errors
    /// The system has no thread or descriptor left.
    pub fn start(shim: Shim, inside: Tun, outside: Tun, on_end: fn(&str)) -> io::Result<Relay> {
        let shared = Arc::new(Mutex::new(Shared { shim, lost: 0 }));
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (theirs, stopped) = (Arc::clone(&shared), Arc::clone(&stop));
        let devices = Devices { inside, outside, lost: 0 };
        let thread = std::thread::Builder::new()
            .name("tcp-crc".into())
            .spawn(move || run(&theirs, devices, &stopped).unwrap_or_else(on_end))?;
        Ok(Relay { shared, stop, thread: Some(thread) })
    }

    /// Inspects the shim between two batches of packets.
    pub fn look<T>(&self, look: impl FnOnce(&Shared) -> T) -> T {
        look(&self.shared.lock())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // If the counter is full and the write fails, the thread has already been woken.
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Moves packets until `stop` is written to.
///
/// # Errors
/// The reason why it cannot continue.
fn run(shared: &Mutex<Shared>, mut devices: Devices, stop: &OwnedFd) -> Result<(), &'static str> {
    let started = Instant::now();
    let mut buffer = vec![0; MAX_PACKET_BYTES];
    loop {
        let more = {
            let mut shared = shared.lock();
            let now_ms = started.elapsed().as_millis() as u64;
            let more = turn(&mut shared.shim, now_ms, &mut devices, &mut buffer);
            shared.lost = devices.lost;
            more
        };
        // However busy the devices are, a stop is noticed after a batch.
        let wait = more.then(Timespec::default);
        let mut fds = [
            PollFd::from_borrowed_fd(devices.inside.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(devices.outside.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
        ];
        match poll(&mut fds, wait.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return Err("its devices cannot be waited for"),
        }
        let is_gone =
            |fd: &PollFd<'_>| fd.revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
        // Checked before the stop, so that a device that vanished earlier is reported.
        if fds[..2].iter().any(is_gone) {
            return Err("one of its devices is gone");
        }
        if !fds[2].revents().is_empty() {
            return Ok(());
        }
    }
}

/// Moves a batch of packets from each device. Returns whether more may be waiting.
fn turn(shim: &mut Shim, now_ms: u64, devices: &mut Devices, buffer: &mut [u8]) -> bool {
    let (mut more_out, mut more_in) = (true, true);
    for _ in 0..BATCH {
        let Ok((header, read)) = devices.inside.receive(buffer) else {
            more_out = false;
            break;
        };
        shim.outbound(now_ms, &header, &mut buffer[..read], devices);
    }
    for _ in 0..BATCH {
        let Ok((header, read)) = devices.outside.receive(buffer) else {
            more_in = false;
            break;
        };
        shim.inbound(now_ms, &header, &mut buffer[..read], devices);
    }
    shim.flush(devices);
    more_out || more_in
}
