//! Copies all of a volume into a file, the parts that hold nothing as holes.
//!
//! `cargo run -p intact-initiator --example backup -- iscsi://127.0.0.1/iqn.2026-01.io.intact:disk/0 disk.img`
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use initiator::{Disk, IscsiUrl, Session};

/// Bytes of one read.
const PIECE_BYTES: u64 = 1 << 20;

/// Backs up the unit that `url` names; gives the number of bytes that were copied.
pub fn run(url: &str, to: &Path) -> Result<u64, Box<dyn std::error::Error>> {
    let url = IscsiUrl::parse(url)?;
    let session = Session::connect(url.options()?)?;
    let disk = Disk::open(&session, url.unit()?.1)?;
    let size = disk.capacity().bytes();
    let file = File::create(to)?;
    file.set_len(size)?;
    let (mut at, mut copied) = (0, 0);
    while at < size {
        // A device that does not say what it holds may hold data everywhere.
        let parts = disk.allocation(at)?.filter(|parts| !parts.is_empty());
        let (end, mapped) = parts.map_or((size, true), |parts| (parts[0].range.end, parts[0].mapped));
        while mapped && at < end {
            let mut data = vec![0; PIECE_BYTES.min(end - at) as usize];
            disk.read(at, &mut data)?;
            file.write_all_at(&data, at)?;
            at += data.len() as u64;
            copied += data.len() as u64;
        }
        at = end;
    }
    file.sync_all()?;
    session.logout();
    Ok(copied)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (Some(url), Some(file)) = (std::env::args().nth(1), std::env::args().nth(2)) else {
        return Err("say from where to where: iscsi://HOST/TARGET/LUN FILE".into());
    };
    println!("{} bytes copied", run(&url, file.as_ref())?);
    Ok(())
}
