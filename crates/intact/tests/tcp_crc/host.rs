//! `intact tcp-crc up` and `down`: two hosts in network namespaces of the test's own, joined by a veth pair, and real programs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::background::{Running, intact};
use crate::support::{Ended, finish, left_out, need, program, until};
use engine::netns::NetNs;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PATH: &str = "/usr/sbin:/sbin:/usr/bin:/bin";

/// Two hosts, 10.9.0.1 and 10.9.0.2, and the data that the second one serves.
struct Hosts {
    spaces: [NetNs; 2],
    folder: tempfile::TempDir,
}

const BYTES: usize = 1_000_000;

impl Hosts {
    /// None where the tester may make no namespaces.
    fn new() -> Option<Hosts> {
        if !need("curl", "curl") || !need("python3", "python3") || !need("ip", "iproute2") {
            return None;
        }
        let spaces = match (NetNs::create(), NetNs::create()) {
            (Ok(first), Ok(second)) => [first, second],
            (Err(error), _) | (_, Err(error)) => {
                left_out(&format!("no network namespace can be made: {error}"));
                return None;
            }
        };
        let hosts = Hosts { spaces, folder: tempfile::tempdir().unwrap() };
        let data: Vec<u8> = (0..BYTES as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        std::fs::write(hosts.folder.path().join("image"), data).unwrap();
        let peer = hosts.spaces[1].path();
        hosts.ip(0, &format!("link add eth0 type veth peer name eth0 netns {}", peer.display()));
        for host in 0..2 {
            hosts.ip(host, "link set lo up");
            hosts.ip(host, &format!("addr add 10.9.0.{}/24 dev eth0", host + 1));
            hosts.ip(host, "link set eth0 up");
        }
        for host in 0..2 {
            until("the link is up", || hosts.ip(host, "-brief link show eth0").contains(" UP "));
        }
        Some(hosts)
    }

    fn ip(&self, host: usize, arguments: &str) -> String {
        let mut command = Command::new("ip");
        command.args(arguments.split(' ')).env("PATH", PATH);
        self.spaces[host].within(|| finish(command)).unwrap().well()
    }

    fn run(&self, host: usize, arguments: &str) -> Ended {
        self.spaces[host].within(|| finish(intact(arguments))).unwrap()
    }

    fn gso_max_segs(&self, host: usize) -> Value {
        let text = self.ip(host, "-json -details link show eth0");
        serde_json::from_str::<Value>(&text).unwrap()[0]["gso_max_segs"].clone()
    }

    /// A server on the second host, which listens when this returns.
    fn serve(&self) -> Running {
        let folder = self.folder.path().display().to_string();
        let mut command = program("python3", Duration::from_secs(60));
        command.args(["-u", "-m", "http.server", "8000", "--directory", &folder]);
        self.spaces[1]
            .within(|| {
                let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
                let mut line = String::new();
                BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
                assert!(line.contains("8000"), "the server says when it is ready: {line}");
                Running(child)
            })
            .unwrap()
    }

    /// The first host gets the data from the second one.
    fn transfer(&self) {
        let copy = self.folder.path().join("copy");
        let mut command = program("curl", Duration::from_secs(30));
        command.args(["-sS", "-o"]).arg(&copy).arg("http://10.9.0.2:8000/image");
        self.spaces[0].within(|| finish(command)).unwrap().well();
        assert!(std::fs::read(copy).unwrap() == std::fs::read(self.folder.path().join("image")).unwrap());
    }

    /// The report of a host, if the CRC is up there.
    fn report(&self, host: usize) -> Option<Value> {
        let text = finish(intact("tcp-crc status --json")).well();
        let name = format!("host{}", self.spaces[host].cookie().unwrap());
        let reports: Vec<Value> = serde_json::from_str(&text).unwrap();
        reports.into_iter().find(|report| report["name"] == name.as_str())
    }

    fn verified(&self, host: usize) -> u64 {
        self.report(host).expect("it is up")["total"]["verified"].as_u64().unwrap()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in 0..2 {
            let _ = self.spaces[host].within(|| finish(intact("tcp-crc down")));
        }
    }
}

/// The process that `up` has left in the background.
fn holder(said: &str) -> Pid {
    let number = said.split("(process ").nth(1).and_then(|rest| rest.split(')').next());
    Pid::from_raw(number.unwrap_or_else(|| panic!("{said}")).parse().unwrap()).unwrap()
}

#[test]
fn two_hosts_agree_and_one_that_goes_down_is_plain() {
    let Some(hosts) = Hosts::new() else { return };
    let before = hosts.gso_max_segs(0);
    for host in 0..2 {
        let text = hosts.run(host, "tcp-crc up").well();
        assert!(text.contains(" is up on eth0 (process "), "{text}");
        assert_eq!(hosts.gso_max_segs(host), 1);
        let again = hosts.run(host, "tcp-crc up");
        assert_eq!(again.code, Some(3), "{}", again.text);
        assert!(again.text.contains("is up here already (process "), "{}", again.text);
    }
    let _server = hosts.serve();
    hosts.transfer();
    assert!(hosts.verified(0) > 500, "{:?}", hosts.report(0));
    assert!(hosts.report(1).unwrap()["total"]["stamped"].as_u64().unwrap() > 500);
    assert_eq!(hosts.report(0).unwrap()["total"]["bad_crc"], 0);
    let text = finish(intact("tcp-crc status")).well();
    assert!(text.contains(": on eth0; 0 connections open before it came: plain"), "{text}");

    let down = hosts.run(0, "tcp-crc down").well();
    assert!(down.contains("The CRC is off"), "{down}");
    assert_eq!((hosts.gso_max_segs(0), hosts.report(0)), (before, None));
    let sent = hosts.report(1).unwrap()["total"]["stamped"].clone();
    hosts.transfer();
    assert_eq!(hosts.report(1).unwrap()["total"]["stamped"], sent, "a new connection is plain");
    let twice = hosts.run(0, "tcp-crc down").well();
    assert!(twice.contains("was not up here"), "{twice}");

    hosts.run(0, "tcp-crc up --dev eth0").well();
    hosts.transfer();
    assert!(hosts.verified(0) > 500, "and up again");
}

/// Thesis, Table 7.1, with what the kernel's programs can do in place of value 3.
#[test]
fn a_host_asks_for_what_its_devices_and_addresses_call_for() {
    if !need("ethtool", "ethtool") {
        return;
    }
    let Some(hosts) = Hosts::new() else { return };
    let ethtool = |state: &str| {
        let mut command = Command::new("ethtool");
        command.args(["-K", "eth0", "tx", state]).env("PATH", PATH);
        hosts.spaces[0].within(|| finish(command)).unwrap().well();
    };
    hosts.run(1, "tcp-crc up --values 5").well();
    let _server = hosts.serve();
    for (offload, options, value, why) in [
        ("on", "", 4, "NAT: assumed, eth0 has the private address 10.9.0.1; checksum offload: eth0"),
        ("off", "", 4, "NAT: assumed, eth0 has the private address 10.9.0.1; checksum offload: none"),
        ("on", " --nat no", 5, "NAT: no (told); checksum offload: eth0"),
        ("off", " --nat no", 5, "NAT: no (told); checksum offload: none"),
        ("off", " --nat no --offload yes", 5, "NAT: no (told); checksum offload: yes (told)"),
        ("off", " --nat yes", 4, "NAT: yes (told); checksum offload: none"),
        ("on", " --values 6", 6, ""),
    ] {
        ethtool(offload);
        let text = hosts.run(0, &format!("tcp-crc up{options}")).well();
        let says = text.contains(&format!("asks for value {value} ({why})"));
        assert_eq!(says, !why.is_empty(), "{offload}{options}: {text}");
        let before = hosts.verified(1);
        hosts.transfer();
        assert_eq!(hosts.verified(1) > before, value != 6, "{offload}{options}: the peer asks for 5");
        let last = hosts.report(0).unwrap()["total"].clone();
        assert_eq!(last["verified"].as_u64().unwrap() > 500, value != 6, "{offload}{options}: {last}");
        hosts.run(0, "tcp-crc down").well();
    }
}

#[test]
fn what_is_open_before_is_left_alone_and_counted() {
    let Some(hosts) = Hosts::new() else { return };
    let _server = hosts.serve();
    let connect = || TcpStream::connect("10.9.0.2:8000").unwrap();
    let mut open = hosts.spaces[0].within(connect).unwrap();
    let client = hosts.run(0, "tcp-crc up").well();
    assert!(client.contains("; 1 connection open before: plain"), "{client}");
    let server = hosts.run(1, "tcp-crc up").well();
    assert!(server.contains("1 socket listening before"), "{server}");
    assert_eq!(hosts.report(0).unwrap()["left_alone"], 1);
    open.write_all(b"GET /image HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    open.read_to_end(&mut answer).unwrap();
    assert!(answer.len() > BYTES, "it goes on as it was");
    assert_eq!(hosts.verified(0), 0);
    assert!(hosts.report(0).unwrap()["packets"]["unknown"].as_u64().unwrap() > 0);
}

#[test]
fn a_process_that_is_killed_leaves_nothing_attached() {
    let Some(hosts) = Hosts::new() else { return };
    let before = hosts.gso_max_segs(0);
    hosts.run(1, "tcp-crc up").well();
    let _server = hosts.serve();
    // The process in the background, when all is attached.
    let said = hosts.run(0, "tcp-crc up").well();
    hosts.transfer();
    let sent = || hosts.report(1).unwrap()["total"]["stamped"].clone();
    let protected = sent();
    assert_ne!(protected, 0);
    kill_process(holder(&said), Signal::KILL).unwrap();
    let mended = hosts.run(0, "tcp-crc down").well();
    assert!(mended.contains("had been killed") && mended.contains("are restored"), "{mended}");
    assert_eq!(hosts.gso_max_segs(0), before);
    hosts.transfer();
    assert_eq!(sent(), protected, "the connection was plain");

    // And at any moment on the way there.
    for delay_ms in (0..320).step_by(40) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_intact"));
        command.args(["tcp-crc", "up", "--foreground"]).stderr(Stdio::null());
        let mut child = hosts.spaces[0].within(|| command.spawn().unwrap()).unwrap();
        std::thread::sleep(Duration::from_millis(delay_ms));
        child.kill().unwrap();
        child.wait().unwrap();
        hosts.transfer();
        assert_eq!(sent(), protected, "killed after {delay_ms} ms");
        hosts.run(0, "tcp-crc down").well();
        assert_eq!(hosts.gso_max_segs(0), before);
    }
    hosts.run(0, "tcp-crc up").well();
    hosts.transfer();
    assert!(hosts.verified(0) > 500);
}

#[test]
fn what_cannot_be_is_refused_with_the_remedy_and_nothing_is_attached() {
    let Some(hosts) = Hosts::new() else { return };
    for (arguments, code, why) in [
        ("tcp-crc up --values 4,5", 2, "at most one of 3, 4 and 5"),
        ("tcp-crc up --values auto,6", 2, "--values auto takes no other value"),
        ("tcp-crc up --values 4 --nat no", 2, "--nat and --offload are for --values auto"),
        ("tcp-crc up --dev eth7", 1, "`eth7` is no Ethernet-like device"),
        ("tcp-crc up --dev lo", 1, "`lo` is no Ethernet-like device"),
        ("tcp-crc up --cgroup /proc", 1, "it is no directory of cgroup2"),
        ("tcp-crc up --cgroup /nowhere", 1, "/nowhere: No such file"),
    ] {
        let ended = hosts.run(0, arguments);
        assert_eq!(ended.code, Some(code), "{arguments}: {}", ended.text);
        assert!(ended.text.contains(why) && ended.text.lines().count() == 1, "{arguments}: {}", ended.text);
        assert_ne!(hosts.gso_max_segs(0), 1, "{arguments}");
    }
    // What is not for a whole host is not offered.
    for (arguments, why) in [
        ("tcp-crc up --backend tun", "unexpected argument '--backend'"),
        ("tcp-crc up --require", "unexpected argument '--require'"),
        ("tcp-crc up --values 3", "value 3 is for shims on TUN devices"),
    ] {
        let ended = hosts.run(0, arguments);
        assert!(ended.code == Some(2) && ended.text.contains(why), "{arguments}: {}", ended.text);
    }
    let help = hosts.run(0, "tcp-crc up --help").well();
    for option in ["--require", "--backend"] {
        assert!(!help.lines().any(|line| line.trim_start().starts_with(option)), "{help}");
    }
    hosts.ip(0, "link set eth0 down");
    let none = hosts.run(0, "tcp-crc up");
    assert!(none.code == Some(1) && none.text.contains("ip link set eth0 up"), "{}", none.text);
    assert!(hosts.run(0, "tcp-crc down").well().contains("was not up here"));
}
