//! The tags of the command table against a map of the standard library.
#![forbid(unsafe_code)]

use std::collections::{HashMap, VecDeque};

use offload_rtl::{TableRequest, TaskTable};

/// Requests in each cycle or with pauses, with few tags, which differ in single bits, so that each answer occurs often.
#[test]
fn requests_have_the_answers_of_a_map() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut seen = HashMap::<&str, usize>::new();
    for pauses in [0, 50] {
        let mut table = TaskTable::new(1);
        let mut model = HashMap::<u32, u8>::new();
        // The answers that are due, of this cycle first; and how long ago a tag was added, and one removed.
        let mut due = VecDeque::from(vec![None; TaskTable::LATENCY]);
        let (mut added, mut removed) = (9, 9);
        let mut used = VecDeque::from([0]);
        for _ in 0..100_000 {
            let tag = if random.u8(..8) == 0 { 0 } else { 1 << random.u32(..32) };
            let index = model.get(&tag).copied();
            let request = match (random.u8(..8), index) {
                (4..7, None) if added > 3 && model.len() < TaskTable::ENTRIES && removed > 3 => {
                    TableRequest::Add
                }
                (7, Some(index)) => TableRequest::Remove(index),
                _ => TableRequest::LookUp,
            };
            let request = (random.u8(..100) >= pauses).then_some((tag, request));
            let said = table.cycle(request);
            assert_eq!(said.failed, 0, "an assert of the circuit has failed");
            used.push_back(model.len());
            assert_eq!(Some(usize::from(said.used)), used.pop_front());
            let expected = due.pop_front().flatten();
            assert_eq!(said.answer, expected, "an answer for each look-up, after three cycles");
            if let Some(answer) = expected {
                *seen.entry(if answer.is_some() { "found" } else { "not found" }).or_default() += 1;
            }
            if added > 3 && removed > 3 {
                let lowest = (0..TaskTable::ENTRIES as u8).find(|at| model.values().all(|index| index != at));
                assert_eq!(said.free, lowest, "the lowest free index");
                *seen.entry(if lowest.is_some() { "free" } else { "full" }).or_default() += 1;
            }
            due.push_back(matches!(request, Some((_, TableRequest::LookUp))).then_some(index));
            (added, removed) = (added + 1, removed + 1);
            match request {
                Some((tag, TableRequest::Add)) => {
                    model.insert(tag, said.free.expect("there is a free index"));
                    added = 1;
                }
                Some((tag, TableRequest::Remove(_))) => {
                    model.remove(&tag);
                    removed = 1;
                }
                _ => {}
            }
        }
    }
    assert!(seen.len() == 4 && seen.values().all(|count| *count > 500), "{seen:?}");
}

/// The next tasks get the indices of those before the reset, and must not be found by their tags.
#[test]
fn a_reset_forgets_every_task() {
    let mut table = TaskTable::new(3);
    let all = 0..TaskTable::ENTRIES as u32;
    let before = |at: u32| at * 0x1111_1111;
    for at in all.clone() {
        assert_eq!(table.add(before(at)), Some(at as u8));
    }
    assert_eq!(table.reset(), 16, "a row in a cycle");
    for at in all.clone() {
        assert_eq!(table.add(0x1234_5670 | at), Some(at as u8));
    }
    for at in all {
        assert_eq!(table.look_up(before(at)), None, "{at}");
        assert_eq!(table.look_up(0x1234_5670 | at), Some(at as u8));
    }
    assert_eq!(table.cycle(None).failed, 0, "an assert of the circuit has failed");
}

#[test]
fn a_table_that_is_full_takes_a_task_again_after_one_is_removed() {
    let mut table = TaskTable::new(2);
    for tag in 0..TaskTable::ENTRIES as u32 {
        table.add(tag);
    }
    assert_eq!(table.add(99), None);
    table.cycle(Some((5, TableRequest::Remove(5))));
    assert_eq!(table.look_up(5), None);
    assert_eq!(table.add(99), Some(5));
    assert_eq!(table.look_up(99), Some(5));
    assert_eq!(table.cycle(None).failed, 0, "an assert of the circuit has failed");
}

/// Who breaks a rule of the table is told so by its asserts.
#[test]
fn a_tag_that_is_added_twice_fails_an_assert() {
    let mut table = TaskTable::new(4);
    table.add(7);
    table.add(7);
    table.cycle(None);
    table.cycle(None);
    assert!(table.cycle(None).failed > 0);
}
