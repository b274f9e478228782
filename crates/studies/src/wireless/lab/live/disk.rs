//! A disk of the thesis' time: 18 GB at 7,200 revolutions per minute. Its data are in a file, read past the cache (`O_DIRECT`), after the time
//! that such a disk took.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use target::{BlockStore, Durability, SimpleStore, StoreError};

/// Mean seek and half a revolution, where a command does not continue the one before.
const SEEK: Duration = Duration::from_micros(8_500);
const HALF_REVOLUTION: Duration = Duration::from_micros(4_170);
/// Bytes per second below the heads.
const MEDIA_BYTES_PER_S: f64 = 25e6;

/// See the module.
pub(super) struct Disk {
    file: Arc<dyn BlockStore>,
    /// Where the last command ended. Held while a command takes its time: a disk does one thing at a time.
    head: Mutex<u64>,
}

impl Disk {
    /// A disk whose data are in `file`.
    pub(super) fn new(file: Arc<dyn BlockStore>) -> Self {
        Self { file, head: Mutex::new(0) }
    }

    fn take_time(&self, offset: u64, bytes: usize) {
        let mut head = self.head.lock();
        std::thread::sleep(service_time(*head == offset, bytes));
        *head = offset + bytes as u64;
    }
}

/// The time of a command on its own.
fn service_time(continues: bool, bytes: usize) -> Duration {
    let transfer = Duration::from_secs_f64(bytes as f64 / MEDIA_BYTES_PER_S);
    if continues { transfer } else { SEEK + HALF_REVOLUTION + transfer }
}

impl SimpleStore for Disk {
    fn size_bytes(&self) -> u64 {
        self.file.geometry().size_bytes
    }

    fn description(&self) -> String {
        "an 18 GB disk of 2003".to_owned()
    }

    fn read(&self, offset: u64, dst: &mut [u8]) -> Result<(), StoreError> {
        self.take_time(offset, dst.len());
        self.file.read_medium(offset, dst)
    }

    fn write(&self, offset: u64, src: &[u8]) -> Result<(), StoreError> {
        self.take_time(offset, src.len());
        self.file.write(offset, &[src], Durability::Durable)
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_command_elsewhere_waits_for_the_heads() {
        assert_eq!(service_time(true, 25_000), Duration::from_millis(1));
        assert_eq!(service_time(false, 25_000), Duration::from_micros(13_670));
    }
}
