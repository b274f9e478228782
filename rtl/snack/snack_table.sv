// The SNACK table of a connection: groups of PDUs that are missing, and DataACKs that are owed (RFC 7143 11.16).
//
//   losses, arrivals, ends of tasks, time --> [ one sweep ] --> answer
//                                              ^       |
//                                              |       v
//                                          [ sweep_queue: entries in the order in which they were made ]
//                                              |       ^
//   transmit queue <-- due ids ----------------+       +------------- taken by the transmit module
//
//   IDLE --> SWEEP --> (ADD) --> IDLE          one operation
//     |        ^
//     |        +--> SWEEP                      RELEASE: first the holes of the task, then its DataACKs
//     +--> ADD --> IDLE                        OWE
//
// A group is a run of numbers that are missing together. It waits for its deadline, then one SNACK requests all of it. A number that arrives
// leaves its group; a group that is empty is forgotten. Every operation looks at each entry once, in order: losses are rare.
//
// An entry has an id only while it is in the transmit queue. An id is free again when the transmit module has asked for it, whether or
// not its entry still exists.
`default_nettype none
module snack_table
  import snack_pkg::*;
#(
    parameter int unsigned Entries = 256,
    // Entries that one PDU can add.
    parameter int unsigned PerPdu  = 4
) (
    input  wire          clk,
    input  wire          rst,
    // One operation; taken with `ready_o`, answered by one cycle of `answer_o`.
    input  wire          valid_i,
    output logic         ready_o,
    input  operation_t   operation_i,
    // Type and tag are its key; the rest as the operation says.
    input  entry_t       entry_i,
    output logic         answer_o,
    // FIND and FILL: there is such a group; its state; whether a PDU at these offsets may be its missing number.
    output logic         found_o,
    output state_t       found_state_o,
    output logic         admits_o,
    // FIND: there is any group with this key.
    output logic         has_any_o,
    // An entry has become due.
    output logic         due_valid_o,
    input  wire          due_ready_i,
    output logic [  7:0] due_id_o,
    // The transmit module makes the PDU of an entry that was due; without `take_wanted_o` nothing of it is missing any more.
    input  wire          take_i,
    input  wire  [  7:0] take_id_i,
    output logic         take_answer_o,
    output logic         take_wanted_o,
    output entry_t       taken_o,
    // The first status that is missing, and the earliest deadline of an entry that waits; all ones: there is none.
    output logic         status_missing_o,
    output logic [ 31:0] missing_status_o,
    output logic [ 63:0] deadline_o,
    // What one PDU can add has room.
    output logic         has_room_o,
    // The entry at this place, in the order in which they were made; the answer comes three cycles later, while nothing else goes on.
    input  wire  [$clog2(Entries+2):0] peek_at_i,
    output logic         peek_valid_o,
    output entry_t       peek_o
);
  localparam int unsigned Count = $clog2(Entries + 1);
  localparam logic [1:0] DATA = 2'd0, STATUS = 2'd1, DATA_ACK = 2'd2;
  localparam logic [63:0] Never = '1;
  localparam logic [31:0] Unknown = '1;
  typedef enum logic [1:0] {
    IDLE,
    SWEEP,
    ADD
  } step_t;
  step_t step;
  operation_t operation;
  logic takes, second, adds;
  entry_t asked, added, seen, kept;

  function automatic logic precedes(logic [31:0] a, logic [31:0] b);
    logic [31:0] distance;
    distance = b - a;
    return distance != '0 && !distance[31];
  endfunction

  // The entries.
  logic push_ready, entry_valid, sweeping, sweep, hold, drop, unused_settled, unused_nearly_full, begins;
  wire look = sweeping && entry_valid && !hold;
  sweep_queue #(
      .Width($bits(entry_t)),
      .Depth(Entries)
  ) entries (
      .clk,
      .rst,
      .push_valid_i(step == ADD),
      .push_ready_o(push_ready),
      .push_i(added),
      .nearly_full_o(unused_nearly_full),
      .settled_o(unused_settled),
      .valid_o(entry_valid),
      .front_o(seen),
      .pop_i(1'b0),
      .sweep_i(sweep),
      .sweeping_o(sweeping),
      .hold_i(hold),
      .drop_i(drop),
      .keep_i(kept),
      .peek_at_i,
      .peek_valid_o,
      .peek_o
  );
  // The transmit module asks until it has the answer.
  wire asks = step == IDLE && take_i && !take_answer_o;
  assign ready_o = step == IDLE && !asks;
  wire accept = valid_i && ready_o;
  assign begins = accept && operation_i != OWE || asks;
  logic started;
  wire swept = step == SWEEP && !sweeping && started;
  wire again = swept && operation == RELEASE && !takes && !second;
  assign sweep = begins || again;

  // Ids in the transmit queue. Whether the next one is free is known in the cycle after it became the next.
  logic [255:0] in_use;
  logic [7:0] next_id;
  logic id_known, next_is_free;
  wire id_free = id_known && next_is_free;

  // What the sweep does with the entry at hand.
  wire same_key = seen.snack_type == asked.snack_type && seen.itt == asked.itt;
  wire [31:0] ends = seen.beg_run + seen.run_length;
  wire [31:0] ahead = asked.beg_run - seen.beg_run;
  wire [31:0] behind = seen.run_length - ahead - 32'd1;
  wire has_number = same_key && ahead < seen.run_length;
  wire first_fits = ahead == '0 ? asked.begin_offset == seen.begin_offset : asked.begin_offset >= seen.begin_offset;
  wire last_fits = seen.end_offset == Unknown ||
      (behind == '0 ? asked.end_offset == seen.end_offset : asked.end_offset <= seen.end_offset);
  logic hole_known;
  logic [31:0] hole;
  wire continues = same_key && seen.state == WAITING && ends == asked.beg_run;
  wire released = seen.snack_type == DATA_ACK && seen.itt == asked.itt && !(hole_known && precedes(hole, seen.beg_run));
  wire becomes_due = operation == ADVANCE && !takes && seen.state == WAITING && seen.deadline <= asked.deadline;
  wire is_taken = seen.state == DUE && seen.id == asked.id;
  logic hit, splits;
  always_comb begin
    kept   = seen;
    drop   = 1'b0;
    hit    = 1'b0;
    splits = 1'b0;
    if (takes) begin
      hit  = is_taken;
      drop = is_taken && seen.snack_type == DATA_ACK;
      if (is_taken) kept.state = SENT;
    end else
      case (operation)
        LOSE: begin
          hit = continues && !found_o;
          if (hit) begin
            kept.run_length = seen.run_length + asked.run_length;
            kept.end_offset = asked.end_offset;
          end
        end
        FIND: hit = has_number && !found_o;
        FILL: begin
          hit = has_number && !found_o;
          drop = hit && ahead == '0 && behind == '0;
          splits = hit && ahead != '0 && behind != '0;
          if (hit && ahead == '0) begin
            kept.beg_run = asked.beg_run + 32'd1;
            kept.run_length = behind;
            kept.begin_offset = asked.end_offset;
          end else if (hit) begin
            kept.run_length = ahead;
            kept.end_offset = asked.begin_offset;
          end
        end
        FORGET: drop = seen.itt == asked.itt && !(seen.state == DUE && seen.snack_type == DATA_ACK);
        RELEASE: if (second && released && asked.deadline < seen.deadline) kept.deadline = asked.deadline;
        ADVANCE:
        if (becomes_due) begin
          kept.state = DUE;
          kept.id = next_id;
        end
        default: ;
      endcase
  end
  assign hold = becomes_due && !(id_free && due_ready_i);
  assign due_valid_o = sweeping && entry_valid && becomes_due && id_free;
  assign due_id_o = next_id;
  wire id_passes = due_valid_o && due_ready_i || becomes_due && id_known && !next_is_free;

  // What all entries have in common, as of the last sweep.
  logic status_known;
  logic [31:0] status;
  logic [63:0] deadline;
  wire entry_t noted = step == ADD ? added : kept;
  wire unused_fields = &{1'b0, asked, noted};
  wire notes = (step == ADD && push_ready) || (look && !drop);
  wire first_status = noted.snack_type == STATUS && (!status_known || precedes(noted.beg_run, status));
  wire earliest = noted.state == WAITING && noted.deadline < deadline;
  assign status_missing_o = status_known;
  assign missing_status_o = status;
  assign deadline_o = deadline;
  logic [Count-1:0] count;
  assign has_room_o = 32'(count) + PerPdu <= Entries;

  wire adds_after = !takes && (operation == LOSE ? !found_o : adds);
  wire ends_now = (swept && !again && !adds_after) || (step == ADD && push_ready);
  always_ff @(posedge clk) begin
    answer_o <= ends_now && !takes && !rst;
    take_answer_o <= ends_now && takes && !rst;
    if (step == IDLE) begin
      takes <= asks;
      second <= 1'b0;
      adds <= 1'b0;
      operation <= operation_i;
      asked <= entry_i;
      if (asks) asked.id <= take_id_i;
      added <= entry_i;
      found_o <= 1'b0;
      take_wanted_o <= 1'b0;
      has_any_o <= 1'b0;
      hole_known <= 1'b0;
    end
    started <= sweep || (started && step == SWEEP);
    if (look && hit) begin
      found_o <= !takes;
      found_state_o <= seen.state;
      admits_o <= first_fits && last_fits;
      if (takes) begin
        take_wanted_o <= 1'b1;
        taken_o <= seen;
      end
      if (splits) begin
        adds <= 1'b1;
        added <= seen;
        added.beg_run <= asked.beg_run + 32'd1;
        added.run_length <= behind;
        added.begin_offset <= asked.end_offset;
        // The SNACK that is in the transmit queue requests the first part.
        if (seen.state == DUE) added.state <= WAITING;
      end
    end
    if (look && same_key) has_any_o <= 1'b1;
    if (look && operation == RELEASE && !second && seen.snack_type == DATA && seen.itt == asked.itt) begin
      hole_known <= 1'b1;
      if (!hole_known || precedes(seen.beg_run, hole)) hole <= seen.beg_run;
    end
    if (again) second <= 1'b1;
    if (due_valid_o && due_ready_i) in_use[next_id] <= 1'b1;
    if (id_passes) next_id <= next_id + 8'd1;
    id_known <= !id_passes && !rst;
    next_is_free <= !in_use[next_id];
    if (asks) in_use[take_id_i] <= 1'b0;
    if (sweep) begin
      status_known <= 1'b0;
      deadline <= Never;
    end else if (notes) begin
      if (first_status) begin
        status_known <= 1'b1;
        status <= noted.beg_run;
      end
      if (earliest) deadline <= noted.deadline;
    end
    count <= count + Count'(step == ADD && push_ready) - Count'(look && drop);
    case (step)
      IDLE: if (accept || asks) step <= accept && operation_i == OWE ? ADD : SWEEP;
      SWEEP: if (swept && !again) step <= adds_after ? ADD : IDLE;
      default: if (push_ready) step <= IDLE;
    endcase
    if (rst) begin
      step <= IDLE;
      in_use <= '0;
      next_id <= '0;
      count <= '0;
      status_known <= 1'b0;
      deadline <= Never;
    end
  end
`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert (32'(count) <= Entries)
      else $error("snack_table: more entries than there is room for");
      assert (!(asks && !in_use[take_id_i]))
      else $error("snack_table: an id is taken that is not in the transmit queue");
      assert (!(look && !drop && kept.snack_type != DATA_ACK && kept.run_length == '0))
      else $error("snack_table: a group without a number");
    end
  end
`endif
endmodule
`default_nettype wire
