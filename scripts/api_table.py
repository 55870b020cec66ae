#!/usr/bin/python3
"""api_table.py [--write] [--cc CC] ROOT: the table of GASNet's names in docs/api_status.md, from the headers.

Without --write the script fails if the page's table differs from the headers of include/; with it, the script
replaces the table. A name is implemented if a header declares or defines it for a client. A name is not implemented
if the header marks it HYDRANT_LATER. Numbers of arguments are folded: Short[M] stands for Short0 to Short16.
"""
import argparse
import pathlib
import re
import subprocess
import sys

BEGIN = "<!-- scripts/api_table.py writes this table from the headers -->\n"
END = "<!-- end of the table -->"
HEADERS = ("gasnetex.h", "gasnet.h", "gasnet_coll.h", "gasnet_vis.h", "gasnet_ratomic.h", "gasnet_mk.h",
           "gasnet_tools.h")
# Rows: title, prefix of the names. A name belongs to the first row that matches.
GROUPS = [
    ("Clients", r"gex_Client_"),
    ("Endpoints", r"gex_EP_"),
    ("Teams", r"gex_TM_"),
    ("Segments", r"gex_Segment_"),
    ("System", r"gex_System_"),
    ("Active Messages", r"gex_AM_"),
    ("Tokens", r"gex_Token_"),
    ("Events", r"gex_Event_"),
    ("Implicit events", r"gex_NBI_"),
    ("Handler-safe locks", r"gex_HSL_"),
    ("Barriers and collectives", r"gex_Coll_"),
    ("Put and get", r"gex_RMA_"),
    ("Vector, indexed, strided", r"gex_VIS_"),
    ("Remote atomics", r"gex_AD_"),
    ("Memory kinds", r"gex_MK_"),
    ("GASNet-1: messages", r"gasnet_AM"),
    ("GASNet-1: barriers", r"gasnet_barrier"),
    ("GASNet-1: collectives", r"gasnet_coll_"),
    ("GASNet-1: handler-safe locks", r"gasnet_hsl_"),
    ("GASNet-1: the rest", r"gasnet_"),
]
PAGE = "docs/api_status.md"
TOOLS_TITLE = "Tools, [tools.md](tools.md)"
MARKER = re.compile(r'^# \d+ "(.*?)"')
LATER = re.compile(r"\blong\s+(\w+)\s*\([. ]*\)\s*__attribute__\s*\(\(__error__\(")
CALLABLE = re.compile(r"\b((?:gex|gasnett?)_\w+)\s*\(")
FAMILY = re.compile(r"(?<!_v)(?<!\d)\d+(_v2)?$")
ALIAS = re.compile(r"^#define ((?:gex|gasnett?)_\w+)(?=[( ])")


def preprocess(root, compiler):
    text = "".join(f"#include <{header}>\n" for header in HEADERS)
    command = [compiler, "-E", "-dD", "-DGASNET_PAR=1", f"-I{root / 'include'}", "-x", "c", "-"]
    result = subprocess.run(command, input=text, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(result.stderr)
    return result.stdout


def names_of(root, compiler):
    """(present, later): sets of names."""
    present, later, ours = set(), set(), False
    for line in preprocess(root, compiler).splitlines():
        marker = MARKER.match(line)
        if marker:
            ours = marker.group(1).startswith(str(root / "include"))
        elif ours and line.startswith("#"):
            present.update(ALIAS.findall(line))
        elif ours:
            later.update(LATER.findall(line))
            present.update(CALLABLE.findall(line))
    present = {name for name in present if not name.endswith("_t")}
    return present - later, later


def fold(name):
    return FAMILY.sub(lambda match: "[M]" + (match.group(1) or ""), name)


def cell(names, prefix):
    """The common prefix of the names up to a "_", then the rest of each name."""
    prefix = prefix[:prefix.rindex("_") + 1]
    stems = sorted({fold(name)[len(prefix):] for name in names})
    return f"`{prefix}` " + " ".join(f"`{stem}`" for stem in stems) if stems else ""


def table(root, compiler):
    present, later = names_of(root, compiler)
    yield "| | implemented | not implemented |"
    yield "|---|---|---|"
    for title, prefix in GROUPS:
        row = [{name for name in names if name.startswith(prefix)} for names in (present, later)]
        present, later = present - row[0], later - row[1]
        if row[0] or row[1]:
            yield f"| {title} | {cell(row[0], prefix)} | {cell(row[1], prefix)} |"
    tools = {name for name in present if name.startswith("gasnett_")}
    yield f"| {TOOLS_TITLE} | {len(tools)} names `gasnett_`... | {cell(later, 'gasnett_')} |"
    if present - tools:
        sys.exit(f"no row for {', '.join(sorted(present - tools))}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    wanted = "\n".join(table(arguments.root, arguments.cc)) + "\n"
    page = arguments.root / PAGE
    before, found, rest = page.read_text().partition(BEGIN)
    written, end, after = rest.partition(END)
    if not found or not end:
        sys.exit(f"{PAGE} has no marks for the table: {BEGIN.strip()} and {END}")
    if arguments.write:
        page.write_text(before + BEGIN + wanted + END + after)
    elif written != wanted:
        print(f"The table in {PAGE} differs from the headers. Repair: scripts/api_table.py --write {arguments.root}")
        print(wanted)
        return 1
    print(f"{wanted.count(chr(10))} lines looked at")
    return 0


if __name__ == "__main__":
    sys.exit(main())
