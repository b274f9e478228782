//! Programs that know nothing of a CRC in TCP, each behind a shim of its own, with both back ends: what they measure, copy and store is
//! the same as without one. Left out, with a word, where there is no root or no such program; on CI that is a failure.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::background::Running;
use crate::support::{finish, left_out, need, postgresql, program, until};
use engine::netns::NetNs;
use serde_json::Value;
use sha2::{Digest, Sha256};

const BACKENDS: [&str; 2] = ["tun", "bpf"];
/// The address of the machine as its programs behind shims see it.
const MACHINE: &str = "10.213.0.1";
const LIMIT: Duration = Duration::from_secs(120);

/// A namespace that stands for a machine, a folder, and a back end.
struct Machine {
    namespace: NetNs,
    folder: tempfile::TempDir,
    backend: &'static str,
}

impl Machine {
    /// One for each back end; none where the tester may make none.
    fn each() -> Vec<Machine> {
        if !need("nft", "nftables") {
            return Vec::new();
        }
        let make = |backend| match NetNs::create() {
            Ok(namespace) => Some(Machine { namespace, folder: tempfile::tempdir().unwrap(), backend }),
            Err(error) => {
                left_out(&format!("no network namespace can be made: {error}"));
                None
            }
        };
        BACKENDS.into_iter().filter_map(make).collect()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, options: &str, what: &[&str]) -> Command {
        let mut command = program(env!("CARGO_BIN_EXE_intact"), LIMIT);
        command.args(["tcp-crc", "run", "--backend", self.backend]).args(options.split(' '));
        command.arg("--").args(what);
        command
    }

    /// Starts a server, whose `port` this machine publishes, and waits until it says `ready`.
    fn serve(&self, port: u16, what: &[&str], ready: &str) -> (Running, String) {
        let mut command = self.run(&format!("--publish {port}"), what);
        let (reader, writer) = std::io::pipe().unwrap();
        command.stdin(Stdio::null()).stdout(writer.try_clone().unwrap()).stderr(writer);
        let server = Running(self.namespace.within(|| command.spawn().unwrap()).unwrap());
        drop(command);
        let (mut lines, mut said) = (BufReader::new(reader), String::new());
        loop {
            let before = said.len();
            assert_ne!(lines.read_line(&mut said).unwrap(), 0, "{what:?} is not ready: {said}");
            if said[before..].contains(ready) {
                // What it says later is read, so that it never waits for a reader.
                std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
                return (server, said[before..].to_owned());
            }
        }
    }

    /// Runs a client whose connections must stay protected. Returns what it and the shim's summary say.
    fn client(&self, what: &[&str]) -> String {
        let command = self.run("--strict --summary", what);
        let text = self.namespace.within(|| finish(command)).unwrap().well();
        let summary = text.lines().rfind(|line| line.contains("; segments: ")).expect("a summary");
        let counted = |word: &str| -> u64 {
            let before = summary.split(&format!(" {word}")).next().unwrap();
            before.rsplit(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("{word}: {text}"))
        };
        assert!(counted("stamped") > 5 && counted("verified") > 5, "{} {what:?}: {text}", self.backend);
        assert_eq!((counted("discarded"), counted("plain")), (0, 0), "{} {what:?}: {text}", self.backend);
        text
    }
}

fn sha256(path: &Path) -> String {
    let mut hash = Sha256::new();
    let mut file = fs::File::open(path).unwrap();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).unwrap() {
            0 => return hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect(),
            read => hash.update(&buffer[..read]),
        }
    }
}

/// Bytes without a pattern.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

#[test]
fn iperf3_runs_to_its_end_without_a_storm_of_repetitions() {
    if !need("iperf3", "iperf3") {
        return;
    }
    for machine in Machine::each() {
        let (_server, _) = machine.serve(5201, &["iperf3", "-s", "--forceflush"], "Server listening");
        for direction in ["--time=2", "--reverse"] {
            let text = machine.client(&["iperf3", "-c", MACHINE, "-t", "2", "-J", direction]);
            let report: Value =
                serde_json::Deserializer::from_str(&text).into_iter().next().unwrap().unwrap();
            let number = |way: &str, name: &str| report["end"][way][name].as_u64().unwrap();
            let (sent, received) = (number("sum_sent", "bytes"), number("sum_received", "bytes"));
            let repeated = number("sum_sent", "retransmits");
            let share = repeated as f64 / (received as f64 / 1440.0);
            println!(
                "{} {direction}: {received} of {sent} bytes, {repeated} repetitions ({:.3} %)",
                machine.backend,
                100.0 * share
            );
            assert!(received > 1_000_000 && received <= sent, "{text}");
            assert!(share < 0.05, "{text}");
        }
    }
}

#[test]
fn intact_copies_an_image_to_itself_and_back() {
    const IQN: &str = "iqn.2026-01.io.intact:crc";
    for machine in Machine::each() {
        let [image, disk, back] = ["image", "disk", "back"].map(|name| machine.path(name));
        fs::write(&image, noise(24 << 20)).unwrap();
        let lun = format!("file:{},size=24M", disk.display());
        let control = machine.path("control").display().to_string();
        let serve = [
            env!("CARGO_BIN_EXE_intact"),
            "serve",
            "--json",
            "--listen",
            "0.0.0.0:3260",
            "--control",
            &control,
        ];
        let more = ["--allow-open-access", "--target", IQN, "--lun", &lun];
        let (server, _) = machine.serve(3260, &[&serve[..], &more].concat(), "\"portals\"");
        let url = format!("iscsi://{MACHINE}:3260/{IQN}/0");
        let intact = env!("CARGO_BIN_EXE_intact");
        machine.client(&[intact, "cp", image.to_str().unwrap(), &url]);
        machine.client(&[intact, "cp", "--verify", &url, back.to_str().unwrap()]);
        drop(server);
        let expected = sha256(&image);
        assert_eq!([sha256(&disk), sha256(&back)], [expected.clone(), expected], "{}", machine.backend);
    }
}

#[test]
fn libiscsi_writes_to_tgt_and_reads_back() {
    const IQN: &str = "iqn.2001-04.com.example:tgt";
    if !need("tgtd", "tgt") || !need("qemu-img", "qemu-utils") {
        return;
    }
    for machine in Machine::each() {
        let [image, disk, back] = ["image", "disk", "back"].map(|name| machine.path(name));
        fs::write(&image, noise(16 << 20)).unwrap();
        fs::File::create(&disk).unwrap().set_len(16 << 20).unwrap();
        let ipc = format!("TGT_IPC_SOCKET={}", machine.path("ctl").display());
        let tgtd = ["env", &ipc, "tgtd", "-f", "-d", "1", "-C", "1", "--iscsi", "portal=0.0.0.0:3261"];
        let (_server, _) = machine.serve(3261, &tgtd, "");
        let adm = |arguments: &str| {
            let mut command = program("tgtadm", LIMIT);
            command.args(["-C", "1", "--lld", "iscsi"]).args(arguments.split(' '));
            command.env("TGT_IPC_SOCKET", machine.path("ctl"));
            finish(command)
        };
        until("tgtd answers", || adm("--op show --mode target").code == Some(0));
        adm(&format!("--op new --mode target --tid 1 -T {IQN}")).well();
        adm(&format!("--op new --mode logicalunit --tid 1 --lun 1 -b {}", disk.display())).well();
        adm("--op bind --mode target --tid 1 -I ALL").well();
        let url = format!("iscsi://{MACHINE}:3261/{IQN}/1");
        let convert = ["qemu-img", "convert", "-n", "-f", "raw", "-O", "raw"];
        machine.client(&[&convert[..], &[image.to_str().unwrap(), &url]].concat());
        let convert = ["qemu-img", "convert", "-f", "raw", "-O", "raw"];
        machine.client(&[&convert[..], &[&url, back.to_str().unwrap()]].concat());
        let expected = sha256(&image);
        assert_eq!([sha256(&disk), sha256(&back)], [expected.clone(), expected], "{}", machine.backend);
    }
}

#[test]
fn psql_stores_a_table_and_gets_it_back() {
    let (Some(initdb), Some(postgres)) = (postgresql("initdb"), postgresql("postgres")) else {
        left_out("PostgreSQL is not installed (Debian: apt-get install postgresql)");
        return;
    };
    // It refuses to be root.
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let user = passwd.lines().find(|line| line.starts_with("postgres:")).expect("Debian's package makes it");
    let uid: u32 = user.split(':').nth(2).unwrap().parse().unwrap();
    let own = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"];
    for machine in Machine::each() {
        let [lines, back, data] = ["lines", "back", "data"].map(|name| machine.path(name));
        fs::set_permissions(machine.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(&data).unwrap();
        chown(&data, Some(uid), None).unwrap();
        let text: String = noise(1 << 20)
            .chunks(32)
            .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n")
            .collect();
        fs::write(&lines, text).unwrap();
        let data = data.to_str().unwrap();
        let mut init = program(own[0], LIMIT);
        init.args(&own[1..]).args([&initdb, "-D", data, "-U", "postgres", "-A", "trust", "--no-sync"]);
        finish(init).well();
        fs::write(format!("{data}/pg_hba.conf"), "host all all all trust\n").unwrap();
        let serve = [&postgres, "-D", data, "-h", "0.0.0.0", "-k", data, "-c", "fsync=off"];
        let (_server, _) = machine.serve(5432, &[&own[..], &serve].concat(), "ready to accept connections");
        let load = format!("\\copy kept(line) from '{}'", lines.display());
        let hash = "select 'sha256 ' || encode(sha256((string_agg(line, E'\\n' order by n) || E'\\n')::bytea), 'hex') from kept";
        let fetch = format!("\\copy (select line from kept order by n) to '{}'", back.display());
        let commands = ["create table kept(n serial, line text)", &load, hash, &fetch];
        let connect =
            ["psql", "-X", "-At", "-v", "ON_ERROR_STOP=1", "-h", MACHINE, "-U", "postgres", "postgres"];
        let commands = commands.iter().flat_map(|command| ["-c", command]);
        let text = machine.client(&connect.into_iter().chain(commands).collect::<Vec<_>>());
        let expected = sha256(&lines);
        assert!(text.contains(&format!("sha256 {expected}")), "{}: {text}", machine.backend);
        assert_eq!(sha256(&back), expected, "{}", machine.backend);
    }
}
