//! `intact tcp-crc` with programs that know nothing of it, in network namespaces of the test's own.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::background::{Running, intact};
use crate::support::{finish, left_out, need, path, program};
use engine::netns::NetNs;

/// As [`intact`], without a limit of its own: the process is `intact` itself, which reports of shims name.
fn intact_in_the_background(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_intact"));
    command.args(arguments.split(' ')).env("PATH", path());
    command
}

/// The report of the shim that `server` is. There may be others: reports are of the whole machine.
fn report_of(server: &Running) -> serde_json::Value {
    let text = finish(intact("tcp-crc status --json")).well();
    let reports: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    let ours = reports.into_iter().find(|report| report["pid"] == server.0.id());
    ours.unwrap_or_else(|| panic!("no shim of process {}: {text}", server.0.id()))
}

/// A namespace that stands for a machine, or none where the tester may make none.
fn machine() -> Option<NetNs> {
    match NetNs::create() {
        Ok(machine) => Some(machine),
        Err(error) => {
            left_out(&format!("no network namespace can be made: {error}"));
            None
        }
    }
}

/// Starts a server of Python's, which says when it is ready.
fn serving(mut command: Command) -> Running {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("8000"), "the server says when it is ready: {line}");
    Running(child)
}

#[test]
fn curl_and_a_server_move_the_same_bytes_through_two_shims() {
    if !need("curl", "curl") || !need("python3", "python3") || !need("nft", "nftables") {
        return;
    }
    let Some(machine) = machine() else { return };
    let folder = tempfile::tempdir().unwrap();
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(folder.path().join("image"), &data).unwrap();
    let folder = folder.path().display();

    let server = machine
        .within(|| {
            let serve =
                format!("tcp-crc run --publish 8000 -- python3 -u -m http.server 8000 --directory {folder}");
            serving(intact_in_the_background(&serve))
        })
        .unwrap();
    let get = format!(
        "tcp-crc run --strict --summary -- curl -sS -m 30 -o {folder}/copy http://10.213.0.1:8000/image"
    );
    let text = machine.within(|| finish(intact(&get))).unwrap().well();
    assert!(std::fs::read(format!("{folder}/copy")).unwrap() == data, "other bytes: {text}");
    assert!(text.contains("1 connection, 1 protected, 0 plain"), "{text}");
    assert!(text.contains(" 0 discarded, 0 without CRC"), "{text}");

    // The server's shim tells what it has seen, with the connection that went.
    let report = report_of(&server);
    let connections = report["connections"].as_array().unwrap();
    let is_ours = |connection: &&serde_json::Value| {
        connection["local"] == "10.213.0.2:8000"
            && connection["remote"].as_str().unwrap().starts_with("10.213.0.1:")
    };
    let ours: Vec<_> = connections.iter().filter(is_ours).collect();
    assert_eq!(ours.len(), 1, "{report}");
    assert_eq!((&ours[0]["state"], &ours[0]["method"]), (&"protected".into(), &6.into()));
    let metrics = finish(intact("tcp-crc status --metrics")).well();
    let labels = format!("pid=\"{}\",what=\"stamped\"}} ", server.0.id());
    let is_ours = |line: &str| line.starts_with("intact_tcp_crc_segments_total{") && line.contains(&labels);
    assert!(metrics.lines().any(is_ours) && metrics.ends_with("# EOF\n"), "{metrics}");
}

#[test]
fn curl_and_a_server_move_the_same_bytes_through_the_kernel() {
    if !need("curl", "curl") || !need("python3", "python3") || !need("nft", "nftables") {
        return;
    }
    let Some(machine) = machine() else { return };
    let folder = tempfile::tempdir().unwrap();
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(folder.path().join("image"), &data).unwrap();
    let folder = folder.path().display();
    let server = machine
        .within(|| {
            let serve = format!(
                "tcp-crc run --backend bpf --publish 8000 -- python3 -u -m http.server 8000 --directory {folder}"
            );
            serving(intact_in_the_background(&serve))
        })
        .unwrap();
    for backend in ["bpf", "tun"] {
        let get = format!(
            "tcp-crc run --backend {backend} --strict --summary -- curl -sS -m 30 -o {folder}/copy http://10.213.0.1:8000/image"
        );
        let text = machine.within(|| finish(intact(&get))).unwrap().well();
        assert!(std::fs::read(format!("{folder}/copy")).unwrap() == data, "other bytes: {text}");
        assert!(text.contains(" 0 discarded") && !text.contains(" 0 verified"), "{text}");
    }
    let total = &report_of(&server)["total"];
    assert!(total["stamped"].as_u64().is_some_and(|segments| segments > 4000), "{total}");
    assert_eq!(total["bad_crc"], 0, "{total}");
}

#[test]
fn the_first_connection_by_ipv6_is_protected() {
    if !need("curl", "curl") || !need("python3", "python3") || !need("nft", "nftables") {
        return;
    }
    let Some(machine) = machine() else { return };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("image"), vec![7; 300_000]).unwrap();
    let folder = folder.path().display();
    let _server = machine
        .within(|| {
            std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
            let serve = format!(
                "tcp-crc run --backend bpf -- python3 -u -m http.server 8000 --bind :: --directory {folder}"
            );
            serving(intact(&serve))
        })
        .unwrap();
    for _ in 0..3 {
        // Each has a device of its own that was not there a moment ago.
        let get = "tcp-crc run --backend bpf --strict --summary -- curl -gsS -m 30 -o /dev/null http://[fd43:5243::2]:8000/image";
        let text = machine.within(|| finish(intact(get))).unwrap().well();
        assert!(text.contains(" 0 discarded") && !text.contains(" 0 verified"), "{text}");
    }
}

#[test]
fn a_server_without_the_option_is_refused_where_a_crc_is_required() {
    if !need("curl", "curl") || !need("python3", "python3") || !need("nft", "nftables") {
        return;
    }
    let Some(machine) = machine() else { return };
    let serve = || {
        let mut up = Command::new("ip");
        up.args(["link", "set", "lo", "up"]).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
        assert!(up.status().unwrap().success());
        serving({
            let mut command = program("python3", Duration::from_secs(60));
            command.args(["-u", "-m", "http.server", "8000", "--directory", "/proc/self/task"]);
            command
        })
    };
    let _server = machine.within(serve).unwrap();
    for backend in ["tun", "bpf"] {
        let get = |policy: &str| {
            let get = format!(
                "tcp-crc run --backend {backend} {policy} --summary -- curl -sS -m 30 -o /dev/null http://10.213.0.1:8000/"
            );
            machine.within(|| finish(intact(&get))).unwrap()
        };
        get("--strict").well();
        let ended = get("--require");
        assert_eq!(ended.code, Some(7), "curl could not connect: {}", ended.text);
        let why = "1 connection refused: the peer, or something on the way, does not answer the request";
        assert!(ended.text.contains(why), "{}", ended.text);
    }
}

/// The times themselves are not compared: one interruption is longer than a hundred segments. The command fails if a segment was not stamped
/// and verified.
#[test]
fn the_cost_in_the_kernel_is_measured_for_every_value_and_size() {
    if machine().is_none() {
        return;
    }
    let text = finish(intact("tcp-crc bench --part cost --json --rounds 2 --segments 100")).well();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rows = report["cost"]["rows"].as_array().unwrap();
    let measured =
        rows.iter().filter(|row| ["out_ns", "in_ns"].iter().all(|ns| row[ns].as_f64() > Some(0.0)));
    let measured =
        measured.map(|row| [&row["value"], &row["data_bytes"]].map(|number| number.as_u64().unwrap()));
    let expected =
        [4, 5, 6].into_iter().flat_map(|value| [0, 64, 512, 1440, 2880].map(|bytes| [value, bytes]));
    assert!(measured.eq(expected), "{text}");
}

#[test]
fn a_shim_whose_device_is_taken_away_says_so() {
    if !need("nft", "nftables") {
        return;
    }
    let Some(machine) = machine() else { return };
    let mut command = intact("tcp-crc run --backend tun -- sh -c");
    command.arg("ip link delete crc0");
    let ended = machine.within(|| finish(command)).unwrap();
    assert!(ended.text.contains("the shim has ended"), "{}", ended.text);
}

#[test]
fn a_firewall_that_drops_what_is_forwarded_is_named() {
    if !need("nft", "nftables") {
        return;
    }
    let Some(machine) = machine() else { return };
    let text = machine
        .within(|| {
            let rule = "add table ip mine; add chain ip mine f { type filter hook forward priority 0; policy drop; }";
            let added = Command::new("nft").arg(rule).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin").status();
            assert!(added.unwrap().success());
            finish(intact("tcp-crc run -- true"))
        })
        .unwrap()
        .well();
    assert!(text.contains("nft insert rule ip mine f iifname crc0 accept"), "{text}");
}

#[test]
fn the_program_decides_the_exit_code_and_nothing_is_left_behind() {
    if !need("nft", "nftables") {
        return;
    }
    let Some(machine) = machine() else { return };
    let rules = || {
        let mut command = Command::new("nft");
        command.args(["list", "ruleset"]).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let forwarding = || std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap();
    machine
        .within(|| {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "0").unwrap();
            let before = forwarding();
            let mut command = intact("tcp-crc run -- sh -c");
            command.arg("ip -brief address show crc0; exit 7");
            let ended = finish(command);
            assert_eq!(ended.code, Some(7), "{}", ended.text);
            assert!(ended.text.contains("10.213.0.2/24"), "{}", ended.text);
            assert_eq!(rules(), "", "the rules are taken back");
            assert_eq!(forwarding(), before, "and so is the switch");
            let mut killed = intact("tcp-crc run -- sh -c");
            killed.arg("kill -TERM $$");
            assert_eq!(finish(killed).code, Some(128 + 15), "as shells say it");
            assert_eq!(finish(intact("tcp-crc run -- /nowhere/program")).code, Some(1));
            assert_eq!(finish(intact("tcp-crc run --values 3,4 -- true")).code, Some(2));
            assert_eq!(rules(), "");
        })
        .unwrap();
}

#[test]
fn the_demonstration_shows_what_it_says() {
    if machine().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let in_kernel = finish(intact("tcp-crc demo --json --damaged 50 --backend bpf --ipv6")).well();
    let in_kernel: serde_json::Value = serde_json::from_str(&in_kernel).unwrap();
    assert_eq!((&in_kernel["shown"], &in_kernel["backend"]), (&true.into(), &"bpf".into()), "{in_kernel}");
    let text =
        finish(intact(&format!("tcp-crc demo --json --damaged 50 --markdown {}", folder.path().display())))
            .well();
    let outcome: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(outcome["shown"], true, "{text}");
    assert!(outcome["without"]["wrong_bytes"].as_u64().unwrap() > 100, "{text}");
    assert_eq!(outcome["with"]["wrong_bytes"], 0);
    assert_ne!(outcome["without"]["sha256_arrived"], outcome["without"]["sha256_sent"]);
    assert!(std::fs::read_to_string(folder.path().join("tcp-crc-damage.svg")).unwrap().contains("<svg"));
    assert!(started.elapsed() < Duration::from_secs(60), "two demonstrations are short");
}
