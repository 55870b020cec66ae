#!/usr/bin/python3
"""Runs vis_client as jobs of 1 to 3 ranks, over each kind of path.

vis_jobs_test.py PATH_OF_VIS_CLIENT_SEQ PATH_OF_VIS_CLIENT_PAR (which has GASNET_DEBUG)
"""
import json
import os
import pathlib
import re
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(HERE.parent))
from client_jobs import over, run_job  # the path must be set first

CLIENTS = []
SECONDS = 60
ROUNDS = 600 if os.environ.get("HYDRANT_TEST_LONG") else 15 if over.OVER else 50
NETWORK = "delay=5us,bandwidth=2G"
PINS = f"{NETWORK},pins"
WRONG = {"lengths": "dstlist has 16 bytes in 2 pieces, srclist has 32 bytes in 2",
         "rank": "gex_VIS_IndexedPutNBI: rank 2 does not exist",
         "null": "srccount is 2, and srclist is NULL",
         "piece": "piece 0 of dstlist is 8 bytes at NULL",
         "counts": "stridelevels is 1, and count, dststrides or srcstrides is NULL",
         "wraps": "wrap around the address space",
         "wraps_most": "wrap around the address space",
         "longest": "the 1 pieces of dstlist are longer than the address space",
         "long_notice": "at most 127 (GEX_VIS_MAX_PEERCOMPLETION)",
         "own_handler": "handler 5 belongs to the library",
         "get_notice": "the next operation has to be a put without GEX_FLAG_IMMEDIATE"}
WRONG_IN_DEBUG = {"overlap": "the destinations overlap: 8 bytes at",
                  "grid": "the destinations overlap: 8 bytes at",
                  "large_grid": "the destinations overlap: 8 bytes at",
                  "segment": "segment",
                  "handler": "handler"}


class VisJobs(unittest.TestCase):
    def holds(self, client, ranks, what, seed, rounds, **extra):
        with self.subTest(client=client, ranks=ranks, what=what, **extra):
            status, text = run_job(client, ranks, what, str(seed), str(rounds), seconds=SECONDS, **extra)
            self.assertEqual((status, "all held" in text), (0, True), text)

    def test_random_transfers(self):
        for client in CLIENTS:
            for ranks in (1, 2, 3):
                self.holds(client, ranks, "random", 1, ROUNDS)

    def test_every_forced_path(self):
        for seed, extra in enumerate((
                {"HYDRANT_VIS_PATH": "pieces"}, {"HYDRANT_VIS_PATH": "packets"},
                {"HYDRANT_PATH": "cma"}, {"HYDRANT_PATH": "am"},
                {"HYDRANT_PATH": "am", "HYDRANT_VIS_PATH": "packets", "GASNET_NETWORKDEPTH": "1"}), 2):
            self.holds(CLIENTS[seed % 2], 2, "random", seed, ROUNDS, **extra)
            self.holds(CLIENTS[0], 2, "under_way", seed, 3, **extra)

    @unittest.skipIf(over.OVER, "the network is what there is")
    def test_injected_networks(self):
        for seed, extra in enumerate(({"HYDRANT_INJECT": NETWORK}, {"HYDRANT_INJECT": PINS}), 20):
            for path in ("auto", "packets", "pieces"):
                self.holds(CLIENTS[seed % 2], 2, "random", seed, ROUNDS // 2, HYDRANT_VIS_PATH=path, **extra)
                self.holds(CLIENTS[0], 2, "under_way", seed, 2, HYDRANT_VIS_PATH=path, **extra)

    def test_persistent_transfers(self):
        for seed, extra in enumerate(({}, {"HYDRANT_PATH": "am"}, {"HYDRANT_VIS_PATH": "pieces"}), 40):
            self.holds(CLIENTS[seed % 2], 2, "persistent", seed, ROUNDS, **extra)
        self.holds(CLIENTS[0], 1, "persistent", 50, ROUNDS)
        self.holds(CLIENTS[0], 2, "persistent_wrong", 1, 1)
        if not over.OVER:
            for path in ("auto", "pieces"):
                self.holds(CLIENTS[1], 2, "persistent", 51, ROUNDS // 2, HYDRANT_INJECT=PINS,
                           HYDRANT_VIS_PATH=path)

    def test_strided_transfers_without_bytes(self):
        for client in CLIENTS:
            self.holds(client, 2, "empty", 1, 1)

    def test_a_rank_that_is_killed_ends_the_job(self):
        pieces = {"HYDRANT_VIS_PATH": "pieces"}
        ways = [{}, {"HYDRANT_PATH": "cma"}, {"HYDRANT_PATH": "am"}, {"HYDRANT_PATH": "am", **pieces},
                {"HYDRANT_INJECT": NETWORK}, {"HYDRANT_INJECT": PINS}, {"HYDRANT_INJECT": PINS, **pieces}]
        for rounds, way in enumerate(over.ways(ways), 1):
            ranks = 2 + rounds % 2
            with self.subTest(ranks=ranks, **way):
                status, output = run_job(CLIENTS[0], ranks, "killed", "1", str(50 * rounds),
                                         seconds=SECONDS, **way)
                self.assertNotEqual(status, 0, output)
                self.assertRegex(output, rf"rank {ranks - 1} .*signal 9")
                self.assertNotRegex(output, "WRONG|did not end")

    @unittest.skipIf(over.OVER, "an injected network is what it counts on")
    def test_a_column_needs_one_firehose(self):
        with tempfile.TemporaryDirectory() as folder:
            self.holds(CLIENTS[0], 2, "column", 1, 1, HYDRANT_INJECT=PINS, GASNET_FIREHOSE_M="1",
                       HYDRANT_STATS=f"json:{folder}/%r")
            for rank in ("0", "1"):
                rows = json.loads(pathlib.Path(folder, rank).read_text())["firehoses"]
                self.assertEqual([row["moves"] for row in rows if row["kind"] == "pinned"], [1])

    @unittest.skipIf(over.OVER, "shared memory is what it counts")
    def test_each_path_is_counted(self):
        with tempfile.TemporaryDirectory() as folder:
            for path, expected in (("auto", "copied"), ("packets", "packets"), ("pieces", "pieces")):
                self.holds(CLIENTS[0], 2, "random", 3, 40, HYDRANT_VIS_PATH=path,
                           HYDRANT_STATS=f"json:{folder}/%r")
                rows = json.loads(pathlib.Path(folder, "0").read_text())["vis"]
                self.assertEqual([row["path"] for row in rows], [expected])
                self.assertGreater(rows[0]["put_ops"] * rows[0]["get_bytes"], 0)

    def test_wrong_calls_end_the_job_with_a_text(self):
        for client, wrong in ((CLIENTS[0], WRONG), (CLIENTS[1], WRONG_IN_DEBUG)):
            for what, text in wrong.items():
                with self.subTest(what=what):
                    status, output = run_job(client, 2, what, "1", "1", seconds=SECONDS)
                    self.assertNotEqual(status, 0)
                    self.assertIn(text, output)
                    self.assertNotIn("not refused", output)

    def survives_a_failed_allocation(self, numbers, **extra):
        """False: fewer allocations happen."""
        for number in numbers:
            with self.subTest(number=number, **extra):
                status, output = run_job(CLIENTS[0], 2, "starved", str(number), "1", seconds=SECONDS, **extra)
                self.assertNotIn("it did not end", output)
                if status == 0 and output.count("nothing failed") == 2:
                    return False
                if status != 0:
                    self.assertRegex(output, "no memory")
        return True

    def test_a_failed_allocation(self):
        self.survives_a_failed_allocation((0, 3), HYDRANT_VIS_PATH="packets")
        self.survives_a_failed_allocation((1,), HYDRANT_VIS_PATH="pieces")

    def test_any_failed_allocation(self):
        for path in ("packets", "pieces"):
            self.assertFalse(self.survives_a_failed_allocation(range(300), HYDRANT_VIS_PATH=path))

    @unittest.skipIf(over.OVER, "it reads the sources, which a guest lacks")
    def test_each_name_of_the_list_is_declared_and_called(self):
        calls = "".join(path.read_text() for path in HERE.glob("*.[ch]pp"))
        names = (HERE / "names.txt").read_text().split()
        self.assertEqual([name for name in names if not re.search(rf"\b{name}\b", calls)], [])
        headers = "".join((ROOT / "include" / name).read_text()
                          for name in ("gasnet_vis.h", "hydrant/gasnet/vis1.h"))
        declared = re.findall(r"\b(gex_VIS_\w+|gasnet_(?:put|get)[vis]_\w+)\(", headers)
        self.assertEqual(sorted(set(declared)),
                         [name for name in names if re.match(r"gex_VIS_|gasnet_(put|get)", name)])


if __name__ == "__main__":
    CLIENTS = sys.argv[-2:]
    del sys.argv[-2:]
    unittest.main()
