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

/// Inputs of `tx` in one cycle, for either width. Packed structs of `tx_pkg` are words, the lowest first. The same as in the shim.
#[repr(C)]
#[derive(Default)]
pub struct TxIn {
    pub mem_data: [u32; 16],
    pub raw_data: [u32; 16],
    pub look_post: [u32; 12],
    pub look_tx: [u32; 4],
    pub r2t: [u32; 7],
    pub snack: [u32; 7],
    pub element: [u32; 4],
    pub open_cmd_sn: u32,
    pub max_send: u32,
    pub max_burst: u32,
    pub first_burst: u32,
    pub exp_stat_sn: u32,
    pub max_cmd_sn: u32,
    pub look_tag: u32,
    pub post: u16,
    pub look_first: u16,
    pub element_next: u16,
    pub peek_at: u16,
    pub rst: u8,
    pub open: u8,
    pub header_digest: u8,
    pub data_digest: u8,
    pub initial_r2t: u8,
    pub immediate_data: u8,
    pub room: u8,
    pub post_valid: u8,
    pub looked: u8,
    pub look_found: u8,
    pub r2t_valid: u8,
    pub snack_answer: u8,
    pub snack_wanted: u8,
    pub raw_valid: u8,
    pub raw_last: u8,
    pub raw_words: u8,
    pub ended_valid: u8,
    pub ended_index: u8,
    pub mem_ready: u8,
    pub mem_data_valid: u8,
    pub mem_count: u8,
    pub mem_last: u8,
    pub mem_fault: u8,
    pub ready: u8,
}

/// Outputs of `tx`. The same as in the shim.
#[repr(C)]
#[derive(Default)]
pub struct TxOut {
    pub mem_addr: u64,
    pub data: [u32; 16],
    pub write_tx: [u32; 4],
    pub peek: [u32; 7],
    pub peek_sent: u32,
    pub peek_data_sn: u32,
    pub mem_bytes: u32,
    pub cmd_sn: u32,
    pub fault_tag: u32,
    /// Asserts that have failed so far.
    pub failed: u32,
    pub element: u16,
    pub post_ready: u8,
    pub look: u8,
    pub look_index: u8,
    pub write: u8,
    pub write_index: u8,
    pub r2t_ready: u8,
    pub snack_take: u8,
    pub snack_index: u8,
    pub raw_numbered: u8,
    pub raw_ready: u8,
    pub ended_ready: u8,
    pub fault: u8,
    pub peek_valid: u8,
    pub mem_valid: u8,
    pub mem_data_ready: u8,
    pub valid: u8,
    pub count: u8,
    pub idle: u8,
}

/// Inputs of `snack_table` in one cycle; entries are packed structs of `snack_pkg` in words, the lowest first. The same as in the shim.
#[repr(C)]
#[derive(Clone, Default)]
pub struct SnackTableIn {
    pub entry: [u32; 11],
    pub peek_at: u16,
    pub rst: u8,
    pub valid: u8,
    pub operation: u8,
    pub due_ready: u8,
    pub take: u8,
    pub take_id: u8,
}

/// Outputs of `snack_table`. The same as in the shim.
#[repr(C)]
#[derive(Default)]
pub struct SnackTableOut {
    pub deadline: u64,
    pub peek: [u32; 11],
    pub taken: [u32; 11],
    pub missing_status: u32,
    /// Asserts that have failed so far.
    pub failed: u32,
    pub ready: u8,
    pub answer: u8,
    pub found: u8,
    pub found_state: u8,
    pub admits: u8,
    pub has_any: u8,
    pub due_valid: u8,
    pub due_id: u8,
    pub take_answer: u8,
    pub take_wanted: u8,
    pub status_missing: u8,
    pub has_room: u8,
    pub peek_valid: u8,
}

/// Inputs of `rx_engine` in one cycle, for either width. The same as in the shim.
#[repr(C)]
#[derive(Clone, Default)]
pub struct RxEngineIn {
    pub data: [u32; 16],
    pub post: [u32; 12],
    pub tx_task: [u32; 4],
    pub restart_position: u64,
    pub raw_addr: u64,
    pub request_addr: u64,
    pub max_data: u32,
    pub max_burst: u32,
    pub raw_slot_bytes: u32,
    pub open_cmd_sn: u32,
    pub open_max_cmd_sn: u32,
    pub open_stat_sn: u32,
    pub cmd_sn: u32,
    pub request_tag: u32,
    pub request_length: u32,
    pub conn: u16,
    pub raw_slots: u16,
    pub release_slots: u16,
    pub tx_element: u16,
    pub count: u8,
    pub rst: u8,
    pub open: u8,
    pub restart: u8,
    pub header_digest: u8,
    pub data_digest: u8,
    pub max_outstanding_r2t: u8,
    pub valid: u8,
    pub run_ready: u8,
    pub answer_valid: u8,
    pub answer_refused: u8,
    pub write_ready: u8,
    pub done_room: u8,
    pub done_ready: u8,
    pub release: u8,
    pub request_valid: u8,
    pub request: u8,
    pub request_result: u8,
    pub request_index: u8,
    pub tx_look: u8,
    pub tx_index: u8,
    pub tx_write: u8,
    pub tx_write_index: u8,
    pub r2t_ready: u8,
    pub ended_ready: u8,
}

/// Outputs of `rx_engine`. The same as in the shim.
#[repr(C)]
#[derive(Default)]
pub struct RxEngineOut {
    pub write_data: [u32; 16],
    pub done: [u32; 16],
    pub copy_post: [u32; 12],
    pub copy_rx: [u32; 4],
    pub copy_tx: [u32; 4],
    pub element: [u32; 4],
    pub run_addr: u64,
    pub write_addr: u64,
    pub taken: u64,
    pub r2t_lun: u64,
    pub copy_list: u64,
    pub run_length: u32,
    pub exp_cmd_sn: u32,
    pub max_cmd_sn: u32,
    pub stat_sn: u32,
    pub copy_tag: u32,
    pub r2t_itt: u32,
    pub r2t_ttt: u32,
    pub r2t_sn: u32,
    pub r2t_offset: u32,
    pub r2t_length: u32,
    pub ended_itt: u32,
    /// Asserts that have failed so far.
    pub failed: u32,
    pub raw_free: u16,
    pub tx_next: u16,
    pub tasks_used: u16,
    pub ready: u8,
    pub run_valid: u8,
    pub write_valid: u8,
    pub write_first: u8,
    pub write_count: u8,
    pub done_valid: u8,
    pub stopped: u8,
    pub stop_reason: u8,
    pub request_ready: u8,
    pub reply_valid: u8,
    pub reply: u8,
    pub reply_index: u8,
    pub tx_looked: u8,
    pub tx_found: u8,
    pub r2t_valid: u8,
    pub r2t_index: u8,
    pub ended_valid: u8,
    pub ended_index: u8,
    pub busy: u8,
}

/// Inputs of `engine_tx` in one cycle: those of `tx` that it has too, and its own. The same as in the shim.
#[repr(C)]
#[derive(Default)]
pub struct EngineTxIn {
    pub tx: TxIn,
    pub descriptor: [u32; 16],
    pub rst: u8,
    pub descriptor_valid: u8,
    pub done_ready: u8,
    pub due_valid: u8,
    pub due_id: u8,
    pub request_ready: u8,
    pub reply_valid: u8,
    pub reply: u8,
    pub reply_index: u8,
}

/// Outputs of `engine_tx`. The same as in the shim.
#[repr(C)]
#[derive(Default)]
pub struct EngineTxOut {
    pub tx: TxOut,
    pub request_addr: u64,
    pub done: [u32; 16],
    pub request_post: [u32; 12],
    pub request_tag: u32,
    pub request_length: u32,
    pub descriptor_ready: u8,
    pub done_valid: u8,
    pub due_ready: u8,
    pub request_valid: u8,
    pub request: u8,
    pub request_index: u8,
    pub request_result: u8,
    pub is_open: u8,
}

/// Inputs of `engine` in one cycle. The same as in the shim.
#[repr(C)]
#[derive(Default)]
pub struct EngineIn {
    pub now: u64,
    pub descriptor: [u32; 16],
    pub rx_data: [u32; 16],
    pub read_data: [u32; 16],
    pub release_slots: u16,
    pub element: u16,
    pub peek_at: u16,
    pub snack_at: u16,
    pub rst: u8,
    pub descriptor_valid: u8,
    pub rx_room: u8,
    pub tx_room: u8,
    pub done_ready: u8,
    pub release: u8,
    pub rx_valid: u8,
    pub rx_count: u8,
    pub tx_ready: u8,
    pub read_ready: u8,
    pub read_data_valid: u8,
    pub read_count: u8,
    pub read_last: u8,
    pub read_fault: u8,
    pub run_ready: u8,
    pub answer_valid: u8,
    pub answer_refused: u8,
    pub write_ready: u8,
    pub show: u8,
    pub show_index: u8,
    pub show_element: u8,
    pub advance: u8,
}

/// Outputs of `engine`; packed structs of the circuit in words, the lowest first. The same as in the shim.
#[repr(C)]
#[derive(Default)]
pub struct EngineOut {
    pub restart_position: u64,
    pub read_addr: u64,
    pub run_addr: u64,
    pub write_addr: u64,
    pub taken: u64,
    pub shown_list: u64,
    pub deadline: u64,
    pub done: [u32; 16],
    pub tx_data: [u32; 16],
    pub write_data: [u32; 16],
    pub shown_post: [u32; 12],
    pub shown_rx: [u32; 4],
    pub shown_tx: [u32; 4],
    pub element: [u32; 4],
    pub peek: [u32; 7],
    pub snack: [u32; 11],
    pub read_bytes: u32,
    pub run_length: u32,
    pub max_recv: u32,
    pub max_send: u32,
    pub max_burst: u32,
    pub first_burst: u32,
    pub snack_delay: u32,
    pub cmd_sn: u32,
    pub exp_cmd_sn: u32,
    pub max_cmd_sn: u32,
    pub stat_sn: u32,
    pub exp_stat_sn: u32,
    pub poly: u32,
    pub shown_tag: u32,
    pub peek_sent: u32,
    pub peek_data_sn: u32,
    /// Asserts that have failed so far.
    pub failed: u32,
    pub max_outstanding_r2t: u16,
    pub raw_free: u16,
    pub tasks_used: u16,
    pub element_next: u16,
    pub descriptor_ready: u8,
    pub done_valid: u8,
    pub rx_ready: u8,
    pub opens: u8,
    pub restart: u8,
    pub tx_valid: u8,
    pub tx_count: u8,
    pub read_valid: u8,
    pub read_data_ready: u8,
    pub run_valid: u8,
    pub write_valid: u8,
    pub write_first: u8,
    pub write_count: u8,
    pub is_open: u8,
    pub conn_flags: u8,
    pub stopped: u8,
    pub stop_reason: u8,
    pub show_ready: u8,
    pub shown: u8,
    pub shown_found: u8,
    pub peek_valid: u8,
    pub idle: u8,
    pub busy: u8,
    pub recovery_level: u8,
    pub shown_held: u8,
    pub snack_valid: u8,
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
model!(ENGINE64, RxEngineIn, RxEngineOut, rx_engine64_new, rx_engine64_free, rx_engine64_cycle);
model!(ENGINE512, RxEngineIn, RxEngineOut, rx_engine512_new, rx_engine512_free, rx_engine512_cycle);
model!(TASK_TABLE, TaskTableIn, TaskTableOut, task_table_new, task_table_free, task_table_cycle);
model!(SNACK_TABLE, SnackTableIn, SnackTableOut, snack_table_new, snack_table_free, snack_table_cycle);
model!(WHOLE64, EngineIn, EngineOut, engine64_new, engine64_free, engine64_cycle);
model!(WHOLE512, EngineIn, EngineOut, engine512_new, engine512_free, engine512_cycle);
model!(ENGINE_TX64, EngineTxIn, EngineTxOut, engine_tx64_new, engine_tx64_free, engine_tx64_cycle);
model!(ENGINE_TX512, EngineTxIn, EngineTxOut, engine_tx512_new, engine_tx512_free, engine_tx512_cycle);
model!(TX64, TxIn, TxOut, tx64_new, tx64_free, tx64_cycle);
model!(TX512, TxIn, TxOut, tx512_new, tx512_free, tx512_cycle);

/// A model in some state. It may change its thread, but no two threads have it at a time.
pub struct Model<In, Out = CrcOut> {
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
