//! The guard of protection information.

use crate::Width;
use crate::ffi::{Model, model};

/// Inputs of `guard` in one cycle, for either width. The same as in the shim.
#[repr(C)]
#[derive(Default)]
struct GuardIn {
    data: [u32; 16],
    rst: u8,
    valid: u8,
    last: u8,
}

/// Outputs of `guard`. The same as in the shim.
#[repr(C)]
#[derive(Default)]
struct GuardOut {
    guard: u16,
    valid: u8,
}

model!(GUARD64, GuardIn, GuardOut, guard64_new, guard64_free, guard64_cycle);
model!(GUARD512, GuardIn, GuardOut, guard512_new, guard512_free, guard512_cycle);

/// `guard`: CRC-16 with the polynomial 8BB7h, a beat in each cycle.
pub struct Guard {
    model: Model<GuardIn, GuardOut>,
    bytes: usize,
}

impl Guard {
    /// After power-up, with random contents from `seed`, and a reset.
    pub fn new(width: Width, seed: u16) -> Self {
        let functions = match width {
            Width::Bits64 => GUARD64,
            Width::Bits512 => GUARD512,
        };
        let mut model = Model::new(functions, seed);
        for _ in 0..2 {
            model.cycle(&GuardIn { rst: 1, ..GuardIn::default() });
        }
        Self { model, bytes: width.bytes() }
    }

    /// One cycle in which `beat` is offered, and whether its block ends with it; it is always accepted. Returns the guard of the oldest
    /// block that had none yet, if it comes in this cycle.
    ///
    /// # Panics
    /// If the beat is not as long as the width.
    pub fn cycle(&mut self, beat: Option<(&[u8], bool)>) -> Option<u16> {
        let mut inputs = GuardIn::default();
        if let Some((bytes, last)) = beat {
            assert_eq!(bytes.len(), self.bytes, "the bytes of a beat");
            for (word, four) in inputs.data.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *word = u32::from_le_bytes(*four);
            }
            inputs.valid = 1;
            inputs.last = last.into();
        }
        let out = self.model.cycle(&inputs);
        (out.valid != 0).then_some(out.guard)
    }
}
