// A FIFO that gives credits back, for a sender that must not wait for `ready` at the time it sends.
//
//   credit_sender --push--> [ slot | slot | ... ] --valid, data--> receiver
//         ^                                                           |
//         +----------------- credit_o, one cycle later -------pop-----+
//
// The sender begins with `Depth` credits, spends one for each push, and gets it back when the entry leaves. So a push always finds a
// slot, whatever lies between the two; nothing but the asserts checks it.
`default_nettype none
module credit_fifo #(
    parameter int unsigned Width = 32,
    parameter int unsigned Depth = 32
) (
    input  wire              clk,
    input  wire              rst,
    // A push needs a credit.
    input  wire              push_i,
    input  wire  [Width-1:0] data_i,
    // One cycle for each entry that has left.
    output logic             credit_o,
    // The oldest entry; a pop needs `valid_o`. An entry can be popped in the cycle after its push.
    output logic             valid_o,
    output logic [Width-1:0] data_o,
    input  wire              pop_i
);
  localparam int unsigned At = Depth > 1 ? $clog2(Depth) : 1;
  localparam int unsigned Count = $clog2(Depth + 1);
  localparam logic [At-1:0] Last = At'(Depth - 1);

  // No slot is read and written in one cycle (asserts), so a block RAM needs nothing around it for that.
  (* no_rw_check *)
  logic [Width-1:0] slots[Depth];
  logic [At-1:0] head, tail;
  // `valid_o` is a register of its own, because much follows from it.
  logic [Count-1:0] count;
  assign data_o = slots[head];
  always_ff @(posedge clk) begin
    if (push_i) slots[tail] <= data_i;
    credit_o <= pop_i && !rst;
    if (rst) begin
      head  <= '0;
      tail  <= '0;
      count <= '0;
      valid_o <= 1'b0;
    end else begin
      if (push_i) tail <= tail == Last ? '0 : tail + 1'b1;
      if (pop_i) head <= head == Last ? '0 : head + 1'b1;
      if (push_i != pop_i) count <= count + {{Count - 1{pop_i}}, 1'b1};
      valid_o <= push_i || count > Count'(1) || (valid_o && !pop_i);
    end
  end
`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert (!(push_i && count == Count'(Depth)))
      else $error("credit_fifo: a push without a free slot");
      assert (!(pop_i && count == '0))
      else $error("credit_fifo: a pop without an entry");
      assert (count <= Count'(Depth) && 32'(head) < Depth && valid_o == (count != '0));
      assert (32'(tail) == (32'(head) + 32'(count)) % Depth);
    end
  end
`endif
endmodule
`default_nettype wire
