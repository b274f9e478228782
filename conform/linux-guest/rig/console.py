"""Talks with guest/init over the guest's console, and keeps the table of results.

The guest writes lines `RIG|WORD|field|field...`; all other lines are shown as they come.
  BOOT kernel-clock release     the guest is up
  PASS|FAIL|SKIP|INFO name seconds detail
  DONE name status              a scenario ended
  HOOK name                     run a command on the host; answered with `hook STATUS`, unless the status is POWER_CUT
  EXIT status                   all scenarios ended
"""

import os
import re
import select
import subprocess
import time

# The exit status by which a hook cuts the guest's power: the guest ends at once, as a host does that loses it.
POWER_CUT = 90
LINE = re.compile(r"RIG\|(\w+)\|?(.*)")


class Table:
    """The results so far."""

    def __init__(self, machine_note):
        self.machine_note = machine_note
        self.rows = []  # (verdict, name)
        self.boot_s = None
        self.exit_status = None
        self.cut_by = None  # the hook that cut the guest's power
        self.rows_before_scenario = 0

    @property
    def finished(self):
        return self.boot_s is not None and self.exit_status is not None

    def names(self, verdict):
        return [name for row_verdict, name in self.rows if row_verdict == verdict]

    def add(self, verdict, name, seconds, detail):
        self.rows.append((verdict, name))
        took = f"{seconds:>6} s" if seconds else " " * 8
        print(f"{verdict:4} {name:24} {took}  {detail}", flush=True)

    def boot(self, seconds, kernel_clock, release):
        self.boot_s = seconds
        print(f"guest up in {seconds:.1f} s (kernel clock {kernel_clock} s), Linux {release}, {self.machine_note}",
              flush=True)

    def scenario_done(self, name, status):
        if len(self.rows) == self.rows_before_scenario:
            # A plain script without checks counts by its exit status.
            self.add("PASS" if status == "0" else "FAIL", name, "", "exit status " + status)
        self.rows_before_scenario = len(self.rows)


def follow(machine, table, hooks, timeout_s):
    """Reads the console until the guest says EXIT, ends, or takes too long."""
    deadline = machine.started + timeout_s
    pending = b""
    while table.exit_status is None and table.cut_by is None:
        left = deadline - time.time()
        if left <= 0:
            table.add("FAIL", "rig-timeout", f"{timeout_s:.0f}", "the scenarios took too long (--timeout)")
            return
        if not select.select([machine.process.stdout], [], [], left)[0]:
            continue
        data = os.read(machine.process.stdout.fileno(), 65536)
        if not data:
            return
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            handle(line.decode(errors="replace").rstrip("\r"), machine, table, hooks)


def handle(line, machine, table, hooks):
    match = LINE.match(line)
    if not match:
        print(line, flush=True)
        return
    word, fields = match.group(1), match.group(2).split("|")
    if word == "BOOT":
        table.boot(time.time() - machine.started, *fields[:2])
    elif word in ("PASS", "FAIL", "SKIP", "INFO"):
        name, seconds, *detail = fields + [""]
        table.add(word, name, seconds, "|".join(detail).rstrip("|"))
    elif word == "DONE":
        table.scenario_done(*fields[:2])
    elif word == "HOOK":
        command = hooks.get(fields[0])
        status = subprocess.call(command, shell=True, stdin=subprocess.DEVNULL) if command else 127
        if status == POWER_CUT:
            machine.kill()
            table.cut_by = fields[0]
        else:
            machine.process.stdin.write(b"hook %d\n" % status)
    elif word == "EXIT":
        table.exit_status = int(fields[0])
