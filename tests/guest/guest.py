#!/usr/bin/python3
"""Runs a program in an emulated machine: Debian's kernel under emulation (QEMU), without root or devices.

  guest.py [options] -- PROGRAM [ARGUMENT...]

The guest has busybox, PROGRAM, each ARGUMENT that is a program's path (for a launcher) and each --file, all
at the same absolute paths as here, their shared libraries, and nothing else of this machine. PROGRAM without
a slash is a command of the guest (sh, for example). The program's output and errors are merged. Nothing is
kept: the guest's files are in its memory.

With --peer there is a second guest, guest 1, with the same files and settings, connected to guest 0 by two
Ethernet links (eth0 and eth1; --setup assigns addresses: it and the commands see $guest, 0 or 1). Its output
has the prefix "guest 1: ". It is ended when guest 0 has ended.

A guest that gives no byte for 90 s before its program has started is ended, and the machine is started once
more; the last line has the number of starts. HYDRANT_TEST_PATIENCE, here, multiplies these 90 s and, from
1 on, --seconds.

Exit status: the program's, except that its 77 becomes 1, because a guest lacks nothing that could justify a
skip; 77 without a kernel here, and without QEMU or busybox, but 1 without these where CI is set; 124 at the
deadline; 125 if the guest itself failed.
"""
import argparse
import math
import os
import pathlib
import shlex
import shutil
import signal
import sys
import time

import kernel
import machine
from initramfs import Initramfs

SKIPPED, TIMED_OUT, BROKEN = 77, 124, 125
HERE = pathlib.Path(__file__).resolve().parent
# Modules for the ports that machine.py reads, and for random numbers.
MODULES = ["virtio_pci", "virtio_console", "virtio_rng"]
LINK_MODULES = ["virtio_net"]
USERS = {"root": 0, "user": 1000}
CONSOLE_LINES = 30
SILENT_SECONDS = 90


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--user", choices=USERS, default="root", help="(default: %(default)s)")
    parser.add_argument("--memlock", default="unlimited", metavar="KIB", help="its RLIMIT_MEMLOCK")
    parser.add_argument("--file", action="append", default=[], metavar="PATH",
                        help="copy this file into the guest")
    parser.add_argument("--python", action="store_true",
                        help="copy python3, with the library modules that tests use")
    parser.add_argument("--module", action="append", default=[], metavar="NAME",
                        help="load this kernel module and its dependencies before")
    parser.add_argument("--setup", metavar="FILE",
                        help="shell commands to source as root before, for example to create devices")
    parser.add_argument("--environment", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--peer", metavar="COMMAND",
                        help="start a second guest that sources this as root while PROGRAM runs in the first")
    parser.add_argument("--peer-may-end", action="store_true",
                        help="allow the second guest to end before the first, which is otherwise a failure")
    parser.add_argument("--huge-pages", type=int, default=0, metavar="N",
                        help="reserve this many huge pages of 2 MiB")
    parser.add_argument("--processors", type=int, default=2, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--clock", choices=machine.CLOCKS, default="time",
                        help="the base of the guest's clock: time, or executed instructions, one per ns,\n"
                        "independent of other load; then only one processor (default: %(default)s)")
    parser.add_argument("--memory", default="2G", metavar="SIZE", help="(default: %(default)s)")
    parser.add_argument("--serial", action="append", default=[], metavar="PROPERTY=VALUE",
                        help="set this property of QEMU's virtio-serial-pci, for example event_idx=off")
    parser.add_argument("--seconds", type=int, default=120,
                        help="deadline, including the start and a second one (default: %(default)s)")
    parser.add_argument("--kernel", action="append", metavar="FOLDER",
                        help="folder with boot/ and lib/modules/ of the kernel, or with fetched kernels\n"
                        "(default: / and those in which 'kernel.py --fetch' leaves them)")
    parser.add_argument("program", nargs="+")
    options = parser.parse_args()
    try:
        patience = positive(os.environ.get("HYDRANT_TEST_PATIENCE") or "1")
    except ValueError:
        parser.error(f"HYDRANT_TEST_PATIENCE={os.environ['HYDRANT_TEST_PATIENCE']} is not a positive number")
    options.seconds = round(options.seconds * max(1, patience))
    # At most half of the guest's time: a second start has as much.
    options.silence = min(SILENT_SECONDS * patience, options.seconds / 2)
    return options


def positive(text):
    number = float(text)
    if not 0 < number < math.inf:
        raise ValueError(text)
    return number


def build_initramfs(options, chosen):
    files = Initramfs()
    for folder in ("dev", "proc", "sys", "tmp", "run", "root", "etc", "var"):
        files.add_folder(f"/{folder}")
    busybox = shutil.which("busybox")
    files.add("/bin/busybox", pathlib.Path(busybox).read_bytes(), executable=True)
    files.add_link("/bin/sh", "busybox")
    files.add("/init", (HERE / "init").read_bytes(), executable=True)
    files.add("/etc/passwd", "".join(f"{name}::{number}:{number}::/tmp:/bin/sh\n"
                                     for name, number in USERS.items()).encode())
    files.add("/etc/group", "".join(f"{name}:x:{number}:\n" for name, number in USERS.items()).encode())
    modules = chosen.modules(MODULES + (LINK_MODULES if options.peer else []) + options.module)
    for name, module in modules.items():
        files.add(f"/job/{name}.ko", module)
    files.add("/job/modules", "".join(f"/job/{name}.ko\n" for name in modules).encode())
    if options.setup:
        files.add("/job/setup", pathlib.Path(options.setup).read_bytes())
    for path in options.file + [text for text in options.program if is_program(text)]:
        files.add_program(path)
    if options.python:
        files.add_python()
    add_job(files, options)
    return files.bytes()


def is_program(text):
    return "/" in text and os.path.isfile(text) and os.access(text, os.X_OK)


def add_job(files, options):
    if options.peer:
        files.add("/job/peer", f"{options.peer}\n".encode())
    settings = {"memlock_kib": options.memlock, "user": options.user, "huge_pages": options.huge_pages,
                "seconds": options.seconds}
    files.add("/job/settings", "".join(f"{name}={shlex.quote(str(value))}\n"
                                       for name, value in settings.items()).encode())
    program = [os.path.abspath(text) if is_program(text) else text for text in options.program]
    exports = "".join(f"export {shlex.quote(entry)}\n" for entry in options.environment)
    files.add("/job/command", f"{exports}exec {shlex.join(program)}\n".encode())


class Screen:
    """Prints the guests' output: guest 0's unchanged, the other one's in lines with a prefix."""

    def __init__(self):
        self._begun = b""

    def show(self, guest, data):
        if guest != 0:
            *lines, self._begun = (self._begun + data).split(b"\n")
            data = b"".join(b"guest %d: %s\n" % (guest, line) for line in lines)
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def show_end(guest, what, end):
    """The reason comes last, where the reader of a long output looks."""
    lines = end.console.splitlines()[-CONSOLE_LINES:]
    print("\n".join([f"guest {guest}: the last lines of its console:", *lines]), file=sys.stderr)
    if end.registers:
        print(f"guest {guest}: its registers:\n{end.registers}", file=sys.stderr)
    print(f"guest {guest}: {what}", file=sys.stderr, flush=True)


def show_silence(ends, silence, then):
    for guest, end in enumerate(ends):
        what = f"no byte for {silence:g} s, and its program has not started"
        show_end(guest, what if end.is_silent else "ended with it", end)
    print(f"guest: {then}", file=sys.stderr, flush=True)


def judge(run, options):
    """The exit status of this program; prints messages about unexpected ends."""
    first = run.ends[0]
    if run.why is machine.Why.SILENCE:
        show_silence(run.ends, options.silence,
                     f"the program has not started in {run.starts} starts of the machine")
        return BROKEN
    for guest, end in enumerate(run.ends[1:], 1):
        if end.is_own and not options.peer_may_end:
            show_end(guest, f"it ended before guest 0, exit status {end.status}", end)
            return BROKEN
        if first.status != 0 and end.console:
            show_end(guest, "it was ended when guest 0 was", end)
    if first.status is None:
        timed_out = run.why is machine.Why.DEADLINE
        what = f"killed after {options.seconds} s" if timed_out else "it ended without an exit status"
        show_end(0, what, first)
        return TIMED_OUT if timed_out else BROKEN
    if first.status == SKIPPED:
        print("guest: the program was skipped, which counts as a failure", file=sys.stderr)
        return 1
    return first.status


def lacks(program, package):
    """Reports a missing package: a skip, but a failure where CI is set: there all packages are expected."""
    is_failure = bool(os.environ.get("CI"))
    print(f"{'failed, as CI is set' if is_failure else 'skipped'}: no {program} (Debian: {package})")
    return 1 if is_failure else SKIPPED


def main():
    begun = time.monotonic()
    options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    for program, package in ((machine.QEMU, "qemu-system-x86"), ("busybox", "busybox-static")):
        if shutil.which(program) is None:
            return lacks(program, package)
    try:
        chosen = kernel.find(*(options.kernel or [*kernel.ROOT, *kernel.folders()]))
    except kernel.NoKernel as error:
        print(f"skipped: {error}")
        return SKIPPED
    def on_silence(ends):
        show_silence(ends, options.silence, "the machine is started again")

    image, initramfs = chosen.unpacked_image(), build_initramfs(options, chosen)
    run = machine.run(image, initramfs, guests=2 if options.peer else 1, may_end=options.peer_may_end,
                      processors=options.processors, clock=options.clock, memory=options.memory,
                      serial=options.serial, seconds=options.seconds - (time.monotonic() - begun),
                      silence=options.silence, on_silence=on_silence, on_output=Screen().show)
    again = f", {run.starts} starts of the machine" if run.starts > 1 else ""
    print(f"guest: kernel {chosen.version}, {run.seconds:.1f} s, {run.processor_seconds:.1f} s of processor "
          f"time, exit status {run.ends[0].status}{again}", flush=True)
    return judge(run, options)


if __name__ == "__main__":
    sys.exit(main())
