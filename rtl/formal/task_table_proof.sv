// The command table, for every sequence of requests: one arbitrary tag is followed through it.
//
//   requests --> [ task_table ] --answers--> what the tag should have: `held`, its index `at`, its `entry`
//
// As the tag is arbitrary, what holds for it holds for all: no tag has two entries, and no entry belongs to two tags.
`default_nettype none
module task_table_proof #(
    parameter int unsigned Entries = 4,
    parameter int unsigned Width   = 4
) (
    input wire                    clk,
    input wire                    rst,
    input wire [             2:0] request_i,
    input wire [            31:0] tag_i,
    input wire [       Width-1:0] entry_i,
    // Arbitrary, and always the same.
    input wire [            31:0] watched
);
  localparam int unsigned I = $clog2(Entries);
  localparam logic [2:0] LOOK_UP = 3'd1, ALLOCATE = 3'd2, WRITE_BACK = 3'd3, FREE = 3'd4;
  localparam logic [2:0] GOOD = 3'd0, NO_TASK = 3'd4, IN_USE = 3'd5, FULL = 3'd6;
  logic answer_valid, ready;
  logic [2:0] answer;
  logic [I-1:0] index;
  logic [Width-1:0] entry_out;
  logic [I:0] used;
  task_table #(
      .Entries(Entries),
      .Width  (Width)
  ) table_ (
      .clk,
      .rst,
      .ready_o(ready),
      .request_i,
      .tag_i,
      .entry_i,
      .answer_valid_o(answer_valid),
      .answer_o(answer),
      .index_o(index),
      .entry_o(entry_out),
      .used_o(used)
  );

  logic begun = 1'b0, held, is_watched, full;
  logic [2:0] asked;
  logic [31:0] always_watched;
  logic [Width-1:0] entry, given, entry_now;
  logic [I-1:0] at, at_now;
  wire good = answer_valid && answer == GOOD;
  wire mine = good && is_watched;
  wire held_now = !(mine && asked == FREE) && (held || (mine && asked == ALLOCATE));
  assign at_now = mine && asked == ALLOCATE ? index : at;
  assign entry_now = mine && (asked == ALLOCATE || asked == WRITE_BACK) ? given : entry;

  // The rows of all digits, turned: for each entry and digit the values that the entry is said to have.
  logic [Entries-1:0][7:0][15:0] values;
  for (genvar d = 0; d < 8; d++) begin : g_digit
    for (genvar v = 0; v < 16; v++) begin : g_value
      for (genvar i = 0; i < Entries; i++) begin : g_entry
        assign values[i][d][v] = table_.g_digit[d].rows[v][i];
      end
    end
  end

  // The tag of each entry, which the table itself does not store.
  logic [Entries-1:0][31:0] tags;
  always_ff @(posedge clk) if (table_.allocates) tags[table_.free_at] <= tag_i;

  // Entry i has the watched tag; it has the tag of an entry before it; it has other values than those of its tag. While the table is being
  // emptied nothing is allocated, and rows that had their turn are empty.
  logic [Entries-1:0] has_tag, pairs, wrong;
  always_comb begin
    pairs = '0;
    wrong = '0;
    for (int unsigned i = 0; i < Entries; i++) begin
      has_tag[i] = table_.valid[i] && tags[i] == watched;
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
    assume (ready || request_i != ALLOCATE);
    full <= &table_.valid;
    always_watched <= watched;
    if (begun) assume (watched == always_watched);
    held <= held_now && !rst;
    at <= at_now;
    entry <= entry_now;
    asked <= request_i;
    is_watched <= tag_i == watched;
    given <= entry_i;
    if (begun && !rst) begin
      // What an answer says.
      if (answer_valid && is_watched && asked == ALLOCATE) assert (answer == (held ? IN_USE : full ? FULL : GOOD));
      if (answer_valid && is_watched && asked != ALLOCATE) assert (answer == (held ? GOOD : NO_TASK));
      if (mine && asked != ALLOCATE) assert (index == at);
      if (mine && asked == LOOK_UP) assert (entry_out == entry);
      if (good && !is_watched && held) assert (index != at);
      // What the table holds.
      assert (has_tag == (held_now ? Entries'(1) << at_now : '0));
      assert (pairs == '0);
      assert (wrong == '0);
      assert (!held_now || table_.entries[at_now] == entry_now);
    end
  end
endmodule
`default_nettype wire
