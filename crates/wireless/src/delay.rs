//! The time of a command (thesis 3.5.1): what iSCSI waits for, and what NFS waits for to do the same work (3.6.1).

use crate::mac::{AckBackoff, AckForm, HEADERS_BYTES, Mac};

/// The terms of a read command's delay, µs each (equations 3.16 and 3.17, Figures 3.7 and 3.8). Every term is measured; none is assumed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReadDelay {
    /// Delay 1, from the end of one command to the next command on the wire: the NIC and its driver deliver the status.
    pub nic_receive_status_us: f64,
    /// Delay 1: the initiator processes the status and reports completion.
    pub initiator_done_us: f64,
    /// Delay 1: the middle layer starts the next command.
    pub middle_layer_us: f64,
    /// Delay 1: the NIC's driver sends the command.
    pub nic_send_command_us: f64,
    /// Delay 2, in the target from the command to its data: the NIC's driver delivers the command.
    pub nic_receive_command_us: f64,
    /// Delay 2: the target processes the command and prepares its data.
    pub target_us: f64,
    /// Delay 2: the disk; 0 for a volume in memory.
    pub disk_us: f64,
    /// Delay 2: the driver sends the data.
    pub nic_send_data_us: f64,
    /// Delay 3, from the data to the status: 0 if the status is in the last Data-In PDU.
    pub status_us: f64,
}

impl ReadDelay {
    /// T_delay1, µs.
    pub fn delay1_us(&self) -> f64 {
        self.nic_receive_status_us + self.initiator_done_us + self.middle_layer_us + self.nic_send_command_us
    }

    /// T_delay2, µs.
    pub fn delay2_us(&self) -> f64 {
        self.nic_receive_command_us + self.target_us + self.disk_us + self.nic_send_data_us
    }

    /// T_delay (3.17), µs.
    pub fn delay_us(&self) -> f64 {
        self.delay1_us() + self.delay2_us() + self.status_us
    }

    /// T_average_command_time (3.16) for data that take `transfer_us` on the link, µs.
    pub fn command_us(&self, transfer_us: f64) -> f64 {
        self.delay_us() + transfer_us
    }
}

/// Bytes of a basic header segment of iSCSI.
pub const BHS_BYTES: u32 = 48;

/// How the data of a read command is carried: the T_transfer of 3.16, derived from frames.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadTransfer {
    /// The link.
    pub mac: Mac,
    /// Packet size, bytes.
    pub mtu_bytes: u32,
    /// Most data of a Data-In PDU, bytes.
    pub pdu_bytes: u32,
    /// The cost of TCP's acknowledgements.
    pub backoff: AckBackoff,
}

impl ReadTransfer {
    /// The segments of `data_bytes` with their PDU headers: the number of full ones, and the bytes in the last one.
    fn segments(&self, data_bytes: u32) -> (u32, u32) {
        let stream = data_bytes + BHS_BYTES * data_bytes.div_ceil(self.pdu_bytes.max(1));
        let most = self.mtu_bytes.saturating_sub(HEADERS_BYTES as u32).max(1);
        (stream / most, stream % most)
    }

    /// The time on the link of a read of `data_bytes` whose status is in the last Data-In PDU, µs. The first command and the first data
    /// find an idle medium and a backoff that is complete, unless commands follow each other (`busy`).
    pub fn read_us(&self, data_bytes: u32, busy: bool) -> f64 {
        let form = AckForm::Standard;
        let (full, last) = self.segments(data_bytes);
        let segments = full + u32::from(last > 0);
        let packet = |payload: f64| self.mac.cycle_us(payload + HEADERS_BYTES, form);
        let mut data = f64::from(full) * self.mac.cycle_us(f64::from(self.mtu_bytes), form);
        if last > 0 {
            data += packet(f64::from(last));
        }
        let overlap = if self.backoff == AckBackoff::Overlapped { self.mac.backoff_us() } else { 0.0 };
        let acknowledgements = f64::from(segments / 2) * (packet(0.0) - overlap);
        let waits = self.mac.backoff_us() + self.mac.t_difs_us;
        packet(f64::from(BHS_BYTES)) + data + acknowledgements - if busy { 0.0 } else { 2.0 * waits }
    }
}

/// An NFS file to be read (3.6.1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NfsRead {
    /// Folders on the path to it; each costs an ACCESS.
    pub folders: u32,
    /// Its size, bytes.
    pub file_bytes: u64,
    /// Most bytes of one READ.
    pub rsize_bytes: u64,
    /// READs outstanding at a time.
    pub depth: u32,
}

/// How much of a file the client has cached, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NfsCache {
    /// Nothing.
    Cold,
    /// All of it, last checked this many seconds ago.
    AgeS(u32),
}

/// Linux revalidates metadata older than this, seconds (thesis 3.6.1).
pub const NFS_METADATA_FRESH_S: u32 = 3;
/// And data older than this, seconds.
pub const NFS_DATA_FRESH_S: u32 = 30;

impl NfsRead {
    /// Round trips to read the file: an ACCESS for each folder, LOOKUP and ACCESS of the file, and its READs; with a cache, only what must
    /// be revalidated.
    pub fn round_trips(&self, cache: NfsCache) -> u64 {
        match cache {
            NfsCache::Cold => {
                u64::from(self.folders) + 2 + self.reads().div_ceil(u64::from(self.depth.max(1)))
            }
            NfsCache::AgeS(age) => u64::from(age > NFS_METADATA_FRESH_S) + u64::from(age > NFS_DATA_FRESH_S),
        }
    }

    /// READs of the file.
    pub fn reads(&self) -> u64 {
        self.file_bytes.div_ceil(self.rsize_bytes.max(1))
    }

    /// The predicted time, µs: each round trip takes `round_trip_us` in addition to the transfer, which takes `transfer_us` for all data.
    pub fn time_us(&self, cache: NfsCache, round_trip_us: f64, transfer_us: f64) -> f64 {
        let transfer = if cache == NfsCache::Cold { transfer_us } else { 0.0 };
        self.round_trips(cache) as f64 * round_trip_us + transfer
    }
}

/// Whether a version of NFS waits for the server's disk at each write of data (3.6.1: version 2 does; 3 and 4 do so at COMMIT).
pub fn nfs_data_writes_are_synchronous(version: u32) -> bool {
    version <= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_term_counts_once() {
        let one = ReadDelay {
            nic_receive_status_us: 1.0,
            initiator_done_us: 2.0,
            middle_layer_us: 4.0,
            nic_send_command_us: 8.0,
            nic_receive_command_us: 16.0,
            target_us: 32.0,
            disk_us: 64.0,
            nic_send_data_us: 128.0,
            status_us: 256.0,
        };
        assert_eq!((one.delay1_us(), one.delay2_us(), one.delay_us()), (15.0, 240.0, 511.0));
        assert_eq!(one.command_us(1000.0), 1511.0);
        let collapsed = ReadDelay { status_us: 0.0, ..one };
        assert_eq!(one.delay_us() - collapsed.delay_us(), 256.0, "status in the last Data-In saves delay 3");
    }

    #[test]
    fn a_transfer_is_its_frames() {
        let mac = Mac::B.with_r_ack(1.0);
        let transfer = ReadTransfer { mac, mtu_bytes: 1500, pdu_bytes: 8192, backoff: AckBackoff::Serial };
        // 2048 + 48 bytes: one full segment and one of 648; 131072 + 16 * 48: 91 full ones and one of 72.
        assert_eq!((transfer.segments(2048), transfer.segments(131_072)), ((1, 648), (91, 72)));
        let cycle = |packet: f64| mac.cycle_us(packet, AckForm::Standard);
        let frames = cycle(100.0) + cycle(1500.0) + cycle(700.0) + cycle(52.0);
        assert!((transfer.read_us(2048, true) - frames).abs() < 1e-9);
        assert!((frames - transfer.read_us(2048, false) - 2.0 * (310.0 + 50.0)).abs() < 1e-9);
        let overlapped = ReadTransfer { backoff: AckBackoff::Overlapped, ..transfer };
        assert!((frames - overlapped.read_us(2048, true) - 310.0).abs() < 1e-9);
    }

    #[test]
    fn nfs_asks_before_it_reads_and_again_when_its_cache_is_old() {
        let file = NfsRead { folders: 3, file_bytes: 100_000, rsize_bytes: 32_768, depth: 1 };
        assert_eq!(file.round_trips(NfsCache::Cold), 3 + 2 + 4);
        assert_eq!(NfsRead { depth: 4, ..file }.round_trips(NfsCache::Cold), 3 + 2 + 1);
        let again = [0, 3, 4, 30, 31].map(|age| file.round_trips(NfsCache::AgeS(age)));
        assert_eq!(again, [0, 0, 1, 1, 2]);
        assert_eq!(file.time_us(NfsCache::Cold, 10.0, 500.0), 590.0);
    }
}
