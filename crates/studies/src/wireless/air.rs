//! The medium between two TUN devices, in real time.
//!
//! A packet from a device is offered to the [`Crossing`]; a packet that has crossed is written to the other device. All times are
//! those of the ideal schedule, so one late packet does not delay the later ones. The lateness of packets is recorded, and a run with
//! too many late packets reports that its figures are not to be trusted.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::tun::{MAX_PACKET_BYTES, Tun, VnetHeader};
use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wireless::crossing::Crossing;
use wireless::link::{Host, LinkSetup};

/// Longest sleep, so that the end of a run is noticed.
const NAP: Duration = Duration::from_millis(20);
/// Packets taken from a device before the others have their turn.
const BATCH: usize = 64;
/// A run whose 99th percentile of lateness is not below this is not to be trusted, µs.
pub const LATENESS_P99_MAX_US: u64 = 1000;
/// Highest lateness that the histogram resolves, µs.
const LATENESS_MAX_US: u64 = 10_000_000;

/// The result of a run.
#[derive(Debug)]
pub struct Passed {
    /// How late packets were, µs.
    pub lateness_us: Histogram<u64>,
    /// Packets that arrived.
    pub arrived: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that a device's queue had no room for.
    pub refused: u64,
    /// Packets that were lost on the way.
    pub lost: u64,
    /// Transmissions of the medium.
    pub transmissions: u64,
    /// Collisions of the medium.
    pub collisions: u64,
}

impl Passed {
    /// 99 of 100 packets were as late at most, µs.
    pub fn lateness_p99_us(&self) -> u64 {
        self.lateness_us.value_at_quantile(0.99)
    }

    /// Whether figures of the run are to be trusted.
    pub fn is_in_time(&self) -> bool {
        self.lateness_p99_us() < LATENESS_P99_MAX_US
    }
}

/// See the module.
pub struct Air<'a> {
    devices: [&'a Tun; 2],
    crossing: Crossing,
    /// Packets in flight, by number.
    packets: Vec<Vec<u8>>,
    began: Instant,
    passed: Passed,
}

impl<'a> Air<'a> {
    /// Between the devices of the near and the far host.
    ///
    /// # Errors
    /// None in a correct program: the histogram's bounds are constants.
    pub fn new(setup: &LinkSetup, seed: u64, devices: [&'a Tun; 2]) -> io::Result<Air<'a>> {
        let lateness_us = Histogram::new_with_max(LATENESS_MAX_US, 3).map_err(io::Error::other)?;
        let passed = Passed {
            lateness_us,
            arrived: 0,
            bytes: 0,
            refused: 0,
            lost: 0,
            transmissions: 0,
            collisions: 0,
        };
        let (crossing, began) = (Crossing::new(setup, seed), Instant::now());
        Ok(Air { devices, crossing, packets: Vec::new(), began, passed })
    }

    /// Carries packets until `over` is set.
    ///
    /// # Errors
    /// A device or poll(2) fails.
    pub fn run(mut self, over: &AtomicBool) -> io::Result<Passed> {
        let mut buffer = vec![0; MAX_PACKET_BYTES];
        while !over.load(Ordering::Relaxed) {
            for host in Host::BOTH {
                self.take(host, &mut buffer)?;
            }
            self.advance()?;
            let now = self.now_ns();
            let rest = self.crossing.next_ns().map_or(NAP, |at| Duration::from_nanos(at.saturating_sub(now)));
            let [near, far] = self.devices;
            let mut both = [
                PollFd::from_borrowed_fd(near.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(far.as_fd(), PollFlags::IN),
            ];
            let rest = Timespec::try_from(rest.min(NAP)).map_err(io::Error::other)?;
            match poll(&mut both, Some(&rest)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let counts = self.crossing.counts();
        (self.passed.lost, self.passed.refused) = (self.crossing.lost(), counts.refused);
        (self.passed.transmissions, self.passed.collisions) = (counts.transmissions, counts.collisions);
        Ok(self.passed)
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Takes the packets that the device of `host` has to send.
    fn take(&mut self, host: Host, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..BATCH {
            let bytes = match self.devices[host as usize].receive(buffer) {
                Ok((_, bytes)) => bytes,
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
                {
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            // Only IPv4: the kernel also sends IPv6 packets of its own.
            if buffer.first().is_none_or(|first| first >> 4 != 4) {
                continue;
            }
            // Earlier events first, so that the packet enters the schedule at its place.
            self.advance()?;
            let now = self.now_ns();
            if let Some(number) = self.crossing.offer(now, host, bytes as u32) {
                if self.packets.len() <= number {
                    self.packets.resize_with(number + 1, Vec::new);
                }
                let packet = &mut self.packets[number];
                packet.clear();
                packet.extend_from_slice(&buffer[..bytes]);
            }
        }
        Ok(())
    }

    /// Handles everything that is due.
    fn advance(&mut self) -> io::Result<()> {
        loop {
            let now = self.now_ns();
            let step = self.crossing.advance(now);
            if !step.happened {
                return Ok(());
            }
            let Some((number, to, due)) = step.arrived else { continue };
            self.passed.lateness_us.saturating_record((now - due) / 1000);
            self.passed.arrived += 1;
            self.passed.bytes += self.packets[number].len() as u64;
            match self.devices[to as usize].send(&VnetHeader::default(), &self.packets[number]) {
                Ok(()) => {}
                // A device without room loses packets, as any does; one that is down loses all.
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock) => {}
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {}
                Err(error) => return Err(error),
            }
        }
    }
}
