//! Copies by token: POPULATE TOKEN and WRITE USING TOKEN (SBC-3 5.7, 5.46; SPC-4 5.17.6, 6.4.6).
//!
//! A token represents blocks of the unit that made it, as they are at that moment, and is revoked as soon as one of them is
//! about to change (the "change vulnerable" type). So it costs no copy of the data, and no host ever gets data other than what
//! the token represents. Hosts that find a token revoked read and write the data themselves.
//!
//! Tokens cannot be forged: a token holds 32 bytes that only a holder of the unit's secret can compute, and is compared as a
//! whole.

use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::cscd::{self, Cscd};
use super::run::{Begin, CopyRun, Segment, revoked};
use super::{MAX_RANGES, MAX_TOKEN_BYTES, Record, Stage};
use crate::execution::{Execution, Request};
use crate::logical_unit::LogicalUnit;
use crate::read_write::check_range;
use crate::sense::{Asc, SenseData};

/// Bytes of a token.
pub(super) const TOKEN_BYTES: usize = 512;
/// Maximum number of tokens that a unit keeps.
const MAX_TOKENS: usize = 64;
/// ROD TYPE.
pub(super) const ANY: u32 = 0;
pub(super) const CHANGE_VULNERABLE: u32 = 0x0080_0001;
pub(super) const ZEROS: u32 = 0xffff_0001;
/// SERVICE ACTION.
pub(super) const POPULATE: u8 = 0x10;
pub(super) const WRITE_USING: u8 = 0x11;
/// INACTIVITY TIMEOUT, seconds.
pub(super) const DEFAULT_TIMEOUT_S: u32 = 30;
pub(super) const MAX_TIMEOUT_S: u32 = 300;
/// Bytes of a block device range descriptor.
const RANGE_BYTES: usize = 16;
/// Where the ranges begin in the parameter lists.
const POPULATE_HEADER: usize = 16;
const WRITE_HEADER: usize = 536;

/// A token as transferred.
pub(super) type RodToken = [u8; TOKEN_BYTES];

/// A token that a unit has made.
#[derive(Debug)]
struct Held {
    bytes: Box<RodToken>,
    ranges: Vec<(u64, u64)>,
    valid: Arc<AtomicBool>,
    timeout: Duration,
    expires: Duration,
}

impl Held {
    /// A copy that started while the token was usable has not finished.
    fn is_being_copied(&self) -> bool {
        Arc::strong_count(&self.valid) > 1
    }
}

/// The tokens of a unit.
#[derive(Debug, Default)]
pub(crate) struct RodTokens {
    held: Vec<Held>,
    made: u64,
}

impl RodTokens {
    /// Whether there are no tokens; if there are, writes must call [`RodTokens::changing`].
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Revokes every token that represents a block of the range.
    //= spc4 5.17.6.4 ODX-03
    pub(crate) fn changing(&mut self, lba: u64, blocks: u64) {
        let end = lba.saturating_add(blocks);
        for held in &self.held {
            if held.ranges.iter().any(|&(at, n)| at < end && lba < at.saturating_add(n)) {
                held.valid.store(false, Ordering::Release);
            }
        }
    }

    /// Whether another token can be kept: expired or revoked tokens make room.
    fn has_room(&mut self, now: Duration) -> bool {
        if self.held.len() >= MAX_TOKENS {
            let is_of_use = |held: &Held| held.expires > now && held.valid.load(Ordering::Acquire);
            self.held.retain(|held| is_of_use(held) || held.is_being_copied());
        }
        self.held.len() < MAX_TOKENS
    }

    /// Discards a token that is no longer usable, unless a copy still relies on notification of changes to its blocks.
    fn retire(&mut self, at: usize) {
        if !self.held[at].is_being_copied() {
            self.held.swap_remove(at);
        }
    }
}

fn fetch(request: &Request<'_>, header: usize, handler: crate::execution::ParameterHandler) -> Execution {
    let bytes = request.cdb.u32(10) as usize;
    if bytes == 0 {
        return Execution::good();
    }
    if bytes < header || bytes > header + usize::from(MAX_RANGES) * RANGE_BYTES {
        return Execution::check(SenseData::illegal(Asc::PARAMETER_LIST_LENGTH_ERROR));
    }
    Execution::parameters(request, bytes as u64, handler)
}

pub(crate) fn populate_token(request: &Request<'_>) -> Execution {
    fetch(request, POPULATE_HEADER, |request, list| populate(request, list).unwrap_or_else(Execution::check))
}

pub(crate) fn write_using_token(request: &Request<'_>) -> Execution {
    fetch(request, WRITE_HEADER, |request, list| write_using(request, list).unwrap_or_else(Execution::check))
}

fn field(at: usize) -> SenseData {
    SenseData::parameter_field(u16::try_from(at).unwrap_or(u16::MAX), None)
}

/// The range descriptors, whose length is two bytes before `header`: within the unit, and without overlaps.
//= sbc3 5.7.3 ODX-01
fn ranges(request: &Request<'_>, list: &[u8], header: usize) -> Result<Vec<(u64, u64)>, SenseData> {
    let at = header - 2;
    let length = usize::from(u16::from_be_bytes([list[at], list[at + 1]]));
    if length == 0 || !length.is_multiple_of(RANGE_BYTES) {
        return Err(field(at));
    }
    if length / RANGE_BYTES > usize::from(MAX_RANGES) {
        return Err(SenseData::illegal(Asc::TOO_MANY_SEGMENT_DESCRIPTORS));
    }
    if header + length > list.len() {
        return Err(SenseData::illegal(Asc::PARAMETER_LIST_LENGTH_ERROR));
    }
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let mut total = 0u64;
    for (i, descriptor) in list[header..header + length].chunks_exact(RANGE_BYTES).enumerate() {
        let (lba, rest) = descriptor.split_at(8);
        let lba = u64::from_be_bytes(lba.try_into().unwrap_or_default());
        let blocks = u64::from(u32::from_be_bytes(rest[..4].try_into().unwrap_or_default()));
        check_range(request.lu, lba, blocks)?;
        if ranges.iter().any(|&(at, n)| at < lba + blocks && lba < at + n) {
            return Err(field(header + i * RANGE_BYTES));
        }
        total += blocks;
        ranges.push((lba, blocks));
    }
    if total * u64::from(request.lu.block_bytes()) > MAX_TOKEN_BYTES {
        return Err(field(header + 8));
    }
    Ok(ranges)
}

fn populate(request: &Request<'_>, list: &[u8]) -> Result<Execution, SenseData> {
    let lu = request.lu;
    if usize::from(u16::from_be_bytes([list[0], list[1]])) < POPULATE_HEADER - 2 {
        return Err(field(0));
    }
    let number = |at: usize| u32::from_be_bytes([list[at], list[at + 1], list[at + 2], list[at + 3]]);
    let timeout = match number(4) {
        0 => DEFAULT_TIMEOUT_S,
        seconds if seconds > MAX_TIMEOUT_S => return Err(field(4)),
        seconds => seconds,
    };
    // RTV: the host names a type.
    if list[2] & 0x02 != 0 && !matches!(number(8), ANY | CHANGE_VULNERABLE) {
        return Err(field(8));
    }
    let ranges = ranges(request, list, POPULATE_HEADER)?;
    let blocks: u64 = ranges.iter().map(|&(_, blocks)| blocks).sum();
    let bytes = blocks * u64::from(lu.block_bytes());
    let timeout = Duration::from_secs(timeout.into());
    let now = lu.now();
    lu.with_state(|state| {
        if !state.tokens.has_room(now) {
            return Err(SenseData::illegal(Asc::INSUFFICIENT_RESOURCES_FOR_ROD_TOKEN));
        }
        state.tokens.made += 1;
        let token = Box::new(make(lu, state.tokens.made, bytes));
        state.copies.begin(Record {
            nexus: request.nexus.id,
            list_id: request.cdb.u32(6),
            service_action: POPULATE,
            stage: Stage::Completed,
            cancelled: Weak::new(),
            segments: 0,
            bytes,
            token: Some(token.clone()),
        })?;
        state.tokens.held.push(Held {
            bytes: token,
            ranges,
            valid: Arc::new(AtomicBool::new(true)),
            timeout,
            expires: now.saturating_add(timeout),
        });
        Ok(Execution::good())
    })
}

/// A new token of `lu` (SPC-4 table 128).
fn make(lu: &LogicalUnit, serial: u64, bytes: u64) -> RodToken {
    let mut token = [0; TOKEN_BYTES];
    token[..4].copy_from_slice(&CHANGE_VULNERABLE.to_be_bytes());
    token[6..8].copy_from_slice(&((TOKEN_BYTES - 8) as u16).to_be_bytes());
    token[8..16].copy_from_slice(&serial.to_be_bytes());
    token[16..16 + cscd::BYTES].copy_from_slice(&cscd::descriptor(lu.config()));
    token[56..64].copy_from_slice(&bytes.to_be_bytes());
    let secret = lu.config().token_secret.unwrap_or_default();
    let proof = Sha256::new().chain_update(secret).chain_update(&token[..128]).finalize();
    token[128..160].copy_from_slice(&proof);
    token
}

//= sbc3 5.46 ODX-02
fn write_using(request: &Request<'_>, list: &[u8]) -> Result<Execution, SenseData> {
    let lu = request.lu;
    if usize::from(u16::from_be_bytes([list[0], list[1]])) < WRITE_HEADER - 2 {
        return Err(field(0));
    }
    let offset = u64::from_be_bytes(list[8..16].try_into().unwrap_or_default());
    let token = &list[16..16 + TOKEN_BYTES];
    let destination = ranges(request, list, WRITE_HEADER)?;
    let wanted: u64 = destination.iter().map(|&(_, blocks)| blocks).sum();
    let own = Cscd::of(lu);
    let (pieces, valid) = if token[..4] == ZEROS.to_be_bytes() {
        let rest = &token[8..];
        if usize::from(u16::from_be_bytes([token[6], token[7]])) != TOKEN_BYTES - 8
            || rest.iter().any(|&b| b != 0)
        {
            return Err(SenseData::illegal(Asc::TOKEN_CORRUPT));
        }
        (vec![(None, wanted)], None)
    } else {
        let source = find(lu, token, list[2] & 0x02 != 0)?;
        if source.cscd.block_bytes != own.block_bytes {
            return Err(SenseData::new(crate::SenseKey::CopyAborted, Asc::INEXACT_SEGMENT));
        }
        let mut skip = offset;
        let mut pieces = Vec::new();
        for (lba, blocks) in source.ranges {
            let skipped = skip.min(blocks);
            skip -= skipped;
            if blocks > skipped {
                pieces.push((Some((source.cscd, lba + skipped)), blocks - skipped));
            }
        }
        if pieces.is_empty() {
            return Err(field(8));
        }
        (pieces, Some(source.valid))
    };
    let (segments, copied) = pair(&pieces, &destination, own);
    let begin = Begin {
        list_id: request.cdb.u32(6),
        recorded: true,
        service_action: WRITE_USING,
        segments,
        valid,
        last: if copied < wanted { Stage::Residual } else { Stage::Completed },
        asked: list.len() as u64,
    };
    Ok(CopyRun::begin(lu, request.nexus, begin))
}

/// Source pieces mapped to the destination's ranges, and the total number of blocks.
fn pair(pieces: &[(Option<(Cscd, u64)>, u64)], destination: &[(u64, u64)], own: Cscd) -> (Vec<Segment>, u64) {
    let (mut segments, mut copied) = (Vec::new(), 0);
    let mut pieces = pieces.iter().copied();
    let mut piece = pieces.next();
    for &(mut lba, mut blocks) in destination {
        while blocks > 0 {
            let Some((from, left)) = piece else { return (segments, copied) };
            let n = left.min(blocks);
            segments.push(Segment { from, to: (own, lba), blocks: n });
            (lba, blocks, copied) = (lba + n, blocks - n, copied + n);
            piece = if left > n {
                Some((from.map(|(cscd, at)| (cscd, at + n)), left - n))
            } else {
                pieces.next()
            };
        }
    }
    (segments, copied)
}

/// What a token represents.
struct Source {
    cscd: Cscd,
    ranges: Vec<(u64, u64)>,
    valid: Arc<AtomicBool>,
}

/// Finds the unit that made `token`, and what the token represents.
//= spc4 5.17.6.5 ODX-03
fn find(lu: &LogicalUnit, token: &[u8], delete: bool) -> Result<Source, SenseData> {
    match u32::from_be_bytes(token[..4].try_into().unwrap_or_default()) {
        CHANGE_VULNERABLE => {}
        _ => return Err(SenseData::illegal(Asc::UNSUPPORTED_TOKEN_TYPE)),
    }
    if usize::from(u16::from_be_bytes([token[6], token[7]])) != TOKEN_BYTES - 8 {
        return Err(SenseData::illegal(Asc::INVALID_TOKEN_LENGTH));
    }
    let mut found = None;
    let mut ask = |unit: &LogicalUnit| {
        if cscd::descriptor(unit.config()) == token[16..16 + cscd::BYTES] {
            found = Some(unit.with_state(|state| take(&mut state.tokens, unit, token, delete)));
        }
        found.is_none()
    };
    if ask(lu)
        && let Some(neighbours) = lu.neighbours()
    {
        neighbours.each(&mut ask);
    }
    // A token of another target would need a path to that target.
    found.unwrap_or(Err(SenseData::illegal(Asc::REMOTE_TOKEN_NOT_SUPPORTED)))
}

fn take(tokens: &mut RodTokens, unit: &LogicalUnit, token: &[u8], delete: bool) -> Result<Source, SenseData> {
    let now = unit.now();
    let at = tokens
        .held
        .iter()
        .position(|held| held.bytes[..] == *token)
        .ok_or(SenseData::illegal(Asc::TOKEN_UNKNOWN))?;
    if tokens.held[at].expires <= now {
        tokens.retire(at);
        return Err(SenseData::illegal(Asc::TOKEN_EXPIRED));
    }
    if !tokens.held[at].valid.load(Ordering::Acquire) {
        tokens.retire(at);
        return Err(revoked());
    }
    let held = &mut tokens.held[at];
    held.expires = now.saturating_add(held.timeout);
    let source = Source { cscd: Cscd::of(unit), ranges: held.ranges.clone(), valid: Arc::clone(&held.valid) };
    // DEL_TKN: this use is the last.
    if delete {
        held.expires = now;
    }
    Ok(source)
}
