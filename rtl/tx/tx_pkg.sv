// What the parts of the transmit module say to each other, and the headers of the PDUs that the engine makes.
//
// Byte n of a header is bits 8 n to 8 n + 7, as in a beat. Fields of the wire are big-endian there; LUN and CDB are kept as bytes of
// the wire (docs/engine-interface.md).
package tx_pkg;
  import engine_pkg::*;
  typedef logic [383:0] header_t;
  // Of task_flags.
  localparam logic [7:0] IMMEDIATE = 8'h04;

  typedef enum logic [1:0] {
    COMMAND,
    RAW,
    SNACK
  } kind_t;

  // An entry of the transmit queue.
  typedef struct packed {
    kind_t      kind;
    // It takes a CmdSN, so it waits for the window.
    logic       numbered;
    // RAW: the engine writes CmdSN.
    logic       counts;
    // Index of the command, or of the entry of the SNACK table.
    logic [7:0] index;
  } entry_t;

  // An entry of the R2T table that nothing was sent of: data that a write has to send.
  typedef struct packed {
    // Index of the command.
    logic [7:0]  index;
    // ffffffffh: unsolicited.
    logic [31:0] ttt;
    logic [63:0] lun;
    logic [31:0] r2t_sn;
    logic [31:0] offset;
    logic [31:0] length;
  } burst_t;

  // An entry of the SNACK table, as far as its PDU needs it.
  typedef struct packed {
    // 0 data or R2T, 1 status, 2 DataACK.
    logic [1:0]  snack_type;
    logic [31:0] itt;
    logic [31:0] ttt;
    logic [63:0] lun;
    logic [31:0] beg_run;
    logic [31:0] run_length;
  } snack_t;

  function automatic logic [31:0] wire32(logic [31:0] value);
    return {value[7:0], value[15:8], value[23:16], value[31:24]};
  endfunction

  // DataSegmentLength is bytes 5 to 7; TotalAHSLength, byte 4, is 0.
  function automatic logic [31:0] lengths(logic [23:0] data_bytes);
    return wire32({8'd0, data_bytes});
  endfunction

  // RFC 7143 11.3
  function automatic header_t scsi_command(logic [7:0] task_flags, logic [2:0] attr, logic [3:0] pri, logic [63:0] lun,
                                           logic [31:0] itt, logic [31:0] edtl, logic [127:0] cdb, logic final_bit,
                                           logic [23:0] data_bytes, logic [31:0] cmd_sn, logic [31:0] exp_stat_sn);
    logic read, write, immediate;
    read = (task_flags & READ) != '0;
    write = (task_flags & WRITE) != '0;
    immediate = (task_flags & IMMEDIATE) != '0;
    return {
      cdb,
      wire32(exp_stat_sn),
      wire32(cmd_sn),
      wire32(edtl),
      wire32(itt),
      lun,
      lengths(data_bytes),
      8'd0,
      {pri, 4'd0},
      {final_bit, read, write, 2'b00, attr},
      {1'b0, immediate, 6'h01}
    };
  endfunction

  // RFC 7143 11.7
  function automatic header_t data_out(logic [63:0] lun, logic [31:0] itt, logic [31:0] ttt, logic final_bit,
                                       logic [23:0] data_bytes, logic [31:0] exp_stat_sn, logic [31:0] data_sn,
                                       logic [31:0] offset);
    return {
      32'd0,
      wire32(offset),
      wire32(data_sn),
      32'd0,
      wire32(exp_stat_sn),
      32'd0,
      wire32(ttt),
      wire32(itt),
      lun,
      lengths(data_bytes),
      16'd0,
      {final_bit, 7'd0},
      8'h05
    };
  endfunction

  // RFC 7143 11.16. A DataACK carries the reserved tag of a task.
  function automatic header_t snack_request(snack_t s, logic [31:0] exp_stat_sn);
    return {
      wire32(s.run_length),
      wire32(s.beg_run),
      64'd0,
      wire32(exp_stat_sn),
      32'd0,
      wire32(s.ttt),
      s.snack_type == 2'd2 ? 32'hffff_ffff : wire32(s.itt),
      s.lun,
      32'd0,
      16'd0,
      {6'b100000, s.snack_type},
      8'h10
    };
  endfunction
endpackage
