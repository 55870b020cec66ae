#!/usr/bin/python3
"""foreign_launchers_test.py BUILD_FOLDER

The same jobs under Open MPI's mpirun (PMIx) and MPICH's mpiexec (PMI-2), if they are installed; and processes
that a launcher started without connecting them.
"""
import os
import subprocess
import sys
import unittest

from jobs import LIMIT, SKIPPED, Build, Job, leftovers, new_leftovers

BUILD = Build(sys.argv.pop())
LIBRARIES = {"mpirun": ("pmix", "pmix"), "hydra": ("pmi2", "pmi2")}

LAUNCHERS = BUILD.foreign_launchers()


@unittest.skipUnless(LAUNCHERS, "neither mpirun with PMIx nor mpiexec.hydra with PMI-2 is installed")
class Launchers(unittest.TestCase):
    def each(self, size, *steps, code, prints=None, says=None):
        """`code` is a status, a tuple of acceptable ones, or None for any but 0."""
        for launcher in LAUNCHERS:
            with self.subTest(launcher=launcher, steps=steps):
                before = leftovers()
                job = Job(BUILD, launcher, size, *steps)
                self.addCleanup(job.kill_all)
                got, output, errors = job.wait()
                if code is None:
                    self.assertNotEqual(got, 0, output + errors)
                else:
                    self.assertIn(got, code if isinstance(code, tuple) else (code,), output + errors)
                self.assertEqual(job.wait_until_gone(), [])
                self.assertEqual(new_leftovers(before), set())
                self.assertNotIn("FAILED", output)
                if prints is not None:
                    self.assertRegex(output, prints)
                if says is not None:
                    self.assertRegex(errors, says)

    def test_place_agrees_with_the_launcher(self):
        for launcher in LAUNCHERS:
            job = Job(BUILD, launcher, 2, "place", "watch", "fence")
            code, output, errors = job.wait()
            self.assertEqual(code, 0, output + errors)
            name = LIBRARIES[launcher][0]
            for rank in (0, 1):
                where = f"node 0 of 1, node rank {rank} of 0 1"
                self.assertRegex(output, f"rank {rank} of 2 by {name}, {where}, pid")

    def test_cards_and_shared_descriptors(self):
        self.each(3, "watch", "values", "share", "share", "fence", code=0)

    def test_a_fence_is_a_barrier(self):
        self.each(3, "watch", "barrier", code=0)

    def test_one_process(self):
        self.each(1, "watch", "values", "share", code=0)

    def test_exit_code_is_passed_on(self):
        self.each(3, "watch", "fence", "leave=7", code=7)

    def test_one_rank_leaves_while_others_sleep(self):
        self.each(3, "watch", "fence", "1:leave=7", "sleep", code=7)

    def test_one_rank_leaves_while_others_spin(self):
        self.each(2, "watch", "fence", "1:leave=7", "spin", code=7)

    # The launcher, which kills the others, knows of the exit only once the process is over.
    def test_an_exit_is_heard(self):
        self.each(2, "watch", "fence", "1:say_leave=7", "spin", code=7,
                  prints="rank 0 hears exit of rank 1: 7")

    def test_one_rank_leaves_with_zero_while_others_spin(self):
        self.each(3, "watch", "fence", "1:leave=0", "spin", code=0,
                  says="rank 1 exited with code 0, and rank [02]")

    def test_programs_that_do_not_end_are_killed(self):
        self.each(2, "watch", "deaf", "ignore=3", "fence", "1:leave=7", "spin", code=7)

    def test_sigquit_may_be_caught(self):
        # The handler's _exit() closes the connection to the launcher without a goodbye. Hydra makes that
        # status 1 if it sees the closed connection before the exit code.
        self.each(2, "watch", "deaf", "exit_on=3", "fence", "1:leave=5", "spin", code=(1, 5),
                  says="rank 1 exited with code 5; the job is ended")

    def test_spinning_rank_ends_after_the_network_reports_a_death(self):
        self.each(3, "watch", "fence", "1:lose=2", "spin", code=6)

    def test_exit_without_leaving(self):
        self.each(3, "watch", "fence", "1:_exit=3", "spin", code=None)

    def test_a_killed_rank_ends_the_job(self):
        self.each(3, "watch", "fence", "1:kill=9", "spin", code=None)

    def test_surviving_rank_names_a_killed_rank(self):
        # Both launchers also kill, and may be faster than the line; so the ranks ignore their first
        # signals.
        for launcher in LAUNCHERS:
            job = Job(BUILD, launcher, 2, "ignore=15", "place", "watch", "deaf", "fence",
                      "1:kill=9", "sleep")
            self.addCleanup(job.kill_all)
            code, output, errors = job.wait()
            self.assertNotEqual(code, 0)
            if "hears death" in output:
                self.assertRegex(output, "rank 0 hears death of rank 1: [09]")
            self.assertEqual(job.wait_until_gone(), [], errors)


class Mismatch(unittest.TestCase):
    def refused(self, command, **variables):
        job = Job(BUILD, "alone", 1, "place", **variables)
        code, output, errors = job.wait()
        self.assertEqual((code, output), (98, ""), errors)
        self.assertIn(f"type: {command} {BUILD.probe} place", errors)
        self.assertEqual(errors.count("\n"), 1, errors)

    def test_launcher_with_more_ranks_is_an_error_with_a_remedy(self):
        self.refused("mpirun -n 4", OMPI_COMM_WORLD_SIZE="4")
        self.refused("mpirun -n 4", OMPI_COMM_WORLD_SIZE="4", PMIX_NAMESPACE="none", PMIX_RANK="0")
        self.refused("srun --mpi=pmix -n 4", SLURM_PROCID="0", SLURM_NTASKS="4")
        self.refused("mpiexec.hydra -n 4", PMI_RANK="0", PMI_SIZE="4")
        self.refused("mpiexec.hydra -n 4", PMI_RANK="0", PMI_SIZE="4", PMI_FD="77")
        self.refused("flux run -o pmi=pmix -n 4", FLUX_TASK_RANK="0", FLUX_JOB_SIZE="4")
        self.refused("mpiexec --pmi=pmix -n 4", PALS_RANKID="3")

    def test_launcher_detection_can_be_overridden(self):
        job = Job(BUILD, "alone", 1, "place", SLURM_PROCID="0", SLURM_NTASKS="4",
                  HYDRANT_BOOTSTRAP="alone")
        self.assertEqual(job.wait()[0], 0)
        job = Job(BUILD, "alone", 1, "place", "fence", SLURM_PROCID="0", SLURM_NTASKS="4",
                  GASNET_PSHM_NODES="2")
        code, output, errors = job.wait()
        self.assertEqual(code, 0, errors)
        self.assertIn("of 2 by fork", output)

    def test_job_inside_a_rank_is_refused(self):
        if not BUILD.has_hydrant_run():
            self.skipTest("no hydrant-run in this build")
        # The inner shell's child has the environment, but python closes the descriptors.
        inner = f"import subprocess; raise SystemExit(subprocess.run(['{BUILD.probe}', 'place']).returncode)"
        done = subprocess.run([BUILD.hydrant_run, "-n", "2", sys.executable, "-c", inner],
                              capture_output=True, text=True, timeout=LIMIT, check=False)
        self.assertEqual(done.returncode, 98, done.stderr)
        self.assertIn("but not its connection", done.stderr)

    def test_requested_launcher_is_missing(self):
        starts = {"hydrant_run": "hydrant-run -n 2", "fork": "GASNET_PSHM_NODES=2"}
        starts.update({LIBRARIES[one][0]: {"mpirun": "mpirun -n 2", "hydra": "mpiexec.hydra -n 2"}[one]
                       for one in LAUNCHERS})
        for choice, start in starts.items():
            self.refused(start, HYDRANT_BOOTSTRAP=choice)

    def test_invalid_numbers_of_processes(self):
        for value in ("99999", "-1", "two"):
            job = Job(BUILD, "alone", 1, "place", GASNET_PSHM_NODES=value)
            code, output, errors = job.wait()
            self.assertEqual((code, output), (98, ""))
            self.assertIn("a whole number from 0 to 4096", errors)
            self.assertNotIn("using 0", errors)


if __name__ == "__main__":
    program = unittest.main(exit=False)
    if not program.result.wasSuccessful():
        sys.exit(1)
    sys.exit(0 if LAUNCHERS else SKIPPED)
