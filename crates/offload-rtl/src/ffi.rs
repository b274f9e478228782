//! The C functions of `shim/shim.cpp`, and the owner of what they allocate.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

/// Inputs of `crc64` in one cycle. The same as in the shim.
#[repr(C)]
#[derive(Default)]
pub struct Crc64In {
    pub data: u64,
    pub polynomial: u32,
    pub init: u32,
    pub xor_out: u32,
    pub rst: u8,
    pub set_poly: u8,
    pub valid: u8,
    pub last: u8,
    pub keep: u8,
}

/// Inputs of `crc_wide` in one cycle. The same as in the shim.
#[repr(C)]
#[derive(Default)]
pub struct CrcWideIn {
    pub data: [u32; 16],
    pub init: u32,
    pub xor_out: u32,
    pub keep: u16,
    pub rst: u8,
    pub valid: u8,
    pub last: u8,
}

/// Outputs of either. The same as in the shim.
#[repr(C)]
#[derive(Default)]
pub struct CrcOut {
    pub digest: u32,
    pub ready: u8,
    pub digest_valid: u8,
}

/// Inputs of `credit_link` in one cycle. The same as in the shim.
#[repr(C)]
#[derive(Default)]
pub struct CreditIn {
    pub data: u32,
    pub rst: u8,
    pub send: u8,
    pub force_push: u8,
    pub pop: u8,
}

/// Outputs of `credit_link`. The same as in the shim.
#[repr(C)]
#[derive(Default)]
pub struct CreditOut {
    pub data: u32,
    /// Asserts that have failed so far.
    pub failed: u32,
    pub may_send: u8,
    pub valid: u8,
}

/// Inputs of `guard` in one cycle, for either width. The same as in the shim.
#[repr(C)]
#[derive(Default)]
pub struct GuardIn {
    pub data: [u32; 16],
    pub rst: u8,
    pub valid: u8,
    pub last: u8,
}

/// Outputs of `guard`. The same as in the shim.
#[repr(C)]
#[derive(Default)]
pub struct GuardOut {
    pub guard: u16,
    pub valid: u8,
}

/// Inputs of `rx_packet` in one cycle, for either width. The same as in the shim.
#[repr(C)]
#[derive(Clone, Default)]
pub struct RxPacketIn {
    pub data: [u32; 16],
    pub restart_position: u64,
    pub max_data: u32,
    pub count: u8,
    pub rst: u8,
    pub restart: u8,
    pub header_digest: u8,
    pub data_digest: u8,
    pub valid: u8,
    pub seg_ready: u8,
}

/// Outputs of `rx_packet`. The same as in the shim.
#[repr(C)]
#[derive(Default)]
pub struct RxPacketOut {
    pub seg_data: [u32; 16],
    pub verdict_position: u64,
    /// Asserts that have failed so far.
    pub failed: u32,
    pub ready: u8,
    pub seg_valid: u8,
    pub seg_is_data: u8,
    pub seg_first: u8,
    pub seg_last: u8,
    pub seg_words: u8,
    pub verdict_valid: u8,
    pub verdict: u8,
    pub stopped: u8,
}

/// Inputs of `task_table` in one cycle. The same as in the shim.
#[repr(C)]
#[derive(Default)]
pub struct TaskTableIn {
    pub tag: u32,
    pub entry: u32,
    pub rst: u8,
    pub request: u8,
}

/// Outputs of `task_table`. The same as in the shim.
#[repr(C)]
#[derive(Default)]
pub struct TaskTableOut {
    pub entry: u32,
    /// Asserts that have failed so far.
    pub failed: u32,
    pub answer_valid: u8,
    pub answer: u8,
    pub index: u8,
    pub used: u8,
}

/// The functions of one model whose inputs are `In` and whose outputs are `Out`.
pub struct Functions<In, Out = CrcOut> {
    new: unsafe extern "C" fn(c_int) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
    cycle: unsafe extern "C" fn(*mut c_void, *const In, *mut Out),
}

macro_rules! model {
    ($table:ident, $inputs:ty, $outputs:ty, $new:ident, $free:ident, $cycle:ident) => {
        // SAFETY: these are the signatures of the shim's functions, and its structs have the layout of ours.
        unsafe extern "C" {
            fn $new(seed: c_int) -> *mut c_void;
            fn $free(simulation: *mut c_void);
            fn $cycle(simulation: *mut c_void, inputs: *const $inputs, outputs: *mut $outputs);
        }
        pub const $table: Functions<$inputs, $outputs> = Functions { new: $new, free: $free, cycle: $cycle };
    };
}
model!(CRC64, Crc64In, CrcOut, crc64_new, crc64_free, crc64_cycle);
model!(WIDE_CRC32C, CrcWideIn, CrcOut, crc_wide_crc32c_new, crc_wide_crc32c_free, crc_wide_crc32c_cycle);
model!(WIDE_CRC32, CrcWideIn, CrcOut, crc_wide_crc32_new, crc_wide_crc32_free, crc_wide_crc32_cycle);
model!(WIDE_KOOPMAN, CrcWideIn, CrcOut, crc_wide_koopman_new, crc_wide_koopman_free, crc_wide_koopman_cycle);
model!(CREDIT, CreditIn, CreditOut, credit_link_new, credit_link_free, credit_link_cycle);
model!(GUARD64, GuardIn, GuardOut, guard64_new, guard64_free, guard64_cycle);
model!(GUARD512, GuardIn, GuardOut, guard512_new, guard512_free, guard512_cycle);
model!(RX64, RxPacketIn, RxPacketOut, rx_packet64_new, rx_packet64_free, rx_packet64_cycle);
model!(RX512, RxPacketIn, RxPacketOut, rx_packet512_new, rx_packet512_free, rx_packet512_cycle);
model!(CHECKED64, RxPacketIn, RxPacketOut, rx_checked64_new, rx_checked64_free, rx_checked64_cycle);
model!(CHECKED512, RxPacketIn, RxPacketOut, rx_checked512_new, rx_checked512_free, rx_checked512_cycle);
model!(TASK_TABLE, TaskTableIn, TaskTableOut, task_table_new, task_table_free, task_table_cycle);

/// A model in some state. It stays in its thread: the pointer makes it neither `Send` nor `Sync`.
pub struct Model<In, Out = CrcOut> {
    simulation: NonNull<c_void>,
    functions: Functions<In, Out>,
}

impl<In, Out: Default> Model<In, Out> {
    /// A model whose registers and memories have random contents, from `seed`, as after power-up.
    pub fn new(functions: Functions<In, Out>, seed: u16) -> Self {
        // SAFETY: the function takes any number and returns an object that only `free` destroys.
        let simulation = unsafe { (functions.new)(c_int::from(seed) + 1) };
        let simulation = NonNull::new(simulation).expect("operator new does not return null");
        Self { simulation, functions }
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
