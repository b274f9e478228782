//! Floods against each surface at which a peer can make the target keep something: whatever it sends, and whatever it does not
//! read, the target stays within its memory and an honest client goes on.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::flood::{
    Attacker, LASTING, bytes_of, discovery, filler, nop, normal, read_10, victim, withstand, write_10,
};
use crate::support::{IQN, secret_file, serve, target};
use initiator::{Disk, IscsiUrl, Session};
use iscsi_core::wire::{CmdSn, Itt, LoginStage, Lun, Opcode, StatSn, TextRequest, Ttt, keys};

/// A ping that its answer keeps, and whatever fills the rest of a receive buffer.
fn ping_and_filler() -> Vec<u8> {
    [nop(Itt(7), 600), filler()].concat()
}

/// Each of `attackers` works in a thread of its own; they are kept.
fn all(attackers: Vec<Attacker>, work: impl Fn(&mut Attacker) + Sync) -> Vec<Attacker> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = attackers
            .into_iter()
            .map(|mut attacker| {
                scope.spawn(move || {
                    work(&mut attacker);
                    attacker
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn pings_whose_answers_a_discovery_session_never_reads() {
    let directory = tempfile::tempdir().unwrap();
    let server = victim(directory.path(), "");
    let flood = ping_and_filler();
    withstand(&server, || {
        let attackers = (0..4).map(|n| Attacker::log_in(&server, &discovery(n))).collect();
        all(attackers, |attacker| {
            attacker.jam();
            attacker.pour(&flood);
        })
    });
}

#[test]
fn pings_whose_answers_a_session_of_several_connections_never_reads() {
    let directory = tempfile::tempdir().unwrap();
    let server = victim(directory.path(), "");
    let several = |n| normal(n).key(keys::MAX_CONNECTIONS, "2");
    let (hidden, plain) = (ping_and_filler(), nop(Itt(7), 64 << 10));
    withstand(&server, || {
        let attackers = (0..24).map(|n| Attacker::log_in(&server, &several(n))).collect();
        all(attackers, |attacker| {
            attacker.jam();
            attacker.pour(&hidden);
            attacker.pour(&plain);
        })
    });
}

#[test]
fn immediate_data_of_commands_whose_turn_never_comes() {
    let directory = tempfile::tempdir().unwrap();
    let server = victim(directory.path(), "");
    let filler = filler();
    withstand(&server, || {
        let attackers = (0..16).map(|n| Attacker::log_in(&server, &normal(n))).collect();
        all(attackers, |attacker| {
            // CmdSN 1 never comes.
            for sn in 2..=128 {
                let held = bytes_of(write_10(sn, sn, 1), &[sn as u8; 512]);
                if !attacker.send(&held) || !attacker.send(&filler) {
                    return;
                }
            }
        })
    });
}

/// One request of a text exchange that is to go on.
fn text_request(ttt: Ttt, data: &[u8]) -> Vec<u8> {
    let request = TextRequest {
        immediate: true,
        final_bit: false,
        continue_bit: false,
        lun: Lun(0),
        itt: Itt(9),
        ttt,
        cmd_sn: CmdSn(1),
        exp_stat_sn: StatSn(0),
    };
    bytes_of(request, data)
}

/// As many keys as 8 KiB take, none of which was there before, and none of which is answered.
fn new_keys(number: &mut u32) -> Vec<u8> {
    let mut text = Vec::new();
    while text.len() < 8192 - 24 {
        text.extend_from_slice(format!("X-{number:x}=Reject\0").as_bytes());
        *number += 1;
    }
    text
}

#[test]
fn a_text_exchange_without_an_end() {
    let directory = tempfile::tempdir().unwrap();
    let server = victim(directory.path(), "");
    withstand(&server, || {
        let attackers = (0..8).map(|n| Attacker::log_in(&server, &discovery(n))).collect();
        all(attackers, |attacker| {
            let (start, mut ttt, mut number) = (Instant::now(), Ttt::RESERVED, 0);
            while start.elapsed() < LASTING && attacker.send(&text_request(ttt, &new_keys(&mut number))) {
                let Some(answer) = attacker.next_header() else { return };
                // After a Reject another exchange begins.
                ttt = match answer[0] & 0x3f == Opcode::TextResponse.code() {
                    true => Ttt(u32::from_be_bytes(answer[20..24].try_into().unwrap())),
                    false => Ttt::RESERVED,
                };
            }
        })
    });
}

#[test]
fn logins_that_say_much_and_never_end() {
    let directory = tempfile::tempdir().unwrap();
    let server = victim(directory.path(), "");
    withstand(&server, || {
        let groups: Vec<Vec<Attacker>> = std::thread::scope(|scope| {
            let groups: Vec<_> = (0..4)
                .map(|group| {
                    let portal = server.portal();
                    scope.spawn(move || (0..150).map(|n| long_login(portal, 1000 * group + n)).collect())
                })
                .collect();
            groups.into_iter().map(|group| group.join().unwrap()).collect()
        });
        groups
    });
}

/// A login that says as much as it is let, and stays where it is.
fn long_login(portal: SocketAddr, number: usize) -> Attacker {
    let script = discovery(number);
    let mut attacker = Attacker::connect(portal);
    let mut text = conform::text_of(&script.names());
    let mut keys = 0;
    for _ in 0..60 {
        let request = script.request(LoginStage::Operational, None);
        if !attacker.send(&bytes_of(request, &text)) || attacker.next_header().is_none_or(|h| h[36] != 0) {
            break;
        }
        text = new_keys(&mut keys);
    }
    attacker
}

#[test]
fn discovery_sessions_keep_out_nobody_with_a_secret() {
    let directory = tempfile::tempdir().unwrap();
    let secret = secret_file(directory.path(), "secret", "secret-of-the-host");
    let account = format!("[[target.chap.account]]\nname = \"host\"\nsecret_file = \"{}\"", secret.display());
    let server = serve(directory.path(), 1, &target(IQN, &account, &["ram:1M"]));
    let attackers: Vec<_> =
        (0..1100).filter_map(|n| Attacker::try_log_in(server.portal(), &discovery(n))).collect();
    assert!(attackers.len() > 1000, "each of them is let in for a while");
    let url = format!("iscsi://host%secret-of-the-host@{}/{IQN}", server.portal());
    let session = Session::connect(IscsiUrl::parse(&url).unwrap().options().unwrap()).unwrap();
    let disk = Disk::open(&session, Lun(0)).unwrap();
    disk.write(0, &[7; 512]).unwrap();
    let sessions = server.ls("sessions").as_array().unwrap().len();
    assert!(sessions < 100, "{sessions} sessions are there");
}

#[test]
fn writes_whose_data_never_come() {
    let directory = tempfile::tempdir().unwrap();
    let server = victim(directory.path(), "max_sessions = 2000");
    // The first one meets a unit attention.
    let write: Vec<u8> = (1..=2).flat_map(|sn| bytes_of(write_10(sn, sn, 2048), &[])).collect();
    withstand(&server, || {
        let mut attackers = Vec::new();
        for n in 0..1000 {
            let mut attacker = Attacker::log_in(&server, &normal(n));
            assert!(attacker.send(&write));
            attackers.push(attacker);
        }
        attackers
    });
}

#[test]
fn reads_that_nobody_takes() {
    let directory = tempfile::tempdir().unwrap();
    let server = victim(directory.path(), "max_sessions = 2000");
    let reads: Vec<u8> = (1..=32).flat_map(|sn| bytes_of(read_10(sn, sn, 2048), &[])).collect();
    withstand(&server, || {
        let mut attackers = Vec::new();
        for n in 0..200 {
            let mut attacker = Attacker::log_in(&server, &normal(n));
            assert!(attacker.send(&reads));
            attackers.push(attacker);
        }
        attackers
    });
}

#[test]
fn who_reads_slowly_is_not_taken_for_dead() {
    let directory = tempfile::tempdir().unwrap();
    let server = victim(directory.path(), "ping_interval_s = 1\nping_timeout_s = 1");
    let mut reader = Attacker::log_in(&server, &normal(1));
    let reads: Vec<u8> = (1..=16).flat_map(|sn| bytes_of(read_10(sn, sn, 2048), &[])).collect();
    assert!(reader.send(&reads));
    // Nothing but what it takes shows that it lives.
    let (mut taken, start) = (0, Instant::now());
    while start.elapsed() < Duration::from_secs(6) {
        taken += reader.take(16 << 10);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(taken < 8 << 20, "it was not slow: {taken} bytes");
    // The first one met a unit attention.
    while taken < 15 << 20 {
        let more = reader.take(1 << 20);
        assert!(more > 0, "closed after {taken} bytes");
        taken += more;
    }
}

#[test]
fn writes_that_a_full_volume_refuses() {
    let directory = tempfile::tempdir().unwrap();
    let limits = "[limits]\nbuffer_bytes_max = \"64M\"\n".to_owned();
    let server = serve(directory.path(), 1, &(limits + &target(IQN, "", &["ram:64M", "ram:100T,memory=1M"])));
    let url = format!("iscsi://{}/{IQN}", server.portal());
    withstand(&server, || {
        let session = Session::connect(IscsiUrl::parse(&url).unwrap().options().unwrap()).unwrap();
        let disk = Disk::open(&session, Lun::from_index(1)).unwrap();
        let before = crate::support::resident_bytes(server.id().into());
        let failed = (0..4000u64).filter(|n| disk.write(n << 30, &[1; 512]).is_err()).count();
        assert!(failed > 3900, "{failed}");
        let grown = crate::support::resident_bytes(server.id().into()).saturating_sub(before);
        assert!(grown < 8 << 20, "{failed} writes that failed cost {grown} bytes");
    });
}
