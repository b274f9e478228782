// The CRC unit of one kind of segment, of the width of a beat, in words.
//
// 64 bit: `crc_unit` with a loader that fills its tables after reset, and when the polynomial changes. 512 bit: `crc_wide`, whose
// polynomial stays. Other widths do not exist.
//
//   set --> WAITING -- no digest is owed --> LOADING: 136 or 137 cycles --> the next message
`default_nettype none
module beat_crc #(
    parameter int unsigned Bytes = 64,
    // Reflected.
    parameter logic [31:0] Poly = 32'h82f6_3b78,
    // 64 bit: see crc_unit.
    parameter int unsigned Index = 4
) (
    input  wire                  clk,
    // Power-up, and a restart: messages under way are dropped, tables stay at a restart.
    input  wire                  rst,
    input  wire                  restart_i,
    // 64 bit: one cycle, between two messages. The next one has this polynomial.
    input  wire                  set_i,
    input  crc_pkg::polynomial_t poly_i,
    input  wire                  valid_i,
    output logic                 ready_o,
    input  wire                  last_i,
    // Words of this beat: all, or at least one in the last.
    input  wire  [Bytes/4-1:0]   keep_i,
    input  wire  [8*Bytes-1:0]   data_i,
    output logic                 digest_valid_o,
    output logic [         31:0] digest_o
);
  if (Bytes == 64) begin : g_wide
    wire unused_set = &{1'b0, set_i, poly_i};
    assign ready_o = 1'b1;
    crc_wide #(
        .Poly(Poly)
    ) unit (
        .clk,
        .rst(rst || restart_i),
        .init_i(32'hffff_ffff),
        .xor_out_i(32'hffff_ffff),
        .valid_i,
        .last_i,
        .keep_i,
        .data_i,
        .digest_valid_o,
        .digest_o
    );
  end else begin : g_narrow
    logic loaded, loading, waiting, unit_ready;
    logic [31:0] poly, init, xor_out;
    crc_pkg::polynomial_t next;
    // Messages whose digest is not out.
    logic [3:0] owed;
    logic [crc_pkg::tables(Index)-1:0] we;
    logic [crc_pkg::chains(Index)-1:0][Index-1:0] addr;
    logic [crc_pkg::chains(Index)-1:0][31:0] data;
    wire open = loaded && !loading && !waiting && owed != '1;
    wire load = waiting && !loading && owed == '0;
    assign ready_o = unit_ready && open;
    always_ff @(posedge clk) begin
      loaded <= !rst;
      waiting <= !rst && (set_i || (waiting && !load));
      if (!loaded) {init, xor_out} <= '1;
      else if (load) {init, xor_out} <= {next.init, next.xor_out};
      if (set_i) next <= poly_i;
      if (rst || restart_i) owed <= '0;
      else owed <= owed + 4'(valid_i && ready_o && last_i) - 4'(digest_valid_o);
    end
    crc_loader #(
        .Index(Index)
    ) loader (
        .clk,
        .rst,
        .start_i(!loaded || load),
        .poly_i(loaded ? next.poly : Poly),
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
        .rst(rst || restart_i),
        .init_i(init),
        .xor_out_i(xor_out),
        .poly_i(poly),
        .table_we_i(we),
        .table_addr_i(addr),
        .table_data_i(data),
        .valid_i(valid_i && open),
        .ready_o(unit_ready),
        .last_i,
        .keep_i({{4{keep_i[1]}}, {4{keep_i[0]}}}),
        .data_i,
        .digest_valid_o,
        .digest_o
    );
  end
endmodule
`default_nettype wire
