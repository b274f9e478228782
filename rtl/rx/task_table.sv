// The command table of one connection: entries are found by their Initiator Task Tag, in one cycle.
//
//   tag --> each digit: [ which entries have it: RAM, a row for each value ] --and, valid--> hit, index --> [ entries ] --> entry
//   allocate: the lowest free index            write back: the entry of an index
//
// Eight digits of four bits: an entry has its bit in one row of each while it is allocated, and in none else. So to allocate and to free
// change the rows that the search has just read, and no tag is stored. After a reset the rows are emptied, one in a cycle.
// One request in each cycle, its answer in the next. A request sees what all requests before it have done. Entries are opaque here:
// `Width` bits, of which the receive module and the host interface know the fields (docs/engine-interface.md, CommandEntry).
`default_nettype none
module task_table #(
    parameter int unsigned Entries = 256,
    parameter int unsigned Width   = 64
) (
    input  wire                        clk,
    input  wire                        rst,
    // The table has been emptied since the last reset; before, nothing may be allocated.
    output logic                       ready_o,
    // 0 none, 1 look up, 2 allocate, 3 write back, 4 free. Write back and free need a tag that is in the table, else nothing changes.
    input  wire  [                2:0] request_i,
    input  wire  [               31:0] tag_i,
    input  wire  [          Width-1:0] entry_i,
    // The answer to the request of the cycle before.
    // 0 good, 4 no such task, 5 tag in use, 6 table full: the codes of TaskResult.
    output logic                       answer_valid_o,
    output logic [                2:0] answer_o,
    output logic [$clog2(Entries)-1:0] index_o,
    // After a look-up: the entry.
    output logic [          Width-1:0] entry_o,
    output logic [  $clog2(Entries):0] used_o
);
  localparam int unsigned I = $clog2(Entries);
  localparam logic [2:0] NONE = 3'd0, LOOK_UP = 3'd1, ALLOCATE = 3'd2, WRITE_BACK = 3'd3, FREE = 3'd4;
  localparam logic [2:0] GOOD = 3'd0, NO_TASK = 3'd4, IN_USE = 3'd5, FULL = 3'd6;

  logic [Entries-1:0] valid;
  logic [Width-1:0] entries[Entries];

  localparam int unsigned Digits = 8;
  logic [Digits-1:0][Entries-1:0] has_digit;
  logic [4:0] emptied;
  assign ready_o = emptied[4];

  // Both searches are in two levels: a chain as long as the table would be its slowest path by far.
  localparam int unsigned Group = 1 << ((I + 1) / 2);
  localparam int unsigned Groups = Entries / Group;
  logic [Entries-1:0] same;
  logic [I-1:0] found_at, free_at;
  logic [Groups-1:0][I-1:0] free_in;
  always_comb begin
    same = valid;
    for (int unsigned d = 0; d < Digits; d++) same &= has_digit[d];
    for (int unsigned b = 0; b < I; b++) found_at[b] = |(same & with_bit(b));
    free_at = '0;
    for (int unsigned g = Groups; g > 0; g--) begin
      free_in[g-1] = '0;
      for (int unsigned i = Group; i > 0; i--) if (!valid[Group*(g-1)+i-1]) free_in[g-1] = I'(Group * (g - 1) + i - 1);
      if (!(&valid[Group*(g-1)+:Group])) free_at = free_in[g-1];
    end
  end
  // The indices that have bit b.
  function automatic logic [Entries-1:0] with_bit(int unsigned b);
    for (int unsigned i = 0; i < Entries; i++) with_bit[i] = (i >> b) % 2 == 1;
  endfunction
  wire found = |same;
  wire full = &valid;
  wire allocates = request_i == ALLOCATE && !found && !full;
  wire writes = request_i == WRITE_BACK && found;
  wire frees = request_i == FREE && found;

  // What becomes of each row that is written: one lookup table for a bit.
  wire [Entries-1:0] kept = ready_o ? ~(same & {Entries{frees}}) : '0;
  wire [Entries-1:0] added = allocates ? Entries'(1) << free_at : '0;
  for (genvar d = 0; d < Digits; d++) begin : g_digit
    logic [Entries-1:0] rows[16];
    wire [3:0] digit = tag_i[4*d+:4];
    assign has_digit[d] = rows[digit];
    always_ff @(posedge clk) begin
      if (!ready_o || allocates || frees) rows[ready_o ? digit : emptied[3:0]] <= (has_digit[d] & kept) | added;
    end
  end

  always_ff @(posedge clk) begin
    answer_valid_o <= request_i != NONE && !rst;
    if (request_i == ALLOCATE) answer_o <= found ? IN_USE : full ? FULL : GOOD;
    else answer_o <= found ? GOOD : NO_TASK;
    index_o <= request_i == ALLOCATE ? free_at : found_at;
    if (request_i == LOOK_UP) entry_o <= entries[found_at];
    if (allocates) entries[free_at] <= entry_i;
    else if (writes) entries[found_at] <= entry_i;
    if (rst) begin
      valid   <= '0;
      used_o  <= '0;
      emptied <= '0;
    end else begin
      if (!ready_o) emptied <= emptied + 5'd1;
      if (allocates) valid[free_at] <= 1'b1;
      if (frees) valid[found_at] <= 1'b0;
      used_o <= used_o + (I + 1)'(allocates) - (I + 1)'(frees);
    end
  end
`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert ($onehot0(same))
      else $error("task_table: a tag has two entries");
      assert (ready_o || request_i != ALLOCATE)
      else $error("task_table: an entry is allocated before the table is empty");
      assert (!allocates || !valid[free_at])
      else $error("task_table: an entry is allocated twice");
      assert (32'($countones(valid)) == 32'(used_o))
      else $error("task_table: the count of entries is wrong");
    end
  end
`endif
endmodule
`default_nettype wire
