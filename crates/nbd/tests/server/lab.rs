//! A server on units that a test chooses, and a client that sends whatever a test wants.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use blockstore::{BlockStore, StoreError};
use lun::{Host, Unit};
use nbd::wire::{option, reply};
use nbd::{Denied, Export, Exports, Options, Peer, Server};
use scsi::{LogicalUnit, LuConfig, MediumConfig, Outcome, PiField};

pub const SIZE: u64 = 8 << 20;
pub const MEMORY: u64 = 4 << 20;

struct Nobody;

impl Host for Nobody {
    fn neighbour(&self, _lun: u16) -> Option<Arc<Unit>> {
        None
    }
    fn store_failed(&self, _error: &StoreError) {}
    fn check_failed(&self, _field: PiField) {}
}

#[derive(Debug)]
pub struct Disk {
    pub unit: Arc<Unit>,
    pub served: AtomicBool,
}

impl Export for Disk {
    fn name(&self) -> String {
        "disk".to_owned()
    }
    fn description(&self) -> String {
        "a disk".to_owned()
    }
    fn unit(&self) -> &Arc<Unit> {
        &self.unit
    }
    fn is_current(&self) -> bool {
        self.served.load(Ordering::Acquire)
    }
    fn ended(&self, _cdb: &[u8], _bytes: u64, _elapsed: Duration, _outcome: &Outcome) {}
}

struct One(Arc<Disk>);

impl Exports for One {
    fn names(&self, _peer: &Peer) -> Vec<String> {
        vec!["disk".to_owned()]
    }
    fn find(&self, name: &str, _peer: &Peer) -> Result<Arc<dyn Export>, Denied> {
        match name {
            "" | "disk" => Ok(Arc::clone(&self.0) as _),
            _ => Err(Denied::Unknown),
        }
    }
}

/// A server with one export.
pub struct Lab {
    pub disk: Arc<Disk>,
    pub server: Server,
    pub address: SocketAddr,
}

impl Lab {
    pub fn new(store: Arc<dyn BlockStore>) -> Self {
        Self::with(store, |config| config)
    }

    pub fn with(store: Arc<dyn BlockStore>, change: impl FnOnce(LuConfig) -> LuConfig) -> Self {
        let geometry = store.geometry();
        let config = LuConfig {
            medium: MediumConfig {
                blocks: geometry.blocks(),
                block_bytes: geometry.logical_block_bytes,
                thin: geometry.discard_granularity_bytes != 0,
                write_cache: true,
                ..MediumConfig::default()
            },
            ..LuConfig::default()
        };
        let unit = Unit::new(LogicalUnit::new(change(config)), store, 4, Arc::new(Nobody));
        let disk = Arc::new(Disk { unit: Arc::new(unit), served: AtomicBool::new(true) });
        let options =
            Options { listen: vec![([127, 0, 0, 1], 0).into()], tls: None, buffer_bytes_max: MEMORY };
        let workers = Arc::new(engine::Offload::new(4));
        let offload = Arc::new(move |lane: &engine::Lane, job| workers.submit(lane, job));
        let server = Server::start(&options, Arc::new(One(Arc::clone(&disk))), offload).unwrap();
        let address = server.addresses()[0];
        Self { disk, server, address }
    }

    pub fn client(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client { stream, structured: false }
    }

    /// A client with the export opened, with simple replies or with structured ones and base:allocation.
    pub fn open(&self, structured: bool) -> Client {
        let mut client = self.client();
        client.greet();
        if structured {
            client.option(option::STRUCTURED_REPLY, &[]);
            assert_eq!(client.reply().0, reply::ACK);
            let chosen = [&text("disk")[..], &1u32.to_be_bytes(), &text("base:allocation")].concat();
            client.option(option::SET_META_CONTEXT, &chosen);
            assert_eq!(client.reply().0, reply::META_CONTEXT);
            assert_eq!(client.reply().0, reply::ACK);
        }
        client.structured = structured;
        client.option(option::GO, &[&text("disk")[..], &[0, 0]].concat());
        while client.reply().0 != reply::ACK {}
        client
    }
}

pub fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}

pub struct Client {
    pub stream: TcpStream,
    structured: bool,
}

/// The answer to a request: its error number, and data.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub cookie: u64,
    pub error: u32,
    pub data: Vec<u8>,
}

impl Client {
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn number(&mut self, bytes: usize) -> u64 {
        self.bytes(bytes).iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }

    pub fn greet(&mut self) {
        assert_eq!(&self.bytes(18)[..16], b"NBDMAGICIHAVEOPT");
        self.stream.write_all(&3u32.to_be_bytes()).unwrap();
    }

    pub fn option(&mut self, option: u32, data: &[u8]) {
        let header = [&b"IHAVEOPT"[..], &option.to_be_bytes(), &(data.len() as u32).to_be_bytes()].concat();
        self.stream.write_all(&[&header[..], data].concat()).unwrap();
    }

    /// The kind of the next reply to an option, and its data.
    pub fn reply(&mut self) -> (u32, Vec<u8>) {
        assert_eq!(self.number(8), 0x0003_e889_0455_65a9);
        self.number(4);
        let kind = self.number(4) as u32;
        let length = self.number(4) as usize;
        (kind, self.bytes(length))
    }

    pub fn request(
        &mut self,
        (command, flags): (u16, u16),
        cookie: u64,
        offset: u64,
        length: u32,
        data: &[u8],
    ) {
        let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes.extend(data);
        self.stream.write_all(&bytes).unwrap();
    }

    /// The next reply to a request; `read` is the number of bytes that a successful read returns.
    pub fn answer(&mut self, read: usize) -> Answer {
        if !self.structured {
            assert_eq!(self.number(4), 0x6744_6698);
            let (error, cookie) = (self.number(4) as u32, self.number(8));
            let data = self.bytes(if error == 0 { read } else { 0 });
            return Answer { cookie, error, data };
        }
        assert_eq!(self.number(4), 0x668e_33ef);
        assert_eq!(self.number(2), 1, "one chunk says all");
        let (kind, cookie, length) = (self.number(2), self.number(8), self.number(4) as usize);
        let data = self.bytes(length);
        let error = if kind == 0x8001 { u32::from_be_bytes(*data.first_chunk().unwrap()) } else { 0 };
        Answer { cookie, error, data }
    }

    /// One request and its reply.
    pub fn run(&mut self, command: (u16, u16), offset: u64, length: u32, data: &[u8]) -> Answer {
        self.request(command, 7, offset, length, data);
        let reads = command.0 == nbd::wire::command::READ;
        let answer = self.answer(if reads { length as usize } else { 0 });
        assert_eq!(answer.cookie, 7);
        answer
    }

    pub fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0]) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }
}
