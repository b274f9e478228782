//! The cost of the programs, measured by the kernel: it runs them many times with one packet and takes the time (BPF_PROG_TEST_RUN).

use std::io;

use aya::programs::{SchedClassifier, TestRun, TestRunOptions};
use tcp_crc::{Action, Config, Direction, Flow, Packet, finish_sums};

use super::{Kernel, bpf, program};
use crate::commands::SetupError;

/// Most data in a packet that the kernel accepts for this, in bytes: it gives a packet one page.
pub const DATA_BYTES_MAX: usize = 3000;

const SYN: u8 = 2;
const ACK: u8 = 16;
/// Sequence numbers of the SYN and the SYN-ACK.
const ISNS: [u32; 2] = [1000, 5000];
const TIMESTAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9];
/// A data option as `sockops` writes it (kind 15).
const EMPTY: [u8; 8] = [15, 6, 0, 0, 0, 0, 1, 1];

/// The programs with one protected connection.
pub struct Bench {
    kernel: Kernel,
    peer: Flow,
}

impl Bench {
    /// Loads the programs and opens a connection whose other end is the codec.
    ///
    /// # Errors
    /// Those of [`Kernel::start`], or the configuration asks for nothing.
    pub fn new(config: Config) -> Result<Bench, SetupError> {
        let kernel = Kernel::load(0, config, 1)?;
        let mut bench = Bench { kernel, peer: Flow::new(config) };
        let mut client = Flow::new(config);
        let (mut asks, mut answers) = (Vec::new(), Vec::new());
        let written = |flow: &mut Flow, packet: &[u8], out: &mut Vec<u8>| {
            let packet = Packet::parse(packet).ok()?;
            (flow.handle(Direction::Out, &packet, out) == Action::Rewritten).then_some(())
        };
        let none = || bpf("nothing is asked for")(io::Error::other("the configuration has no value"));
        written(&mut client, &packet(false, SYN, &[], &[]), &mut asks).ok_or_else(none)?;
        bench.run("tcp_crc_egress", &asks, 1)?;
        if let Ok(syn) = Packet::parse(&asks) {
            bench.peer.handle(Direction::In, &syn, &mut Vec::new());
        }
        written(&mut bench.peer, &packet(true, SYN | ACK, &[], &[]), &mut answers).ok_or_else(none)?;
        bench.run("tcp_crc_ingress", &answers, 1)?;
        Ok(bench)
    }

    /// Nanoseconds for an outgoing and an incoming segment with `data_bytes` of data, at most [`DATA_BYTES_MAX`]. Each is the mean of
    /// `times` runs.
    ///
    /// # Errors
    /// The kernel refuses to run a program, or a program does something other than stamp and accept.
    pub fn ns_per_segment(&mut self, data_bytes: usize, times: u32) -> Result<[f64; 2], SetupError> {
        let data: Vec<u8> = (0..data_bytes.min(DATA_BYTES_MAX) as u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        let before = self.kernel.totals().0;
        let out = self.run(
            "tcp_crc_egress",
            &packet(false, ACK, &[&TIMESTAMPS[..], &EMPTY].concat(), &data),
            times,
        )?;
        let mut stamped = Vec::new();
        if let Ok(packet) = Packet::parse(&packet(true, ACK, &TIMESTAMPS, &data)) {
            self.peer.handle(Direction::Out, &packet, &mut stamped);
        }
        let back = self.run("tcp_crc_ingress", &stamped, times)?;
        let after = self.kernel.totals().0;
        let each = [after.stamped - before.stamped, after.verified - before.verified];
        if each != [u64::from(times); 2] {
            let source = io::Error::other(format!(
                "of {times} segments {} were stamped, {} verified",
                each[0], each[1]
            ));
            return Err(SetupError::Bpf { what: "the programs do not do what is measured", source });
        }
        Ok([out, back])
    }

    fn run(&mut self, name: &'static str, packet: &[u8], times: u32) -> Result<f64, SetupError> {
        let frame = [&[2; 12][..], &[8, 0], packet].concat();
        let classifier: &mut SchedClassifier = self.kernel.program(name)?;
        let options = TestRunOptions { data_in: Some(&frame), repeat: times, ..TestRunOptions::new() };
        let result =
            classifier.test_run(options).map_err(program("the kernel does not run a BPF program"))?;
        Ok(result.duration.as_nanos() as f64)
    }
}

/// A packet (IPv4) of the single connection.
fn packet(back: bool, flags: u8, options: &[u8], data: &[u8]) -> Vec<u8> {
    let [mut ours, mut theirs] = [(1, 40000u16), (2, 3260)];
    let [mut seq, mut ack] = ISNS;
    if back {
        std::mem::swap(&mut ours, &mut theirs);
        std::mem::swap(&mut seq, &mut ack);
    }
    if flags & SYN == 0 {
        seq += 1;
    }
    let header_bytes = 20 + options.len();
    let mut packet = vec![0x45, 0];
    packet.extend(((20 + header_bytes + data.len()) as u16).to_be_bytes());
    packet.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, ours.0, 10, 0, 0, theirs.0]);
    packet.extend(ours.1.to_be_bytes());
    packet.extend(theirs.1.to_be_bytes());
    packet.extend(seq.to_be_bytes());
    packet.extend((ack + 1).to_be_bytes());
    packet.extend([(header_bytes / 4) as u8 * 16, flags, 0x10, 0, 0, 0, 0, 0]);
    packet.extend(options);
    packet.extend(data);
    finish_sums(&mut packet);
    packet
}
