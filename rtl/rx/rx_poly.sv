// Changes of the polynomial on the receive side, at 64 bit: each waits for its place in the stream.
//
//   set --> [ waits ] -- the next PDU begins behind it --> DUE -- its lengths were read --> MOVES -- its first beat is at the CRC units --> NONE
//
// The next PDU is that whose lengths are read next. One change is due or moves, another can wait. A change that comes while one waits takes its
// place, if no PDU can begin between the two: a PDU has 48 bytes at least. Else it is refused (`full_o`): the lengths of a PDU were not read
// though its header is there, so the PDUs before it wait.
`default_nettype none
module rx_poly
  import crc_pkg::*;
(
    input  wire                clk,
    input  wire                rst,
    // One cycle: changes under way are dropped; if there was one, or `set_i`, `poly_i` is due.
    input  wire                restart_i,
    // One cycle, and not in two one after the other, because `full_o` knows of the first only in the second. Not where `full_o` was on the cycle
    // before, unless a restart comes before the next PDU. The polynomial stays until the next.
    input  wire                set_i,
    input  polynomial_t        poly_i,
    // Positions: behind what was accepted, with this cycle's beat and without it, and where the next PDU begins.
    input  wire         [63:0] accepted_i,
    input  wire         [63:0] accepted_before_i,
    input  wire         [63:0] next_i,
    // The lengths of the next PDU have been read: it has what is due.
    input  wire                planned_i,
    // The first beat of the PDU whose change moves is at the CRC units.
    input  wire                arrives_i,
    // The lengths of the next PDU must not be read yet.
    output logic               hold_o,
    output logic               due_o,
    output polynomial_t        poly_o,
    output logic               full_o
);
  // Three beats can be accepted since `begun` was computed: those of its cycle, of the cycle of `full_o`, and of that of `set_i`.
  localparam logic [63:0] Bhs = 64'd48, Late = 64'd24;
  typedef enum logic [1:0] {
    NONE,
    DUE,
    MOVES
  } state_t;
  state_t state;
  logic waits, begun;
  logic [63:0] from;
  polynomial_t waiting;
  wire reached = waits && from <= next_i;
  wire fetch = reached && state != MOVES;
  assign hold_o = reached;
  assign due_o = state == DUE;
  assign full_o = waits && !fetch && (reached || begun);
  always_ff @(posedge clk) begin
    begun <= accepted_before_i + Late > next_i + Bhs;
    waits <= set_i || (waits && !fetch);
    if (set_i) begin
      from <= accepted_i;
      waiting <= poly_i;
    end
    if (fetch) begin
      state  <= DUE;
      poly_o <= waiting;
    end else if (planned_i && due_o) state <= MOVES;
    else if (arrives_i) state <= NONE;
    if (rst || restart_i) begin
      waits <= 1'b0;
      state <= !rst && (set_i || waits || state != NONE) ? DUE : NONE;
      poly_o <= poly_i;
    end
  end
`ifndef SYNTHESIS
  logic set_before;
  always_ff @(posedge clk) begin
    set_before <= set_i && !rst;
    if (!rst) begin
      assert (!(set_i && set_before))
      else $error("rx_poly: a change right after another");
      assert (!(planned_i && reached))
      else $error("rx_poly: the lengths of a PDU were read before its polynomial was known");
      assert (!arrives_i || state == MOVES)
      else $error("rx_poly: a change arrives that nobody has sent");
    end
  end
`endif
endmodule
`default_nettype wire
