#!/usr/bin/python3
"""Runs progress_client: with HYDRANT_PROGRESS_THREAD a computing rank answers, in jobs with threads; and
own_word_client: ranks that wait in loops over other calls answer; and immediate_client: no call with
GEX_FLAG_IMMEDIATE waits, and what was accepted arrives.

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

    def test_loops_over_calls_serve_others(self):
        loops = [("am", call) for call in ("atomic", "implicit_atomic", "get", "event_get", "strided_get")]
        loops += [("cma", call) for call in ("peer", "strided_peer")]
        for path, call in loops:
            with self.subTest(path=path, call=call):
                status, text = run_job(str(FOLDER / "own_word_client"), 2, call, "300",
                                       str(math.ceil(30 * over.PATIENCE)), seconds=60, HYDRANT_PATH=path)
                self.assertEqual((status, text), (0, "all rounds\n"))

    def test_immediate_calls_do_not_wait_for_a_rank_that_sleeps(self):
        jobs = [(first, {"HYDRANT_PATH": "am_medium"}) for first in range(16)]
        jobs += [(0, {}), (0, {"HYDRANT_PATH": "am_long"})]
        jobs += [(first, {"HYDRANT_INJECT": "send_only"}) for first in (3, 9, 12, 16)]
        jobs += [(first, {"HYDRANT_INJECT": "depth=3,pins"}) for first in (10, 12, 15)]
        for first, settings in jobs:
            with self.subTest(first=first, settings=settings):
                status, text = run_job(str(FOLDER / "immediate_client"), 2, str(first), **settings)
                self.assertEqual(status, 0, text)
                # Up to three are always accepted where they use up no room, or less than there is.
                self.assertGreaterEqual(text.count("refused"), 14 if settings else 2, text)

    def test_immediate_calls_to_the_heap_do_not_wait(self):
        no_kernel = {"HYDRANT_CMA": "n"}
        jobs = [(first, "heap", no_kernel) for first in (3, 9, 12, 15)]
        jobs += [(first, "heap", {**no_kernel, "HYDRANT_VIS_PATH": "pieces"}) for first in (3, 12)]
        jobs += [(first, "unaided", {}) for first in (3, 12, 15)]
        for first, place, settings in jobs:
            with self.subTest(first=first, place=place, settings=settings):
                status, text = run_job(str(FOLDER / "immediate_client"), 2, str(first), place, **settings)
                self.assertEqual(status, 0, text)
                self.assertGreaterEqual(text.count("refused"), 12, text)

    def test_immediate_calls_end_beside_a_rank_that_polls(self):
        for settings in ({"HYDRANT_PATH": "am_medium"}, {"HYDRANT_INJECT": "send_only"},
                         {"HYDRANT_INJECT": "delay=5us,depth=4"}, {"HYDRANT_INJECT": "depth=3,pins"}):
            with self.subTest(settings=settings):
                status, text = run_job(str(FOLDER / "immediate_client"), 2, "retry", GASNET_NETWORKDEPTH="3",
                                       **settings)
                self.assertEqual((status, text), (0, ""))


if __name__ == "__main__":
    FOLDER = pathlib.Path(sys.argv.pop())
    unittest.main()
