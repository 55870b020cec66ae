#!/usr/bin/python3
"""check_documented.py knobs|errors ROOT: a table in the code and its page name the same things.

knobs   names in firehose/base/config*.cpp and docs/env_vars.md
errors  macros of include/gasnet_errors.h and docs/error_codes.md
A page names something in the first cell of a table row or in a heading, in back quotes.
"""
import pathlib
import re
import sys

KNOB = re.compile(r'"((?:FIREHOSE|HYDRANT|GASNET)_[A-Z0-9_]*[A-Z0-9])"')
ERROR = re.compile(r"^#define ((?:GASNET|HYDRANT)_(?:OK|ERR_\w+)) ", re.MULTILINE)
COMMENT = re.compile(r"//.*")
DOCUMENTED = re.compile(r"^(?:\| *|#+ *)`((?:FIREHOSE|HYDRANT|GASNET)_[A-Z0-9_]+)`", re.MULTILINE)


def read(root, kind):
    if kind == "knobs":
        files = sorted((root / "firehose/base").glob("config*.cpp"))
        return "firehose/base/config*.cpp", KNOB, files, root / "docs/env_vars.md"
    header = root / "include/gasnet_errors.h"
    return "include/gasnet_errors.h", ERROR, [header], root / "docs/error_codes.md"


def main():
    root = pathlib.Path(sys.argv[2])
    place, pattern, files, page = read(root, sys.argv[1])
    code = "\n".join(COMMENT.sub("", path.read_text()) for path in files)
    known = set(pattern.findall(code))
    if not page.exists():
        print(f"{page.relative_to(root)} does not exist")
        return 1
    documented = set(DOCUMENTED.findall(page.read_text()))
    for name in sorted(known - documented):
        print(f"{name}: in {place}, but not in {page.relative_to(root)}")
    for name in sorted(documented - known):
        print(f"{name}: in {page.relative_to(root)}, but not in {place}")
    print(f"{len(known)} names looked at")
    return 0 if known and known == documented else 1


if __name__ == "__main__":
    sys.exit(main())
