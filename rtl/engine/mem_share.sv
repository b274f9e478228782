// Two readers of host memory: the answers come in the order of the reads, so a queue says whose they are.
//
//   control --+--> host memory --answers--+--> control
//   transmit -+------ [ whose ] ----------+--> transmit
//
// Control goes first: it reads little.
`default_nettype none
module mem_share #(
    // Reads that are under way at most.
    parameter int unsigned Depth = 64
) (
    input  wire         clk,
    input  wire         rst,
    input  wire         control_valid_i,
    output logic        control_ready_o,
    input  wire  [63:0] control_addr_i,
    input  wire  [16:0] control_bytes_i,
    output logic        control_data_valid_o,
    input  wire         control_data_ready_i,
    input  wire         tx_valid_i,
    output logic        tx_ready_o,
    input  wire  [63:0] tx_addr_i,
    input  wire  [16:0] tx_bytes_i,
    output logic        tx_data_valid_o,
    input  wire         tx_data_ready_i,
    output logic        mem_valid_o,
    input  wire         mem_ready_i,
    output logic [63:0] mem_addr_o,
    output logic [16:0] mem_bytes_o,
    input  wire         mem_data_valid_i,
    output logic        mem_data_ready_o,
    input  wire         mem_last_i
);
  logic credit, credit_back, known, of_control;
  wire goes = mem_valid_o && mem_ready_i;
  wire ends = mem_data_valid_i && mem_data_ready_o && mem_last_i;
  assign mem_valid_o = credit && (control_valid_i || tx_valid_i);
  assign mem_addr_o = control_valid_i ? control_addr_i : tx_addr_i;
  assign mem_bytes_o = control_valid_i ? control_bytes_i : tx_bytes_i;
  assign control_ready_o = credit && mem_ready_i;
  assign tx_ready_o = credit && mem_ready_i && !control_valid_i;
  assign control_data_valid_o = mem_data_valid_i && known && of_control;
  assign tx_data_valid_o = mem_data_valid_i && known && !of_control;
  assign mem_data_ready_o = known && (of_control ? control_data_ready_i : tx_data_ready_i);
  credit_sender #(
      .Depth(Depth)
  ) read_credits (
      .clk,
      .rst,
      .may_send_o(credit),
      .spend_i(goes),
      .credit_i(credit_back)
  );
  credit_fifo #(
      .Width(1),
      .Depth(Depth)
  ) whose (
      .clk,
      .rst,
      .push_i(goes),
      .data_i(control_valid_i),
      .credit_o(credit_back),
      .valid_o(known),
      .data_o(of_control),
      .pop_i(ends)
  );
endmodule
`default_nettype wire
