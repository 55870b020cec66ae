#!/usr/bin/python3
"""check_format.py ROOT: every C and C++ source is formatted by clang-format 14.

Other versions of clang-format differ in details: without version 14 the check is skipped (status 77).
"""
import shutil
import subprocess
import sys

from sources import CODE, sources

NAMES = ("clang-format-14", "clang-format")


def find_formatter():
    for name in NAMES:
        path = shutil.which(name)
        if path:
            text = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
            if " version 14." in text:
                return path
    return None


def main():
    formatter = find_formatter()
    if formatter is None:
        print("clang-format 14 is not installed")
        return 77
    files = sources(sys.argv[1], CODE)
    if not files:
        print("no sources")
        return 1
    arguments = [formatter, "--style=file", "--dry-run", "--Werror", *map(str, files)]
    result = subprocess.run(arguments, cwd=sys.argv[1], capture_output=True, text=True)
    errors = [line for line in result.stderr.splitlines() if ": error:" in line]
    wrong = sorted({line.split(":")[0] for line in errors})
    if wrong:
        print(f"{formatter} -i " + " ".join(wrong))
    elif result.returncode:
        print(result.stderr)
    print(f"{len(files)} files looked at, {len(wrong)} to format")
    return 1 if result.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
