// A 32-bit CRC over 64 bits in each cycle, whose polynomial is exchanged at run time.
//
// Bits are reflected, as iSCSI has them: bit 0 of `data_i` is the first bit of the stream. Sixteen tables of sixteen words, one
// table for each nibble of a beat, say what register a nibble leaves. They lie in the RAM of lookup tables, because the RAM
// is the smallest linear function of four bits that can be changed: one LUT4 for each bit of the result.
//
//             keep                first                    first
//              |                    |                        |
//   data --> [mask]--d--+--low-->( xor )------c----------->( xor )--a--+---------------------------> r --> xor_out --> digest
//                       |           ^ init or high             ^       |   low tables      ^        ^ |
//                       +--high--> tables 15..8 --high--+      +-------+-- tables 7..0 ----+        +-+
//                                                       +------------------------------------ xor --^  one bit back a cycle
//
// The last beat is filled up with zeros; `r` then goes back over them, one bit a cycle, while the next message passes. So
// after a message whose last beat lacks n bytes, the next last beat is accepted 8 n cycles later. Only the path from `a` through its
// tables to `a` is a loop: a RAM and two lookup tables.
`default_nettype none
module crc_unit (
    input  wire         clk,
    input  wire         rst,
    // Register before the first byte, and what is combined with it after the last.
    input  wire  [31:0] init_i,
    input  wire  [31:0] xor_out_i,
    // The polynomial, reflected: the x^31 term is bit 0. Bit 31, the x^0 term, is 1.
    input  wire  [31:0] poly_i,
    // Tables: `table_we_i[p]` writes word `table_addr_*` of table p. Tables 15..8 and 7..0 have a bus each.
    input  wire  [15:0] table_we_i,
    input  wire  [ 3:0] table_addr_high_i,
    input  wire  [31:0] table_data_high_i,
    input  wire  [ 3:0] table_addr_low_i,
    input  wire  [31:0] table_data_low_i,
    // A message: beats up to `last_i`. `keep_i` names the bytes that exist: all but in the last beat, there the lowest, or none.
    input  wire         valid_i,
    output logic        ready_o,
    input  wire         last_i,
    input  wire  [ 7:0] keep_i,
    input  wire  [63:0] data_i,
    // One cycle for each message, in their order.
    output logic        digest_valid_o,
    output logic [31:0] digest_o
);
  function automatic logic [3:0] absent_bytes(logic [7:0] keep);
    absent_bytes = 4'd0;
    for (int unsigned i = 0; i < 8; i++) absent_bytes = absent_bytes + {3'd0, ~keep[i]};
  endfunction

  // One bit back: the register whose successor by a zero bit is `r`.
  function automatic logic [31:0] unstep(logic [31:0] r, logic [31:0] poly);
    logic [31:0] sum;
    sum = r ^ (poly & {32{r[31]}});
    unstep = {sum[30:0], sum[31] ^ r[31]};
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

  // The tables: what they say of the high half of a beat, and of `a`.
  logic [31:0] a;
  logic [31:0] from_high, from_low;
  logic [31:0] word[16];
  for (genvar p = 0; p < 16; p++) begin : g_table
    logic [31:0] ram[16];
    wire [3:0] address = p < 8 ? a[4*(p%8)+:4] : d1[32+4*(p%8)+:4];
    assign word[p] = ram[address];
    always_ff @(posedge clk) begin
      if (table_we_i[p])
        ram[p<8?table_addr_low_i : table_addr_high_i] <= p < 8 ? table_data_low_i : table_data_high_i;
    end
  end
  assign from_high = ((word[8] ^ word[9]) ^ (word[10] ^ word[11])) ^ ((word[12] ^ word[13]) ^ (word[14] ^ word[15]));
  assign from_low  = ((word[0] ^ word[1]) ^ (word[2] ^ word[3])) ^ ((word[4] ^ word[5]) ^ (word[6] ^ word[7]));

  // `c`: the low half with what is known without the loop.
  logic v2, first2, last2;
  logic [3:0] absent2;
  logic [31:0] c, high2;
  always_ff @(posedge clk) begin
    v2 <= v1 && !rst;
    first2 <= first1;
    last2 <= last1;
    absent2 <= absent1;
    if (v1) begin
      c <= d1[31:0] ^ (first1 ? init_i : high2);
      high2 <= from_high;
    end
  end

  // The loop.
  logic done3;
  logic [3:0] absent3;
  logic [31:0] high3;
  always_ff @(posedge clk) begin
    done3   <= v2 && last2 && !rst;
    absent3 <= absent2;
    if (v2) begin
      a <= c ^ (first2 ? 32'd0 : from_low);
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
      r <= unstep(r, poly_i);
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
