//! Which blocks of a store are mapped (SBC-3 5.6 GET LBA STATUS).

use blockstore::StoreError;
use scsi::{LbaStatusDescriptor, MediumReply, Provisioning};

use crate::unit::Unit;

/// The state of the blocks from `lba` on, in at most `max_descriptors` descriptors.
pub(crate) fn lba_status(unit: &Unit, lba: u64, max_descriptors: u32) -> Result<MediumReply, StoreError> {
    let geometry = unit.store.geometry();
    let block = u64::from(unit.scsi.block_bytes());
    let (mut at, end) = (lba * block, geometry.size_bytes);
    let mut list: Vec<LbaStatusDescriptor> = Vec::new();
    'all: while at < end {
        for extent in unit.store.extents(at, end - at, max_descriptors as usize)? {
            // A block is deallocated only when all of it is.
            let (first, last) = if extent.mapped {
                (extent.offset / block, (extent.offset + extent.len).div_ceil(block))
            } else {
                (extent.offset.div_ceil(block), (extent.offset + extent.len) / block)
            };
            at = extent.offset + extent.len;
            let first = list.last().map_or(lba, |d| d.lba + u64::from(d.blocks)).max(first);
            let provisioning = if extent.mapped { Provisioning::Mapped } else { Provisioning::Deallocated };
            let mut from = first;
            while from < last {
                let blocks = u32::try_from(last - from).unwrap_or(u32::MAX);
                let full = list.len() == max_descriptors as usize;
                match list.last_mut() {
                    Some(d) if d.provisioning == provisioning && d.blocks.checked_add(blocks).is_some() => {
                        d.blocks += blocks
                    }
                    _ if full => break 'all,
                    _ => list.push(LbaStatusDescriptor { lba: from, blocks, provisioning }),
                }
                from += u64::from(blocks);
            }
        }
    }
    Ok(MediumReply::LbaStatus(list))
}
