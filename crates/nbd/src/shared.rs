//! What all connections of a server share.

use std::sync::Arc;

use engine::{Lane, SlabRing};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::counters::Counters;
use crate::export::Exports;
use crate::seats::Seats;

/// A job that may block.
pub type Job = Box<dyn FnOnce() + Send>;

/// Hands a job to a worker thread of a unit's lane.
pub type Offload = Arc<dyn Fn(&Lane, Job) + Send + Sync>;

/// The memory for request data is counted in pages of this many bytes.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// What all connections share.
pub(crate) struct Shared {
    pub exports: Arc<dyn Exports>,
    pub offload: Offload,
    pub tls: Option<TlsAcceptor>,
    pub tls_required: bool,
    pub client_certificates: bool,
    pub slabs: SlabRing,
    pub seats: Arc<Seats>,
    pub counters: Arc<Counters>,
    /// The memory for request data, in pages.
    pub memory: Arc<Semaphore>,
    /// The share of one connection, pages.
    pub share_pages: usize,
    /// The longest request, bytes.
    pub request_bytes_max: u32,
    pub ending: watch::Receiver<bool>,
}
