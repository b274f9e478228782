//! The table for the programs' CRC32C: slicing by 16, 16 KiB.

use integrity::crc32c_append;

/// Bytes per step.
const SLICES: usize = 16;

/// Entry `256 * zeros + byte`: the state after `byte` and then `zeros` zero bytes, starting from state 0.
pub(super) fn slicing() -> Vec<u32> {
    let mut table = Vec::with_capacity(256 * SLICES);
    for zeros in 0..SLICES {
        for byte in 0..=u8::MAX {
            let mut bytes = [0; SLICES];
            bytes[0] = byte;
            // Finished CRCs are inverted, states are not.
            table.push(!crc32c_append(!0, &bytes[..=zeros]));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crc_by_the_table_is_crc32c() {
        let table = slicing();
        let data: Vec<u8> = (0..48).collect();
        let mut state = u32::MAX;
        for step in data.chunks_exact(SLICES) {
            let mut step: [u8; SLICES] = step.try_into().unwrap();
            for (byte, old) in step.iter_mut().zip(state.to_le_bytes()) {
                *byte ^= old;
            }
            let taken = step.iter().enumerate().map(|(at, byte)| table[256 * (15 - at) + usize::from(*byte)]);
            state = taken.fold(0, |all, one| all ^ one);
        }
        assert_eq!(!state, integrity::crc32c(&data));
    }
}
