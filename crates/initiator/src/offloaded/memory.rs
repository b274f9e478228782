//! Host memory as an engine reaches it: the buffers of tasks, the ring of raw PDUs, and what the next descriptor refers to.
//!
//! An address is no pointer. It names an area, a slot and an offset (`area << 56 | slot << 32 | offset`), and every access is
//! checked against the area: an engine that is wrong is refused, and reaches nothing else of this process.

use bytes::{Bytes, BytesMut};
use iscsi_core::initiator::command::WriteData;
use iscsi_core::wire::Itt;
use offload::limits::SENSE_AREA_BYTES;
use offload::{HostMem, MemFault};

/// The ring of raw PDUs.
pub(super) const RING: u64 = 1 << AREA_SHIFT;
/// What the descriptor that is being submitted refers to: a scatter/gather list, or a PDU.
pub(super) const STAGED: u64 = 2 << AREA_SHIFT;
const SENSE: u64 = 3 << AREA_SHIFT;
const DATA: u64 = 4 << AREA_SHIFT;
const AREA_SHIFT: u32 = 56;
const SLOT_SHIFT: u32 = 32;

/// The data of a task.
#[derive(Debug)]
pub(super) enum Data {
    /// A command without data.
    Nothing,
    /// A read of at most this many bytes. What has been placed grows from the front, so memory that is never written need not be
    /// cleared.
    In(BytesMut, usize),
    /// A write.
    Out(WriteData),
}

impl Data {
    /// Room for `length` bytes of a read.
    pub(super) fn room(length: u32) -> Self {
        Self::In(BytesMut::with_capacity(length as usize), length as usize)
    }

    fn read(&self, offset: usize, into: &mut [u8]) -> Option<()> {
        let Self::Out(data) = self else { return None };
        let end = offset.checked_add(into.len()).filter(|end| *end <= data.len())?;
        into.copy_from_slice(&data.part(offset..end).bytes());
        Some(())
    }

    fn write(&mut self, offset: usize, from: &[u8]) -> Option<()> {
        let Self::In(placed, limit) = self else { return None };
        let end = offset.checked_add(from.len()).filter(|end| end <= limit)?;
        if placed.len() == offset {
            placed.extend_from_slice(from);
            return Some(());
        }
        if placed.len() < end {
            placed.resize(end, 0);
        }
        placed[offset..end].copy_from_slice(from);
        Some(())
    }
}

/// A task that the engine has: its memory is the engine's until TASK_DONE.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) itt: Itt,
    data: Data,
    sense: [u8; SENSE_AREA_BYTES as usize],
    /// The session has ended it meanwhile: what the engine still reports of it is of no interest.
    pub(super) abandoned: bool,
    /// The engine has it. Otherwise the slot waits for another task.
    used: bool,
}

/// What is left of a task.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// The data that was placed.
    pub(super) data: Bytes,
    /// The first bytes of the area for sense data.
    pub(super) sense: Vec<u8>,
    pub(super) abandoned: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct AddressSpace {
    ring: Vec<u8>,
    staged: Vec<u8>,
    tasks: Vec<Task>,
    /// As many as the engine has room for.
    most_tasks: usize,
    free: Vec<usize>,
}

impl AddressSpace {
    /// With a ring of this many bytes, for an engine that has room for `most_tasks` tasks.
    pub(super) fn new(ring_bytes: usize, most_tasks: usize) -> Self {
        Self {
            ring: vec![0; ring_bytes],
            staged: Vec::new(),
            tasks: Vec::new(),
            most_tasks,
            free: Vec::new(),
        }
    }

    /// Sets what the next descriptor refers to.
    pub(super) fn stage(&mut self, bytes: &[u8]) {
        self.staged.clear();
        self.staged.extend_from_slice(bytes);
    }

    /// A slot for a task; `None` when the engine can have no further task.
    pub(super) fn begin(&mut self, itt: Itt, data: Data) -> Option<usize> {
        if let Some(slot) = self.free.pop() {
            let task = &mut self.tasks[slot];
            (task.itt, task.data, task.abandoned, task.used) = (itt, data, false, true);
            return Some(slot);
        }
        if self.tasks.len() == self.most_tasks {
            return None;
        }
        let sense = [0; SENSE_AREA_BYTES as usize];
        self.tasks.push(Task { itt, data, sense, abandoned: false, used: true });
        Some(self.tasks.len() - 1)
    }

    /// The engine is done with the task in `slot`, which has so many bytes of sense data.
    pub(super) fn end(&mut self, slot: usize, sense_bytes: u16) -> Option<Left> {
        let task = self.tasks.get_mut(slot).filter(|task| task.used)?;
        task.used = false;
        self.free.push(slot);
        let sense = &mut task.sense[..usize::from(sense_bytes.min(SENSE_AREA_BYTES))];
        let left = sense.to_vec();
        sense.fill(0);
        let data = match std::mem::replace(&mut task.data, Data::Nothing) {
            Data::In(placed, _) => placed.freeze(),
            Data::Nothing | Data::Out(_) => Bytes::new(),
        };
        Some(Left { data, sense: left, abandoned: task.abandoned })
    }

    /// The tasks that the engine has.
    pub(super) fn tasks_mut(&mut self) -> impl Iterator<Item = &mut Task> {
        self.tasks.iter_mut().filter(|task| task.used)
    }

    fn task(&self, slot: usize) -> Option<&Task> {
        self.tasks.get(slot).filter(|task| task.used)
    }

    fn task_mut(&mut self, slot: usize) -> Option<&mut Task> {
        self.tasks.get_mut(slot).filter(|task| task.used)
    }

    /// Address of the data of the task in `slot`.
    pub(super) fn data_address(slot: usize) -> u64 {
        DATA | (slot as u64) << SLOT_SHIFT
    }

    /// Address of the area for sense data of the task in `slot`.
    pub(super) fn sense_address(slot: usize) -> u64 {
        SENSE | (slot as u64) << SLOT_SHIFT
    }

    /// `length` bytes of the ring at `address`.
    pub(super) fn of_ring(&self, address: u64, length: usize) -> Option<&[u8]> {
        let start = usize::try_from(address.checked_sub(RING)?).ok()?;
        self.ring.get(start..start.checked_add(length)?)
    }

    fn try_read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        let (area, slot, offset) = parts(address);
        match area {
            STAGED => into.copy_from_slice(self.staged.get(offset..offset.checked_add(into.len())?)?),
            DATA => self.task(slot)?.data.read(offset, into)?,
            _ => return None,
        }
        Some(())
    }

    /// Whether `length` bytes at an address may be written.
    fn room(&self, address: u64, length: usize) -> Option<()> {
        let (area, slot, offset) = parts(address);
        let end = offset.checked_add(length)?;
        let limit = match area {
            RING => self.ring.len(),
            SENSE => self.task(slot)?.sense.len(),
            DATA => match self.task(slot)?.data {
                Data::In(_, limit) => limit,
                Data::Nothing | Data::Out(_) => return None,
            },
            _ => return None,
        };
        (end <= limit).then_some(())
    }

    fn try_write(&mut self, address: u64, from: &[u8]) -> Option<()> {
        let (area, slot, offset) = parts(address);
        match area {
            RING => self.ring.get_mut(offset..offset.checked_add(from.len())?)?.copy_from_slice(from),
            SENSE => {
                let sense = &mut self.task_mut(slot)?.sense;
                sense.get_mut(offset..offset.checked_add(from.len())?)?.copy_from_slice(from);
            }
            DATA => self.task_mut(slot)?.data.write(offset, from)?,
            _ => return None,
        }
        Some(())
    }
}

impl HostMem for AddressSpace {
    fn read(&mut self, addr: u64, into: &mut [u8]) -> Result<(), MemFault> {
        self.try_read(addr, into).ok_or(MemFault { addr, length: into.len() })
    }

    fn write(&mut self, addr: u64, from: &[u8]) -> Result<(), MemFault> {
        self.try_write(addr, from).ok_or(MemFault { addr, length: from.len() })
    }

    fn check_write(&mut self, addr: u64, length: usize) -> Result<(), MemFault> {
        self.room(addr, length).ok_or(MemFault { addr, length })
    }
}

/// Area, slot and offset of an address.
fn parts(address: u64) -> (u64, usize, usize) {
    let area = address >> AREA_SHIFT << AREA_SHIFT;
    (area, ((address ^ area) >> SLOT_SHIFT) as usize, (address & 0xffff_ffff) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_reaches_the_memory_of_its_tasks_and_nothing_else() {
        let mut space = AddressSpace::new(100, 2);
        let read = space.begin(Itt(1), Data::room(8)).unwrap();
        let write = space.begin(Itt(2), Data::Out(Bytes::from_static(b"to be written").into())).unwrap();
        let (to, from) = (AddressSpace::data_address(read), AddressSpace::data_address(write));
        assert!(space.write(to + 4, b"late").is_ok() && space.write(to, b"soon").is_ok());
        let mut some = [0; 7];
        assert!(space.read(from + 6, &mut some).is_ok());
        assert_eq!(&some, b"written");
        for wrong in [from + 7, to, RING, from | 0xff << SLOT_SHIFT, u64::MAX] {
            assert!(space.read(wrong, &mut some).is_err(), "{wrong:#x}");
        }
        for wrong in [to + 2, from, STAGED, RING + 94, to + u64::from(u32::MAX), 0] {
            assert!(space.write(wrong, &some).is_err(), "{wrong:#x}");
            assert!(space.check_write(wrong, some.len()).is_err(), "{wrong:#x}");
        }
        let areas = [(to, 8), (to + 8, 0), (RING + 93, 7), (AddressSpace::sense_address(write), 256)];
        for (addr, length) in areas {
            assert!(space.check_write(addr, length).is_ok(), "{addr:#x}, {length} bytes");
            assert!(space.check_write(addr, length + 257).is_err(), "{addr:#x}, {length} bytes and more");
        }
        assert!(
            space.write(AddressSpace::sense_address(read) + 250, &some).is_err(),
            "256 bytes of sense data"
        );
        let left = space.end(read, 3).unwrap();
        assert_eq!((&left.data[..], &left.sense[..], left.abandoned), (&b"soonlate"[..], &[0; 3][..], false));
        assert_eq!(space.end(read, 0), None, "it has ended");
        assert!(space.write(to, b"soon").is_err(), "it is software's again");
    }

    #[test]
    fn there_are_as_many_slots_as_an_engine_has_tasks() {
        let mut space = AddressSpace::new(0, 9);
        let begin = |space: &mut AddressSpace| space.begin(Itt(1), Data::Nothing);
        let all: Vec<_> = (0..9).filter_map(|_| begin(&mut space)).collect();
        assert_eq!((all.len(), begin(&mut space)), (9, None));
        space.end(all[7], 0);
        assert_eq!(begin(&mut space), Some(all[7]));
    }
}
