// The packet controller with the Rx buffer behind it: bytes in, checked PDUs out. The ports are those of `rx_packet`, but a segment
// comes with the verdict and the position of its PDU, `seg_valid_o` includes `seg_ready_i`, and `verdict_valid_o` is on in the last
// cycle of a PDU.
`default_nettype none
module rx_checked #(
    parameter int unsigned Bytes = 64,
    parameter int unsigned BufferBytes = 65536,
    parameter logic [31:0] Poly = 32'h82f6_3b78
) (
    input  wire                      clk,
    input  wire                      rst,
    input  wire                      restart_i,
    input  wire  [             63:0] restart_position_i,
    input  wire                      header_digest_i,
    input  wire                      data_digest_i,
    // At most `BufferBytes`.
    input  wire  [             23:0] max_data_i,
    input  wire                      set_poly_i,
    input  crc_pkg::polynomial_t     poly_i,
    output logic                     poly_full_o,
    input  wire                      valid_i,
    output logic                     ready_o,
    input  wire  [$clog2(Bytes):0]   count_i,
    input  wire  [  8*Bytes-1:0]     data_i,
    output logic                     seg_valid_o,
    input  wire                      seg_ready_i,
    output logic                     seg_is_data_o,
    output logic                     seg_first_o,
    output logic                     seg_last_o,
    output logic [$clog2(Bytes)-2:0] seg_words_o,
    output logic [  8*Bytes-1:0]     seg_data_o,
    output logic                     verdict_valid_o,
    output logic [              1:0] verdict_o,
    output logic [             63:0] verdict_position_o,
    output logic                     stopped_o
);
  logic seg_valid, seg_ready, seg_is_data, seg_first, seg_last, verdict_valid, unused_stopped, out_valid, pdu_last;
  logic [$clog2(Bytes)-2:0] seg_words;
  logic [8*Bytes-1:0] seg_data;
  logic [1:0] verdict;
  logic [63:0] verdict_position;
  rx_packet #(
      .Bytes(Bytes),
      .Poly (Poly)
  ) packet (
      .clk,
      .rst,
      .restart_i,
      .restart_position_i,
      .header_digest_i,
      .data_digest_i,
      .max_data_i,
      .set_poly_i,
      .poly_i,
      .poly_full_o,
      .valid_i,
      .ready_o,
      .count_i,
      .data_i,
      .seg_valid_o(seg_valid),
      .seg_ready_i(seg_ready),
      .seg_is_data_o(seg_is_data),
      .seg_first_o(seg_first),
      .seg_last_o(seg_last),
      .seg_words_o(seg_words),
      .seg_data_o(seg_data),
      .verdict_valid_o(verdict_valid),
      .verdict_o(verdict),
      .verdict_position_o(verdict_position),
      .stopped_o(unused_stopped)
  );
  rx_buffer #(
      .Bytes(Bytes),
      .BufferBytes(BufferBytes)
  ) buffer (
      .clk,
      .rst,
      .restart_i,
      .seg_valid_i(seg_valid),
      .seg_ready_o(seg_ready),
      .seg_is_data_i(seg_is_data),
      .seg_first_i(seg_first),
      .seg_last_i(seg_last),
      .seg_words_i(seg_words),
      .seg_data_i(seg_data),
      .verdict_valid_i(verdict_valid),
      .verdict_i(verdict),
      .verdict_position_i(verdict_position),
      .valid_o(out_valid),
      .ready_i(seg_ready_i),
      .is_data_o(seg_is_data_o),
      .first_o(seg_first_o),
      .last_o(seg_last_o),
      .pdu_last_o(pdu_last),
      .words_o(seg_words_o),
      .data_o(seg_data_o),
      .verdict_o,
      .position_o(verdict_position_o),
      .stopped_o
  );
  assign seg_valid_o = out_valid && seg_ready_i;
  assign verdict_valid_o = seg_valid_o && pdu_last;
`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst && !stopped_o) begin
      assert (32'(max_data_i) <= BufferBytes)
      else $error("rx_checked: the bound of a data segment is above the buffer");
    end
  end
`endif
endmodule
`default_nettype wire
