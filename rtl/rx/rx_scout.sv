// Reads the lengths of the headers, ahead of the packet controller: where a PDU ends is where the next begins.
//
//   ahead: words arrived since the PDU's begin --> WAIT --> READ --> SUM --> NEXT --> WAIT
//                                                   |        |       |       |
//                                                peek_at  the word  length  begin += length; plan --> [ ] [ ] --> plan_*
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
    // More data than the bound: then it has none for the controller.
    output logic                     plan_too_long_o,
    output logic                     plan_has_data_o,
    output logic                     plan_new_poly_o,
    output rx_pkg::segment_t         plan_header_o,
    output rx_pkg::segment_t         plan_data_o,
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
    rx_pkg::segment_t header;
    rx_pkg::segment_t data;
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

  // The plan: lengths a cycle after NEXT, the rest a cycle later. Two wait for the controller.
  function automatic rx_pkg::segment_t segment(input logic [21:0] words_less_one, input logic digested);
    logic [T-1:0] tail = words_less_one[T-1:0];
    segment.beats = words_less_one >> T;
    segment.single = words_less_one >> T == '0;
    segment.words = 5'(tail) + 1'b1;
    segment.fits = digested && tail != '1;
    segment.wanted = 5'(tail) + 1'b1 + {4'd0, digested && tail != '1};
    segment.whole = !digested || tail != '1;
  endfunction
  plan_t plan, spare, oldest;
  logic spare_valid;
  logic plan_too_long, plan_has_data, plan_new_poly;
  logic [63:0] plan_position;
  logic [8:0] header_less_one;
  logic [21:0] data_less_one;
  wire [21:0] data_words = data_bytes[23:2] + {21'd0, data_bytes[1:0] != 2'd0};
  always_ff @(posedge clk) begin
    made <= state == NEXT && !clear_i;
    if (state == NEXT) begin
      plan_position <= position;
      plan_too_long <= too_long;
      plan_has_data <= data_bytes != '0 && !too_long;
      plan_new_poly <= new_poly_i;
      header_less_one <= header_words - 1'b1;
      data_less_one <= data_words - 1'b1;
    end
  end
  assign plan.position = plan_position;
  assign plan.too_long = plan_too_long;
  assign plan.has_data = plan_has_data;
  assign plan.new_poly = plan_new_poly;
  assign plan.header = segment({13'd0, header_less_one}, header_digest_i);
  assign plan.data = segment(data_less_one, data_digest_i);
  wire free = !plan_valid_o || plan_pop_i;
  always_ff @(posedge clk) begin
    plan_valid_o <= !clear_i && (!free || made || spare_valid);
    spare_valid <= !clear_i && !free && (made || spare_valid);
    if (!spare_valid) spare <= plan;
    if (free) oldest <= spare_valid ? spare : plan;
    credit <= plan_pop_i && !clear_i;
  end
  credit_sender #(
      .Depth(2)
  ) plan_credits (
      .clk,
      .rst(clear_i),
      .may_send_o(room),
      .spend_i(state == READ),
      .credit_i(credit)
  );
`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    assert (clear_i || !(made && spare_valid))
    else $error("rx_scout: a plan without room");
  end
`endif
  assign plan_position_o = oldest.position;
  assign plan_too_long_o = oldest.too_long;
  assign plan_has_data_o = oldest.has_data;
  assign plan_new_poly_o = oldest.new_poly;
  assign plan_header_o = oldest.header;
  assign plan_data_o = oldest.data;
endmodule
`default_nettype wire
