// A FIFO whose oldest entry is in registers, for what decides with it in the cycle in which it is looked at.
//
//   push --> [ slot | slot | ... ] --> [ the oldest ] --valid, data--> receiver
//
// Where synthesis puts the slots into block RAM, it takes that RAM's own output for the register (rtl/README.md). It gives no credit back: its
// users count by what the entries stand for.
`default_nettype none
module front_fifo #(
    parameter int unsigned Width = 32,
    // Entries, without the oldest.
    parameter int unsigned Depth = 32
) (
    input  wire              clk,
    input  wire              rst,
    input  wire              push_i,
    input  wire  [Width-1:0] data_i,
    // The oldest entry; a pop needs `valid_o`. An entry can be popped in the second cycle after its push.
    output logic             valid_o,
    output logic [Width-1:0] data_o,
    input  wire              pop_i
);
  logic queued_valid, unused_credit;
  logic [Width-1:0] queued;
  wire fetch = queued_valid && (!valid_o || pop_i);
  always_ff @(posedge clk) begin
    valid_o <= !rst && (fetch || (valid_o && !pop_i));
    if (fetch) data_o <= queued;
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
