//! After a warm-up, PDUs are received and sent without allocations of their own. It has a process of its own, because
//! it counts allocations.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::{Completion, Driver, EpollDriver, Link, SlabRing};
use iscsi_core::digest::DigestScope;
use iscsi_core::pdu_reader::PduReader;
use iscsi_core::pdu_writer::{PduWriter, TxPdu};
use iscsi_wire::Bhs;
use support::pair;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is passed on to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, which is the same.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn pdus_of_several_sizes_cause_no_allocation_each_once_warm() {
    const MAX_DATA: usize = 256 * 1024;
    const DEPTH: usize = 4;
    let slabs = SlabRing::new(1 << 20, 64);
    let mut driver = EpollDriver::new().unwrap();
    let (a, b) = pair();
    let mut links = [a, b].map(|stream| {
        let token = driver.adopt(stream).unwrap();
        let mut link = Link::new(token, PduReader::new(MAX_DATA), PduWriter::new(), slabs.clone());
        link.set_max_data_bytes(MAX_DATA);
        link.set_rx_digests(DigestScope { header: true, data: true });
        link.set_tx_digests(DigestScope { header: true, data: true });
        link.start(&mut driver);
        link
    });
    let mut out = Vec::with_capacity(64);
    // One side sends requests with a header, sometimes with data; the other answers with data from the slabs.
    let mut exchange = |rounds: usize| {
        let sizes = [0, 48, 4096, 65_536, 131_072, MAX_DATA];
        let (mut asked, mut answered) = (0, 0);
        while answered < rounds * DEPTH {
            if asked == answered {
                for _ in 0..DEPTH {
                    let mut data = slabs.take(sizes[asked / DEPTH % sizes.len()]);
                    data.fill(asked as u8);
                    links[0].push(TxPdu::with_data(Bhs::from_bytes([0; Bhs::SIZE]), data.freeze()));
                    asked += 1;
                }
                links[0].flush(&mut driver);
            }
            driver.wait(Some(Duration::from_secs(60)), &mut out).unwrap();
            for completion in out.drain(..) {
                match completion {
                    Completion::Received { conn, buffer, result } => {
                        let side = usize::from(links[1].token() == conn);
                        links[side].on_received(buffer, result.unwrap());
                        while let Some(pdu) = links[side].next_pdu().unwrap() {
                            assert!(pdu.data_digest_ok);
                            match side {
                                0 => answered += 1,
                                _ => {
                                    let mut data = slabs.take(pdu.data.len());
                                    data.copy_from_slice(&pdu.data);
                                    links[1].push(TxPdu::with_data(pdu.bhs, data.freeze()));
                                }
                            }
                        }
                        links[side].flush(&mut driver);
                    }
                    Completion::Sent { conn, segments, result } => {
                        result.unwrap();
                        let side = usize::from(links[1].token() == conn);
                        links[side].on_sent(segments);
                        links[side].flush(&mut driver);
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    };
    const ROUNDS: usize = 600;
    exchange(ROUNDS);
    let warm = slabs.stats();
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    exchange(ROUNDS);
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    // The rest is the writer's header arena: now and then a new one, when parts of the old one are still in flight.
    let pdus = 2 * ROUNDS * DEPTH;
    assert!(
        allocations as usize * 100 < pdus,
        "{allocations} allocations for {pdus} PDUs, {:?}",
        slabs.stats()
    );
    assert_eq!(slabs.stats().slabs_allocated, warm.slabs_allocated);
}
