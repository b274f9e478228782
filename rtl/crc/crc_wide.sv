// A 32-bit CRC over 512 bits in each cycle, for one polynomial, in words of 32 bits.
//
// The register is kept in powers of y = x^512 instead of powers of x. As squaring is linear and P(x)^512 = P(x^512), y has the
// minimal polynomial P too: multiplication by y is the step of the bit-serial CRC, one LUT4, whatever the width. The change of basis
// is v -> v^(1/512); it and the reduction of the data are one matrix outside the loop, a registered tree. The way back, v -> v^512,
// follows the loop, and so do four divisions by x^256, x^128, x^64 and x^32, which undo the zeros that fill the last beat.
//
//   data --> [mask, init] --> [8] --> [4:1] --> [4:1] --> [4:1] --u--> ( xor ) --s--> basis --> /x^256 --> ... --> /x^32 --> digest
//                              tree of 512 bits to 32                    ^      |    (2)         (2 cycles each)
//                                                                        +-step-+
//
// A beat in each cycle, messages back to back, no stall. A digest comes 17 cycles after its last beat.
`default_nettype none
module crc_wide #(
    // Reflected; this one is CRC32C.
    parameter logic [31:0] Poly = 32'h82f6_3b78
) (
    input  wire          clk,
    input  wire          rst,
    // Register before the first byte, and what is combined with it after the last.
    input  wire  [ 31:0] init_i,
    input  wire  [ 31:0] xor_out_i,
    // A message: beats up to `last_i`. `keep_i` names the words that exist: all but in the last beat, there the lowest,
    // at least one.
    input  wire          valid_i,
    input  wire          last_i,
    input  wire  [ 15:0] keep_i,
    input  wire  [511:0] data_i,
    // One cycle for each message, in their order.
    output logic         digest_valid_o,
    output logic [ 31:0] digest_o
);
  import crc_pkg::*;
  localparam matrix_t ToX = frobenius(Poly, 9);
  localparam matrix_t ToY = inverse(ToX);

  // Column i: what bit i of a beat adds to the register, in powers of y.
  function automatic logic [511:0][31:0] reduction();
    logic [31:0] power;
    power = 32'd1;
    for (int unsigned i = 0; i < 512; i++) begin
      power = step(power, Poly);
      reduction[511-i] = apply(ToY, power);
    end
  endfunction
  localparam logic [511:0][31:0] Reduction = reduction();

  function automatic logic [31:0] part(matrix_t m, logic [31:0] v, int unsigned at);
    logic [7:0][31:0] t;
    for (int unsigned b = 0; b < 8; b++) t[b] = m[8*at+b] & {32{v[8*at+b]}};
    return ((t[0] ^ t[1]) ^ (t[2] ^ t[3])) ^ ((t[4] ^ t[5]) ^ (t[6] ^ t[7]));
  endfunction

  // The mask. A last beat lacks 0 to 15 words.
  function automatic logic [3:0] absent_words(logic [15:1] keep);
    absent_words = 4'd0;
    for (int unsigned i = 1; i < 16; i++) absent_words = absent_words + {3'd0, ~keep[i]};
  endfunction
  logic first_in;
  logic [511:0] d0;
  logic [15:1] keep0;
  logic [4:0] valid, first, last;
  always_ff @(posedge clk) begin
    if (rst) first_in <= 1'b1;
    else if (valid_i) first_in <= last_i;
    valid <= rst ? 5'd0 : {valid[3:0], valid_i};
    first <= {first[3:0], first_in};
    last  <= {last[3:0], last_i};
    keep0 <= keep_i[15:1];
    // As a choice and not as an AND: so the mask is the reset of the registers, and no lookup table.
    for (int unsigned w = 1; w < 16; w++) d0[32*w+:32] <= keep_i[w] ? data_i[32*w+:32] : 32'd0;
    d0[31:0] <= (data_i[31:0] & {32{keep_i[0]}}) ^ (first_in ? init_i : 32'd0);
  end

  // The tree.
  logic [63:0][31:0] u1;
  logic [15:0][31:0] u2;
  logic [ 3:0][31:0] u3;
  logic [31:0] u4;
  for (genvar g = 0; g < 64; g++) begin : g_leaf
    logic [7:0][31:0] t;
    for (genvar b = 0; b < 8; b++) begin : g_bit
      assign t[b] = Reduction[8*g+b] & {32{d0[8*g+b]}};
    end
    always_ff @(posedge clk) u1[g] <= ((t[0] ^ t[1]) ^ (t[2] ^ t[3])) ^ ((t[4] ^ t[5]) ^ (t[6] ^ t[7]));
  end
  always_ff @(posedge clk) begin
    for (int unsigned i = 0; i < 16; i++) u2[i] <= (u1[4*i] ^ u1[4*i+1]) ^ (u1[4*i+2] ^ u1[4*i+3]);
    for (int unsigned i = 0; i < 4; i++) u3[i] <= (u2[4*i] ^ u2[4*i+1]) ^ (u2[4*i+2] ^ u2[4*i+3]);
    u4 <= (u3[0] ^ u3[1]) ^ (u3[2] ^ u3[3]);
  end

  // The loop.
  logic [31:0] s;
  logic done5;
  always_ff @(posedge clk) begin
    if (valid[4]) s <= u4 ^ (first[4] ? 32'd0 : step(s, Poly));
    done5 <= valid[4] && last[4] && !rst;
  end

  // Five matrices, two cycles each: four partial sums, then their sum, taken or not.
  logic [3:0] absent[1:14];
  logic [10:0] done;
  always_ff @(posedge clk) begin
    absent[1] <= absent_words(keep0);
    for (int unsigned i = 2; i <= 14; i++) absent[i] <= absent[i-1];
    done <= rst ? 11'd0 : {done[9:0], done5};
  end
  logic [31:0] after[6];
  assign after[0] = s;
  for (genvar k = 0; k < 5; k++) begin : g_back
    localparam matrix_t M = k == 0 ? ToX : back(Poly, 512 >> k);
    logic [3:0][31:0] sums;
    logic [31:0] kept;
    always_ff @(posedge clk) begin
      for (int unsigned i = 0; i < 4; i++) sums[i] <= part(M, after[k], i);
      kept <= after[k];
      after[k+1] <= k == 0 || absent[6+2*k][(4-k)%4] ? (sums[0] ^ sums[1]) ^ (sums[2] ^ sums[3]) : kept;
    end
  end
  always_ff @(posedge clk) digest_o <= after[5] ^ xor_out_i;
  assign digest_valid_o = done[10];
endmodule
`default_nettype wire
