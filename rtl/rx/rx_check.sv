// Compares the digests of one kind of segment, in their order: a computed one against the one from the stream.
//
//   computed --> [ queue ] --+--> equal? --> [ queue ] --> good
//   received --> [ queue ] --+                    (the oldest result in registers)
//
// Either can come first: the CRC unit needs 17 cycles, and the stream can pause between a segment and its digest. All queues have a slot
// for each PDU that may be under way, so nothing asks them for room.
`default_nettype none
module rx_check #(
    parameter int unsigned Depth = 32
) (
    input  wire         clk,
    // Power-up and restart: what is under way is dropped.
    input  wire         clear,
    // The digest of the next segment, computed.
    input  wire         computed_valid_i,
    input  wire  [31:0] computed_i,
    // Its digest from the stream.
    input  wire         digest_valid_i,
    input  wire  [31:0] digest_i,
    // Whether the oldest segment's digest matches.
    output logic        valid_o,
    output logic        good_o,
    input  wire         pop_i
);
  logic computed_valid, received_valid;
  logic [31:0] computed, received;
  // The packet controller counts for these queues, by the credits of its PDUs.
  logic unused_computed_credit, unused_received_credit;
  wire compare = computed_valid && received_valid;
  // In two cycles: of four bits each, and of all.
  logic compares, compared, equal;
  logic [7:0] same;
  always_ff @(posedge clk) begin
    compares <= compare && !clear;
    compared <= compares && !clear;
    for (int unsigned i = 0; i < 8; i++) same[i] <= computed[4*i+:4] == received[4*i+:4];
    equal <= &same;
  end
  credit_fifo #(
      .Depth(Depth)
  ) computed_queue (
      .clk,
      .rst(clear),
      .push_i(computed_valid_i),
      .data_i(computed_i),
      .credit_o(unused_computed_credit),
      .valid_o(computed_valid),
      .data_o(computed),
      .pop_i(compare)
  );
  credit_fifo #(
      .Depth(Depth)
  ) received_queue (
      .clk,
      .rst(clear),
      .push_i(digest_valid_i),
      .data_i(digest_i),
      .credit_o(unused_received_credit),
      .valid_o(received_valid),
      .data_o(received),
      .pop_i(compare)
  );
  front_fifo #(
      .Width(1),
      .Depth(Depth)
  ) result_queue (
      .clk,
      .rst(clear),
      .push_i(compared),
      .data_i(equal),
      .valid_o,
      .data_o(good_o),
      .pop_i
  );
endmodule
`default_nettype wire
