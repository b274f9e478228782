//! Logins step by step, for rows about negotiation: the security stage that the target requires is
//! completed first.

use super::Ctx;
use crate::frame::{Digests, Frame};
use crate::login::{text_of, value_of};
use crate::{LoginReply, LoginScript, PeerError, RawPeer, Stop};
use iscsi_wire::{Cid, Itt, LoginStage, LoginStatus, LogoutReason, LogoutRequest, keys};

/// A target's reaction to a login request.
#[derive(Clone, Debug)]
pub(crate) enum Taken {
    /// It continues.
    On(LoginReply),
    /// It refused.
    Refused(LoginStatus),
    /// It closed without an answer.
    Closed,
    /// It did not answer in time.
    Nothing,
}

impl Taken {
    pub(crate) fn words(&self) -> String {
        match self {
            Taken::On(reply) => format!("success, {:?}", reply.pairs),
            Taken::Refused(status) => format!("{status} ({:#06x})", status.code()),
            Taken::Closed => "a closed connection".to_owned(),
            Taken::Nothing => "no answer".to_owned(),
        }
    }

    /// The reply, or a failure in words.
    pub(super) fn on(self, what: &str) -> Result<LoginReply, Stop> {
        match self {
            Taken::On(reply) => Ok(reply),
            other => Err(Stop::Fail(format!("{what}: {}", other.words()))),
        }
    }

    /// Refused with one of these statuses, or by closing?
    pub(super) fn refused(&self, what: &str, allowed: &[u16]) -> Result<(), Stop> {
        match self {
            Taken::Closed => Ok(()),
            Taken::Refused(status) if allowed.is_empty() || allowed.contains(&status.code()) => Ok(()),
            other => {
                let due: Vec<String> = allowed.iter().map(|code| format!("{code:#06x}")).collect();
                Err(Stop::Fail(format!(
                    "{what}: expected a refusal {}, got {}",
                    due.join(" or "),
                    other.words()
                )))
            }
        }
    }
}

/// A login in its operational stage, before the first request of that stage.
pub(crate) struct Talk {
    pub(super) peer: RawPeer,
    pub(super) script: LoginScript,
    names: Vec<(String, String)>,
    seen: Vec<(String, String)>,
    full_feature: bool,
}

impl Drop for Talk {
    fn drop(&mut self) {
        if !self.full_feature {
            return;
        }
        // The session is not needed; this saves the target from keeping it for the default
        // Time2Retain.
        let agreed = |key: &str| value_of(&self.seen, key) == Some(keys::CRC32C);
        self.peer.digests = Digests { header: agreed(keys::HEADER_DIGEST), data: agreed(keys::DATA_DIGEST) };
        let logout = LogoutRequest {
            immediate: true,
            reason: LogoutReason::CloseSession,
            itt: Itt(0x7fff),
            cid: Cid(0),
            cmd_sn: self.script.cmd_sn,
            exp_stat_sn: self.peer.ledger.exp_stat_sn(),
        };
        let _ = self.peer.send(&Frame::of(logout).remark("the login is over"));
    }
}

impl Talk {
    /// For the target's normal session.
    pub(super) fn new(ctx: &Ctx) -> Result<Self, Stop> {
        Self::with(ctx, ctx.script())
    }

    pub(crate) fn with(ctx: &Ctx, script: LoginScript) -> Result<Self, Stop> {
        let mut peer = ctx.connect()?;
        let mut names = script.names();
        if let Some(chap) = &script.chap {
            peer.login_chap(&script, chap)?;
            names.clear();
        }
        Ok(Talk { peer, script, names, seen: Vec::new(), full_feature: false })
    }

    /// The pairs that the first request must carry; empty once they were sent.
    pub(super) fn take_names(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.names)
    }

    /// One operational request with these pairs, preceded by the names if they were not sent yet.
    pub(super) fn step(&mut self, pairs: &[(&str, &str)], finish: bool) -> Result<Taken, Stop> {
        self.raw(&text_of(pairs), finish)
    }

    /// Like [`Talk::step`], with raw text bytes.
    pub(crate) fn raw(&mut self, text: &[u8], finish: bool) -> Result<Taken, Stop> {
        let mut all = text_of(&self.take_names());
        all.extend_from_slice(text);
        let mut request =
            self.script.request(LoginStage::Operational, finish.then_some(LoginStage::FullFeature));
        request.exp_stat_sn = self.peer.ledger.exp_stat_sn();
        let frame = Frame::of(request).data(all);
        self.send(&frame)
    }

    /// Sends a login request unchanged, and returns the reaction.
    pub(super) fn send(&mut self, frame: &Frame) -> Result<Taken, Stop> {
        self.peer.send(frame)?;
        let taken = taken(&mut self.peer, &self.script)?;
        if let Taken::On(reply) = &taken {
            self.seen.extend(reply.pairs.iter().cloned());
            self.full_feature = reply.response.transit && reply.response.nsg == Some(LoginStage::FullFeature);
        }
        Ok(taken)
    }
}

/// The reaction to a login request that was sent.
pub(super) fn taken(peer: &mut RawPeer, script: &LoginScript) -> Result<Taken, Stop> {
    match peer.login_reply(script.request(LoginStage::Operational, None)) {
        Ok(reply) => {
            let status = reply.response.status;
            Ok(if status.is_success() { Taken::On(reply) } else { Taken::Refused(status) })
        }
        Err(error) if error.is_closed() => Ok(Taken::Closed),
        Err(PeerError::Timeout(_)) => Ok(Taken::Nothing),
        Err(error) => Err(error.into()),
    }
}
