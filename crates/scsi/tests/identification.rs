//! INQUIRY, VPD pages, READ CAPACITY, REPORT TARGET PORT GROUPS: what a host learns, and whether it is
//! true.
mod support;

use scsi::{Identity, LuConfig, MediumConfig, NaaIdentifier, Nexus, Paths, TargetPort};
use support::{BLOCKS, Disk, cdb};

fn page(disk: &mut Disk, code: u8) -> Vec<u8> {
    let data = disk.run(&cdb::inquiry(Some(code), 4096)).good().data;
    assert_eq!((data[0], data[1]), (0, code));
    assert_eq!(usize::from(u16::from_be_bytes([data[2], data[3]])), data.len() - 4);
    data
}

fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(data[at..at + 4].try_into().unwrap())
}

// covers: UA-03 CDB-05
#[test]
fn the_clock_counts_from_what_a_host_has_set() {
    let mut disk = Disk::new();
    let other = support::nexus("b");
    disk.attach(&other);
    let report = [0xa3, 0x0f, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0];
    let set = |length: u8| [0xa4, 0x0f, 0, 0, 0, 0, 0, 0, 0, length, 0, 0];
    disk.lu.set_time(std::time::Duration::from_millis(0x102));
    assert_eq!(disk.run(&report).good().data, [0, 10, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0]);
    disk.send(&set(12), &[0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 0, 0]).good();
    disk.run_as(&other, &[0; 6], &[]).fails(6, 0x2a, 0x10);
    disk.run(&[0; 6]).good();
    disk.lu.set_time(std::time::Duration::from_millis(0x104));
    assert_eq!(disk.run(&report).good().data, [0, 10, 2, 0, 1, 2, 3, 4, 5, 8, 0, 0]);
    disk.send(&set(11), &[0; 11]).fails(5, 0x1a, 0);
    disk.send(&set(12), &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]).fails(5, 0x26, 0);
    disk.run(&set(0)).good();
    assert_eq!(disk.run(&report).good().data[2], 2);
}

#[test]
fn identifying_information_is_empty_if_no_host_has_set_either_value() {
    let of =
        |bytes: &[u8], text: &[u8]| scsi::IdentifyingInformation { bytes: bytes.into(), text: text.into() };
    let all = [of(b"", b""), of(b"a", b""), of(b"", b"a\0"), of(b"a", b"a\0")];
    assert_eq!(all.map(|information| information.is_empty()), [true, false, false, false]);
}

/// Configurations and logs name states and commands.
#[test]
fn names_lead_back_to_what_they_name() {
    use scsi::AccessState;
    let names = AccessState::ALL.map(AccessState::name);
    assert_eq!(
        names,
        ["active-optimized", "active-non-optimized", "standby", "unavailable", "transitioning"]
    );
    assert_eq!(names.map(AccessState::by_name), AccessState::ALL.map(Some));
    assert_eq!(AccessState::by_name("offline"), None);
    let commands: [(&[u8], _); 5] = [
        (&[0x88; 16], Some("READ(16)")),
        (&[0x28; 10], Some("READ(10)")),
        (&[0x5f, 1, 0, 0, 0, 0, 0, 0, 0, 0], Some("PERSISTENT RESERVE OUT, RESERVE")),
        (&[0xff; 16], None),
        (&[], None),
    ];
    for (cdb, name) in commands {
        assert_eq!(scsi::command_name(cdb), name, "{cdb:x?}");
    }
    let fields = [scsi::PiField::Guard, scsi::PiField::AppTag, scsi::PiField::RefTag];
    assert_eq!(fields.map(|field| field.to_string()), ["guard", "application tag", "reference tag"]);
}

/// The hint of where a command will read or write has to be right for a hint to be of use, and may be asked for any bytes.
#[test]
fn the_blocks_of_a_read_or_write_are_known_before_it_starts() {
    let ten = |opcode| cdb::ten(opcode, 0xff, 0x0102_0304, 0x0506);
    let sixteen = |opcode| cdb::sixteen(opcode, 0xff, 0x0102_0304_0506_0708, 0x090a_0b0c);
    for (short, long) in [(0x28, 0x88), (0x2a, 0x8a)] {
        assert_eq!(scsi::blocks_ahead(&ten(short)), Some((0x0102_0304, 0x0506)));
        assert_eq!(scsi::blocks_ahead(&sixteen(long)), Some((0x0102_0304_0506_0708, 0x090a_0b0c)));
        assert_eq!(scsi::blocks_ahead(&ten(short)[..9]), None);
        assert_eq!(scsi::blocks_ahead(&sixteen(long)[..15]), None);
        assert_eq!(scsi::blocks_ahead(&ten(long)), None);
    }
    assert_eq!(scsi::blocks_ahead(&ten(0x2f)), None);
    assert_eq!(scsi::blocks_ahead(&[]), None);
}

// covers: UA-03 CDB-05
#[test]
fn a_unit_keeps_what_is_written_on_it() {
    let mut disk = Disk::new();
    let other = support::nexus("b");
    disk.attach(&other);
    let report = |kind: u8, length: u8| [0xa3, 5, 0, 0, 0, 0, 0, 0, 0, length, kind << 1, 0];
    let set = |kind: u8, length: u16| {
        let [hi, lo] = length.to_be_bytes();
        [0xa4, 6, 0, 0, 0, 0, 0, 0, hi, lo, kind << 1, 0]
    };
    assert_eq!(disk.run(&report(0x7f, 255)).good().data, [0, 0, 0, 8, 0, 0, 2, 0, 4, 0, 1, 0]);
    assert_eq!(disk.run(&report(0, 255)).good().data, [0; 4]);
    disk.send(&set(0, 3), &[1, 0, 255]).good();
    disk.run_as(&other, &[0; 6], &[]).fails(6, 0x3f, 5);
    disk.run(&[0; 6]).good();
    disk.send(&set(2, 6), "öben\0".as_bytes()).good();
    disk.run_as(&other, &[0; 6], &[]).fails(6, 0x3f, 5);
    assert_eq!(disk.run(&report(0, 255)).good().data, [0, 0, 0, 3, 1, 0, 255]);
    assert_eq!(disk.run(&report(0, 5)).good().data, [0, 0, 0, 3, 1]);
    assert_eq!(disk.run(&report(2, 255)).good().data[4..], *"öben\0".as_bytes());
    // Invalid text, too long, and unknown types.
    for text in [&b"ab"[..], b"a\0b\0", b"\xff\0"] {
        disk.send(&set(2, text.len() as u16), text).fails(5, 0x26, 0);
    }
    for (kind, length) in [(0, 513), (2, 257), (1, 4), (0x7f, 4)] {
        disk.send(&set(kind, length), &[0; 600]).fails(5, 0x24, 0);
    }
    disk.run(&report(1, 255)).fails(5, 0x24, 0);
    disk.send(&set(0, 512), &[7; 512]).good();
    disk.lu.logical_unit_reset();
    disk.run(&[0; 6]).fails(6, 0x29, 3);
    let mut long = report(0, 0);
    long[8] = 4;
    assert_eq!(disk.run(&long).good().data.len(), 516);
    let mut heir = Disk::new();
    heir.lu.inherit(&disk.lu);
    assert_eq!(heir.run(&report(2, 255)).good().data[4..], *"öben\0".as_bytes());
    disk.send(&set(2, 6), "oben!\0".as_bytes()).busy();
    heir.run(&set(2, 0)).good();
    assert_eq!(heir.run(&report(2, 255)).good().data, [0; 4]);
}

#[test]
fn inq_01_standard_data() {
    let mut disk = Disk::new();
    let data = disk.run(&cdb::inquiry(None, 260)).good().data;
    assert!(data.len() >= 58);
    assert_eq!(data[0], 0, "connected, direct access");
    assert_eq!(data[1], 0, "not removable");
    assert_eq!(data[2], 6, "SPC-4");
    assert_eq!(data[3], 0x12, "HISUP, format 2");
    assert_eq!(usize::from(data[4]), data.len() - 5);
    assert_eq!(data[5], 0x18, "implicit ALUA; 3PC; no PROTECT");
    assert_eq!(data[7], 0x02, "CMDQUE");
    assert_eq!(&data[8..36], b"INTACT  VIRTUAL DISK    0001");
    disk.run(&[0x12, 0, 0x83, 0, 255, 0]).fails(5, 0x24, 0);
}

#[test]
fn inq_02_version_descriptors() {
    let data = Disk::new().run(&cdb::inquiry(None, 96)).good().data;
    let versions: Vec<_> = data[58..66].chunks(2).map(|v| u16::from_be_bytes([v[0], v[1]])).collect();
    assert_eq!(versions, [0x00a0, 0x0460, 0x04c0, 0x0960], "SAM-5, SPC-4, SBC-3, iSCSI");
}

#[test]
fn p2_07_the_version_descriptor_tells_the_protocol_level() {
    let mut disk = Disk::new();
    for level in 0..=2u8 {
        let nexus = disk.nexus.clone().with_protocol_level(level);
        let data = disk.run_as(&nexus, &cdb::inquiry(None, 96), &[]).good().data;
        assert_eq!(data[64..66], (0x0960 + u16::from(level)).to_be_bytes());
    }
}

#[test]
fn names_are_printable_and_padded() {
    let config = LuConfig {
        identity: Identity {
            vendor: "Ä\nTOOLONGVENDOR".into(),
            product: String::new(),
            ..support::config().identity
        },
        ..support::config()
    };
    let data = Disk::with(config).run(&cdb::inquiry(None, 96)).good().data;
    assert_eq!(&data[8..32], b"??TOOLON                ");
}

#[test]
fn vpd_00_lists_exactly_the_pages_that_answer() {
    let mut disk = Disk::new();
    let listed = page(&mut disk, 0)[4..].to_vec();
    assert!(listed.is_sorted());
    for code in 0..=255 {
        if listed.contains(&code) {
            page(&mut disk, code);
        } else {
            disk.run(&cdb::inquiry(Some(code), 255)).fails(5, 0x24, 0);
        }
    }
}

#[test]
fn vpd_80_serial_number() {
    assert_eq!(&page(&mut Disk::new(), 0x80)[4..], b"0123456789");
}

/// (protocol and code set, PIV association type, value)
fn designators(data: &[u8]) -> Vec<(u8, u8, Vec<u8>)> {
    let mut rest = &data[4..];
    let mut list = Vec::new();
    while !rest.is_empty() {
        let length = usize::from(rest[3]);
        list.push((rest[0], rest[1], rest[4..4 + length].to_vec()));
        rest = &rest[4 + length..];
    }
    list
}

#[test]
fn vpd_83_names_unit_port_and_device() {
    let mut disk = Disk::new();
    let first = designators(&page(&mut disk, 0x83));
    assert_eq!(first[0], (0x01, 0x03, 0x3abc_def0_1234_5678u64.to_be_bytes().to_vec()), "NAA 3");
    assert_eq!(first[1], (0x02, 0x01, b"INTACT  0123456789".to_vec()), "T10 vendor id");
    assert_eq!(first[2], (0x51, 0x94, vec![0, 0, 0, 1]), "relative target port");
    assert_eq!(first[3], (0x51, 0x95, vec![0, 0, 0, 1]), "target port group");
    assert_eq!(first[4].0, 0x53);
    assert_eq!(first[4].1, 0x98);
    assert!(first[4].2.starts_with(b"iqn.2025-01.org.example:disk,t,0x0001\0"));
    assert_eq!((first[5].0, first[5].1), (0x53, 0xa8));
    assert!(first[5].2.starts_with(b"iqn.2025-01.org.example:disk\0"));
    assert!(first.iter().all(|d| d.0 & 0x0f != 3 || d.2.len() % 4 == 0));
    // Through another port: the same unit, another port.
    let other = Nexus::new("iqn.2025-01.org.example:b,i,0x1", 7, 9);
    disk.attach(&other);
    let second = designators(&disk.run_as(&other, &cdb::inquiry(Some(0x83), 4096), &[]).good().data);
    assert_eq!(first[..2], second[..2]);
    assert_eq!(second[2].2, [0, 0, 0, 9]);
    assert_eq!(second[3].2, [0, 0, 0, 7]);

    let naa = NaaIdentifier::RegisteredExtended([0xff; 16]);
    let config = LuConfig {
        identity: Identity { naa, uuid: Some([0xab; 16]), ..support::config().identity },
        ..support::config()
    };
    let extended = designators(&page(&mut Disk::with(config), 0x83));
    assert_eq!((extended[0].2[0], extended[0].2.len()), (0x6f, 16), "NAA 6");
    let uuid = [&[0x10, 0][..], &[0xab; 16]].concat();
    assert_eq!(extended[2], (0x01, 0x0a, uuid), "a UUID of RFC 4122");
}

#[test]
fn a_unit_without_its_medium_says_who_it_is_and_that_it_is_not_ready() {
    let disk = Disk::with(LuConfig {
        medium: MediumConfig { missing: true, ..support::config().medium },
        ..support::config()
    });
    let nexus = disk.nexus.clone();
    let mut disk = disk;
    for cdb in [
        cdb::read(0, 1),
        vec![0; 6],
        vec![0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![0x5e, 0, 0, 0, 0, 0, 0, 0, 64, 0],
        vec![0x1b, 0, 0, 0, 1, 0],
    ] {
        disk.run_as(&nexus, &cdb, &[]).fails(2, 0x04, 0x03);
    }
    assert!(!page(&mut disk, 0x83).is_empty());
    let sense = disk.run_as(&nexus, &[0x03, 0, 0, 0, 252, 0], &[]).good().data;
    assert_eq!((sense[2] & 0xf, sense[12], sense[13]), (2, 0x04, 0x03));
    // Starting the unit before a reset does not help after it either.
    disk.lu.logical_unit_reset();
    disk.run_as(&nexus, &[0; 6], &[]).fails(6, 0x29, 0x03);
    disk.run_as(&nexus, &[0; 6], &[]).fails(2, 0x04, 0x03);
}

#[test]
fn vpd_b0_reports_the_limits() {
    let mut disk = Disk::new();
    let data = page(&mut disk, 0xb0);
    assert_eq!(data.len(), 64);
    assert_eq!(data[4] & 1, 0, "WSNZ");
    assert_eq!(data[5], 255);
    assert_eq!(u16::from_be_bytes([data[6], data[7]]), 8);
    assert_eq!(u32_at(&data, 8), 1024);
    assert!(u32_at(&data, 12) > 0);
    assert_eq!((u32_at(&data, 20), u32_at(&data, 24), u32_at(&data, 28)), (2048, 256, 8));
    assert_eq!(u32_at(&data, 32), 0x8000_0000, "UGAVALID, alignment 0");
    assert_eq!((u32_at(&data, 36), u32_at(&data, 40)), (0, 4096), "MAXIMUM WRITE SAME LENGTH");
    assert_eq!((u32_at(&data, 44), u32_at(&data, 48), u32_at(&data, 52)), (256, 1, 1), "atomic");
    let fat =
        LuConfig { medium: MediumConfig { thin: false, ..support::config().medium }, ..support::config() };
    let data = page(&mut Disk::with(fat), 0xb0);
    assert_eq!((u32_at(&data, 20), u32_at(&data, 24), u32_at(&data, 32)), (0, 0, 0));
}

// covers: VPD-B0
#[test]
fn default_limits_are_those_that_hosts_expect() {
    for block_bytes in [512, 4096] {
        let config = LuConfig {
            medium: MediumConfig { block_bytes, physical_block_bytes: 4096, ..support::config().medium },
            limits: scsi::TransferLimits::for_block_bytes(block_bytes),
            ..support::config()
        };
        let data = page(&mut Disk::with(config), 0xb0);
        assert_eq!(u32_at(&data, 8) * block_bytes, 32 << 20);
        assert!(u32_at(&data, 12) <= u32_at(&data, 8));
        // A host's test suite considers more than 2^20 an error.
        assert!((1..=1 << 20).contains(&u32_at(&data, 20)));
        assert_eq!(data[44..], [0; 20], "no atomic writes without a store that keeps the promise");
    }
}

#[test]
fn vpd_b1_medium_kind() {
    assert_eq!(page(&mut Disk::new(), 0xb1)[4..6], [0, 1], "solid state");
    let config = LuConfig {
        medium: MediumConfig { rotational: true, ..support::config().medium },
        ..support::config()
    };
    let data = page(&mut Disk::with(config), 0xb1);
    assert_eq!(u16::from_be_bytes([data[4], data[5]]), 7200);
    assert_eq!(data.len(), 64);
}

#[test]
fn vpd_b2_agrees_with_read_capacity() {
    for thin in [true, false] {
        let mut disk = Disk::with(LuConfig {
            medium: MediumConfig { thin, ..support::config().medium },
            ..support::config()
        });
        let data = page(&mut disk, 0xb2);
        let mut read_capacity = cdb::sixteen(0x9e, 0x10, 0, 32);
        read_capacity[13] = 32;
        let capacity = disk.run(&read_capacity).good().data;
        assert_eq!((data[5], data[6]), if thin { (0xe4, 2) } else { (0, 0) });
        assert_eq!(capacity[14] & 0xc0, if thin { 0xc0 } else { 0 }, "LBPME, LBPRZ");
    }
}

// covers: VPD-86
#[test]
fn extended_inquiry_claims_task_attributes_and_marked_blocks_only() {
    let data = page(&mut Disk::new(), 0x86);
    assert_eq!(data.len(), 64);
    assert_eq!(data[4], 0, "no protection types, no checks");
    assert_eq!((data[5], data[6]), (0x07, 0x09));
}

// covers: PI-01
#[test]
fn read_capacity_tells_size_and_alignment() {
    let mut disk = Disk::new();
    assert_eq!(disk.run(&cdb::ten(0x25, 0, 0, 0)).good().data, [0, 0, 0x0f, 0xff, 0, 0, 2, 0]);
    let mut cdb = cdb::sixteen(0x9e, 0x10, 0, 0);
    cdb[13] = 255;
    let data = disk.run(&cdb).good().data;
    assert_eq!(data.len(), 32);
    assert_eq!(data[..8], (BLOCKS - 1).to_be_bytes());
    assert_eq!((data[12], data[13]), (0, 3), "no protection, 8 logical blocks per physical block");

    disk.lu.set_blocks(1 << 40);
    disk.run(&[0; 6]).fails(6, 0x2a, 0x09);
    assert_eq!(disk.run(&cdb::ten(0x25, 0, 0, 0)).good().data[..4], [0xff; 4]);
    assert_eq!(disk.run(&cdb).good().data[..8], ((1u64 << 40) - 1).to_be_bytes());
    disk.lu.set_blocks(0);
    disk.run(&[0; 6]).fails(6, 0x2a, 0x09);
    disk.run(&cdb).fails(2, 0x3a, 0);
}

#[test]
fn alu_01_and_02_target_port_groups_agree_with_the_designators() {
    let target_ports = vec![
        TargetPort { relative_port: 3, group: 2 },
        TargetPort { relative_port: 1, group: 1 },
        TargetPort { relative_port: 2, group: 1 },
    ];
    let mut disk =
        Disk::with(LuConfig { paths: Paths { target_ports, ..Paths::default() }, ..support::config() });
    let rtpg = |b1: u8| [0xa3, b1, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0];
    let data = disk.run(&rtpg(0x0a)).good().data;
    assert_eq!(u32_at(&data, 0) as usize, data.len() - 4);
    assert_eq!(data[4..12], [0, 0x8f, 0, 1, 0, 0, 0, 2], "group 1: active/optimized, two ports");
    assert_eq!(data[12..20], [0, 0, 0, 1, 0, 0, 0, 2]);
    assert_eq!(data[20..28], [0, 0x8f, 0, 2, 0, 0, 0, 1]);
    assert_eq!(data[28..32], [0, 0, 0, 3]);
    let extended = disk.run(&rtpg(0x2a)).good().data;
    assert_eq!(extended[4..8], [0x10, 0, 0, 0]);
    assert_eq!(extended[8..], data[4..]);
    disk.run(&rtpg(0x4a)).fails(5, 0x24, 0);
    assert_eq!(disk.run(&cdb::inquiry(None, 96)).good().data[6], 0x10, "MULTIP");
}

// covers: VPD-87 VPD-88
#[test]
fn vpd_87_and_88_mode_page_policy_and_ports() {
    let target_ports =
        vec![TargetPort { relative_port: 2, group: 2 }, TargetPort { relative_port: 1, group: 1 }];
    let mut disk =
        Disk::with(LuConfig { paths: Paths { target_ports, ..Paths::default() }, ..support::config() });
    assert_eq!(page(&mut disk, 0x87)[4..], [0x3f, 0xff, 0, 0], "all shared");
    let data = page(&mut disk, 0x88);
    let mut rest = &data[4..];
    for port in [1, 2] {
        assert_eq!(rest[..10], [0, 0, 0, port, 0, 0, 0, 0, 0, 0]);
        let length = usize::from(u16::from_be_bytes([rest[10], rest[11]]));
        assert_eq!(rest[12..14], [0x53, 0x98]);
        let name = format!("iqn.2025-01.org.example:disk,t,0x000{port}\0");
        assert!(rest[16..].starts_with(name.as_bytes()));
        rest = &rest[12 + length..];
    }
    assert!(rest.is_empty());
}

// covers: VPD-88
#[test]
fn vpd_88_without_configured_ports_names_the_asking_one() {
    assert_eq!(page(&mut Disk::new(), 0x88)[4..8], [0, 0, 0, 1]);
}

#[test]
fn defect_lists_and_diagnostics_are_empty() {
    let mut disk = Disk::new();
    assert_eq!(disk.run(&[0x37, 0, 0x1d, 0, 0, 0, 0, 0, 32, 0]).good().data, [0, 0x1d, 0, 0]);
    assert_eq!(
        disk.run(&[0xb7, 0x0d, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0]).good().data,
        [0, 0x0d, 0, 0, 0, 0, 0, 0]
    );
    disk.run(&[0x1d, 0x04, 0, 0, 0, 0]).good();
    disk.run(&[0x1d, 0x20, 0, 0, 0, 0]).fails(5, 0x24, 0);
    assert_eq!(disk.run(&[0x1c, 1, 0, 0, 255, 0]).good().data, [0, 0, 0, 1, 0]);
    // The page that requests the list, and invalid ones.
    disk.send(&[0x1d, 0x10, 0, 0, 4, 0], &[0; 4]).good();
    assert_eq!(disk.run(&[0x1c, 0, 0, 0, 255, 0]).good().data, [0, 0, 0, 1, 0]);
    disk.send(&[0x1d, 0x10, 0, 0, 4, 0], &[0x40, 0, 0, 0]).fails(5, 0x26, 0);
    for cdb in [[0x1d, 0, 0, 0, 4, 0], [0x1d, 0x10, 0, 0, 8, 0], [0x1d, 0x14, 0, 0, 4, 0]] {
        disk.send(&cdb, &[0; 8]).fails(5, 0x24, 0);
    }
    disk.run(&[0x1e, 0, 0, 0, 1, 0]).good();
}
