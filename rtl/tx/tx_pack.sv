// Joins segments of any number of words to a stream of whole beats.
//
//   words, data --> [ rotate to the lane behind the last word: 1 or 2 stages ] --> [ ring: 16 rows of a lane for each word ]
//                                                                                              |
//                                                             count, data <-- [ beat ] <--row--+
//
// A beat leaves whole, or with all that is left; so each begins at lane 0, and nothing is shifted on the way out. A beat that is not full leaves
// only when nothing follows at once. A beat that waits stays as it is.
`default_nettype none
module tx_pack #(
    // Bytes of a beat: 64 or 8.
    parameter int unsigned Bytes = 64
) (
    input  wire                      clk,
    input  wire                      rst,
    input  wire                      valid_i,
    output logic                     ready_o,
    // The lowest `words_i` words exist, at least one.
    input  wire  [$clog2(Bytes)-2:0] words_i,
    input  wire  [  8*Bytes-1:0]     data_i,
    output logic                     valid_o,
    input  wire                      ready_i,
    // The lowest `count_o` bytes exist; those above mean nothing.
    output logic [$clog2(Bytes):0]   count_o,
    output logic [  8*Bytes-1:0]     data_o,
    // No word is left.
    output logic                     empty_o
);
  localparam int unsigned Words = Bytes / 4;
  localparam int unsigned W = $clog2(Bytes) - 1;
  localparam int unsigned Lane = W - 1;
  localparam int unsigned Stages = (Lane + 1) / 2;
  localparam int unsigned Held = Lane + 5;

  // The words that were accepted and have not left, and those of them that are in the ring. A quarter of the ring is for those between.
  logic [Held-1:0] held, have;
  // What is left, less than a beat, leaves in this cycle. It was decided in the cycle before, when nothing came and nothing was on its way.
  logic flush;
  assign ready_o = !flush && held < Held'(12 * Words);
  wire accept = valid_i && ready_o;
  wire full = have >= Held'(Words);
  wire load = flush || ((!valid_o || ready_i) && full);
  wire [W-1:0] give = flush ? W'(have) : W'(Words);
  assign empty_o = held == '0 && !valid_o;

  // In: each word to its lane. Its row is that of the first word, or the next for lanes below that of the first.
  logic [Lane+3:0] at;
  logic [Stages:0] in_valid;
  logic [Stages:0][Lane-1:0] in_lane;
  logic [Stages:0][3:0] in_row;
  logic [Stages:0][W-1:0] in_words;
  logic [Stages:0][Words-1:0] in_keep;
  logic [Stages:0][Words-1:0][31:0] in_data;
  always_ff @(posedge clk) begin
    in_valid[0] <= accept && !rst;
    {in_row[0], in_lane[0]} <= at;
    in_words[0] <= words_i;
    for (int unsigned i = 0; i < Words; i++) in_keep[0][i] <= i < 32'(words_i);
    in_data[0] <= data_i;
  end
  for (genvar s = 0; s < Stages; s++) begin : g_in
    wire [1:0] by = 2'(in_lane[s] >> (2 * s));
    always_ff @(posedge clk) begin
      in_valid[s+1] <= in_valid[s] && !rst;
      {in_row[s+1], in_lane[s+1], in_words[s+1]} <= {in_row[s], in_lane[s], in_words[s]};
      for (int unsigned i = 0; i < Words; i++) begin
        in_keep[s+1][i] <= in_keep[s][Lane'(i-32'(by)*4**s)];
        in_data[s+1][i] <= in_data[s][Lane'(i-32'(by)*4**s)];
      end
    end
  end

  logic [3:0] row;
  for (genvar i = 0; i < Words; i++) begin : g_lane
    logic [31:0] ram[16];
    wire [3:0] write_row = in_row[Stages] + 4'(i < 32'(in_lane[Stages]));
    always_ff @(posedge clk) begin
      if (in_valid[Stages] && in_keep[Stages][i]) ram[write_row] <= in_data[Stages][i];
      if (load) data_o[32*i+:32] <= ram[row];
    end
  end

  always_ff @(posedge clk) begin
    if (load) count_o <= {give, 2'b00};
    valid_o <= !rst && (load || (valid_o && !ready_i));
    flush <= !rst && !flush && !valid_i && in_valid == '0 && have != '0 && !full && (!valid_o || ready_i);
    if (rst) begin
      held <= '0;
      have <= '0;
      at   <= '0;
      row  <= '0;
    end else begin
      held <= held + (accept ? Held'(words_i) : '0) - (load ? Held'(give) : '0);
      have <= have + (in_valid[Stages] ? Held'(in_words[Stages]) : '0) - (load ? Held'(give) : '0);
      if (accept) at <= at + (Lane + 4)'(words_i);
      else if (flush) at <= {at[Lane+3:Lane] + 4'd1, Lane'(0)};
      if (load) row <= row + 4'd1;
    end
  end
`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert (32'(held) <= 13 * Words && have <= held)
      else $error("tx_pack: more words than the ring holds");
      assert (!accept || (words_i != '0 && 32'(words_i) <= Words))
      else $error("tx_pack: a segment with no words, or too many");
    end
  end
`endif
endmodule
`default_nettype wire
