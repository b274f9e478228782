//! A peer's PDUs into a login of the target, with and without CHAP: an initiator that cannot authenticate does not get in,
//! numbers increase by one, and every answer parses.

#![no_main]

#[path = "../../crates/iscsi-core/tests/support/policy.rs"]
#[allow(dead_code)]
mod policy;

use iscsi_core::chap::{ChapAlgorithm, Credentials, Secret};
use iscsi_core::target::login::{AuthPolicy, LoginReply, TargetLogin};
use iscsi_core::wire::{Bhs, CmdSn, LoginResponse, LoginStage, LoginStatus, StatSn, TextPairs, Tsih};
use libfuzzer_sys::fuzz_target;
use policy::{Policy, login_request, rx};

/// Pieces of text of which a login is made; a byte of the input picks one.
const WORDS: &[&str] = &[
    "InitiatorName=iqn.2025-01.org.example:host\0",
    "TargetName=iqn.2025-01.org.example:disk\0",
    "SessionType=Discovery\0",
    "SessionType=Normal\0",
    "AuthMethod=CHAP\0",
    "AuthMethod=CHAP,None\0",
    "AuthMethod=None\0",
    "CHAP_A=5\0",
    "CHAP_A=8,7,6,5\0",
    "CHAP_N=user\0",
    "CHAP_R=0x00112233445566778899aabbccddeeff\0",
    "CHAP_I=1\0",
    "CHAP_C=0x00112233445566778899aabbccddeeff\0",
    "HeaderDigest=CRC32C,None\0",
    "DataDigest=CRC32C\0",
    "MaxRecvDataSegmentLength=262144\0",
    "MaxBurstLength=4096\0",
    "FirstBurstLength=65536\0",
    "InitialR2T=No\0",
    "ImmediateData=Yes\0",
    "MaxConnections=8\0",
    "ErrorRecoveryLevel=2\0",
    "DefaultTime2Wait=0\0",
    "MaxOutstandingR2T=1\0",
    "TaskReporting=RFC3720\0",
    "iSCSIProtocolLevel=2\0",
    "X-a=b\0",
    "X-c=d\0",
    "TargetName=",
    "\0",
];

fuzz_target!(|input: &[u8]| {
    let [choice, input @ ..] = input else { return };
    let chap = choice & 1 != 0;
    let mut policy = Policy::default();
    if chap {
        let mutual = Credentials { name: "disk".into(), secret: Secret::new("the secret of the target") };
        policy.auth = AuthPolicy::Chap {
            algorithms: vec![ChapAlgorithm::Sha256, ChapAlgorithm::Md5],
            mutual: (choice & 2 != 0).then_some(mutual),
        };
        policy.secrets.push(("user".into(), Secret::new("the secret of the initiator")));
    }
    if choice & 4 != 0 {
        policy.joins = Some(Default::default());
    }
    let mut login = TargetLogin::new(StatSn(0xffff_fffe));
    let mut stat_sn = StatSn(0xffff_fffe);
    let mut rest = input;
    // A PDU: flags, header change (position, value), a count of words, the words; 255 means a run of raw bytes.
    while let [flags, position, value, words, after @ ..] = rest {
        rest = after;
        let mut header = *login_request().to_bhs().as_bytes();
        header[1] = *flags;
        if *position < 48 {
            header[usize::from(*position)] ^= value;
        }
        let mut text = Vec::new();
        for _ in 0..words % 32 {
            match rest {
                [255, len, after @ ..] => {
                    let (raw, after) = after.split_at(usize::from(*len).min(after.len()));
                    text.extend_from_slice(raw);
                    rest = after;
                }
                [word, after @ ..] => {
                    text.extend_from_slice(WORDS[usize::from(*word) % WORDS.len()].as_bytes());
                    rest = after;
                }
                [] => break,
            }
        }
        text.truncate(8192);
        let pdu = match login.handle_pdu(&rx(Bhs::from_bytes(header), text), &mut policy) {
            LoginReply::Send(pdu) => pdu,
            LoginReply::Complete(established) => {
                assert!(!chap, "nobody here can answer the challenge");
                assert_eq!(established.stat_sn, stat_sn);
                assert!(established.params.error_recovery_level == 0);
                assert!(established.names.discovery || established.names.target.is_some());
                let pdu = established.response(Tsih(1), CmdSn(1), CmdSn(8));
                let response = LoginResponse::parse(&pdu.bhs).expect("we send what parses");
                assert_eq!((response.transit, response.nsg), (true, Some(LoginStage::FullFeature)));
                assert!(TextPairs::parse(&pdu.data.bytes()).is_ok() || response.numbers.stat_sn != StatSn(0xffff_fffe));
                return;
            }
            LoginReply::Refuse { response, refusal } => {
                if let Some(pdu) = response {
                    let response = LoginResponse::parse(&pdu.bhs).expect("we send what parses");
                    assert_eq!(response.status, refusal.status);
                    assert!(!refusal.status.is_success());
                }
                let told = refusal.to_string();
                assert!(!told.contains("the secret of"));
                return;
            }
        };
        let response = LoginResponse::parse(&pdu.bhs).expect("we send what parses");
        assert_eq!(response.numbers.stat_sn, stat_sn);
        assert_eq!(response.status, LoginStatus::Success);
        assert!(pdu.data.len() <= 8192);
        assert!(!response.transit || header[1] & 0x80 != 0, "T=1 answers T=1 only");
        assert!(response.nsg != Some(LoginStage::FullFeature), "that is for the session to say");
        stat_sn = stat_sn.next();
    }
});
