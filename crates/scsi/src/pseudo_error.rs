//! WRITE LONG(10) and (16), as far as SBC-4 retains them: they mark a block as unreadable and transfer no data. Test programs use
//! them to see how a host handles a bad block.
//!
//! A command that reads a marked block ends with 3/11/14 and the block's address, until the block is written, unmapped or erased.
//! The unit holds the mark, not the medium: it survives resets and configuration changes, but not the end of the server. Not
//! supported: data and its error correction (WR_UNCOR 0), which SBC-4 has made obsolete together with READ LONG.

use std::collections::BTreeSet;

use crate::execution::{Execution, Request};
use crate::logical_unit::LogicalUnit;
use crate::read_write::check_range;
use crate::sense::{Asc, SenseData, SenseKey};

/// Maximum number of marked blocks of a unit; further ones are rejected with 5/55/03.
const MAX_MARKED_BLOCKS: usize = 256;
/// WR_UNCOR in byte 1 of the CDB.
const WR_UNCOR_BIT: u8 = 6;

/// The marked blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct PseudoErrors(BTreeSet<u64>);

impl PseudoErrors {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The sense for a command that reads these blocks, if one of them is marked.
    //= sbc4 4.18.2 SNS-02
    pub(crate) fn sense(&self, lba: u64, blocks: u64) -> Option<SenseData> {
        let first = self.0.range(lba..lba.saturating_add(blocks)).next()?;
        let sense = SenseData::new(SenseKey::MediumError, Asc::MARKED_BAD_BY_APPLICATION_CLIENT);
        Some(sense.with_information(*first))
    }

    /// These blocks have new contents.
    pub(crate) fn clear(&mut self, lba: u64, blocks: u64) {
        let end = lba.saturating_add(blocks);
        self.0.retain(|marked| *marked < lba || *marked >= end);
    }

    fn mark(&mut self, lba: u64) -> bool {
        let room = self.0.len() < MAX_MARKED_BLOCKS || self.0.contains(&lba);
        if room {
            self.0.insert(lba);
        }
        room
    }
}

fn write_long(request: &Request<'_>, lba: u64) -> Execution {
    if !request.cdb.bit(1, WR_UNCOR_BIT) {
        return Execution::check(SenseData::cdb_field(1, Some(WR_UNCOR_BIT)));
    }
    let lu: &LogicalUnit = request.lu;
    if let Err(sense) = check_range(lu, lba, 1) {
        return Execution::check(sense);
    }
    // The old contents are gone.
    lu.about_to_change(lba, 1);
    match lu.with_state(|state| state.pseudo_errors.mark(lba)) {
        true => Execution::good(),
        false => Execution::check(SenseData::illegal(Asc::INSUFFICIENT_RESOURCES)),
    }
}

//= sbc4 5.50 SNS-02
pub(crate) fn write_long_10(request: &Request<'_>) -> Execution {
    write_long(request, request.cdb.u32(2).into())
}

//= sbc4 5.51 SNS-02
pub(crate) fn write_long_16(request: &Request<'_>) -> Execution {
    write_long(request, request.cdb.u64(2))
}
