//! A disk whose operations are futures, on two runtimes that do not know of each other, and without a
//! runtime.

#[path = "support/server.rs"]
mod server;

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use initiator::{AsyncDisk, IoError, OpenError};
use iscsi_core::wire::Lun;
use target::Server;

use self::server::{LUN, end, options, server};

const MIB: usize = 1 << 20;

async fn open(server: &Server) -> AsyncDisk {
    AsyncDisk::connect(options(server.portals()[0]), LUN).await.unwrap()
}

fn pattern(n: u8) -> Vec<u8> {
    (0..9 * MIB).map(|i| (i / 512) as u8 ^ n ^ i as u8).collect()
}

/// Longer than one command; each caller uses its own range.
async fn there_and_back(disk: AsyncDisk, n: u8) {
    let (at, data) = (u64::from(n) * 10 * MIB as u64, pattern(n));
    disk.write(at, &data).await.unwrap();
    disk.flush().await.unwrap();
    let mut back = vec![0; data.len()];
    disk.read(at, &mut back).await.unwrap();
    assert!(back == data, "{n}");
    disk.unmap(at, MIB as u64).await.unwrap();
    disk.write_bytes(at + MIB as u64, &vec![n; 512].into()).await.unwrap();
    disk.read(at, &mut back).await.unwrap();
    assert!(back[..MIB].iter().all(|byte| *byte == 0) && back[MIB..MIB + 512] == [n; 512]);
    assert!(back[MIB + 512..] == data[MIB + 512..], "{n}");
}

async fn what_is_not_there(disk: AsyncDisk) {
    let beyond = disk.blocking().capacity().bytes();
    assert!(matches!(disk.read(beyond, &mut [0; 512]).await, Err(IoError::Request(_))));
    assert!(matches!(disk.write(1, &[0; 512]).await, Err(IoError::Request(_))));
}

#[test]
fn on_tokio() {
    let server = server();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let disk = open(&server).await;
        let tasks: Vec<_> = (0..3).map(|n| tokio::spawn(there_and_back(disk.clone(), n))).collect();
        for task in tasks {
            task.await.unwrap();
        }
        what_is_not_there(disk).await;
        let missing = AsyncDisk::connect(options(server.portals()[0]), Lun(9 << 48)).await;
        assert!(matches!(missing, Err(OpenError::Unit(_))));
    });
    end(server);
}

#[test]
fn on_smol() {
    let server = server();
    smol::block_on(async {
        let disk = open(&server).await;
        let tasks: Vec<_> = (0..3).map(|n| smol::spawn(there_and_back(disk.clone(), n))).collect();
        for task in tasks {
            task.await;
        }
        what_is_not_there(disk).await;
    });
    end(server);
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A minimal runtime.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_write_that_is_given_up_harms_nobody() {
    let server = server();
    let disk = block_on(open(&server));
    {
        let data = pattern(0);
        let mut writing = std::pin::pin!(disk.write(0, &data));
        let polled = writing.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending(), "its commands are under way");
    }
    block_on(there_and_back(disk.clone(), 1));
    // A waiting caller learns that the server is gone, and does not hang.
    end(server);
    let session = disk.blocking().session().clone();
    session.logout();
    assert!(matches!(block_on(disk.flush()), Err(IoError::SessionLost(_))));
}
