//! The server: listens, limits what all connections together use, and shuts down.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use engine::SlabRing;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::connection;
use crate::counters::{Counters, Refusal};
use crate::export::{Exports, REQUEST_BYTES_MAX};
use crate::shared::{Offload, PAGE_BYTES, Shared};
use crate::tls::{self, TlsError, TlsOptions};

/// Most simultaneous connections, including those still negotiating.
pub const CONNECTIONS_MAX: usize = 256;
/// The longest request may use one part in this many of the memory for data, and so may a connection.
const SHARE: u64 = 4;
/// Most threads that drive connections.
const THREADS_MAX: usize = 4;
/// Slabs for short data.
const SLAB_BYTES: usize = 128 << 10;
/// After this much silence, TCP probes whether the peer is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// How long a listener that cannot accept pauses.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The options of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where to listen; port 0 lets the system choose.
    pub listen: Vec<SocketAddr>,
    /// TLS, if the server has a certificate.
    pub tls: Option<TlsOptions>,
    /// Memory for the data of all requests, bytes; at least four times the longest request.
    pub buffer_bytes_max: u64,
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The server cannot listen on an address.
    #[error("cannot listen for NBD on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// A certificate or a key cannot be used.
    #[error("TLS for NBD cannot be had: {0}")]
    Tls(#[from] TlsError),
    /// Its threads cannot be started.
    #[error("the threads for NBD cannot be had: {0}")]
    Threads(io::Error),
}

/// A running server.
pub struct Server {
    runtime: Option<Runtime>,
    addresses: Vec<SocketAddr>,
    ending: watch::Sender<bool>,
    connections: Arc<Semaphore>,
    counters: Arc<Counters>,
}

impl Server {
    /// Starts serving `exports`; work that may block is given to `offload`.
    ///
    /// # Errors
    /// The first thing that failed; nothing is left running then.
    pub fn start(options: &Options, exports: Arc<dyn Exports>, offload: Offload) -> Result<Self, StartError> {
        let tls = options.tls.as_ref().map(tls::configuration).transpose()?.map(TlsAcceptor::from);
        let mut listeners = Vec::new();
        for &address in &options.listen {
            let refuse = |error| StartError::Listen { address, error };
            let listener = TcpListener::bind(address).map_err(refuse)?;
            listener.set_nonblocking(true).map_err(refuse)?;
            listeners.push(listener);
        }
        let addresses = listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("nbd")
            .enable_all()
            .build()
            .map_err(StartError::Threads)?;
        let (ending, watched) = watch::channel(false);
        let share = options.buffer_bytes_max / SHARE;
        let counters = Arc::<Counters>::default();
        let shared = Arc::new(Shared {
            exports,
            offload,
            tls,
            tls_required: options.tls.as_ref().is_some_and(|tls| tls.required),
            client_certificates: options.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some()),
            slabs: SlabRing::new(SLAB_BYTES, (options.buffer_bytes_max as usize / SLAB_BYTES).max(16)),
            seats: Arc::default(),
            counters: Arc::clone(&counters),
            memory: Arc::new(Semaphore::new((options.buffer_bytes_max / PAGE_BYTES) as usize)),
            share_pages: (share / PAGE_BYTES) as usize,
            request_bytes_max: 1 << share.clamp(PAGE_BYTES, REQUEST_BYTES_MAX.into()).ilog2(),
            ending: watched,
        });
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        for listener in listeners {
            let (shared, connections) = (Arc::clone(&shared), Arc::clone(&connections));
            runtime.spawn(accept(listener, shared, connections));
        }
        Ok(Self { runtime: Some(runtime), addresses, ending, connections, counters })
    }

    /// The addresses on which it listens, with the ports that the system chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What it counts.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Accepts no more connections and requests, waits up to `grace` for outstanding ones, and shuts down.
    pub fn shutdown(mut self, grace: Duration) {
        let _ = self.ending.send(true);
        if let Some(runtime) = self.runtime.take() {
            let all = self.connections.acquire_many(CONNECTIONS_MAX as u32);
            let ended = runtime.block_on(async { tokio::time::timeout(grace, all).await.is_ok() });
            if !ended {
                tracing::warn!("NBD connections end although requests are still under way");
            }
            runtime.shutdown_background();
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, connections: Arc<Semaphore>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let mut ending = shared.ending.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ending.wait_for(|ending| *ending) => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                // A connection above the limit is closed; the client can try again when others have gone.
                let Ok(slot) = Arc::clone(&connections).try_acquire_owned() else {
                    shared.counters.refuse(Refusal::Full);
                    tracing::debug!(%peer, "refused: {CONNECTIONS_MAX} NBD connections are open");
                    continue;
                };
                prepare(&stream);
                tokio::spawn(connection::serve(Arc::clone(&shared), stream, peer, slot));
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept NBD connections; trying again");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Detects peers that have vanished, and sends short replies without delay.
fn prepare(stream: &TcpStream) {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 4);
    let set = SockRef::from(stream).set_tcp_keepalive(&keepalive).and_then(|()| stream.set_nodelay(true));
    if let Err(error) = set {
        tracing::debug!(%error, "an NBD connection goes on without keepalive");
    }
}
