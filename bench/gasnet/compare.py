#!/usr/bin/python3
"""coll_compare.py [--ranks 2,4] [--repetitions 5] [--percent 100] NAME=PROGRAM...: runs programs of
coll_compare.c and coll_mpi.c in turn, and prints the median of each row, the range of its runs, and the ratio
of the first program to each other one.

PROGRAM is a command line; {n} in it becomes the number of ranks, which is also in GASNET_PSHM_NODES. PERCENT
scales the rounds, and goes to each program as its argument. Rows that the first program loses are marked.
"""
import argparse
import collections
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys

LINE = re.compile(r"^(\S.*?) +(\d+) bytes +([\d.]+) ns$")


def run_once(command, ranks, percent, seconds):
    """{(operation, bytes): ns}; without those that the program did not print."""
    environment = dict(os.environ, GASNET_PSHM_NODES=str(ranks), GASNET_QUIET="1")
    words = [word.replace("{n}", str(ranks)) for word in shlex.split(command)] + [str(percent)]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as job:
        try:
            text, _ = job.communicate(timeout=seconds)
            status = job.returncode
        except subprocess.TimeoutExpired:
            job.terminate()  # launchers then end their ranks, which would disturb the next programs
            try:
                text, _ = job.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                job.kill()
                text, _ = job.communicate()
            status = "ended after the time limit"
    if status != 0:
        print(f"{status}: {' '.join(words)}", file=sys.stderr)
    found = {}
    for line in text.splitlines():
        if match := LINE.match(line):
            found[match[1], int(match[2])] = float(match[3])
    return found


def numbers(text):
    return [int(word) for word in text.split(",")]


def named_program(text):
    name, equals, command = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=PROGRAM")
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{text}': {error}") from error
    if not words or shutil.which(words[0]) is None:
        raise argparse.ArgumentTypeError(f"'{text}': no program '{words[0] if words else ''}' can be run")
    return name, command


def microseconds(ns):
    return f"{ns / 1000:.3g}"


def print_table(ranks, names, samples):
    first = names[0]
    print(f"\n{ranks} ranks, us, median (least to most)\n")
    print("| | " + " | ".join(names) + " | " + " | ".join(f"{first} / {name}" for name in names[1:]) + " |")
    print("|" + "---|" * (2 * len(names)))
    for row in samples:
        medians = {name: statistics.median(values) for name, values in samples[row].items()}
        cells = [f"{microseconds(medians[name])} ({microseconds(min(samples[row][name]))} to "
                 f"{microseconds(max(samples[row][name]))})" if name in medians else "none" for name in names]
        for name in names[1:]:
            ratio = medians[first] / medians[name] if {first, name} <= set(medians) else None
            cells.append("" if ratio is None else f"{ratio:.2f}" + (" (slower)" if ratio > 1 else ""))
        operation, size = row
        print(f"| {operation}{f', {size} bytes' if size else ''} | " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ranks", type=numbers, default=[2, 4], metavar="N,N...",
                        help="numbers of ranks, one job of each (default 2,4)")
    parser.add_argument("--repetitions", type=int, default=5,
                        help="runs of each program, of which the median counts (default 5)")
    parser.add_argument("--percent", type=int, default=100, help="of the rounds (default 100)")
    parser.add_argument("--seconds", type=float, default=120, help="time limit of a run (default 120)")
    parser.add_argument("programs", nargs="+", type=named_program, metavar="NAME=PROGRAM",
                        help="a name for the table, and a command line; {n} becomes the number of ranks")
    options = parser.parse_args()
    programs = dict(options.programs)
    for ranks in options.ranks:
        samples = collections.defaultdict(lambda: collections.defaultdict(list))
        for _ in range(options.repetitions):
            for name, command in programs.items():
                for row, ns in run_once(command, ranks, options.percent, options.seconds).items():
                    samples[row][name].append(ns)
        print_table(ranks, list(programs), samples)


if __name__ == "__main__":
    main()
