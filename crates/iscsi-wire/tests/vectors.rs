//! The golden vectors of vectors/pdus.txt, read both ways, and the lines of transcripts.

use iscsi_wire::*;
use std::collections::HashSet;

const VECTORS: &str = include_str!("../../../vectors/pdus.txt");

/// A field as it is written in the vectors.
trait Field {
    fn text(&self) -> String;
}

/// A field of a PDU's struct: one field of the vectors, or some that belong together.
trait Fields {
    fn put(&self, name: &'static str, all: &mut Vec<(&'static str, String)>);
}

impl<F: Field> Fields for F {
    fn put(&self, name: &'static str, all: &mut Vec<(&'static str, String)>) {
        all.push((name, self.text()));
    }
}

impl Fields for ResponseNumbers {
    fn put(&self, _: &'static str, all: &mut Vec<(&'static str, String)>) {
        let Self { stat_sn, exp_cmd_sn, max_cmd_sn } = self;
        stat_sn.put("stat_sn", all);
        exp_cmd_sn.put("exp_cmd_sn", all);
        max_cmd_sn.put("max_cmd_sn", all);
    }
}

impl Fields for ResidualCount {
    fn put(&self, name: &'static str, all: &mut Vec<(&'static str, String)>) {
        let Self { overflow, underflow, bytes } = self;
        let (o, u) = match name {
            "bidi_residual_count" => ("bidi_overflow", "bidi_underflow"),
            _ => ("overflow", "underflow"),
        };
        overflow.put(o, all);
        underflow.put(u, all);
        bytes.put(name, all);
    }
}

macro_rules! fields_in_hex {
    ($($type:ty: $digits:literal, $get:expr;)*) => {
        $(impl Field for $type {
            fn text(&self) -> String {
                let get: fn(&$type) -> u64 = $get;
                format!("{:0width$x}", get(self), width = $digits)
            }
        })*
    };
}

fields_in_hex! {
    bool: 1, |b| (*b).into();
    u8: 2, |n| (*n).into();
    u16: 4, |n| (*n).into();
    u32: 8, |n| (*n).into();
    CmdSn: 8, |n| n.0.into();
    StatSn: 8, |n| n.0.into();
    DataSn: 8, |n| n.0.into();
    R2tSn: 8, |n| n.0.into();
    Itt: 8, |n| n.0.into();
    Ttt: 8, |n| n.0.into();
    Lun: 16, |n| n.0;
    Tsih: 4, |n| n.0.into();
    Cid: 4, |n| n.0.into();
    TaskAttribute: 1, |c| c.code().into();
    TmfFunction: 2, |c| c.code().into();
    TmfResponse: 2, |c| c.code().into();
    LogoutReason: 2, |c| c.code().into();
    LogoutResponseCode: 2, |c| c.code().into();
    SnackType: 1, |c| c.code().into();
    RejectReason: 2, |c| c.code().into();
    LoginStage: 1, |c| c.code().into();
    LoginStatus: 4, |c| c.code().into();
    AsyncEvent: 2, |c| c.code().into();
}

impl Field for Option<LoginStage> {
    fn text(&self) -> String {
        self.map_or("-".into(), |stage| stage.text())
    }
}

impl<const N: usize> Field for [u8; N] {
    fn text(&self) -> String {
        self.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Field for Isid {
    fn text(&self) -> String {
        self.0.text()
    }
}

/// The fields of a PDU by their names; without `..` in the pattern, so that a new field cannot be forgotten.
macro_rules! fields {
    ($pdu:expr; $($name:ident { $($field:ident),* })*) => {
        match $pdu { $(Pdu::$name($name { $($field),* }) => {
            let mut all = Vec::new();
            $($field.put(stringify!($field), &mut all);)*
            all.sort_unstable();
            all
        })* }
    };
}

fn fields(pdu: &Pdu) -> Vec<(&'static str, String)> {
    let mut fields = fields!(pdu;
        NopOut { immediate, lun, itt, ttt, cmd_sn, exp_stat_sn }
        ScsiCommand { immediate, final_bit, read, write, attr, priority, lun, itt, expected_data_transfer_length, cmd_sn, exp_stat_sn, cdb }
        TaskManagementRequest { immediate, function, lun, itt, referenced_task_tag, cmd_sn, exp_stat_sn, ref_cmd_sn, exp_data_sn }
        LoginRequest { transit, continue_bit, csg, nsg, version_max, version_min, isid, tsih, itt, cid, cmd_sn, exp_stat_sn }
        TextRequest { immediate, final_bit, continue_bit, lun, itt, ttt, cmd_sn, exp_stat_sn }
        DataOut { final_bit, lun, itt, ttt, exp_stat_sn, data_sn, buffer_offset }
        LogoutRequest { immediate, reason, itt, cid, cmd_sn, exp_stat_sn }
        SnackRequest { snack_type, lun, itt, ttt, exp_stat_sn, beg_run, run_length }
        NopIn { lun, itt, ttt, numbers }
        ScsiResponse { response, status, itt, snack_tag, numbers, exp_data_sn, bidi_residual_count, residual_count }
        TaskManagementResponse { response, itt, numbers, additional }
        LoginResponse { transit, continue_bit, csg, nsg, version_max, version_active, isid, tsih, itt, numbers, status }
        TextResponse { final_bit, continue_bit, lun, itt, ttt, numbers }
        DataIn { final_bit, acknowledge, status_bit, status, lun, itt, ttt, numbers, data_sn, buffer_offset, residual_count }
        LogoutResponse { response, itt, numbers, time2wait, time2retain }
        R2t { lun, itt, ttt, numbers, r2t_sn, buffer_offset, desired_data_transfer_length }
        AsyncMessage { lun, numbers, event, vcode, parameter1, parameter2, parameter3 }
        Reject { reason, numbers, data_sn }
    );
    // A field of four bits, kept in a byte.
    for (_, text) in fields.iter_mut().filter(|(name, _)| *name == "priority") {
        *text = text.split_off(1);
    }
    fields
}

/// One block of the file.
struct Vector {
    name: &'static str,
    title: &'static str,
    bhs: Bhs,
    ahs: Vec<u8>,
    data: usize,
    fields: Vec<(&'static str, String)>,
}

fn hex(text: &str) -> Vec<u8> {
    parse_binary(&format!("0x{}", text.replace(' ', "")), 1024).unwrap()
}

fn vectors() -> Vec<Vector> {
    let blocks = VECTORS.split("\n\n").skip(1);
    let vectors: Vec<_> = blocks
        .map(|block| {
            let line = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            let (name, title) = line("pdu").unwrap().split_once(' ').unwrap();
            let fields = line("fields").unwrap().split(' ');
            let mut fields: Vec<_> =
                fields.map(|f| f.split_once('=').unwrap()).map(|(n, v)| (n, v.into())).collect();
            fields.sort_unstable();
            Vector {
                name,
                title,
                bhs: Bhs::from_bytes(hex(line("bhs").unwrap()).try_into().unwrap()),
                ahs: line("ahs").map(hex).unwrap_or_default(),
                data: line("data").unwrap().parse().unwrap(),
                fields,
            }
        })
        .collect();
    assert!(vectors.len() >= 37, "{} vectors", vectors.len());
    vectors
}

// covers: PDU-01, PDU-02
#[test]
fn pdu_01_golden_vectors() {
    let mut seen = HashSet::new();
    for vector in vectors() {
        let name = vector.name;
        let pdu = Pdu::parse(&vector.bhs).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(pdu.opcode().name(), vector.title, "{name}");
        assert_eq!(fields(&pdu), vector.fields, "{name}");
        assert_eq!(vector.bhs.data_segment_length(), vector.data, "{name}");
        assert_eq!(vector.bhs.total_ahs_length(), vector.ahs.len(), "{name}");
        let mut written = pdu.to_bhs();
        written.set_data_segment_length(vector.data);
        written.set_total_ahs_length(vector.ahs.len());
        assert_eq!(written, vector.bhs, "{name}");
        assert!(parse_ahs(&vector.ahs).all(|ahs| ahs.is_ok()), "{name}");
        seen.insert(vector.title);
    }
    for opcode in Opcode::ALL {
        assert!(seen.contains(opcode.name()), "no vector of {}", opcode.name());
    }
}

/// A PDU as the operator of a session reads it.
#[test]
fn transcript_lines() {
    let lines: Vec<(&str, String)> =
        vectors().iter().map(|vector| (vector.name, one_line(&vector.bhs, &vector.ahs))).collect();
    let line = |name: &str| &lines.iter().find(|(n, _)| *n == name).unwrap().1;
    assert_eq!(line("nop_out_ping"), "NopOut I itt=17 cmd_sn=32 exp_stat_sn=49 data=4");
    assert_eq!(
        line("scsi_command_read32_with_extended_cdb"),
        "ScsiCommand itt=8 cmd_sn=13 exp_stat_sn=9 lun=0 F R edtl=4096 cdb=7f000000000000180009000000000000 \
         extended_cdb=00000000000000000000000000000001"
    );
    assert_eq!(
        line("scsi_command_bidirectional"),
        "ScsiCommand itt=9 cmd_sn=14 exp_stat_sn=9 lun=0 F R W edtl=4096 attr=HeadOfQueue \
         cdb=53000000000000000800000000000000 bidi_read_length=4096"
    );
    assert_eq!(
        line("task_management_abort_task"),
        "TaskManagementRequest I itt=64 cmd_sn=15 exp_stat_sn=10 function=AbortTask lun=1 referenced_task_tag=7 \
         ref_cmd_sn=12"
    );
    assert_eq!(
        line("login_request_leading_security"),
        "LoginRequest itt=1 T csg=0 nsg=1 isid=0x80a1b2c30001 tsih=0 cid=1 cmd_sn=1 exp_stat_sn=0 data=61"
    );
    assert_eq!(
        line("login_response_authentication_failure"),
        "LoginResponse itt=1 stat_sn=2 status=AuthenticationFailure csg=0 isid=0x80a1b2c30001 tsih=0 exp_cmd_sn=1 \
         max_cmd_sn=1"
    );
    assert_eq!(
        line("r2t"),
        "R2t itt=7 ttt=3 r2t_sn=1 offset=8192 len=8192 stat_sn=9 exp_cmd_sn=13 max_cmd_sn=44"
    );
    assert_eq!(
        line("data_in_with_status"),
        "DataIn itt=335544320 F data_sn=0 offset=0 stat_sn=24 status=0x00 underflow=512 exp_cmd_sn=21 max_cmd_sn=52 \
         data=1024"
    );
    assert_eq!(
        line("scsi_response_bidirectional_residuals"),
        "ScsiResponse itt=9 stat_sn=11 response=0x00 status=0x00 overflow=1024 bidi_overflow=512 snack_tag=153 \
         exp_data_sn=0 exp_cmd_sn=15 max_cmd_sn=44"
    );
    assert_eq!(
        line("reject_data_digest"),
        "Reject stat_sn=17 reason=DataDigestError data_sn=0 exp_cmd_sn=16 max_cmd_sn=44 data=48"
    );
    for (name, line) in &lines {
        assert!(!line.contains("Malformed") && !line.contains('\n'), "{name}: {line}");
    }
}

#[test]
fn transcript_of_what_does_not_parse() {
    let mut bytes = [0; 48];
    bytes[0] = 0x1f;
    let line = one_line(&Bhs::from_bytes(bytes), &[0, 9]);
    assert!(line.starts_with("Malformed (opcode 0x1f is not defined"), "{line}");
    assert!(line.contains("bhs=1f0000") && line.contains("the AHS chain does not end"), "{line}");
    bytes[0] = 0x41;
    bytes[1] = 7;
    assert!(one_line(&Bhs::from_bytes(bytes), &[]).contains("ATTR 0x7 is a reserved value"));
    assert!(format!("{:?}", Bhs::from_bytes(bytes)).starts_with("Bhs(ScsiCommand 4107"));
}

#[test]
fn status_qualifier_is_apart_from_the_struct() {
    let vector = vectors().into_iter().find(|v| v.title == "ScsiResponse").unwrap();
    let mut bhs = vector.bhs;
    ScsiResponse::set_status_qualifier(&mut bhs, 0xabcd);
    assert_eq!(bhs.as_bytes()[8..10], [0xab, 0xcd]);
    assert_eq!(ScsiResponse::status_qualifier(&bhs), 0xabcd);
    assert_eq!(ScsiResponse::parse(&bhs), ScsiResponse::parse(&vector.bhs));
}
