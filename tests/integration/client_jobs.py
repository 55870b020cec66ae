"""Runs a client of the API as a job that forks its own ranks (GASNET_PSHM_NODES)."""
import os
import subprocess


def run_job(client, ranks, *arguments, seconds=60, **extra):
    """(exit status, everything that was printed) of one job, which is ended after so many seconds."""
    env = {name: value for name, value in os.environ.items()
           if not name.startswith(("GASNET_", "HYDRANT_", "FIREHOSE_"))}
    env.update(GASNET_PSHM_NODES=str(ranks), **extra)
    with subprocess.Popen([client, *arguments], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as job:
        try:
            text, _ = job.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            job.terminate()
            text, _ = job.communicate(timeout=seconds)
            text += "\n(it did not end)"
    return job.returncode, text
