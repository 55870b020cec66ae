#!/usr/bin/python3
"""Runs progress_client: with HYDRANT_PROGRESS_THREAD a computing rank answers, in jobs with threads.

progress_jobs_test.py FOLDER_OF_THE_CLIENTS
"""
import math
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from client_jobs import over, run_job  # the path must be set first

FOLDER = pathlib.Path()


class Progress(unittest.TestCase):
    def run_client(self, mode, ranks, longest=math.ceil(60 * over.PATIENCE), **settings):
        client = str(FOLDER / f"progress_client_{mode}")
        return run_job(client, ranks, str(longest), seconds=120, **settings)

    def test_computing_rank_answers(self):
        for network in ("", "delay=5us,depth=16,pins"):
            for ranks in (2, 3):
                with self.subTest(network=network, ranks=ranks):
                    status, text = self.run_client("par", ranks, HYDRANT_PROGRESS_THREAD="y",
                                                   HYDRANT_INJECT=network)
                    self.assertEqual(status, 0, text)
                    self.assertIn("answered", text)

    def test_computing_rank_does_not_answer_without_the_thread(self):
        status, text = self.run_client("par", 2, longest=2)
        self.assertNotEqual(status, 0, text)
        self.assertIn("rank 1: not in 2 s", text)

    def test_single_threaded_client_gets_a_warning(self):
        _, text = self.run_client("seq", 2, longest=2, HYDRANT_PROGRESS_THREAD="y")
        self.assertEqual(text.count("Compile it with GASNET_PAR"), 1, text)


if __name__ == "__main__":
    FOLDER = pathlib.Path(sys.argv.pop())
    unittest.main()
