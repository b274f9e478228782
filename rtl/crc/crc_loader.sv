// Fills the tables of CRC units when the polynomial changes. An engine has one of it for all its units.
//
// Word n of table p is the register that n leaves after `Index` (Tables - p) bits. So chains step by `Index` bits in a cycle: the first
// begins with n and writes the last tables, then hands its value to the second, which writes those before, and so on.
//
//   n --> [ v[0] ] --> the last `PerChain` tables        136 cycles in all with 4 bits: 16 words x 8 tables, and 8 for the second chain;
//            | after `PerChain` steps                    137 with 5: 32 words x 4 tables, and 9 for three more chains, the last of one table
//            +--> [ v[1] ] --> those before
//                    +--> ...
`default_nettype none
module crc_loader #(
    // Bits of a table's address: see crc_unit.
    parameter  int unsigned Index  = 4,
    localparam int unsigned Tables = crc_pkg::tables(Index),
    localparam int unsigned Chains = crc_pkg::chains(Index)
) (
    input  wire                          clk,
    input  wire                          rst,
    // Begins to load the polynomial, reflected; ignored while `busy_o`.
    input  wire                          start_i,
    input  wire  [     31:0]             poly_i,
    output logic                         busy_o,
    output logic [     31:0]             poly_o,
    output logic [Tables-1:0]            table_we_o,
    output logic [Chains-1:0][Index-1:0] table_addr_o,
    output logic [Chains-1:0][     31:0] table_data_o
);
  localparam int unsigned PerChain = crc_pkg::tables_of_chain(Index);
  localparam int unsigned P = $clog2(PerChain);
  // The last word of table 0.
  localparam logic [7:0] Last = 8'((2 ** Index - 1 + crc_pkg::chain(Index, 0)) * PerChain + (Tables - 1) % PerChain);
  function automatic logic [31:0] steps(logic [31:0] r, logic [31:0] poly);
    steps = r;
    for (int unsigned i = 0; i < Index; i++) steps = crc_pkg::step(steps, poly);
  endfunction

  // {word, table} of the first chain; each other chain is a word behind the one before.
  logic [7:0] at;
  wire begins = at[P-1:0] == '0;
  always_ff @(posedge clk) begin
    for (int unsigned c = 0; c < Chains; c++) begin
      table_addr_o[c] <= Index'(at[7:P] - (8 - P)'(c));
      table_data_o[c] <= steps(
          !begins ? table_data_o[c] : c == 0 ? {{32 - Index{1'b0}}, at[P+:Index]} : table_data_o[c==0?0 : c-1], poly_o);
    end
    for (int unsigned p = 0; p < Tables; p++) begin
      table_we_o[p] <= busy_o && !rst && 32'(at[P-1:0]) == (Tables - 1 - p) % PerChain
          && 32'(at[7:P]) >= crc_pkg::chain(Index, p) && 32'(at[7:P]) < 2 ** Index + crc_pkg::chain(Index, p);
    end
    if (rst) busy_o <= 1'b0;
    else if (!busy_o && start_i) begin
      busy_o <= 1'b1;
      poly_o <= poly_i;
    end else if (at == Last) busy_o <= 1'b0;
    at <= busy_o && !rst ? at + 8'd1 : 8'd0;
  end
endmodule
`default_nettype wire
