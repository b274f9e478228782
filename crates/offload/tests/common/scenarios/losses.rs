//! What is lost at ErrorRecoveryLevel 1, and how it comes back.

use crate::common::*;
use iscsi_wire::{SnackRequest, SnackType, Ttt};
use offload::Engine;
use offload::encoding::{Completion, DigestAction, SnackCause, SnackState, TaskResult, task_flags};

const PIECE: usize = 512;

/// Data-In `sn` of a read of `count` pieces, the last of them with StatSN 100.
fn piece<E: Engine>(bench: &Bench<E>, sn: u32, count: u32) -> Vec<u8> {
    let stat_sn = (sn + 1 == count).then_some(100);
    let data = pattern(9, PIECE * count as usize);
    let from = PIECE * sn as usize;
    bench.data_in(1, sn, from as u32, &data[from..from + PIECE], stat_sn)
}

/// A read of `count` pieces of which those in `lost` do not arrive.
fn read_with_losses<E: Engine>(engine: E, count: u32, lost: &[u32]) -> Bench<E> {
    let mut bench = Bench::with(engine, open_conn(BOTH_DIGESTS, 1));
    bench.read(1, PIECE as u32 * count);
    for sn in (0..count).filter(|sn| !lost.contains(sn)) {
        let bytes = piece(&bench, sn, count);
        bench.rx(&bytes);
    }
    bench
}

/// The SNACKs that the engine sends now: type, BegRun, RunLength.
fn snacks<E: Engine>(bench: &mut Bench<E>) -> Vec<(SnackType, u32, u32)> {
    let sent = bench.sent();
    let snacks = sent.iter().map(|(bhs, _)| SnackRequest::parse(bhs).expect("a SNACK"));
    snacks.map(|snack| (snack.snack_type, snack.beg_run, snack.run_length)).collect()
}

// covers: SNK-01 SNK-09 ERL-02 ERL-03
pub fn every_lost_group_is_requested_once_after_its_delay<E: Engine>(new: fn() -> E) {
    let mut bench = read_with_losses(new(), 10, &[0, 3, 4, 5, 8]);
    assert!(bench.completions().is_empty());
    assert_eq!(bench.engine.deadline_us(), Some(1000));
    bench.engine.advance(999);
    assert!(bench.tx().is_empty());
    let session = bench.engine.tables().sessions[0];
    assert_eq!((session.exp_stat_sn, session.next_stat_sn), (100, 101), "the status is not acknowledged");

    bench.engine.advance(1000);
    let data = SnackType::DataOrR2t;
    assert_eq!(snacks(&mut bench), [(data, 0, 1), (data, 3, 3), (data, 8, 1)]);
    assert_eq!(bench.completions().len(), 3);
    bench.engine.advance(1_000_000);
    assert!(bench.tx().is_empty(), "no group is requested twice");
    let states: Vec<_> = bench.engine.tables().snacks.iter().map(|entry| entry.state).collect();
    assert_eq!(states, [SnackState::SENT; 3]);

    for sn in [4, 3, 0, 5, 8] {
        assert!(bench.completions().is_empty());
        let bytes = piece(&bench, sn, 10);
        bench.rx(&bytes);
        bench.rx(&bytes);
    }
    let done = task_done(&bench.completions());
    assert_eq!((done[0].result, done[0].bytes_received), (TaskResult::GOOD, 5120));
    assert_eq!(bench.data_of(1, 5120), pattern(9, 5120));
    let tables = bench.engine.tables();
    assert!(tables.snacks.is_empty());
    assert_eq!(tables.sessions[0].exp_stat_sn, 101);
}

pub fn what_arrives_within_the_delay_is_not_requested<E: Engine>(new: fn() -> E) {
    let mut bench = read_with_losses(new(), 4, &[1]);
    let late = piece(&bench, 1, 4);
    bench.rx(&late);
    bench.engine.advance(5000);
    assert!(bench.tx().is_empty() && bench.engine.deadline_us().is_none());
    assert_eq!(task_done(&bench.completions()).len(), 1);
}

// covers: DIG-12
pub fn bad_data_digests_in_a_row_are_one_group_and_a_bad_replica_is_another<E: Engine>(new: fn() -> E) {
    let mut bench = Bench::with(new(), open_conn(BOTH_DIGESTS, 1));
    bench.read(1, 4 * PIECE as u32);
    for sn in 0..4 {
        let mut bytes = piece(&bench, sn, 4);
        if sn > 0 {
            bytes[100] ^= 0x10;
        }
        bench.rx(&bytes);
    }
    let completions = bench.completions();
    assert_eq!(completions.len(), 3);
    assert!(completions.iter().all(
        |completion| matches!(completion, Completion::DigestError(error) if error.action == DigestAction::SNACK)
    ));
    assert!(bench.data_of(1, 4 * PIECE)[PIECE..].iter().all(|byte| *byte == 0));
    bench.engine.advance(1000);
    assert_eq!(snacks(&mut bench), [(SnackType::DataOrR2t, 1, 3)]);

    let mut bad_replica = piece(&bench, 2, 4);
    bad_replica[100] ^= 0x10;
    for bytes in [piece(&bench, 1, 4), bad_replica, piece(&bench, 3, 4)] {
        bench.rx(&bytes);
    }
    bench.engine.advance(3000);
    assert_eq!(snacks(&mut bench), [(SnackType::DataOrR2t, 2, 1)]);
    let replica = piece(&bench, 2, 4);
    bench.rx(&replica);
    assert_eq!(task_done(&bench.completions())[0].bytes_received, 4 * PIECE as u32);
    assert_eq!(bench.data_of(1, 4 * PIECE), pattern(9, 4 * PIECE));
}

// covers: SNK-02 ERL-03
pub fn a_lost_status_is_requested_and_acknowledged_only_when_it_is_there<E: Engine>(new: fn() -> E) {
    let mut bench = Bench::with(new(), open_conn(BOTH_DIGESTS, 1));
    for itt in 1..=3 {
        bench.read(itt, 0);
    }
    let third = bench.response(3, 102, 0);
    bench.rx(&third);
    assert_eq!(task_done(&bench.completions())[0].itt, 3);
    assert_eq!(bench.engine.tables().sessions[0].exp_stat_sn, 100);
    bench.engine.advance(1000);
    assert_eq!(snacks(&mut bench), [(SnackType::Status, 100, 2)]);
    for (itt, stat_sn, acknowledged) in [(2, 101, 100), (1, 100, 103)] {
        let bytes = bench.response(itt, stat_sn, 0);
        bench.rx(&bytes);
        assert_eq!(bench.engine.tables().sessions[0].exp_stat_sn, acknowledged);
        bench.rx(&bytes);
    }
    let done: Vec<_> = task_done(&bench.completions()).iter().map(|done| done.itt).collect();
    assert_eq!(done, [2, 1], "duplicates are dropped");
}

// covers: ERL-03
pub fn exp_data_sn_shows_data_that_was_lost_at_the_end<E: Engine>(new: fn() -> E) {
    let mut bench = Bench::with(new(), open_conn(BOTH_DIGESTS, 1));
    bench.read(1, 2 * PIECE as u32);
    let data = pattern(4, 2 * PIECE);
    let (first, second) = (
        bench.data_in(1, 0, 0, &data[..PIECE], None),
        bench.data_in(1, 1, PIECE as u32, &data[PIECE..], None),
    );
    bench.rx(&first);
    let response = bench.response(1, 100, 2);
    bench.rx(&response);
    assert!(bench.completions().is_empty());
    let tables = bench.engine.tables();
    assert_eq!((tables.snacks[0].cause, tables.snacks[0].beg_run), (SnackCause::EXP_DATA_SN, 1));
    bench.engine.advance(1000);
    assert_eq!(snacks(&mut bench), [(SnackType::DataOrR2t, 1, 1)]);
    bench.rx(&second);
    assert_eq!(task_done(&bench.completions())[0].bytes_received, 2 * PIECE as u32);
}

// covers: ERL-03 R2T-02
pub fn a_lost_r2t_is_requested<E: Engine>(new: fn() -> E) {
    let mut open = open_conn(BOTH_DIGESTS | offload::encoding::conn_flags::INITIAL_R2T, 1);
    open.max_outstanding_r2t = 3;
    let mut bench = Bench::with(new(), open);
    bench.post(1, task_flags::WRITE, 4096);
    bench.tx();
    let ahead = bench.r2t(1, 8, 1, 2048, 2048);
    bench.rx(&ahead);
    assert_eq!(bench.sent().len(), 1);
    bench.engine.advance(1000);
    assert_eq!(snacks(&mut bench), [(SnackType::DataOrR2t, 0, 1)]);
    let replica = bench.r2t(1, 7, 0, 0, 2048);
    bench.rx(&replica);
    bench.rx(&replica);
    assert_eq!(bench.sent().len(), 1, "a duplicate is not answered");
    let response = bench.response(1, 100, 2);
    bench.rx(&response);
    let completions = bench.completions();
    assert_eq!(task_done(&completions)[0].bytes_sent, 4096);
}

// covers: SNK-03
pub fn a_dataack_waits_for_the_data_before_it<E: Engine>(new: fn() -> E) {
    let mut bench = Bench::with(new(), open_conn(BOTH_DIGESTS, 1));
    bench.read(1, 4 * PIECE as u32);
    let mut asks = data_in(1, 1, PIECE as u32, None);
    (asks.acknowledge, asks.ttt) = (true, Ttt(3));
    let bytes = bench.pdu(asks.to_bhs(), &[1; PIECE]);
    bench.rx(&bytes);
    assert!(bench.tx().is_empty());
    let missing = bench.data_in(1, 0, 0, &[2; PIECE], None);
    bench.rx(&missing);
    assert_eq!(snacks(&mut bench), [(SnackType::DataAck, 2, 0)]);
}
