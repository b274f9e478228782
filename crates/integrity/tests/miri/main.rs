//! A short walk through every kernel, for an interpreter that checks each access: `cargo xtask check --only miri`. The
//! other tests run at all lengths; this one runs at those where a kernel changes its code path.
//!
//! Every run has its own allocation, so that reading or writing one byte too far is an error.

use std::num::NonZeroUsize;

use integrity::t10::{self, Layout};
use integrity::{Segment, Store, copy_crc32c_blocks, copy_crc32c_gather, crc32c_combine, kernels};

/// Empty, one byte, around words, vectors and blocks; more than four vectors of 64 bytes; lanes of more than one line;
/// braids.
const LENGTHS: [usize; 18] = [0, 1, 7, 8, 15, 33, 48, 63, 64, 65, 129, 255, 257, 320, 600, 1100, 1307, 2075];

fn bytes(len: usize) -> Box<[u8]> {
    (0..len).map(|i| ((i * 167) >> 3) as u8 ^ i as u8).collect()
}

#[test]
fn kernels_of_crc32c() {
    for len in LENGTHS {
        let src = bytes(len);
        let want = kernels::reference().append(5, &src);
        for kernel in kernels::available() {
            let name = kernel.name();
            assert_eq!(kernel.append(5, &src), want, "{name}: {len} bytes");
            for store in [Store::Temporal, Store::NonTemporal] {
                // At unaligned addresses and at the beginning of an allocation.
                let mut storage = vec![0; len + len % 3].into_boxed_slice();
                let dst = &mut storage[len % 3..];
                assert_eq!(kernel.copy(5, dst, &src, store), Ok(want), "{name} {store:?}: {len} bytes");
                assert!(*dst == *src, "{name} {store:?}: {len} bytes");
            }
            assert_eq!(kernel.combine(want, 0, 600), crc32c_combine(want, 0, 600), "{name}");
        }
    }
}

#[test]
fn kernels_of_the_guard() {
    for len in LENGTHS {
        let src = bytes(len);
        let want = t10::kernels::reference().append(5, &src);
        for kernel in t10::kernels::available() {
            assert_eq!(kernel.append(5, &src), want, "{}: {len} bytes", kernel.name());
        }
    }
}

#[test]
fn passes_over_sectors() {
    for (layout, sectors) in [(Layout::plain(64), 5), (Layout::plain(100), 3), (Layout::interleaved(128), 5)]
    {
        let src = bytes(sectors * layout.stride_bytes());
        let crc = kernels::reference().append(0, &src);
        for kernel in t10::kernels::available() {
            for store in [Store::Temporal, Store::NonTemporal] {
                let (mut dst, mut guards) = (vec![0; src.len()].into_boxed_slice(), vec![0; sectors]);
                let copied = kernel.copy_crc32c_t10(0, &mut dst, &src, layout, &mut guards, store);
                assert_eq!((copied, &dst), (Ok(crc), &src), "{} {layout:?} {store:?}", kernel.name());
                for (sector, guard) in src.chunks(layout.stride_bytes()).zip(guards) {
                    let data = &sector[..layout.sector_bytes()];
                    assert_eq!(guard, t10::kernels::reference().append(0, data), "{}", kernel.name());
                }
            }
        }
    }
}

#[test]
fn lists_and_blocks() {
    let src = bytes(700);
    let want = kernels::reference().append(0, &src);
    let (mut dst, mut crcs) = (vec![0; 700].into_boxed_slice(), [0; 3]);
    let block = NonZeroUsize::new(256).expect("not zero");
    assert_eq!(copy_crc32c_blocks(0, &mut dst, &src, Store::NonTemporal, block, &mut crcs), Ok(want));
    let list = [
        Segment { bytes: &src[..300], counts: true },
        Segment { bytes: b"marker", counts: false },
        Segment { bytes: &src[300..], counts: true },
    ];
    let mut dst = vec![0; 706].into_boxed_slice();
    assert_eq!(copy_crc32c_gather(0, &mut dst, &list, Store::NonTemporal), Ok(want));
}
