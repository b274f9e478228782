// Verilator's models behind C functions: a cycle is one call. Outputs are those before the rising edge, which the inputs of the
// same cycle can change.
#include <cstdint>
#include <cstring>
#include "Vcrc64.h"
#include "Vcrc64_of_5.h"
#include "Vcrc_wide_1024.h"
#include "Vcrc_wide_2048.h"
#include "Vcrc_wide_crc32.h"
#include "Vcrc_wide_crc32c.h"
#include "Vcrc_wide_koopman.h"
#include "Vcrc_wide_of_4.h"
#include "Vcredit_link.h"
#include "Vengine512.h"
#include "Vengine512_ecp5.h"
#include "Vengine64.h"
#include "Vengine64_ecp5.h"
#include "Vengine_tx512.h"
#include "Vengine_tx64.h"
#include "Vguard512.h"
#include "Vguard64.h"
#include "Vrx_checked512.h"
#include "Vrx_checked64.h"
#include "Vrx_engine512.h"
#include "Vrx_engine64.h"
#include "Vrx_packet512.h"
#include "Vrx_packet64.h"
#include "Vsnack_table.h"
#include "Vtask_table.h"
#include "Vtx512.h"
#include "Vtx64.h"
#include "verilated.h"
#include "verilated_fst_c.h"

// The same as in the files of src/ that call these models.
struct Crc64In {
  uint64_t data;
  uint32_t polynomial, init, xor_out;
  uint8_t rst, set_poly, valid, last, keep;
};
struct CrcWideIn {
  uint32_t data[64];
  uint64_t keep;
  uint32_t init, xor_out;
  uint8_t rst, valid, last;
};
struct CrcOut {
  uint32_t digest;
  uint8_t ready, digest_valid;
};
struct CreditIn {
  uint32_t data;
  uint8_t rst, send, force_push, pop;
};
struct CreditOut {
  uint32_t data, failed;
  uint8_t may_send, valid;
};
struct GuardIn {
  uint32_t data[16];
  uint8_t rst, valid, last;
};
struct GuardOut {
  uint16_t guard;
  uint8_t valid;
};
struct RxPacketIn {
  uint32_t data[16];
  uint64_t restart_position;
  uint32_t max_data;
  uint8_t count, rst, restart, header_digest, data_digest, valid, seg_ready;
};
struct RxPacketOut {
  uint32_t seg_data[16];
  uint64_t verdict_position;
  uint32_t failed;
  uint8_t ready, seg_valid, seg_is_data, seg_first, seg_last, seg_words, verdict_valid, verdict, stopped;
};
struct TaskTableIn {
  uint32_t tag;
  uint8_t rst, request, index;
};
struct TaskTableOut {
  uint32_t failed;
  uint8_t answer_valid, found, index, free, full, used, ready;
};
struct RxEngineIn {
  uint32_t data[16], post[12], tx_task[4];
  uint64_t restart_position, raw_addr, request_addr;
  uint32_t max_data, max_burst, raw_slot_bytes, open_cmd_sn, open_max_cmd_sn, open_stat_sn, cmd_sn, request_tag, request_length;
  uint16_t conn, raw_slots, release_slots, tx_element;
  uint8_t count, rst, open, restart, header_digest, data_digest, max_outstanding_r2t, valid, run_ready, answer_valid, answer_refused,
      write_ready, done_room, done_ready, release, request_valid, request, request_result, request_index, tx_look, tx_index, tx_write,
      tx_write_index, r2t_ready, ended_ready;
};
struct RxEngineOut {
  uint32_t write_data[16], done[16], copy_post[12], copy_rx[4], copy_tx[4], element[4];
  uint64_t run_addr, write_addr, taken, r2t_lun, copy_list;
  uint32_t run_length, exp_cmd_sn, max_cmd_sn, stat_sn, copy_tag, r2t_itt, r2t_ttt, r2t_sn, r2t_offset, r2t_length, ended_itt, failed;
  uint16_t raw_free, tx_next, tasks_used;
  uint8_t ready, run_valid, write_valid, write_first, write_count, done_valid, stopped, stop_reason, request_ready, reply_valid, reply,
      reply_index, tx_looked, tx_found, r2t_valid, r2t_index, ended_valid, ended_index, busy;
};

struct SnackTableIn {
  uint32_t entry[11];
  uint16_t peek_at;
  uint8_t rst, valid, operation, due_ready, take, take_id;
};
struct SnackTableOut {
  uint64_t deadline;
  uint32_t peek[11], taken[11];
  uint32_t missing_status, failed;
  uint8_t ready, answer, found, found_state, admits, has_any, due_valid, due_id, take_answer, take_wanted, status_missing,
      has_room, peek_valid;
};
struct TxIn {
  uint32_t mem_data[16], raw_data[16], look_post[12], look_tx[4], r2t[7], snack[7], element[4];
  uint32_t open_cmd_sn, max_send, max_burst, first_burst, exp_stat_sn, max_cmd_sn, look_tag;
  uint16_t post, look_first, element_next, peek_at;
  uint8_t rst, open, header_digest, data_digest, initial_r2t, immediate_data, room, post_valid, looked, look_found, r2t_valid,
      snack_answer, snack_wanted, raw_valid, raw_last, raw_words, ended_valid, ended_index, mem_ready, mem_data_valid, mem_count, mem_last,
      mem_fault, ready;
};
struct TxOut {
  uint64_t mem_addr;
  uint32_t data[16], write_tx[4], peek[7];
  uint32_t peek_sent, peek_data_sn, mem_bytes, cmd_sn, fault_tag, failed;
  uint16_t element;
  uint8_t post_ready, look, look_index, write, write_index, r2t_ready, snack_take, snack_index, raw_numbered, raw_ready,
      ended_ready, fault, peek_valid, mem_valid, mem_data_ready, valid, count, idle;
};

struct EngineTxIn {
  TxIn tx;
  uint32_t descriptor[16];
  uint8_t rst, descriptor_valid, done_ready, due_valid, due_id, request_ready, reply_valid, reply, reply_index;
};
struct EngineTxOut {
  TxOut tx;
  uint64_t request_addr;
  uint32_t done[16], request_post[12];
  uint32_t request_tag, request_length;
  uint8_t descriptor_ready, done_valid, due_ready, request_valid, request, request_index, request_result, is_open;
};
struct EngineIn {
  uint64_t now;
  uint32_t descriptor[16], rx_data[16], read_data[16];
  uint16_t release_slots, element, peek_at, snack_at;
    uint8_t rst, descriptor_valid, rx_room, tx_room, done_ready, release, rx_valid, rx_count, tx_ready,
      read_ready, read_data_valid, read_count, read_last, read_fault, run_ready, answer_valid, answer_refused,
      write_ready, show, show_index, show_element, advance;
};
struct EngineOut {
  uint64_t restart_position, read_addr, run_addr, write_addr, taken, shown_list, deadline;
    uint32_t done[16], tx_data[16], write_data[16], shown_post[12], shown_rx[4], shown_tx[4], element[4],
      peek[7], snack[11];
    uint32_t read_bytes, run_length, max_recv, max_send, max_burst, first_burst, snack_delay, cmd_sn,
      exp_cmd_sn, max_cmd_sn, stat_sn, exp_stat_sn, poly, shown_tag, peek_sent, peek_data_sn, failed;
  uint16_t max_outstanding_r2t, raw_free, tasks_used, element_next;
    uint8_t descriptor_ready, done_valid, rx_ready, opens, restart, tx_valid, tx_count, read_valid,
      read_data_ready, run_valid, write_valid, write_first, write_count, is_open, conn_flags, stopped,
      stop_reason, show_ready, shown, shown_found, peek_valid, idle, busy,
      recovery_level, shown_held, snack_valid;
};

// A model and all its state. The library also keeps a pointer to a context in each thread: every call on a model makes it that
// model's, so a model may change its thread, and the pointer is not followed to one that has gone.
template <class Model> struct Simulation {
  VerilatedContext context;
  Model model;
  explicit Simulation(int seed) : model((context.randReset(2), context.randSeed(seed), &context)) {}
};
template <class Model> static Simulation<Model> *enter(void *simulation) {
  auto *entered = static_cast<Simulation<Model> *>(simulation);
  if (Verilated::threadContextp() != &entered->context) Verilated::threadContextp(&entered->context);
  return entered;
}

template <class Model> static Simulation<Model> *plain(int seed) { return new Simulation<Model>(seed); }
// An assert that fails is counted here, and the test reads the count; Verilator's own way is to end the process.
template <class Model> static Simulation<Model> *asserted(int seed) {
  auto *simulation = new Simulation<Model>(seed);
  simulation->context.fatalOnError(false);
  return simulation;
}

// The functions of a model: how it is made, what a cycle is, and what that takes and gives.
#define MODEL(name, make, cycle, In, Out)                                                                   \
  extern "C" void *name##_new(int seed) { return make<V##name>(seed); }                                     \
  extern "C" void name##_free(void *simulation) { delete static_cast<Simulation<V##name> *>(simulation); }  \
  extern "C" void name##_cycle(void *simulation, const In *in, Out *out) {                                  \
    cycle<V##name>(simulation, in, out);                                                                    \
  }

template <class Model> static void narrow_cycle(void *simulation, const Crc64In *in, CrcOut *out) {
  Model &model = enter<Model>(simulation)->model;
  model.rst = in->rst;
  model.set_poly_i = in->set_poly;
  model.poly_i = in->polynomial;
  model.init_i = in->init;
  model.xor_out_i = in->xor_out;
  model.valid_i = in->valid;
  model.last_i = in->last;
  model.keep_i = in->keep;
  model.data_i = in->data;
  model.clk = 0;
  model.eval();
  out->ready = model.ready_o;
  out->digest_valid = model.digest_valid_o;
  out->digest = model.digest_o;
  model.clk = 1;
  model.eval();
}

MODEL(crc64, plain, narrow_cycle, Crc64In, CrcOut)
MODEL(crc64_of_5, plain, narrow_cycle, Crc64In, CrcOut)

template <class Model> static void wide_cycle(void *simulation, const CrcWideIn *in, CrcOut *out) {
  Model &model = enter<Model>(simulation)->model;
  model.rst = in->rst;
  model.init_i = in->init;
  model.xor_out_i = in->xor_out;
  model.valid_i = in->valid;
  model.last_i = in->last;
  model.keep_i = in->keep;
  static_assert(sizeof model.data_i <= sizeof in->data, "the widest unit");
  memcpy(model.data_i.data(), in->data, sizeof model.data_i);
  model.clk = 0;
  model.eval();
  out->ready = 1;
  out->digest_valid = model.digest_valid_o;
  out->digest = model.digest_o;
  model.clk = 1;
  model.eval();
}

MODEL(crc_wide_crc32c, plain, wide_cycle, CrcWideIn, CrcOut)
MODEL(crc_wide_crc32, plain, wide_cycle, CrcWideIn, CrcOut)
MODEL(crc_wide_koopman, plain, wide_cycle, CrcWideIn, CrcOut)
MODEL(crc_wide_of_4, plain, wide_cycle, CrcWideIn, CrcOut)
MODEL(crc_wide_1024, plain, wide_cycle, CrcWideIn, CrcOut)
MODEL(crc_wide_2048, plain, wide_cycle, CrcWideIn, CrcOut)

extern "C" void *credit_link_new(int seed) { return asserted<Vcredit_link>(seed); }
extern "C" void credit_link_free(void *simulation) { delete static_cast<Simulation<Vcredit_link> *>(simulation); }
extern "C" void credit_link_cycle(void *pointer, const CreditIn *in, CreditOut *out) {
  auto *simulation = enter<Vcredit_link>(pointer);
  Vcredit_link &model = simulation->model;
  model.rst = in->rst;
  model.data_i = in->data;
  model.force_push_i = in->force_push;
  model.clk = 0;
  model.eval();
  out->may_send = model.may_send_o;
  out->valid = model.valid_o;
  out->data = model.data_o;
  // Sender and receiver keep the rules: nothing without a credit, nothing from an empty FIFO.
  model.send_i = in->send && model.may_send_o;
  model.pop_i = in->pop && model.valid_o;
  model.eval();
  model.clk = 1;
  model.eval();
  out->failed = simulation->context.errorCount();
}

extern "C" void *task_table_new(int seed) { return asserted<Vtask_table>(seed); }
extern "C" void task_table_free(void *simulation) { delete static_cast<Simulation<Vtask_table> *>(simulation); }
extern "C" void task_table_cycle(void *pointer, const TaskTableIn *in, TaskTableOut *out) {
  auto *simulation = enter<Vtask_table>(pointer);
  Vtask_table &model = simulation->model;
  model.rst = in->rst;
  model.request_i = in->request;
  model.tag_i = in->tag;
  model.index_i = in->index;
  model.clk = 0;
  model.eval();
  out->answer_valid = model.answer_valid_o;
  out->found = model.found_o;
  out->index = model.index_o;
  out->free = model.free_o;
  out->full = model.full_o;
  out->used = model.used_o;
  out->ready = model.ready_o;
  model.clk = 1;
  model.eval();
  out->failed = simulation->context.errorCount();
}

// The ports of a beat are a number at 64 bits and a list of words at 512.
static void *words(QData &port) { return &port; }
static const void *words(const QData &port) { return &port; }
template <std::size_t N> static void *words(VlWide<N> &port) { return port.data(); }
template <std::size_t N> static const void *words(const VlWide<N> &port) { return port.data(); }

template <class Model> static void guard_cycle(void *simulation, const GuardIn *in, GuardOut *out) {
  Model &model = enter<Model>(simulation)->model;
  model.rst = in->rst;
  model.valid_i = in->valid;
  model.last_i = in->last;
  memcpy(words(model.data_i), in->data, sizeof model.data_i);
  model.clk = 0;
  model.eval();
  out->valid = model.guard_valid_o;
  out->guard = model.guard_o;
  model.clk = 1;
  model.eval();
}

MODEL(guard64, plain, guard_cycle, GuardIn, GuardOut)
MODEL(guard512, plain, guard_cycle, GuardIn, GuardOut)

template <class Model> static void rx_packet_cycle(void *pointer, const RxPacketIn *in, RxPacketOut *out) {
  auto *simulation = enter<Model>(pointer);
  Model &model = simulation->model;
  model.rst = in->rst;
  model.restart_i = in->restart;
  model.set_poly_i = 0;
  model.restart_position_i = in->restart_position;
  model.header_digest_i = in->header_digest;
  model.data_digest_i = in->data_digest;
  model.max_data_i = in->max_data;
  model.valid_i = in->valid;
  model.count_i = in->count;
  memcpy(words(model.data_i), in->data, sizeof model.data_i);
  model.seg_ready_i = in->seg_ready;
  model.clk = 0;
  model.eval();
  out->ready = model.ready_o;
  out->seg_valid = model.seg_valid_o;
  out->seg_is_data = model.seg_is_data_o;
  out->seg_first = model.seg_first_o;
  out->seg_last = model.seg_last_o;
  out->seg_words = model.seg_words_o;
  memcpy(out->seg_data, words(model.seg_data_o), sizeof model.seg_data_o);
  out->verdict_valid = model.verdict_valid_o;
  out->verdict = model.verdict_o;
  out->verdict_position = model.verdict_position_o;
  out->stopped = model.stopped_o;
  model.clk = 1;
  model.eval();
  out->failed = simulation->context.errorCount();
}

MODEL(rx_packet64, asserted, rx_packet_cycle, RxPacketIn, RxPacketOut)
MODEL(rx_packet512, asserted, rx_packet_cycle, RxPacketIn, RxPacketOut)
// Its ports are those of the packet controller.
MODEL(rx_checked64, asserted, rx_packet_cycle, RxPacketIn, RxPacketOut)
MODEL(rx_checked512, asserted, rx_packet_cycle, RxPacketIn, RxPacketOut)

extern "C" void *snack_table_new(int seed) { return asserted<Vsnack_table>(seed); }
extern "C" void snack_table_free(void *simulation) { delete static_cast<Simulation<Vsnack_table> *>(simulation); }
extern "C" void snack_table_cycle(void *pointer, const SnackTableIn *in, SnackTableOut *out) {
  auto *simulation = enter<Vsnack_table>(pointer);
  Vsnack_table &model = simulation->model;
  model.rst = in->rst;
  model.valid_i = in->valid;
  model.operation_i = in->operation;
  model.due_ready_i = in->due_ready;
  model.take_i = in->take;
  model.take_id_i = in->take_id;
  model.peek_at_i = in->peek_at;
  memcpy(words(model.entry_i), in->entry, sizeof in->entry);
  model.clk = 0;
  model.eval();
  out->deadline = model.deadline_o;
  out->missing_status = model.missing_status_o;
  out->ready = model.ready_o;
  out->answer = model.answer_o;
  out->found = model.found_o;
  out->found_state = model.found_state_o;
  out->admits = model.admits_o;
  out->has_any = model.has_any_o;
  out->due_valid = model.due_valid_o;
  out->due_id = model.due_id_o;
  out->take_answer = model.take_answer_o;
  out->take_wanted = model.take_wanted_o;
  out->status_missing = model.status_missing_o;
  out->has_room = model.has_room_o;
  out->peek_valid = model.peek_valid_o;
  memcpy(out->peek, words(model.peek_o), sizeof out->peek);
  memcpy(out->taken, words(model.taken_o), sizeof out->taken);
  model.clk = 1;
  model.eval();
  out->failed = simulation->context.errorCount();
}

// Ports that `tx` has inside `engine_tx` too.
template <class Model> static void tx_inputs(Model &model, const TxIn *in) {
  model.exp_stat_sn_i = in->exp_stat_sn;
  model.max_cmd_sn_i = in->max_cmd_sn;
  model.room_i = in->room;
  model.looked_i = in->looked;
  model.look_found_i = in->look_found;
  model.look_tag_i = in->look_tag;
  model.look_first_i = in->look_first;
  model.r2t_valid_i = in->r2t_valid;
  model.snack_answer_i = in->snack_answer;
  model.snack_wanted_i = in->snack_wanted;
  model.ended_valid_i = in->ended_valid;
  model.ended_index_i = in->ended_index;
  model.element_next_i = in->element_next;
  model.peek_at_i = in->peek_at;
  model.mem_ready_i = in->mem_ready;
  model.mem_data_valid_i = in->mem_data_valid;
  model.mem_count_i = in->mem_count;
  model.mem_last_i = in->mem_last;
  model.mem_fault_i = in->mem_fault;
  model.ready_i = in->ready;
  memcpy(words(model.look_post_i), in->look_post, sizeof model.look_post_i);
  memcpy(words(model.look_tx_i), in->look_tx, sizeof model.look_tx_i);
  memcpy(words(model.r2t_i), in->r2t, sizeof model.r2t_i);
  memcpy(words(model.snack_i), in->snack, sizeof model.snack_i);
  memcpy(words(model.element_i), in->element, sizeof model.element_i);
  memcpy(words(model.mem_data_i), in->mem_data, sizeof model.mem_data_i);
}

template <class Model> static void tx_outputs(const Model &model, TxOut *out) {
  out->look = model.look_o;
  out->look_index = model.look_index_o;
  out->write = model.write_o;
  out->write_index = model.write_index_o;
  out->r2t_ready = model.r2t_ready_o;
  out->snack_take = model.snack_take_o;
  out->snack_index = model.snack_index_o;
  out->ended_ready = model.ended_ready_o;
  out->peek_valid = model.peek_valid_o;
  out->peek_sent = model.peek_sent_o;
  out->peek_data_sn = model.peek_data_sn_o;
  out->element = model.element_o;
  out->mem_valid = model.mem_valid_o;
  out->mem_addr = model.mem_addr_o;
  out->mem_bytes = model.mem_bytes_o;
  out->mem_data_ready = model.mem_data_ready_o;
  out->valid = model.valid_o;
  out->count = model.count_o;
  out->cmd_sn = model.cmd_sn_o;
  out->idle = model.idle_o;
  memcpy(out->data, words(model.data_o), sizeof model.data_o);
  memcpy(out->write_tx, words(model.write_tx_o), sizeof model.write_tx_o);
  memcpy(out->peek, words(model.peek_o), sizeof model.peek_o);
}

template <class Model> static void tx_cycle(void *pointer, const TxIn *in, TxOut *out) {
  auto *simulation = enter<Model>(pointer);
  Model &model = simulation->model;
  model.rst = in->rst;
  model.open_i = in->open;
  model.set_poly_i = 0;
  model.open_cmd_sn_i = in->open_cmd_sn;
  model.header_digest_i = in->header_digest;
  model.data_digest_i = in->data_digest;
  model.initial_r2t_i = in->initial_r2t;
  model.immediate_data_i = in->immediate_data;
  model.max_send_i = in->max_send;
  model.max_burst_i = in->max_burst;
  model.first_burst_i = in->first_burst;
  model.post_valid_i = in->post_valid;
  model.post_i = in->post;
  model.raw_valid_i = in->raw_valid;
  model.raw_last_i = in->raw_last;
  model.raw_words_i = in->raw_words;
  memcpy(words(model.raw_data_i), in->raw_data, sizeof model.raw_data_i);
  tx_inputs(model, in);
  model.clk = 0;
  model.eval();
  out->post_ready = model.post_ready_o;
  out->raw_numbered = model.raw_numbered_o;
  out->raw_ready = model.raw_ready_o;
  out->fault = model.fault_o;
  out->fault_tag = model.fault_tag_o;
  tx_outputs(model, out);
  model.clk = 1;
  model.eval();
  out->failed = simulation->context.errorCount();
}

template <class Port, std::size_t N> static void put(Port &port, const uint32_t (&from)[N]) {
  static_assert(sizeof port <= sizeof from, "the port is not longer than its field");
  memcpy(words(port), from, sizeof port);
}
template <class Port, std::size_t N> static void get(uint32_t (&into)[N], const Port &port) {
  static_assert(sizeof port <= sizeof into, "the port is not longer than its field");
  memcpy(into, words(port), sizeof port);
}

template <class Model> static void rx_engine_cycle(void *pointer, const RxEngineIn *in, RxEngineOut *out) {
  auto *simulation = enter<Model>(pointer);
  Model &model = simulation->model;
  put(model.data_i, in->data);
  put(model.request_post_i, in->post);
  put(model.tx_write_task_i, in->tx_task);
  model.restart_position_i = in->restart_position;
  model.raw_addr_i = in->raw_addr;
  model.request_addr_i = in->request_addr;
  model.max_data_i = in->max_data;
  model.max_burst_i = in->max_burst;
  model.raw_slot_bytes_i = in->raw_slot_bytes;
  model.open_cmd_sn_i = in->open_cmd_sn;
  model.open_max_cmd_sn_i = in->open_max_cmd_sn;
  model.open_stat_sn_i = in->open_stat_sn;
  model.cmd_sn_i = in->cmd_sn;
  model.request_tag_i = in->request_tag;
  model.request_length_i = in->request_length;
  model.conn_i = in->conn;
  model.raw_slots_i = in->raw_slots;
  model.release_slots_i = in->release_slots;
  model.tx_element_i = in->tx_element;
  model.count_i = in->count;
  model.rst = in->rst;
  model.open_i = in->open;
  model.set_poly_i = 0;
  model.recovers_i = 0;
  model.advance_i = 0;
  model.due_ready_i = 0;
  model.snack_take_i = 0;
  model.restart_i = in->restart;
  model.header_digest_i = in->header_digest;
  model.data_digest_i = in->data_digest;
  model.max_outstanding_r2t_i = in->max_outstanding_r2t;
  model.valid_i = in->valid;
  model.run_ready_i = in->run_ready;
  model.answer_valid_i = in->answer_valid;
  model.answer_refused_i = in->answer_refused;
  model.write_ready_i = in->write_ready;
  model.done_room_i = in->done_room;
  model.done_ready_i = in->done_ready;
  model.release_i = in->release;
  model.request_valid_i = in->request_valid;
  model.request_i = in->request;
  model.request_result_i = in->request_result;
  model.request_index_i = in->request_index;
  model.tx_look_i = in->tx_look;
  model.tx_index_i = in->tx_index;
  model.tx_write_i = in->tx_write;
  model.tx_write_index_i = in->tx_write_index;
  model.r2t_ready_i = in->r2t_ready;
  model.ended_ready_i = in->ended_ready;
  model.clk = 0;
  model.eval();
  get(out->write_data, model.write_data_o);
  get(out->done, model.done_o);
  get(out->copy_post, model.copy_post_o);
  get(out->copy_rx, model.copy_rx_o);
  get(out->copy_tx, model.copy_tx_o);
  get(out->element, model.tx_element_o);
  out->run_addr = model.run_addr_o;
  out->write_addr = model.write_addr_o;
  out->taken = model.taken_o;
  out->r2t_lun = model.r2t_lun_o;
  out->copy_list = model.copy_list_o;
  out->run_length = model.run_length_o;
  out->exp_cmd_sn = model.exp_cmd_sn_o;
  out->max_cmd_sn = model.max_cmd_sn_o;
  out->stat_sn = model.stat_sn_o;
  out->copy_tag = model.copy_tag_o;
  out->r2t_itt = model.r2t_itt_o;
  out->r2t_ttt = model.r2t_ttt_o;
  out->r2t_sn = model.r2t_sn_o;
  out->r2t_offset = model.r2t_offset_o;
  out->r2t_length = model.r2t_length_o;
  out->ended_itt = model.ended_itt_o;
  out->raw_free = model.raw_free_o;
  out->tx_next = model.tx_next_o;
  out->tasks_used = model.tasks_used_o;
  out->ready = model.ready_o;
  out->run_valid = model.run_valid_o;
  out->write_valid = model.write_valid_o;
  out->write_first = model.write_first_o;
  out->write_count = model.write_count_o;
  out->done_valid = model.done_valid_o;
  out->stopped = model.stopped_o;
  out->stop_reason = model.stop_reason_o;
  out->request_ready = model.request_ready_o;
  out->reply_valid = model.reply_valid_o;
  out->reply = model.reply_o;
  out->reply_index = model.reply_index_o;
  out->tx_looked = model.tx_looked_o;
  out->tx_found = model.tx_found_o;
  out->r2t_valid = model.r2t_valid_o;
  out->r2t_index = model.r2t_index_o;
  out->ended_valid = model.ended_valid_o;
  out->ended_index = model.ended_index_o;
  out->busy = model.busy_o;
  model.clk = 1;
  model.eval();
  out->failed = simulation->context.errorCount();
}

MODEL(tx64, asserted, tx_cycle, TxIn, TxOut)
MODEL(tx512, asserted, tx_cycle, TxIn, TxOut)
MODEL(rx_engine64, asserted, rx_engine_cycle, RxEngineIn, RxEngineOut)
MODEL(rx_engine512, asserted, rx_engine_cycle, RxEngineIn, RxEngineOut)

template <class Model> static void engine_tx_cycle(void *pointer, const EngineTxIn *in, EngineTxOut *out) {
  auto *simulation = enter<Model>(pointer);
  Model &model = simulation->model;
  model.rst = in->rst;
  model.poly_full_i = 0;
  model.stopped_i = 0;
  model.taken_i = 0;
  model.descriptor_valid_i = in->descriptor_valid;
  model.done_ready_i = in->done_ready;
  model.due_valid_i = in->due_valid;
  model.due_id_i = in->due_id;
  model.request_ready_i = in->request_ready;
  model.reply_valid_i = in->reply_valid;
  model.reply_i = in->reply;
  model.reply_index_i = in->reply_index;
  memcpy(words(model.descriptor_i), in->descriptor, sizeof in->descriptor);
  tx_inputs(model, &in->tx);
  model.clk = 0;
  model.eval();
  out->request_addr = model.request_addr_o;
  out->request_tag = model.request_tag_o;
  out->request_length = model.request_length_o;
  out->descriptor_ready = model.descriptor_ready_o;
  out->done_valid = model.done_valid_o;
  out->due_ready = model.due_ready_o;
  out->request_valid = model.request_valid_o;
  out->request = model.request_o;
  out->request_index = model.request_index_o;
  out->request_result = model.request_result_o;
  out->is_open = model.is_open_o;
  memcpy(out->done, words(model.done_o), sizeof out->done);
  memcpy(out->request_post, words(model.request_post_o), sizeof out->request_post);
  tx_outputs(model, &out->tx);
  model.clk = 1;
  model.eval();
  out->tx.failed = simulation->context.errorCount();
}

MODEL(engine_tx64, asserted, engine_tx_cycle, EngineTxIn, EngineTxOut)
MODEL(engine_tx512, asserted, engine_tx_cycle, EngineTxIn, EngineTxOut)

// An engine, which can write a waveform.
template <class Model> struct Engine : Simulation<Model> {
  VerilatedFstC waveform;
  uint64_t ticks = 0;
  using Simulation<Model>::Simulation;
  ~Engine() { waveform.close(); }
  void dump() {
    if (waveform.isOpen()) waveform.dump(ticks);
    ticks += 5;
  }
};
template <class Model> static void *engine_new(int seed) {
  auto *engine = new Engine<Model>(seed);
  engine->context.fatalOnError(false);
  return static_cast<Simulation<Model> *>(engine);
}
template <class Model> static int engine_trace(void *pointer, const char *path) {
  auto *engine = static_cast<Engine<Model> *>(enter<Model>(pointer));
  engine->context.traceEverOn(true);
  engine->model.trace(&engine->waveform, 99);
  engine->waveform.open(path);
  return engine->waveform.isOpen();
}

template <class Model> static void engine_cycle(void *pointer, const EngineIn *in, EngineOut *out) {
  auto *simulation = static_cast<Engine<Model> *>(enter<Model>(pointer));
  Model &model = simulation->model;
  put(model.descriptor_i, in->descriptor);
  put(model.rx_data_i, in->rx_data);
  put(model.read_data_i, in->read_data);
  model.release_slots_i = in->release_slots;
  model.element_i = in->element;
  model.peek_at_i = in->peek_at;
  model.descriptor_valid_i = in->descriptor_valid;
  model.rx_room_i = in->rx_room;
  model.tx_room_i = in->tx_room;
  model.done_ready_i = in->done_ready;
  model.release_i = in->release;
  model.rx_valid_i = in->rx_valid;
  model.rx_count_i = in->rx_count;
  model.tx_ready_i = in->tx_ready;
  model.read_ready_i = in->read_ready;
  model.read_data_valid_i = in->read_data_valid;
  model.read_count_i = in->read_count;
  model.read_last_i = in->read_last;
  model.read_fault_i = in->read_fault;
  model.run_ready_i = in->run_ready;
  model.answer_valid_i = in->answer_valid;
  model.answer_refused_i = in->answer_refused;
  model.write_ready_i = in->write_ready;
  model.show_i = in->show;
  model.show_index_i = in->show_index;
  model.show_element_i = in->show_element;
  model.advance_i = in->advance;
  model.now_i = in->now;
  model.snack_at_i = in->snack_at;
  model.rst = in->rst;
  model.clk = 0;
  model.eval();
  get(out->done, model.done_o);
  get(out->tx_data, model.tx_data_o);
  get(out->write_data, model.write_data_o);
  get(out->shown_post, model.shown_post_o);
  get(out->shown_rx, model.shown_rx_o);
  get(out->shown_tx, model.shown_tx_o);
  get(out->element, model.element_o);
  get(out->peek, model.peek_o);
  out->restart_position = model.restart_position_o;
  out->read_addr = model.read_addr_o;
  out->run_addr = model.run_addr_o;
  out->write_addr = model.write_addr_o;
  out->taken = model.taken_o;
  out->shown_list = model.shown_list_o;
  out->read_bytes = model.read_bytes_o;
  out->run_length = model.run_length_o;
  out->max_recv = model.max_recv_o;
  out->max_send = model.max_send_o;
  out->max_burst = model.max_burst_o;
  out->first_burst = model.first_burst_o;
  out->snack_delay = model.snack_delay_o;
  out->cmd_sn = model.cmd_sn_o;
  out->exp_cmd_sn = model.exp_cmd_sn_o;
  out->max_cmd_sn = model.max_cmd_sn_o;
  out->stat_sn = model.stat_sn_o;
  out->poly = model.poly_o;
  out->exp_stat_sn = model.exp_stat_sn_o;
  out->deadline = model.deadline_o;
  out->recovery_level = model.recovery_level_o;
  out->shown_held = model.shown_held_o;
  out->snack_valid = model.snack_valid_o;
  get(out->snack, model.snack_o);
  out->shown_tag = model.shown_tag_o;
  out->peek_sent = model.peek_sent_o;
  out->peek_data_sn = model.peek_data_sn_o;
  out->max_outstanding_r2t = model.max_outstanding_r2t_o;
  out->raw_free = model.raw_free_o;
  out->tasks_used = model.tasks_used_o;
  out->element_next = model.element_next_o;
  out->descriptor_ready = model.descriptor_ready_o;
  out->done_valid = model.done_valid_o;
  out->rx_ready = model.rx_ready_o;
  out->opens = model.opens_o;
  out->restart = model.restart_o;
  out->tx_valid = model.tx_valid_o;
  out->tx_count = model.tx_count_o;
  out->read_valid = model.read_valid_o;
  out->read_data_ready = model.read_data_ready_o;
  out->run_valid = model.run_valid_o;
  out->write_valid = model.write_valid_o;
  out->write_first = model.write_first_o;
  out->write_count = model.write_count_o;
  out->is_open = model.is_open_o;
  out->conn_flags = model.conn_flags_o;
  out->stopped = model.stopped_o;
  out->stop_reason = model.stop_reason_o;
  out->show_ready = model.show_ready_o;
  out->shown = model.shown_o;
  out->shown_found = model.shown_found_o;
  out->peek_valid = model.peek_valid_o;
  out->idle = model.idle_o;
  out->busy = model.busy_o;
  simulation->dump();
  model.clk = 1;
  model.eval();
  simulation->dump();
  out->failed = simulation->context.errorCount();
}

#define ENGINE(name)                                                                                        \
  extern "C" void *name##_new(int seed) { return engine_new<V##name>(seed); }                               \
  extern "C" void name##_free(void *engine) {                                                               \
    delete static_cast<Engine<V##name> *>(enter<V##name>(engine));                                          \
  }                                                                                                         \
  extern "C" int name##_trace(void *engine, const char *path) {                                             \
    return engine_trace<V##name>(engine, path);                                                             \
  }                                                                                                         \
  extern "C" void name##_cycle(void *simulation, const EngineIn *in, EngineOut *out) {                      \
    engine_cycle<V##name>(simulation, in, out);                                                             \
  }
ENGINE(engine64)
ENGINE(engine512)
ENGINE(engine64_ecp5)
ENGINE(engine512_ecp5)
