//! A private tgtd for one test, with its own port, control socket and directory. It ends with the test.
#![allow(dead_code)]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use initiator::{IscsiUrl, Options, Session};
use tempfile::TempDir;

pub const TARGET: &str = "iqn.2001-04.com.example:tgt";
/// Not in the PATH of an ordinary user.
const TGTD: &str = "/usr/sbin/tgtd";
const TGTADM: &str = "/usr/sbin/tgtadm";
/// Long enough that only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Debian's tgt with one target and one file-backed LUN (number 1).
pub struct Tgt {
    child: Child,
    dir: TempDir,
    control: String,
    pub port: u16,
}

impl Tgt {
    /// Starts one; `None`, with a message, if tgt is not installed. On CI that is a failure.
    pub fn start() -> Option<Self> {
        Self::with_lun_of(64 << 20)
    }

    /// As [`Tgt::start`], with a LUN of so many bytes.
    pub fn with_lun_of(bytes: u64) -> Option<Self> {
        if !Path::new(TGTD).exists() {
            let on_ci = !matches!(std::env::var("CI").as_deref(), Err(_) | Ok("" | "0" | "false"));
            assert!(!on_ci, "on CI no test may be left out: install tgt");
            eprintln!("left out: tgtd is not installed (Debian: apt-get install tgt)");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        // Each socket path has its own numbers, so any will do.
        let control = "1".to_owned();
        // A port that was free a moment ago; tgtd cannot be given a socket.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        std::fs::File::create(dir.path().join("lun")).unwrap().set_len(bytes).unwrap();
        let mut tgt = Self { child: Self::spawn(&dir, &control, port), dir, control, port };
        tgt.configure();
        Some(tgt)
    }

    fn spawn(dir: &TempDir, control: &str, port: u16) -> Child {
        Command::new(TGTD)
            .args(["-f", "-C", control, "--iscsi", &format!("portal=127.0.0.1:{port}")])
            .env("TGT_IPC_SOCKET", dir.path().join("ctl"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn configure(&mut self) {
        let began = Instant::now();
        while !self.try_adm(&["--op", "show", "--mode", "target"]) {
            assert!(
                began.elapsed() < PATIENCE && self.child.try_wait().unwrap().is_none(),
                "tgtd does not answer"
            );
            std::thread::yield_now();
        }
        let lun = self.dir.path().join("lun");
        self.adm(&["--op", "new", "--mode", "target", "--tid", "1", "-T", TARGET]);
        self.adm(&[
            "--op",
            "new",
            "--mode",
            "logicalunit",
            "--tid",
            "1",
            "--lun",
            "1",
            "-b",
            lun.to_str().unwrap(),
        ]);
        for key in ["HeaderDigest", "DataDigest"] {
            self.adm(&[
                "--op",
                "update",
                "--mode",
                "target",
                "--tid",
                "1",
                "--name",
                key,
                "--value",
                "CRC32C,None",
            ]);
        }
        self.adm(&["--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL"]);
    }

    fn try_adm(&self, args: &[&str]) -> bool {
        Command::new(TGTADM)
            .args(["-C", &self.control, "--lld", "iscsi"])
            .args(args)
            .env("TGT_IPC_SOCKET", self.dir.path().join("ctl"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .success()
    }

    /// Runs tgtadm.
    pub fn adm(&self, args: &[&str]) {
        assert!(self.try_adm(args), "tgtadm {args:?}");
    }

    /// Kills it, like a crash.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again on the same port and LUN.
    pub fn restart(&mut self) {
        let _ = std::fs::remove_file(self.dir.path().join("ctl"));
        self.child = Self::spawn(&self.dir, &self.control, self.port);
        self.configure();
    }

    /// The URL of its LUN, with `rest` between scheme and host and `query` at the end.
    pub fn url(&self, user: &str, query: &str) -> String {
        format!("iscsi://{user}127.0.0.1:{}/{TARGET}/1{query}", self.port)
    }

    pub fn options(&self, user: &str, query: &str) -> Options {
        IscsiUrl::parse(&self.url(user, query)).unwrap().options().unwrap()
    }

    pub fn session(&self, query: &str) -> Session {
        Session::connect(self.options("", query)).unwrap()
    }

    /// The contents of the LUN's file.
    pub fn medium(&self) -> Vec<u8> {
        std::fs::read(self.dir.path().join("lun")).unwrap()
    }
}

impl Drop for Tgt {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reproducible bytes.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
