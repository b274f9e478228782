//! Programs that we did not write use our units by NBD: libnbd's and QEMU's, without and with TLS, next to iSCSI on the same unit.

use std::fs;
use std::path::Path;

use crate::common::{Serve, run, text};
use crate::support::{IQN, need, serve, target, tool};

const IMAGE_BYTES: usize = 24 << 20;

fn libnbd() -> bool {
    need("nbdinfo", "libnbd-bin") && need("nbdcopy", "libnbd-bin")
}

fn qemu() -> bool {
    need("qemu-img", "qemu-utils") && need("qemu-io", "qemu-utils")
}

fn address(server: &Serve) -> String {
    server.ready["nbd"][0].as_str().unwrap().to_owned()
}

fn uri(server: &Serve) -> String {
    format!("nbd://{}/{IQN}/0", address(server))
}

/// An image with noise, text and holes.
fn image() -> Vec<u8> {
    let mut state = 1u64;
    let mut bytes = vec![0; IMAGE_BYTES];
    for (index, chunk) in bytes.chunks_mut(64 << 10).enumerate() {
        match index % 5 {
            0 | 1 => chunk.fill_with(|| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 56) as u8
            }),
            2 => chunk.fill(index as u8),
            _ => {}
        }
    }
    bytes
}

fn start(directory: &Path, nbd: &str, store: &str) -> Serve {
    let nbd = format!("[nbd]\nlisten = [\"127.0.0.1:0\"]\n{nbd}\n");
    serve(directory, 1, &(nbd + &target(IQN, "", &[store])))
}

fn stores(directory: &Path) -> [(&'static str, String); 3] {
    let file = |name: &str| format!("file:{},size={IMAGE_BYTES}", directory.join(name).display());
    [
        ("ram", format!("ram:{IMAGE_BYTES}")),
        ("file", file("plain.img")),
        ("protected", format!("{},pi=1", file("protected.img"))),
    ]
}

#[test]
fn an_image_comes_back_from_libnbd_as_it_went_and_iscsi_sees_the_same() {
    if !libnbd() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let bytes = image();
    fs::write(path("image.raw"), &bytes).unwrap();
    for (name, store) in stores(directory.path()) {
        let own = directory.path().join(name);
        fs::create_dir(&own).unwrap();
        let server = start(&own, "", &store);
        let list = tool("nbdinfo", &["--list", &format!("nbd://{}", address(&server))]).well();
        assert!(list.contains(&format!("{IQN}/0")), "{list}");
        let info = tool("nbdinfo", &[&uri(&server)]).well();
        for line in
            ["using structured packets", "base:allocation", "can_multi_conn: true", "block_size_minimum: 512"]
        {
            assert!(info.contains(line), "{line}: {info}");
        }
        tool("nbdcopy", &["--flush", "--connections=4", &path("image.raw"), &uri(&server)]).well();
        tool("nbdcopy", &["--connections=4", &uri(&server), &path("back.raw")]).well();
        assert!(fs::read(path("back.raw")).unwrap() == bytes, "{name}: other bytes came back");
        // The empty name is that of the only unit.
        let sizes = tool("nbdinfo", &["--size", &format!("nbd://{}", address(&server))]).well();
        assert_eq!(sizes.trim(), IMAGE_BYTES.to_string());
        let map = tool("nbdinfo", &["--map", &uri(&server)]).well();
        assert!(map.contains("data") && map.contains("hole,zero"), "{name}: {map}");
        let iscsi = format!("iscsi://{}/{IQN}/0", server.portal());
        let copied = run(&["cp", &iscsi, &path(&format!("iscsi-{name}.raw"))]);
        assert!(copied.status.success(), "{}", text(&copied));
        assert!(
            fs::read(path(&format!("iscsi-{name}.raw"))).unwrap() == bytes,
            "{name}: iSCSI shows other bytes"
        );
    }
}

#[test]
fn qemu_converts_compares_and_discards() {
    if !qemu() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    fs::write(path("image.raw"), image()).unwrap();
    for (name, store) in stores(directory.path()) {
        let own = directory.path().join(name);
        fs::create_dir(&own).unwrap();
        let server = start(&own, "", &store);
        let export = uri(&server);
        tool("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", &path("image.raw"), &export]).well();
        tool("qemu-img", &["compare", "-f", "raw", "-F", "raw", &path("image.raw"), &export]).well();
        let io = [
            "write -P 0x5a 1M 64k",
            "write -f -P 0x5b 2M 4k",
            "read -P 0x5a 1M 64k",
            "read -P 0x5b 2M 4k",
            "write -z 4M 1M",
            "write -z -u 5M 1M",
            "discard 6M 1M",
            "read -P 0 4M 3M",
            "flush",
        ];
        let commands: Vec<&str> = io.iter().flat_map(|command| ["-c", command]).collect();
        let said = tool("qemu-io", &[&["-f", "raw"], &commands[..], &[&export]].concat()).well();
        assert!(!said.contains("failed") && !said.contains("error"), "{name}: {said}");
    }
}

/// An authority, and certificates of it for a server and a client, where QEMU looks for them.
fn certificates(directory: &Path) -> bool {
    if !need("openssl", "openssl") {
        return false;
    }
    let path = |name: &str| directory.join(name).display().to_string();
    let openssl = |line: &str| {
        let words: Vec<String> = line.split(' ').map(|word| word.replace('@', &path(""))).collect();
        tool("openssl", &words.iter().map(String::as_str).collect::<Vec<_>>()).well();
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(&format!("req -x509 {key} -keyout @ca-key.pem -out @ca-cert.pem -days 2 -subj /CN=authority"));
    for (who, name) in [("server", "127.0.0.1"), ("client", "client")] {
        let more = match who {
            "server" => {
                "subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n"
            }
            _ => "basicConstraints=CA:FALSE\nextendedKeyUsage=clientAuth\n",
        };
        fs::write(path(&format!("{who}.ext")), more).unwrap();
        openssl(&format!("req {key} -keyout @{who}-key.pem -out @{who}.csr -subj /CN={name}"));
        openssl(&format!(
            "x509 -req -in @{who}.csr -CA @ca-cert.pem -CAkey @ca-key.pem -CAcreateserial -days 2 -extfile @{who}.ext -out @{who}-cert.pem"
        ));
    }
    true
}

/// An export as QEMU names it, with TLS and with the certificates in `directory`.
fn over_tls(directory: &Path, server: &Serve) -> [String; 2] {
    let address = address(server);
    let port = address.rsplit(':').next().unwrap();
    [
        format!("tls-creds-x509,id=tls0,dir={},endpoint=client,verify-peer=yes", directory.display()),
        format!("driver=nbd,host=127.0.0.1,port={port},export={IQN}/0,tls-creds=tls0"),
    ]
}

#[test]
fn qemu_uses_tls_and_nobody_does_without_where_it_is_required() {
    let directory = tempfile::tempdir().unwrap();
    if !qemu() || !certificates(directory.path()) {
        return;
    }
    let nbd = "certificate = \"server-cert.pem\"\nkey = \"server-key.pem\"";
    let server = start(directory.path(), nbd, "ram:8M");
    let [object, image] = over_tls(directory.path(), &server);
    let io = |commands: &[&str]| {
        let mut line = vec!["--object", &object, "--image-opts", &image];
        commands.iter().for_each(|command| line.extend(["-c", command]));
        tool("qemu-io", &line).well()
    };
    let said = io(&["write -P 0x5a 1M 64k", "read -P 0x5a 1M 64k", "flush"]);
    assert!(!said.contains("failed") && !said.contains("error"), "{said}");
    if libnbd() {
        let certificates = directory.path().display();
        let uri = format!("nbds://{}/{IQN}/0?tls-certificates={certificates}", address(&server));
        let info = tool("nbdinfo", &[&uri]).well();
        assert!(info.contains("with TLS"), "{info}");
    }
    let plain = tool("qemu-img", &["info", &uri(&server)]);
    assert!(plain.code != Some(0) && plain.text.contains("TLS"), "{}", plain.text);
}

#[test]
fn a_target_with_chap_is_exported_to_clients_with_certificates_only() {
    let directory = tempfile::tempdir().unwrap();
    if !qemu() || !certificates(directory.path()) {
        return;
    }
    let secret = crate::support::secret_file(directory.path(), "secret", "a secret of sixteen");
    let chap = format!("[[target.chap.account]]\nname = \"host\"\nsecret_file = \"{}\"", secret.display());
    let tls = "certificate = \"server-cert.pem\"\nkey = \"server-key.pem\"\ntls_required = false";
    for (more, served) in [("", false), ("client_ca = \"ca-cert.pem\"", true)] {
        let nbd = format!("[nbd]\nlisten = [\"127.0.0.1:0\"]\n{tls}\n{more}\n");
        let server = serve(directory.path(), 1, &(nbd + &target(IQN, &chap, &["ram:8M"])));
        let plain = tool("qemu-img", &["info", &uri(&server)]);
        assert!(plain.code != Some(0), "{}", plain.text);
        let [object, image] = over_tls(directory.path(), &server);
        let info = tool("qemu-img", &["info", "--object", &object, "--image-opts", &image]);
        assert_eq!(info.code == Some(0), served, "{}", info.text);
    }
}

#[test]
fn what_is_wrong_with_the_certificates_is_said_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("empty.pem"), "").unwrap();
    let nbd = "[nbd]\nlisten = [\"127.0.0.1:0\"]\ncertificate = \"empty.pem\"\nkey = \"empty.pem\"\n";
    let listen = [([127, 0, 0, 1], 0).into()];
    let file = crate::support::write_config(
        directory.path(),
        &listen,
        &(nbd.to_owned() + &target(IQN, "", &["ram:1M"])),
    );
    let output = run(&["serve", "-c", file.to_str().unwrap()]);
    let said = text(&output);
    assert!(output.status.code() == Some(1) && said.contains("empty.pem"), "{said}");
}

#[test]
fn an_export_that_everybody_could_use_is_not_served_beyond_this_machine() {
    let output = run(&["serve", "--listen", "127.0.0.1:0", "--nbd", "0.0.0.0:0"]);
    let said = text(&output);
    assert!(output.status.code() == Some(2) && said.contains("anybody who reaches 0.0.0.0:0"), "{said}");
}
