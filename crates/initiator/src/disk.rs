//! A logical unit as a block device.
//!
//! All calls block, and may come from many threads at once; clones share the session. Offsets and lengths are in bytes and
//! multiples of the block length. A long request is split into pieces that the device takes in one command, and the pieces run
//! concurrently.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use iscsi_core::initiator::command::{Command, WriteData};
use iscsi_core::wire::Lun;
use scsi::ProtectionType;

use crate::cdb;
use crate::error::IoError;
use crate::options::EngineKind;
use crate::protection::{Protection, UnitProtection};
use crate::session::Session;
use crate::ticket::{Response, Ticket};
use crate::unit::{Identity, LostWrites};

/// Most bytes of one command, unless the device allows less.
const MAX_TRANSFER_BYTES: u64 = 4 * 1024 * 1024;
/// Pieces of one long request that are outstanding at a time.
pub(crate) const MAX_PIECES_UNDER_WAY: usize = 16;
/// Allocation length of an INQUIRY or a list, bytes; such answers are short.
const ALLOCATION_BYTES: u16 = 1024;

/// Size of a logical unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capacity {
    /// Blocks.
    pub blocks: u64,
    /// Length of a block, bytes.
    pub block_bytes: u32,
    /// Blocks may be unmapped (LBPME).
    pub thin: bool,
    /// Unmapped blocks read as zeros (LBPRZ).
    pub unmapped_reads_zero: bool,
}

impl Capacity {
    /// Size, bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.block_bytes.into())
    }
}

/// What the device is and can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskInfo {
    /// Peripheral device type; 0 is a disk.
    pub device_type: u8,
    /// Vendor.
    pub vendor: String,
    /// Product.
    pub product: String,
    /// Revision.
    pub revision: String,
    /// Serial number (VPD page 80h), if reported.
    pub serial: Option<String>,
    /// VPD pages that it has.
    pub pages: Vec<u8>,
    /// Most blocks of one transfer, if reported (VPD page B0h).
    pub max_transfer_blocks: Option<u32>,
    /// Most blocks of one COMPARE AND WRITE.
    pub max_compare_and_write_blocks: u8,
    /// Most blocks of one UNMAP.
    pub max_unmap_blocks: u32,
    /// Most ranges of one UNMAP.
    pub max_unmap_ranges: u32,
    /// Its protection information.
    pub protection: UnitProtection,
}

/// A part of the medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset and length, bytes.
    pub range: Range<u64>,
    /// Whether the device stores data for it (GET LBA STATUS).
    pub mapped: bool,
}

/// One logical unit.
#[derive(Clone, Debug)]
pub struct Disk {
    session: Session,
    lun: Lun,
    capacity: Capacity,
    info: DiskInfo,
    max_transfer_bytes: u64,
    pub(crate) protection: Option<Protection>,
    /// Newest epoch of the unit that the caller has been told of; clones share it.
    told: Arc<AtomicU64>,
}

impl Disk {
    /// Opens the logical unit `lun` of `session`: queries its type and size. The disk is [protected](Disk::protected) when the
    /// session's options say so.
    ///
    /// # Errors
    /// It does not answer, is no block device, or has no protection information although some is requested.
    pub fn open(session: &Session, lun: Lun) -> Result<Self, IoError> {
        let mut disk = Self {
            session: session.clone(),
            lun,
            capacity: Capacity { blocks: 0, block_bytes: 512, thin: false, unmapped_reads_zero: false },
            info: DiskInfo::default(),
            max_transfer_bytes: MAX_TRANSFER_BYTES,
            protection: None,
            told: Arc::default(),
        };
        disk.info = disk.identify()?;
        if !matches!(disk.info.device_type, 0x00 | 0x05 | 0x07 | 0x0e) {
            let kind = disk.info.device_type;
            return Err(IoError::Request(format!("LUN {lun} is no block device (device type {kind:02x}h)")));
        }
        disk.told.store(session.watch(lun)?, Ordering::Relaxed);
        let (capacity, protection) = disk.ask_capacity()?;
        disk.capacity = capacity;
        disk.info.protection = protection;
        if let Some(blocks) = disk.info.max_transfer_blocks {
            let limit = u64::from(blocks) * u64::from(disk.capacity.block_bytes);
            disk.max_transfer_bytes = disk.max_transfer_bytes.min(limit);
        }
        match session.options().protection {
            Some(tags) => disk.protected(tags),
            None => Ok(disk),
        }
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Its LUN.
    pub fn lun(&self) -> Lun {
        self.lun
    }

    /// Its size when it was opened.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// What it is and can do.
    pub fn info(&self) -> &DiskInfo {
        &self.info
    }

    /// Submits any command; wait for the reply with [`Ticket::wait`].
    pub fn submit(&self, cdb: &[u8], read_length: u32, write: WriteData) -> Ticket {
        let mut command = Command::new(self.lun, cdb);
        command.read_length = read_length;
        command.write = write;
        command.timeout = self.session.options().timeouts.command;
        Ticket::new(&self.session, command)
    }

    /// A command that reads up to `length` bytes.
    ///
    /// # Errors
    /// Why it returned no data.
    pub fn query(&self, cdb: &[u8], length: u32) -> Result<Response, IoError> {
        self.submit(cdb, length, WriteData::default()).wait()
    }

    /// Queries the size again.
    ///
    /// # Errors
    /// The device does not report it.
    pub fn read_capacity(&self) -> Result<Capacity, IoError> {
        self.ask_capacity().map(|(capacity, _)| capacity)
    }

    fn ask_capacity(&self) -> Result<(Capacity, UnitProtection), IoError> {
        let mut protection = self.info.protection;
        let long = self.query(&cdb::read_capacity_16(), 32);
        let capacity = match long {
            Ok(response) => {
                let data = response.to_vec();
                protection.take_capacity(&data);
                parse_capacity_16(&data)
            }
            Err(IoError::CheckCondition(sense)) if sense.is_illegal_request() => {
                parse_capacity_10(&self.query(&cdb::read_capacity_10(), 8)?.to_vec())
            }
            Err(error) => return Err(error),
        };
        Ok((capacity.ok_or(IoError::Malformed("READ CAPACITY"))?, protection))
    }

    /// Reads `to.len()` bytes at `offset`.
    ///
    /// # Errors
    /// Part of it could not be read; the content of `to` is then undefined.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), IoError> {
        let pieces = self.pieces(offset, to.len())?;
        let mut under_way = std::collections::VecDeque::new();
        let mut pieces = pieces.peekable();
        while pieces.peek().is_some() || !under_way.is_empty() {
            if under_way.len() < MAX_PIECES_UNDER_WAY
                && let Some(range) = pieces.next()
            {
                let ticket = self.submit_piece(offset, &range);
                under_way.push_back((range, ticket));
                continue;
            }
            let (range, ticket): (Range<usize>, Ticket) = under_way.pop_front().expect("one is under way");
            let response = ticket.wait()?;
            self.take_piece(offset, range, &response, to)?;
        }
        Ok(())
    }

    /// READ of one of the [pieces](Self::pieces) of a range at `offset`.
    pub(crate) fn submit_piece(&self, offset: u64, range: &Range<usize>) -> Ticket {
        self.submit_read(self.lba(offset + range.start as u64), self.blocks(range.len()))
    }

    /// Copies the data that has arrived for a piece; checks it when the disk is protected.
    pub(crate) fn take_piece(
        &self,
        offset: u64,
        range: Range<usize>,
        response: &Response,
        to: &mut [u8],
    ) -> Result<(), IoError> {
        let (blocks, lba) = (self.blocks(range.len()), self.lba(offset + range.start as u64));
        response.holds(self.wire_bytes(blocks))?;
        match &self.protection {
            Some(protection) => drop(protection.take_data(lba, &response.pieces, &mut to[range])?),
            None => drop(response.copy_to(&mut to[range])),
        }
        Ok(())
    }

    /// READ of whole blocks, with protection information when the disk is protected.
    pub(crate) fn submit_read(&self, lba: u64, blocks: u32) -> Ticket {
        let cdb = match &self.protection {
            Some(protection) => protection.read_cdb(lba, blocks),
            None => cdb::read(lba, blocks),
        };
        self.submit(&cdb, self.wire_bytes(blocks) as u32, WriteData::default())
    }

    /// Bytes of `blocks` blocks on the wire.
    fn wire_bytes(&self, blocks: u32) -> usize {
        match &self.protection {
            Some(protection) => protection.wire_bytes(blocks as usize),
            None => blocks as usize * self.capacity.block_bytes as usize,
        }
    }

    /// Writes `from` at `offset`. The bytes are copied once, so the caller may change them as soon as this returns.
    ///
    /// # Errors
    /// Part of it could not be written.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), IoError> {
        self.write_pieces(offset, from.len(), |lba, range| self.write_data(lba, &from[range]))
    }

    /// Writes `from` at `offset` without copying. A [protected](Disk::protected) disk does copy when it sends, to put tuples
    /// between the blocks.
    ///
    /// # Errors
    /// Part of it could not be written.
    pub fn write_bytes(&self, offset: u64, from: &Bytes) -> Result<(), IoError> {
        self.write_pieces(offset, from.len(), |lba, range| self.shared_data(lba, from.slice(range)))
    }

    /// Whole blocks that no longer change, with their tuples when the disk is protected.
    pub(crate) fn shared_data(&self, lba: u64, data: Bytes) -> WriteData {
        match &self.protection {
            Some(protection) => {
                let slabs = self.session.slabs().clone();
                protection.write_bytes(lba, data, slabs, self.digest_runs().is_some())
            }
            None => data.into(),
        }
    }

    /// A copy of whole blocks, with their tuples when the disk is protected.
    pub(crate) fn write_data(&self, lba: u64, from: &[u8]) -> WriteData {
        let runs = self.digest_runs();
        let space = self.session.slabs().take(self.wire_bytes(self.blocks(from.len())));
        match &self.protection {
            Some(protection) => protection.write_data(lba, from, space, runs),
            None => WriteData::copy_from(from, space, runs),
        }
    }

    /// The length, in bytes, of the runs in which write data should be digested while it is copied: the runs match the PDUs that
    /// will carry the data. `None` when the data is sent without a digest, or with that of an engine.
    pub fn digest_runs(&self) -> Option<u32> {
        let params = &self.session.opening().login.params;
        let ours = params.digests.data && self.session.options().engine() == EngineKind::None;
        ours.then(|| params.write_run_bytes())
    }

    fn write_pieces(
        &self,
        offset: u64,
        length: usize,
        data: impl Fn(u64, Range<usize>) -> WriteData,
    ) -> Result<(), IoError> {
        let mut under_way = std::collections::VecDeque::new();
        let mut result = Ok(());
        let settle = |ticket: Ticket, result: &mut Result<(), IoError>| {
            let ended = ticket.wait().map(drop);
            if result.is_ok() {
                *result = ended;
            }
        };
        for range in self.pieces(offset, length)? {
            if under_way.len() == MAX_PIECES_UNDER_WAY
                && let Some(ticket) = under_way.pop_front()
            {
                settle(ticket, &mut result);
            }
            if result.is_err() {
                break;
            }
            under_way.push_back(self.submit_write(offset, range, &data));
        }
        // Also after an error: no piece may be executed after this returns.
        under_way.into_iter().for_each(|ticket| settle(ticket, &mut result));
        result
    }

    /// WRITE of one of the [pieces](Self::pieces) of a range at `offset`.
    pub(crate) fn submit_write(
        &self,
        offset: u64,
        range: Range<usize>,
        data: impl Fn(u64, Range<usize>) -> WriteData,
    ) -> Ticket {
        let (lba, blocks) = (self.lba(offset + range.start as u64), self.blocks(range.len()));
        let cdb = match &self.protection {
            Some(protection) => protection.write_cdb(lba, blocks),
            None => cdb::write(lba, blocks),
        };
        self.submit(&cdb, 0, data(lba, range))
    }

    /// Makes all earlier writes durable (SYNCHRONIZE CACHE).
    ///
    /// Success means that everything acknowledged earlier on this session is on the medium, except what was reported to the caller
    /// as lost.
    ///
    /// # Errors
    /// The device could not. [`IoError::LostWrites`] if it could, but has lost acknowledged writes since this disk was opened or a
    /// flush last reported a loss: once for each loss, and once for all clones.
    pub fn flush(&self) -> Result<(), IoError> {
        let told = self.told.load(Ordering::Acquire);
        self.query(&cdb::synchronize_cache(), 0)?;
        self.flushed(told)
    }

    /// Handles a flush that succeeded and that began when this disk knew of the epoch `told`.
    pub(crate) fn flushed(&self, told: u64) -> Result<(), IoError> {
        let Some(lost) = self.lost_since(told) else { return Ok(()) };
        self.told.fetch_max(lost.epoch, Ordering::Release);
        Err(IoError::LostWrites(Box::new(lost)))
    }

    /// The latest epoch of the unit that was reported to this disk: it grows with each loss of acknowledged writes.
    pub fn epoch(&self) -> u64 {
        self.told.load(Ordering::Acquire)
    }

    /// The union of all losses of the unit since `epoch`.
    pub fn lost_since(&self, epoch: u64) -> Option<LostWrites> {
        let lost = self.session.lost_since(self.lun, epoch)?;
        Some(lost.in_bytes(self.capacity.blocks, self.capacity.block_bytes))
    }

    /// Tells the device that `length` bytes at `offset` are no longer needed (UNMAP).
    ///
    /// # Errors
    /// When the device cannot or will not.
    pub fn unmap(&self, offset: u64, length: u64) -> Result<(), IoError> {
        for ticket in self.unmaps(offset, length)? {
            ticket.wait()?;
        }
        Ok(())
    }

    /// The commands of [`Disk::unmap`], each submitted when the iterator reaches it.
    pub(crate) fn unmaps(&self, offset: u64, length: u64) -> Result<impl Iterator<Item = Ticket>, IoError> {
        self.check(offset, length)?;
        let most = match self.info.max_unmap_blocks {
            0 => u32::MAX,
            n => n,
        };
        let (mut lba, end) = (self.lba(offset), self.lba(offset + length));
        Ok(std::iter::from_fn(move || {
            let blocks = u64::from(most).min(end - lba) as u32;
            let list = cdb::unmap_list(&[(lba, blocks)]);
            lba += u64::from(blocks);
            (blocks > 0).then(|| self.submit(&cdb::unmap(list.len() as u16), 0, Bytes::from(list).into()))
        }))
    }

    /// Writes zeros. The device may deallocate the blocks instead if deallocated blocks read as zeros (WRITE SAME).
    ///
    /// # Errors
    /// When the device could not.
    pub fn write_zeroes(&self, offset: u64, length: u64) -> Result<(), IoError> {
        self.check(offset, length)?;
        let zeros = vec![0; self.capacity.block_bytes as usize];
        let unmap = self.capacity.thin && self.capacity.unmapped_reads_zero;
        let (mut lba, end) = (self.lba(offset), self.lba(offset + length));
        while lba < end {
            let blocks = u64::from(u16::MAX).min(end - lba) as u32;
            let cdb = match &self.protection {
                Some(protection) => protection.write_same_cdb(lba, blocks, unmap),
                None => cdb::write_same(lba, blocks, unmap),
            };
            match self.submit(&cdb, 0, self.write_data(lba, &zeros)).wait() {
                Ok(_) => {}
                // Not every device has WRITE SAME.
                Err(IoError::CheckCondition(sense)) if sense.is_illegal_request() => {
                    let block = self.capacity.block_bytes as usize;
                    let piece = Bytes::from(vec![0; blocks.min(self.one_command_blocks()) as usize * block]);
                    let all = blocks as usize * block;
                    let some = |lba, range: Range<usize>| self.shared_data(lba, piece.slice(..range.len()));
                    self.write_pieces(lba * block as u64, all, some)?;
                }
                Err(error) => return Err(error),
            }
            lba += u64::from(blocks);
        }
        Ok(())
    }

    /// Writes `new` at `offset` if the medium holds `expected` there, as one atomic step.
    ///
    /// # Errors
    /// [`IoError::Miscompare`] if it holds something else; nothing is written then. After any other error it is unknown whether
    /// `new` was written.
    pub fn compare_and_write(&self, offset: u64, expected: &[u8], new: &[u8]) -> Result<(), IoError> {
        self.check(offset, new.len() as u64)?;
        let blocks = u8::try_from(self.blocks(new.len())).ok().filter(|_| expected.len() == new.len());
        let most = self.info.max_compare_and_write_blocks;
        let Some(blocks) = blocks.filter(|&n| n > 0 && (most == 0 || n <= most)) else {
            return Err(IoError::Request(format!(
                "COMPARE AND WRITE takes two buffers of the same 1 to {most} blocks"
            )));
        };
        match &self.protection {
            Some(protection) if protection.kind() == ProtectionType::Type2 => {
                protection.check_that_the_target_makes_our_tags()?;
            }
            Some(protection) => {
                return self.compare_and_write_protected(protection, self.lba(offset), blocks, expected, new);
            }
            None => {}
        }
        let both = [expected, new].concat();
        self.submit(&cdb::compare_and_write(self.lba(offset), blocks), 0, Bytes::from(both).into())
            .wait()
            .map(drop)
    }

    /// Which parts of the medium from `offset` on are allocated; the first extent begins at `offset`. `None` when the device does
    /// not report it.
    ///
    /// # Errors
    /// The command fails for any reason other than being unsupported.
    pub fn allocation(&self, offset: u64) -> Result<Option<Vec<Extent>>, IoError> {
        let block = u64::from(self.capacity.block_bytes);
        let response = match self.query(&cdb::get_lba_status(self.lba(offset), 8 + 64 * 16), 8 + 64 * 16) {
            Ok(response) => response,
            Err(IoError::CheckCondition(sense)) if sense.is_illegal_request() => return Ok(None),
            Err(error) => return Err(error),
        };
        let list = cdb::parse_lba_status(&response.to_vec()).ok_or(IoError::Malformed("GET LBA STATUS"))?;
        let mut ranges = Vec::with_capacity(list.len());
        let mut at = self.lba(offset);
        for (lba, blocks, mapped) in list {
            // The first extent may begin before the requested offset.
            let end = lba.saturating_add(blocks.into()).min(self.capacity.blocks);
            if lba > at || end <= at {
                return Err(IoError::Malformed("GET LBA STATUS"));
            }
            ranges.push(Extent { range: at * block..end * block, mapped });
            at = end;
        }
        Ok(Some(ranges))
    }

    /// INQUIRY data: the standard data, or a vital product data page, complete.
    ///
    /// # Errors
    /// The device does not answer.
    pub fn inquiry(&self, page: Option<u8>) -> Result<Vec<u8>, IoError> {
        let response = self.query(&cdb::inquiry(page, ALLOCATION_BYTES), ALLOCATION_BYTES.into())?;
        Ok(response.to_vec())
    }

    /// The name that no other unit in the world has: its UUID, NAA, EUI-64 or SCSI name designator in VPD page 83h (SPC-4 7.8.6), in
    /// this order of preference, as text such as `naa.6001405`. `None` if it reports none of them.
    ///
    /// # Errors
    /// The device does not answer.
    pub fn unique_name(&self) -> Result<Option<String>, IoError> {
        if !self.info.pages.contains(&0x83) {
            return Ok(None);
        }
        Ok(Identity::parse(&self.inquiry(Some(0x83))?).unique_name())
    }

    fn identify(&self) -> Result<DiskInfo, IoError> {
        let data = self.inquiry(None)?;
        if data.len() < 36 {
            return Err(IoError::Malformed("INQUIRY"));
        }
        let qualifier = data[0] >> 5;
        if qualifier != 0 {
            let what =
                format!("there is no logical unit {}: `intact ls` shows those that there are", self.lun);
            return Err(IoError::Request(what));
        }
        let mut info = DiskInfo {
            device_type: data[0] & 0x1f,
            vendor: text(&data[8..16]),
            product: text(&data[16..32]),
            revision: text(&data[32..36]),
            ..DiskInfo::default()
        };
        // Old devices have no pages; that is no error.
        let page =
            |page| self.inquiry(Some(page)).ok().filter(|data: &Vec<u8>| data.len() >= 4 && data[1] == page);
        let body = |data: Vec<u8>| {
            let length = usize::from(u16::from_be_bytes([data[2], data[3]]));
            data[4..].iter().copied().take(length).collect::<Vec<u8>>()
        };
        info.pages = page(0x00).map(body).unwrap_or_default();
        if info.pages.contains(&0x80) {
            info.serial = page(0x80).map(|data| text(&body(data)));
        }
        if info.pages.contains(&0xb0)
            && let Some(data) = page(0xb0)
        {
            let word = |at: usize| {
                data.get(at..at + 4).map_or(0, |four| u32::from_be_bytes(four.try_into().expect("four")))
            };
            info.max_compare_and_write_blocks = data.get(5).copied().unwrap_or(0);
            info.max_transfer_blocks = Some(word(8)).filter(|&n| n != 0);
            info.max_unmap_blocks = word(20);
            info.max_unmap_ranges = word(24);
        }
        if data[5] & 1 != 0
            && info.pages.contains(&0x86)
            && let Some(data) = page(0x86)
        {
            info.protection.take_page_86(&data);
        }
        Ok(info)
    }

    /// Splits a request into pieces for one command each.
    pub(crate) fn pieces(
        &self,
        offset: u64,
        length: usize,
    ) -> Result<impl Iterator<Item = Range<usize>> + use<>, IoError> {
        self.check(offset, length as u64)?;
        let most = self.one_command_blocks() as usize * self.capacity.block_bytes as usize;
        Ok((0..length).step_by(most).map(move |at| at..(at + most).min(length)))
    }

    /// Most blocks of one command.
    pub(crate) fn one_command_blocks(&self) -> u32 {
        (self.max_transfer_bytes / self.wire_bytes(1) as u64).max(1) as u32
    }

    pub(crate) fn check(&self, offset: u64, length: u64) -> Result<(), IoError> {
        let block = u64::from(self.capacity.block_bytes);
        if !offset.is_multiple_of(block) || !length.is_multiple_of(block) {
            return Err(IoError::Request(format!(
                "offset {offset} and length {length} are not multiples of {block}"
            )));
        }
        if offset.checked_add(length).is_none_or(|end| end > self.capacity.bytes()) {
            let size = self.capacity.bytes();
            return Err(IoError::Request(format!(
                "{length} bytes at {offset} reach beyond the {size} bytes there are"
            )));
        }
        Ok(())
    }

    fn lba(&self, offset: u64) -> u64 {
        offset / u64::from(self.capacity.block_bytes)
    }

    fn blocks(&self, length: usize) -> u32 {
        (length as u64 / u64::from(self.capacity.block_bytes)) as u32
    }
}

/// LUNs of the target of `session`.
///
/// # Errors
/// The target does not report them.
pub(crate) fn report_luns(session: &Session) -> Result<Vec<Lun>, IoError> {
    const ALLOCATION: u32 = 64 * 1024;
    let mut command = Command::new(Lun(0), &cdb::report_luns(ALLOCATION));
    command.read_length = ALLOCATION;
    command.timeout = session.options().timeouts.command;
    let ticket = Ticket::new(session, command);
    cdb::parse_luns(&ticket.wait()?.to_vec()).ok_or(IoError::Malformed("REPORT LUNS"))
}

fn parse_capacity_16(data: &[u8]) -> Option<Capacity> {
    let last = u64::from_be_bytes(*data.first_chunk()?);
    let block_bytes = u32::from_be_bytes(data.get(8..12)?.try_into().ok()?);
    let flags = data.get(14).copied().unwrap_or(0);
    capacity(last, block_bytes, flags & 0x80 != 0, flags & 0x40 != 0)
}

fn parse_capacity_10(data: &[u8]) -> Option<Capacity> {
    let last = u32::from_be_bytes(*data.first_chunk()?);
    let block_bytes = u32::from_be_bytes(data.get(4..8)?.try_into().ok()?);
    capacity(last.into(), block_bytes, false, false)
}

/// Checks the geometry: a block length must be a power of two from 512 bytes to 64 KiB.
fn capacity(last: u64, block_bytes: u32, thin: bool, unmapped_reads_zero: bool) -> Option<Capacity> {
    let sane = block_bytes.is_power_of_two() && (512..=65536).contains(&block_bytes);
    let blocks =
        last.checked_add(1).filter(|blocks| sane && blocks.checked_mul(block_bytes.into()).is_some())?;
    Some(Capacity { blocks, block_bytes, thin, unmapped_reads_zero })
}

/// Text from a device: printable ASCII without the padding.
fn text(bytes: &[u8]) -> String {
    let shown: String =
        bytes.iter().map(|&b| if (0x20..0x7f).contains(&b) { b as char } else { '?' }).collect();
    shown.trim().trim_end_matches('?').to_owned()
}
