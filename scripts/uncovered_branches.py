#!/usr/bin/python3
"""Counts the branches of a folder that its tests never take: builds with gcc's --coverage, runs the unit tests
and models of the cache one after the other, and adds up what gcov reports.

  scripts/uncovered_branches.py                      this tree
  scripts/uncovered_branches.py --source DIR         another checkout, for example of an earlier commit
  scripts/uncovered_branches.py --list               the lines, too

A branch counts once, however many objects contain its line; one that only the exception path takes does not
count, as the libraries have no exceptions. Takes some minutes; the build folder is kept for the next run.

Exit status: 0, also if tests fail (they are named); 2 for a wrong argument, or if the build fails.
"""
import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys

TESTS = r"^(unit_firehose|model_)"
TARGETS = ("unit_firehose", "model_")
FLAGS = "-O0 -g1 --coverage -fprofile-update=atomic"


def run(words, **how):
    return subprocess.run(words, check=False, text=True, **how)


def build(source, folder, jobs):
    """Configures and builds the tests; returns their targets."""
    configured = run(["cmake", "-S", source, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug",
                      f"-DCMAKE_C_FLAGS_DEBUG={FLAGS}", f"-DCMAKE_CXX_FLAGS_DEBUG={FLAGS}", "-DHYDRANT_MUTANTS=ON",
                      "-DHYDRANT_DEBUG=ON", "-DHYDRANT_UNITY=ON", "-DHYDRANT_BUILD_BENCHES=OFF",
                      "-DHYDRANT_BUILD_TOOLS=OFF", "-DHYDRANT_INSTALL=OFF"], capture_output=True)
    if configured.returncode != 0:
        sys.exit(f"{configured.stdout}{configured.stderr}the build cannot be configured in {folder}")
    listed = run(["ninja", "-C", folder, "-t", "targets", "all"], capture_output=True).stdout
    names = {line.split(":")[0] for line in listed.splitlines()}
    targets = sorted(name for name in names if "/" not in name and "." not in name and name.startswith(TARGETS))
    built = run(["ninja", "-C", folder, f"-j{jobs}", *targets], capture_output=True)
    if built.returncode != 0:
        sys.exit(f"{built.stdout[-3000:]}the build failed in {folder}")
    return targets


def run_tests(folder):
    """Runs the tests; prints those that fail, whose branches count all the same."""
    for path in folder.rglob("*.gcda"):
        path.unlink()
    result = run(["ctest", "--test-dir", folder, "-R", TESTS, "--timeout", "300"], capture_output=True)
    for line in result.stdout.splitlines():
        if "***" in line or "tests passed" in line:
            print(line.strip(), file=sys.stderr)


def branches_in(source, folder, within):
    """{(file, line, number of the branch): taken} of the code in `within`."""
    taken = collections.defaultdict(bool)
    for data in folder.rglob("*.gcda"):
        report = run(["gcov", "--json-format", "--stdout", "--branch-probabilities", data], capture_output=True,
                     cwd=folder)
        for line in report.stdout.splitlines():
            for file in json.loads(line)["files"]:
                # Relative to the build folder or, with a prefix that the compiler replaces, to the tree.
                paths = [pathlib.Path(os.path.normpath(base / file["file"])) for base in (folder, source)]
                path = next((one for one in paths if one.is_relative_to(source / within)), None)
                if path is None:
                    continue
                name = str(path.relative_to(source))
                for place in file["lines"]:
                    for number, branch in enumerate(place["branches"]):
                        if not branch["throw"]:
                            taken[name, place["line_number"], number] |= branch["count"] != 0
    return taken


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent,
                        help="the tree (default: this one)")
    parser.add_argument("--build", type=pathlib.Path, help="build folder (default: build/coverage of the tree)")
    parser.add_argument("--within", default="firehose", help="folder whose branches count (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilers at once (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="print each line with a branch that is not taken")
    options = parser.parse_args()
    source = options.source.resolve()
    if not (source / options.within).is_dir():
        parser.error(f"{source / options.within} is no folder")
    folder = (options.build or source / "build/coverage").resolve()
    build(source, folder, options.jobs)
    run_tests(folder)
    taken = branches_in(source, folder, options.within)
    if not taken:
        sys.exit("gcov reports no branch: is this gcov that of the compiler?")
    by_file = collections.Counter(name for (name, _, _), is_taken in taken.items() if not is_taken)
    if options.list:
        for name, line in sorted({place[:2] for place, is_taken in taken.items() if not is_taken}):
            print(f"{name}:{line}")
    for name, count in by_file.most_common(None if options.list else 15):
        print(f"{count:6} {name}")
    missed = sum(by_file.values())
    print(f"{missed} of {len(taken)} branches in {options.within}/ are not taken ({100 * missed / len(taken):.1f} %)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
