//! Every algorithm once, for an interpreter that checks each access: `cargo xtask check --only miri`.

use published::{all, flush_tables, interleaved, read_only};

#[test]
fn algorithms_of_the_papers() {
    let src: Box<[u8]> = (0..300).map(|i| ((i * 167) >> 3) as u8 ^ i as u8).collect();
    for algorithm in all().iter().filter(|algorithm| algorithm.available()) {
        let same = all().iter().find(|other| other.family == algorithm.family).expect("itself");
        let want = same.checksum(&src);
        assert_eq!(algorithm.checksum(&src), want, "{}", algorithm.name);
        if let Some(copy) = interleaved(algorithm.name) {
            let mut dst = vec![0; src.len()].into_boxed_slice();
            assert_eq!(copy.copy(0, &mut dst, &src).map(u64::from), Ok(want), "{}", algorithm.name);
            assert_eq!(dst, src, "{}", algorithm.name);
        }
    }
    flush_tables();
    let words = src.chunks(8).map(|word| word.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)));
    assert_eq!(read_only(&src), words.fold(0, |all, word| all ^ word));
}
