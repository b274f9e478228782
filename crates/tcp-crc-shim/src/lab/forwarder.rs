//! The forwarder between the two halves of the network.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use engine::tun::{Framing, MAX_PACKET_BYTES, Tun, VnetHeader};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use super::End;
use crate::commands::SetupError;

/// What happens to a packet.
pub enum Pass {
    /// It is forwarded in its present form.
    On,
    /// It is dropped.
    Drop,
    /// These packets are forwarded instead, in this order.
    These(Vec<Vec<u8>>),
}

/// Decides about a packet on its way to an end. It may change the packet.
pub type Middle = Box<dyn FnMut(End, &mut Vec<u8>) -> Pass + Send>;

/// Forwards everything unchanged.
pub fn untouched() -> Middle {
    Box::new(|_, _| Pass::On)
}

/// The thread; it ends when this is dropped.
pub(super) struct Forwarder {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Forwarder {
    /// Makes `f0` and `f1` in the namespace of the calling thread and forwards between them.
    pub(crate) fn start(middle: Middle) -> Result<Forwarder, SetupError> {
        let open = |name| {
            Tun::open(name, Framing::Packets).map_err(SetupError::system("a TUN device cannot be made"))
        };
        let tuns = [open("f0")?, open("f1")?];
        let failed = SetupError::system("a forwarder cannot be started");
        let stop = Arc::new(
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(|errno| failed(errno.into()))?,
        );
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("forwarder".into())
            .spawn(move || run(&tuns, middle, &stopped))
            .map_err(failed)?;
        Ok(Forwarder { stop, thread: Some(thread) })
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(tuns: &[Tun; 2], mut middle: Middle, stop: &OwnedFd) {
    let mut buffer = vec![0; MAX_PACKET_BYTES];
    let mut packet = Vec::new();
    loop {
        let mut fds = [tuns[0].as_fd(), tuns[1].as_fd(), stop.as_fd()]
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        if !fds[2].revents().is_empty() {
            return;
        }
        for (from, to, end) in [(0, 1, End::Server), (1, 0, End::Client)] {
            for _ in 0..64 {
                let Ok((_, read)) = tuns[from].receive(&mut buffer) else { break };
                packet.clear();
                packet.extend_from_slice(&buffer[..read]);
                // Packets that a device does not accept are lost, as on any network.
                let send = |packet: &[u8]| drop(tuns[to].send(&VnetHeader::default(), packet));
                match middle(end, &mut packet) {
                    Pass::On => send(&packet),
                    Pass::Drop => {}
                    Pass::These(packets) => packets.iter().for_each(|packet| send(packet)),
                }
            }
        }
    }
}
