#!/usr/bin/python3
"""Runs broadcast_client as jobs of 1 to 5 ranks, on every path of the data.

broadcast_jobs_test.py PATH_OF_BROADCAST_CLIENT
"""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from client_jobs import over, run_job  # the path must be set first

CLIENT = ""
SECONDS = 100
PATHS = ("auto", "am", "am_medium", "am_long")


def run(ranks, *arguments, **extra):
    return run_job(CLIENT, ranks, *arguments, seconds=SECONDS, **extra)


class BroadcastJobs(unittest.TestCase):
    def holds(self, ranks, what, rounds, **extra):
        with self.subTest(ranks=ranks, **extra):
            status, text = run(ranks, what, str(rounds), **extra)
            self.assertEqual((status, "all held" in text), (0, True), text)

    def test_random_roots_lengths_and_buffers(self):
        for path in PATHS:
            for ranks in (1, 2, 3, 5):
                self.holds(ranks, "many", 40, HYDRANT_PATH=path)

    def test_few_operations_under_way(self):
        self.holds(3, "many", 20, HYDRANT_PATH="am", GASNET_NETWORKDEPTH="1")

    @unittest.skipIf(over.OVER, "the network is what there is")
    def test_freed_buffers_between_pinned_memory(self):
        for ranks in (2, 3, 5):
            self.holds(ranks, "many", 40, HYDRANT_INJECT="delay=20us,bandwidth=2G,pins")
        # Little room: one get uses one buffer.
        self.holds(3, "many", 40, HYDRANT_INJECT="delay=20us,pins", FIREHOSE_BUDGET="32K",
                   FIREHOSE_REMOTE_BUDGET="8K", HYDRANT_BOUNCE_MAX="4096", HYDRANT_BOUNCE_POOL="16K")

    def test_polls_are_enough(self):
        for path in PATHS:
            self.holds(3, "polled", 5, HYDRANT_PATH=path)

    def test_wrong_calls_end_the_job(self):
        for what, text in {"root": "the root rank 2 does not exist", "null": "an address is NULL"}.items():
            status, output = run(2, what, "1")
            self.assertNotEqual(status, 0)
            self.assertIn("gex_Coll_BroadcastNB", output)
            self.assertIn(text, output)


if __name__ == "__main__":
    CLIENT = sys.argv.pop()
    unittest.main()
