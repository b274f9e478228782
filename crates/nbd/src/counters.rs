//! What a server counts, for metrics: connections, requests, bytes, errors. What the requests do to a unit is counted there, with the
//! commands of the other transports ([`crate::Export::ended`]).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::wire::{Errno, command};

/// Why a connection was not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// As many connections as there may be were open ([`crate::CONNECTIONS_MAX`]).
    Full,
    /// The handshake broke a rule, took too long, or TLS failed.
    Handshake,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Full, Self::Handshake];

    /// A word for labels.
    pub fn label(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Handshake => "handshake",
        }
    }
}

/// The kinds of requests that are counted separately; the last one is any other.
pub const COMMANDS: [&str; 8] =
    ["read", "write", "flush", "trim", "cache", "write_zeroes", "block_status", "unknown"];

fn command_index(number: u16) -> usize {
    match number {
        command::READ => 0,
        command::WRITE => 1,
        command::FLUSH => 2,
        command::TRIM => 3,
        command::CACHE => 4,
        command::WRITE_ZEROES => 5,
        command::BLOCK_STATUS => 6,
        _ => 7,
    }
}

/// The errors that replies may have, with a word for labels.
pub const ERRORS: [(Errno, &str); 5] = [
    (Errno::Perm, "perm"),
    (Errno::Io, "io"),
    (Errno::Inval, "inval"),
    (Errno::Nospc, "nospc"),
    (Errno::Shutdown, "shutdown"),
];

/// The counts of a server. Those that grow begin at 0 when it starts.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections that were served, without and with TLS.
    served: [AtomicU64; 2],
    ended: AtomicU64,
    refused: [AtomicU64; Refusal::ALL.len()],
    requests: [AtomicU64; COMMANDS.len()],
    errors: [AtomicU64; ERRORS.len()],
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
}

/// A connection that is served, until this is dropped.
#[derive(Debug)]
pub(crate) struct Served<'a>(&'a Counters);

impl Drop for Served<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

fn add(count: &AtomicU64, n: u64) {
    count.fetch_add(n, Ordering::Relaxed);
}

fn now(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

impl Counters {
    pub(crate) fn serve(&self, tls: bool) -> Served<'_> {
        add(&self.served[usize::from(tls)], 1);
        Served(self)
    }

    pub(crate) fn refuse(&self, why: Refusal) {
        add(&self.refused[why as usize], 1);
    }

    pub(crate) fn request(&self, number: u16) {
        add(&self.requests[command_index(number)], 1);
    }

    pub(crate) fn fail(&self, errno: Errno) {
        if let Some(index) = ERRORS.iter().position(|(one, _)| *one == errno) {
            add(&self.errors[index], 1);
        }
    }

    pub(crate) fn receive(&self, bytes: u64) {
        add(&self.received_bytes, bytes);
    }

    pub(crate) fn send(&self, bytes: u64) {
        add(&self.sent_bytes, bytes);
    }

    /// Connections that are served now.
    pub fn open(&self) -> u64 {
        // Ended ones are read first, so that a connection that ends meanwhile does not make the difference negative.
        let ended = now(&self.ended);
        self.served(false) + self.served(true) - ended
    }

    /// Connections that were served so far, with or without TLS.
    pub fn served(&self, tls: bool) -> u64 {
        now(&self.served[usize::from(tls)])
    }

    /// Connections that were not served.
    pub fn refused(&self, why: Refusal) -> u64 {
        now(&self.refused[why as usize])
    }

    /// Requests by kind, in the order of [`COMMANDS`].
    pub fn requests(&self) -> [u64; COMMANDS.len()] {
        std::array::from_fn(|index| now(&self.requests[index]))
    }

    /// Replies with an error, in the order of [`ERRORS`].
    pub fn errors(&self) -> [u64; ERRORS.len()] {
        std::array::from_fn(|index| now(&self.errors[index]))
    }

    /// Data of writes received, bytes.
    pub fn received_bytes(&self) -> u64 {
        now(&self.received_bytes)
    }

    /// Data of reads sent, bytes.
    pub fn sent_bytes(&self) -> u64 {
        now(&self.sent_bytes)
    }
}
