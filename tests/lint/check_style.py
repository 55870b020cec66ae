#!/usr/bin/python3
"""check_style.py ROOT: duplication, file sizes, globals and types in firehose, rdma, am and extended.

copies   no eight lines of code occur in two places, and no six in three: repeated code becomes a
         function that a reader verifies once (declarations that override do not count)
files    at most a tenth of a folder's sources, if there are 20 or more, are shorter than 30 lines: routines
         that belong together share a file
globals  every variable that a header declares, `extern` or `inline`, is in globals.txt with a reason
types    a struct, class or scoped enum of a header is used by another header, by two sources, or elsewhere in
         its own header: a type for a single source belongs in that source
places   a call that needs a check before it stands in one place only
"""
import collections
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
FOLDERS = ("firehose", "rdma", "am", "extended")
IDLE = re.compile(r"^(#.*|[{}();]*|(public|private|protected):|(inline )?namespace\b.*|.* override;)$")
GLOBAL = re.compile(r'^\s*extern (?!")[^;({]*?(\w+)(?:\[.*\])?(?: asm\(.*| \[\[.*)?(?:;|$)', re.MULTILINE)
INLINE = re.compile(r"^inline (?!constexpr |namespace )[^;({=\n]*?(\w+)(?:\[[^\]]*\])?(?:\{| =|;)",
                    re.MULTILINE)
# pattern of a call: (the file that may have it, the function to call instead)
PLACES = {
    r"\b(memfd_create|ftruncate|SYS_memfd_create|SYS_ftruncate)\b[(,]":
        ("firehose/base/machine/memory_file.hpp", "make_memory_file()"),
}
# Interposes these calls.
HOOKS = "firehose/watch/hooks/"
TYPE = re.compile(r"^(?:struct|class|enum class) (?:\[\[\w+\]\] |alignas\(\w+\) )?(\w+)(?: final)?"
                  r"(?: *:[^;{]*)? \{", re.MULTILINE)


def code_of(text):
    return re.sub(r"//.*", "", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))


def copies(files, length, most):
    """Runs of `length` lines that occur in more than `most` places: one message for each copied part."""
    places = collections.defaultdict(list)
    for name, text in files.items():
        lines = [(i, " ".join(line.split())) for i, line in enumerate(code_of(text).split("\n"), 1)]
        lines = [(i, line) for i, line in lines if not IDLE.match(line)]
        for k in range(len(lines) - length + 1):
            places[tuple(line for _, line in lines[k:k + length])].append((name, lines[k][0]))
    reported = set()
    for at in places.values():
        where = frozenset(name for name, _ in at)
        if len(at) > most and where not in reported:
            reported.add(where)
            yield f"{', '.join(f'{name}:{line}' for name, line in at)}: the same {length} lines"


def small_files(files):
    for folder in FOLDERS:
        sizes = [text.count("\n") for name, text in files.items()
                 if name.startswith(folder + "/") and name.endswith(".cpp")]
        small = sum(size < 30 for size in sizes)
        if len(sizes) >= 20 and 10 * small > len(sizes):
            yield (f"{folder}: {small} of {len(sizes)} sources have less than 30 lines: combine what "
                   "belongs together")


def unexplained_globals(files, reasons):
    found = {(name, variable) for name, text in files.items() if name.endswith(".hpp")
             for pattern in (GLOBAL, INLINE) for variable in pattern.findall(code_of(text))}
    for name, variable in sorted(found - set(reasons)):
        yield f"{name}: {variable} is a global variable without a reason in globals.txt"
    for name, variable in sorted(set(reasons) - found):
        yield f"globals.txt: {variable} is not declared in {name}"


def lonely_types(files, words):
    for name, text in files.items():
        for kind in TYPE.findall(text) if name.endswith(".hpp") else ():
            users = [other for other, named in words.items() if other != name and kind in named]
            own = len(re.findall(rf"\b{kind}\b", code_of(text)))
            if own == 1 and len(users) < 2 and not any(user.endswith((".hpp", ".h")) for user in users):
                yield f"{name}: {kind} is used only by {users[0] if users else 'its declaration'}"


def misplaced_calls(files):
    for pattern, (home, instead) in PLACES.items():
        for name, text in files.items():
            found = re.search(pattern, code_of(text))
            if found and name != home and not name.startswith(HOOKS):
                yield f"{name}: {found.group(1)} outside {home}: call {instead}"


def main():
    root = pathlib.Path(sys.argv[1])
    read = {str(path.relative_to(root)): path.read_text(encoding="utf-8")
            for folder in (*FOLDERS, "tests", "bench")
            for path in sorted((root / folder).rglob("*")) if path.suffix in (".cpp", ".hpp")}
    files = {name: text for name, text in read.items() if name.split("/")[0] in FOLDERS}
    listed = root / "tests/lint/globals.txt"
    rows = [line.split(None, 2) for line in listed.read_text().splitlines()] if listed.exists() else []
    reasons = [(row[0], row[1]) for row in rows if len(row) == 3 and row[0] != "#"]
    words = {name: set(re.findall(r"\w+", code_of(text))) for name, text in read.items()}
    found = [*copies(files, 8, 1), *copies(files, 6, 2), *small_files(files),
             *unexplained_globals(files, reasons), *lonely_types(files, words),
             *misplaced_calls(files)]
    print("\n".join([*found, f"{len(files)} files looked at"]))
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())
