// Reads a part of a task's memory by its scatter/gather list: one request of host memory for each run of bytes that lies in one element,
// and the answers joined to beats of words with their padding.
//
//   request --> [ held ] --> IDLE -- a new list --> READ_ELEMENT --> LOAD --> TEST --> STEP -- here --> FIT --> RUN
//                             ^  |                                            ^  ^      |                        |
//                             |  +------- goes on ----------------------------+  +------+ the next element       |
//                             |                                               +---------------- bytes are left --+
//                             +---------------------------------------------------------------- all requested ---+
//
//   answers --> [stream_window] --> [ queue ] --> words, `last_o` at the end of each request, `fault_o` with it
//
// Each state has one sum, or one comparison: all of them in one cycle were the longest way of the transmit module. While an element is
// looked at, the table already reads the next, so a walk takes two cycles an element, and a run four.
// Requests are pipelined: host memory may answer as late as it likes, in order. A read that host memory refuses is answered with as many
// bytes as any other, whose values do not matter, and with `mem_fault_i`.
`default_nettype none
module tx_fetch
  import engine_pkg::*;
#(
    parameter int unsigned Bytes = 64,
    // Requests, and reads of host memory, that are under way at most.
    parameter int unsigned Depth = 16
) (
    input  wire                      clk,
    input  wire                      rst,
    // 1 to 2^17 - 4 bytes at `req_offset_i` of the list that begins with an element of the table, and which holds them.
    input  wire                      req_valid_i,
    output logic                     req_ready_o,
    input  wire  [         MaxE-1:0] req_first_i,
    input  wire  [             31:0] req_offset_i,
    input  wire  [             16:0] req_bytes_i,
    // It goes on where the request before it has ended, in the same list.
    input  wire                      req_more_i,
    // The data_address table: the element with this index and the index of the one behind it are there in the next cycle.
    output logic [         MaxE-1:0] element_o,
    input  element_t                 element_i,
    input  wire  [         MaxE-1:0] element_next_i,
    // Host memory: reads of at least one byte, and their bytes in order, from the lowest of each beat on; beats but the last are full.
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
    // The lowest `words_o` words exist; what lies above is zero.
    output logic                     valid_o,
    input  wire                      ready_i,
    output logic                     last_o,
    // With the last beat: host memory has refused a part of it.
    output logic                     fault_o,
    output logic [$clog2(Bytes)-2:0] words_o,
    output logic [  8*Bytes-1:0]     data_o
);
  localparam int unsigned Words = Bytes / 4;
  localparam int unsigned L = $clog2(Bytes);
  localparam int unsigned W = L - 1;
  // Words of a beat, as bits.
  localparam int unsigned Lane = L - 2;
  // From taking words until their beat is there (stream_window).
  localparam int unsigned Latency = 2 + W / 2;
  // Beats that were taken and have not left: more than a slot takes to come back, and as many as fit the smallest RAM.
  localparam int unsigned Slots = 16;
  typedef enum logic [2:0] {
    IDLE,
    READ_ELEMENT,
    LOAD,
    TEST,
    STEP,
    FIT,
    RUN
  } state_t;
  state_t state;

  // The request that is next; a register, so that who decides about requests and what becomes of them are not one way.
  logic held, more;
  logic [MaxE-1:0] first_element;
  logic [31:0] offset;
  logic [16:0] length;
  logic pdu_credit, run_credit, run_back;
  assign req_ready_o = !held;
  wire accept = state == IDLE && held && pdu_credit;
  always_ff @(posedge clk) begin
    if (req_valid_i && req_ready_o) begin
      first_element <= req_first_i;
      offset <= req_offset_i;
      length <= req_bytes_i;
      more <= req_more_i;
    end
    held <= !rst && (held ? !accept : req_valid_i);
  end

  // Which element, and the runs. `element_o` is the one behind `element`, so that it is there when it is needed.
  element_t element;
  wire unused_begin = &{1'b0, element.begin_offset, element_i.begin_offset};
  logic [16:0] left;
  logic [1:0] pad;
  // Bytes of the element before the next run; those behind, or by how much that is too many.
  logic [31:0] skip, rest, beyond;
  logic reaches, all;
  assign mem_valid_o = state == RUN && run_credit && !rst;
  wire run = mem_valid_o && mem_ready_i;
  always_ff @(posedge clk) begin
    unique case (state)
      IDLE:
      if (accept) begin
        if (!more) begin
          element_o <= first_element;
          skip <= offset;
        end
        left <= length;
        pad <= 2'd0 - length[1:0];
        state <= more ? TEST : READ_ELEMENT;
      end
      // The table answers in the next cycle.
      READ_ELEMENT: state <= LOAD;
      LOAD: begin
        element <= element_i;
        element_o <= element_next_i;
        state <= TEST;
      end
      TEST: begin
        rest <= element.length - skip;
        {reaches, beyond} <= {1'b0, skip} - {1'b0, element.length};
        state <= STEP;
      end
      STEP:
      if (reaches) state <= FIT;
      else begin
        skip <= beyond;
        element <= element_i;
        element_o <= element_next_i;
        state <= TEST;
      end
      FIT: begin
        mem_addr_o <= element.addr + 64'(skip);
        mem_bytes_o <= rest < 32'(left) ? 17'(rest) : left;
        all <= rest >= 32'(left);
        state <= RUN;
      end
      RUN:
      if (run) begin
        skip  <= skip + 32'(mem_bytes_o);
        left  <= left - mem_bytes_o;
        state <= all ? IDLE : TEST;
      end
      default: state <= IDLE;
    endcase
    if (rst) state <= IDLE;
  end

  // What the answers belong to.
  logic run_known, run_ends, pdu_known, fault_known, unused_fault_credit;
  logic [1:0] run_pad;
  // Of a request, in beats of the window: those behind the first, whether there are none, and the words of the last.
  typedef struct packed {
    logic [14-Lane:0] beats;
    logic single;
    logic [W-1:0] tail;
  } request_t;
  request_t asked, request;
  wire [14:0] words_less_one = length[16:2] - {14'd0, length[1:0] == 2'd0};
  assign asked.beats = words_less_one[14:Lane];
  assign asked.single = words_less_one[14:Lane] == '0;
  assign asked.tail = W'(words_less_one[Lane-1:0]) + 1'b1;
  logic begins, taken, takes_last, over, answered;
  credit_sender #(
      .Depth(Depth)
  ) run_credits (
      .clk,
      .rst,
      .may_send_o(run_credit),
      .spend_i(run),
      .credit_i(run_back)
  );
  credit_fifo #(
      .Width(3),
      .Depth(Depth)
  ) runs (
      .clk,
      .rst,
      .push_i(run),
      .data_i({all, pad}),
      .credit_o(run_back),
      .valid_o(run_known),
      .data_o({run_ends, run_pad}),
      .pop_i(answered)
  );
  credit_sender #(
      .Depth(Depth)
  ) pdu_credits (
      .clk,
      .rst,
      .may_send_o(pdu_credit),
      .spend_i(accept),
      .credit_i(over)
  );
  front_fifo #(
      .Width($bits(request_t)),
      .Depth(Depth)
  ) pdus (
      .clk,
      .rst,
      .push_i(accept),
      .data_i(asked),
      .valid_o(pdu_known),
      .data_o(request),
      .pop_i(begins)
  );

  // In: bytes, and zeros up to a word behind the last of a request.
  logic padding, faulty, window_ready;
  logic [1:0] pad_count;
  assign mem_data_ready_o = window_ready && !padding && run_known;
  wire arrives = mem_data_valid_i && mem_data_ready_o;
  assign answered = arrives && mem_last_i;
  wire ends = answered && run_ends;
  always_ff @(posedge clk) begin
    if (ends) pad_count <= run_pad;
    if (rst) begin
      padding <= 1'b0;
      faulty  <= 1'b0;
    end else begin
      if (ends) padding <= run_pad != 2'd0;
      else if (window_ready) padding <= 1'b0;
      if (arrives) faulty <= !ends && (faulty || mem_fault_i);
    end
  end
  // A request begins in a beat of its own. What is taken leaves the window some cycles later; a slot of the queue waits for it.
  typedef struct packed {
    logic last;
    logic fault;
    logic [W-1:0] words;
  } taken_t;
  taken_t out;
  taken_t [Latency-1:0] under_way;
  logic [Latency-1:0] moves;
  logic [W-1:0] arrived;
  // How many words the next beat of the request at hand has, and what is there beyond them; the beats behind the one after it, less one:
  // negative if that is the last.
  logic at_hand, slot, slot_back, fault;
  logic [L+3:0] surplus;
  logic [15-Lane:0] further;
  logic [W-1:0] take, tail;
  logic [8*Bytes-1:0] beat, queued;
  logic [31:0] unused_peek;
  assign taken = at_hand && slot && !surplus[L+3] && (!takes_last || fault_known);
  wire may_begin = !at_hand || takes_last;
  assign begins = pdu_known && (!at_hand || (taken && takes_last));
  wire next = begins || (taken && !takes_last);
  wire next_last = may_begin ? request.single : further[15-Lane];
  wire [W-1:0] next_take = !next_last ? W'(Words) : may_begin ? request.tail : tail;
  always_ff @(posedge clk) begin
    at_hand <= !rst && (begins || (at_hand && !(taken && takes_last)));
    over <= !rst && taken && takes_last;
    surplus <= rst ? '0 : surplus + (L + 4)'(arrived) - (next ? (L + 4)'(next_take) : '0);
    if (next) begin
      takes_last <= next_last;
      take <= next_take;
      further <= (may_begin ? {1'b0, request.beats} : further) + {{15 - Lane{1'b1}}, !may_begin};
      if (may_begin) tail <= request.tail;
    end
  end
  stream_window #(
      .Bytes(Bytes)
  ) realigner (
      .clk,
      .rst,
      .valid_i(padding || arrives),
      .ready_o(window_ready),
      .count_i(padding ? (L + 1)'(pad_count) : mem_count_i),
      .data_i(padding ? '0 : mem_data_i),
      .arrived_o(arrived),
      .take_i(taken ? take : '0),
      .data_o(beat),
      .peek_at_i('0),
      .peek_o(unused_peek)
  );
  credit_fifo #(
      .Width(1),
      .Depth(Depth)
  ) faults (
      .clk,
      .rst,
      .push_i(ends),
      .data_i(faulty || mem_fault_i),
      .credit_o(unused_fault_credit),
      .valid_o(fault_known),
      .data_o(fault),
      .pop_i(taken && takes_last)
  );
  always_ff @(posedge clk) begin
    under_way <= {under_way[Latency-2:0], takes_last, fault, take};
    moves <= rst ? '0 : {moves[Latency-2:0], taken};
  end
  credit_sender #(
      .Depth(Slots)
  ) slots (
      .clk,
      .rst,
      .may_send_o(slot),
      .spend_i(taken),
      .credit_i(slot_back)
  );
  credit_fifo #(
      .Width($bits(taken_t) + 8 * Bytes),
      .Depth(Slots)
  ) beats (
      .clk,
      .rst,
      .push_i(moves[Latency-1]),
      .data_i({under_way[Latency-1], beat}),
      .credit_o(slot_back),
      .valid_o,
      .data_o({out, queued}),
      .pop_i(valid_o && ready_i)
  );
  assign last_o  = out.last;
  assign fault_o = out.last && out.fault;
  assign words_o = out.words;
  always_comb for (int unsigned i = 0; i < Words; i++) data_o[32*i+:32] = queued[32*i+:32] & {32{i < 32'(words_o)}};
`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert (!accept || length != '0)
      else $error("tx_fetch: a request of no bytes");
      assert (state != FIT || skip < element.length)
      else $error("tx_fetch: a run begins behind its element");
      assert (!mem_data_valid_i || run_known)
      else $error("tx_fetch: an answer without a read");
    end
  end
`endif
endmodule
`default_nettype wire
