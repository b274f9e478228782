//! The command table against a map of the standard library.
#![forbid(unsafe_code)]

use std::collections::HashMap;

use offload_rtl::{TableAnswer, TableRequest, TaskTable};

/// The table as it should be: tag, index and contents.
#[derive(Default)]
struct Model(HashMap<u32, (u8, u32)>);

impl Model {
    /// The answer, the index if the answer is good, the contents if it was a look-up.
    fn answer(&mut self, tag: u32, request: TableRequest) -> (TableAnswer, Option<u8>, Option<u32>) {
        let found = self.0.get(&tag).copied();
        match (request, found) {
            (TableRequest::Allocate(_), Some(_)) => (TableAnswer::IttInUse, None, None),
            (TableRequest::Allocate(_), None) if self.0.len() == TaskTable::ENTRIES => {
                (TableAnswer::TableFull, None, None)
            }
            (TableRequest::Allocate(entry), None) => {
                let used = |index: &u8| self.0.values().any(|(at, _)| at == index);
                let index = (0..).find(|index| !used(index)).expect("there is a free one");
                self.0.insert(tag, (index, entry));
                (TableAnswer::Good, Some(index), None)
            }
            (_, None) => (TableAnswer::NoTask, None, None),
            (TableRequest::LookUp, Some((index, entry))) => (TableAnswer::Good, Some(index), Some(entry)),
            (TableRequest::WriteBack(entry), Some((index, _))) => {
                self.0.insert(tag, (index, entry));
                (TableAnswer::Good, Some(index), None)
            }
            (TableRequest::Free, Some((index, _))) => {
                self.0.remove(&tag);
                (TableAnswer::Good, Some(index), None)
            }
        }
    }
}

/// Requests in each cycle or with pauses, with few tags, which differ in single bits, so that each answer occurs often.
#[test]
fn requests_have_the_answers_of_a_map() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut answers = HashMap::<String, usize>::new();
    for pauses in [0, 50] {
        let mut table = TaskTable::new(1);
        let mut model = Model::default();
        let mut due: Option<(TableAnswer, Option<u8>, Option<u32>)> = None;
        for _ in 0..100_000 {
            let tag = if random.u8(..8) == 0 { 0 } else { 1 << random.u32(..32) };
            let request = match random.u8(..8) {
                0..3 => TableRequest::LookUp,
                3..6 => TableRequest::Allocate(random.u32(..)),
                6 => TableRequest::WriteBack(random.u32(..)),
                _ => TableRequest::Free,
            };
            let request = (random.u8(..100) >= pauses).then_some((tag, request));
            let used = model.0.len();
            let said = table.cycle(request);
            assert_eq!(said.failed, 0, "an assert of the circuit has failed");
            assert_eq!(usize::from(said.used), used);
            assert_eq!(said.answer.is_some(), due.is_some(), "an answer for each request, in the next cycle");
            if let (Some((answer, index, entry)), Some((expected, at, contents))) = (said.answer, due) {
                assert_eq!(answer, expected);
                assert!(at.is_none_or(|at| at == index), "{at:?}, not {index}");
                assert!(contents.is_none_or(|contents| contents == entry), "{contents:?}, not {entry}");
                *answers.entry(format!("{answer:?}")).or_default() += 1;
            }
            due = request.map(|(tag, request)| model.answer(tag, request));
        }
    }
    assert!(answers.len() == 4 && answers.values().all(|count| *count > 500), "{answers:?}");
}

/// The next tasks get the entries of those before the reset, and must not be found by their tags.
#[test]
fn a_reset_forgets_every_task() {
    let mut table = TaskTable::new(3);
    let all = 0..TaskTable::ENTRIES as u32;
    let before = |at: u32| at * 0x1111_1111;
    for at in all.clone() {
        table.cycle(Some((before(at), TableRequest::Allocate(at))));
    }
    assert_eq!(table.reset(), 16, "a row in a cycle");
    for at in all.clone() {
        table.cycle(Some((0x1234_5670 | at, TableRequest::Allocate(at))));
    }
    for at in all {
        table.cycle(Some((before(at), TableRequest::LookUp)));
        let said = table.cycle(None);
        assert_eq!(said.answer.map(|said| said.0), Some(TableAnswer::NoTask), "{at}");
        assert_eq!(said.failed, 0, "an assert of the circuit has failed");
    }
}

#[test]
fn a_table_that_is_full_takes_a_task_again_after_one_is_freed() {
    let mut table = TaskTable::new(2);
    for tag in 0..TaskTable::ENTRIES as u32 {
        table.cycle(Some((tag, TableRequest::Allocate(tag))));
    }
    table.cycle(Some((99, TableRequest::Allocate(0))));
    assert_eq!(
        table.cycle(Some((5, TableRequest::Free))).answer.map(|said| said.0),
        Some(TableAnswer::TableFull)
    );
    table.cycle(Some((99, TableRequest::Allocate(0))));
    let said = table.cycle(Some((5, TableRequest::LookUp))).answer;
    assert_eq!(said.map(|said| (said.0, said.1)), Some((TableAnswer::Good, 5)));
    assert_eq!(table.cycle(None).answer.map(|said| said.0), Some(TableAnswer::NoTask));
}
