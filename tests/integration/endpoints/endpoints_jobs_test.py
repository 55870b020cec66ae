#!/usr/bin/python3
"""Runs endpoints_client as jobs of 1 to 4 ranks, over each kind of path.

endpoints_jobs_test.py PATH_OF_ENDPOINTS_CLIENT_SEQ PATH_OF_ENDPOINTS_CLIENT_PAR (which has GASNET_DEBUG)
"""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from client_jobs import over, run_job  # the path must be set first

CLIENTS = []
# Ranks of one node map the library's memory of each other's segments; with "arena" the client's as well.
MAPPED, ARENA = ("any", "any") if over.OVER == "ibv" else ("mapped", "arena")
SECONDS = 60
# The text in the output by the wrong use.
WRONG = {"nowhere": "sent a message to endpoint 20, which does not exist here",
         "handler": "for handler 200, which is not registered here"}
WRONG_IN_DEBUG = {"beyond": "of rank 0 (endpoint 1) are not in its segment; the range reaches 8 bytes "
                            "past the end",
                  "primordial": "of rank 0 are not in its segment",
                  "long": "of rank 0 (endpoint 1) are not in its segment",
                  "unpublished": "of rank 1 (endpoint 1), which has no segment that was published"}


class EndpointsJobs(unittest.TestCase):
    def holds(self, client, ranks, what, local="any", **extra):
        with self.subTest(client=client, ranks=ranks, **extra):
            status, text = run_job(client, ranks, what, local, seconds=SECONDS, **extra)
            self.assertEqual((status, "all held" in text), (0, True), text)

    def test_segments_of_endpoints(self):
        for client in CLIENTS:
            for ranks in (1, 2, 4):
                self.holds(client, ranks, "all", MAPPED)
                self.holds(client, ranks, "all", ARENA)

    def test_every_path_of_data(self):
        for path in ("am", "am_medium", "am_long", "cma"):
            self.holds(CLIENTS[0], 3, "all", HYDRANT_PATH=path)
        self.holds(CLIENTS[0], 3, "all", MAPPED, HYDRANT_PATH="mapped")
        self.holds(CLIENTS[0], 2, "all", MAPPED, HYDRANT_CMA="n")
        self.holds(CLIENTS[0], 3, "all", GASNET_SUPERNODE_MAXSIZE="1")
        self.holds(CLIENTS[1], 2, "all", HYDRANT_PATH="am")

    @unittest.skipIf(over.OVER, "the network is what there is")
    def test_injected_network(self):
        for inject in ("delay=20us,bandwidth=2G,pins", "delay=5us", "send_only"):
            for client in CLIENTS:
                self.holds(client, 3, "all", HYDRANT_INJECT=inject)
                self.holds(client, 2, "all", "arena", HYDRANT_INJECT=inject)
        # Little room: one get uses one buffer.
        self.holds(CLIENTS[0], 2, "all", HYDRANT_INJECT="delay=20us,pins", FIREHOSE_BUDGET="32K",
                   FIREHOSE_REMOTE_BUDGET="8K", HYDRANT_BOUNCE_MAX="4096", HYDRANT_BOUNCE_POOL="16K")

    def test_segments_that_are_destroyed_leave_no_memory(self):
        for ranks in (1, 3):
            self.holds(CLIENTS[0], ranks, "growth", MAPPED)
            self.holds(CLIENTS[0], ranks, "growth", ARENA)
        if not over.OVER:
            self.holds(CLIENTS[0], 2, "growth", HYDRANT_INJECT="delay=5us,pins")

    def test_segments_without_an_attach(self):
        for client in CLIENTS:
            for ranks in (1, 3):
                self.holds(client, ranks, "unattached", MAPPED)
        self.holds(CLIENTS[0], 2, "unattached", HYDRANT_PATH="am")

    def test_wrong_use_ends_the_job_with_a_text(self):
        for what, text in WRONG.items():
            self.ends_with(CLIENTS[0], what, text)
        for what, text in WRONG_IN_DEBUG.items():
            self.ends_with(CLIENTS[1], what, text)

    def ends_with(self, client, what, text):
        with self.subTest(what=what):
            status, output = run_job(client, 2, what, "any", seconds=SECONDS)
            self.assertNotEqual(status, 0)
            self.assertIn(text, output)


if __name__ == "__main__":
    CLIENTS = sys.argv[-2:]
    del sys.argv[-2:]
    unittest.main()
