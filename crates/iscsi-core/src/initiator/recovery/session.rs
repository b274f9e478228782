//! Session recovery: the commands left when all connections are gone and none may come back (RFC 7143 7.1.4.4, 7.15).
//!
//! The caller logs in again with the same ISID and submits the commands again; those that may have been executed, only if they
//! are idempotent.

use iscsi_wire::Itt;

use super::super::actions::Unfinished;
use super::super::session::InitiatorSession;
use super::super::task::Held;

impl InitiatorSession {
    /// The caller ends the session for a reason of its own: nothing more is to be done.
    pub fn lost(&mut self) {
        self.abandon();
    }

    /// Takes every command that has not completed out of a closed session: first those that were sent, then those that were not,
    /// each in order.
    //= rfc7143 7.15 SES-06
    pub fn unfinished(&mut self) -> Vec<Unfinished> {
        debug_assert!(self.is_closed());
        let first = self.window.current().0.wrapping_sub(1 << 31);
        let mut sent: Vec<(u32, Itt)> = self
            .tasks
            .commands()
            .filter_map(|(itt, task)| Some((task.cmd_sn?.0.wrapping_sub(first), itt)))
            .collect();
        sent.sort_unstable_by_key(|(place, _)| *place);
        let sent = sent.into_iter().map(|(_, itt)| (itt, true));
        let order: Vec<(Itt, bool)> =
            sent.chain(self.commands.close().into_iter().map(|itt| (itt, false))).collect();
        let mut commands = Vec::with_capacity(order.len());
        for (itt, sent) in order {
            if let Held::Command(task) = self.tasks.remove(itt) {
                commands.push(Unfinished { command: task.command, sent });
            }
        }
        commands
    }
}
