//! A volume that grows under its initiators: ours and QEMU's, which goes on with it as with a disk that was resized.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Stdio;

use crate::common::PATIENCE;
use crate::support::{IQN, need, program, serve, target};
use initiator::{Disk, IscsiUrl, Session};
use iscsi_core::wire::Lun;

const MIB: u64 = 1 << 20;

fn set_len(path: &Path, bytes: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

#[test]
fn our_initiator_sees_a_volume_grow() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let file = format!("file:{},size=1M", path.display());
    let server = serve(directory.path(), 1, &target(IQN, "", &[&file, "ram:1M"]));
    let url = IscsiUrl::parse(&format!("iscsi://{}/{IQN}", server.portal())).unwrap();
    let session = Session::connect(url.options().unwrap()).unwrap();
    let disk = Disk::open(&session, Lun(0)).unwrap();
    assert_eq!(disk.capacity().bytes(), MIB);

    set_len(&path, 4 * MIB);
    let (code, said) = server.ask(&["lun", "resize", IQN, "0"]);
    assert_eq!((code, said.trim()), (Some(0), "nothing changed"), "the configuration has a size for it");
    let (code, said) = server.ask(&["lun", "resize", IQN, "0", "2M"]);
    assert_eq!((code, said), (Some(0), format!("LUN 0 of {IQN} has 2097152 bytes now\n")));
    // The unit attention is taken on the way.
    assert_eq!(disk.read_capacity().unwrap().bytes(), 2 * MIB);
    let larger = Disk::open(&session, Lun(0)).unwrap();
    larger.write(2 * MIB - 512, &[7; 512]).unwrap();
    assert_eq!(server.ask(&["lun", "resize", IQN, "1", "8M"]).0, Some(0), "and memory");
    let session_of = server.ls("sessions")[0]["tsih"].clone();

    for arguments in [
        &["lun", "resize", IQN, "0", "1M"][..],
        &["lun", "resize", IQN, "9", "8M"],
        &["lun", "protect", "iqn.2004-10.com.example:none", "0"],
    ] {
        let (code, said) = server.ask(arguments);
        assert_eq!(code, Some(1), "{arguments:?}: {said}");
    }
    assert_eq!(server.ask(&["lun", "protect", IQN, "0"]).0, Some(0));
    let refused = larger.write(0, &[1; 512]).unwrap_err().to_string();
    assert!(refused.contains("27"), "{refused}");
    assert_eq!(server.ask(&["lun", "unprotect", IQN, "0"]).0, Some(0));
    larger.write(0, &[1; 512]).unwrap();
    assert_eq!(server.ls("sessions")[0]["tsih"], session_of, "one session for all of it");

    // The configuration says another size than what is there: that stays, and is told.
    let (code, said) = server.ask(&["reload"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("keeps its 2097152 bytes") && said.contains("no unit shrinks"), "{said}");
    assert_eq!(disk.read_capacity().unwrap().bytes(), 2 * MIB);
}

#[test]
fn qemu_goes_on_with_a_volume_that_grew() {
    if !need("qemu-io", "qemu-utils qemu-block-extra") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    std::fs::write(&path, vec![0; MIB as usize]).unwrap();
    let server = serve(directory.path(), 1, &target(IQN, "", &[&format!("file:{}", path.display())]));
    let volume = format!(
        "driver=raw,file.driver=iscsi,file.transport=tcp,file.portal={},file.target={IQN},file.lun=0",
        server.portal()
    );
    let mut qemu = program("qemu-io", PATIENCE);
    qemu.args(["--image-opts", &volume])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    let mut qemu = qemu.spawn().unwrap();
    let (mut commands, mut answers) = (qemu.stdin.take().unwrap(), qemu.stdout.take().unwrap());
    let mut said = String::new();
    let mut until_prompt = || {
        let mut byte = [0];
        said.clear();
        while !said.ends_with("qemu-io> ") {
            assert_eq!(answers.read(&mut byte).unwrap(), 1, "qemu-io ended: {said}");
            said.push(byte[0].into());
        }
        said.clone()
    };
    until_prompt();
    // One line at a time: it looks for the next one when it has done the last.
    let mut run = |command: &str, expected: &str| {
        writeln!(commands, "{command}").unwrap();
        let said = until_prompt();
        assert!(said.contains(expected) && !said.contains("failed"), "{command}: {said}");
    };
    run("length", "1 MiB");
    run("write -P 1 0 64k", "wrote 65536/65536");

    set_len(&path, 3 * MIB);
    let (code, said) = server.ask(&["reload"]);
    assert_eq!((code, said), (Some(0), format!("LUN 0 of {IQN} has 3145728 bytes now\n")));
    // What `block_resize` does in a running machine.
    run("truncate 3M", "");
    run("length", "3 MiB");
    run("write -P 2 2M 1M", "wrote 1048576/1048576");
    run("read -P 1 0 64k", "read 65536/65536");
    run("read -P 2 2M 1M", "read 1048576/1048576");
    drop(commands);
    assert!(qemu.wait().unwrap().success());
}
