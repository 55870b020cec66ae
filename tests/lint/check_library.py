#!/usr/bin/python3
"""check_library.py CHECK FILE...: what libfirehose and libfirehose_hooks show to the outside.

exports LIB.so LIST   the dynamic symbols are those of LIST, and all of them are hydrant_*, gex_* or gasnet_*
archive LIB.a         no strong global symbol but those and what is in namespace hydrant
apart LIB.a LIB.a     no name is inline in one of them and not in the other
tls LIB.so [BYTES]    at most 64 bytes of static thread-local storage (or BYTES), or dlopen() may fail: glibc
                      keeps 512 for all libraries that come late
needed LIB.so [NAME...]  ldd names no library but the five that are allowed, and those of these names
hooks LIB.so MAP      the dynamic symbols are those of the version script; needs libc and the loader alone,
                      and no function that finds thread-local storage (it may allocate)
"""
import re
import subprocess
import sys

MAX_TLS_BYTES = 64
ALLOWED = re.compile(
    r"^(libc|libm|libgcc_s|libstdc\+\+|liburing|ld-linux[-\w]*|linux-vdso)\.so\.\d+$")
OUR_C_NAME = re.compile(r"^(hydrant|gex|gasnet)_")
OURS = re.compile(OUR_C_NAME.pattern + r"|^_Z(?:Z|GV|TV|TT|TH|TW|GR)?N[KVRO]*7hydrant")


def run(*command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout


def symbols(*command):
    """(type letter, name) of each symbol that nm prints."""
    rows = (line.split() for line in run("nm", *command).splitlines())
    rows = (row for row in rows if len(row) >= 2 and len(row[-2]) == 1)
    return [(row[-2], row[-1].split("@")[0]) for row in rows if row[-2] != "A"]  # A: a version's name


def check_exports(library, list_file):
    exported = {name for _, name in symbols("-D", "--defined-only", library)}
    with open(list_file) as lines:
        listed = {line.strip() for line in lines if line.strip() and not line.startswith("#")}
    yield from (f"{name}: exported, but not in the list" for name in sorted(exported - listed))
    yield from (f"{name}: in the list, but not exported" for name in sorted(listed - exported))
    foreign = (name for name in sorted(exported) if not OUR_C_NAME.match(name))
    yield from (f"{name}: exported without our prefix" for name in foreign)
    if not exported:
        yield f"{library} exports nothing"


def check_archive(archive):
    found = symbols("--defined-only", "--extern-only", archive)
    if not found:
        yield f"{archive} defines nothing"
    for kind, name in found:
        # A weak one that every object with static probes has, by convention.
        is_shared_inline = kind in "WVu" and (name.startswith("_Z") or name == "_.stapsdt.base")
        if not is_shared_inline and not OURS.match(name):
            yield f"{name} ({kind}): may clash with a client's own name"


def check_apart(one, other):
    """Both have the floor, from the same files, so that its names are of the same kind in both."""
    found = [symbols("--defined-only", "--extern-only", archive) for archive in (one, other)]
    if not all(found):
        yield f"{one} or {other} defines nothing"
    kinds = [{name: kind in "WVu" for kind, name in rows} for rows in found]
    yield from (f"{name}: inline in one archive, and not in the other: a program gets one of them for both"
                for name, is_weak in sorted(kinds[0].items()) if kinds[1].get(name, is_weak) != is_weak)


def check_tls(library, most=MAX_TLS_BYTES):
    for line in run("readelf", "-lW", library).splitlines():
        words = line.split()
        if words[:1] == ["TLS"]:
            size = int(words[5], 16)
            print(f"{size} bytes of static thread-local storage")
            if size > int(most):
                yield f"{library}: {size} bytes of thread-local storage, at most {most}"


def check_needed(library, *more):
    names = [line.split()[0].rsplit("/", 1)[-1] for line in run("ldd", library).splitlines()]
    print("needs " + " ".join(names))
    yield from (f"{library} needs {name}" for name in names
                if not ALLOWED.match(name) and name.split(".so")[0] not in more)
    if not any(name.startswith("libc.") for name in names):
        yield f"ldd {library} says nothing of libc"


def check_hooks(library, map_file):
    with open(map_file) as lines:
        text = re.sub(r"/\*.*?\*/", "", lines.read(), flags=re.DOTALL)
    listed = set(re.findall(r"\w+(?=;)", text.split("global:")[1].split("local:")[0]))
    exported = {name for _, name in symbols("-D", "--defined-only", library)}
    yield from (f"{name}: exported, but not in the list" for name in sorted(exported - listed))
    yield from (f"{name}: in the list, but not exported" for name in sorted(listed - exported))
    for line in run("readelf", "-dW", library).splitlines():
        if "(NEEDED)" in line and not re.search(r"\[(libc|ld-linux[-\w]*)\.so\.\d+\]", line):
            yield f"{library} needs {line.split()[-1]}"
    wanted = {name for _, name in symbols("-D", "--undefined-only", library)}
    if "__tls_get_addr" in wanted:
        yield f"{library} calls __tls_get_addr"
    print(f"{len(exported)} names")


CHECKS = {
    "exports": check_exports,
    "archive": check_archive,
    "apart": check_apart,
    "tls": check_tls,
    "needed": check_needed,
    "hooks": check_hooks,
}


def main():
    faults = list(CHECKS[sys.argv[1]](*sys.argv[2:]))
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
