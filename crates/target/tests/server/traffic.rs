//! Slow stores, peers that do not read, and many concurrent sessions.

use std::sync::Arc;

use blockstore::{Op, RamStore, StatsStore};
use conform::{Command, Frame, Session};
use iscsi_core::wire::{Lun, NopOut, Ttt};

use crate::support::*;

// A slow store delays neither pings nor task management nor other units.
#[test]
fn a_unit_that_stands_still_delays_nothing_else() {
    let mut config = config();
    config.targets[0].luns.push(ram(1));
    config.limits.shards = 1;
    let (lab, gate) = Lab::gated(config);
    let (mut a, mut b) = (lab.session("a"), lab.session("b"));
    gate.close(&[Op::Read, Op::Write, Op::Flush]);
    let mut stuck: Vec<conform::Sent> =
        (0..40).map(|lba| a.start(&if lba % 2 == 0 { read(lba) } else { write(lba, 1) }).unwrap()).collect();
    stuck.push(a.start(&Command::none([0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0])).unwrap());
    gate.wait_for_waiting(1);
    for session in [&mut a, &mut b] {
        session.ping().unwrap();
        session.lun = Lun::from_index(1);
        session.clear_unit_attentions().unwrap();
        session.run_good(&write(3, 3)).unwrap();
        assert_eq!(byte_at(session, 3), 3);
        session.lun = Lun::from_index(0);
    }
    let victim = stuck.remove(5);
    let request = a.tmf(iscsi_core::wire::TmfFunction::AbortTask, true);
    let request = iscsi_core::wire::TaskManagementRequest {
        referenced_task_tag: victim.itt,
        ref_cmd_sn: victim.cmd_sn,
        ..request
    };
    a.peer.send(&Frame::of(request)).unwrap();
    lab.session("c").log_out().unwrap();
    for sent in &stuck {
        assert_eq!(a.stashed(sent.itt), None);
    }
    gate.open();
    for sent in &stuck {
        assert!(a.finish(sent).unwrap().is_good());
    }
    a.next_for(request.itt).unwrap();
}

// The most that may have been read for a peer that accepts nothing: the maximum queue, one command more, and what fits into
// the sockets.
const AHEAD_MAX: u64 = (16 << 20) + (1 << 20) + (16 << 20);

fn peer_that_does_not_read(offload: bool) {
    const READS: u64 = 100;
    let ram = Arc::new(RamStore::new(16 << 20, BLOCK).unwrap());
    let store = StatsStore::new(ram);
    let stats = store.stats();
    let mut config = config();
    config.limits.store_concurrency_per_lun = 4;
    let (lab, _gate) = match offload {
        false => (Lab::with_store(config, 0, Arc::new(store)), None),
        true => {
            let (store, gate) = blockstore::DelayStore::new(store, std::time::Duration::ZERO);
            (Lab::with_store(config, 0, Arc::new(store)), Some(Barrier(gate)))
        }
    };
    let mut session = lab.session("a");
    let before = stats.get(Op::Read).bytes;
    // The first of them is sent last, so that all become ready at the same moment.
    let mut frames: Vec<(conform::Sent, Frame)> =
        (0..READS).map(|_| session.command_frame(&Command::read_16(0, 2048, BLOCK))).collect();
    let first = frames.remove(0);
    frames.push(first);
    let (sent, frames): (Vec<_>, Vec<_>) = frames.into_iter().unzip();
    session.peer.send_together(&frames).unwrap();
    for _ in 0..200 {
        let itt = session.itt();
        let ping = NopOut { ttt: Ttt::RESERVED, ..session.nop(itt, true) };
        session.peer.send(&Frame::of(ping).data(vec![7; 4096])).unwrap();
    }
    let (mut taken, mut pings, mut most_ahead) = (0, 0, 0);
    while taken < READS << 20 || pings < 200 {
        let rx = session.next().unwrap();
        match rx.bhs.opcode() {
            0x25 => taken += rx.data.len() as u64,
            0x20 => pings += 1,
            _ => panic!("{}", rx.line()),
        }
        most_ahead = most_ahead.max((stats.get(Op::Read).bytes - before).saturating_sub(taken));
    }
    assert!(most_ahead <= AHEAD_MAX, "{most_ahead} bytes were read for a peer that does not take them");
    assert_eq!(stats.get(Op::Read).bytes - before, READS << 20);
    drop(sent);
}

#[test]
fn a_peer_that_asks_and_does_not_read_has_little_read_for_it() {
    peer_that_does_not_read(false);
}

#[test]
fn a_peer_that_asks_and_does_not_read_has_little_read_for_it_by_workers() {
    peer_that_does_not_read(true);
}

/// COMPARE AND WRITE of one block, as a lock: true if it changed from `from` to `to`.
fn compare_and_write(session: &mut Session, lba: u64, from: [u8; 512], to: [u8; 512]) -> bool {
    let mut cdb = vec![0u8; 16];
    (cdb[0], cdb[13]) = (0x89, 1);
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    let data = [from, to].concat();
    let command = Command::write(cdb, data).unsolicited(conform::Unsolicited::Immediate(1024));
    let outcome = session.run(&command).unwrap();
    match sense(&outcome) {
        None => outcome.is_good(),
        Some((0xe, 0x1d, 0)) => false,
        Some(other) => panic!("{other:x?}"),
    }
}

fn lock_block(owner: u64) -> [u8; 512] {
    let mut block = [0; 512];
    block[..8].copy_from_slice(&owner.to_be_bytes());
    block[504..].copy_from_slice(&owner.to_be_bytes());
    block
}

fn caw_lock(lab: &Lab) {
    const ROUNDS: u64 = 40;
    let worker = |id: u64| {
        let mut session = lab.session(&format!("n{id}"));
        for _ in 0..ROUNDS {
            while !compare_and_write(&mut session, 0, lock_block(0), lock_block(id)) {}
            // Only the holder of the lock gets here, so a plain read and a plain write are enough to count.
            let count = session.run_good(&read(1)).unwrap().data;
            let count = u64::from_be_bytes(count[..8].try_into().unwrap()) + 1;
            let mut block = vec![0; 512];
            block[..8].copy_from_slice(&count.to_be_bytes());
            let unsolicited = conform::Unsolicited::Immediate(512);
            session.run_good(&Command::write_16(1, block, BLOCK).unsolicited(unsolicited)).unwrap();
            assert!(compare_and_write(&mut session, 0, lock_block(id), lock_block(0)), "it was ours");
        }
    };
    std::thread::scope(|scope| {
        for id in 1..=8 {
            scope.spawn(move || worker(id));
        }
    });
    let mut session = lab.session("reader");
    let count = session.run_good(&read(1)).unwrap().data;
    assert_eq!(u64::from_be_bytes(count[..8].try_into().unwrap()), 8 * ROUNDS);
}

// covers: CAW-01
#[test]
fn caw_01_eight_nexuses_take_it_as_a_lock() {
    caw_lock(&Lab::start(config()));
}

// covers: CAW-01
#[test]
fn caw_01_eight_nexuses_take_it_as_a_lock_on_worker_threads() {
    let (lab, _gate) = Lab::gated(config());
    caw_lock(&lab);
}

// covers: CAW-01
#[test]
fn caw_01_of_two_that_meet_at_a_store_one_finds_the_other_s_data() {
    let (lab, gate) = Lab::gated(config());
    let (mut a, mut b) = (lab.session("a"), lab.session("b"));
    let lock = |lba: u64, to: u64| {
        let mut cdb = vec![0u8; 16];
        (cdb[0], cdb[9], cdb[13]) = (0x89, lba as u8, 1);
        let data = [lock_block(0), lock_block(to)].concat();
        Command::write(cdb, data).unsolicited(conform::Unsolicited::Immediate(1024))
    };
    gate.close(&[Op::Write]);
    // The first one has compared, and is about to write.
    let first = a.start(&lock(5, 1)).unwrap();
    gate.wait_for_waiting(1);
    let second = b.start(&lock(5, 2)).unwrap();
    let reader = b.start(&read(5)).unwrap();
    // Workers start in order: when this one has got so far, the second one and the reader have had their chance.
    let elsewhere = b.start(&lock(6, 3)).unwrap();
    gate.wait_for_waiting(2);
    gate.open();
    assert!(a.finish(&first).unwrap().is_good());
    assert_eq!(sense(&b.finish(&second).unwrap()), Some((0xe, 0x1d, 0)));
    assert_eq!(b.finish(&reader).unwrap().data, lock_block(1), "read while it was written");
    assert!(b.finish(&elsewhere).unwrap().is_good());
    assert_eq!(b.run_good(&read(5)).unwrap().data, lock_block(1));
}

// Sessions on many shards with one unit: every one reads what it wrote, digests on.
#[test]
fn many_sessions_on_many_shards_keep_their_data_apart() {
    let lab = Lab::start(config());
    std::thread::scope(|scope| {
        for id in 0..12u64 {
            let lab = &lab;
            scope.spawn(move || {
                let script =
                    lab.script(&format!("h{id}")).key("HeaderDigest", "CRC32C").key("DataDigest", "CRC32C");
                let mut session = lab.login(&script);
                session.clear_unit_attentions().unwrap();
                for round in 0..20u64 {
                    let data: Vec<u8> = (0..64 * 512).map(|i| (i as u64 + id * 31 + round) as u8).collect();
                    session.run_good(&Command::write_16(id * 64, data.clone(), BLOCK)).unwrap();
                    let read = session.run_good(&Command::read_16(id * 64, 64, BLOCK)).unwrap();
                    assert!(read.data == data, "session {id} read what it did not write");
                }
                session.log_out().unwrap();
            });
        }
    });
    lab.wait_for_sessions(0);
}

// covers: TSK-01
#[test]
fn tsk_01_ordered_commands_are_barriers_and_head_of_queue_passes_them() {
    use iscsi_core::wire::TaskAttribute::{HeadOfQueue, Ordered, Simple};
    let mut config = config();
    config.targets[0].luns.push(ram(1));
    let (lab, gate) = Lab::gated(config);
    let mut session = lab.session("a");
    let mut other = lab.session("b");
    // First, second, and whether the second may run concurrently with the first.
    for (first, second, beside) in [
        (Simple, Simple, true),
        (Simple, HeadOfQueue, true),
        (Simple, Ordered, false),
        (Ordered, Simple, false),
        (Ordered, Ordered, false),
        (Ordered, HeadOfQueue, true),
        (HeadOfQueue, Ordered, false),
    ] {
        gate.close(&[Op::Read]);
        let one = session.start(&read(1).attr(first)).unwrap();
        gate.wait_for_waiting(1);
        let two = session.start(&read(2).attr(second)).unwrap();
        // Simple, after a barrier that waits; after the ping all commands have been examined.
        let three = session.start(&read(3)).unwrap();
        session.ping().unwrap();
        if beside {
            gate.wait_for_waiting(2);
        } else {
            assert_eq!(gate.waiting(), 1, "{second:?} began beside {first:?}");
        }
        // Other units and other sessions are not affected.
        session.run(&Command::test_unit_ready().lun(Lun::from_index(1))).unwrap();
        other.run_good(&write(9, 9)).unwrap();
        gate.open();
        for sent in [&one, &two, &three] {
            assert!(session.finish(sent).unwrap().is_good(), "{first:?} {second:?}");
        }
    }
    // A barrier that is aborted no longer delays anything.
    gate.close(&[Op::Read]);
    let one = session.start(&read(1)).unwrap();
    gate.wait_for_waiting(1);
    let barrier = session.start(&write(2, 2).attr(Ordered)).unwrap();
    let after = session.start(&write(3, 3)).unwrap();
    let answer = session.abort(barrier.itt, barrier.cmd_sn).unwrap();
    assert_eq!(answer, iscsi_core::wire::TmfResponse::FunctionComplete);
    assert!(session.finish(&after).unwrap().is_good());
    gate.open();
    assert!(session.finish(&one).unwrap().is_good());
    assert_eq!(byte_at(&mut session, 2), 0);
}
