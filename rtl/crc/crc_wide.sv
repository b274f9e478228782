// A 32-bit CRC over 512 bits or more in each cycle, for one polynomial, in words of 32 bits.
//
// The register is kept in powers of y = x^Bits instead of powers of x. As squaring is linear and P(x)^Bits = P(x^Bits) where Bits is
// a power of two, y has the minimal polynomial P too: multiplication by y is the step of the bit-serial CRC, one LUT4, whatever the
// width. The change of basis is v -> v^(1/Bits); it and the reduction of the data are one matrix outside the loop, a registered tree.
// The way back, v -> v^Bits, follows the loop, and so do divisions by x^(Bits/2) to x^32, which undo the zeros that fill the last beat.
//
//   data --> [mask, init] --> [Sum] --> [4:1] --> ... --> [4:1] --u--> ( xor ) --s--> basis --> /x^(Bits/2) --> ... --> /x^32 --> digest
//                              tree of Bits to 32                       ^      |
//                                                                       +-step-+
//
// `Sum` is how many bits are summed up between two registers of the tree's leaves and of the matrices: 8 take two lookup tables one
// after the other, 4 take one, and another cycle in the tree and in each matrix.
//
// A beat in each cycle, messages back to back, no stall. A digest comes so many cycles after its last beat: 17 for 512 bits in sums of 8,
// 23 in sums of 4, 30 for 2048 bits in sums of 4.
`default_nettype none
module crc_wide #(
    // Reflected; this one is CRC32C.
    parameter logic [31:0] Poly = 32'h82f6_3b78,
    // A power of two, from 512.
    parameter int unsigned Bits = 512,
    // 8 or 4.
    parameter int unsigned Sum = 8
) (
    input  wire                clk,
    input  wire                rst,
    // Register before the first byte, and what is combined with it after the last.
    input  wire  [       31:0] init_i,
    input  wire  [       31:0] xor_out_i,
    // A message: beats up to `last_i`. `keep_i` names the words that exist: all but in the last beat, there the lowest,
    // at least one.
    input  wire                valid_i,
    input  wire                last_i,
    input  wire  [Bits/32-1:0] keep_i,
    input  wire  [   Bits-1:0] data_i,
    // One cycle for each message, in their order.
    output logic               digest_valid_o,
    output logic [       31:0] digest_o
);
  import crc_pkg::*;
  localparam int unsigned Words = Bits / 32;
  // Divisions, one for each bit of the count of absent words.
  localparam int unsigned Tails = $clog2(Words);
  // Steps of four to one behind the leaves of the tree, and its cycles with the mask.
  localparam int unsigned Leaves = Bits / Sum;
  localparam int unsigned Steps = ($clog2(Leaves) + 1) / 2;
  localparam int unsigned Tree = Steps + 2;
  // Cycles of a matrix: partial sums of `Sum` columns, at 4 a sum of four of them, then what is left of two or four.
  localparam int unsigned Matrix = Sum == 8 ? 2 : 3;
  localparam matrix_t ToX = frobenius(Poly, $clog2(Bits));
  localparam matrix_t ToY = inverse(ToX);

  // Column i: what bit i of a beat adds to the register, in powers of y.
  function automatic logic [Bits-1:0][31:0] reduction();
    logic [31:0] power;
    power = 32'd1;
    for (int unsigned i = 0; i < Bits; i++) begin
      power = step(power, Poly);
      reduction[Bits-1-i] = apply(ToY, power);
    end
  endfunction
  localparam logic [Bits-1:0][31:0] Reduction = reduction();

  // The mask.
  logic first_in;
  logic [Bits-1:0] d0;
  logic [Tree-1:0] valid, first, last;
  always_ff @(posedge clk) begin
    if (rst) first_in <= 1'b1;
    else if (valid_i) first_in <= last_i;
    valid <= rst ? '0 : {valid[Tree-2:0], valid_i};
    first <= {first[Tree-2:0], first_in};
    last  <= {last[Tree-2:0], last_i};
    // The choice becomes the reset of the registers, which takes no lookup table, and the AND becomes one, which is faster.
    for (int unsigned w = 1; w < Words; w++) begin
      if (Sum == 8) d0[32*w+:32] <= keep_i[w] ? data_i[32*w+:32] : 32'd0;
      else d0[32*w+:32] <= data_i[32*w+:32] & {32{keep_i[w]}};
    end
    d0[31:0] <= (data_i[31:0] & {32{keep_i[0]}}) ^ (first_in ? init_i : 32'd0);
  end

  // The tree.
  logic [Leaves-1:0][31:0] leaves;
  always_ff @(posedge clk) begin
    for (int unsigned g = 0; g < Leaves; g++) begin
      logic [7:0][31:0] t;
      t = '0;
      for (int unsigned b = 0; b < Sum; b++) t[b] = Reduction[Sum*g+b] & {32{d0[Sum*g+b]}};
      leaves[g] <= xor_of(t);
    end
  end
  for (genvar l = 1; l <= Steps; l++) begin : g_tree
    localparam int unsigned Count = (Leaves + 4 ** l - 1) / 4 ** l;
    logic [4*Count-1:0][31:0] below;
    logic [Count-1:0][31:0] u;
    if (l == 1) begin : g_leaves
      assign below = leaves;
    end else begin : g_sums
      assign below = (128 * Count)'(g_tree[l-1].u);
    end
    always_ff @(posedge clk) for (int unsigned g = 0; g < Count; g++) u[g] <= xor_of({128'd0, below[4*g+:4]});
  end

  // The loop.
  logic [31:0] s;
  logic done_s;
  always_ff @(posedge clk) begin
    if (valid[Tree-1]) s <= g_tree[Steps].u[0] ^ (first[Tree-1] ? 32'd0 : step(s, Poly));
    done_s <= valid[Tree-1] && last[Tree-1] && !rst;
  end

  // Which of the divisions a last beat needs. Its upper half lacks at least a word; if the lower one does too, all of the upper half is
  // absent. So each step says one bit of the count of absent words, the highest first, and goes on with the half that lacks some.
  for (genvar k = 1; k <= Tails; k++) begin : g_keep
    localparam int unsigned Half = Words >> k;
    // Cycles from here until the division chooses.
    localparam int unsigned Wait = Tree + Matrix * (k + 1) - k;
    logic [2*Half-1:1] keep;
    logic [Wait-1:0] absent;
    wire taken = absent[Wait-1];
    if (k == 1) begin : g_first
      always_ff @(posedge clk) keep <= keep_i[Words-1:1];
    end else begin : g_next
      always_ff @(posedge clk) keep <= g_keep[k-1].keep[2*Half] ? g_keep[k-1].keep[4*Half-1:2*Half+1] : g_keep[k-1].keep[2*Half-1:1];
    end
    always_ff @(posedge clk) absent <= {absent[Wait-2:0], !keep[Half]};
  end

  // Partial sums of a product with a matrix.
  function automatic logic [32/Sum-1:0][31:0] partial(matrix_t m, logic [31:0] v);
    logic [7:0][31:0] t;
    for (int unsigned p = 0; p < 32 / Sum; p++) begin
      t = '0;
      for (int unsigned b = 0; b < Sum; b++) t[b] = m[Sum*p+b] & {32{v[Sum*p+b]}};
      partial[p] = xor_of(t);
    end
  endfunction

  // The way back: the basis, then the divisions, taken or not.
  localparam int unsigned Back = Matrix * (Tails + 1) + 1;
  logic [Back-1:0] done;
  always_ff @(posedge clk) done <= rst ? '0 : {done[Back-2:0], done_s};
  for (genvar k = 0; k <= Tails; k++) begin : g_back
    localparam matrix_t M = k == 0 ? ToX : back(Poly, Bits >> k);
    logic [31:0] from, to;
    logic [32/Sum-1:0][31:0] parts;
    logic [3:0][31:0] left;
    logic [Matrix-2:0][31:0] kept;
    logic taken;
    if (k == 0) begin : g_basis
      assign from = s;
      assign taken = 1'b1;
    end else begin : g_division
      assign from = g_back[k-1].to;
      assign taken = g_keep[k].taken;
    end
    if (Sum == 8) begin : g_eight
      assign left = parts;
    end else begin : g_four
      always_ff @(posedge clk) begin
        left <= '0;
        left[0] <= xor_of({128'd0, parts[3:0]});
        left[1] <= xor_of({128'd0, parts[7:4]});
      end
    end
    always_ff @(posedge clk) begin
      parts <= partial(M, from);
      kept  <= (32 * (Matrix - 1))'({kept, from});
      to    <= taken ? xor_of({128'd0, left}) : kept[Matrix-2];
    end
  end
  always_ff @(posedge clk) digest_o <= g_back[Tails].to ^ xor_out_i;
  assign digest_valid_o = done[Back-1];
endmodule
`default_nettype wire
