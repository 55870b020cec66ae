#!/usr/bin/python3
"""gasnet_variables.py PREFIX LIST: each variable of LIST is in each installed makefile fragment and
pkg-config file of GASNet's names, with a value unless LIST allows none, and libraries have GASNet's order.
"""
import os
import pathlib
import re
import subprocess
import sys

PREFIX = pathlib.Path(sys.argv[1]).resolve()
LISTED = [line.split() for line in pathlib.Path(sys.argv[2]).read_text().splitlines() if line[:1].isalpha()]
PKGCONFIG = next(PREFIX.rglob("hydrant.pc")).parent
MODES = {"conduit": [f"{network}-{mode}" for network in ("smp", "ibv") for mode in ("seq", "par", "parsync")],
         "tools": ["tools-seq", "tools-par"]}


def output(*command, text=None):
    """Returns what the command prints."""
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True,
                          env=os.environ | {"PKG_CONFIG_PATH": str(PKGCONFIG)}).stdout


def of_fragment(file, names):
    """Returns the variables that a makefile fragment defines."""
    lines = [f"include {file}", *(f"$(if $(filter-out undefined,$(origin {name})),$(info {name}=$({name})))"
                                  for name in names), "all: ;"]
    text = output("make", "-s", "-f", "-", "all", text="\n".join(lines))
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))


def of_package(package):
    """Returns the variables that a pkg-config file defines, all but the libraries as they are written."""
    written = dict(re.findall(r"^(\w+)=(.*)$", (PKGCONFIG / f"{package}.pc").read_text(), re.MULTILINE))
    return {name: output("pkg-config", f"--variable={name}", package) if name.endswith("_LIBS") else value
            for name, value in written.items()}


def problems(kind, mode, found):
    """Yields what is wrong with the variables of one file."""
    for listed, name, *may_be_empty in LISTED:
        if listed == kind and name not in found:
            yield f"{name} is missing"
        elif listed == kind and not found[name].strip() and not may_be_empty:
            yield f"{name} has no value"
    libraries = " ".join(found.get("GASNET_LIBS", found.get("GASNETTOOLS_LIBS", "")).split())
    threads = "" if mode in ("smp-seq", "tools-seq") else " -lpthread"
    prefix = re.escape(f"{PREFIX}/")
    wanted = rf"-L{prefix}\S+ -Wl,-rpath,{prefix}\S+( -Wl,\S+)* -lgasnet[-_]{mode}{threads} -lm"
    if not re.fullmatch(wanted, libraries):
        yield f"its libraries are {libraries}"


def main():
    wrong = []
    for kind, modes in MODES.items():
        names = [name for listed, name, *_ in LISTED if listed == kind]
        for mode in modes:
            fragment, package = f"gasnet_{mode}.mak", f"gasnet_{mode}"
            if kind == "conduit":
                fragment, package = f"{mode[:3]}-conduit/{mode}.mak", f"gasnet-{mode}"
            for file, found in ((fragment, of_fragment(PREFIX / "include" / fragment, names)),
                                (f"{package}.pc", of_package(package))):
                wrong += [f"{file}: {problem}" for problem in problems(kind, mode, found)]
    print("\n".join(wrong) or f"{len(LISTED)} variables")
    return bool(wrong)


sys.exit(main())
