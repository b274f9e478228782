// A 64-bit CRC unit with its loader: what a connection's digest needs, and what the tests drive.
//
//   set_poly --> [ crc_loader ] --tables--> [ crc_unit ] --> digest
//                                   data ------^
//
// SET_POLY takes 137 cycles with tables of 4 bits, 138 with tables of 5, from `set_poly_i` to the first beat. It waits for nothing: the
// host sends it between messages, after the last digest. Until the first SET_POLY no beat is accepted.
`default_nettype none
module crc64 #(
    // See crc_unit.
    parameter int unsigned Index = 4
) (
    input  wire         clk,
    input  wire         rst,
    // One cycle. The polynomial has its highest power first and lacks x^32, as in the descriptor SET_POLY.
    input  wire         set_poly_i,
    input  wire  [31:0] poly_i,
    input  wire  [31:0] init_i,
    input  wire  [31:0] xor_out_i,
    input  wire         valid_i,
    output logic        ready_o,
    input  wire         last_i,
    input  wire  [ 7:0] keep_i,
    input  wire  [63:0] data_i,
    output logic        digest_valid_o,
    output logic [31:0] digest_o
);
  function automatic logic [31:0] reversed(logic [31:0] value);
    for (int unsigned i = 0; i < 32; i++) reversed[i] = value[31-i];
  endfunction

  logic loading, loaded, unit_ready;
  logic [31:0] poly, init, xor_out;
  logic [crc_pkg::tables(Index)-1:0] we;
  logic [crc_pkg::chains(Index)-1:0][Index-1:0] addr;
  logic [crc_pkg::chains(Index)-1:0][31:0] data;
  always_ff @(posedge clk) begin
    if (rst) loaded <= 1'b0;
    else if (set_poly_i && !loading) begin
      loaded  <= 1'b1;
      init    <= init_i;
      xor_out <= xor_out_i;
    end
  end
  wire open = loaded && !loading && !set_poly_i;
  assign ready_o = unit_ready && open;

  crc_loader #(
      .Index(Index)
  ) loader (
      .clk,
      .rst,
      .start_i(set_poly_i),
      .poly_i(reversed(poly_i)),
      .busy_o(loading),
      .poly_o(poly),
      .table_we_o(we),
      .table_addr_o(addr),
      .table_data_o(data)
  );
  crc_unit #(
      .Index(Index)
  ) unit (
      .clk,
      .rst,
      .init_i(init),
      .xor_out_i(xor_out),
      .poly_i(poly),
      .table_we_i(we),
      .table_addr_i(addr),
      .table_data_i(data),
      .valid_i(valid_i && open),
      .ready_o(unit_ready),
      .last_i,
      .keep_i,
      .data_i,
      .digest_valid_o,
      .digest_o
  );
endmodule
`default_nettype wire
