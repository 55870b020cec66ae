#!/usr/bin/python3
"""Runs lost_client: if a rank loses a peer, the job ends and reports why, whatever the ranks do.

lost_jobs_test.py PATH_OF_LOST_CLIENT
"""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from client_jobs import run_job  # the path must be set first

CLIENT = ""


class Lost(unittest.TestCase):
    def test_the_job_ends_with_the_reason(self):
        for what in ("poll", "compute", "wait"):
            with self.subTest(what=what):
                status, text = run_job(CLIENT, 3, what)
                self.assertNotIn("it did not end", text)
                self.assertEqual(status, 1, text)
                self.assertIn("rank 1 has lost rank 0 and ends the job: a test says so", text)


if __name__ == "__main__":
    CLIENT = sys.argv.pop()
    unittest.main()
