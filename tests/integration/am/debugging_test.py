#!/usr/bin/python3
"""debugging_test.py BUILD_FOLDER

Jobs that wait for a debugger: at their start, at a signal, before they die of an error. SIGCONT replaces
the debugger.
"""
import os
import pathlib
import re
import signal
import sys
import time
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "launch"))
from jobs import LIMIT, Build, Job  # the path must be set first

ROOT = sys.argv.pop()
FROZEN = re.compile(r"Process frozen for debugger \(rank (\d+)\): host=\S+ pid=(\d+)\n +To .*SIGCONT")
SIZE = 2


class ClientBuild(Build):
    def __init__(self, mode):
        super().__init__(ROOT)
        self.probe = str(pathlib.Path(ROOT) / "tests/integration/am" / f"core_client_{mode}")


class DebuggingTest(unittest.TestCase):
    def start(self, *steps, mode="seq", size=SIZE, **variables):
        launcher = "hydrant-run" if Build(ROOT).has_hydrant_run() else "fork"
        self.job = Job(ClientBuild(mode), launcher, size, *steps, **variables)
        self.addCleanup(self.job.kill_all)

    def frozen(self, count):
        """Waits for `count` lines; returns [(rank, pid)] of the waiting ranks."""
        deadline = time.monotonic() + LIMIT
        while True:
            found = FROZEN.findall(self.job.read(self.job.errors))
            if len(found) >= count:
                return [(int(rank), int(pid)) for rank, pid in found]
            said = self.job.read(self.job.errors) + self.job.read_shared()
            self.assertIsNone(self.job.process.poll(), f"it did not wait: {said}")
            self.assertLess(time.monotonic(), deadline, said)
            time.sleep(0.01)

    def ends(self, expected):
        code, output, errors = self.job.wait()
        self.assertEqual(code, expected, output + errors)
        self.assertEqual(self.job.wait_until_gone(), [])
        return output, errors

    def test_ranks_freeze_at_start_and_continue_one_by_one(self):
        self.start("limits", GASNET_FREEZE="1")
        ranks = dict(self.frozen(SIZE))
        self.assertEqual(sorted(ranks), list(range(SIZE)))
        os.kill(ranks[0], signal.SIGCONT)
        self.assertNotIn("rank 1", self.job.read_shared())
        os.kill(ranks[1], signal.SIGCONT)
        output, errors = self.ends(0)
        self.assertEqual(output.count(" done\n"), SIZE, output + errors)
        self.assertEqual(len(FROZEN.findall(errors)), SIZE)

    def test_value_no_does_not_freeze(self):
        for value in ("0", "no"):
            self.start("limits", GASNET_FREEZE=value)
            self.assertNotIn("frozen", self.ends(0)[1])

    def test_value_other_than_yes_and_no_is_reported_and_does_not_freeze(self):
        self.start("limits", GASNET_FREEZE="perhaps")
        _, errors = self.ends(0)
        self.assertEqual(errors.count("GASNET_FREEZE=perhaps: invalid value"), 1, errors)
        self.assertNotIn("frozen", errors)

    # A rank that dies ends the job, even if other ranks wait.
    def test_frozen_ranks_end_with_the_job(self):
        self.start("limits", GASNET_FREEZE="y")
        os.kill(dict(self.frozen(SIZE))[1], signal.SIGKILL)
        self.ends(137)

    def test_a_signal_freezes(self):
        self.start("limits", GASNET_FREEZE="y", GASNET_FREEZE_SIGNAL="SIGUSR1", size=1)
        (_, pid), = self.frozen(1)
        os.kill(pid, signal.SIGUSR1)
        self.assertEqual(self.frozen(2)[1], (0, pid))
        os.kill(pid, signal.SIGCONT)
        self.ends(0)

    def test_fatal_error_freezes_once(self):
        self.start("misused-lock", "none", mode="seq_debug", GASNET_FREEZE_ON_ERROR="1", size=1)
        (_, pid), = self.frozen(1)
        self.assertIn("FATAL ERROR (rank 0)", self.job.read(self.job.errors))
        os.kill(pid, signal.SIGCONT)
        _, errors = self.ends(134)
        self.assertEqual(len(FROZEN.findall(errors)), 1, errors)

    def test_fault_freezes_and_prints_a_backtrace(self):
        self.start("limits", GASNET_FREEZE="1", GASNET_FREEZE_ON_ERROR="1", GASNET_BACKTRACE="1", size=1)
        (_, pid), = self.frozen(1)
        os.kill(pid, signal.SIGSEGV)
        self.frozen(2)
        self.assertIn("Caught a fatal signal (rank 0): SEGV(11)", self.job.read(self.job.errors))
        os.kill(pid, signal.SIGCONT)
        _, errors = self.ends(139)
        self.assertRegex(errors, r"#0 +0x[0-9a-f]+")

    def test_excluded_signals_are_recognised_by_every_name(self):
        cases = {"SIGSEGV": True, "segv": True, "BUS,11": True, "*": True, "sigsegv,sigbus": True,
                 "SEGVX": False, "1": False, "BUS": False, "": False}
        for names, is_left in cases.items():
            with self.subTest(names=names):
                self.start("limits", GASNET_FREEZE="1", GASNET_NO_CATCH_SIGNAL=names, GASNET_BACKTRACE="1",
                           size=1)
                (_, pid), = self.frozen(1)
                os.kill(pid, signal.SIGSEGV)
                _, errors = self.ends(139)
                self.assertEqual("Caught a fatal signal" not in errors, is_left, errors)

    def test_error_without_settings_prints_no_backtrace(self):
        self.start("misused-lock", "none", mode="seq_debug", size=1)
        _, errors = self.ends(134)
        self.assertNotRegex(errors, "frozen|BACKTRACE|#0")


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C")
    unittest.main()
