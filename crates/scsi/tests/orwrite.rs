//! ORWRITE and the generations of a bitmap.
mod support;

use scsi::{MediumError, MediumOp};
use support::{BLOCK, Disk, cdb};

#[test]
fn orw_01_orwrite_merges_bits() {
    let mut disk = Disk::new();
    disk.send(&cdb::write(0, 1), &[0x0f; BLOCK]).good();
    disk.send(&cdb::sixteen(0x8b, 0, 0, 1), &[0x31; BLOCK]).good();
    assert!(disk.data[..BLOCK].iter().all(|&b| b == 0x3f));
}

/// A unit that has 32-byte commands.
fn bitmap() -> Disk {
    Disk::with(scsi::LuConfig {
        medium: scsi::MediumConfig { protectable: true, ..support::config().medium },
        ..support::config()
    })
}

/// ORWRITE(32) of one block: BMOP, policy, expected generation, new generation.
fn or_write_32(operation: u8, policy: u8, expected: u32, new: u32) -> Vec<u8> {
    let mut cdb = vec![0x7f, 0, operation, policy, 0, 0, 0, 0x18, 0, 0x0e, 0, 0];
    cdb.extend(0u64.to_be_bytes());
    cdb.extend(expected.to_be_bytes());
    cdb.extend(new.to_be_bytes());
    cdb.extend(1u32.to_be_bytes());
    cdb
}

// covers: ORW-01
#[test]
fn orw_01_what_names_another_generation_fares_as_the_last_change_said() {
    #[derive(PartialEq, Debug)]
    enum Fate {
        Done,
        Dropped,
        Refused,
    }
    use Fate::{Done, Dropped, Refused};
    let set = |disk: &mut Disk, expected: u32| {
        disk.send(&cdb::write(0, 1), &[0x01; BLOCK]).good();
        let answer = disk.send(&or_write_32(0, 9, expected, 77), &[0x10; BLOCK]);
        match (answer.code(), disk.data[0]) {
            ((0, 0, 0), 0x11) => Done,
            ((0, 0, 0), 0x01) => Dropped,
            ((5, 0x2c, 0x0c), 0x01) => Refused,
            other => panic!("{other:x?}"),
        }
    };
    for (policy, previous, other) in [
        (0, Done, Refused),
        (2, Dropped, Refused),
        (3, Done, Done),
        (5, Dropped, Dropped),
        (7, Refused, Refused),
    ] {
        let mut disk = bitmap();
        assert_eq!((set(&mut disk, 0), set(&mut disk, 1)), (Done, Refused), "after power on");
        disk.send(&cdb::write(0, 1), &[0x37; BLOCK]).good();
        disk.send(&or_write_32(1, policy, 4, 5), &[0x0f; BLOCK]).fails(5, 0x2c, 0x0c);
        let answer = disk.send(&or_write_32(1, policy, 0, 4), &[0x0f; BLOCK]).good();
        assert_eq!(answer.ops, [MediumOp::OrWrite { lba: 0, blocks: 1, and: true, durable: false }]);
        assert!(disk.data[..BLOCK].iter().all(|&byte| byte == 0x07), "cleared by AND");
        assert_eq!(set(&mut disk, 4), Done);
        // ORWRITE(16) expects generation 0.
        disk.send(&cdb::write(0, 1), &[0x01; BLOCK]).good();
        let sixteen = disk.send(&cdb::sixteen(0x8b, 0, 0, 1), &[0x10; BLOCK]).code();
        assert_eq!(sixteen == (5, 0x2c, 0x0c), previous == Refused);
        assert_eq!(disk.data[0] == 0x11, previous == Done);
        assert_eq!(set(&mut disk, 0), previous, "policy {policy}");
        assert_eq!(set(&mut disk, 9), other, "policy {policy}");
        // A reset of the unit leaves the generation, a reset of the target does not.
        disk.lu.logical_unit_reset();
        disk.run(&[0; 6]).fails(6, 0x29, 3);
        assert_eq!(set(&mut disk, 4), Done);
        disk.lu.reset(scsi::UaScope::All, scsi::Asc::BUS_RESET);
        disk.run(&[0; 6]).fails(6, 0x29, 2);
        assert_eq!((set(&mut disk, 0), set(&mut disk, 4)), (Done, Refused));
    }
    let mut disk = bitmap();
    for (cdb, byte) in
        [(or_write_32(2, 0, 0, 0), 2), (or_write_32(1, 1, 0, 0), 3), (or_write_32(1, 8, 0, 0), 3)]
    {
        let sense = disk.send(&cdb, &[0; BLOCK]).fails(5, 0x24, 0).sense_bytes.unwrap();
        assert_eq!(sense[17], byte);
    }
    let mut beyond = or_write_32(1, 0, 0, 3);
    beyond[12] = 1;
    disk.send(&beyond, &[0; BLOCK]).fails(5, 0x21, 0);
    let mut nothing = or_write_32(1, 0, 0, 3);
    nothing[31] = 0;
    disk.run(&nothing).good();
    disk.send(&or_write_32(1, 0, 3, 4), &[0; BLOCK]).good();
    disk.fault = Some(MediumError::Internal);
    disk.send(&or_write_32(1, 0, 4, 5), &[0; BLOCK]).fails(4, 0x44, 0);
    assert_eq!(set(&mut disk, 4), Done, "a change that failed is none");
}

// covers: ORW-01
#[test]
fn orw_01_no_bit_is_set_while_a_generation_changes() {
    let mut disk = bitmap();
    let nexus = disk.nexus.clone();
    let mut setting = disk.lu.begin_offering(&nexus, &or_write_32(0, 0, 0, 0), BLOCK as u64);
    disk.send(&or_write_32(1, 0, 0, 1), &[0; BLOCK]).busy();
    let block: &[&[u8]] = &[&[3; BLOCK]];
    setting.data_out(&disk.lu, &scsi::DataOut::new(block));
    disk.send(&or_write_32(1, 0, 0, 1), &[0; BLOCK]).busy();
    drop(setting);
    let changing = disk.lu.begin_offering(&nexus, &or_write_32(1, 0, 0, 1), BLOCK as u64);
    for cdb in [or_write_32(0, 0, 0, 0), or_write_32(1, 0, 0, 2), cdb::sixteen(0x8b, 0, 0, 1)] {
        disk.send(&cdb, &[0; BLOCK]).busy();
    }
    disk.finish(changing, &[0; BLOCK]).good();
    disk.send(&or_write_32(0, 0, 1, 0), &[0; BLOCK]).good();
}
