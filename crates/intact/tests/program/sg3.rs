//! sg3-utils against our target: programs that know the byte positions of the standards by themselves decode what our units
//! say, and do to them what they are for. They reach us by libiscsi, through a library of ours that takes the place of the
//! kernel's SCSI generic driver (`conform/sg3`).

use crate::support::sg3::Sg3;

/// Words of a decoder that meets what it does not expect.
const COMPLAINTS: &[&str] = &[
    "malformed",
    "unexpected",
    "too short",
    "truncated",
    "bad ",
    "corrupt",
    "strange",
    "Illegal request",
    "[0x0]?",
];

/// Units 0 (plain), 1 (with protection information) and 2 (blocks of 4 KiB).
struct Bench(Sg3);

fn bench() -> Option<Bench> {
    let more = "hosts_set_access_states = true\nmanagement_url = \"https://example.com/disks\"";
    Sg3::new(more, &["ram:64M", "ram:64M,pi=1", "ram:64M,block=4096"]).map(Bench)
}

impl Bench {
    /// It ends well, complains of nothing and says all of `words`.
    #[track_caller]
    fn says(&self, line: &str, words: &[&str]) -> String {
        let ended = self.0.run(line);
        assert_eq!(ended.code, Some(0), "{line}: {}", ended.text);
        for complaint in COMPLAINTS {
            assert!(!ended.text.contains(complaint), "{line}: `{complaint}`:\n{}", ended.text);
        }
        for word in words {
            assert!(ended.text.contains(word), "{line}: no `{word}`:\n{}", ended.text);
        }
        ended.text
    }
}

/// What units say of themselves.
// covers: INQ-01 VPD-00 VPD-83 VPD-85 VPD-86 VPD-88 VPD-8F VPD-B0 VPD-B1 VPD-B2 VPD-B7 MOD-01 ALU-01 GLB-01
#[test]
fn their_decoders_complain_of_nothing() {
    let Some(bench) = bench() else { return };
    for lun in 0..3 {
        let of = |line: &str| line.replace("{}", &format!("{{{lun}}}"));
        bench.says(&of("sg_inq {}"), &["[SPC-4]", "TPGS=3", "3PC=1", "CmdQue=1", "INTACT"]);
        let pages =
            ["Target port group: 0x1", ",t,0x0001", "WABEREQ=1", "thin provisioned", "Populate token"];
        bench.says(&of("sg_vpd -a {}"), &pages);
        bench.says(&of("sg_luns {}"), &["3 lun entries", "0002000000000000"]);
        bench.says(&of("sg_turs {}"), &[]);
        bench.says(&of("sg_requests {}"), &["No Sense"]);
        for opcode in
            ["Write atomic(16)", "Sanitize, block erase", "Compare and write", "Set target port groups"]
        {
            bench.says(&of("sg_opcodes {}"), &[opcode]);
        }
        bench.says(&of("sg_opcodes -t {}"), &["Abort task set", "Logical unit reset"]);
        bench.says(&of("sg_opcodes -o 0x48,1 {}"), &["48 a1 00 00 00 00 00 ff ff 00"]);
        for six in ["", " -6"] {
            for control in 0..3 {
                bench.says(
                    &of(&format!("sg_modes -a{six} -c {control} {{}}")),
                    &["Caching", "Power condition"],
                );
            }
        }
        bench.says(&of("sg_modes -l {}"), &["Control"]);
        bench.says(&of("sg_logs -A {}"), &["Informational exceptions"]);
        bench.says(&of("sg_rtpg -d -e {}"), &["active/optimized", "Implicit transition time: 0"]);
        bench.says(
            &of("sg_persist -c {}"),
            &["Specify Initiator Ports Capable(SIP_C): 1", "Exclusive Access: 1"],
        );
        bench.says(&of("sg_get_lba_status -l 0 {}"), &["deallocated"]);
        bench.says(&of("sg_copy_results -p {}"), &["Copy from block device to block device"]);
        bench.says(&of("sg_senddiag -t {}"), &["GOOD"]);
        bench.says(&of("sg_senddiag -l {}"), &["Supported diagnostic pages"]);
        bench.says(&of("sg_wr_mode -p 0xa {}"), &["0a 0a 02 10"]);
    }
    bench.says("sg_readcap -l {0}", &["prot_en=0", "lbprz=1", "Logical block length=512"]);
    bench.says("sg_readcap -l {1}", &["prot_en=1", "type 1 protection"]);
    bench.says("sg_readcap -l {2}", &["Logical block length=4096"]);
    bench.says("sg_vpd -p ei {1}", &["SPT=7", "GRD_CHK=1", "REF_CHK=1"]);
    bench.says("sg_vpd -p bl {0}", &["Maximum atomic transfer length: 2048 blocks"]);
    bench.says("sg_vpd -p mna {0}", &["https://example.com/disks"]);
}

/// What hosts do to them.
// covers: CAW-01 CAW-02 WSM-01 UNM-02 ORW-01 ATM-01 CPY-01 SAN-01 FMT-01 PR-01 PR-02 ALU-03 CDB-08
#[test]
fn their_programs_do_what_they_are_for() {
    let Some(bench) = bench() else { return };
    let block: Vec<u8> = (0..512u32).map(|n| n as u8 ^ 0x5a).collect();
    bench.0.file("block", &block);
    bench.0.file("eight", &block.repeat(8));
    bench.0.file("compare", &[vec![0; 512], block.clone()].concat());
    bench.0.file("pattern", &[0xab; 512]);
    let read = |lun: u16, lba: u64| {
        bench.says(&format!("sg_dd if={{{lun}}} of=out bs=512 count=1 skip={lba}"), &["1+0 records out"]);
        bench.0.contents("out")
    };
    bench.says("sg_compare_and_write -i compare -l 100 -n 1 -x 1024 {0}", &[]);
    assert_eq!(read(0, 100), block);
    let again = bench.0.run("sg_compare_and_write -i compare -l 100 -n 1 -x 1024 {0}");
    assert!(again.code == Some(14) && again.text.contains("Miscompare at byte offset: 0"), "{}", again.text);
    bench.says("sg_write_same --in=block -x 512 -l 200 -n 8 --16 {0}", &[]);
    assert_eq!(read(0, 207), block);
    bench.says("sg_write_same --ndob --16 -l 200 -n 4 {0}", &[]);
    assert_eq!((read(0, 203), read(0, 204)), (vec![0; 512], block.clone()));
    bench.says("sg_unmap -f --lba=204 --num=4 {0}", &[]);
    assert_eq!(read(0, 204), [0; 512]);
    bench.says("sg_write_x --atomic=0 -i eight --lba=64 --num=8 --16 {0}", &[]);
    assert_eq!(read(0, 71), block);
    bench.says("sg_write_x --or -i eight --lba=72 --num=8 --16 {0}", &[]);
    assert_eq!(read(0, 79), block);
    bench.says("sg_write_verify -i eight --lba=80 --num=8 --16 {0}", &[]);
    bench.says("sg_verify -l 64 -c 8 {0}", &[]);
    bench.says("sg_verify -l 64 -c 8 -E 3 -i block -n 512 {0}", &[]);
    bench.says("sg_seek -p -n 8 {0}", &[]);
    bench.says("sg_sync {0}", &[]);
    // From a plain unit to one with protection information, by the copy manager of either.
    bench.says("sg_xcopy if={0} of={1} bs=512 count=64 skip=64 seek=1000", &["64 blocks"]);
    assert_eq!(read(1, 1007), block);
    bench.says("sg_xcopy --on_dst if={0} of={1} bs=512 count=8 skip=64 seek=2000", &["8 blocks"]);
    assert_eq!(read(1, 2007), block);

    bench.says("sg_sanitize --overwrite --pattern=pattern -Q --wait {1}", &[]);
    assert_eq!(read(1, 1007), [0xab; 512]);
    bench.says("sg_sanitize --block -Q --wait {1}", &[]);
    assert_eq!(read(1, 1007), [0; 512]);
    bench.says("sg_format --format -Q --wait --fmtpinfo=0 {1}", &["Block size=512"]);
    bench.says("sg_readcap -l {1}", &["prot_en=0"]);

    bench.says("sg_persist -o -G -S abc {0}", &[]);
    bench.says("sg_persist -o -R -K abc -T 5 {0}", &[]);
    bench.says("sg_persist -r {0}", &["Key=0xabc", "Write Exclusive, registrants only"]);
    bench.says("sg_persist -s {0}", &["<< Reservation holder >>", "iqn.2004-10.com.example:sg3,i,0x"]);
    bench.says("sg_persist -o -L -K abc -T 5 {0}", &[]);
    bench.says("sg_persist -o -C -K abc {0}", &[]);
    bench.says("sg_persist -k {0}", &["NO registered reservation keys"]);

    // What an administrator writes on a unit, and a block that a test program marks.
    bench.0.file("label", b"printf 'shelf 7' | sg_ident --set \"$1\"\n");
    bench.says("sh label {0}", &[]);
    bench.says("sg_ident -A {0}", &["shelf 7"]);
    bench.says("sg_ident --clear {0}", &[]);
    assert!(!bench.says("sg_ident {0}", &[]).contains("shelf"));
    bench.says("sg_ident --itype=127 {0}", &["type: 0, Maximum information length: 512 bytes"]);
    bench.says("sg_vpd -p ei {0}", &["WU_SUP=1"]);
    for (line, lba) in [
        ("sg_write_long --wr_uncor --lba=300 {0}", 300),
        ("sg_write_long --16 --wr_uncor --lba=301 {0}", 301),
    ] {
        bench.says(line, &[]);
        let ended = bench.0.run(&format!("sg_verify -l {lba} -c 1 {{0}}"));
        let words = [format!("[{lba}]"), "marked bad by application client".to_owned()];
        assert!(
            ended.code != Some(0) && words.iter().all(|word| ended.text.contains(word)),
            "{}",
            ended.text
        );
    }
    assert_eq!(bench.0.run("sg_read_long --lba=300 --xfer_len=520 {0}").code, Some(9), "obsolete");
    bench.says("sg_write_same --in=block -x 512 -l 300 -n 2 --16 {0}", &[]);
    bench.says("sg_verify -l 300 -c 2 {0}", &[]);

    bench.says("sg_timestamp --srep {0}", &[]);
    bench.says("sg_timestamp --milliseconds=1600000000000 {0}", &[]);
    bench.says("sg_timestamp {0}", &["16000000"]);

    bench.says("sg_stpg -s {0}", &[]);
    bench.says("sg_rtpg -d {0}", &["(standby)"]);
    assert_ne!(bench.0.run("sg_verify -l 0 -c 8 {0}").code, Some(0), "standby");
    bench.says("sg_stpg -a {0}", &[]);
    bench.says("sg_rtpg -d {0}", &["active/non optimized"]);
    bench.says("sg_start --stop {0}", &[]);
    assert_eq!(bench.0.run("sg_turs {0}").code, Some(2));
    bench.says("sg_start --start {0}", &[]);
    bench.says("sg_turs {0}", &[]);
}
