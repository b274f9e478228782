//! The text of every file in `vectors/` that is about checksums.

use std::fmt::Write;

use crate::model::{CRC16_T10DIF, CRC32C, CRC64_NVME, internet_checksum};

/// The format of all files.
const FORMAT: &str = "\
# Written by `cargo xtask vectors` from the definition, one bit at a time; a test compares. One vector per line, fields
# separated by one space, the name last. Bytes are in hexadecimal, in the order in which they travel; - stands for none.
# Lines that are empty or start with # do not count.
#
";

/// Name and text of every file.
pub fn all() -> Vec<(&'static str, String)> {
    vec![
        ("crc32c.txt", crc32c()),
        ("crc32c-blocks.txt", crc32c_blocks()),
        ("crc32c-combine.txt", crc32c_combine()),
        ("crc16-t10dif.txt", crc16_t10dif()),
        ("crc64-nvme.txt", crc64_nvme()),
        ("internet-checksum.txt", internet_checksums()),
    ]
}

/// The PDU of RFC 7143, appendix A.4.
const READ_10: &str = "01c0000000000000000000000000000014000000000004000000001400000018\
                       28000000000000000200000000000000";

/// Lengths around the steps of table-driven, word-wise and vector implementations, and typical network lengths.
const LENGTHS: [usize; 27] = [
    2, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 47, 49, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513,
    1500, 4096,
];

/// Bytes without structure: the high bytes of Knuth's linear congruential generator, started at `seed`.
fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "-".to_owned();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn unhex(text: &str) -> Vec<u8> {
    if text == "-" {
        return Vec::new();
    }
    assert!(text.len().is_multiple_of(2), "odd number of digits: {text}");
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect(text)).collect()
}

/// The inputs that every standard uses: `len` bytes of zeroes, ones, counting up and counting down.
fn standard(len: usize) -> [(Vec<u8>, String); 4] {
    let up = || (0..len).map(|i| i as u8);
    [
        (vec![0; len], format!("{len} bytes of zeroes")),
        (vec![0xff; len], format!("{len} bytes of ones")),
        (up().collect(), format!("{len} bytes of incrementing 00, 01, ...")),
        (up().rev().collect(), format!("{len} bytes of decrementing ..., 01, 00")),
    ]
}

/// The vectors after those of a standard: nothing, the catalogues' check string, short runs, random ones.
fn common(seed: u64) -> Vec<(Vec<u8>, String)> {
    let mut inputs = vec![
        (Vec::new(), "nothing".to_owned()),
        (b"123456789".to_vec(), "the check value of the CRC catalogues: the digits 1 to 9".to_owned()),
        (b"a".to_vec(), "one byte: the letter a".to_owned()),
        (b"abc".to_vec(), "three bytes: abc".to_owned()),
        (vec![0x80], "one byte: its highest bit".to_owned()),
        (vec![0x01], "one byte: its lowest bit".to_owned()),
    ];
    for len in LENGTHS {
        inputs.push((random(seed + len as u64, len), format!("{len} random bytes")));
    }
    inputs
}

/// A file whose lines are a value, its data, and a name.
fn simple(head: &str, inputs: &[(Vec<u8>, String)], value: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let mut text = format!("{head}{FORMAT}");
    for (data, name) in inputs {
        writeln!(text, "{} {} {name}", hex(&value(data)), hex(data)).expect("a string takes everything");
    }
    text
}

fn digest(data: &[u8]) -> Vec<u8> {
    (CRC32C.of(data) as u32).to_le_bytes().to_vec()
}

fn crc32c() -> String {
    let head = "\
# CRC32C (RFC 7143, section 13.1): polynomial 0x1edc6f41, lowest bit of each byte first, register started as all ones,
# result complemented. Covers row DIG-02.
#
# Fields: the digest as the four bytes on the wire; the data; a name.
";
    let mut inputs: Vec<_> =
        standard(32).into_iter().map(|(data, name)| (data, format!("RFC 7143 A.4: {name}"))).collect();
    let pdu = "RFC 7143 A.4: an iSCSI SCSI Command PDU that carries READ(10)";
    inputs.push((unhex(READ_10), pdu.to_owned()));
    inputs.extend(common(0x100));
    simple(head, &inputs, digest)
}

fn crc16_t10dif() -> String {
    let head = "\
# CRC16-T10DIF, the guard of T10 protection information (SBC-3, section 4.22.4): polynomial 0x8bb7, highest bit of each
# byte first, register started as zero, result as it is.
#
# Fields: the guard as the two bytes at the head of a protection information tuple; the data; a name.
";
    let [zeroes, ones, up, _] = standard(32);
    let sbc3 = [
        zeroes,
        ones,
        up,
        ([vec![0xff; 2], vec![0; 30]].concat(), "two bytes of ones, 30 of zeroes".to_owned()),
        ((0xe0..=0xff).rev().collect(), "32 bytes of decrementing ff, fe, ...".to_owned()),
    ];
    let mut inputs: Vec<_> = sbc3.into_iter().map(|(data, name)| (data, format!("SBC-3: {name}"))).collect();
    inputs.extend(standard(512));
    inputs.extend(common(0x200));
    simple(head, &inputs, |data| (CRC16_T10DIF.of(data) as u16).to_be_bytes().to_vec())
}

fn crc64_nvme() -> String {
    let head = "\
# CRC64-NVMe, the 64-bit guard of the NVM Command Set Specification: polynomial 0xad93d23594c93659, lowest bit of each byte
# first, register started as all ones, result complemented.
#
# Fields: the guard as the eight bytes at the head of an extended protection information tuple, highest byte first; the data;
# a name.
";
    let mut inputs: Vec<_> =
        standard(4096).into_iter().map(|(data, name)| (data, format!("NVM Command Set: {name}"))).collect();
    inputs.extend(common(0x300));
    simple(head, &inputs, |data| CRC64_NVME.of(data).to_be_bytes().to_vec())
}

fn internet_checksums() -> String {
    let head = "\
# The Internet checksum (RFC 1071), which may stand in for the CRC as the guard between a host and its adapter: complement of
# the one's complement sum of big-endian words, an odd byte padded with a zero.
#
# Fields: the checksum as the two bytes in a packet or a tuple, highest byte first; the data; a name.
";
    let mut inputs = vec![(unhex("0001f203f4f5f6f7"), "RFC 1071, section 3".to_owned())];
    inputs.extend(standard(512));
    inputs.extend(common(0x400));
    simple(head, &inputs, |data| internet_checksum(data).to_be_bytes().to_vec())
}

fn crc32c_combine() -> String {
    let head = "\
# CRC32C of a concatenation from the CRC32Cs of its parts. Digests are numbers here, not bytes on the wire.
#
# Fields: CRC32C of A; CRC32C of B; length of B in bytes, decimal; CRC32C of A followed by B; a name.
";
    let mut text = format!("{head}{FORMAT}");
    let mut line = |crc_a: u64, crc_b: u64, len_b: u64, name: &str| {
        let combined = CRC32C.combined(crc_a, crc_b, len_b);
        writeln!(text, "{crc_a:08x} {crc_b:08x} {len_b} {combined:08x} {name}")
            .expect("a string takes everything");
    };
    for len_b in [0, 1, 2, 3, 4, 5, 8, 48, 511, 512, 513, 1500, 4096, 8192, 9000] {
        let (a, b) = (random(0x500, 100), random(0x501 + len_b as u64, len_b));
        line(CRC32C.of(&a), CRC32C.of(&b), len_b as u64, "random bytes");
    }
    for shift in [16, 20, 24, 31, 32, 33, 40, 61, 63] {
        line(0x1234_5678, 0x9abc_def0, 1 << shift, &format!("2^{shift} bytes, values without data"));
    }
    line(0xffff_ffff, 0, u64::MAX, "the longest length");
    line(0, 0xdead_beef, 4096, "nothing before it");
    text
}

fn crc32c_blocks() -> String {
    let head = "\
# CRC32C of each block of a run and of the whole run.
#
# Fields: bytes of a block, decimal; digest of the run as the four bytes on the wire; the digests of its blocks likewise, one
# after the other, the last block being what is left; the data; a name.
";
    let mut text = format!("{head}{FORMAT}");
    for (block, len) in [
        (1, 5),
        (4, 16),
        (16, 47),
        (64, 256),
        (512, 512),
        (512, 2048),
        (512, 1300),
        (4096, 8192),
        (4096, 9000),
    ] {
        let data = random(0x600 + len as u64, len);
        let blocks: Vec<u8> = data.chunks(block).flat_map(digest).collect();
        let name = format!("{len} random bytes");
        writeln!(text, "{block} {} {} {} {name}", hex(&digest(&data)), hex(&blocks), hex(&data))
            .expect("a string takes everything");
    }
    text
}
