#!/usr/bin/python3
"""descriptor_jobs_test.py BUILD_FOLDER

Jobs whose rank 0 closes all descriptors that it does not know and opens its own under the numbers: its files
stay as they are until after its end, the job goes on, and its end is what it would be, with no false line.
"""
import pathlib
import re
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "launch"))
from jobs import Build, Job  # noqa: E402  (the path has to be there first)

ROOT = sys.argv.pop()
SIZE = 2


class ClientBuild(Build):
    def __init__(self):
        super().__init__(ROOT)
        self.probe = str(pathlib.Path(ROOT) / "tests/integration/descriptors/descriptor_client")


class Descriptors(unittest.TestCase):
    def run_job(self, launcher, when, others, end, **variables):
        with tempfile.TemporaryDirectory() as folder:
            verdict = pathlib.Path(folder) / "verdict"
            job = Job(ClientBuild(), launcher, SIZE, when, others, end, str(verdict),
                      GASNET_EXITTIMEOUT="3", **variables)
            self.addCleanup(job.kill_all)
            code, output, errors = job.wait()
            self.assertEqual(job.wait_until_gone(), [], output + errors)
            self.assertEqual(verdict.read_text(), "intact\n", output + errors)
            return code, output, errors

    def supervised(self):
        return (["hydrant-run"] if Build(ROOT).has_hydrant_run() else []) + ["fork"]

    def check(self, others, end, status, line):
        for launcher in self.supervised():
            with self.subTest(launcher=launcher, others=others, end=end):
                code, output, errors = self.run_job(launcher, "after", others, end)
                self.assertEqual(code, status, errors)
                self.assertIn("rank 0 has talked\n", output)
                told = re.sub(r"hydrant(-run)?: ", "", re.sub(WARNING, "", errors))
                self.assertRegex(told, rf"\A{line}\Z")

    def test_a_job_that_ends_well(self):
        self.check("exit0", "exit0", 0, "")
        self.check("gasnet_exit0", "gasnet_exit0", 0, "")

    # The supervisor sees the exit code even if the rank has not reported it.
    def test_the_rank_ends_the_job(self):
        self.check("wait", "gasnet_exit7", 7, r"rank 0 \(pid \d+\) exited with code 7; the job is ended\n")
        self.check("spin", "kill", 137,
                   r"rank 0 \(pid \d+\) was killed by signal 9 \(Killed\); the job is ended\n")

    def test_others_end_the_job(self):
        for end in ("wait", "spin", "pause"):
            self.check("gasnet_exit7", end, 7,
                       r"rank 1 \(pid \d+\) called gasnet_exit\(7\); the job is ended\n")
            self.check("kill", end, 137,
                       r"rank 1 \(pid \d+\) was killed by signal 9 \(Killed\); the job is ended\n")
            self.check("exit0", end, 0,
                       r"rank 1 exited with code 0, and 1 of the others did not follow \(rank 0\); "
                       r"they are killed\n")

    # Below a script nothing else would end it.
    def test_the_supervisor_is_killed(self):
        if not Build(ROOT).has_hydrant_run():
            self.skipTest("no hydrant-run in this build")
        with tempfile.TemporaryDirectory() as folder:
            verdict = pathlib.Path(folder) / "verdict"
            build = ClientBuild()
            client, build.probe = build.probe, "sh"
            job = Job(build, "hydrant-run", SIZE, "-c", '"$0" "$@"; exit $?', client, "after", "pause",
                      "pause", str(verdict))
            self.addCleanup(job.kill_all)
            job.wait_for("rank 0 has talked\n")
            job.process.kill()
            job.wait()
            self.assertEqual(job.wait_until_gone(), [])
            self.assertEqual(verdict.read_text(), "intact\n")

    def test_attach_without_the_connection_names_it(self):
        for launcher in self.supervised():
            with self.subTest(launcher=launcher):
                code, _, errors = self.run_job(launcher, "before", "exit0", "exit0")
                self.assertEqual(code, 95, errors)
                self.assertRegex(errors, r"the program has closed descriptor \d+, by which rank 0 asks its "
                                         r"supervisor \((hydrant-run|fork)\); close only descriptors")
                self.assertNotIn("is gone", errors)


WARNING = (r"[^\n]*the program of rank 0 has closed its connection to the launcher \((hydrant-run|fork)\)"
           r"[^\n]*\n")

if __name__ == "__main__":
    unittest.main()
