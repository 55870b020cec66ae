#!/usr/bin/python3
"""check_gasnet_names.py ROOT [--cc CC]: the headers declare the names of GASNet, and tests call them.

tests/lint/gasnet_names.txt lists the names as GASNet 2025.8.0 implements them: calls, constants and types.
The headers declare exactly these, and each call occurs in a source below tests/. Families are folded as in
docs/api_status.md: Short[M] stands for Short0 to Short16, and a source may make such a name of parts. The
tools have a list of their own.
"""
import argparse
import pathlib
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import api_table  # the path must be set first

LIST = "tests/lint/gasnet_names.txt"
CONSTANT = re.compile(r"\b(?:GEX|GASNET)_[A-Z]\w*")
TYPE = re.compile(r"\b(?:gex|gasnet)_\w+_t\b")
# Guards of headers, what a program or its build defines, and parts of names.
NO_CONSTANT = re.compile(r".*_(H)?$|GASNET_(SEQ|PAR|PARSYNC|DEBUG)$")
SOURCES = {".c", ".cpp", ".h", ".hpp"}


def read_sections(path):
    sections, names = {}, None
    for line in path.read_text().splitlines():
        heading = re.fullmatch(r"\[(.*)\]", line)
        if heading:
            names = sections.setdefault(heading[1], set())
        elif line and not line.startswith("#"):
            names.add(line)
    return sections


def declared_names(root, compiler):
    calls, later = api_table.names_of(root, compiler)
    text, ours = [], False
    for line in api_table.preprocess(root, compiler).splitlines():
        marker = api_table.MARKER.match(line)
        if marker:
            ours = marker.group(1).startswith(str(root / "include"))
        elif ours:
            text.append(line)
    text = "\n".join(text)
    return {"calls": {api_table.fold(name) for name in calls | later if not name.startswith("gasnett_")},
            "constants": {name for name in CONSTANT.findall(text) if not NO_CONSTANT.match(name)},
            "types": set(TYPE.findall(text))}


def uncalled(names, folder):
    """The calls that no source of the folder names."""
    text = "\n".join(path.read_text(errors="replace") for path in sorted(folder.rglob("*"))
                     if path.suffix in SOURCES)
    words = set(re.findall(r"\w+", text))
    folded = {api_table.fold(word) for word in words}
    # gex_AD_OpNB_##type stands for all that begin so.
    stems = tuple(re.findall(r"\b((?:gex|gasnet)_\w+)\s*##", text))
    return [name for name in sorted(names) if name not in words and name not in folded and
            not (stems and name.startswith(stems))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--cc", default="cc")
    arguments = parser.parse_args()
    listed = read_sections(arguments.root / LIST)
    declared = declared_names(arguments.root, arguments.cc)
    mistakes = []
    for kind, names in declared.items():
        wanted = listed.get(kind, set())
        mistakes += [f"{name}: in {LIST}, but no header declares it" for name in sorted(wanted - names)]
        mistakes += [f"{name}: declared, but not in {LIST}" for name in sorted(names - wanted)]
    mistakes += [f"{name}: no source below tests/ calls it"
                 for name in uncalled(listed.get("calls", set()), arguments.root / "tests")]
    count = sum(len(names) for names in listed.values())
    print("\n".join(mistakes) + "\n" * bool(mistakes) + f"{count} names looked at")
    return 1 if mistakes or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
