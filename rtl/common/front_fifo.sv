// A FIFO whose oldest entry is in registers, for what decides with it in the cycle in which it is looked at.
//
//   push --> [ slot | slot | ... ] --> [ the next ] --> [ the oldest ] --valid, data--> receiver
//
// Where synthesis puts the slots into block RAM, it takes that RAM's own output for the register of the next entry, and the output is slow
// (rtl/README.md). So the oldest has one of its own. It gives no credit back: its users count by what the entries stand for.
`default_nettype none
module front_fifo #(
    parameter int unsigned Width = 32,
    // Entries, without the two in registers.
    parameter int unsigned Depth = 32
) (
    input  wire              clk,
    input  wire              rst,
    input  wire              push_i,
    input  wire  [Width-1:0] data_i,
    // The oldest entry; a pop needs `valid_o`. An entry can be popped in the third cycle after its push.
    output logic             valid_o,
    output logic [Width-1:0] data_o,
    input  wire              pop_i
);
  logic queued_valid, unused_credit;
  logic [Width-1:0] queued;
  logic next_valid;
  logic [Width-1:0] next;
  wire advance = next_valid && (!valid_o || pop_i);
  wire fetch = queued_valid && (!next_valid || advance);
  always_ff @(posedge clk) begin
    next_valid <= !rst && (fetch || (next_valid && !advance));
    valid_o <= !rst && (advance || (valid_o && !pop_i));
    if (fetch) next <= queued;
    if (advance) data_o <= next;
  end
  credit_fifo #(
      .Width(Width),
      .Depth(Depth)
  ) waiting (
      .clk,
      .rst,
      .push_i,
      .data_i,
      .credit_o(unused_credit),
      .valid_o(queued_valid),
      .data_o(queued),
      .pop_i(fetch)
  );
`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    assert (rst || !(pop_i && !valid_o))
    else $error("front_fifo: a pop without an entry");
  end
`endif
endmodule
`default_nettype wire
