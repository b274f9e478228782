//! A target with three units, and the commands of third-party copy for it.

use std::sync::{Arc, Weak};

use scsi::{
    DataOut, Execution, Identity, LogicalUnit, LuConfig, MediumError, MediumOp, MediumReply, NaaIdentifier,
    Neighbours, Nexus, Step,
};

use crate::support::{Answer, BLOCK, Disk, answer, config, nexus};

/// A target with three units.
pub struct Shelf {
    pub disks: Vec<Disk>,
    _units: Arc<Units>,
    pub a: Nexus,
    pub b: Nexus,
    /// Fails the copy of this piece, counted from 0.
    pub fault: Option<(usize, MediumError)>,
}

struct Units(Vec<Arc<LogicalUnit>>);

impl Neighbours for Units {
    fn each(&self, f: &mut dyn FnMut(&LogicalUnit) -> bool) {
        self.0.iter().all(|unit| f(unit));
    }
}

pub fn naa(lun: u16) -> NaaIdentifier {
    NaaIdentifier::Local(0x1000 + u64::from(lun))
}

impl Shelf {
    pub fn new() -> Self {
        Self::with(|config| config)
    }

    pub fn with(adapt: impl Fn(LuConfig) -> LuConfig) -> Self {
        let (a, b) = (nexus("a"), nexus("b"));
        let disks: Vec<Disk> = (0..3u16)
            .map(|lun| {
                let config = LuConfig {
                    lun,
                    identity: Identity { naa: naa(lun), ..config().identity },
                    token_secret: Some([7; 32]),
                    ..config()
                };
                let mut disk = Disk::with(adapt(config));
                disk.attach(&b);
                disk
            })
            .collect();
        let units = Arc::new(Units(disks.iter().map(|disk| Arc::clone(&disk.lu)).collect()));
        for disk in &disks {
            let weak: Weak<Units> = Arc::downgrade(&units);
            disk.lu.set_neighbours(weak);
        }
        Self { disks, _units: units, a, b, fault: None }
    }

    pub fn run(&mut self, lun: usize, cdb: &[u8], out: &[u8]) -> Answer {
        let nexus = self.a.clone();
        self.run_as(&nexus, lun, cdb, out)
    }

    pub fn run_as(&mut self, nexus: &Nexus, lun: usize, cdb: &[u8], out: &[u8]) -> Answer {
        let lu = Arc::clone(&self.disks[lun].lu);
        let execution = lu.begin_offering(nexus, cdb, out.len() as u64);
        self.continue_with(&lu, execution, out)
    }

    pub fn continue_with(&mut self, lu: &LogicalUnit, mut execution: Execution, out: &[u8]) -> Answer {
        let own = usize::from(lu.config().lun);
        let (mut read, mut ops, mut pieces) = (Vec::new(), Vec::new(), 0);
        loop {
            match execution.step().clone() {
                Step::Done(outcome) => return answer(outcome, read, ops),
                Step::NeedDataOut { bytes } => {
                    let data = &out[..out.len().min(bytes as usize)];
                    execution.data_out(lu, &DataOut::new(&[data]).with_offered(out.len() as u64));
                }
                Step::Medium(op) => {
                    ops.push(op.clone());
                    let reply = match op {
                        MediumOp::Copy { from, from_lba, to, lba, blocks, .. } => {
                            pieces += 1;
                            match self.fault {
                                Some((at, error)) if at + 1 == pieces => Err(error),
                                _ => {
                                    let source = &self.disks[usize::from(from)];
                                    let moved = source.data[source.range(from_lba, blocks)].to_vec();
                                    self.disks[usize::from(to)].write(lba, blocks, &moved);
                                    Ok(MediumReply::Done)
                                }
                            }
                        }
                        _ => Ok(self.disks[own].medium(&op, out, &mut read)),
                    };
                    execution.medium_done(lu, reply);
                }
            }
        }
    }

    /// Fills blocks of a unit with their own numbers.
    pub fn number(&mut self, lun: usize, lba: u64, blocks: u64) {
        for at in lba..lba + blocks {
            let block: Vec<u8> = (lun as u64 * 1_000_000 + at).to_be_bytes().repeat(BLOCK / 8);
            self.disks[lun].write(at, 1, &block);
        }
    }

    pub fn bytes(&self, lun: usize, lba: u64, blocks: u64) -> &[u8] {
        &self.disks[lun].data[self.disks[lun].range(lba, blocks)]
    }

    #[track_caller]
    pub fn same(&self, (from, from_lba): (usize, u64), (to, lba): (usize, u64), blocks: u64) {
        assert!(self.bytes(from, from_lba, blocks) == self.bytes(to, lba, blocks));
    }
}

pub fn cscd(lun: u16) -> Vec<u8> {
    let name = naa(lun).to_bytes();
    let mut descriptor = vec![0xe4, 0, 0, 0, 1, 3, 0, name.len() as u8];
    descriptor.extend(name);
    descriptor.resize(28, 0);
    descriptor.extend((BLOCK as u32).to_be_bytes());
    descriptor
}

pub fn segment(from: u16, from_lba: u64, to: u16, lba: u64, blocks: u16) -> Vec<u8> {
    let mut descriptor = vec![0x02, 0, 0, 0x18];
    descriptor.extend(from.to_be_bytes());
    descriptor.extend(to.to_be_bytes());
    descriptor.extend([0, 0]);
    descriptor.extend(blocks.to_be_bytes());
    descriptor.extend(from_lba.to_be_bytes());
    descriptor.extend(lba.to_be_bytes());
    descriptor
}

pub fn list_lid1(list_id: u8, cscds: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
    let (cscds, segments) = (cscds.concat(), segments.concat());
    let mut list = vec![list_id, 0];
    list.extend((cscds.len() as u16).to_be_bytes());
    list.extend([0; 4]);
    list.extend((segments.len() as u32).to_be_bytes());
    list.extend([0; 4]);
    list.extend(cscds);
    list.extend(segments);
    list
}

pub fn list_lid4(list_id: u32, cscds: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
    let (cscds, segments) = (cscds.concat(), segments.concat());
    let mut list = vec![0; 48];
    (list[0], list[3], list[16]) = (1, 0x20, 0xff);
    list[20..24].copy_from_slice(&list_id.to_be_bytes());
    list[42..44].copy_from_slice(&(cscds.len() as u16).to_be_bytes());
    list[44..46].copy_from_slice(&(segments.len() as u16).to_be_bytes());
    list.extend(cscds);
    list.extend(segments);
    list
}

pub fn copy_cdb(service_action: u8, bytes: usize) -> Vec<u8> {
    let mut cdb = vec![0; 16];
    (cdb[0], cdb[1]) = (0x83, service_action);
    cdb[10..14].copy_from_slice(&(bytes as u32).to_be_bytes());
    cdb
}

/// RECEIVE COPY RESULTS with a list identifier of one byte.
pub fn results_lid1(service_action: u8, list_id: u8) -> Vec<u8> {
    let mut cdb = vec![0; 16];
    (cdb[0], cdb[1], cdb[2], cdb[12]) = (0x84, service_action, list_id, 0x10);
    cdb
}

/// The same with four bytes.
pub fn results_lid4(service_action: u8, list_id: u32) -> Vec<u8> {
    let mut cdb = vec![0; 16];
    (cdb[0], cdb[1], cdb[12]) = (0x84, service_action, 0x10);
    cdb[2..6].copy_from_slice(&list_id.to_be_bytes());
    cdb
}

pub fn number(data: &[u8], at: usize, bytes: usize) -> u64 {
    data[at..at + bytes].iter().fold(0, |n, &byte| n << 8 | u64::from(byte))
}
