//! The programs' records of connections as bytes: `struct key`, `struct flow` and the counters of `tcp_crc.bpf.c`, field by field.

use std::net::{IpAddr, Ipv6Addr};

use tcp_crc::{Counters, FlowKey, Method, Plain, State};

use crate::shim::{PacketCounters, TurnedAway};

/// Size of `struct key`, bytes.
pub(super) const KEY_BYTES: usize = 36;
/// Size of `struct flow`, bytes.
pub(super) const FLOW_BYTES: usize = COUNTERS_AT + 8 * FLOW_COUNTERS;
const STATE_AT: usize = 12;
const COUNTERS_AT: usize = 32;
const FLOW_COUNTERS: usize = 9;

/// `Plain`, indexed by the programs' numbers.
const REASONS: [Plain; 7] = [
    Plain::NotOffered,
    Plain::PeerSilent,
    Plain::NoCommonMethod,
    Plain::RequestsLost,
    Plain::AnswerStripped,
    Plain::Signed,
    Plain::NoRoom,
];

/// The ends of a connection.
pub(super) fn key(bytes: &[u8; KEY_BYTES]) -> FlowKey {
    let address = |at: usize| {
        let octets: [u8; 16] = std::array::from_fn(|i| bytes[at + i]);
        let v6 = Ipv6Addr::from(octets);
        v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
    };
    let port = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    FlowKey { local: (address(0), port(32)), remote: (address(16), port(34)) }
}

/// The state and counters of a connection. None for a SYN that our TCP has not answered.
pub(super) fn flow(bytes: &[u8; FLOW_BYTES]) -> Option<(State, Counters)> {
    let [state, method, why, known] = [0, 1, 2, 3].map(|i| bytes[STATE_AT + i]);
    const OURS: u8 = 1;
    let state = match state {
        0 if known & OURS == 0 => return None,
        0 => State::Opening,
        1 => State::Protected(Method::from_value(method)?),
        3 => State::Refused(*REASONS.get(usize::from(why))?),
        _ => State::Plain(*REASONS.get(usize::from(why))?),
    };
    let count = |what: usize| {
        let at = COUNTERS_AT + 8 * what;
        u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]))
    };
    Some((state, counters(count)))
}

fn counters(count: impl Fn(usize) -> u64) -> Counters {
    Counters {
        stamped: count(0),
        verified: count(1),
        bad_crc: count(2),
        bad_sum: count(3),
        bare_sent: count(4),
        bare_received: count(5),
        missing: count(6),
        sack_blocks_dropped: count(7),
        resegmented: count(8),
    }
}

/// The counters of all connections together, of packets without a connection, and the connections refused because the table was full.
pub(super) fn totals(count: impl Fn(u32) -> u64) -> (Counters, PacketCounters, u64) {
    let packets = PacketCounters {
        not_tcp: count(9),
        unknown: count(10),
        fragments: count(11),
        fragments_discarded: count(12),
        malformed: count(13),
        resets: count(14),
        uncut: count(15),
        turned_away: TurnedAway {
            unknown_segments: count(17),
            peer_silent: count(18),
            no_common_method: count(19),
            answer_stripped: count(21),
            signed: count(22),
            no_room: count(23),
        },
        ..PacketCounters::default()
    };
    (counters(|what| count(what as u32)), packets, count(16))
}
