//! Protection information as sg3-utils read and write it: where each field lies, and what a failed check looks like to an
//! independent decoder. They reach us by libiscsi, through `conform/sg3`.

use crate::support::sg3::Sg3;
use integrity::crc16_t10dif;
use integrity::t10::Tuple;

// covers: PI-01 VPD-86
#[test]
fn pi_01_sg3_utils_read_what_a_unit_says_of_its_protection_information() {
    let luns = ["ram:4M,pi=0", "ram:4M,pi=1", "ram:4M,pi=2,block=4096", "ram:4M,pi=3", "ram:4M"];
    let Some(lab) = Sg3::new("", &luns) else { return };
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
        let text = lab.run(&format!("sg_readcap --long {{{lun}}}")).well();
        assert!(text.lines().any(|line| line.trim_end().ends_with(capacity)), "LUN {lun}: {text}");
        let (protect, checks) = match lun {
            4 => ("Protect=0", "SPT=0 GRD_CHK=0 APP_CHK=0 REF_CHK=0"),
            _ => ("Protect=1", "SPT=7 GRD_CHK=1 APP_CHK=1 REF_CHK=1"),
        };
        let text = lab.run(&format!("sg_inq {{{lun}}}")).well();
        assert!(text.contains(protect), "LUN {lun}: {text}");
        let text = lab.run(&format!("sg_vpd --page=ei {{{lun}}}")).well();
        assert!(text.contains(checks), "LUN {lun}: {text}");
    }
}

// covers: PI-09 PI-14 PI-16
#[test]
fn pi_16_blocks_with_tuples_go_through_sg3_utils_and_failures_are_decoded() {
    let Some(lab) = Sg3::new("", &["ram:4M,pi=1", "ram:4M", "ram:4M,pi=2"]) else { return };
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
        lab.file("block", &block(tuple));
        let ended = lab.run(&format!("sg_raw -s 520 -i block {{0}} {write}"));
        assert!(ended.text.contains(said), "{said}: {}", ended.text);
        assert!(said == "Good" || ended.text.contains("Info fld=0x3"), "{}", ended.text);
    }
    lab.run(&format!("sg_raw -r 520 -o back {{0}} {read}")).well();
    assert!(lab.contents("back") == block(good));
    // VERIFY with VRPROTECT 001b: taken, refused without protection information, and in type 2 only with 32 bytes.
    let verify = |lun: u16| lab.run(&format!("sg_verify --16 --vrprotect=1 --count=8 {{{lun}}}"));
    verify(0).well();
    assert_eq!((verify(1).code, verify(2).code), (Some(5), Some(9)));
    // FMTPINFO and PROTECTION FIELD USAGE of all types.
    for (format, type_) in [
        ("--fmtpinfo=3 --pfu=1", "p_type=2"),
        ("--fmtpinfo=3", "p_type=1"),
        ("--fmtpinfo=2", "prot_en=1, p_type=0"),
        ("--fmtpinfo=0", "prot_en=0"),
    ] {
        lab.run(&format!("sg_format --format --quick --early {format} {{0}}")).well();
        lab.run("sg_turs {0}").well();
        let text = lab.run("sg_readcap --long {0}").well();
        assert!(text.contains(type_), "{format}: {text}");
    }
}
