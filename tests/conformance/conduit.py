#!/usr/bin/python3
"""Compiles GASNet's own conduit for InfiniBand over this project's firehose, and links programs with it.

GASNet is not part of this project: give the folder that GASNet 2025.8.0 was unpacked into. Its sources stay
unchanged; firehose.h, gasnet_errors.h and hydrant/ of include/ are found before its other/firehose, whose
sources are left out. Each segment kind is configured and built in its own folder, which takes minutes. The
programs stay there; like GASNet's own they need a verbs device to run. The exit status is 0 if everything
compiled without an error, and every program contains this project's firehose and none of GASNet's.

With --guest the programs run there, too: as jobs of two ranks over Soft-RoCE in a guest (conduit_guest.py),
with each of --limits, and crossed_puts.c with limits that are too small for the simultaneous puts of its
ranks. --firehose gasnet does the same with GASNet's own firehose, for comparison. The exit status is 0 if all
passed.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

import conduit_guest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SEGMENTS = {"large": ["--enable-segment-large"], "fast": ["--enable-segment-fast"]}
CONFIGURE = ["--enable-ibv", "--disable-auto-conduit-detect", "--disable-mpi-compat", "--disable-par",
             "--disable-parsync", "CC=gcc", "CXX=g++"]
OURS, THEIRS = "hydrant_fh_init", "fh_acquire_local_region"
# The conduit's lower bound for the memory that a process may pin. Its default, 128 MiB, exceeds the limits
# that are tested here.
LEAST = "-DGASNETC_PHYSMEM_MIN=1048576"
CROSSED = "crossed_puts"


def links(folder):
    """Returns a folder with the headers that must be found before GASNet's."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("firehose.h", "gasnet_errors.h", "hydrant"):
        link = folder / name
        if not link.is_symlink():
            link.symlink_to(ROOT / "include" / name)
    return folder


def settings(args, firehose):
    """Returns the variables for make that choose the firehose."""
    theirs = f"-I{args.gasnet}/other/firehose {LEAST}"
    if firehose == "gasnet":
        return [f"fh_extralibcflags={theirs}"]
    libraries = [args.build / "firehose/libfirehose.a", "-luring", "-lstdc++", "-lm", "-lpthread", "-ldl"]
    return ["fh_special_objs=", f"fh_extralibcflags=-I{links(args.work / 'headers')} {theirs}",
            f"MANUAL_LIBS={' '.join(map(str, libraries))}"]


def commands(args, folder, firehose):
    """Yields the commands that build the conduit and the programs in this folder."""
    make = ["make", "-C", "ibv-conduit", *settings(args, firehose)]
    yield [*make, "libgasnet-ibv-seq.a"]
    for program in args.programs:
        yield [*make, program]
    if args.guest:
        (folder / "ibv-conduit" / CROSSED).unlink(missing_ok=True)
        yield [*make, "-f", ROOT / "tests/conformance/clients.mak", CROSSED]


def run(command, folder, log):
    done = subprocess.run([str(word) for word in command], cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    return done.returncode == 0


def problem_of(symbols, firehose):
    """Returns the error that a program's symbols show, or ""."""
    names = {line.split()[-1] for line in symbols.splitlines() if line.strip()}
    wanted, other = (OURS, THEIRS) if firehose == "ours" else (THEIRS, OURS)
    if wanted not in names:
        return f"does not contain the firehose that was asked for ({wanted})"
    return f"contains the other firehose ({other})" if other in names else ""


def folder_of(args, segment, firehose):
    return args.work / (segment if firehose == "ours" else f"{segment}.gasnet")


def check(args, segment, firehose):
    folder = folder_of(args, segment, firehose)
    folder.mkdir(parents=True, exist_ok=True)
    problems = []
    with open(folder / "log", "w") as log:
        if not (folder / "Makefile").exists() and \
                not run([args.gasnet / "configure", *CONFIGURE, *SEGMENTS[segment]], folder, log):
            return [f"{folder.name}: configure failed, see {folder}/log"]
        for command in commands(args, folder, firehose):
            if not run(command, folder, log):
                return [f"{folder.name}: {command[-1]} is not built, see {folder}/log"]
    for program in args.programs:
        symbols = subprocess.run(["nm", folder / "ibv-conduit" / program], capture_output=True, text=True)
        problem = problem_of(symbols.stdout, firehose)
        if problem:
            problems.append(f"{folder.name}: {program} {problem}")
        elif not args.guest:
            print(f"{folder.name}: {folder}/ibv-conduit/{program}")
    return problems


def run_in_guests(args, built):
    """Prints the table of results by firehose and limits; returns whether all passed."""
    columns = [(folder, limits) for folder in built for limits in args.limits]
    runs = [words for words in conduit_guest.PROGRAMS if words[0] in args.programs]
    cells = []
    for folder, limits in columns:
        began = time.monotonic()
        cells.append(conduit_guest.run_programs(args, folder, runs, limits))
        print(f"{folder.name}, {limits}: {cells[-1].count('passed')} of {len(runs)} passed, "
              f"{time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    titles = [f"{folder.name}, {limits}" for folder, limits in columns]
    print(f"| program | {' | '.join(titles)} |\n|---|" + "---|" * len(titles))
    for words, row in zip(runs, zip(*cells)):
        print(f"| `{' '.join(words)}` | {' | '.join(row)} |")
    passed = [conduit_guest.run_crossed(args, folder) for folder in built if args.crossed]
    for folder, count in zip(built, passed):
        print(f"{folder.name}: {CROSSED} {args.rounds} passed {count} of {args.crossed} times", flush=True)
    return all(cell == "passed" for column in cells for cell in column) and all(
        count == args.crossed for count in passed)


def check_all(args):
    kinds = [(segment, firehose) for segment in args.segments for firehose in args.firehose]
    problems = [problem for kind in kinds for problem in check(args, *kind)]
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems or not args.guest:
        return not problems
    args.lids = conduit_guest.build_lids(args.work)
    return run_in_guests(args, [folder_of(args, *kind) for kind in kinds])


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gasnet", type=pathlib.Path, required=True, help="GASNet's source folder")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/dev",
                        help="where firehose/libfirehose.a is")
    parser.add_argument("--work", type=pathlib.Path, help="where to build (default: a temporary folder)")
    parser.add_argument("--segments", nargs="+", choices=SEGMENTS, help="(default: all; in guests large)")
    parser.add_argument("--firehose", nargs="+", choices=("ours", "gasnet"), default=["ours"])
    parser.add_argument("--programs", nargs="+", help="of GASNet's tests (default: testsmall; in guests all)")
    parser.add_argument("--guest", action="store_true", help="run them, where there is a verbs device")
    parser.add_argument("--limits", nargs="*", choices=conduit_guest.LIMITS, default=["default", "small"],
                        help="of what a rank may pin (default: default small)")
    parser.add_argument("--crossed", type=int, default=20, help=f"runs of {CROSSED} (default: 20)")
    parser.add_argument("--rounds", type=int, default=5, help="of each (default: 5)")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one run")
    parser.add_argument("--logs", type=pathlib.Path, default=pathlib.Path("conformance-logs"))
    args = parser.parse_args()
    every = list(dict.fromkeys(words[0] for words in conduit_guest.PROGRAMS))
    args.programs = args.programs or (every if args.guest else ["testsmall"])
    args.segments = args.segments or (["large"] if args.guest else list(SEGMENTS))
    args.gasnet, args.build = args.gasnet.resolve(), args.build.resolve()
    if not (args.gasnet / "ibv-conduit/firehose_fwd.h").exists():
        parser.error(f"{args.gasnet} has no ibv-conduit: give the folder of GASNet 2025.8.0")
    return args


def main():
    args = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        args.work = (args.work or pathlib.Path(folder)).resolve()
        return 0 if check_all(args) else 1


if __name__ == "__main__":
    sys.exit(main())
