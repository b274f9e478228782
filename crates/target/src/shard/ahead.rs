//! The data of commands that were received and have not started, on its way from memory into the cache.
//!
//! For a short command, fetching its first block takes longer than half of the rest. A processor has only some dozen lines on their way at a
//! time, and asking for one more makes it wait. So the shard asks for a few lines at many places of its way through a batch of commands, in the
//! order in which the commands will start.

use std::collections::VecDeque;

use integrity::Prefetch;
use iscsi_core::target::task::TaskId;

/// Lines of one request. A command passes five places that request, so that this nearly covers its 4 KiB. 8 and 16 measured the same or worse.
const LINES: usize = 12;

/// See the module.
#[derive(Default)]
pub(super) struct Ahead {
    /// In the order in which the commands will start.
    data: VecDeque<(TaskId, Prefetch)>,
}

impl Ahead {
    /// A command was received; `data` is what it needs first.
    pub(super) fn received(&mut self, task: TaskId, data: Prefetch) {
        self.data.push_back((task, data));
    }

    /// A command starts: what is still missing of its data it fetches itself.
    pub(super) fn starts(&mut self, task: TaskId) {
        if self.data.front().is_some_and(|(first, _)| *first == task) {
            self.data.pop_front();
        }
    }

    /// Requests a few lines.
    #[inline]
    pub(super) fn request(&mut self) {
        let mut lines = LINES;
        while let Some((_, data)) = self.data.front_mut() {
            lines = data.request(lines);
            if lines == 0 {
                return;
            }
            self.data.pop_front();
        }
    }

    /// Forgets what a session has left behind that ended in the middle of its batch.
    pub(super) fn clear(&mut self) {
        self.data.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE_BYTES: usize = 64;

    fn id(index: u32) -> TaskId {
        TaskId::new(index, 0)
    }

    /// Data of the tasks 0, 1, ... that need so many lines.
    fn received(memory: &[u8], lines: &[usize]) -> Ahead {
        let mut ahead = Ahead::default();
        for (task, &lines) in lines.iter().enumerate() {
            ahead.received(id(task as u32), Prefetch::of(&memory[..lines * LINE_BYTES]));
        }
        ahead
    }

    /// The tasks whose data is not requested in full, and how many lines of it are left.
    fn left(ahead: &Ahead) -> Vec<(TaskId, usize)> {
        ahead.data.iter().map(|(task, data)| (*task, data.lines())).filter(|(_, lines)| *lines > 0).collect()
    }

    #[test]
    fn each_request_asks_for_a_few_lines_in_the_order_of_the_commands() {
        let memory = vec![0; 64 * LINE_BYTES];
        let mut ahead = received(&memory, &[LINES + 3, 0, 1, 64]);
        ahead.request();
        assert_eq!(left(&ahead), [(id(0), 3), (id(2), 1), (id(3), 64)]);
        ahead.request();
        assert_eq!(left(&ahead), [(id(3), 64 - (LINES - 4))], "one request serves several commands");
        (0..5).for_each(|_| ahead.request());
        assert_eq!(left(&ahead), []);
        ahead.request();
    }

    #[test]
    fn nothing_more_is_requested_for_a_command_that_has_started() {
        let memory = vec![0; 64 * LINE_BYTES];
        let mut ahead = received(&memory, &[64, 64]);
        ahead.request();
        ahead.starts(id(0));
        ahead.request();
        assert_eq!(left(&ahead), [(id(1), 64 - LINES)]);
        // One whose data were all requested, and one that nobody announced.
        ahead.starts(id(0));
        ahead.starts(id(7));
        assert_eq!(left(&ahead), [(id(1), 64 - LINES)]);
        ahead.clear();
        assert_eq!(left(&ahead), []);
    }
}
