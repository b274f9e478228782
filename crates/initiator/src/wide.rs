//! A logical unit over as many sessions as pay, for programs that one core does not serve.

mod gauge;
mod width;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::thread;

use iscsi_core::wire::Lun;
use parking_lot::{Mutex, RwLock};

use self::gauge::Gauge;
pub use self::width::{Interval, Width};
use crate::asynchronous::OpenError;
use crate::cdb;
use crate::disk::{Capacity, Disk};
use crate::error::{IoError, RESERVATION_CONFLICT};
use crate::options::Options;
use crate::session::Session;
use crate::unit::LostWrites;

/// A [`Disk`] over one or several sessions. Where its options let a session
/// [choose the number of its connections](Options::tune_connections), it also chooses the number of sessions, up to one for each core of
/// this machine: it tries more, and keeps them where the throughput gains a tenth ([`Width`]). Otherwise it has one session.
///
/// To the target each session is a host port of its own (an I_T nexus, SAM-5 4.8): reservations of one are not those of the others. A unit
/// that refuses a session because of a reservation is used through the first session alone from then on.
///
/// All calls block, and may come from many threads at once. Each call uses one session, that with the fewest bytes outstanding.
#[derive(Debug)]
pub struct WideDisk {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The first one never changes.
    lanes: RwLock<Vec<Arc<Lane>>>,
    /// The first so many of them are used.
    used: AtomicU16,
    options: Options,
    lun: Lun,
    capacity: Capacity,
    /// `None` where the number of sessions stays as it is.
    gauge: Option<Mutex<Gauge>>,
    width: Mutex<Width>,
    /// Losses that a flush has found which failed in the end.
    untold: Mutex<Option<LostWrites>>,
}

/// A session, and the unit by it.
#[derive(Debug)]
struct Lane {
    disk: Disk,
    outstanding_bytes: AtomicU64,
    /// Something was written since the last flush.
    is_dirty: AtomicBool,
}

impl Lane {
    fn new(disk: Disk) -> Arc<Self> {
        Arc::new(Self { disk, outstanding_bytes: AtomicU64::new(0), is_dirty: AtomicBool::new(false) })
    }

    /// A flush by this session has failed. Where it was refused because of a reservation and another session `has_flushed` the unit's cache
    /// before, what is left to do is to find out whether the writes of this one were still there: TEST UNIT READY is allowed by every
    /// reservation (SPC-4 5.13.1).
    fn confirm(&self, error: IoError, has_flushed: bool) -> Result<(), IoError> {
        if !has_flushed || !is_reservation_conflict(&error) {
            return Err(error);
        }
        let told = self.disk.epoch();
        self.disk.query(&cdb::test_unit_ready(), 0)?;
        self.disk.flushed(told)
    }
}

/// What a call does to the unit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Reads,
    Writes,
}

impl WideDisk {
    /// Opens a session, and the unit `lun` of its target.
    ///
    /// # Errors
    /// [`OpenError`]: there is no session, or no such unit.
    pub fn open(options: Options, lun: Lun) -> Result<Self, OpenError> {
        let width = if options.tunes_connections() { Width::of(&options) } else { Width::fixed(1) };
        Self::open_with(options, lun, width)
    }

    /// The same with another rule, or a fixed number of sessions. Where there cannot be so many, there are fewer.
    ///
    /// # Errors
    /// Those of [`WideDisk::open`], of the first session.
    pub fn open_with(options: Options, lun: Lun, width: Width) -> Result<Self, OpenError> {
        let (first, wanted) = (open_lane(&options, lun)?, width.wanted());
        let shared = Arc::new(Shared {
            capacity: first.disk.capacity(),
            lanes: RwLock::new(vec![first]),
            used: AtomicU16::new(1),
            options,
            lun,
            gauge: width.adapts().then(Mutex::default),
            width: Mutex::new(width),
            untold: Mutex::new(None),
        });
        shared.open_up_to(wanted);
        Ok(Self { shared })
    }

    /// The unit by its first session, which stays.
    pub fn first(&self) -> Disk {
        self.shared.first().disk.clone()
    }

    /// Its size when it was opened.
    pub fn capacity(&self) -> Capacity {
        self.shared.capacity
    }

    /// Sessions over which commands are spread now.
    pub fn sessions(&self) -> u16 {
        self.shared.used.load(Ordering::Relaxed)
    }

    /// Reads `to.len()` bytes at `offset`.
    ///
    /// # Errors
    /// Those of [`Disk::read`].
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), IoError> {
        let length = to.len() as u64;
        self.shared.by_a_lane(length, Access::Reads, |disk| disk.read(offset, to))
    }

    /// Writes `from` at `offset`.
    ///
    /// # Errors
    /// Those of [`Disk::write`].
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), IoError> {
        self.shared.by_a_lane(from.len() as u64, Access::Writes, |disk| disk.write(offset, from))
    }

    /// Writes zeros, or deallocates where that reads as zeros.
    ///
    /// # Errors
    /// Those of [`Disk::write_zeroes`].
    pub fn write_zeroes(&self, offset: u64, length: u64) -> Result<(), IoError> {
        // The zeros are not sent, so they do not count as throughput.
        self.shared.by_a_lane(0, Access::Writes, |disk| disk.write_zeroes(offset, length))
    }

    /// Makes all earlier writes durable, by whichever session they were written.
    ///
    /// # Errors
    /// Those of [`Disk::flush`]; what several sessions have lost is reported as one.
    pub fn flush(&self) -> Result<(), IoError> {
        let lanes = self.shared.lanes.read().clone();
        let mut untold = self.shared.untold.lock();
        // Only the session that wrote a block knows whether the target has lost it since.
        for (at, lane) in lanes.iter().enumerate() {
            // Others may have written by the first one.
            if !lane.is_dirty.swap(false, Ordering::AcqRel) && at > 0 {
                continue;
            }
            match lane.disk.flush().or_else(|error| lane.confirm(error, at > 0)) {
                Ok(()) => {}
                Err(IoError::LostWrites(lost)) => {
                    *untold = Some(match untold.take() {
                        Some(earlier) => earlier.join(*lost),
                        None => *lost,
                    });
                }
                Err(error) => {
                    lane.is_dirty.store(true, Ordering::Release);
                    return Err(error);
                }
            }
        }
        untold.take().map_or(Ok(()), |lost| Err(IoError::LostWrites(Box::new(lost))))
    }
}

impl Shared {
    /// Has one of the sessions carry out `call`, which moves `bytes`.
    fn by_a_lane(
        self: &Arc<Self>,
        bytes: u64,
        access: Access,
        mut call: impl FnMut(&Disk) -> Result<(), IoError>,
    ) -> Result<(), IoError> {
        let (lane, is_first) = self.choose_lane();
        let mut over = |lane: &Lane| {
            lane.outstanding_bytes.fetch_add(bytes, Ordering::Relaxed);
            let result = call(&lane.disk);
            lane.outstanding_bytes.fetch_sub(bytes, Ordering::Relaxed);
            // Afterwards: a flush that began meanwhile does not cover it. Also after an error, for a part may have been written.
            if access == Access::Writes {
                lane.is_dirty.store(true, Ordering::Release);
            }
            result
        };
        if let Some(gauge) = &self.gauge {
            gauge.lock().begin();
        }
        let mut result = over(&lane);
        if !is_first && result.as_ref().is_err_and(is_reservation_conflict) {
            tracing::info!("a reservation holds for one session only: the others are not used any more");
            self.narrow(1);
            result = over(&self.first());
        }
        let moved = if result.is_ok() { bytes } else { 0 };
        let interval = self.gauge.as_ref().and_then(|gauge| gauge.lock().end(moved));
        if let Some(interval) = interval {
            self.measured(interval);
        }
        result
    }

    fn first(&self) -> Arc<Lane> {
        self.lanes.read()[0].clone()
    }

    /// The session with the fewest bytes outstanding, and whether it is the first one.
    fn choose_lane(&self) -> (Arc<Lane>, bool) {
        let used = usize::from(self.used.load(Ordering::Relaxed));
        let lanes = self.lanes.read();
        let load = |lane: &Lane| lane.outstanding_bytes.load(Ordering::Relaxed);
        let chosen = (0..used.min(lanes.len())).min_by_key(|at| load(&lanes[*at])).unwrap_or(0);
        (lanes[chosen].clone(), chosen == 0)
    }

    /// An interval is over: how many sessions are used in the next?
    fn measured(self: &Arc<Self>, interval: Interval) {
        let Some(mut width) = self.width.try_lock() else { return };
        let used = self.used.load(Ordering::Relaxed);
        // They differ while further sessions are being opened: nothing is measured then, and no others are opened.
        if !width.adapts() || used != width.wanted() {
            return;
        }
        if !width.is_trying() && self.windows_limit() {
            return;
        }
        width.measured(interval);
        let wanted = width.wanted();
        if wanted != used {
            tracing::debug!(used, wanted, "another number of sessions");
        }
        if usize::from(wanted) <= self.lanes.read().len() {
            self.used.store(wanted, Ordering::Relaxed);
        } else {
            let shared = self.clone();
            let opened =
                thread::Builder::new().name("intact-wide".into()).spawn(move || shared.open_up_to(wanted));
            if opened.is_err() {
                width.limit(used);
            }
        }
    }

    /// Whether the connections of the first session wait for TCP's windows: then more connections are the remedy, and it has them.
    fn windows_limit(&self) -> bool {
        self.first()
            .disk
            .session()
            .info()
            .and_then(|info| info.tuning())
            .is_some_and(|tuning| tuning.windows_limit)
    }

    /// Opens lanes until there are so many, or as many as there can be.
    fn open_up_to(&self, wanted: u16) {
        while self.lanes.read().len() < usize::from(wanted) {
            match self.open_another() {
                Ok(lane) => self.lanes.write().push(lane),
                Err(why) => {
                    tracing::info!(%why, "no further session");
                    let most = self.lanes.read().len();
                    self.narrow(most as u16);
                    break;
                }
            }
        }
        self.used.store(self.width.lock().wanted(), Ordering::Relaxed);
    }

    /// There can be no more sessions than this.
    fn narrow(&self, most: u16) {
        let mut width = self.width.lock();
        width.limit(most);
        self.used.store(width.wanted(), Ordering::Relaxed);
    }

    /// The unit by one session more.
    fn open_another(&self) -> Result<Arc<Lane>, String> {
        let lane = open_lane(&self.options, self.lun).map_err(|error| error.to_string())?;
        let first = self.first();
        let name = |disk: &Disk| disk.unique_name().map_err(|error| error.to_string());
        match (name(&first.disk)?, name(&lane.disk)?) {
            (None, _) => {
                Err("the unit has no unique name: it may be another one by another session".to_owned())
            }
            (ours, theirs) if ours != theirs || lane.disk.capacity() != self.capacity => {
                Err("it is another unit by another session".to_owned())
            }
            _ => Ok(lane),
        }
    }
}

fn is_reservation_conflict(error: &IoError) -> bool {
    matches!(error, IoError::Status(RESERVATION_CONFLICT))
}

fn open_lane(options: &Options, lun: Lun) -> Result<Arc<Lane>, OpenError> {
    let session = Session::connect(options.clone())?;
    Ok(Lane::new(Disk::open(&session, lun)?))
}
