// Digests of two kinds of segments, headers and data, each kind in its order.
//
//   64 bit:   headers --> [beat_crc] --> digests        512 bit:   headers --+--> [beat_crc] --> by the kinds under way --+--> digests
//             data -----> [beat_crc] --> digests                   data -----+                                           +--> digests
//
// At 512 bit a header is a beat or two and the unit has no pauses, so one serves both kinds; a segment that has begun is finished first. At
// 64 bit a header would wait for the tail of the data before it, 8 cycles a byte.
`default_nettype none
module crc_pair #(
    parameter int unsigned Bytes = 64,
    // Reflected.
    parameter logic [31:0] Poly = 32'h82f6_3b78,
    // Segments whose digest is not out, at most, of both kinds together. Nothing here counts them.
    parameter int unsigned Segments = 64
) (
    input  wire                  clk,
    // See beat_crc.
    input  wire                  rst,
    input  wire                  restart_i,
    input  wire                  set_i,
    input  crc_pkg::polynomial_t poly_i,
    // A beat of a header; it is taken when both are set, and `header_ready_o` may wait for `header_valid_i`.
    input  wire                  header_valid_i,
    output logic                 header_ready_o,
    input  wire                  header_last_i,
    input  wire  [Bytes/4-1:0]   header_keep_i,
    input  wire  [8*Bytes-1:0]   header_data_i,
    output logic                 header_digest_valid_o,
    output logic [         31:0] header_digest_o,
    // And of data.
    input  wire                  data_valid_i,
    output logic                 data_ready_o,
    input  wire                  data_last_i,
    input  wire  [Bytes/4-1:0]   data_keep_i,
    input  wire  [8*Bytes-1:0]   data_data_i,
    output logic                 data_digest_valid_o,
    output logic [         31:0] data_digest_o
);
  if (Bytes == 64) begin : g_one
    wire clear = rst || restart_i;
    // A beat of each kind waits in registers, so that whether one comes and which goes are not one way.
    logic header_valid, header_last, data_valid, data_last;
    logic [Bytes/4-1:0] header_keep, data_keep;
    logic [8*Bytes-1:0] header_data, data_data;
    // A segment has begun, and its kind.
    logic begun, begun_data, chosen_is_data, is_data, unused_ready, unused_credit, unused_known, digest_valid;
    wire data = begun ? begun_data : !header_valid;
    assign header_ready_o = !header_valid || !data;
    assign data_ready_o = !data_valid || data;
    wire valid = data ? data_valid : header_valid;
    wire last = data ? data_last : header_last;
    always_ff @(posedge clk) begin
      header_valid <= !clear && (header_valid_i || !header_ready_o);
      data_valid   <= !clear && (data_valid_i || !data_ready_o);
      if (header_ready_o) {header_last, header_keep, header_data} <= {header_last_i, header_keep_i, header_data_i};
      if (data_ready_o) {data_last, data_keep, data_data} <= {data_last_i, data_keep_i, data_data_i};
    end
    // The choice has a cycle of its own: the unit's mask is the reset of its first registers, and far from here.
    logic chosen_valid, chosen_last;
    logic [Bytes/4-1:0] chosen_keep;
    logic [8*Bytes-1:0] chosen_data;
    always_ff @(posedge clk) begin
      begun <= !clear && (valid ? !last : begun);
      if (!begun) begun_data <= data;
      chosen_valid <= valid && !clear;
      chosen_last  <= last;
      chosen_is_data <= data;
      chosen_keep  <= data ? data_keep : header_keep;
      chosen_data  <= data ? data_data : header_data;
    end
    beat_crc #(
        .Bytes(Bytes),
        .Poly (Poly)
    ) unit (
        .clk,
        .rst,
        .restart_i,
        .set_i,
        .poly_i,
        .valid_i(chosen_valid),
        .ready_o(unused_ready),
        .last_i(chosen_last),
        .keep_i(chosen_keep),
        .data_i(chosen_data),
        .digest_valid_o(digest_valid),
        .digest_o(header_digest_o)
    );
    credit_fifo #(
        .Width(1),
        .Depth(Segments)
    ) kinds (
        .clk,
        .rst(clear),
        .push_i(chosen_valid && chosen_last),
        .data_i(chosen_is_data),
        .credit_o(unused_credit),
        .valid_o(unused_known),
        .data_o(is_data),
        .pop_i(digest_valid)
    );
    assign data_digest_o = header_digest_o;
    assign header_digest_valid_o = digest_valid && !is_data;
    assign data_digest_valid_o = digest_valid && is_data;
  end else begin : g_two
    beat_crc #(
        .Bytes(Bytes),
        .Poly (Poly)
    ) header_unit (
        .clk,
        .rst,
        .restart_i,
        .set_i,
        .poly_i,
        .valid_i(header_valid_i),
        .ready_o(header_ready_o),
        .last_i(header_last_i),
        .keep_i(header_keep_i),
        .data_i(header_data_i),
        .digest_valid_o(header_digest_valid_o),
        .digest_o(header_digest_o)
    );
    beat_crc #(
        .Bytes(Bytes),
        .Poly (Poly)
    ) data_unit (
        .clk,
        .rst,
        .restart_i,
        .set_i,
        .poly_i,
        .valid_i(data_valid_i),
        .ready_o(data_ready_o),
        .last_i(data_last_i),
        .keep_i(data_keep_i),
        .data_i(data_data_i),
        .digest_valid_o(data_digest_valid_o),
        .digest_o(data_digest_o)
    );
  end
endmodule
`default_nettype wire
