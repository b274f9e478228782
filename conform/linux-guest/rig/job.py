"""What goes into the guest and what comes back: a tar file each, seen by the guest as a disk."""

import io
import os
import shlex
import shutil
import subprocess
import tarfile

from .options import HERE

DISK_BLOCK_BYTES = 65536
OUT_DISK_BYTES = 64 << 20


def write(opts, machine, scratch):
    """Makes the job disk (scripts and settings) and the empty disk for the guest's logs."""
    machine.job, machine.out = os.path.join(scratch, "job.tar"), os.path.join(scratch, "out.raw")
    with tarfile.open(machine.job, "w") as tar:
        for folder in ("guest", "scenarios"):
            tar.add(os.path.join(HERE, folder), folder)
        for name, script in opts.scripts.items():
            tar.add(script, f"scenarios/{name}.sh")
        text = "".join(f"{key}={shlex.quote(value)}\n" for key, value in settings(opts, machine).items()).encode()
        member = tarfile.TarInfo("env")
        member.size = len(text)
        tar.addfile(member, io.BytesIO(text))
    blocks = -(-os.path.getsize(machine.job) // DISK_BLOCK_BYTES)
    os.truncate(machine.job, blocks * DISK_BLOCK_BYTES)
    with open(machine.out, "wb") as out:
        out.truncate(OUT_DISK_BYTES)


def settings(opts, machine):
    """The variables that guest/lib.sh and the scenarios read."""
    host, port = opts.target.rsplit(":", 1)
    if not opts.tap and (host in ("localhost", "0.0.0.0") or host.startswith("127.")):
        host = "10.0.2.2"  # the host's loopback, as user-mode networking shows it
    env = dict(
        RIG_VM=opts.vm,
        RIG_TTY=machine.TTY,
        RIG_OUTDEV=machine.OUT_DEVICE,
        RIG_DATABASE=machine.DATABASE_DEVICE if opts.database else "",
        RIG_HOST=host,
        RIG_PORT=port,
        RIG_IQN=opts.iqn,
        RIG_LUN=opts.lun,
        RIG_DIGEST=opts.digest,
        RIG_GUEST_IP=opts.guest_ip,
        RIG_GW=opts.gw,
        RIG_SCENARIOS=" ".join(opts.names),
        RIG_HOOKS=" ".join(opts.hooks),
        RIG_CHAP=opts.chap or "",
        RIG_CHAP_IN=opts.chap_in or "",
        RIG_CHAP_IQN=opts.chap_iqn or "",
    )
    env.update(item.split("=", 1) for item in opts.env)
    return env


def collect(machine, folder):
    """Unpacks the guest's logs into `folder`, and puts its console beside them."""
    os.makedirs(folder, exist_ok=True)
    if os.path.exists(machine.console_log):
        shutil.copy(machine.console_log, os.path.join(folder, "console.log"))
    # The tar file is followed by the rest of the disk, of which tar may complain.
    subprocess.run(["tar", "-xf", machine.out, "-C", folder], stderr=subprocess.DEVNULL)
