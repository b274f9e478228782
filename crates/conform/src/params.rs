//! The operational parameters that result from a login, as the initiator understands them (RFC 7143 13).

use crate::login::{LoginScript, value_of};
use iscsi_wire::{keys, parse_bool, parse_number};

/// How data for writes is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteParams {
    /// MaxBurstLength in bytes.
    pub max_burst_length: u32,
    /// FirstBurstLength in bytes.
    pub first_burst_length: u32,
    /// InitialR2T.
    pub initial_r2t: bool,
    /// ImmediateData.
    pub immediate_data: bool,
    /// MaxOutstandingR2T.
    pub max_outstanding_r2t: u32,
}

/// Parameters in effect. A parameter that neither side named has the standard's default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// HeaderDigest=CRC32C.
    pub header_digest: bool,
    /// DataDigest=CRC32C.
    pub data_digest: bool,
    /// Declared by the target: the most data in a PDU to it, in bytes.
    pub max_send_data_segment_length: u32,
    /// Declared by us, in bytes.
    pub max_recv_data_segment_length: u32,
    /// How data for writes is sent.
    pub writes: WriteParams,
    data_pdu_in_order: bool,
    data_sequence_in_order: bool,
    /// MaxConnections.
    pub max_connections: u32,
    /// ErrorRecoveryLevel.
    pub error_recovery_level: u32,
    /// DefaultTime2Wait in seconds.
    pub time2wait: u32,
    /// DefaultTime2Retain in seconds.
    pub time2retain: u32,
    /// iSCSIProtocolLevel.
    pub protocol_level: u32,
    /// TaskReporting.
    pub task_reporting: String,
}

impl Params {
    /// DataPDUInOrder.
    pub fn data_pdu_in_order(&self) -> bool {
        self.data_pdu_in_order
    }

    /// DataSequenceInOrder.
    pub fn data_sequence_in_order(&self) -> bool {
        self.data_sequence_in_order
    }

    /// From our offers, the target's pairs, and our answers.
    pub fn of(script: &LoginScript, theirs: &[(String, String)], accepted: &[(String, String)]) -> Self {
        // The answer decides the result of a negotiation, whichever side sent it.
        let result = |key: &str| {
            let answer = if value_of(&script.keys, key).is_some() { theirs } else { accepted };
            value_of(answer, key)
        };
        let number = |key: &str, default: u32| {
            let value = result(key).and_then(|value| parse_number(value).ok());
            value.and_then(|value| u32::try_from(value).ok()).unwrap_or(default)
        };
        let boolean = |key: &str, default: bool| {
            result(key).and_then(|value| parse_bool(value).ok()).unwrap_or(default)
        };
        let declared = |pairs: &[(String, String)]| {
            let value = value_of(pairs, keys::MAX_RECV_DATA_SEGMENT_LENGTH);
            let value = value.and_then(|value| parse_number(value).ok());
            value.and_then(|value| u32::try_from(value).ok()).unwrap_or(8192)
        };
        Params {
            header_digest: result(keys::HEADER_DIGEST) == Some(keys::CRC32C),
            data_digest: result(keys::DATA_DIGEST) == Some(keys::CRC32C),
            max_send_data_segment_length: declared(theirs),
            max_recv_data_segment_length: declared(&script.keys),
            writes: WriteParams {
                max_burst_length: number(keys::MAX_BURST_LENGTH, 262_144),
                first_burst_length: number(keys::FIRST_BURST_LENGTH, 65_536),
                initial_r2t: boolean(keys::INITIAL_R2T, true),
                immediate_data: boolean(keys::IMMEDIATE_DATA, true),
                max_outstanding_r2t: number(keys::MAX_OUTSTANDING_R2T, 1),
            },
            data_pdu_in_order: boolean(keys::DATA_PDU_IN_ORDER, true),
            data_sequence_in_order: boolean(keys::DATA_SEQUENCE_IN_ORDER, true),
            max_connections: number(keys::MAX_CONNECTIONS, 1),
            error_recovery_level: number(keys::ERROR_RECOVERY_LEVEL, 0),
            time2wait: number(keys::DEFAULT_TIME2WAIT, 2),
            time2retain: number(keys::DEFAULT_TIME2RETAIN, 20),
            protocol_level: number(keys::ISCSI_PROTOCOL_LEVEL, 1),
            task_reporting: result(keys::TASK_REPORTING).unwrap_or("RFC3720").to_owned(),
        }
    }
}
