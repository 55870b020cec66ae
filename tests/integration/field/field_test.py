#!/usr/bin/python3
"""Runs the calls of the API under the conditions that programs meet in the field: cells.py, field.hpp.

field_test.py FOLDER_OF_THE_BUILD
Each call returns what it should, or a code with a text, or ends the process with a message. None hangs, none
dies of a signal, none leaves processes, files or descriptors, and no data is wrong.
"""
import collections
import os
import pathlib
import re
import sys
import unittest

import cells
from cells import HERE, Cell, Program

sys.path.insert(0, str(HERE.parents[1] / "lint"))
import check_gasnet_names  # the path must be set first

ROOT = HERE.parents[2]
SHORTAGES = ("timer", "descriptors", "threads", "memory")
CANCELLATIONS = [(name, name) for name in ("cancel", "cancel later")]
BUILD = pathlib.Path()
totals = collections.Counter()


def job(name="job", launcher="hydrant-run", **variables):
    start = [str(BUILD / "bin/hydrant-run"), "-n", "2"] if launcher == "hydrant-run" else []
    if launcher == "fork":
        variables["GASNET_PSHM_NODES"] = "2"
    return Program(name, str(BUILD / "tests/integration/field/field_job_client"), start, variables)


def by_messages():
    return job("job_by_messages", HYDRANT_PATH="am")


def alone(name="firehose", **variables):
    return Program(name, str(BUILD / "tests/integration/field/field_firehose_client"), [], variables)


def hooked():
    """With the hooks, by which pins are found without asking the kernel."""
    return alone("firehose_with_hooks", LD_PRELOAD=str(BUILD / "firehose/watch/hooks/libfirehose_hooks.so"))


def expected_failures():
    for line in cells.lines_of("expected_failures.txt"):
        cell, complaint, reason = line.split(" | ")
        yield re.compile(cell), re.compile(complaint), reason


class Matrix(unittest.TestCase):
    def check(self, program, conditions, when):
        """Runs (condition, name) in cells, and fails with all complaints."""
        found, size = [], collections.Counter()
        before = cells.jobs.leftovers()
        for condition, name in conditions:
            cell = Cell(program, condition, when, name)
            size.update(cells=1, runs=cell.runs, **cell.counts)
            complaints = cell.complaints
            for of_cell, complaint, reason in expected_failures():
                if not of_cell.fullmatch(cell.name):
                    continue
                kept = [text for text in complaints if not complaint.search(text)]
                if kept == complaints:
                    found.append(f"{cell.name}: does not fail any more: {reason}: see expected_failures.txt")
                complaints = kept
            found += [f"{cell.name}: {text}" for text in complaints]
        left = cells.jobs.new_leftovers(before)
        found += [f"left behind: {name}" for name in sorted(left)]
        totals.update(size)
        print_size(f"{program.name} {when}", size)
        self.assertFalse(found, "\n" + "\n".join(found))

    def shortages(self, program):
        for when in ("before", "after"):
            self.check(program, [(condition, condition) for condition in SHORTAGES], when)

    def refused(self, program, when, error):
        self.check(program, cells.refusals(program, when, error), when)


def print_size(what, counts):
    """scripts/test_summary.py adds such lines up."""
    print(f"{what}: " + ", ".join(f"{number} {kind}" for kind, number in counts.items()), flush=True)


def tearDownModule():
    if totals:
        print_size("\nsize of the field matrix", totals)


class Selection(Matrix):
    """The cells of the gate."""

    def test_job(self):
        self.check(job(), [(name, name) for name in ("cancel", "timer", "memory")], "after")

    def test_firehose(self):
        self.check(alone(), [(name, name) for name in ("cancel", *SHORTAGES)], "after")

    def test_refused_calls(self):
        some = ("userfaultfd", "io_uring_setup", "io_uring_enter", "poll", "membarrier")
        refusals = cells.refusals(alone(), "before", "EPERM")
        self.check(alone(), [cell for cell in refusals if cell[1].split()[0] in some], "before")


class Job(Matrix):
    def test_cancellation(self):
        self.check(job(), CANCELLATIONS, "before")

    def test_cancellation_by_messages(self):
        self.check(by_messages(), CANCELLATIONS, "before")

    def test_shortages(self):
        self.shortages(job())

    def test_shortages_by_messages(self):
        self.shortages(by_messages())

    def test_shortages_of_a_supervisor(self):
        self.shortages(job("fork", "fork"))

    def test_refused_before_init_eperm(self):
        self.refused(job(), "before", "EPERM")

    def test_refused_before_init_enosys(self):
        self.refused(job(), "before", "ENOSYS")

    def test_refused_before_init_eagain(self):
        self.refused(job(), "before", "EAGAIN")

    def test_refused_after_init_eperm(self):
        self.refused(job(), "after", "EPERM")

    def test_refused_after_init_enosys(self):
        self.refused(job(), "after", "ENOSYS")

    def test_refused_after_init_eagain(self):
        self.refused(job(), "after", "EAGAIN")

    def test_refused_by_messages(self):
        self.refused(by_messages(), "after", "EPERM")

    def test_refused_to_a_supervisor(self):
        self.refused(job("fork", "fork"), "before", "EPERM")


class Firehose(Matrix):
    def test_cancellation(self):
        self.check(alone(), CANCELLATIONS, "before")
        self.check(hooked(), CANCELLATIONS, "before")

    def test_shortages(self):
        self.shortages(alone())
        self.shortages(hooked())

    def refused_with_each_error(self, program, when):
        for error in cells.ERRORS:
            with self.subTest(error=error):
                self.refused(program, when, error)

    def test_refused_before_init(self):
        self.refused_with_each_error(alone(), "before")

    def test_refused_after_init(self):
        self.refused_with_each_error(alone(), "after")

    def test_refused_before_init_with_hooks(self):
        self.refused_with_each_error(hooked(), "before")

    def test_refused_after_init_with_hooks(self):
        self.refused_with_each_error(hooked(), "after")


class Table(unittest.TestCase):
    """The tables are complete."""

    def test_each_declared_call_has_a_row(self):
        rows = {name for program in (job(), alone()) for row in cells.row_names(program.path)
                for name in row.split()}
        fold = check_gasnet_names.api_table.fold
        rows |= {fold(name) for name in rows}
        left_out = [re.fullmatch(r"(\S+): .+", line).group(1) for line in cells.lines_of("left_out.txt")]
        patterns = [re.compile(name) for name in left_out]
        declared = check_gasnet_names.declared_names(ROOT, os.environ.get("CC", "cc"))["calls"]
        declared |= declared_by_hydrant()
        unnamed = [name for name in declared - rows if not any(each.fullmatch(name) for each in patterns)]
        self.assertEqual(unnamed, [], "neither a row nor a line of left_out.txt names these")
        idle = [name for name, pattern in zip(left_out, patterns)
                if not any(pattern.fullmatch(of) for of in declared - rows)]
        self.assertEqual(idle, [], "lines of left_out.txt that name no call, or one with a row")


def declared_by_hydrant():
    """Functions of include/hydrant/*.h and firehose.h."""
    names = set()
    for path in [ROOT / "include/firehose.h", *(ROOT / "include/hydrant").glob("*.h")]:
        text = re.sub(r"/\*.*?\*/|^\s*#.*?(?<!\\)$", "", path.read_text(), flags=re.S | re.M)
        names |= set(re.findall(r"\b((?:hydrant|firehose)_\w+)\s*\(", text))
    return {name for name in names if not name.endswith(("_t", "_fn"))}


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv.pop())
    unittest.main()
