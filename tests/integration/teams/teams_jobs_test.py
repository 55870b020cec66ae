#!/usr/bin/python3
"""Runs teams_client as jobs of 1 to 5 ranks, over each kind of path.

teams_jobs_test.py PATH_OF_TEAMS_CLIENT_SEQ PATH_OF_TEAMS_CLIENT_PAR (which has GASNET_DEBUG)
"""
import json
import pathlib
import re
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from client_jobs import over, run_job  # the path must be set first

CLIENTS = []
SECONDS = 100
# The text in the output by the wrong call.
WRONG = {"root": "gex_Coll_BroadcastNB: the root rank 2 does not exist",
         "order": "have to make the same calls in the same order",
         "length": "differ from those of rank",
         "unit": "differ from those of rank",
         "type": "gex_Coll_ReduceToOneNB: the operation",
         "count": "dt_cnt is 0",
         "pair": "a pair of endpoints (gex_TM_Pair()) is not a team",
         "color": "gex_TM_Split: the color -1 is negative",
         "scratch": "gex_TM_Split: scratch_size is 0",
         "args": "passes other args",
         "duplicate": "gex_TM_Create: args names the endpoint of rank 0 of the job a second time",
         "parts": "hydrant_exchange_nb: 2 parts of",
         "world": "the primordial team cannot be destroyed",
         "twice": "is not a team, or was destroyed",
         "early": "collective operations of the team are outstanding",
         "nulls": "gasnet_coll_gather: src is NULL, and the length is 8 bytes"}
WRONG_IN_DEBUG = {"destroyed": "is not a team of this job, or was destroyed",
                  "destroyed_put": "is not a team of this job, or was destroyed",
                  "overlap": "overlaps that of another team"}


class TeamsJobs(unittest.TestCase):
    def holds(self, client, ranks, what, rounds, **extra):
        with self.subTest(client=client, ranks=ranks, **extra):
            status, text = run_job(client, ranks, what, str(rounds), seconds=SECONDS, **extra)
            self.assertEqual((status, "all held" in text), (0, True), text)

    def test_random_teams_and_collectives(self):
        for client in CLIENTS:
            for ranks in (1, 2, 3, 4, 5):
                self.holds(client, ranks, "random", 12)
                self.holds(client, ranks, "random", 6, HYDRANT_COLL_NODE="messages")

    def test_every_path_of_data(self):
        for path in ("am", "am_medium", "am_long"):
            self.holds(CLIENTS[0], 3, "random", 6, HYDRANT_PATH=path)
        self.holds(CLIENTS[0], 4, "random", 6, HYDRANT_PATH="am", GASNET_NETWORKDEPTH="1")

    @unittest.skipIf(over.OVER, "the network is what there is")
    def test_injected_network(self):
        for inject in ("delay=20us,bandwidth=2G,pins", "delay=5us"):
            self.holds(CLIENTS[0], 4, "random", 6, HYDRANT_INJECT=inject)
        # Little room: one get uses one buffer.
        self.holds(CLIENTS[0], 3, "random", 6, HYDRANT_INJECT="delay=20us,pins", FIREHOSE_BUDGET="32K",
                   FIREHOSE_REMOTE_BUDGET="8K", HYDRANT_BOUNCE_MAX="4096", HYDRANT_BOUNCE_POOL="16K")

    def test_each_call_does_what_it_says(self):
        for client in CLIENTS:
            for ranks in (1, 2, 5):
                self.holds(client, ranks, "calls", 1)

    @unittest.skipIf(over.OVER, "it reads the sources, which a guest lacks")
    def test_each_name_of_the_list_is_called(self):
        here = pathlib.Path(__file__).resolve().parent
        text = "".join(path.read_text() for path in here.glob("*.[ch]pp"))
        names = [line for line in (here / "names.txt").read_text().split() if not line.startswith("#")]
        self.assertGreater(len(names), 60)
        self.assertEqual([name for name in names if not re.search(rf"\b{name}\b", text)], [])

    def counts(self, ranks, rounds, **extra):
        """Collectives of rank 0 by algorithm."""
        with tempfile.TemporaryDirectory() as folder:
            self.holds(CLIENTS[0], ranks, "random", rounds, HYDRANT_STATS=f"json:{folder}/%r", **extra)
            return json.loads(pathlib.Path(folder, "0").read_text())["collectives"]

    def test_each_algorithm_can_be_forced(self):
        for broadcast, other_broadcast, reduce_all, other_reduce_all, gather_all, other_gather_all in (
                ("tree", "flat", "doubling", "halving", "rounds", "flat"),
                ("flat", "tree", "halving", None, "flat", "rounds"),  # short vectors are never halved
                ("parts", "tree", "two_levels", "doubling", "rounds", "flat")):
            counts = self.counts(3, 12, HYDRANT_COLL_NODE="messages", HYDRANT_COLL_BROADCAST=broadcast,
                                 HYDRANT_COLL_REDUCE_ALL=reduce_all, HYDRANT_COLL_GATHER_ALL=gather_all)
            for name in (f"broadcast_{broadcast}", f"reduce_all_{reduce_all}", f"gather_all_{gather_all}"):
                self.assertGreater(counts.get(name, 0), 0, name)
            for name in (f"broadcast_{other_broadcast}", f"reduce_all_{other_reduce_all}",
                         f"gather_all_{other_gather_all}", "lines", "mapped", "slots"):
                self.assertNotIn(name, counts)

    @unittest.skipIf(over.OVER, "shared memory is what it counts")
    def test_ranks_of_a_node_use_lines_mapped_memory_and_slots(self):
        counts = self.counts(3, 12)
        for name in ("lines", "mapped", "slots", "reduce_tree", "exchange_flat"):
            self.assertGreater(counts.get(name, 0), 0, name)

    def test_mailboxes_between_nodes(self):
        pins = {} if over.OVER else {"HYDRANT_INJECT": "delay=5us,pins"}
        self.assertGreater(self.counts(4, 12, **pins).get("mailboxes", 0), 0)
        self.assertNotIn("mailboxes", self.counts(4, 6, HYDRANT_COLL_NET="messages", **pins))
        # Two levels use the lowest edges in turn, also where no two ranks share a node.
        for ranks in (3, 4, 5):
            self.assertGreater(self.counts(ranks, 12, HYDRANT_COLL_REDUCE_ALL="two_levels", **pins)
                               .get("mailboxes", 0), 0)

    @unittest.skipUnless(over.OVER == "mixed", "it needs ranks that share nodes, and several nodes")
    def test_two_levels_between_nodes(self):
        for ranks in (4, 5):
            counts = self.counts(ranks, 8, HYDRANT_COLL_NET="messages")
            self.assertGreater(counts.get("reduce_all_two_levels", 0), 0)

    @unittest.skipIf(over.OVER, "the network is what there is")
    def test_errors_beside_mailboxes(self):
        pins = {"HYDRANT_INJECT": "delay=5us,pins"}
        for what in ("order", "length", "early"):
            self.ends_with(CLIENTS[0], what, WRONG[what], **pins)
        self.holds(CLIENTS[0], 3, "growth", 1000, **pins)
        self.holds(CLIENTS[1], 4, "threads", 5, **pins)
        self.survives_a_failed_allocation((0, 3, 20), **pins)
        status, output = run_job(CLIENTS[0], 2, "random", "1", seconds=SECONDS, **pins,
                                 by_rank='[ $HYDRANT_JOB_RANK = 1 ] && export HYDRANT_COLL_NET=messages;')
        self.assertNotEqual(status, 0)
        self.assertIn("_GATHER_ALL of rank 1 differs", output)

    @unittest.skipIf(over.OVER, "the setting is of any job")
    def test_variables_of_gasnets_own_collectives_are_named(self):
        for level, count in (("info", 1), ("warning", 0)):
            status, output = run_job(CLIENTS[0], 2, "calls", "1", seconds=SECONDS, HYDRANT_LOG=level,
                                     GASNET_COLL_SCRATCH_SIZE="2K")
            self.assertEqual(status, 0)
            self.assertEqual(output.count("GASNET_COLL_SCRATCH_SIZE has no effect"), count, output)

    def test_polls_are_enough(self):
        for path in ("auto", "am", "am_medium", "am_long"):
            self.holds(CLIENTS[0], 3, "polled", 5, HYDRANT_PATH=path)

    def test_teams_that_are_destroyed_leave_no_memory(self):
        for ranks in (1, 3):
            self.holds(CLIENTS[0], ranks, "growth", 3000)

    def test_threads_with_disjoint_teams(self):
        for ranks in (2, 4):
            self.holds(CLIENTS[1], ranks, "threads", 8)
        self.holds(CLIENTS[1], 2, "threads", 8, HYDRANT_COLL_NODE="messages")

    def test_wrong_calls_end_the_job_with_a_text(self):
        for what, text in WRONG.items():
            self.ends_with(CLIENTS[0], what, text)
        for what, text in WRONG_IN_DEBUG.items():
            self.ends_with(CLIENTS[1], what, text)

    def ends_with(self, client, what, text, **extra):
        with self.subTest(what=what, **extra):
            status, output = run_job(client, 2, what, "1", seconds=SECONDS, **extra)
            self.assertNotEqual(status, 0)
            self.assertIn(text, output)

    @unittest.skipIf(over.OVER, "the setting is of one node")
    def test_ranks_with_another_setting_end_the_job(self):
        status, output = run_job(CLIENTS[0], 2, "random", "1", seconds=SECONDS,
                                 by_rank='[ $HYDRANT_JOB_RANK = 1 ] && export HYDRANT_COLL_NODE=messages;')
        self.assertNotEqual(status, 0)
        self.assertIn("_GATHER_ALL of rank 1 differs", output)

    def test_a_function_of_a_reduction_that_communicates_ends_the_job(self):
        for count in (1, 100, 5000):
            for client in CLIENTS:
                for what in ("user_collective", "user_test"):
                    with self.subTest(client=client, what=what, count=count):
                        status, output = run_job(client, 2, what, str(count), seconds=SECONDS)
                        self.assertNotEqual(status, 0)
                        self.assertRegex(output, "in the function of a reduction|in a handler, which may")
                status, output = run_job(CLIENTS[0], 2, "user_poll", str(count), seconds=SECONDS)
                self.assertEqual((status, "all held" in output), (0, True), output)

    def survives_a_failed_allocation(self, numbers, **extra):
        """False: fewer allocations happen."""
        for number in numbers:
            with self.subTest(number=number, **extra):
                status, output = run_job(CLIENTS[0], 2, "starved", str(number), seconds=SECONDS, **extra)
                self.assertNotIn("it did not end", output)
                if "nothing failed" in output:
                    return False
                if status != 0:
                    self.assertRegex(output, "no memory")
                else:
                    self.assertIn("all held", output)
        return True

    def test_a_failed_allocation_ends_the_job_with_a_text(self):
        self.survives_a_failed_allocation((0, 3, 20), HYDRANT_COLL_NODE="messages")
        self.survives_a_failed_allocation((0, 5))

    def test_any_failed_allocation_ends_the_job_with_a_text(self):
        for node in ("messages", "lines"):
            self.assertFalse(self.survives_a_failed_allocation(range(300), HYDRANT_COLL_NODE=node))

    def ends_with_the_killed_rank(self, kinds, path):
        """Kinds: eight collectives with 8, 4000 and 300,000 bytes on the heap, then in the segment."""
        for which in kinds:
            with self.subTest(which=which, path=path):
                status, output = run_job(CLIENTS[0], 3, "killed", str(which), seconds=SECONDS,
                                         HYDRANT_PATH=path)
                self.assertNotEqual(status, 0)
                self.assertIn("rank 2", output)
                self.assertNotIn("it did not end", output)

    def test_a_rank_that_is_killed_in_a_collective_ends_the_job(self):
        self.ends_with_the_killed_rank((0, 3, 7, 43), "auto")
        self.ends_with_the_killed_rank((19,), "am")

    def test_a_rank_that_is_killed_in_any_collective_ends_the_job(self):
        self.ends_with_the_killed_rank(range(48), "auto")
        self.ends_with_the_killed_rank(range(24), "am")


if __name__ == "__main__":
    CLIENTS = sys.argv[-2:]
    del sys.argv[-2:]
    unittest.main()
