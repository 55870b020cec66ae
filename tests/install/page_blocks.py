#!/usr/bin/python3
"""page_blocks.py SOURCE PREFIX FOLDER: runs the code blocks of README.md and docs/install.md as written.

HOME is a folder in which `hydrant` is the installed tree. Commands that build or install are left out,
and so are launchers that are not installed, or that libpmi2 does not understand.
"""
import ctypes
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration/launch"))
import over  # noqa: E402  (the path must be set first)

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PR_SET_PDEATHSIG = 1
LEFT_OUT = ("./run", "cmake ")

source, prefix, folder = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
shutil.rmtree(folder, ignore_errors=True)
home = folder / "home"
home.mkdir(parents=True)
(home / "hydrant").symlink_to(prefix)
os.symlink(source / "docs", folder / "docs")  # commands are typed at the top of a clone
environment = os.environ | {"HOME": str(home), "OMPI_ALLOW_RUN_AS_ROOT": "1",
                            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
for variable in ("LD_PRELOAD", "HYDRANT_LOG", "PKG_CONFIG_PATH"):
    environment.pop(variable, None)
kept = ["set -e"]  # commands so far that set variables, which later blocks of the page need


def blocks(page):
    return BLOCK.findall((source / page).read_text())


def wanted(line):
    if line.startswith("mpirun"):
        return shutil.which("mpirun") is not None
    if line.startswith("mpiexec.hydra"):
        return over.hydra_starts()
    return not line.startswith(LEFT_OUT) and "/bin/hydrant-info" not in line


def end_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def run(text):
    """Runs a block with the variables of the earlier blocks; returns its output."""
    lines = [line.replace("/tmp/", f"{folder}/") for line in text.splitlines() if wanted(line)]
    script = "\n".join(kept + lines)
    kept.extend(line for line in lines if re.match(r"export |\w+=\$\(", line))
    limit = str(200 * over.PATIENCE)
    # timeout(1) creates its own process group, which ends with this process.
    result = subprocess.run(["timeout", "-k", "5", limit, "bash", "-c", script], cwd=folder, env=environment,
                            preexec_fn=end_with_parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True)
    if result.returncode != 0:
        sys.exit(f"status {result.returncode} of\n{script}\n{result.stdout}")
    return result.stdout


def expect(output, *texts):
    for text in texts:
        if text not in output:
            sys.exit(f"'{text}' is missing in\n{output}")


def readme():
    output = ""
    for language, text in blocks("README.md"):
        if language == "c":
            (folder / "pins.c").write_text(text)
        elif language == "sh":
            output += run(text)
    expect(output, "1 registration, 999 hits", *(f"Hello from rank {rank} of 4" for rank in range(4)))


def install():
    """Returns the sections of "Link a program"; the pages' other blocks build Hydrant itself."""
    shutil.copy(folder / "pins.c", folder / "program.c")
    shutil.copy(source / "docs/examples/gasnet/hello.c", folder)
    (folder / "program.cpp").write_text("#include <hydrant/pin_cache.hpp>\nint main() { return 0; }\n")
    found = blocks("docs/install.md")
    for language, text in found:
        if language == "make":
            (folder / "Makefile").write_text(text)
            run("make hello")
        elif language == "cmake":
            (folder / "project").mkdir()
            (folder / "project/CMakeLists.txt").write_text(text)
            shutil.copy(folder / "program.c", folder / "project")
            run(f"command cmake -S project -B project/build -DCMAKE_PREFIX_PATH={home}/hydrant\n"
                "command cmake --build project/build\nproject/build/program")
        elif language == "sh" and "pkg-config" in text:
            run(text)
    if {language for language, _ in found} != {"sh", "cmake", "make"}:
        sys.exit("docs/install.md lacks a way to link")


readme()
install()
