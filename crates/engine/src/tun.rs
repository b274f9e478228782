//! TUN devices: the kernel's IP packets in user space (`Documentation/networking/tuntap.rst`), with or without the header by which
//! the kernel hands over whole super-segments and unfinished checksums (virtio 1.2 section 5.1.6, `struct virtio_net_hdr`).
//!
//! Addresses, routes and the MTU are set elsewhere. A device disappears when its last queue is closed. Creating one takes
//! `CAP_NET_ADMIN` and `/dev/net/tun`.

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

/// Bytes of [`VnetHeader`] on the device.
pub const VNET_HEADER_BYTES: usize = 10;
/// Longest packet that a device delivers: with [`Framing::Offload`] a super-segment can be as long as IP allows.
pub const MAX_PACKET_BYTES: usize = 65535;
/// Most queues of one device, as the kernel limits it (`MAX_TAP_QUEUES`).
pub const MAX_QUEUES: usize = 256;

/// What precedes each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Nothing. Packets are no longer than the MTU, and their checksums are right.
    Packets,
    /// A [`VnetHeader`]. The kernel delivers TCP super-segments and packets whose checksum is unfinished, and accepts both.
    Offload,
}

/// One queue of a TUN device. Reading and writing never block.
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
    framing: Framing,
}

impl Tun {
    /// Creates a device in the network namespace of the calling thread. A `%d` in `name` becomes the first free number.
    ///
    /// # Errors
    /// `/dev/net/tun` is not there, `CAP_NET_ADMIN` is missing, the name is taken or longer than 15 bytes.
    pub fn open(name: &str, framing: Framing) -> io::Result<Tun> {
        Tun::attach(name, framing, false)
    }

    /// Creates a device with several queues. The kernel assigns each flow to the queue through which packets of that flow were last
    /// written.
    ///
    /// # Errors
    /// Those of [`Tun::open`]; also for no queue, or more than [`MAX_QUEUES`].
    pub fn open_queues(name: &str, framing: Framing, queues: usize) -> io::Result<Vec<Tun>> {
        if !(1..=MAX_QUEUES).contains(&queues) {
            let text = format!("a TUN device has 1 to {MAX_QUEUES} queues, not {queues}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let several = queues > 1;
        let mut all = vec![Tun::attach(name, framing, several)?];
        while all.len() < queues {
            let name = all[0].name.clone();
            all.push(Tun::attach(&name, framing, several)?);
        }
        Ok(all)
    }

    fn attach(name: &str, framing: Framing, several: bool) -> io::Result<Tun> {
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
        let mut flags = libc::IFF_TUN | libc::IFF_NO_PI;
        if several {
            flags |= libc::IFF_MULTI_QUEUE;
        }
        if framing == Framing::Offload {
            flags |= libc::IFF_VNET_HDR;
        }
        let name = set_interface(&file, name, flags as libc::c_short)?;
        if framing == Framing::Offload {
            set_offload(&file, libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN)?;
        }
        Ok(Tun { file, name, framing })
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What precedes each packet.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Reads a packet into `buffer` (with [`Framing::Offload`] the part after its header) and returns its length. The kernel
    /// truncates a packet that does not fit.
    ///
    /// # Errors
    /// `WouldBlock` when there is none; `EIO` while the device is down.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<(VnetHeader, usize)> {
        match self.framing {
            Framing::Packets => Ok((VnetHeader::default(), (&self.file).read(buffer)?)),
            Framing::Offload => {
                let mut header = [0; VNET_HEADER_BYTES];
                let parts = &mut [IoSliceMut::new(&mut header), IoSliceMut::new(buffer)];
                let read = (&self.file).read_vectored(parts)?;
                let packet = read.checked_sub(VNET_HEADER_BYTES).ok_or_else(|| {
                    io::Error::new(io::ErrorKind::InvalidData, "a packet without its header")
                })?;
                Ok((VnetHeader::decode(&header), packet))
            }
        }
    }

    /// Writes a packet. With [`Framing::Packets`], `header` must be the default.
    ///
    /// # Errors
    /// `WouldBlock` when the device cannot take a packet now, `EINVAL` for bytes that are no packet or a header that contradicts the
    /// packet, `EIO` while the device is down.
    pub fn send(&self, header: &VnetHeader, packet: &[u8]) -> io::Result<()> {
        // A device takes a packet whole or not at all.
        let _whole = match self.framing {
            Framing::Packets => {
                debug_assert_eq!(*header, VnetHeader::default(), "a header on a device without");
                (&self.file).write(packet)?
            }
            Framing::Offload => {
                let header = header.encode();
                (&self.file).write_vectored(&[IoSlice::new(&header), IoSlice::new(packet)])?
            }
        };
        Ok(())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn set_interface(file: &File, name: &str, flags: libc::c_short) -> io::Result<String> {
    let mut request = crate::nic::request(name)?;
    request.ifr_ifru.ifru_flags = flags;
    // SAFETY: the descriptor is open, and TUNSETIFF reads and writes one `ifreq`, which `request` is.
    if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &mut request) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the name was shorter than its array when it went in, and the kernel writes one that ends with a zero.
    let name = unsafe { CStr::from_ptr(request.ifr_name.as_ptr()) };
    Ok(name.to_string_lossy().into_owned())
}

fn set_offload(file: &File, features: libc::c_uint) -> io::Result<()> {
    // SAFETY: the descriptor is open, and TUNSETOFFLOAD takes a number in place of a pointer.
    let rc =
        unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(features)) };
    if rc != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What a super-segment is cut into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gso {
    /// One packet.
    #[default]
    None,
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// Another kind, with the number from the header.
    Other(u8),
}

/// What the kernel says about a packet, or we about one that we hand to it. The default says that the packet is finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnetHeader {
    /// The field at `sum_start + sum_offset` holds only the sum of the pseudo header; the bytes from `sum_start` on must still be
    /// added.
    pub sum_unfinished: bool,
    /// The sender of the packet has verified the checksums.
    pub sum_verified: bool,
    /// What kind of segments it must be cut into.
    pub gso: Gso,
    /// Congestion Window Reduced applies to the first segment only.
    pub ecn: bool,
    /// Bytes of all headers.
    pub header_bytes: u16,
    /// Bytes of data in each segment but the last.
    pub gso_bytes: u16,
    /// Where the checksummed part starts.
    pub sum_start: u16,
    /// Where the checksum is stored, counted from `sum_start`.
    pub sum_offset: u16,
}

impl VnetHeader {
    const NEEDS_SUM: u8 = 1;
    const SUM_VALID: u8 = 2;
    const GSO_TCPV4: u8 = 1;
    const GSO_TCPV6: u8 = 4;
    const GSO_ECN: u8 = 0x80;

    /// As bytes, in the byte order of the machine, which is the kernel's default for TUN.
    pub fn encode(&self) -> [u8; VNET_HEADER_BYTES] {
        let mut bytes = [0; VNET_HEADER_BYTES];
        bytes[0] =
            u8::from(self.sum_unfinished) * Self::NEEDS_SUM + u8::from(self.sum_verified) * Self::SUM_VALID;
        let kind = match self.gso {
            Gso::None => 0,
            Gso::TcpV4 => Self::GSO_TCPV4,
            Gso::TcpV6 => Self::GSO_TCPV6,
            Gso::Other(kind) => kind & !Self::GSO_ECN,
        };
        bytes[1] = kind | if self.ecn { Self::GSO_ECN } else { 0 };
        let fields = [self.header_bytes, self.gso_bytes, self.sum_start, self.sum_offset];
        for (to, field) in bytes[2..].chunks_exact_mut(2).zip(fields) {
            to.copy_from_slice(&field.to_ne_bytes());
        }
        bytes
    }

    /// From bytes.
    pub fn decode(bytes: &[u8; VNET_HEADER_BYTES]) -> VnetHeader {
        let field = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        VnetHeader {
            sum_unfinished: bytes[0] & Self::NEEDS_SUM != 0,
            sum_verified: bytes[0] & Self::SUM_VALID != 0,
            gso: match bytes[1] & !Self::GSO_ECN {
                0 => Gso::None,
                Self::GSO_TCPV4 => Gso::TcpV4,
                Self::GSO_TCPV6 => Gso::TcpV6,
                kind => Gso::Other(kind),
            },
            ecn: bytes[1] & Self::GSO_ECN != 0,
            header_bytes: field(2),
            gso_bytes: field(4),
            sum_start: field(6),
            sum_offset: field(8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_header_of_the_kernel_comes_back_as_it_was() {
        for flags in 0..4 {
            for kind in [0, 1, 3, 4, 5, 0x81, 0x84] {
                let mut bytes = [flags, kind, 0, 0, 0, 0, 0, 0, 0, 0];
                for (i, field) in [52u16, 1448, 20, 16].into_iter().enumerate() {
                    bytes[2 + 2 * i..][..2].copy_from_slice(&field.to_ne_bytes());
                }
                let header = VnetHeader::decode(&bytes);
                assert_eq!(header.encode(), bytes, "{header:?}");
                assert_eq!((header.header_bytes, header.gso_bytes), (52, 1448));
                assert_eq!((header.sum_start, header.sum_offset), (20, 16));
            }
        }
        assert_eq!(VnetHeader::default().encode(), [0; VNET_HEADER_BYTES]);
    }

    #[test]
    fn names_that_no_device_can_have_are_refused() {
        let file = File::open("/dev/null").unwrap();
        for name in ["a-name-of-16-byte", "nul\0inside"] {
            let error = set_interface(&file, name, 0).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name:?}");
        }
    }

    #[test]
    fn the_number_of_queues_has_a_bound() {
        for queues in [0, MAX_QUEUES + 1] {
            let error = Tun::open_queues("none%d", Framing::Packets, queues).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
