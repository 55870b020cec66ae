"""The transport of the jobs in these tests: HYDRANT_TEST_OVER, in the environment of the tests.

  (unset)  as the library chooses: shared memory
  ibv      verbs between all ranks (HYDRANT_TRANSPORT=ibv)
  mixed    the ranks are on two nodes (hydrant-run --nodes 2): shared memory within them, verbs between them

HYDRANT_TEST_PATIENCE=N, a positive number, multiplies all waits for what has to happen by N: PATIENCE.
"""
import os
import pathlib
import shutil
import subprocess
import sys

OVER = os.environ.get("HYDRANT_TEST_OVER", "")
PATIENCE = float(os.environ.get("HYDRANT_TEST_PATIENCE") or 1)
if not PATIENCE > 0:
    raise ValueError("HYDRANT_TEST_PATIENCE is not positive")
# Up to Linux 6.1 adapters may read memory that its owner may not (PROT_NONE), because the kernel pins
# it anyway.
READS_ALL = bool(OVER)
if OVER not in ("", "ibv", "mixed"):
    raise ValueError(f"HYDRANT_TEST_OVER={OVER} is none of ibv, mixed")


def variables():
    """Variables of every job."""
    patient = {"HYDRANT_TEST_PATIENCE": str(PATIENCE)}
    return {"HYDRANT_TRANSPORT": "ibv", **patient} if OVER == "ibv" else patient


def launcher(name):
    """The launcher in place of `name`: only hydrant-run can simulate two nodes."""
    return "hydrant-run" if OVER == "mixed" and name == "fork" else name


def nodes(size):
    """Number of nodes of a job with `size` ranks."""
    return 2 if OVER == "mixed" and size > 1 else 1


def options(size):
    """Options of hydrant-run for `size` ranks."""
    return ["--nodes", str(nodes(size))] if nodes(size) > 1 else []


def hydrant_run(program):
    """The hydrant-run of the build that contains `program`."""
    for folder in pathlib.Path(program).resolve().parents:
        if os.access(folder / "bin/hydrant-run", os.X_OK):
            return str(folder / "bin/hydrant-run")
    raise FileNotFoundError(f"no bin/hydrant-run above {program}")


def hydra_starts():
    """True if mpiexec.hydra is here and libpmi2 understands it: from MPICH 4.2 on its answer to a start
    lacks a field that Slurm's libpmi2 asks for."""
    script = ("import ctypes, sys; pmi2 = ctypes.CDLL('libpmi2.so.0'); "
              "results = [ctypes.c_int() for _ in range(4)]; "
              "sys.exit(pmi2.PMI2_Init(*map(ctypes.byref, results)) or pmi2.PMI2_Finalize())")
    if shutil.which("mpiexec.hydra") is None:
        return False
    try:
        return subprocess.run(["mpiexec.hydra", "-n", "1", sys.executable, "-c", script], check=False,
                              stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=60 * PATIENCE).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def way(table):
    """The variables of a job for this transport: the real network replaces one of HYDRANT_INJECT between
    pinned memory. None if there is no such network."""
    injected = table.get("HYDRANT_INJECT")
    if not OVER or injected in (None, "send_only"):
        return table
    if "pins" not in injected:
        return None
    return {name: value for name, value in table.items() if name != "HYDRANT_INJECT"}


def ways(tables):
    """The variables of these tables (a list, or by name) that apply here, each once."""
    named = tables if isinstance(tables, dict) else dict(enumerate(tables))
    kept = {}
    for name, table in named.items():
        table = way(table)
        if table is not None and table not in kept.values():
            kept[name] = table
    return kept if isinstance(tables, dict) else list(kept.values())
