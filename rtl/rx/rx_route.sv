// The router of the receive module: decides what becomes of each PDU, in the order of the stream (docs/engine-interface.md, "Who
// decides what"), as the software engine does.
//
//   headers --> IDLE --> LOOK --> DECIDE --> (FIND) --> READY --commit--> IDLE
//                ^                             |  |
//                |  (a task ended by MEMORY,   |  +-----------> STOPPED: nothing is decided before a restart
//                |   control wants to end one, |
//                +-- after a wait for room ----+
//                    or for a slot)
//
//   commit --> [ numbers ] [ the task's part ] [ mover's job ] [ finish ]
//
//   finish:  NONE --> MOVING -- data written --> FIRST --> SECOND --> NONE     completions; none, one or two
//                       +------------------------------------------> NONE
//   of a connection that recovers:
//            NONE --> MOVING -- data written --> SETTLE --> SETTLED --> FIRST --> SECOND --> NONE
//                                                  +-----------+----------+--------------> NONE
//
// At ErrorRecoveryLevel 1 and 2 (`recovers_i`) the SNACK table is asked which numbers are missing (FIND), and told what the PDU changes
// (SETTLE); a task ends when nothing of it is missing (SETTLED). Then one PDU is finished before the next is looked at.
//
// At level 0 a PDU is decided on while the data of the one before it is written; so what it says of a task that is about to end is `NO_TASK`,
// and it is decided on again when that data meets a refusal of host memory. Nothing changes before the commit, and a PDU is committed
// when the one before it is finished. PDUs for software are committed alone: their slot is that of the ring's then.
`default_nettype none
module rx_route
  import engine_pkg::*;
#(
    parameter int unsigned Tasks = 256,
    localparam int unsigned I = $clog2(Tasks)
) (
    input  wire               clk,
    input  wire               rst,
    // One cycle: a connection begins, or goes on after a stop.
    input  wire               open_i,
    input  wire               restart_i,
    // The last of a task is being posted, or the transmit side writes what it knows of one.
    input  wire               changed_i,
    // Of the connection; the numbers are read with `open_i`.
    input  wire        [15:0] conn_i,
    input  wire               recovers_i,
    input  wire               header_digest_i,
    input  wire               data_digest_i,
    input  wire        [23:0] max_burst_i,
    input  wire        [ 3:0] max_outstanding_r2t_i,
    input  wire        [63:0] raw_addr_i,
    input  wire        [31:0] raw_slot_bytes_i,
    input  wire        [15:0] raw_slots_i,
    input  wire        [31:0] open_cmd_sn_i,
    input  wire        [31:0] open_max_cmd_sn_i,
    input  wire        [31:0] open_stat_sn_i,
    // Headers.
    input  wire               header_valid_i,
    input  wire       [383:0] header_i,
    input  wire        [ 1:0] verdict_i,
    input  wire        [63:0] position_i,
    output logic              header_pop_o,
    // The task store.
    output logic              look_o,
    output logic       [31:0] look_tag_o,
    input  wire               look_ready_i,
    input  wire               looked_i,
    input  wire               found_i,
    input  wire       [I-1:0] index_i,
    input  task_facts_t       facts_i,
    input  list_t             list_i,
    input  task_rx_t          rx_i,
    input  wire               sent_i,
    input  wire        [31:0] bytes_sent_i,
    input  wire        [ 3:0] bursts_done_i,
    output logic              rx_write_o,
    output task_rx_t          rx_write_task_o,
    output logic              end_o,
    output logic      [I-1:0] end_index_o,
    output logic       [31:0] end_tag_o,
    output list_t             end_list_o,
    // Recovery: see rx_recover.
    output logic              find_o,
    /* verilator lint_off UNUSEDSIGNAL */
    input  found_t            status_group_i,
    /* verilator lint_on UNUSEDSIGNAL */
    input  found_t            data_group_i,
    output logic              apply_o,
    output losses_t           losses_o,
    output logic              settle_o,
    output logic              owes_ack_o,
    output logic              placed_o,
    input  wire               holes_i,
    input  wire               recover_busy_i,
    input  wire               recover_room_i,
    output logic              hold_o,
    output logic              answer_o,
    output answer_t           answer_record_o,
    input  wire               held_i,
    input  wire        [31:0] held_stat_sn_i,
    input  wire               answered_i,
    input  answer_t           answer_record_i,
    // The PDU at hand.
    output logic      [383:0] pdu_o,
    // The walker.
    input  wire               walk_idle_i,
    output logic              walk_flush_o,
    output logic              walk_o,
    output logic              walk_direct_o,
    output logic       [63:0] direct_addr_o,
    output logic       [31:0] direct_length_o,
    output logic       [31:0] direct_second_o,
    output logic       [31:0] walk_offset_o,
    output logic       [31:0] walk_length_o,
    // The mover.
    output logic              job_o,
    output logic              job_header_o,
    output logic              job_writes_o,
    input  wire               job_done_i,
    input  wire               job_fault_i,
    // R2Ts to be answered, of the task `index_i`.
    output logic              r2t_valid_o,
    input  wire               r2t_ready_i,
    // Completions. Nothing is committed while fewer than four have room. A task leaves with its TASK_DONE.
    input  wire               done_room_i,
    output logic              done_valid_o,
    input  wire               done_ready_i,
    output logic      [511:0] done_o,
    output logic              ended_valid_o,
    input  wire               ended_ready_i,
    // Control ends a task: the reply comes after its TASK_DONE.
    input  wire               end_request_i,
    output logic              end_ready_o,
    input  wire        [31:0] end_request_tag_i,
    input  wire        [ 3:0] end_request_result_i,
    output logic              end_reply_valid_o,
    output logic       [ 3:0] end_reply_o,
    // The ring of raw PDUs.
    input  wire               release_i,
    input  wire        [15:0] release_slots_i,
    output logic       [15:0] raw_free_o,
    // Numbers: StatSN is that which is expected next.
    input  wire        [31:0] cmd_sn_i,
    output logic       [31:0] exp_cmd_sn_o,
    output logic       [31:0] max_cmd_sn_o,
    output logic       [31:0] stat_sn_o,
    // Why nothing more is received, and the first position that was not taken.
    output logic              stopped_o,
    output logic       [ 3:0] stop_reason_o,
    output logic       [63:0] taken_o,
    // A PDU is looked at or not finished, or the end of a task by control.
    output logic              busy_o
);
  localparam logic [5:0] NOP_IN = 6'h20, RESPONSE = 6'h21, DATA_IN = 6'h25, R2T = 6'h31;
  localparam logic [1:0] VERDICT_GOOD = 2'd0, BAD_HEADER = 2'd1, TOO_LONG = 2'd2, BAD_DATA = 2'd3;
  localparam logic [31:0] RESERVED = 32'hffff_ffff;
  // DigestAction.
  localparam logic [1:0] DIGEST_STOPPED = 2'd1, DIGEST_SNACK = 2'd2, DIGEST_DROPPED = 2'd3;
  // Bytes of the area for sense data.
  localparam logic [23:0] SenseArea = 24'd256;

  // The header, field by field.
  wire [5:0] opcode = header_i[5:0];
  wire final_bit = header_i[15];
  wire overflow = header_i[10];
  wire underflow = header_i[9];
  wire status_bit = header_i[8];
  wire [7:0] byte2 = header_i[23:16];
  wire [7:0] scsi_status = header_i[31:24];
  wire [7:0] ahs_words = header_i[39:32];
  wire [23:0] data_bytes = {header_i[47:40], header_i[55:48], header_i[63:56]};
  wire [31:0] itt = be32(header_i, 16);
  wire [31:0] ttt = be32(header_i, 20);
  wire [31:0] stat_sn = be32(header_i, 24);
  wire [31:0] sn = be32(header_i, 36);
  wire [31:0] offset = be32(header_i, 40);
  wire [31:0] last_word = be32(header_i, 44);
  wire [10:0] header_bytes = 11'd48 + {1'b0, ahs_words, 2'b00};
  // What is computed from the header alone: in registers, because its task is known some cycles later. In words.
  wire [10:0] header_words = 11'd12 + 11'(ahs_words) + 11'(header_digest_i);
  wire [22:0] data_words = 23'(data_bytes[23:2]) + 23'(data_bytes[1:0] != 2'd0);
  logic [63:0] header_end, pdu_end;
  logic [32:0] data_end, r2t_end;
  logic no_data;
  logic [8:0] sense;
  always_ff @(posedge clk) begin
    header_end <= position_i + {51'd0, header_words, 2'b00};
    pdu_end <= header_end + {39'd0, data_words, 2'b00} + {61'd0, data_digest_i && !no_data, 2'b00};
    data_end <= {1'b0, offset} + {9'd0, data_bytes};
    r2t_end <= {1'b0, offset} + {1'b0, last_word};
    no_data <= data_bytes == '0;
    sense <= data_bytes < SenseArea ? data_bytes[8:0] : SenseArea[8:0];
  end

  typedef enum logic [2:0] {
    IDLE,
    LOOK,
    DECIDE,
    FIND,
    READY,
    STOPPED
  } state_t;
  typedef enum logic [2:0] {
    NONE,
    MOVING,
    SETTLE,
    SETTLED,
    FIRST,
    SECOND
  } finish_t;
  typedef enum logic [2:0] {
    PLACE,
    SENSE,
    ANSWER,
    RAW,
    NOTHING
  } action_t;
  // What was decided.
  typedef struct packed {
    action_t action;
    // The task ends with it.
    logic ends;
    logic takes_stat_sn;
    logic sees_window;
    logic [2:0] raw_reason;
    logic [3:0] stop;
    // 0: none; else a code of DigestAction.
    logic [1:0] digest_error;
    // It waits for a slot of the ring, though it needs none.
    logic needs_slot;
    losses_t losses;
    // Its status is held back until the task is complete.
    logic holds;
    logic owes_ack;
  } decision_t;
  // What is left to report of the PDU whose data is moved, or of the task that control ends.
  typedef struct packed {
    decision_t decision;
    logic [3:0] result;
    // What the status says, if there is one; with this PDU, or before.
    logic answered;
    logic answers;
    answer_t answer;
    logic known;
    logic for_control;
    logic [I-1:0] index;
    logic [31:0] tag;
    logic [63:0] user;
    list_t list;
    logic [31:0] received;
    logic [31:0] received_before;
    logic [31:0] sent;
    logic [63:0] raw_addr;
    logic [63:0] position;
    logic [63:0] taken;
    logic [383:0] header;
  } report_t;

  state_t state;
  finish_t finish;
  report_t report;
  decision_t decided, decision;
  logic walked, for_control, ended_since_look;
  logic [31:0] control_tag;
  logic [3:0] control_result;

  wire fault = finish == MOVING && job_done_i && job_fault_i;

  // Decide: as the software engine does, check by check; the first that fails counts.
  // The task has left, or leaves, with the PDU before: then nobody has this tag.
  wire going = report.index == index_i
      && (ended_since_look || (finish != NONE && (report.decision.ends || report.result != GOOD || fault)));
  wire exists = found_i && !going;
  wire known = exists && sent_i;
  wire both_residuals = overflow && underflow;
  wire bad_status = status_bit && (!final_bit || scsi_status == 8'h02 || both_residuals);
  wire [3:0] r2ts_open = rx_i.r2ts - bursts_done_i;
  // Where its numbers and offsets stand: in registers, from the cycle on that follows the answer about the task. At ErrorRecoveryLevel 0
  // only what is due counts.
  logic stat_sn_due, stat_sn_ahead, stat_sn_old, due, ahead, in_task, r2t_fits, at_next_offset, behind_next_offset, grows;
  always_ff @(posedge clk) begin
    stat_sn_due <= stat_sn == stat_sn_o;
    stat_sn_ahead <= precedes(stat_sn_o, stat_sn);
    stat_sn_old <= precedes(stat_sn, stat_sn_o);
    due <= sn == rx_i.next_sn;
    ahead <= precedes(rx_i.next_sn, sn);
    in_task <= data_end <= {1'b0, facts_i.edtl};
    r2t_fits <= r2t_end <= {1'b0, facts_i.edtl} && last_word <= {8'd0, max_burst_i} && last_word != '0;
    at_next_offset <= offset == rx_i.next_offset;
    behind_next_offset <= offset >= rx_i.next_offset;
    grows <= data_end[31:0] > rx_i.next_offset;
  end
  wire fills = !due && !ahead && data_group_i.found;
  wire duplicate = !due && !ahead && !data_group_i.found;
  wire stat_sn_fills = !stat_sn_due && !stat_sn_ahead && status_group_i.found;
  wire stat_sn_seen = !stat_sn_due && !stat_sn_ahead && !status_group_i.found;
  wire r2t_good = facts_i.writes && !answered_i && no_data && ttt != RESERVED && r2t_fits
      && (r2ts_open < max_outstanding_r2t_i || (recovers_i && duplicate));
  // A status says that no Data-In follows.
  wire offset_fits = due ? !answered_i && at_next_offset : ahead ? !answered_i && behind_next_offset :
      duplicate || data_group_i.admits;
  // What a number that was not taken yet says of the groups.
  wire [1:0] data_loss = due ? LOSS_NONE : ahead ? LOSS_LOSE : LOSS_FILL;
  // Of the status that is held: known a cycle later than the rest, before FIND.
  logic held_same;
  always_ff @(posedge clk) held_same <= held_i && held_stat_sn_i == stat_sn;
  wire takes_status = status_bit && !held_same;
  logic of_target, consumes;
  always_comb begin
    case (opcode)
      NOP_IN, RESPONSE, 6'h22, 6'h23, 6'h24, DATA_IN, 6'h26, R2T, 6'h32, 6'h3f: of_target = 1'b1;
      default: of_target = 1'b0;
    endcase
    case (opcode)
      NOP_IN:  consumes = itt != RESERVED;
      DATA_IN: consumes = status_bit;
      R2T:     consumes = 1'b0;
      default: consumes = of_target;
    endcase
  end
  // A PDU for software; one whose status comes too early is the first after a loss.
  function automatic decision_t raw(input logic [2:0] reason);
    raw = '{action: RAW, raw_reason: reason, sees_window: of_target, default: '0};
    if (consumes && !recovers_i && !stat_sn_due) raw = stop_with(RAW_SEQUENCE, STOP_SEQUENCE);
    else if (consumes && recovers_i && stat_sn_seen) raw = '{action: NOTHING, needs_slot: 1'b1, default: '0};
    else if (consumes) raw = with_status(raw);
  endfunction
  // The number of its status counts.
  function automatic decision_t with_status(input decision_t of);
    with_status = of;
    with_status.takes_stat_sn = stat_sn_due || stat_sn_ahead;
    with_status.losses.status = stat_sn_ahead ? LOSS_LOSE : stat_sn_fills ? LOSS_FILL : LOSS_NONE;
  endfunction
  function automatic decision_t stop_with(input logic [2:0] reason, input logic [3:0] stop);
    stop_with = '{action: RAW, raw_reason: reason, stop: stop, default: '0};
  endfunction
  function automatic decision_t stop_without(input logic [3:0] stop, input logic [1:0] digest_error);
    stop_without = '{action: NOTHING, stop: stop, digest_error: digest_error, default: '0};
  endfunction
  // Its data has a bad digest, and the connection recovers: what can be requested again is lost.
  function automatic decision_t lose();
    lose = '{action: NOTHING, sees_window: 1'b1, digest_error: DIGEST_DROPPED, default: '0};
    if (!recover_room_i) lose = stop_without(STOP_DATA_DIGEST, DIGEST_STOPPED);
    else if (opcode == DATA_IN && known) begin
      if (!in_task || !facts_i.reads || bad_status || !offset_fits) lose = stop_without(STOP_DATA_DIGEST, DIGEST_STOPPED);
      else if (!duplicate) begin
        if (takes_status) lose = with_status(lose);
        lose.digest_error = DIGEST_SNACK;
        lose.holds = status_bit;
        lose.losses.data = !fills ? LOSS_LOSE : data_group_i.sent ? LOSS_AGAIN : LOSS_NONE;
        lose.losses.data_itself = 1'b1;
      end
    end else if (consumes && !stat_sn_seen) begin
      lose.digest_error = DIGEST_SNACK;
      lose.takes_stat_sn = !stat_sn_fills;
      lose.losses.status = !stat_sn_fills ? LOSS_LOSE : status_group_i.sent ? LOSS_AGAIN : LOSS_NONE;
      lose.losses.status_itself = 1'b1;
    end
  endfunction
  decision_t protocol, sequence_, no_task, dropped;
  always_comb begin
    protocol = stop_with(RAW_PROTOCOL, STOP_PROTOCOL);
    sequence_ = stop_with(RAW_SEQUENCE, STOP_SEQUENCE);
    dropped = '{action: NOTHING, sees_window: 1'b1, default: '0};
    no_task = raw(RAW_NO_TASK);
    decision = raw(RAW_OPCODE);
    case (opcode)
      DATA_IN:
      if (ahs_words != '0) decision = protocol;
      else if (!known) decision = no_task;
      else if (!in_task || !facts_i.reads || bad_status) decision = protocol;
      else if (!recovers_i && !due) decision = sequence_;
      else if (!offset_fits) decision = protocol;
      else if (recovers_i && duplicate) decision = dropped;
      else if (!recovers_i && status_bit && !stat_sn_due) decision = sequence_;
      else if (takes_status && stat_sn_seen) decision = protocol;
      else begin
        decision = '{action: PLACE, ends: status_bit, sees_window: 1'b1, holds: status_bit, owes_ack: header_i[14], default: '0};
        if (takes_status) decision = with_status(decision);
        decision.losses.data = data_loss;
      end
      RESPONSE:
      if (ahs_words != '0 || (byte2[7] == 1'b0 && byte2 > 8'd1)) decision = protocol;
      else if (!known) decision = no_task;
      else if (recovers_i && stat_sn_seen && stat_sn_old) decision = dropped;
      else if (both_residuals || answered_i) decision = protocol;
      else if (!recovers_i && !stat_sn_due) decision = sequence_;
      else begin
        decision = with_status('{action: SENSE, ends: 1'b1, sees_window: 1'b1, holds: 1'b1, default: '0});
        decision.losses.forgets = facts_i.writes;
        // ExpDataSN.
        decision.losses.promised = 1'b1;
        if (recovers_i && !facts_i.writes && facts_i.reads && ahead) decision.losses.data = LOSS_LOSE;
      end
      R2T:
      if (ahs_words != '0) decision = protocol;
      else if (!known) decision = no_task;
      else if (!recovers_i && !due) decision = sequence_;
      else if (!r2t_good) decision = protocol;
      else if (recovers_i && duplicate) decision = dropped;
      else begin
        decision = '{action: ANSWER, sees_window: 1'b1, default: '0};
        decision.losses.data = data_loss;
      end
      default: ;
    endcase
    case (verdict_i)
      VERDICT_GOOD: if (recovers_i && !recover_room_i) decision = stop_with(RAW_NO_ROOM, STOP_NO_ROOM);
      BAD_HEADER: decision = stop_without(STOP_HEADER_DIGEST, '0);
      TOO_LONG: decision = stop_without(STOP_DATA_TOO_LONG, '0);
      BAD_DATA: decision = recovers_i ? lose() : stop_without(STOP_DATA_DIGEST, DIGEST_STOPPED);
    endcase
  end

  // What a commit needs.
  wire finish_idle = finish == NONE && !recover_busy_i;
  assign busy_o = !finish_idle || state == LOOK || state == DECIDE || state == FIND;
  logic finish_over;
  wire is_raw = decided.action == RAW;
  wire writes = is_raw || ((decided.action == PLACE || decided.action == SENSE) && !no_data);
  wire slot_free = raw_free_o != '0;
  // Whoever waits for room or for a slot is decided on again when there is some, and when the tables say something else meanwhile: then the
  // PDU may need none.
  wire no_slot = (is_raw || decided.needs_slot) && !slot_free;
  wire waits = finish_idle && (!done_room_i || no_slot);
  logic has_waited, changed;
  wire again = has_waited && finish_idle && (!waits || changed);
  always_ff @(posedge clk) changed <= !rst && (changed_i || (changed && !(look_o && look_ready_i)));
  wire end_wanted = end_request_i && finish_idle;
  wire in_ready = state == READY && !end_wanted && !fault && !restart_i && !has_waited;
  wire walk_now = in_ready && !walked && writes && walk_idle_i && done_room_i && (!is_raw || (finish_idle && slot_free));
  wire commit = in_ready && (walked || !writes || walk_now) && (finish_idle || finish_over) && done_room_i && !no_slot
      && (decided.action != ANSWER || r2t_ready_i);
  logic [63:0] slot;
  assign look_o = state == IDLE && !restart_i && (end_wanted || (header_valid_i && !stopped_o && (!recovers_i || finish_idle)));
  assign look_tag_o = end_wanted ? end_request_tag_i : itt;
  assign end_ready_o = end_wanted && state == IDLE && look_ready_i && !restart_i;
  assign walk_o = walk_now && decided.action == PLACE;
  assign walk_direct_o = walk_now && decided.action != PLACE;
  assign walk_flush_o = state == READY && (end_wanted || fault || again);
  assign walk_offset_o = offset;
  assign walk_length_o = {8'd0, data_bytes};
  assign direct_addr_o = is_raw ? slot : facts_i.sense_addr;
  assign direct_length_o = is_raw ? 32'(header_bytes) : 32'(sense);
  assign direct_second_o = is_raw ? {8'd0, data_bytes} : 32'd0;
  assign job_o = commit;
  assign job_header_o = is_raw;
  assign job_writes_o = writes;
  assign header_pop_o = commit;
  assign r2t_valid_o = commit && decided.action == ANSWER;
  assign rx_write_o = commit && (decided.action == PLACE || decided.action == ANSWER || decided.losses.data == LOSS_LOSE);
  always_comb begin
    rx_write_task_o = rx_i;
    // ExpDataSN is that of the PDU that comes next.
    if (decided.action == SENSE) rx_write_task_o.next_sn = sn;
    else if (due || ahead) rx_write_task_o.next_sn = sn + 32'd1;
    if (decided.action == ANSWER) rx_write_task_o.r2ts = rx_i.r2ts + 4'd1;
    else if (decided.action != SENSE && grows) rx_write_task_o.next_offset = data_end[31:0];
    if (decided.action == PLACE) begin
      rx_write_task_o.bytes_received = rx_i.bytes_received + {8'd0, data_bytes};
      rx_write_task_o.placed = rx_i.placed || !no_data;
    end
  end

  // Recovery.
  assign find_o = state == DECIDE && recovers_i && !for_control;
  assign apply_o = commit && recovers_i;
  assign losses_o = decided.losses;
  assign hold_o = commit && decided.holds;
  wire settles = finish == SETTLE && !recover_busy_i && report.result == GOOD
      && (report.decision.action == PLACE || report.decision.action == SENSE);
  assign settle_o = settles;
  assign placed_o = report.decision.action == PLACE;
  assign owes_ack_o = report.decision.owes_ack;
  assign answer_o = settles && report.answers;
  assign answer_record_o = report.answer;
  assign pdu_o = finish == NONE ? header_i : report.header;

  wire raw_done = finish == MOVING && job_done_i && report.decision.action == RAW;
  wire stop_by_memory = raw_done && job_fault_i;
  always_ff @(posedge clk) begin
    case (state)
      IDLE:
      if (look_o && look_ready_i) begin
        state <= LOOK;
        for_control <= end_wanted;
        control_tag <= end_request_tag_i;
        control_result <= end_request_result_i;
        ended_since_look <= 1'b0;
      end
      LOOK: if (looked_i) state <= DECIDE;
      DECIDE: begin
        decided <= decision;
        walked  <= 1'b0;
        has_waited <= 1'b0;
        state   <= for_control ? IDLE : recovers_i ? FIND : READY;
      end
      FIND: begin
        decided <= decision;
        decided.ends <= 1'b0;
        if (!recover_busy_i) state <= READY;
      end
      READY: begin
        if (walk_now) walked <= 1'b1;
        if (waits) has_waited <= 1'b1;
        if (end_wanted || fault || again) state <= IDLE;
        else if (commit) state <= decided.stop == STOP_NONE ? IDLE : STOPPED;
      end
      default: state <= end_wanted ? IDLE : STOPPED;
    endcase
    if (end_o) ended_since_look <= 1'b1;
    if (stop_by_memory) state <= STOPPED;
    if (rst || open_i || restart_i) state <= IDLE;
  end

  // Numbers: they change with the commit; the window of a PDU for software when it lies in the ring.
  wire window_now = commit && decided.sees_window && !is_raw;
  wire window_late = raw_done && !job_fault_i && report.decision.sees_window;
  wire [31:0] exp_cmd_sn = be32(window_late ? report.header : header_i, 28);
  wire [31:0] max_cmd_sn = be32(window_late ? report.header : header_i, 32);
  wire window_sound = !precedes(max_cmd_sn, exp_cmd_sn - 32'd1);
  wire [15:0] slots_used = raw_slots_i - raw_free_o;
  wire [15:0] released = !release_i ? '0 : release_slots_i < slots_used ? release_slots_i : slots_used;
  logic [15:0] slot_index;
  always_ff @(posedge clk) begin
    if (commit && decided.takes_stat_sn) stat_sn_o <= stat_sn + 32'd1;
    if ((window_now || window_late) && window_sound) begin
      if (precedes(exp_cmd_sn_o, exp_cmd_sn) && (exp_cmd_sn == cmd_sn_i || precedes(exp_cmd_sn, cmd_sn_i)))
        exp_cmd_sn_o <= exp_cmd_sn;
      if (precedes(max_cmd_sn_o, max_cmd_sn)) max_cmd_sn_o <= max_cmd_sn;
    end
    raw_free_o <= raw_free_o + released - 16'(raw_done && !job_fault_i);
    if (raw_done && !job_fault_i) begin
      slot_index <= slot_index + 16'd1 == raw_slots_i ? '0 : slot_index + 16'd1;
      slot <= slot_index + 16'd1 == raw_slots_i ? raw_addr_i : slot + {32'd0, raw_slot_bytes_i};
    end
    if (commit && decided.stop != STOP_NONE) begin
      stopped_o <= 1'b1;
      stop_reason_o <= decided.stop;
      taken_o <= decided.action == RAW || decided.digest_error != '0 ? pdu_end : header_end;
    end
    if (stop_by_memory) begin
      stopped_o <= 1'b1;
      stop_reason_o <= STOP_MEMORY;
      taken_o <= report.taken;
    end
    if (rst || open_i || restart_i) begin
      stopped_o <= rst;
      stop_reason_o <= STOP_NONE;
    end
    if (rst) raw_free_o <= '0;
    if (open_i) begin
      stat_sn_o <= open_stat_sn_i;
      exp_cmd_sn_o <= open_cmd_sn_i;
      max_cmd_sn_o <= open_max_cmd_sn_i;
      raw_free_o <= raw_slots_i;
      slot_index <= '0;
      slot <= raw_addr_i;
    end
  end

  // Finish: completions, and the end of tasks.
  wire memory_fault = job_fault_i && (report.decision.action == PLACE || report.decision.action == SENSE);
  wire ends = report.decision.ends || report.result != GOOD;
  wire has_error = report.decision.digest_error != '0;
  wire two = (has_error || report.decision.action == RAW) && report.decision.stop != STOP_NONE;
  wire quiet = !report.decision.ends && report.decision.action != RAW && report.decision.stop == STOP_NONE && !has_error;
  // The first completion comes with the end of the job; one cycle later after a fault, as the report changes, and of a PDU for
  // software, as its window counts then.
  wire first = finish == FIRST
      || (finish == MOVING && job_done_i && !job_fault_i && !quiet && report.decision.action != RAW && !recovers_i);
  wire leaves = first && ends;
  assign done_valid_o = (first && (!leaves || ended_ready_i)) || finish == SECOND;
  assign ended_valid_o = leaves && done_ready_i;
  wire done_go = done_valid_o && done_ready_i;
  assign end_o = leaves && done_go;
  assign end_index_o = report.index;
  assign end_tag_o = report.tag;
  assign end_list_o = report.list;
  assign finish_over = (finish == MOVING && job_done_i && !job_fault_i && quiet && !recovers_i)
      || (done_go && !(first && two)) && report.decision.stop == STOP_NONE && report.result == GOOD;
  assign end_reply_valid_o = (state == DECIDE && for_control && !found_i) || (report.for_control && end_o);
  assign end_reply_o = end_o ? GOOD : NO_TASK;

  wire answers_now = decided.action == SENSE || (decided.action == PLACE && status_bit);
  answer_t answer_now;
  assign answer_now = '{
          status: scsi_status,
          response: decided.action == SENSE ? byte2 : 8'd0,
          residual_flags: {5'd0, overflow, underflow, 1'b0},
          residual_count: last_word,
          sense: decided.action == SENSE ? sense : 9'd0,
          stat_sn: stat_sn
      };
  always_ff @(posedge clk) begin
    case (finish)
      NONE: ;
      MOVING:
      if (job_done_i) begin
        if (recovers_i) finish <= SETTLE;
        else if (job_fault_i) finish <= FIRST;
        else if (quiet) finish <= NONE;
        else if (done_go) finish <= two ? SECOND : NONE;
        else finish <= FIRST;
        if (memory_fault) begin
          report.result   <= MEMORY;
          report.received <= report.received_before;
          report.answer.sense <= '0;
          if (report.decision.action == PLACE) begin
            report.answered <= answered_i;
            report.answer   <= answer_record_i;
          end
        end
        if (stop_by_memory) begin
          report.decision.action <= NOTHING;
          report.decision.stop   <= STOP_MEMORY;
        end
      end
      SETTLE: if (!recover_busy_i) finish <= settles ? SETTLED : quiet && report.result == GOOD ? NONE : FIRST;
      SETTLED:
      if (!recover_busy_i) begin
        report.decision.ends <= report.answered && !holes_i;
        finish <= report.answered && !holes_i ? FIRST : NONE;
      end
      FIRST:   if (done_go) finish <= two ? SECOND : NONE;
      SECOND:  if (done_go) finish <= NONE;
      default: ;
    endcase
    if (commit) begin
      finish <= MOVING;
      report.decision <= decided;
      report.result <= GOOD;
      report.answers <= answers_now;
      report.answered <= answers_now || answered_i;
      report.answer <= answers_now ? answer_now : answer_record_i;
      report.known <= exists;
      report.for_control <= 1'b0;
      report.index <= index_i;
      report.tag <= itt;
      report.user <= facts_i.user;
      report.list <= list_i;
      report.received <= decided.action == PLACE ? rx_i.bytes_received + {8'd0, data_bytes} : rx_i.bytes_received;
      report.received_before <= rx_i.bytes_received;
      report.sent <= bytes_sent_i;
      report.raw_addr <= slot;
      report.position <= position_i;
      report.taken <= decided.action == RAW || decided.digest_error != '0 ? pdu_end : header_end;
      report.header <= header_i;
    end
    if (state == DECIDE && for_control && found_i) begin
      finish <= FIRST;
      report.decision <= '{action: NOTHING, ends: 1'b1, default: '0};
      report.result <= control_result;
      report.for_control <= 1'b1;
      report.answers <= 1'b0;
      report.answered <= answered_i;
      report.answer <= answer_record_i;
      report.index <= index_i;
      report.tag <= control_tag;
      report.user <= facts_i.user;
      report.list <= list_i;
      report.received <= rx_i.bytes_received;
      report.sent <= bytes_sent_i;
    end
    if (rst || open_i) finish <= NONE;
  end

  // The records, byte by byte as in docs/engine-interface.md.
  localparam logic [7:0] TASK_DONE = 8'h81, RAW_PDU = 8'h82, DIGEST_ERROR = 8'h83, NEED_RESYNC = 8'h86;
  localparam logic [7:0] POST_TASK = 8'h03;
  wire resync_now = finish == SECOND || (report.decision.action == NOTHING && !report.decision.ends && !has_error);
  wire [31:0] report_header_bytes = {22'd0, report.header[39:32], 2'b00} + 32'd48;
  wire boundary_known = report.decision.action == RAW || has_error || report.decision.stop == STOP_MEMORY;
  always_comb begin
    done_o = '0;
    done_o[31:16] = conn_i;
    done_o[63:32] = report.tag;
    if (resync_now) begin
      done_o[7:0] = NEED_RESYNC;
      done_o[11:8] = report.decision.stop;
      done_o[63:32] = '0;
      done_o[128+:64] = report.position;
      done_o[192+:64] = report.taken;
      done_o[256+:64] = boundary_known ? report.taken : '1;
    end else if (has_error) begin
      done_o[7:0] = DIGEST_ERROR;
      done_o[9:8] = report.decision.digest_error;
      done_o[64+:64] = report.known ? report.user : '0;
      done_o[128+:384] = report.header;
    end else if (report.decision.action == RAW) begin
      done_o[7:0] = RAW_PDU;
      done_o[10:8] = report.decision.raw_reason;
      done_o[128+:64] = report.raw_addr;
      done_o[192+:32] = report_header_bytes;
      done_o[224+:24] = {report.header[47:40], report.header[55:48], report.header[63:56]};
      done_o[256+:64] = report.position;
    end else begin
      done_o[7:0] = TASK_DONE;
      done_o[11:8] = report.result;
      done_o[64+:64] = report.user;
      done_o[128+:8] = POST_TASK;
      if (report.answered) begin
        done_o[136+:8] = report.answer.status;
        done_o[144+:8] = report.answer.response;
        done_o[152+:8] = report.answer.residual_flags;
        done_o[160+:32] = report.answer.residual_count;
        done_o[256+:9] = report.answer.sense;
        done_o[288+:32] = report.answer.stat_sn;
      end
      done_o[192+:32] = report.received;
      done_o[224+:32] = report.sent;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst && !open_i) begin
      assert (!commit || verdict_i == VERDICT_GOOD || !writes)
      else $error("rx_route: data is moved whose digest does not match");
      assert (!commit || finish_idle || finish_over)
      else $error("rx_route: a PDU is committed before the one before it is finished");
      assert (!(restart_i && !finish_idle))
      else $error("rx_route: a restart before the stop was reported");
      assert (raw_free_o <= raw_slots_i)
      else $error("rx_route: more free slots than the ring has");
    end
  end
`endif
endmodule
`default_nettype wire
