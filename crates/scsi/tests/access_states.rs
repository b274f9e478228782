//! Asymmetric access states: which nexus may do what in which state, which may change it, and which are notified.
mod support;

use scsi::{AccessState, LuConfig, MediumConfig, Nexus, Paths, TargetPort};
use support::{BLOCK, BLOCKS, Disk, cdb, nexus};

const GROUPS: [u16; 2] = [1, 2];

/// A unit with two target port groups, and a nexus through the second one.
fn two_groups() -> (Disk, Nexus) {
    let ports = GROUPS.map(|n| TargetPort { relative_port: n, group: n });
    let config = LuConfig {
        paths: Paths { explicit_access_states: true, target_ports: ports.to_vec(), ..Paths::default() },
        medium: MediumConfig { blocks: BLOCKS, ..MediumConfig::default() },
        ..LuConfig::default()
    };
    let mut disk = Disk::with(config);
    let other = Nexus::new("iqn.2025-01.org.example:b,i,0x00023d000001", 2, 2);
    disk.attach(&other);
    (disk, other)
}

/// (state, status code) of each group by REPORT TARGET PORT GROUPS.
fn reported(disk: &mut Disk) -> Vec<(u8, u8)> {
    let data = disk.run(&[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]).good().data;
    assert_eq!(data.len(), 4 + 2 * 12);
    data[4..].chunks(12).map(|group| (group[0] & 0x0f, group[5])).collect()
}

fn set(disk: &mut Disk, who: &Nexus, states: &[(u8, u16)]) -> support::Answer {
    let mut list = vec![0; 4];
    for (state, group) in states {
        list.extend([*state, 0]);
        list.extend(group.to_be_bytes());
    }
    let mut cdb = vec![0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, list.len() as u8, 0, 0];
    cdb[9] = list.len() as u8;
    disk.run_as(who, &cdb, &list)
}

#[test]
fn alu_02_tpgs_and_the_identifiers_agree() {
    let (mut disk, other) = two_groups();
    assert_eq!(disk.run(&cdb::inquiry(None, 96)).good().data[5] >> 4 & 3, 3, "implicit and explicit");
    let mut implicit = Disk::new();
    assert_eq!(implicit.run(&cdb::inquiry(None, 96)).good().data[5] >> 4 & 3, 1, "implicit");
    let who = implicit.nexus.clone();
    set(&mut implicit, &who, &[(0, 1)]).fails(5, 0x24, 0);
    let groups = disk.run(&[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]).good().data;
    for (who, at) in [(disk.nexus.clone(), 4), (other, 16)] {
        let page = disk.run_as(&who, &cdb::inquiry(Some(0x83), 1024), &[]).good().data;
        let designator = |kind: u8| {
            let mut rest = &page[4..];
            loop {
                let len = usize::from(rest[3]);
                if rest[1] & 0x3f == 0x10 | kind {
                    return rest[4..4 + len].to_vec();
                }
                rest = &rest[4 + len..];
            }
        };
        assert_eq!(designator(5)[2..], groups[at + 2..at + 4], "target port group");
        assert_eq!(designator(4)[2..], groups[at + 10..at + 12], "relative target port");
    }
}

#[test]
fn alu_03_states_are_set_and_others_hear_of_it() {
    let (mut disk, other) = two_groups();
    let first = disk.nexus.clone();
    assert_eq!(reported(&mut disk), [(0, 0), (0, 0)]);
    set(&mut disk, &first, &[(2, 1), (0, 2)]).good();
    assert_eq!(reported(&mut disk), [(2, 1), (0, 0)]);
    disk.run_as(&other, &[0; 6], &[]).fails(6, 0x2a, 6);
    disk.run_as(&other, &[0; 6], &[]).good();
    set(&mut disk, &other, &[(1, 1), (3, 2)]).good();
    assert_eq!(disk.run(&[0; 6]).code(), (6, 0x2a, 6));
    assert_eq!(reported(&mut disk), [(1, 1), (3, 1)]);
    // Setting the same state again is not an event.
    set(&mut disk, &other, &[(1, 1)]).good();
    disk.run(&[0; 6]).good();
    // Set by the device itself: every nexus is notified.
    assert!(disk.lu.set_access_state(2, AccessState::ActiveOptimized));
    disk.run(&[0; 6]).fails(6, 0x2a, 6);
    disk.run_as(&other, &[0; 6], &[]).fails(6, 0x2a, 6);
    assert_eq!(reported(&mut disk), [(1, 1), (0, 2)]);
}

// covers: ALU-03
#[test]
fn a_wrong_list_changes_nothing() {
    let (mut disk, _) = two_groups();
    let first = disk.nexus.clone();
    for wrong in [(0x4, 2), (0xe, 2), (0xf, 2), (0, 3)] {
        set(&mut disk, &first, &[(2, 1), wrong]).fails(5, 0x26, 0);
    }
    for length in [1u8, 3, 5, 7, 9] {
        disk.send(&[0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, length, 0, 0], &[0; 16]).fails(5, 0x1a, 0);
    }
    disk.run(&[0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).good();
    assert_eq!(reported(&mut disk), [(0, 0), (0, 0)]);
    disk.lu.set_access_state(1, AccessState::Transitioning);
    disk.run(&[0; 6]).fails(6, 0x2a, 6);
    set(&mut disk, &first, &[(0, 1)]).fails(2, 4, 0x0a);
}

#[test]
fn alu_04_each_state_carries_out_its_commands() {
    let (mut disk, other) = two_groups();
    let in_all: [&[u8]; 4] = [
        &[0x12, 0, 0, 0, 36, 0],
        &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0],
        &[0x03, 0, 0, 0, 18, 0],
        &[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0],
    ];
    let in_standby: [&[u8]; 4] = [
        &[0x1a, 8, 0x3f, 0, 255, 0],
        &[0x5e, 0, 0, 0, 0, 0, 0, 0, 8, 0],
        &[0x4d, 0, 0x40, 0, 0, 0, 0, 0, 16, 0],
        &[0x1d, 4, 0, 0, 0, 0],
    ];
    let in_active: [&[u8]; 4] =
        [&[0; 6], &cdb::read(0, 1), &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0]];
    let states = [
        (AccessState::ActiveOptimized, None, None),
        (AccessState::ActiveNonOptimized, None, None),
        (AccessState::Standby, None, Some(0x0b)),
        (AccessState::Unavailable, Some(0x0c), Some(0x0c)),
        (AccessState::Transitioning, Some(0x0a), Some(0x0a)),
    ];
    for (state, standby, active) in states {
        disk.lu.set_access_state(1, state);
        disk.run(&[0x03, 0, 0, 0, 18, 0]).good();
        let mut check = |commands: [&[u8]; 4], refusal: Option<u8>| {
            for command in commands {
                let code = disk.run(command).code();
                assert_eq!(code, refusal.map_or((0, 0, 0), |ascq| (2, 4, ascq)), "{state:?} {command:x?}");
            }
        };
        check(in_all, None);
        check(in_standby, standby);
        check(in_active, active);
        if let Some(ascq) = active {
            let answer = disk.send(&cdb::write(0, 1), &[1; BLOCK]).fails(2, 4, ascq);
            assert!(answer.ops.is_empty(), "the medium is left alone");
        }
        disk.run_as(&other, &[0x03, 0, 0, 0, 18, 0], &[]).good();
        disk.run_as(&other, &cdb::read(0, 1), &[]).good();
    }
}

/// Two paths write in turn while the states change: every acknowledged write is on the medium, no rejected one is.
#[test]
fn alu_05_no_write_is_lost_or_doubled_while_states_change() {
    let (mut disk, other) = two_groups();
    let paths = [disk.nexus.clone(), other];
    let mut seed = 0x2545_f491_4f6c_dd1du64;
    let mut random = |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let mut expected = vec![0u8; BLOCKS as usize];
    let (mut written, mut refused) = (0, 0);
    for round in 0..20_000u64 {
        let path = random(2) as usize;
        if random(20) == 0 {
            // Failover: the other group takes over.
            let states = [(random(4) as u8, 1), (random(4) as u8, 2)];
            let answer = set(&mut disk, &paths[path], &states);
            if answer.code().0 == 6 {
                set(&mut disk, &paths[path], &states).good();
            }
        }
        let (lba, value) = (random(BLOCKS), (round % 251) as u8 + 1);
        let answer = disk.run_as(&paths[path], &cdb::write(lba, 1), &[value; BLOCK]);
        match answer.code() {
            (0, 0, 0) => {
                assert_eq!(answer.ops.len(), 1, "written once");
                expected[lba as usize] = value;
                written += 1;
            }
            (2, 4, 0x0b | 0x0c) | (6, 0x2a, 6) => {
                assert!(answer.ops.is_empty(), "refused and yet done");
                refused += 1;
            }
            other => panic!("{other:x?}"),
        }
    }
    assert!(written > 1000 && refused > 1000, "{written} written, {refused} refused");
    for (lba, value) in expected.iter().enumerate() {
        assert!(disk.data[lba * BLOCK..][..BLOCK].iter().all(|byte| byte == value), "block {lba}");
    }
}

#[test]
fn ua_04_with_the_interlock_attentions_stay_until_request_sense() {
    let mut disk = Disk::new();
    let other = nexus("b");
    disk.attach(&other);
    let control = |interlock: u8| {
        let mut page = vec![0x0a, 10, 0x02, 0x10, interlock << 4, 0, 0, 0, 0xff, 0xff, 0, 0];
        page.splice(0..0, [0; 4]);
        page
    };
    let select = [0x15, 0x10, 0, 0, 16, 0];
    disk.send(&select, &control(1)).fails(5, 0x26, 0);
    for interlock in [2u8, 3] {
        disk.send(&select, &control(interlock)).good();
        for _ in 0..3 {
            disk.run_as(&other, &[0; 6], &[]).fails(6, 0x2a, 1);
        }
        let sense = disk.run_as(&other, &[3, 0, 0, 0, 18, 0], &[]).good().data;
        assert_eq!((sense[2], sense[12], sense[13]), (6, 0x2a, 1));
        disk.run_as(&other, &[0; 6], &[]).good();
        // With 3, a reservation conflict leaves a unit attention behind, only one however often it happens.
        disk.run(&[0x16, 0, 0, 0, 0, 0]).good();
        for _ in 0..2 {
            let answer = disk.run_as(&other, &cdb::read(0, 1), &[]);
            if answer.status == scsi::Status::ReservationConflict {
                continue;
            }
            assert_eq!((interlock, answer.code()), (3, (6, 0x2c, 9)));
        }
        let sense = disk.run_as(&other, &[3, 0, 0, 0, 18, 0], &[]).good().data;
        let due = if interlock == 3 { (6, 0x2c, 9) } else { (0, 0, 0) };
        assert_eq!((sense[2], sense[12], sense[13]), due);
        disk.run(&[0x17, 0, 0, 0, 0, 0]).good();
        disk.run_as(&other, &[0; 6], &[]).good();
    }
    disk.send(&select, &control(0)).good();
    disk.run_as(&other, &[0; 6], &[]).fails(6, 0x2a, 1);
    disk.run_as(&other, &[0; 6], &[]).good();
}

#[test]
fn ua_04_busy_leaves_one_behind_too() {
    for (interlock, due) in [(2, (0, 0, 0)), (3, (6, 0x2c, 7))] {
        let mut disk = Disk::new();
        let page = [0, 0, 0, 0, 0x0a, 10, 0x02, 0x10, interlock << 4, 0, 0, 0, 0xff, 0xff, 0, 0];
        disk.send(&[0x15, 0x10, 0, 0, 16, 0], &page).good();
        Disk::new().lu.inherit(&disk.lu);
        disk.run(&[0x16, 0, 0, 0, 0, 0]).busy();
        assert_eq!(disk.run(&[0; 6]).code(), due);
        let sense = disk.run(&[3, 0, 0, 0, 18, 0]).good().data;
        assert_eq!((sense[2], sense[12], sense[13]), due);
        disk.run(&[0; 6]).good();
    }
}

// covers: TSK-02
#[test]
fn qerr_0_is_fixed_and_an_error_leaves_other_commands_alone() {
    let mut disk = Disk::new();
    let page = |qerr: u8| [0, 0, 0, 0, 0x0a, 10, 0x02, 0x10 | qerr << 1, 0, 0, 0, 0, 0xff, 0xff, 0, 0];
    disk.send(&[0x15, 0x10, 0, 0, 16, 0], &page(0)).good();
    for qerr in 1..4 {
        disk.send(&[0x15, 0x10, 0, 0, 16, 0], &page(qerr)).fails(5, 0x26, 0);
    }
    let lu = disk.lu.clone();
    let mut execution = lu.begin_offering(&disk.nexus, &cdb::write(7, 1), BLOCK as u64);
    let failed = disk.run(&cdb::read(u64::MAX, 1)).fails(5, 0x21, 0);
    assert!(failed.effects.is_empty());
    let data = [9u8; BLOCK];
    execution.data_out(&lu, &scsi::DataOut::new(&[&data]));
    assert!(matches!(execution.step(), scsi::Step::Medium(_)), "the other command goes on");
}

#[test]
fn tsk_03_aca_is_refused_cleanly() {
    let mut disk = Disk::new();
    assert_eq!(disk.run(&cdb::inquiry(None, 96)).good().data[3] & 0x20, 0, "NORMACA");
    assert_eq!(disk.run(&[0xa3, 0x0d, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0]).good().data[0] & 0x20, 0, "CLEAR ACA");
    for cdb in [&[0u8, 0, 0, 0, 0, 4][..], &[0x12, 0, 0, 0, 36, 4]] {
        let sense = disk.run(cdb).fails(5, 0x24, 0).sense.unwrap();
        assert_eq!(
            sense.specific,
            scsi::SenseSpecific::Field { in_cdb: true, byte: 5, bit: Some(2) },
            "NACA"
        );
    }
    disk.run(&[0; 6]).good();
}

// covers: SNS-03 SNS-02
#[test]
fn sns_03_failures_of_the_medium() {
    use scsi::MediumError as E;
    let cases = [
        (E::Write { lba: Some(5) }, (3, 0x0c, 0), Some(5)),
        (E::Write { lba: None }, (3, 0x0c, 0), None),
        (E::NoSpace, (7, 0x27, 7), None),
        (E::ReadOnly, (7, 0x27, 0), None),
        (E::Gone, (2, 0x3a, 0), None),
        (E::Internal, (4, 0x44, 0), None),
    ];
    let mut disk = Disk::new();
    for (error, (key, asc, ascq), information) in cases {
        disk.fault = Some(error);
        let sense = disk.send(&cdb::write(4, 2), &[0; 2 * BLOCK]).fails(key, asc, ascq).sense.unwrap();
        assert_eq!(sense.information, information, "{error:?}");
    }
    // A unit that cannot free space has no thin provisioning, so it reports a write error.
    let mut thick = Disk::with(LuConfig {
        medium: MediumConfig { thin: false, blocks: BLOCKS, ..MediumConfig::default() },
        ..LuConfig::default()
    });
    thick.fault = Some(E::NoSpace);
    thick.send(&cdb::write(4, 1), &[0; BLOCK]).fails(3, 0x0c, 0);
}

#[test]
fn tsk_05_a_write_aborted_before_its_data_are_all_there_changes_nothing() {
    let mut disk = Disk::new();
    disk.send(&cdb::write(0, 4), &[1; 4 * BLOCK]).good();
    let lu = disk.lu.clone();
    let execution = lu.begin_offering(&disk.nexus, &cdb::write(0, 4), 4 * BLOCK as u64);
    assert_eq!(*execution.step(), scsi::Step::NeedDataOut { bytes: 4 * BLOCK as u64 });
    drop(execution);
    // An initiator that offers half a block less: no block is written partially.
    disk.send(&cdb::write(0, 4), &[2; 4 * BLOCK - 256]).fails(5, 0x0e, 3);
    assert_eq!(disk.run(&cdb::read(0, 4)).good().data, [1; 4 * BLOCK]);
}

#[test]
fn vpd_85_b3_b7_are_there_as_they_are_listed() {
    let mut disk = Disk::new();
    let pages = disk.run(&cdb::inquiry(Some(0), 255)).good().data;
    assert!(!pages[4..].contains(&0x85), "without a URL");
    disk.run(&cdb::inquiry(Some(0x85), 255)).fails(5, 0x24, 0);
    let url = "https://host.example/status";
    let mut disk = Disk::with(LuConfig {
        paths: Paths { management_url: Some(url.into()), ..Paths::default() },
        medium: MediumConfig { blocks: BLOCKS, ..MediumConfig::default() },
        ..LuConfig::default()
    });
    let pages = disk.run(&cdb::inquiry(Some(0), 255)).good().data;
    assert!(pages[4..].contains(&0x85));
    let page = disk.run(&cdb::inquiry(Some(0x85), 255)).good().data;
    assert_eq!(page[..8], [0, 0x85, 0, 32, 0x43, 0, 0, 28]);
    assert_eq!(&page[8..8 + url.len()], url.as_bytes());
    assert!(page[8 + url.len()..].iter().all(|byte| *byte == 0));
}

#[test]
fn vpd_b3_referrals_are_absent_and_nothing_claims_them() {
    let mut disk = Disk::new();
    assert!(!disk.run(&cdb::inquiry(Some(0), 255)).good().data[4..].contains(&0xb3));
    disk.run(&cdb::inquiry(Some(0xb3), 255)).fails(5, 0x24, 0);
    assert_eq!(disk.run(&cdb::inquiry(Some(0x86), 255)).good().data[8] & 0x10, 0, "R_SUP");
}

#[test]
fn vpd_b7_reports_no_limits() {
    let mut disk = Disk::new();
    let page = disk.run(&cdb::inquiry(Some(0xb7), 255)).good().data;
    assert_eq!((page.len(), &page[..4]), (64, &[0, 0xb7, 0, 60][..]));
    assert!(page[4..].iter().all(|byte| *byte == 0));
}
