// An engine for one connection: descriptors and the bytes of both streams, completions, host memory.
//
//   descriptors --> [engine_tx: control, transmit] --> stream
//                       |      ^           ^
//          requests, look-ups  |           | R2Ts, ends of tasks, ExpStatSN, MaxCmdSN
//                       v      |           |
//   stream -----> [rx_engine: tables, receive] --> host memory
//
//   completions of both --> [ those of a PDU first ] --> host
`default_nettype none
module engine
  import engine_pkg::*;
  import tx_pkg::*;
#(
    // Bytes of a beat: 64 or 8.
    parameter int unsigned Bytes = 64,
    // Largest data segment in either direction: 4096 or 65536.
    parameter int unsigned BufferBytes = 65536,
    // Tasks at a time: a power of two, at most 256.
    parameter int unsigned Tasks = 256,
    // Elements of all scatter/gather lists together.
    parameter int unsigned Elements = 65536,
    // Entries of the R2T table.
    parameter int unsigned R2ts = 2304,
    // Data of the longest PDU of SEND_RAW, at most `BufferBytes`; a longer one is refused with `TABLE_FULL`.
    parameter int unsigned RawBytes = BufferBytes,
    parameter logic [31:0] Poly = 32'h82f6_3b78
) (
    input  wire                      clk,
    input  wire                      rst,
    // The Command Buffer.
    input  wire                      descriptor_valid_i,
    output logic                     descriptor_ready_o,
    input  wire  [            511:0] descriptor_i,
    // The Completion Buffer. Four have room: for what is received, and for what is sent.
    input  wire                      rx_room_i,
    input  wire                      tx_room_i,
    output logic                     done_valid_o,
    input  wire                      done_ready_i,
    output logic [            511:0] done_o,
    // One cycle: time, in microseconds since any moment.
    input  wire                      advance_i,
    input  wire  [             63:0] now_i,
    // When the earliest SNACK is due; all ones: none waits.
    output logic [             63:0] deadline_o,
    // The Input Buffer.
    input  wire                      release_i,
    input  wire  [             15:0] release_slots_i,
    // The stream that is received: the lowest `count_i` bytes of a beat. After RESYNC it begins at `restart_position_o`, given with
    // `restart_o` for one cycle; it begins anew with `opens_o`.
    input  wire                      rx_valid_i,
    output logic                     rx_ready_o,
    input  wire  [  $clog2(Bytes):0] rx_count_i,
    input  wire  [      8*Bytes-1:0] rx_data_i,
    output logic                     opens_o,
    output logic                     restart_o,
    output logic [             63:0] restart_position_o,
    // The stream that is sent.
    output logic                     tx_valid_o,
    input  wire                      tx_ready_i,
    output logic [  $clog2(Bytes):0] tx_count_o,
    output logic [      8*Bytes-1:0] tx_data_o,
    // Host memory, reads: see tx_fetch.
    output logic                     read_valid_o,
    input  wire                      read_ready_i,
    output logic [             63:0] read_addr_o,
    output logic [             16:0] read_bytes_o,
    input  wire                      read_data_valid_i,
    output logic                     read_data_ready_o,
    input  wire  [  $clog2(Bytes):0] read_count_i,
    input  wire                      read_last_i,
    input  wire                      read_fault_i,
    input  wire  [      8*Bytes-1:0] read_data_i,
    // Host memory, writes: see rx_engine.
    output logic                     run_valid_o,
    input  wire                      run_ready_i,
    output logic [             63:0] run_addr_o,
    output logic [             31:0] run_length_o,
    input  wire                      answer_valid_i,
    input  wire                      answer_refused_i,
    output logic                     write_valid_o,
    input  wire                      write_ready_i,
    output logic [             63:0] write_addr_o,
    output logic [$clog2(Bytes)-1:0] write_first_o,
    output logic [  $clog2(Bytes):0] write_count_o,
    output logic [      8*Bytes-1:0] write_data_o,
    // The session table: what OPEN_CONN and SET_PARAMS have set, numbers, and the stop.
    output logic                     is_open_o,
    output logic [              3:0] conn_flags_o,
    // Reflected.
    output logic [             31:0] poly_o,
    output logic [             31:0] max_recv_o,
    output logic [             31:0] max_send_o,
    output logic [             31:0] max_burst_o,
    output logic [             31:0] first_burst_o,
    output logic [             31:0] snack_delay_o,
    output logic [              1:0] recovery_level_o,
    output logic [             15:0] max_outstanding_r2t_o,
    output logic [             31:0] cmd_sn_o,
    output logic [             31:0] exp_cmd_sn_o,
    output logic [             31:0] max_cmd_sn_o,
    output logic [             31:0] stat_sn_o,
    output logic [             31:0] exp_stat_sn_o,
    output logic                     stopped_o,
    output logic [              3:0] stop_reason_o,
    output logic [             63:0] taken_o,
    output logic [             15:0] raw_free_o,
    output logic [              8:0] tasks_used_o,
    // The other tables, while no descriptor is executed and nothing is sent. `show_i` asks for the command at an index; the answer
    // comes some cycles later. The element, and the entry of the R2T table, come one cycle later.
    input  wire                      show_i,
    output logic                     show_ready_o,
    input  wire  [              7:0] show_index_i,
    output logic                     shown_o,
    output logic                     shown_found_o,
    output logic [             31:0] shown_tag_o,
    output task_post_t               shown_post_o,
    output task_rx_t                 shown_rx_o,
    output task_tx_t                 shown_tx_o,
    output list_t                    shown_list_o,
    output logic                     shown_held_o,
    input  wire                      show_element_i,
    input  wire  [         MaxE-1:0] element_i,
    output element_t                 element_o,
    output logic [         MaxE-1:0] element_next_o,
    input  wire  [$clog2(R2ts+2):0]  peek_at_i,
    output logic                     peek_valid_o,
    output burst_t                   peek_o,
    output logic [             31:0] peek_sent_o,
    output logic [             31:0] peek_data_sn_o,
    input  wire  [              9:0] snack_at_i,
    output logic                     snack_valid_o,
    output snack_pkg::entry_t        snack_o,
    // No descriptor is being executed, and nothing more leaves before something comes in or room is made.
    output logic                     idle_o,
    // A PDU that was received is not finished.
    output logic                     busy_o
);
  // Completions: a task's end comes before that of the descriptor which caused it.
  logic rx_done_valid, control_done_valid, rx_open;
  logic [511:0] rx_done, control_done;
  // Behind the end of a connection nothing of it comes.
  wire control_may = is_open_o || !busy_o;
  assign done_valid_o = rx_done_valid || (control_done_valid && control_may);
  assign done_o = rx_done_valid ? rx_done : control_done;

  // The task store has one port for requests: control's, and the host's while control has none.
  logic request_valid, request_ready, store_ready, reply_valid, showing;
  request_t control_request;
  logic [31:0] request_tag, request_length;
  // The receive side's indices have as many bits as it has tasks for.
  localparam int unsigned I = $clog2(Tasks);
  logic [I-1:0] control_index, rx_reply_index, rx_ended_index, rx_r2t_index;
  logic [I:0] rx_tasks_used;
  assign tasks_used_o = 9'(rx_tasks_used);
  logic [3:0] request_result, reply;
  task_post_t request_post;
  logic [63:0] request_addr;
  // Control requests nothing while it is idle. If it begins in the next cycle, its request waits for the answer.
  logic was_idle;
  wire shows = show_i && was_idle && !showing;
  assign request_ready = store_ready && !shows && !showing;
  assign show_ready_o = store_ready && shows;
  assign shown_o = reply_valid && showing;
  assign shown_found_o = reply == GOOD;
  always_ff @(posedge clk) begin
    was_idle <= idle_o && !rst;
    showing  <= !rst && (show_ready_o || (showing && !reply_valid));
  end

  logic look, looked, look_found, tx_write, r2t_valid, r2t_ready, ended_valid, ended_ready;
  logic [7:0] look_index, tx_write_index;
  // With fewer tasks than 256 the highest bits are not used.
  wire unused_bits = &{1'b0, show_index_i, look_index, tx_write_index};
  task_tx_t tx_write_task;
  logic [MaxE-1:0] tx_element;
  burst_t r2t;
  assign r2t.index = 8'(rx_r2t_index);
  logic [31:0] unused_r2t_itt, unused_ended_itt, open_cmd_sn, open_max_cmd_sn, open_stat_sn, raw_slot_bytes;
  logic [63:0] raw_addr;
  logic [15:0] raw_slots;
  logic set_poly, poly_full;
  crc_pkg::polynomial_t poly;
  assign poly_o = poly.poly;
  logic due_valid, due_ready, snack_take, snack_answer, snack_wanted;
  logic [7:0] due_id, snack_id;
  snack_t snack;
  engine_tx #(
      .Bytes(Bytes),
      .BufferBytes(BufferBytes),
      .Tasks(Tasks),
      .R2ts(R2ts),
      .RawBytes(RawBytes),
      .Poly(Poly)
  ) transmit (
      .clk,
      .rst,
      .descriptor_valid_i,
      .descriptor_ready_o,
      .descriptor_i,
      .done_valid_o(control_done_valid),
      .done_ready_i(done_ready_i && !rx_done_valid && control_may),
      .done_o(control_done),
      .room_i(tx_room_i),
      .is_open_o,
      .opens_o,
      .restart_o,
      .restart_position_o,
      .stopped_i(stopped_o),
      .taken_i(taken_o),
      .conn_flags_o,
      .set_poly_o(set_poly),
      .poly_o(poly),
      .poly_full_i(poly_full),
      .open_cmd_sn_o(open_cmd_sn),
      .open_max_cmd_sn_o(open_max_cmd_sn),
      .open_stat_sn_o(open_stat_sn),
      .max_recv_o,
      .max_send_o,
      .max_burst_o,
      .first_burst_o,
      .snack_delay_o,
      .recovery_level_o,
      .max_outstanding_r2t_o,
      .raw_addr_o(raw_addr),
      .raw_slot_bytes_o(raw_slot_bytes),
      .raw_slots_o(raw_slots),
      .exp_stat_sn_i(exp_stat_sn_o),
      .max_cmd_sn_i(max_cmd_sn_o),
      .cmd_sn_o,
      .r2t_valid_i(r2t_valid),
      .r2t_ready_o(r2t_ready),
      .r2t_i(r2t),
      .due_valid_i(due_valid),
      .due_ready_o(due_ready),
      .due_id_i(due_id),
      .snack_take_o(snack_take),
      .snack_index_o(snack_id),
      .snack_answer_i(snack_answer),
      .snack_wanted_i(snack_wanted),
      .snack_i(snack),
      .request_valid_o(request_valid),
      .request_ready_i(request_ready),
      .request_o(control_request),
      .request_tag_o(request_tag),
      .request_index_o(control_index),
      .request_result_o(request_result),
      .request_post_o(request_post),
      .request_addr_o(request_addr),
      .request_length_o(request_length),
      .reply_valid_i(reply_valid && !showing),
      .reply_i(reply),
      .reply_index_i(rx_reply_index),
      .look_o(look),
      .look_index_o(look_index),
      .looked_i(looked),
      .look_found_i(look_found),
      .look_tag_i(shown_tag_o),
      .look_post_i(shown_post_o),
      .look_tx_i(shown_tx_o),
      .look_first_i(shown_list_o.first),
      .write_o(tx_write),
      .write_index_o(tx_write_index),
      .write_tx_o(tx_write_task),
      .ended_valid_i(ended_valid),
      .ended_ready_o(ended_ready),
      .ended_index_i(8'(rx_ended_index)),
      .element_o(tx_element),
      .element_i(element_o),
      .element_next_i(element_next_o),
      .peek_at_i,
      .peek_valid_o,
      .peek_o,
      .peek_sent_o,
      .peek_data_sn_o,
      .mem_valid_o(read_valid_o),
      .mem_ready_i(read_ready_i),
      .mem_addr_o(read_addr_o),
      .mem_bytes_o(read_bytes_o),
      .mem_data_valid_i(read_data_valid_i),
      .mem_data_ready_o(read_data_ready_o),
      .mem_count_i(read_count_i),
      .mem_last_i(read_last_i),
      .mem_fault_i(read_fault_i),
      .mem_data_i(read_data_i),
      .valid_o(tx_valid_o),
      .ready_i(tx_ready_i),
      .count_o(tx_count_o),
      .data_o(tx_data_o),
      .idle_o
  );

  logic rx_ready;
  assign rx_open = is_open_o && !opens_o;
  assign rx_ready_o = rx_ready && rx_open;
  rx_engine #(
      .Bytes(Bytes),
      .BufferBytes(BufferBytes),
      .Tasks(Tasks),
      .Elements(Elements),
      .Poly(Poly)
  ) receive (
      .clk,
      .rst,
      .open_i(opens_o),
      .restart_i(restart_o),
      .restart_position_i(restart_position_o),
      .conn_i(16'd0),
      .recovers_i(recovery_level_o != '0),
      .snack_delay_i(snack_delay_o),
      .advance_i,
      .now_i,
      .header_digest_i(conn_flags_o[0]),
      .data_digest_i(conn_flags_o[1]),
      .max_data_i(max_recv_o[23:0]),
      .set_poly_i(set_poly),
      .poly_i(poly),
      .poly_full_o(poly_full),
      .max_burst_i(max_burst_o[23:0]),
      .max_outstanding_r2t_i(max_outstanding_r2t_o[3:0]),
      .raw_addr_i(raw_addr),
      .raw_slot_bytes_i(raw_slot_bytes),
      .raw_slots_i(raw_slots),
      .open_cmd_sn_i(open_cmd_sn),
      .open_max_cmd_sn_i(open_max_cmd_sn),
      .open_stat_sn_i(open_stat_sn),
      .valid_i(rx_valid_i && rx_open),
      .ready_o(rx_ready),
      .count_i(rx_count_i),
      .data_i(rx_data_i),
      .run_valid_o,
      .run_ready_i,
      .run_addr_o,
      .run_length_o,
      .answer_valid_i,
      .answer_refused_i,
      .write_valid_o,
      .write_ready_i,
      .write_addr_o,
      .write_first_o,
      .write_count_o,
      .write_data_o,
      .done_room_i(rx_room_i && rx_open),
      .done_valid_o(rx_done_valid),
      .done_ready_i,
      .done_o(rx_done),
      .release_i,
      .release_slots_i,
      .raw_free_o,
      .cmd_sn_i(cmd_sn_o),
      .exp_cmd_sn_o,
      .max_cmd_sn_o,
      .stat_sn_o,
      .exp_stat_sn_o,
      .deadline_o,
      .stopped_o,
      .stop_reason_o,
      .taken_o,
      .busy_o,
      .request_valid_i((request_valid && !showing) || shows),
      .request_ready_o(store_ready),
      .request_i(shows ? PEEK : control_request),
      .request_tag_i(request_tag),
      .request_index_i(shows ? I'(show_index_i) : control_index),
      .request_result_i(request_result),
      .request_post_i(request_post),
      .request_addr_i(request_addr),
      .request_length_i(request_length),
      .reply_valid_o(reply_valid),
      .reply_o(reply),
      .reply_index_o(rx_reply_index),
      .tasks_used_o(rx_tasks_used),
      .tx_look_i(look),
      .tx_index_i(I'(look_index)),
      .tx_looked_o(looked),
      .tx_found_o(look_found),
      .copy_tag_o(shown_tag_o),
      .copy_post_o(shown_post_o),
      .copy_rx_o(shown_rx_o),
      .copy_tx_o(shown_tx_o),
      .copy_list_o(shown_list_o),
      .tx_write_i(tx_write),
      .tx_write_index_i(I'(tx_write_index)),
      .tx_write_task_i(tx_write_task),
      .tx_element_i(show_element_i ? element_i : tx_element),
      .tx_element_o(element_o),
      .tx_next_o(element_next_o),
      .due_valid_o(due_valid),
      .due_ready_i(due_ready),
      .due_id_o(due_id),
      .snack_take_i(snack_take),
      .snack_id_i(snack_id),
      .snack_answer_o(snack_answer),
      .snack_wanted_o(snack_wanted),
      .snack_o(snack),
      .held_index_i(I'(show_index_i)),
      .held_o(shown_held_o),
      .snack_at_i,
      .snack_known_o(snack_valid_o),
      .snack_entry_o(snack_o),
      .r2t_valid_o(r2t_valid),
      .r2t_ready_i(r2t_ready),
      .r2t_index_o(rx_r2t_index),
      .r2t_itt_o(unused_r2t_itt),
      .r2t_ttt_o(r2t.ttt),
      .r2t_sn_o(r2t.r2t_sn),
      .r2t_offset_o(r2t.offset),
      .r2t_length_o(r2t.length),
      .r2t_lun_o(r2t.lun),
      .ended_valid_o(ended_valid),
      .ended_ready_i(ended_ready),
      .ended_index_o(rx_ended_index),
      .ended_itt_o(unused_ended_itt)
  );
`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert (!show_element_i || idle_o)
      else $error("engine: an element is shown while the transmit module walks a list");
    end
  end
`endif
endmodule
`default_nettype wire
