//! The login of one connection, seen from the initiator (RFC 7143 6.3, 11.12, 11.13).
//!
//! [`InitiatorLogin::start`] returns the first request. Every response is passed to [`InitiatorLogin::handle_pdu`], which returns
//! the next request, the completed [`LoggedIn`], or the [`LoginFailure`] with what can be done about it.
//!
//! ```text
//!            with CHAP                                 without
//!   Security (CSG=0) ── T, NSG=1 ──► Operational (CSG=1) ── T, NSG=3 ──► complete
//! ```
//! Offers and the request to move on are sent together, so that a login without CHAP takes one round trip.

use std::fmt;

use bytes::Bytes;
use iscsi_wire::{
    Cid, CmdSn, Isid, Itt, LoginRequest, LoginResponse, LoginStage, LoginStatus, Opcode, StatSn, TextBuilder,
    TextPairs, Tsih,
};

use super::address::TargetAddress;
pub use super::login_failure::{Advice, LoginFailure};
pub use super::login_support::{ChapConfig, LoginSupport};
use super::security::Security;
use crate::chap::ChapAlgorithm;
use crate::error::ProtocolViolation;
use crate::limits::{LOGIN_DATA_SEGMENT_BYTES, MAX_LOGIN_EXCHANGES, MAX_REDIRECT_ADDRESSES};
use crate::names::IscsiName;
use crate::negotiation::{Negotiator, Phase, Received, Role, processing_order};
use crate::params::{Bounds, Params};
use crate::pdu_reader::RxPdu;
use crate::pdu_writer::TxPdu;
use crate::text_exchange::{TextAssembler, TextSplitter};

/// Names, options and bounds of a login.
#[derive(Clone, Debug)]
pub struct LoginConfig {
    /// InitiatorName.
    pub initiator: IscsiName,
    /// InitiatorAlias, if any.
    pub initiator_alias: Option<String>,
    /// TargetName; may be left out in a discovery session.
    pub target: Option<IscsiName>,
    /// SessionType=Discovery.
    pub discovery: bool,
    /// ISID: with the initiator name it identifies the initiator port.
    pub isid: Isid,
    /// CID of the connection.
    pub cid: Cid,
    /// First CmdSN of the session.
    pub cmd_sn: CmdSn,
    /// CHAP, if configured.
    pub chap: Option<ChapConfig>,
    /// Bounds of the negotiation.
    pub bounds: Bounds,
    /// X#NodeArchitecture to declare; off unless set.
    pub node_architecture: Option<String>,
    /// The session that the connection joins; `None` opens a new one.
    pub join: Option<Join>,
}

/// The session that a connection joins, for its login; see [`super::session::InitiatorSession::joining`].
#[derive(Clone, Debug)]
pub struct Join {
    /// TSIH of the session.
    pub tsih: Tsih,
    /// CmdSN of the session now.
    pub cmd_sn: CmdSn,
    /// The session's parameters, which stay in effect.
    pub params: Params,
}

/// One key that was sent or received, for a trace of the negotiation. CHAP's binary values are not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLine {
    /// True when the target sent it.
    pub from_target: bool,
    /// Stage it was sent in.
    pub stage: LoginStage,
    /// Key.
    pub key: String,
    /// Value.
    pub value: String,
}

/// Answer to one response.
#[derive(Debug)]
pub enum Progress {
    /// Send this and wait for the next response.
    Send(TxPdu),
    /// Full feature phase is reached.
    Complete(Box<LoggedIn>),
}

/// A login that reached full feature phase.
#[derive(Clone, Debug)]
pub struct LoggedIn {
    /// Whether it is a discovery session.
    pub discovery: bool,
    /// The negotiated parameters.
    pub params: Params,
    /// TSIH of the session.
    pub tsih: Tsih,
    /// ISID used.
    pub isid: Isid,
    /// CID used.
    pub cid: Cid,
    /// The numbers that full feature phase begins with.
    pub numbers: FirstNumbers,
    /// TargetPortalGroupTag, if the target sent it.
    pub portal_group_tag: Option<u16>,
    /// TargetAlias, if the target sent it.
    pub target_alias: Option<String>,
    /// CHAP algorithm used, if any.
    pub chap: Option<ChapAlgorithm>,
    /// All keys of the login in order.
    pub keys: Vec<KeyLine>,
}

/// The numbers that the full feature phase of a connection begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstNumbers {
    /// CmdSN of the first command.
    pub cmd_sn: CmdSn,
    /// The next StatSN to expect.
    pub exp_stat_sn: StatSn,
    /// ExpCmdSN in the final response.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN in the final response.
    pub max_cmd_sn: CmdSn,
}

/// The login of one connection.
#[derive(Debug)]
pub struct InitiatorLogin {
    config: LoginConfig,
    stage: LoginStage,
    security: Security,
    negotiator: Negotiator,
    received: TextAssembler,
    sending: TextSplitter,
    /// Whether the last piece of the text being sent requests the next stage.
    transit_after: bool,
    /// The stage that the last request asked to move to.
    asked: Option<LoginStage>,
    awaiting_continue: bool,
    exp_stat_sn: StatSn,
    exchanges: u32,
    keys: Vec<KeyLine>,
    portal_group_tag: Option<u16>,
    target_alias: Option<String>,
}

/// Task tag of login requests: no other task exists yet.
const LOGIN_ITT: Itt = Itt(0);

impl InitiatorLogin {
    /// A login with `config`: as the leading connection of a new session (which may reinstate an old one with the same ISID), or
    /// as a further connection.
    //= rfc7143 6.3.1 MCS-01
    pub fn new(mut config: LoginConfig) -> Self {
        let params = match &config.join {
            None => Params::default(),
            // The parameters of a connection are negotiated again.
            Some(join) => {
                config.cmd_sn = join.cmd_sn;
                let Params { digests, max_send_data_segment_length, max_recv_data_segment_length, .. } =
                    Params::default();
                Params {
                    digests,
                    max_send_data_segment_length,
                    max_recv_data_segment_length,
                    ..join.params.clone()
                }
            }
        };
        let mut negotiator = Negotiator::new(Role::Initiator, config.bounds.clone(), params);
        if config.join.is_some() {
            negotiator.set_joining();
        }
        if config.discovery {
            negotiator.set_discovery();
        }
        Self {
            stage: if config.chap.is_some() { LoginStage::Security } else { LoginStage::Operational },
            security: Security::new(config.chap.clone()),
            negotiator,
            config,
            received: TextAssembler::default(),
            sending: TextSplitter::default(),
            transit_after: false,
            asked: None,
            awaiting_continue: false,
            exp_stat_sn: StatSn(0),
            exchanges: 0,
            keys: Vec::new(),
            portal_group_tag: None,
            target_alias: None,
        }
    }

    /// Stage that the login is in.
    pub fn stage(&self) -> LoginStage {
        self.stage
    }

    /// CHAP algorithm that the target chose, if it has.
    pub fn chap_algorithm(&self) -> Option<ChapAlgorithm> {
        self.security.algorithm()
    }

    /// All keys so far; also valid after a failed login.
    pub fn keys(&self) -> &[KeyLine] {
        &self.keys
    }

    /// The first request.
    //= rfc7143 6.3.1 LGN-18 KEY-05 KEY-04 KEY-20
    pub fn start(&mut self) -> TxPdu {
        let mut pairs = vec![pair("InitiatorName", self.config.initiator.as_str())];
        //= rfc7143 13.7 KEY-06
        if let Some(alias) = &self.config.initiator_alias {
            pairs.push(pair("InitiatorAlias", alias));
        }
        if let Some(target) = &self.config.target {
            pairs.push(pair("TargetName", target.as_str()));
        }
        if self.config.join.is_none() {
            pairs.push(pair("SessionType", if self.config.discovery { "Discovery" } else { "Normal" }));
        }
        let transit = match self.stage {
            LoginStage::Security => {
                pairs.extend(owned(self.security.begin()));
                false
            }
            _ => {
                pairs.extend(self.offers());
                true
            }
        };
        self.request(pairs, transit)
    }

    /// Takes one PDU.
    ///
    /// # Errors
    /// Why the login failed; the connection must be closed.
    pub fn handle_pdu(
        &mut self,
        pdu: &RxPdu,
        support: &mut dyn LoginSupport,
    ) -> Result<Progress, LoginFailure> {
        //= rfc7143 4.2.4 LGN-02
        if pdu.bhs.opcode() != Opcode::LoginResponse as u8 {
            return Err(violation(
                "RFC 7143 4.2.4",
                format!("a PDU with opcode {:02x}h came before the login was complete", pdu.bhs.opcode()),
            ));
        }
        let response = LoginResponse::parse(&pdu.bhs).map_err(ProtocolViolation::from)?;
        self.exchanges += 1;
        //= rfc7143 6.2 TXT-16
        if self.exchanges > MAX_LOGIN_EXCHANGES {
            return Err(violation("RFC 7143 6.2", format!("more than {MAX_LOGIN_EXCHANGES} exchanges")));
        }
        self.check_constants(&response)?;
        if !response.status.is_success() {
            return Err(self.refused(&response, &pdu.data));
        }
        self.check_stages(&response)?;
        //= rfc7143 11.13.4 LGN-13
        self.exp_stat_sn = response.numbers.stat_sn.next();
        if self.awaiting_continue {
            // The target owes an empty answer to a piece of our text.
            //= rfc7143 6.2 TXT-05
            if !pdu.data.is_empty() || response.continue_bit || response.transit {
                return Err(violation("RFC 7143 6.2", "an answer to text that was not yet complete"));
            }
            return Ok(Progress::Send(self.next_piece()));
        }
        self.received.add(&pdu.data)?;
        if response.continue_bit {
            return Ok(Progress::Send(self.request(Vec::new(), false)));
        }
        let text = self.received.take();
        let pairs = TextPairs::parse(&text).map_err(ProtocolViolation::from)?;
        self.record(true, &pairs);
        let answers = self.take_keys(&pairs, response.transit, support)?;
        if !response.transit {
            let ready = self.stage != LoginStage::Security || self.security.is_ready();
            return Ok(Progress::Send(self.request(answers, ready)));
        }
        //= rfc7143 6.3 LGN-09
        if let Some((key, _)) = answers.first() {
            return Err(violation(
                "RFC 7143 6.3",
                format!("the response that ends the stage still wants an answer to {key}"),
            ));
        }
        self.move_on(&response)
    }

    /// Checks what must be the same in every response.
    //= rfc7143 11.13 LGN-11 LGN-07
    fn check_constants(&self, response: &LoginResponse) -> Result<(), LoginFailure> {
        if response.itt != LOGIN_ITT {
            return Err(violation("RFC 7143 11.13", "a login response for another task tag"));
        }
        if response.status.is_success() && response.isid != self.config.isid {
            return Err(violation("RFC 7143 11.13", "a login response for another ISID"));
        }
        if response.status.is_success() && response.version_active != 0 {
            return Err(violation(
                "RFC 7143 11.13",
                format!("the target chose version {}, which was not offered", response.version_active),
            ));
        }
        Ok(())
    }

    /// Checks that the response moves only to a stage that we requested.
    //= rfc7143 6.3 LGN-08
    fn check_stages(&self, response: &LoginResponse) -> Result<(), LoginFailure> {
        if response.csg != self.stage {
            return Err(violation(
                "RFC 7143 6.3",
                format!("a response for the {} stage while in {}", response.csg, self.stage),
            ));
        }
        //= rfc7143 6.2 TXT-06
        if response.transit && response.continue_bit {
            return Err(violation("RFC 7143 6.2", "a login response has both C and T set"));
        }
        let Some(next) = response.nsg.filter(|_| response.transit) else { return Ok(()) };
        match self.asked {
            None => Err(violation("RFC 7143 6.3", "the target moves to another stage without being asked")),
            Some(asked) if next as u8 > asked as u8 || next as u8 <= self.stage as u8 => {
                Err(violation("RFC 7143 6.3", format!("no move leads from {} to {next} here", self.stage)))
            }
            Some(_) => Ok(()),
        }
    }

    /// The status is not success: only the status, and the addresses of a redirection, are used.
    //= rfc7143 11.13.5 LGN-14 LGN-15
    fn refused(&self, response: &LoginResponse, data: &[u8]) -> LoginFailure {
        if response.status.class() != 1 {
            return LoginFailure::Refused { status: response.status, stage: self.stage };
        }
        let pairs = match TextPairs::parse(data) {
            Ok(pairs) => pairs,
            Err(error) => return ProtocolViolation::from(error).into(),
        };
        let values = pairs.iter().filter(|(key, _)| *key == "TargetAddress").map(|(_, value)| *value);
        match values.take(MAX_REDIRECT_ADDRESSES).map(TargetAddress::parse).collect::<Result<Vec<_>, _>>() {
            Err(violation) => violation.into(),
            Ok(addresses) if addresses.is_empty() => {
                violation("RFC 7143 11.13.5", "a redirection without TargetAddress")
            }
            Ok(addresses) => LoginFailure::Redirected {
                permanently: response.status == LoginStatus::TargetMovedPermanently,
                addresses,
            },
        }
    }

    fn take_keys(
        &mut self,
        pairs: &[(&str, &str)],
        leaving: bool,
        support: &mut dyn LoginSupport,
    ) -> Result<Pairs, LoginFailure> {
        let phase = if self.stage == LoginStage::Security { Phase::Security } else { Phase::Operational };
        let mut ordered = pairs.to_vec();
        ordered.sort_by_key(|(name, _)| processing_order(name));
        let mut answers = Vec::new();
        let mut security = Vec::new();
        for (name, value) in ordered {
            //= rfc7143 13.26 KEY-23
            if name == "X#NodeArchitecture" && value == "NotUnderstood" {
                continue;
            }
            match self.negotiator.receive(phase, name, value)? {
                Received::Done => self.note(name, value)?,
                Received::Answer(answer) => answers.push((name.to_owned(), answer)),
                Received::Login if name == "AuthMethod" || name.starts_with("CHAP_") => {
                    security.push((name, value));
                }
                //= rfc7143 13.4 KEY-04
                Received::Login => {
                    return Err(violation("RFC 7143 13", format!("{name} has no place in a login response")));
                }
            }
        }
        if self.stage == LoginStage::Security {
            answers.extend(owned(self.security.step(&security, leaving, support)?));
        }
        Ok(answers)
    }

    /// Keeps what the target declares about itself.
    //= rfc7143 13.9 KEY-08
    fn note(&mut self, name: &str, value: &str) -> Result<(), LoginFailure> {
        match name {
            "TargetPortalGroupTag" => {
                let tag = iscsi_wire::parse_number(value).ok().and_then(|n| u16::try_from(n).ok());
                self.portal_group_tag = Some(tag.ok_or_else(|| {
                    violation("RFC 7143 13.9", "TargetPortalGroupTag is no number up to 65535")
                })?);
            }
            "TargetAlias" => self.target_alias = Some(crate::negotiation::shown(value)),
            _ => {}
        }
        Ok(())
    }

    fn move_on(&mut self, response: &LoginResponse) -> Result<Progress, LoginFailure> {
        if self.stage == LoginStage::Security {
            self.security.check_left()?;
        }
        match response.nsg {
            Some(LoginStage::FullFeature) => self.complete(response),
            _ => {
                self.stage = LoginStage::Operational;
                let offers = self.offers();
                Ok(Progress::Send(self.request(offers, true)))
            }
        }
    }

    //= rfc7143 11.13.3 LGN-10 LGN-12
    fn complete(&mut self, response: &LoginResponse) -> Result<Progress, LoginFailure> {
        if response.tsih == Tsih(0) {
            return Err(violation("RFC 7143 11.13.3", "the final login response has no TSIH"));
        }
        //= rfc7143 11.13.3 MCS-01
        if self.config.join.as_ref().is_some_and(|join| join.tsih != response.tsih) {
            return Err(violation("RFC 7143 11.13.3", "the connection was added to another session"));
        }
        //= rfc7143 6.2 KEY-30 TXT-13
        if self.negotiator.awaits_answers() {
            return Err(violation("RFC 7143 6.2", "the target left offered keys unanswered"));
        }
        self.negotiator.check().map_err(LoginFailure::Unacceptable)?;
        Ok(Progress::Complete(Box::new(LoggedIn {
            discovery: self.config.discovery,
            params: self.negotiator.params().clone(),
            tsih: response.tsih,
            isid: self.config.isid,
            cid: self.config.cid,
            numbers: FirstNumbers {
                cmd_sn: self.config.cmd_sn,
                exp_stat_sn: self.exp_stat_sn,
                exp_cmd_sn: response.numbers.exp_cmd_sn,
                max_cmd_sn: response.numbers.max_cmd_sn,
            },
            portal_group_tag: self.portal_group_tag,
            target_alias: self.target_alias.take(),
            chap: self.security.algorithm(),
            keys: std::mem::take(&mut self.keys),
        })))
    }

    fn offers(&mut self) -> Pairs {
        let mut pairs = owned(self.negotiator.offer_all());
        //= rfc7143 13.26 KEY-23
        if let Some(architecture) = &self.config.node_architecture {
            pairs.push(pair("X#NodeArchitecture", architecture));
        }
        pairs
    }

    fn request(&mut self, pairs: Pairs, transit: bool) -> TxPdu {
        let mut text = TextBuilder::new();
        for (key, value) in &pairs {
            text.push(key, value);
        }
        let shown: Vec<(&str, &str)> =
            pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        self.record(false, &shown);
        self.sending.extend(&text.finish());
        self.transit_after = transit;
        self.next_piece()
    }

    //= rfc7143 11.12 LGN-11 LGN-12 LGN-08
    fn next_piece(&mut self) -> TxPdu {
        let (piece, more) = self.sending.next_piece(LOGIN_DATA_SEGMENT_BYTES);
        self.awaiting_continue = more;
        let transit = self.transit_after && !more;
        self.asked = transit.then_some(match self.stage {
            LoginStage::Security => LoginStage::Operational,
            _ => LoginStage::FullFeature,
        });
        let request = LoginRequest {
            transit,
            continue_bit: more,
            csg: self.stage,
            nsg: self.asked,
            version_max: 0,
            version_min: 0,
            isid: self.config.isid,
            tsih: self.config.join.as_ref().map_or(Tsih(0), |join| join.tsih),
            itt: LOGIN_ITT,
            cid: self.config.cid,
            cmd_sn: self.config.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        };
        TxPdu::with_data(request.to_bhs(), Bytes::from(piece))
    }

    //= rfc7143 9.2.1 SEC-15
    fn record(&mut self, from_target: bool, pairs: &[(&str, &str)]) {
        for (key, value) in pairs {
            let value = match *key {
                "CHAP_R" | "CHAP_C" => format!("<{} characters>", value.len()),
                _ => value.chars().flat_map(char::escape_debug).collect(),
            };
            self.keys.push(KeyLine { from_target, stage: self.stage, key: (*key).to_owned(), value });
        }
    }
}

impl fmt::Display for KeyLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}={}", if self.from_target { "T>" } else { "I>" }, self.key, self.value)
    }
}

/// Keys to send.
type Pairs = Vec<(String, String)>;

fn pair(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

fn owned(pairs: Vec<(&'static str, String)>) -> Pairs {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn violation(rule: &'static str, what: impl Into<std::borrow::Cow<'static, str>>) -> LoginFailure {
    LoginFailure::Violation(ProtocolViolation::new(rule, what))
}
