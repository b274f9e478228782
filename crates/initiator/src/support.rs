//! What a login needs from this process: randomness, and a record of the challenges that all its sessions have
//! issued.

use std::collections::VecDeque;

use engine::Platform;
use iscsi_core::initiator::login::LoginSupport;
use iscsi_core::wire::Isid;
use parking_lot::Mutex;

/// Challenges that are remembered; older ones belong to logins that ended long ago.
const REMEMBERED_CHALLENGES: usize = 4096;

static ISSUED: Mutex<VecDeque<Vec<u8>>> = Mutex::new(VecDeque::new());

/// [`LoginSupport`] of this process, with the randomness of its platform.
#[derive(Debug)]
pub(crate) struct ProcessSupport<'a, P>(pub &'a P);

impl<P: Platform> LoginSupport for ProcessSupport<'_, P> {
    fn fill_random(&mut self, bytes: &mut [u8]) {
        self.0.fill_random(bytes);
    }

    //= rfc7143 9.2.1 SEC-07
    fn challenge_issued(&mut self, challenge: &[u8]) {
        let mut issued = ISSUED.lock();
        if issued.len() == REMEMBERED_CHALLENGES {
            issued.pop_front();
        }
        issued.push_back(challenge.to_vec());
    }

    fn was_issued(&mut self, challenge: &[u8]) -> bool {
        ISSUED.lock().iter().any(|issued| issued == challenge)
    }
}

/// An ISID in the random form, different for every session of this process.
//= rfc7143 11.12.5 NAM-03 NAM-04
pub(crate) fn random_isid(platform: &impl Platform) -> Isid {
    use std::sync::atomic::{AtomicU16, Ordering};
    static NUMBER: std::sync::OnceLock<[u8; 3]> = std::sync::OnceLock::new();
    static QUALIFIER: AtomicU16 = AtomicU16::new(0);
    let number = NUMBER.get_or_init(|| {
        let mut bytes = [0; 3];
        platform.fill_random(&mut bytes);
        bytes
    });
    Isid::random(*number, QUALIFIER.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use engine::System;

    use super::*;

    #[test]
    fn nam_03_nam_04_isids_are_random_form_and_all_different() {
        let platform = System::new(1);
        let all: std::collections::HashSet<Isid> = (0..300).map(|_| random_isid(&platform)).collect();
        assert_eq!(all.len(), 300);
        assert!(all.iter().all(|isid| isid.format() == iscsi_core::wire::IsidFormat::Random));
    }

    #[test]
    fn sec_07_challenges_are_known_again_across_sessions() {
        let platform = System::new(1);
        let (mut one, mut other) = (ProcessSupport(&platform), ProcessSupport(&platform));
        let mut challenge = [0; 32];
        one.fill_random(&mut challenge);
        assert!(!other.was_issued(&challenge));
        one.challenge_issued(&challenge);
        assert!(other.was_issued(&challenge));
    }
}
