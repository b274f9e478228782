//! QEMU (by libiscsi) on our target, which requires header digests: an image onto a volume and back, and patterns.

use std::fs;
use std::path::Path;

use crate::common::{Serve, Signal};
use crate::support::{IQN, need, serve, target, tool};

const IMAGE_BYTES: usize = 48 << 20;

/// Is QEMU there, with its iSCSI driver?
fn qemu() -> bool {
    need("qemu-img", "qemu-utils") && need("qemu-io", "qemu-utils") && {
        let there = tool("qemu-img", &["info", "iscsi://127.0.0.1:1/none/0"]);
        !there.text.contains("Unknown protocol")
            || crate::support::left_out("QEMU has no iSCSI driver (Debian: apt-get install qemu-block-extra)")
    }
}

fn start(directory: &Path, store: &str) -> Serve {
    let required = "[target.negotiation]\nheader_digest = \"required\"";
    serve(directory, 1, &target(IQN, required, &[store]))
}

/// The volume as QEMU's options name it.
fn volume(server: &Serve, digest: &str) -> String {
    let portal = server.portal();
    format!("driver=iscsi,transport=tcp,portal={portal},target={IQN},lun=0,header-digest={digest}")
}

/// An image with text, noise and holes.
fn image() -> Vec<u8> {
    let mut state = 1u64;
    let mut bytes = vec![0; IMAGE_BYTES];
    for (index, chunk) in bytes.chunks_mut(4096).enumerate() {
        match index % 7 {
            0..=2 => chunk.fill_with(|| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 56) as u8
            }),
            3 => chunk.fill(index as u8),
            _ => {}
        }
    }
    bytes
}

#[test]
fn an_image_comes_back_as_it_went() {
    if !qemu() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let bytes = image();
    fs::write(path("image.raw"), &bytes).unwrap();
    tool("qemu-img", &["convert", "-O", "qcow2", &path("image.raw"), &path("image.qcow2")]).well();
    let ram = format!("ram:{IMAGE_BYTES}");
    let file = format!("file:{},size={IMAGE_BYTES}", path("disk.img"));
    for (name, store) in [("ram", &ram), ("file", &file)] {
        let own = directory.path().join(name);
        fs::create_dir(&own).unwrap();
        let mut server = start(&own, store);
        let volume = volume(&server, "crc32c");
        let source = format!("driver=qcow2,file.filename={}", path("image.qcow2"));
        tool(
            "qemu-img",
            &[
                "convert",
                "-n",
                "--image-opts",
                &source,
                "--target-image-opts",
                &format!("driver=raw,file.{}", volume.replace(',', ",file.")),
            ],
        )
        .well();
        let source = format!("driver=raw,file.{}", volume.replace(',', ",file."));
        tool("qemu-img", &["convert", "-O", "raw", "--image-opts", &source, &path("back.raw")]).well();
        assert!(fs::read(path("back.raw")).unwrap() == bytes, "{name}: other bytes came back");
        tool(
            "qemu-img",
            &["compare", "--image-opts", &source, &format!("driver=raw,file.filename={}", path("image.raw"))],
        )
        .well();
        let digests = server.ls("logins");
        assert!(digests.as_array().unwrap().iter().all(|login| login["accepted"] == true), "{digests}");
        server.signal(Signal::TERM);
        assert_eq!(server.wait().code(), Some(0));
    }
    // What QEMU flushed is in the file.
    assert!(fs::read(path("disk.img")).unwrap() == bytes, "the file of the store has other bytes");
}

#[test]
fn patterns_written_discarded_and_zeroed_read_back() {
    if !qemu() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = format!("file:{},size=64M", directory.path().join("disk.img").display());
    for store in ["ram:64M", &file] {
        let own = tempfile::tempdir().unwrap();
        let server = start(own.path(), store);
        let volume = volume(&server, "crc32c");
        let commands = [
            "write -P 0xa5 0 8M",
            "write -P 0x5a 1M 64k",
            "write -P 0x11 3584 1536",
            "writev -P 0x77 16M 4k 128k 512",
            "write -f -P 0x42 20M 1M",
            "write -z 2M 1M",
            "write -z -u 4M 1M",
            "discard 6M 1M",
            "flush",
            "aio_write -P 0x33 24M 256k",
            "aio_write -P 0x34 25M 256k",
            "aio_flush",
            "read -P 0xa5 0 3584",
            "read -P 0x11 3584 1536",
            "read -P 0xa5 5120 1043456",
            "read -P 0x5a 1M 64k",
            "read -P 0 2M 1M",
            "read -P 0xa5 3M 1M",
            "read -P 0 4M 1M",
            "read -P 0xa5 5M 1M",
            "read -P 0 6M 1M",
            "read -P 0xa5 7M 1M",
            "read -P 0 8M 8M",
            "readv -P 0x77 16M 4k 128k 512",
            "read -P 0x42 20M 1M",
            "read -P 0x33 24M 256k",
            "read -P 0x34 25M 256k",
            "read -P 0 63M 1M",
        ];
        let mut arguments = vec!["--image-opts", "-d", "unmap"];
        for command in &commands {
            arguments.extend(["-c", command]);
        }
        let raw = format!("driver=raw,file.{}", volume.replace(',', ",file."));
        arguments.push(&raw);
        let text = tool("qemu-io", &arguments).well();
        assert!(!text.contains("Pattern verification failed"), "{store}: {text}");
        let done = text.lines().filter(|line| line.starts_with("wrote") || line.starts_with("read")).count();
        let expected =
            commands.iter().filter(|command| command.contains("write") || command.contains("read"));
        assert_eq!(done, expected.count(), "{store}: {text}");
    }
}

/// A client that does not want the digest that the target requires is told, and gets nothing.
#[test]
fn without_the_required_digest_there_is_no_session() {
    if !qemu() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path(), "ram:1M");
    let ended = tool("qemu-img", &["info", "--image-opts", &volume(&server, "none")]);
    assert_ne!(ended.code, Some(0), "{}", ended.text);
    let refused = server.ls("logins");
    assert_eq!(refused[0]["accepted"], false, "{refused}");
    assert!(refused[0]["remedy"].as_str().unwrap().contains("HeaderDigest"), "{refused}");
}
