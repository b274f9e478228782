// Realigns the byte stream: beats with any number of bytes come in, whole words go out, from any word on.
//
//   count, data --> [to_lanes: bytes, in 2 or 3 stages] --------------> [ lanes: a ring of 16 beats in RAM ] -+
//                                                                                                        |    |
//       take --> [ rows ] -----------------------------------> [ rotate to the head: words, 1 or 2 stages ]    |
//       peek_at -----------------------------------------------------> [ one word ] <-----------------------+--+
//
// A byte of the stream has one lane for good, by its position, so only rotations are needed, and no shift depends on what is taken in
// the same cycle. PDUs are a multiple of four bytes long (RFC 7143 11.1), so what is taken are words.
`default_nettype none
module stream_window #(
    // Bytes of a beat: 64 or 8.
    parameter int unsigned Bytes = 64
) (
    input  wire                      clk,
    input  wire                      rst,
    input  wire                      valid_i,
    output logic                     ready_o,
    // The lowest `count_i` bytes exist, 1 to `Bytes`; they are the next of the stream.
    input  wire  [$clog2(Bytes):0]   count_i,
    input  wire  [  8*Bytes-1:0]     data_i,
    // So many words more can be taken and peeked at from the next cycle on.
    output logic [$clog2(Bytes)-2:0] arrived_o,
    // At most a beat, of what has arrived. The beat that begins with the first of them is there `2 + ($clog2(Bytes) - 1) / 2` cycles later;
    // its words above `take_i` mean nothing.
    input  wire  [$clog2(Bytes)-2:0] take_i,
    output logic [  8*Bytes-1:0]     data_o,
    // A word that has arrived and was not taken, by its position in the ring; it is there two cycles later.
    input  wire  [$clog2(Bytes)+1:0] peek_at_i,
    output logic [             31:0] peek_o
);
  localparam int unsigned Words = Bytes / 4;
  localparam int unsigned Rows = 16;
  localparam int unsigned L = $clog2(Bytes);
  localparam int unsigned Lane = L - 2;
  localparam int unsigned OutStages = (Lane + 1) / 2;
  localparam int unsigned Held = L + 5;

  // What was accepted and not yet taken, with two cycles of delay in the latter. Two rows stay free: one that a beat may begin to fill, and
  // one that is being read. `ready_o` is a register: a beat that is accepted in the cycle before counts as a whole one.
  logic [Held-1:0] held;
  logic [L-2:0] taking, taken;
  wire accept = valid_i && ready_o;
  logic [L+3:0] in_at;
  always_ff @(posedge clk) begin
    ready_o <= rst || held <= ((accept && !taken[L-2]) ? Held'(12 * Bytes) : Held'(13 * Bytes));
    taking <= rst ? '0 : take_i;
    taken <= rst ? '0 : taking;
    if (rst) begin
      held  <= '0;
      in_at <= '0;
    end else begin
      held <= held + (accept ? Held'(count_i) : '0) - {{Held - L - 1{1'b0}}, taken, 2'b00};
      if (accept) in_at <= in_at + (L + 4)'(count_i);
    end
  end

  logic arrives, unused_under_way;
  logic [L-2:0] in_words, arrived;
  assign in_words = (L - 1)'(((L + 1)'(in_at[1:0]) + count_i) >> 2);
  logic [Bytes-1:0] write;
  logic [Bytes-1:0][3:0] write_row;
  logic [Bytes-1:0][7:0] write_data;
  to_lanes #(
      .Lanes(Bytes),
      .Width(8),
      .Note(L - 1)
  ) in (
      .clk,
      .rst,
      .valid_i(accept),
      .at_i(in_at),
      .count_i,
      .note_i(in_words),
      .data_i,
      .valid_o(arrives),
      .note_o(arrived),
      .write_o(write),
      .row_o(write_row),
      .data_o(write_data),
      .under_way_o(unused_under_way)
  );
  assign arrived_o = arrives ? arrived : '0;

  // The ring, and both ways out of it.
  localparam int unsigned Groups = (Words + 3) / 4;
  logic [L+1:0] head;
  always_ff @(posedge clk) head <= rst ? '0 : head + (L + 2)'(take_i);
  logic [Lane-1:0] head_lane;
  // The row of each word: that of the head, or the next below its lane.
  logic [Words-1:0][3:0] rows;
  always_ff @(posedge clk) begin
    head_lane <= head[Lane-1:0];
    for (int unsigned i = 0; i < Words; i++) rows[i] <= head[L+1:Lane] + {3'd0, i < 32'(head[Lane-1:0])};
  end
  wire [Lane-1:0] peek_lane = peek_at_i[Lane-1:0];
  logic [Words-1:0][31:0] peeked;
  logic [OutStages:0][Words-1:0][31:0] out;
  logic [OutStages-1:0][Lane-1:0] out_lane;
  for (genvar b = 0; b < Bytes; b++) begin : g_lane
    logic [7:0] ram[Rows];
    always_ff @(posedge clk) begin
      if (write[b]) ram[write_row[b]] <= write_data[b];
      out[0][b/4][8*(b%4)+:8] <= ram[rows[b/4]];
    end
    assign peeked[b/4][8*(b%4)+:8] = ram[peek_at_i[L+1:Lane]];
  end
  always_ff @(posedge clk) out_lane[0] <= head_lane;
  for (genvar s = 0; s < OutStages; s++) begin : g_out
    wire [1:0] by = 2'(out_lane[s] >> (2 * s));
    if (s + 1 < OutStages) begin : g_more
      always_ff @(posedge clk) out_lane[s+1] <= out_lane[s];
    end
    always_ff @(posedge clk) begin
      for (int unsigned i = 0; i < Words; i++) out[s+1][i] <= out[s][Lane'(i+32'(by)*4**s)];
    end
  end
  assign data_o = out[OutStages];

  logic [Groups-1:0][31:0] group;
  logic [Lane-1:0] group_lane;
  always_ff @(posedge clk) begin
    for (int unsigned g = 0; g < Groups; g++) group[g] <= peeked[Lane'(4*g+32'(peek_lane)%4)];
    group_lane <= peek_lane;
    peek_o <= group[32'(group_lane)/4];
  end
`ifndef SYNTHESIS
  logic [Held-1:0] here;
  always_ff @(posedge clk) begin
    here <= rst ? '0 : here + Held'(arrived_o) - Held'(take_i);
    if (!rst) begin
      assert (held <= Held'(14 * Bytes))
      else $error("stream_window: more bytes than the window holds");
      assert (Held'(take_i) <= here && 32'(take_i) <= Words)
      else $error("stream_window: words are taken that are not there");
      assert (!accept || (count_i != '0 && 32'(count_i) <= Bytes))
      else $error("stream_window: a beat with no bytes, or too many");
    end
  end
`endif
endmodule
`default_nettype wire
