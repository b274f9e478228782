//! The cost of all-or-nothing writes to a file, compared with plain ones: operations per second of several threads at random places of
//! an existing file, and the share of the system calls. Every block is read back and compared at the end.
//!
//! `cargo bench -p intact-blockstore --bench atomic -- [DIRECTORY]` (on the disk to be measured; by default a temporary directory)

use std::path::PathBuf;
use std::time::{Duration, Instant};

use blockstore::{BlockStore, Durability, StoreSpec};

const FILE_BYTES: u64 = 256 << 20;
const TIME: Duration = Duration::from_secs(2);

/// One way to write.
type Write = fn(&dyn BlockStore, u64, &[u8]);

const WAYS: [(&str, Write); 3] = [
    ("cached", |store, at, data| store.write(at, &[data], Durability::Cached).expect("written")),
    ("FUA", |store, at, data| store.write(at, &[data], Durability::Durable).expect("written")),
    ("atomic", |store, at, data| {
        store.write_atomic(at, &[data], None, Durability::Durable).expect("written")
    }),
];

/// Operations per second.
fn rate(store: &dyn BlockStore, write: Write, bytes: usize, threads: u64) -> f64 {
    let start = Instant::now();
    let total: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                scope.spawn(move || {
                    let places = FILE_BYTES / threads / bytes as u64;
                    let data = vec![worker as u8 + 1; bytes];
                    let mut done = 0;
                    while start.elapsed() < TIME {
                        let place = done * 7919 % places + worker * places;
                        write(store, place * bytes as u64, &data);
                        done += 1;
                    }
                    let mut back = vec![0; bytes];
                    for n in 0..done.min(places) {
                        let place = n * 7919 % places + worker * places;
                        store.read(place * bytes as u64, &mut back).expect("read");
                        assert!(back == data, "what was written is there");
                    }
                    done
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker")).sum()
    });
    total as f64 / TIME.as_secs_f64()
}

fn main() {
    let given = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let directory =
        tempfile::tempdir_in(given.map_or_else(std::env::temp_dir, PathBuf::from)).expect("a directory");
    let text = format!("file:{},size={FILE_BYTES},atomic=64K", directory.path().join("disk").display());
    let store = text.parse::<StoreSpec>().expect("a store").open().expect("opened");
    let fill = vec![9; 1 << 20];
    (0..FILE_BYTES >> 20).for_each(|n| store.write(n << 20, &[&fill], Durability::Cached).expect("written"));
    store.flush().expect("flushed");
    println!("operations/s       {:>10} {:>10} {:>10}", WAYS[0].0, WAYS[1].0, WAYS[2].0);
    for bytes in [4 << 10, 16 << 10, 64 << 10] {
        for threads in [1, 8] {
            let rates = WAYS.map(|(_, write)| rate(&*store, write, bytes, threads));
            println!(
                "{bytes:>6} B, {threads} at once {:>10.0} {:>10.0} {:>10.0}",
                rates[0], rates[1], rates[2]
            );
            store.flush().expect("flushed");
        }
    }
}
