//! Which slots of a journal are in use, and for what. Does no I/O.
//!
//! ```text
//!   first ≤ ... ≤ next: at most SLOTS numbers, each of them
//!
//!          the record is whole, the blocks are written           a flush, then a mark
//!   taken ────────────────────────────────────────────► placed ──────────────────────► retired: number < first
//!     │ the blocks could not be written
//!     └─► stuck, until the store is reopened
//! ```

use super::format::SLOTS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Taken,
    Placed,
    Stuck,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    offset: u64,
    len: u64,
    phase: Phase,
}

impl Slot {
    fn meets(&self, offset: u64, len: u64) -> bool {
        self.offset < offset.saturating_add(len) && offset < self.offset + self.len
    }
}

/// See the head of the module.
#[derive(Debug)]
pub(super) struct Ring {
    first: u64,
    next: u64,
    slots: [Slot; SLOTS as usize],
}

/// A range overlaps a write that could not be finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stuck;

impl Ring {
    pub(super) fn new(first: u64) -> Self {
        let free = Slot { offset: 0, len: 0, phase: Phase::Placed };
        Ring { first, next: first, slots: [free; SLOTS as usize] }
    }

    /// The first number that is not retired.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// How many numbers are not retired.
    pub(super) fn live(&self) -> u64 {
        self.next - self.first
    }

    fn slot(&mut self, number: u64) -> &mut Slot {
        &mut self.slots[(number % SLOTS) as usize]
    }

    fn each(&self) -> impl Iterator<Item = (u64, &Slot)> {
        (self.first..self.next).map(|number| (number, &self.slots[(number % SLOTS) as usize]))
    }

    /// A number for a write, if a slot is free.
    pub(super) fn take(&mut self, offset: u64, len: u64) -> Option<u64> {
        let number = self.next;
        (self.live() < SLOTS).then(|| {
            *self.slot(number) = Slot { offset, len, phase: Phase::Taken };
            self.next += 1;
            number
        })
    }

    pub(super) fn place(&mut self, number: u64) {
        self.slot(number).phase = Phase::Placed;
    }

    /// Marks a write as stuck; one that is already retired stays so.
    pub(super) fn mark_stuck(&mut self, number: u64) {
        if number >= self.first {
            self.slot(number).phase = Phase::Stuck;
        }
    }

    /// Marks all writes that are not retired as stuck.
    pub(super) fn mark_all_stuck(&mut self) {
        (self.first..self.next).for_each(|number| self.mark_stuck(number));
    }

    /// The first number that is not placed.
    pub(super) fn placed(&self) -> u64 {
        self.each().find(|(_, slot)| slot.phase != Phase::Placed).map_or(self.next, |(number, _)| number)
    }

    /// Whether `number` is stuck.
    pub(super) fn is_stuck(&self, number: u64) -> bool {
        self.each().any(|(n, slot)| n == number && slot.phase == Phase::Stuck)
    }

    /// Everything below `first` is retired.
    pub(super) fn advance(&mut self, first: u64) {
        self.first = self.first.max(first.min(self.next));
    }

    /// The number up to which everything must be retired before the range may be changed by other means; `None`: it
    /// may be changed now.
    pub(super) fn in_the_way(&self, offset: u64, len: u64) -> Result<Option<u64>, Stuck> {
        let mut until = None;
        for (number, slot) in self.each().filter(|(_, slot)| slot.meets(offset, len)) {
            if slot.phase == Phase::Stuck {
                return Err(Stuck);
            }
            until = Some(number + 1);
        }
        Ok(until)
    }
}
