//! A whole server on a loopback port, and initiators that exchange individual PDUs with it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use blockstore::{BlockStore, DelayStore, Gate, Op, OpSet, RamStore, StoreError, StoreSpec};
use conform::{Command, LoginScript, Outcome, PeerError, RawPeer, Received, Session, Transcript};
use iscsi_core::names::IscsiName;
use iscsi_core::params::Bounds;
use iscsi_core::wire::{Isid, LoginStatus, Lun, Opcode, Pdu, TmfFunction, TmfResponse, keys};
use target::Server;
use target::config::{AccessRules, Auth, Config, Limits, LunConfig, PortalConfig, TargetConfig};
use target::observe::{Observe, ServerView, SessionInfo};

pub const TARGET: &str = "iqn.2026-01.org.example:disk";
pub const BLOCK: u32 = 512;
/// How long one step may take: far longer than any step needs, so that only a missing event fails.
pub const STEP: Duration = Duration::from_secs(20);

/// A target with LUN 0.
pub fn target(name: &str) -> TargetConfig {
    TargetConfig {
        name: IscsiName::parse(name).unwrap(),
        alias: None,
        luns: vec![ram(0)],
        access: AccessRules::default(),
        auth: Auth::None,
        bounds: Bounds::default(),
        queue_depth: 128,
        redirect: None,
        access_states: Vec::new(),
        hosts_set_access_states: false,
        management_url: None,
        portals: None,
    }
}

/// A unit of 16 MiB in memory.
pub fn ram(number: u16) -> LunConfig {
    let store = StoreSpec::Ram {
        size_bytes: 16 << 20,
        logical_block_bytes: None,
        resident_limit_bytes: None,
        protection: None,
    };
    LunConfig::new(number, store)
}

pub fn portal(group_tag: u16) -> PortalConfig {
    PortalConfig { address: "127.0.0.1:0".parse().unwrap(), group_tag }
}

/// One portal, one target with one unit, four shards.
pub fn config() -> Config {
    Config {
        portals: vec![portal(1)],
        targets: vec![target(TARGET)],
        discovery_auth: Auth::None,
        limits: Limits { shards: 4, ..Limits::default() },
        state_dir: None,
        require_every_store: false,
    }
}

/// A running server.
pub struct Lab {
    pub server: Arc<Server>,
    transcript: Transcript,
    next: AtomicU32,
}

impl Lab {
    pub fn start(config: Config) -> Self {
        let server = Server::start(config, Arc::new(Observe::new())).unwrap();
        Self::of(server)
    }

    /// With `store` as LUN `number` of every target.
    pub fn with_store(config: Config, number: u16, store: Arc<dyn BlockStore>) -> Self {
        Self::with_open(
            config,
            move |lun| {
                if lun.number == number { Ok(Arc::clone(&store)) } else { lun.store.open() }
            },
        )
    }

    /// With stores opened by `open`.
    pub fn with_open(
        config: Config,
        open: impl Fn(&LunConfig) -> Result<Arc<dyn BlockStore>, StoreError> + Send + Sync + 'static,
    ) -> Self {
        let server = Server::start_with(config, Arc::new(Observe::new()), Arc::new(open)).unwrap();
        Self::of(server)
    }

    /// With LUN 0 behind a gate, which is initially open.
    pub fn gated(config: Config) -> (Self, Barrier) {
        let (store, gate) = DelayStore::new(RamStore::new(16 << 20, BLOCK).unwrap(), Duration::ZERO);
        (Self::with_store(config, 0, Arc::new(store)), Barrier(gate))
    }

    fn of(server: Server) -> Self {
        Self { server: Arc::new(server), transcript: Transcript::new(), next: AtomicU32::new(0) }
    }

    pub fn address(&self) -> SocketAddr {
        self.server.portals()[0]
    }

    pub fn connect(&self) -> RawPeer {
        self.connect_to(self.address())
    }

    pub fn connect_to(&self, address: SocketAddr) -> RawPeer {
        RawPeer::connect(address, STEP, &self.transcript).unwrap()
    }

    /// A login of host `host` with an ISID that no other script of this lab has.
    pub fn script(&self, host: &str) -> LoginScript {
        let mut script = LoginScript::new(&format!("iqn.2026-01.org.example:{host}"), Some(TARGET));
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        script.isid = Isid::random([1, (n >> 24) as u8, (n >> 16) as u8], n as u16);
        script
    }

    pub fn discovery_script(&self, host: &str) -> LoginScript {
        let isid = self.script(host).isid;
        let script = LoginScript::new(&format!("iqn.2026-01.org.example:{host}"), None);
        LoginScript { isid, ..script }
    }

    pub fn try_login(&self, script: &LoginScript) -> Result<Session, PeerError> {
        Session::log_in(self.connect(), script.clone(), Lun(0))
    }

    pub fn login(&self, script: &LoginScript) -> Session {
        self.try_login(script).unwrap()
    }

    /// A session whose unit attentions have been cleared.
    pub fn session(&self, host: &str) -> Session {
        let mut session = self.login(&self.script(host));
        session.clear_unit_attentions().unwrap();
        session
    }

    /// The status of a login that is refused.
    pub fn refusal(&self, script: &LoginScript) -> LoginStatus {
        refused(self.try_login(script))
    }

    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.server.sessions()
    }

    /// Waits until the server has `count` sessions.
    pub fn wait_for_sessions(&self, count: usize) {
        until(|| self.sessions().len() == count);
    }
}

/// The status of a login that was refused.
pub fn refused(result: Result<Session, PeerError>) -> LoginStatus {
    match result {
        Err(PeerError::Login(status)) => status,
        Err(error) => panic!("expected a login status, got {error}"),
        Ok(_) => panic!("the login was accepted"),
    }
}

/// Waits for a condition that is not signalled.
pub fn until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + STEP;
    while !condition() {
        assert!(Instant::now() < deadline, "it never happened");
        std::thread::yield_now();
    }
}

/// A gate before a store; dropping it opens it, so that no failing test hangs.
pub struct Barrier(pub Gate);

impl Barrier {
    pub fn close(&self, ops: &[Op]) {
        self.0.close(OpSet::of(ops));
    }
}

impl std::ops::Deref for Barrier {
    type Target = Gate;

    fn deref(&self) -> &Gate {
        &self.0
    }
}

impl Drop for Barrier {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// A write of one block, with its data in the command.
pub fn write(lba: u64, byte: u8) -> Command {
    use conform::Unsolicited;
    Command::write_16(lba, vec![byte; BLOCK as usize], BLOCK)
        .unsolicited(Unsolicited::Immediate(BLOCK as usize))
}

pub fn read(lba: u64) -> Command {
    Command::read_16(lba, 1, BLOCK)
}

/// First byte of a block.
pub fn byte_at(session: &mut Session, lba: u64) -> u8 {
    session.run_good(&read(lba)).unwrap().data[0]
}

pub fn sense(outcome: &Outcome) -> Option<(u8, u8, u8)> {
    outcome.sense_code().filter(|_| outcome.status == 2)
}

pub fn test_unit_ready(session: &mut Session) -> Outcome {
    session.run(&Command::test_unit_ready()).unwrap()
}

pub fn manage(session: &mut Session, function: TmfFunction) -> TmfResponse {
    let request = session.tmf(function, true);
    session.manage(request).unwrap()
}

/// Sets the TAS bit of the control mode page.
pub fn set_tas(session: &mut Session, tas: bool) {
    let mut list = vec![0u8; 4];
    list.extend([0x0a, 10, 0x02, 0x10, 0, if tas { 0x40 } else { 0 }, 0, 0, 0xff, 0xff, 0, 0]);
    let length = list.len() as u8;
    session.run_good(&Command::write([0x15, 0x10, 0, 0, length, 0], list)).unwrap();
}

/// Sets UA_INTLCK_CTRL of the control mode page.
pub fn set_interlock(session: &mut Session, interlock: u8) {
    let list = vec![0, 0, 0, 0, 0x0a, 10, 0x02, 0x10, interlock << 4, 0, 0, 0, 0xff, 0xff, 0, 0];
    session.run_good(&Command::write([0x15, 0x10, 0, 0, 16, 0], list)).unwrap();
}

/// PERSISTENT RESERVE OUT.
pub fn pr_out(session: &mut Session, action: u8, kind: u8, key: u64, new_key: u64) -> Outcome {
    let sent = pr_out_start(session, action, kind, key, new_key);
    session.finish(&sent).unwrap()
}

pub fn pr_out_start(session: &mut Session, action: u8, kind: u8, key: u64, new_key: u64) -> conform::Sent {
    let mut list = key.to_be_bytes().to_vec();
    list.extend(new_key.to_be_bytes());
    list.extend([0; 8]);
    let unsolicited = conform::Unsolicited::Immediate(24);
    let command = Command::write([0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0], list).unsolicited(unsolicited);
    session.start(&command).unwrap()
}

/// Keys that PERSISTENT RESERVE IN lists.
pub fn pr_keys(session: &mut Session) -> Vec<u64> {
    let outcome = session.run_good(&Command::read([0x5e, 0, 0, 0, 0, 0, 0, 1, 0, 0], 256)).unwrap();
    outcome.data[8..].chunks_exact(8).map(|key| u64::from_be_bytes(key.try_into().unwrap())).collect()
}

/// The next asynchronous message; answers before it are kept for later steps.
pub fn next_async(session: &mut Session) -> (iscsi_core::wire::AsyncMessage, Received) {
    loop {
        let rx = session.next_for(iscsi_core::wire::Itt::RESERVED).unwrap();
        if let Ok(Pdu::AsyncMessage(message)) = rx.pdu() {
            return (message, rx);
        }
    }
}

/// A separate Text request; returns the pairs of the whole answer with its number of PDUs.
pub fn text(session: &mut Session, pairs: &[(&str, &str)]) -> (Vec<(String, String)>, usize) {
    use iscsi_core::wire::{TextRequest, TextResponse, Ttt};
    let itt = session.itt();
    let mut request = TextRequest {
        immediate: true,
        final_bit: true,
        continue_bit: false,
        lun: Lun(0),
        itt,
        ttt: Ttt::RESERVED,
        cmd_sn: session.cmd_sn,
        exp_stat_sn: session.peer.ledger.exp_stat_sn(),
    };
    session.peer.send(&conform::Frame::of(request).data(conform::text_of(pairs))).unwrap();
    let (mut all, mut pdus) = (Vec::new(), 0);
    loop {
        let rx = session.next_for(itt).unwrap();
        assert_eq!(rx.bhs.opcode(), Opcode::TextResponse.code(), "{}", rx.line());
        let response = TextResponse::parse(&rx.bhs).unwrap();
        all.extend_from_slice(&rx.data);
        pdus += 1;
        if response.final_bit {
            let pairs = Received { data: all, ..rx }.text();
            return (pairs, pdus);
        }
        assert!(!response.ttt.is_reserved(), "more to come, and no tag to ask with");
        (request.ttt, request.lun) = (response.ttt, response.lun);
        request.exp_stat_sn = session.peer.ledger.exp_stat_sn();
        session.peer.send(&conform::Frame::of(request)).unwrap();
    }
}

pub fn send_targets(session: &mut Session, what: &str) -> Vec<(String, String)> {
    text(session, &[(keys::SEND_TARGETS, what)]).0
}
