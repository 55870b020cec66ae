#!/usr/bin/python3
"""environment_test.py BUILD_FOLDER

gasnet_getenv() if the ranks' environments differ: every rank gets rank 0's values, however large the
environment is. Also: what processes that ranks start have of it; a job of one rank that no setting requested.
"""
import os
import pathlib
import re
import subprocess
import sys
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))
from client_jobs import over, run_job  # the path must be set first

ROOT = pathlib.Path(sys.argv.pop())
CLIENT = str(ROOT / "tests/integration/am/core_client_seq")
DIFFERENT = ("export TEST_ALL=of$HYDRANT_JOB_RANK; "
             "[ $HYDRANT_JOB_RANK = 0 ] || export TEST_SOME=$HYDRANT_JOB_RANK;")


class GetenvTest(unittest.TestCase):
    def answers(self, ranks, by_rank, **variables):
        code, text = run_job(CLIENT, ranks, "getenv", by_rank=by_rank, **variables)
        self.assertEqual(code, 0, text)
        self.assertEqual(text.count(" done\n"), ranks, text)
        return text

    def test_all_ranks_get_rank_0s_values(self):
        for ranks in (2, 4):
            text = self.answers(ranks, DIFFERENT)
            for rank in range(ranks):
                self.assertIn(f"rank {rank}: TEST_ALL is of0, own of{rank}\n", text)
                # Variables that rank 0 lacks, and launcher variables, are each rank's own.
                own = rank if rank else "-"
                self.assertIn(f"rank {rank}: TEST_SOME is {own}, own {own}\n", text)
                self.assertIn(f"rank {rank}: HYDRANT_JOB_RANK is {rank}, own {rank}\n", text)

    def test_large_environments(self):
        for size, is_shared in ((100_000, True), (300_000, False)):
            big = {f"TEST_BIG_{i}": "x" * 50_000 for i in range(size // 50_000)}
            text = self.answers(2, DIFFERENT, **big)
            self.assertIn(f"rank 1: TEST_ALL is of{0 if is_shared else 1}, own of1\n", text)
            self.assertEqual("more than the 262144 that can be shared" in text, not is_shared, text)

    def test_equal_environments(self):
        text = self.answers(3, "", TEST_ALL="the same")
        self.assertEqual(text.count(": TEST_ALL is the same, own the same\n"), 3, text)


class ChildTest(unittest.TestCase):
    """Processes that ranks start: a job of their own only where it is asked for."""
    HAS = re.compile(r"has (\S*) (\S*) (\S*)$", re.MULTILINE)
    SAY = 'echo "has $GASNET_PSHM_NODES- $HYDRANT_JOB_RANK- ${HYDRANT_JOB_WIRE:+wire}-"'

    def started(self, outer, command, status=0, starts=2, **variables):
        env = {name: value for name, value in os.environ.items()
               if not name.startswith(("GASNET_", "HYDRANT_"))}
        env.update({"HYDRANT_LOG": "error", **variables})
        start = [over.hydrant_run(CLIENT), "-n", "2"] if outer == "hydrant-run" else []
        if outer == "fork":
            env["GASNET_PSHM_NODES"] = "2"
        run = subprocess.run([*start, CLIENT, "start", command], env=env, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, timeout=60 * over.PATIENCE, check=False)
        self.assertEqual(run.returncode, 0, run.stdout)
        self.assertEqual(run.stdout.count(f"has started a process, status {status}\n"), starts, run.stdout)
        return run.stdout

    def test_environment_of_children(self):
        text = self.started("hydrant-run", self.SAY, GASNET_PSHM_NODES="3")
        self.assertEqual(sorted(self.HAS.findall(text)), [("-", "0-", "wire-"), ("-", "1-", "wire-")], text)
        text = self.started("fork", self.SAY)
        self.assertEqual(self.HAS.findall(text), [("-", "-", "-")] * 2, text)

    def test_jobs_of_their_own(self):
        for outer in ("hydrant-run", "fork"):
            for size in (1, 2):
                with self.subTest(outer=outer, size=size):
                    inner = f"GASNET_PSHM_NODES={size} {CLIENT} start '{self.SAY}'"
                    text = self.started(outer, inner, starts=2 + 2 * size)
                    # In the outer job, and in those that its two ranks have started.
                    self.assertEqual(text.count("rank 0 has started"), 3, text)
                    if size > 1:
                        self.assertEqual(self.HAS.findall(text), [("-", "-", "-")] * 4, text)

    def test_no_job_that_nobody_has_asked_for(self):
        text = self.started("hydrant-run", f"{CLIENT} limits", status=98, GASNET_PSHM_NODES="3")
        self.assertIn("to run it as a job of its own, set GASNET_PSHM_NODES for it alone", text)
        self.assertEqual(self.started("fork", f"{CLIENT} limits").count("rank 0: local"), 2)

    @unittest.skipIf(over.launcher("fork") != "fork", "hydrant-run starts the job")
    def test_the_rank_itself_has_the_value(self):
        text = run_job(CLIENT, 2, "getenv", GASNET_VERBOSEENV="1")[1]
        self.assertEqual(text.count("GASNET_PSHM_NODES is 2, own -\n"), 2, text)
        self.assertRegex(text, r"ENV parameter: GASNET_PSHM_NODES = 2 *\n")


class AloneTest(unittest.TestCase):
    @staticmethod
    def said(**variables):
        names = ("GASNET_", "HYDRANT_", "FIREHOSE_", "PMI", "OMPI", "SLURM")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(names)}
        run = subprocess.run([CLIENT, "limits"], env=environment | variables, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, timeout=60 * over.PATIENCE, check=True)
        return run.stderr

    def test_warning_tells_once_how_to_start_more_ranks(self):
        said = self.said()
        self.assertEqual(said.count("hydrant-run -n 4 "), 1, said)
        self.assertIn("GASNET_PSHM_NODES=4", said)

    def test_no_warning_if_one_rank_was_requested(self):
        for variables in ({"GASNET_PSHM_NODES": "1"}, {"HYDRANT_BOOTSTRAP": "alone"},
                          {"HYDRANT_LOG": "error"}):
            self.assertNotIn("hydrant-run", self.said(**variables))
        code, text = run_job(CLIENT, 1, "limits")
        self.assertEqual(code, 0)
        self.assertNotIn("hydrant-run -n", text)


if __name__ == "__main__":
    unittest.main()
