#!/usr/bin/python3
"""vis_compare.py [--repetitions 3] [--interval 0.02] NAME=PROGRAM NAME=PROGRAM [-- TESTVISPERF_OPTIONS]: runs
GASNet's testvisperf, compiled against two implementations of GASNet-EX, in turn with two ranks, and prints
for each pattern the ratio of bandwidths of the first to the second (above 1: the first is faster), the best
of each program's repetitions.

PROGRAM is a command line; GASNET_PSHM_NODES is 2. A row is a shape, direction and length of pieces; a column
a length of the data, with a ratio for each density. Then come the geometric means, with and without transfers
of a single piece, and the patterns below 0.95.
"""
import argparse
import collections
import math
import os
import re
import shlex
import subprocess
import sys

SECTION = re.compile(r"\w: (\w+) (\w+) CONTIGSZ = (\d+)$")
ROW = re.compile(r"\s*(\d+):\s+(.*)$")
LOSES_BELOW = 0.95


def run_once(command, options):
    """{(shape, direction, piece, data, density number): MiB/s}"""
    environment = dict(os.environ, GASNET_PSHM_NODES="2", GASNET_QUIET="1")
    text = subprocess.run([*shlex.split(command), *options], env=environment, capture_output=True,
                          text=True, check=True).stdout
    section, found = (), {}
    for line in text.splitlines():
        if match := SECTION.match(line):
            section = (match[1], match[2], int(match[3]))
        elif section and (match := ROW.match(line)):
            for density, figure in enumerate(match[2].split()):
                if figure != "-":
                    found[(*section, int(match[1]), density)] = float(figure)
    return found


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


def print_ratios(ratios):
    for section in dict.fromkeys(key[:3] for key in ratios):
        cells = collections.defaultdict(list)
        for key, ratio in ratios.items():
            if key[:3] == section:
                cells[key[3]].append(f"{ratio:.2f}")
        shape, direction, piece = section
        print(f"{shape} {direction} of {piece} bytes: " +
              "   ".join(f"{data}: {' '.join(cell)}" for data, cell in cells.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--interval", default="0.02", help="seconds for each pattern")
    parser.add_argument("programs", nargs=2, metavar="NAME=PROGRAM")
    parser.add_argument("options", nargs="*", help="for testvisperf, behind --")
    args = parser.parse_args()
    options = args.options or ["-maxdata", "131072", "-maxcontig", "512", "-datafactor", "4"]
    names, commands = zip(*(program.split("=", 1) for program in args.programs))
    best = [{}, {}]
    for _ in range(args.repetitions):
        for i, command in enumerate(commands):
            for key, figure in run_once(command, [*options, args.interval]).items():
                best[i][key] = max(best[i].get(key, 0), figure)
    ratios = {key: best[0][key] / best[1][key] for key in best[0] if key in best[1]}
    print_ratios(ratios)
    several = {key: ratio for key, ratio in ratios.items() if key[3] > key[2]}
    print(f"{names[0]} / {names[1]}: geometric mean {mean(ratios.values()):.2f} of {len(ratios)} patterns, "
          f"{mean(several.values()):.2f} of the {len(several)} with several pieces")
    losing = sorted((ratio, key) for key, ratio in several.items() if ratio < LOSES_BELOW)
    for ratio, (shape, direction, piece, data, density) in losing:
        print(f"below {LOSES_BELOW}: {ratio:.2f} {shape} {direction}, {data} bytes in pieces of {piece}, "
              f"density {density}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
