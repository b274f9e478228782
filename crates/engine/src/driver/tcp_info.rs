//! What the kernel's TCP knows about a connection (tcp(7), TCP_INFO).

use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// A snapshot of one TCP connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// The shortest round trip seen lately: the path's own, without queues. Zero before the first.
    pub min_rtt: Duration,
    /// Mean deviation of `rtt`.
    pub rtt_variation: Duration,
    /// Congestion window, segments.
    pub congestion_window_segments: u32,
    /// Sending maximum segment size, bytes.
    pub send_mss_bytes: u32,
    /// Path MTU, bytes.
    pub path_mtu_bytes: u32,
    /// Segments sent and not acknowledged.
    pub unacked_segments: u32,
    /// Segments retransmitted since the beginning.
    pub total_retransmits: u32,
    /// Segments that arrived out of order since the beginning, as those do that follow a lost one; 0 where the kernel does not count
    /// them (Linux before 5.4).
    pub out_of_order_segments: u32,
    /// Time since the peer last acknowledged anything, or sent data.
    pub last_received: Duration,
    /// Bytes that the peer has acknowledged since the beginning; 0 where the kernel does not count them (Linux before 4.1).
    pub acked_bytes: u64,
    /// Bytes that the kernel has accepted and not yet sent.
    pub unsent_bytes: u32,
}

pub(super) fn query(fd: BorrowedFd<'_>) -> Option<TcpInfo> {
    let mut raw = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: `raw` has room for `len` bytes, `len` is a valid socklen_t, and the kernel writes at most `len` bytes.
    let rc = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, raw.as_mut_ptr().cast(), &mut len)
    };
    if rc != 0 {
        return None;
    }
    // SAFETY: all bytes were zeroed and then partly overwritten; the struct is made of integers, for which any bytes are valid.
    let raw = unsafe { raw.assume_init() };
    let micros = |us: u32| Duration::from_micros(us.into());
    Some(TcpInfo {
        rtt: micros(raw.tcpi_rtt),
        // The kernel's value before the first measurement is the largest number.
        min_rtt: if raw.tcpi_min_rtt == u32::MAX { Duration::ZERO } else { micros(raw.tcpi_min_rtt) },
        rtt_variation: micros(raw.tcpi_rttvar),
        congestion_window_segments: raw.tcpi_snd_cwnd,
        send_mss_bytes: raw.tcpi_snd_mss,
        path_mtu_bytes: raw.tcpi_pmtu,
        unacked_segments: raw.tcpi_unacked,
        total_retransmits: raw.tcpi_total_retrans,
        out_of_order_segments: raw.tcpi_rcv_ooopack,
        // Either shows that the peer is there.
        last_received: Duration::from_millis(raw.tcpi_last_ack_recv.min(raw.tcpi_last_data_recv).into()),
        acked_bytes: raw.tcpi_bytes_acked,
        unsent_bytes: raw.tcpi_notsent_bytes,
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::time::Instant;

    use super::*;

    /// One end receives data only, and the other acknowledgements only.
    #[test]
    fn either_end_of_a_stream_has_received_something_lately() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        let begin = Instant::now();
        loop {
            sender.write_all(&[1; 1000]).unwrap();
            receiver.read_exact(&mut [0; 1000]).unwrap();
            let age = |end: &TcpStream| query(end.as_fd()).unwrap().last_received;
            let age = age(&sender).max(age(&receiver));
            let elapsed = begin.elapsed();
            if elapsed > Duration::from_millis(500) && age < elapsed / 4 {
                break;
            }
            assert!(
                elapsed < Duration::from_secs(20),
                "{age:?} since something was received, after {elapsed:?}"
            );
        }
    }
}
