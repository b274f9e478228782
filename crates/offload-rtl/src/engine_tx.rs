//! The transmit half of the engine: command buffer, control module, transmit module.

use crate::Width;
use crate::ffi::{Model, model};
use crate::packed::{bytes, words};
use crate::task::{StoreRequest, TaskPost};
use crate::tx::{TxCycle, TxIn, TxInputs, TxOut, common_inputs, common_outputs};

/// Inputs of `engine_tx` in one cycle: those of `tx` that it has too, and its own. The same as in the shim.
#[repr(C)]
#[derive(Default)]
struct EngineTxIn {
    tx: TxIn,
    descriptor: [u32; 16],
    rst: u8,
    descriptor_valid: u8,
    done_ready: u8,
    due_valid: u8,
    due_id: u8,
    request_ready: u8,
    reply_valid: u8,
    reply: u8,
    reply_index: u8,
}

/// Outputs of `engine_tx`. The same as in the shim.
#[repr(C)]
#[derive(Default)]
struct EngineTxOut {
    tx: TxOut,
    request_addr: u64,
    done: [u32; 16],
    request_post: [u32; 12],
    request_tag: u32,
    request_length: u32,
    descriptor_ready: u8,
    done_valid: u8,
    due_ready: u8,
    request_valid: u8,
    request: u8,
    request_index: u8,
    request_result: u8,
    is_open: u8,
}

model!(ENGINE_TX64, EngineTxIn, EngineTxOut, engine_tx64_new, engine_tx64_free, engine_tx64_cycle);
model!(ENGINE_TX512, EngineTxIn, EngineTxOut, engine_tx512_new, engine_tx512_free, engine_tx512_cycle);

/// The answer of the task store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreReply {
    /// A code of `TaskResult`.
    pub result: u8,
    /// The index, after `PostBegin`.
    pub index: u8,
    /// The tag, after `Peek`.
    pub itt: u32,
}

/// Inputs of one cycle.
#[derive(Debug, Clone, Default)]
pub struct EngineTxInputs {
    /// Those of the transmit module; `post` and `raw` are not used.
    pub tx: TxInputs,
    /// A descriptor.
    pub descriptor: Option<[u8; 64]>,
    /// An entry of the SNACK table has become due.
    pub due: Option<u8>,
    /// The answer to a request.
    pub reply: Option<StoreReply>,
}

/// What it said in one cycle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineTxCycle {
    /// As the transmit module.
    pub tx: TxCycle,
    /// `descriptor` was taken.
    pub descriptor_taken: bool,
    /// `due` was taken.
    pub due_taken: bool,
    /// A request, which was taken.
    pub request: Option<StoreRequest>,
    /// A completion, which was taken.
    pub done: Option<[u8; 64]>,
    /// A connection is open.
    pub is_open: bool,
}

/// `engine_tx` for one width.
pub struct EngineTx {
    model: Model<EngineTxIn, EngineTxOut>,
    width: Width,
    /// Asserts see random registers until the first reset is over.
    ignored: u32,
}

impl EngineTx {
    /// After power-up, with random contents from `seed`, and a reset.
    pub fn new(width: Width, seed: u16) -> Self {
        let functions = match width {
            Width::Bits64 => ENGINE_TX64,
            Width::Bits512 => ENGINE_TX512,
        };
        let mut model = Model::new(functions, seed);
        let reset = EngineTxIn { rst: 1, ..EngineTxIn::default() };
        let ignored = (0..3).map(|_| model.cycle(&reset).tx.failed()).last().unwrap_or(0);
        Self { model, width, ignored }
    }

    /// One cycle. The host takes completions and requests at once.
    pub fn cycle(&mut self, given: &EngineTxInputs) -> EngineTxCycle {
        let mut inputs = EngineTxIn {
            tx: common_inputs(&given.tx),
            descriptor_valid: given.descriptor.is_some().into(),
            done_ready: 1,
            due_valid: given.due.is_some().into(),
            due_id: given.due.unwrap_or(0),
            request_ready: 1,
            ..EngineTxIn::default()
        };
        if let Some(descriptor) = &given.descriptor {
            inputs.descriptor = words(descriptor);
        }
        if let Some(reply) = &given.reply {
            inputs.reply_valid = 1;
            (inputs.reply, inputs.reply_index) = (reply.result, reply.index);
            inputs.tx.answer_tag(reply.itt);
        }
        let out = self.model.cycle(&inputs);
        EngineTxCycle {
            tx: common_outputs(&given.tx, &out.tx, self.ignored),
            descriptor_taken: given.descriptor.is_some() && out.descriptor_ready != 0,
            due_taken: given.due.is_some() && out.due_ready != 0,
            request: (out.request_valid != 0).then(|| request(&out)),
            done: (out.done_valid != 0).then(|| bytes(&out.done)),
            is_open: out.is_open != 0,
        }
    }

    /// The width of a beat.
    pub fn width(&self) -> Width {
        self.width
    }
}

fn request(out: &EngineTxOut) -> StoreRequest {
    match out.request {
        0 => StoreRequest::PostBegin(out.request_tag),
        1 => StoreRequest::PostElement(out.request_addr, out.request_length),
        2 => StoreRequest::PostEnd(TaskPost::unpack(&out.request_post)),
        3 => StoreRequest::PostCancel,
        4 => StoreRequest::EndTask(out.request_tag, out.request_result),
        _ => StoreRequest::Peek(out.request_index),
    }
}
