//! Who computes the guards: nobody, the note's algorithms, or this program.

use blockstore::{BlockStore, Durability, StoreError};
use integrity::t10::{self, Guard, Layout};
use published::Paper;

use crate::oracle::{Answer, SECTOR_BYTES};
use crate::source::Origin;

/// One way to compute guards and to write.
#[derive(Debug)]
pub(super) struct Algorithm {
    /// Stable, for command lines and JSON.
    pub name: &'static str,
    pub title: &'static str,
    pub source: &'static str,
    pub origin: Origin,
    /// The kind of guard; `None`: none is computed.
    pub answer: Option<Answer>,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// The write alone.
    Nothing,
    /// Sector by sector, and then the write.
    EachSector(&'static published::Algorithm),
    /// All sectors in one call, and then the write.
    Run(Guard),
    /// In the copy that is the write: only where the disk is memory.
    WithCopy,
}

/// All of them: the note's in the order of its figures, then this program's.
pub(super) fn all() -> Vec<Algorithm> {
    let ours = |name, title, source, answer, way| Algorithm {
        name,
        title,
        source,
        origin: Origin::Intact,
        answer: Some(answer),
        way,
    };
    let mut all = vec![Algorithm {
        name: "none",
        title: "None",
        source: "Petersen 2007, section 3",
        origin: Origin::Limit,
        answer: None,
        way: Way::Nothing,
    }];
    all.extend(published::all().iter().filter(|a| a.paper == Paper::Note2007).map(|algorithm| Algorithm {
        name: algorithm.name,
        title: algorithm.title,
        source: algorithm.source,
        origin: Origin::Paper,
        answer: Some(algorithm.family.into()),
        way: Way::EachSector(algorithm),
    }));
    all.extend([
        ours(
            "ip-intact",
            "IP checksum, intact",
            "integrity::t10::guards",
            Answer::OnesComplement,
            Way::Run(Guard::IpChecksum),
        ),
        ours("t10-intact", "T10, intact", "integrity::t10::guards", Answer::T10, Way::Run(Guard::Crc16)),
        ours(
            "t10-intact-copy",
            "T10 in the copy, intact",
            "integrity::t10::copy_guards",
            Answer::T10,
            Way::WithCopy,
        ),
    ]);
    all
}

impl Algorithm {
    /// Whether it can be measured on a disk that is memory, or on one that is not.
    pub(super) fn suits(&self, in_memory: bool) -> bool {
        in_memory || !matches!(self.way, Way::WithCopy)
    }

    /// Computes the guards of `data`, whole sectors, and writes them to the disk.
    ///
    /// # Errors
    /// Those of the write.
    pub(super) fn write(
        &self,
        disk: &dyn BlockStore,
        offset: u64,
        data: &[u8],
        guards: &mut [u16],
        durability: Durability,
    ) -> Result<(), StoreError> {
        let plain = Layout::plain(SECTOR_BYTES);
        const FITS: &str = "whole sectors, and a place for each";
        match self.way {
            Way::Nothing => {}
            Way::EachSector(algorithm) => {
                for (sector, guard) in data.chunks_exact(SECTOR_BYTES).zip(guards) {
                    // Every guard has sixteen bits or fewer.
                    *guard = algorithm.checksum(sector) as u16;
                }
            }
            Way::Run(guard) => t10::guards(guard, data, plain, guards).expect(FITS),
            Way::WithCopy => {
                let mut done = 0;
                let memory = disk.in_place().expect("only disks in memory are measured so");
                memory.write_in_place(offset, data.len() as u64, &mut |to| {
                    let from = &data[done..done + to.len()];
                    let guards = &mut guards[done / SECTOR_BYTES..(done + to.len()) / SECTOR_BYTES];
                    let store = integrity::Store::Temporal;
                    t10::copy_guards(Guard::Crc16, to, from, plain, guards, store).expect(FITS);
                    done += from.len();
                })?;
                return Ok(());
            }
        }
        disk.write(offset, &[data], durability)
    }
}

#[cfg(test)]
mod tests {
    use blockstore::RamStore;

    use super::*;
    use crate::oracle::right;
    use harness::content::random;

    #[test]
    fn every_algorithm_computes_the_guards_and_writes_the_data() {
        let disk = RamStore::new(1 << 20, SECTOR_BYTES as u32).unwrap();
        let mut state = 7;
        for algorithm in all() {
            // Over the border of two pieces of the store.
            let (offset, data) = (65536 - 1024, random(6 * SECTOR_BYTES, &mut state));
            let (mut guards, mut read) = ([0; 6], vec![0; data.len()]);
            algorithm.write(&disk, offset, &data, &mut guards, Durability::Cached).unwrap();
            disk.read(offset, &mut read).unwrap();
            assert_eq!(read, data, "{}", algorithm.name);
            let expected = |sector| algorithm.answer.map_or(0, |answer| right(answer, sector) as u16);
            let expected: Vec<u16> = data.chunks(SECTOR_BYTES).map(expected).collect();
            assert_eq!(guards[..], expected, "{}", algorithm.name);
        }
    }

    #[test]
    fn the_notes_come_in_its_order_and_names_are_unique() {
        let names: Vec<&str> = all().iter().map(|algorithm| algorithm.name).collect();
        let note = ["none", "xor", "tcp-reference", "tcp-optimised", "t10-reference", "t10-table"];
        assert_eq!(names[..6], note);
        assert!(names.iter().enumerate().all(|(n, name)| !names[..n].contains(name)));
    }
}
