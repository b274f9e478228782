//! Logins: one structured event each. The last ones are kept, and all of them are counted by reason.
//!
//! Refused logins have their own ring, so that a flood of the others does not push them out. A redirection is not a refusal: it
//! is normal operation.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use iscsi_core::target::login::{LoginNames, Refusal};
use iscsi_core::wire::{LoginStage, LoginStatus};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Refused logins kept.
pub const REFUSED_KEPT: usize = 1000;
/// Accepted and redirected logins kept.
pub const ACCEPTED_KEPT: usize = 1000;
/// Maximum number of pairs of status and rule that are counted separately; later ones are counted under the rule `other`.
const MAX_REASONS: usize = 256;

/// The result of one login.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginEvent {
    /// When, RFC 3339 in JSON.
    #[serde(with = "super::view::rfc3339")]
    pub time: SystemTime,
    /// Where the connection came from.
    pub peer: SocketAddr,
    /// The portal that it reached.
    pub portal: SocketAddr,
    /// InitiatorName, if the login got that far.
    pub initiator: Option<String>,
    /// TargetName, if the login got that far and named one.
    pub target: Option<String>,
    /// The account: the CHAP name that was authenticated, or that a refused login tried to use.
    #[serde(default)]
    pub account: Option<String>,
    /// How it ended.
    #[serde(flatten)]
    pub end: LoginEnd,
}

/// How a login ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginEnd {
    /// Whether it was accepted.
    pub accepted: bool,
    /// Stage in which it ended.
    pub stage: Cow<'static, str>,
    /// Login status: class in the upper byte, detail in the lower (RFC 7143 11.13.5).
    pub code: u16,
    /// The status in words.
    pub status: String,
    /// The rule that led to the refusal; empty when accepted.
    pub rule: Cow<'static, str>,
    /// What happened.
    pub what: String,
    /// What to do about it; empty when accepted.
    pub remedy: String,
}

fn stage_words(stage: LoginStage) -> Cow<'static, str> {
    Cow::Borrowed(match stage {
        LoginStage::Security => "security negotiation",
        LoginStage::Operational => "operational negotiation",
        LoginStage::FullFeature => "full feature phase",
    })
}

impl LoginEvent {
    /// A login that was refused in `stage`; `names` as far as known.
    pub fn refused(
        time: SystemTime,
        peer: SocketAddr,
        portal: SocketAddr,
        names: Option<&LoginNames>,
        stage: LoginStage,
        refusal: &Refusal,
    ) -> Self {
        Self {
            account: refusal.chap_name.clone(),
            end: LoginEnd {
                accepted: false,
                stage: stage_words(stage),
                code: refusal.status.code(),
                status: refusal.status.to_string(),
                rule: Cow::Borrowed(refusal.rule),
                what: refusal.what.clone(),
                remedy: refusal.remedy.clone(),
            },
            ..Self::accepted(time, peer, portal, names)
        }
    }

    /// A login that was accepted.
    pub fn accepted(
        time: SystemTime,
        peer: SocketAddr,
        portal: SocketAddr,
        names: Option<&LoginNames>,
    ) -> Self {
        Self {
            time,
            peer,
            portal,
            initiator: names.map(|names| names.initiator.to_string()),
            target: names.and_then(|names| names.target.as_ref()).map(ToString::to_string),
            account: None,
            end: LoginEnd {
                accepted: true,
                stage: stage_words(LoginStage::FullFeature),
                code: LoginStatus::Success.code(),
                status: LoginStatus::Success.to_string(),
                rule: Cow::Borrowed(""),
                what: match names {
                    Some(names) if names.discovery => "discovery session".to_owned(),
                    _ => "normal session".to_owned(),
                },
                remedy: String::new(),
            },
        }
    }

    /// The same for a login that authenticated as `account`.
    pub fn of_account(self, account: Option<&str>) -> Self {
        Self { account: account.map(str::to_owned), ..self }
    }

    /// Whether the initiator was redirected: neither accepted nor refused.
    pub fn is_redirection(&self) -> bool {
        LoginStatus::from(self.end.code).class() == 1
    }

    /// Writes it to the log.
    pub(super) fn trace(&self) {
        let initiator = self.initiator.as_deref().unwrap_or("-");
        let target = self.target.as_deref().unwrap_or("-");
        let account = self.account.as_deref().unwrap_or("-");
        let end = &self.end;
        if end.accepted {
            tracing::info!(target: "intact::login", peer = %self.peer, portal = %self.portal, initiator, target, account, "accepted: {}", end.what);
        } else if self.is_redirection() {
            tracing::info!(target: "intact::login", peer = %self.peer, portal = %self.portal, initiator, target, "redirected: {}", end.what);
        } else {
            tracing::warn!(
                target: "intact::login",
                peer = %self.peer,
                portal = %self.portal,
                initiator,
                target,
                account,
                stage = &*end.stage,
                status = format_args!("{:04x} {}", end.code, end.status),
                rule = &*end.rule,
                remedy = end.remedy,
                "login refused: {}",
                end.what
            );
        }
    }
}

/// Why logins were refused, for counting.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LoginReason {
    /// Login status.
    pub code: u16,
    /// The rule that led to the refusal.
    pub rule: Cow<'static, str>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Number of the next event: gives the order of events across the two rings.
    next: u64,
    refused: VecDeque<(u64, LoginEvent)>,
    /// Accepted and redirected logins.
    accepted: VecDeque<(u64, LoginEvent)>,
    accepted_count: u64,
    redirected_count: u64,
    reasons: BTreeMap<LoginReason, u64>,
}

/// The logins of a server. A clone is another handle of the same log.
#[derive(Clone, Debug, Default)]
pub struct LoginLog(Arc<Mutex<Inner>>);

impl LoginLog {
    /// Keeps and counts one login.
    pub fn record(&self, event: LoginEvent) {
        let mut inner = self.0.lock();
        let number = inner.next;
        inner.next += 1;
        if event.end.accepted {
            inner.accepted_count += 1;
            keep(&mut inner.accepted, ACCEPTED_KEPT, (number, event));
        } else if event.is_redirection() {
            inner.redirected_count += 1;
            keep(&mut inner.accepted, ACCEPTED_KEPT, (number, event));
        } else {
            let mut reason = LoginReason { code: event.end.code, rule: event.end.rule.clone() };
            if inner.reasons.len() >= MAX_REASONS && !inner.reasons.contains_key(&reason) {
                reason = LoginReason { code: 0, rule: Cow::Borrowed("other") };
            }
            *inner.reasons.entry(reason).or_default() += 1;
            keep(&mut inner.refused, REFUSED_KEPT, (number, event));
        }
    }

    /// The logins kept, oldest first.
    pub fn recent(&self) -> Vec<LoginEvent> {
        let mut all: Vec<(u64, LoginEvent)> = {
            let inner = self.0.lock();
            inner.refused.iter().chain(&inner.accepted).cloned().collect()
        };
        all.sort_by_key(|(number, _)| *number);
        all.into_iter().map(|(_, event)| event).collect()
    }

    /// Logins accepted so far.
    pub fn accepted_count(&self) -> u64 {
        self.0.lock().accepted_count
    }

    /// Logins redirected so far.
    pub fn redirected_count(&self) -> u64 {
        self.0.lock().redirected_count
    }

    /// Logins refused so far, by reason.
    pub fn refused_counts(&self) -> Vec<(LoginReason, u64)> {
        self.0.lock().reasons.iter().map(|(reason, count)| (reason.clone(), *count)).collect()
    }
}

fn keep<T>(ring: &mut VecDeque<T>, capacity: usize, item: T) {
    if ring.len() == capacity {
        ring.pop_front();
    }
    ring.push_back(item);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(n: usize) -> LoginEvent {
        let address = "192.0.2.1:3260".parse().unwrap();
        let refusal = Refusal::new(
            if n.is_multiple_of(2) { LoginStatus::NotFound } else { LoginStatus::AuthenticationFailure },
            "RFC 7143 6.3",
            format!("event {n}"),
            "do better",
        );
        LoginEvent::refused(SystemTime::UNIX_EPOCH, address, address, None, LoginStage::Operational, &refusal)
    }

    #[test]
    fn a_refused_login_says_where_it_ended_and_why() {
        let peer = "192.0.2.1:3260".parse().unwrap();
        let portal = "192.0.2.2:3260".parse().unwrap();
        let refusal = Refusal {
            chap_name: Some("alice".into()),
            ..Refusal::new(LoginStatus::NotFound, "a rule", "what", "remedy")
        };
        let stage = LoginStage::Security;
        let event = LoginEvent::refused(SystemTime::UNIX_EPOCH, peer, portal, None, stage, &refusal);
        let expected = LoginEvent {
            time: SystemTime::UNIX_EPOCH,
            peer,
            portal,
            initiator: None,
            target: None,
            account: Some("alice".into()),
            end: LoginEnd {
                accepted: false,
                stage: "security negotiation".into(),
                code: 0x0203,
                status: LoginStatus::NotFound.to_string(),
                rule: "a rule".into(),
                what: "what".into(),
                remedy: "remedy".into(),
            },
        };
        assert_eq!(event, expected);
    }

    #[test]
    fn the_last_thousand_are_kept_and_all_are_counted() {
        let log = LoginLog::default();
        for n in 0..REFUSED_KEPT + 5 {
            log.record(refused(n));
        }
        let kept = log.recent();
        assert_eq!(kept.len(), REFUSED_KEPT);
        assert_eq!(kept[0].end.what, "event 5");
        assert_eq!(kept[REFUSED_KEPT - 1].end.what, format!("event {}", REFUSED_KEPT + 4));
        let counts: Vec<_> =
            log.refused_counts().into_iter().map(|(reason, count)| (reason.code, count)).collect();
        assert_eq!(counts, [(0x0201, 502), (0x0203, 503)]);
    }

    #[test]
    fn refused_logins_survive_a_flood_of_accepted_ones_in_order() {
        let log = LoginLog::default();
        let address = "192.0.2.1:3260".parse().unwrap();
        log.record(LoginEvent::accepted(SystemTime::UNIX_EPOCH, address, address, None));
        log.record(refused(1));
        for _ in 0..ACCEPTED_KEPT {
            log.record(LoginEvent::accepted(SystemTime::UNIX_EPOCH, address, address, None));
        }
        let kept = log.recent();
        assert_eq!(kept.len(), ACCEPTED_KEPT + 1);
        assert!(!kept[0].end.accepted, "the first accepted one was pushed out, the refused one was not");
        assert_eq!(log.accepted_count(), 1001);
    }

    #[test]
    fn a_redirection_is_no_refusal() {
        let log = LoginLog::default();
        let address = "192.0.2.1:3260".parse().unwrap();
        let refusal =
            Refusal::new(LoginStatus::TargetMovedTemporarily, "targets.redirect", "elsewhere", "go");
        log.record(LoginEvent::refused(
            SystemTime::UNIX_EPOCH,
            address,
            address,
            None,
            LoginStage::Operational,
            &refusal,
        ));
        log.record(refused(1));
        assert_eq!((log.redirected_count(), log.accepted_count()), (1, 0));
        let refused: Vec<_> = log.refused_counts().into_iter().map(|(reason, _)| reason.code).collect();
        assert_eq!(refused, [0x0201], "only the other one");
        assert_eq!(log.recent().iter().filter(|event| event.is_redirection()).count(), 1);
    }

    #[test]
    fn reasons_are_bounded() {
        let log = LoginLog::default();
        for n in 0..2 * MAX_REASONS {
            let mut event = refused(0);
            event.end.rule = Cow::Owned(format!("rule {n}"));
            log.record(event);
        }
        let counts = log.refused_counts();
        assert_eq!(counts.len(), MAX_REASONS + 1);
        assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), 2 * MAX_REASONS as u64);
    }

    #[test]
    fn an_event_is_the_same_after_json() {
        let mut event = refused(3);
        event.time = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1_700_000_000_123);
        let text = serde_json::to_string(&event).unwrap();
        assert!(text.contains("2023-11-14T22:13:20.123Z"), "{text}");
        assert_eq!(serde_json::from_str::<LoginEvent>(&text).unwrap(), event);
    }
}
