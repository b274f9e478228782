//! Thesis, Table 7.1: what a host finds of its devices and addresses, and that the value it then asks for passes what is there.

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use engine::netns::NetNs;
use support::{asking, lab, states, until};
use tcp_crc::{Host, Method, State};
use tcp_crc_shim::lab::{End, Plan, content};
use tcp_crc_shim::surroundings::{Surroundings, Told};

const PATH: &str = "/usr/sbin:/sbin:/usr/bin:/bin";

fn run(line: &str) {
    let mut words = line.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).env("PATH", PATH).output().unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
}

/// A namespace with a device of this address, which computes TCP's sum or does not.
fn host(address: &str, offload: bool) -> Option<NetNs> {
    if !["/usr/sbin/ethtool", "/sbin/ethtool"].iter().any(|path| std::path::Path::new(path).exists()) {
        support::left_out("ethtool is not installed (Debian: apt-get install ethtool)");
        return None;
    }
    let namespace = match NetNs::create() {
        Ok(namespace) => namespace,
        Err(error) => {
            support::left_out(&format!("no network namespace can be made: {error}"));
            return None;
        }
    };
    let offload = if offload { "on" } else { "off" };
    let made = namespace.within(|| {
        run("ip link add eth0 type veth peer name peer0");
        run(&format!("ip addr add {address} dev eth0"));
        run("ip link set eth0 up");
        run(&format!("ethtool -K eth0 tx {offload}"));
    });
    made.unwrap();
    Some(namespace)
}

#[test]
fn table_7_1_by_what_the_kernel_says_of_a_device_and_its_address() {
    let rows = [
        ("192.0.2.1/24", false, Method::Split),
        ("10.1.1.1/24", false, Method::Data),
        ("192.0.2.1/24", true, Method::Whole),
        ("10.1.1.1/24", true, Method::Data),
    ];
    for (address, offload, method) in rows {
        let Some(namespace) = host(address, offload) else { return };
        let behind_nat = address.starts_with("10.");
        let look = |told| {
            let look = || Surroundings::look(&["eth0".to_owned()], told).unwrap();
            namespace.within(look).unwrap()
        };
        let found = look(Told::default());
        assert_eq!(found.host(), Host { checksum_offload: offload, behind_nat }, "{}", found.reasons());
        assert_eq!(found.host().method(), method);
        // What is told counts.
        let told = Told { checksum_offload: Some(!offload), behind_nat: Some(!behind_nat) };
        let host = look(told).host();
        assert_eq!(host, Host { checksum_offload: !offload, behind_nat: !behind_nat });

        // That value passes a translator if there is one; the server is a host without either.
        let (client, server) = (Some(asking(&[method])), Some(asking(&[Method::Split])));
        let Some(lab) = lab(Plan { client, server, nat: behind_nat, ..Plan::both(None) }) else { return };
        let (mut client, mut server) = lab.connect(false).unwrap();
        let translated = client.local_addr().unwrap().ip() != server.peer_addr().unwrap().ip();
        assert_eq!(translated, behind_nat);
        let data = content(1, 100_000);
        let mut received = vec![0; data.len()];
        std::thread::scope(|scope| {
            scope.spawn(|| client.write_all(&data).unwrap());
            server.read_exact(&mut received).unwrap();
        });
        assert!(received == data);
        assert_eq!(states(&lab), [State::Protected(method); 2], "{address}, offload {offload}");
    }
}

/// Why the table has 4 there: under any other value of the thesis nothing passes a translator.
#[test]
fn a_value_over_addresses_does_not_pass_a_translator() {
    for method in [Method::Split, Method::Whole] {
        let Some(lab) = lab(Plan { nat: true, ..Plan::both(Some(asking(&[method]))) }) else { return };
        let bind = || TcpListener::bind((End::Server.address(false), 0)).unwrap();
        let listener = lab.host(End::Server).within(bind).unwrap();
        let address = listener.local_addr().unwrap();
        // SYN and SYN-ACK have no CRC, so the client takes the connection for open.
        let mut client = lab.host(End::Client).within(|| TcpStream::connect(address).unwrap()).unwrap();
        client.write_all(b"nobody gets this").unwrap();
        // With value 3 the translator itself finds no sum, and leaves the addresses as they are: of no connection.
        until("it is discarded", || {
            let seen = lab.seen(End::Server).unwrap();
            let discarded = seen.total.bad_crc + seen.total.bad_sum;
            if method == Method::Split { seen.packets.unknown >= 2 } else { discarded >= 2 }
        });
        listener.set_nonblocking(true).unwrap();
        let error = listener.accept().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{method:?}");
    }
}
