// The Rx buffer controller: holds the segments of the packet controller back until the verdict about their PDU.
//
//   segments --> [ ] --> [ ] --> [ queue of beats ] --> [ next ] --+--> good: header segments, data; bad data digest: header only
//   verdicts ----------> [ queue ] -----------> [ oldest verdict ] +
//
// What leaves has been compared: no byte of a data segment with a bad digest, and none of a PDU with a bad header digest, comes out.
// There is room for one PDU with `BufferBytes` of data and the longest header, so a PDU within the bound never waits for itself.
`default_nettype none
module rx_buffer #(
    // Bytes of a beat: 64 or 8.
    parameter int unsigned Bytes = 64,
    // Largest data segment: 4096 or 65536.
    parameter int unsigned BufferBytes = 65536,
    // PDUs that are in the buffer, at most.
    parameter int unsigned Pdus = 64
) (
    input  wire                      clk,
    input  wire                      rst,
    // Everything in the buffer is dropped. After a stop has come out nothing that counts is left, so nothing is lost then. What comes out in
    // that cycle does not count.
    input  wire                      restart_i,
    // From the packet controller.
    input  wire                      seg_valid_i,
    output logic                     seg_ready_o,
    input  wire                      seg_is_data_i,
    input  wire                      seg_first_i,
    input  wire                      seg_last_i,
    input  wire  [$clog2(Bytes)-2:0] seg_words_i,
    input  wire  [  8*Bytes-1:0]     seg_data_i,
    input  wire                      verdict_valid_i,
    input  wire  [              1:0] verdict_i,
    input  wire  [             63:0] verdict_position_i,
    // A beat with the verdict and the position of its PDU. A bad header digest is one beat without words; `data_o` has the begin of
    // that header, which nobody can trust.
    output logic                     valid_o,
    input  wire                      ready_i,
    output logic                     is_data_o,
    output logic                     first_o,
    output logic                     last_o,
    // Nothing more of this PDU comes.
    output logic                     pdu_last_o,
    output logic [$clog2(Bytes)-2:0] words_o,
    output logic [  8*Bytes-1:0]     data_o,
    output logic [              1:0] verdict_o,
    output logic [             63:0] position_o,
    // A verdict that stops has left; nothing more comes before a restart.
    output logic                     stopped_o
);
  // BHS and the longest AHS: 48 + 1020 bytes.
  localparam int unsigned Beats = BufferBytes / Bytes + (1068 + Bytes - 1) / Bytes;
  // One more, because whether there is room is a register that knows of a beat two cycles later.
  localparam int unsigned Slots = Beats + 1;
  // At 512 bit the longest header, 17 beats, has room before the queue: so that is as long as block RAMs are, and no choice follows its slow
  // output.
  localparam bit Split = Bytes == 64;
  localparam int unsigned Queue = Split ? BufferBytes / Bytes : Slots;
  localparam int unsigned Count = $clog2(Slots + 1);
  localparam int unsigned PduCount = $clog2(Pdus + 1);
  localparam logic [1:0] BAD_HEADER = 2'd1, TOO_LONG = 2'd2, BAD_DATA = 2'd3;
  typedef struct packed {
    logic is_data;
    logic first;
    logic last;
    logic pdu_last;
    logic [$clog2(Bytes)-2:0] words;
    logic [8*Bytes-1:0] data;
  } beat_t;

  wire clear = rst || restart_i;
  logic [Count-1:0] beats;
  logic [PduCount-1:0] pdus;
  beat_t next;
  logic next_valid;

  // In: whether data follows is in the first beat of the header.
  wire begins = seg_valid_i && seg_first_i && !seg_is_data_i;
  wire has_data_now = {seg_data_i[47:40], seg_data_i[55:48], seg_data_i[63:56]} != '0;
  logic has_data_kept;
  wire has_data = begins ? has_data_now : has_data_kept;
  beat_t in, arriving, held;
  logic arrives, held_goes;
  assign in.is_data = seg_is_data_i;
  assign in.first = seg_first_i;
  assign in.last = seg_last_i;
  assign in.pdu_last = seg_last_i && (seg_is_data_i || !has_data);
  assign in.words = seg_words_i;
  assign in.data = seg_data_i;
  logic room, pdu_room;
  assign seg_ready_o = room && (pdu_room || !seg_first_i || seg_is_data_i);

  // Out: the beat at the front waits for the verdict. A verdict goes a cycle after the last beat that it is about, and is not looked at then.
  logic oldest_known, left, pop;
  wire known = oldest_known && !pop;
  wire bad_header = known && verdict_o == BAD_HEADER;
  wire drop = known && verdict_o == BAD_DATA && next.is_data && next_valid && !stopped_o;
  assign valid_o = !stopped_o && known && next_valid && !drop;
  wire taken = valid_o && ready_i;
  wire leaves = drop || (taken && !bad_header);
  wire stops = taken && (bad_header || (verdict_o == TOO_LONG && next.last));
  assign is_data_o = next.is_data && !bad_header;
  assign first_o = next.first || bad_header;
  assign last_o = next.last || bad_header;
  assign pdu_last_o = bad_header || next.pdu_last || (next.last && (verdict_o == TOO_LONG || verdict_o == BAD_DATA));
  assign words_o = bad_header ? '0 : next.words;
  assign data_o = next.data;
  always_ff @(posedge clk) begin
    if (begins) has_data_kept <= has_data_now;
    // A cycle for the way to the RAM, which is long. The beat counts from before.
    arrives  <= held_goes && !clear;
    arriving <= held;
    left <= leaves && !clear;
    pop <= (stops || (leaves && next.pdu_last)) && !clear;
    if (clear) begin
      beats <= '0;
      pdus <= '0;
      {room, pdu_room} <= '1;
      stopped_o <= rst;
    end else begin
      if (seg_valid_i != left) beats <= beats + {{Count - 1{left}}, 1'b1};
      if (begins != pop) pdus <= pdus + {{PduCount - 1{pop}}, 1'b1};
      room <= beats < Count'(Beats);
      pdu_room <= pdus < PduCount'(Pdus - 1);
      if (stops) stopped_o <= 1'b1;
    end
  end
  if (Split) begin : g_before
    logic held_valid, queue_room, unused_credit;
    // Beats in the queue and on the way to it. That there is room is known two cycles later.
    logic [Count-1:0] queued;
    always_ff @(posedge clk) begin
      if (clear) queued <= '0;
      else if (held_goes != left) queued <= queued + {{Count - 1{left}}, 1'b1};
      queue_room <= !clear && queued < Count'(Queue - 1);
    end
    assign held_goes = held_valid && queue_room;
    credit_fifo #(
        .Width($bits(beat_t)),
        .Depth(32)
    ) header_beats (
        .clk,
        .rst(clear),
        .push_i(seg_valid_i),
        .data_i(in),
        .credit_o(unused_credit),
        .valid_o(held_valid),
        .data_o(held),
        .pop_i(held_goes)
    );
  end else begin : g_direct
    assign held_goes = seg_valid_i;
    assign held = in;
  end
  front_fifo #(
      .Width($bits(beat_t)),
      .Depth(Queue),
      .Block(1'b1)
  ) queue (
      .clk,
      .rst(clear),
      .push_i(arrives),
      .data_i(arriving),
      .valid_o(next_valid),
      .data_o(next),
      .pop_i(leaves)
  );
  front_fifo #(
      .Width(66),
      .Depth(Pdus)
  ) verdicts (
      .clk,
      .rst(clear),
      .push_i(verdict_valid_i),
      .data_i({verdict_i, verdict_position_i}),
      .valid_o(oldest_known),
      .data_o({verdict_o, position_o}),
      .pop_i(pop)
  );
`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!clear) begin
      assert (!seg_valid_i || beats != Count'(Slots))
      else $error("rx_buffer: a beat without room");
      assert (!begins || pdus != PduCount'(Pdus))
      else $error("rx_buffer: a PDU without room");
      assert (!(valid_o && is_data_o && verdict_o != 2'd0))
      else $error("rx_buffer: data leaves whose PDU is not good");
    end
  end
`endif
endmodule
`default_nettype wire
