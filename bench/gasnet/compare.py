#!/usr/bin/python3
"""compare.py [--ranks 2,4] [--repetitions 5] [--percent 100] NAME=PROGRAM...: runs programs of this folder,
such as coll_compare.c and coll_mpi.c, in turn, and prints the median of each row, the range of its runs, and
the ratio of the first program to each other one.

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

LINE = re.compile(r"^(\S.*?),?(?: +(\d+) bytes:?)? +([\d.]+) ns(?:[, ].*)?$")


def run_once(words, ranks, seconds):
    """{(operation, bytes): ns}; without those that the program did not print."""
    environment = dict(os.environ, GASNET_PSHM_NODES=str(ranks), GASNET_QUIET="1")
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as job:
        try:
            text, errors = job.communicate(timeout=seconds)
            status = job.returncode
        except subprocess.TimeoutExpired:
            job.terminate()  # launchers then end their ranks, which would disturb the next programs
            try:
                text, errors = job.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                job.kill()
                text, errors = job.communicate()
            status = "ended after the time limit"
    if status != 0:
        print(f"{status}: {' '.join(words)}: {errors[-300:].strip()}", file=sys.stderr)
    found = {}
    for line in text.splitlines():
        if match := LINE.match(line):
            found[match[1], int(match[2] or 0)] = float(match[3])
    return found


def race(programs, ranks, repetitions, seconds):
    """{row: {name: [ns of each run]}} of the programs {name: words}, each of which runs once in each turn."""
    samples = collections.defaultdict(lambda: collections.defaultdict(list))
    for _ in range(repetitions):
        for name, words in programs.items():
            for row, ns in run_once(words, ranks, seconds).items():
                samples[row][name].append(ns)
    return samples


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
    program = words[0] if words else ""
    if "{n}" not in program and shutil.which(program) is None:
        raise argparse.ArgumentTypeError(f"'{text}': no program '{program}' can be run")
    return name, command


def row_name(row):
    operation, size = row
    return f"{operation}, {size} bytes" if size else operation


def ratios(names, samples):
    """[(row, name, median of the first program / median of this one)]"""
    medians = {row: {name: statistics.median(values) for name, values in runs.items()}
               for row, runs in samples.items()}
    return [(row, name, medians[row][names[0]] / medians[row][name])
            for row in samples for name in names[1:] if {names[0], name} <= set(medians[row])]


def number(value):
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def table(names, samples, unit_ns=1000):
    """Markdown: each row's medians and ranges in units of so many ns, and the first program's ratio to each
    other one."""
    first = names[0]

    def cell(values):
        low, middle, high = (number(pick(values) / unit_ns) for pick in (min, statistics.median, max))
        return f"{middle} ({low} to {high})"

    found = {(row, name): ratio for row, name, ratio in ratios(names, samples)}
    heads = [*names, *(f"{first} / {name}" for name in names[1:])]
    lines = ["| | " + " | ".join(heads) + " |",
             "|" + "---|" * (2 * len(names))]
    for row, runs in samples.items():
        cells = [cell(runs[name]) if runs.get(name) else "none" for name in names]
        for name in names[1:]:
            ratio = found.get((row, name))
            cells.append("" if ratio is None else f"{ratio:.2f}" + (" (slower)" if ratio > 1 else ""))
        lines.append(f"| {row_name(row)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


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
        words = {name: [word.replace("{n}", str(ranks)) for word in shlex.split(command)] +
                 [str(options.percent)] for name, command in programs.items()}
        samples = race(words, ranks, options.repetitions, options.seconds)
        print(f"\n{ranks} ranks, us, median (least to most)\n\n{table(list(programs), samples)}", flush=True)


if __name__ == "__main__":
    main()
