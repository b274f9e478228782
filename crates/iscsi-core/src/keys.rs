//! The text keys of RFC 7143 13 and 12, one row each: how the result is determined, where the key may appear, which field of
//! [`Bounds`] and of [`Params`] holds it, and its name in configuration.
//!
//! Code that needs all keys iterates over [`Key::all`]: the negotiation for its answers and offers, a configuration file, a URL,
//! the report of what a session has agreed on. A new key is a name in [`iscsi_wire::keys`], a field in `params` and a row here. A
//! row without the functions that its class needs does not compile.

use std::ops::RangeInclusive;

use iscsi_wire::keys as name;

use crate::params::{
    ALLEGIANCE_FREE, Asymmetric, Bounds, DigestPolicy, PROTOCOL_LEVEL, Params, TaskReporting,
};

/// Which of two numbers is the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    Min,
    Max,
}

/// Where the value of a key comes from and where its result goes.
pub(crate) struct Field<T: 'static> {
    /// Our preferred value.
    pub wanted: fn(&Bounds) -> T,
    /// The agreed value.
    pub agreed: fn(&Params) -> T,
    pub agree: fn(&mut Params, T),
}

/// A key whose result is one word from a list.
pub(crate) struct Words {
    /// What our side supports, best first.
    pub supported: fn(&Bounds) -> &'static [&'static str],
    /// The agreed word.
    pub agreed: fn(&Params) -> &'static str,
    pub agree: fn(&mut Params, &str),
}

/// How the result of a key is determined (RFC 7143 6.2).
pub(crate) enum Class {
    /// The first value of the offered list that the responder supports.
    List(Words),
    /// A number in a range.
    Number { range: RangeInclusive<u64>, pick: Pick, field: Field<u64> },
    /// `Yes` only if both say so.
    And(Field<bool>),
    /// `Yes` if either says so.
    Or(Field<bool>),
    /// Each end declares its own, as a number; the value agreed on is the peer's.
    Length { range: RangeInclusive<u64>, field: Field<u64>, declare: fn(&mut Params, &Bounds) },
    /// Declared, never answered.
    Declared,
    /// Markers of RFC 3720: understood, never used.
    Obsolete { answer: &'static str },
    /// Handled by the login itself.
    Login,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sender {
    Either,
    Initiator,
    Target,
}

/// Phases in which a key may appear, as a bit set: security negotiation, operational negotiation, full feature phase.
pub(crate) const S: u8 = 1;
/// See [`S`].
pub(crate) const O: u8 = 2;
/// See [`S`].
pub(crate) const F: u8 = 4;

/// A value of a key, as configuration sets it and as a report shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number: bytes, seconds or a count, depending on the key.
    Number(u64),
    /// `Yes` or `No`.
    Switch(bool),
    /// One of a few words.
    Word(&'static str),
}

/// The form of a setting's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// A number in a range.
    Number(RangeInclusive<u64>),
    /// A number of bytes in a range.
    Size(RangeInclusive<u64>),
    /// Yes or no.
    Switch,
    /// One of these words.
    Word(&'static [&'static str]),
}

/// How configuration sets our preferred value for a key, and where it is stored.
enum Wish {
    Number { range: RangeInclusive<u64>, put: fn(&mut Bounds, u64) },
    Size { range: RangeInclusive<u64>, put: fn(&mut Bounds, u64) },
    Switch { put: fn(&mut Bounds, bool) },
    Word { words: &'static [&'static str], put: fn(&mut Bounds, usize) },
}

/// One key: see the module.
pub struct Key {
    name: &'static str,
    section: &'static str,
    pub(crate) class: Class,
    phases: u8,
    pub(crate) sender: Sender,
    /// Has a meaning in normal sessions only.
    pub(crate) normal_only: bool,
    /// May be sent on the leading connection only.
    pub(crate) leading_only: bool,
    pub(crate) repeatable: bool,
    /// Not sent if our value is the default: some targets are too old to know it.
    pub(crate) newer: bool,
    /// Our value in a discovery session, whatever the bounds say.
    pub(crate) in_discovery: Option<u64>,
    setting: Option<(&'static str, Wish)>,
}

impl Key {
    /// All known keys, in the order in which a login offers them.
    pub fn all() -> &'static [Self] {
        KEYS
    }

    /// The key with this name on the wire.
    pub fn named(name: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.name == name)
    }

    /// Its name on the wire.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Where it is defined: "RFC 7143 13.13".
    pub fn section(&self) -> &'static str {
        self.section
    }

    /// Its name in configuration, if it can be configured.
    pub fn setting(&self) -> Option<&'static str> {
        self.setting.as_ref().map(|(name, _)| *name)
    }

    /// The form of a configured value.
    pub fn form(&self) -> Option<Form> {
        self.setting.as_ref().map(|(_, wish)| match wish {
            Wish::Number { range, .. } => Form::Number(range.clone()),
            Wish::Size { range, .. } => Form::Size(range.clone()),
            Wish::Switch { .. } => Form::Switch,
            Wish::Word { words, .. } => Form::Word(words),
        })
    }

    /// Sets our preferred value to `value`. Returns false, and changes nothing, if it is not of the key's [`Form`] or the key has
    /// none.
    #[must_use]
    pub fn put(&self, bounds: &mut Bounds, value: Value) -> bool {
        match (self.setting.as_ref().map(|(_, wish)| wish), value) {
            (Some(Wish::Number { range, put } | Wish::Size { range, put }), Value::Number(number))
                if range.contains(&number) =>
            {
                put(bounds, number);
            }
            (Some(Wish::Switch { put }), Value::Switch(value)) => put(bounds, value),
            (Some(Wish::Word { words, put }), Value::Word(word)) => {
                let Some(index) = words.iter().position(|known| *known == word) else { return false };
                put(bounds, index);
            }
            _ => return false,
        }
        true
    }

    /// Its value in `params`; `None` for a key that leaves no parameter.
    pub fn agreed(&self, params: &Params) -> Option<Value> {
        match &self.class {
            Class::List(words) => Some(Value::Word((words.agreed)(params))),
            Class::Number { field, .. } | Class::Length { field, .. } => {
                Some(Value::Number((field.agreed)(params)))
            }
            Class::And(field) | Class::Or(field) => Some(Value::Switch((field.agreed)(params))),
            Class::Declared | Class::Obsolete { .. } | Class::Login => None,
        }
    }

    /// True for a parameter of each connection, false for one of the session.
    pub fn is_of_connection(&self) -> bool {
        !self.leading_only
    }

    pub(crate) fn is_allowed_in(&self, phase: u8) -> bool {
        self.phases & phase != 0
    }

    /// Whether offering `value` settles the result, whatever the peer answers.
    pub(crate) fn is_settled_by(&self, value: &str) -> bool {
        match self.class {
            Class::And(_) => value == name::NO,
            Class::Or(_) => value == name::YES,
            _ => false,
        }
    }
}

/// Each name has one row.
impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Key {}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// A row with the usual properties; the methods below change them.
const fn key(name: &'static str, section: &'static str, class: Class, phases: u8) -> Key {
    Key {
        name,
        section,
        class,
        phases,
        sender: Sender::Either,
        normal_only: false,
        leading_only: false,
        repeatable: false,
        newer: false,
        in_discovery: None,
        setting: None,
    }
}

/// Methods that change one property of a row.
macro_rules! with {
    ($($change:ident($($argument:ident: $type:ty),*) => $field:ident = $value:expr;)*) => {
        impl Key {
            $(const fn $change(mut self, $($argument: $type),*) -> Self {
                self.$field = $value;
                self
            })*
        }
    };
}

with! {
    normal() => normal_only = true;
    leading() => leading_only = true;
    by_initiator() => sender = Sender::Initiator;
    by_target() => sender = Sender::Target;
    repeatable() => repeatable = true;
    newer() => newer = true;
    in_discovery(number: u64) => in_discovery = Some(number);
}

/// A number: the fields in [`Bounds`] and [`Params`] have the same name.
macro_rules! number {
    ($range:expr, $pick:ident, $($field:ident).+) => {
        Class::Number {
            range: $range,
            pick: Pick::$pick,
            field: Field {
                wanted: |bounds| bounds.$($field).+ as u64,
                agreed: |params| params.$($field).+ as u64,
                agree: |params, number| params.$($field).+ = number.try_into().unwrap_or(params.$($field).+),
            },
        }
    };
}

/// `Yes` or `No`: the fields in [`Bounds`] and [`Params`] have the same name.
macro_rules! switch {
    ($($field:ident).+) => {
        Field {
            wanted: |bounds| bounds.$($field).+,
            agreed: |params| params.$($field).+,
            agree: |params, value| params.$($field).+ = value,
        }
    };
}

/// As [`switch`], but `No` only by an end that wants ErrorRecoveryLevel 0, which is then the level of the session: recovery finds
/// a lost PDU by the place that it must have between its neighbours.
macro_rules! in_order {
    ($($field:ident).+) => {
        Field {
            wanted: |bounds| bounds.$($field).+ || bounds.error_recovery_level > 0,
            agreed: |params| params.$($field).+,
            agree: |params, value| params.$($field).+ = value,
        }
    };
}

macro_rules! digest {
    ($field:ident, $place:ident) => {
        Class::List(Words {
            supported: |bounds| bounds.$field.values(),
            agreed: |params| if params.digests.$place { name::CRC32C } else { name::NONE },
            agree: |params, value| params.digests.$place = value == name::CRC32C,
        })
    };
}

/// Gives a row its name in configuration, and the values that may be configured.
macro_rules! setting {
    ($key:expr, $name:literal, Word $words:expr, $put:expr) => {
        Key { setting: Some(($name, Wish::Word { words: $words, put: $put })), ..$key }
    };
    ($key:expr, $name:literal, Switch, $($field:ident).+) => {
        Key { setting: Some(($name, Wish::Switch { put: |bounds, value| bounds.$($field).+ = value })), ..$key }
    };
    ($key:expr, $name:literal, $form:ident $range:expr, $($field:ident).+) => {
        Key {
            setting: Some((
                $name,
                Wish::$form {
                    range: $range,
                    put: |bounds, number| bounds.$($field).+ = number.try_into().unwrap_or(bounds.$($field).+),
                },
            )),
            ..$key
        }
    };
}

/// The policies and their names in configuration, in the same order.
const DIGESTS: [DigestPolicy; 3] = [DigestPolicy::Off, DigestPolicy::Offered, DigestPolicy::Required];
const DIGEST_WORDS: &[&str] = &[DIGESTS[0].setting(), DIGESTS[1].setting(), DIGESTS[2].setting()];
/// As [`DIGESTS`].
const REPORTING: [TaskReporting; 3] =
    [TaskReporting::Rfc3720, TaskReporting::ResponseFence, TaskReporting::FastAbort];
const REPORTING_WORDS: &[&str] = &[REPORTING[0].setting(), REPORTING[1].setting(), REPORTING[2].setting()];

const MAX24: u64 = (1 << 24) - 1;
/// Lengths of RFC 7143 13.12 to 13.14, bytes.
const LENGTH: RangeInclusive<u64> = 512..=MAX24;
const COUNT: RangeInclusive<u64> = 1..=65_535;
const SECONDS: RangeInclusive<u64> = 0..=3600;
const LEVELS: RangeInclusive<u64> = 0..=2;
/// Most connections that a session may be configured to have.
const MAX_CONFIGURED_CONNECTIONS: u64 = 256;

/// Every key of RFC 7143, so that none is ever answered NotUnderstood.
//= rfc7143 13 TXT-08 TXT-17 KEY-01 KEY-02 KEY-04 KEY-05 KEY-06 KEY-07 KEY-08 KEY-09 KEY-10 KEY-11 KEY-12 KEY-13
//= rfc7143 13 KEY-14 KEY-15 KEY-16 KEY-17 KEY-18 KEY-19 KEY-20 KEY-21 KEY-22 KEY-23 KEY-24 KEY-25 KEY-27
static KEYS: &[Key] = &[
    setting!(
        key(name::HEADER_DIGEST, "RFC 7143 13.1", digest!(header_digest, header), O),
        "header_digest", Word DIGEST_WORDS,
        |bounds, word| bounds.header_digest = DIGESTS[word]
    ),
    setting!(
        key(name::DATA_DIGEST, "RFC 7143 13.1", digest!(data_digest, data), O),
        "data_digest", Word DIGEST_WORDS,
        |bounds, word| bounds.data_digest = DIGESTS[word]
    ),
    setting!(
        //= rfc7143 13.12 KEY-11 KEY-12 KEY-13
        key(
            name::MAX_RECV_DATA_SEGMENT_LENGTH,
            "RFC 7143 13.12",
            Class::Length {
                range: LENGTH,
                field: Field {
                    wanted: |bounds| bounds.max_recv_data_segment_length.into(),
                    agreed: |params| params.max_send_data_segment_length.into(),
                    agree: |params, bytes| {
                        params.max_send_data_segment_length =
                            bytes.try_into().unwrap_or(params.max_send_data_segment_length);
                    },
                },
                declare: |params, bounds| {
                    params.max_recv_data_segment_length = bounds.max_recv_data_segment_length;
                },
            },
            S | O | F
        ),
        "max_recv_data_segment_length", Size LENGTH, max_recv_data_segment_length
    ),
    setting!(
        key(name::DEFAULT_TIME2WAIT, "RFC 7143 13.15", number!(SECONDS, Max, default_time2wait_s), O).leading(),
        "default_time2wait_s", Number SECONDS, default_time2wait_s
    ),
    setting!(
        key(name::DEFAULT_TIME2RETAIN, "RFC 7143 13.16", number!(SECONDS, Min, default_time2retain_s), O)
            .leading(),
        "default_time2retain_s", Number SECONDS, default_time2retain_s
    ),
    setting!(
        //= rfc7143 7.4.1 DSC-07
        //= rfc7143 7.1.5 ERL-01
        key(name::ERROR_RECOVERY_LEVEL, "RFC 7143 13.20", number!(LEVELS, Min, error_recovery_level), O)
            .leading()
            .in_discovery(0),
        "error_recovery_level", Number LEVELS, error_recovery_level
    ),
    setting!(
        key(name::INITIAL_R2T, "RFC 7143 13.10", Class::Or(switch!(bursts.initial_r2t)), O)
            .normal()
            .leading(),
        "initial_r2t",
        Switch,
        bursts.initial_r2t
    ),
    setting!(
        key(name::IMMEDIATE_DATA, "RFC 7143 13.11", Class::And(switch!(bursts.immediate_data)), O)
            .normal()
            .leading(),
        "immediate_data",
        Switch,
        bursts.immediate_data
    ),
    setting!(
        key(name::MAX_BURST_LENGTH, "RFC 7143 13.13", number!(LENGTH, Min, bursts.max_burst_length), O)
            .normal()
            .leading(),
        "max_burst_length", Size LENGTH, bursts.max_burst_length
    ),
    setting!(
        key(name::FIRST_BURST_LENGTH, "RFC 7143 13.14", number!(LENGTH, Min, bursts.first_burst_length), O)
            .normal()
            .leading(),
        "first_burst_length", Size LENGTH, bursts.first_burst_length
    ),
    setting!(
        key(name::MAX_CONNECTIONS, "RFC 7143 13.2", number!(COUNT, Min, max_connections), O).normal().leading(),
        "max_connections", Number 1..=MAX_CONFIGURED_CONNECTIONS, max_connections
    ),
    setting!(
        key(name::MAX_OUTSTANDING_R2T, "RFC 7143 13.17", number!(COUNT, Min, bursts.max_outstanding_r2t), O)
            .normal()
            .leading(),
        "max_outstanding_r2t", Number COUNT, bursts.max_outstanding_r2t
    ),
    setting!(
        key(name::DATA_PDU_IN_ORDER, "RFC 7143 13.18", Class::Or(in_order!(data_in_order.pdus)), O)
            .normal()
            .leading(),
        "data_pdu_in_order",
        Switch,
        data_in_order.pdus
    ),
    setting!(
        key(name::DATA_SEQUENCE_IN_ORDER, "RFC 7143 13.19", Class::Or(in_order!(data_in_order.sequences)), O)
            .normal()
            .leading(),
        "data_sequence_in_order",
        Switch,
        data_in_order.sequences
    ),
    setting!(
        key(
            name::TASK_REPORTING,
            "RFC 7143 13.23",
            Class::List(Words {
                supported: |bounds| bounds.task_reporting.values(),
                agreed: |params| params.task_reporting.as_str(),
                agree: |params, value| params.task_reporting = TaskReporting::from_value(value),
            }),
            O
        )
        .normal()
        .leading()
        .newer(),
        "task_reporting", Word REPORTING_WORDS,
        |bounds, word| bounds.task_reporting = REPORTING[word]
    ),
    setting!(
        //= rfc7144 7 P2-01
        key(
            name::ISCSI_PROTOCOL_LEVEL,
            "RFC 7144 7",
            Class::Number {
                range: 0..=31,
                pick: Pick::Min,
                field: Field {
                    wanted: |bounds| bounds.protocol_level.min(PROTOCOL_LEVEL).into(),
                    agreed: |params| params.protocol_level.into(),
                    agree: |params, level| {
                        params.protocol_level = level.try_into().unwrap_or(params.protocol_level);
                    },
                },
            },
            O
        )
        .normal()
        .leading()
        .newer(),
        "protocol_level", Number 0..=PROTOCOL_LEVEL as u64, protocol_level
    ),
    Key {
        setting: Some((
            "asymmetric",
            Wish::Switch {
                put: |bounds, value| {
                    bounds.asymmetric = if value { Asymmetric::Pairs } else { Asymmetric::No };
                },
            },
        )),
        ..key(
            ALLEGIANCE_FREE,
            "docs/initiator.md",
            Class::List(Words {
                supported: |bounds| bounds.asymmetric.values(),
                agreed: |params| params.asymmetric.as_str(),
                agree: |params, value| params.asymmetric = Asymmetric::from_value(value),
            }),
            O,
        )
        .normal()
        .leading()
        .newer()
    },
    key(name::SEND_TARGETS, "RFC 7143 13.3", Class::Login, F).by_initiator(),
    key(name::TARGET_NAME, "RFC 7143 13.4", Class::Login, S | O | F),
    key(name::INITIATOR_NAME, "RFC 7143 13.5", Class::Login, S | O).by_initiator(),
    key(name::TARGET_ALIAS, "RFC 7143 13.6", Class::Declared, S | O | F).by_target(),
    key(name::INITIATOR_ALIAS, "RFC 7143 13.7", Class::Declared, S | O | F).by_initiator(),
    key(name::TARGET_ADDRESS, "RFC 7143 13.8", Class::Declared, S | O | F).by_target().repeatable(),
    key(name::TARGET_PORTAL_GROUP_TAG, "RFC 7143 13.9", Class::Declared, S | O).by_target(),
    key(name::SESSION_TYPE, "RFC 7143 13.21", Class::Login, S | O).by_initiator().leading(),
    key(name::NODE_ARCHITECTURE, "RFC 7143 13.26", Class::Declared, S | O | F),
    key(name::IF_MARKER, "RFC 7143 13.25", Class::Obsolete { answer: name::NO }, O),
    key(name::OF_MARKER, "RFC 7143 13.25", Class::Obsolete { answer: name::NO }, O),
    key(name::IF_MARK_INT, "RFC 7143 13.25", Class::Obsolete { answer: name::REJECT }, O),
    key(name::OF_MARK_INT, "RFC 7143 13.25", Class::Obsolete { answer: name::REJECT }, O),
    key(name::AUTH_METHOD, "RFC 7143 12.1", Class::Login, S),
    key(name::CHAP_A, "RFC 7143 12.1.3", Class::Login, S),
    key(name::CHAP_I, "RFC 7143 12.1.3", Class::Login, S),
    key(name::CHAP_C, "RFC 7143 12.1.3", Class::Login, S),
    key(name::CHAP_N, "RFC 7143 12.1.3", Class::Login, S),
    key(name::CHAP_R, "RFC 7143 12.1.3", Class::Login, S),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::DigestScope;
    use crate::params::{Bursts, DataOrder};

    /// Values of a form, and some that are not of it.
    fn values(form: &Form) -> (Vec<Value>, Vec<Value>) {
        match form {
            Form::Number(range) | Form::Size(range) => (
                vec![Value::Number(*range.start()), Value::Number(*range.end())],
                vec![
                    Value::Number(range.start().wrapping_sub(1)),
                    Value::Number(range.end() + 1),
                    Value::Switch(true),
                ],
            ),
            Form::Switch => {
                (vec![Value::Switch(false), Value::Switch(true)], vec![Value::Number(1), Value::Word("yes")])
            }
            Form::Word(words) => (
                words.iter().map(|word| Value::Word(word)).collect(),
                vec![Value::Word("no such word"), Value::Switch(true)],
            ),
        }
    }

    #[test]
    fn a_setting_takes_the_values_of_its_form_and_no_others() {
        for key in Key::all() {
            let mut bounds = Bounds::default();
            let Some(form) = key.form() else {
                assert!(!key.put(&mut bounds, Value::Number(1)), "{key:?} cannot be configured");
                continue;
            };
            let (good, bad) = values(&form);
            let mut results = Vec::new();
            for value in good {
                assert!(key.put(&mut bounds, value), "{key:?} {value:?}");
                assert!(!results.contains(&bounds), "{key:?}: {value:?} changes something");
                results.push(bounds.clone());
            }
            for value in bad {
                assert!(!key.put(&mut bounds, value), "{key:?} {value:?}");
                assert_eq!(Some(&bounds), results.last(), "{key:?}: what is refused changes nothing");
            }
        }
    }

    /// Each parameter has a value that no other one has.
    fn distinct() -> Params {
        Params {
            digests: DigestScope { header: true, data: false },
            max_send_data_segment_length: 4096,
            max_recv_data_segment_length: 8192,
            default_time2wait_s: 3,
            default_time2retain_s: 4,
            error_recovery_level: 1,
            bursts: Bursts {
                initial_r2t: true,
                immediate_data: false,
                max_burst_length: 16_384,
                first_burst_length: 12_288,
                max_outstanding_r2t: 6,
            },
            max_connections: 5,
            data_in_order: DataOrder { pdus: true, sequences: false },
            task_reporting: TaskReporting::ResponseFence,
            protocol_level: 2,
            asymmetric: Asymmetric::Pairs,
        }
    }

    #[test]
    fn a_key_tells_where_it_is_defined_how_it_is_configured_and_what_was_agreed() {
        use Value::{Number, Switch, Word};
        let params = distinct();
        for (name, section, setting, agreed) in [
            ("HeaderDigest", "13.1", "header_digest", Word("CRC32C")),
            ("DataDigest", "13.1", "data_digest", Word("None")),
            ("MaxRecvDataSegmentLength", "13.12", "max_recv_data_segment_length", Number(4096)),
            ("DefaultTime2Wait", "13.15", "default_time2wait_s", Number(3)),
            ("DefaultTime2Retain", "13.16", "default_time2retain_s", Number(4)),
            ("ErrorRecoveryLevel", "13.20", "error_recovery_level", Number(1)),
            ("InitialR2T", "13.10", "initial_r2t", Switch(true)),
            ("ImmediateData", "13.11", "immediate_data", Switch(false)),
            ("MaxBurstLength", "13.13", "max_burst_length", Number(16_384)),
            ("FirstBurstLength", "13.14", "first_burst_length", Number(12_288)),
            ("MaxConnections", "13.2", "max_connections", Number(5)),
            ("MaxOutstandingR2T", "13.17", "max_outstanding_r2t", Number(6)),
            ("DataPDUInOrder", "13.18", "data_pdu_in_order", Switch(true)),
            ("DataSequenceInOrder", "13.19", "data_sequence_in_order", Switch(false)),
            ("TaskReporting", "13.23", "task_reporting", Word("ResponseFence")),
        ] {
            let key = Key::named(name).unwrap();
            assert_eq!((key.name(), format!("{key:?}")), (name, name.to_owned()));
            assert_eq!(key.section(), format!("RFC 7143 {section}"), "{name}");
            assert_eq!((key.setting(), key.agreed(&params)), (Some(setting), Some(agreed)), "{name}");
        }
        let level = Key::named("iSCSIProtocolLevel").unwrap();
        assert_eq!((level.section(), level.agreed(&params)), ("RFC 7144 7", Some(Number(2))));
        for name in ["InitiatorName", "TargetAlias", "SendTargets", "AuthMethod", "CHAP_R", "IFMarker"] {
            let key = Key::named(name).unwrap();
            assert_eq!((key.setting(), key.agreed(&params)), (None, None), "{name}");
        }
        assert!(Key::named("headerdigest").is_none() && Key::named("").is_none());
    }

    // covers: KEY-01
    #[test]
    fn digests_and_pdu_lengths_are_of_a_connection_and_all_other_parameters_of_the_session() {
        let of_connection = ["HeaderDigest", "DataDigest", "MaxRecvDataSegmentLength"];
        for key in Key::all().iter().filter(|key| key.agreed(&distinct()).is_some()) {
            assert_eq!(key.is_of_connection(), of_connection.contains(&key.name()), "{key:?}");
        }
    }

    #[test]
    fn a_key_is_equal_to_itself_and_to_no_other() {
        for (n, key) in Key::all().iter().enumerate() {
            for (m, other) in Key::all().iter().enumerate() {
                assert_eq!(key == other, n == m, "{key:?} {other:?}");
            }
        }
    }

    /// Recovery finds a lost PDU by its place between its neighbours.
    // covers: KEY-17 KEY-18
    #[test]
    fn data_out_of_order_is_wanted_at_level_0_only() {
        for name in ["DataPDUInOrder", "DataSequenceInOrder"] {
            let Class::Or(field) = &Key::named(name).unwrap().class else { panic!("{name}") };
            for (in_order, level, wanted) in
                [(false, 0, false), (true, 0, true), (false, 1, true), (false, 2, true), (true, 2, true)]
            {
                let bounds = Bounds {
                    data_in_order: DataOrder { pdus: in_order, sequences: in_order },
                    error_recovery_level: level,
                    ..Bounds::default()
                };
                assert_eq!((field.wanted)(&bounds), wanted, "{name} {in_order} {level}");
            }
        }
    }
}
