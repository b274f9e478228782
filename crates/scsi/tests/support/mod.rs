//! A logical unit with a medium in memory. It runs whole commands as a transport would.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::sync::Arc;

use integrity::t10::Tuple;
use scsi::{
    DataInSource, DataOut, Effect, Execution, FormatMark, Identity, LbaStatusDescriptor, LogicalUnit,
    LuConfig, MediumConfig, MediumError, MediumOp, MediumReply, NaaIdentifier, Nexus, Outcome, Protection,
    Provisioning, SenseData, SenseSpecific, Status, Step, TransferLimits,
};

pub const BLOCKS: u64 = 4096;
pub const BLOCK: usize = 512;

/// The result of a command, as an initiator sees it.
#[derive(Debug)]
pub struct Answer {
    pub status: Status,
    pub sense: Option<SenseData>,
    pub sense_bytes: Option<Vec<u8>>,
    pub data: Vec<u8>,
    pub transfer_bytes: u64,
    pub effects: Vec<Effect>,
    /// The operations requested from the medium.
    pub ops: Vec<MediumOp>,
}

impl Answer {
    /// Key, code and qualifier; zeros without sense.
    pub fn code(&self) -> (u8, u8, u8) {
        self.sense.map_or((0, 0, 0), |s| (s.key as u8, s.asc.asc, s.asc.ascq))
    }

    #[track_caller]
    pub fn good(self) -> Self {
        assert_eq!(self.status, Status::Good, "{:x?}", self.sense);
        self
    }

    #[track_caller]
    pub fn fails(self, key: u8, asc: u8, ascq: u8) -> Self {
        assert_eq!(self.status, Status::CheckCondition);
        assert_eq!(self.code(), (key, asc, ascq));
        self
    }

    /// Fails with INVALID FIELD IN PARAMETER LIST, and the sense points at this byte of it.
    #[track_caller]
    pub fn points_at(self, byte: u16, bit: Option<u8>) {
        let sense = self.fails(5, 0x26, 0).sense.unwrap();
        assert_eq!(sense.specific, SenseSpecific::Field { in_cdb: false, byte, bit });
    }

    /// Fails with INVALID FIELD IN CDB, and the sense points at this byte of it.
    #[track_caller]
    pub fn points_at_cdb(self, byte: u16, bit: Option<u8>) {
        let sense = self.fails(5, 0x24, 0).sense.unwrap();
        assert_eq!(sense.specific, SenseSpecific::Field { in_cdb: true, byte, bit });
    }

    #[track_caller]
    pub fn busy(self) {
        assert_eq!(self.status, Status::Busy, "{:x?}", self.sense);
    }

    #[track_caller]
    pub fn conflicts(self) {
        assert_eq!(self.status, Status::ReservationConflict, "{:x?}", self.sense);
        assert!(self.sense.is_none());
    }
}

/// The tuple of a block that was never written.
pub const NEVER_WRITTEN: Tuple = Tuple { guard: 0xffff, app_tag: 0xffff, ref_tag: 0xffff_ffff };

pub struct Disk {
    pub lu: Arc<LogicalUnit>,
    pub data: Vec<u8>,
    pub mapped: Vec<bool>,
    /// Protection information on the medium.
    pub tuples: Vec<Tuple>,
    /// The last format mark that the medium received.
    pub mark: Option<FormatMark>,
    pub nexus: Nexus,
    /// Fails the next medium operation.
    pub fault: Option<MediumError>,
}

pub fn config() -> LuConfig {
    LuConfig {
        lun: 3,
        identity: Identity {
            serial: "0123456789".into(),
            naa: NaaIdentifier::Local(0x0abc_def0_1234_5678),
            target_name: "iqn.2025-01.org.example:disk".into(),
            ..Identity::default()
        },
        medium: MediumConfig { blocks: BLOCKS, ..MediumConfig::default() },
        limits: TransferLimits {
            max_transfer_blocks: 1024,
            max_unmap_blocks: 2048,
            max_write_same_blocks: 4096,
            max_atomic_blocks: 256,
            ..TransferLimits::for_block_bytes(512)
        },
        ..LuConfig::default()
    }
}

pub fn nexus(name: &str) -> Nexus {
    Nexus::new(&format!("iqn.2025-01.org.example:{name},i,0x00023d000001"), 1, 1)
}

impl Disk {
    pub fn new() -> Self {
        Self::with(config())
    }

    /// A disk whose nexus "a" is attached and has seen its power-on unit attention.
    pub fn with(config: LuConfig) -> Self {
        let mut disk = Self::detached(config);
        let nexus = disk.nexus.clone();
        disk.attach(&nexus);
        disk
    }

    fn detached(config: LuConfig) -> Self {
        let blocks = config.medium.blocks as usize;
        let bytes = blocks * config.medium.block_bytes as usize;
        let nexus = nexus("a");
        let lu = Arc::new(LogicalUnit::new(config));
        Self {
            lu,
            data: vec![0; bytes],
            mapped: vec![false; blocks],
            tuples: vec![NEVER_WRITTEN; blocks],
            mark: None,
            nexus: nexus.clone(),
            fault: None,
        }
    }

    /// Attaches a nexus and clears its unit attention.
    pub fn attach(&mut self, nexus: &Nexus) {
        self.lu.attach_nexus(nexus);
        self.run_as(nexus, &[0; 6], &[]).fails(6, 0x29, 0x00);
    }

    pub fn run(&mut self, cdb: &[u8]) -> Answer {
        let nexus = self.nexus.clone();
        self.run_as(&nexus, cdb, &[])
    }

    pub fn send(&mut self, cdb: &[u8], data_out: &[u8]) -> Answer {
        let nexus = self.nexus.clone();
        self.run_as(&nexus, cdb, data_out)
    }

    /// Runs a command; `data_out` is all that the initiator offers.
    pub fn run_as(&mut self, nexus: &Nexus, cdb: &[u8], data_out: &[u8]) -> Answer {
        let execution = self.lu.begin_offering(nexus, cdb, data_out.len() as u64);
        self.finish(execution, data_out)
    }

    /// Runs a command to its end, and then the work that remains after it.
    pub fn finish(&mut self, mut execution: Execution, data_out: &[u8]) -> Answer {
        let mut supplied = Vec::new();
        let mut read = Vec::new();
        let mut ops = Vec::new();
        for _ in 0..64 {
            match execution.step().clone() {
                Step::Done(outcome) => {
                    if let Some(rest) = execution.take_remainder() {
                        ops.extend(self.finish(rest, &[]).ops);
                    }
                    return answer(outcome, read, ops);
                }
                Step::NeedDataOut { bytes } => {
                    assert!(bytes > 0);
                    let n = data_out.len().min(bytes as usize);
                    supplied = data_out[..n].to_vec();
                    // In two pieces, to exercise the gather list.
                    let (a, b) = supplied.split_at(n / 3);
                    let pieces = [a, b];
                    let data = DataOut::new(&pieces).with_offered(data_out.len() as u64);
                    execution.data_out(&self.lu, &data);
                }
                Step::Medium(op) => {
                    ops.push(op.clone());
                    let result = match self.fault.take() {
                        Some(error) => Err(error),
                        None => match execution.protection().copied() {
                            Some(protection) => self.protected(&op, &protection, &supplied, &mut read),
                            None => Ok(self.medium(&op, &supplied, &mut read)),
                        },
                    };
                    execution.medium_done(&self.lu, result);
                }
            }
        }
        panic!("the command does not end: {execution:x?}");
    }

    pub fn range(&self, lba: u64, blocks: u64) -> std::ops::Range<usize> {
        let block = self.lu.block_bytes() as usize;
        assert!(blocks > 0 && lba + blocks <= self.mapped.len() as u64, "range reached the medium unchecked");
        lba as usize * block..(lba + blocks) as usize * block
    }

    fn map(&mut self, lba: u64, blocks: u64, mapped: bool) {
        self.mapped[lba as usize..(lba + blocks) as usize].fill(mapped);
    }

    pub fn write(&mut self, lba: u64, blocks: u64, bytes: &[u8]) {
        let range = self.range(lba, blocks);
        self.data[range].copy_from_slice(bytes);
        self.map(lba, blocks, true);
    }

    /// Checks the tuples of a run of blocks as the protection requires.
    fn check(&self, lba: u64, blocks: u64, protection: &Protection) -> Result<(), MediumError> {
        for lba in lba..lba + blocks {
            let guard = integrity::crc16_t10dif(&self.data[self.range(lba, 1)]);
            protection
                .check(lba, self.tuples[lba as usize], guard)
                .map_err(|field| MediumError::Protection { field, lba })?;
        }
        Ok(())
    }

    /// Like [`Disk::medium`], for a unit with protection information.
    fn protected(
        &mut self,
        op: &MediumOp,
        protection: &Protection,
        out: &[u8],
        read: &mut Vec<u8>,
    ) -> Result<MediumReply, MediumError> {
        let block = self.lu.block_bytes() as usize;
        let wire = protection.wire_block_bytes(block as u32) as usize;
        let plain: Vec<u8> = out.chunks(wire).flat_map(|b| b[..block].to_vec()).collect();
        let came = |i: usize| {
            let at = &out[i * wire..(i + 1) * wire];
            let guard = integrity::crc16_t10dif(&at[..block]);
            let tuple = at[block..].try_into().ok().map(Tuple::from_bytes);
            (tuple, guard)
        };
        // (first block, blocks, first block of data-out to write there, whether one block is used
        // for all)
        let (lba, blocks, from, one) = match *op {
            MediumOp::Write { lba, blocks, .. }
            | MediumOp::WriteAtomic { lba, blocks, .. }
            | MediumOp::WriteAndVerify { lba, blocks, .. } => (lba, blocks, 0, false),
            MediumOp::OrWrite { lba, blocks, .. } => {
                self.check(lba, blocks, protection)?;
                (lba, blocks, 0, false)
            }
            MediumOp::CompareAndWrite { lba, blocks, .. } => (lba, blocks, blocks as usize, false),
            MediumOp::WriteSame { lba, blocks, zero: false, .. } => (lba, blocks, 0, true),
            MediumOp::WriteSame { lba, blocks, zero: true, .. } => {
                self.tuples[lba as usize..(lba + blocks) as usize].fill(NEVER_WRITTEN);
                return Ok(self.medium(op, &plain, read));
            }
            MediumOp::Verify { lba, blocks } => {
                self.check(lba, blocks, protection)?;
                return Ok(MediumReply::Done);
            }
            MediumOp::Read { lba, blocks } => {
                self.check(lba, blocks, protection)?;
                read.clear();
                for lba in lba..lba + blocks {
                    read.extend(&self.data[self.range(lba, 1)]);
                    if protection.transferred {
                        read.extend(self.tuples[lba as usize].to_bytes());
                    }
                }
                return Ok(MediumReply::Data);
            }
            _ => return Ok(self.medium(op, &plain, read)),
        };
        let mut tuples = Vec::new();
        for i in 0..blocks {
            let at = lba + i;
            let (tuple, guard) = came(from + if one { 0 } else { i as usize });
            let tuple = match tuple {
                Some(tuple) => {
                    let tuple = if one { protection.repeated(at, tuple) } else { tuple };
                    protection
                        .check(at, tuple, guard)
                        .map_err(|field| MediumError::Protection { field, lba: at })?;
                    tuple
                }
                None => protection.made(at, guard),
            };
            tuples.push(tuple);
        }
        let reply = self.medium(op, &plain, read);
        if reply == MediumReply::Done {
            self.tuples[lba as usize..(lba + blocks) as usize].copy_from_slice(&tuples);
            if matches!(op, MediumOp::OrWrite { .. }) {
                // The guard of the result.
                for lba in lba..lba + blocks {
                    self.tuples[lba as usize].guard = integrity::crc16_t10dif(&self.data[self.range(lba, 1)]);
                }
            }
        }
        Ok(reply)
    }

    pub fn medium(&mut self, op: &MediumOp, out: &[u8], read: &mut Vec<u8>) -> MediumReply {
        let block = self.lu.block_bytes() as usize;
        let differs = |a: &[u8], b: &[u8]| a.iter().zip(b).position(|(x, y)| x != y);
        match *op {
            MediumOp::Read { lba, blocks } => {
                *read = self.data[self.range(lba, blocks)].to_vec();
                return MediumReply::Data;
            }
            MediumOp::Write { lba, blocks, .. } | MediumOp::WriteAtomic { lba, blocks, .. } => {
                self.write(lba, blocks, &out[..blocks as usize * block]);
            }
            MediumOp::WriteAndVerify { lba, blocks, .. } => {
                self.write(lba, blocks, &out[..blocks as usize * block]);
            }
            MediumOp::Flush | MediumOp::Settle => {}
            MediumOp::Format(mark) => {
                self.mark = Some(mark);
                self.tuples.fill(NEVER_WRITTEN);
            }
            MediumOp::Unmap { ref ranges, .. } => {
                for &(lba, blocks) in ranges {
                    let range = self.range(lba, blocks);
                    self.data[range].fill(0);
                    self.map(lba, blocks, false);
                    self.tuples[lba as usize..(lba + blocks) as usize].fill(NEVER_WRITTEN);
                }
            }
            MediumOp::WriteSame { lba, blocks, unmap, zero, .. } => {
                assert!(zero || !unmap);
                let range = self.range(lba, blocks);
                let one = if zero { vec![0; block] } else { out[..block].to_vec() };
                self.data[range].chunks_mut(block).for_each(|b| b.copy_from_slice(&one));
                self.map(lba, blocks, !unmap);
            }
            MediumOp::Fill { lba, blocks, ref pattern, .. } => {
                assert_eq!(pattern.len(), block);
                self.write(lba, blocks, &pattern.repeat(blocks as usize));
            }
            MediumOp::CompareAndWrite { lba, blocks, .. } => {
                let half = blocks as usize * block;
                assert_eq!(out.len(), 2 * half);
                if let Some(at) = differs(&self.data[self.range(lba, blocks)], &out[..half]) {
                    return MediumReply::Miscompare { byte_offset: at as u64 };
                }
                self.write(lba, blocks, &out[half..]);
            }
            MediumOp::OrWrite { lba, blocks, and, .. } => {
                let mut merged = self.data[self.range(lba, blocks)].to_vec();
                merged.iter_mut().zip(out).for_each(|(m, o)| *m = if and { *m & o } else { *m | o });
                self.write(lba, blocks, &merged);
            }
            MediumOp::Copy { from, from_lba, to, lba, blocks, .. } => {
                assert_eq!((from, to), (self.lu.config().lun, self.lu.config().lun), "one unit alone");
                let moved = self.data[self.range(from_lba, blocks)].to_vec();
                self.write(lba, blocks, &moved);
            }
            MediumOp::Verify { lba, blocks } | MediumOp::Prefetch { lba, blocks } => {
                self.range(lba, blocks);
            }
            MediumOp::Compare { lba, blocks, one_block } => {
                let wanted = if one_block {
                    out.repeat(blocks as usize)
                } else {
                    out[..blocks as usize * block].to_vec()
                };
                if let Some(at) = differs(&self.data[self.range(lba, blocks)], &wanted) {
                    return MediumReply::Miscompare { byte_offset: at as u64 };
                }
            }
            MediumOp::LbaStatus { lba, max_descriptors } => {
                let mut list: Vec<LbaStatusDescriptor> = Vec::new();
                for (i, &mapped) in self.mapped.iter().enumerate().skip(lba as usize) {
                    let provisioning = if mapped { Provisioning::Mapped } else { Provisioning::Deallocated };
                    let full = list.len() == max_descriptors as usize;
                    match list.last_mut() {
                        Some(last) if last.provisioning == provisioning => last.blocks += 1,
                        _ if full => break,
                        _ => list.push(LbaStatusDescriptor { lba: i as u64, blocks: 1, provisioning }),
                    }
                }
                return MediumReply::LbaStatus(list);
            }
        }
        MediumReply::Done
    }
}

pub fn answer(outcome: Outcome, read: Vec<u8>, ops: Vec<MediumOp>) -> Answer {
    assert_eq!(outcome.sense.is_some(), outcome.status == Status::CheckCondition);
    let sense_bytes = outcome.sense_bytes();
    let data = match outcome.data_in {
        DataInSource::None => Vec::new(),
        DataInSource::Bytes(bytes) => bytes.to_vec(),
        DataInSource::Medium => read,
    };
    if !data.is_empty() {
        assert_eq!(outcome.transfer_bytes, data.len() as u64);
    }
    Answer {
        status: outcome.status,
        sense: outcome.sense.map(|sense| *sense),
        sense_bytes,
        data,
        transfer_bytes: outcome.transfer_bytes,
        effects: outcome.effects,
        ops,
    }
}

/// CDBs by name; fields that the test does not set are 0.
pub mod cdb {
    pub fn ten(opcode: u8, flags: u8, lba: u32, blocks: u16) -> Vec<u8> {
        let mut cdb = vec![opcode, flags];
        cdb.extend(lba.to_be_bytes());
        cdb.push(0);
        cdb.extend(blocks.to_be_bytes());
        cdb.push(0);
        cdb
    }

    pub fn twelve(opcode: u8, flags: u8, lba: u32, blocks: u32) -> Vec<u8> {
        let mut cdb = vec![opcode, flags];
        cdb.extend(lba.to_be_bytes());
        cdb.extend(blocks.to_be_bytes());
        cdb.extend([0, 0]);
        cdb
    }

    pub fn sixteen(opcode: u8, flags: u8, lba: u64, blocks: u32) -> Vec<u8> {
        let mut cdb = vec![opcode, flags];
        cdb.extend(lba.to_be_bytes());
        cdb.extend(blocks.to_be_bytes());
        cdb.extend([0, 0]);
        cdb
    }

    pub fn read(lba: u64, blocks: u32) -> Vec<u8> {
        sixteen(0x88, 0, lba, blocks)
    }

    pub fn write(lba: u64, blocks: u32) -> Vec<u8> {
        sixteen(0x8a, 0, lba, blocks)
    }

    pub fn compare_and_write(lba: u64, blocks: u8) -> Vec<u8> {
        let mut cdb = sixteen(0x89, 0, lba, 0);
        cdb[13] = blocks;
        cdb
    }

    pub fn inquiry(page: Option<u8>, allocation: u16) -> Vec<u8> {
        let [hi, lo] = allocation.to_be_bytes();
        vec![0x12, u8::from(page.is_some()), page.unwrap_or(0), hi, lo, 0]
    }

    pub fn mode_sense_10(page: u8, subpage: u8) -> Vec<u8> {
        vec![0x5a, 0x08, page, subpage, 0, 0, 0, 0x10, 0, 0]
    }
}
