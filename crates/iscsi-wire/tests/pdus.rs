//! Every PDU against the table of bits in `common`.

mod common;

use common::{LAYOUTS, Layout, set_code};
use iscsi_wire::{
    Bhs, LoginStage, MAX_AHS_LENGTH, MAX_DATA_SEGMENT_LENGTH, Opcode, Pdu, WireError, one_line,
    padded_length, padding_length,
};
use proptest::prelude::*;
use proptest::sample::select;

fn layout() -> impl Strategy<Value = &'static Layout> {
    select(LAYOUTS.iter().collect::<Vec<_>>())
}

fn bytes48() -> impl Strategy<Value = [u8; 48]> {
    // proptest has no uniform48.
    (any::<[u8; 24]>(), any::<[u8; 24]>())
        .prop_map(|(a, b)| std::array::from_fn(|i| if i < 24 { a[i] } else { b[i - 24] }))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// Every field survives header -> struct -> header in its place, and no other bit does.
    // covers: PDU-01, PDU-02
    #[test]
    fn pdu_01_fields_round_trip(layout in layout(), noise in bytes48(), picks in any::<[u8; 2]>()) {
        let header = layout.header(noise, picks);
        let pdu = Pdu::parse(&Bhs::from_bytes(header)).unwrap();
        prop_assert_eq!(pdu.opcode(), layout.opcode);
        let written = pdu.to_bhs();
        prop_assert_eq!(written, layout.canonical(&header));
        prop_assert_eq!(Pdu::parse(&written), Ok(pdu));
    }

    /// A header with every reserved and fixed bit inverted parses to the same.
    // covers: PDU-02
    #[test]
    fn pdu_02_reserved_bits_are_ignored(layout in layout(), noise in bytes48(), picks in any::<[u8; 2]>()) {
        let header = layout.header(noise, picks);
        let defined = layout.defined(&header);
        let clean = layout.canonical(&header);
        let mut poisoned: [u8; 48] = std::array::from_fn(|i| clean.as_bytes()[i] ^ !defined[i]);
        poisoned[0] = poisoned[0] & 0xc0 | layout.opcode.code();
        prop_assert_eq!(Pdu::parse(&Bhs::from_bytes(poisoned)), Pdu::parse(&clean));
    }

    /// No 48 bytes cause a panic.
    #[test]
    fn parse_is_total(bytes in bytes48(), ahs in prop::collection::vec(any::<u8>(), 0..64)) {
        let bhs = Bhs::from_bytes(bytes);
        let _ = Pdu::parse(&bhs);
        prop_assert!(!one_line(&bhs, &ahs).is_empty());
        let debug = format!("{bhs:?}");
        prop_assert!(debug.ends_with(")"));
        prop_assert_eq!(padding_length(bhs.padded_data_length()), 0);
        prop_assert_eq!(*bhs.as_bytes(), bytes);
    }
}

#[test]
fn the_table_has_every_opcode() {
    let opcodes: Vec<_> = LAYOUTS.iter().map(|layout| layout.opcode).collect();
    assert_eq!(opcodes, Opcode::ALL);
}

/// For every field with codes: each allowed value parses, every other one is refused.
// covers: PDU-03
#[test]
fn pdu_03_reserved_codes_are_refused() {
    for layout in LAYOUTS {
        for &(offset, shift, width, allowed) in layout.codes {
            for code in 0..=((1u16 << width) - 1) as u8 {
                let mut header = layout.header([0; 48], [0, 0]);
                if layout.is_login() {
                    header[1] |= 0x80; // with T, so that NSG is read
                }
                set_code(&mut header, offset, shift, width, code);
                let parsed = Pdu::parse(&Bhs::from_bytes(header));
                let name = layout.opcode.name();
                if allowed.contains(&code) {
                    assert!(parsed.is_ok(), "{name}: code {code} at byte {offset}: {parsed:?}");
                } else {
                    let refused =
                        matches!(parsed, Err(WireError::ReservedValue { value, .. }) if value == code.into());
                    assert!(refused, "{name}: code {code} at byte {offset}: {parsed:?}");
                }
            }
        }
    }
}

/// NSG is reserved without T, so then even its reserved code is ignored.
// covers: PDU-02
#[test]
fn pdu_02_nsg_without_t() {
    for layout in LAYOUTS.iter().filter(|layout| layout.is_login()) {
        let mut header = layout.header([0; 48], [0, 0]);
        header[1] |= 2;
        let mut pdu = Pdu::parse(&Bhs::from_bytes(header)).unwrap();
        // Nor is it sent if the struct holds it.
        match &mut pdu {
            Pdu::LoginRequest(login) => login.nsg = Some(LoginStage::FullFeature),
            Pdu::LoginResponse(login) => login.nsg = Some(LoginStage::FullFeature),
            _ => unreachable!(),
        }
        assert_eq!(pdu.to_bhs().as_bytes()[1] & 0x83, 0);
    }
}

// covers: PDU-05
#[test]
fn pdu_05_direction_of_opcodes() {
    for code in 0..64u8 {
        let known = [0, 1, 2, 3, 4, 5, 6, 0x10, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x31, 0x32, 0x3f];
        match Opcode::try_from(code) {
            Ok(opcode) => {
                assert!(known.contains(&code));
                assert_eq!(opcode.code(), code);
                assert_eq!(opcode.is_initiator(), code < 0x20);
                assert_eq!(format!("{opcode:?}"), opcode.name());
            }
            Err(error) => {
                assert!(!known.contains(&code));
                assert_eq!(error, WireError::UnknownOpcode(code));
            }
        }
    }
    assert_eq!(Opcode::try_from(0x40), Err(WireError::UnknownOpcode(0x40)));
}

#[test]
fn a_pdu_refuses_the_header_of_another() {
    let r2t = Bhs::from_bytes(LAYOUTS[15].header([0; 48], [0, 0]));
    assert_eq!(r2t.opcode(), 0x31);
    let error = iscsi_wire::ScsiCommand::parse(&r2t).unwrap_err();
    assert_eq!(error, WireError::WrongOpcode { expected: Opcode::ScsiCommand, found: 0x31 });
    assert!(error.to_string().contains("ScsiCommand"));
}

// covers: PDU-01
#[test]
fn pdu_01_lengths_and_padding() {
    let mut bhs = Bhs::from_bytes([0xff; 48]);
    for length in
        (0..10).chain([255, 256, 65535, 65536, MAX_DATA_SEGMENT_LENGTH - 1, MAX_DATA_SEGMENT_LENGTH])
    {
        bhs.set_data_segment_length(length);
        assert_eq!(bhs.data_segment_length(), length);
        assert_eq!(bhs.padded_data_length(), length.div_ceil(4) * 4);
        assert_eq!(padded_length(length) - length, padding_length(length));
        assert_eq!(bhs.as_bytes()[4], 0xff, "TotalAHSLength untouched");
    }
    bhs.set_data_segment_length(0x010203);
    assert_eq!(bhs.as_bytes()[5..8], [1, 2, 3]);
    for length in [0, 4, 8, 512, MAX_AHS_LENGTH] {
        bhs.set_total_ahs_length(length);
        assert_eq!(bhs.total_ahs_length(), length);
        assert_eq!(usize::from(bhs.as_bytes()[4]), length / 4);
        assert_eq!(bhs.data_segment_length(), 0x010203);
    }
    assert_eq!(padded_length(usize::MAX), usize::MAX, "saturates");
}

#[test]
fn bhs_reads_the_common_fields() {
    let bhs = Bhs::from_bytes(std::array::from_fn(|i| i as u8));
    assert_eq!(bhs.lun().0, 0x08090a0b_0c0d0e0f);
    assert_eq!(bhs.itt().0, 0x10111213);
    assert_eq!(bhs.cmd_sn().0, 0x18191a1b);
    assert_eq!(bhs.exp_stat_sn().0, 0x1c1d1e1f);
    assert!(!bhs.immediate() && !bhs.final_bit());
    let bhs = Bhs::from_bytes([0xc1; 48]);
    assert!(bhs.immediate() && bhs.final_bit());
    assert_eq!(bhs.opcode(), 1);
}
