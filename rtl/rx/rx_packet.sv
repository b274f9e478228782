// The packet controller of the receive module: cuts the byte stream into PDUs and checks their digests (RFC 7143 11.2, 13.1).
//
//   stream --> [rx_window] --+--> header segments, data segments --------------------------> seg_*
//                            +--> [rx_check] header: computed, received --+
//                            +--> [rx_check] data:   computed, received --+--> [retire] ---> verdict_*
//                            +--> queue of PDUs under way ----------------+
//
//                +--------------------- no data ----------------------+
//                v                                                    |
//   restart --> HEADER --> HEADER_DIGEST --> DATA --> DATA_DIGEST ----+
//                |  ^                          |  ^------- if it did not fit behind the data
//                |  +--------------------------+
//                +--> STOPPED: the header says more data than `max_data_i`, or a verdict stops the connection
//
// A digest that fits into the last beat of its segment is taken with it. The parser believes a length before the header digest has
// been compared, as otherwise each PDU would wait 17 cycles. So whoever takes the segments holds them back until the verdict: verdicts
// come in the order of the PDUs, one for each, and after a verdict that stops, nothing that lies behind it counts.
// A header is not held back by its own data: `BAD_HEADER` can come before the PDU has ended.
`default_nettype none
module rx_packet #(
    // Bytes of a beat: 64 or 8.
    parameter int unsigned Bytes = 64,
    // Reflected; this one is CRC32C.
    parameter logic [31:0] Poly  = 32'h82f6_3b78,
    // PDUs under way between parser and verdict.
    parameter int unsigned Depth = 32
) (
    input  wire                      clk,
    input  wire                      rst,
    // One cycle: the next beat begins with a PDU, which is at this position of the stream. Everything under way is dropped.
    // Needed after reset, and after a verdict that stops.
    input  wire                      restart_i,
    input  wire  [             63:0] restart_position_i,
    // Constant between two restarts: HeaderDigest, DataDigest, MaxRecvDataSegmentLength.
    input  wire                      header_digest_i,
    input  wire                      data_digest_i,
    input  wire  [             23:0] max_data_i,
    // The stream: the lowest `count_i` bytes of a beat exist, 1 to `Bytes`.
    input  wire                      valid_i,
    output logic                     ready_o,
    input  wire  [$clog2(Bytes):0]   count_i,
    input  wire  [  8*Bytes-1:0]     data_i,
    // Segments: BHS with AHS, then data with its padding, if there is any. The lowest `seg_words_o` words exist.
    output logic                     seg_valid_o,
    input  wire                      seg_ready_i,
    output logic                     seg_is_data_o,
    output logic                     seg_first_o,
    output logic                     seg_last_o,
    output logic [$clog2(Bytes)-2:0] seg_words_o,
    output logic [  8*Bytes-1:0]     seg_data_o,
    // 0 good, 1 header digest, 2 DataSegmentLength above the bound, 3 data digest. 1 and 2 stop the connection.
    output logic                     verdict_valid_o,
    output logic [              1:0] verdict_o,
    // Position of the PDU's first byte.
    output logic [             63:0] verdict_position_o,
    output logic                     stopped_o
);
  localparam int unsigned Words = Bytes / 4;
  localparam int unsigned W = $clog2(Bytes) - 1;
  localparam logic [22:0] Beat = 23'(Words);
  localparam logic [1:0] GOOD = 2'd0, BAD_HEADER = 2'd1, TOO_LONG = 2'd2, BAD_DATA = 2'd3;
  typedef enum logic [2:0] {
    HEADER,
    HEADER_DIGEST,
    DATA,
    DATA_DIGEST,
    STOPPED
  } state_t;
  typedef struct packed {
    logic [63:0] position;
    logic too_long;
    logic has_data_digest;
  } pdu_t;

  wire clear = rst || restart_i;
  state_t state;
  logic parsing_stopped, retire_stops;
  assign stopped_o = state == STOPPED && parsing_stopped;

  logic window_ready;
  logic [W:0] have;
  logic [8*Bytes-1:0] beat;
  logic [W-1:0] take;
  assign ready_o = window_ready && state != STOPPED && !clear;
  rx_window #(
      .Bytes(Bytes)
  ) realigner (
      .clk,
      .rst(clear),
      .valid_i(valid_i && state != STOPPED && !clear),
      .ready_o(window_ready),
      .count_i,
      .data_i,
      .words_o(have),
      .data_o(beat),
      .take_i(take)
  );

  // The segment at the front: its length in words, and whether its digest goes with its last beat.
  logic first;
  logic [22:0] left;
  logic [23:0] data_bytes, data_bytes_kept;
  wire is_header = state == HEADER;
  wire is_data = state == DATA;
  wire segment = is_header || is_data;
  wire [23:0] data_bytes_now = {beat[47:40], beat[55:48], beat[63:56]};
  assign data_bytes = is_header && first ? data_bytes_now : data_bytes_kept;
  wire [22:0] data_words = {1'b0, data_bytes[23:2]} + {22'd0, data_bytes[1:0] != 2'd0};
  wire [22:0] length = is_header && first ? 23'd12 + {15'd0, beat[39:32]} : left;
  wire ends = length <= Beat;
  wire digested = is_header ? header_digest_i : data_digest_i;
  wire fits = length < Beat;
  wire with_digest = ends && digested && fits;
  wire [W-1:0] words = ends ? W'(length) : W'(Words);
  wire [W-1:0] wanted = segment ? words + W'(with_digest) : W'(1);
  wire too_long = data_bytes > max_data_i;

  // It is taken when all of it is there and everybody has room.
  logic credit, header_ready, data_ready;
  wire enough = {1'b0, wanted} <= have && (!is_header || !first || have >= (W + 1)'(2));
  wire crc_ready = !digested || (is_header ? header_ready : data_ready);
  wire may_go = !clear && enough && (!segment || (seg_ready_i && crc_ready && (!is_header || !first || credit)));
  wire go = may_go && state != STOPPED;
  assign take = go ? wanted : '0;
  wire segment_go = go && segment;
  wire header_ends = go && is_header && ends;
  wire header_over = header_ends && (!header_digest_i || with_digest) || go && state == HEADER_DIGEST;
  wire data_over = go && is_data && ends && (!data_digest_i || with_digest) || go && state == DATA_DIGEST;
  wire pdu_over = data_over || (header_over && (data_bytes == '0 || too_long));

  logic [63:0] position, pdu_position;
  always_ff @(posedge clk) begin
    if (restart_i) position <= restart_position_i;
    else position <= position + {{62 - W{1'b0}}, take, 2'b00};
    if (go && is_header && first) pdu_position <= position;
    if (segment_go) begin
      left  <= length - Beat;
      first <= ends;
    end
    if (go && is_header && first) data_bytes_kept <= data_bytes_now;
    if (header_over) begin
      state <= data_bytes == '0 ? HEADER : DATA;
      left  <= data_words;
      if (too_long) state <= STOPPED;
    end else if (header_ends) state <= HEADER_DIGEST;
    else if (data_over) state <= HEADER;
    else if (go && is_data && ends) state <= DATA_DIGEST;
    if (retire_stops) begin
      state <= STOPPED;
      parsing_stopped <= 1'b1;
    end
    if (clear) begin
      state <= rst ? STOPPED : HEADER;
      parsing_stopped <= rst;
      first <= 1'b1;
    end
  end

  assign seg_valid_o = segment_go;
  assign seg_is_data_o = is_data;
  assign seg_first_o = first;
  assign seg_last_o = ends;
  assign seg_words_o = words;
  assign seg_data_o = beat;

  // Digests. A digest behind the segment lies at word `length`.
  logic [Words-1:0] keep;
  always_comb for (int unsigned i = 0; i < Words; i++) keep[i] = i < 32'(words);
  wire [31:0] digest_word = segment ? beat[32*length[$clog2(Words)-1:0]+:32] : beat[31:0];
  wire header_digest_go = go && (is_header ? with_digest : state == HEADER_DIGEST);
  wire data_digest_go = go && (is_data ? with_digest : state == DATA_DIGEST);
  logic header_valid, header_good, header_pop, data_valid, data_good, data_pop;
  rx_check #(
      .Bytes(Bytes),
      .Poly (Poly),
      .Depth(Depth)
  ) header_check (
      .clk,
      .rst,
      .restart_i,
      .valid_i(segment_go && is_header && header_digest_i),
      .ready_o(header_ready),
      .last_i(ends),
      .keep_i(keep),
      .data_i(beat),
      .digest_valid_i(header_digest_go),
      .digest_i(digest_word),
      .valid_o(header_valid),
      .good_o(header_good),
      .pop_i(header_pop)
  );
  rx_check #(
      .Bytes(Bytes),
      .Poly (Poly),
      .Depth(Depth)
  ) data_check (
      .clk,
      .rst,
      .restart_i,
      .valid_i(segment_go && is_data && data_digest_i),
      .ready_o(data_ready),
      .last_i(ends),
      .keep_i(keep),
      .data_i(beat),
      .digest_valid_i(data_digest_go),
      .digest_i(digest_word),
      .valid_o(data_valid),
      .good_o(data_good),
      .pop_i(data_pop)
  );

  // PDUs under way: a credit is spent on the first beat, so every queue of this module has a slot for what the PDU causes.
  pdu_t pdu_in, oldest;
  logic oldest_valid, credit_back;
  assign pdu_in.position = is_header && first ? position : pdu_position;
  assign pdu_in.too_long = too_long;
  assign pdu_in.has_data_digest = data_digest_i && data_bytes != '0;
  credit_sender #(
      .Depth(Depth)
  ) pdu_credits (
      .clk,
      .rst(clear),
      .may_send_o(credit),
      .spend_i(go && is_header && first),
      .credit_i(credit_back)
  );
  credit_fifo #(
      .Width($bits(pdu_t)),
      .Depth(Depth)
  ) pdus (
      .clk,
      .rst(clear),
      .push_i(header_ends),
      .data_i(pdu_in),
      .credit_o(credit_back),
      .valid_o(oldest_valid),
      .data_o(oldest),
      .pop_i(verdict_valid_o)
  );

  // Retire: PDUs that have ended, less those with a verdict.
  logic [$clog2(Depth+1)-1:0] ended;
  always_ff @(posedge clk) begin
    if (clear) ended <= '0;
    else
      ended <= ended + {{$clog2(Depth + 1) - 1{1'b0}}, pdu_over} - {{$clog2(Depth + 1) - 1{1'b0}}, verdict_valid_o && ended != '0};
  end
  wire header_known = !header_digest_i || header_valid;
  wire header_bad = header_digest_i && header_valid && !header_good;
  wire whole = ended != '0 && (!oldest.has_data_digest || data_valid || oldest.too_long);
  assign verdict_valid_o = !clear && !parsing_stopped && oldest_valid && header_known && (header_bad || whole);
  assign verdict_position_o = oldest.position;
  always_comb begin
    verdict_o = GOOD;
    if (header_bad) verdict_o = BAD_HEADER;
    else if (oldest.too_long) verdict_o = TOO_LONG;
    else if (oldest.has_data_digest && !data_good) verdict_o = BAD_DATA;
  end
  assign retire_stops = verdict_valid_o && (verdict_o == BAD_HEADER || verdict_o == TOO_LONG);
  assign header_pop = verdict_valid_o && header_digest_i;
  assign data_pop = verdict_valid_o && oldest.has_data_digest && !retire_stops;
endmodule
`default_nettype wire
