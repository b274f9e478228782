// The transmit half of the engine for one connection: descriptors in, completions of descriptors and a byte stream out. The task store, the
// SNACK table and the numbers of the peer are the receive half's.
//
//   descriptors --> [engine_control] --commands----------------> [tx] --> stream
//                     |     |    |                                ^  |
//   TASK_DONE <-------+     |    +--PDUs--> [raw_store] ----------+  |
//                           v                                        v
//                     task store <---------- look-ups, lists --------+
//                                 [mem_share] <--> host memory
`default_nettype none
module engine_tx
  import engine_pkg::*;
  import tx_pkg::*;
#(
    // Bytes of a beat: 64 or 8.
    parameter int unsigned Bytes = 64,
    // Largest data segment: 4096 or 65536.
    parameter int unsigned BufferBytes = 65536,
    parameter int unsigned Tasks = 256,
    parameter int unsigned R2ts = 2304,
    // Data of the longest PDU of SEND_RAW; there is never room for a longer one.
    parameter int unsigned RawBytes = BufferBytes,
    parameter logic [31:0] Poly = 32'h82f6_3b78,
    localparam int unsigned I = $clog2(Tasks)
) (
    input  wire                      clk,
    input  wire                      rst,
    // Descriptors, and their completions.
    input  wire                      descriptor_valid_i,
    output logic                     descriptor_ready_o,
    input  wire  [            511:0] descriptor_i,
    output logic                     done_valid_o,
    input  wire                      done_ready_i,
    output logic [            511:0] done_o,
    // There is room for the completions of a PDU.
    input  wire                      room_i,
    // The connection, for the receive half and the session table: see engine_control.
    output logic                     is_open_o,
    output logic                     opens_o,
    output logic                     restart_o,
    output logic [             63:0] restart_position_o,
    input  wire                      stopped_i,
    input  wire  [             63:0] taken_i,
    output logic [              3:0] conn_flags_o,
    // The polynomial of the digests. `set_poly_o` is one cycle, with OPEN_CONN and at 64 bit with SET_POLY.
    output logic                     set_poly_o,
    output crc_pkg::polynomial_t     poly_o,
    input  wire                      poly_full_i,
    output logic [             31:0] open_cmd_sn_o,
    output logic [             31:0] open_max_cmd_sn_o,
    output logic [             31:0] open_stat_sn_o,
    output logic [             31:0] max_recv_o,
    output logic [             31:0] max_send_o,
    output logic [             31:0] max_burst_o,
    output logic [             31:0] first_burst_o,
    output logic [             31:0] snack_delay_o,
    output logic [              1:0] recovery_level_o,
    output logic [             15:0] max_outstanding_r2t_o,
    output logic [             63:0] raw_addr_o,
    output logic [             31:0] raw_slot_bytes_o,
    output logic [             15:0] raw_slots_o,
    // From the receive half.
    input  wire  [             31:0] exp_stat_sn_i,
    input  wire  [             31:0] max_cmd_sn_i,
    output logic [             31:0] cmd_sn_o,
    input  wire                      r2t_valid_i,
    output logic                     r2t_ready_o,
    input  burst_t                   r2t_i,
    // The SNACK table.
    input  wire                      due_valid_i,
    output logic                     due_ready_o,
    input  wire  [              7:0] due_id_i,
    output logic                     snack_take_o,
    output logic [              7:0] snack_index_o,
    input  wire                      snack_answer_i,
    input  wire                      snack_wanted_i,
    input  snack_t                   snack_i,
    // The task store.
    output logic                     request_valid_o,
    input  wire                      request_ready_i,
    output request_t                 request_o,
    output logic [             31:0] request_tag_o,
    output logic [            I-1:0] request_index_o,
    output logic [              3:0] request_result_o,
    output task_post_t               request_post_o,
    output logic [             63:0] request_addr_o,
    output logic [             31:0] request_length_o,
    input  wire                      reply_valid_i,
    input  wire  [              3:0] reply_i,
    input  wire  [            I-1:0] reply_index_i,
    output logic                     look_o,
    output logic [              7:0] look_index_o,
    input  wire                      looked_i,
    input  wire                      look_found_i,
    // With `looked_i`, and with the reply to PEEK.
    input  wire  [             31:0] look_tag_i,
    input  task_post_t               look_post_i,
    input  task_tx_t                 look_tx_i,
    input  wire  [         MaxE-1:0] look_first_i,
    output logic                     write_o,
    output logic [              7:0] write_index_o,
    output task_tx_t                 write_tx_o,
    input  wire                      ended_valid_i,
    output logic                     ended_ready_o,
    input  wire  [              7:0] ended_index_i,
    output logic [         MaxE-1:0] element_o,
    input  element_t                 element_i,
    input  wire  [         MaxE-1:0] element_next_i,
    // The R2T table: see tx.
    input  wire  [$clog2(R2ts+2):0]  peek_at_i,
    output logic                     peek_valid_o,
    output burst_t                   peek_o,
    output logic [             31:0] peek_sent_o,
    output logic [             31:0] peek_data_sn_o,
    // Reads of host memory: see tx_fetch.
    output logic                     mem_valid_o,
    input  wire                      mem_ready_i,
    output logic [             63:0] mem_addr_o,
    output logic [             16:0] mem_bytes_o,
    input  wire                      mem_data_valid_i,
    output logic                     mem_data_ready_o,
    input  wire  [$clog2(Bytes):0]   mem_count_i,
    input  wire                      mem_last_i,
    input  wire                      mem_fault_i,
    input  wire  [  8*Bytes-1:0]     mem_data_i,
    // The stream.
    output logic                     valid_o,
    input  wire                      ready_i,
    output logic [$clog2(Bytes):0]   count_o,
    output logic [  8*Bytes-1:0]     data_o,
    // No descriptor is being executed, and nothing more leaves before something comes in.
    output logic                     idle_o
);
  localparam int unsigned W = $clog2(Bytes) - 1;
  // Beats of the longest PDU: BHS, AHS, data.
  localparam int unsigned RawBeats = RawBytes / Bytes + (1068 + Bytes - 1) / Bytes + 1;
  localparam int unsigned RawCount = $clog2(RawBeats + 1);
  wire closed = rst || !is_open_o;

  logic control_read, control_read_ready, control_data, control_data_ready, control_idle;
  logic tx_read, tx_read_ready, tx_data, tx_data_ready, tx_idle;
  logic [63:0] control_addr, tx_addr;
  logic [16:0] control_bytes, tx_bytes;
  logic post_valid, post_ready, tx_post_ready, fault;
  logic [31:0] fault_tag;
  logic [16:0] send_bound;
  entry_t post;
  logic store_write, store_select, store_last, store_pdu_last, store_commit, store_drop;
  logic [W-1:0] store_words;
  logic [8*Bytes-1:0] store_data;
  logic [RawCount-1:0] store_room;
  logic [6:0] store_pdus;
  engine_control #(
      .Bytes(Bytes),
      .BufferBytes(BufferBytes),
      .Tasks(Tasks),
      .RawCount(RawCount)
  ) control (
      .clk,
      .rst,
      .descriptor_valid_i,
      .descriptor_ready_o,
      .descriptor_i,
      .done_valid_o,
      .done_ready_i,
      .done_o,
      .mem_valid_o(control_read),
      .mem_ready_i(control_read_ready),
      .mem_addr_o(control_addr),
      .mem_bytes_o(control_bytes),
      .mem_data_valid_i(control_data),
      .mem_data_ready_o(control_data_ready),
      .mem_count_i,
      .mem_last_i,
      .mem_fault_i,
      .mem_data_i,
      .request_valid_o,
      .request_ready_i,
      .request_o,
      .request_tag_o,
      .request_index_o,
      .request_result_o,
      .request_post_o,
      .request_addr_o,
      .request_length_o,
      .reply_valid_i,
      .reply_i,
      .reply_index_i,
      .peek_tag_i(look_tag_i),
      .post_valid_o(post_valid),
      .post_ready_i(post_ready),
      .post_o(post),
      .raw_write_o(store_write),
      .raw_select_o(store_select),
      .raw_last_o(store_last),
      .raw_pdu_last_o(store_pdu_last),
      .raw_words_o(store_words),
      .raw_data_o(store_data),
      .raw_commit_o(store_commit),
      .raw_drop_o(store_drop),
      .raw_room_i(store_room),
      .raw_pdus_i(store_pdus),
      .fault_i(fault),
      .fault_tag_i(fault_tag),
      .is_open_o,
      .opens_o,
      .restart_o,
      .restart_position_o,
      .stopped_i,
      .taken_i,
      .conn_flags_o,
      .set_poly_o,
      .poly_o,
      .poly_full_i,
      .cmd_sn_o(open_cmd_sn_o),
      .max_cmd_sn_o(open_max_cmd_sn_o),
      .stat_sn_o(open_stat_sn_o),
      .max_recv_o,
      .max_send_o,
      .send_bound_o(send_bound),
      .max_burst_o,
      .first_burst_o,
      .snack_delay_o,
      .recovery_level_o,
      .max_outstanding_r2t_o,
      .raw_addr_o,
      .raw_slot_bytes_o,
      .raw_slots_o,
      .idle_o(control_idle)
  );

  logic raw_numbered, raw_valid, raw_ready, raw_last;
  logic [W-1:0] raw_words;
  logic [8*Bytes-1:0] raw_data;
  raw_store #(
      .Bytes(Bytes),
      .Beats(RawBeats)
  ) raws (
      .clk,
      .rst(closed),
      .write_i(store_write),
      .write_select_i(store_select),
      .last_i(store_last),
      .pdu_last_i(store_pdu_last),
      .words_i(store_words),
      .data_i(store_data),
      .commit_i(store_commit),
      .drop_i(store_drop),
      .room_o(store_room),
      .pdus_o(store_pdus),
      .select_i(raw_numbered),
      .valid_o(raw_valid),
      .ready_i(raw_ready),
      .last_o(raw_last),
      .words_o(raw_words),
      .data_o(raw_data)
  );

  mem_share share (
      .clk,
      .rst,
      .control_valid_i(control_read),
      .control_ready_o(control_read_ready),
      .control_addr_i(control_addr),
      .control_bytes_i(control_bytes),
      .control_data_valid_o(control_data),
      .control_data_ready_i(control_data_ready),
      .tx_valid_i(tx_read),
      .tx_ready_o(tx_read_ready),
      .tx_addr_i(tx_addr),
      .tx_bytes_i(tx_bytes),
      .tx_data_valid_o(tx_data),
      .tx_data_ready_i(tx_data_ready),
      .mem_valid_o,
      .mem_ready_i,
      .mem_addr_o,
      .mem_bytes_o,
      .mem_data_valid_i,
      .mem_data_ready_o,
      .mem_last_i
  );

  // Descriptors go first; a SNACK waits for one at most.
  entry_t due;
  assign due = '{kind: SNACK, numbered: 1'b0, counts: 1'b0, index: due_id_i};
  assign post_ready  = tx_post_ready;
  assign due_ready_o = tx_post_ready && !post_valid;
  tx #(
      .Bytes(Bytes),
      .BufferBytes(BufferBytes),
      .R2ts(R2ts),
      .Poly(Poly)
  ) transmit (
      .clk,
      .rst(closed),
      .open_i(opens_o),
      .open_cmd_sn_i(open_cmd_sn_o),
      // A connection that opens has the polynomial of the reset.
      .set_poly_i(set_poly_o && !opens_o),
      .poly_i(poly_o),
      .header_digest_i(conn_flags_o[0]),
      .data_digest_i(conn_flags_o[1]),
      .initial_r2t_i(conn_flags_o[2]),
      .immediate_data_i(conn_flags_o[3]),
      .max_send_i(send_bound),
      .max_burst_i(max_burst_o[23:0]),
      .first_burst_i(first_burst_o[23:0]),
      .exp_stat_sn_i,
      .max_cmd_sn_i,
      .cmd_sn_o,
      .room_i,
      .post_valid_i(post_valid || due_valid_i),
      .post_ready_o(tx_post_ready),
      .post_i(post_valid ? post : due),
      .look_o,
      .look_index_o,
      .looked_i,
      .look_found_i,
      .look_tag_i,
      .look_post_i,
      .look_tx_i,
      .look_first_i,
      .write_o,
      .write_index_o,
      .write_tx_o,
      .r2t_valid_i,
      .r2t_ready_o,
      .r2t_i,
      .snack_take_o,
      .snack_index_o,
      .snack_answer_i,
      .snack_wanted_i,
      .snack_i,
      .raw_numbered_o(raw_numbered),
      .raw_valid_i(raw_valid),
      .raw_ready_o(raw_ready),
      .raw_last_i(raw_last),
      .raw_words_i(raw_words),
      .raw_data_i(raw_data),
      .ended_valid_i,
      .ended_ready_o,
      .ended_index_i,
      .fault_o(fault),
      .fault_tag_o(fault_tag),
      .element_o,
      .element_i,
      .element_next_i,
      .peek_at_i,
      .peek_valid_o,
      .peek_o,
      .peek_sent_o,
      .peek_data_sn_o,
      .mem_valid_o(tx_read),
      .mem_ready_i(tx_read_ready),
      .mem_addr_o(tx_addr),
      .mem_bytes_o(tx_bytes),
      .mem_data_valid_i(tx_data),
      .mem_data_ready_o(tx_data_ready),
      .mem_count_i,
      .mem_last_i,
      .mem_fault_i,
      .mem_data_i,
      .valid_o,
      .ready_i,
      .count_o,
      .data_o,
      .idle_o(tx_idle)
  );
  assign idle_o = control_idle && tx_idle;
endmodule
`default_nettype wire
