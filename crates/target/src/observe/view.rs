//! The data that the control socket reports: plain values with serde, the same in the server and in `intact ls`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::SystemTime;

use iscsi_core::keys::{Key, Value};
use iscsi_core::params::Params;
use scsi::AccessState;
use serde::{Deserialize, Serialize};

/// A running server for the control plane. Called on the control plane's thread; may wait for the shards.
pub trait ServerView: Send + Sync {
    /// The sessions, including discovery sessions.
    fn sessions(&self) -> Vec<SessionInfo>;
    /// The logical units of all targets.
    fn luns(&self) -> Vec<LunInfo>;
    /// The targets.
    fn targets(&self) -> Vec<TargetInfo>;
    /// Changes a logical unit in use, until the configuration is read again. Returns the changes, one per line.
    ///
    /// # Errors
    /// Why it cannot be changed, with the remedy; then nothing is changed.
    fn change_lun(&self, target: &str, lun: u16, change: LunChange) -> Result<Vec<String>, String>;
    /// The access states of the target port groups of a target, by unit and group.
    ///
    /// # Errors
    /// It is not served; with the remedy.
    fn access_states(&self, target: &str) -> Result<Vec<AccessStateInfo>, String>;
    /// Changes the state of a target port group for all units of a target. Returns the changes, one per line.
    ///
    /// # Errors
    /// Why it cannot be changed, with the remedy; then nothing is changed.
    fn set_access_state(&self, target: &str, group: u16, state: AccessState) -> Result<Vec<String>, String>;
}

/// The state of a target port group for one unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessStateInfo {
    /// LUN.
    pub lun: u16,
    /// Target port group, which is a target portal group tag.
    pub group: u16,
    /// [`AccessState::name`].
    pub state: String,
}

/// A change of a logical unit in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LunChange {
    /// A new size in bytes; `None`: the current size of its file or device.
    Size(Option<u64>),
    /// Whether it rejects writes.
    WriteProtect(bool),
    /// Accept writes again after a failed flush.
    Reopened,
}

/// What identifies a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionNames {
    /// TargetName; `None` in a discovery session.
    pub target: Option<String>,
    /// InitiatorName.
    pub initiator: String,
    /// ISID, 12 hexadecimal digits.
    pub isid: String,
    /// TSIH.
    pub tsih: u16,
    /// CHAP name with which the initiator authenticated.
    pub authenticated_as: Option<String>,
}

/// One session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// Who is in it.
    #[serde(flatten)]
    pub names: SessionNames,
    /// When it was created.
    #[serde(with = "rfc3339")]
    pub since: SystemTime,
    /// Its connections.
    pub connections: Vec<ConnectionInfo>,
    /// The results of negotiation for the session, each key under its name in the configuration.
    #[serde(flatten)]
    pub negotiated: BTreeMap<String, Negotiated>,
    /// Commands that the initiator may have outstanding.
    pub queue_depth: u32,
    /// Commands outstanding now.
    pub outstanding: u32,
    /// SCSI commands so far.
    pub commands: u64,
    /// Reject PDUs that we sent.
    pub rejects: u64,
    /// Lost connections whose tasks may still be reassigned.
    pub lost_connections: u32,
    /// The work of error recovery.
    pub recovery: RecoveryInfo,
}

/// The result of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Negotiated {
    /// A number: bytes, seconds or a count.
    Number(u64),
    /// Yes or no.
    Switch(bool),
    /// A word of the standard.
    Word(String),
}

impl Negotiated {
    /// The values in `params` of the keys of a session.
    pub(crate) fn all(params: &Params) -> BTreeMap<String, Self> {
        let of_session = Key::all().iter().filter(|key| !key.is_of_connection());
        let named = of_session.filter_map(|key| Some((key.setting()?.to_owned(), key.agreed(params)?)));
        named.map(|(name, value)| (name, value.into())).collect()
    }
}

impl From<Value> for Negotiated {
    fn from(value: Value) -> Self {
        match value {
            Value::Number(number) => Self::Number(number),
            Value::Switch(value) => Self::Switch(value),
            Value::Word(word) => Self::Word(word.to_owned()),
        }
    }
}

impl SessionInfo {
    /// MaxConnections.
    pub fn max_connections(&self) -> u64 {
        match self.negotiated.get("max_connections") {
            Some(Negotiated::Number(number)) => *number,
            _ => 1,
        }
    }
}

/// The work of error recovery in a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryInfo {
    /// SNACKs answered with the requested PDUs.
    pub snacks_answered: u64,
    /// SNACKs rejected.
    pub snacks_refused: u64,
    /// PDUs sent again for SNACKs.
    pub pdus_replayed: u64,
    /// R2Ts for lost data.
    pub r2ts_recovered: u64,
    /// Tasks reassigned to another connection.
    pub tasks_reassigned: u64,
    /// Tasks of lost connections that were not reassigned in time.
    pub tasks_expired: u64,
    /// Connections that failed.
    pub connections_lost: u64,
}

/// Where the work of a connection is done. If it arrives on the processor on which its shard runs, nothing of it crosses processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Number of its shard, the same for all connections of a session.
    pub shard: usize,
    /// The processor on which that shard ran when it was asked.
    pub runs_on: usize,
    /// The processor on which its last packet arrived, if the system says so.
    pub arrives_on: Option<u32>,
}

/// One connection of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionInfo {
    /// CID.
    pub cid: u16,
    /// Address of the initiator.
    pub peer: SocketAddr,
    /// The address of ours that it reached.
    pub portal: SocketAddr,
    /// Where its work is done; an older server does not say.
    pub place: Option<Place>,
    /// Whether header digests are on.
    pub header_digest: bool,
    /// Whether data digests are on.
    pub data_digest: bool,
    /// MaxRecvDataSegmentLength that we declared, bytes.
    pub max_recv_data_segment_length: u32,
    /// MaxRecvDataSegmentLength that the initiator declared, bytes.
    pub max_send_data_segment_length: u32,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Digests received that matched.
    pub digests_verified: u64,
    /// Digests received that did not match.
    pub digests_failed: u64,
}

/// What hosts see of a logical unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LunFace {
    /// Size, bytes.
    pub size_bytes: u64,
    /// Logical block, bytes.
    pub logical_block_bytes: u32,
    /// Serial number.
    pub serial: String,
    /// PRODUCT IDENTIFICATION.
    pub product: String,
    /// Whether writes are rejected.
    pub read_only: bool,
    /// Whether a volatile write cache is reported.
    pub write_cache: bool,
}

/// What hosts have done with a logical unit since the server started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LunCounts {
    /// Commands that read the medium.
    pub reads: u64,
    /// Commands that wrote the medium.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Commands that failed with an error of the medium or the server.
    pub errors: u64,
}

/// One logical unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LunInfo {
    /// TargetName.
    pub target: String,
    /// LUN.
    pub lun: u16,
    /// Where its blocks are stored, as in the configuration.
    pub store: String,
    /// Why its store is unavailable: then the unit is not ready, and its size is unknown.
    #[serde(default)]
    pub missing: Option<String>,
    /// What hosts see.
    #[serde(flatten)]
    pub face: LunFace,
    /// What hosts have done.
    #[serde(flatten)]
    pub counts: LunCounts,
    /// Why a flush failed: writes are rejected until the unit is opened again. `None`: no flush failed.
    #[serde(default)]
    pub failed_flush: Option<String>,
    /// How verification reads: `direct` bypasses the page cache, `cache-dropped` where the file system does not support that,
    /// `memory` where there is no other medium.
    #[serde(default)]
    pub medium_reads: String,
}

/// One target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetInfo {
    /// TargetName.
    pub name: String,
    /// TargetAlias.
    pub alias: Option<String>,
    /// Portals that serve it, `address:port,tag` each.
    pub portals: Vec<String>,
    /// How initiators authenticate: `none`, `chap` or `chap, mutual`.
    pub auth: String,
    /// Number of access rules; 0: any initiator may use it.
    pub access_rules: usize,
    /// Logical units.
    pub luns: usize,
    /// Current sessions.
    pub sessions: usize,
    /// Where initiators are redirected.
    pub redirect: Option<Vec<String>>,
}

/// `SystemTime` as RFC 3339 text in UTC with milliseconds.
pub(super) mod rfc3339 {
    use std::time::SystemTime;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_rfc3339_millis(*time))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_rfc3339(&text).map_err(D::Error::custom)
    }
}
