#!/usr/bin/python3
"""run_test.py: what run.py and conduit.py make of programs that end in different ways, also in a guest."""
import pathlib
import re
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration/launch"))
import conduit  # noqa: E402  (the path must be set first)
import conduit_guest  # noqa: E402
import outputs  # noqa: E402
import over  # noqa: E402
import run  # noqa: E402

# Replaces hydrant-run: a shell executes the last argument.
LAUNCHER = '#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n'


class RunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hydrant-conformance-")
        self.addCleanup(folder.cleanup)
        launcher = pathlib.Path(folder.name) / "launcher"
        launcher.write_text(LAUNCHER)
        launcher.chmod(0o755)
        self.args = types.SimpleNamespace(run=launcher, run_options=[], timeout=10, guest=True, variant="",
                                          logs=launcher.parent, resume=None, passed=set())
        # Programs of a made-up name, which may print anything.
        ends = unittest.mock.patch.dict(outputs.ENDS, {"testit.c": outputs.End("", outputs.first)})
        ends.start()
        self.addCleanup(ends.stop)

    def start(self, text, **more):
        return run.Start(run.Program("testit.c", (text,), **more), "/bin/true", 2)

    def outcomes(self, starts):
        """As from a guest, whose shell is this machine's."""
        script = run.guest_script(self.args, starts, "MARK")
        text = subprocess.run(["sh", "-c", script], capture_output=True, text=True,
                              timeout=60 * over.PATIENCE).stdout
        ended = run.results_in_guest(text, "MARK", len(starts))
        return [start.judge(*end) for start, end in zip(starts, ended)]

    def test_the_status_is_the_programs(self):
        starts = [self.start("echo fine"), self.start("exit 3"), self.start("exit 3", status=3),
                  self.start("echo x", status=3), self.start("exit 124"),
                  self.start("kill -SEGV $$", status=139)]
        expected = ["", "exit 3", "", "exit 0", "hangs", ""]
        self.assertEqual(self.outcomes(starts), expected)
        self.assertEqual([start.judge(*run.run_here(self.args, start)) for start in starts[:5]], expected[:5])

    def test_lines_with_error(self):
        self.assertEqual(self.outcomes([self.start("echo rank 0: ERROR: wrong"), self.start("echo none"),
                                        self.start("printf ERROR", may_complain=True)]), ["ERROR", "", ""])

    def test_the_environment_of_a_program_is_its_own(self):
        check = 'test "$HYDRANT_TEST_WORD" = "a b"'
        self.assertEqual(self.outcomes([self.start(check, environment={"HYDRANT_TEST_WORD": "a b"}),
                                        self.start(check)]), ["", "exit 1"])

    def test_what_a_guest_did_not_come_to_hangs(self):
        self.assertEqual(run.results_in_guest("one\n\nMARK 0\ntwo", "MARK", 3),
                         [(0, "one\n"), (run.TIMED_OUT, "two"), (run.TIMED_OUT, "two")])

    def test_a_run_that_goes_on_repeats_what_failed(self):
        self.args.guest, self.args.resume = False, self.args.logs / "passed"
        starts = [self.start("echo fine"), self.start("echo FAILED"), self.start("exit 1")]
        self.assertEqual(run.run_all(self.args, starts), ["", "ERROR", "exit 1"])
        self.args.passed = set(self.args.resume.read_text().splitlines())
        with unittest.mock.patch.object(run, "run_here", return_value=(5, "")) as run_here:
            self.assertEqual(run.run_all(self.args, starts), ["", "exit 5", "exit 5"])
        self.assertEqual(run_here.call_count, 2)

    def test_other_options_make_other_runs(self):
        args = types.SimpleNamespace(guest=False, cxx=False, everything=False, run_options=["--nodes=2"],
                                     installed=pathlib.Path("/usr"), static=True)
        with unittest.mock.patch.dict("os.environ", {"HYDRANT_PATH": "am"}):
            for option in ("--nodes=2", "--installed", "--static"):
                self.assertIn(option, run.variant(args))
            self.assertIn("HYDRANT_PATH=am", run.variant(args))

    def test_an_installation_is_linked_by_its_packages_alone(self):
        folder = self.args.logs / "lib/pkgconfig"
        folder.mkdir(parents=True)
        for name in ("hydrant", "gasnet-ibv-par", "gasnet_tools-seq"):
            (folder / f"{name}.pc").write_text(
                f"Name: {name}\nDescription: of a test\nVersion: 1\nCflags: -DOF_{name}\nLibs: -lof_{name}\n"
                "Libs.private: -lmore\n")
        args = types.SimpleNamespace(installed=self.args.logs, static=False)
        self.assertEqual(run.installed_library(args, "PAR"),
                         (["-DOF_gasnet-ibv-par"], ["-lof_gasnet-ibv-par"]))
        args.static = True
        self.assertEqual(run.installed_library(args, "THREAD_SINGLE"),
                         (["-DOF_gasnet_tools-seq"], ["-static", "-lof_gasnet_tools-seq", "-lmore"]))


class OutputTest(unittest.TestCase):
    """Made-up outputs: each check must be able to fail."""

    def problem(self, source, ranks, text, **environment):
        return outputs.problem(source, ranks, text, environment)

    def test_all_programs_have_an_end(self):
        self.assertEqual({program.source for program in run.PROGRAMS}, set(outputs.ENDS))
        ends = [end.pattern for end in outputs.ENDS.values() if not end.because]
        self.assertEqual([end for end in ends if not re.search(r"one\\\.|PASSED|complete", end)], [])
        self.assertEqual([skip.text for skip in outputs.ACCEPTED_SKIPS if not skip.because], [])

    def test_complaints(self):
        whole = "node 0/1 done.\n"
        self.assertEqual(self.problem("testteam.c", 1, whole), "")
        for line in ("ERROR: node 0/1 wrong (at test.c:3)", "*** FATAL ERROR", "Caught a fatal signal: 11",
                     "FAIL - detected 2 errors", "*** ERROR - FAILED NO BOUND SEGMENT TEST!!!!!"):
            self.assertEqual(self.problem("testteam.c", 1, f"{line}\n{whole}"), "ERROR")

    def test_each_rank_prints_the_end(self):
        one, other = "node 0/2 done.\n", "node 1/2 done.\n"
        self.assertEqual(self.problem("testcoll.c", 2, one + other), "")
        for text in ("", one, other, one + one, one + "node 1/3 done.\n", one + "node 1/2 done"):
            self.assertEqual(self.problem("testcoll.c", 2, text), "without its end", text)

    def test_ends_of_the_first_rank(self):
        self.assertEqual(self.problem("testreduce.c", 4, "Running\ndone.\n"), "")
        for text in ("Running", "not done.", "node 0/4 done.", "donee"):
            self.assertEqual(self.problem("testreduce.c", 4, text), "without its end", text)
        self.assertEqual(self.problem("testtools.c", 1, "Done.\n"), "")
        self.assertEqual(self.problem("testtools.c", 1, "A: tests\n"), "without its end")

    def test_ends_of_a_programs_own(self):
        whole = {
            ("testcore2.c", 1): "node 0/1 done. (detected 0 errs)",
            ("testslice.c", 1): "node 0/1 testslice PASSED",
            ("testthreads.c", 1): "node 0/1 Tests complete",
            ("testhello.c", 3): "Hello from node 0 of 3\nHello from node 2 of 3",
            ("testcore1.c", 4): "chksum_test(9) passed 9/9\nchksum_test(9) passed 9/9",
            ("testrand.c", 4): "Proc 0 - 8 bytes: 2 us ave. per page\nProc 2 - 8 bytes: 2 us ave. per page",
            ("testlogGP.c", 2): "Proc  0 -   8 byte : 1 us/Kb  (get: G   - GetNBI)",
            ("testnbr.c", 2): "DIM  128  axis z   270400 byte :    20 iters, 0 us ave (AMLongAsync)",
            ("testexit.c", 2): "Running crash test 200: a backtrace",
            ("testqueue.c", 2): "gex_AM_RequestLong0 (implicit handle for LC)\n---\n   1  2\n1  0.1  0.2",
        }
        for (source, ranks), text in whole.items():
            self.assertEqual(self.problem(source, ranks, text), "", source)
            # All lines but the last, and the last without its end.
            self.assertEqual(self.problem(source, ranks, text.rpartition("\n")[0]), "without its end", source)
        for source, ranks, text in (("testcore2.c", 1, "node 0/1 done. (detected 2 errs)"),
                                    ("testcore1.c", 2, "chksum_test(9) passed 8/9"),
                                    ("testqueue.c", 2, "gex_AM_RequestLong0 (implicit handle for LC)\n1")):
            self.assertEqual(self.problem(source, ranks, text), "without its end", text)

    def test_a_section_that_says_nothing(self):
        lines = [f"{letter}:  0 -  8 byte (PutNBIVal throughput)" for letter in "ABCDEF"]
        self.assertEqual(self.problem("testval.c", 2, "\n".join(lines)), "")
        for gap in range(6):
            text = "\n".join(lines[:gap] + lines[gap + 1:])
            self.assertEqual(self.problem("testval.c", 2, text), f"without section {'ABCDEF'[gap]}")
        lines = [f"node 0/2 {letter}: Running test x" for letter in "ABCDEFGHIJKLM"]
        self.assertEqual(self.problem("testcontend.c", 2, "\n".join([*lines, "node 0/2 Tests complete"])), "")

    def test_skipped_sections(self):
        end = "node 0/1 done.\n"
        for line in ("WARNING: This test requires an even number of nodes. Test skipped.",
                     "size is limited to <= 65536",
                     "WARNING: skipping ADD:GEX_DT_I32 test (would overflow)",
                     "Skipping AMLong with dim=3 (9 > AMMaxLongRequest())",
                     "WARNING: Ignoring '-f' since there are no foreign segments.",
                     "INFO: Optional GEX_TI_ENTRY query is not supported",
                     "  WARNING: 1 shared-memory rank omitted", "WARNING: scaling down datasize",
                     "*** WARNING - gasnett_set_affinity() failed unexpectedly",
                     "WARNING: thread count reduced to 1 (no multi-image support)"):
            self.assertIn("skips: ", self.problem("testteam.c", 1, line + "\n" + end), line)
        for line in ("hydrant: warning: rank 0: huge pages are not supported",
                     "[    1.25] rxe: unable to ..."):
            self.assertEqual(self.problem("testteam.c", 1, line + "\n" + end), "", line)

    def test_accepted_skips_hold_for_their_runs_only(self):
        def barrierconf(line, ranks):
            ends = "".join(f"node {rank}/{ranks} done.\n" for rank in range(ranks))
            return bool(self.problem("testbarrierconf.c", ranks, f"WARNING: {line}\n{ends}"))

        pair = "pair mismatch tests skipped (only 1 node)"
        three = "multiway mismatch tests skipped (less than 3 nodes)"
        self.assertEqual([barrierconf(pair, ranks) for ranks in (1, 2, 3)], [False, True, True])
        self.assertEqual([barrierconf(three, ranks) for ranks in (1, 2, 3)], [False, False, True])
        text = "WARNING: skipping intra-nbrhd initiator role on this process.\nnode 0/1 done.\n"
        self.assertEqual(self.problem("testsegment.c", 1, text), "")
        self.assertIn("skips", self.problem("testsegment.c", 1, text, GASNET_SUPERNODE_MAXSIZE="1"))
        self.assertIn("skips", self.problem("testteam.c", 1, text))
        text = ("WARNING: Ignoring '-f' since there are no foreign segments.\n"
                "node 0/2 testslice PASSED\nnode 1/2 testslice PASSED\n")
        self.assertIn("skips", self.problem("testslice.c", 2, text))
        self.assertEqual(self.problem("testslice.c", 2, text, HYDRANT_INJECT="delay=5us"), "")


class ConduitTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hydrant-conformance-")
        self.addCleanup(folder.cleanup)
        # Replaces a program: a shell executes the arguments after the spawner's options.
        self.program = pathlib.Path(folder.name) / "program"
        self.program.write_text('#!/bin/sh\nshift 3\nexec sh -c "$@"\n')
        self.program.chmod(0o755)

    def test_what_became_of_programs(self):
        texts = ["echo fine", "exit 3", "echo ERROR", "exec sleep 60", 'test "$GASNET_FIREHOSE_R" = 4']
        starts = [conduit_guest.Start(self.program, [text], "crossed", "") for text in texts]
        script = run.guest_script(types.SimpleNamespace(timeout=1), starts, "MARK")
        text = subprocess.run(["sh", "-c", script], capture_output=True, text=True,
                              timeout=60 * over.PATIENCE).stdout
        ended = run.results_in_guest(text, "MARK", len(starts))
        results = [start.judge(*end) for start, end in zip(starts, ended)]
        self.assertEqual(results, ["", "exit 3", "ERROR", "hangs", ""])

    def test_which_firehose_a_program_contains(self):
        ours, theirs = f"0 T {conduit.OURS}\n", f"0 T {conduit.THEIRS}\n"
        self.assertEqual(conduit.problem_of(ours, "ours"), "")
        self.assertEqual(conduit.problem_of(theirs, "gasnet"), "")
        for symbols, firehose in ((ours, "gasnet"), (theirs, "ours"), (ours + theirs, "ours"),
                                  ("", "gasnet")):
            self.assertNotEqual(conduit.problem_of(symbols, firehose), "")


if __name__ == "__main__":
    unittest.main()
