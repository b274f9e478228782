//! Host memory in one vector: for tests, simulators, and hosts that copy.

use crate::{HostMem, MemFault};

/// Host memory whose addresses begin at a base. Accesses outside are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlatMemory {
    base: u64,
    bytes: Vec<u8>,
}

impl FlatMemory {
    /// `length` zero bytes at `base`.
    pub fn new(base: u64, length: usize) -> Self {
        Self { base, bytes: vec![0; length] }
    }

    /// All bytes, from the base on.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn place(&self, addr: u64, length: usize) -> Result<std::ops::Range<usize>, MemFault> {
        let start = addr.checked_sub(self.base).and_then(|start| usize::try_from(start).ok());
        start
            .and_then(|start| Some(start..start.checked_add(length)?))
            .filter(|range| range.end <= self.bytes.len())
            .ok_or(MemFault { addr, length })
    }
}

impl HostMem for FlatMemory {
    fn read(&mut self, addr: u64, into: &mut [u8]) -> Result<(), MemFault> {
        let range = self.place(addr, into.len())?;
        into.copy_from_slice(&self.bytes[range]);
        Ok(())
    }

    fn write(&mut self, addr: u64, from: &[u8]) -> Result<(), MemFault> {
        let range = self.place(addr, from.len())?;
        self.bytes[range].copy_from_slice(from);
        Ok(())
    }
    fn check_write(&mut self, addr: u64, length: usize) -> Result<(), MemFault> {
        self.place(addr, length).map(drop)
    }
}
