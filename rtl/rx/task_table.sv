// The tags of one connection's tasks: which index of the command table has this Initiator Task Tag?
//
//   look up: tag --> each digit: [ which indices have it: RAM, a row for each value ] --and--> [ same ] --> found, index
//   add, remove: tag, index --> the index' bit in the row of each digit, 1 or 0
//   [ valid ] --> [ the lowest free index ]
//
// Eight digits of four bits: an index has its bit in one row of each while it has a task, and in none else. So to add and to remove change
// one row of each digit, and no tag is stored. After a reset the rows are emptied, one in a cycle.
// One request in each cycle, which is in registers first: all that a look-up has to go through was the engine's longest way.
`default_nettype none
module task_table #(
    parameter int unsigned Entries = 256
) (
    input  wire                        clk,
    input  wire                        rst,
    // The table has been emptied since the last reset; before, nothing may be added.
    output logic                       ready_o,
    // 0 none, 1 look up, 2 add: a tag that is not in the table, at `free_o`; 3 remove: a tag that has this index.
    input  wire  [                1:0] request_i,
    input  wire  [               31:0] tag_i,
    input  wire  [$clog2(Entries)-1:0] index_i,
    // The answer to the look-up of three cycles ago, which saw all requests before it.
    output logic                       answer_valid_o,
    output logic                       found_o,
    output logic [$clog2(Entries)-1:0] index_o,
    // The lowest free index, and that there is none: of three cycles ago, so no two tags are added in four cycles.
    output logic [$clog2(Entries)-1:0] free_o,
    output logic                       full_o,
    // Tags in the table, with all requests but the last.
    output logic [  $clog2(Entries):0] used_o
);
  localparam int unsigned I = $clog2(Entries);
  localparam logic [1:0] LOOK_UP = 2'd1, ADD = 2'd2, REMOVE = 2'd3;
  localparam int unsigned Digits = 8;

  logic [1:0] request;
  logic [31:0] tag;
  logic [I-1:0] index;
  always_ff @(posedge clk) begin
    request <= rst ? '0 : request_i;
    tag <= tag_i;
    index <= request_i == ADD ? free_o : index_i;
  end
  wire adds = request == ADD;
  wire removes = request == REMOVE;

  // The rows: what becomes of each bit that is written is one lookup table.
  logic [4:0] emptied;
  assign ready_o = emptied[4];
  wire [Entries-1:0] at = Entries'(1) << index;
  wire [Entries-1:0] kept = ready_o ? ~(at & {Entries{removes}}) : '0;
  wire [Entries-1:0] added = adds ? at : '0;
  logic [Digits-1:0][Entries-1:0] has_digit;
  for (genvar d = 0; d < Digits; d++) begin : g_digit
    logic [Entries-1:0] rows[16];
    wire [3:0] digit = ready_o ? tag[4*d+:4] : emptied[3:0];
    assign has_digit[d] = rows[digit];
    always_ff @(posedge clk) if (!ready_o || adds || removes) rows[digit] <= (has_digit[d] & kept) | added;
  end

  // The search is in two levels: a chain as long as the table would be far too slow.
  localparam int unsigned Group = 1 << ((I + 1) / 2);
  localparam int unsigned Groups = Entries / Group;
  logic [Entries-1:0] valid, same, same_now;
  logic [I-1:0] free_at;
  logic [Groups-1:0][I-1:0] free_in;
  logic searched;
  always_comb begin
    same_now = {Entries{ready_o}};
    for (int unsigned d = 0; d < Digits; d++) same_now &= has_digit[d];
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
  always_ff @(posedge clk) begin
    searched <= request == LOOK_UP && !rst;
    same <= same_now;
    answer_valid_o <= searched && !rst;
    found_o <= |same;
    for (int unsigned b = 0; b < I; b++) index_o[b] <= |(same & with_bit(b));
    free_o <= free_at;
    full_o <= &valid;
    if (rst) begin
      valid   <= '0;
      used_o  <= '0;
      emptied <= '0;
    end else begin
      if (!ready_o) emptied <= emptied + 5'd1;
      if (adds) valid[index] <= 1'b1;
      if (removes) valid[index] <= 1'b0;
      used_o <= used_o + (I + 1)'(adds) - (I + 1)'(removes);
    end
  end
`ifndef SYNTHESIS
  logic [2:0] added_before;
  always_ff @(posedge clk) begin
    added_before <= rst ? '0 : {added_before[1:0], request_i == ADD};
    if (!rst) begin
      assert (!searched || $onehot0(same))
      else $error("task_table: a tag has two indices");
      assert (ready_o || !(request_i == ADD || request_i == REMOVE))
      else $error("task_table: a tag is added before the table is empty");
      assert (!adds || !valid[index])
      else $error("task_table: an index is given to two tags");
      assert (!adds || same_now == '0)
      else $error("task_table: a tag is added twice");
      assert (!removes || same_now == at)
      else $error("task_table: a tag is removed that does not have this index");
      assert (request_i != ADD || (added_before == '0 && !full_o))
      else $error("task_table: a tag is added for which no free index is known");
      assert (32'($countones(valid)) == 32'(used_o))
      else $error("task_table: the count of tags is wrong");
    end
  end
`endif
endmodule
`default_nettype wire
