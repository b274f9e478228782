//! Several hops (thesis 3.4): the share of one medium that each hop gets, and the links of a chain that may send at the same time.

/// The goodput over `hops` hops that all hear each other: every packet crosses the medium once per hop.
pub fn goodput_mbit_s(one_hop_mbit_s: f64, hops: u32) -> f64 {
    one_hop_mbit_s / f64::from(hops.max(1))
}

/// Stations in a row, each sending to the next (Figure 3.3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chain {
    /// Links: one less than stations.
    pub hops: u32,
    /// Distance between neighbouring stations, m.
    pub spacing_m: f64,
    /// A sender within this distance of a receiver destroys what the receiver gets from another sender, m.
    pub interference_m: f64,
    /// A station within this distance of a sender hears that it sends, m.
    pub sensing_m: f64,
}

impl Chain {
    /// The chain of Figure 3.3: 8 hops of 200 m, ranges of 550 m.
    pub const FIGURE_3_3: Chain =
        Chain { hops: 8, spacing_m: 200.0, interference_m: 550.0, sensing_m: 550.0 };

    fn distance_m(&self, a: u32, b: u32) -> f64 {
        f64::from(a.abs_diff(b)) * self.spacing_m
    }

    /// Whether link `a` (from station `a` to station `a + 1`) and link `b` may not send at the same time. They conflict if the sender of
    /// either link is in reach of the receiver of the other: it destroys the data there, or the receiver's acknowledgement destroys its own.
    pub fn conflict(&self, a: u32, b: u32) -> bool {
        self.distance_m(a, b + 1) < self.interference_m || self.distance_m(b, a + 1) < self.interference_m
    }

    /// Whether the sender of link `b` is a hidden terminal for link `a`: it destroys what arrives there, but does not hear link `a`'s
    /// sender.
    pub fn is_hidden(&self, a: u32, b: u32) -> bool {
        self.distance_m(b, a + 1) < self.interference_m && self.distance_m(a, b) >= self.sensing_m
    }

    /// Whether all of `links` may send at the same time.
    pub fn may_send_at_once(&self, links: &[u32]) -> bool {
        links.iter().enumerate().all(|(i, a)| links[..i].iter().all(|b| !self.conflict(*a, *b)))
    }

    /// The largest set of links that may send at the same time. In a row, a greedy choice is optimal: take each link that does not conflict
    /// with the one taken before.
    pub fn largest_set(&self) -> Vec<u32> {
        let mut taken: Vec<u32> = Vec::new();
        for link in 0..self.hops {
            if taken.last().is_none_or(|last| !self.conflict(*last, link)) {
                taken.push(link);
            }
        }
        taken
    }

    /// The distance in links between a sender and the next one that may send too: the throughput of a long chain is one over this.
    pub fn reuse_distance(&self) -> u32 {
        (1..=self.hops).find(|distance| !self.conflict(0, *distance)).unwrap_or(self.hops)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u32 = 0;
    const B: u32 = 1;
    const C: u32 = 2;
    const D: u32 = 3;
    const E: u32 = 4;
    const G: u32 = 6;
    const CHAIN: Chain = Chain::FIGURE_3_3;

    #[test]
    fn the_schedule_of_the_thesis_contradicts_its_own_ranges() {
        // D is 400 m from B, the receiver of A: within 550 m. The thesis itself names D as a hidden terminal.
        assert!(CHAIN.is_hidden(A, D));
        assert!(!CHAIN.may_send_at_once(&[A, D, G]));
        // B, C and E are neighbours.
        assert!(!CHAIN.may_send_at_once(&[B, C, E]));
        // The next paragraph of the thesis is right: A to B and E to F may send together, A to B and C to D may not.
        assert!(CHAIN.may_send_at_once(&[A, E]));
        assert!(!CHAIN.may_send_at_once(&[A, C]));
    }

    #[test]
    fn a_chain_reaches_a_quarter() {
        assert_eq!(CHAIN.reuse_distance(), 4);
        assert_eq!(CHAIN.largest_set(), [A, E]);
    }

    #[test]
    fn no_set_is_larger() {
        let chain = Chain { hops: 10, ..CHAIN };
        let best = (0..1u32 << chain.hops)
            .map(|set| (0..chain.hops).filter(|link| set >> link & 1 == 1).collect::<Vec<u32>>())
            .filter(|set| chain.may_send_at_once(set))
            .map(|set| set.len())
            .max();
        assert_eq!(best, Some(chain.largest_set().len()));
    }

    #[test]
    fn hops_that_hear_each_other_share_the_medium() {
        assert_eq!([1, 2, 3].map(|hops| goodput_mbit_s(6.0, hops)), [6.0, 3.0, 2.0]);
    }
}
