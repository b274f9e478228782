//! The login of one connection, seen from the target (RFC 7143 6.3, 11.12, 11.13).
//!
//! Takes PDUs one by one and answers each with exactly one [`LoginReply`]. Who may log in where is the [`LoginPolicy`]'s
//! business; numbers and stages are ours. The caller creates the session when the login is complete, because only then a TSIH
//! exists, and sends the final response that [`Established::response`] builds.
//!
//! ```text
//!            ┌─────────────── T, NSG=3 (nothing required) ──────────────┐
//!  first PDU │  Security ───── T, NSG=1 ─────► Operational ── T, NSG=3 ─┴─► complete
//!    CSG=0 ──┘     CSG=1 (no authentication needed) ──┘
//! ```

use bytes::Bytes;
use iscsi_wire::{
    Bhs, Cid, CmdSn, Isid, Itt, LoginRequest, LoginResponse, LoginStage, LoginStatus, Opcode, StatSn,
    TextBuilder, TextPairs, Tsih,
};

use super::security::Security;
use crate::chap::{ChapAlgorithm, Credentials, Secret};
use crate::error::ProtocolViolation;
use crate::limits::{LOGIN_DATA_SEGMENT_BYTES, MAX_LOGIN_EXCHANGES};
use crate::names::IscsiName;
use crate::negotiation::{DIGEST_REQUIRED, Negotiator, Phase, Received, Role, processing_order};
use crate::params::{Bounds, Params};
use crate::pdu_reader::RxPdu;
use crate::pdu_writer::TxPdu;
use crate::text_exchange::{TextAssembler, TextSplitter};

/// Who asks for what, from the first login request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginNames {
    /// InitiatorName.
    pub initiator: IscsiName,
    /// TargetName; `None` in a discovery session that names none.
    pub target: Option<IscsiName>,
    /// SessionType=Discovery.
    pub discovery: bool,
    /// ISID of the request.
    pub isid: Isid,
    /// TSIH of the request: zero asks for a new session.
    pub tsih: Tsih,
    /// CID of the request.
    pub cid: Cid,
}

impl LoginNames {
    /// Whether `key=value` says again what these names say.
    fn repeats(&self, key: &str, value: &str) -> bool {
        match key {
            "InitiatorName" => IscsiName::parse(value).is_ok_and(|name| name == self.initiator),
            "TargetName" => IscsiName::parse(value).is_ok_and(|name| Some(name) == self.target),
            "SessionType" => value == if self.discovery { "Discovery" } else { "Normal" },
            _ => false,
        }
    }
}

/// How the initiator must prove itself.
#[derive(Clone, Debug)]
pub enum AuthPolicy {
    /// Not at all.
    None,
    /// By CHAP.
    Chap {
        /// Algorithms that may be used.
        algorithms: Vec<ChapAlgorithm>,
        /// What we prove ourselves with when asked.
        mutual: Option<Credentials>,
    },
}

/// Terms on which an initiator may log in.
#[derive(Clone, Debug)]
pub struct Admission {
    /// How it must prove itself.
    pub auth: AuthPolicy,
    /// What we negotiate within.
    pub bounds: Bounds,
    /// Tag of the portal group that it reached.
    pub portal_group_tag: u16,
    /// TargetAlias to tell, if any.
    pub target_alias: Option<String>,
    /// Parameters of the session that this connection joins; `None` for the leading connection of a new one.
    pub joins: Option<Params>,
}

/// Decisions that the login asks of its surroundings.
pub trait LoginPolicy {
    /// Whether and on which terms the initiator may go on. Asked once, before authentication.
    ///
    /// # Errors
    /// The refusal that ends the login, with its status (not found, not authorised, moved, no such session...).
    fn admit(&mut self, names: &LoginNames) -> Result<Admission, Refusal>;
    /// The secret of a CHAP name that may speak for this initiator.
    ///
    /// # Errors
    /// Why there is none.
    fn secret_of(&mut self, names: &LoginNames, chap_name: &str) -> Result<Secret, NoSecret>;
    /// Remembers a challenge of ours, to recognise it when it is sent back on any connection.
    fn challenge_issued(&mut self, challenge: &[u8]);
    /// Whether `challenge` is one of ours.
    fn was_issued(&mut self, challenge: &[u8]) -> bool;
    /// Fills `bytes` from a cryptographically strong source.
    fn fill_random(&mut self, bytes: &mut [u8]);
}

/// Why a CHAP name proves nothing, whatever response comes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSecret {
    /// There is no account of that name.
    UnknownName,
    /// There is one, and it may not speak for this initiator.
    OtherInitiator,
}

/// Longest CHAP name of a refused login that is kept for the log, characters.
const MAX_TRIED_NAME_CHARS: usize = 255;

/// Why a login ended without a session: what the initiator is told, and what a person needs to mend it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} ({rule}); {remedy}")]
pub struct Refusal {
    /// What the initiator is told.
    pub status: LoginStatus,
    /// The rule that refused.
    pub rule: &'static str,
    /// What happened.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
    /// TargetAddress values of a redirection.
    pub redirect: Vec<String>,
    /// The CHAP name that was to be proved, when it got so far. For the log: the initiator is told the status alone.
    pub chap_name: Option<String>,
}

impl Refusal {
    /// A refusal with `status`.
    pub fn new(
        status: LoginStatus,
        rule: &'static str,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { status, rule, what: what.into(), remedy: remedy.into(), redirect: Vec::new(), chap_name: None }
    }

    /// The same of a login that tried to be `chap_name`.
    pub fn tried_as(mut self, chap_name: &str) -> Self {
        self.chap_name = Some(chap_name.chars().take(MAX_TRIED_NAME_CHARS).collect());
        self
    }

    pub(super) fn initiator_error(
        rule: &'static str,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::new(LoginStatus::InitiatorError, rule, what, remedy)
    }

    pub(super) fn authentication(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(LoginStatus::AuthenticationFailure, "RFC 7143 12.1", what, remedy)
    }
}

impl From<ProtocolViolation> for Refusal {
    fn from(violation: ProtocolViolation) -> Self {
        let remedy = if violation.rule == DIGEST_REQUIRED {
            "let the initiator offer CRC32C for HeaderDigest and DataDigest, or do not require it here"
        } else {
            "the initiator breaks the protocol: report it to its maker"
        };
        Self::initiator_error(violation.rule, violation.what, remedy)
    }
}

/// Answer to one PDU.
#[derive(Debug)]
pub enum LoginReply {
    /// Send this and wait for the next request.
    Send(TxPdu),
    /// Create the session, then send [`Established::response`].
    Complete(Box<Established>),
    /// Send the response if there is one, then close the connection.
    Refuse {
        /// Absent when nothing may be answered.
        response: Option<TxPdu>,
        /// For the log.
        refusal: Refusal,
    },
}

/// A login that reached full feature phase.
#[derive(Debug)]
pub struct Established {
    /// Who logged in where.
    pub names: LoginNames,
    /// The negotiated parameters.
    pub params: Params,
    /// The first CmdSN to expect.
    pub exp_cmd_sn: CmdSn,
    /// StatSN of the final response.
    pub stat_sn: StatSn,
    /// Tag of the portal group.
    pub portal_group_tag: u16,
    /// CHAP name that proved itself.
    pub authenticated_as: Option<String>,
    csg: LoginStage,
    itt: Itt,
    text: Vec<u8>,
}

impl Established {
    /// The final login response: T=1, NSG=3, the session's TSIH, and its command window.
    //= rfc7143 11.13.3 LGN-10
    pub fn response(&self, tsih: Tsih, exp_cmd_sn: CmdSn, max_cmd_sn: CmdSn) -> TxPdu {
        let response = LoginResponse {
            transit: true,
            continue_bit: false,
            csg: self.csg,
            nsg: Some(LoginStage::FullFeature),
            version_max: 0,
            version_active: 0,
            isid: self.names.isid,
            tsih,
            itt: self.itt,
            stat_sn: self.stat_sn,
            exp_cmd_sn,
            max_cmd_sn,
            status: LoginStatus::Success,
        };
        TxPdu::with_data(response.to_bhs(), Bytes::copy_from_slice(&self.text))
    }

    /// A refusal in place of the final response, when the session cannot be had after all.
    pub fn refuse(&self, refusal: &Refusal) -> TxPdu {
        refusal_pdu(Some((self.names.isid, self.itt, self.csg)), self.stat_sn, self.exp_cmd_sn, refusal)
    }
}

/// Keys that say who asks for what: in the first request, or never.
const OPENING_KEYS: [&str; 3] = ["InitiatorName", "TargetName", "SessionType"];

/// What stays the same through a login.
#[derive(Debug)]
struct Fixed {
    isid: Isid,
    tsih: Tsih,
    cid: Cid,
    itt: Itt,
    cmd_sn: CmdSn,
}

/// The login of one connection.
#[derive(Debug)]
pub struct TargetLogin {
    fixed: Option<Fixed>,
    stage: LoginStage,
    security: Security,
    /// Who asks, as far as the first request said so.
    asked: Option<LoginNames>,
    admitted: Option<(LoginNames, Admission)>,
    negotiator: Negotiator,
    received: TextAssembler,
    sending: TextSplitter,
    /// The stage move that goes with the last piece of a long answer.
    pending_transit: Option<LoginStage>,
    stat_sn: StatSn,
    exchanges: u32,
    portal_group_tag_sent: bool,
}

impl TargetLogin {
    /// A login that starts its StatSN at `stat_sn`.
    //= rfc7143 11.13.4 LGN-13
    pub fn new(stat_sn: StatSn) -> Self {
        Self {
            fixed: None,
            stage: LoginStage::Security,
            security: Security::new(),
            asked: None,
            admitted: None,
            negotiator: Negotiator::new(Role::Target, Bounds::default(), Params::default()),
            received: TextAssembler::default(),
            sending: TextSplitter::default(),
            pending_transit: None,
            stat_sn,
            exchanges: 0,
            portal_group_tag_sent: false,
        }
    }

    /// Stage that the login is in, for the log.
    pub fn stage(&self) -> LoginStage {
        self.stage
    }

    /// Names as far as they are known, for the log.
    pub fn names(&self) -> Option<&LoginNames> {
        self.asked.as_ref()
    }

    /// Takes one PDU.
    pub fn handle_pdu(&mut self, pdu: &RxPdu, policy: &mut dyn LoginPolicy) -> LoginReply {
        //= rfc7143 4.2.4 LGN-01 LGN-02 LGN-21
        if pdu.bhs.opcode() != Opcode::LoginRequest as u8 {
            let what =
                format!("a PDU with opcode {:02x}h came before the login was complete", pdu.bhs.opcode());
            let refusal =
                Refusal::new(LoginStatus::InvalidDuringLogin, "RFC 7143 4.2.4", what, "log in first");
            let response = self.fixed.is_some().then(|| self.refusal_response(&refusal));
            return LoginReply::Refuse { response, refusal };
        }
        match self.handle_request(pdu, policy) {
            Ok(reply) => reply,
            Err(refusal) => {
                if self.fixed.is_none() {
                    // Only the header's own fields are known; enough for an answer that the initiator can match.
                    let bhs = &pdu.bhs.as_bytes();
                    let isid = Isid(bhs[8..14].try_into().expect("six bytes"));
                    self.fixed = Some(Fixed {
                        isid,
                        tsih: Tsih(0),
                        cid: Cid(0),
                        itt: pdu.bhs.itt(),
                        cmd_sn: pdu.bhs.cmd_sn(),
                    });
                }
                LoginReply::Refuse { response: Some(self.refusal_response(&refusal)), refusal }
            }
        }
    }

    fn handle_request(&mut self, pdu: &RxPdu, policy: &mut dyn LoginPolicy) -> Result<LoginReply, Refusal> {
        let request = LoginRequest::parse(&pdu.bhs).map_err(ProtocolViolation::from)?;
        self.check_constants(&request)?;
        self.exchanges += 1;
        //= rfc7143 6.2 TXT-16
        if self.exchanges > MAX_LOGIN_EXCHANGES {
            return Err(Refusal::initiator_error(
                "RFC 7143 6.2",
                format!("more than {MAX_LOGIN_EXCHANGES} exchanges"),
                "negotiate in fewer steps",
            ));
        }
        if request.continue_bit && request.transit {
            //= rfc7143 6.2 TXT-06
            return Err(ProtocolViolation::new("RFC 7143 6.2", "a login request has both C and T set").into());
        }
        if !self.sending.is_empty() || self.pending_transit.is_some() {
            //= rfc7143 6.2 TXT-05 TXT-07
            if !pdu.data.is_empty() || request.continue_bit {
                return Err(ProtocolViolation::new(
                    "RFC 7143 6.2",
                    "new text while our answer was not yet complete",
                )
                .into());
            }
            // The stage may have been asked for with the first part of the exchange; it is granted only to a request that
            // asks for it now.
            //= rfc7143 6.3 LGN-08
            let pending = self.pending_transit;
            let reply = self.answer(Vec::new(), pending.filter(|next| request.nsg == Some(*next)))?;
            if !self.sending.is_empty() {
                self.pending_transit = pending;
            }
            return Ok(reply);
        }
        self.received.add(&pdu.data)?;
        if request.continue_bit {
            return Ok(LoginReply::Send(self.response(false, None, &[], false)));
        }
        let text = self.received.take();
        let pairs = TextPairs::parse(&text).map_err(ProtocolViolation::from)?;
        let mut answers = Vec::new();
        match &self.admitted {
            None => self.admit(&request, &pairs, policy)?,
            //= rfc7143 6.3 LGN-05 KEY-20
            Some((names, _)) => {
                let late =
                    |(key, value): &&(&str, &str)| OPENING_KEYS.contains(key) && !names.repeats(key, value);
                if let Some((name, _)) = pairs.iter().find(late) {
                    let what = format!("{name} belongs in the first login request");
                    return Err(ProtocolViolation::new("RFC 7143 6.3", what).into());
                }
            }
        }
        self.take_keys(&pairs, &mut answers, policy)?;
        let transit = self.grant_transit(&request, &mut answers)?;
        self.answer(answers, transit)
    }

    /// Everything that must not change from request to request.
    //= rfc7143 11.12 LGN-07 LGN-08 LGN-11
    fn check_constants(&mut self, request: &LoginRequest) -> Result<(), Refusal> {
        if request.version_min > 0 {
            return Err(Refusal::new(
                LoginStatus::UnsupportedVersion,
                "RFC 7143 11.12.3",
                format!("the initiator asks for protocol version {} or later", request.version_min),
                "this target speaks version 0, the only one there is",
            ));
        }
        let Some(fixed) = &self.fixed else {
            self.stage = request.csg;
            self.fixed = Some(Fixed {
                isid: request.isid,
                tsih: request.tsih,
                cid: request.cid,
                itt: request.itt,
                cmd_sn: request.cmd_sn,
            });
            return self.check_stage(request);
        };
        let same = fixed.isid == request.isid
            && fixed.tsih == request.tsih
            && fixed.cid == request.cid
            && fixed.itt == request.itt;
        if !same {
            return Err(ProtocolViolation::new(
                "RFC 7143 11.12",
                "ISID, TSIH, CID or task tag changed within a login",
            )
            .into());
        }
        self.check_stage(request)
    }

    fn check_stage(&self, request: &LoginRequest) -> Result<(), Refusal> {
        if request.csg != self.stage || request.csg == LoginStage::FullFeature {
            return Err(ProtocolViolation::new(
                "RFC 7143 6.3",
                format!("a request for stage {:?} while in {:?}", request.csg, self.stage),
            )
            .into());
        }
        if let Some(next) = request.nsg.filter(|_| request.transit)
            && next as u8 <= request.csg as u8
        {
            return Err(ProtocolViolation::new(
                "RFC 7143 6.3",
                format!("no move leads from stage {:?} to {next:?}", request.csg),
            )
            .into());
        }
        Ok(())
    }

    /// Reads the names of the first request and asks whether its sender may go on.
    fn admit(
        &mut self,
        request: &LoginRequest,
        pairs: &[(&str, &str)],
        policy: &mut dyn LoginPolicy,
    ) -> Result<(), Refusal> {
        let get = |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        //= rfc7143 11.13.5 LGN-05 KEY-04 KEY-05
        let missing = |name: &str| {
            Refusal::new(
                LoginStatus::MissingParameter,
                "RFC 7143 6.3",
                format!("{name} is not in the first login request"),
                format!("configure {name} on the initiator"),
            )
        };
        let initiator = IscsiName::parse(get("InitiatorName").ok_or_else(|| missing("InitiatorName"))?)?;
        //= rfc7143 13.21 KEY-20
        let discovery = match get("SessionType") {
            None | Some("Normal") => false,
            Some("Discovery") => true,
            Some(other) => {
                let what = format!("SessionType={} is unknown", crate::negotiation::shown(other));
                return Err(Refusal::new(
                    LoginStatus::SessionTypeNotSupported,
                    "RFC 7143 13.21",
                    what,
                    "use Normal or Discovery",
                ));
            }
        };
        let target = match get("TargetName") {
            Some(name) => Some(IscsiName::parse(name)?),
            None if discovery => None,
            None => return Err(missing("TargetName")),
        };
        let names = LoginNames {
            initiator,
            target,
            discovery,
            isid: request.isid,
            tsih: request.tsih,
            cid: request.cid,
        };
        self.asked = Some(names.clone());
        let admission = policy.admit(&names)?;
        let start = admission.joins.clone().map(|session| Params {
            // Connection parameters start anew on each connection; those of the session stand.
            digests: Params::default().digests,
            max_send_data_segment_length: Params::default().max_send_data_segment_length,
            max_recv_data_segment_length: Params::default().max_recv_data_segment_length,
            ..session
        });
        let joining = start.is_some();
        self.negotiator = Negotiator::new(Role::Target, admission.bounds.clone(), start.unwrap_or_default());
        if discovery {
            self.negotiator.set_discovery();
        }
        if joining {
            self.negotiator.set_joining();
        }
        let needs_auth = matches!(admission.auth, AuthPolicy::Chap { .. });
        self.admitted = Some((names, admission));
        //= rfc7143 6.3.1 LGN-16
        if needs_auth && self.stage != LoginStage::Security {
            return Err(Refusal::authentication(
                "the initiator skipped authentication, which is required here",
                "configure a CHAP name and secret on the initiator",
            ));
        }
        Ok(())
    }

    fn take_keys(
        &mut self,
        pairs: &[(&str, &str)],
        answers: &mut Vec<(String, String)>,
        policy: &mut dyn LoginPolicy,
    ) -> Result<(), Refusal> {
        let (names, admission) = self.admitted.as_ref().expect("admitted before keys are taken");
        let phase = if self.stage == LoginStage::Security { Phase::Security } else { Phase::Operational };
        let mut ordered: Vec<_> = pairs.to_vec();
        ordered.sort_by_key(|(name, _)| processing_order(name));
        let mut security = Vec::new();
        for (name, value) in ordered {
            if names.repeats(name, value) && (admission.joins.is_some() || self.negotiator.has_received(name))
            {
                // Some initiators say who they are in every request, and the type of the session on each of its connections. It
                // changes nothing; another type is that of another session.
                continue;
            }
            match self.negotiator.receive(phase, name, value)? {
                Received::Done => {}
                Received::Answer(answer) => answers.push((name.to_owned(), answer)),
                Received::Login if name == "AuthMethod" || name.starts_with("CHAP_") => {
                    security.push((name, value))
                }
                Received::Login => {}
            }
        }
        for (name, value) in self.security.step(&security, &admission.auth, names, policy)? {
            answers.push((name.to_owned(), value));
        }
        Ok(())
    }

    /// Decides on the stage move that was asked for, and adds what we have to say ourselves.
    //= rfc7143 6.3 LGN-08 LGN-09
    fn grant_transit(
        &mut self,
        request: &LoginRequest,
        answers: &mut Vec<(String, String)>,
    ) -> Result<Option<LoginStage>, Refusal> {
        let (_, admission) = self.admitted.as_ref().expect("admitted before a stage ends");
        if !self.portal_group_tag_sent {
            //= rfc7143 13.9 KEY-08
            self.portal_group_tag_sent = true;
            answers.push(("TargetPortalGroupTag".to_owned(), admission.portal_group_tag.to_string()));
        }
        if self.stage == LoginStage::Operational {
            if !self.negotiator.has_declared_max_recv() {
                answers.push(("MaxRecvDataSegmentLength".to_owned(), self.negotiator.declare_max_recv()));
                if let Some(alias) = &admission.target_alias {
                    //= rfc7143 13.7 KEY-06
                    answers.push(("TargetAlias".to_owned(), alias.clone()));
                }
            }
            if request.transit {
                answers.extend(
                    self.negotiator.own_proposals().into_iter().map(|(key, value)| (key.to_owned(), value)),
                );
            }
        }
        let Some(next) = request.nsg.filter(|_| request.transit) else { return Ok(None) };
        if self.stage == LoginStage::Security && !self.security.may_leave(&admission.auth) {
            if matches!(admission.auth, AuthPolicy::Chap { .. })
                && !self.negotiator.has_received("AuthMethod")
            {
                return Err(Refusal::authentication(
                    "the initiator skipped authentication, which is required here",
                    "configure a CHAP name and secret on the initiator",
                ));
            }
            return Ok(None);
        }
        if self.negotiator.awaits_answers() {
            return Ok(None);
        }
        if next == LoginStage::FullFeature {
            self.negotiator.check()?;
        }
        Ok(Some(next))
    }

    /// Sends keys, in pieces if they are long; the stage moves with the last piece.
    fn answer(
        &mut self,
        answers: Vec<(String, String)>,
        transit: Option<LoginStage>,
    ) -> Result<LoginReply, Refusal> {
        let mut text = TextBuilder::new();
        for (key, value) in &answers {
            text.push(key, value);
        }
        self.sending.extend(&text.finish());
        let (piece, more) = self.sending.next_piece(LOGIN_DATA_SEGMENT_BYTES);
        if more {
            self.pending_transit = transit;
            return Ok(LoginReply::Send(self.response(false, None, &piece, true)));
        }
        self.pending_transit = None;
        match transit {
            Some(LoginStage::FullFeature) => Ok(LoginReply::Complete(Box::new(self.established(piece)))),
            Some(next) => {
                let pdu = self.response(true, Some(next), &piece, false);
                self.stage = next;
                Ok(LoginReply::Send(pdu))
            }
            None => Ok(LoginReply::Send(self.response(false, None, &piece, false))),
        }
    }

    fn established(&mut self, text: Vec<u8>) -> Established {
        let (names, admission) = self.admitted.take().expect("admitted before the login is complete");
        let fixed = self.fixed.as_ref().expect("set by the first request");
        Established {
            names,
            params: self.negotiator.params().clone(),
            exp_cmd_sn: fixed.cmd_sn,
            stat_sn: self.next_stat_sn(),
            portal_group_tag: admission.portal_group_tag,
            authenticated_as: self.security.authenticated_as().map(str::to_owned),
            csg: self.stage,
            itt: self.fixed.as_ref().expect("set by the first request").itt,
            text,
        }
    }

    fn response(&mut self, transit: bool, nsg: Option<LoginStage>, text: &[u8], more: bool) -> TxPdu {
        let stat_sn = self.next_stat_sn();
        let fixed = self.fixed.as_ref().expect("set by the first request");
        let response = LoginResponse {
            transit,
            continue_bit: more,
            csg: self.stage,
            nsg,
            version_max: 0,
            version_active: 0,
            isid: fixed.isid,
            tsih: fixed.tsih,
            itt: fixed.itt,
            stat_sn,
            //= rfc7143 11.12.8 LGN-12
            exp_cmd_sn: fixed.cmd_sn,
            max_cmd_sn: fixed.cmd_sn,
            status: LoginStatus::Success,
        };
        TxPdu::with_data(response.to_bhs(), Bytes::copy_from_slice(text))
    }

    fn refusal_response(&mut self, refusal: &Refusal) -> TxPdu {
        let stat_sn = self.next_stat_sn();
        let fixed = self.fixed.as_ref();
        let cmd_sn = fixed.map_or(CmdSn(0), |f| f.cmd_sn);
        refusal_pdu(fixed.map(|f| (f.isid, f.itt, self.stage)), stat_sn, cmd_sn, refusal)
    }

    fn next_stat_sn(&mut self) -> StatSn {
        let current = self.stat_sn;
        self.stat_sn = current.next();
        current
    }
}

//= rfc7143 11.13.5 LGN-14 LGN-15
fn refusal_pdu(
    known: Option<(Isid, Itt, LoginStage)>,
    stat_sn: StatSn,
    cmd_sn: CmdSn,
    refusal: &Refusal,
) -> TxPdu {
    let (isid, itt, csg) = known.unwrap_or((Isid([0; 6]), Itt(0), LoginStage::Security));
    let response = LoginResponse {
        transit: false,
        continue_bit: false,
        csg,
        nsg: None,
        version_max: 0,
        version_active: 0,
        isid,
        tsih: Tsih(0),
        itt,
        stat_sn,
        exp_cmd_sn: cmd_sn,
        max_cmd_sn: cmd_sn,
        status: refusal.status,
    };
    let bhs: Bhs = response.to_bhs();
    let mut text = TextBuilder::new();
    for address in &refusal.redirect {
        text.push("TargetAddress", address);
    }
    TxPdu::with_data(bhs, Bytes::from(text.finish()))
}
