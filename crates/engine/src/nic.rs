//! What a network device does by itself (ethtool(8); `<linux/ethtool.h>`, `<linux/sockios.h>`).

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;

/// "Get TX hardware csum enable", which reads as 1 if the device computes the sums of outgoing packets.
const ETHTOOL_GTXCSUM: u32 = 0x16;

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// A request about the device `name`.
pub(crate) fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: `ifreq` consists of integers, addresses as bytes and a pointer. Zeros are valid for all of them.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() || name.contains('\0') {
        let text =
            format!("`{name}` is no name of a network device: it has at most {} bytes", libc::IFNAMSIZ - 1);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// Whether a device of the calling thread's network namespace computes the sums of outgoing packets, TCP's among them (`ethtool -k`:
/// tx-checksumming). A device that cannot be asked does not.
///
/// # Errors
/// There is no such device (`ENODEV`).
pub fn computes_sums(name: &str) -> io::Result<bool> {
    let mut request = request(name)?;
    let mut value = Value { command: ETHTOOL_GTXCSUM, data: 0 };
    request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut value).cast();
    let socket = UnixDatagram::unbound()?;
    // SAFETY: the descriptor is open. SIOCETHTOOL reads one `ifreq`, and with this command it reads and writes one `ethtool_value`
    // where `ifru_data` points. Both live until the call returns, and nothing else refers to them meanwhile.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &mut request) } == 0 {
        return Ok(value.data != 0);
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(false),
        error => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_asked_and_what_is_not_there_is_told() {
        // Loopback never sends anything that needs a sum, and says that it computes them.
        assert!(computes_sums("lo").unwrap());
        assert_eq!(computes_sums("none-such").unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert_eq!(computes_sums("longer than a name").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
