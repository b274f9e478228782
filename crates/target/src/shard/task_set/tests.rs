use std::sync::Arc;

use iscsi_core::Time;
use iscsi_core::wire::Lun;
use smallvec::SmallVec;

use super::*;
use crate::observe::Op;

fn id(index: u32) -> TaskId {
    TaskId::new(index, 0)
}

fn command(index: u32, lun: u16, attribute: TaskAttribute) -> Command {
    Command {
        task: id(index),
        lun: Lun::from_index(lun),
        cdb: SmallVec::from_slice(&[0; 16]),
        attribute,
        priority: 0,
        read_length: 0,
        write_length: 0,
        digest_chunk_bytes: None,
    }
}

fn at_worker(lun: u16, outlives_task: bool) -> AtWorker {
    AtWorker {
        cancelled: Arc::default(),
        reading_bytes: 4096,
        reserved_bytes: 512,
        lun,
        kind: Op::Read,
        started: Time::ZERO,
        outlives_task,
    }
}

/// A command arrives; if it may start, it goes to a worker.
fn arrive(set: &mut TaskSet, index: u32, lun: u16, attribute: TaskAttribute) -> bool {
    let admitted = set.admit(command(index, lun, attribute));
    if admitted.is_some() {
        set.give_to_worker(id(index), at_worker(lun, false));
    }
    assert!(set.holds());
    admitted.is_some()
}

fn next_in_turn(set: &mut TaskSet) -> Option<TaskId> {
    let next = set.take_next_in_turn().map(|command| command.task);
    if let Some(task) = next {
        set.give_to_worker(task, at_worker(0, false));
    }
    assert!(set.holds());
    next
}

#[test]
fn an_ordered_command_waits_for_the_earlier_ones_and_holds_up_the_later_ones() {
    let mut set = TaskSet::default();
    assert!(arrive(&mut set, 1, 0, TaskAttribute::Simple));
    assert!(!arrive(&mut set, 2, 0, TaskAttribute::Ordered), "an earlier command runs");
    assert!(!arrive(&mut set, 3, 0, TaskAttribute::Simple), "the ORDERED command comes first");
    assert!(arrive(&mut set, 4, 0, TaskAttribute::HeadOfQueue), "it starts at once");
    assert!(arrive(&mut set, 5, 1, TaskAttribute::Simple), "another unit has an order of its own");
    assert_eq!(next_in_turn(&mut set), None);

    set.take_from_worker(id(1)).unwrap();
    assert_eq!(next_in_turn(&mut set), None, "the HEAD OF QUEUE command still runs");
    set.take_from_worker(id(4)).unwrap();
    assert_eq!(next_in_turn(&mut set), Some(id(2)));
    assert_eq!(next_in_turn(&mut set), None, "the ORDERED command runs alone");
    set.take_from_worker(id(2)).unwrap();
    assert_eq!(next_in_turn(&mut set), Some(id(3)));
    assert!(arrive(&mut set, 6, 0, TaskAttribute::Simple));
}

#[test]
fn a_command_that_waits_for_room_counts_as_started() {
    let mut set = TaskSet::default();
    let first = set.admit(command(1, 0, TaskAttribute::Simple)).unwrap();
    set.wait_for_room(first);
    assert!(!arrive(&mut set, 2, 0, TaskAttribute::Ordered));
    assert_eq!(set.count_for_room(), 1);
    assert_eq!(set.for_room_at(0).map(|command| command.task), Some(id(1)));
    assert_eq!(set.take_for_room_at(0).map(|command| command.task), Some(id(1)));
    assert_eq!(next_in_turn(&mut set), Some(id(2)), "it left without becoming active");
}

#[test]
fn an_abandoned_command_leaves_every_queue_and_the_next_one_gets_its_turn() {
    let mut set = TaskSet::default();
    assert!(arrive(&mut set, 1, 0, TaskAttribute::Simple));
    assert!(!arrive(&mut set, 2, 0, TaskAttribute::Ordered));
    assert!(!arrive(&mut set, 3, 0, TaskAttribute::Simple));
    assert_eq!(set.abandon(id(2)), Abandoned::Gone(0));
    assert!(set.holds());
    assert_eq!(next_in_turn(&mut set), Some(id(3)));

    set.wait_for_room(command(4, 0, TaskAttribute::Simple));
    set.wait_for_room(command(5, 0, TaskAttribute::Simple));
    assert_eq!(set.abandon(id(4)), Abandoned::Gone(0));
    assert!(set.holds());
    assert_eq!(set.for_room_at(0).map(|command| command.task), Some(id(5)));
    assert_eq!(set.abandon(id(99)), Abandoned::Gone(0), "a command that runs on the shard is not in the set");
}

#[test]
fn an_abandoned_command_stays_with_its_worker_unless_it_outlives_its_task() {
    let mut set = TaskSet::default();
    set.give_to_worker(id(1), at_worker(0, false));
    set.give_to_worker(id(2), at_worker(0, true));
    assert_eq!((set.count_at_workers(), set.reading_bytes()), (2, 8192));

    assert_eq!(set.abandon(id(1)), Abandoned::Cancelled);
    assert_eq!(set.abandon(id(2)), Abandoned::Gone(512));
    assert_eq!((set.count_at_workers(), set.reading_bytes()), (1, 4096));
    assert!(set.take_from_worker(id(2)).is_none());
    assert!(set.take_from_worker(id(1)).unwrap().cancelled.load(Ordering::Acquire));
    assert_eq!(set.reading_bytes(), 0);
    assert!(set.take_awaiting_data(id(1)).is_none());
    assert!(set.holds());
}
