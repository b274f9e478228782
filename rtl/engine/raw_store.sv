// PDUs of SEND_RAW from their descriptor until they are sent: one ring for those that take a CmdSN, and one for the others, because the
// others pass them while the window is closed.
//
//   beats --> [ ring, tail ] --commit--> [ next beat ] --> transmit module
//                  ^--drop--
//
// A PDU counts from its commit on; before it, what was written of it can be dropped.
`default_nettype none
module raw_store #(
    parameter int unsigned Bytes = 64,
    // Beats of each ring: at least those of the longest PDU.
    parameter int unsigned Beats = 1042
) (
    input  wire                        clk,
    input  wire                        rst,
    // A beat of a header or of data; `select` is the ring. Needs room.
    input  wire                        write_i,
    input  wire                        write_select_i,
    input  wire                        last_i,
    input  wire                        pdu_last_i,
    input  wire  [$clog2(Bytes)-2:0]   words_i,
    input  wire  [  8*Bytes-1:0]       data_i,
    input  wire                        commit_i,
    input  wire                        drop_i,
    // Beats that the selected ring has room for, and PDUs in both.
    output logic [$clog2(Beats+1)-1:0] room_o,
    output logic [6:0]                 pdus_o,
    // What is next in the ring that the transmit module has selected in the cycle before.
    input  wire                        select_i,
    output logic                       valid_o,
    input  wire                        ready_i,
    output logic                       last_o,
    output logic [$clog2(Bytes)-2:0]   words_o,
    output logic [  8*Bytes-1:0]       data_o
);
  localparam int unsigned At = $clog2(Beats);
  localparam int unsigned Count = $clog2(Beats + 1);
  localparam logic [At-1:0] LastBeat = At'(Beats - 1);
  typedef struct packed {
    logic last;
    logic pdu_last;
    logic [$clog2(Bytes)-2:0] words;
    logic [8*Bytes-1:0] data;
  } beat_t;
  beat_t in, next[2];
  logic [1:0] next_valid;
  logic [1:0][Count-1:0] room;
  logic selected;
  assign in.last = last_i;
  assign in.pdu_last = pdu_last_i;
  assign in.words = words_i;
  assign in.data = data_i;
  assign room_o = room[write_select_i];
  assign valid_o = next_valid[selected];
  assign last_o = next[selected].last;
  assign words_o = next[selected].words;
  assign data_o = next[selected].data;
  wire leaves = valid_o && ready_i;
  always_ff @(posedge clk) begin
    selected <= select_i;
    if (rst) pdus_o <= '0;
    else pdus_o <= pdus_o + 7'(commit_i) - 7'(leaves && next[selected].pdu_last);
  end
  for (genvar r = 0; r < 2; r++) begin : g_ring
    (* no_rw_check *)
    logic [$bits(beat_t)-1:0] ring[Beats];
    logic [At-1:0] head, tail, begun;
    // Beats that may leave, those of the PDU that is being written, and all.
    logic [Count-1:0] whole, part;
    wire mine = write_select_i == (r == 1);
    wire writes = write_i && mine;
    wire goes = leaves && selected == (r == 1);
    wire fetch = whole != '0 && (!next_valid[r] || goes);
    assign room[r] = Count'(Beats) - whole - part;
    always_ff @(posedge clk) begin
      if (writes) ring[tail] <= in;
      if (fetch) next[r] <= ring[head];
      if (rst) begin
        head <= '0;
        tail <= '0;
        begun <= '0;
        whole <= '0;
        part <= '0;
        next_valid[r] <= 1'b0;
      end else begin
        if (fetch) head <= head == LastBeat ? '0 : head + 1'b1;
        if (writes) tail <= tail == LastBeat ? '0 : tail + 1'b1;
        else if (drop_i && mine) tail <= begun;
        if (commit_i && mine) begun <= tail;
        whole <= whole + (commit_i && mine ? part : '0) - Count'(fetch);
        if ((commit_i || drop_i) && mine) part <= '0;
        else part <= part + Count'(writes);
        next_valid[r] <= fetch || (next_valid[r] && !goes);
      end
    end
`ifndef SYNTHESIS
    always_ff @(posedge clk) begin
      if (!rst) begin
        assert (!(fetch && writes && head == tail))
        else $error("raw_store: a slot is read and written at once");
        assert (!(writes && room[r] == '0))
        else $error("raw_store: a beat without room");
        assert (!(writes && (commit_i || drop_i)))
        else $error("raw_store: a beat comes with the end of its PDU");
      end
    end
`endif
  end
endmodule
`default_nettype wire
