#!/usr/bin/python3
"""test_tiers.py FULL_ONLY GATE_BUILD FULL_BUILD: each test of FULL_BUILD is in a step of ./test, and each line of
FULL_ONLY names one.

A test is in the gate if GATE_BUILD has it or its program, which may not be built there or not of these sources. Else
it has to be named by FULL_ONLY (step rest), or to have the label verbs or guest.
"""
import json
import pathlib
import re
import subprocess
import sys

NOT_BUILT = "_NOT_BUILT"


def patterns(text):
    return [line.split()[0] for line in text.splitlines() if line.strip() and not line.startswith("#")]


def tests(build):
    """{name: labels} of a build folder."""
    # A program that is not built is named on standard error.
    listed = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], capture_output=True, text=True,
                            check=True)
    found = {}
    for test in json.loads(listed.stdout[listed.stdout.index("{"):])["tests"]:
        properties = {entry["name"]: entry["value"] for entry in test.get("properties", [])}
        found[test["name"]] = properties.get("LABELS", [])
    return found


def complaints(lines, gate, full):
    """Yields a line for each mistake in the tiers."""
    programs = {name.split("/")[0].removesuffix(NOT_BUILT) for name in gate if "/" in name or name.endswith(NOT_BUILT)}
    for line in lines:
        if not any(re.search(line, name) for name in full):
            yield f"tests/full_only.txt: no test has a name like {line}"
    for name, labels in full.items():
        is_known = name in gate or name.split("/")[0] in programs or {"verbs", "guest"} & set(labels)
        if not is_known and not any(re.search(line, name) for line in lines):
            yield f"{name}: neither in the gate nor in tests/full_only.txt"


def main():
    lines = patterns(pathlib.Path(sys.argv[1]).read_text())
    found = list(complaints(lines, tests(sys.argv[2]), tests(sys.argv[3])))
    print("\n".join(found + [f"{len(lines)} patterns"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
