//! Invariants of a target's session, valid whenever its caller has taken every action: the counters equal the sums they stand
//! for. Checked where debug assertions are on: in the tests, and in the simulator after every event.

use super::session::TargetSession;
use super::task::State;

impl TargetSession {
    /// Does nothing without debug assertions.
    ///
    /// # Panics
    /// When an invariant does not hold.
    pub(super) fn check_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        self.check_tasks();
        self.check_write_data();
        self.check_connections();
    }

    fn check_tasks(&self) {
        let (mut immediate, mut live) = (0, 0);
        for (id, task) in self.tasks.iter() {
            *if task.immediate { &mut immediate } else { &mut live } += 1;
            debug_assert_eq!(self.by_itt.get(&task.itt), Some(&id), "the tag {} leads to its task", task.itt);
        }
        debug_assert_eq!((immediate, live), (self.immediate, self.live), "commands outstanding");
        debug_assert_eq!(self.by_itt.len(), immediate + live, "one tag for each task");
        debug_assert!(live <= self.config.queue_depth as usize, "the window bounds commands");
    }

    fn check_write_data(&self) {
        let (mut solicited, mut early) = (0, 0);
        for (id, task) in self.tasks.iter() {
            solicited += u64::from(task.budget_bytes);
            early += u64::from(task.early_bytes);
            if let (State::Collecting, Some(wanted)) = (task.state, task.wanted) {
                debug_assert!(wanted <= task.edtl, "nobody asks for more than {id:?} has");
            }
        }
        debug_assert_eq!(solicited, self.solicited_bytes, "what R2Ts may still bring");
        debug_assert_eq!(early, self.early_bytes, "what came or may come unsolicited");
        let queued = |id| self.tasks.get(id).is_some_and(|task| task.budget_bytes == 0);
        debug_assert!(self.budget_queue.iter().all(|id| queued(*id)), "a task in the queue has no budget");
    }

    fn check_connections(&self) {
        for (n, connection) in self.connections.iter().enumerate() {
            let cid = connection.cid;
            debug_assert!(
                self.connections[..n].iter().all(|other| other.cid != cid),
                "{cid:?} is there once"
            );
        }
        let homeless = |cid| self.connections.iter().all(|connection| connection.cid != cid);
        for (id, task) in self.tasks.iter() {
            let lost = task.home().is_some_and(homeless);
            debug_assert!(!lost, "{id:?} is an orphan when its connection is gone");
        }
    }
}
