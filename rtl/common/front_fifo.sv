// A FIFO whose oldest entry is in registers, for what decides with it in the cycle in which it is looked at.
//
//                                                    +--> [ spare ] --+
//   push --> [ slot | slot | ... ] --> [ the next ] -+----------------+--> [ the oldest ] --valid, data--> receiver
//
// Where synthesis puts the slots into block RAM (`Block`), it takes that RAM's own output for the first register behind them, and the output
// is slow (rtl/README.md). So the next entry has one more. It goes to the spare register if the oldest stays, so what moves behind
// them does not depend on the pop of the same cycle. It gives no credit back: its users count by what the entries stand for.
`default_nettype none
module front_fifo #(
    parameter int unsigned Width = 32,
    // Entries, without those in registers.
    parameter int unsigned Depth = 32,
    // The slots are in block RAM.
    parameter bit          Block = 1'b0
) (
    input  wire              clk,
    input  wire              rst,
    input  wire              push_i,
    input  wire  [Width-1:0] data_i,
    // The oldest entry; a pop needs `valid_o`. An entry can be popped in the third cycle after its push, from block RAM in the fourth.
    output logic             valid_o,
    output logic [Width-1:0] data_o,
    input  wire              pop_i
);
  logic queued_valid, fetched_valid, next_valid, spare_valid, unused_credit;
  logic [Width-1:0] queued, fetched, next, spare;
  wire free = !valid_o || pop_i;
  wire next_free = !next_valid || !spare_valid;
  wire fetch = queued_valid && (next_free || (Block && !fetched_valid));
  always_ff @(posedge clk) begin
    next_valid <= !rst && (!next_free || fetched_valid);
    if (next_free) next <= fetched;
    spare_valid <= !rst && !free && (next_valid || spare_valid);
    valid_o <= !rst && (!free || next_valid || spare_valid);
    if (!spare_valid) spare <= next;
    if (free) data_o <= spare_valid ? spare : next;
  end
  if (Block) begin : g_block
    always_ff @(posedge clk) begin
      fetched_valid <= !rst && (fetch || (fetched_valid && !next_free));
      if (fetch) fetched <= queued;
    end
  end else begin : g_lut
    assign fetched_valid = queued_valid;
    assign fetched = queued;
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
