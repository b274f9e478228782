//! Sessions of several connections, and sessions of a higher ErrorRecoveryLevel, for the rows that test them.

use super::Ctx;
use super::ctx::RowSession;
use crate::script::{ensure, skip};
use crate::{LoginScript, PeerError, Stop};
use iscsi_wire::{Cid, keys};

/// A session of several connections. They share one CmdSN, which [`Bundle::on`] carries along.
pub(super) struct Bundle {
    connections: Vec<RowSession>,
    last: usize,
    next_cid: u16,
}

impl Bundle {
    /// Opens a session of `count` connections. If the target allows fewer, the row does not apply.
    pub(super) fn open(
        ctx: &Ctx,
        count: usize,
        change: impl FnOnce(LoginScript) -> LoginScript,
    ) -> Result<Self, Stop> {
        let lead = ctx.session_with(|script| change(script).key(keys::MAX_CONNECTIONS, "8"))?;
        let most = lead.params.max_connections;
        if (most as usize) < count {
            skip!("the target negotiates MaxConnections={most}, the row needs {count}");
        }
        let mut bundle = Bundle { connections: vec![lead], last: 0, next_cid: 2 };
        for _ in 1..count {
            bundle.join(ctx)?;
        }
        Ok(bundle)
    }

    /// Like [`Bundle::open`], at least at this ErrorRecoveryLevel.
    pub(super) fn open_at(
        ctx: &Ctx,
        level: u32,
        count: usize,
        change: impl FnOnce(LoginScript) -> LoginScript,
    ) -> Result<Self, Stop> {
        let bundle = Self::open(ctx, count, |script| change(offering(script, level)))?;
        reached(&bundle.connections[0], level)?;
        Ok(bundle)
    }

    /// Number of connections.
    pub(super) fn len(&self) -> usize {
        self.connections.len()
    }

    /// The connection `index`; its CmdSN continues from the session's.
    pub(super) fn on(&mut self, index: usize) -> &mut RowSession {
        let now = self.connections[self.last].cmd_sn;
        self.last = index;
        self.connections[index].cmd_sn = now;
        &mut self.connections[index]
    }

    /// Adds a connection with its own CID. Returns its index.
    pub(super) fn join(&mut self, ctx: &Ctx) -> Result<usize, Stop> {
        let cid = Cid(self.next_cid);
        self.next_cid += 1;
        self.join_as(ctx, cid)
    }

    /// Adds a connection with this CID. Returns its index.
    pub(super) fn join_as(&mut self, ctx: &Ctx, cid: Cid) -> Result<usize, Stop> {
        let joined = ctx.join(self.on(0), cid)?;
        self.connections.push(joined);
        Ok(self.connections.len() - 1)
    }

    /// Removes the last connection from the bundle; the script ends it, or checks how it ends.
    pub(super) fn take_last(&mut self) -> Result<RowSession, Stop> {
        self.on(0);
        let last = self.connections.pop().filter(|_| !self.connections.is_empty());
        last.ok_or_else(|| Stop::Fail("the session has one connection only".to_owned()))
    }

    /// Loses the last connection by resetting it. Returns its CID.
    pub(super) fn lose_last(&mut self) -> Result<Cid, Stop> {
        let last = self.take_last()?;
        let cid = last.script.cid;
        last.reset();
        Ok(cid)
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        for index in 0..self.connections.len() {
            self.on(index);
        }
    }
}

/// The offers for a session of this level. Time2Retain is long, so nothing is dropped while the row recovers it.
fn offering(script: LoginScript, level: u32) -> LoginScript {
    script.key(keys::ERROR_RECOVERY_LEVEL, &level.to_string()).key(keys::DEFAULT_TIME2RETAIN, "20")
}

fn reached(session: &RowSession, level: u32) -> Result<(), Stop> {
    let got = session.params.error_recovery_level;
    ensure!(got <= level, "ErrorRecoveryLevel={level} was answered with {got}");
    if got < level {
        skip!("the target negotiates ErrorRecoveryLevel={got}, the row needs {level}");
    }
    Ok(())
}

/// A session of one connection at this ErrorRecoveryLevel. If the target does not reach it, the row does not apply.
pub(super) fn at_level(
    ctx: &Ctx,
    level: u32,
    change: impl FnOnce(LoginScript) -> LoginScript,
) -> Result<RowSession, Stop> {
    let session = ctx.session_with(|script| change(offering(script, level)))?;
    reached(&session, level)?;
    Ok(session)
}

impl Ctx {
    /// Another connection of the session that `lead` belongs to.
    pub(super) fn join(&self, lead: &RowSession, cid: Cid) -> Result<RowSession, Stop> {
        match lead.join(self.connect()?, cid) {
            Ok(session) => Ok(self.adopt(session)),
            Err(error @ PeerError::Login(_)) => {
                Err(Stop::Fail(format!("a connection with the session's TSIH and CID {}: {error}", cid.0)))
            }
            Err(error) => Err(error.into()),
        }
    }
}
