//! What a login is given: CHAP, and what it needs from its surroundings.

use crate::chap::{ChapAlgorithm, Credentials};
use crate::error::ProtocolViolation;

/// How we authenticate with CHAP.
#[derive(Clone, Debug)]
pub struct ChapConfig {
    /// Our own name and secret.
    pub own: Credentials,
    /// Name and secret with which the target must prove itself; `None` requires no proof.
    pub target: Option<Credentials>,
    /// Algorithms to offer, best first.
    pub algorithms: Vec<ChapAlgorithm>,
    /// Do not log in to a target that chooses no authentication.
    pub required: bool,
}

impl ChapConfig {
    /// One-way CHAP with every algorithm, strongest first, for targets that require it.
    //= rfc7143 12.1.3 SEC-03
    pub fn one_way(own: Credentials) -> Self {
        Self { own, target: None, algorithms: ChapAlgorithm::ALL.to_vec(), required: false }
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn check(&self) -> Result<(), ProtocolViolation> {
        //= rfc7143 9.2.1 SEC-08
        if self.target.as_ref().is_some_and(|target| target.secret == self.own.secret) {
            return Err(ProtocolViolation::new(
                "RFC 7143 9.2.1",
                "the same CHAP secret is configured for both directions: use different secrets",
            ));
        }
        if self.algorithms.is_empty() {
            return Err(ProtocolViolation::new("RFC 7143 12.1.3", "no CHAP algorithm is configured"));
        }
        Ok(())
    }

    /// Whether every secret has the 96 bits that RFC 7143 9.2.1 requires.
    //= rfc7143 9.2.1 SEC-10
    pub fn secrets_are_long_enough(&self) -> bool {
        self.own.secret.is_long_enough() && self.target.as_ref().is_none_or(|t| t.secret.is_long_enough())
    }
}

/// What a login needs from its surroundings.
pub trait LoginSupport {
    /// Fills `bytes` from a cryptographically strong source.
    fn fill_random(&mut self, bytes: &mut [u8]);
    /// Remembers one of our challenges, to recognise it when it is sent back on any connection.
    fn challenge_issued(&mut self, challenge: &[u8]);
    /// Whether `challenge` is one of ours.
    fn was_issued(&mut self, challenge: &[u8]) -> bool;
}
