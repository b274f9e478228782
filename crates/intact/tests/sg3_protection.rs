//! Protection information as sg3-utils read and write it: where each field lies, and what a failed check looks like to an
//! independent decoder. They reach us by libiscsi, through `conform/sg3`.

mod common;
mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use common::Serve;
use integrity::crc16_t10dif;
use integrity::t10::Tuple;
use support::{Ended, finish, left_out, need, program};

const TARGET: &str = "iqn.2026-01.org.example:disk";

/// The way from sg3-utils to us, built; `None` where something for it is missing.
fn bridge(directory: &Path) -> Option<PathBuf> {
    let header = Path::new("/usr/include/iscsi/iscsi.h").exists();
    if !(need("sg_readcap", "sg3-utils") && need("cc", "gcc")) {
        return None;
    }
    if !header && !left_out("libiscsi's header is not installed (Debian: apt-get install libiscsi-dev)") {
        return None;
    }
    let (library, source) = (
        directory.join("sg_iscsi.so"),
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conform/sg3/sg_iscsi.c"),
    );
    let mut compile = program("cc", Duration::from_secs(60));
    compile.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).args(["-liscsi", "-ldl"]);
    finish(compile).well();
    Some(library)
}

struct Lab {
    bridge: PathBuf,
    directory: tempfile::TempDir,
    serve: Serve,
}

impl Lab {
    fn new(luns: &[&str]) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let bridge = bridge(directory.path())?;
        let mut arguments = vec!["--target", TARGET];
        luns.iter().for_each(|lun| arguments.extend(["--lun", *lun]));
        let serve = Serve::start(directory.path(), &arguments);
        Some(Self { bridge, directory, serve })
    }

    /// Runs a program of sg3-utils on a LUN, which is the argument `URL` or the last one.
    fn sg(&self, name: &str, lun: usize, arguments: &str) -> Ended {
        let url = format!("iscsi://{}/{TARGET}/{lun}", self.serve.portal());
        let mut command = program("env", Duration::from_secs(60));
        command.arg(format!("LD_PRELOAD={}", self.bridge.display())).arg(name);
        let placed = arguments.split_whitespace().any(|argument| argument == "URL");
        for argument in arguments.split_whitespace() {
            command.arg(if argument == "URL" { &url } else { argument });
        }
        if !placed {
            command.arg(&url);
        }
        finish(command)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    }
}

// covers: PI-01 VPD-86
#[test]
fn pi_01_sg3_utils_read_what_a_unit_says_of_its_protection_information() {
    let luns = ["ram:4M,pi=0", "ram:4M,pi=1", "ram:4M,pi=2,block=4096", "ram:4M,pi=3", "ram:4M"];
    let Some(lab) = Lab::new(&luns) else { return };
    for (lun, capacity) in [
        "prot_en=0, p_type=0, p_i_exponent=0",
        "prot_en=1, p_type=0, p_i_exponent=0 [type 1 protection]",
        "prot_en=1, p_type=1, p_i_exponent=0 [type 2 protection]",
        "prot_en=1, p_type=2, p_i_exponent=0 [type 3 protection]",
        "prot_en=0, p_type=0, p_i_exponent=0",
    ]
    .iter()
    .enumerate()
    {
        let text = lab.sg("sg_readcap", lun, "--long").well();
        assert!(text.lines().any(|line| line.trim_end().ends_with(capacity)), "LUN {lun}: {text}");
        let (protect, checks) = match lun {
            4 => ("Protect=0", "SPT=0 GRD_CHK=0 APP_CHK=0 REF_CHK=0"),
            _ => ("Protect=1", "SPT=7 GRD_CHK=1 APP_CHK=1 REF_CHK=1"),
        };
        let text = lab.sg("sg_inq", lun, "").well();
        assert!(text.contains(protect), "LUN {lun}: {text}");
        let text = lab.sg("sg_vpd", lun, "--page=ei").well();
        assert!(text.contains(checks), "LUN {lun}: {text}");
    }
}

// covers: PI-09 PI-14 PI-16
#[test]
fn pi_16_blocks_with_tuples_go_through_sg3_utils_and_failures_are_decoded() {
    let Some(lab) = Lab::new(&["ram:4M,pi=1", "ram:4M", "ram:4M,pi=2"]) else { return };
    let data: Vec<u8> = (0..512u32).map(|at| (at * 7) as u8).collect();
    let good = Tuple { guard: crc16_t10dif(&data), app_tag: 0x0102, ref_tag: 3 };
    let (write, read) = (
        "8a 20 00 00 00 00 00 00 00 03 00 00 00 01 00 00",
        "88 20 00 00 00 00 00 00 00 03 00 00 00 01 00 00",
    );
    let block = |tuple: Tuple| [&data[..], &tuple.to_bytes()].concat();
    for (tuple, said) in [
        (good, "Good"),
        (Tuple { guard: good.guard ^ 1, ..good }, "guard check failed"),
        (Tuple { ref_tag: 4, ..good }, "reference tag check failed"),
    ] {
        let file = lab.file("block", &block(tuple));
        let ended = lab.sg("sg_raw", 0, &format!("-s 520 -i {file} URL {write}"));
        assert!(ended.text.contains(said), "{said}: {}", ended.text);
        assert!(said == "Good" || ended.text.contains("Info fld=0x3"), "{}", ended.text);
    }
    let back = lab.file("back", &[]);
    lab.sg("sg_raw", 0, &format!("-r 520 -o {back} URL {read}")).well();
    assert!(std::fs::read(&back).unwrap() == block(good));
    // VERIFY with VRPROTECT 001b: taken, refused without protection information, and in type 2 only with 32 bytes.
    lab.sg("sg_verify", 0, "--16 --vrprotect=1 --count=8").well();
    assert_eq!(lab.sg("sg_verify", 1, "--16 --vrprotect=1 --count=8").code, Some(5));
    assert_eq!(lab.sg("sg_verify", 2, "--16 --vrprotect=1 --count=8").code, Some(9));
    // FMTPINFO and PROTECTION FIELD USAGE of all types.
    for (format, type_) in [
        ("--fmtpinfo=3 --pfu=1", "p_type=2"),
        ("--fmtpinfo=3", "p_type=1"),
        ("--fmtpinfo=2", "prot_en=1, p_type=0"),
        ("--fmtpinfo=0", "prot_en=0"),
    ] {
        lab.sg("sg_format", 0, &format!("--format --quick --early {format}")).well();
        lab.sg("sg_turs", 0, "").well();
        let text = lab.sg("sg_readcap", 0, "--long").well();
        assert!(text.contains(type_), "{format}: {text}");
    }
}
