//! Key names of RFC 7143 (sections 12 and 13), RFC 7144 and RFC 4850, spelled as on the wire, and their form.

use super::{MAX_BINARY_ITEM_LENGTH, MAX_KEY_LENGTH, MAX_VALUE_LENGTH, max_encoded_length};

macro_rules! keys {
    ($($name:ident = $key:literal, $section:literal;)*) => {
        $(#[doc = concat!("`", $key, "` (", $section, ").")] pub const $name: &str = $key;)*

        /// Every key named in this module.
        pub const ALL: &[&str] = &[$($name),*];
    };
}

keys! {
    HEADER_DIGEST = "HeaderDigest", "RFC 7143 13.1";
    DATA_DIGEST = "DataDigest", "RFC 7143 13.1";
    MAX_CONNECTIONS = "MaxConnections", "RFC 7143 13.2";
    SEND_TARGETS = "SendTargets", "RFC 7143 13.3";
    TARGET_NAME = "TargetName", "RFC 7143 13.4";
    INITIATOR_NAME = "InitiatorName", "RFC 7143 13.5";
    TARGET_ALIAS = "TargetAlias", "RFC 7143 13.6";
    INITIATOR_ALIAS = "InitiatorAlias", "RFC 7143 13.7";
    TARGET_ADDRESS = "TargetAddress", "RFC 7143 13.8";
    TARGET_PORTAL_GROUP_TAG = "TargetPortalGroupTag", "RFC 7143 13.9";
    INITIAL_R2T = "InitialR2T", "RFC 7143 13.10";
    IMMEDIATE_DATA = "ImmediateData", "RFC 7143 13.11";
    MAX_RECV_DATA_SEGMENT_LENGTH = "MaxRecvDataSegmentLength", "RFC 7143 13.12";
    MAX_BURST_LENGTH = "MaxBurstLength", "RFC 7143 13.13";
    FIRST_BURST_LENGTH = "FirstBurstLength", "RFC 7143 13.14";
    DEFAULT_TIME2WAIT = "DefaultTime2Wait", "RFC 7143 13.15";
    DEFAULT_TIME2RETAIN = "DefaultTime2Retain", "RFC 7143 13.16";
    MAX_OUTSTANDING_R2T = "MaxOutstandingR2T", "RFC 7143 13.17";
    DATA_PDU_IN_ORDER = "DataPDUInOrder", "RFC 7143 13.18";
    DATA_SEQUENCE_IN_ORDER = "DataSequenceInOrder", "RFC 7143 13.19";
    ERROR_RECOVERY_LEVEL = "ErrorRecoveryLevel", "RFC 7143 13.20";
    SESSION_TYPE = "SessionType", "RFC 7143 13.21";
    TASK_REPORTING = "TaskReporting", "RFC 7143 13.23";
    ISCSI_PROTOCOL_LEVEL = "iSCSIProtocolLevel", "RFC 7143 13.24";
    IF_MARKER = "IFMarker", "RFC 7143 13.25, obsolete";
    OF_MARKER = "OFMarker", "RFC 7143 13.25, obsolete";
    IF_MARK_INT = "IFMarkInt", "RFC 7143 13.25, obsolete";
    OF_MARK_INT = "OFMarkInt", "RFC 7143 13.25, obsolete";
    NODE_ARCHITECTURE = "X#NodeArchitecture", "RFC 7143 13.26";
    AUTH_METHOD = "AuthMethod", "RFC 7143 12.1";
    CHAP_A = "CHAP_A", "RFC 7143 12.1.3";
    CHAP_I = "CHAP_I", "RFC 7143 12.1.3";
    CHAP_C = "CHAP_C", "RFC 7143 12.1.3";
    CHAP_N = "CHAP_N", "RFC 7143 12.1.3";
    CHAP_R = "CHAP_R", "RFC 7143 12.1.3";
    SRP_GROUP = "SRP_GROUP", "RFC 7143 12.1.2";
    SRP_U = "SRP_U", "RFC 7143 12.1.2";
    SRP_S = "SRP_s", "RFC 7143 12.1.2";
    SRP_A = "SRP_A", "RFC 7143 12.1.2";
    SRP_B = "SRP_B", "RFC 7143 12.1.2";
    SRP_M = "SRP_M", "RFC 7143 12.1.2";
    SRP_HM = "SRP_HM", "RFC 7143 12.1.2";
    TARGET_AUTH = "TargetAuth", "RFC 7143 12.1.2";
    KRB_AP_REQ = "KRB_AP_REQ", "RFC 7143 12.1.1";
    KRB_AP_REP = "KRB_AP_REP", "RFC 7143 12.1.1";
}

/// `NotUnderstood`: the answer to a key that the responder does not know.
pub const NOT_UNDERSTOOD: &str = "NotUnderstood";
/// `Irrelevant`: the answer to a key that does not matter in this negotiation.
pub const IRRELEVANT: &str = "Irrelevant";
/// `Reject`: the answer to a value that the responder cannot accept.
pub const REJECT: &str = "Reject";
/// `Yes`.
pub const YES: &str = "Yes";
/// `No`.
pub const NO: &str = "No";
/// `None`.
pub const NONE: &str = "None";
/// `CRC32C`.
pub const CRC32C: &str = "CRC32C";

/// Is it a key name by form: a letter, then letters, digits, `.`, `-`, `+`, `@`, `_`; at most 63 bytes?
///
/// The standard requires a capital first letter and an `X-` or `X#` prefix for extensions, but breaks the
/// first rule itself with `iSCSIProtocolLevel`. A lower-case key therefore parses, and is answered
/// NotUnderstood, which tells its sender more than a closed connection. `#` may only be the second character.
//= rfc7143 6.1 TXT-02
pub fn is_key_name(key: &str) -> bool {
    let label = |c: &u8| c.is_ascii_alphanumeric() || b".-+@_".contains(c);
    key.len() <= MAX_KEY_LENGTH
        && match key.as_bytes() {
            [b'X', b'#', rest @ ..] => rest.iter().all(label) && !rest.is_empty(),
            [first, rest @ ..] => first.is_ascii_alphabetic() && rest.iter().all(label),
            [] => false,
        }
}

/// Most bytes of the value of `key`: 255, or, for a key whose value is a long binary item, the hexadecimal
/// encoding of 1024 bytes.
///
/// Kerberos items may be longer still; a caller that offers that method passes a limit to
/// `TextPairs::parse_with_limit`.
//= rfc7143 12.1.3 SEC-05
pub fn max_value_length(key: &str) -> usize {
    match key {
        CHAP_C | CHAP_R | SRP_S | SRP_A | SRP_B | SRP_M | SRP_HM => {
            max_encoded_length(MAX_BINARY_ITEM_LENGTH)
        }
        _ => MAX_VALUE_LENGTH,
    }
}
