#!/bin/bash
# Verilator's lint of every circuit of rtl/, with all warnings as errors. It needs `scripts/setup.sh rtl`.
set -euo pipefail
cd "$(dirname "$0")/.."
for VERILATOR_ROOT in "$PWD"/target/rtl-tools/lib/python*/site-packages/verilator; do export VERILATOR_ROOT; done
lint() {
  local top=$1 options=()
  shift
  while [[ $1 == -* ]]; do options+=("$1"); shift; done
  "$VERILATOR_ROOT/bin/verilator_bin" --lint-only -Wall --top-module "$top" "${options[@]}" "${@/#/rtl/}" >/dev/null
  echo "lint: $top ${options[*]} is clean"
}
narrow=(crc/crc_pkg.sv crc/crc_unit.sv crc/crc_loader.sv)
wide=(crc/crc_wide.sv)
credit=(common/credit_fifo.sv common/front_fifo.sv common/credit_sender.sv)
shared=(common/to_lanes.sv common/stream_window.sv crc/beat_crc.sv crc/crc_pair.sv)
rx=("${shared[@]}" rx/rx_pkg.sv rx/rx_scout.sv rx/rx_poly.sv rx/rx_check.sv rx/rx_packet.sv)
lint crc64 "${narrow[@]}" crc/crc64.sv
lint crc64 -GIndex=5 "${narrow[@]}" crc/crc64.sv
lint crc_wide crc/crc_pkg.sv "${wide[@]}"
for bits in 512 1024 2048; do lint crc_wide -GSum=4 -GBits=$bits crc/crc_pkg.sv "${wide[@]}"; done
lint guard -GBytes=64 crc/crc_pkg.sv crc/guard.sv
lint guard -GBytes=8 crc/crc_pkg.sv crc/guard.sv
lint credit_link "${credit[@]}" common/credit_link.sv
lint task_table rx/task_table.sv
lint rx_packet -GBytes=64 "${narrow[@]}" "${wide[@]}" "${credit[@]}" "${rx[@]}"
lint rx_packet -GBytes=8 "${narrow[@]}" "${wide[@]}" "${credit[@]}" "${rx[@]}"
for buffer in 4096 65536; do
  for bytes in 8 64; do
    lint rx_checked -GBytes=$bytes -GBufferBytes=$buffer "${narrow[@]}" "${wide[@]}" "${credit[@]}" "${rx[@]}" \
      rx/rx_buffer.sv rx/rx_checked.sv
  done
done
lint snack_table common/sweep_queue.sv snack/snack_pkg.sv snack/snack_table.sv
tx=(common/sweep_queue.sv tx/tx_pack.sv tx/tx_segment.sv tx/tx_buffer.sv tx/tx_fetch.sv tx/tx_generator.sv)
for bytes in 8 64; do
  lint tx -GBytes=$bytes -GBufferBytes=$((bytes == 8 ? 4096 : 65536)) "${narrow[@]}" "${wide[@]}" "${credit[@]}" \
    common/engine_pkg.sv tx/tx_pkg.sv "${shared[@]}" "${tx[@]}" tx/tx.sv
  lint engine_tx -GBytes=$bytes -GBufferBytes=$((bytes == 8 ? 4096 : 65536)) "${narrow[@]}" "${wide[@]}" "${credit[@]}" \
    common/engine_pkg.sv tx/tx_pkg.sv "${shared[@]}" "${tx[@]}" tx/tx.sv engine/{engine_control,raw_store,mem_share,engine_tx}.sv
done
placement=(rx/rx_buffer.sv rx/rx_checked.sv rx/rx_feed.sv rx/rx_move.sv rx/rx_walk.sv rx/task_table.sv rx/task_store.sv rx/rx_route.sv
  snack/snack_pkg.sv snack/snack_table.sv rx/rx_recover.sv rx/rx_engine.sv)
for bytes in 8 64; do
  lint rx_engine -GBytes=$bytes -GElements=65536 common/engine_pkg.sv tx/tx_pkg.sv "${narrow[@]}" "${wide[@]}" "${credit[@]}" \
    "${rx[@]}" common/sweep_queue.sv "${placement[@]}"
done
engine=(common/engine_pkg.sv tx/tx_pkg.sv "${narrow[@]}" "${wide[@]}" "${credit[@]}" "${rx[@]}" "${tx[@]}" "${placement[@]}" tx/tx.sv
  engine/{engine_control,raw_store,mem_share,engine_tx,engine}.sv)
lint engine -GBytes=8 -GBufferBytes=4096 "${engine[@]}"
lint engine -GBytes=64 -GBufferBytes=65536 "${engine[@]}"
# As they are synthesised.
for name in engine_64 engine_512; do
  mapfile -t parameters < <(python3 -c 'import json, sys
for of in json.load(open("rtl/ecp5.json"))[sys.argv[1]].items(): print("-G%s=%s" % of)' "$name")
  lint engine "${parameters[@]}" "${engine[@]}"
done
