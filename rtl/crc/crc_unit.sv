// A 32-bit CRC over 64 bits in each cycle, whose polynomial is exchanged at run time.
//
// Bits are reflected, as iSCSI has them: bit 0 of `data_i` is the first bit of the stream. Tables, one for every few bits of a beat, say what
// register these bits leave. They lie in the RAM of lookup tables, because that RAM is the smallest linear function of so many bits that can
// be changed: one lookup table for each bit of the result, or for two.
//
//             keep
//              |
//   data --> [mask]--+--low---------------------------->( choose )--a--+------------------------> r --> xor_out --> digest
//                    |                                  ^ init | sum   |                     ^    ^ |
//                    |                                         +-------+-- tables of low ----+    +-+
//                    +--high--> tables of high -------------------------------------- xor ---^  one bit back a cycle
//
// `a` is the low half of a beat combined with the sum of the tables of the beat before, or with `init_i`. The last beat is filled up with
// zeros; `r` then goes back over them, one bit a cycle, while the next message passes. So after a message whose last beat lacks n bytes,
// the next last beat is accepted 8 n cycles later. Only the path from `a` through its tables to `a` is a loop: a RAM and two lookup tables.
`default_nettype none
module crc_unit #(
    // Bits of a table's address, as many as the RAM of a lookup table has: 4 on an ECP5 (16 words), 5 on UltraScale+ (32 words).
    parameter  int unsigned Index  = 4,
    localparam int unsigned Tables = crc_pkg::tables(Index),
    localparam int unsigned Chains = crc_pkg::chains(Index)
) (
    input  wire                          clk,
    input  wire                          rst,
    // Register before the first byte, and what is combined with it after the last.
    input  wire  [31:0]                  init_i,
    input  wire  [31:0]                  xor_out_i,
    // The polynomial, reflected: the x^31 term is bit 0. Bit 31, the x^0 term, is 1.
    input  wire  [31:0]                  poly_i,
    // Tables: `table_we_i[p]` writes word `table_addr_i[c]` of table p, where c is the chain of the loader whose table it is.
    input  wire  [Tables-1:0]            table_we_i,
    input  wire  [Chains-1:0][Index-1:0] table_addr_i,
    input  wire  [Chains-1:0][31:0]      table_data_i,
    // A message: beats up to `last_i`. `keep_i` names the bytes that exist: all but in the last beat, there the lowest, or none.
    input  wire                          valid_i,
    output logic                         ready_o,
    input  wire                          last_i,
    input  wire  [7:0]                   keep_i,
    input  wire  [63:0]                  data_i,
    // One cycle for each message, in their order.
    output logic                         digest_valid_o,
    output logic [31:0]                  digest_o
);
  function automatic logic [3:0] absent_bytes(logic [7:0] keep);
    absent_bytes = 4'd0;
    for (int unsigned i = 0; i < 8; i++) absent_bytes = absent_bytes + {3'd0, ~keep[i]};
  endfunction

  // Input: the room after a short last beat, and the mask.
  logic accept;
  logic [6:0] hold;
  logic first_in;
  assign ready_o = !last_i || hold == 7'd0;
  assign accept  = valid_i && ready_o;

  logic v1, first1, last1;
  logic [3:0] absent1;
  logic [63:0] d1;
  always_ff @(posedge clk) begin
    v1 <= accept && !rst;
    first1 <= first_in;
    last1 <= last_i;
    absent1 <= absent_bytes(keep_i);
    // As a choice and not as an AND: so the mask is the reset of the registers, and no lookup table.
    for (int unsigned i = 0; i < 8; i++) d1[8*i+:8] <= keep_i[i] ? data_i[8*i+:8] : 8'd0;
    if (rst) first_in <= 1'b1;
    else if (accept) first_in <= last_i;
    if (rst) hold <= 7'd0;
    else if (accept && last_i) hold <= {absent_bytes(keep_i), 3'd0};
    else if (hold != 7'd0) hold <= hold - 7'd1;
  end

  // The beat one and two stages later: its halves, and what its tables say.
  logic v2, first2, last2, done3;
  logic [3:0] absent2, absent3;
  logic [31:0] low2, high2, high3;
  // With a first value a register is left where it is: else Yosys makes a second one of it, for the address of the RAM.
  logic [31:0] a;
  initial a = '0;

  // Table p is for the bits `Index * p - Pad` and those above; what lies below bit 0 is 0. Tables from `High` on have bits of the high half
  // alone; the one before may have some as well.
  localparam int unsigned Pad = Index * Tables - 64;
  localparam int unsigned High = (32 + Pad + Index - 1) / Index;
  localparam int unsigned Shared = Index * High - Pad - 32;
  wire [Index*Tables-1:0] address;
  assign address[Index*Tables-1:Index*High] = d1[63:32+Shared];
  if (Shared == 0) begin : g_apart
    assign address[Index*High-1:0] = a;
  end else begin : g_shared
    logic [Shared-1:0] shared2, shared3;
    initial shared3 = '0;
    always_ff @(posedge clk) begin
      if (v1) shared2 <= d1[31+Shared:32];
      if (v2) shared3 <= shared2;
    end
    assign address[Index*High-1:0] = {shared3, a, {Pad{1'b0}}};
  end
  logic [Tables-1:0][31:0] word;
  for (genvar p = 0; p < Tables; p++) begin : g_table
    localparam int unsigned Chain = crc_pkg::chain(Index, p);
    logic [31:0] ram[2**Index];
    assign word[p] = ram[address[Index*p+:Index]];
    always_ff @(posedge clk) if (table_we_i[p]) ram[table_addr_i[Chain]] <= table_data_i[Chain];
  end
  // What the high half leaves, and the low one with what lies in the other tables.
  logic [31:0] from_high, from_low;
  always_comb begin
    from_high = '0;
    for (int unsigned p = High; p < Tables; p++) from_high = from_high ^ word[p];
    from_low = '0;
    for (int unsigned p = 0; p < High; p++) from_low = from_low ^ word[p];
  end

  always_ff @(posedge clk) begin
    v2 <= v1 && !rst;
    first2 <= first1;
    last2 <= last1;
    absent2 <= absent1;
    if (v1) begin
      low2  <= d1[31:0];
      high2 <= from_high;
    end
    done3   <= v2 && last2 && !rst;
    absent3 <= absent2;
    if (v2) begin
      // What is known without the tables first, so that two lookup tables are behind their RAM.
      a <= (low2 ^ (first2 ? init_i : high3)) ^ (first2 ? '0 : from_low);
      high3 <= high2;
    end
  end

  // Back over the zeros.
  logic [31:0] r;
  logic [ 6:0] left;
  logic busy;
  always_ff @(posedge clk) begin
    if (done3) begin
      r <= from_low ^ high3;
      left <= {absent3, 3'd0};
    end else if (left != 7'd0) begin
      r <= crc_pkg::unstep(r, poly_i);
      left <= left - 7'd1;
    end
    if (rst) busy <= 1'b0;
    else if (done3) busy <= 1'b1;
    else if (left == 7'd0) busy <= 1'b0;
  end
  assign digest_valid_o = busy && left == 7'd0;
  assign digest_o = r ^ xor_out_i;
endmodule
`default_nettype wire
