//! A block device in twenty lines: writes a block of a logical unit, flushes, and reads it back.
//!
//! `cargo run -p intact-initiator --example block_device -- iscsi://127.0.0.1/iqn.2026-01.io.intact:disk/0`
use initiator::{Disk, IscsiUrl, Session};

/// Overwrites the first block of the unit that `url` names; gives the size of the unit in bytes.
pub fn run(url: &str) -> Result<u64, Box<dyn std::error::Error>> {
    let url = IscsiUrl::parse(url)?;
    let session = Session::connect(url.options()?)?;
    let disk = Disk::open(&session, url.unit()?.1)?;
    let block = vec![0x5a; disk.capacity().block_bytes as usize];
    disk.write(0, &block)?;
    disk.flush()?;
    let mut back = vec![0; block.len()];
    disk.read(0, &mut back)?;
    assert!(back == block, "what was written is there");
    session.logout();
    Ok(disk.capacity().bytes())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("say which unit: iscsi://HOST/TARGET/LUN")?;
    println!("{} bytes", run(&url)?);
    Ok(())
}
