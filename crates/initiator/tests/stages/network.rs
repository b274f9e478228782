//! Two hosts in network namespaces, with or without a CRC in TCP, and a wire between them that flips a bit of a packet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tcp_crc::{Config, Method, Offer, Packet, finish_sums};
use tcp_crc_shim::lab::{Lab, Middle, Pass, Plan, sum_errors};

pub use tcp_crc_shim::lab::End;

use super::faults::flip;

/// What the wire does to the packet with the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// A bit flips.
    Noise = 1,
    /// A bit flips, and the device that did it computes TCP's sum afterwards.
    SumKept = 2,
}

/// A network between an initiator and a target.
pub struct Network {
    lab: Lab,
    /// [`Wire`] in packets to the client and to the server, or 0.
    armed: Arc<[AtomicU8; 2]>,
}

impl Network {
    /// One without a CRC in TCP and one with. None, with a message, without the rights; on CI that is a failure.
    pub fn both() -> Option<[Network; 2]> {
        let networks = [false, true].map(Network::build);
        match networks {
            [Ok(without), Ok(with)] => Some([without, with]),
            [Err(error), _] | [_, Err(error)] => {
                let on_ci = !matches!(std::env::var("CI").as_deref(), Err(_) | Ok("" | "0" | "false"));
                assert!(!on_ci, "on CI no test may be left out: {error}");
                eprintln!("left out: {error}");
                None
            }
        }
    }

    fn build(crc: bool) -> Result<Network, tcp_crc_shim::SetupError> {
        let armed: Arc<[AtomicU8; 2]> = Arc::default();
        // What `intact tcp-crc run` asks for.
        let offer = Offer::of(&[Method::Data, Method::Placed]);
        let config = crc.then(|| Config { offer, ..Config::default() });
        let lab = Lab::build(Plan { middle: wire(Arc::clone(&armed)), ..Plan::both(config) })?;
        Ok(Network { lab, armed })
    }

    /// Damages the next packet with the mark on its way to `end`.
    pub fn strike(&self, end: End, wire: Wire) {
        self.armed[end as usize].store(wire as u8, Ordering::SeqCst);
    }

    /// Whether nothing is left to be damaged.
    pub fn has_struck(&self) -> bool {
        self.armed.iter().all(|armed| armed.load(Ordering::SeqCst) == 0)
    }

    /// Segments that were discarded so far: by a CRC, and by the kernel for TCP's sum.
    pub fn discarded(&self) -> [u64; 2] {
        let ends = [End::Client, End::Server];
        let by_crc =
            ends.map(|end| self.lab.seen(end).map_or(0, |seen| seen.total.bad_crc + seen.total.bad_sum));
        let by_sum = ends.map(|end| sum_errors(self.lab.host(end)).unwrap());
        [by_crc.iter().sum(), by_sum.iter().sum()]
    }

    /// What of TCP has found damage since then.
    pub fn finder(&self, before: [u64; 2]) -> Option<String> {
        let after = self.discarded();
        match [after[0] - before[0], after[1] - before[1]] {
            [0, 0] => None,
            [1, 0] => Some("TCP: CRC".to_owned()),
            [0, 1] => Some("TCP: sum".to_owned()),
            other => panic!("one segment was damaged, but discarded were {other:?}"),
        }
    }
}

/// Runs `work` at one end of the network, or here without one.
pub fn at<T: Send>(network: Option<&Network>, end: End, work: impl FnOnce() -> T + Send) -> T {
    match network {
        Some(network) => network.lab.host(end).within(work).unwrap(),
        None => work(),
    }
}

fn wire(armed: Arc<[AtomicU8; 2]>) -> Middle {
    Box::new(move |end, packet| {
        let armed = &armed[end as usize];
        let kind = armed.load(Ordering::SeqCst);
        if kind != 0
            && let Ok(read) = Packet::parse(packet)
        {
            let data = read.bytes().len() - read.data().len()..read.bytes().len();
            if flip(&mut packet[data]) {
                if kind == Wire::SumKept as u8 {
                    finish_sums(packet);
                }
                armed.store(0, Ordering::SeqCst);
            }
        }
        Pass::On
    })
}
