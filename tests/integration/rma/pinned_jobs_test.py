#!/usr/bin/python3
"""pinned_jobs_test.py FOLDER_OF_CLIENTS

Runs rma_client as jobs over networks that move data only between pinned memory: the model by firehoses with
much and with hardly any room, messages of hits and misses, memory that goes away under firehoses (with the
library as it is, and with each of its mutants), persistent operations, local memory of every kind, a region
that is larger than memory, and peers that do not poll, or are killed during moves and recalls.
HYDRANT_TEST_LONG=1 makes it long, HYDRANT_TEST_SEED=N repeats a run. Times are only limits.
"""
import json
import os
import random
import re
import signal
import tempfile
import time
import unittest

from runs import GOOD, LONG, SEED, Clients, Job, RmaTestCase, main, over

NETWORK = "delay=20us,bandwidth=2G,pins"
# A few pages at either end, for the local domain and for peers' pins; everything misses.
TIGHT = {"FIREHOSE_BUDGET": "32K", "FIREHOSE_REMOTE_BUDGET": "8K", "HYDRANT_BOUNCE_MAX": "4096",
         "HYDRANT_BOUNCE_POOL": "16K"}
NETWORKS = {
    "much room": {"HYDRANT_INJECT": NETWORK},
    "a few pages": {"HYDRANT_INJECT": NETWORK, **TIGHT},
    "a few pages, nothing in moves": {"HYDRANT_INJECT": NETWORK, "HYDRANT_PUT_IN_MOVE_MAX": "0", **TIGHT},
    "page by page": {"HYDRANT_INJECT": NETWORK, "FIREHOSE_MODE": "page", "FIREHOSE_BUDGET": "256K"},
    "page by page, a few pages": {"HYDRANT_INJECT": NETWORK, "FIREHOSE_MODE": "page", **TIGHT},
    "one at a time": {"HYDRANT_INJECT": "delay=10us,depth=1,pins", "FIREHOSE_REMOTE_BUDGET": "64K"},
    "one at a time, hardly any credits": {"HYDRANT_INJECT": "delay=5us,depth=1,credits=2,pins", **TIGHT},
    "out of order": {"HYDRANT_INJECT": "delay=10us,reorder=100us,depth=4,pins",
                     "FIREHOSE_REMOTE_BUDGET": "64K"},
    "little memory may be pinned": {"HYDRANT_INJECT": "delay=10us,pins=256K", "HYDRANT_BOUNCE_MAX": "4096",
                                    "HYDRANT_BOUNCE_POOL": "16K"},
    "no buffers": {"HYDRANT_INJECT": "delay=10us,pins=64K", "FIREHOSE_BUDGET": "32K"},
    "one firehose for all": {"HYDRANT_INJECT": NETWORK, "FIREHOSE_REMOTE_MAX": "1",
                             "HYDRANT_PUT_IN_MOVE_MAX": "0"},
    "a fixed split, never merged": {"HYDRANT_INJECT": NETWORK, "FIREHOSE_REMOTE_BASE": "100",
                                    "FIREHOSE_REMOTE_MERGE": "1", "FIREHOSE_REMOTE_STREAM": "1",
                                    "FIREHOSE_REMOTE_BUDGET": "128K"},
    "by the adapter within a node, too": {"HYDRANT_INJECT": NETWORK, "HYDRANT_PATH": "nic"},
    "nothing is watched": {"HYDRANT_INJECT": NETWORK, "FIREHOSE_WATCH": "none"},
}
NETWORKS = over.ways(NETWORKS)
# Pins exactly the requested pages.
NO_MORE = {"FIREHOSE_REMOTE_MERGE": "1", "FIREHOSE_REMOTE_STREAM": "1"}
HUNTS = {
    "slow": {"HYDRANT_INJECT": "delay=20us,bandwidth=20M,pins"},
    "quick": {"HYDRANT_INJECT": "pins"},
    "out of order": {"HYDRANT_INJECT": "delay=10us,reorder=100us,depth=2,pins"},
    "little room": {"HYDRANT_INJECT": NETWORK, "FIREHOSE_REMOTE_BUDGET": "96K"},
    "small zombies": {"HYDRANT_INJECT": NETWORK, "FIREHOSE_REMOTE_ZOMBIES": "4K"},
    "nothing in moves": {"HYDRANT_INJECT": NETWORK, "HYDRANT_PUT_IN_MOVE_MAX": "0"},
    "by the adapter within a node, too": {"HYDRANT_INJECT": NETWORK, "HYDRANT_PATH": "nic"},
}
HUNTS = over.ways(HUNTS)
PLAIN = over.way({"HYDRANT_INJECT": NETWORK})
MUTANTS = ["drop-recall", "no-quarantine", "early-acknowledgement"]
HUNTED = re.compile(r"rank \d: (\d+) puts, (\d+) hits, (\d+) left under way, (\d+) held, (\d+) recalls, "
                    r"(\d+) addresses used again while exported, (\d+) refused")
# Seconds of one hunt.
HUNT = 120 if LONG else 1


class PinnedJobs(RmaTestCase):
    # ---- the model ----

    def test_model(self):
        for index, (name, network) in enumerate(NETWORKS.items()):
            with self.subTest(name):
                self.model("par", 2 + index % 3, SEED + index, **network)
                if LONG:
                    for variant in ("par_debug", "par_everything"):
                        self.model(variant, 2 + (index + 1) % 3, SEED + 20 + index, **network)

    def test_neighbouring_bytes(self):
        for name in {"much room", "a few pages, nothing in moves", "out of order"} & set(NETWORKS):
            with self.subTest(name):
                self.holds("par", 2, "neighbours", "0.3", **NETWORKS[name])

    def test_events_and_pieces_are_reused(self):
        for name in {"much room", "a few pages, nothing in moves", "one at a time"} & set(NETWORKS):
            with self.subTest(name):
                self.holds("par", 2, "recycling", **NETWORKS[name])

    # ---- messages sent ----

    def test_hit_sends_nothing_and_miss_takes_one_round_trip(self):
        for variables in ({}, {"FIREHOSE_MODE": "page"}, {"HYDRANT_PATH": "firehose"}):
            for variant in ("par", "par_debug", "par_everything"):
                with self.subTest(variant=variant, **variables):
                    self.holds(variant, 2, "messages", **PLAIN, **NO_MORE, **variables)

    def test_variables_of_the_program_hit_too(self):
        for variables in ({}, {"FIREHOSE_MODE": "page"}):
            with self.subTest(**variables):
                self.holds("par", 2, "variables", **PLAIN, **NO_MORE, **variables)

    def test_statistics_contain_firehoses(self):
        with tempfile.TemporaryDirectory() as folder:
            self.holds("par", 2, "neighbours", "0.1", **PLAIN,
                       HYDRANT_STATS=f"json:{folder}/%r")
            for rank in ("0", "1"):
                with open(f"{folder}/{rank}", encoding="utf-8") as file:
                    rows = [row for row in json.load(file)["firehoses"] if row["kind"] == "pinned"]
                self.assertEqual(len(rows), 1)
                self.assertGreater(rows[0]["hits"], 0)
                self.assertGreater(rows[0]["moves"], 0)
                self.assertGreater(rows[0]["served"], 0)
                self.assertEqual(rows[0]["zombies"], 0)

    def test_hits_do_not_need_the_target(self):
        self.holds("par", 2, "absent", **PLAIN)

    # ---- unmapped memory during a job ----

    def hunt(self, ranks, seed, seconds, mutant, **variables):
        return self.run_job("par", ranks, "stale", str(seconds), str(seed), mutant, **NO_MORE, **variables)

    def test_no_put_reaches_earlier_memory(self):
        for index, (name, variables) in enumerate(HUNTS.items()):
            for ranks in (2, 4):
                with self.subTest(name, ranks=ranks):
                    code, text = self.hunt(ranks, SEED + index, HUNT, "none", **variables)
                    self.assertEqual((code, GOOD in text), (0, True), text)
                    rows = [[int(number) for number in row] for row in HUNTED.findall(text)]
                    self.assertEqual(len(rows), ranks, text)
                    puts, hits, under_way, held, recalls, reused, refused = map(sum, zip(*rows))
                    # Each kind of event has happened.
                    for number in (puts, hits, under_way, held, recalls, reused):
                        self.assertGreater(number, 0, text)
                    self.assertEqual(refused, 0, text)

    def test_the_hunt_catches_mutants(self):
        for index, mutant in enumerate(MUTANTS):
            with self.subTest(mutant):
                ranks = 2 + index
                code, text = self.hunt(ranks, SEED, 60 * over.PATIENCE, mutant, **next(iter(HUNTS.values())))
                if "this build has no mutants" in text:
                    self.skipTest("built without HYDRANT_MUTANTS")
                self.assertEqual(code, 3, text)
                self.assertRegex(text, r"WRONG \(rank \d\): STALE")

    # ---- persistent operations and kinds of local memory ----

    def test_persistent_operations(self):
        ways = [{}, {"HYDRANT_PATH": "am"}, {"HYDRANT_PATH": "cma"}, {"HYDRANT_INJECT": "delay=20us"},
                {"HYDRANT_INJECT": NETWORK}, {"HYDRANT_INJECT": NETWORK, **TIGHT}]
        for index, way in enumerate(over.ways(ways)):
            with self.subTest(**way):
                self.holds("par", 1 + index % 3, "persistent", **way)
        self.holds("par_debug", 2, "persistent", **PLAIN)

    def test_local_memory_of_every_kind(self):
        self.holds("par", 2, "odd", "pinned", **PLAIN)
        pages = {"HYDRANT_INJECT": "delay=10us,pins", "FIREHOSE_MODE": "page"}
        self.holds("par", 2, "odd", "pinned", **over.way(pages))
        for way in over.ways([{"HYDRANT_INJECT": NETWORK, **TIGHT}, {}, {"HYDRANT_INJECT": "delay=20us"},
                              {"HYDRANT_PATH": "am"}]):
            with self.subTest(**way):
                self.holds("par", 2, "odd", "other", **way)

    def test_a_region_larger_than_memory(self):
        said = self.holds("par_everything", 2, "sparse", "60" if LONG else "2", str(SEED),
                          **PLAIN, FIREHOSE_BUDGET="4M")
        exported = [int(number) for number in re.findall(r"(\d+) bytes exported at most", said)]
        self.assertEqual(len(exported), 2, said)
        self.assertLessEqual(max(exported), 2 << 20)

    # ---- targets without memory ----

    def test_unmapped_memory(self):
        fault = r"bytes at 0x[0-9a-f]+ of rank 1 cannot be reached"
        ways = [{}, {"HYDRANT_PUT_IN_MOVE_MAX": "0"}, TIGHT]
        index = 0
        for form in ("blocking", "nb", "nbi", "region", "many"):
            for place in ("none", "ends", "read_only"):
                for suffix in ("", "-large", "-get", "-get-large"):
                    if "get" in suffix and (place == "read_only" or over.READS_ALL):
                        continue
                    what = f"{form}-{place}{suffix}"
                    for way in ways if LONG else [ways[index % len(ways)]]:
                        with self.subTest(what, **way):
                            code, text = self.run_job("par", 2, "misuse", what, **PLAIN,
                                                      HYDRANT_ON_FAULT="return", **way)
                            self.assertEqual((code, GOOD in text), (0, True), text)
                            self.assertRegex(text, "answered [0-9]+: .*" + fault)
                    index += 1
        for what in ("blocking-none", "nb-read_only-large", "nbi-ends-get")[:2 if over.READS_ALL else 3]:
            with self.subTest(what):
                code, text = self.run_job("par", 2, "misuse", what, **PLAIN)
                self.assertNotEqual(code, 0, text)
                self.assertRegex(text, r"FATAL ERROR \(rank 0\): .*" + fault)

    # ---- unresponsive and lost peers ----

    @unittest.skipIf(over.OVER == "mixed", "rank 1 is a neighbour of rank 0, and has no firehoses on it")
    def test_peer_that_does_not_release_is_awaited(self):
        job = Job(Clients("par"), "fork", 3, "deaf", str(60 * over.PATIENCE), **PLAIN,
                  HYDRANT_WAIT_WARN="200ms")
        job.wait_for("deaf\n")
        os.kill(job.pids()[0], signal.SIGUSR1)
        wanted = "still waiting for peers to release 4096 bytes"
        deadline = time.monotonic() + 60 * over.PATIENCE
        while wanted not in job.read(job.errors) and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(job.pids()[1], signal.SIGUSR1)
        code, output, errors = job.wait()
        self.assertEqual((code, GOOD in output), (0, True), output + errors)
        self.assertIn(wanted, errors)
        self.assertEqual(job.wait_until_gone(), [])

    @unittest.skipIf(over.OVER == "mixed", "rank 1 is a neighbour of rank 0, and has no firehoses on it")
    def test_killed_peer_that_does_not_release_ends_the_job(self):
        job = Job(Clients("par"), "fork", 3, "deaf", "100", **PLAIN)
        job.wait_for("deaf\n")
        os.kill(job.pids()[0], signal.SIGUSR1)
        time.sleep(random.Random(SEED).uniform(0, 0.3))
        self.kill_and_look(job, 1)

    def kill_and_look(self, job, victim):
        os.kill(job.pids()[victim], signal.SIGKILL)
        code, output, errors = job.wait()
        self.assertNotEqual(code, 0, output + errors)
        self.assertNotIn("WRONG", output + errors)
        self.assertRegex(errors, rf"rank {victim} .*signal 9")
        self.assertEqual(job.wait_until_gone(), [])

    def test_a_rank_killed_in_moves_and_recalls_ends_the_job(self):
        chance = random.Random(SEED)
        runs = [("stream", NETWORKS["much room"]), ("stream", NETWORKS["a few pages, nothing in moves"]),
                *(("stale", {**HUNTS[name], **NO_MORE}) for name in ("quick", "slow") if name in HUNTS)]
        for index, (part, variables) in enumerate(runs * (5 if LONG else 1)):
            ranks = 2 + index % 3
            with self.subTest(part, ranks=ranks, **variables):
                steps = [part, "100", str(SEED), "none"] if part == "stale" else [part]
                job = Job(Clients("par"), "fork", ranks, *steps, **variables)
                job.wait_for(" by ", ranks)
                time.sleep(chance.uniform(0, 0.4))
                self.kill_and_look(job, chance.randrange(ranks))


if __name__ == "__main__":
    main()
