// The packet controller of the receive module: cuts the byte stream into PDUs and checks their digests (RFC 7143 11.2, 13.1).
//
//   stream --> [window] --beats-----> [ queue ] --+--> header segments, data segments ------------> seg_*
//                 |    ^ take            ^        +--> [rx_check] header: computed, received --+
//       header's  |    |                 |        +--> [rx_check] data:   computed, received --+--> [retire] --> verdict_*
//       lengths   v    |                 |                                                     |
//       [rx_scout] --plan--> [planner] --> [ mover ] ----------> queue of PDUs under way ------+
//
// The beats that the planner makes of a PDU:
//
//                +------------------------ no data -------------------------+
//                v                                                          |
//   plan --> header, ... --> (header digest) --> data, ... --> (data digest) +      a digest that did not fit behind its segment
//
// The scout reads the lengths of a header while beats of the PDUs before it move. The mover knows from registers alone how many words it
// takes next, and whether they are there. Beats reach the queue some cycles later; the mover has a credit for each.
//
// A digest that fits into the last beat of its segment is taken with it. A length is believed before the header digest has
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
    // Needed after reset, and after a verdict that stops. What comes out in that cycle does not count.
    input  wire                      restart_i,
    input  wire  [             63:0] restart_position_i,
    // Constant between two restarts: HeaderDigest, DataDigest, MaxRecvDataSegmentLength.
    input  wire                      header_digest_i,
    input  wire                      data_digest_i,
    input  wire  [             23:0] max_data_i,
    // SET_POLY, at 64 bit only: PDUs that begin behind what was accepted have this polynomial (see rx_poly).
    input  wire                      set_poly_i,
    input  crc_pkg::polynomial_t     poly_i,
    output logic                     poly_full_o,
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
  localparam int unsigned L = $clog2(Bytes);
  localparam int unsigned W = L - 1;
  // From taking words until their beat is there.
  localparam int unsigned Latency = 2 + W / 2;
  localparam logic [1:0] GOOD = 2'd0, BAD_HEADER = 2'd1, TOO_LONG = 2'd2, BAD_DATA = 2'd3;
  typedef struct packed {
    logic [63:0] position;
    logic too_long;
    logic has_data_digest;
  } pdu_t;
  typedef struct packed {
    logic is_data;
    // A digest without a segment.
    logic only_digest;
    logic first;
    logic last;
    logic with_digest;
    // Nothing more of the PDU comes.
    logic pdu_over;
    // The polynomial changes before it.
    logic new_poly;
    logic [W-1:0] words;
  } beat_t;

  // Every register that counts is reset by it. So nothing is held back in that cycle: it would be in the way of every decision.
  wire clear = rst || restart_i;
  logic stopped, retire;
  assign stopped_o = stopped;

  logic window_ready;
  logic [W-1:0] arrived, take;
  logic [8*Bytes-1:0] taken;
  logic [L+1:0] peek_at;
  logic [31:0] peeked;
  assign ready_o = window_ready && !stopped && !clear;
  stream_window #(
      .Bytes(Bytes)
  ) realigner (
      .clk,
      .rst(clear),
      .valid_i(valid_i && !stopped),
      .ready_o(window_ready),
      .count_i,
      .data_i,
      .arrived_o(arrived),
      .take_i(take),
      .data_o(taken),
      .peek_at_i(peek_at),
      .peek_o(peeked)
  );
  // The change of the polynomial, on its way with the first PDU that has it.
  logic poly_hold, poly_due, poly_set, poly_is_set, planned;
  crc_pkg::polynomial_t poly;
  logic [63:0] next_position;
  logic plan_valid, plan_too_long, plan_has_data, plan_new_poly, plan_pop;
  logic [63:0] plan_position;
  rx_pkg::segment_t plan_header, plan_data;
  rx_scout #(
      .Bytes(Bytes)
  ) scout (
      .clk,
      .clear_i(clear),
      .position_i(restart_position_i),
      .header_digest_i,
      .data_digest_i,
      .max_data_i,
      .arrived_i(arrived),
      .peek_at_o(peek_at),
      .peek_i(peeked),
      .position_o(next_position),
      .hold_i(poly_hold),
      .new_poly_i(poly_due),
      .planned_o(planned),
      .plan_valid_o(plan_valid),
      .plan_position_o(plan_position),
      .plan_too_long_o(plan_too_long),
      .plan_has_data_o(plan_has_data),
      .plan_new_poly_o(plan_new_poly),
      .plan_header_o(plan_header),
      .plan_data_o(plan_data),
      .plan_pop_i(plan_pop)
  );

  // The planner. `next` is the beat that it offers, of which it takes `wanted` words; `ends`: nothing of the segment follows it, or there is no
  // beat; `to_digest`: only the digest does; `has_data`: data does.
  logic active, ends, to_digest, has_data, pdu_credit;
  beat_t next;
  logic [W-1:0] wanted;
  rx_pkg::segment_t current, data_segment, segment;
  // Beats of the segment behind the one after `next`, less one: negative if that is the last.
  logic [22:0] further;
  // The mover. `surplus`: words that have arrived and that its beat leaves.
  logic move_valid, beat_credit;
  beat_t move;
  logic [W-1:0] move_words;
  logic [L+3:0] surplus;
  wire go = move_valid && !surplus[L+3] && beat_credit;
  wire taken_next = active && (go || !move_valid);
  wire step = taken_next || !active;
  wire pdu_ends = ends && !has_data;
  // A plan goes a cycle after its PDU has begun, and is not looked at then: so what follows from that does not wait for the mover.
  wire begins = pdu_ends && plan_valid && pdu_credit && !plan_pop;
  assign segment = !ends ? current : has_data ? data_segment : plan_header;
  wire last = ends ? segment.single : further[22];
  always_ff @(posedge clk) begin
    if (step) begin
      active <= begins || !pdu_ends;
      ends <= to_digest || (last && segment.whole) || (pdu_ends && !begins);
      to_digest <= last && !segment.whole && !to_digest && (begins || !pdu_ends);
      if (ends) has_data <= begins && plan_has_data;
      if (ends) next.is_data <= has_data;
      next.only_digest <= to_digest;
      next.first <= ends;
      next.last <= last || to_digest;
      next.with_digest <= last && segment.fits && !to_digest;
      next.pdu_over <= 1'b0;
      next.new_poly <= begins && plan_new_poly;
      next.words <= to_digest ? '0 : last ? segment.words[W-1:0] : W'(Words);
      wanted <= to_digest ? W'(1) : last ? segment.wanted[W-1:0] : W'(Words);
      further <= (ends ? {1'b0, segment.beats} : further) + {{22{1'b1}}, !ends};
      current <= segment;
      if (begins) data_segment <= plan_data;
    end
    plan_pop <= step && begins && !clear;
    move_valid <= !clear && (taken_next || (move_valid && !go));
    if (taken_next) begin
      move <= next;
      move.pdu_over <= pdu_ends;
      move_words <= wanted;
    end
    surplus <= clear ? '0 : surplus + (L + 4)'(arrived) - (taken_next ? (L + 4)'(wanted) : '0);
    if (clear) begin
      ends <= 1'b1;
      {active, to_digest, has_data} <= '0;
    end
  end
  assign take = go ? move_words : '0;

  // The way of a beat to the queue; on it a digest is cut out.
  logic [Latency:0] moving;
  beat_t [Latency:0] beat;
  logic [8*Bytes-1:0] beat_data;
  logic [31:0] beat_digest;
  always_ff @(posedge clk) begin
    moving <= clear ? '0 : {moving[Latency-1:0], go};
    beat[0] <= move;
    for (int unsigned i = 1; i <= Latency; i++) beat[i] <= beat[i-1];
    beat_data <= taken;
    beat_digest <= taken[32*beat[Latency-1].words[W-2:0]+:32];
  end
  // The oldest is in registers, because much is decided with it.
  beat_t out, queued;
  logic out_valid, out_go, queued_valid, beat_back;
  logic [31:0] digest_word, queued_digest;
  logic [8*Bytes-1:0] queued_data;
  wire out_free = !out_valid || out_go;
  always_ff @(posedge clk) begin
    out_valid <= !clear && (queued_valid || !out_free);
    if (out_free) {seg_data_o, digest_word, out} <= {queued_data, queued_digest, queued};
  end
  credit_sender #(
      .Depth(16)
  ) beat_credits (
      .clk,
      .rst(clear),
      .may_send_o(beat_credit),
      .spend_i(go),
      .credit_i(beat_back)
  );
  credit_fifo #(
      .Width(8 * Bytes + 32 + $bits(beat_t)),
      .Depth(16)
  ) beats (
      .clk,
      .rst(clear),
      .push_i(moving[Latency]),
      .data_i({beat_data, beat_digest, beat[Latency]}),
      .credit_o(beat_back),
      .valid_o(queued_valid),
      .data_o({queued_data, queued_digest, queued}),
      .pop_i(queued_valid && out_free)
  );

  // The polynomial: both units change when the first beat of the PDU has come to the end of the queue.
  if (Bytes == 8) begin : g_poly
    logic [63:0] accepted;
    wire [63:0] now_accepted = accepted + (valid_i && ready_o ? 64'(count_i) : 64'd0);
    assign poly_set = out_valid && out.new_poly && !poly_is_set && !clear && !stopped;
    always_ff @(posedge clk) begin
      accepted <= clear ? restart_position_i : now_accepted;
      poly_is_set <= poly_set || (poly_is_set && !out_go && !clear);
    end
    rx_poly changes (
        .clk,
        .rst,
        .restart_i,
        .set_i(set_poly_i),
        .poly_i,
        .accepted_i(now_accepted),
        .accepted_before_i(accepted),
        .next_i(next_position),
        .planned_i(planned),
        .arrives_i(poly_set),
        .hold_o(poly_hold),
        .due_o(poly_due),
        .poly_o(poly),
        .full_o(poly_full_o)
    );
  end else begin : g_fixed
    wire unused_poly = &{1'b0, set_poly_i, planned, next_position};
    assign {poly_hold, poly_due, poly_set, poly_full_o} = '0;
    assign poly_is_set = 1'b1;
    assign poly = poly_i;
  end

  // Out: a beat leaves when everybody has room.
  logic header_ready, data_ready;
  wire may_go = out_valid && !stopped && (poly_is_set || !out.new_poly) && (out.only_digest || seg_ready_i);
  wire digests_header = may_go && !out.only_digest && !out.is_data && header_digest_i;
  wire digests_data = may_go && !out.only_digest && out.is_data && data_digest_i;
  // At 512 bit one unit takes what comes in the order in which it comes, and has no pauses.
  wire unit_waits = Bytes == 8 && ((digests_header && !header_ready) || (digests_data && !data_ready));
  assign out_go = may_go && !unit_waits;
  assign seg_valid_o = out_go && !out.only_digest;
  assign seg_is_data_o = out.is_data;
  assign seg_first_o = out.first;
  assign seg_last_o = out.last;
  assign seg_words_o = out.words;

  // Digests.
  logic [Words-1:0] keep;
  always_comb for (int unsigned i = 0; i < Words; i++) keep[i] = i < 32'(out.words);
  wire digest_go = out_go && (out.with_digest || out.only_digest);
  logic header_computed, data_computed;
  logic [31:0] computed_header, computed_data;
  crc_pair #(
      .Bytes(Bytes),
      .Poly(Poly),
      .Segments(2 * Depth)
  ) digests (
      .clk,
      .rst,
      .restart_i,
      .set_i(poly_set),
      .poly_i(poly),
      .header_valid_i(digests_header),
      .header_ready_o(header_ready),
      .header_last_i(out.last),
      .header_keep_i(keep),
      .header_data_i(seg_data_o),
      .header_digest_valid_o(header_computed),
      .header_digest_o(computed_header),
      .data_valid_i(digests_data),
      .data_ready_o(data_ready),
      .data_last_i(out.last),
      .data_keep_i(keep),
      .data_data_i(seg_data_o),
      .data_digest_valid_o(data_computed),
      .data_digest_o(computed_data)
  );
  logic header_valid, header_good, header_pop, data_valid, data_good, data_pop;
  rx_check #(
      .Depth(Depth)
  ) header_check (
      .clk,
      .clear,
      .computed_valid_i(header_computed),
      .computed_i(computed_header),
      .digest_valid_i(digest_go && !out.is_data),
      .digest_i(digest_word),
      .valid_o(header_valid),
      .good_o(header_good),
      .pop_i(header_pop)
  );
  rx_check #(
      .Depth(Depth)
  ) data_check (
      .clk,
      .clear,
      .computed_valid_i(data_computed),
      .computed_i(computed_data),
      .digest_valid_i(digest_go && out.is_data),
      .digest_i(digest_word),
      .valid_o(data_valid),
      .good_o(data_good),
      .pop_i(data_pop)
  );

  // PDUs under way: a credit is spent with the plan, so every queue of this module has a slot for what the PDU causes.
  // The oldest is in registers: what a verdict looks at.
  pdu_t pdu_in, oldest;
  logic oldest_valid;
  always_ff @(posedge clk) begin
    pdu_in.position <= plan_position;
    pdu_in.too_long <= plan_too_long;
    pdu_in.has_data_digest <= data_digest_i && plan_has_data;
  end
  credit_sender #(
      .Depth(Depth)
  ) pdu_credits (
      .clk,
      .rst(clear),
      .may_send_o(pdu_credit),
      .spend_i(plan_pop),
      .credit_i(retire)
  );
  front_fifo #(
      .Width($bits(pdu_t)),
      .Depth(Depth)
  ) pdus (
      .clk,
      .rst(clear),
      .push_i(plan_pop),
      .data_i(pdu_in),
      .valid_o(oldest_valid),
      .data_o(oldest),
      .pop_i(retire)
  );

  // Retire. The verdict is in registers when the PDU leaves, which is a cycle later: so a PDU takes two cycles, and the scout takes five.
  // PDUs that have ended, less those with a verdict.
  localparam int unsigned Ended = $clog2(Depth + 1);
  wire pdu_over = out_go && out.pdu_over;
  logic [Ended-1:0] ended;
  logic some_ended;
  wire ended_leaves = retire && some_ended;
  always_ff @(posedge clk) begin
    if (clear) begin
      ended <= '0;
      some_ended <= 1'b0;
    end else begin
      if (pdu_over != ended_leaves) ended <= ended + {{Ended - 1{ended_leaves}}, 1'b1};
      some_ended <= pdu_over || ended > Ended'(1) || (some_ended && !ended_leaves);
    end
  end
  wire header_known = !header_digest_i || header_valid;
  wire header_bad = header_digest_i && header_valid && !header_good;
  wire whole = some_ended && (!oldest.has_data_digest || data_valid);
  wire bad_data = oldest.has_data_digest && !data_good;
  always_ff @(posedge clk) begin
    retire <= !clear && !stopped && !retire && oldest_valid && header_known && (header_bad || whole);
    verdict_o <= header_bad ? BAD_HEADER : oldest.too_long ? TOO_LONG : bad_data ? BAD_DATA : GOOD;
    verdict_position_o <= oldest.position;
    stopped <= rst || (!restart_i && (stopped || (retire && (verdict_o == BAD_HEADER || verdict_o == TOO_LONG))));
  end
  assign header_pop = retire && header_digest_i;
  assign data_pop = retire && oldest.has_data_digest && verdict_o != BAD_HEADER;
  assign verdict_valid_o = retire;
`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!clear) begin
      assert (!out_go || ((header_ready || !digests_header) && (data_ready || !digests_data)))
      else $error("rx_packet: a beat leaves for which the CRC unit has no room");
    end
  end
`endif
endmodule
`default_nettype wire
