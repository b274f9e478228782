//! The circuits of `rtl/`, simulated: a model of each, one cycle a call.
//!
//! The models are Verilator's, linked statically through a shim in C, so this crate is the third that contains `unsafe` blocks. All
//! of them are in `ffi`. The feature `verilator` builds the models; without it the crate is empty.
#![cfg_attr(not(feature = "verilator"), forbid(unsafe_code))]

#[cfg(feature = "verilator")]
mod crc;
#[cfg(feature = "verilator")]
mod credit;
#[cfg(feature = "verilator")]
mod engine;
#[cfg(feature = "verilator")]
mod engine_tx;
#[cfg(feature = "verilator")]
mod feed;
#[cfg(feature = "verilator")]
mod ffi;
#[cfg(feature = "verilator")]
mod guard;
#[cfg(feature = "verilator")]
mod packed;
#[cfg(feature = "verilator")]
mod rx_engine;
#[cfg(feature = "verilator")]
mod rx_packet;
#[cfg(feature = "verilator")]
mod scene;
#[cfg(feature = "verilator")]
mod snack_table;
#[cfg(feature = "verilator")]
mod task;
#[cfg(feature = "verilator")]
mod task_table;
#[cfg(feature = "verilator")]
mod tx;

#[cfg(feature = "verilator")]
pub use crc::{Beat64, BeatWide, Crc64, CrcWide, Cycle, Polynomial, TableBits, WideBuild};
#[cfg(feature = "verilator")]
pub use credit::{CreditCycle, CreditLink};
#[cfg(feature = "verilator")]
pub use engine::{Ports, RtlEngine, WaveformError};
#[cfg(feature = "verilator")]
pub use engine_tx::{EngineTx, EngineTxCycle, EngineTxInputs, StoreReply};
#[cfg(feature = "verilator")]
pub use guard::Guard;
#[cfg(feature = "verilator")]
pub use rx_engine::{RxConnection, RxEngine, RxEntry, RxInputs, RxOutputs, RxR2t, RxReady, RxReply, RxState};
#[cfg(feature = "verilator")]
pub use rx_packet::{RxCycle, RxPacket, RxSettings, Segment, Verdict, Width};
#[cfg(feature = "verilator")]
pub use scene::{Phase, Scene};
#[cfg(feature = "verilator")]
pub use snack_table::{Found, PEEK_CYCLES, SnackEntry, SnackOperation, SnackTable};
#[cfg(feature = "verilator")]
pub use task::{Element, RxPart, StoreRequest, TaskPost, TxPart};
#[cfg(feature = "verilator")]
pub use task_table::{TableCycle, TableRequest, TaskTable};
#[cfg(feature = "verilator")]
pub use tx::{
    Burst, MemBeat, Peek, RawBeat, Snack, TaskView, Tx, TxCycle, TxInputs, TxPost, TxReady, TxSettings,
    TxState, TxTaken,
};
