//! Negotiation of text keys (RFC 7143 6 and 13): one table of keys, one function for each type of result, the same for the
//! originator and the responder and for both roles.
//!
//! A [`Negotiator`] lives for one negotiation: a login, or one Text sequence. It works on a copy of the parameters, so that
//! nothing of a negotiation that fails takes effect; the caller takes [`Negotiator::params`] when it has ended.
//!
//! Security keys (AuthMethod, CHAP_*) and names are the login's business; this module only says where they may appear.

use std::collections::{BTreeMap, BTreeSet};

use iscsi_wire::{parse_bool, parse_list, parse_number};

use crate::error::ProtocolViolation;
use crate::limits::MAX_NEGOTIATION_KEYS;
use crate::params::{ALLEGIANCE_FREE, Bounds, DigestPolicy, PROTOCOL_LEVEL, Params, TaskReporting};

/// The rule of a refusal because a digest that our side's configuration demands was not agreed on: nobody breaks the
/// protocol then.
pub(crate) const DIGEST_REQUIRED: &str = "RFC 7143 13.1, with the digest required by configuration";

/// Which end we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// We began the connection.
    Initiator,
    /// We accepted it.
    Target,
}

/// Where a negotiation takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// SecurityNegotiation stage of a login.
    Security,
    /// LoginOperationalNegotiation stage of a login.
    Operational,
    /// Text exchange in full feature phase.
    FullFeature,
}

/// Which of two numbers wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pick {
    Min,
    Max,
}

/// How a key's result comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// The first value of the offered list that the responder supports.
    List,
    /// A number in a range.
    Number { min: u64, max: u64, pick: Pick },
    /// `Yes` only if both say so.
    And,
    /// `Yes` if either says so.
    Or,
    /// Stated, never answered.
    Declared,
    /// Markers of RFC 3720: understood, never used.
    Obsolete { answer: &'static str },
    /// Handled by the login itself.
    Login,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sender {
    Either,
    Initiator,
    Target,
}

/// Phases in which a key may appear, as a bit set.
const S: u8 = 1;
const O: u8 = 2;
const F: u8 = 4;

struct KeyRule {
    name: &'static str,
    class: Class,
    phases: u8,
    sender: Sender,
    /// Has a meaning only in normal sessions.
    normal_only: bool,
    /// May be sent on the leading connection only.
    leading_only: bool,
    repeatable: bool,
}

const fn key(name: &'static str, class: Class, phases: u8) -> KeyRule {
    KeyRule {
        name,
        class,
        phases,
        sender: Sender::Either,
        normal_only: false,
        leading_only: false,
        repeatable: false,
    }
}

impl KeyRule {
    const fn normal(self) -> Self {
        Self { normal_only: true, ..self }
    }
    const fn leading(self) -> Self {
        Self { leading_only: true, ..self }
    }
    const fn by_initiator(self) -> Self {
        Self { sender: Sender::Initiator, ..self }
    }
    const fn by_target(self) -> Self {
        Self { sender: Sender::Target, ..self }
    }
    const fn repeatable(self) -> Self {
        Self { repeatable: true, ..self }
    }
}

const fn number(min: u64, max: u64, pick: Pick) -> Class {
    Class::Number { min, max, pick }
}

const MAX_ERROR_RECOVERY_LEVEL: u8 = 2;
const MAX24: u64 = (1 << 24) - 1;

/// Every key of RFC 7143, so that none is ever answered NotUnderstood.
//= rfc7143 13 TXT-08 TXT-17 KEY-01 KEY-02 KEY-04 KEY-05 KEY-06 KEY-07 KEY-08 KEY-09 KEY-10 KEY-11 KEY-12 KEY-13
//= rfc7143 13 KEY-14 KEY-15 KEY-16 KEY-17 KEY-18 KEY-19 KEY-20 KEY-21 KEY-22 KEY-23 KEY-24 KEY-25 KEY-27
static KEYS: &[KeyRule] = &[
    key("HeaderDigest", Class::List, O),
    key("DataDigest", Class::List, O),
    key("MaxConnections", number(1, 65535, Pick::Min), O).normal().leading(),
    key("SendTargets", Class::Login, F).by_initiator(),
    key("TargetName", Class::Login, S | O | F),
    key("InitiatorName", Class::Login, S | O).by_initiator(),
    key("TargetAlias", Class::Declared, S | O | F).by_target(),
    key("InitiatorAlias", Class::Declared, S | O | F).by_initiator(),
    key("TargetAddress", Class::Declared, S | O | F).by_target().repeatable(),
    key("TargetPortalGroupTag", Class::Declared, S | O).by_target(),
    key("InitialR2T", Class::Or, O).normal().leading(),
    key("ImmediateData", Class::And, O).normal().leading(),
    key("MaxRecvDataSegmentLength", Class::Declared, S | O | F),
    key("MaxBurstLength", number(512, MAX24, Pick::Min), O).normal().leading(),
    key("FirstBurstLength", number(512, MAX24, Pick::Min), O).normal().leading(),
    key("DefaultTime2Wait", number(0, 3600, Pick::Max), O).leading(),
    key("DefaultTime2Retain", number(0, 3600, Pick::Min), O).leading(),
    key("MaxOutstandingR2T", number(1, 65535, Pick::Min), O).normal().leading(),
    key("DataPDUInOrder", Class::Or, O).normal().leading(),
    key("DataSequenceInOrder", Class::Or, O).normal().leading(),
    key("ErrorRecoveryLevel", number(0, 2, Pick::Min), O).leading(),
    key("SessionType", Class::Login, S | O).by_initiator().leading(),
    key("TaskReporting", Class::List, O).normal().leading(),
    key("iSCSIProtocolLevel", number(0, 31, Pick::Min), O).normal().leading(),
    key(ALLEGIANCE_FREE, Class::And, O).normal().leading(),
    key("X#NodeArchitecture", Class::Declared, S | O | F),
    key("IFMarker", Class::Obsolete { answer: "No" }, O),
    key("OFMarker", Class::Obsolete { answer: "No" }, O),
    key("IFMarkInt", Class::Obsolete { answer: "Reject" }, O),
    key("OFMarkInt", Class::Obsolete { answer: "Reject" }, O),
    key("AuthMethod", Class::Login, S),
    key("CHAP_A", Class::Login, S),
    key("CHAP_I", Class::Login, S),
    key("CHAP_C", Class::Login, S),
    key("CHAP_N", Class::Login, S),
    key("CHAP_R", Class::Login, S),
];

/// Sort key that puts MaxBurstLength before FirstBurstLength, so that the answer to the second can respect the first in
/// whatever order the peer wrote them (RFC 7143 13.14).
pub fn processing_order(name: &str) -> u8 {
    u8::from(name == "FirstBurstLength")
}

/// What a received key means for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// Dealt with; nothing to send.
    Done,
    /// Send this value as the answer.
    Answer(String),
    /// A key of the login or of discovery, for the caller.
    Login,
}

/// One negotiation, from either end.
#[derive(Clone, Debug)]
pub struct Negotiator {
    role: Role,
    discovery: bool,
    leading: bool,
    bounds: Bounds,
    params: Params,
    /// Keys that the peer has sent.
    received: BTreeSet<String>,
    /// Keys that we have sent, with the offered value while an answer is due.
    offered: BTreeMap<&'static str, Option<String>>,
}

impl Negotiator {
    /// Begins a negotiation that starts from `params`.
    pub fn new(role: Role, bounds: Bounds, params: Params) -> Self {
        Self {
            role,
            discovery: false,
            leading: true,
            bounds,
            params,
            received: BTreeSet::new(),
            offered: BTreeMap::new(),
        }
    }

    /// Says that this is a discovery session: many keys have no meaning there (RFC 7143 4.3, 13).
    pub fn set_discovery(&mut self) {
        self.discovery = true;
    }

    /// Says that this login adds or replaces a connection of a session: its parameters stand (RFC 7143 6.3.1).
    pub fn set_joining(&mut self) {
        self.leading = false;
    }

    /// The parameters as negotiated so far.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// True when the peer has sent `key` in this negotiation.
    pub fn has_received(&self, key: &str) -> bool {
        self.received.contains(key)
    }

    /// True while an answer of the peer is due.
    ///
    /// Two answers may be left out, because they cannot change the result: to `No` where both must agree, and to `Yes` where
    /// one is enough.
    //= rfc7143 6.2.2 TXT-13
    pub fn awaits_answers(&self) -> bool {
        self.offered
            .iter()
            .any(|(name, offer)| offer.as_deref().is_some_and(|offer| !is_settled(name, offer)))
    }

    /// Takes one `key=value` of the peer.
    ///
    /// # Errors
    /// The rule that the peer broke; the negotiation has failed.
    pub fn receive(&mut self, phase: Phase, name: &str, value: &str) -> Result<Received, ProtocolViolation> {
        let Some(rule) = KEYS.iter().find(|rule| rule.name == name) else {
            return self.receive_unknown(name, value);
        };
        let bit = match phase {
            Phase::Security => S,
            Phase::Operational => O,
            Phase::FullFeature => F,
        };
        //= rfc7143 6.3 TXT-17
        if rule.phases & bit == 0 {
            return Err(violation("RFC 7143 6.3", format!("{name} is not allowed in the {phase:?} phase")));
        }
        //= rfc7143 6.3 KEY-29
        if rule.leading_only && !self.leading {
            return Err(violation(
                "RFC 7143 6.3",
                format!("{name} may be negotiated on the leading connection only"),
            ));
        }
        let from_us = match rule.sender {
            Sender::Either => false,
            Sender::Initiator => self.role == Role::Initiator,
            Sender::Target => self.role == Role::Target,
        };
        if from_us {
            return Err(violation(
                "RFC 7143 13",
                format!(
                    "{name} may not be sent by a{}",
                    match self.role {
                        Role::Initiator => " target",
                        Role::Target => "n initiator",
                    }
                ),
            ));
        }
        //= rfc7143 6.3 TXT-11
        if !self.note_received(name)? && !rule.repeatable {
            return Err(violation("RFC 7143 6.3", format!("{name} was sent twice in one negotiation")));
        }
        if let Some(slot) = self.offered.get_mut(name)
            && let Some(offer) = slot.take()
        {
            return self.answered(rule, &offer, value).map(|()| Received::Done);
        }
        self.offered_by_peer(rule, value)
    }

    /// Remembers that the peer has sent `name`; false when it had before.
    fn note_received(&mut self, name: &str) -> Result<bool, ProtocolViolation> {
        if self.received.contains(name) {
            return Ok(false);
        }
        if self.received.len() >= MAX_NEGOTIATION_KEYS {
            return Err(violation(
                "limits of this implementation",
                format!("more than {MAX_NEGOTIATION_KEYS} keys in one negotiation"),
            ));
        }
        Ok(self.received.insert(name.to_owned()))
    }

    /// A key outside the standard: private ones are offered politely, all are answered NotUnderstood.
    //= rfc7143 6.2 TXT-08 KEY-26 KEY-28 TXT-11
    fn receive_unknown(&mut self, name: &str, value: &str) -> Result<Received, ProtocolViolation> {
        if !self.note_received(name)? {
            return Err(violation(
                "RFC 7143 6.3",
                format!("{} was sent twice in one negotiation", shown(name)),
            ));
        }
        Ok(match value {
            "NotUnderstood" | "Reject" | "Irrelevant" => Received::Done,
            _ => Received::Answer("NotUnderstood".into()),
        })
    }

    /// The peer proposes or declares.
    fn offered_by_peer(&mut self, rule: &KeyRule, value: &str) -> Result<Received, ProtocolViolation> {
        //= rfc7143 6.2 TXT-09
        if matches!(value, "Reject" | "Irrelevant" | "NotUnderstood") && rule.class != Class::Login {
            return Err(violation(
                "RFC 7143 6.2",
                format!("{}={value} answers nothing: it is not a value to propose", rule.name),
            ));
        }
        let answer = match rule.class {
            Class::Login => return Ok(Received::Login),
            Class::Declared => return Ok(self.declare(rule.name, value)),
            _ if self.discovery && rule.normal_only => "Irrelevant".to_owned(),
            Class::Obsolete { answer } => answer.to_owned(),
            Class::List => self.choose(rule.name, value),
            Class::And | Class::Or => match parse_bool(value) {
                Ok(theirs) => {
                    let ours = self.wanted_bool(rule.name);
                    let result = if rule.class == Class::And { ours && theirs } else { ours || theirs };
                    self.set_bool(rule.name, result);
                    yes_no(result).to_owned()
                }
                Err(_) => "Reject".to_owned(),
            },
            //= rfc7143 6.2.2 TXT-12
            Class::Number { min, max, pick } => match parse_number(value) {
                Ok(theirs) if (min..=max).contains(&theirs) => {
                    let ours = self.wanted_number(rule.name);
                    let result = match pick {
                        Pick::Min => theirs.min(ours),
                        Pick::Max => theirs.max(ours),
                    };
                    self.set_number(rule.name, result);
                    result.to_string()
                }
                _ => "Reject".to_owned(),
            },
        };
        Ok(Received::Answer(answer))
    }

    /// The peer answers what we offered.
    //= rfc7143 6.2 TXT-10 TXT-12 KEY-30
    fn answered(&mut self, rule: &KeyRule, offer: &str, value: &str) -> Result<(), ProtocolViolation> {
        match value {
            "Reject" | "Irrelevant" | "NotUnderstood" => return Ok(()),
            _ => {}
        }
        let inadmissible = || {
            violation(
                "RFC 7143 6.2.2",
                format!("{}={} is no admissible answer to {offer}", rule.name, shown(value)),
            )
        };
        match rule.class {
            Class::List => {
                if !offer.split(',').any(|v| v == value) {
                    return Err(inadmissible());
                }
                self.set_list(rule.name, value);
            }
            Class::And | Class::Or => {
                let theirs = parse_bool(value).map_err(|_| inadmissible())?;
                let ours = offer == "Yes";
                if (rule.class == Class::And && !ours && theirs)
                    || (rule.class == Class::Or && ours && !theirs)
                {
                    return Err(inadmissible());
                }
                self.set_bool(rule.name, theirs);
            }
            Class::Number { min, max, pick } => {
                let theirs =
                    parse_number(value).ok().filter(|n| (min..=max).contains(n)).ok_or_else(inadmissible)?;
                let ours = parse_number(offer).unwrap_or(theirs);
                if (pick == Pick::Min && theirs > ours) || (pick == Pick::Max && theirs < ours) {
                    return Err(inadmissible());
                }
                self.set_number(rule.name, theirs);
            }
            Class::Declared | Class::Obsolete { .. } | Class::Login => {}
        }
        Ok(())
    }

    fn declare(&mut self, name: &str, value: &str) -> Received {
        if name == "MaxRecvDataSegmentLength" {
            match parse_number(value) {
                //= rfc7143 13.12 KEY-11 TXT-18
                Ok(n) if (512..=MAX24).contains(&n) => self.params.max_send_data_segment_length = n as u32,
                _ => return Received::Answer("Reject".into()),
            }
        }
        Received::Done
    }

    /// Picks the first offered value that we support.
    //= rfc7143 6.2.1 DIG-05
    fn choose(&mut self, name: &str, offers: &str) -> String {
        let supported: &[&str] = match name {
            "HeaderDigest" => self.bounds.header_digest.values(),
            "DataDigest" => self.bounds.data_digest.values(),
            _ => self.bounds.task_reporting.values(),
        };
        match parse_list(offers).ok().and_then(|list| list.into_iter().find(|v| supported.contains(v))) {
            Some(chosen) => {
                self.set_list(name, chosen);
                chosen.to_owned()
            }
            None => "Reject".to_owned(),
        }
    }

    /// Offers or declares everything that a login of ours should; the pairs to send. One that joins a session has only its
    /// connection's own to negotiate.
    pub fn offer_all(&mut self) -> Vec<(&'static str, String)> {
        let mut pairs = Vec::new();
        for name in ["HeaderDigest", "DataDigest"] {
            pairs.push((name, self.offer(name)));
        }
        pairs.push(("MaxRecvDataSegmentLength", self.declare_max_recv()));
        if !self.leading {
            return pairs;
        }
        pairs.push(("DefaultTime2Wait", self.offer("DefaultTime2Wait")));
        pairs.push(("DefaultTime2Retain", self.offer("DefaultTime2Retain")));
        pairs.push(("ErrorRecoveryLevel", self.offer("ErrorRecoveryLevel")));
        if !self.discovery {
            for name in [
                "InitialR2T",
                "ImmediateData",
                "MaxBurstLength",
                "FirstBurstLength",
                "MaxConnections",
                "MaxOutstandingR2T",
                "DataPDUInOrder",
                "DataSequenceInOrder",
            ] {
                pairs.push((name, self.offer(name)));
            }
            // What is at its default is left unsaid: some targets are old enough not to know these keys.
            let standard = Bounds::default();
            let newer = [
                ("TaskReporting", self.bounds.task_reporting != standard.task_reporting),
                ("iSCSIProtocolLevel", self.bounds.protocol_level != standard.protocol_level),
                (ALLEGIANCE_FREE, self.bounds.allegiance_free),
            ];
            for (name, _) in newer.into_iter().filter(|(_, wanted)| *wanted) {
                pairs.push((name, self.offer(name)));
            }
        }
        pairs
    }

    /// Keys that the target must raise itself because the initiator did not: required digests, and a FirstBurstLength that
    /// fits a lowered MaxBurstLength.
    //= rfc7143 13.14 TXT-15
    pub fn own_proposals(&mut self) -> Vec<(&'static str, String)> {
        let mut pairs = Vec::new();
        for (name, policy) in
            [("HeaderDigest", self.bounds.header_digest), ("DataDigest", self.bounds.data_digest)]
        {
            if policy == DigestPolicy::Required && self.is_untouched(name) {
                pairs.push((name, self.offer(name)));
            }
        }
        if !self.discovery
            && self.params.first_burst_length > self.params.max_burst_length
            && self.params.unsolicited_data_possible()
            && self.is_untouched("FirstBurstLength")
        {
            self.offered.insert("FirstBurstLength", Some(self.params.max_burst_length.to_string()));
            pairs.push(("FirstBurstLength", self.params.max_burst_length.to_string()));
        }
        pairs
    }

    /// Declares our MaxRecvDataSegmentLength; the value to send.
    pub fn declare_max_recv(&mut self) -> String {
        self.offered.insert("MaxRecvDataSegmentLength", None);
        self.params.max_recv_data_segment_length = self.bounds.max_recv_data_segment_length;
        self.params.max_recv_data_segment_length.to_string()
    }

    /// True when we have declared our MaxRecvDataSegmentLength in this negotiation.
    pub fn has_declared_max_recv(&self) -> bool {
        self.offered.contains_key("MaxRecvDataSegmentLength")
    }

    /// Checks the rules that tie several keys together, once all are known.
    ///
    /// # Errors
    /// The rule that the result breaks.
    //= rfc7143 6.2 TXT-15
    pub fn check(&self) -> Result<(), ProtocolViolation> {
        let p = &self.params;
        if !self.discovery && p.first_burst_length > p.max_burst_length && p.unsolicited_data_possible() {
            return Err(violation(
                "RFC 7143 13.14",
                format!(
                    "FirstBurstLength {} exceeds MaxBurstLength {}",
                    p.first_burst_length, p.max_burst_length
                ),
            ));
        }
        for (name, policy, on) in [
            ("HeaderDigest", self.bounds.header_digest, p.digests.header),
            ("DataDigest", self.bounds.data_digest, p.digests.data),
        ] {
            if policy == DigestPolicy::Required && !on {
                return Err(violation(
                    DIGEST_REQUIRED,
                    format!("{name}=CRC32C is required here and was not agreed on"),
                ));
            }
        }
        Ok(())
    }

    fn is_untouched(&self, name: &str) -> bool {
        !self.received.contains(name) && !self.offered.contains_key(name)
    }

    fn offer(&mut self, name: &'static str) -> String {
        let value = match name {
            "HeaderDigest" => self.bounds.header_digest.values().join(","),
            "DataDigest" => self.bounds.data_digest.values().join(","),
            "TaskReporting" => self.bounds.task_reporting.values().join(","),
            "InitialR2T" | "ImmediateData" | "DataPDUInOrder" | "DataSequenceInOrder" | ALLEGIANCE_FREE => {
                yes_no(self.wanted_bool(name)).to_owned()
            }
            _ => self.wanted_number(name).to_string(),
        };
        if is_settled(name, &value) {
            self.set_bool(name, value == "Yes");
        }
        self.offered.insert(name, Some(value.clone()));
        value
    }

    fn wanted_number(&self, name: &str) -> u64 {
        let b = &self.bounds;
        match name {
            "MaxConnections" => u64::from(if self.discovery { 1 } else { b.max_connections }),
            "MaxBurstLength" => b.max_burst_length.into(),
            // The answer to FirstBurstLength never exceeds what MaxBurstLength has become, or is unless the peer brings it up.
            "FirstBurstLength" if self.role == Role::Target || self.received.contains("MaxBurstLength") => {
                b.first_burst_length.min(self.params.max_burst_length).into()
            }
            "FirstBurstLength" => b.first_burst_length.min(b.max_burst_length).into(),
            "DefaultTime2Wait" => b.default_time2wait_s.into(),
            "DefaultTime2Retain" => b.default_time2retain_s.into(),
            "MaxOutstandingR2T" => b.max_outstanding_r2t.into(),
            //= rfc7144 7 P2-01
            "iSCSIProtocolLevel" => b.protocol_level.min(PROTOCOL_LEVEL).into(),
            //= rfc7143 7.4.1 DSC-07
            //= rfc7143 7.1.5 ERL-01
            "ErrorRecoveryLevel" if !self.discovery => {
                b.error_recovery_level.min(MAX_ERROR_RECOVERY_LEVEL).into()
            }
            _ => 0,
        }
    }

    fn set_number(&mut self, name: &str, n: u64) {
        let p = &mut self.params;
        match name {
            "MaxConnections" => p.max_connections = n as u16,
            "MaxBurstLength" => p.max_burst_length = n as u32,
            "FirstBurstLength" => p.first_burst_length = n as u32,
            "DefaultTime2Wait" => p.default_time2wait_s = n as u16,
            "DefaultTime2Retain" => p.default_time2retain_s = n as u16,
            "MaxOutstandingR2T" => p.max_outstanding_r2t = n as u16,
            "ErrorRecoveryLevel" => p.error_recovery_level = n as u8,
            "iSCSIProtocolLevel" => p.protocol_level = n as u8,
            _ => {}
        }
    }

    fn wanted_bool(&self, name: &str) -> bool {
        match name {
            "InitialR2T" => self.bounds.initial_r2t,
            "ImmediateData" => self.bounds.immediate_data,
            ALLEGIANCE_FREE => self.bounds.allegiance_free,
            // Data always travels in order: simpler for both ends and for who reads a trace.
            _ => true,
        }
    }

    fn set_bool(&mut self, name: &str, value: bool) {
        let p = &mut self.params;
        match name {
            "InitialR2T" => p.initial_r2t = value,
            "ImmediateData" => p.immediate_data = value,
            "DataPDUInOrder" => p.data_pdu_in_order = value,
            "DataSequenceInOrder" => p.data_sequence_in_order = value,
            ALLEGIANCE_FREE => p.allegiance_free = value,
            _ => {}
        }
    }

    fn set_list(&mut self, name: &str, value: &str) {
        match name {
            "HeaderDigest" => self.params.digests.header = value == "CRC32C",
            "DataDigest" => self.params.digests.data = value == "CRC32C",
            "TaskReporting" => self.params.task_reporting = TaskReporting::from_value(value),
            _ => {}
        }
    }
}

/// Whether offering `value` for the key `name` settles the result whatever the peer says.
fn is_settled(name: &str, value: &str) -> bool {
    KEYS.iter().find(|rule| rule.name == name).is_some_and(|rule| match rule.class {
        Class::And => value == "No",
        Class::Or => value == "Yes",
        _ => false,
    })
}

fn violation(rule: &'static str, what: String) -> ProtocolViolation {
    ProtocolViolation::new(rule, what)
}

fn yes_no(value: bool) -> &'static str {
    if value { "Yes" } else { "No" }
}

/// A peer's text as it may be shown to a person: escaped and shortened.
pub fn shown(text: &str) -> String {
    let short: String = text.chars().take(48).flat_map(char::escape_debug).collect();
    if text.chars().count() > 48 { short + "..." } else { short }
}
