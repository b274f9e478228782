//! Negotiation of text keys (RFC 7143 6 and 13): one function for each type of result, the same for the originator and the
//! responder and for both roles. The properties of a key are in its row of [`crate::keys`].
//!
//! A [`Negotiator`] serves one negotiation: a login, or one Text sequence. It works on a copy of the parameters, so that a failed
//! negotiation has no effect; the caller takes [`Negotiator::params`] at its end.
//!
//! Security keys (AuthMethod, CHAP_*) and names are handled by the login; this module only says where they may appear.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use iscsi_wire::{keys, parse_bool, parse_list, parse_number};

use crate::error::ProtocolViolation;
use crate::keys::{Class, F, Field, Key, O, Pick, S, Sender, Words};
use crate::limits::MAX_NEGOTIATION_KEYS;
use crate::params::{Bounds, DigestPolicy, Params};
pub use crate::role::Role;

/// The rule of a refusal because a digest that our configuration requires was not agreed on: in that case neither end breaks the
/// protocol.
pub(crate) const DIGEST_REQUIRED: &str = "RFC 7143 13.1, with the digest required by configuration";

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

/// Sort key that puts MaxBurstLength before FirstBurstLength, so that the answer to the second can respect the first whatever
/// order the peer sent them in (RFC 7143 13.14).
pub fn processing_order(name: &str) -> u8 {
    u8::from(name == keys::FIRST_BURST_LENGTH)
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
    /// Keys that we have sent; with the offered value as long as an answer is due.
    offered: BTreeMap<&'static str, Option<String>>,
}

impl Negotiator {
    /// Starts a negotiation from `params`.
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

    /// Declares this a discovery session: many keys have no meaning there (RFC 7143 4.3, 13).
    pub fn set_discovery(&mut self) {
        self.discovery = true;
    }

    /// Declares that this login adds or replaces a connection of a session, whose parameters stay in effect (RFC 7143 6.3.1).
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

    /// True while an answer from the peer is due.
    ///
    /// Two answers may be left out, because they cannot change the result: to `No` where both must agree, and to `Yes` where
    /// one is enough.
    //= rfc7143 6.2.2 TXT-13
    pub fn awaits_answers(&self) -> bool {
        self.offered
            .iter()
            .any(|(name, offer)| offer.as_deref().is_some_and(|offer| !is_settled(name, offer)))
    }

    /// Handles one `key=value` from the peer.
    ///
    /// # Errors
    /// The rule that the peer broke; the negotiation has failed.
    pub fn receive(&mut self, phase: Phase, name: &str, value: &str) -> Result<Received, ProtocolViolation> {
        let Some(key) = Key::named(name) else {
            return self.receive_unknown(name, value);
        };
        let bit = match phase {
            Phase::Security => S,
            Phase::Operational => O,
            Phase::FullFeature => F,
        };
        //= rfc7143 6.3 TXT-17
        if !key.is_allowed_in(bit) {
            return Err(violation("RFC 7143 6.3", format!("{name} is not allowed in the {phase:?} phase")));
        }
        //= rfc7143 6.3 KEY-29
        if key.leading_only && !self.leading {
            return Err(violation(
                "RFC 7143 6.3",
                format!("{name} may be negotiated on the leading connection only"),
            ));
        }
        let from_us = match key.sender {
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
        if !self.note_received(name)? && !key.repeatable {
            return Err(violation("RFC 7143 6.3", format!("{name} was sent twice in one negotiation")));
        }
        if let Some(slot) = self.offered.get_mut(name)
            && let Some(offer) = slot.take()
        {
            return self.answered(key, &offer, value).map(|()| Received::Done);
        }
        self.offered_by_peer(key, value)
    }

    /// Records that the peer has sent `name`; false when it had sent it before.
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

    /// A key that is not in the standard: private ones may be offered, and all are answered NotUnderstood.
    //= rfc7143 6.2 TXT-08 KEY-26 KEY-28 TXT-11
    fn receive_unknown(&mut self, name: &str, value: &str) -> Result<Received, ProtocolViolation> {
        if !self.note_received(name)? {
            return Err(violation(
                "RFC 7143 6.3",
                format!("{} was sent twice in one negotiation", shown(name)),
            ));
        }
        Ok(match value {
            keys::NOT_UNDERSTOOD | keys::REJECT | keys::IRRELEVANT => Received::Done,
            _ => Received::Answer(keys::NOT_UNDERSTOOD.into()),
        })
    }

    /// The peer proposes or declares.
    fn offered_by_peer(&mut self, key: &Key, value: &str) -> Result<Received, ProtocolViolation> {
        //= rfc7143 6.2 TXT-09
        if matches!(value, keys::REJECT | keys::IRRELEVANT | keys::NOT_UNDERSTOOD)
            && !matches!(key.class, Class::Login)
        {
            return Err(violation(
                "RFC 7143 6.2",
                format!("{}={value} answers nothing: it is not a value to propose", key.name()),
            ));
        }
        let answer = match &key.class {
            Class::Login => return Ok(Received::Login),
            Class::Declared => return Ok(Received::Done),
            Class::Length { range, field, .. } => match number_in(range, value) {
                //= rfc7143 13.12 KEY-11 TXT-18
                Some(bytes) => {
                    (field.agree)(&mut self.params, bytes);
                    return Ok(Received::Done);
                }
                None => keys::REJECT.to_owned(),
            },
            _ if self.discovery && key.normal_only => keys::IRRELEVANT.to_owned(),
            Class::Obsolete { answer } => (*answer).to_owned(),
            Class::List(words) => self.choose(words, value),
            Class::And(field) => self.combine(field, value, |ours, theirs| ours && theirs),
            Class::Or(field) => self.combine(field, value, |ours, theirs| ours || theirs),
            //= rfc7143 6.2.2 TXT-12
            Class::Number { range, pick, field } => match number_in(range, value) {
                Some(theirs) => {
                    let ours = self.wanted_number(key, range, field);
                    let result = match pick {
                        Pick::Min => theirs.min(ours),
                        Pick::Max => theirs.max(ours),
                    };
                    (field.agree)(&mut self.params, result);
                    result.to_string()
                }
                None => keys::REJECT.to_owned(),
            },
        };
        Ok(Received::Answer(answer))
    }

    /// The answer to an offered `Yes` or `No`.
    fn combine(&mut self, field: &Field<bool>, value: &str, of: fn(bool, bool) -> bool) -> String {
        let Ok(theirs) = parse_bool(value) else { return keys::REJECT.to_owned() };
        let result = of((field.wanted)(&self.bounds), theirs);
        (field.agree)(&mut self.params, result);
        yes_no(result).to_owned()
    }

    /// The peer answers one of our offers.
    //= rfc7143 6.2 TXT-10 TXT-12 KEY-30
    fn answered(&mut self, key: &Key, offer: &str, value: &str) -> Result<(), ProtocolViolation> {
        if matches!(value, keys::REJECT | keys::IRRELEVANT | keys::NOT_UNDERSTOOD) {
            return Ok(());
        }
        let inadmissible = || {
            violation(
                "RFC 7143 6.2.2",
                format!("{}={} is no admissible answer to {offer}", key.name(), shown(value)),
            )
        };
        match &key.class {
            Class::List(words) => {
                if !offer.split(',').any(|v| v == value) {
                    return Err(inadmissible());
                }
                (words.agree)(&mut self.params, value);
            }
            Class::And(field) | Class::Or(field) => {
                let theirs = parse_bool(value).map_err(|_| inadmissible())?;
                if key.is_settled_by(offer) && yes_no(theirs) != offer {
                    return Err(inadmissible());
                }
                (field.agree)(&mut self.params, theirs);
            }
            Class::Number { range, pick, field } => {
                let theirs = number_in(range, value).ok_or_else(inadmissible)?;
                let ours = parse_number(offer).unwrap_or(theirs);
                if (*pick == Pick::Min && theirs > ours) || (*pick == Pick::Max && theirs < ours) {
                    return Err(inadmissible());
                }
                (field.agree)(&mut self.params, theirs);
            }
            Class::Length { .. } | Class::Declared | Class::Obsolete { .. } | Class::Login => {}
        }
        Ok(())
    }

    /// Picks the first offered value that we support.
    //= rfc7143 6.2.1 DIG-05
    fn choose(&mut self, words: &Words, offers: &str) -> String {
        let supported = (words.supported)(&self.bounds);
        match parse_list(offers).ok().and_then(|list| list.into_iter().find(|v| supported.contains(v))) {
            Some(chosen) => {
                (words.agree)(&mut self.params, chosen);
                chosen.to_owned()
            }
            None => keys::REJECT.to_owned(),
        }
    }

    /// Offers or declares all keys of our login, and returns the pairs to send. A login that joins a session negotiates only the
    /// parameters of its connection.
    pub fn offer_all(&mut self) -> Vec<(&'static str, String)> {
        let mut pairs = Vec::new();
        for key in Key::all() {
            let has_no_meaning = (self.discovery && key.normal_only) || (!self.leading && key.leading_only);
            if has_no_meaning || (key.newer && !self.differs_from_default(key)) {
                continue;
            }
            pairs.extend(self.offer(key).map(|value| (key.name(), value)));
        }
        pairs
    }

    fn differs_from_default(&self, key: &Key) -> bool {
        let standard = Bounds::default();
        match &key.class {
            Class::List(words) => (words.supported)(&self.bounds) != (words.supported)(&standard),
            Class::Number { field, .. } | Class::Length { field, .. } => {
                (field.wanted)(&self.bounds) != (field.wanted)(&standard)
            }
            Class::And(field) | Class::Or(field) => (field.wanted)(&self.bounds) != (field.wanted)(&standard),
            Class::Declared | Class::Obsolete { .. } | Class::Login => false,
        }
    }

    /// Keys that the target must propose itself because the initiator did not: required digests, and a FirstBurstLength that fits
    /// a lowered MaxBurstLength.
    //= rfc7143 13.14 TXT-15
    pub fn own_proposals(&mut self) -> Vec<(&'static str, String)> {
        let mut pairs = Vec::new();
        for (name, policy) in
            [(keys::HEADER_DIGEST, self.bounds.header_digest), (keys::DATA_DIGEST, self.bounds.data_digest)]
        {
            if policy == DigestPolicy::Required && self.is_untouched(name) {
                pairs.extend(Key::named(name).and_then(|key| Some((name, self.offer(key)?))));
            }
        }
        if !self.discovery
            && self.params.bursts.first_burst_length > self.params.bursts.max_burst_length
            && self.params.unsolicited_data_possible()
            && self.is_untouched(keys::FIRST_BURST_LENGTH)
        {
            let fitting = self.params.bursts.max_burst_length.to_string();
            self.offered.insert(keys::FIRST_BURST_LENGTH, Some(fitting.clone()));
            pairs.push((keys::FIRST_BURST_LENGTH, fitting));
        }
        pairs
    }

    /// Declares our MaxRecvDataSegmentLength, and returns the value to send.
    pub fn declare_max_recv(&mut self) -> String {
        let declared = Key::named(keys::MAX_RECV_DATA_SEGMENT_LENGTH).and_then(|key| self.offer(key));
        declared.unwrap_or_default()
    }

    /// True when we have declared our MaxRecvDataSegmentLength in this negotiation.
    pub fn has_declared_max_recv(&self) -> bool {
        self.offered.contains_key(keys::MAX_RECV_DATA_SEGMENT_LENGTH)
    }

    /// Checks the rules that relate several keys, once all are known.
    ///
    /// # Errors
    /// The rule that the result breaks.
    //= rfc7143 6.2 TXT-15
    pub fn check(&self) -> Result<(), ProtocolViolation> {
        let p = &self.params;
        if !self.discovery
            && p.bursts.first_burst_length > p.bursts.max_burst_length
            && p.unsolicited_data_possible()
        {
            return Err(violation(
                "RFC 7143 13.14",
                format!(
                    "FirstBurstLength {} exceeds MaxBurstLength {}",
                    p.bursts.first_burst_length, p.bursts.max_burst_length
                ),
            ));
        }
        for (name, policy, on) in [
            (keys::HEADER_DIGEST, self.bounds.header_digest, p.digests.header),
            (keys::DATA_DIGEST, self.bounds.data_digest, p.digests.data),
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

    /// Offers or declares `key`; `None` for a key that is never offered.
    fn offer(&mut self, key: &'static Key) -> Option<String> {
        let value = match &key.class {
            Class::List(words) => (words.supported)(&self.bounds).join(","),
            Class::Number { range, field, .. } => self.wanted_number(key, range, field).to_string(),
            Class::And(field) | Class::Or(field) => {
                let value = yes_no((field.wanted)(&self.bounds));
                if key.is_settled_by(value) {
                    (field.agree)(&mut self.params, value == keys::YES);
                }
                value.to_owned()
            }
            Class::Length { field, declare, .. } => {
                declare(&mut self.params, &self.bounds);
                self.offered.insert(key.name(), None);
                return Some((field.wanted)(&self.bounds).to_string());
            }
            Class::Declared | Class::Obsolete { .. } | Class::Login => return None,
        };
        self.offered.insert(key.name(), Some(value.clone()));
        Some(value)
    }

    /// Our preferred value for a key whose values are numbers in `range`.
    fn wanted_number(&self, key: &Key, range: &RangeInclusive<u64>, field: &Field<u64>) -> u64 {
        let wanted = match key.in_discovery {
            Some(number) if self.discovery => number,
            _ => (field.wanted)(&self.bounds).clamp(*range.start(), *range.end()),
        };
        if key.name() != keys::FIRST_BURST_LENGTH {
            return wanted;
        }
        // The answer to FirstBurstLength never exceeds MaxBurstLength as agreed, or as it will be unless the peer negotiates it.
        let is_known = self.role == Role::Target || self.received.contains(keys::MAX_BURST_LENGTH);
        let limit =
            if is_known { self.params.bursts.max_burst_length } else { self.bounds.bursts.max_burst_length };
        wanted.min(limit.into())
    }
}

/// Whether offering `value` for the key `name` settles the result, whatever the peer answers.
fn is_settled(name: &str, value: &str) -> bool {
    Key::named(name).is_some_and(|key| key.is_settled_by(value))
}

/// `value` as a number, if it is in `range`.
fn number_in(range: &RangeInclusive<u64>, value: &str) -> Option<u64> {
    parse_number(value).ok().filter(|number| range.contains(number))
}

fn violation(rule: &'static str, what: String) -> ProtocolViolation {
    ProtocolViolation::new(rule, what)
}

fn yes_no(value: bool) -> &'static str {
    if value { keys::YES } else { keys::NO }
}

/// A peer's text in a form fit to be shown: escaped and shortened.
pub fn shown(text: &str) -> String {
    let short: String = text.chars().take(48).flat_map(char::escape_debug).collect();
    if text.chars().count() > 48 { short + "..." } else { short }
}
