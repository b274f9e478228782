//! The golden vectors of `vectors/`, which the tests of `integrity` write from the definitions: the papers' algorithms agree.

use std::fs;
use std::path::Path;

use published::Family;

/// The bytes of a field in hexadecimal; `-` stands for none.
fn unhex(field: &str) -> Vec<u8> {
    let pairs = field.as_bytes().as_chunks::<2>().0;
    let byte =
        |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).expect("text"), 16).expect(field);
    if field == "-" { Vec::new() } else { pairs.iter().map(byte).collect() }
}

/// Compares every implementation of a family with the vectors in a file: `value` reads the first field.
fn check(file: &str, family: Family, value: impl Fn(&[u8]) -> u64) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors").join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut vectors = 0;
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let fields: Vec<&str> = line.splitn(3, ' ').collect();
        let (want, data) = (value(&unhex(fields[0])), unhex(fields[1]));
        for algorithm in published::all().iter().filter(|a| a.family == family && a.available()) {
            assert_eq!(algorithm.checksum(&data), want, "{}: {}", algorithm.name, fields[2]);
        }
        vectors += 1;
    }
    assert!(vectors > 0, "{file}");
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[test]
#[cfg_attr(miri, ignore = "reads files")]
fn every_paper_agrees_with_the_vectors() {
    // The file has the digest as on the wire.
    check("crc32c.txt", Family::Crc32c, |bytes| {
        u32::from_le_bytes(bytes.try_into().expect("four bytes")).into()
    });
    check("crc16-t10dif.txt", Family::T10, big_endian);
    check("internet-checksum.txt", Family::OnesComplement, big_endian);
}
