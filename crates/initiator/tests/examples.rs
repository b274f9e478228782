//! The programs of `examples/`, run.

#[allow(dead_code, reason = "its main is for people")]
#[path = "../../../examples/async_disk.rs"]
mod async_disk;
#[allow(dead_code, reason = "its main is for people")]
#[path = "../../../examples/backup.rs"]
mod backup;
#[allow(dead_code, reason = "its main is for people")]
#[path = "../../../examples/block_device.rs"]
mod block_device;
#[allow(dead_code, reason = "its main is for people")]
#[path = "../../../examples/custom_store.rs"]
mod custom_store;
#[allow(dead_code, reason = "its main is for people")]
#[path = "../../../examples/embed_target.rs"]
mod embed_target;

use std::fs;

use initiator::{Disk, IscsiUrl, Session};

#[test]
fn a_target_is_embedded_used_as_a_block_device_and_backed_up() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    embed_target::run("127.0.0.1:0".parse().unwrap(), |address| {
        let url = |lun: u16| format!("iscsi://{address}/{}/{lun}", embed_target::NAME);
        assert_eq!(block_device::run(&url(0)).unwrap(), 64 << 20);
        assert_eq!(block_device::run(&url(1)).unwrap(), 16 << 20);
        async_disk::run(&url(1)).unwrap();
        let copied = backup::run(&url(1), &image).unwrap();
        assert!(copied > 0 && copied < 16 << 20, "{copied} bytes: what holds nothing is not read");
        let data = fs::read(&image).unwrap();
        assert_eq!(data.len(), 16 << 20);
        let expected: Vec<u8> = (0..16).flat_map(|n| [n; 512]).collect();
        assert!(data[..8192] == expected && data[8192..].iter().all(|byte| *byte == 0));
    })
    .unwrap();
}

#[test]
fn a_store_of_ones_own_is_served() {
    custom_store::run("127.0.0.1:0".parse().unwrap(), |address| {
        let url = IscsiUrl::parse(&format!("iscsi://{address}/{}/0", custom_store::NAME)).unwrap();
        let session = Session::connect(url.options().unwrap()).unwrap();
        let disk = Disk::open(&session, url.unit().unwrap().1).unwrap();
        assert_eq!(disk.capacity().blocks, 1 << 32);
        let mut block = [0; 512];
        disk.read(0x1234_5678 * 512, &mut block).unwrap();
        assert_eq!(block[..8], 0x1234_5678u64.to_be_bytes());
        assert!(disk.write(0, &block).is_err(), "nobody may write");
    })
    .unwrap();
}
