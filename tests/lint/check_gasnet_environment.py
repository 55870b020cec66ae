#!/usr/bin/python3
"""check_gasnet_environment.py ROOT: each variable that GASNet documents has an effect or is ignored by name.

tests/lint/gasnet_environment.txt lists the variables. A table of docs/env_vars.md or docs/tools.md has
those with an effect; rdma/config/ignored_names.cpp, which jobs report, the others. The section "GASNet's
variables without effect" of docs/env_vars.md has to equal the latter. A name that ends in "_" is a family.
"""
import pathlib
import re
import sys

LIST = "tests/lint/gasnet_environment.txt"
CODE = "rdma/config/ignored_names.cpp"
PAGES = ("docs/env_vars.md", "docs/tools.md")
HEADING = "## GASNet's variables without effect"
NAME = re.compile(r"GASNET_[A-Z0-9_]+")


def covers(names, wanted):
    """Whether `wanted` is one of the names, or of a family among them."""
    return any(wanted == name or name.endswith("_") and wanted.startswith(name) for name in names)


def first_cells(text):
    for line in text.splitlines():
        if line.startswith("| "):
            yield line.split("|")[1]


def names_of_page(path):
    """(with an effect, without): names in the first cells of tables."""
    text = path.read_text()
    before, _, rest = text.partition(HEADING + "\n")
    section, _, after = rest.partition("\n## ")
    found = [set(NAME.findall(" ".join(first_cells(part)))) for part in (before + after, section)]
    return found[0], found[1]


def main():
    root = pathlib.Path(sys.argv[1])
    lines = (root / LIST).read_text().splitlines()
    listed = {line for line in lines if line and not line.startswith("#")}
    ignored = set(re.findall(r'\{"(GASNET_[A-Z0-9_]+)",', (root / CODE).read_text()))
    effective, documented = set(), set()
    for page in PAGES:
        with_effect, without = names_of_page(root / page)
        effective |= with_effect
        documented |= without
    mistakes = []
    for name in sorted(listed):
        has_effect, is_ignored = covers(effective, name), covers(ignored, name)
        if not has_effect and not is_ignored:
            mistakes.append(f"{name} is neither in a table of {PAGES[0]} or {PAGES[1]} nor in {CODE}")
        elif has_effect and is_ignored:
            mistakes.append(f"{name} is documented as effective, and ignored by {CODE}")
    mistakes += [f"{name} of {CODE} is no variable of {LIST}" for name in sorted(ignored)
                 if not any(covers({name}, other) for other in listed)]
    mistakes += [f"{name} is in {CODE} or in \"{HEADING}\" of {PAGES[0]}, not in both"
                 for name in sorted(ignored ^ documented)]
    print("\n".join(mistakes) + "\n" * bool(mistakes) + f"{len(listed)} names looked at")
    return 1 if mistakes or not listed or not ignored else 0


if __name__ == "__main__":
    sys.exit(main())
