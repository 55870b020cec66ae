#!/usr/bin/python3
"""Runs waiting_client: ranks that sleep in poll(2), epoll(7) or hydrant_wait_for_message().

waiting_jobs_test.py FOLDER_OF_THE_CLIENTS
"""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from client_jobs import over, run_job  # the path must be set first

FOLDER = pathlib.Path()
NETWORKS = ("", "send_only", "delay=5us,depth=16,pins")


class Waiting(unittest.TestCase):
    def run_client(self, mode, scenario, ranks=2, **settings):
        client = str(FOLDER / f"waiting_client_{mode}")
        return run_job(client, ranks, scenario, str(int(30000 * over.PATIENCE)), seconds=120, **settings)

    def check(self, scenario, modes=("seq", "par"), networks=NETWORKS, **settings):
        for mode in modes:
            for network in networks:
                with self.subTest(mode=mode, network=network):
                    status, text = self.run_client(mode, scenario, HYDRANT_INJECT=network, **settings)
                    self.assertEqual(status, 0, text)
                    self.assertIn("done", text)

    def test_rank_sleeps_until_a_message_comes(self):
        self.check("sleep")

    def test_random_rounds(self):
        self.check("rounds")

    def test_four_ranks(self):
        status, text = self.run_client("par", "rounds", ranks=4)
        self.assertEqual(status, 0, text)

    def test_beside_the_progress_thread(self):
        self.check("rounds", modes=("par",), networks=("",), HYDRANT_PROGRESS_THREAD="y")

    def test_edge_triggered_epoll(self):
        self.check("edges")

    def test_threads(self):
        self.check("threads", modes=("par",))

    def test_threads_that_never_sleep(self):
        self.check("spinning_threads", modes=("par",), networks=("",))

    def test_barrier(self):
        self.check("barrier", networks=("", "delay=5us,depth=16,pins"))

    def test_words_of_adapters(self):
        self.check("words", networks=("delay=5us,pins",), GASNET_BARRIER="RDMADISSEM")

    def test_limits_and_wrong_arguments(self):
        self.check("errors", networks=("",))
        for mode in ("seq", "par"):
            status, text = self.run_client(mode, "errors", ranks=1)
            self.assertEqual(status, 0, text)

    def test_death_of_a_peer(self):
        for mode in ("seq", "par"):
            status, text = self.run_client(mode, "death")
            self.assertEqual(status, 137, text)
            self.assertNotIn("time limit", text)


if __name__ == "__main__":
    FOLDER = pathlib.Path(sys.argv.pop())
    unittest.main()
