// The mover: writes the beats of one PDU at a time to host memory, along the runs that the walker has announced, and drops the rest.
//
//   job --> MOVING -- the last beat of the PDU has left --> done
//
//   beats --> [ lane ] --> write: address, `count` bytes of the beat from byte `first` on
//   runs  --> [ waiting ] --> [ the run at hand: address, bytes left ] ---^
//
// A beat that crosses from one run to the next is written in two cycles. Bytes behind the last run (padding, sense data beyond its
// area) are dropped. A refused run is the last: what the PDU had for it is dropped, and the job has a fault.
`default_nettype none
module rx_move #(
    parameter int unsigned Bytes = 64,
    parameter int unsigned Runs = 4
) (
    input  wire                      clk,
    input  wire                      rst,
    // A job, while no other is under way: the PDU whose beats come next. Its header is written too, or dropped; without
    // `job_writes_i` all of it is dropped, and it has no runs.
    input  wire                      job_i,
    input  wire                      job_header_i,
    input  wire                      job_writes_i,
    // One cycle, after the last beat of the PDU has left.
    output logic                     done_o,
    // With `done_o`: host memory has refused a run.
    output logic                     fault_o,
    input  wire                      beat_valid_i,
    input  wire                      beat_is_data_i,
    input  wire                      beat_last_i,
    input  wire  [$clog2(Bytes)-2:0] beat_words_i,
    input  wire  [  8*Bytes-1:0]     beat_i,
    output logic                     beat_pop_o,
    // Runs of the walker, at most `Runs` that have not come back; `flush_i` drops them.
    input  wire                      flush_i,
    input  wire                      push_i,
    input  wire                      push_last_i,
    input  wire                      push_refused_i,
    input  wire  [             63:0] push_addr_i,
    input  wire  [             31:0] push_length_i,
    output logic                     run_back_o,
    output logic                     write_valid_o,
    input  wire                      write_ready_i,
    output logic [             63:0] write_addr_o,
    output logic [$clog2(Bytes)-1:0] write_first_o,
    output logic [$clog2(Bytes):0]   write_count_o,
    output logic [  8*Bytes-1:0]     write_data_o,
    // A job is under way.
    output logic                     busy_o
);
  localparam int unsigned L = $clog2(Bytes);
  logic with_header, writes, runs_over, fault;
  logic [L-1:0] lane;

  // The run at hand is in registers, and counts down; one that comes while none waits goes there at once.
  logic run_valid, run_last, run_refused, run_pop;
  logic [63:0] run_addr;
  logic [31:0] run_left;
  typedef struct packed {
    logic last;
    logic refused;
    logic [63:0] addr;
    logic [31:0] length;
  } run_t;
  run_t pushed, waiting, loaded;
  logic waits, unused_credit;
  wire load = (!run_valid || run_pop) && (waits || push_i);
  assign pushed = '{last: push_last_i, refused: push_refused_i, addr: push_addr_i, length: push_length_i};
  assign loaded = waits ? waiting : pushed;
  credit_fifo #(
      .Width($bits(run_t)),
      .Depth(Runs)
  ) runs (
      .clk,
      .rst(rst || flush_i),
      .push_i(push_i && !(load && !waits)),
      .data_i(pushed),
      .credit_o(unused_credit),
      .valid_o(waits),
      .data_o(waiting),
      .pop_i(load && waits)
  );

  wire written = writes && !runs_over && (with_header || beat_is_data_i);
  wire refused = busy_o && written && run_valid && run_refused;
  wire [L:0] beat_left = {beat_words_i, 2'b00} - {1'b0, lane};
  // Both are true where the run ends with the beat.
  wire run_ends = run_left <= 32'(beat_left);
  wire beat_ends = run_left >= 32'(beat_left);
  assign write_valid_o = busy_o && written && beat_valid_i && run_valid && !run_refused;
  assign write_addr_o  = run_addr;
  assign write_first_o = lane;
  assign write_count_o = run_ends ? run_left[L:0] : beat_left;
  assign write_data_o  = beat_i;
  wire go = write_valid_o && write_ready_i;
  wire over = go && run_ends && run_last;
  assign run_pop = (go && run_ends) || refused;
  assign beat_pop_o = busy_o && beat_valid_i && (written ? over || (go && beat_ends) : 1'b1);
  wire ends = beat_pop_o && beat_last_i;

  always_ff @(posedge clk) begin
    done_o  <= ends && !rst;
    fault_o <= fault;
    run_back_o <= run_pop && !rst && !flush_i;
    run_valid <= !rst && !flush_i && (load || (run_valid && !run_pop));
    if (load) {run_last, run_refused, run_addr, run_left} <= loaded;
    else if (go) begin
      run_addr <= run_addr + 64'(beat_left);
      run_left <= run_left - 32'(beat_left);
    end
    // A beat that is not at its end goes on in the next run.
    if (beat_pop_o) lane <= '0;
    else if (go) lane <= lane + run_left[L-1:0];
    if (over) runs_over <= 1'b1;
    if (refused) {runs_over, fault} <= 2'b11;
    if (ends) busy_o <= 1'b0;
    if (job_i) begin
      busy_o <= 1'b1;
      with_header <= job_header_i;
      writes <= job_writes_i;
      {runs_over, fault} <= 2'b00;
      lane <= '0;
    end
    if (rst) busy_o <= 1'b0;
  end
`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert (!(job_i && busy_o))
      else $error("rx_move: a job while another is under way");
      assert (!write_valid_o || (write_count_o != '0 && 32'(lane) + 32'(write_count_o) <= Bytes))
      else $error("rx_move: a write of no bytes, or beyond the beat");
      assert (!ends || !writes || runs_over || over)
      else $error("rx_move: a PDU has ended before its runs");
    end
  end
`endif
endmodule
`default_nettype wire
