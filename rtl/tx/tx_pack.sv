// Joins segments of any number of words to a stream of whole beats.
//
//   words, data --<< words--> ( or ) --> [ window: 3 beats ] --> [ beat ] --> count, data
//
// A beat that is not full leaves only when nothing follows at once. A beat that waits stays as it is.
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
  logic [24*Bytes-1:0] window;
  logic [Have-1:0] have;
  assign empty_o = have == '0 && !valid_o;
  assign ready_o = have <= Have'(2 * Words);
  wire accept = valid_i && ready_o;
  wire full = have >= Have'(Words);
  wire load = (!valid_o || ready_i) && (full || (!valid_i && have != '0));
  wire [Have-1:0] give = full ? Have'(Words) : have;
  wire [Have-1:0] taken = load ? give : '0;
  wire [Have-1:0] left = have - taken;
  wire [24*Bytes-1:0] kept = !load ? window : full ? {{8 * Bytes{1'b0}}, window[24*Bytes-1:8*Bytes]} : '0;
  always_ff @(posedge clk) begin
    window <= rst ? '0 : kept | ({{16 * Bytes{1'b0}}, accept ? data_i : '0} << {left, 5'd0});
    have   <= rst ? '0 : left + (accept ? Have'(words_i) : '0);
    if (load) begin
      data_o  <= window[8*Bytes-1:0];
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
      assert (window >> {have, 5'd0} == '0)
      else $error("tx_pack: something lies above the words");
    end
  end
`endif
endmodule
`default_nettype wire
