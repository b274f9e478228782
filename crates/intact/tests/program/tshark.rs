//! Wireshark's dissector, which nobody of ours wrote, on what our target and our client say to each other: no PDU is
//! malformed, and each one after the login has the digests that were negotiated, all good.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use crate::common::{run, text};
use crate::support::{IQN, left_out, need, program, serve, target, tool};

/// A running capture of one port of loopback.
struct Capture {
    child: Child,
    log: BufReader<ChildStderr>,
}

impl Capture {
    /// `None` where the tester may not capture.
    fn start(port: u16, file: &Path) -> Option<Self> {
        // The buffer is large because a packet that it drops would look like a broken session.
        let mut child = Command::new("dumpcap")
            .args(["-q", "-i", "lo", "-B", "256", "-f", &format!("tcp port {port}"), "-w"])
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut seen = String::new();
        // It names the file once it captures.
        while !seen.contains("File: ") {
            if log.read_line(&mut seen).unwrap() == 0 {
                child.wait().unwrap();
                left_out(&format!("packets cannot be captured here: {}", seen.trim()));
                return None;
            }
        }
        Some(Self { child, log })
    }

    /// Ends it; nothing must have been lost.
    fn end(mut self) {
        crate::common::send_signal(&self.child, crate::common::Signal::INT);
        self.child.wait().unwrap();
        let mut log = String::new();
        self.log.read_to_string(&mut log).unwrap();
        assert!(log.contains("pcap:0/dumpcap:0"), "the capture is not complete: {log}");
    }
}

/// A test that fails leaves no capture running.
impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What became of a capture: each PDU's opcode, and how many digests of either kind were good.
#[derive(Debug, Default, PartialEq, Eq)]
struct Dissected {
    opcodes: Vec<u8>,
    headers: usize,
    data: usize,
}

/// `None` when packets are missing or out of their order in the capture, which is the capture's fault.
#[track_caller]
fn dissect(file: &Path, port: u16) -> Option<Dissected> {
    let decode = format!("tcp.port=={port},iscsi");
    let file = file.to_str().unwrap();
    // Its own limit for a sane PDU is what our target offers.
    let tshark = |more: &[&str]| {
        let mut command = program("tshark", crate::common::PATIENCE);
        command.args(["-n", "-r", file, "-d", &decode, "-o", "iscsi.bogus_pdu_max_data_len:1048576"]);
        command.args(more).stderr(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "tshark ended with {}", output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    if !tshark(&["-Y", "tcp.analysis.lost_segment || tcp.analysis.out_of_order"]).is_empty() {
        return None;
    }
    let broken = tshark(&["-Y", "_ws.malformed"]);
    assert!(broken.is_empty(), "not decoded:\n{broken}");
    let words = tshark(&["-V", "-O", "iscsi"]);
    let mut dissected = Dissected::default();
    for line in words.lines().map(str::trim) {
        if line.contains("= Opcode: ") {
            let code = line.rsplit_once("(0x").and_then(|(_, rest)| rest.get(..2));
            dissected.opcodes.push(u8::from_str_radix(code.unwrap(), 16).unwrap());
        } else if line.starts_with("HeaderDigest: ") {
            assert!(line.ends_with("(Good CRC32)"), "{line}");
            dissected.headers += 1;
        } else if line.starts_with("DataDigest: ") {
            assert!(line.ends_with("(Good CRC32)"), "{line}");
            dissected.data += 1;
        }
    }
    Some(dissected)
}

/// What our commands and somebody else's client say to a server with these settings, dissected.
fn captured(
    directory: &Path,
    image: &[u8],
    keys: &str,
    header: bool,
    data: bool,
) -> Result<Dissected, Missing> {
    let path = |name: &str| directory.join(name).display().to_string();
    let server = serve(directory, 1, &target(IQN, keys, &["ram:16M"]));
    let (portal, capture) = (server.portal(), directory.join("capture.pcapng"));
    let running = Capture::start(portal.port(), &capture).ok_or(Missing::Permission)?;
    let url = format!("iscsi://{portal}/{IQN}/0");
    for arguments in [
        &["ls", &format!("iscsi://{portal}")][..],
        &["inq", &url],
        &["cp", "--verify", &path("image"), &url],
        &["cp", &url, &path("back")],
        &["doctor", &url],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output));
    }
    // A client of somebody else, which knows header digests only.
    if !data && need("iscsi-test-cu", "libiscsi-bin") {
        let url = format!("{url}?header_digest={}", if header { "crc32c" } else { "none" });
        tool("iscsi-test-cu", &["-d", "-t", "SCSI.Read10", &url]).well();
    }
    running.end();
    assert!(fs::read(path("back")).unwrap()[..image.len()] == *image, "{keys}");
    dissect(&capture, portal.port()).ok_or(Missing::Packets)
}

/// Why there is nothing to look at.
#[derive(Debug, PartialEq, Eq)]
enum Missing {
    Permission,
    Packets,
}

#[test]
fn our_sessions_are_well_formed_and_their_digests_good() {
    if !need("tshark", "tshark") || !need("dumpcap", "tshark") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let image: Vec<u8> = (0..(1 << 20) + 512u32).map(|n| (n.wrapping_mul(2654435761) >> 24) as u8).collect();
    fs::write(path("image"), &image).unwrap();
    for (name, keys, header, data) in [
        ("both", crate::support::DIGESTS_REQUIRED, true, true),
        ("header", "[target.negotiation]\nheader_digest = \"required\"\ndata_digest = \"off\"", true, false),
        ("none", "[target.negotiation]\nheader_digest = \"off\"\ndata_digest = \"off\"", false, false),
    ] {
        // On a busy machine a capture of loopback may miss packets or mix up their order; then it is made again.
        let found = (0..5).find_map(|_| match captured(directory.path(), &image, keys, header, data) {
            Err(Missing::Packets) => None,
            other => Some(other),
        });
        let found = match found.expect("one capture out of five is whole") {
            Ok(found) => found,
            Err(_) => return,
        };
        let login = |opcode: u8| [0x03, 0x23].contains(&opcode);
        let later = found.opcodes.iter().filter(|opcode| !login(**opcode)).count();
        // Discovery sessions negotiate digests by themselves: both where the client offers them. Text and logout are theirs.
        let has = |opcodes: &[u8]| found.opcodes.iter().any(|opcode| opcodes.contains(opcode));
        for kind in [&[0x01][..], &[0x05], &[0x06], &[0x21], &[0x24], &[0x25], &[0x26], &[0x31]] {
            assert!(has(kind), "{name}: no PDU of {kind:x?} was seen");
        }
        assert!(later > 50, "{name}: {} PDUs", found.opcodes.len());
        println!(
            "{name}: {later} PDUs after logins, {} header digests, {} data digests",
            found.headers, found.data
        );
        if header {
            assert_eq!(found.headers, later, "{name}: each PDU has a good header digest");
        }
        if data {
            assert!(found.data > 15, "{name}: {} data digests", found.data);
        }
    }
}
