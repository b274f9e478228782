//! RECEIVE COPY RESULTS in its forms, and RECEIVE ROD TOKEN INFORMATION (SPC-4 6.17 to 6.20, 6.27).

use super::token::TOKEN_BYTES;
use super::{
    MAX_CONCURRENT, MAX_CSCDS, MAX_LIST_BYTES, MAX_SEGMENT_BYTES, MAX_SEGMENTS, Record, Stage, cscd,
    extended_copy,
};
use crate::execution::{Execution, Request};
use crate::outcome::Outcome;
use crate::sense::SenseData;

/// Sense data is always sent at this length, so that the fields after it are at a fixed offset.
const SENSE_BYTES: usize = crate::sense::FIXED_SENSE_BYTES;
/// TRANSFER COUNT UNITS.
const KIBIBYTES: u8 = 1;
const BLOCKS: u8 = 0xf1;

fn answer(request: &Request<'_>, mut data: Vec<u8>) -> Execution {
    let available = (data.len() - 4) as u32;
    data[..4].copy_from_slice(&available.to_be_bytes());
    Execution::done(Outcome::data_in(data, request.cdb.u32(10).into()))
}

/// Calls `f` with the record that the list identifier names; rejects the command if there is none.
fn with_record(
    request: &Request<'_>,
    list_id: u32,
    f: impl FnOnce(&mut Record) -> Option<Vec<u8>>,
) -> Execution {
    let data = request.lu.with_state(|state| state.copies.find(request.nexus.id, list_id).and_then(f));
    match data {
        Some(data) => answer(request, data),
        None => Execution::check(SenseData::cdb_field(2, None)),
    }
}

//= spc4 6.18 CPY-04
pub(crate) fn copy_status_lid1(request: &Request<'_>) -> Execution {
    let list_id = request.cdb.u8(2).into();
    let answer = with_record(request, list_id, |record| {
        if record.service_action != extended_copy::LID1 {
            return None;
        }
        let mut data = vec![0; 12];
        data[4] = match record.stage {
            Stage::Running => 0,
            Stage::Completed | Stage::Residual => 1,
            Stage::Failed(_) | Stage::Aborted => 2,
        };
        data[5..7].copy_from_slice(&record.segments.to_be_bytes());
        data[7] = KIBIBYTES;
        let count = u32::try_from(record.bytes >> 10).unwrap_or(u32::MAX);
        data[8..12].copy_from_slice(&count.to_be_bytes());
        Some(data)
    });
    // The result of a successful copy is reported once; details of a failure stay for RECEIVE COPY FAILURE DETAILS.
    request.lu.with_state(|state| {
        let done = state
            .copies
            .find(request.nexus.id, list_id)
            .is_some_and(|r| r.service_action == extended_copy::LID1 && r.stage == Stage::Completed);
        if done {
            state.copies.forget(request.nexus.id, list_id);
        }
    });
    answer
}

//= spc4 6.19 CPY-01
pub(crate) fn operating_parameters(request: &Request<'_>) -> Execution {
    let mut data = vec![0; 44];
    data[4] = 1; // SNLID: LIST ID USAGE 11b is supported.
    data[8..10].copy_from_slice(&MAX_CSCDS.to_be_bytes());
    data[10..12].copy_from_slice(&MAX_SEGMENTS.to_be_bytes());
    data[12..16].copy_from_slice(&MAX_LIST_BYTES.to_be_bytes());
    data[16..20].copy_from_slice(&MAX_SEGMENT_BYTES.to_be_bytes());
    data[34..36].copy_from_slice(&u16::from(MAX_CONCURRENT).to_be_bytes());
    data[36] = MAX_CONCURRENT;
    data[37] = request.lu.block_bytes().trailing_zeros() as u8;
    let types = [extended_copy::BLOCK_TO_BLOCK, cscd::IDENTIFICATION];
    data[43] = types.len() as u8;
    data.extend(types);
    answer(request, data)
}

//= spc4 6.17 CPY-04
pub(crate) fn failed_segment_details(request: &Request<'_>) -> Execution {
    let list_id = request.cdb.u8(2).into();
    let result = with_record(request, list_id, |record| match record.stage {
        Stage::Failed(sense) => {
            let mut data = vec![0; 60];
            data[56] = crate::Status::CheckCondition as u8;
            data[58..60].copy_from_slice(&(SENSE_BYTES as u16).to_be_bytes());
            data.extend(sense.to_bytes(false));
            Some(data)
        }
        Stage::Running => None,
        _ => Some(vec![0; 4]),
    });
    request.lu.with_state(|state| {
        if state.copies.find(request.nexus.id, list_id).is_some_and(|r| r.stage != Stage::Running) {
            state.copies.forget(request.nexus.id, list_id);
        }
    });
    result
}

/// The header shared by all answers about copies with a four-byte identifier, including sense data.
fn status(record: &Record, unit: u8, count: u64) -> Vec<u8> {
    let mut data = vec![0; 32];
    data[4] = record.service_action;
    data[5] = match record.stage {
        Stage::Completed => 0x01,
        Stage::Failed(_) => 0x02,
        Stage::Residual => 0x04,
        Stage::Running => 0x10,
        Stage::Aborted => 0x60,
    };
    // OPERATION COUNTER: changes from one step to the next.
    data[6..8].copy_from_slice(&record.segments.to_be_bytes());
    if record.stage != Stage::Running {
        // ESTIMATED STATUS UPDATE DELAY: none, it has ended.
        data[8..12].copy_from_slice(&0xffff_fffeu32.to_be_bytes());
    }
    data[13] = SENSE_BYTES as u8;
    data[15] = unit;
    data[16..24].copy_from_slice(&count.to_be_bytes());
    data[24..26].copy_from_slice(&record.segments.to_be_bytes());
    match record.stage {
        Stage::Failed(sense) => {
            data[12] = crate::Status::CheckCondition as u8;
            data[14] = SENSE_BYTES as u8;
            data.extend(sense.to_bytes(false));
        }
        _ => data.resize(32 + SENSE_BYTES, 0),
    }
    data
}

//= spc4 6.20 CPY-05
pub(crate) fn copy_status_lid4(request: &Request<'_>) -> Execution {
    with_record(request, request.cdb.u32(2), |record| Some(status(record, KIBIBYTES, record.bytes >> 10)))
}

//= spc4 6.27 ODX-01 ODX-04
pub(crate) fn rod_token_information(request: &Request<'_>) -> Execution {
    let block_bytes = u64::from(request.lu.block_bytes());
    with_record(request, request.cdb.u32(2), |record| {
        let mut data = status(record, BLOCKS, record.bytes / block_bytes);
        match &record.token {
            Some(token) => {
                data.extend(((TOKEN_BYTES + 2) as u32).to_be_bytes());
                data.extend([0, 0]);
                data.extend(token.iter());
            }
            None => data.extend([0; 4]),
        }
        Some(data)
    })
}
