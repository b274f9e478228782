// The tags of the command table, for every sequence of requests that keeps the table's rules: one arbitrary tag is followed through it.
//
//   requests --> [ task_table ] --answers--> what the tag should have: `held`, its index `at`
//
// As the tag is arbitrary, what holds for it holds for all: no tag has two indices, and no index belongs to two tags.
`default_nettype none
module task_table_proof #(
    parameter int unsigned Entries = 4
) (
    input wire                       clk,
    input wire                       rst,
    input wire [                1:0] request_i,
    input wire [               31:0] tag_i,
    input wire [$clog2(Entries)-1:0] index_i,
    // Arbitrary, and always the same.
    input wire [               31:0] watched
);
  localparam int unsigned I = $clog2(Entries);
  localparam logic [1:0] LOOK_UP = 2'd1, ADD = 2'd2, REMOVE = 2'd3;
  logic answer_valid, ready, found, full;
  logic [I-1:0] index, free;
  logic [I:0] used;
  task_table #(
      .Entries(Entries)
  ) table_ (
      .clk,
      .rst,
      .ready_o(ready),
      .request_i,
      .tag_i,
      .index_i,
      .answer_valid_o(answer_valid),
      .found_o(found),
      .index_o(index),
      .free_o(free),
      .full_o(full),
      .used_o(used)
  );

  logic begun = 1'b0;
  logic [31:0] always_watched;
  // What the table should know, with all requests but that in the table's first registers.
  logic held;
  logic [I-1:0] at;
  logic [Entries-1:0][31:0] tags;
  // What the look-ups of the cycles before have to find.
  logic [1:0] looks, finds;
  logic [1:0][I-1:0] finds_at;
  // A request is in the first registers; a tag was added one or two cycles before it.
  logic [2:0] added;

  // The rows of all digits, turned: for each entry and digit the values that the entry is said to have.
  logic [Entries-1:0][7:0][15:0] values;
  for (genvar d = 0; d < 8; d++) begin : g_digit
    for (genvar v = 0; v < 16; v++) begin : g_value
      for (genvar i = 0; i < Entries; i++) begin : g_entry
        assign values[i][d][v] = table_.g_digit[d].rows[v][i];
      end
    end
  end

  // Entry i has the tag of the request in the first registers, or that of an entry before it; it has other values than those of its tag.
  // While the table is being emptied nothing is added, and rows that had their turn are empty.
  logic [Entries-1:0] has_tag, has_watched, pairs, wrong;
  always_comb begin
    pairs = '0;
    wrong = '0;
    for (int unsigned i = 0; i < Entries; i++) begin
      has_tag[i] = table_.valid[i] && tags[i] == table_.tag;
      has_watched[i] = table_.valid[i] && tags[i] == watched;
      for (int unsigned d = 0; d < 8; d++)
        if (!ready) wrong[i] = wrong[i] || table_.valid[i] || (values[i][d] & ((16'd1 << table_.emptied[3:0]) - 16'd1)) != '0;
        else wrong[i] = wrong[i] || values[i][d] != (table_.valid[i] ? 16'd1 << tags[i][4*d+:4] : '0);
      for (int unsigned j = 0; j < i; j++)
        pairs[i] = pairs[i] || (table_.valid[i] && table_.valid[j] && tags[i] == tags[j]);
    end
  end

  always_ff @(posedge clk) begin
    begun <= 1'b1;
    if (!begun) assume (rst);
    always_watched <= watched;
    if (begun) assume (watched == always_watched);
    // The rules of the users: see task_table.
    assume (ready || !(request_i == ADD || request_i == REMOVE));
    assume (request_i != ADD || (added == '0 && !full));
    assume (!(begun && !rst && table_.adds) || has_tag == '0);
    assume (!(begun && !rst && table_.removes) || (table_.valid[table_.index] && tags[table_.index] == table_.tag));
    added <= rst ? '0 : {added[1:0], request_i == ADD};
    if (table_.adds) tags[table_.index] <= table_.tag;
    held <= !rst && (table_.tag == watched && table_.adds || held && !(table_.tag == watched && table_.removes));
    if (table_.tag == watched && table_.adds) at <= table_.index;
    looks <= rst ? '0 : {looks[0], table_.request == LOOK_UP && table_.tag == watched};
    finds <= {finds[0], held};
    finds_at <= {finds_at[0], at};
    if (begun && !rst) begin
      // What an answer says.
      if (looks[1]) assert (answer_valid && found == finds[1]);
      if (looks[1] && finds[1]) assert (index == finds_at[1]);
      if (table_.searched && looks[0]) assert (table_.same == (finds[0] ? Entries'(1) << finds_at[0] : '0));
      assert (looks[0] <= table_.searched);
      // What an addition gets.
      assert (ready || !(table_.adds || table_.removes));
      if (table_.adds) assert (!table_.valid[table_.index]);
      if (added == '0 && !full) assert (!table_.valid[free]);
      assert (added[0] == (table_.request == ADD));
      assert (added == table_.added_before);
      // What the table holds.
      assert (has_watched == (held ? Entries'(1) << at : '0));
      assert (pairs == '0);
      assert (wrong == '0);
    end
  end
endmodule
`default_nettype wire
