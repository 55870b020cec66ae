#!/usr/bin/python3
"""supervisor_test.py BUILD_FOLDER

The supervisor besides exit codes: signals from outside, its own death, stopped ranks, random kills.
HYDRANT_TEST_LONG=1 makes 1000 kills instead of 20.
"""
import errno
import os
import pathlib
import random
import re
import signal
import sys
import time
import unittest

import over
from jobs import Build, Job, leftovers, new_leftovers

BUILD = Build(sys.argv.pop())
LAUNCHERS = (["hydrant-run"] if BUILD.has_hydrant_run() else []) + ["fork"]
KILLS = 1000 if os.environ.get("HYDRANT_TEST_LONG") else 20
# System calls that a supervisor needs, with their numbers on x86-64.
CALLS = {"rt_sigprocmask()": 14, "epoll_wait()": 232, "epoll_ctl()": 233, "waitid()": 247,
         "read() from a signalfd": 0}
LATER = ("epoll_wait()", "waitid()", "read() from a signalfd")


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(one) for one in file.read().split()]


class Supervisor(unittest.TestCase):
    def start(self, launcher, size, *steps, **variables):
        job = Job(BUILD, launcher, size, "place", *steps, **variables)
        self.addCleanup(job.kill_all)
        job.wait_for(" by ", size)
        return job

    def test_signals_are_passed_on(self):
        for launcher in LAUNCHERS:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
                with self.subTest(launcher=launcher, signal=number):
                    job = self.start(launcher, 3, "watch", "fence", "sleep")
                    job.process.send_signal(number)
                    code, _, errors = job.wait()
                    self.assertEqual(code, 128 + number, errors)
                    self.assertIn(f"received signal {int(number)}", errors)
                    self.assertEqual(errors.count("\n"), 1, errors)
                    self.assertEqual(job.wait_until_gone(), [])

    def test_ranks_that_exit_with_zero_on_a_signal_end_the_job_with_zero(self):
        for launcher in LAUNCHERS:
            job = self.start(launcher, 2, "exit_on=15", "fence", "print=ready", "sleep")
            job.wait_for("ready", 2)
            job.process.terminate()
            self.assertEqual(job.wait()[0], 5)

    def test_a_second_signal_kills(self):
        for launcher in LAUNCHERS:
            job = self.start(launcher, 2, "note=15", "fence", "print=ready", "await_signal", "sleep",
                             GASNET_EXITTIMEOUT=str(60 * over.PATIENCE))
            job.wait_for("ready", 2)
            job.process.terminate()
            job.wait_for("has got signal 15", 2)  # two signals at once may be one
            job.process.terminate()
            self.assertEqual(job.wait()[0], 143)

    def test_usr1_is_passed_on_without_ending_the_job(self):
        for launcher in LAUNCHERS:
            job = self.start(launcher, 2, "note=10", "fence", "print=ready", "await_signal", "fence")
            job.wait_for("ready", 2)
            job.process.send_signal(signal.SIGUSR1)
            code, output, errors = job.wait()
            self.assertEqual(code, 0, output + errors)
            self.assertEqual(output.count("has got signal 10"), 2, output + errors)

    def test_death_of_the_supervisor_ends_all_ranks(self):
        for launcher in LAUNCHERS:
            job = self.start(launcher, 4, "watch", "fence", "spin")
            job.process.kill()
            self.assertEqual(job.wait_until_gone(), [])

    def test_death_of_the_starting_supervisor_ends_all_ranks(self):
        for launcher in LAUNCHERS:
            for delay_ms in range(0, 40, 8):
                job = Job(BUILD, launcher, 16, "watch", "fence", "spin")
                time.sleep(delay_ms / 1000)
                job.process.kill()
                self.assertEqual(job.wait_until_gone(), [])

    def test_a_stopped_rank_is_named_once_and_not_dead(self):
        for launcher in LAUNCHERS:
            job = self.start(launcher, 3, "watch", "1:kill=19", "fence", "print=on",
                             HYDRANT_STOP_WARN="0.2")
            job.wait_for_error("has been stopped for")
            time.sleep(0.5)  # in which it could be named again, or ended
            self.assertIsNone(job.process.poll())
            os.kill(job.pids()[1], signal.SIGCONT)
            code, output, errors = job.wait()
            self.assertEqual(code, 0, output + errors)
            self.assertRegex(errors,
                             rf"^hydrant(-run)?: rank 1 \(pid {job.pids()[1]}\) has been stopped for .*\n$")
            self.assertEqual(output.count(": on"), 3)

    def test_a_stopped_rank_is_ended_with_the_job(self):
        for launcher in LAUNCHERS:
            job = self.start(launcher, 3, "watch", "fence", "2:leave=6", "kill=19", "sleep",
                             GASNET_EXITTIMEOUT="0.5")
            self.assertEqual(job.wait()[0], 6)
            self.assertEqual(job.wait_until_gone(), [])

    def test_timers_of_the_program_go_on_in_every_rank(self):
        for which in range(3):
            with self.subTest(timer=which):
                job = Job(BUILD, "fork", 3, f"before@timer={which}", "await_ticks", "fence")
                code, output, errors = job.wait()
                self.assertEqual((code, errors, output.count("has its ticks")), (0, "", 3), output)

    @unittest.skipIf(over.launcher("fork") != "fork", "the supervisor is hydrant-run")
    def test_the_supervisor_keeps_nothing_of_the_program(self):
        job = self.start("fork", 2, "before@timer=created", "note=10", "fence", "print=ready", "await_signal",
                         "fence")
        job.wait_for("ready", 2)
        of_supervisor = f"/proc/{job.process.pid}"
        self.assertEqual([os.readlink(f"{of_supervisor}/fd/{fd}") for fd in range(2)], ["/dev/null"] * 2)
        with open(f"{of_supervisor}/status", encoding="ascii") as lines:
            caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt"))
        self.assertEqual(caught & 0x7fffffff, 0)
        if os.path.exists(f"{of_supervisor}/timers"):
            self.assertEqual(pathlib.Path(f"{of_supervisor}/timers").read_text(encoding="ascii"), "")
        job.process.send_signal(signal.SIGUSR1)
        code, output, errors = job.wait()
        self.assertEqual((code, errors), (0, ""), output)

    @unittest.skipIf(over.launcher("fork") != "fork", "the supervisor is hydrant-run")
    def test_a_rank_that_dies_before_the_supervisor_looks_ends_the_job(self):
        job = Job(BUILD, "fork", 3, "before@die_in_fork", "fence")
        code, _, errors = job.wait()
        self.assertEqual(code, 137, errors)
        self.assertRegex(errors, r"rank 0 \(pid \d+\) was killed by signal 9")

    @unittest.skipIf(over.launcher("fork") != "fork", "the supervisor is hydrant-run")
    def test_threads_of_the_program_take_no_signals_of_the_supervisor(self):
        job = self.start("fork", 3, "before@thread", "note=10", "fence", "print=ready", "await_signal",
                         "fence")
        job.wait_for("ready", 3)
        job.process.send_signal(signal.SIGUSR1)
        code, output, errors = job.wait()
        self.assertEqual((code, output.count("has got signal 10")), (0, 3), output + errors)
        job = self.start("fork", 3, "before@thread", "watch", "fence", "print=ready", "sleep")
        job.wait_for("ready", 3)
        os.kill(job.pids()[1], signal.SIGKILL)
        code, output, errors = job.wait()
        self.assertEqual(code, 137, output + errors)
        self.assertIn("was killed by signal 9", errors)
        self.assertEqual(job.wait_until_gone(), [])

    @unittest.skipIf(over.launcher("fork") != "fork", "the program is no supervisor")
    def test_a_refused_call_refuses_the_start(self):
        for call, number in CALLS.items():
            for error in (errno.EPERM, errno.ENOSYS):
                with self.subTest(call=call, error=error):
                    job = Job(BUILD, "fork", 2, f"before@refuse={number}:{error}", "watch", "fence")
                    code, output, errors = job.wait()
                    self.assertEqual((code, output), (98, ""), errors)
                    self.assertEqual(errors, f"launch_probe: cannot supervise a job: {call}: "
                                     f"{os.strerror(error)}; if a seccomp filter (a container's or a "
                                     "sandbox's) refuses the call, allow it\n")
                    self.assertEqual(job.wait_until_gone(), [])

    @unittest.skipIf(over.launcher("fork") != "fork", "the program is no supervisor")
    def test_a_call_that_is_refused_later_ends_the_job(self):
        for call in LATER:
            for error in (errno.EPERM, errno.EAGAIN):
                with self.subTest(call=call, error=error):
                    # A supervisor that may be able to read its signals later still sees the end of ranks.
                    reaps = call.startswith("read") and error == errno.EAGAIN
                    on_signal = "exit_on=10" if reaps or call == "waitid()" else "note=10"
                    job = self.start("fork", 2, f"before@thread={CALLS[call]}:{error}", on_signal, "watch",
                                     "fence", "print=ready", "sleep")
                    job.wait_for("ready", 2)
                    job.process.send_signal(signal.SIGURG)
                    job.wait_for("is refused")
                    os.kill(job.pids()[1] if reaps else job.process.pid, signal.SIGUSR1)
                    code, output, errors = job.wait()
                    said = ("rank 1 .* exited with code 5; the job is ended" if reaps else
                            re.escape(f"cannot supervise the job any more: {call}: {os.strerror(error)}") +
                            ".*; its processes are killed")
                    self.assertRegex(errors, f"^hydrant: warning: .*\\nhydrant: {said}\\n$", output)
                    self.assertEqual(code, 5 if reaps else 1, errors)
                    self.assertEqual(job.wait_until_gone(), [])

    def test_random_kills_leave_no_process(self):
        generator = random.Random(os.environ.get("HYDRANT_TEST_SEED", "1"))
        before = leftovers()
        for round_number in range(KILLS):
            launcher = generator.choice(LAUNCHERS)
            size = generator.randint(2, 6)
            steps = ["place", "values", "share", "watch", "share", "fence", "sleep"]
            job = Job(BUILD, launcher, size, *steps)
            self.addCleanup(job.kill_all)
            time.sleep(generator.random() * 0.12)
            victims = []
            try:
                victims = children(job.process.pid)
            except OSError:
                pass
            with self.subTest(round=round_number, launcher=launcher, size=size):
                whole = not victims or generator.random() < 0.2
                try:
                    os.kill(job.process.pid if whole else generator.choice(victims), signal.SIGKILL)
                except ProcessLookupError:
                    job.process.kill()
                code, output, errors = job.wait()
                self.assertEqual(code, 137, f"{output}{errors}")
                self.assertEqual(job.wait_until_gone(), [])
                if not whole:
                    self.assertRegex(errors, r"rank \d+ \(pid \d+\) was killed by signal 9 \(Killed\)")
        self.assertEqual(new_leftovers(before), set())


if __name__ == "__main__":
    unittest.main()
