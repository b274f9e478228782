// Reads the lengths of the headers, ahead of the packet controller: where a PDU ends is where the next begins.
//
//   ahead: words arrived since the PDU's begin --> WAIT --> READ --> SUM --> NEXT --> WAIT
//                                                   |        |       |       |
//                                                peek_at  the word  length  begin += length; plan --> [ queue of 4 ] --> plan_o
//
// Five cycles a PDU, while the controller moves the beats of those before. A length is believed before the header digest was
// compared, see rx_packet. After a PDU with too much data the scout stops.
`default_nettype none
module rx_scout #(
    parameter int unsigned Bytes = 64
) (
    input  wire                      clk,
    // Power-up, and a restart at this position of the stream.
    input  wire                      clear_i,
    input  wire  [             63:0] position_i,
    input  wire                      header_digest_i,
    input  wire                      data_digest_i,
    input  wire  [             23:0] max_data_i,
    // The window.
    input  wire  [$clog2(Bytes)-2:0] arrived_i,
    output logic [$clog2(Bytes)+1:0] peek_at_o,
    input  wire  [             31:0] peek_i,
    // The PDU whose lengths are read next begins here. It is not read while `hold_i`, and `new_poly_i` becomes a part of its plan.
    output logic [             63:0] position_o,
    input  wire                      hold_i,
    input  wire                      new_poly_i,
    output logic                     planned_o,
    // The oldest PDU that was not taken.
    output logic                     plan_valid_o,
    output logic [             63:0] plan_position_o,
    output logic                     plan_too_long_o,
    output logic                     plan_has_data_o,
    output logic                     plan_new_poly_o,
    // Beats of header segments and of data, and the words of the last of them, each less one.
    output logic [              8:0] plan_header_beats_o,
    output logic [$clog2(Bytes)-3:0] plan_header_tail_o,
    output logic [             21:0] plan_data_beats_o,
    output logic [$clog2(Bytes)-3:0] plan_data_tail_o,
    input  wire                      plan_pop_i
);
  localparam int unsigned L = $clog2(Bytes);
  // Words of a beat, as bits.
  localparam int unsigned T = L - 2;
  typedef enum logic [2:0] {
    WAIT,
    READ,
    SUM,
    NEXT,
    STOPPED
  } state_t;
  typedef struct packed {
    logic [63:0] position;
    logic too_long;
    logic has_data;
    // The polynomial changes before it.
    logic new_poly;
    logic [8:0] header_beats;
    logic [T-1:0] header_tail;
    logic [21:0] data_beats;
    logic [T-1:0] data_tail;
  } plan_t;

  state_t state;
  logic [25:0] ahead;
  logic [63:0] position;
  logic [L+1:0] begins;
  logic [23:0] data_bytes, length;
  logic [8:0] header_words;
  wire [23:0] peek_bytes = {peek_i[15:8], peek_i[23:16], peek_i[31:24]};
  wire [22:0] peek_words = {1'b0, peek_bytes[23:2]} + {22'd0, peek_bytes[1:0] != 2'd0};
  // Digests, and the BHS.
  wire [23:0] fixed = 24'd12 + {23'd0, header_digest_i} + {23'd0, data_digest_i && peek_bytes != '0};
  wire too_long = data_bytes > max_data_i;
  // `peek_at_o` follows `begins` by a cycle.
  logic room, credit, settles, made;
  always_ff @(posedge clk) begin
    peek_at_o <= begins + 1'b1;
    // Of no account but in SUM.
    data_bytes <= state == SUM ? peek_bytes : data_bytes;
    header_words <= state == SUM ? 9'd12 + {1'b0, peek_i[7:0]} : header_words;
    length <= ({1'b0, peek_words} + {16'd0, peek_i[7:0]}) + fixed;
    ahead <= ahead + 26'(arrived_i) - (state == NEXT ? {2'd0, length} : 26'd0);
    if (state == NEXT) begin
      begins   <= begins + length[L+1:0];
      position <= position + {38'd0, length, 2'b00};
    end
    unique case (state)
      WAIT: if (!ahead[25] && ahead[24:1] != '0 && room && !settles && !hold_i) state <= READ;
      READ: state <= SUM;
      SUM: state <= NEXT;
      NEXT: state <= too_long ? STOPPED : WAIT;
      default: ;
    endcase
    if (clear_i) begin
      state <= WAIT;
      ahead <= '0;
      begins <= '0;
      position <= position_i;
    end
  end
  assign position_o = position;
  assign planned_o = state == NEXT;
  always_ff @(posedge clk) settles <= state == NEXT || clear_i;

  // The plan, a cycle after NEXT and then into the queue.
  plan_t plan, oldest;
  wire [21:0] data_words = data_bytes[23:2] + {21'd0, data_bytes[1:0] != 2'd0};
  always_ff @(posedge clk) begin
    made <= state == NEXT && !clear_i;
    if (state == NEXT) begin
      plan.position <= position;
      plan.too_long <= too_long;
      plan.has_data <= data_bytes != '0;
      plan.new_poly <= new_poly_i;
      plan.header_beats <= (header_words - 1'b1) >> T;
      plan.header_tail <= T'(header_words - 1'b1);
      plan.data_beats <= (data_words - 1'b1) >> T;
      plan.data_tail <= T'(data_words - 1'b1);
    end
  end
  credit_sender #(
      .Depth(4)
  ) plan_credits (
      .clk,
      .rst(clear_i),
      .may_send_o(room),
      .spend_i(state == READ),
      .credit_i(credit)
  );
  credit_fifo #(
      .Width($bits(plan_t)),
      .Depth(4)
  ) plans (
      .clk,
      .rst(clear_i),
      .push_i(made),
      .data_i(plan),
      .credit_o(credit),
      .valid_o(plan_valid_o),
      .data_o(oldest),
      .pop_i(plan_pop_i)
  );
  assign plan_position_o = oldest.position;
  assign plan_too_long_o = oldest.too_long;
  assign plan_has_data_o = oldest.has_data;
  assign plan_new_poly_o = oldest.new_poly;
  assign plan_header_beats_o = oldest.header_beats;
  assign plan_header_tail_o = oldest.header_tail;
  assign plan_data_beats_o = oldest.data_beats;
  assign plan_data_tail_o = oldest.data_tail;
endmodule
`default_nettype wire
