//! PDUs of a target, made by hand: what the engine in software expects next, and what it does not.

use fastrand::Rng;
use offload::encoding::{CommandEntry, CommandState, OpenConn, SessionEntry, conn_flags, task_flags};

/// A header by its fields; what a PDU does not have stays as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Header {
    pub opcode: u8,
    pub flags: u8,
    pub response: u8,
    pub status: u8,
    pub itt: u32,
    pub ttt: u32,
    pub stat_sn: u32,
    pub exp_cmd_sn: u32,
    pub max_cmd_sn: u32,
    pub sn: u32,
    pub offset: u32,
    pub last_word: u32,
}

pub const NOP_IN: u8 = 0x20;
pub const RESPONSE: u8 = 0x21;
pub const DATA_IN: u8 = 0x25;
pub const R2T: u8 = 0x31;
/// F and S of a Data-In.
pub const FINAL: u8 = 0x80;
pub const STATUS: u8 = 0x01;

/// The digest of a connection, bit by bit: a polynomial with its highest power first, and two registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polynomial {
    pub polynomial: u32,
    pub init: u32,
    pub xor_out: u32,
}

impl Polynomial {
    pub const CRC32C: Self = Self { polynomial: 0x1edc_6f41, init: u32::MAX, xor_out: u32::MAX };

    pub fn random(random: &mut Rng) -> Self {
        // CRC32C, CRC32, Koopman's, any.
        let polynomial = [0x1edc_6f41, 0x04c1_1db7, 0xba0d_c66b, random.u32(..)][random.usize(..4)];
        Self { polynomial, init: random.u32(..), xor_out: random.u32(..) }
    }

    pub fn digest(&self, bytes: &[u8]) -> [u8; 4] {
        if *self == Self::CRC32C {
            return integrity::crc32c(bytes).to_le_bytes();
        }
        let reflected = self.polynomial.reverse_bits();
        let register = bytes.iter().fold(self.init, |register, byte| {
            (0..8).fold(register ^ u32::from(*byte), |register, _| {
                (register >> 1) ^ if register & 1 == 1 { reflected } else { 0 }
            })
        });
        (register ^ self.xor_out).to_le_bytes()
    }
}

impl Header {
    fn bytes(&self, ahs: &[u8], data_bytes: usize) -> Vec<u8> {
        let mut bytes = vec![0; 48];
        bytes[..4].copy_from_slice(&[self.opcode, self.flags, self.response, self.status]);
        bytes[4] = (ahs.len() / 4) as u8;
        bytes[5..8].copy_from_slice(&(data_bytes as u32).to_be_bytes()[1..]);
        bytes[8..16].copy_from_slice(&[0, 3, 0, 0, 1, 2, 3, 4]);
        let words =
            [self.itt, self.ttt, self.stat_sn, self.exp_cmd_sn, self.max_cmd_sn, self.sn, self.offset];
        for (at, word) in (16..).step_by(4).zip(words.into_iter().chain([self.last_word])) {
            bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        bytes.extend(ahs);
        bytes
    }

    /// The PDU with the digests of a connection that has CRC32C.
    pub fn pdu(&self, open: &OpenConn, ahs: &[u8], data: &[u8]) -> Vec<u8> {
        self.pdu_with(&Polynomial::CRC32C, open, ahs, data)
    }

    /// The PDU with the digests of the connection.
    pub fn pdu_with(&self, crc: &Polynomial, open: &OpenConn, ahs: &[u8], data: &[u8]) -> Vec<u8> {
        let mut bytes = self.bytes(ahs, data.len());
        if open.flags & conn_flags::HEADER_DIGEST != 0 {
            bytes.extend(crc.digest(&bytes));
        }
        let mut padded = data.to_vec();
        padded.resize(data.len().next_multiple_of(4), 0);
        bytes.extend(&padded);
        if open.flags & conn_flags::DATA_DIGEST != 0 && !data.is_empty() {
            bytes.extend(crc.digest(&padded));
        }
        bytes
    }

    /// One that is right for this session in all that PDUs have in common.
    pub fn of(session: &SessionEntry, opcode: u8) -> Self {
        Self {
            opcode,
            flags: FINAL,
            itt: u32::MAX,
            ttt: u32::MAX,
            stat_sn: session.next_stat_sn,
            exp_cmd_sn: session.cmd_sn,
            max_cmd_sn: session.max_cmd_sn,
            ..Self::default()
        }
    }
}

pub fn random_bytes(length: usize, random: &mut Rng) -> Vec<u8> {
    (0..length).map(|_| random.u8(..)).collect()
}

/// The next PDU of a target that is right most of the time. `commands` is the table of the engine in software.
pub fn next_pdu(
    crc: &Polynomial,
    open: &OpenConn,
    session: &SessionEntry,
    commands: &[CommandEntry],
    random: &mut Rng,
) -> Vec<u8> {
    let max_data = open.max_recv_data_segment_length as usize;
    let sent = |flag: u8| -> Vec<&CommandEntry> {
        commands.iter().filter(|c| c.state == CommandState::SENT && c.flags & flag != 0).collect()
    };
    let (mut header, mut data) = match random.u8(..100) {
        0..55 => data_in(session, random.choice(sent(task_flags::READ)), max_data, random),
        55..68 => response(session, random.choice(commands.iter()), random),
        68..82 => (r2t(session, random.choice(sent(task_flags::WRITE)), open, random), Vec::new()),
        _ => for_software(session, max_data, random),
    };
    header.exp_cmd_sn = header.exp_cmd_sn.wrapping_sub(random.u32(..3));
    header.max_cmd_sn = header.max_cmd_sn.wrapping_add(random.u32(..4)).wrapping_sub(1);
    let mut ahs = Vec::new();
    match random.u8(..200) {
        0 => header.sn = header.sn.wrapping_add(random.u32(..4)).wrapping_sub(2),
        1 => header.stat_sn = header.stat_sn.wrapping_add(random.u32(..4)).wrapping_sub(2),
        2 => header.offset = header.offset.wrapping_add(random.u32(..8)).wrapping_sub(4),
        3 => header.itt = random.u32(..40),
        4 => ahs = random_bytes(4 * random.usize(1..20), random),
        5 => (header.exp_cmd_sn, header.max_cmd_sn) = (random.u32(..), random.u32(..)),
        6 => header.status = random.u8(..4),
        7 => header.flags = random.u8(..),
        8 => header.response = random.u8(..),
        9 => header.last_word = random.u32(..),
        10 => data = random_bytes(random.usize(..max_data), random),
        11 if random.u8(..3) == 0 => data = random_bytes(max_data + random.usize(1..9), random),
        12 => header.opcode = random.u8(..64),
        13 => header.opcode |= 0xc0,
        _ => {}
    }
    header.pdu_with(crc, open, &ahs, &data)
}

fn length(most: usize, random: &mut Rng) -> usize {
    match random.u8(..8) {
        0 => 0,
        1..4 => random.usize(..=most.min(80)),
        4..7 => random.usize(..=most.min(1200)),
        _ => most,
    }
}

fn data_in(
    session: &SessionEntry,
    command: Option<&CommandEntry>,
    max_data: usize,
    random: &mut Rng,
) -> (Header, Vec<u8>) {
    let mut header = Header { flags: 0, ..Header::of(session, DATA_IN) };
    let Some(command) = command else { return (header, random_bytes(random.usize(..100), random)) };
    let left = command.edtl.saturating_sub(command.next_offset) as usize;
    let data = random_bytes(length(left.min(max_data), random), random);
    (header.itt, header.sn, header.offset) = (command.itt, command.next_sn, command.next_offset);
    header.flags = if random.bool() { FINAL } else { 0 };
    if data.len() == left || random.u8(..10) == 0 {
        header.flags = FINAL | STATUS | [0, 0, 2, 4][random.usize(..4)];
        header.status = [0, 8, 0x18][random.usize(..3)];
        header.last_word = random.u32(..1000);
    }
    (header, data)
}

fn response(session: &SessionEntry, command: Option<&CommandEntry>, random: &mut Rng) -> (Header, Vec<u8>) {
    let header = Header {
        flags: FINAL | [0, 0, 2, 4][random.usize(..4)],
        response: [0, 0, 1, 0x80][random.usize(..4)],
        status: [0, 2, 8][random.usize(..3)],
        itt: command.map_or(77, |command| command.itt),
        last_word: random.u32(..1000),
        ..Header::of(session, RESPONSE)
    };
    let sense = if random.bool() { 0 } else { random.usize(..400) };
    (header, random_bytes(sense, random))
}

fn r2t(session: &SessionEntry, command: Option<&CommandEntry>, open: &OpenConn, random: &mut Rng) -> Header {
    let header = Header { ttt: random.u32(..1000), ..Header::of(session, R2T) };
    let Some(command) = command else { return header };
    let offset = random.u32(..command.edtl.max(1));
    let most = (command.edtl - offset).min(open.max_burst_length);
    Header { itt: command.itt, sn: command.next_sn, offset, last_word: random.u32(1..=most.max(1)), ..header }
}

fn for_software(session: &SessionEntry, max_data: usize, random: &mut Rng) -> (Header, Vec<u8>) {
    let opcode = [NOP_IN, NOP_IN, 0x22, 0x24, 0x32, 0x3f, 0x3c, 0x02, DATA_IN][random.usize(..9)];
    let mut header = Header::of(session, opcode);
    if random.bool() {
        header.itt = random.u32(..);
    }
    header.flags |= random.u8(..2);
    (header, random_bytes(length(max_data, random), random))
}
