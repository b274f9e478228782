// Brings a beat to the lanes of a ring. An entry (a byte, or a word) of a stream has one lane for good, by its position in the ring, so a
// beat is only rotated, and no shift depends on what leaves the ring.
//
//   position, count, data --> [ registers ] --> [ rotate by 0 to 3 ] --> [ by 4 times as many ] --> ... --> [ ring: 16 rows ]
`default_nettype none
module to_lanes #(
    parameter  int unsigned Lanes = 64,
    // Bits of an entry.
    parameter  int unsigned Width = 8,
    // Bits that go along with a beat.
    parameter  int unsigned Note  = 1,
    localparam int unsigned L     = $clog2(Lanes)
) (
    input  wire                         clk,
    input  wire                         rst,
    input  wire                         valid_i,
    // The position of the first entry, row and lane; the lowest `count_i` entries exist.
    input  wire  [  L+3:0]              at_i,
    input  wire  [    L:0]              count_i,
    input  wire  [ Note-1:0]            note_i,
    input  wire  [Lanes-1:0][Width-1:0] data_i,
    // A beat is at its lanes, 1 + (L + 1) / 2 cycles later.
    output logic                        valid_o,
    output logic [ Note-1:0]            note_o,
    output logic [Lanes-1:0]            write_o,
    output logic [Lanes-1:0][      3:0] row_o,
    output logic [Lanes-1:0][Width-1:0] data_o,
    // A beat is on its way, or at its lanes.
    output logic                        under_way_o
);
  localparam int unsigned Stages = (L + 1) / 2;
  logic [Stages:0] valid;
  logic [Stages-1:0][L-1:0] lane;
  logic [Stages:0][3:0] row;
  logic [Stages:0][Note-1:0] note;
  logic [Stages:0][Lanes-1:0] keep;
  logic [Stages:0][Lanes-1:0][Width-1:0] data;
  always_ff @(posedge clk) begin
    valid[0] <= valid_i && !rst;
    {row[0], lane[0]} <= at_i;
    note[0] <= note_i;
    for (int unsigned i = 0; i < Lanes; i++) keep[0][i] <= i < 32'(count_i);
    data[0] <= data_i;
  end
  for (genvar s = 0; s < Stages; s++) begin : g_stage
    wire [1:0] by = 2'(lane[s] >> (2 * s));
    if (s + 1 < Stages) begin : g_more
      always_ff @(posedge clk) lane[s+1] <= lane[s];
    end
    always_ff @(posedge clk) begin
      valid[s+1] <= valid[s] && !rst;
      row[s+1] <= row[s];
      note[s+1] <= note[s];
      for (int unsigned i = 0; i < Lanes; i++) begin
        keep[s+1][i] <= keep[s][L'(i-32'(by)*4**s)];
        data[s+1][i] <= data[s][L'(i-32'(by)*4**s)];
      end
    end
  end
  // Lanes below that of the first entry are in the next row.
  logic [3:0] next_row;
  logic [Lanes-1:0] wraps;
  always_ff @(posedge clk) begin
    next_row <= row[Stages-1] + 4'd1;
    for (int unsigned i = 0; i < Lanes; i++) wraps[i] <= i < 32'(lane[Stages-1]);
  end
  assign valid_o = valid[Stages];
  assign note_o = note[Stages];
  assign write_o = keep[Stages] & {Lanes{valid_o}};
  always_comb for (int unsigned i = 0; i < Lanes; i++) row_o[i] = wraps[i] ? next_row : row[Stages];
  assign data_o = data[Stages];
  assign under_way_o = valid != '0;
endmodule
`default_nettype wire
