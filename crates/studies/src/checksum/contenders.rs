//! What is measured: the algorithms of the papers, this program's kernels, other crates, and the limits that memory sets.

use std::cell::RefCell;
use std::hint::black_box;

use crc::{CRC_16_T10_DIF, CRC_32_ISCSI, Crc, Table};
use crc_fast::CrcAlgorithm;
use integrity::t10::{self, Layout};
use integrity::{Store, kernels};
use published::{Algorithm, Paper};
use serde::Serialize;

use super::papers;
use crate::oracle::{Answer, SECTOR_BYTES};
use crate::source::Origin;

/// Makes a number of calls, one after the other, with a destination and a source of equal lengths; returns the last
/// result.
pub(super) type Work = Box<dyn Fn(usize, &mut [u8], &[u8]) -> u64>;

/// One way to compute a checksum.
pub(super) struct Contender {
    /// Stable, for command lines and JSON: that of the algorithm, or `group/name`.
    pub name: String,
    pub title: String,
    /// Paper and section, or crate.
    pub source: String,
    pub origin: Origin,
    pub answer: Answer,
    /// Whether it writes the destination.
    pub copies: bool,
    /// On a machine without its instructions: the kernel measured instead.
    pub substitute: Option<String>,
    pub work: Work,
}

impl Contender {
    fn new(name: String, title: &str, source: &str, origin: Origin, answer: Answer, work: Work) -> Self {
        let (title, source) = (title.to_owned(), source.to_owned());
        Self { name, title, source, origin, answer, copies: false, substitute: None, work }
    }

    fn that_copies(self) -> Self {
        Self { copies: true, ..self }
    }
}

/// How samples are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Method {
    /// One call between two readings of the counter, as in the thesis: the figure includes their cost.
    Single,
    /// So many calls that the cost of the readings is negligible.
    Batch,
}

/// Contenders for the same task, measured in turn.
pub(super) struct Group {
    /// Stable; also what the names of its contenders begin with, except for the papers'.
    pub id: &'static str,
    pub title: &'static str,
    pub about: &'static str,
    pub method: Method,
    /// Bytes, ascending.
    pub sizes: Vec<usize>,
    /// Sizes are multiples of this.
    pub unit: usize,
    pub contenders: Vec<Contender>,
}

/// Every group, in order.
pub(super) fn groups() -> Vec<Group> {
    vec![
        Group {
            id: "papers",
            title: "The thirteen implementations of the thesis",
            about: "One call a sample; the cost of reading the counter is in the figures, as in the thesis.",
            method: Method::Single,
            sizes: papers::sizes(),
            unit: 1,
            contenders: algorithms(Paper::Thesis2019),
        },
        Group {
            id: "crc32c",
            title: "CRC32C: this library, other crates, and reading alone",
            about: "Many independent calls a sample, data in the cache.",
            method: Method::Batch,
            sizes: kernel_sizes(),
            unit: 1,
            contenders: crc32c(),
        },
        Group {
            id: "copy",
            title: "Copy + CRC32C: in one pass, in two, and copying alone",
            about: "Many independent calls a sample, data in the cache. Both passes of two count.",
            method: Method::Batch,
            sizes: kernel_sizes(),
            unit: 1,
            contenders: copy(),
        },
        Group {
            id: "t10",
            title: "Guards of protection information: CRC16-T10DIF, the checksum of IP, CRC64-NVMe",
            about: "Many independent calls a sample, data in the cache; one guard over the whole run. Guards without a name of their own are CRC16-T10DIF.",
            method: Method::Batch,
            sizes: kernel_sizes(),
            unit: 1,
            contenders: guard(),
        },
        Group {
            id: "protected",
            title: "Copy + CRC32C + guards of 512-byte sectors: in one pass, and in three",
            about: "Many independent calls a sample, data in the cache.",
            method: Method::Batch,
            sizes: [512].into_iter().chain((12..=20).map(|power| 1 << power)).collect(),
            unit: SECTOR_BYTES,
            contenders: protected(),
        },
    ]
}

/// Those of Table A.1, an iSCSI header, and a run that is larger than the first caches.
fn kernel_sizes() -> Vec<usize> {
    [48].into_iter().chain(papers::THESIS_SIZES).chain([1 << 20]).collect()
}

/// The algorithms of one paper, each with a substitute where the machine cannot run it.
pub(super) fn algorithms(paper: Paper) -> Vec<Contender> {
    published::all().iter().filter(|a| a.paper == paper).map(|a| algorithm(a, a.available())).collect()
}

fn algorithm(algorithm: &'static Algorithm, available: bool) -> Contender {
    // Only CRC32C kernels can lack an instruction: the sums and the T10 algorithms of the papers need none.
    let (work, substitute): (Work, _) = match available {
        true => (each(|data| algorithm.checksum(data)), None),
        false => (each(|data| integrity::crc32c(data).into()), Some(integrity::kernel_name().to_owned())),
    };
    Contender {
        name: algorithm.name.to_owned(),
        title: algorithm.title.to_owned(),
        source: algorithm.source.to_owned(),
        origin: Origin::Paper,
        answer: algorithm.family.into(),
        copies: false,
        substitute,
        work,
    }
}

fn crc32c() -> Vec<Contender> {
    static TABLES: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);
    let new = |name: &str, title: &str, source: &str, origin, work| {
        let name = format!("crc32c/{name}");
        Contender::new(name, title, source, origin, Answer::Crc32c, work)
    };
    let in_use = format!("intact ({})", integrity::kernel_name());
    let mut contenders = vec![new(
        "intact",
        &in_use,
        "integrity::crc32c",
        Origin::Intact,
        each(|data| integrity::crc32c(data).into()),
    )];
    // The selected kernel is already in the list, and the reference is the first of the papers.
    let there = [integrity::kernel_name(), kernels::reference().name()];
    let others = kernels::available().filter(|kernel| !there.contains(&kernel.name()));
    contenders.extend(others.map(|kernel| {
        let work = each(|data| kernel.append(0, data).into());
        let title = format!("intact {}", kernel.name());
        new(kernel.name(), &title, "integrity::kernels", Origin::Intact, work)
    }));
    contenders.extend([
        new(
            "crc-fast",
            "crc-fast",
            "crate crc-fast",
            Origin::Peer,
            each(|data| crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, data)),
        ),
        new("crc32c", "crc32c", "crate crc32c", Origin::Peer, each(|data| crc32c::crc32c(data).into())),
        new("crc", "crc (16 tables)", "crate crc", Origin::Peer, each(|data| TABLES.checksum(data).into())),
    ]);
    contenders.push(read("crc32c"));
    contenders
}

fn copy() -> Vec<Contender> {
    let new = |name: &str, title: &str, source: &str, origin, work| {
        let name = format!("copy/{name}");
        Contender::new(name, title, source, origin, Answer::Crc32c, work).that_copies()
    };
    vec![
        new(
            "intact",
            "intact, one pass",
            "integrity::copy_crc32c",
            Origin::Intact,
            each_copy(|dst, src| finished(integrity::copy_crc32c(0, dst, src, Store::Temporal))),
        ),
        new(
            "intact-non-temporal",
            "intact, non-temporal",
            "integrity::copy_crc32c",
            Origin::Intact,
            each_copy(|dst, src| finished(integrity::copy_crc32c(0, dst, src, Store::NonTemporal))),
        ),
        new(
            "memcpy-crc-fast",
            "memcpy, then crc-fast",
            "crate crc-fast",
            Origin::Peer,
            each_copy(|dst, src| {
                dst.copy_from_slice(src);
                crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, black_box(dst))
            }),
        ),
        new(
            "memcpy-crc32c",
            "memcpy, then crc32c",
            "crate crc32c",
            Origin::Peer,
            each_copy(|dst, src| {
                dst.copy_from_slice(src);
                crc32c::crc32c(black_box(dst)).into()
            }),
        ),
        memcpy("copy"),
    ]
}

/// A refusal becomes a wrong result: no digest has 64 bits.
fn finished<E>(crc: Result<u32, E>) -> u64 {
    crc.map_or(u64::MAX, u64::from)
}

fn guard() -> Vec<Contender> {
    static TABLES: Crc<u16, Table<16>> = Crc::<u16, Table<16>>::new(&CRC_16_T10_DIF);
    let new = |name: &str, title: &str, source: &str, origin, answer, work| {
        Contender::new(format!("t10/{name}"), title, source, origin, answer, work)
    };
    let in_use = format!("intact ({})", t10::kernel_name());
    let mut contenders = vec![new(
        "intact",
        &in_use,
        "integrity::crc16_t10dif",
        Origin::Intact,
        Answer::T10,
        each(|data| integrity::crc16_t10dif(data).into()),
    )];
    let reference = t10::kernels::reference();
    let others = t10::kernels::available().skip(1).filter(|kernel| !std::ptr::eq(*kernel, reference));
    contenders.extend(others.map(|kernel| {
        let work = each(|data| kernel.append(0, data).into());
        let title = format!("intact {}", kernel.name());
        new(kernel.name(), &title, "integrity::t10::kernels", Origin::Intact, Answer::T10, work)
    }));
    contenders.extend([
        new(
            "intact-ip-checksum",
            "intact, checksum of IP",
            "integrity::ip_checksum",
            Origin::Intact,
            Answer::OnesComplement,
            each(|data| integrity::ip_checksum(data).into()),
        ),
        new(
            "intact-crc64-nvme",
            "intact, CRC64-NVMe",
            "integrity::crc64_nvme",
            Origin::Intact,
            Answer::Crc64Nvme,
            each(integrity::crc64_nvme),
        ),
        new(
            "crc-fast-crc64-nvme",
            "crc-fast, CRC64-NVMe",
            "crate crc-fast",
            Origin::Peer,
            Answer::Crc64Nvme,
            each(|data| crc_fast::checksum(CrcAlgorithm::Crc64Nvme, data)),
        ),
        new(
            "crc-fast",
            "crc-fast",
            "crate crc-fast",
            Origin::Peer,
            Answer::T10,
            each(|data| crc_fast::checksum(CrcAlgorithm::Crc16T10Dif, data)),
        ),
        new(
            "crc",
            "crc (16 tables)",
            "crate crc",
            Origin::Peer,
            Answer::T10,
            each(|data| TABLES.checksum(data).into()),
        ),
        read("t10"),
    ]);
    contenders
}

/// The guards of the sectors of a run, and memory for them.
type Guards = RefCell<Vec<u16>>;

/// One number for all guards; it depends on their order.
fn joined(crc: u32, guards: &[u16]) -> u64 {
    let guards = guards.iter().fold(0u32, |all, guard| all.rotate_left(5) ^ u32::from(*guard));
    u64::from(guards) << 32 | u64::from(crc)
}

fn protected() -> Vec<Contender> {
    let new = |name: &str, title: &str, source: &str, origin, work| {
        let name = format!("protected/{name}");
        Contender::new(name, title, source, origin, Answer::CrcAndGuards, work).that_copies()
    };
    let one_pass = |store| {
        let guards = Guards::default();
        each_copy(move |dst: &mut [u8], src: &[u8]| {
            let mut guards = guards.borrow_mut();
            guards.resize(src.len() / SECTOR_BYTES, 0);
            let layout = Layout::plain(SECTOR_BYTES);
            match integrity::copy_crc32c_t10(0, dst, src, layout, &mut guards, store) {
                Ok(crc) => joined(crc, &guards),
                Err(_) => u64::MAX,
            }
        })
    };
    let three_passes = |crc32c: fn(&[u8]) -> u32, guard: fn(&[u8]) -> u16| {
        let guards = Guards::default();
        each_copy(move |dst: &mut [u8], src: &[u8]| {
            dst.copy_from_slice(src);
            let dst = &*black_box(dst);
            let mut guards = guards.borrow_mut();
            guards.clear();
            guards.extend(dst.chunks(SECTOR_BYTES).map(guard));
            joined(crc32c(dst), &guards)
        })
    };
    let fast = three_passes(
        |data| crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, data) as u32,
        |sector| crc_fast::checksum(CrcAlgorithm::Crc16T10Dif, sector) as u16,
    );
    let ours = three_passes(integrity::crc32c, integrity::crc16_t10dif);
    let one = "integrity::copy_crc32c_t10";
    vec![
        new("intact", "intact, one pass", one, Origin::Intact, one_pass(Store::Temporal)),
        new("intact-non-temporal", "intact, non-temporal", one, Origin::Intact, one_pass(Store::NonTemporal)),
        new("intact-passes", "intact, three passes", "crate integrity", Origin::Intact, ours),
        new("crc-fast", "crc-fast, three passes", "crate crc-fast", Origin::Peer, fast),
        memcpy("protected"),
    ]
}

/// The limit for everything that reads.
fn read(group: &str) -> Contender {
    let (name, work) = (format!("{group}/read"), each(published::read_only));
    Contender::new(name, "read only", "published::read_only", Origin::Limit, Answer::Words, work)
}

/// The limit for everything that copies.
fn memcpy(group: &str) -> Contender {
    let work = each_copy(|dst, src| {
        dst.copy_from_slice(src);
        0
    });
    let name = format!("{group}/memcpy");
    Contender::new(name, "memcpy only", "copy_from_slice", Origin::Limit, Answer::Copy, work).that_copies()
}

/// Calls of something that only reads. The compiler sees `one` here and may inline it into the loop.
fn each(one: impl Fn(&[u8]) -> u64 + 'static) -> Work {
    Box::new(move |calls, _, src| {
        let mut answer = 0;
        for _ in 0..calls {
            answer = black_box(one(black_box(src)));
        }
        answer
    })
}

/// Calls of something that copies.
fn each_copy(one: impl Fn(&mut [u8], &[u8]) -> u64 + 'static) -> Work {
    Box::new(move |calls, dst, src| {
        let mut answer = 0;
        for _ in 0..calls {
            answer = black_box(one(black_box(&mut *dst), black_box(src)));
        }
        answer
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::right;

    #[test]
    fn every_contender_answers_right_and_has_a_name_of_its_own() {
        let contenders: Vec<Contender> = groups()
            .into_iter()
            .flat_map(|group| group.contenders)
            .chain(algorithms(Paper::Note2007))
            .collect();
        for length in [0, 1, 63, 64, 257, 512, 1500, 4096, 9001] {
            let src: Vec<u8> = (0..length).map(|n| (n * 7 + n / 251) as u8).collect();
            let sectors = |answer| answer != Answer::CrcAndGuards || length % SECTOR_BYTES == 0;
            for contender in contenders.iter().filter(|contender| sectors(contender.answer)) {
                let mut dst = vec![0xa5; length];
                let answer = (contender.work)(2, &mut dst, &src);
                assert_eq!(answer, right(contender.answer, &src), "{} of {length}", contender.name);
                assert_eq!(dst == src, contender.copies || length == 0, "{} of {length}", contender.name);
            }
        }
        let mut names: Vec<&str> = contenders.iter().map(|contender| contender.name.as_str()).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }

    #[test]
    fn what_the_machine_lacks_is_replaced_and_said_so() {
        let lacking = algorithm(published::find("crc32c-pclmulqdq").unwrap(), false);
        assert_eq!(lacking.substitute.as_deref(), Some(integrity::kernel_name()));
        assert_eq!((lacking.work)(1, &mut [], b"123456789"), 0xe306_9283);
        assert_eq!(algorithm(published::find("adler-32").unwrap(), true).substitute, None);
    }
}
