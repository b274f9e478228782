//! Commands that an engine carries out in place of the session, which then sees the end of each instead of the PDUs that lead to it.

use bytes::Bytes;
use iscsi_wire::{Cid, ScsiResponse};

use super::actions::{Action, CloseReason, violation};
use super::outcome::Outcome;
use super::session::InitiatorSession;
use crate::Time;

impl InitiatorSession {
    /// An engine has carried out a command that was sent on the connection `cid`: `response` with its data segment `sense`, and all
    /// `data` that has come, from the first byte on. StatSN and ExpDataSN of the response are the engine's. A command that has ended
    /// meanwhile is ignored, like late PDUs.
    //= rfc7143 11.4 DAT-07 RSP-01
    pub fn executed(&mut self, now: Time, cid: Cid, response: &ScsiResponse, sense: &Bytes, data: Bytes) {
        self.arrives(now, cid, |session| session.take_executed(response, sense, data));
    }

    fn take_executed(
        &mut self,
        response: &ScsiResponse,
        sense: &Bytes,
        data: Bytes,
    ) -> Result<(), CloseReason> {
        self.window.hear(response.numbers, self.now);
        let Some(task) = self.tasks.sent_command(response.itt) else { return Ok(()) };
        if data.len() as u64 > u64::from(task.command.read_length) {
            return Err(violation("RFC 7143 11.7.6", "Data-In beyond what the command expects"));
        }
        task.received = data.len() as u32;
        let (user, decided) = (task.command.user, task.is_decided());
        let outcome = Outcome::of(response, false, sense)?;
        if !data.is_empty() && !decided {
            self.act(Action::DataIn { user, offset: 0, data });
        }
        self.end_with(response.itt, outcome);
        Ok(())
    }
}
