#!/usr/bin/python3
"""Runs one program in a machine of its own: Debian's kernel under emulation (QEMU), without root or devices.

  guest.py [options] -- PROGRAM [ARGUMENT...]

The guest has busybox, PROGRAM and each --file at the absolute paths that they have here, the shared
libraries that those need, and nothing else of this machine. PROGRAM without a slash is a command of the
guest (sh, for example). The program's output and errors come out together. Nothing is kept: the guest's
files are in its memory.

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
USERS = {"root": 0, "user": 1000}
CONSOLE_LINES = 30


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--user", choices=USERS, default="root", help="(default: %(default)s)")
    parser.add_argument("--memlock", default="unlimited", metavar="KIB", help="its RLIMIT_MEMLOCK")
    parser.add_argument("--file", action="append", default=[], metavar="PATH", help="this file too")
    parser.add_argument("--module", action="append", default=[], metavar="NAME",
                        help="load this kernel module before, and all that it needs")
    parser.add_argument("--setup", metavar="FILE",
                        help="shell commands that root's shell reads before, devices for example")
    parser.add_argument("--environment", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--huge-pages", type=int, default=0, metavar="N", help="reserve so many of 2 MiB")
    parser.add_argument("--processors", type=int, default=2)
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
    files.add("/etc/passwd", "".join(f"{name}:x:{number}:{number}::/tmp:/bin/sh\n"
                                     for name, number in USERS.items()).encode())
    files.add("/etc/group", "".join(f"{name}:x:{number}:\n" for name, number in USERS.items()).encode())
    modules = chosen.modules(MODULES + options.module)
    for module in modules:
        files.add(f"/job/{module.name}", module.read_bytes())
    files.add("/job/modules", "".join(f"/job/{module.name}\n" for module in modules).encode())
    program = options.program[0]
    if options.setup:
        files.add("/job/setup", pathlib.Path(options.setup).read_bytes())
    for path in options.file + ([program] if "/" in program else []):
        files.add_program(path)
    add_job(files, options)
    return files.bytes()


def add_job(files, options):
    settings = {"memlock_kib": options.memlock, "user": options.user, "huge_pages": options.huge_pages,
                "seconds": options.seconds}
    files.add("/job/settings", "".join(f"{name}={shlex.quote(str(value))}\n"
                                       for name, value in settings.items()).encode())
    program = options.program
    if "/" in program[0]:
        program = [os.path.abspath(program[0])] + program[1:]
    exports = "".join(f"export {shlex.quote(entry)}\n" for entry in options.environment)
    files.add("/job/command", f"{exports}exec {shlex.join(program)}\n".encode())


def show(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def judge(end, options):
    """The exit status of this program, with what there is to say about it."""
    if end.status is None:
        what = f"killed after {options.seconds} s" if end.timed_out else "it ended without an exit status"
        print(f"guest: {what}; the last lines of its console:", file=sys.stderr)
        print("\n".join(end.console.splitlines()[-CONSOLE_LINES:]), file=sys.stderr)
        return TIMED_OUT if end.timed_out else BROKEN
    if end.status == SKIPPED:
        print("guest: the program was skipped, which is a failure here", file=sys.stderr)
        return 1
    return end.status


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
    end = machine.run(chosen.unpacked_image(), build_initramfs(options, chosen),
                      processors=options.processors, memory=options.memory, seconds=options.seconds,
                      on_output=show)
    print(f"guest: kernel {chosen.version}, {end.seconds:.1f} s, {end.processor_seconds:.1f} s of processor "
          f"time, exit status {end.status}", flush=True)
    return judge(end, options)


if __name__ == "__main__":
    sys.exit(main())
