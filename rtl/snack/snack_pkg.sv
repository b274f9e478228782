// The SNACK table: its entries, and what is asked of it.
package snack_pkg;
  // Codes of SnackState.
  typedef enum logic [1:0] {
    NO_STATE = 2'd0,
    WAITING = 2'd1,
    DUE = 2'd2,
    SENT = 2'd3
  } state_t;

  // SnackEntry. `deadline`: microseconds; all ones: never.
  typedef struct packed {
    // 0 data or R2T, 1 status, 2 DataACK.
    logic [1:0]  snack_type;
    state_t      state;
    // ffffffffh for status.
    logic [31:0] itt;
    logic [31:0] beg_run;
    logic [31:0] run_length;
    logic [31:0] begin_offset;
    // ffffffffh: not known.
    logic [31:0] end_offset;
    logic [63:0] deadline;
    logic [2:0]  cause;
    logic [31:0] ttt;
    // Of the task, or of the Data-In that asks for a DataACK.
    logic [63:0] lun;
    // While it is due: its name in the transmit queue.
    logic [7:0]  id;
  } entry_t;

  typedef enum logic [2:0] {
    // A loss: `entry`. One that continues a group which waits becomes part of it.
    LOSE,
    // The group of a key that has the number `beg_run`.
    FIND,
    // The number `beg_run` has arrived, at these offsets.
    FILL,
    // The task `itt` has ended.
    FORGET,
    // A DataACK: `entry`.
    OWE,
    // DataACKs of the task `itt` that no missing Data-In holds back any more are due at `deadline`.
    RELEASE,
    // Entries with a deadline up to `deadline` are due.
    ADVANCE
  } operation_t;
endpackage
