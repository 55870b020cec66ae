#!/usr/bin/python3
"""network_jobs_test.py BUILD_FOLDER

Runs the clients of other tests over datagram_network.cpp, a network that has messages alone, with the
shortest payloads that are allowed.
"""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))
from client_jobs import run_job  # the path must be set first

BUILD = pathlib.Path(sys.argv.pop()).resolve()


class Networks(unittest.TestCase):
    def run_client(self, client, ranks, *arguments, **extra):
        variables = {"HYDRANT_INJECT": "datagrams", "HYDRANT_SEGMENT_CHECK": "n",
                     "HYDRANT_LOG": "info", **extra}
        return run_job(str(BUILD / "tests/integration" / client), ranks, *arguments,
                       LD_LIBRARY_PATH=str(BUILD / "tests/network"), **variables)

    def hold(self, *jobs, **extra):
        for client, ranks, *arguments in jobs:
            with self.subTest(client=client, ranks=ranks, arguments=arguments):
                status, text = self.run_client(client, ranks, *arguments, **extra)
                good = "all held\n" in text or text.count(" done\n") == ranks
                self.assertEqual((status, good), (0, True), text)
                self.assertIn("transport datagrams", text)

    def test_each_part_of_the_api(self):
        self.hold(("rma/rma_client_par", 3, "model", "1", "2", "300", "4"),
                  ("rma/rma_client_par_debug", 2, "model", "2", "2", "300", "4"),
                  ("vis/vis_client_par", 2, "random", "1", "30"),
                  ("vis/vis_client_seq", 2, "under_way", "2", "2"),
                  ("atomics/atomics_client_par", 3, "model", "100"),
                  ("atomics/atomics_client_debug", 2, "order", "5"),
                  ("teams/teams_client_par", 4, "random", "6"),
                  ("teams/teams_client_seq", 3, "calls", "1"),
                  ("barrier/barrier_client", 3, "messages"),
                  ("am/core_client_par", 2, "diagnostics", ""),
                  ("am/core_client_seq", 4, "flood"))

    def test_more(self):
        self.hold(("rma/rma_client_par", 4, "model", "3", "4", "3000", "20"),
                  ("rma/rma_client_par", 2, "neighbours", "1"),
                  ("rma/rma_client_par", 2, "recycling"),
                  ("rma/rma_client_par", 2, "long", "am_long", "am_long"),
                  ("vis/vis_client_par", 2, "persistent", "3", "50"),
                  ("atomics/atomics_client_par", 3, "counter", "50"),
                  ("atomics/atomics_client_par", 3, "histories", "20"),
                  ("teams/teams_client_par", 5, "random", "12"),
                  ("am/core_client_par", 3, "threads"),
                  ("am/core_client_seq", 3, "sizes"),
                  ("barrier/barrier_client", 4, "rules"),
                  ("barrier/barrier_client", 9, "events"))

    def test_kept_messages_leave_while_a_rank_waits_to_attach(self):
        # Rank 0 passes this barrier by sending to all others, and polls no more before it attaches.
        self.hold(("am/core_client_seq", 3, "flood"),
                  ("barrier/barrier_client", 3, "messages"),
                  HYDRANT_INJECT="datagrams,kept", GASNET_BARRIER="AMCENTRAL")

    def test_a_rank_that_is_killed_ends_the_job(self):
        status, text = self.run_client("am/core_client_seq", 3, "exit", "killed")
        self.assertEqual(status, 137, text)


if __name__ == "__main__":
    unittest.main()
