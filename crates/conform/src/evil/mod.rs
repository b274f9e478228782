//! A small, correct target on loopback, with hooks that break rules on demand, for testing initiators.
//!
//! One RAM disk as LUN 0; depending on configuration, several connections in a session and any ErrorRecoveryLevel.
//! It serves logins with CHAP, text, pings, task management, reads and writes, SNACKs and reassignments, and keeps
//! the rules unless a hook says otherwise. Its watch finds the rules that the *initiator* breaks meanwhile. Not
//! supported: everything that no row needs.

mod behaviour;
mod connection;
pub(crate) mod disk;
mod kept;
mod login;
mod recovery;
mod session;
pub(crate) mod task;
mod transfer;
mod watch;

pub use behaviour::{Act, Behaviour, Incoming, Scene};
pub use disk::BLOCK_SIZE;
pub(crate) use session::counts;

use crate::PeerError;
use crate::ledger::Finding;
use crate::link::{self, Dial, Link};
use crate::target::Credentials;
use crate::transcript::Transcript;
use disk::Disk;
use iscsi_wire::{Isid, Tsih};
use session::EvilSession;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a waiting thread checks whether it must end.
const POLL: Duration = Duration::from_millis(20);

/// How an evil target authenticates.
#[derive(Clone, Debug)]
pub struct EvilChap {
    /// The credentials that the initiator must prove; `None`: it need not.
    pub initiator: Option<Credentials>,
    /// The credentials that the target proves when asked to (mutual CHAP).
    pub target: Option<Credentials>,
    /// CHAP algorithms in use, best first.
    pub algorithms: Vec<u64>,
    /// Bytes of the challenge.
    pub challenge_length: usize,
}

impl Default for EvilChap {
    fn default() -> Self {
        Self { initiator: None, target: None, algorithms: vec![8, 7, 6, 5], challenge_length: 16 }
    }
}

/// What an evil target says beyond its answers, and in how many parts.
#[derive(Clone, Debug)]
pub struct EvilTexts {
    /// Keys that it proposes in its first operational response, unless they were offered; it waits for their
    /// answers.
    pub proposals: Vec<(String, String)>,
    /// Operational exchanges that it answers without granting a transition.
    pub hold_exchanges: usize,
    /// Where the text of its operational login responses is split into PDUs with C=1: lengths of the first parts
    /// in bytes.
    pub login_cuts: Vec<usize>,
    /// Maximum number of text bytes per Text Response.
    pub part_bytes: usize,
}

impl Default for EvilTexts {
    fn default() -> Self {
        Self { proposals: Vec::new(), hold_exchanges: 0, login_cuts: Vec::new(), part_bytes: usize::MAX }
    }
}

/// The properties of a good evil target.
#[derive(Clone, Debug)]
pub struct EvilConfig {
    /// TargetName.
    pub target_name: String,
    /// TargetPortalGroupTag.
    pub portal_group_tag: u16,
    /// Further names that discovery returns.
    pub more_names: Vec<String>,
    /// How it authenticates.
    pub chap: EvilChap,
    /// HeaderDigest values that it accepts.
    pub header_digest: Vec<&'static str>,
    /// DataDigest values that it accepts.
    pub data_digest: Vec<&'static str>,
    /// Upper limits for its results of the numerical keys (DefaultTime2Wait: lower limit), and its side of the
    /// booleans.
    pub keys: HashMap<&'static str, String>,
    /// TaskReporting values that it accepts.
    pub task_reporting: Vec<&'static str>,
    /// The first StatSN.
    pub first_stat_sn: u32,
    /// Commands in the window.
    pub window: u32,
    /// What its texts are.
    pub texts: EvilTexts,
    /// Bytes of the disk.
    pub disk_bytes: usize,
}

impl Default for EvilConfig {
    fn default() -> Self {
        use iscsi_wire::keys as k;
        let keys = [
            (k::MAX_RECV_DATA_SEGMENT_LENGTH, "65536"),
            (k::MAX_BURST_LENGTH, "262144"),
            (k::FIRST_BURST_LENGTH, "65536"),
            (k::MAX_OUTSTANDING_R2T, "4"),
            (k::MAX_CONNECTIONS, "1"),
            (k::ERROR_RECOVERY_LEVEL, "0"),
            (k::DEFAULT_TIME2WAIT, "0"),
            (k::DEFAULT_TIME2RETAIN, "0"),
            (k::INITIAL_R2T, "No"),
            (k::IMMEDIATE_DATA, "Yes"),
            (k::DATA_PDU_IN_ORDER, "Yes"),
            (k::DATA_SEQUENCE_IN_ORDER, "Yes"),
            (k::ISCSI_PROTOCOL_LEVEL, "1"),
        ];
        EvilConfig {
            target_name: "iqn.2026-01.org.example:evil".to_owned(),
            portal_group_tag: 1,
            more_names: Vec::new(),
            chap: EvilChap::default(),
            header_digest: vec!["CRC32C", "None"],
            data_digest: vec!["CRC32C", "None"],
            keys: keys.iter().map(|(key, value)| (*key, (*value).to_owned())).collect(),
            task_reporting: vec!["RFC3720"],
            first_stat_sn: 1,
            window: 32,
            texts: EvilTexts::default(),
            disk_bytes: 4 << 20,
        }
    }
}

impl EvilConfig {
    /// One that demands the proof of `initiator`, and proves `target` when asked to.
    pub fn authenticating(initiator: Credentials, target: Option<Credentials>) -> Self {
        let chap = EvilChap { initiator: Some(initiator), target, ..EvilChap::default() };
        Self { chap, ..Self::default() }
    }

    /// One with these texts.
    pub fn saying(texts: EvilTexts) -> Self {
        Self { texts, ..Self::default() }
    }

    /// With this value as its side of the negotiation of a key.
    pub fn key(mut self, key: &'static str, value: &str) -> Self {
        self.keys.insert(key, value.to_owned());
        self
    }
}

/// The state that all connections of a target share.
struct Shared {
    config: EvilConfig,
    address: SocketAddr,
    behaviour: Mutex<Behaviour>,
    disk: Mutex<Disk>,
    findings: Mutex<Vec<Finding>>,
    transcript: Transcript,
    stop: AtomicBool,
    next_tsih: AtomicU32,
    sessions: Mutex<Vec<Arc<EvilSession>>>,
    open: AtomicU32,
}

impl Shared {
    /// The session with this handle and ISID.
    fn session_of(&self, tsih: Tsih, isid: Isid) -> Option<Arc<EvilSession>> {
        let sessions = lock(&self.sessions);
        let found = sessions.iter().find(|one| one.tsih() == tsih && lock(&one.identity).1 == isid);
        found.cloned()
    }

    /// Adds a session; one with the same identity ends.
    fn register(&self, session: &Arc<EvilSession>) {
        let identity = lock(&session.identity).clone();
        let mut sessions = lock(&self.sessions);
        sessions.retain(|old| {
            let same = *lock(&old.identity) == identity;
            if same {
                old.end();
            }
            !same
        });
        sessions.push(session.clone());
    }

    fn unregister(&self, session: &Arc<EvilSession>) {
        lock(&self.sessions).retain(|one| !Arc::ptr_eq(one, session));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running target. It ends when dropped.
pub struct EvilTarget {
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

impl EvilTarget {
    /// Listens on a free port of 127.0.0.1.
    pub fn start(config: EvilConfig, behaviour: Behaviour) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let shared = Arc::new(Shared {
            address: listener.local_addr()?,
            disk: Mutex::new(Disk::new(config.disk_bytes)),
            config,
            behaviour: Mutex::new(behaviour),
            findings: Mutex::new(Vec::new()),
            transcript: Transcript::new(),
            stop: AtomicBool::new(false),
            next_tsih: AtomicU32::new(1),
            sessions: Mutex::default(),
            open: AtomicU32::new(0),
        });
        let accepting = shared.clone();
        let listener = std::thread::Builder::new()
            .name("evil-target".to_owned())
            .spawn(move || accept_all(&listener, &accepting))?;
        Ok(EvilTarget { shared, listener: Some(listener) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// `iscsi://address/name/0`.
    pub fn url(&self) -> String {
        format!("iscsi://{}/{}/0", self.shared.address, self.shared.config.target_name)
    }

    /// The traffic on all connections.
    pub fn transcript(&self) -> &Transcript {
        &self.shared.transcript
    }

    /// Rules that the initiator has broken.
    pub fn findings(&self) -> Vec<Finding> {
        lock(&self.shared.findings).clone()
    }

    /// Waits until every connection has ended, at most `limit`. The findings of a connection are available when it
    /// has ended.
    pub fn settle(&self, limit: Duration) {
        let end = Instant::now() + limit;
        while self.shared.open.load(Ordering::Relaxed) > 0 && Instant::now() < end {
            std::thread::sleep(POLL / 4);
        }
    }

    /// The medium.
    pub fn medium(&self) -> Vec<u8> {
        lock(&self.shared.disk).blocks.clone()
    }

    /// Overwrites the medium from byte `offset` on.
    pub fn fill(&self, offset: usize, data: &[u8]) {
        lock(&self.shared.disk).store(offset, data);
    }
}

/// Connections in memory.
impl Dial for EvilTarget {
    fn dial(&self, _timeout: Duration) -> Result<Box<dyn Link>, PeerError> {
        let (ours, theirs) = link::in_memory();
        // The thread ends with its connection, or with the target.
        let _ = serve(Box::new(theirs), &self.shared).map_err(|error| PeerError::Io(error.to_string()))?;
        Ok(Box::new(ours))
    }
}

impl Drop for EvilTarget {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

fn accept_all(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut threads = Vec::new();
    while !shared.stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => {
                let ready = stream.set_nonblocking(false).is_ok()
                    && link::prepare(&stream, connection::SEND_TIMEOUT).is_ok();
                if ready && let Ok(thread) = serve(Box::new(stream), shared) {
                    threads.push(thread);
                }
            }
            Err(_) => std::thread::sleep(POLL),
        }
    }
    for thread in threads {
        let _ = thread.join();
    }
}

/// Serves a connection on a thread of its own.
fn serve(link: Box<dyn Link>, shared: &Arc<Shared>) -> std::io::Result<JoinHandle<()>> {
    shared.open.fetch_add(1, Ordering::Relaxed);
    let serving = shared.clone();
    let started = std::thread::Builder::new().name("evil-connection".to_owned()).spawn(move || {
        connection::serve(link, &serving);
        serving.open.fetch_sub(1, Ordering::Relaxed);
    });
    if started.is_err() {
        shared.open.fetch_sub(1, Ordering::Relaxed);
    }
    started
}
