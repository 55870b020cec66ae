#!/usr/bin/python3
"""rma_jobs_test.py FOLDER_OF_CLIENTS

Runs rma_client as jobs of 1 to 4 ranks, on every path and with the settings that limit them: the model
against plain memory, neighbouring bytes, whole words, counts, statistics, misuse, unmapped and device memory,
peers that are silent or killed. pinned_jobs_test.py has networks between pinned memory.
HYDRANT_TEST_LONG=1 makes it long, HYDRANT_TEST_SEED=N repeats a run of the model. Times are only limits.
"""
import json
import os
import pathlib
import random
import re
import signal
import tempfile
import time
import unittest

from runs import GOOD, LONG, SEED, Clients, Job, RmaTestCase, main, over

# Time for two ranks to access one word concurrently, over all paths.
MEETING = 60 if LONG else 3

PATHS = ["auto", "mapped", "cma", "firehose", "direct", "bounce", "am", "am_medium", "am_long"]
if over.OVER:
    PATHS.remove("direct")
    PATHS.remove("bounce")
KNOBS = {
    "no long gets": {"HYDRANT_PATH": "am", "HYDRANT_USE_LONG_GETS": "n"},
    "no long puts": {"HYDRANT_PATH": "am", "HYDRANT_USE_LONG_PUTS": "n"},
    "all long": {"HYDRANT_PATH": "am", "HYDRANT_MEDIUM_LONG_THRESHOLD": "0"},
    "long from 200 on": {"HYDRANT_PATH": "am", "HYDRANT_MEDIUM_LONG_THRESHOLD": "200"},
    "one at a time": {"HYDRANT_PATH": "am", "GASNET_NETWORKDEPTH": "1"},
    "two, one without event": {"HYDRANT_PATH": "am", "GASNET_NETWORKDEPTH": "2", "GASNET_NBI_THROTTLE": "1"},
    "the kernel does not copy": {"HYDRANT_CMA": "n"},
}
# With it calls are not inlined, and all are counted.
COUNTED = {"HYDRANT_STATS": "json:/dev/null"}
# Networks between the ranks, and the paths that they allow.
NETWORK = "delay=20us,bandwidth=2G"
NETWORKS = {
    "messages alone": {"HYDRANT_INJECT": "send_only"},
    "a network": {"HYDRANT_INJECT": NETWORK},
    "bounced": {"HYDRANT_INJECT": NETWORK, "HYDRANT_PATH": "bounce"},
    "bounced, little memory": {"HYDRANT_INJECT": NETWORK, "HYDRANT_PATH": "bounce",
                               "HYDRANT_BOUNCE_MAX": "1024", "HYDRANT_BOUNCE_POOL": "4096"},
    "out of order": {"HYDRANT_INJECT": "delay=10us,reorder=100us"},
    "few credits": {"HYDRANT_INJECT": "delay=5us,credits=2,depth=2", "HYDRANT_PATH": "am"},
    "long messages, few credits": {"HYDRANT_INJECT": "send_only,delay=5us,credits=2",
                                   "HYDRANT_PATH": "am_long"},
    "nearly no room": {"HYDRANT_INJECT": "delay=5us,credits=4,depth=1", "GASNET_NBI_THROTTLE": "1"},
    "long messages over it": {"HYDRANT_INJECT": NETWORK, "HYDRANT_PATH": "am_long"},
    "between pinned memory": {"HYDRANT_INJECT": NETWORK + ",pins"},
}
NETWORKS = over.ways(NETWORKS)
FAULT = r"bytes at 0x[0-9a-f]+ of rank 1 cannot be reached"


class RmaJobs(RmaTestCase):
    # ---- the model ----

    def test_model(self):
        for ranks in (1, 2, 3, 4):
            for variant in ("par", "par_debug", "par_everything"):
                self.model(variant, ranks, SEED + ranks)

    def test_model_by_every_path(self):
        for index, path in enumerate(PATHS[1:]):
            self.model("par", 2 + index % 3, SEED + 10 + index, HYDRANT_PATH=path)
            if LONG:
                for variant in ("par_debug", "par_everything"):
                    self.model(variant, 1 + index % 4, SEED + 20 + index, HYDRANT_PATH=path)

    def test_model_with_every_knob(self):
        for index, knobs in enumerate(KNOBS.values()):
            self.model("par", 2 + index % 3, SEED + 30 + index, **knobs)

    def test_model_over_networks(self):
        for index, network in enumerate(NETWORKS.values()):
            self.model("par", 2 + index % 3, SEED + 40 + index, **network)
            if LONG:
                self.model("par_everything", 2 + index % 3, SEED + 50 + index, **network)

    # ---- adjacent bytes and whole words ----

    def test_neighbouring_bytes(self):
        ways = [{"HYDRANT_PATH": path} for path in PATHS] + list(NETWORKS.values())
        for way in ways:
            with self.subTest(**way):
                self.holds("par", 2, "neighbours", str(MEETING / len(ways)), **way)
        self.holds("par", 3, "neighbours", "0", HYDRANT_PATH="am")

    @unittest.skipIf(over.OVER, "one store is promised where memory is mapped alone")
    def test_a_word_is_never_half_written(self):
        self.holds("par", 2, "words", str(MEETING / 3))
        self.holds("par", 2, "words", str(MEETING / 6), **COUNTED)
        self.holds("par", 2, "words", str(MEETING / 6), HYDRANT_PATH="mapped")

    # ---- counts and reuse of objects ----

    def test_counts(self):
        # A Medium over verbs is shorter than some of these operations.
        medium = "am_long+am_medium" if over.OVER else "am_medium"
        by_message = [("par", 2, "am", medium, "am_medium", "am_long", "am_medium", "am_medium"),
                      ("par", 2, "am_medium", *["am_medium"] * 5),
                      ("par", 2, "am_long", "am_long+am_medium", "am_medium", "am_long", "am_long+am_medium",
                       "am_medium")]
        pinned = ("par", 2, "auto", *["firehose+in_move+rendezvous"] * 4, "self")
        other = "cma+am_medium"  # the kernel may forbid it
        near = [("par", 3, "auto", "mapped", other, "mapped", "mapped", "self"),
                ("par", 1, "auto", "self", "self", "self", "self", "self"),
                ("par_debug", 2, "auto", "mapped", other, "mapped", "mapped", "self")]
        for variant, ranks, path, *expected in by_message + ([pinned] if over.OVER else near):
            with self.subTest(variant=variant, ranks=ranks, path=path):
                self.holds(variant, ranks, "counts", *expected, HYDRANT_PATH=path, **COUNTED,
                           HYDRANT_MEDIUM_LONG_THRESHOLD="65536")
        sent = [medium, "am_medium", "am_long", "am_medium", "self"]
        self.holds("par", 2, "counts", *sent, HYDRANT_INJECT="send_only", **COUNTED,
                   HYDRANT_MEDIUM_LONG_THRESHOLD="65536")
        if over.OVER:
            return
        # The owner of the source decides between the two paths.
        two = "direct+bounce"
        self.holds("par", 2, "counts", two, two, two, two, "self", HYDRANT_INJECT=NETWORK, **COUNTED)
        self.holds("par", 2, "counts", *["bounce"] * 4, "self", HYDRANT_INJECT=NETWORK, HYDRANT_PATH="bounce",
                   **COUNTED)
        variant, ranks, _, *expected = pinned
        self.holds(variant, ranks, "counts", *expected, HYDRANT_INJECT=NETWORK + ",pins", **COUNTED)

    # 9 MiB are more than one Long.
    def test_a_series_of_longs(self):
        self.holds("par", 2, "long", "am_long", "am_long", HYDRANT_PATH="am_long")
        self.holds("par", 2, "long", "am_long", "am_long", HYDRANT_INJECT="send_only")

    def test_longs_are_enabled_per_direction(self):
        runs = {("am_long", "am_long"): {},
                ("am_long", "am_medium"): {"HYDRANT_USE_LONG_GETS": "n"},
                ("am_medium", "am_long"): {"HYDRANT_USE_LONG_PUTS": "n"},
                ("am_medium", "am_medium"): {"HYDRANT_USE_LONG_GETS": "n", "HYDRANT_USE_LONG_PUTS": "n"}}
        for paths, knobs in runs.items():
            with self.subTest(**knobs):
                self.holds("par", 2, "long", *paths, HYDRANT_PATH="am", **knobs)

    # ---- statistics ----

    def test_statistics_equal_the_executed_operations(self):
        def row(peer, path, puts=(0, 0), gets=(0, 0)):
            return {"peer": peer, "path": path, "put_ops": puts[0], "put_bytes": puts[1],
                    "get_ops": gets[0], "get_bytes": gets[1]}

        with tempfile.TemporaryDirectory() as folder:
            self.holds("par", 2, "statistics", HYDRANT_STATS=f"json:{folder}/100%%-of-%r.json")
            names = sorted(path.name for path in pathlib.Path(folder).iterdir())
            self.assertEqual(names, ["100%-of-0.json", "100%-of-1.json"])
            for rank, name in enumerate(names):
                written = json.loads(pathlib.Path(folder, name).read_text())
                rows = written.pop("put_get")
                firehoses = written.pop("firehoses")
                counts = written.pop("transport_counts")
                self.assertEqual(counts.get("connected"), 1 if over.OVER else None, counts)
                self.assertEqual(counts.get("lost"), 0 if over.OVER else None, counts)
                transport, kinds = ("ibv", ["pinned"]) if over.OVER else ("shm", [])
                self.assertEqual(written, {"rank": rank, "size": 2, "transport": transport,
                                           "on_demand": {"ops": 0, "bytes": 0}, "collectives": {}, "vis": [],
                                           "atomics": {"self": 0, "mapped": 0, "messages": 0, "adapter": 0}})
                self.assertEqual([one["kind"] for one in firehoses], kinds)
                peer, count, size = 1 - rank, 3 + rank, 1000 + rank
                wanted = [row(rank, "self", gets=(1, size)),
                          row(peer, "mapped", puts=(5 + count, 40 + count * size), gets=(1, size))]
                if over.OVER:
                    # The first put misses; all others hit.
                    hits = (5 + count - 1, 40 + (count - 1) * size)
                    wanted[1:] = [row(peer, "firehose", puts=hits, gets=(1, size)),
                                  row(peer, "in_move", puts=(1, size))]

                def by_name(one):
                    return one["peer"], one["path"]
                self.assertEqual(sorted(rows, key=by_name), sorted(wanted, key=by_name))

    def test_statistics_that_cannot_be_written(self):
        with tempfile.TemporaryDirectory() as folder:
            # The text, and the number of ranks that print it.
            known = "invalid value; set json:FILE or table:FILE, with %r in FILE"
            for wish, text, ranks in (("json:", r"HYDRANT_STATS=json:: " + known, 1),
                                      (f"text:{folder}/x", r"HYDRANT_STATS=text:.*: invalid value", 1),
                                      (f"json:{folder}/none/%r", r"/none/[01]: No such file or directory", 2),
                                      (f"json:{folder}", r"HYDRANT_STATS: .*: Is a directory", 1),
                                      ("json:/dev/full", r"/dev/full: No space left on device", 1)):
                with self.subTest(wish=wish):
                    said = self.holds("par", 2, "statistics", HYDRANT_STATS=wish)
                    self.assertEqual(len(re.findall(text, said)), ranks, said)
            said = self.holds("par", 2, "statistics")
            self.assertNotIn("HYDRANT_STATS", said)
            self.assertEqual(os.listdir(folder), [])

    def test_events_and_pieces_are_reused(self):
        for way in over.ways([{"HYDRANT_PATH": "am"}, {}, {"HYDRANT_INJECT": NETWORK},
                              {"HYDRANT_INJECT": NETWORK, "HYDRANT_PATH": "bounce"}]):
            with self.subTest(**way):
                self.holds("par", 2, "recycling", **way)

    @unittest.skipIf(over.OVER, "only mappings end with a segment")
    def test_across_the_end_of_a_segment(self):
        for way in ({}, {"HYDRANT_PATH": "mapped"}, {"HYDRANT_PATH": "am"}, {"HYDRANT_CMA": "n"}):
            with self.subTest(**way):
                self.holds("par", 2, "edge", **way)

    @unittest.skipIf(over.OVER, "a guest has not so much memory")
    @unittest.skipUnless(LONG, "copies tens of GiB: only with HYDRANT_TEST_LONG=1")
    def test_more_than_4_gib(self):
        self.holds("par", 1, "huge")
        self.holds("par", 2, "huge")
        self.holds("par", 2, "huge", HYDRANT_PATH="am")

    def test_single_statistics_file_is_written_by_rank_0(self):
        with tempfile.TemporaryDirectory() as folder:
            said = self.holds("par", 2, "statistics", HYDRANT_STATS=f"json:{folder}/one")
            self.assertEqual(said.count("only rank 0 writes it"), 1, said)
            self.assertEqual(json.loads(pathlib.Path(folder, "one").read_text())["rank"], 0)

    def test_statistics_on_standard_error_are_of_all_ranks(self):
        for form, first in (("table", r"^rank [01] of 2 over "), ("json", r'"rank": ?[01],')):
            said = self.holds("par", 2, "statistics", HYDRANT_STATS=f"{form}:-")
            self.assertEqual(len(re.findall(first, said, re.MULTILINE)), 2, said)
            self.assertFalse(pathlib.Path("-").exists())

    # ---- limits that are too large ----

    def test_limits_name_their_cause(self):
        transport = rf"the transport \({'ibv' if over.OVER else 'injected'}\)"
        most = 256 if over.OVER else 4
        injected = {} if over.OVER else {"HYDRANT_INJECT": f"depth={most}"}
        for variables, text in (
                ({"GASNET_NETWORKDEPTH": "999"},
                 f"NETWORKDEPTH=999 exceeds the limit of {transport}: {most} "),
                ({"GASNET_NBI_THROTTLE": "999"}, f"THROTTLE=999 exceeds the limit of {transport}: {most} "),
                ({"GASNET_NBI_THROTTLE": "999", "GASNET_NETWORKDEPTH": "3"},
                 "THROTTLE=999 exceeds the limit of GASNET_NETWORKDEPTH: 3 ")):
            with self.subTest(**variables):
                said = self.holds("par", 2, "recycling", **injected, **variables)
                self.assertRegex(said, text)

    # ---- misuse ----

    def misuse(self, variant, what, on_fault, **variables):
        with self.subTest(what=what, variant=variant, on_fault=on_fault, **variables):
            code, text = self.run_job(variant, 2, "misuse", what, HYDRANT_ON_FAULT=on_fault, **variables)
            self.assertNotIn("WRONG", text)
            self.assertNotIn("SEGV", text)
            return code, text
        return None, ""

    def ends(self, variant, what, on_fault, pattern, **variables):
        code, text = self.misuse(variant, what, on_fault, **variables)
        if code is None:
            return
        with self.subTest(what=what, variant=variant, on_fault=on_fault, **variables):
            self.assertNotEqual(code, 0, text)
            self.assertRegex(text, r"FATAL ERROR \(rank 0\): .*" + pattern)

    def returns(self, variant, what, on_fault, pattern, code_of_call, **variables):
        code, text = self.misuse(variant, what, on_fault, **variables)
        if code is None:
            return
        with self.subTest(what=what, variant=variant, on_fault=on_fault, **variables):
            self.assertEqual((code, GOOD in text), (0, True), text)
            self.assertRegex(text, rf"answered {code_of_call}: .*{pattern}")

    def test_wrong_calls(self):
        bad_arg = "10003"
        texts = {
            "rank": ("rank 2 does not exist", bad_arg),
            "rank_get": ("rank 12345 does not exist", bad_arg),
            "rank_value": ("rank 2 does not exist", bad_arg),
            "rank_memset": ("rank 2 does not exist", "0"),
            "null_remote": ("1 bytes, and the remote address is NULL", bad_arg),
            "null_local": ("100 bytes, and the local address is NULL", bad_arg),
            "null_local_self": ("100 bytes, and the local address is NULL", bad_arg),
            "wrap_remote": ("100 bytes from 0xfffffffffffffff6 on wrap around", bad_arg),
            "wrap_self": ("100 bytes from 0xfffffffffffffff6 on wrap around", bad_arg),
            "wrap_length": (r"184467440737095516\d\d bytes from 0x[0-9a-f]+ on wrap around", bad_arg),
            "team": ("GEX_TM_INVALID", bad_arg),
            "value_bytes": ("a value of 9 bytes; valid sizes are 1 to 8", "0"),
            "value_bytes_get": ("a value of 0 bytes; valid sizes are 1 to 8", "0"),
        }
        for what, (text, code) in texts.items():
            for variant in ("par", "par_debug"):
                self.ends(variant, what, "auto", text)
                self.returns(variant, what, "return", text, code)
        for what, text in {"rank_many": "rank 2 does not exist", "null_list": "the array is NULL"}.items():
            self.ends("par", what, "abort", text)
            self.returns("par", what, "auto", text, bad_arg)
        self.returns("par_debug", "wrong_total", "auto", "total_bytes is 2, but the 1 operations have 1",
                     bad_arg)
        self.returns("par", "null_counts", "auto", "the pointer to the counts is NULL", bad_arg)
        self.ends("par_debug", "handler", "auto", "in a handler, which may send one reply")
        self.ends("par", "handler", "auto", "a handler must not put or get", HYDRANT_PATH="am")

    def test_misused_events(self):
        texts = {"no_op": "GEX_EVENT_NO_OP is not an event", "no_op_leaf": "GEX_EVENT_NO_OP is not an event",
                 "second_sync": "this event was synced before",
                 "nested": "in an access region", "sync_in_region": "in an access region",
                 "end_without_begin": "without gex_NBI_BeginAccessRegion"}
        for what, text in texts.items():
            self.ends("par_debug", what, "return", text, HYDRANT_PATH="am")

    def test_unmapped_memory(self):
        forms = ["blocking", "nb", "nbi", "region", "many", "many_event", "memset", "memset_nb"]
        index = 0
        for form in forms:
            for place in ("none", "ends", "read_only"):
                for suffix in ("", "-large", "-get", "-get-large"):
                    is_left_out = form.startswith("memset") or place == "read_only" or over.READS_ALL
                    if "get" in suffix and is_left_out:
                        continue
                    # The long run tests all of them on all paths; here each path is tested once.
                    ways = [{}, {"HYDRANT_PATH": "am_medium"}, {"HYDRANT_PATH": "am_long"},
                            {"HYDRANT_INJECT": NETWORK},
                            {"HYDRANT_INJECT": NETWORK, "HYDRANT_PATH": "bounce"}]
                    ways = over.ways(ways)
                    for way in ways if LONG else [ways[index % len(ways)]]:
                        self.cannot_be_reached(form, f"{form}-{place}{suffix}", way)
                    index += 1

    def cannot_be_reached(self, form, what, way):
        code = "10003" if form in ("blocking", "many") else "0"
        self.returns("par", what, "return", FAULT, code, **way)
        if form.startswith("many"):
            self.returns("par", what, "auto", FAULT, code, **way)
        else:
            self.ends("par", what, "auto", FAULT, **way)

    # ---- early and late calls, little memory ----

    def test_destructors_and_exit_handlers_may_call(self):
        for way in over.ways([{}, {"HYDRANT_PATH": "am"}, {"HYDRANT_INJECT": NETWORK}]):
            for variant in ("par", "par_debug"):
                with self.subTest(variant=variant, **way):
                    self.holds(variant, 2, "late", **way)

    def test_out_of_memory_gives_an_error_and_no_hang(self):
        for way in over.ways([{}, {"HYDRANT_PATH": "am"}, {"HYDRANT_INJECT": NETWORK},
                              {"HYDRANT_INJECT": "send_only"}, {"HYDRANT_INJECT": "send_only,delay=5us"}]):
            with self.subTest(**way):
                code, text = self.run_job("par", 2, "starved", **way)
                if code == 0:
                    self.assertIn(GOOD, text)
                else:
                    self.assertRegex(text, r"FATAL ERROR \(rank [01]\): .*no memory")
                self.assertNotIn("SEGV", text)

    # ---- device memory ----

    def test_device_memory_is_refused(self):
        device = r"0x1040 is memory of a device \(GPU\); only host memory can be "
        texts = {"put": device + r"put[;\n]", "get": device + r"the target of a get[;\n]"}
        for direction, text in texts.items():
            for place in ("mapped", "unmapped", "self"):
                for size in ("word", "constant", "some", "implicit", "many"):
                    with self.subTest(direction=direction, place=place, size=size):
                        said = self.holds("par_device", 2, "device", direction, place, size,
                                          HYDRANT_ON_FAULT="return")
                        self.assertRegex(said, "answered 10003: .*" + text)
                with self.subTest(direction=direction, place=place):
                    code, said = self.run_job("par_device", 2, "device", direction, place, "word")
                    self.assertNotEqual(code, 0, said)
                    self.assertRegex(said, r"FATAL ERROR \(rank 0\): .*" + text)
        with self.subTest("what is the host's goes on as ever"):
            self.model("par_device", 2, SEED + 60)

    # ---- unresponsive and lost peers ----

    def test_silent_peer_is_named_once(self):
        text = self.holds("par", 2, "silence", HYDRANT_PATH="am", HYDRANT_WAIT_WARN="200ms")
        warnings = re.findall(r"puts, gets and atomics: .* still under way, the last with rank 1", text)
        self.assertEqual(len(warnings), 1, text)
        text = self.holds("par", 2, "silence", HYDRANT_PATH="am", HYDRANT_WAIT_WARN="0")
        self.assertNotIn("still under way", text)

    def test_a_killed_peer_ends_the_job(self):
        chance = random.Random(SEED)
        ways = [{}, {"HYDRANT_PATH": "am"}, {"HYDRANT_PATH": "am_long"}, {"HYDRANT_INJECT": NETWORK},
                {"HYDRANT_INJECT": NETWORK, "HYDRANT_PATH": "bounce"}]
        for way in over.ways(ways):
            for ranks, victim in ((2, 1), (3, 0), (3, 2))[:3 if LONG else 2]:
                with self.subTest(ranks=ranks, victim=victim, **way):
                    job = Job(Clients("par"), "fork", ranks, "stream", **way)
                    job.wait_for(" by ", ranks)
                    time.sleep(chance.uniform(0, 0.3))
                    os.kill(job.pids()[victim], signal.SIGKILL)
                    code, output, errors = job.wait()
                    self.assertNotEqual(code, 0, output + errors)
                    self.assertNotIn("WRONG", output + errors)
                    self.assertRegex(errors, rf"rank {victim} .*signal 9")
                    self.assertEqual(job.wait_until_gone(), [])

    def test_rank_that_detects_a_death_first_waits_for_the_job_to_end(self):
        ways = [{}, {"HYDRANT_PATH": "cma"}, {"HYDRANT_PATH": "am"}, {"HYDRANT_INJECT": NETWORK},
                {"HYDRANT_INJECT": NETWORK, "HYDRANT_PATH": "bounce"}, {"HYDRANT_ON_FAULT": "return"}]
        for way in over.ways(ways):
            with self.subTest(**way):
                job = Job(Clients("par"), "fork", 3, "stream", **way)
                job.wait_for(" by ", 3)
                # No process reports the death while the supervisor is stopped.
                os.kill(job.process.pid, signal.SIGSTOP)
                os.kill(job.pids()[1], signal.SIGKILL)
                time.sleep(0.3)
                os.kill(job.process.pid, signal.SIGCONT)
                code, output, errors = job.wait()
                self.assertEqual(code, 128 + signal.SIGKILL, output + errors)
                self.assertRegex(errors, r"rank 1 .*signal 9")
                self.assertNotRegex(output + errors, "FATAL|WRONG")
                self.assertEqual(job.wait_until_gone(), [])


if __name__ == "__main__":
    main()
