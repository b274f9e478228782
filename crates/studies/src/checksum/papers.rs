//! The figures of the two papers, and the parts of the thesis that are repeated: sizes, tables, figures.

use published::Build;

/// Bytes of Table A.1.
pub(super) const THESIS_SIZES: [usize; 13] =
    [64, 128, 256, 512, 1024, 1500, 2048, 4096, 8192, 9000, 16384, 32768, 65536];
/// Bytes of Table 6.1, and of Tables A.5 and A.6, which add 1 to 7 to each.
pub(super) const TABLE_6_1_SIZES: [usize; 3] = [64, 1500, 9000];
/// Bytes that Tables A.5 and A.6 add.
pub(super) const EXTRA_BYTES: std::ops::RangeInclusive<usize> = 1..=7;

/// All sizes of the thesis' tables, ascending.
pub(super) fn sizes() -> Vec<usize> {
    let odd = TABLE_6_1_SIZES.into_iter().flat_map(|size| EXTRA_BYTES.map(move |extra| size + extra));
    let mut sizes: Vec<usize> = THESIS_SIZES.into_iter().chain(odd).collect();
    sizes.sort_unstable();
    sizes
}

/// The machines and compilations that the thesis measured on, in the order of its tables and of the file's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bed {
    I3,
    Xeon,
    A53,
    Power7,
    I3WithO1,
    XeonWithO1,
}

impl Bed {
    pub(super) const ALL: [Self; 6] =
        [Self::I3, Self::Xeon, Self::A53, Self::Power7, Self::I3WithO1, Self::XeonWithO1];

    /// For the heading of a column.
    pub(super) fn short(self) -> &'static str {
        match self {
            Self::I3 => "i3-2330M",
            Self::Xeon => "E5-2670 v2",
            Self::A53 => "Cortex-A53",
            Self::Power7 => "POWER7",
            Self::I3WithO1 => "i3-2330M -O1",
            Self::XeonWithO1 => "E5-2670 v2 -O1",
        }
    }

    /// For the text of a figure.
    pub(super) fn long(self) -> &'static str {
        match self {
            Self::I3 => "Intel Core i3-2330M, 2.2 GHz, GCC -O3",
            Self::Xeon => "Intel Xeon E5-2670 v2, 2.5 GHz, GCC -O3",
            Self::A53 => "ARM Cortex-A53, 1.2 GHz, GCC -O3",
            Self::Power7 => "IBM POWER7, 4.2 GHz, GCC -O3",
            Self::I3WithO1 => "Intel Core i3-2330M, 2.2 GHz, GCC -O1",
            Self::XeonWithO1 => "Intel Xeon E5-2670 v2, 2.5 GHz, GCC -O1",
        }
    }

    /// Which of our builds corresponds to its compilations.
    fn build(self) -> Build {
        match self {
            Self::I3WithO1 | Self::XeonWithO1 => Build::Scalar,
            Self::I3 | Self::Xeon | Self::A53 | Self::Power7 => Build::Paper,
        }
    }

    /// Whether this program runs on the same architecture, in the words of [`std::env::consts::ARCH`].
    pub(super) fn is_of_this_architecture(self) -> bool {
        let architecture = match self {
            Self::I3 | Self::Xeon | Self::I3WithO1 | Self::XeonWithO1 => "x86_64",
            Self::A53 => "aarch64",
            Self::Power7 => "powerpc64",
        };
        architecture == std::env::consts::ARCH
    }
}

/// Figures of the thesis for one algorithm at one size; cycles per byte, in the order of [`Bed::ALL`].
struct Line {
    algorithm: &'static str,
    bytes: usize,
    figures: [Option<f64>; Bed::ALL.len()],
}

/// All figures of the thesis.
pub(super) struct Thesis {
    lines: Vec<Line>,
}

impl Thesis {
    /// Reads the table that is part of the program.
    pub(super) fn read() -> Self {
        let text = include_str!("papers/thesis-2019.txt");
        Self { lines: text.lines().filter(|line| !line.starts_with('#')).filter_map(line).collect() }
    }

    /// Mean cycles per byte, if the thesis has the figure for this build of the algorithm.
    pub(super) fn figure(&self, algorithm: &str, bytes: usize, bed: Bed) -> Option<f64> {
        let algorithm = published::find(algorithm).filter(|algorithm| algorithm.build == bed.build())?;
        let line =
            self.lines.iter().find(|line| line.algorithm == algorithm.build_of && line.bytes == bytes)?;
        line.figures[Bed::ALL.iter().position(|&b| b == bed)?]
    }

    /// Sizes and figures of one algorithm, ascending, without the odd sizes.
    pub(super) fn curve(&self, algorithm: &str, bed: Bed) -> Vec<(usize, f64)> {
        let of_size = |bytes| Some((bytes, self.figure(algorithm, bytes, bed)?));
        THESIS_SIZES.into_iter().filter_map(of_size).collect()
    }
}

fn line(line: &'static str) -> Option<Line> {
    let mut fields = line.split_whitespace();
    let (algorithm, bytes) = (fields.next()?, fields.next()?.parse().ok()?);
    let mut figures = [None; Bed::ALL.len()];
    for figure in &mut figures {
        *figure = fields.next()?.parse().ok();
    }
    Some(Line { algorithm, bytes, figures })
}

/// One of the thesis' Figures 6.1 to 6.10.
pub(super) struct Figure {
    pub number: &'static str,
    /// What it compares.
    pub title: &'static str,
    pub bed: Bed,
    pub algorithms: &'static [&'static str],
}

/// The thesis plots the sum of TCP in words of 64 bits; its claim is about words of 16.
const AGAINST_TCP: &[&str] =
    &["crc32c-pclmulqdq", "adler-32", "fletcher-32", "ones-complement-64", "ones-complement-16"];
const WIDTHS: &[&str] = &["ones-complement-16", "ones-complement-32", "ones-complement-64"];
/// What GCC -O1 made of the same: no vectors.
const SCALAR_WIDTHS: &[&str] =
    &["ones-complement-16-scalar", "ones-complement-32-scalar", "ones-complement-64-scalar"];
const TABLES_AND_INSTRUCTION: &[&str] =
    &["crc32c-byte", "crc32c-slicing-4", "crc32c-slicing-8", "crc32c-pclmulqdq"];

/// The figures of chapter 6.
pub(super) const FIGURES: [Figure; 10] = [
    Figure { number: "6.1", title: "CRC32C beside the sums", bed: Bed::I3, algorithms: AGAINST_TCP },
    Figure { number: "6.2", title: "CRC32C beside the sums", bed: Bed::Xeon, algorithms: AGAINST_TCP },
    Figure { number: "6.3", title: "One's complement by width of word", bed: Bed::I3, algorithms: WIDTHS },
    Figure {
        number: "6.4",
        title: "One's complement by width of word, without vectors",
        bed: Bed::I3WithO1,
        algorithms: SCALAR_WIDTHS,
    },
    Figure {
        number: "6.5",
        title: "CRC32C by instruction, three ways",
        bed: Bed::Xeon,
        algorithms: &["crc32c-instruction", "crc32c-pclmulqdq", "crc32c-table"],
    },
    Figure {
        number: "6.6",
        title: "CRC32C by tables and by instruction",
        bed: Bed::I3,
        algorithms: TABLES_AND_INSTRUCTION,
    },
    Figure {
        number: "6.7",
        title: "CRC32C bit by bit and by tables",
        bed: Bed::I3,
        algorithms: &[
            "crc32c-bitwise",
            "crc32c-byte",
            "crc32c-slicing-4",
            "crc32c-slicing-8",
            "crc32c-bitwise-compiled",
        ],
    },
    Figure {
        number: "6.8",
        title: "CRC32C by tables and by instruction",
        bed: Bed::A53,
        algorithms: &["crc32c-byte", "crc32c-slicing-4", "crc32c-slicing-8", "crc32c-instruction"],
    },
    Figure {
        number: "6.9",
        title: "CRC32C by instruction beside the sums",
        bed: Bed::A53,
        algorithms: &["crc32c-instruction", "adler-32", "fletcher-32", "ones-complement-16"],
    },
    Figure {
        number: "6.10",
        title: "CRC32C by tables beside the sums",
        bed: Bed::Power7,
        algorithms: &["crc32c-slicing-8", "adler-32", "fletcher-32", "ones-complement-16"],
    },
];

/// A finding of chapter 6 of the thesis: the time of the first divided by that of the second.
pub(super) struct Finding {
    pub says: &'static str,
    pub slower: &'static str,
    pub faster: &'static str,
    pub bytes: usize,
    pub bed: Bed,
}

const fn finding(
    says: &'static str,
    slower: &'static str,
    faster: &'static str,
    bytes: usize,
    bed: Bed,
) -> Finding {
    Finding { says, slower, faster, bytes, bed }
}

/// The sum of TCP relative to CRC32C, for each word width: the thesis has numbers for the last and makes its claim about the first.
const fn of_widths(bytes: usize, bed: Bed) -> [Finding; 3] {
    let crc = "crc32c-pclmulqdq";
    [
        finding("CRC32C against the sum of TCP, words of 16 bits", "ones-complement-16", crc, bytes, bed),
        finding("the same, words of 32 bits", "ones-complement-32", crc, bytes, bed),
        finding("the same, words of 64 bits", "ones-complement-64", crc, bytes, bed),
    ]
}

/// The findings of chapter 6 that have numbers.
pub(super) fn findings() -> Vec<Finding> {
    use Bed::{A53, I3, I3WithO1};
    let sums = TABLE_6_1_SIZES.into_iter().flat_map(|bytes| of_widths(bytes, I3));
    sums.chain([
        finding("Three lanes beat one", "crc32c-instruction", "crc32c-pclmulqdq", 1500, I3),
        finding("A product joins faster than a table", "crc32c-table", "crc32c-pclmulqdq", 1024, I3),
        finding("Bytes beat bits", "crc32c-bitwise", "crc32c-byte", 65536, I3),
        finding("Slicing by 4 beats bytes", "crc32c-byte", "crc32c-slicing-4", 65536, I3),
        finding("Slicing by 8 beats bytes", "crc32c-byte", "crc32c-slicing-8", 65536, I3),
        finding(
            "Words of 64 bits are slower than of 16",
            "ones-complement-64",
            "ones-complement-16",
            9000,
            I3,
        ),
        finding(
            "Without vectors, words of 16 bits are slower than of 64",
            "ones-complement-16-scalar",
            "ones-complement-64-scalar",
            9000,
            I3WithO1,
        ),
        finding("The instruction beats slicing by 8", "crc32c-slicing-8", "crc32c-instruction", 1500, A53),
    ])
    .collect()
}

/// Pairs of a bit-by-bit algorithm and a byte-by-byte one.
pub(super) const BITS_AND_BYTES: [[&str; 2]; 2] =
    [["crc32c-bitwise", "crc32c-byte"], ["t10-reference", "t10-table"]];

/// One row of Table 2 of the note: a processor, and MB/s of each algorithm.
pub(super) struct NoteRow {
    pub processor: &'static str,
    /// In the order of [`NOTE_ALGORITHMS`].
    pub mb_per_s: Vec<f64>,
}

/// The columns of Table 2.
pub(super) const NOTE_ALGORITHMS: [&str; 5] =
    ["xor", "tcp-reference", "tcp-optimised", "t10-reference", "t10-table"];

/// Table 2 of the note.
pub(super) fn note_table_2() -> Vec<NoteRow> {
    let text = include_str!("papers/note-2007.txt");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once('|'))
        .map(|(processor, figures)| NoteRow {
            processor: processor.trim(),
            mb_per_s: figures.split_whitespace().filter_map(|figure| figure.parse().ok()).collect(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_whole() {
        let thesis = Thesis::read();
        let of_bed = |bed| {
            let names = published::all().iter().map(|algorithm| algorithm.name);
            names.map(|name| thesis.curve(name, bed).len()).sum::<usize>()
        };
        // Tables A.1 to A.4: 13, 13, 11 and 10 algorithms; three algorithms at five sizes twice.
        assert_eq!(Bed::ALL.map(of_bed), [13 * 13, 13 * 13, 11 * 13, 10 * 13, 3 * 5, 3 * 5]);
        let odd = thesis.lines.iter().filter(|line| !THESIS_SIZES.contains(&line.bytes)).count();
        assert_eq!(odd, 2 * 3 * 7, "Tables A.5 and A.6");
        assert_eq!(note_table_2().len(), 4);
        assert!(note_table_2().iter().all(|row| row.mb_per_s.len() == NOTE_ALGORITHMS.len()));
    }

    #[test]
    fn figures_are_where_the_thesis_has_them() {
        let thesis = Thesis::read();
        for (algorithm, bytes, bed, figure) in [
            ("crc32c-bitwise", 64, Bed::I3, 160.0),
            ("crc32c-instruction", 65536, Bed::Xeon, 0.433),
            ("crc32c-pclmulqdq", 9007, Bed::Xeon, 0.128),
            ("ones-complement-16", 1501, Bed::I3, 0.378),
            ("ones-complement-64", 9000, Bed::Power7, 0.958),
            ("ones-complement-32-scalar", 512, Bed::XeonWithO1, 0.437),
            ("crc32c-byte", 64, Bed::A53, 20.875),
        ] {
            assert_eq!(thesis.figure(algorithm, bytes, bed), Some(figure), "{algorithm} {bytes}");
        }
        assert_eq!(thesis.figure("crc32c-table", 64, Bed::Power7), None);
        assert_eq!(thesis.figure("crc32c-table", 65, Bed::I3), None);
        for (algorithm, bed) in [
            ("ones-complement-32", Bed::I3WithO1),
            ("ones-complement-32-scalar", Bed::I3),
            ("crc32c-bitwise-compiled", Bed::I3),
        ] {
            assert_eq!(thesis.figure(algorithm, 64, bed), None, "{algorithm}: not the build of that bed");
        }
        assert_eq!(thesis.curve("adler-32", Bed::I3).len(), 13);
    }

    #[test]
    fn every_name_is_that_of_an_algorithm() {
        let thesis = Thesis::read();
        let figures = FIGURES.iter().flat_map(|figure| figure.algorithms.iter());
        let all_findings = findings();
        let findings = all_findings.iter().flat_map(|finding| [&finding.slower, &finding.faster]);
        let lines = thesis.lines.iter().map(|line| &line.algorithm);
        let pairs = BITS_AND_BYTES.iter().flatten();
        for name in figures.chain(findings).chain(lines).chain(&NOTE_ALGORITHMS).chain(pairs) {
            assert!(published::find(name).is_some(), "{name}");
        }
        for finding in &all_findings {
            for name in [finding.slower, finding.faster] {
                assert!(thesis.figure(name, finding.bytes, finding.bed).is_some(), "{}", finding.says);
            }
        }
    }
}
