//! A login whose names the policy has admitted: authentication and keys, up to full feature phase.

use iscsi_wire::{LoginRequest, LoginStage, StatSn, TextBuilder, keys};

use super::head::Head;
use super::policy::{Admission, AuthPolicy, LoginNames, LoginPolicy, Refusal};
use super::reply::Established;
use super::security::Security;
use crate::error::ProtocolViolation;
use crate::limits::LOGIN_DATA_SEGMENT_BYTES;
use crate::negotiation::{Negotiator, Phase, Received, Role, processing_order};
use crate::params::Params;
use crate::text_exchange::TextSplitter;

/// Keys that identify both ends and the type of the session: in the first request, or never.
const OPENING_KEYS: [&str; 3] = [keys::INITIATOR_NAME, keys::TARGET_NAME, keys::SESSION_TYPE];

/// Keys and values to send.
type Answers = Vec<(String, String)>;

/// See the module.
#[derive(Debug)]
pub(super) struct Admitted {
    names: LoginNames,
    admission: Admission,
    security: Security,
    negotiator: Negotiator,
    /// What is left of a long answer.
    sending: TextSplitter,
    /// The stage move that goes with the last piece of a long answer.
    pending_transit: Option<LoginStage>,
    portal_group_tag_sent: bool,
}

/// A request was taken: what to answer, and the login as it is then.
pub(super) struct Answered {
    pub admitted: Box<Admitted>,
    /// Text of the answer, or a piece of it.
    pub text: Vec<u8>,
    /// More pieces of it follow.
    pub more: bool,
    /// The stage that the login moves to.
    pub transit: Option<LoginStage>,
}

impl Admitted {
    /// A login in `stage` on the terms of `admission`.
    ///
    /// # Errors
    /// The initiator has skipped the authentication that it needs.
    pub(super) fn new(names: LoginNames, admission: Admission, stage: LoginStage) -> Result<Self, Refusal> {
        let start = admission.joins.clone().map(|session| Params {
            // A connection negotiates its own parameters again; those of the session stay.
            digests: Params::default().digests,
            max_send_data_segment_length: Params::default().max_send_data_segment_length,
            max_recv_data_segment_length: Params::default().max_recv_data_segment_length,
            ..session
        });
        let joining = start.is_some();
        let mut negotiator =
            Negotiator::new(Role::Target, admission.bounds.clone(), start.unwrap_or_default());
        if names.discovery {
            negotiator.set_discovery();
        }
        if joining {
            negotiator.set_joining();
        }
        let admitted = Self {
            names,
            admission,
            security: Security::new(),
            negotiator,
            sending: TextSplitter::default(),
            pending_transit: None,
            portal_group_tag_sent: false,
        };
        //= rfc7143 6.3.1 LGN-16
        match admitted.needs_authentication() && stage != LoginStage::Security {
            true => Err(authentication_skipped()),
            false => Ok(admitted),
        }
    }

    fn needs_authentication(&self) -> bool {
        matches!(self.admission.auth, AuthPolicy::Chap { .. })
    }

    /// Whether an answer has pieces, or a stage move, that the initiator has not fetched yet.
    pub(super) fn owes_text(&self) -> bool {
        !self.sending.is_empty() || self.pending_transit.is_some()
    }

    /// The next piece of a long answer.
    //= rfc7143 6.3 LGN-08
    pub(super) fn continue_with(mut self: Box<Self>, request: &LoginRequest) -> Answered {
        // The stage may have been requested with the first part of the exchange; it is granted only to a request that asks
        // for it now.
        let pending = self.pending_transit.take();
        let mut answered = self.answer(Vec::new(), pending.filter(|next| request.nsg == Some(*next)));
        if answered.more {
            answered.admitted.pending_transit = pending;
        }
        answered
    }

    /// Checks that a later request does not change the names.
    //= rfc7143 6.3 LGN-05 KEY-20
    pub(super) fn check_names(&self, pairs: &[(&str, &str)]) -> Result<(), ProtocolViolation> {
        let late =
            |(key, value): &&(&str, &str)| OPENING_KEYS.contains(key) && !self.names.repeats(key, value);
        match pairs.iter().find(late) {
            Some((name, _)) => {
                let what = format!("{name} belongs in the first login request");
                Err(ProtocolViolation::new("RFC 7143 6.3", what))
            }
            None => Ok(()),
        }
    }

    /// Takes the keys of a request in `stage`.
    ///
    /// # Errors
    /// The refusal that ends the login.
    pub(super) fn take(
        mut self: Box<Self>,
        stage: LoginStage,
        request: &LoginRequest,
        pairs: &[(&str, &str)],
        policy: &mut dyn LoginPolicy,
    ) -> Result<Answered, Refusal> {
        let mut answers = self.take_keys(stage, pairs, policy)?;
        let wanted = request.nsg.filter(|_| request.transit);
        self.add_own(stage, wanted.is_some(), &mut answers);
        let transit = match wanted {
            Some(next) if self.may_move(stage)? => Some(next),
            _ => None,
        };
        if transit == Some(LoginStage::FullFeature) {
            self.negotiator.check()?;
        }
        Ok(self.answer(answers, transit))
    }

    fn take_keys(
        &mut self,
        stage: LoginStage,
        pairs: &[(&str, &str)],
        policy: &mut dyn LoginPolicy,
    ) -> Result<Answers, Refusal> {
        let phase = if stage == LoginStage::Security { Phase::Security } else { Phase::Operational };
        let mut ordered: Vec<_> = pairs.to_vec();
        ordered.sort_by_key(|(name, _)| processing_order(name));
        let (mut answers, mut security) = (Vec::new(), Vec::new());
        for (name, value) in ordered {
            if self.names.repeats(name, value)
                && (self.admission.joins.is_some() || self.negotiator.has_received(name))
            {
                // Some initiators repeat their name in every request, and the type of the session on each of its connections.
                continue;
            }
            match self.negotiator.receive(phase, name, value)? {
                Received::Done => {}
                Received::Answer(answer) => answers.push((name.to_owned(), answer)),
                Received::Login if name == keys::AUTH_METHOD || name.starts_with("CHAP_") => {
                    security.push((name, value))
                }
                Received::Login => {}
            }
        }
        let proofs = self.security.step(&security, &self.admission.auth, &self.names, policy)?;
        answers.extend(proofs.into_iter().map(|(name, value)| (name.to_owned(), value)));
        Ok(answers)
    }

    /// Adds our own declarations and proposals.
    fn add_own(&mut self, stage: LoginStage, transit: bool, answers: &mut Answers) {
        let mut say = |key: &str, value: String| answers.push((key.to_owned(), value));
        if !std::mem::replace(&mut self.portal_group_tag_sent, true) {
            //= rfc7143 13.9 KEY-08
            say(keys::TARGET_PORTAL_GROUP_TAG, self.admission.portal_group_tag.to_string());
        }
        if stage != LoginStage::Operational {
            return;
        }
        if !self.negotiator.has_declared_max_recv() {
            say(keys::MAX_RECV_DATA_SEGMENT_LENGTH, self.negotiator.declare_max_recv());
            if let Some(alias) = &self.admission.target_alias {
                //= rfc7143 13.7 KEY-06
                say(keys::TARGET_ALIAS, alias.clone());
            }
        }
        if transit {
            self.negotiator.own_proposals().into_iter().for_each(|(key, value)| say(key, value));
        }
    }

    /// Whether the stage may be left now.
    //= rfc7143 6.3 LGN-08 LGN-09
    fn may_move(&self, stage: LoginStage) -> Result<bool, Refusal> {
        if stage == LoginStage::Security && !self.security.may_leave(&self.admission.auth) {
            return match self.needs_authentication() && !self.negotiator.has_received(keys::AUTH_METHOD) {
                true => Err(authentication_skipped()),
                false => Ok(false),
            };
        }
        Ok(!self.negotiator.awaits_answers())
    }

    /// Answers with keys, in pieces if they are long; the stage moves with the last piece.
    fn answer(mut self: Box<Self>, answers: Answers, transit: Option<LoginStage>) -> Answered {
        let mut text = TextBuilder::new();
        for (key, value) in &answers {
            text.push(key, value);
        }
        self.sending.extend(&text.finish());
        let (text, more) = self.sending.next_piece(LOGIN_DATA_SEGMENT_BYTES);
        self.pending_transit = transit.filter(|_| more);
        Answered { admitted: self, text, more, transit: transit.filter(|_| !more) }
    }

    /// The login is complete; `text` goes with the final response.
    pub(super) fn established(self, head: Head, stat_sn: StatSn, text: Vec<u8>) -> Established {
        Established {
            params: self.negotiator.params().clone(),
            exp_cmd_sn: head.cmd_sn,
            stat_sn,
            portal_group_tag: self.admission.portal_group_tag,
            authenticated_as: self.security.authenticated_as().map(str::to_owned),
            names: self.names,
            head,
            text,
        }
    }
}

fn authentication_skipped() -> Refusal {
    Refusal::authentication(
        "the initiator skipped authentication, which is required here",
        "configure a CHAP name and secret on the initiator",
    )
}
