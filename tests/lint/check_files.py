#!/usr/bin/python3
"""check_files.py ROOT: limits on source files.

Fails on sources and headers of more than 500 lines (two topics), on scripts of more than 1000, on lines over
110 columns (.clang-format breaks code at 100, comments may be longer) and on trailing blanks; lists files
over 400 lines.
"""
import sys

from sources import CODE, SCRIPTS, sources

REPORTED_LINES = 400
MAX_LINES = 500
MAX_SCRIPT_LINES = 1000
MAX_COLUMNS = 110


def faults(name, text):
    length, most = text.count("\n"), MAX_SCRIPT_LINES if name.suffix in SCRIPTS else MAX_LINES
    if length > most:
        yield f"{name}: {length} lines, more than {most}: split the file by topic"
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > MAX_COLUMNS:
            yield f"{name}:{number}: {len(line)} columns, more than {MAX_COLUMNS}"
        if line != line.rstrip():
            yield f"{name}:{number}: blanks at the end of the line"


def main():
    root = sys.argv[1]
    files = sources(root, CODE | SCRIPTS)
    found = []
    for path in files:
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(root)
        length = text.count("\n")
        if length > REPORTED_LINES:
            print(f"note: {name}: {length} lines; one topic?")
        found += faults(name, text)
    print("\n".join(found))
    print(f"{len(files)} files looked at")
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())
