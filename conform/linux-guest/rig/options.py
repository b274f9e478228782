"""The command line of `run`."""

import argparse
import os
import re

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def parse():
    parser = argparse.ArgumentParser(usage="run --target HOST:PORT --iqn IQN [options] -- SCENARIO|SCRIPT.sh ...")
    add = parser.add_argument
    add("--target", default="127.0.0.1:3260", help="where the target listens, as seen from the host")
    add("--iqn", default="iqn.2001-04.com.example:rig")
    add("--lun", default="1", help="LUN number (tgt counts from 1, LIO and intact from 0)")
    add("--vm", choices=["qemu", "uml"], default=os.environ.get("RIG_VM", "qemu"))
    add("--accel", default=os.environ.get("RIG_ACCEL", "auto"),
        help="auto: kvm when /dev/kvm works and the CPU shows vmx or svm, else tcg")
    add("--smp", default="2")
    add("--mem", default="768", help="MiB")
    add("--digest", default="CRC32C",
        help="digests offered by all scenarios but login: CRC32C (required) or None")
    add("--chap", metavar="USER:SECRET", help="the target demands this")
    add("--chap-in", metavar="USER:SECRET", help="and answers the initiator with this (mutual CHAP)")
    add("--chap-iqn", metavar="IQN", help="the target that demands it, when it is another one than --iqn")
    add("--hook", action="append", default=[], metavar="NAME=CMD",
        help="host command a scenario can ask for (e.g. restart)")
    add("--hostfwd", action="append", default=[], metavar="HOSTPORT:GUESTPORT")
    add("--tap", metavar="IF",
        help="existing tap interface instead of user-mode networking (in your own network namespace)")
    add("--guest-ip", default="10.0.2.15/24")
    add("--gw", default="10.0.2.2")
    add("--env", action="append", default=[], metavar="RIG_X=V", help="a knob of a scenario, see README.md")
    add("--database", action="store_true", help="give the guest the host's PostgreSQL (a disk made by build-database)")
    add("--timeout", type=float, default=300, help="seconds for all scenarios together")
    add("--out", help="folder for logs brought back from the guest")
    add("-v", "--verbose", action="store_true", help="show the machine's command line")
    add("scenarios", nargs="+")
    opts = parser.parse_args()

    for name in ("hook", "env"):
        for item in getattr(opts, name):
            if "=" not in item:
                parser.error(f"--{name} {item}: expected NAME=VALUE")
    if ":" not in opts.target:
        parser.error(f"--target {opts.target}: expected HOST:PORT")
    opts.hooks = dict(item.split("=", 1) for item in opts.hook)
    opts.hostfwd = [tuple(int(port) for port in item.split(":")) for item in opts.hostfwd]
    opts.accel = accelerator(opts.accel)
    opts.names, opts.scripts = name_scenarios(opts.scenarios)
    return opts


def accelerator(wanted):
    if wanted != "auto":
        return wanted
    with open("/proc/cpuinfo") as cpuinfo:
        virtualises = re.search(r"\b(vmx|svm)\b", cpuinfo.read())
    return "kvm" if virtualises and os.access("/dev/kvm", os.R_OK | os.W_OK) else "tcg"


def name_scenarios(scenarios):
    """Gives the names to run, and the scripts among them by name."""
    names, scripts = [], {}
    for scenario in scenarios:
        name = scenario
        if os.path.sep in scenario or scenario.endswith(".sh"):
            name = os.path.basename(scenario).removesuffix(".sh")
            scripts[name] = scenario
        names.append(name)
    return names, scripts
