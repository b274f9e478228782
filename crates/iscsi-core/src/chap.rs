//! CHAP, both directions and both roles (RFC 1994, RFC 7143 9.2.1 and 12.1.3; algorithm numbers of IANA).
//!
//! Secrets live in [`Secret`], which is wiped when dropped and never shown. Responses are compared in constant time.

use std::fmt;

use iscsi_wire::{encode_hex, parse_binary};
use md5::Digest;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::error::ProtocolViolation;
use crate::limits::{CHAP_CHALLENGE_BYTES, MAX_CHAP_BINARY_BYTES, MIN_CHAP_SECRET_BYTES};

/// Source of cryptographically strong random bytes, given by the caller: the core has none of its own.
pub type Entropy<'a> = &'a mut dyn FnMut(&mut [u8]);

/// A CHAP secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Accepts a secret of any length; see [`Secret::is_long_enough`].
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(Zeroizing::new(bytes.into()))
    }

    /// Whether it has the 96 bits that RFC 7143 9.2.1 requires.
    //= rfc7143 9.2.1 SEC-10
    pub fn is_long_enough(&self) -> bool {
        self.0.len() >= MIN_CHAP_SECRET_BYTES
    }
}

impl fmt::Debug for Secret {
    //= rfc7143 9.2.1 SEC-15
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

/// A hash that CHAP may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ChapAlgorithm {
    /// 16 bytes; every implementation supports it.
    Md5 = 5,
    /// 20 bytes.
    Sha1 = 6,
    /// 32 bytes.
    Sha256 = 7,
    /// 32 bytes.
    Sha3_256 = 8,
}

impl ChapAlgorithm {
    /// All algorithms, strongest first: the order in which we offer and prefer them.
    pub const ALL: [Self; 4] = [Self::Sha3_256, Self::Sha256, Self::Sha1, Self::Md5];

    /// The algorithm with this IANA number.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|a| *a as u64 == number)
    }

    /// H(identifier, secret, challenge).
    //= rfc1994 4.1 SEC-04
    pub fn response(self, identifier: u8, secret: &Secret, challenge: &[u8]) -> Vec<u8> {
        fn hash<D: Digest>(parts: [&[u8]; 3]) -> Vec<u8> {
            let mut hasher = D::new();
            for part in parts {
                hasher.update(part);
            }
            hasher.finalize().to_vec()
        }
        let parts = [&[identifier][..], &secret.0, challenge];
        match self {
            Self::Md5 => hash::<md5::Md5>(parts),
            Self::Sha1 => hash::<sha1::Sha1>(parts),
            Self::Sha256 => hash::<sha2::Sha256>(parts),
            Self::Sha3_256 => hash::<sha3::Sha3_256>(parts),
        }
    }
}

/// A name, and the secret that proves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// CHAP_N.
    pub name: String,
    /// The shared secret.
    pub secret: Secret,
}

/// A challenge that we sent and whose answer we expect.
#[derive(Clone, Debug)]
pub struct Challenge {
    /// The agreed hash.
    pub algorithm: ChapAlgorithm,
    identifier: u8,
    challenge: Vec<u8>,
}

impl Challenge {
    /// Draws a fresh identifier and challenge.
    //= rfc1994 4.1 SEC-09
    pub fn draw(algorithm: ChapAlgorithm, entropy: Entropy<'_>) -> Self {
        let mut bytes = [0u8; CHAP_CHALLENGE_BYTES + 1];
        entropy(&mut bytes);
        Self {
            algorithm,
            identifier: bytes[CHAP_CHALLENGE_BYTES],
            challenge: bytes[..CHAP_CHALLENGE_BYTES].to_vec(),
        }
    }

    /// The keys that carry it.
    pub fn keys(&self) -> [(&'static str, String); 2] {
        [("CHAP_I", self.identifier.to_string()), ("CHAP_C", encode_hex(&self.challenge))]
    }

    /// The random part, for the caller's table of challenges in flight.
    pub fn bytes(&self) -> &[u8] {
        &self.challenge
    }

    /// Whether `response` proves knowledge of `secret`; constant time for equal lengths.
    //= rfc7143 12.1.3 SEC-06
    pub fn is_answered_by(&self, response: &[u8], secret: &Secret) -> bool {
        let expected = self.algorithm.response(self.identifier, secret, &self.challenge);
        expected.ct_eq(response).into()
    }
}

/// The peer's challenge to us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerChallenge {
    identifier: u8,
    challenge: Vec<u8>,
}

impl PeerChallenge {
    /// Reads CHAP_I and CHAP_C.
    ///
    /// # Errors
    /// Names the key that is malformed and the rule.
    //= rfc7143 12.1.3 SEC-05
    //= windows logins HST-04
    pub fn parse(identifier: &str, challenge: &str) -> Result<Self, ProtocolViolation> {
        let identifier =
            iscsi_wire::parse_number(identifier).ok().and_then(|n| u8::try_from(n).ok()).ok_or_else(
                || ProtocolViolation::new("RFC 7143 12.1.3", "CHAP_I is not a number from 0 to 255"),
            )?;
        let challenge = binary("CHAP_C", challenge)?;
        if challenge.is_empty() {
            return Err(ProtocolViolation::new("RFC 7143 12.1.3", "CHAP_C is empty"));
        }
        Ok(Self { identifier, challenge })
    }

    /// The random part.
    pub fn bytes(&self) -> &[u8] {
        &self.challenge
    }

    /// Our CHAP_R for it, encoded.
    pub fn answer(&self, algorithm: ChapAlgorithm, secret: &Secret) -> String {
        encode_hex(&algorithm.response(self.identifier, secret, &self.challenge))
    }
}

/// Decodes a binary CHAP item of at most 1024 bytes.
///
/// # Errors
/// When it is neither hexadecimal nor base64, or longer.
//= rfc7143 12.1.3 SEC-05
pub fn binary(key: &str, value: &str) -> Result<Vec<u8>, ProtocolViolation> {
    parse_binary(value, MAX_CHAP_BINARY_BYTES).map_err(|e| {
        ProtocolViolation::new(
            "RFC 7143 12.1.3",
            format!("{key} is not a binary value of up to {MAX_CHAP_BINARY_BYTES} bytes: {e}"),
        )
    })
}

/// The first algorithm of the peer's CHAP_A list that is in `allowed`.
//= rfc7143 12.1.3 SEC-03
pub fn choose_algorithm(list: &str, allowed: &[ChapAlgorithm]) -> Option<ChapAlgorithm> {
    iscsi_wire::parse_list(list)
        .ok()?
        .into_iter()
        .filter_map(|item| iscsi_wire::parse_number(item).ok().and_then(ChapAlgorithm::from_number))
        .find(|algorithm| allowed.contains(algorithm))
}
