// Joins segments of any number of words to a stream of whole beats.
//
//   words, data --rotated to the lane behind the last word--> [ ring: 3 rows of a lane for each word ] --row--> [ beat ] --> count, data
//
// A beat leaves whole, or with all that is left; so each begins at lane 0, and nothing is shifted on the way out. A beat that is not full leaves
// only when nothing follows at once. A beat that waits stays as it is.
`default_nettype none
module tx_pack #(
    // Bytes of a beat: a multiple of 4.
    parameter int unsigned Bytes = 64
) (
    input  wire                      clk,
    input  wire                      rst,
    input  wire                      valid_i,
    output logic                     ready_o,
    // The lowest `words_i` words exist, at least one; what lies above them is zero.
    input  wire  [$clog2(Bytes)-2:0] words_i,
    input  wire  [  8*Bytes-1:0]     data_i,
    output logic                     valid_o,
    input  wire                      ready_i,
    // The lowest `count_o` bytes exist.
    output logic [$clog2(Bytes):0]   count_o,
    output logic [  8*Bytes-1:0]     data_o,
    // No word is left.
    output logic                     empty_o
);
  localparam int unsigned Words = Bytes / 4;
  localparam int unsigned Have = $clog2(Bytes);
  localparam int unsigned Lane = $clog2(Words);
  logic [2:0][Words-1:0][31:0] rows;
  // The row that leaves next, and those behind it; the words from there on.
  logic [1:0] first, second, third;
  logic [Have-1:0] have;
  assign second  = first == 2'd2 ? 2'd0 : first + 2'd1;
  assign third   = second == 2'd2 ? 2'd0 : second + 2'd1;
  assign empty_o = have == '0 && !valid_o;
  assign ready_o = have <= Have'(2 * Words);
  wire accept = valid_i && ready_o;
  wire full = have >= Have'(Words);
  wire load = (!valid_o || ready_i) && (full || (!valid_i && have != '0));
  wire [Have-1:0] give = full ? Have'(Words) : have;
  wire [Have-1:0] taken = load ? give : '0;
  // Where the next word goes: nothing is taken while more than two rows of words wait, so there are three at most.
  wire [Lane-1:0] lane = have[Lane-1:0];
  wire [1:0] row = have[Have-1:Lane] == '0 ? first : have[Have-1:Lane] == 2'd1 ? second : third;
  wire [1:0] after = row == 2'd2 ? 2'd0 : row + 2'd1;
  always_ff @(posedge clk) begin
    for (int unsigned j = 0; j < Words; j++) begin
      // The word that goes to lane j.
      automatic logic [Lane-1:0] from = Lane'(j) - lane;
      if (accept && {1'b0, from} < words_i) rows[Lane'(j)<lane?after : row][j] <= data_i[32*from+:32];
    end
    have <= rst ? '0 : have - taken + (accept ? Have'(words_i) : '0);
    if (rst) first <= '0;
    else if (load && full) first <= second;
    if (load) begin
      for (int unsigned j = 0; j < Words; j++) data_o[32*j+:32] <= rows[first][j] & {32{j < 32'(give)}};
      count_o <= {give[Have-2:0], 2'b00};
    end
    valid_o <= !rst && (load || (valid_o && !ready_i));
  end
`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert (32'(have) <= 3 * Words)
      else $error("tx_pack: more words than the window holds");
      assert (!accept || (words_i != '0 && 32'(words_i) <= Words))
      else $error("tx_pack: a segment with no words, or too many");
    end
  end
`endif
endmodule
`default_nettype wire
