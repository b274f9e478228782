// The walker: says to which runs of host memory a PDU goes, and has the host check each of them before a byte is written.
//
//   start --> LOAD --> TEST --> ASK --> ANSWER --> run --+--> IDLE: all bytes have a run, or one was refused
//              ^       | ^ ^                             |
//              |       +-+ +-----------------------------+ bytes are left: the next element
//              |       |  the next element
//              +- SEEK-+ the first element again
//   start_direct ------------> ASK   (a slot of the ring of raw PDUs, the area of sense data)
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
    // Bytes of a task's memory; at least one. `placed_i`: there is a cursor. Needs `idle_o`, as the other, and an index that was here in the
    // cycle before as well.
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
    output logic                        push_o,
    output logic                        push_last_o,
    output logic                        push_refused_o,
    output logic [                63:0] push_addr_o,
    output logic [                31:0] push_length_o,
    input  wire                         run_back_i
);
  typedef enum logic [2:0] {
    IDLE,
    SEEK,
    LOAD,
    TEST,
    ASK,
    ANSWER,
    DRAIN
  } state_t;
  state_t state;
  (* no_rw_check *)
  logic [MaxE-1:0] cursors[Tasks];
  // The cursor of the task at `index_i`; where the walk before this one has just left it, as memory does not say that yet.
  logic [MaxE-1:0] read_cursor, left_cursor, cursor;
  logic just_left;
  assign cursor = just_left ? left_cursor : read_cursor;
  // The element at hand, that behind it, and the list's first one.
  logic [MaxE-1:0] element, next, first;
  logic [$clog2(Tasks)-1:0] index;
  logic direct;
  // Of the element: where it begins and ends in the task's memory, and the address of the byte at offset 0, if it had one.
  logic [31:0] begins, ends;
  logic [63:0] base;
  // What is left: bytes, and where they begin and end in the task's memory; of a direct pair, the length of the second run.
  logic [31:0] offset, stop, left, second;
  logic [63:0] addr;
  logic [31:0] length;
  logic last_run;
  logic credit;

  wire clear = rst || flush_i;
  assign idle_o = state == IDLE;
  assign run_valid_o = state == ASK && credit && !flush_i;
  assign run_addr_o = addr;
  assign run_length_o = length;

  wire inside_ = offset >= begins && offset < ends;
  // A cursor that lies behind is of no use: the walk begins again.
  wire behind = offset < begins;
  wire more = ends < stop;
  wire answered = state == ANSWER && answer_valid_i;
  wire push = answered && !flush_i;
  wire last = answer_refused_i || last_run;
  wire places = answered && last && !direct;
  wire goes_on = answered && !last && !direct;
  // The table reads the next element while the one at hand is used.
  always_comb begin
    element_o = next;
    if (state == IDLE) element_o = placed_i ? cursor : first_i;
    if (state == SEEK) element_o = first;
    if (state == LOAD) element_o = element_next_i;
  end
  // What the table says is the next element; in the cycle after a step it is still the one at hand.
  logic fresh;
  wire steps = state == TEST && !behind && !inside_ && fresh;

  always_ff @(posedge clk) begin
    read_cursor <= cursors[index_i];
    left_cursor <= element;
    just_left <= places && index == index_i;
    if (places) cursors[index] <= element;
    fresh <= !steps && !goes_on;
    if (state == LOAD || steps || goes_on) begin
      next   <= element_next_i;
      begins <= element_i.begin_offset;
      ends   <= element_i.begin_offset + element_i.length;
      // Beyond 4 GiB there are no bytes of a task.
      if (element_i.length > ~element_i.begin_offset) ends <= '1;
      base   <= element_i.addr - {32'd0, element_i.begin_offset};
    end
    case (state)
      IDLE: begin
        index <= index_i;
        element <= element_o;
        first <= first_i;
        offset <= offset_i;
        stop <= offset_i + length_i;
        left <= length_i;
        direct <= start_direct_i;
        addr <= direct_addr_i;
        length <= direct_length_i;
        second <= direct_second_i;
        last_run <= direct_second_i == '0;
        if (start_i) state <= LOAD;
        if (start_direct_i) state <= ASK;
      end
      SEEK: begin
        element <= first;
        state <= LOAD;
      end
      LOAD: state <= TEST;
      TEST: begin
        addr <= base + {32'd0, offset};
        length <= more ? ends - offset : left;
        last_run <= !more;
        if (inside_) state <= ASK;
        else if (behind) state <= SEEK;
        else if (steps) element <= next;
      end
      ASK: if (run_valid_o && run_ready_i) state <= ANSWER;
      ANSWER:
      if (answer_valid_i) begin
        offset <= offset + length;
        left <= left - length;
        addr <= addr + {32'd0, length};
        length <= second;
        second <= '0;
        last_run <= 1'b1;
        if (last) state <= IDLE;
        else if (direct) state <= ASK;
        else begin
          element <= next;
          state <= TEST;
        end
      end
      default: if (answer_valid_i) state <= IDLE;
    endcase
    if (clear && state != DRAIN) state <= state == ANSWER && !answer_valid_i && !rst ? DRAIN : IDLE;
    if (rst) state <= IDLE;
  end

  // A run needs room with the mover, which gives it back when it is done with the run.
  credit_sender #(
      .Depth(Runs)
  ) run_credits (
      .clk,
      .rst(clear),
      .may_send_o(credit),
      .spend_i(push),
      .credit_i(run_back_i)
  );
  assign push_o = push;
  assign push_last_o = last;
  assign push_refused_o = answer_refused_i;
  assign push_addr_o = addr;
  assign push_length_o = answer_refused_i ? 32'd0 : length;
`ifndef SYNTHESIS
  logic [$clog2(Tasks)-1:0] index_before;
  always_ff @(posedge clk) index_before <= index_i;
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert (!((start_i || start_direct_i) && state != IDLE))
      else $error("rx_walk: a walk while another is under way");
      assert (!start_i || index_i == index_before)
      else $error("rx_walk: a walk whose cursor was not read");
      assert (!start_i || length_i != '0)
      else $error("rx_walk: a walk of no bytes");
      assert (!answer_valid_i || state == ANSWER || state == DRAIN)
      else $error("rx_walk: an answer without a question");
    end
  end
`endif
endmodule
`default_nettype wire
