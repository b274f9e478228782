//! One TCP connection as seen by a shim at one of its ends: the request in SYN and SYN-ACK, the method agreed, the fallback to plain TCP,
//! and the action for each packet.
//!
//! ```text
//!            our SYN goes out, or our SYN-ACK answers a SYN that asks
//!   (none) ─────────────────────────────────► Opening ──── no answer, no common method ───► Plain
//!                                                │                                            ▲
//!                                                │ SYN-ACK that asks; or our own SYN-ACK      │ the peer's first segment is
//!                                                ▼                                            │ bare: our answer was stripped
//!                                            Protected (not confirmed) ───────────────────────┘
//!                                                │ a CRC that matches, or a SYN-ACK that asks
//!                                                ▼
//!                                            Protected (confirmed): bare segments are a matter of policy
//! ```
//!
//! Packets from the network change the state only if our own TCP has asked for it or answers it. An incoming SYN is remembered and takes
//! effect when our TCP sends its SYN-ACK; an incoming SYN-ACK takes effect if it acknowledges our SYN. So a forged or late SYN cannot end
//! the protection of an established connection. And a connection that went plain because its requests seemed lost becomes protected by the
//! first CRC that matches: one of the requests did arrive.

use crate::method::{Codepoints, Method, Offer};
use crate::packet::Packet;
use crate::rewrite::{self, Fault};

/// A SYN is sent with the request this many times, and so is a SYN-ACK; after that without it, for middleboxes that discard options they do
/// not know.
pub const REQUESTS_MAX: u32 = 2;
/// This many segments in a row with a wrong CRC but a right sum suggest a middlebox that resegments.
pub const RESEGMENTED_AFTER: u32 = 8;

/// How far beyond our last acknowledgement a RST is believed. A sender that does not know the number hits this once in 65,536 times.
const RST_WINDOW_BYTES: u32 = 65_536;

/// The configuration of a shim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// What it asks for.
    pub offer: Offer,
    /// The option numbers it uses.
    pub codepoints: Codepoints,
    /// What happens when CRCs vanish.
    pub on_missing: OnMissing,
    /// Longest packet of the link, in bytes: even for a peer that accepts larger segments, no stamped one is longer. None: not known.
    pub mtu_bytes: Option<u16>,
}

/// What happens when a segment of a protected connection arrives without its CRC, because something on the path removes options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissing {
    /// It is accepted and counted.
    #[default]
    Lenient,
    /// A segment with data resets the connection. A segment without data is only counted: a host that answers for a closed connection
    /// (TIME-WAIT) may no longer be able to add a CRC.
    Strict,
    /// Like [`OnMissing::Strict`], and no connection is plain: one whose peer agrees on no CRC is reset while it opens, requests are
    /// repeated as often as the SYN is, and a SYN with data (TCP Fast Open) is discarded, because only TCP's sum protects that data.
    Required,
}

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From our TCP to the network.
    Out,
    /// From the network to our TCP.
    In,
}

/// Why a connection has no CRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {
    /// We ask for nothing.
    NotOffered,
    /// The peer, or something on the path, does not answer the request.
    PeerSilent,
    /// Both ask, but for no common method.
    NoCommonMethod,
    /// The SYN was lost twice with the request and was sent without it.
    RequestsLost,
    /// The peer's first segment has no CRC: our answer to the peer's request did not arrive.
    AnswerStripped,
    /// TCP-MD5 or TCP-AO forbids changes.
    Signed,
    /// The SYN has no room for the request.
    NoRoom,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No answer yet.
    Opening,
    /// Every segment carries a CRC.
    Protected(Method),
    /// Ordinary TCP.
    Plain(Plain),
    /// Not let through ([`OnMissing::Required`]), because it would be plain for this reason.
    Refused(Plain),
}

/// What to do with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Forward it unchanged.
    Keep,
    /// Forward the rewritten packet instead.
    Rewritten,
    /// Discard it: TCP retransmits its data.
    Discard(Fault),
    /// Reset the connection at both ends. Of our own SYN the peer knows nothing yet.
    Reset,
}

/// Counters of a connection, in segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Counters {
    /// Sent with a CRC.
    pub stamped: u64,
    /// Received with a CRC that matches.
    pub verified: u64,
    /// Discarded because of a wrong CRC or a malformed option.
    pub bad_crc: u64,
    /// Discarded because of TCP's own sum.
    pub bad_sum: u64,
    /// Sent without a CRC because the options had no room.
    pub bare_sent: u64,
    /// Received without a CRC, because the options had no room.
    pub bare_received: u64,
    /// Received without a CRC although there was room: removed on the path.
    pub missing: u64,
    /// SACK blocks dropped to make room for a CRC.
    pub sack_blocks_dropped: u64,
    /// Times that [`RESEGMENTED_AFTER`] CRCs in a row were wrong although the sums were right.
    pub resegmented: u64,
}

impl Counters {
    /// Adds the counters of another connection.
    pub fn add(&mut self, other: &Counters) {
        let Counters {
            stamped,
            verified,
            bad_crc,
            bad_sum,
            bare_sent,
            bare_received,
            missing,
            sack_blocks_dropped,
            resegmented,
        } = other;
        self.stamped += stamped;
        self.verified += verified;
        self.bad_crc += bad_crc;
        self.bad_sum += bad_sum;
        self.bare_sent += bare_sent;
        self.bare_received += bare_received;
        self.missing += missing;
        self.sack_blocks_dropped += sack_blocks_dropped;
        self.resegmented += resegmented;
    }
}

/// The content of one end's SYN.
#[derive(Clone, Copy, Debug)]
struct Syn {
    isn: u32,
    offer: Offer,
    /// Length of its data (TCP Fast Open), so that an acknowledgement of that data is recognised.
    data_bytes: u32,
}

/// One connection.
#[derive(Clone, Debug)]
pub struct Flow {
    config: Config,
    state: State,
    /// The peer has shown that it uses the method.
    confirmed: bool,
    ours: Option<Syn>,
    theirs: Option<Syn>,
    /// A SYN from the peer that our TCP has not answered.
    unanswered: Option<Syn>,
    syns: u32,
    syn_acks: u32,
    wrong_in_a_row: u32,
    /// The last number that our TCP acknowledged.
    acknowledged: Option<u32>,
    /// Whether our direction and the peer's have ended.
    ended: [bool; 2],
    counters: Counters,
    /// Counters of earlier connections between the same ports.
    earlier: Counters,
}

impl Flow {
    /// A connection of which no packet has been seen.
    pub fn new(config: Config) -> Flow {
        Flow {
            config,
            state: State::Opening,
            confirmed: false,
            ours: None,
            theirs: None,
            unanswered: None,
            syns: 0,
            syn_acks: 0,
            wrong_in_a_row: 0,
            acknowledged: None,
            ended: [false; 2],
            counters: Counters::default(),
            earlier: Counters::default(),
        }
    }

    /// Whether no segment except a SYN is changed or judged any more, so that super-segments need not be cut.
    pub fn is_plain(&self) -> bool {
        matches!(self.state, State::Plain(why) if why != Plain::RequestsLost)
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Its counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Its counters plus those of earlier connections between the same ports.
    pub(crate) fn total(&self) -> Counters {
        let mut total = self.earlier;
        total.add(&self.counters);
        total
    }

    /// Whether both directions have ended, or the connection was ended by RST: only late segments can follow.
    pub fn has_ended(&self) -> bool {
        self.ended == [true; 2]
    }

    /// Handles a packet and says what to do with it. For [`Action::Rewritten`] the new packet is in `out`, whose content is replaced.
    pub fn handle(&mut self, direction: Direction, packet: &Packet<'_>, out: &mut Vec<u8>) -> Action {
        let action = self.act(direction, packet, out);
        // Not emptied before: a buffer that has held a segment like this one is only written over.
        if action != Action::Rewritten {
            out.clear();
        }
        action
    }

    /// [`Flow::handle`]. Unless the packet is rewritten, `out` may hold anything.
    fn act(&mut self, direction: Direction, packet: &Packet<'_>, out: &mut Vec<u8>) -> Action {
        let flags = packet.flags();
        if flags.rst() {
            if direction == Direction::Out || self.may_be_reset_by(packet) {
                self.ended = [true; 2];
            }
            return Action::Keep;
        }
        // TCP repeats the SYN without data.
        if self.is_required() && flags.syn() && !packet.data().is_empty() {
            return Action::Discard(Fault::Bare);
        }
        if direction == Direction::Out && flags.ack() {
            self.acknowledged = Some(packet.acknowledgement_number());
        }
        if flags.fin() {
            self.ended[usize::from(direction == Direction::In)] = true;
        }
        match (direction, flags.syn(), flags.ack()) {
            (Direction::Out, true, false) => self.our_syn(packet, out),
            (Direction::Out, true, true) => self.our_syn_ack(packet, out),
            (Direction::In, true, false) => self.their_syn(packet, out),
            (Direction::In, true, true) => self.their_syn_ack(packet, out),
            (Direction::Out, false, _) => self.send(packet, out),
            (Direction::In, false, _) => self.receive(packet, out),
        }
    }

    fn is_required(&self) -> bool {
        self.config.on_missing == OnMissing::Required
    }

    /// What happens to a segment of a connection that is not protected, or not yet.
    fn unprotected(&self) -> Action {
        match self.state {
            State::Refused(_) => Action::Reset,
            _ if self.is_required() => Action::Discard(Fault::Bare),
            _ => Action::Keep,
        }
    }

    /// Whether our TCP may accept this RST from the peer: it has the number that our TCP expects, or one that data in flight would explain
    /// (RFC 5961 3.2). Any other is forged or late and ends nothing. Before our first acknowledgement every RST is accepted.
    fn may_be_reset_by(&self, packet: &Packet<'_>) -> bool {
        self.acknowledged.is_none_or(|next| packet.sequence_number().wrapping_sub(next) < RST_WINDOW_BYTES)
    }

    /// Starts over if our initial sequence number has changed: a new connection on the same ports.
    fn begin(&mut self, packet: &Packet<'_>) {
        let isn = packet.sequence_number();
        if self.ours.is_none_or(|syn| syn.isn != isn) {
            let mut earlier = self.earlier;
            earlier.add(&self.counters);
            *self = Flow { unanswered: self.unanswered, earlier, ..Flow::new(self.config) };
            self.ours = Some(Syn { isn, offer: Offer::NONE, data_bytes: packet.data().len() as u32 });
        }
    }

    /// Our TCP opens a connection, or repeats its SYN.
    fn our_syn(&mut self, packet: &Packet<'_>, out: &mut Vec<u8>) -> Action {
        self.begin(packet);
        self.syns += 1;
        self.ask(packet, self.syns, out)
    }

    /// Our TCP answers a SYN: the request in that SYN takes effect now.
    fn our_syn_ack(&mut self, packet: &Packet<'_>, out: &mut Vec<u8>) -> Action {
        self.begin(packet);
        if let Some(theirs) = self.unanswered.take() {
            self.theirs = Some(theirs);
        }
        let offer = match self.theirs {
            Some(theirs) => theirs.offer,
            None if self.is_required() => Offer::NONE,
            None => return Action::Keep,
        };
        if offer.is_none() {
            return self.plain(Plain::PeerSilent);
        }
        let Some(method) = self.config.offer.join(offer) else {
            return self.plain(Plain::NoCommonMethod);
        };
        self.syn_acks += 1;
        let action = self.ask(packet, self.syn_acks, out);
        if action == Action::Rewritten {
            self.state = State::Protected(method);
        }
        action
    }

    /// Writes the request into our SYN or SYN-ACK, which is sent for the `time`-th time.
    fn ask(&mut self, packet: &Packet<'_>, time: u32, out: &mut Vec<u8>) -> Action {
        if self.config.offer.is_none() {
            return self.plain(Plain::NotOffered);
        }
        if packet.is_signed() {
            return self.plain(Plain::Signed);
        }
        if time > REQUESTS_MAX && !self.is_required() {
            return self.plain(Plain::RequestsLost);
        }
        match rewrite::request(packet, self.config.offer, self.config.codepoints, out) {
            Ok(asked) => {
                if let Some(ours) = &mut self.ours {
                    ours.offer = asked;
                }
                Action::Rewritten
            }
            Err(_) => self.plain(Plain::NoRoom),
        }
    }

    fn plain(&mut self, why: Plain) -> Action {
        if self.is_required() {
            self.state = State::Refused(why);
            self.ended = [true; 2];
            return Action::Reset;
        }
        self.state = State::Plain(why);
        Action::Keep
    }

    fn read_syn(&self, packet: &Packet<'_>) -> Syn {
        let offer = rewrite::requested(packet, self.config.codepoints);
        Syn { isn: packet.sequence_number(), offer, data_bytes: packet.data().len() as u32 }
    }

    /// The peer's SYN. The MSS in it is lowered, so that our TCP leaves room for our CRCs.
    fn their_syn(&mut self, packet: &Packet<'_>, out: &mut Vec<u8>) -> Action {
        let syn = self.read_syn(packet);
        self.unanswered = Some(syn);
        match self.config.offer.join(syn.offer) {
            // It is not known yet whether our TCP will use timestamps; without them a CRC takes more room.
            Some(method) => self.clamp(packet, method, false, out),
            None => Action::Keep,
        }
    }

    /// The peer's SYN-ACK: the answer to our request.
    fn their_syn_ack(&mut self, packet: &Packet<'_>, out: &mut Vec<u8>) -> Action {
        let Some(ours) = self.ours.filter(|ours| acknowledges(packet, ours)) else { return Action::Keep };
        if matches!(self.state, State::Refused(_)) {
            return Action::Reset;
        }
        // A decision is final: a repeated SYN-ACK may lack what the first one had.
        if self.confirmed || matches!(self.state, State::Plain(_)) {
            return Action::Keep;
        }
        let theirs = self.read_syn(packet);
        self.theirs = Some(theirs);
        if theirs.offer.is_none() {
            return self.plain(Plain::PeerSilent);
        }
        let Some(method) = ours.offer.join(theirs.offer) else { return self.plain(Plain::NoCommonMethod) };
        self.state = State::Protected(method);
        self.confirmed = true;
        self.clamp(packet, method, rewrite::has_timestamps(packet), out)
    }

    fn clamp(&self, packet: &Packet<'_>, method: Method, timestamps: bool, out: &mut Vec<u8>) -> Action {
        let growth = rewrite::growth_bytes(method, self.config.codepoints, timestamps);
        rewrite::clamp_mss(packet, growth, self.config.mtu_bytes, out);
        if out.is_empty() { Action::Keep } else { Action::Rewritten }
    }

    /// A segment of ours.
    fn send(&mut self, packet: &Packet<'_>, out: &mut Vec<u8>) -> Action {
        let (State::Protected(method), Some(ours)) = (self.state, self.ours) else {
            return self.unprotected();
        };
        match rewrite::stamp(packet, method, self.config.codepoints, ours.isn, out) {
            Ok(dropped) => {
                self.counters.stamped += 1;
                self.counters.sack_blocks_dropped += dropped as u64;
                Action::Rewritten
            }
            Err(_) => {
                self.counters.bare_sent += 1;
                Action::Keep
            }
        }
    }

    /// A segment of the peer's.
    fn receive(&mut self, packet: &Packet<'_>, out: &mut Vec<u8>) -> Action {
        let Some(theirs) = self.theirs else { return self.unprotected() };
        let (method, certain) = match self.state {
            State::Protected(method) => (method, true),
            // Our request may have arrived although no answer did.
            State::Plain(Plain::RequestsLost) => match self.config.offer.join(theirs.offer) {
                Some(method) => (method, false),
                None => return Action::Keep,
            },
            _ => return self.unprotected(),
        };
        match rewrite::take_out(packet, method, self.config.codepoints, theirs.isn, out) {
            Ok(()) => {
                self.state = State::Protected(method);
                self.confirmed = true;
                self.wrong_in_a_row = 0;
                self.counters.verified += 1;
                Action::Rewritten
            }
            Err(_) if !certain => Action::Keep,
            Err(Fault::Bare) => self.receive_bare(packet, method),
            Err(Fault::Sum) => {
                self.counters.bad_sum += 1;
                Action::Discard(Fault::Sum)
            }
            Err(fault) => {
                self.counters.bad_crc += 1;
                self.wrong_in_a_row += u32::from(packet.sum_is_right());
                if self.wrong_in_a_row == RESEGMENTED_AFTER {
                    self.wrong_in_a_row = 0;
                    self.counters.resegmented += 1;
                }
                Action::Discard(fault)
            }
        }
    }

    fn receive_bare(&mut self, packet: &Packet<'_>, method: Method) -> Action {
        if !rewrite::has_room(packet, method, self.config.codepoints) {
            self.counters.bare_received += 1;
            return Action::Keep;
        }
        if !self.confirmed {
            return self.plain(Plain::AnswerStripped);
        }
        self.counters.missing += 1;
        match self.config.on_missing {
            OnMissing::Strict | OnMissing::Required if !packet.data().is_empty() => Action::Reset,
            _ => Action::Keep,
        }
    }
}

/// Whether a SYN-ACK acknowledges our SYN, or data in the SYN.
fn acknowledges(packet: &Packet<'_>, ours: &Syn) -> bool {
    let acknowledged = packet.acknowledgement_number().wrapping_sub(ours.isn);
    (1..=1 + u64::from(ours.data_bytes)).contains(&u64::from(acknowledged))
}
