//! The portals that the connections of a session may use: all of one portal group (RFC 7143 4.4.1, 4.4.3).
//!
//! Each connection takes the portal with the fewest connections. A portal at which a connection failed comes last until one is
//! established there again. A portal that belongs to another group is not tried a second time in the life of a session.

use std::net::SocketAddr;

/// Most portals that are remembered; if a target lists more, the rest are ignored.
const MAX_WAYS: usize = 64;

#[derive(Clone, Copy, Debug)]
struct KnownPortal {
    address: SocketAddr,
    /// The last connection there failed.
    failed: bool,
    /// It belongs to another portal group than this session.
    foreign: bool,
}

/// See the head of the module.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownPortals {
    all: Vec<KnownPortal>,
}

impl KnownPortals {
    /// Remembers a portal.
    pub(super) fn add(&mut self, address: SocketAddr) {
        if self.all.len() < MAX_WAYS && self.all.iter().all(|way| way.address != address) {
            self.all.push(KnownPortal { address, failed: false, foreign: false });
        }
    }

    /// A new session is established at `address`, and may have connections at `further` portals. For portals that the previous
    /// session used too, their record of failures is kept.
    pub(super) fn begin(&mut self, address: SocketAddr, further: &[SocketAddr]) {
        let before = std::mem::take(&mut self.all);
        self.add(address);
        further.iter().for_each(|further| self.add(*further));
        before.iter().filter(|way| way.failed).for_each(|way| self.failed(way.address));
        self.established(address);
    }

    /// Where to open a session, in reverse order of preference: first the portals `listed` (those that failed after the
    /// others), and if all of them fail, the other known ones.
    pub(super) fn for_session(&self, listed: &[SocketAddr]) -> Vec<SocketAddr> {
        let known = self.all.iter().rev().map(|way| way.address).filter(|address| !listed.contains(address));
        let mut all: Vec<SocketAddr> = known.chain(listed.iter().copied()).collect();
        let failed = |address: &SocketAddr| self.all.iter().any(|way| way.address == *address && way.failed);
        all.sort_by_key(|address| !failed(address));
        all
    }

    /// Where to establish a connection, in reverse order of preference; `taken` are the portals of the other connections.
    pub(super) fn candidates(&self, taken: &[SocketAddr]) -> Vec<SocketAddr> {
        let mut usable: Vec<&KnownPortal> = self.all.iter().filter(|way| !way.foreign).collect();
        let load = |way: &KnownPortal| taken.iter().filter(|address| **address == way.address).count();
        usable.sort_by_key(|way| (way.failed, load(way)));
        usable.iter().rev().map(|way| way.address).collect()
    }

    /// A connection at `address` failed, or could not be established.
    pub(super) fn failed(&mut self, address: SocketAddr) {
        self.mark(address, |way| way.failed = true);
    }

    /// A connection at `address` is established.
    pub(super) fn established(&mut self, address: SocketAddr) {
        self.mark(address, |way| way.failed = false);
    }

    /// The session cannot be reached at `address`; true when there are other portals.
    pub(super) fn mark_foreign(&mut self, address: SocketAddr) -> bool {
        self.mark(address, |way| way.foreign = true);
        self.all.iter().any(|way| !way.foreign)
    }

    fn mark(&mut self, address: SocketAddr, mark: impl Fn(&mut KnownPortal)) {
        self.all.iter_mut().filter(|way| way.address == address).for_each(mark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    /// Portals 1 to `n`.
    fn portals(n: u16) -> KnownPortals {
        let mut portals = KnownPortals::default();
        (1..=n).for_each(|port| portals.add(at(port)));
        portals
    }

    /// The portals that successive connections choose.
    fn placed(portals: &KnownPortals, n: usize) -> Vec<u16> {
        let mut taken = Vec::new();
        for _ in 0..n {
            taken.push(*portals.candidates(&taken).last().expect("there is one"));
        }
        taken.iter().map(SocketAddr::port).collect()
    }

    // covers: MCS-01
    #[test]
    fn connections_are_spread_over_the_portals_in_their_order() {
        assert_eq!(placed(&portals(1), 3), [1, 1, 1]);
        assert_eq!(placed(&portals(3), 7), [1, 2, 3, 1, 2, 3, 1]);
    }

    #[test]
    fn a_portal_that_failed_comes_last_until_a_connection_stands_there() {
        let mut portals = portals(3);
        portals.failed(at(1));
        assert_eq!(placed(&portals, 5), [2, 3, 2, 3, 2]);
        assert_eq!(portals.candidates(&[]), [at(1), at(3), at(2)], "it is tried all the same");
        portals.failed(at(2));
        portals.failed(at(3));
        assert_eq!(placed(&portals, 3), [1, 2, 3], "when all have failed, none is worse");
        portals.established(at(2));
        assert_eq!(placed(&portals, 2), [2, 2]);
    }

    #[test]
    fn a_portal_of_another_group_is_asked_once_per_session() {
        let mut portals = portals(2);
        assert!(portals.mark_foreign(at(1)));
        assert_eq!(placed(&portals, 2), [2, 2]);
        assert!(!portals.mark_foreign(at(2)) && portals.candidates(&[]).is_empty());
        portals.begin(at(3), &[at(1), at(2)]);
        assert_eq!(placed(&portals, 3), [3, 1, 2]);
    }

    #[test]
    fn a_session_is_opened_at_what_was_listed_and_failed_least() {
        let mut portals = KnownPortals::default();
        assert_eq!(portals.for_session(&[at(2), at(1)]), [at(2), at(1)]);
        portals.begin(at(1), &[at(2), at(3)]);
        portals.failed(at(1));
        assert_eq!(portals.for_session(&[at(2), at(1)]), [at(1), at(3), at(2)]);
        // A redirection led elsewhere: the next session still starts at the redirected address.
        portals.begin(at(9), &[]);
        assert_eq!(portals.for_session(&[at(1)]), [at(9), at(1)]);
    }

    #[test]
    fn a_target_cannot_tell_without_end() {
        let mut portals = portals(1000);
        assert_eq!(portals.candidates(&[]).len(), MAX_WAYS);
        portals.add(at(2000));
        assert_eq!(portals.candidates(&[]).len(), MAX_WAYS);
    }
}
