//! Additional Header Segments.

use iscsi_wire::{
    Ahs, MAX_EXTENDED_CDB_LENGTH, WireError, parse_ahs, write_bidi_read_length, write_extended_cdb,
};
use proptest::prelude::*;

fn all(bytes: &[u8]) -> Result<Vec<Ahs<'_>>, WireError> {
    parse_ahs(bytes).collect()
}

// covers: AHS-01
#[test]
fn ahs_01_a_32_byte_cdb() {
    let beyond: Vec<u8> = (16..32).collect();
    let mut bytes = Vec::new();
    write_extended_cdb(&mut bytes, &beyond).unwrap();
    // AHSLength is 32 - 15 = 17.
    assert_eq!(bytes[..4], [0, 17, 1, 0]);
    assert_eq!(bytes.len(), 20);
    assert_eq!(all(&bytes), Ok(vec![Ahs::ExtendedCdb(&beyond)]));
}

// covers: AHS-01
#[test]
fn ahs_01_padding_is_zero_and_not_counted() {
    for length in 1..=9u8 {
        let beyond = vec![0xff; length.into()];
        let mut bytes = vec![];
        write_extended_cdb(&mut bytes, &beyond).unwrap();
        assert_eq!(bytes[1], length + 1);
        assert_eq!(bytes.len(), 4 + usize::from(length).div_ceil(4) * 4);
        assert!(bytes[4 + usize::from(length)..].iter().all(|&b| b == 0));
        assert_eq!(all(&bytes), Ok(vec![Ahs::ExtendedCdb(&beyond)]));
        // Padding that a peer did not clear, and the reserved byte, are ignored.
        bytes[3] = 0xff;
        bytes[4 + usize::from(length)..].fill(0xff);
        assert_eq!(all(&bytes), Ok(vec![Ahs::ExtendedCdb(&beyond)]));
    }
}

// covers: AHS-01
#[test]
fn ahs_01_only_for_cdbs_over_16_bytes() {
    let mut bytes = vec![];
    write_extended_cdb(&mut bytes, &[]).unwrap();
    assert!(bytes.is_empty());
    for length in [0, 1] {
        let error = WireError::AhsLength { kind: 1, length: length.into() };
        assert_eq!(all(&[0, length, 1, 0]), Err(error));
    }
    let longest = vec![1; MAX_EXTENDED_CDB_LENGTH];
    write_extended_cdb(&mut bytes, &longest).unwrap();
    assert_eq!(bytes.len(), iscsi_wire::MAX_AHS_LENGTH);
    assert_eq!(all(&bytes), Ok(vec![Ahs::ExtendedCdb(&longest)]));
    let (too_long, before) = (vec![1; MAX_EXTENDED_CDB_LENGTH + 1], bytes.clone());
    let error = WireError::ExtendedCdbTooLong { length: too_long.len() };
    assert_eq!(write_extended_cdb(&mut bytes, &too_long), Err(error));
    assert_eq!(bytes, before);
}

// covers: AHS-02
#[test]
fn ahs_02_bidirectional_read_length() {
    let mut bytes = vec![];
    write_bidi_read_length(&mut bytes, 0x0102_0304);
    assert_eq!(bytes, [0, 5, 2, 0, 1, 2, 3, 4]);
    assert_eq!(all(&bytes), Ok(vec![Ahs::BidiReadLength(0x0102_0304)]));
    for length in [0u8, 4, 6] {
        let mut wrong = vec![0; 12];
        wrong[1..3].copy_from_slice(&[length, 2]);
        let error = WireError::AhsLength { kind: 2, length: length.into() };
        assert_eq!(parse_ahs(&wrong).next(), Some(Err(error)));
    }
}

// covers: AHS-03
#[test]
fn ahs_03_several_in_any_order_and_unknown_types() {
    let (mut cdb, mut bidi) = (vec![], vec![]);
    write_extended_cdb(&mut cdb, &[7; 5]).unwrap();
    write_bidi_read_length(&mut bidi, 4096);
    // Type 9 with the two reserved bits set, and type 0 without content.
    let unknown = [0, 3, 0xc9, 1, 2, 3, 0xee, 0xee, 0, 0, 0, 0xee];
    let both = [cdb.clone(), bidi.clone(), unknown.to_vec()].concat();
    let expected = [
        Ahs::ExtendedCdb(&[7; 5]),
        Ahs::BidiReadLength(4096),
        Ahs::Unknown { kind: 9, data: &[1, 2, 3] },
        Ahs::Unknown { kind: 0, data: &[] },
    ];
    assert_eq!(all(&both).unwrap(), expected);
    let turned = [unknown.to_vec(), bidi, cdb].concat();
    assert_eq!(all(&turned).unwrap(), [expected[2], expected[3], expected[1], expected[0]]);
    assert_eq!(all(&[]), Ok(vec![]));
}

// covers: AHS-03
#[test]
fn ahs_03_the_chain_ends_at_the_end() {
    let mut bytes = vec![];
    write_extended_cdb(&mut bytes, &[7; 16]).unwrap();
    assert_eq!(all(&bytes[..16]), Err(WireError::AhsChain { needed: 20, left: 16 }));
    // A chain that is cut inside the padding is cut, too.
    let mut padded = vec![];
    write_extended_cdb(&mut padded, &[7; 5]).unwrap();
    assert_eq!(all(&padded[..9]), Err(WireError::AhsChain { needed: 12, left: 9 }));
    bytes.extend([0, 1]);
    assert_eq!(all(&bytes), Err(WireError::AhsChain { needed: 4, left: 2 }));
    assert_eq!(all(&[0xff, 0xff, 1, 0]), Err(WireError::AhsChain { needed: 65540, left: 4 }));
    let mut chain = parse_ahs(&[0, 200, 1, 0]);
    assert!(chain.next().unwrap().is_err());
    assert_eq!(chain.next(), None, "exhausted after an error");
}

proptest! {
    /// Whatever the bytes are, the chain ends, and no item reaches beyond them.
    #[test]
    fn ahs_03_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..1024)) {
        let mut content = 0;
        for ahs in parse_ahs(&bytes) {
            content += match ahs {
                Ok(Ahs::ExtendedCdb(data) | Ahs::Unknown { data, .. }) => data.len() + 3,
                Ok(Ahs::BidiReadLength(_)) => 8,
                Err(_) => 0,
            };
        }
        prop_assert!(content <= bytes.len());
    }
}
