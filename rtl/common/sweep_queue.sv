// A queue in whose middle entries can be changed and taken: the transmit queue, the R2T table, the SNACK table.
//
//   push --> [ ring in RAM ] --> [ next ] --> [ front ] --+--> pop
//     ^                                                   |
//     +--- sweep: kept, perhaps changed <-----------------+--> sweep: dropped
//
// The next entry counts as one of the ring until it is the front: what synthesis makes of its register is the output of the block RAM, which is
// slow (see front_fifo).
//
// A sweep looks at each entry once, in order; what is kept goes to the end. After as many steps as there were entries, they are in their
// old order. Nothing is pushed or popped meanwhile. A sweep takes up to four cycles for each entry; it serves what is rare: an ABORT, a fault,
// a loss, a PDU that passes others while the window is closed.
`default_nettype none
module sweep_queue #(
    parameter int unsigned Width = 32,
    parameter int unsigned Depth = 32
) (
    input  wire              clk,
    input  wire              rst,
    input  wire              push_valid_i,
    output logic             push_ready_o,
    input  wire  [Width-1:0] push_i,
    // A cycle ago three slots or fewer were free. Who pushes only without it leaves two.
    output logic             nearly_full_o,
    // The front is known, or there is none: in the two cycles after a push it is not yet.
    output logic             settled_o,
    // The oldest entry; during a sweep the one that is looked at.
    output logic             valid_o,
    output logic [Width-1:0] front_o,
    input  wire              pop_i,
    // Begins a sweep; ignored while one runs.
    input  wire              sweep_i,
    output logic             sweeping_o,
    // What becomes of the entry that is looked at: nothing yet, it goes, or this stays.
    input  wire              hold_i,
    input  wire              drop_i,
    input  wire  [Width-1:0] keep_i,
    // Looks at the entry at this place, 0 is the oldest; the answer comes three cycles later. Not during a sweep.
    input  wire  [$clog2(Depth+2):0] peek_at_i,
    output logic             peek_valid_o,
    output logic [Width-1:0] peek_o
);
  localparam int unsigned At = Depth > 1 ? $clog2(Depth) : 1;
  localparam int unsigned Count = $clog2(Depth + 2) + 1;
  localparam logic [At-1:0] Last = At'(Depth - 1);

  (* no_rw_check *)
  logic [Width-1:0] ring[Depth];
  // The oldest entry of the ring, the one that is read next, and the next free place.
  logic [At-1:0] head, read_at, tail;
  logic next_valid;
  logic [Width-1:0] next;
  // Entries in the ring, and those that the sweep has to look at.
  logic [Count-1:0] stored, left;
  assign sweeping_o = left != '0;
  assign settled_o  = valid_o || stored == '0;
  wire look = sweeping_o && valid_o && !hold_i;
  wire keep = look && !drop_i;
  wire leaves = look || (pop_i && !sweeping_o);
  wire advance = next_valid && (!valid_o || leaves);
  wire fetch = stored != Count'(next_valid) && (!next_valid || advance);
  assign push_ready_o = !sweeping_o && !sweep_i && stored != Count'(Depth);
  wire push = push_valid_i && push_ready_o;
  always_ff @(posedge clk) begin
    nearly_full_o <= !rst && stored > Count'(Depth - 4);
    if (push || keep) ring[tail] <= keep ? keep_i : push_i;
    if (fetch) next <= ring[read_at];
    if (advance) front_o <= next;
    if (rst) begin
      head <= '0;
      read_at <= '0;
      tail <= '0;
      stored <= '0;
      left <= '0;
      {next_valid, valid_o} <= '0;
    end else begin
      if (push || keep) tail <= tail == Last ? '0 : tail + 1'b1;
      if (fetch) read_at <= read_at == Last ? '0 : read_at + 1'b1;
      if (advance) head <= head == Last ? '0 : head + 1'b1;
      stored <= stored + Count'(push || keep) - Count'(advance);
      next_valid <= fetch || (next_valid && !advance);
      valid_o <= advance || (valid_o && !leaves);
      if (sweep_i && !sweeping_o) left <= stored + Count'(valid_o) - Count'(valid_o && pop_i);
      else if (look) left <= left - 1'b1;
    end
  end
  // An entry that waits for the front is looked at in the ring, where it stays after it has become the front: behind the front, then from the
  // head on, then in RAM.
  logic [Count-1:0] behind;
  logic [At-1:0] place, head_before;
  wire [Count-1:0] sum = Count'(head_before) + behind;
  // What is read goes to a register and nowhere else: then the ring is in block RAM. The front and the ring meet behind it.
  logic [Width-1:0] peeked, front_before;
  logic is_front;
  logic [1:0] exists, first;
  always_ff @(posedge clk) begin
    behind <= peek_at_i - Count'(valid_o);
    head_before <= head;
    exists <= {exists[0], !sweeping_o && peek_at_i < stored + Count'(valid_o)};
    first <= {first[0], valid_o && peek_at_i == '0};
    place <= sum >= Count'(Depth) ? At'(sum - Count'(Depth)) : At'(sum);
    peek_valid_o <= exists[1];
    is_front <= first[1];
    front_before <= front_o;
    peeked <= ring[place];
  end
  assign peek_o = is_front ? front_before : peeked;
`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert (!(fetch && (push || keep) && read_at == tail))
      else $error("sweep_queue: a slot is read and written at once");
      assert (32'(read_at) == (32'(head) + 32'(next_valid)) % Depth);
      assert (stored <= Count'(Depth))
      else $error("sweep_queue: more entries than slots");
      assert (!(pop_i && !valid_o))
      else $error("sweep_queue: a pop without an entry");
      assert (left <= stored + Count'(valid_o))
      else $error("sweep_queue: a sweep looks at more entries than there are");
    end
  end
`endif
endmodule
`default_nettype wire
