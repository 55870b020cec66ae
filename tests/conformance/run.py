#!/usr/bin/python3
"""Compiles GASNet's own test programs, unmodified, against include/ and runs them.

The suite is not part of this project: give the folder that GASNet 2025.8.0 was unpacked into. A program
passes when it compiles, ends with exit status 0 (testexit: with the status that it tests), prints no line
with ERROR, FAIL or "fatal signal", leaves no section out unless outputs.py accepts that, and prints its end.
The table goes to standard output, as in docs/conformance.md: the rank counts that passed, and how the others
failed; the output of failed programs goes to --logs. --resume continues an interrupted run. Programs run with
the environment of this one: HYDRANT_PATH=am run.py ... With --guest they run in a virtual machine that has a
verbs device (tests/verbs/run), with the environment's variables HYDRANT_*, FIREHOSE_* and GASNET_*.
"""

import argparse
import collections
import concurrent.futures
import itertools
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from typing import NamedTuple

import outputs

ROOT = pathlib.Path(__file__).resolve().parents[2]

ALL_MODES = ("SEQ", "PARSYNC", "PAR")
TOOLS_MODES = ("THREAD_SINGLE", "THREAD_SAFE")  # of gasnet_tools.h alone: no job, no launcher
ALL_RANKS = (1, 2, 3, 4)
TEAM_RANKS = (1, 2, 3, 4, 5, 9)  # odd numbers, and one above a power of two, make trees and pairs uneven
PAIRS = (2, 4)  # with an odd number of ranks the program says that it has nothing to do
ONE_OR_PAIRS = (1, 2, 4)
NO_NEIGHBOURS = {"GASNET_SUPERNODE_MAXSIZE": "1"}


class Program(NamedTuple):
    source: str
    arguments: tuple = ()
    ranks: tuple = ALL_RANKS
    modes: tuple = ALL_MODES
    status: int = 0  # expected exit status
    may_complain: bool = False  # it tests failures: lines with ERROR are expected
    may_be_cxx: bool = True  # False: as C++ it lacks more than casts
    environment: dict = {}

    def name(self):
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        return " ".join([*variables, self.source, *self.arguments])


def exit_tests():
    """Yields the runs of testexit: the exit status is the test's number, or that of the signal of a crash."""
    for number in range(1, 16):
        yield Program("testexit.c", (f"{number}",), (1, 2, 3, 4), status=number)
    for number in range(51, 56):
        yield Program("testexit.c", (f"{number}",), (1, 2, 4), ("PAR",), status=number)
    # All ranks exit, because the last rank alone would leave the others in a barrier.
    yield Program("testexit.c", ("200",), PAIRS)
    yield Program("testexit.c", ("201",), PAIRS)
    for number, signal in ((102, 6), (103, 6), (104, 11), (105, 7), (106, 8)):
        for all_ranks in (0, 100):
            yield Program("testexit.c", (f"{number + all_ranks}",), PAIRS, status=128 + signal,
                          may_complain=True)


def team_program(source, arguments=(), ranks=TEAM_RANKS, modes=ALL_MODES, **more):
    return Program(source, arguments, ranks, modes, **more)


# Teams, collectives, and what their data go through. -p adds threads that poll and never sleep: with many
# ranks they delay each other for minutes.
TEAM_PROGRAMS = [
    team_program("testsplit.c"),
    team_program("testteam.c", ("100",)),
    team_program("testteambcast.c"),
    team_program("testteambarrier.c", ("100",), modes=("SEQ", "PARSYNC")),
    team_program("testteambarrier.c", ("100", "2"), modes=("PAR",)),
    team_program("testacc.c", ("1000",)),
    team_program("testtoken.c"),
    team_program("testtoken.c", ranks=TEAM_RANKS[1:], environment=NO_NEIGHBOURS),
    team_program("testcoll.c", ("100",)),
    team_program("testcoll.c", ("-p", "1", "100"), ALL_RANKS, ("PAR",)),
    team_program("testcollperf.c"),
    team_program("testcollperf.c", ("-src-out", "-dst-out", "-szfactor", "4", "16384", "2", "2", "0")),
    team_program("testsegment.c"),
    team_program("testsegment.c", ranks=TEAM_RANKS[1:], environment=NO_NEIGHBOURS),
    team_program("testreduce.c"),
    team_program("testreduce.c", ("0", "1")),
    team_program("testreduce.c", ("100", "512")),
    team_program("testreduce.c", ("50", "1024"), environment={"GASNET_COLL_SCRATCH_SIZE": "2K"}),
    team_program("testreduce.c", ("-p", "2", "100", "64"), ALL_RANKS, ("PAR",)),
    team_program("testreduce.c", ranks=(9,), environment={"GASNET_COLL_P2P_EAGER_SCALE": "4"}),
]
# Vector, indexed and strided transfers. testvisperf prints bandwidths of all shapes; few lengths are enough.
VIS_RANKS = (1, 2, 3, 4, 5)
VIS_PROGRAMS = [
    team_program("testvis.c", ("100", "1"), VIS_RANKS),
    team_program("testvis.c", ("-o", "50", "2"), VIS_RANKS),
    team_program("testvisperf.c", ("-mindata", "64", "-maxdata", "32768", "-maxcontig", "4096",
                                   "-datafactor", "8", "3"), ONE_OR_PAIRS),
    team_program("testvisperf.c", ("-out", "-nb", "-r", "-mindata", "64", "-maxdata", "32768", "-maxcontig",
                                   "4096", "-datafactor", "8", "3"), ONE_OR_PAIRS),
    team_program("testtmpair.c", ranks=VIS_RANKS),
]
# The arguments are those of the suite's own harness; small counts where the harness leaves them open.
PROGRAMS = [
    Program("testtools.c", ("100",), (1,), TOOLS_MODES),
    Program("testtoolscxx.cc", ("100",), (1,), TOOLS_MODES),
    Program("testhello.c"),
    Program("testenv.c", ("GASNet", "is", "Global Address Space Networking"),
            environment={"GASNET_DUMMY": "GASNet dummy value"}),
    Program("testbarrier.c", ("1000",)),
    Program("testbarrierconf.c"),
    Program("testbarrierconf.c", ("-t",), (2, 3), ("PAR",)),
    Program("testcore1.c", ("1000",), PAIRS),
    Program("testcore2.c", ("10",)),
    Program("testcore3.c"),
    Program("testcore4.c", ("3",)),
    Program("testcore5.c", ("3",)),
    Program("testam.c", ("1000", "4096"), ONE_OR_PAIRS, may_be_cxx=False),
    Program("testhsl.c", ("0",)),
    Program("testlockcontend.c", ("4", "1000"), (1, 2), ("PAR",)),
    Program("testalltoall.c", ("100",)),
    Program("testsmall.c", ("100",), ONE_OR_PAIRS),
    Program("testsmall.c", ("-out", "100"), ONE_OR_PAIRS),
    Program("testlarge.c", ("20", "2097152"), ONE_OR_PAIRS),
    Program("testlarge.c", ("-out", "20", "2097152"), ONE_OR_PAIRS),
    Program("testval.c", ("100",), ONE_OR_PAIRS),
    Program("testalign.c", ("100",), PAIRS),
    Program("testalign.c", ("-out", "100"), PAIRS),
    Program("testrand.c", ("1024",), PAIRS),
    Program("testlogGP.c", ("100", "0", "8", "65536"), PAIRS),
    Program("testqueue.c", ("1", "256", "262144"), ONE_OR_PAIRS),
    Program("testqueue.c", ("-out", "1", "256", "262144"), ONE_OR_PAIRS),
    Program("testnbr.c", ("20",), (1, 2, 4)),
    Program("testimm.c", ("200",), (2, 3, 4)),
    Program("testimm.c", ("-p", "-g", "200"), (2, 3, 4)),  # which the one above omits on one node
    Program("testreadonly.c"),
    Program("testbarrierlate.c", ("100",)),
    Program("testprogthr.c"),
    Program("testthreads.c", ("2",), modes=("PAR",)),
    Program("testcontend.c", ("2", "50"), PAIRS, ("PAR",)),
    Program("testmisc.c", ("1000",)),
    Program("testslice.c", ("1024000", "10", "10")),
    Program("testslice.c", ("-c", "-f", "1024000", "10", "10"), (2, 3, 4)),
    Program("testgasnet.c"),
    Program("testcxx.cc"),
    Program("testlegacy.c"),
    Program("testlegacycxx.cc"),
    *TEAM_PROGRAMS,
    *VIS_PROGRAMS,
    Program("testratomic.c", ("100", "1"), (1, 2, 3, 4, 5)),
    # No class of devices: the programs expect the refusal of each.
    Program("testcudauva.c", ranks=(2, 3, 4)),
    Program("testhip.c", ranks=(2, 3, 4)),
    Program("testze.c", ranks=(2, 3, 4)),
    Program("testinternal.c", ("1000",), modes=("SEQ", "PARSYNC")),
    Program("testinternal.c", ("1000", "4"), modes=("PAR",)),
    Program("testfaddperf.c", ("1000",), ONE_OR_PAIRS),
    Program("testfaddperf.c", ("-S", "1000"), PAIRS),
    Program("testfaddperf.c", ("-f", "-a", "1000"), (3, 5)),
    *exit_tests(),
]
# These programs wait in a loop that is in a source file of its own.
NEED_DELAY = ("testlogGP.c", "testbarrierlate.c")
LOCKS = collections.defaultdict(threading.Lock)  # by binary: several rows may need one
TIMED_OUT = 124


def built_library(args, mode):
    """Returns the options with which sources of the mode are compiled, and linked, from the build folder."""
    alone = mode in TOOLS_MODES
    macro = "GASNETT" if alone else "GASNET"
    library = "am/tools/libhydrant_tools.a" if alone else "libhydrant.a"
    return ([f"-I{ROOT / 'include'}", f"-D{macro}_{mode}=1", "-D_GNU_SOURCE=1"],
            [f"{args.build}/{library}", "-luring", *args.verbs, "-lstdc++", "-lm", "-lpthread", "-ldl"])


def installed_library(args, mode):
    """Returns the same by the installed pkg-config files alone."""
    tools = {"THREAD_SINGLE": "gasnet_tools-seq", "THREAD_SAFE": "gasnet_tools-par"}
    package = tools.get(mode, f"gasnet-ibv-{mode.lower()}")
    folder = next(args.installed.rglob("hydrant.pc")).parent
    static = ["--static"] * args.static
    compiled, linked = (shlex.split(subprocess.run(
        ["pkg-config", *static, kind, package], capture_output=True, text=True, check=True,
        env=os.environ | {"PKG_CONFIG_PATH": f"{folder}"}).stdout) for kind in ("--cflags", "--libs"))
    return compiled, [*("-static" for _ in static), *linked]


def compile_command(args, source, mode, debug, out):
    language = ["gcc"]
    if source.endswith(".cc"):
        language = ["g++", "-x", "c++"]
    elif args.cxx:  # most convert void* without a cast
        language = ["g++", "-x", "c++", "-fpermissive"]
    ours, libraries = installed_library(args, mode) if args.installed else built_library(args, mode)
    folders = [args.gasnet / name for name in ("tests", "other", "other/amx")]
    flags = ["-O1", "-g", *ours, *(f"-I{folder}" for folder in folders),
             "-DDEBUG=1" if debug else "-DNDEBUG=1"]
    if debug:
        flags.append("-DGASNET_DEBUG=1")
    if args.everything:
        flags.append("-DGASNET_SEGMENT_EVERYTHING=1")
    more = ["-x", "c", f"{args.gasnet}/tests/delay.c"] if source in NEED_DELAY else []
    return [*language, *flags, f"{args.gasnet}/tests/{source}", *more, "-x", "none", "-o", out,
            *libraries, *(["-s"] if args.guest else [])]


class Start(NamedTuple):
    """A start of a program, as a job of `ranks` ranks."""
    program: Program
    binary: str
    ranks: int

    def command(self, args):
        command = [self.binary, *self.program.arguments]
        if self.program.modes == TOOLS_MODES:
            return command
        # In a guest only hydrant-run can end a job that hangs.
        late = ["--timeout", str(args.timeout)] if args.guest else []
        return [f"{args.run}", *late, *args.run_options, "-n", str(self.ranks), *command]

    def judge(self, status, text):
        """Returns how the program failed, or "" if it passed."""
        program = self.program
        if status != program.status or program.may_complain:
            return (exit_problem(program.status, status) or
                    outputs.incomplete(program.source, self.ranks, text))
        return outputs.problem(program.source, self.ranks, text, {**os.environ, **program.environment})

    def key(self, args):
        """Returns what tells this start from others in the file of --resume."""
        return f"{pathlib.Path(self.binary).name} -n {self.ranks} {self.program.name()} {args.variant}"


def exit_problem(expected, status):
    if status == expected:
        return ""
    return "hangs" if status == TIMED_OUT else f"exit {status}"


def run_here(args, start):
    """Returns the program's exit status and output."""
    try:
        done = subprocess.run(start.command(args), capture_output=True, text=True, timeout=args.timeout,
                              env=dict(os.environ, **start.program.environment), errors="replace")
    except subprocess.TimeoutExpired as late:
        return TIMED_OUT, (late.stdout or b"").decode(errors="replace")
    return done.returncode, done.stdout + done.stderr


def guest_script(args, starts, mark):
    """Returns a script that runs the starts in turn, and prints the mark and the exit status after each."""
    lines = []
    for start in starts:
        variables = [f"{name}={value}" for name, value in start.program.environment.items()]
        lines += [f"{shlex.join(['env', *variables, *start.command(args)])}; status=$?",
                  f"echo; echo {mark} $status"]
    return "\n".join([*lines, ""])


def results_in_guest(text, mark, count):
    """Returns the exit status and output of each of `count` starts."""
    parts = re.split(rf"\n{mark} (\d+)\r?\n", text)
    found = [(int(status), output) for output, status in zip(parts[::2], parts[1::2])]
    # The guest did not reach the remaining starts.
    return found + [(TIMED_OUT, parts[-1])] * (count - len(found))


def settings():
    """Returns the variables of this environment that the programs or the library read."""
    return {name: value for name, value in sorted(os.environ.items())
            if name.startswith(("HYDRANT_", "GASNET_", "FIREHOSE_"))}


def run_in_guest(args, starts):
    """Returns the results of run_here() for all starts, which run in one guest."""
    mark = uuid.uuid4().hex
    script = pathlib.Path(f"{args.work}/{mark}.sh")
    script.write_text(guest_script(args, starts, mark))
    passed_on = [f"{name}={value}" for name, value in settings().items()]
    seconds = 60 + (args.timeout + 10) * len(starts)
    files = {script, f"{args.run}", *(start.binary for start in starts)}
    command = [f"{ROOT}/tests/verbs/run", "--seconds", str(int(seconds)),
               *(f"--file={path}" for path in files), *(f"--environment={text}" for text in passed_on),
               "--", "sh", f"{script}"]
    text = subprocess.run(command, capture_output=True, text=True, errors="replace").stdout
    return results_in_guest(text.replace("\r\n", "\n"), mark, len(starts))


def run_all(args, starts):
    """Returns how each start failed, "" if it passed, now or in a run that this one goes on with."""
    remaining = [start for start in starts if start.key(args) not in args.passed]
    if args.guest and remaining:
        ended = run_in_guest(args, remaining)
    else:
        ended = (run_here(args, start) for start in remaining)
    found = {start.key(args): finish(args, start, *end) for start, end in zip(remaining, ended)}
    return [found.get(start.key(args), "") for start in starts]


def finish(args, start, status, text):
    """Judges a run; keeps the output of one that failed, and the name of one that passed."""
    outcome = start.judge(status, text)
    if outcome:
        name = f"{pathlib.Path(start.binary).name}.{start.program.name()}.{start.ranks}"
        log(args, name, f"{text}\n{outcome}\n")
    elif args.resume:
        with args.resume.open("a") as file:
            file.write(f"{start.key(args)}\n")
    return outcome


def build(args, source, mode, debug):
    """Returns the binary, or None if it does not compile. Each is compiled once."""
    binary = f"{args.work}/{source}.{mode}{'.debug' if debug else ''}"
    with LOCKS[binary]:
        if not os.path.exists(binary) and not os.path.exists(f"{binary}.failed"):
            built = subprocess.run(compile_command(args, source, mode, debug, binary),
                                   capture_output=True, text=True)
            if built.returncode != 0:
                log(args, f"{pathlib.Path(binary).name}.build", built.stderr)
                pathlib.Path(f"{binary}.failed").touch()
    return binary if os.path.exists(binary) else None


def binaries_of(args, program, columns):
    """Returns a path per column: None if the program does not compile, "" if it is not for that mode."""
    return [build(args, program.source, mode, debug) if mode in program.modes else ""
            for mode, debug in columns]


def check(args, group, columns):
    """Returns the table's rows for programs of one source: for each its cells, and whether all passed. With
    --guest they share one guest, because its start takes longer than most of them."""
    starts = [Start(program, binary, ranks) for program in group
              for binary in binaries_of(args, program, columns) if binary
              for ranks in program.ranks if not args.ranks or ranks in args.ranks]
    results = list(zip(starts, run_all(args, starts)))
    return [[cell(binary, [(start, outcome) for start, outcome in results
                           if start.program == program and start.binary == binary])
             for binary in binaries_of(args, program, columns)] for program in group]


def cell(binary, results):
    if binary is None:
        return "does not compile", False
    if not results:
        return "–", True
    failed = [f"**{start.ranks}: {outcome}**" for start, outcome in results if outcome]
    return " ".join([*(str(start.ranks) for start, outcome in results if not outcome), *failed]), not failed


def log(args, name, text):
    args.logs.mkdir(parents=True, exist_ok=True)
    (args.logs / re.sub(r"[^\w.-]", "_", name)).write_text(text)


def print_table(args, programs, modes):
    """Prints a row for each program and a column for each mode, without and with GASNET_DEBUG."""
    columns = [(mode, debug) for mode in modes for debug in ((False,) if args.no_debug else (False, True))]
    print("| program | " + " | ".join(f"{mode}{' debug' if debug else ''}" for mode, debug in columns) +
          " |\n|---|" + "---|" * len(columns))
    all_passed = True
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        groups = [list(group) for _, group in itertools.groupby(programs, lambda p: p.source)]
        for group, rows in zip(groups, pool.map(lambda g: check(args, g, columns), groups)):
            for program, cells in zip(group, rows):
                print(f"| `{program.name()}` | " + " | ".join(text for text, _ in cells) + " |", flush=True)
                all_passed = all_passed and all(passed for _, passed in cells)
    return all_passed


def variant(args):
    """Returns the options and variables that make the runs of a program differ."""
    return " ".join([*("--guest",) * args.guest, *("--cxx",) * args.cxx, *("--everything",) * args.everything,
                     *("--installed",) * bool(args.installed), *("--static",) * args.static,
                     *args.run_options, *(f"{name}={value}" for name, value in settings().items())])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gasnet", type=pathlib.Path, required=True, help="GASNet's source folder")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/dev",
                        help="where libhydrant.a is")
    parser.add_argument("--installed", type=pathlib.Path, metavar="PREFIX",
                        help="compile and link by the pkg-config files of this installation")
    parser.add_argument("--static", action="store_true", help="with --installed: link with -static")
    parser.add_argument("--run", type=pathlib.Path, help="hydrant-run (default: the build's)")
    parser.add_argument("--run-options", nargs="+", default=[], metavar="OPTION",
                        help="more for hydrant-run, without their dashes: nodes=2")
    parser.add_argument("--guest", action="store_true", help="run them where there is a verbs device")
    parser.add_argument("--no-debug", action="store_true", help="without the columns of GASNET_DEBUG")
    parser.add_argument("--logs", type=pathlib.Path, default=ROOT / "build/conformance-logs")
    parser.add_argument("--resume", type=pathlib.Path, metavar="FILE",
                        help="keep the names of runs that passed in FILE; do not repeat those that are there")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for one run")
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time")
    parser.add_argument("--cxx", action="store_true", help="compile the C programs as C++, with -fpermissive")
    parser.add_argument("--everything", action="store_true", help="GASNET_SEGMENT_EVERYTHING")
    parser.add_argument("--modes", nargs="+", choices=ALL_MODES + TOOLS_MODES, help="only these")
    parser.add_argument("--ranks", nargs="+", type=int, help="only these")
    parser.add_argument("--only", nargs="+", default=[""], help="programs whose name contains one of these")
    parser.add_argument("--arguments", nargs="+", metavar="WORD",
                        help="for the chosen programs, instead of theirs: fewer rounds")
    args = parser.parse_args()
    # A guest has another working directory.
    args.run = (args.run or (args.installed or args.build) / "bin/hydrant-run").resolve()
    args.run_options = [f"--{option}" for option in args.run_options]
    args.verbs = ["-libverbs"] if (args.build / "rdma/libhydrant_ibv.a").exists() else []
    if not (args.gasnet / "tests/test.h").exists():
        parser.error(f"{args.gasnet} has no tests/test.h: give the folder of GASNet 2025.8.0")
    programs = [p for p in PROGRAMS if any(part in p.source for part in args.only) and
                (p.may_be_cxx or not args.cxx)]
    if args.arguments:
        programs = [p._replace(arguments=tuple(args.arguments)) for p in programs]
    # A shell's background job ignores it, and so would testexit 4, which raises it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    args.variant = variant(args)
    args.passed = set(args.resume.read_text().splitlines() if args.resume and args.resume.exists() else ())
    all_passed = True
    with tempfile.TemporaryDirectory() as folder:
        args.work = folder
        for group in (TOOLS_MODES, ALL_MODES):
            modes = [mode for mode in group if mode in (args.modes or group)]
            chosen = [p for p in programs if p.modes[0] in group and set(p.modes) & set(modes)]
            if chosen:
                all_passed = print_table(args, chosen, modes) and all_passed
                print()
    return 0 if all_passed else 1


if __name__ == "__main__":
    sys.exit(main())
