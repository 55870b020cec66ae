"""Cells of the field matrix: a client runs its table under one condition, and a verdict of what it did.

A client (field.hpp) writes the outcome of each row into a file that it maps. A row whose call ends the
process, as a fatal error does, is the last of its run: the next run begins with the row behind it.
"""
import collections
import errno
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE.parent / "launch"))
import jobs  # the path must be set first
import over

LIMIT = 10 * over.PATIENCE  # seconds without a call that returns
# A cell ends after so many hangs, or announced waits for what is short: each takes 10 s and more.
MOST_WAITS = 2
# The layout of field.hpp.
RANKS, ROWS, CALLS = 2, 512, 512
HEAD = struct.Struct("<2II")
CELL = struct.Struct("<Ii248s")
FIRST_CELL = HEAD.size + 2 * CALLS
SIZE = FIRST_CELL + RANKS * ROWS * CELL.size
OUTCOMES = ("not reached", "ended", "right", "refused", "silent", "wrong", "cancelled", "leak")
NOT_REACHED, STARTED, DONE, REFUSED = range(4)
INIT = ROWS - 1  # the row of a failed init

Program = collections.namedtuple("Program", "name path start variables")
Row = collections.namedtuple("Row", "rank row outcome code text")


def numbers_of_calls():
    """Number -> name of this machine's system calls."""
    compiler = os.environ.get("CC", "cc")
    text = subprocess.run([compiler, "-E", "-dM", "-"], input="#include <asm/unistd.h>\n", text=True,
                          check=True, stdout=subprocess.PIPE).stdout
    return {int(number): name for name, number in re.findall(r"#define __NR_(\w+) (\d+)\n", text)}


def lines_of(name):
    for line in (HERE / name).read_text().splitlines():
        if line and not line.startswith("#"):
            yield line


def row_names(path):
    return subprocess.run([path, "names"], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


class Outcomes:
    """The file that a client maps."""

    def __init__(self):
        self.file = tempfile.NamedTemporaryFile(prefix="field-", suffix=jobs.SCRIPT)
        self.file.truncate(SIZE)

    def read(self):
        return os.pread(self.file.fileno(), SIZE, 0)

    def steps(self):
        return HEAD.unpack(os.pread(self.file.fileno(), HEAD.size, 0))[:RANKS]

    def condition_failed(self):
        return HEAD.unpack_from(self.read())[RANKS]

    def used_calls(self, after_init):
        start = HEAD.size + CALLS * after_init
        return [i for i, used in enumerate(self.read()[start:start + CALLS]) if used]

    def rows(self):
        data = self.read()
        for rank in range(RANKS):
            for row in range(ROWS):
                outcome, code, text = CELL.unpack_from(data, FIRST_CELL + (rank * ROWS + row) * CELL.size)
                if outcome != NOT_REACHED:
                    yield Row(rank, row, outcome, code, text.split(b"\0")[0].decode(errors="replace"))


def announced_wait(output):
    """Seconds for which the library says that it tries a step again."""
    said = os.pread(output.fileno(), 1 << 20, 0)
    return max(map(int, re.findall(rb"trying again for (\d+) s", said)), default=0)


class Run:
    """A process, or job, of a client. `hung`: no call has returned for LIMIT."""

    def __init__(self, program, condition, when, first):
        outcomes = Outcomes()
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("GASNET_", "HYDRANT_", "FIREHOSE_"))}
        environment.update(program.variables, FIELD_OUTCOMES=outcomes.file.name, FIELD_CONDITION=condition,
                           FIELD_WHEN=when, FIELD_FIRST=str(first), FIELD_EXPECTED="value",
                           HYDRANT_TEST_PATIENCE=str(over.PATIENCE))
        environment[jobs.MARKER] = self.marker = outcomes.file.name
        self.hung, self.left, self.announced_wait = False, [], 0
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen([*program.start, program.path], env=environment,
                                       stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                       group=jobs.GROUP)
            self.wait(process, outcomes, output)
            self.status = process.returncode
            output.seek(0)
            self.text = output.read()
        self.rows = list(outcomes.rows())
        self.condition_failed = outcomes.condition_failed()
        self.used = [outcomes.used_calls(False), outcomes.used_calls(True)]

    def wait(self, process, outcomes, output):
        steps, since = None, time.monotonic()
        while process.poll() is None:
            time.sleep(0.01)
            if outcomes.steps() != steps:
                steps, since = outcomes.steps(), time.monotonic()
            if time.monotonic() - since > LIMIT:
                self.announced_wait = announced_wait(output)
            if time.monotonic() - since > LIMIT + self.announced_wait:
                self.hung = True
                self.kill()
                process.kill()
                process.wait()
        deadline = time.monotonic() + LIMIT
        self.left = self.survivors()
        while self.left and time.monotonic() < deadline:
            time.sleep(0.01)
            self.left = self.survivors()
        self.kill()

    def survivors(self):
        return [int(entry.name) for entry in jobs.processes() if jobs.has_marker(entry, self.marker)]

    def kill(self):
        for pid in self.survivors():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


class Cell:
    """A table under one condition: complaints, one line each, and the number of calls with each outcome."""

    def __init__(self, program, condition, when, name=None):
        self.name = f"{program.name} {when} {name or condition}"
        self.complaints, self.counts, self.runs, self.waits = [], collections.Counter(), 0, 0
        self.names = row_names(program.path)
        first = 0
        while first is not None:
            run = Run(program, condition, when, first)
            self.runs += 1
            first = self.judge(run, first, may_be_mute="write" in condition.split())
        self.used = run.used

    def complain(self, text):
        if text not in self.complaints:
            self.complaints.append(text)

    def judge(self, run, first, may_be_mute):
        """The row from which to go on, or None."""
        started = [row.row for row in run.rows if row.outcome == STARTED]
        last = max(started or (row.row for row in run.rows if row.row != INIT), default=first - 1)
        for row in run.rows:
            names = "init" if row.row == INIT else self.names[row.row]
            self.counts[f"calls {OUTCOMES[row.outcome]}"] += 1
            if row.outcome > REFUSED:
                self.complain(f"{OUTCOMES[row.outcome]}: {names}: {row.code} {row.text}")
        where = self.names[last] if last >= first else "init"
        if run.condition_failed:
            self.complain(f"the condition cannot be made: {os.strerror(run.condition_failed)}")
        if run.hung:
            self.complain(f"hang: {where}")
        elif run.left:
            self.complain(f"processes are left: {run.left}")
        elif run.status != 0:
            self.judge_end(run, where, may_be_mute)
        self.waits += run.hung or run.announced_wait > 0
        if self.waits == MOST_WAITS:
            return None
        return last + 1 if (started or run.hung) and first <= last < len(self.names) - 1 else None

    def judge_end(self, run, where, may_be_mute):
        """A status that is not 0: a refused init, or the end of a process that names the cause."""
        said = [line for line in run.text.splitlines() if re.match(r"hydrant|\*\*\* FATAL ERROR", line)]
        refused = any(row.row == INIT and row.outcome == REFUSED for row in run.rows)
        signalled = run.status < 0 or run.status > 128
        aborted = run.status in (-signal.SIGABRT, 128 + signal.SIGABRT)
        if signalled and not (aborted and (said or may_be_mute)):
            self.complain(f"status {run.status}: {where}: {run.text.strip()[-300:]!r}")
        elif not refused and not said and not may_be_mute:
            self.complain(f"status {run.status} without a message: {where}: {run.text.strip()[-300:]!r}")


ERRORS = {name: getattr(errno, name) for name in ("EPERM", "ENOSYS", "EAGAIN")}


def needed_calls():
    """{(system call, error or ""): reason}: what is not refused."""
    table = {}
    for line in lines_of("needed_calls.txt"):
        call, error, reason = re.fullmatch(r"(\w+)(?: (E\w+))?: (.+)", line).groups()
        table[call, error or ""] = reason
    return table


def refusals(program, when, error):
    """(condition, its name) for each system call that a run makes from `when` on and that may be refused."""
    listed = Cell(program, "list", "before")
    if listed.complaints:
        raise AssertionError(f"{listed.name}: {listed.complaints}")
    names, needed = numbers_of_calls(), needed_calls()
    used = set(listed.used[1]) | (set(listed.used[0]) if when == "before" else set())
    for number in sorted(used):
        call = names[number]
        if (call, "") not in needed and (call, error) not in needed:
            yield f"refuse {number} {ERRORS[error]} {call}", f"{call} {error}"
