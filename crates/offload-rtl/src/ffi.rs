//! The C functions of `shim/shim.cpp`, and the owner of what they allocate. The structs that they take are with the model whose ports
//! they are.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

/// The functions of one model whose inputs are `In` and whose outputs are `Out`.
pub struct Functions<In, Out> {
    new: unsafe extern "C" fn(c_int) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
    cycle: unsafe extern "C" fn(*mut c_void, *const In, *mut Out),
    /// Of models that can write a waveform.
    trace: Option<unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int>,
}

impl<In, Out> Functions<In, Out> {
    /// # Safety
    ///
    /// The three belong to one model: `new` takes any number and returns an object that only `free` destroys; `cycle` reads one struct
    /// and writes the other, whose layouts are those of `In` and `Out`, and keeps neither.
    pub const unsafe fn of(
        new: unsafe extern "C" fn(c_int) -> *mut c_void,
        free: unsafe extern "C" fn(*mut c_void),
        cycle: unsafe extern "C" fn(*mut c_void, *const In, *mut Out),
    ) -> Self {
        Self { new, free, cycle, trace: None }
    }

    /// # Safety
    ///
    /// `trace` belongs to the same model. It reads a string that ends with NUL, does not keep it, and returns 1 if the file is open.
    pub const unsafe fn traced_by(
        self,
        trace: unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int,
    ) -> Self {
        Self { trace: Some(trace), ..self }
    }
}

/// The table of one model's functions in the shim. `In` and `Out` are the same as in the shim: its ports, which nobody else needs to see.
macro_rules! model {
    ($table:ident, $inputs:ty, $outputs:ty, $new:ident, $free:ident, $cycle:ident $(, $trace:ident)?) => {
        // SAFETY: these are the signatures of the shim's functions, and its structs have the layout of ours.
        unsafe extern "C" {
            fn $new(seed: std::ffi::c_int) -> *mut std::ffi::c_void;
            fn $free(simulation: *mut std::ffi::c_void);
            fn $cycle(simulation: *mut std::ffi::c_void, inputs: *const $inputs, outputs: *mut $outputs);
            $(fn $trace(simulation: *mut std::ffi::c_void, path: *const std::ffi::c_char) -> std::ffi::c_int;)?
        }
        const $table: $crate::ffi::Functions<$inputs, $outputs> =
            // SAFETY: the shim makes them for one model.
            unsafe { $crate::ffi::Functions::of($new, $free, $cycle)$(.traced_by($trace))? };
    };
}
pub(crate) use model;

/// A model in some state. It may change its thread, but no two threads have it at a time.
pub struct Model<In, Out> {
    simulation: NonNull<c_void>,
    functions: Functions<In, Out>,
}

// SAFETY: `simulation` owns its `VerilatedContext` and its model, and nothing else refers to them: a translated model has no static
// variables, and the shim makes the context the thread's own in each call (Verilator's guide, "Connecting to Verilated models":
// one context for each thread that evaluates). The functions take and return plain data.
unsafe impl<In, Out> Send for Model<In, Out> {}

impl<In, Out: Default> Model<In, Out> {
    /// A model whose registers and memories have random contents, from `seed`, as after power-up.
    pub fn new(functions: Functions<In, Out>, seed: u16) -> Self {
        // SAFETY: the function takes any number and returns an object that only `free` destroys.
        let simulation = unsafe { (functions.new)(c_int::from(seed) + 1) };
        let simulation = NonNull::new(simulation).expect("operator new does not return null");
        Self { simulation, functions }
    }

    /// Writes a waveform to this file from here on. False if it cannot be written, or the model has none.
    pub fn trace(&mut self, path: &CStr) -> bool {
        let Some(trace) = self.functions.trace else { return false };
        // SAFETY: `simulation` came from `new` of the same table and is alive; the path lives for the call.
        unsafe { trace(self.simulation.as_ptr(), path.as_ptr()) == 1 }
    }

    /// The outputs before the rising edge, then the edge.
    pub fn cycle(&mut self, inputs: &In) -> Out {
        let mut outputs = Out::default();
        // SAFETY: `simulation` came from `new` of the same table and is alive; `&mut self` makes this the only call on it. Both structs
        // live for the call, the shim reads one and writes the other, and keeps neither.
        unsafe { (self.functions.cycle)(self.simulation.as_ptr(), inputs, &mut outputs) };
        outputs
    }
}

impl<In, Out> Drop for Model<In, Out> {
    fn drop(&mut self) {
        // SAFETY: `simulation` came from `new` of the same table and is not used after this.
        unsafe { (self.functions.free)(self.simulation.as_ptr()) };
    }
}
