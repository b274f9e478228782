//! A logical unit as the server holds it: the SCSI device server, the store below it, and what joins the two.

use std::sync::Arc;

use blockstore::{BlockStore, Geometry, Placement, StoreError};
use engine::Lane;
use parking_lot::RwLock;
use scsi::{LogicalUnit, LuConfig, NaaIdentifier, TargetPort, TransferLimits};

use crate::config::{Limits, LunConfig};
use crate::observe::{LunStats, Metrics};

/// A logical unit with its store. Shared by every session that uses it.
pub struct Device {
    /// The device server.
    pub unit: LogicalUnit,
    /// The medium.
    pub store: Arc<dyn BlockStore>,
    /// Whether medium operations run on a worker thread, because the store may block.
    pub offload: bool,
    /// Its share of the worker threads.
    pub lane: Lane,
    /// Held shared by plain writes and exclusively by operations that read, decide and write.
    pub(crate) exclusive: RwLock<()>,
    /// What it has done.
    pub stats: Arc<LunStats>,
    /// What it was made from, to know after a change of configuration whether it is still the same.
    pub config: LunConfig,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device")
            .field("lun", &self.config.number)
            .field("store", &self.store.description())
            .finish_non_exhaustive()
    }
}

impl Device {
    /// Opens the store of `config` and puts a unit on it.
    ///
    /// # Errors
    /// What the store says.
    pub fn open(
        config: &LunConfig,
        target_name: &str,
        ports: &[TargetPort],
        limits: &Limits,
        metrics: &Metrics,
    ) -> Result<Self, StoreError> {
        let store = config.store.open()?;
        Ok(Self::new(config, store, target_name, ports, limits, metrics))
    }

    /// Puts a unit on a store that is already open.
    pub fn new(
        config: &LunConfig,
        store: Arc<dyn BlockStore>,
        target_name: &str,
        ports: &[TargetPort],
        limits: &Limits,
        metrics: &Metrics,
    ) -> Self {
        let geometry: Geometry = store.geometry();
        // Name and number make an identity that stays the same over restarts, and differs between units.
        let identity = identity(target_name, config.number, config.serial.as_deref());
        let unit = LogicalUnit::new(LuConfig {
            lun: config.number,
            product: config.product.clone().unwrap_or_else(|| "VIRTUAL DISK".into()),
            serial: config.serial.clone().unwrap_or_else(|| format!("{identity:016x}")),
            naa: NaaIdentifier::Local(identity),
            blocks: geometry.blocks(),
            block_bytes: geometry.logical_block_bytes,
            physical_block_bytes: geometry.physical_block_bytes,
            read_only: config.read_only || geometry.read_only,
            rotational: config.rotational || geometry.rotational,
            thin: geometry.discard_granularity_bytes != 0,
            write_cache: config.write_cache,
            limits: TransferLimits::for_block_bytes(geometry.logical_block_bytes),
            target_name: target_name.to_owned(),
            target_ports: ports.to_vec(),
            ..LuConfig::default()
        });
        Self {
            unit,
            offload: store.placement() == Placement::Offload,
            store,
            lane: Lane::new(limits.store_concurrency_per_lun),
            exclusive: RwLock::new(()),
            stats: metrics.lun(target_name, config.number),
            config: config.clone(),
        }
    }
}

/// A 64-bit identity of a unit by its names: the CRC32C of them, twice with different beginnings. Not for security: two
/// operators who choose equal names get equal identities on purpose.
fn identity(target_name: &str, lun: u16, serial: Option<&str>) -> u64 {
    let text = match serial {
        Some(serial) => format!("serial {serial}"),
        None => format!("{target_name} lun {lun}"),
    };
    let half = |seed: &str| u64::from(iscsi_core::digest::checksum(format!("{seed}{text}").as_bytes()));
    half("intact ") << 32 | half("unit ")
}
