// The tables of the tasks of one connection: command table and data_address table, with their users.
//
//   router:   look up by tag, write its part, end ---+--> [ task_table: tags ] --> [ what the router wants of PostTask, list ]
//   control:  POST_BEGIN to POST_END, PEEK ----------+
//   transmit: look up by index, write its part ---------> [ copy of it ] [ part of Rx ] [ part of Tx ]
//   walkers of Rx and Tx: an element by its index ------> [ elements ] [ links ]
//
//   requests of control:
//   READY --> SEARCH --> SEARCHED --> (ADD) --> reply        POST_BEGIN
//         --> LINK --> APPEND ---------> reply              POST_ELEMENT; back to LINK while a list is freed
//         --> STORE -------------------> reply              POST_END of a good list
//         --> STORE --> RELEASE -------> reply              POST_END of a bad one
//         --> RELEASE -----------------> reply              POST_CANCEL
//         --> PEEK_COPY --> PEEKED ----> reply              PEEK; back to PEEK_COPY while transmit looks up
//
// A list is a chain of elements. The free elements are a chain too, and those from `fresh` on were never used: a list is freed in
// one cycle, whatever its length. Each part of an entry has one writer but for the reset when a task is posted. The tags take one
// request in each cycle: an end first, then a look-up of the router, then control.
`default_nettype none
module task_store
  import engine_pkg::*;
#(
    parameter int unsigned Tasks = 256,
    parameter int unsigned Elements = 1024,
    localparam int unsigned I = $clog2(Tasks),
    localparam int unsigned E = $clog2(Elements)
) (
    input  wire                clk,
    // Empties all tables, in some cycles; a POST_BEGIN waits for that.
    input  wire                rst,
    output logic               empties_o,
    // The router looks a tag up: `looked_o` four cycles later, and the answer stays until the next.
    input  wire                look_i,
    input  wire  [       31:0] look_tag_i,
    output logic               look_ready_o,
    output logic               looked_o,
    output logic               found_o,
    output logic       [I-1:0] index_o,
    output task_facts_t        facts_o,
    output list_t              list_o,
    output task_rx_t           rx_o,
    output logic               sent_o,
    output logic [       31:0] bytes_sent_o,
    output logic [        3:0] bursts_done_o,
    // The router writes its part.
    input  wire                rx_write_i,
    input  wire        [I-1:0] rx_write_index_i,
    input  task_rx_t           rx_write_task_i,
    // A task leaves: its tag and its list are free.
    input  wire                end_i,
    input  wire        [I-1:0] end_index_i,
    input  wire  [       31:0] end_tag_i,
    input  list_t              end_list_i,
    // Control.
    input  wire                request_valid_i,
    output logic               request_ready_o,
    input  request_t           request_i,
    input  wire  [       31:0] request_tag_i,
    input  wire        [I-1:0] request_index_i,
    input  task_post_t         request_post_i,
    input  wire  [       63:0] request_addr_i,
    input  wire  [       31:0] request_length_i,
    output logic               reply_valid_o,
    output logic       [  3:0] reply_o,
    output logic       [I-1:0] reply_index_o,
    // Who has this tag? Asked until `who_ready_o`; the answer comes five cycles later, while transmit looks nothing up: with `copy_post_o`.
    input  wire                who_i,
    input  wire  [       31:0] who_tag_i,
    output logic               who_ready_o,
    output logic               who_looked_o,
    output logic               who_found_o,
    // Transmit looks an index up: `tx_looked_o` two cycles later.
    input  wire                tx_look_i,
    input  wire        [I-1:0] tx_index_i,
    output logic               tx_looked_o,
    output logic               tx_found_o,
    // Valid with `tx_looked_o`, and with the reply to PEEK.
    output logic       [ 31:0] copy_tag_o,
    output task_post_t         copy_post_o,
    output task_rx_t           copy_rx_o,
    output task_tx_t           copy_tx_o,
    output list_t              copy_list_o,
    input  wire                tx_write_i,
    input  wire        [I-1:0] tx_write_index_i,
    input  task_tx_t           tx_write_task_i,
    // The walkers: the element and the link of the cycle before.
    input  wire  [MaxE-1:0]    rx_element_i,
    output element_t           rx_element_o,
    output logic [MaxE-1:0]    rx_next_o,
    input  wire  [MaxE-1:0]    tx_element_i,
    output element_t           tx_element_o,
    output logic [MaxE-1:0]    tx_next_o,
    // Tasks in the table.
    output logic         [I:0] used_o
);
  localparam logic [1:0] NONE = 2'd0, LOOK_UP = 2'd1, ADD_TAG = 2'd2, REMOVE = 2'd3;
  typedef struct packed {
    task_facts_t facts;
    list_t list;
  } entry_t;
  typedef struct packed {
    logic [31:0] tag;
    task_post_t post;
    list_t list;
  } copy_t;
  // A link of the free chain; without `valid` the chain ends.
  typedef struct packed {
    logic valid;
    logic [E-1:0] element;
  } link_t;
  typedef enum logic [3:0] {
    READY,
    SEARCH,
    SEARCHED,
    ADD,
    LINK,
    APPEND,
    STORE,
    RELEASE,
    PEEK_COPY,
    PEEKED
  } state_t;
  state_t state;

  // The task that is being posted.
  logic [31:0] tag, length;
  logic [63:0] addr;
  logic [I-1:0] index, peek_index;
  task_post_t posting;
  list_t posting_list;
  entry_t entry;
  assign entry.facts.reads = (posting.flags & READ) != '0;
  assign entry.facts.writes = (posting.flags & WRITE) != '0;
  assign entry.facts.edtl = posting.edtl;
  assign entry.facts.user = posting.user;
  assign entry.facts.sense_addr = posting.sense_addr;
  assign entry.list = posting_list;
  logic bad, full;
  // Bytes of the list, as far as 4 GiB.
  logic [32:0] total;
  wire list_good = !bad && !full && total >= {1'b0, posting.edtl};

  // Tags.
  logic table_ready;
  assign empties_o = !table_ready;
  wire tags_free = table_ready && !end_i && !look_i && !who_i;
  // PEEK and this share a read port.
  assign who_ready_o = !end_i && !look_i && state != PEEK_COPY && state != PEEKED;
  wire asks_who = who_i && who_ready_o;
  wire searches = state == SEARCH && tags_free;
  wire adds = state == ADD && tags_free;
  wire posts = state == STORE && list_good && !rx_write_i;
  wire releases = state == RELEASE && tags_free;
  assign look_ready_o = !end_i;
  wire looks = look_i && look_ready_o;
  logic [1:0] table_request;
  logic [31:0] table_tag;
  always_comb begin
    table_request = NONE;
    table_tag = tag;
    if (end_i) begin
      table_request = REMOVE;
      table_tag = end_tag_i;
    end else if (look_i) begin
      table_request = LOOK_UP;
      table_tag = look_tag_i;
    end else if (who_i) begin
      table_request = asks_who ? LOOK_UP : NONE;
      table_tag = who_tag_i;
    end else if (searches) table_request = LOOK_UP;
    else if (adds) table_request = ADD_TAG;
    else if (releases) table_request = REMOVE;
  end
  logic unused_answer_valid, table_found, table_full;
  logic [I-1:0] table_index, table_free;
  task_table #(
      .Entries(Tasks)
  ) tag_table (
      .clk,
      .rst,
      .ready_o(table_ready),
      .request_i(table_request),
      .tag_i(table_tag),
      .index_i(end_i ? end_index_i : index),
      .answer_valid_o(unused_answer_valid),
      .found_o(table_found),
      .index_o(table_index),
      .free_o(table_free),
      .full_o(table_full),
      .used_o
  );

  // Parts of the entries: one read port for the router, one for transmit and PEEK.
  (* no_rw_check *)
  copy_t copies[Tasks];
  // Who looks a tag up while its task is posted may read anything of this one: nothing of a task counts before it was sent.
  (* no_rw_check *)
  entry_t entries[Tasks];
  task_rx_t rx_parts[Tasks];
  task_tx_t tx_parts[Tasks];
  logic [Tasks-1:0] posted, tx_written;
  // A look-up's way through the table of tags.
  logic [1:0] look_under_way, who_under_way, search_under_way;
  logic search_answers;
  logic look_answers, who_answers, who_copies, tx_answers, look_written, copy_written, copy_found;
  task_tx_t look_tx, copy_tx;
  copy_t copy;
  logic [I-1:0] copy_index;
  // What is read goes to registers and nowhere else: then the parts are in block RAM.
  assign sent_o = look_written && look_tx.sent;
  assign bytes_sent_o = look_written ? look_tx.bytes_sent : '0;
  assign bursts_done_o = look_written ? look_tx.bursts_done : '0;
  wire unused_numbers = ^{look_tx.cmd_sn, look_tx.exp_stat_sn};
  assign copy_tx_o = copy_written ? copy_tx : '0;
  assign copy_tag_o = copy.tag;
  assign copy_post_o = copy.post;
  assign copy_list_o = copy.list;
  assign tx_found_o = copy_found;
  always_ff @(posedge clk) begin
    {look_answers, look_under_way} <= rst ? '0 : {look_under_way, looks};
    {who_answers, who_under_way} <= rst ? '0 : {who_under_way, asks_who};
    {search_answers, search_under_way} <= rst ? '0 : {search_under_way, searches};
    looked_o <= look_answers && !rst;
    if (look_answers) begin
      found_o <= table_found;
      index_o <= table_index;
      {facts_o, list_o} <= entries[table_index];
      rx_o <= rx_parts[table_index];
      look_tx <= tx_parts[table_index];
      look_written <= tx_written[table_index];
    end
    who_copies <= who_answers && !rst;
    who_looked_o <= who_copies && !rst;
    // It may have left since the look-up began.
    if (who_answers) who_found_o <= table_found && posted[table_index] && !(end_i && end_index_i == table_index);
    copy_index <= who_answers ? table_index : tx_look_i ? tx_index_i : peek_index;
    tx_answers <= tx_look_i && !rst;
    tx_looked_o <= tx_answers && !rst;
    copy_found <= posted[copy_index];
    copy <= copies[copy_index];
    copy_rx_o <= rx_parts[copy_index];
    copy_tx <= tx_parts[copy_index];
    copy_written <= tx_written[copy_index];
    if (rx_write_i || posts) rx_parts[rx_write_i ? rx_write_index_i : index] <= rx_write_i ? rx_write_task_i : '0;
    if (posts) copies[index] <= {tag, posting, posting_list};
    if (posts) entries[index] <= entry;
    if (tx_write_i) tx_parts[tx_write_index_i] <= tx_write_task_i;
    if (tx_write_i) tx_written[tx_write_index_i] <= 1'b1;
    if (adds) tx_written[table_free] <= 1'b0;
    if (posts) posted[index] <= 1'b1;
    if (end_i) posted[end_index_i] <= 1'b0;
    if (rst) posted <= '0;
  end

  // Elements. What an index without an element would read is not used.
  wire unused_indices = &{1'b0, rx_element_i, tx_element_i};
  // What is read of an element while it is written is not used either: no list has it yet.
  (* no_rw_check *)
  element_t elements[Elements];
  (* no_rw_check *)
  link_t links[Elements];
  link_t free, free_next;
  logic [E:0] fresh;
  wire exhausted = !free.valid && fresh == (E + 1)'(Elements);
  wire [E-1:0] taken = free.valid ? free.element : fresh[E-1:0];
  wire appends = state == APPEND && !end_i && !exhausted;
  list_t leaving;
  assign leaving = end_i ? end_list_i : posting_list;
  wire frees = (end_i || releases) && leaving.valid;
  always_ff @(posedge clk) begin
    if (appends) elements[taken] <= {addr, length, total[32] ? 32'hffff_ffff : total[31:0]};
    if (frees) links[leaving.last[E-1:0]] <= free;
    else if (appends && posting_list.valid) links[posting_list.last[E-1:0]] <= {1'b1, taken};
    free_next <= links[free.element];
    rx_element_o <= elements[rx_element_i[E-1:0]];
    rx_next_o <= MaxE'(links[rx_element_i[E-1:0]].element);
    tx_element_o <= elements[tx_element_i[E-1:0]];
    tx_next_o <= MaxE'(links[tx_element_i[E-1:0]].element);
    if (rst) begin
      free  <= '0;
      fresh <= '0;
    end else if (frees) free <= {1'b1, leaving.first[E-1:0]};
    else if (appends && free.valid) free <= free_next;
    else if (appends) fresh <= fresh + 1'b1;
  end

  // Control.
  assign request_ready_o = state == READY;
  // An element that ends at the end of the addresses counts as one that goes beyond.
  wire wraps = addr > ~{32'd0, length};
  always_ff @(posedge clk) begin
    reply_valid_o <= 1'b0;
    reply_o <= GOOD;
    case (state)
      READY:
      if (request_valid_i) begin
        addr   <= request_addr_i;
        length <= request_length_i;
        case (request_i)
          POST_BEGIN: begin
            state <= SEARCH;
            tag <= request_tag_i;
            posting_list <= '0;
            // POST_CANCEL is not about bytes.
            posting.edtl <= '0;
            {bad, full} <= 2'b00;
            total <= '0;
          end
          POST_ELEMENT: state <= LINK;
          POST_END: begin
            state <= STORE;
            posting <= request_post_i;
          end
          POST_CANCEL: state <= RELEASE;
          PEEK: begin
            state <= PEEK_COPY;
            peek_index <= request_index_i;
          end
          default: ;
        endcase
      end
      SEARCH: if (searches) state <= SEARCHED;
      SEARCHED:
      if (search_answers) begin
        reply_o <= table_found ? ITT_IN_USE : TABLE_FULL;
        reply_valid_o <= table_found || table_full;
        state <= table_found || table_full ? READY : ADD;
      end
      ADD:
      if (adds) begin
        index <= table_free;
        reply_index_o <= table_free;
        reply_valid_o <= 1'b1;
        state <= READY;
      end
      LINK: if (!end_i) state <= APPEND;
      APPEND:
      if (end_i) state <= LINK;
      else begin
        if (exhausted) full <= 1'b1;
        else begin
          posting_list.valid <= 1'b1;
          posting_list.last  <= MaxE'(taken);
          if (!posting_list.valid) posting_list.first <= MaxE'(taken);
        end
        if (length == '0 || wraps) bad <= 1'b1;
        if (!total[32]) total <= {1'b0, total[31:0]} + {1'b0, length};
        reply_valid_o <= 1'b1;
        state <= READY;
      end
      STORE:
      if (!list_good) state <= RELEASE;
      else if (posts) begin
        reply_valid_o <= 1'b1;
        state <= READY;
      end
      RELEASE:
      if (tags_free) begin
        reply_o <= full ? TABLE_FULL : list_good ? GOOD : BAD_SGL;
        reply_valid_o <= 1'b1;
        state <= READY;
      end
      PEEK_COPY: if (!tx_look_i && !who_answers) state <= PEEKED;
      PEEKED: begin
        reply_valid_o <= 1'b1;
        reply_o <= posted[peek_index] ? GOOD : NO_TASK;
        reply_index_o <= peek_index;
        state <= READY;
      end
      default: state <= READY;
    endcase
    if (rst) begin
      state <= READY;
      reply_valid_o <= 1'b0;
    end
  end
`ifndef SYNTHESIS
  // `free_next` was read in the cycle in which that link was written.
  logic link_changed;
  always_ff @(posedge clk)
    link_changed <= frees ? leaving.last[E-1:0] == free.element : appends && posting_list.valid && posting_list.last[E-1:0] == free.element;
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert (!(posts && copy_index == index && (who_copies || tx_answers)))
      else $error("task_store: a copy is read while it is written");
      assert (!(appends && free.valid && link_changed))
      else $error("task_store: a link is used that was read while it was written");
      assert (!(rx_write_i && !posted[rx_write_index_i]))
      else $error("task_store: the router writes a task that does not exist");
      assert (!(tx_write_i && !posted[tx_write_index_i]))
      else $error("task_store: transmit writes a task that does not exist");
      assert (!(end_i && !posted[end_index_i]))
      else $error("task_store: a task that does not exist ends");
      assert (!frees || (32'(leaving.first) < Elements && 32'(leaving.last) < Elements))
      else $error("task_store: a list is freed that does not exist");
      assert (!(appends && !free.valid && fresh >= (E + 1)'(Elements)))
      else $error("task_store: an element is taken that does not exist");
    end
  end
`endif
endmodule
`default_nettype wire
