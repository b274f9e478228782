//! Our initiator against Debian's tgt: another implementation of the protocol.

mod support;

use initiator::{ChapConfig, ConnectError, Disk, IoError, LoginFailure, Session, WriteData, discovery};
use iscsi_core::chap::{Credentials, Secret};
use iscsi_core::params::DigestPolicy;
use iscsi_core::wire::Lun;
use support::{Tgt, pattern};

#[test]
fn reads_back_what_it_wrote_with_and_without_digests() {
    let Some(tgt) = Tgt::start() else { return };
    let (off, on) = ("header_digest=none&data_digest=none", "header_digest=crc32c&data_digest=crc32c");
    let queries = [off, on].map(|digests| [format!("?{digests}"), format!("?{digests}&engine=software")]);
    for (n, query) in queries.iter().flatten().enumerate() {
        let session = tgt.session(query);
        assert_eq!(session.opening().login.params.digests.data, n >= 2);
        assert_eq!(session.opening().login.params.digests.header, n >= 2);
        let disk = Disk::open(&session, Lun::from_index(1)).unwrap();
        assert_eq!(disk.capacity().bytes(), 64 << 20);
        for (offset, len) in
            [(0, 512), (512, 4096), (1 << 20, 1 << 20), (8 << 20, 9 << 20), (63 << 20, 1 << 20)]
        {
            let data = pattern(offset + n as u64, len);
            disk.write(offset, &data).unwrap();
            let mut back = vec![0; len];
            disk.read(offset, &mut back).unwrap();
            assert!(back == data, "{len} bytes at {offset}");
        }
        disk.flush().unwrap();
        let medium = tgt.medium();
        assert!(medium[1 << 20..2 << 20] == pattern((1 << 20) + n as u64, 1 << 20));
        assert_eq!(session.info().unwrap().losses, 0);
        session.logout();
    }
}

#[test]
fn chap_one_way_and_mutual_and_its_failures_in_words() {
    let Some(tgt) = Tgt::start() else { return };
    let account = |user: &str, password: &str, more: &[&str]| {
        tgt.adm(&["--op", "new", "--mode", "account", "--user", user, "--password", password]);
        let mut bind = vec!["--op", "bind", "--mode", "account", "--tid", "1", "--user", user];
        bind.extend_from_slice(more);
        tgt.adm(&bind);
    };
    account("joe", "secret of joe 12", &[]);
    account("disk", "secret of disk 3", &["--outgoing"]);
    let mut options = tgt.options("", "");
    options.chap = Some(ChapConfig::one_way(credentials("joe", "secret of joe 12")));
    let session = Session::connect(options.clone()).unwrap();
    // tgt takes algorithm 7 to be SHA-1; another algorithm was agreed on.
    assert!(session.opening().login.chap.is_some());
    Disk::open(&session, Lun::from_index(1)).unwrap();
    session.logout();

    let mutual = |secret: &str| {
        let target = Some(credentials("disk", secret));
        let mut options = options.clone();
        options.chap =
            Some(ChapConfig { target, ..ChapConfig::one_way(credentials("joe", "secret of joe 12")) });
        Session::connect(options)
    };
    mutual("secret of disk 3").unwrap().logout();
    match mutual("another secret").unwrap_err() {
        ConnectError::Login { failure: LoginFailure::TargetNotProven { .. }, .. } => {}
        other => panic!("{other}"),
    }
    options.chap = Some(ChapConfig::one_way(credentials("joe", "a wrong secret 1")));
    let wrong = Session::connect(options.clone()).unwrap_err();
    assert!(wrong.to_string().contains("0201"), "{wrong}");
    assert!(wrong.remedy().contains("CHAP") && !wrong.to_string().contains("a wrong secret"));
    options.chap = None;
    let none = Session::connect(options).unwrap_err();
    assert!(matches!(none, ConnectError::Login { .. }), "{none}");
}

fn credentials(name: &str, secret: &str) -> Credentials {
    Credentials { name: name.to_owned(), secret: Secret::new(secret) }
}

#[test]
fn discovery_lists_the_target_with_and_without_digests() {
    let Some(tgt) = Tgt::start() else { return };
    for policy in [DigestPolicy::Off, DigestPolicy::Offered] {
        let mut options = tgt.options("", "");
        (options.bounds.header_digest, options.bounds.data_digest) = (policy, policy);
        let records = discovery::send_targets(&options).unwrap();
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].name.as_str(), support::TARGET);
        assert_eq!(records[0].addresses[0].port, tgt.port);
    }
    let session = tgt.session("");
    assert!(discovery::report_luns(&session).unwrap().contains(&Lun::from_index(1)));
}

#[test]
fn what_is_not_there_is_said_with_rule_and_remedy() {
    let Some(tgt) = Tgt::start() else { return };
    let mut options = tgt.options("", "");
    options.target = Some(iscsi_core::names::IscsiName::parse("iqn.2001-04.com.example:none").unwrap());
    let error = Session::connect(options).unwrap_err();
    assert!(error.to_string().contains("0203") && error.remedy().contains("target name"), "{error}");
    assert_eq!(error.rule(), Some("RFC 7143 11.13.5"));
    assert!(!error.keys().is_empty());
    let session = tgt.session("");
    assert!(Disk::open(&session, Lun::from_index(77)).is_err());
    let disk = Disk::open(&session, Lun::from_index(1)).unwrap();
    let end = disk.capacity().bytes();
    let mut byte = [0; 512];
    assert!(matches!(disk.read(end, &mut byte), Err(IoError::Request(_))));
    assert!(matches!(disk.read(u64::MAX - 511, &mut byte), Err(IoError::Request(_))));
    assert!(matches!(disk.read(1, &mut byte), Err(IoError::Request(_))));
    // Beyond the end according to the device itself, bypassing our own check.
    let cdb = initiator::cdb::read(end / 512, 1);
    match disk.query(&cdb, 512).unwrap_err() {
        IoError::CheckCondition(sense) => assert_eq!((sense.key, sense.asc), (5, 0x21)),
        other => panic!("{other}"),
    }
}

#[test]
fn zeros_are_written_even_where_write_same_is_not_known() {
    let Some(tgt) = Tgt::start() else { return };
    let session = tgt.session("");
    let disk = Disk::open(&session, Lun::from_index(1)).unwrap();
    let data = pattern(1, 1 << 20);
    disk.write(4096, &data).unwrap();
    disk.write_zeroes(8192, 64 * 1024).unwrap();
    let mut back = vec![1; 1 << 20];
    disk.read(4096, &mut back).unwrap();
    let mut expected = data;
    expected[4096..4096 + 64 * 1024].fill(0);
    assert!(back == expected);
}

// covers: SES-06
#[test]
fn a_target_that_is_killed_under_load_loses_no_write() {
    let Some(mut tgt) = Tgt::start() else { return };
    let session = tgt.session("?header_digest=crc32c&data_digest=crc32c");
    let disk = Disk::open(&session, Lun::from_index(1)).unwrap();
    const THREADS: u64 = 4;
    const WRITES: u64 = 60;
    const BYTES: u64 = 64 * 1024;
    let written = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (disk, written) = (disk.clone(), &written);
            scope.spawn(move || {
                for n in 0..WRITES {
                    let place = (thread * WRITES + n) * BYTES;
                    disk.write(place, &pattern(place + 1, BYTES as usize)).unwrap();
                    written.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
            });
        }
        for kills in 1..=2 {
            while written.load(std::sync::atomic::Ordering::Relaxed) < kills * THREADS * WRITES / 4 {
                std::thread::yield_now();
            }
            tgt.kill();
            tgt.restart();
        }
    });
    let info = session.info().unwrap();
    assert!(
        info.losses >= 1 && info.login.logins > info.losses,
        "{} losses, {} logins",
        info.losses,
        info.login.logins
    );
    let mut back = vec![0; BYTES as usize];
    for place in (0..THREADS * WRITES).map(|n| n * BYTES) {
        disk.read(place, &mut back).unwrap();
        assert!(back == pattern(place + 1, BYTES as usize), "the write at {place} is not there");
    }
}

#[test]
fn a_target_that_stays_away_fails_its_commands_with_words() {
    let Some(mut tgt) = Tgt::start() else { return };
    let mut options = tgt.options("", "");
    options.timeouts.reconnect = std::time::Duration::from_millis(300);
    let session = Session::connect(options).unwrap();
    let disk = Disk::open(&session, Lun::from_index(1)).unwrap();
    tgt.kill();
    let mut back = vec![0; 512];
    match disk.read(0, &mut back).unwrap_err() {
        IoError::SessionLost(why) => assert!(why.contains("connection"), "{why}"),
        other => panic!("{other}"),
    }
    assert!(disk.write(0, &back).is_err());
}

// covers: DIG-15
#[test]
fn a_caller_that_rewrites_its_buffer_in_flight_harms_nobody() {
    let Some(tgt) = Tgt::start() else { return };
    let session = tgt.session("?header_digest=crc32c&data_digest=crc32c");
    let disk = Disk::open(&session, Lun::from_index(1)).unwrap();
    // `write` has copied the data when the command goes out, so the buffer may change while others run.
    let buffers: Vec<parking_lot::Mutex<Vec<u8>>> =
        (0..4).map(|n| parking_lot::Mutex::new(vec![n; 128 * 1024])).collect();
    std::thread::scope(|scope| {
        for (n, buffer) in buffers.iter().enumerate() {
            let disk = disk.clone();
            scope.spawn(move || {
                for round in 0..100u8 {
                    let mut buffer = buffer.lock();
                    buffer.fill(round);
                    let ticket = {
                        let space = bytes::BytesMut::zeroed(buffer.len());
                        let copy = WriteData::copy_from(&buffer, space, disk.digest_runs());
                        disk.submit(&initiator::cdb::write(n as u64 * 256, 256), 0, copy)
                    };
                    buffer.fill(0xee);
                    ticket.wait().unwrap();
                }
            });
        }
    });
    let info = session.info().unwrap();
    assert_eq!((info.losses, info.data_digest_errors), (0, 0));
    let mut back = vec![0; 4 * 128 * 1024];
    disk.read(0, &mut back).unwrap();
    assert!(back.iter().all(|&byte| byte == 99));
}

/// tgt agrees to data in any order if it is told to, and otherwise wants it in order; either way every byte finds its place.
// covers: KEY-17, KEY-18, DAT-05
#[test]
fn data_comes_in_any_order_if_tgt_agrees() {
    let Some(tgt) = Tgt::start() else { return };
    for (value, in_order) in [("Yes", true), ("No", false)] {
        for key in ["DataPDUInOrder", "DataSequenceInOrder"] {
            let arguments =
                ["--op", "update", "--mode", "target", "--tid", "1", "--name", key, "--value", value];
            tgt.adm(&arguments);
        }
        let session = tgt.session(
            "?data_pdu_in_order=no&data_sequence_in_order=no&max_recv_data_segment_length=8192&header_digest=crc32c\
             &data_digest=crc32c",
        );
        let params = session.opening().login.params.clone();
        assert_eq!((params.data_in_order.pdus, params.data_in_order.sequences), (in_order, in_order));
        let disk = Disk::open(&session, Lun::from_index(1)).unwrap();
        for (offset, len) in [(0, 512), (1 << 20, 1 << 20), (8 << 20, 9 << 20)] {
            let data = pattern(offset + u64::from(in_order), len);
            disk.write(offset, &data).unwrap();
            let mut back = vec![0; len];
            disk.read(offset, &mut back).unwrap();
            assert!(back == data, "{value}: {len} bytes at {offset}");
        }
        assert_eq!(session.info().unwrap().losses, 0);
        session.logout();
    }
}
