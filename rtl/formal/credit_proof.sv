// Credits, for every sender and every receiver that keep to the rules: see rtl/README.md, "Proofs".
`default_nettype none
module credit_proof #(
    parameter int unsigned Width = 4,
    parameter int unsigned Depth = 5,
    parameter int unsigned Delay = 2
) (
    input wire             clk,
    input wire             rst,
    input wire             send_i,
    input wire [Width-1:0] data_i,
    input wire             pop_i
);
  logic may_send, valid;
  logic [Width-1:0] data;
  credit_link #(
      .Width(Width),
      .Depth(Depth),
      .Delay(Delay)
  ) link (
      .clk,
      .rst,
      .may_send_o(may_send),
      .send_i(send_i && may_send),
      .data_i,
      .force_push_i(1'b0),
      .valid_o(valid),
      .data_o(data),
      .pop_i(pop_i && valid)
  );
  logic begun = 1'b0;
  always_ff @(posedge clk) begin
    begun <= 1'b1;
    if (!begun) assume (rst);
  end
endmodule
`default_nettype wire
