// The packet generator: decides which PDU is made next, and makes its header.
//
//   descriptors, SNACKs --> [ transmit queue ] --+                      +--> headers
//   R2Ts --> [ R2T table ] --> burst ------------+--> decide, [tx_pkg] --+--> requests of data --> [tx_fetch]
//               ^--- unsolicited data -----------+                      +--> PDUs that are complete
//
//   SETTLE --> DECIDE --> LOOK --> LIMIT --> PLAN --> COMMAND_PDU --> NUMBER --> (UNSOLICITED) --> SETTLE  a command
//                     --> EXTRACT --> (as its kind)                 one that passes those which wait for the window
//                     --> ASK --> SNACK_PDU --> SETTLE              a SNACK
//                     --> RAW_ASK --> RAW_HEADER --> (RAW_DATA) --> SETTLE    a PDU of software
//                     --> LOOK_BURST --> SETTLE                     the next entry of the R2T table, or one that a command has interrupted
//                     --> PURGE --> SETTLE                          a task has ended: what is left of it is taken out of the queues
//                     --> SETTLE                                    a Data-Out
//
// What DECIDE may do was worked out in the cycle before, in registers; SETTLE is that cycle after all that changes it. Before anything is decided
// for another task, the data of the PDUs under way
// has arrived: if host memory refuses a part of it, exactly the PDUs from there on are dropped, and all of them belong to the task
// that ends.
`default_nettype none
module tx_generator
  import engine_pkg::*;
  import tx_pkg::*;
#(
    parameter int unsigned Bytes = 64,
    parameter int unsigned Pdus = 16,
    // Entries of the transmit queue: commands, SNACKs and PDUs of software.
    parameter int unsigned Queued = 576,
    // Entries of the R2T table.
    parameter int unsigned R2ts = 2304
) (
    input  wire                      clk,
    input  wire                      rst,
    // What login has settled; lengths in bytes. `max_send_i` is at most the Tx buffer.
    input  wire                      initial_r2t_i,
    input  wire                      immediate_data_i,
    input  wire  [             16:0] max_send_i,
    input  wire  [             23:0] max_burst_i,
    input  wire  [             23:0] first_burst_i,
    input  wire  [             31:0] exp_stat_sn_i,
    // CmdSN.
    input  wire                      window_open_i,
    input  wire  [             31:0] cmd_sn_i,
    output logic                     take_cmd_sn_o,
    // A PDU may be begun: there is room for what it can complete.
    input  wire                      room_i,
    // What is queued.
    input  wire                      post_valid_i,
    output logic                     post_ready_o,
    input  entry_t                   post_i,
    // The command table: the entry with an index, some cycles later. Without `look_found_i` the task has ended.
    output logic                     look_o,
    output logic [              7:0] look_index_o,
    input  wire                      looked_i,
    input  wire                      look_found_i,
    input  wire  [             31:0] look_tag_i,
    input  task_post_t               look_post_i,
    input  task_tx_t                 look_tx_i,
    input  wire  [         MaxE-1:0] look_first_i,
    // Its part that is written here.
    output logic                     write_o,
    output logic [              7:0] write_index_o,
    output task_tx_t                 write_tx_o,
    input  wire                      r2t_valid_i,
    output logic                     r2t_ready_o,
    input  burst_t                   r2t_i,
    // The SNACK table: the entry that the queue named. The answer comes later; without `snack_wanted_i` no PDU is made.
    output logic                     snack_take_o,
    output logic [              7:0] snack_index_o,
    input  wire                      snack_answer_i,
    input  wire                      snack_wanted_i,
    input  snack_t                   snack_i,
    // PDUs of software: header segments, then data. `raw_numbered_o` selects those that take a CmdSN, a cycle before one is taken.
    output logic                     raw_numbered_o,
    input  wire                      raw_valid_i,
    output logic                     raw_ready_o,
    input  wire                      raw_last_i,
    input  wire  [$clog2(Bytes)-2:0] raw_words_i,
    input  wire  [  8*Bytes-1:0]     raw_data_i,
    // A task has ended: its command and its bursts are taken out of the queues.
    input  wire                      ended_valid_i,
    output logic                     ended_ready_o,
    input  wire  [              7:0] ended_index_i,
    // Host memory has refused a part of this task's memory. Held, and nothing is begun, until the task has ended.
    output logic                     fault_o,
    output logic [             31:0] fault_tag_o,
    // The R2T table: the entry at this place, 0 is served first; the answer comes three cycles later.
    input  wire  [$clog2(R2ts+2):0]  peek_at_i,
    output logic                     peek_valid_o,
    output burst_t                   peek_o,
    output logic [             31:0] peek_sent_o,
    output logic [             31:0] peek_data_sn_o,
    // To tx_fetch.
    output logic                     req_valid_o,
    input  wire                      req_ready_i,
    output logic [         MaxE-1:0] req_first_o,
    output logic [             31:0] req_offset_o,
    output logic [             16:0] req_bytes_o,
    output logic                     req_more_o,
    // The end of its data: of the oldest PDU under way.
    input  wire                      fetched_i,
    input  wire                      fetched_fault_i,
    // To tx_buffer.
    output logic                     header_valid_o,
    input  wire                      header_ready_i,
    output logic                     header_last_o,
    output logic [$clog2(Bytes)-2:0] header_words_o,
    output logic [  8*Bytes-1:0]     header_data_o,
    output logic                     data_is_raw_o,
    input  wire                      data_ready_i,
    output logic                     pdu_valid_o,
    output logic                     pdu_has_data_o,
    output logic                     pdu_drop_o,
    input  wire                      credit_i,
    // Nothing is under way, and nothing can be begun.
    output logic                     idle_o
);
  localparam int unsigned Words = Bytes / 4;
  localparam int unsigned W = $clog2(Bytes) - 1;
  localparam int unsigned HeaderBeats = (48 + Bytes - 1) / Bytes;
  localparam int unsigned HeaderWords = Words > 12 ? 12 : Words;
  localparam int unsigned Places = $clog2(R2ts + 2);
  localparam int unsigned Flights = $clog2(Pdus + 1);
  localparam int unsigned Waiting = $clog2(Queued + 2);
  typedef enum logic [3:0] {
    SETTLE,
    DECIDE,
    LOOK,
    LIMIT,
    PLAN,
    COMMAND_PDU,
    NUMBER,
    UNSOLICITED,
    EXTRACT,
    ASK,
    SNACK_PDU,
    RAW_ASK,
    RAW_HEADER,
    RAW_DATA,
    LOOK_BURST,
    PURGE
  } state_t;
  state_t state;

  // The transmit queue.
  entry_t front, entry;
  entry_t unused_peek;
  logic unused_peek_valid, unused_nearly_full;
  logic queue_settled, queue_valid, queue_ready, queue_pop, queue_sweep, queue_sweeping, queue_drop, extracted;
  logic [Waiting-1:0] unnumbered;
  sweep_queue #(
      .Width($bits(entry_t)),
      .Depth(Queued)
  ) queue (
      .clk,
      .rst,
      .push_valid_i(post_valid_i),
      .push_ready_o(queue_ready),
      .push_i(post_i),
      .nearly_full_o(unused_nearly_full),
      .settled_o(queue_settled),
      .valid_o(queue_valid),
      .front_o(front),
      .pop_i(queue_pop),
      .sweep_i(queue_sweep),
      .sweeping_o(queue_sweeping),
      .hold_i(1'b0),
      .drop_i(queue_drop),
      .keep_i(front),
      .peek_at_i('0),
      .peek_valid_o(unused_peek_valid),
      .peek_o(unused_peek)
  );
  assign post_ready_o = queue_ready;
  wire posts = post_valid_i && post_ready_o;
  wire passes = state == EXTRACT && queue_sweeping && queue_valid && !front.numbered && !extracted;
  logic [7:0] victim;
  assign queue_drop = state == PURGE ? front.kind == COMMAND && front.index == victim : passes;
  wire leaves = queue_pop || (queue_sweeping && queue_valid && queue_drop);

  // The R2T table, and the burst that is being sent.
  burst_t next_burst, unsolicited, burst;
  logic burst_valid, table_settled, table_valid, table_ready, table_nearly_full, table_pop, table_sweep, table_sweeping;
  logic [31:0] burst_sent, burst_data_sn;
  burst_t peek_table;
  logic peek_in_table;
  logic [2:0] peek_at_hand;
  wire adds = state == UNSOLICITED;
  sweep_queue #(
      .Width($bits(burst_t)),
      .Depth(R2ts)
  ) r2t_table (
      .clk,
      .rst,
      .push_valid_i(adds || (r2t_valid_i && r2t_ready_o)),
      .push_ready_o(table_ready),
      .push_i(adds ? unsolicited : r2t_i),
      .nearly_full_o(table_nearly_full),
      .settled_o(table_settled),
      .valid_o(table_valid),
      .front_o(next_burst),
      .pop_i(table_pop),
      .sweep_i(table_sweep),
      .sweeping_o(table_sweeping),
      .hold_i(1'b0),
      .drop_i(next_burst.index == victim),
      .keep_i(next_burst),
      .peek_at_i(peek_at_i - (Places + 1)'(burst_valid)),
      .peek_valid_o(peek_in_table),
      .peek_o(peek_table)
  );
  // R2Ts leave a place for the unsolicited data of a command that was begun: it could not end without.
  assign r2t_ready_o = table_ready && !adds && !table_nearly_full;
  always_ff @(posedge clk) peek_at_hand <= {peek_at_hand[1:0], burst_valid && peek_at_i == '0};
  assign peek_valid_o = peek_at_hand[2] || peek_in_table;
  assign peek_o = peek_at_hand[2] ? burst : peek_table;
  assign peek_sent_o = peek_at_hand[2] ? burst_sent : '0;
  assign peek_data_sn_o = peek_at_hand[2] ? burst_data_sn : '0;

  // The command at hand, and the task whose PDUs are under way: their data has not arrived. All belong to one task.
  task_post_t post;
  wire unused_post = &{1'b0, post.user, post.sense_addr};
  logic [31:0] tag, flight_tag;
  logic [MaxE-1:0] first_element, flight_first;
  logic [7:0] flight_index;
  logic flight_known;
  task_tx_t flight_tx;
  logic looking;
  assign look_o = (state == LOOK || state == LOOK_BURST) && !looking;
  assign look_index_o = state == LOOK ? entry.index : burst.index;
  wire looked = looking && looked_i;

  logic [Flights-1:0] in_flight;
  logic faulted, credit, spend, flies, flown_ends, unused_bytes_known, unused_bytes_credit;
  logic [16:0] flown_bytes;
  wire quiet = in_flight == '0;
  wire drops = faulted || fetched_fault_i;
  // PDUs from their beginning until they have left the buffer: as many as have slots in its queues.
  logic [Flights-1:0] begun;

  // What may be done next. What was posted goes before R2Ts and bursts, also in the cycles in which it is on its way to the front.
  wire may_begin = queue_valid && !table_nearly_full;
  wire may_go = may_begin && (!front.numbered || window_open_i);
  wire may_pass = may_begin && !may_go && unnumbered != '0;
  wire bursts = queue_settled && !may_go && !may_pass;
  wire [31:0] burst_left = burst.length - burst_sent;
  wire burst_fits = burst_left <= 32'(max_send_i);
  wire at_hand = flight_known && flight_index == burst.index;
  wire next_at_hand = flight_known && flight_index == next_burst.index;
  logic wants_data_out, wants_control, wants_pass, wants_burst, wants_resume, next_known;
  logic burst_ends;
  logic [16:0] burst_bytes;
  logic [31:0] burst_at;
  always_ff @(posedge clk) begin
    wants_control <= may_go && quiet;
    wants_pass <= may_pass && quiet;
    wants_burst <= bursts && !burst_valid && table_valid && (quiet || next_at_hand);
    wants_resume <= bursts && burst_valid && !at_hand && quiet;
    wants_data_out <= bursts && burst_valid && at_hand;
    next_known <= next_at_hand;
    burst_ends <= burst_fits;
    burst_bytes <= burst_fits ? 17'(burst_left) : max_send_i;
    burst_at <= burst.offset + burst_sent;
  end

  // And what is done. The task may end, host memory may refuse, and the room may go at any time. Room counts from the cycle on that follows
  // it, so that what came with it has been seen.
  wire disturbed = faulted || ended_valid_i;
  logic had_room;
  always_ff @(posedge clk) had_room <= room_i && !rst;
  wire begins = state == DECIDE && !disturbed && room_i && had_room;
  logic header_idle;
  wire has_means = header_idle && credit;
  wire data_out_go = begins && wants_data_out && has_means && req_ready_i;
  wire control_go = begins && wants_control;
  wire pass_go = begins && wants_pass;
  wire burst_go = begins && wants_burst;
  wire resume_go = begins && wants_resume;
  wire purge_go = state == DECIDE && ended_valid_i && quiet;
  assign queue_pop = control_go;
  assign queue_sweep = pass_go || purge_go;
  // A cycle later, in which nothing is decided: the table lies far from here.
  always_ff @(posedge clk) table_pop <= burst_go && !rst;
  assign table_sweep = purge_go;

  // A command: how much of its data goes with it, and how much follows without an R2T (RFC 7143 13.10).
  wire writes = (post.flags & WRITE) != '0;
  wire is_immediate = (post.flags & IMMEDIATE) != '0;
  // In registers: three comparisons and a difference are too long for one cycle.
  logic [23:0] first_limit, first_burst;
  always_ff @(posedge clk) begin
    first_limit <= first_burst_i < max_burst_i ? first_burst_i : max_burst_i;
    first_burst <= post.edtl < 32'(first_limit) ? 24'(post.edtl) : first_limit;
  end
  wire [16:0] first_pdu = first_burst < 24'(max_send_i) ? 17'(first_burst) : max_send_i;
  logic [16:0] immediate;
  // `immediate` is not zero. In a register of its own: the comparison would be in the way of the choice.
  logic has_immediate;
  logic [23:0] follows;
  wire command_go = state == COMMAND_PDU && has_means && (!has_immediate || req_ready_i);
  snack_t snack;
  wire snack_go = state == SNACK_PDU && has_means;

  // PDUs of software.
  logic raw_first, raw_has_data;
  wire has_data_now = {raw_data_i[47:40], raw_data_i[55:48], raw_data_i[63:56]} != '0;
  wire has_data = raw_first ? has_data_now : raw_has_data;
  wire raw_header_go = state == RAW_HEADER && raw_valid_i && header_idle && header_ready_i && (!raw_first || credit);
  wire raw_data_go = state == RAW_DATA && raw_valid_i && data_ready_i;
  wire raw_over = raw_header_go && raw_last_i && !has_data || raw_data_go && raw_last_i;
  // The buffer hears of it a cycle later: whether there is data falls out of the beat at hand.
  logic raw_ended, raw_ended_with_data;
  always_ff @(posedge clk) begin
    raw_ended <= raw_over && !rst;
    raw_ended_with_data <= raw_data_go;
  end
  assign raw_ready_o = raw_header_go || raw_data_go;
  assign raw_numbered_o = entry.numbered;
  assign data_is_raw_o = state == RAW_DATA;

  assign flies = data_out_go || (command_go && has_immediate);
  assign spend = data_out_go || command_go || snack_go || (raw_header_go && raw_first);
  logic follows_burst;
  assign req_valid_o = flies;
  assign req_first_o = state == DECIDE ? flight_first : first_element;
  assign req_offset_o = state == DECIDE ? burst_at : 32'd0;
  assign req_bytes_o = state == DECIDE ? burst_bytes : immediate;
  assign req_more_o = state == DECIDE && follows_burst;
  credit_fifo #(
      .Width(18),
      .Depth(Pdus)
  ) under_way (
      .clk,
      .rst,
      .push_i(flies),
      .data_i({state == DECIDE && burst_ends && burst.ttt != '1, req_bytes_o}),
      .credit_o(unused_bytes_credit),
      .valid_o(unused_bytes_known),
      .data_o({flown_ends, flown_bytes}),
      .pop_i(fetched_i)
  );
  assign pdu_valid_o = fetched_i || (command_go && !has_immediate) || snack_go || raw_ended;
  assign pdu_has_data_o = fetched_i || (raw_ended && raw_ended_with_data);
  assign pdu_drop_o = fetched_i && drops;

  wire numbered_now = state == NUMBER && quiet && !faulted;
  assign take_cmd_sn_o = (numbered_now && !is_immediate) || (raw_over && entry.numbered);
  assign fault_o = faulted && quiet;
  assign fault_tag_o = flight_tag;
  wire purged = state == PURGE && !queue_sweeping && !table_sweeping;
  assign ended_ready_o = purged;

  // What the command table learns. The command's own PDU is counted when it has its number.
  wire progresses = fetched_i && !drops && state != NUMBER;
  assign write_o = numbered_now || progresses;
  assign write_index_o = flight_index;
  logic [31:0] exp_stat_sn;
  always_comb begin
    write_tx_o = flight_tx;
    if (numbered_now)
      write_tx_o =
          '{sent: 1'b1, cmd_sn: cmd_sn_i, exp_stat_sn: exp_stat_sn, bytes_sent: 32'(immediate), bursts_done: '0};
    else begin
      write_tx_o.bytes_sent  = flight_tx.bytes_sent + 32'(flown_bytes);
      write_tx_o.bursts_done = flight_tx.bursts_done + 4'(flown_ends);
    end
  end
  assign unsolicited =
      '{index: entry.index, ttt: '1, lun: post.lun, r2t_sn: '0, offset: 32'(immediate), length: 32'(follows)};
  assign idle_o = (state == DECIDE || state == SETTLE) && begun == '0 && header_idle && !disturbed && queue_settled && table_settled && !table_pop &&
      !(room_i && (may_go || may_pass || burst_valid || table_valid));

  // The state in which an entry of the queue goes on.
  function automatic state_t first_state(kind_t kind);
    unique case (kind)
      COMMAND: return LOOK;
      SNACK: return ASK;
      default: return RAW_ASK;
    endcase
  endfunction

  always_ff @(posedge clk) begin
    unique case (state)
      SETTLE: state <= DECIDE;
      DECIDE: begin
        extracted <= 1'b0;
        raw_first <= 1'b1;
        if (purge_go) begin
          victim <= ended_index_i;
          state  <= PURGE;
        end else if (control_go) begin
          entry <= front;
          state <= first_state(front.kind);
        end else if (pass_go) state <= EXTRACT;
        else if (burst_go) begin
          burst <= next_burst;
          burst_sent <= '0;
          burst_data_sn <= '0;
          follows_burst <= 1'b0;
          burst_valid <= next_known;
          state <= next_known ? SETTLE : LOOK_BURST;
        end else if (resume_go) state <= LOOK_BURST;
        else if (data_out_go) begin
          burst_sent <= burst_sent + 32'(burst_bytes);
          burst_data_sn <= burst_data_sn + 32'd1;
          burst_valid <= !burst_ends;
          follows_burst <= 1'b1;
          state <= SETTLE;
        end
      end
      EXTRACT: begin
        if (passes) begin
          entry <= front;
          extracted <= 1'b1;
        end
        if (!queue_sweeping) state <= first_state(entry.kind);
      end
      LOOK:
      if (looked) begin
        post <= look_post_i;
        tag <= look_tag_i;
        first_element <= look_first_i;
        state <= look_found_i ? LIMIT : SETTLE;
      end
      // The first burst of the command is known in the next cycle.
      LIMIT: state <= PLAN;
      PLAN: begin
        immediate <= immediate_data_i && writes ? first_pdu : '0;
        has_immediate <= immediate_data_i && writes && first_burst != '0 && max_send_i != '0;
        follows <= !writes || initial_r2t_i ? '0 : first_burst - (immediate_data_i ? 24'(first_pdu) : '0);
        state <= COMMAND_PDU;
      end
      COMMAND_PDU:
      if (command_go) begin
        exp_stat_sn <= exp_stat_sn_i;
        flight_index <= entry.index;
        flight_tag <= tag;
        flight_first <= first_element;
        flight_known <= 1'b1;
        if (has_immediate) follows_burst <= 1'b0;
        state <= NUMBER;
      end
      NUMBER:  if (quiet) state <= faulted || follows == '0 ? SETTLE : UNSOLICITED;
      UNSOLICITED: if (table_ready) state <= SETTLE;
      ASK:
      if (snack_answer_i) begin
        snack <= snack_i;
        state <= snack_wanted_i ? SNACK_PDU : SETTLE;
      end
      SNACK_PDU: if (snack_go) state <= SETTLE;
      // The selection is out.
      RAW_ASK: state <= RAW_HEADER;
      RAW_HEADER:
      if (raw_header_go) begin
        raw_first <= 1'b0;
        raw_has_data <= has_data;
        if (raw_last_i) state <= has_data ? RAW_DATA : SETTLE;
      end
      RAW_DATA: if (raw_over) state <= SETTLE;
      LOOK_BURST:
      if (looked) begin
        flight_index <= burst.index;
        flight_tag <= look_tag_i;
        flight_first <= look_first_i;
        flight_known <= look_found_i;
        flight_tx <= look_tx_i;
        follows_burst <= 1'b0;
        burst_valid <= look_found_i;
        state <= SETTLE;
      end
      PURGE: begin
        if (burst.index == victim) burst_valid <= 1'b0;
        if (flight_index == victim) flight_known <= 1'b0;
        if (purged) state <= SETTLE;
      end
      default: state <= SETTLE;
    endcase
    looking <= look_o || (looking && !looked_i);
    if (write_o) flight_tx <= write_tx_o;
    if (spend != credit_i) begun <= begun + {{Flights - 1{credit_i}}, 1'b1};
    credit <= credit_i || begun < Flights'(Pdus - 1) || (credit && !spend);
    in_flight <= in_flight + Flights'(flies) - Flights'(fetched_i);
    unnumbered <= unnumbered + Waiting'(posts && !post_i.numbered) - Waiting'(leaves && !front.numbered);
    faulted <= (faulted || (fetched_i && fetched_fault_i)) && !(purged && flight_index == victim);
    if (rst) begin
      state <= SETTLE;
      in_flight <= '0;
      begun <= '0;
      credit <= 1'b1;
      unnumbered <= '0;
      faulted <= 1'b0;
      burst_valid <= 1'b0;
      extracted <= 1'b0;
      flight_known <= 1'b0;
      looking <= 1'b0;
    end
  end

  assign snack_take_o  = state == ASK;
  assign snack_index_o = entry.index;

  // Headers: those made here in beats, those of software with the numbers that are the engine's.
  header_t made, header;
  logic [$clog2(HeaderBeats+1)-1:0] beats_left;
  assign header_idle = beats_left == '0;
  wire makes = data_out_go || command_go || snack_go;
  always_comb begin
    made = snack_request(snack, exp_stat_sn_i);
    if (state == COMMAND_PDU)
      made = scsi_command(post.flags, post.attr, post.priority_, post.lun, tag, post.edtl, post.cdb, follows == '0,
                          24'(immediate), cmd_sn_i, exp_stat_sn_i);
    if (state == DECIDE)
      made = data_out(burst.lun, flight_tag, burst.ttt, burst_ends, 24'(burst_bytes), exp_stat_sn_i, burst_data_sn,
                      burst_at);
  end
  always_ff @(posedge clk) begin
    // What is in it before a PDU is made does not matter. So the choice whether one is made is not in its way.
    if (header_idle) header <= made;
    else if (header_ready_i) header <= header_t'({{8 * Bytes{1'b0}}, header} >> (8 * Bytes));
    if (rst) beats_left <= '0;
    else if (makes) beats_left <= ($clog2(HeaderBeats + 1))'(HeaderBeats);
    else if (!header_idle && header_ready_i) beats_left <= beats_left - 1'b1;
  end
  // CmdSN and ExpStatSN are words 6 and 7.
  logic [$clog2(HeaderBeats+1)-1:0] raw_beat;
  wire numbers_here = raw_beat == ($clog2(HeaderBeats + 1))'(24 / Bytes);
  logic [8*Bytes-1:0] raw_header;
  always_comb begin
    raw_header = raw_data_i;
    if (numbers_here) begin
      if (entry.counts) raw_header[32*(6%Words)+:32] = wire32(cmd_sn_i);
      raw_header[32*(7%Words)+:32] = wire32(exp_stat_sn_i);
    end
  end
  always_ff @(posedge clk) begin
    if (state != RAW_HEADER) raw_beat <= '0;
    else if (raw_header_go && raw_beat != '1) raw_beat <= raw_beat + 1'b1;
  end
  wire is_raw = state == RAW_HEADER && header_idle;
  assign header_valid_o = is_raw ? raw_valid_i && (!raw_first || credit) : !header_idle;
  assign header_last_o = is_raw ? raw_last_i : beats_left == ($clog2(HeaderBeats + 1))'(1);
  assign header_words_o = is_raw ? raw_words_i : W'(HeaderWords);
  assign header_data_o = is_raw ? raw_header : (8 * Bytes)'(header);
`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert (!(spend && !credit) && !(credit_i && begun == '0))
      else $error("tx_generator: a credit that does not exist");
      assert (!(fetched_i && quiet))
      else $error("tx_generator: data arrives that belongs to no PDU");
      assert (!flies || quiet || (data_out_go && burst.index == flight_index))
      else $error("tx_generator: PDUs of two tasks are under way");
      assert (!(raw_ended && (fetched_i || command_go || snack_go)) && !(fetched_i && (command_go || snack_go)))
      else $error("tx_generator: two PDUs become complete at once");
      assert (!take_cmd_sn_o || window_open_i)
      else $error("tx_generator: a number is taken while the window is closed");
      assert (!data_out_go || burst_left != '0)
      else $error("tx_generator: a Data-Out of nothing");
      assert (state != COMMAND_PDU || has_immediate == (immediate != '0))
      else $error("tx_generator: has_immediate is not what immediate says");
    end
  end
`endif
endmodule
`default_nettype wire
