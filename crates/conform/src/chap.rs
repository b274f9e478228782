//! CHAP as both ends of a script need it (RFC 7143 12.1.3, RFC 1994). Written independently of the product's
//! own implementation, so that a mistake in one shows against the other.

use md5::Md5;
use sha1::Sha1;
use sha2::Sha256;
use sha3::{Digest, Sha3_256};

/// H(identifier, secret, challenge) by algorithm 5, 6, 7 or 8; `None` for another number.
pub fn response(number: u64, identifier: u8, secret: &[u8], challenge: &[u8]) -> Option<Vec<u8>> {
    fn hash<H: Digest>(identifier: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
        H::new().chain_update([identifier]).chain_update(secret).chain_update(challenge).finalize().to_vec()
    }
    match number {
        5 => Some(hash::<Md5>(identifier, secret, challenge)),
        6 => Some(hash::<Sha1>(identifier, secret, challenge)),
        7 => Some(hash::<Sha256>(identifier, secret, challenge)),
        8 => Some(hash::<Sha3_256>(identifier, secret, challenge)),
        _ => None,
    }
}

/// Random bytes from the operating system; zeros if it has none (no script depends on them).
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let _ = getrandom::fill(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use iscsi_wire::encode_hex;

    // covers: SEC-04
    #[test]
    fn fixed_responses() {
        let of =
            |number| encode_hex(&response(number, 0x27, b"secret-of-12b", b"challenge").unwrap_or_default());
        // printf '\x27secret-of-12bchallenge' | md5sum, sha1sum, sha256sum, openssl dgst -sha3-256
        assert_eq!(of(5), MD5);
        assert_eq!(of(6), SHA1);
        assert_eq!(of(7), SHA256);
        assert_eq!(of(8), SHA3);
        assert_eq!(response(9, 0, b"", b""), None);
    }
    const MD5: &str = "0x7f0b9c15315b1510610bc2ea0feecb84";
    const SHA1: &str = "0xdc5109770c76610e9bd9c2945ab5e3ad7d3a28df";
    const SHA256: &str = "0xde89a90fb75c74cc85a61a5459068cde7e93073464b5a444989e61a1882967f5";
    const SHA3: &str = "0x79b39824e15aeb0f2f12257c6242c0af150059b21ba844af5c9bbc27d963c826";
}
