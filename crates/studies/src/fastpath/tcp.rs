//! What TCP costs the receiver: the system calls of a receive on the loopback, whose data is dropped in the kernel instead of copied.

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use rustix::net::{RecvFlags, recv};
use rustix::time::{ClockId, clock_gettime};

const BUFFER_BYTES: usize = 256 * 1024;

/// CPU time of the receiving thread for a byte: seconds.
///
/// The segments of the loopback are processed by whoever sends, mostly: this is the lower end of what TCP costs.
///
/// # Errors
/// When the loopback does not work.
pub(super) fn seconds_per_byte(bytes: u64) -> io::Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let sender = std::thread::spawn(move || -> io::Result<()> {
        let mut stream = TcpStream::connect(address)?;
        let data = vec![0x5a; BUFFER_BYTES];
        for _ in 0..bytes.div_ceil(BUFFER_BYTES as u64) {
            stream.write_all(&data)?;
        }
        Ok(())
    });
    let (stream, _) = listener.accept()?;
    let mut scratch = vec![0u8; BUFFER_BYTES];
    let began = thread_time();
    let mut received = 0;
    loop {
        // Linux drops what a receive with this flag would copy (tcp(7)).
        match recv(&stream, &mut scratch[..], RecvFlags::TRUNC) {
            Ok((_, 0)) => break,
            Ok((_, n)) => received += n as u64,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let spent = thread_time() - began;
    sender.join().map_err(|_| io::Error::other("the sender panicked"))??;
    Ok(spent.as_secs_f64() / received as f64)
}

fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
