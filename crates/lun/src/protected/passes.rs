//! The passes over blocks between the store and the wire. One pass over each byte copies it and computes its digest and its guard
//! (RFC 7143 11.2.3, SBC-3 4.22.4).
//!
//! Invariant: guards and digests are those of the bytes in the destination.

use integrity::Store;
use integrity::t10::{self, Guard, Layout, Tuple};
use smallvec::SmallVec;

/// The callers here have checked what the kernels check of lengths.
const FITS: &str = "as many blocks on either side, and a place for each";

/// Blocks whose guards are computed before the blocks are visited one by one: few enough to stay in the first-level cache.
const LOOK_BLOCKS: usize = 32;

/// Blocks whose tuples are discarded at a time.
const DROP_BLOCKS: usize = 64;

/// Writes of at least this many bytes bypass the caches on their way to a store's memory. That memory is cold, unless the used part of
/// the volume fits into the second-level cache: `docs/performance.md` shows the cost of both.
const STREAMED_BYTES: u64 = 64 * 1024;

/// The kind of stores for a write of `bytes` bytes into a store's memory.
pub(super) fn into_memory(bytes: u64) -> Store {
    if bytes >= STREAMED_BYTES { Store::NonTemporal } else { Store::Temporal }
}

/// The CRC32C of each run of bytes as they travel. The ends of a run may lie within blocks.
pub(super) struct Digests {
    run_bytes: usize,
    in_run: usize,
    crc: u32,
    finished: SmallVec<[u32; 4]>,
}

impl Digests {
    /// Digests of runs of `run_bytes` bytes.
    fn new(run_bytes: usize) -> Self {
        Self { run_bytes: run_bytes.max(1), in_run: 0, crc: 0, finished: SmallVec::new() }
    }

    /// The digests of `bytes`, which are complete.
    pub(super) fn of(bytes: &[u8], run_bytes: usize) -> SmallVec<[u32; 4]> {
        let mut digests = Self::new(run_bytes);
        digests.append(bytes);
        digests.finish()
    }

    /// Bytes up to the end of the run.
    fn room(&self) -> usize {
        self.run_bytes - self.in_run
    }

    /// Records that `bytes` more bytes of the run are done; the digest up to there is `crc`.
    fn digested(&mut self, bytes: usize, crc: u32) {
        (self.in_run, self.crc) = (self.in_run + bytes, crc);
        if self.in_run == self.run_bytes {
            self.finished.push(self.crc);
            (self.in_run, self.crc) = (0, 0);
        }
    }

    fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (part, rest) = bytes.split_at(bytes.len().min(self.room()));
            self.digested(part.len(), integrity::crc32c_append(self.crc, part));
            bytes = rest;
        }
    }

    fn finish(mut self) -> SmallVec<[u32; 4]> {
        if self.in_run > 0 {
            self.finished.push(self.crc);
        }
        self.finished
    }
}

/// Blocks on their way from the store to the initiator.
pub(super) struct Outgoing<'a> {
    block: usize,
    /// The bytes as they travel.
    to: &'a mut [u8],
    /// Receives the guard of each block's data.
    guards: &'a mut [u16],
    /// One for each block, if tuples travel: they are sent with the guards of the data.
    tuples: Option<&'a mut [Tuple]>,
    digests: Option<Digests>,
    /// Blocks done.
    done: usize,
}

impl<'a> Outgoing<'a> {
    /// `to` is as long as the blocks are when they travel; each digest covers `run_bytes` bytes of it.
    pub(super) fn new(
        block: usize,
        to: &'a mut [u8],
        guards: &'a mut [u16],
        tuples: Option<&'a mut [Tuple]>,
        run_bytes: Option<u32>,
    ) -> Self {
        let digests = run_bytes.map(|bytes| Digests::new(bytes as usize));
        Self { block, to, guards, tuples, digests, done: 0 }
    }

    /// The destination, to be filled before [`take_there`](Self::take_there). Only if no tuples travel.
    pub(super) fn there(&mut self) -> &mut [u8] {
        self.to
    }

    /// Processes all blocks in the destination.
    pub(super) fn take_there(&mut self) {
        self.go_over(None, self.guards.len());
    }

    /// Copies the next blocks from `blocks`.
    pub(super) fn take(&mut self, blocks: &[u8]) {
        self.go_over(Some(blocks), blocks.len() / self.block);
    }

    /// The digest of each run; the last run may be shorter.
    pub(super) fn finish(self) -> SmallVec<[u32; 4]> {
        self.digests.map(Digests::finish).unwrap_or_default()
    }

    /// Processes `count` blocks. A block within which a run ends is digested separately.
    fn go_over(&mut self, from: Option<&[u8]>, count: usize) {
        let wire = self.block + self.tuples.as_ref().map_or(0, |_| t10::TUPLE_BYTES);
        let mut at = 0;
        while at < count {
            let fit = self.digests.as_ref().map_or(count, |digests| digests.room() / wire).min(count - at);
            let part = fit.max(1);
            let from = from.map(|from| &from[at * self.block..(at + part) * self.block]);
            let crc = self.digests.as_ref().filter(|_| fit > 0).map(|digests| digests.crc);
            let crc = self.pass(crc, from, part);
            let bytes = self.done * wire..(self.done + part) * wire;
            match &mut self.digests {
                Some(digests) if fit > 0 => digests.digested(bytes.len(), crc),
                Some(digests) => digests.append(&self.to[bytes]),
                None => {}
            }
            (at, self.done) = (at + part, self.done + part);
        }
    }

    /// One pass over blocks. Returns the digest, if one is continued.
    fn pass(&mut self, crc: Option<u32>, from: Option<&[u8]>, count: usize) -> u32 {
        let (block, at, plain) = (self.block, self.done, Layout::plain(self.block));
        let guards = &mut self.guards[at..at + count];
        let Some(tuples) = &mut self.tuples else {
            let to = &mut self.to[at * block..(at + count) * block];
            return match (from, crc) {
                (None, None) => t10::guards(Guard::Crc16, to, plain, guards).map(|()| 0),
                (None, Some(crc)) => integrity::crc32c_t10(crc, to, plain, guards),
                (Some(from), None) => {
                    t10::copy_guards(Guard::Crc16, to, from, plain, guards, Store::Temporal).map(|()| 0)
                }
                (Some(from), Some(crc)) => {
                    integrity::copy_crc32c_t10(crc, to, from, plain, guards, Store::Temporal)
                }
            }
            .expect(FITS);
        };
        let wire = block + t10::TUPLE_BYTES;
        let (to, tuples) = (&mut self.to[at * wire..(at + count) * wire], &mut tuples[at..at + count]);
        let from = from.unwrap_or_default();
        let crc = match crc {
            None => t10::insert(to, from, block, tuples, Store::Temporal).map(|()| 0),
            Some(crc) => integrity::insert_crc32c_t10(crc, to, from, block, tuples, Store::Temporal),
        };
        guards.iter_mut().zip(&*tuples).for_each(|(guard, tuple)| *guard = tuple.guard);
        crc.expect(FITS)
    }
}

/// Data-out, block by block: runs of whole blocks in place, and blocks that are spread over two pieces as a copy.
pub(super) struct Incoming<'a> {
    pieces: smallvec::IntoIter<[&'a [u8]; 8]>,
    piece: &'a [u8],
    /// Bytes of a block as it travels.
    wire: usize,
    joined: Vec<u8>,
}

impl<'a> Incoming<'a> {
    /// `pieces` together are whole blocks of `wire` bytes.
    pub(super) fn new(pieces: SmallVec<[&'a [u8]; 8]>, wire: usize) -> Self {
        Self { pieces: pieces.into_iter(), piece: &[], wire, joined: Vec::new() }
    }

    /// The next blocks, 1 to `most`; `None` at the end.
    fn next(&mut self, most: usize) -> Option<&[u8]> {
        while self.piece.is_empty() {
            self.piece = self.pieces.next()?;
        }
        if self.piece.len() >= self.wire {
            let whole = (self.piece.len() / self.wire).min(most);
            let (run, rest) = self.piece.split_at(whole * self.wire);
            self.piece = rest;
            return Some(run);
        }
        self.joined.clear();
        while self.joined.len() < self.wire {
            while self.piece.is_empty() {
                self.piece = self.pieces.next()?;
            }
            let (part, rest) = self.piece.split_at(self.piece.len().min(self.wire - self.joined.len()));
            self.joined.extend_from_slice(part);
            self.piece = rest;
        }
        Some(&self.joined)
    }

    /// Calls `show` for each block, without a copy: with its `block` bytes of data, its tuple if it has one, and the guard of its data.
    ///
    /// # Errors
    /// The first error of `show`.
    #[inline]
    pub(super) fn look<E>(
        mut self,
        block: usize,
        mut show: impl FnMut(&[u8], Option<Tuple>, u16) -> Result<(), E>,
    ) -> Result<(), E> {
        let layout = if self.wire > block { Layout::interleaved(block) } else { Layout::plain(block) };
        let mut guards = [0; LOOK_BLOCKS];
        while let Some(run) = self.next(LOOK_BLOCKS) {
            let guards = &mut guards[..run.len() / layout.stride_bytes()];
            t10::guards(Guard::Crc16, run, layout, guards).expect(FITS);
            for (block_and_tuple, &guard) in run.chunks_exact(layout.stride_bytes()).zip(&*guards) {
                let (data, tuple) = block_and_tuple.split_at(block);
                show(data, tuple.first_chunk().map(|bytes| Tuple::from_bytes(*bytes)), guard)?;
            }
        }
        Ok(())
    }

    /// Copies the data of blocks with tuples to `to`, which is whole blocks. The guards that the kernel also computes cost nothing: it
    /// waits for memory meanwhile.
    pub(super) fn copy_data(&mut self, to: &mut [u8], store: Store) {
        let block = self.wire - t10::TUPLE_BYTES;
        let (mut guards, mut tuples) = ([0; DROP_BLOCKS], [Tuple::default(); DROP_BLOCKS]);
        for to in to.chunks_mut(DROP_BLOCKS * block) {
            let count = to.len() / block;
            self.strip(to, &mut guards[..count], &mut tuples[..count], store);
        }
    }

    /// Copies blocks without tuples to `to`, which is whole blocks, and computes the guard of each.
    pub(super) fn copy(&mut self, to: &mut [u8], guards: &mut [u16], store: Store) {
        let (block, mut at) = (self.wire, 0);
        while at < guards.len()
            && let Some(run) = self.next(guards.len() - at)
        {
            let count = run.len() / block;
            let (to, guards) = (&mut to[at * block..(at + count) * block], &mut guards[at..at + count]);
            let copied = t10::copy_guards(Guard::Crc16, to, run, Layout::plain(block), guards, store);
            copied.expect(FITS);
            at += count;
        }
    }

    /// Copies the data of blocks with tuples to `to`, computes the guard of each, and returns the tuples.
    pub(super) fn strip(&mut self, to: &mut [u8], guards: &mut [u16], tuples: &mut [Tuple], store: Store) {
        let (block, mut at) = (self.wire - t10::TUPLE_BYTES, 0);
        while at < guards.len()
            && let Some(run) = self.next(guards.len() - at)
        {
            let range = at..at + run.len() / (block + t10::TUPLE_BYTES);
            at = range.end;
            let to = &mut to[range.start * block..range.end * block];
            let (guards, tuples) = (&mut guards[range.clone()], &mut tuples[range]);
            t10::strip(to, run, block, guards, tuples, store).expect(FITS);
        }
    }
}

#[cfg(test)]
mod tests {
    use integrity::{crc16_t10dif, crc32c};

    use super::*;

    fn data(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|n| (n * 31 + n / 253) as u8).collect()
    }

    /// The bytes as they travel, made in the simplest way.
    fn sealed(data: &[u8], block: usize, tuples: &[Tuple]) -> Vec<u8> {
        let blocks = data.chunks(block).zip(tuples);
        blocks.flat_map(|(data, tuple)| [data, &tuple.to_bytes()].concat()).collect()
    }

    fn guards_of(data: &[u8], block: usize) -> Vec<u16> {
        data.chunks(block).map(crc16_t10dif).collect()
    }

    #[test]
    fn guards_and_digests_come_of_one_pass_wherever_runs_end() {
        for (block, blocks) in [(512, 9), (4096, 3)] {
            let data = data(block * blocks);
            let guards = guards_of(&data, block);
            let tuples: Vec<Tuple> =
                guards.iter().map(|&guard| Tuple { guard, app_tag: 7, ref_tag: 9 }).collect();
            let unguarded: Vec<Tuple> = tuples.iter().map(|&tuple| Tuple { guard: 0, ..tuple }).collect();
            for run in [1, 7, 512, 520, 1000, 1024, 4096, 4104, 8192, 1 << 20] {
                for cut in [1, 2, blocks] {
                    for there in [false, true] {
                        let (mut to, mut found) = (vec![0; data.len()], vec![0; blocks]);
                        let mut out = Outgoing::new(block, &mut to, &mut found, None, Some(run));
                        if there {
                            out.there().copy_from_slice(&data);
                            out.take_there();
                        } else {
                            data.chunks(cut * block).for_each(|piece| out.take(piece));
                        }
                        let digests = out.finish().to_vec();
                        assert_eq!(digests, data.chunks(run as usize).map(crc32c).collect::<Vec<_>>());
                        assert_eq!((to, found), (data.clone(), guards.clone()));
                    }
                    let travels = sealed(&data, block, &tuples);
                    let (mut to, mut found) = (vec![0; travels.len()], vec![0; blocks]);
                    let mut made = unguarded.clone();
                    let mut out = Outgoing::new(block, &mut to, &mut found, Some(&mut made), Some(run));
                    data.chunks(cut * block).for_each(|piece| out.take(piece));
                    assert_eq!(out.finish(), Digests::of(&travels, run as usize));
                    assert_eq!((to, found, made), (travels, guards.clone(), tuples.clone()));
                }
            }
        }
    }

    #[test]
    fn without_digests_there_are_none() {
        let data = data(2048);
        let (mut to, mut guards) = (vec![0; 2048], [0; 4]);
        let mut out = Outgoing::new(512, &mut to, &mut guards, None, None);
        out.take(&data);
        assert!(out.finish().is_empty());
        assert_eq!((&to, &guards[..]), (&data, &guards_of(&data, 512)[..]));
    }

    #[test]
    fn blocks_that_were_cut_anywhere_arrive_whole() {
        let data = data(512 * 8);
        let guards = guards_of(&data, 512);
        let blocks_of = |data: &[u8]| -> Vec<(Vec<u8>, u16)> {
            data.chunks(512).map(|block| (block.to_vec(), crc16_t10dif(block))).collect()
        };
        let tuples: Vec<Tuple> = (0..8).map(|n| Tuple { guard: n, app_tag: 1, ref_tag: 2 }).collect();
        for cut in [1, 5, 511, 512, 513, 520, 1040, 3000, 9000] {
            let incoming = || Incoming::new(data.chunks(cut).collect(), 512);
            let mut found = Vec::new();
            let looked = incoming().look(512, |data, tuple, guard| {
                found.push((data.to_vec(), guard));
                if tuple.is_none() { Ok(()) } else { Err(()) }
            });
            assert_eq!((looked, found), (Ok(()), blocks_of(&data)), "{cut}");
            let (mut to, mut found, mut blocks) = (vec![0; 512 * 8], [0; 8], incoming());
            for (to, found) in to.chunks_mut(512 * 3).zip(found.chunks_mut(3)) {
                blocks.copy(to, found, Store::Temporal);
            }
            assert_eq!((&to, &found[..]), (&data, &guards[..]), "{cut}");
            let travels = sealed(&data, 512, &tuples);
            let (mut to, mut found, mut stripped) = (vec![0; 512 * 8], [0; 8], [Tuple::default(); 8]);
            Incoming::new(travels.chunks(cut).collect(), 520).strip(
                &mut to,
                &mut found,
                &mut stripped,
                Store::Temporal,
            );
            assert_eq!((&to, &found[..], &stripped[..]), (&data, &guards[..], &tuples[..]), "{cut}");
            let (mut found, mut seen) = (Vec::new(), Vec::new());
            let looked = Incoming::new(travels.chunks(cut).collect(), 520).look(512, |data, tuple, guard| {
                found.push((data.to_vec(), guard));
                seen.extend(tuple);
                if seen.len() < 7 { Ok(()) } else { Err(guard) }
            });
            assert_eq!(
                (looked, &seen[..]),
                (Err(guards[6]), &tuples[..7]),
                "{cut}: it ends with the first error"
            );
            assert_eq!(found, blocks_of(&data)[..7], "{cut}");
            for store in [Store::Temporal, Store::NonTemporal] {
                let (mut to, mut incoming) =
                    (vec![0; 512 * 8], Incoming::new(travels.chunks(cut).collect(), 520));
                to.chunks_mut(512 * 3).for_each(|to| incoming.copy_data(to, store));
                assert_eq!(to, data, "{cut}");
            }
        }
    }
}
