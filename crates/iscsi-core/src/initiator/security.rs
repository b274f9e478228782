//! The security stage of a login, seen from the initiator: AuthMethod and CHAP (RFC 7143 6.3.2, 9.2.1, 12.1.3).
//!
//! ```text
//!   Start ──AuthMethod──► MethodOffered ──CHAP──► AlgorithmsOffered ──CHAP_A I C──► Answered ──[CHAP_N R]──► Done
//!                               └────────None──────────────────────────────────────────────────────────────► Done
//! ```
//! The target's keys in each step must be exactly those that the step awaits. If the target must prove itself, the login
//! continues only when it has.

use iscsi_wire::parse_number;

use super::login_failure::LoginFailure;
use super::login_support::{ChapConfig, LoginSupport};
use crate::chap::{self, Challenge, ChapAlgorithm, PeerChallenge};
use crate::error::ProtocolViolation;
use crate::limits::MAX_CHAP_NAME_BYTES;

/// Keys of one text, in order.
pub(super) type Keys<'a> = [(&'a str, &'a str)];
/// Keys to send.
pub(super) type Answers = Vec<(&'static str, String)>;

#[derive(Debug)]
enum State {
    Start,
    MethodOffered,
    AlgorithmsOffered,
    /// Our answer has been sent, with our challenge if the target must prove itself.
    Answered(Option<Challenge>),
    Done,
}

/// State of the authentication of one login.
#[derive(Debug)]
pub(super) struct Security {
    config: Option<ChapConfig>,
    state: State,
    algorithm: Option<ChapAlgorithm>,
}

impl Security {
    pub(super) fn new(config: Option<ChapConfig>) -> Self {
        Self { config, state: State::Start, algorithm: None }
    }

    /// The algorithm that was agreed on.
    pub(super) fn algorithm(&self) -> Option<ChapAlgorithm> {
        self.algorithm
    }

    /// Whether we have nothing more to send in this stage: the next request may ask to leave it.
    pub(super) fn is_ready(&self) -> bool {
        matches!(self.state, State::Answered(_) | State::Done)
    }

    /// The keys of the first request.
    //= rfc7143 12.1 KEY-27 SEC-01
    pub(super) fn begin(&mut self) -> Answers {
        let methods = match &self.config {
            None => {
                self.state = State::Done;
                "None"
            }
            Some(config) => {
                self.state = State::MethodOffered;
                // No fallback if the target must prove itself or CHAP is required.
                if config.target.is_some() || config.required { "CHAP" } else { "CHAP,None" }
            }
        };
        vec![("AuthMethod", methods.to_owned())]
    }

    /// Takes the security keys of one response, and returns those of the next request. `leaving`: the response moves on to the
    /// next stage.
    //= rfc7143 12.1.3 SEC-02
    pub(super) fn step(
        &mut self,
        keys: &Keys<'_>,
        leaving: bool,
        support: &mut dyn LoginSupport,
    ) -> Result<Answers, LoginFailure> {
        let expected: &[&str] = match self.state {
            State::Start | State::Done if self.config.is_none() => &["AuthMethod"],
            State::Start | State::Done => &[],
            State::MethodOffered => &["AuthMethod"],
            State::AlgorithmsOffered => &["CHAP_A", "CHAP_I", "CHAP_C"],
            State::Answered(Some(_)) => &["CHAP_N", "CHAP_R"],
            State::Answered(None) => &[],
        };
        if let Some((key, _)) = keys.iter().find(|(key, _)| !expected.contains(key)) {
            return Err(violation(format!("{key} is out of order")));
        }
        let get = |name: &str| {
            keys.iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| *value)
                .ok_or_else(|| violation(format!("{name} is missing")))
        };
        match std::mem::replace(&mut self.state, State::Done) {
            State::Start | State::Done => {
                if let Some((_, value)) = keys.first()
                    && *value != "None"
                {
                    return Err(method_refused(value));
                }
                Ok(Vec::new())
            }
            State::MethodOffered => self.method_chosen(get("AuthMethod")?),
            State::AlgorithmsOffered => {
                let challenge = PeerChallenge::parse(get("CHAP_I")?, get("CHAP_C")?)?;
                self.answer(get("CHAP_A")?, &challenge, support)
            }
            State::Answered(None) => Ok(Vec::new()),
            State::Answered(Some(challenge)) => {
                //= rfc7143 12.1.3 SEC-12
                if keys.is_empty() {
                    if leaving {
                        return Err(not_proven("the target ended the security stage without proving itself"));
                    }
                    self.state = State::Answered(Some(challenge));
                    return Ok(Vec::new());
                }
                self.verify(&challenge, get("CHAP_N")?, get("CHAP_R")?)?;
                Ok(Vec::new())
            }
        }
    }

    /// Whether the target may end the stage now.
    //= rfc7143 12.1.3 SEC-12
    pub(super) fn check_left(&self) -> Result<(), LoginFailure> {
        match self.state {
            State::Done | State::Answered(None) => Ok(()),
            State::Answered(Some(_)) => Err(not_proven("the target did not prove itself")),
            _ => Err(violation("the target ended the security stage before CHAP was complete")),
        }
    }

    fn method_chosen(&mut self, method: &str) -> Result<Answers, LoginFailure> {
        let config = self.config.as_ref().expect("offered because configured");
        match method {
            "CHAP" => {
                self.state = State::AlgorithmsOffered;
                //= rfc7143 12.1.3 SEC-03
                let list: Vec<String> = config.algorithms.iter().map(|a| (*a as u8).to_string()).collect();
                Ok(vec![("CHAP_A", list.join(","))])
            }
            "None" if config.target.is_none() && !config.required => {
                self.state = State::Done;
                Ok(Vec::new())
            }
            _ => Err(method_refused(method)),
        }
    }

    fn answer(
        &mut self,
        algorithm: &str,
        peer: &PeerChallenge,
        support: &mut dyn LoginSupport,
    ) -> Result<Answers, LoginFailure> {
        let config = self.config.as_ref().expect("offered because configured");
        let algorithm = parse_number(algorithm)
            .ok()
            .and_then(ChapAlgorithm::from_number)
            .filter(|chosen| config.algorithms.contains(chosen))
            .ok_or_else(|| violation("CHAP_A is none of the algorithms that were offered"))?;
        self.algorithm = Some(algorithm);
        //= rfc7143 9.2.1 SEC-07
        if support.was_issued(peer.bytes()) {
            return Err(not_proven(
                "the target sent a challenge of ours back, to have us answer it in its place",
            ));
        }
        let mut answers =
            vec![("CHAP_N", config.own.name.clone()), ("CHAP_R", peer.answer(algorithm, &config.own.secret))];
        let challenge = config.target.is_some().then(|| {
            //= rfc1994 4.1 SEC-09
            let challenge = Challenge::draw(algorithm, &mut |bytes| support.fill_random(bytes));
            support.challenge_issued(challenge.bytes());
            answers.extend(challenge.keys());
            challenge
        });
        self.state = State::Answered(challenge);
        Ok(answers)
    }

    fn verify(&mut self, challenge: &Challenge, name: &str, response: &str) -> Result<(), LoginFailure> {
        let config = self.config.as_ref().expect("offered because configured");
        let target = config.target.as_ref().expect("a challenge was sent because of it");
        //= rfc7143 12.1.3 SEC-05
        if name.len() > MAX_CHAP_NAME_BYTES {
            return Err(violation("CHAP_N is too long"));
        }
        let response = chap::binary("CHAP_R", response)?;
        //= rfc7143 9.2.1 SEC-08
        if challenge.is_answered_by(&response, &config.own.secret) {
            return Err(not_proven(
                "the target answered with our own secret: it knows nothing but what it was told by us",
            ));
        }
        //= rfc7143 12.1.3 SEC-04
        if name != target.name || !challenge.is_answered_by(&response, &target.secret) {
            return Err(not_proven("the target's CHAP name or response is wrong"));
        }
        Ok(())
    }
}

fn violation(what: impl Into<std::borrow::Cow<'static, str>>) -> LoginFailure {
    LoginFailure::Violation(ProtocolViolation::new("RFC 7143 12.1.3", what))
}

fn not_proven(what: &'static str) -> LoginFailure {
    LoginFailure::TargetNotProven { rule: "RFC 7143 9.2.1", what }
}

fn method_refused(value: &str) -> LoginFailure {
    LoginFailure::NoCommonMethod { answer: crate::negotiation::shown(value) }
}
