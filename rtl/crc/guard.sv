// The guard of protection information (SBC-4 4.22.4): CRC-16 with the polynomial 8BB7h over logical blocks, beside the CRC32C of the
// same beats.
//
//   data --> [8] --> [4:1] --> [all] --u--> ( xor ) --s--> basis --> guard
//                                             ^      |
//                                             +-step-+
//
// The highest bit of a byte goes first, the register begins with 0, and nothing is combined with it at the end. It is kept in powers
// of y = x^(8 Bytes), as in `crc_wide`: the polynomial has no double factor, so they are a basis too. A logical block is a multiple of
// a beat long, so there are no tails. A beat in each cycle; a guard comes 5 cycles after its last beat.
`default_nettype none
module guard #(
    // Bytes of a beat: 64 or 8.
    parameter int unsigned Bytes = 64
) (
    input  wire                clk,
    input  wire                rst,
    // A block: beats up to `last_i`. Beats of one block may have any pause between them, so it may lie in several segments.
    input  wire                valid_i,
    input  wire                last_i,
    input  wire  [8*Bytes-1:0] data_i,
    // One cycle for each block, in their order.
    output logic               guard_valid_o,
    output logic [       15:0] guard_o
);
  localparam int unsigned Bits = 8 * Bytes;
  // Bit b of a register is the coefficient of x^b. A matrix has a column for each bit.
  localparam logic [15:0] Poly = 16'h8bb7;
  typedef logic [15:0][15:0] matrix_t;

  // Multiplication by x, and by y in powers of y.
  function automatic logic [15:0] step(logic [15:0] r);
    return {r[14:0], 1'b0} ^ (Poly & {16{r[15]}});
  endfunction

  function automatic logic [15:0] apply(matrix_t m, logic [15:0] v);
    logic [15:0] sum;
    sum = 16'd0;
    for (int unsigned b = 0; b < 16; b++) sum = sum ^ (m[b] & {16{v[b]}});
    return sum;
  endfunction

  // Column b is y^b in powers of x.
  function automatic matrix_t to_x();
    matrix_t m;
    logic [15:0] power;
    power = 16'd1;
    for (int unsigned b = 0; b < 16; b++) begin
      m[b] = power;
      for (int unsigned i = 0; i < Bits; i++) power = step(power);
    end
    return m;
  endfunction
  localparam matrix_t ToX = to_x();

  // The function of `crc_pkg` is for 32 bits; the upper half stays as it is.
  function automatic matrix_t inverse(matrix_t m);
    crc_pkg::matrix_t wide;
    for (int unsigned b = 0; b < 32; b++) wide[b] = b < 16 ? {16'd0, m[b]} : 32'd1 << b;
    wide = crc_pkg::inverse(wide);
    for (int unsigned b = 0; b < 16; b++) inverse[b] = wide[b][15:0];
  endfunction

  // Column i: what bit i of a beat adds to the register, in powers of y. The last bit of the stream is bit 0 of the last byte.
  function automatic logic [Bits-1:0][15:0] reduction();
    matrix_t to_y;
    logic [15:0] power;
    to_y  = inverse(ToX);
    power = Poly;
    for (int unsigned i = 0; i < Bits; i++) begin
      reduction[8*(Bytes-1-i/8)+i%8] = apply(to_y, power);
      power = step(power);
    end
  endfunction
  localparam logic [Bits-1:0][15:0] Reduction = reduction();

  logic [Bytes-1:0][15:0] leaf;
  logic [Bytes/4-1:0][15:0] quarter;
  logic [15:0] u;
  for (genvar g = 0; g < Bytes; g++) begin : g_leaf
    logic [7:0][15:0] t;
    for (genvar b = 0; b < 8; b++) begin : g_bit
      assign t[b] = Reduction[8*g+b] & {16{data_i[8*g+b]}};
    end
    always_ff @(posedge clk) leaf[g] <= ((t[0] ^ t[1]) ^ (t[2] ^ t[3])) ^ ((t[4] ^ t[5]) ^ (t[6] ^ t[7]));
  end
  function automatic logic [15:0] sum(logic [Bytes/4-1:0][15:0] parts);
    sum = 16'd0;
    for (int unsigned i = 0; i < Bytes / 4; i++) sum = sum ^ parts[i];
  endfunction
  always_ff @(posedge clk) begin
    for (int unsigned i = 0; i < Bytes / 4; i++)
      quarter[i] <= (leaf[4*i] ^ leaf[4*i+1]) ^ (leaf[4*i+2] ^ leaf[4*i+3]);
    u <= sum(quarter);
  end

  logic first_in;
  logic [2:0] valid, first, last;
  logic [15:0] s;
  logic done;
  always_ff @(posedge clk) begin
    if (rst) first_in <= 1'b1;
    else if (valid_i) first_in <= last_i;
    valid <= rst ? 3'd0 : {valid[1:0], valid_i};
    first <= {first[1:0], first_in};
    last <= {last[1:0], last_i};
    if (valid[2]) s <= u ^ (first[2] ? 16'd0 : step(s));
    done <= valid[2] && last[2] && !rst;
    guard_valid_o <= done && !rst;
    guard_o <= apply(ToX, s);
  end
endmodule
`default_nettype wire
