// The receive side of the engine for one connection: bytes of the stream in, host memory, completions and R2Ts out.
//
//   stream --> [rx_checked] --> [rx_feed] --headers--> [rx_route] <--> [task_store] <--> control, transmit
//                                   |                    |  |  |
//                                   |            [rx_walk]  |  R2Ts, completions, numbers
//                                   |                |      |
//                                   +--beats--> [rx_move]  [rx_recover] <--> SNACKs of the transmit side
//                                                    |
//                                                    v
//                                               host memory
//
// At ErrorRecoveryLevel 0 what is lost, or has a bad digest, stops the connection; above, rx_recover requests it.
`default_nettype none
module rx_engine
  import engine_pkg::*;
#(
    // Bytes of a beat: 64 or 8.
    parameter int unsigned Bytes = 64,
    // Largest data segment: 4096 or 65536.
    parameter int unsigned BufferBytes = 65536,
    parameter int unsigned Tasks = 256,
    // Elements of all scatter/gather lists together.
    parameter int unsigned Elements = 1024,
    parameter logic [31:0] Poly = 32'h82f6_3b78,
    localparam int unsigned I = $clog2(Tasks)
) (
    input  wire                      clk,
    input  wire                      rst,
    // Connection. OPEN_CONN: one cycle; all tables are empty then, and the stream begins at position 0. RESYNC: one cycle; the next beat
    // begins with a PDU at this position. Everything but `open_*_i` is constant while the connection is open; `max_data_i`
    // may change while no PDU is under way.
    input  wire                      open_i,
    input  wire                      restart_i,
    input  wire  [             63:0] restart_position_i,
    input  wire  [             15:0] conn_i,
    // ErrorRecoveryLevel is 1 or 2, and how long a SNACK waits, in microseconds.
    input  wire                      recovers_i,
    input  wire  [             31:0] snack_delay_i,
    // One cycle: time, in microseconds since any moment.
    input  wire                      advance_i,
    input  wire  [             63:0] now_i,
    input  wire                      header_digest_i,
    input  wire                      data_digest_i,
    input  wire  [             23:0] max_data_i,
    // SET_POLY, and OPEN_CONN, at 64 bit only: PDUs that begin behind what was accepted have this polynomial (see rx_poly).
    input  wire                      set_poly_i,
    input  crc_pkg::polynomial_t     poly_i,
    output logic                     poly_full_o,
    input  wire  [             23:0] max_burst_i,
    input  wire  [              3:0] max_outstanding_r2t_i,
    input  wire  [             63:0] raw_addr_i,
    input  wire  [             31:0] raw_slot_bytes_i,
    input  wire  [             15:0] raw_slots_i,
    input  wire  [             31:0] open_cmd_sn_i,
    input  wire  [             31:0] open_max_cmd_sn_i,
    input  wire  [             31:0] open_stat_sn_i,
    // Stream: the lowest `count_i` bytes of a beat exist, 1 to `Bytes`.
    input  wire                      valid_i,
    output logic                     ready_o,
    input  wire  [  $clog2(Bytes):0] count_i,
    input  wire  [      8*Bytes-1:0] data_i,
    // Host memory: a run is announced; the host answers later, in order, whether it refuses it.
    output logic                     run_valid_o,
    input  wire                      run_ready_i,
    output logic [             63:0] run_addr_o,
    output logic [             31:0] run_length_o,
    input  wire                      answer_valid_i,
    input  wire                      answer_refused_i,
    // Host memory: `count` bytes of the beat, from byte `first` on, go to `addr`.
    output logic                     write_valid_o,
    input  wire                      write_ready_i,
    output logic [             63:0] write_addr_o,
    output logic [$clog2(Bytes)-1:0] write_first_o,
    output logic [  $clog2(Bytes):0] write_count_o,
    output logic [      8*Bytes-1:0] write_data_o,
    // Completions. `done_room_i`: four of them have room.
    input  wire                      done_room_i,
    output logic                     done_valid_o,
    input  wire                      done_ready_i,
    output logic [            511:0] done_o,
    // The ring of raw PDUs.
    input  wire                      release_i,
    input  wire  [             15:0] release_slots_i,
    output logic [             15:0] raw_free_o,
    // Numbers. `cmd_sn_i` is the next CmdSN of the transmit side.
    input  wire  [             31:0] cmd_sn_i,
    output logic [             31:0] exp_cmd_sn_o,
    output logic [             31:0] max_cmd_sn_o,
    // StatSN that is expected next, and ExpStatSN as it is sent.
    output logic [             31:0] stat_sn_o,
    output logic [             31:0] exp_stat_sn_o,
    // When the earliest SNACK is due; all ones: none waits.
    output logic [             63:0] deadline_o,
    // A stop, its reason, and the position behind the last byte that counts: bytes behind it are to be given again.
    output logic                     stopped_o,
    output logic [              3:0] stop_reason_o,
    output logic [             63:0] taken_o,
    // A PDU is not finished: its data moves, or a completion waits. Or ExpStatSN is being searched, or the tables are being emptied.
    output logic                     busy_o,
    // Requests of control, one at a time; the reply comes some cycles later. END_TASK is ABORT of a task, or MEMORY of the transmit side:
    // its TASK_DONE is out before the reply. For the others see task_store.
    input  wire                      request_valid_i,
    output logic                     request_ready_o,
    input  request_t                 request_i,
    input  wire  [             31:0] request_tag_i,
    input  wire  [            I-1:0] request_index_i,
    input  wire  [              3:0] request_result_i,
    input  task_post_t               request_post_i,
    input  wire  [             63:0] request_addr_i,
    input  wire  [             31:0] request_length_i,
    output logic                     reply_valid_o,
    output logic [              3:0] reply_o,
    output logic [            I-1:0] reply_index_o,
    output logic [              I:0] tasks_used_o,
    // The transmit side looks an index up, writes its part, and walks a list.
    input  wire                      tx_look_i,
    input  wire  [            I-1:0] tx_index_i,
    output logic                     tx_looked_o,
    output logic                     tx_found_o,
    output logic [             31:0] copy_tag_o,
    output task_post_t               copy_post_o,
    output task_rx_t                 copy_rx_o,
    output task_tx_t                 copy_tx_o,
    output list_t                    copy_list_o,
    input  wire                      tx_write_i,
    input  wire  [            I-1:0] tx_write_index_i,
    input  task_tx_t                 tx_write_task_i,
    input  wire  [         MaxE-1:0] tx_element_i,
    output element_t                 tx_element_o,
    output logic [         MaxE-1:0] tx_next_o,
    // SNACKs that are due, by their names; the transmit side asks for one until it is answered, see rx_recover.
    output logic                     due_valid_o,
    input  wire                      due_ready_i,
    output logic [              7:0] due_id_o,
    input  wire                      snack_take_i,
    input  wire  [              7:0] snack_id_i,
    output logic                     snack_answer_o,
    output logic                     snack_wanted_o,
    output tx_pkg::snack_t           snack_o,
    // Tables: the status of the task at an index is held back; the entry of the SNACK table at a place.
    input  wire  [            I-1:0] held_index_i,
    output logic                     held_o,
    input  wire  [              9:0] snack_at_i,
    output logic                     snack_known_o,
    output snack_pkg::entry_t        snack_entry_o,
    // R2Ts to be answered, in order.
    output logic                     r2t_valid_o,
    input  wire                      r2t_ready_i,
    output logic [            I-1:0] r2t_index_o,
    output logic [             31:0] r2t_itt_o,
    output logic [             31:0] r2t_ttt_o,
    output logic [             31:0] r2t_sn_o,
    output logic [             31:0] r2t_offset_o,
    output logic [             31:0] r2t_length_o,
    output logic [             63:0] r2t_lun_o,
    // A task has left: the transmit side forgets what it has of it in the cycle in which it is ready.
    output logic                     ended_valid_o,
    input  wire                      ended_ready_i,
    output logic [            I-1:0] ended_index_o,
    output logic [             31:0] ended_itt_o
);
  wire clear = rst || open_i || restart_i;

  // Stream to checked PDUs.
  logic checked_ready, seg_valid, seg_ready, seg_is_data, seg_first, pdu_last, unused_seg_last, unused_stopped;
  logic [$clog2(Bytes)-2:0] seg_words;
  logic [8*Bytes-1:0] seg_data;
  logic [1:0] seg_verdict;
  logic [63:0] seg_position;
  wire receiving = !stopped_o && !clear;
  assign ready_o = checked_ready && receiving;
  rx_checked #(
      .Bytes(Bytes),
      .BufferBytes(BufferBytes),
      .Poly(Poly)
  ) checked (
      .clk,
      .rst,
      .restart_i(open_i || restart_i),
      .restart_position_i(open_i ? '0 : restart_position_i),
      .header_digest_i,
      .data_digest_i,
      .max_data_i,
      .set_poly_i,
      .poly_i,
      .poly_full_o,
      .valid_i(valid_i && receiving),
      .ready_o(checked_ready),
      .count_i,
      .data_i,
      .seg_valid_o(seg_valid),
      .seg_ready_i(seg_ready),
      .seg_is_data_o(seg_is_data),
      .seg_first_o(seg_first),
      .seg_last_o(unused_seg_last),
      .seg_words_o(seg_words),
      .seg_data_o(seg_data),
      .verdict_valid_o(pdu_last),
      .verdict_o(seg_verdict),
      .verdict_position_o(seg_position),
      .stopped_o(unused_stopped)
  );
  logic beat_valid, beat_is_data, beat_last, beat_pop, header_valid, header_pop;
  logic [$clog2(Bytes)-2:0] beat_words;
  logic [8*Bytes-1:0] beat;
  logic [383:0] header;
  logic [1:0] verdict;
  logic [63:0] position;
  rx_feed #(
      .Bytes(Bytes)
  ) feed (
      .clk,
      .rst(clear),
      .valid_i(seg_valid),
      .ready_o(seg_ready),
      .is_data_i(seg_is_data),
      .first_i(seg_first),
      .pdu_last_i(pdu_last),
      .words_i(seg_words),
      .data_i(seg_data),
      .verdict_i(seg_verdict),
      .position_i(seg_position),
      .beat_valid_o(beat_valid),
      .beat_is_data_o(beat_is_data),
      .beat_last_o(beat_last),
      .beat_words_o(beat_words),
      .beat_o(beat),
      .beat_pop_i(beat_pop),
      .header_valid_o(header_valid),
      .header_o(header),
      .verdict_o(verdict),
      .position_o(position),
      .header_pop_i(header_pop)
  );

  // Decisions.
  logic look, look_ready, looked, found, rx_write, task_ends;
  logic [31:0] look_tag, end_tag;
  logic [I-1:0] index, end_index;
  task_facts_t facts;
  task_rx_t rx_part, rx_write_task;
  logic sent;
  logic [31:0] bytes_sent;
  logic [3:0] bursts_done;
  list_t list, end_list;
  logic walk_idle, walk_flush, walk, walk_direct;
  logic [63:0] direct_addr;
  logic [31:0] direct_length, direct_second, walk_offset, walk_length;
  logic job, job_header, job_writes, job_done, job_fault, job_busy;
  logic end_ready, end_reply_valid, store_ready, store_reply_valid;
  logic [3:0] end_reply, store_reply;
  wire ends_task = request_i == END_TASK;
  assign request_ready_o = ends_task ? end_ready : store_ready;
  assign reply_valid_o = end_reply_valid || store_reply_valid;
  assign reply_o = end_reply_valid ? end_reply : store_reply;
  assign r2t_index_o = index;
  assign r2t_itt_o = be32(header, 16);
  assign r2t_ttt_o = be32(header, 20);
  assign r2t_sn_o = be32(header, 36);
  assign r2t_offset_o = be32(header, 40);
  assign r2t_length_o = be32(header, 44);
  assign r2t_lun_o = header[127:64];
  assign ended_index_o = end_index;
  assign ended_itt_o = end_tag;
  logic find, apply, settle, owes_ack, settle_placed, holes, recover_busy, recover_room, hold, answers, held, answered;
  found_t status_group, data_group;
  losses_t losses;
  answer_t answer, answer_kept;
  logic [31:0] held_stat_sn;
  logic [383:0] pdu;
  logic route_done, snack_done, route_busy, searches, empties;
  assign busy_o = route_busy || searches || empties;
  logic [511:0] route_record, snack_record;
  assign done_valid_o = route_done || snack_done;
  assign done_o = route_done ? route_record : snack_record;
  rx_route #(
      .Tasks(Tasks)
  ) route (
      .clk,
      .rst,
      .open_i,
      .restart_i,
      .changed_i((request_valid_i && store_ready && request_i == POST_END) || tx_write_i),
      .conn_i,
      .recovers_i,
      .header_digest_i,
      .data_digest_i,
      .max_burst_i,
      .max_outstanding_r2t_i,
      .raw_addr_i,
      .raw_slot_bytes_i,
      .raw_slots_i,
      .open_cmd_sn_i,
      .open_max_cmd_sn_i,
      .open_stat_sn_i,
      .header_valid_i(header_valid),
      .header_i(header),
      .verdict_i(verdict),
      .position_i(position),
      .header_pop_o(header_pop),
      .look_o(look),
      .look_tag_o(look_tag),
      .look_ready_i(look_ready),
      .looked_i(looked),
      .found_i(found),
      .index_i(index),
      .facts_i(facts),
      .list_i(list),
      .rx_i(rx_part),
      .sent_i(sent),
      .bytes_sent_i(bytes_sent),
      .bursts_done_i(bursts_done),
      .rx_write_o(rx_write),
      .rx_write_task_o(rx_write_task),
      .end_o(task_ends),
      .end_index_o(end_index),
      .end_tag_o(end_tag),
      .end_list_o(end_list),
      .find_o(find),
      .status_group_i(status_group),
      .data_group_i(data_group),
      .apply_o(apply),
      .losses_o(losses),
      .settle_o(settle),
      .owes_ack_o(owes_ack),
      .placed_o(settle_placed),
      .holes_i(holes),
      .recover_busy_i(recover_busy),
      .recover_room_i(recover_room),
      .hold_o(hold),
      .answer_o(answers),
      .answer_record_o(answer),
      .held_i(held),
      .held_stat_sn_i(held_stat_sn),
      .answered_i(answered),
      .answer_record_i(answer_kept),
      .pdu_o(pdu),
      .walk_idle_i(walk_idle),
      .walk_flush_o(walk_flush),
      .walk_o(walk),
      .walk_direct_o(walk_direct),
      .direct_addr_o(direct_addr),
      .direct_length_o(direct_length),
      .direct_second_o(direct_second),
      .walk_offset_o(walk_offset),
      .walk_length_o(walk_length),
      .job_o(job),
      .job_header_o(job_header),
      .job_writes_o(job_writes),
      .job_done_i(job_done),
      .job_fault_i(job_fault),
      .r2t_valid_o,
      .r2t_ready_i,
      .done_room_i,
      .done_valid_o(route_done),
      .done_ready_i,
      .done_o(route_record),
      .ended_valid_o,
      .ended_ready_i,
      .end_request_i(request_valid_i && ends_task),
      .end_ready_o(end_ready),
      .end_request_tag_i(request_tag_i),
      .end_request_result_i(request_result_i),
      .end_reply_valid_o(end_reply_valid),
      .end_reply_o(end_reply),
      .release_i,
      .release_slots_i,
      .raw_free_o,
      .cmd_sn_i,
      .exp_cmd_sn_o,
      .max_cmd_sn_o,
      .stat_sn_o,
      .stopped_o,
      .stop_reason_o,
      .taken_o,
      .busy_o(route_busy)
  );

  logic who, who_ready, who_looked, who_found;
  logic [31:0] who_tag;
  rx_recover #(
      .Tasks(Tasks)
  ) recover (
      .clk,
      .rst,
      .open_i,
      .recovers_i,
      .conn_i,
      .snack_delay_i,
      .advance_i,
      .now_i,
      .header_i(pdu),
      .index_i(index),
      .next_sn_i(rx_part.next_sn),
      .next_offset_i(rx_part.next_offset),
      .next_stat_sn_i(stat_sn_o),
      .find_i(find),
      .status_o(status_group),
      .data_o(data_group),
      .apply_i(apply),
      .losses_i(losses),
      .settle_i(settle),
      .owes_ack_i(owes_ack),
      .placed_i(settle_placed),
      .holes_o(holes),
      .busy_o(recover_busy),
      .searches_o(searches),
      .hold_i(hold),
      .answer_i(answers),
      .answer_record_i(answer),
      .held_o(held),
      .held_stat_sn_o(held_stat_sn),
      .answered_o(answered),
      .answer_record_o(answer_kept),
      .end_i(task_ends),
      .end_index_i(end_index),
      .end_tag_i(end_tag),
      .has_room_o(recover_room),
      .exp_stat_sn_o,
      .deadline_o,
      .due_valid_o,
      .due_ready_i,
      .due_id_o,
      .take_i(snack_take_i),
      .take_id_i(snack_id_i),
      .take_answer_o(snack_answer_o),
      .take_wanted_o(snack_wanted_o),
      .taken_o(snack_o),
      .look_o(who),
      .look_tag_o(who_tag),
      .look_ready_i(who_ready),
      .looked_i(who_looked),
      .look_found_i(who_found),
      .look_user_i(copy_post_o.user),
      .look_lun_i(copy_post_o.lun),
      .done_valid_o(snack_done),
      .done_ready_i(done_ready_i && !route_done),
      .done_o(snack_record),
      .show_index_i(held_index_i),
      .shown_answered_o(held_o),
      .peek_at_i(snack_at_i),
      .peek_valid_o(snack_known_o),
      .peek_o(snack_entry_o)
  );

  logic [MaxE-1:0] rx_element, rx_next;
  element_t element;
  task_store #(
      .Tasks(Tasks),
      .Elements(Elements)
  ) store (
      .clk,
      .rst(rst || open_i),
      .empties_o(empties),
      .look_i(look),
      .look_tag_i(look_tag),
      .look_ready_o(look_ready),
      .looked_o(looked),
      .found_o(found),
      .index_o(index),
      .facts_o(facts),
      .list_o(list),
      .rx_o(rx_part),
      .sent_o(sent),
      .bytes_sent_o(bytes_sent),
      .bursts_done_o(bursts_done),
      .rx_write_i(rx_write),
      .rx_write_index_i(index),
      .rx_write_task_i(rx_write_task),
      .end_i(task_ends),
      .end_index_i(end_index),
      .end_tag_i(end_tag),
      .end_list_i(end_list),
      .request_valid_i(request_valid_i && !ends_task),
      .request_ready_o(store_ready),
      .request_i,
      .request_tag_i,
      .request_index_i,
      .request_post_i,
      .request_addr_i,
      .request_length_i,
      .reply_valid_o(store_reply_valid),
      .reply_o(store_reply),
      .reply_index_o,
      .who_i(who),
      .who_tag_i(who_tag),
      .who_ready_o(who_ready),
      .who_looked_o(who_looked),
      .who_found_o(who_found),
      .tx_look_i,
      .tx_index_i,
      .tx_looked_o,
      .tx_found_o,
      .copy_tag_o,
      .copy_post_o,
      .copy_rx_o,
      .copy_tx_o,
      .copy_list_o,
      .tx_write_i,
      .tx_write_index_i,
      .tx_write_task_i,
      .rx_element_i(rx_element),
      .rx_element_o(element),
      .rx_next_o(rx_next),
      .tx_element_i,
      .tx_element_o,
      .tx_next_o,
      .used_o(tasks_used_o)
  );

  // Placement.
  logic run_push, run_last, run_refused, run_back;
  wire flush = walk_flush || open_i || restart_i;
  logic [63:0] run_addr;
  logic [31:0] run_length;
  rx_walk #(
      .Tasks(Tasks)
  ) walker (
      .clk,
      .rst,
      .flush_i(flush),
      .idle_o(walk_idle),
      .start_i(walk),
      .index_i(index),
      .placed_i(rx_part.placed),
      .first_i(list.first),
      .offset_i(walk_offset),
      .length_i(walk_length),
      .start_direct_i(walk_direct),
      .direct_addr_i(direct_addr),
      .direct_length_i(direct_length),
      .direct_second_i(direct_second),
      .element_o(rx_element),
      .element_i(element),
      .element_next_i(rx_next),
      .run_valid_o,
      .run_ready_i,
      .run_addr_o,
      .run_length_o,
      .answer_valid_i,
      .answer_refused_i,
      .push_o(run_push),
      .push_last_o(run_last),
      .push_refused_o(run_refused),
      .push_addr_o(run_addr),
      .push_length_o(run_length),
      .run_back_i(run_back)
  );
  rx_move #(
      .Bytes(Bytes)
  ) mover (
      .clk,
      .rst(clear),
      .job_i(job),
      .job_header_i(job_header),
      .job_writes_i(job_writes),
      .done_o(job_done),
      .fault_o(job_fault),
      .beat_valid_i(beat_valid),
      .beat_is_data_i(beat_is_data),
      .beat_last_i(beat_last),
      .beat_words_i(beat_words),
      .beat_i(beat),
      .beat_pop_o(beat_pop),
      .flush_i(flush),
      .push_i(run_push),
      .push_last_i(run_last),
      .push_refused_i(run_refused),
      .push_addr_i(run_addr),
      .push_length_i(run_length),
      .run_back_o(run_back),
      .write_valid_o,
      .write_ready_i,
      .write_addr_o,
      .write_first_o,
      .write_count_o,
      .write_data_o,
      .busy_o(job_busy)
  );
`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert (!(walk_flush && job_busy))
      else $error("rx_engine: runs are dropped that the mover works on");
    end
  end
`endif
endmodule
`default_nettype wire
