//! The store in a real file.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use blockstore::{
    BlockStore, Durability, Extent, FileOptions, FileStore, Placement, StoreError, StoreSpec, VolumeId,
};
use tempfile::{TempDir, tempdir};

const MIB: u64 = 1 << 20;

fn sized(size_bytes: u64) -> FileOptions {
    FileOptions { size_bytes: Some(size_bytes), ..FileOptions::default() }
}

fn read_only() -> FileOptions {
    FileOptions { read_only: true, ..FileOptions::default() }
}

fn place() -> (TempDir, PathBuf) {
    let directory = tempdir().unwrap();
    let path = directory.path().join("disk");
    (directory, path)
}

fn refused(path: &PathBuf, options: &FileOptions) -> String {
    match FileStore::open(path, options) {
        Err(error @ StoreError::Unusable(_)) => error.to_string(),
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("was opened"),
    }
}

#[test]
fn data_and_size_survive_reopening() {
    let (_directory, path) = place();
    let store = FileStore::open(&path, &sized(8 * MIB)).unwrap();
    assert_eq!(store.placement(), Placement::Offload);
    assert_eq!(store.geometry().blocks(), 8 * MIB / 512);
    store.write(4096, &[b"hello ", b"disk"], Durability::Durable).unwrap();
    store.resize(9 * MIB).unwrap();
    store.flush().unwrap();
    drop(store);

    let store = FileStore::open(&path, &FileOptions::default()).unwrap();
    assert_eq!(store.geometry().size_bytes, 9 * MIB);
    let mut dst = [0; 10];
    store.read(4096, &mut dst).unwrap();
    assert_eq!(&dst, b"hello disk");
    drop(store);

    // Opening with the same size, or with the initial size, changes nothing; a larger size extends the file.
    drop(FileStore::open(&path, &sized(9 * MIB)).unwrap());
    assert_eq!(FileStore::open(&path, &sized(MIB)).unwrap().geometry().size_bytes, 9 * MIB);
    assert_eq!(FileStore::open(&path, &sized(10 * MIB)).unwrap().geometry().size_bytes, 10 * MIB);
}

#[test]
fn a_new_file_is_sparse_and_unmap_gives_space_back() {
    let (_directory, path) = place();
    let store = FileStore::open(&path, &sized(1 << 40)).unwrap();
    let allocated = || fs::metadata(&path).unwrap().blocks() * 512;
    assert!(allocated() < MIB, "a file of 1 TiB takes {} bytes", allocated());
    assert!(store.geometry().discard_granularity_bytes > 0, "this file system cannot punch holes");

    store.write(64 * MIB, &[&vec![5; 4 * MIB as usize]], Durability::Cached).unwrap();
    store.flush().unwrap();
    assert!(allocated() >= 4 * MIB);
    let extents = store.extents(0, 1 << 40, 10).unwrap();
    assert_eq!(extents[0], Extent { offset: 0, len: 64 * MIB, mapped: false });
    assert_eq!(extents[1], Extent { offset: 64 * MIB, len: 4 * MIB, mapped: true });
    assert_eq!(extents[2], Extent { offset: 68 * MIB, len: (1 << 40) - 68 * MIB, mapped: false });
    assert_eq!(
        store.extents(65 * MIB, MIB, 10).unwrap(),
        [Extent { offset: 65 * MIB, len: MIB, mapped: true }]
    );

    store.unmap(64 * MIB + 100, 3 * MIB).unwrap();
    store.flush().unwrap();
    assert!(allocated() <= 2 * MIB, "{} bytes are still allocated", allocated());
    let mut dst = vec![0; 4 * MIB as usize];
    store.read(64 * MIB, &mut dst).unwrap();
    let edge = 3 * MIB as usize + 100;
    assert!(dst[..100].iter().all(|&byte| byte == 5));
    assert!(dst[100..edge].iter().all(|&byte| byte == 0));
    assert!(dst[edge..].iter().all(|&byte| byte == 5));
    assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 40, "unmap must not change the size");
}

#[test]
fn zeroes_that_may_not_unmap_keep_their_space() {
    let (_directory, path) = place();
    let store = FileStore::open(&path, &sized(4 * MIB)).unwrap();
    store.write(0, &[&vec![5; 4 * MIB as usize]], Durability::Durable).unwrap();
    store.write_zeroes(0, 4 * MIB, false).unwrap();
    store.flush().unwrap();
    assert!(fs::metadata(&path).unwrap().blocks() * 512 >= 4 * MIB);
    let mut dst = vec![1; 4 * MIB as usize];
    store.read(0, &mut dst).unwrap();
    assert!(dst.iter().all(|&byte| byte == 0));
}

#[test]
fn a_truncated_file_is_gone_and_stays_gone() {
    for write_first in [false, true] {
        let (_directory, path) = place();
        let store = FileStore::open(&path, &sized(MIB)).unwrap();
        store.write(0, &[&[3; 8192]], Durability::Durable).unwrap();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(4096).unwrap();

        if write_first {
            // The write would grow the file again, and the gap would read as zeros without an error.
            let late = store.write(MIB - 512, &[&[1; 512]], Durability::Cached);
            assert!(matches!(late, Err(StoreError::Gone(_))));
            assert_eq!(file.metadata().unwrap().len(), 4096);
        } else {
            let mut dst = [0xEE; 8192];
            assert!(matches!(store.read(0, &mut dst), Err(StoreError::Gone(_))));
            assert_eq!(dst[..4096], [3; 4096]);
            assert_eq!(dst[4096..], [0; 4096]);
        }
        file.set_len(MIB).unwrap();
        let error = store.read(0, &mut [0; 512]).unwrap_err();
        assert!(matches!(error, StoreError::Gone(_)), "{error}");
        assert!(error.to_string().contains("4096") && error.to_string().contains("reopen"), "{error}");
        assert!(matches!(store.flush(), Err(StoreError::Gone(_))));
        assert!(matches!(store.unmap(0, 512), Err(StoreError::Gone(_))));
    }
}

#[test]
fn a_flush_notices_that_the_file_shrank() {
    let (_directory, path) = place();
    let store = FileStore::open(&path, &sized(MIB)).unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(MIB - 1).unwrap();
    assert!(matches!(store.flush(), Err(StoreError::Gone(_))));
}

#[test]
fn one_file_has_one_writer_or_many_readers() {
    let (_directory, path) = place();
    let writer = FileStore::open(&path, &sized(MIB)).unwrap();
    assert!(refused(&path, &FileOptions::default()).contains("in use"));
    assert!(refused(&path, &read_only()).contains("in use"));
    drop(writer);
    let reader = FileStore::open(&path, &read_only()).unwrap();
    let another = FileStore::open(&path, &read_only()).unwrap();
    assert!(refused(&path, &FileOptions::default()).contains("in use"));
    drop((reader, another));
    FileStore::open(&path, &FileOptions::default()).unwrap();
}

#[test]
fn read_only_refuses_changes() {
    let (_directory, path) = place();
    drop(FileStore::open(&path, &sized(MIB)).unwrap());
    let store = FileStore::open(&path, &read_only()).unwrap();
    assert!(store.geometry().read_only);
    assert_eq!(store.geometry().discard_granularity_bytes, 0);
    assert!(matches!(store.write(0, &[&[1; 512]], Durability::Cached), Err(StoreError::ReadOnly)));
    assert!(matches!(store.unmap(0, 512), Err(StoreError::ReadOnly)));
    assert!(matches!(store.resize(2 * MIB), Err(StoreError::ReadOnly)));
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(2 * MIB).unwrap();
    store.resize(2 * MIB).unwrap();
    store.flush().unwrap();
    store.read(0, &mut [0; 512]).unwrap();
}

#[test]
fn what_cannot_be_opened_says_why_and_what_to_do() {
    let (directory, path) = place();
    assert!(refused(&path, &FileOptions::default()).contains("size="), "missing, without a size");
    let missing_read_only = FileOptions { read_only: true, ..sized(MIB) };
    assert!(refused(&path, &missing_read_only).contains("not ro"), "missing, read-only");
    let text = refused(&directory.path().to_path_buf(), &FileOptions::default());
    assert!(text.contains("neither"), "a directory: {text}");
    let text = refused(&directory.path().join("no/such/disk"), &sized(MIB));
    assert!(text.contains("directory"), "a missing directory: {text}");
    assert!(refused(&PathBuf::from("/dev/null"), &FileOptions::default()).contains("neither"));

    // A creation that fails leaves nothing behind.
    assert!(refused(&path, &sized(1000)).contains("whole blocks"));
    assert!(refused(&path, &sized(0)).contains("at least"));
    assert!(refused(&path, &sized(1 << 63)).contains("smaller"));
    let wrong_block = FileOptions { logical_block_bytes: Some(1000), ..sized(MIB) };
    assert!(refused(&path, &wrong_block).contains("power of two"));
    assert!(!path.exists());

    fs::write(&path, vec![0; 1536]).unwrap();
    let large_block = FileOptions { logical_block_bytes: Some(4096), ..FileOptions::default() };
    assert!(refused(&path, &large_block).contains("use 4096 bytes"));
    let grow_read_only = FileOptions { read_only: true, ..sized(2048) };
    assert!(refused(&path, &grow_read_only).contains("read-only"));
    assert_eq!(fs::metadata(&path).unwrap().len(), 1536, "a refused file is left as it was");
    fs::write(&path, []).unwrap();
    assert!(refused(&path, &FileOptions::default()).contains("empty"));
}

#[test]
fn a_spec_opens_a_file() {
    let (_directory, path) = place();
    let spec: StoreSpec = format!("file:{},size=2M,block=4096", path.display()).parse().unwrap();
    let store = spec.open().unwrap();
    assert_eq!(store.geometry().size_bytes, 2 * MIB);
    assert_eq!(store.geometry().logical_block_bytes, 4096);
    assert_eq!(store.description(), format!("file:{}", path.display()));
}

#[test]
fn a_refusal_because_of_the_size_names_the_file() {
    let (_directory, path) = place();
    let name = path.display().to_string();
    fs::write(&path, [0; 1000]).unwrap();
    let not_whole = refused(&path, &FileOptions::default());
    assert!(not_whole.contains(&name), "{not_whole}");
    fs::write(&path, [0; 1024]).unwrap();
    let cannot_grow = refused(&path, &FileOptions { size_bytes: Some(MIB), ..read_only() });
    assert!(cannot_grow.contains(&name) && cannot_grow.contains("cannot grow"), "{cannot_grow}");
}

#[test]
fn a_read_only_store_can_be_made_to_take_changes() {
    let (_directory, path) = place();
    drop(FileStore::open(&path, &sized(MIB)).unwrap());
    let store = FileStore::open(&path, &read_only()).unwrap();
    let reader = FileStore::open(&path, &read_only()).unwrap();
    let refusal = store.make_writable().unwrap_err().to_string();
    assert!(refusal.contains("another server"), "somebody else reads it: {refusal}");
    assert!(matches!(store.write(0, &[&[1; 512]], Durability::Cached), Err(StoreError::ReadOnly)));
    assert!(refused(&path, &FileOptions::default()).contains("in use"), "it has its lock again");
    drop(reader);
    let label = path.with_extension("intact");
    fs::write(&label, b"not a label").unwrap();
    store.make_writable().unwrap_err();
    fs::remove_file(&label).unwrap();
    drop(FileStore::open(&path, &read_only()).expect("others may read it again"));
    store.make_writable().unwrap();
    store.make_writable().unwrap();
    assert!(!store.geometry().read_only);
    store.write(0, &[&[1; 512]], Durability::Durable).unwrap();
    store.resize(2 * MIB).unwrap();
    store.unmap(512, 512).unwrap();
    let mut first = [0; 1024];
    store.read(0, &mut first).unwrap();
    assert_eq!((first[511], first[512]), (1, 0));
    assert!(refused(&path, &read_only()).contains("in use"), "the lock is exclusive now");
}

#[test]
fn what_the_medium_has_is_known_before_it_is_used() {
    let (_directory, path) = place();
    let store = FileStore::open(&path, &sized(MIB)).unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(3 * MIB).unwrap();
    assert_eq!(store.medium_bytes().unwrap(), 3 * MIB);
    assert_eq!(store.geometry().size_bytes, MIB, "nobody asked for more");
    store.resize(3 * MIB).unwrap();
    assert_eq!(store.geometry().size_bytes, 3 * MIB);
}

#[test]
fn a_new_file_does_not_take_over_the_label_of_another() {
    let (_directory, path) = place();
    let id = VolumeId::from_bytes([7; 16]);
    let store = FileStore::open(&path, &sized(MIB)).unwrap();
    store.label().unwrap().set_identity(Some(id)).unwrap();
    drop(store);
    let again = FileStore::open(&path, &sized(MIB)).unwrap();
    assert_eq!(again.label().unwrap().identity(), Some(id));
    drop(again);
    fs::remove_file(&path).unwrap();
    let why = refused(&path, &sized(MIB));
    assert!(why.contains("disk.intact") && why.contains("move the label away"), "{why}");
    assert!(!path.exists());
}

/// The label records the failure, whatever options the volume is opened with next.
#[test]
fn a_flush_that_failed_refuses_writes_also_after_a_restart() {
    let (directory, path) = place();
    let label = directory.path().join("disk.intact");
    for options in ["", ",pi=1", ",atomic=64K", ",pi=1,atomic=64K"] {
        let open = |ro: &str| {
            format!("file:{},size=1M{options}{ro}", path.display())
                .parse::<StoreSpec>()
                .unwrap()
                .open()
                .unwrap()
        };
        drop(open(""));
        let failed =
            "{\"version\":1,\"failed_flush\":{\"reason\":\"disk: it failed\",\"unflushed_bytes\":512}}";
        fs::write(&label, failed).unwrap();
        for _ in 0..2 {
            let store = open("");
            let refused =
                |result| matches!(result, Err(StoreError::FlushFailed(why)) if why == "disk: it failed");
            assert!(refused(store.write(0, &[&[1; 512]], Durability::Cached)), "{options}");
            assert!(refused(store.unmap(0, 512)) && refused(store.flush()), "{options}");
            if store.atomic_write_bytes_max() > 0 {
                assert!(refused(store.write_atomic(0, &[&[1; 512]], None, Durability::Cached)));
            }
            store.read(0, &mut [0; 512]).unwrap();
        }
        open(",ro").read(0, &mut [0; 512]).unwrap();
        assert_eq!(open("").reopen().unwrap().unwrap().unflushed_bytes, 512);
        let store = open("");
        store.write(0, &[&[1; 512]], Durability::Durable).unwrap();
        store.flush().unwrap();
        assert!(store.reopen().unwrap().is_none());
        drop(store);
        for name in ["disk", "disk.pi", "disk.pi-log", "disk.atomic", "disk.intact"] {
            let _ = fs::remove_file(directory.path().join(name));
        }
    }
}

/// Bytes that the kernel has read from devices for this thread.
fn bytes_from_devices() -> u64 {
    let io = fs::read_to_string("/proc/thread-self/io").unwrap();
    io.lines().find_map(|line| line.strip_prefix("read_bytes: ")).unwrap().parse().unwrap()
}

/// The kernel counts what it reads from a device, but not what it finds in its cache.
#[test]
fn a_read_of_the_medium_goes_to_the_device_though_all_is_cached() {
    let (directory, path) = place();
    let store = FileStore::open(&path, &sized(MIB)).unwrap();
    let data: Vec<u8> = (0..MIB).map(|at| (at / 3) as u8).collect();
    store.write(0, &[&data], Durability::Cached).unwrap();
    let mut read = vec![0; MIB as usize];
    store.read_medium(0, &mut read).unwrap();
    assert!(read == data, "what was cached goes to the medium before");
    store.flush().unwrap();
    // ext4, XFS and btrfs keep files on devices; other file systems may have no device, or one that is not
    // counted here.
    let kind = rustix::fs::statfs(directory.path()).unwrap().f_type as u64;
    if ![0xef53, 0x5846_5342, 0x9123_683e].contains(&kind) {
        eprintln!("left out: the directory for temporary files is on another file system ({kind:x})");
        return;
    }
    store.read(0, &mut read).unwrap();
    let before = bytes_from_devices();
    store.read(0, &mut read).unwrap();
    assert_eq!(bytes_from_devices(), before, "all of it is cached");
    store.read_medium(0, &mut read).unwrap();
    assert!(read == data);
    assert_eq!(bytes_from_devices() - before, MIB, "{}", store.medium_reads().as_str());
}

/// Records written by the previous version, which did not store to which life of the volume they belong.
// covers: PI-15
#[test]
fn records_without_a_generation_get_one_and_are_another_times_from_then_on() {
    let (directory, path) = place();
    let open = || format!("file:{},size=64K,pi=1", path.display()).parse::<StoreSpec>().unwrap().open();
    drop(open().unwrap());
    let (records, label) = (path.with_extension("pi"), path.with_extension("intact"));
    let mut old = fs::read(&records).unwrap();
    old[8] = 2;
    old[16..24].fill(0);
    fs::write(&records, &old).unwrap();
    let mut fields: serde_json::Value = serde_json::from_slice(&fs::read(&label).unwrap()).unwrap();
    fields.as_object_mut().unwrap().remove("records").expect("the label knows of the records");
    fs::write(&label, fields.to_string()).unwrap();
    drop(open().unwrap());
    assert_eq!(fs::read(&records).unwrap()[8], 3);
    fs::write(&records, &old).unwrap();
    let refused = open().err().expect("records of another time").to_string();
    assert!(refused.contains("another time") && refused.contains("put the files"), "{refused}");
    // The remedy of the message for users who have no other copy.
    fs::rename(&label, directory.path().join("away")).unwrap();
    open().unwrap();
}

#[test]
fn a_link_and_the_file_have_the_same_beside_them() {
    let (directory, path) = place();
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let spec =
        |path: &PathBuf, more: &str| format!("file:{}{more}", path.display()).parse::<StoreSpec>().unwrap();
    let store = spec(&path, ",size=64K,atomic=4K").open().unwrap();
    let label = store.label().unwrap().path().unwrap().to_owned();
    store.label().unwrap().set_identity(Some(VolumeId::from_bytes([7; 16]))).unwrap();
    drop(store);
    let store = spec(&link, ",atomic=4K").open().unwrap();
    assert_eq!(store.label().unwrap().path(), Some(&*label));
    assert_eq!(store.label().unwrap().identity(), Some(VolumeId::from_bytes([7; 16])));
    drop(store);
    assert!(!directory.path().join("link.atomic").exists() && !directory.path().join("link.intact").exists());
    // An earlier version kept it next to the link.
    fs::rename(directory.path().join("disk.atomic"), directory.path().join("link.atomic")).unwrap();
    let refused = spec(&link, "").open().err().unwrap().to_string();
    assert!(refused.contains("disk.atomic if it does, or away"), "{refused}");
}

#[test]
fn what_was_just_written_is_read_without_waiting_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk");
    std::fs::write(&path, vec![0x5a; 1 << 20]).unwrap();
    let store = FileStore::open(&path, &FileOptions::default()).unwrap();
    let mut dst = vec![0; 32 << 10];
    // Some file systems (tmpfs) cannot tell whether a read would wait.
    if store.read_now(4096, &mut dst).unwrap() {
        assert!(dst.iter().all(|byte| *byte == 0x5a));
    }
}
