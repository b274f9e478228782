//! The golden vectors of `vectors/crc32c.txt`, which other languages use too, against every kernel.

use std::path::Path;

use integrity::{Store, copy_crc32c, crc32c, kernels};

struct Vector {
    wire_digest: [u8; 4],
    data: Vec<u8>,
    name: String,
}

fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "odd number of digits: {text}");
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect(text)).collect()
}

fn vectors() -> Vec<Vector> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/crc32c.txt");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let mut fields = line.splitn(3, ' ');
            let mut field = || fields.next().unwrap_or_else(|| panic!("three fields expected: {line}"));
            let wire_digest = unhex(field()).try_into().expect("a digest has four bytes");
            let data = match field() {
                "-" => Vec::new(),
                hex => unhex(hex),
            };
            Vector { wire_digest, data, name: field().to_owned() }
        })
        .collect()
}

//= rfc7143 A.4 DIG-02
#[test]
fn dig_02_every_kernel_gives_the_wire_bytes_of_the_golden_vectors() {
    let vectors = vectors();
    assert!(vectors.len() >= 5, "the five examples of the RFC at least");
    for v in &vectors {
        assert_eq!(crc32c(&v.data).to_le_bytes(), v.wire_digest, "{}", v.name);
        for kernel in kernels::available() {
            let name = kernel.name();
            assert_eq!(kernel.append(0, &v.data).to_le_bytes(), v.wire_digest, "{name}: {}", v.name);
            for store in [Store::Temporal, Store::NonTemporal] {
                let mut dst = vec![0x5a; v.data.len()];
                let copied = kernel.copy(0, &mut dst, &v.data, store).expect("equal lengths");
                assert_eq!(copied.to_le_bytes(), v.wire_digest, "{name} {store:?}: {}", v.name);
                assert_eq!(dst, v.data, "{name} {store:?}: {}", v.name);
            }
        }
    }
}

#[test]
fn dig_02_the_rfc_s_examples_are_among_the_vectors() {
    let vectors = vectors();
    for wire in ["aa36918a", "43aba862", "4e79dd46", "5cdb3f11", "563a96d9"] {
        assert!(vectors.iter().any(|v| v.wire_digest[..] == unhex(wire)), "{wire} is missing");
    }
    let read_10 = vectors.iter().find(|v| v.name.contains("READ(10)")).expect("the sample PDU");
    assert_eq!(read_10.data.len(), 48, "the sample PDU is one basic header segment");
}

#[test]
fn the_chosen_kernel_is_the_first_that_runs_and_suits_here() {
    let named = std::env::var(integrity::KERNEL_VARIABLE).ok();
    let suits =
        |kernel: &&kernels::Kernel| named.as_deref().map_or(kernel.suits(), |name| kernel.name() == name);
    let first = kernels::available().find(suits).expect("two kernels run everywhere");
    assert_eq!(integrity::kernel_name(), first.name());
    assert_eq!(integrity::kernel_choice().kernel().name(), first.name());
    let mut dst = [0; 4];
    assert_eq!(copy_crc32c(7, &mut dst, b"abcd", Store::Temporal), Ok(first.append(7, b"abcd")));
}
