//! The order in which the data of a read may arrive, and in which that of a write may be requested (RFC 7143 13.18, 13.19).

use iscsi_wire::DataIn;

use super::actions::{CloseReason, violation};
use crate::extents::{Extents, Refused};
use crate::params::DataOrder;

/// The data of one read that has arrived.
#[derive(Clone, Debug, Default)]
pub(super) struct Scoreboard {
    extents: Extents,
    /// Offset of the next PDU of the sequence under way.
    next_in_sequence: Option<u32>,
}

impl Scoreboard {
    /// Enters a Data-In that lies within the command's data.
    //= rfc7143 13.19 DAT-05
    pub(super) fn enter(&mut self, order: DataOrder, pdu: &DataIn, length: usize) -> Result<(), CloseReason> {
        let offset = pdu.buffer_offset;
        if order.pdus
            && let Some(due) = self.next_in_sequence
            && offset != due
        {
            let what = format!("Data-In at offset {offset} where {due} was due in its sequence");
            return Err(violation("RFC 7143 13.18", what));
        }
        self.extents.add(offset, length).map_err(|refused| match refused {
            Refused::Overlap => {
                violation("RFC 7143 11.7.6", format!("Data-In at offset {offset} has bytes that came before"))
            }
            Refused::TooMany => violation("RFC 7143 13.18", "Data-In leaves more holes than can be recorded"),
            Refused::TooLong => violation("RFC 7143 11.7.6", "Data-In beyond what a command can transfer"),
        })?;
        self.next_in_sequence = (!pdu.final_bit).then_some(offset.saturating_add(length as u32));
        if order.sequences && pdu.final_bit && self.extents.has_gap() {
            return Err(violation("RFC 7143 13.19", "a sequence of Data-In ends with a gap"));
        }
        Ok(())
    }

    /// Bytes from the start up to the first that is missing.
    pub(super) fn whole_from_start(&self) -> u32 {
        self.extents.whole_from_start()
    }

    /// Checks that nothing is missing before data that has arrived, at a GOOD status.
    pub(super) fn check_end(&self) -> Result<(), CloseReason> {
        match self.extents.has_gap() {
            true => Err(violation("RFC 7143 11.7.6", "a read ends with GOOD status and a gap in its data")),
            false => Ok(()),
        }
    }
}
