//! The control plane without a real server: requests of every kind, hostile ones, and the place of the socket.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use scsi::AccessState;
use server::clients::MAX_CLIENTS;
use server::config::ControlSocket;
use server::control::{Answer, AskError, MAX_REQUEST_BYTES, Request, ask};
use server::{ControlPlane, PlaneError};
use target::observe::{
    AccessStateInfo, ConnectionInfo, LoginEvent, LunChange, LunInfo, Negotiated, Observe, Place,
    RecoveryInfo, ServerView, SessionInfo, SessionNames, TargetInfo,
};

struct Fixed;

fn session() -> SessionInfo {
    SessionInfo {
        names: SessionNames {
            target: Some("iqn.a".to_owned()),
            initiator: "iqn.b".to_owned(),
            isid: "800000000001".to_owned(),
            tsih: 7,
            authenticated_as: None,
        },
        since: SystemTime::UNIX_EPOCH,
        connections: vec![ConnectionInfo {
            cid: 1,
            peer: "192.0.2.9:1024".parse().unwrap(),
            portal: "192.0.2.1:3260".parse().unwrap(),
            place: Some(Place { shard: 1, runs_on: 3, arrives_on: Some(2) }),
            header_digest: true,
            data_digest: true,
            max_recv_data_segment_length: 262_144,
            max_send_data_segment_length: 8192,
            rx_bytes: 1,
            tx_bytes: 2,
            digests_verified: 3,
            digests_failed: 4,
        }],
        negotiated: [
            ("max_burst_length".to_owned(), Negotiated::Number(1 << 20)),
            ("initial_r2t".to_owned(), Negotiated::Switch(false)),
            ("task_reporting".to_owned(), Negotiated::Word("FastAbort".to_owned())),
        ]
        .into(),
        queue_depth: 128,
        outstanding: 5,
        commands: 6,
        rejects: 0,
        lost_connections: 0,
        recovery: RecoveryInfo::default(),
    }
}

impl ServerView for Fixed {
    fn sessions(&self) -> Vec<SessionInfo> {
        vec![session()]
    }

    fn luns(&self) -> Vec<LunInfo> {
        panic!("a view that fails must not take the control plane with it")
    }

    fn targets(&self) -> Vec<TargetInfo> {
        Vec::new()
    }

    fn change_lun(&self, target: &str, lun: u16, change: LunChange) -> Result<Vec<String>, String> {
        if lun == 1 {
            Ok(vec![format!("{target} {change:?}")])
        } else {
            Err("there is no such LUN".to_owned())
        }
    }

    fn access_states(&self, _target: &str) -> Result<Vec<AccessStateInfo>, String> {
        Ok(vec![AccessStateInfo { lun: 1, group: 2, state: "standby".to_owned() }])
    }

    fn set_access_state(&self, target: &str, group: u16, state: AccessState) -> Result<Vec<String>, String> {
        Ok(vec![format!("{target} {group} {state:?}")])
    }
}

fn start(path: &Path, observe: Arc<Observe>) -> Result<ControlPlane, PlaneError> {
    let reload = Box::new(|| Err("there is no file".to_owned()));
    let metrics = Some("127.0.0.1:0".parse().unwrap());
    ControlPlane::start(
        &ControlSocket::At(path.to_owned()),
        metrics,
        observe,
        Arc::new(Fixed),
        reload,
        Vec::new(),
    )
}

fn refusal(path: &Path) -> String {
    match start(path, Arc::default()) {
        Ok(_) => panic!("it started"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_question_has_its_answer() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run/control.sock");
    let observe = Arc::new(Observe::new());
    let address = "192.0.2.1:3260".parse().unwrap();
    observe.logins.record(LoginEvent::accepted(SystemTime::UNIX_EPOCH, address, address, None));
    let plane = start(&path, Arc::clone(&observe)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(directory.path().join("run")).unwrap().permissions().mode() & 0o777, 0o700);

    let ask = |request| ask(Some(&path), &request);
    assert_eq!(ask(Request::Sessions).unwrap(), Answer::Sessions(vec![session()]));
    assert_eq!(ask(Request::Targets).unwrap(), Answer::Targets(Vec::new()));
    assert_eq!(ask(Request::Version).unwrap(), Answer::Version(env!("CARGO_PKG_VERSION").to_owned()));
    let change =
        |lun| Request::ChangeLun { target: "iqn.a".to_owned(), lun, change: LunChange::Size(Some(7)) };
    assert_eq!(ask(change(1)).unwrap(), Answer::Changed(vec!["iqn.a Size(Some(7))".to_owned()]));
    assert!(matches!(ask(change(2)), Err(AskError::Refused(why)) if why == "there is no such LUN"));
    let states = Request::AccessStates { target: "iqn.a".to_owned() };
    assert!(matches!(ask(states).unwrap(), Answer::AccessStates(states) if states[0].state == "standby"));
    let set = |state: &str| Request::SetAccessState {
        target: "iqn.a".to_owned(),
        group: 2,
        state: state.to_owned(),
    };
    assert_eq!(ask(set("standby")).unwrap(), Answer::Changed(vec!["iqn.a 2 Standby".to_owned()]));
    assert!(matches!(ask(set("asleep")), Err(AskError::Refused(why)) if why.contains("active-optimized")));
    let Answer::Logins(logins) = ask(Request::Logins).unwrap() else { panic!("not logins") };
    assert_eq!(logins.len(), 1);
    assert!(matches!(ask(Request::Reload), Err(AskError::Refused(why)) if why == "there is no file"));
    assert!(matches!(ask(Request::Luns), Err(AskError::Refused(why)) if why.contains("failed to answer")));
    assert_eq!(ask(Request::Sessions).unwrap(), Answer::Sessions(vec![session()]), "it still answers");

    drop(plane);
    assert!(!path.exists());
    let error = ask(Request::Version).unwrap_err().to_string();
    assert!(error.contains("is `intact serve` running?"), "{error}");
}

#[test]
fn hostile_requests_are_answered_and_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("c");
    let _plane = start(&path, Arc::default()).unwrap();
    let send = |bytes: &[u8]| {
        let mut stream = UnixStream::connect(&path).unwrap();
        // The server may have answered and closed before it received everything.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut reply = String::new();
        let _ = BufReader::new(stream).read_line(&mut reply);
        reply
    };
    for bytes in
        [&b"\n"[..], b"{}\n", b"{\"ask\":[\"luns\"]}\n", b"{\"ask\":\"format\"}\n", b"\xff\xfe\n", b"null\n"]
    {
        assert!(send(bytes).starts_with("{\"error\":\"the request is not understood"), "{bytes:?}");
    }
    assert_eq!(send(b""), "");
    assert!(send(b"{\"ask\":\"version\"}").contains("one line"), "without its newline a request is cut off");
    let endless = send(&vec![b' '; 100 * MAX_REQUEST_BYTES]);
    assert!(endless.is_empty() || endless.starts_with("{\"error\""), "{endless}");
    assert!(send(b"{\"ask\":\"targets\"}\n{\"ask\":\"version\"}\n").starts_with("{\"ok\":{\"targets\""));
}

/// Whether the server has closed a connection on which nothing was sent.
fn is_closed(stream: &mut impl Read) -> bool {
    matches!(stream.read(&mut [0]), Ok(0) | Err(_))
}

#[test]
fn clients_that_say_nothing_keep_nobody_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("c");
    let plane = start(&path, Arc::default()).unwrap();
    let mut silent: Vec<_> = (0..3 * MAX_CLIENTS).map(|_| UnixStream::connect(&path).unwrap()).collect();
    assert!(matches!(ask(Some(&path), &Request::Version), Ok(Answer::Version(_))));
    assert!(is_closed(&mut silent[0]), "the first made room for those after it");

    let address = plane.metrics_address().unwrap();
    let mut silent: Vec<_> = (0..3 * MAX_CLIENTS).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    assert!(is_closed(&mut silent[0]), "the first made room for those after it");
    let files = fs::read_dir("/proc/self/fd").unwrap().count();
    // Our ends of all of them, and no more of the server's ends than allowed.
    assert!(files < 6 * MAX_CLIENTS + 2 * MAX_CLIENTS + 64, "{files} files are open");
}

#[test]
fn the_place_of_the_socket_is_minded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("c");
    // A socket without a server is left over from a server that was killed.
    drop(UnixListener::bind(&path).unwrap());
    let plane = start(&path, Arc::default()).unwrap();
    assert!(refusal(&path).contains("another server uses it"));
    assert!(ask(Some(&path), &Request::Version).is_ok(), "the first server keeps its socket");
    drop(plane);

    fs::write(&path, "somebody's file").unwrap();
    assert!(refusal(&path).contains("something that is no socket is there"));
    assert_eq!(fs::read(&path).unwrap(), b"somebody's file");

    let shared = directory.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(refusal(&shared.join("c")).contains("others may write"));
    assert!(refusal(&directory.path().join("x".repeat(200))).contains("--control"));
}

#[test]
fn metrics_are_served_over_http() {
    let directory = tempfile::tempdir().unwrap();
    let observe = Arc::new(Observe::new());
    let plane = start(&directory.path().join("c"), observe).unwrap();
    let get = |path: &str, accept: &str| {
        let mut stream = TcpStream::connect(plane.metrics_address().unwrap()).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n{accept}Connection: close\r\n\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    };
    let reply = get(
        "/metrics",
        "Accept: application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.4\r\n",
    );
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    assert!(
        reply.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{reply}"
    );
    assert!(reply.ends_with("# EOF\n"), "{reply}");
    for accept in ["", "Accept: text/plain\r\n", "Accept: */*\r\n"] {
        let reply = get("/metrics", accept);
        assert!(reply.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{reply}");
        assert!(reply.contains("# TYPE intact_logins_accepted_total counter"), "{reply}");
        assert!(!reply.contains("# EOF") && !reply.contains(" info\n"), "{reply}");
    }
    assert!(get("/", "").starts_with("HTTP/1.1 404"));
    let taken = plane.metrics_address();
    let again = ControlPlane::start(
        &ControlSocket::Off,
        taken,
        Arc::default(),
        Arc::new(Fixed),
        Box::new(|| Ok(Vec::new())),
        Vec::new(),
    );
    let Err(error) = again else { panic!("it started") };
    assert!(error.to_string().contains("--metrics"), "{error}");
}
