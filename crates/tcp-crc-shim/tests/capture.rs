//! What is on the wire, read by Wireshark's dissector, which knows nothing of us: packets that are whole, each SYN with a request, each
//! later segment with a CRC, and sums that are right.

mod support;

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use support::{lab, left_out, states, strict};
use tcp_crc::{Method, State};
use tcp_crc_shim::Backend;
use tcp_crc_shim::lab::{Middle, Pass, Plan, content};

/// Packets in transit, in their order.
type Wire = Arc<Mutex<Vec<Vec<u8>>>>;

/// Runs one of Wireshark's programs and returns what it prints.
fn wireshark(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Packets as a capture of raw IP, made from a dump by Wireshark's own program.
fn captured(directory: &Path, packets: &[Vec<u8>]) -> String {
    let mut dump = String::new();
    for packet in packets {
        for (line, bytes) in packet.chunks(16).enumerate() {
            write!(dump, "{:06x}", 16 * line).unwrap();
            bytes.iter().for_each(|byte| write!(dump, " {byte:02x}").unwrap());
            dump.push('\n');
        }
    }
    let (text, capture) = (directory.join("dump.txt"), directory.join("wire.pcap"));
    fs::write(&text, dump).unwrap();
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    const RAW_IP: &str = "101";
    wireshark("text2pcap", &["-q", "-l", RAW_IP, &path(&text), &path(&capture)]);
    path(&capture)
}

/// Checks a transfer with this method as the dissector sees it.
fn is_readable(backend: Backend, method: Method, v6: bool) {
    let wire = Wire::default();
    let seen = Arc::clone(&wire);
    let middle: Middle = Box::new(move |_, packet| {
        seen.lock().unwrap().push(packet.to_vec());
        Pass::On
    });
    let plan = Plan { backends: [backend; 2], middle, ..Plan::both(Some(strict(&[method]))) };
    let Some(lab) = lab(plan) else { return };
    let data = content(14, 200_000);
    let (mut client, mut server) = lab.connect(v6).unwrap();
    let mut received = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            client.write_all(&data).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
        });
        server.read_to_end(&mut received).unwrap();
    });
    assert!(received == data, "other bytes arrived");
    // Both sockets are still open: the programs in the kernel forget a connection when its socket closes.
    assert_eq!(states(&lab), [State::Protected(method); 2]);
    let packets = wire.lock().unwrap().clone();
    drop((client, server, lab));

    let directory = tempfile::tempdir().unwrap();
    let capture = captured(directory.path(), &packets);
    let fields = ["tcp.flags", "tcp.option_kind", "tcp.option_len", "tcp.checksum.status", "_ws.malformed"];
    let check = ["-n", "-r", &capture, "-o", "tcp.check_checksum:TRUE", "-Y", "tcp", "-T", "fields"];
    let arguments: Vec<_> = check.into_iter().chain(fields.iter().flat_map(|field| ["-e", field])).collect();
    let lines = wireshark("tshark", &arguments);
    let mut segments = 0;
    for line in lines.lines() {
        let [flags, kinds, _, sum, malformed] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("not five fields: {line:?}")
        };
        assert_eq!(malformed, "", "{line}");
        let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16).unwrap();
        let (is_syn, is_rst) = (flags & 2 != 0, flags & 4 != 0);
        let has = |kind: &str| kinds.split(',').any(|found| found == kind);
        assert_eq!((has("14"), has("15")), (is_syn, !is_syn && !is_rst), "{line}");
        // Value 3 has half of its CRC where the sum would be, which is why only a shim can take it.
        let good = method != Method::Split || is_syn || is_rst;
        assert_eq!(sum == "1", good, "{line}");
        segments += 1;
    }
    assert!(segments > data.len() / 1500, "{segments} segments of {} bytes", data.len());
}

#[test]
fn a_capture_is_readable() {
    if ["tshark", "text2pcap"].iter().any(|program| Command::new(program).arg("-v").output().is_err()) {
        return left_out("tshark is not installed (Debian: apt-get install tshark)");
    }
    for (method, v6) in [(Method::Split, false), (Method::Data, true), (Method::Whole, false)] {
        is_readable(Backend::Tun, method, v6);
    }
    is_readable(Backend::Bpf, Method::Whole, true);
}
