#!/usr/bin/python3
"""Compiles GASNet's own test programs, unmodified, against include/ and runs them.

The suite is not part of this project: give the folder that GASNet 2025.8.0 was unpacked into. A program
passes when it compiles, ends with exit status 0, and prints no line with ERROR or "fatal signal". The table
goes to standard output, as docs/conformance.md has it; the output of what failed to --logs.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

ALL_MODES = ("SEQ", "PARSYNC", "PAR")
TOOLS_MODES = ("THREAD_SINGLE", "THREAD_SAFE")  # of gasnet_tools.h alone: no job, no launcher
# Program, arguments, ranks, modes. What the suite's own harness passes; small counts where it leaves them
# open.
PROGRAMS = [
    ("testtools.c", ["100"], (1,), TOOLS_MODES),
    ("testtoolscxx.cc", ["100"], (1,), TOOLS_MODES),
    ("testhello.c", [], (1, 2, 3, 4), ALL_MODES),
    ("testenv.c", ["GASNet", "is", "Global Address Space Networking"], (1, 2, 3, 4), ALL_MODES),
    ("testbarrier.c", ["1000"], (1, 2, 3, 4), ALL_MODES),
    ("testbarrierconf.c", [], (1, 2, 3, 4), ALL_MODES),
    ("testbarrierconf.c", ["-t"], (2, 3), ("PAR",)),
    ("testcore1.c", ["1000"], (1, 2, 3, 4), ALL_MODES),
    ("testcore3.c", [], (1, 2, 3, 4), ALL_MODES),
    ("testam.c", ["1000", "4096"], (1, 2, 4), ALL_MODES),
    ("testhsl.c", ["0"], (1, 2, 3, 4), ALL_MODES),
    ("testlockcontend.c", ["4", "1000"], (1, 2), ("PAR",)),
]
# These convert void* without a cast: no C++ compiler takes them.
C_ONLY = ("testcore1.c", "testam.c")
BAD_LINE = re.compile(r"ERROR|fatal signal", re.IGNORECASE)


def compile_program(args, source, mode, debug, out):
    language = ["g++", "-x", "c++"] if args.cxx or source.endswith(".cc") else ["gcc"]
    alone = mode in TOOLS_MODES
    macro = "GASNETT" if alone else "GASNET"
    library = "am/tools/libhydrant_tools.a" if alone else "libhydrant.a"
    flags = ["-O1", "-g", f"-D{macro}_{mode}=1", f"-I{ROOT}/include", f"-I{args.gasnet}/tests",
             f"-I{args.gasnet}/other", "-D_GNU_SOURCE=1", "-DDEBUG=1" if debug else "-DNDEBUG=1"]
    if debug:
        flags.append("-DGASNET_DEBUG=1")
    command = [*language, *flags, f"{args.gasnet}/tests/{source}", "-x", "none", "-o", out,
               f"{args.build}/{library}", "-lstdc++", "-lm", "-lpthread", "-ldl"]
    return subprocess.run(command, capture_output=True, text=True)


def run_program(args, program, arguments, ranks):
    environment = dict(os.environ, GASNET_DUMMY="GASNet dummy value")
    command = [program, *arguments]
    if ranks:
        command = [f"{args.run}", "-n", str(ranks), *command]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=args.timeout,
                              env=environment, errors="replace")
    except subprocess.TimeoutExpired as late:
        return "hangs", (late.stdout or b"").decode(errors="replace")
    text = done.stdout + done.stderr
    if done.returncode != 0:
        return f"exit {done.returncode}", text
    if BAD_LINE.search(text):
        return "ERROR", text
    return "ok", text


def check(args, row, results):
    source, arguments, ranks, modes = row
    for mode in modes:
        for debug in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                program = f"{folder}/{pathlib.Path(source).stem}"
                built = compile_program(args, source, mode, debug, program)
                name = f"{source} {' '.join(arguments)}".strip()
                label = f"{mode}{' debug' if debug else ''}{' C++' if args.cxx else ''}"
                if built.returncode != 0:
                    results.append((name, label, {n: "does not compile" for n in ranks}))
                    log(args, f"{source}.{mode}.build", built.stderr)
                    continue
                outcome = {}
                for n in ranks:
                    launched = 0 if mode in TOOLS_MODES else n
                    outcome[n], text = run_program(args, program, arguments, launched)
                    if outcome[n] != "ok":
                        log(args, f"{source}.{label.replace(' ', '_')}.{n}", text)
                results.append((name, label, outcome))


def log(args, name, text):
    args.logs.mkdir(parents=True, exist_ok=True)
    (args.logs / name).write_text(text)


def print_table(results):
    columns = sorted({n for _, _, outcome in results for n in outcome})
    print("| program | mode | " + " | ".join(f"{n} rank{'s' if n > 1 else ''}" for n in columns) + " |")
    print("|---|---|" + "---|" * len(columns))
    for name, label, outcome in results:
        print(f"| `{name}` | {label} | " + " | ".join(outcome.get(n, "–") for n in columns) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gasnet", type=pathlib.Path, required=True, help="GASNet's source folder")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/dev",
                        help="where libhydrant.a is")
    parser.add_argument("--run", type=pathlib.Path, help="hydrant-run (default: the build's)")
    parser.add_argument("--logs", type=pathlib.Path, default=pathlib.Path("conformance-logs"))
    parser.add_argument("--timeout", type=float, default=60, help="seconds for one run")
    parser.add_argument("--cxx", action="store_true", help="compile the C programs as C++")
    parser.add_argument("--only", default="", help="programs whose name contains this")
    args = parser.parse_args()
    args.run = args.run or args.build / "bin/hydrant-run"
    if not (args.gasnet / "tests/test.h").exists():
        parser.error(f"{args.gasnet} has no tests/test.h: give the folder of GASNet 2025.8.0")
    results = []
    for row in PROGRAMS:
        if args.only in row[0] and not (args.cxx and row[0] in C_ONLY):
            check(args, row, results)
    print_table(results)
    return 0 if all(o == "ok" for _, _, outcome in results for o in outcome.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
