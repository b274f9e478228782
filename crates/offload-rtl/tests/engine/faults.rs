//! Faults in the stream to the engine, one at a time, while a read and a write are under way: each must stop the connection, or change
//! nothing that counts. No byte reaches host memory that the peer has not sent for that place.

use fastrand::Rng;
use offload::encoding::{
    Abort, Completion, OpenConn, PostTask, SglElement, TaskDone, TaskResult, conn_flags, task_flags,
};

use super::pair::Pair;
use super::peer::{DATA_IN, FINAL, Header, NOP_IN, R2T, RESPONSE, STATUS, random_bytes};
use super::random::{BOTH_DIGESTS, DATA_ADDR, RAW_SLOTS, SENSE_ADDR, max_data, open_conn};

const READ: u32 = 1;
const WRITE: u32 = 2;
/// Rounds of a connection: its window has room for so many commands.
pub const ROUNDS: usize = 8;
/// Behind the last PDU that may be harmed. A header whose length has grown ends in it.
const TAIL_BYTES: usize = 1100;

/// What happens to the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    Bit,
    /// Some of 32 bits in a row.
    Burst,
    /// Some bytes are missing.
    Bytes,
    Lost,
    Twice,
    /// Two PDUs in the other order.
    Swapped,
}

impl Fault {
    pub const ALL: [Self; 6] = [Self::Bit, Self::Burst, Self::Bytes, Self::Lost, Self::Twice, Self::Swapped];

    /// The stream of these PDUs with the fault in it; the last PDU is spared.
    fn strike(self, mut pdus: Vec<Vec<u8>>, random: &mut Rng) -> Vec<u8> {
        let last = pdus.len() - 1;
        let end: usize = pdus[..last].iter().map(Vec::len).sum();
        let struck = random.usize(..last);
        match self {
            Self::Lost => drop(pdus.remove(struck)),
            Self::Twice => pdus.insert(struck, pdus[struck].clone()),
            Self::Swapped => pdus.swap(struck.min(last - 2), struck.min(last - 2) + 1),
            Self::Bit | Self::Burst | Self::Bytes => {}
        }
        let mut stream = pdus.concat();
        match self {
            Self::Bit => stream[random.usize(..end)] ^= 1 << random.u8(..8),
            Self::Burst => {
                let (at, mask) = (random.usize(..end - 4), random.u32(1..));
                stream[at..at + 4].iter_mut().zip(mask.to_le_bytes()).for_each(|(byte, mask)| *byte ^= mask);
            }
            Self::Bytes => {
                let at = random.usize(..end - 1);
                stream.drain(at..at + random.usize(1..=(end - at).min(100)));
            }
            Self::Lost | Self::Twice | Self::Swapped => {}
        }
        stream
    }
}

/// How a round ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The connection has stopped.
    Stopped,
    /// Both tasks have ended well, with all their bytes.
    Harmless,
    /// The last R2T was lost, and the TASK_DONE of the write shows that not all of its data was requested. A target would wait for
    /// the data instead of sending its response.
    Short,
}

/// A connection for [`ROUNDS`] rounds.
pub fn begin(pair: &mut Pair) -> OpenConn {
    let flags = BOTH_DIGESTS | conn_flags::INITIAL_R2T;
    let open = OpenConn { max_cmd_sn: 40, ..open_conn(flags, max_data(pair.width())) };
    assert_eq!(pair.open(&open), Some(TaskResult::GOOD.0));
    open
}

/// The data of the read, cut into Data-In; no byte is zero.
fn pieces(random: &mut Rng) -> Vec<Vec<u8>> {
    let piece =
        |random: &mut Rng| random_bytes(random.usize(1..200), random).iter().map(|byte| byte | 1).collect();
    (0..5).map(|_| piece(random)).collect()
}

/// What a target that is right would send.
fn pdus(open: &OpenConn, pair: &Pair, pieces: &[Vec<u8>], edtl: u32, random: &mut Rng) -> Vec<Vec<u8>> {
    let session = pair.session().expect("the connection is open");
    let of = |opcode: u8, nth: u32| Header {
        stat_sn: session.next_stat_sn.wrapping_add(nth),
        max_cmd_sn: session.cmd_sn.wrapping_add(20),
        ..Header::of(&session, opcode)
    };
    let mut all = Vec::new();
    let mut offset = 0;
    for (sn, piece) in (0..).zip(pieces) {
        let flags = if sn as usize + 1 == pieces.len() { FINAL | STATUS } else { 0 };
        all.push(Header { flags, itt: READ, sn, offset, ..of(DATA_IN, 0) }.pdu(open, &[], piece));
        offset += piece.len() as u32;
    }
    let half = edtl / 2;
    for (sn, at, offset, length) in [(0, 1, 0, half), (1, 4, half, edtl - half)] {
        let r2t = Header { itt: WRITE, ttt: sn, sn, offset, last_word: length, ..of(R2T, 0) };
        all.insert(at, r2t.pdu(open, &[], &[]));
    }
    all.push(Header { itt: WRITE, sn: 2, ..of(RESPONSE, 1) }.pdu(open, &[], &[]));
    all.push(Header { itt: 0x5000, ..of(NOP_IN, 2) }.pdu(open, &[], &random_bytes(TAIL_BYTES, random)));
    all
}

/// One read and one write, and one fault.
pub fn round(pair: &mut Pair, open: &OpenConn, fault: Fault, random: &mut Rng) -> Outcome {
    let pieces = pieces(random);
    let length = pieces.iter().map(Vec::len).sum::<usize>();
    let edtl = random.u32(2..2000);
    pair.write(DATA_ADDR, &vec![0; length]);
    for (itt, flags, edtl) in [(READ, task_flags::READ, length as u32), (WRITE, task_flags::WRITE, edtl)] {
        let addr = DATA_ADDR + 0x1000 * u64::from(itt - READ);
        let post = PostTask { flags, itt, edtl, sense_addr: SENSE_ADDR, ..PostTask::default() };
        pair.post(&post, &[SglElement { addr, length: edtl }]);
    }
    pair.transmit();
    pair.take_completions();
    let pdus = pdus(open, pair, &pieces, edtl, random);
    let answers = pdus[pdus.len() - 2..].iter().map(Vec::len).sum();
    let stream = fault.strike(pdus, random);
    // Between R2Ts and response their data is sent.
    let (requests, answers) = stream.split_at(stream.len().saturating_sub(answers));
    pair.lead(requests);
    pair.catch_up(random);
    pair.transmit();
    pair.lead(answers);
    pair.catch_up(random);
    let outcome = judge(pair, &pieces, edtl, fault);
    if outcome == Outcome::Stopped {
        for itt in [READ, WRITE] {
            pair.submit(&Abort { itt, ..Abort::default() }.emit());
        }
        pair.resync(random);
    }
    pair.release(RAW_SLOTS);
    outcome
}

fn judge(pair: &mut Pair, pieces: &[Vec<u8>], edtl: u32, fault: Fault) -> Outcome {
    let completions = pair.take_completions();
    let done = |itt: u32| {
        completions.iter().find_map(|completion| match completion {
            Completion::TaskDone(done) if done.itt == itt => Some(*done),
            _ => None,
        })
    };
    let is_good = |done: &TaskDone| (done.result, done.status) == (TaskResult::GOOD, 0);
    let (mut at, mut placed) = (DATA_ADDR, 0);
    for piece in pieces {
        let there = pair.data(at, piece.len());
        at += piece.len() as u64;
        let nothing = there.iter().all(|byte| *byte == 0);
        assert!(nothing || there == *piece, "{fault:?}: bytes in host memory that nobody has sent");
        placed += usize::from(!nothing);
    }
    if done(READ).as_ref().is_some_and(is_good) {
        assert_eq!(placed, pieces.len(), "{fault:?}: a read has ended well without its data");
    }
    if pair.is_stopped() {
        return Outcome::Stopped;
    }
    let both = [READ, WRITE].iter().all(|itt| done(*itt).as_ref().is_some_and(is_good));
    let raws = completions.iter().filter(|completion| matches!(completion, Completion::RawPdu(_))).count();
    assert!(both && raws == 1, "{fault:?} is not detected: {completions:?}");
    if fault == Fault::Lost && done(WRITE).is_some_and(|done| done.bytes_sent < edtl) {
        return Outcome::Short;
    }
    assert!(matches!(fault, Fault::Twice | Fault::Swapped), "{fault:?} is not detected: {completions:?}");
    Outcome::Harmless
}
