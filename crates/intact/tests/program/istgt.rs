//! Our initiator with several connections against istgt, a target of others that takes them.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};

use crate::common::PATIENCE;
use crate::support::{free_port, need, program, secret_file, until};
use initiator::{Disk, Options, Portal, Scheduling, Session};
use iscsi_core::names::IscsiName;
use iscsi_core::wire::Lun;

const NAME: &str = "iqn.2004-10.com.example:disk1";
const CONNECTIONS: u16 = 4;
const BYTES: usize = 16 << 20;

/// A running istgt; killed when dropped.
struct Istgt {
    child: Child,
    portal: SocketAddr,
}

impl Istgt {
    fn start(directory: &Path) -> Self {
        let (port, control) = (free_port(), free_port());
        let at = directory.display();
        fs::File::create(directory.join("disk.img")).unwrap().set_len(BYTES as u64).unwrap();
        secret_file(directory, "auth.conf", "[AuthGroup1]\n");
        let config = format!(
            "[Global]\n  NodeBase \"iqn.2004-10.com.example\"\n  PidFile {at}/pid\n  AuthFile {at}/auth.conf\n  \
             MediaDirectory {at}\n  LogFacility \"local7\"\n  Timeout 30\n  NopInInterval 20\n  \
             DiscoveryAuthMethod Auto\n  MaxSessions 16\n  MaxConnections {CONNECTIONS}\n\
             [UnitControl]\n  AuthMethod Auto\n  Portal UC1 127.0.0.1:{control}\n  Netmask 127.0.0.1\n\
             [PortalGroup1]\n  Portal DA1 127.0.0.1:{port}\n\
             [InitiatorGroup1]\n  InitiatorName \"ALL\"\n  Netmask 127.0.0.1\n\
             [LogicalUnit1]\n  TargetName disk1\n  Mapping PortalGroup1 InitiatorGroup1\n  AuthMethod Auto\n  \
             AuthGroup AuthGroup1\n  UnitType Disk\n  LUN0 Storage {at}/disk.img 16MB\n"
        );
        let file = directory.join("istgt.conf");
        fs::write(&file, config).unwrap();
        let mut command = program("istgt", PATIENCE * 2);
        command.arg("-D").arg("-c").arg(file).stdout(Stdio::null()).stderr(Stdio::null());
        let portal = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let istgt = Self { child: command.spawn().unwrap(), portal };
        until("istgt listens", || TcpStream::connect(portal).is_ok());
        istgt
    }
}

impl Drop for Istgt {
    fn drop(&mut self) {
        // `timeout` passes the signal on to what it runs.
        crate::common::send_signal(&self.child, crate::common::Signal::TERM);
        let _ = self.child.wait();
    }
}

// covers: MCS-01 MCS-02
#[test]
fn four_connections_with_istgt() {
    if !need("istgt", "istgt") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let istgt = Istgt::start(directory.path());
    let portal = Portal::new(istgt.portal.ip().to_string(), istgt.portal.port());
    let mut options = Options::new(portal, Some(IscsiName::parse(NAME).unwrap()));
    // Every connection is to carry some of it.
    options.session.scheduling = Scheduling::LeastOutstandingBytes;
    options.connections = CONNECTIONS;
    let session = Session::connect(options).unwrap();
    // It grants four connections and no recovery.
    until("all connections stand", || {
        session.info().is_some_and(|info| info.connections.len() == usize::from(CONNECTIONS))
    });
    assert_eq!(session.opening().login.params.error_recovery_level, 0);
    let disk = Disk::open(&session, Lun::from_index(0)).unwrap();
    let part = BYTES / 8;
    let pattern = |n: usize| -> Vec<u8> { (0..part).map(|at| (at / 7 + n * 31) as u8).collect() };
    std::thread::scope(|scope| {
        for n in 0..8 {
            let disk = &disk;
            scope.spawn(move || {
                for piece in 0..16 {
                    let (from, to) = (piece * part / 16, (piece + 1) * part / 16);
                    disk.write((n * part + from) as u64, &pattern(n)[from..to]).unwrap();
                }
            });
        }
    });
    for n in 0..8 {
        let mut data = vec![0; part];
        disk.read((n * part) as u64, &mut data).unwrap();
        assert!(data == pattern(n), "part {n} is not as it was written");
    }
    let info = session.info().unwrap();
    assert_eq!((info.losses, info.recovery.connections_lost), (0, 0), "{info:#?}");
    session.logout();
}
