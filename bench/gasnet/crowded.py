#!/usr/bin/python3
"""crowded.py [--ranks 4,9,32] [--busy 0,2,4] [--repetitions 5] [--seconds 1] NAME=PROGRAM...: runs programs
of crowded.c, each compiled against an implementation of GASNet-EX, in turn, beside processes that compute.

Prints the median time of each operation, and its ratio to the fair share: the program's time beside no busy
process x (ranks + busy) / ranks. PROGRAM is a command line; {n} in it becomes the number of ranks, which is
also in GASNET_PSHM_NODES.
"""
import argparse
import collections
import contextlib
import ctypes
import os
import shlex
import signal
import statistics
import subprocess
import sys

from compare import named_program, numbers

PR_SET_PDEATHSIG = 1
ROWS = ("barrier", "round trip", "put")


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def busy_processes(count):
    processes = [subprocess.Popen(["/bin/sh", "-c", "while :; do :; done"], preexec_fn=die_with_parent)
                 for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def run_once(command, ranks, seconds):
    environment = dict(os.environ, GASNET_PSHM_NODES=str(ranks), GASNET_QUIET="1")
    words = [word.replace("{n}", str(ranks)) for word in shlex.split(command)] + [str(seconds)]
    try:
        done = subprocess.run(words, env=environment, capture_output=True, text=True,
                              timeout=60 + 60 * seconds, check=False)
    except subprocess.TimeoutExpired:
        return {}
    found = {}
    for line in done.stdout.splitlines():
        name, _, value = line.rpartition(" ")
        if name in ROWS:
            found[name] = float(value)
    if done.returncode != 0:
        print(f"status {done.returncode}: {' '.join(words)}: {done.stderr[-300:]}", file=sys.stderr)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ranks", type=numbers, default=[4, 9, 32], metavar="N,N...",
                        help="numbers of ranks, one job of each (default 4,9,32)")
    parser.add_argument("--busy", type=numbers, default=[0, 2, 4], metavar="N,N...",
                        help="numbers of processes that compute beside the job (default 0,2,4); ratios "
                             "need a 0 before the others")
    parser.add_argument("--repetitions", type=int, default=5,
                        help="runs of each program in each case, of which the median counts (default 5)")
    parser.add_argument("--seconds", type=float, default=1,
                        help="time of each operation in a run (default 1)")
    parser.add_argument("programs", nargs="+", type=named_program, metavar="NAME=PROGRAM",
                        help="a name for the table, and a command line; {n} becomes the number of ranks")
    options = parser.parse_args()
    programs = dict(options.programs)
    print("us, median (least to most); in brackets: the ratio to the program's own fair share")
    for ranks in options.ranks:
        alone = {}
        for busy in options.busy:
            samples = collections.defaultdict(list)
            with busy_processes(busy):
                for _ in range(options.repetitions):
                    for name, command in programs.items():
                        for row, value in run_once(command, ranks, options.seconds).items():
                            samples[row, name].append(value)
            for row in ROWS:
                cells = []
                for name in programs:
                    values = samples[row, name]
                    if not values:
                        cells.append(f"{name}: none")
                        continue
                    median = statistics.median(values)
                    if busy == 0:
                        alone[row, name] = median
                    share = alone.get((row, name))
                    ratio = f" [{median / (share * (ranks + busy) / ranks):.2f}]" if share else ""
                    cells.append(f"{name}: {median:.2f} ({min(values):.2f} to {max(values):.2f}){ratio}")
                print(f"{ranks} ranks, {busy} busy, {row}: {'; '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
