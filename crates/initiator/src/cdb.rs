//! CDBs that the block device sends, and the answers to them (SPC-4, SBC-3).

use std::ops::Range;

use iscsi_core::wire::Lun;
use smallvec::{SmallVec, smallvec};

/// Whether a command may be sent again when it is unknown whether it was executed: see [`scsi::CommandFacts::idempotent`].
pub fn is_idempotent(cdb: &[u8]) -> bool {
    scsi::command_facts(cdb).idempotent
}

/// A CDB as commands carry it.
pub type Cdb = SmallVec<[u8; 32]>;

/// TEST UNIT READY.
pub fn test_unit_ready() -> Cdb {
    smallvec![0; 6]
}

/// INQUIRY: the standard data, or a vital product data page.
pub fn inquiry(page: Option<u8>, allocation: u16) -> Cdb {
    let [high, low] = allocation.to_be_bytes();
    smallvec![0x12, u8::from(page.is_some()), page.unwrap_or(0), high, low, 0]
}

/// REPORT LUNS of every addressable unit.
pub fn report_luns(allocation: u32) -> Cdb {
    let mut cdb: Cdb = smallvec![0xa0, 0, 0, 0, 0, 0];
    cdb.extend_from_slice(&allocation.to_be_bytes());
    cdb.extend_from_slice(&[0, 0]);
    cdb
}

/// READ CAPACITY (10).
pub fn read_capacity_10() -> Cdb {
    let mut cdb: Cdb = smallvec![0x25];
    cdb.resize(10, 0);
    cdb
}

/// READ CAPACITY (16).
pub fn read_capacity_16() -> Cdb {
    service_16(0x9e, 0x10, 0, 32)
}

/// GET LBA STATUS from `lba` on.
pub fn get_lba_status(lba: u64, allocation: u32) -> Cdb {
    service_16(0x9e, 0x12, lba, allocation)
}

fn service_16(opcode: u8, action: u8, lba: u64, allocation: u32) -> Cdb {
    let mut cdb: Cdb = smallvec![opcode, action];
    cdb.extend_from_slice(&lba.to_be_bytes());
    cdb.extend_from_slice(&allocation.to_be_bytes());
    cdb.extend_from_slice(&[0, 0]);
    cdb
}

/// READ of `blocks` from `lba` on: in the 10-byte form if it can address them, since every disk supports it.
pub fn read(lba: u64, blocks: u32) -> Cdb {
    transfer(0x28, 0x88, lba, blocks)
}

/// WRITE of `blocks` from `lba` on, in the form of [`read`].
pub fn write(lba: u64, blocks: u32) -> Cdb {
    transfer(0x2a, 0x8a, lba, blocks)
}

/// Sets FUA in a READ or WRITE of 10, 16 or 32 bytes: its blocks go from or to the medium itself, not only a volatile cache (SBC-3
/// 4.15).
pub fn force_unit_access(mut cdb: Cdb) -> Cdb {
    const FUA: u8 = 0x08;
    let flags = if cdb.first() == Some(&0x7f) { 10 } else { 1 };
    if let Some(byte) = cdb.get_mut(flags) {
        *byte |= FUA;
    }
    cdb
}

/// VERIFY of `blocks` from `lba` on, by the device alone (BYTCHK 00b), in the form of [`read`].
pub fn verify(lba: u64, blocks: u32) -> Cdb {
    transfer(0x2f, 0x8f, lba, blocks)
}

/// A command of 32 bytes with the service action `action`: READ 0009h, VERIFY 000Ah, WRITE 000Bh, WRITE SAME 000Dh. `flags` is
/// the byte with PROTECT; `tags` are the expected reference tag of the first block, application tag and its mask.
//= sbc3 5.12 PI-17
pub fn thirty_two(action: u16, flags: u8, lba: u64, tags: (u32, u16, u16), blocks: u32) -> Cdb {
    let mut cdb: Cdb = smallvec![0x7f, 0, 0, 0, 0, 0, 0, 0x18];
    cdb.extend_from_slice(&action.to_be_bytes());
    cdb.extend_from_slice(&[flags, 0]);
    cdb.extend_from_slice(&lba.to_be_bytes());
    let (ref_tag, app_tag, app_mask) = tags;
    cdb.extend_from_slice(&ref_tag.to_be_bytes());
    cdb.extend_from_slice(&app_tag.to_be_bytes());
    cdb.extend_from_slice(&app_mask.to_be_bytes());
    cdb.extend_from_slice(&blocks.to_be_bytes());
    cdb
}

fn transfer(short: u8, long: u8, lba: u64, blocks: u32) -> Cdb {
    match (u32::try_from(lba), u16::try_from(blocks)) {
        (Ok(lba), Ok(blocks)) => {
            let ([a, b, c, d], [e, f]) = (lba.to_be_bytes(), blocks.to_be_bytes());
            SmallVec::from_slice(&[short, 0, a, b, c, d, 0, e, f, 0])
        }
        _ => service_16(long, 0, lba, blocks),
    }
}

/// SYNCHRONIZE CACHE (10) of the whole medium.
pub fn synchronize_cache() -> Cdb {
    let mut cdb: Cdb = smallvec![0x35];
    cdb.resize(10, 0);
    cdb
}

/// Whether the CDB is a SYNCHRONIZE CACHE of the whole medium that completes only when everything is on the medium.
#[inline]
pub(crate) fn is_flush(cdb: &[u8]) -> bool {
    const IMMED: u8 = 0x02;
    let (lba, blocks) = match cdb.first() {
        Some(0x35) => (2..6, 7..9),
        Some(0x91) => (2..10, 10..14),
        _ => return false,
    };
    let zero =
        |range| cdb.get::<Range<usize>>(range).is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0));
    cdb[1] & IMMED == 0 && zero(lba) && zero(blocks)
}

/// MODE SENSE (6) of the caching page, without block descriptors.
pub(crate) fn caching_page(allocation: u8) -> Cdb {
    smallvec![0x1a, 0x08, 0x08, 0, allocation, 0]
}

/// WCE of an answer to [`caching_page`]; `None` when it has no such page (SBC-3 6.5.5).
pub(crate) fn parse_write_cache(data: &[u8]) -> Option<bool> {
    const WCE: u8 = 0x04;
    let page = data.get(4 + usize::from(*data.get(3)?)..)?;
    (page.first()? & 0x3f == 0x08).then(|| page.get(2).map(|flags| flags & WCE != 0))?
}

/// UNMAP with a parameter list of `length` bytes.
pub fn unmap(length: u16) -> Cdb {
    let [high, low] = length.to_be_bytes();
    smallvec![0x42, 0, 0, 0, 0, 0, 0, high, low, 0]
}

/// The parameter list of UNMAP for ranges of (LBA, blocks).
pub fn unmap_list(ranges: &[(u64, u32)]) -> Vec<u8> {
    let descriptors = (ranges.len() * 16) as u16;
    let mut list = Vec::with_capacity(8 + ranges.len() * 16);
    list.extend_from_slice(&(descriptors + 6).to_be_bytes());
    list.extend_from_slice(&descriptors.to_be_bytes());
    list.extend_from_slice(&[0; 4]);
    for (lba, blocks) in ranges {
        list.extend_from_slice(&lba.to_be_bytes());
        list.extend_from_slice(&blocks.to_be_bytes());
        list.extend_from_slice(&[0; 4]);
    }
    list
}

/// COMPARE AND WRITE of `blocks` at `lba`.
pub fn compare_and_write(lba: u64, blocks: u8) -> Cdb {
    let mut cdb: Cdb = smallvec![0x89, 0];
    cdb.extend_from_slice(&lba.to_be_bytes());
    cdb.extend_from_slice(&[0, 0, 0, blocks, 0, 0]);
    cdb
}

/// WRITE SAME (16) of `blocks` at `lba`; with `unmap` the target may deallocate instead if that reads the same.
pub fn write_same(lba: u64, blocks: u32, unmap: bool) -> Cdb {
    let mut cdb = service_16(0x93, if unmap { 0x08 } else { 0 }, lba, blocks);
    cdb[14] = 0;
    cdb
}

/// LUNs of a REPORT LUNS answer.
pub fn parse_luns(data: &[u8]) -> Option<Vec<Lun>> {
    let length = u32::from_be_bytes(*data.first_chunk()?) as usize;
    let list = data.get(8..)?;
    let list = &list[..length.min(list.len())];
    Some(
        list.chunks_exact(8)
            .map(|lun| Lun(u64::from_be_bytes(lun.try_into().expect("eight bytes"))))
            .collect(),
    )
}

/// (LBA, blocks, mapped) of a GET LBA STATUS answer.
pub fn parse_lba_status(data: &[u8]) -> Option<Vec<(u64, u32, bool)>> {
    let length = u32::from_be_bytes(*data.first_chunk()?) as usize;
    let list = data.get(8..)?;
    let list = &list[..length.saturating_sub(4).min(list.len())];
    let status = |d: &[u8]| {
        let lba = u64::from_be_bytes(d[..8].try_into().expect("eight bytes"));
        let blocks = u32::from_be_bytes(d[8..12].try_into().expect("four bytes"));
        (lba, blocks, d[12] & 0xf == 0)
    };
    Some(list.chunks_exact(16).map(status).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_form_is_used_as_far_as_it_reaches() {
        assert_eq!(&read(5, 8)[..], [0x28, 0, 0, 0, 0, 5, 0, 0, 8, 0]);
        assert_eq!(&write(u32::MAX.into(), 0xffff)[..], [0x2a, 0, 255, 255, 255, 255, 0, 255, 255, 0]);
        assert_eq!(read(1 << 32, 1)[0], 0x88);
        assert_eq!(&write(1, 0x10000)[..], [0x8a, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn fua_is_set_in_the_byte_with_the_flags() {
        assert_eq!(&force_unit_access(write(5, 8))[..2], [0x2a, 8]);
        assert_eq!(&force_unit_access(write(1 << 32, 8))[..2], [0x8a, 8]);
        let long = force_unit_access(thirty_two(0x000b, 0x20, 5, (5, 0, 0), 8));
        assert_eq!((long[1], long[10]), (0, 0x28));
    }

    #[test]
    fn answers_are_read_whatever_their_length_claims() {
        let mut data = vec![0, 0, 0, 16, 0, 0, 0, 0];
        data.extend_from_slice(&Lun::from_index(0).0.to_be_bytes());
        data.extend_from_slice(&Lun::from_index(7).0.to_be_bytes());
        assert_eq!(parse_luns(&data), Some(vec![Lun::from_index(0), Lun::from_index(7)]));
        data[0] = 0xff;
        assert_eq!(parse_luns(&data).unwrap().len(), 2);
        assert_eq!(parse_luns(&data[..20]).unwrap().len(), 1);
        assert_eq!(parse_luns(&data[..3]), None);
        let mut status = vec![0, 0, 0, 36, 0, 0, 0, 0];
        for (lba, provisioning) in [(0u64, 0u8), (8, 1)] {
            status.extend_from_slice(&lba.to_be_bytes());
            status.extend_from_slice(&[0, 0, 0, 8, provisioning, 0, 0, 0]);
        }
        assert_eq!(parse_lba_status(&status), Some(vec![(0, 8, true), (8, 8, false)]));
    }

    #[test]
    fn the_write_cache_is_known_from_the_caching_page() {
        let answer = |flags| [vec![23, 0, 0, 0, 0x08, 18, flags], vec![0; 17]].concat();
        assert_eq!(parse_write_cache(&answer(0x04)), Some(true));
        assert_eq!(parse_write_cache(&answer(0x01)), Some(false));
        let mut with_descriptor = answer(0x04);
        with_descriptor[3] = 8;
        with_descriptor.splice(4..4, [0; 8]);
        assert_eq!(parse_write_cache(&with_descriptor), Some(true));
        for n in 0..7 {
            assert_eq!(parse_write_cache(&answer(0x04)[..n]), None);
        }
        assert_eq!(parse_write_cache(&[3, 0, 0, 0]), None);
    }

    #[test]
    fn the_unmap_list_says_its_own_length() {
        let list = unmap_list(&[(1, 2), (3, 4)]);
        assert_eq!((list.len(), list[1], list[3]), (40, 38, 32));
    }
}
