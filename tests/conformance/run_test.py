#!/usr/bin/python3
"""run_test.py: what run.py and conduit.py make of programs that end in different ways, also in a guest."""
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration/launch"))
import conduit  # noqa: E402  (the path must be set first)
import conduit_guest  # noqa: E402
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
        self.args = types.SimpleNamespace(run=launcher, run_options=[], timeout=10, guest=True)

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
