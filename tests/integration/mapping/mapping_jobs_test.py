#!/usr/bin/python3
"""Runs mapping_client as jobs of 2 and 3 ranks: shared arenas are mapped when they are used repeatedly, other
memory is not.

mapping_jobs_test.py PATH_OF_MAPPING_CLIENT
"""
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from client_jobs import run_job  # the path must be set first

CLIENT = ""


class MappingJobs(unittest.TestCase):
    def counts(self, ranks, *arguments, **extra):
        """(operations by the kernel, through mappings) of the rank with the fewest mapped operations."""
        status, text = run_job(CLIENT, ranks, *arguments, **extra)
        self.assertEqual((status, text.count("all held")), (0, ranks), text)
        found = re.findall(r"cma (\d+) firehose (\d+)", text)
        return min(((int(cma), int(mapped)) for cma, mapped in found), key=lambda pair: pair[1])

    def test_arenas_are_mapped(self):
        for ranks in (2, 3):
            cma, mapped = self.counts(ranks)
            self.assertGreater(mapped, 0)
            self.assertEqual(cma + mapped, 1024)

    def test_other_memory_is_not(self):
        self.assertEqual(self.counts(2, "private"), (1024, 0))

    def test_no_mappings_with_another_path(self):
        cma, mapped = self.counts(2, HYDRANT_PATH="cma")
        self.assertGreaterEqual(cma, 1024)
        self.assertEqual(mapped, 0)
        self.assertEqual(self.counts(2, HYDRANT_PATH="am"), (0, 0))

    def test_with_forced_mappings_the_kernel_copies_the_rest(self):
        cma, mapped = self.counts(2, HYDRANT_PATH="firehose")
        self.assertGreater(mapped, 0)
        self.assertGreaterEqual(cma + mapped, 1024)  # includes the client's segment
        cma, mapped = self.counts(2, "private", HYDRANT_PATH="firehose")
        self.assertGreaterEqual(cma, 1024)
        self.assertEqual(mapped, 0)


if __name__ == "__main__":
    CLIENT = sys.argv.pop()
    unittest.main()
