// The transmit module of one connection: descriptors, R2Ts and SNACKs in, a byte stream out.
//
//   post, r2t, snack, raw --> [tx_generator] --headers-----------------> [tx_buffer] --> stream
//                                |       ^                                    ^
//                                |   +---- end of data ---+               |
//                                |                            |               |
//                                +--requests--> [tx_fetch] ---+----- data ----+
//                                                |      ^
//                    data_address table <--------+      +--> host memory
`default_nettype none
module tx
  import engine_pkg::*;
  import tx_pkg::*;
#(
    // Bytes of a beat: 64 or 8.
    parameter int unsigned Bytes = 64,
    // Largest data segment that is sent: 4096 or 65536.
    parameter int unsigned BufferBytes = 65536,
    // Entries of the R2T table.
    parameter int unsigned R2ts = 2304,
    parameter logic [31:0] Poly = 32'h82f6_3b78
) (
    input  wire                      clk,
    input  wire                      rst,
    // One cycle: a connection opens with these numbers. What was under way is dropped.
    input  wire                      open_i,
    input  wire  [             31:0] open_cmd_sn_i,
    // SET_POLY, one cycle, at 64 bit only: PDUs that are begun from now on have this polynomial (see beat_crc). It stays until the next.
    input  wire                      set_poly_i,
    input  crc_pkg::polynomial_t     poly_i,
    // What login has settled. Constant while the connection is open, but for `max_send_i`, which counts for PDUs that are made later.
    input  wire                      header_digest_i,
    input  wire                      data_digest_i,
    input  wire                      initial_r2t_i,
    input  wire                      immediate_data_i,
    // In bytes, at most `BufferBytes`.
    input  wire  [             16:0] max_send_i,
    input  wire  [             23:0] max_burst_i,
    input  wire  [             23:0] first_burst_i,
    // From the receive module: ExpStatSN as it is sent, and MaxCmdSN.
    input  wire  [             31:0] exp_stat_sn_i,
    input  wire  [             31:0] max_cmd_sn_i,
    // CmdSN of the next command.
    output logic [             31:0] cmd_sn_o,
    // There is room for the completions of a PDU; without it none is begun.
    input  wire                      room_i,
    // The transmit queue: a command, a PDU of software, a SNACK that is due.
    input  wire                      post_valid_i,
    output logic                     post_ready_o,
    input  entry_t                   post_i,
    // The command table: the entry with an index, some cycles later. Without `look_found_i` the task has ended.
    output logic                     look_o,
    output logic [              7:0] look_index_o,
    input  wire                      looked_i,
    input  wire                      look_found_i,
    input  wire  [             31:0] look_tag_i,
    input  task_post_t               look_post_i,
    input  task_tx_t                 look_tx_i,
    input  wire  [         MaxE-1:0] look_first_i,
    // Its part that is written here.
    output logic                     write_o,
    output logic [              7:0] write_index_o,
    output task_tx_t                 write_tx_o,
    // An R2T that the receive module has checked.
    input  wire                      r2t_valid_i,
    output logic                     r2t_ready_o,
    input  burst_t                   r2t_i,
    // The SNACK table: the entry whose turn has come, asked for until it answers; without `snack_wanted_i` it was filled meanwhile.
    output logic                     snack_take_o,
    output logic [              7:0] snack_index_o,
    input  wire                      snack_answer_i,
    input  wire                      snack_wanted_i,
    input  snack_t                   snack_i,
    // PDUs of software: header segments, then data with its padding; `raw_numbered_o` selects those that take a CmdSN, a cycle before
    // one is taken. What lies above the lowest `raw_words_i` words is zero.
    output logic                     raw_numbered_o,
    input  wire                      raw_valid_i,
    output logic                     raw_ready_o,
    input  wire                      raw_last_i,
    input  wire  [$clog2(Bytes)-2:0] raw_words_i,
    input  wire  [  8*Bytes-1:0]     raw_data_i,
    // A task has ended: its command and its bursts are taken out of the queues.
    input  wire                      ended_valid_i,
    output logic                     ended_ready_o,
    input  wire  [              7:0] ended_index_i,
    // Host memory has refused a part of this task's memory. Held, and nothing is begun, until the task has ended.
    output logic                     fault_o,
    output logic [             31:0] fault_tag_o,
    // The data_address table: the element with this index and the index of the one behind it are there in the next cycle.
    output logic [         MaxE-1:0] element_o,
    input  element_t                 element_i,
    input  wire  [         MaxE-1:0] element_next_i,
    // The R2T table: the entry at this place, 0 is served first; the answer comes three cycles later.
    input  wire  [$clog2(R2ts+2):0]  peek_at_i,
    output logic                     peek_valid_o,
    output burst_t                   peek_o,
    output logic [             31:0] peek_sent_o,
    output logic [             31:0] peek_data_sn_o,
    // Host memory: see tx_fetch.
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
    // The stream: the lowest `count_o` bytes of a beat exist.
    output logic                     valid_o,
    input  wire                      ready_i,
    output logic [$clog2(Bytes):0]   count_o,
    output logic [  8*Bytes-1:0]     data_o,
    // Nothing more leaves before something comes in: what is queued, if anything, waits for the window or for room.
    output logic                     idle_o
);
  localparam int unsigned Pdus = 32;
  localparam int unsigned W = $clog2(Bytes) - 1;
  wire clear = rst || open_i;

  // CmdSN and the window (RFC 7143 4.2.2.1).
  logic take_cmd_sn;
  wire  window_open = cmd_sn_o == max_cmd_sn_i || precedes(cmd_sn_o, max_cmd_sn_i);
  always_ff @(posedge clk) begin
    if (open_i) cmd_sn_o <= open_cmd_sn_i;
    else if (take_cmd_sn) cmd_sn_o <= cmd_sn_o + 32'd1;
  end

  logic decided, empty;
  // A change of the polynomial waits until every PDU that was begun has left. No other is begun before.
  logic poly_waits;
  wire poly_set = poly_waits && decided;
  always_ff @(posedge clk) poly_waits <= !rst && (set_poly_i || (poly_waits && !poly_set));
  logic req_valid, req_ready, req_more, fetched_valid, fetched_last, fetched_fault, fetched_ready;
  logic [MaxE-1:0] req_first;
  logic [31:0] req_offset;
  logic [16:0] req_bytes;
  logic [W-1:0] fetched_words;
  logic [8*Bytes-1:0] fetched_data;
  logic header_valid, header_ready, header_last, data_is_raw, data_ready, pdu_valid, pdu_has_data, pdu_drop, credit;
  logic [W-1:0] header_words;
  logic [8*Bytes-1:0] header_data;
  assign fetched_ready = data_ready && !data_is_raw;
  // The generator hears a cycle later that a PDU's data is all in the buffer: whether a beat is taken falls out of many things.
  logic arrived, arrived_fault;
  always_ff @(posedge clk) begin
    arrived <= fetched_valid && fetched_ready && fetched_last && !clear;
    arrived_fault <= fetched_fault;
  end
  tx_generator #(
      .Bytes(Bytes),
      .Pdus(Pdus),
      .R2ts(R2ts)
  ) generator (
      .clk,
      .rst(clear),
      .initial_r2t_i,
      .immediate_data_i,
      .max_send_i,
      .max_burst_i,
      .first_burst_i,
      .exp_stat_sn_i,
      .window_open_i(window_open),
      .cmd_sn_i(cmd_sn_o),
      .take_cmd_sn_o(take_cmd_sn),
      .room_i(room_i && !poly_waits),
      .post_valid_i,
      .post_ready_o,
      .post_i,
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
      .raw_numbered_o,
      .raw_valid_i,
      .raw_ready_o,
      .raw_last_i,
      .raw_words_i,
      .raw_data_i,
      .ended_valid_i,
      .ended_ready_o,
      .ended_index_i,
      .fault_o,
      .fault_tag_o,
      .peek_at_i,
      .peek_valid_o,
      .peek_o,
      .peek_sent_o,
      .peek_data_sn_o,
      .req_valid_o(req_valid),
      .req_ready_i(req_ready),
      .req_first_o(req_first),
      .req_offset_o(req_offset),
      .req_bytes_o(req_bytes),
      .req_more_o(req_more),
      .fetched_i(arrived),
      .fetched_fault_i(arrived_fault),
      .header_valid_o(header_valid),
      .header_ready_i(header_ready),
      .header_last_o(header_last),
      .header_words_o(header_words),
      .header_data_o(header_data),
      .data_is_raw_o(data_is_raw),
      .data_ready_i(data_ready),
      .pdu_valid_o(pdu_valid),
      .pdu_has_data_o(pdu_has_data),
      .pdu_drop_o(pdu_drop),
      .credit_i(credit),
      .idle_o(decided)
  );

  tx_fetch #(
      .Bytes(Bytes),
      .Depth(Pdus)
  ) fetch (
      .clk,
      .rst(clear),
      .req_valid_i(req_valid),
      .req_ready_o(req_ready),
      .req_first_i(req_first),
      .req_offset_i(req_offset),
      .req_bytes_i(req_bytes),
      .req_more_i(req_more),
      .element_o,
      .element_i,
      .element_next_i,
      .mem_valid_o,
      .mem_ready_i,
      .mem_addr_o,
      .mem_bytes_o,
      .mem_data_valid_i,
      .mem_data_ready_o,
      .mem_count_i,
      .mem_last_i,
      .mem_fault_i,
      .mem_data_i,
      .valid_o(fetched_valid),
      .ready_i(fetched_ready),
      .last_o(fetched_last),
      .fault_o(fetched_fault),
      .words_o(fetched_words),
      .data_o(fetched_data)
  );

  tx_buffer #(
      .Bytes(Bytes),
      .BufferBytes(BufferBytes),
      .Pdus(Pdus),
      .Poly(Poly)
  ) buffer (
      .clk,
      .rst,
      .restart_i(open_i),
      .set_i(poly_set),
      .poly_i,
      .header_digest_i,
      .data_digest_i,
      .header_valid_i(header_valid),
      .header_ready_o(header_ready),
      .header_last_i(header_last),
      .header_words_i(header_words),
      .header_data_i(header_data),
      .data_valid_i(data_is_raw ? raw_valid_i : fetched_valid),
      .data_ready_o(data_ready),
      .data_last_i(data_is_raw ? raw_last_i : fetched_last),
      .data_words_i(data_is_raw ? raw_words_i : fetched_words),
      .data_data_i(data_is_raw ? raw_data_i : fetched_data),
      .pdu_valid_i(pdu_valid),
      .pdu_has_data_i(pdu_has_data),
      .pdu_drop_i(pdu_drop),
      .credit_o(credit),
      .valid_o,
      .ready_i,
      .count_o,
      .data_o,
      .empty_o(empty)
  );
  assign idle_o = decided && empty && !poly_waits;
`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!clear) begin
      assert (32'(max_send_i) <= BufferBytes)
      else $error("tx: the bound of a data segment is above the buffer");
    end
  end
`endif
endmodule
`default_nettype wire
