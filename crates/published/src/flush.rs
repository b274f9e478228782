//! Cold tables: what an algorithm finds in the caches decides what it costs, so a benchmark must be able to set it.

use integrity::unstable::flush;

use super::crc32c_table::{BYTES, SLICES_4, SLICES_8};

/// Removes the tables of the byte-wise and the slicing algorithms from every cache. On processors without such an instruction it does
/// nothing.
pub fn flush_tables() {
    flush(&BYTES);
    flush(SLICES_4.as_flattened());
    flush(SLICES_8.as_flattened());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_stay_what_they_are() {
        let before = (BYTES, SLICES_4, SLICES_8);
        flush_tables();
        assert_eq!((BYTES, SLICES_4, SLICES_8), before);
    }
}
