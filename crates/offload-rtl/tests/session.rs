//! A whole session by the circuit: login with our target over TCP, writes and reads, NOP and logout by SEND_RAW; then another session,
//! without an engine, reads what was written.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use initiator::{Disk, IscsiUrl, Session};
use iscsi_core::initiator::login::{InitiatorLogin, LoggedIn, LoginConfig, LoginSupport, Progress};
use iscsi_core::names::IscsiName;
use iscsi_core::params::{Bounds, Bursts, DigestPolicy};
use iscsi_core::pdu_reader::PduReader;
use iscsi_core::pdu_writer::TxPdu;
use iscsi_wire::{
    Bhs, Cid, CmdSn, Isid, Itt, LogoutReason, LogoutRequest, Lun, NopIn, NopOut, Opcode, StatSn, Ttt,
    padded_length,
};
use offload::encoding::{
    Completion, OpenConn, PostTask, SendRaw, SglElement, TaskDone, TaskResult, conn_flags, raw_flags,
    task_flags,
};
use offload::{Engine, FlatMemory, HostMem};
use offload_rtl::{RtlEngine, Width};
use target::config::{Config, TargetConfig};
use target::observe::Observe;
use target::{Server, StoreSpec};

const TARGET: &str = "iqn.2026-01.org.example:circuit";
const BASE: u64 = 0x1_0000_0000;
const RING: u64 = BASE;
const SLOTS: u16 = 4;
const SLOT_BYTES: u32 = 48 + 1020 + 65536;
const SENSE: u64 = BASE + 0x10_0000;
const STAGED: u64 = BASE + 0x11_0000;
const DATA: u64 = BASE + 0x20_0000;
const MEMORY_BYTES: usize = 0x60_0000;
const BLOCK: usize = 512;

/// No CHAP: nothing is asked of it.
struct NoChap;

impl LoginSupport for NoChap {
    fn fill_random(&mut self, _: &mut [u8]) {}
    fn challenge_issued(&mut self, _: &[u8]) {}
    fn was_issued(&mut self, _: &[u8]) -> bool {
        false
    }
}

/// The bytes of a PDU without digests: those of a login.
fn send(stream: &mut TcpStream, pdu: TxPdu) {
    let data = pdu.data.bytes();
    let mut bhs = pdu.bhs;
    bhs.set_data_segment_length(data.len());
    let mut bytes = bhs.as_bytes().to_vec();
    bytes.extend_from_slice(&data);
    bytes.resize(48 + padded_length(data.len()), 0);
    stream.write_all(&bytes).expect("the target reads");
}

fn login(stream: &mut TcpStream, bounds: Bounds) -> LoggedIn {
    let mut login = InitiatorLogin::new(LoginConfig {
        initiator: IscsiName::parse("iqn.2026-01.org.example:host").expect("a name"),
        initiator_alias: None,
        target: Some(IscsiName::parse(TARGET).expect("a name")),
        discovery: false,
        isid: Isid::random([1, 2, 3], 4),
        cid: Cid(0),
        cmd_sn: CmdSn(u32::MAX - 2),
        chap: None,
        bounds,
        node_architecture: None,
        join: None,
    });
    let (mut reader, mut received) = (PduReader::new(8192), BytesMut::new());
    send(stream, login.start());
    loop {
        let mut some = [0; 4096];
        let count = stream.read(&mut some).expect("the target answers");
        assert!(count > 0, "the target closes the connection");
        received.extend_from_slice(&some[..count]);
        while let Some(pdu) = reader.next(&mut received).expect("sound PDUs") {
            match login.handle_pdu(&pdu, &mut NoChap).expect("the login succeeds") {
                Progress::Send(pdu) => send(stream, pdu),
                Progress::Complete(login) => return *login,
            }
        }
    }
}

/// A host with the circuit, after the login.
struct Host {
    stream: TcpStream,
    engine: RtlEngine,
    memory: FlatMemory,
    next_itt: u32,
    /// Tasks that have ended, by tag.
    done: BTreeMap<u32, TaskDone>,
    /// Opcodes and tags of the answers to PDUs of software.
    answers: Vec<(u8, u32)>,
}

impl Host {
    fn begin(mut stream: TcpStream, engine: RtlEngine, immediate: bool) -> Self {
        let bounds = Bounds {
            header_digest: DigestPolicy::Required,
            data_digest: DigestPolicy::Required,
            max_recv_data_segment_length: engine.caps().buffer_bytes,
            bursts: Bursts {
                max_burst_length: 64 * 1024,
                first_burst_length: 16 * 1024,
                initial_r2t: !immediate,
                immediate_data: immediate,
                ..Bounds::default().bursts
            },
            ..Bounds::default()
        };
        let login = login(&mut stream, bounds);
        let params = &login.params;
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let open = OpenConn {
            flags: flag(params.digests.header, conn_flags::HEADER_DIGEST)
                | flag(params.digests.data, conn_flags::DATA_DIGEST)
                | flag(params.bursts.initial_r2t, conn_flags::INITIAL_R2T)
                | flag(params.bursts.immediate_data, conn_flags::IMMEDIATE_DATA),
            max_outstanding_r2t: params.bursts.max_outstanding_r2t,
            raw_slots: SLOTS,
            raw_addr: RING,
            raw_slot_bytes: SLOT_BYTES,
            max_recv_data_segment_length: params.max_recv_data_segment_length,
            max_send_data_segment_length: params.max_send_data_segment_length,
            max_burst_length: params.bursts.max_burst_length,
            first_burst_length: params.bursts.first_burst_length,
            cmd_sn: login.numbers.cmd_sn.0,
            max_cmd_sn: login.numbers.max_cmd_sn.0,
            exp_stat_sn: login.numbers.exp_stat_sn.0,
            ..OpenConn::default()
        };
        let mut host = Self {
            stream,
            engine,
            memory: FlatMemory::new(BASE, MEMORY_BYTES),
            next_itt: 1,
            done: BTreeMap::new(),
            answers: Vec::new(),
        };
        host.submit(&open.emit());
        let done = host.engine.poll().expect("OPEN_CONN is done at once");
        assert_eq!(TaskDone::parse(&done).result, TaskResult::GOOD, "{open:?}");
        host
    }

    fn submit(&mut self, record: &[u8; 64]) {
        self.engine.submit(&mut self.memory, record).expect("there is room");
    }

    /// Moves bytes between the circuit and TCP until `wanted` is there.
    fn run(&mut self, wanted: impl Fn(&Self) -> bool) {
        let mut some = vec![0; 32 * 1024];
        loop {
            loop {
                let count = self.engine.tx(&mut self.memory, 0, &mut some);
                self.stream.write_all(&some[..count]).expect("the target reads");
                if count < some.len() {
                    break;
                }
            }
            if wanted(self) {
                return;
            }
            let count = self.stream.read(&mut some).expect("the target answers");
            assert!(count > 0, "the target closes the connection");
            let mut taken = 0;
            while taken < count {
                taken += self.engine.rx(&mut self.memory, 0, &some[taken..count]);
                self.take_completions();
            }
        }
    }

    fn take_completions(&mut self) {
        while let Some(record) = self.engine.poll() {
            match Completion::parse(&record) {
                Some(Completion::TaskDone(done)) => drop(self.done.insert(done.itt, done)),
                Some(Completion::RawPdu(raw)) => {
                    let mut header = [0; 48];
                    self.memory.read(raw.addr, &mut header).expect("a slot of the ring");
                    self.engine.release_raw(0, 1);
                    let bhs = Bhs::from_bytes(header);
                    match NopIn::parse(&bhs) {
                        Ok(ping) if !ping.ttt.is_reserved() => self.pong(&ping),
                        _ => self.answers.push((bhs.opcode(), raw.itt)),
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// A target that has heard nothing for long asks whether we are there.
    fn pong(&mut self, ping: &NopIn) {
        let itt = Itt(u32::MAX);
        let (cmd_sn, exp_stat_sn) = (CmdSn(0), StatSn(0));
        self.send_raw(
            &NopOut { immediate: true, lun: ping.lun, itt, ttt: ping.ttt, cmd_sn, exp_stat_sn }.to_bhs(),
        );
    }

    /// A PDU of software; the engine writes its numbers.
    fn send_raw(&mut self, bhs: &Bhs) {
        self.memory.write(STAGED, bhs.as_bytes()).expect("in host memory");
        let send = SendRaw { flags: raw_flags::CMD_SN, addr: STAGED, length: 48, ..SendRaw::default() };
        self.submit(&send.emit());
    }

    /// READ(10) or WRITE(10) of so many blocks, from memory in pages that lie apart. Returns the tag.
    fn post(&mut self, flags: u8, lba: u32, blocks: u16, addr: u64) -> u32 {
        let itt = self.next_itt;
        self.next_itt += 1;
        let mut cdb = [0; 16];
        cdb[0] = if flags == task_flags::READ { 0x28 } else { 0x2a };
        cdb[2..6].copy_from_slice(&lba.to_be_bytes());
        cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
        if flags == 0 {
            // TEST UNIT READY
            cdb = [0; 16];
        }
        let edtl = u32::from(blocks) * BLOCK as u32;
        let pages = (0..edtl.div_ceil(4096)).map(|page| {
            let length = 4096.min(edtl - 4096 * page);
            SglElement { addr: addr + 4096 * u64::from(page), length }
        });
        let list: Vec<u8> = pages.flat_map(|page| page.emit()).collect();
        self.memory.write(STAGED, &list).expect("in host memory");
        let post = PostTask {
            flags,
            itt,
            user: u64::from(itt),
            cdb,
            edtl,
            sgl_elements: edtl.div_ceil(4096) as u16,
            sgl_addr: STAGED,
            sense_addr: SENSE + 256 * u64::from(itt % 64),
            ..PostTask::default()
        };
        self.submit(&post.emit());
        itt
    }

    fn finish(&mut self, tags: &[u32]) -> Vec<TaskDone> {
        self.run(|host| tags.iter().all(|itt| host.done.contains_key(itt)));
        tags.iter().map(|itt| self.done[itt]).collect()
    }

    /// A PDU of software, and the answer of the target with this opcode.
    fn ask(&mut self, bhs: &Bhs, answer: Opcode) {
        self.send_raw(bhs);
        let wanted = (answer as u8, bhs.itt().0);
        self.run(|host| host.answers.contains(&wanted));
    }
}

fn start_target() -> Server {
    let volumes: Vec<StoreSpec> = vec!["ram:8M".parse().expect("a store")];
    let name = IscsiName::parse(TARGET).expect("a name");
    let config =
        Config::new(&["127.0.0.1:0".parse().expect("an address")], vec![TargetConfig::new(name, volumes)]);
    Server::start(config, Arc::new(Observe::new())).expect("the target starts")
}

/// So many blocks from the first on, by several tasks at a time, of all lengths up to 200 blocks.
fn transfer(host: &mut Host, flags: u8, blocks: usize, addr: u64, random: &mut fastrand::Rng) {
    let (mut at, mut tags) = (0, Vec::new());
    while at < blocks {
        let count = random.usize(1..=200).min(blocks - at);
        tags.push(host.post(flags, at as u32, count as u16, addr + (at * BLOCK) as u64));
        at += count;
    }
    for done in host.finish(&tags) {
        assert_eq!((done.result, done.status, done.residual_count), (TaskResult::GOOD, 0, 0), "{done:?}");
    }
}

fn a_session(engine: RtlEngine, immediate: bool) {
    let server = start_target();
    let portal = server.portals()[0];
    let stream = TcpStream::connect(portal).expect("the target listens");
    stream.set_nodelay(true).expect("an option of TCP");
    // Only a hang is that long.
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("an option of TCP");
    let mut host = Host::begin(stream, engine, immediate);

    // The unit reports that it is new.
    let attention = host.post(0, 0, 0, DATA);
    let done = host.finish(&[attention]);
    assert_eq!((done[0].status, done[0].sense_bytes), (2, 20), "unit attention: {:?}", done[0]);

    let mut random = fastrand::Rng::with_seed(17);
    let written: Vec<u8> = (0..0xc_0000).map(|_| random.u8(..)).collect();
    host.memory.write(DATA, &written).expect("in host memory");
    let blocks = written.len() / BLOCK;
    transfer(&mut host, task_flags::WRITE, blocks, DATA, &mut random);
    let nop = NopOut {
        immediate: true,
        lun: Lun(0),
        itt: Itt(0x7000_0000),
        ttt: Ttt::RESERVED,
        cmd_sn: CmdSn(0),
        exp_stat_sn: StatSn(0),
    };
    host.ask(&nop.to_bhs(), Opcode::NopIn);
    // Back to other places of memory.
    let back = DATA + 0x20_0000;
    transfer(&mut host, task_flags::READ, blocks, back, &mut random);
    let mut read = vec![0; written.len()];
    host.memory.read(back, &mut read).expect("in host memory");
    assert!(read == written, "the circuit reads what it has written");
    let logout = LogoutRequest {
        immediate: true,
        reason: LogoutReason::CloseSession,
        itt: Itt(0x7000_0001),
        cid: Cid(0),
        cmd_sn: CmdSn(0),
        exp_stat_sn: StatSn(0),
    };
    host.ask(&logout.to_bhs(), Opcode::LogoutResponse);

    let url = IscsiUrl::parse(&format!("iscsi://{portal}/{TARGET}/0")).expect("a URL");
    let session = Session::connect(url.options().expect("options")).expect("a session");
    let disk = Disk::open(&session, url.unit().expect("a unit").1).expect("a unit");
    read.fill(0);
    disk.read(0, &mut read).expect("it can be read");
    assert!(read == written, "a session without an engine reads what the circuit has written");
    session.logout();
    server.shutdown(Duration::from_secs(5));
}

#[test]
fn a_session_with_unsolicited_data_at_512_bit() {
    a_session(RtlEngine::new(Width::Bits512, 3), true);
}

#[test]
fn a_session_with_the_tables_of_the_synthesis_at_512_bit() {
    a_session(RtlEngine::synthesised(Width::Bits512, 3), false);
}

#[test]
fn a_session_without_unsolicited_data_at_64_bit() {
    a_session(RtlEngine::new(Width::Bits64, 3), false);
}

#[test]
fn a_session_with_the_tables_of_the_synthesis_at_64_bit() {
    a_session(RtlEngine::synthesised(Width::Bits64, 3), true);
}
