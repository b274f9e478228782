//! Values by keys that are never used again.

/// Identifies a value of [`Slots`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    index: u32,
    /// How many values its slot has had before.
    generation: u32,
}

/// Identifies a session of a shard.
pub(crate) type SessionKey = Key;

/// Values in slots. A value can be taken out for a while; its key stays its own.
pub(super) struct Slots<T> {
    slots: Vec<(u32, Option<Box<T>>)>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    /// A key for a new value, which must be [put](Self::put) in its slot.
    pub(crate) fn reserve(&mut self) -> Key {
        match self.free.pop() {
            Some(index) => Key { index, generation: self.slots[index as usize].0 },
            None => {
                self.slots.push((0, None));
                Key { index: self.slots.len() as u32 - 1, generation: 0 }
            }
        }
    }

    /// Puts a new value, or one that was taken out, in its slot.
    pub(crate) fn put(&mut self, key: Key, value: Box<T>) {
        let (generation, slot) = &mut self.slots[key.index as usize];
        debug_assert!(*generation == key.generation && slot.is_none());
        *slot = Some(value);
    }

    /// Takes a value out; it must be put back, or its key released.
    pub(crate) fn take(&mut self, key: Key) -> Option<Box<T>> {
        match self.slots.get_mut(key.index as usize) {
            Some((generation, slot)) if *generation == key.generation => slot.take(),
            _ => None,
        }
    }

    /// Frees the slot of a value that was taken out and is not put back.
    pub(crate) fn release(&mut self, key: Key) {
        self.slots[key.index as usize].0 = key.generation.wrapping_add(1);
        self.free.push(key.index);
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let (generation, slot) = self.slots.get(key.index as usize)?;
        slot.as_deref().filter(|_| *generation == key.generation)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let (generation, slot) = self.slots.get_mut(key.index as usize)?;
        slot.as_deref_mut().filter(|_| *generation == key.generation)
    }

    /// The values that are in their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|(_, slot)| slot.as_deref())
    }

    /// Like [`Slots::iter`].
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|(_, slot)| slot.as_deref_mut())
    }

    /// Number of values, including those that are taken out.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Number of slots, which an iteration examines.
    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_leads_to_its_own_value_only() {
        let mut slots = Slots::default();
        let [a, b] = ["a", "b"].map(|value| {
            let key = slots.reserve();
            slots.put(key, Box::new(value));
            key
        });
        let taken = slots.take(a).unwrap();
        assert_eq!((slots.take(a), slots.get(a), slots.len()), (None, None, 2));
        assert_eq!(slots.iter().collect::<Vec<_>>(), [&"b"]);
        slots.put(a, taken);
        assert_eq!(slots.get_mut(b), Some(&mut "b"));
        assert_eq!(slots.get(a), Some(&"a"));
        slots.take(a).unwrap();
        slots.release(a);
        let c = slots.reserve();
        slots.put(c, Box::new("c"));
        assert!(slots.get_mut(a).is_none() && slots.take(a).is_none(), "its slot is reused");
        assert_eq!(slots.get(a), None);
        assert_eq!((slots.get(c), slots.len(), slots.capacity()), (Some(&"c"), 2, 2));
    }
}
