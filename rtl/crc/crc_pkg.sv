// What SET_POLY exchanges, and constants of CRCs with a polynomial that is known when the circuit is made.
//
// A register is a polynomial over GF(2): bit b is the coefficient of x^(31 - b). A matrix has a column for each bit: column b is
// what bit b becomes. The functions run at elaboration only.
package crc_pkg;
  // What SET_POLY exchanges: the polynomial, reflected; the register before the first byte; what the register is combined with after the last.
  typedef struct packed {
    logic [31:0] poly;
    logic [31:0] init;
    logic [31:0] xor_out;
  } polynomial_t;

  // Tables of `crc_unit`, each for `index` bits of a beat, which the tables cover from its last bit on.
  function automatic int unsigned tables(int unsigned index);
    return (64 + index - 1) / index;
  endfunction

  // Chains of `crc_loader`: so many that it takes less than 140 cycles.
  function automatic int unsigned chains(int unsigned index);
    return 2 ** index / 8;
  endfunction

  // Tables of a chain, at most.
  function automatic int unsigned tables_of_chain(int unsigned index);
    return (tables(index) + chains(index) - 1) / chains(index);
  endfunction

  // The chain that writes table p.
  function automatic int unsigned chain(int unsigned index, int unsigned p);
    return (tables(index) - 1 - p) / tables_of_chain(index);
  endfunction

  typedef logic [31:0][31:0] matrix_t;

  // As a tree, so that a sum of two, four or eight is no deeper than it must be.
  function automatic logic [31:0] xor_of(logic [7:0][31:0] t);
    return ((t[0] ^ t[1]) ^ (t[2] ^ t[3])) ^ ((t[4] ^ t[5]) ^ (t[6] ^ t[7]));
  endfunction

  // Multiplication by x.
  function automatic logic [31:0] step(logic [31:0] r, logic [31:0] poly);
    return {1'b0, r[31:1]} ^ (poly & {32{r[0]}});
  endfunction

  // Division by x.
  function automatic logic [31:0] unstep(logic [31:0] r, logic [31:0] poly);
    logic [31:0] sum;
    sum = r ^ (poly & {32{r[31]}});
    return {sum[30:0], sum[31] ^ r[31]};
  endfunction

  function automatic logic [31:0] apply(matrix_t m, logic [31:0] v);
    logic [31:0] sum;
    sum = 32'd0;
    for (int unsigned b = 0; b < 32; b++) sum = sum ^ (m[b] & {32{v[b]}});
    return sum;
  endfunction

  // The square of a polynomial: linear over GF(2), so a matrix. Column b is x^(62 - 2 b).
  function automatic matrix_t square(logic [31:0] poly);
    matrix_t m;
    logic [31:0] power;
    power = 32'h8000_0000;
    for (int unsigned b = 0; b < 32; b++) begin
      m[31-b] = power;
      power   = step(step(power, poly), poly);
    end
    return m;
  endfunction

  // v to the power 2^k, as a matrix.
  function automatic matrix_t frobenius(logic [31:0] poly, int unsigned k);
    matrix_t m, f;
    f = square(poly);
    for (int unsigned b = 0; b < 32; b++) m[b] = 32'd1 << b;
    for (int unsigned i = 0; i < k; i++) for (int unsigned b = 0; b < 32; b++) m[b] = apply(f, m[b]);
    return m;
  endfunction

  // The inverse, by elimination on columns.
  function automatic matrix_t inverse(matrix_t matrix);
    matrix_t m, i;
    logic [31:0] swap;
    m = matrix;
    for (int unsigned b = 0; b < 32; b++) i[b] = 32'd1 << b;
    for (int unsigned row = 0; row < 32; row++) begin
      for (int unsigned c = row; c < 32; c++) begin
        if (m[c][row] && !m[row][row]) begin
          swap = m[c]; m[c] = m[row]; m[row] = swap;
          swap = i[c]; i[c] = i[row]; i[row] = swap;
        end
      end
      for (int unsigned c = 0; c < 32; c++) begin
        if (c != row && m[c][row]) begin
          m[c] = m[c] ^ m[row];
          i[c] = i[c] ^ i[row];
        end
      end
    end
    return i;
  endfunction

  // Division by x^n, as a matrix.
  function automatic matrix_t back(logic [31:0] poly, int unsigned n);
    matrix_t m;
    for (int unsigned b = 0; b < 32; b++) begin
      m[b] = 32'd1 << b;
      for (int unsigned i = 0; i < n; i++) m[b] = unstep(m[b], poly);
    end
    return m;
  endfunction
endpackage
