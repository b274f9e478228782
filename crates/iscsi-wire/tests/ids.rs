//! Serial numbers, ISID, LUN, codes.

use iscsi_wire::*;
use proptest::prelude::*;

/// Exhaustive in the interesting places: around 0, around 2^31 and around the wrap.
// covers: NUM-04
#[test]
fn num_04_serial_arithmetic_around_the_wrap() {
    let base = 0xffff_fffdu32;
    for start in (0..8).map(|i| base.wrapping_add(i)) {
        for steps in 1..8 {
            let (a, b) = (CmdSn(start), CmdSn(start).add(steps));
            assert!(a.lt(b) && a.le(b) && b.gt(a) && b.ge(a), "{a} {b}");
            assert!(!b.lt(a) && !b.le(a) && !a.gt(b) && !a.ge(b), "{a} {b}");
            assert_eq!(a.distance_to(b), steps);
        }
        let same = CmdSn(start);
        assert!(same.le(same) && same.ge(same) && !same.lt(same) && !same.gt(same));
        assert_eq!(StatSn(start).next(), StatSn(start.wrapping_add(1)));
    }
    assert_eq!(CmdSn(u32::MAX).next(), CmdSn(0));
}

// covers: NUM-04
#[test]
fn num_04_half_the_space_apart_is_neither_less_nor_greater() {
    for start in [0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
        let (a, below, half, above) = (
            DataSn(start),
            DataSn(start).add((1 << 31) - 1),
            DataSn(start).add(1 << 31),
            DataSn(start).add((1 << 31) + 1),
        );
        assert!(a.lt(below) && below.gt(a));
        assert!(!a.lt(half) && !a.gt(half) && !a.le(half) && !a.ge(half));
        assert!(a.gt(above) && above.lt(a));
    }
}

proptest! {
    // covers: NUM-04
    #[test]
    fn num_04_shifting_both_changes_nothing(a in any::<u32>(), b in any::<u32>(), shift in any::<u32>()) {
        let (x, y) = (R2tSn(a), R2tSn(b));
        let (u, v) = (x.add(shift), y.add(shift));
        prop_assert_eq!((x.lt(y), x.le(y), x.gt(y), x.ge(y)), (u.lt(v), u.le(v), u.gt(v), u.ge(v)));
        prop_assert_eq!(x.distance_to(y), u.distance_to(v));
        prop_assert_eq!(x.add(x.distance_to(y)), y);
        prop_assert!(!(x.lt(y) && y.lt(x)));
    }

    #[test]
    fn luns_of_every_index_come_back(index in any::<u16>()) {
        prop_assert_eq!(Lun::from_index(index).to_index(), Some(index));
        prop_assert_eq!(Lun::from_index(index).to_string(), index.to_string());
    }

    #[test]
    fn any_lun_is_read_without_panic(lun in any::<u64>()) {
        prop_assert!(!Lun(lun).to_string().is_empty());
    }
}

#[test]
fn lun_forms() {
    for (wire, index) in [
        (0x0000_0000_0000_0000, Some(0)), // peripheral
        (0x00ff_0000_0000_0000, Some(255)),
        (0x4000_0000_0000_0000, Some(0)), // flat
        (0x4007_0000_0000_0000, Some(7)),
        (0x7fff_0000_0000_0000, Some(0x3fff)),
        (0xd200_0007_0000_0000, Some(7)), // extended flat
        (0xd200_ffff_0000_0000, Some(0xffff)),
        (0xd201_0000_0000_0000, None),    // above 16 bits
        (0xe200_0000_0007_0000, Some(7)), // long extended flat
        (0xe200_0100_0000_0000, None),
        (0x0100_0000_0000_0000, None), // peripheral, another bus
        (0x0001_0001_0000_0000, None), // second level
        (0x4001_0000_0000_0001, None),
        (0x8001_0000_0000_0000, None), // logical unit addressing
        (Lun::REPORT_LUNS.0, None),
        (u64::MAX, None),
    ] {
        assert_eq!(Lun(wire).to_index(), index, "{wire:#018x}");
    }
    assert_eq!(Lun::from_index(255), Lun(0x00ff << 48));
    assert_eq!(Lun::from_index(256), Lun(0x4100 << 48));
    assert_eq!(Lun::from_index(0x4000), Lun(0xd200_4000 << 32));
    assert_eq!(Lun::REPORT_LUNS.to_string(), "0xc101000000000000");
}

// covers: NAM-03
#[test]
fn nam_03_isid_forms() {
    let random = Isid::random([0xaa, 0xbb, 0xcc], 0x0102);
    assert_eq!(random.0, [0x80, 0xaa, 0xbb, 0xcc, 1, 2]);
    assert_eq!(random.format(), IsidFormat::Random);
    assert_eq!(random.to_string(), "0x80aabbcc0102");
    let enterprise = Isid::enterprise(0x12_3456, 0xffff).unwrap();
    assert_eq!(enterprise.0, [0x40, 0x12, 0x34, 0x56, 0xff, 0xff]);
    assert_eq!(enterprise.format(), IsidFormat::EnterpriseNumber);
    assert_eq!(Isid::enterprise(0x0100_0000, 0), None);
    let oui = Isid::oui([0xff, 0x02, 0x03], [4, 5, 6]);
    assert_eq!(oui.0, [0x3f, 2, 3, 4, 5, 6]);
    assert_eq!(oui.format(), IsidFormat::Oui);
    assert_eq!(Isid([0xc0, 0, 0, 0, 0, 0]).format(), IsidFormat::Reserved);
}

#[test]
fn tags_print_and_reserve() {
    assert_eq!(format!("{} {:?} {}", Itt(7), Itt(7), Ttt::RESERVED), "7 Itt(7) ffffffff");
    assert!(Itt::RESERVED.is_reserved() && !Ttt(0).is_reserved());
}

#[test]
fn login_status_classes_and_words() {
    for code in 0..=0x0400u16 {
        let status = LoginStatus::from(code);
        assert_eq!(status.code(), code);
        assert_eq!(u16::from_be_bytes([status.class(), status.detail()]), code);
        assert_eq!(status.is_success(), code < 0x100);
        let listed = matches!(code, 0 | 0x101 | 0x102 | 0x200..=0x20b | 0x300..=0x302);
        assert_eq!(!matches!(status, LoginStatus::Other(_)), listed, "{code:#06x}");
    }
    assert_eq!(LoginStatus::ALL.len(), 18);
    assert_eq!(LoginStatus::from(0x0201).to_string(), "authentication failure");
    assert_eq!(LoginStatus::from(0x0402).to_string(), "login status 0x0402");
}

#[test]
fn codes_say_words() {
    assert_eq!(TmfFunction::ITNexusReset.to_string(), "I_T NEXUS RESET");
    assert_eq!(AsyncEvent::try_from(250).unwrap().to_string(), "vendor event 250");
    assert_eq!(AsyncEvent::Vendor(3).code(), 255, "a vendor event never looks like a standard one");
    assert!(TmfFunction::QueryTask.is_level_2() && !TmfFunction::TaskReassign.is_level_2());
    let error = SnackType::try_from(4).unwrap_err();
    assert_eq!(error.to_string(), "SNACK Type 0x4 is a reserved value (RFC 7143 11.16.1)");
}
