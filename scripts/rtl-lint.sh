#!/bin/bash
# Verilator's lint of every circuit of rtl/, with all warnings as errors. It needs `scripts/setup.sh rtl`.
set -euo pipefail
cd "$(dirname "$0")/.."
for VERILATOR_ROOT in "$PWD"/target/rtl-tools/lib/python*/site-packages/verilator; do export VERILATOR_ROOT; done
lint() {
  local top=$1
  shift
  "$VERILATOR_ROOT/bin/verilator_bin" --lint-only -Wall --top-module "$top" "${@/#/rtl/crc/}" >/dev/null
  echo "lint: $top is clean"
}
lint crc64 crc_unit.sv crc_loader.sv crc64.sv
lint crc_wide crc_pkg.sv crc_wide.sv
