#!/usr/bin/python3
"""check_headers.py public|unowned|list ROOT --cc CC --cxx CXX [COMPILER OPTIONS...]

Every header compiles alone and twice in a row, without a warning: public C headers as C99, C++17 and C++20,
public C++ headers as C++17 and C++20, all other *.hpp as C++20. A source that includes a header before
anything else compiles that header alone: unowned compiles the libraries' other headers, and demands that a
source beside its header includes it first. list prints all *.hpp with the options that each needs, for the
build target all_headers, which compiles them all. firehose.h and its remote part are compiled once per client
below clients/, because the client's firehose_fwd.h is part of them; headers that include gasnetex.h's modes
are compiled once per mode. A compilation is limited in processor time, so that a busy machine is no defect.
"""
import argparse
import concurrent.futures
import functools
import os
import pathlib
import re
import subprocess
import sys

from sources import sources

C_OPTIONS = ["-x", "c", "-std=c99", "-Wstrict-prototypes"]
CXX_OPTIONS = ["-x", "c++", "-Wold-style-cast", "-Wnon-virtual-dtor"]
CXX_STANDARDS = ("-std=c++17", "-std=c++20")
OPTIONS = ["-fsyntax-only", "-Werror", "-Wall", "-Wextra", "-pedantic", "-Wshadow", "-Wconversion"]
# Sixty seconds of processor time for one header.
LIMITED = ["sh", "-c", "ulimit -t 60; exec \"$@\"", "sh"]
LIBRARY_FOLDERS = ("firehose", "rdma", "am", "extended")
INTERNAL_FOLDERS = (*LIBRARY_FOLDERS, "bench", "tests")


CLIENTS = sorted((pathlib.Path(__file__).parent / "clients").iterdir())


# The library's options, without warnings about casts in inlined functions of C headers.
GASNET_USER = ["-DGASNET_PAR=1", "-Wno-old-style-cast"]
ANY_INCLUDE = re.compile(r'^#include (?:"(.+)"|<.+>)', re.MULTILINE)
QUOTED = re.compile(r'^#include "(.+)"', re.MULTILINE)
MODES = ("GASNET_SEQ", "GASNET_PARSYNC", "GASNET_PAR")
INCLUDE = re.compile(r"^#include <(.+)>", re.MULTILINE)


def wants_mode(include, name):
    """Whether a public header needs the client's thread mode."""
    if str(name) == "hydrant/gasnet/modes.h":
        return True
    if str(name) == "gasnet_tools.h":
        return False  # its names that need one are there only behind gasnetex.h
    path = include / name
    return path.exists() and any(wants_mode(include, other) for other in INCLUDE.findall(path.read_text()))


def variants_of(include, name):
    if name.name in ("firehose.h", "firehose_remote.h"):
        return [[f"-I{client}"] for client in CLIENTS]
    return [[f"-D{mode}"] for mode in MODES] if wants_mode(include, name) else [[]]


def public_jobs(arguments):
    for path in sources(arguments.root, {".h", ".hpp"}, ("include",)):
        name = path.relative_to(arguments.root / "include")
        commands = [[arguments.cxx, *CXX_OPTIONS, standard] for standard in CXX_STANDARDS]
        if path.suffix == ".h":
            commands.append([arguments.cc, *C_OPTIONS])
        variants = variants_of(arguments.root / "include", name)
        yield from ((f"<{name}>", command + more) for command in commands for more in variants)


@functools.lru_cache(maxsize=None)
def uses_gasnet(root, name):
    """Whether an internal header, or one that it includes, needs GASNet's modes."""
    path = root / name
    text = path.read_text() if path.exists() else ""
    return (any(wants_mode(root / "include", header) for header in INCLUDE.findall(text)) or
            any(uses_gasnet(root, other) for other in QUOTED.findall(text)))


def first_included(root):
    """{header: a source that includes it before anything else}"""
    owners = {}
    for path in sources(root, {".cpp", ".c"}, INTERNAL_FOLDERS):
        first = ANY_INCLUDE.search(path.read_text())
        if first and first.group(1):
            owners.setdefault(first.group(1), path)
    return owners


def late_inclusions(arguments):
    """Complaints about sources that include the header beside them after another one."""
    owners = first_included(arguments.root)
    for path in sources(arguments.root, {".cpp", ".c"}, INTERNAL_FOLDERS):
        header = path.with_suffix(".hpp")
        if header.exists() and str(header.relative_to(arguments.root)) not in owners:
            yield f"{path.relative_to(arguments.root)}: has to include {header.name} before anything else"


def internal_headers(arguments):
    """(name, options that it needs) of each header that is not public."""
    for path in sources(arguments.root, {".hpp"}, INTERNAL_FOLDERS):
        name = path.relative_to(arguments.root)
        if not any(str(name).startswith(prefix) for prefix in arguments.without):
            yield str(name), GASNET_USER if uses_gasnet(arguments.root, name) else []


def unowned_jobs(arguments):
    owned = first_included(arguments.root)
    for name, more in internal_headers(arguments):
        if name not in owned and name.split("/")[0] in LIBRARY_FOLDERS:
            yield f'"{name}"', [arguments.cxx, *CXX_OPTIONS, "-std=c++20", f"-I{arguments.root}", *more]


def compile_header(job):
    """The compiler's error for one header, or "". It runs in the tree: quoted names are found there first."""
    header, command, root, options = job
    text = f"#include {header}\n#include {header}\ntypedef int not_empty;\n"
    result = subprocess.run([*LIMITED, *command, *OPTIONS, *options, "-"], input=text, text=True, cwd=root,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if result.returncode == 0:
        return ""
    return f"{header} with {' '.join(command)}:\n{result.stdout}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("public", "unowned", "list"))
    parser.add_argument("root", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--cxx", default="c++")
    parser.add_argument("--without", action="append", default=[], help="folder that is not built")
    arguments, options = parser.parse_known_args()
    options.append(f"-I{arguments.root / 'include'}")
    if arguments.kind == "list":
        for name, more in internal_headers(arguments):
            print(name, *more)
        return 0
    jobs = public_jobs(arguments) if arguments.kind == "public" else unowned_jobs(arguments)
    jobs = [(header, command, arguments.root, options) for header, command in jobs]
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        complaints = [text for text in pool.map(compile_header, jobs) if text]
    if arguments.kind == "unowned":
        complaints += late_inclusions(arguments)
    print("\n".join(complaints))
    print(f"{len(jobs)} compilations")
    return 1 if complaints or not jobs else 0


if __name__ == "__main__":
    sys.exit(main())
