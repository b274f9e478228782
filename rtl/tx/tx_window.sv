// Realigns the byte stream: beats with any number of bytes come in, whole words go out, as many as are taken.
//
//   count, data --> [mask] --<< bytes--> ( or ) --> [ window: 3 beats ] --first beat--> data
//                                          ^              |
//                                          +-->> words taken
//
// What leaves are words, so only the way in needs shifts by bytes; the way out has shifts by words.
// Bytes of the window that are not filled are zero.
`default_nettype none
module tx_window #(
    // Bytes of a beat: a multiple of 4.
    parameter int unsigned Bytes = 64
) (
    input  wire                        clk,
    input  wire                        rst,
    input  wire                        valid_i,
    output logic                       ready_o,
    // The lowest `count_i` bytes exist, 1 to `Bytes`; they are the next of the stream.
    input  wire  [  $clog2(Bytes):0]   count_i,
    input  wire  [    8*Bytes-1:0]     data_i,
    // How many whole words there are, up to three beats; `data_o` is the first beat of them.
    output logic [$clog2(Bytes)-1:0]   words_o,
    output logic [    8*Bytes-1:0]     data_o,
    // At most a beat, at most `words_o`.
    input  wire  [$clog2(Bytes)-2:0]   take_i
);
  localparam int unsigned Size = 3 * Bytes;
  localparam int unsigned Have = $clog2(Bytes) + 2;

  logic [8*Size-1:0] window;
  logic [Have-1:0] have;
  assign ready_o = have <= Have'(2 * Bytes);
  assign words_o = have[Have-1:2];
  assign data_o  = window[8*Bytes-1:0];

  wire accept = valid_i && ready_o;
  wire [Have-1:0] left = have - {1'b0, take_i, 2'b00};
  logic [8*Bytes-1:0] masked;
  always_comb begin
    for (int unsigned i = 0; i < Bytes; i++)
      masked[8*i+:8] = data_i[8*i+:8] & {8{accept && i < 32'(count_i)}};
  end
  always_ff @(posedge clk) begin
    window <= rst ? '0 : (window >> {take_i, 5'd0}) | ({{16 * Bytes{1'b0}}, masked} << {left, 3'd0});
    if (rst) have <= '0;
    else have <= left + (accept ? Have'(count_i) : '0);
  end
`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert (have <= Have'(Size))
      else $error("tx_window: more bytes than the window holds");
      assert (32'(take_i) <= 32'(words_o) && 32'(take_i) <= Bytes / 4)
      else $error("tx_window: words are taken that are not there");
      assert (!accept || (count_i != '0 && 32'(count_i) <= Bytes))
      else $error("tx_window: a beat with no bytes, or too many");
    end
  end
`endif
endmodule
`default_nettype wire
