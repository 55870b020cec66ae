#!/usr/bin/python3
"""Runs atomics_client as jobs of 1 to 5 ranks, over each kind of path.

atomics_jobs_test.py PATH_OF_ATOMICS_CLIENT_PAR PATH_OF_ATOMICS_CLIENT_DEBUG (which has GASNET_DEBUG)
"""
import json
import os
import pathlib
import re
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from client_jobs import over, run_job  # the path must be set first

CLIENTS = []
SECONDS = 60
# The text in the output by the wrong call.
WRONG = {"arguments": "all members have to pass the same",
         "type": "all members have to pass the same",
         "bits": "ops contains GEX_OP_XOR",
         "operation": "GEX_OP_INC is not among the domain's operations",
         "aligned": "is not aligned: it has to be a multiple of 8",
         "rank": "rank 2 is not in the domain's team of 2 ranks",
         "segment": "segment",
         "own_segment": "segment",
         "null": "result_p is NULL",
         "handler": "gex_AD_OpNB_U64",
         "twice": "is not an atomic domain, or was destroyed before"}
WRONG_IN_DEBUG = {"destroyed": "is not an atomic domain, or was destroyed",
                  "lock": "lock",
                  "segment": "targets have to lie in a segment of their rank",
                  "team": "destroy the domain before its team"}
WAYS = {"mapped": {}, "messages": {"HYDRANT_PATH": "am"}}
INJECTED = {"injected": {"HYDRANT_INJECT": "delay=5us"}, "pinned": {"HYDRANT_INJECT": "delay=5us,pins"}}
# Ways over which domains that favour remote targets use the adapter.
ADAPTER = [INJECTED["pinned"]]


class AtomicsJobs(unittest.TestCase):
    def holds(self, client, ranks, what, rounds, **extra):
        with self.subTest(client=client, ranks=ranks, what=what, **extra):
            status, text = run_job(client, ranks, what, str(rounds), seconds=SECONDS, **extra)
            self.assertEqual((status, "all held" in text), (0, True), text)

    def in_each_way(self, what, rounds, ranks):
        for way in over.ways({**WAYS, **INJECTED}).values():
            for client in CLIENTS:
                for number in ranks:
                    self.holds(client, number, what, rounds if not way else rounds // 4, **way)

    def test_operations_follow_the_model(self):
        self.in_each_way("model", 400, (1, 3))

    def test_counters_of_ranks_and_threads(self):
        self.in_each_way("counter", 200, (3,))

    def test_histories_are_linearisable(self):
        self.in_each_way("histories", 40, (3,))

    def test_two_words_are_in_one_order(self):
        self.in_each_way("order", 40, (2,))

    def in_domains_of_the_adapter(self, what, rounds, ranks):
        for client in CLIENTS:
            for number in ranks:
                self.holds(client, number, what, rounds, **over.ways(ADAPTER)[0])

    def test_operations_of_the_adapter_follow_the_model(self):
        self.in_domains_of_the_adapter("adapter_model", 400, (1, 3))

    def test_counters_by_the_adapter(self):
        self.in_domains_of_the_adapter("adapter_counter", 100, (3,))

    def test_histories_of_the_adapter_are_linearisable(self):
        self.in_domains_of_the_adapter("adapter_histories", 20, (3,))

    @unittest.skipIf(over.OVER, "it takes minutes in a guest")
    def test_more_ranks_and_rounds_by_the_adapter(self):
        for what, rounds in (("model", 2000), ("counter", 400), ("histories", 100)):
            self.in_domains_of_the_adapter(f"adapter_{what}", rounds, (2, 5))

    def test_a_rank_that_is_killed_ends_the_job(self):
        ways = [("killed", way) for way in (*WAYS.values(), *INJECTED.values())]
        ways += [("adapter_killed", way) for way in ADAPTER]
        if over.OVER:
            ways = [(what, {}) for what in ("killed", "adapter_killed")]
        for rounds, (what, way) in enumerate(ways, 1):
            ranks = 2 + rounds % 2
            with self.subTest(what=what, ranks=ranks, **way):
                status, output = run_job(CLIENTS[0], ranks, what, str(200 * rounds),
                                         seconds=SECONDS, **way)
                self.assertNotEqual(status, 0, output)
                self.assertRegex(output, rf"rank {ranks - 1} .*signal 9")
                self.assertNotRegex(output, "WRONG|did not end")

    def test_a_rank_that_leaves_ends_the_job_without_an_error(self):
        # Over verbs its adapter refuses operations before its end is known.
        for way in over.ways(ADAPTER):
            for rounds in (100, 200, 300, 400):
                with self.subTest(rounds=rounds, **way):
                    status, output = run_job(CLIENTS[0], 2, "adapter_left", str(rounds), seconds=SECONDS,
                                             **way)
                    self.assertEqual(status, 0, output)
                    self.assertNotRegex(output, "FATAL|did not end")

    @unittest.skipIf(over.OVER, "it takes minutes in a guest")
    def test_more_ranks_and_rounds(self):
        for what, rounds in (("model", 2000), ("counter", 1000), ("histories", 200)):
            self.in_each_way(what, rounds, (2, 5))

    def test_each_call_does_what_it_says(self):
        for client in CLIENTS:
            for ranks in (1, 2, 5):
                self.holds(client, ranks, "calls", 1)
        self.holds(CLIENTS[0], 2, "calls", 1, HYDRANT_PATH="am")

    @unittest.skipIf(over.OVER, "it reads the sources, which a guest lacks")
    def test_each_name_of_the_list_is_called(self):
        here = pathlib.Path(__file__).resolve().parent
        text = "".join(path.read_text() for path in here.glob("*.[ch]pp"))
        names = [line for line in (here / "names.txt").read_text().split() if not line.startswith("#")]
        self.assertGreater(len(names), 55)
        self.assertEqual([name for name in names if not re.search(rf"\b{name}\b", text)], [])

    def counts(self, what="model", **extra):
        """Operations of rank 0 by path."""
        with tempfile.TemporaryDirectory() as folder:
            self.holds(CLIENTS[0], 2, what, 100, HYDRANT_STATS=f"json:{folder}/%r", **extra)
            return json.loads(pathlib.Path(folder, "0").read_text())["atomics"]

    @unittest.skipIf(over.OVER, "shared memory is what it counts")
    def test_operations_are_counted_by_path(self):
        counts = self.counts()
        self.assertEqual((counts["self"] > 0, counts["mapped"] > 0, counts["messages"]), (True, True, 0))
        counts = self.counts(HYDRANT_PATH="am")
        self.assertEqual((counts["self"], counts["mapped"], counts["messages"] > 0), (0, 0, True))
        counts = self.counts(HYDRANT_INJECT="delay=5us")
        self.assertEqual((counts["self"] > 0, counts["mapped"], counts["messages"] > 0), (True, 0, True))

    def test_all_operations_of_a_domain_go_through_the_adapter_or_none(self):
        # A second domain of the counter's job has words of 32 bits, which adapters lack.
        for what in ("adapter_histories", "adapter_counter"):
            counts = self.counts(what, **over.ways(ADAPTER)[0])
            self.assertEqual((counts["adapter"] > 0, counts["mapped"]), (True, 0))
            self.assertEqual(counts["self"] + counts["messages"] > 0, what == "adapter_counter")
        for extra in ({}, {"HYDRANT_PATH": "am"}, INJECTED["injected"]):
            if not over.OVER or extra == {"HYDRANT_PATH": "am"}:
                self.assertEqual(self.counts("adapter_histories", **extra)["adapter"], 0)

    @unittest.skipIf(over.OVER, "it limits what an injected adapter pins")
    def test_segments_that_cannot_be_pinned_are_left_to_processors(self):
        few = {"HYDRANT_INJECT": "delay=5us,pins=1M"}
        for what in ("adapter_model", "adapter_counter"):
            self.holds(CLIENTS[0], 3, what, 40, **few)
        self.assertEqual(self.counts("adapter_histories", **few)["adapter"], 0)

    @unittest.skipIf(over.OVER, "it limits what an injected adapter pins")
    def test_domains_share_the_pin_of_a_segment(self):
        counts = self.counts("adapter_many", HYDRANT_INJECT="delay=5us,pins=3M")
        self.assertEqual((counts["adapter"], counts["messages"], counts["self"]), (8, 0, 0))

    @unittest.skipIf(over.OVER, "it depends on the adapter how often that happens")
    @unittest.skipIf(os.cpu_count() < 2, "two ranks have to run at the same time")
    def test_adapters_and_processors_lose_updates_of_one_word(self):
        status, output = run_job(CLIENTS[0], 2, "mixed", "5000", seconds=SECONDS, **over.ways(ADAPTER)[0])
        self.assertIn("updates were lost", output)
        self.assertNotEqual(status, 0)

    def test_wrong_calls_end_the_job_with_a_text(self):
        for what, text in WRONG.items():
            self.ends_with(CLIENTS[0], what, text)
        for what, text in WRONG_IN_DEBUG.items():
            self.ends_with(CLIENTS[1], what, text)
        for what in ("segment", "own_segment"):
            for client in CLIENTS:
                self.ends_with(client, what, "segment", HYDRANT_PATH="am")
        for way in over.ways(ADAPTER):
            self.ends_with(CLIENTS[0], "adapter_segment", "had when the domain was made", **way)

    def test_the_reason_for_the_way_of_a_domain_is_logged(self):
        wanted = {"": "the segments of all members are mapped" if not over.OVER else "uses the adapter",
                  "am": "is not reached by operations on pinned memory|no atomic operations on pinned memory"}
        for path, text in wanted.items():
            extra = {"HYDRANT_PATH": path} if path else {}
            status, output = run_job(CLIENTS[0], 2, "adapter_histories", "1", seconds=SECONDS,
                                     HYDRANT_LOG="info", **extra)
            self.assertEqual(status, 0, output)
            self.assertRegex(output, f"an atomic domain of GEX_DT_[A-Z0-9]+ and 2 ranks .*({text})")
        for way in over.ways(ADAPTER):
            _, output = run_job(CLIENTS[0], 2, "adapter_counter", "1", seconds=SECONDS, HYDRANT_LOG="info",
                                **way)
            self.assertRegex(output, "GEX_DT_U64 and 2 ranks uses the adapter")

    def ends_with(self, client, what, text, **extra):
        with self.subTest(client=client, what=what, **extra):
            status, output = run_job(client, 2, what, "1", seconds=SECONDS, **extra)
            self.assertNotEqual(status, 0)
            self.assertIn(text, output)

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
        self.survives_a_failed_allocation((0, 2))
        self.survives_a_failed_allocation((1, 4), HYDRANT_PATH="am")

    def test_any_failed_allocation_ends_the_job_with_a_text(self):
        for path in ("auto", "am"):
            self.assertFalse(self.survives_a_failed_allocation(range(60), HYDRANT_PATH=path))


if __name__ == "__main__":
    CLIENTS = sys.argv[-2:]
    del sys.argv[-2:]
    unittest.main()
