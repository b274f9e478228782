//! The SNACKs that the engine has sent, and that the target has not answered: an engine does not repeat them
//! (`docs/engine-interface.md`, "Recovery").

use std::time::Duration;

use iscsi_core::Time;
use offload::encoding::{SnackEntry, SnackSent};

/// The requests under way, oldest first.
#[derive(Debug)]
pub(super) struct Unanswered {
    patience: Duration,
    sent: Vec<(Time, SnackSent)>,
}

impl Unanswered {
    /// The target may take `patience` for each.
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, sent: Vec::new() }
    }

    /// A SNACK was sent.
    pub(super) fn sent(&mut self, now: Time, snack: SnackSent) {
        self.sent.push((now + self.patience, snack));
    }

    /// When [`Unanswered::overdue`] is to be asked.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.sent.first().map(|(at, _)| *at)
    }

    /// Forgets the requests whose time is up. True if something that one of them requested is missing still: `missing` are
    /// the entries of the engine's table.
    pub(super) fn overdue(&mut self, now: Time, missing: impl FnOnce() -> Vec<SnackEntry>) -> bool {
        let due = self.sent.partition_point(|(at, _)| *at <= now);
        if due == 0 {
            return false;
        }
        let missing = missing();
        self.sent.drain(..due).any(|(_, snack)| missing.iter().any(|entry| overlaps(&snack, entry)))
    }
}

fn overlaps(snack: &SnackSent, entry: &SnackEntry) -> bool {
    let behind = |from: u32, to: u32, length: u32| to.wrapping_sub(from) < length;
    (snack.snack_type, snack.itt) == (entry.snack_type, entry.itt)
        && (behind(snack.beg_run, entry.beg_run, snack.run_length)
            || behind(entry.beg_run, snack.beg_run, entry.run_length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_overdue_when_a_part_of_it_is_missing_after_its_time() {
        let second = Duration::from_secs(1);
        let snack = SnackSent { itt: 7, beg_run: 3, run_length: 4, ..SnackSent::default() };
        let entry =
            |itt, beg_run, run_length| SnackEntry { itt, beg_run, run_length, ..SnackEntry::default() };
        for (missing, expected) in [
            (vec![], false),
            (vec![entry(7, 0, 3), entry(7, 7, 9), entry(8, 3, 4)], false),
            (vec![entry(7, 6, 1)], true),
            (vec![entry(7, 0, 4)], true),
        ] {
            let mut unanswered = Unanswered::new(second);
            unanswered.sent(second, snack);
            assert_eq!(unanswered.deadline(), Some(2 * second));
            assert!(!unanswered.overdue(second, || panic!("nothing is due")));
            assert_eq!(unanswered.overdue(2 * second, || missing.clone()), expected);
            assert_eq!(unanswered.deadline(), None);
        }
    }
}
