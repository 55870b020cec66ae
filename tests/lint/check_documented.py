#!/usr/bin/python3
"""check_documented.py knobs|errors|files|links ROOT: documentation and tree agree.

knobs   the knob tables (config/*knobs.[ch]pp) and docs/env_vars.md have the same names
errors  include/gasnet_errors.h and docs/error_codes.md have the same macros
files   every path in back quotes that begins with a folder of the tree, and every link to a file or to a
        heading of a page, exists (a program stands for its source); every page directly in docs/ names the
        files it is about; docs/architecture.md may shorten the path of a source, and the functions that it
        names exist, in the file that stands beside them
links   every link of the pages below ROOT, an installation's, leads to a file or a heading there
A page names a knob or error in the first cell of a table row or in a heading, in back quotes. Tables of
docs/coverage/ also name planned files: check_coverage.py checks them.
"""
import pathlib
import re
import sys

KNOB = re.compile(r'"((?:FIREHOSE|HYDRANT|GASNET)_[A-Z0-9_]*[A-Z0-9])"')
ERROR = re.compile(r"^#define ((?:GASNET|HYDRANT)_(?:OK|ERR_\w+)) ", re.MULTILINE)
COMMENT = re.compile(r"//.*")
DOCUMENTED = re.compile(r"^(?:\| *|#+ *)`((?:FIREHOSE|HYDRANT|GASNET)_[A-Z0-9_]+)`", re.MULTILINE)

PATH = re.compile(r"`([A-Za-z]\w*/[\w./*-]*)`")
LINK = re.compile(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)")
HEADING = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)
# `file`, `function()`, and the other way round: `function()` (`file`) or `function()` in `file`.
SOURCE = r"`([\w./-]+\.(?:cpp|hpp|h))`"
CALL = r"`(?:\w+::)*(\w+)\([^`]*\)`"
SOURCES = re.compile(SOURCE)
CALLS = re.compile(rf"(?:{SOURCE},\s+)?{CALL}(?:\s+(?:\(|in\s+){SOURCE})?")
SOURCE_FOLDERS = ("include", "firehose", "rdma", "am", "extended")
# Programs whose sources are in another folder than their name suggests.
PROGRAMS = {"bench/stale_hunt": "tests/stale/hunt"}


def anchors(page):
    """The part of a link after #, for each heading of the page, as GitHub makes it."""
    titles = [re.sub(r"\[(.*?)\]\(.*?\)", r"\1", title) for title in HEADING.findall(page.read_text())]
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def wrong_link(page, link, anchor):
    """The fault of a link of a page, or None."""
    target = page.parent / link if link else page
    if not target.exists():
        return f"a link to {link}, which does not exist"
    if anchor and target.suffix == ".md" and anchor not in anchors(target):
        return f"a link to {link}#{anchor}, but there is no such heading"
    return None


def wrong_links(root):
    """(errors, number of links)"""
    links = [(page, link) for page in sorted(root.rglob("*.md")) for link in LINK.findall(page.read_text())]
    faults = [(page, wrong_link(page, *link)) for page, link in links]
    return [f"{page.relative_to(root)}: {fault}" for page, fault in faults if fault], len(links)


def missing_files(root):
    """(errors, number of checked names)"""
    folders = {path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith("build")}
    pages = [page for page in sorted(root.rglob("*.md")) if page.relative_to(root).parts[0] in folders
             or page.parent == root]
    wrong, count = [], 0
    for page in pages:
        name = page.relative_to(root)
        if name.parts[:2] == ("docs", "coverage"):
            continue
        text = page.read_text()
        paths = [path for path in PATH.findall(text) if path.split("/")[0] in folders]
        links = LINK.findall(text)
        count += len(paths) + len(links)
        for path in paths:
            kept = PROGRAMS.get(path, path).rstrip("/")
            if not any(root.glob(kept)) and not any(root.glob(kept + ".c*")):
                wrong.append(f"{name}: names {path}, which does not exist")
        faults = [wrong_link(page, *link) for link in links]
        wrong += [f"{name}: {fault}" for fault in faults if fault]
        if name.parts[:-1] == ("docs",) and not paths and not links:
            wrong.append(f"{name}: does not name the files that it is about")
    return wrong, count


def missing_steps(root):
    """(errors, number of checked names) of the files and functions that docs/architecture.md names."""
    page = root / "docs/architecture.md"
    text = page.read_text() if page.exists() else ""
    sources = {"/" + path.relative_to(root).as_posix(): path.read_text() for folder in SOURCE_FOLDERS
               for path in sorted((root / folder).rglob("*.*")) if path.suffix in (".cpp", ".hpp", ".h")}
    names, calls = SOURCES.findall(text), CALLS.findall(text)
    wrong = [f"names {name}, which does not exist" for name in names
             if not any(path.endswith("/" + name) for path in sources)]
    for before, function, behind in calls:
        name = before or behind
        if not any(re.search(rf"\b{function}\(", code) for path, code in sources.items()
                   if path.endswith("/" + name if name else "")):
            wrong.append(f"names {function}(), which is not in {name or 'any source'}")
    return [f"docs/architecture.md: {fault}" for fault in wrong], len(names) + len(calls)


def read(root, kind):
    if kind == "knobs":
        folders = (root / "firehose/base/config", root / "rdma/config")
        files = sorted(path for folder in folders for path in folder.glob("*knobs.[ch]pp"))
        return "the knob tables", KNOB, files, root / "docs/env_vars.md"
    header = root / "include/gasnet_errors.h"
    return "include/gasnet_errors.h", ERROR, [header], root / "docs/error_codes.md"


def main():
    root = pathlib.Path(sys.argv[2])
    if sys.argv[1] in ("files", "links"):
        wrong, count = missing_files(root) if sys.argv[1] == "files" else wrong_links(root)
        if sys.argv[1] == "files":
            steps, named = missing_steps(root)
            wrong, count = wrong + steps, count + named
        print("\n".join([*wrong, f"{count} names of files looked at"]))
        return 1 if wrong or not count else 0
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
