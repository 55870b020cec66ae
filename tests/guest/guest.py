#!/usr/bin/python3
"""Runs one program in a machine of its own: Debian's kernel under emulation (QEMU), without root or devices.

  guest.py [options] -- PROGRAM [ARGUMENT...]

The guest has busybox, PROGRAM, each ARGUMENT that is a program's path (what a launcher is to start) and each
--file at the absolute paths that they have here, the shared libraries that those need, and nothing else of
this machine. PROGRAM without a slash is a command of the guest (sh, for example). The program's output and
errors come out together. Nothing is kept: the guest's files are in its memory.

With --peer there is a second guest, guest 1, with the same files and settings, joined with guest 0 by two
Ethernet links (eth0 and eth1; --setup gives them addresses: it and the commands see $guest, 0 or 1). What it
writes is shown with "guest 1: " before it. It is ended when guest 0 has ended.

Exit status: the program's, except that its 77 is made 1, because nothing that a guest lacks is a reason to
skip; 77 no QEMU, busybox or kernel here, 124 the deadline, 125 the guest itself failed.
"""
import argparse
import os
import pathlib
import shlex
import shutil
import signal
import sys

import kernel
import machine
from initramfs import Initramfs

SKIPPED, TIMED_OUT, BROKEN = 77, 124, 125
HERE = pathlib.Path(__file__).resolve().parent
KERNEL_FOLDER = HERE.parent.parent / "build" / "guest"
# For the ports that machine.py listens to, and random numbers.
MODULES = ["virtio_pci", "virtio_console", "virtio_rng"]
LINK_MODULES = ["virtio_net"]
USERS = {"root": 0, "user": 1000}
CONSOLE_LINES = 30


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--user", choices=USERS, default="root", help="(default: %(default)s)")
    parser.add_argument("--memlock", default="unlimited", metavar="KIB", help="its RLIMIT_MEMLOCK")
    parser.add_argument("--file", action="append", default=[], metavar="PATH", help="this file too")
    parser.add_argument("--python", action="store_true",
                        help="python3 too, with what tests use of its library")
    parser.add_argument("--module", action="append", default=[], metavar="NAME",
                        help="load this kernel module before, and all that it needs")
    parser.add_argument("--setup", metavar="FILE",
                        help="shell commands that root's shell reads before, devices for example")
    parser.add_argument("--environment", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--peer", metavar="COMMAND",
                        help="a second guest, where root's shell reads this while PROGRAM runs in the first")
    parser.add_argument("--peer-may-end", action="store_true",
                        help="the second guest may end before the first, which is a failure otherwise")
    parser.add_argument("--huge-pages", type=int, default=0, metavar="N", help="reserve so many of 2 MiB")
    parser.add_argument("--processors", type=int, default=2)
    parser.add_argument("--clock", choices=machine.CLOCKS, default="time",
                        help="what the guest's clock goes by: time, or instructions, one for each ns,\n"
                        "whatever else this machine does; one processor then (default: %(default)s)")
    parser.add_argument("--memory", default="2G")
    parser.add_argument("--seconds", type=int, default=120,
                        help="deadline, the start included (default: %(default)s)")
    parser.add_argument("--kernel", action="append", metavar="FOLDER",
                        help="where boot/ and lib/modules/ of the kernel are (default: / and build/guest)")
    parser.add_argument("program", nargs="+")
    return parser.parse_args()


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
    for module in modules:
        files.add(f"/job/{module.name}", module.read_bytes())
    files.add("/job/modules", "".join(f"/job/{module.name}\n" for module in modules).encode())
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
    """Shows what guests write: guest 0 as it comes, the other one in lines that say whose they are."""

    def __init__(self):
        self._begun = b""

    def show(self, guest, data):
        if guest != 0:
            *lines, self._begun = (self._begun + data).split(b"\n")
            data = b"".join(b"guest %d: %s\n" % (guest, line) for line in lines)
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def show_console(guest, what, end):
    lines = end.console.splitlines()[-CONSOLE_LINES:]
    print("\n".join([f"guest {guest}: {what}; the last lines of its console:", *lines]), file=sys.stderr)


def judge(run, options):
    """The exit status of this program, with what there is to say about it."""
    first = run.ends[0]
    for guest, end in enumerate(run.ends[1:], 1):
        if end.is_own and not options.peer_may_end:
            show_console(guest, f"it ended before guest 0, exit status {end.status}", end)
            return BROKEN
        if first.status != 0 and end.console:
            show_console(guest, "it was ended when guest 0 was", end)
    if first.status is None:
        what = f"killed after {options.seconds} s" if run.timed_out else "it ended without an exit status"
        show_console(0, what, first)
        return TIMED_OUT if run.timed_out else BROKEN
    if first.status == SKIPPED:
        print("guest: the program was skipped, which is a failure here", file=sys.stderr)
        return 1
    return first.status


def main():
    options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    for program, package in ((machine.QEMU, "qemu-system-x86"), ("busybox", "busybox-static")):
        if shutil.which(program) is None:
            print(f"skipped: no {program} (Debian: {package})")
            return SKIPPED
    try:
        chosen = kernel.find(*(options.kernel or ["/", KERNEL_FOLDER]))
    except kernel.NoKernel as error:
        print(f"skipped: {error}")
        return SKIPPED
    run = machine.run(chosen.unpacked_image(), build_initramfs(options, chosen),
                      guests=2 if options.peer else 1, may_end=options.peer_may_end,
                      processors=options.processors, clock=options.clock, memory=options.memory,
                      seconds=options.seconds,
                      on_output=Screen().show)
    print(f"guest: kernel {chosen.version}, {run.seconds:.1f} s, {run.processor_seconds:.1f} s of processor "
          f"time, exit status {run.ends[0].status}", flush=True)
    return judge(run, options)


if __name__ == "__main__":
    sys.exit(main())
