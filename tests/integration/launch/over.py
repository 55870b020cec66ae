"""By which transport the jobs of these tests talk: HYDRANT_TEST_OVER, in the environment of the tests.

  (unset)  as the library chooses: shared memory
  ibv      verbs between all ranks (HYDRANT_TRANSPORT=ibv)
  mixed    the ranks are on two nodes (hydrant-run --nodes 2): shared memory within them, verbs between them

HYDRANT_TEST_PATIENCE=N makes limits of time N times as long: emulated processors are slow.
"""
import os
import pathlib

OVER = os.environ.get("HYDRANT_TEST_OVER", "")
PATIENCE = int(os.environ.get("HYDRANT_TEST_PATIENCE") or 1)
# Up to Linux 6.1 adapters may read what its owner may not (PROT_NONE): the kernel pins it all the same.
READS_ALL = bool(OVER)
if OVER not in ("", "ibv", "mixed"):
    raise ValueError(f"HYDRANT_TEST_OVER={OVER} is none of ibv, mixed")


def variables():
    """That every job has: an emulated adapter may answer late on a busy machine, and is not gone then."""
    patient = {"HYDRANT_IBV_TIMEOUT": "17"} if OVER else {}
    return {"HYDRANT_TRANSPORT": "ibv", **patient} if OVER == "ibv" else patient


def launcher(name):
    """Who starts a job that `name` was to start: only hydrant-run says that there are two nodes."""
    return "hydrant-run" if OVER == "mixed" and name == "fork" else name


def nodes(size):
    """That a job of so many ranks has."""
    return 2 if OVER == "mixed" and size > 1 else 1


def options(size):
    """Of hydrant-run, for so many ranks."""
    return ["--nodes", str(nodes(size))] if nodes(size) > 1 else []


def hydrant_run(program):
    """The one of the build that `program` is from."""
    for folder in pathlib.Path(program).resolve().parents:
        if os.access(folder / "bin/hydrant-run", os.X_OK):
            return str(folder / "bin/hydrant-run")
    raise FileNotFoundError(f"no bin/hydrant-run above {program}")


def way(table):
    """These variables of a job, over this transport: a network of HYDRANT_INJECT between pinned memory is the
    real one here. None if there is no such network."""
    injected = table.get("HYDRANT_INJECT")
    if not OVER or injected in (None, "send_only"):
        return table
    if "pins" not in injected:
        return None
    return {name: value for name, value in table.items() if name != "HYDRANT_INJECT"}


def ways(tables):
    """Of these tables of variables (a list, or by name) those that there are here, each once."""
    named = tables if isinstance(tables, dict) else dict(enumerate(tables))
    kept = {}
    for name, table in named.items():
        table = way(table)
        if table is not None and table not in kept.values():
            kept[name] = table
    return kept if isinstance(tables, dict) else list(kept.values())
