"""The two machines that can carry the guest: qemu with Debian's stock kernel, and user-mode Linux."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

KERNEL_ARGS = "ro=0 rw rootfstype=ext4 init=/rig/init panic=-1 quiet mitigations=off"


class RigError(Exception):
    """The rig itself failed, whatever the target does."""


def make(opts, cache, scratch):
    return {"qemu": Qemu, "uml": Uml}[opts.vm](opts, cache, scratch)


class Machine:
    """A guest: its stdin and stdout are the console on which `console.follow` talks with guest/init."""

    def __init__(self, opts, cache, scratch):
        self.opts, self.cache, self.scratch = opts, cache, scratch
        self.console_log = os.path.join(scratch, "console.log")
        self.error_log = os.path.join(scratch, "vm.err")
        self.job = self.out = None  # set by job.write
        self.process = None
        self.started = time.time()
        self.helpers = []

    def command(self):
        """The command line and the environment."""
        raise NotImplementedError

    def start(self):
        self.before_start()
        command, environment = self.command()
        if self.opts.verbose:
            print(" ".join(command), file=sys.stderr)
        self.started = time.time()
        with open(self.stderr_path(), "wb") as stderr:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, env=environment,
                bufsize=0, start_new_session=True)
        self.after_start()

    def before_start(self):
        pass

    def after_start(self):
        pass

    def stderr_path(self):
        return self.error_log

    def wait_for_end(self, seconds=3):
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def kill(self):
        """Ends all that was started. UML leaves traced children behind, so whole process groups go."""
        for process in [self.process, *self.helpers]:
            if process is None:
                continue
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()

    def last_console_lines(self, count):
        lines = []
        for path in (self.console_log, self.error_log):
            if os.path.exists(path):
                with open(path, errors="replace") as log:
                    lines += log.read().splitlines()[-count:]
        return "\n".join(lines)


class Qemu(Machine):
    """Debian's stock cloud kernel; KVM where the CPU offers it, else emulated."""

    TTY, OUT_DEVICE, DATABASE_DEVICE = "ttyS0", "/dev/nvme0n3", "/dev/nvme0n4"

    def command(self):
        opts = self.opts
        accel = {
            "tcg": ["-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max,la57=off"],
            "kvm": ["-accel", "kvm", "-cpu", "host"],
        }[opts.accel]
        kernel_args = (
            f"{KERNEL_ARGS} root=/dev/nvme0n1 rootwait console=ttyS1 reboot=t nopti tsc=reliable lpj=4000000 "
            "no_timer_check cryptomgr.notests random.trust_cpu=on nokaslr rig.job=/dev/nvme0n2")
        command = [
            "qemu-system-x86_64", "-machine", "pc,usb=off,vmport=off,hpet=off", *accel,
            "-smp", opts.smp, "-m", opts.mem,
            "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-kernel", os.path.join(self.cache, "kernel"), "-append", kernel_args,
            "-device", "nvme,id=nv,serial=rig",
        ]
        disks = [
            (os.path.join(self.cache, "root.img"), "snapshot=on,file.locking=off"),
            (self.job, "readonly=on"),
            (self.out, "cache=unsafe"),
        ]
        if opts.database:
            disks.append((opts.database, "readonly=on"))
        for number, (path, how) in enumerate(disks):
            command += [
                "-drive", f"if=none,id=d{number},file={path},format=raw,{how}",
                "-device", f"nvme-ns,drive=d{number},bus=nv,nsid={number + 1}",
            ]
        command += [
            "-netdev", self.network(), "-device", "virtio-net-pci,netdev=n,romfile=",
            "-chardev", "stdio,id=c0,signal=off", "-serial", "chardev:c0", "-serial", "file:" + self.console_log,
        ]
        return command, dict(os.environ, TMPDIR=self.scratch)

    def network(self):
        if self.opts.tap:
            return f"tap,id=n,ifname={self.opts.tap},script=no,downscript=no"
        forwards = (f",hostfwd=tcp:127.0.0.1:{host}-:{guest}" for host, guest in self.opts.hostfwd)
        return "user,id=n,ipv6=off,restrict=off" + "".join(forwards)


class Uml(Machine):
    """Debian's user-mode Linux: a plain process, boots in two seconds."""

    TTY, OUT_DEVICE, DATABASE_DEVICE = "tty1", "/dev/ubdc", "/dev/ubdd"

    def before_start(self):
        """User-mode networking is a helper process that speaks over a socket."""
        if self.opts.tap:
            return
        self.net_socket = os.path.join(self.scratch, "bess.sock")
        self.net_api = os.path.join(self.scratch, "api.sock")
        with open(os.path.join(self.scratch, "slirp.log"), "wb") as log:
            self.helpers.append(subprocess.Popen(
                ["slirp4netns", "--target-type=bess", "--api-socket", self.net_api, self.net_socket],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True))
        wait_until(lambda: os.path.exists(self.net_socket), 5, "slirp4netns opened no socket")

    def command(self):
        if self.opts.tap:
            network = f"vec0:transport=tap,ifname={self.opts.tap},depth=128,gro=1"
        else:
            network = f"vec0:transport=bess,dst={self.net_socket},depth=128,gro=1"
        command = [
            "linux.uml", f"mem={self.opts.mem}M", f"umid=rig{os.getpid()}", f"uml_dir={self.scratch}",
            f"ubda={self.scratch}/root.cow,{self.cache}/root.img", f"ubdb={self.job}", f"ubdc={self.out}",
            "root=/dev/ubda", *KERNEL_ARGS.split(), "rig.job=/dev/ubdb",
            "con=null", "con0=null,fd:2", "con1=fd:0,fd:1", network,
        ]
        if self.opts.database:
            command.append(f"ubddr={self.opts.database}")
        memory_folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else self.scratch
        shim = os.path.join(self.cache, "umlshim.so")
        return command, dict(os.environ, TMPDIR=memory_folder, LD_PRELOAD=shim)

    def stderr_path(self):
        return self.console_log

    def after_start(self):
        for host, guest in self.opts.hostfwd:
            self.forward(host, guest)

    def forward(self, host_port, guest_port):
        request = {"execute": "add_hostfwd", "arguments": {
            "proto": "tcp", "host_addr": "127.0.0.1", "host_port": host_port,
            "guest_addr": "10.0.2.15", "guest_port": guest_port}}
        with socket.socket(socket.AF_UNIX) as api:

            def connected():
                try:
                    api.connect(self.net_api)
                    return True
                except OSError:
                    return False

            wait_until(connected, 20, "slirp4netns answers no request")
            api.sendall(json.dumps(request).encode())
            api.shutdown(socket.SHUT_WR)
            answer = api.recv(4096).decode().strip()
        if "error" in answer:
            raise RigError(f"port {host_port} cannot be forwarded: {answer}")


def wait_until(condition, seconds, complaint):
    deadline = time.time() + seconds
    while not condition():
        if time.time() > deadline:
            raise RigError(complaint)
        time.sleep(0.02)
