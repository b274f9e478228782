//! The effect of a command on the cache of its unit, derived from its CDB (SBC-3 5, SPC-4 6).

use std::ops::Range;

use crate::cdb::is_flush;

/// FUA, in byte 1 of the commands that have it in that byte.
const FUA: u8 = 0x08;

/// See `effect`. Ranges extend to `u64::MAX` when the CDB does not say where they end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// GOOD says nothing about the cache.
    None,
    /// GOOD may be returned while the blocks are only in a cache.
    Writes(Range<u64>),
    /// GOOD is returned when everything acknowledged before the command was sent is on the medium.
    Flushes,
}

/// The effect of the command. Writes with FUA are on the medium when they are acknowledged (SBC-3 4.15.2), and so do not
/// count. A SYNCHRONIZE CACHE of a part, or with IMMED, proves nothing for the whole. UNMAP and third-party copies name their
/// blocks elsewhere, and count as writes to all of the medium.
pub(super) fn effect(cdb: &[u8]) -> Effect {
    let Some(&opcode) = cdb.first() else { return Effect::None };
    if is_read(opcode) {
        return Effect::None;
    }
    let at = |n: usize| cdb.get(n).copied().unwrap_or(0);
    let be = |range: Range<usize>| range.fold(0u64, |value, n| value << 8 | u64::from(at(n)));
    let written = |lba: u64, blocks: u64| Effect::Writes(lba..lba.saturating_add(blocks));
    // A write of zero blocks writes none; for WRITE SAME zero means all blocks up to the end.
    let same = |lba: u64, blocks: u64| written(lba, if blocks == 0 { u64::MAX } else { blocks });
    match opcode {
        _ if is_flush(cdb) => Effect::Flushes,
        // WRITE, ORWRITE, COMPARE AND WRITE, WRITE ATOMIC
        0x2a | 0xaa | 0x8a | 0x8b | 0x89 | 0x9c if at(1) & FUA != 0 => Effect::None,
        0x0a => written(be(1..4) & 0x1f_ffff, if at(4) == 0 { 256 } else { at(4).into() }),
        0x2a | 0x2e => written(be(2..6), be(7..9)),
        0xaa | 0xae => written(be(2..6), be(6..10)),
        0x8a | 0x8b | 0x8e => written(be(2..10), be(10..14)),
        0x89 => written(be(2..10), at(13).into()),
        0x9c => written(be(2..10), be(12..14)),
        0x41 => same(be(2..6), be(7..9)),
        0x93 => same(be(2..10), be(10..14)),
        0x7f => match (be(8..10), at(10) & FUA != 0) {
            // WRITE and WRITE ATOMIC (32)
            (0x000b | 0x000f, true) => Effect::None,
            (0x000b | 0x000c | 0x000f, _) => written(be(12..20), be(28..32)),
            (0x000d, _) => same(be(12..20), be(28..32)),
            _ => Effect::None,
        },
        // WRITE LONG
        0x3f => written(be(2..6), 1),
        0x9f if at(1) & 0x1f == 0x11 => written(be(2..10), 1),
        // FORMAT UNIT, UNMAP, SANITIZE, third-party copies
        0x04 | 0x42 | 0x48 | 0x83 => same(0, 0),
        _ => Effect::None,
    }
}

/// READ in every length except the 32-byte one: the most common commands can be recognised by their first byte.
#[inline]
fn is_read(opcode: u8) -> bool {
    matches!(opcode, 0x08 | 0x28 | 0x88 | 0xa8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cdb;

    #[test]
    fn what_may_stay_in_a_cache_is_known_with_its_blocks() {
        assert_eq!(effect(&cdb::write(7, 9)), Effect::Writes(7..16));
        assert_eq!(effect(&cdb::write(1 << 40, 9)), Effect::Writes(1 << 40..(1 << 40) + 9));
        assert_eq!(effect(&[0x0a, 0x1f, 0, 2, 0, 0]), Effect::Writes(0x1f_0002..0x1f_0102));
        assert_eq!(effect(&cdb::compare_and_write(5, 2)), Effect::Writes(5..7));
        assert_eq!(effect(&cdb::write_same(5, 2, true)), Effect::Writes(5..7));
        assert_eq!(effect(&cdb::write_same(5, 0, false)), Effect::Writes(5..u64::MAX));
        assert_eq!(effect(&cdb::unmap(24)), Effect::Writes(0..u64::MAX));
        assert_eq!(effect(&cdb::thirty_two(0x000b, 0x20, 5, (0, 0, 0), 2)), Effect::Writes(5..7));
        assert_eq!(effect(&cdb::thirty_two(0x000d, 0x20, 5, (0, 0, 0), 2)), Effect::Writes(5..7));
    }

    #[test]
    fn what_is_on_the_medium_when_it_is_acknowledged_does_not_count() {
        for mut cdb in [cdb::write(7, 9), cdb::write(1 << 40, 9), cdb::compare_and_write(5, 2)] {
            cdb[1] |= FUA;
            assert_eq!(effect(&cdb), Effect::None, "{cdb:02x?}");
        }
        assert_eq!(effect(&cdb::thirty_two(0x000b, 0x28, 5, (0, 0, 0), 2)), Effect::None);
        for cdb in [cdb::read(7, 9), cdb::verify(7, 9), cdb::test_unit_ready(), cdb::inquiry(None, 96)] {
            assert_eq!(effect(&cdb), Effect::None, "{cdb:02x?}");
        }
    }

    #[test]
    fn only_a_flush_of_everything_that_waits_proves_anything() {
        assert_eq!(effect(&cdb::synchronize_cache()), Effect::Flushes);
        let (mut immediate, mut part, mut long) =
            (cdb::synchronize_cache(), cdb::synchronize_cache(), vec![0; 16]);
        (immediate[1], part[8], long[0]) = (0x02, 1, 0x91);
        assert_eq!(effect(&immediate), Effect::None);
        assert_eq!(effect(&part), Effect::None);
        assert_eq!(effect(&long), Effect::Flushes);
        long[9] = 1;
        assert_eq!(effect(&long), Effect::None);
    }
}
