// Recovery within a connection, ErrorRecoveryLevel 1 and 2: what the receive module asks of the SNACK table, statuses that are held back, and
// ExpStatSN (RFC 7143 7.9).
//
//   router --find, apply, settle, forget--> [ steps, the lowest first ] <--> [ snack_table ] --due--> transmit queue
//   time --advance----------------------------^                                 ^  |
//                                                                               |  v
//   transmit module --take--> TAKE --> LOOK --> USER --> REPORT --> answer -----+  SNACK_SENT, DATAACK_SENT
//
//   held: the StatSN of each task whose status has arrived; answers: what the status says, of tasks whose data is missing
//
// ExpStatSN passes no status that is missing, or whose task has not ended. The least of those that are held is known without a search,
// but when it leaves while others are held; then all are looked at, and ExpStatSN waits.
`default_nettype none
module rx_recover
  import engine_pkg::*;
#(
    parameter int unsigned Tasks = 256,
    localparam int unsigned I = $clog2(Tasks)
) (
    input  wire               clk,
    // Power-up.
    input  wire               rst,
    // One cycle: a connection begins, and everything is empty.
    input  wire               open_i,
    // It has ErrorRecoveryLevel 1 or 2; without it nothing here happens.
    input  wire               recovers_i,
    input  wire        [15:0] conn_i,
    input  wire        [31:0] snack_delay_i,
    // Time in microseconds; it is looked at with `advance_i`, one cycle.
    input  wire               advance_i,
    input  wire        [63:0] now_i,
    // The PDU at hand, and its task as it is before the PDU counts.
    input  wire       [383:0] header_i,
    input  wire       [I-1:0] index_i,
    input  wire        [31:0] next_sn_i,
    input  wire        [31:0] next_offset_i,
    input  wire        [31:0] next_stat_sn_i,
    // What to do for it, one cycle each. `busy_o` is on from the next cycle until it is done.
    // Which groups have its numbers?
    input  wire               find_i,
    output found_t            status_o,
    output found_t            data_o,
    // It counts.
    input  wire               apply_i,
    input  losses_t           losses_i,
    // Its data is in host memory. Then `holes_o` says whether anything of the task is missing.
    input  wire               settle_i,
    input  wire               owes_ack_i,
    input  wire               placed_i,
    output logic              holes_o,
    output logic              busy_o,
    // ExpStatSN waits for the least status that is held.
    output logic              searches_o,
    // A status arrives with the PDU, and it is held; what it says is kept.
    input  wire               hold_i,
    input  wire               answer_i,
    input  answer_t           answer_record_i,
    // Of the task `index_i`, from the next cycle on.
    output logic              held_o,
    output logic       [31:0] held_stat_sn_o,
    output logic              answered_o,
    output answer_t           answer_record_o,
    // A task has ended.
    input  wire               end_i,
    input  wire       [I-1:0] end_index_i,
    input  wire        [31:0] end_tag_i,
    // What one PDU can add to the table has room.
    output logic              has_room_o,
    output logic       [31:0] exp_stat_sn_o,
    // The earliest time at which something becomes due; all ones: never.
    output logic       [63:0] deadline_o,
    // The transmit queue.
    output logic              due_valid_o,
    input  wire               due_ready_i,
    output logic       [ 7:0] due_id_o,
    input  wire               take_i,
    input  wire        [ 7:0] take_id_i,
    output logic              take_answer_o,
    output logic              take_wanted_o,
    output tx_pkg::snack_t    taken_o,
    // The task store: who has this tag? Asked until it is taken; the answer comes later.
    output logic              look_o,
    output logic       [31:0] look_tag_o,
    input  wire               look_ready_i,
    input  wire               looked_i,
    input  wire               look_found_i,
    input  wire        [63:0] look_user_i,
    input  wire        [63:0] look_lun_i,
    // SNACK_SENT, DATAACK_SENT.
    output logic              done_valid_o,
    input  wire               done_ready_i,
    output logic      [511:0] done_o,
    // Tables: whether the task at an index is held, and the entry at this place.
    input  wire       [I-1:0] show_index_i,
    output logic              shown_answered_o,
    input  wire        [ 9:0] peek_at_i,
    output logic              peek_valid_o,
    output snack_pkg::entry_t peek_o
);
  localparam logic [1:0] DATA = 2'd0, STATUS = 2'd1, DATA_ACK = 2'd2;
  localparam logic [2:0] GAP = 3'd1, DIGEST = 3'd2, EXP_DATA_SN = 3'd3, A_BIT = 3'd4;
  localparam logic [31:0] NoTag = '1, Unknown = '1;
  localparam logic [63:0] Never = '1;
  // The steps, in their order.
  localparam int unsigned FindStatus = 0, FindData = 1, FillStatus = 2, LoseStatus = 3, FillData = 4, LoseData = 5, Forget = 6, Owe = 7,
      Release = 8, Advance = 9, Holes = 10, Steps = 11;

  // The header.
  wire is_r2t = header_i[5:0] == 6'h31;
  wire [31:0] itt = be32(header_i, 16);
  wire [31:0] stat_sn = be32(header_i, 24);
  wire [31:0] sn = be32(header_i, 36);
  wire [31:0] begin_offset = is_r2t ? '0 : be32(header_i, 40);
  wire [31:0] end_offset = is_r2t ? '0 : be32(header_i, 40) + {8'd0, header_i[47:40], header_i[55:48], header_i[63:56]};

  // The steps that are left, and the one at hand.
  logic [Steps-1:0] todo, next_step, step;
  logic running, table_ready, table_answer, table_found, table_admits, table_any;
  snack_pkg::state_t table_state;
  losses_t losses;
  logic [31:0] stat_from, forgotten;
  logic [63:0] now;
  assign next_step = todo & (~todo + 1'b1);
  wire waits_for_table = todo != '0;
  wire begins = waits_for_table && !running && table_ready;
  wire ends = running && table_answer;
  logic [Steps-1:0] asked;
  always_comb begin
    asked = '0;
    if (find_i) {asked[FindStatus], asked[FindData]} = 2'b11;
    if (apply_i) begin
      asked[FillStatus] = losses_i.status == LOSS_FILL || losses_i.status == LOSS_AGAIN;
      asked[LoseStatus] = losses_i.status == LOSS_LOSE || losses_i.status == LOSS_AGAIN;
      asked[FillData] = losses_i.data == LOSS_FILL || losses_i.data == LOSS_AGAIN;
      asked[LoseData] = losses_i.data == LOSS_LOSE || losses_i.data == LOSS_AGAIN;
      asked[Forget] = losses_i.forgets;
    end
    if (settle_i) begin
      asked[Owe] = owes_ack_i;
      asked[Release] = placed_i;
      asked[Advance] = placed_i;
      asked[Holes] = 1'b1;
    end
    if (end_i) asked[Forget] = 1'b1;
    if (advance_i) asked[Advance] = 1'b1;
    if (!recovers_i) asked = '0;
  end
  always_ff @(posedge clk) begin
    todo <= (begins ? todo & ~next_step : todo) | asked;
    running <= begins || (running && !table_answer);
    if (begins) step <= next_step;
    if (advance_i) now <= now_i;
    if (apply_i) begin
      losses <= losses_i;
      stat_from <= next_stat_sn_i;
      forgotten <= itt;
    end
    if (end_i) forgotten <= end_tag_i;
    if (ends && step[FindStatus]) status_o <= '{found: table_found, sent: table_state == snack_pkg::SENT, admits: table_admits};
    if (ends && step[FindData]) data_o <= '{found: table_found, sent: table_state == snack_pkg::SENT, admits: table_admits};
    if (ends && step[Holes]) holes_o <= table_any;
    if (rst || open_i) begin
      todo <= '0;
      running <= 1'b0;
    end
    if (rst) now <= '0;
  end

  // What a step asks of the table.
  snack_pkg::operation_t operation;
  snack_pkg::entry_t entry;
  wire of_status = next_step[FindStatus] || next_step[FillStatus] || next_step[LoseStatus];
  wire unused_losses = &{1'b0, losses.forgets};
  wire [64:0] later = {1'b0, now} + {33'd0, snack_delay_i};
  always_comb begin
    operation = snack_pkg::FIND;
    entry = '0;
    entry.snack_type = of_status ? STATUS : DATA;
    entry.state = snack_pkg::WAITING;
    entry.itt = of_status ? NoTag : itt;
    entry.beg_run = of_status ? stat_sn : sn;
    entry.run_length = 32'd1;
    entry.begin_offset = of_status ? '0 : begin_offset;
    entry.end_offset = of_status ? '0 : end_offset;
    entry.deadline = later[64] ? Never : later[63:0];
    entry.cause = DIGEST;
    entry.ttt = '1;
    if (next_step[FillStatus] || next_step[FillData]) operation = snack_pkg::FILL;
    if (next_step[LoseStatus] || next_step[LoseData]) operation = snack_pkg::LOSE;
    if (next_step[LoseStatus] && losses.status == LOSS_LOSE) begin
      entry.beg_run = stat_from;
      entry.run_length = stat_sn - stat_from + 32'(losses.status_itself);
      entry.cause = losses.status_itself ? DIGEST : GAP;
    end
    if (next_step[LoseData] && losses.data == LOSS_LOSE) begin
      entry.beg_run = next_sn_i;
      entry.run_length = sn - next_sn_i + 32'(losses.data_itself);
      entry.begin_offset = is_r2t ? '0 : next_offset_i;
      if (!losses.data_itself) entry.end_offset = losses.promised ? Unknown : begin_offset;
      entry.cause = losses.data_itself ? DIGEST : losses.promised ? EXP_DATA_SN : GAP;
    end
    if (next_step[Forget]) begin
      operation = snack_pkg::FORGET;
      entry.itt = forgotten;
    end
    if (next_step[Owe]) begin
      operation = snack_pkg::OWE;
      entry.snack_type = DATA_ACK;
      entry.beg_run = sn + 32'd1;
      entry.run_length = '0;
      entry.begin_offset = '0;
      entry.end_offset = '0;
      entry.deadline = Never;
      entry.cause = A_BIT;
      entry.ttt = be32(header_i, 20);
      entry.lun = header_i[127:64];
    end
    if (next_step[Release]) operation = snack_pkg::RELEASE;
    if (next_step[Advance]) operation = snack_pkg::ADVANCE;
    if (next_step[Release] || next_step[Advance]) entry.deadline = now;
  end

  // The transmit module asks until it has the answer.
  typedef enum logic [2:0] {
    REST,
    TAKE,
    LOOK,
    USER,
    REPORT,
    ANSWER
  } take_t;
  take_t taking;
  snack_pkg::entry_t table_taken, taken;
  logic table_take_answer, table_wanted, wanted, user_known;
  logic [63:0] user, lun;
  always_ff @(posedge clk) begin
    case (taking)
      REST: if (take_i) taking <= TAKE;
      TAKE:
      if (table_take_answer) begin
        wanted <= table_wanted;
        taken  <= table_taken;
        taking <= table_wanted ? LOOK : ANSWER;
      end
      LOOK: if (look_ready_i) taking <= USER;
      USER:
      if (looked_i) begin
        user_known <= look_found_i;
        user <= look_user_i;
        lun <= look_lun_i;
        taking <= REPORT;
      end
      REPORT: if (done_ready_i) taking <= ANSWER;
      default: taking <= REST;
    endcase
    if (rst || open_i) taking <= REST;
  end
  wire unused_taken = &{1'b0, taken};
  wire is_ack = taken.snack_type == DATA_ACK;
  assign look_o = taking == LOOK;
  assign look_tag_o = taken.itt;
  assign take_answer_o = taking == ANSWER;
  assign take_wanted_o = wanted;
  assign taken_o = '{
          snack_type: taken.snack_type,
          itt: taken.itt,
          ttt: taken.ttt,
          lun: !is_ack && user_known ? lun : taken.lun,
          beg_run: taken.beg_run,
          run_length: taken.run_length
      };
  assign done_valid_o = taking == REPORT;
  always_comb begin
    done_o = '0;
    done_o[7:0] = is_ack ? 8'h85 : 8'h84;
    if (!is_ack) done_o[9:8] = taken.snack_type;
    done_o[31:16] = conn_i;
    done_o[63:32] = taken.itt;
    if (user_known) done_o[127:64] = user;
    done_o[159:128] = taken.beg_run;
    done_o[191:160] = is_ack ? taken.ttt : taken.run_length;
  end

  logic status_missing;
  logic [31:0] missing_status;
  snack_table entries (
      .clk,
      .rst(rst || open_i),
      .valid_i(waits_for_table && !running),
      .ready_o(table_ready),
      .operation_i(operation),
      .entry_i(entry),
      .answer_o(table_answer),
      .found_o(table_found),
      .found_state_o(table_state),
      .admits_o(table_admits),
      .has_any_o(table_any),
      .due_valid_o,
      .due_ready_i,
      .due_id_o,
      .take_i(taking == TAKE),
      .take_id_i,
      .take_answer_o(table_take_answer),
      .take_wanted_o(table_wanted),
      .taken_o(table_taken),
      .status_missing_o(status_missing),
      .missing_status_o(missing_status),
      .deadline_o,
      .has_room_o,
      .peek_at_i,
      .peek_valid_o,
      .peek_o
  );

  // Statuses that have arrived.
  logic [31:0] held_numbers[Tasks];
  answer_t answers[Tasks];
  logic [Tasks-1:0] held, answered;
  logic [I:0] held_count;
  logic [31:0] least_held;
  // The search for the least: the entry that is read, one behind.
  logic searching, read_valid;
  logic [I:0] at;
  logic [31:0] read_number, least_read;
  logic least_known;
  wire holds = hold_i && recovers_i;
  wire leaves = end_i && held[end_index_i];
  wire changes = holds && held_o && held_stat_sn_o != stat_sn;
  wire reads_least = read_valid && (!least_known || precedes(read_number, least_read));
  always_ff @(posedge clk) begin
    held_o <= held[index_i];
    held_stat_sn_o <= held_numbers[index_i];
    answered_o <= answered[index_i];
    answer_record_o <= answers[index_i];
    shown_answered_o <= answered[show_index_i];
    if (holds) held_numbers[index_i] <= stat_sn;
    if (holds) held[index_i] <= 1'b1;
    if (answer_i && recovers_i) answers[index_i] <= answer_record_i;
    if (answer_i && recovers_i) answered[index_i] <= 1'b1;
    if (end_i) {held[end_index_i], answered[end_index_i]} <= 2'b00;
    held_count <= held_count + (I + 1)'(holds && !held_o) - (I + 1)'(leaves);
    if (holds && (held_count == '0 || precedes(stat_sn, least_held))) least_held <= stat_sn;
    // One task after the other: nothing is held while a task ends.
    if (changes || (leaves && held_count != (I + 1)'(1)) || (searching && (holds || leaves))) begin
      searching <= 1'b1;
      at <= '0;
      least_known <= 1'b0;
      read_valid <= 1'b0;
    end else if (searching) begin
      at <= at + 1'b1;
      read_valid <= !at[I] && held[at[I-1:0]];
      read_number <= held_numbers[at[I-1:0]];
      if (reads_least) least_read <= read_number;
      if (read_valid) least_known <= 1'b1;
      if (at == (I + 1)'(Tasks + 1)) begin
        searching  <= 1'b0;
        least_held <= least_read;
      end
    end
    if (rst || open_i) begin
      held <= '0;
      answered <= '0;
      held_count <= '0;
      searching <= 1'b0;
      read_valid <= 1'b0;
    end
  end
  assign busy_o = waits_for_table || running;
  assign searches_o = searching;

  // While the table is swept it knows not what it lacks.
  wire [31:0] known = held_count != '0 && precedes(least_held, next_stat_sn_i) ? least_held : next_stat_sn_i;
  always_ff @(posedge clk) begin
    if (!recovers_i || rst || open_i) exp_stat_sn_o <= next_stat_sn_i;
    else if (!busy_o && table_ready && !searching)
      exp_stat_sn_o <= status_missing && precedes(missing_status, known) ? missing_status : known;
  end
`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst && !open_i) begin
      assert (!(holds && end_i))
      else $error("rx_recover: a status arrives while a task ends");
      assert (!(apply_i && busy_o && recovers_i))
      else $error("rx_recover: a PDU counts before the one before it is done");
      assert (32'(held_count) <= Tasks)
      else $error("rx_recover: more statuses are held than there are tasks");
    end
  end
`endif
endmodule
`default_nettype wire
