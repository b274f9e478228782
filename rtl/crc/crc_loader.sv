// Fills the tables of CRC units when the polynomial changes. An engine has one of it for all its units.
//
// Word n of table p is the register that n leaves after 4 (16 - p) bits. So two chains step by four bits in a cycle: the first
// begins with n and writes tables 15..8, then hands its value to the second, which writes tables 7..0.
//
//   n --> [ v high ] --> tables 15..8        136 cycles in all: 16 words x 8 tables, and 8 for the second chain
//             | after 8 steps
//             +-------> [ v low ] --> tables 7..0
`default_nettype none
module crc_loader (
    input  wire         clk,
    input  wire         rst,
    // Begins to load the polynomial, reflected; ignored while `busy_o`.
    input  wire         start_i,
    input  wire  [31:0] poly_i,
    output logic        busy_o,
    output logic [31:0] poly_o,
    output logic [15:0] table_we_o,
    output logic [ 3:0] table_addr_high_o,
    output logic [31:0] table_data_high_o,
    output logic [ 3:0] table_addr_low_o,
    output logic [31:0] table_data_low_o
);
  function automatic logic [31:0] step4(logic [31:0] r, logic [31:0] poly);
    step4 = r;
    for (int unsigned i = 0; i < 4; i++) step4 = {1'b0, step4[31:1]} ^ (poly & {32{step4[0]}});
  endfunction

  // {word, table} of the first chain, from 0 to 135; the second chain is 8 behind.
  logic [7:0] at;
  logic [31:0] v_high, v_low;
  wire  [31:0] next_high = step4(at[2:0] == 3'd0 ? {28'd0, at[6:3]} : v_high, poly_o);
  wire  [31:0] next_low = step4(at[2:0] == 3'd0 ? v_high : v_low, poly_o);
  wire  [ 7:0] select = 8'h80 >> at[2:0];
  always_ff @(posedge clk) begin
    table_we_o <= busy_o && !rst ? {select & {8{!at[7]}}, select & {8{at >= 8'd8}}} : 16'd0;
    table_addr_high_o <= at[6:3];
    table_addr_low_o <= at[6:3] - 4'd1;
    v_high <= next_high;
    v_low <= next_low;
    if (rst) busy_o <= 1'b0;
    else if (!busy_o && start_i) begin
      busy_o <= 1'b1;
      poly_o <= poly_i;
    end else if (at == 8'd135) busy_o <= 1'b0;
    at <= busy_o && !rst ? at + 8'd1 : 8'd0;
  end
  assign table_data_high_o = v_high;
  assign table_data_low_o  = v_low;
endmodule
`default_nettype wire
