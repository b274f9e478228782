#!/usr/bin/env python3
"""Plants a fault into a module of the engine, one after the other, and expects a test to fail for each.

    rtl/faults.py              all
    rtl/faults.py N...         those with these numbers
    rtl/faults.py --list       what there is

Each fault changes one line. A test that passes with it tests nothing there, and the command fails. The circuit is changed in place and put
back; the command does not begin while a circuit has changes that are not committed.
"""
import argparse
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
# File, what stands there, what the fault makes of it.
FAULTS = [
    ("engine/engine", ".done_ready_i(done_ready_i && !rx_done_valid && control_may)", ".done_ready_i(done_ready_i && control_may)"),
    ("engine/engine", "assign done_o = rx_done_valid ? rx_done : control_done;",
     "assign done_o = control_done_valid ? control_done : rx_done;"),
    ("engine/engine", "wire control_may = is_open_o || !busy_o;", "wire control_may = 1'b1;"),
    ("engine/engine", ".exp_stat_sn_i(exp_stat_sn_o)", ".exp_stat_sn_i(stat_sn_o)"),
    ("engine/engine", ".max_cmd_sn_i(max_cmd_sn_o)", ".max_cmd_sn_i(exp_cmd_sn_o)"),
    ("engine/engine", ".max_data_i(max_recv_o[23:0])", ".max_data_i(max_send_o[23:0])"),
    ("engine/engine", ".done_room_i(rx_room_i && rx_open)", ".done_room_i(rx_room_i || rx_open)"),
    ("engine/engine", ".snack_wanted_i(snack_wanted)", ".snack_wanted_i(snack_wanted || 1'b1)"),
    ("engine/engine_tx", ".set_poly_i(set_poly_o && !opens_o)", ".set_poly_i(1'b0)"),
    ("engine/engine_tx", "  raw_store #(\n      .Bytes(Bytes),\n      .Beats(RawBeats)\n  ) raws (\n      .clk,\n      .rst(closed)",
     "  raw_store #(\n      .Bytes(Bytes),\n      .Beats(RawBeats)\n  ) raws (\n      .clk,\n      .rst(rst)"),
    ("rx/rx_engine", ".restart_position_i(open_i ? '0 : restart_position_i)", ".restart_position_i(restart_position_i)"),
    ("rx/rx_engine", "assign done_o = route_done ? route_record : snack_record;",
     "assign done_o = snack_done ? snack_record : route_record;"),
    ("rx/rx_route", "(!waits || changed)", "!waits"),
    ("rx/rx_route", "if (waits) has_waited <= 1'b1;", "if (waits) has_waited <= 1'b0;"),
    ("rx/rx_route", "duplicate || data_group_i.admits;", "duplicate || data_group_i.admits || 1'b1;"),
    ("rx/rx_route", "finish <= report.answered && !holes_i ? FIRST : NONE;", "finish <= report.answered ? FIRST : NONE;"),
    ("rx/rx_recover", "held_count != '0 && precedes(least_held, next_stat_sn_i)", "1'b0"),
    ("rx/rx_recover", "    if (end_i) asked[Forget] = 1'b1;\n", ""),
    ("rx/rx_recover", "asked[Release] = placed_i;", "asked[Release] = 1'b0;"),
    ("rx/rx_poly", "wire reached = waits && from <= next_i;", "wire reached = waits && (from <= next_i || 1'b1);"),
    ("rx/rx_poly", "assign hold_o = reached;", "assign hold_o = 1'b0;"),
    ("rx/rx_poly", "begun <= accepted_before_i + Late > next_i + Bhs;", "begun <= accepted_before_i + Late > next_i + Bhs && 1'b0;"),
    ("rx/rx_poly", "      state <= !rst && (set_i || waits || state != NONE) ? DUE : NONE;\n", "      state <= NONE;\n"),
    ("tx/tx", ".room_i(room_i && !poly_waits)", ".room_i(room_i)"),
    ("engine/engine_control", "wire poly_full = poly_full_i && !stopped_i;", "wire poly_full = poly_full_i;"),
    ("tx/tx_generator", "assign r2t_ready_o = table_ready && !adds && !table_nearly_full;", "assign r2t_ready_o = table_ready && !adds;"),
    ("tx/tx_generator", "wire may_begin = queue_valid && !table_nearly_full;", "wire may_begin = queue_valid;"),
    ("tx/tx_generator", "wire bursts = queue_settled && !may_go && !may_pass;", "wire bursts = !may_go && !may_pass;"),
    ("tx/tx_generator", "!disturbed && room_i && had_room;", "!disturbed && room_i && (had_room || 1'b1);"),
    ("rx/task_store", "if (exhausted) full <= 1'b1;", "if (exhausted) full <= 1'b0;"),
]


# What tests are run, one part after the other: the campaigns take minutes, so they come last.
CAMPAIGNS = ["random_conversations", "every_fault_in_the_stream", "what_is_lost_comes_back"]
PARTS = [
    ["--test", "at_once"],
    ["--test", "tx"],
    ["--test", "rx_engine", "lists_that_exceed"],
    ["--test", "engine", "--", *(word for name in CAMPAIGNS for word in ("--skip", name))],
    ["--test", "engine", "--", *CAMPAIGNS],
]


def run_tests():
    """Whether the tests pass; the output of the first part that does not, or of the last."""
    for part in PARTS:
        command = ["cargo", "test", "-p", "intact-offload-rtl", "--features", "verilator", *part]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            break
    return done.returncode == 0, done.stdout + done.stderr


def try_fault(number):
    """None if a test fails, or what is wrong."""
    name, line, fault = FAULTS[number]
    path = ROOT / f"rtl/{name}.sv"
    before = path.read_text()
    if before.count(line) != 1:
        return f"stands {before.count(line)} times in {name}.sv"
    try:
        path.write_text(before.replace(line, fault))
        passes, said = run_tests()
    finally:
        path.write_text(before)
    if passes:
        return "no test fails"
    # A circuit that Verilator refuses was not tested.
    return None if "test result: FAILED" in said else f"no test ran:\n{said[-2000:]}"


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--list", action="store_true", help="show the faults")
    arguments.add_argument("numbers", nargs="*", type=int, help="faults by their numbers")
    arguments = arguments.parse_args()
    if arguments.list:
        for number, (name, line, fault) in enumerate(FAULTS):
            print(f"{number:3} {name}: {' '.join(line.split())}  ->  {' '.join(fault.split())}")
        return
    if subprocess.run(["git", "diff", "--quiet", "HEAD", "--", "rtl"], cwd=ROOT).returncode:
        sys.exit("rtl/ has changes that are not committed: commit them first, as faults are planted in place")
    # So that an end from outside puts the circuit back.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    passes, said = run_tests()
    if not passes:
        sys.exit(f"a test fails without a fault:\n{said[-2000:]}")
    missed = 0
    for number in arguments.numbers or range(len(FAULTS)):
        begin = time.monotonic()
        wrong = try_fault(number)
        missed += wrong is not None
        print(f"{number:3} {FAULTS[number][0]}: {wrong or 'found'} ({time.monotonic() - begin:.0f} s)", flush=True)
    if missed:
        sys.exit(f"{missed} faults were not found")


main()
