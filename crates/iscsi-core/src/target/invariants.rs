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
        self.tasks.check(self.config.queue_depth);
        self.writes.check(&self.tasks);
        self.window.check();
        self.fences.check();
        self.retained.check(self.config.retained_bytes_max);
        self.aborts.check(&self.tasks);
        self.check_write_data();
        self.check_connections();
    }

    fn check_write_data(&self) {
        for (id, task) in self.tasks.iter() {
            if let (State::Collecting, Some(wanted)) = (task.state, task.wanted) {
                debug_assert!(wanted <= task.edtl(), "nobody asks for more than {id:?} has");
            }
        }
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
