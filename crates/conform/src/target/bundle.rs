//! Sessions of several connections, and sessions of a higher ErrorRecoveryLevel, for the rows that test them.

use super::Ctx;
use super::ctx::RowSession;
use crate::script::{ensure, skip};
use crate::{LoginScript, PeerError, Stop};
use iscsi_wire::{Cid, keys};
use std::collections::BTreeMap;

/// A session of several connections, the first of which has the index 0. They share one CmdSN, which [`Bundle::get`] carries along.
pub(crate) struct Bundle {
    connections: BTreeMap<usize, RowSession>,
    /// The connection that has the session's CmdSN.
    last: usize,
    next_cid: u16,
}

impl Bundle {
    /// A session of one connection.
    pub(crate) fn of(lead: RowSession) -> Self {
        Bundle { connections: BTreeMap::from([(0, lead)]), last: 0, next_cid: 2 }
    }

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
        let mut bundle = Bundle::of(lead);
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
        let mut bundle = Self::open(ctx, count, |script| change(offering(script, level)))?;
        reached(bundle.on(0), level)?;
        Ok(bundle)
    }

    /// Number of connections.
    pub(super) fn len(&self) -> usize {
        self.connections.len()
    }

    /// The connection `index`; its CmdSN continues from the session's. `None` if it is gone.
    pub(crate) fn get(&mut self, index: usize) -> Option<&mut RowSession> {
        let now = self.connections.get(&self.last)?.cmd_sn;
        let session = self.connections.get_mut(&index)?;
        self.last = index;
        session.cmd_sn = now;
        Some(session)
    }

    /// Like [`Bundle::get`], for a connection that is there.
    #[allow(clippy::expect_used, reason = "a row in code knows which connections it has")]
    pub(super) fn on(&mut self, index: usize) -> &mut RowSession {
        self.get(index).expect("a connection of the session")
    }

    /// Adds a connection with its own CID. Returns its index.
    pub(super) fn join(&mut self, ctx: &Ctx) -> Result<usize, Stop> {
        let cid = Cid(self.next_cid);
        self.next_cid += 1;
        self.join_as(ctx, cid)
    }

    /// Adds a connection with this CID. Returns its index.
    pub(super) fn join_as(&mut self, ctx: &Ctx, cid: Cid) -> Result<usize, Stop> {
        let index = self.connections.last_key_value().map_or(0, |(index, _)| index + 1);
        self.join_at(ctx, index, cid)?;
        Ok(index)
    }

    /// Adds a connection with this CID as the one with this index. One that has the index already is left to the target.
    pub(crate) fn join_at(&mut self, ctx: &Ctx, index: usize, cid: Cid) -> Result<(), Stop> {
        let Some(lead) = self.connections.get(&self.last) else {
            return Err(Stop::Fail("the session has no connection left".to_owned()));
        };
        let joined = ctx.join(lead, cid)?;
        let replaced = self.connections.insert(index, joined);
        replaced.into_iter().for_each(RowSession::abandon);
        Ok(())
    }

    /// Removes a connection from the bundle; the caller ends it, or checks how it ends.
    pub(crate) fn take(&mut self, index: usize) -> Option<RowSession> {
        let another = self.connections.keys().copied().find(|other| *other != index);
        another.and_then(|other| self.get(other));
        self.connections.remove(&index)
    }

    /// Are all connections gone?
    pub(crate) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Removes the last connection from the bundle; the script ends it, or checks how it ends.
    pub(super) fn take_last(&mut self) -> Result<RowSession, Stop> {
        let last = self.connections.keys().next_back().copied().filter(|_| self.len() > 1);
        let last = last.and_then(|index| self.take(index));
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
        // The logout of each has the session's CmdSN.
        let indices: Vec<usize> = self.connections.keys().copied().collect();
        for index in indices {
            self.get(index);
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
