//! What is exported, and what a request does to it.
//!
//! Each connection is an I_T nexus of its own, and each request becomes SCSI commands of that nexus. So a write through NBD is
//! subject to the same rules as a write through iSCSI: reservations of others, write protection, unit attentions, access states,
//! protection information, the write cache and its failed flushes. Nothing here accesses a store directly.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use engine::SlabRing;
use lun::{Carried, Unit};
use scsi::{Asc, DataInSource, Nexus, Outcome, SenseKey, Status};

use crate::wire::{Errno, Extent, export_flag};

/// Longest read or write of any export, bytes: what clients assume that do not negotiate it (proto.md, "Block size constraints").
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;
/// Most unit attentions that one command skips before it fails: a unit has fewer for one nexus.
const ATTENTIONS_MAX: u32 = 16;
/// Most extents of one block status reply.
const EXTENTS_MAX: u32 = 1024;
/// GET LBA STATUS parameter data: lengths of its header and of each descriptor.
const LBA_STATUS_HEADER: usize = 8;
const LBA_STATUS_DESCRIPTOR: usize = 16;

/// The client of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// It has presented a certificate that the server trusts.
    pub proven: bool,
}

/// Why an export is not served to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// There is no export of this name.
    #[error("there is no such export: `nbdinfo --list` shows the names")]
    Unknown,
    /// The export is only for clients that authenticate.
    #[error("this export is for clients with a certificate that the server trusts")]
    NeedsProof,
    /// The store of the export is not available at present.
    #[error("the store of this export cannot be had at present; try again")]
    NotReady,
}

/// What a server exports.
pub trait Exports: Send + Sync {
    /// The names that this peer may see.
    fn names(&self, peer: &Peer) -> Vec<String>;

    /// The export of this name.
    ///
    /// # Errors
    /// This peer may not use it, or it is not available at all.
    fn find(&self, name: &str, peer: &Peer) -> Result<Arc<dyn Export>, Denied>;
}

/// A logical unit that is exported.
pub trait Export: Send + Sync + fmt::Debug {
    /// Its name.
    fn name(&self) -> String;

    /// What it is, for people.
    fn description(&self) -> String;

    /// The unit.
    fn unit(&self) -> &Arc<Unit>;

    /// Whether the unit is still served; a connection ends when it is not.
    fn is_current(&self) -> bool;

    /// A command on the unit has completed; `bytes` bytes of data were transferred.
    fn ended(&self, cdb: &[u8], bytes: u64, elapsed: Duration, outcome: &Outcome);
}

/// The properties of an export that clients are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its size, bytes.
    pub size_bytes: u64,
    /// Every offset and length is a multiple of this, bytes.
    pub block_bytes: u32,
    /// The same for requests that should cost no more than necessary, bytes.
    pub preferred_bytes: u32,
    /// The longest read or write, bytes.
    pub request_bytes_max: u32,
    read_only: bool,
    rotational: bool,
    thin: bool,
}

impl Facts {
    /// The current facts of an export, for a server with this limit on the length of requests, bytes.
    pub fn of(export: &dyn Export, request_bytes_max: u32) -> Self {
        let scsi = &export.unit().scsi;
        let (block, config) = (scsi.block_bytes(), scsi.config());
        let longest = config.limits.max_transfer_blocks.saturating_mul(block).min(request_bytes_max);
        let longest = longest.max(block) / block * block;
        let wanted = block.saturating_mul(config.limits.optimal_granularity_blocks.into());
        Self {
            size_bytes: scsi.blocks().saturating_mul(block.into()),
            block_bytes: block,
            preferred_bytes: wanted.clamp(block, longest),
            request_bytes_max: longest,
            read_only: scsi.read_only(),
            rotational: config.medium.rotational,
            thin: scsi.thin(),
        }
    }

    /// Its flags (NBD_FLAG_...). All connections use the same unit: a flush makes the writes of every connection durable, and each
    /// connection reads what the others have written. So NBD_FLAG_CAN_MULTI_CONN is true.
    pub fn flags(&self, structured: bool) -> u16 {
        use export_flag::*;
        let always = HAS_FLAGS | SEND_FLUSH | SEND_FUA | SEND_WRITE_ZEROES | CAN_MULTI_CONN | SEND_CACHE;
        let some = [
            (self.read_only, READ_ONLY),
            (self.rotational, ROTATIONAL),
            (self.thin, SEND_TRIM),
            // A read is always answered in one piece.
            (structured, SEND_DF),
        ];
        some.iter().filter(|(is, _)| *is).fold(always, |flags, (_, flag)| flags | flag)
    }
}

/// A valid request: in range, and in whole blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// NBD_CMD_READ: offset and length, bytes.
    Read(u64, u32),
    /// NBD_CMD_WRITE: offset, data, FUA.
    Write(u64, Bytes, bool),
    /// NBD_CMD_FLUSH.
    Flush,
    /// NBD_CMD_TRIM: offset and length, bytes; FUA.
    Trim(u64, u32, bool),
    /// NBD_CMD_WRITE_ZEROES: offset and length, bytes; FUA; may leave a hole.
    Zero(u64, u32, bool, bool),
    /// NBD_CMD_CACHE: offset and length, bytes.
    Cache(u64, u32),
    /// NBD_CMD_BLOCK_STATUS: offset and length, bytes; one extent only.
    Status(u64, u32, bool),
}

impl Work {
    /// Bytes that it covers.
    pub fn length(&self) -> u32 {
        match self {
            Self::Read(_, length)
            | Self::Trim(_, length, _)
            | Self::Zero(_, length, ..)
            | Self::Cache(_, length)
            | Self::Status(_, length, _) => *length,
            Self::Write(_, data, _) => data.len() as u32,
            Self::Flush => 0,
        }
    }
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Brought {
    /// It is done.
    Nothing,
    /// The bytes of a read.
    Data(Bytes),
    /// The extents of a block status.
    Extents(Vec<Extent>),
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// As an error number of the protocol.
    pub errno: Errno,
    /// For people.
    pub text: String,
}

impl Failed {
    /// A failure with this text.
    pub fn new(errno: Errno, text: impl Into<String>) -> Self {
        Self { errno, text: text.into() }
    }
}

/// A connection's use of an export: a nexus with the unit. It lives until the connection and its last outstanding request have
/// ended.
#[derive(Debug)]
pub struct Attached {
    export: Arc<dyn Export>,
    nexus: Nexus,
    slabs: SlabRing,
    /// The client has gone: work that has not started will not start.
    cancelled: AtomicBool,
    /// Unflushed writes may be lost: the next flush reports it.
    lost: AtomicBool,
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.export.unit().scsi.detach_nexus(&self.nexus);
    }
}

impl Attached {
    /// Attaches a nexus called `name` to the unit of `export`.
    pub fn new(export: Arc<dyn Export>, name: &str, slabs: SlabRing) -> Self {
        let group = export.unit().scsi.paths().target_ports.first().copied();
        let (group, port) = group.map_or((1, 1), |port| (port.group, port.relative_port));
        let nexus = Nexus::new(name, group, port);
        export.unit().scsi.attach_nexus(&nexus);
        let (cancelled, lost) = (AtomicBool::new(false), AtomicBool::new(false));
        let attached = Self { export, nexus, slabs, cancelled, lost };
        // The unit attentions of a new nexus say nothing about its writes.
        let _ = attached.command(&[0; 6], &[]);
        attached.lost.store(false, Ordering::Release);
        attached
    }

    /// The export.
    pub fn export(&self) -> &dyn Export {
        &*self.export
    }

    /// Buffers for data.
    pub fn slabs(&self) -> &SlabRing {
        &self.slabs
    }

    /// The client has gone: cancels work that has not started.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    /// Executes a request. Blocks for as long as the store does.
    ///
    /// # Errors
    /// The device server's error, as an NBD error.
    pub fn run(&self, work: &Work) -> Result<Brought, Failed> {
        match *work {
            Work::Read(offset, length) => {
                let carried = self.command(&self.transfer(0x88, offset, length.into(), false), &[])?;
                match carried.payload.bytes.len() == length as usize {
                    true => Ok(Brought::Data(carried.payload.bytes)),
                    false => Err(Failed::new(Errno::Io, "the unit sent fewer bytes than were asked for")),
                }
            }
            Work::Write(offset, ref data, fua) => {
                let cdb = self.transfer(0x8a, offset, data.len() as u64, fua);
                self.command(&cdb, std::slice::from_ref(data)).map(|_| Brought::Nothing)
            }
            Work::Flush => self.flush(),
            Work::Trim(offset, length, fua) => {
                let most = self.limits().max_unmap_blocks.into();
                self.in_parts((offset, length), most, |lba, blocks| self.unmap(lba, blocks as u32))?;
                self.flush_if(fua)
            }
            Work::Zero(offset, length, fua, hole) => {
                let most = self.limits().max_write_same_blocks.min(u32::MAX.into());
                let unmap = hole && self.export.unit().scsi.thin();
                // WRITE SAME(16) with NDOB: writes zeroes without transferring data.
                let bits = if unmap { 1 << 3 | 1 } else { 1 };
                self.in_parts((offset, length), most, |lba, blocks| {
                    self.command(&cdb_16(0x93, bits, lba, blocks as u32), &[]).map(drop)
                })?;
                self.flush_if(fua)
            }
            Work::Cache(offset, length) => {
                let most = self.limits().max_prefetch_blocks.into();
                self.in_parts((offset, length), most, |lba, blocks| {
                    self.command(&cdb_16(0x90, 0, lba, blocks as u32), &[]).map(drop)
                })?;
                Ok(Brought::Nothing)
            }
            Work::Status(offset, length, one) => self.status(offset, length, one).map(Brought::Extents),
        }
    }

    fn limits(&self) -> &scsi::TransferLimits {
        &self.export.unit().scsi.config().limits
    }

    fn block_bytes(&self) -> u64 {
        self.export.unit().scsi.block_bytes().into()
    }

    /// READ(16) or WRITE(16).
    fn transfer(&self, operation: u8, offset: u64, length: u64, fua: bool) -> [u8; 16] {
        let block = self.block_bytes();
        cdb_16(operation, if fua { 1 << 3 } else { 0 }, offset / block, (length / block) as u32)
    }

    fn flush(&self) -> Result<Brought, Failed> {
        self.command(&cdb_16(0x91, 0, 0, 0), &[])?;
        match self.lost.swap(false, Ordering::AcqRel) {
            true => Err(Failed::new(
                Errno::Io,
                "the unit was started again: what was written before and not flushed may be lost",
            )),
            false => Ok(Brought::Nothing),
        }
    }

    fn flush_if(&self, fua: bool) -> Result<Brought, Failed> {
        if fua { self.flush() } else { Ok(Brought::Nothing) }
    }

    /// Calls `f` for consecutive parts of a range, in blocks, none longer than `most`.
    fn in_parts(
        &self,
        (offset, length): (u64, u32),
        most: u64,
        f: impl Fn(u64, u64) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        let block = self.block_bytes();
        let (mut lba, end) = (offset / block, (offset + u64::from(length)) / block);
        while lba < end {
            let blocks = (end - lba).min(most.max(1));
            f(lba, blocks)?;
            lba += blocks;
        }
        Ok(())
    }

    fn unmap(&self, lba: u64, blocks: u32) -> Result<(), Failed> {
        // A header with the lengths 22 and 16, and one descriptor.
        let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
        list.extend(lba.to_be_bytes());
        list.extend(blocks.to_be_bytes());
        list.extend([0; 4]);
        let cdb = [0x42, 0, 0, 0, 0, 0, 0, 0, list.len() as u8, 0];
        self.command(&cdb, &[Bytes::from(list)]).map(drop)
    }

    /// The extents of a range, from its start: at least one, and no more than requested.
    fn status(&self, offset: u64, length: u32, one: bool) -> Result<Vec<Extent>, Failed> {
        let block = self.block_bytes();
        let end = offset + u64::from(length);
        let most = if one { 1 } else { EXTENTS_MAX };
        let mut cdb = cdb_16(0x9e, 0x12, offset / block, 0);
        cdb[10..14]
            .copy_from_slice(&(LBA_STATUS_HEADER as u32 + most * LBA_STATUS_DESCRIPTOR as u32).to_be_bytes());
        let carried = self.command(&cdb, &[])?;
        let DataInSource::Bytes(data) = &carried.outcome.data_in else {
            return Err(Failed::new(Errno::Io, "the unit has no status of its blocks"));
        };
        let mut extents: Vec<Extent> = Vec::new();
        let mut at = offset;
        for descriptor in
            data.get(LBA_STATUS_HEADER..).unwrap_or_default().chunks_exact(LBA_STATUS_DESCRIPTOR)
        {
            let number = |from: usize, to: usize| {
                descriptor[from..to].iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
            };
            let ends = (number(0, 8) + number(8, 12)).saturating_mul(block).min(end);
            let hole = descriptor[12] & 0xf == 1;
            let Some(bytes) = ends.checked_sub(at).filter(|bytes| *bytes > 0) else { continue };
            extents.push(Extent { length: bytes as u32, hole });
            at = ends;
        }
        match extents.is_empty() {
            true => Ok(vec![Extent { length, hole: false }]),
            false => Ok(extents),
        }
    }

    /// Executes one SCSI command; repeats it while unit attentions are pending for this nexus.
    fn command(&self, cdb: &[u8], data_out: &[Bytes]) -> Result<Carried, Failed> {
        for _ in 0..ATTENTIONS_MAX {
            let began = Instant::now();
            let unit = self.export.unit();
            let Some(carried) =
                lun::carry_out(unit, &self.nexus, cdb, data_out, &self.slabs, &self.cancelled)
            else {
                return Err(Failed::new(Errno::Shutdown, "the connection has ended"));
            };
            let outcome = &carried.outcome;
            let written: usize = data_out.iter().map(Bytes::len).sum();
            let bytes = (carried.payload.bytes.len() + written) as u64;
            self.export.ended(cdb, bytes, began.elapsed(), outcome);
            match (outcome.status, outcome.sense.as_deref()) {
                (Status::Good | Status::ConditionMet, _) => return Ok(carried),
                (_, Some(sense)) if sense.key == SenseKey::UnitAttention => {
                    if sense.asc == Asc::POWER_ON_OR_RESET {
                        self.lost.store(true, Ordering::Release);
                    }
                }
                _ => return Err(failed(outcome)),
            }
        }
        Err(Failed::new(Errno::Io, "the unit has something new to report again and again"))
    }
}

/// A CDB of 16 bytes with a block address and a number of blocks.
fn cdb_16(operation: u8, bits: u8, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (operation, bits);
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

/// The NBD error for a command that failed.
fn failed(outcome: &Outcome) -> Failed {
    let Some(sense) = outcome.sense.as_deref() else {
        return match outcome.status {
            Status::ReservationConflict => Failed::new(
                Errno::Perm,
                "another host has reserved the unit: `intact lun` shows reservations (RESERVATION CONFLICT)",
            ),
            status => Failed::new(Errno::Io, format!("the unit answers {status:?}; try again")),
        };
    };
    let errno = match sense.key {
        SenseKey::DataProtect if sense.asc == Asc::SPACE_ALLOCATION_FAILED => Errno::Nospc,
        SenseKey::DataProtect => Errno::Perm,
        SenseKey::IllegalRequest => Errno::Inval,
        _ => Errno::Io,
    };
    let (key, Asc { asc, ascq }) = (sense.key, sense.asc);
    Failed::new(errno, format!("the unit answers {key:?} ({asc:02x}h/{ascq:02x}h)"))
}
