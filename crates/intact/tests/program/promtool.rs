//! What `/metrics` says is what Prometheus reads, without a complaint of its own checker.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use crate::common::PATIENCE;
use crate::support::{IQN, free_port, need, serve, target};
use conform::{LoginScript, RawPeer, Session, Transcript};
use iscsi_core::wire::Lun;

#[test]
fn promtool_has_nothing_to_say_of_our_metrics() {
    if !need("promtool", "prometheus") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let at = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let config = format!(
        "[metrics]\nlisten = \"{at}\"\n[nbd]\nlisten = [\"127.0.0.1:0\"]\n{}",
        target(IQN, "queue_depth = 8", &["ram:1M", "ram:1M"])
    );
    let server = serve(directory.path(), 1, &config);
    // Labels of a session, of a refused login and of a command that failed are there too.
    let peer = || RawPeer::connect(server.portal(), PATIENCE, &Transcript::new()).unwrap();
    let script = |target: &str| LoginScript::new("iqn.2004-10.com.example:tester", Some(target));
    let mut session = Session::log_in(peer(), script(IQN), Lun(0)).unwrap();
    session.clear_unit_attentions().unwrap();
    session.run_good(&conform::Command::read_16(0, 1, 512)).unwrap();
    assert!(!session.run(&conform::Command::read_16(1 << 40, 1, 512)).unwrap().is_good());
    assert!(Session::log_in(peer(), script("iqn.2004-10.com.example:none"), Lun(0)).is_err());

    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, metrics) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200"), "{head}");
    assert!(metrics.contains("intact_nbd_requests_total{command=\"read\"} 0"), "{metrics}");
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    promtool.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    assert!(output.status.success(), "{}\n{metrics}", crate::common::text(&output));
}
