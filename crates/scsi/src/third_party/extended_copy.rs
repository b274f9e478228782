//! EXTENDED COPY with one-byte and four-byte list identifiers, and COPY OPERATION ABORT (SPC-4 6.4, 6.5, 6.3).

use super::cscd::{self, Cscd};
use super::run::{Begin, CopyRun, Segment};
use super::{MAX_CSCDS, MAX_LIST_BYTES, MAX_SEGMENT_BYTES, MAX_SEGMENTS, Stage};
use crate::execution::{Execution, Request};
use crate::sense::{Asc, SenseData, SenseKey};

/// Bytes before the descriptors of LID1.
const HEADER_LID1: usize = 16;
/// Bytes before the descriptors of LID4.
const HEADER_LID4: usize = 48;
/// Segment descriptor type code: from block device to block device.
pub(super) const BLOCK_TO_BLOCK: u8 = 0x02;
/// Bytes of that descriptor.
const SEGMENT_BYTES: usize = 28;
/// SERVICE ACTION.
pub(super) const LID1: u8 = 0x00;
pub(super) const LID4: u8 = 0x01;

/// LIST ID USAGE.
const USAGE_IGNORED: u8 = 0b11;
const USAGE_RESERVED: u8 = 0b01;

/// What the two forms of the parameter list have in common.
struct Header {
    bytes: usize,
    list_id: u32,
    usage: u8,
    /// Length of the CSCD descriptors, and where the list holds it.
    cscds_bytes: usize,
    cscds_at: u16,
    segments_bytes: usize,
    inline_bytes: usize,
    service_action: u8,
}

fn fetch(request: &Request<'_>, header: usize, handler: crate::execution::ParameterHandler) -> Execution {
    let bytes = request.cdb.u32(10) as usize;
    // No parameter list means no copy, and is not an error.
    if bytes == 0 {
        return Execution::good();
    }
    if bytes < header || bytes > header + MAX_LIST_BYTES as usize {
        return Execution::check(SenseData::illegal(Asc::PARAMETER_LIST_LENGTH_ERROR));
    }
    Execution::parameters(request, bytes as u64, handler)
}

pub(crate) fn extended_copy_lid1(request: &Request<'_>) -> Execution {
    fetch(request, HEADER_LID1, list_lid1)
}

pub(crate) fn extended_copy_lid4(request: &Request<'_>) -> Execution {
    fetch(request, HEADER_LID4, list_lid4)
}

fn u16_at(list: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([list[at], list[at + 1]]))
}

fn u32_at(list: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([list[at], list[at + 1], list[at + 2], list[at + 3]])
}

fn u64_at(list: &[u8], at: usize) -> u64 {
    u64::from(u32_at(list, at)) << 32 | u64::from(u32_at(list, at + 4))
}

//= spc4 6.4.1 CPY-01
fn list_lid1(request: &Request<'_>, list: &[u8]) -> Execution {
    let header = Header {
        bytes: HEADER_LID1,
        list_id: u32::from(list[0]),
        usage: list[1] >> 3 & 3,
        cscds_bytes: u16_at(list, 2),
        cscds_at: 2,
        segments_bytes: u32_at(list, 8) as usize,
        inline_bytes: u32_at(list, 12) as usize,
        service_action: LID1,
    };
    if header.usage == USAGE_IGNORED && list[0] != 0 {
        return Execution::check(SenseData::parameter_field(0, None));
    }
    begin(request, list, &header)
}

//= spc4 6.5.1 CPY-05
fn list_lid4(request: &Request<'_>, list: &[u8]) -> Execution {
    // The only list format, and its only kind of header descriptor, which carries no information.
    if list[0] != 1 {
        return Execution::check(SenseData::parameter_field(0, None));
    }
    if u16_at(list, 2) != 0x20 {
        return Execution::check(SenseData::parameter_field(2, None));
    }
    if list[16] != 0xff {
        return Execution::check(SenseData::parameter_field(16, None));
    }
    let header = Header {
        bytes: HEADER_LID4,
        list_id: u32_at(list, 20),
        usage: list[1] >> 3 & 3,
        cscds_bytes: u16_at(list, 42),
        cscds_at: 42,
        segments_bytes: u16_at(list, 44),
        inline_bytes: u16_at(list, 46),
        service_action: LID4,
    };
    if header.usage == USAGE_IGNORED && header.list_id != 0 {
        return Execution::check(SenseData::parameter_field(20, None));
    }
    begin(request, list, &header)
}

fn begin(request: &Request<'_>, list: &[u8], header: &Header) -> Execution {
    match parse(request, list, header) {
        Ok(segments) => CopyRun::begin(
            request.lu,
            request.nexus,
            Begin {
                list_id: header.list_id,
                recorded: header.usage != USAGE_IGNORED,
                service_action: header.service_action,
                segments,
                valid: None,
                last: Stage::Completed,
                asked: list.len() as u64,
            },
        ),
        Err(sense) => Execution::check(sense),
    }
}

/// Nothing is copied until the whole list has been parsed.
//= spc4 6.4.3.1 CPY-02
fn parse(request: &Request<'_>, list: &[u8], header: &Header) -> Result<Vec<Segment>, SenseData> {
    if header.usage == USAGE_RESERVED {
        return Err(SenseData::parameter_field(1, Some(4)));
    }
    let too_many = |asc| Err(SenseData::illegal(asc));
    if header.cscds_bytes > usize::from(MAX_CSCDS) * cscd::BYTES {
        return too_many(Asc::TOO_MANY_CSCD_DESCRIPTORS);
    }
    if !header.cscds_bytes.is_multiple_of(cscd::BYTES) {
        return Err(SenseData::parameter_field(header.cscds_at, None));
    }
    if header.segments_bytes > usize::from(MAX_SEGMENTS) * SEGMENT_BYTES {
        return too_many(Asc::TOO_MANY_SEGMENT_DESCRIPTORS);
    }
    if header.inline_bytes != 0 {
        return Err(SenseData::illegal(Asc::INLINE_DATA_LENGTH_EXCEEDED));
    }
    let segments_at = header.bytes + header.cscds_bytes;
    if segments_at + header.segments_bytes > list.len() {
        return Err(SenseData::illegal(Asc::PARAMETER_LIST_LENGTH_ERROR));
    }
    let mut cscds: Vec<Cscd> = Vec::new();
    for at in (header.bytes..segments_at).step_by(cscd::BYTES) {
        cscds.push(cscd::parse(request.lu, &list[at..at + cscd::BYTES], at)?);
    }
    let mut segments = Vec::new();
    let (mut at, end) = (segments_at, segments_at + header.segments_bytes);
    while at < end {
        let descriptor = &list[at..end];
        if descriptor[0] != BLOCK_TO_BLOCK {
            return Err(SenseData::illegal(Asc::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE));
        }
        if descriptor.len() < SEGMENT_BYTES || u16_at(descriptor, 2) != SEGMENT_BYTES - 4 {
            return Err(SenseData::parameter_field(u16::try_from(at + 2).unwrap_or(u16::MAX), None));
        }
        segments.push(segment(&descriptor[..SEGMENT_BYTES], &cscds, at)?);
        at += SEGMENT_BYTES;
    }
    Ok(segments)
}

fn segment(descriptor: &[u8], cscds: &[Cscd], at: usize) -> Result<Segment, SenseData> {
    let wrong =
        |offset: usize| SenseData::parameter_field(u16::try_from(at + offset).unwrap_or(u16::MAX), None);
    let unreachable = SenseData::new(SenseKey::CopyAborted, Asc::UNREACHABLE_COPY_TARGET);
    let side = |offset: usize| cscds.get(u16_at(descriptor, offset)).copied().ok_or(unreachable);
    let (from, to) = (side(4)?, side(6)?);
    // If the block lengths differ, a count is inexact for one side; no known host copies that way.
    if from.block_bytes != to.block_bytes {
        return Err(SenseData::new(SenseKey::CopyAborted, Asc::INEXACT_SEGMENT));
    }
    let blocks = u16_at(descriptor, 10) as u64;
    if blocks * u64::from(to.block_bytes) > u64::from(MAX_SEGMENT_BYTES) {
        return Err(wrong(10));
    }
    Ok(Segment { from: Some((from, u64_at(descriptor, 12))), to: (to, u64_at(descriptor, 20)), blocks })
}

/// Every copy runs within its command, so the named copy either has ended or ends with that command's task. A finished
/// copy needs no abort; one that still runs is cancelled.
//= spc4 6.3 CPY-05
pub(crate) fn copy_operation_abort(request: &Request<'_>) -> Execution {
    let list_id = request.cdb.u32(2);
    let known = request.lu.with_state(|state| match state.copies.find(request.nexus.id, list_id) {
        // Of no consequence for one that has ended.
        Some(record) => {
            record.cancel();
            true
        }
        None => false,
    });
    if known { Execution::good() } else { Execution::check(SenseData::cdb_field(2, None)) }
}
