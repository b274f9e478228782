//! The cost of writing blocks with protection information to a file: through the log, compared with writing block and record one
//! after the other, which a crash may separate. Operations per second and microseconds of CPU for each, at random places of an
//! existing file, flushed every 64 writes. Both variants alternate, and everything is read back at the end.
//!
//! `cargo bench -p intact-blockstore --bench protected -- [DIRECTORY]` (on the disk to be measured; by default a temporary directory)

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use blockstore::{
    BlockStore, Durability, FileOptions, FileStore, ProtectedStore, Record, RecordRun, StoreSpec,
};
use integrity::t10::Tuple;

const FILE_BYTES: u64 = 256 << 20;
const TIME: Duration = Duration::from_secs(2);
const ROUNDS: usize = 3;

/// CPU time of this process so far, in units of the kernel's clock: 10 ms.
fn ticks() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<f64>().expect("a number")).sum()
}

fn run(bytes: usize) -> RecordRun {
    let record = Record::Guarded(Tuple { guard: 7, app_tag: 1, ref_tag: 2 });
    std::iter::repeat_n(record, bytes / 512).collect()
}

/// Operations per second, and microseconds of CPU for each.
fn measure(store: &dyn BlockStore, bytes: usize, durability: Durability) -> (f64, f64) {
    let (data, records) = (vec![7; bytes], run(bytes));
    let places = FILE_BYTES / bytes as u64;
    let (start, cpu) = (Instant::now(), ticks());
    let mut done = 0u64;
    while start.elapsed() < TIME {
        let at = done * 7919 % places * bytes as u64;
        store.write_atomic(at, &[&data], Some(&records), durability).expect("written");
        done += 1;
        if done.is_multiple_of(64) {
            store.flush().expect("flushed");
        }
    }
    let (rate, cpu) = (done as f64 / start.elapsed().as_secs_f64(), (ticks() - cpu) * 1e4 / done as f64);
    let mut back = vec![0; bytes];
    store.read((done - 1) * 7919 % places * bytes as u64, &mut back).expect("read");
    assert!(back == data, "what was written is there");
    (rate, cpu)
}

fn apart(path: &Path) -> ProtectedStore {
    let open = |suffix: &str, size_bytes: u64| {
        let how = FileOptions { size_bytes: Some(size_bytes), ..FileOptions::default() };
        FileStore::open(path.with_extension(suffix), &how).expect("opened")
    };
    let data = open("data", FILE_BYTES);
    let side = open("records", ProtectedStore::side_bytes(&data.geometry()).expect("a size"));
    ProtectedStore::new(Arc::new(data), Arc::new(side), 1).expect("opened")
}

fn main() {
    let given = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let directory =
        tempfile::tempdir_in(given.map_or_else(std::env::temp_dir, PathBuf::from)).expect("a directory");
    let text = format!("file:{},size={FILE_BYTES},pi=1", directory.path().join("disk").display());
    let log = text.parse::<StoreSpec>().expect("a store").open().expect("opened");
    let stores: [(&str, Arc<dyn BlockStore>); 2] =
        [("apart", Arc::new(apart(&directory.path().join("apart")))), ("log", log)];
    for (_, store) in &stores {
        let fill = vec![9; 1 << 20];
        (0..FILE_BYTES >> 20)
            .for_each(|n| store.write(n << 20, &[&fill], Durability::Cached).expect("written"));
        store.flush().expect("flushed");
    }
    println!("bytes durability  way    operations/s   CPU us each");
    for bytes in [4 << 10, 128 << 10] {
        for durability in [Durability::Cached, Durability::Durable] {
            for _ in 0..ROUNDS {
                for (name, store) in &stores {
                    let (rate, cpu) = measure(&**store, bytes, durability);
                    println!("{bytes:>6} {durability:?}  {name:<6} {rate:>12.0} {cpu:>12.1}");
                    store.flush().expect("flushed");
                }
            }
        }
    }
}
