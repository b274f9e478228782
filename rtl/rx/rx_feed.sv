// Takes the checked PDUs of the Rx buffer apart: each header once for the router, and all beats for the mover.
//
//   checked PDUs --+--> [ beats: 16 ] --> mover
//                  +--> [ headers: 4 ] --> [ the oldest ] --> router: BHS, verdict, position
//
// So the router works on a header while the data before it is on its way to host memory. What of a header is longer than a BHS lies
// in the beats only.
`default_nettype none
module rx_feed #(
    // Bytes of a beat: 64 or 8.
    parameter int unsigned Bytes = 64,
    parameter int unsigned Beats = 16,
    parameter int unsigned Headers = 4
) (
    input  wire                      clk,
    input  wire                      rst,
    // From the Rx buffer. A bad header digest is one beat without words; its data is the begin of the header.
    input  wire                      valid_i,
    output logic                     ready_o,
    input  wire                      is_data_i,
    input  wire                      first_i,
    input  wire                      pdu_last_i,
    input  wire  [$clog2(Bytes)-2:0] words_i,
    input  wire  [  8*Bytes-1:0]     data_i,
    input  wire  [              1:0] verdict_i,
    input  wire  [             63:0] position_i,
    // The oldest beat.
    output logic                     beat_valid_o,
    output logic                     beat_is_data_o,
    output logic                     beat_last_o,
    output logic [$clog2(Bytes)-2:0] beat_words_o,
    output logic [  8*Bytes-1:0]     beat_o,
    input  wire                      beat_pop_i,
    // The oldest header.
    output logic                     header_valid_o,
    output logic [            383:0] header_o,
    output logic [              1:0] verdict_o,
    output logic [             63:0] position_o,
    input  wire                      header_pop_i
);
  localparam int unsigned W = $clog2(Bytes) - 1;
  localparam int unsigned Parts = (48 + Bytes - 1) / Bytes;
  localparam logic [1:0] BAD_HEADER = 2'd1;

  logic beat_credit, header_credit, beat_back, push_header;
  assign ready_o = beat_credit && header_credit;
  logic [383:0] header;
  if (Parts == 1) begin : g_wide
    assign header = data_i[383:0];
    assign push_header = valid_i && first_i && !is_data_i;
  end else begin : g_narrow
    // The BHS comes in `Parts` beats; a bad one is not awaited.
    logic [8*Bytes*(Parts-1)-1:0] kept;
    logic [$clog2(Parts+1)-1:0] parts;
    wire [$clog2(Parts+1)-1:0] part = first_i ? '0 : parts;
    wire bad = verdict_i == BAD_HEADER;
    assign header = bad ? {{384 - 8 * Bytes{1'b0}}, data_i} : {data_i, kept};
    assign push_header = valid_i && !is_data_i && (bad || 32'(part) == Parts - 1);
    always_ff @(posedge clk) begin
      if (valid_i && !is_data_i) begin
        if (32'(part) < Parts - 1) kept <= {data_i, kept[8*Bytes*(Parts-1)-1:8*Bytes]};
        parts <= 32'(part) < Parts ? part + 1'b1 : part;
      end
      if (rst) parts <= '0;
    end
  end

  credit_sender #(
      .Depth(Beats)
  ) beat_credits (
      .clk,
      .rst,
      .may_send_o(beat_credit),
      .spend_i(valid_i),
      .credit_i(beat_back)
  );
  credit_fifo #(
      .Width(2 + W + 8 * Bytes),
      .Depth(Beats)
  ) beats (
      .clk,
      .rst,
      .push_i(valid_i),
      .data_i({is_data_i, pdu_last_i, words_i, data_i}),
      .credit_o(beat_back),
      .valid_o(beat_valid_o),
      .data_o({beat_is_data_o, beat_last_o, beat_words_o, beat_o}),
      .pop_i(beat_pop_i)
  );
  credit_sender #(
      .Depth(Headers)
  ) header_credits (
      .clk,
      .rst,
      .may_send_o(header_credit),
      .spend_i(push_header),
      .credit_i(header_pop_i)
  );
  // In registers: what the router compares begins with it.
  front_fifo #(
      .Width(384 + 2 + 64),
      .Depth(Headers)
  ) headers (
      .clk,
      .rst,
      .push_i(push_header),
      .data_i({header, verdict_i, position_i}),
      .valid_o(header_valid_o),
      .data_o({header_o, verdict_o, position_o}),
      .pop_i(header_pop_i)
  );
endmodule
`default_nettype wire
