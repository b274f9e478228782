// A sender and its FIFO, with `Delay` cycles on the way: what the tests drive.
`default_nettype none
module credit_link #(
    parameter int unsigned Width = 32,
    parameter int unsigned Depth = 5,
    parameter int unsigned Delay = 2
) (
    input  wire              clk,
    input  wire              rst,
    output logic             may_send_o,
    input  wire              send_i,
    input  wire  [Width-1:0] data_i,
    // Pushes past the credits: the fault that the asserts must see.
    input  wire              force_push_i,
    output logic             valid_o,
    output logic [Width-1:0] data_o,
    input  wire              pop_i
);
  logic credit;
  credit_sender #(
      .Depth(Depth)
  ) sender (
      .clk,
      .rst,
      .may_send_o,
      .spend_i (send_i),
      .credit_i(credit)
  );

  logic [Delay-1:0] push;
  logic [Delay-1:0][Width-1:0] data;
  always_ff @(posedge clk) begin
    push[0] <= send_i && !rst;
    data[0] <= data_i;
    for (int unsigned i = 1; i < Delay; i++) begin
      push[i] <= push[i-1] && !rst;
      data[i] <= data[i-1];
    end
  end

  credit_fifo #(
      .Width(Width),
      .Depth(Depth)
  ) fifo (
      .clk,
      .rst,
      .push_i(push[Delay-1] || force_push_i),
      .data_i(data[Delay-1]),
      .credit_o(credit),
      .valid_o,
      .data_o,
      .pop_i
  );

`ifndef SYNTHESIS
  // No credit is lost and none appears: credits, entries and all that is under way are `Depth` together.
  logic [31:0] under_way;
  always_comb begin
    under_way = 32'(credit);
    for (int unsigned i = 0; i < Delay; i++) under_way = under_way + 32'(push[i]);
  end
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert (32'(sender.credits) + 32'(fifo.count) + under_way == Depth)
      else $error("credit_link: a credit is lost or appears");
    end
  end
`endif
endmodule
`default_nettype wire
