#!/usr/bin/python3
"""core_test.py BUILD_FOLDER

The core API as a client sees it, in every thread mode, started by hydrant-run and by GASNET_PSHM_NODES:
values, payloads, floods, segments, locks, and every way to end. Times are only limits.
"""
import os
import pathlib
import resource
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "launch"))
import over  # the path must be set first
from jobs import Build, Job  # noqa: E402

ROOT = sys.argv.pop()
MODES = ["seq", "parsync", "par", "seq_debug", "par_debug"]


class ClientBuild(Build):
    """Uses one of the clients in place of launch_probe."""

    def __init__(self, mode):
        super().__init__(ROOT)
        self.probe = str(pathlib.Path(ROOT) / "tests/integration/am" / f"core_client_{mode}")


LAUNCHERS = ["hydrant-run"] if Build(ROOT).has_hydrant_run() else []
if over.OVER != "mixed":
    LAUNCHERS.append("fork")


class CoreTest(unittest.TestCase):
    def start(self, mode, launcher, size, *steps, **variables):
        job = Job(ClientBuild(mode), launcher, size, *steps, **variables)
        code, output, errors = job.wait()
        self.assertEqual(job.wait_until_gone(), [])
        self.assertNotIn("FAILED", output + errors)
        return code, output, errors

    def passes(self, mode, size, *steps, launcher=LAUNCHERS[0], **variables):
        with self.subTest(mode=mode, size=size, steps=steps, launcher=launcher):
            code, output, errors = self.start(mode, launcher, size, *steps, **variables)
            self.assertEqual(code, 0, output + errors)
            self.assertEqual(output.count(" done\n"), size, output + errors)
            return output + errors

    def each(self, *steps, sizes=(1, 2, 3), modes=MODES, **variables):
        for index, mode in enumerate(modes):
            for size in sizes:
                self.passes(mode, size, *steps, launcher=LAUNCHERS[(index + size) % len(LAUNCHERS)],
                            **variables)

    def test_every_number_of_arguments(self):
        self.each("arities", sizes=(1, 2, 4))

    def test_every_number_of_arguments_with_segment_everything(self):
        self.each("arities", modes=["seq_everything"])

    def test_names_that_no_other_case_calls(self):
        self.each("each-name", sizes=(1, 2), modes=["seq", "parsync", "par_debug", "seq_everything"])

    def test_diagnostics(self):
        for mode in MODES:
            self.passes(mode, 3, "diagnostics", "")
        for network in ("send_only", "delay=5us,depth=16,pins"):
            text = self.passes("par", 2, "diagnostics", "", HYDRANT_INJECT=network)
            self.assertEqual([line[:2] for line in text.splitlines() if line[1:3] == ": "],
                             [f"{letter}:" for letter in "ABCDEFG"], text)

    def test_diagnostics_find_errors(self):
        text = self.passes("par", 2, "diagnostics", "wrong")
        self.assertEqual(text.count("ERROR: diagnostics, rank "), 2, text)
        self.assertIn("10 increments instead of 20", text)
        text = self.passes("seq", 1, "diagnostics", "unregistered")
        self.assertEqual(text.count("skipped, because the handlers are not registered"), 2, text)
        self.passes("seq", 2, "diagnostics", "refused")
        text = self.passes("seq", 2, "diagnostics", "xf?")
        self.assertEqual(text.count('"xf?" has other letters than those of sections, A to G'), 1, text)
        self.assertIn("F: locks", text)

    def test_payloads_of_all_sizes(self):
        # Includes Longs to memory outside of segments.
        self.each("sizes", modes=["seq", "par_debug", "seq_everything"], HYDRANT_SEGMENT_CHECK="n")

    def test_payloads_without_cross_memory_attach(self):
        self.each("sizes", sizes=(2, 3), modes=["seq", "par"], TEST_NO_CMA="1")

    def test_attach_serves_late_ranks(self):
        self.each("early", sizes=(2, 4), modes=["seq", "par"])

    def test_negotiated_payload(self):
        self.each("negotiated", modes=["seq", "par", "par_debug"])

    def test_all_ranks_flood_all_ranks(self):
        self.each("flood", sizes=(1, 4), modes=["seq", "par"])

    def test_many_threads(self):
        self.each("threads", sizes=(1, 3), modes=["par", "par_debug"])

    def test_threads_taking_turns(self):
        self.each("turns", sizes=(1, 3), modes=["parsync", "parsync_debug", "par", "par_debug"])

    def test_a_second_thread_is_named_in_debug_programs_of_one_thread(self):
        me = r"is called by thread \d+ \('intruder'\), while thread \d+ \('core_client_[a-z_]*'\)"
        calls = {"poll": "gasnet_AMPoll", "request": "gex_AM_RequestShort", "put": "gex_RMA_PutBlocking",
                 "wait": "gex_NBI_Wait", "barrier": "gasnet_barrier_notify"}
        alone = {"prepare": "gex_AM_PrepareRequestMedium", "register": "gex_EP_RegisterHandlers",
                 "query": "gex_EP_QueryBoundSegmentNB"}
        texts = {("seq_debug", "beside"): "is inside gex_AM_RequestShort: .* Compile it with GASNET_PAR",
                 ("seq_debug", "alone"): "has started the job: .* Compile it with GASNET_PAR",
                 ("parsync_debug", "beside"):
                     "is inside gex_AM_RequestShort: .* or compile it with GASNET_PAR"}
        for (mode, how), text in texts.items():
            for what, call in (calls | (alone if how == "alone" else {})).items():
                with self.subTest(mode=mode, how=how, what=what):
                    code, output, errors = self.start(mode, LAUNCHERS[-1], 2, "intruder", how, what)
                    self.assertNotEqual(code, 0, output + errors)
                    self.assertRegex(errors, rf"FATAL ERROR \(rank 0\): {call} {me} {text}")

    def test_cancelled_threads(self):
        self.each("cancelled", sizes=(1, 2, 3), modes=["par", "par_debug"])

    def test_waits_in_a_handler_without_pending_operations(self):
        for how in ("all", "some", "nbi", "nbi-test", "syncnbi", "region"):
            for size in (1, 2):
                with self.subTest(how=how, size=size):
                    self.passes("par", size, "handler-waits", how)
        for how in ("all", "nbi", "region"):
            with self.subTest(how=how, debug=True):
                code, _, errors = self.start("seq_debug", LAUNCHERS[0], 1, "handler-waits", how)
                self.assertEqual(code, 134, errors)
                self.assertRegex(errors, r"gex_\w+ in a handler, which may send one reply")

    def test_calls_between_prepare_and_commit(self):
        calls = {"poll": "gasnet_AMPoll", "block": "GASNET_BLOCKUNTIL or a try_sync",
                 "short": "gex_AM_RequestShort", "put": "gex_RMA_PutBlocking",
                 "get": "gex_RMA_GetBlocking", "value": "gex_RMA_GetBlocking", "barrier": "gasnet_barrier",
                 "test": "gex_Event_Test", "wait": "gex_Event_Wait",
                 "translate": "gex_TM_TranslateRankToJobrank", "prepare": "gex_AM_PrepareRequestMedium"}
        for mode in ("seq_debug", "par_debug"):
            for what, call in calls.items():
                with self.subTest(mode=mode, what=what):
                    code, _, errors = self.start(mode, LAUNCHERS[-1], 2, "prepared", what)
                    self.assertEqual(code, 134, errors)
                    self.assertRegex(errors, rf"FATAL ERROR \(rank \d\): {call} is called between "
                                             r"gex_AM_PrepareRequestMedium and its commit: the request for "
                                             r"rank \d is prepared; commit or cancel it first")
        for mode in ("seq", "par"):
            for what in calls.keys() - {"prepare"}:
                self.passes(mode, 2, "prepared", what, launcher=LAUNCHERS[-1])

    def test_each_argument_is_evaluated_once(self):
        self.each("once", sizes=(1, 2))

    def test_locks_exclude_handlers_and_threads(self):
        self.each("locks", sizes=(1, 2, 4))

    def test_misused_locks_end_the_job(self):
        texts = {"none": "gex_HSL_Lock: the lock was never initialised",
                 "twice": "gex_HSL_Lock: this thread holds the lock already",
                 "try-twice": "gex_HSL_Trylock: this thread holds the lock already",
                 "free": "gex_HSL_Unlock: this thread does not hold the lock",
                 "foreign": "gex_HSL_Unlock: this thread does not hold the lock",
                 "order": "gex_HSL_Unlock: locks are released in the reverse order",
                 "init-twice": "gex_HSL_Init: the lock is initialised already",
                 "destroy-held": "gex_HSL_Destroy: the lock is held",
                 "destroyed": "gex_HSL_Lock: the lock was destroyed",
                 "handler": "a handler returns with a handler-safe lock held",
                 "poll": "gasnet_AMPoll is called with a handler-safe lock held",
                 "request": "an Active Message is sent with a handler-safe lock held",
                 "prepare": "an Active Message is prepared with a handler-safe lock held",
                 "barrier": ".*barrier.* with a handler-safe lock held",
                 "put": "a put or get is started with a handler-safe lock held"}
        for mode in ("seq_debug", "par_debug"):
            for what, text in texts.items():
                if (mode, what) == ("seq_debug", "foreign"):
                    continue
                with self.subTest(mode=mode, what=what):
                    code, output, errors = self.start(mode, LAUNCHERS[-1], 2, "misused-lock", what)
                    self.assertNotEqual(code, 0, output + errors)
                    self.assertRegex(errors, rf"FATAL ERROR \(rank 0\): {text}")
        output = self.passes("par_debug", 2, "misused-lock", "long")
        self.assertRegex(output, r"gex_HSL_Unlock: the lock was held for \d+\.\d s")

    def test_different_heap_offsets_are_refused(self):
        self.passes("seq", 3, "heap-offset", "0")
        code, output, errors = self.start("seq", LAUNCHERS[0], 3, "heap-offset", "4096")
        self.assertEqual(code, 42, output + errors)
        self.assertRegex(errors, "minheapoffset is (12288 here and 16384 on rank [12]"
                                 "|16384 here and 12288 on rank 0); it must be the same")

    def test_output_lines_appear_before_the_rank_ends(self):
        for launcher in LAUNCHERS:
            with self.subTest(launcher=launcher), tempfile.TemporaryDirectory() as folder:
                go_on = pathlib.Path(folder, "go_on")
                job = Job(ClientBuild("seq"), launcher, 2, "line", TEST_FILE=str(go_on))
                job.wait_for(" says a line\n", 2)
                self.assertNotIn(" done\n", job.read_shared())
                go_on.touch()
                code, output, errors = job.wait()
                self.assertEqual((code, output.count(" done\n")), (0, 2), output + errors)
                self.assertEqual(job.wait_until_gone(), [])

    def test_segments_agree_and_are_writable_by_neighbours(self):
        for size in (1, 2, 3):
            self.each("segments", sizes=[size], modes=["seq", "par"], TEST_HOSTS=str(over.nodes(size)))
        for most in ("1", "2", "3"):
            self.passes("seq", 4, "segments", GASNET_SUPERNODE_MAXSIZE=most, TEST_HOSTS=str(over.nodes(4)))

    def test_the_clients_own_segment_is_bound_and_published(self):
        self.each("publish", modes=["seq", "par_debug"])

    def test_longs_with_supernodes_of_one_rank(self):
        self.passes("seq", 2, "sizes", GASNET_SUPERNODE_MAXSIZE="1")

    def test_exits(self):
        for how, expected in {"handler": 22, "prepared": 23, "threads": 24, "main": 25, "spin": 26,
                              "before-attach": 21, "reader": 28}.items():
            for mode, size in (("par", 3), ("seq", 1)):
                if size == 1 and how in ("prepared", "handler"):
                    continue
                with self.subTest(how=how, mode=mode):
                    launcher = LAUNCHERS[size % len(LAUNCHERS)]
                    code, output, errors = self.start(mode, launcher, size, "exit", how)
                    self.assertEqual(code, expected, output + errors)

    def test_exit_with_zero_ends_ranks_that_do_not_follow(self):
        for launcher in LAUNCHERS + Build(ROOT).foreign_launchers():
            for how in ("zero-spin", "zero-wait"):
                with self.subTest(launcher=launcher, how=how):
                    code, output, errors = self.start("par", launcher, 3, "exit", how)
                    self.assertEqual(code, 0, output + errors)
                    for rank in range(3):
                        self.assertIn(f"rank {rank} was here", output, errors)
                    if how == "zero-spin":
                        self.assertRegex(errors, r"rank 0 exited with code 0, and .* did not follow")

    # No exit may end by a kill: the launcher waits long enough.
    def test_nested_exits(self):
        for how, expected in {"interrupted": 29, "late": 30, "child": 31}.items():
            for mode, size in (("par", 2), ("seq", 1)):
                with self.subTest(how=how, mode=mode):
                    launcher = LAUNCHERS[size % len(LAUNCHERS)]
                    code, output, errors = self.start(mode, launcher, size, "exit", how,
                                                      GASNET_EXITTIMEOUT="600")
                    self.assertEqual(code, expected, output + errors)
                    if how == "late":
                        self.assertEqual(output.count("leaves late"), size, output + errors)

    def test_exit_flushes_the_clients_files(self):
        with tempfile.NamedTemporaryFile() as file:
            code, output, errors = self.start("seq", LAUNCHERS[0], 2, "exit", "file", TEST_FILE=file.name)
            self.assertEqual(code, 27, output + errors)
            self.assertEqual(file.read(), b"all of it")

    def test_external_sigquit_is_a_failure(self):
        for size in (1, 2):
            code, _, errors = self.start("seq", LAUNCHERS[0], size, "exit", "quit")
            self.assertEqual(code, 131, errors)

    def test_interrupt_runs_the_clients_sigquit_handler(self):
        for size in (1, 2):
            for how, expected in {"interrupt": 130, "interrupt-caught": 29}.items():
                with self.subTest(how=how, size=size):
                    code, _, errors = self.start("seq", LAUNCHERS[0], size, "exit", how)
                    self.assertEqual(code, expected, errors)

    def test_rank_killed_in_a_flood_is_named(self):
        for launcher in LAUNCHERS:
            code, _, errors = self.start("seq", launcher, 3, "exit", "killed")
            self.assertEqual(code, 137)
            self.assertRegex(errors, r"rank 2 .*signal 9")
            self.assertNotIn("HYDRANT_ERR_BROKEN", errors, "the job's end is no error of a call")

    def test_limits_are_equal_on_all_ranks(self):
        output = self.passes("seq", 3, "limits")
        globals_ = {line.split()[-1] for line in output.splitlines() if " global " in line}
        self.assertEqual(len(globals_), 1, output)
        output = self.passes("seq", 3, "limits", GASNET_MAX_SEGSIZE="64MB/P")
        self.assertEqual(output.count(f"local {64 << 20} global {64 << 20}"), 3, output)

    def test_invalid_segment_limit_is_refused(self):
        code, _, errors = self.start("seq", LAUNCHERS[0], 2, "limits", GASNET_MAX_SEGSIZE="nan")
        self.assertEqual(code, 98)
        self.assertIn("GASNET_MAX_SEGSIZE is 'nan'", errors)

    def test_errors_are_printed_unless_disabled(self):
        output = self.passes("seq", 2, "verbose")
        self.assertEqual(output.count("the limit of 33 endpoints"), 2, output)
        self.assertEqual(output.count("the table is NULL"), 2, output)
        output = self.passes("seq", 2, "verbose", "silently")
        self.assertNotIn("gex_EP_", output)

    def test_invalid_segment_sizes_are_refused(self):
        for bytes_, text in (("5000", "multiple of 4096"), ("0", "not 0"), (str(1 << 43), "exceeds the")):
            code, _, errors = self.start("seq", LAUNCHERS[0], 2, "big-segment", bytes_)
            self.assertEqual(code, 42, errors)
            self.assertIn(text, errors)

    def test_segments_larger_than_memory(self):
        code, _, errors = self.start("seq", LAUNCHERS[0], 2, "big-segment", str(1 << 42),
                                     GASNET_MAX_SEGSIZE="4096GB/P", HYDRANT_SEGMENT_COMMIT="y")
        self.assertEqual(code, 42, errors)
        self.assertRegex(errors, r"need \d+ bytes, and \d+ are available")

    @unittest.skipIf(over.OVER == "mixed", "a node maps no more than its own ranks' segments")
    def test_too_small_address_space(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        code, _, errors = self.start("seq", "fork", 2, "big-segment", str(640 << 20), before=limit)
        self.assertEqual(code, 42, errors)
        self.assertIn("cannot be mapped", errors)

    @unittest.skipIf(over.OVER == "mixed", "hydrant-run raises the limit that it was started with")
    def test_failed_init_prints_its_cause(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
        code, _, errors = self.start("seq", "fork", 2, "limits", before=limit)
        self.assertEqual(code, 98, errors)
        self.assertIn("a job of 2 processes needs 68 descriptors here, and the hard limit is 40", errors)

    def test_init_names_missing_resources(self):
        texts = {"DESCRIPTORS": "eventfd.*: Operation not permitted"}
        if not over.OVER:  # with shared memory
            texts["MEMORY"] = (r"cannot create a memory file of \d+ bytes for the memory that the "
                               r"node's ranks share: Operation not permitted")
            texts["PAGES"] = r"the node's memory needs \d+ bytes .* available"
        for name, text in texts.items():
            for launcher in LAUNCHERS:
                with self.subTest(lacks=name, launcher=launcher):
                    code, _, errors = self.start("seq", launcher, 2, "limits", **{f"TEST_NO_{name}": "1"})
                    self.assertEqual(code, 98, errors)
                    self.assertRegex(errors, text)

    @unittest.skipUnless("hydrant-run" in LAUNCHERS, "ranks of one fork have one environment")
    def test_different_barriers_fail_in_init(self):
        client = ClientBuild("seq").probe
        # If ranks share no memory, SHM means AMDISSEM.
        pairs = [("AMDISSEM", "AMCENTRAL")]
        if not over.OVER:
            pairs += [("AMCENTRAL", "SHM"), ("SHM", "AMDISSEM")]
        for zero, one in pairs:
            with self.subTest(zero=zero, one=one):
                build = ClientBuild("seq")
                build.probe = "/bin/sh"
                script = f'[ "$HYDRANT_JOB_RANK" = 1 ] && export GASNET_BARRIER={one}; exec "{client}" limits'
                job = Job(build, "hydrant-run", 3, "-c", script, GASNET_BARRIER=zero)
                code, output, errors = job.wait()
                self.assertEqual(job.wait_until_gone(), [])
                self.assertEqual(code, 98, output + errors)
                self.assertRegex(errors, f"barrier of rank 0 is {zero} .*that of rank 1 is {one} ")

    def test_ticks_are_calibrated_during_init(self):
        # The client itself never reads ticks.
        text = self.passes("seq", 2, "limits", GASNET_TSC_VERBOSE="1")
        if "MHz" not in text:
            self.skipTest("ticks are the system's clock here")
        self.assertEqual(text.count("measured in"), 2, text)

    def test_verboseenv_shows_settings_once(self):
        output = self.passes("seq", 3, "limits", GASNET_VERBOSEENV="1", GASNET_MAX_SEGSIZE="64MB/P",
                             GASNET_BARRIER="AMDISSEM")
        self.assertRegex(output, r"ENV parameter: GASNET_MAX_SEGSIZE = 64MB/P \(64 MB\)")
        self.assertRegex(output, r"ENV parameter: GASNET_BARRIER = AMDISSEM *\n")
        self.assertRegex(output, r"ENV parameter: GASNET_SUPERNODE_MAXSIZE = .* \(default\)")
        self.assertEqual(output.count("GASNET_BARRIER ="), 1)
        self.assertNotIn("ENV parameter", self.passes("seq", 1, "limits"))


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C")
    unittest.main()
