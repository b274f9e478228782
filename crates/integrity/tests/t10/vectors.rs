//! Published values, an independent implementation, and how a damaged sector is found.

use integrity::crc16_t10dif;
use integrity::t10::{self, Guard, Layout, Tuple, kernels};

use crate::support::{DAMAGE_STEP, Random, reference};

#[test]
fn published_values() {
    let counting: Vec<u8> = (0..32).collect();
    let falling: Vec<u8> = (0xe0..=0xff).rev().collect();
    let mut two_ones = [0; 32];
    two_ones[..2].fill(0xff);
    // The first value is from catalogues; the others are the test cases of SBC-3 section 4.22.4.
    let cases: [(&[u8], u16); 6] = [
        (b"123456789", 0xd0db),
        (&[0; 32], 0x0000),
        (&[0xff; 32], 0xa293),
        (&counting, 0x0224),
        (&two_ones, 0x21b8),
        (&falling, 0xa0b7),
    ];
    for kernel in kernels::available() {
        for (data, want) in cases {
            assert_eq!(kernel.append(0, data), want, "{}: {data:02x?}", kernel.name());
        }
    }
}

#[test]
fn the_reference_agrees_with_an_independent_implementation() {
    let oracle = crc::Crc::<u16>::new(&crc::CRC_16_T10_DIF);
    let data = Random(1).bytes(5000);
    for len in (0..data.len()).step_by(113) {
        assert_eq!(reference(0, &data[..len]), oracle.checksum(&data[..len]), "{len} bytes");
    }
}

#[test]
fn the_chosen_kernel_is_the_first_that_runs_here() {
    let first = kernels::available().next().expect("two kernels run everywhere");
    assert_eq!(t10::kernel_name(), first.name());
    assert_eq!(crc16_t10dif(b"abcd"), first.append(0, b"abcd"));
}

#[test]
fn a_tuple_travels_with_its_high_bytes_first() {
    let tuple = Tuple { guard: 0x1122, app_tag: 0x3344, ref_tag: 0x5566_7788 };
    assert_eq!(tuple.to_bytes(), [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]);
    assert_eq!(Tuple::from_bytes(tuple.to_bytes()), tuple);
}

#[test]
fn every_flipped_bit_of_a_sector_or_its_guard_is_found_in_that_sector() {
    let layout = Layout::interleaved(512);
    let mut data = Random(2).bytes(3 * 520);
    for guard in [Guard::Crc16, Guard::IpChecksum] {
        t10::fill(guard, &mut data, layout).expect("whole sectors");
        assert_eq!(t10::check(guard, &data, layout), Ok(None));
        for bit in (0..8 * data.len()).step_by(DAMAGE_STEP) {
            data[bit / 8] ^= 1 << (bit % 8);
            let found = t10::check(guard, &data, layout).expect("whole sectors");
            let tag = bit / 8 % 520 >= 514;
            assert_eq!(found.map(|m| m.sector), (!tag).then_some(bit / 8 / 520), "{guard:?}: bit {bit}");
            data[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn the_first_bad_sector_of_a_long_run_is_named() {
    let layout = Layout::interleaved(16);
    let mut data = Random(3).bytes(200 * 24);
    t10::fill(Guard::Crc16, &mut data, layout).expect("whole sectors");
    for bad in [199, 130, 64, 63] {
        data[bad * 24] ^= 0x10;
        let found = t10::check(Guard::Crc16, &data, layout).expect("whole sectors").expect("damage");
        assert_eq!(found.sector, bad);
        assert_eq!(found.computed, reference(0, &data[bad * 24..][..16]));
        assert!(found.to_string().contains(&format!("sector {bad}")), "{found}");
    }
}
