//! The security stage of a login, seen from the target: AuthMethod and CHAP (RFC 7143 6.3.2, 12.1.3).
//!
//! ```text
//!   Start ──AuthMethod=None──────────────────────────────► Done
//!     └─────AuthMethod=CHAP──► AwaitAlgorithms ──CHAP_A──► Challenged ──CHAP_N CHAP_R [CHAP_I CHAP_C]──► Done
//!     └────────────────────────────┴──────────────────────────┴──anything else──► Failed
//! ```
//! Every step expects certain keys; one more, one less or one early ends the login. If the login continues all the same, it
//! cannot succeed.

use iscsi_wire::LoginStatus;

use super::policy::{AuthPolicy, LoginNames, LoginPolicy, NoSecret, Refusal};
use crate::chap::{self, Challenge, PeerChallenge};

/// Keys that a step received, in order.
pub(super) type Keys<'a> = [(&'a str, &'a str)];
/// Keys to send.
pub(super) type Answers = Vec<(&'static str, String)>;

#[derive(Debug)]
enum State {
    Start,
    AwaitAlgorithms,
    Challenged(Challenge),
    Done,
    Failed,
}

/// State of the authentication of one login.
#[derive(Debug)]
pub(super) struct Security {
    state: State,
    /// CHAP_N that proved itself.
    authenticated_as: Option<String>,
}

impl Security {
    pub(super) fn new() -> Self {
        Self { state: State::Start, authenticated_as: None }
    }

    /// The CHAP name that proved itself, if any.
    pub(super) fn authenticated_as(&self) -> Option<&str> {
        self.authenticated_as.as_deref()
    }

    /// Whether the stage may be left under `auth`.
    //= rfc7143 6.3.1 LGN-16 LGN-17
    pub(super) fn may_leave(&self, auth: &AuthPolicy) -> bool {
        match self.state {
            State::Done => true,
            State::Start => matches!(auth, AuthPolicy::None),
            State::AwaitAlgorithms | State::Challenged(_) | State::Failed => false,
        }
    }

    /// Takes the security keys of one request.
    //= rfc7143 12.1.3 SEC-01 SEC-02
    pub(super) fn step(
        &mut self,
        keys: &Keys<'_>,
        auth: &AuthPolicy,
        names: &LoginNames,
        policy: &mut dyn LoginPolicy,
    ) -> Result<Answers, Refusal> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let expected: &[&str] = match self.state {
            State::Start => &["AuthMethod"],
            State::AwaitAlgorithms => &["CHAP_A"],
            State::Challenged(_) => &["CHAP_N", "CHAP_R", "CHAP_I", "CHAP_C"],
            State::Done | State::Failed => &[],
        };
        if let Some((key, _)) = keys.iter().find(|(key, _)| !expected.contains(key)) {
            self.state = State::Failed;
            return Err(Refusal::initiator_error(
                "RFC 7143 12.1.3",
                format!("{key} is out of order"),
                "send the CHAP keys in the order of the standard",
            ));
        }
        let get = |name: &str| keys.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        let missing = |name: &str| {
            Refusal::new(
                LoginStatus::MissingParameter,
                "RFC 7143 12.1.3",
                format!("{name} is missing"),
                "send the CHAP keys in the order of the standard",
            )
        };
        // Stays `Failed` unless the step succeeds and sets another state.
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Start => self.choose_method(get("AuthMethod").unwrap_or_default(), auth),
            State::AwaitAlgorithms => self.challenge(get("CHAP_A").unwrap_or_default(), auth, policy),
            State::Challenged(challenge) => {
                let name = get("CHAP_N").ok_or_else(|| missing("CHAP_N"))?;
                let response = get("CHAP_R").ok_or_else(|| missing("CHAP_R"))?;
                let back = match (get("CHAP_I"), get("CHAP_C")) {
                    (Some(i), Some(c)) => Some(PeerChallenge::parse(i, c)?),
                    (None, None) => None,
                    (Some(_), None) => return Err(missing("CHAP_C")),
                    (None, Some(_)) => return Err(missing("CHAP_I")),
                };
                self.verify(&challenge, name, response, back, auth, names, policy)
                    .map_err(|refusal| refusal.tried_as(name))
            }
            state @ (State::Done | State::Failed) => {
                self.state = state;
                Ok(Vec::new())
            }
        }
    }

    /// Picks the first offered method that is supported and allowed.
    //= rfc7143 12 KEY-27
    fn choose_method(&mut self, offers: &str, auth: &AuthPolicy) -> Result<Answers, Refusal> {
        let wanted = match auth {
            AuthPolicy::None => "None",
            AuthPolicy::Chap { .. } => "CHAP",
        };
        if !iscsi_wire::parse_list(offers).is_ok_and(|methods| methods.contains(&wanted)) {
            return Err(Refusal::authentication(
                format!("AuthMethod={wanted} is needed here and was not offered"),
                if wanted == "CHAP" {
                    "configure a CHAP name and secret on the initiator"
                } else {
                    "let the initiator offer AuthMethod=None too"
                },
            ));
        }
        self.state = if wanted == "CHAP" { State::AwaitAlgorithms } else { State::Done };
        Ok(vec![("AuthMethod", wanted.to_owned())])
    }

    fn challenge(
        &mut self,
        list: &str,
        auth: &AuthPolicy,
        policy: &mut dyn LoginPolicy,
    ) -> Result<Answers, Refusal> {
        let AuthPolicy::Chap { algorithms, .. } = auth else { return Ok(Vec::new()) };
        let algorithm = chap::choose_algorithm(list, algorithms).ok_or_else(|| {
            Refusal::authentication(
                format!("none of the offered CHAP algorithms ({}) is allowed", crate::negotiation::shown(list)),
                "offer one of the algorithms that the target's configuration allows (5 MD5, 6 SHA-1, 7 SHA-256, 8 SHA3-256)",
            )
        })?;
        let challenge = Challenge::draw(algorithm, &mut |bytes| policy.fill_random(bytes));
        policy.challenge_issued(challenge.bytes());
        let mut answers = vec![("CHAP_A", (algorithm as u8).to_string())];
        answers.extend(challenge.keys());
        self.state = State::Challenged(challenge);
        Ok(answers)
    }

    #[expect(clippy::too_many_arguments, reason = "one decision needs all of them once")]
    fn verify(
        &mut self,
        challenge: &Challenge,
        name: &str,
        response: &str,
        back: Option<PeerChallenge>,
        auth: &AuthPolicy,
        names: &LoginNames,
        policy: &mut dyn LoginPolicy,
    ) -> Result<Answers, Refusal> {
        let AuthPolicy::Chap { mutual, .. } = auth else { return Ok(Vec::new()) };
        let response = chap::binary("CHAP_R", response)?;
        //= rfc7143 9.2 SEC-14
        let secret = policy.secret_of(names, name).map_err(|why| unproven(why, names))?;
        if !challenge.is_answered_by(&response, &secret) {
            return Err(Refusal::new(
                LoginStatus::AuthenticationFailure,
                "RFC 7143 12.1.3: CHAP_R",
                "the secret is wrong: the CHAP response is not that of this account",
                "set the same secret on both sides",
            ));
        }
        let mut answers = Vec::new();
        if let Some(back) = back {
            //= rfc7143 9.2.1 SEC-07
            if policy.was_issued(back.bytes()) {
                return Err(Refusal::authentication(
                    "the initiator sent our own challenge back",
                    "let the initiator draw its own challenge",
                ));
            }
            //= rfc7143 12.1.3 SEC-11
            let Some(own) = mutual else {
                return Err(Refusal::authentication(
                    "the initiator asked this target to prove itself, and no secret is configured for that",
                    "configure mutual CHAP on the target, or do not ask for it",
                ));
            };
            //= rfc7143 9.2.1 SEC-08
            if secret == own.secret {
                return Err(Refusal::authentication(
                    "the same secret is configured for both directions",
                    "use different secrets",
                ));
            }
            answers.push(("CHAP_N", own.name.clone()));
            answers.push(("CHAP_R", back.answer(challenge.algorithm, &own.secret)));
        }
        self.authenticated_as = Some(name.to_owned());
        self.state = State::Done;
        Ok(answers)
    }
}

/// The status is the same whatever was wrong, so that a prober learns nothing from it; the reason is for the log.
fn unproven(why: NoSecret, names: &LoginNames) -> Refusal {
    let status = LoginStatus::AuthenticationFailure;
    match why {
        NoSecret::UnknownName => Refusal::new(
            status,
            "RFC 7143 12.1.3: CHAP_N",
            "no account has this CHAP name",
            "correct the CHAP name on the initiator, or add an account for it",
        ),
        NoSecret::OtherInitiator => Refusal::new(
            status,
            "RFC 7143 9.2",
            format!("the account of this CHAP name is not for {}", names.initiator),
            "let the initiator use its own account, or add its name to the `initiators` of this one",
        ),
    }
}
