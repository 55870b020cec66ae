#!/usr/bin/python3
"""Runs barrier_client as jobs of 1 to 4 and of 9 ranks, with every algorithm, and checks the output.

barrier_jobs_test.py PATH_OF_BARRIER_CLIENT
"""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from client_jobs import over, run_job  # the path must be set first

CLIENT = ""
SECONDS = 60
ALGORITHMS = {
    "default": {},
    "SHM in rounds": {"GASNET_BARRIER": "SHM", "HYDRANT_BARRIER_RADIX": "2"},
    "AMDISSEM": {"GASNET_BARRIER": "AMDISSEM"},
    "AMCENTRAL": {"GASNET_BARRIER": "AMCENTRAL"},
    # Each rank is its own node, over a network that writes into pinned memory.
    "RDMADISSEM": {"GASNET_BARRIER": "RDMADISSEM", "HYDRANT_INJECT": "delay=1us,pins=64M"},
}
ROUNDS = {}  # as in the client
if over.OVER:
    # Gets read the progress of other ranks.
    ROUNDS = {"rules": 60, "agreed": 200, "events": 8}
    # The default is RDMADISSEM if ranks share no memory.
    del ALGORITHMS["SHM in rounds"]
    ALGORITHMS["RDMADISSEM"] = {"GASNET_BARRIER": "RDMADISSEM"}


def run(ranks, *arguments, **extra):
    return run_job(CLIENT, ranks, *arguments, seconds=SECONDS, **extra)


class BarrierJobs(unittest.TestCase):
    def holds(self, ranks, what, **extra):
        rounds = [str(ROUNDS[what])] if what in ROUNDS else []
        status, text = run(ranks, what, *rounds, **extra)
        self.assertEqual((status, "all held" in text), (0, True), f"{what}, {ranks} ranks, {extra}:\n{text}")
        return text

    def test_rules_of_names(self):
        for name, extra in ALGORITHMS.items():
            for ranks in (1, 2, 3, 4):
                with self.subTest(name, ranks=ranks):
                    self.holds(ranks, "rules", **extra)

    def test_events(self):
        for name, extra in ALGORITHMS.items():
            for ranks in (1, 2, 3, 4):
                with self.subTest(name, ranks=ranks):
                    self.holds(ranks, "events", **extra)

    def test_messages_while_waiting(self):
        for name, extra in ALGORITHMS.items():
            for ranks in (1, 2, 4):
                with self.subTest(name, ranks=ranks):
                    self.holds(ranks, "messages", **extra)

    def test_many_ranks(self):
        self.holds(9, "rules")
        self.holds(9, "events", HYDRANT_BARRIER_RADIX="3")
        for what in ("rules", "events"):
            self.holds(9, what, **ALGORITHMS["RDMADISSEM"])

    def test_not_strict(self):
        for name, extra in ALGORITHMS.items():
            with self.subTest(name):
                self.holds(3, "agreed", HYDRANT_BARRIER_STRICT="0", **extra)

    @unittest.skipIf(over.OVER, "about networks of HYDRANT_INJECT")
    def test_log_names_the_replacement_of_rdma(self):
        named = {"GASNET_BARRIER": "RDMADISSEM"}
        for extra, text in ((ALGORITHMS["RDMADISSEM"], "barriers: RDMADISSEM among 2 ranks"),
                            (named, "AMDISSEM in place of RDMADISSEM: all ranks share memory"),
                            ({"HYDRANT_INJECT": "send_only", **named}, "AMDISSEM in place of RDMADISSEM"),
                            ({"HYDRANT_INJECT": "delay=1us,pins=64M"}, "barriers: AMDISSEM among 2 ranks")):
            with self.subTest(**extra):
                self.assertIn(text, self.holds(2, "agreed", HYDRANT_LOG="info", **extra))

    def test_sleeping_threads(self):
        # They sleep if the wait mode allows it: with a limit this small no rank spins for long.
        self.holds(2, "late")

    def test_unknown_algorithm_names_the_choices(self):
        text = self.holds(2, "agreed", GASNET_BARRIER="IBDISSEM")
        for name in ("IBDISSEM", "SHM", "AMDISSEM", "AMCENTRAL"):
            self.assertIn(name, text)
        self.assertNotIn("warning", self.holds(2, "agreed", GASNET_BARRIER="dissem"))

    def test_warning_names_missing_ranks(self):
        for name, extra in ALGORITHMS.items():
            with self.subTest(name):
                text = self.holds(3, "late", HYDRANT_WAIT_WARN="100ms", **extra)
                who = r" \(\w+\): ranks? [012]( and [012])? of 3"
                self.assertRegex(text, "still waits in gasnet_barrier" + who)
                self.assertRegex(text, "still waits in gex_Coll_Barrier" + who)
                if name == "default" and not over.OVER:
                    self.assertIn("rank 2 of 3 has not arrived", text)
        self.assertNotIn("still waits", self.holds(3, "late", HYDRANT_WAIT_WARN="0"))
        for what in ("late", "rules"):  # no line if all have arrived meanwhile
            self.assertNotIn("ranks  of", self.holds(3, what, HYDRANT_WAIT_WARN="1ms"))

    @unittest.skipIf(over.OVER, "about programs that were built with other defaults: one network shows it")
    def test_the_builds_default_is_used(self):
        for name in ("AMDISSEM", "AMCENTRAL"):
            for chosen, used in (({}, name), ({"GASNET_BARRIER": "auto"}, name),
                                 ({"GASNET_BARRIER": "SHM"}, "SHM")):
                with self.subTest(name, **chosen):
                    status, text = run_job(f"{CLIENT}_{name}", 2, "late", seconds=SECONDS,
                                           HYDRANT_WAIT_WARN="20ms", **chosen)
                    self.assertEqual((status, "all held" in text), (0, True), text)
                    self.assertRegex(text, rf"still waits in gasnet_barrier \({used}\)")

    @unittest.skipUnless(over.OVER, "about settings of queue pairs")
    def test_unreachable_rank_ends_the_job(self):
        for name in ("RDMADISSEM", "AMDISSEM"):
            with self.subTest(name):
                status, text = run(2, "agreed", by_rank="HYDRANT_IBV_CREDITS=$((16 + HYDRANT_JOB_RANK))",
                                   GASNET_BARRIER=name)
                self.assertNotIn("did not end", text)
                self.assertNotEqual(status, 0, text)
                self.assertRegex(text, r"rank [01] has lost rank [01] and ends the job: rank [01] has other"
                                       r" settings than this one"
                                       r".* \(HYDRANT_AM_EAGER and HYDRANT_IBV_CREDITS have to be")

    @unittest.skipIf(over.OVER, "about ranks that share memory")
    def test_the_barrier_setting_that_differs_is_named(self):
        for setting, named in (("GASNET_BARRIER=AMDISSEM",
                                "GASNET_BARRIER, HYDRANT_TRANSPORT and HYDRANT_IBV_ORDER have"),
                               ("HYDRANT_BARRIER_RADIX=2", "HYDRANT_BARRIER_RADIX has"),
                               ("HYDRANT_BARRIER_STRICT=0", "HYDRANT_BARRIER_STRICT has")):
            with self.subTest(setting):
                status, text = run(3, "agreed", by_rank=f"[ $HYDRANT_JOB_RANK = 2 ] && export {setting};")
                self.assertNotEqual(status, 0, text)
                self.assertRegex(text, rf"that of rank 2 is \w+ \([0-9, ]+\): {named} to be the same")

    @unittest.skipIf(over.OVER == "mixed", "about ranks of one node")
    def test_ranks_with_another_transport_end_the_job_with_a_text(self):
        other = "shm" if over.OVER else "ibv"
        for rank in (0, 1):
            with self.subTest(rank=rank):
                status, text = run(2, "agreed", by_rank=f"[ $HYDRANT_JOB_RANK = {rank} ] && "
                                                        f"export HYDRANT_TRANSPORT={other};")
                self.assertNotIn("did not end", text)
                self.assertNotEqual(status, 0, text)
                self.assertRegex(text, "HYDRANT_TRANSPORT has to be the same on all ranks, and it is "
                                       "(ibv there, auto or shm here|auto or shm there, ibv here)")

    def test_misuse_ends_the_job_with_a_text(self):
        texts = {
            "wait": "gasnet_barrier_wait without a gasnet_barrier_notify before it",
            "try": "gasnet_barrier_try without a gasnet_barrier_notify before it",
            "notify": "gasnet_barrier_notify: the previous notify had no wait",
            "handler": "gasnet_barrier_notify in a handler",
            "team": "gex_Coll_BarrierBlocking: the team is GEX_TM_INVALID",
            "no_op": "GEX_EVENT_NO_OP is not an event",
            "twice": "this event was synced before",
            "early": "gasnet_barrier_notify before a client is initialised",
        }
        for what, text in texts.items():
            with self.subTest(what):
                status, output = run(2, "misuse", what)
                self.assertNotEqual(status, 0, output)
                self.assertIn(text, output)
                self.assertNotIn("WRONG", output)


if __name__ == "__main__":
    CLIENT = sys.argv.pop()
    unittest.main()
