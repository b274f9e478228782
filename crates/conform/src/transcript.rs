//! Readable records of the traffic on the wire.
//!
//! One line per PDU, `I>` for those of the initiator and `T<` for those of the target, whichever of them we
//! were; text is shown pair by pair below its PDU. CHAP responses are shown by length only, because a response
//! to a known challenge is enough to guess a weak secret.

use iscsi_wire::{Bhs, Opcode, one_line};
use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of entries per transcript; later ones are only counted.
const MAX_ENTRIES: usize = 20_000;
/// Data bytes kept per PDU.
const MAX_DATA: usize = 256 * 1024;
/// Number of entries that `Display` shows: the last ones.
const SHOWN: usize = 120;

/// The sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The initiator: `I>`.
    Initiator,
    /// The target: `T<`.
    Target,
}

impl Side {
    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Side::Initiator => Side::Target,
            Side::Target => Side::Initiator,
        }
    }
}

/// What happened.
#[derive(Clone, Debug)]
pub enum What {
    /// A complete PDU was sent.
    Pdu {
        /// Its header.
        bhs: Bhs,
        /// Its AHS.
        ahs: Vec<u8>,
        /// Its data segment without padding; at most the first 256 KiB.
        data: Vec<u8>,
        /// What is unusual about it (deliberately wrong digests and the like); empty when nothing is.
        remark: String,
    },
    /// Bytes that are not a PDU were sent.
    Raw(usize),
    /// The connection was opened.
    Opened,
    /// The sender closed the connection cleanly (FIN).
    Closed,
    /// The sender reset the connection (RST).
    Reset,
    /// A note of the script.
    Note(String),
}

/// One line of a transcript.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Counts the connections of the transcript from 1.
    pub connection: u32,
    /// Time since the transcript began.
    pub at: Duration,
    /// The side that did it.
    pub side: Side,
    /// What happened.
    pub what: What,
}

impl Entry {
    /// The header, if the entry is a PDU.
    pub fn bhs(&self) -> Option<&Bhs> {
        match &self.what {
            What::Pdu { bhs, .. } => Some(bhs),
            _ => None,
        }
    }

    /// Is it a PDU of this opcode?
    pub fn is(&self, opcode: Opcode) -> bool {
        self.bhs().is_some_and(|bhs| bhs.opcode() == opcode.code())
    }

    /// The data segment; empty when the entry is not a PDU.
    pub fn data(&self) -> &[u8] {
        match &self.what {
            What::Pdu { data, .. } => data,
            _ => &[],
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrow = match self.side {
            Side::Initiator => "I>",
            Side::Target => "T<",
        };
        write!(f, "{:>2} {arrow} ", self.connection)?;
        match &self.what {
            What::Pdu { bhs, ahs, data, remark } => {
                f.write_str(&one_line(bhs, ahs))?;
                if !remark.is_empty() {
                    write!(f, "  ({remark})")?;
                }
                write_data(f, bhs, data)
            }
            What::Raw(bytes) => write!(f, "{bytes} raw bytes"),
            What::Opened => f.write_str("opens the connection"),
            What::Closed => f.write_str("closes the connection"),
            What::Reset => f.write_str("resets the connection"),
            What::Note(words) => write!(f, "-- {words}"),
        }
    }
}

fn write_data(f: &mut fmt::Formatter<'_>, bhs: &Bhs, data: &[u8]) -> fmt::Result {
    match Opcode::try_from(bhs.opcode()) {
        Ok(Opcode::LoginRequest | Opcode::LoginResponse | Opcode::TextRequest | Opcode::TextResponse) => {
            for item in data.split(|byte| *byte == 0).filter(|item| !item.is_empty()) {
                write!(f, "\n         {}", text_item(item))?;
            }
            Ok(())
        }
        Ok(Opcode::ScsiResponse) if data.len() > 2 => {
            f.write_str(" sense=")?;
            data[2..].iter().take(20).try_for_each(|byte| write!(f, "{byte:02x}"))
        }
        Ok(Opcode::Reject) if data.len() >= Bhs::SIZE => {
            let mut bytes = [0; Bhs::SIZE];
            bytes.copy_from_slice(&data[..Bhs::SIZE]);
            write!(f, "\n         of: {}", one_line(&Bhs::from_bytes(bytes), &[]))
        }
        _ => Ok(()),
    }
}

fn text_item(item: &[u8]) -> String {
    let text = String::from_utf8_lossy(&item[..item.len().min(160)]).escape_debug().to_string();
    match text.split_once('=') {
        Some(("CHAP_R", value)) => format!("CHAP_R=({} characters)", value.len()),
        _ if item.len() > 160 => format!("{text}... ({} bytes)", item.len()),
        _ => text,
    }
}

struct Log {
    begun: Instant,
    entries: Vec<Entry>,
    connections: u32,
    left_out: usize,
}

impl Default for Log {
    fn default() -> Self {
        Log { begun: Instant::now(), entries: Vec::new(), connections: 0, left_out: 0 }
    }
}

/// A transcript that several connections write to; clones share the same transcript.
#[derive(Clone, Default)]
pub struct Transcript(Arc<Mutex<Log>>);

impl Transcript {
    /// An empty transcript.
    pub fn new() -> Self {
        Self::default()
    }

    /// Everything so far.
    pub fn entries(&self) -> Vec<Entry> {
        self.log().entries.clone()
    }

    /// Forgets everything.
    pub fn clear(&self) {
        *self.log() = Log::default();
    }

    /// Adds a note of the script.
    pub fn note(&self, connection: u32, side: Side, words: impl Into<String>) {
        self.push(connection, side, What::Note(words.into()));
    }

    pub(crate) fn open(&self) -> u32 {
        let mut log = self.log();
        log.connections += 1;
        log.connections
    }

    pub(crate) fn push(&self, connection: u32, side: Side, mut what: What) {
        if let What::Pdu { data, .. } = &mut what {
            data.truncate(MAX_DATA);
        }
        let mut log = self.log();
        if log.entries.len() < MAX_ENTRIES {
            let at = log.begun.elapsed();
            log.entries.push(Entry { connection, at, side, what });
        } else {
            log.left_out += 1;
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let log = self.log();
        let skipped = log.entries.len().saturating_sub(SHOWN);
        let mut text = String::new();
        if skipped > 0 {
            writeln!(text, "   ... {skipped} earlier lines")?;
        }
        for entry in &log.entries[skipped..] {
            writeln!(text, "{entry}")?;
        }
        if log.left_out > 0 {
            writeln!(text, "   ... {} later lines not kept", log.left_out)?;
        }
        f.write_str(text.trim_end())
    }
}
