// Joins segments of any number of words to a stream of whole beats.
//
//   words, data --> [to_lanes: to the lane behind the last word] --> [ ring: 16 rows of a lane for each word ]
//                                                                                     |
//                                                    count, data <-- [ beat ] <--row--+
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

  logic [Lane+3:0] at;
  logic arrives, under_way;
  logic [W-1:0] arrived;
  logic [Words-1:0] write;
  logic [Words-1:0][3:0] write_row;
  logic [Words-1:0][31:0] write_data;
  to_lanes #(
      .Lanes(Words),
      .Width(32),
      .Note(W)
  ) in (
      .clk,
      .rst,
      .valid_i(accept),
      .at_i(at),
      .count_i(words_i),
      .note_i(words_i),
      .data_i,
      .valid_o(arrives),
      .note_o(arrived),
      .write_o(write),
      .row_o(write_row),
      .data_o(write_data),
      .under_way_o(under_way)
  );

  logic [3:0] row;
  for (genvar i = 0; i < Words; i++) begin : g_lane
    logic [31:0] ram[16];
    always_ff @(posedge clk) begin
      if (write[i]) ram[write_row[i]] <= write_data[i];
      if (load) data_o[32*i+:32] <= ram[row];
    end
  end

  always_ff @(posedge clk) begin
    if (load) count_o <= {give, 2'b00};
    valid_o <= !rst && (load || (valid_o && !ready_i));
    flush <= !rst && !flush && !valid_i && !under_way && have != '0 && !full && (!valid_o || ready_i);
    if (rst) begin
      held <= '0;
      have <= '0;
      at   <= '0;
      row  <= '0;
    end else begin
      held <= held + (accept ? Held'(words_i) : '0) - (load ? Held'(give) : '0);
      have <= have + (arrives ? Held'(arrived) : '0) - (load ? Held'(give) : '0);
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
