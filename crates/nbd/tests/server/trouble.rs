//! Clients that vanish, stores that fail, units that are removed.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use blockstore::{DelayStore, Fault, FaultError, FaultRule, FaultStore, Op, OpSet, RamStore};
use nbd::counters::Refusal;
use nbd::seats::CONNECTIONS_PER_EXPORT_MAX;
use nbd::wire::{command, option, reply};
use scsi::{Asc, UaScope};

use crate::lab::{Lab, MEMORY, SIZE, text};

const READ: (u16, u16) = (command::READ, 0);
const WRITE: (u16, u16) = (command::WRITE, 0);
const FLUSH: (u16, u16) = (command::FLUSH, 0);
const EIO: u32 = 5;
const ENOSPC: u32 = 28;
/// Holders of the export when no connection has it: the lab and the server.
const AT_REST: usize = 2;

fn ram() -> RamStore {
    RamStore::new(SIZE, 512).unwrap()
}

fn until(what: &str, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(20), "still not: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_write_whose_data_stop_in_the_middle_changes_nothing() {
    let lab = Lab::new(Arc::new(ram()));
    let mut client = lab.open(true);
    client.request(WRITE, 1, 0, 64 << 10, &[7; 63 << 10]);
    drop(client);
    until("the connection is gone", || Arc::strong_count(&lab.disk) == AT_REST);
    let back = lab.open(false).run(READ, 0, 64 << 10, &[]);
    assert!(back.data.iter().all(|byte| *byte == 0));
}

/// What an operator sees of clients that work, fail and leave.
#[test]
fn connections_requests_bytes_and_errors_are_counted() {
    let lab = Lab::new(Arc::new(ram()));
    let counters = Arc::clone(lab.server.counters());
    let mut client = lab.open(true);
    assert_eq!(client.run(WRITE, 0, 4096, &[7; 4096]).error, 0);
    assert_eq!(client.run(READ, 0, 512, &[]).error, 0);
    assert_ne!(client.run(READ, SIZE, 512, &[]).error, 0, "beyond the end");
    assert_eq!(client.run(FLUSH, 0, 0, &[]).error, 0);
    assert_eq!((counters.open(), counters.served(false), counters.served(true)), (1, 1, 0));
    assert_eq!(counters.requests(), [2, 1, 1, 0, 0, 0, 0, 0]);
    assert_eq!((counters.received_bytes(), counters.sent_bytes()), (4096, 512));
    assert_eq!(counters.errors(), [0, 0, 1, 0, 0], "EINVAL");
    drop(client);
    until("the connection has ended", || counters.open() == 0);

    let mut stranger = lab.client();
    stranger.bytes(18);
    stranger.stream.write_all(&[0xff; 64]).unwrap();
    until("the handshake was refused", || counters.refused(Refusal::Handshake) == 1);
    assert_eq!((counters.served(false), counters.refused(Refusal::Full)), (1, 0));
}

#[test]
fn writes_under_way_when_the_connection_dies_are_whole() {
    let (store, gate) = DelayStore::new(ram(), Duration::ZERO);
    let lab = Lab::new(Arc::new(store));
    gate.close(OpSet::of(&[Op::Write]));
    let mut client = lab.open(true);
    for block in 0..8u64 {
        client.request(WRITE, block, block * 8192, 8192, &[block as u8 + 1; 8192]);
    }
    gate.wait_for_waiting(4);
    drop(client);
    gate.open();
    until("the connection is gone", || Arc::strong_count(&lab.disk) == AT_REST);
    let back = lab.open(false).run(READ, 0, 64 << 10, &[]);
    for (data, byte) in back.data.chunks(8192).zip(1u8..) {
        let all = |wanted: u8| data.iter().all(|found| *found == wanted);
        assert!(
            all(byte) || (byte > 4 && all(0)),
            "write {byte} is there in part, or began and is not there"
        );
    }
}

#[test]
fn what_a_store_does_wrong_is_told_and_the_next_request_is_served() {
    let (store, faults) = FaultStore::new(ram());
    let lab = Lab::new(Arc::new(store));
    let mut client = lab.open(true);
    let cases = [
        (Op::Write, FaultError::NoSpace, WRITE, ENOSPC),
        (Op::Write, FaultError::Medium, WRITE, EIO),
        (Op::Read, FaultError::Medium, READ, EIO),
        (Op::Flush, FaultError::FlushFailed, FLUSH, EIO),
    ];
    for (op, error, command, errno) in cases {
        faults.arm(FaultRule::new(op, Fault::Error(error)).nth(1));
        let data: &[u8] = if command == WRITE { &[7; 512] } else { &[] };
        let length = if command == FLUSH { 0 } else { 512 };
        assert_eq!(client.run(command, 0, length, data).error, errno, "{op:?}");
        faults.clear();
        assert_eq!(client.run(command, 0, length, data).error, 0, "{op:?}");
    }
}

/// A loss that a host learns from a unit attention is reported to an NBD client by its next flush.
#[test]
fn a_unit_that_was_started_again_fails_the_next_flush_of_each_connection() {
    let lab = Lab::new(Arc::new(ram()));
    let (mut one, mut other) = (lab.open(true), lab.open(false));
    assert_eq!(one.run(FLUSH, 0, 0, &[]).error, 0, "a new connection has nothing to lose");
    lab.disk.unit.scsi.unit_attention(UaScope::All, Asc::POWER_ON_OR_RESET);
    assert_eq!(one.run(READ, 0, 512, &[]).error, 0);
    assert_eq!([one.run(FLUSH, 0, 0, &[]).error, one.run(FLUSH, 0, 0, &[]).error], [EIO, 0]);
    assert_eq!([other.run(FLUSH, 0, 0, &[]).error, other.run(FLUSH, 0, 0, &[]).error], [EIO, 0]);
    // Other unit attentions do not concern NBD clients.
    lab.disk.unit.scsi.unit_attention(UaScope::All, Asc::MODE_PARAMETERS_CHANGED);
    assert_eq!(one.run(FLUSH, 0, 0, &[]).error, 0);
}

#[test]
fn a_unit_that_is_served_no_more_leaves_its_connections() {
    let lab = Lab::new(Arc::new(ram()));
    let mut client = lab.open(true);
    lab.disk.served.store(false, Ordering::Release);
    assert!(client.is_closed());
    until("nobody holds it", || Arc::strong_count(&lab.disk) == AT_REST);
}

/// Clients that claim memory and send nothing keep their share; other clients have the rest.
#[test]
fn a_client_that_owes_data_keeps_nobody_from_theirs() {
    let lab = Lab::new(Arc::new(ram()));
    let longest = MEMORY as u32 / 4;
    let mut debtors: Vec<_> = (0..3).map(|_| lab.open(true)).collect();
    for debtor in &mut debtors {
        // The second one waits for the share of its connection.
        debtor.request(WRITE, 1, 0, longest, &[]);
        debtor.stream.write_all(&[7; 4096]).unwrap();
    }
    let mut client = lab.open(true);
    for _ in 0..4 {
        assert_eq!(client.run(WRITE, 0, longest, &vec![9; longest as usize]).error, 0);
    }
}

#[test]
fn a_store_that_hangs_holds_up_its_own_requests_only() {
    let (store, gate) = DelayStore::new(ram(), Duration::ZERO);
    let lab = Lab::new(Arc::new(store));
    gate.close(OpSet::of(&[Op::Flush]));
    let mut client = lab.open(true);
    client.request(FLUSH, 1, 0, 0, &[]);
    gate.wait_for_waiting(1);
    assert_eq!(lab.open(false).run(READ, 0, 512, &[]).error, 0);
    assert_eq!(client.run(READ, 0, 512, &[]).error, 0, "nor does it hold up others of its connection");
    gate.open();
    assert_eq!((client.answer(0).cookie), 1);
}

#[test]
fn a_server_that_ends_sends_what_is_under_way() {
    let (store, gate) = DelayStore::new(ram(), Duration::ZERO);
    let lab = Lab::new(Arc::new(store));
    gate.close(OpSet::of(&[Op::Write]));
    let mut client = lab.open(true);
    client.request(WRITE, 5, 0, 512, &[7; 512]);
    gate.wait_for_waiting(1);
    let Lab { server, .. } = lab;
    let ends = std::thread::spawn(move || server.shutdown(Duration::from_secs(20)));
    gate.open();
    let answer = client.answer(0);
    assert_eq!((answer.cookie, answer.error), (5, 0));
    assert!(client.is_closed());
    ends.join().unwrap();
}

#[test]
fn an_export_has_a_bounded_number_of_connections_and_a_closed_one_makes_room() {
    let lab = Lab::new(Arc::new(ram()));
    let mut clients: Vec<_> = (0..CONNECTIONS_PER_EXPORT_MAX).map(|_| lab.open(false)).collect();
    let refused = || {
        let mut late = lab.client();
        late.greet();
        late.option(option::GO, &[&text("disk")[..], &[0, 0]].concat());
        late.reply().0 == reply::ERR_POLICY
    };
    assert!(refused());
    drop(clients.pop());
    // The server notices by itself that the client has gone.
    until("there is room again", || !refused());
    assert_eq!(clients[0].run(READ, 0, 512, &[]).error, 0, "nobody else has noticed");
}
