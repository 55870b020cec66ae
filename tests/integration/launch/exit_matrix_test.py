#!/usr/bin/python3
"""exit_matrix_test.py BUILD_FOLDER

Every way in which a job can end under Hydrant's own supervisor: the exit code, the printed line, and that no
process is left.
"""
import os
import re
import signal
import sys
import unittest

import over
from jobs import Build, Job

BUILD = Build(sys.argv.pop())
LAUNCHERS = (["hydrant-run"] if BUILD.has_hydrant_run() else []) + ["fork"]


# Seconds until ranks that do not end are killed, in jobs that end by themselves.
LONG = str(60 * over.PATIENCE)
HINT = r" \(GASNET_BACKTRACE=1 shows where it was\)"


def ended(rank, code):
    return rf"rank {rank} \(pid \d+\) exited with code {code}; the job is ended"


class ExitMatrix(unittest.TestCase):
    def each(self, size, *steps, code, says=None, prints=None, **variables):
        """Runs the job under each launcher; `says` is a pattern for the single line on standard error."""
        for launcher in LAUNCHERS:
            with self.subTest(launcher=launcher, steps=steps):
                job = Job(BUILD, launcher, size, *steps, **variables)
                got, output, errors = job.wait()
                self.assertEqual(got, code, output + errors)
                self.assertEqual(job.wait_until_gone(), [])
                prefix = "hydrant-run: " if launcher == "hydrant-run" else "hydrant: "
                if says is None:
                    self.assertEqual(errors, "")
                else:
                    self.assertRegex(errors, f"^{prefix}{says}\n$")
                self.assertNotIn("FAILED", output)
                if prints is not None:
                    self.assertRegex(output, prints)

    def test_all_return_zero(self):
        self.each(3, "watch", "values", "share", "fence", code=0)

    def test_one_process(self):
        for launcher in LAUNCHERS:
            code, output, errors = Job(BUILD, launcher, 1, "watch", "values", "share", "leave=7").wait()
            self.assertEqual(code, 7, output + errors)
            # With one rank, the fork launcher starts no supervisor.
            self.assertRegex(errors, "^$" if launcher == "fork" else ended(0, 7))

    def test_one_rank_leaves_while_others_sleep(self):
        self.each(3, "watch", "fence", "1:leave=7", "sleep", code=7, says=ended(1, 7))

    def test_one_rank_leaves_while_others_spin_without_a_watch(self):
        self.each(3, "fence", "1:leave=7", "spin", code=7, says=ended(1, 7))

    def test_exit_with_zero_while_others_spin_is_reported(self):
        self.each(3, "watch", "fence", "1:leave=0", "spin", code=0,
                  says="rank 1 exited with code 0, and 2 of the others did not follow.*; they are killed")

    def test_late_output_after_an_exit_with_zero_is_not_lost(self):
        # The time after the exit in which output could get lost.
        self.each(2, "watch", "0:show_pid", "fence", "1:await_exit=0", "1:sleep=0.4", "1:print=late", code=0,
                  prints="rank 1: late", GASNET_EXITTIMEOUT=LONG)

    def test_all_leave_at_once_with_the_same_code(self):
        self.each(8, "watch", "fence", "leave=9", code=9, says=ended(r"\d", 9))

    def test_several_leave_at_once_and_one_code_survives(self):
        for launcher in LAUNCHERS:
            job = Job(BUILD, launcher, 4, "watch", "fence", "0:leave=3", "1:leave=4", "2:leave=5",
                      "leave=6")
            code, output, errors = job.wait()
            self.assertIn(code, (3, 4, 5, 6), output + errors)
            self.assertEqual(job.wait_until_gone(), [])

    def test_exit_without_leaving(self):
        self.each(3, "watch", "fence", "2:_exit=3", "spin", code=3,
                  says=r"rank 2 \(pid \d+\) exited with code 3; the job is ended")

    def test_exit_with_zero_without_leaving(self):
        self.each(3, "deaf", "watch", "2:show_pid", "fence", "2:_exit=0", "await_exit=2", code=0,
                  GASNET_EXITTIMEOUT=LONG)

    def test_exit_before_a_fence_releases_waiting_ranks(self):
        self.each(3, "values", "2:leave=4", "fence", code=4, says=ended(2, 4),
                  prints="fence: rank 2 has ended the job with exit code 4")

    def test_killed_before_a_fence(self):
        self.each(3, "values", "2:kill=9", "fence", code=137,
                  says=r"rank 2 \(pid \d+\) was killed by signal 9 .*",
                  prints=r"fence: rank 2 was killed by signal 9 \(Killed\)")

    def test_signals(self):
        for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM, signal.SIGQUIT):
            self.each(3, "watch", "fence", f"1:kill={int(number)}", "spin", code=128 + number,
                      says=rf"rank 1 \(pid \d+\) was killed by signal {int(number)} "
                           rf"\({signal.strsignal(number)}.*\); the job is ended"
                           rf"{HINT if number == signal.SIGSEGV else ''}")

    def test_death_is_reported_to_all_ranks(self):
        self.each(4, "watch", "deaf", "fence", "0:kill=9", "await_event", "leave=1", code=137,
                  says="rank 0 .* signal 9 .*",
                  prints=r"(?s)(?=.*rank 1 hears death of rank 0: 9)(?=.*rank 2 hears death of rank 0: 9)"
                         r"(?=.*rank 3 hears death of rank 0: 9)", GASNET_EXITTIMEOUT=LONG)

    def test_spinning_rank_ends_after_the_network_reports_a_death(self):
        self.each(3, "watch", "fence", "1:lose=2", "spin", code=6)

    def test_death_after_leaving_is_a_failure(self):
        self.each(2, "watch", "0:show_pid", "fence", "0:say_leave=0", "0:abort", "await_exit=0", code=134,
                  says=r"rank 0 \(pid \d+\) was killed by signal 6 .*", GASNET_EXITTIMEOUT=LONG)

    def test_ignored_sigquit_ends_with_sigkill(self):
        self.each(2, "ignore=3", "fence", "1:leave=2", "spin", code=2, says=ended(1, 2),
                  GASNET_EXITTIMEOUT="0.5")

    # Freeing its memory takes longer than the grace period of the other ranks.
    def test_rank_that_is_ending_is_not_killed_or_reported(self):
        self.each(2, "0:show_pid", "fence", "0:exit_slowly=64", "1:await_exit=0", "1:leave=0", code=0,
                  GASNET_EXITTIMEOUT="1")

    # For longer than the kernel may hold a process that was killed.
    @unittest.skipUnless(os.environ.get("HYDRANT_TEST_LONG"), "takes 20 s: for HYDRANT_TEST_LONG=1")
    def test_rank_that_frees_much_memory_is_waited_for(self):
        self.each(2, "0:show_pid", "fence", "0:exit_slowly=512", "1:await_exit=0", "1:leave=0", code=0,
                  GASNET_EXITTIMEOUT="1")

    def test_rank_that_left_but_does_not_end_is_reported(self):
        self.each(2, "fence", "0:say_leave=0", "0:spin", "1:leave=0", code=0,
                  GASNET_EXITTIMEOUT=str(2 * over.PATIENCE),
                  says=r"rank 0 \(pid \d+\) has left the job, as others have, but still runs: .*; "
                       r"it is killed")

    def test_sigquit_may_be_caught(self):
        self.each(2, "exit_on=3", "fence", "1:leave=2", "spin", code=2, says=ended(1, 2),
                  GASNET_EXITTIMEOUT=LONG)

    def test_a_fence_is_a_barrier(self):
        self.each(3, "barrier", "fence", code=0)

    def test_fence_names_missing_ranks(self):
        self.each(4, "0:fence=0.3", "0:show_pid", "1-3:await_pid=0", code=0,
                  prints="rank 0 fence: ranks 1, 2, 3 did not reach the fence")

    def test_fence_can_be_repeated(self):
        self.each(2, "0:fence=0.1", "0:show_pid", "1:await_pid=0", "fence", "values", code=0,
                  prints="rank 0 fence: rank 1 did not reach the fence")

    def test_missing_card_is_named(self):
        self.each(2, "0:get=0.1", "fence", code=0, prints='get: rank 1 has put no entry "nothing"')

    def test_standard_input_goes_to_rank_0_only(self):
        self.each(2, "read", "fence", code=0, prints="rank 1 reads the end")

    def test_memory_of_a_rank_does_not_grow_with_the_job(self):
        sizes = (64, 1024) if os.environ.get("HYDRANT_TEST_LONG") else (8, 64)
        for size in sizes:
            job = Job(BUILD, LAUNCHERS[0], size, "memory", "fence", GASNET_EXITTIMEOUT="60")
            code, output, errors = job.wait()
            self.assertEqual(code, 0, output + errors)
            grown = re.findall(r"rank \d+: (\d+) bytes more", output)
            self.assertEqual(grown, ["0"] * size)


if __name__ == "__main__":
    unittest.main()
