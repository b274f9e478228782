//! GET LBA STATUS(16) (SBC-3 5.4).

use crate::execution::{Continuation, Execution, MediumPlan, Request};
use crate::logical_unit::LogicalUnit;
use crate::medium::{LbaStatusDescriptor, MediumOp, MediumReply};
use crate::outcome::Outcome;
use crate::read_write::check_range;

const HEADER_BYTES: u32 = 8;
const DESCRIPTOR_BYTES: u32 = 16;
/// Maximum number of descriptors requested from the medium for one command, whatever the allocation
/// length.
const MAX_DESCRIPTORS: u32 = 1024;

//= sbc3 5.4 GLB-01
pub(crate) fn get_lba_status(request: &Request<'_>) -> Execution {
    let lba = request.cdb.u64(2);
    let allocation_length = request.cdb.u32(10);
    // The starting block must exist, so the range is not empty.
    if let Err(sense) = check_range(request.lu, lba, 1) {
        return Execution::check(sense);
    }
    let room = allocation_length.saturating_sub(HEADER_BYTES) / DESCRIPTOR_BYTES;
    Execution::medium(
        MediumOp::LbaStatus { lba, max_descriptors: room.clamp(1, MAX_DESCRIPTORS) },
        MediumPlan::then(StatusList { allocation_length }),
    )
}

/// The medium is asked for ranges.
#[derive(Debug)]
struct StatusList {
    allocation_length: u32,
}

impl Continuation for StatusList {
    fn replied(self: Box<Self>, _lu: &LogicalUnit, reply: MediumReply) -> Execution {
        match reply {
            MediumReply::LbaStatus(descriptors) => {
                Execution::done(data(&descriptors, self.allocation_length))
            }
            _ => Execution::good(),
        }
    }
}

/// The parameter list: a header of 8 bytes and 16 bytes for each range.
fn data(descriptors: &[LbaStatusDescriptor], allocation_length: u32) -> Outcome {
    let descriptors = &descriptors[..descriptors.len().min(MAX_DESCRIPTORS as usize)];
    let length = 4 + DESCRIPTOR_BYTES * descriptors.len() as u32;
    let mut data = length.to_be_bytes().to_vec();
    data.extend([0; 4]);
    for descriptor in descriptors {
        data.extend(descriptor.lba.to_be_bytes());
        data.extend(descriptor.blocks.to_be_bytes());
        data.extend([descriptor.provisioning as u8, 0, 0, 0]);
    }
    Outcome::data_in(data, u64::from(allocation_length))
}
