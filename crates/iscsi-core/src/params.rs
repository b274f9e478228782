//! The operational parameters of sessions and connections, and the bounds that configuration puts on them (RFC 7143 13).

use iscsi_wire::Cid;

use crate::digest::DigestScope;
use crate::error::Level;

/// What we accept for one of the two digests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DigestPolicy {
    /// `None` only.
    Off,
    /// `CRC32C,None`: used whenever the peer can. The default.
    #[default]
    Offered,
    /// `CRC32C` only: a login fails if it is not agreed on.
    Required,
}

impl DigestPolicy {
    /// The values as they are offered, best first.
    //= rfc7143 13.1 DIG-01 DIG-06
    //= windows logins HST-04
    pub fn values(self) -> &'static [&'static str] {
        match self {
            Self::Off => &["None"],
            Self::Offered => &["CRC32C", "None"],
            Self::Required => &["CRC32C"],
        }
    }

    /// Its name in configuration.
    pub const fn setting(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Offered => "offered",
            Self::Required => "required",
        }
    }
}

/// How the end of many tasks at once is reported (TaskReporting, RFC 7143 13.23), least first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskReporting {
    /// `RFC3720`: the answer to an abort of many tasks waits for the data still owed for them (RFC 7143 4.2.3.3).
    #[default]
    Rfc3720,
    /// `ResponseFence`: the answer to such a request keeps its order among the responses of all connections (4.2.2.3).
    ResponseFence,
    /// `FastAbort`: the same, and nothing waits for owed data (4.2.3.4).
    FastAbort,
}

impl TaskReporting {
    /// Its name in configuration.
    pub const fn setting(self) -> &'static str {
        match self {
            Self::Rfc3720 => "rfc3720",
            Self::ResponseFence => "response_fence",
            Self::FastAbort => "fast_abort",
        }
    }

    /// The value on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rfc3720 => "RFC3720",
            Self::ResponseFence => "ResponseFence",
            Self::FastAbort => "FastAbort",
        }
    }

    /// The meaning of a value on the wire; any other value means the default.
    pub fn from_value(value: &str) -> Self {
        match value {
            "ResponseFence" => Self::ResponseFence,
            "FastAbort" => Self::FastAbort,
            _ => Self::Rfc3720,
        }
    }

    /// All values up to this one as they are offered, best first: an end that supports one supports the lesser ones.
    pub const fn values(self) -> &'static [&'static str] {
        match self {
            Self::Rfc3720 => &["RFC3720"],
            Self::ResponseFence => &["ResponseFence", "RFC3720"],
            Self::FastAbort => &["FastAbort", "ResponseFence", "RFC3720"],
        }
    }
}

/// What one side wants or allows in a negotiation. The defaults are generous; those of the standard date from 2004.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// HeaderDigest.
    pub header_digest: DigestPolicy,
    /// DataDigest.
    pub data_digest: DigestPolicy,
    /// MaxRecvDataSegmentLength that we declare, bytes. Default 256 KiB.
    pub max_recv_data_segment_length: u32,
    /// Bursts. Default: MaxBurstLength 1 MiB, FirstBurstLength 256 KiB, InitialR2T `No`, ImmediateData `Yes`, MaxOutstandingR2T 8.
    pub bursts: Bursts,
    /// MaxConnections of a session. Default 1.
    pub max_connections: u16,
    /// DefaultTime2Wait, seconds. Default 2.
    pub default_time2wait_s: u16,
    /// DefaultTime2Retain, seconds. Default 20.
    pub default_time2retain_s: u16,
    /// DataPDUInOrder and DataSequenceInOrder: false allows any order. It counts at an ErrorRecoveryLevel of 0 only: above it the
    /// value offered is `Yes`. Default `Yes` for both.
    pub data_in_order: DataOrder,
    /// ErrorRecoveryLevel, 0 to 2. Default 0.
    pub error_recovery_level: u8,
    /// The highest TaskReporting. Default RFC3720.
    pub task_reporting: TaskReporting,
    /// iSCSIProtocolLevel, up to [`PROTOCOL_LEVEL`]. Default 1.
    pub protocol_level: u8,
    /// The private key [`ALLEGIANCE_FREE`]. Default: no asymmetric use.
    pub asymmetric: Asymmetric,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            header_digest: DigestPolicy::Offered,
            data_digest: DigestPolicy::Offered,
            max_recv_data_segment_length: 256 * 1024,
            bursts: Bursts {
                max_burst_length: 1024 * 1024,
                first_burst_length: 256 * 1024,
                initial_r2t: false,
                immediate_data: true,
                max_outstanding_r2t: 8,
            },
            max_connections: 1,
            default_time2wait_s: 2,
            default_time2retain_s: 20,
            data_in_order: DataOrder::STRICT,
            error_recovery_level: 0,
            task_reporting: TaskReporting::Rfc3720,
            protocol_level: 1,
            asymmetric: Asymmetric::No,
        }
    }
}

/// Highest iSCSIProtocolLevel that is defined (RFC 7144).
pub const PROTOCOL_LEVEL: u8 = 2;

/// Private key (RFC 7143 13.22) for the asymmetric use of a session's connections, a list; `No` unless negotiated. With both other
/// values commands travel on connections with an even CID, and their R2Ts, Data-In and responses on those with an odd one; the rule
/// of connection allegiance (RFC 7143 4.2.5.1) does not apply.
///
/// | value | Data-Out | the odd connection of a command |
/// |---|---|---|
/// | `Yes` | where its R2T came | the one that belongs to the even one of the command |
/// | `Halves` | on an even one: each half of the connections has a direction (thesis of 2004, 4.3.3) | the next in turn |
pub const ALLEGIANCE_FREE: &str = "X-com.intact.AllegianceFree";

/// The values of [`ALLEGIANCE_FREE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asymmetric {
    /// Every connection carries everything.
    #[default]
    No,
    /// `Yes`.
    Pairs,
    /// `Halves`.
    Halves,
}

impl Asymmetric {
    /// The value on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::No => "No",
            Self::Pairs => "Yes",
            Self::Halves => "Halves",
        }
    }

    /// The meaning of a value on the wire; any unknown one means no asymmetric use.
    pub fn from_value(value: &str) -> Self {
        [Self::Pairs, Self::Halves].into_iter().find(|known| known.as_str() == value).unwrap_or_default()
    }

    /// What an end that prefers this one offers and agrees to, best first: if it knows one asymmetric use, it knows both.
    pub(crate) const fn values(self) -> &'static [&'static str] {
        match self {
            Self::No => &["No"],
            Self::Pairs => &["Yes", "Halves", "No"],
            Self::Halves => &["Halves", "Yes", "No"],
        }
    }

    /// Whether commands and their data take different connections.
    pub fn is_used(self) -> bool {
        self != Self::No
    }

    /// Whether each half of the connections has a direction.
    pub fn has_halves(self) -> bool {
        self == Self::Halves
    }
}

/// Whether a connection carries data and status in the asymmetric use of [`ALLEGIANCE_FREE`]; the others carry commands.
pub(crate) fn carries_data(cid: Cid) -> bool {
    cid.0 % 2 == 1
}

/// The keys that say how data travels in bursts, in either direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bursts {
    /// MaxBurstLength, bytes.
    pub max_burst_length: u32,
    /// FirstBurstLength: unsolicited data of a command, bytes.
    pub first_burst_length: u32,
    /// InitialR2T: false allows write commands to send unsolicited data.
    pub initial_r2t: bool,
    /// ImmediateData: data in the command PDU.
    pub immediate_data: bool,
    /// MaxOutstandingR2T per task.
    pub max_outstanding_r2t: u16,
}

/// In which order data must come, in either direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataOrder {
    /// DataPDUInOrder: the PDUs of a sequence come in the order of their bytes.
    pub pdus: bool,
    /// DataSequenceInOrder: the sequences of a command come in the order of their bytes.
    pub sequences: bool,
}

impl DataOrder {
    /// Everything in the order of its bytes.
    pub const STRICT: Self = Self { pdus: true, sequences: true };

    /// Whether the offset of every PDU is known beforehand.
    pub fn is_strict(self) -> bool {
        self.pdus && self.sequences
    }
}

//= firmware login HST-06
/// The operational parameters in effect, initially the standard's defaults (RFC 7143 13).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Digests of this connection, both directions.
    pub digests: DigestScope,
    /// MaxRecvDataSegmentLength that the peer declared: the most data we may send in a PDU, bytes.
    pub max_send_data_segment_length: u32,
    /// MaxRecvDataSegmentLength that we declared, bytes.
    pub max_recv_data_segment_length: u32,
    /// Bursts.
    pub bursts: Bursts,
    /// MaxConnections.
    pub max_connections: u16,
    /// DefaultTime2Wait, seconds.
    pub default_time2wait_s: u16,
    /// DefaultTime2Retain, seconds.
    pub default_time2retain_s: u16,
    /// DataPDUInOrder and DataSequenceInOrder, as agreed on: see [`Params::data_order`] for what follows from them.
    pub data_in_order: DataOrder,
    /// ErrorRecoveryLevel.
    pub error_recovery_level: u8,
    /// iSCSIProtocolLevel.
    pub protocol_level: u8,
    /// TaskReporting.
    pub task_reporting: TaskReporting,
    /// [`ALLEGIANCE_FREE`].
    pub asymmetric: Asymmetric,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            digests: DigestScope::NONE,
            max_send_data_segment_length: 8192,
            max_recv_data_segment_length: 8192,
            bursts: Bursts {
                max_burst_length: 262_144,
                first_burst_length: 65_536,
                initial_r2t: true,
                immediate_data: true,
                max_outstanding_r2t: 1,
            },
            max_connections: 1,
            default_time2wait_s: 2,
            default_time2retain_s: 20,
            data_in_order: DataOrder::STRICT,
            error_recovery_level: 0,
            protocol_level: 1,
            task_reporting: TaskReporting::Rfc3720,
            asymmetric: Asymmetric::No,
        }
    }
}

impl Params {
    /// What the ErrorRecoveryLevel can recover.
    pub fn level(&self) -> Level {
        Level::new(self.error_recovery_level)
    }

    /// The order in effect. Above ErrorRecoveryLevel 0 it is the strict one: a missing PDU is found, and requested again, by the
    /// place that it must have between its neighbours.
    //= rfc7143 13.18 KEY-17
    //= rfc7143 13.19 KEY-18
    pub fn data_order(&self) -> DataOrder {
        if self.level().recovers_pdus() { DataOrder::STRICT } else { self.data_in_order }
    }

    /// FirstBurstLength as it applies: at most MaxBurstLength (RFC 7143 13.14).
    pub fn effective_first_burst(&self) -> u32 {
        self.bursts.first_burst_length.min(self.bursts.max_burst_length)
    }

    /// Run length, bytes, such that every data segment of a write consists of whole runs, whether its PDU carries immediate data,
    /// unsolicited data or part of a burst: the digests of PDUs then follow from those of runs. If that length would be very
    /// short, a longer one is returned, and only most segments consist of whole runs.
    pub fn write_run_bytes(&self) -> u32 {
        const MIN_RUN_BYTES: u32 = 4096;
        let first = if self.unsolicited_data_possible() { self.effective_first_burst() } else { 0 };
        let lengths = [self.max_send_data_segment_length, self.bursts.max_burst_length, first];
        match lengths.into_iter().fold(0, greatest_common_divisor) {
            run if run >= MIN_RUN_BYTES => run,
            _ => lengths.into_iter().filter(|&bytes| bytes > 0).min().unwrap_or(MIN_RUN_BYTES),
        }
    }

    /// Whether FirstBurstLength has a meaning in this session.
    pub fn unsolicited_data_possible(&self) -> bool {
        !self.bursts.initial_r2t || self.bursts.immediate_data
    }
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    let (mut a, mut b) = (a, b);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_data_segment_of_a_write_is_made_of_whole_runs() {
        let run = |max_send_data_segment_length, first_burst_length, max_burst_length, immediate_data| {
            Params {
                max_send_data_segment_length,
                bursts: Bursts {
                    first_burst_length,
                    max_burst_length,
                    immediate_data,
                    ..Params::default().bursts
                },
                ..Params::default()
            }
            .write_run_bytes()
        };
        assert_eq!(run(8192, 65_536, 262_144, true), 8192);
        assert_eq!(run(262_144, 262_144, 1 << 20, true), 262_144);
        assert_eq!(run(262_144, 65_536, 1 << 20, true), 65_536);
        assert_eq!(run(266_240, 65_536, 1 << 20, true), 4096, "bursts that are no whole segments");
        assert_eq!(run(262_144, 1000, 1 << 20, false), 262_144, "nothing goes unasked");
        assert_eq!(run(262_144, 1000, 1 << 20, true), 1000, "too short a divisor");
        assert_eq!(run(512, 512, 512, true), 512);
    }
}
