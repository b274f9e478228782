//! Network namespaces (network_namespaces(7)): devices, addresses, routes and ports of their own.
//!
//! A [`NetNs`] has no name. It lives as long as something holds it, or a thread, socket or device is in it; nothing is left behind when a
//! program ends. Creating and entering one takes `CAP_SYS_ADMIN`.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// `<asm-generic/socket.h>`.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// A network namespace, held open.
#[derive(Debug)]
pub struct NetNs {
    file: OwnedFd,
}

impl NetNs {
    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn current() -> io::Result<NetNs> {
        NetNs::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// The namespace that a file of `/proc` or `/run/netns` stands for.
    ///
    /// # Errors
    /// There is no such file.
    pub fn open(path: &Path) -> io::Result<NetNs> {
        Ok(NetNs { file: File::open(path)?.into() })
    }

    /// A new one, with a loopback device that is down.
    ///
    /// # Errors
    /// `CAP_SYS_ADMIN` is missing, or the system has no room for one more.
    pub fn create() -> io::Result<NetNs> {
        // The calling thread stays where it is.
        on_a_thread(|| {
            // SAFETY: only the network namespace changes, and only that of this thread, which ends at once. Descriptors, memory and
            // credentials stay shared with the other threads.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            NetNs::current()
        })?
    }

    /// Moves the calling thread into it. From now on, what this thread opens and starts is in the namespace. Other threads stay where they
    /// are.
    ///
    /// # Errors
    /// `CAP_SYS_ADMIN` is missing.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Runs `work` inside, on a thread of its own.
    ///
    /// # Errors
    /// Those of [`NetNs::enter`].
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_a_thread(|| self.enter().map(|()| work()))?
    }

    /// The number by which the kernel's programs (BPF) know the namespace: never 0, and not reused until the machine restarts.
    ///
    /// # Errors
    /// Those of [`NetNs::enter`], or the kernel is older than 5.14.
    pub fn cookie(&self) -> io::Result<u64> {
        self.within(|| {
            let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::DGRAM, None)?;
            let mut cookie = 0u64;
            let mut length = size_of::<u64>() as libc::socklen_t;
            // SAFETY: the kernel writes at most `length` bytes, those of `cookie`; both live until the call returns.
            let result = unsafe {
                libc::getsockopt(
                    socket.as_raw_fd(),
                    libc::SOL_SOCKET,
                    SO_NETNS_COOKIE,
                    (&raw mut cookie).cast(),
                    &raw mut length,
                )
            };
            if result == 0 { Ok(cookie) } else { Err(io::Error::last_os_error()) }
        })?
    }

    /// A path that stands for the namespace while it is held, for programs that take a path.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Runs `work` on a new thread and waits for it. A panic of `work` continues in the caller.
fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("netns".into()).spawn_scoped(scope, work)?;
        thread.join().map_or_else(|panic| std::panic::resume_unwind(panic), Ok)
    })
}
