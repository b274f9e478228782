//! Hostile memory: inaccessible pages around a run, and a source that another thread rewrites.

/// Runs that start and end at inaccessible pages: reading or writing one byte too far ends the test's process.
mod guarded {
    use std::ffi::c_void;
    use std::ptr;

    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

    use integrity::crc32c;
    use integrity::t10::{self, Layout};

    use crate::support::*;

    /// At least the page size of every machine known, and a multiple of it.
    const PAGE: usize = 65536;

    /// One accessible page between two inaccessible ones.
    struct Guarded(*mut c_void);

    impl Guarded {
        fn new() -> Self {
            let all = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new anonymous mapping, at an address of the system's choice, aliases nothing.
            let base =
                unsafe { mmap_anonymous(ptr::null_mut(), 3 * PAGE, all, MapFlags::PRIVATE) }.expect("mmap");
            for guard in [base, base.wrapping_byte_add(2 * PAGE)] {
                // SAFETY: the page is part of the mapping above, and nothing refers to it.
                unsafe { mprotect(guard, PAGE, MprotectFlags::empty()) }.expect("mprotect");
            }
            Self(base)
        }

        fn page(&mut self) -> &mut [u8] {
            // SAFETY: the middle page is readable, writable and zeroed, lives as long as `self`, and is borrowed
            // with it.
            unsafe { std::slice::from_raw_parts_mut(self.0.cast::<u8>().add(PAGE), PAGE) }
        }
    }

    impl Drop for Guarded {
        fn drop(&mut self) {
            // SAFETY: the whole mapping of `new`, to which no borrow remains.
            unsafe { munmap(self.0, 3 * PAGE) }.expect("munmap");
        }
    }

    #[test]
    fn no_kernel_touches_a_byte_outside_its_run() {
        let (mut from, mut to) = (Guarded::new(), Guarded::new());
        from.page().copy_from_slice(&Random(9).bytes(PAGE));
        // From 1280 bytes on runs are braided. Copies are not, but lengths around 2048 are tested all the same.
        let braided = (1279..1400).chain(2047..2160);
        for len in (0..=1024).chain(braided).chain([4095, 4096, 4097, 9000]) {
            for range in [0..len, PAGE - len..PAGE] {
                let src = &from.page()[range.clone()];
                let want = under_test().last().expect("slicing-8 runs everywhere").append(0, src);
                for kernel in under_test() {
                    assert_eq!(kernel.append(0, src), want, "{}: {range:?}", kernel.name());
                    for store in STORES {
                        let got =
                            kernel.copy(0, &mut to.page()[range.clone()], src, store).expect("equal lengths");
                        assert_eq!(got, want, "{} {store:?}: {range:?}", kernel.name());
                    }
                }
            }
        }
    }

    #[test]
    fn no_guard_kernel_touches_a_byte_outside_its_run() {
        let (mut from, mut to) = (Guarded::new(), Guarded::new());
        from.page().copy_from_slice(&Random(11).bytes(PAGE));
        for kernel in t10::kernels::available() {
            for len in (0..=1024).chain([4095, 4096, 4097]) {
                for range in [0..len, PAGE - len..PAGE] {
                    let src = &from.page()[range.clone()];
                    let want = t10::kernels::reference().append(0, src);
                    assert_eq!(kernel.append(0, src), want, "{}: {range:?}", kernel.name());
                }
            }
            for sector_bytes in [512, 520, 1024, 4096] {
                for layout in [Layout::plain(sector_bytes), Layout::interleaved(sector_bytes)] {
                    let len = 9 * layout.stride_bytes();
                    for range in [0..len, PAGE - len..PAGE] {
                        let (src, dst) = (&from.page()[range.clone()], &mut to.page()[range.clone()]);
                        for store in STORES {
                            let mut guards = [0; 9];
                            let got = kernel.copy_crc32c_t10(0, dst, src, layout, &mut guards, store);
                            assert_eq!(got, Ok(crc32c(src)), "{} {store:?}: {layout:?}", kernel.name());
                        }
                    }
                }
            }
        }
    }
}

/// A source that another thread rewrites during the copy: whatever `dst` ends up with, the digest must be that of
/// `dst`.
mod rewritten {
    use std::ptr;
    use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
    use std::thread;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

    use integrity::crc32c;
    use integrity::t10::{self, Guard, Layout};

    use crate::support::*;

    const MAPPED: usize = 65536;

    /// One memory at two addresses, as if shared by two processes.
    struct Twice([*mut u8; 2]);

    impl Twice {
        fn new() -> Self {
            let file = memfd_create("source", MemfdFlags::CLOEXEC).expect("memfd_create");
            ftruncate(&file, MAPPED as u64).expect("ftruncate");
            Self([(); 2].map(|()| {
                let all = ProtFlags::READ | ProtFlags::WRITE;
                // SAFETY: a new mapping, at an address of the system's choice, aliases no other object of this test.
                let mapped = unsafe { mmap(ptr::null_mut(), MAPPED, all, MapFlags::SHARED, &file, 0) };
                mapped.expect("mmap").cast()
            }))
        }
    }

    impl Drop for Twice {
        fn drop(&mut self) {
            for mapping in self.0 {
                // SAFETY: a whole mapping of `new`, to which no borrow remains.
                unsafe { munmap(mapping.cast(), MAPPED) }.expect("munmap");
            }
        }
    }

    // covers: DIG-14 DIG-15
    #[test]
    fn the_digest_of_a_copy_is_of_what_was_stored() {
        let memory = Twice::new();
        // SAFETY: the mapping lives until the end of this function, and is written only through the other address, of
        // which the compiler knows as little as of another process.
        let source = unsafe { std::slice::from_raw_parts(memory.0[0], MAPPED) };
        // SAFETY: the same for the other address, which is used atomically.
        let shared = unsafe { std::slice::from_raw_parts(memory.0[1].cast::<AtomicU8>(), MAPPED) };
        let stop = AtomicBool::new(false);
        for (len, rounds) in
            [(20, 20_000), (63, 20_000), (100, 40_000), (600, 20_000), (1100, 40_000), (4133, 3_000)]
        {
            thread::scope(|scope| {
                scope.spawn(|| {
                    // Mostly at the two ends of the run, where a kernel might load a byte twice.
                    let mut random = Random(10);
                    while !stop.load(Ordering::Relaxed) {
                        let n = random.next();
                        let at = random.below(64.min(len));
                        let at = [at, len - 1 - at, random.below(len)][(n % 3) as usize];
                        shared[at].store((n >> 8) as u8, Ordering::Relaxed);
                    }
                });
                let mut storage = Aligned::filled(len + ALIGNMENTS, 0);
                for kernel in under_test() {
                    for store in STORES {
                        for round in 0..rounds {
                            let dst = &mut storage.bytes_mut()[round % ALIGNMENTS..][..len];
                            let got = kernel.copy(0, dst, &source[..len], store).expect("equal lengths");
                            if got != kernel.append(0, dst) {
                                stop.store(true, Ordering::Relaxed);
                                panic!(
                                    "{} {store:?}: {len} bytes: a digest of bytes not stored",
                                    kernel.name()
                                );
                            }
                        }
                    }
                }
                stop.store(true, Ordering::Relaxed);
            });
            stop.store(false, Ordering::Relaxed);
        }
    }

    #[test]
    fn guards_and_digest_of_a_copy_are_of_what_was_stored() {
        const SECTORS: usize = 9;
        let memory = Twice::new();
        // SAFETY: the mapping lives until the end of this function, and is written only through the other address, of
        // which the compiler knows as little as of another process.
        let source = unsafe { std::slice::from_raw_parts(memory.0[0], MAPPED) };
        // SAFETY: the same for the other address, which is used atomically.
        let shared = unsafe { std::slice::from_raw_parts(memory.0[1].cast::<AtomicU8>(), MAPPED) };
        let stop = AtomicBool::new(false);
        let rounds = 2_000;
        let layouts = [Layout::plain(512), Layout::interleaved(512), Layout::interleaved(1024)];
        let mut failed = None;
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Random(12);
                while !stop.load(Ordering::Relaxed) {
                    let n = random.next();
                    shared[random.below(SECTORS * 1032)].store((n >> 8) as u8, Ordering::Relaxed);
                }
            });
            let kernels = t10::kernels::available().filter(|k| !ptr::eq(*k, t10::kernels::reference()));
            for (kernel, layout) in kernels.flat_map(|k| layouts.map(|l| (k, l))) {
                let len = SECTORS * layout.stride_bytes();
                let mut storage = Aligned::filled(len + ALIGNMENTS, 0);
                for (round, store) in (0..rounds).zip(STORES.into_iter().cycle()) {
                    let dst = &mut storage.bytes_mut()[round / 2 % ALIGNMENTS..][..len];
                    let (mut guards, mut stored) = ([0; SECTORS], [0; SECTORS]);
                    let got = kernel
                        .copy_crc32c_t10(0, dst, &source[..len], layout, &mut guards, store)
                        .expect("shape");
                    t10::guards(Guard::Crc16, dst, layout, &mut stored).expect("shape");
                    if (got, guards) != (crc32c(dst), stored) {
                        failed = Some(format!("{} {store:?}: {layout:?}", kernel.name()));
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(failed, None, "a digest or a guard of bytes not stored");
    }
}
