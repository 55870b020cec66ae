#!/usr/bin/python3
"""kill_storm_test.py BUILD_FOLDER

Jobs that attach segments, put, run barriers and exit, of which a random rank is killed at a random time: the
status is that of the signal, one line names rank and signal, and nothing is left. A kill that came too late
to matter (status 0 and no line) does not count.

100 kills of jobs that touch 4 GiB in all (some 5 minutes), 1000 with HYDRANT_TEST_LONG=1.
HYDRANT_TEST_KILLS and HYDRANT_TEST_MEGABYTES (of one rank's segment) override that;
HYDRANT_TEST_SEED=N repeats a run.
"""
import os
import pathlib
import random
import re
import signal
import sys
import time
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "launch"))
from jobs import Build, Job, leftovers, new_leftovers  # the path must be set first

ROOT = sys.argv.pop()
LONG = bool(os.environ.get("HYDRANT_TEST_LONG"))
SIZE = 3
KILLS = int(os.environ.get("HYDRANT_TEST_KILLS") or (1000 if LONG else 100))
MEGABYTES = int(os.environ.get("HYDRANT_TEST_MEGABYTES") or 4096 // SIZE)
SEED = int(os.environ.get("HYDRANT_TEST_SEED") or 1)
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM)


class ClientBuild(Build):
    def __init__(self):
        super().__init__(ROOT)
        self.probe = str(pathlib.Path(ROOT) / "tests/integration/lost/end_client")


def children(pid):
    """The children in the order of their start, which is that of the ranks."""
    try:
        text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii")
        return [int(word) for word in text.split()]
    except OSError:
        return []


class KillStorm(unittest.TestCase):
    def start(self, launcher):
        # A busy machine may need longer to touch the memory than a wait is silent.
        job = Job(ClientBuild(), launcher, SIZE, "storm", "-", str(MEGABYTES), GASNET_EXITTIMEOUT="10",
                  GASNET_MAX_SEGSIZE=f"{MEGABYTES}MB", HYDRANT_WAIT_WARN="never")
        self.addCleanup(job.kill_all)
        return job

    def kill_one(self, launcher, rank, number, after):
        """True if the signal found the rank alive, as far as this process can tell."""
        job = self.start(launcher)
        deadline = time.monotonic() + after
        ranks = []
        while job.process.poll() is None and (time.monotonic() < deadline or len(ranks) <= rank):
            ranks = children(job.process.pid) if len(ranks) <= rank else ranks
            time.sleep(0.0005)
        has_run = False
        if len(ranks) > rank:
            try:
                os.kill(ranks[rank], number)
                has_run = True
            except ProcessLookupError:
                pass
        code, output, errors = job.wait()
        self.assertEqual(job.wait_until_gone(), [], errors)
        return has_run, code, output, errors

    def test_kills(self):
        print(f"seed {SEED}: {KILLS} kills, {SIZE} ranks, {MEGABYTES} MiB each", flush=True)
        chance = random.Random(SEED)
        launchers = (["hydrant-run"] if Build(ROOT).has_hydrant_run() else []) + ["fork"]
        before = leftovers()
        start = time.monotonic()
        code, output, errors = self.start(launchers[0]).wait()
        self.assertEqual((code, errors), (0, ""), output)
        lasts = time.monotonic() - start
        counts = {"killed": 0, "too late": 0}
        progress = 0
        while counts["killed"] < KILLS:
            kill = counts["killed"] + counts["too late"]
            self.assertLess(counts["too late"], 100 + 10 * KILLS, counts)
            if counts["killed"] >= progress + 50:
                progress = counts["killed"]
                print(counts, flush=True)
            launcher, rank, number = chance.choice(launchers), chance.randrange(SIZE), chance.choice(SIGNALS)
            after = chance.random() * lasts
            start = time.monotonic()
            has_run, code, output, errors = self.kill_one(launcher, rank, number, after)
            what = f"kill {kill}: {launcher}, {number.name} of rank {rank} after {after:.3f} s of " \
                   f"{lasts:.3f}: status {code}\n{output}{errors}"
            if code == 0:
                counts["too late"] += 1
                self.assertEqual(errors, "", what)
                # The first job may have taken longer than later ones.
                lasts = 0.9 * lasts + 0.1 * (time.monotonic() - start)
                continue
            counts["killed"] += 1
            self.assertTrue(has_run, what)
            self.assertEqual(code, 128 + number, what)
            line = rf"hydrant(-run)?: rank {rank} \(pid \d+\) was killed by signal {int(number)} " \
                   rf"\({re.escape(signal.strsignal(number))}(, core dumped)?\); " \
                   r"the job is ended( \(GASNET_B.*\))?\n"
            self.assertRegex(errors, rf"\A{line}\Z", what)
        print(counts, flush=True)
        self.assertEqual(new_leftovers(before), set())


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C")
    unittest.main()
