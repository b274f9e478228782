// What the modules of the engine share: the parts of a command table entry, and the codes of docs/engine-interface.md.
//
// An entry has three parts, each with one writer: so no two modules ever write the same memory.
// Strings of bytes (LUN, CDB) lie as in the stream: byte 0 in the lowest bits. Numbers are numbers.
package engine_pkg;
  // PostTask: written when the task is posted.
  typedef struct packed {
    logic [7:0] flags;
    logic [2:0] attr;
    logic [3:0] priority_;
    logic [31:0] edtl;
    logic [63:0] lun;
    logic [127:0] cdb;
    logic [63:0] user;
    logic [63:0] sense_addr;
  } task_post_t;
  // What the receive module wants of it.
  typedef struct packed {
    logic reads;
    logic writes;
    logic [31:0] edtl;
    logic [63:0] user;
    logic [63:0] sense_addr;
  } task_facts_t;
  // Written by the receive module.
  typedef struct packed {
    logic [31:0] next_sn;
    logic [31:0] next_offset;
    logic [31:0] bytes_received;
    // R2Ts that were taken, modulo 16; as many as `bursts_done` of them are answered.
    logic [3:0] r2ts;
    // Data has been placed: the walk of the scatter/gather list goes on where it was.
    logic placed;
  } task_rx_t;
  // Written by the transmit module. All zero when the task is posted.
  typedef struct packed {
    logic sent;
    logic [31:0] cmd_sn;
    logic [31:0] exp_stat_sn;
    logic [31:0] bytes_sent;
    // R2Ts whose data was sent, modulo 16.
    logic [3:0] bursts_done;
  } task_tx_t;
  // What the status of a task says, until the task is complete.
  typedef struct packed {
    logic [7:0] status;
    logic [7:0] response;
    // Bits of residual_flags.
    logic [7:0] residual_flags;
    logic [31:0] residual_count;
    // Bytes of sense data.
    logic [8:0] sense;
    logic [31:0] stat_sn;
  } answer_t;
  // The group of the SNACK table that has a number, if there is one: its SNACK was sent; a PDU at these offsets may be the missing one.
  typedef struct packed {
    logic found;
    logic sent;
    logic admits;
  } found_t;
  // What a PDU does to the groups: nothing; numbers before it (or it too) are lost; it was missing; its replica is lost again.
  typedef enum logic [1:0] {
    LOSS_NONE,
    LOSS_LOSE,
    LOSS_FILL,
    LOSS_AGAIN
  } loss_t;
  typedef struct packed {
    // Codes of `loss_t`.
    logic [1:0] status;
    logic [1:0] data;
    // The number of the PDU is lost with those before it.
    logic status_itself;
    logic data_itself;
    // What is lost is known from ExpDataSN.
    logic promised;
    // Nothing of the task is missing any more.
    logic forgets;
  } losses_t;
  // Index of an element of the data_address table, of as many as there can be: 256 tasks of 256 elements.
  localparam int unsigned MaxE = 16;
  // The scatter/gather list of a task: its first and its last element, if it has any.
  typedef struct packed {
    logic valid;
    logic [MaxE-1:0] first;
    logic [MaxE-1:0] last;
  } list_t;
  // One element of a scatter/gather list in the data_address table.
  typedef struct packed {
    logic [63:0] addr;
    logic [31:0] length;
    // Offset of its first byte in the task's memory; all ones beyond 4 GiB.
    logic [31:0] begin_offset;
  } element_t;

  // Bits of task_flags.
  localparam logic [7:0] READ = 8'h01, WRITE = 8'h02;
  // TaskResult.
  typedef enum logic [3:0] {
    GOOD = 4'd0,
    ABORTED = 4'd1,
    INVALID = 4'd2,
    NO_CONNECTION = 4'd3,
    NO_TASK = 4'd4,
    ITT_IN_USE = 4'd5,
    TABLE_FULL = 4'd6,
    BAD_SGL = 4'd7,
    MEMORY = 4'd8,
    NOT_SUPPORTED = 4'd9
  } result_t;
  // StopReason.
  typedef enum logic [3:0] {
    STOP_NONE = 4'd0,
    STOP_HEADER_DIGEST = 4'd1,
    STOP_DATA_TOO_LONG = 4'd2,
    STOP_DATA_DIGEST = 4'd3,
    STOP_PROTOCOL = 4'd4,
    STOP_SEQUENCE = 4'd5,
    STOP_NO_ROOM = 4'd6,
    STOP_MEMORY = 4'd7
  } stop_t;
  // RawReason.
  typedef enum logic [2:0] {
    RAW_OPCODE = 3'd0,
    RAW_NO_TASK = 3'd1,
    RAW_PROTOCOL = 3'd2,
    RAW_SEQUENCE = 3'd3,
    RAW_NO_ROOM = 3'd4
  } raw_reason_t;
  // Requests to the task store: see task_store.sv.
  typedef enum logic [2:0] {
    POST_BEGIN,
    POST_ELEMENT,
    POST_END,
    POST_CANCEL,
    END_TASK,
    PEEK
  } request_t;

  // A number of the wire, most significant byte first, from byte `at` of a header.
  function automatic logic [31:0] be32(input logic [383:0] bhs, input int unsigned at);
    be32 = {bhs[8*at+:8], bhs[8*(at+1)+:8], bhs[8*(at+2)+:8], bhs[8*(at+3)+:8]};
  endfunction
  // Serial numbers (RFC 1982, RFC 7143 4.2.2.1): a comes before b.
  function automatic logic precedes(input logic [31:0] a, input logic [31:0] b);
    logic [31:0] ahead;
    ahead = b - a;
    precedes = ahead != '0 && !ahead[31];
  endfunction
endpackage
