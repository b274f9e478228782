//! Sixteen blocks written at the same time by one thread, on smol; any other runtime will do.
//!
//! `cargo run -p intact-initiator --example async_disk -- iscsi://127.0.0.1/iqn.2026-01.io.intact:disk/0`
use initiator::{AsyncDisk, IscsiUrl};

/// Overwrites sixteen blocks of the unit that `url` names.
pub fn run(url: &str) -> Result<(), Box<dyn std::error::Error>> {
    let url = IscsiUrl::parse(url)?;
    smol::block_on(async {
        let disk = AsyncDisk::connect(url.options()?, url.unit()?.1).await?;
        let block_bytes = disk.blocking().capacity().block_bytes;
        let write = |n: u8| {
            let (disk, data) = (disk.clone(), vec![n; block_bytes as usize]);
            smol::spawn(async move { disk.write(u64::from(n) * u64::from(block_bytes), &data).await })
        };
        let writes: Vec<_> = (0..16).map(write).collect();
        for written in writes {
            written.await?;
        }
        Ok(disk.flush().await?)
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("say which unit: iscsi://HOST/TARGET/LUN")?;
    run(&url)
}
