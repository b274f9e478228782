// Changes of the polynomial, for every stream and every change: the PDU that begins at one arbitrary position is followed.
//
//   set, beats, lengths --> [ rx_poly ] --polynomial of each PDU--> that of the last change that was made where the stream was not yet behind
//                                                                   the beginning of the PDU: `expected`
//
// As the position is arbitrary, what holds for the PDU there holds for all. A restart is not part of it.
`default_nettype none
module rx_poly_proof
  import crc_pkg::*;
(
    input wire                clk,
    input wire                rst,
    input wire                set_i,
    input polynomial_t        poly_i,
    // Bytes of the stream that are accepted in this cycle.
    input wire         [ 3:0] more_i,
    // The lengths of the next PDU were read, and it has so many bytes.
    input wire                planned_i,
    input wire         [23:0] length_i,
    input wire                arrives_i,
    // A position at which a PDU begins: arbitrary, and always the same.
    input wire         [63:0] watched
);
  localparam logic [63:0] Bhs = 64'd48, Far = 64'd1 << 40;
  logic [63:0] accepted, accepted_before, next_;
  logic hold, due, full;
  polynomial_t poly;
  rx_poly changes (
      .clk,
      .rst,
      .restart_i(1'b0),
      .set_i,
      .poly_i,
      .accepted_i(accepted),
      .accepted_before_i(accepted_before),
      .next_i(next_),
      .planned_i,
      .arrives_i,
      .hold_o(hold),
      .due_o(due),
      .poly_o(poly),
      .full_o(full)
  );
  logic begun = 1'b0, full_before, set_before;
  logic [63:0] always_watched;
  // What the PDU at `watched` must have, and what the CRC units have after the last PDU that was planned.
  polynomial_t expected, carried;
  wire [63:0] after = next_ + {40'd0, length_i};
  wire begins = next_ == watched || watched >= next_ + Bhs;

  always_ff @(posedge clk) begin
    begun <= 1'b1;
    assume (rst == !begun);
    always_watched <= watched;
    if (begun) assume (watched == always_watched);
    if (!begun) assume (watched == 64'd0 || watched >= Bhs);
    // No position wraps around.
    assume (watched < Far);
    full_before <= full && !rst;
    set_before <= set_i && !rst;
    accepted <= rst ? 64'd0 : accepted + {60'd0, more_i};
    accepted_before <= rst ? 64'd0 : accepted;
    next_ <= rst ? 64'd0 : planned_i ? after : next_;
    if (rst || (set_i && accepted <= watched)) expected <= poly_i;
    if (rst) carried <= poly_i;
    else if (planned_i && due) carried <= poly;
    if (begun) begin
      assume (more_i <= 4'd8 && accepted < Far && next_ < Far);
      assume (!(set_i && (full_before || set_before)));
      // The header of a PDU is there before its lengths are read, and no PDU lies across the one that is followed.
      assume (!planned_i || (!hold && next_ + Bhs <= accepted && {40'd0, length_i} >= Bhs));
      assume (!planned_i || next_ >= watched || after == watched || watched >= after + Bhs);
      // The state is MOVES; the frontend fails at a constant of an instance.
      assume (!arrives_i || changes.state == 2'd2);

      // The PDU has its polynomial, and the change travels with it if the CRC units have another one.
      if (planned_i && next_ == watched) assert (poly == expected);
      if (planned_i && !due) assert (carried == poly);
      // Until then what it will have is due, in effect, or waits for it.
      assert (next_ > watched || begins);
      if (next_ <= watched) assert (expected == (changes.waits && changes.from <= watched ? changes.waiting : poly));
      assert (due || carried == poly);
      assert (!changes.waits || changes.from <= accepted);
    end
  end
endmodule
`default_nettype wire
