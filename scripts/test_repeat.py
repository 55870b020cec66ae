#!/usr/bin/python3
"""test_repeat.py --times N [--busy K] [--timeout SECONDS] BUILD STORE -- [CTEST OPTIONS...]: runs the built tests of
a build folder N times in random order, beside K busy processes.

Results add up per commit in STORE/<commit>.json (a tree with changes has a name of its own), so that runs may be
spread out. Prints each failure as it comes, and at the end each test that failed in any run of this commit with its
rate, and each that was skipped in some runs only. Exit status 1 if there is one or a run gave no report, 2 if no
test matches, ./test has built the folder from another tree, or the commit's results cannot be read.
"""
import argparse
import collections
import contextlib
import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

from test_summary import read_case
from tree_name import tree_name

OUTPUT_LINES = 40
PR_SET_PDEATHSIG = 1


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def busy_processes(count):
    """Processes that compute and end with this one."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=die_with_parent)
                 for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


class DamagedResults(Exception):
    """A file of results that cannot be read."""


class Results:
    """How often each test passed, was skipped and failed, kept in a file."""

    def __init__(self, path):
        self._path = path
        try:
            stored = json.loads(path.read_text()) if path.exists() else {}
            counts = {name: collections.Counter({verdict: int(count) for verdict, count in of.items()})
                      for name, of in stored.items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise DamagedResults(f"{path} holds no results of earlier runs ({error}): remove it, and they count anew")
        self.counts = collections.defaultdict(collections.Counter, counts)
        self.chosen = set()  # the tests that have run now

    def add(self, report):
        """Adds a report of ctest; gives (name, output) of each failure."""
        failures = []
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            verdict, text = read_case(case, "failed")
            self.chosen.add(case.get("name"))
            self.counts[case.get("name")][verdict] += 1
            if verdict == "failed":
                failures.append((case.get("name"), text))
        self._path.parent.mkdir(parents=True, exist_ok=True)
        whole = self._path.with_suffix(".new")  # in place of the old ones only when it is complete
        whole.write_text(json.dumps({name: dict(of) for name, of in sorted(self.counts.items())}, indent=1))
        whole.replace(self._path)
        return failures

    def failed(self):
        """(name, failures, runs) of each test of now that failed at least once, in any run of this commit."""
        return [(name, of["failed"], of["failed"] + of["passed"])
                for name, of in sorted(self.counts.items()) if of["failed"] and name in self.chosen]

    def skipped_at_times(self):
        """(name, skips, runs) of each test that passed and was skipped."""
        return [(name, of["skipped"], of["skipped"] + of["passed"])
                for name, of in sorted(self.counts.items()) if of["skipped"] and of["passed"] and name in self.chosen]


def run_once(options, report):
    """Gives the last lines of ctest's output. Its report has the results; its exit status says the same."""
    report.unlink(missing_ok=True)
    command = ["ctest", "--test-dir", str(options.build), "--schedule-random", "--parallel", str(os.cpu_count() + 1),
               "--timeout", str(options.timeout), "--test-output-size-failed", "1000000",
               "--output-junit", str(report), *options.options]
    ctest = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True, errors="replace", check=False)
    return ctest.stdout.splitlines()[-OUTPUT_LINES:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--times", type=int, required=True)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--timeout", type=int, default=600, help="of one test (default: %(default)s)")
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("store", type=pathlib.Path)
    parser.add_argument("options", nargs="*")
    options = parser.parse_args()
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    name = tree_name()
    built = options.build / "tree"  # left by ./test
    built_of = built.read_text().strip() if built.exists() else "no tree to the end"
    if built_of != name:
        print(f"{options.build} is a build of {built_of}, and this tree is {name}: ./test '^lint.style$' builds it",
              file=sys.stderr)
        return 2
    try:
        results = Results(options.store / f"{name}.json")
    except DamagedResults as error:
        print(error, file=sys.stderr)
        return 2
    report = (options.store / "last.xml").resolve()
    report.parent.mkdir(parents=True, exist_ok=True)
    without_report = 0
    with busy_processes(options.busy):
        for number in range(1, options.times + 1):
            output = run_once(options, report)
            failures = results.add(report) if report.exists() else []
            if report.exists() and not results.chosen or not report.exists() and number == 1:
                print("\n".join(["no test ran", *output]))
                return 2
            if not report.exists():
                without_report += 1
                print("\n".join([f"run {number} of {options.times}: ctest gave no report", *output]), flush=True)
                continue
            print(f"run {number} of {options.times}: {len(failures)} failed", flush=True)
            for name, output in failures:
                print("\n".join([f"FAILED  {name}", *("    " + line for line in output.splitlines()[-OUTPUT_LINES:])]),
                      flush=True)
    failed = results.failed()
    changing = results.skipped_at_times()
    for name, count, of in changing:
        print(f"{name}: skipped {count} of {of} runs")
    runs = max(sum(results.counts[name].values()) for name in results.chosen)
    for name, count, of in failed:
        print(f"{name}: failed {count} of {of} runs")
    print(f"{len(results.chosen)} tests, up to {runs} runs each of this commit: {len(failed)} failed at least once")
    return 1 if failed or changing or without_report else 0


if __name__ == "__main__":
    sys.exit(main())
