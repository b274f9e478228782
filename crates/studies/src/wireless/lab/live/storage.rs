//! What the volume is on: memory, a cached file, and a disk of the thesis' time.

use std::io;
use std::path::Path;
use std::sync::Arc;

use target::{BlockStore, RamStore, Simple, SpecError, StoreError, StoreSpec};
use wireless::link::LinkSetup;
use wireless::mac::Mac;

use super::Live;
use super::disk::Disk;
use super::programs::{Load, Served, VOLUME_BYTES, our_initiator, our_threads};
use crate::wireless::report::Section;
use crate::wireless::stage::Stage;
use harness::document::Table;

/// Acknowledgements at 1 Mbit/s as everywhere; no latency besides, for here the disk takes its own time.
const LINK: LinkSetup = LinkSetup::of(Mac::B.with_r_ack(1.0));

/// Bytes of a block.
const BLOCK_BYTES: u32 = 512;

type Open = fn(&Path) -> Result<Arc<dyn BlockStore>, StoreError>;

const MODES: [(&str, Open); 3] = [("memory", memory), ("file, cached", file), ("disk of 2003", disk)];

fn memory(_: &Path) -> Result<Arc<dyn BlockStore>, StoreError> {
    RamStore::new(VOLUME_BYTES, BLOCK_BYTES).map(|store| Arc::new(store) as Arc<dyn BlockStore>)
}

fn file(folder: &Path) -> Result<Arc<dyn BlockStore>, StoreError> {
    let path = folder.join("volume");
    let content: Vec<u8> = (0..VOLUME_BYTES / 8).flat_map(u64::to_le_bytes).collect();
    let unusable = |error: io::Error| StoreError::Unusable(format!("{}: {error}", path.display()));
    std::fs::write(&path, content).map_err(unusable)?;
    let spec: StoreSpec = format!("file:{}", path.display())
        .parse()
        .map_err(|error: SpecError| StoreError::Unusable(error.to_string()))?;
    spec.open()
}

fn disk(folder: &Path) -> Result<Arc<dyn BlockStore>, StoreError> {
    Ok(Arc::new(Simple::new(Disk::new(file(folder)?))))
}

/// The table.
pub(super) fn figure(live: &Live) -> Result<Section, String> {
    let mut section = Section::new(
        "Volumes in memory, in a file, on a disk",
        "One connection, no latency besides that of the volume. `disk of 2003`: a file read past the cache, after the time of a disk of 18 GB at \
         7,200 revolutions per minute (8.5 ms of seek and 4.2 ms of rotation unless a command continues the last, 25 MB/s). Anywhere is what IOMeter \
         does, in order what dd does.",
    );
    let loads: [(&str, Load); 5] = [
        ("2 KiB read anywhere, depth 1", Load::reads(2, 1, live.seconds())),
        ("2 KiB read anywhere, depth 8", Load::reads(2, 8, live.seconds())),
        ("2 KiB read in order, depth 1", Load { sequential: true, ..Load::reads(2, 1, live.seconds()) }),
        ("128 KiB read in order, depth 1", Load { sequential: true, ..Load::reads(128, 1, live.seconds()) }),
        (
            "128 KiB written in order, depth 1",
            Load { sequential: true, writes: true, ..Load::reads(128, 1, live.seconds()) },
        ),
    ];
    let mut table = Table::new("MB/s.", &["load", MODES[0].0, MODES[1].0, MODES[2].0, "disk / memory"]);
    for (name, load) in loads {
        let mut mb_s = [0.0; MODES.len()];
        for ((mode, open), mb_s) in MODES.into_iter().zip(&mut mb_s) {
            let act = |stage: &Stage| {
                let served: Served = our_threads(stage, open)?;
                Ok(our_initiator(stage, &served, load)?.mb_s)
            };
            *mb_s = live.mean(&format!("{mode}, {name}"), &LINK, act)?;
        }
        let mut row = vec![name.to_owned()];
        row.extend(mb_s.map(|figure| format!("{figure:.3}")));
        row.push(format!("{:.3}", mb_s[2] / mb_s[0]));
        table.rows.push(row);
    }
    section.tables.push(table);
    Ok(section)
}
