"""Runs programs over GASNet's conduit for InfiniBand in a guest that has a verbs device (tests/verbs/run).

That conduit addresses its peers by LIDs, which RoCE ports do not have: the preloaded roce_lids.c supplies
them. Two ranks are two processes of one guest, which may share no memory. GASNet's own spawner starts them;
the program that it runs as ssh executes the command in the guest.
"""
import os
import pathlib
import re
import subprocess
import types
import uuid

import outputs
import run

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RANKS = 2

# Limits of the memory that a rank may pin. "crossed" is too little for both directions of crossed_puts.c at
# once.
LIMITS = {
    "default": {},
    "small": {"GASNET_FIREHOSE_M": "16MB", "GASNET_FIREHOSE_MAXVICTIM_M": "4MB", "GASNET_FIREHOSE_R": "16",
              "GASNET_FIREHOSE_MAXVICTIM_R": "8"},
    "crossed": {"GASNET_FIREHOSE_M": "8MB", "GASNET_FIREHOSE_MAXVICTIM_M": "2MB", "GASNET_FIREHOSE_R": "4",
                "GASNET_FIREHOSE_MAXVICTIM_R": "2", "GASNET_FIREHOSE_MAXREGION_SIZE": "1MB"},
}
# The single-threaded programs of the suite run, except testexit: firehose does not affect how a job ends.
# Programs that take minutes with an emulated device have fewer rounds.
SHORTER = {"testam": [("100", "1024")], "testbarrierlate": [],
           "testlarge": [("10", "1048576"), ("-out", "10", "1048576")],
           "testqueue": [("1", "64", "131072"), ("-out", "1", "64", "131072")]}
MORE = [("testvis", "20"), ("testteam",), ("testsegment", "-random-seg"), ("testreduce",), ("testratomic",),
        ("testtmpair",), ("testtoken",), ("testacc", "1000")]


def programs():
    names = [(pathlib.Path(p.source).stem, p) for p in run.PROGRAMS if "SEQ" in p.modes and RANKS in p.ranks]
    for name in dict.fromkeys(name for name, p in names if name != "testexit"):
        yield from ((name, *words) for words in
                    SHORTER.get(name, [p.arguments for other, p in names if other == name]))
    yield from MORE


PROGRAMS = list(dict.fromkeys(programs()))
ENVIRONMENT = {
    "GASNET_IBV_SPAWNER": "ssh", "GASNET_SSH_SERVERS": "guest0", "GASNET_MASTERIP": "127.0.0.1",
    "GASNET_HOST_DETECT": "hostname", "GASNET_SUPERNODE_MAXSIZE": "1",
    "GASNET_PHYSMEM_MAX": "512M", "GASNET_MAX_SEGSIZE": "64M/P", "GASNET_EXITTIMEOUT": "10",
    # Turns off what the device lacks, so that no run warns of it.
    "GASNET_USE_XRC": "0", "GASNET_ODP_VERBOSE": "0", "GASNET_QP_TIMEOUT": "18",
    "GASNET_DUMMY": "GASNet dummy value", "FIREHOSE_WAIT_WARN": "20",
}
SETUP = r"""echo '127.0.0.1 localhost guest0' >/etc/hosts
printf '#!/bin/sh\nshift\nexec sh -c "$*"\n' >/bin/ssh
chmod +x /bin/ssh
"""


class Start:
    """A run of a program; the attributes are those that run.py reads."""

    def __init__(self, binary, arguments, limits, lids):
        self.program = types.SimpleNamespace(environment={**LIMITS[limits], "LD_PRELOAD": str(lids)})
        self.words = [str(binary), "-GASNET-SPAWN-master", str(RANKS), "--", *arguments]

    def command(self, args):
        return ["timeout", str(int(args.timeout)), *self.words]

    def judge(self, status, text):
        # The guest's timeout ends a program by a signal, which GASNet's spawner forwards and prints.
        is_late = status == 128 + 15 or (status != 0 and "SIGTERM" in text)
        if is_late or status:
            return run.exit_problem(0, run.TIMED_OUT if is_late else status)
        return "ERROR" if outputs.COMPLAINT.search(text) else ""


def build_lids(folder):
    library = folder / "roce_lids.so"
    subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", library,
                    HERE / "roce_lids.c", "-libverbs", "-ldl"], check=True)
    return library


def stripped(binary, folder):
    """Returns a copy without symbols, because a guest keeps its files in memory."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["strip", "-o", folder / binary.name, binary], check=True)
    return folder / binary.name


def run_all(args, folder, starts):
    """Runs the starts in one guest. Returns for each its failure, "" if it passed, and its output."""
    mark = uuid.uuid4().hex
    script = folder / f"{mark}.sh"
    script.write_text(SETUP + run.guest_script(args, starts, mark))
    files = {script, *(start.words[0] for start in starts),
             *(start.program.environment["LD_PRELOAD"] for start in starts)}
    passed_on = {**ENVIRONMENT, **{name: value for name, value in os.environ.items()
                                   if name.startswith(("GASNET_", "FIREHOSE_"))}}
    command = [ROOT / "tests/verbs/run", "--seconds", str(int(60 + (args.timeout + 10) * len(starts))),
               *(f"--file={file}" for file in files),
               *(f"--environment={name}={value}" for name, value in passed_on.items()), "--", "sh", script]
    text = subprocess.run(command, capture_output=True, text=True, errors="replace").stdout
    script.unlink()
    ended = run.results_in_guest(text, mark, len(starts))
    return [(start.judge(status, output), output) for start, (status, output) in zip(starts, ended)]


def log(args, name, output):
    args.logs.mkdir(parents=True, exist_ok=True)
    (args.logs / re.sub(r"[^\w.-]", "_", name)).write_text(output)


def run_programs(args, folder, programs, limits):
    """Returns a cell of the table for each program: "passed" or its failure."""
    binaries = {name: stripped(folder / "ibv-conduit" / name, folder / "stripped")
                for name in {program[0] for program in programs}}
    starts = [Start(binaries[name], words, limits, args.lids) for name, *words in programs]
    cells = []
    for program, (outcome, output) in zip(programs, run_all(args, folder, starts)):
        if outcome:
            log(args, f"{folder.name}.{limits}.{'_'.join(program)}", output)
        cells.append(f"**{outcome}**" if outcome else "passed")
    return cells


def run_crossed(args, folder):
    """Returns how many of args.crossed runs of crossed_puts passed."""
    binary = stripped(folder / "ibv-conduit/crossed_puts", folder / "stripped")
    starts = [Start(binary, [str(args.rounds)], "crossed", args.lids)] * args.crossed
    results = run_all(args, folder, starts)
    for number, (outcome, output) in enumerate(results):
        if outcome:
            log(args, f"{folder.name}.crossed.{number}", f"{outcome}\n{output}")
    return sum(not outcome for outcome, _ in results)
