#!/usr/bin/python3
"""check_alone.py ROOT [--base COMMIT] [--most N] [--cxx CXX] [--without PREFIX] [COMPILER OPTIONS...]

Each C++ source that changed since COMMIT, and the source beside each changed header, compiles by itself: a
build of several sources at once hides a missing #include. Files that git does not know count as changed.
COMMIT is by default the 30th before HEAD, or the first there is; N sources are compiled, the latest changed
first, and the rest are named. Objects are made with -O0 through ccache, where that is installed, and thrown
away.
"""
import argparse
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

# Not bench: its build is never one of several sources at once.
FOLDERS = ("firehose", "rdma", "am", "extended", "tests", "docs/examples")
OPTIONS = ["-std=c++20", "-O0", "-w", "-D_GNU_SOURCE", "-DGASNET_PAR", "-I.", "-Iinclude"]
# Macros that a CMakeLists.txt defines for some sources: texts, and switches that are off here.
TEXTS = ("ALLOC_SOVERSION", "BARRIER_DEFAULT", "BINARY_DIR", "EXPECTED_BACKEND", "EXPORTS",
         "HOOKS_TEST_CALLER", "HUNT_GUEST", "HUNT_HOOKS", "INJECTED_SOVERSION", "INJECTED_VERSION",
         "SOURCE_DIR", "VERSION")
SWITCHES = ("DEBUG", "MUTANTS", "TICKETS")
SKIPPED = 77


def git(root, *arguments):
    return subprocess.run(["git", "-C", str(root), *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)


def changed_names(root, base):
    """Names in ROOT of files that differ from BASE, the latest commit's first; None without that history."""
    unknown = git(root, "ls-files", "--others", "--exclude-standard", "--", *FOLDERS)
    edited = git(root, "diff", "--name-only", "HEAD", "--", *FOLDERS)
    listed = git(root, "log", "--format=", "--name-only", f"{base}..HEAD", "--", *FOLDERS)
    if unknown.returncode or edited.returncode or listed.returncode:
        return None
    names = (unknown.stdout + edited.stdout + listed.stdout).splitlines()
    return list(dict.fromkeys(names))


def oldest_base(root):
    """The 30th commit before HEAD, or the first one of a shorter history."""
    commits = git(root, "rev-list", "--first-parent", "--max-count=31", "HEAD").stdout.split()
    return commits[-1] if commits else "HEAD"


def sources_of(root, names, without):
    """The sources to compile for changes of these files."""
    found = {}
    for name in names:
        path = pathlib.Path(name)
        source = path.with_suffix(".cpp") if path.suffix == ".hpp" else path
        if source.suffix != ".cpp" or str(source).startswith(tuple(without)):
            continue
        if (root / source).is_file():
            found[str(source)] = True
    return list(found)


def compile_source(job):
    """The compiler's first errors for one source, or ""."""
    source, command, root, folder = job
    output = os.path.join(folder, source.replace("/", "_") + ".o")
    result = subprocess.run([*command, "-c", source, "-o", output], cwd=root, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if result.returncode == 0:
        return ""
    return f"{source} does not compile by itself:\n" + "\n".join(result.stdout.splitlines()[:4])


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n")[0])
    parser.add_argument("root", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--base")
    parser.add_argument("--most", type=int, default=sys.maxsize)
    parser.add_argument("--cxx", default="c++")
    parser.add_argument("--without", action="append", default=[], help="prefix of sources that are not built")
    arguments, options = parser.parse_known_args()
    base = arguments.base or oldest_base(arguments.root)
    names = changed_names(arguments.root, base)
    if names is None:
        print(f"skipped: no history since {base}, to tell what has changed")
        return 2 if arguments.base else SKIPPED
    sources = sources_of(arguments.root, names, arguments.without)
    for source in sources[arguments.most:]:
        print(f"left to ./test --alone: {source}")
    launcher = ["ccache"] if shutil.which("ccache") else []
    options += [f'-DHYDRANT_{name}=""' for name in TEXTS] + [f"-DHYDRANT_{name}=0" for name in SWITCHES]
    with tempfile.TemporaryDirectory(prefix="hydrant-alone-") as folder:
        jobs = [(source, [*launcher, arguments.cxx, *OPTIONS, *options], arguments.root, folder)
                for source in sources[:arguments.most]]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            complaints = [text for text in pool.map(compile_source, jobs) if text]
    print("\n".join(complaints))
    print(f"{len(jobs)} of {len(sources)} sources that changed since {base[:12]}")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
