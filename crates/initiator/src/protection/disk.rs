//! A disk whose blocks are protected from the caller's memory on.

use std::io::{IoSlice, IoSliceMut};

use integrity::t10::{Guard, TUPLE_BYTES};
use iscsi_core::initiator::command::{WriteBuilder, WriteData};

use super::host::{HostBuffers, HostBuffersMut};
use super::scatter::total;
use super::{Checked, PiTags, Protection, ProtectionType};
use crate::cdb;
use crate::disk::Disk;
use crate::error::IoError;

/// How often a comparison is retried because only tuples had changed.
const MAX_TUPLE_RACES: usize = 4;

/// VERIFY that makes the unit check the tuples on the medium, even if the unit checks only on request (DPICZ). For type 2 the
/// caller must know the reference tags.
//= spc4 7.5.8 PI-07
fn verify_cdb(kind: ProtectionType, lba: u64, blocks: u32) -> cdb::Cdb {
    let mut cdb = cdb::verify(lba, blocks);
    if matches!(kind, ProtectionType::Type1 | ProtectionType::Type3) {
        cdb[1] |= super::PROTECT << 5;
    }
    cdb
}

impl Disk {
    /// The same disk with its blocks protected: from here on, written blocks carry tuples made in this process, and read blocks
    /// are checked here, in addition to the checks of the target.
    ///
    /// Type 2 uses the 32-byte commands. COMPARE AND WRITE has no 32-byte form: in type 2 it is sent without tuples, and the
    /// target generates them.
    ///
    /// # Errors
    /// [`IoError::Request`] if the unit is not formatted with protection information, or the tags make no sense for its type.
    pub fn protected(&self, tags: PiTags) -> Result<Self, IoError> {
        let errors = self.session().protection_errors().clone();
        let unit = &self.info().protection;
        let protection = Protection::new(unit, self.lun(), self.capacity().block_bytes, tags, errors)?;
        let mut disk = self.clone();
        disk.protection = Some(protection);
        Ok(disk)
    }

    /// How its blocks are protected, if they are.
    pub fn protection(&self) -> Option<&Protection> {
        self.protection.as_ref()
    }

    /// Makes the device read and check `length` bytes at `offset` (VERIFY), in one command: no data is transferred.
    ///
    /// # Errors
    /// The error of the first bad block; [`IoError::Protection`] and the INFORMATION of [`IoError::CheckCondition`] say which one
    /// it is.
    pub fn verify(&self, offset: u64, length: u64) -> Result<(), IoError> {
        self.check(offset, length)?;
        let block = u64::from(self.capacity().block_bytes);
        let (lba, blocks) = (offset / block, length / block);
        let blocks = u32::try_from(blocks)
            .map_err(|_| IoError::Request(format!("{blocks} blocks are more than one VERIFY takes")))?;
        let cdb = match self.protection() {
            Some(protection) => protection.verify_cdb(lba, blocks),
            None => verify_cdb(self.info().protection.kind, lba, blocks),
        };
        self.query(&cdb, 0).map(drop)
    }

    /// Writes the caller's own data and tuples from block `lba` on; see [`host`](super::host).
    ///
    /// # Errors
    /// [`IoError::Protection`] if a tuple does not match: then nothing of the command that contains it was sent. Otherwise why
    /// the data could not be written.
    pub fn write_host(&self, lba: u64, from: HostBuffers<'_>) -> Result<(), IoError> {
        let blocks = self.host_blocks(total(from.data), total(from.tuples))?;
        let protection = self.host_protection(lba, blocks)?;
        let space = self.session().slabs().take(protection.wire_bytes(blocks as usize));
        let data = protection.write_host(lba, from, space, self.digest_runs())?;
        self.submit(&protection.write_cdb(lba, blocks), 0, data).wait().map(drop)
    }

    /// Reads data and tuples from block `lba` on into the caller's buffers; see [`host`](super::host).
    ///
    /// # Errors
    /// [`IoError::Protection`] if a block fails a check, or why it could not be read; the content of the buffers is undefined
    /// then.
    pub fn read_host(&self, lba: u64, to: HostBuffersMut<'_, '_>) -> Result<Checked, IoError> {
        let blocks = self.host_blocks(total(to.data), total(to.tuples))?;
        let protection = self.host_protection(lba, blocks)?;
        let response = self.submit_read(lba, blocks).wait()?;
        response.holds(protection.wire_bytes(blocks as usize))?;
        Ok(protection.take_host(lba, &response.pieces, to)?)
    }

    /// The number of blocks in buffers of this many bytes.
    fn host_blocks(&self, data: usize, tuples: usize) -> Result<u32, IoError> {
        let block = self.capacity().block_bytes as usize;
        let blocks = data / block;
        // It must fit in one command; the caller splits requests.
        let most = self.one_command_blocks();
        match u32::try_from(blocks) {
            Ok(n) if data == blocks * block && tuples == blocks * TUPLE_BYTES && n <= most => Ok(n),
            _ => Err(IoError::Request(format!(
                "{data} bytes of data and {tuples} of tuples: give up to {most} whole blocks of {block}, and {TUPLE_BYTES} \
                 bytes for each"
            ))),
        }
    }

    fn host_protection(&self, lba: u64, blocks: u32) -> Result<&Protection, IoError> {
        let block = u64::from(self.capacity().block_bytes);
        self.check(lba.saturating_mul(block), u64::from(blocks) * block)?;
        let missing =
            || IoError::Request("the disk is not protected: open it with `Disk::protected`".to_owned());
        self.protection().ok_or_else(missing)
    }

    /// COMPARE AND WRITE compares tuples too. The first half needs the tuples that the medium has if its data matches, so they
    /// are read first.
    pub(crate) fn compare_and_write_protected(
        &self,
        protection: &Protection,
        lba: u64,
        blocks: u8,
        expected: &[u8],
        new: &[u8],
    ) -> Result<(), IoError> {
        let mut cdb = cdb::compare_and_write(lba, blocks);
        cdb[1] |= super::PROTECT << 5;
        for races in 0.. {
            let (mut found, mut tuples) =
                (vec![0; expected.len()], vec![0; usize::from(blocks) * TUPLE_BYTES]);
            let places = HostBuffersMut {
                data: &mut [IoSliceMut::new(&mut found)],
                tuples: &mut [IoSliceMut::new(&mut tuples)],
                guard: Guard::Crc16,
            };
            self.read_host(lba, places)?;
            if let Some(at) = found.iter().zip(expected).position(|(found, expected)| found != expected) {
                return Err(IoError::Miscompare { offset: at as u64 });
            }
            let data = self.both_halves(protection, lba, expected, &tuples, new)?;
            match self.submit(&cdb, 0, data).wait() {
                // The data was the same a moment ago: another initiator has rewritten it with other tuples.
                Err(IoError::Miscompare { .. }) if races < MAX_TUPLE_RACES => {}
                Err(IoError::Miscompare { offset }) => {
                    let wire = protection.wire_bytes(1) as u64;
                    let block = u64::from(self.capacity().block_bytes);
                    let within = (offset % wire).min(block - 1);
                    return Err(IoError::Miscompare { offset: offset / wire * block + within });
                }
                other => return other.map(drop),
            }
        }
        unreachable!("the loop ends by its limit")
    }

    fn both_halves(
        &self,
        protection: &Protection,
        lba: u64,
        expected: &[u8],
        tuples: &[u8],
        new: &[u8],
    ) -> Result<WriteData, IoError> {
        let space = self.session().slabs().take(2 * protection.wire_bytes(tuples.len() / TUPLE_BYTES));
        let mut builder = WriteBuilder::new(space, self.digest_runs());
        let (data, tuples) = (&[IoSlice::new(expected)], &[IoSlice::new(tuples)]);
        protection.put_host(&mut builder, lba, HostBuffers { data, tuples, guard: Guard::Crc16 })?;
        protection.put_made(&mut builder, lba, new);
        Ok(builder.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pi_07_a_scrub_asks_for_the_checks() {
        for (kind, protect) in [
            (ProtectionType::None, 0x00),
            (ProtectionType::Type1, 0x20),
            (ProtectionType::Type2, 0x00),
            (ProtectionType::Type3, 0x20),
        ] {
            assert_eq!(verify_cdb(kind, 7, 9)[..], [0x2f, protect, 0, 0, 0, 7, 0, 0, 9, 0], "{kind:?}");
            assert_eq!(verify_cdb(kind, 1 << 40, 9)[1], protect, "the long form");
        }
    }
}
