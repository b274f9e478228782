// The Tx buffer controller: headers and data with their digests, joined to a byte stream.
//
//   headers --> [tx_segment] <--+
//                               +--> [crc_pair]
//   data -----> [tx_segment] <--+
//
//   both -----> beats, digests --+
//   PDUs -----> [ queue ] -------+--> [tx_pack] --> stream
//
//       no digest, or it fits into the last beat         the same
//              +-------------------+              +-------------------+
//              |                   v              |                   v
//     --> HEADER --> HEADER_DIGEST --> (data?) --> DATA --> DATA_DIGEST --> HEADER
//                                       +---- no ----------------------------^
//
// A PDU leaves when all of it is here: a fault of host memory can still take it back (`pdu_drop_i`), and then its beats are thrown away. So
// no PDU stops in the middle because its data does not come.
`default_nettype none
module tx_buffer #(
    parameter int unsigned Bytes = 64,
    // Largest data segment.
    parameter int unsigned BufferBytes = 65536,
    // PDUs that are in the buffer, at most.
    parameter int unsigned Pdus = 16,
    parameter logic [31:0] Poly = 32'h82f6_3b78
) (
    input  wire                      clk,
    input  wire                      rst,
    input  wire                      restart_i,
    // The CRC units, while no PDU is in the buffer: see beat_crc.
    input  wire                      set_i,
    input  crc_pkg::polynomial_t     poly_i,
    // Constant between two restarts.
    input  wire                      header_digest_i,
    input  wire                      data_digest_i,
    // BHS and AHS.
    input  wire                      header_valid_i,
    output logic                     header_ready_o,
    input  wire                      header_last_i,
    input  wire  [$clog2(Bytes)-2:0] header_words_i,
    input  wire  [  8*Bytes-1:0]     header_data_i,
    // Data with its padding.
    input  wire                      data_valid_i,
    output logic                     data_ready_o,
    input  wire                      data_last_i,
    input  wire  [$clog2(Bytes)-2:0] data_words_i,
    input  wire  [  8*Bytes-1:0]     data_data_i,
    // A PDU is complete: all its data was taken. In the order of the PDUs; needs a credit.
    input  wire                      pdu_valid_i,
    input  wire                      pdu_has_data_i,
    input  wire                      pdu_drop_i,
    // A PDU has left, one cycle for each.
    output logic                     credit_o,
    // The stream.
    output logic                     valid_o,
    input  wire                      ready_i,
    output logic [$clog2(Bytes):0]   count_o,
    output logic [  8*Bytes-1:0]     data_o,
    // No byte of a PDU that has left here is still on its way.
    output logic                     empty_o
);
  localparam int unsigned Words = Bytes / 4;
  localparam int unsigned W = $clog2(Bytes) - 1;
  typedef enum logic [1:0] {
    HEADER,
    HEADER_DIGEST,
    DATA,
    DATA_DIGEST
  } state_t;
  wire clear = rst || restart_i;
  state_t state;

  logic header_valid, header_go, header_last, data_valid, data_go, data_last;
  logic [W-1:0] header_words, data_words;
  logic [8*Bytes-1:0] header_beat, data_beat;
  logic [31:0] header_digest, data_digest;
  logic [Words-1:0] header_keep, data_keep;
  always_comb
    for (int unsigned i = 0; i < Words; i++) begin
      header_keep[i] = i < 32'(header_words_i);
      data_keep[i] = i < 32'(data_words_i);
    end
  logic digests_header, digests_data, header_crc_ready, data_crc_ready, header_computed, data_computed;
  logic [31:0] computed_header, computed_data;
  // A header of several beats never comes while data is under way (tx_generator), so none that waits for room keeps data from the unit.
  crc_pair #(
      .Bytes(Bytes),
      .Poly(Poly),
      .Segments(2 * Pdus)
  ) digests (
      .clk,
      .rst,
      .restart_i,
      .set_i,
      .poly_i,
      .header_valid_i(digests_header),
      .header_ready_o(header_crc_ready),
      .header_last_i,
      .header_keep_i(header_keep),
      .header_data_i,
      .header_digest_valid_o(header_computed),
      .header_digest_o(computed_header),
      .data_valid_i(digests_data),
      .data_ready_o(data_crc_ready),
      .data_last_i,
      .data_keep_i(data_keep),
      .data_data_i,
      .data_digest_valid_o(data_computed),
      .data_digest_o(computed_data)
  );
  // A header has 12 to 267 words.
  tx_segment #(
      .Bytes(Bytes),
      .Beats(1024 / Bytes * 4),
      .Segments(Pdus)
  ) headers (
      .clk,
      .clear,
      .digest_i(header_digest_i),
      .valid_i(header_valid_i),
      .ready_o(header_ready_o),
      .last_i(header_last_i),
      .words_i(header_words_i),
      .data_i(header_data_i),
      .crc_valid_o(digests_header),
      .crc_ready_i(header_crc_ready),
      .crc_digest_valid_i(header_computed),
      .crc_digest_i(computed_header),
      .valid_o(header_valid),
      .ready_i(header_go),
      .last_o(header_last),
      .words_o(header_words),
      .data_o(header_beat),
      .digest_o(header_digest)
  );
  tx_segment #(
      .Bytes(Bytes),
      .Beats(BufferBytes / Bytes),
      .Segments(Pdus)
  ) data (
      .clk,
      .clear,
      .digest_i(data_digest_i),
      .valid_i(data_valid_i),
      .ready_o(data_ready_o),
      .last_i(data_last_i),
      .words_i(data_words_i),
      .data_i(data_data_i),
      .crc_valid_o(digests_data),
      .crc_ready_i(data_crc_ready),
      .crc_digest_valid_i(data_computed),
      .crc_digest_i(computed_data),
      .valid_o(data_valid),
      .ready_i(data_go),
      .last_o(data_last),
      .words_o(data_words),
      .data_o(data_beat),
      .digest_o(data_digest)
  );

  logic pdu_known, has_data, drop, pop;
  credit_fifo #(
      .Width(2),
      .Depth(Pdus)
  ) pdus (
      .clk,
      .rst(clear),
      .push_i(pdu_valid_i),
      .data_i({pdu_has_data_i, pdu_drop_i}),
      .credit_o,
      .valid_o(pdu_known),
      .data_o({has_data, drop}),
      .pop_i(pop)
  );

  // The beat at hand. A digest behind the segment goes with its last beat where it fits.
  wire is_segment = state == HEADER || state == DATA;
  wire of_header = state == HEADER || state == HEADER_DIGEST;
  logic [31:0] digest_kept, digest;
  wire [8*Bytes-1:0] beat = of_header ? header_beat : data_beat;
  wire [W-1:0] words = of_header ? header_words : data_words;
  wire last = of_header ? header_last : data_last;
  wire digested = of_header ? header_digest_i : data_digest_i;
  assign digest = of_header ? header_digest : data_digest;
  wire with_digest = last && digested && words != W'(Words);
  wire there = pdu_known && (!is_segment || (of_header ? header_valid : data_valid));
  logic pack_ready;
  wire go = there && (drop || pack_ready);
  assign header_go = go && state == HEADER;
  assign data_go   = go && state == DATA;
  wire segment_over = go && (is_segment ? last && (!digested || with_digest) : 1'b1);
  assign pop = segment_over && (!of_header || !has_data);

  always_ff @(posedge clk) begin
    if (go) digest_kept <= digest;
    if (clear) state <= HEADER;
    else if (segment_over) state <= of_header && has_data ? DATA : HEADER;
    else if (go && last) state <= of_header ? HEADER_DIGEST : DATA_DIGEST;
  end

  logic [8*Bytes-1:0] joined;
  always_comb begin
    joined = is_segment ? beat : {{8 * Bytes - 32{1'b0}}, digest_kept};
    for (int unsigned i = 0; i < Words; i++)
      if (is_segment && with_digest && 32'(words) == i) joined[32*i+:32] = digest;
  end
  tx_pack #(
      .Bytes(Bytes)
  ) pack (
      .clk,
      .rst(clear),
      .valid_i(there && !drop),
      .ready_o(pack_ready),
      .words_i(is_segment ? words + W'(with_digest) : W'(1)),
      .data_i(joined),
      .valid_o,
      .ready_i,
      .count_o,
      .data_o,
      .empty_o
  );
endmodule
`default_nettype wire
