// The control module of one connection: executes descriptors, and holds the session table.
//
//   descriptors --> IDLE --> CHECK --+--> DONE --> IDLE           a TASK_DONE
//                    |               +--> CALL <--> REPLY         a request of the task store, and its answer
//                    |               +--> READ --> COLLECT        host memory: elements of a list, PDUs of SEND_RAW
//                    |               +--> POST --> IDLE           the transmit queue
//                    +--> CALL, REPLY, FAULT --> IDLE             host memory has refused a part of a task's memory
//
//   POST_TASK: CALL POST_BEGIN, for each element READ, COLLECT, CALL POST_ELEMENT; CALL POST_END, POST
//   ABORT:     CALL END_TASK, DONE; of all tasks: CALL PEEK for each index, CALL END_TASK of the least tag, again; DONE
//   SEND_RAW:  READ, COLLECT the header; READ, COLLECT header segments, then data; POST, DONE
//
// It executes one descriptor after the other, so their order is that of submission. Every check is that of the engine in software, and its
// order too.
`default_nettype none
module engine_control
  import engine_pkg::*;
#(
    // Bytes of a beat: 64 or 8.
    parameter int unsigned Bytes = 64,
    // Largest data segment in either direction: 4096 or 65536.
    parameter int unsigned BufferBytes = 65536,
    parameter int unsigned Tasks = 256,
    // Width of the count of beats that the store of raw PDUs has room for.
    parameter int unsigned RawCount = 16,
    localparam int unsigned I = $clog2(Tasks)
) (
    input  wire                      clk,
    input  wire                      rst,
    // The Command Buffer.
    input  wire                      descriptor_valid_i,
    output logic                     descriptor_ready_o,
    input  wire  [            511:0] descriptor_i,
    // Completions of descriptors.
    output logic                     done_valid_o,
    input  wire                      done_ready_i,
    output logic [            511:0] done_o,
    // Reads of host memory: as tx_fetch has them.
    output logic                     mem_valid_o,
    input  wire                      mem_ready_i,
    output logic [             63:0] mem_addr_o,
    output logic [             16:0] mem_bytes_o,
    input  wire                      mem_data_valid_i,
    output logic                     mem_data_ready_o,
    input  wire  [$clog2(Bytes):0]   mem_count_i,
    input  wire                      mem_last_i,
    input  wire                      mem_fault_i,
    input  wire  [  8*Bytes-1:0]     mem_data_i,
    // The task store.
    output logic                     request_valid_o,
    input  wire                      request_ready_i,
    output request_t                 request_o,
    output logic [             31:0] request_tag_o,
    output logic [            I-1:0] request_index_o,
    output logic [              3:0] request_result_o,
    output task_post_t               request_post_o,
    output logic [             63:0] request_addr_o,
    output logic [             31:0] request_length_o,
    input  wire                      reply_valid_i,
    input  wire  [              3:0] reply_i,
    input  wire  [            I-1:0] reply_index_i,
    // With the reply to PEEK.
    input  wire  [             31:0] peek_tag_i,
    // The transmit queue.
    output logic                     post_valid_o,
    input  wire                      post_ready_i,
    output tx_pkg::entry_t           post_o,
    // The store of raw PDUs.
    output logic                     raw_write_o,
    output logic                     raw_select_o,
    output logic                     raw_last_o,
    output logic                     raw_pdu_last_o,
    output logic [$clog2(Bytes)-2:0] raw_words_o,
    output logic [  8*Bytes-1:0]     raw_data_o,
    output logic                     raw_commit_o,
    output logic                     raw_drop_o,
    input  wire  [     RawCount-1:0] raw_room_i,
    input  wire  [              6:0] raw_pdus_i,
    // Host memory has refused a part of this task's memory, until the task has ended.
    input  wire                      fault_i,
    input  wire  [             31:0] fault_tag_i,
    // The connection. `opens_o` is one cycle, and so is `restart_o`; the numbers are those of OPEN_CONN.
    output logic                     is_open_o,
    output logic                     opens_o,
    output logic                     restart_o,
    output logic [             63:0] restart_position_o,
    input  wire                      stopped_i,
    input  wire  [             63:0] taken_i,
    output logic [              3:0] conn_flags_o,
    // The polynomial of the digests. `set_poly_o` is one cycle. `poly_full_i`: the receive side has no room for another change.
    output logic                     set_poly_o,
    output crc_pkg::polynomial_t     poly_o,
    input  wire                      poly_full_i,
    output logic [             31:0] cmd_sn_o,
    output logic [             31:0] max_cmd_sn_o,
    output logic [             31:0] stat_sn_o,
    output logic [             31:0] max_recv_o,
    output logic [             31:0] max_send_o,
    // The largest data segment that is sent: what the peer accepts and the buffer holds.
    output logic [             16:0] send_bound_o,
    output logic [             31:0] max_burst_o,
    output logic [             31:0] first_burst_o,
    output logic [             31:0] snack_delay_o,
    output logic [              1:0] recovery_level_o,
    output logic [             15:0] max_outstanding_r2t_o,
    output logic [             63:0] raw_addr_o,
    output logic [             31:0] raw_slot_bytes_o,
    output logic [             15:0] raw_slots_o,
    // Nothing is being executed.
    output logic                     idle_o
);
  localparam int unsigned W = $clog2(Bytes) - 1;
  localparam logic [31:0] MinLength = 32'd512, MaxBurst = 32'hff_ffff, Longest = 32'd1068;
  localparam logic [31:0] Buffer = 32'(BufferBytes);
  localparam logic [95:0] Crc32c = {32'hffff_ffff, 32'hffff_ffff, 32'h1edc_6f41};
  function automatic logic [31:0] reversed(logic [31:0] value);
    for (int unsigned i = 0; i < 32; i++) reversed[i] = value[31-i];
  endfunction
  localparam logic [31:0] NoTag = '1;
  localparam logic [7:0] OPEN_CONN = 8'd1, SET_PARAMS = 8'd2, POST_TASK = 8'd3, ABORT = 8'd4, SEND_RAW = 8'd5,
      SET_POLY = 8'd6, RESYNC = 8'd7;
  typedef enum logic [3:0] {
    IDLE,
    CHECK,
    CALL,
    REPLY,
    READ_MEMORY,
    COLLECT,
    POST,
    DONE,
    FAULT
  } state_t;
  // What a read is of.
  typedef enum logic [1:0] {
    ELEMENT,
    RAW_BHS,
    RAW_HEADER,
    RAW_DATA
  } read_t;
  state_t state;
  read_t reading;

  // The descriptor, and its fields.
  logic [511:0] d;
  wire [7:0] kind = d[7:0];
  wire [7:0] flags = d[15:8];
  wire [15:0] conn = d[31:16];
  wire [31:0] itt = d[63:32];
  wire [31:0] edtl = d[351:320];
  wire [7:0] attr = d[359:352];
  wire [7:0] pri = d[367:360];
  wire [15:0] elements = d[383:368];
  wire [63:0] list_addr = d[447:384];
  wire [63:0] raw_pdu_addr = d[191:128];
  wire [31:0] raw_length = d[223:192];
  wire [31:0] max_recv = d[255:224];
  wire [31:0] max_send = d[287:256];
  wire [31:0] max_burst = d[319:288];
  wire [31:0] first_burst = d[351:320];

  // Checks, each in the order of the engine in software.
  wire known = kind >= OPEN_CONN && kind <= RESYNC;
  wire mine = conn == '0 && is_open_o;
  wire lengths_fit = max_recv >= MinLength && max_recv <= Buffer && max_send >= MinLength;
  wire burst_fits = max_burst >= MinLength && max_burst <= MaxBurst && first_burst >= MinLength && first_burst <= MaxBurst;
  wire r2ts_fit = d[47:32] >= 16'd1 && d[47:32] <= 16'd8;
  wire slots_fit = d[63:48] >= 16'd1 && d[63:48] <= 16'd1024 && d[223:192] >= max_recv + Longest;
  wire open_fits = d[487:480] <= 8'd2 && lengths_fit && burst_fits && r2ts_fit && slots_fit;
  wire set_fits = lengths_fit && raw_slot_bytes_o >= max_recv + Longest;
  wire post_fits = (flags & 8'hf8) == '0 && flags[1:0] != 2'b11 && (flags[1:0] != 2'b00 || edtl == '0) && itt != NoTag &&
      attr <= 8'd4 && pri <= 8'd15;
  // The wide CRC unit has one polynomial.
  wire has_polynomial = Bytes == 8 || d[223:128] == Crc32c;
  wire polynomial_fits = d[128];
  // What a stopped connection has accepted, no PDU is made of.
  wire poly_full = poly_full_i && !stopped_i;
  wire resync_fits = stopped_i && d[191:128] >= taken_i;

  result_t result;
  logic ending_all, fault_ends;
  request_t call;
  logic [31:0] tag;
  logic [I-1:0] index;
  logic [8:0] element;

  // ABORT of all: the least tag that is not below `floor`.
  logic [32:0] floor;
  logic least_known;
  logic [31:0] least;
  wire least_now = reply_i == GOOD && {1'b0, peek_tag_i} >= floor && (!least_known || peek_tag_i < least);

  // Reads.
  logic [127:0] gathered;
  logic [383:0] bhs;
  logic [16:0] at;
  logic refused;
  wire refused_now = refused || mem_fault_i;
  wire arrives = state == COLLECT && mem_data_valid_i;
  wire ends = arrives && mem_last_i;
  wire [31:0] header_bytes = 32'd48 + {22'd0, bhs[39:32], 2'b00};
  wire [31:0] data_bytes = {8'd0, bhs[47:40], bhs[55:48], bhs[63:56]};
  wire raw_fits = raw_length == header_bytes + data_bytes && data_bytes <= 32'(send_bound_o);
  assign send_bound_o = max_send_o < Buffer ? 17'(max_send_o) : 17'(Buffer);
  // A header, and data, begin in beats of their own.
  wire [31:0] beats = (header_bytes + 32'(Bytes) - 32'd1) / 32'(Bytes) + (data_bytes + 32'(Bytes) - 32'd1) / 32'(Bytes);
  wire raw_room = 32'(raw_room_i) >= beats;
  wire counts = flags[0];
  wire numbered = counts && !bhs[6];
  assign mem_data_ready_o = state == COLLECT;
  assign mem_valid_o = state == READ_MEMORY;
  always_comb begin
    mem_addr_o  = raw_pdu_addr;
    mem_bytes_o = 17'd48;
    case (reading)
      ELEMENT: begin
        mem_addr_o  = list_addr + {51'd0, element, 4'd0};
        mem_bytes_o = 17'd16;
      end
      RAW_HEADER: mem_bytes_o = 17'(header_bytes);
      RAW_DATA: begin
        mem_addr_o  = raw_pdu_addr + 64'(header_bytes);
        mem_bytes_o = 17'(data_bytes);
      end
      default: ;
    endcase
  end

  // To the store of raw PDUs: zeros behind the last byte, and the header whose lengths were checked, whatever the memory says by now.
  wire has_data = data_bytes != '0;
  assign raw_select_o = numbered;
  assign raw_write_o = arrives && (reading == RAW_HEADER || reading == RAW_DATA);
  assign raw_last_o = mem_last_i;
  assign raw_pdu_last_o = mem_last_i && (reading == RAW_DATA || !has_data);
  assign raw_words_o = W'((32'(mem_count_i) + 32'd3) / 32'd4);
  // Beats but the last are full, so each begins at a multiple of its length: at 512 bit every byte has its place.
  wire [5:0] beat_at = at[5:0] & ~6'(Bytes - 1);
  always_comb
    for (int unsigned i = 0; i < Bytes; i++) begin
      raw_data_o[8*i+:8] = mem_data_i[8*i+:8] & {8{i < 32'(mem_count_i)}};
      if (reading == RAW_HEADER && 32'(at) + i < 48) raw_data_o[8*i+:8] = bhs[8*(beat_at+6'(i))+:8];
    end
  logic raw_over, raw_refused;
  assign raw_commit_o = raw_over && !raw_refused;
  assign raw_drop_o   = raw_over && raw_refused;

  // Requests.
  assign request_valid_o = state == CALL;
  assign request_o = call;
  assign request_tag_o = tag;
  assign request_index_o = index;
  assign request_result_o = fault_ends ? MEMORY : ABORTED;
  assign request_post_o = '{
          flags: flags,
          attr: attr[2:0],
          priority_: pri[3:0],
          edtl: edtl,
          lun: d[191:128],
          cdb: d[319:192],
          user: d[127:64],
          sense_addr: d[511:448]
      };
  assign request_addr_o = gathered[63:0];
  assign request_length_o = gathered[95:64];

  assign post_valid_o = state == POST;
  assign post_o = '{
          kind: kind == POST_TASK ? tx_pkg::COMMAND : tx_pkg::RAW,
          numbered: kind == POST_TASK ? !flags[2] : numbered,
          counts: kind == SEND_RAW && counts,
          index: 8'(index)
      };

  wire has_tag = kind == POST_TASK || kind == ABORT;
  assign done_valid_o = state == DONE;
  assign done_o = {376'd0, kind, d[127:64], has_tag ? itt : 32'd0, conn, 4'd0, result, 8'h81};
  assign descriptor_ready_o = state == IDLE && !fault_i;
  assign idle_o = descriptor_ready_o;
  assign restart_position_o = d[191:128];

  // Ends a descriptor with this result.
  task automatic finish(result_t with_result);
    result <= with_result;
    state  <= DONE;
  endtask
  task automatic use_polynomial(logic [95:0] polynomial);
    set_poly_o <= 1'b1;
    poly_o <= '{poly: reversed(polynomial[31:0]), init: polynomial[63:32], xor_out: polynomial[95:64]};
  endtask
  task automatic ask(request_t what, logic [31:0] about);
    call  <= what;
    tag   <= about;
    state <= CALL;
  endtask

  always_ff @(posedge clk) begin
    opens_o <= 1'b0;
    restart_o <= 1'b0;
    set_poly_o <= 1'b0;
    raw_over <= 1'b0;
    case (state)
      IDLE: begin
        ending_all <= 1'b0;
        fault_ends <= fault_i;
        d <= descriptor_i;
        if (fault_i) ask(END_TASK, fault_tag_i);
        else if (descriptor_valid_i) state <= CHECK;
      end
      CHECK:
      if (!known) finish(INVALID);
      else if (kind == OPEN_CONN) begin
        if (conn != '0) finish(INVALID);
        else if (is_open_o) finish(NO_CONNECTION);
        else if (flags[7:4] != '0) finish(NOT_SUPPORTED);
        else if (!open_fits) finish(INVALID);
        else begin
          finish(GOOD);
          is_open_o <= 1'b1;
          opens_o <= 1'b1;
          use_polynomial(Crc32c);
          conn_flags_o <= flags[3:0];
          recovery_level_o <= d[481:480];
          max_outstanding_r2t_o <= d[47:32];
          raw_slots_o <= d[63:48];
          raw_addr_o <= d[191:128];
          raw_slot_bytes_o <= d[223:192];
          max_burst_o <= max_burst;
          first_burst_o <= first_burst;
          cmd_sn_o <= d[383:352];
          max_cmd_sn_o <= d[415:384];
          stat_sn_o <= d[447:416];
        end
      end else if (!mine) finish(NO_CONNECTION);
      else
        case (kind)
          SET_PARAMS: finish(set_fits ? GOOD : INVALID);
          SET_POLY: begin
            finish(!polynomial_fits ? INVALID : !has_polynomial ? NOT_SUPPORTED : poly_full ? TABLE_FULL : GOOD);
            if (polynomial_fits && has_polynomial && !poly_full) use_polynomial(d[223:128]);
          end
          RESYNC: begin
            finish(resync_fits ? GOOD : INVALID);
            restart_o <= resync_fits;
          end
          POST_TASK: begin
            element <= '0;
            if (post_fits) ask(POST_BEGIN, itt);
            else finish(INVALID);
          end
          ABORT: begin
            ending_all <= itt == NoTag;
            floor <= '0;
            least_known <= 1'b0;
            index <= '0;
            ask(itt == NoTag ? PEEK : END_TASK, itt);
          end
          default:
          if (raw_pdus_i == 7'd64) finish(TABLE_FULL);
          else if (flags[7:1] != '0 || raw_length < 32'd48) finish(INVALID);
          else begin
            reading <= RAW_BHS;
            state   <= READ_MEMORY;
          end
        endcase
      CALL: if (request_ready_i) state <= REPLY;
      REPLY:
      if (reply_valid_i)
        case (call)
          POST_BEGIN: begin
            index <= reply_index_i;
            reading <= ELEMENT;
            if (reply_i != GOOD) finish(result_t'(reply_i));
            else if (elements > 16'd256) begin
              result <= BAD_SGL;
              ask(POST_CANCEL, itt);
            end else if (elements == '0) ask(POST_END, itt);
            else state <= READ_MEMORY;
          end
          POST_ELEMENT: begin
            element <= element + 9'd1;
            if (16'(element) + 16'd1 == elements) ask(POST_END, itt);
            else state <= READ_MEMORY;
          end
          POST_END:
          if (reply_i == GOOD) state <= POST;
          else finish(result_t'(reply_i));
          POST_CANCEL: state <= DONE;
          END_TASK:
          if (fault_ends) state <= FAULT;
          else if (!ending_all) finish(result_t'(reply_i));
          else begin
            floor <= {1'b0, tag} + 33'd1;
            least_known <= 1'b0;
            ask(PEEK, tag);
          end
          default: begin
            index <= index + 1'b1;
            if (least_now) begin
              least_known <= 1'b1;
              least <= peek_tag_i;
            end
            if (index != I'(Tasks - 1)) state <= CALL;
            else if (least_known || least_now) ask(END_TASK, least_now ? peek_tag_i : least);
            else begin
              is_open_o <= 1'b0;
              finish(GOOD);
            end
          end
        endcase
      READ_MEMORY: begin
        at <= '0;
        refused <= 1'b0;
        if (mem_ready_i) state <= COLLECT;
      end
      COLLECT:
      if (arrives) begin
        at <= at + 17'(mem_count_i);
        refused <= refused_now;
        if (reading == ELEMENT) gathered <= Bytes == 64 ? 128'(mem_data_i) : 128'({mem_data_i, gathered[127:64]});
        if (reading == RAW_BHS) bhs <= Bytes == 64 ? 384'(mem_data_i) : 384'({mem_data_i, bhs[383:64]});
        if (ends)
          case (reading)
            ELEMENT:
            if (refused_now) begin
              result <= MEMORY;
              ask(POST_CANCEL, itt);
            end else ask(POST_ELEMENT, itt);
            RAW_BHS:
            if (refused_now) finish(MEMORY);
            else begin
              reading <= RAW_HEADER;
              state   <= FAULT;
            end
            default:
            if (refused_now || reading == RAW_DATA || !has_data) begin
              raw_over <= 1'b1;
              raw_refused <= refused_now;
              if (refused_now) finish(MEMORY);
              else state <= POST;
            end else begin
              reading <= RAW_DATA;
              state   <= READ_MEMORY;
            end
          endcase
      end
      POST:
      if (post_ready_i) begin
        if (kind == POST_TASK) state <= IDLE;
        else finish(GOOD);
      end
      DONE: if (done_ready_i) state <= IDLE;
      // Of a fault: until the transmit module has seen the end of its task. Of SEND_RAW: the lengths are known now.
      default:
      if (fault_ends) begin
        if (!fault_i) state <= IDLE;
      end else if (!raw_fits) finish(INVALID);
      else if (!raw_room) finish(TABLE_FULL);
      else state <= READ_MEMORY;
    endcase
    if (state == CHECK && (kind == OPEN_CONN && conn == '0 && !is_open_o && flags[7:4] == '0 && open_fits ||
                           kind == SET_PARAMS && mine && set_fits)) begin
      max_recv_o <= max_recv;
      max_send_o <= max_send;
      snack_delay_o <= d[479:448];
    end
    if (rst) begin
      state <= IDLE;
      is_open_o <= 1'b0;
      opens_o <= 1'b0;
    end
  end
endmodule
`default_nettype wire
