//! What the CRC covers, where it is placed, and how two ends agree on that (thesis 7, Tables 7.1 and 7.2).

use crate::options::Encoded;

/// What the CRC32C of a segment covers and where it is placed: the option-data value of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// Value 3: pseudo header, TCP header and data. The high 16 bits are in the Checksum field, the low ones in the option. Any device that
    /// verifies TCP's sum discards such a segment, so it works only between two shims.
    Split,
    /// Value 4: the data alone, so that a NAT may change addresses and ports. Checksum is TCP's own.
    Data,
    /// Value 5: pseudo header, TCP header and data. Checksum is TCP's own, so that a NIC may compute it.
    Whole,
    /// Value 6, not in the thesis: the offset of the data from the initial sequence number, their length, and the data. It passes a NAT as
    /// value 4 does, and also detects intact data at a wrong offset.
    Placed,
}

impl Method {
    /// Reserved for a CRC by Koopman's polynomial BA0DC66Bh over what value 6 covers: it finds any five wrong bits of a full segment, where
    /// CRC32C finds three. No processor has an instruction for it. A request for it is ignored, like one for an unknown value.
    pub const RESERVED_FOR_KOOPMAN: u8 = 7;

    /// All methods, in order of their values.
    pub const ALL: [Method; 4] = [Method::Split, Method::Data, Method::Whole, Method::Placed];

    /// The option-data value of the request option.
    pub fn value(self) -> u8 {
        match self {
            Method::Split => 3,
            Method::Data => 4,
            Method::Whole => 5,
            Method::Placed => 6,
        }
    }

    /// The method with this value. RFC 1146's own values (0 the sum, 1 and 2 Fletcher) and unknown values have none.
    pub fn from_value(value: u8) -> Option<Method> {
        Method::ALL.into_iter().find(|method| method.value() == value)
    }

    /// Bytes of the CRC in the data option.
    pub fn crc_bytes(self) -> usize {
        if self == Method::Split { 2 } else { 4 }
    }

    /// Whether the CRC covers addresses and the TCP header.
    pub fn covers_header(self) -> bool {
        matches!(self, Method::Split | Method::Whole)
    }

    /// The precedence of the thesis' values when two ends differ: 3 < 5 < 4, the join that Table 7.2 lists row by row.
    fn rank(self) -> u8 {
        match self {
            Method::Split => 0,
            Method::Whole => 1,
            Method::Data => 2,
            Method::Placed => 3,
        }
    }
}

/// The facts that decide which value a host asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// The NIC computes TCP's sum.
    pub checksum_offload: bool,
    /// There is an address translator between this host and the peer.
    pub behind_nat: bool,
}

impl Host {
    /// Table 7.1.
    pub fn method(self) -> Method {
        match self {
            Host { behind_nat: true, .. } => Method::Data,
            Host { checksum_offload: true, .. } => Method::Whole,
            Host { .. } => Method::Split,
        }
    }
}

/// What one end asks for: at most one value of the thesis, and whether it supports [`Method::Placed`].
///
/// A peer that knows only the thesis ignores the request for value 6 and answers the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Offer {
    thesis: Option<Method>,
    placed: bool,
}

impl Offer {
    /// No request: plain TCP.
    pub const NONE: Offer = Offer { thesis: None, placed: false };

    /// The offer of `methods`; of several values of the thesis the first counts.
    pub fn of(methods: &[Method]) -> Offer {
        methods.iter().fold(Offer::NONE, |mut offer, method| {
            offer.add(*method);
            offer
        })
    }

    /// Adds a method, unless a value of the thesis is already present.
    pub fn add(&mut self, method: Method) {
        match method {
            Method::Placed => self.placed = true,
            method => self.thesis = self.thesis.or(Some(method)),
        }
    }

    /// Whether the offer is empty.
    pub fn is_none(self) -> bool {
        self == Offer::NONE
    }

    /// The methods asked for, the value of the thesis first.
    pub fn methods(self) -> impl Iterator<Item = Method> {
        self.thesis.into_iter().chain(self.placed.then_some(Method::Placed))
    }

    /// The method that follows from both ends' offers, or none. It does not depend on which end asks, so both ends of a simultaneous open
    /// agree.
    pub fn join(self, peer: Offer) -> Option<Method> {
        if self.placed && peer.placed {
            return Some(Method::Placed);
        }
        let (ours, theirs) = (self.thesis?, peer.thesis?);
        Some(if ours.rank() >= theirs.rank() { ours } else { theirs })
    }
}

/// The option numbers for request and CRC. Both ends must be configured alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Codepoints {
    /// Kinds 14 and 15, which RFC 1146 assigned and RFC 6247 made obsolete.
    #[default]
    Historic,
    /// Kind 254 with an experiment identifier (RFC 6994); 2 bytes longer.
    Experimental,
}

impl Codepoints {
    /// Experiment identifier of the request: `CQ`.
    const REQUEST_EXID: [u8; 2] = *b"CQ";
    /// Experiment identifier of the CRC: `CD`.
    const DATA_EXID: [u8; 2] = *b"CD";

    /// Kind of a request option and of a data option, each with the bytes between the length and the content.
    fn heads(self) -> [(u8, &'static [u8]); 2] {
        match self {
            Codepoints::Historic => [(14, &[]), (15, &[])],
            Codepoints::Experimental => [(254, &Self::REQUEST_EXID), (254, &Self::DATA_EXID)],
        }
    }

    /// The content of a request option, if `kind` and `body` (everything after kind and length) form one.
    pub(crate) fn request(self, kind: u8, body: &[u8]) -> Option<&[u8]> {
        let (own, exid) = self.heads()[0];
        (kind == own).then(|| body.strip_prefix(exid)).flatten()
    }

    /// The content of a data option.
    pub(crate) fn data(self, kind: u8, body: &[u8]) -> Option<&[u8]> {
        let (own, exid) = self.heads()[1];
        (kind == own).then(|| body.strip_prefix(exid)).flatten()
    }

    /// A request option for `method`.
    pub(crate) fn encode_request(self, method: Method) -> Encoded {
        let (kind, exid) = self.heads()[0];
        Encoded::new(kind, exid, &[method.value()])
    }

    /// A data option with zeros in place of the CRC.
    pub(crate) fn encode_data(self, method: Method) -> Encoded {
        let (kind, exid) = self.heads()[1];
        Encoded::new(kind, exid, &[0; 4][..method.crc_bytes()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_7_1() {
        let host = |checksum_offload, behind_nat| Host { checksum_offload, behind_nat }.method().value();
        assert_eq!(
            [host(false, false), host(false, true), host(true, false), host(true, true)],
            [3, 4, 5, 4]
        );
    }

    #[test]
    fn table_7_2() {
        let rows = [
            (3, 3, 3),
            (3, 4, 4),
            (3, 5, 5),
            (4, 3, 4),
            (4, 4, 4),
            (4, 5, 4),
            (5, 3, 5),
            (5, 4, 4),
            (5, 5, 5),
        ];
        for (sender, receiver, chosen) in rows {
            let offer = |value| Offer::of(&[Method::from_value(value).unwrap()]);
            let joined = offer(sender).join(offer(receiver)).map(Method::value);
            assert_eq!(joined, Some(chosen), "sender {sender}, receiver {receiver}");
        }
    }

    #[test]
    fn both_ends_come_to_the_same_whoever_asks_first() {
        let offers: Vec<Offer> = [None, Some(Method::Split), Some(Method::Data), Some(Method::Whole)]
            .into_iter()
            .flat_map(|thesis| [false, true].map(|placed| Offer { thesis, placed }))
            .collect();
        for ours in &offers {
            for theirs in &offers {
                assert_eq!(ours.join(*theirs), theirs.join(*ours));
            }
            assert_eq!(ours.join(Offer::NONE), None);
        }
    }

    #[test]
    fn value_6_is_for_two_ends_that_know_it() {
        let both = Offer::of(&[Method::Whole, Method::Placed]);
        assert_eq!(both.join(both), Some(Method::Placed));
        assert_eq!(both.join(Offer::of(&[Method::Split])), Some(Method::Whole));
        assert_eq!(Offer::of(&[Method::Placed]).join(Offer::of(&[Method::Split])), None);
    }

    #[test]
    fn values_of_rfc_1146_are_none_of_ours() {
        assert_eq!([0, 1, 2, 7, 255].map(Method::from_value), [None; 5]);
    }
}
