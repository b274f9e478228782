// Holds segments of one kind (headers, or data) on their way out, while the CRC unit digests them.
//
//   beats --+--> [ queue ] --------> [ next beat ] --+--> beat, and with the last one of a segment its digest
//           +--> CRC unit --> [ digests ] -----------+
//
// The digest is of the bytes that travel: both take the same beat in the same cycle.
`default_nettype none
module tx_segment #(
    parameter int unsigned Bytes = 64,
    parameter int unsigned Beats = 32,
    // Segments that are in it, at most. Nothing here counts them: the credits of the PDUs do.
    parameter int unsigned Segments = 16
) (
    input  wire                      clk,
    // Power-up, and a restart: what is inside is dropped.
    input  wire                      clear,
    // Constant between two restarts: segments of this kind have a digest.
    input  wire                      digest_i,
    // The lowest `words_i` words exist: all but in the last beat, there at least one. What lies above is zero.
    input  wire                      valid_i,
    output logic                     ready_o,
    input  wire                      last_i,
    input  wire  [$clog2(Bytes)-2:0] words_i,
    input  wire  [  8*Bytes-1:0]     data_i,
    // The CRC unit takes this beat as well, if segments have a digest; and it has one.
    output logic                     crc_valid_o,
    input  wire                      crc_ready_i,
    input  wire                      crc_digest_valid_i,
    input  wire  [             31:0] crc_digest_i,
    output logic                     valid_o,
    input  wire                      ready_i,
    output logic                     last_o,
    output logic [$clog2(Bytes)-2:0] words_o,
    output logic [  8*Bytes-1:0]     data_o,
    // With the last beat.
    output logic [             31:0] digest_o
);
  localparam int unsigned Words = Bytes / 4;
  localparam int unsigned Count = $clog2(Beats + 2);
  typedef struct packed {
    logic last;
    logic [$clog2(Bytes)-2:0] words;
    logic [8*Bytes-1:0] data;
  } beat_t;

  logic [Count-1:0] stored;
  beat_t in, next;
  logic next_valid, digest_known, unused_credit;
  assign in.last  = last_i;
  assign in.words = words_i;
  assign in.data  = data_i;
  // A register that knows of a beat two cycles later: the queue's own registers have room for it.
  logic room;
  assign crc_valid_o = valid_i && room && digest_i;
  assign ready_o = room && (!digest_i || crc_ready_i);
  wire accept = valid_i && ready_o;

  assign valid_o = next_valid && (!digest_i || !next.last || digest_known);
  assign last_o  = next.last;
  assign words_o = next.words;
  assign data_o  = next.data;
  wire leaves = valid_o && ready_i;
  always_ff @(posedge clk) begin
    if (clear) stored <= '0;
    else if (accept != leaves) stored <= stored + {{Count - 1{leaves}}, 1'b1};
    room <= clear || stored < Count'(Beats);
  end

  front_fifo #(
      .Width($bits(beat_t)),
      .Depth(Beats),
      .Block(1'b1)
  ) beats (
      .clk,
      .rst(clear),
      .push_i(accept),
      .data_i(in),
      .valid_o(next_valid),
      .data_o(next),
      .pop_i(leaves)
  );
  credit_fifo #(
      .Depth(Segments)
  ) digests (
      .clk,
      .rst(clear),
      .push_i(crc_digest_valid_i),
      .data_i(crc_digest_i),
      .credit_o(unused_credit),
      .valid_o(digest_known),
      .data_o(digest_o),
      .pop_i(leaves && next.last && digest_i)
  );
`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!clear) begin
      assert (!accept || (words_i != '0 && 32'(words_i) <= Words && (last_i || 32'(words_i) == Words)))
      else $error("tx_segment: a beat with a wrong number of words");
    end
  end
`endif
endmodule
`default_nettype wire
