//! A task's memory: the elements of its scatter/gather list, one after the other.

use crate::encoding::{SglElement, TaskResult};
use crate::limits::MAX_SGL_ELEMENTS;
use crate::{HostMem, MemFault};

/// The data_address entry of one task.
#[derive(Debug, Default)]
pub(super) struct Sgl {
    elements: Vec<SglElement>,
}

impl Sgl {
    /// Fetches `count` elements at `addr`. Together they must hold `edtl` bytes.
    pub(super) fn fetch(
        memory: &mut dyn HostMem,
        addr: u64,
        count: u16,
        edtl: u32,
    ) -> Result<Self, TaskResult> {
        if count > MAX_SGL_ELEMENTS {
            return Err(TaskResult::BAD_SGL);
        }
        let mut list = vec![0; usize::from(count) * SglElement::BYTES];
        if !list.is_empty() {
            memory.read(addr, &mut list).map_err(|_| TaskResult::MEMORY)?;
        }
        let (records, _) = list.as_chunks::<{ SglElement::BYTES }>();
        let elements: Vec<_> = records.iter().map(SglElement::parse).collect();
        let total: u64 = elements.iter().map(|element| u64::from(element.length)).sum();
        let bad = |element: &SglElement| {
            element.length == 0 || element.addr.checked_add(u64::from(element.length)).is_none()
        };
        if total < u64::from(edtl) || elements.iter().any(bad) {
            return Err(TaskResult::BAD_SGL);
        }
        Ok(Self { elements })
    }

    /// The elements in order, each with the offset at which it begins in the task's memory.
    pub(super) fn elements(&self) -> impl Iterator<Item = (u64, SglElement)> {
        self.elements.iter().scan(0_u64, |next, element| {
            let begin = *next;
            *next += u64::from(element.length);
            Some((begin, *element))
        })
    }

    /// Writes `data` at `offset` of the task's memory. The caller keeps `offset + data.len()` within the length of the memory.
    pub(super) fn write(&self, memory: &mut dyn HostMem, offset: u32, data: &[u8]) -> Result<(), MemFault> {
        self.runs(offset, data.len(), |addr, run| memory.write(addr, &data[run]))
    }

    /// Reads `into.len()` bytes at `offset`, within the same bound.
    pub(super) fn read(
        &self,
        memory: &mut dyn HostMem,
        offset: u32,
        into: &mut [u8],
    ) -> Result<(), MemFault> {
        self.runs(offset, into.len(), |addr, run| memory.read(addr, &mut into[run]))
    }

    /// Calls `access` for every run of bytes that lies in one element: its address, and which of the `length` bytes they are.
    fn runs(
        &self,
        offset: u32,
        length: usize,
        mut access: impl FnMut(u64, std::ops::Range<usize>) -> Result<(), MemFault>,
    ) -> Result<(), MemFault> {
        let (begin, end) = (u64::from(offset), u64::from(offset) + length as u64);
        for (start, element) in self.elements() {
            let from = begin.max(start);
            let to = end.min(start + u64::from(element.length));
            if from < to {
                access(element.addr + (from - start), (from - begin) as usize..(to - begin) as usize)?;
            }
        }
        Ok(())
    }
}
