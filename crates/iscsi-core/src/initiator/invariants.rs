//! Invariants of an initiator's session, valid whenever its caller has taken every action. Checked where debug assertions are on:
//! in the tests, and in the simulator after every event.

use super::session::InitiatorSession;
use super::task::Wanted;

impl InitiatorSession {
    /// Does nothing without debug assertions.
    ///
    /// # Panics
    /// When an invariant does not hold.
    pub(super) fn check_invariants(&self) {
        if !cfg!(debug_assertions) || self.is_closed() {
            return;
        }
        self.window.check();
        self.commands.check(&self.tasks);
        self.missing.check(&self.tasks);
        let settling = self.tasks.managements().filter(|(_, management)| management.wanted == Wanted::Settle);
        self.settling.check(settling.count());
        let managing = self.tasks.managements().filter(|(_, management)| management.wanted != Wanted::Settle);
        self.managing.check(managing.count());
        self.check_connections();
    }

    /// What a connection has outstanding is what its commands weigh.
    fn check_connections(&self) {
        for (n, connection) in self.connections.iter().enumerate() {
            let cid = connection.cid;
            debug_assert!(
                self.connections[..n].iter().all(|other| other.cid != cid),
                "{cid:?} is there once"
            );
            if !connection.state.stands() {
                continue;
            }
            let own = self.tasks.commands().map(|(_, task)| task);
            let own = own.filter(|task| task.route.cid == cid && task.cmd_sn.is_some() && !task.route.orphan);
            let (count, bytes) = own.fold((0, 0), |(count, bytes), task| (count + 1, bytes + task.weight()));
            debug_assert_eq!(
                (count, bytes),
                (connection.commands, connection.outstanding_bytes),
                "commands on {cid:?}"
            );
        }
    }
}
