//! Starts a well-behaved evil target on loopback for other clients to try, and shows the traffic: `evil [SECONDS]`.

use conform::evil::{Behaviour, EvilConfig, EvilTarget};
use std::time::Duration;

fn main() -> std::io::Result<()> {
    let seconds = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(10);
    let target = EvilTarget::start(EvilConfig::default(), Behaviour::good())?;
    println!("{}", target.url());
    std::thread::sleep(Duration::from_secs(seconds));
    println!("{}", target.transcript());
    for finding in target.findings() {
        println!("{}: {}", finding.row, finding.words);
    }
    Ok(())
}
