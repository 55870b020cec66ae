"""Runs a client of the API as a job that forks its own ranks (GASNET_PSHM_NODES), or over the transport that
launch/over.py selects."""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "launch"))
import over  # the path must be set first


def run_job(client, ranks, *arguments, seconds=60, by_rank="", **extra):
    """(exit status, all output) of one job, which is ended after a time limit. `by_rank`: shell assignments
    that may use $HYDRANT_JOB_RANK, so that they differ between ranks."""
    env = {name: value for name, value in os.environ.items()
           if not name.startswith(("GASNET_", "HYDRANT_", "FIREHOSE_"))}
    env.update(**over.variables(), **extra)
    start = []
    if over.launcher("fork") == "fork" and not by_rank:
        env["GASNET_PSHM_NODES"] = str(ranks)
    else:
        start = [over.hydrant_run(client), "-n", str(ranks), *over.options(ranks)]
    if by_rank:
        start += ["sh", "-c", f'{by_rank} exec "$0" "$@"']
    seconds *= over.PATIENCE
    with subprocess.Popen([*start, client, *arguments], env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as job:
        try:
            text, _ = job.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            job.terminate()
            text, _ = job.communicate(timeout=seconds)
            text += "\n(it did not end)"
    return job.returncode, text
