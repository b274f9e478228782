//! The handshake of NBD: options of any kind in any order, before and after TLS.
//!
//! Invariants: nothing panics; where TLS is required, only STARTTLS and ABORT can succeed before it; an export is used only
//! after it was named; every reply is complete and names its option.
#![no_main]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use blockstore::{RamStore, StoreError};
use libfuzzer_sys::fuzz_target;
use lun::{Host, Unit};
use nbd::negotiation::{Negotiation, Next, Tls};
use nbd::wire::{self, Request, option, reply};
use nbd::{Denied, Export, Exports, Peer};
use scsi::{MediumConfig, LogicalUnit, LuConfig, Outcome, PiField};

struct Nobody;

impl Host for Nobody {
    fn neighbour(&self, _lun: u16) -> Option<Arc<Unit>> {
        None
    }
    fn store_failed(&self, _error: &StoreError) {}
    fn check_failed(&self, _field: PiField) {}
}

#[derive(Debug)]
struct Disk(Arc<Unit>);

impl Export for Disk {
    fn name(&self) -> String {
        "disk".to_owned()
    }
    fn description(&self) -> String {
        "a disk".to_owned()
    }
    fn unit(&self) -> &Arc<Unit> {
        &self.0
    }
    fn is_current(&self) -> bool {
        true
    }
    fn ended(&self, _cdb: &[u8], _bytes: u64, _elapsed: Duration, _outcome: &Outcome) {}
}

struct Disks(Arc<Disk>);

impl Exports for Disks {
    fn names(&self, _peer: &Peer) -> Vec<String> {
        vec!["disk".to_owned()]
    }
    fn find(&self, name: &str, peer: &Peer) -> Result<Arc<dyn Export>, Denied> {
        match name {
            "disk" | "" => Ok(Arc::clone(&self.0) as _),
            "secret" if peer.proven => Ok(Arc::clone(&self.0) as _),
            "secret" => Err(Denied::NeedsProof),
            _ => Err(Denied::Unknown),
        }
    }
}

static DISKS: LazyLock<Disks> = LazyLock::new(|| {
    let store = Arc::new(RamStore::new(1 << 20, 512).unwrap());
    let scsi = LogicalUnit::new(LuConfig {
medium: MediumConfig { blocks: 2048, block_bytes: 512, ..MediumConfig::default() }, ..LuConfig::default()  });
    Disks(Arc::new(Disk(Arc::new(Unit::new(scsi, store, 1, Arc::new(Nobody))))))
});

/// The kinds of the replies to `option` in these bytes.
fn kinds(mut bytes: &[u8], option: u32) -> Vec<u32> {
    let mut kinds = Vec::new();
    while !bytes.is_empty() {
        let number = |at: usize| u32::from_be_bytes(*bytes[at..].first_chunk().unwrap());
        assert_eq!(number(8), option);
        kinds.push(number(12));
        let length = number(16) as usize;
        bytes = &bytes[20 + length..];
    }
    kinds
}

fuzz_target!(|data: &[u8]| {
    if let Some(bytes) = data.first_chunk::<{ wire::REQUEST_BYTES }>() {
        let _ = Request::parse(bytes);
    }
    let Some((&[mode, flags, option_count], mut data)) = data.split_first_chunk::<3>() else { return };
    let tls = [Tls::Off, Tls::Offered, Tls::Required][usize::from(mode) % 3];
    let Some(mut negotiation) = Negotiation::new(flags.into(), tls, 1 << 20, Arc::default()) else { return };
    let mut peer = Peer { address: ([127, 0, 0, 1], 1).into(), proven: false };
    let mut secure = tls != Tls::Required;
    for _ in 0..option_count {
        let Some((&[number, length], rest)) = data.split_first_chunk::<2>() else { return };
        let (body, rest) = rest.split_at(rest.len().min(length.into()));
        data = rest;
        let number = u32::from(number % 13);
        let body = (length != 255).then_some(body);
        match negotiation.option(number, body, &*DISKS, &peer) {
            Next::Reply(bytes) => {
                let kinds = kinds(&bytes, number);
                assert!(!kinds.is_empty());
                assert!(secure || kinds.iter().all(|kind| kind >> 31 == 1), "{kinds:?} before TLS");
            }
            Next::StartTls(bytes) => {
                assert_eq!(kinds(&bytes, option::STARTTLS), [reply::ACK]);
                negotiation.secured();
                (secure, peer.proven) = (true, mode & 0x80 != 0);
            }
            Next::Transmit(_, agreed) => {
                assert!(secure);
                assert_eq!(agreed.export.name(), "disk");
                return;
            }
            Next::End(_) => return,
        }
    }
});
