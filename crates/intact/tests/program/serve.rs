//! `intact serve` and `intact ls` as people use them: real processes, a real socket, real signals.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixDatagram;

use crate::common::{PATIENCE, Serve, Signal, intact, run, text};

/// Sends a login request with `keys` (security stage, straight to full feature phase) and returns status class and detail
/// of the answer.
fn login(portal: SocketAddr, keys: &str) -> (TcpStream, [u8; 2]) {
    let mut stream = TcpStream::connect(portal).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let data = keys.replace(' ', "\0") + "\0";
    let mut pdu = vec![0u8; 48];
    // Login request, immediate; T=1, CSG=1 (operational), NSG=3; ISID of random format; CmdSN 1.
    pdu[0] = 0x43;
    pdu[1] = 0x87;
    pdu[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
    pdu[8] = 0x80;
    pdu[27] = 1;
    pdu.extend_from_slice(data.as_bytes());
    pdu.resize(pdu.len().next_multiple_of(4), 0);
    stream.write_all(&pdu).unwrap();
    let mut answer = [0u8; 48];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[0], 0x23, "a login response");
    let length = u32::from_be_bytes([0, answer[5], answer[6], answer[7]]) as usize;
    let mut data = vec![0u8; length.next_multiple_of(4)];
    stream.read_exact(&mut data).unwrap();
    (stream, [answer[36], answer[37]])
}

const INITIATOR: &str = "InitiatorName=iqn.2004-10.com.example:tester";

#[test]
fn it_tells_what_it_serves_and_who_came() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Serve::start(
        directory.path(),
        &[
            "--target",
            "iqn.2004-10.com.example:a",
            "--lun",
            "ram:2M",
            "--lun",
            "ram:1M,block=4096",
            "--metrics",
            "127.0.0.1:0",
        ],
    );
    let ready = server.ready.clone();
    assert_eq!(ready["targets"][0], "iqn.2004-10.com.example:a");
    assert_eq!(ready["luns"][1]["size_bytes"], 1 << 20);
    let url = format!("iscsi://{}/iqn.2004-10.com.example:a/1", server.portal());
    assert_eq!(ready["luns"][1]["url"], url);
    assert_eq!(ready["control"], server.control.to_str().unwrap());

    let (_session, status) =
        login(server.portal(), &format!("{INITIATOR} TargetName=iqn.2004-10.com.example:a"));
    assert_eq!(status, [0, 0]);
    let (_, status) = login(server.portal(), &format!("{INITIATOR} TargetName=iqn.2004-10.com.example:b"));
    assert_eq!(status, [2, 3]);

    let sessions = server.ls("sessions");
    assert_eq!(sessions.as_array().unwrap().len(), 1);
    assert_eq!(sessions[0]["initiator"], "iqn.2004-10.com.example:tester");
    let place = &sessions[0]["connections"][0]["place"];
    assert!(["shard", "runs_on"].iter().all(|name| place[name].is_u64()), "{place}");
    assert!(place["arrives_on"].is_u64() || place["arrives_on"].is_null(), "{place}");
    let luns = server.ls("luns");
    assert_eq!(luns[0]["size_bytes"], 2 << 20);
    assert_eq!(luns[1]["logical_block_bytes"], 4096);
    assert_eq!(server.ls("targets")[0]["sessions"], 1);
    let logins = server.ls("logins");
    assert_eq!(logins[0]["accepted"], true);
    let refused = &logins[1];
    assert_eq!(refused["accepted"], false);
    assert_eq!(refused["code"], 0x0203);
    for key in ["rule", "what", "remedy", "peer", "portal", "stage"] {
        assert!(refused[key].as_str().is_some_and(|text| !text.is_empty()), "{key}: {refused}");
    }
    let line = server.log_line("login refused");
    assert!(line.contains("remedy") && line.contains("0203"), "{line}");

    let table = text(&intact().args(["ls", "logins", "--control"]).arg(&server.control).output().unwrap());
    assert!(table.contains("refused") && table.contains("remedy:"), "{table}");

    let mut stream = TcpStream::connect(ready["metrics"].as_str().unwrap()).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).unwrap();
    assert!(metrics.contains("intact_logins_refused_total{status=\"0203\""), "{metrics}");
    assert!(metrics.contains("intact_logins_accepted_total 1"), "{metrics}");

    server.signal(Signal::TERM);
    // The session gets an asynchronous message and does not care; a second signal ends the patience.
    server.log_line("ending");
    server.signal(Signal::INT);
    let _ = server.wait();
}

#[test]
fn it_ends_when_asked_and_takes_its_socket_along() {
    let directory = tempfile::tempdir().unwrap();
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = Serve::start(directory.path(), &[]);
        assert!(server.control.exists());
        server.signal(signal);
        assert_eq!(server.wait().code(), Some(0), "{signal:?}");
        assert!(!server.control.exists());
    }
}

#[test]
fn what_was_written_to_a_file_is_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("file:{},size=3M", directory.path().join("disk.img").display());
    let serial = |server: &Serve| server.ls("luns")[0]["serial"].clone();
    let mut server = Serve::start(directory.path(), &["--lun", &store]);
    let first = serial(&server);
    assert_eq!(fs::metadata(directory.path().join("disk.img")).unwrap().len(), 3 << 20);
    server.signal(Signal::TERM);
    server.wait();
    let server = Serve::start(directory.path(), &["--lun", &store]);
    assert_eq!(serial(&server), first, "an initiator must know its disk again");
    // A second server must not write to the same file.
    let other = intact()
        .args(["serve", "--listen", "127.0.0.1:0", "--control", "c", "--lun", &store])
        .output()
        .unwrap();
    assert_eq!(other.status.code(), Some(1));
    assert!(text(&other).contains("disk.img"), "{}", text(&other));
}

#[test]
fn sighup_applies_a_new_file_and_a_broken_one_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("intact.toml");
    let target = |name: &str| {
        format!("[[target]]\nname = \"iqn.2004-10.com.example:{name}\"\n[[target.lun]]\nstore = \"ram:1M\"\n")
    };
    fs::write(&file, target("a")).unwrap();
    let server = Serve::start(directory.path(), &["-c", file.to_str().unwrap()]);
    let (mut session, status) =
        login(server.portal(), &format!("{INITIATOR} TargetName=iqn.2004-10.com.example:a"));
    assert_eq!(status, [0, 0]);

    fs::write(&file, target("a") + &target("b")).unwrap();
    server.signal(Signal::HUP);
    server.log_line("iqn.2004-10.com.example:b");
    let names: Vec<_> = server.ls("targets").as_array().unwrap().iter().map(|t| t["name"].clone()).collect();
    assert_eq!(names, ["iqn.2004-10.com.example:a", "iqn.2004-10.com.example:b"]);

    fs::write(&file, "taget = 1\n").unwrap();
    server.signal(Signal::HUP);
    server.log_line("the old configuration stays");
    server.log_line("did you mean `target`?");
    assert_eq!(server.ls("targets").as_array().unwrap().len(), 2);

    // The session lived through all of it: a ping comes back.
    let mut ping = [0u8; 48];
    ping[0] = 0x40;
    ping[1] = 0x80;
    ping[16..20].copy_from_slice(&7u32.to_be_bytes());
    ping[20..24].copy_from_slice(&u32::MAX.to_be_bytes());
    ping[27] = 1;
    session.write_all(&ping).unwrap();
    let mut pong = [0u8; 48];
    session.read_exact(&mut pong).unwrap();
    assert_eq!((pong[0] & 0x3f, pong[19]), (0x20, 7));
}

#[test]
fn the_service_manager_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let next = || {
        let mut bytes = [0; 256];
        let n = manager.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..n]).into_owned()
    };
    let control = directory.path().join("c");
    let mut command = intact();
    command.args(["serve", "--json", "--listen", "127.0.0.1:0", "--control"]).arg(&control);
    command.env("NOTIFY_SOCKET", &socket);
    let mut server = Serve::spawn(command, control);
    assert!(next().contains("READY=1"));
    server.signal(Signal::HUP);
    let reloading = next();
    assert!(reloading.contains("RELOADING=1") && reloading.contains("MONOTONIC_USEC="), "{reloading}");
    assert!(next().contains("READY=1"));
    server.signal(Signal::TERM);
    assert!(next().contains("STOPPING=1"));
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_second_server_finds_the_port_taken_and_does_without_the_default_socket() {
    let directory = tempfile::tempdir().unwrap();
    let serve = |listen: &str| {
        let mut command = intact();
        command.args(["serve", "--json", "--listen", listen]).env("XDG_RUNTIME_DIR", directory.path());
        command
    };
    let control = directory.path().join("intact/control.sock");
    let first = Serve::spawn(serve("127.0.0.1:0"), control.clone());
    assert_eq!(first.ready["control"], control.to_str().unwrap());
    let taken = serve(&first.portal().to_string()).output().unwrap();
    assert_eq!(taken.status.code(), Some(1));
    assert!(text(&taken).contains("another program listens there"), "{}", text(&taken));
    let second = Serve::spawn(serve("127.0.0.1:0"), control.clone());
    assert!(second.ready["control"].is_null(), "{}", second.ready);
    second.log_line("--control PATH");
    // `ls` asks the first one, in the default place.
    let listed = intact().args(["ls", "targets"]).env("XDG_RUNTIME_DIR", directory.path()).output().unwrap();
    assert!(text(&listed).contains(&first.portal().to_string()), "{}", text(&listed));
}

#[test]
fn without_json_it_prints_lines_to_paste() {
    use std::io::BufRead;
    let directory = tempfile::tempdir().unwrap();
    let mut child = intact()
        .args(["serve", "--listen", "127.0.0.1:0", "--control"])
        .arg(directory.path().join("c"))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    while !text.contains("Ctrl-C") {
        assert!(out.read_line(&mut text).unwrap() > 0, "it ended early: {text}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    for part in [
        "1 GiB",
        "iscsiadm -m discovery",
        "--login",
        "qemu-img info iscsi://127.0.0.1:",
        "intact bench iscsi://",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
}

#[test]
fn wrong_usage_and_wrong_configuration_end_with_2() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.toml");
    fs::write(&file, "listen = [\"nowhere\"]\n").unwrap();
    let file = file.to_str().unwrap();
    for (arguments, words) in [
        (&["serve", "--lun", "ram:lots"][..], "whole number"),
        (&["serve", "--listen", "localhost"], "ADDR:PORT"),
        (&["serve", "-c", file], "is no address to listen on"),
        (&["serve", "-c", file, "--lun", "ram:1M"], "cannot be used with"),
        (&["serve", "-c", "/nowhere.toml"], "cannot be read"),
        (&["serve", "--target", "disk"], "iqn.YYYY-MM"),
        (&["serve", "--listen", "0.0.0.0:0"], "--allow-open-access"),
        (&["ls", "volumes"], "sessions, luns, targets or logins"),
        (&["check", file], "is no address to listen on"),
        (&["frobnicate"], "unrecognized subcommand"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains(words), "{arguments:?}: {}", text(&output));
    }
    let nobody = directory.path().join("c");
    let output = run(&["ls", "sessions", "--control", nobody.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("is `intact serve` running?"), "{}", text(&output));
}

#[test]
fn check_says_whether_a_file_can_be_used() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.toml");
    let check = |content: &str, json: bool| {
        fs::write(&file, content).unwrap();
        let mut command = intact();
        command.arg("check").arg(&file);
        if json {
            command.arg("--json");
        }
        command.output().unwrap()
    };
    let example = check(include_str!("../../../../examples/intact.toml"), false);
    assert_eq!(example.status.code(), Some(0), "{}", text(&example));
    assert!(text(&example).contains("can be used: 1 target(s) with 1 logical unit(s) on 127.0.0.1:3260"));
    let warned = check("[metrics]\nlisten = \"127.0.0.1:1\"\n", false);
    assert_eq!(warned.status.code(), Some(0));
    assert!(text(&warned).contains("warning: there is no target"), "{}", text(&warned));
    let broken = check("listen = [3]\nport = 3260\n", true);
    assert_eq!(broken.status.code(), Some(2));
    let value: serde_json::Value = serde_json::from_slice(&broken.stdout).unwrap();
    assert_eq!(value["usable"], false);
    let last = value["problems"].as_array().unwrap().last().unwrap();
    assert_eq!(last["what"], "`port` is no key of the file");
    assert_eq!((last["line"].as_u64(), last["column"].as_u64()), (Some(2), Some(1)));
}

#[test]
fn completions_and_the_manual_are_made() {
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        assert!(output.status.success() && text(&output).contains("serve"), "{shell}");
    }
    let manual = run(&["man"]);
    assert!(manual.status.success());
    assert!(
        text(&manual).contains(".TH") && text(&manual).contains("allow\\-open\\-access"),
        "{}",
        text(&manual)
    );
    let help = text(&run(&["--help"]));
    assert!(help.contains("Exit codes"), "{help}");
}
