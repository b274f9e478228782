//! RESERVE and RELEASE, and persistent reservations.
mod support;

use scsi::{Effect, KeptState, LuConfig, Nexus, Paths, PrState, Status, TargetPort};
use support::{BLOCK, Disk, cdb, nexus};

const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const RELEASE: u8 = 2;
const CLEAR: u8 = 3;
const PREEMPT: u8 = 4;
const PREEMPT_AND_ABORT: u8 = 5;
const REGISTER_AND_IGNORE: u8 = 6;
const REGISTER_AND_MOVE: u8 = 7;

const TYPES: [u8; 6] = [1, 3, 5, 6, 7, 8];

struct Cluster {
    disk: Disk,
    a: Nexus,
    b: Nexus,
    c: Nexus,
    /// Only observes: its commands must not clear the others' unit attentions.
    observer: Nexus,
}

fn cluster() -> Cluster {
    cluster_with(support::config())
}

fn cluster_with(config: LuConfig) -> Cluster {
    let mut disk = Disk::with(config);
    let (a, b, c) = (disk.nexus.clone(), nexus("b"), nexus("c"));
    disk.attach(&b);
    disk.attach(&c);
    let observer = nexus("observer");
    disk.attach(&observer);
    Cluster { disk, a, b, c, observer }
}

fn out_cdb(action: u8, kind: u8, length: u32) -> Vec<u8> {
    let mut cdb = vec![0x5f, action, kind, 0, 0];
    cdb.extend(length.to_be_bytes());
    cdb.push(0);
    cdb
}

fn keys(key: u64, action_key: u64, flags: u8) -> Vec<u8> {
    let mut list = key.to_be_bytes().to_vec();
    list.extend(action_key.to_be_bytes());
    list.extend([0, 0, 0, 0, flags, 0, 0, 0]);
    list
}

impl Cluster {
    fn out(&mut self, who: &Nexus, action: u8, kind: u8, key: u64, action_key: u64) -> support::Answer {
        self.disk.run_as(who, &out_cdb(action, kind, 24), &keys(key, action_key, 0))
    }

    fn register(&mut self, who: &Nexus, key: u64) {
        self.out(who, REGISTER_AND_IGNORE, 0, 0, key).good();
    }

    fn read_in(&mut self, action: u8) -> Vec<u8> {
        let observer = self.observer.clone();
        self.disk.run_as(&observer, &[0; 6], &[]);
        self.disk.run_as(&observer, &[0x5e, action, 0, 0, 0, 0, 0, 0xff, 0xff, 0], &[]).good().data
    }

    fn generation(&mut self) -> u32 {
        u32::from_be_bytes(self.read_in(0)[..4].try_into().unwrap())
    }

    fn keys(&mut self) -> Vec<u64> {
        self.read_in(0)[8..].chunks(8).map(|k| u64::from_be_bytes(k.try_into().unwrap())).collect()
    }

    /// (key, type) of the reservation.
    fn reservation(&mut self) -> Option<(u64, u8)> {
        let data = self.read_in(1);
        assert_eq!(data[7] as usize, data.len() - 8);
        (data.len() == 24).then(|| (u64::from_be_bytes(data[8..16].try_into().unwrap()), data[21]))
    }

    /// The unit attention pending for `who`, cleared by TEST UNIT READY.
    fn attention(&mut self, who: &Nexus) -> Option<(u8, u8)> {
        let answer = self.disk.run_as(who, &[0; 6], &[]);
        (answer.status == Status::CheckCondition).then(|| (answer.code().1, answer.code().2))
    }
}

#[test]
fn pr_01_keys_generation_and_full_status() {
    let mut cluster = cluster();
    let (a, b) = (cluster.a.clone(), cluster.b.clone());
    assert_eq!(cluster.read_in(0), [0; 8]);
    cluster.register(&a, 0x11);
    cluster.register(&b, 0x22);
    assert_eq!((cluster.keys(), cluster.generation()), (vec![0x11, 0x22], 2));
    cluster.out(&a, RESERVE, 1, 0x11, 0).good();
    cluster.out(&a, RELEASE, 1, 0x11, 0).good();
    assert_eq!(cluster.generation(), 2, "RESERVE and RELEASE leave the generation");
    cluster.out(&b, RESERVE, 5, 0x22, 0).good();
    // ADDITIONAL LENGTH is the full length even beyond the allocation length.
    let cut = cluster.disk.run_as(&a, &[0x5e, 0, 0, 0, 0, 0, 0, 0, 8, 0], &[]).good().data;
    assert_eq!(cut, [0, 0, 0, 2, 0, 0, 0, 16]);

    let full = cluster.read_in(3);
    let length = u32::from_be_bytes(full[4..8].try_into().unwrap()) as usize;
    assert_eq!(length, full.len() - 8);
    let first = &full[8..];
    assert_eq!(first[..8], 0x11u64.to_be_bytes());
    assert_eq!((first[12], first[13]), (0, 0), "not the holder");
    assert_eq!(first[18..20], [0, 1]);
    let id = u32::from_be_bytes(first[20..24].try_into().unwrap()) as usize;
    assert_eq!((first[24], id % 4), (0x45, 0), "format 1, iSCSI");
    assert!(first[28..].starts_with(b"iqn.2025-01.org.example:a,i,0x00023d000001\0"));
    let second = &first[24 + id..];
    assert_eq!(second[..8], 0x22u64.to_be_bytes());
    assert_eq!((second[12], second[13]), (1, 5), "the holder, type 5");
}

// covers: PR-01
#[test]
fn many_registrants_up_to_the_limit() {
    let mut cluster = cluster();
    for i in 0..512u64 {
        let who = Nexus::new(&format!("iqn.2025-01.org.example:h{i},i,0x{i:012x}"), 1, 1);
        cluster.out(&who, REGISTER, 0, 0, i + 1).good();
    }
    assert_eq!(cluster.keys().len(), 512);
    let late = nexus("late");
    cluster.out(&late, REGISTER, 0, 0, 1).fails(5, 0x55, 4);
    assert_eq!(cluster.keys().len(), 512);
}

// covers: PR-01 PR-10
#[test]
fn capabilities_are_true() {
    let mut cluster = cluster();
    assert_eq!(cluster.read_in(2), [0, 8, 0x1c, 0x80, 0xea, 1, 0, 0]);
    let (cdb, a) = (out_cdb(REGISTER, 0, 24), cluster.a.clone());
    cluster.disk.run_as(&a, &cdb, &keys(0, 1, 1)).fails(5, 0x26, 0);

    let mut cluster = cluster_with(LuConfig { persist_reservations: true, ..support::config() });
    assert_eq!(cluster.read_in(2)[2..4], [0x1d, 0x80]);
    let answer = cluster.disk.run_as(&a, &cdb, &keys(0, 1, 1)).good();
    assert_eq!(answer.effects, [Effect::KeptStateChanged(1)]);
    assert_eq!(cluster.read_in(2)[3], 0x81, "PTPL_A");
}

// covers: PR-10
#[test]
fn a_registration_that_cannot_be_stored_is_taken_back_and_its_command_learns_it() {
    let mut cluster = cluster_with(LuConfig { persist_reservations: true, ..support::config() });
    let (cdb, a) = (out_cdb(REGISTER, 0, 24), cluster.a.clone());
    cluster.disk.run_as(&a, &cdb, &keys(0, 1, 1)).good();
    assert_eq!(cluster.keys(), [1]);
    let lu = cluster.disk.lu.clone();
    assert!(lu.store_kept(|kept| kept.map_or(Ok(()), |_| Err("no space"))).is_err());
    assert!(cluster.keys().is_empty());
    assert!(lu.was_taken_back(1));
    assert!(!lu.was_taken_back(1), "each command asks once");
}

#[test]
fn pr_02_register_needs_the_right_key() {
    let mut cluster = cluster();
    let (a, b) = (cluster.a.clone(), cluster.b.clone());
    cluster.out(&a, REGISTER, 0, 5, 7).conflicts();
    cluster.out(&a, REGISTER, 0, 0, 0).good();
    assert_eq!(cluster.generation(), 0, "nothing to unregister");
    cluster.out(&a, REGISTER, 0, 0, 7).good();
    cluster.out(&a, REGISTER, 0, 0, 8).conflicts();
    cluster.out(&a, REGISTER, 0, 7, 8).good();
    assert_eq!(cluster.keys(), [8]);
    cluster.out(&a, REGISTER_AND_IGNORE, 0, 0xdead, 9).good();
    assert_eq!(cluster.keys(), [9]);
    for action in [RESERVE, RELEASE, CLEAR, PREEMPT, PREEMPT_AND_ABORT] {
        cluster.out(&a, action, 1, 8, 9).conflicts();
        cluster.out(&b, action, 1, 0, 9).conflicts();
        cluster.out(&b, action, 1, 9, 9).conflicts();
    }
    assert_eq!((cluster.generation(), cluster.reservation()), (3, None));
    cluster.out(&a, REGISTER, 0, 9, 0).good();
    assert!(cluster.keys().is_empty());
}

#[test]
fn pr_03_types_and_scopes() {
    let mut cluster = cluster();
    let a = cluster.a.clone();
    cluster.register(&a, 1);
    for kind in 0..16 {
        let answer = cluster.out(&a, RESERVE, kind, 1, 0);
        if TYPES.contains(&kind) {
            answer.good();
            let key = if kind >= 7 { 0 } else { 1 };
            assert_eq!(cluster.reservation(), Some((key, kind)));
            cluster.out(&a, RELEASE, kind, 1, 0).good();
        } else {
            answer.fails(5, 0x24, 0);
        }
    }
    for scope in 1..16 {
        cluster.out(&a, RESERVE, scope << 4 | 1, 1, 0).fails(5, 0x24, 0);
    }
    cluster.out(&a, RESERVE, 1, 1, 0).good();
    cluster.out(&a, RESERVE, 1, 1, 0).good();
    cluster.out(&a, RESERVE, 3, 1, 0).conflicts();
}

/// Classes of SPC-4 table 51 and SBC-3 table 13, written down once more from the standards.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Class {
    Always,
    Read,
    Write,
}

fn class(opcode: u8, action: Option<u16>) -> Option<Class> {
    Some(match opcode {
        0x00 | 0x03 | 0x12 | 0x25 | 0xa0 | 0xa3 | 0x5e => Class::Always,
        0x9e if action == Some(0x10) => Class::Always,
        0x4d | 0x84 => Class::Always,
        0x83 if action == Some(0x1c) => Class::Always, // COPY OPERATION ABORT
        0x08 | 0x28 | 0xa8 | 0x88 | 0x2f | 0xaf | 0x8f | 0x34 | 0x90 | 0x37 | 0xb7 | 0x9e => Class::Read,
        0x1e => Class::Always, // allowing removal
        0x16 | 0x17 | 0x56 | 0x57 | 0x5f => return None,
        _ => Class::Write,
    })
}

#[test]
fn pr_04_access_matrix_of_all_commands() {
    let mut probe = Disk::new();
    let listed = probe.run(&[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0]).good().data;
    let commands: Vec<(u8, Option<u16>, usize)> = listed[4..]
        .chunks(8)
        .map(|d| (d[0], (d[5] & 1 == 1).then_some(u16::from(d[3])), usize::from(d[7])))
        .collect();
    assert!(commands.len() > 50);
    for kind in TYPES {
        let exclusive_access = matches!(kind, 3 | 6 | 8);
        let shared = kind >= 5;
        let mut cluster = cluster();
        let (a, b, c) = (cluster.a.clone(), cluster.b.clone(), cluster.c.clone());
        cluster.register(&a, 1);
        cluster.register(&b, 2);
        cluster.out(&a, RESERVE, kind, 1, 0).good();
        for &(opcode, action, length) in &commands {
            let Some(class) = class(opcode, action) else { continue };
            let mut cdb = vec![0; length];
            cdb[0] = opcode;
            cdb[1] = action.unwrap_or(0) as u8;
            for (who, holder, registered) in [(&a, true, true), (&b, false, true), (&c, false, false)] {
                let expected = holder
                    || class == Class::Always
                    || shared && registered
                    || class == Class::Read && !exclusive_access;
                let answer = cluster.disk.run_as(who, &cdb, &[]);
                let conflict = answer.status == Status::ReservationConflict;
                assert_eq!(!conflict, expected, "type {kind} opcode {opcode:x} registered {registered}");
                // SET IDENTIFYING INFORMATION establishes a unit attention for the others.
                for nexus in [&a, &b, &c] {
                    cluster.disk.run_as(nexus, &[3, 0, 0, 0, 18, 0], &[]).good();
                }
                // START STOP UNIT with START 0 stops the unit.
                cluster.disk.run_as(&a, &[0x1b, 0, 0, 0, 1, 0], &[]).good();
            }
        }
        // Every nexus may start the unit; preventing removal is not allowed.
        cluster.disk.run_as(&c, &[0x1b, 0, 0, 0, 1, 0], &[]).good();
        cluster.disk.run_as(&c, &[0x1e, 0, 0, 0, 1, 0], &[]).conflicts();
    }
}

// covers: PR-05 SNS-06
#[test]
fn what_identifies_a_unit_is_always_allowed() {
    let mut cluster = cluster();
    let (a, c) = (cluster.a.clone(), cluster.c.clone());
    cluster.register(&a, 1);
    cluster.out(&a, RESERVE, 3, 1, 0).good();
    let mut read_capacity = cdb::sixteen(0x9e, 0x10, 0, 0);
    read_capacity[13] = 32;
    for cdb in [cdb::inquiry(None, 96), vec![0; 6], vec![3, 0, 0, 0, 18, 0], read_capacity] {
        cluster.disk.run_as(&c, &cdb, &[]).good();
    }
    cluster.disk.run_as(&c, &cdb::read(0, 1), &[]).conflicts();
    cluster.disk.run_as(&c, &cdb::write(0, 1), &[1; BLOCK]).conflicts();
    assert!(cluster.disk.data.iter().all(|&b| b == 0));
}

#[test]
fn pr_06_release_by_others_and_of_the_wrong_type() {
    let mut cluster = cluster();
    let (a, b) = (cluster.a.clone(), cluster.b.clone());
    cluster.register(&a, 1);
    cluster.register(&b, 2);
    cluster.out(&a, RELEASE, 1, 1, 0).good();
    cluster.out(&a, RESERVE, 1, 1, 0).good();
    cluster.out(&b, RELEASE, 1, 2, 0).good();
    assert_eq!(cluster.reservation(), Some((1, 1)), "not the holder: no change");
    cluster.out(&a, RELEASE, 3, 1, 0).fails(5, 0x26, 4);
    cluster.out(&a, RELEASE, 0x11, 1, 0).fails(5, 0x24, 0);
    cluster.out(&a, RELEASE, 1, 1, 0).good();
    assert_eq!(cluster.reservation(), None);
}

#[test]
fn pr_07_all_registrants_hold_until_the_last_one_goes() {
    for kind in [7, 8] {
        let mut cluster = cluster();
        let (a, b, c) = (cluster.a.clone(), cluster.b.clone(), cluster.c.clone());
        cluster.register(&a, 1);
        cluster.register(&b, 2);
        cluster.out(&a, RESERVE, kind, 1, 0).good();
        cluster.out(&a, REGISTER, 0, 1, 0).good();
        assert_eq!(cluster.reservation(), Some((0, kind)));
        cluster.register(&c, 3);
        // Key 0 preempts every registration.
        cluster.out(&c, PREEMPT, kind, 3, 0).good();
        assert_eq!((cluster.keys(), cluster.reservation()), (vec![3], Some((0, kind))));
        assert_eq!(cluster.attention(&b), Some((0x2a, 5)));
        cluster.out(&c, REGISTER, 0, 3, 0).good();
        assert_eq!(cluster.reservation(), None);
    }
}

#[test]
fn pr_08_preempt_and_its_attentions() {
    let mut cluster = cluster();
    let (a, b, c) = (cluster.a.clone(), cluster.b.clone(), cluster.c.clone());
    cluster.register(&a, 1);
    cluster.register(&b, 2);
    cluster.register(&c, 3);
    let generation = cluster.generation();
    // Without a reservation: only registrations are removed.
    cluster.out(&b, PREEMPT, 3, 2, 1).good();
    assert_eq!((cluster.keys(), cluster.reservation()), (vec![2, 3], None));
    assert_eq!(cluster.generation(), generation + 1);
    assert_eq!(cluster.attention(&a), Some((0x2a, 5)));
    assert_eq!((cluster.attention(&b), cluster.attention(&c)), (None, None));
    // A key that is not registered; key 0.
    cluster.out(&b, PREEMPT, 3, 2, 0x99).conflicts();
    cluster.out(&b, PREEMPT, 3, 2, 0).fails(5, 0x26, 0);
    // The holder's key: the reservation changes hands, and type.
    cluster.register(&a, 1);
    cluster.out(&a, RESERVE, 5, 1, 0).good();
    cluster.out(&b, PREEMPT, 6, 2, 1).good();
    assert_eq!((cluster.keys(), cluster.reservation()), (vec![2, 3], Some((2, 6))));
    assert_eq!(cluster.attention(&a), Some((0x2a, 5)));
    assert_eq!(cluster.attention(&c), Some((0x2a, 4)), "the type changed");
    assert_eq!(cluster.attention(&b), None);
    // Another registrant's key: the reservation stays.
    cluster.out(&b, PREEMPT, 6, 2, 3).good();
    assert_eq!((cluster.keys(), cluster.reservation()), (vec![2], Some((2, 6))));
}

// covers: PR-08
#[test]
fn release_and_unregistering_tell_the_registrants() {
    for (kind, told) in [(1, false), (3, false), (5, true), (6, true), (7, true), (8, true)] {
        let mut cluster = cluster();
        let (a, b, c) = (cluster.a.clone(), cluster.b.clone(), cluster.c.clone());
        cluster.register(&a, 1);
        cluster.register(&b, 2);
        cluster.out(&a, RESERVE, kind, 1, 0).good();
        cluster.out(&a, RELEASE, kind, 1, 0).good();
        assert_eq!(cluster.attention(&b), told.then_some((0x2a, 4)), "type {kind}");
        assert_eq!((cluster.attention(&a), cluster.attention(&c)), (None, None));
        if kind < 7 {
            cluster.out(&a, RESERVE, kind, 1, 0).good();
            cluster.out(&a, REGISTER, 0, 1, 0).good();
            assert_eq!(cluster.reservation(), None);
            assert_eq!(cluster.attention(&b), told.then_some((0x2a, 4)));
        }
    }
}

// covers: PR-02
#[test]
fn clear_removes_everything_and_tells_the_others() {
    let mut cluster = cluster();
    let (a, b, c) = (cluster.a.clone(), cluster.b.clone(), cluster.c.clone());
    cluster.register(&a, 1);
    cluster.register(&b, 2);
    cluster.out(&a, RESERVE, 3, 1, 0).good();
    let generation = cluster.generation();
    cluster.out(&b, CLEAR, 0, 2, 0).good();
    assert_eq!((cluster.keys(), cluster.reservation()), (vec![], None));
    assert_eq!(cluster.generation(), generation + 1);
    assert_eq!(cluster.attention(&a), Some((0x2a, 3)));
    assert_eq!((cluster.attention(&b), cluster.attention(&c)), (None, None));
}

/// The last holder of an all-registrants reservation preempts its own key: the reservation is removed too, so it blocks no
/// nexus.
#[test]
fn pr_08_who_preempts_its_own_key_leaves_no_reservation_of_nobody() {
    for kind in [7, 8] {
        let mut cluster = cluster();
        let (a, b, c) = (cluster.a.clone(), cluster.b.clone(), cluster.c.clone());
        cluster.register(&a, 1);
        cluster.register(&b, 2);
        cluster.out(&a, RESERVE, kind, 1, 0).good();
        cluster.out(&a, PREEMPT, kind, 1, 1).good();
        assert_eq!((cluster.keys(), cluster.reservation()), (vec![2], Some((0, kind))), "b holds it");
        cluster.disk.run_as(&c, &cdb::write(0, 1), &[1; BLOCK]).conflicts();
        cluster.out(&b, PREEMPT, kind, 2, 2).good();
        assert_eq!((cluster.keys(), cluster.reservation()), (vec![], None));
        cluster.disk.run_as(&c, &cdb::write(0, 1), &[1; BLOCK]).good();
    }
}

#[test]
fn pr_09_preempt_and_abort_names_its_victims() {
    let mut cluster = cluster();
    let (a, b, c) = (cluster.a.clone(), cluster.b.clone(), cluster.c.clone());
    cluster.register(&a, 1);
    cluster.register(&b, 2);
    cluster.register(&c, 1);
    cluster.out(&a, RESERVE, 3, 1, 0).good();
    let mut effects = cluster.out(&b, PREEMPT_AND_ABORT, 3, 2, 1).good().effects;
    let Some(Effect::AbortTasksOf(victims)) = effects.pop() else { panic!("nobody is aborted") };
    assert_eq!(victims, [a.id, c.id]);
    assert!(matches!(effects[..], [Effect::KeptStateChanged(_)]), "{effects:?}");
    assert_eq!(cluster.reservation(), Some((2, 3)));
}

#[test]
fn pr_10_aptpl_state_goes_out_and_comes_back() {
    let config = || LuConfig { persist_reservations: true, ..support::config() };
    let mut cluster = cluster_with(config());
    let (a, b) = (cluster.a.clone(), cluster.b.clone());
    cluster.register(&a, 1);
    assert_eq!(cluster.disk.lu.export_persistent(), None, "no APTPL, nothing to store");
    let cdb = out_cdb(REGISTER, 0, 24);
    cluster.disk.run_as(&b, &cdb, &keys(0, 2, 1)).good();
    cluster.out(&b, RESERVE, 5, 2, 0).good();
    let stored = cluster.disk.lu.export_persistent().unwrap();
    let kept = stored.reservations.clone().unwrap();
    assert_eq!((kept.registrations.len(), kept.reservation), (2, Some((5, 1))));

    let mut after = cluster_with(config());
    after.disk.lu.import_persistent(&stored);
    assert_eq!((after.keys(), after.reservation(), after.generation()), (vec![1, 2], Some((2, 5)), 0));
    let c = after.c.clone();
    after.disk.run_as(&c, &cdb::write(0, 1), &[0; BLOCK]).conflicts();
    after.disk.run_as(&b, &cdb::write(0, 1), &[0; BLOCK]).good();
    assert_eq!(after.disk.lu.export_persistent(), Some(stored.clone()));
    // APTPL 0 in a later registration: nothing is stored any more.
    after.out(&b, REGISTER, 0, 2, 2).good();
    assert_eq!(after.disk.lu.export_persistent(), None);

    // A damaged file: what does not fit is left out.
    let mut damaged = kept;
    damaged.registrations[0].key = 0;
    let twin = damaged.registrations[1].clone();
    damaged.registrations.push(twin);
    damaged.reservation = Some((9, 77));
    let mut after = cluster_with(config());
    let stored = |reservations| KeptState { reservations: Some(reservations), ..KeptState::default() };
    after.disk.lu.import_persistent(&stored(damaged));
    assert_eq!((after.keys(), after.reservation()), (vec![2], None));
    after.disk.lu.import_persistent(&stored(PrState::default()));
    assert!(after.keys().is_empty());
}

fn transport_id(format: u8, name: &str) -> Vec<u8> {
    let mut name = name.as_bytes().to_vec();
    name.push(0);
    name.resize(name.len().next_multiple_of(4).max(20), 0);
    let mut id = vec![format << 6 | 5, 0, 0, name.len() as u8];
    id.extend(name);
    id
}

fn spec_i_pt(key: u64, ids: &[Vec<u8>]) -> (Vec<u8>, Vec<u8>) {
    let ids = ids.concat();
    let mut list = keys(0, key, 0x08);
    list.extend((ids.len() as u32).to_be_bytes());
    list.extend(ids);
    (out_cdb(REGISTER, 0, list.len() as u32), list)
}

#[test]
fn pr_11_spec_i_pt_and_all_tg_pt() {
    let mut cluster = cluster();
    let (a, b, c) = (cluster.a.clone(), cluster.b.clone(), cluster.c.clone());
    // Format 1 names a port, format 0 all known ports of a device.
    let ids = [transport_id(1, &b.initiator_port), transport_id(0, "iqn.2025-01.org.example:c")];
    let (cdb, list) = spec_i_pt(5, &ids);
    cluster.disk.run_as(&a, &cdb, &list).good();
    assert_eq!((cluster.keys(), cluster.generation()), (vec![5, 5, 5], 1));
    cluster.out(&c, RESERVE, 1, 5, 0).good();
    cluster.out(&c, CLEAR, 0, 5, 0).good();
    for who in [&a, &b] {
        assert_eq!(cluster.attention(who), Some((0x2a, 3)));
    }

    // All or nothing.
    cluster.register(&b, 9);
    cluster.disk.run_as(&a, &cdb, &list).conflicts();
    assert_eq!(cluster.keys(), [9]);
    cluster.out(&b, CLEAR, 0, 9, 0).good();
    for bad in [
        transport_id(0, "iqn.2025-01.org.example:unknown"),
        transport_id(0, &b.initiator_port),
        transport_id(1, "iqn.2025-01.org.example:b"),
        transport_id(2, &b.initiator_port),
        vec![0x46, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [vec![0x45, 0, 0, 20], vec![b'x'; 20]].concat(),
    ] {
        let (cdb, list) = spec_i_pt(5, &[bad]);
        cluster.disk.run_as(&a, &cdb, &list).fails(5, 0x26, 0);
    }
    let (cdb, mut list) = spec_i_pt(5, &[transport_id(1, &b.initiator_port)]);
    list[27] += 4;
    cluster.disk.run_as(&a, &cdb, &list).fails(5, 0x1a, 0);
    assert!(cluster.keys().is_empty());

    let target_ports =
        vec![TargetPort { relative_port: 1, group: 1 }, TargetPort { relative_port: 2, group: 2 }];
    let mut cluster =
        cluster_with(LuConfig { paths: Paths { target_ports, ..Paths::default() }, ..support::config() });
    let cdb = out_cdb(REGISTER, 0, 24);
    cluster.disk.run_as(&a, &cdb, &keys(0, 4, 0x04)).good();
    assert_eq!(cluster.keys(), [4, 4]);
    assert_eq!(cluster.read_in(3)[8 + 12], 2, "ALL_TG_PT");
    let through_2 = Nexus::new(&a.initiator_port, 2, 2);
    cluster.out(&through_2, RESERVE, 1, 4, 0).good();
}

// covers: PR-11
#[test]
fn the_sense_points_at_the_transport_id_that_is_wrong() {
    let mut cluster = cluster();
    let (a, b) = (cluster.a.clone(), cluster.b.clone());
    let good = transport_id(1, &b.initiator_port);
    let second = 28 + good.len() as u16;
    let changed = |at: usize, byte: u8| {
        let mut id = good.clone();
        id[at] = byte;
        id
    };
    let empty = [vec![0x45, 0, 0, 20], vec![0; 20]].concat();
    for (bad, points_at) in [
        (transport_id(0, "iqn.2025-01.org.example:unknown"), second),
        (changed(0, 0x46), second),
        (changed(3, 16), second + 2),
        (changed(3, 22), second + 2),
        (changed(4, 0xff), second + 4),
        (empty, second + 4),
    ] {
        let (cdb, list) = spec_i_pt(5, &[good.clone(), bad]);
        cluster.disk.run_as(&a, &cdb, &list).points_at(points_at, None);
    }
    // IDs that end within their header or their name.
    for length in [2, 10] {
        let (cdb, list) = spec_i_pt(5, &[good.clone(), good[..length].to_vec()]);
        cluster.disk.run_as(&a, &cdb, &list).fails(5, 0x1a, 0);
    }
    assert!(cluster.keys().is_empty());
}

#[test]
fn pr_12_register_and_move() {
    let mut cluster = cluster();
    let (a, b, c) = (cluster.a.clone(), cluster.b.clone(), cluster.c.clone());
    let to = |nexus: &Nexus, key: u64, action_key: u64, flags: u8, port: u8| {
        let id = transport_id(1, &nexus.initiator_port);
        let mut list = key.to_be_bytes().to_vec();
        list.extend(action_key.to_be_bytes());
        list.extend([0, flags, 0, port]);
        list.extend((id.len() as u32).to_be_bytes());
        list.extend(id);
        (out_cdb(REGISTER_AND_MOVE, 0, list.len() as u32), list)
    };
    cluster.register(&a, 1);
    let (cdb, list) = to(&b, 1, 7, 0, 1);
    cluster.disk.run_as(&a, &cdb, &list).conflicts();
    cluster.out(&a, RESERVE, 3, 1, 0).good();
    let (cdb, no_key) = to(&b, 1, 0, 0, 1);
    cluster.disk.run_as(&a, &cdb, &no_key).fails(5, 0x26, 0);
    let (cdb, to_itself) = to(&a, 1, 7, 0, 1);
    cluster.disk.run_as(&a, &cdb, &to_itself).fails(5, 0x26, 0);
    let (cdb, no_port) = to(&b, 1, 7, 0, 9);
    cluster.disk.run_as(&a, &cdb, &no_port).fails(5, 0x26, 0);
    let (cdb, list) = to(&b, 1, 7, 0, 1);
    cluster.disk.run_as(&a, &cdb, &list).good();
    assert_eq!((cluster.keys(), cluster.reservation()), (vec![1, 7], Some((7, 3))));
    cluster.disk.run_as(&a, &cdb, &list).conflicts();
    // With UNREG the old holder is gone.
    let (cdb, list) = to(&c, 7, 8, 2, 1);
    cluster.disk.run_as(&b, &cdb, &list).good();
    assert_eq!((cluster.keys(), cluster.reservation()), (vec![1, 8], Some((8, 3))));
    cluster.disk.run_as(&a, &out_cdb(REGISTER_AND_MOVE, 0, 24), &keys(1, 7, 0)).fails(5, 0x1a, 0);
}

#[test]
fn pr_13_registrations_belong_to_the_nexus_by_name() {
    let mut cluster = cluster();
    let (a, c) = (cluster.a.clone(), cluster.c.clone());
    cluster.register(&a, 1);
    cluster.out(&a, RESERVE, 1, 1, 0).good();
    cluster.disk.lu.detach_nexus(&a);
    cluster.disk.run_as(&c, &cdb::write(0, 1), &[0; BLOCK]).conflicts();
    // The same name, ISID and portal group: the same nexus.
    let again = nexus("a");
    cluster.disk.lu.attach_nexus(&again);
    assert_eq!(cluster.attention(&again), Some((0x29, 7)));
    cluster.disk.run_as(&again, &cdb::write(0, 1), &[0; BLOCK]).good();
    // Another ISID, or another portal group: another nexus.
    let isid = Nexus::new("iqn.2025-01.org.example:a,i,0x00023d000002", 1, 1);
    let group = Nexus::new(&a.initiator_port, 2, 2);
    for other in [isid, group] {
        cluster.disk.attach(&other);
        cluster.disk.run_as(&other, &cdb::write(0, 1), &[0; BLOCK]).conflicts();
    }
    // A reset releases none of this.
    cluster.disk.lu.logical_unit_reset();
    assert_eq!(cluster.reservation(), Some((1, 1)));
}

#[test]
fn pr_13_a_port_with_another_account_is_another_nexus() {
    let mut cluster = cluster();
    let port = cluster.a.initiator_port.clone();
    let of = |account: &str| Nexus::new(&port, 1, 1).with_account(Some(account));
    let (alice, bob, anybody) = (of("alice"), of("bob"), Nexus::new(&port, 1, 1));
    cluster.disk.attach(&alice);
    cluster.register(&alice, 1);
    cluster.out(&alice, RESERVE, 3, 1, 0).good();
    cluster.disk.lu.detach_nexus(&alice);
    for other in [&bob, &anybody] {
        cluster.disk.lu.attach_nexus(other);
        cluster.disk.run_as(other, &[0; 6], &[]).fails(6, 0x29, 0x00);
        cluster.disk.run_as(other, &cdb::write(0, 1), &[0; BLOCK]).conflicts();
        cluster.out(other, RELEASE, 3, 1, 0).conflicts();
        cluster.disk.lu.detach_nexus(other);
    }
    cluster.disk.lu.attach_nexus(&alice);
    assert_eq!(cluster.attention(&alice), Some((0x29, 7)));
    cluster.disk.run_as(&alice, &cdb::write(0, 1), &[0; BLOCK]).good();
}

#[test]
fn pr_13_a_registration_without_account_is_of_the_first_that_comes_as_its_port() {
    let mut cluster = cluster_with(LuConfig { persist_reservations: true, ..support::config() });
    let (a, b) = (cluster.a.clone(), cluster.b.clone());
    // B is not attached; A registers it, and reserves for both.
    cluster.disk.lu.detach_nexus(&b);
    let (cdb, list) = spec_i_pt(5, &[transport_id(1, &b.initiator_port)]);
    cluster.disk.run_as(&a, &cdb, &list).good();
    cluster.out(&a, RESERVE, 5, 5, 0).good();
    let of = |account: &str| Nexus::new(&b.initiator_port, 1, 1).with_account(Some(account));
    let (first, second) = (of("first"), of("second"));
    cluster.disk.attach(&first);
    cluster.disk.run_as(&first, &cdb::write(0, 1), &[0; BLOCK]).good();
    cluster.disk.lu.detach_nexus(&first);
    cluster.disk.attach(&second);
    cluster.disk.run_as(&second, &cdb::write(0, 1), &[0; BLOCK]).conflicts();
    // The registration is stored with the account and stays with it across a restart. So does a reservation moved to it.
    let registrations = cluster.disk.lu.export_persistent();
    assert_eq!(registrations, None, "no APTPL was asked for");
    cluster.disk.run_as(&a, &out_cdb(REGISTER, 0, 24), &keys(5, 6, 1)).good();
    let stored = cluster.disk.lu.export_persistent().unwrap();
    let accounts = |kept: &KeptState| -> Vec<Option<String>> {
        kept.reservations.as_ref().unwrap().registrations.iter().map(|r| r.account.clone()).collect()
    };
    assert_eq!(accounts(&stored), [None, Some("first".to_owned())]);
    let mut after = cluster_with(LuConfig { persist_reservations: true, ..support::config() });
    after.disk.lu.import_persistent(&stored);
    assert_eq!(after.disk.lu.export_persistent(), Some(stored));
    after.disk.attach(&second);
    after.disk.run_as(&second, &cdb::write(0, 1), &[0; BLOCK]).conflicts();
}

#[test]
fn pr_14_reserve_and_release() {
    for (reserve, release) in [
        (vec![0x16, 0, 0, 0, 0, 0], vec![0x17, 0, 0, 0, 0, 0]),
        (cdb::ten(0x56, 0, 0, 0), cdb::ten(0x57, 0, 0, 0)),
    ] {
        let mut cluster = cluster();
        let (a, b) = (cluster.a.clone(), cluster.b.clone());
        cluster.disk.run_as(&a, &reserve, &[]).good();
        cluster.disk.run_as(&a, &reserve, &[]).good();
        cluster.disk.run_as(&b, &reserve, &[]).conflicts();
        cluster.disk.run_as(&b, &release, &[]).good();
        cluster.disk.run_as(&b, &[0; 6], &[]).conflicts();
        cluster.disk.run_as(&b, &[0x1a, 0, 0x3f, 0, 255, 0], &[]).conflicts();
        cluster.disk.run_as(&b, &cdb::read(0, 1), &[]).conflicts();
        cluster.disk.run_as(&b, &cdb::inquiry(None, 96), &[]).good();
        cluster.disk.run_as(&b, &[3, 0, 0, 0, 18, 0], &[]).good();
        cluster.disk.run_as(&a, &cdb::read(0, 1), &[]).good();
        cluster.disk.run_as(&a, &[0x5e, 0, 0, 0, 0, 0, 0, 0, 8, 0], &[]).conflicts();
        cluster.disk.run_as(&a, &release, &[]).good();
        cluster.disk.run_as(&b, &reserve, &[]).good();
        // Released by nexus loss and by a reset.
        cluster.disk.lu.detach_nexus(&b);
        cluster.disk.run_as(&a, &reserve, &[]).good();
        cluster.disk.lu.logical_unit_reset();
        let c = cluster.c.clone();
        assert_eq!((cluster.attention(&a), cluster.attention(&c)), (Some((0x29, 3)), Some((0x29, 3))));
        cluster.disk.run_as(&c, &reserve, &[]).good();
    }
    // With registrations: no effect for registered nexuses, a conflict for others.
    let mut cluster = cluster();
    let (a, b) = (cluster.a.clone(), cluster.b.clone());
    cluster.register(&a, 1);
    cluster.disk.run_as(&a, &[0x16, 0, 0, 0, 0, 0], &[]).good();
    cluster.disk.run_as(&b, &[0x16, 0, 0, 0, 0, 0], &[]).conflicts();
    cluster.disk.run_as(&b, &cdb::read(0, 1), &[]).good();
}

#[test]
fn pr_15_parameter_lists_of_the_wrong_length() {
    let mut cluster = cluster();
    let a = cluster.a.clone();
    for length in [0, 1, 23, 25, 28, 1 << 20] {
        cluster.disk.run_as(&a, &out_cdb(REGISTER, 0, length), &vec![0; length as usize]).fails(5, 0x1a, 0);
    }
    cluster.disk.run_as(&a, &out_cdb(REGISTER, 0, 24), &[0; 23]).fails(5, 0x0e, 3);
    cluster.disk.run_as(&a, &out_cdb(RESERVE, 1, 24), &keys(0, 0, 8)).fails(5, 0x26, 0);
}
