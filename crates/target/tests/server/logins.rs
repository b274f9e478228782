//! Which initiators may log in, and the effect of a login on existing sessions (rows LGN, SEC, NAM).

use std::collections::HashSet;
use std::net::TcpStream;
use std::time::Duration;

use conform::{ChapScript, Command, LoginScript, PeerError};
use iscsi_core::chap::{ChapAlgorithm, Secret};
use iscsi_core::wire::{Cid, LoginStage, LoginStatus, Tsih, keys};
use target::config::{AccessRule, AccessRules, Account, Auth, Limits, NamePattern};

use crate::support::*;

/// The same identity, to join the existing session.
fn joining(old: &conform::Session, cid: u16) -> LoginScript {
    LoginScript { cmd_sn: old.cmd_sn, ..old.same_identity() }.joining(old.logged_in.tsih, Cid(cid))
}

// covers: LGN-03 LGN-20
#[test]
fn lgn_03_name_isid_tsih_and_cid_decide() {
    let lab = Lab::start(config());
    // New ISID, TSIH 0: a new session.
    let mut first = lab.session("a");
    // Another name with the same ISID is another nexus.
    let other = LoginScript { initiator_name: "iqn.2026-01.org.example:b".into(), ..first.same_identity() };
    let mut other = lab.login(&other);
    assert_ne!(other.logged_in.tsih, first.logged_in.tsih);
    first.ping().unwrap();
    // Known nexus, its TSIH, a new CID: one connection more than MaxConnections.
    assert_eq!(lab.refusal(&joining(&first, 2)), LoginStatus::TooManyConnections);
    first.ping().unwrap();
    // Known nexus, its TSIH, its CID: the connection is replaced and the session stays.
    let mut second = lab.login(&joining(&first, 1));
    assert_eq!(second.logged_in.tsih, first.logged_in.tsih);
    first.peer.until_closed().unwrap();
    second.ping().unwrap();
    // Known nexus, TSIH 0: a new session in place of the old one.
    let mut third = lab.login(&second.same_identity_anew());
    assert_ne!(third.logged_in.tsih, second.logged_in.tsih);
    second.peer.until_closed().unwrap();
    third.ping().unwrap();
    // A TSIH that no longer exists.
    assert_eq!(lab.refusal(&joining(&second, 1)), LoginStatus::SessionDoesNotExist);
    other.ping().unwrap();
    assert_eq!(lab.sessions().len(), 2);
}

trait Anew {
    fn same_identity_anew(&self) -> LoginScript;
}

impl Anew for conform::Session {
    fn same_identity_anew(&self) -> LoginScript {
        LoginScript { tsih: Tsih(0), ..self.same_identity() }
    }
}

// covers: LGN-04
#[test]
fn lgn_04_a_tsih_of_nobody_or_of_another() {
    let lab = Lab::start(config());
    let mut a = lab.session("a");
    let tsih = a.logged_in.tsih;
    let unknown = Tsih(tsih.0 ^ 0x5a5a);
    for script in [
        LoginScript { tsih: unknown, ..lab.script("a") },
        LoginScript { tsih: unknown, ..a.same_identity() },
        // The TSIH exists, but for another ISID or for another initiator.
        LoginScript { tsih, ..lab.script("a") },
        LoginScript { tsih, ..lab.script("b") },
        LoginScript { tsih, initiator_name: "iqn.2026-01.org.example:b".into(), ..a.same_identity() },
    ] {
        let script = script.clone().joining(script.tsih, Cid(1));
        assert_eq!(lab.refusal(&script), LoginStatus::SessionDoesNotExist, "{script:?}");
    }
    a.ping().unwrap();
}

fn only(initiators: &[&str], networks: &[&str]) -> AccessRules {
    let rule = AccessRule {
        initiators: initiators.iter().map(|name| NamePattern::parse(name).unwrap()).collect(),
        networks: networks.iter().map(|net| net.parse().unwrap()).collect(),
    };
    AccessRules { rules: vec![rule] }
}

// covers: LGN-06
#[test]
fn lgn_06_unknown_forbidden_removed_and_elsewhere() {
    let mut config = config();
    config.portals.push(portal(2));
    let mut by_name = target("iqn.2026-01.org.example:by-name");
    by_name.access = only(&["*:friend"], &["127.0.0.0/8"]);
    let mut by_net = target("iqn.2026-01.org.example:by-net");
    by_net.access = only(&[], &["192.0.2.0/24"]);
    let mut on_two = target("iqn.2026-01.org.example:on-two");
    on_two.portals = Some(vec![2]);
    config.targets.extend([by_name, by_net, on_two]);
    let lab = Lab::start(config.clone());
    let to = |host: &str, name: &str| LoginScript {
        target_name: Some(format!("iqn.2026-01.org.example:{name}")),
        ..lab.script(host)
    };
    assert_eq!(lab.refusal(&to("friend", "nowhere")), LoginStatus::NotFound);
    assert_eq!(lab.refusal(&to("foe", "by-name")), LoginStatus::AuthorizationFailure);
    assert_eq!(lab.refusal(&to("friend", "by-net")), LoginStatus::AuthorizationFailure);
    assert_eq!(lab.refusal(&to("friend", "on-two")), LoginStatus::NotFound);
    lab.login(&to("friend", "by-name")).ping().unwrap();
    let second = lab.server.portals()[1];
    conform::Session::log_in(lab.connect_to(second), to("friend", "on-two"), iscsi_core::wire::Lun(0))
        .unwrap()
        .ping()
        .unwrap();
    config.targets.retain(|target| !target.name.as_str().ends_with(":by-name"));
    lab.server.apply(config).unwrap();
    assert_eq!(lab.refusal(&to("friend", "by-name")), LoginStatus::TargetRemoved);
}

// covers: LGN-19
#[test]
fn lgn_19_idle_connections_keep_nobody_out() {
    let mut config = config();
    config.limits = Limits { max_logins_in_progress: 64, max_connections: 500, ..config.limits };
    let lab = Lab::start(config);
    let mut early = lab.session("early");
    let idle: Vec<TcpStream> = (0..1000).map(|_| TcpStream::connect(lab.address()).unwrap()).collect();
    lab.session("late").ping().unwrap();
    early.ping().unwrap();
    drop(idle);
}

// covers: LGN-19
#[test]
fn lgn_19_logins_that_stop_half_way_keep_nobody_out_on_any_shard() {
    let mut config = config();
    config.limits = Limits { max_logins_in_progress: 32, max_connections: 300, ..config.limits };
    let lab = Lab::start(config);
    let mut early = lab.session("early");
    // More connections than allowed, each with a first request that moves it to the one shard of its ISID, not the first
    // shard.
    let script = lab.script("half");
    let half: Vec<conform::RawPeer> = (0..400)
        .filter_map(|_| {
            let mut peer = lab.connect();
            let request = script.request(LoginStage::Security, None);
            // A connection may be closed in favour of later ones before it gets its answer.
            peer.login_step(request, &script.names()).is_ok().then_some(peer)
        })
        .collect();
    assert!(half.len() > 32, "most of them got so far");
    let mut late = lab.session("late");
    late.ping().unwrap();
    early.ping().unwrap();
    drop(half);
}

// covers: LGN-19
#[test]
fn lgn_19_as_many_logins_as_allowed_stay_and_one_more_closes_the_oldest_only() {
    let mut config = config();
    config.limits = Limits { max_logins_in_progress: 3, shards: 1, ..config.limits };
    let lab = Lab::start(config);
    let goes_on = |(script, peer): &mut (conform::LoginScript, conform::RawPeer),
                   pairs: &[(String, String)]| {
        peer.login_step(script.request(LoginStage::Security, None), pairs).unwrap();
    };
    let begin = |n: usize| {
        let mut login = (lab.script(&format!("half-{n}")), lab.connect());
        let names = login.0.names();
        goes_on(&mut login, &names);
        login
    };
    let mut logins: Vec<_> = (0..3).map(begin).collect();
    logins.iter_mut().for_each(|login| goes_on(login, &[]));
    logins.push(begin(3));
    logins.remove(0).1.until_closed().unwrap();
    logins.iter_mut().for_each(|login| goes_on(login, &[]));
}

// covers: LGN-19
#[test]
fn lgn_19_a_login_that_is_not_completed_in_time_is_closed() {
    let mut config = config();
    config.limits.login_timeout = Duration::from_millis(200);
    let lab = Lab::start(config);
    let mut idle = lab.connect();
    let script = lab.script("half");
    let mut half = lab.connect();
    half.login_step(script.request(LoginStage::Security, None), &script.names()).unwrap();
    idle.until_closed().unwrap();
    half.until_closed().unwrap();
    lab.session("other").ping().unwrap();
}

// covers: LGN-20
#[test]
fn lgn_20_above_max_sessions_0302_and_reinstatement_needs_no_more_room() {
    let mut config = config();
    config.limits.max_sessions = 2;
    let lab = Lab::start(config);
    let (mut a, mut b) = (lab.session("a"), lab.session("b"));
    assert_eq!(lab.refusal(&lab.script("c")), LoginStatus::OutOfResources);
    // An initiator that has lost its session comes back although its old session still exists.
    let mut again = lab.login(&a.same_identity());
    again.ping().unwrap();
    a.peer.until_closed().unwrap();
    b.ping().unwrap();
    b.log_out().unwrap();
    lab.wait_for_sessions(1);
    lab.session("c").ping().unwrap();
}

// covers: LGN-20
#[test]
fn lgn_20_logins_at_the_same_time_do_not_get_past_max_sessions() {
    let mut config = config();
    config.limits.max_sessions = 3;
    let lab = Lab::start(config);
    // All of them are accepted while there is room, and complete only then.
    let mut begun: Vec<(conform::RawPeer, LoginScript)> = (0..8)
        .map(|_| {
            let (mut peer, script) = (lab.connect(), lab.script("a"));
            let request = script.request(LoginStage::Security, Some(LoginStage::Operational));
            peer.login_step(request, &script.names()).unwrap().accepted().unwrap();
            (peer, script)
        })
        .collect();
    let mut statuses: Vec<LoginStatus> = begun
        .iter_mut()
        .map(|(peer, script)| {
            let request = script.request(LoginStage::Operational, Some(LoginStage::FullFeature));
            peer.login_step::<&str, &str>(request, &[]).unwrap().response.status
        })
        .collect();
    statuses.sort_by_key(|status| status.code());
    let mut expected = vec![LoginStatus::Success; 3];
    expected.extend([LoginStatus::OutOfResources; 5]);
    assert_eq!(statuses, expected);
}

fn account(name: &str, secret: &str, initiators: &[&str]) -> Account {
    Account {
        name: name.into(),
        secret: Secret::new(secret.as_bytes()),
        initiators: initiators.iter().map(|name| NamePattern::parse(name).unwrap()).collect(),
    }
}

fn chap(accounts: Vec<Account>) -> Auth {
    Auth::Chap { accounts, mutual: None, algorithms: vec![ChapAlgorithm::Md5, ChapAlgorithm::Sha256] }
}

fn user(name: &str, secret: &str) -> Option<ChapScript> {
    Some(ChapScript { user: name.into(), secret: secret.into(), algorithms: "5".into(), target: None })
}

// covers: SEC-13
#[test]
fn sec_13_a_connection_with_another_identity_does_not_join() {
    let mut config = config();
    config.targets[0].auth =
        chap(vec![account("alice", "alice's long secret", &[]), account("bob", "bob's long secret!", &[])]);
    let lab = Lab::start(config);
    let alice = LoginScript { chap: user("alice", "alice's long secret"), ..lab.script("host") };
    let mut session = lab.login(&alice);
    let bob = LoginScript { chap: user("bob", "bob's long secret!"), ..joining(&session, 1) };
    assert_eq!(lab.refusal(&bob), LoginStatus::AuthenticationFailure);
    session.ping().unwrap();
    let nobody = LoginScript { chap: None, ..joining(&session, 1) };
    assert_eq!(lab.refusal(&nobody), LoginStatus::AuthenticationFailure);
    session.ping().unwrap();
    lab.login(&joining(&session, 1)).ping().unwrap();
}

// covers: SEC-14
#[test]
fn sec_14_an_account_speaks_only_for_its_own_initiators() {
    let mut config = config();
    config.targets[0].auth = chap(vec![
        account("alice", "alice's long secret", &["*:alice"]),
        account("bob", "bob's long secret!", &["*:bob"]),
    ]);
    let lab = Lab::start(config);
    let stolen = LoginScript { chap: user("bob", "bob's long secret!"), ..lab.script("alice") };
    assert_eq!(lab.refusal(&stolen), LoginStatus::AuthenticationFailure);
    let own = LoginScript { chap: user("bob", "bob's long secret!"), ..lab.script("bob") };
    lab.login(&own).ping().unwrap();
}

// covers: SEC-16
#[test]
fn sec_16_discovery_and_targets_authenticate_apart() {
    for (discovery, normal) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut config = config();
        if discovery {
            config.discovery_auth = chap(vec![account("finder", "finder's long secret", &[])]);
        }
        if normal {
            config.targets[0].auth = chap(vec![account("user", "user's long secret!!", &[])]);
        }
        let lab = Lab::start(config);
        let finder = user("finder", "finder's long secret");
        let owner = user("user", "user's long secret!!");
        let logs_in = |script: LoginScript, chap: &Option<ChapScript>| {
            let result = lab.try_login(&LoginScript { chap: chap.clone(), ..script });
            match result {
                Ok(_) => true,
                Err(PeerError::Login(LoginStatus::AuthenticationFailure)) => false,
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(logs_in(lab.discovery_script("a"), &None), !discovery, "{discovery} {normal}");
        assert_eq!(logs_in(lab.script("a"), &None), !normal, "{discovery} {normal}");
        assert!(logs_in(lab.discovery_script("a"), &finder));
        assert!(logs_in(lab.script("a"), &owner));
        // An account of one does not apply to the other.
        assert_eq!(logs_in(lab.discovery_script("a"), &owner), !discovery);
        assert_eq!(logs_in(lab.script("a"), &finder), !normal);
    }
}

// covers: NAM-04
#[test]
fn nam_04_one_session_per_initiator_isid_target_and_portal_group() {
    let mut config = config();
    config.portals.push(portal(2));
    config.targets.push(target("iqn.2026-01.org.example:other"));
    let lab = Lab::start(config);
    let script = lab.script("a");
    let mut first = lab.login(&script);
    let mut on_other_target = lab
        .login(&LoginScript { target_name: Some("iqn.2026-01.org.example:other".into()), ..script.clone() });
    let second_portal = lab.connect_to(lab.server.portals()[1]);
    let mut on_other_portal =
        conform::Session::log_in(second_portal, script.clone(), iscsi_core::wire::Lun(0)).unwrap();
    assert_eq!(lab.sessions().len(), 3, "all three differ in one of the four");
    let mut replaced = lab.login(&script);
    assert_eq!(lab.sessions().len(), 3);
    first.peer.until_closed().unwrap();
    for session in [&mut replaced, &mut on_other_target, &mut on_other_portal] {
        session.ping().unwrap();
    }
}

// covers: NAM-04
#[test]
fn nam_04_300_parallel_sessions_of_one_host() {
    let lab = Lab::start(config());
    let mut sessions = Vec::new();
    std::thread::scope(|scope| {
        let begin = || (0..50).map(|_| lab.login(&lab.script("host"))).collect::<Vec<_>>();
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(begin)).collect();
        threads.into_iter().for_each(|thread| sessions.extend(thread.join().unwrap()));
    });
    let infos = lab.sessions();
    assert_eq!(infos.len(), 300);
    assert_eq!(infos.iter().map(|info| &info.names.isid).collect::<HashSet<_>>().len(), 300);
    assert_eq!(infos.iter().map(|info| info.names.tsih).collect::<HashSet<_>>().len(), 300);
    for (lba, session) in (0..).zip(&mut sessions) {
        session.clear_unit_attentions().unwrap();
        session.run_good(&write(lba, lba as u8)).unwrap();
    }
    let last = sessions.last_mut().unwrap();
    assert!((0..300).all(|lba| byte_at(last, lba) == lba as u8));
}

// If the configuration changes during a login, the new one decides.
#[test]
fn access_that_was_taken_away_during_the_login_is_not_given() {
    let config = config();
    let lab = Lab::start(config.clone());
    let (mut peer, script) = (lab.connect(), lab.script("a"));
    let first = script.request(LoginStage::Security, Some(LoginStage::Operational));
    peer.login_step(first, &script.names()).unwrap().accepted().unwrap();
    let mut closed = config;
    closed.targets[0].access = only(&["*:somebody-else"], &[]);
    lab.server.apply(closed).unwrap();
    let last = script.request(LoginStage::Operational, Some(LoginStage::FullFeature));
    let reply = peer.login_step(last, &[(keys::MAX_RECV_DATA_SEGMENT_LENGTH, "8192")]).unwrap();
    assert_eq!(reply.response.status, LoginStatus::AuthorizationFailure);
    peer.until_closed().unwrap();
    assert_eq!(lab.sessions().len(), 0);
}

#[test]
fn the_last_response_reaches_a_peer_that_has_closed_its_own_direction() {
    let lab = Lab::start(config());
    let mut session = lab.session("a");
    let command = Command::read_16(0, 2048, BLOCK);
    let sent: Vec<_> = (0..8).map(|_| session.start(&command).unwrap()).collect();
    let request = session.logout_request(iscsi_core::wire::LogoutReason::CloseSession);
    session.peer.send(&conform::Frame::of(request)).unwrap();
    session.peer.close_write();
    for sent in &sent {
        assert_eq!(session.finish(sent).unwrap().data.len(), 1 << 20);
    }
    session.next_for(request.itt).unwrap();
    session.peer.until_closed().unwrap();
}

// Hosts of one make use the same ISIDs: they are different nexuses, on different shards.
#[test]
fn nam_04_hosts_with_the_same_isid() {
    let lab = Lab::start(config());
    let isid = lab.script("x").isid;
    let mut sessions: Vec<_> =
        (0..16).map(|n| lab.login(&LoginScript { isid, ..lab.script(&format!("host{n}")) })).collect();
    assert_eq!(lab.sessions().len(), 16);
    sessions.iter_mut().for_each(|session| session.ping().unwrap());
    // The same name in capitals is the same name, and finds its session.
    let mut again = lab.login(&LoginScript {
        isid,
        initiator_name: "IQN.2026-01.ORG.EXAMPLE:HOST3".into(),
        ..lab.script("host3")
    });
    sessions[3].peer.until_closed().unwrap();
    again.ping().unwrap();
    assert_eq!(lab.sessions().len(), 16);
}

// A login whose text is cut into pieces still reaches the shard of its session.
#[test]
fn a_login_in_pieces_meets_its_session() {
    let lab = Lab::start(config());
    for cut in [1, 40, 60, 90] {
        let script = lab.script("a");
        let mut old = lab.login(&script);
        let text = conform::text_of(&script.names());
        let mut peer = lab.connect();
        let last = script.request(LoginStage::Operational, Some(LoginStage::FullFeature));
        let first = iscsi_core::wire::LoginRequest { transit: false, nsg: None, continue_bit: true, ..last };
        peer.send(&conform::Frame::of(first).data(&text[..cut])).unwrap();
        peer.expect(iscsi_core::wire::Opcode::LoginResponse).unwrap();
        peer.send(&conform::Frame::of(last).data(&text[cut..])).unwrap();
        let status = peer.login_reply(last).unwrap().response.status;
        assert_eq!(status, LoginStatus::Success, "cut at {cut}");
        old.peer.until_closed().unwrap();
        assert_eq!(
            lab.sessions().iter().filter(|info| info.names.isid == script.isid.to_string()).count(),
            1
        );
    }
}
