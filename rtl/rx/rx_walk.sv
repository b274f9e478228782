// The walker: says to which runs of host memory a PDU goes, and has the host check each of them before a byte is written.
//
//   start --> CURSOR --> TEST --> ASK --> ANSWER --> run --+--> IDLE: all bytes have a run, or one was refused
//                         ^  |                             |
//                         |  v                             |
//                         NEXT <------ bytes are left -----+
//   start_direct ---------------> ASK   (a slot of the ring of raw PDUs, the area of sense data)
//   flush --> IDLE, or DRAIN while the host still owes an answer
//
// The walk of a task's list goes on at the element where it was (the cursor), so data that comes in order reads each element once.
// It works ahead: the runs of a PDU can be known before the PDU is decided on. Nothing is written by then; `flush` drops them.
`default_nettype none
module rx_walk
  import engine_pkg::*;
#(
    parameter int unsigned Tasks = 256,
    parameter int unsigned Runs = 4
) (
    input  wire                         clk,
    input  wire                         rst,
    // Everything under way is dropped, the runs too.
    input  wire                         flush_i,
    output logic                        idle_o,
    // Bytes of a task's memory; at least one. `placed_i`: there is a cursor. Needs `idle_o`, as the other.
    input  wire                         start_i,
    input  wire  [$clog2(Tasks)-1:0] index_i,
    input  wire                         placed_i,
    input  wire  [            MaxE-1:0] first_i,
    input  wire  [                31:0] offset_i,
    input  wire  [                31:0] length_i,
    // Two runs of memory, one behind the other; the second may have no bytes.
    input  wire                         start_direct_i,
    input  wire  [                63:0] direct_addr_i,
    input  wire  [                31:0] direct_length_i,
    input  wire  [                31:0] direct_second_i,
    // The data_address table: an element, one cycle after its index.
    output logic [MaxE-1:0] element_o,
    input  element_t                    element_i,
    input  wire  [            MaxE-1:0] element_next_i,
    // The host: a run is announced, and answered later; answers come in order.
    output logic                        run_valid_o,
    input  wire                         run_ready_i,
    output logic [                63:0] run_addr_o,
    output logic [                31:0] run_length_o,
    input  wire                         answer_valid_i,
    input  wire                         answer_refused_i,
    // Runs for the mover. A refused one has no bytes and is the last.
    output logic                        out_valid_o,
    output logic                        out_last_o,
    output logic                        out_refused_o,
    output logic [                63:0] out_addr_o,
    output logic [                31:0] out_length_o,
    input  wire                         out_pop_i
);
  typedef enum logic [2:0] {
    IDLE,
    CURSOR,
    TEST,
    ASK,
    ANSWER,
    DRAIN
  } state_t;
  state_t state;
  (* no_rw_check *)
  logic [MaxE-1:0] cursors[Tasks];
  logic [MaxE-1:0] cursor, element, first;
  logic [$clog2(Tasks)-1:0] index;
  logic placed, direct;
  // What is left: bytes, and where they begin in the task's memory; of a direct pair, the length of the second run.
  logic [31:0] offset, left, second;
  logic [63:0] addr;
  logic [31:0] length;
  logic credit, credit_back;

  wire clear = rst || flush_i;
  assign idle_o = state == IDLE;
  assign run_valid_o = state == ASK && credit && !flush_i;
  assign run_addr_o = addr;
  assign run_length_o = length;

  wire [31:0] into = offset - element_i.begin_offset;
  wire inside_ = into < element_i.length;
  wire [31:0] rest = element_i.length - into;
  // A cursor that lies behind is of no use: the walk begins again.
  wire behind = offset < element_i.begin_offset;
  wire answered = state == ANSWER && answer_valid_i;
  wire push = answered && !flush_i;
  wire last = answer_refused_i || (direct ? second == '0 : left == length);
  always_comb begin
    element_o = element;
    if (state == CURSOR) element_o = placed ? cursor : first;
    else if (state == TEST) element_o = behind ? first : element_next_i;
    else if (answered && !last) element_o = element_next_i;
  end

  always_ff @(posedge clk) begin
    if (start_i) cursor <= cursors[index_i];
    if (answered && last && !direct) cursors[index] <= element;
    case (state)
      IDLE: begin
        index  <= index_i;
        placed <= placed_i;
        first  <= first_i;
        offset <= offset_i;
        left   <= length_i;
        direct <= start_direct_i;
        addr   <= direct_addr_i;
        length <= direct_length_i;
        second <= direct_second_i;
        if (start_i) state <= CURSOR;
        if (start_direct_i) state <= ASK;
      end
      CURSOR: begin
        element <= element_o;
        state   <= TEST;
      end
      TEST: begin
        addr   <= element_i.addr + {32'd0, into};
        length <= rest < left ? rest : left;
        if (inside_ && !behind) state <= ASK;
        else element <= element_o;
      end
      ASK: if (run_valid_o && run_ready_i) state <= ANSWER;
      ANSWER:
      if (answer_valid_i) begin
        offset <= offset + length;
        left   <= left - length;
        addr   <= addr + {32'd0, length};
        length <= second;
        second <= '0;
        if (last) state <= IDLE;
        else if (direct) state <= ASK;
        else begin
          element <= element_o;
          state   <= TEST;
        end
      end
      default: if (answer_valid_i) state <= IDLE;
    endcase
    if (clear && state != DRAIN) state <= state == ANSWER && !answer_valid_i && !rst ? DRAIN : IDLE;
    if (rst) state <= IDLE;
  end

  credit_sender #(
      .Depth(Runs)
  ) run_credits (
      .clk,
      .rst(clear),
      .may_send_o(credit),
      .spend_i(push),
      .credit_i(credit_back)
  );
  credit_fifo #(
      .Width(2 + 64 + 32),
      .Depth(Runs)
  ) runs (
      .clk,
      .rst(clear),
      .push_i(push),
      .data_i({last, answer_refused_i, addr, answer_refused_i ? 32'd0 : length}),
      .credit_o(credit_back),
      .valid_o(out_valid_o),
      .data_o({out_last_o, out_refused_o, out_addr_o, out_length_o}),
      .pop_i(out_pop_i)
  );
`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert (!((start_i || start_direct_i) && state != IDLE))
      else $error("rx_walk: a walk while another is under way");
      assert (!start_i || length_i != '0)
      else $error("rx_walk: a walk of no bytes");
      assert (!answer_valid_i || state == ANSWER || state == DRAIN)
      else $error("rx_walk: an answer without a question");
    end
  end
`endif
endmodule
`default_nettype wire
