#!/usr/bin/python3
"""check_upcalls.py ROOT BUILD: calls between folders that only the linker sees.

A function that is declared in one folder and defined in another is called past the includes that
check_layering.cmake compares. Here the undefined symbols of each object file are looked up in the others: a
folder may use C++ symbols of the folders that layers.txt lets it include. upcalls.txt lists the exceptions,
with reasons. Functions of the public headers have C names, and any folder may call them. A permission of
layers.txt that neither an #include nor a symbol uses is reported, too.
"""
import collections
import pathlib
import re
import subprocess
import sys

STRONG = set("TBDRA")
INCLUDE = re.compile(r'^#include "(.+)"', re.MULTILINE)


def read_lines(path):
    for line in pathlib.Path(path).read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            yield line.split()


def folder_of(source, folders):
    """The longest folder of the list that contains it."""
    for parent in source.parents:
        if str(parent) in folders:
            return str(parent)
    return None


def sources_of(root, top, path):
    """The sources of an object file, several in a build with HYDRANT_UNITY."""
    target = next(part for part in path.parts if part.endswith(".dir"))
    name = str(path).split(target + "/", 1)[1].removesuffix(".o")
    if not name.startswith("Unity/"):
        return [pathlib.Path(top) / name]
    text = path.with_suffix("").read_text()
    return [pathlib.Path(included).relative_to(root) for included in re.findall('#include "(/.*)"', text)]


def read_objects(root, build, folders):
    """(source, defined symbols, undefined symbols) of each object file of the libraries."""
    commands = build / "compile_commands.json"
    built = set(re.findall(r" -o (\S+\.o) ", commands.read_text())) if commands.exists() else None
    for path in sorted(build.glob("*/CMakeFiles/*.dir/**/*.o")):
        if built is not None and str(path.relative_to(build)) not in built:
            continue  # of an earlier build
        sources = sources_of(root, path.relative_to(build).parts[0], path)
        if not all((root / source).exists() for source in sources):
            continue  # of an earlier build, too, or no source of the folder
        if len({folder_of(source, folders) for source in sources}) != 1:
            sys.exit(f"{path} has sources of several folders: cmake/HydrantUnity.cmake keeps them apart")
        source = sources[0]
        listing = subprocess.run(["nm", "-P", path], capture_output=True, text=True, check=True).stdout
        defined, undefined = set(), set()
        for line in listing.splitlines():
            name, kind, *_ = line.split()
            if not name.startswith("_Z"):
                continue
            if kind == "U":
                undefined.add(name)
            elif kind in STRONG:
                defined.add(name)
        yield source, defined, undefined


def inclusions(root, folders):
    """(including, included folder) of each #include between folders of the list."""
    for top in sorted({folder.split("/")[0] for folder in folders}):
        for path in (root / top).rglob("*.[ch]*"):
            source = folder_of(path.relative_to(root), folders)
            for target in INCLUDE.findall(path.read_text()):
                yield source, folder_of(pathlib.Path(target), folders)


def demangle(name):
    return subprocess.run(["c++filt", name], capture_output=True, text=True).stdout.strip()


def main():
    root, build = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    here = root / "tests/lint"
    layers = {line[0]: set(line[1:]) for line in read_lines(here / "layers.txt")}
    allowed = {(caller, callee): " ".join(reason)
               for caller, callee, *reason in read_lines(here / "upcalls.txt")}
    objects = list(read_objects(root, build, layers))
    owners = collections.defaultdict(dict)
    for source, defined, _ in objects:
        for name in defined:
            owners[name][folder_of(source, layers)] = source
    used, wrong = set(), {}
    needed = set(inclusions(root, layers))
    for source, _, undefined in objects:
        caller = folder_of(source, layers)
        if caller is None:
            continue
        for name in undefined:
            callees = owners.get(name, {})
            needed.update((caller, callee) for callee in callees)
            if not callees or any(callee in (None, caller) or callee in layers[caller] for callee in callees):
                continue
            callee, definition = next(iter(callees.items()))
            if (caller, callee) in allowed:
                used.add((caller, callee))
            else:
                use = f"  {source} uses {demangle(name)} of {definition}"
                wrong.setdefault((caller, callee), []).append(use)
    for (caller, callee), uses in sorted(wrong.items()):
        print(f"{caller} may not use {callee}:", *sorted(set(uses)), sep="\n")
    stale = sorted(set(allowed) - used)
    for caller, callee in stale:
        print(f"upcalls.txt: {caller} does not use {callee}")
    unexplained = sorted(pair for pair, reason in allowed.items() if not reason)
    for caller, callee in unexplained:
        print(f"upcalls.txt: {caller} {callee} has no reason")
    permissions = {(caller, callee) for caller, callees in layers.items() for callee in callees}
    idle = sorted(pair for pair in permissions - needed if pair[1] not in ("-", "include"))
    for caller, callee in idle:
        print(f"layers.txt: {caller} uses nothing of {callee}")
    print(f"{len(objects)} object files looked at")
    return 1 if wrong or stale or unexplained or idle or not objects else 0


if __name__ == "__main__":
    sys.exit(main())
