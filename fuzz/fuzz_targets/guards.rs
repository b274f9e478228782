//! Any bytes as sectors of any size, with and without tuples between them, through every kernel of the T10 guard and every
//! pass that computes the guard together with the CRC32C: all agree with the bit-wise references, and slices that do not
//! fit together are rejected.

#![no_main]

use integrity::t10::kernels::{self, Kernel};
use integrity::t10::{self, Guard, Layout, Tuple};
use integrity::{Store, insert_crc32c_t10, ip_checksum, strip_crc32c_t10};
use libfuzzer_sys::fuzz_target;

/// Longer runs only repeat what shorter ones do, and the references are slow.
const MAX_RUN_BYTES: usize = 16 << 10;

fuzz_target!(|input: &[u8]| {
    let Some(([crc, size, skip], data)) = input.split_first_chunk() else { return };
    let data = &data[..data.len().min(MAX_RUN_BYTES)];
    let crc = u32::from(*crc).wrapping_mul(0x0101_0101);
    let sector_bytes = match size {
        0..200 => 1 + usize::from(*size),
        200..230 => 512,
        _ => 8 * usize::from(*size),
    };
    let mut source = vec![0; usize::from(skip & 63)];
    source.extend_from_slice(data);
    let source = source.into_boxed_slice();
    let run = &source[usize::from(skip & 63)..];

    let want = kernels::reference().append(crc as u16, run);
    for kernel in kernels::available() {
        assert_eq!(kernel.append(crc as u16, run), want, "{}", kernel.name());
    }
    let reference = published::find("ones-complement-16").expect("the papers have it");
    assert_eq!(u64::from(ip_checksum(run)), reference.checksum(run));

    for layout in [Layout::plain(sector_bytes), Layout::interleaved(sector_bytes)] {
        let whole = run.len() / layout.stride_bytes() * layout.stride_bytes();
        let sectors = &run[..whole];
        for kernel in kernels::available() {
            passes(kernel, crc, sectors, layout, usize::from(skip >> 6));
        }
        if run.len() != whole {
            assert!(
                t10::guards(Guard::Crc16, run, layout, &mut vec![0; whole / layout.stride_bytes()]).is_err()
            );
        }
    }
    let whole = &run[..run.len() / sector_bytes * sector_bytes];
    there_and_back(crc, whole, sector_bytes);
});

fn data_of(sectors: &[u8], layout: Layout) -> impl Iterator<Item = &[u8]> {
    sectors.chunks_exact(layout.stride_bytes()).map(move |sector| &sector[..layout.sector_bytes()])
}

fn passes(kernel: &Kernel, crc: u32, sectors: &[u8], layout: Layout, dst_skip: usize) {
    let name = kernel.name();
    let want: Vec<u16> = data_of(sectors, layout).map(|data| kernels::reference().append(0, data)).collect();
    let digest = integrity::kernels::reference().append(crc, sectors);
    let mut found = vec![0; want.len()];
    assert_eq!(kernel.crc32c_t10(crc, sectors, layout, &mut found), Ok(digest), "{name} {layout:?}");
    assert_eq!(found, want, "{name} {layout:?}");
    for store in [Store::Temporal, Store::NonTemporal] {
        let mut copy = vec![0xa5; dst_skip + sectors.len()].into_boxed_slice();
        found.fill(0);
        let dst = &mut copy[dst_skip..];
        let copied = kernel.copy_crc32c_t10(crc, dst, sectors, layout, &mut found, store);
        assert_eq!(copied, Ok(digest), "{name} {layout:?} {store:?}");
        assert!(dst == sectors && found == want, "{name} {layout:?} {store:?}");
    }
    found.push(0);
    assert!(kernel.crc32c_t10(crc, sectors, layout, &mut found).is_err(), "{name}: a guard too many");
}

/// Tuples inserted after every sector, checked, and removed again.
fn there_and_back(crc: u32, data: &[u8], sector_bytes: usize) {
    let count = data.len() / sector_bytes;
    let layout = Layout::interleaved(sector_bytes);
    let mut tuples: Vec<Tuple> =
        (0..count).map(|i| Tuple { guard: 0, app_tag: 7, ref_tag: i as u32 }).collect();
    let mut wire = vec![0; count * layout.stride_bytes()];
    let sent = insert_crc32c_t10(crc, &mut wire, data, sector_bytes, &mut tuples, Store::Temporal);
    assert_eq!(sent, Ok(integrity::kernels::reference().append(crc, &wire)));
    assert_eq!(t10::check(Guard::Crc16, &wire, layout), Ok(None));

    let (mut back, mut guards) = (vec![0; data.len()], vec![0; count]);
    let mut received = vec![Tuple::default(); count];
    let digest =
        strip_crc32c_t10(crc, &mut back, &wire, sector_bytes, &mut guards, &mut received, Store::Temporal);
    assert_eq!(digest, sent);
    assert!(back == data && received == tuples);
    assert!(guards.iter().zip(&tuples).all(|(guard, tuple)| *guard == tuple.guard));

    if let Some(last) = wire.len().checked_sub(layout.stride_bytes()) {
        wire[last] ^= 1;
        let mismatch = t10::check(Guard::Crc16, &wire, layout).expect("whole sectors");
        assert_eq!(mismatch.map(|mismatch| mismatch.sector), Some(count - 1));
    }
}
