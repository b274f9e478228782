// The credits of one sender: as many as the FIFO has slots that are neither used nor promised.
`default_nettype none
module credit_sender #(
    parameter int unsigned Depth = 32
) (
    input  wire  clk,
    input  wire  rst,
    // There is a credit: `spend_i` may be 1.
    output logic may_send_o,
    input  wire  spend_i,
    // A credit comes back.
    input  wire  credit_i
);
  localparam int unsigned Count = $clog2(Depth + 1);
  logic [Count-1:0] credits;
  always_ff @(posedge clk) begin
    if (rst) begin
      credits <= Count'(Depth);
      may_send_o <= 1'b1;
    end else begin
      if (spend_i != credit_i) credits <= credits + {{Count - 1{spend_i}}, 1'b1};
      may_send_o <= credit_i || credits > Count'(1) || (may_send_o && !spend_i);
    end
  end
`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert (may_send_o == (credits != '0));
      assert (!(spend_i && credits == '0))
      else $error("credit_sender: a credit that does not exist");
      assert (!(credit_i && credits == Count'(Depth)))
      else $error("credit_sender: a credit comes back that was not spent");
    end
  end
`endif
endmodule
`default_nettype wire
