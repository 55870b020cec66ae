#!/usr/bin/python3
"""Checks the form of docs/coverage.md and the tables in docs/coverage/, and the tests of promises in pages.

Usage: check_coverage.py [ROOT] [--ripe | --self-test]

ROOT is the repository (default: two folders above this file). Every row has a unique id, numbered without
gaps, and one of three states. A "done" row names a place and a test that exist in the tree, and every
identifier in its backticks occurs in one of the files it names; an "against" row gives its reason; the head
table of docs/coverage.md has the right counts. The check cannot tell whether a test proves its point.

Each sentence or table cell of PROMISE_PAGES that says "never", "always", "safe", "at once" or "at most" has a
row in the table that ends the page: words of that sentence alone, and the test's file and case.

--ripe lists the rows that are "not yet" although all their files exist: candidates for "done" (exit 0).
--self-test breaks a small table in every way that this script detects, and fails unless each is found.
Exit status: 0 clean, 1 findings (one "file:line: text" each), 2 wrong use.
"""

import pathlib
import re
import sys
import tempfile

ROW = re.compile(r"^\|\s*([A-Z]{2})-(\d+)\s*\|")
HEAD_ROW = re.compile(r"^\|\s*\[(?P<title>.+)\]\((?P<page>coverage/[\w.]+\.md)\)\s*\|")
CELL_BREAK = re.compile(r"(?<!\\)\|")
TOP_FOLDERS = ("include", "firehose", "rdma", "am", "extended", "bench", "tests", "docs", "cmake",
               "scripts", ".ci")
TOP_FILES = ("README.md", "CHANGELOG.md", "CMakeLists.txt", "CMakePresets.json", "LICENSE", "run",
             "test", ".clang-format", ".clang-tidy")
TEST_FOLDERS = ("tests/", "bench/", "docs/examples/")
AGAINST = re.compile(r"^against, because (.+)$")
MIN_REASON_WORDS = 4
COLUMNS = ["id", "point", "place", "test", "state"]
PROMISE_PAGES = ("docs/concurrency.md", "docs/launching.md", "docs/tracing.md")
PROMISE_TABLE = "\n## Promises and their tests\n"
PROMISE = re.compile(r"\b(never|always|safe|at once|at most)\b", re.IGNORECASE)
NO_TEXT = re.compile(r"^```.*?^```|^(?:    |#)[^\n]*", re.MULTILINE | re.DOTALL)
SENTENCE_BREAK = re.compile(r"\n\s*(?:\*|\d\.) |\n\s*\n|[.!?][*)]*\s+(?=[^a-z])|\|")
STATES = ("done", "not yet", "against")


class Row:
    """A row of a table: its location and its five cells."""

    def __init__(self, page, line, prefix, number, cells):
        self.page, self.line, self.prefix, self.number = page, line, prefix, number
        self.point, self.place, self.test, self.state = cells

    def kind(self):
        return "against" if self.state.startswith("against") else self.state


def cells_of(line):
    return [cell.strip() for cell in CELL_BREAK.split(line.strip())[1:-1]]


def is_path(word):
    return word in TOP_FILES or word.split("/")[0] in TOP_FOLDERS and "/" in word


def paths_and_words(cell):
    """The backticked parts of a cell: paths of the tree, and everything else (knobs, identifiers)."""
    ticked = re.findall(r"`([^`]+)`", cell)
    return [t for t in ticked if is_path(t)], [t for t in ticked if not is_path(t)]


def files_below(path):
    """All files of a path that is a file or a folder; empty if it does not exist."""
    if path.is_file():
        return [path]
    return [p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts]


def read_page(root, page, problems):
    rows = []
    for number, line in enumerate((root / "docs" / page).read_text("utf-8").splitlines(), 1):
        where = f"docs/{page}:{number}"
        match = ROW.match(line)
        cells = cells_of(line) if line.startswith("|") else []
        if match and len(cells) == len(COLUMNS):
            rows.append(Row(page, number, match[1], int(match[2]), cells[1:]))
        elif cells and cells != COLUMNS and not set("".join(cells)) <= set("-: "):
            problems.append(f"{where}: not a row of {len(COLUMNS)} cells that begins with an id")
    return rows


def check_numbering(rows, problems):
    """Ids are unique over all pages: one prefix per page, numbered 1, 2, 3, ... in order."""
    seen, prefix_of = {}, {}
    for row in rows:
        where, name = f"docs/{row.page}:{row.line}", f"{row.prefix}-{row.number}"
        if name in seen:
            problems.append(f"{where}: {name} is already used at {seen[name]}")
        elif row.number != 1 and f"{row.prefix}-{row.number - 1}" not in seen:
            problems.append(f"{where}: {name} does not follow {row.prefix}-{row.number - 1}")
        seen.setdefault(name, where)
        if prefix_of.setdefault(row.page, row.prefix) != row.prefix:
            problems.append(f"{where}: {name} in a page of {prefix_of[row.page]}-")


def check_form(row, report):
    """Checks that apply to every row."""
    if len(row.point.split()) < 2:
        report("the point is missing")
    against = AGAINST.match(row.state)
    if row.kind() not in STATES or row.kind() == "against" and not against:
        report(f'unknown state "{row.state}": done, not yet, or against, because ...')
    if against:
        if len(against[1].split()) < MIN_REASON_WORDS:
            report("against without a reason")
        return
    if not paths_and_words(row.place)[0]:
        report("no place: name a file or a folder of the tree in backticks")
    tests = paths_and_words(row.test)[0]
    if not any(path.startswith(TEST_FOLDERS) for path in tests):
        report(f"no test: name a file or a folder below {', '.join(TEST_FOLDERS)} in backticks")


def check_named(root, paths, words, report):
    """The files exist and contain the identifiers."""
    for path in paths:
        if not files_below(root / path):
            report(f"{path} does not exist or is empty")
    files = [file for path in paths for file in files_below(root / path)]
    text = "\n".join(file.read_text("utf-8", "replace") for file in files)
    for word in words:
        identifier = word.split("=")[0]
        if identifier not in text:
            report(f"none of its files mentions {identifier}")


def check_done(root, row, report):
    places, words = paths_and_words(row.place)
    check_named(root, places + paths_and_words(row.test)[0], words, report)


def check_promises(root, page, problems):
    """Each sentence with a promise has a row with a test, and each row has its sentence."""
    text, _, table = (root / page).read_text("utf-8").partition(PROMISE_TABLE)
    sentences = [" ".join(part.split()) for part in SENTENCE_BREAK.split(NO_TEXT.sub("", text)) if part]
    promises = [sentence for sentence in sentences if PROMISE.search(sentence)]
    rows = [cells_of(line) for line in table.splitlines() if line.startswith("|")][2:]
    for sentence in promises:
        if not any(row[0] in sentence for row in rows):
            problems.append(f'{page}:1: a promise without a test: "{sentence}"')
    for words, test in rows:
        if sum(words in sentence for sentence in promises) != 1:
            problems.append(f'{page}:1: not words of one promise: "{words}"')
        paths, cases = paths_and_words(test)
        if not cases or not all(path.startswith("tests/") for path in paths):
            problems.append(f'{page}:1: no test of "{words}": name a file below tests/ and a case')
        check_named(root, paths, cases, lambda text: problems.append(f"{page}:1: {text}"))


def check_head(lines, rows, problems):
    """The head table has one line per page and a total, with the right counts."""
    counted, expected_pages = set(), {row.page for row in rows}
    for number, line in enumerate(lines, 1):
        match = HEAD_ROW.match(line)
        page = match["page"] if match else None
        if not match and not re.match(r"^\|\s*all\s*\|", line):
            continue
        mine = [row for row in rows if page in (None, row.page)]
        right = [len(mine)] + [sum(row.kind() == state for row in mine) for state in STATES]
        written = [int(cell) if cell.isdigit() else None for cell in cells_of(line)[2:]]
        if written != right:
            problems.append(f"docs/coverage.md:{number}: the counts are {right}, not {written}")
        counted.add(page)
    for page in sorted(expected_pages - counted):
        problems.append(f"docs/coverage.md:1: {page} is not in the head table")
    if None not in counted:
        problems.append('docs/coverage.md:1: the head table has no row "all"')


def check(root):
    """All findings of a tree, and its rows."""
    problems, rows = [], []
    head = root / "docs" / "coverage.md"
    if not head.is_file():
        return ["docs/coverage.md:1: missing"], rows
    for page in sorted((root / "docs" / "coverage").glob("*.md")):
        rows += read_page(root, f"coverage/{page.name}", problems)
    if not rows:
        problems.append("docs/coverage.md:1: no rows at all below docs/coverage/")
    check_numbering(rows, problems)
    for row in rows:
        name = f"docs/{row.page}:{row.line}: {row.prefix}-{row.number}: "

        def report(text, name=name):
            problems.append(name + text)

        check_form(row, report)
        if row.state == "done":
            check_done(root, row, report)
    check_head(head.read_text("utf-8").splitlines(), rows, problems)
    for page in PROMISE_PAGES:
        check_promises(root, page, problems)
    return problems, rows


def ripe(root, rows):
    """Rows that are not yet done although every path they name exists."""
    for row in rows:
        paths = paths_and_words(row.place)[0] + paths_and_words(row.test)[0]
        if row.state == "not yet" and all(files_below(root / path) for path in paths):
            yield f"docs/{row.page}:{row.line}: {row.prefix}-{row.number}: {row.point}"


GOOD_HEAD = """| document | ids | points | done | not yet | against |
|---|---|---|---|---|---|
| [One](coverage/one.md) | ON | 3 | 1 | 1 | 1 |
| all | | 3 | 1 | 1 | 1 |
"""
GOOD_PAGE = """| id | point | place | test | state |
|---|---|---|---|---|
| ON-1 | A point that holds. | `firehose/a.hpp` (`pin_it`) | `tests/a_test.cpp` | done |
| ON-2 | A point for later. | `am/later.cpp`, `GASNET_KNOB` | `tests/later_test.cpp` | not yet |
| ON-3 | A point we refuse. | - | - | against, because there is no such hardware |
"""
GOOD_PROMISES = """# A page that never ends
It waits, but not for
ever: 5 s at
most. `a` is *safe*.
    A block never counts.
```
never
```
* no promise
| wait | how long |
|---|---|
| a lock | always |

## Promises and their tests

| promise | test |
|---|---|
| 5 s at most | `tests/a_test.cpp` (`Waits`) |
| `a` is *safe* | `tests/` (`Waits`) |
| always | `tests/a_test.cpp` (`Waits`) |
"""
# Text to replace in the good pages or head, its replacement, and a part of the expected finding.
BREAKS = [
    ("| ON-2 |", "| ON-1 |", "already used"),
    ("| ON-2 |", "| ON-7 |", "does not follow"),
    ("| ON-2 |", "| XX-1 |", "in a page of"),
    ("| ON-2 |", "| 2 |", "begins with an id"),
    ("| not yet |", "|", "begins with an id"),
    ("| not yet |", "| soon |", "unknown state"),
    ("| done |", "| Done |", "unknown state"),
    ("| against, because there is no such hardware |", "| against |", "unknown state"),
    ("because there is no such hardware", "because no", "without a reason"),
    ("A point for later.", "", "the point is missing"),
    ("`am/later.cpp`, `GASNET_KNOB`", "`GASNET_KNOB`", "no place"),
    ("`tests/later_test.cpp`", "-", "no test"),
    ("`tests/later_test.cpp`", "`docs/later.md`", "no test"),
    ("`firehose/a.hpp`", "`firehose/gone.hpp`", "firehose/gone.hpp does not exist"),
    ("`firehose/a.hpp` (`pin_it`)", "`firehose/empty/`", "firehose/empty/ does not exist or is empty"),
    ("`tests/a_test.cpp`", "`tests/gone_test.cpp`", "tests/gone_test.cpp does not exist"),
    ("`pin_it`", "`pin_other`", "none of its files mentions pin_other"),
    ("| ON | 3 | 1 | 1 | 1 |", "| ON | 3 | 2 | 0 | 1 |", "the counts are"),
    ("| all | | 3 | 1 |", "| all | | 4 | 1 |", "the counts are"),
    ("| all |", "| some |", 'no row "all"'),
    ("](coverage/one.md)", "](coverage/two.md)", "not in the head table"),
    ("* no promise", "* It never ends.", 'without a test: "* It never ends"'),
    ("| a lock | always |", "| a lock | at once |", 'without a test: "at once"'),
    ("## Promises and their tests", "## Tests", 'without a test: "always"'),
    ("5 s at\nmost", "5 s", 'not words of one promise: "5 s at most"'),
    ("5 s at\nmost.", "5 s at most. Or 5 s at most.", "not words of one promise"),
    ("`tests/` (`Waits`)", "`tests/`", "no test of"),
    ("`tests/` (`Waits`)", "`firehose/a.hpp` (`pin_it`)", "no test of"),
    ("`tests/` (`Waits`)", "`tests/b/` (`Waits`)", "tests/b/ does not exist"),
    ("`tests/` (`Waits`)", "`tests/` (`Sleeps`)", "none of its files mentions Sleeps"),
]


def write_tree(root, head, page, promises):
    for name, text in {"docs/coverage.md": head, "docs/coverage/one.md": page,
                       "firehose/a.hpp": "int pin_it();\n", "tests/a_test.cpp": "TEST(A, Waits) {}\n",
                       **dict.fromkeys(PROMISE_PAGES, promises)}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")
    (root / "firehose" / "empty").mkdir(exist_ok=True)


def self_test():
    """Every break must be found, and the unbroken tables must be clean."""
    failures = []
    for old, new, expected in [("", "", None)] + BREAKS:
        good = (GOOD_HEAD, GOOD_PAGE, GOOD_PROMISES)
        assert old in "".join(good), old
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            write_tree(root, *(text.replace(old, new) for text in good))
            problems, _ = check(root)
            if expected is None and problems:
                failures.append(f"clean tables: {problems}")
            elif expected and not any(expected in problem for problem in problems):
                failures.append(f'"{old}" -> "{new}": expected "{expected}", found {problems}')
    print("\n".join(failures) or f"check_coverage: {len(BREAKS)} breaks, all found")
    return 1 if failures else 0


def main(arguments):
    if "--self-test" in arguments:
        return self_test()
    folders = [a for a in arguments if not a.startswith("--")]
    if len(folders) > 1 or set(arguments) - set(folders) - {"--ripe"}:
        print(__doc__, file=sys.stderr)
        return 2
    root = pathlib.Path(folders[0] if folders else pathlib.Path(__file__).parents[2])
    problems, rows = check(root)
    if "--ripe" in arguments:
        print("\n".join(ripe(root, rows)))
        return 0
    print("\n".join(problems) or f"check_coverage: {len(rows)} points, clean")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
