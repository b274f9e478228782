//! The passes over sectors: each kernel, layout, size and store against the reference, byte by byte.

use integrity::t10::kernels::{self, Kernel};
use integrity::t10::{self, Guard, Layout, ShapeError, Tuple};
use integrity::{Store, copy_crc32c_t10, crc32c_append, crc32c_t10, insert_crc32c_t10, strip_crc32c_t10};

use crate::support::{DAMAGE_STEP, Random, reference};

const STORES: [Store; 2] = [Store::Temporal, Store::NonTemporal];
/// Sector sizes: usual ones, various whole numbers of a kernel's blocks, and odd ones.
const SECTORS: [usize; 11] = [512, 4096, 1, 7, 64, 520, 1024, 2048, 3584, 4608, 8704];
/// Bytes on either side of a destination that must not change.
const CANARY: usize = 192;
const CANARY_BYTE: u8 = 0xc5;

fn plain_and_interleaved(sector_bytes: usize) -> [Layout; 2] {
    [Layout::plain(sector_bytes), Layout::interleaved(sector_bytes)]
}

/// Numbers of sectors: none, few, more than a kernel's batch, more than a group; limited for large sectors.
fn counts(sector_bytes: usize) -> &'static [usize] {
    match sector_bytes {
        _ if cfg!(miri) => &[0, 3],
        0..=512 => &[0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 63, 64, 65, 130],
        _ => &[0, 1, 2, 3, 8, 9, 65],
    }
}

fn kernels_under_test() -> impl Iterator<Item = &'static Kernel> {
    kernels::available()
}

/// A destination with canaries, at an alignment.
struct Destination {
    storage: Vec<u8>,
    at: usize,
    len: usize,
}

impl Destination {
    fn new(len: usize, align: usize) -> Self {
        let storage = vec![CANARY_BYTE; len + 2 * CANARY];
        let at = storage.as_ptr().addr().wrapping_neg() % 64 + 64 + align % 64;
        Self { storage, at, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.storage[self.at..][..self.len]
    }

    fn assert_canaries(&self, what: &str) {
        let (before, rest) = self.storage.split_at(self.at);
        let untouched = before.iter().chain(&rest[self.len..]).all(|b| *b == CANARY_BYTE);
        assert!(untouched, "written outside dst: {what}");
    }
}

fn guards_of(data: &[u8], layout: Layout) -> Vec<u16> {
    data.chunks_exact(layout.stride_bytes()).map(|s| reference(0, &s[..layout.sector_bytes()])).collect()
}

#[test]
fn guards_and_digests_in_one_layout() {
    let mut random = Random(20);
    for sector_bytes in SECTORS {
        for layout in plain_and_interleaved(sector_bytes) {
            for &count in counts(sector_bytes) {
                let align = random.below(64);
                let data = random.bytes(align + count * layout.stride_bytes());
                let src = &data[align..];
                let crc = random.next() as u32;
                let want = (crc32c_append(crc, src), guards_of(src, layout));
                for kernel in kernels_under_test() {
                    let what = format!("{}: {count} of {layout:?}", kernel.name());
                    let mut guards = vec![0; count];
                    kernel.guards(Guard::Crc16, src, layout, &mut guards).expect("shape");
                    assert_eq!(guards, want.1, "guards, {what}");
                    guards.fill(0x5555);
                    let digest = kernel.crc32c_t10(crc, src, layout, &mut guards).expect("shape");
                    assert_eq!((digest, guards), want, "digest and guards, {what}");
                    for store in STORES {
                        for align in [0, random.below(64)] {
                            let what = format!("{store:?} to {align}, {what}");
                            let (mut dst, mut guards) = (Destination::new(src.len(), align), vec![0; count]);
                            let digest = kernel
                                .copy_crc32c_t10(crc, dst.bytes(), src, layout, &mut guards, store)
                                .expect("shape");
                            assert_eq!((digest, guards), want, "copy with both, {what}");
                            assert!(dst.bytes() == src, "bytes, {what}");
                            dst.assert_canaries(&what);
                            let (mut dst, mut guards) = (Destination::new(src.len(), align), vec![0; count]);
                            kernel
                                .copy_guards(Guard::Crc16, dst.bytes(), src, layout, &mut guards, store)
                                .expect("shape");
                            assert_eq!(guards, want.1, "copy with guards, {what}");
                            assert!(dst.bytes() == src, "bytes, {what}");
                            dst.assert_canaries(&what);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn tuples_inserted_and_stripped() {
    let mut random = Random(21);
    for sector_bytes in SECTORS {
        let (plain, interleaved) = (Layout::plain(sector_bytes), Layout::interleaved(sector_bytes));
        for &count in counts(sector_bytes) {
            let data = random.bytes(count * sector_bytes);
            let crc = random.next() as u32;
            let tags: Vec<Tuple> = (0..count)
                .map(|_| Tuple { guard: 0, app_tag: random.next() as u16, ref_tag: random.next() as u32 })
                .collect();
            let mut travels = Vec::new();
            let mut with_guards = tags.clone();
            for (tuple, sector) in with_guards.iter_mut().zip(data.chunks_exact(sector_bytes)) {
                tuple.guard = reference(0, sector);
                travels.extend_from_slice(sector);
                travels.extend_from_slice(&tuple.to_bytes());
            }
            let want = crc32c_append(crc, &travels);
            for kernel in kernels_under_test() {
                for (store, crc) in STORES.into_iter().flat_map(|s| [(s, Some(crc)), (s, None)]) {
                    let align = random.below(64) & random.next() as usize;
                    let what = format!(
                        "{} {store:?}: {count} of {sector_bytes}, digest {}",
                        kernel.name(),
                        crc.is_some()
                    );
                    let want = crc.map_or(0, |_| want);

                    let (mut dst, mut tuples) = (Destination::new(travels.len(), align), tags.clone());
                    let got = kernel
                        .insert_pass(crc, dst.bytes(), &data, sector_bytes, &mut tuples, store)
                        .expect("shape");
                    assert!(dst.bytes() == travels, "bytes inserted, {what}");
                    assert_eq!((got, &tuples), (want, &with_guards), "insert, {what}");
                    dst.assert_canaries(&what);
                    assert_eq!(t10::check(Guard::Crc16, dst.bytes(), interleaved), Ok(None), "{what}");

                    let mut dst = Destination::new(data.len(), align);
                    let (mut guards, mut tuples) = (vec![0; count], vec![Tuple::default(); count]);
                    let got = kernel
                        .strip_pass(crc, dst.bytes(), &travels, sector_bytes, &mut guards, &mut tuples, store)
                        .expect("shape");
                    assert!(dst.bytes() == data, "bytes stripped, {what}");
                    assert_eq!((got, &tuples), (want, &with_guards), "strip, {what}");
                    assert_eq!(guards, guards_of(&data, plain), "guards stripped, {what}");
                    dst.assert_canaries(&what);
                }
            }
        }
    }
}

/// A one-pass kernel must detect damage anywhere: in the data, the tuples, and the digest alike.
#[test]
fn every_flipped_byte_changes_the_digest_and_only_its_sector_s_guard() {
    for layout in [Layout::interleaved(512), Layout::plain(512), Layout::interleaved(4096)] {
        let stride = layout.stride_bytes();
        let mut src = Random(22).bytes(9 * stride);
        let (mut dst, mut clean, mut dirty) = (src.clone(), vec![0; 9], vec![0; 9]);
        let want = copy_crc32c_t10(0, &mut dst, &src, layout, &mut clean, Store::Temporal).expect("shape");
        for at in (0..src.len()).step_by(DAMAGE_STEP) {
            src[at] ^= 1 << (at % 8);
            let got = copy_crc32c_t10(0, &mut dst, &src, layout, &mut dirty, Store::Temporal).expect("shape");
            assert_ne!(got, want, "flip at {at} of {layout:?} unseen by the digest");
            for sector in 0..9 {
                let hit = at / stride == sector && at % stride < layout.sector_bytes();
                assert_eq!(
                    dirty[sector] != clean[sector],
                    hit,
                    "flip at {at} of {layout:?}, guard of {sector}"
                );
            }
            src[at] ^= 1 << (at % 8);
        }
    }
}

#[test]
fn guards_of_the_ip_checksum() {
    let mut random = Random(23);
    for layout in plain_and_interleaved(512).into_iter().chain(plain_and_interleaved(4096)) {
        let src = random.bytes(5 * layout.stride_bytes());
        let want: Vec<u16> = src
            .chunks_exact(layout.stride_bytes())
            .map(|s| integrity::ip_checksum(&s[..layout.sector_bytes()]))
            .collect();
        let (mut dst, mut guards) = (vec![0; src.len()], vec![0; 5]);
        t10::guards(Guard::IpChecksum, &src, layout, &mut guards).expect("shape");
        assert_eq!(guards, want);
        guards.fill(0);
        t10::copy_guards(Guard::IpChecksum, &mut dst, &src, layout, &mut guards, Store::Temporal)
            .expect("shape");
        assert_eq!((guards, dst), (want, src));
    }
}

#[test]
fn slices_that_do_not_fit_are_refused_and_nothing_is_written() {
    use ShapeError::{Destination, NoSector, NoTuples, PartOfASector, Places};
    const STORE: Store = Store::Temporal;
    let p = Layout::plain(512);
    let i = Layout::interleaved(512);
    let (src, mut dst) = ([1; 1040], [CANARY_BYTE; 1040]);
    let (mut g, mut t) = ([0x77; 2], [Tuple::default(); 2]);
    let part = |bytes, stride_bytes| Err(PartOfASector { bytes, stride_bytes });

    assert_eq!(crc32c_t10(0, &src, Layout::plain(0), &mut g), Err(NoSector));
    assert_eq!(crc32c_t10(0, &src, Layout::interleaved(0), &mut g), Err(NoSector));
    assert_eq!(crc32c_t10(0, &src[..1000], p, &mut g), part(1000, 512));
    assert_eq!(crc32c_t10(0, &src[..1024], i, &mut g), part(1024, 520));
    assert_eq!(crc32c_t10(0, &src, Layout::plain(usize::MAX), &mut g), part(1040, usize::MAX));
    assert_eq!(crc32c_t10(0, &src, Layout::interleaved(usize::MAX), &mut g), part(1040, usize::MAX));
    assert_eq!(crc32c_t10(0, &src, i, &mut g[..1]), Err(Places { sectors: 2, places: 1 }));
    assert_eq!(
        copy_crc32c_t10(0, &mut dst[..520], &src, i, &mut g, STORE),
        Err(Destination { needed: 1040, given: 520 })
    );
    assert_eq!(
        insert_crc32c_t10(0, &mut dst[..1024], &src[..1024], 512, &mut t, STORE),
        Err(Destination { needed: 1040, given: 1024 })
    );
    assert_eq!(
        insert_crc32c_t10(0, &mut dst, &src[..1024], 512, &mut t[..1], STORE),
        Err(Places { sectors: 2, places: 1 })
    );
    assert_eq!(
        strip_crc32c_t10(0, &mut dst, &src, 512, &mut g, &mut t, STORE),
        Err(Destination { needed: 1024, given: 1040 })
    );
    assert_eq!(
        strip_crc32c_t10(0, &mut dst[..1024], &src, 512, &mut g, &mut t[..1], STORE),
        Err(Places { sectors: 2, places: 1 })
    );
    assert_eq!(t10::insert(&mut dst, &src, 512, &mut t, STORE), part(1040, 512).map(|_: u32| ()));
    assert_eq!(
        t10::strip(&mut dst, &src[..1000], 512, &mut g, &mut t, STORE),
        part(1000, 520).map(|_: u32| ())
    );
    assert_eq!(t10::guards(Guard::IpChecksum, &src, i, &mut []), Err(Places { sectors: 2, places: 0 }));
    assert_eq!(
        t10::copy_guards(Guard::IpChecksum, &mut dst[..3], &src, i, &mut g, STORE),
        Err(Destination { needed: 1040, given: 3 })
    );
    assert_eq!(t10::fill(Guard::Crc16, &mut dst[..1024], p), Err(NoTuples));
    assert_eq!(t10::check(Guard::Crc16, &src[..1024], p), Err(NoTuples));
    assert_eq!(t10::check(Guard::Crc16, &src[..521], i), part(521, 520).map(|_: u32| None));

    assert_eq!((dst, g, t), ([CANARY_BYTE; 1040], [0x77; 2], [Tuple::default(); 2]));
    for error in [NoSector, NoTuples, Places { sectors: 2, places: 1 }, Destination { needed: 3, given: 4 }] {
        assert!(error.to_string().contains("give"), "no remedy in: {error}");
    }
}
