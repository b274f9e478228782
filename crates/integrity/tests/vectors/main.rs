//! The golden vectors of `vectors/`, for other languages and for the RTL test bench: they follow the definitions,
//! include the standards' own examples, and everything in this crate agrees with them.
//!
//! `cargo xtask vectors` writes the files, by running these tests with `WRITE_VECTORS=1`.

mod files;
mod model;

use std::fs;
use std::path::PathBuf;

use files::unhex;
use integrity::{crc32c_blocks, crc32c_combine, crc64_nvme, ip_checksum, kernels, t10};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors").join(name)
}

#[test]
#[cfg_attr(miri, ignore = "reads files")]
fn the_files_are_what_the_definitions_say() {
    let write = std::env::var_os("WRITE_VECTORS").is_some_and(|value| value == "1");
    for (name, text) in files::all() {
        let path = path(name);
        if write {
            fs::write(&path, &text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
        let found = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert!(found == text, "{} is not current: cargo xtask vectors", path.display());
    }
}

/// The fields of every vector in a file; the last field is the name.
fn vectors(name: &str, fields: usize) -> Vec<Vec<String>> {
    let files = files::all();
    let (_, text) = files.iter().find(|(file, _)| *file == name).expect(name);
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let vectors: Vec<Vec<String>> =
        lines.map(|line| line.splitn(fields, ' ').map(str::to_owned).collect()).collect();
    assert!(!vectors.is_empty() && vectors.iter().all(|vector| vector.len() == fields), "{name}");
    vectors
}

/// Checks the standards' own values, found by the beginning of the vectors' names, in the order of the file.
fn check_examples(name: &str, beginning: &str, want: &[&str]) {
    let found: Vec<String> = vectors(name, 3)
        .into_iter()
        .filter(|vector| vector[2].starts_with(beginning))
        .map(|vector| vector[0].clone())
        .collect();
    assert_eq!(found, want, "{name}: {beginning}");
}

// covers: DIG-02
#[test]
fn the_standards_examples_are_among_the_vectors() {
    let rfc7143 = ["aa36918a", "43aba862", "4e79dd46", "5cdb3f11", "563a96d9"];
    check_examples("crc32c.txt", "RFC 7143 A.4", &rfc7143);
    check_examples("crc16-t10dif.txt", "SBC-3", &["0000", "a293", "0224", "21b8", "a0b7"]);
    let nvme = ["6482d367eb22b64e", "c0ddba7302eca3ac", "3e729f5f6750449c", "9a2df64b8e9e517e"];
    check_examples("crc64-nvme.txt", "NVM Command Set", &nvme);
    check_examples("internet-checksum.txt", "RFC 1071", &["220d"]);
    for (name, want) in
        [("crc32c.txt", "839206e3"), ("crc16-t10dif.txt", "d0db"), ("crc64-nvme.txt", "ae8b14860a799888")]
    {
        check_examples(name, "the check value", &[want]);
    }
}

#[test]
fn crc32c_of_every_kernel_agrees() {
    for vector in vectors("crc32c.txt", 3) {
        let (want, data) =
            (u32::from_le_bytes(unhex(&vector[0]).try_into().expect("four bytes")), unhex(&vector[1]));
        for kernel in kernels::available() {
            assert_eq!(kernel.append(0, &data), want, "{}: {}", kernel.name(), vector[2]);
        }
    }
}

fn number(field: &str) -> u64 {
    u64::from_str_radix(field, 16).expect(field)
}

#[test]
fn guards_of_every_kernel_agree() {
    for vector in vectors("crc16-t10dif.txt", 3) {
        for kernel in t10::kernels::available() {
            let guard = kernel.append(0, &unhex(&vector[1]));
            assert_eq!(u64::from(guard), number(&vector[0]), "{}: {}", kernel.name(), vector[2]);
        }
    }
    for vector in vectors("crc64-nvme.txt", 3) {
        assert_eq!(crc64_nvme(&unhex(&vector[1])), number(&vector[0]), "{}", vector[2]);
    }
    for vector in vectors("internet-checksum.txt", 3) {
        assert_eq!(u64::from(ip_checksum(&unhex(&vector[1]))), number(&vector[0]), "{}", vector[2]);
    }
}

#[test]
fn crc32c_of_every_block_agrees() {
    for vector in vectors("crc32c-blocks.txt", 5) {
        let (block, data): (usize, _) = (vector[0].parse().expect("bytes of a block"), unhex(&vector[3]));
        let digest = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        let (run, blocks) = (digest(&unhex(&vector[1])), unhex(&vector[2]));
        let (blocks, rest) = blocks.as_chunks::<4>();
        assert!(rest.is_empty() && blocks.len() == data.len().div_ceil(block), "{}", vector[4]);
        let mut found = vec![0; blocks.len()];
        let block_bytes = block.try_into().expect("a block has bytes");
        assert_eq!(crc32c_blocks(0, &data, block_bytes, &mut found), Ok(run), "{}", vector[4]);
        assert!(found.iter().zip(blocks).all(|(crc, want)| *crc == digest(want)), "{}", vector[4]);
        for kernel in kernels::available() {
            let mut folded = 0;
            for (bytes, want) in data.chunks(block).zip(blocks) {
                let crc = kernel.append(0, bytes);
                assert_eq!(crc, digest(want), "{}: {}", kernel.name(), vector[4]);
                folded = kernel.combine(folded, crc, bytes.len() as u64);
            }
            assert_eq!(folded, run, "{}: {}", kernel.name(), vector[4]);
            assert_eq!(kernel.append(0, &data), run, "{}: {}", kernel.name(), vector[4]);
        }
    }
}

#[test]
fn combination_by_every_kernel_agrees() {
    for vector in vectors("crc32c-combine.txt", 5) {
        let (a, b, want) = (number(&vector[0]) as u32, number(&vector[1]) as u32, number(&vector[3]) as u32);
        let len_b = vector[2].parse().expect("a length");
        assert_eq!(crc32c_combine(a, b, len_b), want, "{}", vector[4]);
        for kernel in kernels::available() {
            assert_eq!(kernel.combine(a, b, len_b), want, "{}: {}", kernel.name(), vector[4]);
        }
    }
}

/// Checks the values in the file of combinations that has no data, against data where data can be produced.
#[test]
fn the_model_combines_as_concatenation_does() {
    let data: Vec<u8> = (0..=255).cycle().take(1000).collect();
    for len_b in [0, 1, 7, 8, 255, 256, 999, 1000] {
        let (a, b) = data.split_at(data.len() - len_b);
        for crc in [model::CRC32C, model::CRC16_T10DIF, model::CRC64_NVME] {
            assert_eq!(crc.combined(crc.of(a), crc.of(b), len_b as u64), crc.of(&data), "{len_b} bytes");
        }
    }
}
