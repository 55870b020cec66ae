"""Shared by the tests of rma_client: its variants, and jobs that must succeed.

HYDRANT_TEST_LONG=1 makes it long, HYDRANT_TEST_SEED=N repeats a run of the model. Times are limits only.
"""
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "launch"))
import over  # the path must be set first
from jobs import Job  # noqa: E402

LONG = bool(os.environ.get("HYDRANT_TEST_LONG"))
SEED = int(os.environ.get("HYDRANT_TEST_SEED") or 1)
# Steps and threads of a run of the model, and seconds after which it may stop early on slow builds.
STEPS, THREADS, SECONDS = ("20000", "4", "20") if LONG else ("300", "2", "4")
GOOD = "all held\n"


class Clients:
    """Replaces jobs.Build, with one of the clients in place of launch_probe."""

    folder = ""

    def __init__(self, variant):
        self.hydrant_run = over.hydrant_run(self.folder) if over.OVER else ""
        self.probe = str(pathlib.Path(self.folder) / f"rma_client_{variant}")


class RmaTestCase(unittest.TestCase):
    def run_job(self, variant, ranks, *steps, **variables):
        """(exit code as a shell shows it, all output); checks that no process of the job is left."""
        # These clients put to all of their memory.
        variables.setdefault("HYDRANT_SEGMENT_CHECK", "n")
        job = Job(Clients(variant), "fork", ranks, *steps, **variables)
        code, output, errors = job.wait()
        self.assertEqual(job.wait_until_gone(), [])
        return code, output + errors

    def holds(self, variant, ranks, *steps, **variables):
        code, text = self.run_job(variant, ranks, *steps, **variables)
        self.assertEqual((code, GOOD in text), (0, True),
                         f"{variant}, {ranks} ranks, {steps}, {variables}:\n{text}")
        return text

    def model(self, variant, ranks, seed, **variables):
        with self.subTest(variant=variant, ranks=ranks, seed=seed, **variables):
            text = self.holds(variant, ranks, "model", str(seed), THREADS, STEPS, SECONDS, **variables)
            self.assertIn(f"seed {seed}\n", text)


def main():
    """Runs the tests with the clients in the folder of the last argument."""
    Clients.folder = sys.argv.pop()
    unittest.main("__main__")
